//! Clones through the command line and a real mount.

use std::fs;

use steadfast_tests::{Host, noise};

fn value(host: &Host, property: &str, name: &str) -> String {
    let out = host.shell(&format!("zfs get -Hp -o value {property} {name}")).ok().out;
    out.trim_end().to_owned()
}

fn number(host: &Host, property: &str, name: &str) -> u64 {
    value(host, property, name).parse().expect("a number")
}

/// Nothing is lost of space, and nothing is wrong.
fn sound(host: &Host, secret: &str) {
    host.shell("zpool wait -t free tank && zpool export tank").ok();
    host.run(&format!("inspect check {secret} {{}}/tank.img")).ok().says("leaked_units=0").says("worst=none");
    host.shell("zpool import -d $PWD tank").ok();
}

#[test]
fn a_clone_is_written_promoted_and_destroyed() {
    let Some(host) = Host::with_tank("clones") else { return };
    host.shell("zfs create -o compression=off tank/web && zfs create tank/deep").ok();
    let (top, test) = (host.at("t/web"), host.at("t/test"));
    fs::write(top.join("page"), "first").expect("written");
    fs::write(top.join("big"), noise(1, 1 << 20)).expect("written");
    host.shell("zfs snapshot tank/web@v0 && zfs snapshot tank/web@v1").ok();
    fs::write(top.join("page"), "second").expect("written");

    host.shell("zfs clone tank/web@none tank/test").fails(1).says("SNAP-ABSENT");
    host.shell("zfs clone tank/web@v1 tank/web").fails(1).says("FS-EXISTS");
    host.shell("zfs clone tank/web@v1 tank/no/test").fails(1).says("FS-PARENT");
    host.shell("zfs clone tank/web@v1 other/test").fails(1).says("FS-PLACE");
    host.shell("zfs clone tank/web tank/test").fails(1).says("NAME-INVALID");
    host.shell("zfs clone -o keyformat=raw tank/web@v1 tank/test").fails(1).says("KEY-RULES");
    host.shell("zfs promote tank/web").fails(1).says("FS-NOT-CLONE");
    host.shell("zfs clone -o org:why=try tank/web@v1 tank/test").ok();
    assert_eq!(fs::read_to_string(test.join("page")).expect("read"), "first");
    assert_eq!(fs::read(test.join("big")).expect("read"), noise(1, 1 << 20));
    assert_eq!(value(&host, "origin", "tank/test"), "tank/web@v1");
    assert_eq!(value(&host, "origin", "tank/web"), "-");
    assert_eq!(value(&host, "clones", "tank/web@v1"), "tank/test");
    assert_eq!(value(&host, "clones", "tank/web@v0"), "");
    assert_eq!(value(&host, "org:why", "tank/test"), "try");
    host.shell("zfs list -H -o name,origin tank/test").ok().says("tank/test\ttank/web@v1");
    host.shell("zpool sync tank").ok();
    // It refers to all and takes no more than the nodes that its mounting changed.
    assert!(number(&host, "referenced", "tank/test") >= 1 << 20);
    assert!(number(&host, "used", "tank/test") <= 64 << 10, "{}", value(&host, "used", "tank/test"));
    assert!(number(&host, "written", "tank/test") <= 64 << 10);

    // Neither of the two sees the other's changes.
    fs::write(test.join("page"), "clone's").expect("written");
    fs::write(test.join("own"), noise(1, 300_000)).expect("written");
    fs::remove_file(test.join("big")).expect("removed");
    host.shell("zfs snapshot tank/test@c1 && zpool sync tank").ok();
    assert_eq!(fs::read_to_string(host.at("t/test/.zfs/snapshot/c1/page")).expect("read"), "clone's");
    assert_eq!(fs::read_to_string(top.join("page")).expect("read"), "second");
    assert!(top.join("big").exists());
    let used = number(&host, "used", "tank/test");
    assert!((300_000..500_000).contains(&used), "{used}");
    assert_eq!(
        used,
        number(&host, "usedbydataset", "tank/test") + number(&host, "usedbysnapshots", "tank/test")
    );
    sound(&host, "");

    // A snapshot with clones stays, unless they go too.
    host.shell("zfs destroy tank/web@v1").fails(1).says("SNAP-CLONES").says("tank/test");
    host.shell("zfs destroy -n tank/web@v1").fails(1).says("SNAP-CLONES");
    host.shell("zfs destroy -r tank/web").fails(1).says("SNAP-CLONES");
    let would = host.shell("zfs destroy -nvR tank/web@v1").ok();
    would.says("would destroy tank/test\n").says("would destroy tank/web@v1");
    host.shell("zfs rollback -r tank/web@v0").fails(1).says("SNAP-CLONES");

    // Over a rename of both, promoted: snapshots change hands, figures follow.
    host.shell("zfs rename tank/test tank/deep/test && zfs rename tank/web tank/www").ok();
    assert_eq!(value(&host, "origin", "tank/deep/test"), "tank/www@v1");
    host.shell("zfs snapshot tank/deep/test@v0").ok();
    host.shell("zfs promote tank/deep/test").fails(1).says("PROMOTE-NAMES").says("tank/deep/test@v0");
    host.shell("zfs destroy tank/deep/test@v0").ok();
    host.shell("zfs set quota=900K tank/deep").ok();
    host.shell("zfs promote tank/deep/test").fails(1).says("PROP-SPACE").says("tank/deep");
    host.shell("zfs set quota=none tank/deep").ok();
    host.shell("zfs promote tank/deep/test").ok();
    assert_eq!(value(&host, "origin", "tank/deep/test"), "-");
    assert_eq!(value(&host, "origin", "tank/www"), "tank/deep/test@v1");
    let all = host.shell("zfs list -H -r -t snapshot -o name tank").ok().out;
    assert_eq!(
        all.trim().lines().collect::<Vec<_>>(),
        ["tank/deep/test@v0", "tank/deep/test@v1", "tank/deep/test@c1"]
    );
    assert_eq!(fs::read_to_string(host.at("t/deep/test/.zfs/snapshot/v1/page")).expect("read"), "first");
    assert_eq!(fs::read(host.at("t/deep/test/.zfs/snapshot/v0/big")).expect("read"), noise(1, 1 << 20));
    assert!(!host.at("t/www/.zfs/snapshot/v1").exists());
    assert!(number(&host, "usedbysnapshots", "tank/deep/test") >= 1 << 20, "the big file is only theirs now");
    assert!(number(&host, "used", "tank/www") <= 128 << 10, "it shares the big file");
    sound(&host, "");

    // A limit on what is referred to counts what is shared.
    host.shell("zfs set refquota=900K tank/www").fails(1).says("PROP-SPACE");
    host.shell("zfs set refquota=2M tank/www").ok();
    host.shell("dd if=/dev/urandom of=t/www/more bs=64k count=32").fails(1).says("quota");

    // One goes with its last clone.
    host.shell("zfs destroy -d tank/deep/test@v1").ok();
    assert_eq!(value(&host, "defer_destroy", "tank/deep/test@v1"), "on");
    host.shell("zfs clone tank/deep/test@c1 tank/third").ok();
    host.shell("zfs destroy tank/www").ok();
    host.shell("zfs list tank/deep/test@v1").fails(1);
    sound(&host, "");
    host.shell("zfs destroy -r tank/deep/test").fails(1).says("tank/third");
    host.shell("zfs destroy -R tank/deep/test").ok();
    host.shell("zfs list tank/third").fails(1);
    sound(&host, "");
}

#[test]
fn clones_of_encrypted_file_systems_take_the_key_of_their_origin() {
    let Some(host) = Host::with_tank("clone keys") else { return };
    fs::write(host.at("key"), [0x5e; 32]).expect("written");
    fs::write(host.at("other"), [0x7f; 32]).expect("written");
    host.shell("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key tank/vault").ok();
    host.shell("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$PWD/other tank/safe")
        .ok();
    host.shell("zfs create tank/plain && zfs create tank/vault/in").ok();
    fs::write(host.at("t/vault/letter"), noise(1, 200_000)).expect("written");
    host.shell("zfs snapshot -r tank/vault@a && zfs snapshot tank/plain@a").ok();

    // Under the same root, under none, and under another; and what is made below it does the same.
    host.shell("zfs clone tank/vault@a tank/safe/c && zfs create tank/safe/c/below").ok();
    for name in ["tank/safe/c", "tank/safe/c/below"] {
        assert_eq!(value(&host, "encryptionroot", name), "tank/vault");
    }
    assert_eq!(fs::read(host.at("t/safe/c/letter")).expect("read"), noise(1, 200_000));
    host.shell("zpool export tank && zpool import -d . tank && zfs load-key -a && zfs mount -a").ok();
    assert_eq!(fs::read(host.at("t/safe/c/letter")).expect("read"), noise(1, 200_000));
    // Its root takes the key of another: the clone, and what lies below it, go along.
    host.shell("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key tank/safe/own")
        .ok();
    host.shell("zfs snapshot tank/safe/own@1 && zfs clone tank/safe/own@1 tank/safe/twin").ok();
    host.shell("zfs create tank/safe/twin/below && zfs change-key -i tank/safe/own").ok();
    for name in ["tank/safe/own", "tank/safe/twin", "tank/safe/twin/below"] {
        assert_eq!(value(&host, "encryptionroot", name), "tank/safe");
    }
    host.shell("zfs destroy -r tank/safe/twin && zfs destroy -r tank/safe/own && zfs destroy -r tank/safe/c")
        .ok();
    // A clone of content in the clear is in the clear, wherever it lies.
    host.shell("zfs clone tank/plain@a tank/vault/clear").ok();
    assert_eq!(value(&host, "encryption", "tank/vault/clear"), "off");
    host.shell("zfs clone tank/vault@a tank/vault/c && zfs clone tank/vault@a tank/c").ok();
    for name in ["tank/c", "tank/vault/c"] {
        assert_eq!(value(&host, "encryptionroot", name), "tank/vault");
        assert_eq!(value(&host, "keystatus", name), "available");
    }
    assert_eq!(fs::read(host.at("t/c/letter")).expect("read"), noise(1, 200_000));
    fs::write(host.at("t/c/own"), noise(1, 100_000)).expect("written");
    host.shell("zfs rename tank/c tank/d && zfs rename tank/d tank/safe/d").fails(1).says("FS-PLACE");
    host.shell("zfs rename tank/d tank/c").ok();

    // A clone in use uses the key.
    host.shell("zfs unmount tank/vault/in && zfs unmount tank/vault/c && zfs unmount tank/vault").ok();
    host.shell("zfs unload-key tank/vault").fails(1).says("KEY-BUSY");
    host.shell("zfs unmount tank/c && zfs unload-key tank/vault").ok();
    assert_eq!(value(&host, "keystatus", "tank/c"), "unavailable");
    host.shell("zfs mount tank/c").fails(1);
    host.shell("zfs clone tank/vault@a tank/e").fails(1).says("KEY-NEEDED");
    host.shell("zfs destroy tank/c").fails(1).says("KEY-NEEDED");
    host.shell("zfs destroy -r tank/vault").fails(1).says("SNAP-CLONES").says("tank/c");
    host.shell(
        "zfs load-key tank/vault && zfs mount tank/c && zfs mount tank/vault && zfs mount tank/vault/in",
    )
    .ok();
    assert_eq!(fs::read(host.at("t/c/own")).expect("read"), noise(1, 100_000));
    host.shell("zfs destroy tank/safe").ok();
    sound(&host, "-k {}/key");
    host.shell("zfs destroy tank/vault/clear && zfs load-key -a; zfs mount -a").ok();

    // Another key for the root is another for the clones; one of its own for a clone opens what is
    // shared.
    fs::write(host.at("new"), [0x11; 32]).expect("written");
    host.shell("zfs change-key -o keyformat=raw -o keylocation=file://$PWD/new tank/vault").ok();
    host.shell("zpool export tank && zpool import -d $PWD tank && zfs load-key tank/vault && zfs mount -a")
        .ok();
    assert_eq!(fs::read(host.at("t/c/letter")).expect("read"), noise(1, 200_000));
    host.shell("zfs change-key -o keyformat=raw -o keylocation=file://$PWD/other tank/vault/c").ok();
    host.shell("zpool export tank && zpool import -d $PWD tank && zfs load-key tank/vault/c && zfs mount tank/vault/c").ok();
    assert_eq!(fs::read(host.at("t/vault/c/letter")).expect("read"), noise(1, 200_000));
    assert_eq!(value(&host, "keystatus", "tank/vault"), "unavailable");
    host.shell("zfs unmount tank/vault/c && rmdir t/vault/c && zfs load-key tank/vault && zfs mount -a").ok();

    // The clone of a root that is promoted is the root.
    host.shell("zfs promote tank/c").ok();
    assert_eq!(value(&host, "encryptionroot", "tank/vault"), "tank/c");
    assert_eq!(value(&host, "encryptionroot", "tank/vault/in"), "tank/c");
    assert_eq!(value(&host, "encryptionroot", "tank/c"), "tank/c");
    assert_eq!(value(&host, "keylocation", "tank/vault"), "none");
    host.shell("zpool export tank && zpool import -d $PWD tank && zfs load-key tank/c && zfs mount -a").ok();
    assert_eq!(fs::read(host.at("t/vault/letter")).expect("read"), noise(1, 200_000));
    host.shell("zfs unmount tank/vault/in && zfs destroy -r tank/c").fails(1);
    // A clone is destroyed by what its trees have of its own.
    host.shell("zfs destroy tank/vault/c").fails(1).says("KEY-NEEDED");
    host.shell("zfs load-key tank/vault/c && zfs destroy -r tank/vault").ok();
    host.shell("zpool wait -t free tank").ok();
    assert_eq!(fs::read(host.at("t/c/letter")).expect("read"), noise(1, 200_000));
    // A dataset elsewhere that takes its key from a root keeps the root.
    host.shell("zfs create tank/c/in && zfs snapshot tank/c/in@a && zfs clone tank/c/in@a tank/out").ok();
    host.shell("zfs promote tank/out").ok();
    host.shell("zfs destroy -r tank/c").fails(1).says("KEY-SHARED").says("tank/out");
    host.shell("zfs list tank/c/in && zfs destroy tank/c/in && zfs destroy -r tank/out").ok();
    host.shell("zfs destroy -r tank/c && zpool wait -t free tank && zpool export tank").ok();
    host.run("inspect check -k {}/other {}/tank.img").ok().says("leaked_units=0");
}
