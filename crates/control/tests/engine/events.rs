//! Events on their way out of the daemon.

use super::*;

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
