//! Snapshots of encrypted file systems whose key is not there, through the command line and a real
//! mount.

use std::fs;

use steadfast_tests::{Host, noise};

fn number(host: &Host, property: &str, name: &str) -> u64 {
    let out = host.shell(&format!("zfs get -Hp -o value {property} {name}")).ok().out;
    out.trim().parse().expect("a number")
}

/// The pool is whole, and stays as it was: exported for the check and imported again, without keys.
fn sound(host: &Host) {
    host.shell("zpool wait -t free tank && zpool export tank").ok();
    host.run("inspect check -k {}/key {}/tank.img").ok().says("leaked_units=0").says("worst=none");
    host.shell("zpool import -d $PWD tank").ok();
}

#[test]
fn snapshots_of_locked_file_systems_are_kept_scrubbed_and_destroyed() {
    let Some(host) = Host::with_tank("locked") else { return };
    fs::write(host.at("key"), [0x5e; 32]).expect("written");
    let new =
        "zfs create -o compression=off -o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key";
    host.shell(&format!("{new} tank/vault && zfs create tank/vault/in")).ok();
    let top = host.at("t/vault");
    fs::write(top.join("letter"), "first").expect("written");
    fs::write(top.join("big"), noise(1, 1 << 20)).expect("written");
    fs::write(top.join("in/file"), noise(1, 300_000)).expect("written");
    host.shell("zfs snapshot -r tank/vault@a").ok();
    fs::remove_file(top.join("big")).expect("removed");
    fs::write(top.join("letter"), "second").expect("written");
    fs::write(top.join("in/file"), noise(1, 200_000)).expect("written");
    host.shell("zfs snapshot -r tank/vault@b").ok();
    fs::write(top.join("letter"), "third").expect("written");
    assert_eq!(fs::read(top.join(".zfs/snapshot/a/big")).expect("read"), noise(1, 1 << 20));

    // A reader below .zfs uses the key.
    let open = fs::File::open(top.join(".zfs/snapshot/a/big")).expect("opened");
    host.shell("zfs unmount tank/vault").fails(1).says("FS-BUSY");
    drop(open);
    host.shell("zfs unload-key tank/vault").fails(1).says("KEY-BUSY");
    host.shell("zfs unmount tank/vault/in && zfs unmount tank/vault && zfs unload-key tank/vault").ok();

    // Listed, measured, named, held without it; not read, and not gone back to.
    let list = host.shell("zfs list -Hp -r -t snapshot -o name,used,referenced tank/vault").ok().out;
    assert_eq!(list.lines().count(), 4, "{list}");
    assert!(number(&host, "usedbysnapshots", "tank/vault") >= 1 << 20);
    host.shell("zfs hold keep tank/vault@b && zfs rename tank/vault@b tank/vault@kept").ok();
    host.shell("zfs rollback tank/vault@kept").fails(1).says("KEY-NEEDED");
    host.shell("zfs rollback -r tank/vault/in@a").fails(1).says("KEY-NEEDED");
    host.shell("zfs list tank/vault/in@b").ok();
    host.shell("zfs mount tank/vault").fails(1);
    // One more is what the last commit has of it.
    host.shell("zfs snapshot tank/vault@locked").ok();
    sound(&host);

    // Metadata of the pool's is read without a key; what was left out on a single device is said.
    host.shell("zpool scrub -w tank").ok();
    let status = host.shell("zpool status tank").ok();
    status.says("not scanned, key not loaded: tank/vault, tank/vault/in").says("No known data errors");

    // Space that only the destroyed snapshot held comes back, all of it, without the key.
    let kept = number(&host, "usedbysnapshots", "tank/vault");
    let would = host.shell("zfs destroy -nvp tank/vault@a").ok().out;
    let promised: u64 =
        would.lines().last().and_then(|line| line.split('\t').nth(1)).unwrap().parse().unwrap();
    assert!(promised >= 1 << 20, "{would}");
    host.shell("zfs destroy tank/vault@a").ok();
    assert_eq!(kept - number(&host, "usedbysnapshots", "tank/vault"), promised);
    sound(&host);

    // The remaining snapshots are whole.
    host.shell("zfs load-key tank/vault && zfs mount tank/vault && zfs mount tank/vault/in").ok();
    assert_eq!(fs::read_to_string(top.join("letter")).expect("read"), "third");
    assert_eq!(fs::read_to_string(top.join(".zfs/snapshot/kept/letter")).expect("read"), "second");
    assert_eq!(fs::read_to_string(top.join(".zfs/snapshot/locked/letter")).expect("read"), "third");
    assert_eq!(fs::read(top.join("in/.zfs/snapshot/a/file")).expect("read"), noise(1, 300_000));
    // Going back, and a new key, with snapshots there.
    fs::write(top.join("letter"), "fourth").expect("written");
    host.shell("zfs rollback tank/vault@locked").ok();
    assert_eq!(fs::read_to_string(top.join("letter")).expect("read"), "third");
    fs::write(host.at("key"), [0x7f; 32]).expect("written");
    host.shell("zfs change-key -o keyformat=raw -o keylocation=file://$PWD/key tank/vault").ok();
    sound(&host);
    host.shell("zfs load-key tank/vault && zfs mount tank/vault").ok();
    assert_eq!(fs::read_to_string(top.join(".zfs/snapshot/kept/letter")).expect("read"), "second");
    host.shell("zfs unmount tank/vault && zfs unload-key tank/vault").ok();

    // Without the key nothing tells which blocks are whose among those of one owner: they go
    // together, or stay.
    host.shell("zfs release keep tank/vault@kept").ok();
    host.shell("zfs destroy -r tank/vault/in").fails(1).says("KEY-NEEDED").says("together with tank/vault,");
    host.shell("zfs list tank/vault@kept && zfs list tank/vault/in@b").ok();
    sound(&host);
    host.shell("zfs clone tank/vault/in@b tank/twin").fails(1).says("KEY-NEEDED");
    host.shell("zfs load-key tank/vault && zfs clone tank/vault/in@b tank/twin && zfs unmount tank/twin")
        .ok();
    host.shell("zfs unload-key tank/vault && zfs destroy -r tank/vault").fails(1).says("tank/twin");
    host.shell("zfs destroy -R tank/vault").ok();
    host.shell("zfs list tank/twin").fails(1);
    sound(&host);
    assert!(number(&host, "used", "tank") < 1 << 20);
}

#[test]
fn a_tree_with_a_locked_file_system_goes_as_a_whole_or_not_at_all() {
    let Some(host) = Host::with_tank("locked_tree") else { return };
    fs::write(host.at("key"), [0x5e; 32]).expect("written");
    let new = "zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key";
    host.shell(&format!("zfs create tank/top && {new} tank/top/a && zfs create tank/top/a/in")).ok();
    host.shell("zfs create tank/top/z && date > t/top/z/file && date > t/top/a/in/file").ok();
    // One of the same key lies elsewhere: without it nothing tells whose blocks are whose.
    host.shell("zfs snapshot tank/top/a/in@s && zfs clone tank/top/a/in@s tank/twin").ok();
    host.shell("zfs promote tank/twin && zfs unmount tank/twin && zfs unmount tank/top/a").ok();
    host.shell("zfs unload-key tank/top/a").ok();
    host.shell("zfs destroy -r tank/top").fails(1).says("tank/twin");
    let list = || host.shell("zfs list -Hr -o name tank").ok().out;
    let all = "tank\ntank/top\ntank/top/a\ntank/top/a/in\ntank/top/z\ntank/twin\n";
    assert_eq!(list(), all);
    host.shell("cat t/top/z/file").ok();
    // The same for what is held.
    host.shell("zfs snapshot tank/top/a@kept && zfs hold mine tank/top/a@kept").ok();
    host.shell("zfs destroy -r tank/top").fails(1);
    host.shell(
        "zfs load-key tank/top/a && zfs change-key -o keyformat=raw -o keylocation=file://$PWD/key tank/twin",
    )
    .ok();
    host.shell("zfs destroy -r tank/top").fails(1).says("SNAP-HELD");
    assert_eq!(list(), all);
    host.shell("cat t/top/z/file && zfs release mine tank/top/a@kept").ok();
    // With its key, beside what stays; and what is left without it.
    host.shell("zfs unload-key tank/top/a && zfs destroy -r tank/top").fails(1).says("KEY-NEEDED");
    assert_eq!(list(), all);
    host.shell("zfs load-key tank/top/a && zfs destroy -r tank/top && zpool wait -t free tank").ok();
    host.shell("zfs unload-key tank/twin && zfs destroy -r tank/twin").ok();
    assert_eq!(list(), "tank\n");
    sound(&host);
}

#[test]
fn unmounting_unloads_the_keys_of_all_that_was_unmounted() {
    let Some(host) = Host::with_tank("unload") else { return };
    fs::write(host.at("key"), [0x5e; 32]).expect("written");
    let new = "zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key";
    host.shell(&format!("{new} tank/a && {new} tank/a/b && zfs create tank/a/b/c && {new} tank/other")).ok();
    let status = || host.shell("zfs get -Hro value keystatus tank").ok().out.replace('\n', " ");
    // A file system in use keeps its key, and so do those around it.
    let open = fs::File::open(host.at("t/a/b/c")).expect("open");
    host.shell("zfs unmount -u tank/a").fails(1);
    assert_eq!(status(), "none available available available available ");
    drop(open);
    host.shell("zfs unmount -u tank/a").ok();
    assert_eq!(status(), "none unavailable unavailable unavailable available ");
    host.shell("zfs unmount -a -u").ok();
    assert_eq!(status(), "none unavailable unavailable unavailable unavailable ");
}

#[test]
fn a_mount_hides_nothing_that_is_mounted_below_it() {
    let Some(host) = Host::with_tank("below") else { return };
    host.shell("zfs create tank/a && zfs create tank/a/b && zfs create tank/a/b/c && echo inner > t/a/b/c/f")
        .ok();
    host.shell("zfs unmount tank/a && zfs mount tank/a/b/c && zfs mount -o ro tank/a/b && zfs mount tank/a")
        .ok();
    host.shell("cat t/a/b/c/f").ok().says("inner");
    host.shell("! touch t/a/b/no && touch t/a/yes").ok();
    let mounted = host.shell("zfs mount | cut -d ' ' -f 1").ok().out;
    assert_eq!(mounted, "tank\ntank/a\ntank/a/b\ntank/a/b/c\n");
    // A mount in use stays under it. The refusal says why it cannot be unmounted.
    host.shell("zfs unmount tank/a && zfs mount tank/a/b/c && zfs mount tank/a/b && zfs unmount tank/a/b/c")
        .ok();
    host.shell("exec 5< t/a/b; zfs mount tank/a; zfs unmount tank/a/b").fails(1).says("mounted over");
    host.shell("umount t/a && zfs unmount tank/a/b && zfs mount -a && cat t/a/b/c/f").ok().says("inner");
}
