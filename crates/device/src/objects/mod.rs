//! A device of whole objects: what a bucket can do, and nothing else.
//!
//! Nothing is ever changed here, only created and deleted, which is all that the weakest object
//! stores agree on ([`steadfast_format::object_names`] has the names):
//!
//! | object                | created                        | deleted |
//! |-----------------------|--------------------------------|---|
//! | `seg/EPOCH/ID`        | once, whole                    | when no root needs it |
//! | `pool/root/EPOCH-TXG` | once                           | when 48 newer ones exist |
//! | `pool/label/EPOCH-N`  | once, N counts up              | when 4 newer ones exist |
//! | `pool/epoch/N`        | once, by the writer of epoch N | never |
//! | `pool/pruned/N`       | before the writer of epoch N deletes a root | never |
//! | `pool/capacity/BYTES` | when the store is made         | never; the greatest counts |
//!
//! A put has reached stable storage when it returns, so `flush` has nothing to do. A put whose
//! object exists is a success if the bytes are the same (the answer to an earlier try was lost),
//! else [`Error::Exists`].
//!
//! [objects.1] A list is a hint: it may lack what was created of late, and name what is gone. No
//!      object is taken to be there, or to be missing, because a list says so.
//! [objects.2] An epoch is claimed by creating an object that nobody else creates with the same
//!      bytes: of two that claim one number, one does.
//! [objects.3] A writer deletes roots only when a root that it wrote later than `pool/pruned/N`, N
//!      being its epoch, counts: a host that claims an epoch afterwards finds that object by its
//!      name, and so hears of roots that are gone. One that claimed before is seen by the writer
//!      when it looks behind that root, and then it deletes nothing more.

mod below;
mod memory;
mod store;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use steadfast_format::medium::{CONFIG_SIZE, DEVICE_SIZE_MIN, UBERBLOCK_SIZE};
use steadfast_format::object_names::{
    self, CAPACITIES, EPOCHS, LABELS, OfEpoch, POOL, PRUNED, ROOTS, SEGMENTS,
};
use steadfast_format::{SegmentId, Txg};

use crate::{Buffer, Character, Device, Error, Kind, Operation, PartRead, Result, SegmentPlace};

pub use below::Below;
pub use memory::{MemoryStore, Request, StoreFault};
pub use store::{ObjectRange, Store};

/// Labels kept: as many as a disk has copies, so that one botched label is not the end.
const LABELS_KEPT: usize = 4;
/// Roots kept: a list may be so many commits late, and the newest root is found all the same.
const ROOTS_KEPT: usize = 48;
/// Roots beyond those that are kept, before the oldest are deleted, all at once.
const ROOTS_SPARE: usize = 16;

/// Abilities that only a device of whole objects has.
pub trait Objects: Send + Sync {
    /// Segments that the store lists. A hint [objects.1].
    fn stored_segments(&self) -> Result<Vec<SegmentId>>;

    /// Deletes segments; those that are gone already count as deleted.
    fn delete_segments(&self, segments: &[SegmentId]) -> Result<()>;

    /// Claims an epoch. False if it was claimed before.
    fn claim_epoch(&self, epoch: u64) -> Result<bool>;

    /// False if the store overwrites what it should refuse to create: then a claim fences nobody.
    /// Asked with the epoch that this handle has claimed last.
    fn creates_once(&self) -> Result<bool>;

    /// True if somebody has claimed this epoch. No hint: the object is looked for by its name.
    fn is_claimed(&self, epoch: u64) -> Result<bool>;

    /// True if the root of a txg, written in an epoch, is there. No hint.
    fn has_root(&self, epoch: u64, txg: Txg) -> Result<bool>;

    /// True if the owner of an epoch may have deleted roots, its own first ones among them
    /// [objects.3]. No hint.
    fn is_pruned(&self, epoch: u64) -> Result<bool>;

    /// Epochs and txgs of the roots that are known, from lists and from looks by name: the newest
    /// first, in the order of [`Device::read_uberblocks`]. A hint [objects.1]. Devices whose roots
    /// are in rings know none.
    fn known_roots(&self) -> Vec<(u64, Txg)> {
        Vec::new()
    }

    /// The greatest epoch that the store lists as claimed; 0 if none. A hint [objects.1].
    fn newest_epoch(&self) -> Result<u64>;

    /// Marks of the owner of the newest epoch behind this one, once it has left a label. A hint
    /// [objects.1]: for messages, and no reason to stop.
    fn later_owner(&self, epoch: u64) -> Result<Option<LaterOwner>>;
}

/// Marks of the owner of a later epoch.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LaterOwner {
    /// Its epoch.
    pub epoch: u64,
    /// Its newest label.
    pub label: Vec<u8>,
    /// Its oldest root that is listed.
    pub root: Option<Vec<u8>>,
}

/// A root with its number.
type Looked = (OfEpoch, Vec<u8>);

/// A store of whole objects as a device.
pub struct ObjectDevice {
    store: Arc<dyn Store>,
    capacity_bytes: u64,
    /// The store does not say so yet: the first that is written is its capacity.
    is_new: AtomicBool,
    /// Tells this handle's claims from those of others.
    writer: [u8; 16],
    /// The greatest epoch that this handle has claimed: its labels and roots are of it.
    epoch: AtomicU64,
    /// Labels that exist, as far as is known, ascending.
    labels: Mutex<Vec<OfEpoch>>,
    /// The same of the roots.
    roots: Mutex<Vec<OfEpoch>>,
    /// How many of them are kept, and how many more before the oldest are deleted.
    roots_kept: (usize, usize),
    /// The epoch of which the store was told that its owner deletes roots; 0 if none.
    pruned: AtomicU64,
    /// The greatest epoch that was listed as claimed when this was opened.
    listed_epoch: u64,
    /// The newest root as it was read together with the label, for the next one who asks.
    looked: Mutex<Option<Looked>>,
    released: AtomicBool,
}

impl ObjectDevice {
    /// Opens a store. An empty one becomes a store of `capacity_bytes`, which is also how an
    /// existing one grows; with `None` it has the capacity it had. `writer` is random. Opening
    /// changes nothing: the first claim or label does.
    pub fn open(
        store: Arc<dyn Store>,
        capacity_bytes: Option<u64>,
        writer: [u8; 16],
    ) -> Result<ObjectDevice> {
        let listed = store.list(POOL)?;
        ObjectDevice::open_listed(store, &listed, capacity_bytes, writer)
    }

    /// The same for a caller that has listed the folder [`POOL`] of the store already.
    ///
    /// # Errors
    /// No capacity is known of it, or the wanted one is too small.
    pub fn open_listed(
        store: Arc<dyn Store>,
        listed: &[String],
        capacity_bytes: Option<u64>,
        writer: [u8; 16],
    ) -> Result<ObjectDevice> {
        let mut device = ObjectDevice {
            store,
            capacity_bytes: 0,
            is_new: AtomicBool::new(false),
            writer,
            epoch: AtomicU64::new(0),
            labels: Mutex::default(),
            roots: Mutex::default(),
            roots_kept: (ROOTS_KEPT, ROOTS_SPARE),
            pruned: AtomicU64::new(0),
            listed_epoch: numbers(EPOCHS, listed).pop().unwrap_or(0),
            looked: Mutex::default(),
            released: AtomicBool::new(false),
        };
        let stored = numbers(CAPACITIES, listed).pop();
        if let Some(wanted) = capacity_bytes.filter(|&wanted| stored.is_none_or(|stored| wanted > stored)) {
            if wanted < DEVICE_SIZE_MIN {
                let device = device.store.identity();
                return Err(Error::TooSmall { device, size_bytes: wanted, min_bytes: DEVICE_SIZE_MIN });
            }
            (device.capacity_bytes, device.is_new) = (wanted, AtomicBool::new(true));
        } else if let Some(stored) = stored {
            device.capacity_bytes = stored;
        } else {
            let device = device.store.identity();
            return Err(Error::Missing { device, object: CAPACITIES.to_owned() });
        }
        device.labels = Mutex::new(of_epochs(LABELS, listed));
        device.roots = Mutex::new(of_epochs(ROOTS, listed));
        Ok(device)
    }

    /// An empty store in memory as a device, for tests.
    #[must_use]
    pub fn in_memory(identity: &str, capacity_bytes: u64) -> ObjectDevice {
        let store = Arc::new(MemoryStore::new(identity));
        ObjectDevice::open(store, Some(capacity_bytes), [0; 16]).expect("memory takes it")
    }

    /// The same device with another number of roots kept, and of those beyond, for simulations in
    /// which hosts live briefly.
    #[must_use]
    pub fn keeping_roots(mut self, kept: usize, spare: usize) -> ObjectDevice {
        assert!(kept > 1, "the root before the last one is needed [dead_objects.1]");
        self.roots_kept = (kept, spare);
        self
    }

    /// Deletes all but the newest `keep` of a folder.
    fn keep_newest(&self, folder: &str, numbers: &mut Vec<OfEpoch>, keep: usize) -> Result<()> {
        let spare = numbers.len().saturating_sub(keep);
        if spare == 0 {
            return Ok(());
        }
        let names: Vec<String> =
            numbers[..spare].iter().map(|&number| object_names::of_epoch(folder, number)).collect();
        self.store.delete(&names)?;
        numbers.drain(..spare);
        Ok(())
    }

    /// Reads some objects and the newest root, and adds roots that the list lacked [objects.1]: the
    /// one behind the newest has the next number, in its epoch or in one that was claimed since.
    /// Or it has the same number in a later epoch, if a writer that was fenced came later with its
    /// last root. All of them are asked for together: a round trip, if the list was right. Gives
    /// the answers for `objects` and the newest root.
    fn look_with(&self, objects: &[String]) -> (Vec<Result<Vec<u8>>>, Result<Option<Looked>>) {
        let Some(mut newest) = lock(&self.roots).last().copied() else {
            return (self.store.read_each(objects), Ok(None));
        };
        let mut names = objects.to_vec();
        names.push(object_names::of_epoch(ROOTS, newest));
        let mut claimed = self.listed_epoch.max(newest.epoch);
        let (mut answers, mut root) = (Vec::new(), None);
        loop {
            let asked = names.len();
            let later = later_roots(newest, claimed);
            names.push(object_names::numbered(EPOCHS, claimed + 1));
            names.extend(later.iter().map(|&root| object_names::of_epoch(ROOTS, root)));
            let mut told = self.store.read_each(&names);
            names.clear();
            let mut looked = told.split_off(asked).into_iter();
            if let Some(first) = (asked > 0).then(|| told.pop()).flatten() {
                (answers, root) = (told, Some(first));
            }
            let next = looked.next().expect("one answer for each name");
            let found = later.into_iter().zip(looked).find(|(_, answer)| !is_missing(answer));
            match (next, found) {
                (Err(Error::Missing { .. }), None) => break,
                (Err(Error::Missing { .. }), Some((later, answer))) => {
                    if let Err(error) = answer {
                        return (answers, Err(error));
                    }
                    lock(&self.roots).push(later);
                    (newest, root) = (later, Some(answer));
                }
                (Ok(_), _) => claimed += 1,
                (Err(error), _) => return (answers, Err(error)),
            }
        }
        let root = match root.expect("it was asked for") {
            Ok(bytes) => Ok(Some((newest, bytes))),
            // It went meanwhile.
            Err(Error::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        (answers, root)
    }

    fn check_held(&self) -> Result<()> {
        if self.released.load(Ordering::Acquire) {
            return Err(Error::Released { device: self.store.identity() });
        }
        Ok(())
    }

    /// Before the first write to a store that is new, or larger than before.
    fn begin(&self) -> Result<()> {
        if self.is_new.load(Ordering::Acquire) {
            self.create(&object_names::numbered(CAPACITIES, self.capacity_bytes), &[])?;
            self.is_new.store(false, Ordering::Release);
        }
        Ok(())
    }

    /// Creates an object, or finds it with the same bytes. False if it has others.
    fn create_or_find(&self, object: &str, bytes: &[u8]) -> Result<bool> {
        self.create_or_find_as(object, bytes, |object| self.store.create(object, bytes))
    }

    /// The same, created by `create`.
    fn create_or_find_as(
        &self,
        object: &str,
        bytes: &[u8],
        create: impl FnOnce(&str) -> Result<bool>,
    ) -> Result<bool> {
        self.check_held()?;
        Ok(create(object)? || self.store.read(object, None)? == bytes)
    }

    fn is_there(&self, object: &str) -> Result<bool> {
        match self.store.read(object, None) {
            Ok(_) => Ok(true),
            Err(Error::Missing { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn create(&self, object: &str, bytes: &[u8]) -> Result<()> {
        self.create_as(object, bytes, |object| self.store.create(object, bytes))
    }

    fn create_as(&self, object: &str, bytes: &[u8], create: impl FnOnce(&str) -> Result<bool>) -> Result<()> {
        if self.create_or_find_as(object, bytes, create)? {
            return Ok(());
        }
        Err(Error::Exists { device: self.store.identity(), object: object.to_owned() })
    }

    fn check(&self, operation: Operation, place: SegmentPlace, end: u64) -> Result<()> {
        // The slot is a number that tells segments apart, and no place.
        if end <= u64::from(place.slot_size) {
            return Ok(());
        }
        let (device, size_bytes) = (self.store.identity(), place.slot_size.into());
        Err(Error::Outside { device, operation, offset: 0, length: end, size_bytes })
    }
}

impl Objects for ObjectDevice {
    fn stored_segments(&self) -> Result<Vec<SegmentId>> {
        let listed = self.store.list(SEGMENTS)?;
        Ok(listed.iter().filter_map(|name| object_names::parse_segment(name)).collect())
    }

    fn delete_segments(&self, segments: &[SegmentId]) -> Result<()> {
        self.check_held()?;
        let names: Vec<String> = segments.iter().map(|&id| object_names::segment(id)).collect();
        self.store.delete(&names)
    }

    fn claim_epoch(&self, epoch: u64) -> Result<bool> {
        self.begin()?;
        let claimed = self.create_or_find(&object_names::numbered(EPOCHS, epoch), &self.writer)?;
        if claimed {
            self.epoch.fetch_max(epoch, Ordering::AcqRel);
        }
        Ok(claimed)
    }

    fn creates_once(&self) -> Result<bool> {
        let claim = object_names::numbered(EPOCHS, self.epoch.load(Ordering::Acquire));
        self.store.refuses(&claim)
    }

    fn is_claimed(&self, epoch: u64) -> Result<bool> {
        self.is_there(&object_names::numbered(EPOCHS, epoch))
    }

    fn has_root(&self, epoch: u64, txg: Txg) -> Result<bool> {
        self.is_there(&object_names::of_epoch(ROOTS, OfEpoch { epoch, number: txg.0 }))
    }

    fn is_pruned(&self, epoch: u64) -> Result<bool> {
        self.is_there(&object_names::numbered(PRUNED, epoch))
    }

    fn known_roots(&self) -> Vec<(u64, Txg)> {
        lock(&self.roots).iter().rev().map(|root| (root.epoch, Txg(root.number))).collect()
    }

    fn newest_epoch(&self) -> Result<u64> {
        Ok(numbers(EPOCHS, &self.store.list(EPOCHS)?).pop().unwrap_or(0))
    }

    fn later_owner(&self, epoch: u64) -> Result<Option<LaterOwner>> {
        let listed = self.store.list(POOL)?;
        let label = of_epochs(LABELS, &listed).pop().filter(|label| label.epoch > epoch);
        let Some(label) = label else { return Ok(None) };
        let root = of_epochs(ROOTS, &listed).into_iter().find(|root| root.epoch == label.epoch);
        let mut names = vec![object_names::of_epoch(LABELS, label)];
        names.extend(root.map(|root| object_names::of_epoch(ROOTS, root)));
        let mut answers = self.store.read_each(&names).into_iter();
        let label_bytes = answers.next().expect("one answer for each name")?;
        let root = answers.next().transpose()?;
        Ok(Some(LaterOwner { epoch: label.epoch, label: label_bytes, root }))
    }
}

impl Device for ObjectDevice {
    fn character(&self) -> Character {
        Character {
            kind: Kind::Objects,
            size_bytes: self.capacity_bytes,
            appendable: false,
            writable: true,
            identity: self.store.identity(),
            medium: None,
        }
    }

    fn put_segment(&self, place: SegmentPlace, bytes: &[u8]) -> Result<()> {
        self.check(Operation::Write, place, bytes.len() as u64)?;
        self.create(&object_names::segment(place.segment), bytes)
    }

    fn put_shared(&self, place: SegmentPlace, bytes: &Arc<Buffer>) -> Result<()> {
        self.check(Operation::Write, place, bytes.len() as u64)?;
        self.create_as(&object_names::segment(place.segment), bytes, |name| {
            self.store.create_shared(name, bytes)
        })
    }

    fn append_segment(&self, place: SegmentPlace, _offset: u32, _bytes: &[u8]) -> Result<()> {
        Err(Error::NotAppendable { device: self.store.identity(), segment: place.segment.0 })
    }

    fn read_segment(&self, place: SegmentPlace, offset: u32, out: &mut [u8]) -> Result<()> {
        self.read_segment_parts(place, offset, &mut [out])
    }

    fn read_segment_parts(&self, place: SegmentPlace, offset: u32, parts: &mut [&mut [u8]]) -> Result<()> {
        let outs = parts.iter_mut().map(|part| &mut **part).collect();
        let mut reads = [PartRead::new(place, offset, outs)];
        self.read_many(&mut reads);
        let [read] = reads;
        read.outcome
    }

    /// One request for each part.
    fn read_many(&self, reads: &mut [PartRead<'_>]) {
        let names: Vec<String> = reads.iter().map(|read| object_names::segment(read.place.segment)).collect();
        let mut ranges = Vec::with_capacity(reads.len());
        let mut asked = Vec::with_capacity(reads.len());
        for ((at, read), object) in reads.iter_mut().enumerate().zip(&names) {
            let end = u64::from(read.offset) + read.bytes() as u64;
            read.outcome = self.check(Operation::Read, read.place, end);
            if read.outcome.is_err() || read.bytes() == 0 {
                continue;
            }
            let outs = read.outs.iter_mut().map(|out| &mut **out).collect();
            ranges.push(ObjectRange { object, offset: u64::from(read.offset), outs, outcome: Ok(()) });
            asked.push(at);
        }
        self.store.read_ranges(&mut ranges);
        let outcomes: Vec<Result<()>> = ranges.into_iter().map(|range| range.outcome).collect();
        for (at, outcome) in asked.into_iter().zip(outcomes) {
            reads[at].outcome = outcome;
        }
    }

    fn discard_segment(&self, place: SegmentPlace) -> Result<()> {
        self.delete_segments(&[place.segment])
    }

    fn objects(&self) -> Option<&dyn Objects> {
        Some(self)
    }

    fn write_label(&self, copy: usize, bytes: &[u8]) -> Result<()> {
        assert!(bytes.len() <= CONFIG_SIZE, "a configuration fits in its area");
        if copy != 0 {
            return Ok(());
        }
        self.begin()?;
        let mut labels = lock(&self.labels);
        let (own, newest) = (self.epoch.load(Ordering::Acquire), labels.last().copied());
        // A device is erased by a hand that has claimed nothing, and its label counts all the same.
        let is_erased = steadfast_format::is_zero(bytes);
        let epoch = if is_erased { newest.map_or(own, |label| label.epoch.max(own)) } else { own };
        let mut next = labels.iter().filter(|label| label.epoch == epoch).map(|label| label.number).max();
        let label = loop {
            let label = OfEpoch { epoch, number: next.map_or(1, |newest| newest + 1) };
            // The list may have lacked some [objects.1].
            if self.create_or_find(&object_names::of_epoch(LABELS, label), bytes)? {
                break label;
            }
            next = Some(label.number);
        };
        if let Err(at) = labels.binary_search(&label) {
            labels.insert(at, label);
        }
        self.keep_newest(LABELS, &mut labels, if is_erased { 1 } else { LABELS_KEPT })
    }

    /// Copy 0 is the newest label, copy 1 the one before, and so on.
    fn read_label(&self, copy: usize) -> Result<Vec<u8>> {
        let label = lock(&self.labels).iter().rev().nth(copy).copied();
        let Some(newest) = label else { return Ok(Vec::new()) };
        if copy > 0 {
            return self.store.read(&object_names::of_epoch(LABELS, newest), None);
        }
        // A reader of labels looks for roots next, as a rule. One that comes late with it is not
        // deceived: an import asks by name for what came since ([`Objects::has_root`]).
        let (mut answers, root) = self.look_with(&[object_names::of_epoch(LABELS, newest)]);
        *lock(&self.looked) = root.ok().flatten();
        answers.pop().expect("one answer for each name")
    }

    fn write_uberblock(&self, copy: usize, txg: Txg, bytes: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        if copy != 0 {
            return Ok(());
        }
        let root = OfEpoch { epoch: self.epoch.load(Ordering::Acquire), number: txg.0 };
        self.create(&object_names::of_epoch(ROOTS, root), bytes)?;
        let mut roots = lock(&self.roots);
        if let Err(at) = roots.binary_search(&root) {
            roots.insert(at, root);
        }
        let (kept, spare) = self.roots_kept;
        if roots.len() > kept && self.pruned.load(Ordering::Acquire) != root.epoch {
            // [objects.3]
            self.create(&object_names::numbered(PRUNED, root.epoch), &[])?;
            self.pruned.store(root.epoch, Ordering::Release);
            return Ok(());
        }
        if roots.len() <= kept + spare {
            return Ok(());
        }
        self.keep_newest(ROOTS, &mut roots, kept)
    }

    /// Ring 0 holds the newest root, ring 1 the one before, and so on: a reader for whom the newest
    /// is good reads no other.
    fn read_uberblocks(&self, copy: usize) -> Result<Vec<Vec<u8>>> {
        if copy == 0 {
            let newest = lock(&self.roots).last().copied();
            let looked = lock(&self.looked).take().filter(|(root, _)| Some(*root) == newest);
            let root = looked.map_or_else(|| self.look_with(&[]).1, |looked| Ok(Some(looked)))?;
            return Ok(root.into_iter().map(|(_, bytes)| bytes).collect());
        }
        let root = lock(&self.roots).iter().rev().nth(copy).copied();
        let Some(root) = root else { return Ok(Vec::new()) };
        match self.store.read(&object_names::of_epoch(ROOTS, root), None) {
            Err(Error::Missing { .. }) => Ok(Vec::new()),
            read => Ok(vec![read?]),
        }
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn release(&self) {
        self.released.store(true, Ordering::Release);
        self.store.release();
    }
}

/// Names that a root which is newer than this one may have, the newest first.
fn later_roots(newest: OfEpoch, claimed: u64) -> Vec<OfEpoch> {
    let next = newest.number.saturating_add(1);
    let since = (newest.epoch + 1..=claimed).rev();
    let since = since.flat_map(|epoch| [next, newest.number].map(|number| OfEpoch { epoch, number }));
    since.chain([OfEpoch { epoch: newest.epoch, number: next }]).collect()
}

fn is_missing(answer: &Result<Vec<u8>>) -> bool {
    matches!(answer, Err(Error::Missing { .. }))
}

/// Numbers of the objects in a folder, ascending. Names that are none are not ours.
fn numbers(folder: &str, listed: &[String]) -> Vec<u64> {
    let mut numbers: Vec<u64> =
        listed.iter().filter_map(|name| object_names::parse_numbered(folder, name)).collect();
    numbers.sort_unstable();
    numbers
}

/// Labels or roots, ascending.
fn of_epochs(folder: &str, listed: &[String]) -> Vec<OfEpoch> {
    let mut found: Vec<OfEpoch> =
        listed.iter().filter_map(|name| object_names::parse_of_epoch(folder, name)).collect();
    found.sort_unstable();
    found
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
