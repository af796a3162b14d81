//! Real pools on image files behind the host, with mounts that only pretend: no kernel is needed.

mod audits;
mod costs;
mod devices;
mod events;
mod filesystems;
mod growth;
mod keys;
mod mounts;
mod parity;
mod policies;
mod pools;
mod sharing;
mod streams;

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steadfast_control::api::*;
use steadfast_control::engine::{Engine, Front, MountSettings, Mounted, UsageOf, check};
use steadfast_control::inject::{Calls, Fault, InjectCommand, PoolInject, When};
use steadfast_control::runtime::Surroundings;
use steadfast_control::{Caller, Code, Key, KeyFormat, Refusal, Runtime, Secret};
use steadfast_env::{Clock, Env};
use steadfast_pool::{DatasetHandle, Memory};
use steadfast_posix::{Atime, FileSystem, Options, SetAttr};

/// Mounts of the stage, by mountpoint.
#[derive(Default)]
struct Stage {
    mounts: Mutex<BTreeMap<PathBuf, MountSettings>>,
    /// Owner of the top folder of each file system at its last mount.
    owners: Mutex<BTreeMap<String, (u32, u32)>>,
    /// Folders in which someone has a file open.
    busy: Mutex<Vec<PathBuf>>,
    /// Mounts whose snapshots changed, and of those the ones that have heard of it.
    noted: Mutex<Vec<PathBuf>>,
    told: Mutex<Vec<PathBuf>>,
    /// Nobody but the daemon's user may enter its mounts.
    alone: AtomicBool,
    /// Each mount changes the file system and makes the change durable.
    promises: AtomicBool,
}

struct Scene {
    stage: Arc<Stage>,
    at: PathBuf,
    /// Contents of the folder when it was mounted over.
    covered: Vec<PathBuf>,
    ended: AtomicBool,
    collects_writes: bool,
    _dataset: DatasetHandle,
}

/// True if a kernel would be asked to collect writes. The last switch counts.
fn collects_writes(settings: &MountSettings) -> bool {
    let value = |switch: &String| switch.strip_prefix("writeback_cache=").map(|value| value == "on");
    settings.switches.iter().rev().find_map(value).unwrap_or_default()
}

struct StageFront(Arc<Stage>);

impl Front for StageFront {
    fn mount(
        &self,
        dataset: DatasetHandle,
        at: &Path,
        settings: &MountSettings,
        usage: UsageOf,
    ) -> Result<Box<dyn Mounted>, Refusal> {
        assert!(at.is_dir(), "a mountpoint is a folder when it is mounted: {}", at.display());
        assert!(usage().available_bytes > 0, "a fresh file system has room");
        let options = Options { atime: Atime::Off, usage, block_bytes: 4096 };
        let files = FileSystem::new(Arc::clone(dataset.dataset()), options).unwrap();
        if self.0.promises.load(Ordering::SeqCst) {
            // Commits do that until the intent log has room.
            for mode in [0o700, 0o711, 0o750, 0o755] {
                files.setattr(1, &SetAttr { mode: Some(mode), ..SetAttr::default() }).unwrap();
                files.fsync(1).unwrap();
            }
        }
        let top = files.getattr(1).unwrap();
        self.0.owners.lock().unwrap().insert(settings.source.clone(), (top.uid, top.gid));
        self.0.mounts.lock().unwrap().insert(at.to_owned(), settings.clone());
        let stage = Arc::clone(&self.0);
        let covered = std::fs::read_dir(at).unwrap().map(|inside| inside.unwrap().path()).collect();
        let ended = AtomicBool::new(false);
        let collects_writes = collects_writes(settings);
        Ok(Box::new(Scene { stage, at: at.to_owned(), covered, ended, collects_writes, _dataset: dataset }))
    }

    fn may_allow_other(&self) -> bool {
        !self.0.alone.load(Ordering::SeqCst)
    }

    fn clear_stale(&self, _: &Path) -> bool {
        false
    }
}

impl Mounted for Scene {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn unmount(&self, force: bool) -> Result<(), Refusal> {
        let inner =
            self.stage.mounts.lock().unwrap().keys().any(|m| *m != self.at && m.starts_with(&self.at));
        assert!(!inner, "children are unmounted before parents: {}", self.at.display());
        if !force && self.stage.busy.lock().unwrap().contains(&self.at) {
            return Err(Refusal::new(Code::FsBusy, format!("{} is in use", self.at.display())));
        }
        self.stage.mounts.lock().unwrap().remove(&self.at);
        // Mountpoints inside a mounted file system vanish with it; on this stage they are in the
        // folder itself.
        for inside in std::fs::read_dir(&self.at).into_iter().flatten().flatten() {
            if !self.covered.contains(&inside.path()) {
                std::fs::remove_dir_all(inside.path()).expect("mountpoints of inner file systems");
            }
        }
        self.ended.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn settle(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn note_snapshots(&self) {
        self.stage.noted.lock().unwrap().push(self.at.clone());
    }

    fn await_notes(&self) {
        self.stage.told.lock().unwrap().push(self.at.clone());
    }

    fn collects_writes(&self) -> bool {
        self.collects_writes
    }

    fn remount(&self, settings: &MountSettings) -> Result<(), Refusal> {
        self.stage.mounts.lock().unwrap().insert(self.at.clone(), settings.clone());
        Ok(())
    }
}

/// A host over real pools in a folder of its own.
struct House {
    folder: PathBuf,
    stage: Arc<Stage>,
    env: Env,
    engine: Option<Engine>,
}

/// A clock that shows what it is told, and goes on as clocks do.
struct Shown {
    real: Arc<dyn Clock>,
    wall_seconds: AtomicU64,
}

impl Clock for Shown {
    fn wall_ns(&self) -> i128 {
        i128::from(self.wall_seconds.load(Ordering::SeqCst)) * 1_000_000_000
    }

    fn monotonic_ns(&self) -> u64 {
        self.real.monotonic_ns()
    }

    fn sleep(&self, duration: Duration) {
        self.real.sleep(duration);
    }
}

const MEMORY: Memory =
    Memory { node_cache_bytes: 8 << 20, block_cache_bytes: 8 << 20, dirty_bytes_max: 16 << 20 };

impl House {
    fn new(name: &str) -> House {
        House::within(Env::real(), name)
    }

    fn within(env: Env, name: &str) -> House {
        let folder = std::env::temp_dir().join(format!("steadfast-engine-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut house = House { folder, stage: Arc::default(), env, engine: None };
        house.start();
        house
    }

    fn start(&mut self) {
        let around = Surroundings {
            runtime_dir: Some(self.folder.join("run")),
            home: Some(self.folder.join("home")),
            ..Surroundings::default()
        };
        // As an ordinary user, so that mountpoints lie in the test's own folder.
        let runtime = Runtime::locate(&around, 12_345);
        let front = Arc::new(StageFront(Arc::clone(&self.stage)));
        self.engine = Some(Engine::start(self.env.clone(), runtime, MEMORY, front).unwrap());
    }

    /// Ends the daemon and starts another one.
    fn restart(&mut self) {
        self.host().shutdown(false).unwrap();
        self.engine = None;
        self.start();
    }

    fn host(&self) -> &Engine {
        self.engine.as_ref().unwrap()
    }

    fn image(&self, name: &str) -> PathBuf {
        let path = self.folder.join(name);
        if !path.exists() {
            File::create(&path).unwrap().set_len(64 << 20).unwrap();
        }
        path
    }

    fn create_request(&self, name: &str, image: &str) -> PoolCreate {
        let devices = vec![self.image(image)];
        PoolCreate {
            name: name.into(),
            vdevs: vec![VdevSpec { class: VdevClass::Main, kind: VdevKind::Plain, devices }],
            force: false,
            dry_run: false,
            no_features: false,
            temporary_name: None,
            mountpoint: None,
            properties: Properties::new(),
            fs_properties: Properties::new(),
            key: None,
            loss_ppm: None,
            tiles: None,
        }
    }

    fn create_pool(&self, request: PoolCreate) -> Result<Outcome, Refusal> {
        let Request::PoolCreate(request) = check(Request::PoolCreate(request))? else { unreachable!() };
        self.host().call(&caller(), request)
    }

    fn create_fs(&self, name: &str, set: &[(&str, &str)], key: Option<Key>) -> Result<Outcome, Refusal> {
        let properties = set.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let request = FsCreate {
            name: name.into(),
            parents: false,
            no_mount: false,
            dry_run: false,
            properties,
            key,
            volume: None,
        };
        let Request::FsCreate(request) = check(Request::FsCreate(request))? else { unreachable!() };
        self.host().call(&caller(), request)
    }

    fn set(&self, name: &str, property: &str, value: &str) -> Result<Outcome, Refusal> {
        let properties = Properties::from([(property.to_owned(), value.to_owned())]);
        let request = FsSet { name: name.into(), properties, no_mount: false };
        let Request::FsSet(request) = check(Request::FsSet(request))? else { unreachable!() };
        self.host().call(&caller(), request)
    }

    fn get(&self, name: &str, property: &str) -> String {
        let request = FsList { names: vec![name.into()], depth: Some(0) };
        self.host().call(&caller(), request).unwrap()[0].value(property).to_owned()
    }

    fn import(&self, name: &str, key: Option<Key>) -> Result<Outcome, Refusal> {
        self.host().call(&caller(), self.import_request(name, key))
    }

    fn import_request(&self, name: &str, key: Option<Key>) -> PoolImport {
        PoolImport {
            pool: PoolSelector::Name(name.into()),
            search: vec![self.folder.clone()],
            new_name: None,
            temporary: false,
            rewind: false,
            is_trial: false,
            as_of: None,
            force: false,
            destroyed: false,
            no_mount: false,
            properties: Properties::new(),
            key,
            key_of_file: false,
            anchor: None,
            accept_rollback: false,
            accept_lost_anchor: false,
            accept_lost_log: false,
            to_checkpoint: false,
        }
    }

    fn export(&self, name: &str, force: bool) -> Result<Outcome, Refusal> {
        self.host().call(&caller(), PoolExport { name: name.into(), force })
    }

    fn mounted(&self) -> Vec<String> {
        let base = self.folder.join("home/steadfast");
        let mounts = self.stage.mounts.lock().unwrap();
        mounts.keys().map(|at| at.strip_prefix(&base).unwrap_or(at).display().to_string()).collect()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.take() {
            let _ = engine.shutdown(true);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn caller() -> Caller {
    Caller {
        uid: 7,
        gid: 7,
        guest: false,
        pid: 1,
        command: "zpool test".into(),
        descriptor: None,
        steps: None,
    }
}

fn passphrase(text: &str) -> Key {
    Key { format: KeyFormat::Passphrase, secret: Secret::new(text.into()) }
}

fn classes(house: &House) -> Vec<String> {
    let events = house.host().call(&caller(), PoolEvents::default()).unwrap();
    assert!(events.windows(2).all(|pair| pair[0].eid < pair[1].eid));
    events.into_iter().map(|event| event.class).collect()
}
