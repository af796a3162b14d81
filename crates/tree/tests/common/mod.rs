//! Shared by the tests: seeded numbers, and a tree beside a model of it.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use steadfast_format::BlockPointer;
use steadfast_tree::testing::CountingStore;
use steadfast_tree::{Change, NodeCache, Options, Tree};

/// Small nodes: deep trees from few keys.
pub const SMALL: Options = Options { node_bytes_max: 1_280 };

pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Eight bytes, so that byte order is number order.
pub fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    /// A key of a small space, of several lengths, many with long common prefixes.
    pub fn key(&mut self, space: u64) -> Vec<u8> {
        let number = self.below(space);
        match number % 4 {
            0 => key(number),
            1 => [b"prefix/of/some/length/".as_slice(), &number.to_be_bytes()[5..]].concat(),
            2 => format!("{number}").into_bytes(),
            _ => [vec![(number % 7) as u8; (number % 90) as usize], key(number)].concat(),
        }
    }

    pub fn value(&mut self) -> Vec<u8> {
        let len = if self.one_in(10) { self.below(400) } else { self.below(40) };
        let byte = self.next() as u8;
        vec![byte; len as usize]
    }
}

/// All entries of a tree, in order.
pub fn content(tree: &Tree) -> Model {
    let entries: Vec<_> = tree.range::<Vec<u8>>(..).map(|entry| entry.expect("readable")).collect();
    assert!(entries.windows(2).all(|pair| pair[0].0 < pair[1].0), "a range is in order");
    entries.into_iter().collect()
}

/// The tree stored at `root`, read without any cache.
pub fn reopened(books: &Arc<CountingStore>, root: Option<BlockPointer>) -> Tree {
    Tree::open(books.clone(), NodeCache::new(0), root, SMALL)
}

/// Makes one random change in tree and model, and compares what it returns.
pub fn random_change(random: &mut Random, space: u64, tree: &Tree, model: &mut Model) {
    match random.below(20) {
        0..=8 => {
            let (key, value) = (random.key(space), random.value());
            assert_eq!(tree.insert(&key, &value).unwrap(), model.insert(key, value));
        }
        9..=15 => {
            let key = random.key(space);
            assert_eq!(tree.remove(&key).unwrap(), model.remove(&key));
        }
        16 => {
            let (key, value) = (random.key(space), random.value());
            let before = model.get(&key).cloned();
            let after = if random.one_in(2) { None } else { Some(value) };
            let returned = tree.modify(&key, |seen| {
                assert_eq!(seen, before.as_deref());
                after.clone()
            });
            assert_eq!(returned.unwrap(), before);
            match after {
                Some(value) => drop(model.insert(key, value)),
                None => drop(model.remove(&key)),
            }
        }
        17 | 18 => {
            let count_max = if random.one_in(10) { 700 } else { 30 };
            let count = 1 + random.below(count_max);
            let wanted: BTreeMap<_, _> = (0..count)
                .map(|_| (random.key(space), (!random.one_in(3)).then(|| random.value())))
                .collect();
            let changes: Vec<_> = wanted
                .iter()
                .map(|(key, value)| match value {
                    Some(value) => Change::Insert(key, value),
                    None => Change::Remove(key),
                })
                .collect();
            let before = tree.batch(&changes).unwrap();
            for ((key, value), before) in wanted.into_iter().zip(before) {
                let expected = match value {
                    Some(value) => model.insert(key, value),
                    None => model.remove(&key),
                };
                assert_eq!(before, expected);
            }
        }
        _ => {
            let (low, high) = (random.key(space), random.key(space));
            let (low, high) = if low < high { (low, high) } else { (high, low) };
            let limit = random.below(60) as usize;
            let expected: Vec<_> = model
                .range(low.clone()..=high.clone())
                .take(limit)
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect();
            let mut seen = Vec::new();
            let count = tree
                .remove_range(low..=high, limit, |key, value| seen.push((key.to_vec(), value.to_vec())))
                .unwrap();
            assert_eq!(count, expected.len());
            assert_eq!(seen, expected);
            expected.iter().for_each(|(key, _)| drop(model.remove(key)));
        }
    }
}

/// Makes one random look at tree and model, and compares.
pub fn random_look(random: &mut Random, space: u64, tree: &Tree, model: &Model) {
    let wanted = random.key(space);
    match random.below(4) {
        0 | 1 => assert_eq!(tree.get(&wanted).unwrap().as_ref(), model.get(&wanted)),
        2 => {
            let expected = model.range(..=wanted.clone()).next_back();
            let found = tree.floor(&wanted).unwrap();
            assert_eq!(found.as_ref().map(|(key, value)| (key, value)), expected);
        }
        _ => {
            let other = random.key(space);
            let (low, high) = if wanted < other { (wanted, other) } else { (other, wanted) };
            let bounds = match random.below(3) {
                0 => (Bound::Included(low), Bound::Excluded(high)),
                1 => (Bound::Excluded(low), Bound::Included(high)),
                _ => (Bound::Unbounded, Bound::Included(high)),
            };
            if let (Bound::Excluded(low), Bound::Excluded(high) | Bound::Included(high)) =
                (&bounds.0, &bounds.1)
                && low == high
            {
                return; // a BTreeMap may panic here
            }
            let expected: Vec<_> = model.range(bounds.clone()).collect();
            let limit = random.below(50) as usize;
            let forward: Vec<_> = tree.range(bounds.clone()).take(limit).map(Result::unwrap).collect();
            assert!(forward.iter().map(|(key, value)| (key, value)).eq(expected.iter().copied().take(limit)));
            let backward: Vec<_> = tree.range(bounds).rev().take(limit).map(Result::unwrap).collect();
            assert!(
                backward.iter().map(|(key, value)| (key, value)).eq(expected.into_iter().rev().take(limit))
            );
        }
    }
}
