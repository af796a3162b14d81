//! Nodes are not in memory: they are read side by side, once, and not under a caller's locks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use steadfast_format::BlockPointer;
use steadfast_tree::testing::CountingStore;
use steadfast_tree::{
    Attempts, CacheStatistics, Change, Error, NodeCache, NodeStore, Options, StoreError, Tree,
    without_reading,
};

const SMALL: Options = Options { node_bytes_max: 1_280 };

fn key(number: u64) -> Vec<u8> {
    number.to_be_bytes().to_vec()
}

/// A stored tree of so many keys.
fn stored(count: u64) -> (Arc<CountingStore>, Option<BlockPointer>) {
    stored_in(count, SMALL)
}

fn stored_in(count: u64, options: Options) -> (Arc<CountingStore>, Option<BlockPointer>) {
    let store = CountingStore::new();
    let tree = Tree::create(store.clone(), NodeCache::new(1 << 20), options);
    (0..count).for_each(|number| assert_eq!(tree.insert(&key(number), &key(number)).unwrap(), None));
    let root = tree.sync(&tree.snapshot()).unwrap();
    (store, root)
}

fn cold(count: u64, cache_bytes: usize) -> (Arc<CountingStore>, Tree) {
    let (store, root) = stored(count);
    let tree = Tree::open(store.clone(), NodeCache::new(cache_bytes), root, SMALL);
    (store, tree)
}

/// The same with one node above some 25 leaves of 400 keys.
fn cold_and_flat() -> (Arc<CountingStore>, Tree) {
    let (store, root) = stored_in(10_000, Options::META);
    let tree = Tree::open(store.clone(), NodeCache::new(1 << 20), root, Options::META);
    (store, tree)
}

fn rounds(store: &CountingStore) -> u64 {
    store.statistics().reads
}

#[test]
fn an_operation_reads_between_its_attempts_and_never_in_them() {
    let (store, tree) = cold(10_000, 1 << 20);
    let mut attempts = Attempts::new();
    let mut tries = 0;
    let found = loop {
        let before = rounds(&store);
        let result = attempts.attempt(|| {
            tries += 1;
            tree.get(&key(77))
        });
        assert_eq!(rounds(&store), before, "an attempt reads nothing");
        match result {
            Some(result) => break result.unwrap(),
            None => attempts.read(),
        }
    };
    assert_eq!(found, Some(key(77)));
    assert_eq!(tries, 2, "what is missing is read down to the leaf");
}

#[test]
fn what_an_operation_misses_is_read_side_by_side() {
    let (store, tree) = cold(10_000, 1 << 20);
    let keys: Vec<_> = (0..20).map(|number| key(number * 500)).collect();
    let changes: Vec<_> = keys.iter().map(|key| Change::Insert(key, b"new")).collect();
    let before = rounds(&store);
    without_reading(|| tree.batch(&changes)).unwrap();
    let levels = rounds(&store) - before;
    assert!((2..=4).contains(&levels), "{levels} round trips: one a level");
    assert!(store.statistics().nodes_read > 20, "many leaves");
    // The same without an operation.
    let (store, tree) = cold(10_000, 1 << 20);
    tree.batch(&changes).unwrap();
    assert_eq!(rounds(&store), levels);
}

#[test]
fn an_operation_ends_though_the_cache_keeps_nothing() {
    let (store, tree) = cold(10_000, 0);
    let mut tries = 0;
    without_reading(|| {
        tries += 1;
        // One after the other, so that each attempt misses what comes next.
        for number in [5, 2_005, 4_005, 6_005, 8_005] {
            tree.get(&key(number))?;
        }
        tree.scan(&key(3_000), &key(3_100), |_, _| true)?;
        tree.batch(&[Change::Remove(&key(9_000))])
    })
    .unwrap();
    assert!(tries <= 8, "{tries} attempts");
    assert_eq!(tree.get(&key(9_000)).unwrap(), None);
    assert!(store.statistics().nodes_read < 60, "nothing was read again and again");
}

#[test]
fn an_operation_is_told_what_cannot_be_read() {
    let (store, tree) = cold(10_000, 1 << 20);
    store.fail_reads_after(Some(1));
    let error = without_reading(|| tree.get(&key(77))).unwrap_err();
    assert!(matches!(error, Error::Read { .. }), "{error}");
    store.fail_reads_after(None);
    assert_eq!(without_reading(|| tree.get(&key(77))).unwrap(), Some(key(77)));
    // Another operation is not told of it.
    let mut attempts = Attempts::new();
    assert!(attempts.attempt(|| tree.get(&key(9_077))).is_none());
    attempts.read();
    assert_eq!(attempts.attempt(|| tree.get(&key(9_077))).unwrap().unwrap(), Some(key(9_077)));
}

#[test]
fn a_thin_leaf_and_its_cold_neighbour_are_merged_by_an_operation() {
    let (store, tree) = cold(2_000, 1 << 20);
    for number in 400..500 {
        without_reading(|| tree.remove(&key(number))).unwrap();
    }
    tree.sync(&tree.snapshot()).unwrap();
    store.audit(&tree);
    assert_eq!(tree.range::<Vec<u8>>(..).count(), 1_900);
}

#[test]
fn a_walk_reads_more_leaves_at_once_the_longer_it_goes() {
    let (store, tree) = cold(10_000, 4 << 20);
    let before = store.statistics();
    assert_eq!(tree.range::<Vec<u8>>(..).count(), 10_000);
    let nodes = store.statistics().nodes_read - before.nodes_read;
    let walked = rounds(&store) - before.reads;
    assert!(nodes > 150 && walked < nodes / 4, "{walked} round trips for {nodes} nodes");
    // A reader that jumps about reads one at a time.
    let (store, tree) = cold(10_000, 4 << 20);
    for number in (0..10_000).step_by(601) {
        tree.get(&key(number)).unwrap();
    }
    assert!(store.statistics().nodes_read <= rounds(&store));
}

/// A store that answers a read only when so many readers have asked the tree, and a moment later.
#[derive(Debug)]
struct Patient {
    inner: Arc<CountingStore>,
    asked: AtomicUsize,
    readers: usize,
}

impl NodeStore for Patient {
    fn read(&self, pointer: &BlockPointer) -> Result<Vec<u8>, StoreError> {
        while self.asked.load(Ordering::SeqCst) < self.readers {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(5));
        self.inner.read(pointer)
    }

    fn read_many(&self, pointers: &[BlockPointer]) -> Vec<Result<Vec<u8>, StoreError>> {
        pointers.iter().map(|pointer| self.read(pointer)).collect()
    }

    fn write(&self, nodes: Vec<(u8, Vec<u8>)>) -> Result<Vec<BlockPointer>, StoreError> {
        self.inner.write(nodes)
    }

    fn free(&self, pointer: &BlockPointer) {
        self.inner.free(pointer);
    }
}

/// However many want a node, it is read once. Each of them counts as a hit, as a miss or as shared.
#[test]
fn a_node_that_many_want_at_once_is_one_miss_and_shared_by_the_others() {
    const READERS: usize = 8;
    let began = Instant::now();
    loop {
        let (inner, root) = stored(10_000);
        let read_before = inner.statistics().nodes_read;
        let store = Arc::new(Patient { inner, asked: AtomicUsize::new(0), readers: READERS });
        let cache = NodeCache::new(1 << 20);
        let tree = Tree::open(Arc::clone(&store) as Arc<dyn NodeStore>, Arc::clone(&cache), root, SMALL);
        let start = Barrier::new(READERS);
        std::thread::scope(|scope| {
            for _ in 0..READERS {
                scope.spawn(|| {
                    start.wait();
                    store.asked.fetch_add(1, Ordering::SeqCst);
                    assert_eq!(tree.get(&key(77)).unwrap(), Some(key(77)));
                });
            }
        });
        let CacheStatistics { hits, misses, shared, pinned, evictions, .. } = cache.statistics();
        let levels = u64::from(root.expect("stored").level) + 1;
        assert_eq!(store.inner.statistics().nodes_read - read_before, levels, "each node once");
        assert_eq!((misses, evictions), (levels, 0));
        assert_eq!(hits + shared, levels * (READERS as u64 - 1), "{hits} hits, {shared} shared");
        assert_eq!(pinned, 0, "nobody uses a node any more");
        // A thread that was late found the first node in the cache.
        if shared >= READERS as u64 - 1 {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(120), "never were all in time: {shared} shared");
    }
}

/// A walk that has not ended uses the node at which it stands.
#[test]
fn a_walk_pins_the_node_where_it_stands() {
    let (store, root) = stored(10_000);
    let cache = NodeCache::new(4 << 20);
    let tree = Tree::open(store, Arc::clone(&cache), root, SMALL);
    let mut walk = tree.range::<Vec<u8>>(..);
    assert!(walk.next().is_some());
    let pinned = cache.statistics().pinned;
    assert!(pinned >= 1, "{pinned}");
    drop(walk);
    assert_eq!(cache.statistics().pinned, 0);
}

/// A path goes on to keys behind the one it has found: what lies there is asked for beside it, once
/// the first leaf is missing, and nobody waits for it.
#[test]
fn leaves_behind_one_that_is_missing_are_brought() {
    let (store, tree) = cold_and_flat();
    let brought = || store.statistics().nodes_brought;
    // Which leaves they are is not known without the nodes above.
    tree.bring_behind(&key(0), &key(9_000), 5);
    assert_eq!((brought(), rounds(&store)), (0, 0));
    tree.get(&key(5_000)).unwrap();
    let before = rounds(&store);
    tree.bring_behind(&key(5_500), &key(9_000), 5);
    assert_eq!((brought(), rounds(&store)), (4, before), "the first is read by who wants it");
    tree.bring_behind(&key(5_000), &key(9_000), 5);
    tree.bring_behind(&key(6_000), &key(6_001), 5);
    without_reading(|| {
        tree.bring_behind(&key(5_500), &key(9_000), 5);
        Ok::<_, Error>(())
    })
    .unwrap();
    assert_eq!(brought(), 4, "a leaf that is here, a range of one leaf, an operation that reads nothing");
}

#[test]
fn leaves_of_a_range_are_written_together_once_the_first_is_written() {
    let (store, tree) = cold_and_flat();
    let (from, to) = (key(0), key(1_200));
    let written = |act: &dyn Fn()| {
        act();
        let before = store.statistics().nodes_written;
        tree.sync(&tree.snapshot()).unwrap();
        store.audit(&tree);
        store.statistics().nodes_written - before
    };
    let change = || drop(tree.insert(&from, b"changed").unwrap());
    let alone = written(&change);
    let gather = |leaves_max| {
        let before = rounds(&store);
        tree.gather(&from, &to, leaves_max);
        assert_eq!(rounds(&store), before, "it reads nothing");
    };
    let gather_changed = |leaves_max| {
        change();
        gather(leaves_max);
    };
    assert_eq!(written(&|| gather_changed(8)), alone, "the others are not in memory");
    let read = |leaves_max| {
        let before = rounds(&store);
        tree.read_to_gather(&from, &to, leaves_max);
        rounds(&store) - before
    };
    assert_eq!(read(8), 0, "nothing was changed");
    change();
    assert_eq!((read(1), read(8), read(8)), (0, 1, 0), "too many leaves; side by side; they are here");
    let together = written(&|| gather(8));
    assert!((alone + 2..alone + 5).contains(&together), "{together} nodes, {alone} alone");
    assert_eq!(written(&|| gather(8)), 0, "nothing was changed");
    assert_eq!(written(&|| gather_changed(1)), alone, "too many leaves");
    let found: Vec<_> = tree.range::<Vec<u8>>(..).map(|item| item.unwrap()).collect();
    assert_eq!((found.len(), &found[0].1[..], &found[600].1), (10_000, &b"changed"[..], &key(600)));
}

/// Leaves of one range lie below several nodes, of which one is in memory.
#[test]
fn leaves_below_several_nodes_are_written_together() {
    let (store, tree) = cold(10_000, 1 << 20);
    let (from, to) = (key(5_000), key(6_000));
    tree.insert(&from, b"changed").unwrap();
    tree.read_to_gather(&from, &to, 40);
    let before = rounds(&store);
    assert_eq!(tree.range(from.clone()..to.clone()).count(), 1_000);
    assert_eq!(rounds(&store), before, "all of them are in memory");
    tree.gather(&from, &to, 40);
    let before = store.statistics().nodes_written;
    tree.sync(&tree.snapshot()).unwrap();
    let written = store.statistics().nodes_written - before;
    assert!(written > 20, "{written} nodes");
    store.audit(&tree);
}

/// Names that are looked for lie in leaves behind each other by chance, and the next leaf may be
/// far away: it is asked for, and nobody waits for it. Where nothing is brought it is read beside.
#[test]
fn a_reader_does_not_wait_for_what_comes_behind_two_leaves() {
    for (is_far, expected) in [(true, (1, 1)), (false, (2, 1))] {
        let (store, tree) = cold_and_flat();
        if is_far {
            store.bring_from_now_on();
        }
        tree.get(&key(5_000)).unwrap();
        let before = store.statistics();
        // Some key of the next leaf.
        let mut number = 5_000;
        while store.statistics().nodes_read == before.nodes_read {
            number += 1;
            tree.get(&key(number)).unwrap();
        }
        let after = store.statistics();
        let counts = (after.nodes_read - before.nodes_read, after.nodes_brought - before.nodes_brought);
        assert_eq!(counts, expected, "far: {is_far}");
    }
}
