//! Space and inodes by user and group: counted with the content, in one txg, and held to quotas.
//!
//! ## Definitions
//! A file is *charged* to its user and to its group with the bytes its content occupies
//! (`allocated`, what `stat` tells in blocks) and as one object. Directories, links and orphans are
//! objects too.
//!
//! ## Invariants
//! [owners.1] An owner's row in the extents tree of a txg is the sum over the inodes in the names
//!      tree of that txg: bytes change in sync, together with the extents; objects as they were at
//!      freeze.
//!      `check_trees`; test: `owners`
//! [owners.2] `charged` of an inode is its owner as of the last freeze, with `charged_bytes`: what
//!      that owner is charged for it. A change of owner moves just these, in the sync of its txg,
//!      before that sync's own growth.
//! [owners.3] A write is admitted only if bytes + promised are below the quota, which counts to the
//!      end of its last allocation unit, and with its worst case less than `SLACK` above it: a
//!      worst case knows nothing of what the write replaces, and a file of just as many bytes
//!      fits. While anything is promised or was given up, it is refused only after a commit (as
//!      `txg` does with space).
//! [owners.4] Objects are counted as operations go, under the lock of names: an object quota is
//!      reached to the object.
//!
//! ## Old datasets
//! A dataset of a pool that did not count is counted once, by the sync of its first txg after the
//! pool may: it walks both trees as that txg leaves them. The next txg writes the rows, and the key
//! `Owners`, which says that it was done.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_env::brief::BriefMutex;
use steadfast_format::inode::InodeRecord;
use steadfast_format::{Owner, OwnerRow, Txg};
use steadfast_txg::{Account, AdmitKind, Verdict};

use crate::cost::METADATA_SPACE;

/// Txgs that can hold promises at once, as in the budget.
const TXG_SLOTS: usize = 4;

/// By less than this the write that reaches a quota may pass it.
const SLACK: u64 = 128 << 10;

/// Owner of an inode: user and group.
pub(crate) type OwnedBy = (u32, u32);

/// User and group.
pub(crate) fn both((uid, gid): OwnedBy) -> [Owner; 2] {
    [Owner::user(uid), Owner::group(gid)]
}

/// User and group of a record.
pub(crate) fn owned_by(record: &InodeRecord) -> OwnedBy {
    (record.uid, record.gid)
}

pub(crate) fn slot(txg: Txg) -> usize {
    usize::try_from(txg.0 % TXG_SLOTS as u64).expect("small")
}

/// Quotas of one owner; `None` is none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OwnerQuota {
    /// Bytes that the content of its files may occupy.
    pub bytes: Option<u64>,
    /// Inodes it may have.
    pub objects: Option<u64>,
}

/// Usage of one owner.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Entry {
    /// Bytes as of the last sync.
    pub(crate) bytes: u64,
    /// Objects now, and when the last txg closed.
    pub(crate) objects: i64,
    pub(crate) objects_frozen: i64,
    /// Bytes promised to operations without a txg, and by txg.
    pub(crate) promised: u64,
    pub(crate) promised_in: [u64; TXG_SLOTS],
    /// Something of it was given up in that txg.
    pub(crate) freed_in: [bool; TXG_SLOTS],
}

impl Entry {
    pub(crate) fn all_promised(&self) -> u64 {
        self.promised + self.promised_in.iter().sum::<u64>()
    }

    pub(crate) fn row(&self) -> Option<OwnerRow> {
        let row = OwnerRow { bytes: self.bytes, objects: u64::try_from(self.objects_frozen).unwrap_or(0) };
        (row != OwnerRow::default()).then_some(row)
    }
}

/// How far counting is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Stage {
    /// The pool's format does not allow it, or nobody asked.
    #[default]
    Off,
    /// The next sync counts everything.
    Wanted,
    /// The sync under way counts everything; what operations do is noted beside.
    Counting,
    /// The usage in memory is exact, and the next sync puts all of it into the tree.
    Unwritten,
    /// The tree has it.
    Counted,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) stage: Stage,
    pub(crate) entries: HashMap<Owner, Entry>,
    /// Owners whose objects changed since the last freeze, and in the txg being synced.
    pub(crate) touched: BTreeSet<Owner>,
    pub(crate) touched_frozen: BTreeSet<Owner>,
    pub(crate) quotas: HashMap<Owner, OwnerQuota>,
    /// Cuts go on from txg to txg.
    pub(crate) owing: bool,
}

/// Usage of a dataset by owner.
#[derive(Default)]
pub(crate) struct Owners {
    pub(crate) state: BriefMutex<State>,
    pub(crate) limited: AtomicBool,
    /// A txg is wanted, for counting or for writing what was counted.
    pub(crate) wanting: AtomicBool,
}

impl Stage {
    /// The usage of owners is known.
    pub(crate) fn is_known(self) -> bool {
        matches!(self, Stage::Unwritten | Stage::Counted)
    }
}

impl Owners {
    /// One object more, or less.
    pub(crate) fn add_object(&self, owner: OwnedBy, count: i64) {
        let mut state = self.state.lock();
        if state.stage == Stage::Counting || state.stage.is_known() {
            for owner in both(owner) {
                state.entries.entry(owner).or_default().objects += count;
                state.touched.insert(owner);
            }
        }
    }

    /// Content of an owner was given up in a txg: what is refused is asked again after it.
    pub(crate) fn note_freed(&self, txg: Txg, owner: OwnedBy) {
        if !self.limited.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state.lock();
        for owner in both(owner) {
            state.entries.entry(owner).or_default().freed_in[slot(txg)] = true;
        }
    }

    /// The exclusive moment: objects are what they are now.
    pub(crate) fn freeze(&self) {
        let mut state = self.state.lock();
        let state = &mut *state;
        if state.stage == Stage::Wanted {
            state.stage = Stage::Counting;
            for entry in state.entries.values_mut() {
                (entry.bytes, entry.objects, entry.objects_frozen) = (0, 0, 0);
            }
        }
        let touched = std::mem::take(&mut state.touched);
        for owner in &touched {
            if let Some(entry) = state.entries.get_mut(owner) {
                entry.objects_frozen = entry.objects;
            }
        }
        state.touched_frozen = touched;
    }

    /// True if a txg is wanted though nobody changes anything.
    pub(crate) fn is_wanting(&self) -> bool {
        self.wanting.load(Ordering::Acquire)
    }

    /// The verdict on so many bytes more for these owners.
    pub(crate) fn judge(&self, owner: OwnedBy, space: u64) -> Verdict {
        let state = self.state.lock();
        for owner in both(owner) {
            let Some(limit) = state.quotas.get(&owner).and_then(|quota| quota.bytes) else { continue };
            let entry = state.entries.get(&owner).copied().unwrap_or_default();
            let promised = entry.all_promised();
            let taken = entry.bytes.saturating_add(promised);
            let above = taken.saturating_add(space).saturating_sub(limit);
            if above == 0 || taken < limit && above < SLACK {
                continue;
            }
            if state.owing {
                return Verdict::AfterCleaning;
            }
            let waits = promised > 0 || entry.freed_in.contains(&true) || !state.stage.is_known();
            return if waits { Verdict::QuotaAfterCommit } else { Verdict::OverQuota };
        }
        Verdict::Admit
    }

    /// Bytes that each owner with a quota can still write.
    pub(crate) fn rooms(&self) -> Vec<(Owner, u64)> {
        let state = self.state.lock();
        let left = |owner: &Owner, limit: u64| {
            let entry = state.entries.get(owner).copied().unwrap_or_default();
            limit.saturating_sub(entry.bytes.saturating_add(entry.all_promised()))
        };
        let quotas = state.quotas.iter();
        quotas.filter_map(|(owner, quota)| Some((*owner, left(owner, quota.bytes?)))).collect()
    }

    pub(crate) fn each(&self, owner: OwnedBy, change: impl Fn(&mut Entry)) {
        let mut state = self.state.lock();
        both(owner).into_iter().for_each(|owner| change(state.entries.entry(owner).or_default()));
    }
}

/// The account of a write: the dataset's limits, and its owners'.
pub(crate) struct OwnerAccount {
    pub(crate) above: Option<Arc<dyn Account>>,
    pub(crate) owners: Arc<Owners>,
    pub(crate) owner: OwnedBy,
}

impl OwnerAccount {
    /// Owners are charged with content only, so nodes count for no more than content does.
    pub(crate) fn content(space: u64) -> u64 {
        space.saturating_sub(METADATA_SPACE)
    }
}

impl Account for OwnerAccount {
    fn is_limited(&self) -> bool {
        true
    }

    fn room(&self) -> Option<u64> {
        self.above.as_ref()?.room()
    }

    fn free(&self, free: u64) -> u64 {
        self.above.as_ref().map_or(free, |above| above.free(free))
    }

    fn admit(&self, kind: AdmitKind, space: u64) -> Verdict {
        if matches!(kind, AdmitKind::Remove | AdmitKind::Accepted) {
            return Verdict::Admit;
        }
        match self.owners.judge(self.owner, Self::content(space)) {
            Verdict::Admit => self.above.as_ref().map_or(Verdict::Admit, |above| above.admit(kind, space)),
            refused => refused,
        }
    }

    fn take(&self, space: u64) {
        self.above.iter().for_each(|above| above.take(space));
        self.owners.each(self.owner, |entry| entry.promised += Self::content(space));
    }

    fn assign(&self, txg: Txg, space: u64) {
        self.above.iter().for_each(|above| above.assign(txg, space));
        self.owners.each(self.owner, |entry| {
            entry.promised -= Self::content(space);
            entry.promised_in[slot(txg)] += Self::content(space);
        });
    }

    fn settle(&self, txg: Txg, old: u64, new: u64) {
        self.above.iter().for_each(|above| above.settle(txg, old, new));
        // Settled usage is exact to the byte, with nodes. So an operation waits for it and is not
        // refused.
        self.owners.each(self.owner, |entry| {
            let promised = &mut entry.promised_in[slot(txg)];
            *promised = (*promised).saturating_sub(Self::content(old)) + new;
        });
    }

    fn give_back(&self, space: u64) {
        self.above.iter().for_each(|above| above.give_back(space));
        self.owners.each(self.owner, |entry| entry.promised -= Self::content(space));
    }
}
