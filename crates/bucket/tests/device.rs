//! A pool's device on a store, through the calls that a pool makes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use steadfast_bucket::device::DeviceStore;
use steadfast_bucket::{Client, Credentials};
use steadfast_device::{Buffer, Device, Error, ObjectDevice, SegmentPlace};
use steadfast_env::Env;
use steadfast_format::SegmentId;
use steadfast_hostile::{Fault, Kind, Rule, Store};

use crate::{client, tuning};

const PLACE: SegmentPlace = SegmentPlace { segment: SegmentId(0x2a), slot: 0, slot_size: 1 << 20 };

fn device_on(client: Client, capacity: Option<u64>, writer: u8) -> steadfast_device::Result<ObjectDevice> {
    ObjectDevice::open(Arc::new(DeviceStore::exclusive(client)?), capacity, [writer; 16])
}

#[test]
fn a_device_keeps_segments_labels_and_epochs_on_a_store_that_fails_by_turns() {
    let store = Store::start();
    assert!(matches!(device_on(client(&store), None, 1), Err(Error::Missing { .. })));
    let device = device_on(client(&store), Some(64 << 20), 1).unwrap();
    for fault in [Fault::Lose, Fault::Answer(503, "SlowDown"), Fault::Answer(500, "InternalError")] {
        store.add(Rule { kind: None, object: String::new(), after: 1, times: 2, fault });
    }
    device.put_segment(PLACE, b"whole segment").unwrap();
    assert!(matches!(device.put_segment(PLACE, b"other"), Err(Error::Exists { .. })));
    let mut out = [0; 7];
    device.read_segment(PLACE, 6, &mut out).unwrap();
    assert_eq!(&out, b"segment");
    let error = device.read_segment(PLACE, 6, &mut [0; 8]).unwrap_err();
    assert!(matches!(error, Error::CutShort { length: 13, needed: 14, .. }), "{error}");
    let objects = device.objects().unwrap();
    assert_eq!(objects.stored_segments().unwrap(), [PLACE.segment]);
    assert!(objects.claim_epoch(1).unwrap());
    device.write_label(0, b"a label").unwrap();

    let other = device_on(client(&store), None, 2).unwrap();
    assert!(!other.objects().unwrap().claim_epoch(1).unwrap(), "one of two claims an epoch");
    assert_eq!((other.read_label(0).unwrap(), other.character().size_bytes), (b"a label".to_vec(), 64 << 20));
    objects.delete_segments(&[PLACE.segment]).unwrap();
    let missing = other.read_segment(PLACE, 0, &mut out).unwrap_err();
    assert!(matches!(missing, Error::Missing { .. }), "{missing}");
    store.add(Rule::next(Kind::Put, 1, Fault::Answer(403, "QuotaExceeded")));
    let full = device.put_segment(PLACE, b"x").unwrap_err().to_string();
    assert!(full.contains("the quota at the provider is full (status 403, QuotaExceeded"), "{full}");
    assert!(store.objects().iter().all(|name| name.starts_with("tank/")), "{:?}", store.objects());
}

#[test]
fn a_store_that_fails_by_turns_gets_a_segment_out_of_memory_that_is_shared_and_lets_go_of_it() {
    let store = Store::start();
    let device = device_on(client(&store), Some(64 << 20), 1).unwrap();
    for fault in [Fault::Lose, Fault::Answer(503, "SlowDown"), Fault::Answer(500, "InternalError")] {
        store.add(Rule { kind: Some(Kind::Put), object: String::new(), after: 0, times: 1, fault });
    }
    let bytes = Arc::new(Buffer::gather(&[&[7; 100_000], &[8; 100_000]]));
    device.put_shared(PLACE, &bytes).unwrap();
    device.put_shared(PLACE, &bytes).unwrap();
    let other = Arc::new(Buffer::from(vec![7; 200_000]));
    assert!(matches!(device.put_shared(PLACE, &other), Err(Error::Exists { .. })));
    let mut out = [0; 2];
    device.read_segment(PLACE, 99_999, &mut out).unwrap();
    assert_eq!(out, [7, 8]);
    // A connection that ended may let go of it a moment later.
    let began = Instant::now();
    while Arc::strong_count(&bytes) > 1 {
        assert!(began.elapsed() < Duration::from_secs(60), "somebody keeps the memory");
        std::thread::yield_now();
    }
}

#[test]
fn a_folder_is_used_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let open = || {
        let location = steadfast_bucket::Location::folder_at(folder.path()).unwrap();
        Client::open(location, &Credentials::None, Env::seeded(1), tuning()).unwrap()
    };
    let device = device_on(open(), Some(64 << 20), 1).unwrap();
    assert!(matches!(device_on(open(), None, 2), Err(Error::Busy { .. })));
    // Opening changes nothing: the first claim stores the capacity.
    assert!(device.objects().unwrap().claim_epoch(1).unwrap());
    let looking = ObjectDevice::open(Arc::new(DeviceStore::shared(open())), None, [3; 16]).unwrap();
    assert_eq!(looking.character().size_bytes, 64 << 20);
    device.release();
    device_on(open(), None, 2).unwrap();
}
