//! A pool of two small devices, made of the same rooms a real one is made of, with an open inside:
//! tests plant faults where no operator could.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use steadfast_blockio::{BlockIo, BlockWrite, CompressionSetting, WriteContext};
use steadfast_crypto::{BlockKeys, Key, UserKey, WrappedKey};
use steadfast_device::{Device, MemoryDevice};
use steadfast_env::Env;
use steadfast_format::dirent::{Dirent, first_cookie};
use steadfast_format::extent::Extent;
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::inode::{InodeRecord, Time};
use steadfast_format::{
    BlockKind, BlockPointer, CommitTail, DatasetEncryption, DatasetId, DatasetRow, DeviceId, Feature,
    GroupClass, GroupConfig, GroupKind, HistoryEntry, InodeId, LabelConfig, LeafConfig, Lineage, MetaKey,
    PoolGuid, PoolState, Txg, Uberblock, medium,
};
use steadfast_inspect::{Finding, Leaf, Request, Summary};
use steadfast_segment::{Geometry, Redundancy, Space};
use steadfast_tree::{NodeCache, NodeStore, Options, StoreError, Tree};

pub const SECRET: [u8; 32] = [0x5e; 32];
pub const POOL: PoolGuid = PoolGuid(0x00c0_ffee);
const UNIT: u32 = 4096;
const DEVICE_BYTES: u64 = 64 << 20;
const SLOT: u32 = 1 << 20;

/// Changes bytes.
pub type Forge = Box<dyn FnMut(&mut Vec<u8>)>;

/// Nodes of one tree, and the bytes they take.
struct Store {
    blockio: Arc<BlockIo>,
    kind: BlockKind,
    dataset: DatasetId,
    owner: DatasetId,
    keys: Option<Arc<BlockKeys>>,
    txg: Arc<AtomicU64>,
    used: Arc<AtomicI64>,
}

impl Store {
    fn bytes(pointer: &BlockPointer) -> i64 {
        i64::from(pointer.asize(UNIT)) * pointer.copy_count() as i64
    }

    fn write_one(&self, level: u8, data: Vec<u8>) -> Result<BlockPointer, StoreError> {
        let context = WriteContext {
            small_bytes_max: 0,
            copies: 1,
            copies_on_stores: true,
            family: self.dataset,
            owner: self.owner,
            txg: Txg(self.txg.load(Ordering::Relaxed)),
            compression: CompressionSetting::Off,
            keys: self.keys.as_deref(),
        };
        let block = BlockWrite::new(self.kind, level, data);
        let pointer = self.blockio.write(&context, block).map_err(StoreError::new)?;
        self.used.fetch_add(Store::bytes(&pointer), Ordering::Relaxed);
        Ok(pointer)
    }
}

impl NodeStore for Store {
    fn read(&self, _: &BlockPointer) -> Result<Vec<u8>, StoreError> {
        unreachable!("the cache of a fixture holds everything")
    }

    fn write(&self, nodes: Vec<(u8, Vec<u8>)>) -> Result<Vec<BlockPointer>, StoreError> {
        nodes.into_iter().map(|(level, data)| self.write_one(level, data)).collect()
    }

    fn free(&self, pointer: &BlockPointer) {
        self.used.fetch_sub(Store::bytes(pointer), Ordering::Relaxed);
        self.blockio.free(pointer);
    }
}

pub struct Dataset {
    pub row: DatasetRow,
    pub names: Tree,
    pub extents: Tree,
    content: Store,
    used: Arc<AtomicI64>,
    data: Arc<AtomicI64>,
}

pub struct Fixture {
    pub env: Env,
    pub devices: Vec<Arc<MemoryDevice>>,
    pub space: Arc<Space>,
    pub blockio: Arc<BlockIo>,
    pub meta: Tree,
    pub datasets: Vec<Dataset>,
    pub sealed: Option<(Arc<BlockKeys>, Key, WrappedKey)>,
    pub txg: Arc<AtomicU64>,
    /// Changes values of the meta tree and the tail's bytes before they are sealed and hashed: what
    /// a stranger who has the keys could write.
    pub forge: Option<Forge>,
    /// The first device is a mirror of one column, whose segments should have checksums; the
    /// fixture stores none.
    mirrored: bool,
    tail: Option<BlockPointer>,
    tag: [u8; 32],
}

impl Fixture {
    /// A pool with a plain root dataset and an encrypted one below it; with `sealed` its own
    /// metadata is sealed too.
    pub fn new(sealed: bool) -> Fixture {
        let env = Env::seeded(11);
        let devices: Vec<_> = ["left", "right"]
            .map(|name| Arc::new(MemoryDevice::new(name, DEVICE_BYTES)))
            .into_iter()
            .collect();
        let slots = medium::slot_count(DEVICE_BYTES, SLOT);
        let leaf = |(at, device): (usize, &Arc<MemoryDevice>)| {
            (DeviceId(at as u64 + 1), slots, Arc::clone(device) as Arc<dyn Device>)
        };
        let geometry = Geometry { slot_size: SLOT, unit: UNIT };
        let space =
            Arc::new(Space::new(geometry, devices.iter().enumerate().map(leaf).collect(), env.clone()));
        let blockio = Arc::new(BlockIo::new(Arc::clone(&space), env.clone(), POOL, 0));
        let random = |out: &mut [u8]| env.random.fill(out);
        let user = UserKey::from_raw(&SECRET).unwrap();
        let sealed = sealed.then(|| {
            let master = Key::random(&random);
            let aad = [&b"steadfast pool key"[..], &POOL.0.to_le_bytes()].concat();
            let wrapped = steadfast_crypto::wrap(&user, &master, &aad, &random);
            let tag_key = steadfast_crypto::derive(&master, b"", "steadfast uberblock tag v1");
            (Arc::new(BlockKeys::new(master, &random)), tag_key, wrapped)
        });
        let txg = Arc::new(AtomicU64::new(0));
        let cache = Arc::new(NodeCache::new(64 << 20));
        let store =
            |kind, dataset: u64, owner: u64, keys: &Option<Arc<BlockKeys>>, used: &Arc<AtomicI64>| Store {
                blockio: Arc::clone(&blockio),
                kind,
                dataset: DatasetId(dataset),
                owner: DatasetId(owner),
                keys: keys.clone(),
                txg: Arc::clone(&txg),
                used: Arc::clone(used),
            };
        let tree = |store, options| Tree::create(Arc::new(store), Arc::clone(&cache), options);
        let keys = sealed.as_ref().map(|(keys, ..)| Arc::clone(keys));
        let meta = tree(store(BlockKind::Meta, 0, 0, &keys, &Arc::default()), Options::META);
        let mut datasets = Vec::new();
        for (id, name) in [(1, ""), (2, "vault")] {
            let (mut keys, mut encryption, mut owner) = (None, None, 0);
            if id == 2 {
                let master = Key::random(&random);
                let aad =
                    [&b"steadfast dataset key"[..], &POOL.0.to_le_bytes(), &2_u64.to_le_bytes()].concat();
                let wrapped = steadfast_crypto::wrap(&user, &master, &aad, &random);
                keys = Some(Arc::new(BlockKeys::new(master, &random)));
                encryption = Some(DatasetEncryption { root: DatasetId(2), owner: DatasetId(2), wrapped });
                owner = 2;
            }
            let (used, data) = (Arc::default(), Arc::default());
            // A small node size makes trees of several levels of few items.
            let small = Options { node_bytes_max: 2_048 };
            datasets.push(Dataset {
                names: tree(store(BlockKind::Names, id, owner, &keys, &used), small),
                extents: tree(store(BlockKind::Extents, id, owner, &keys, &used), small),
                content: store(BlockKind::Data, id, owner, &keys, &data),
                row: DatasetRow {
                    id: DatasetId(id),
                    parent: DatasetId(id - 1),
                    name: name.to_owned(),
                    created_txg: Txg(1),
                    created_ns: 1,
                    names: None,
                    extents: None,
                    used: 0,
                    data: 0,
                    logical: 0,
                    files: 0,
                    next_inode: 2,
                    hash_seed: [0; 16],
                    destroying: false,
                    raw: false,
                    volume: false,
                    lineage: Lineage::default(),
                    encryption,
                },
                used,
                data,
            });
        }
        let mut fixture = Fixture {
            devices,
            space,
            blockio,
            meta,
            datasets,
            sealed,
            txg,
            forge: None,
            mirrored: false,
            tail: None,
            tag: [0; 32],
            env: env.clone(),
        };
        fixture.write_labels(Txg(1));
        for txg in 1..=3 {
            fixture.begin(txg);
            for at in 0..2 {
                fixture.fill(at, txg);
            }
            fixture.commit();
        }
        fixture
    }

    /// Begins txg `txg`.
    pub fn begin(&mut self, txg: u64) {
        self.txg.store(txg, Ordering::Relaxed);
    }

    /// Writes files anew; what an earlier txg wrote is freed.
    fn fill(&mut self, at: usize, round: u64) {
        for file in 2..62 {
            if file % 3 == round % 3 || round == 1 {
                let content = vec![(file + round) as u8; 1000 + 150 * file as usize];
                self.put(at, file, 0, content);
            }
        }
    }

    /// Gives every file that has content a name and attributes, and the row the sums of them.
    fn name(&mut self, at: usize) {
        let dataset = &mut self.datasets[at];
        let mut sizes: BTreeMap<InodeId, u64> = BTreeMap::new();
        dataset.row.logical = 0;
        for item in dataset.extents.range::<&[u8]>(..) {
            let (key, value) = item.unwrap();
            let Ok(ExtentsKey::Extent { inode, offset }) = ExtentsKey::decode(&key) else { continue };
            let length = u64::from(Extent::decode(&value).unwrap().length());
            sizes.insert(inode, offset + length);
            dataset.row.logical += length;
        }
        let record = |mode, size, nlink| InodeRecord {
            generation: 1,
            parent: InodeId(1),
            size,
            allocated: InodeRecord::ALLOCATED_UNKNOWN,
            mode,
            nlink,
            uid: 0,
            gid: 0,
            rdev: 0,
            record_shift: 17,
            flags: InodeRecord::FLAG_RECORD_FINAL,
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            btime: Time::default(),
        };
        let put = |key: NamesKey, value: &[u8]| {
            if dataset.names.get(&key.encode()).unwrap().as_deref() != Some(value) {
                dataset.names.insert(&key.encode(), value).unwrap();
            }
        };
        for (&inode, &size) in &sizes {
            let name = format!("file-{inode}").into_bytes();
            let cookie = first_cookie(&dataset.row.hash_seed, &name);
            put(NamesKey::Entry { directory: InodeId(1), cookie }, &Dirent { inode, kind: 8, name }.encode());
            put(NamesKey::Inode(inode), &record(0o100_644, size, 1).encode());
        }
        put(NamesKey::Inode(InodeId(1)), &record(0o040_755, sizes.len() as u64, 2).encode());
        dataset.row.files = sizes.len() as u64 + 1;
        dataset.row.next_inode = sizes.keys().last().map_or(2, |last| last.0 + 1);
    }

    /// Writes one block of content.
    pub fn put(&self, at: usize, inode: u64, offset: u64, content: Vec<u8>) -> BlockPointer {
        let dataset = &self.datasets[at];
        let length = u32::try_from(content.len()).unwrap();
        let pointer = dataset.content.write_one(0, content).unwrap();
        let old = self.put_extent(at, inode, offset, &Extent::Block { length, pointer });
        for pointer in old.iter().flat_map(Extent::pointers) {
            dataset.content.free(pointer);
        }
        pointer
    }

    /// Sets one extent, and gives the one before.
    pub fn put_extent(&self, at: usize, inode: u64, offset: u64, extent: &Extent) -> Option<Extent> {
        let key = ExtentsKey::Extent { inode: InodeId(inode), offset }.encode();
        let old = self.datasets[at].extents.insert(&key, &extent.encode()).unwrap();
        old.map(|old| Extent::decode(&old).unwrap())
    }

    /// The pointer of a file's first block.
    pub fn pointer_of(&self, at: usize, inode: u64) -> BlockPointer {
        let key = ExtentsKey::Extent { inode: InodeId(inode), offset: 0 }.encode();
        match Extent::decode(&self.datasets[at].extents.get(&key).unwrap().unwrap()).unwrap() {
            Extent::Block { pointer, .. } => pointer,
            _ => panic!("files of the fixture are blocks"),
        }
    }

    /// A block that nothing leads to.
    pub fn leak(&self) -> BlockPointer {
        self.datasets[0].content.write_one(0, vec![9; 5000]).unwrap()
    }

    pub fn commit(&mut self) {
        self.commit_with(|_| {});
    }

    /// Commits; `edit` may change dataset rows before they are stored.
    pub fn commit_with(&mut self, edit: impl FnOnce(&mut Fixture)) {
        (0..self.datasets.len()).for_each(|at| self.name(at));
        for dataset in &mut self.datasets {
            dataset.row.names = dataset.names.sync(&dataset.names.snapshot()).unwrap();
            dataset.row.extents = dataset.extents.sync(&dataset.extents.snapshot()).unwrap();
            let data = dataset.data.load(Ordering::Relaxed).try_into().unwrap();
            dataset.row.data = data;
            dataset.row.used = data + u64::try_from(dataset.used.load(Ordering::Relaxed)).unwrap();
        }
        edit(self);
        let mut forge = self.forge.take().unwrap_or_else(|| Box::new(|_| {}));
        for dataset in &self.datasets {
            let mut row = dataset.row.encode();
            forge(&mut row);
            self.meta.insert(&MetaKey::Dataset(dataset.row.id).encode(), &row).unwrap();
        }
        let txg = Txg(self.txg.load(Ordering::Relaxed));
        let property = MetaKey::DatasetProperty(DatasetId(1), "compression".into());
        self.meta.insert(&property.encode(), b"lz4").unwrap();
        let history = HistoryEntry {
            time_ns: 1,
            txg,
            uid: 0,
            internal: true,
            host: "here".into(),
            text: format!("txg {txg}"),
        };
        self.meta.insert(&MetaKey::History(txg.0).encode(), &history.encode()).unwrap();
        if let Some(old) = self.tail.take() {
            self.blockio.free(&old);
        }
        let changes = self.space.table_changes();
        let rows =
            changes.rows.iter().map(|(id, row)| (MetaKey::Segment(*id), row.as_ref().map(|r| r.encode())));
        let runs = changes.runs.iter().map(|((id, unit), run)| {
            (MetaKey::Relocation(*id, *unit), run.as_ref().map(|run| run.encode().to_vec()))
        });
        for (key, value) in rows.chain(runs) {
            match value {
                Some(mut value) => {
                    forge(&mut value);
                    self.meta.insert(&key.encode(), &value).unwrap()
                }
                None => self.meta.remove(&key.encode()).unwrap(),
            };
        }
        let meta = self.meta.sync(&self.meta.snapshot()).unwrap().unwrap();
        let tail = self.space.tail().unwrap();
        let tail = CommitTail {
            txg,
            next_segment: tail.next_segment,
            next_dataset: DatasetId(20),
            next_history: txg.0 + 1,
            rows: tail.changes.rows,
            runs: tail.changes.runs,
        };
        let mut tail = tail.encode();
        forge(&mut tail);
        let keys = self.sealed.as_ref().map(|(keys, ..)| Arc::clone(keys));
        let context = WriteContext::of_pool(txg, keys.as_deref());
        let tail = self.blockio.write(&context, BlockWrite::new(BlockKind::Tail, 0, tail)).unwrap();
        self.space.flush_open().unwrap();
        self.space.flush_devices().unwrap();
        let uberblock = Uberblock {
            keyed: self.sealed.is_some(),
            pool: POOL,
            txg,
            time_ns: 7,
            devices: 2,
            meta,
            tail,
            tail_places: [0, 1].map(|copy| self.space.place_of(tail.copies[copy].segment)),
            parent: self.tag,
            anchor: 0,
            log: None,
        };
        let bytes = self.encode_uberblock(&uberblock);
        self.tag = Uberblock::bound_and_tag(&bytes).unwrap().1;
        for device in &self.devices {
            for copy in 0..4 {
                device.write_uberblock(copy, txg, &bytes).unwrap();
            }
            device.flush().unwrap();
        }
        self.tail = Some(tail);
        self.space.committed();
    }

    pub fn encode_uberblock(&self, uberblock: &Uberblock) -> [u8; Uberblock::ENCODED_SIZE] {
        uberblock.encode(|bound| match &self.sealed {
            Some((_, tag_key, _)) => steadfast_crypto::keyed_hash(tag_key, bound),
            None => steadfast_crypto::hash(bound),
        })
    }

    /// Makes the first device a mirror of one column.
    pub fn mirror_first(&mut self) {
        self.mirrored = true;
        self.space.set_group(DeviceId(1), Redundancy::Mirror, 1);
        self.write_labels(Txg(self.txg.load(Ordering::Relaxed)));
    }

    fn write_labels(&self, txg: Txg) {
        let slots = medium::slot_count(DEVICE_BYTES, SLOT);
        let leaves: Vec<_> = (1..=2)
            .map(|id| LeafConfig {
                id: DeviceId(id),
                guid: 70 + id,
                slots,
                group: u8::from(self.mirrored && id == 1),
                state: steadfast_format::LeafState::Online,
                path: format!("dev-{id}"),
            })
            .collect();
        for (device, leaf) in self.devices.iter().zip(&leaves) {
            let label = LabelConfig {
                pool: POOL,
                known_as: None,
                becoming: None,
                name: "tank".into(),
                device: leaf.id,
                device_guid: leaf.guid,
                txg,
                created_ns: 5,
                state: PoolState::Exported,
                host: "here".into(),
                ashift: 12,
                slot_size: SLOT,
                leaves: leaves.clone(),
                features: ["encryption", "redundancy"]
                    .iter()
                    .filter_map(|name| Feature::known(name))
                    .collect(),
                aux: Vec::new(),
                groups: (0..u8::from(self.mirrored))
                    .map(|_| GroupConfig {
                        id: 1,
                        kind: GroupKind::Mirror,
                        width: 1,
                        column: SLOT,
                        class: GroupClass::Normal,
                    })
                    .collect(),
                key: self.sealed.as_ref().map(|(_, _, wrapped)| (wrapped.clone(), "prompt".into())),
            };
            let bytes = label.encode(steadfast_crypto::hash).unwrap();
            for copy in 0..4 {
                device.write_label(copy, &bytes).unwrap();
            }
            device.flush().unwrap();
        }
    }

    pub fn leaves(&self) -> Vec<Leaf> {
        leaves(&self.devices)
    }

    pub fn check(&self, with_key: bool) -> (Vec<Finding>, Summary) {
        check(&self.leaves(), with_key, &self.env)
    }
}

pub fn leaves(devices: &[Arc<MemoryDevice>]) -> Vec<Leaf> {
    let leaf = |device: &Arc<MemoryDevice>| Leaf {
        path: device.character().identity,
        device: Arc::clone(device) as Arc<dyn Device>,
    };
    devices.iter().map(leaf).collect()
}

pub fn request<'a>(leaves: &'a [Leaf], with_key: bool, env: &'a Env) -> Request<'a> {
    Request { leaves, secret: with_key.then(|| SECRET.to_vec()), anchor: None, env }
}

pub fn check(leaves: &[Leaf], with_key: bool, env: &Env) -> (Vec<Finding>, Summary) {
    let findings = Mutex::new(Vec::new());
    let summary = steadfast_inspect::check(&request(leaves, with_key, env), &mut |finding| {
        findings.lock().unwrap().push(finding);
    });
    (findings.into_inner().unwrap(), summary)
}

/// Codes of findings, each once, in order.
pub fn codes(findings: &[Finding]) -> Vec<&'static str> {
    let mut codes: Vec<_> = findings.iter().map(|finding| finding.class().0).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}
