//! Streams with records as they are compressed (`send -c`): what arrives is what was sent, stored
//! as it was; what is none changes nothing.

use crate::hosts;
use std::collections::BTreeMap;

use crate::common::{self, Dice, MIB, ROOT, mount, noise, write_file};
use crate::hosts::{Cuts, Host, WRITES, disturb, frames, furnish, joined_behind, same, soft, tree};
use steadfast_format::stream::{FrameKind, PackedRecord, StreamBegin, StreamHeader};
use steadfast_format::{Compression, InodeId};
use steadfast_pool::{Error, ReceiveSpec, SendSpec};

fn props(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Files that compress, of all sizes: in the tree, a part of a record, many records, with holes and
/// long zeros.
fn soften(host: &Host, name: &str) {
    let (fs, _handle) = mount(&host.pool, name);
    for at in 0..30_u64 {
        let size = usize::try_from(1 + at * at * at * 40).unwrap();
        write_file(&fs, ROOT, format!("soft {at}").as_bytes(), &soft(at + 1, size));
    }
    let sparse = write_file(&fs, ROOT, b"soft and sparse", &soft(77, 70_000));
    fs.write(sparse, 3 * MIB + 5, &soft(78, 300_000), false).expect("written");
    let mut ends = soft(79, 2 << 20);
    ends.chunks_mut(128 << 10).for_each(|record| record[50_000..].fill(0));
    write_file(&fs, ROOT, b"soft with zeros", &ends);
}

/// How many records of a stream are compressed, and how many are not.
fn counted(stream: &[u8]) -> (usize, usize) {
    let (mut packed, mut plain) = (0, 0);
    for (_, payload) in frames(stream).iter().filter(|(kind, _)| *kind == FrameKind::Packed) {
        let mut rest = &payload[..];
        while !rest.is_empty() {
            let record = PackedRecord::decode(rest).expect("a record");
            *(if record.compression == Compression::Off { &mut plain } else { &mut packed }) += 1;
            rest = &rest[PackedRecord::SIZE + record.psize as usize..];
        }
    }
    (packed, plain)
}

#[test]
fn records_arrive_as_they_are_compressed_and_stay_so() {
    for compression in ["lz4", "zstd-7", "zle"] {
        let (one, two) = (Host::new("one", 256), Host::new("second", 256));
        one.pool
            .datasets()
            .create_dataset("one/fs", props(&[("compression", compression)]), None)
            .expect("made");
        two.pool.datasets().set_property("second", "compression", Some("off")).expect("set");
        soften(&one, "one/fs");
        furnish(&one.pool, "one/fs");
        one.snapshot("one/fs@0");
        let (plain, packed) = (one.send("one/fs@0", None), one.send_packed("one/fs@0", None));
        if compression != "zle" {
            assert!(packed.len() < plain.len() * 4 / 5, "{} of {}", packed.len(), plain.len());
            assert!(counted(&packed).0 > 20, "{:?}", counted(&packed));
        }
        assert!(!frames(&plain).iter().any(|(kind, _)| *kind == FrameKind::Packed));
        two.receive("second/copy", &packed).expect("received");
        same((&one.pool, "one/fs"), (&two.pool, "second/copy"), compression);
        let data = |host: &Host, name| host.pool.datasets().dataset_info(name).expect("there").data;
        // One record lies under an overlay, and goes as it is.
        let (sent, got) = (data(&one, "one/fs"), data(&two, "second/copy"));
        assert!(got >= sent && got - sent < 128 << 10, "{compression}: {sent} and {got}");
        two.receive("second/plain", &plain).expect("received");
        let (kept, made) = (data(&two, "second/copy"), data(&two, "second/plain"));
        assert!(compression == "zle" || kept < made, "{compression}: {kept} and {made}");
        two.check();

        // Increments of all kinds, upon snapshots and bookmarks.
        let mut dice = Dice(compression.len() as u64);
        for round in 1..7_u64 {
            disturb(&one.pool, "one/fs", &mut dice);
            {
                let (fs, _handle) = mount(&one.pool, "one/fs");
                for _ in 0..6 {
                    let file = fs.lookup(ROOT, format!("soft {}", dice.below(30)).as_bytes()).expect("found");
                    let (at, bytes) = (dice.below(file.attr.size), 1 + dice.below(200_000) as usize);
                    match dice.below(4) {
                        0 => hosts::truncate(&fs, file.ino, at),
                        _ => {
                            _ = fs.write(file.ino, at, &soft(dice.below(99), bytes), false).expect("written")
                        }
                    }
                }
            }
            let (name, before) = (format!("one/fs@{round}"), format!("one/fs@{}", round - 1));
            one.snapshot(&name);
            let mark = format!("one/fs#{}", round - 1);
            one.pool.datasets().add_bookmark(&before, &(round - 1).to_string()).expect("marked");
            let base = if round % 2 == 0 { &before } else { &mark };
            two.receive("second/copy", &one.send_packed(&name, Some(base))).expect("received");
            same((&one.pool, "one/fs"), (&two.pool, "second/copy"), format!("{compression}, round {round}"));
            two.check();
        }
        // It is sent on, and what it holds is still what it was.
        let three = Host::new("third", 256);
        three.receive("third/copy", &two.send_packed("second/copy@6", None)).expect("received");
        same((&one.pool, "one/fs"), (&three.pool, "third/copy"), "sent on");
        let two = two.crash();
        same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "after a crash");
    }
}

#[test]
fn what_is_sealed_goes_open_and_compressed_and_raw_is_either() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    let key = |host: &Host, byte| common::key(&host.env, &[byte; 32]);
    let zstd = props(&[("compression", "zstd")]);
    one.pool.datasets().create_dataset("one/vault", zstd.clone(), Some(key(&one, 1))).expect("made");
    one.pool.datasets().create_dataset("one/fs", zstd, None).expect("made");
    two.pool
        .datasets()
        .create_dataset("second/safe", props(&[("compression", "off")]), Some(key(&two, 2)))
        .expect("made");
    for fs in ["one/vault", "one/fs"] {
        soften(&one, fs);
        one.snapshot(&format!("{fs}@a"));
    }
    let (plain, packed) = (one.send("one/vault@a", None), one.send_packed("one/vault@a", None));
    assert!(packed.len() < plain.len() * 2 / 3);
    two.receive("second/safe/copy", &packed).expect("received");
    two.receive("second/open", &packed).expect("received");
    same((&one.pool, "one/vault"), (&two.pool, "second/safe/copy"), "sealed there");
    same((&one.pool, "one/vault"), (&two.pool, "second/open"), "open there");
    // With -w what is sealed is sealed, and what is not goes compressed.
    for packed in [false, true] {
        let raw =
            |snapshot: &str| SendSpec { snapshot: snapshot.into(), raw: true, packed, ..SendSpec::default() };
        let header = |stream: &[u8]| {
            let header = StreamHeader::decode(stream.first_chunk().expect("a header")).expect("a header");
            let begin = StreamBegin::decode(&frames(stream)[0].1).expect("a begin");
            (header.packed, begin.packed, begin.raw)
        };
        assert_eq!(header(&one.send_as(raw("one/vault@a"))), (false, false, true));
        assert_eq!(header(&one.send_as(raw("one/fs@a"))), (true, true, false));
    }
    // A raw dataset opened by its key goes as plain content, whatever is asked.
    let sealed = one.send_as(SendSpec { snapshot: "one/vault@a".into(), raw: true, ..SendSpec::default() });
    two.receive("second/raw", &sealed).expect("received");
    two.pool.datasets().load_key("second/raw", &[1; 32], false).expect("loaded");
    let opened = two.send_packed("second/raw@a", None);
    assert_eq!(counted(&opened), (0, 0));
    one.receive("one/back", &opened).expect("received");
    same((&one.pool, "one/vault"), (&one.pool, "one/back"), "there and back");
    one.check_with(Some(&[1; 32]));
}

#[test]
fn what_is_told_beforehand_is_what_is_compressed() {
    let one = Host::new("one", 128);
    one.pool.datasets().create_dataset("one/fs", props(&[("compression", "zstd")]), None).expect("made");
    soften(&one, "one/fs");
    one.snapshot("one/fs@a");
    one.pool.datasets().add_bookmark("one/fs@a", "a").expect("marked");
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        write_file(&fs, ROOT, b"more", &soft(5, 3_000_000));
    }
    one.snapshot("one/fs@b");
    let told = |snapshot: &str, base: Option<&str>, packed| {
        let base = base.map(str::to_owned);
        let spec = SendSpec { snapshot: snapshot.into(), base, packed, ..SendSpec::default() };
        let (estimate, sent) =
            (one.pool.streams().send_estimate(&spec).expect("told"), one.send_as(spec).len() as u64);
        assert!(
            sent < estimate * 5 / 4 + 300_000 && estimate < sent * 5 / 4 + 300_000,
            "{estimate} for {sent}"
        );
        estimate
    };
    assert!(told("one/fs@a", None, true) < told("one/fs@a", None, false) * 2 / 3);
    assert!(told("one/fs@b", Some("one/fs#a"), true) < told("one/fs@b", Some("one/fs#a"), false) * 2 / 3);
    told("one/fs@b", Some("one/fs@a"), true);
}

#[test]
fn what_broke_off_anywhere_goes_on_whatever_its_records() {
    for (recordsize, packed) in [("4M", false), ("4M", true), ("128K", true)] {
        let (one, mut two) = (Host::new("one", 256), Host::new("second", 256));
        let wanted = props(&[("recordsize", recordsize), ("compression", "lz4")]);
        one.pool.datasets().create_dataset("one/fs", wanted, None).expect("made");
        let write = |name: &str, seed: u64| {
            let (fs, _handle) = mount(&one.pool, "one/fs");
            let _ = fs.unlink(ROOT, name.as_bytes());
            let mut bytes = noise(seed, 9 << 20);
            bytes[5 << 20..6 << 20].copy_from_slice(&soft(seed, 1 << 20));
            bytes[7 << 20..].copy_from_slice(&soft(seed, 2 << 20));
            write_file(&fs, ROOT, name.as_bytes(), &bytes);
            fs
        };
        write("first", 1);
        one.snapshot("one/fs@a");
        two.receive("second/copy", &one.send("one/fs@a", None)).expect("received");
        // The same records, of which less is left and more was written.
        {
            let (fs, _handle) = mount(&one.pool, "one/fs");
            let ino = fs.lookup(ROOT, b"first").expect("found").ino;
            hosts::truncate(&fs, ino, (4 << 20) + 1_500_000);
            hosts::truncate(&fs, ino, 9 << 20);
            fs.write(ino, 100, &noise(9, 3 << 20), false).expect("written");
            fs.write(ino, 8 << 20, &soft(9, 200_000), false).expect("written");
        }
        write("second", 3);
        one.snapshot("one/fs@b");
        let spec = |resume| SendSpec {
            snapshot: "one/fs@b".into(),
            base: Some("one/fs@a".into()),
            packed,
            resume,
            ..SendSpec::default()
        };
        let mut stream = one.send_as(spec(None));
        let keep = ReceiveSpec { target: "second/copy".into(), keep: true, ..ReceiveSpec::default() };
        // A frame of content more each time.
        let mut parts = 0;
        loop {
            let (mut at, mut content) = (StreamHeader::SIZE, 0);
            for (kind, payload) in frames(&stream) {
                at += steadfast_format::stream::FrameHeader::SIZE + payload.len();
                content += usize::from(matches!(kind, FrameKind::Content | FrameKind::Packed));
                if content == 1 {
                    break;
                }
            }
            if content == 0 {
                break;
            }
            two.receive_as(&keep, &stream[..at]).expect_err("cut");
            let partial = two.pool.datasets().partial("second/copy").expect("kept");
            assert_eq!(partial.packed, packed);
            if parts % 4 == 1 {
                two = two.crash();
                assert_eq!(two.pool.datasets().partial("second/copy"), Some(partial));
            }
            stream = one.send_as(spec(Some(partial.position)));
            parts += 1;
        }
        assert!(parts > 5, "{parts}");
        two.receive_as(&keep, &stream).expect("received");
        same((&one.pool, "one/fs"), (&two.pool, "second/copy"), format!("{recordsize} {packed}"));
        two.check();
    }
}

#[test]
fn records_that_are_none_change_nothing() {
    let (one, two) = (Host::new("one", 128), Host::new("second", 128));
    one.pool.datasets().create_dataset("one/fs", props(&[("compression", "lz4")]), None).expect("made");
    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        write_file(&fs, ROOT, b"soft", &soft(1, 700_000));
    }
    one.snapshot("one/fs@a");
    let stream = one.send_packed("one/fs@a", None);
    let good = frames(&stream);
    let header = StreamHeader { packed: true, ..StreamHeader::default() };
    assert_eq!(joined_behind(header, &good), stream);
    let at = good.iter().position(|(kind, _)| *kind == FrameKind::Packed).expect("a frame");
    let payload = &good[at].1;
    let first = PackedRecord::decode(payload).expect("a record");
    assert_eq!((first.compression, first.offset, first.lsize), (Compression::Lz4, 0, 128 << 10));
    let bytes = &payload[PackedRecord::SIZE..][..first.psize as usize];
    let record = |record: PackedRecord, bytes: &[u8]| [&record.encode(), bytes].concat();
    let longer = |psize: u32| bytes.iter().copied().chain([0; 64]).take(psize as usize).collect::<Vec<u8>>();
    let bomb = PackedRecord { lsize: 1 << 20, ..first };
    let wrong: Vec<(&str, Vec<u8>)> = vec![
        ("empty", Vec::new()),
        ("cut in its header", payload[..20].to_vec()),
        ("cut in its bytes", payload[..PackedRecord::SIZE + 10].to_vec()),
        ("becomes more", record(PackedRecord { lsize: first.lsize - 1, ..first }, bytes)),
        ("becomes less", record(PackedRecord { psize: first.psize - 1, ..first }, &bytes[..bytes.len() - 1])),
        (
            "has more behind it",
            record(PackedRecord { psize: first.psize + 9, ..first }, &longer(first.psize + 9)),
        ),
        ("by another method", record(PackedRecord { compression: Compression::Zstd, ..first }, bytes)),
        ("at no record's place", record(PackedRecord { offset: 4096, ..first }, bytes)),
        ("longer than a record", record(bomb, bytes)),
        ("outside of its file", record(PackedRecord { offset: 896 << 10, ..first }, bytes)),
        ("of no file", record(PackedRecord { inode: InodeId(99), ..first }, bytes)),
        ("of a folder", record(PackedRecord { inode: InodeId(1), ..first }, bytes)),
        ("more than a frame may hold", record(first, bytes).repeat(140)),
    ];
    let empty = two.live();
    let refused = |frames: &[(FrameKind, Vec<u8>)], header: StreamHeader, why: &str| {
        let error = two.receive("second/copy", &joined_behind(header, frames)).expect_err(why);
        assert!(matches!(error, Error::StreamDamaged { .. }), "{why}: {error}");
        assert!(error.to_string().contains("byte"), "{why}: {error}");
        assert_eq!(two.pool.datasets().names(), ["second"], "{why}");
    };
    for (why, payload) in wrong {
        let mut bad = good.clone();
        bad[at].1 = payload;
        refused(&bad, header, why);
        // The frame before it does not matter, nor do good records before it.
        bad[at].1 = [&good[at].1[..], &bad[at].1].concat();
        if why != "empty" {
            refused(&bad, header, why);
        }
    }
    // Packed records where none are told of.
    refused(&good, StreamHeader::default(), "a header that does not say so");
    let mut bad = good.clone();
    let begin = StreamBegin::decode(&bad[0].1).expect("a begin");
    bad[0].1 = StreamBegin { packed: false, ..begin }.encode();
    refused(&bad, header, "a begin that does not say so");
    // Any byte, with a chain that is right for it: it is refused, or it is another content.
    let mut dice = Dice(41);
    for _ in 0..300 {
        let mut bad = good.clone();
        let byte = dice.below(bad[at].1.len() as u64) as usize;
        bad[at].1[byte] ^= 1 << dice.below(8);
        if two.receive("second/copy", &joined_behind(header, &bad)).is_ok() {
            tree(&two.pool, "second/copy");
            two.pool.datasets().destroy_with_snapshots("second/copy").expect("destroyed");
        }
        assert_eq!(two.pool.datasets().names(), ["second"]);
    }
    two.check();
    assert!(two.live() <= empty + (1 << 20));
    two.receive("second/copy", &stream).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, "second/copy"), "at the end");
}

#[test]
fn a_crash_at_any_write_leaves_all_of_it_or_nothing() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.datasets().create_dataset("one/fs", props(&[("compression", "zstd")]), None).expect("made");
    let write = |range: std::ops::Range<u64>, seed: u64| {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        range.for_each(|at| {
            let name = format!("file {at}");
            let _ = fs.unlink(ROOT, name.as_bytes());
            _ = write_file(&fs, ROOT, name.as_bytes(), &soft(at + seed, at as usize * 9_000));
        });
    };
    write(1..25, 0);
    one.snapshot("one/fs@a");
    let full = one.send_packed("one/fs@a", None);
    let before = tree(&one.pool, "one/fs");
    write(5..15, 50);
    one.snapshot("one/fs@b");
    let increment = one.send_packed("one/fs@b", Some("one/fs@a"));
    let after = tree(&one.pool, "one/fs");
    two.pool.sync().expect("committed");
    let empty = two.devices[0].image();
    two.receive("second/copy", &full).expect("received");
    two.check();
    let based = two.devices[0].image();
    let mut dice = Dice(78);
    for (image, stream, old, new) in
        [(&empty, &full, None, &before), (&based, &increment, Some(&before), &after)]
    {
        Cuts::new(image, stream, "second/copy", WRITES).each(&mut dice, |host, when| {
            let there = host.pool.datasets().names().contains(&"second/copy".to_owned());
            let found = there.then(|| tree(&host.pool, "second/copy"));
            let is_new = found.as_ref() == Some(new);
            assert!(is_new || found.as_ref() == old, "{when}: {found:?}");
            is_new
        });
    }
}
