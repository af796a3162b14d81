//! Readers, writers and a syncer at once, over a store that forgets freed blocks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::common::{Random, SMALL, content, key, reopened};
use steadfast_tree::testing::CountingStore;
use steadfast_tree::{Change, NodeCache, Tree};

/// Keys that never change are multiples of eight; each writer has a remainder of its own.
const STABLE: u64 = 2_000;

fn stable_value(number: u64) -> Vec<u8> {
    vec![(number / 8) as u8; (number % 60) as usize]
}

fn check_reader(tree: &Tree, random: &mut Random) {
    let number = random.below(STABLE) * 8;
    assert_eq!(tree.get(&key(number)).unwrap(), Some(stable_value(number)));
    let floor = tree.floor(&key(number + 7)).unwrap().expect("at least the stable key");
    assert!((key(number)..=key(number + 7)).contains(&floor.0));
    if random.one_in(20) {
        let low = random.below(STABLE) * 8;
        let high = (low + random.below(4_000)).min(STABLE * 8);
        let backward = random.one_in(2);
        let range = tree.range(key(low)..key(high));
        let mut keys: Vec<_> = match backward {
            true => range.rev().map(|entry| entry.unwrap().0).collect(),
            false => range.map(|entry| entry.unwrap().0).collect(),
        };
        if backward {
            keys.reverse();
        }
        assert!(keys.windows(2).all(|pair| pair[0] < pair[1]), "in order, none twice");
        let stable = keys.into_iter().filter(|key| key[7] % 8 == 0);
        assert!(stable.eq((low..high).filter(|number| number % 8 == 0).map(key)), "none left out");
    }
}

fn churn(tree: &Tree, random: &mut Random, writer: u64) {
    let own = |random: &mut Random| key(random.below(STABLE) * 8 + writer);
    match random.below(10) {
        0..=4 => drop(tree.insert(&own(random), &stable_value(random.below(1_000))).unwrap()),
        5..=7 => drop(tree.remove(&own(random)).unwrap()),
        _ => {
            let mut keys: Vec<_> = (0..random.below(50)).map(|_| own(random)).collect();
            keys.sort();
            keys.dedup();
            let insert = random.one_in(2);
            let change = |key| if insert { Change::Insert(key, b"batch") } else { Change::Remove(key) };
            tree.batch(&keys.iter().map(|key| change(key.as_slice())).collect::<Vec<_>>()).unwrap();
        }
    }
}

fn all_at_once(cache_bytes: usize, seed: u64) {
    let books = CountingStore::new();
    let tree = Tree::create(books.clone(), NodeCache::new(cache_bytes), SMALL);
    (0..STABLE).for_each(|number| drop(tree.insert(&key(number * 8), &stable_value(number * 8)).unwrap()));
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let (tree, books, ended) = (&tree, &books, &ended);
        let workers: Vec<_> = (1..=2)
            .map(|writer| {
                scope.spawn(move || {
                    let mut random = Random(seed + writer);
                    (0..20_000).for_each(|_| churn(tree, &mut random, writer));
                })
            })
            .chain((3..=4).map(|reader| {
                scope.spawn(move || {
                    let mut random = Random(seed + reader);
                    (0..10_000).for_each(|_| check_reader(tree, &mut random));
                })
            }))
            .collect();
        let syncer = scope.spawn(move || {
            let mut syncs = 0;
            while !ended.load(Ordering::Relaxed) {
                tree.sync(&tree.snapshot()).unwrap();
                books.audit(tree);
                books.commit();
                syncs += 1;
            }
            syncs
        });
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        ended.store(true, Ordering::Relaxed);
        assert!(syncer.join().unwrap() > 3, "syncs ran beside the others");
        assert!(results.iter().all(Result::is_ok));
    });
    let root = tree.sync(&tree.snapshot()).unwrap();
    books.audit(&tree);
    assert_eq!(content(&reopened(&books, root)), content(&tree));
}

#[test]
fn readers_and_writers_agree_while_the_tree_is_synced() {
    all_at_once(8 << 20, 1);
}

#[test]
fn readers_and_writers_agree_while_nothing_stays_in_the_cache() {
    all_at_once(20_000, 2);
}
