//! Faults on purpose on a pool's leaves, for whoever wants to see it heal. Nothing of it is stored: it ends with the import.

pub use steadfast_device::inject::{Armed, Calls, Injection, When};

use crate::Pool;
use crate::error::{Error, Result};

impl Pool {
    /// Injects something into the calls of the leaf at this path.
    ///
    /// # Errors
    /// If the pool has no such leaf.
    pub fn inject(&self, path: &str, injection: Injection) -> Result<()> {
        let leaf = self.inner.leaves().into_iter().find(|leaf| leaf.path() == path);
        let leaf = leaf.ok_or_else(|| Error::ForeignDevice { path: path.to_owned(), pool: self.name() })?;
        leaf.injector.arm(injection);
        Ok(())
    }

    /// What is injected, by the paths of leaves.
    #[must_use]
    pub fn injected(&self) -> Vec<(String, Vec<Armed>)> {
        let leaves = self.inner.leaves().into_iter();
        leaves
            .map(|leaf| (leaf.path(), leaf.injector.armed()))
            .filter(|(_, armed)| !armed.is_empty())
            .collect()
    }

    /// Injects nothing any more into the leaf at this path, or into any. Gives how many injections there were.
    pub fn clear_injected(&self, path: Option<&str>) -> usize {
        let leaves = self.inner.leaves().into_iter();
        leaves
            .filter(|leaf| path.is_none_or(|path| leaf.path() == path))
            .map(|leaf| leaf.injector.clear())
            .sum()
    }
}
