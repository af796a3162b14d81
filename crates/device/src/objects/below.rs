//! A folder of a store as a store of its own.

use std::ops::Range;
use std::sync::Arc;

use super::{ObjectRange, Store};
use crate::{Buffer, Result};

/// A folder of a store: names begin below it.
pub struct Below {
    store: Arc<dyn Store>,
    /// With the `/` behind it.
    folder: String,
}

impl Below {
    /// The folder of this name.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, folder: String) -> Below {
        Below { store, folder: folder + "/" }
    }

    fn name(&self, name: &str) -> String {
        format!("{}{name}", self.folder)
    }

    fn names(&self, names: &[String]) -> Vec<String> {
        names.iter().map(|name| self.name(name)).collect()
    }
}

impl Store for Below {
    fn identity(&self) -> String {
        self.store.identity()
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.store.create(&self.name(name), bytes)
    }

    fn create_shared(&self, name: &str, bytes: &Arc<Buffer>) -> Result<bool> {
        self.store.create_shared(&self.name(name), bytes)
    }

    fn refuses(&self, name: &str) -> Result<bool> {
        self.store.refuses(&self.name(name))
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        self.store.read(&self.name(name), range)
    }

    fn read_ranges(&self, ranges: &mut [ObjectRange<'_>]) {
        let names: Vec<String> = ranges.iter().map(|range| self.name(range.object)).collect();
        let below = ranges.iter_mut().zip(&names).map(|(range, name)| {
            let outs = range.outs.iter_mut().map(|out| &mut **out).collect();
            ObjectRange { object: name, offset: range.offset, outs, outcome: Ok(()) }
        });
        let mut below: Vec<ObjectRange<'_>> = below.collect();
        self.store.read_ranges(&mut below);
        let outcomes: Vec<Result<()>> = below.into_iter().map(|range| range.outcome).collect();
        ranges.iter_mut().zip(outcomes).for_each(|(range, outcome)| range.outcome = outcome);
    }

    fn read_each(&self, names: &[String]) -> Vec<Result<Vec<u8>>> {
        self.store.read_each(&self.names(names))
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let listed = self.store.list(&self.name(folder))?;
        Ok(listed.iter().filter_map(|name| name.strip_prefix(&self.folder)).map(str::to_owned).collect())
    }

    fn delete(&self, names: &[String]) -> Result<()> {
        self.store.delete(&self.names(names))
    }

    fn release(&self) {
        self.store.release();
    }
}
