//! How mounts begin, end, are told to forget, and survive their handlers. Where this machine cannot
//! mount, the tests say so and pass.

use crate::common::memfs::MemFs;
use crate::common::*;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use steadfast_fuse::*;

#[test]
fn the_mount_is_shown_by_its_name_type_and_numbers() {
    let mut wish = options();
    wish.read_ahead_kb = Some(1024);
    mounted_with("shown", wish, |b| {
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        let line = table.lines().find(|l| l.contains(b.dir.to_str().unwrap())).unwrap().to_owned();
        assert!(line.starts_with("memory "), "{line}");
        assert!(line.contains(" fuse.memfs rw,nosuid,nodev,"), "{line}");
        assert!(line.contains("default_permissions"), "{line}");
        let df = rustix::fs::statvfs(&b.dir).unwrap();
        assert_eq!((df.f_blocks, df.f_bfree, df.f_bavail), (1 << 18, 1 << 17, 1 << 16));
        assert_eq!((df.f_frsize, df.f_namemax), (4096, 255));
        assert!(b.session.negotiated().minor >= 31);
        let dev = fs::metadata(&b.dir).unwrap().dev();
        let bdi =
            format!("/sys/class/bdi/{}:{}/read_ahead_kb", rustix::fs::major(dev), rustix::fs::minor(dev));
        if let Ok(kb) = fs::read_to_string(bdi) {
            assert_eq!(kb.trim(), "1024", "{:?}", b.log.lock().unwrap());
        }
    });
}

#[test]
fn unmounting_while_a_file_is_open_is_refused_then_lazy_then_over() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED: {why}");
    }
    let fs = Arc::new(MemFs::default());
    let (b, dir) = start("busy", options(), fs.clone(), fs);
    limited("busy", &dir.clone(), move || {
        let mut file = File::create(b.dir.join("a")).unwrap();
        let busy = b.session.unmount(UnmountMode::Clean).unwrap_err();
        assert!(matches!(busy, Error::Busy { .. }), "{busy}");
        b.session.unmount(UnmountMode::Lazy).unwrap();
        assert!(!b.dir.join("a").exists(), "the name is gone at once");
        file.write_all(b"still served").unwrap();
        assert_eq!(file.metadata().unwrap().len(), 12);
        assert!(!b.session.has_ended());
        drop(file);
        assert_eq!(b.session.wait_timeout(LIMIT), Some(EndReason::Unmounted));
        assert_eq!(b.fs.destroys.load(Ordering::SeqCst), 1);
        b.session.unmount(UnmountMode::Clean).expect("nothing left to do");
    });
    fs::remove_dir(dir).unwrap();
}

/// A process with a mount namespace of its own, which has copies of all mounts; `script` runs there
/// first, with the mount as `$0`. `None` where such namespaces are not allowed.
fn elsewhere(dir: &Path, script: &str) -> Option<std::process::Child> {
    let (flag, ready) = (dir.with_extension("ready"), format!("{script}; : > \"$1\"; exec sleep 1000"));
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &ready]).arg(dir).arg(&flag);
    let mut child = spawn(&mut command).unwrap();
    eventually(|| flag.exists() || child.try_wait().unwrap().is_some());
    let works = flag.exists();
    let _ = fs::remove_file(flag);
    works.then_some(child)
}

fn end(mut child: std::process::Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_copy_of_the_mount_in_another_namespace_holds_nothing_up() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED: {why}");
    }
    let fs = Arc::new(MemFs::default());
    let (b, dir) = start("copied", options(), fs.clone(), fs);
    limited("copied", &dir.clone(), move || {
        fs::write(b.dir.join("a"), "content").unwrap();
        let Some(child) = elsewhere(&b.dir, "cat \"$0\"/a && ls \"$0\"") else {
            return eprintln!("SKIPPED: `unshare --mount` is not allowed here");
        };
        unmount(&b.session).unwrap();
        assert!(b.session.has_ended());
        assert_eq!(b.fs.destroys.load(Ordering::SeqCst), 1);
        assert!(b.log.lock().unwrap().iter().any(|line| line.contains("other mount namespaces")));
        let seen = format!("/proc/{}/root{}/a", child.id(), b.dir.display());
        assert_eq!(errno(fs::read(seen)), libc::ENOTCONN);
        end(child);
    });
    fs::remove_dir(dir).unwrap();
}

#[test]
fn a_file_that_is_open_in_another_namespace_is_waited_for_and_ended_by_force() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED: {why}");
    }
    let fs = Arc::new(MemFs::default());
    let (b, dir) = start("open-copy", options(), fs.clone(), fs);
    limited("open-copy", &dir.clone(), move || {
        fs::write(b.dir.join("a"), "content").unwrap();
        let Some(child) = elsewhere(&b.dir, "exec 3< \"$0\"/a") else {
            return eprintln!("SKIPPED: `unshare --mount` is not allowed here");
        };
        let held = unmount(&b.session).unwrap_err();
        assert!(matches!(held, Error::HeldElsewhere { .. }), "{held}");
        assert!(!b.session.has_ended());
        let seen = format!("/proc/{}/fd/3", child.id());
        assert_eq!(fs::read(&seen).unwrap(), b"content", "what is open there goes on");
        b.session.unmount(UnmountMode::Force).unwrap();
        assert_eq!(b.fs.destroys.load(Ordering::SeqCst), 1);
        assert_eq!(errno(fs::read(seen)), libc::ENOTCONN);
        end(child);
    });
    fs::remove_dir(dir).unwrap();
}

#[test]
fn a_forced_unmount_ends_what_is_open() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED: {why}");
    }
    let fs = Arc::new(MemFs::default());
    let (b, dir) = start("force", options(), fs.clone(), fs);
    limited("force", &dir.clone(), move || {
        let mut file = File::create(b.dir.join("a")).unwrap();
        b.session.unmount(UnmountMode::Force).unwrap();
        assert!(file.write_all(b"x").is_err());
        assert_eq!(b.fs.destroys.load(Ordering::SeqCst), 1);
    });
    fs::remove_dir(dir).unwrap();
}

#[test]
fn an_unmount_from_outside_is_noticed() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED: {why}");
    }
    let fs = Arc::new(MemFs::default());
    let (b, dir) = start("outside", options(), fs.clone(), fs);
    limited("outside", &dir.clone(), move || {
        let turn = no_spawns();
        rustix::mount::unmount(&b.dir, rustix::mount::UnmountFlags::empty()).unwrap();
        drop(turn);
        assert_eq!(b.session.wait_timeout(LIMIT), Some(EndReason::Unmounted));
        let notifier = b.session.notifier();
        assert_eq!(notifier.inval_inode(1, 0, 0), Err(NotifyError::Ended));
    });
    fs::remove_dir(dir).unwrap();
}

/// Takes its time at the end.
struct Slow;

impl Handler for Slow {
    fn destroy(&self) {
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// After an unmount a new mount is not refused as already mounted.
#[test]
fn who_asks_after_an_unmount_from_outside_hears_that_it_has_ended() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED: {why}");
    }
    let (b, dir) = start("asked", options(), Arc::default(), Arc::new(Slow));
    limited("asked", &dir.clone(), move || {
        assert!(!b.session.has_ended());
        let turn = no_spawns();
        rustix::mount::unmount(&b.dir, rustix::mount::UnmountFlags::empty()).unwrap();
        drop(turn);
        assert!(b.session.has_ended());
    });
    fs::remove_dir(dir).unwrap();
}

#[test]
fn a_dropped_session_leaves_no_mount() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED: {why}");
    }
    let fs = Arc::new(MemFs::default());
    let (b, dir) = start("drop", options(), fs.clone(), fs);
    limited("drop", &dir.clone(), move || drop(b));
    fs::remove_dir(&dir).expect("a mountpoint would be busy");
}

#[test]
fn the_helper_mounts_and_shows_the_same() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED: {why}");
    }
    let dir = scratch("helper");
    let mut options = MountOptions::new("pool,with comma");
    options.subtype = Some("memfs".into());
    options.via = MountVia::Helper;
    let turn = no_spawns();
    let mounted = Session::mount(&dir, &options, Arc::new(MemFs::default()));
    drop(turn);
    let session = match mounted {
        Ok(session) => session,
        Err(error @ Error::HelperMissing) => return eprintln!("SKIPPED: {error}"),
        Err(error) => panic!("{error}"),
    };
    limited("helper", &dir.clone(), move || {
        let path = session.mountpoint().join("a");
        fs::write(&path, "through the helper").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"through the helper");
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(table.contains("pool,with\\040comma") && table.contains(" fuse.memfs "), "{table}");
        unmount(&session).unwrap();
        assert_eq!(session.wait(), EndReason::Unmounted);
    });
    fs::remove_dir(dir).unwrap();
}

#[test]
fn notifications_make_the_kernel_ask_again() {
    mounted("notify", |b| {
        fs::write(b.dir.join("a"), "old bytes").unwrap();
        fs::write(b.dir.join("gone"), "").unwrap();
        assert_eq!(fs::read(b.dir.join("a")).unwrap(), b"old bytes");
        let ino = b.fs.overwrite(b"a", b"new");
        assert_eq!(fs::read(b.dir.join("a")).unwrap(), b"old bytes", "the kernel does not know yet");
        let notifier = b.session.notifier();
        notifier.inval_inode(ino, 0, 0).unwrap();
        notifier.drain(LIMIT).unwrap();
        assert_eq!(fs::read(b.dir.join("a")).unwrap(), b"new bytes");

        assert!(b.dir.join("gone").exists());
        let child = b.fs.remove(b"gone");
        assert!(b.dir.join("gone").exists(), "the kernel does not know yet");
        notifier.delete(ROOT_INO, child, b"gone").unwrap();
        notifier.drain(LIMIT).unwrap();
        assert!(!b.dir.join("gone").exists());

        // Invalidating an entry that was never cached is no error.
        notifier.inval_entry(ROOT_INO, b"never there").unwrap();
        notifier.expire_entry(ROOT_INO, b"a").unwrap();
        notifier.inval_all_entries().unwrap();
        notifier.drain(LIMIT).unwrap();
        assert!(b.dir.join("a").exists());
    });
}

/// Blocks, panics and lies on demand; all else is the file system in memory.
struct Trouble {
    inner: Arc<MemFs>,
    gate: Mutex<()>,
    dir: Mutex<PathBuf>,
    notifier: Mutex<Option<Notifier>>,
}

impl Handler for Trouble {
    fn lookup(&self, req: &Request, parent: u64, name: &[u8]) -> Reply<Entry> {
        match name {
            b"panic" => panic!("on demand"),
            b"lie" => Err(Errno(99_999)),
            _ if name.starts_with(b"wait") => {
                drop(self.gate.lock().unwrap());
                Err(Errno::ENOENT)
            }
            // Uses its own mount from inside a request.
            b"nested" => match fs::metadata(self.dir.lock().unwrap().join("real")) {
                Ok(meta) => self.inner.getattr(req, meta.ino(), None).and(Err(Errno::EBUSY)),
                Err(_) => Err(Errno::ENOENT),
            },
            // Forgets from inside a request about the same directory and name.
            b"notifies" => {
                let guard = self.notifier.lock().unwrap();
                let notifier = guard.as_ref().unwrap();
                notifier.inval_entry(parent, name).unwrap();
                notifier.inval_inode(parent, 0, 0).unwrap();
                Err(Errno::ENOENT)
            }
            _ => self.inner.lookup(req, parent, name),
        }
    }

    fn getattr(&self, req: &Request, ino: u64, fh: Option<u64>) -> Reply<AttrReply> {
        self.inner.getattr(req, ino, fh)
    }

    fn mknod(&self, req: &Request, parent: u64, name: &[u8], mode: u32, rdev: u32) -> Reply<Entry> {
        self.inner.mknod(req, parent, name, mode, rdev)
    }

    fn open(&self, _: &Request, _: u64, _: &OpenArgs) -> Reply<Opened> {
        Ok(Opened { direct_io: true, ..Opened::default() })
    }

    fn read(&self, _: &Request, _: &ReadArgs, out: &mut [u8]) -> Reply<usize> {
        Ok(out.len() + 1)
    }

    fn statfs(&self, _: &Request, _: u64) -> Reply<StatFs> {
        panic!("in a request that df waits for")
    }
}

#[test]
fn a_handler_that_blocks_panics_or_lies_stops_nobody_else() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED: {why}");
    }
    let inner = Arc::new(MemFs::default());
    let trouble = Arc::new(Trouble {
        inner: inner.clone(),
        gate: Mutex::new(()),
        dir: Mutex::default(),
        notifier: Mutex::new(None),
    });
    let mut wish = options();
    (wish.threads, wish.threads_max) = (Some(2), 12);
    let (b, dir) = start("trouble", wish, inner, trouble.clone());
    *trouble.dir.lock().unwrap() = dir.clone();
    *trouble.notifier.lock().unwrap() = Some(b.session.notifier());
    limited("trouble", &dir.clone(), move || {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            b.dir.join("real"),
            rustix::fs::FileType::RegularFile,
            rustix::fs::Mode::from_raw_mode(0o644),
            0,
        )
        .unwrap();
        for _ in 0..5 {
            assert_eq!(errno(fs::metadata(b.dir.join("panic"))), libc::EIO);
            assert!(rustix::fs::statvfs(&b.dir).is_err());
        }
        assert_eq!(errno(fs::metadata(b.dir.join("lie"))), libc::EIO, "no errno of that number exists");
        assert_eq!(errno(fs::read(b.dir.join("real"))), libc::EIO, "more bytes than there is room");
        assert_eq!(errno(fs::metadata(b.dir.join("nested"))), libc::EBUSY);
        assert_eq!(errno(fs::metadata(b.dir.join("notifies"))), libc::ENOENT);
        b.session.notifier().drain(LIMIT).unwrap();
        assert!(b.log.lock().unwrap().iter().any(|l| l.contains("LOOKUP") && l.contains("on demand")));

        // Eight requests that block, over two threads: others are served all the same.
        let gate = trouble.gate.lock().unwrap();
        std::thread::scope(|scope| {
            for i in 0..8 {
                let path = b.dir.join(format!("wait-{i}"));
                scope.spawn(move || assert_eq!(errno(fs::metadata(path)), libc::ENOENT));
            }
            assert_eq!(errno(fs::metadata(b.dir.join("nested"))), libc::EBUSY);
            eventually(|| b.session.threads() > 8);
            drop(gate);
        });
        assert!(b.log.lock().unwrap().iter().any(|l| l.contains("all threads are blocked")));
        unmount(&b.session).unwrap();
    });
    fs::remove_dir(dir).unwrap();
}

/// Environment variable that makes `serves_for_another_test` do something.
const SERVE: &str = "STEADFAST_FUSE_TEST_SERVE";

/// Not a test: what the two tests below start as a process of its own.
#[test]
#[ignore = "started by other tests as a process of its own"]
fn serves_for_another_test() {
    let Some(dir) = std::env::var_os(SERVE) else { return };
    let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let fs = MemFs::owned_by(owner.0, owner.1);
    let session = Session::mount(Path::new(&dir), &options(), Arc::new(fs)).unwrap();
    println!("{:?}", session.wait());
}

fn server_process(dir: &Path) -> std::process::Command {
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "mount_life::serves_for_another_test", "--ignored", "--nocapture"])
        .env(SERVE, dir);
    command
}

fn is_mountpoint(dir: &Path) -> bool {
    fs::read_to_string("/proc/self/mounts").unwrap().contains(dir.to_str().unwrap())
}

#[test]
fn the_mount_of_a_killed_server_is_named_and_cleared() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED: {why}");
    }
    let dir = scratch("killed");
    let mut child = spawn(&mut server_process(&dir)).unwrap();
    limited("killed", &dir.clone(), {
        let dir = dir.clone();
        move || {
            eventually(|| is_mountpoint(&dir) && fs::write(dir.join("a"), "x").is_ok());
            assert!(!clear_stale(&dir).unwrap(), "a mount that works is left alone");
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(errno(fs::metadata(dir.join("a"))), libc::ENOTCONN);
            let refused = Session::mount(&dir, &options(), Arc::new(MemFs::default())).err().unwrap();
            assert!(matches!(refused, Error::MountpointStale { .. }), "{refused}");
            assert!(refused.to_string().contains("umount -l"));
            assert!(clear_stale(&dir).unwrap());
            assert!(!clear_stale(&dir).unwrap());
            assert!(!is_mountpoint(&dir));
        }
    });
    fs::remove_dir(dir).unwrap();
}

#[test]
fn an_ordinary_user_mounts_and_unmounts_through_the_helper() {
    use std::os::unix::process::CommandExt;
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED: {why}");
    }
    const NOBODY: u32 = 65534;
    let helper = ["/usr/bin/fusermount3", "/bin/fusermount3"].into_iter().find_map(|p| fs::metadata(p).ok());
    if helper.is_none_or(|meta| meta.mode() & 0o4000 == 0) {
        return eprintln!("SKIPPED: fusermount3 is not installed set-user-id root");
    }
    if fs::metadata("/dev/fuse").unwrap().mode() & 0o6 != 0o6 {
        return eprintln!("SKIPPED: /dev/fuse is not open to ordinary users here (`chmod 666 /dev/fuse`)");
    }
    let dir = scratch("nobody");
    std::os::unix::fs::chown(&dir, Some(NOBODY), Some(NOBODY)).unwrap();
    // The program of this test must be where that user can read it.
    let program = dir.with_extension("program");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let mut command = std::process::Command::new(&program);
    command
        .args(["--exact", "mount_life::serves_for_another_test", "--ignored", "--nocapture"])
        .env(SERVE, &dir);
    command.uid(NOBODY).gid(NOBODY).current_dir("/").stdout(std::process::Stdio::piped());
    let child = spawn(&mut command).unwrap();
    limited("nobody", &dir.clone(), {
        let dir = dir.clone();
        move || {
            eventually(|| is_mountpoint(&dir));
            assert_eq!(errno(fs::metadata(dir.join("a"))), libc::EACCES, "even root is kept out");
            let run = |script: &str| {
                let mut command = std::process::Command::new("sh");
                command.args(["-c", script]).arg(&dir).uid(NOBODY).gid(NOBODY).current_dir("/");
                assert!(status(&mut command).unwrap().success(), "{script}");
            };
            run("echo hello > \"$0\"/a && grep -q hello \"$0\"/a");
            run("fusermount3 -u \"$0\"");
            let output = child.wait_with_output().unwrap();
            assert!(String::from_utf8_lossy(&output.stdout).contains("Unmounted"), "{output:?}");
            assert!(!is_mountpoint(&dir));
        }
    });
    fs::remove_file(program).unwrap();
    fs::remove_dir(dir).unwrap();
}

#[test]
fn a_mount_inside_a_mount_stands_when_a_name_expires_and_falls_when_it_is_invalidated() {
    mounted("outer", |b| {
        let inner_dir = b.dir.join("inner");
        fs::create_dir(&inner_dir).unwrap();
        let inner = Session::mount(&inner_dir, &options(), Arc::new(MemFs::default())).unwrap();
        fs::write(inner_dir.join("a"), "inner").unwrap();
        let busy = b.session.unmount(UnmountMode::Clean).unwrap_err();
        assert!(matches!(busy, Error::Busy { .. }), "{busy}");

        let notifier = b.session.notifier();
        notifier.expire_entry(ROOT_INO, b"inner").unwrap();
        notifier.drain(LIMIT).unwrap();
        assert_eq!(fs::read(inner_dir.join("a")).unwrap(), b"inner");
        notifier.inval_entry(ROOT_INO, b"inner").unwrap();
        notifier.drain(LIMIT).unwrap();
        assert_eq!(errno(fs::read(inner_dir.join("a"))), libc::ENOENT);
        assert_eq!(inner.wait_timeout(LIMIT), Some(EndReason::Unmounted));
        unmount(&inner).unwrap();
    });
}

/// The handles and lookup counts that an unmount drops, and the threads it meets in the middle of
/// their work.
#[test]
fn unmounting_under_load_ends_every_session_once() {
    if let Some(why) = obstacle() {
        return eprintln!("SKIPPED: {why}");
    }
    for round in 0..15 {
        let fs = Arc::new(MemFs::default());
        let mut wish = options();
        wish.threads = Some(1 + round % 4);
        let (b, dir) = start("load", wish, fs.clone(), fs);
        limited("load", &dir.clone(), move || {
            let stop = std::sync::atomic::AtomicBool::new(false);
            std::thread::scope(|scope| {
                for t in 0..4 {
                    let (stop, dir) = (&stop, &b.dir);
                    scope.spawn(move || {
                        while !stop.load(Ordering::Relaxed) {
                            // Errors are expected once the mount is gone.
                            let path = dir.join(format!("f{t}"));
                            let _ = fs::write(&path, [t as u8; 10_000]);
                            let _ = fs::read(&path);
                            let _ = fs::read_dir(dir).map(|d| d.count());
                            let _ = fs::remove_file(&path);
                        }
                    });
                }
                std::thread::sleep(Duration::from_millis(5 * (round as u64 % 5)));
                let mode = if round % 2 == 0 { UnmountMode::Force } else { UnmountMode::Lazy };
                b.session.unmount(mode).unwrap();
                assert!(b.session.wait_timeout(LIMIT).is_some());
                stop.store(true, Ordering::Relaxed);
            });
            assert_eq!(b.fs.destroys.load(Ordering::SeqCst), 1);
            let log = b.log.lock().unwrap();
            assert!(log.iter().all(|l| !l.contains("refused") && !l.contains("panicked")), "{log:?}");
        });
        // After the unmount the threads wrote into the plain directory.
        fs::remove_dir_all(dir).unwrap();
    }
}
