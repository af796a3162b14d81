//! Reports of devices and groups: of pools that are not imported, of grown devices, of split pools,
//! of degraded new pools.

use super::*;

fn group(house: &House, class: VdevClass, kind: VdevKind, images: &[&str]) -> VdevSpec {
    VdevSpec { class, kind, devices: images.iter().map(|image| house.image(image)).collect() }
}

fn status(house: &House, name: &str) -> PoolReport {
    let request = PoolStatus { names: vec![name.into()] };
    house.host().call(&caller(), request).unwrap().remove(0)
}

/// Names without their folder, states, and those of members.
fn shape(vdevs: &[VdevReport]) -> Vec<(String, Health)> {
    let named = |vdev: &VdevReport| {
        let name = vdev.name.rsplit('/').next().unwrap_or_default().to_owned();
        std::iter::once((name, vdev.state)).chain(shape(&vdev.children)).collect::<Vec<_>>()
    };
    vdevs.iter().flat_map(named).collect()
}

fn with_states(names: &[(&str, Health)]) -> Vec<(String, Health)> {
    names.iter().map(|(name, state)| ((*name).to_owned(), *state)).collect()
}

fn numbers(vdevs: &[VdevReport]) -> Vec<u64> {
    vdevs.iter().flat_map(|vdev| std::iter::once(vdev.guid).chain(numbers(&vdev.children))).collect()
}

fn sizes(vdevs: &[VdevReport]) -> Vec<u64> {
    vdevs.iter().flat_map(|vdev| std::iter::once(vdev.size).chain(sizes(&vdev.children))).collect()
}

/// A pool of a raidz group and a mirror, with a special mirror, a mirror of logs and a spare.
fn whole(house: &House) {
    use VdevClass::{Log, Main, Spare, Special};
    use VdevKind::{Mirror, Plain, Raidz1};
    let vdevs = vec![
        group(house, Main, Raidz1, &["a.img", "b.img", "c.img"]),
        group(house, Main, Mirror, &["d.img", "e.img"]),
        group(house, Special, Mirror, &["f.img", "g.img"]),
        group(house, Log, Mirror, &["h.img", "i.img"]),
        group(house, Spare, Plain, &["s.img"]),
    ];
    let request = PoolCreate { vdevs, force: true, ..house.create_request("tank", "a.img") };
    house.create_pool(request).unwrap();
}

#[test]
fn a_remembered_pool_is_shown_with_its_groups() {
    use Health::{Avail, Degraded, Online, Unavail};
    let mut house = House::new("lost-groups");
    whole(&house);
    let before = status(&house, "tank");
    assert_eq!(before.vdevs.len(), 5, "{:?}", before.vdevs);
    let moved = |images: &[&str], from: &Path, to: &Path| {
        std::fs::create_dir_all(to).unwrap();
        images.iter().for_each(|image| std::fs::rename(from.join(image), to.join(image)).unwrap());
    };
    let (here, away) = (house.folder.clone(), house.folder.join("away"));
    house.host().shutdown(false).unwrap();
    house.engine = None;
    moved(&["b.img", "c.img", "e.img", "s.img"], &here, &away);
    house.start();
    let lost = status(&house, "tank");
    assert_eq!((lost.state, lost.messages[0].code), (Unavail, Code::PoolMissing));
    let log = &before.vdevs[3].name;
    let expected = [
        ("raidz1-0", Unavail),
        ("a.img", Online),
        ("b.img", Unavail),
        ("c.img", Unavail),
        ("mirror-1", Degraded),
        ("d.img", Online),
        ("e.img", Unavail),
        ("mirror-2", Online),
        ("f.img", Online),
        ("g.img", Online),
        (log.as_str(), Online),
        ("h.img", Online),
        ("i.img", Online),
        ("s.img", Unavail),
    ];
    assert_eq!(shape(&lost.vdevs), with_states(&expected));
    assert_eq!(numbers(&lost.vdevs), numbers(&before.vdevs), "each is known by its number");
    assert!(numbers(&lost.vdevs).iter().all(|number| *number != 0));
    // A search for pools shows the same.
    let request = PoolImportScan { search: vec![house.folder.clone()], destroyed: false };
    let found = house.host().call(&caller(), request).unwrap().remove(0);
    assert_eq!((shape(&found.vdevs), found.state), (with_states(&expected), Unavail));
    // Without any label there is what was remembered; a device of another kind in a place is none
    // of the pool's.
    house.engine = None;
    moved(&["a.img", "d.img", "f.img", "g.img", "h.img", "i.img"], &here, &away);
    house.image("a.img");
    house.start();
    let lost = status(&house, "tank");
    let expected = expected.map(|(name, _)| (name, Unavail));
    assert_eq!(shape(&lost.vdevs), with_states(&expected));
    assert_eq!(numbers(&lost.vdevs), numbers(&before.vdevs));
    let notes: Vec<&str> = lost.vdevs[0].children.iter().filter_map(|vdev| vdev.note.as_deref()).collect();
    assert_eq!(notes, ["no label of the pool was found on it", "cannot be opened", "cannot be opened"]);
    std::fs::remove_file(house.folder.join("a.img")).unwrap();
    let all = ["a.img", "b.img", "c.img", "d.img", "e.img", "f.img", "g.img", "h.img", "i.img", "s.img"];
    moved(&all, &away, &here);
    house.import("tank", None).unwrap();
    let after = status(&house, "tank");
    assert_eq!((shape(&after.vdevs), after.state), (shape(&before.vdevs), Online));
    assert_eq!(after.vdevs[4].state, Avail);
}

#[test]
fn a_pool_that_could_be_imported_is_as_large_as_it_was() {
    let house = House::new("candidate-sizes");
    whole(&house);
    let before = status(&house, "tank");
    let main = |vdevs: &[VdevReport]| sizes(&vdevs[..3]);
    assert!(main(&before.vdevs).iter().all(|size| *size > 0));
    house.export("tank", false).unwrap();
    let request = PoolImportScan { search: vec![house.folder.clone()], destroyed: false };
    let found = house.host().call(&caller(), request).unwrap().remove(0);
    assert_eq!(main(&found.vdevs), main(&before.vdevs));
    assert_eq!((shape(&found.vdevs), numbers(&found.vdevs)), (shape(&before.vdevs), numbers(&before.vdevs)));
    let kinds: Vec<VdevKind> = found.vdevs.iter().map(|vdev| vdev.kind).collect();
    use VdevKind::{Mirror, Plain, Raidz1};
    assert_eq!(kinds, [Raidz1, Mirror, Mirror, Mirror, Plain]);
}

#[test]
fn a_groups_number_stays_when_the_pools_changes() {
    let house = House::new("group-numbers");
    whole(&house);
    let before = status(&house, "tank");
    house.host().call(&caller(), PoolReguid { name: "tank".into(), guid: None }).unwrap();
    let after = status(&house, "tank");
    assert_ne!(after.guid, before.guid);
    assert_eq!(numbers(&after.vdevs), numbers(&before.vdevs));
    let io = house.host().call(&caller(), PoolIostat::default()).unwrap().remove(0);
    for group in &io.groups {
        let vdev = after.vdevs.iter().find(|vdev| vdev.name == group.name).expect("status has it");
        assert_eq!(group.guid, vdev.guid, "{}", group.name);
    }
}

#[test]
fn what_a_device_has_grown_by_is_told_where_it_did() {
    let house = House::new("expand-where");
    let vdevs = vec![
        group(&house, VdevClass::Main, VdevKind::Mirror, &["a.img", "b.img"]),
        group(&house, VdevClass::Main, VdevKind::Raidz1, &["c.img", "d.img", "e.img"]),
    ];
    house.create_pool(PoolCreate { vdevs, force: true, ..house.create_request("tank", "a.img") }).unwrap();
    let grow = |image: &str| {
        File::options().write(true).open(house.folder.join(image)).unwrap().set_len(128 << 20).unwrap();
    };
    let told = || {
        let vdevs = status(&house, "tank").vdevs;
        let group = |at: usize| {
            let members: Vec<u64> = vdevs[at].children.iter().map(|vdev| vdev.expandsize >> 20).collect();
            (vdevs[at].expandsize >> 20, members)
        };
        let pools = house.host().call(&caller(), PoolList::default()).unwrap();
        let pool = pools[0].properties["expandsize"].value.parse::<u64>().unwrap_or(0) >> 20;
        (pool, group(0), group(1))
    };
    assert_eq!(told(), (0, (0, vec![0, 0]), (0, vec![0, 0, 0])));
    // A mirror gains what both have: as in ZFS the pool gains nothing by one of them.
    grow("a.img");
    assert_eq!(told(), (0, (0, vec![64, 0]), (0, vec![0, 0, 0])));
    grow("b.img");
    assert_eq!(told(), (64, (64, vec![64, 64]), (0, vec![0, 0, 0])));
    grow("d.img");
    assert_eq!(told(), (128, (64, vec![64, 64]), (64, vec![0, 64, 0])));
    let devices = ["a.img", "b.img", "d.img"].map(|image| house.folder.join(image)).to_vec();
    let request = PoolOnline { name: "tank".into(), devices, expand: true };
    house.host().call(&caller(), request).unwrap();
    assert_eq!(told(), (0, (0, vec![0, 0]), (0, vec![0, 0, 0])));
}

#[test]
fn a_half_keeps_the_properties_that_it_is_given() {
    let house = House::new("split-properties");
    let vdevs = vec![group(&house, VdevClass::Main, VdevKind::Mirror, &["a.img", "b.img"])];
    house.create_pool(PoolCreate { vdevs, ..house.create_request("tank", "a.img") }).unwrap();
    let split = |set: &[(&str, &str)]| {
        let request = PoolSplit {
            name: "tank".into(),
            new_name: "half".into(),
            devices: Vec::new(),
            dry_run: false,
            properties: given(set),
        };
        let Request::PoolSplit(request) = check(Request::PoolSplit(request))? else { unreachable!() };
        house.host().call(&caller(), request)
    };
    for (refused, code) in [
        (("autoexpand", "perhaps"), Code::PropValue),
        (("size", "7"), Code::PropReadonly),
        (("altroot", "/x"), Code::PropCreation),
        (("nonsense", "7"), Code::PropUnknown),
        (("feature@nonsense", "enabled"), Code::PropUnknown),
    ] {
        assert_eq!(split(&[refused]).unwrap_err().code, code, "{}", refused.0);
    }
    assert_eq!(status(&house, "tank").vdevs[0].children.len(), 2, "nothing was begun");
    let done = split(&[("comment", "the other half"), ("autoexpand", "on")]).unwrap();
    assert_eq!(done.warnings, []);
    house.import("half", None).unwrap();
    let pools = house.host().call(&caller(), PoolList::default()).unwrap();
    let value = |pool: usize, name: &str| pools[pool].properties.get(name).map(|value| value.value.clone());
    assert_eq!((pools[0].name.as_str(), pools[1].name.as_str()), ("half", "tank"));
    assert_eq!(value(0, "comment").as_deref(), Some("the other half"));
    assert_eq!(value(0, "autoexpand").as_deref(), Some("on"));
    assert_ne!(value(1, "comment").as_deref(), Some("the other half"), "of that half alone");
}

fn given(set: &[(&str, &str)]) -> Properties {
    set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn with_features(
    house: &House,
    no_features: bool,
    set: &[(&str, &str)],
    root: &[(&str, &str)],
) -> PoolCreate {
    let (properties, fs_properties) = (given(set), given(root));
    PoolCreate { no_features, properties, fs_properties, ..house.create_request("tank", "a.img") }
}

#[test]
fn a_new_pool_does_without_the_features_that_are_disabled() {
    let mut house = House::new("features");
    let state = |house: &House, feature: &str| {
        let pools = house.host().call(&caller(), PoolList::default()).unwrap();
        pools[0].properties[&format!("feature@{feature}")].value.clone()
    };
    let refused = |no_features: bool, set: &[(&str, &str)], root: &[(&str, &str)]| {
        house.create_pool(with_features(&house, no_features, set, root)).unwrap_err().code
    };
    assert_eq!(refused(false, &[("feature@zstd", "active")], &[]), Code::PropValue);
    assert_eq!(refused(false, &[("feature@relocation", "disabled")], &[]), Code::PropValue);
    assert_eq!(refused(false, &[("feature@redundancy", "disabled")], &[]), Code::PropUnknown);
    assert_eq!(refused(true, &[], &[("compression", "zstd")]), Code::PoolFeature);
    assert_eq!(
        refused(false, &[("feature@block_sharing", "disabled")], &[("dedup", "on")]),
        Code::PoolFeature
    );
    let bytes = std::fs::read(house.folder.join("a.img")).unwrap();
    assert!(bytes.iter().all(|byte| *byte == 0), "nothing was written");
    let set = [("feature@zstd", "enabled"), ("comment", "old")];
    house.create_pool(with_features(&house, true, &set, &[])).unwrap();
    for feature in ["encryption", "overlays", "raw_datasets", "manifests", "uneven_devices"] {
        assert_eq!(state(&house, feature), "disabled", "{feature}");
    }
    // Functions that every pool of ZFS has are no features there.
    let kept = ["zstd", "relocation", "snapshots", "clones", "volumes", "intent_log", "owner_accounting"];
    assert!(kept.into_iter().all(|feature| state(&house, feature) != "disabled"));
    house.create_fs("tank/z", &[("compression", "zstd")], None).unwrap();
    house.host().call(&caller(), PoolDestroy { name: "tank".into(), force: false }).unwrap();
    let set = [("feature@zstd", "enabled"), ("feature@snapshots", "disabled")];
    house.create_pool(with_features(&house, true, &set, &[])).unwrap();
    assert_eq!(state(&house, "snapshots"), "disabled");
    house.create_fs("tank/z", &[("compression", "zstd")], None).unwrap();
    let snapshot = |house: &House| {
        let names = vec!["tank/z@a".into()];
        let request = FsSnapshot { names, recursive: false, properties: Properties::new() };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };
    assert_eq!(snapshot(&house), Err(Code::PoolFeature));
    house.restart();
    assert_eq!(house.get("tank/z", "compression"), "zstd");
    let properties = given(&[("feature@snapshots", "enabled")]);
    house.host().call(&caller(), PoolSet { name: "tank".into(), properties, vdev: None }).unwrap();
    snapshot(&house).unwrap();
    house.host().call(&caller(), PoolDestroy { name: "tank".into(), force: false }).unwrap();
    // One by one.
    let set = [("feature@encryption", "disabled"), ("feature@zstd", "enabled")];
    house.create_pool(with_features(&house, false, &set, &[])).unwrap();
    assert_eq!(state(&house, "encryption"), "disabled");
    assert_ne!(state(&house, "snapshots"), "disabled");
    let on = [("encryption", "on"), ("keyformat", "passphrase")];
    let refused = house.create_fs("tank/p", &on, Some(passphrase("12345678"))).unwrap_err();
    assert_eq!(refused.code, Code::PoolFeature);
}
