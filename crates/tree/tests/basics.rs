//! A first look at each operation.

use std::ops::Bound;
use std::sync::Arc;

use steadfast_tree::testing::CountingStore;
use steadfast_tree::{Change, Error, NodeCache, Options, Tree};

const SMALL: Options = Options { node_bytes_max: 1_280 };

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

fn small_tree() -> (Arc<CountingStore>, Tree) {
    let books = CountingStore::new();
    let tree = Tree::create(books.clone(), NodeCache::new(1 << 20), SMALL);
    (books, tree)
}

fn filled(count: u64) -> (Arc<CountingStore>, Tree) {
    let (books, tree) = small_tree();
    (0..count).for_each(|number| assert_eq!(tree.insert(&key(number * 2), &key(number)).unwrap(), None));
    (books, tree)
}

#[test]
fn what_is_inserted_is_found_and_what_is_removed_is_not() {
    let (_, tree) = filled(2_000);
    for number in 0..2_000 {
        assert_eq!(tree.get(&key(number * 2)).unwrap(), Some(key(number)));
        assert_eq!(tree.get(&key(number * 2 + 1)).unwrap(), None);
    }
    assert_eq!(tree.insert(&key(10), b"other").unwrap(), Some(key(5)));
    assert_eq!(tree.remove(&key(10)).unwrap(), Some(b"other".to_vec()));
    assert_eq!(tree.remove(&key(10)).unwrap(), None);
    for number in 0..2_000 {
        tree.remove(&key(number * 2)).unwrap();
    }
    assert!(tree.is_empty());
    assert_eq!(tree.dirty_bytes(), 0);
}

#[test]
fn a_synced_tree_opens_with_the_same_content() {
    let (books, tree) = filled(2_000);
    assert!(tree.is_dirty());
    let root = tree.sync(&tree.snapshot()).unwrap();
    assert!(!tree.is_dirty());
    books.audit(&tree);
    let reopened = Tree::open(books, NodeCache::new(0), root, SMALL);
    let entries: Vec<_> = reopened.range::<Vec<u8>>(..).map(Result::unwrap).collect();
    assert_eq!(entries, (0..2_000).map(|number| (key(number * 2), key(number))).collect::<Vec<_>>());
}

#[test]
fn floor_is_the_greatest_key_not_above() {
    let (books, tree) = filled(500);
    let root = tree.sync(&tree.snapshot()).unwrap();
    for tree in [tree, Tree::open(books, NodeCache::new(1 << 20), root, SMALL)] {
        assert_eq!(tree.floor(&[]).unwrap(), None);
        for number in 0..500 {
            let expected = Some((key(number * 2), key(number)));
            assert_eq!(tree.floor(&key(number * 2)).unwrap(), expected);
            assert_eq!(tree.floor(&key(number * 2 + 1)).unwrap(), expected);
        }
        tree.remove(&key(0)).unwrap();
        assert_eq!(tree.floor(&key(1)).unwrap(), None);
    }
}

#[test]
fn a_range_gives_what_lies_within_from_either_end() {
    let (_, tree) = filled(300);
    let numbers = |range: steadfast_tree::Range<'_>| -> Vec<u64> {
        range.map(|entry| u64::from_be_bytes(entry.unwrap().0.try_into().unwrap())).collect()
    };
    assert_eq!(numbers(tree.range(key(10)..key(16))), [10, 12, 14]);
    assert_eq!(numbers(tree.range(key(9)..=key(16))), [10, 12, 14, 16]);
    assert_eq!(numbers(tree.range((Bound::Excluded(key(10)), Bound::Excluded(key(14))))), [12]);
    assert_eq!(numbers(tree.range(key(16)..key(10))), [] as [u64; 0]);
    let backward: Vec<_> = tree.range::<Vec<u8>>(..).rev().map(|entry| entry.unwrap().0).collect();
    assert_eq!(backward, (0..300).rev().map(|number| key(number * 2)).collect::<Vec<_>>());
    let mut both = tree.range::<Vec<u8>>(..);
    let mut met = Vec::new();
    while let Some(front) = both.next() {
        met.push(front.unwrap().0);
        met.extend(both.next_back().map(|back| back.unwrap().0));
    }
    met.sort();
    assert_eq!(met, (0..300).map(|number| key(number * 2)).collect::<Vec<_>>());
}

#[test]
fn a_range_does_not_see_what_is_changed_after_it_began() {
    let (_, tree) = filled(300);
    let range = tree.range::<Vec<u8>>(..);
    (0..300).for_each(|number| drop(tree.remove(&key(number * 2)).unwrap()));
    assert_eq!(range.count(), 300);
}

#[test]
fn a_batch_makes_all_its_changes_and_returns_what_was() {
    let (books, tree) = filled(10);
    let wide: Vec<_> = (0..5_000).map(|number| (key(number), key(number + 7))).collect();
    let changes: Vec<_> = wide
        .iter()
        .enumerate()
        .map(|(at, (key, value))| if at % 3 == 0 { Change::Remove(key) } else { Change::Insert(key, value) })
        .collect();
    let before = tree.batch(&changes).unwrap();
    for (number, before) in (0..).zip(&before) {
        let expected = (number < 20 && number % 2 == 0).then(|| key(number / 2));
        assert_eq!(*before, expected);
        let now = (number % 3 != 0).then(|| key(number + 7));
        assert_eq!(tree.get(&key(number)).unwrap(), now);
    }
    tree.sync(&tree.snapshot()).unwrap();
    books.audit(&tree);
    let unsorted = [Change::Remove(b"b"), Change::Remove(b"a")];
    assert!(matches!(tree.batch(&unsorted), Err(Error::BatchOrder { index: 1 })));
}

#[test]
fn removing_what_is_not_there_dirties_nothing() {
    let (_, tree) = filled(500);
    tree.sync(&tree.snapshot()).unwrap();
    assert_eq!(tree.remove(&key(7)).unwrap(), None);
    assert_eq!(tree.batch(&[Change::Remove(&key(1)), Change::Remove(&key(3))]).unwrap(), [None, None]);
    assert_eq!(tree.modify(&key(4), |value| value.map(<[u8]>::to_vec)).unwrap(), Some(key(2)));
    assert_eq!((tree.is_dirty(), tree.dirty_bytes()), (false, 0));
}

#[test]
fn modify_changes_makes_and_removes() {
    let (_, tree) = filled(500);
    assert_eq!(tree.modify(&key(8), |value| Some([value.unwrap(), b"!"].concat())).unwrap(), Some(key(4)));
    assert_eq!(tree.get(&key(8)).unwrap().unwrap().len(), 9);
    assert_eq!(tree.modify(&key(9), |value| value.is_none().then(|| b"new".to_vec())).unwrap(), None);
    assert_eq!(tree.get(&key(9)).unwrap(), Some(b"new".to_vec()));
    assert_eq!(tree.modify(&key(9), |_| None).unwrap(), Some(b"new".to_vec()));
    assert_eq!(tree.get(&key(9)).unwrap(), None);
}

#[test]
fn remove_range_is_bounded_and_shows_what_it_removed() {
    let (books, tree) = filled(1_000);
    tree.sync(&tree.snapshot()).unwrap();
    let mut removed = Vec::new();
    let bounds = key(100)..key(300);
    let mut counts = Vec::new();
    loop {
        let count = tree
            .remove_range(bounds.clone(), 30, |key, value| removed.push((key.to_vec(), value.to_vec())))
            .unwrap();
        counts.push(count);
        if count < 30 {
            break;
        }
    }
    assert_eq!(counts, [30, 30, 30, 10]);
    assert_eq!(removed, (50..150).map(|number| (key(number * 2), key(number))).collect::<Vec<_>>());
    assert_eq!(tree.range::<Vec<u8>>(..).count(), 900);
    tree.sync(&tree.snapshot()).unwrap();
    books.audit(&tree);
}

#[test]
fn keys_and_values_beyond_the_limits_are_refused() {
    let (_, tree) = small_tree();
    assert!(matches!(tree.insert(b"", b""), Err(Error::KeySize { len: 0, .. })));
    assert!(matches!(tree.insert(&[1; 513], b""), Err(Error::KeySize { len: 513, .. })));
    let large = Tree::create(CountingStore::new(), NodeCache::new(0), Options::META);
    assert!(large.insert(&[1; 512], &[2; 3_072]).is_ok());
    assert!(matches!(large.insert(&[1; 512], &[2; 3_073]), Err(Error::ValueSize { len: 3_073, max: 3_072 })));
    assert!(matches!(tree.insert(b"a", &[2; 1_000]), Err(Error::ValueSize { .. })));
}

#[test]
fn greatest_keys_and_values_split_and_merge() {
    let books = CountingStore::new();
    let tree = Tree::create(books.clone(), NodeCache::new(1 << 20), Options::META);
    let long = |number: u64| [key(number), vec![7; 504]].concat();
    for number in (0..200).map(|number| number * 77 % 200) {
        tree.insert(&long(number), &vec![number as u8; 3_072]).unwrap();
    }
    tree.sync(&tree.snapshot()).unwrap();
    books.audit(&tree);
    for number in (0..200).map(|number| number * 33 % 200) {
        if number % 3 != 0 {
            assert_eq!(tree.remove(&long(number)).unwrap(), Some(vec![number as u8; 3_072]));
        }
    }
    tree.sync(&tree.snapshot()).unwrap();
    books.audit(&tree);
    assert_eq!(tree.range::<Vec<u8>>(..).count(), 67);
}

#[test]
#[should_panic(expected = "snapshots are synced once, in the order they were taken")]
fn an_older_snapshot_is_not_synced_after_a_later_one() {
    let (_, tree) = filled(10);
    let (first, second) = (tree.snapshot(), tree.snapshot());
    tree.sync(&second).unwrap();
    let _ = tree.sync(&first);
}

#[test]
fn what_is_not_in_the_cache_is_read_once_and_counted_once() {
    let (books, tree) = filled(20_000);
    let root = tree.sync(&tree.snapshot()).unwrap();
    let levels = u64::from(root.expect("not empty").level) + 1;
    assert!(levels >= 3, "{levels}");
    for number in (0..20_000).step_by(997) {
        for remove in [false, true] {
            let cache = NodeCache::new(1 << 20);
            let cold = Tree::open(books.clone(), Arc::clone(&cache), root, SMALL);
            let before = books.statistics().nodes_read;
            match remove {
                true => assert_eq!(cold.remove(&key(number * 2)).unwrap(), Some(key(number))),
                false => assert_eq!(cold.get(&key(number * 2)).unwrap(), Some(key(number))),
            }
            assert_eq!(books.statistics().nodes_read - before, levels, "one node of each level");
            assert_eq!(cache.statistics().misses, levels);
            // Everything is here now: nothing is read, and nothing missed.
            assert_eq!(cold.insert(&key(number * 2), &key(number)).unwrap().is_none(), remove);
            assert_eq!(books.statistics().nodes_read - before, levels);
            assert_eq!(cache.statistics().misses, levels);
        }
    }
}
