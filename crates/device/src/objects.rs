//! A store of whole objects: the shape of a bucket, played by a directory.
//!
//! Nothing is ever changed here, only created and deleted, which is all that the weakest object
//! stores agree on:
//!
//! | object             | created                     | deleted |
//! |--------------------|-----------------------------|---|
//! | `seg/ID`           | once, whole                 | when the segment is discarded |
//! | `uberblock/TXG`    | once                        | when 48 newer ones exist |
//! | `label/N`          | once, N counts up           | when 4 newer ones exist |
//! | `capacity/BYTES`   | when the store is made      | never; the greatest counts |
//!
//! ID is 16 hexadecimal digits, the other numbers are 20 decimal digits, so that the order of names
//! is the order of numbers. A put has reached stable storage when it returns, so `flush` has
//! nothing to do. A put whose object exists is a success if the bytes are the same (the answer to
//! an earlier try was lost), else [`Error::Exists`].
//!
//! `object_store` speaks async; a small runtime on the calling thread hides that from everybody
//! above.

use std::fs::File;
use std::path::Path as FilePath;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload};
use steadfast_format::medium::{CONFIG_SIZE, DEVICE_SIZE_MIN, RING_SLOTS, UBERBLOCK_SIZE, slot_count};
use steadfast_format::{SegmentId, Txg};

use crate::{Character, Device, Error, Kind, Operation, Result, SegmentPlace};

/// Labels kept: as many as a disk has copies, so that one botched label is not the end.
const LABELS_KEPT: usize = 4;

/// A directory of whole objects.
#[derive(Debug)]
pub struct ObjectDevice {
    identity: String,
    capacity_bytes: u64,
    store: LocalFileSystem,
    runtime: tokio::runtime::Runtime,
    /// Numbers of the labels and uberblocks that exist, ascending.
    labels: Mutex<Vec<u64>>,
    uberblocks: Mutex<Vec<u64>>,
    /// Held for the lock on the directory, which goes with it.
    claim: Mutex<Option<File>>,
    released: AtomicBool,
}

impl ObjectDevice {
    /// Opens the store in an existing directory. An empty one is made a store of `capacity_bytes`,
    /// which is also how an existing one grows; with `None` it has the capacity it had.
    pub fn open(directory: &FilePath, capacity_bytes: Option<u64>) -> Result<ObjectDevice> {
        let identity = directory.display().to_string();
        let failed = |source: std::io::Error| match source.kind() {
            std::io::ErrorKind::NotFound => Error::NotFound { device: identity.clone() },
            _ => Error::Io { device: identity.clone(), operation: Operation::Open, offset: 0, source },
        };
        if !directory.metadata().map_err(failed)?.is_dir() {
            let (found, wanted) = ("not a directory", "a directory of objects");
            return Err(Error::WrongType { device: identity, found, wanted });
        }
        let lock = File::open(directory).map_err(failed)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(std::fs::TryLockError::WouldBlock) => {
                return Err(Error::Busy { device: identity, holder: None });
            }
            Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
        let store = LocalFileSystem::new_with_prefix(directory)
            .map_err(|error| store_error(&identity, Operation::Open, "the directory", &error))?
            .with_fsync(true);
        let runtime =
            tokio::runtime::Builder::new_current_thread().max_blocking_threads(4).build().map_err(failed)?;
        let mut device = ObjectDevice {
            identity,
            capacity_bytes: 0,
            store,
            runtime,
            labels: Mutex::default(),
            uberblocks: Mutex::default(),
            claim: Mutex::new(Some(lock)),
            released: AtomicBool::new(false),
        };
        let stored = device.list("capacity", 10)?.pop();
        if let Some(wanted) = capacity_bytes.filter(|&wanted| stored.is_none_or(|stored| wanted > stored)) {
            if wanted < DEVICE_SIZE_MIN {
                let device = device.identity;
                return Err(Error::TooSmall { device, size_bytes: wanted, min_bytes: DEVICE_SIZE_MIN });
            }
            device.create(&name("capacity", wanted), &[])?;
            device.capacity_bytes = wanted;
        } else if let Some(stored) = stored {
            device.capacity_bytes = stored;
        } else {
            return Err(Error::Missing { device: device.identity, object: "capacity".to_owned() });
        }
        device.labels = Mutex::new(device.list("label", 10)?);
        device.uberblocks = Mutex::new(device.list("uberblock", 10)?);
        Ok(device)
    }

    fn list(&self, prefix: &str, radix: u32) -> Result<Vec<u64>> {
        let listed = self.runtime.block_on(self.store.list_with_delimiter(Some(&Path::from(prefix))));
        let listed = listed.map_err(|error| store_error(&self.identity, Operation::List, prefix, &error))?;
        // Names that are no numbers are not ours.
        let number = |object: &object_store::ObjectMeta| {
            u64::from_str_radix(object.location.filename().unwrap_or_default(), radix).ok()
        };
        let mut numbers: Vec<u64> = listed.objects.iter().filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn check_held(&self) -> Result<()> {
        if self.released.load(Ordering::Acquire) {
            return Err(Error::Released { device: self.identity.clone() });
        }
        Ok(())
    }

    fn create(&self, object: &str, bytes: &[u8]) -> Result<()> {
        self.check_held()?;
        let path = Path::from(object);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let payload = PutPayload::from(bytes.to_vec());
        match self.runtime.block_on(self.store.put_opts(&path, payload, options)) {
            Ok(_) => Ok(()),
            Err(object_store::Error::AlreadyExists { .. }) => {
                if self.get(object)? == bytes {
                    return Ok(());
                }
                Err(Error::Exists { device: self.identity.clone(), object: object.to_owned() })
            }
            Err(error) => Err(store_error(&self.identity, Operation::Write, object, &error)),
        }
    }

    fn get(&self, object: &str) -> Result<Vec<u8>> {
        let path = Path::from(object);
        let got = self.runtime.block_on(async { self.store.get(&path).await?.bytes().await });
        got.map(Vec::from).map_err(|error| self.read_error(object, &error))
    }

    fn delete(&self, object: &str) -> Result<()> {
        self.check_held()?;
        match self.runtime.block_on(self.store.delete(&Path::from(object))) {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(store_error(&self.identity, Operation::Discard, object, &error)),
        }
    }

    /// Creates object `number` of a kind, and deletes the oldest beyond `keep`.
    fn create_in_ring(
        &self,
        ring: &Mutex<Vec<u64>>,
        prefix: &str,
        number: impl FnOnce(&[u64]) -> u64,
        keep: usize,
        bytes: &[u8],
    ) -> Result<()> {
        let mut numbers = ring.lock().unwrap_or_else(PoisonError::into_inner);
        let number = number(&numbers);
        self.create(&name(prefix, number), bytes)?;
        if let Err(at) = numbers.binary_search(&number) {
            numbers.insert(at, number);
        }
        while numbers.len() > keep {
            self.delete(&name(prefix, numbers[0]))?;
            numbers.remove(0);
        }
        Ok(())
    }

    fn read_error(&self, object: &str, error: &object_store::Error) -> Error {
        match error {
            object_store::Error::NotFound { .. } => {
                Error::Missing { device: self.identity.clone(), object: object.to_owned() }
            }
            _ => store_error(&self.identity, Operation::Read, object, error),
        }
    }

    fn check(&self, operation: Operation, place: SegmentPlace, end: u64) -> Result<()> {
        let slots = slot_count(self.capacity_bytes, place.slot_size);
        if place.slot < slots && end <= u64::from(place.slot_size) {
            return Ok(());
        }
        let (device, size_bytes) = (self.identity.clone(), self.capacity_bytes);
        let offset = steadfast_format::medium::slot_offset(place.slot, place.slot_size);
        Err(Error::Outside { device, operation, offset, length: end, size_bytes })
    }
}

impl Device for ObjectDevice {
    fn character(&self) -> Character {
        Character {
            kind: Kind::Objects,
            size_bytes: self.capacity_bytes,
            appendable: false,
            writable: true,
            identity: self.identity.clone(),
            medium: None,
        }
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        self.check(Operation::Write, place, bytes.len() as u64)?;
        self.create(&segment_name(place.segment), bytes)
    }

    fn append_segment(&self, place: SegmentPlace, _offset: u32, _bytes: &[u8]) -> Result<()> {
        Err(Error::NotAppendable { device: self.identity.clone(), segment: place.segment.0 })
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        let end = u64::from(offset) + out.len() as u64;
        self.check(Operation::Read, place, end)?;
        if out.is_empty() {
            return Ok(());
        }
        let object = segment_name(place.segment);
        let path = Path::from(object.as_str());
        let read = self.runtime.block_on(self.store.get_range(&path, u64::from(offset)..end));
        let bytes = match read {
            Ok(bytes) => bytes,
            // The store's own words for a range past the end differ; the length says it plainly.
            Err(error) => match self.runtime.block_on(self.store.head(&path)) {
                Ok(meta) if meta.size < end => {
                    let (device, length) = (self.identity.clone(), meta.size);
                    return Err(Error::CutShort { device, object, length, needed: end });
                }
                _ => return Err(self.read_error(&object, &error)),
            },
        };
        if bytes.len() != out.len() {
            let (device, length) = (self.identity.clone(), u64::from(offset) + bytes.len() as u64);
            return Err(Error::CutShort { device, object, length, needed: end });
        }
        out.copy_from_slice(&bytes);
        Ok(())
    }

    fn discard_segment(&self, place: SegmentPlace) -> Result<()> {
        self.delete(&segment_name(place.segment))
    }

    fn stored_segments(&self) -> Result<Option<Vec<SegmentId>>> {
        Ok(Some(self.list("seg", 16)?.into_iter().map(SegmentId).collect()))
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() <= CONFIG_SIZE, "a configuration fits in its area");
        if copy != 0 {
            return Ok(());
        }
        let next = |numbers: &[u64]| numbers.last().map_or(1, |newest| newest + 1);
        self.create_in_ring(&self.labels, "label", next, LABELS_KEPT, bytes)
    }

    fn read_label(&self, copy: usize) -> Result<Vec<u8>> {
        let newest = self.labels.lock().unwrap_or_else(PoisonError::into_inner).last().copied();
        match newest {
            Some(newest) if copy == 0 => self.get(&name("label", newest)),
            _ => Ok(Vec::new()),
        }
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        if copy != 0 {
            return Ok(());
        }
        self.create_in_ring(&self.uberblocks, "uberblock", |_| txg.0, RING_SLOTS as usize, bytes)
    }

    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>> {
        if copy != 0 {
            return Ok(Vec::new());
        }
        let numbers = self.uberblocks.lock().unwrap_or_else(PoisonError::into_inner).clone();
        numbers.into_iter().map(|number| self.get(&name("uberblock", number))).collect()
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn release(&self) {
        self.released.store(true, Ordering::Release);
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn name(prefix: &str, number: u64) -> String {
    format!("{prefix}/{number:020}")
}

fn segment_name(segment: SegmentId) -> String {
    format!("seg/{:016x}", segment.0)
}

fn store_error(identity: &str, operation: Operation, object: &str, error: &object_store::Error) -> Error {
    let (device, object, reason) = (identity.to_owned(), object.to_owned(), error.to_string());
    Error::Store { device, operation, object, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    const PLACE: SegmentPlace = SegmentPlace { segment: SegmentId(0x2a), slot: 0, slot_size: 1 << 20 };

    struct Scratch(PathBuf);

    impl Scratch {
        fn new() -> Scratch {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("steadfast-objects-{}-{count}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Scratch(path)
        }

        fn open(&self) -> ObjectDevice {
            ObjectDevice::open(&self.0, Some(64 << 20)).unwrap()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn an_object_is_created_once() {
        let scratch = Scratch::new();
        let device = scratch.open();
        device.put_segment(PLACE, b"whole segment").unwrap();
        device.put_segment(PLACE, b"whole segment").unwrap();
        assert!(matches!(device.put_segment(PLACE, b"other"), Err(Error::Exists { .. })));
        assert!(matches!(device.append_segment(PLACE, 5, b"x"), Err(Error::NotAppendable { .. })));
        let mut out = [0; 7];
        device.read_segment(PLACE, 6, &mut out).unwrap();
        assert_eq!(&out, b"segment");
        assert_eq!(device.stored_segments().unwrap(), Some(vec![PLACE.segment]));
        let error = device.read_segment(PLACE, 6, &mut [0; 8]).unwrap_err();
        assert!(matches!(error, Error::CutShort { length: 13, needed: 14, .. }), "{error}");
        let error = device.read_segment(PLACE, 14, &mut [0; 8]).unwrap_err();
        assert!(matches!(error, Error::CutShort { length: 13, needed: 22, .. }), "{error}");

        device.discard_segment(PLACE).unwrap();
        device.discard_segment(PLACE).unwrap();
        assert!(matches!(device.read_segment(PLACE, 0, &mut out), Err(Error::Missing { .. })));
    }

    #[test]
    fn labels_and_uberblocks_are_new_objects_and_old_ones_go() {
        let scratch = Scratch::new();
        let device = scratch.open();
        assert_eq!(device.read_label(0).unwrap(), b"");
        assert_eq!(device.read_uberblocks(0).unwrap(), Vec::<Vec<u8>>::new());
        for txg in 1..=50_u8 {
            for copy in 0..4 {
                device.write_label(copy, &[txg]).unwrap();
                device.write_uberblock(copy, Txg(txg.into()), &[txg; UBERBLOCK_SIZE]).unwrap();
            }
        }
        drop(device);
        let device = ObjectDevice::open(&scratch.0, None).unwrap();
        assert_eq!(device.character().size_bytes, 64 << 20);
        assert_eq!(device.read_label(0).unwrap(), [50]);
        assert_eq!(device.read_label(1).unwrap(), b"");
        let ring = device.read_uberblocks(0).unwrap();
        assert_eq!((ring.len(), ring[0][0], ring[47][0]), (48, 3, 50));
        assert_eq!(std::fs::read_dir(scratch.0.join("label")).unwrap().count(), LABELS_KEPT);
        let error = device.write_uberblock(0, Txg(50), &[0; UBERBLOCK_SIZE]).unwrap_err();
        assert!(matches!(error, Error::Exists { .. }), "a committed root cannot be replaced: {error}");
    }

    #[test]
    fn a_store_is_used_by_one_and_only_where_there_is_one() {
        let scratch = Scratch::new();
        assert!(matches!(ObjectDevice::open(&scratch.0, None), Err(Error::Missing { .. })));
        assert!(matches!(ObjectDevice::open(&scratch.0, Some(1000)), Err(Error::TooSmall { .. })));
        let device = scratch.open();
        assert!(matches!(ObjectDevice::open(&scratch.0, None), Err(Error::Busy { .. })));
        let outside = SegmentPlace { slot: 1000, ..PLACE };
        assert!(matches!(device.put_segment(outside, b"x"), Err(Error::Outside { .. })));
        drop(device);
        let larger = ObjectDevice::open(&scratch.0, Some(128 << 20)).unwrap();
        assert_eq!(larger.character().size_bytes, 128 << 20);
        let missing = scratch.0.join("nowhere");
        assert!(matches!(ObjectDevice::open(&missing, None), Err(Error::NotFound { .. })));
    }

    #[test]
    fn many_threads_use_one_store() {
        let scratch = Scratch::new();
        let device = scratch.open();
        std::thread::scope(|scope| {
            for thread in 0..4_u32 {
                let device = &device;
                scope.spawn(move || {
                    for n in 0..8 {
                        let id = u64::from(thread * 100 + n + 1);
                        let place = SegmentPlace { segment: SegmentId(id), slot: n, slot_size: 1 << 20 };
                        device.put_segment(place, &id.to_le_bytes()).unwrap();
                        let mut out = [0; 8];
                        device.read_segment(place, 0, &mut out).unwrap();
                        assert_eq!(out, id.to_le_bytes());
                    }
                });
            }
        });
        assert_eq!(device.stored_segments().unwrap().unwrap().len(), 32);
    }
}
