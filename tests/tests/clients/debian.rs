//! Programs of Debian.

use super::install::ready;

#[test]
fn sanoid() {
    let Some(ready) = ready("sanoid") else { return };
    let shell = |line: &str| ready.host.shell(line).ok();
    shell(
        "zfs create src/data && zfs create src/data/sub && seq 9999 > src/data/file && mkdir conf cache run2",
    );
    shell("cp src/data/file conf; zfs create src/bare");
    let defaults = ready.root.join("usr/share/sanoid/sanoid.defaults.conf").display().to_string();
    shell(&format!("cp {defaults} conf"));
    let policy = "[src/data]\nuse_template = t\nrecursive = yes\n[template_t]\nhourly = 2\ndaily = 1\nmonthly = 1\n\
                  yearly = 0\nautosnap = yes\nautoprune = yes\n";
    std::fs::write(ready.host.at("conf/sanoid.conf"), policy).expect("written");
    // Older than the policy wants, so it is pruned.
    let old = "src/data@autosnap_2020-01-01_00:00:00_hourly";
    let sanoid = "sanoid --configdir=$PWD/conf --cache-dir=$PWD/cache --run-dir=$PWD/run2";
    ready
        .placed(&format!("{sanoid} --take-snapshots --verbose"))
        .ok()
        .says("taking snapshot src/data/sub@autosnap_");
    let snapshots = |of: &str| shell(&format!("zfs list -Ho name -t snapshot {of}")).out;
    assert_eq!(snapshots("src/data").lines().count(), 3);
    assert_eq!(snapshots("src/data/sub").lines().count(), 3);
    assert_eq!(snapshots("src/bare").lines().count(), 0);
    assert!(!snapshots("src/data").contains(old));
    ready.placed(&format!("{sanoid} --take-snapshots --prune-snapshots --verbose")).ok();
    for (monitor, says) in [
        ("snapshots", "OK: all monitored datasets (src/data, src/data/sub) have fresh snapshots"),
        ("health", "OK ZPOOL src : ONLINE"),
        ("capacity", "OK ZPOOL src : "),
    ] {
        ready.placed(&format!("{sanoid} --monitor-{monitor}")).ok().says(says);
    }
    // A policy that keeps none, and no younger one: the cache is as old as its file.
    let policy = std::fs::read_to_string(ready.host.at("conf/sanoid.conf")).expect("read");
    let none = policy.replace("hourly = 2", "hourly = 0").replace("daily = 1", "daily = 0");
    std::fs::write(ready.host.at("conf/sanoid.conf"), none).expect("written");
    ready.placed(&format!("{sanoid} --force-update --force-prune --prune-snapshots --verbose")).ok();
    assert!(snapshots("src/data").lines().count() <= 3);
    shell("diff conf/file src/data/.zfs/snapshot/autosnap_*_monthly/file");
}

#[test]
fn syncoid() {
    let Some(ready) = ready("syncoid") else { return };
    let shell = |line: &str| ready.host.shell(line).ok();
    shell(
        "zfs create src/data && zfs create src/data/sub && seq 99999 > src/data/file && seq 9 > src/data/sub/few",
    );
    let sync = |more: &str| ready.placed(&format!("syncoid --no-privilege-elevation {more}"));
    sync("-r --identifier=one src/data dst/data").ok().says("to new target filesystem");
    shell("diff -r src/data dst/data; rm src/data/file; seq 7 > src/data/next");
    sync("-r --identifier=two src/data dst/data").ok().says("Sending incremental src/data@syncoid_one_");
    shell("diff -r src/data dst/data");
    // A stream that is cut off, and the rest of it.
    shell("zfs create src/long; head -c 20000000 /dev/urandom > src/long/noise; zfs snapshot src/long@one");
    ready
        .host
        .shell("set +e; zfs send src/long@one | head -c 9000000 | zfs receive -s dst/long; zfs list -Ho receive_resume_token dst/long")
        .says("1-");
    sync("--identifier=three src/long dst/long")
        .ok()
        .says("Resuming interrupted zfs send/receive from src/long to dst/long");
    shell("diff -r src/long dst/long; zfs list -Ho name -t snapshot dst/long")
        .says("dst/long@syncoid_three_");
    shell("test $(zfs get -Ho value receive_resume_token dst/long) = -");
}

#[test]
fn zfs_auto_snapshot() {
    let Some(ready) = ready("zfs-auto-snapshot") else { return };
    let shell = |line: &str| ready.host.shell(line).ok();
    shell("zfs create src/data; zfs create src/no; zfs set com.sun:auto-snapshot=false src/no");
    // Older ones, which are removed.
    shell("zfs snapshot -r src@zfs-auto-snap_hourly-2020-01-01-0000; zfs snapshot -r src@own");
    // It sorts by seconds.
    shell("until [ $(date +%s) -gt $(zfs get -Hpo value creation src@own) ]; do true; done");
    let told = ready.placed("zfs-auto-snapshot --verbose --label=hourly --keep=1 //").ok();
    told.says(", 3 created, 2 destroyed, 0 warnings.");
    ready
        .placed("zfs-auto-snapshot --label=frequent --keep=1 --recursive src/data dst")
        .ok()
        .says("0 warnings");
    let has = |name: &str| shell(&format!("zfs list -Ho name -t snapshot {name}")).out;
    assert_eq!(has("src/data").lines().count(), 3, "{}", has("src/data"));
    assert!(has("src/data").contains("src/data@own\n"), "{}", has("src/data"));
    assert!(!has("src/data").contains("2020-01-01"), "{}", has("src/data"));
    assert!(!has("src/no").contains("frequent"), "{}", has("src/no"));
    assert!(has("dst").contains("dst@zfs-auto-snap_frequent-"), "{}", has("dst"));
}
