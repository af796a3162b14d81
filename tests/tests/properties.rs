//! Properties of file systems as an operator meets them.

use steadfast_tests::Host;

#[test]
fn properties_of_zfs_answer_and_only_broken_promises_are_refused() {
    let Some(host) = Host::with_tank("elsewhere") else { return };
    host.shell("zfs set sharesmb=on tank").fails(1).says("SMB server").says("PROP-ELSEWHERE");
    host.shell("zfs set sharenfs=sec=krb5 tank").fails(1).says("there is no Kerberos here");
    host.shell("zfs create -o volsize=1G tank/v")
        .fails(1)
        .says("'volsize' is a property of a volume, and 'tank/v' is a file system");
    host.shell("zfs get -Ho value projectquota@5,snapshots_changed,sharenfs,checksum,logbias,version tank")
        .ok()
        .says("-\n-\noff\non\nlatency\n5\n");
    host.shell("zfs get -Ho value primarycache,prefetch,overlay,filesystem_limit tank")
        .ok()
        .says("all\nall\non\nnone\n");
    // A number of its own, which a new name does not change.
    let guid = |fs: &str| host.shell(&format!("zfs get -Hpo value guid {fs}")).ok().out;
    let number = guid("tank");
    assert!(number.trim().parse::<u64>().is_ok_and(|guid| guid != 0), "{number}");
    host.shell("zfs create tank/g").ok();
    let before = guid("tank/g");
    host.shell("zfs rename tank/g tank/h; zpool export tank; zpool import -d $PWD tank").ok();
    assert_eq!((guid("tank/h"), guid("tank") == before), (before, false));
    host.shell("zfs destroy tank/h; zpool get -Ho value version tank").ok().says("-\n");
    // Stored, shown, inherited, and told to have no effect.
    let set = host.shell("zfs create -o logbias=throughput tank/db && zfs create tank/db/log").ok();
    assert_eq!(
        set.err,
        "note: 'logbias=throughput' has no effect here: `journal` sets the content of the intent log\n"
    );
    host.shell("zfs get -Ho value,source logbias tank/db/log")
        .ok()
        .says("throughput\tinherited from tank/db\n");
    host.shell("zfs set compression=gzip-9 checksum=sha256 tank/db 2>&1")
        .ok()
        .says("'compression=gzip-9' has the effect of 'zstd-9'");
    // A program reads back what it set, and content is compressed as the note says.
    host.shell("zfs get -Ho value,source compression,checksum tank/db/log")
        .ok()
        .says("gzip-9\tinherited from tank/db\nsha256\tinherited from tank/db\n");
    host.shell("yes | head -c 1M > t/db/file; zpool sync").ok();
    assert_ne!(host.shell("zfs get -Ho value compressratio tank/db").ok().out, "1.00x\n");
    host.shell("zfs set acltype=nfsv4 tank").fails(1).says("'acltype=nfsv4' is not offered").says("POSIX");
    host.shell("truncate -s 64M other.img && zpool create -o ashift=14 -o feature@lz4_compress=enabled other $PWD/other.img 2>&1")
        .ok()
        .says("'ashift=14' is stored as '13'")
        .says("'feature@lz4_compress=enabled' has no effect: every pool has its function");
    host.shell(
        "zpool get -Ho value ashift,feature@extensible_dataset,feature@draid,freeing,leaked,multihost other",
    )
    .ok()
    .says("13\nactive\ndisabled\n0\n0\noff\n");
    host.shell("zpool set listsnapshots=on tank 2>&1")
        .ok()
        .says("note: 'listsnapshots=on' has no effect here");
    host.shell("zpool set multihost=on tank").fails(1).says("anchor").says("PROP-ELSEWHERE");
    host.shell("zpool get nonsense tank").fails(2).says("invalid property 'nonsense'");
    host.shell("zpool destroy other").ok();
}

#[test]
fn a_limit_of_file_systems_holds_for_create_and_rename() {
    let Some(host) = Host::with_tank("fslimit") else { return };
    host.shell("zfs create -o filesystem_limit=2 tank/a; zfs create -p tank/a/b/c; zfs create tank/d").ok();
    host.shell("zfs create tank/a/e").fails(1).says("may have 2 file systems below it").says("PROP-COUNT");
    host.shell("zfs rename tank/d tank/a/d").fails(1).says("PROP-COUNT");
    host.shell("zfs rename tank/a/b/c tank/a/c; zfs get -Ho value filesystem_count,filesystem_limit tank/a")
        .ok()
        .says("2\n2\n");
    host.shell("zfs set filesystem_limit=none tank/a; zfs rename tank/d tank/a/d").ok();
    host.shell("zfs get -Ho value filesystem_count tank").ok().says("4\n");
}

#[test]
fn a_limit_of_snapshots_holds_for_all_that_makes_them() {
    let Some(host) = Host::with_tank("sslimit") else { return };
    host.shell("zfs create tank/a; zfs create tank/a/b; zfs create tank/c; zfs set snapshot_limit=3 tank/a")
        .ok();
    host.shell("zfs snapshot -r tank/a@1; zfs snapshot tank/c@1").ok();
    host.shell("zfs snapshot -r tank/a@2").fails(1).says("'tank/a' may have 3 snapshots").says("PROP-COUNT");
    host.shell("zfs list tank/a@2").fails(1).says("SNAP-ABSENT");
    host.shell("zfs snapshot tank/a/b@2; zfs get -Ho value snapshot_count,snapshot_limit tank/a")
        .ok()
        .says("3\n3\n");
    // Moved there, received, and taken over from where it was.
    host.shell("zfs rename tank/c tank/a/c").fails(1).says("PROP-COUNT");
    host.shell("zfs send tank/c@1 | zfs receive tank/a/new").fails(1).says("PROP-COUNT");
    host.shell("zfs send tank/c@1 | zfs receive tank/d; zfs rename tank/d tank/a/d")
        .fails(1)
        .says("PROP-COUNT");
    host.shell("zfs set readonly=on tank/d; zfs set snapshot_limit=1 tank/d; zfs snapshot tank/c@2").ok();
    host.shell("zfs send -i @1 tank/c@2 | zfs receive tank/d").fails(1).says("'tank/d' may have 1 snapshots");
    host.shell("zfs clone tank/c@1 tank/a/k; zfs promote tank/a/k").fails(1).says("PROP-COUNT");
    host.shell("zfs destroy tank/a/b@2; zfs promote tank/a/k").ok();
    host.shell("zfs get -Ho value snapshot_count tank/a tank/c tank").ok().says("3\n1\n5\n");
    // Within it everything moves freely, and without it too.
    host.shell("zfs rename tank/a/k tank/a/b/k; zfs get -Ho value snapshot_count tank/a/b").ok().says("2\n");
    host.shell("zfs set snapshot_limit=none tank/a; zfs snapshot -r tank/a@3").ok();
    host.shell("zfs create -V 8M -o snapshot_limit=1 tank/v; zfs snapshot tank/v@1").ok();
    host.shell("zfs snapshot tank/v@2").fails(1).says("PROP-COUNT");
}

#[test]
fn content_is_read_with_and_without_a_cache_and_ratios_tell_own_and_all() {
    let Some(host) = Host::with_tank("caches") else { return };
    host.shell("zfs create tank/a; zfs create tank/a/b; yes words | head -c 4M > t/a/b/f; head -c 1M /dev/urandom > t/a/g").ok();
    let before = host.shell("zpool sync; sha256sum t/a/b/f t/a/g").ok().out;
    for setting in
        ["primarycache=metadata", "primarycache=none", "prefetch=none", "primarycache=all prefetch=metadata"]
    {
        host.shell(&format!("zfs set {setting} tank/a; zfs unmount tank/a; zfs mount -a")).ok();
        assert_eq!(host.shell("sha256sum t/a/b/f t/a/g").ok().out, before, "{setting}");
    }
    let ratio = |property: &str, fs: &str| -> f64 {
        host.shell(&format!("zfs get -Hpo value {property} {fs}")).ok().out.trim().parse().expect("a ratio")
    };
    assert!(ratio("refcompressratio", "tank/a") < 1.1, "noise");
    assert!(ratio("compressratio", "tank/a") > 2.0, "with the words below it");
    assert!((ratio("compressratio", "tank/a/b") - ratio("refcompressratio", "tank/a/b")).abs() < 0.01);
}

#[test]
fn names_that_are_no_utf_8_are_refused_where_that_is_asked_for() {
    let Some(host) = Host::with_tank("utf8only") else { return };
    host.shell("zfs create -o utf8only=on tank/u; zfs create tank/u/below; zfs create tank/b").ok();
    let bad = r"$(printf 'caf\351')";
    let refused = |line: &str| {
        let line = line.replace("BAD", bad);
        host.shell(&line).fails(1).says("nvalid or incomplete multibyte or wide character");
    };
    host.shell("touch t/u/café t/b/x; touch t/u/plain").ok();
    host.shell(&format!("touch t/b/{bad}; mkdir t/b/{bad}d")).ok();
    for fs in ["t/u", "t/u/below"] {
        refused(&format!("LC_ALL=C mkdir {fs}/BAD"));
        refused(&format!("LC_ALL=C ln -s x {fs}/BAD"));
        refused(&format!("LC_ALL=C touch {fs}/BAD"));
    }
    refused("LC_ALL=C mv t/u/plain t/u/BAD");
    refused("LC_ALL=C ln t/u/plain t/u/BAD");
    host.shell("ls t/u").ok().says("café").says("plain");
    host.shell("zfs get -Ho value,source utf8only tank/u tank/u/below tank/b")
        .ok()
        .says("on\tlocal\non\tlocal\noff\tdefault\n");
    host.shell("zfs set utf8only=off tank/u").fails(1).says("can be set only at creation");
    // It goes along, wherever it is moved, and a clone is as its origin.
    host.shell("zfs rename tank/u/below tank/moved; zfs snapshot tank/u@1; zfs clone tank/u@1 tank/clone")
        .ok();
    refused("LC_ALL=C mkdir t/moved/BAD");
    refused("LC_ALL=C mkdir t/clone/BAD");
    host.shell("zfs get -Ho value normalization,casesensitivity tank/u").ok().says("none\nsensitive\n");
}

#[test]
fn attributes_of_users_can_be_switched_off() {
    let Some(host) = Host::with_tank("xattr") else { return };
    host.shell("touch t/f; setfattr -n user.a -v kept t/f; zfs snapshot tank@1").ok();
    host.shell("getfattr -n user.a t/f").ok().says("kept");
    host.shell("zfs set xattr=off tank; zfs get -Ho value xattr tank").ok().says("off");
    host.shell("setfattr -n user.b -v no t/f").fails(1).says("not supported");
    host.shell("getfattr -n user.a t/f").fails(1).says("not supported");
    host.shell("getfattr -n user.a t/.zfs/snapshot/1/f").fails(1).says("not supported");
    assert_eq!(host.shell("getfattr -d t/f").ok().out, "");
    host.shell("zfs set xattr=sa tank; getfattr -n user.a t/f").ok().says("kept");
    host.shell("getfattr -n user.a t/.zfs/snapshot/1/f").ok().says("kept");
    host.shell("zfs set xattr=dir tank 2>&1").ok().says("'xattr=dir' is stored as 'sa'");
}

#[test]
fn canmount_unmounts_at_off_and_moves_nothing_else() {
    let Some(host) = Host::with_tank("canmount") else { return };
    let mounted = |name: &str| host.shell(&format!("zfs get -Ho value mounted {name}")).ok().out;
    host.shell("zfs create tank/a && zfs create tank/a/b && zfs unmount tank/a/b").ok();
    let open = std::fs::File::create(host.at("t/a/file")).expect("a file");
    host.shell("zfs set canmount=noauto tank/a").ok();
    assert_eq!((mounted("tank/a").trim(), mounted("tank/a/b").trim()), ("yes", "no"));
    host.shell("zfs set canmount=off tank/a").fails(1).says("FS-BUSY");
    drop(open);
    host.shell("zfs set canmount=off tank/a").ok();
    assert_eq!(mounted("tank/a").trim(), "no");
    host.shell("zfs set canmount=on tank/a").ok();
    assert_eq!(mounted("tank/a").trim(), "no");
    host.shell("zfs mount tank/a").ok();
    // A path may hold a symbolic link, and all are unmounted by path: a name says nothing of it.
    host.shell("zfs create -o mountpoint=$PWD/t/z tank/0 && ln -s t/z link").ok();
    host.shell("mkdir t/z/in && zfs create -o mountpoint=$PWD/t/z/in tank/9").ok();
    host.shell("zfs create -o mountpoint=$PWD/t/z/in/deep tank/1").ok();
    assert_eq!(host.shell("zfs list -Ho name $PWD/link").ok().out, "tank/0\n");
    host.shell("zfs unmount -a").ok();
}

#[test]
fn a_file_system_may_lie_over_what_a_folder_holds() {
    let Some(host) = Host::with_tank("overlay") else { return };
    host.shell("mkdir full; touch full/x; zfs create -o mountpoint=$PWD/full tank/o && test ! -e full/x")
        .ok();
    host.shell("zfs unmount tank/o; ls full/x; zfs set overlay=off tank/o").ok();
    host.shell("zfs mount tank/o").fails(1).says("cannot mount 'tank/o': directory is not empty");
    host.shell("zfs mount -O tank/o; test ! -e full/x; zfs destroy tank/o; ls full/x").ok();
    // A file system that cannot be mounted is made all the same.
    let made = host.shell("zfs create -o overlay=off -o mountpoint=$PWD/full tank/o");
    made.fails(1).says("FS-MOUNTPOINT").says("filesystem successfully created, but not mounted\n");
    host.shell("zfs list tank/o; zfs create -u -o overlay=off -o mountpoint=$PWD/full tank/p").ok();
    host.shell("touch file && zfs create -V 1M -o mountpoint=$PWD/file tank/empty").ok();
    // A volume is made whether or not its file has a place, as one of ZFS has none.
    let made = host.shell("echo x > data && zfs create -V 1M -o mountpoint=$PWD/data tank/v").ok();
    assert!(
        made.err.starts_with("note: ") && made.err.contains("is a file that is not empty"),
        "{}",
        made.err
    );
    host.shell("zfs mount tank/v").fails(1).says("FS-MOUNTPOINT");
}

#[test]
fn history_tells_what_the_pool_did_by_itself() {
    let Some(host) = Host::with_tank("history") else { return };
    host.shell("zfs create tank/a; zfs set quota=20M org:x=1 tank/a; zfs rename tank/a tank/b; zfs inherit org:x tank/b; zfs destroy tank/b").ok();
    host.shell("echo 12345678 | zfs create -o encryption=on -o keyformat=passphrase tank/p").ok();
    let short = host.shell("zpool history tank").ok().says("zfs set quota=20M org:x=1 tank/a").out;
    assert!(!short.contains("[txg:"), "{short}");
    let all = host.shell("zpool history -il tank").ok();
    let all =
        all.says("create tank/a (2)").says("set tank/a (2) quota=20971520").says("set tank/a (2) org:x=1");
    let all =
        all.says("rename tank/a (2) -> tank/b").says("inherit tank/b (2) org:x").says("destroy tank/b (2)");
    assert!(!all.out.contains("12345678"), "no secret: {}", all.out);
    host.shell("zpool export tank; zpool import -d $PWD tank; zpool history -i tank")
        .ok()
        .says("destroy tank/b (2)");
}

#[test]
fn words_that_the_suite_of_zfs_uses_are_taken_or_refused_as_there() {
    let Some(host) = Host::with_tank("words") else { return };
    host.shell("zfs create -o version=1 -o recordsize=512 tank/old 2>&1")
        .ok()
        .says("'version=1' has no effect here")
        .says("'recordsize=512' is stored as '4096'");
    host.shell("zfs get -Hpo value version,recordsize tank/old").ok().says("5\n4096\n");
    host.shell("zfs set version=5 tank/old").fails(1);
    // Names of properties have small letters.
    host.shell("zfs create -o QuOta=none tank/q").fails(1);
    host.shell("zfs get AVAIL tank").fails(2);
    host.shell("zfs get -Ho value avail tank").ok();
    // A clone of a volume takes no property of a file system.
    host.shell("zfs create -sV 16M tank/vol; zfs snapshot tank/vol@1").ok();
    host.shell("zfs clone -o quota=1G tank/vol@1 tank/copy").fails(1).says("PROP-KIND");
    host.shell("zfs clone tank/vol@1 tank/copy").ok();
    host.shell("zfs create -p tank/old; zfs create -psV 16M tank/vol").ok();
    host.shell("zfs create -pV 16M tank/old").fails(1).says("dataset already exists");
    host.shell("zfs create -uV 16M tank/new").fails(2);
    host.shell("zfs create -nPV 16M tank/new").ok().says("property\trefreservation\t18874368\n");
    // Either side of `bookmark` may leave out the file system.
    host.shell("zfs snapshot tank/old@1; zfs bookmark @1 tank/old#a; zfs bookmark tank/old@1 '#b'").ok();
    host.shell("zfs list -Ho name -t bookmark -r tank/old").ok().says("tank/old#a\ntank/old#b\n");
    // A base is named once, and history does not tell of reads.
    host.shell("zfs snapshot tank/old@2; zfs send -i @1 -i @1 tank/old@2 > s").fails(2);
    host.shell("zfs send -i @1 tank/old@2 > s").ok();
    let history = host.shell("zpool history tank").ok().says("zfs snapshot tank/old@2").out;
    assert!(!history.contains("zfs send"), "{history}");
    // Paths, and what is none.
    host.shell("cd t/old; zfs list -Ho name ./../old").ok().says("tank/old\n");
    host.shell("zfs list $PWD/t/none").fails(1).says("There is no path");
    // Several trees are mounted at once.
    host.shell("zfs create -p tank/a/b; zfs create -p tank/c/d; zfs unmount -a; zfs mount -R tank/a tank/c")
        .ok();
    host.shell("zfs get -Ho value mounted tank/a/b tank/c/d").ok().says("yes\nyes\n");
    host.shell("zfs mount tank/a tank/c").fails(2).says("too many arguments");
}

/// gzip is no feature of ZFS, so a pool without features takes it; the word for Zstandard it
/// refuses. Its streams go into pools of either kind.
#[test]
fn a_pool_without_features_compresses_with_gzip() {
    let Some(host) = Host::with_images("gzip without features", 2, 64 << 20) else { return };
    host.shell("zpool create -d -m $PWD/t tank $PWD/d1.img && zfs create -o compression=gzip-6 tank/z").ok();
    host.shell("zfs create -o compression=zstd tank/x").fails(1).says("does not use the feature zstd yet");
    host.shell("yes a line of text | head -c 4M > t/z/f; zpool sync; zfs snapshot tank/z@1").ok();
    let used: u64 = host.shell("zfs get -Hpo value used tank/z").ok().out.trim().parse().expect("bytes");
    assert!(used < 1 << 20, "{used} bytes of 4 MiB");
    for options in ["-d", ""] {
        host.shell(&format!("zpool create {options} -m $PWD/s safe $PWD/d2.img")).ok();
        for send in ["zfs send", "zfs send -c", "zfs send -p"] {
            host.shell(&format!("{send} tank/z@1 | zfs receive safe/z && diff -r t/z s/z")).ok();
            host.shell("zfs destroy -r safe/z").ok();
        }
        host.shell("zpool destroy safe").ok();
    }
}
