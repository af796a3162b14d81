//! Log devices through the command line: made, added, shown, inspected, lost, exchanged, damaged,
//! taken away.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;

use steadfast_tests::{Host, Ran, no_fuse, skip};

const MIB: u64 = 1 << 20;

/// The command was refused with this code, in three parts.
#[track_caller]
fn refused(ran: Ran, code: &str) -> Ran {
    let ran = ran.fails(1);
    assert!(ran.err.contains("  meaning: "), "{}", ran.err);
    assert!(ran.err.trim_end().ends_with(&format!("{code}.")), "{} is not {code}:\n{}", ran.words, ran.err);
    ran
}

/// A host with a pool `tank` at `t/` on `tank.img`, whose intent log is on `slog.img`.
fn with_log(test: &str) -> Option<Host> {
    if let Some(why) = no_fuse() {
        skip(test, &why);
        return None;
    }
    let host = Host::new();
    host.image("tank.img", 128 * MIB);
    host.image("slog.img", 64 * MIB);
    host.shell("zpool create -m $PWD/t -O journal=ordered tank $PWD/tank.img log $PWD/slog.img").ok();
    Some(host)
}

/// Makes a file durable by the log alone.
fn promise(host: &Host, name: &str) {
    let mut file = File::create(host.at("t").join(name)).expect("a file");
    file.write_all(name.as_bytes()).expect("written");
    file.sync_all().expect("durable");
}

/// Kills the daemon, and makes what it held forgotten, so that the next command imports nothing by
/// itself.
fn kill(host: &Host) {
    host.kill_daemon();
    host.shell("umount -l t").ok();
}

/// Lines of what `inspect log` prints: the groups that count.
fn groups(dump: &Ran) -> Vec<&str> {
    dump.out.lines().filter(|line| line.starts_with("group") && line.contains("counts=true")).collect()
}

/// Makes files durable by the log alone and kills the daemon; gives what the log holds then, a
/// group for each. Should a commit have come in between, as one does five seconds after the first
/// change, it holds them, and all is done again.
fn promise_and_kill(host: &Host, names: &[&str]) -> Ran {
    for _ in 0..50 {
        names.iter().for_each(|name| promise(host, name));
        kill(host);
        let dump = host.run("inspect log {}/tank.img {}/slog.img").ok();
        if groups(&dump).len() == names.len() {
            return dump;
        }
        host.shell(&format!("zpool list tank; cd t; rm {}; zpool sync tank", names.join(" "))).ok();
    }
    panic!("no five seconds without a commit");
}

#[test]
fn a_log_device_comes_shows_itself_and_goes() {
    let Some(host) = with_log("a log device") else { return };
    promise(&host, "first");
    let status =
        host.shell("zpool status -v tank").ok().says("logs").says("slog.img").says("on its own device");
    assert!(status.out.contains("   log: 63M"), "{}", status.out);
    host.shell("zpool status -j tank").ok().says("\"class\":\"log\"").says("\"durable\":\"1\"");
    host.shell("zpool list -v tank").ok().says("logs").says("slog.img");
    host.shell("zpool iostat -v tank").ok().says("logs").says("slog.img");
    host.shell("zpool get -H -o value feature@log_device tank").ok().says("active");
    // Devices that it does not take.
    refused(host.shell("zpool add tank log $PWD/slog.img"), "VDEV-IN-USE");
    refused(host.shell("zpool add tank log mirror $PWD/a.img $PWD/b.img"), "VDEV-MISSING");
    refused(host.shell("zpool add tank log raidz $PWD/a.img $PWD/b.img"), "VDEV-LOG")
        .says("invalid vdev specification: unsupported 'log' device: raidz");
    refused(host.shell("zpool add tank log $PWD/none.img"), "VDEV-MISSING");
    refused(host.shell("truncate -s 1M small.img; zpool add tank log $PWD/small.img"), "VDEV-SMALL");
    refused(host.shell("zpool create two log $PWD/none.img"), "VDEV-MISSING");
    refused(host.shell("zpool remove tank $PWD/slog.img $PWD/slog.img"), "VDEV-TWICE");
    // Away and back, in use.
    host.shell("zpool remove -n tank $PWD/slog.img; zpool status -v tank").ok().says("slog.img");
    let status = host.shell("zpool remove tank $PWD/slog.img; zpool status -v tank").ok();
    assert!(!status.out.contains("slog.img"), "{}", status.out);
    promise(&host, "second");
    host.shell("zpool get -H -o value feature@log_device tank").ok().says("enabled");
    host.image("slog2.img", 64 * MIB);
    host.shell("zpool add -n tank log $PWD/slog2.img").ok();
    host.shell("zpool add tank log $PWD/slog2.img $PWD/slog.img; zpool status -v tank")
        .ok()
        .says("on 2 devices");
    host.shell("zpool history tank").ok().says("zpool remove tank").says("zpool add tank log");
    host.shell("zpool events").ok().says("vdev_remove");
    // A killed daemon's successor finds them by what it remembers; another host by looking.
    promise(&host, "third");
    kill(&host);
    host.shell("zpool status -v tank").ok().says("replayed");
    host.shell("cat t/first t/second t/third").ok().says("firstsecondthird");
    host.shell("zpool export tank; zpool import -d $PWD").ok().says("slog2.img").says("logs");
    host.shell("zpool import -d $PWD tank; cat t/third; zpool destroy tank").ok().says("third");
}

#[test]
fn a_lost_or_foreign_log_device_is_missed_and_given_up_by_a_word() {
    let Some(host) = with_log("a lost log device") else { return };
    host.shell("echo kept > t/kept; zpool sync tank").ok();
    promise_and_kill(&host, &["promised"]);
    host.shell("mv slog.img away.img").ok();
    // The daemon that starts does not import it by itself, and says why.
    host.shell("zpool status -v tank").ok().says("UNAVAIL").says("LOG-MISSING");
    let said = refused(host.shell("zpool import -d $PWD/tank.img tank"), "LOG-MISSING");
    assert!(said.err.contains("All commits up to txg"), "{}", said.err);
    assert!(said.err.contains("zpool import --accept-lost-log tank"), "{}", said.err);
    // In its place a device of another pool.
    host.shell("zpool export tank; truncate -s 64M slog.img; zpool create -m none other $PWD/slog.img; zpool export other").ok();
    let said = refused(host.shell("zpool import -d $PWD/tank.img -d $PWD/slog.img tank"), "LOG-MISSING");
    assert!(said.err.contains("belongs to the pool 'other'"), "{}", said.err);
    host.shell("zpool import -d $PWD/tank.img").ok().says("LOG-MISSING").says("DEGRADED");
    // Found again under another name it is as if nothing had been.
    host.shell("cp --sparse=always tank.img tank2.img; cp --sparse=always away.img away2.img").ok();
    host.shell("zpool import -d $PWD/tank.img -d $PWD/away.img tank; cat t/promised").ok().says("promised");
    host.shell("zpool export tank; mv tank2.img tank.img").ok();
    // Given up.
    host.shell("zpool import -m").fails(2).says("accept-lost-log is for one pool");
    refused(host.shell("zpool import -d $PWD/tank.img -m tank"), "POOL-ACTIVE");
    host.shell("zpool import -f -d $PWD/tank.img -m tank; ls t").ok().says("kept");
    assert!(!host.at("t/promised").exists());
    host.shell("zpool status -v tank")
        .ok()
        .says("LOG-GIVEN-UP")
        .says("data that fsync acknowledged behind the imported commit is lost")
        .says("DEGRADED")
        .says("UNAVAIL")
        .says("zpool remove tank");
    host.shell("zpool history -i tank").ok().says("gave up the log device").says("is lost");
    host.shell("zpool events").ok().says("log_given_up");
    host.shell("zpool export tank; zpool import -d $PWD/tank.img tank").ok();
    host.shell("zpool remove tank $PWD/slog.img; zpool status -x tank").ok().says("healthy");
    host.shell("zpool destroy tank").ok();
}

/// A second daemon that finds the pool and not its log, which the first has open, is told so, and
/// is not told to give the log up; it does not do so when it is asked to.
#[test]
fn a_log_device_that_another_daemon_has_open_is_not_given_up() {
    let Some(host) = with_log("a log device in use") else { return };
    promise(&host, "promised");
    // A copy stands for a store, which nobody can lock.
    host.shell("cp --sparse=always tank.img copy.img; mkdir -m 700 run2").ok();
    let second = "export STEADFAST_RUNTIME_DIR=$PWD/run2; trap '$(readlink -f $(command -v zpool)) daemon stop' EXIT; zpool import -N -f";
    for words in ["", "-m"] {
        let said = refused(host.shell(&format!("{second} {words} -d $PWD/copy.img tank")), "VDEV-IN-USE");
        assert!(said.err.contains("is open in another program"), "{}", said.err);
    }
    host.shell("cat t/promised; zpool destroy tank").ok().says("promised");
}

#[test]
fn a_damaged_log_is_inspected_refused_and_gone_on_from() {
    let Some(host) = with_log("a damaged log") else { return };
    let dump = promise_and_kill(&host, &["one", "two", "three"]);
    host.run("inspect check {}/tank.img {}/slog.img").ok();
    let groups = groups(&dump);
    assert!(dump.out.contains("replayable=3") && dump.out.contains("counters:3"), "{}", dump.out);
    host.run("inspect log --json {}/tank.img {}/slog.img").ok().says("\"sequence\":2");
    // A byte in the middle of the second group.
    let slot = 512 << 10;
    let offset = groups[1].split("offset=").nth(1).and_then(|rest| rest.split(' ').next());
    let offset: u64 = offset.expect("an offset").parse().expect("a number");
    let log = OpenOptions::new().write(true).open(host.at("slog.img")).expect("an image");
    log.write_all_at(b"damage", slot + offset + 200).expect("written");
    drop(log);
    let said = host.run("inspect check {}/tank.img {}/slog.img");
    assert_eq!(said.status, 1, "{}", said.out);
    said.says("log-gap").says("worst=fatal");

    host.run("inspect log {}/tank.img {}/slog.img").ok().says("stranded=1").says("missing=1");
    host.shell("zpool status -v tank").ok().says("LOG-DAMAGED");
    let said = refused(host.shell("zpool import -d $PWD/tank.img -d $PWD/slog.img tank"), "LOG-DAMAGED");
    for word in ["Groups of the log after them: 1 are whole", "lost, by file system: tank 1", "1 are missing"]
    {
        assert!(said.err.contains(word), "{word}: {}", said.err);
    }
    host.shell("zpool import -o readonly=on -d $PWD/tank.img -d $PWD/slog.img tank; ls t; zpool export tank")
        .ok();
    host.shell("zpool import --accept-lost-log -d $PWD/tank.img -d $PWD/slog.img tank; cat t/one")
        .ok()
        .says("one");
    assert!(!host.at("t/two").exists() && !host.at("t/three").exists());
    host.shell("zpool history -i tank").ok().says("gave up a part of the intent log");
    promise(&host, "four");
    host.shell("zpool status -x tank; zpool export tank").ok().says("healthy");
    host.run("inspect check {}/tank.img {}/slog.img").ok();
    host.shell("zpool import -d $PWD/tank.img -d $PWD/slog.img tank; cat t/four; zpool destroy tank")
        .ok()
        .says("four");
}
