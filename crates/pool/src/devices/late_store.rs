//! A store that is opened when something is asked of it: keys that are missing when the pool is
//! imported cost the requests, and not the parity device whose tiles lie there.

use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use steadfast_device::objects::{ObjectRange, Store};
use steadfast_device::{Buffer, Error, Operation, Result};

/// Opens a store.
type Open = dyn Fn() -> io::Result<Arc<dyn Store>> + Send + Sync;

/// The store of an address. While it cannot be opened, each request says why, and tries again.
pub(crate) struct LateStore {
    address: String,
    open: Box<Open>,
    store: OnceLock<Arc<dyn Store>>,
}

impl LateStore {
    pub(crate) fn new(
        address: &str,
        open: impl Fn() -> io::Result<Arc<dyn Store>> + Send + Sync + 'static,
    ) -> LateStore {
        LateStore { address: address.to_owned(), open: Box::new(open), store: OnceLock::new() }
    }

    fn store(&self) -> Result<&dyn Store> {
        if let Some(store) = self.store.get() {
            return Ok(&**store);
        }
        let opened = (self.open)().map_err(|error| self.failed(&error))?;
        // Two that open it at once use one of them.
        Ok(&**self.store.get_or_init(|| opened))
    }

    fn failed(&self, error: &io::Error) -> Error {
        let (device, object) = (self.address.clone(), "the store".to_owned());
        Error::Store { device, operation: Operation::Open, object, reason: error.to_string() }
    }
}

impl Store for LateStore {
    fn identity(&self) -> String {
        self.store.get().map_or_else(|| self.address.clone(), |store| store.identity())
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.store()?.create(name, bytes)
    }

    fn create_shared(&self, name: &str, bytes: &Arc<Buffer>) -> Result<bool> {
        self.store()?.create_shared(name, bytes)
    }

    fn refuses(&self, name: &str) -> Result<bool> {
        self.store()?.refuses(name)
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        self.store()?.read(name, range)
    }

    fn read_ranges(&self, ranges: &mut [ObjectRange<'_>]) {
        match self.store() {
            Ok(store) => store.read_ranges(ranges),
            // It may open by now.
            Err(_) => ranges.iter_mut().for_each(|range| match self.store() {
                Ok(store) => store.read_ranges(std::slice::from_mut(range)),
                Err(error) => range.outcome = Err(error),
            }),
        }
    }

    fn read_each(&self, names: &[String]) -> Vec<Result<Vec<u8>>> {
        match self.store() {
            Ok(store) => store.read_each(names),
            Err(_) => names.iter().map(|name| self.read(name, None)).collect(),
        }
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.store()?.list(folder)
    }

    fn delete(&self, names: &[String]) -> Result<()> {
        self.store()?.delete(names)
    }

    fn release(&self) {
        self.store.get().iter().for_each(|store| store.release());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use steadfast_device::objects::MemoryStore;

    /// Keys that come while ranges are read give the ranges, or say why not.
    #[test]
    fn a_store_that_opens_amid_ranged_reads_gives_no_zeros() {
        let store = MemoryStore::new("tiles");
        assert!(store.create("object", b"content").unwrap());
        let store: Arc<dyn Store> = Arc::new(store);
        let tries = AtomicUsize::new(0);
        let late = LateStore::new("tiles", move || match tries.fetch_add(1, Ordering::Relaxed) {
            0 | 1 => Err(io::ErrorKind::NotFound.into()),
            _ => Ok(Arc::clone(&store)),
        });
        let mut out = [[0; 7]; 2];
        let ranges = out.iter_mut().map(|out| ObjectRange {
            object: "object",
            offset: 0,
            outs: vec![out],
            outcome: Ok(()),
        });
        let mut ranges: Vec<ObjectRange<'_>> = ranges.collect();
        late.read_ranges(&mut ranges);
        assert!(ranges[0].outcome.is_err() && ranges[1].outcome.is_ok());
        assert_eq!(out, [[0; 7], *b"content"]);
    }
}
