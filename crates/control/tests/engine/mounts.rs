//! Where file systems are mounted and with what, and what a change of properties or names does to
//! that.

use super::*;
use steadfast_control::steps::Steps;
use steadfast_control::wire::{ANSWER_BYTES_MAX, parse_answer, read_line};

#[test]
fn mountpoints_must_be_empty_and_follow_the_properties() {
    let house = House::new("mountpoints");
    let full = house.folder.join("full");
    std::fs::create_dir_all(full.join("something")).unwrap();
    let mut request = house.create_request("tank", "a.img");
    request.mountpoint = Some(full.display().to_string());
    assert_eq!(house.create_pool(request.clone()).unwrap_err().code, Code::FsMountpoint);
    request.mountpoint = Some("none".into());
    house.create_pool(request).unwrap();
    assert!(house.mounted().is_empty());
    house.create_fs("tank/a", &[], None).unwrap();
    assert!(house.mounted().is_empty(), "none is inherited");
    let here = house.folder.join("here");
    house.set("tank", "mountpoint", &here.display().to_string()).unwrap();
    house.set("tank", "overlay", "off").unwrap();
    assert_eq!(house.mounted(), [here.display().to_string(), here.join("a").display().to_string()]);
    assert_eq!(
        house.set("tank", "mountpoint", &full.display().to_string()).unwrap_err().code,
        Code::FsMountpoint
    );
    assert_eq!(house.get("tank", "mountpoint"), here.display().to_string());
    house.set("tank/a", "readonly", "on").unwrap();
    assert!(house.stage.mounts.lock().unwrap()[&here.join("a")].read_only);
    house.set("tank/a", "canmount", "off").unwrap();
    assert_eq!(house.mounted(), [here.display().to_string()]);
    house.stage.busy.lock().unwrap().push(here.clone());
    assert_eq!(house.set("tank", "mountpoint", "none").unwrap_err().code, Code::FsBusy);
    assert_eq!(house.get("tank", "mountpoint"), here.display().to_string());
    assert_eq!(house.export("tank", false).unwrap_err().code, Code::PoolBusy);
    assert_eq!(house.host().shutdown(false).unwrap_err().code, Code::PoolBusy);
    assert_eq!(house.mounted(), [here.display().to_string()], "what refuses leaves all as it was");
    house.export("tank", true).unwrap();
}

#[test]
fn a_mount_inside_a_mount_that_cannot_be_is_told_with_the_way_out() {
    let house = House::new("nested");
    house.stage.alone.store(true, Ordering::SeqCst);
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let outcome = house.create_fs("tank/a", &[], None).unwrap();
    assert_eq!(outcome.warnings[0].code, Code::FuseNested);
    let elsewhere = house.folder.join("elsewhere").display().to_string();
    assert!(house.set("tank/a", "mountpoint", &elsewhere).unwrap().warnings.is_empty());
    assert_eq!(house.mounted().len(), 2);
}

#[test]
fn a_file_system_is_listed_where_it_is_mounted() {
    let house = House::new("legacy");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/leg", &[("mountpoint", "legacy")], None).unwrap();
    let at = house.folder.join("there");
    let mount = |options: &[&str]| {
        let options = options.iter().map(|o| (*o).to_owned()).collect();
        let request = FsMount { name: "tank/leg".into(), at: Some(at.clone()), options, overlay: true };
        house.host().call(&caller(), request)
    };
    assert_eq!(mount(&["sideways"]).unwrap_err().code, Code::PropValue);
    mount(&["ro", "noexec"]).unwrap();
    let settings = house.stage.mounts.lock().unwrap()[&at].clone();
    assert!(settings.read_only && !settings.exec && settings.setuid);
    let listed = house.host().call(&caller(), FsList::default()).unwrap();
    assert_eq!(listed[1].mounted_at.as_deref(), Some(at.as_path()));
    assert_eq!(listed[1].value("mountpoint"), "legacy");
    assert_eq!(mount(&[]).unwrap_err().code, Code::FsMounted);
    mount(&["remount", "rw", "nosuid"]).unwrap();
    let settings = house.stage.mounts.lock().unwrap()[&at].clone();
    assert!(!settings.read_only && settings.exec && !settings.setuid);
    house.host().call(&caller(), FsUnmount { name: "tank/leg".into(), force: false }).unwrap();
    assert_eq!(mount(&["remount", "ro"]).unwrap_err().code, Code::FsNotMounted);
}

#[test]
fn what_is_mounted_stays_so_when_options_and_places_are_set() {
    let house = House::new("options");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[("canmount", "off")], None).unwrap();
    for (name, canmount) in [("tank/a/x", "on"), ("tank/a/y", "on"), ("tank/a/z", "noauto")] {
        house.create_fs(name, &[("canmount", canmount)], None).unwrap();
    }
    let mount = |name: &str, at: Option<PathBuf>, options: &str| {
        let options = options.split(',').map(str::to_owned).collect();
        let request = FsMount { name: name.into(), at, options, overlay: false };
        house.host().call(&caller(), request).unwrap();
    };
    // One elsewhere than its mountpoint says, one that does not mount by itself.
    house.host().call(&caller(), FsUnmount { name: "tank/a/y".into(), force: false }).unwrap();
    mount("tank/a/y", Some(house.folder.join("elsewhere")), "rw,noexec");
    mount("tank/a/z", None, "ro");
    let before = house.mounted();
    assert_eq!(before.len(), 4);
    // The file system that it is set on is not mounted itself.
    assert!(house.set("tank/a", "atime", "off").unwrap().warnings.is_empty());
    assert_eq!(house.mounted(), before);
    let atimes: Vec<bool> =
        house.stage.mounts.lock().unwrap().values().map(|settings| settings.atime).collect();
    assert_eq!(atimes.iter().filter(|atime| **atime).count(), 1, "only of the top: {atimes:?}");
    let count = |is_it: fn(&MountSettings) -> bool| {
        house.stage.mounts.lock().unwrap().values().filter(|settings| is_it(settings)).count()
    };
    assert_eq!((count(|it| it.read_only), count(|it| !it.exec)), (1, 1), "as they were mounted");
    // A place that is set with what cannot be.
    let place = house.folder.join("place").display().to_string();
    let set = |more: &[(&str, &str)]| {
        let mut properties = Properties::from([("mountpoint".to_owned(), place.clone())]);
        properties.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let request = FsSet { name: "tank/a".into(), properties, no_mount: false };
        let Request::FsSet(request) = check(Request::FsSet(request)).unwrap() else { unreachable!() };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };
    assert_eq!(set(&[("reservation", "10T")]), Err(Code::PropSpace));
    assert_eq!(house.mounted(), before);
    // And with what can: they follow, and what is elsewhere stays there.
    assert_eq!(set(&[]), Ok(()));
    let there: Vec<PathBuf> = house.stage.mounts.lock().unwrap().keys().cloned().collect();
    let at = |name: &str| there.contains(&house.folder.join(name));
    assert!(at("place/x") && at("place/z") && at("elsewhere") && there.len() == 4, "{there:?}");
    assert_eq!((count(|it| it.read_only), count(|it| !it.exec)), (1, 1), "and there too");
    // An option that said what the property said is none.
    house.set("tank/a", "readonly", "on").unwrap();
    assert_eq!((count(|it| it.read_only), count(|it| !it.exec)), (3, 1));
    // A busy mount gets at once the options that the kernel can change, others at its next mount.
    *house.stage.busy.lock().unwrap() = house.stage.mounts.lock().unwrap().keys().cloned().collect();
    assert!(house.set("tank/a", "setuid", "off").unwrap().warnings.is_empty());
    assert_eq!(count(|it| !it.setuid), 3);
    let warnings = house.set("tank/a", "acltype", "off").unwrap().warnings;
    assert_eq!(warnings.iter().map(|told| told.code).collect::<Vec<_>>(), [Code::FsBusy]);
    assert_eq!(count(|it| !it.acl), 0);
}

#[test]
fn what_is_mounted_elsewhere_or_otherwise_stays_so_when_it_is_to_mount_by_itself() {
    let house = House::new("otherwise");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/leg", &[("mountpoint", "legacy")], None).unwrap();
    house.create_fs("tank/b", &[], None).unwrap();
    let there = house.folder.join("there");
    let mount = |name: &str, at: Option<PathBuf>| {
        let request = FsMount { name: name.into(), at, options: vec!["ro".into()], overlay: false };
        house.host().call(&caller(), request).unwrap();
    };
    mount("tank/leg", Some(there.clone()));
    house.host().call(&caller(), FsUnmount { name: "tank/b".into(), force: false }).unwrap();
    mount("tank/b", None);
    let before = house.stage.mounts.lock().unwrap().clone();
    assert_eq!(before.values().filter(|it| it.read_only).count(), 2);
    for value in ["noauto", "on"] {
        for name in ["tank/leg", "tank/b"] {
            assert!(house.set(name, "canmount", value).unwrap().warnings.is_empty());
            assert_eq!(*house.stage.mounts.lock().unwrap(), before, "{name} {value}");
        }
    }
    // A chosen mountpoint is used as chosen; canmount=off prevents any mount.
    let here = house.folder.join("here");
    house.set("tank/leg", "mountpoint", &here.display().to_string()).unwrap();
    let places = |house: &House| house.stage.mounts.lock().unwrap().keys().cloned().collect::<Vec<_>>();
    assert!(places(&house).contains(&here) && !places(&house).contains(&there));
    house.host().call(&caller(), FsUnmount { name: "tank/leg".into(), force: false }).unwrap();
    mount("tank/leg", Some(there));
    house.set("tank/leg", "canmount", "off").unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/b"]);
}

#[test]
fn what_moves_below_parents_that_are_made_for_it_is_mounted_as_it_was() {
    let house = House::new("below");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    for name in ["tank/a", "tank/a/x", "tank/a/y", "tank/a/z"] {
        house.create_fs(name, &[], None).unwrap();
    }
    let unmount = |name: &str| {
        house.host().call(&caller(), FsUnmount { name: name.into(), force: false }).unwrap();
    };
    let rename = |name: &str, to: &str, no_remount: bool| {
        let (name, to) = (name.to_owned(), to.to_owned());
        let request = FsRename { name, to, parents: true, force: false, no_remount };
        assert!(house.host().call(&caller(), request).unwrap().warnings.is_empty());
    };
    let elsewhere = house.folder.join("elsewhere");
    unmount("tank/a/x");
    unmount("tank/a/z");
    let options = vec!["ro".into()];
    let at = Some(elsewhere.clone());
    let request = FsMount { name: "tank/a/x".into(), at, options, overlay: false };
    house.host().call(&caller(), request).unwrap();
    rename("tank/a", "tank/b/c/a", false);
    let elsewhere = elsewhere.display().to_string();
    let mut places = house.mounted();
    places.retain(|place| *place != elsewhere);
    assert_eq!(places, ["tank", "tank/b", "tank/b/c", "tank/b/c/a", "tank/b/c/a/y"]);
    assert!(house.stage.mounts.lock().unwrap()[Path::new(&elsewhere)].read_only);
    // And as it is, where nothing is to be mounted anew.
    rename("tank/b/c/a", "tank/d/a", true);
    let mut places = house.mounted();
    places.retain(|place| *place != elsewhere);
    assert_eq!(places, ["tank", "tank/b", "tank/b/c", "tank/b/c/a", "tank/b/c/a/y", "tank/d"]);
    let listed = house.host().call(&caller(), FsList::default()).unwrap();
    let at = |name: &str| listed.iter().find(|info| info.name == name).unwrap().mounted_at.clone();
    assert_eq!(at("tank/d/a/x"), Some(PathBuf::from(&elsewhere)));
    assert_eq!((at("tank/d/a/z"), at("tank/d/a").is_some()), (None, true));
}

#[test]
fn what_is_mounted_over_something_is_so_again_where_it_was() {
    let house = House::new("over");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[("overlay", "off")], None).unwrap();
    house.host().call(&caller(), FsUnmount { name: "tank/a".into(), force: false }).unwrap();
    let tank = house.folder.join("home/steadfast/tank");
    for name in ["a", "b"] {
        std::fs::create_dir_all(tank.join(name).join("something")).unwrap();
    }
    let mount = |overlay: bool| {
        let request = FsMount { name: "tank/a".into(), at: None, options: Vec::new(), overlay };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };
    assert_eq!(mount(false), Err(Code::FsMountpoint));
    mount(true).unwrap();
    for (property, value) in [("atime", "off"), ("canmount", "noauto"), ("canmount", "on")] {
        let warnings = house.set("tank/a", property, value).unwrap().warnings;
        assert!(warnings.is_empty(), "{property}={value}: {warnings:?}");
        assert_eq!(house.mounted(), ["tank", "tank/a"]);
    }
    // Nobody agreed to what lies in the place that a new name leads to.
    let request = FsRename {
        name: "tank/a".into(),
        to: "tank/b".into(),
        parents: false,
        force: false,
        no_remount: false,
    };
    let warnings = house.host().call(&caller(), request).unwrap().warnings;
    assert_eq!(warnings.iter().map(|refusal| refusal.code).collect::<Vec<_>>(), [Code::FsMountpoint]);
    assert_eq!(house.mounted(), ["tank"]);
    assert!(["a", "b"].iter().all(|name| tank.join(name).join("something").is_dir()));
}

#[test]
fn a_command_that_shows_a_bar_hears_the_steps() {
    let house = House::new("steps");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    for name in ["tank/a", "tank/a/b", "tank/c"] {
        house.create_fs(name, &[], None).unwrap();
    }
    // The first step is told whatever the time.
    let first_of = |run: &dyn Fn(&Caller)| {
        let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let steps = Some(Steps::over(&near, 7).unwrap());
        run(&Caller { steps, ..caller() });
        drop(near);
        let line = read_line(&mut std::io::BufReader::new(far), ANSWER_BYTES_MAX).unwrap();
        let step = parse_answer(&line.expect("a step")).unwrap().progress.expect("a step");
        (step.what, step.bytes, step.of)
    };
    let told = first_of(&|caller| {
        let scan = PoolImportScan { search: vec![house.folder.join("a.img")], destroyed: false };
        assert!(house.host().call(caller, scan).unwrap().is_empty(), "it is imported");
    });
    assert_eq!(told, ("searching".to_owned(), 0, 1));
    let told = first_of(&|caller| {
        house.host().call(caller, PoolExport { name: "tank".into(), force: false }).map(drop).unwrap();
    });
    assert_eq!(told, ("unmounting".to_owned(), 0, 4));
    house.import("tank", None).unwrap();
    let destroy = |name: &str| FsDestroy {
        name: name.into(),
        recursive: true,
        clones: false,
        force: false,
        dry_run: false,
    };
    let told = first_of(&|caller| house.host().call(caller, destroy("tank/c")).map(drop).unwrap());
    assert_eq!(told, ("unmounting".to_owned(), 0, 1));
}
