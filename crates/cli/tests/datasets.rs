//! Words of `zfs` that programs and OpenZFS's own tests expect.

use crate::words::Machine;

#[test]
fn values_that_cannot_be_meant_are_refused_and_others_are_taken() {
    let machine = Machine::new("meant");
    machine.ok("zpool create tank tank.img");
    for name in ["quota", "refquota"] {
        let told = machine.fails(&format!("zfs set {name}=0 tank"), 2);
        assert!(told.contains(&format!("use 'none' to disable {name}")), "{told}");
        machine.ok(&format!("zfs set {name}=none tank"));
    }
    machine.fails("zfs create -o quota=0 tank/a", 2);
    machine.fails("zfs list tank/a", 1);
    let told = machine.fails("zfs create -V 1Z tank/v", 2);
    assert!(told.contains("'1Z': numerical value is too large"), "{told}");
    // Sizes are written in several ways.
    for size in ["512", "1024b", "2k"] {
        let ran = machine.run(&format!("zfs create -s -b {size} -V 1M tank/v"));
        assert!(ran.status == 0 && ran.err.contains("is stored as '4096'"), "{ran:?}");
        machine.ok("zfs destroy tank/v");
    }
    machine.fails("zfs create -s -b 256 -V 1M tank/v", 1);
    // A value that is refused has no effect that could be told.
    let told = machine.fails("zfs set sharesmb=on tank", 1);
    assert!(told.contains("'sharesmb=on' is not offered") && !told.contains("note:"), "{told}");
}

#[test]
fn a_name_that_no_dataset_can_have_does_not_keep_the_others_from_the_list() {
    let machine = Machine::new("names");
    machine.ok("zpool create tank tank.img");
    let ran = machine.run("zfs list -Ho name tank tank/a,tank/b");
    assert_eq!((ran.status, ran.out.as_str()), (1, "tank\n"), "{ran:?}");
    assert!(ran.err.contains("tank/a,tank/b"), "{ran:?}");
}

#[test]
fn of_a_list_of_snapshots_those_that_are_there_are_destroyed() {
    let machine = Machine::new("lists");
    machine.ok("zpool create tank tank.img");
    for number in 1..=3 {
        machine.ok(&format!("zfs snapshot tank@{number}"));
    }
    machine.fails("zfs destroy tank@4,x@y@", 1);
    machine.ok("zfs destroy tank@1,@,2,,,,tank@3,x,");
    assert_eq!(machine.ok("zfs list -Ho name -t snapshot"), "tank@3\n");
}

#[test]
fn a_key_of_its_own_has_a_format() {
    let machine = Machine::new("format");
    machine.ok("zpool create tank tank.img");
    let make = "zfs create -o encryption=on -o keyformat=passphrase -o pbkdf2iters=200000 tank/a";
    assert_eq!(machine.run_with(make, "12345678\n").status, 0);
    machine.ok("zfs create tank/a/b");
    for words in ["", "-o keylocation=prompt "] {
        let ran = machine.run_with(&format!("zfs change-key {words}tank/a/b"), "87654321\n");
        assert!(ran.status == 1 && ran.err.contains("keyformat="), "{ran:?}");
    }
    let change = "zfs change-key -o keyformat=passphrase tank/a/b";
    assert_eq!(machine.run_with(change, "87654321\n").status, 0);
    assert_eq!(machine.ok("zfs get -Ho value encryptionroot tank/a/b"), "tank/a/b\n");
    let ran = machine.run_with("zfs change-key -o pbkdf2iters=150000 tank/a", "12345678\n");
    assert_eq!(ran.status, 0, "{ran:?}");
    assert_eq!(machine.ok("zfs get -Hpo value pbkdf2iters tank/a"), "150000\n");
}

#[test]
fn volumes_are_in_the_way_of_nothing() {
    let machine = Machine::new("places");
    machine.ok("zpool create -m ~/t tank tank.img");
    // The place of its file is a folder: a volume of ZFS has no such place.
    std::fs::create_dir_all(machine.folder.join("t/v")).unwrap();
    let ran = machine.run("zfs create -s -V 1M tank/v");
    assert!(ran.status == 0 && ran.err.starts_with("note: "), "{ran:?}");
    let ran = machine.run("zfs mount -a");
    assert!(ran.status == 0 && ran.err.starts_with("note: "), "{ran:?}");
    machine.fails("zfs mount tank/v", 1);
}

#[test]
fn all_is_unmounted_by_path_but_what_is_mounted_by_hand() {
    let machine = Machine::new("all");
    machine.ok("zpool create -m none tank tank.img");
    machine.ok("zfs create -o mountpoint=~/m/1/2 tank/a");
    machine.ok("zfs create -o mountpoint=~/m tank/a/b");
    machine.ok("zfs create -o mountpoint=~/m/1 tank/a/b/c");
    machine.ok("zfs create -o mountpoint=~/n tank/d");
    machine.ok("zfs set canmount=noauto tank/d");
    machine.ok("zfs unmount -a");
    let folder = machine.folder.display();
    assert_eq!(machine.ok("zfs mount"), format!("tank/d                          {folder}/n\n"));
}

#[test]
fn a_place_that_is_taken_does_not_keep_a_mountpoint_from_being_set() {
    let machine = Machine::new("taken");
    machine.ok("zpool create -m none tank tank.img");
    machine.ok("zfs create -o overlay=off -o mountpoint=~/a tank/a");
    std::fs::create_dir_all(machine.folder.join("b/in")).unwrap();
    // As long as it is mounted it stays there.
    machine.fails("zfs set mountpoint=~/b tank/a", 1);
    machine.ok("zfs unmount tank/a");
    let ran = machine.run("zfs set mountpoint=~/b tank/a");
    assert!(ran.status == 0 && ran.err.contains("is not empty"), "{ran:?}");
    assert_eq!(machine.ok("zfs get -Ho value mounted tank/a"), "no\n");
    machine.fails("zfs mount tank/a", 1);
}

#[test]
fn letters_for_help_are_no_options_of_zfs() {
    let machine = Machine::new("letters");
    for line in ["zpool list -h", "zfs get -h all", "zfs get -?PR all"] {
        assert!(machine.fails(line, 2).contains("usage:"), "{line}");
    }
    machine.ok("steadfast fs list -h");
}

#[test]
fn a_new_mountpoint_mounts_what_follows_it_and_nothing_else() {
    let machine = Machine::new("follows");
    machine.ok("zpool create -m none tank tank.img");
    machine.ok("zfs create -o mountpoint=~/a tank/a");
    machine.ok("zfs create -o mountpoint=~/own tank/a/own");
    machine.ok("zfs create tank/a/own/in");
    machine.ok("zfs create tank/a/in");
    machine.ok("zfs unmount -a");
    machine.ok("zfs set mountpoint=~/b tank/a");
    assert_eq!(machine.ok("zfs get -Hro value mounted tank/a"), "yes\nyes\nno\nno\n");
    // A mounted one stays mounted wherever it is.
    machine.ok("zfs mount tank/a/own");
    machine.ok("zfs set mountpoint=~/c tank/a");
    assert_eq!(machine.ok("zfs get -Hro value mounted tank/a"), "yes\nyes\nyes\nno\n");
}

#[test]
fn mount_of_the_system_is_for_legacy_mountpoints() {
    let machine = Machine::new("legacy");
    machine.ok("zpool create -m none tank tank.img");
    machine.ok("zfs create tank/a");
    let told = machine.fails("mount.zfs tank/a ~/a", 1);
    assert!(told.contains("is no folder"), "as with mount(8): {told}");
    std::fs::create_dir(machine.folder.join("a")).unwrap();
    let told = machine.fails("mount.zfs tank/a ~/a", 1);
    assert!(told.contains("filesystem 'tank/a' cannot be mounted using 'mount'"), "{told}");
    machine.ok("mount.zfs tank/a ~/a -o zfsutil");
    machine.ok("zfs unmount tank/a");
    machine.ok("zfs set mountpoint=legacy tank/a");
    machine.ok("mount.zfs tank/a ~/a");
    machine.ok("zfs unmount tank/a");
    // Ours asks for nothing.
    machine.ok("zfs set mountpoint=none tank/a");
    machine.ok("mount.steadfast tank/a ~/a");
}

#[test]
fn a_key_that_a_clone_needs_keeps_its_file_system_mounted() {
    let machine = Machine::new("needed");
    machine.ok("zpool create -m ~/t tank tank.img");
    let make = "zfs create -o encryption=on -o keyformat=passphrase tank/a";
    assert_eq!(machine.run_with(make, "12345678\n").status, 0);
    machine.ok("zfs snapshot tank/a@1");
    machine.ok("zfs clone tank/a@1 tank/c");
    let told = machine.fails("zfs unmount -u tank/a", 1);
    assert!(told.contains("cannot unmount 'tank/a'"), "{told}");
    assert_eq!(machine.ok("zfs get -Ho value mounted,keystatus tank/a"), "yes\navailable\n");
    // Together they go.
    machine.ok("zfs unmount -au");
    assert_eq!(machine.ok("zfs get -Ho value mounted,keystatus tank/a"), "no\nunavailable\n");
}

#[test]
fn what_exists_already_is_told_in_one_line() {
    let mut machine = Machine::new("exists");
    machine.ok("zpool create tank tank.img");
    machine.ok("zfs create tank/a");
    machine.ok("zfs snapshot tank/a@1");
    machine.ok("zfs bookmark tank/a@1 tank/a#1");
    machine.ok("zfs hold keep tank/a@1");
    machine.explains = false;
    for (line, said) in [
        ("zfs bookmark tank/a@1 tank/a#1", "cannot create bookmark 'tank/a#1': bookmark exists"),
        ("zfs hold keep tank/a@1", "cannot hold snapshot 'tank/a@1': tag already exists on this dataset"),
    ] {
        assert_eq!(machine.fails(line, 1), format!("{said}\n"), "{line}");
    }
}
