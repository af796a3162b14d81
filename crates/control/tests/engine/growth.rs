//! Devices that come, grow and vanish.

use super::*;

/// Classes of all events so far.

#[test]
fn spares_are_listed_where_pools_could_be_imported() {
    let house = House::new("listspares");
    let mut request = house.create_request("tank", "a.img");
    request.vdevs[0].devices.push(house.image("b.img"));
    request.vdevs[0].kind = VdevKind::Mirror;
    let (class, kind, devices) = (VdevClass::Spare, VdevKind::Plain, vec![house.image("s.img")]);
    request.vdevs.push(VdevSpec { class, kind, devices });
    house.create_pool(request).unwrap();
    house.export("tank", false).unwrap();
    let told = || {
        let request = PoolImportScan { search: vec![house.folder.clone()], destroyed: false };
        let found = house.host().call(&caller(), request).unwrap().remove(0);
        assert_eq!((found.state, found.vdevs.len()), (Health::Online, 2), "{:?}", found.vdevs);
        let spare = &found.vdevs[1];
        (spare.class, spare.name.ends_with("s.img"), spare.state)
    };
    assert_eq!(told(), (VdevClass::Spare, true, Health::Avail));
    std::fs::remove_file(house.folder.join("s.img")).unwrap();
    assert_eq!(told(), (VdevClass::Spare, true, Health::Unavail));
}

#[test]
fn a_pool_grows_by_devices_and_keeps_them() {
    let mut house = House::new("add");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let size = |house: &House| {
        let pools = house.host().call(&caller(), PoolList::default()).unwrap();
        pools[0].properties["size"].value.parse::<u64>().unwrap()
    };
    let before = size(&house);
    let add = |house: &House, image: &str, force, dry_run| {
        let device = vec![house.image(image)];
        let vdevs = vec![VdevSpec { class: VdevClass::Main, kind: VdevKind::Plain, devices: device }];
        house.host().call(
            &caller(),
            PoolAdd {
                name: "tank".into(),
                vdevs,
                force,
                allow_mismatch: force,
                dry_run,
                loss_ppm: None,
                tiles: None,
            },
        )
    };
    add(&house, "b.img", false, true).unwrap();
    assert_eq!(size(&house), before, "a dry run changes nothing");
    assert_eq!(std::fs::read(house.image("b.img")).unwrap().iter().filter(|byte| **byte != 0).count(), 0);
    add(&house, "b.img", false, false).unwrap();
    assert_eq!(size(&house), 2 * before);
    assert_eq!(add(&house, "b.img", true, false).unwrap_err().code, Code::VdevInUse);
    house.create_pool(house.create_request("other", "c.img")).unwrap();
    house.export("other", false).unwrap();
    assert_eq!(add(&house, "c.img", false, false).unwrap_err().code, Code::VdevForeign);
    add(&house, "c.img", true, false).unwrap();
    house.restart();
    assert_eq!(size(&house), 3 * before);
    house.export("tank", false).unwrap();
    house.import("tank", None).unwrap();
    assert_eq!(size(&house), 3 * before);
    house.export("tank", false).unwrap();
    std::fs::rename(house.folder.join("b.img"), house.folder.join("run/b.img")).unwrap();
    assert_eq!(house.import("tank", None).unwrap_err().code, Code::PoolDevices);
}

#[test]
fn a_device_that_has_grown_is_used_when_asked_for_or_at_import() {
    let mut house = House::new("expand");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let property = |house: &House, name: &str| {
        let pools = house.host().call(&caller(), PoolList::default()).unwrap();
        pools[0].properties[name].value.clone()
    };
    let size = |house: &House| property(house, "size").parse::<u64>().unwrap();
    let grow =
        |mib: u64| File::options().write(true).open(house.folder.join("a.img")).unwrap().set_len(mib << 20);
    let before = size(&house);
    assert_eq!(property(&house, "expandsize"), "-");
    grow(128).unwrap();
    assert_eq!(property(&house, "expandsize"), (64_u64 << 20).to_string());
    let device = house.folder.join("a.img");
    let online = |device: PathBuf, expand| {
        let request = PoolOnline { name: "tank".into(), devices: vec![device], expand };
        house.host().call(&caller(), request)
    };
    assert!(online(device.clone(), false).unwrap().touched.is_empty());
    assert_eq!(size(&house), before);
    assert_eq!(online(device.clone(), true).unwrap().touched.len(), 1);
    assert_eq!(size(&house), before + (64 << 20));
    assert!(online(device, true).unwrap().touched.is_empty(), "there is no more to gain");
    assert_eq!(online("/missing".into(), true).unwrap_err().code, Code::VdevMissing);
    let offline = PoolOffline {
        name: "tank".into(),
        devices: vec![house.folder.join("a.img")],
        as_failed: false,
        until_import: false,
    };
    assert_eq!(house.host().call(&caller(), offline).unwrap_err().code, Code::VdevNeeded);
    grow(192).unwrap();
    house.restart();
    assert_eq!(size(&house), before + (64 << 20), "autoexpand is off");
    let on = Properties::from([("autoexpand".to_owned(), "on".to_owned())]);
    house.host().call(&caller(), PoolSet { name: "tank".into(), properties: on, vdev: None }).unwrap();
    house.restart();
    assert_eq!(size(&house), before + (128 << 20));
    assert!(classes(&house).iter().any(|class| class.ends_with(".vdev_autoexpand")));
    // And while it is imported, unless it is switched off.
    let grow =
        |mib: u64| File::options().write(true).open(house.folder.join("a.img")).unwrap().set_len(mib << 20);
    grow(256).unwrap();
    house.host().look_after();
    assert_eq!(size(&house), before + (192 << 20));
    let off = Properties::from([("autoexpand".to_owned(), "off".to_owned())]);
    house.host().call(&caller(), PoolSet { name: "tank".into(), properties: off, vdev: None }).unwrap();
    grow(320).unwrap();
    house.host().look_after();
    assert_eq!(
        (size(&house), property(&house, "expandsize")),
        (before + (192 << 20), (64_u64 << 20).to_string())
    );
}

/// A slot of a device of raidz holds a column, which is smaller than a segment: the gain was told k
/// times too large.
#[test]
fn what_a_grown_device_of_raidz_adds_is_told_in_its_own_bytes() {
    let house = House::new("expand-raidz");
    let devices = ["a.img", "b.img", "c.img"].map(|name| house.image(name)).to_vec();
    let vdevs = vec![VdevSpec { class: VdevClass::Main, kind: VdevKind::Raidz1, devices }];
    house.create_pool(PoolCreate { vdevs, ..house.create_request("tank", "a.img") }).unwrap();
    let expandsize = || {
        let pools = house.host().call(&caller(), PoolList::default()).unwrap();
        pools[0].properties["expandsize"].value.clone()
    };
    assert_eq!(expandsize(), "-");
    for (name, grown) in [("a.img", 64_u64 << 20), ("b.img", 128 << 20)] {
        File::options().write(true).open(house.folder.join(name)).unwrap().set_len(128 << 20).unwrap();
        assert_eq!(expandsize(), grown.to_string());
    }
}

#[test]
fn a_device_that_vanishes_while_in_use_is_told() {
    let house = House::new("vanish");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_pool(house.create_request("pond", "b.img")).unwrap();
    let report = |name: &str| {
        let request = PoolStatus { names: vec![name.into()] };
        house.host().call(&caller(), request).unwrap().remove(0)
    };
    assert_eq!(report("tank").state, Health::Online);
    std::fs::remove_file(house.folder.join("a.img")).unwrap();
    let gone = report("tank");
    assert_eq!((gone.state, gone.vdevs[0].state), (Health::Degraded, Health::Removed));
    assert_eq!(gone.messages[0].code, Code::VdevGone);
    // Its bytes are there as long as somebody holds it open.
    for refused in [house.export("tank", false).unwrap_err(), house.host().shutdown(false).unwrap_err()] {
        assert_eq!(refused.code, Code::VdevGone);
        assert!(refused.what.contains("lost if the pool closed it"), "{}", refused.what);
        assert!(refused.advice().contains("`zpool export -f tank`"), "{}", refused.advice());
    }
    assert_eq!(report("tank").messages[0].code, Code::VdevGone, "nothing was begun");
    File::options().write(true).open(house.folder.join("b.img")).unwrap().set_len(65 << 20 >> 1).unwrap();
    let short = report("pond");
    assert_eq!((short.state, short.vdevs[0].state), (Health::Degraded, Health::Faulted));
    assert!(short.messages[0].what.contains("cut short"), "{}", short.messages[0].what);
    house.export("tank", true).unwrap();
}

#[test]
fn a_group_that_does_without_a_device_that_vanished_says_so() {
    let house = House::new("vanishmirror");
    let mut request = house.create_request("tank", "a.img");
    request.vdevs[0].devices.push(house.image("b.img"));
    request.vdevs[0].kind = VdevKind::Mirror;
    house.create_pool(request).unwrap();
    let messages = || {
        let request = PoolStatus { names: vec!["tank".into()] };
        house.host().call(&caller(), request).unwrap().remove(0).messages
    };
    std::fs::remove_file(house.folder.join("a.img")).unwrap();
    let told = messages();
    assert_eq!((told.len(), told[0].code), (1, Code::VdevDegraded), "{told:?}");
    assert!(
        told[0].what.contains("a.img") && told[0].what.contains("continues without it"),
        "{}",
        told[0].what
    );
    std::fs::remove_file(house.folder.join("b.img")).unwrap();
    let told: Vec<Code> = messages().iter().map(|message| message.code).collect();
    assert_eq!(told, [Code::VdevGone, Code::VdevGone]);
    house.export("tank", true).unwrap();
}

#[test]
fn a_new_device_that_was_refused_is_tried_again() {
    let house = House::new("autoreplace");
    let devices = ["a.img", "b.img"].map(|name| house.image(name)).to_vec();
    let mut request = house.create_request("tank", "a.img");
    request.vdevs = vec![VdevSpec { class: VdevClass::Main, kind: VdevKind::Mirror, devices }];
    request.properties = Properties::from([("autoreplace".into(), "on".into())]);
    house.create_pool(request).unwrap();
    let failed = house.folder.join("b.img");
    let request = PoolOffline {
        name: "tank".into(),
        devices: vec![failed.clone()],
        as_failed: true,
        until_import: false,
    };
    house.host().call(&caller(), request).unwrap();
    let replaced = || {
        let told = classes(&house);
        told.iter().filter(|class| *class == "sysevent.fs.steadfast.vdev_attach").count()
    };
    // A blank one in its place, which somebody has not let go of yet.
    std::fs::remove_file(&failed).unwrap();
    let held = File::options().read(true).write(true).open(house.image("b.img")).unwrap();
    held.lock().unwrap();
    (0..2).for_each(|_| house.host().look_after());
    assert_eq!(replaced(), 0, "it is in use");
    drop(held);
    // Refused twice, it rests for one look.
    (0..2).for_each(|_| house.host().look_after());
    assert_eq!(replaced(), 1);
}
