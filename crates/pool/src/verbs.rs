//! The verbs of a pool that move devices and what lies on them.

use crate::create::DeviceHandle;
use crate::error::Result;
use crate::scrub::ScrubCommand;
use crate::{Pool, ScanKind, ScanState};

impl Pool {
    /// Adds a device to the group of another, or makes a mirror of one that stands alone. Begun when it returns; a resilver ends it, or
    /// the evening out of a raidz group.
    pub fn attach(&self, path: &str, new: DeviceHandle, force: bool) -> Result<()> {
        self.inner.attach(path, new, force)
    }

    /// Takes a device out of a mirror, or ends a replacement by giving up one of its halves. Refused if it holds the last copy of
    /// something.
    pub fn detach(&self, path: &str) -> Result<()> {
        self.inner.detach(path)
    }

    /// Begins to move away all that lies on the groups of these devices, which then leave the pool. With `dry_run` only says whether
    /// that could be.
    pub fn remove(&self, paths: &[String], dry_run: bool) -> Result<()> {
        self.inner.remove_groups(paths, dry_run)
    }

    /// Ends a removal that is under way: its devices stay.
    pub fn cancel_remove(&self) -> Result<()> {
        self.inner.cancel_remove()
    }

    /// Begins a rebalance; pauses it, lets it go on or ends it, or what evens out a widened group.
    pub fn rebalance(&self, command: ScrubCommand) -> Result<()> {
        self.inner.rebalance(command)
    }

    /// Begins to build what is missing on devices, from the beginning.
    pub fn resilver(&self) -> Result<()> {
        self.inner.resilver_anew()
    }

    /// Bytes that a job that moves has yet to look at, and which; `None` if none is active.
    #[must_use]
    pub fn move_remaining(&self) -> Option<(ScanKind, u64)> {
        if self.inner.read_only {
            return None;
        }
        let leaving = || {
            let leaves = self.inner.leaves();
            leaves.iter().any(|leaf| self.inner.is_being_removed(leaf)).then_some((ScanKind::Remove, 1))
        };
        let row = self.inner.move_status().filter(|row| row.state == ScanState::Active);
        // A removal is over when its devices have left.
        row.map(|row| (row.kind, row.total.saturating_sub(row.read).max(1))).or_else(leaving)
    }
}
