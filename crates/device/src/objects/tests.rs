use super::*;

const PLACE: SegmentPlace = SegmentPlace { segment: SegmentId(0x2a), slot: 0, slot_size: 1 << 20 };

fn open(store: MemoryStore, writer: u8) -> ObjectDevice {
    ObjectDevice::open(Arc::new(store), Some(64 << 20), [writer; 16]).unwrap()
}

fn quiet(store: &MemoryStore) -> MemoryStore {
    store.handle(|_| None)
}

#[test]
fn an_object_is_created_once() {
    let device = ObjectDevice::in_memory("objects", 64 << 20);
    device.put_segment(PLACE, b"whole segment").unwrap();
    device.put_segment(PLACE, b"whole segment").unwrap();
    assert!(matches!(device.put_segment(PLACE, b"other"), Err(Error::Exists { .. })));
    assert!(matches!(device.append_segment(PLACE, 5, b"x"), Err(Error::NotAppendable { .. })));
    let mut out = [0; 7];
    device.read_segment(PLACE, 6, &mut out).unwrap();
    assert_eq!(&out, b"segment");
    assert_eq!(device.stored_segments().unwrap(), [PLACE.segment]);
    let error = device.read_segment(PLACE, 6, &mut [0; 8]).unwrap_err();
    assert!(matches!(error, Error::CutShort { length: 13, needed: 14, .. }), "{error}");
    let error = device.read_segment(PLACE, 14, &mut [0; 8]).unwrap_err();
    assert!(matches!(error, Error::CutShort { length: 13, needed: 22, .. }), "{error}");

    device.discard_segment(PLACE).unwrap();
    device.discard_segment(PLACE).unwrap();
    assert!(matches!(device.read_segment(PLACE, 0, &mut out), Err(Error::Missing { .. })));
}

/// First bytes of the roots in all rings.
fn roots(device: &ObjectDevice) -> Vec<u8> {
    let rings = (0..4).flat_map(|copy| device.read_uberblocks(copy).unwrap());
    rings.map(|root| root[0]).collect()
}

#[test]
fn labels_and_roots_are_new_objects_and_old_ones_go() {
    let store = MemoryStore::new("objects");
    let device = open(quiet(&store), 1);
    assert_eq!(device.read_label(0).unwrap(), b"");
    assert_eq!(device.read_uberblocks(0).unwrap(), Vec::<Vec<u8>>::new());
    assert!(device.claim_epoch(1).unwrap());
    for txg in 1..=130_u8 {
        for copy in 0..4 {
            device.write_label(copy, &[txg]).unwrap();
            device.write_uberblock(copy, Txg(txg.into()), &[txg; UBERBLOCK_SIZE]).unwrap();
        }
    }
    drop(device);
    let device = ObjectDevice::open(Arc::new(quiet(&store)), None, [1; 16]).unwrap();
    assert_eq!(device.character().size_bytes, 64 << 20);
    assert_eq!([0, 1, 2, 3].map(|copy| device.read_label(copy).unwrap()), [[130], [129], [128], [127]]);
    assert_eq!(device.read_label(4).unwrap(), b"");
    assert_eq!(roots(&device), [130, 129, 128, 127], "newest first");
    let count = |folder: &str| store.names().iter().filter(|name| name.starts_with(folder)).count();
    assert_eq!((count(LABELS), count(ROOTS)), (LABELS_KEPT, 62), "old roots go together");
    device.claim_epoch(1).unwrap();
    let error = device.write_uberblock(0, Txg(130), &[0; UBERBLOCK_SIZE]).unwrap_err();
    assert!(matches!(error, Error::Exists { .. }), "a committed root cannot be replaced: {error}");
}

/// The label of a host that lost the pool never counts, however late it comes, and that of an
/// operator who erases the device does.
#[test]
fn the_newest_label_is_that_of_the_newest_epoch() {
    let store = MemoryStore::new("objects");
    let (first, second) = (open(quiet(&store), 1), open(quiet(&store), 2));
    assert!(first.claim_epoch(1).unwrap() && second.claim_epoch(2).unwrap());
    second.write_label(0, b"second").unwrap();
    (0..9).for_each(|_| first.write_label(0, b"first").unwrap());
    let newest = || ObjectDevice::open(Arc::new(quiet(&store)), None, [3; 16]).unwrap();
    assert_eq!(newest().read_label(0).unwrap(), b"second");
    newest().write_label(0, &[0; 512]).unwrap();
    assert_eq!(newest().read_label(0).unwrap(), [0; 512]);
}

#[test]
fn an_epoch_is_claimed_once_whoever_asks_and_whatever_is_lost() {
    let store = MemoryStore::new("objects");
    let (first, second) = (open(quiet(&store), 1), open(quiet(&store), 2));
    assert_eq!(first.newest_epoch().unwrap(), 0);
    assert!(!first.is_claimed(1).unwrap());
    assert!(first.claim_epoch(1).unwrap() && first.claim_epoch(1).unwrap(), "its own claim stands");
    assert!(!second.claim_epoch(1).unwrap());
    assert!(second.is_claimed(1).unwrap());
    // The list is late, and nobody is misled.
    store.settle();
    assert!(second.claim_epoch(2).unwrap());
    assert_eq!(first.newest_epoch().unwrap(), 1);
    assert!(!first.claim_epoch(2).unwrap() && first.is_claimed(2).unwrap());
    // The answer is lost, and the claim is found to be one's own.
    let lost = std::sync::atomic::AtomicBool::new(true);
    let third = open(store.handle(|_| None), 3);
    drop(third);
    let hook = move |request: &Request| {
        let strikes = request.name.starts_with(EPOCHS) && request.operation == Operation::Write;
        (strikes && lost.swap(false, Ordering::Relaxed)).then_some(StoreFault::AnswerLost)
    };
    let third = open(store.handle(hook), 3);
    assert!(third.claim_epoch(3).is_err());
    assert!(third.claim_epoch(3).unwrap());
}

#[test]
fn roots_that_the_list_lacks_are_found_by_their_names() {
    let store = MemoryStore::new("objects");
    let (first, second) = (open(quiet(&store), 1), open(quiet(&store), 2));
    assert!(first.claim_epoch(1).unwrap());
    first.write_uberblock(0, Txg(4), &[4; UBERBLOCK_SIZE]).unwrap();
    store.settle();
    first.write_uberblock(0, Txg(5), &[5; UBERBLOCK_SIZE]).unwrap();
    assert!(second.claim_epoch(2).unwrap());
    second.write_uberblock(0, Txg(6), &[6; UBERBLOCK_SIZE]).unwrap();
    second.write_uberblock(0, Txg(7), &[7; UBERBLOCK_SIZE]).unwrap();
    assert_eq!(roots(&open(quiet(&store), 3)), [7, 6, 5, 4]);
}

#[test]
fn a_store_is_made_by_its_first_write() {
    let store = MemoryStore::new("objects");
    let of = |capacity_bytes| ObjectDevice::open(Arc::new(quiet(&store)), capacity_bytes, [1; 16]);
    assert!(matches!(of(None), Err(Error::Missing { .. })));
    assert!(matches!(of(Some(1000)), Err(Error::TooSmall { .. })));
    let device = of(Some(64 << 20)).unwrap();
    assert_eq!(store.names(), Vec::<String>::new(), "opening changes nothing");
    assert!(device.claim_epoch(1).unwrap());
    let long = vec![0; PLACE.slot_size as usize + 1];
    assert!(matches!(device.put_segment(PLACE, &long), Err(Error::Outside { .. })));
    let numbered = SegmentPlace { slot: u32::MAX, ..PLACE };
    device.put_segment(numbered, b"x").expect("the slot is a number, and no place");
    assert_eq!(of(None).unwrap().character().size_bytes, 64 << 20);
    let larger = of(Some(128 << 20)).unwrap();
    assert_eq!(larger.character().size_bytes, 128 << 20);
    larger.write_label(0, b"label").unwrap();
    assert_eq!(of(None).unwrap().character().size_bytes, 128 << 20);
}

#[test]
fn parts_of_a_segment_come_with_one_request_and_many_reads_have_each_their_outcome() {
    let store = MemoryStore::new("objects");
    let asked = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&asked);
    let hook = move |request: &Request| {
        count.fetch_add(u64::from(request.operation == Operation::Read), Ordering::Relaxed);
        None
    };
    let device = open(store.handle(hook), 1);
    device.put_segment(PLACE, b"whole segment").unwrap();
    let (mut first, mut second) = ([0; 5], [0; 8]);
    device.read_segment_parts(PLACE, 0, &mut [&mut first, &mut second]).unwrap();
    assert_eq!((&first[..], &second[..]), (&b"whole"[..], &b" segment"[..]));
    assert_eq!(asked.load(Ordering::Relaxed), 1);

    let (mut out, mut beyond, mut none) = ([0; 7], [0; 8], []);
    let missing = SegmentPlace { segment: SegmentId(0x2b), ..PLACE };
    let mut absent = [0; 1];
    let mut reads = [
        PartRead::new(PLACE, 6, vec![&mut beyond]),
        PartRead::new(PLACE, 0, vec![&mut first, &mut none, &mut second]),
        PartRead::new(missing, 0, vec![&mut absent]),
        PartRead::new(PLACE, 6, vec![&mut out]),
        PartRead::new(PLACE, 3, vec![]),
    ];
    device.read_many(&mut reads);
    let outcomes = reads.map(|read| read.outcome);
    assert!(matches!(outcomes[0], Err(Error::CutShort { length: 13, needed: 14, .. })));
    assert!(matches!(outcomes[2], Err(Error::Missing { .. })));
    assert!(outcomes[1].is_ok() && outcomes[3].is_ok() && outcomes[4].is_ok());
    assert_eq!((&first[..], &out[..]), (&b"whole"[..], &b"segment"[..]));
    assert_eq!(asked.load(Ordering::Relaxed), 5, "one request for each part");
}
