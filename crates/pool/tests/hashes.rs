//! Hashes of dirty nodes are computed at the commit, once each.

use std::collections::HashMap;
use std::sync::Arc;

use crate::common::{ME, MIB, ROOT, handle, handles, mount, noise, spec, write_file};
use steadfast_crypto::hash::noted;
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_format::GroupClass;
use steadfast_pool::{CreateSpec, GroupHandles, Pool, Redundancy};
use steadfast_posix::SetAttr;

const FILES: u32 = 600;

/// Makes files and changes the mode of each so many times, all in one txg. Gives the hashes that
/// the changes computed, and those of the commit.
fn hashes(changes: u32) -> (Vec<[u8; 32]>, Vec<[u8; 32]>) {
    let device = Arc::new(MemoryDevice::new("a", 128 * MIB));
    // One thread does everything, the commit too.
    let pool = Pool::create(&Env::simulated(1), spec(vec![handle(&device)], None)).expect("a pool");
    let (fs, _handle) = mount(&pool, "tank");
    pool.sync().expect("committed");
    let ((), in_changes) = noted::during(|| {
        let made = (0..FILES).map(|number| {
            let entry = fs.mknod(ME, ROOT, format!("{number:04}").as_bytes(), 0o100_644, 0).expect("made");
            fs.forget(entry.ino, 1);
            entry.ino
        });
        let made: Vec<u64> = made.collect();
        for change in 0..changes {
            for ino in &made {
                let mode = if change + 1 == changes { 0o600 } else { 0o700 | change };
                fs.setattr(*ino, &SetAttr { mode: Some(mode), ..SetAttr::default() }).expect("set");
            }
        }
    });
    let (synced, in_commit) = noted::during(|| pool.sync());
    synced.expect("committed");
    (in_changes, in_commit)
}

#[test]
fn a_dirty_node_is_hashed_once_a_commit_however_often_it_was_changed() {
    let (in_changes, once) = hashes(1);
    assert_eq!(in_changes.len(), 0, "changes hash nothing");
    let mut counts: HashMap<[u8; 32], u32> = HashMap::new();
    once.iter().for_each(|hash| *counts.entry(*hash).or_default() += 1);
    let twice = counts.values().filter(|count| **count > 1).count();
    assert_eq!(twice, 0, "{twice} of {} contents were hashed twice", once.len());
    // Each file has an inode and a name in the leaves of the names tree.
    assert!((5..200).contains(&once.len()), "{} hashes", once.len());
    let (in_changes, often) = hashes(5);
    assert_eq!(in_changes.len(), 0, "changes hash nothing");
    assert_eq!(often.len(), once.len(), "5 changes of each node cost the hashes of one");
}

/// Records as large as they are by default, of which each is eight chunks of a column.
const RECORD: usize = 128 << 10;
const CHUNK: usize = 16 << 10;

/// Content on raidz1 of four: its blocks are hashed once, and so are the chunks of its columns and
/// of their parity. `docs/decisions/0260-filling-raidz.md` says why not once together.
#[test]
fn content_on_raidz_is_hashed_once_as_blocks_and_once_as_columns() {
    let devices: Vec<Arc<MemoryDevice>> =
        (0..4).map(|at| Arc::new(MemoryDevice::new(&format!("device {at}"), 256 * MIB))).collect();
    let devices = handles(&devices);
    let group = GroupHandles { redundancy: Redundancy::Raidz(1), class: GroupClass::Normal, devices };
    let spec = CreateSpec { groups: vec![group], ..spec(Vec::new(), None) };
    let pool = Pool::create(&Env::simulated(1), spec).expect("a pool");
    let (fs, _handle) = mount(&pool, "tank");
    pool.sync().expect("committed");
    let content = noise(3, 48 * RECORD);
    let (synced, noted) = noted::during(|| {
        write_file(&fs, ROOT, b"noise", &content);
        pool.sync()
    });
    synced.expect("committed");
    let mut counts: HashMap<[u8; 32], u32> = HashMap::new();
    noted.iter().for_each(|hash| *counts.entry(*hash).or_default() += 1);
    let (blocks, chunks) = (content.len() / RECORD, content.len() / CHUNK);
    for (size, count) in [(RECORD, blocks), (CHUNK, chunks)] {
        let pieces = content.chunks(size).map(steadfast_crypto::hash);
        let times: Vec<u32> = pieces.map(|hash| counts.get(&hash).copied().unwrap_or(0)).collect();
        assert_eq!(times, vec![1; count], "pieces of {size} bytes");
    }
    // A row has a chunk of parity for three of data; the rest is metadata.
    let all = blocks + chunks + chunks / 3;
    assert!((all..all + all / 4).contains(&noted.len()), "{} hashes, not {all} and some", noted.len());
}
