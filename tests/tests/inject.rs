//! Faults on purpose through the command line, and pools that heal from each of them.

use std::fs;

use steadfast_tests::{Host, noise};

const MIB: u64 = 1 << 20;
const FILES: u64 = 40;

/// A corner with a raidz1 pool of four files, and files in it.
fn host(test: &str) -> Option<Host> {
    let host = Host::with_images(test, 4, 96 * MIB)?;
    host.shell("zpool create -m $PWD/t tank raidz1 $PWD/d1.img $PWD/d2.img $PWD/d3.img $PWD/d4.img").ok();
    write(&host, 0..FILES);
    Some(host)
}

fn write(host: &Host, files: std::ops::Range<u64>) {
    for file in files {
        fs::write(host.at("t").join(format!("f{file}")), noise(file, 400_000)).expect("written");
    }
    host.shell("zpool sync tank").ok();
}

/// Every file is what was written, read from the devices: a pool that was imported has nothing in
/// memory.
fn check(host: &Host, files: u64) {
    for file in 0..files {
        let bytes = fs::read(host.at("t").join(format!("f{file}"))).expect("readable");
        assert!(bytes == noise(file, 400_000), "file {file}");
    }
}

/// The words of the status line of a device: name, state, errors of reading, writing and checksums.
fn status(host: &Host, image: &str) -> Vec<String> {
    let out = host.shell("zpool status tank").ok().out;
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    let mut lines = out.lines().map(words);
    let found = lines.find(|words| words.len() >= 5 && words[0].ends_with(image));
    found.unwrap_or_else(|| panic!("{image} in\n{out}"))
}

fn reimport(host: &Host) {
    host.shell("zpool export tank && zpool import -d $PWD tank").ok();
}

#[test]
fn zeros_and_flipped_bits_are_healed_by_a_scrub() {
    let Some(host) = host("zero and flip") else { return };
    host.shell("zpool inject tank $PWD/d2.img zero").ok().says("bytes zeroed");
    host.shell("zpool scrub -w tank").ok();
    host.shell("zpool status tank").ok().says("with 0 errors");
    assert_ne!(status(&host, "d2.img")[4], "0");
    host.shell("zpool clear tank").ok();
    // The pool is small, so bits are flipped where its first segments lie.
    host.shell("zpool inject tank $PWD/d3.img flip bits=200 seed=9 offset=512k length=8M")
        .ok()
        .says("200 bits");
    host.shell("zpool scrub -w tank").ok();
    host.shell("zpool status tank").ok().says("with 0 errors");
    assert_ne!(status(&host, "d3.img")[4], "0");
    host.shell("zpool scrub -w tank").ok();
    host.shell("zpool status tank").ok().says("scrub repaired 0B");
    reimport(&host);
    check(&host, FILES);
    host.shell("zpool export tank").ok();
}

#[test]
fn reads_that_fail_are_served_by_the_other_devices() {
    let Some(host) = host("eio") else { return };
    reimport(&host);
    host.shell("zpool inject tank $PWD/d1.img eio on=read every=3").ok();
    check(&host, FILES);
    let listed = host.shell("zpool inject tank").ok().says("eio on=read every=3").out;
    let struck: u64 =
        listed.lines().nth(1).and_then(|line| line.split_whitespace().last()).unwrap().parse().unwrap();
    assert!(struck > 0, "{listed}");
    assert_ne!(status(&host, "d1.img")[2], "0");
    host.shell("zpool inject -c tank $PWD/d1.img").ok().says("1 faults removed");
    host.shell("zpool inject tank").ok().says("no faults injected");
    host.shell("zpool clear tank && zpool scrub -w tank").ok();
    assert_eq!(status(&host, "d1.img")[1..5], ["ONLINE", "0", "0", "0"]);
    host.shell("zpool export tank").ok();
}

#[test]
fn a_device_that_goes_and_comes_back_is_resilvered() {
    let Some(host) = host("gone") else { return };
    host.shell("zpool inject tank $PWD/d4.img gone").ok();
    // The first commit notices, and the next one notes it.
    write(&host, FILES..FILES + 9);
    write(&host, FILES + 9..FILES + 10);
    assert_eq!(status(&host, "d4.img")[1], "FAULTED");
    check(&host, FILES + 10);
    host.shell("zpool online tank $PWD/d4.img").fails(1);
    host.shell("zpool inject -c tank").ok();
    host.shell("zpool online tank $PWD/d4.img && zpool wait -t resilver tank").ok();
    assert_eq!(status(&host, "d4.img")[1], "ONLINE");
    host.shell("zpool status tank").ok().says("resilvered").says("with 0 errors");
    // Data that it missed is there: another device can be taken away.
    host.shell("zpool offline tank $PWD/d1.img").ok();
    reimport(&host);
    check(&host, FILES + 10);
    host.shell("zpool export tank").ok();
}

#[test]
fn a_write_that_went_astray_is_healed_where_it_lacks_and_where_it_fell() {
    let Some(host) = host("misdirect") else { return };
    host.shell("zpool inject tank $PWD/d2.img misdirect every=2").ok();
    write(&host, FILES..FILES + 20);
    host.shell("zpool inject -c tank").ok();
    host.shell("zpool scrub -w tank").ok();
    host.shell("zpool status tank").ok().says("with 0 errors");
    assert_ne!(status(&host, "d2.img")[4], "0");
    host.shell("zpool scrub -w tank").ok();
    host.shell("zpool status tank").ok().says("scrub repaired 0B");
    reimport(&host);
    check(&host, FILES + 20);
    host.shell("zpool export tank").ok();
}

/// The table of `status -v`: four devices, each with errors of its own kind, and one without.
#[test]
fn errors_are_told_by_kind_and_device() {
    let Some(host) = Host::with_images("errors by kind", 5, 96 * MIB) else { return };
    let devices = "$PWD/d1.img $PWD/d2.img $PWD/d3.img $PWD/d4.img $PWD/d5.img";
    host.shell(&format!("zpool create -m $PWD/t tank raidz1 {devices}")).ok();
    write(&host, 0..FILES);
    let told = host.shell("zpool status -v tank").ok().out;
    assert!(!told.contains("ERRORS BY KIND"), "{told}");
    // One after the other, as no more than one device may be wrong at a time.
    host.shell("zpool inject tank $PWD/d4.img misdirect every=2").ok();
    write(&host, FILES..2 * FILES);
    host.shell("zpool inject -c tank && zpool scrub -w tank").ok();
    host.shell("zpool inject tank $PWD/d2.img zero && zpool scrub -w tank").ok();
    host.shell(
        "zpool inject tank $PWD/d3.img flip bits=300 seed=5 offset=512k length=8M && zpool scrub -w tank",
    )
    .ok();
    // Reads from now on do not come from memory.
    host.shell("zfs unmount tank; zfs mount tank; zpool inject tank $PWD/d1.img eio on=read nth=3").ok();
    host.shell("zpool scrub -w tank; zpool inject -c tank").ok();
    let told = host.shell("zpool status -v -p tank").ok().says("with 0 errors").out;
    let table = told.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let mut table = table.skip_while(|words| !words.starts_with(&["ERRORS", "BY", "KIND"]));
    let heads = table.next().unwrap_or_else(|| panic!("no table in\n{told}"));
    let kinds = ["UNREADABLE", "HASH", "AUTHENTICATION", "STALE", "MISPLACED", "SLOW"];
    assert_eq!(heads[3..], kinds, "{told}");
    let rows = table.take_while(|words| words.len() == 1 + kinds.len());
    let rows: Vec<(String, Vec<u64>)> = rows
        .map(|words| {
            let counts =
                words[1..].iter().map(|word| word.parse().unwrap_or_else(|_| panic!("{word}: {told}")));
            (words[0].to_owned(), counts.collect())
        })
        .collect();
    let is_any = |image: &str| -> Vec<bool> {
        let row = rows.iter().find(|(name, _)| name.ends_with(image));
        row.unwrap_or_else(|| panic!("{image} in\n{told}")).1.iter().map(|count| *count > 0).collect()
    };
    assert_eq!(is_any("d1.img"), [true, false, false, false, false, false], "{told}");
    assert_eq!(is_any("d2.img"), [false, false, false, true, false, false], "{told}");
    assert_eq!(is_any("d3.img"), [false, true, false, false, false, false], "{told}");
    let astray = is_any("d4.img");
    assert!(astray[3] && astray[4] && !astray[0] && !astray[2] && !astray[5], "{told}");
    assert_eq!(rows.len(), 4, "d5 did not err: {told}");
    // The same for programs, and the sum in the column of all.
    let json = host.shell("zpool status -j --json-int tank").ok().out;
    for (kind, count) in
        kinds.iter().zip(&rows.iter().find(|(name, _)| name.ends_with("d4.img")).expect("found").1)
    {
        let wanted = format!("\"{}\":{count}", kind.to_lowercase());
        assert!(json.replace([' ', '\n'], "").contains(&wanted), "{wanted} in {json}");
    }
    let sum: u64 =
        rows.iter().find(|(name, _)| name.ends_with("d4.img")).expect("found").1[1..5].iter().sum();
    let words = told.lines().map(|line| line.split_whitespace().collect::<Vec<&str>>());
    let line = words.into_iter().find(|words| words.len() > 4 && words[0].ends_with("d4.img"));
    assert_eq!(line.expect("it is listed")[4], sum.to_string(), "{told}");
    host.shell("zpool clear tank").ok();
    let told = host.shell("zpool status -v tank").ok().out;
    assert!(!told.contains("ERRORS BY KIND"), "{told}");
    reimport(&host);
    check(&host, 2 * FILES);
    host.shell("zpool export tank").ok();
}

#[test]
fn slow_devices_slow_a_pool_and_lose_nothing() {
    let Some(host) = host("slow") else { return };
    host.shell("zpool inject tank $PWD/d1.img disk seek=1ms rate=200M").ok();
    host.shell("zpool inject tank $PWD/d2.img slow latency=100us rate=500M").ok();
    write(&host, 0..FILES);
    host.shell("zpool inject tank").ok().says("disk seek=").says("slow latency=");
    host.shell("zpool export tank && zpool import -d $PWD tank && zpool inject tank")
        .ok()
        .says("no faults injected");
    check(&host, FILES);
    // As in ZFS the sizes of a raidz pool count its parity, those of its file systems do not.
    let number = |command: &str| host.shell(command).ok().out.trim().parse::<u64>().expect("a number");
    let (size, free) = (number("zpool list -Hpo size tank"), number("zpool list -Hpo free tank"));
    assert!(size > 4 * 90 * MIB && number("zfs list -Hpo avail tank") < free * 3 / 4, "{size} {free}");
    // A scrub and a replacement while they run: the lines that programs read.
    let slowly = |rate: &str| {
        for device in 1..5 {
            host.shell(&format!("zpool inject tank $PWD/d{device}.img slow rate={rate}")).ok();
        }
    };
    slowly("2M");
    let told =
        host.shell("zpool scrub tank; zpool status tank").ok().says("  scan: scrub in progress since ");
    told.says(" scanned")
        .says(" issued")
        .says("0B repaired, ")
        .says("% done, no estimated completion time\n");
    let told = host.shell("zpool scrub -p tank; zpool status tank").ok().says("  scan: scrub paused since ");
    told.says("\n\tscrub started on ");
    let json = "zpool status -j --json-int tank | python3 -c \"import json,sys; \
        scan = json.load(sys.stdin)['pools']['tank']['scan_stats']; \
        print(scan['function'], scan['state'], scan['scrub_pause'] >= scan['start_time'])\"";
    host.shell(json).ok().says("SCRUB SCANNING True");
    host.shell("zpool scrub tank; zpool status tank").ok().says("  scan: scrub in progress since ");
    host.shell("zpool scrub -s tank; zpool status tank").ok().says("  scan: scrub canceled on ");
    host.image("d5.img", 96 * MIB);
    let told = host.shell("zpool replace tank $PWD/d2.img $PWD/d5.img; zpool status tank").ok();
    let told = told.says("status: One or more devices is currently being resilvered.");
    let told =
        told.says("action: Wait for the resilver to complete.").says("scan: resilver in progress since ");
    let told = told.says("\t    replacing-1 ").says("\n\t      ").says("(resilvering)\n").out;
    let place = |what: &str| told.find(what).unwrap_or_else(|| panic!("{what} in\n{told}"));
    let places = ["d1.img", "replacing-1", "d2.img", "d5.img", "d3.img"].map(place);
    assert!(places.is_sorted(), "{told}");
    host.shell("zpool status -x").ok().says("currently being resilvered");
    host.shell("zpool inject -c tank; zpool wait tank; zpool status -x").ok().says("all pools are healthy");
    check(&host, FILES);
    host.shell("zpool export tank").ok();
}

#[test]
fn log_cache_and_special_devices_take_faults_and_nothing_is_lost() {
    let Some(host) = Host::with_images("faults of devices beside the groups", 2, 128 * MIB) else { return };
    for name in ["log.img", "cache.img", "s1.img", "s2.img"] {
        host.image(name, 64 * MIB);
    }
    host.shell(
        "export STEADFAST_BLOCK_CACHE_BYTES=4M; \
         zpool create -m $PWD/t -O journal=ordered tank mirror $PWD/d1.img $PWD/d2.img \
         special mirror $PWD/s1.img $PWD/s2.img log $PWD/log.img cache $PWD/cache.img",
    )
    .ok();
    write(&host, 0..FILES);
    reimport(&host);
    check(&host, FILES);
    // A cache device that fails, and then lies: neither is noticed by who reads.
    host.shell("zpool inject tank $PWD/cache.img eio on=read every=2").ok();
    host.shell("zpool inject tank").ok().says("cache.img").says("eio");
    host.shell("zfs unmount tank; zfs mount tank").ok();
    check(&host, FILES);
    host.shell("zpool inject -c tank $PWD/cache.img && zpool inject tank $PWD/cache.img zero")
        .ok()
        .says("bytes zeroed");
    host.shell("zfs unmount tank; zfs mount tank").ok();
    check(&host, FILES);
    assert_ne!(status(&host, "cache.img")[4], "0", "what it lied about is counted");
    // A special device that errs is healed by the other one.
    host.shell("zpool inject tank $PWD/s1.img zero && zpool scrub -w tank").ok();
    host.shell("zpool status tank").ok().says("with 0 errors");
    assert_ne!(status(&host, "s1.img")[4], "0");
    // A log device that fails: what it could not take is committed, and the pool says so.
    host.shell("sync t/f0; zpool inject tank $PWD/log.img eio on=write every=1").ok();
    host.shell("echo promised > t/p && sync t/p && zpool status tank").ok().says("LOG-FAILED");
    host.shell("zpool inject -c tank && zpool inject tank").ok().says("no faults injected");
    reimport(&host);
    check(&host, FILES);
    host.shell("cat t/p").ok().says("promised");
    host.shell("zpool inject tank $PWD/nothing.img gone").fails(1).says("VDEV-MISSING");
    host.shell("zpool export tank").ok();
}

#[test]
fn faults_that_make_no_sense_change_nothing() {
    let Some(host) = host("refusals of faults") else { return };
    host.shell("zpool inject tank $PWD/d1.img melt").fails(2).says("unknown fault 'melt'");
    host.shell("zpool inject tank $PWD/d1.img eio nth=0").fails(1).says("must be at least 1");
    host.shell("zpool inject tank $PWD/d1.img zero offset=1T").fails(1).says("the offset must be less than");
    host.shell("zpool inject tank $PWD/d1.img slow").fails(1).says("latency= or rate=");
    host.shell("zpool inject tank $PWD/d9.img gone").fails(1).says("VDEV-MISSING");
    host.shell("zpool inject nowhere").fails(1).says("POOL-ABSENT");
    // The file under the path is not the pool's device now, and is left alone.
    host.shell("mv d1.img away.img && truncate -s 96M d1.img").ok();
    host.shell("zpool inject tank $PWD/d1.img zero").fails(1);
    host.shell("mv away.img d1.img").ok();
    host.shell("zpool inject tank").ok().says("no faults injected");
    host.shell("zpool scrub -w tank && zpool status tank").ok().says("scrub repaired 0B");
    host.shell("zpool export tank").ok();
}
