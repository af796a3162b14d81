//! [`Dataset`]: its parts, its inodes, its settings.

use crate::cost::{NAME_COST, RECLAIM_COST};
use crate::inode_cache::{InodeRoom, Inodes};
use crate::owners::Owners;
use crate::state::{Changes, Freeing, LogState, OverlayState};
use crate::store::TreeStore;
use crate::{Damage, Result};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use steadfast_blockio::Blocks;

use steadfast_env::{Bug, Env};

use steadfast_format::file_keys::NamesKey;
use steadfast_format::inode::{InodeRecord, Time};
use steadfast_format::{BlockKind, BlockPointer, DatasetId, InodeId};
use steadfast_tree::{Attempts, Change, NodeCache, Options, Tree};
use steadfast_txg::{Account, AdmitKind, Cost, Operation, Txgs};

/// Bytes of items that fill a leaf at least: half of one, as the largest items leave them.
const ITEMS_PER_LEAF_BYTES: u64 = 8 << 10;

/// Inode number of the root directory.
pub(crate) const ROOT_INODE: InodeId = InodeId(1);

/// Damaged ranges kept for status reports.
const DAMAGE_KEPT: usize = 1_000;

/// Settings that may change while a dataset is open.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Settings {
    /// Greatest record of new files, in bytes: a power of two from 512 to 16 MiB.
    pub recordsize: u32,
    /// Records that hold nothing but zeros are not stored, as if they had been punched out: with
    /// compression on.
    pub zeros_are_holes: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { recordsize: 128 << 10, zeros_are_holes: true }
    }
}

/// Sums over a dataset.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counters {
    /// Bytes on devices, trees and second copies included.
    pub used: u64,
    /// Bytes of file content on devices.
    pub data: u64,
    /// Bytes of file content before compression.
    pub logical: u64,
    /// Inodes.
    pub files: u64,
    /// Number of the next inode.
    pub next_inode: u64,
}

/// Parts with which a dataset is opened.
pub struct DatasetParts {
    /// Number.
    pub id: DatasetId,
    /// Where its blocks go.
    pub blocks: Arc<dyn Blocks>,
    /// Cache of tree nodes.
    pub cache: Arc<NodeCache>,
    /// Room for inodes in memory.
    pub inodes: Arc<InodeRoom>,
    /// Root of the names tree.
    pub names: Option<BlockPointer>,
    /// Root of the extents tree.
    pub extents: Option<BlockPointer>,
    /// Settings that count now.
    pub settings: Settings,
    /// The pool's transaction groups.
    pub txgs: Arc<Txgs>,
    /// Clock and tasks.
    pub env: Env,
    /// Key of the hash of names.
    pub hash_seed: [u8; 16],
    /// Sums as of the last commit.
    pub counters: Counters,
}

/// One file system's content.
pub struct Dataset {
    pub(crate) id: DatasetId,
    pub(crate) blocks: Arc<dyn Blocks>,
    pub(crate) names: Tree,
    pub(crate) extents: Tree,
    pub(crate) names_store: Arc<TreeStore>,
    pub(crate) extents_store: Arc<TreeStore>,
    pub(crate) txgs: Arc<Txgs>,
    pub(crate) env: Env,
    pub(crate) settings: RwLock<Settings>,
    pub(crate) hash_seed: [u8; 16],
    pub(crate) inodes: Inodes,
    pub(crate) changes: Changes,
    pub(crate) counters: Mutex<Counters>,
    pub(crate) freeing: Freeing,
    pub(crate) overlay: OverlayState,
    pub(crate) files: AtomicU64,
    pub(crate) next_inode: AtomicU64,
    pub(crate) log: LogState,
    pub(crate) destroying: AtomicBool,
    pub(crate) syncing: AtomicBool,
    pub(crate) damage: Mutex<BTreeSet<(InodeId, u64, u64)>>,
    pub(crate) resized: RwLock<Option<Resized>>,
    pub(crate) cache: Arc<NodeCache>,
    pub(crate) owners: Arc<Owners>,
    /// Whose limits operations are held to besides the pool's.
    pub(crate) account: OnceLock<Arc<dyn Account>>,
}

/// Callback for files whose occupied space changed though nobody changed them. Sync calls it: it
/// must not wait.
pub type Resized = Arc<dyn Fn(InodeId) + Send + Sync>;

impl Dataset {
    /// A new dataset with nothing but its root directory. Durable with the next commit.
    pub fn create(parts: DatasetParts) -> Result<Dataset> {
        Dataset::create_with(parts, |_| {})
    }

    /// A new volume: its root is a file of so many bytes, a hole as yet, in records of
    /// `block_bytes`. Durable with the next commit.
    pub fn create_volume(parts: DatasetParts, bytes: u64, block_bytes: u32) -> Result<Dataset> {
        Dataset::create_with(parts, |record| {
            (record.mode, record.nlink, record.size) = (0o100_600, 1, bytes);
            record.record_shift = u8::try_from(block_bytes.ilog2()).expect("below 32");
            record.flags = InodeRecord::FLAG_RECORD_FINAL;
        })
    }

    fn create_with(parts: DatasetParts, shape: impl FnOnce(&mut InodeRecord)) -> Result<Dataset> {
        let dataset = Dataset::assemble(parts);
        let now = dataset.now();
        let mut record = InodeRecord {
            generation: dataset.txgs.gate.open_txg().0,
            parent: ROOT_INODE,
            size: 0,
            allocated: 0,
            mode: 0o040_755,
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            record_shift: 0,
            flags: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        shape(&mut record);
        dataset.names.insert(&NamesKey::Inode(ROOT_INODE).encode(), &record.encode())?;
        dataset.next_inode.store(2, Ordering::Relaxed);
        dataset.files.store(1, Ordering::Relaxed);
        dataset.changes.changed.note();
        Ok(dataset)
    }

    /// Opens a dataset as of the last commit. Reads the list of cuts that are not worked off.
    pub fn open(parts: DatasetParts) -> Result<Dataset> {
        let dataset = Dataset::assemble(parts);
        dataset.load_cuts()?;
        dataset.load_owners()?;
        Ok(dataset)
    }

    fn assemble(parts: DatasetParts) -> Dataset {
        let names_store = TreeStore::new(Arc::clone(&parts.blocks), BlockKind::Names);
        let extents_store = TreeStore::new(Arc::clone(&parts.blocks), BlockKind::Extents);
        let tree = |store: &Arc<TreeStore>, root| {
            Tree::open(Arc::clone(store) as _, Arc::clone(&parts.cache), root, Options::DATASET)
        };
        Dataset {
            id: parts.id,
            names: tree(&names_store, parts.names),
            extents: tree(&extents_store, parts.extents),
            blocks: parts.blocks,
            names_store,
            extents_store,
            txgs: parts.txgs,
            settings: RwLock::new(parts.settings),
            hash_seed: parts.hash_seed,
            inodes: Inodes::new(parts.inodes),
            changes: Changes::new(Arc::clone(&parts.env.clock)),
            counters: Mutex::new(parts.counters),
            freeing: Freeing::default(),
            overlay: OverlayState::default(),
            files: AtomicU64::new(parts.counters.files),
            next_inode: AtomicU64::new(parts.counters.next_inode),
            log: LogState::default(),
            destroying: AtomicBool::new(false),
            syncing: AtomicBool::new(false),
            damage: Mutex::default(),
            resized: RwLock::default(),
            cache: parts.cache,
            owners: Arc::default(),
            account: OnceLock::new(),
            env: parts.env,
        }
    }

    /// From now on operations are held to an account's limits besides the pool's. Only the first
    /// account counts.
    pub fn set_account(&self, account: Arc<dyn Account>) {
        let _ = self.account.set(account);
    }

    /// Bytes that can still be written as far as quotas are concerned; `None` if none is set.
    #[must_use]
    pub fn quota_room(&self) -> Option<u64> {
        self.account()?.room()
    }

    /// The account, while it limits anything.
    pub(crate) fn account(&self) -> Option<Arc<dyn Account>> {
        self.account.get().filter(|account| account.is_limited()).cloned()
    }

    /// Number.
    #[must_use]
    pub fn id(&self) -> DatasetId {
        self.id
    }

    /// The names tree, for looking up and for batches of an operation.
    #[must_use]
    pub fn names(&self) -> &Tree {
        &self.names
    }

    /// Key of the hash of names.
    #[must_use]
    pub fn hash_seed(&self) -> &[u8; 16] {
        &self.hash_seed
    }

    /// The pool's transaction groups.
    #[must_use]
    pub fn txgs(&self) -> &Txgs {
        &self.txgs
    }

    /// Wall time.
    #[must_use]
    pub fn now(&self) -> Time {
        Time::from_ns(self.env.clock.wall_ns())
    }

    /// Wall time as of the system's last clock tick.
    #[must_use]
    pub fn tick(&self) -> Time {
        Time::from_ns(self.env.clock.tick_ns())
    }

    /// Settings that count for what is written from now on.
    pub fn set_settings(&self, settings: Settings) {
        assert!(settings.recordsize.is_power_of_two() && (512..=16 << 20).contains(&settings.recordsize));
        *self.settings.write() = settings;
    }

    /// Settings that count now.
    #[must_use]
    pub fn settings(&self) -> Settings {
        *self.settings.read()
    }

    /// True if operations changed something since the last freeze, or a commit has work left of
    /// the ones before.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        self.is_changed() || self.has_leftovers()
    }

    /// True if there are cuts to be worked off, records to be folded or owners to be counted.
    #[must_use]
    pub fn has_leftovers(&self) -> bool {
        self.owes_frees() || self.has_folds() || self.owners.is_wanting()
    }

    /// True if operations changed something since the last freeze.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.changes.changed.is_set()
    }

    /// Monotonic time at which operations first changed something since the last freeze.
    #[must_use]
    pub fn changed_since_ns(&self) -> Option<u64> {
        self.changes.changed.since_ns()
    }

    /// Bounds the extents that the next sync frees of what was cut or destroyed by what the pool
    /// has room for.
    pub fn set_frees_room(&self, count: usize) {
        self.freeing.room.store(count, Ordering::Relaxed);
    }

    /// Changes how many extents the cuts of one sync free at most (65,536 if nobody says
    /// otherwise).
    pub fn set_frees_per_sync(&self, count: usize) {
        self.freeing.per_sync.store(count.max(1), Ordering::Relaxed);
    }

    /// Says whether records may get overlays (they may, if nobody says otherwise): only where the
    /// pool lists the feature.
    pub fn allow_overlays(&self, allowed: bool) {
        self.overlay.allowed.store(allowed, Ordering::Relaxed);
    }

    /// Sums as of the last sync; inodes and the next number as of now.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut counters = *self.counters.lock();
        counters.files = self.files.load(Ordering::Relaxed);
        counters.next_inode = self.next_inode.load(Ordering::Relaxed);
        counters
    }

    /// True if a bug is planted in this dataset's world ([`Env::has_bug`]).
    #[must_use]
    pub fn has_bug(&self, bug: Bug) -> bool {
        self.env.has_bug(bug)
    }

    /// Runs an operation that reads nothing while it is inside the gate. `act` looks, and then
    /// changes, under what locks it takes itself. If it misses a node of a tree it has changed
    /// nothing; the node is read outside, and the operation begins again.
    pub fn operate<'d, R, E>(
        &self,
        begin: impl Fn() -> Result<Operation<'d>, E>,
        mut act: impl FnMut(&mut Operation<'d>) -> Result<R, E>,
    ) -> Result<R, E> {
        let mut attempts = Attempts::new();
        loop {
            let mut op = begin()?;
            if let Some(result) = attempts.attempt(|| act(&mut op)) {
                return result;
            }
            op.settle(Cost::default());
            drop(op);
            attempts.read();
        }
    }

    /// Begins an operation that changes metadata only.
    pub fn begin(&self, kind: AdmitKind) -> Result<Operation<'_>> {
        self.begin_with_items(kind, 0)
    }

    /// Begins an operation that changes metadata and adds `bytes` of items beyond a few small ones.
    pub fn begin_with_items(&self, kind: AdmitKind, bytes: u64) -> Result<Operation<'_>> {
        // Larger items may leave their leaves half empty.
        let items = Cost { memory: bytes, space: 4 * bytes, blocks: bytes / ITEMS_PER_LEAF_BYTES };
        Ok(self.txgs.begin_for(self.account(), kind, NAME_COST.plus(items))?)
    }

    /// Begins an operation that removes a name, and what it leads to if that can go at once
    /// ([`Dataset::remove_with_name`]). Where that stays, it settles for [`NAME_COST`].
    pub fn begin_remove(&self) -> Result<Operation<'_>> {
        Ok(self.txgs.begin_for(self.account(), AdmitKind::Remove, NAME_COST.plus(RECLAIM_COST))?)
    }

    /// Applies an operation's changes of the names tree: all or none. Keys in ascending order are
    /// made here.
    pub fn batch(&self, mut changes: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> Result<()> {
        self.apply(&mut changes)?;
        self.note_keys(changes);
        Ok(())
    }

    pub(crate) fn apply(&self, changes: &mut [(Vec<u8>, Option<Vec<u8>>)]) -> Result<()> {
        changes.sort_by(|a, b| a.0.cmp(&b.0));
        let borrowed: Vec<Change<'_>> = changes
            .iter()
            .map(|(key, value)| match value {
                Some(value) => Change::Insert(key, value),
                None => Change::Remove(key),
            })
            .collect();
        self.names.batch(&borrowed)?;
        self.changes.changed.note();
        Ok(())
    }

    /// From now on `told` hears of each file that occupies other room than before though nobody
    /// changed it, because it was folded or what was cut off it is freed by and by; `None`: nobody.
    pub fn on_resized(&self, told: Option<Resized>) {
        *self.resized.write() = told;
    }

    pub(crate) fn tell_resized(&self, inodes: impl Iterator<Item = InodeId>) {
        if let Some(told) = &*self.resized.read() {
            inodes.for_each(|inode| told(inode));
        }
    }

    /// Notes a range that could not be read.
    pub fn note_damage(&self, inode: InodeId, range: std::ops::Range<u64>) {
        let mut damage = self.damage.lock();
        if damage.len() < DAMAGE_KEPT {
            damage.insert((inode, range.start, range.end));
        }
    }

    /// Ranges of files that could not be read since the dataset was opened.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        let damage = self.damage.lock();
        damage.iter().map(|&(inode, start, end)| Damage { inode, range: start..end }).collect()
    }

    /// Forgets noted damage.
    pub fn clear_damage(&self) {
        self.damage.lock().clear();
        self.forget_unreadable();
    }
}
