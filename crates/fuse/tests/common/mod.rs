//! Shared by the mount tests: a file system to mount, a time limit, and a way out of a hang.

pub mod memfs;

use memfs::MemFs;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};
use steadfast_fuse::*;

/// A test that takes longer hangs: its mount is cut, and it fails. Long, since machines may be slow
/// and busy.
pub const LIMIT: Duration = Duration::from_secs(600);

/// No process is being started while the guard lives. A child has copies of all our descriptors
/// until it runs its own program: a file that one test has closed would still be open in the child
/// of another, and its mount busy.
pub fn no_spawns() -> MutexGuard<'static, ()> {
    static SPAWNS: Mutex<()> = Mutex::new(());
    SPAWNS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a process.
pub fn spawn(command: &mut Command) -> io::Result<Child> {
    let _turn = no_spawns();
    command.spawn()
}

/// Runs a process and takes what it prints.
pub fn output(command: &mut Command) -> io::Result<Output> {
    spawn(command.stdout(Stdio::piped()).stderr(Stdio::piped()))?.wait_with_output()
}

/// Runs a process to its end.
pub fn status(command: &mut Command) -> io::Result<ExitStatus> {
    spawn(command)?.wait()
}

/// Unmounts what nobody uses any more.
pub fn unmount(session: &Session) -> Result<(), Error> {
    let _turn = no_spawns();
    session.unmount(UnmountMode::Clean)
}

/// Why this machine cannot mount directly, if it cannot.
pub fn obstacle() -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("the tests are not run as root".into());
    }
    let dir = scratch("probe");
    let outcome = Session::mount(&dir, &options(), Arc::new(MemFs::default()));
    let obstacle = match outcome {
        Ok(session) => unmount(&session).err().map(|e| e.to_string()),
        Err(Error::MountRefused { source, .. }) if source.raw_os_error() == Some(libc::EPERM) => {
            Some("mount(2) is not allowed here".into())
        }
        Err(error @ (Error::DeviceMissing | Error::DeviceRefused { .. })) => Some(error.to_string()),
        Err(error) => panic!("{error}"),
    };
    let _ = fs::remove_dir(&dir);
    obstacle
}

pub fn scratch(name: &str) -> PathBuf {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::SeqCst);
    let dir = std::env::temp_dir().join(format!("steadfast-fuse-{}-{count}-{name}", std::process::id()));
    fs::create_dir(&dir).unwrap();
    fs::canonicalize(dir).unwrap()
}

/// The mount tests run with any switches:
/// `STEADFAST_TEST_FUSE=io_uring=on cargo test -p steadfast-fuse`.
pub fn options() -> MountOptions {
    let mut options = MountOptions::new("memory");
    options.subtype = Some("memfs".into());
    options.set_switches(&std::env::var("STEADFAST_TEST_FUSE").unwrap_or_default()).unwrap();
    options
}

/// A mounted file system with what a test asks about it.
pub struct Bench {
    pub dir: PathBuf,
    pub session: Session,
    pub fs: Arc<MemFs>,
    pub log: Arc<Mutex<Vec<String>>>,
}

/// Mounts, runs `body` on a thread of its own under a time limit, and checks that nothing is left
/// behind.
pub fn mounted(name: &str, body: impl FnOnce(&Bench) + Send + 'static) {
    mounted_with(name, options(), body);
}

pub fn mounted_with(name: &str, options: MountOptions, body: impl FnOnce(&Bench) + Send + 'static) {
    if let Some(why) = obstacle() {
        eprintln!("SKIPPED {name}: {why}");
        return;
    }
    let fs = Arc::new(MemFs::default());
    let (bench, dir) = start(name, options, fs.clone(), fs.clone());
    limited(name, &dir, move || {
        body(&bench);
        unmount(&bench.session).expect("nothing is in use after a test");
        assert_eq!(bench.session.wait(), EndReason::Unmounted);
        assert_eq!(bench.fs.inits.load(Ordering::SeqCst), 1);
        assert_eq!(bench.fs.destroys.load(Ordering::SeqCst), 1);
    });
    fs::remove_dir(&dir).unwrap();
}

pub fn start(
    name: &str,
    mut options: MountOptions,
    fs: Arc<MemFs>,
    handler: Arc<dyn Handler>,
) -> (Bench, PathBuf) {
    let dir = scratch(name);
    let log = Arc::new(Mutex::new(Vec::new()));
    let sink = log.clone();
    options.log = Some(Arc::new(move |event| sink.lock().unwrap().push(event.to_string())));
    let session = Session::mount(&dir, &options, handler).unwrap();
    (Bench { dir: dir.clone(), session, fs, log }, dir)
}

pub fn limited(name: &str, dir: &Path, body: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    if let Err(mpsc::RecvTimeoutError::Timeout) = wait.recv_timeout(LIMIT) {
        cut(dir);
        panic!("{name} hung");
    }
    if let Err(panic) = thread.join() {
        cut(dir);
        std::panic::resume_unwind(panic);
    }
}

pub fn cut(dir: &Path) {
    use rustix::mount::UnmountFlags;
    let _ = rustix::mount::unmount(dir, UnmountFlags::FORCE | UnmountFlags::DETACH);
    let _ = fs::remove_dir(dir);
}

pub fn names(dir: &Path) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_vec()).collect();
    names.sort();
    names
}

pub fn errno<T: std::fmt::Debug>(result: io::Result<T>) -> i32 {
    result.expect_err("an error is expected").raw_os_error().unwrap()
}

pub fn eventually(mut check: impl FnMut() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !check() {
        assert!(Instant::now() < deadline, "this should have become true by now");
        std::thread::sleep(Duration::from_millis(5));
    }
}
