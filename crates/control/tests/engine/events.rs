//! Events on their way out of the daemon.

use super::*;

/// Turns of a test that waits for two threads to meet.
const TURNS: usize = 200;

fn lines(house: &House) -> String {
    std::fs::read_to_string(house.folder.join("run/events.log")).unwrap_or_default()
}

fn states(house: &House) -> Vec<String> {
    let events = house.host().call(&caller(), PoolEvents::default()).unwrap();
    let states = events.into_iter().filter(|event| event.class.ends_with(".statechange"));
    states.map(|event| event.fields["vdev_state"].clone()).collect()
}

fn mirror(house: &House) -> PoolCreate {
    let mut request = house.create_request("tank", "a.img");
    request.vdevs[0].devices.push(house.image("b.img"));
    request.vdevs[0].kind = VdevKind::Mirror;
    request
}

#[test]
fn events_outlive_the_daemon_until_they_are_cleared() {
    let mut house = House::new("events-log");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.host().relay_events();
    assert!(lines(&house).contains("pool_create"), "{}", lines(&house));
    let before = classes(&house);
    house.create_fs("tank/a", &[], None).unwrap();
    house.restart();
    let after = classes(&house);
    assert_eq!(after[..before.len()], before, "the end of a daemon loses none");
    assert!(after.len() > before.len());
    let last = house.host().call(&caller(), PoolEvents::default()).unwrap().last().unwrap().eid;
    house.host().call(&caller(), PoolEventsClear {}).unwrap();
    house.restart();
    house.set("tank/a", "compression", "lz4").unwrap();
    let events = house.host().call(&caller(), PoolEvents::default()).unwrap();
    assert!(!classes(&house).iter().any(|class| class.ends_with("pool_create")), "they were cleared");
    assert!(events.iter().all(|event| event.eid > last), "numbers go on");
    assert!(lines(&house).contains("pool_create"), "the log on disk keeps them");
}

#[test]
fn a_device_that_vanishes_in_silence_is_an_event() {
    let mut house = House::new("events-gone");
    house.create_pool(mirror(&house)).unwrap();
    house.host().relay_events();
    assert_eq!(states(&house), Vec::<String>::new());
    std::fs::rename(house.folder.join("b.img"), house.folder.join("away")).unwrap();
    std::fs::remove_file(house.folder.join("away")).unwrap();
    for _ in 0..3 {
        house.host().relay_events();
    }
    assert_eq!(states(&house), ["REMOVED"], "it is told once");
    // At the next start it is missing, which is news to who looks only then.
    house.restart();
    house.host().relay_events();
    assert_eq!(states(&house), ["REMOVED", "UNAVAIL"]);
    assert!(lines(&house).contains("was not found at import"));
}

#[test]
fn a_pool_that_cannot_be_imported_at_the_start_is_an_event() {
    let mut house = House::new("events-lost");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.host().shutdown(false).unwrap();
    house.engine = None;
    std::fs::remove_file(house.folder.join("a.img")).unwrap();
    house.start();
    assert_eq!(classes(&house).last().unwrap(), "ereport.fs.steadfast.zpool");
    house.host().relay_events();
    assert!(lines(&house).contains("\"code\":\""), "{}", lines(&house));
}

/// [events.1]: other threads take events over meanwhile.
#[test]
fn a_list_has_each_event_that_happened_before() {
    let house = House::new("events-taken");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let house = &house;
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::SeqCst) {
                    house.host().relay_events();
                }
            });
        }
        let scrub = |command| house.host().call(&caller(), PoolScrub { name: "tank".into(), command });
        let mut last = 0;
        let mut missed = Vec::new();
        for turn in 0..TURNS {
            // One that is over needs no stop.
            let _ = scrub(ScrubCommand::Stop);
            let begun = scrub(ScrubCommand::Start);
            let events = PoolEvents { name: None, after: last };
            let events = house.host().call(&caller(), events).unwrap_or_default();
            let starts = events.iter().filter(|event| event.class.ends_with("scrub_start")).count();
            if begun.is_err() || starts != 1 {
                missed.push((turn, begun, events.clone()));
            }
            last = events.last().map_or(last, |event| event.eid);
        }
        is_over.store(true, Ordering::SeqCst);
        assert!(missed.is_empty(), "{missed:?}");
    });
}
