//! An open stream is sealed where it arrives, with a key of its own: all of it or nothing, whether
//! the key is loaded afterwards or not.

use std::collections::BTreeMap;

use crate::common::{self, Dice, ROOT, mount, noise, write_file};
use crate::hosts::{Cuts, Host, WRITES_AND_FLUSHES, disturb, furnish, same, tree};
use steadfast_format::KeyFormat;
use steadfast_pool::{Error, ReceiveSpec, SendSpec};

const SECRET: [u8; 32] = [7; 32];

/// Under a key of its own.
fn sealed(host: &Host, target: &str) -> ReceiveSpec {
    let key = Some(common::key(&host.env, &SECRET));
    ReceiveSpec { target: target.into(), key, ..ReceiveSpec::default() }
}

#[test]
fn an_open_stream_becomes_an_encryption_root_and_its_increments_go_on_in_it() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    one.pool.datasets().create_dataset("one/fs/below", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    let of = |name: &str, base: Option<&str>| {
        let base = base.map(str::to_owned);
        SendSpec { snapshot: name.to_owned(), base, ..SendSpec::default() }
    };
    one.snapshot("one/fs@a");
    one.snapshot("one/fs/below@a");
    disturb(&one.pool, "one/fs", &mut Dice(3));
    one.snapshot("one/fs@b");
    // A tree and an increment, as one stream.
    let specs = [of("one/fs@a", None), of("one/fs@b", Some("one/fs@a")), of("one/fs/below@a", None)];
    let mut stream = Vec::new();
    one.pool.streams().send(&specs, &mut stream, &mut |_, _| ()).expect("sent");
    two.receive_as(&sealed(&two, "second/safe"), &stream).expect("received");
    for name in ["second/safe", "second/safe/below"] {
        let info = two.pool.datasets().dataset_info(name).expect("there");
        assert_eq!(info.encryption_root.as_deref(), Some("second/safe"), "{name}");
    }
    same((&one.pool, "one/fs"), (&two.pool, "second/safe"), "received");
    // It is known by its key alone, after an import as well.
    let two = two.crash();
    assert_eq!(two.pool.datasets().key_format("second/safe").expect("a root"), KeyFormat::Raw);
    assert!(matches!(two.pool.datasets().open_dataset("second/safe"), Err(Error::KeyNotLoaded { .. })));
    let wrong = two.pool.datasets().load_key("second/safe", &[8; 32], false);
    assert!(matches!(wrong, Err(Error::WrongKey { .. })), "{wrong:?}");
    two.pool.datasets().load_key("second/safe", &SECRET, false).expect("loaded");
    same((&one.pool, "one/fs"), (&two.pool, "second/safe"), "after an import");
    disturb(&one.pool, "one/fs", &mut Dice(4));
    one.snapshot("one/fs@c");
    let increment = one.send("one/fs@c", Some("one/fs@b"));
    two.receive("second/safe", &increment).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/safe"), "an increment later");
    two.check_with(Some(&SECRET));
}

#[test]
fn a_key_of_its_own_is_refused_where_it_would_mean_nothing() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    one.snapshot("one/fs@a");
    one.snapshot("one/fs@b");
    let (full, increment) = (one.send("one/fs@a", None), one.send("one/fs@b", Some("one/fs@a")));
    two.receive("second/open", &full).expect("received");
    let own = common::key(&one.env, &[1; 32]);
    one.pool.datasets().create_dataset("one/vault", BTreeMap::new(), Some(own)).expect("made");
    one.snapshot("one/vault@a");
    let raw = SendSpec { snapshot: "one/vault@a".into(), raw: true, ..SendSpec::default() };
    let raw = one.send_as(raw);
    let said = |spec: &ReceiveSpec, stream: &[u8], why: &str| match two.receive_as(spec, stream) {
        Err(Error::NoNewKey { reason, .. }) => assert!(reason.contains(why), "{reason}"),
        other => panic!("{why}: {other:?}"),
    };
    said(&sealed(&two, "second/open"), &increment, "an increment is encrypted as its target is");
    said(&sealed(&two, "second/raw"), &raw, "the stream is raw and brings its own key");
    said(&ReceiveSpec { keep: true, ..sealed(&two, "second/kept") }, &full, "-s");
    let off = BTreeMap::from([("encryption".to_owned(), "off".to_owned())]);
    let spec = ReceiveSpec { target: "second/raw".into(), props: off, ..ReceiveSpec::default() };
    said(&spec, &raw, "the stream is raw and brings its own key");
    assert_eq!(two.pool.datasets().names(), ["second", "second/open"]);
    two.check();
}

#[test]
fn what_breaks_off_leaves_nothing_though_its_key_is_nowhere() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    furnish(&one.pool, "one/fs");
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    two.pool.sync().expect("committed");
    let empty = two.live();
    for part in [full.len() / 3, full.len() - 40] {
        two.receive_as(&sealed(&two, "second/safe"), &full[..part]).expect_err("it breaks off");
        assert_eq!(two.pool.datasets().names(), ["second"]);
        two.check();
        assert!(two.live() <= empty + (1 << 20), "{} and {empty}", two.live());
    }
    // And again, so that what broke off is in nobody's way.
    two.receive_as(&sealed(&two, "second/safe"), &full).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/safe"), "at the end");
}

#[test]
fn a_crash_at_any_write_leaves_all_of_it_or_nothing() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        (1..20).for_each(|at| {
            _ = write_file(&fs, ROOT, format!("file {at}").as_bytes(), &noise(at, at as usize * 6_000));
        });
    }
    one.snapshot("one/fs@a");
    let full = one.send("one/fs@a", None);
    let wanted = tree(&one.pool, "one/fs");
    two.pool.sync().expect("committed");
    let (image, empty) = (two.devices[0].image(), two.live());
    let cuts = Cuts::new(&image, &full, "second/safe", WRITES_AND_FLUSHES);
    Cuts { spec: sealed(&two, "second/safe"), secret: Some(&SECRET), ..cuts }.each(
        &mut Dice(91),
        |host, when| {
            let there = host.pool.datasets().names().contains(&"second/safe".to_owned());
            if there {
                host.pool.datasets().load_key("second/safe", &SECRET, false).expect("loaded");
                assert_eq!(tree(&host.pool, "second/safe"), wanted, "{when}");
            } else {
                // Nobody could name it to load its key, and its room is there again without.
                host.check();
                assert!(host.live() <= empty + (1 << 20), "{when}: {} and {empty}", host.live());
            }
            there
        },
    );
}
