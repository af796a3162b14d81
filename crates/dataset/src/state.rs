//! The state of a [`Dataset`](crate::Dataset) by noun, each part with its own locks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize};

use steadfast_env::Clock;
use steadfast_env::brief::{BriefMutex, BriefRwLock};
use steadfast_txg::Changed;

use crate::cuts::Cuts;
use crate::early_list::EarlyList;
use crate::fold_queue::FoldQueue;
use crate::frozen::FrozenSet;
use crate::inode::{Inode, InodeMap};
use crate::journal::Journal;
use crate::sync_mode::SyncMode;
use crate::unlogged::Pending;

/// Extents that cuts free in one sync, at most: about 8 GiB of 128 KiB records. The rest is listed
/// in the extents tree and goes on in the txgs that follow, so that removing a huge file stalls
/// nobody.
const FREES_PER_SYNC: usize = 65_536;

/// Inodes with changes, of the open and of the frozen txg.
pub(crate) struct Changes {
    /// Inodes changed in the open txg.
    pub dirty: BriefMutex<InodeMap<Arc<Inode>>>,
    /// Changes of the txg that a sync writes.
    pub frozen: BriefMutex<Option<FrozenSet>>,
    /// Inodes without a holder that are kept until their last change is committed: until then
    /// `fsync` must find it.
    pub retired: BriefMutex<InodeMap<Arc<Inode>>>,
    /// The open txg has changes.
    pub changed: Changed,
    /// Last txg that was frozen with changes.
    pub frozen_last: AtomicU64,
}

impl Changes {
    pub fn new(clock: Arc<dyn Clock>) -> Changes {
        Changes {
            dirty: BriefMutex::default(),
            frozen: BriefMutex::default(),
            retired: BriefMutex::default(),
            changed: Changed::new(clock),
            frozen_last: AtomicU64::new(0),
        }
    }
}

/// Ranges that were cut, and how many of their extents a sync frees.
pub(crate) struct Freeing {
    pub cuts: BriefRwLock<Cuts>,
    /// Most extents that one sync frees.
    pub per_sync: AtomicUsize,
    /// The same, as the pool's room says now.
    pub room: AtomicUsize,
}

impl Default for Freeing {
    fn default() -> Freeing {
        Freeing {
            cuts: BriefRwLock::default(),
            per_sync: AtomicUsize::new(FREES_PER_SYNC),
            room: AtomicUsize::new(usize::MAX),
        }
    }
}

/// Overlays, and records that are stored ahead of the sync or folded after it.
pub(crate) struct OverlayState {
    /// The pool's format allows overlays.
    pub allowed: AtomicBool,
    pub folding: BriefMutex<FoldQueue>,
    pub early: BriefMutex<EarlyList>,
    /// Overlays written since the dataset was opened.
    pub written: AtomicU64,
    /// Records folded since the dataset was opened.
    pub folded: AtomicU64,
}

impl Default for OverlayState {
    fn default() -> OverlayState {
        OverlayState {
            allowed: AtomicBool::new(true),
            folding: BriefMutex::default(),
            early: BriefMutex::default(),
            written: AtomicU64::new(0),
            folded: AtomicU64::new(0),
        }
    }
}

/// The dataset's part of the intent log (ZFS: ZIL).
pub(crate) struct LogState {
    pub journal: BriefRwLock<Option<Arc<dyn Journal>>>,
    /// Value of the property `journal`.
    pub mode: AtomicU8,
    /// First txg of which all changes were noted for the log.
    pub tracked_from: AtomicU64,
    /// Changes that the log does not hold yet.
    pub pending: BriefMutex<Pending>,
    /// Value of the property `sync`.
    pub sync_mode: AtomicU8,
}

impl Default for LogState {
    fn default() -> LogState {
        LogState {
            journal: BriefRwLock::new(None),
            mode: AtomicU8::new(0),
            tracked_from: AtomicU64::new(0),
            pending: BriefMutex::default(),
            sync_mode: AtomicU8::new(SyncMode::Standard as u8),
        }
    }
}
