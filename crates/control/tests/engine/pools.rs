//! Pools: create, import, export, destroy, status, events.

use super::*;

#[test]
fn a_pool_is_made_mounted_remembered_exported_and_imported() {
    let mut house = House::new("life");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/home", &[("compression", "zstd-3")], None).unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/home"]);
    assert_eq!(house.get("tank/home", "compression"), "zstd-3");
    house.restart();
    assert_eq!(house.mounted(), ["tank", "tank/home"]);
    assert_eq!(house.get("tank/home", "compression"), "zstd-3");
    house.export("tank", false).unwrap();
    assert!(house.mounted().is_empty());
    assert!(!house.folder.join("home/steadfast/tank").exists(), "folders we made go with the mount");
    house.restart();
    assert!(house.host().call(&caller(), PoolList::default()).unwrap().is_empty());
    let found =
        house.host().call(&caller(), PoolImportScan { search: vec![house.folder.clone()], destroyed: false });
    assert_eq!(found.unwrap().iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["tank"]);
    house.import("tank", None).unwrap();
    assert_eq!(house.import("tank", None).unwrap_err().code, Code::PoolImported);
    assert_eq!(house.mounted(), ["tank", "tank/home"]);
    let past = house.host().call(&caller(), PoolHistory::default()).unwrap();
    assert!(past[0].records.iter().filter(|r| r.text == "zpool test" && r.uid == 7).count() >= 4);
}

#[test]
fn a_pool_whose_device_is_gone_stays_listed_until_it_is_exported() {
    let mut house = House::new("lost");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let (here, gone) = (house.folder.join("a.img"), house.folder.join("gone"));
    house.host().shutdown(false).unwrap();
    house.engine = None;
    std::fs::rename(&here, &gone).unwrap();
    house.start();
    let listed = house.host().call(&caller(), PoolList::default()).unwrap();
    assert_eq!((listed[0].name.as_str(), listed[0].state), ("tank", Health::Unavail));
    let status = house.host().call(&caller(), PoolStatus::default()).unwrap();
    assert_eq!(status[0].messages[0].code, Code::PoolMissing);
    assert_eq!(house.create_fs("tank/x", &[], None).unwrap_err().code, Code::PoolMissing);
    assert_eq!(house.create_pool(house.create_request("tank", "b.img")).unwrap_err().code, Code::PoolExists);
    std::fs::rename(&gone, &here).unwrap();
    // A refused import leaves the pool as it was.
    let import = |set: &[(&str, &str)]| {
        let properties = set.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let request = PoolImport {
            pool: PoolSelector::Name("tank".into()),
            search: vec![house.folder.clone()],
            new_name: None,
            temporary: false,
            rewind: false,
            is_trial: false,
            as_of: None,
            force: false,
            destroyed: false,
            no_mount: false,
            properties: properties.collect(),
            key: None,
            key_of_file: false,
            anchor: None,
            accept_rollback: false,
            accept_lost_anchor: false,
            accept_lost_log: false,
            to_checkpoint: false,
        };
        house.host().call(&caller(), request).map(drop)
    };
    import(&[("readonly", "on"), ("comment", "x")]).unwrap_err();
    import(&[("feature@unheard_of", "enabled")]).unwrap_err();
    assert_eq!(house.create_pool(house.create_request("tank", "b.img")).unwrap_err().code, Code::PoolExists);
    import(&[("comment", "x")]).unwrap();
    assert_eq!(house.mounted(), ["tank"]);
    house.export("tank", false).unwrap();
    import(&[("feature@unheard_of", "enabled")]).unwrap_err();
    let request = LabelClear { device: here, force: false };
    let refused = house.host().call(&caller(), request).unwrap_err().what;
    assert!(refused.ends_with("which was exported"), "{refused}");
}

#[test]
fn a_stop_that_one_pool_prevents_forgets_no_other() {
    let mut house = House::new("stop");
    house.create_pool(house.create_request("other", "a.img")).unwrap();
    house.create_pool(house.create_request("tank", "b.img")).unwrap();
    // A busy mount keeps all mounts as they were.
    house.create_fs("other/x", &[], None).unwrap();
    house.host().call(&caller(), FsUnmount { name: "other/x".into(), force: false }).unwrap();
    let at = Some(house.folder.join("elsewhere"));
    let request = FsMount { name: "other/x".into(), at, options: Vec::new(), overlay: false };
    house.host().call(&caller(), request).unwrap();
    let before = house.mounted();
    *house.stage.busy.lock().unwrap() = vec![house.folder.join("home/steadfast/tank")];
    assert_eq!(house.host().shutdown(false).unwrap_err().code, Code::PoolBusy);
    assert_eq!(house.mounted(), before);
    house.stage.busy.lock().unwrap().clear();
    // A pool that cannot be exported.
    let request = PoolInject {
        name: "tank".into(),
        device: Some(house.folder.join("b.img")),
        command: InjectCommand::Arm(Fault::Eio { on: Calls::Any, when: When::Every(1) }),
        damage_wanted: true,
    };
    house.host().call(&caller(), request).unwrap();
    house.host().shutdown(false).unwrap_err();
    let listed = house.host().call(&caller(), PoolList::default()).unwrap();
    let mut names: Vec<&str> = listed.iter().map(|pool| pool.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["other", "tank"]);
    // The list of remembered pools is written again with the next pool.
    house.create_pool(house.create_request("third", "c.img")).unwrap();
    house.host().shutdown(true).unwrap();
    house.engine = None;
    house.start();
    assert_eq!(house.mounted(), ["other", "other/x", "tank", "third"]);
}

#[test]
fn bad_devices_are_refused_and_nothing_is_written() {
    let house = House::new("devices");
    let refused = |path: PathBuf| {
        let mut request = house.create_request("bad", "unused.img");
        request.vdevs[0].devices = vec![path];
        house.create_pool(request).unwrap_err().code
    };
    assert_eq!(refused(house.folder.join("missing")), Code::VdevMissing);
    assert_eq!(refused(house.folder.clone()), Code::VdevKind);
    File::create(house.folder.join("small")).unwrap().set_len(1 << 20).unwrap();
    assert_eq!(refused(house.folder.join("small")), Code::VdevSmall);
    let ext4 = house.image("ext4.img");
    let mut bytes = vec![0_u8; 2048];
    bytes[1080..1082].copy_from_slice(&[0x53, 0xef]);
    std::os::unix::fs::FileExt::write_all_at(&File::options().write(true).open(&ext4).unwrap(), &bytes, 0)
        .unwrap();
    assert_eq!(refused(ext4.clone()), Code::VdevForeign);
    assert_eq!(std::fs::read(&ext4).unwrap()[..2048], bytes);
    let mut twice = house.create_request("bad", "a.img");
    std::os::unix::fs::symlink(house.image("a.img"), house.folder.join("alias")).unwrap();
    twice.vdevs[0].devices.push(house.folder.join("alias"));
    assert!(matches!(house.create_pool(twice).unwrap_err().code, Code::VdevTwice | Code::VdevInUse));
    house.create_pool(house.create_request("tank", "tank.img")).unwrap();
    let in_use = house.create_pool(house.create_request("bad", "tank.img")).unwrap_err();
    assert!(in_use.code == Code::VdevInUse && in_use.what.contains("'tank'"), "{}", in_use.what);
    house.export("tank", false).unwrap();
    assert_eq!(
        house.create_pool(house.create_request("bad", "tank.img")).unwrap_err().code,
        Code::VdevForeign
    );
    house.import("tank", None).unwrap();
    let mut forced = house.create_request("other", "ext4.img");
    forced.force = true;
    house.create_pool(forced).unwrap();
}

#[test]
fn images_that_hold_no_pool_are_refused_by_import() {
    let house = House::new("images");
    let scan = |name: &str| {
        let search = vec![house.folder.join(name)];
        house
            .host()
            .call(&caller(), PoolImportScan { search, destroyed: false })
            .map_err(|refusal| refusal.code)
    };
    house.image("zeros.img");
    assert_eq!(scan("zeros.img").unwrap_err(), Code::PoolDamaged);
    assert_eq!(scan("missing.img").unwrap_err(), Code::PoolNotFound);
    let random: Vec<u8> =
        (0..70_u64 << 20).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect();
    std::fs::write(house.folder.join("random.img"), random).unwrap();
    assert_eq!(scan("random.img").unwrap_err(), Code::PoolDamaged);
    assert_eq!(house.import("nothing", None).unwrap_err().code, Code::PoolNotFound);

    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.export("tank", false).unwrap();
    let whole = std::fs::read(house.folder.join("a.img")).unwrap();
    // Cut short, and with its second half lost: either is refused, or it is imported because
    // nothing was there.
    File::options().write(true).open(house.folder.join("a.img")).unwrap().set_len(65 << 19).unwrap();
    assert!(house.import("tank", None).is_err());
    std::fs::write(house.folder.join("a.img"), &whole).unwrap();
    house.import("tank", None).unwrap();
}

#[test]
fn writes_are_collected_where_the_property_says_so() {
    let house = House::new("collected");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/db", &[], None).unwrap();
    house.create_fs("tank/db/below", &[], None).unwrap();
    house.create_fs("tank/home", &[("writeback_cache", "off")], None).unwrap();
    let collects = |name: &str| {
        let mounts = house.stage.mounts.lock().unwrap();
        let settings = mounts.values().find(|settings| settings.source == name).expect("mounted");
        collects_writes(settings)
    };
    assert!(collects("tank/db") && collects("tank/db/below") && !collects("tank/home"));
    house.set("tank/db", "writeback_cache", "off").unwrap();
    assert!(!collects("tank/db") && !collects("tank/db/below"), "mounted again");
}

/// Decided at each mount, and shown by `zfs get`.
#[test]
fn a_shared_or_read_only_mount_does_not_collect() {
    let house = House::new("collected-not");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/db", &[("writeback_cache", "on"), ("sharenfs", "on")], None).unwrap();
    let shown = || {
        let request = FsList { names: vec!["tank/db".into()], depth: Some(0) };
        let info = house.host().call(&caller(), request).unwrap().remove(0);
        let mounts = house.stage.mounts.lock().unwrap();
        let asked = mounts.values().find(|settings| settings.source == "tank/db").map(collects_writes);
        let value = &info.properties["writeback_cache"];
        (asked, value.value == "on", value.source == Source::Temporary)
    };
    let anew = |options: &[&str]| {
        let name = || "tank/db".to_owned();
        house.host().call(&caller(), FsUnmount { name: name(), force: false }).unwrap();
        assert_eq!(shown(), (None, true, false), "the property, while it is not mounted");
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        house.host().call(&caller(), FsMount { name: name(), at: None, options, overlay: false }).unwrap();
    };
    let (collects, does_not) = ((Some(true), true, false), (Some(false), false, true));
    assert_eq!(shown(), does_not, "shared when it was made");
    house.set("tank/db", "sharenfs", "off").unwrap();
    assert_eq!(shown(), does_not, "not mounted anew");
    anew(&[]);
    assert_eq!(shown(), collects);
    house.set("tank/db", "sharenfs", "on").unwrap();
    assert_eq!(shown(), collects, "it goes on");
    anew(&[]);
    assert_eq!(shown(), does_not);
    house.set("tank/db", "sharenfs", "off").unwrap();
    anew(&["ro"]);
    assert_eq!(shown(), does_not);
    anew(&[]);
    assert_eq!(shown(), collects);
    house.set("tank/db", "readonly", "on").unwrap();
    assert!(shown().1, "the mount in use is what it was");
    anew(&[]);
    assert_eq!(shown(), does_not);
    house.set("tank/db", "readonly", "off").unwrap();
    assert!(!shown().1, "nor is this mounted anew");
    anew(&["strictatime"]);
    assert_eq!(shown(), does_not, "each read counts");
    anew(&[]);
    assert_eq!(shown(), collects);
    house.set("tank/db", "relatime", "off").unwrap();
    assert_eq!(shown(), does_not, "mounted anew, since it is not in use");
    house.set("tank/db", "relatime", "on").unwrap();
    assert!(!shown().1, "this one is not");
    house.set("tank/db", "atime", "off").unwrap();
    house.set("tank/db", "relatime", "off").unwrap();
    anew(&[]);
    assert_eq!(shown(), collects, "no read counts");
    house.set("tank/db", "atime", "on").unwrap();
    assert_eq!(shown(), does_not, "each does again");
}

#[test]
fn a_destroyed_pool_is_told_from_a_damaged_one_and_comes_back() {
    let house = House::new("undestroy");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    house.host().call(&caller(), PoolDestroy { name: "tank".into(), force: false }).unwrap();
    let scan = |destroyed| {
        let request = PoolImportScan { search: vec![house.folder.clone()], destroyed };
        house.host().call(&caller(), request).unwrap()
    };
    assert!(scan(false).is_empty());
    let found = scan(true);
    assert_eq!((found[0].name.as_str(), found.len()), ("tank", 1));
    assert_eq!(found[0].message.as_ref().unwrap().code, Code::PoolDestroyed);
    assert_eq!(house.import("tank", None).unwrap_err().code, Code::PoolDestroyed);
    let request = PoolImport {
        pool: PoolSelector::Name("tank".into()),
        search: vec![house.folder.clone()],
        new_name: None,
        temporary: false,
        rewind: false,
        is_trial: false,
        as_of: None,
        force: false,
        destroyed: true,
        no_mount: false,
        properties: Properties::new(),
        key: None,
        key_of_file: false,
        anchor: None,
        accept_rollback: false,
        accept_lost_anchor: false,
        accept_lost_log: false,
        to_checkpoint: false,
    };
    house.host().call(&caller(), request).unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/a"]);
    house.export("tank", false).unwrap();
    assert!(scan(true).is_empty(), "it lives again");
}

#[test]
fn a_pool_is_taken_back_to_its_checkpoint() {
    let house = House::new("checkpoint");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    let checkpoint =
        |discard| house.host().call(&caller(), PoolCheckpoint { name: "tank".into(), discard }).map(drop);
    let value = || {
        let listed = house.host().call(&caller(), PoolList::default()).unwrap().remove(0);
        listed.properties["checkpoint"].value.clone()
    };
    let status = || house.host().call(&caller(), PoolStatus::default()).unwrap().remove(0);
    assert_eq!(checkpoint(true).unwrap_err().code, Code::CheckpointNone);
    assert_eq!((value().as_str(), status().checkpoint), ("-", None));
    checkpoint(false).unwrap();
    assert_eq!(checkpoint(false).unwrap_err().code, Code::CheckpointExists);
    assert_eq!(status().checkpoint.map(|kept| kept.bytes.to_string()), Some(value()));
    let (name, no) = ("tank/a".to_owned(), false);
    let gone = FsDestroy { name, recursive: no, clones: no, force: no, dry_run: no };
    house.host().call(&caller(), gone).unwrap();
    house.create_fs("tank/b", &[], None).unwrap();
    house.export("tank", false).unwrap();
    let back = PoolImport { to_checkpoint: true, ..house.import_request("tank", None) };
    house.host().call(&caller(), back.clone()).unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/a"]);
    assert_eq!((value().as_str(), status().checkpoint), ("-", None));
    house.export("tank", false).unwrap();
    assert_eq!(house.host().call(&caller(), back).unwrap_err().code, Code::CheckpointNone);
    house.import("tank", None).unwrap();
    checkpoint(false).unwrap();
    checkpoint(true).unwrap();
    assert_eq!(value(), "-");
}

#[test]
fn labels_are_cleared_only_where_nobody_needs_them() {
    let house = House::new("labelclear");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let clear = |force| {
        let request = LabelClear { device: house.folder.join("a.img"), force };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };
    assert_eq!(clear(true), Err(Code::VdevInUse));
    house.export("tank", false).unwrap();
    assert_eq!(clear(false), Err(Code::VdevForeign));
    clear(true).unwrap();
    assert_eq!(clear(true), Err(Code::PoolDamaged), "there is no label any more");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
}

#[test]
fn counters_and_events_tell_what_was_done() {
    let house = House::new("counters");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let look = || house.host().call(&caller(), PoolIostat::default()).unwrap().remove(0);
    let before = look();
    house.create_fs("tank/a", &[], None).unwrap();
    let after = look();
    let (old, new) = (&before.devices[0], &after.devices[0]);
    assert!(after.age_ns > before.age_ns);
    assert!(new.write.calls > old.write.calls && new.write.bytes > old.write.bytes);
    assert!(new.flush.calls >= old.flush.calls + 3, "a commit flushes three times");
    for count in [&new.read, &new.write, &new.flush, &new.trim] {
        assert_eq!(count.histogram.iter().sum::<u64>(), count.calls);
    }
    house.set("tank/a", "compression", "lz4").unwrap();
    house.export("tank", false).unwrap();
    house.import("tank", None).unwrap();
    let told = classes(&house);
    for class in ["pool_create", "history_event", "property_change", "pool_export", "pool_import"] {
        let class = format!("sysevent.fs.steadfast.{class}");
        assert!(told.contains(&class), "{class} is not among {told:?}");
    }
    let of = |name: &str| {
        let request = PoolEvents { name: Some(name.into()), after: 0 };
        house.host().call(&caller(), request).map(|events| events.len()).map_err(|refusal| refusal.code)
    };
    assert_eq!(of("tank"), Ok(told.len()));
    assert_eq!(of("pond"), Err(Code::PoolAbsent));
    let gone = house.host().call(&caller(), PoolEventsClear {}).unwrap();
    assert_eq!(gone.touched.len(), told.len());
    assert!(classes(&house).is_empty());
}

#[test]
fn who_waits_is_answered_when_it_is_over() {
    let house = House::new("waits");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let ask = |name: &str, until_over: &[&str]| {
        let until_over = until_over.iter().map(|name| (*name).to_owned()).collect();
        // Longer than anybody has to wait for one answer.
        let request =
            PoolActivities { name: name.into(), until_over, patience_ms: u64::MAX, devices: Vec::new() };
        house.host().call(&caller(), request)
    };
    let now = ask("tank", &["scrub", "resilver", "trim", "no such thing"]).unwrap();
    let left = ["scrub", "resilver", "trim", "no such thing"].map(|name| now.left(name));
    assert_eq!(left, [0; 4], "nothing goes on");
    let scrub = PoolScrub { name: "tank".into(), command: ScrubCommand::Start };
    house.host().call(&caller(), scrub).unwrap();
    while ask("tank", &["scrub"]).unwrap().left("scrub") > 0 {}
    let report = house.host().call(&caller(), PoolStatus::default()).unwrap().remove(0);
    assert_eq!(report.scan.map(|scan| scan.state), Some("finished".to_owned()));
    assert_eq!(ask("pond", &["scrub"]).map_err(|refusal| refusal.code), Err(Code::PoolAbsent));
}

#[test]
fn room_is_the_same_in_iostat_list_and_status() {
    let house = House::new("rooms");
    let mut request = house.create_request("tank", "a.img");
    request.vdevs[0].devices.extend(["b.img", "c.img"].map(|image| house.image(image)));
    request.vdevs[0].kind = VdevKind::Raidz1;
    house.create_pool(request).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    let property = |name: &str| {
        let listed = house.host().call(&caller(), PoolList::default()).unwrap().remove(0);
        listed.properties[name].value.parse::<u64>().unwrap()
    };
    let look = || {
        let io = house.host().call(&caller(), PoolIostat::default()).unwrap().remove(0);
        let request = PoolStatus { names: vec!["tank".into()] };
        (io, house.host().call(&caller(), request).unwrap().remove(0).vdevs.remove(0))
    };
    // Of one moment: commits may be made meanwhile.
    let (io, group) = loop {
        let before = property("allocated");
        let told = look();
        if told.0.allocated == before && property("allocated") == before {
            break told;
        }
    };
    assert_eq!(io.free, property("size") - io.allocated);
    let told = &io.groups[0];
    assert_eq!((io.groups.len(), &told.name, told.allocated), (1, &group.name, group.allocated));
    assert_eq!(told.free, group.size - group.allocated);
    assert!(io.devices.iter().all(|device| device.group == group.name), "{:?}", io.devices);
}

#[test]
fn a_pool_in_use_is_imported_by_force_unless_it_is_remembered() {
    let mut house = House::new("ours");
    let other = House::new("theirs");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let import = |house: &House, path: PathBuf, new_name: Option<&str>, force: bool| {
        let request = PoolImport {
            pool: PoolSelector::Name("tank".into()),
            search: vec![path],
            new_name: new_name.map(str::to_owned),
            temporary: false,
            rewind: false,
            is_trial: false,
            as_of: None,
            force,
            destroyed: false,
            no_mount: true,
            properties: Properties::new(),
            key: None,
            key_of_file: false,
            anchor: None,
            accept_rollback: false,
            accept_lost_anchor: false,
            accept_lost_log: false,
            to_checkpoint: false,
        };
        house.host().call(&caller(), request).map_err(|refusal| refusal.code)
    };
    let image = house.folder.join("a.img");
    let copy = house.folder.join("copy.img");
    std::fs::copy(&image, &copy).unwrap();
    // A pool is there once, by its image or a copy, whatever its name.
    assert_eq!(import(&house, image.clone(), Some("more"), true).unwrap_err(), Code::PoolImported);
    assert_eq!(import(&house, copy.clone(), Some("more"), true).unwrap_err(), Code::PoolImported);
    // Another daemon of this host: the lock says that it is in use, and the label of the copy.
    assert_eq!(import(&other, image.clone(), None, true).unwrap_err(), Code::VdevInUse);
    assert_eq!(import(&other, copy.clone(), None, false).unwrap_err(), Code::PoolActive);
    import(&other, copy, None, true).unwrap();
    other.export("tank", false).unwrap();
    // Killed: the lock is gone, and the label says that somebody did not export it.
    house.engine = None;
    assert_eq!(import(&other, image.clone(), None, false).unwrap_err(), Code::PoolActive);
    let scan = PoolImportScan { search: vec![image.clone()], destroyed: false };
    let found = other.host().call(&caller(), scan).unwrap();
    assert_eq!(found[0].message.as_ref().map(|message| message.code), Some(Code::PoolActive));
    // The daemon that held it takes it again.
    house.start();
    assert_eq!(house.mounted(), ["tank"]);
}
