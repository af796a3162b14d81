//! A raidz2 pool through the command line: devices zeroed and spoilt under a mount, scrubbed,
//! replaced, taken away, and every file right after each.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use steadfast_tests::{Host, noise};

const MIB: u64 = 1 << 20;

fn check(host: &Host, files: u64) {
    for file in 0..files {
        let bytes = fs::read(host.at("t").join(format!("f{file}"))).expect("readable");
        assert!(bytes == noise(file, 400_000), "file {file}");
    }
}

/// Overwrites what a device holds between its front and its back labels, behind the pool's back.
fn spoil(host: &Host, image: &str, from: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(host.at(image)).expect("an image");
    file.write_all_at(bytes, from).expect("written");
    file.sync_all().expect("durable");
}

#[test]
fn a_raidz2_pool_lives_through_zeroed_spoilt_replaced_and_missing_devices() {
    let Some(host) = Host::with_images("raidz2", 7, 128 * MIB) else { return };
    let devices = "$PWD/d1.img $PWD/d2.img $PWD/d3.img $PWD/d4.img $PWD/d5.img $PWD/d6.img";
    host.shell(&format!("zpool create -m $PWD/t tank raidz2 {devices}")).ok();
    host.shell("zpool status tank").ok().says("raidz2-0").says("d6.img");
    let files = 60;
    for file in 0..files {
        fs::write(host.at("t").join(format!("f{file}")), noise(file, 400_000)).expect("written");
    }
    host.shell("zpool sync tank").ok();
    // One device zeroed between its labels, another with noise in the middle, while the pool is
    // mounted.
    spoil(&host, "d1.img", MIB / 2, &vec![0; 126 << 20]);
    spoil(&host, "d4.img", 3 * MIB, &noise(99, 2 << 20));
    check(&host, files);
    host.shell("zpool scrub -w tank").ok();
    let status = host.shell("zpool status tank").ok().says("scan: scrub repaired").says("with 0 errors");
    let line = |image: &str| {
        let found = status.out.lines().find(|line| line.starts_with("\t  ") && line.contains(image));
        found
            .unwrap_or_else(|| panic!("{image} in\n{}", status.out))
            .split_whitespace()
            .map(str::to_owned)
            .collect()
    };
    let checksums: Vec<Vec<String>> = ["d1.img", "d4.img", "d2.img"].into_iter().map(line).collect();
    assert!(checksums[0][4] != "0" && checksums[1][4] != "0", "{}", status.out);
    assert_eq!(checksums[2][4], "0", "{}", status.out);
    host.shell("zpool clear tank").ok();
    host.shell("zpool scrub -w tank").ok();
    host.shell("zpool status tank").ok().says("scan: scrub repaired 0B");
    check(&host, files);
    // A device is replaced while it is there.
    host.shell("zpool replace -w tank $PWD/d2.img $PWD/d7.img").ok();
    let status = host.shell("zpool status tank").ok().says("resilvered").says("d7.img");
    assert!(!status.out.contains("d2.img"), "{}", status.out);
    // Two are taken out of use, and a third cannot be.
    host.shell("zpool offline tank $PWD/d3.img $PWD/d5.img").ok();
    host.shell("zpool offline tank $PWD/d6.img").fails(1).says("VDEV-NEEDED");
    host.shell("zpool status tank").ok().says("DEGRADED").says("OFFLINE").says("VDEV-DEGRADED");
    fs::write(host.at("t/f0"), noise(0, 400_000)).expect("written");
    check(&host, files);
    host.shell("zpool online tank $PWD/d3.img $PWD/d5.img").ok();
    host.shell("zpool wait -t resilver tank").ok();
    // Two others are gone at the next import.
    host.shell("zpool export tank").ok();
    fs::rename(host.at("d1.img"), host.at("d1.away")).expect("renamed");
    fs::rename(host.at("d7.img"), host.at("d7.away")).expect("renamed");
    fs::rename(host.at("d2.img"), host.at("d2.away")).expect("renamed");
    host.shell("mkdir away; mv *.away away; zpool import -d $PWD tank").ok();
    host.shell("zpool status tank").ok().says("UNAVAIL").says("was not found at import");
    check(&host, files);
    // A daemon that is killed finds it again as it is.
    host.kill_daemon();
    host.shell("umount -l t").ok();
    host.shell("zpool status tank").ok().says("DEGRADED").says("UNAVAIL");
    check(&host, files);
    host.shell("zpool export tank").ok();
    // And a third is too many.
    fs::rename(host.at("d3.img"), host.at("away/d3.away")).expect("renamed");
    host.shell("zpool import -d $PWD tank").fails(1).says("POOL-DEVICES");
}

#[test]
fn device_lists_that_make_no_sense_are_refused() {
    let Some(host) = Host::with_images("refusals of groups", 5, 64 * MIB) else { return };
    let refused = |line: &str, code: &str| {
        host.shell(line).fails(1).says(code);
    };
    refused("zpool create tank mirror $PWD/d1.img", "VDEV-GROUP");
    refused("zpool create tank raidz2 $PWD/d1.img $PWD/d2.img", "VDEV-GROUP");
    refused("zpool create tank mirror $PWD/d1.img $PWD/d1.img", "VDEV-TWICE");
    host.shell("ln -s d1.img link.img").ok();
    refused("zpool create tank mirror $PWD/d1.img $PWD/link.img", "VDEV-TWICE");
    refused(
        "zpool create tank mirror $PWD/d1.img $PWD/d2.img $PWD/d3.img mirror $PWD/d4.img $PWD/d5.img",
        "VDEV-MISMATCH",
    );
    host.shell("zpool create -m $PWD/t tank mirror $PWD/d1.img $PWD/d2.img").ok();
    refused("zpool add tank $PWD/d3.img", "VDEV-MISMATCH");
    refused("zpool replace tank $PWD/d1.img $PWD/d2.img", "VDEV");
    refused("zpool replace tank $PWD/d3.img $PWD/d4.img", "VDEV-MISSING");
    refused("zpool scrub -s tank", "SCAN-NONE");
    let at = host.path().display().to_string();
    let tree = |text: &str| text.replace(&at, "").lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
    let would = host.shell("zpool add -n tank mirror $PWD/d3.img $PWD/d4.img cache $PWD/d5.img").ok().out;
    assert!(
        tree(&would).ends_with(
            "\ttank\n\t  mirror-0\n\t    /d1.img\n\t    /d2.img\n\t  mirror\n\t    /d3.img\n\t    /d4.img\n\tcache\n\t  /d5.img"
        ),
        "{would}"
    );
    host.shell("zpool add tank mirror $PWD/d3.img $PWD/d4.img").ok();
    host.shell("zpool status tank").ok().says("mirror-0").says("mirror-1");
    host.shell("zpool export tank").ok();
    // Pools that can be imported are shown with their groups.
    let shown = host.shell("rm d4.img; zpool import -d $PWD").ok().out;
    let states: Vec<(&str, &str)> = shown
        .lines()
        .skip_while(|line| !line.starts_with('\t'))
        .filter_map(|line| line.trim().split_once(' '))
        .map(|(name, state)| {
            (name.trim_start_matches(&at), state.split_whitespace().next().unwrap_or_default())
        })
        .collect();
    let expected = [
        ("tank", "DEGRADED"),
        ("mirror-0", "ONLINE"),
        ("/d1.img", "ONLINE"),
        ("/d2.img", "ONLINE"),
        ("mirror-1", "DEGRADED"),
        ("/d3.img", "ONLINE"),
        ("/d4.img", "UNAVAIL"),
    ];
    assert_eq!(states, expected, "{shown}");
}

#[test]
fn a_spare_steps_in_for_a_missing_device_and_waits_again_when_that_is_replaced() {
    let Some(host) = Host::with_images("spares", 4, 128 * MIB) else { return };
    host.shell("zpool create -m $PWD/t tank mirror $PWD/d1.img $PWD/d2.img spare $PWD/d3.img").ok();
    host.shell("zpool status tank").ok().says("spares").says("AVAIL");
    let listed = host.shell("zpool list -v tank").ok().out;
    assert!(listed.lines().any(|line| line.starts_with("spare ")), "{listed}");
    host.shell("zpool add tank spare $PWD/d3.img").fails(1);
    for file in 0..10 {
        fs::write(host.at("t").join(format!("f{file}")), noise(file, 400_000)).expect("written");
    }
    host.shell("zpool export tank && mkdir away && mv d1.img away && zpool import -d $PWD tank").ok();
    // Of itself, and whoever waits finds it done.
    host.shell("zpool wait tank").ok();
    let told = host.shell("zpool status tank").ok().says("replaced by a spare").out;
    assert!(told.contains("spare-0") && told.contains("INUSE") && told.contains("DEGRADED"), "{told}");
    host.shell("zpool remove tank $PWD/d3.img").fails(1).says("SPARE-IN-USE");
    check(&host, 10);
    host.shell("zpool replace -w tank $PWD/d1.img $PWD/d4.img").ok();
    let told = host.shell("zpool status tank").ok().says("AVAIL").out;
    assert!(!told.contains("spare-0") && told.contains("d4.img"), "{told}");
    check(&host, 10);
    host.shell("zpool remove tank $PWD/d3.img").ok();
    let told = host.shell("zpool status tank").ok();
    assert!(!told.out.contains("spares"), "{}", told.out);
    host.shell("zpool export tank").ok();
}

#[test]
fn a_spare_is_put_in_by_hand_and_a_wiped_device_replaces_itself() {
    let Some(host) = Host::with_images("spares by hand", 5, 128 * MIB) else { return };
    host.shell("zpool create -m $PWD/t tank mirror $PWD/d1.img $PWD/d2.img spare $PWD/d3.img $PWD/d4.img")
        .ok();
    for file in 0..10 {
        fs::write(host.at("t").join(format!("f{file}")), noise(file, 400_000)).expect("written");
    }
    // The one that is named, not the first one that fits.
    host.shell("zpool replace -w tank $PWD/d1.img $PWD/d4.img; zpool wait tank").ok();
    let told = host.shell("zpool status tank").ok().out;
    let line = |of: &str| told.lines().rfind(|line| line.contains(of)).unwrap_or_default().to_owned();
    assert!(told.contains("spare-0") && line("d4.img").contains("INUSE"), "{told}");
    assert!(line("d3.img").contains("AVAIL"), "{told}");
    host.shell("zpool replace tank $PWD/d1.img $PWD/d3.img").fails(1).says("SPARE-IN-USE");
    host.shell("zpool replace tank $PWD/d2.img $PWD/d5.img; zpool wait tank").ok();
    check(&host, 10);
    host.shell("zpool online tank $PWD/d1.img; zpool wait tank").ok();
    host.until("zpool status tank", |told| !told.contains("spare-0") && told.contains("ONLINE"));
    // A device that is whole does not replace itself; one that was wiped does, by force.
    host.shell("zpool replace -f tank $PWD/d1.img $PWD/d1.img").fails(1).says("VDEV-IN-PLACE");
    host.shell("zpool remove tank $PWD/d3.img $PWD/d4.img").ok();
    host.shell("dd if=/dev/zero of=d1.img bs=1M count=128 conv=notrunc 2>&1; sync d1.img").ok();
    host.shell("zpool replace tank $PWD/d1.img $PWD/d1.img").fails(1).says("VDEV-IN-PLACE");
    host.shell("zpool replace -w -f tank $PWD/d1.img $PWD/d1.img; zpool scrub -w tank").ok();
    host.shell("zpool clear tank; zpool status -x").ok().says("healthy");
    check(&host, 10);
    host.shell("zpool export tank; mv d5.img away.img; zpool import -d $PWD/d1.img tank").ok();
    check(&host, 10);
    host.shell("zpool export tank").ok();
}

#[test]
fn groups_are_as_wide_as_they_may_be_and_no_wider() {
    let Some(host) = Host::with_images("wide groups", 33, 64 * MIB) else { return };
    let refused = |line: &str, most: &str| {
        let told = host.shell(line).fails(1).says("VDEV-GROUP").says(most);
        let sentence = told.err.lines().next().unwrap_or_default();
        assert!(sentence.contains(most), "the first line says it: {}", told.err);
        host.shell("zpool list -H tank").fails(1);
    };
    for level in ["raidz1", "raidz2", "raidz3"] {
        refused(&format!("zpool create -m $PWD/t tank {level} $PWD/d{{1..33}}.img"), "32");
    }
    host.shell("zpool create -m $PWD/t tank mirror $PWD/d{1..5}.img")
        .fails(1)
        .says("LATER")
        .says("mirrors of more than 4 devices are not built");
    // 32 are written, lose three, and are read; a fourth is needed.
    host.shell("zpool create -m $PWD/t tank raidz3 $PWD/d{1..32}.img").ok();
    host.shell("zpool status tank").ok().says("raidz3-0").says("d32.img");
    let files = 40;
    for file in 0..files {
        fs::write(host.at("t").join(format!("f{file}")), noise(file, 400_000)).expect("written");
    }
    host.shell("zpool sync tank; zpool export tank; mkdir away; mv d1.img d17.img d32.img away").ok();
    host.shell("zpool import -d $PWD tank && zpool status tank").ok().says("DEGRADED").says("UNAVAIL");
    check(&host, files);
    host.shell("zpool offline tank $PWD/d2.img").fails(1).says("VDEV-NEEDED");
    host.shell("zpool scrub -w tank; zpool status tank").ok().says("with 0 errors");
    host.shell("zpool export tank; mv away/* .; zpool import -d $PWD tank; zpool wait tank").ok();
    host.shell("zpool scrub -w tank; zpool status -x tank").ok().says("healthy");
    check(&host, files);
    host.shell("zpool destroy tank").ok();
    // Four copies, of which one is left.
    host.shell("zpool create -f -m $PWD/t tank mirror $PWD/d{1..4}.img").ok();
    for file in 0..files {
        fs::write(host.at("t").join(format!("f{file}")), noise(file, 400_000)).expect("written");
    }
    host.shell("zpool attach tank $PWD/d1.img $PWD/d5.img").fails(1).says("VDEV-GROUP").says("4");
    host.shell("zpool export tank; mv d1.img d2.img d4.img away; zpool import -d $PWD tank").ok();
    check(&host, files);
    host.shell("zpool export tank").ok();
}

/// One device and `copies=2`: a damaged copy is read from the other one under a mount, and written
/// again.
#[test]
fn a_damaged_copy_of_content_heals_on_a_single_device() {
    let Some(host) = Host::with_images("copies heal", 1, 192 * MIB) else { return };
    host.shell("zpool create -O compression=off -m $PWD/t tank $PWD/d1.img").ok();
    host.shell("zfs create -o copies=2 tank/two").ok();
    let content = noise(5, 2_000_000);
    fs::write(host.at("t/two/f"), &content).expect("written");
    let told = host.shell("stat -c %b t/two/f").ok().out;
    assert_eq!(told, host.shell("zpool sync; stat -c %b t/two/f").ok().out, "as before the commit");
    host.shell("zpool export tank").ok();
    // Each place at which a page of the file lies.
    let places = |host: &Host| {
        let image = fs::read(host.at("d1.img")).expect("readable");
        let mut found: BTreeMap<&[u8], Vec<u64>> = BTreeMap::new();
        for (at, page) in (0..).zip(image.chunks(4096)) {
            found.entry(page).or_default().push(at * 4096);
        }
        let pages = content.chunks_exact(4096);
        pages.map(|page| found.get(page).cloned().unwrap_or_default()).collect::<Vec<_>>()
    };
    let before = places(&host);
    assert!(before.iter().all(|places| places.len() == 2), "{:?}", before[0]);
    for places in &before {
        spoil(&host, "d1.img", places[0], &noise(77, 4096));
    }
    host.shell("zpool import -d $PWD tank").ok();
    assert!(fs::read(host.at("t/two/f")).expect("readable") == content);
    host.shell("zpool status tank").ok().says("No known data errors");
    host.shell("zpool scrub -w tank; zpool status tank").ok().says("with 0 errors");
    host.shell("zpool export tank").ok();
    let healed = places(&host);
    assert!(healed == before, "each copy is where it was");
    host.run(&format!("inspect check {}", host.at("d1.img").display())).ok();
}
