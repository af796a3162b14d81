//! File systems and snapshots: destroy, rename, promote, what mounts learn of it.

use super::*;

#[test]
fn destroying_takes_children_only_when_told_to() {
    let house = House::new("destroy");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    house.create_fs("tank/a/b", &[], None).unwrap();
    let destroy = |name: &str, recursive| {
        let request = FsDestroy { name: name.into(), recursive, clones: false, force: false, dry_run: false };
        house.host().call(&caller(), request)
    };
    assert_eq!(destroy("tank", false).unwrap_err().code, Code::FsRoot);
    assert_eq!(destroy("tank/a", false).unwrap_err().code, Code::FsChildren);
    assert_eq!(destroy("tank/none", true).unwrap_err().code, Code::FsAbsent);
    assert_eq!(destroy("tank/a", true).unwrap().touched, ["tank/a/b", "tank/a"]);
    assert_eq!(house.mounted(), ["tank"]);
    house.host().call(&caller(), PoolDestroy { name: "tank".into(), force: false }).unwrap();
    assert_eq!(house.import("tank", None).unwrap_err().code, Code::PoolDestroyed);
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
}

#[test]
fn a_file_system_belongs_to_whom_it_was_made_for() {
    let mut house = House::new("owner");
    house.create_pool(house.create_request("mine", "a.img")).unwrap();
    house.create_fs("mine/docs", &[], None).unwrap();
    house
        .create_fs(
            "mine/sealed",
            &[("encryption", "on"), ("keyformat", "passphrase")],
            Some(passphrase("12345678")),
        )
        .unwrap();
    let expected = ["mine", "mine/docs", "mine/sealed"].map(|name| (name.to_owned(), (7, 7)));
    assert_eq!(*house.stage.owners.lock().unwrap(), BTreeMap::from(expected));
    // And stays theirs.
    house.stage.owners.lock().unwrap().clear();
    house.restart();
    assert_eq!(house.stage.owners.lock().unwrap().get("mine/docs"), Some(&(7, 7)));
}

#[test]
fn file_systems_move_with_what_is_below_them() {
    let mut house = House::new("rename");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[("compression", "zstd")], None).unwrap();
    house.create_fs("tank/a/b", &[], None).unwrap();
    house.create_fs("tank/young", &[("atime", "off")], None).unwrap();
    let rename = |house: &House, name: &str, to: &str, parents: bool, no_remount: bool| {
        let (name, to) = (name.to_owned(), to.to_owned());
        let request = FsRename { name, to, parents, force: false, no_remount };
        house.host().call(&caller(), request)
    };
    let refused =
        |house: &House, name: &str, to: &str| rename(house, name, to, false, false).unwrap_err().code;
    assert_eq!(refused(&house, "tank", "tank/x"), Code::FsPlace);
    assert_eq!(refused(&house, "tank/a", "tank"), Code::FsPlace);
    assert_eq!(refused(&house, "tank/a", "pond/a"), Code::FsPlace);
    assert_eq!(refused(&house, "tank/a", "tank/a/b/c"), Code::FsPlace);
    assert_eq!(refused(&house, "tank/a", "tank/young"), Code::FsExists);
    assert_eq!(refused(&house, "tank/a", "tank/no/a"), Code::FsParent);
    assert_eq!(refused(&house, "tank/none", "tank/x"), Code::FsAbsent);
    assert_eq!(
        house.mounted(),
        ["tank", "tank/a", "tank/a/b", "tank/young"],
        "what refuses leaves all as it was"
    );
    // Below a dataset that is younger than itself.
    rename(&house, "tank/a", "tank/young/a", false, false).unwrap();
    let moved = ["tank", "tank/young", "tank/young/a", "tank/young/a/b"];
    assert_eq!(house.mounted(), moved);
    assert_eq!(house.get("tank/young/a/b", "compression"), "zstd");
    assert_eq!(house.get("tank/young/a/b", "atime"), "off");
    house.restart();
    assert_eq!(house.mounted(), moved);
    rename(&house, "tank/young/a/b", "tank/x/y/b", true, false).unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/x", "tank/x/y", "tank/x/y/b", "tank/young", "tank/young/a"]);
    // Mounts that stay are known by the new name.
    rename(&house, "tank/x/y", "tank/z", false, true).unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/x", "tank/x/y", "tank/x/y/b", "tank/young", "tank/young/a"]);
    let unmount = FsUnmount { name: "tank/z/b".into(), force: false };
    house.host().call(&caller(), unmount).unwrap();
    assert_eq!(house.get("tank/z", "mounted"), "yes");
    house.export("tank", false).unwrap();
    house.import("tank", None).unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/x", "tank/young", "tank/young/a", "tank/z", "tank/z/b"]);
}

#[test]
fn a_verb_that_changes_snapshots_is_answered_when_the_mounts_know() {
    let house = House::new("notes");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    for name in ["tank/a", "tank/a/b", "tank/ab"] {
        house.create_fs(name, &[], None).unwrap();
    }
    let touched = |house: &House| {
        let base = house.folder.join("home/steadfast");
        let take = |list: &Mutex<Vec<PathBuf>>| std::mem::take(&mut *list.lock().unwrap());
        let (noted, told) = (take(&house.stage.noted), take(&house.stage.told));
        assert_eq!(noted, told, "each that was told is waited for");
        noted.iter().map(|at| at.strip_prefix(&base).unwrap().display().to_string()).collect::<Vec<_>>()
    };
    let snapshot = |name: &str, recursive| FsSnapshot {
        names: vec![name.into()],
        recursive,
        properties: Properties::new(),
    };
    house.host().call(&caller(), snapshot("tank/a@one", true)).unwrap();
    assert_eq!(touched(&house), ["tank/a", "tank/a/b"], "each once, and no other");
    house.host().call(&caller(), snapshot("tank/a/b@two", false)).unwrap();
    assert_eq!(touched(&house), ["tank/a/b"]);
    house.set("tank", "snapdir", "visible").unwrap();
    assert_eq!(touched(&house), ["tank", "tank/a", "tank/a/b", "tank/ab"]);

    // A deferred destruction happens with the last hold, and with the last clone.
    let destroy_later = |name: &str, snapshots: &str| FsSnapshotDestroy {
        name: name.into(),
        snapshots: snapshots.into(),
        recursive: false,
        clones: false,
        force: false,
        defer: true,
        dry_run: false,
    };
    let hold = |release| FsHold {
        names: vec!["tank/a/b@two".into()],
        tag: "keep".into(),
        recursive: false,
        release,
    };
    house.host().call(&caller(), hold(false)).unwrap();
    house.host().call(&caller(), destroy_later("tank/a/b", "two")).unwrap();
    assert_eq!(touched(&house), ["tank/a/b"]);
    house.host().call(&caller(), hold(true)).unwrap();
    assert_eq!(touched(&house), ["tank/a/b"], "it went with its last tag");
    house.host().call(&caller(), snapshot("tank/ab@of", false)).unwrap();
    let clone = FsClone {
        snapshot: "tank/ab@of".into(),
        name: "tank/c".into(),
        parents: false,
        no_mount: true,
        properties: Properties::new(),
    };
    house.host().call(&caller(), clone).unwrap();
    house.host().call(&caller(), destroy_later("tank/ab", "of")).unwrap();
    touched(&house);
    let destroy =
        FsDestroy { name: "tank/c".into(), recursive: false, clones: false, force: false, dry_run: false };
    house.host().call(&caller(), destroy).unwrap();
    assert_eq!(touched(&house), ["tank/ab"], "it went with its last clone");
}

#[test]
fn what_is_refused_destroys_nothing_and_leaves_mounted_what_was() {
    let house = House::new("all-or-none");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    for name in ["tank/a@one", "tank/a@two"] {
        let request =
            FsSnapshot { names: vec![name.into()], recursive: false, properties: Properties::new() };
        house.host().call(&caller(), request).unwrap();
    }
    for name in ["tank/c", "tank/d"] {
        let request = FsClone {
            snapshot: "tank/a@two".into(),
            name: name.into(),
            parents: false,
            no_mount: false,
            properties: Properties::new(),
        };
        house.host().call(&caller(), request).unwrap();
    }
    // One is not where its mountpoint says.
    house.host().call(&caller(), FsUnmount { name: "tank/d".into(), force: false }).unwrap();
    let at = Some(house.folder.join("elsewhere"));
    let request = FsMount { name: "tank/d".into(), at, options: Vec::new(), overlay: false };
    house.host().call(&caller(), request).unwrap();
    let before = house.mounted();
    assert_eq!(before.len(), 4);
    let busy = |name: Option<&str>| {
        let base = house.folder.join("home/steadfast");
        *house.stage.busy.lock().unwrap() = name.map(|name| base.join(name)).into_iter().collect();
    };
    let hold = |release| {
        let request =
            FsHold { names: vec!["tank/a@two".into()], tag: "keep".into(), recursive: false, release };
        house.host().call(&caller(), request).unwrap();
    };
    let roll_back = || {
        let name = "tank/a@one".into();
        let request = FsRollback { name, destroy_younger: true, clones: true, force: false };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };

    // The last of them that would be left is busy.
    busy(Some("tank/c"));
    let request =
        FsDestroy { name: "tank/a".into(), recursive: true, clones: true, force: false, dry_run: false };
    assert_eq!(house.host().call(&caller(), request).unwrap_err().code, Code::FsBusy);
    assert_eq!(house.mounted(), before);
    busy(Some("tank/a"));
    assert_eq!(roll_back(), Err(Code::FsBusy));
    assert_eq!(house.mounted(), before);
    // Something keeps the snapshot that they are clones of.
    busy(None);
    hold(false);
    assert_eq!(roll_back(), Err(Code::SnapshotHeld));
    let request = FsSnapshotDestroy {
        name: "tank/a".into(),
        snapshots: "two".into(),
        recursive: false,
        clones: true,
        force: false,
        defer: false,
        dry_run: false,
    };
    assert_eq!(house.host().call(&caller(), request).unwrap_err().code, Code::SnapshotHeld);
    assert_eq!(house.mounted(), before);
    hold(true);
    assert_eq!(roll_back(), Ok(()));
    assert_eq!(house.mounted(), ["tank", "tank/a"]);
}

#[test]
fn what_went_with_its_last_clone_is_not_missed() {
    let house = House::new("deferred");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    let snapshot = |name: &str| {
        let request =
            FsSnapshot { names: vec![name.into()], recursive: false, properties: Properties::new() };
        house.host().call(&caller(), request).unwrap();
    };
    let destroy = |defer: bool| {
        let request = FsSnapshotDestroy {
            name: "tank/a".into(),
            snapshots: "two".into(),
            recursive: false,
            clones: !defer,
            force: false,
            defer,
            dry_run: false,
        };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.what)
    };
    snapshot("tank/a@one");
    for rolls_back in [false, true] {
        snapshot("tank/a@two");
        let clone = FsClone {
            snapshot: "tank/a@two".into(),
            name: "tank/c".into(),
            parents: false,
            no_mount: false,
            properties: Properties::new(),
        };
        house.host().call(&caller(), clone).unwrap();
        assert_eq!(destroy(true), Ok(()), "it goes with its clone");
        if rolls_back {
            let name = "tank/a@one".into();
            let request = FsRollback { name, destroy_younger: true, clones: true, force: false };
            house.host().call(&caller(), request).unwrap();
        } else {
            assert_eq!(destroy(false), Ok(()));
        }
        assert_eq!(house.mounted(), ["tank", "tank/a"]);
        assert_eq!(house.get("tank/a", "snapshot_count"), "1");
    }
}

#[test]
fn parents_that_were_made_for_what_is_refused_go_again() {
    let house = House::new("parents");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    let request =
        FsSnapshot { names: vec!["tank/a@one".into()], recursive: false, properties: Properties::new() };
    house.host().call(&caller(), request).unwrap();
    // Room for the parent, and for nothing below it.
    house.set("tank", "filesystem_limit", "2").unwrap();
    let create = FsCreate {
        name: "tank/x/y".into(),
        parents: true,
        no_mount: false,
        dry_run: false,
        properties: Properties::new(),
        key: None,
        volume: None,
    };
    assert_eq!(house.host().call(&caller(), create).unwrap_err().code, Code::PropCount);
    let clone = FsClone {
        snapshot: "tank/a@one".into(),
        name: "tank/x/y".into(),
        parents: true,
        no_mount: false,
        properties: Properties::new(),
    };
    assert_eq!(house.host().call(&caller(), clone).unwrap_err().code, Code::PropCount);
    let listed = house.host().call(&caller(), FsList { names: vec!["tank".into()], depth: None }).unwrap();
    let names: Vec<&str> = listed.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["tank", "tank/a"]);
    assert_eq!(house.mounted(), ["tank", "tank/a"]);
}

#[test]
fn all_below_the_root_of_a_pool_is_destroyed_at_once() {
    let house = House::new("root-emptied");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        house.create_fs(name, &[], None).unwrap();
    }
    let take = FsSnapshot { names: vec!["tank@s".into()], recursive: true, properties: Properties::new() };
    house.host().call(&caller(), take).unwrap();
    let destroy = |recursive, dry_run| {
        let name = "tank".to_owned();
        let request = FsDestroy { name, recursive, clones: false, force: false, dry_run };
        house.host().call(&caller(), request).map(|outcome| outcome.touched)
    };
    assert_eq!(destroy(false, false).unwrap_err().code, Code::FsRoot);
    let all = ["tank/a", "tank/a/b", "tank/a/b@s", "tank/a@s", "tank/c", "tank/c@s", "tank@s"];
    for dry_run in [true, false] {
        let mut gone = destroy(true, dry_run).unwrap();
        gone.sort();
        assert_eq!(gone, all);
    }
    assert_eq!(house.mounted(), ["tank"]);
    assert_eq!(destroy(true, false).unwrap(), Vec::<String>::new());
    house.create_fs("tank/a", &[], None).unwrap();
}
