//! A store of tiles that lists what is not there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use steadfast_device::Operation;
use steadfast_device::objects::{MemoryStore, Store};
use steadfast_format::SegmentId;
use steadfast_format::object_names;
use steadfast_por::PAYLOAD;

use crate::away::{Shared, made, opened, tended};
use crate::device::{Given, SMALL};

/// A store that lists what it likes.
struct Lying {
    store: MemoryStore,
    listed: Vec<String>,
}

impl Store for Lying {
    fn identity(&self) -> String {
        self.store.identity()
    }

    fn create(&self, name: &str, bytes: &[u8]) -> steadfast_device::Result<bool> {
        self.store.create(name, bytes)
    }

    fn read(&self, name: &str, range: Option<std::ops::Range<u64>>) -> steadfast_device::Result<Vec<u8>> {
        self.store.read(name, range)
    }

    fn list(&self, folder: &str) -> steadfast_device::Result<Vec<String>> {
        let mut listed = self.store.list(folder)?;
        listed.extend(self.listed.iter().map(|name| format!("{folder}/{name}")));
        Ok(listed)
    }

    fn delete(&self, names: &[String]) -> steadfast_device::Result<()> {
        self.store.delete(names)
    }
}

/// A list of a hundred thousand objects costs each pass a few requests, and passes go on.
#[test]
fn a_list_that_lies_holds_up_no_pass() {
    let tiles = MemoryStore::new("tiles");
    let (lists, deletes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counts = (Arc::clone(&lists), Arc::clone(&deletes));
    let counting = tiles.handle(move |request| {
        match request.operation {
            Operation::List => _ = counts.0.fetch_add(1, Ordering::Relaxed),
            Operation::Discard => _ = counts.1.fetch_add(1, Ordering::Relaxed),
            _ => {}
        }
        None
    });
    let (medium, device) = made(&SMALL, &(Arc::new(tiles.handle(|_| None)) as Shared));
    drop(device);
    let mut listed: Vec<String> =
        (1..=100_000).map(|id| object_names::segment(SegmentId(id))[4..].to_owned()).collect();
    let strange = ["00000000/1", "notes.txt"].map(str::to_owned);
    listed.extend(strange.clone());
    let mut device = opened(&medium, &(Arc::new(Lying { store: counting, listed }) as Shared), 1).unwrap();
    let mut given = Given::default();
    for pass in 1..4 {
        given.add(&mut device, 10 + pass, 9 * PAYLOAD).unwrap();
        device.pass().unwrap();
        let before = (lists.load(Ordering::Relaxed), deletes.load(Ordering::Relaxed));
        tended(&device);
        let lists = lists.load(Ordering::Relaxed) - before.0;
        let deletes = deletes.load(Ordering::Relaxed) - before.1;
        assert!(lists <= 1 && deletes <= 6, "pass {pass}: {lists} lists, {deletes} deletes");
    }
    assert_eq!(tiles.names().len(), 2);
    given.check(&device);
}
