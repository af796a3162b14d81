//! Requests, retries, and answers that are not to be believed.

use std::time::Duration;

use steadfast_bucket::{Class, Client, Fetch, Operation, Store as _, Tag, Tuning};
use steadfast_env::Env;
use steadfast_env::insist::insisting;
use steadfast_hostile::{Conditions, Fault, KEYS, Kind, Rule, Store};

use crate::{client, client_with, keys, tuning};

fn fetch(client: &Client, object: &str, offset: u64, length: usize) -> steadfast_bucket::Result<Vec<u8>> {
    let mut out = vec![0; length];
    let mut fetches = [Fetch { object, offset, outs: vec![&mut out], outcome: Ok(()) }];
    client.get_ranges(&mut fetches);
    let [Fetch { outcome, .. }] = fetches;
    outcome.map(|()| out)
}

/// A pool that is imported again finds the connections of the one before: each saves a round trip.
#[test]
fn a_client_uses_the_connections_that_another_one_left_open() {
    let store = Store::start();
    client(&store).put("a", b"x").unwrap();
    // A connection is free a moment after its answer was read, so one client may come too early.
    let finds_one = || {
        let before = store.connections();
        assert_eq!(client(&store).get("a").unwrap().0, b"x");
        store.connections() == before
    };
    assert!((0..100).any(|_| finds_one()), "{} connections", store.connections());
}

#[test]
fn every_call_does_what_it_says() {
    let store = Store::start();
    let client = client(&store);
    client.check().unwrap();
    client.create("seg/1", b"first").unwrap();
    client.create("seg/1", b"first").unwrap();
    let error = client.create("seg/1", b"other").unwrap_err();
    assert_eq!((error.class, error.operation), (Class::Exists, Operation::Create), "{error}");
    assert_eq!(store.object("tank/seg/1").unwrap(), b"first");
    let before = store.seen().len();
    assert!(client.refuses("seg/1").unwrap());
    assert_eq!(store.seen().len() - before, 1, "a refusal needs no second look");
    assert_eq!(store.object("tank/seg/1").unwrap(), b"first");

    let tag = client.put("root", b"one").unwrap();
    let next = client.replace("root", b"two", &tag).unwrap();
    assert_eq!(client.replace("root", b"three", &tag).unwrap_err().class, Class::Changed);
    assert_eq!(client.get("root").unwrap(), (b"two".to_vec(), next));
    assert_eq!(client.get("none").unwrap_err().class, Class::Missing);
    let nothing = Tag { etag: Some("\"v9\"".to_owned()), version: None };
    assert!(client.replace("none", b"x", &nothing).is_err());
    assert_eq!(client.head("none").unwrap(), None);

    assert_eq!(fetch(&client, "seg/1", 1, 3).unwrap(), b"irs");
    assert_eq!(fetch(&client, "seg/1", 3, 3).unwrap_err().class, Class::Short);
    assert_eq!(fetch(&client, "seg/1", 5, 1).unwrap_err().class, Class::Short);
    assert_eq!(client.head("seg/1").unwrap().unwrap().size, 5);

    for number in 0..250 {
        client.put(&format!("many/{number:03}"), &[]).unwrap();
    }
    let mut names: Vec<String> = client.list("many").unwrap().into_iter().map(|head| head.object).collect();
    names.sort();
    assert_eq!((names.len(), names[0].as_str(), names[249].as_str()), (250, "many/000", "many/249"));
    let before = client.counts();
    client.delete(&names).unwrap();
    client.delete(&names).unwrap();
    assert_eq!(client.counts().of(Operation::Delete) - before.of(Operation::Delete), 2, "in bulk");
    assert_eq!(client.list("many").unwrap(), []);
    let counts = client.counts();
    assert_eq!((counts.of(Operation::Create), counts.of(Operation::Replace), counts.retries), (4, 3, 0));
    assert_eq!(counts.bytes_out, 5 + 5 + 5 + 3 + 3 + 5 + 1);
}

#[test]
fn a_lost_answer_of_a_create_is_settled_by_reading() {
    let store = Store::start();
    let client = client(&store);
    store.add(Rule::next(Kind::Put, 1, Fault::Lose));
    client.create("seg/1", b"mine").unwrap();
    assert_eq!(store.object("tank/seg/1").unwrap(), b"mine");
    assert_eq!((client.counts().of(Operation::Create), client.counts().of(Operation::Get)), (2, 1));

    // Somebody else was first, and the answer that said so was lost as well.
    store.set_object("tank/seg/2", Some(b"theirs"));
    store.add(Rule::next(Kind::Put, 2, Fault::Lose));
    assert_eq!(client.create("seg/2", b"mine").unwrap_err().class, Class::Exists);
    assert_eq!(store.object("tank/seg/2").unwrap(), b"theirs");

    // Another create is under way (409), and fails: ours is tried again.
    store.add(Rule::next(Kind::Put, 3, Fault::Answer(409, "ConditionalRequestConflict")));
    client.create("seg/3", b"mine").unwrap();
    assert_eq!(store.object("tank/seg/3").unwrap(), b"mine");
}

#[test]
fn a_lost_answer_of_a_replace_is_settled_by_reading() {
    let store = Store::start();
    let client = client(&store);
    let tag = client.put("root", b"one").unwrap();
    store.add(Rule::next(Kind::Put, 1, Fault::Lose));
    // The version that comes back is the one that is there.
    let next = client.replace("root", b"two", &tag).unwrap();
    let last = client.replace("root", b"three", &next).unwrap();
    store.add(Rule::next(Kind::Put, 1, Fault::Answer(409, "ConditionalRequestConflict")));
    client.replace("root", b"four", &last).unwrap();
    assert_eq!(store.object("tank/root").unwrap(), b"four");
}

#[test]
fn torn_bodies_and_wrong_ranges_are_never_data() {
    let store = Store::start();
    let client = client(&store);
    let content: Vec<u8> = (0..100_000_u32).map(|at| (at % 251) as u8).collect();
    client.put("seg/1", &content).unwrap();
    for fault in [Fault::Tear(0), Fault::Tear(1), Fault::Tear(4_000), Fault::Shift(1), Fault::Babble] {
        store.add(Rule::next(Kind::Get, 2, fault.clone()));
        let found =
            fetch(&client, "seg/1", 50_000, 8_192).unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert!(found == content[50_000..58_192], "{fault:?}");
    }
    assert_eq!(client.counts().retries, 10);
    // A lie that only a hash finds.
    store.add(Rule::next(Kind::Get, 1, Fault::ShiftQuietly(1)));
    assert!(fetch(&client, "seg/1", 50_000, 8_192).unwrap() == content[50_001..58_193]);
    // For ever: an error after ten tries, and no byte of it.
    store.add(Rule::next(Kind::Get, 100, Fault::Tear(4_000)));
    let error = fetch(&client, "seg/1", 0, 8_192).unwrap_err();
    assert!(error.class.is_transient() && error.tries == 10, "{error}");
    assert!(client.get("seg/1").unwrap_err().class.is_transient());
}

#[test]
fn a_store_that_never_answers_is_told_so() {
    let store = Store::start();
    let (name, secret) = KEYS[0];
    let short = Tuning { deadline: Duration::from_millis(200), bytes_per_second: 1 << 40, ..tuning() };
    let open = |tuning| client_with(&store.location("tank"), &keys(name, secret), tuning).unwrap();
    store.set_object("tank/seg/1", Some(&[7; 4_096]));
    store.add(Rule::next(Kind::Get, 1, Fault::Stall(100)));
    assert_eq!(fetch(&open(short), "seg/1", 0, 4_096).unwrap(), [7; 4_096], "a later try");
    let client = open(Tuning { tries: 3, ..short });
    store.add(Rule::next(Kind::Put, 3, Fault::Hold));
    let error = client.create("seg/2", b"x").unwrap_err();
    assert_eq!((error.class, error.tries), (Class::Away, 2), "{error}");
    assert!(error.to_string().contains("create of seg/2 failed: the store does not answer"), "{error}");
    store.behave();
    drop(store);
    let error = client.put("seg/3", b"x").unwrap_err();
    assert_eq!((error.class, error.status), (Class::Away, None), "{error}");
}

/// A commit waits for a store by itself, and tells of the outage meanwhile.
#[test]
fn a_caller_that_insists_hears_soon() {
    let store = Store::start();
    let client = client(&store);
    let location = store.location("tank");
    drop(store);
    let error = insisting(|| client.create("seg/1", b"x")).unwrap_err();
    assert_eq!((error.class, error.tries), (Class::Away, 6), "{error}");
    let (name, secret) = KEYS[0];
    let client = client_with(&location, &keys(name, secret), tuning()).unwrap();
    let error = client.create("seg/1", b"x").unwrap_err();
    assert_eq!((error.class, error.tries), (Class::Away, 10), "{error}");
    // One that is silent: each try takes its whole deadline.
    let store = Store::start();
    let short = Tuning { deadline: Duration::from_millis(200), bytes_per_second: 1 << 40, ..tuning() };
    let open = || client_with(&store.location("tank"), &keys(name, secret), short).unwrap();
    store.add(Rule::next(Kind::Put, 100, Fault::Hold));
    let client = open();
    let error = insisting(|| client.create("seg/1", b"x")).unwrap_err();
    assert_eq!((error.class, error.tries), (Class::Away, 1), "{error}");
    let error = client.create("seg/1", b"x").unwrap_err();
    assert_eq!((error.class, error.tries), (Class::Away, 1), "it is known to be away: {error}");
    let error = open().create("seg/1", b"x").unwrap_err();
    assert_eq!((error.class, error.tries), (Class::Away, 5), "{error}");
    store.behave();
}

/// A proxy whose store is gone, for example.
#[test]
fn a_store_that_takes_connections_and_hangs_up_is_told_within_seconds() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let is_over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (over, mut count) = (std::sync::Arc::clone(&is_over), 0);
    let hangs_up = std::thread::spawn(move || {
        for connection in listener.incoming() {
            if over.load(std::sync::atomic::Ordering::Relaxed) {
                return count;
            }
            count += 1;
            // By turns before the request was read, and behind it.
            if let (Ok(mut connection), 0) = (connection, count % 2) {
                let _ = std::io::Read::read(&mut connection, &mut [0; 4_096]);
            }
        }
        count
    });
    let (name, secret) = KEYS[0];
    let location = format!("s3://bucket/tank?endpoint=http://127.0.0.1:{port}");
    let open = || client_with(&location, &keys(name, secret), tuning()).unwrap();
    let client = open();
    let error = insisting(|| client.create("seg/1", b"x")).unwrap_err();
    assert_eq!((error.class, error.tries), (Class::Away, 6), "{error}");
    assert!(error.to_string().contains("the store does not answer"), "{error}");
    assert_eq!(client.list("seg").unwrap_err().tries, 2, "it is known to be away");
    let error = open().list("seg").unwrap_err();
    assert_eq!((error.class, error.tries), (Class::Away, 10), "{error}");
    // No try waited for its deadline.
    assert!(!error.to_string().contains("no answer within"), "{error}");
    is_over.store(true, std::sync::atomic::Ordering::Relaxed);
    drop(std::net::TcpStream::connect(("127.0.0.1", port)));
    let count = hangs_up.join().unwrap();
    assert!(count >= 18, "{count} connections for 18 tries");
}

#[test]
fn a_storm_of_refusals_passes_and_the_window_halves() {
    let store = Store::start();
    let client = client(&store);
    let before = client.window();
    store.add(Rule::next(Kind::Put, 3, Fault::Answer(503, "SlowDown")));
    store.add(Rule::next(Kind::Put, 3, Fault::Answer(500, "InternalError")));
    store.add(Rule::next(Kind::Put, 2, Fault::Answer(412, "PreconditionFailed")));
    client.create("seg/1", b"x").unwrap();
    assert_eq!(store.object("tank/seg/1").unwrap(), b"x");
    assert_eq!(client.counts().slowdowns, 3);
    assert!(client.window() < before, "{} of {before}", client.window());
    store.add(Rule::next(Kind::List, 10, Fault::Answer(503, "SlowDown")));
    let error = client.list("seg").unwrap_err();
    assert_eq!((error.class, error.status, error.tries), (Class::Busy, Some(503), 10));
    assert!(error.request_id.as_deref().is_some_and(|id| id.starts_with("req-")), "{error}");
}

#[test]
fn a_slow_read_is_asked_for_again_and_few_are() {
    let store = Store::start();
    let client = client(&store);
    client.put("seg/1", &[9; 4_096]).unwrap();
    for _ in 0..400 {
        fetch(&client, "seg/1", 0, 4_096).unwrap();
    }
    // On a clock that steps, every read is slow at once: this is the most that may be asked.
    let counts = client.counts();
    assert!(counts.hedges > 0 && counts.hedges <= 12, "{counts:?}");
    assert!(counts.of(Operation::Get) <= 400 + counts.hedges, "{counts:?}");
    // One that the store holds is answered by its second request.
    let short = Tuning { deadline: Duration::from_millis(200), ..tuning() };
    let client = client_with(&store.location("tank"), &keys(KEYS[0].0, KEYS[0].1), short).unwrap();
    for _ in 0..40 {
        fetch(&client, "seg/1", 0, 64).unwrap();
    }
    let hedges = client.counts().hedges;
    store.add(Rule { kind: Some(Kind::Get), object: String::new(), after: 0, times: 1, fault: Fault::Hold });
    for _ in 0..100 {
        fetch(&client, "seg/1", 0, 64).unwrap();
    }
    assert!(client.counts().hedges > hedges);
    store.release();
}

#[test]
fn many_ranges_travel_side_by_side() {
    let store = Store::start();
    let client = client(&store);
    client.put("seg/1", &[1; 1 << 16]).unwrap();
    // All sixteen are held until the last has come: one after another, they would wait for ever.
    store.add(Rule::next(Kind::Get, 16, Fault::Hold));
    let mut outs = vec![[0_u8; 64]; 16];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while store.seen().iter().filter(|seen| seen.kind == Kind::Get).count() < 16 {
                std::thread::yield_now();
            }
            store.release();
        });
        let mut fetches: Vec<Fetch<'_>> = outs
            .iter_mut()
            .zip(0..)
            .map(|(out, at)| Fetch { object: "seg/1", offset: at * 64, outs: vec![out], outcome: Ok(()) })
            .collect();
        client.get_ranges(&mut fetches);
        assert!(fetches.iter().all(|fetch| fetch.outcome.is_ok()));
    });
    assert_eq!(outs, [[1; 64]; 16]);
}

/// A client, a model of what it may see, and a store that misbehaves by seed.
#[test]
fn by_seed_the_client_says_what_the_store_holds() {
    for seed in 1..=12 {
        let store = Store::start();
        let client = client(&store);
        let random = Env::seeded(seed).random;
        let below = |limit: u64| random.nonzero_u64() % limit;
        let mut model = std::collections::BTreeMap::new();
        for step in 0..60_u64 {
            let fault = match below(8) {
                0 => Some(Fault::Lose),
                1 => Some(Fault::Tear(usize::try_from(below(40)).unwrap())),
                2 => Some(Fault::Answer(500, "InternalError")),
                3 => Some(Fault::Answer(503, "SlowDown")),
                _ => None,
            };
            store.behave();
            if let Some(fault) = fault {
                let times = u32::try_from(1 + below(3)).unwrap();
                store.add(Rule { kind: None, object: String::new(), after: 0, times, fault });
            }
            let object = format!("seg/{}", below(12));
            match below(4) {
                0 | 1 => {
                    let bytes = format!("{object} at {step}, long enough to be torn somewhere").into_bytes();
                    match (client.create(&object, &bytes), model.contains_key(&object)) {
                        (Ok(()), false) => _ = model.insert(object, bytes),
                        (Err(error), true) => assert_eq!(error.class, Class::Exists, "{seed}: {error}"),
                        (outcome, there) => panic!("{seed}/{step}: {outcome:?} and it is there: {there}"),
                    }
                }
                2 => match (client.get(&object), model.get(&object)) {
                    (Ok((bytes, _)), Some(known)) => assert_eq!(&bytes, known, "{seed}/{step}"),
                    (Err(error), None) => assert_eq!(error.class, Class::Missing, "{seed}: {error}"),
                    (outcome, known) => panic!("{seed}/{step}: {outcome:?} instead of {known:?}"),
                },
                _ => {
                    client.delete(std::slice::from_ref(&object)).unwrap();
                    model.remove(&object);
                }
            }
        }
        let stored: Vec<String> = model.keys().map(|object| format!("tank/{object}")).collect();
        assert_eq!(store.objects(), stored, "seed {seed}");
    }
}

#[test]
fn a_store_that_ignores_conditions_overwrites_and_the_client_cannot_see_it() {
    // Why a probe is needed: the answers look well.
    let store = Store::start();
    let client = client(&store);
    store.set_conditions(Conditions::Ignored);
    client.create("seg/1", b"first").unwrap();
    client.create("seg/1", b"other").unwrap();
    assert_eq!(store.object("tank/seg/1").unwrap(), b"other");
}

#[test]
fn the_hostile_store_lies_as_it_is_told() {
    let store = Store::start();
    let first = client(&store);
    let second = client_with(&store.location("tank"), &keys(KEYS[1].0, KEYS[1].1), tuning()).unwrap();
    first.put("a", b"1").unwrap();
    let mark = store.mark();
    first.put("a", b"2").unwrap();
    first.put("b", b"2").unwrap();
    store.list_as_of(Some(&mark));
    store.list_also("tank/ghost");
    let mut names: Vec<String> = first.list("").unwrap().into_iter().map(|head| head.object).collect();
    names.sort();
    assert_eq!(names, ["a", "ghost"]);
    store.list_as_of(None);
    store.list_without("tank/a");
    assert_eq!(first.list("").unwrap().len(), 2, "b and the ghost");
    assert_eq!(first.get("ghost").unwrap_err().class, Class::Missing);

    store.fork();
    second.put("a", b"3").unwrap();
    assert_eq!((first.get("a").unwrap().0, second.get("a").unwrap().0), (b"2".to_vec(), b"3".to_vec()));
    store.roll_back_object(&mark, "tank/a");
    store.roll_back_object(&mark, "tank/b");
    assert_eq!((first.get("a").unwrap().0, first.head("b").unwrap()), (b"1".to_vec(), None));
    first.put("c", b"4").unwrap();
    store.roll_back(&mark);
    assert_eq!(first.head("c").unwrap(), None);
    store.add(Rule::next(Kind::Put, 1, Fault::Drop));
    first.put("d", b"5").unwrap();
    assert_eq!(first.head("d").unwrap(), None, "acknowledged and dropped");
    store.flip("tank/a", 0);
    assert_eq!(first.get("a").unwrap().0, b"0");
}
