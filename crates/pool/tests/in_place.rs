//! A whole snapshot takes the place of what a dataset has, where the dataset must stay: the root of
//! a pool, or one with others below it.

use std::collections::BTreeMap;

use crate::common::{self, Dice, ROOT, mount, noise, write_file};
use crate::hosts::{Cuts, Host, WRITES, disturb, furnish, same, tree};
use steadfast_pool::{Error, Naming, Partial, ReceiveSpec};

fn forced(target: &str) -> ReceiveSpec {
    ReceiveSpec { target: target.into(), force: true, naming: Naming::WithoutPool, ..ReceiveSpec::default() }
}

/// A pool with files in its root, and its root as a stream.
fn source() -> (Host, Vec<u8>) {
    let one = Host::new("one", 128);
    furnish(&one.pool, "one");
    one.snapshot("one@a");
    let full = one.send("one@a", None);
    (one, full)
}

/// A pool with something else in its root, and something below it.
fn target() -> Host {
    let two = Host::new("second", 128);
    write_file(&mount(&two.pool, "second").0, ROOT, b"old", &noise(1, 3_000_000));
    two.pool.datasets().create_dataset("second/below", BTreeMap::new(), None).expect("made");
    write_file(&mount(&two.pool, "second/below").0, ROOT, b"stays", &noise(2, 100_000));
    two
}

#[test]
fn a_whole_snapshot_takes_the_place_of_the_root_at_any_cut() {
    let (one, full) = source();
    let two = target();
    let (live, before, below) = (two.live(), tree(&two.pool, "second"), tree(&two.pool, "second/below"));
    let error = two.receive("second", &full).expect_err("it is there");
    assert!(matches!(error, Error::DestinationExists { .. }), "{error}");
    two.receive_as(&forced("second"), &full[..full.len() / 2]).expect_err("cut");
    assert_eq!(tree(&two.pool, "second"), before, "until all has arrived it is what it was");
    {
        let _handle = two.pool.datasets().open_dataset("second").expect("open");
        let error = two.receive_as(&forced("second"), &full).expect_err("in use");
        assert!(matches!(error, Error::Busy { .. }), "{error}");
    }
    two.check();
    let image = two.devices[0].image();
    let new = tree(&one.pool, "one");
    let spec = forced("second");
    let cuts = Cuts { image: &image, stream: &full, spec, operations: WRITES, step: 3, secret: None };
    cuts.each(&mut Dice(9), |host, when| {
        let found = tree(&host.pool, "second");
        assert!(found == new || found == before, "{when}");
        assert_eq!(tree(&host.pool, "second/below"), below, "{when}");
        found == new
    });
    two.receive_as(&forced("second"), &full).expect("received");
    same((&one.pool, "one"), (&two.pool, "second"), "at the end");
    assert_eq!(tree(&two.pool, "second/below"), below);
    two.check();
    assert!(two.live() < live + (12 << 20), "what it had is freed");

    // It goes on as any other that was received.
    let mut dice = Dice(4);
    disturb(&one.pool, "one", &mut dice);
    one.snapshot("one@b");
    two.receive_as(&forced("second"), &one.send("one@b", Some("one@a"))).expect("received");
    same((&one.pool, "one"), (&two.pool, "second"), "after an increment");
    let two = two.crash();
    two.check();
    same((&one.pool, "one"), (&two.pool, "second"), "after an import");
    write_file(&mount(&two.pool, "second").0, ROOT, b"own", &noise(3, 10_000));
    let error = two.receive_as(&forced("second"), &full).expect_err("its snapshots would be lost");
    assert!(matches!(error, Error::HasSnapshots { .. }), "{error}");
}

#[test]
fn what_lies_below_stays_and_names_of_former_moments_go() {
    let (one, full) = source();
    let two = target();
    two.snapshot("second@own");
    let error = two.receive_as(&forced("second"), &full).expect_err("its snapshot would be lost");
    assert!(matches!(error, Error::HasSnapshots { .. }), "{error}");
    two.pool.datasets().add_bookmark("second@own", "second#own").expect("marked");
    two.pool.datasets().destroy_snapshots(&["second@own".into()], false).expect("destroyed");
    two.receive_as(&forced("second"), &full).expect("received");
    assert_eq!(two.pool.datasets().bookmark_infos("second").expect("listed"), []);
    same((&one.pool, "one"), (&two.pool, "second"), "the root");
    // Any other that has something below it is replaced likewise.
    let inner = ReceiveSpec { naming: Naming::AsGiven, ..forced("second/below") };
    two.pool.datasets().create_dataset("second/below/deep", BTreeMap::new(), None).expect("made");
    two.receive_as(&inner, &full).expect("received");
    same((&one.pool, "one"), (&two.pool, "second/below"), "below");
    assert_eq!(two.pool.datasets().names(), ["second", "second/below", "second/below/deep"]);
    two.crash().check();
}

#[test]
fn what_broke_off_is_kept_beside_the_root_and_goes_on() {
    let (one, full) = source();
    let two = target();
    let before = tree(&two.pool, "second");
    let keep = ReceiveSpec { keep: true, ..forced("second") };
    two.receive_as(&keep, &full[..full.len() / 2]).expect_err("cut");
    let two = two.crash();
    assert_eq!(tree(&two.pool, "second"), before);
    assert_eq!(two.pool.datasets().unfinished(), [""; 0]);
    let Partial { position, .. } = two.pool.datasets().partial("second").expect("kept");
    let error = two.receive_as(&keep, &full).expect_err("something is kept");
    assert!(matches!(error, Error::PartialExists { .. }), "{error}");
    two.receive_as(&keep, &one.send_from("one@a", None, Some(position))).expect("received");
    same((&one.pool, "one"), (&two.pool, "second"), "at the end");
    two.check();
    // And can be given up.
    let three = target();
    three.receive_as(&keep, &full[..full.len() / 2]).expect_err("cut");
    three.pool.datasets().abort_receive("second").expect("given up");
    assert!(three.pool.datasets().partial("second").is_none());
    assert_eq!(tree(&three.pool, "second"), before);
    three.check();
}

#[test]
fn what_cannot_come_in_place_is_refused_and_changes_nothing() {
    let (one, full) = source();
    let two = target();
    let before = tree(&two.pool, "second");
    // Larger than what was set here.
    write_file(&mount(&one.pool, "one").0, ROOT, b"large", &noise(7, 6_000_000));
    one.snapshot("one@b");
    two.pool.datasets().set_property("second", "refquota", Some("5000000")).expect("set");
    two.receive_as(&forced("second"), &one.send("one@b", None)).expect_err("too large");
    two.pool.datasets().set_property("second", "refquota", None).expect("set");
    // A key would be of its own.
    let key = common::key(&two.env, &[2; 32]);
    let spec = ReceiveSpec { key: Some(key), ..forced("second") };
    let error = two.receive_as(&spec, &full).expect_err("a key");
    assert!(matches!(error, Error::InPlace { .. }), "{error}");
    // An encrypted dataset stays so.
    let key = common::key(&two.env, &[3; 32]);
    two.pool.datasets().create_dataset("second/safe", BTreeMap::new(), Some(key)).expect("made");
    two.pool.datasets().create_dataset("second/safe/deep", BTreeMap::new(), None).expect("made");
    let spec = ReceiveSpec { naming: Naming::AsGiven, ..forced("second/safe") };
    let error = two.receive_as(&spec, &full).expect_err("encrypted");
    assert!(matches!(error, Error::InPlace { .. }), "{error}");
    assert_eq!(tree(&two.pool, "second"), before);
    two.check_with(Some(&[3; 32]));
}
