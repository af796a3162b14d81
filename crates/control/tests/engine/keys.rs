//! Keys of pools and file systems.

use super::*;

#[test]
fn keys_open_and_close_what_they_should() {
    let house = House::new("keys");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let on = [("encryption", "on"), ("keyformat", "passphrase")];
    assert_eq!(house.create_fs("tank/p", &[("encryption", "on")], None).unwrap_err().code, Code::KeyRules);
    house.create_fs("tank/p", &on, Some(passphrase("12345678"))).unwrap();
    house.create_fs("tank/p/child", &[], None).unwrap();
    // In the clear only where it is said (0180).
    house.create_fs("tank/p/open", &[("encryption", "off")], None).unwrap();
    assert_eq!(house.get("tank/p/open", "encryption"), "off");
    assert_eq!(house.get("tank/p/open", "encryptionroot"), "-");
    let open = FsDestroy {
        name: "tank/p/open".into(),
        recursive: false,
        clones: false,
        force: false,
        dry_run: false,
    };
    house.host().call(&caller(), open).unwrap();
    assert_eq!(house.get("tank/p/child", "encryptionroot"), "tank/p");
    assert_eq!(house.get("tank/p/child", "keystatus"), "available");
    let unload = || house.host().call(&caller(), FsUnloadKey { name: "tank/p".into() });
    assert_eq!(unload().unwrap_err().code, Code::KeyBusy);
    house.host().call(&caller(), FsUnmount { name: "tank/p".into(), force: false }).unwrap();
    assert_eq!(house.mounted(), ["tank"]);
    unload().unwrap();
    assert_eq!(unload().unwrap_err().code, Code::KeyUnloaded);
    let mount = |name: &str| FsMount { name: name.into(), at: None, options: Vec::new(), overlay: false };
    assert_eq!(house.host().call(&caller(), mount("tank/p")).unwrap_err().code, Code::KeyNeeded);
    assert_eq!(house.create_fs("tank/p/late", &[], None).unwrap_err().code, Code::KeyNeeded);
    let load = |text: &str, name: &str| {
        house.host().call(&caller(), FsLoadKey { name: name.into(), key: passphrase(text), dry_run: false })
    };
    assert_eq!(load("87654321", "tank/p").unwrap_err().code, Code::KeyWrong);
    assert_eq!(load("12345678", "tank/p/child").unwrap_err().code, Code::KeyInherited);
    load("12345678", "tank/p").unwrap();
    assert_eq!(load("12345678", "tank/p").unwrap_err().code, Code::KeyLoaded);
    house.host().call(&caller(), mount("tank/p/child")).unwrap();
}

#[test]
fn a_sealed_pool_needs_its_key_to_be_imported() {
    let mut house = House::new("sealed");
    let mut request = house.create_request("seal", "a.img");
    request.fs_properties =
        Properties::from([("encryption".into(), "on".into()), ("keyformat".into(), "passphrase".into())]);
    request.key = Some(passphrase("12345678"));
    house.create_pool(request).unwrap();
    house.restart();
    let listed = house.host().call(&caller(), PoolList::default()).unwrap();
    assert_eq!(listed[0].state, Health::Unavail);
    let refusal = house.import("seal", None).unwrap_err();
    assert_eq!((refusal.code, refusal.fields["keyformat"].as_str()), (Code::PoolSealed, "passphrase"));
    assert_eq!(house.import("seal", Some(passphrase("87654321"))).unwrap_err().code, Code::KeyWrong);
    house.import("seal", Some(passphrase("12345678"))).unwrap();
    assert_eq!(house.mounted(), ["seal"]);
}

#[test]
fn a_key_is_changed_and_those_who_inherit_it_follow() {
    let mut house = House::new("change-key");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    let on = [("encryption", "on"), ("keyformat", "passphrase")];
    house.create_fs("tank/p", &on, Some(passphrase("12345678"))).unwrap();
    house.create_fs("tank/p/c", &[], None).unwrap();
    house.create_fs("tank/p/c/d", &[], None).unwrap();
    let change = |house: &House, name: &str, key: Option<Key>| {
        let request = FsChangeKey { name: name.into(), key, location: None, iterations: None };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };
    let load = |house: &House, name: &str, text: &str| {
        let request = FsLoadKey { name: name.into(), key: passphrase(text), dry_run: false };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };
    assert_eq!(change(&house, "tank", Some(passphrase("87654321"))), Err(Code::KeyNone));
    assert_eq!(change(&house, "tank/p", None), Err(Code::KeyRules), "there is no key above");
    assert_eq!(change(&house, "tank/p/c", None), Err(Code::KeyInherited));
    change(&house, "tank/p", Some(passphrase("87654321"))).unwrap();
    house.restart();
    assert_eq!(change(&house, "tank/p", Some(passphrase("12345678"))), Err(Code::KeyNeeded));
    assert_eq!(load(&house, "tank/p", "12345678"), Err(Code::KeyWrong));
    load(&house, "tank/p", "87654321").unwrap();
    assert_eq!(house.get("tank/p/c/d", "keystatus"), "available");
    // A child with a key of its own; what is below it follows.
    change(&house, "tank/p/c", Some(passphrase("abcdefgh"))).unwrap();
    assert_eq!(house.get("tank/p/c/d", "encryptionroot"), "tank/p/c");
    house.restart();
    load(&house, "tank/p", "87654321").unwrap();
    assert_eq!(house.get("tank/p/c", "keystatus"), "unavailable");
    load(&house, "tank/p/c", "abcdefgh").unwrap();
    // It goes away with its key, and what it left behind outlives the dataset it was made under.
    let rename = |house: &House, name: &str, to: &str| {
        let (name, to) = (name.to_owned(), to.to_owned());
        let request = FsRename { name, to, parents: false, force: false, no_remount: false };
        house.host().call(&caller(), request).map(drop).map_err(|refusal| refusal.code)
    };
    assert_eq!(rename(&house, "tank/p/c/d", "tank/d"), Err(Code::FsPlace), "its key stays behind");
    rename(&house, "tank/p/c", "tank/c").unwrap();
    let destroy =
        FsDestroy { name: "tank/p".into(), recursive: false, clones: false, force: false, dry_run: false };
    house.host().call(&caller(), destroy).unwrap();
    house.host().call(&caller(), PoolSync::default()).unwrap();
    house.restart();
    load(&house, "tank/c", "abcdefgh").unwrap();
    let mount = |name: &str| FsMount { name: name.into(), at: None, options: Vec::new(), overlay: false };
    house.host().call(&caller(), mount("tank/c")).unwrap();
    house.host().call(&caller(), mount("tank/c/d")).unwrap();
    // And back below an encrypted one, to take that one's key.
    house.create_fs("tank/q", &on, Some(passphrase("qqqqqqqq"))).unwrap();
    rename(&house, "tank/c", "tank/q/c").unwrap();
    change(&house, "tank/q/c", None).unwrap();
    assert_eq!(house.get("tank/q/c/d", "encryptionroot"), "tank/q");
    house.restart();
    load(&house, "tank/q", "qqqqqqqq").unwrap();
    assert_eq!(house.get("tank/q/c/d", "keystatus"), "available");
}

#[test]
fn a_sealed_pools_key_is_changed_too() {
    let mut house = House::new("change-seal");
    let mut request = house.create_request("seal", "a.img");
    request.fs_properties =
        Properties::from([("encryption".into(), "on".into()), ("keyformat".into(), "passphrase".into())]);
    request.key = Some(passphrase("12345678"));
    house.create_pool(request).unwrap();
    let change = FsChangeKey {
        name: "seal".into(),
        key: Some(passphrase("87654321")),
        location: None,
        iterations: None,
    };
    house.host().call(&caller(), change).unwrap();
    house.restart();
    assert_eq!(house.import("seal", Some(passphrase("12345678"))).unwrap_err().code, Code::KeyWrong);
    house.import("seal", Some(passphrase("87654321"))).unwrap();
    assert_eq!(house.mounted(), ["seal"]);
}

#[test]
fn keys_in_files_are_loaded_when_the_daemon_starts() {
    let mut house = House::new("key-files");
    let file = house.folder.join("key");
    std::fs::write(&file, "12345678\n").unwrap();
    let location = format!("file://{}", file.display());
    let on = [("encryption", "on"), ("keyformat", "passphrase"), ("keylocation", location.as_str())];
    let mut request = house.create_request("seal", "a.img");
    request.fs_properties = on.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
    request.key = Some(passphrase("12345678"));
    house.create_pool(request).unwrap();
    house.create_pool(house.create_request("tank", "b.img")).unwrap();
    house.create_fs("tank/p", &on, Some(passphrase("12345678"))).unwrap();
    house.create_fs("tank/q", &on[..2], Some(passphrase("12345678"))).unwrap();
    house.restart();
    assert_eq!(house.mounted(), ["seal", "tank", "tank/p"], "the key of tank/q is typed");
    // Without the file neither is opened, and the unencrypted part is there.
    std::fs::rename(&file, house.folder.join("away")).unwrap();
    house.restart();
    assert_eq!(house.mounted(), ["tank"]);
    let code = |house: &House| {
        let status = house.host().call(&caller(), PoolStatus { names: vec!["seal".into()] });
        status.unwrap()[0].messages[0].code
    };
    assert_eq!(code(&house), Code::PoolSealed);
    // A wrong key is none.
    std::fs::write(&file, "87654321").unwrap();
    house.restart();
    assert_eq!((house.mounted(), code(&house)), (vec!["tank".to_owned()], Code::PoolSealed));
    house.import("seal", Some(passphrase("12345678"))).unwrap();
}
