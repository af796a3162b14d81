//! Cache devices through the command line: filled by reading, used, damaged under a mount, lost,
//! and taken away.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;

use steadfast_tests::{Host, noise};

const MIB: u64 = 1 << 20;
const FILES: u64 = 80;

/// Reads all files as if for the first time: neither the kernel nor the daemon's memory has them.
fn read_all(host: &Host) {
    host.shell("zfs unmount tank; zfs mount tank").ok();
    for file in 0..FILES {
        let bytes = fs::read(host.at("t").join(format!("f{file}"))).expect("readable");
        assert!(bytes == noise(file, 400_000), "file {file}");
    }
}

/// A number of the line of a device in `zpool iostat -v -H -p`.
fn column(host: &Host, image: &str, at: usize) -> u64 {
    let told = host.shell("zpool iostat -v -H -p tank").ok().out;
    let line = told.lines().find(|line| line.split('\t').next().is_some_and(|name| name.ends_with(image)));
    let line = line.unwrap_or_else(|| panic!("{image} in\n{told}"));
    line.split('\t').nth(at).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn a_cache_device_is_used_and_never_believed() {
    let Some(host) = Host::with_images("cache devices", 1, 256 * MIB) else { return };
    host.image("c1.img", 128 * MIB);
    host.image("c2.img", 128 * MIB);
    // A daemon with little memory of its own.
    host.shell(
        "export STEADFAST_BLOCK_CACHE_BYTES=4M; zpool create -m $PWD/t tank $PWD/d1.img cache $PWD/c1.img",
    )
    .ok();
    let told = host.shell("zpool status tank").ok().says("cache").says("c1.img");
    assert!(told.out.contains("ONLINE"), "{}", told.out);
    host.shell("zpool add tank cache $PWD/c1.img").fails(1);
    host.shell("zpool create other $PWD/c1.img").fails(1).says("VDEV-IN-USE");
    for file in 0..FILES {
        fs::write(host.at("t").join(format!("f{file}")), noise(file, 400_000)).expect("written");
    }
    host.shell("zpool export tank && zpool import -d $PWD tank").ok();
    host.shell("zfs set secondarycache=none tank").ok();
    read_all(&host);
    assert_eq!(column(&host, "c1.img", 1), 0, "nothing of it is to be kept");
    host.shell("zfs inherit secondarycache tank").ok();
    read_all(&host);
    let kept = column(&host, "c1.img", 1);
    assert!(kept > 4 * MIB, "{kept} bytes are kept");
    read_all(&host);
    // It answers reads, of which the pool's own devices hear nothing.
    let hits = column(&host, "c1.img", 3);
    host.shell("zpool iostat -v tank").ok().says("cache");
    host.shell("zpool list -v tank").ok().says("cache");
    println!("{kept} bytes kept, {hits} reads a second on average");
    // All of it is overwritten between its labels.
    let image = OpenOptions::new().write(true).open(host.at("c1.img")).expect("an image");
    image.write_all_at(&vec![0x5a; 126 << 20], MIB / 2).expect("written");
    image.sync_all().expect("durable");
    read_all(&host);
    let told = host.shell("zpool status tank").ok();
    let line = told.out.lines().find(|line| line.contains("c1.img")).expect("its line");
    let wrong = line.split_whitespace().nth(4).expect("a count");
    assert!(wrong != "0", "{}", told.out);
    host.shell("zpool status -x tank; zpool status tank").ok().says("No known data errors");
    // Another one comes, the first is lost over an export, and both are taken away.
    host.shell("zpool add tank cache $PWD/c2.img").ok();
    read_all(&host);
    host.shell(
        "zpool scrub -w tank; zpool export tank && mkdir away && mv c1.img away && zpool import -d $PWD tank",
    )
    .ok();
    let told = host.shell("zpool status tank").ok().says("c2.img").says("is not here");
    assert!(told.out.contains(" state: ONLINE"), "{}", told.out);
    read_all(&host);
    host.shell("zpool remove tank $PWD/c1.img && zpool remove tank $PWD/c2.img").ok();
    let told = host.shell("zpool status tank").ok();
    assert!(!told.out.contains("cache"), "{}", told.out);
    // Not used: the next `zpool add` of one uses it again.
    host.shell("zpool get -H -o value feature@cache_devices tank").ok().says("enabled");
    read_all(&host);
    host.shell("zpool create other $PWD/c2.img; zpool destroy other").ok();
    host.shell("zpool export tank").ok();
}

/// A cache device goes out of use and comes back, with and without an import between.
#[test]
fn a_cache_device_is_taken_offline_and_online() {
    let Some(host) = Host::with_images("a cache offline", 1, 64 * MIB) else { return };
    host.image("c1.img", 64 * MIB);
    host.shell("zpool create -m $PWD/t tank $PWD/d1.img cache $PWD/c1.img").ok();
    let is = |state: &str| {
        host.shell("zpool status tank | tr -s ' '")
            .ok()
            .says(&format!("c1.img {state} "))
            .says("state: ONLINE");
    };
    host.shell("zpool offline tank $PWD/c1.img; zpool offline tank $PWD/c1.img").ok();
    is("OFFLINE");
    // Nobody has it open.
    host.shell("flock -n c1.img zpool list -v tank").ok();
    host.shell("zpool events -H tank").ok().says("statechange");
    host.shell("zpool export tank; zpool import -d $PWD tank").ok();
    is("OFFLINE");
    host.shell("echo text > t/file; zpool sync; zpool reguid tank").fails(1).says("POOL-NOT-WHOLE");
    host.shell("zpool online tank $PWD/c1.img; zpool online tank $PWD/c1.img").ok();
    is("ONLINE");
    host.shell("zpool export tank; zpool import -d $PWD tank").ok();
    is("ONLINE");
    // Until the next import.
    host.shell("zpool offline -t tank $PWD/c1.img").ok();
    is("OFFLINE");
    host.shell("zpool export tank; zpool import -d $PWD tank").ok();
    is("ONLINE");
    // Another device at its path is not taken for it.
    host.shell("zpool offline tank $PWD/c1.img; mv c1.img away; truncate -s 64M c1.img").ok();
    host.shell("zpool online tank $PWD/c1.img").fails(1);
    is("OFFLINE");
    host.shell("zpool remove tank $PWD/c1.img; zpool detach tank $PWD/c1.img").fails(1);
    host.shell("zpool export tank").ok();
}

/// `import -d` names the folder of the data; cache devices and spares are where the labels have
/// them.
#[test]
fn cache_devices_and_spares_outside_of_the_folder_are_imported_too() {
    let Some(host) = Host::with_images("caches elsewhere", 1, 64 * MIB) else { return };
    host.shell("mkdir data; mv d1.img data; truncate -s 64M c1.img c2.img s1.img").ok();
    host.shell(
        "zpool create -m $PWD/t tank $PWD/data/d1.img cache $PWD/c1.img $PWD/c2.img spare $PWD/s1.img",
    )
    .ok();
    host.shell("zpool export tank; zpool import -d $PWD/data tank").ok();
    let told = host
        .shell("zpool status tank | tr -s ' '")
        .ok()
        .says("c1.img ONLINE")
        .says("c2.img ONLINE")
        .says("AVAIL");
    assert!(!told.out.contains("UNAVAIL"), "{}", told.out);
    // Another pool has one of them by now, and one is gone.
    host.shell("zpool export tank; rm c1.img; zpool create -f -m none other $PWD/c2.img").ok();
    host.shell("zpool import -d $PWD/data tank; zpool status tank | tr -s ' '")
        .ok()
        .says("c2.img UNAVAIL")
        .says("AVAIL");
    host.shell("zpool destroy other; zpool destroy tank").ok();
}
