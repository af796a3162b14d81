//! A folder of objects: a bucket played by a directory.
//!
//! `object_store` speaks async; a small runtime on the calling thread hides that from everybody
//! above.

use std::fs::File;
use std::ops::Range;
use std::path::Path as FilePath;
use std::sync::{Mutex, PoisonError};

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};

use super::Store;
use crate::{Error, Operation, Result};

/// A directory of whole objects.
#[derive(Debug)]
pub struct Folder {
    identity: String,
    store: LocalFileSystem,
    runtime: tokio::runtime::Runtime,
    /// Held for the lock on the directory, which goes with it.
    claim: Mutex<Option<File>>,
}

impl Folder {
    /// Opens an existing directory, for this handle alone.
    pub fn open(directory: &FilePath) -> Result<Folder> {
        let identity = directory.display().to_string();
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => Error::NotFound { device: identity.clone() },
            _ => Error::Io { device: identity.clone(), operation: Operation::Open, offset: 0, source },
        };
        if !directory.metadata().map_err(failed)?.is_dir() {
            let (found, wanted) = ("not a directory", "a directory of objects");
            return Err(Error::WrongType { device: identity, found, wanted });
        }
        let lock = File::open(directory).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(Error::Busy { device: identity, holder: None });
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let store = LocalFileSystem::new_with_prefix(directory)
            .map_err(|error| store_error(&identity, Operation::Open, "the directory", &error))?
            .with_fsync(true);
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(4).build().map_err(failed)?;
        Ok(Folder { identity, store, runtime, claim: Mutex::new(Some(lock)) })
    }

    fn read_error(&self, object: &str, error: &object_store::Error) -> Error {
        match error {
            object_store::Error::NotFound { .. } => {
                Error::Missing { device: self.identity.clone(), object: object.to_owned() }
            }
            _ => store_error(&self.identity, Operation::Read, object, error),
        }
    }
}

impl Store for Folder {
    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let payload = PutPayload::from(bytes.to_vec());
        match self.runtime.block_on(self.store.put_opts(&Path::from(name), payload, options)) {
            Ok(_) => Ok(true),
            Err(object_store::Error::AlreadyExists { .. }) => Ok(false),
            Err(error) => Err(store_error(&self.identity, Operation::Write, name, &error)),
        }
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        let path = Path::from(name);
        let Some(range) = range else {
            let got = self.runtime.block_on(async { self.store.get(&path).await?.bytes().await });
            return got.map(Vec::from).map_err(|error| self.read_error(name, &error));
        };
        match self.runtime.block_on(self.store.get_range(&path, range.clone())) {
            Ok(bytes) => Ok(bytes.into()),
            // The store's own words for a range past the end differ; the length says it plainly.
            Err(error) => match self.runtime.block_on(self.store.head(&path)) {
                Ok(meta) if meta.size < range.end => {
                    let (device, object) = (self.identity.clone(), name.to_owned());
                    Err(Error::CutShort { device, object, length: meta.size, needed: range.end })
                }
                _ => Err(self.read_error(name, &error)),
            },
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        let mut folders = vec![Path::from(folder)];
        while let Some(folder) = folders.pop() {
            let listed = self.runtime.block_on(self.store.list_with_delimiter(Some(&folder)));
            let listed = listed
                .map_err(|error| store_error(&self.identity, Operation::List, folder.as_ref(), &error))?;
            names.extend(listed.objects.into_iter().map(|object| object.location.to_string()));
            folders.extend(listed.common_prefixes);
        }
        Ok(names)
    }

    fn delete(&self, names: &[String]) -> Result<()> {
        for name in names {
            match self.runtime.block_on(self.store.delete(&Path::from(name.as_str()))) {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(store_error(&self.identity, Operation::Discard, name, &error)),
            }
        }
        Ok(())
    }

    fn release(&self) {
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn store_error(identity: &str, operation: Operation, object: &str, error: &object_store::Error) -> Error {
    let (device, object, reason) = (identity.to_owned(), object.to_owned(), error.to_string());
    Error::Store { device, operation, object, reason }
}
