//! A store as the pool's device wants it: the nine calls of [`crate::Store`] as the few of
//! [`steadfast_device::objects::Store`], and failures as that room names them.

use std::fs::File;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use steadfast_device::{Error as DeviceError, Operation as DeviceOperation, Result as DeviceResult};

use crate::{Class, Client, Error, Fetch, Operation, Store};

/// A store that holds a pool's device.
pub struct DeviceStore {
    client: Client,
    /// Held for the lock on a folder, which goes with it.
    claim: Mutex<Option<File>>,
}

impl DeviceStore {
    /// Takes a store for use by this handle alone. A folder is locked, as an image is; a bucket
    /// cannot be, and epochs fence its writers.
    ///
    /// # Errors
    /// Another process uses the folder.
    pub fn exclusive(client: Client) -> DeviceResult<DeviceStore> {
        let claim = client.location().folder().map(|folder| {
            let identity = client.address();
            let failed = |source| DeviceError::Io {
                device: identity.clone(),
                operation: DeviceOperation::Open,
                offset: 0,
                source,
            };
            let lock = File::open(folder).map_err(failed)?;
            match lock.try_lock() {
                Ok(()) => Ok(lock),
                Err(std::fs::TryLockError::WouldBlock) => {
                    Err(DeviceError::Busy { device: identity.clone(), holder: None })
                }
                Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
            }
        });
        Ok(DeviceStore { client, claim: Mutex::new(claim.transpose()?) })
    }

    /// Looks at a store that others may use.
    #[must_use]
    pub fn shared(client: Client) -> DeviceStore {
        DeviceStore { client, claim: Mutex::new(None) }
    }
}

fn device_error(error: &Error) -> DeviceError {
    let (device, object) = (error.device.clone(), error.object.clone());
    if error.class == Class::Missing {
        return DeviceError::Missing { device, object };
    }
    let operation = match error.operation {
        Operation::Create | Operation::Put | Operation::Replace => DeviceOperation::Write,
        Operation::Get | Operation::Head => DeviceOperation::Read,
        Operation::List => DeviceOperation::List,
        Operation::Delete => DeviceOperation::Discard,
        _ => DeviceOperation::Open,
    };
    DeviceError::Store { device, operation, object, reason: error.reason() }
}

impl steadfast_device::objects::Store for DeviceStore {
    fn identity(&self) -> String {
        self.client.address()
    }

    fn create(&self, name: &str, bytes: &[u8]) -> DeviceResult<bool> {
        match self.client.create(name, bytes) {
            Ok(()) => Ok(true),
            Err(error) if error.class == Class::Exists => Ok(false),
            Err(error) => Err(device_error(&error)),
        }
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> DeviceResult<Vec<u8>> {
        let Some(range) = range else {
            return match self.client.get(name) {
                Ok((bytes, _)) => Ok(bytes),
                Err(error) => Err(device_error(&error)),
            };
        };
        let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let mut out = vec![0; length];
        let mut fetches = [Fetch { object: name, offset: range.start, out: &mut out, outcome: Ok(()) }];
        self.client.get_ranges(&mut fetches);
        let [Fetch { outcome, .. }] = fetches;
        match outcome {
            Ok(()) => Ok(out),
            Err(error) if error.class == Class::Short => match self.client.head(name) {
                Ok(Some(head)) => {
                    let (device, object) = (self.client.address(), name.to_owned());
                    Err(DeviceError::CutShort { device, object, length: head.size, needed: range.end })
                }
                Ok(None) => {
                    Err(DeviceError::Missing { device: self.client.address(), object: name.to_owned() })
                }
                Err(error) => Err(device_error(&error)),
            },
            Err(error) => Err(device_error(&error)),
        }
    }

    fn list(&self, folder: &str) -> DeviceResult<Vec<String>> {
        match self.client.list(folder) {
            Ok(heads) => Ok(heads.into_iter().map(|head| head.object).collect()),
            Err(error) => Err(device_error(&error)),
        }
    }

    fn delete(&self, names: &[String]) -> DeviceResult<()> {
        self.client.delete(names).map_err(|error| device_error(&error))
    }

    fn release(&self) {
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
