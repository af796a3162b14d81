//! Stores of whole objects in a commit, and behind it.
//!
//! ## Invariants
//! [stores.1] In a pool with an anchor, a root is created on a store after the anchor has moved to
//!      it: a commit that the anchor did not take leaves no name that a later one needs, and no
//!      root that is newer than the anchor's. The copy is for the day on which the anchor is lost.
//!      `Syncer::copy_root`, test: `a_silent_anchor_leaves_a_pool_of_objects_openable`
//! [stores.2] An object is deleted when the pool is seen to be ours, and when the stores have a
//!      copy of a root that does not need it, so that the copy can always be opened. Commits may go
//!      on meanwhile, so what is to be deleted is known before the root is copied.
//!      `Syncer::look_after_stores`
//! [stores.3] Without an anchor, a commit is durable when its root is on the stores and nobody has
//!      claimed the next epoch since. A host that claims it looks for that root by its name
//!      afterwards, so one of the two sees the other.
//!      `Syncer::write_uberblocks`, `Loaded::claim_epoch`
//! [stores.4] A root that is looked for by its name may have been deleted, if its writer made many
//!      more. Such a writer has said so by another name before [objects.3], and the host
//!      that claims an epoch looks for that one, too.
//!      `Loaded::claim_epoch`, test: `a_stale_root_of_a_fenced_writer_is_not_opened`
//! [stores.5] A state that a host opened is not lost again, though nobody was told of it. A root
//!      that a fenced writer put last may have a rival: the first root of a host that claimed an
//!      epoch between that writer's and ours, of which nothing is seen yet. So where somebody has
//!      claimed between, an import commits before it answers: its root counts more than both.
//!      `Loaded::go_live`, test: `what_an_import_showed_stays_when_a_rival_wakes`
//! [stores.6] Where no anchor holds the root, the one before the last stays whole, when the pool is
//!      closed too: an import goes back to it if the last one is damaged. Objects that the last
//!      commit freed are found left over by the next import.
//!      `Syncer::leave_stores`, test: `a_pool_goes_back_from_a_damaged_root`
//!
//! ## Tables of a pool that is closed
//! Leaves of the pool's tables lie in the segments of the commits that wrote them, and an import
//! would wait for these once more. So the last commit of a close writes those of small tables anew:
//! they come with its tail.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use steadfast_env::insist::insisting;
use steadfast_tree::Change;

use crate::commit::jobs::{self, IDLE_PAUSE};
use crate::commit::sync::Syncer;
use crate::core::error::{Error, Result};
use crate::core::overtaker::Overtaker;
use crate::core::rows::TABLES;
use crate::core::state::Watch;

/// How long after an import what others left over is deleted: a host that only reads may still look
/// at it.
const GRACE: Duration = Duration::from_secs(600);
/// The first commit behind an import waits so long, unless somebody asks for one: whoever asked for
/// the import has its answer, and reads first.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// Bytes of tables that are packed at most, before they are compressed and sealed: with the tail
/// they come as one chunk of a store.
const PACKED_BYTES_MAX: usize = 160 << 10;
/// When a copy of a root is tried again that a store did not take.
const RETRY: Duration = Duration::from_secs(1);
/// Objects freed by the last commit of a close that stay in the store until the next import.
const LEFT_MAX: usize = 8;
/// How often the name of a host that took the pool over is looked for.
const OWNER_TRIES_MAX: u32 = 30;

/// Work on stores that is still to do.
#[derive(Default)]
pub(crate) struct StoreDuties {
    /// When leftovers are looked for; 0 if they were, or need not be.
    leftovers_at_ns: AtomicU64,
    /// The first commit since the import is behind its answer, and not over yet.
    first_due: AtomicBool,
    /// When it is to begin.
    first_at_ns: AtomicU64,
    /// The next commit is the last one before a close.
    packs: AtomicBool,
    /// How often the host that took the pool over was looked for.
    owner_tries: AtomicU32,
    /// Wakes the task of the stores, and that of the tiles of a parity device.
    bell: Bell,
    tiles_bell: Bell,
}

/// Wakes a task.
#[derive(Default)]
struct Bell {
    /// Something happened since the task last looked.
    due: Mutex<bool>,
    woken: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.due.lock() = true;
        self.woken.notify_all();
    }

    /// Waits until it rings, or for so long, unless the task is to end.
    fn wait(&self, pause: Option<Duration>, is_stopping: impl Fn() -> bool) {
        let mut due = self.due.lock();
        match pause {
            _ if *due || is_stopping() => {}
            Some(pause) => drop(self.woken.wait_for(&mut due, pause)),
            None => self.woken.wait(&mut due),
        }
        *due = false;
    }
}

impl StoreDuties {
    /// The first commit of an import comes behind its answer.
    pub(crate) fn first_is_due(&self, now_ns: u64) {
        let pause = u64::try_from(FIRST_PAUSE.as_nanos()).expect("short");
        self.first_at_ns.store(now_ns + pause, Ordering::Relaxed);
        self.first_due.store(true, Ordering::Relaxed);
    }

    /// Time until that commit, if it is not over.
    pub(crate) fn first_in(&self, now_ns: u64) -> Option<Duration> {
        let is_due = self.first_due.load(Ordering::Relaxed);
        let at_ns = self.first_at_ns.load(Ordering::Relaxed);
        is_due.then(|| Duration::from_nanos(at_ns.saturating_sub(now_ns)))
    }

    /// The next commit is the last one before a close.
    pub(crate) fn pack(&self) {
        self.packs.store(true, Ordering::Relaxed);
    }

    /// A commit is over.
    pub(crate) fn committed(&self) {
        self.first_due.store(false, Ordering::Relaxed);
    }

    /// Reason of a pool that stops because a commit failed. The operator who saw an import succeed
    /// is told that the pool never got further.
    pub(crate) fn reason(&self, error: &Error) -> String {
        if !self.first_due.load(Ordering::Relaxed) {
            return error.to_string();
        }
        format!("its first commit since the import failed, and what was done since may be lost: {error}")
    }

    /// Lets the tasks look at what a commit left to do, or at the end of the pool.
    pub(crate) fn wake(&self) {
        self.bell.ring();
        self.tiles_bell.ring();
    }
}

impl Syncer {
    /// In the last commit before a close: writes the leaves of the pool's tables anew, if they are
    /// few and the pool has room. A leaf that cannot be read stays where it is.
    pub(crate) fn pack_tables(&self) {
        let room = self.core.txgs.budget.room();
        let is_due = self.stores.packs.swap(false, Ordering::Relaxed);
        if !is_due || !self.core.space.is_all_objects() || room.free < room.capacity / 8 {
            return;
        }
        let Ok(Some(items)) = self.items_of_tables() else { return };
        let changes: Vec<Change<'_>> = items.iter().map(|(key, value)| Change::Insert(key, value)).collect();
        // Nothing is changed if it fails.
        let _ = self.core.meta.batch(&changes);
    }

    /// Items in all leaves that an import reads; `None` if they are many. Nobody changes them
    /// during a commit.
    fn items_of_tables(&self) -> Result<Option<BTreeMap<Vec<u8>, Vec<u8>>>> {
        let (mut items, mut bytes) = (BTreeMap::new(), 0);
        for kind in TABLES {
            // A look for a table that is empty reads the leaf where it would be.
            let before = self.core.meta.floor(&[kind])?;
            let behind = self.core.meta.range(vec![kind]..).next().transpose()?;
            items.extend(before.into_iter().chain(behind));
            self.core.meta.scan(&[kind], &[kind + 1], |key, value| {
                bytes += key.len() + value.len();
                items.insert(key.to_vec(), value.to_vec());
                bytes <= PACKED_BYTES_MAX
            })?;
            if bytes > PACKED_BYTES_MAX {
                return Ok(None);
            }
        }
        Ok(Some(items))
    }

    /// After an import: what earlier hosts left over is looked for when the grace has passed.
    pub(crate) fn leftovers_due(&self) {
        if self.core.space.has_objects() {
            let at = self.core.env.clock.monotonic_ns() + u64::try_from(GRACE.as_nanos()).expect("short");
            self.stores.leftovers_at_ns.store(at, Ordering::Relaxed);
        }
    }

    /// Work for stores behind a commit. Each of its requests is a round trip, for which the next
    /// commit does not wait: a task does it, where there are tasks.
    pub(crate) fn stores_due(&self) -> Result<Option<Duration>> {
        if !self.core.env.tasks.is_concurrent() {
            return self.look_after_stores();
        }
        self.stores.wake();
        Ok(None)
    }

    /// Body of the task that works for stores behind commits, until told to stop.
    pub(crate) fn stores_loop(&self) {
        let _watch = Watch(&self.core, "stores");
        while !self.core.is_stopping() {
            let pause = insisting(|| self.run(&[jobs::STORES]).pause);
            // A hint, for which no store is waited for.
            let pause = pause.into_iter().chain(self.look_for_overtaker()).min();
            self.stores.bell.wait(pause, || self.core.is_stopping());
        }
    }

    /// Body of the task that works for the tiles of a parity device where they lie at a store,
    /// until told to stop. Roots are copied and dead objects deleted beside it.
    pub(crate) fn tiles_loop(&self) {
        let _watch = Watch(&self.core, "tiles");
        while !self.core.is_stopping() {
            let pause = insisting(|| self.run(&[jobs::TILES]).pause);
            self.stores.tiles_bell.wait(pause, || self.core.is_stopping());
        }
    }

    /// Looks for the host that took the pool over: it leaves its name with its first commit. When
    /// to look again.
    fn look_for_overtaker(&self) -> Option<Duration> {
        let health = &self.core.health;
        if !health.is_overtaken.load(Ordering::Acquire) || health.overtaker.get().is_some() {
            return None;
        }
        let owner = self.core.space.later_owner().ok().flatten();
        if let Some(overtaker) = owner.and_then(|owner| Overtaker::of(&owner)) {
            let _ = health.overtaker.set(overtaker);
            return None;
        }
        let tries = self.stores.owner_tries.fetch_add(1, Ordering::Relaxed);
        (tries < OWNER_TRIES_MAX).then_some(RETRY)
    }

    /// One step: the copy of the root, then one request of deletes, or the search for leftovers.
    pub(crate) fn look_after_stores(&self) -> Result<Option<Duration>> {
        if !self.core.space.has_objects() {
            return Ok(None);
        }
        let commits = self.core.space.commits();
        if !self.copy_root() {
            return Ok(Some(RETRY));
        }
        if self.core.space.dead_objects() > 0 {
            // [stores.2]
            self.core.check_ours()?;
            if self.core.space.delete_objects(commits) > 0 {
                return Ok(Some(IDLE_PAUSE));
            }
        }
        let parity = self.devices.parity_step()?;
        if parity.is_some() {
            // The journal may have grown.
            self.stores.tiles_bell.ring();
        }
        let due = self.stores.leftovers_at_ns.load(Ordering::Relaxed);
        let now = self.core.env.clock.monotonic_ns();
        match due {
            0 => Ok(parity),
            due if now < due => Ok(parity.into_iter().chain([Duration::from_nanos(due - now)]).min()),
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
        let (last, copied) = {
            let state = self.core.commit_state.lock();
            (state.last.clone(), state.copied)
        };
        let Some(root) = last else { return true };
        if self.core.anchor().is_none() || copied == Some(root.txg) {
            return true;
        }
        let bytes = root.encode(|bound| self.tag(bound));
        let mut copied = true;
        for leaf in self.devices.leaves() {
            let in_use = leaf.in_use().is_some() && leaf.device.objects().is_some();
            copied &= !in_use || leaf.device.write_uberblock(0, root.txg, &bytes).is_ok();
        }
        if copied {
            self.core.commit_state.lock().copied = Some(root.txg);
        }
        copied
    }

    /// Last work on stores at a close: what nobody needs goes, if the pool is still ours.
    pub(crate) fn leave_stores(&self) {
        if !self.core.space.has_objects() || !self.copy_root() || self.core.check_ours().is_err() {
            return;
        }
        if !self.may_go_back() {
            return self.core.space.delete_all_objects();
        }
        // [stores.6]
        let last = self.core.space.commits();
        while self.core.space.delete_objects(last) > 0 {}
    }

    /// True if the last commit freed so many objects that they are not left behind for the sake of
    /// the root before it: one commit more makes itself that root's next.
    pub(crate) fn left_too_many(&self) -> bool {
        self.may_go_back() && self.core.space.dead_of_last() > LEFT_MAX
    }

    /// True if an import may go back to an older root of this pool (`zpool import -F`).
    fn may_go_back(&self) -> bool {
        self.core.space.is_all_objects() && self.core.anchor().is_none()
    }
}
