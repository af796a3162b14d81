//! Inodes in memory.

use crate::ahead::Reading;
use crate::layer::Layer;
use crate::owners::{OwnedBy, owned_by};
use crate::unlogged::InodeJournal;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use steadfast_env::brief::BriefMutex;
use steadfast_format::inode::InodeRecord;
use steadfast_format::{InodeId, Txg};

/// Map keyed by inode numbers. They are counted up by us, so nobody can choose numbers that
/// collide, and one multiplication spreads them: `HashMap`'s own hash was the dearest step of
/// finding an inode.
pub(crate) type InodeMap<V> = HashMap<InodeId, V, BuildHasherDefault<InodeHasher>>;

#[derive(Default)]
pub(crate) struct InodeHasher(u64);

impl Hasher for InodeHasher {
    fn finish(&self) -> u64 {
        // The table takes low bits for the place and high ones for the tag; the product is good at
        // its top.
        self.0 ^ self.0 >> 32
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        // 2^64 over the golden ratio, made odd.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// One inode in memory. Its attributes are authoritative here while it is cached.
pub struct Inode {
    /// Number.
    pub id: InodeId,
    pub(crate) state: BriefMutex<InodeState>,
    /// Changes of the content by the txg being synced. Comes and goes under the lock of the state.
    pub(crate) frozen: BriefMutex<Option<Arc<Frozen>>>,
    /// How it is being read.
    pub(crate) reading: BriefMutex<Reading>,
    /// Where it stands in the clock of its shard, under whose lock this is read and written.
    place: AtomicU32,
    /// Somebody asked for it since the hand of that clock came by.
    used: AtomicBool,
    /// Content that is written of it stays in the block cache.
    keeps_written: AtomicBool,
}

/// Changing state of an inode.
pub struct InodeState {
    /// Attributes.
    pub record: InodeRecord,
    /// Content written or cut in the open txg.
    pub(crate) open: Layer,
    /// [`Inode::frozen`] is there: told here to those who hold this lock anyway.
    pub(crate) has_frozen: bool,
    /// It is in the set that the next freeze looks at.
    pub(crate) dirty: bool,
    /// The attributes differ from the names tree's.
    pub(crate) record_dirty: bool,
    /// References from above: lookups the kernel remembers, open files.
    pub(crate) refs: u64,
    /// Last txg that changed it.
    pub(crate) changed: Txg,
    /// The attributes differed from the names tree's at some time since they were read.
    pub(crate) altered: bool,
    /// Changes since it was read, those of the access time apart.
    pub(crate) changes: u64,
    /// The names tree says of it that what it occupies is not noted, because content was on its
    /// way.
    pub(crate) unnoted: bool,
    /// Its items are gone from the trees.
    pub(crate) gone: bool,
    /// Whose object it is; `None` once it is gone.
    pub(crate) object_of: Option<OwnedBy>,
    /// Owner that is charged for it as of the last freeze, and the charged bytes as of the last
    /// sync.
    pub(crate) charged: Option<OwnedBy>,
    pub(crate) charged_bytes: u64,
    /// The txg that closes next, or is being synced, folds records of it.
    pub(crate) folding: bool,
    /// Txg of the last change that the log does not hold; 0 if there is none.
    pub(crate) pending_in: Txg,
    /// Content that the log does not hold.
    pub(crate) journal: Option<Box<InodeJournal>>,
}

/// Content changes of one file as handed to sync.
pub(crate) struct Frozen {
    pub layer: Layer,
    pub size: u64,
    pub record_size: u64,
}

impl Frozen {
    /// Bytes of the record at `offset`, up to the end of the file.
    pub(crate) fn length_of(&self, offset: u64) -> u64 {
        self.record_size.min(self.size.saturating_sub(offset))
    }
}

impl Inode {
    pub(crate) fn new(id: InodeId, record: InodeRecord) -> Arc<Inode> {
        let state = InodeState {
            record,
            open: Layer::default(),
            has_frozen: false,
            dirty: false,
            record_dirty: false,
            altered: false,
            changes: 0,
            unnoted: false,
            refs: 0,
            changed: Txg(0),
            gone: false,
            object_of: Some(owned_by(&record)),
            charged: Some(owned_by(&record)),
            charged_bytes: record.allocated,
            folding: false,
            pending_in: Txg(0),
            journal: None,
        };
        Arc::new(Inode {
            id,
            state: BriefMutex::new(state),
            frozen: BriefMutex::new(None),
            reading: BriefMutex::default(),
            place: AtomicU32::new(0),
            used: AtomicBool::new(false),
            keeps_written: AtomicBool::new(false),
        })
    }

    pub(crate) fn place(&self) -> usize {
        self.place.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn set_place(&self, place: usize) {
        self.place
            .store(u32::try_from(place).expect("less than 2^32 objects of 400 bytes"), Ordering::Relaxed);
    }

    /// Says whether readers of what is written from now on come past no cache above this room: it
    /// stays in the block cache then.
    pub fn keep_written(&self, keeps: bool) {
        if self.keeps_written.load(Ordering::Relaxed) != keeps {
            self.keeps_written.store(keeps, Ordering::Relaxed);
        }
    }

    pub(crate) fn keeps_written(&self) -> bool {
        self.keeps_written.load(Ordering::Relaxed)
    }

    pub(crate) fn use_it(&self) {
        // Written only where that changes something: many read this line at once.
        if !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// True if it was used since this was asked last.
    pub(crate) fn was_used(&self) -> bool {
        self.used.swap(false, Ordering::Relaxed)
    }

    /// Attributes now.
    #[must_use]
    pub fn record(&self) -> InodeRecord {
        self.state.lock().record
    }

    /// How often it was changed while it was in memory, changes of the access time apart.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.state.lock().changes
    }

    /// Attributes now, and bytes of content that are not stored yet: `None` if no change of content
    /// is on its way (a cut that is has no bytes).
    #[must_use]
    pub fn record_and_pending(&self) -> (InodeRecord, Option<u64>) {
        let state = self.state.lock();
        (state.record, self.pending(&state))
    }

    /// Bytes of content that are not stored yet, for a holder of its state.
    pub(crate) fn pending(&self, state: &InodeState) -> Option<u64> {
        let is_pending = state.has_frozen || !state.open.is_empty();
        is_pending.then(|| {
            let frozen = self.frozen.lock();
            state.open.bytes() + frozen.as_ref().map_or(0, |frozen| frozen.layer.bytes())
        })
    }

    /// Last txg that changed it; 0 if none since it was read.
    #[must_use]
    pub fn changed_txg(&self) -> Txg {
        self.state.lock().changed
    }
}

impl InodeState {
    /// Bytes of a record of this file's content.
    pub(crate) fn record_size(&self) -> u64 {
        1 << self.record.record_shift
    }

    /// True if it has reserved its record size for good.
    pub(crate) fn record_is_final(&self) -> bool {
        self.record.flags & InodeRecord::FLAG_RECORD_FINAL != 0
    }
}
