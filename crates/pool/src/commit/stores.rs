//! Stores of whole objects in a commit, and behind it.
//!
//! ## Invariants
//! [stores.1] In a pool with an anchor, a root is created on a store after the anchor has moved to
//!      it: a commit that the anchor did not take leaves no name that a later one needs, and no
//!      root that is newer than the anchor's. The copy is for the day on which the anchor is lost.
//!      `Syncer::copy_root`, test: `a_silent_anchor_leaves_a_pool_of_objects_openable`
//! [stores.2] An object is deleted when the pool is seen to be ours, and when the stores have a
//!      copy of a root that does not need it, so that the copy can always be opened.
//!      `Syncer::look_after_stores`
//! [stores.3] Without an anchor, a commit is durable when its root is on the stores and nobody has
//!      claimed the next epoch since. A host that claims it looks for that root by its name
//!      afterwards, so one of the two sees the other.
//!      `Syncer::write_uberblocks`, `Loaded::claim_epoch`

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::commit::jobs::IDLE_PAUSE;
use crate::commit::sync::Syncer;
use crate::core::error::Result;

/// How long after an import what others left over is deleted: a host that only reads may still look
/// at it.
const GRACE: Duration = Duration::from_secs(600);
/// When a copy of a root is tried again that a store did not take.
const RETRY: Duration = Duration::from_secs(1);

/// Work on stores that is still to do.
#[derive(Default)]
pub(crate) struct StoreDuties {
    /// When leftovers are looked for; 0 if they were, or need not be.
    leftovers_at_ns: AtomicU64,
}

impl Syncer {
    /// After an import: what earlier hosts left over is looked for when the grace has passed.
    pub(crate) fn leftovers_due(&self) {
        if self.core.space.has_objects() {
            let at = self.core.env.clock.monotonic_ns() + u64::try_from(GRACE.as_nanos()).expect("short");
            self.stores.leftovers_at_ns.store(at, Ordering::Relaxed);
        }
    }

    /// One step: the copy of the root, then one request of deletes, or the search for leftovers.
    pub(crate) fn look_after_stores(&self) -> Result<Option<Duration>> {
        if !self.core.space.has_objects() {
            return Ok(None);
        }
        if !self.copy_root() {
            return Ok(Some(RETRY));
        }
        if self.core.space.dead_objects() > 0 {
            // [stores.2]
            self.core.check_ours()?;
            if self.core.space.delete_objects() > 0 {
                return Ok(Some(IDLE_PAUSE));
            }
        }
        let due = self.stores.leftovers_at_ns.load(Ordering::Relaxed);
        let now = self.core.env.clock.monotonic_ns();
        match due {
            0 => Ok(None),
            due if now < due => Ok(Some(Duration::from_nanos(due - now))),
            _ => {
                self.stores.leftovers_at_ns.store(0, Ordering::Relaxed);
                self.core.check_ours()?;
                // A store that does not list keeps them until the next import.
                let found = self.core.space.find_leftovers().unwrap_or(0);
                Ok((found > 0).then_some(IDLE_PAUSE))
            }
        }
    }

    /// Gives stores a copy of the last root, in a pool with an anchor. False if one of them did not
    /// take it.
    fn copy_root(&self) -> bool {
        let mut state = self.core.commit_state.lock();
        let Some(root) = state.last.clone() else { return true };
        if self.core.anchor().is_none() || state.copied == Some(root.txg) {
            return true;
        }
        let bytes = root.encode(|bound| self.tag(bound));
        let mut copied = true;
        for leaf in self.devices.leaves() {
            let in_use = leaf.in_use().is_some() && leaf.device.objects().is_some();
            copied &= !in_use || leaf.device.write_uberblock(0, root.txg, &bytes).is_ok();
        }
        if copied {
            state.copied = Some(root.txg);
        }
        copied
    }

    /// Last work on stores at a close: what nobody needs goes, if the pool is still ours.
    pub(crate) fn leave_stores(&self) {
        if self.core.space.has_objects() && self.copy_root() && self.core.check_ours().is_ok() {
            self.core.space.delete_all_objects();
        }
    }
}
