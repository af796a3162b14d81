//! A dataset over blocks in memory, with commits, crashes and reopening.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use steadfast_dataset::{
    Counters, Dataset, DatasetParts, InodeRoom, MemoryBlocks, MemoryImage, NodeCache, Settings, SyncResult,
};
use steadfast_env::Env;
use steadfast_format::{BlockPointer, DatasetId, Txg};
use steadfast_posix::{Atime, Caller, FileSystem, Options, Usage};
use steadfast_txg::{AdmitKind, Cost, Limits, Space, Txgs, Verdict};

/// Root.
pub const ROOT: Caller = Caller::ROOT;

/// The roots that a commit leaves.
#[derive(Clone, Copy)]
pub struct Committed {
    pub txg: Txg,
    pub names: Option<BlockPointer>,
    pub extents: Option<BlockPointer>,
    pub counters: Counters,
}

/// Space that can say no to one admission.
pub struct FullAt(AtomicI64);

impl FullAt {
    fn never() -> Arc<FullAt> {
        Arc::new(FullAt(AtomicI64::new(i64::MAX)))
    }

    /// Says no to the admission after `admissions` more, and to that one only; `None`: to none.
    pub fn set(&self, admissions: Option<u32>) {
        self.0.store(admissions.map_or(i64::MAX, i64::from), Ordering::Relaxed);
    }

    /// True if it has said no.
    pub fn refused(&self) -> bool {
        self.0.load(Ordering::Relaxed) < 0
    }
}

impl Space for FullAt {
    fn admit(&self, _: AdmitKind, _: Cost, _: Cost) -> Verdict {
        match self.0.fetch_sub(1, Ordering::Relaxed) {
            0 => Verdict::NoSpace,
            _ => Verdict::Admit,
        }
    }
}

/// A file system and what a pool would do for it.
pub struct World {
    pub env: Env,
    pub blocks: Arc<MemoryBlocks>,
    pub txgs: Arc<Txgs>,
    pub fs: Arc<FileSystem>,
    pub nodes: Arc<NodeCache>,
    /// Room for inodes: all that a test makes, unless it says otherwise.
    pub inodes: Arc<InodeRoom>,
    pub committed: Committed,
    pub settings: Settings,
    pub space: Arc<FullAt>,
    pub frees_per_sync: Option<usize>,
    image: MemoryImage,
}

fn open(
    world: (&Env, &Arc<MemoryBlocks>, &Arc<FullAt>),
    memory: (&Arc<NodeCache>, &Arc<InodeRoom>),
    at: Committed,
    settings: Settings,
    new: bool,
) -> (Arc<Txgs>, Arc<FileSystem>) {
    let (env, blocks, space) = world;
    let limits = Limits { memory: 1 << 40, space: 1 << 40 };
    let txgs = Arc::new(Txgs::new(env, at.txg, limits, Arc::clone(space) as _));
    let parts = DatasetParts {
        id: DatasetId(1),
        blocks: Arc::clone(blocks) as _,
        cache: Arc::clone(memory.0),
        inodes: Arc::clone(memory.1),
        names: at.names,
        extents: at.extents,
        settings,
        txgs: Arc::clone(&txgs),
        env: env.clone(),
        hash_seed: [7; 16],
        counters: at.counters,
    };
    let dataset = if new { Dataset::create(parts) } else { Dataset::open(parts) };
    if let Ok(dataset) = &dataset {
        dataset.set_early_bytes(0, 1);
    }
    let usage = Arc::new(|| Usage { used_bytes: 0, available_bytes: 1 << 40 });
    let options = Options { atime: Atime::Relative, usage, block_bytes: 4096 };
    let fs = FileSystem::new(Arc::new(dataset.expect("opens")), options).expect("opens");
    (txgs, Arc::new(fs))
}

impl World {
    /// A new file system, committed once.
    pub fn new(env: Env, settings: Settings) -> World {
        let (blocks, space) = (MemoryBlocks::new(), FullAt::never());
        let committed = Committed { txg: Txg(0), names: None, extents: None, counters: Counters::default() };
        let (nodes, inodes) = (NodeCache::new(1 << 20), InodeRoom::new(1 << 20));
        let (txgs, fs) = open((&env, &blocks, &space), (&nodes, &inodes), committed, settings, true);
        let image = blocks.image();
        let mut world = World {
            env,
            blocks,
            txgs,
            fs,
            nodes,
            inodes,
            committed,
            settings,
            space,
            frees_per_sync: None,
            image,
        };
        world.commit();
        world
    }

    /// Stores what is complete of the open txg, while none is closed and not written. True if there
    /// was something.
    pub fn write_early(&self) -> bool {
        self.fs.dataset().write_early(self.txgs.gate.open_txg()).expect("writes")
    }

    /// Closes the open txg.
    pub fn freeze(&self) -> Txg {
        // In every other txg all attributes are left to freeze.
        if self.txgs.gate.open_txg().0.is_multiple_of(2) {
            self.fs.dataset().flush_ahead().expect("flushes");
        }
        self.txgs.gate.advance(|txg| {
            self.fs.dataset().freeze(txg).expect("freezes");
            txg
        })
    }

    /// Writes the closed txg and makes it durable.
    pub fn sync(&mut self, txg: Txg) {
        let result = self.fs.dataset().sync(txg).expect("syncs");
        self.take(txg, result);
    }

    pub fn take(&mut self, txg: Txg, result: SyncResult) {
        let SyncResult { names_root, extents_root, counters, .. } = result;
        assert_eq!(counters.used, self.blocks.live_bytes(), "every block is counted and none is lost");
        self.committed = Committed { txg, names: names_root, extents: extents_root, counters };
        self.txgs.budget.release(txg);
        self.txgs.commits.note_committed(txg);
        self.blocks.drop_freed();
        self.image = self.blocks.image();
    }

    /// One whole commit.
    pub fn commit(&mut self) {
        let txg = self.freeze();
        self.sync(txg);
    }

    /// Bounds what the cuts of one sync free.
    pub fn set_frees_per_sync(&mut self, count: usize) {
        self.frees_per_sync = Some(count);
        self.fs.dataset().set_frees_per_sync(count);
    }

    /// Commits until nothing is left to write, then walks the trees.
    pub fn check(&mut self) {
        self.commit();
        self.commit();
        assert_eq!(self.fs.dataset().check().expect("readable"), [], "beside cuts that are not worked off");
        while self.fs.dataset().has_changes() {
            self.commit();
        }
        assert_eq!(self.fs.dataset().check().expect("readable"), []);
    }

    /// Opens again from what was committed last; everything since is lost.
    pub fn reopen(&mut self) {
        self.blocks.restore(&self.image);
        self.nodes = NodeCache::new(1 << 20);
        (self.txgs, self.fs) = open(
            (&self.env, &self.blocks, &self.space),
            (&self.nodes, &self.inodes),
            self.committed,
            self.settings,
            false,
        );
        if let Some(count) = self.frees_per_sync {
            self.fs.dataset().set_frees_per_sync(count);
        }
    }

    /// All bytes of a file.
    pub fn content(&self, ino: u64) -> Vec<u8> {
        let size = usize::try_from(self.fs.getattr(ino).expect("there").size).expect("small");
        let mut content = vec![0xee; size + 10];
        let count = self.fs.read(ino, 0, &mut content).expect("readable");
        assert_eq!(count, size, "a read ends with the file");
        content.truncate(size);
        content
    }

    /// Makes an empty file in the root directory; holds no reference.
    pub fn file(&self, name: &str) -> u64 {
        let entry = self.fs.mknod(ROOT, 1, name.as_bytes(), 0o100_644, 0).expect("new");
        self.fs.forget(entry.ino, 1);
        entry.ino
    }

    /// Names of a directory.
    pub fn list(&self, ino: u64) -> Vec<Vec<u8>> {
        let mut names = Vec::new();
        self.fs
            .readdir(ino, 0, |entry| {
                names.push(entry.name);
                true
            })
            .expect("listed");
        names.retain(|name| name != b"." && name != b"..");
        names.sort();
        names
    }
}

/// Repeatable choices.
pub struct Draw(pub u64);

impl Draw {
    /// Below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % limit as u64).expect("below a usize")
    }

    /// Bytes of some kind: constant, zero, or different everywhere.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        match self.below(4) {
            0 => vec![0; count],
            1 => vec![u8::try_from(1 + self.below(200)).expect("small"); count],
            _ => {
                let seed = self.below(251);
                (0..count).map(|at| u8::try_from((at * 31 + seed) % 251).expect("small")).collect()
            }
        }
    }
}
