//! Special devices through the command line: created, added, filled, shown, replaced, removed, and
//! lost.

use std::fs;

use steadfast_tests::{Host, noise};

const MIB: u64 = 1 << 20;

/// Bytes allocated on the line of a vdev in `zpool list -v`.
fn allocated(host: &Host, vdev: &str) -> u64 {
    column(host, vdev, 1)
}

/// A number of the line of a vdev in `zpool list -v -H -p`: allocated, or its size.
fn column(host: &Host, vdev: &str, at: usize) -> u64 {
    let told = host.shell("zpool list -v -H -p -o name,allocated,size tank").ok().out;
    let mut lines = told.lines().map(str::trim_start);
    let line = lines.find(|line| line.split('\t').next().is_some_and(|name| name.ends_with(vdev)));
    let line = line.unwrap_or_else(|| panic!("{vdev} in\n{told}"));
    line.split('\t').nth(at).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

fn write(host: &Host, folder: &str, files: u64, bytes: usize) {
    let folder = host.at("t").join(folder);
    fs::create_dir(&folder).expect("made");
    for file in 0..files {
        fs::write(folder.join(format!("f{file}")), noise(file, bytes)).expect("written");
    }
    host.shell("zpool sync tank").ok();
}

fn check(host: &Host, folder: &str, files: u64, bytes: usize) {
    for file in 0..files {
        let read = fs::read(host.at("t").join(folder).join(format!("f{file}"))).expect("readable");
        assert!(read == noise(file, bytes), "{folder}/f{file}");
    }
}

#[test]
fn a_special_mirror_is_created_shown_filled_healed_and_removed() {
    let Some(host) = Host::with_images("special devices", 3, 128 * MIB) else { return };
    for at in 1..=3 {
        host.image(&format!("s{at}.img"), 64 * MIB);
    }
    let main = "$PWD/d1.img $PWD/d2.img $PWD/d3.img";
    // A weaker special device is refused, and so is another kind that survives more or less.
    host.shell(&format!("zpool create tank raidz1 {main} special $PWD/s1.img"))
        .fails(1)
        .says("VDEV-MISMATCH");
    host.shell(&format!(
        "zpool create tank raidz1 {main} special mirror $PWD/s1.img $PWD/s2.img $PWD/s3.img"
    ))
    .fails(1)
    .says("VDEV-MISMATCH");
    host.shell("zpool create tank special mirror $PWD/s1.img $PWD/s2.img").fails(1).says("VDEV-MISSING");
    host.shell(&format!("zpool create -m $PWD/t tank raidz1 {main} special mirror $PWD/s1.img $PWD/s2.img"))
        .ok();
    let status = host.shell("zpool status tank").ok().says("raidz1-0").says("special").says("mirror-1").out;
    let place = |what: &str| status.find(what).unwrap_or_else(|| panic!("{what} in\n{status}"));
    assert!(place("d3.img") < place("special") && place("special") < place("mirror-1"), "{status}");
    host.shell("zpool list -v tank").ok().says("special").says("s2.img");
    // A mirror is as large as one of its devices, raidz as all of them together.
    let size = |vdev: &str| column(&host, vdev, 2);
    assert_eq!(size("mirror-1"), size("s1.img"));
    assert_eq!(size("raidz1-0"), size("d1.img") + size("d2.img") + size("d3.img"));
    let told = host.shell("zpool status -j --json-int tank").ok().out;
    assert!(told.contains(&format!("\"total_space\":{}", size("mirror-1"))), "{told}");
    host.shell("zpool iostat -v tank").ok().says("special");
    host.shell("zpool status -j tank").ok().says("\"class\":\"special\"");
    host.shell("zpool get feature@special_devices tank").ok().says("active");
    host.shell("zpool get -H -o value feature@allocation_classes tank").ok().says("active");
    for size in ["17M", "32M", "256", "1025"] {
        host.shell(&format!("zfs set special_small_blocks={size} tank")).fails(1).says("PROP-VALUE");
    }
    host.shell("zfs get -H -o value special_small_blocks tank").ok().says("0");

    write(&host, "large", 40, 200_000);
    let [content, metadata] = ["raidz1-0", "mirror-1"].map(|vdev| allocated(&host, vdev));
    assert!(content > 40 * 200_000 && metadata < content / 4, "{content} {metadata}");
    host.shell("zfs set special_small_blocks=32K tank").ok();
    write(&host, "small", 60, 30_000);
    let [after, small] = ["raidz1-0", "mirror-1"].map(|vdev| allocated(&host, vdev));
    assert!(after == content && small > metadata + 60 * 30_000, "{content} {after}, {metadata} {small}");

    // One of the two goes, is missed, and another one takes its place.
    host.shell("zpool offline tank $PWD/s1.img").ok();
    host.shell("zpool offline tank $PWD/s2.img").fails(1).says("VDEV-NEEDED");
    write(&host, "meanwhile", 20, 30_000);
    host.shell("zpool replace -w -f tank $PWD/s1.img $PWD/s3.img").ok();
    host.shell("zpool scrub -w tank && zpool status tank").ok().says("No known data errors").says("s3.img");
    host.shell("zpool export tank && zpool import -d $PWD tank").ok();
    for (folder, files, bytes) in [("large", 40, 200_000), ("small", 60, 30_000), ("meanwhile", 20, 30_000)] {
        check(&host, folder, files, bytes);
    }
    // The last normal group cannot go, the special one can.
    host.shell("zpool remove tank raidz1-0").fails(1);
    host.shell("zpool remove -w tank mirror-1").ok();
    let status = host.shell("zpool status tank").ok().out;
    assert!(!status.contains("special") && !status.contains("mirror-1"), "{status}");
    for (folder, files, bytes) in [("large", 40, 200_000), ("small", 60, 30_000), ("meanwhile", 20, 30_000)] {
        check(&host, folder, files, bytes);
    }
    // Added to a pool with files, it gets metadata by a rebalance.
    host.shell("zpool add tank special $PWD/s1.img").fails(1).says("VDEV-MISMATCH");
    host.shell("zpool add -f tank special $PWD/s1.img").ok();
    host.shell("zpool rebalance -w tank").ok();
    assert!(allocated(&host, "s1.img") > 0, "a single special device is no member of a group");
    host.shell("zpool attach -w -f tank $PWD/s1.img $PWD/s2.img").ok();
    host.shell("zpool status tank").ok().says("special");
    check(&host, "small", 60, 30_000);
    host.shell("zpool export tank").ok();
    host.run("inspect check {}/d1.img {}/d2.img {}/d3.img {}/s1.img {}/s2.img").ok();
}

#[test]
fn a_pool_without_its_special_devices_is_not_opened_and_says_so() {
    let Some(host) = Host::with_images("lost special devices", 1, 128 * MIB) else { return };
    host.image("s1.img", 64 * MIB);
    host.shell("zpool create -m $PWD/t tank $PWD/d1.img special $PWD/s1.img").ok();
    write(&host, "f", 10, 20_000);
    host.shell("zpool export tank && mkdir away && mv s1.img away").ok();
    host.shell("zpool import -d $PWD tank").fails(1).says("s1.img").says("metadata");
    host.shell("mv away/s1.img . && zpool import -d $PWD tank").ok();
    check(&host, "f", 10, 20_000);
}
