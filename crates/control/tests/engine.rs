//! Real pools on image files behind the host, with mounts that only pretend: no kernel is needed.

mod devices;
mod mounts;
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
    _dataset: DatasetHandle,
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
        Ok(Box::new(Scene { stage, at: at.to_owned(), covered, ended, _dataset: dataset }))
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
            mountpoint: None,
            properties: Properties::new(),
            fs_properties: Properties::new(),
            key: None,
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
        let request = PoolImport {
            pool: PoolSelector::Name(name.into()),
            search: vec![self.folder.clone()],
            new_name: None,
            force: false,
            destroyed: false,
            no_mount: false,
            properties: Properties::new(),
            key,
            anchor: None,
            accept_rollback: false,
            accept_lost_anchor: false,
            accept_lost_log: false,
        };
        self.host().call(&caller(), request)
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
    Caller { uid: 7, gid: 7, pid: 1, command: "zpool test".into(), descriptor: None }
}

fn passphrase(text: &str) -> Key {
    Key { format: KeyFormat::Passphrase, secret: Secret::new(text.into()) }
}

#[test]
fn a_pool_is_made_mounted_remembered_exported_and_imported() {
    let mut house = House::new("life");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/home", &[("compression", "zstd-3")], None).unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/home"]);
    assert_eq!(house.get("tank/home", "compression"), "zstd-3");
    house.restart();
    assert_eq!(house.mounted(), ["tank", "tank/home"]);
    assert_eq!(house.get("tank/home", "compression"), "zstd-3");
    house.export("tank", false).unwrap();
    assert!(house.mounted().is_empty());
    assert!(!house.folder.join("home/steadfast/tank").exists(), "folders we made go with the mount");
    house.restart();
    assert!(house.host().call(&caller(), PoolList::default()).unwrap().is_empty());
    let found =
        house.host().call(&caller(), PoolImportScan { search: vec![house.folder.clone()], destroyed: false });
    assert_eq!(found.unwrap().iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["tank"]);
    house.import("tank", None).unwrap();
    assert_eq!(house.import("tank", None).unwrap_err().code, Code::PoolImported);
    assert_eq!(house.mounted(), ["tank", "tank/home"]);
    let past = house.host().call(&caller(), PoolHistory::default()).unwrap();
    assert!(past[0].records.iter().filter(|r| r.text == "zpool test" && r.uid == 7).count() >= 4);
}

#[test]
fn a_pool_whose_device_is_gone_stays_listed_until_it_is_exported() {
    let mut house = House::new("lost");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let (here, gone) = (house.folder.join("a.img"), house.folder.join("gone"));
    house.host().shutdown(false).unwrap();
    house.engine = None;
    std::fs::rename(&here, &gone).unwrap();
    house.start();
    let listed = house.host().call(&caller(), PoolList::default()).unwrap();
    assert_eq!((listed[0].name.as_str(), listed[0].state), ("tank", Health::Unavail));
    let status = house.host().call(&caller(), PoolStatus::default()).unwrap();
    assert_eq!(status[0].messages[0].code, Code::PoolMissing);
    assert_eq!(house.create_fs("tank/x", &[], None).unwrap_err().code, Code::PoolMissing);
    assert_eq!(house.create_pool(house.create_request("tank", "b.img")).unwrap_err().code, Code::PoolExists);
    std::fs::rename(&gone, &here).unwrap();
    // A refused import leaves the pool as it was.
    let import = |set: &[(&str, &str)]| {
        let properties = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let request = PoolImport {
            pool: PoolSelector::Name("tank".into()),
            search: vec![house.folder.clone()],
            new_name: None,
            force: false,
            destroyed: false,
            no_mount: false,
            properties: properties.collect(),
            key: None,
            anchor: None,
            accept_rollback: false,
            accept_lost_anchor: false,
            accept_lost_log: false,
        };
        house.host().call(&caller(), request).map(drop)
    };
    import(&[("readonly", "on"), ("comment", "x")]).unwrap_err();
    import(&[("feature@unheard_of", "enabled")]).unwrap_err();
    assert_eq!(house.create_pool(house.create_request("tank", "b.img")).unwrap_err().code, Code::PoolExists);
    import(&[("comment", "x")]).unwrap();
    assert_eq!(house.mounted(), ["tank"]);
    house.export("tank", false).unwrap();
    import(&[("feature@unheard_of", "enabled")]).unwrap_err();
    let request = LabelClear { device: here, force: false };
    let refused = house.host().call(&caller(), request).unwrap_err().what;
    assert!(refused.ends_with("which was exported"), "{refused}");
}

#[test]
fn a_stop_that_one_pool_prevents_forgets_no_other() {
    let mut house = House::new("stop");
    house.create_pool(house.create_request("other", "a.img")).unwrap();
    house.create_pool(house.create_request("tank", "b.img")).unwrap();
    // A busy mount keeps all mounts as they were.
    house.create_fs("other/x", &[], None).unwrap();
    house.host().call(&caller(), FsUnmount { name: "other/x".into(), force: false }).unwrap();
    let at = Some(house.folder.join("elsewhere"));
    let request = FsMount { name: "other/x".into(), at, options: Vec::new(), overlay: false };
    house.host().call(&caller(), request).unwrap();
    let before = house.mounted();
    *house.stage.busy.lock().unwrap() = vec![house.folder.join("home/steadfast/tank")];
    assert_eq!(house.host().shutdown(false).unwrap_err().code, Code::PoolBusy);
    assert_eq!(house.mounted(), before);
    house.stage.busy.lock().unwrap().clear();
    // A pool that cannot be exported.
    let request = PoolInject {
        name: "tank".into(),
        device: Some(house.folder.join("b.img")),
        command: InjectCommand::Arm(Fault::Eio { on: Calls::Any, when: When::Every(1) }),
        damage_wanted: true,
    };
    house.host().call(&caller(), request).unwrap();
    house.host().shutdown(false).unwrap_err();
    let listed = house.host().call(&caller(), PoolList::default()).unwrap();
    let mut names: Vec<&str> = listed.iter().map(|pool| pool.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["other", "tank"]);
    // The list of remembered pools is written again with the next pool.
    house.create_pool(house.create_request("third", "c.img")).unwrap();
    house.host().shutdown(true).unwrap();
    house.engine = None;
    house.start();
    assert_eq!(house.mounted(), ["other", "other/x", "tank", "third"]);
}

#[test]
fn bad_devices_are_refused_and_nothing_is_written() {
    let house = House::new("devices");
    let refused = |path: PathBuf| {
        let mut request = house.create_request("bad", "unused.img");
        request.vdevs[0].devices = vec![path];
        house.create_pool(request).unwrap_err().code
    };
    assert_eq!(refused(house.folder.join("missing")), Code::VdevMissing);
    assert_eq!(refused(house.folder.clone()), Code::VdevKind);
    File::create(house.folder.join("small")).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(refused(house.folder.join("small")), Code::VdevSmall);
    let ext4 = house.image("ext4.img");
    let mut bytes = vec![0_u8; 2048];
    bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
    std::os::unix::fs::FileExt::write_all_at(&File::options().write(true).open(&ext4).unwrap(), &bytes, 0)
        .unwrap();
    assert_eq!(refused(ext4.clone()), Code::VdevForeign);
    assert_eq!(std::fs::read(&ext4).unwrap()[..2048], bytes);
    let mut twice = house.create_request("bad", "a.img");
    std::os::unix::fs::symlink(house.image("a.img"), house.folder.join("alias")).unwrap();
    twice.vdevs[0].devices.push(house.folder.join("alias"));
    assert!(matches!(house.create_pool(twice).unwrap_err().code, Code::VdevTwice | Code::VdevInUse));
    house.create_pool(house.create_request("tank", "tank.img")).unwrap();
    let in_use = house.create_pool(house.create_request("bad", "tank.img")).unwrap_err();
    assert!(in_use.code == Code::VdevInUse && in_use.what.contains("'tank'"), "{}", in_use.what);
    house.export("tank", false).unwrap();
    assert_eq!(
        house.create_pool(house.create_request("bad", "tank.img")).unwrap_err().code,
        Code::VdevForeign
    );
    house.import("tank", None).unwrap();
    let mut forced = house.create_request("other", "ext4.img");
    forced.force = true;
    house.create_pool(forced).unwrap();
}

#[test]
fn images_that_hold_no_pool_are_refused_by_import() {
    let house = House::new("images");
    let scan = |name: &str| {
        let search = vec![house.folder.join(name)];
        house
            .host()
            .call(&caller(), PoolImportScan { search, destroyed: false })
            .map_err(|refusal| refusal.code)
    };
    house.image("zeros.img");
    assert_eq!(scan("zeros.img").unwrap_err(), Code::PoolDamaged);
    assert_eq!(scan("missing.img").unwrap_err(), Code::PoolNotFound);
    let random: Vec<u8> =
        (0..70_u64 << 20).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    std::fs::write(house.folder.join("random.img"), random).unwrap();
    assert_eq!(scan("random.img").unwrap_err(), Code::PoolDamaged);
    assert_eq!(house.import("nothing", None).unwrap_err().code, Code::PoolNotFound);

    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.export("tank", false).unwrap();
    let whole = std::fs::read(house.folder.join("a.img")).unwrap();
    // Cut short, and with its second half lost: either is refused, or it is imported because
    // nothing was there.
    File::options().write(true).open(house.folder.join("a.img")).unwrap().set_len(65 << 19).unwrap();
    assert!(house.import("tank", None).is_err());
    std::fs::write(house.folder.join("a.img"), &whole).unwrap();
    house.import("tank", None).unwrap();
}

#[test]
fn writes_are_collected_where_the_property_says_so() {
    let house = House::new("collected");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/db", &[("writeback_cache", "on")], None).unwrap();
    house.create_fs("tank/db/below", &[], None).unwrap();
    house.create_fs("tank/home", &[], None).unwrap();
    let collects = |name: &str| {
        let mounts = house.stage.mounts.lock().unwrap();
        let settings = mounts.values().find(|settings| settings.source == name).expect("mounted");
        settings.switches.iter().any(|switch| switch == "writeback_cache=on")
    };
    assert!(collects("tank/db") && collects("tank/db/below") && !collects("tank/home"));
    house.set("tank/db", "writeback_cache", "off").unwrap();
    assert!(!collects("tank/db") && !collects("tank/db/below"), "mounted again");
}

#[test]
fn keys_open_and_close_what_they_should() {
    let house = House::new("keys");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let on = [("encryption", "on"), ("keyformat", "passphrase")];
    assert_eq!(house.create_fs("tank/p", &[("encryption", "on")], None).unwrap_err().code, Code::KeyRules);
    house.create_fs("tank/p", &on, Some(passphrase("12345678"))).unwrap();
    house.create_fs("tank/p/child", &[], None).unwrap();
    assert_eq!(
        house.create_fs("tank/p/open", &[("encryption", "off")], None).unwrap_err().code,
        Code::KeyRules
    );
    assert_eq!(house.get("tank/p/child", "encryptionroot"), "tank/p");
    assert_eq!(house.get("tank/p/child", "keystatus"), "available");
    let unload = || house.host().call(&caller(), FsUnloadKey { name: "tank/p".into() });
    assert_eq!(unload().unwrap_err().code, Code::KeyBusy);
    house.host().call(&caller(), FsUnmount { name: "tank/p".into(), force: false }).unwrap();
    assert_eq!(house.mounted(), ["tank"]);
    unload().unwrap();
    assert_eq!(unload().unwrap_err().code, Code::KeyUnloaded);
    let mount = |name: &str| FsMount { name: name.into(), at: None, options: Vec::new(), overlay: false };
    assert_eq!(house.host().call(&caller(), mount("tank/p")).unwrap_err().code, Code::KeyNeeded);
    assert_eq!(house.create_fs("tank/p/late", &[], None).unwrap_err().code, Code::KeyNeeded);
    let load = |text: &str, name: &str| {
        house.host().call(&caller(), FsLoadKey { name: name.into(), key: passphrase(text), dry_run: false })
    };
    assert_eq!(load("87654321", "tank/p").unwrap_err().code, Code::KeyWrong);
    assert_eq!(load("12345678", "tank/p/child").unwrap_err().code, Code::KeyInherited);
    load("12345678", "tank/p").unwrap();
    assert_eq!(load("12345678", "tank/p").unwrap_err().code, Code::KeyLoaded);
    house.host().call(&caller(), mount("tank/p/child")).unwrap();
}

#[test]
fn a_sealed_pool_needs_its_key_to_be_imported() {
    let mut house = House::new("sealed");
    let mut request = house.create_request("seal", "a.img");
    request.fs_properties =
        Properties::from([("encryption".into(), "on".into()), ("keyformat".into(), "passphrase".into())]);
    request.key = Some(passphrase("12345678"));
    house.create_pool(request).unwrap();
    house.restart();
    let listed = house.host().call(&caller(), PoolList::default()).unwrap();
    assert_eq!(listed[0].state, Health::Unavail);
    let refusal = house.import("seal", None).unwrap_err();
    assert_eq!((refusal.code, refusal.fields["keyformat"].as_str()), (Code::PoolSealed, "passphrase"));
    assert_eq!(house.import("seal", Some(passphrase("87654321"))).unwrap_err().code, Code::KeyWrong);
    house.import("seal", Some(passphrase("12345678"))).unwrap();
    assert_eq!(house.mounted(), ["seal"]);
}

#[test]
fn destroying_takes_children_only_when_told_to() {
    let house = House::new("destroy");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    house.create_fs("tank/a/b", &[], None).unwrap();
    let destroy = |name: &str, recursive| {
        let request = FsDestroy { name: name.into(), recursive, clones: false, force: false, dry_run: false };
        house.host().call(&caller(), request)
    };
    assert_eq!(destroy("tank", true).unwrap_err().code, Code::FsRoot);
    assert_eq!(destroy("tank/a", false).unwrap_err().code, Code::FsChildren);
    assert_eq!(destroy("tank/none", true).unwrap_err().code, Code::FsAbsent);
    assert_eq!(destroy("tank/a", true).unwrap().touched, ["tank/a/b", "tank/a"]);
    assert_eq!(house.mounted(), ["tank"]);
    house.host().call(&caller(), PoolDestroy { name: "tank".into(), force: false }).unwrap();
    assert_eq!(house.import("tank", None).unwrap_err().code, Code::PoolDestroyed);
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
}

#[test]
fn a_file_system_belongs_to_whom_it_was_made_for() {
    let mut house = House::new("owner");
    house.create_pool(house.create_request("mine", "a.img")).unwrap();
    house.create_fs("mine/docs", &[], None).unwrap();
    house
        .create_fs(
            "mine/sealed",
            &[("encryption", "on"), ("keyformat", "passphrase")],
            Some(passphrase("12345678")),
        )
        .unwrap();
    let expected = ["mine", "mine/docs", "mine/sealed"].map(|name| (name.to_owned(), (7, 7)));
    assert_eq!(*house.stage.owners.lock().unwrap(), BTreeMap::from(expected));
    // And stays theirs.
    house.stage.owners.lock().unwrap().clear();
    house.restart();
    assert_eq!(house.stage.owners.lock().unwrap().get("mine/docs"), Some(&(7, 7)));
}

/// Classes of all events so far.
fn classes(house: &House) -> Vec<String> {
    let events = house.host().call(&caller(), PoolEvents::default()).unwrap();
    assert!(events.windows(2).all(|pair| pair[0].eid < pair[1].eid));
    events.into_iter().map(|event| event.class).collect()
}

#[test]
fn spares_are_listed_where_pools_could_be_imported() {
    let house = House::new("listspares");
    let mut request = house.create_request("tank", "a.img");
    request.vdevs[0].devices.push(house.image("b.img"));
    request.vdevs[0].kind = VdevKind::Mirror;
    let (class, kind, devices) = (VdevClass::Spare, VdevKind::Plain, vec![house.image("s.img")]);
    request.vdevs.push(VdevSpec { class, kind, devices });
    house.create_pool(request).unwrap();
    house.export("tank", false).unwrap();
    let told = || {
        let request = PoolImportScan { search: vec![house.folder.clone()], destroyed: false };
        let found = house.host().call(&caller(), request).unwrap().remove(0);
        assert_eq!((found.state, found.vdevs.len()), (Health::Online, 2), "{:?}", found.vdevs);
        let spare = &found.vdevs[1];
        (spare.class, spare.name.ends_with("s.img"), spare.state)
    };
    assert_eq!(told(), (VdevClass::Spare, true, Health::Avail));
    std::fs::remove_file(house.folder.join("s.img")).unwrap();
    assert_eq!(told(), (VdevClass::Spare, true, Health::Unavail));
}

#[test]
fn a_pool_grows_by_devices_and_keeps_them() {
    let mut house = House::new("add");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let size = |house: &House| {
        let pools = house.host().call(&caller(), PoolList::default()).unwrap();
        pools[0].properties["size"].value.parse::<u64>().unwrap()
    };
    let before = size(&house);
    let add = |house: &House, image: &str, force, dry_run| {
        let device = vec![house.image(image)];
        let vdevs = vec![VdevSpec { class: VdevClass::Main, kind: VdevKind::Plain, devices: device }];
        house.host().call(&caller(), PoolAdd { name: "tank".into(), vdevs, force, dry_run })
    };
    add(&house, "b.img", false, true).unwrap();
    assert_eq!(size(&house), before, "a dry run changes nothing");
    assert_eq!(std::fs::read(house.image("b.img")).unwrap().iter().filter(|byte| **byte != 0).count(), 0);
    add(&house, "b.img", false, false).unwrap();
    assert_eq!(size(&house), 2 * before);
    assert_eq!(add(&house, "b.img", true, false).unwrap_err().code, Code::VdevInUse);
    house.create_pool(house.create_request("other", "c.img")).unwrap();
    house.export("other", false).unwrap();
    assert_eq!(add(&house, "c.img", false, false).unwrap_err().code, Code::VdevForeign);
    add(&house, "c.img", true, false).unwrap();
    house.restart();
    assert_eq!(size(&house), 3 * before);
    house.export("tank", false).unwrap();
    house.import("tank", None).unwrap();
    assert_eq!(size(&house), 3 * before);
    house.export("tank", false).unwrap();
    std::fs::rename(house.folder.join("b.img"), house.folder.join("run/b.img")).unwrap();
    assert_eq!(house.import("tank", None).unwrap_err().code, Code::PoolDevices);
}

#[test]
fn a_device_that_has_grown_is_used_when_asked_for_or_at_import() {
    let mut house = House::new("expand");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let property = |house: &House, name: &str| {
        let pools = house.host().call(&caller(), PoolList::default()).unwrap();
        pools[0].properties[name].value.clone()
    };
    let size = |house: &House| property(house, "size").parse::<u64>().unwrap();
    let grow =
        |mib: u64| File::options().write(true).open(house.folder.join("a.img")).unwrap().set_len(mib << 20);
    let before = size(&house);
    assert_eq!(property(&house, "expandsize"), "-");
    grow(128).unwrap();
    assert_eq!(property(&house, "expandsize"), (64_u64 << 20).to_string());
    let device = house.folder.join("a.img");
    let online = |device: PathBuf, expand| {
        let request = PoolOnline { name: "tank".into(), devices: vec![device], expand };
        house.host().call(&caller(), request)
    };
    assert!(online(device.clone(), false).unwrap().touched.is_empty());
    assert_eq!(size(&house), before);
    assert_eq!(online(device.clone(), true).unwrap().touched.len(), 1);
    assert_eq!(size(&house), before + (64 << 20));
    assert!(online(device, true).unwrap().touched.is_empty(), "there is no more to gain");
    assert_eq!(online("/missing".into(), true).unwrap_err().code, Code::VdevMissing);
    let offline = PoolOffline {
        name: "tank".into(),
        devices: vec![house.folder.join("a.img")],
        as_failed: false,
        until_import: false,
    };
    assert_eq!(house.host().call(&caller(), offline).unwrap_err().code, Code::VdevNeeded);
    grow(192).unwrap();
    house.restart();
    assert_eq!(size(&house), before + (64 << 20), "autoexpand is off");
    let on = Properties::from([("autoexpand".to_owned(), "on".to_owned())]);
    house.host().call(&caller(), PoolSet { name: "tank".into(), properties: on }).unwrap();
    house.restart();
    assert_eq!(size(&house), before + (128 << 20));
    assert!(classes(&house).iter().any(|class| class.ends_with(".vdev_autoexpand")));
    // And while it is imported, unless it is switched off.
    let grow =
        |mib: u64| File::options().write(true).open(house.folder.join("a.img")).unwrap().set_len(mib << 20);
    grow(256).unwrap();
    house.host().look_after();
    assert_eq!(size(&house), before + (192 << 20));
    let off = Properties::from([("autoexpand".to_owned(), "off".to_owned())]);
    house.host().call(&caller(), PoolSet { name: "tank".into(), properties: off }).unwrap();
    grow(320).unwrap();
    house.host().look_after();
    assert_eq!(
        (size(&house), property(&house, "expandsize")),
        (before + (192 << 20), (64_u64 << 20).to_string())
    );
}

/// A slot of a device of raidz holds a column, which is smaller than a segment: the gain was told k
/// times too large.
#[test]
fn what_a_grown_device_of_raidz_adds_is_told_in_its_own_bytes() {
    let house = House::new("expand-raidz");
    let devices = ["a.img", "b.img", "c.img"].map(|name| house.image(name)).to_vec();
    let vdevs = vec![VdevSpec { class: VdevClass::Main, kind: VdevKind::Raidz1, devices }];
    house.create_pool(PoolCreate { vdevs, ..house.create_request("tank", "a.img") }).unwrap();
    let expandsize = || {
        let pools = house.host().call(&caller(), PoolList::default()).unwrap();
        pools[0].properties["expandsize"].value.clone()
    };
    assert_eq!(expandsize(), "-");
    for (name, grown) in [("a.img", 64_u64 << 20), ("b.img", 128 << 20)] {
        File::options().write(true).open(house.folder.join(name)).unwrap().set_len(128 << 20).unwrap();
        assert_eq!(expandsize(), grown.to_string());
    }
}

#[test]
fn a_device_that_vanishes_while_in_use_is_told() {
    let house = House::new("vanish");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_pool(house.create_request("pond", "b.img")).unwrap();
    let report = |name: &str| {
        let request = PoolStatus { names: vec![name.into()] };
        house.host().call(&caller(), request).unwrap().remove(0)
    };
    assert_eq!(report("tank").state, Health::Online);
    std::fs::remove_file(house.folder.join("a.img")).unwrap();
    let gone = report("tank");
    assert_eq!((gone.state, gone.vdevs[0].state), (Health::Degraded, Health::Removed));
    assert_eq!(gone.messages[0].code, Code::VdevGone);
    // Its bytes are there as long as somebody holds it open.
    for refused in [house.export("tank", false).unwrap_err(), house.host().shutdown(false).unwrap_err()] {
        assert_eq!(refused.code, Code::VdevGone);
        assert!(refused.what.contains("lost if the pool closed it"), "{}", refused.what);
        assert!(refused.advice().contains("`zpool export -f tank`"), "{}", refused.advice());
    }
    assert_eq!(report("tank").messages[0].code, Code::VdevGone, "nothing was begun");
    File::options().write(true).open(house.folder.join("b.img")).unwrap().set_len(65 << 20 >> 1).unwrap();
    let short = report("pond");
    assert_eq!((short.state, short.vdevs[0].state), (Health::Degraded, Health::Faulted));
    assert!(short.messages[0].what.contains("cut short"), "{}", short.messages[0].what);
    house.export("tank", true).unwrap();
}

#[test]
fn room_is_the_same_in_iostat_list_and_status() {
    let house = House::new("rooms");
    let mut request = house.create_request("tank", "a.img");
    request.vdevs[0].devices.extend(["b.img", "c.img"].map(|image| house.image(image)));
    request.vdevs[0].kind = VdevKind::Raidz1;
    house.create_pool(request).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    let property = |name: &str| {
        let listed = house.host().call(&caller(), PoolList::default()).unwrap().remove(0);
        listed.properties[name].value.parse::<u64>().unwrap()
    };
    let look = || {
        let io = house.host().call(&caller(), PoolIostat::default()).unwrap().remove(0);
        let request = PoolStatus { names: vec!["tank".into()] };
        (io, house.host().call(&caller(), request).unwrap().remove(0).vdevs.remove(0))
    };
    // Of one moment: commits may be made meanwhile.
    let (io, group) = loop {
        let before = property("allocated");
        let told = look();
        if told.0.allocated == before && property("allocated") == before {
            break told;
        }
    };
    assert_eq!(io.free, property("size") - io.allocated);
    let told = &io.groups[0];
    assert_eq!((io.groups.len(), &told.name, told.allocated), (1, &group.name, group.allocated));
    assert_eq!(told.free, group.size - group.allocated);
    assert!(io.devices.iter().all(|device| device.group == group.name), "{:?}", io.devices);
}

#[test]
fn a_group_that_does_without_a_device_that_vanished_says_so() {
    let house = House::new("vanishmirror");
    let mut request = house.create_request("tank", "a.img");
    request.vdevs[0].devices.push(house.image("b.img"));
    request.vdevs[0].kind = VdevKind::Mirror;
    house.create_pool(request).unwrap();
    let messages = || {
        let request = PoolStatus { names: vec!["tank".into()] };
        house.host().call(&caller(), request).unwrap().remove(0).messages
    };
    std::fs::remove_file(house.folder.join("a.img")).unwrap();
    let told = messages();
    assert_eq!((told.len(), told[0].code), (1, Code::VdevDegraded), "{told:?}");
    assert!(
        told[0].what.contains("a.img") && told[0].what.contains("continues without it"),
        "{}",
        told[0].what
    );
    std::fs::remove_file(house.folder.join("b.img")).unwrap();
    let told: Vec<Code> = messages().iter().map(|message| message.code).collect();
    assert_eq!(told, [Code::VdevGone, Code::VdevGone]);
    house.export("tank", true).unwrap();
}

#[test]
fn a_new_device_that_was_refused_is_tried_again() {
    let house = House::new("autoreplace");
    let devices = ["a.img", "b.img"].map(|name| house.image(name)).to_vec();
    let mut request = house.create_request("tank", "a.img");
    request.vdevs = vec![VdevSpec { class: VdevClass::Main, kind: VdevKind::Mirror, devices }];
    request.properties = Properties::from([("autoreplace".into(), "on".into())]);
    house.create_pool(request).unwrap();
    let failed = house.folder.join("b.img");
    let request = PoolOffline {
        name: "tank".into(),
        devices: vec![failed.clone()],
        as_failed: true,
        until_import: false,
    };
    house.host().call(&caller(), request).unwrap();
    let replaced = || {
        let told = classes(&house);
        told.iter().filter(|class| *class == "sysevent.fs.steadfast.vdev_attach").count()
    };
    // A blank one in its place, which somebody has not let go of yet.
    std::fs::remove_file(&failed).unwrap();
    let held = File::options().read(true).write(true).open(house.image("b.img")).unwrap();
    held.lock().unwrap();
    (0..2).for_each(|_| house.host().look_after());
    assert_eq!(replaced(), 0, "it is in use");
    drop(held);
    // Refused twice, it rests for one look.
    (0..2).for_each(|_| house.host().look_after());
    assert_eq!(replaced(), 1);
}

#[test]
fn a_destroyed_pool_is_told_from_a_damaged_one_and_comes_back() {
    let house = House::new("undestroy");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    house.host().call(&caller(), PoolDestroy { name: "tank".into(), force: false }).unwrap();
    let scan = |destroyed| {
        let request = PoolImportScan { search: vec![house.folder.clone()], destroyed };
        house.host().call(&caller(), request).unwrap()
    };
    assert!(scan(false).is_empty());
    let found = scan(true);
    assert_eq!((found[0].name.as_str(), found.len()), ("tank", 1));
    assert_eq!(found[0].message.as_ref().unwrap().code, Code::PoolDestroyed);
    assert_eq!(house.import("tank", None).unwrap_err().code, Code::PoolDestroyed);
    let request = PoolImport {
        pool: PoolSelector::Name("tank".into()),
        search: vec![house.folder.clone()],
        new_name: None,
        force: false,
        destroyed: true,
        no_mount: false,
        properties: Properties::new(),
        key: None,
        anchor: None,
        accept_rollback: false,
        accept_lost_anchor: false,
        accept_lost_log: false,
    };
    house.host().call(&caller(), request).unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/a"]);
    house.export("tank", false).unwrap();
    assert!(scan(true).is_empty(), "it lives again");
}

#[test]
fn labels_are_cleared_only_where_nobody_needs_them() {
    let house = House::new("labelclear");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let clear = |force| {
        let request = LabelClear { device: house.folder.join("a.img"), force };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };
    assert_eq!(clear(true), Err(Code::VdevInUse));
    house.export("tank", false).unwrap();
    assert_eq!(clear(false), Err(Code::VdevForeign));
    clear(true).unwrap();
    assert_eq!(clear(true), Err(Code::PoolDamaged), "there is no label any more");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
}

#[test]
fn file_systems_move_with_what_is_below_them() {
    let mut house = House::new("rename");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[("compression", "zstd")], None).unwrap();
    house.create_fs("tank/a/b", &[], None).unwrap();
    house.create_fs("tank/young", &[("atime", "off")], None).unwrap();
    let rename = |house: &House, name: &str, to: &str, parents: bool, no_remount: bool| {
        let (name, to) = (name.to_owned(), to.to_owned());
        let request = FsRename { name, to, parents, force: false, no_remount };
        house.host().call(&caller(), request)
    };
    let refused =
        |house: &House, name: &str, to: &str| rename(house, name, to, false, false).unwrap_err().code;
    assert_eq!(refused(&house, "tank", "tank/x"), Code::FsPlace);
    assert_eq!(refused(&house, "tank/a", "tank"), Code::FsPlace);
    assert_eq!(refused(&house, "tank/a", "pond/a"), Code::FsPlace);
    assert_eq!(refused(&house, "tank/a", "tank/a/b/c"), Code::FsPlace);
    assert_eq!(refused(&house, "tank/a", "tank/young"), Code::FsExists);
    assert_eq!(refused(&house, "tank/a", "tank/no/a"), Code::FsParent);
    assert_eq!(refused(&house, "tank/none", "tank/x"), Code::FsAbsent);
    assert_eq!(
        house.mounted(),
        ["tank", "tank/a", "tank/a/b", "tank/young"],
        "what refuses leaves all as it was"
    );
    // Below a dataset that is younger than itself.
    rename(&house, "tank/a", "tank/young/a", false, false).unwrap();
    let moved = ["tank", "tank/young", "tank/young/a", "tank/young/a/b"];
    assert_eq!(house.mounted(), moved);
    assert_eq!(house.get("tank/young/a/b", "compression"), "zstd");
    assert_eq!(house.get("tank/young/a/b", "atime"), "off");
    house.restart();
    assert_eq!(house.mounted(), moved);
    rename(&house, "tank/young/a/b", "tank/x/y/b", true, false).unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/x", "tank/x/y", "tank/x/y/b", "tank/young", "tank/young/a"]);
    // Mounts that stay are known by the new name.
    rename(&house, "tank/x/y", "tank/z", false, true).unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/x", "tank/x/y", "tank/x/y/b", "tank/young", "tank/young/a"]);
    let unmount = FsUnmount { name: "tank/z/b".into(), force: false };
    house.host().call(&caller(), unmount).unwrap();
    assert_eq!(house.get("tank/z", "mounted"), "yes");
    house.export("tank", false).unwrap();
    house.import("tank", None).unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/x", "tank/young", "tank/young/a", "tank/z", "tank/z/b"]);
}

#[test]
fn a_key_is_changed_and_those_who_inherit_it_follow() {
    let mut house = House::new("change-key");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let on = [("encryption", "on"), ("keyformat", "passphrase")];
    house.create_fs("tank/p", &on, Some(passphrase("12345678"))).unwrap();
    house.create_fs("tank/p/c", &[], None).unwrap();
    house.create_fs("tank/p/c/d", &[], None).unwrap();
    let change = |house: &House, name: &str, key: Option<Key>| {
        let request = FsChangeKey { name: name.into(), key, location: None };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };
    let load = |house: &House, name: &str, text: &str| {
        let request = FsLoadKey { name: name.into(), key: passphrase(text), dry_run: false };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };
    assert_eq!(change(&house, "tank", Some(passphrase("87654321"))), Err(Code::KeyNone));
    assert_eq!(change(&house, "tank/p", None), Err(Code::KeyRules), "there is no key above");
    assert_eq!(change(&house, "tank/p/c", None), Err(Code::KeyInherited));
    change(&house, "tank/p", Some(passphrase("87654321"))).unwrap();
    house.restart();
    assert_eq!(change(&house, "tank/p", Some(passphrase("12345678"))), Err(Code::KeyNeeded));
    assert_eq!(load(&house, "tank/p", "12345678"), Err(Code::KeyWrong));
    load(&house, "tank/p", "87654321").unwrap();
    assert_eq!(house.get("tank/p/c/d", "keystatus"), "available");
    // A child with a key of its own; what is below it follows.
    change(&house, "tank/p/c", Some(passphrase("abcdefgh"))).unwrap();
    assert_eq!(house.get("tank/p/c/d", "encryptionroot"), "tank/p/c");
    house.restart();
    load(&house, "tank/p", "87654321").unwrap();
    assert_eq!(house.get("tank/p/c", "keystatus"), "unavailable");
    load(&house, "tank/p/c", "abcdefgh").unwrap();
    // It goes away with its key, and what it left behind outlives the dataset it was made under.
    let rename = |house: &House, name: &str, to: &str| {
        let (name, to) = (name.to_owned(), to.to_owned());
        let request = FsRename { name, to, parents: false, force: false, no_remount: false };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };
    assert_eq!(rename(&house, "tank/p/c/d", "tank/d"), Err(Code::FsPlace), "its key stays behind");
    rename(&house, "tank/p/c", "tank/c").unwrap();
    let destroy =
        FsDestroy { name: "tank/p".into(), recursive: false, clones: false, force: false, dry_run: false };
    house.host().call(&caller(), destroy).unwrap();
    house.host().call(&caller(), PoolSync::default()).unwrap();
    house.restart();
    load(&house, "tank/c", "abcdefgh").unwrap();
    let mount = |name: &str| FsMount { name: name.into(), at: None, options: Vec::new(), overlay: false };
    house.host().call(&caller(), mount("tank/c")).unwrap();
    house.host().call(&caller(), mount("tank/c/d")).unwrap();
    // And back below an encrypted one, to take that one's key.
    house.create_fs("tank/q", &on, Some(passphrase("qqqqqqqq"))).unwrap();
    rename(&house, "tank/c", "tank/q/c").unwrap();
    change(&house, "tank/q/c", None).unwrap();
    assert_eq!(house.get("tank/q/c/d", "encryptionroot"), "tank/q");
    house.restart();
    load(&house, "tank/q", "qqqqqqqq").unwrap();
    assert_eq!(house.get("tank/q/c/d", "keystatus"), "available");
}

#[test]
fn a_sealed_pools_key_is_changed_too() {
    let mut house = House::new("change-seal");
    let mut request = house.create_request("seal", "a.img");
    request.fs_properties =
        Properties::from([("encryption".into(), "on".into()), ("keyformat".into(), "passphrase".into())]);
    request.key = Some(passphrase("12345678"));
    house.create_pool(request).unwrap();
    let change = FsChangeKey { name: "seal".into(), key: Some(passphrase("87654321")), location: None };
    house.host().call(&caller(), change).unwrap();
    house.restart();
    assert_eq!(house.import("seal", Some(passphrase("12345678"))).unwrap_err().code, Code::KeyWrong);
    house.import("seal", Some(passphrase("87654321"))).unwrap();
    assert_eq!(house.mounted(), ["seal"]);
}

#[test]
fn counters_and_events_tell_what_was_done() {
    let house = House::new("counters");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let look = || house.host().call(&caller(), PoolIostat::default()).unwrap().remove(0);
    let before = look();
    house.create_fs("tank/a", &[], None).unwrap();
    let after = look();
    let (old, new) = (&before.devices[0], &after.devices[0]);
    assert!(after.age_ns > before.age_ns);
    assert!(new.write.calls > old.write.calls && new.write.bytes > old.write.bytes);
    assert!(new.flush.calls >= old.flush.calls + 3, "a commit flushes three times");
    for count in [&new.read, &new.write, &new.flush, &new.trim] {
        assert_eq!(count.histogram.iter().sum::<u64>(), count.calls);
    }
    house.set("tank/a", "compression", "lz4").unwrap();
    house.export("tank", false).unwrap();
    house.import("tank", None).unwrap();
    let told = classes(&house);
    for class in ["pool_create", "history_event", "property_change", "pool_export", "pool_import"] {
        let class = format!("sysevent.fs.steadfast.{class}");
        assert!(told.contains(&class), "{class} is not among {told:?}");
    }
    let of = |name: &str| {
        let request = PoolEvents { name: Some(name.into()), after: 0 };
        house.host().call(&caller(), request).map(|events| events.len()).map_err(|refusal| refusal.code)
    };
    assert_eq!(of("tank"), Ok(told.len()));
    assert_eq!(of("pond"), Err(Code::PoolAbsent));
    let gone = house.host().call(&caller(), PoolEventsClear {}).unwrap();
    assert_eq!(gone.touched.len(), told.len());
    assert!(classes(&house).is_empty());
}

#[test]
fn who_waits_is_answered_when_it_is_over() {
    let house = House::new("waits");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let ask = |name: &str, until_over: &[&str]| {
        let until_over = until_over.iter().map(|name| (*name).to_owned()).collect();
        // Longer than anybody has to wait for one answer.
        let request = PoolActivities { name: name.into(), until_over, patience_ms: u64::MAX };
        house.host().call(&caller(), request)
    };
    let now = ask("tank", &["scrub", "resilver", "trim", "no such thing"]).unwrap();
    let left = ["scrub", "resilver", "trim", "no such thing"].map(|name| now.left(name));
    assert_eq!(left, [0; 4], "nothing goes on");
    let scrub = PoolScrub { name: "tank".into(), command: ScrubCommand::Start };
    house.host().call(&caller(), scrub).unwrap();
    while ask("tank", &["scrub"]).unwrap().left("scrub") > 0 {}
    let report = house.host().call(&caller(), PoolStatus::default()).unwrap().remove(0);
    assert_eq!(report.scan.map(|scan| scan.state), Some("finished".to_owned()));
    assert_eq!(ask("pond", &["scrub"]).map_err(|refusal| refusal.code), Err(Code::PoolAbsent));
}

#[test]
fn a_verb_that_changes_snapshots_is_answered_when_the_mounts_know() {
    let house = House::new("notes");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    for name in ["tank/a", "tank/a/b", "tank/ab"] {
        house.create_fs(name, &[], None).unwrap();
    }
    let touched = |house: &House| {
        let base = house.folder.join("home/steadfast");
        let take = |list: &Mutex<Vec<PathBuf>>| std::mem::take(&mut *list.lock().unwrap());
        let (noted, told) = (take(&house.stage.noted), take(&house.stage.told));
        assert_eq!(noted, told, "each that was told is waited for");
        noted.iter().map(|at| at.strip_prefix(&base).unwrap().display().to_string()).collect::<Vec<_>>()
    };
    let snapshot = |name: &str, recursive| FsSnapshot {
        names: vec![name.into()],
        recursive,
        properties: Properties::new(),
    };
    house.host().call(&caller(), snapshot("tank/a@one", true)).unwrap();
    assert_eq!(touched(&house), ["tank/a", "tank/a/b"], "each once, and no other");
    house.host().call(&caller(), snapshot("tank/a/b@two", false)).unwrap();
    assert_eq!(touched(&house), ["tank/a/b"]);
    house.set("tank", "snapdir", "visible").unwrap();
    assert_eq!(touched(&house), ["tank", "tank/a", "tank/a/b", "tank/ab"]);

    // A deferred destruction happens with the last hold, and with the last clone.
    let destroy_later = |name: &str, snapshots: &str| FsSnapshotDestroy {
        name: name.into(),
        snapshots: snapshots.into(),
        recursive: false,
        clones: false,
        force: false,
        defer: true,
        dry_run: false,
    };
    let hold = |release| FsHold {
        names: vec!["tank/a/b@two".into()],
        tag: "keep".into(),
        recursive: false,
        release,
    };
    house.host().call(&caller(), hold(false)).unwrap();
    house.host().call(&caller(), destroy_later("tank/a/b", "two")).unwrap();
    assert_eq!(touched(&house), ["tank/a/b"]);
    house.host().call(&caller(), hold(true)).unwrap();
    assert_eq!(touched(&house), ["tank/a/b"], "it went with its last tag");
    house.host().call(&caller(), snapshot("tank/ab@of", false)).unwrap();
    let clone = FsClone {
        snapshot: "tank/ab@of".into(),
        name: "tank/c".into(),
        parents: false,
        no_mount: true,
        properties: Properties::new(),
    };
    house.host().call(&caller(), clone).unwrap();
    house.host().call(&caller(), destroy_later("tank/ab", "of")).unwrap();
    touched(&house);
    let destroy =
        FsDestroy { name: "tank/c".into(), recursive: false, clones: false, force: false, dry_run: false };
    house.host().call(&caller(), destroy).unwrap();
    assert_eq!(touched(&house), ["tank/ab"], "it went with its last clone");
}

#[test]
fn what_is_refused_destroys_nothing_and_leaves_mounted_what_was() {
    let house = House::new("all-or-none");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    for name in ["tank/a@one", "tank/a@two"] {
        let request =
            FsSnapshot { names: vec![name.into()], recursive: false, properties: Properties::new() };
        house.host().call(&caller(), request).unwrap();
    }
    for name in ["tank/c", "tank/d"] {
        let request = FsClone {
            snapshot: "tank/a@two".into(),
            name: name.into(),
            parents: false,
            no_mount: false,
            properties: Properties::new(),
        };
        house.host().call(&caller(), request).unwrap();
    }
    // One is not where its mountpoint says.
    house.host().call(&caller(), FsUnmount { name: "tank/d".into(), force: false }).unwrap();
    let at = Some(house.folder.join("elsewhere"));
    let request = FsMount { name: "tank/d".into(), at, options: Vec::new(), overlay: false };
    house.host().call(&caller(), request).unwrap();
    let before = house.mounted();
    assert_eq!(before.len(), 4);
    let busy = |name: Option<&str>| {
        let base = house.folder.join("home/steadfast");
        *house.stage.busy.lock().unwrap() = name.map(|name| base.join(name)).into_iter().collect();
    };
    let hold = |release| {
        let request =
            FsHold { names: vec!["tank/a@two".into()], tag: "keep".into(), recursive: false, release };
        house.host().call(&caller(), request).unwrap();
    };
    let roll_back = || {
        let name = "tank/a@one".into();
        let request = FsRollback { name, destroy_younger: true, clones: true, force: false };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };

    // The last of them that would be left is busy.
    busy(Some("tank/c"));
    let request =
        FsDestroy { name: "tank/a".into(), recursive: true, clones: true, force: false, dry_run: false };
    assert_eq!(house.host().call(&caller(), request).unwrap_err().code, Code::FsBusy);
    assert_eq!(house.mounted(), before);
    busy(Some("tank/a"));
    assert_eq!(roll_back(), Err(Code::FsBusy));
    assert_eq!(house.mounted(), before);
    // Something keeps the snapshot that they are clones of.
    busy(None);
    hold(false);
    assert_eq!(roll_back(), Err(Code::SnapshotHeld));
    let request = FsSnapshotDestroy {
        name: "tank/a".into(),
        snapshots: "two".into(),
        recursive: false,
        clones: true,
        force: false,
        defer: false,
        dry_run: false,
    };
    assert_eq!(house.host().call(&caller(), request).unwrap_err().code, Code::SnapshotHeld);
    assert_eq!(house.mounted(), before);
    hold(true);
    assert_eq!(roll_back(), Ok(()));
    assert_eq!(house.mounted(), ["tank", "tank/a"]);
}

#[test]
fn what_went_with_its_last_clone_is_not_missed() {
    let house = House::new("deferred");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    let snapshot = |name: &str| {
        let request =
            FsSnapshot { names: vec![name.into()], recursive: false, properties: Properties::new() };
        house.host().call(&caller(), request).unwrap();
    };
    let destroy = |defer: bool| {
        let request = FsSnapshotDestroy {
            name: "tank/a".into(),
            snapshots: "two".into(),
            recursive: false,
            clones: !defer,
            force: false,
            defer,
            dry_run: false,
        };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.what)
    };
    snapshot("tank/a@one");
    for rolls_back in [false, true] {
        snapshot("tank/a@two");
        let clone = FsClone {
            snapshot: "tank/a@two".into(),
            name: "tank/c".into(),
            parents: false,
            no_mount: false,
            properties: Properties::new(),
        };
        house.host().call(&caller(), clone).unwrap();
        assert_eq!(destroy(true), Ok(()), "it goes with its clone");
        if rolls_back {
            let name = "tank/a@one".into();
            let request = FsRollback { name, destroy_younger: true, clones: true, force: false };
            house.host().call(&caller(), request).unwrap();
        } else {
            assert_eq!(destroy(false), Ok(()));
        }
        assert_eq!(house.mounted(), ["tank", "tank/a"]);
        assert_eq!(house.get("tank/a", "snapshot_count"), "1");
    }
}

#[test]
fn parents_that_were_made_for_what_is_refused_go_again() {
    let house = House::new("parents");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    let request =
        FsSnapshot { names: vec!["tank/a@one".into()], recursive: false, properties: Properties::new() };
    house.host().call(&caller(), request).unwrap();
    // Room for the parent, and for nothing below it.
    house.set("tank", "filesystem_limit", "2").unwrap();
    let create = FsCreate {
        name: "tank/x/y".into(),
        parents: true,
        no_mount: false,
        dry_run: false,
        properties: Properties::new(),
        key: None,
        volume: None,
    };
    assert_eq!(house.host().call(&caller(), create).unwrap_err().code, Code::PropCount);
    let clone = FsClone {
        snapshot: "tank/a@one".into(),
        name: "tank/x/y".into(),
        parents: true,
        no_mount: false,
        properties: Properties::new(),
    };
    assert_eq!(house.host().call(&caller(), clone).unwrap_err().code, Code::PropCount);
    let listed = house.host().call(&caller(), FsList { names: vec!["tank".into()], depth: None }).unwrap();
    let names: Vec<&str> = listed.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["tank", "tank/a"]);
    assert_eq!(house.mounted(), ["tank", "tank/a"]);
}

#[test]
fn a_policy_takes_snapshots_and_removes_old_ones() {
    /// Sunday, 22 November 2026, 14:38:20 UTC.
    const NOW: u64 = 1_795_358_300;
    let real = Env::real();
    let clock = Arc::new(Shown { real: Arc::clone(&real.clock), wall_seconds: AtomicU64::new(NOW) });
    let shown: Arc<dyn Clock> = Arc::<Shown>::clone(&clock);
    let mut house = House::within(Env { clock: shown, ..real }, "policy");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    house.create_fs("tank/b", &[("steadfast:auto-snapshot", "off")], None).unwrap();
    house
        .create_fs(
            "tank/sealed",
            &[("encryption", "on"), ("keyformat", "passphrase")],
            Some(passphrase("correct horse")),
        )
        .unwrap();
    let policy = "steadfast:auto-snapshot";
    let there = |house: &House, name: &str| -> Vec<String> {
        let request = FsListAll {
            names: vec![name.into()],
            depth: Some(0),
            filesystems: false,
            snapshots: true,
            bookmarks: false,
            wanted: Vec::new(),
        };
        let listed = house.host().call(&caller(), request).unwrap();
        listed.iter().map(|info| info.name.split_once('@').unwrap().1.to_owned()).collect()
    };
    let look_at = |house: &House, seconds: u64| {
        clock.wall_seconds.store(seconds, Ordering::SeqCst);
        house.host().snapshot_by_policy();
    };
    let snapshot = |house: &House, name: &str| {
        let request =
            FsSnapshot { names: vec![name.into()], recursive: false, properties: Properties::new() };
        house.host().call(&caller(), request).unwrap();
    };
    assert_eq!(house.set("tank", policy, "hourly").unwrap_err().code, Code::PropValue);
    look_at(&house, NOW);
    assert!(there(&house, "tank").is_empty(), "without a policy nothing is taken");

    house.set("tank", policy, "hourly=2,daily=1").unwrap();
    snapshot(&house, "tank@mine");
    snapshot(&house, "tank@auto-hourly-of-mine");
    look_at(&house, NOW + 60);
    let first = ["auto-hourly-2026-11-22_14:00", "auto-daily-2026-11-22"];
    assert_eq!(there(&house, "tank/a"), first);
    assert_eq!(there(&house, "tank/sealed"), first);
    assert!(there(&house, "tank/b").is_empty());
    assert_eq!(there(&house, "tank").len(), 4);
    let list = FsListAll {
        names: vec!["tank".into()],
        depth: None,
        filesystems: false,
        snapshots: true,
        bookmarks: false,
        wanted: vec!["createtxg".into()],
    };
    let txgs: Vec<u64> = house
        .host()
        .call(&caller(), list)
        .unwrap()
        .iter()
        .filter(|info| info.name.contains("_14:00"))
        .map(|info| info.createtxg)
        .collect();
    assert!(txgs.len() == 3 && txgs.iter().all(|txg| *txg == txgs[0]), "one commit for all: {txgs:?}");

    // Within the hour nothing more, not even what a user destroyed.
    let destroy = FsSnapshotDestroy {
        name: "tank/a".into(),
        snapshots: first[0].into(),
        recursive: false,
        clones: false,
        force: false,
        dry_run: false,
        defer: false,
    };
    house.host().call(&caller(), destroy).unwrap();
    look_at(&house, NOW + 120);
    assert_eq!(there(&house, "tank/a"), first[1..]);

    // A day on, and what is held stays beyond the count.
    let hold = FsHold {
        names: vec![format!("tank@{}", first[0])],
        tag: "keep".into(),
        recursive: false,
        release: false,
    };
    house.host().call(&caller(), hold).unwrap();
    for hour in 1..=24 {
        look_at(&house, NOW + hour * 3_600);
    }
    let kept = ["auto-hourly-2026-11-23_13:00", "auto-hourly-2026-11-23_14:00", "auto-daily-2026-11-23"];
    let sorted = |house: &House, name: &str| {
        let mut names = there(house, name);
        names.sort();
        names
    };
    let mut expected = kept.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(sorted(&house, "tank/a"), expected);
    expected.extend(["mine", "auto-hourly-of-mine", first[0]].map(str::to_owned));
    expected.sort();
    assert_eq!(sorted(&house, "tank"), expected, "users' own and what is held stay");

    // A daemon that was away takes one for the hour it comes back in; a clock that was set back,
    // one for the hour it shows.
    house.restart();
    look_at(&house, NOW + 30 * 3_600);
    assert!(there(&house, "tank/a").contains(&"auto-hourly-2026-11-23_20:00".to_owned()));
    look_at(&house, NOW - 300 * 3_600);
    assert!(there(&house, "tank/a").contains(&"auto-hourly-2026-11-10_02:00".to_owned()));
    assert_eq!(there(&house, "tank/a").iter().filter(|name| name.starts_with("auto-hourly")).count(), 2);

    // A smaller count counts at once; without a policy everything stays as it is.
    house.set("tank", policy, "hourly=0").unwrap();
    look_at(&house, NOW - 299 * 3_600);
    assert!(there(&house, "tank/a").iter().all(|name| !name.starts_with("auto-hourly")));
    assert!(there(&house, "tank/a").iter().any(|name| name.starts_with("auto-daily")));
    house.set("tank", policy, "off").unwrap();
    let before = there(&house, "tank/a");
    look_at(&house, NOW - 200 * 3_600);
    assert_eq!(there(&house, "tank/a"), before);
    let past = house.host().call(&caller(), PoolHistory::default()).unwrap();
    assert!(
        past[0]
            .records
            .iter()
            .any(|record| record.internal && record.text.contains("tank/a@auto-hourly-2026-11-23_20:00"))
    );
}

#[test]
fn a_limit_of_snapshots_holds_and_keeps_nobody_else_from_its_own() {
    /// Sunday, 22 November 2026, 14:38:20 UTC.
    const NOW: u64 = 1_795_358_300;
    let real = Env::real();
    let clock = Arc::new(Shown { real: Arc::clone(&real.clock), wall_seconds: AtomicU64::new(NOW) });
    let shown: Arc<dyn Clock> = Arc::<Shown>::clone(&clock);
    let house = House::within(Env { clock: shown, ..real }, "limits");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[("snapshot_limit", "1")], None).unwrap();
    house.create_fs("tank/a/below", &[], None).unwrap();
    house.create_fs("tank/b", &[("steadfast:auto-snapshot", "hourly=1")], None).unwrap();
    house.set("tank/a", "steadfast:auto-snapshot", "hourly=1").unwrap();
    let count = |name: &str| house.get(name, "snapshot_count");
    // Two at once are one more than there may be, so there is neither; and the others have theirs.
    house.host().snapshot_by_policy();
    assert_eq!((count("tank/a"), count("tank/b"), count("tank")), ("0".into(), "1".into(), "1".into()));
    // With room for one more than is kept it goes on, in the same hour and in the next.
    house.set("tank/a", "snapshot_limit", "4").unwrap();
    for minutes in [1, 61, 121] {
        clock.wall_seconds.store(NOW + minutes * 60, Ordering::SeqCst);
        house.host().snapshot_by_policy();
        assert_eq!((count("tank/a"), count("tank/b"), count("tank")), ("2".into(), "1".into(), "3".into()));
    }
}

#[test]
fn what_waits_for_a_key_keeps_nobody_else_from_the_snapshots_of_its_policy() {
    /// Sunday, 22 November 2026, 14:38:20 UTC.
    const NOW: u64 = 1_795_358_300;
    // On a clock on which no time passes: nothing is committed that nobody waits for.
    let still = Env::seeded(1).clock;
    let clock = Arc::new(Shown { real: still, wall_seconds: AtomicU64::new(NOW) });
    let shown: Arc<dyn Clock> = Arc::<Shown>::clone(&clock);
    let mut house = House::within(Env { clock: shown, ..Env::real() }, "promised");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.set("tank", "steadfast:auto-snapshot", "hourly=2").unwrap();
    house.set("tank", "journal", "ordered").unwrap();
    house.stage.promises.store(true, Ordering::SeqCst);
    let sealed = [("encryption", "on"), ("keyformat", "passphrase")];
    house.create_fs("tank/sealed", &sealed, Some(passphrase("correct horse"))).unwrap();
    house.stage.promises.store(false, Ordering::SeqCst);
    // A crash, after which the promise waits for the key.
    house.engine = None;
    house.start();
    assert_eq!(house.host().call(&caller(), PoolStatus::default()).unwrap()[0].log.held, 1);
    let count = |house: &House, name: &str| house.get(name, "snapshot_count");
    house.host().snapshot_by_policy();
    assert_eq!((count(&house, "tank"), count(&house, "tank/sealed")), ("1".into(), "0".into()));
    // When it is there the missing one is taken, within the same hour.
    let key = passphrase("correct horse");
    house.host().call(&caller(), FsLoadKey { name: "tank/sealed".into(), key, dry_run: false }).unwrap();
    clock.wall_seconds.store(NOW + 60, Ordering::SeqCst);
    house.host().snapshot_by_policy();
    assert_eq!((count(&house, "tank"), count(&house, "tank/sealed")), ("2".into(), "1".into()));
}
