//! Encrypted datasets that are destroyed together without their key: all of them or none, and all
//! of their room comes back.

use std::collections::{BTreeMap, BTreeSet};

use crate::common::{self, Dice, handles, import, mount, noise, write_file};
use crate::hosts::{Host, disturb, furnish, inspect_devices, same, tree};
use steadfast_pool::{Error, ReceiveSpec};

const SECRET: [u8; 32] = [3; 32];

/// `tank/safe` with a key of its own, one below it, and clones of both, all with snapshots and with
/// content that only those hold.
fn with_safe(host: &Host) {
    let key = common::key(&host.env, &SECRET);
    let props = BTreeMap::from([("dedup".to_owned(), "on".to_owned())]);
    host.pool.datasets().create_dataset("tank/safe", props, Some(key)).expect("made");
    host.pool.datasets().create_dataset("tank/safe/in", BTreeMap::new(), None).expect("made");
    let mut dice = Dice(11);
    for name in ["tank/safe", "tank/safe/in"] {
        furnish(&host.pool, name);
        host.snapshot(&format!("{name}@a"));
        disturb(&host.pool, name, &mut dice);
        host.snapshot(&format!("{name}@b"));
        disturb(&host.pool, name, &mut dice);
    }
    for (of, clone) in [("tank/safe@a", "tank/safe/twin"), ("tank/safe/in@b", "tank/other")] {
        host.pool.datasets().clone_snapshot(of, clone, BTreeMap::new()).expect("cloned");
        disturb(&host.pool, clone, &mut dice);
        host.snapshot(&format!("{clone}@c"));
        disturb(&host.pool, clone, &mut dice);
    }
    host.pool.datasets().clone_snapshot("tank/other@c", "tank/third", BTreeMap::new()).expect("cloned");
    disturb(&host.pool, "tank/third", &mut dice);
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const ALL: [&str; 5] = ["tank/third", "tank/other", "tank/safe/twin", "tank/safe/in", "tank/safe"];

/// A pool with something that stays, and what lives in it without the safe.
fn host() -> (Host, u64) {
    let host = Host::new("tank", 256);
    host.pool.datasets().create_dataset("tank/plain", BTreeMap::new(), None).expect("made");
    furnish(&host.pool, "tank/plain");
    host.check();
    let live = host.live();
    with_safe(&host);
    assert!(host.live() > 2 * live, "{} {live}", host.live());
    (host, live)
}

fn all_is_back(host: &Host, live: u64) {
    assert_eq!(host.pool.datasets().names(), ["tank", "tank/plain"]);
    host.check();
    assert!(host.live() < live + (1 << 20), "{live} lived before, {} now", host.live());
}

#[test]
fn a_tree_whose_key_is_lost_goes_as_a_whole_with_its_clones() {
    let (host, live) = host();
    let plain = tree(&host.pool, "tank/plain");
    host.pool.datasets().unload_key("tank/safe").expect("unloaded");
    // One alone does not: its blocks lie beside those of the others.
    for part in [&ALL[..1], &ALL[..4], &ALL[3..4]] {
        let error = host.pool.datasets().check_destroy_all(&names(part)).unwrap_err();
        assert!(matches!(&error, Error::BlocksBeside { root, .. } if root == "tank/safe"), "{error}");
        let error = host.pool.datasets().destroy_all(&names(part)).unwrap_err();
        assert!(matches!(error, Error::BlocksBeside { .. } | Error::HasClones { .. }), "{error}");
    }
    let error = host.pool.datasets().destroy_all(&names(&ALL[1..])).unwrap_err();
    assert!(matches!(error, Error::HasClones { .. }), "{error}");
    assert_eq!(host.pool.datasets().names().len(), 7);
    host.pool.datasets().check_destroy_all(&names(&ALL)).expect("together they go");
    host.pool.datasets().destroy_all(&names(&ALL)).expect("destroyed");
    all_is_back(&host, live);
    assert!(tree(&host.pool, "tank/plain") == plain);
    // As after a power cut right behind it, and the name is free.
    let host = host.crash();
    let key = common::key(&host.env, &SECRET);
    host.pool.datasets().create_dataset("tank/safe", BTreeMap::new(), Some(key)).expect("made again");
    host.check_with(Some(&SECRET));
}

#[test]
fn what_is_being_destroyed_unread_goes_on_after_a_crash() {
    let (host, live) = host();
    host.pool.datasets().unload_key("tank/safe").expect("unloaded");
    host.pool.datasets().destroy_all(&names(&ALL)).expect("destroyed");
    // Nothing of what commits free in the background was awaited, and what is there in between is
    // consistent.
    let Host { env, devices, pool } = host;
    drop(pool);
    inspect_devices(&env, &devices, Some(&SECRET));
    let pool = import(&env, handles(&devices), None).expect("imported");
    all_is_back(&Host { env, devices, pool }, live);
}

#[test]
fn with_the_key_loaded_it_is_the_same() {
    let (host, live) = host();
    // Open, and written to until a moment ago.
    for name in ["tank/safe/in", "tank/other"] {
        let (fs, _handle) = mount(&host.pool, name);
        write_file(&fs, common::ROOT, b"late", &noise(5, 3_000_000));
    }
    host.pool.datasets().destroy_all(&names(&ALL)).expect("destroyed");
    all_is_back(&host, live);
}

#[test]
fn what_was_destroyed_before_the_key_was_lost_does_not_keep_the_rest() {
    let (host, live) = host();
    host.pool.datasets().destroy_all(&names(&ALL[..3])).expect("destroyed");
    host.pool.datasets().destroy_all(&names(&["tank/safe/in"])).expect("destroyed");
    // Before all of it was freed.
    let host = host.crash();
    assert!(!host.pool.datasets().dataset_info("tank/safe").expect("there").key_loaded);
    host.pool.datasets().destroy_with_snapshots("tank/safe").expect("destroyed");
    all_is_back(&host, live);
}

#[test]
fn what_is_kept_of_a_stream_goes_with_a_locked_tree() {
    let (one, (host, live)) = (Host::new("one", 128), host());
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@a");
    disturb(&one.pool, "one/fs", &mut Dice(3));
    one.snapshot("one/fs@b");
    let (full, more) = (one.send("one/fs@a", None), one.send("one/fs@b", Some("one/fs@a")));
    let keep = |target: &str| ReceiveSpec { target: target.into(), keep: true, ..ReceiveSpec::default() };
    // A whole one that broke off, and an increment.
    host.receive_as(&keep("tank/safe/whole"), &full[..full.len() / 2]).expect_err("cut");
    host.receive_as(&keep("tank/safe/copy"), &full).expect("received");
    host.receive_as(&keep("tank/safe/copy"), &more[..more.len() / 2]).expect_err("cut");
    assert!(host.pool.datasets().partial("tank/safe/whole").is_some());
    assert!(host.pool.datasets().partial("tank/safe/copy").is_some());
    let host = host.crash();
    let mut all = names(&["tank/safe/copy"]);
    all.extend(names(&ALL));
    host.pool.datasets().destroy_all(&all).expect("destroyed");
    all_is_back(&host, live);
}

#[test]
fn a_tree_is_destroyed_in_one_step_or_not_at_all() {
    let host = Host::new("tank", 256);
    for name in ["tank/top", "tank/top/a", "tank/top/b"] {
        host.pool.datasets().create_dataset(name, BTreeMap::new(), None).expect("made");
        furnish(&host.pool, name);
        host.snapshot(&format!("{name}@s"));
    }
    host.pool.datasets().clone_snapshot("tank/top/a@s", "tank/top/c", BTreeMap::new()).expect("cloned");
    disturb(&host.pool, "tank/top/c", &mut Dice(4));
    let all = names(&["tank/top/c", "tank/top/b", "tank/top/a", "tank/top"]);
    // The last one that is asked for is in use, or held: the others stay.
    {
        let (_fs, _handle) = mount(&host.pool, "tank/top");
        let error = host.pool.datasets().destroy_all(&all).unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
    }
    host.pool.datasets().hold(&names(&["tank/top@s"]), "mine").expect("held");
    let error = host.pool.datasets().destroy_all(&all).unwrap_err();
    assert!(matches!(error, Error::SnapshotHeld { .. }), "{error}");
    assert_eq!(host.pool.datasets().names().len(), 5);
    same((&host.pool, "tank/top/a"), (&host.pool, "tank/top/b"), "untouched");
    host.pool.datasets().release(&names(&["tank/top@s"]), "mine").expect("released");
    host.pool.datasets().destroy_all(&all).expect("destroyed");
    let history = host.pool.history().expect("read");
    let destroyed = history.into_iter().filter(|entry| entry.text.starts_with("destroy "));
    let txgs: BTreeSet<u64> = destroyed.map(|entry| entry.txg.0).collect();
    assert_eq!(txgs.len(), 1, "one commit: {txgs:?}");
    assert_eq!(host.pool.datasets().names(), ["tank"]);
    host.check();
}
