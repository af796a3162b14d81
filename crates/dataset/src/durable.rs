//! Waiting until changes are durable: in the intent log (ZIL), or by a commit.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use steadfast_env::Bug;
use steadfast_format::Txg;

use crate::Result;
use crate::dataset::Dataset;
use crate::inode::Inode;
use crate::journal::Durable;
use crate::sync_mode::SyncMode;

impl Dataset {
    /// Sets what `fsync` and single changes wait for.
    pub fn set_sync_mode(&self, mode: SyncMode) {
        self.log.sync_mode.store(mode as u8, Ordering::Release);
    }

    /// The promise that `fsync` and single changes wait for.
    #[must_use]
    pub fn sync_mode(&self) -> SyncMode {
        SyncMode::from_u8(self.log.sync_mode.load(Ordering::Acquire))
    }

    /// Waits until everything an inode shows is durable; not at all with [`SyncMode::Disabled`].
    pub fn wait_durable(&self, inode: &Arc<Inode>) -> Result<()> {
        let changed = inode.changed_txg();
        if self.env.has_bug(Bug::FsyncIgnored) || self.sync_mode() == SyncMode::Disabled {
            return Ok(());
        }
        if changed > self.txgs.commits.committed()
            && self.log_durable(inode, Duration::MAX, &|| true) != Durable::Yes
        {
            self.txgs.commits.request_sync(changed);
            self.txgs.commits.wait_committed_held(changed)?;
        }
        Ok(())
    }

    /// As [`Dataset::wait_durable`], but asks each time `patience` has passed whether to go on.
    /// False if not.
    pub fn wait_durable_while(
        &self,
        inode: &Arc<Inode>,
        patience: Duration,
        go_on: impl Fn() -> bool,
    ) -> Result<bool> {
        let changed = inode.changed_txg();
        if changed <= self.txgs.commits.committed() || self.sync_mode() == SyncMode::Disabled {
            return Ok(true);
        }
        match self.log_durable(inode, patience, &go_on) {
            Durable::Yes => return Ok(true),
            Durable::GaveUp => return Ok(false),
            Durable::CommitInstead => {}
        }
        self.txgs.commits.request_sync(changed);
        while !self.txgs.commits.wait_committed_for(changed, patience)? {
            if !go_on() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// True if reads wait for a device that is away.
    #[must_use]
    pub fn reads_wait(&self) -> bool {
        self.txgs.commits.holds_reads()
    }

    /// Waits until everything done so far is durable; not at all with [`SyncMode::Disabled`].
    pub fn wait_all_durable(&self) -> Result<()> {
        if self.sync_mode() == SyncMode::Disabled {
            return Ok(());
        }
        let open = self.txgs.gate.open_txg();
        let goal = if self.is_changed() { open } else { self.last_frozen() };
        if goal > self.txgs.commits.committed() {
            self.txgs.commits.request_sync(goal);
            self.txgs.commits.wait_committed_held(goal)?;
        }
        Ok(())
    }

    /// True if operations changed something that no commit has stored.
    #[must_use]
    pub fn has_uncommitted(&self) -> bool {
        self.is_changed() || self.last_frozen() > self.txgs.commits.committed()
    }

    /// The last txg that had changes when it closed.
    pub(crate) fn last_frozen(&self) -> Txg {
        Txg(self.changes.frozen_last.load(Ordering::Acquire))
    }
}
