//! Mirrors of log devices through the command line: made, shown, without one of them, damaged,
//! changed in use, taken away.

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

/// A host with a pool `tank` at `t/` on `tank.img`, whose intent log is a mirror of `a.img` and
/// `b.img`; `c.img` and `d.img` wait.
fn with_mirror(test: &str) -> Option<Host> {
    if let Some(why) = no_fuse() {
        skip(test, &why);
        return None;
    }
    let host = Host::new();
    host.image("tank.img", 128 * MIB);
    for name in ["a.img", "b.img", "c.img", "d.img"] {
        host.image(name, 64 * MIB);
    }
    let create =
        "zpool create -m $PWD/t -O journal=ordered tank $PWD/tank.img log mirror $PWD/a.img $PWD/b.img";
    host.shell(create).ok();
    Some(host)
}

/// Makes a file durable by the log alone.
fn promise(host: &Host, name: &str) {
    let mut file = File::create(host.at("t").join(name)).expect("a file");
    file.write_all(name.as_bytes()).expect("written");
    file.sync_all().expect("durable");
}

/// Kills the daemon.
fn kill(host: &Host) {
    host.kill_daemon();
    host.shell("umount -l t").ok();
}

/// Lines of what `inspect log` prints: the groups that count, on each side.
fn groups(dump: &Ran) -> Vec<&str> {
    dump.out.lines().filter(|line| line.starts_with("group") && line.contains("counts=true")).collect()
}

/// Makes files durable by the log alone and kills the daemon; gives what the log holds then, a
/// group for each on each side. Should a commit have come in between, as one does five seconds
/// after the first change, it holds them, and all is done again.
fn promise_and_kill(host: &Host, names: &[&str]) -> Ran {
    for _ in 0..50 {
        names.iter().for_each(|name| promise(host, name));
        kill(host);
        let dump = host.run("inspect log {}/tank.img {}/a.img {}/b.img").ok();
        if groups(&dump).len() == 2 * names.len() {
            return dump;
        }
        host.shell(&format!("zpool list tank; cd t; rm {}; zpool sync tank", names.join(" "))).ok();
    }
    panic!("no five seconds without a commit");
}

#[test]
fn a_log_mirror_is_shown_as_zfs_shows_it() {
    let Some(host) = with_mirror("a log mirror") else { return };
    promise(&host, "first");
    let status = host.shell("zpool status -v tank").ok().says("on 2 devices");
    let lines: Vec<&str> = status.out.lines().collect();
    let at = lines.iter().position(|line| *line == "\tlogs").expect("a section");
    let words = ["\t  mirror-0 ", "a.img ", "b.img "];
    assert!(words.iter().zip(&lines[at + 1..]).all(|(word, line)| line.contains(word)), "{}", status.out);
    assert!(status.out.contains("   log: 63M"), "its slots count once: {}", status.out);
    host.shell("zpool status -j tank").ok().says("\"vdev_type\":\"mirror\"").says("\"class\":\"log\"");
    host.shell("zpool list -v tank").ok().says("logs").says("mirror-0").says("b.img");
    host.shell("zpool iostat -v tank").ok().says("logs").says("mirror-0").says("b.img");
    host.shell("zpool get -H -o value feature@log_mirrors tank").ok().says("active");
    host.shell("zpool export tank; zpool import -d $PWD").ok().says("logs").says("mirror-0").says("ONLINE");
    host.shell("zpool import -d $PWD tank; cat t/first").ok().says("first");
    let plan = host.shell("zpool add -n tank log mirror $PWD/c.img $PWD/d.img").ok().out;
    let plan: Vec<&str> = plan.lines().map(str::trim).collect();
    let at = plan.iter().rposition(|line| *line == "log").unwrap_or_else(|| panic!("{plan:?}"));
    assert_eq!(plan[at + 1], "mirror", "{plan:?}");
    let create = "zpool create -n -m none two $PWD/c.img log mirror $PWD/d.img $PWD/e.img";
    refused(host.shell(create), "VDEV-MISSING");
    host.image("e.img", 64 * MIB);
    let plan = host.shell(create).ok().out;
    assert!(plan.contains("\tlog\n\t  mirror\n\t    "), "{plan}");
    host.shell("zpool destroy tank").ok();
}

#[test]
fn either_side_is_enough_for_an_import() {
    let Some(host) = with_mirror("a log mirror without one side") else { return };
    host.shell("echo kept > t/kept; zpool sync tank").ok();
    promise_and_kill(&host, &["one"]);
    host.run("inspect check {}/tank.img {}/a.img {}/b.img").ok();
    host.run("inspect check {}/tank.img {}/b.img").says("log-side-missing");
    // The daemon that starts imports it by itself, without the one that is away.
    host.shell("mv a.img away.img; zpool status -v tank")
        .ok()
        .says("DEGRADED")
        .says("UNAVAIL")
        .says("replayed");
    let told = host.shell("cat t/one; zpool status -v tank").ok().says("one").says("LOG-FAILED");
    told.says("continues without it").says("zpool detach tank");
    // Promises from now on are on the other device alone. The first is not believed any more.
    let mut wrote = false;
    for _ in 0..50 {
        promise(&host, "two");
        kill(&host);
        let dump = host.run("inspect log {}/tank.img {}/b.img").ok();
        if groups(&dump).len() == 1 {
            wrote = true;
            break;
        }
        host.shell("zpool list tank; rm t/two; zpool sync tank").ok();
    }
    assert!(wrote, "no five seconds without a commit");
    host.shell("mv b.img later.img; mv away.img a.img").ok();
    host.shell("zpool status -v tank").ok().says("UNAVAIL").says("LOG-MISSING");
    let said = refused(host.shell("zpool import -d $PWD/tank.img -d $PWD/a.img tank"), "LOG-MISSING");
    assert!(said.err.contains("All commits up to") && said.err.contains("b.img"), "{}", said.err);
    host.shell("zpool import -d $PWD/tank.img -d $PWD/a.img").ok().says("LOG-MISSING").says("DEGRADED");
    // Both again: what returns is a side again, without being asked for.
    host.shell("mv later.img b.img; zpool export tank").ok();
    host.shell("zpool import -d $PWD tank; cat t/two").ok().says("two");
    host.shell("zpool status -x tank").ok().says("healthy");
    promise_and_kill(&host, &["three"]);
    host.shell("mv b.img away.img; zpool status -v tank; cat t/three").ok().says("three").says("DEGRADED");
    host.shell("zpool export tank; mv away.img b.img; zpool import -d $PWD tank; zpool status -x tank")
        .ok()
        .says("healthy");
    // With neither it is as with a single one.
    promise_and_kill(&host, &["four"]);
    host.shell("mkdir away; mv a.img b.img away").ok();
    let said = refused(host.shell("zpool export tank; zpool import -d $PWD/tank.img tank"), "LOG-MISSING");
    assert!(said.err.contains("a.img") && said.err.contains("b.img"), "{}", said.err);
    host.shell("zpool import -d $PWD/tank.img -m tank; ls t").ok().says("kept").says("three");
    assert!(!host.at("t/four").exists());
    host.shell("zpool history -i tank").ok().says("gave up the log device").says("is lost");
    host.shell("zpool remove tank mirror-0; zpool status -x tank; zpool destroy tank").ok().says("healthy");
}

#[test]
fn what_one_side_lost_is_mended_from_the_other() {
    let Some(host) = with_mirror("a log mirror with a damaged side") else { return };
    let dump = promise_and_kill(&host, &["one", "two", "three"]);
    let groups = groups(&dump);
    // A byte in the middle of the second group, on the first side.
    let second = groups.iter().find(|line| line.contains("a.img") && line.contains("sequence=2 "));
    let second = second.unwrap_or_else(|| panic!("{}", dump.out));
    let offset = second.split("offset=").nth(1).and_then(|rest| rest.split(' ').next());
    let offset: u64 = offset.expect("an offset").parse().expect("a number");
    let log = OpenOptions::new().write(true).open(host.at("a.img")).expect("an image");
    log.write_all_at(b"damage", (512 << 10) + offset + 200).expect("written");
    drop(log);
    let said = host.run("inspect check {}/tank.img {}/a.img {}/b.img");
    assert_eq!(said.status, 1, "{}", said.out);
    said.says("log-copy").says("worst=degraded");
    host.shell("zpool list tank; cat t/one t/two t/three").ok().says("onetwothree");
    let status = host.shell("zpool status -v tank").ok().says("ONLINE").says("3 groups replayed").out;
    let row = status.lines().find(|line| line.contains("a.img")).expect("a row");
    assert_eq!(row.split_whitespace().nth(4), Some("1"), "CKSUM: {status}");
    host.shell("zpool events").ok().says("log_checksum");
    host.shell("zpool clear tank; zpool export tank").ok();
    host.run("inspect check {}/tank.img {}/a.img {}/b.img").ok();
    host.shell("zpool import -d $PWD tank; zpool destroy tank").ok();
}

/// Nothing reads labels while a pool is in use. A scrub writes those of each kind of device again.
#[test]
fn a_scrub_mends_labels_that_were_wiped() {
    let Some(host) = with_mirror("wiped labels") else { return };
    for name in ["s.img", "e.img"] {
        host.image(name, 128 * MIB);
    }
    host.shell(
        "zpool add tank cache $PWD/c.img spare $PWD/s.img; zpool attach -w tank $PWD/tank.img $PWD/e.img",
    )
    .ok();
    promise(&host, "first");
    let images = ["a.img", "c.img", "s.img", "e.img"];
    for name in images {
        let image = OpenOptions::new().write(true).open(host.at(name)).expect("an image");
        let bytes = image.metadata().expect("its size").len();
        image.set_len(0).expect("cut");
        image.set_len(bytes).expect("as long as before");
    }
    host.shell("zpool scrub -w tank; zpool sync").ok();
    // Each is told, and a side of the log counts it: nothing else reads what it held.
    let told = host.shell("zpool events -v").ok().out;
    let wiped = told.split("\n\n").filter(|event| event.contains("bad_label"));
    let wiped: Vec<&str> =
        wiped.filter_map(|event| event.split("vdev_path").nth(1)?.lines().next()).collect();
    let is_of = |name: &str| wiped.iter().filter(|line| line.contains(name)).count();
    assert_eq!((wiped.len(), is_of("/a.img"), is_of("/e.img")), (2, 1, 1), "{told}");
    let status = host.shell("zpool status tank").ok().out;
    let checksums = |name: &str| {
        let row = status.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{status}"));
        row.split_whitespace().nth(4).map(str::to_owned)
    };
    assert_eq!((checksums("/a.img").as_deref(), checksums("/b.img").as_deref()), (Some("1"), Some("0")));
    promise(&host, "second");
    kill(&host);
    for name in images {
        let labels = host.run(&format!("inspect label {{}}/{name}")).ok().out;
        assert_eq!(labels.matches("valid=true").count(), 4, "{name}: {labels}");
    }
    // The side that was wiped has the files that `fsync` promised.
    std::fs::remove_file(host.at("b.img")).expect("removed");
    std::fs::remove_file(host.at("tank.img")).expect("removed");
    host.shell("zpool list tank; cat t/first t/second; zpool destroy tank").ok().says("firstsecond");
}

#[test]
fn log_devices_change_in_use() {
    let Some(host) = with_mirror("verbs of log mirrors") else { return };
    promise(&host, "first");
    // Refused changes.
    refused(host.shell("zpool remove tank $PWD/a.img"), "VDEV-MEMBER").says("mirror-0");
    refused(host.shell("zpool attach tank $PWD/a.img $PWD/b.img"), "VDEV-TWICE");
    refused(host.shell("zpool attach tank $PWD/a.img $PWD/tank.img"), "VDEV-TWICE");
    host.image("small.img", MIB);
    refused(host.shell("zpool attach tank $PWD/a.img $PWD/small.img"), "VDEV-SMALL");
    refused(host.shell("zpool attach tank mirror-7 $PWD/c.img"), "VDEV-MISSING");
    refused(host.shell("zpool replace tank $PWD/a.img"), "VDEV-IN-PLACE");
    refused(host.shell("zpool remove tank mirror-0 mirror-0"), "VDEV-TWICE");
    host.image("s.img", 128 * MIB);
    host.shell("zpool add tank spare $PWD/s.img").ok();
    refused(host.shell("zpool replace tank $PWD/a.img $PWD/s.img"), "VDEV-IN-USE")
        .says("cannot replace a log with a spare");
    host.shell("zpool remove tank $PWD/s.img").ok();
    // A third side, by the name of the mirror; one goes, another is exchanged.
    host.shell("zpool attach -w tank mirror-0 $PWD/c.img").ok();
    host.shell("zpool status -v tank").ok().says("c.img").says("on 3 devices");
    host.shell("zpool detach tank $PWD/a.img; zpool status -x tank").ok().says("healthy");
    assert!(!host.shell("zpool status -v tank").ok().out.contains("a.img"));
    promise(&host, "second");
    host.shell("zpool replace tank $PWD/b.img $PWD/d.img").ok();
    host.shell("zpool status -v tank").ok().says("d.img").says("mirror-0");
    assert!(!host.shell("zpool status -v tank").ok().out.contains("b.img"));
    // Out and in.
    host.shell("zpool offline tank $PWD/c.img; zpool status -v tank").ok().says("OFFLINE").says("DEGRADED");
    refused(host.shell("zpool detach tank $PWD/d.img"), "VDEV-NEEDED");
    promise(&host, "third");
    host.shell("zpool export tank; zpool import -d $PWD tank; zpool status -v tank").ok().says("OFFLINE");
    host.shell("zpool online tank $PWD/c.img; zpool status -x tank").ok().says("healthy");
    host.shell("zpool offline -f tank $PWD/c.img; zpool status -v tank").ok().says("FAULTED");
    host.shell("zpool clear tank $PWD/c.img; zpool status -x tank").ok().says("healthy");
    host.shell("zpool offline tank $PWD/c.img; zpool offline -t tank $PWD/d.img; zpool status -v tank")
        .ok()
        .says("in the pool");
    promise(&host, "fourth");
    host.shell("zpool online tank $PWD/c.img $PWD/d.img; zpool status -x tank").ok().says("healthy");
    // In its own place: what lies under its path is another device now.
    host.shell("zpool offline tank $PWD/c.img; rm c.img; truncate -s 64M c.img").ok();
    host.shell("zpool replace tank $PWD/c.img").ok();
    host.shell("zpool status -x tank").ok().says("healthy");
    promise(&host, "fifth");
    // A single log device becomes a mirror, and a mirror goes whole.
    host.shell(
        "zpool add tank log $PWD/a.img; zpool attach tank $PWD/a.img $PWD/b.img; zpool status -v tank",
    )
    .ok()
    .says("mirror-1")
    .says("on 4 devices");
    host.shell("zpool remove -n tank mirror-1; zpool status -v tank").ok().says("mirror-1");
    host.shell("zpool remove tank mirror-1; zpool history tank").ok().says("zpool remove tank mirror-1");
    let status = host.shell("zpool status -v tank").ok().out;
    assert!(!status.contains("mirror-1") && !status.contains("a.img"), "{status}");
    host.shell("zpool remove tank mirror-0").ok();
    host.shell("zpool get -H -o value feature@log_mirrors tank").ok().says("enabled");
    // Another group gets a number that no log mirror had beside it.
    host.shell("zpool add tank log mirror $PWD/a.img $PWD/b.img").ok();
    host.image("e.img", 128 * MIB);
    host.shell("zpool attach -w tank $PWD/tank.img $PWD/e.img; zpool status -v tank").ok().says("mirror-1");
    kill(&host);
    host.shell("zpool status -v tank; cat t/first t/second t/third t/fourth t/fifth")
        .ok()
        .says("firstsecondthirdfourthfifth");
    host.shell("zpool export tank; zpool import -d $PWD tank; zpool destroy tank").ok();
}
