//! Snapshots taken by a policy.

use super::*;

#[test]
fn a_policy_takes_snapshots_and_removes_old_ones() {
    /// Sunday, 22 November 2026, 14:38:20 UTC.
    const NOW: u64 = 1_795_358_300;
    let real = Env::real();
    let clock = Arc::new(Shown { real: Arc::clone(&real.clock), wall_seconds: AtomicU64::new(NOW) });
    let shown: Arc<dyn Clock> = Arc::<Shown>::clone(&clock);
    let mut house = House::within(Env { clock: shown, ..real }, "policy");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    house.create_fs("tank/b", &[("steadfast:auto-snapshot", "off")], None).unwrap();
    house
        .create_fs(
            "tank/sealed",
            &[("encryption", "on"), ("keyformat", "passphrase")],
            Some(passphrase("correct horse")),
        )
        .unwrap();
    let policy = "steadfast:auto-snapshot";
    let there = |house: &House, name: &str| -> Vec<String> {
        let request = FsListAll {
            names: vec![name.into()],
            depth: Some(0),
            filesystems: false,
            snapshots: true,
            bookmarks: false,
            wanted: Vec::new(),
        };
        let listed = house.host().call(&caller(), request).unwrap();
        listed.iter().map(|info| info.name.split_once('@').unwrap().1.to_owned()).collect()
    };
    let look_at = |house: &House, seconds: u64| {
        clock.wall_seconds.store(seconds, Ordering::SeqCst);
        house.host().snapshot_by_policy();
    };
    let snapshot = |house: &House, name: &str| {
        let request =
            FsSnapshot { names: vec![name.into()], recursive: false, properties: Properties::new() };
        house.host().call(&caller(), request).unwrap();
    };
    assert_eq!(house.set("tank", policy, "hourly").unwrap_err().code, Code::PropValue);
    look_at(&house, NOW);
    assert!(there(&house, "tank").is_empty(), "without a policy nothing is taken");

    house.set("tank", policy, "hourly=2,daily=1").unwrap();
    snapshot(&house, "tank@mine");
    snapshot(&house, "tank@auto-hourly-of-mine");
    look_at(&house, NOW + 60);
    let first = ["auto-hourly-2026-11-22_14:00", "auto-daily-2026-11-22"];
    assert_eq!(there(&house, "tank/a"), first);
    assert_eq!(there(&house, "tank/sealed"), first);
    assert!(there(&house, "tank/b").is_empty());
    assert_eq!(there(&house, "tank").len(), 4);
    let list = FsListAll {
        names: vec!["tank".into()],
        depth: None,
        filesystems: false,
        snapshots: true,
        bookmarks: false,
        wanted: vec!["createtxg".into()],
    };
    let txgs: Vec<u64> = house
        .host()
        .call(&caller(), list)
        .unwrap()
        .iter()
        .filter(|info| info.name.contains("_14:00"))
        .map(|info| info.createtxg)
        .collect();
    assert!(txgs.len() == 3 && txgs.iter().all(|txg| *txg == txgs[0]), "one commit for all: {txgs:?}");

    // Within the hour nothing more, not even what a user destroyed.
    let destroy = FsSnapshotDestroy {
        name: "tank/a".into(),
        snapshots: first[0].into(),
        recursive: false,
        clones: false,
        force: false,
        dry_run: false,
        defer: false,
    };
    house.host().call(&caller(), destroy).unwrap();
    look_at(&house, NOW + 120);
    assert_eq!(there(&house, "tank/a"), first[1..]);

    // A day on, and what is held stays beyond the count.
    let hold = FsHold {
        names: vec![format!("tank@{}", first[0])],
        tag: "keep".into(),
        recursive: false,
        release: false,
    };
    house.host().call(&caller(), hold).unwrap();
    for hour in 1..=24 {
        look_at(&house, NOW + hour * 3_600);
    }
    let kept = ["auto-hourly-2026-11-23_13:00", "auto-hourly-2026-11-23_14:00", "auto-daily-2026-11-23"];
    let sorted = |house: &House, name: &str| {
        let mut names = there(house, name);
        names.sort();
        names
    };
    let mut expected = kept.map(str::to_owned).to_vec();
    expected.sort();
    assert_eq!(sorted(&house, "tank/a"), expected);
    expected.extend(["mine", "auto-hourly-of-mine", first[0]].map(str::to_owned));
    expected.sort();
    assert_eq!(sorted(&house, "tank"), expected, "users' own and what is held stay");

    // A daemon that was away takes one for the hour it comes back in; a clock that was set back,
    // one for the hour it shows.
    house.restart();
    look_at(&house, NOW + 30 * 3_600);
    assert!(there(&house, "tank/a").contains(&"auto-hourly-2026-11-23_20:00".to_owned()));
    look_at(&house, NOW - 300 * 3_600);
    assert!(there(&house, "tank/a").contains(&"auto-hourly-2026-11-10_02:00".to_owned()));
    assert_eq!(there(&house, "tank/a").iter().filter(|name| name.starts_with("auto-hourly")).count(), 2);

    // A smaller count counts at once; without a policy everything stays as it is.
    house.set("tank", policy, "hourly=0").unwrap();
    look_at(&house, NOW - 299 * 3_600);
    assert!(there(&house, "tank/a").iter().all(|name| !name.starts_with("auto-hourly")));
    assert!(there(&house, "tank/a").iter().any(|name| name.starts_with("auto-daily")));
    house.set("tank", policy, "off").unwrap();
    let before = there(&house, "tank/a");
    look_at(&house, NOW - 200 * 3_600);
    assert_eq!(there(&house, "tank/a"), before);
    let past = house.host().call(&caller(), PoolHistory::default()).unwrap();
    assert!(
        past[0]
            .records
            .iter()
            .any(|record| record.internal && record.text.contains("tank/a@auto-hourly-2026-11-23_20:00"))
    );
}

#[test]
fn a_limit_of_snapshots_holds_and_keeps_nobody_else_from_its_own() {
    /// Sunday, 22 November 2026, 14:38:20 UTC.
    const NOW: u64 = 1_795_358_300;
    let real = Env::real();
    let clock = Arc::new(Shown { real: Arc::clone(&real.clock), wall_seconds: AtomicU64::new(NOW) });
    let shown: Arc<dyn Clock> = Arc::<Shown>::clone(&clock);
    let house = House::within(Env { clock: shown, ..real }, "limits");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[("snapshot_limit", "1")], None).unwrap();
    house.create_fs("tank/a/below", &[], None).unwrap();
    house.create_fs("tank/b", &[("steadfast:auto-snapshot", "hourly=1")], None).unwrap();
    house.set("tank/a", "steadfast:auto-snapshot", "hourly=1").unwrap();
    let count = |name: &str| house.get(name, "snapshot_count");
    // Two at once are one more than there may be, so there is neither; and the others have theirs.
    house.host().snapshot_by_policy();
    assert_eq!((count("tank/a"), count("tank/b"), count("tank")), ("0".into(), "1".into(), "1".into()));
    // With room for one more than is kept it goes on, in the same hour and in the next.
    house.set("tank/a", "snapshot_limit", "4").unwrap();
    for minutes in [1, 61, 121] {
        clock.wall_seconds.store(NOW + minutes * 60, Ordering::SeqCst);
        house.host().snapshot_by_policy();
        assert_eq!((count("tank/a"), count("tank/b"), count("tank")), ("2".into(), "1".into(), "3".into()));
    }
}

#[test]
fn what_waits_for_a_key_keeps_nobody_else_from_the_snapshots_of_its_policy() {
    /// Sunday, 22 November 2026, 14:38:20 UTC.
    const NOW: u64 = 1_795_358_300;
    // On a clock on which no time passes: nothing is committed that nobody waits for.
    let still = Env::seeded(1).clock;
    let clock = Arc::new(Shown { real: still, wall_seconds: AtomicU64::new(NOW) });
    let shown: Arc<dyn Clock> = Arc::<Shown>::clone(&clock);
    let mut house = House::within(Env { clock: shown, ..Env::real() }, "promised");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.set("tank", "steadfast:auto-snapshot", "hourly=2").unwrap();
    house.set("tank", "journal", "ordered").unwrap();
    house.stage.promises.store(true, Ordering::SeqCst);
    let sealed = [("encryption", "on"), ("keyformat", "passphrase")];
    house.create_fs("tank/sealed", &sealed, Some(passphrase("correct horse"))).unwrap();
    house.stage.promises.store(false, Ordering::SeqCst);
    // A crash, after which the promise waits for the key. Mounts end with it.
    house.engine = None;
    house.stage.mounts.lock().unwrap().clear();
    house.start();
    assert_eq!(house.host().call(&caller(), PoolStatus::default()).unwrap()[0].log.held, 1);
    let count = |house: &House, name: &str| house.get(name, "snapshot_count");
    house.host().snapshot_by_policy();
    assert_eq!((count(&house, "tank"), count(&house, "tank/sealed")), ("1".into(), "0".into()));
    // When it is there the missing one is taken, within the same hour.
    let key = passphrase("correct horse");
    house.host().call(&caller(), FsLoadKey { name: "tank/sealed".into(), key, dry_run: false }).unwrap();
    clock.wall_seconds.store(NOW + 60, Ordering::SeqCst);
    house.host().snapshot_by_policy();
    assert_eq!((count(&house, "tank"), count(&house, "tank/sealed")), ("2".into(), "1".into()));
}
