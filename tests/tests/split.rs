//! A pool of mirrors is split under a mount, and both halves are used beside each other; devices
//! out of use until the next import.

use std::fs;

use steadfast_tests::Host;

const MIB: u64 = 1 << 20;

#[test]
fn a_pool_is_split_and_both_halves_are_mounted() {
    let Some(host) = Host::with_images("split", 5, 128 * MIB) else { return };
    host.shell("zpool create -m $PWD/t tank mirror $PWD/d1.img $PWD/d2.img mirror $PWD/d3.img $PWD/d4.img")
        .ok();
    host.shell("zfs create tank/home && echo before > t/home/f && head -c 3000000 /dev/urandom > t/r").ok();
    let random = fs::read(host.at("t/r")).expect("readable");
    let told = host.shell("zpool split -n tank other").ok().says("would create 'other'").out;
    assert!(told.contains("d2.img") && told.contains("d4.img") && !told.contains("d1.img"), "{told}");
    let numbers = host.shell("zpool split -n -g tank other").ok().out;
    let named = host.shell("zpool get -H -o value guid tank $PWD/d2.img $PWD/d4.img").ok().out;
    assert!(named.lines().all(|number| numbers.contains(&format!("\n\t  {number}\n"))), "{numbers}{named}");
    let told = host.shell("zpool iostat -H -p tank $PWD/d1.img mirror-1").ok().out;
    let first = |line: &str| line.split('\t').next().map(str::to_owned);
    let told: Vec<String> = told.lines().filter_map(first).collect();
    assert_eq!(told, [host.at("d1.img").display().to_string(), "mirror-1".to_owned()]);
    host.shell("zpool split -o size=7 tank other").fails(1).says("PROP-READONLY");
    host.shell("zpool split tank t@nk").fails(1).says("NAME-INVALID");
    host.shell("zpool split tank tank").fails(1).says("POOL-EXISTS");
    host.shell("zpool split tank other $PWD/d5.img").fails(1).says("VDEV-MISSING");
    host.shell("zpool split tank other $PWD/d1.img $PWD/d2.img").fails(1).says("POOL-SPLIT");
    host.shell("zpool split -o comment=half -R $PWD/o tank other $PWD/d1.img").ok();
    host.shell("zpool get -H -o value comment other tank").ok().says("half\n-\n");
    let status = host.shell("zpool status tank").ok().says("d2.img").says("d3.img").says("ONLINE").out;
    assert!(
        !status.contains("d1.img") && !status.contains("d4.img") && !status.contains("mirror-"),
        "{status}"
    );
    host.shell("zpool history tank").ok().says("zpool split");
    host.shell("echo after > t/home/f").ok();
    host.shell("zpool list").ok().says("tank").says("other");
    let other = fs::canonicalize(host.at("o"))
        .expect("there")
        .join(host.at("t").strip_prefix("/").expect("absolute"));
    assert_eq!(fs::read_to_string(other.join("home/f")).expect("readable"), "before\n");
    assert!(fs::read(other.join("r")).expect("readable") == random);
    assert_eq!(fs::read_to_string(host.at("t/home/f")).expect("readable"), "after\n");
    host.shell("zpool scrub -w tank && zpool scrub -w other && zpool status")
        .ok()
        .says("No known data errors");
    host.shell("zpool attach -w tank $PWD/d2.img $PWD/d5.img").ok();
    host.shell("zpool export other && zpool export tank && zpool import -d $PWD tank && zpool status tank")
        .ok()
        .says("d5.img");
    assert_eq!(fs::read_to_string(host.at("t/home/f")).expect("readable"), "after\n");
    host.run("inspect check {}/d1.img {}/d4.img").ok();
}

#[test]
fn offline_until_import_or_as_failed_and_a_device_in_its_own_place() {
    let Some(host) = Host::with_images("offline", 4, 128 * MIB) else { return };
    let raidz = "raidz1 $PWD/d1.img $PWD/d2.img $PWD/d3.img spare $PWD/d4.img";
    host.shell(&format!("zpool create -m $PWD/t tank {raidz}")).ok();
    host.shell("zpool replace tank $PWD/d1.img").fails(1).says("VDEV-IN-PLACE").says("zpool offline tank");
    host.shell("zpool offline -t tank $PWD/d1.img && echo meanwhile > t/f && zpool sync tank").ok();
    host.shell("zpool status tank").ok().says("OFFLINE").says("AVAIL");
    host.shell("zpool export tank && zpool import -d $PWD tank && zpool wait -t resilver tank").ok();
    let status = host.shell("zpool status tank").ok().out;
    assert!(!status.contains("OFFLINE"), "{status}");
    // For good, and as failed: a spare steps in.
    host.shell("zpool offline tank $PWD/d1.img && zpool export tank && zpool import -d $PWD tank").ok();
    host.shell("zpool status tank").ok().says("OFFLINE");
    host.shell("zpool online tank $PWD/d1.img && zpool wait -t resilver tank").ok();
    host.shell("zpool offline -f tank $PWD/d2.img").ok();
    host.shell("zpool wait -t resilver tank; zpool status tank").ok().says("INUSE");
    // It comes back, and the spare waits again: a scrub is refused while what it holds moves over.
    host.shell("zpool online tank $PWD/d2.img; zpool wait -t resilver tank; zpool scrub -w tank").ok();
    host.shell("zpool status tank").ok().says("No known data errors").says("AVAIL");
    assert_eq!(fs::read_to_string(host.at("t/f")).expect("readable"), "meanwhile\n");
}
