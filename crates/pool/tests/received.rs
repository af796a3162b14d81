//! Received properties are kept beside local ones, and come with their snapshot or not at all.

use crate::hosts;
use std::collections::BTreeMap;

use crate::common::{Dice, ROOT, mount, noise, write_file};
use crate::hosts::{Cuts, Host, WRITES_AND_FLUSHES};
use steadfast_format::stream::{FrameKind, StreamBegin};
use steadfast_pool::{Error, Naming, Pool, ReceiveSpec, SendSpec};
use steadfast_property::Source;

fn send(host: &Host, snapshot: &str, base: Option<&str>, backup: bool) -> Vec<u8> {
    let base = base.map(str::to_owned);
    let spec = SendSpec { snapshot: snapshot.into(), base, properties: true, backup, ..SendSpec::default() };
    let mut out = Vec::new();
    host.pool.streams().send(&[spec], &mut out, &mut |_, _| ()).expect("sent");
    out
}

/// Value and source of a property, and what was received of it.
fn shown(pool: &Pool, fs: &str, property: &str) -> (String, Source, Option<String>) {
    let resolved = pool.datasets().resolve(fs, property, "/").expect("there").expect("it has a value");
    (resolved.value, resolved.source, pool.datasets().received_props(fs).expect("there").remove(property))
}

fn of(value: &str, source: Source, received: Option<&str>) -> (String, Source, Option<String>) {
    (value.to_owned(), source, received.map(str::to_owned))
}

fn set(host: &Host, fs: &str, property: &str, value: Option<&str>) {
    host.pool.datasets().set_properties(fs, &[(property, value)]).expect("set");
}

fn into(target: &str) -> ReceiveSpec {
    ReceiveSpec { target: target.into(), ..ReceiveSpec::default() }
}

#[test]
fn what_is_received_counts_until_something_is_set_and_again_after_a_return() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    set(&one, "one/fs", "compression", Some("zstd"));
    set(&one, "one/fs", "org:note", Some("theirs"));
    set(&one, "one/fs", "quota", Some("30000000"));
    one.snapshot("one/fs@1");
    two.receive("second/copy", &send(&one, "one/fs@1", None, false)).expect("received");
    let compression = |two: &Host| shown(&two.pool, "second/copy", "compression");
    assert_eq!(compression(&two), of("zstd", Source::Received, Some("zstd")));
    assert_eq!(shown(&two.pool, "second/copy", "quota"), of("30000000", Source::Received, Some("30000000")));
    two.pool.datasets().create_dataset("second/copy/below", BTreeMap::new(), None).expect("made");
    let below = shown(&two.pool, "second/copy/below", "compression");
    assert_eq!(below, of("zstd", Source::Inherited("second/copy".into()), None));
    two.pool.datasets().destroy_dataset("second/copy/below").expect("destroyed");

    // A local value counts first, through imports and receives.
    set(&two, "second/copy", "compression", Some("lz4"));
    let two = two.crash();
    assert_eq!(compression(&two), of("lz4", Source::Local, Some("zstd")));
    set(&one, "one/fs", "compression", Some("zle"));
    set(&one, "one/fs", "org:note", None);
    set(&one, "one/fs", "atime", Some("off"));
    one.snapshot("one/fs@2");
    two.receive("second/copy", &send(&one, "one/fs@2", Some("one/fs@1"), false)).expect("received");
    assert_eq!(compression(&two), of("lz4", Source::Local, Some("zle")));
    assert_eq!(shown(&two.pool, "second/copy", "atime"), of("off", Source::Received, Some("off")));
    assert!(
        two.pool.datasets().resolve("second/copy", "org:note", "/").unwrap().is_none(),
        "the sender has it no more"
    );

    // Inherited anew: neither counts, until it goes back.
    set(&two, "second/copy", "compression", None);
    let two = two.crash();
    assert_eq!(compression(&two), of("on", Source::Default, Some("zle")));
    set(&one, "one/fs", "compression", Some("off"));
    one.snapshot("one/fs@3");
    two.receive("second/copy", &send(&one, "one/fs@3", Some("one/fs@2"), false)).expect("received");
    assert_eq!(compression(&two), of("on", Source::Default, Some("off")));
    two.pool.datasets().revert_property("second/copy", "compression").expect("back");
    let two = two.crash();
    assert_eq!(compression(&two), of("off", Source::Received, Some("off")));
    two.pool.datasets().revert_property("second/copy", "exec").expect("nothing was received of it");
    assert_eq!(shown(&two.pool, "second/copy", "exec"), of("on", Source::Default, None));

    // A stream without properties says nothing of them.
    one.snapshot("one/fs@4");
    two.receive("second/copy", &one.send("one/fs@4", Some("one/fs@3"))).expect("received");
    assert_eq!(compression(&two), of("off", Source::Received, Some("off")));

    // A backup gives back what it was given, not what it has.
    set(&two, "second/copy", "compression", Some("lz4"));
    set(&two, "second/copy", "org:shelf", Some("7"));
    let three = Host::new("third", 64);
    three.receive("third/back", &send(&two, "second/copy@4", None, true)).expect("received");
    assert_eq!(shown(&three.pool, "third/back", "compression"), of("off", Source::Received, Some("off")));
    assert!(three.pool.datasets().resolve("third/back", "org:shelf", "/").unwrap().is_none());
    three.receive("third/all", &send(&two, "second/copy@4", None, false)).expect("received");
    assert_eq!(shown(&three.pool, "third/all", "compression"), of("lz4", Source::Received, Some("lz4")));

    two.pool.datasets().destroy_with_snapshots("second/copy").expect("destroyed");
    two.check();
}

#[test]
fn what_is_overridden_or_left_out_does_not_count_and_is_remembered() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    for fs in ["one/top", "one/top/below"] {
        one.pool.datasets().create_dataset(fs, BTreeMap::new(), None).expect("made");
        for (property, value) in
            [("compression", "zstd"), ("atime", "off"), ("quota", "30000000"), ("org:a", "1")]
        {
            set(&one, fs, property, Some(value));
        }
    }
    for name in ["one/top@1", "one/top/below@1"] {
        one.snapshot(name);
    }
    let parts = ["one/top@1", "one/top/below@1"].map(|snapshot| SendSpec {
        snapshot: snapshot.into(),
        properties: true,
        ..SendSpec::default()
    });
    let mut stream = Vec::new();
    one.pool.streams().send(&parts, &mut stream, &mut |_, _| ()).expect("sent");
    let spec = ReceiveSpec {
        props: BTreeMap::from([("compression".into(), "lz4".into())]),
        exclude: vec!["atime".into(), "quota".into(), "exec".into()],
        ..into("second/copy")
    };
    two.receive_as(&spec, &stream).expect("received");
    let two = two.crash();
    let at = |fs: &str, property: &str| shown(&two.pool, fs, property);
    assert_eq!(at("second/copy", "compression"), of("lz4", Source::Local, Some("zstd")));
    let inherited = Source::Inherited("second/copy".into());
    assert_eq!(at("second/copy/below", "compression"), of("lz4", inherited, Some("zstd")));
    for fs in ["second/copy", "second/copy/below"] {
        assert_eq!(at(fs, "atime"), of("on", Source::Default, Some("off")), "{fs}");
        assert_eq!(at(fs, "quota"), of("0", Source::Default, None), "no parent has one for it");
        assert_eq!(at(fs, "org:a"), of("1", Source::Received, Some("1")));
    }
    two.pool.datasets().revert_property("second/copy/below", "compression").expect("back");
    assert_eq!(at("second/copy/below", "compression"), of("zstd", Source::Received, Some("zstd")));

    // A local value stays, though the stream's is left out.
    set(&two, "second/copy", "atime", Some("off"));
    one.snapshot("one/top@2");
    let increment = send(&one, "one/top@2", Some("one/top@1"), false);
    two.receive_as(&ReceiveSpec { exclude: vec!["atime".into()], ..into("second/copy") }, &increment)
        .unwrap();
    assert_eq!(at("second/copy", "atime"), of("off", Source::Local, Some("off")));
    two.check();
}

#[test]
fn what_is_no_property_here_is_left_out_and_told_and_a_limit_that_cannot_be_kept_refuses() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    write_file(&mount(&one.pool, "one/fs").0, ROOT, b"file", &noise(1, 3_000_000));
    one.snapshot("one/fs@1");
    let mut frames = hosts::frames(&send(&one, "one/fs@1", None, false));
    assert_eq!(frames[0].0, FrameKind::Begin);
    let mut begin = StreamBegin::decode(&frames[0].1).expect("one");
    let foreign = [
        ("compression", "fast"),
        ("recordsize", "64K"),
        ("encryption", "aes-256-gcm"),
        ("used", "0"),
        ("of tomorrow", "on"),
        ("org:UPPER", "1"),
        ("exec", "off"),
    ];
    begin.properties = foreign.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
    frames[0].1 = begin.encode();
    let received = two.receive("second/copy", &hosts::joined(&frames)).expect("received");
    assert_eq!(received[0].left_out, ["compression", "recordsize", "used", "of tomorrow", "org:UPPER"]);
    assert_eq!(
        two.pool.datasets().local_props("second/copy").unwrap().into_keys().collect::<Vec<_>>(),
        ["exec"]
    );

    one.snapshot("one/fs@2");
    let mut frames = hosts::frames(&send(&one, "one/fs@2", Some("one/fs@1"), false));
    let mut begin = StreamBegin::decode(&frames[0].1).expect("one");
    begin.properties = vec![("quota".into(), "1000000".into())];
    frames[0].1 = begin.encode();
    let tight = hosts::joined(&frames);
    assert!(two.receive("second/copy", &tight).is_err(), "there is more in it");
    assert_eq!(two.pool.datasets().snapshot_names("second/copy").unwrap(), ["1"]);
    assert_eq!(
        two.pool.datasets().local_props("second/copy").unwrap().into_keys().collect::<Vec<_>>(),
        ["exec"]
    );
    let without = ReceiveSpec { exclude: vec!["quota".into()], ..into("second/copy") };
    two.receive_as(&without, &tight).expect("received");
    assert_eq!(two.pool.datasets().snapshot_names("second/copy").unwrap(), ["1", "2"]);
    let again = two.receive_as(&without, &tight).expect("it is there");
    assert!(again[0].there && again[0].left_out.is_empty(), "{again:?}");
    // Another one of that name is not.
    let mut begin = StreamBegin::decode(&frames[0].1).expect("one");
    begin.guid += 1;
    frames[0].1 = begin.encode();
    let refused = two.receive_as(&without, &hosts::joined(&frames));
    assert!(matches!(refused, Err(Error::BaseNotYoungest { .. })), "{refused:?}");
    let named = ReceiveSpec { target: "second/copy@1".into(), force: true, ..without };
    let refused = two.receive_as(&named, &hosts::joined(&frames));
    assert!(matches!(refused, Err(Error::SnapshotExists { .. })), "{refused:?}");
    two.check();
}

#[test]
fn properties_come_with_their_snapshot_wherever_the_power_goes() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    set(&one, "one/fs", "compression", Some("lz4"));
    set(&one, "one/fs", "exec", Some("off"));
    one.snapshot("one/fs@1");
    two.receive("second/copy", &send(&one, "one/fs@1", None, false)).expect("received");
    set(&two, "second/copy", "atime", Some("on"));
    two.pool.sync().expect("committed");
    let image = two.devices[0].image();
    set(&one, "one/fs", "compression", Some("off"));
    set(&one, "one/fs", "exec", None);
    set(&one, "one/fs", "atime", Some("off"));
    write_file(&mount(&one.pool, "one/fs").0, ROOT, b"file", &noise(1, 100_000));
    one.snapshot("one/fs@2");
    let stream = send(&one, "one/fs@2", Some("one/fs@1"), false);
    let spec =
        ReceiveSpec { props: BTreeMap::from([("setuid".into(), "off".into())]), ..into("second/copy") };
    let cuts = Cuts { spec, ..Cuts::new(&image, &stream, "", WRITES_AND_FLUSHES) };
    cuts.each(&mut Dice(5), |host, when| {
        let is_new = host.pool.datasets().snapshot_names("second/copy").unwrap().len() == 2;
        let at = |property: &str| shown(&host.pool, "second/copy", property);
        let (compression, exec, atime, setuid) = match is_new {
            true => (
                of("off", Source::Received, Some("off")),
                of("on", Source::Default, None),
                of("on", Source::Local, Some("off")),
                of("off", Source::Local, None),
            ),
            false => (
                of("lz4", Source::Received, Some("lz4")),
                of("off", Source::Received, Some("off")),
                of("on", Source::Local, None),
                of("on", Source::Default, None),
            ),
        };
        let found = (at("compression"), at("exec"), at("atime"), at("setuid"));
        assert_eq!(found, (compression, exec, atime, setuid), "{when}");
        is_new
    });
}

#[test]
fn what_arrives_is_held_to_quotas_and_reservations_and_what_is_kept_of_it_counts() {
    const MIB: u64 = 1 << 20;
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    let below = |two: &Host| two.pool.datasets().dataset_info("second/box").expect("there").used_by_children;
    let fill = |file: &str, seed: u64| {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        write_file(&fs, ROOT, file.as_bytes(), &noise(seed, 4 << 20));
        fs.syncfs().expect("committed");
    };
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    set(&one, "one/fs", "refquota", Some("5000000"));
    fill("first", 1);
    one.snapshot("one/fs@1");
    let first = send(&one, "one/fs@1", None, false);

    two.pool.datasets().create_dataset("second/box", BTreeMap::new(), None).expect("made");
    set(&two, "second/box", "quota", Some("2097152"));
    let refused = |two: &Host, spec: &ReceiveSpec, stream: &[u8]| {
        let error = two.receive_as(spec, stream).expect_err("there is no room for it");
        assert!(matches!(error, Error::ReceiveOverQuota), "{error}");
    };
    refused(&two, &into("second/box/copy"), &first);
    two.check();
    assert_eq!(below(&two), 0, "all of it came back");

    // A kept partial receive counts, is bounded, and is freed when it is given up.
    let kept = ReceiveSpec { keep: true, ..into("second/box/copy") };
    refused(&two, &kept, &first);
    let part = below(&two);
    assert!((MIB..=2 * MIB + (64 << 10)).contains(&part), "{part}");
    let info = two.pool.datasets().dataset_info("second/box").expect("there");
    assert_eq!((info.filesystems, info.used > part), (0, true), "and it is no file system yet");
    let two = two.crash();
    assert_eq!(below(&two), part);
    two.pool.datasets().abort_receive("second/box/copy").expect("given up");
    two.check();
    assert_eq!(below(&two), 0);

    // Room reserved for others is theirs.
    two.pool.datasets().create_dataset("second/kept", BTreeMap::new(), None).expect("made");
    let room = two.pool.datasets().dataset_info("second").expect("there").available;
    set(&two, "second/kept", "reservation", Some(&(room - 2 * MIB).to_string()));
    let error = two.receive("second/copy", &first).expect_err("it is reserved");
    assert!(matches!(error, Error::NoSpace { .. }), "{error}");
    set(&two, "second/kept", "reservation", Some("0"));

    // An increment goes up to what is set here, or is set with it. A limit that comes with it binds
    // only its sender.
    set(&two, "second/box", "quota", Some("0"));
    two.receive("second/box/copy", &first).expect("received");
    set(&one, "one/fs", "refquota", Some("30000000"));
    fill("second", 2);
    one.snapshot("one/fs@2");
    let second = one.send("one/fs@2", Some("one/fs@1"));
    for limit in ["quota", "refquota"] {
        set(&two, "second/box/copy", limit, Some("6000000"));
        refused(&two, &into("second/box/copy"), &second);
        set(&two, "second/box/copy", limit, None);
    }
    set(&two, "second/box/copy", "refquota", Some("6000000"));
    let wider = BTreeMap::from([("refquota".into(), "30000000".into())]);
    two.receive_as(&ReceiveSpec { props: wider, ..into("second/box/copy") }, &second).expect("received");
    assert!(below(&two) > 8 * MIB);
    two.check();
}

#[test]
fn what_its_sender_filled_to_its_quotas_arrives_with_them() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    let limit = |host: &Host, more: u64| {
        let used = host.pool.datasets().dataset_info("one/fs").expect("there").used + more;
        for property in ["quota", "refquota"] {
            set(host, "one/fs", property, Some(&used.to_string()));
        }
    };
    let mut base = None;
    for (round, name) in ["1", "2"].iter().enumerate() {
        let snapshot = format!("one/fs@{name}");
        {
            let (fs, _handle) = mount(&one.pool, "one/fs");
            set(&one, "one/fs", "quota", Some("0"));
            set(&one, "one/fs", "refquota", Some("0"));
            write_file(&fs, ROOT, name.as_bytes(), &noise(round as u64, 3 << 20));
            fs.syncfs().expect("committed");
        }
        one.snapshot(&snapshot);
        // Less than an operation is promised, and more than trees may differ.
        limit(&one, 64 << 10);
        two.receive("second/copy", &send(&one, &snapshot, base.as_deref(), false)).expect("received");
        assert_eq!(shown(&two.pool, "second/copy", "quota").1, Source::Received);
        base = Some(snapshot);
    }
    two.check();
}

#[test]
fn what_is_replaced_makes_room_for_what_replaces_it() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    one.snapshot("one/fs@1");
    two.pool.datasets().create_dataset("second/box", BTreeMap::new(), None).expect("made");
    two.pool.datasets().create_dataset("second/box/copy", BTreeMap::new(), None).expect("made");
    set(&two, "second/box", "filesystem_limit", Some("1"));
    let stream = one.send("one/fs@1", None);
    let error = two.receive("second/box/other", &stream).expect_err("there is one");
    assert!(matches!(error, Error::FilesystemLimit { .. }), "{error}");
    two.receive_as(&ReceiveSpec { force: true, ..into("second/box/copy") }, &stream).expect("replaced");
    two.check();
}

#[test]
fn a_whole_snapshot_leaves_the_properties_of_its_target_and_keeps_to_its_quotas() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    set(&one, "one/fs", "compression", Some("lz4"));
    set(&one, "one/fs", "atime", Some("off"));
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        write_file(&fs, ROOT, b"file", &noise(7, 4 << 20));
        fs.syncfs().expect("committed");
    }
    one.snapshot("one/fs@1");
    let room = two.pool.datasets().dataset_info("second").expect("there").available;
    let with_props = send(&one, "one/fs@1", None, false);
    two.pool.datasets().create_dataset("second/copy", BTreeMap::new(), None).expect("made");
    for (property, value) in [
        ("compression", "zstd"),
        ("mountpoint", "/elsewhere"),
        ("org:note", "ours"),
        // More than half of the pool: what replaces it reserves nothing beside it.
        ("reservation", &(room / 4 * 3).to_string()),
    ] {
        set(&two, "second/copy", property, Some(value));
    }
    let force = ReceiveSpec { force: true, ..into("second/copy") };
    let before = two.pool.datasets().dataset_info("second/copy").expect("there").id;
    for limit in ["quota", "refquota"] {
        set(&two, "second/copy", "reservation", Some("0"));
        set(&two, "second/copy", limit, Some("2097152"));
        let refused = two.receive_as(&force, &with_props).expect_err("there is more in it");
        assert!(matches!(refused, Error::ReceiveOverQuota), "{refused}");
        let info = two.pool.datasets().dataset_info("second/copy").expect("there");
        assert_eq!((info.id, info.snapshots), (before, 0), "nothing changed");
        set(&two, "second/copy", limit, Some("8388608"));
    }
    set(&two, "second/copy", "quota", Some("0"));
    set(&two, "second/copy", "reservation", Some(&(room / 4 * 3).to_string()));
    two.receive_as(&force, &with_props).expect("replaced");
    let two = two.crash();
    two.check();
    let local = |value: &str| of(value, Source::Local, None);
    assert_eq!(shown(&two.pool, "second/copy", "mountpoint"), local("/elsewhere"));
    assert_eq!(shown(&two.pool, "second/copy", "refquota"), local("8388608"));
    assert_eq!(shown(&two.pool, "second/copy", "reservation"), local(&(room / 4 * 3).to_string()));
    assert_eq!(shown(&two.pool, "second/copy", "org:note"), local("ours"));
    assert_eq!(shown(&two.pool, "second/copy", "compression"), of("zstd", Source::Local, Some("lz4")));
    assert_eq!(shown(&two.pool, "second/copy", "atime"), of("off", Source::Received, Some("off")));

    // A stream without properties leaves those that came before, and -o counts before both.
    two.pool.datasets().destroy_snapshots(&["second/copy@1".to_owned()], false).expect("destroyed");
    let given = BTreeMap::from([("org:note".to_owned(), "given".to_owned())]);
    let force = ReceiveSpec { props: given, ..force };
    two.receive_as(&force, &one.send("one/fs@1", None)).expect("replaced");
    let two = two.crash();
    two.check();
    assert_eq!(shown(&two.pool, "second/copy", "org:note"), local("given"));
    assert_eq!(shown(&two.pool, "second/copy", "mountpoint"), local("/elsewhere"));
    assert_eq!(shown(&two.pool, "second/copy", "atime"), of("off", Source::Received, Some("off")));
}

#[test]
fn a_replication_that_broke_off_anywhere_is_caught_up() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    let both = ["one/top", "one/top/below"];
    let spec = |snapshot: String, base: Option<String>| SendSpec { snapshot, base, ..SendSpec::default() };
    let stream = |plan: &[SendSpec]| {
        let mut out = Vec::new();
        one.pool.streams().send(plan, &mut out, &mut |_, _| ()).expect("sent");
        out
    };
    for fs in both {
        one.pool.datasets().create_dataset(fs, BTreeMap::new(), None).expect("made");
        one.snapshot(&format!("{fs}@0"));
    }
    two.receive("second/copy", &stream(&both.map(|fs| spec(format!("{fs}@0"), None)))).expect("received");
    one.pool.datasets().create_dataset("one/top/new", BTreeMap::new(), None).expect("made");
    let mut plan = Vec::new();
    for (from, fs) in ["one/top", "one/top/below", "one/top/new"].into_iter().enumerate() {
        for at in 1..=3 {
            let seed = (from * 3 + at) as u64;
            write_file(&mount(&one.pool, fs).0, ROOT, format!("{at}").as_bytes(), &noise(seed, 50_000));
            one.snapshot(&format!("{fs}@{at}"));
            let base = (at > 1 || from < 2).then(|| format!("{fs}@{}", at - 1));
            plan.push(spec(format!("{fs}@{at}"), base));
        }
    }
    let whole = stream(&plan);
    let mut there = 0;
    for part in 1..9 {
        two.receive("second/copy", &whole[..whole.len() * part / 9]).expect_err("it breaks off");
        let count: usize = two
            .pool
            .datasets()
            .names()
            .iter()
            .map(|fs| two.pool.datasets().snapshot_names(fs).unwrap().len())
            .sum();
        assert!(count >= there, "{part}");
        there = count;
    }
    assert!(there > 6, "some of it came: {there}");
    let received = two.receive("second/copy", &whole).expect("caught up");
    let passed: Vec<bool> = received.iter().map(|part| part.there).collect();
    assert_eq!((passed.len(), passed.iter().filter(|there| **there).count()), (9, there - 2));
    for fs in ["", "/below", "/new"] {
        let (from, to) = (format!("one/top{fs}"), format!("second/copy{fs}"));
        hosts::same((&one.pool, &from), (&two.pool, &to), fs);
        assert_eq!(
            two.pool.datasets().snapshot_names(&to).unwrap()[usize::from(fs != "/new")..],
            ["1", "2", "3"]
        );
    }
    // A whole snapshot of the first one may be of anything.
    let again = two.receive("second/copy", &one.send("one/top@0", None));
    assert!(matches!(again, Err(Error::DestinationExists { .. })), "{again:?}");
    two.check();
}

#[test]
fn what_lies_between_is_made_with_its_pool_left_out_and_goes_if_nothing_comes() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    for fs in ["one/a", "one/a/b", "one/a/b/c"] {
        one.pool.datasets().create_dataset(fs, BTreeMap::new(), None).expect("made");
    }
    write_file(&mount(&one.pool, "one/a/b/c").0, ROOT, b"file", &noise(1, 2 << 20));
    one.snapshot("one/a/b/c@1");
    let stream = one.send("one/a/b/c@1", None);
    let below = ReceiveSpec { naming: Naming::WithoutPool, ..into("second") };
    let part = &stream[..stream.len() / 2];
    two.receive_as(&below, part).expect_err("it breaks off");
    two.check();
    assert_eq!(two.pool.datasets().names(), ["second"]);
    let missing = two.receive_as(&ReceiveSpec { target: "second/no".into(), ..below.clone() }, &stream);
    assert!(matches!(missing, Err(Error::NoParent { .. })), "{missing:?}");
    let plain = two.receive("second/a/b", &stream);
    assert!(matches!(plain, Err(Error::NoParent { .. })), "{plain:?}");
    // A kept partial receive needs them.
    two.receive_as(&ReceiveSpec { keep: true, ..below.clone() }, part).expect_err("it breaks off");
    assert_eq!(two.pool.datasets().names(), ["second", "second/a", "second/a/b"]);
    assert_eq!(two.pool.datasets().unfinished(), ["second/a/b/c"]);
    let two = two.crash();
    assert_eq!(two.pool.datasets().unfinished(), ["second/a/b/c"]);
    let at = two.pool.datasets().partial("second/a/b/c").expect("kept").position;
    two.receive_as(&below, &one.send_from("one/a/b/c@1", None, Some(at))).expect("received");
    assert!(two.pool.datasets().unfinished().is_empty());
    hosts::same((&one.pool, "one/a/b/c"), (&two.pool, "second/a/b/c"), "whole");
    two.check();
}
