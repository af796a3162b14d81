//! The daemon's life and its socket, with the real engine over image files. Daemons are real
//! processes: this test binary started again. Mounts only pretend, so that no kernel is needed.

use rustix::process::{DumpableBehavior, dumpable_behavior};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use steadfast_control::api::*;
use steadfast_control::client::{Client, EXIT_RUNNING};
use steadfast_control::engine::{Engine, Front, MountSettings, Mounted, UsageOf};
use steadfast_control::runtime::Surroundings;
use steadfast_control::{Code, Key, KeyFormat, Refusal, Runtime, Secret, Service, daemon};
use steadfast_env::Env;
use steadfast_pool::{DatasetHandle, Memory};

const FOLDER: &str = "STEADFAST_TEST_DAEMON_FOLDER";

fn runtime_at(folder: &Path) -> Runtime {
    // As an ordinary user, so that mountpoints lie in the test's own folder.
    let (runtime_dir, home) = (Some(folder.to_owned()), Some(folder.join("home")));
    Runtime::locate(&Surroundings { runtime_dir, home, ..Surroundings::default() }, 12_345)
}

/// The daemon's process: does nothing when run as a test.
#[test]
fn daemon_process() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let runtime = runtime_at(Path::new(&folder));
    let memory = Memory { node_cache_bytes: 8 << 20, block_cache_bytes: 8 << 20, dirty_bytes_max: 16 << 20 };
    let engine = || {
        assert_eq!(dumpable_behavior().ok(), Some(DumpableBehavior::NotDumpable), "others read its keys");
        let engine = Engine::start(Env::real(), runtime.clone(), memory, Arc::new(Pretending))?;
        Ok(Arc::new(engine) as Arc<dyn Service>)
    };
    if let Err(refusal) = daemon::run(&runtime, "0.0.0", true, engine) {
        eprintln!("{refusal}");
        std::process::exit(if refusal.code == Code::DaemonRunning { EXIT_RUNNING } else { 1 });
    }
    std::process::exit(0);
}

/// Mounts that no kernel hears of.
struct Pretending;

/// A mount. A file system whose name ends with `/busy` has open files.
struct PretendedMount {
    source: String,
    ended: AtomicBool,
    _dataset: DatasetHandle,
}

impl Front for Pretending {
    fn mount(
        &self,
        dataset: DatasetHandle,
        _: &Path,
        settings: &MountSettings,
        _: UsageOf,
    ) -> Result<Box<dyn Mounted>, Refusal> {
        let (source, ended) = (settings.source.clone(), AtomicBool::new(false));
        Ok(Box::new(PretendedMount { source, ended, _dataset: dataset }))
    }

    fn may_allow_other(&self) -> bool {
        true
    }

    fn clear_stale(&self, _: &Path) -> bool {
        false
    }
}

impl Mounted for PretendedMount {
    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    fn unmount(&self, force: bool) -> Result<(), Refusal> {
        if !force && self.source.ends_with("/busy") {
            return Err(Refusal::new(Code::FsBusy, "files are open"));
        }
        self.ended.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn remount(&self, _: &MountSettings) -> Result<(), Refusal> {
        Ok(())
    }

    fn collects_writes(&self) -> bool {
        false
    }

    fn settle(&self) -> std::io::Result<()> {
        Ok(())
    }

    fn note_snapshots(&self) {}

    fn await_notes(&self) {}
}

/// A runtime folder that goes with its daemon.
struct Place {
    folder: PathBuf,
}

impl Place {
    fn new(name: &str) -> Place {
        let folder = std::env::temp_dir().join(format!("steadfast-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        Place { folder }
    }

    fn runtime(&self) -> Runtime {
        runtime_at(&self.folder)
    }

    fn start(&self) -> std::io::Result<Child> {
        let log = self.runtime().open_log().map_err(std::io::Error::other)?;
        Command::new(std::env::current_exe()?)
            .args(["--exact", "daemon::daemon_process", "--nocapture"])
            .env(FOLDER, &self.folder)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
    }

    /// Starts a daemon and waits until it listens, so that no other can be faster.
    fn started(&self) -> Child {
        self.runtime().prepare().unwrap();
        let mut child = self.start().unwrap();
        while Client::connect(&self.runtime(), "wait").is_err() {
            assert!(child.try_wait().unwrap().is_none(), "the daemon ended before it listened");
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    fn client(&self) -> Client {
        Client::connect_or_start(&self.runtime(), "zpool test", || self.start()).unwrap()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Ok(client) = Client::connect(&self.runtime(), "stop") {
            let _ = client.stop(true);
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn create(folder: &Path, name: &str) -> PoolCreate {
    let image = folder.join(format!("{name}.img"));
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    PoolCreate {
        name: name.into(),
        vdevs: vec![VdevSpec { class: VdevClass::Main, kind: VdevKind::Plain, devices: vec![image] }],
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

fn properties(pairs: &[(&str, &str)]) -> Properties {
    pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
}

#[test]
fn a_request_makes_the_round_trip_through_a_daemon_started_for_it() {
    let place = Place::new("roundtrip");
    let mut client = place.client();
    let outcome = client.call(create(&place.folder, "tank")).unwrap();
    assert_eq!(outcome.touched, ["tank"]);
    let pools = client.call(PoolList::default()).unwrap();
    let status = client.call(PoolStatus::default()).unwrap();
    assert_eq!((pools.len(), pools[0].name.as_str(), pools[0].guid), (1, "tank", status[0].guid));
    assert!(pools[0].guid != 0, "a number of 64 bits survives the wire");
    let refusal = client.call(create(&place.folder, "tank")).unwrap_err();
    assert_eq!((refusal.code, refusal.fields["pool"].as_str()), (Code::PoolExists, "tank"));
    let info = client.call(DaemonInfo {}).unwrap();
    assert_eq!((info.pools, info.api_version), (vec!["tank".to_owned()], API_VERSION));
    let socket = std::fs::metadata(place.runtime().socket()).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::metadata(&place.folder).unwrap().permissions().mode() & 0o777, 0o700);
}

#[test]
fn two_daemons_started_at_once_leave_one() {
    let place = Place::new("race");
    let pids: Vec<u32> = std::thread::scope(|scope| {
        let ask = || place.client().call(DaemonInfo {}).unwrap().pid;
        let clients: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    assert!(pids.iter().all(|pid| *pid == pids[0]), "{pids:?}");
    let mut second = place.start().unwrap();
    assert_eq!(second.wait().unwrap().code(), Some(EXIT_RUNNING));
    assert_eq!(place.client().call(DaemonInfo {}).unwrap().pid, pids[0]);
}

#[test]
fn a_socket_left_by_a_killed_daemon_is_no_obstacle() {
    let place = Place::new("stale");
    let mut first = place.started();
    let pid = place.client().call(DaemonInfo {}).unwrap().pid;
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(place.runtime().socket().exists());
    assert_eq!(Client::connect(&place.runtime(), "x").unwrap_err().code, Code::DaemonAbsent);
    assert_ne!(place.client().call(DaemonInfo {}).unwrap().pid, pid);
}

#[test]
fn a_daemon_that_cannot_start_says_why() {
    let place = Place::new("nostart");
    let start = || Command::new("sh").args(["-c", "exit 1"]).spawn();
    let refusal = Client::connect_or_start(&place.runtime(), "x", start).unwrap_err();
    assert_eq!(refusal.code, Code::DaemonStart);
    assert!(refusal.advice().contains("daemon.log"), "{}", refusal.advice());
}

#[test]
fn stop_waits_until_the_process_is_gone_and_a_signal_does_the_same() {
    let place = Place::new("stop");
    let mut first = place.started();
    place.client().stop(false).unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
    assert!(!place.runtime().socket().exists());

    let mut second = place.started();
    let signalled = Command::new("kill").args(["-TERM", &second.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let status = second.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(!place.runtime().socket().exists());
}

#[test]
fn a_daemon_that_was_asked_to_end_does_so_whoever_listens() {
    let place = Place::new("unheard");
    let mut daemon = place.started();
    let mut stream = UnixStream::connect(place.runtime().socket()).unwrap();
    // From now on whatever is sent here cannot be.
    stream.shutdown(std::net::Shutdown::Read).unwrap();
    let question = format!(
        r#"{{"version":{API_VERSION},"id":1,"command":"x","call":{{"verb":"daemon_stop","args":{{"force":false}}}}}}"#
    );
    writeln!(stream, "{question}").unwrap();
    let begun = Instant::now();
    let ended = loop {
        match daemon.try_wait().unwrap() {
            None if begun.elapsed() < Duration::from_secs(300) => {
                std::thread::sleep(Duration::from_millis(5))
            }
            ended => break ended,
        }
    };
    assert_eq!(ended.expect("it exported everything, and serves nobody").code(), Some(0));
    assert!(!place.runtime().socket().exists());
}

#[test]
fn a_daemon_with_open_files_stops_only_by_force() {
    let place = Place::new("busy");
    let mut client = place.client();
    client.call(create(&place.folder, "tank")).unwrap();
    let busy = FsCreate {
        name: "tank/busy".into(),
        parents: false,
        no_mount: false,
        dry_run: false,
        properties: Properties::new(),
        key: None,
        volume: None,
    };
    client.call(busy).unwrap();
    assert_eq!(place.client().stop(false).unwrap_err().code, Code::PoolBusy);
    assert_eq!(client.call(PoolList::default()).unwrap().len(), 1);
    place.client().stop(true).unwrap();
}

/// Sends raw bytes and returns the first line of the answer.
fn raw(place: &Place, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(place.runtime().socket()).unwrap();
    stream.write_all(bytes).unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).unwrap();
    line
}

#[test]
fn garbage_gets_a_sentence() {
    let place = Place::new("garbage");
    drop(place.client());
    assert!(raw(&place, b"{\"version\":99,\"x\":1}\n").contains("API-VERSION"));
    assert!(raw(&place, b"hello\n").contains("API-REQUEST"));
    let ours = steadfast_control::api::API_VERSION;
    assert!(raw(&place, format!("{{\"version\":{ours}}}\n").as_bytes()).contains("API-REQUEST"));
    let rest = r#""id":1,"command":"x","call":{"verb":"warp","args":{}}}"#;
    let unknown = format!("{{\"version\":{ours},{rest}\n");
    assert!(raw(&place, unknown.as_bytes()).contains("API-REQUEST"));
    // No answer is owed to bytes that are no line; what counts is that the daemon lives on.
    for bytes in [&b"\xff\xfe\n"[..], b"no end", b"", &vec![b'['; 2 << 20]] {
        let mut stream = UnixStream::connect(place.runtime().socket()).unwrap();
        let _ = stream.write_all(bytes);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
    }
    // Deep nesting must not exhaust the stack.
    let mut deep = format!("{{\"version\":{ours},\"call\":").into_bytes();
    deep.extend(vec![b'['; 200_000]);
    deep.push(b'\n');
    assert!(raw(&place, &deep).contains("API-REQUEST"));
    place.client().call(DaemonInfo {}).unwrap();
}

#[test]
fn secrets_are_nowhere_to_be_read() {
    let place = Place::new("secrets");
    let mut client = place.client();
    let key = |text: &str| Key { format: KeyFormat::Passphrase, secret: Secret::new(text.into()) };
    let mut request = create(&place.folder, "tank");
    request.fs_properties = properties(&[("encryption", "on"), ("keyformat", "passphrase")]);
    request.key = Some(key("correct-horse-battery"));
    assert!(!format!("{request:?}").contains("horse"));
    client.call(request).unwrap();
    let load = |text: &str, name: &str| FsLoadKey { name: name.into(), key: key(text), dry_run: false };
    client.call(FsUnmount { name: "tank".into(), force: false }).unwrap();
    client.call(FsUnloadKey { name: "tank".into() }).unwrap();
    let mut spoken = Vec::new();
    spoken.push(format!("{:?}", client.call(load("wrong-horse-battery", "tank")).unwrap_err()));
    client.call(load("correct-horse-battery", "tank")).unwrap();
    spoken.push(format!("{:?}", client.call(load("short", "tank")).unwrap_err()));
    spoken.push(format!("{:?}", client.call(load("horse-without-name", "tank@")).unwrap_err()));
    spoken.push(format!("{:?}", client.call(PoolHistory::default()).unwrap()));
    spoken.push(format!("{:?}", client.call(FsList::default()).unwrap()));
    drop(client);
    place.client().stop(true).unwrap();
    spoken.push(std::fs::read_to_string(place.runtime().log()).unwrap());
    let hex: String = "horse".bytes().map(|b| format!("{b:02x}")).collect();
    for text in spoken {
        assert!(!text.contains("horse") && !text.contains(&hex), "{text}");
    }
}

fn refused(request: Request) -> Refusal {
    steadfast_control::engine::check(request).unwrap_err()
}

#[test]
fn bad_words_are_refused_before_a_pool_hears_of_them() {
    let place = Place::new("words");
    std::fs::create_dir(&place.folder).unwrap();
    let with = |change: &dyn Fn(&mut PoolCreate)| {
        let mut request = create(&place.folder, "check");
        std::fs::remove_file(place.folder.join("check.img")).unwrap();
        change(&mut request);
        refused(Request::PoolCreate(request)).code
    };
    assert_eq!(with(&|r| r.name = "mirror1".into()), Code::NameInvalid);
    let parity_mirror =
        |r: &mut PoolCreate| (r.vdevs[0].class, r.vdevs[0].kind) = (VdevClass::Parity, VdevKind::Mirror);
    assert_eq!(with(&parity_mirror), Code::Later);
    let cache_mirror =
        |r: &mut PoolCreate| (r.vdevs[0].class, r.vdevs[0].kind) = (VdevClass::Cache, VdevKind::Mirror);
    assert_eq!(with(&cache_mirror), Code::Later);
    let log_mirror =
        |r: &mut PoolCreate| (r.vdevs[0].class, r.vdevs[0].kind) = (VdevClass::Log, VdevKind::Mirror);
    assert_eq!(with(&log_mirror), Code::VdevGroup, "of one");
    let log_raidz =
        |r: &mut PoolCreate| (r.vdevs[0].class, r.vdevs[0].kind) = (VdevClass::Log, VdevKind::Raidz1);
    assert_eq!(with(&log_raidz), Code::VdevLog);
    // A log, a cache, a parity or an anchor alone holds no data.
    assert_eq!(with(&|r| r.vdevs[0].class = VdevClass::Cache), Code::VdevMissing);
    assert_eq!(with(&|r| r.vdevs[0].class = VdevClass::Parity), Code::VdevMissing);
    assert_eq!(with(&|r| r.vdevs[0].class = VdevClass::Log), Code::VdevMissing);
    let logs_alone = |r: &mut PoolCreate| {
        log_mirror(r);
        r.vdevs[0].devices.push(place.folder.join("other.img"));
    };
    assert_eq!(with(&logs_alone), Code::VdevMissing);
    assert_eq!(with(&|r| r.vdevs[0].class = VdevClass::Anchor), Code::VdevMissing);
    assert_eq!(with(&|r| r.vdevs[0].devices = vec!["disk.img".into()]), Code::ApiRequest);
    assert_eq!(with(&|r| r.vdevs.push(r.vdevs[0].clone())), Code::VdevTwice);
    assert_eq!(with(&|r| r.vdevs.clear()), Code::VdevMissing);
    assert_eq!(with(&|r| r.properties = properties(&[("ashift", "20")])), Code::PropValue);
    assert_eq!(with(&|r| r.properties = properties(&[("size", "1")])), Code::PropReadonly);
    assert_eq!(with(&|r| r.properties = properties(&[("colour", "red")])), Code::PropUnknown);
    assert_eq!(with(&|r| r.fs_properties = properties(&[("acltype", "nfsv4")])), Code::PropElsewhere);
    assert_eq!(
        with(&|r| r.fs_properties = properties(&[("compress", "on"), ("compression", "off")])),
        Code::PropValue
    );
    assert_eq!(with(&|r| r.mountpoint = Some("relative".into())), Code::PropValue);
    assert_eq!(with(&|r| r.fs_properties = properties(&[("keyformat", "raw")])), Code::KeyRules);
    let key = Some(Key { format: KeyFormat::Passphrase, secret: Secret::new(b"12345678".to_vec()) });
    assert_eq!(with(&|r| r.key = key.clone()), Code::KeyRules);
    let set = |text: (&str, &str)| {
        refused(Request::FsSet(FsSet {
            name: "tank".into(),
            properties: properties(&[text]),
            no_mount: false,
        }))
        .code
    };
    assert_eq!(set(("encryption", "on")), Code::PropCreation);
    assert_eq!(set(("mounted", "yes")), Code::PropReadonly);
    let inherit = |property: &str| {
        let request =
            FsInherit { name: "tank".into(), property: property.into(), recursive: false, received: false };
        refused(Request::FsInherit(request)).code
    };
    assert_eq!(inherit("used"), Code::PropReadonly);
    assert_eq!(inherit("keyformat"), Code::PropCreation);
    assert_eq!(inherit("compresion"), Code::PropUnknown);
}
