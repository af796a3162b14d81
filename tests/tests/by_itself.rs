//! Events as the daemon tells them, and jobs that it does by itself.

use std::fs::{self, File};
use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use steadfast_tests::{Host, is_root, processes_of, skip, spawn, steadfast_bin, until};

/// Numbers of system calls, on x86-64 and on aarch64.
const FDATASYNC: u32 = if cfg!(target_arch = "aarch64") { 83 } else { 75 };
const CLOCK_NANOSLEEP: u32 = if cfg!(target_arch = "aarch64") { 115 } else { 230 };
/// For a process to end.
const PATIENCE: Duration = Duration::from_secs(30);

/// A command that goes on until it is dropped, and what it has printed so far.
struct Going {
    child: Child,
    printed: std::path::PathBuf,
}

impl Going {
    fn begin(host: &Host, name: &str, words: &[&str]) -> Going {
        let printed = host.at(name);
        let out = File::create(&printed).expect("a file");
        let mut command = Command::new(steadfast_bin());
        command.args(words).env("STEADFAST_RUNTIME_DIR", host.at("run")).current_dir(host.path());
        let child = spawn(command.stdin(Stdio::null()).stdout(out)).expect("it starts");
        Going { child, printed }
    }

    fn printed(&self) -> String {
        fs::read_to_string(&self.printed).expect("readable")
    }

    /// Output so far, once it holds a word.
    #[track_caller]
    fn until(&mut self, word: &str) -> String {
        let printed = &self.printed;
        let told = until(|| {
            let told = fs::read_to_string(printed).expect("readable");
            if told.contains(word) { Ok(told) } else { Err(told) }
        });
        assert!(self.child.try_wait().expect("asked").is_none(), "it goes on: {told}");
        told
    }
}

impl Drop for Going {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn events_are_told_as_they_come_to_who_follows_them() {
    let Some(host) = Host::with_tank("events that come later") else { return };
    let mut all = Going::begin(&host, "all", &["pool", "events", "-f", "-H"]);
    let mut json = Going::begin(&host, "json", &["pool", "events", "-f", "-j", "tank"]);
    let told = all.until("pool_create");
    assert!(!told.contains("initialize"), "{told}");
    json.until("pool_create");
    // Events from now on are later than those told before.
    host.shell("zpool initialize -w tank").ok();
    let told = all.until("initialize_finish");
    for word in ["pool_create", "initialize_start", "initialize_finish"] {
        assert_eq!(told.lines().filter(|line| line.ends_with(word)).count(), 1, "each once: {told}");
    }
    let told = json.until("initialize_finish");
    for line in told.lines() {
        assert!(line.starts_with('{') && line.ends_with('}'), "one document a line: {line}");
    }
    // Of another pool, and nothing of it to who asked for this one.
    host.image("pond.img", 64 << 20);
    host.shell("zpool create -m $PWD/p pond $PWD/pond.img").ok();
    let mut other = Going::begin(&host, "other", &["pool", "events", "-f", "-v", "pond"]);
    other.until("pool_create");
    host.shell("zpool export pond").ok();
    let told = other.until("pool_export");
    assert!(told.contains("pool = \"pond\"") && !told.contains("tank"), "{told}");
    let told = all.until("pool_export");
    assert_eq!(told.matches("initialize_start").count(), 1, "nothing is told twice: {told}");
    assert!(!json.printed().contains("pond"));
    drop((all, json, other));
    host.shell("zpool export tank").ok();
}

/// The policy, with no hand but the daemon's.
#[test]
fn a_policy_is_carried_out_by_the_daemon() {
    let Some(host) = Host::with_tank("a policy") else { return };
    host.shell("zfs create tank/a; zfs create -o steadfast:auto-snapshot=off tank/b; echo one > t/a/file")
        .ok();
    host.shell("zfs set steadfast:auto-snapshot=hourly tank").fails(1).says("PROP-VALUE");
    // Its own of an hour long ago, and what somebody took for himself.
    host.shell(
        "for hour in 01 02 03; do zfs snapshot tank/a@auto-hourly-2020-01-01_$hour:00; done; \
         zfs snapshot tank/a@mine; zfs snapshot tank/b@auto-hourly-2020-01-01_01:00; echo two > t/a/file",
    )
    .ok();
    host.shell("zfs set steadfast:auto-snapshot=hourly=2,daily=1 tank").ok();
    // It looks at the clock when it starts, and once a minute.
    host.run("daemon stop").ok();
    let year = host.shell("date -u +%Y").ok().out.trim().to_owned();
    let names = |fs: &str, is_so: &dyn Fn(&str) -> bool| {
        host.until(&format!("zfs list -H -t snapshot -o name -s creation {fs} | cut -d@ -f2"), is_so)
    };
    let is_done = |told: &str| {
        let fresh = |period: &str| told.contains(&format!("auto-{period}-{year}-"));
        fresh("hourly")
            && fresh("daily")
            && told.lines().filter(|line| line.starts_with("auto-hourly")).count() == 2
    };
    let told = names("tank/a", &is_done);
    assert!(!told.contains("2020-01-01_01") && !told.contains("2020-01-01_02"), "the oldest went: {told}");
    assert!(told.lines().any(|line| line == "mine"), "{told}");
    assert_eq!(told.lines().filter(|line| line.starts_with("auto-daily")).count(), 1, "{told}");
    // The parent has snapshots of its own; a dataset that said no has those that it had.
    let above = names("tank", &|told| told.contains("auto-hourly") && told.contains("auto-daily"));
    assert!(!above.contains("mine"), "{above}");
    let apart = host.shell("zfs list -H -t snapshot -o name tank/b").ok().out;
    assert_eq!(apart.trim(), "tank/b@auto-hourly-2020-01-01_01:00");
    let fresh = told.lines().find(|line| line.starts_with(&format!("auto-hourly-{year}"))).expect("there");
    host.shell(&format!("cat t/a/.zfs/snapshot/{fresh}/file")).ok().says("two");
    host.shell("cat t/a/.zfs/snapshot/mine/file").ok().says("one");
    host.shell("zpool history -i tank")
        .ok()
        .says(&format!("snapshot tank/a@{fresh} (steadfast:auto-snapshot)"));
    host.shell("zpool export tank").ok();
}

/// A snapshot has the pages of an open file handed over, and waits for a commit when the daemon is
/// killed. No thread of the daemon waits for its own mount meanwhile, under the file's lock.
#[test]
fn a_daemon_whose_snapshot_waits_for_a_commit_can_be_killed() {
    if !is_root() {
        return skip("a daemon whose snapshot waits", "only root's opens files by handle");
    }
    let Some(host) = Host::with_tank("a daemon whose snapshot waits") else { return };
    host.shell("echo kept > t/file; zpool sync").ok();
    let before = fs::read_to_string(host.at("run/daemon.lock")).expect("a daemon runs");
    // A descriptor that may change pages, and a device that answers nothing for a while.
    let file = fs::OpenOptions::new().read(true).write(true).open(host.at("t/file")).expect("there");
    (&file).write_all(b"late").expect("written");
    host.shell("zpool inject --i-want-this-pool-damaged tank $PWD/tank.img slow latency=60s").ok();
    let mut snapshot = Going::begin(&host, "snapshot", &["fs", "snapshot", "tank@late"]);
    let process = std::path::Path::new("/proc").join(before.trim());
    let waits = |name: &str, call: u32| {
        fs::read_dir(process.join("task")).expect("it runs").flatten().any(|thread| {
            let read = |file: &str| fs::read_to_string(thread.path().join(file)).unwrap_or_default();
            read("comm").starts_with(name) && read("syscall").split(' ').next() == Some(&call.to_string())
        })
    };
    until(|| match (waits("sync tank", CLOCK_NANOSLEEP), waits("", FDATASYNC)) {
        (true, false) => Ok(()),
        now => Err(format!("the commit waits for the device, a thread for the mount: {now:?}")),
    });
    (&file).write_all(b"r").expect("a writer waits for no commit");
    assert!(snapshot.child.try_wait().expect("asked").is_none(), "the snapshot waits");
    host.shell(&format!("kill -9 {}", before.trim())).ok();
    drop(file);
    let started = Instant::now();
    while process.exists() {
        if started.elapsed() > PATIENCE {
            // Or nothing of this test ever ends.
            host.shell("umount -f t || true").ok();
            panic!("the killed daemon does not end");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    drop(snapshot);
    // Nothing was promised of the writes after the first.
    let told = host.until("timeout 10 cat t/file || true", |told| !told.is_empty());
    assert!(["kept", "late", "later"].contains(&told.trim()), "{told}");
    host.shell("zpool export tank").ok();
}

/// As on file systems of the kernel: what was there when the mount became read-only stays.
#[test]
fn a_mount_that_becomes_read_only_is_durable() {
    if !is_root() {
        return skip("a mount that becomes read-only", "only root changes a mount's options");
    }
    let Some(host) = Host::with_tank("a mount that becomes read-only") else { return };
    host.shell("zpool sync; mkdir t/folder; echo kept > t/folder/file; mount.steadfast tank t -o remount,ro")
        .ok();
    host.kill_daemon();
    host.shell("zpool list tank; cat t/folder/file").ok().says("kept");
    host.shell("zpool export tank").ok();
}

/// As `umount` of a file system of the kernel.
#[test]
fn a_mount_that_a_command_ended_is_durable() {
    let Some(host) = Host::with_tank("a mount that was ended") else { return };
    host.shell("zfs create tank/a; zpool sync; echo kept > t/a/file; zfs unmount tank/a").ok();
    host.kill_daemon();
    host.shell("zpool list tank; cat t/a/file").ok().says("kept");
    host.shell("zpool export tank").ok();
}

/// Nobody types anything after the kill.
#[test]
fn a_killed_daemon_comes_back_with_its_mounts() {
    let Some(host) = Host::with_tank("a killed daemon") else { return };
    host.shell("zfs create tank/a; echo kept > t/file; echo below > t/a/file; zpool sync").ok();
    let before = fs::read_to_string(host.at("run/daemon.lock")).expect("a daemon runs");
    host.exec("kill", &["-9", before.trim()], b"").ok();
    for (file, content) in [("t/file", "kept\n"), ("t/a/file", "below\n")] {
        until(|| match fs::read_to_string(host.at(file)) {
            Ok(text) if text == content => Ok(()),
            Ok(text) => Err(text),
            Err(error) => Err(error.to_string()),
        });
    }
    let after = fs::read_to_string(host.at("run/daemon.lock")).expect("a daemon runs");
    assert_ne!(before, after);
    let log = fs::read_to_string(host.at("run/daemon.log")).expect("a log");
    assert!(log.contains("signal: 9 (SIGKILL); restarting it"), "{log}");
    // One that is asked to stop stays away.
    host.run("daemon stop").ok();
    host.run("daemon pid").fails(1).says("DAEMON-ABSENT");
    assert!(!host.at("t/file").exists());
    host.shell("zpool export tank").ok();
}

#[test]
fn nothing_of_a_corner_is_left_when_its_daemon_is_being_restarted() {
    let Some(host) = Host::with_tank("nothing is left") else { return };
    let pid = host.run("daemon pid").ok().out;
    let corner = host.path().to_owned();
    // The daemon alone: its parent starts another one.
    host.exec("kill", &["-9", pid.trim()], b"").ok();
    assert!(!processes_of(&corner).is_empty(), "its parent lives");
    drop(host);
    assert_eq!(processes_of(&corner), Vec::<String>::new());
}
