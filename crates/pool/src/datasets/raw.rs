//! Raw datasets: sealed blocks of another pool, kept for the owner of their key.
//! `docs/decisions/0097-raw-datasets.md`.
//!
//! A raw dataset is a dataset like any other. Its files hold the blocks of a raw stream: one file
//! `roots`, and for each salt a file in which the block of counter C lies at C times a stride,
//! behind a header. So its snapshots, cells, figures, scrubs and checks are those of any dataset
//! and need no key. These files are not visible. A reader with the key gets a *view*: a read-only
//! dataset whose blocks are read from those files and opened as they were sealed.
//!
//! ## Invariants
//! [raw.1] Nothing is sealed with the key of a raw dataset here, so no nonce can be used twice.
//!      `DatasetBlocks::write_many` refuses
//! [raw.2] A block of a view has the hash that its pointer says, and opens as a block of the pool
//!      and dataset that sealed it.
//!      `BlockIo::open_foreign`; test: `tests/raw.rs`
//! [raw.3] A view is a volume exactly if the dataset was one where it was sealed.
//!      `view_with`; test: `tests/raw_volumes.rs`
//! [raw.4] Pointers of a view never meet those of this pool in a cache: their places mean nothing
//!      here.
//!      `raw_view`
//! [raw.5] The base of a raw snapshot was sealed by the same pool, under the same family: so
//!      relatives have one master key, and blocks that a clone shares with its origin open with its
//!      own key.
//!      `RawReceiver::roots`; test: `tests/raw_clones.rs`

use crate::datasets::state::Datasets;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32};
use steadfast_refs::raw_source::ROOTS;
use steadfast_refs::raw_source::RawSource;

use parking_lot::RwLock;
use steadfast_blockio::CompressionSetting;
use steadfast_crypto::BlockKeys;
use steadfast_dataset::{Blocks, Counters, Dataset, DatasetParts};
use steadfast_format::raw::RawRoots;
use steadfast_format::{DatasetId, InodeId};
use steadfast_tree::NodeCache;

use crate::core::error::{Error, Result};
use crate::datasets::dataset::check_next_inode;
use crate::datasets::keys::{unwrap, wrap_aad};
use steadfast_refs::blocks::{Copies, DatasetBlocks};
use steadfast_refs::deadlist::Deadlist;

/// Feature of pools with raw datasets.
pub(crate) const FEATURE: &str = "raw_datasets";
/// Feature of pools with raw datasets that are volumes.
pub(crate) const VOLUME_FEATURE: &str = "raw_volumes";
/// Its name.
pub(crate) const ROOTS_NAME: &[u8] = b"roots";
/// The root of what is shown, and how a mode says that it is a regular file.
const VIEW_ROOT: InodeId = InodeId(1);
const TYPE_BITS: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
/// Nodes that a view keeps opened in memory, in bytes.
const VIEW_NODES_BYTES: usize = 16 << 20;

/// The roots that a raw dataset, or a snapshot of one, has.
pub(crate) fn roots_of(carrier: &Dataset) -> Result<RawRoots> {
    let bad = |reason: String| Error::BadDataset { dataset: carrier.id(), reason };
    let mut bytes = vec![0; RawRoots::ENCODED_SIZE];
    let file = carrier.inode(ROOTS)?;
    carrier.read(&file, 0, &mut bytes)?;
    RawRoots::decode(&bytes).map_err(|error| bad(error.to_string()))
}

/// A raw dataset opened with its key: the real content.
pub(crate) struct View {
    pub dataset: Arc<Dataset>,
    pub blocks: Arc<DatasetBlocks>,
    pub roots: RawRoots,
}

impl Datasets {
    /// True if a dataset is a raw one.
    pub(crate) fn is_raw(&self, id: DatasetId) -> bool {
        self.table.read().get(id).is_some_and(|entry| entry.row.raw)
    }

    /// Opens the dataset that the first of some carriers holds. Its key is loaded; the other
    /// carriers are of the same raw dataset or of the one that it is a clone of.
    pub(crate) fn raw_view(&self, id: DatasetId, carriers: Vec<Arc<Dataset>>) -> Result<View> {
        let roots = roots_of(carriers.first().expect("somebody carries it"))?;
        let keys = {
            let table = self.table.read();
            let keys = table.get(id).and_then(|entry| entry.raw_keys.clone());
            keys.ok_or_else(|| Error::KeyNotLoaded { name: table.full_name(id) })?
        };
        self.view_with(id, carriers, roots, keys)
    }

    fn view_with(
        &self,
        id: DatasetId,
        carriers: Vec<Arc<Dataset>>,
        roots: RawRoots,
        keys: Arc<BlockKeys>,
    ) -> Result<View> {
        let blocks = Arc::new(DatasetBlocks {
            blockio: Arc::clone(&self.core.blockio),
            dataset: id,
            family: roots.family,
            owner: DatasetId(0),
            keys: Some(keys),
            compression: RwLock::new(CompressionSetting::Off),
            small_bytes_max: AtomicU32::new(0),
            copies_on_stores: AtomicBool::new(true),
            copies: Copies::default(),
            unit: 1 << self.core.identity.ashift,
            cached: AtomicBool::new(false),
            nodes_cached: AtomicBool::new(true),
            ahead: AtomicBool::new(false),
            deadlist: Arc::<Deadlist>::default(),
            lister: None,
            references: Arc::clone(&self.core.references),
            dedup: RwLock::default(),
            digest_key: steadfast_crypto::Key::from_bytes([0; 32]),
            clock: Arc::clone(&self.core.env.clock),
            raw: Some(RawSource { pool: roots.pool, carriers }),
        });
        let dataset = Dataset::open(DatasetParts {
            id,
            blocks: Arc::clone(&blocks) as Arc<dyn Blocks>,
            cache: NodeCache::new(VIEW_NODES_BYTES),
            inodes: Arc::clone(&self.core.caches.inodes),
            names: roots.names,
            extents: roots.extents,
            settings: self.settings_of(id),
            txgs: Arc::clone(&self.core.txgs),
            env: self.core.env.clone(),
            hash_seed: roots.hash_seed,
            counters: Counters {
                used: roots.used,
                data: roots.data,
                logical: roots.logical,
                files: roots.files,
                next_inode: roots.next_inode,
            },
        })?;
        check_next_inode(&dataset, false)?;
        // Without the key the stream's word for it could not be checked. The root is sealed and
        // says it again.
        let is_file = dataset.inode(VIEW_ROOT)?.record().mode & TYPE_BITS == REGULAR;
        if is_file != self.is_volume(id) {
            let reason = match is_file {
                true => "it is a volume, and came as a file system",
                false => "it is a file system, and came as a volume",
            };
            return Err(Error::BadDataset { dataset: id, reason: reason.to_owned() });
        }
        Ok(View { dataset: Arc::new(dataset), blocks, roots })
    }

    /// Loads the key of a raw dataset, which is the one it had where it came from.
    pub(crate) fn load_raw_key(&self, id: DatasetId, name: &str, secret: &[u8], dry_run: bool) -> Result<()> {
        let carrier = self.open_head(id)?;
        let roots = roots_of(&carrier)?;
        let (_, master) = unwrap(name, secret, &roots.wrapped, &wrap_aad(roots.pool, roots.dataset))?;
        let random = |out: &mut [u8]| self.core.env.random.fill(out);
        let keys = Arc::new(BlockKeys::new(master, &random));
        if dry_run {
            return Ok(());
        }
        // A wrong key fails here, and not at the first read of a file.
        self.view_with(id, vec![carrier], roots, Arc::clone(&keys))?;
        if let Some(entry) = self.table.write().get_mut(id) {
            entry.raw_keys = Some(keys);
        }
        Ok(())
    }

    /// Refuses what would change the content of a raw dataset, or seal with its key.
    pub(crate) fn check_not_raw(&self, id: DatasetId, name: &str) -> Result<()> {
        match self.is_raw(id) {
            true => Err(Error::Raw { name: name.to_owned() }),
            false => Ok(()),
        }
    }
}
