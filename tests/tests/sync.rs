//! The property `sync` through the command line and a real mount: what a killed daemon leaves.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use steadfast_tests::{Host, is_root, skip, steadfast_bin};

const O_DSYNC: i32 = 0o10_000;
const O_SYNC: i32 = 0o4_010_000;

/// Kills the daemon. The next command starts one, which imports and mounts what was in use.
fn kill(host: &Host) {
    host.kill_daemon();
    host.shell("umount -l t; zpool list tank").ok();
}

#[test]
fn what_was_written_through_a_synchronous_descriptor_is_there_when_the_write_returned() {
    let test = "what_was_written_through_a_synchronous_descriptor_is_there_when_the_write_returned";
    let Some(host) = Host::with_tank(test) else { return };
    host.shell("zfs get -H -o value sync tank").ok().says("standard");
    // Names are committed; the bytes are promised by nothing but the flag of the descriptor they go
    // through.
    let flags = [("sync", O_SYNC), ("dsync", O_DSYNC)];
    for (name, _) in flags {
        File::create(host.at(&format!("t/{name}"))).expect("made");
    }
    host.shell("zpool sync tank").ok();
    for (round, size) in [10, 4_096, 70_000, 1_300_000].into_iter().enumerate() {
        let byte = u8::try_from(round + 1).expect("few");
        for (name, flag) in flags {
            let file = OpenOptions::new().write(true).custom_flags(flag).open(host.at(&format!("t/{name}")));
            let file = file.expect("open");
            file.write_all_at(&vec![byte; size], 0).expect("written");
            // Nobody closes it, calls fsync, or waits.
            kill(&host);
            drop(file);
            let found = fs::read(host.at(&format!("t/{name}"))).expect("it reads");
            assert!(found == vec![byte; size], "{name}, {size} bytes: {} are there", found.len());
        }
    }
}

#[test]
fn always_keeps_every_call_and_disabled_waits_for_none() {
    let Some(host) = Host::with_tank("sync") else { return };
    host.shell("zfs set journal=ordered tank; zfs get -H -o value,source sync tank")
        .ok()
        .says("standard\tdefault");
    host.shell("zfs set sync=always tank; zfs get -H -o value,source sync tank").ok().says("always\tlocal");
    // Nobody calls fsync; all of it goes through the kernel and a mount that was there before the
    // property was set.
    host.shell(
        "cd t; mkdir d; echo one > d/file; ln d/file second; ln -s file d/link; echo two >> d/file; mv d e; \
         echo gone > gone; rm gone; chmod 600 second; truncate -s 6 second",
    )
    .ok();
    let file = File::create(host.at("t/big")).expect("a file");
    let block = vec![7; 100_000];
    (0..20).for_each(|at| file.write_all_at(&block, at * 100_000).expect("written"));
    drop(file);
    kill(&host);
    let kept = host.shell("cd t; ls; cat e/file second; readlink e/link; stat -c %a second").ok();
    assert_eq!(kept.out, "big\ne\nsecond\none\ntwone\ntwfile\n600\n", "{}", kept.out);
    assert!(fs::read(host.at("t/big")).expect("it reads") == vec![7; 2_000_000]);

    // Each fsync would be a commit of its own.
    host.shell("zfs set journal=off tank; zfs set sync=disabled tank").ok();
    let txg = || -> u64 {
        let status = host.shell("zpool status -j --json-int tank").ok().out;
        let digits = status.split("\"txg\":").nth(1).expect("a txg").trim_start();
        let end = digits.find(|c: char| !c.is_ascii_digit()).expect("more behind it");
        digits[..end].parse().expect("a number")
    };
    let before = txg();
    let mut file = File::create(host.at("t/many")).expect("a file");
    for _ in 0..300 {
        file.write_all(b"line\n").expect("written");
        file.sync_all().expect("at once");
    }
    let commits = txg() - before;
    assert!(commits < 300, "{commits} commits for 300 fsyncs");
    drop(file);
    host.shell("zpool sync tank").ok();
    kill(&host);
    assert_eq!(
        fs::read(host.at("t/many")).expect("it reads").len(),
        1_500,
        "a commit keeps what no fsync did"
    );

    host.shell("zfs create tank/below; zfs get -H -o value,source sync tank/below")
        .ok()
        .says("disabled\tinherited from tank");
    host.shell("zfs inherit sync tank; zfs get -H -o value sync tank/below").ok().says("standard");
    host.shell("zfs set sync=never tank").fails(1).says("standard | always | disabled").says("PROP-VALUE");
}

/// True where the kernel asks a mount on a block device at `sync(2)`: Linux 6.18.
fn asks_at_sync() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("a release");
    let mut numbers = release.split(['.', '-']).map_while(|number| number.trim().parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(18))
}

#[test]
fn a_file_is_there_once_sync_has_returned() {
    let test = "a_file_is_there_once_sync_has_returned";
    if !is_root() || !asks_at_sync() || !std::path::Path::new("/dev/loop-control").exists() {
        return skip(test, "it takes root, Linux 6.18 and loop devices");
    }
    let Some(host) = Host::with_tank(test) else { return };
    host.image("other.img", 128 << 20);
    host.shell("zpool create -m $PWD/o other $PWD/other.img").ok();
    for round in 0..5 {
        // Of two pools, and a name beside content: nobody calls fsync.
        let content = vec![round; 300_000];
        for top in ["t", "o"] {
            fs::write(host.at(top).join("file"), &content).expect("written");
            fs::create_dir(host.at(top).join(format!("folder{round}"))).expect("made");
        }
        // The kernel may hold back what is written to a file that is open.
        let mut open = File::create(host.at("t/open")).expect("made");
        open.write_all(&content).expect("written");
        rustix::fs::sync();
        host.kill_daemon();
        host.shell("umount -l t o; zpool list tank other").ok();
        for top in ["t", "o"] {
            let found = fs::read(host.at(top).join("file")).expect("it reads");
            assert!(found == content, "{top}, round {round}: {} bytes", found.len());
            assert!(host.at(top).join(format!("folder{round}")).is_dir(), "{top}, round {round}");
        }
        drop(open);
        assert!(fs::read(host.at("t/open")).expect("it reads") == content, "round {round}");
    }
    // The room of a removed file is free once `sync` has returned (xfstests generic/015).
    let free = || -> u64 {
        rustix::fs::sync();
        let told = rustix::fs::statvfs(host.at("t")).expect("a mount");
        told.f_bavail * told.f_frsize
    };
    let before = free();
    for round in 0..5 {
        fs::write(host.at("t/large"), steadfast_tests::noise(round, 4_000_000)).expect("written");
        assert!(free() < before);
        fs::remove_file(host.at("t/large")).expect("removed");
        let after = free();
        assert!(before.abs_diff(after) < 1 << 20, "round {round}: {before} bytes are free, then {after}");
    }
}

#[test]
fn the_daemon_takes_no_part_in_sync_where_that_is_turned_off() {
    let host = Host::new();
    let is_served = |setting: &str| {
        host.shell(&format!("{setting}zpool list")).ok();
        let pid = fs::read_to_string(host.at("run/daemon.lock")).expect("a daemon runs");
        let tasks = fs::read_dir(format!("/proc/{}/task", pid.trim())).expect("it has threads");
        let names = tasks.map(|task| fs::read_to_string(task.expect("a thread").path().join("comm")));
        let names: Vec<String> = names.filter_map(Result::ok).map(|name| name.trim().to_owned()).collect();
        assert!(names.iter().any(|name| name == "accept"), "{names:?}");
        host.run("daemon stop").ok();
        names.iter().any(|name| name == "host sync")
    };
    assert!(!is_served("STEADFAST_HOST_SYNC=off "));
    let can_be = is_root() && asks_at_sync() && std::path::Path::new("/dev/loop-control").exists();
    assert_eq!(is_served(""), can_be);
    for wrong in ["daemon run --host-sync maybe", "daemon run --host-sync="] {
        host.run(wrong).fails(2).says("--host-sync").says("on or off");
    }
    let program = steadfast_bin().display().to_string();
    let words = ["STEADFAST_HOST_SYNC=0", program.as_str(), "daemon", "run"];
    host.exec("env", &words, b"").fails(2).says("STEADFAST_HOST_SYNC is '0'");
}
