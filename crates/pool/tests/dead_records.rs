//! Records of inodes that an earlier version left when an increment removed the inodes: the next
//! increment removes them, and charges nobody twice.

use std::collections::BTreeMap;

use crate::common::{ME, ROOT, mount, noise, write_file};
use crate::hosts::{Host, same};
use crate::promises::wrong;
use steadfast_format::file_keys::NamesKey;
use steadfast_format::inode::InodeRecord;
use steadfast_format::{InodeId, MetaKey, Owner, OwnerRow, SnapshotRow};
use steadfast_pool::Pool;
use steadfast_pool::forge::ForgedTree;
use steadfast_posix::SetAttr;

const COPY: &str = "second/copy";

fn uses(pool: &Pool, name: &str) -> BTreeMap<Owner, OwnerRow> {
    let uses = pool.datasets().owner_uses(name).expect("counted");
    uses.into_iter()
        .map(|(owner, each)| (owner, each.row))
        .filter(|(_, row)| *row != OwnerRow::default())
        .collect()
}

/// How often the history says that records were removed.
fn sweeps(pool: &Pool) -> usize {
    let history = pool.history().expect("read");
    history.iter().filter(|entry| entry.text.contains("that earlier streams removed")).count()
}

/// Leaves what an earlier version left: the record alone. Its owner is not charged, and no sum
/// counts it.
/// The snapshot that has it is the base of the next increment.
fn leave_record(host: Host, ino: u64, guid: u64) -> Host {
    let datasets = host.pool.datasets();
    let id = datasets.dataset_info(COPY).expect("it is there").id;
    let names = ForgedTree::Names(id);
    let items = host.pool.forged_items(names).expect("read");
    let of = |ino: u64| NamesKey::Inode(InodeId(ino)).encode();
    let live = |record: &InodeRecord| record.mode & 0o170_000 == 0o100_000 && record.uid == 7;
    let records = items.iter().filter_map(|(_, value)| InodeRecord::decode(value).ok());
    let record = InodeRecord { size: 0, ..records.into_iter().find(live).expect("a file") };
    assert!(items.iter().all(|(key, _)| *key != of(ino)), "the number is one of an inode that is gone");
    host.pool.forge(names, &of(ino), Some(&record.encode())).expect("forged");
    host.pool.sync().expect("committed");
    datasets.take_snapshots(&[format!("{COPY}@x")], &BTreeMap::new()).expect("taken");
    datasets.destroy_snapshots(&[format!("{COPY}@a")], false).expect("destroyed");
    host.pool.sync().expect("committed");
    let items = host.pool.forged_items(ForgedTree::Meta).expect("read");
    let (key, value) = items
        .iter()
        .find(|(key, _)| matches!(MetaKey::decode(key), Some(MetaKey::Snapshot(of, _)) if of == id))
        .expect("a snapshot");
    let row = SnapshotRow { guid, name: "a".into(), ..SnapshotRow::decode(value).expect("a row") };
    host.pool.forge(ForgedTree::Meta, key, Some(&row.encode())).expect("forged");
    host.pool.sync().expect("committed");
    host.crash()
}

#[test]
fn the_next_increment_removes_what_earlier_ones_left() {
    let (one, two) = (Host::new("one", 64), Host::new("second", 64));
    one.pool.datasets().create_dataset("one/fs", BTreeMap::new(), None).expect("made");
    let gone = {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        let gone = write_file(&fs, ROOT, b"gone", b"");
        for name in ["stays", "empty", "goes"] {
            let file = write_file(&fs, ROOT, name.as_bytes(), &noise(3, name.len() % 5 * 9_000));
            fs.setattr(file, &SetAttr { uid: Some(7), ..SetAttr::default() }).expect("given");
        }
        // No content, and a name and an attribute.
        let bare = write_file(&fs, ROOT, b"bare", b"");
        fs.setxattr(bare, b"user.a", b"value", 0).expect("set");
        fs.unlink(ROOT, b"gone").expect("removed");
        fs.tmpfile(ME, ROOT, 0o600).expect("made");
        gone
    };
    one.snapshot("one/fs@a");
    two.receive(COPY, &one.send("one/fs@a", None)).expect("received");
    let guid = one.pool.datasets().snapshot_infos("one/fs", None).expect("listed")[0].guid;
    let two = leave_record(two, gone, guid);
    let found = wrong(&two.devices);
    assert!(["links", "owner", "count"].iter().all(|code| found.contains(code)), "{found:?}");

    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        fs.unlink(ROOT, b"goes").expect("removed");
        write_file(&fs, ROOT, b"new", &noise(4, 20_000));
    }
    one.snapshot("one/fs@b");
    two.receive(COPY, &one.send("one/fs@b", Some("one/fs@a"))).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, COPY), "after the increment");
    assert_eq!(uses(&two.pool, COPY), uses(&one.pool, "one/fs"));
    assert_eq!(sweeps(&two.pool), 1);
    // The snapshot that had it keeps it; with it goes the last of it.
    two.pool.datasets().destroy_snapshots(&[format!("{COPY}@a")], false).expect("destroyed");
    two.check();

    {
        let (fs, _handle) = mount(&one.pool, "one/fs");
        fs.unlink(ROOT, b"new").expect("removed");
    }
    one.snapshot("one/fs@c");
    two.receive(COPY, &one.send("one/fs@c", Some("one/fs@b"))).expect("received");
    same((&one.pool, "one/fs"), (&two.pool, COPY), "after another");
    assert_eq!(uses(&two.pool, COPY), uses(&one.pool, "one/fs"));
    assert_eq!(sweeps(&two.pool), 1, "of each dataset once");
    two.check();
}
