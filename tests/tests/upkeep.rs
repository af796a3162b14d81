//! Upkeep of a pool by its operator: scrubs of single devices, initialization, suspended pools that
//! do not hang, devices that replace others by themselves, and names and lists that stay true.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};

use steadfast_tests::{Host, find, noise, until};

const MIB: u64 = 1 << 20;

fn host(test: &str, images: usize) -> Option<Host> {
    let host = Host::with_images(test, images, 128 * MIB)?;
    Some(host)
}

fn write(host: &Host, files: std::ops::Range<u64>) {
    for file in files {
        fs::write(host.at("t").join(format!("f{file}")), noise(file, 400_000)).expect("written");
    }
    host.shell("zpool sync tank").ok();
}

/// Status once it does not say something any more.
#[track_caller]
fn status_without(host: &Host, word: &str) -> String {
    host.until("zpool status tank", |told| !told.contains(word))
}

/// Spoils some bytes in the middle of a file's content, on the image, behind the pool's back.
fn spoil(host: &Host, image: &str, file: u64) {
    let path = host.at(image);
    let bytes = fs::read(&path).expect("the image");
    let wanted = &noise(file, 400_000)[200_000..200_064];
    let at = find(&bytes, wanted).expect("stored as it is");
    let image = OpenOptions::new().write(true).open(&path).expect("an image");
    image.write_all_at(&[0x55; 512], at as u64).expect("written");
    image.sync_all().expect("durable");
}

#[test]
fn a_scrub_of_single_devices_names_what_is_lost() {
    let Some(host) = host("scrub of single devices", 2) else { return };
    host.shell("zpool create -m $PWD/t tank $PWD/d1.img").ok();
    write(&host, 0..20);
    host.shell("zpool scrub -w tank").ok();
    host.shell("zpool status tank").ok().says("scrub repaired 0B").says("with 0 errors");
    host.shell("zpool export tank && zpool import -d $PWD tank").ok();
    spoil(&host, "d1.img", 7);
    host.shell("zpool scrub -w tank").ok();
    let told = host.shell("zpool status -v tank").ok().says("with 1 errors").says("128K unrecoverable");
    let told = told.says("/f7 (bytes 131072 to").says("status: One or more devices has experienced");
    assert!(!told.out.contains("/f6") && !told.out.contains("/f8"), "{}", told.out);
    assert!(fs::read(host.at("t/f7")).is_err(), "no other bytes than those written");
    assert!(fs::read(host.at("t/f8")).expect("readable") == noise(8, 400_000));
    fs::remove_file(host.at("t/f7")).expect("removed");
    host.shell("zpool sync tank; zpool clear tank; zpool scrub -w tank").ok();
    host.shell("zpool status -x tank").ok().says("healthy");
    // A locked dataset is left out, and told.
    host.shell("head -c 32 /dev/urandom > key").ok();
    host.shell("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key tank/secret")
        .ok();
    host.shell(
        "echo hidden > t/secret/file; zpool sync tank; zfs unmount tank/secret; zfs unload-key tank/secret",
    )
    .ok();
    host.shell("zpool scrub -w tank; zpool status tank")
        .ok()
        .says("not scanned, key not loaded: tank/secret");
    host.shell("zfs load-key tank/secret; zpool scrub -w tank").ok();
    assert!(!host.shell("zpool status tank").ok().out.contains("not loaded"));
    host.shell("zpool set scrublimit=40M tank; zpool get -H -o value scrublimit tank").ok().says("40M");
    host.shell("zpool set scrublimit=fast tank").fails(1);
    host.shell("zpool export tank").ok();
}

#[test]
fn free_space_is_filled_on_demand() {
    let Some(host) = host("initialize", 2) else { return };
    host.shell("zpool create -o autotrim=off -m $PWD/t tank $PWD/d1.img $PWD/d2.img").ok();
    write(&host, 0..5);
    let used = |image: &str| fs::metadata(host.at(image)).expect("an image").blocks() * 512;
    assert!(used("d1.img") < 64 * MIB);
    host.shell("zpool status -i tank").ok().says("(uninitialized)");
    host.shell("zpool initialize -s tank").fails(1).says("TRIM-NONE");
    host.shell("zpool initialize -w tank $PWD/d1.img").ok();
    assert!(used("d1.img") > 120 * MIB, "{}", used("d1.img"));
    assert!(used("d2.img") < 64 * MIB);
    let told = host
        .shell("zpool status -i tank")
        .ok()
        .says("(100% initialized, completed at")
        .says("(uninitialized)");
    assert!(told.out.contains("d1.img") && told.out.contains("d2.img"));
    host.shell("zpool initialize -u tank $PWD/d1.img").ok();
    assert!(!host.shell("zpool status -i tank").ok().out.contains("100%"));
    host.shell("zpool initialize -c -s tank").fails(2);
    host.shell("zpool initialize -w -u tank").fails(2);
    host.shell("zpool initialize tank $PWD/d3.img").fails(1).says("VDEV-MISSING");
    for file in 0..5 {
        assert!(fs::read(host.at("t").join(format!("f{file}"))).expect("readable") == noise(file, 400_000));
    }
    host.shell("zpool history -i tank").ok().says("initialize finish");
    host.shell("zpool export tank && zpool import -d $PWD tank && zpool scrub -w tank && zpool export tank")
        .ok();
}

#[test]
fn a_suspended_pool_lets_nobody_wait_for_ever_unless_that_was_asked_for() {
    let Some(host) = host("failmode", 1) else { return };
    host.shell("zpool create -m $PWD/t tank $PWD/d1.img").ok();
    host.shell("zpool get -H -o value failmode tank").ok().says("continue");
    host.shell("zpool set failmode=never tank").fails(1);
    write(&host, 0..10);
    for mode in ["continue", "panic", "wait"] {
        host.shell(&format!("zpool set failmode={mode} tank")).ok();
        host.shell("zpool inject tank $PWD/d1.img eio on=flush every=1").ok();
        host.shell("echo x > t/new; zpool sync tank").fails(1);
        host.shell("zpool status tank").ok().says("SUSPENDED");
        host.shell("zpool wait tank").fails(1).says("POOL-SUSPENDED");
        host.shell("zpool scrub -w tank").fails(1).says("POOL-SUSPENDED");
        assert!(fs::read(host.at("t/f3")).expect("reads go on") == noise(3, 400_000));
        if mode == "wait" {
            // A writer waits until the pool is let go, and gets the error then.
            let path = host.at("t/later");
            let writer = std::thread::spawn(move || fs::write(path, b"late"));
            std::thread::sleep(std::time::Duration::from_millis(500));
            assert!(!writer.is_finished());
            host.shell("zpool export -f tank").ok();
            assert!(writer.join().expect("no panic").is_err());
        } else {
            assert!(fs::write(host.at("t/later"), b"late").is_err());
            host.shell("zpool export -f tank").ok();
        }
        host.shell("zpool import -d $PWD tank").ok();
        host.shell("cat t/f3 | wc -c").ok().says("400000");
    }
    host.shell("zpool export tank").ok();
}

#[test]
fn a_new_device_takes_the_place_of_a_missing_one_by_itself() {
    let Some(host) = host("autoreplace", 4) else { return };
    host.shell("zpool create -m $PWD/t -o autoreplace=on tank mirror $PWD/d1.img $PWD/d2.img").ok();
    write(&host, 0..10);
    host.shell("zpool export tank && mkdir away && mv d1.img away && zpool import -d $PWD tank").ok();
    host.shell("zpool status tank").ok().says("UNAVAIL");
    // A device that holds something is left alone.
    host.shell("truncate -s 128M other && mkfs.ext4 -q other 2> /dev/null || printf XFSB > other; truncate -s 128M other; mv other d1.img").ok();
    std::thread::sleep(std::time::Duration::from_secs(5));
    host.shell("zpool status tank").ok().says("UNAVAIL");
    host.shell("truncate -s 128M blank && mv blank d1.img").ok();
    let told = status_without(&host, "UNAVAIL");
    assert!(told.contains("d1.img"), "{told}");
    // The command is written down when it has returned, a moment after its device is seen.
    host.until("zpool history tank", |told| told.contains("(autoreplace)"));
    host.shell("zpool wait tank; zpool offline tank $PWD/d2.img").ok();
    for file in 0..10 {
        assert!(fs::read(host.at("t").join(format!("f{file}"))).expect("readable") == noise(file, 400_000));
    }
    host.shell("zpool online tank $PWD/d2.img; zpool wait tank").ok();
    // The list of pools for the next start follows what was replaced in the background.
    host.shell("zpool replace -w tank $PWD/d1.img $PWD/d3.img").ok();
    let listed = || fs::read_to_string(host.at("run/pools.json")).expect("the list");
    let follows =
        |text: &str| text.contains("d3.img\"") && text.contains("d2.img\"") && !text.contains("d1.img\"");
    until(|| Some(listed()).filter(|text| follows(text)).ok_or_else(listed));
    host.shell("zpool export tank").ok();
}

#[test]
fn devices_that_grow_under_a_pool_are_used_by_themselves() {
    let Some(host) = host("autoexpand", 2) else { return };
    host.shell("zpool create -m $PWD/t -o autoexpand=on tank mirror $PWD/d1.img $PWD/d2.img").ok();
    let size = || host.shell("zpool list -Hp -o size tank").ok().out;
    let before: u64 = size().trim().parse().expect("bytes");
    write(&host, 0..5);
    host.shell("truncate -s 256M d1.img d2.img").ok();
    // Nobody asks for it: the daemon looks by its own clock.
    let grown = (before + 128 * MIB).to_string();
    host.until("zpool list -Hp -o size tank", |told| told.trim() == grown);
    host.shell("zpool events tank").ok().says("vdev_autoexpand");
    write(&host, 5..10);
    host.shell("zpool export tank; zpool import -d $PWD tank").ok();
    assert_eq!(size().trim(), grown);
    for file in 0..10 {
        assert!(fs::read(host.at("t").join(format!("f{file}"))).expect("readable") == noise(file, 400_000));
    }
    host.shell("zpool scrub -w tank; zpool status tank").ok().says("scrub repaired 0B");
    host.shell("zpool export tank").ok();
}

#[test]
fn a_device_whose_labels_were_zeroed_in_its_place_is_a_new_one() {
    let Some(host) = host("autoreplace in place", 3) else { return };
    let devices = "$PWD/d1.img $PWD/d2.img $PWD/d3.img";
    host.shell(&format!("zpool create -m $PWD/t -o autoreplace=on tank raidz1 {devices}")).ok();
    write(&host, 0..10);
    // The same file, zeroed while the pool is away: it is not found, and then it is blank.
    host.shell("zpool export tank && dd if=/dev/zero of=d1.img bs=1M count=128 conv=notrunc status=none")
        .ok();
    host.shell("zpool import -d $PWD tank").ok();
    status_without(&host, "UNAVAIL");
    host.shell("zpool wait tank").ok();
    // One that failed under the pool is the old one as long as its labels are there, and a new one
    // when they are zeroed.
    host.shell("zpool offline -f tank $PWD/d2.img").ok();
    std::thread::sleep(std::time::Duration::from_secs(5));
    host.shell("zpool status tank").ok().says("FAULTED");
    host.shell(
        "dd if=/dev/zero of=d2.img bs=1M count=1 conv=notrunc status=none; \
         dd if=/dev/zero of=d2.img bs=1M count=1 seek=127 conv=notrunc status=none",
    )
    .ok();
    status_without(&host, "FAULTED");
    host.shell("zpool wait tank; zpool scrub -w tank; zpool status tank").ok().says("scrub repaired 0B");
    // As much as before can be spared.
    host.shell("zpool offline tank $PWD/d3.img").ok();
    for file in 0..10 {
        assert!(fs::read(host.at("t").join(format!("f{file}"))).expect("readable") == noise(file, 400_000));
    }
    host.shell("zpool online tank $PWD/d3.img; zpool wait tank; zpool export tank").ok();
}

#[test]
fn groups_keep_their_names_and_iostat_shows_them() {
    let Some(host) = host("names of groups", 6) else { return };
    host.shell("zpool create -m $PWD/t tank mirror $PWD/d1.img $PWD/d2.img mirror $PWD/d3.img $PWD/d4.img")
        .ok();
    write(&host, 0..10);
    let told = host.shell("zpool iostat -v tank").ok().says("mirror-0").says("mirror-1");
    let at = |word: &str| told.out.find(word).unwrap_or_else(|| panic!("{word} in\n{}", told.out));
    assert!(at("mirror-0") < at("d1.img") && at("d2.img") < at("mirror-1") && at("mirror-1") < at("d3.img"));
    host.shell("zpool iostat -v -j tank").ok().says("\"mirror-1\"");
    host.shell("zpool iostat -w -v tank").ok().says("mirror-1");
    host.shell("zpool remove -w tank mirror-0").ok();
    let told = host.shell("zpool status tank").ok().says("mirror-1");
    assert!(!told.out.contains("mirror-0"), "{}", told.out);
    host.shell("zpool add tank mirror $PWD/d5.img $PWD/d6.img").ok();
    host.shell("zpool status tank").ok().says("mirror-1").says("mirror-2");
    host.shell("zpool remove -w tank mirror-1").ok();
    for file in 0..10 {
        assert!(fs::read(host.at("t").join(format!("f{file}"))).expect("readable") == noise(file, 400_000));
    }
    host.shell("zpool export tank").ok();
}

#[test]
fn a_copy_becomes_another_pool_and_both_are_imported_at_once() {
    let Some(host) = host("reguid", 4) else { return };
    host.shell(
        "zpool create -m $PWD/t tank mirror $PWD/d1.img $PWD/d2.img log $PWD/d3.img cache $PWD/d4.img",
    )
    .ok();
    host.shell("head -c 32 /dev/urandom > key").ok();
    host.shell("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key tank/secret")
        .ok();
    host.shell("echo hidden > t/secret/file").ok();
    write(&host, 0..10);
    let number =
        |pool: &str| host.shell(&format!("zpool get -H -o value guid {pool}")).ok().out.trim().to_owned();
    let first = number("tank");
    host.shell(
        "zpool export tank && mkdir copy && cp --sparse=always d?.img copy && zpool import -l -d $PWD tank",
    )
    .ok();
    host.shell("zpool offline tank $PWD/d1.img").ok();
    host.shell("zpool reguid tank").fails(1).says("POOL-NOT-WHOLE");
    assert_eq!(number("tank"), first);
    host.shell("zpool online tank $PWD/d1.img; zpool wait tank").ok();
    host.shell("zpool reguid tank").ok();
    let second = number("tank");
    assert_ne!(first, second);
    host.shell("zpool get -H -o value feature@renumbered tank").ok().says("active");
    // The copy is another pool, and comes beside it.
    host.shell("zpool import -d $PWD/copy").ok().says(&first);
    host.shell(&format!("zpool import -l -R $PWD/other -d $PWD/copy {first} twin")).ok();
    assert_eq!((number("twin"), number("tank")), (first.clone(), second.clone()));
    for file in 0..10 {
        assert!(fs::read(host.at("t").join(format!("f{file}"))).expect("readable") == noise(file, 400_000));
    }
    host.shell("cat t/secret/file; find other -name f3 | grep -q f3").ok().says("hidden");
    fs::write(host.at("t/new"), "only here").expect("written");
    host.shell("zpool scrub -w tank; zpool scrub -w twin; zpool status -x").ok().says("healthy");
    host.shell("zpool export twin; zpool export tank; zpool import -d $PWD").ok().says(&second);
    // A daemon that is killed finds it by its new number.
    host.shell("zpool import -l -d $PWD tank").ok();
    fs::write(host.at("t/new"), "only here").expect("written");
    host.shell("zpool sync tank").ok();
    host.kill_daemon();
    host.shell("umount -l t/secret t").ok();
    assert_eq!(number("tank"), second);
    host.shell("cat t/new").ok().says("only here");
    host.shell("zpool export tank").ok();
    // Sound but for what needs a key to be looked at.
    let told = host.run("inspect check {}/d1.img {}/d2.img {}/d3.img").says("code=dataset-locked");
    assert_eq!(told.out.matches("finding ").count(), 1, "{}", told.out);
}
