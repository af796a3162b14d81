//! A pool of false devices, and files in it.

use std::ops::Range;
use std::sync::Arc;

use steadfast_anchor::AnchorRecord;
use steadfast_dataset::Dataset;
use steadfast_device::Device;
use steadfast_env::{Bug, Env, Job, TaskHandle, Tasks};
use steadfast_format::{GroupClass, KeyFormat, LabelConfig, medium};
use steadfast_pool::{
    AnchorWish, CreateSpec, DatasetHandle, DeviceHandle, Error, FoundPool, GroupHandles, ImportSpec, Memory,
    NewKey, Pool, Redundancy, Registers, new_user_key, scan,
};
use steadfast_posix::{Atime, FileSystem, Options, Usage};

use crate::anchor_disks::Corner;
use crate::cut::Depth;
use crate::disk::Disk;
use crate::log::Log;
use crate::pages::Image;

/// Bytes of each device: the smallest there may be.
pub const DISK_BYTES: u64 = 64 << 20;

pub(crate) const MEMORY: Memory =
    Memory { node_cache_bytes: 8 << 20, block_cache_bytes: 8 << 20, dirty_bytes_max: 64 << 20 };

/// Layout and properties of a pool.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Devices.
    pub disks: usize,
    /// How they keep segments together; alone, if not at all.
    pub redundancy: Redundancy,
    /// How many of the devices, the last ones, are a mirror for metadata and small blocks.
    pub special: usize,
    /// A device of a group that has so many slots only, so that segments soon have fewer columns
    /// than the group has.
    pub short: Option<(usize, u32)>,
    /// Devices of the intent log's own.
    pub logs: usize,
    /// They are a mirror.
    pub log_mirror: bool,
    /// Log2 of the allocation unit.
    pub ashift: u8,
    /// Bytes that its devices write all or nothing.
    pub sector: usize,
    /// Its devices take whole objects only.
    pub objects: bool,
    /// It is encrypted.
    pub sealed: bool,
    /// It has an anchor: a register and a witness, each with crash points of its own.
    pub anchored: bool,
    /// Bytes for a parity device; none if 0.
    pub parity_bytes: u64,
    /// It is nearly full, and the cleaner has work in every commit.
    pub full: bool,
    /// It is full: hardly anything is admitted but what gives room back.
    pub brim: bool,
    /// It has many expensive states, and only some of them are drawn: so a run of one of its
    /// workloads comes to its end.
    pub sampled: bool,
    /// Promise of `fsync`.
    pub journal: Journal,
    /// Properties of the root dataset.
    pub props: &'static [(&'static str, &'static str)],
}

/// Promise of `fsync` about content.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Journal {
    /// All of it.
    Whole,
    /// Nothing: after a crash it may be older than names and sizes, or zeros.
    Names,
}

const PLAIN: Setting = Setting {
    name: "plain",
    disks: 1,
    redundancy: Redundancy::None,
    special: 0,
    short: None,
    logs: 0,
    log_mirror: false,
    ashift: 12,
    sector: 512,
    objects: false,
    sealed: false,
    anchored: false,
    parity_bytes: 0,
    full: false,
    brim: false,
    sampled: false,
    journal: Journal::Whole,
    props: &[("recordsize", "16384"), ("journal", "off")],
};

/// Pools that workloads run on. Their order is part of the numbers of workloads.
pub const SETTINGS: &[Setting] = &[
    PLAIN,
    Setting {
        name: "two disks, small records",
        disks: 2,
        props: &[("recordsize", "4096"), ("compression", "off"), ("journal", "off")],
        ..PLAIN
    },
    Setting {
        name: "large records, zstd",
        props: &[("recordsize", "131072"), ("compression", "zstd"), ("journal", "off")],
        ..PLAIN
    },
    Setting { name: "journal=ordered", props: &[("recordsize", "16384"), ("journal", "ordered")], ..PLAIN },
    Setting {
        name: "journal=writeback",
        journal: Journal::Names,
        props: &[("recordsize", "16384"), ("journal", "writeback")],
        ..PLAIN
    },
    Setting {
        name: "journal=ordered, two disks, torn at 4 KiB",
        disks: 2,
        sector: 4096,
        props: &[("recordsize", "131072"), ("compression", "off"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "units of 512 bytes, lz4",
        ashift: 9,
        props: &[("recordsize", "4096"), ("compression", "lz4"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "encrypted",
        sealed: true,
        props: &[("recordsize", "16384"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting { name: "whole objects", objects: true, ..PLAIN },
    Setting { name: "anchor", anchored: true, ..PLAIN },
    Setting { name: "anchor, encrypted, two disks", disks: 2, sealed: true, anchored: true, ..PLAIN },
    Setting {
        name: "nearly full",
        full: true,
        props: &[("recordsize", "16384"), ("compression", "off"), ("journal", "off")],
        ..PLAIN
    },
    Setting { name: "journal=data", props: &[("recordsize", "16384"), ("journal", "data")], ..PLAIN },
    Setting {
        name: "log device",
        logs: 1,
        props: &[("recordsize", "16384"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "sync=always",
        props: &[("recordsize", "16384"), ("journal", "ordered"), ("sync", "always")],
        ..PLAIN
    },
    Setting {
        name: "anchor, journal=ordered",
        anchored: true,
        props: &[("recordsize", "16384"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "anchor, encrypted, log device, journal=data",
        sealed: true,
        anchored: true,
        logs: 1,
        props: &[("recordsize", "16384"), ("journal", "data")],
        ..PLAIN
    },
    Setting {
        name: "full",
        full: true,
        brim: true,
        props: &[("recordsize", "16384"), ("compression", "off"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting { name: "mirror", disks: 2, redundancy: Redundancy::Mirror, ..PLAIN },
    Setting {
        name: "raidz1, journal=ordered",
        disks: 3,
        redundancy: Redundancy::Raidz(1),
        props: &[("recordsize", "16384"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "raidz1 and a special mirror, sampled",
        disks: 5,
        redundancy: Redundancy::Raidz(1),
        special: 2,
        sampled: true,
        props: &[("recordsize", "16384"), ("special_small_blocks", "4096"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "dedup, journal=ordered",
        props: &[("recordsize", "16384"), ("dedup", "on"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "dedup=verify, encrypted, small records",
        sealed: true,
        props: &[("recordsize", "4096"), ("compression", "off"), ("dedup", "verify"), ("journal", "off")],
        ..PLAIN
    },
    Setting {
        name: "log mirror",
        logs: 2,
        log_mirror: true,
        props: &[("recordsize", "16384"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "uneven raidz1, journal=ordered",
        disks: 3,
        redundancy: Redundancy::Raidz(1),
        short: Some((0, SHORT_SLOTS)),
        props: &[("recordsize", "16384"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "mirror of three, journal=ordered, sampled",
        disks: 3,
        redundancy: Redundancy::Mirror,
        sampled: true,
        props: &[("recordsize", "16384"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "raidz2, journal=ordered, sampled",
        disks: 4,
        redundancy: Redundancy::Raidz(2),
        sampled: true,
        props: &[("recordsize", "16384"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "whole objects, anchor, encrypted, log device",
        objects: true,
        anchored: true,
        sealed: true,
        logs: 1,
        props: &[("recordsize", "16384"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "copies=2, journal=ordered",
        props: &[("recordsize", "16384"), ("copies", "2"), ("journal", "ordered")],
        ..PLAIN
    },
    Setting {
        name: "copies=2, two disks, encrypted",
        disks: 2,
        sealed: true,
        props: &[("recordsize", "4096"), ("compression", "off"), ("copies", "2"), ("journal", "off")],
        ..PLAIN
    },
    Setting {
        name: "copies=3, raidz1, sampled",
        disks: 3,
        redundancy: Redundancy::Raidz(1),
        sampled: true,
        props: &[("recordsize", "16384"), ("copies", "3"), ("journal", "ordered")],
        ..PLAIN
    },
];

/// Slots of a device that is full as soon as a pool was made and opened once more.
pub const SHORT_SLOTS: u32 = 10;

impl Setting {
    /// How thoroughly the states of its workloads are enumerated.
    #[must_use]
    pub fn depth(&self) -> Depth {
        if self.sampled { Depth::SAMPLED } else { Depth::FULL }
    }

    /// Its groups: which devices they are of, and how many of those each can spare. A device that
    /// stands alone is of none.
    #[must_use]
    pub fn groups(&self) -> Vec<(Range<usize>, usize)> {
        let main = 0..self.disks - self.special;
        let special = main.end..self.disks;
        let logs = if self.log_mirror { self.disks..self.disks + self.logs } else { 0..0 };
        let spared = |redundancy: Redundancy, devices: &Range<usize>| {
            redundancy.spared(u32::try_from(devices.len()).expect("few")) as usize
        };
        let groups = [
            (main.clone(), spared(self.redundancy, &main)),
            (special.clone(), spared(Redundancy::Mirror, &special)),
            (logs.clone(), spared(Redundancy::Mirror, &logs)),
        ];
        groups.into_iter().filter(|(_, spared)| *spared > 0).collect()
    }

    /// How many devices of the group of this one it can spare: none where nothing makes up for it.
    #[must_use]
    pub fn spared(&self, disk: usize) -> usize {
        let groups = self.groups();
        groups.iter().find(|(devices, _)| devices.contains(&disk)).map_or(0, |(_, spared)| *spared)
    }

    /// Images that a state of it has: devices, what an anchor needs, and the parity device.
    #[must_use]
    pub fn images(&self) -> usize {
        self.disks + self.logs + if self.anchored { 2 } else { 0 } + usize::from(self.parity_bytes > 0)
    }
}

/// A world that repeats.
#[must_use]
pub fn env(seed: u64, bug: Option<Bug>) -> Env {
    let env = Env::simulated(seed);
    Env { tasks: Arc::new(Planted { tasks: Arc::clone(&env.tasks), bug }), ..env }
}

/// The tasks of a simulated world, with a bug. The only ones that may have one.
struct Planted {
    tasks: Arc<dyn Tasks>,
    bug: Option<Bug>,
}

impl Tasks for Planted {
    fn spawn(&self, name: &str, job: Job<'static>) -> Box<dyn TaskHandle> {
        self.tasks.spawn(name, job)
    }

    fn run_all<'a>(&self, jobs: Vec<Job<'a>>) {
        self.tasks.run_all(jobs);
    }

    fn parallelism(&self) -> usize {
        self.tasks.parallelism()
    }

    fn is_concurrent(&self) -> bool {
        self.tasks.is_concurrent()
    }

    fn planted(&self) -> Option<Bug> {
        self.bug
    }
}

/// Devices, and what an anchor needs.
pub struct Disks {
    /// All that has a state of its own: the devices first.
    pub all: Vec<Arc<Disk>>,
    /// Log of their writes.
    pub log: Arc<Log>,
    setting: Setting,
}

impl Disks {
    /// Devices that hold images.
    #[must_use]
    pub fn new(setting: &Setting, images: &[Image]) -> Disks {
        Disks::with(setting, images, Log::default())
    }

    /// The same, of whose writes and states nobody asks.
    #[must_use]
    pub fn unheard(setting: &Setting, images: &[Image]) -> Disks {
        Disks::plain(setting, images, Log::deaf())
    }

    /// The same, of whose reads alone somebody asks.
    #[must_use]
    pub fn heard_to_read(setting: &Setting, images: &[Image]) -> Disks {
        Disks::plain(setting, images, Log::of_reads())
    }

    fn plain(setting: &Setting, images: &[Image], log: Log) -> Disks {
        let images: Vec<Image> = images.iter().cloned().map(Image::plain).collect();
        Disks::with(setting, &images, log)
    }

    fn with(setting: &Setting, images: &[Image], log: Log) -> Disks {
        assert_eq!(images.len(), setting.images());
        let log = Arc::new(log);
        let disk = |(number, image): (usize, &Image)| {
            let appendable = !setting.objects || number >= setting.disks;
            Arc::new(Disk::new(number, image.clone(), appendable, &log))
        };
        Disks { all: images.iter().enumerate().map(disk).collect(), log, setting: *setting }
    }

    /// The same that were never written.
    #[must_use]
    pub fn blank(setting: &Setting) -> Disks {
        let mut images = vec![Image::blank(DISK_BYTES); setting.images()];
        if setting.parity_bytes > 0 {
            *images.last_mut().expect("the parity device") = Image::blank(setting.parity_bytes);
        }
        Disks::new(setting, &images)
    }

    /// The pool on them, which is exported, uses so many slots of a device from now on, however
    /// many fit.
    fn shorten(&self, disk: usize, slots: u32) {
        for device in &self.all[..self.setting.disks] {
            for copy in 0..medium::LABELS {
                let label = device.read_label(copy).ok();
                let label = label.and_then(|area| LabelConfig::decode(&area, steadfast_crypto::hash).ok());
                // Those that are left over have none.
                let Some(mut label) = label else { continue };
                label.leaves[disk].slots = slots;
                let area = label.encode(steadfast_crypto::hash).expect("no longer than it was");
                device.write_label(copy, &area).expect("nothing fails yet");
            }
            device.flush().expect("nothing fails yet");
        }
    }

    /// Handles as a pool wants them, those of its log behind the others.
    #[must_use]
    pub fn handles(&self) -> Vec<DeviceHandle> {
        let handle = |disk: &Arc<Disk>| DeviceHandle {
            path: disk.character().identity,
            device: Arc::clone(disk) as Arc<dyn Device>,
        };
        self.all[..self.setting.disks + self.setting.logs].iter().map(handle).collect()
    }

    /// Their images, all writes applied.
    #[must_use]
    pub fn images(&self) -> Vec<Image> {
        self.all.iter().map(|disk| disk.image()).collect()
    }

    fn wish(&self, path: Option<&str>) -> AnchorWish {
        let Some(corner) = self.corner() else { return AnchorWish::default() };
        let path = path.filter(|_| self.setting.anchored).map(str::to_owned);
        AnchorWish { registers: Some(Arc::new(corner)), path, ..AnchorWish::default() }
    }

    /// The trusted corner, if there is anything in it.
    pub(crate) fn corner(&self) -> Option<Corner> {
        let Setting { disks, logs, anchored, parity_bytes, .. } = self.setting;
        let anchor = anchored.then(|| [0, 1].map(|at| Arc::clone(&self.all[disks + logs + at])));
        let parity = (parity_bytes > 0).then(|| Arc::clone(&self.all[self.all.len() - 1]));
        (anchor.is_some() || parity.is_some()).then_some(Corner { anchor, parity })
    }

    /// The register's record, if there is one.
    #[must_use]
    pub fn record(&self) -> Option<AnchorRecord> {
        let corner = self.corner().filter(|corner| corner.anchor.is_some())?;
        let bytes = corner.register("register").read().ok()?;
        AnchorRecord::decode(&bytes[..]).ok()
    }

    /// Secret of an encrypted pool.
    #[must_use]
    pub fn secret(&self) -> Option<&'static [u8]> {
        self.setting.sealed.then_some(&SECRET)
    }
}

/// Secret of encrypted pools and file systems.
pub const SECRET: [u8; 32] = [7; 32];

/// A key of that secret.
///
/// # Errors
/// The pool's error.
pub fn new_key(env: &Env) -> Result<NewKey, Error> {
    let random = |out: &mut [u8]| env.random.fill(out);
    Ok(NewKey { user: Arc::new(new_user_key(KeyFormat::Raw, &SECRET, &random, None)?) })
}

/// Makes a pool.
///
/// # Errors
/// The pool's error.
pub fn create(env: &Env, disks: &Disks) -> Result<Pool, Error> {
    let mut devices = disks.handles();
    let logs = devices.split_off(disks.setting.disks);
    let special = devices.split_off(disks.setting.disks - disks.setting.special);
    let group = |redundancy, class, devices| GroupHandles { redundancy, class, devices };
    let mut groups = vec![group(disks.setting.redundancy, GroupClass::Normal, devices)];
    if !special.is_empty() {
        groups.push(group(Redundancy::Mirror, GroupClass::Special, special));
    }
    let pool = create_of(env, disks, groups)?;
    if disks.setting.log_mirror {
        pool.zil().add_logs(vec![group(Redundancy::Mirror, GroupClass::Normal, logs)], false, false)?;
    } else if !logs.is_empty() {
        pool.zil().add_logs(GroupHandles::alone(logs), false, false)?;
    }
    Ok(pool)
}

/// Makes a pool of some of the devices.
///
/// # Errors
/// The pool's error.
pub fn create_of(env: &Env, disks: &Disks, groups: Vec<GroupHandles>) -> Result<Pool, Error> {
    let setting = &disks.setting;
    let key = disks.secret().map(|_| new_key(env)).transpose()?;
    let pool = Pool::create(
        env,
        CreateSpec {
            name: "tank".into(),
            groups,
            ashift: setting.ashift,
            force: false,
            pool_props: Default::default(),
            root_props: setting.props.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            key,
            aux: Default::default(),
            anchor: disks.wish(Some("register")),
            host: "sim".into(),
            memory: MEMORY,
        },
    )?;
    let Some((disk, slots)) = setting.short else { return Ok(pool) };
    pool.export()?;
    drop(pool);
    disks.shorten(disk, slots);
    import(env, disks)
}

/// Imports the pool.
///
/// # Errors
/// The pool's error.
pub fn import(env: &Env, disks: &Disks) -> Result<Pool, Error> {
    import_of(env, disks, disks.handles())
}

/// Imports the pool with only some of its devices here.
///
/// # Errors
/// The pool's error.
pub fn import_of(env: &Env, disks: &Disks, devices: Vec<DeviceHandle>) -> Result<Pool, Error> {
    let (mut pools, mut others) = scan(devices);
    // A part that was split off is another pool.
    let at = pools.iter().position(|found| found.config.name == "tank").unwrap_or(0);
    if pools.is_empty() {
        return Err(others.remove(0).1);
    }
    import_found(env, disks, pools.swap_remove(at), false)
}

/// Imports the pool as it was at its checkpoint.
///
/// # Errors
/// The pool's error.
pub fn import_back(env: &Env, disks: &Disks) -> Result<Pool, Error> {
    let (mut pools, mut others) = scan(disks.handles());
    if pools.is_empty() {
        return Err(others.remove(0).1);
    }
    import_found(env, disks, pools.swap_remove(0), true)
}

/// Imports the pool that was split off, if there is one.
///
/// # Errors
/// The pool's error.
pub fn import_other(env: &Env, disks: &Disks) -> Result<Option<Pool>, Error> {
    let other = scan(disks.handles()).0.into_iter().find(|found| found.config.name == OTHER);
    other.map(|found| import_found(env, disks, found, false)).transpose()
}

/// Name of a pool that is split off.
pub const OTHER: &str = "other";

fn import_found(env: &Env, disks: &Disks, found: FoundPool, to_checkpoint: bool) -> Result<Pool, Error> {
    Pool::import(
        env,
        found,
        &ImportSpec {
            new_name: None,
            force: false,
            destroyed: false,
            read_only: false,
            accept_lost_log: false,
            to_checkpoint,
            secret: disks.secret().map(|secret| secret.to_vec().into()),
            anchor: disks.wish(None),
            host: "sim".into(),
            memory: MEMORY,
        },
    )
}

/// A mounted pool. Parts are dropped in the order in which a crash would not mind.
pub struct Mounted {
    /// Its root dataset.
    pub fs: FileSystem,
    /// Keeps it open.
    pub handle: DatasetHandle,
    /// The pool.
    pub pool: Pool,
}

/// Mounts the root dataset.
///
/// # Errors
/// The pool's error.
pub fn mount(pool: Pool) -> Result<Mounted, Error> {
    let (fs, handle) = files(&pool, "tank")?;
    Ok(Mounted { fs, handle, pool })
}

fn options() -> Options {
    Options {
        atime: Atime::Off,
        usage: Arc::new(|| Usage { used_bytes: 0, available_bytes: 32 << 20 }),
        block_bytes: 4096,
    }
}

/// The files of a snapshot.
#[must_use]
pub fn snapshot(dataset: &Arc<Dataset>) -> FileSystem {
    FileSystem::of_snapshot(Arc::clone(dataset), options())
}

/// The files of a dataset.
///
/// # Errors
/// The pool's error.
pub fn files(pool: &Pool, dataset: &str) -> Result<(FileSystem, DatasetHandle), Error> {
    let handle = pool.datasets().open_dataset(dataset)?;
    let fs = FileSystem::new(Arc::clone(handle.dataset()), options());
    let fs =
        fs.map_err(|errno| Error::Suspended { pool: pool.name(), reason: format!("mount: {errno:?}") })?;
    Ok((fs, handle))
}
