//! Devices that fail, and blocks that are not what they should be.

use std::sync::Arc;

use crate::common::{Model, Random, SMALL, content, key, random_change};
use steadfast_format::BlockPointer;
use steadfast_tree::testing::{CountingStore, CountingStoreError};
use steadfast_tree::{Change, Error, NodeCache, NodeStore, Result, Tree};

/// A synced tree of 600 keys whose nodes are all on the store.
fn stored() -> (Arc<CountingStore>, BlockPointer, Model) {
    let books = CountingStore::new();
    let tree = Tree::create(books.clone(), NodeCache::new(0), SMALL);
    let mut random = Random(3);
    let mut model = Model::new();
    while model.len() < 600 {
        random_change(&mut random, 2_000, &tree, &mut model);
    }
    let root = tree.sync(&tree.snapshot()).unwrap().expect("not empty");
    assert!(root.level >= 2, "deep enough to be interesting");
    (books, root, model)
}

#[test]
fn a_failed_operation_leaves_the_tree_as_it_was() {
    type Operation = fn(&Tree) -> Result<usize>;
    let operations: [(&str, Operation); 8] = [
        ("get", |tree| Ok(tree.get(&key(1_000))?.map_or(0, |value| value.len()))),
        ("floor", |tree| Ok(tree.floor(&key(1_001))?.map_or(0, |entry| entry.1.len()))),
        ("insert", |tree| Ok(tree.insert(&key(1_000), b"x")?.map_or(0, |value| value.len()))),
        ("remove", |tree| {
            let first = tree.range(key(1_000)..).next().transpose()?.expect("there is one").0;
            Ok(tree.remove(&first)?.map_or(0, |value| value.len()))
        }),
        ("modify", |tree| Ok(tree.modify(&key(8), |_| Some(b"y".to_vec()))?.map_or(0, |value| value.len()))),
        ("batch", |tree| {
            let keys: Vec<_> = (0..300).map(|number| key(number * 7)).collect();
            let changes: Vec<_> = (0..)
                .zip(&keys)
                .map(|(at, key)| if at % 2 == 0 { Change::Remove(key) } else { Change::Insert(key, b"z") })
                .collect();
            Ok(tree.batch(&changes)?.into_iter().flatten().count())
        }),
        ("remove_range", |tree| tree.remove_range(key(300)..key(1_500), 200, |_, _| {})),
        ("range", |tree| tree.range::<Vec<u8>>(..).try_fold(0, |sum, entry| Ok(sum + entry?.1.len()))),
    ];
    for (name, operation) in operations {
        let (books, root, model) = stored();
        for reads in 0.. {
            let tree = Tree::open(books.clone(), NodeCache::new(1 << 20), Some(root), SMALL);
            books.fail_reads_after(Some(reads));
            let result = operation(&tree);
            books.fail_reads_after(None);
            let Err(error) = result else {
                assert!(reads >= 2, "{name} reads at least a path");
                break;
            };
            assert!(
                matches!(&error, Error::Read { source, .. }
                    if source.downcast_ref::<CountingStoreError>() == Some(&CountingStoreError::Injected)),
                "{name}: {error}"
            );
            assert_eq!((tree.is_dirty(), tree.dirty_bytes()), (false, 0), "{name} after {reads} reads");
            assert_eq!(content(&tree), model, "{name} after {reads} reads");
        }
    }
}

#[test]
fn a_failed_sync_frees_nothing_and_is_finished_by_the_next() {
    let (books, root, mut model) = stored();
    let tree = Tree::open(books.clone(), NodeCache::new(1 << 20), Some(root), SMALL);
    let mut random = Random(17);
    for round in 0..30 {
        for _ in 0..20 {
            random_change(&mut random, 2_000, &tree, &mut model);
        }
        let mut snapshot = tree.snapshot();
        for writes in 0.. {
            books.fail_writes_after(Some(writes));
            let freed = books.statistics().nodes_freed;
            let result = tree.sync(&snapshot);
            books.fail_writes_after(None);
            if result.is_ok() {
                break;
            }
            assert!(matches!(result, Err(Error::Write { .. })));
            assert_eq!(books.statistics().nodes_freed, freed);
            assert_eq!(content(&tree), model);
            // In every other round go on with a later snapshot instead of the same.
            if round % 2 == 0 {
                random_change(&mut random, 2_000, &tree, &mut model);
                snapshot = tree.snapshot();
            }
        }
        if !tree.is_dirty() {
            books.audit(&tree);
        }
    }
    tree.sync(&tree.snapshot()).unwrap();
    books.audit(&tree);
    assert_eq!(content(&tree), model);
}

#[test]
fn a_neighbour_that_cannot_be_read_does_not_stop_a_removal() {
    let books = CountingStore::new();
    let tree = Tree::create(books.clone(), NodeCache::new(0), SMALL);
    (0..1_000).for_each(|number| drop(tree.insert(&key(number), b"value").unwrap()));
    let root = tree.sync(&tree.snapshot()).unwrap();
    let tree = Tree::open(books.clone(), NodeCache::new(1 << 20), root, SMALL);
    assert!(tree.contains(&key(500)).unwrap());
    books.fail_reads_after(Some(0));
    // Leave one key in the leaf of key 500: the leaf is thin, and its neighbours are out of reach.
    let mut removed = 0;
    for number in (501..560).chain((440..500).rev()) {
        match tree.remove(&key(number)) {
            Ok(value) => removed += value.map_or(0, |_| 1),
            Err(error) => assert!(matches!(error, Error::Read { .. })),
        }
    }
    books.fail_reads_after(None);
    assert!(removed > 20, "the leaf was emptied but for one: {removed}");
    assert_eq!(tree.range::<Vec<u8>>(..).count(), 1_000 - removed);
    tree.sync(&tree.snapshot()).unwrap();
    books.audit(&tree);
}

/// Pointers of all nodes of a tree, root first.
fn pointers(tree: &Tree) -> Vec<BlockPointer> {
    let mut pointers = Vec::new();
    tree.visit_pointers(|pointer| pointers.push(*pointer)).unwrap();
    pointers
}

#[test]
fn a_valid_node_in_the_wrong_place_is_found_out() {
    let (books, root, _) = stored();
    let tree = Tree::open(books.clone(), NodeCache::new(1 << 20), Some(root), SMALL);
    for level in 0..root.level {
        let nodes: Vec<_> = pointers(&tree).into_iter().filter(|pointer| pointer.level == level).collect();
        for (one, other) in [(0, 1), (nodes.len() - 1, 0), (nodes.len() / 2, nodes.len() / 2 - 1)] {
            let bytes = books.read(&nodes[one]).unwrap();
            books.overwrite(&nodes[one], &books.read(&nodes[other]).unwrap());
            let fresh = Tree::open(books.clone(), NodeCache::new(1 << 20), Some(root), SMALL);
            let error = fresh
                .range::<Vec<u8>>(..)
                .find_map(Result::err)
                .unwrap_or_else(|| panic!("level {level}, {other} in place of {one} of {}", nodes.len()));
            assert!(
                // A node without separators (one child) is found out through its child.
                matches!(&error, Error::Misplaced { level: at, .. } if *at == level || *at + 1 == level),
                "{error}"
            );
            books.overwrite(&nodes[one], &bytes);
        }
    }
}

#[test]
fn a_node_of_another_level_and_a_block_that_is_none_are_found_out() {
    let (books, root, model) = stored();
    let tree = Tree::open(books.clone(), NodeCache::new(0), Some(root), SMALL);
    let leaf = *pointers(&tree).last().unwrap();
    let last_key = model.keys().next_back().unwrap();
    books.overwrite(&leaf, &books.read(&root).unwrap());
    assert!(matches!(tree.get(last_key), Err(Error::WrongLevel { expected: 0, .. })));
    books.overwrite(&leaf, b"no node at all, but long enough");
    assert!(matches!(tree.get(last_key), Err(Error::Decode { level: 0, .. })));
    assert!(matches!(tree.insert(last_key, b"x"), Err(Error::Decode { level: 0, .. })));
    assert!(tree.get(model.keys().next().unwrap()).unwrap().is_some(), "the rest can be read");
}
