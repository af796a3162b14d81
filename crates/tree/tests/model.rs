//! The tree against a `BTreeMap`, and its store's books against what is reachable.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock};

use crate::common::{Model, Random, SMALL, content, key, random_change, random_look, reopened};
use proptest::prelude::*;
use steadfast_format::BlockPointer;
use steadfast_tree::testing::CountingStore;
use steadfast_tree::{Change, NodeCache, NodeStore, Snapshot, StoreError, Tree};

/// Random changes, looks, snapshots, syncs (late, left out, failing) and reopening, all from one
/// seed.
fn long_run(seed: u64, steps: usize, space: u64, cache_bytes: usize) {
    let mut random = Random(seed);
    let books = CountingStore::new();
    let mut tree = Tree::create(books.clone(), NodeCache::new(cache_bytes), SMALL);
    let mut model = Model::new();
    let mut waiting: VecDeque<(Snapshot, Model)> = VecDeque::new();
    for _ in 0..steps {
        match random.below(200) {
            0..=2 => waiting.push_back((tree.snapshot(), model.clone())),
            3..=5 => {
                if waiting.len() > 1 && random.one_in(5) {
                    waiting.pop_front(); // never synced: its changes go with the next
                }
                let Some((snapshot, expected)) = waiting.front() else { continue };
                if random.one_in(3) {
                    books.fail_writes_after(Some(random.below(4)));
                }
                let result = tree.sync(snapshot);
                books.fail_writes_after(None);
                let Ok(root) = result else {
                    assert!(tree.is_dirty());
                    continue;
                };
                books.audit(&tree);
                assert_eq!(content(&reopened(&books, root)), *expected);
                waiting.pop_front();
                books.commit();
                if random.one_in(4) {
                    // As after a crash: what was not synced is gone.
                    tree = Tree::open(books.clone(), NodeCache::new(cache_bytes), root, SMALL);
                    model = content(&tree);
                    waiting.clear();
                }
            }
            6..=60 => random_look(&mut random, space, &tree, &model),
            _ => random_change(&mut random, space, &tree, &mut model),
        }
    }
    assert_eq!(content(&tree), model);
    let root = tree.sync(&tree.snapshot()).unwrap();
    books.audit(&tree);
    assert_eq!(content(&reopened(&books, root)), model);
    // Emptied again, nothing is left in the store.
    while tree.remove_range::<Vec<u8>>(.., 500, |_, _| {}).unwrap() == 500 {}
    assert_eq!((tree.sync(&tree.snapshot()).unwrap(), books.live_count()), (None, 0));
}

#[test]
fn long_random_runs_equal_the_model() {
    for seed in 0..6 {
        for (space, cache_bytes) in [(150, 1 << 20), (3_000, 1 << 20), (3_000, 0), (20_000, 50_000)] {
            long_run(seed * 1_000 + space, 6_000, space, cache_bytes);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn any_changes_in_any_order_equal_the_model(
        steps in prop::collection::vec(
            prop_oneof![
                8 => (any::<u16>(), 0..300_usize).prop_map(|(key, len)| (0, key, len)),
                6 => any::<u16>().prop_map(|key| (1, key, 0)),
                1 => Just((2, 0, 0)),
                1 => (any::<u16>(), 0..200_usize).prop_map(|(key, count)| (3, key, count)),
            ],
            1..400,
        )
    ) {
        let books = CountingStore::new();
        let tree = Tree::create(books.clone(), NodeCache::new(100_000), SMALL);
        let mut model = Model::new();
        for (what, number, size) in steps {
            // A small space, so that removals find something.
            let name = key(u64::from(number) % 500);
            match what {
                0 => {
                    let value = vec![number as u8; size];
                    prop_assert_eq!(tree.insert(&name, &value).unwrap(), model.insert(name, value));
                }
                1 => prop_assert_eq!(tree.remove(&name).unwrap(), model.remove(&name)),
                2 => {
                    let root = tree.sync(&tree.snapshot()).unwrap();
                    books.audit(&tree);
                    prop_assert_eq!(&content(&reopened(&books, root)), &model);
                }
                _ => {
                    let removed = tree.remove_range(name.clone().., size, |_, _| {}).unwrap();
                    let keys: Vec<_> = model.range(name..).take(size).map(|(key, _)| key.clone()).collect();
                    prop_assert_eq!(removed, keys.len());
                    keys.iter().for_each(|key| drop(model.remove(key)));
                }
            }
        }
        prop_assert_eq!(content(&tree), model);
    }
}

/// A store that changes its tree, and may snapshot it, while the tree is being written.
struct Meddler {
    books: Arc<CountingStore>,
    tree: OnceLock<Arc<Tree>>,
    world: Mutex<World>,
}

struct World {
    random: Random,
    model: Model,
    next: Option<(Snapshot, Model)>,
}

impl NodeStore for Meddler {
    fn read(&self, pointer: &BlockPointer) -> Result<Vec<u8>, StoreError> {
        self.books.read(pointer)
    }

    fn write(&self, nodes: Vec<(u8, Vec<u8>)>) -> Result<Vec<BlockPointer>, StoreError> {
        let tree = self.tree.get().expect("set");
        let mut world = self.world.lock().unwrap();
        let World { random, model, next } = &mut *world;
        for _ in 0..random.below(40) {
            random_change(random, 1_000, tree, model);
        }
        if next.is_none() && random.one_in(3) {
            *next = Some((tree.snapshot(), model.clone()));
            for _ in 0..random.below(10) {
                random_change(random, 1_000, tree, model);
            }
        }
        drop(world);
        self.books.write(nodes)
    }

    fn free(&self, pointer: &BlockPointer) {
        self.books.free(pointer);
    }
}

#[test]
fn a_snapshot_is_written_as_it_was_taken() {
    for seed in 0..20 {
        let books = CountingStore::new();
        let world = World { random: Random(seed), model: Model::new(), next: None };
        let meddler =
            Arc::new(Meddler { books: books.clone(), tree: OnceLock::new(), world: Mutex::new(world) });
        let tree = Arc::new(Tree::create(meddler.clone(), NodeCache::new(1 << 20), SMALL));
        meddler.tree.set(tree.clone()).expect("first");
        for _ in 0..40 {
            let (snapshot, expected) = {
                let mut world = meddler.world.lock().unwrap();
                let World { random, model, next } = &mut *world;
                random_change(random, 1_000, &tree, model);
                next.take().unwrap_or_else(|| (tree.snapshot(), model.clone()))
            };
            let root = tree.sync(&snapshot).unwrap();
            books.audit(&tree);
            books.commit();
            assert_eq!(content(&reopened(&books, root)), expected, "seed {seed}");
            assert_eq!(content(&tree), meddler.world.lock().unwrap().model, "seed {seed}");
        }
    }
}

#[test]
fn dirty_bytes_are_what_sync_writes() {
    let mut random = Random(99);
    let books = CountingStore::new();
    let tree = Tree::create(books.clone(), NodeCache::new(1 << 20), SMALL);
    let mut model = Model::new();
    for _ in 0..200 {
        for _ in 0..random.below(60) {
            random_change(&mut random, 2_000, &tree, &mut model);
        }
        let before = books.statistics().bytes_written;
        let expected = tree.dirty_bytes();
        let snapshot = tree.snapshot();
        assert_eq!((snapshot.dirty_bytes(), tree.dirty_bytes()), (expected, 0));
        tree.sync(&snapshot).unwrap();
        assert_eq!(books.statistics().bytes_written - before, expected);
    }
}

#[test]
fn a_node_changed_often_is_written_once_a_sync() {
    let books = CountingStore::new();
    let tree = Tree::create(books.clone(), NodeCache::new(1 << 20), SMALL);
    (0..1_000).for_each(|number| drop(tree.insert(&key(number), b"value").unwrap()));
    tree.sync(&tree.snapshot()).unwrap();
    let before = books.statistics();
    (0..1_000).for_each(|round: u64| drop(tree.insert(&key(500), &round.to_be_bytes()[3..]).unwrap()));
    let root = tree.sync(&tree.snapshot()).unwrap().unwrap();
    let after = books.statistics();
    assert_eq!(after.nodes_written - before.nodes_written, u64::from(root.level) + 1);
    assert_eq!(after.nodes_freed - before.nodes_freed, u64::from(root.level) + 1);
}

#[test]
fn nodes_made_and_dropped_in_one_epoch_never_reach_the_store() {
    let books = CountingStore::new();
    let tree = Tree::create(books.clone(), NodeCache::new(1 << 20), SMALL);
    (0..5_000).for_each(|number| drop(tree.insert(&key(number), b"value").unwrap()));
    while tree.remove_range::<Vec<u8>>(.., 700, |_, _| {}).unwrap() == 700 {}
    assert_eq!(tree.sync(&tree.snapshot()).unwrap(), None);
    assert_eq!((books.statistics().nodes_written, books.statistics().nodes_freed), (0, 0));
}

/// Average fill of the leaves and inner nodes of a stored tree, in percent.
fn fill_percent(books: &CountingStore, tree: &Tree, node_bytes_max: usize) -> u64 {
    tree.sync(&tree.snapshot()).unwrap();
    books.audit(tree);
    books.live_bytes() * 100 / (books.live_count() * node_bytes_max) as u64
}

#[test]
fn sequential_keys_fill_nodes_and_random_keys_fill_two_thirds() {
    let size = 4_096;
    let options = steadfast_tree::Options { node_bytes_max: size };
    let new_tree = |books: &Arc<CountingStore>| Tree::create(books.clone(), NodeCache::new(1 << 20), options);

    let books = CountingStore::new();
    let tree = new_tree(&books);
    (0..20_000).for_each(|number| drop(tree.insert(&key(number), &[1; 30]).unwrap()));
    assert!(fill_percent(&books, &tree, size) >= 97, "ascending");

    let books = CountingStore::new();
    let tree = new_tree(&books);
    (0..20_000).rev().for_each(|number| drop(tree.insert(&key(number), &[1; 30]).unwrap()));
    assert!(fill_percent(&books, &tree, size) >= 97, "descending");

    let books = CountingStore::new();
    let tree = new_tree(&books);
    let mut random = Random(5);
    (0..20_000).for_each(|_| drop(tree.insert(&key(random.next()), &[1; 30]).unwrap()));
    assert!((62..80).contains(&fill_percent(&books, &tree, size)), "random");

    // Two ascending runs in the middle of the tree, as of two files that grow.
    let books = CountingStore::new();
    let tree = new_tree(&books);
    (0..100).for_each(|number| drop(tree.insert(&key(number << 32), &[1; 30]).unwrap()));
    for number in 1..10_000 {
        let keys = [key((40 << 32) + number), key((60 << 32) + number)];
        tree.batch(&keys.each_ref().map(|key| Change::Insert(key, &[1; 30]))).unwrap();
    }
    assert!(fill_percent(&books, &tree, size) >= 95, "two runs");

    // Removing all but every tenth key merges nodes.
    let books = CountingStore::new();
    let tree = new_tree(&books);
    (0..20_000).for_each(|number| drop(tree.insert(&key(number), &[1; 30]).unwrap()));
    tree.sync(&tree.snapshot()).unwrap();
    let mut numbers: Vec<u64> = (0..20_000).filter(|number| number % 10 != 0).collect();
    (1..numbers.len()).rev().for_each(|at| numbers.swap(at, random.below(at as u64 + 1) as usize));
    numbers.into_iter().for_each(|number| drop(tree.remove(&key(number)).unwrap()));
    assert!(fill_percent(&books, &tree, size) >= 37, "after removals");
}
