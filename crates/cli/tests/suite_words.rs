//! Behaviour of `zpool` that OpenZFS's own test suite expects.

use crate::words::Machine;

#[test]
fn a_wrong_value_is_refused_although_the_right_one_has_no_effect() {
    let machine = Machine::new("as-zfs-refuses");
    let image = "~/zfs_encrypt.img";
    machine.ok("zpool create tank tank.img");
    for (line, reason) in [
        ("zpool events -c -v", "-c cannot be combined with -v"),
        ("zpool events -c tank", "-c clears the events of all pools"),
        ("zpool create -o feature@async_destroy=disable x IMAGE", "must be enabled or disabled"),
        ("zpool create -o feature@async_destroy=active x IMAGE", "must be enabled or disabled"),
        ("zpool set feature@async_destroy=disabled tank", "can only be set to enabled"),
        ("zpool set feature@zstd=disabled tank", "can only be set to enabled"),
        ("zpool create -o compatibility=unknown x IMAGE", "no set of features 'unknown'"),
        ("zpool create -o compatibility=../zfs x IMAGE", "no set of features '../zfs'"),
        ("zpool create -O quota=0 x IMAGE", "use 'none' to disable quota"),
        ("zfs set refquota=0M tank", "use 'none' to disable refquota"),
        ("zpool split -o ro tank x", "-o readonly: it is a property of an import"),
        ("zpool reguid -g 0xA tank", "invalid GUID '0xA'"),
        ("zpool resilver -h", "usage:"),
    ] {
        let said = machine.fails(&line.replace("IMAGE", image), 2);
        assert!(said.contains(reason), "{line}: {said}");
    }
    let said = machine.fails("zpool create -n x mirror a b c d e", 1);
    assert!(said.contains("mirrors of more than 4 devices are not built"), "{said}");
    machine.ok("zpool resilver --help");
    machine.ok("zfs set quota=none tank");
    machine.ok("zfs set reservation=0 tank");
    // Accepted, with a note.
    for line in
        ["zpool set compatibility=legacy tank", "zpool create -n -o feature@async_destroy=disabled x IMAGE"]
    {
        let ran = machine.run(&line.replace("IMAGE", image));
        assert!(ran.status == 0 && ran.err.starts_with("note: "), "{line}: {ran:?}");
    }
    machine.ok("zpool reguid -g -1 tank");
    assert_eq!(machine.ok("zpool get -Ho value guid tank"), "18446744073709551615\n");
}

#[test]
fn a_histogram_for_scripts_has_no_headings_and_the_history_survives_a_destroy() {
    let machine = Machine::new("histogram-for-scripts");
    machine.ok("zpool create tank tank.img");
    for (line, columns) in [("zpool iostat -wpH tank", 13), ("zpool iostat -rpH tank", 15)] {
        let told = machine.ok(line);
        assert!(!told.is_empty(), "{line}");
        for row in told.lines() {
            let cells: Vec<&str> = row.split('\t').collect();
            assert_eq!(cells.len(), columns, "{line}: {row}");
            assert!(cells.iter().all(|cell| cell.parse::<u64>().is_ok()), "{line}: {row}");
        }
    }
    machine.ok("zpool destroy tank");
    machine.ok("zpool import -D -f -d ~ tank");
    assert!(machine.ok("zpool history tank").contains(" zpool destroy tank\n"));
}

#[test]
fn a_user_property_of_a_pool_goes_with_an_empty_value() {
    let machine = Machine::new("user-property-gone");
    machine.ok("zpool create tank tank.img");
    let told = |machine: &Machine| machine.ok("zpool get -Ho value,source a:b tank");
    machine.ok("zpool set a:b=c tank");
    assert_eq!(told(&machine), "c\tlocal\n");
    machine.ok("zpool set a:b= tank");
    assert_eq!(told(&machine), "-\tdefault\n");
    assert!(!machine.ok("zpool get all tank").contains("a:b"));
}

#[test]
fn a_group_or_device_has_properties_of_its_own() {
    let machine = Machine::new("vdev-properties");
    machine.ok("zpool create tank tank.img");
    let told = |line: &str| machine.ok(&format!("zpool get -Ho property,value,source {line}"));
    machine.ok("zpool set comment=left tank ~/tank.img");
    machine.ok("zpool set a:b=c tank root");
    assert_eq!(told("comment tank ~/tank.img"), "comment\tleft\tlocal\n");
    assert_eq!(told("comment,a:b tank root"), "comment\t-\t-\na:b\tc\tlocal\n");
    assert_eq!(told("a:b tank tank.img"), "a:b\t-\tdefault\n");
    assert_eq!(told("numchildren,state tank root"), "numchildren\t1\t-\nstate\tONLINE\t-\n");
    assert!(told("all tank root").ends_with("a:b\tc\tlocal\n"));
    assert_eq!(machine.ok("zpool get -Ho value comment tank"), "-\n", "of the pool");
    let all = machine.ok("zpool get all tank");
    assert!(!all.contains("a:b") && !all.contains(":vdev:"), "{all}");
    machine.ok("zpool set a:b= tank root");
    assert_eq!(told("a:b tank root"), "a:b\t-\tdefault\n");
    machine.ok("zpool export tank");
    machine.ok("zpool import -d ~ tank");
    assert_eq!(told("comment tank tank.img"), "comment\tleft\tlocal\n");
    assert!(machine.fails("zpool set size=1 tank root", 2).contains("cannot be set on a device"));
    assert!(machine.fails("zpool set comment=x tank ~/other.img", 1).contains("VDEV-MISSING"));
}

#[test]
fn groups_behind_spares_are_normal_ones_and_mirrors_stand_beside_raidz() {
    let machine = Machine::new("groups-behind");
    let images: Vec<String> = (0..6).map(|at| format!("disk{at}.img")).collect();
    images.iter().for_each(|name| machine.image(name, 128 << 20));
    machine.ok(
        "zpool create tank mirror ~/disk0.img ~/disk1.img spare ~/disk2.img mirror ~/disk3.img ~/disk4.img",
    );
    let status = machine.ok("zpool status tank");
    let order: Vec<Option<usize>> =
        ["mirror-0", "mirror-1", "spares"].iter().map(|word| status.find(word)).collect();
    assert!(order.is_sorted() && order.iter().all(Option::is_some), "{status}");
    // Special devices are a feature of ZFS.
    let special = "zpool create -d few ~/disk0.img special ~/disk1.img";
    assert!(machine.fails(special, 1).contains("no special devices"));
    // The lines of a new pool: special devices stand below their word.
    machine.ok("zpool destroy tank");
    machine.ok("zpool create tank mirror ~/disk0.img ~/disk1.img special mirror ~/disk2.img ~/disk3.img");
    let told = machine.ok("zpool split -n tank half");
    let lines: Vec<&str> = told.lines().collect();
    assert!(lines[3].ends_with("disk1.img") && lines[5].ends_with("disk3.img"), "{told}");
    assert_eq!((lines[2], lines[4], lines.len()), ("\thalf", "\tspecial", 6), "{told}");
    machine.ok("zpool destroy tank");
    machine.ok("zpool create tank mirror ~/disk0.img ~/disk1.img");
    machine.ok("zpool add -n tank raidz1 ~/disk2.img ~/disk3.img ~/disk4.img");
    assert!(
        machine
            .fails("zpool add -n tank raidz2 ~/disk2.img ~/disk3.img ~/disk4.img", 1)
            .contains("mismatched")
    );
    assert!(machine.fails("zpool add -n tank ~/disk2.img", 1).contains("mismatched"));
}

#[test]
fn a_trim_goes_on_after_an_export() {
    let machine = Machine::new("trim-goes-on");
    machine.ok("zpool create tank tank.img");
    // A slot now and then.
    machine.ok("zpool trim -r 4K tank");
    let told = |machine: &Machine| {
        let status = machine.ok("zpool status -t tank");
        let line = status.lines().find(|line| line.contains("tank.img")).expect("the device").to_owned();
        line.split_once('(').expect("a note").1.to_owned()
    };
    let again = |machine: &Machine| {
        machine.ok("zpool export tank");
        machine.ok("zpool import -d ~ tank");
        assert!(!machine.ok("zpool get all tank").contains("vdev"), "no property is left");
    };
    let before = told(&machine);
    assert!(before.contains("% trimmed, started at "), "{before}");
    again(&machine);
    assert_eq!(told(&machine), before);
    machine.ok("zpool trim -s tank");
    let before = told(&machine);
    assert!(before.contains("% trimmed, suspended, started at "), "{before}");
    again(&machine);
    assert_eq!(told(&machine), before);
    machine.ok("zpool trim -c tank");
    again(&machine);
    assert_eq!(told(&machine), "untrimmed)");
}

#[test]
fn a_trim_goes_on_in_the_pool_that_a_split_makes() {
    let machine = Machine::new("trim-splits");
    ["disk0.img", "disk1.img"].iter().for_each(|name| machine.image(name, 128 << 20));
    machine.ok("zpool create tank mirror ~/disk0.img ~/disk1.img");
    machine.ok("zpool trim -r 4K tank");
    machine.ok("zpool split tank half");
    machine.ok("zpool import -d ~ half");
    for pool in ["tank", "half"] {
        let status = machine.ok(&format!("zpool status -t {pool}"));
        assert!(status.contains("% trimmed, started at "), "{status}");
        assert!(!machine.ok(&format!("zpool get all {pool}")).contains("vdev"));
    }
}

#[test]
fn a_file_that_was_deleted_is_replaced_by_a_new_one_at_its_path() {
    let machine = Machine::new("deleted-in-place");
    ["disk0.img", "disk1.img"].iter().for_each(|name| machine.image(name, 128 << 20));
    machine.ok("zpool create tank mirror ~/disk0.img ~/disk1.img");
    assert!(machine.fails("zpool replace -f tank ~/disk0.img ~/disk0.img", 1).contains("VDEV-IN-PLACE"));
    std::fs::remove_file(machine.folder.join("disk0.img")).expect("deleted");
    machine.image("disk0.img", 128 << 20);
    machine.ok("zpool replace tank ~/disk0.img ~/disk0.img");
    machine.ok("zpool wait -t resilver tank");
    assert_eq!(machine.ok("zpool list -Ho health tank"), "ONLINE\n");
    machine.ok("zpool export tank");
    std::fs::remove_file(machine.folder.join("disk1.img")).expect("deleted");
    machine.ok("zpool import -d ~ tank");
    assert!(machine.ok("zpool status tank").contains("disk0.img  ONLINE"));
}

#[test]
fn a_pool_that_is_imported_read_only_is_not_cleared_and_leaves_whole() {
    let machine = Machine::new("read-only-leaves");
    machine.ok("zpool create tank tank.img");
    machine.ok("zpool export tank");
    machine.ok("zpool import -d ~ -o readonly=on tank");
    assert!(machine.fails("zpool clear tank", 1).contains("read-only"));
    let ran = machine.run("zpool destroy tank");
    assert!(ran.status == 0 && ran.err.contains("its devices are as they were"), "{ran:?}");
    machine.ok("zpool import -d ~ tank");
    assert_eq!(machine.ok("zpool list -Ho name,health"), "tank\tONLINE\n");
}

#[test]
fn a_pool_stands_in_the_list_that_its_property_names() {
    let machine = Machine::new("cachefile");
    let list = machine.folder.join("list.1");
    let path = list.display().to_string();
    let shown = |machine: &Machine| machine.ok("zpool get -Ho value,source cachefile tank");
    machine.ok(&format!("zpool create -o cachefile={path} tank tank.img"));
    assert_eq!(shown(&machine), format!("{path}\tlocal\n"));
    let listed = std::fs::read_to_string(&list).expect("the list");
    assert!(listed.contains("\"tank\"") && listed.contains("tank.img"), "{listed}");
    let copy = machine.folder.join("copy");
    std::fs::copy(&list, &copy).expect("a copy of the list");
    // The own list has it, then none has, then the other file again.
    machine.ok("zpool set cachefile= tank");
    assert_eq!((shown(&machine), list.exists()), ("-\tdefault\n".into(), false));
    machine.ok("zpool set cachefile=none tank");
    assert_eq!((shown(&machine), list.exists()), ("none\tlocal\n".into(), false));
    machine.ok(&format!("zpool set cachefile={path} tank"));
    machine.ok("zpool export tank");
    assert!(!list.exists(), "the list names no pool");
    // Another pool of this name lies beside it, and a device of the listed one has another name.
    machine.ok("zpool create tank ~/zfs_encrypt.img");
    machine.ok("zpool export tank");
    std::fs::rename(machine.folder.join("tank.img"), machine.folder.join("moved.img")).expect("renamed");
    let found = machine.ok("zpool import -c ~/copy");
    assert!(found.contains("moved.img") && !found.contains("zfs_encrypt.img"), "{found}");
    assert!(machine.fails("zpool import -c ~/copy other", 1).contains("no such pool"));
    machine.ok(&format!("zpool import -c ~/copy -o cachefile={path} tank"));
    assert!(machine.ok("zpool status tank").contains("moved.img"));
    assert!(std::fs::read_to_string(&list).expect("the list").contains("moved.img"));
    // A file that is no list of ours is left alone.
    std::fs::write(&copy, "precious").expect("written");
    assert!(machine.fails("zpool set cachefile=~/copy tank", 1).contains("something else"));
    assert!(
        machine.fails("zpool create -o cachefile=~/absent/list x ~/zfs_encrypt.img", 1).contains("folder")
    );
    assert_eq!(std::fs::read(&copy).expect("read"), b"precious");
    assert_eq!(shown(&machine), format!("{path}\tlocal\n"));
}
