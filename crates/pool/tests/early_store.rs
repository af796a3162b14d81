//! Content that is stored early beside commits that wait for a store: every moment of such a store
//! is a whole pool.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::common::{MIB, ROOT, handle, import, mount, noise, read_file, spec, write_file};
use steadfast_device::objects::{MemoryStore, ObjectDevice};
use steadfast_device::{Device, Operation};
use steadfast_env::Env;
use steadfast_inspect::{Finding, Leaf, Request};
use steadfast_pool::Pool;

const WRITERS: u64 = 2;
const MOMENTS: usize = 10;
/// Puts between two moments.
const PUTS: usize = 20;
const SIZE: usize = 250_000;
/// Files that a writer is ahead of what is durable, at most: the store has a bound.
const AHEAD: usize = 10;

fn device(store: MemoryStore) -> Arc<ObjectDevice> {
    Arc::new(ObjectDevice::open(Arc::new(store), Some(256 * MIB), [1; 16]).expect("a store"))
}

fn name(writer: u64, number: usize) -> String {
    format!("{writer}-{number}")
}

/// The pool as it is in a copy of the store: whole, with all that was durable.
fn check(image: &MemoryStore, durable: &[usize]) {
    let device = device(image.copy().handle(|_| None));
    let leaf = Leaf { path: "store".into(), device: Arc::clone(&device) as Arc<dyn Device> };
    let env = Env::real();
    let request = Request { leaves: &[leaf], secret: None, anchor: None, env: &env };
    let mut told = Vec::new();
    let summary = steadfast_inspect::check(&request, &mut |finding: Finding| {
        told.push(finding.record().to_string());
    });
    assert_eq!((told, summary.leaked_units), (Vec::new(), 0));
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    let (fs, _handle) = mount(&pool, "tank");
    for (writer, durable) in (0..).zip(durable) {
        for number in 0..*durable {
            let content = read_file(&fs, ROOT, name(writer, number).as_bytes());
            let expected = noise(writer << 32 | number as u64, SIZE);
            assert!(content == expected, "{}", name(writer, number));
        }
    }
}

/// Writers go on while commits follow each other; copies of the store are taken at any moment, as a
/// crash would leave it.
#[test]
fn every_moment_of_a_busy_store_is_a_whole_pool() {
    let puts: Arc<(Mutex<usize>, Condvar)> = Arc::default();
    let (store, seen) = (MemoryStore::new("bucket"), Arc::clone(&puts));
    let busy = store.handle(move |request| {
        if request.operation == Operation::Write {
            let number = {
                let mut puts = seen.0.lock().unwrap_or_else(PoisonError::into_inner);
                *puts += 1;
                seen.1.notify_all();
                *puts as u64
            };
            // Segments take their time, some of them longer than a root would.
            if request.name.starts_with("seg/") {
                std::thread::sleep(Duration::from_millis(number * 7 % 13));
            }
        }
        None
    });
    let pool = Pool::create(&Env::real(), spec(vec![handle(&device(busy))], None)).expect("a pool");
    let (fs, opened) = mount(&pool, "tank");
    opened.dataset().set_early_bytes(0, 64 << 10);
    let ends = AtomicBool::new(false);
    let (written, durable) = ([0; 2].map(AtomicUsize::new), [0; 2].map(AtomicUsize::new));
    let mut moments = Vec::new();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (fs, ends) = (&fs, &ends);
            let (written, durable) = (&written[writer as usize], &durable[writer as usize]);
            scope.spawn(move || {
                let mut number = 0;
                while !ends.load(Ordering::Relaxed) {
                    if number > durable.load(Ordering::SeqCst) + AHEAD {
                        std::thread::sleep(Duration::from_millis(1));
                        continue;
                    }
                    let content = noise(writer << 32 | number as u64, SIZE);
                    write_file(fs, ROOT, name(writer, number).as_bytes(), &content);
                    number += 1;
                    written.store(number, Ordering::SeqCst);
                }
            });
        }
        scope.spawn(|| {
            while !ends.load(Ordering::Relaxed) {
                let now: Vec<usize> = written.iter().map(|count| count.load(Ordering::SeqCst)).collect();
                pool.sync().expect("committed");
                durable.iter().zip(now).for_each(|(durable, now)| durable.store(now, Ordering::SeqCst));
            }
        });
        for moment in 1..=MOMENTS {
            let now = puts.0.lock().unwrap_or_else(PoisonError::into_inner);
            let patience = Duration::from_secs(60);
            let waited = puts.1.wait_timeout_while(now, patience, |puts| *puts < moment * PUTS);
            let timed_out = waited.unwrap_or_else(PoisonError::into_inner).1.timed_out();
            let known: Vec<usize> = durable.iter().map(|count| count.load(Ordering::SeqCst)).collect();
            moments.push((store.copy(), known));
            if timed_out {
                break;
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert_eq!(moments.len(), MOMENTS, "puts go on");
    moments.iter().for_each(|(image, durable)| check(image, durable));
}
