//! Devices attached, detached, removed and replaced through the command line, under a mount, with a
//! daemon killed in between.

use std::fs;

use steadfast_tests::{Host, noise};

const MIB: u64 = 1 << 20;

fn write(host: &Host, files: std::ops::Range<u64>) {
    for file in files {
        fs::write(host.at("t").join(format!("f{file}")), noise(file, 400_000)).expect("written");
    }
}

fn check(host: &Host, files: u64) {
    for file in 0..files {
        let bytes = fs::read(host.at("t").join(format!("f{file}"))).expect("readable");
        assert!(bytes == noise(file, 400_000), "file {file}");
    }
}

#[test]
fn a_pool_grows_and_shrinks_while_it_is_used() {
    let Some(host) = Host::with_images("attach and remove", 7, 128 * MIB) else { return };
    host.shell("zpool create -m $PWD/t tank $PWD/d1.img").ok();
    write(&host, 0..30);
    host.shell("zpool attach -w tank $PWD/d1.img $PWD/d2.img").ok();
    host.shell("zpool status tank").ok().says("mirror-0").says("resilvered");
    host.shell("zpool add -f tank raidz1 $PWD/d3.img $PWD/d4.img $PWD/d5.img").ok();
    host.shell("zpool rebalance -w tank").ok();
    host.shell("zpool status tank").ok().says("rebalance: Rebalance copied");
    host.shell("zpool attach -w tank raidz1-1 $PWD/d6.img").ok();
    host.shell("zpool status tank").ok().says("expand: Expansion copied").says("d6.img");
    let told = host.shell("zpool status -j --json-int tank").ok().says("\"raidz_expand_stats\":{");
    assert!(told.out.contains("\"to_reflow\":") && !told.out.contains("\"to_reflow\":\""), "{}", told.out);
    write(&host, 30..60);
    check(&host, 60);
    // A group leaves, and the daemon is killed meanwhile.
    host.shell("zpool remove tank mirror-0").ok();
    host.kill_daemon();
    host.shell("umount -l t").ok();
    host.shell("zpool wait -t remove tank").ok();
    let status = host.shell("zpool status tank").ok().says("remove: Removal of").says("raidz1-1");
    let told =
        host.shell("zpool status -j tank").ok().says("\"removal_stats\":{").says("\"mapping_memory\":");
    assert!(!told.out.contains("expand_stats"), "one is told, the last: {}", told.out);
    assert!(!status.out.contains("d1.img") && !status.out.contains("d2.img"), "{}", status.out);
    check(&host, 60);
    // A device that left is blank and comes again, as a single device; it is replaced, and removed.
    host.shell("zpool add -f tank $PWD/d1.img").ok();
    host.shell("zpool rebalance -w tank").ok();
    host.shell("zpool replace -w tank $PWD/d1.img $PWD/d7.img").ok();
    host.shell("zpool remove -n tank $PWD/d7.img").ok();
    host.shell("zpool remove -w tank $PWD/d7.img").ok();
    let status = host.shell("zpool status tank").ok();
    assert!(!status.out.contains("d7.img"), "{}", status.out);
    host.shell("zpool scrub -w tank").ok();
    host.shell("zpool status tank").ok().says("scrub repaired 0B").says("with 0 errors");
    check(&host, 60);
    host.shell("zpool export tank").ok();
    let devices: Vec<String> =
        (3..=6).map(|at| host.at(&format!("d{at}.img")).display().to_string()).collect();
    host.run(&format!("inspect check {}", devices.join(" "))).ok();
    host.shell("mkdir away; mv d4.img away; zpool import -d $PWD tank").ok();
    check(&host, 60);
    host.shell("zpool export tank").ok();
}

#[test]
fn what_cannot_be_moved_is_refused_and_nothing_changes() {
    let Some(host) = Host::with_images("refusals of verbs that move", 6, 128 * MIB) else { return };
    host.image("small.img", 64 * MIB);
    host.shell("zpool create -m $PWD/t tank mirror $PWD/d1.img $PWD/d2.img").ok();
    let before = host.shell("zpool status tank").ok().out;
    let refused = |line: &str, code: &str| {
        host.shell(line).fails(1).says(code);
    };
    refused("zpool attach tank $PWD/d1.img $PWD/d2.img", "VDEV-TWICE");
    host.shell("ln -s d2.img link.img").ok();
    refused("zpool attach tank $PWD/d1.img $PWD/link.img", "VDEV-TWICE");
    refused("zpool attach tank $PWD/d1.img $PWD/nothing.img", "VDEV-MISSING");
    refused("zpool attach tank $PWD/d3.img $PWD/d4.img", "VDEV-MISSING");
    refused("zpool attach tank $PWD/d1.img $PWD/small.img", "VDEV-SMALL");
    refused("zpool attach nopool $PWD/d1.img $PWD/d3.img", "POOL-ABSENT");
    refused("zpool detach tank $PWD/d3.img", "VDEV-MISSING");
    refused("zpool remove tank $PWD/d1.img", "VDEV-MEMBER");
    refused("zpool remove tank mirror-0", "VDEV-NEEDED");
    refused("zpool remove tank mirror-1", "VDEV-MISSING");
    refused("zpool remove -s tank", "MOVE-NONE");
    refused("zpool rebalance -s tank", "MOVE-NONE");
    refused("zpool rebalance -p tank", "MOVE-NONE");
    host.shell("zpool remove tank").fails(2);
    host.shell("zpool remove -s tank $PWD/d1.img").fails(2);
    host.shell("zpool rebalance -p -s tank").fails(2);
    assert_eq!(host.shell("zpool status tank").ok().out, before);
    // A device of another pool.
    host.shell("zpool create -m $PWD/o other raidz1 $PWD/d3.img $PWD/d4.img $PWD/d5.img").ok();
    refused("zpool attach tank $PWD/d1.img $PWD/d3.img", "VDEV-IN-USE");
    refused("zpool detach other $PWD/d3.img", "VDEV-DETACH");
    host.shell("zpool detach tank $PWD/d2.img").ok();
    refused("zpool detach tank $PWD/d1.img", "VDEV-NEEDED");
    host.shell("zpool attach -w tank $PWD/d1.img $PWD/d2.img").ok();
    host.shell("zpool resilver tank && zpool wait tank").ok();
    host.shell("zpool offline tank $PWD/d1.img").ok();
    refused("zpool detach tank $PWD/d2.img", "VDEV-NEEDED");
    // A device out of use is detached, as one that is dead.
    host.shell("zpool detach tank $PWD/d1.img").ok();
    host.shell("zpool status tank").ok().says("ONLINE").says("d2.img");
    host.shell("zpool export tank; zpool export other").ok();
}
