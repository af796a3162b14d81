//! How long does an operation in memory take? Prints nanoseconds; asserts nothing.
//!
//! `cargo bench -p steadfast-tree`

use std::hint::black_box;
use std::time::Instant;

use steadfast_tree::testing::CountingStore;
use steadfast_tree::{Change, NodeCache, Options, Tree};

const COUNT: u64 = 1_000_000;

fn key(number: u64) -> [u8; 16] {
    let mut key = [0; 16];
    key[..8].copy_from_slice(&(number / 16).to_be_bytes());
    key[8..].copy_from_slice(&(number % 16).to_be_bytes());
    key
}

/// Visits 0..COUNT in an order that looks random.
fn scattered(step: u64) -> u64 {
    step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % COUNT
}

fn measure(what: &str, count: u64, mut operation: impl FnMut(u64)) {
    let start = Instant::now();
    (0..count).for_each(&mut operation);
    println!("{what:<44} {:>8.0} ns", start.elapsed().as_nanos() as f64 / count as f64);
}

fn main() {
    let value = [7; 100];
    let books = CountingStore::new();
    let cache = NodeCache::new(1 << 30);
    let tree = Tree::create(books.clone(), cache.clone(), Options::DATASET);
    measure("insert, ascending", COUNT, |step| drop(tree.insert(&key(step), &value).unwrap()));
    measure("get, dirty tree", COUNT, |step| {
        tree.get_with(&key(scattered(step)), |value| value.map(|value| black_box(value[0]))).unwrap();
    });
    measure("insert over, dirty tree", COUNT, |step| {
        tree.insert(&key(scattered(step)), &value).unwrap();
    });
    println!("dirty: {} MiB", tree.dirty_bytes() >> 20);
    measure("snapshot and sync, whole", 1, |_| {
        tree.sync(&tree.snapshot()).unwrap();
    });
    measure("get, stored tree, cached", COUNT, |step| {
        tree.get_with(&key(scattered(step)), |value| value.map(|value| black_box(value[0]))).unwrap();
    });
    measure("get, stored tree, cached, 10,000 hot keys", COUNT, |step| {
        tree.get_with(&key(scattered(step) % 10_000), |value| value.map(|value| black_box(value[0])))
            .unwrap();
    });
    measure("floor, stored tree, cached", COUNT, |step| {
        black_box(tree.floor(&key(scattered(step))).unwrap());
    });
    measure("range over all, whole", 1, |_| {
        black_box(tree.range::<Vec<u8>>(..).count());
    });
    measure("insert over, clean tree, first 100,000", 100_000, |step| {
        tree.insert(&key(scattered(step)), &value).unwrap();
    });
    tree.sync(&tree.snapshot()).unwrap();
    let keys: Vec<_> = (0..100_000).map(|number| key(500_000 + number)).collect();
    let changes: Vec<_> = keys.iter().map(|key| Change::Insert(key, &value)).collect();
    measure("batch of 100,000 over a clean tree, whole", 1, |_| drop(tree.batch(&changes).unwrap()));
    measure("remove, scattered", COUNT, |step| drop(tree.remove(&key(scattered(step))).unwrap()));
    let random = Tree::create(CountingStore::new(), cache, Options::DATASET);
    measure("insert, scattered", COUNT, |step| drop(random.insert(&key(scattered(step)), &value).unwrap()));
}
