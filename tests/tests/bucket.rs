//! Pools on stores of whole objects: a folder, and a bucket behind a server that misbehaves.

use std::os::unix::fs::PermissionsExt;

use steadfast_hostile::{Fault, KEYS, Kind, Rule, Store};
use steadfast_tests::{Host, no_fuse, skip};

/// A corner with the keys of the server in a file of mode 0600, and the address of a prefix.
pub(crate) fn with_keys(store: &Store, prefix: &str) -> (Host, String) {
    let host = Host::new();
    let (name, secret) = KEYS[0];
    let text = format!("[default]\naws_access_key_id={name}\naws_secret_access_key={secret}\n");
    std::fs::write(host.at("keys"), text).expect("a file of keys");
    std::fs::set_permissions(host.at("keys"), std::fs::Permissions::from_mode(0o600)).expect("its mode");
    let address = format!("{}&credentials={}", store.location(prefix), host.at("keys").display());
    (host, address)
}

#[test]
fn a_pool_on_a_folder_of_objects_lives_dies_and_comes_back() {
    if let Some(why) = no_fuse() {
        return skip("a pool on a folder", &why);
    }
    let host = Host::new();
    std::fs::create_dir(host.at("objects")).expect("a folder");
    let address = format!("file://{}", host.at("objects").display());
    host.shell(&format!(
        "zpool create -m $PWD/t tank '{address}'; echo kept > t/a; cp -a compat t/; sync t/a"
    ))
    .ok();
    host.shell("zpool status tank").ok().says(&address);
    host.shell("zfs snapshot tank@one; rm t/a; zpool export tank").ok();
    host.shell(&format!("zpool import -d '{address}' tank; cat t/.zfs/snapshot/one/a; test ! -e t/a"))
        .ok()
        .says("kept");
    host.shell("echo again > t/b; sync t/b").ok();
    host.kill_daemon();
    host.shell("umount -l t || fusermount3 -uz t || true").ok();
    host.shell(&format!("zpool import -f -d '{address}' tank || zpool list tank; cat t/b"))
        .ok()
        .says("again");
    host.shell("zpool scrub -w tank; zpool status tank").ok().says("with 0 errors");
    host.shell("zpool destroy tank").ok();
}

#[test]
fn a_pool_on_a_bucket_survives_a_store_that_fails_by_turns() {
    if let Some(why) = no_fuse() {
        return skip("a pool on a bucket", &why);
    }
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    host.shell(&format!("zpool create -m $PWD/t tank '{address}'")).fails(1).says("STORE-CLEAR").says("-f");
    host.image("plain.img", 64 << 20);
    host.shell("zpool create -m none plain $PWD/plain.img").ok();
    host.shell(&format!("zpool add plain '{address}'")).fails(1).says("STORE-CLEAR").says("-f");
    host.shell(&format!("zpool add -f -n plain '{address}'; zpool destroy plain")).ok();
    assert_eq!(store.objects(), Vec::<String>::new(), "a refusal makes nothing, and neither does -n");
    host.shell(&format!("zpool create -f -m $PWD/t tank '{address}'")).ok();
    for fault in [Fault::Lose, Fault::Answer(503, "SlowDown"), Fault::Answer(500, "InternalError")] {
        store.add(Rule { kind: Some(Kind::Put), object: "seg/".into(), after: 1, times: 2, fault });
    }
    store.add(Rule {
        kind: Some(Kind::Get),
        object: String::new(),
        after: 1,
        times: 2,
        fault: Fault::Tear(100),
    });
    host.shell("head -c 3000000 /dev/urandom > noise; cp noise t/; zfs snapshot tank@one; rm t/noise").ok();
    host.shell("zpool export tank").ok();
    host.shell(&format!("zpool import -d '{address}' tank; cmp noise t/.zfs/snapshot/one/noise")).ok();
    host.shell("zpool scrub -w tank; zpool status tank").ok().says("with 0 errors");
    // Keys are in no place that is shown.
    let shown = host.shell("zpool status tank; zpool history -il tank; cat run/*.log; ps axww -o args").ok();
    assert!(!format!("{}{}", shown.out, shown.err).contains(KEYS[0].1), "{}", shown.out);
    assert!(store.objects().iter().all(|name| name.starts_with("tank/")), "{:?}", store.objects());
    host.shell("zpool destroy tank").ok();
}

#[test]
fn mistakes_about_a_bucket_are_told_and_change_nothing() {
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    let create = |address: &str| host.shell(&format!("zpool create -f -m none tank '{address}'")).fails(1);
    create(&address.replace("bucket/", "racket/")).says("STORE-FAILED").says("the bucket does not exist");
    create("s3://me:hunter2@bucket/tank").says("STORE-ADDRESS");
    create(&address.replace("/keys", "/none")).says("STORE-KEYS");
    host.shell(&format!("zpool import -d '{address}'")).fails(1).says("No pool is stored at");
    std::fs::set_permissions(host.at("keys"), std::fs::Permissions::from_mode(0o644)).expect("a mode");
    create(&address).says("STORE-KEYS").says("chmod 600");
    host.shell("sed -i s/secret-of/guessed/ keys; chmod 600 keys").ok();
    create(&address).says("STORE-FAILED").says("does not accept the key").says("req-");
    assert_eq!(store.objects(), Vec::<String>::new());
    let probe = host.run(&format!("store probe --quick {address}")).fails(1);
    assert!(probe.says("does not accept the key").out.is_empty());
    host.shell("sed -i s/guessed/secret-of/ keys").ok();
    host.run(&format!("store probe --quick {address}"))
        .ok()
        .says("1 of 32 won")
        .says("good for: data yes, roots yes, register yes");
}
