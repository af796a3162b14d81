//! Datasets of an imported pool: create, destroy, properties.

use crate::core::state::Core;
use crate::datasets::state::Datasets;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use parking_lot::RwLock;
use steadfast_blockio::CompressionSetting;
use steadfast_crypto::{BlockKeys, Key, UserKey};
use steadfast_dataset::{Blocks, Counters, Dataset, DatasetParts, Settings, SyncResult};
use steadfast_env::requests::Requests;
use steadfast_format::{
    DatasetEncryption, DatasetId, DatasetRow, InodeId, Lineage, ManifestWriter, PoolGuid, Txg, WrappedKey,
};
use steadfast_property::{Local, Resolved};
use steadfast_txg::{AdmitKind, Cost, Refusal};

use crate::core::error::{Error, Result};
use crate::datasets::partial::hidden_name;
use crate::datasets::received_props::ReceivedProps;
use crate::datasets::receiving::Receiving;
use crate::datasets::snapshots::SnapshotsOf;
use crate::datasets::table::{Entry, LoadedKeys, OpenDataset, ROOT, Table};
use crate::datasets::volumes::{VolumeInfo, VolumeSpec};
use steadfast_refs::blocks::{Copies, DatasetBlocks, Dedup};
use steadfast_refs::deadlist::Deadlist;
use steadfast_refs::manifest::Lister;

/// Purpose of keys of digests of content.
const DIGEST_INFO: &str = "steadfast dedup v1";
/// Feature of pools whose blocks may be compressed with Zstandard.
pub(crate) const ZSTD: &str = "zstd";

/// Property for second copies of metadata, where each is a request.
pub(crate) const COPIES: &str = "redundant_metadata";

/// Property for copies of content.
pub(crate) const CONTENT_COPIES: &str = "copies";
/// Feature of pools whose content may have copies.
pub(crate) const COPIES_FEATURE: &str = "content_copies";

/// Whether metadata of datasets, and the pool's own, has a second copy on stores of objects.
fn copies_on_stores(value: &str) -> (bool, bool) {
    match value {
        "none" => (false, false),
        "some" => (false, true),
        _ => (true, true),
    }
}

/// Key of a dataset that becomes an encryption root.
#[derive(Clone)]
pub struct NewKey {
    /// Wraps the master key.
    pub user: Arc<UserKey>,
}

impl std::fmt::Debug for NewKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NewKey(<redacted>)")
    }
}

/// The guid of a dataset: rows have none, so it follows from what never changes. One that was split
/// off with a pool keeps it, as in ZFS.
fn guid_of(pool: PoolGuid, row: &DatasetRow) -> u64 {
    let numbers = [pool.0, row.id.0, row.created_txg.0, row.created_ns].map(u64::to_le_bytes);
    let hash = steadfast_crypto::hash(numbers.as_flattened());
    u64::from_le_bytes(hash[..8].try_into().expect("eight bytes")).max(1)
}

/// Figures and state of a dataset that `zfs list` and `zfs get` show.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DatasetInfo {
    /// Full name.
    pub name: String,
    /// Number.
    pub id: DatasetId,
    /// Number that no other dataset has, of whichever pool; as long as the dataset is there.
    pub guid: u64,
    /// Seconds since 1970.
    pub created_seconds: u64,
    /// Txg of creation.
    pub created_txg: Txg,
    /// Bytes of its own blocks on devices, all copies.
    pub referenced: u64,
    /// Bytes of its own, of its snapshots and of all below it, and what is kept for them.
    pub used: u64,
    /// Part of `used`: that of its children.
    pub used_by_children: u64,
    /// Part of `used`: kept for it by refreservation, and not written yet.
    pub used_by_refreservation: u64,
    /// Part of `used`: what only its snapshots hold.
    pub used_by_snapshots: u64,
    /// Part of `used`: its own.
    pub used_by_dataset: u64,
    /// Bytes it refers to that its youngest snapshot does not.
    pub written: u64,
    /// Bytes that could still be written.
    pub available: u64,
    /// Bytes of its data before compression.
    pub logical: u64,
    /// The same with its snapshots and all below it.
    pub logical_used: u64,
    /// Bytes of its data on devices, with all below it.
    pub data_used: u64,
    /// Datasets below it.
    pub filesystems: u64,
    /// Snapshots of it and of all below it.
    pub snapshots: u64,
    /// Bytes of its data on devices.
    pub data: u64,
    /// Inodes.
    pub files: u64,
    /// Full name of its encryption root, if it is encrypted.
    pub encryption_root: Option<String>,
    /// True if encrypted and the key is loaded.
    pub key_loaded: bool,
    /// It was received raw: sealed blocks of another pool, which can be read with their key and not
    /// be changed.
    pub raw: bool,
    /// Full name of the snapshot that it is a clone of, if it is one.
    pub origin: Option<String>,
    /// Size and block size, if it is a volume.
    pub volume: Option<VolumeInfo>,
}

/// Specification of a new dataset.
#[derive(Default)]
struct Beginning {
    props: Local,
    received: ReceivedProps,
    key: Option<NewKey>,
    hash_seed: [u8; 16],
    receiving: Option<Receiving>,
    raw: bool,
    volume: Option<VolumeSpec>,
}

/// AAD under which a dataset's master key is wrapped.
fn wrap_aad(core: &Core, id: DatasetId) -> Vec<u8> {
    crate::datasets::keys::wrap_aad(core.identity.guid, id)
}

/// A dataset in use.
pub struct DatasetHandle {
    dataset: Arc<Dataset>,
    snapshots: SnapshotsOf,
    requests: Arc<Requests>,
    uses: Arc<AtomicUsize>,
}

impl DatasetHandle {
    /// The dataset.
    #[must_use]
    pub fn dataset(&self) -> &Arc<Dataset> {
        &self.dataset
    }

    /// Its snapshots.
    #[must_use]
    pub fn snapshots(&self) -> SnapshotsOf {
        self.snapshots.clone()
    }

    /// Requests of the pool's clients: where a front that serves this one counts its own.
    #[must_use]
    pub fn requests(&self) -> &Arc<Requests> {
        &self.requests
    }
}

impl Drop for DatasetHandle {
    fn drop(&mut self) {
        self.uses.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The reason why a dataset can get no new inodes, if there is one.
pub(crate) fn fault_of_next_inode(dataset: &Dataset, raw: bool) -> Option<String> {
    dataset.fault_of_next_inode(if raw { InodeId::END } else { InodeId::FILES_END })
}

/// Refuses a dataset, or one of its snapshots, whose next inode would replace another or could not
/// be shown.
pub(crate) fn check_next_inode(dataset: &Dataset, raw: bool) -> Result<()> {
    match fault_of_next_inode(dataset, raw) {
        Some(reason) => Err(Error::BadDataset { dataset: dataset.id(), reason }),
        None => Ok(()),
    }
}

impl Datasets {
    /// Full names of all datasets, parents before children, in the order of their names.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let table = self.table.read();
        let mut names: Vec<String> = table.iter().map(|(id, _)| table.full_name(id)).collect();
        names.sort_by(|a, b| a.split('/').cmp(b.split('/')));
        names
    }

    /// Measured values of a dataset.
    pub fn dataset_info(&self, name: &str) -> Result<DatasetInfo> {
        let id = self.table.read().find(name)?;
        let missing = || Error::NoSuchDataset { name: name.to_owned() };
        let mut info = self.info(id).ok_or_else(missing)?;
        if let Some(volume) = &mut info.volume {
            *volume = self.volume_info(id);
        }
        Ok(info)
    }

    /// The value of a property that counts for a dataset and where it comes from; `None` as in
    /// [`steadfast_property::resolve`].
    pub fn resolve(&self, name: &str, property: &str, mount_base: &str) -> Result<Option<Resolved>> {
        let table = self.table.read();
        let id = table.find(name)?;
        Ok(table.resolve(id, property, mount_base))
    }

    /// Properties that count on a dataset by itself, set or received.
    pub fn local_props(&self, name: &str) -> Result<Local> {
        let table = self.table.read();
        let id = table.find(name)?;
        Ok(table.get(id).map(|entry| entry.props.clone()).unwrap_or_default())
    }

    /// Sets (or with `None` removes) a property of a dataset. Durable when it returns.
    pub fn set_property(&self, name: &str, property: &str, value: Option<&str>) -> Result<()> {
        self.set_properties(name, &[(property, value)])
    }

    /// Takes over what a dataset's sync gave.
    pub(crate) fn take_result(&self, id: DatasetId, result: &SyncResult) {
        let mut table = self.table.write();
        // If the dataset was destroyed meanwhile, the result of its sync is dropped: its segments
        // are gone.
        let Some(entry) = table.get_mut(id).filter(|entry| !entry.dropped) else { return };
        let counters = result.counters;
        entry.unborn = false;
        let row = &mut entry.row;
        let before = row.clone();
        row.names = result.names_root;
        row.extents = result.extents_root;
        row.data = counters.data;
        row.logical = counters.logical;
        row.files = counters.files;
        row.next_inode = counters.next_inode;
        row.used = counters.used;
        entry.row_dirty |= entry.row != before;
    }

    /// Settings that count for a dataset.
    pub(crate) fn settings_of(&self, id: DatasetId) -> Settings {
        self.settings_in(&self.table.read(), id)
    }

    fn settings_in(&self, table: &Table, id: DatasetId) -> Settings {
        let value = |name: &str| table.resolve(id, name, "/").map(|resolved| resolved.value);
        // A value that is none, as only a forged one can be, does not count.
        let is_size = |bytes: &u32| bytes.is_power_of_two() && (512..=16 << 20).contains(bytes);
        let recordsize = value("recordsize").and_then(|v| v.parse().ok()).filter(is_size).unwrap_or(131_072);
        let compression = compression_of(value("compression").as_deref().unwrap_or("on"));
        Settings {
            recordsize: u32::min(recordsize, self.core.throttle.block_bytes_max),
            zeros_are_holes: compression != CompressionSetting::Off,
        }
    }

    /// Compression that counts for a dataset's content.
    fn compression_setting(&self, id: DatasetId) -> CompressionSetting {
        self.compression_in(&self.table.read(), id)
    }

    fn compression_in(&self, table: &Table, id: DatasetId) -> CompressionSetting {
        let value = table.resolve(id, "compression", "/").map(|resolved| resolved.value);
        match compression_of(value.as_deref().unwrap_or("on")) {
            // gzip needs no feature, so it is set in such a pool too.
            CompressionSetting::Zstd(_) if !self.core.has_feature(ZSTD) => CompressionSetting::Lz4,
            other => other,
        }
    }

    /// Refuses values that need a feature which the pool does not use: deduplication without a
    /// reference table, and a compression that readers of the pool may not know.
    pub(crate) fn check_values<'v>(
        &self,
        values: impl IntoIterator<Item = (&'v str, &'v str)>,
    ) -> Result<()> {
        for (name, value) in values {
            match name {
                "dedup" if Dedup::of(value) != Dedup::Off => {
                    self.core.need_feature(steadfast_refs::ddt::FEATURE)?;
                    self.core.references.expect_rows();
                }
                "compression" if needs_zstd(value) => self.core.need_feature(ZSTD)?,
                CONTENT_COPIES if value != "1" => self.core.need_feature(COPIES_FEATURE)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// The same for all that a dataset is to be made with.
    pub(crate) fn check_props(&self, props: &Local) -> Result<()> {
        self.check_values(props.iter().map(|(name, value)| (name.as_str(), value.as_str())))
    }

    /// Tells open heads what counts now.
    pub(crate) fn apply_settings(&self, id: DatasetId) {
        let ids = {
            let table = self.table.read();
            let mut ids = table.descendants(id);
            ids.push(id);
            ids
        };
        for id in ids {
            let open = self.table.read().get(id).and_then(|entry| entry.open.clone());
            if let Some(open) = open {
                open.head.set_settings(self.settings_of(id));
                self.watch_owners(id, &open.head);
                self.connect_log(id, &open.head);
                let raw = self.is_raw(id);
                *open.blocks.compression.write() =
                    if raw { CompressionSetting::Off } else { self.compression_setting(id) };
                self.set_caching(id, &open.blocks);
            }
        }
    }

    pub(crate) fn parts(
        &self,
        row: &DatasetRow,
        blocks: &Arc<DatasetBlocks>,
        settings: Settings,
    ) -> DatasetParts {
        DatasetParts {
            id: row.id,
            blocks: Arc::clone(blocks) as Arc<dyn Blocks>,
            cache: Arc::clone(&self.core.caches.nodes),
            inodes: Arc::clone(&self.core.caches.inodes),
            names: row.names,
            extents: row.extents,
            settings,
            txgs: Arc::clone(&self.core.txgs),
            env: self.core.env.clone(),
            hash_seed: row.hash_seed,
            counters: Counters {
                used: row.used,
                data: row.data,
                logical: row.logical,
                files: row.files,
                next_inode: row.next_inode,
            },
        }
    }

    /// The blocks of a dataset, with its keys.
    fn blocks_of(
        &self,
        row: &DatasetRow,
        keys: Option<Arc<BlockKeys>>,
        compression: CompressionSetting,
        deadlist: &Arc<Deadlist>,
        writers: &[ManifestWriter],
    ) -> Arc<DatasetBlocks> {
        let lister = writers
            .last()
            .filter(|_| keys.is_some())
            .map(|last| Lister { manifests: Arc::clone(&self.core.manifests), writer: last.dataset });
        let digest_key = match &keys {
            Some(keys) => steadfast_crypto::derive(keys.master(), &[], DIGEST_INFO),
            None => {
                let mut number = [0; 32];
                number[..8].copy_from_slice(&self.core.identity.guid.0.to_le_bytes());
                steadfast_crypto::derive(&Key::from_bytes(number), &[], DIGEST_INFO)
            }
        };
        Arc::new(DatasetBlocks {
            blockio: Arc::clone(&self.core.blockio),
            dataset: row.id,
            family: row.family(),
            owner: row.encryption.as_ref().map_or(DatasetId(0), |encryption| encryption.owner),
            keys,
            compression: RwLock::new(compression),
            small_bytes_max: AtomicU32::new(0),
            copies_on_stores: AtomicBool::new(true),
            copies: Copies::default(),
            unit: 1 << self.core.identity.ashift,
            cached: AtomicBool::new(true),
            nodes_cached: AtomicBool::new(true),
            ahead: AtomicBool::new(true),
            deadlist: Arc::clone(deadlist),
            raw: None,
            lister,
            references: Arc::clone(&self.core.references),
            dedup: RwLock::default(),
            digest_key,
            clock: Arc::clone(&self.core.env.clock),
        })
    }

    /// The blocks of a dataset, none of which is to be opened or written.
    pub(crate) fn sealed_blocks_of(&self, row: &DatasetRow) -> Arc<DatasetBlocks> {
        self.blocks_of(row, None, CompressionSetting::Off, &Arc::default(), &[])
    }

    /// Applies the properties for caching, prefetch, deduplication, copies of content and small
    /// blocks on special groups.
    fn set_caching(&self, id: DatasetId, blocks: &DatasetBlocks) {
        self.set_copies(id, blocks);
        let table = self.table.read();
        let is_all = |name: &str| table.resolve(id, name, "/").is_none_or(|resolved| resolved.value == "all");
        blocks.cached.store(is_all("primarycache"), Ordering::Relaxed);
        let is_some =
            |name: &str| table.resolve(id, name, "/").is_none_or(|resolved| resolved.value != "none");
        blocks.nodes_cached.store(is_some("primarycache"), Ordering::Relaxed);
        self.core.blockio.allow_l2arc(id, is_all("secondarycache"), is_some("secondarycache"));
        let dedup = table.resolve(id, "dedup", "/").map(|resolved| Dedup::of(&resolved.value));
        // Blocks received raw are sealed, so no two are the same.
        let is_raw = table.get(id).is_some_and(|entry| entry.row.raw);
        let dedup = dedup.filter(|_| !is_raw).unwrap_or_default();
        if dedup != Dedup::Off {
            self.core.references.expect_rows();
        }
        *blocks.dedup.write() = dedup;
        blocks.ahead.store(is_all("prefetch"), Ordering::Relaxed);
        let small = table.resolve(id, "special_small_blocks", "/").map(|resolved| resolved.value);
        let small = small.and_then(|value| value.parse().ok()).unwrap_or(0);
        blocks.small_bytes_max.store(small, Ordering::Relaxed);
        let copies =
            table.resolve(id, COPIES, "/").is_none_or(|resolved| copies_on_stores(&resolved.value).0);
        blocks.copies_on_stores.store(copies, Ordering::Relaxed);
    }

    /// Applies the property `copies`.
    fn set_copies(&self, id: DatasetId, blocks: &DatasetBlocks) {
        let value = self.table.read().resolve(id, CONTENT_COPIES, "/").map(|resolved| resolved.value);
        let copies = value.and_then(|value| value.parse().ok()).unwrap_or(1);
        // A pool without the feature may have inherited the property from a stream.
        let most =
            if !self.core.has_feature(COPIES_FEATURE) { 1 } else { 2 + usize::from(blocks.keys.is_none()) };
        let copies = usize::min(copies, most);
        for copy in (0..copies).filter(|_| copies > 1) {
            self.core.space.expect_owner(blocks.owner.of_copy(copy, copies));
        }
        blocks.copies.set(copies, || self.core.txgs.gate.open_txg());
    }

    /// Applies the property for second copies to the pool's own metadata, which has those of the
    /// root file system.
    pub(crate) fn set_pool_copies(&self) {
        let table = self.table.read();
        let resolved = table.resolve(ROOT, COPIES, "/");
        let copies = resolved.is_none_or(|resolved| copies_on_stores(&resolved.value).1);
        self.core.space.set_pool_copies(copies);
    }

    /// Number of files of a dataset that have no name any more and are not destroyed yet (ZFS: the
    /// delete queue).
    pub fn delete_queue(&self, name: &str) -> Result<u64> {
        let id = self.table.read().find(name)?;
        Ok(self.open_head(id)?.orphans()?.len() as u64)
    }

    /// Opens a dataset whose trees can be read (not encrypted, or its key loaded).
    pub(crate) fn open_head(&self, id: DatasetId) -> Result<Arc<Dataset>> {
        let head = self.open_for_destroy(id)?;
        let table = self.table.read();
        match table.get(id).and_then(|entry| entry.open.as_ref()?.fault.clone()) {
            Some(reason) => Err(Error::BadDataset { dataset: id, reason }),
            None => Ok(head),
        }
    }

    /// The same of one that nothing but its destruction is wanted of: its row may contradict its
    /// trees.
    pub(crate) fn open_for_destroy(&self, id: DatasetId) -> Result<Arc<Dataset>> {
        let (settings, mut compression) = (self.settings_of(id), self.compression_setting(id));
        if self.is_raw(id) {
            // Sealed content does not compress.
            compression = CompressionSetting::Off;
        }
        let held = self.zil.holds_log_of(id);
        let turn = held.then(|| self.core.sync_turn.lock());
        let mut table = self.table.write();
        let (name, key) = (table.full_name(id), table.key_name(id));
        let entry = table.get_mut(id).ok_or_else(|| Error::NoSuchDataset { name: name.clone() })?;
        if let Some(open) = &entry.open {
            return Ok(Arc::clone(&open.head));
        }
        let keys = entry.keys.as_ref().map(|keys| Arc::clone(&keys.blocks));
        if entry.is_encrypted() && keys.is_none() {
            return Err(Error::KeyNotLoaded { name: key });
        }
        let blocks = self.blocks_of(&entry.row, keys.clone(), compression, &entry.deadlist, &entry.writers);
        let head = Arc::new(Dataset::open(self.parts(&entry.row, &blocks, settings))?);
        let fault = fault_of_next_inode(&head, entry.row.raw);
        head.allow_overlays(self.core.has_feature("overlays"));
        self.open_account(id, &head);
        if entry.row.destroying {
            head.begin_destroy();
        } else if held {
            self.zil.replay_held(id, &head, keys.as_deref())?;
        }
        let caching = Arc::clone(&blocks);
        entry.open = Some(OpenDataset { head: Arc::clone(&head), blocks, fault });
        drop((table, turn));
        self.connect_log(id, &head);
        self.watch_owners(id, &head);
        self.set_caching(id, &caching);
        Ok(head)
    }

    /// A dataset for mounting. It is in use as long as the handle lives: it is not destroyed, and
    /// its key not unloaded.
    pub fn open_dataset(self: &Arc<Datasets>, name: &str) -> Result<DatasetHandle> {
        let id = self.table.read().find(name)?;
        self.use_dataset(id)
    }

    /// A dataset in use.
    pub(crate) fn use_dataset(self: &Arc<Datasets>, id: DatasetId) -> Result<DatasetHandle> {
        let head = self.open_head(id)?;
        let dataset = if self.is_raw(id) { self.raw_view(id, vec![head])?.dataset } else { head };
        let table = self.table.read();
        let entry = table.get(id).filter(|entry| !entry.row.destroying);
        let entry = entry.ok_or_else(|| Error::NoSuchDataset { name: format!("<{id}>") })?;
        entry.uses.fetch_add(1, Ordering::AcqRel);
        let snapshots = SnapshotsOf { datasets: Arc::downgrade(self), id };
        let requests = Arc::clone(&self.core.requests);
        Ok(DatasetHandle { dataset, snapshots, requests, uses: Arc::clone(&entry.uses) })
    }

    /// Puts a new dataset into the table and opens it. The caller commits.
    pub(crate) fn add_dataset(
        &self,
        parent: DatasetId,
        name: &str,
        props: Local,
        key: Option<NewKey>,
        volume: Option<VolumeSpec>,
    ) -> Result<DatasetId> {
        let mut hash_seed = [0; 16];
        self.core.env.random.fill(&mut hash_seed);
        let begin = Beginning { props, key, hash_seed, volume, ..Beginning::default() };
        self.add_with(parent, Some(name), begin)
    }

    /// Puts a dataset into the table that nobody sees yet, and opens it. The caller commits.
    pub(crate) fn add_hidden(
        &self,
        parent: DatasetId,
        (props, received, key): (Local, ReceivedProps, Option<NewKey>),
        hash_seed: [u8; 16],
        receiving: Receiving,
        raw: bool,
        volume: bool,
    ) -> Result<DatasetId> {
        // Its size comes with the stream.
        let volume = volume.then_some(VolumeSpec { bytes: 0, block_bytes: 4096 });
        let receiving = Some(receiving);
        let begin = Beginning { props, received, hash_seed, receiving, raw, volume, key };
        self.add_with(parent, None, begin)
    }

    fn add_with(&self, parent: DatasetId, name: Option<&str>, begin: Beginning) -> Result<DatasetId> {
        let Beginning { props, received, key, hash_seed, receiving, raw, volume } = begin;
        let id = self.table.write().take_id();
        let inherited = self.table.read().get(parent).and_then(|entry| {
            let root = entry.row.encryption.as_ref()?.root;
            Some(root)
        });
        // A child of an encrypted dataset is encrypted, with a key of its own or its parent's,
        // unless it was said that it is not. Blocks of a raw child are sealed already.
        let root = if key.is_some() { Some(id) } else { inherited.filter(|_| !raw && !is_clear(&props)) };
        let (encryption, keys) = match root {
            None => (None, None),
            Some(root) => {
                let user = match &key {
                    Some(key) => Arc::clone(&key.user),
                    None => self.user_key_of(root)?,
                };
                let (wrapped, keys) = self.new_master(&user, id);
                let user = (root == id).then_some(user);
                self.core.space.expect_owner(root);
                (
                    Some(DatasetEncryption { root, owner: root, wrapped }),
                    Some(LoadedKeys { blocks: keys, user }),
                )
            }
        };
        let row = DatasetRow {
            id,
            parent,
            name: name.map_or_else(|| hidden_name(id), str::to_owned),
            created_txg: self.core.txgs.gate.open_txg(),
            created_ns: self.core.now_ns(),
            names: None,
            extents: None,
            used: 0,
            data: 0,
            logical: 0,
            files: 0,
            next_inode: 1,
            hash_seed,
            destroying: false,
            raw,
            volume: volume.is_some(),
            encryption,
            lineage: Lineage::default(),
        };
        let dirty = props.keys().cloned().collect();
        let mut entry = Entry::new(row, props);
        entry.keys = keys.clone();
        (entry.unborn, entry.row_dirty) = (true, true);
        entry.set_writers(self.first_writers(id, keys.is_some()));
        entry.props_dirty = dirty;
        entry.received = received;
        entry.receive_dirty = receiving.is_some();
        entry.receiving = receiving;
        // One hold of the table: a dataset that is in it can be destroyed.
        let mut table = self.table.write();
        match name {
            _ if id == ROOT => {}
            None => table.check_stays(parent)?,
            Some(name) => {
                table.check_place(parent, name)?;
                table.check_filesystem_limits(parent, None)?;
            }
        }
        table.insert(entry);
        let (settings, compression) = (self.settings_in(&table, id), self.compression_in(&table, id));
        let compression = if raw { CompressionSetting::Off } else { compression };
        let entry = table.get(id).expect("just inserted");
        let blocks = self.blocks_of(
            &entry.row,
            keys.map(|keys| keys.blocks),
            compression,
            &entry.deadlist,
            &entry.writers,
        );
        let parts = self.parts(&entry.row, &blocks, settings);
        // A raw dataset stores its sealed blocks in files, even if it is a volume.
        let made = match volume.filter(|_| !raw) {
            None => Dataset::create(parts),
            Some(VolumeSpec { bytes, block_bytes }) => Dataset::create_volume(parts, bytes, block_bytes),
        };
        let head = Arc::new(made.inspect_err(|_| drop(table.remove(id)))?);
        head.allow_overlays(self.core.has_feature("overlays"));
        self.open_account(id, &head);
        let caching = Arc::clone(&blocks);
        table.get_mut(id).expect("just inserted").open =
            Some(OpenDataset { head: Arc::clone(&head), blocks, fault: None });
        drop(table);
        self.connect_log(id, &head);
        self.watch_owners(id, &head);
        self.set_caching(id, &caching);
        self.core.health.changed.note();
        Ok(id)
    }

    fn new_master(&self, user: &UserKey, id: DatasetId) -> (WrappedKey, Arc<BlockKeys>) {
        let random = |out: &mut [u8]| self.core.env.random.fill(out);
        let master = Key::random(&random);
        let wrapped = steadfast_crypto::wrap(user, &master, &wrap_aad(&self.core, id), &random);
        (wrapped, Arc::new(BlockKeys::new(master, &random)))
    }

    pub(crate) fn user_key_of(&self, root: DatasetId) -> Result<Arc<UserKey>> {
        let table = self.table.read();
        let loaded = table.get(root).and_then(|entry| entry.keys.as_ref()?.user.clone());
        loaded.ok_or_else(|| Error::KeyNotLoaded { name: table.full_name(root) })
    }

    /// Makes a dataset. With `key` it becomes an encryption root; below an encrypted dataset it is
    /// encrypted unless `props` have `encryption=off`. Durable when it returns.
    pub fn create_dataset(&self, name: &str, props: Local, key: Option<NewKey>) -> Result<DatasetId> {
        self.create_with(name, props, key, None)
    }

    /// The same of a file system or a volume.
    pub(crate) fn create_with(
        &self,
        name: &str,
        props: Local,
        key: Option<NewKey>,
        volume: Option<VolumeSpec>,
    ) -> Result<DatasetId> {
        self.core.check_writable()?;
        let (parent, last) = self.place_for(name)?;
        if key.is_none() && !is_clear(&props) {
            // It looks as if what is made below it were sealed too.
            self.check_not_raw(parent, &self.core.dataset_name(parent))?;
        }
        self.table.read().check_filesystem_limits(parent, None)?;
        self.check_new_limits(parent, name, &props)?;
        self.check_owner_quotas(props.keys().map(String::as_str))?;
        self.check_props(&props)?;
        let props = if volume.is_some() { props } else { with_fixed(self.table.read().get(parent), props) };
        if key.is_some() {
            self.core.need_feature("encryption")?;
        }
        let is_sealed = key.is_some() || !is_clear(&props) && self.is_sealed(parent);
        check_sealed_copies(name, is_sealed, props.get(CONTENT_COPIES).map(String::as_str))?;
        self.check_room()?;
        let id = self.add_dataset(parent, last, props, key, volume)?;
        self.core.note_done(&format!("create {name} ({id})"));
        self.update_quotas(None);
        self.core.commit_changes()?;
        Ok(id)
    }

    /// Refuses a new dataset if the pool is full: its mountpoint could not be made, nor a file in
    /// it. Waits as a writer does while space is being freed.
    pub(crate) fn check_room(&self) -> Result<()> {
        // Its own trees and rows, and the folder that it is mounted on: operations on names.
        let cost = Cost { memory: 8 << 10, space: 48 << 10, blocks: 8 };
        match self.core.txgs.begin(AdmitKind::Write, cost) {
            Ok(_) => Ok(()),
            Err(Refusal::NoSpace) => Err(Error::NoSpace { pool: self.core.name() }),
            Err(refusal) => Err(steadfast_dataset::Error::Refused(refusal).into()),
        }
    }

    /// The parent of a dataset that is to be made, and the last component of its name.
    pub(crate) fn place_for<'n>(&self, name: &'n str) -> Result<(DatasetId, &'n str)> {
        let Some((parent_name, last)) = name.rsplit_once('/') else {
            return Err(Error::DatasetExists { name: name.to_owned() });
        };
        let table = self.table.read();
        if table.find(name).is_ok() {
            return Err(Error::DatasetExists { name: name.to_owned() });
        }
        let missing = |_| Error::NoParent { parent: parent_name.to_owned() };
        let parent = table.find(parent_name).map_err(missing)?;
        table.check_parent(parent)?;
        Ok((parent, last))
    }

    /// Sets (or with `None` removes) properties of a dataset, all in one commit or none. Durable
    /// when it returns.
    pub fn set_properties(&self, name: &str, edits: &[(&str, Option<&str>)]) -> Result<()> {
        self.core.check_writable()?;
        let id = self.table.read().find(name)?;
        self.check_edits(id, edits)?;
        {
            // Under one hold of the table, which a commit takes its items from.
            let mut table = self.table.write();
            let entry = table.get_mut(id).ok_or_else(|| Error::NoSuchDataset { name: name.to_owned() })?;
            for (property, value) in edits {
                match value {
                    Some(value) => entry.received.set(&mut entry.props, property, value),
                    None => entry.received.inherit(&mut entry.props, property),
                }
                entry.props_dirty.insert((*property).to_owned());
            }
        }
        for (property, value) in edits {
            match value {
                Some(value) => self.core.note_done(&format!("set {name} ({id}) {property}={value}")),
                None => self.core.note_done(&format!("inherit {name} ({id}) {property}")),
            }
        }
        self.apply_settings(id);
        self.update_quotas(None);
        self.core.commit_changes()
    }

    /// Refuses what properties cannot be.
    pub(crate) fn check_edits(&self, id: DatasetId, edits: &[(&str, Option<&str>)]) -> Result<()> {
        self.check_limits(id, edits)?;
        self.check_owner_quotas(edits.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| *name))?;
        let copies = edits.iter().rfind(|(name, _)| *name == CONTENT_COPIES).and_then(|(_, value)| *value);
        check_sealed_copies(&self.core.dataset_name(id), self.is_sealed(id), copies)?;
        self.check_values(edits.iter().filter_map(|(name, value)| Some((*name, (*value)?))))
    }

    /// True if content of a dataset is sealed here.
    fn is_sealed(&self, id: DatasetId) -> bool {
        self.table.read().get(id).is_some_and(Entry::is_encrypted)
    }

    /// Measured values of a dataset.
    pub(crate) fn info(&self, id: DatasetId) -> Option<DatasetInfo> {
        let free = self.free_bytes();
        let _figures = self.figures.read();
        let table = self.table.read();
        let entry = table.get(id)?;
        let row = &entry.row;
        let measure = self.quotas.measure(id, free).unwrap_or_default();
        let own = row.used.saturating_sub(row.lineage.shared).saturating_add(row.lineage.kept);
        Some(DatasetInfo {
            name: table.full_name(id),
            id,
            guid: guid_of(self.core.identity.guid, row),
            created_seconds: row.created_ns / 1_000_000_000,
            created_txg: row.created_txg,
            referenced: row.used,
            // Its own part of the same moment as the rest.
            used: own.saturating_add(measure.by_refreservation).saturating_add(measure.by_children),
            used_by_children: measure.by_children,
            used_by_refreservation: measure.by_refreservation,
            used_by_snapshots: row.lineage.kept,
            used_by_dataset: own.saturating_sub(row.lineage.kept),
            // An error is ignored here: a caller that reads the dataset gets it.
            written: self.written(&table, id).unwrap_or(row.used),
            available: measure.available,
            logical: row.logical,
            logical_used: measure.logical,
            data_used: measure.data,
            filesystems: measure.filesystems,
            snapshots: measure.snapshots,
            data: row.data,
            files: row.files,
            encryption_root: match &row.encryption {
                None if row.raw => Some(table.full_name(id)),
                encryption => encryption.as_ref().map(|encryption| table.full_name(encryption.root)),
            },
            key_loaded: if row.raw { entry.raw_keys.is_some() } else { entry.keys.is_some() },
            raw: row.raw,
            origin: table.origin_name(id),
            volume: row.volume.then(VolumeInfo::default),
        })
    }
}

/// Refuses a third copy of sealed content: the seal's salt stands where its address would.
fn check_sealed_copies(name: &str, is_sealed: bool, copies: Option<&str>) -> Result<()> {
    if is_sealed && copies == Some("3") {
        return Err(Error::SealedCopies { name: name.to_owned() });
    }
    Ok(())
}

/// Properties that hold for good: what is made below or as a clone has them from the first, and
/// keeps them wherever it is moved.
const FIXED: &[&str] = &["utf8only"];

/// Properties of a new dataset: those given, and the permanent ones of its parent or origin.
pub(crate) fn with_fixed(of: Option<&Entry>, mut props: Local) -> Local {
    for name in FIXED {
        if let Some(value) = of.and_then(|entry| entry.props.get(*name)) {
            props.entry((*name).to_owned()).or_insert_with(|| value.clone());
        }
    }
    props
}

/// True if a new dataset is not to be encrypted, wherever it is made.
pub(crate) fn is_clear(props: &Local) -> bool {
    props.get("encryption").is_some_and(|cipher| cipher == "off")
}

/// True of values of `compression` that ask for Zstandard by its name.
pub(crate) fn needs_zstd(value: &str) -> bool {
    value.starts_with("zstd")
}

/// The engine's setting for a value of the property `compression`.
pub(crate) fn compression_of(value: &str) -> CompressionSetting {
    match steadfast_property::acts_as("compression", value).as_ref() {
        "off" => CompressionSetting::Off,
        "zle" => CompressionSetting::Zle,
        "zstd" => CompressionSetting::Zstd(3),
        other => match other.strip_prefix("zstd-").and_then(|level| level.parse().ok()) {
            Some(level) => CompressionSetting::Zstd(level),
            None => CompressionSetting::Lz4,
        },
    }
}
