//! `zfs send` and `zfs receive` through the command line, pipes and real mounts.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::process::Command;

use steadfast_tests::Host;

/// A host with two pools: `tank`, mounted at `t`, and `safe`, mounted at `s`.
fn host(test: &str) -> Option<Host> {
    let host = Host::with_tank(test)?;
    let at = host.at("s").display().to_string();
    host.shell(&format!("truncate -s 256M safe.img && zpool create -m {at} safe $PWD/safe.img")).ok();
    Some(host)
}

/// A file system that is sent as it is now has a snapshot as long as that takes. It goes with a
/// daemon that is killed, too; and a pool that is read-only needs none.
#[test]
fn what_is_sent_as_it_is_now_leaves_no_snapshot() {
    let Some(host) = host("live") else { return };
    host.shell(
        "zfs create tank/home && head -c 9000000 /dev/urandom > t/home/noise && zfs snapshot tank/home@a",
    )
    .ok();
    host.shell("date > t/home/now && cp -r t/home now && zfs unmount tank/home && mkfifo pipe").ok();
    let snapshots = "zfs list -Ho name -t snapshot tank/home";
    // Nobody reads on, so the stream does not end.
    host.shell(
        "(zfs send tank/home > pipe) > send.out 2>&1 & \
         (exec 9< pipe; head -c 1000 <&9; sleep 600) > read.out 2>&1 &",
    )
    .ok();
    host.until(snapshots, |told| told.contains("tank/home@--head--"));
    host.kill_daemon();
    host.shell("umount -l t; umount -l s").ok();
    assert_eq!(host.shell(snapshots).ok().out, "tank/home@a\n", "the pool was imported again");

    host.shell("zpool export tank && zpool import -o readonly=on -d $PWD/tank.img tank").ok();
    host.shell("diff -r now t/home && zfs send tank/home | zfs receive safe/whole && diff -r now s/whole")
        .ok();
    host.shell("zfs send -nv -i @a tank/home").ok().says("send from tank/home@a to tank/home estimated size");
    host.shell(
        "zfs send tank/home@a | zfs receive safe/next && zfs send -i @a tank/home | zfs receive safe/next",
    )
    .ok();
    host.shell("diff -r now s/next").ok();
    let named = host.shell("zfs list -Ho name -t snapshot safe/whole safe/next").ok().out;
    assert_eq!(named, "safe/next@a\nsafe/next@--head--\nsafe/whole@--head--\n");
    assert_eq!(host.shell(snapshots).ok().out, "tank/home@a\n");
}

#[test]
fn a_file_system_goes_to_another_pool_and_its_changes_follow() {
    let Some(host) = host("streams") else { return };
    host.shell("zfs create -o compression=zstd -o org:note=mine tank/home").ok();
    host.shell("cd t/home && mkdir deep && seq 200000 > deep/numbers && ln -s deep/numbers link && cp -r /usr/include/linux . 2>/dev/null; true").ok();
    host.shell("head -c 5000000 /dev/urandom > t/home/noise && truncate -s 40M t/home/sparse").ok();
    host.shell("zfs snapshot tank/home@a").ok();

    // A dry run tells first.
    host.shell("zfs send -n -v tank/home@a").ok().says("full send of tank/home@a estimated size is");
    let planned = host.shell("zfs send -nP tank/home@a").ok().out;
    assert!(planned.starts_with("full\ttank/home@a\t"), "{planned}");
    // To a file and from it, with the properties.
    let sent = host.shell("zfs send -p -v tank/home@a > home.stream").ok();
    assert!(sent.err.contains("total estimated size is"), "{sent:?}");
    host.shell("zfs receive -n -v safe/home < home.stream")
        .ok()
        .says("would receive full stream of tank/home@a");
    host.shell("zfs list safe/home").fails(1);
    let told = host.shell("zfs receive -v -x compression -o recordsize=64K safe/home < home.stream").ok().out;
    assert!(told.contains("receiving full stream of tank/home@a into safe/home@a\nreceived "), "{told}");
    host.shell("diff -r t/home s/home && test $(stat -c %b s/home/sparse) -lt 100").ok();
    // A snapshot is told of when it begins, and again when it has arrived.
    host.shell(
        "mkfifo pipe; zfs receive -v safe/slow < pipe > told & exec 9> pipe; head -c 1000000 home.stream >&9; \
         until grep -qx 'receiving full stream of tank/home@a into safe/slow@a' told; do sleep 0.02; done; \
         ! grep received told; tail -c +1000001 home.stream >&9; exec 9>&-; wait; grep '^received ' told; \
         zfs destroy -r safe/slow",
    )
    .ok();
    let value = |property: &str| host.shell(&format!("zfs get -Ho value {property} safe/home")).ok().out;
    assert_eq!(
        (value("org:note").trim(), value("compression").trim(), value("recordsize").trim()),
        ("mine", "on", "64K")
    );
    let guids = host.shell("zfs list -Ho guid -t snapshot tank/home safe/home").ok().out;
    let guids: Vec<&str> = guids.lines().collect();
    assert_eq!((guids.len(), guids[0]), (2, guids[1]));

    // Increments, one by one and several in one stream.
    for name in ["b", "c", "d"] {
        host.shell(&format!("cd t/home && date >> deep/numbers && rm -f noise.* && cp noise noise.{name} && truncate -s 1000 sparse && zfs snapshot tank/home@{name}")).ok();
    }
    host.shell("zfs send -i a tank/home@b | zfs receive safe/home")
        .ok()
        .says("Warning: incremental source didn't specify type, assuming snapshot. Use '@' or '#' prefix");
    host.shell("zfs send -nvI @b tank/home@d").ok().says("send from @c to tank/home@d");
    host.shell("zfs send -I @b tank/home@d | zfs receive -v safe/home").ok().says("into safe/home@d");
    host.shell("diff -r t/home s/home && diff -r t/home/.zfs/snapshot/c s/home/.zfs/snapshot/c").ok();
    host.shell("zfs list -Ho name -t snapshot safe/home | wc -l").ok().says("4");

    // As it is now, where nobody can change it meanwhile.
    host.shell("zfs send tank/home > nothing")
        .fails(1)
        .says("target is busy; if a filesystem, it must not be mounted");
    host.shell("date > t/home/now && cp -r t/home now && zfs unmount tank/home").ok();
    host.shell("zfs send -R tank/home > nothing")
        .fails(1)
        .says("Unsupported flag with filesystem or bookmark");
    host.shell("zfs send -nv tank/home").ok().says("full send of tank/home estimated size is");
    host.shell(
        "zfs send -i @d tank/home | zfs receive safe/home && zfs send tank/home | zfs receive safe/now",
    )
    .ok();
    let snapshots = host.shell("zfs list -Ho name -t snapshot -r tank/home safe").ok().out;
    let live: Vec<&str> = snapshots.lines().filter(|name| name.contains("--")).collect();
    assert_eq!(live, ["safe/home@--head--", "safe/now@--head--"]);
    host.shell("zfs mount tank/home && diff -r now s/home && diff -r now s/now && rm t/home/now && zfs rollback -r safe/home@d").ok();

    // Given twice, it tells of blocks; and what may be said once only is not said twice.
    host.shell("zfs send -vv tank/home@a > nothing")
        .ok()
        .says("TIME        SENT      BLOCKS    SNAPSHOT tank/home@a");
    host.shell("zfs send -i @a -i @b tank/home@c > nothing").fails(2).says("-i specified multiple times");
    host.shell("zfs receive -x atime -x atime safe/x < home.stream")
        .fails(2)
        .says("property 'atime' specified multiple times");

    // A full stream becomes a clone of a snapshot that came from the same file system.
    host.shell("zfs send tank/home@b | zfs receive -v -o origin=safe/home@a safe/branch")
        .ok()
        .says("found clone origin safe/home@a\nreceiving full stream of tank/home@b into safe/branch@b");
    host.shell("diff -r t/home/.zfs/snapshot/b s/branch && zfs get -Ho value origin safe/branch")
        .ok()
        .says("safe/home@a");
    host.shell("zfs create tank/else && zfs snapshot tank/else@a").ok();
    host.shell("zfs send tank/else@a | zfs receive -o origin=safe/home@a safe/x")
        .fails(1)
        .says("order their directories alike");
    host.shell("zfs destroy -r safe/branch && zfs destroy -r tank/else").ok();

    // Impossible requests are refused with a way out, and change nothing.
    host.shell("zfs receive safe/home < home.stream").fails(1).says("STREAM-EXISTS");
    host.shell("zfs receive safe/no/home < home.stream")
        .fails(1)
        .says("FS-PARENT")
        .says("zfs create -p safe/no");
    host.shell("zfs send -i d tank/home@a > nothing").fails(1).says("STREAM-BASE");
    host.shell("zfs send tank/home@none > nothing").fails(1).says("SNAP-ABSENT");
    host.shell("echo no stream, only a few words of somebody who wants to see what happens then | zfs receive safe/x").fails(1).says("STREAM-NONE");
    host.shell("head -c 100000 home.stream | zfs receive safe/x").fails(1).says("STREAM-ENDS");
    host.shell("(head -c 100000 home.stream; printf xxxx; tail -c +100005 home.stream) | zfs receive safe/x")
        .fails(1)
        .says("STREAM-DAMAGED");
    host.shell("zfs list safe/x").fails(1);
    host.shell("date > s/home/own && zfs snapshot tank/home@e && zfs send -i d tank/home@e > inc").ok();
    host.shell("zfs receive safe/home < inc").fails(1).says("STREAM-MODIFIED");
    host.shell("exec 7< s/home/link; zfs receive -F -o org:note=x safe/home < inc").fails(1).says("FS-BUSY");
    host.shell("exec 7< s/home/link; zfs receive -F safe/home < inc && test ! -e s/home/own && diff -r t/home s/home").ok();

    // A bookmark is enough, and holds nothing.
    host.shell("zfs bookmark tank/home@e tank/home#e && zfs destroy tank/home@%").ok();
    host.shell("zfs bookmark tank/home#e '#f' && zfs bookmark tank/home#e tank/home#f")
        .fails(1)
        .says("BOOKMARK-EXISTS");
    assert_eq!(host.shell("zfs list -Ho name -t bookmark tank/home").ok().out, "tank/home#e\ntank/home#f\n");
    host.shell("rm t/home/noise.d && date > t/home/after && zfs snapshot tank/home@g").ok();
    host.shell("zfs send -i '#e' tank/home@g | zfs receive safe/home && diff -r t/home s/home").ok();
    host.shell("zfs destroy tank/home#f && zfs destroy tank/home#f").fails(1).says("BOOKMARK-ABSENT");

    // Names.
    host.shell("zfs create safe/all && zfs receive -d safe/all < home.stream && zfs list safe/all/home@a")
        .ok();
    host.shell(
        "zfs receive -u -e safe/all/home < home.stream && zfs get -Ho value mounted safe/all/home/home",
    )
    .ok()
    .says("no");
    host.shell("zfs receive safe/other@renamed < home.stream && zfs list safe/other@renamed").ok();
    host.shell("zpool export safe && zpool export tank").ok();
}

/// As in ZFS: a replica may be looked at, and receives all the same.
#[test]
fn an_increment_arrives_while_files_are_open() {
    let Some(host) = host("streams_online") else { return };
    host.shell("zfs create tank/home && mkdir -p t/home/folder/below t/home/left").ok();
    host.shell("echo first > t/home/letter && date > t/home/gone && date > t/home/folder/stays").ok();
    host.shell("zfs snapshot tank/home@a && zfs send tank/home@a | zfs receive safe/home").ok();
    host.shell("echo second > t/home/letter && rm -r t/home/gone t/home/left && date > t/home/folder/new")
        .ok();
    host.shell("mv t/home/folder/stays t/home/moved && mkdir t/home/gone && seq 100000 > t/home/long").ok();
    host.shell("zfs snapshot tank/home@b && zfs send -i @a tank/home@b > inc").ok();

    let top = host.at("s/home");
    let mount = || fs::metadata(&top).expect("there").dev();
    let (before, letter) = (mount(), fs::File::open(top.join("letter")).expect("open"));
    let gone = fs::File::open(top.join("gone")).expect("open");
    let mut first = [0; 5];
    letter.read_exact_at(&mut first, 0).expect("read");
    gone.read_exact_at(&mut first, 0).expect("read");
    let sleeps = |folder| Command::new("sleep").arg("600").current_dir(top.join(folder)).spawn();
    let mut sleepers = ["folder/below", "left"].map(|folder| sleeps(folder).expect("it sleeps"));
    host.shell("ls -lR s/home && zfs receive safe/home < inc && diff -r t/home s/home").ok();
    assert_eq!(mount(), before, "it was not unmounted");
    let mut second = [0; 6];
    letter.read_exact_at(&mut second, 0).expect("read");
    assert_eq!(&second, b"second");
    let stale = gone.read_exact_at(&mut second, 0).expect_err("it is gone");
    assert_eq!(stale.raw_os_error(), Some(116), "{stale}");

    // A file that was written here meanwhile refuses the next one, and is lost with -F.
    host.shell("date > t/home/later && zfs snapshot tank/home@c && zfs send -i @b tank/home@c > inc").ok();
    host.shell("date > s/home/own; exec 5>> s/home/own; zfs receive safe/home < inc")
        .fails(1)
        .says("STREAM-MODIFIED");
    host.shell("cat s/home/own s/home/letter").ok();
    host.shell("exec 5>> s/home/own; zfs receive -F safe/home < inc && diff -r t/home s/home").ok();
    assert_eq!(mount(), before, "it was not unmounted");
    for sleeper in &mut sleepers {
        sleeper.kill().and_then(|()| sleeper.wait()).expect("ended");
    }
    host.shell("date > s/home/own && cat s/home/own && zfs rollback safe/home@b && test ! -e s/home/later")
        .fails(1);
    host.shell("zfs rollback -r safe/home@b && test ! -e s/home/later && test -e s/home/long").ok();
}

#[test]
fn what_breaks_off_is_gone_or_goes_on() {
    let Some(host) = host("broken_streams") else { return };
    host.shell(
        "zfs create tank/home && head -c 30000000 /dev/urandom > t/home/noise && zfs snapshot tank/home@a",
    )
    .ok();
    // A pipe that breaks: both ends say so, and nothing is left.
    host.shell("zfs send tank/home@a | head -c 5000000 > part").ok();
    host.shell("zfs receive safe/home < part").fails(1).says("STREAM-ENDS");
    host.shell("zfs get receive_resume_token safe/home").fails(1);
    host.shell("zfs receive -s safe/home < part").fails(1).says("receive_resume_token");
    let token = host.shell("zfs get -Ho value receive_resume_token safe/home").ok().out;
    assert!(token.starts_with("1-"), "{token}");
    host.shell("zfs receive -s safe/home < part").fails(1).says("STREAM-PARTIAL");
    // The daemon that comes next knows of it too.
    host.shell("zpool export safe && zpool import -d . safe").ok();
    assert_eq!(host.shell("zfs get -Ho value receive_resume_token safe/home").ok().out, token);
    let token = token.trim();
    host.shell(&format!("zfs send -t {token} > rest && test $(stat -c %s rest) -lt 27000000")).ok();
    host.shell(&format!("zfs send -t {token}x > nothing")).fails(1).says("STREAM-TOKEN");
    host.shell("zfs receive -s safe/home < rest && cmp t/home/noise s/home/noise").ok();
    let token = host.shell("zfs get -Ho value receive_resume_token safe/home").ok().out;
    assert_eq!(token.trim(), "-");

    // An increment that is given up; meanwhile all is as it was.
    host.shell("head -c 20000000 /dev/urandom > t/home/more && zfs snapshot tank/home@b && zfs send -i a tank/home@b > inc").ok();
    host.shell("head -c 9000000 inc | zfs receive -s safe/home").fails(1);
    host.shell("test ! -e s/home/more && cmp t/home/noise s/home/noise").ok();
    host.shell("zfs destroy safe/home@a").fails(1).says("STREAM-PARTIAL");
    host.shell("zfs receive -A safe/home && zfs receive safe/home < inc && diff -r t/home s/home").ok();
    host.shell("zfs receive -A safe/home").fails(1).says("STREAM-NO-PARTIAL");

    // A snapshot stays while it is sent, and a pool too.
    host.shell(
        "mkfifo pipe; zfs send tank/home@b > pipe & exec 7< pipe; head -c 100 <&7 > /dev/null; one=0; two=0;
         zfs destroy tank/home@b 2> said || one=$?; zpool export tank 2>> said || two=$?; grep -c STREAM-BUSY said;
         cat <&7 > /dev/null; wait $!; echo ended $one $two $?",
    )
    .ok()
    .says("2\nended 1 1 0");
    let held = fs::metadata(host.at("t/home/more")).expect("there").len();
    assert_eq!(held, 20_000_000);
    host.shell("zfs destroy -r tank/home && zfs destroy -r safe/home && zpool export safe").ok();
}

#[test]
fn a_tree_of_file_systems_goes_in_one_stream() {
    let Some(host) = host("trees_of_streams") else { return };
    host.shell("zfs create -o org:note=top tank/top && zfs create -o compression=off tank/top/a && zfs create tank/top/a/b").ok();
    host.shell("date > t/top/one && date > t/top/a/two && zfs snapshot -r tank/top@x").ok();
    host.shell("date > t/top/a/b/three && zfs snapshot -r tank/top@y").ok();
    host.shell("zfs send -R tank/top@y | zfs receive -v safe/copy").ok().says("into safe/copy/a/b@y");
    host.shell("diff -r t/top s/copy").ok();
    let value = host.shell("zfs get -Hro name,value compression safe/copy -t filesystem").ok().out;
    assert!(value.contains("safe/copy/a\toff") && value.contains("safe/copy\ton"), "{value}");
    host.shell("rm t/top/a/two && date > t/top/a/b/four && zfs create tank/top/c && date > t/top/c/five && zfs snapshot -r tank/top@z").ok();
    host.shell("zfs send -R -i @y tank/top@z | zfs receive safe/copy && diff -r t/top s/copy").ok();
    assert_eq!(host.shell("zfs list -Hro name -t snapshot safe/copy | sort").ok().out.lines().count(), 10);
}

#[test]
fn clones_go_as_what_they_have_beyond_their_origins() {
    let Some(host) = host("streams_of_clones") else { return };
    host.shell("zfs create tank/w && zfs create tank/w/z && head -c 6000000 /dev/urandom > t/w/z/large && zfs snapshot -r tank/w@1").ok();
    // By its name it comes before its origin.
    host.shell("zfs clone tank/w/z@1 tank/w/b && echo own > t/w/b/own && zfs snapshot -r tank/w@2").ok();
    host.shell(
        "zfs send -R tank/w@2 > tree && test $(stat -c %s tree) -lt 8000000 && zfs receive safe/w < tree",
    )
    .ok();
    host.shell("diff -r t/w s/w").ok();
    let origin = |name: &str| host.shell(&format!("zfs get -Ho value origin {name}")).ok().out;
    assert_eq!((origin("safe/w/b"), origin("safe/w/z")), ("safe/w/z@1\n".into(), "-\n".into()));
    host.shell("test $(zfs get -Hpo value used safe/w/b) -lt 1000000").ok();
    // Increments go on into the clone, and a new clone of what is there already comes with them.
    host.shell("echo more >> t/w/b/own && zfs clone tank/w/b@2 tank/w/c && rm t/w/c/large && zfs snapshot -r tank/w@3").ok();
    host.shell("zfs send -R -I @2 tank/w@3 | zfs receive safe/w && diff -r t/w s/w").ok();
    assert_eq!(origin("safe/w/c"), "safe/w/b@2\n");
    host.shell("zpool export safe && zpool import -d . safe && diff -r t/w s/w && zpool scrub -w safe").ok();

    // One by one, and under another name as a clone of what is named.
    host.shell("zfs send -i tank/w/z@1 tank/w/b@2 > one && zfs receive safe/one < one").ok();
    assert_eq!(origin("safe/one"), "safe/w/z@1\n");
    host.shell(
        "zfs send -i @2 tank/w/b@3 | zfs receive -o origin=safe/w/b@2 safe/two && diff -r t/w/b s/two",
    )
    .ok();
    assert_eq!(origin("safe/two"), "safe/w/b@2\n");
    // All that a clone has, from where it began.
    host.shell("zfs send -nvI tank/w/z@1 tank/w/b@3")
        .ok()
        .says("send from @1 to tank/w/b@2 ")
        .says("send from @2 to tank/w/b@3 ");
    host.shell("zfs send -I tank/w/z@1 tank/w/b@3 | zfs receive safe/all && diff -r t/w/b s/all").ok();
    host.shell("zfs list -Ho name -t snapshot safe/all").ok().says("safe/all@2\nsafe/all@3\n");
    assert_eq!(origin("safe/all"), "safe/w/z@1\n");
    host.shell("zfs send -I tank/w/z@2 tank/w/b@3 > nothing").fails(1).says("STREAM-BASE");
    host.shell("zfs receive -o origin=safe/w/b@3 safe/three < one").fails(1).says("STREAM-NO-BASE");
    host.shell("zfs receive -o origin=none safe/three < one").fails(1);
    // A full stream becomes a clone as well.
    host.shell("zfs send tank/w/b@2 | zfs receive -o origin=safe/w/z@1 safe/three").ok();
    host.shell("diff -r t/w/b/.zfs/snapshot/2 s/three").ok();
    assert_eq!(origin("safe/three"), "safe/w/z@1\n");
    host.shell("zfs destroy -r safe/three").ok();
    host.shell("zfs send -i tank/w/b@2 tank/w/z@3 > nothing").fails(1).says("STREAM-BASE");
    // Half of one, and the rest with a token.
    host.shell("head -c 5000000 /dev/urandom > t/w/c/new && zfs snapshot tank/w/c@4 && zfs send -i tank/w/z@1 tank/w/c@4 > long").ok();
    host.shell("head -c 3000000 long | zfs receive -s safe/long").fails(1).says("receive_resume_token");
    host.shell("zfs destroy safe/w/z@1").fails(1);
    host.shell("zfs send -t $(zfs get -Ho value receive_resume_token safe/long) | zfs receive safe/long && diff -r t/w/c s/long").ok();
    assert_eq!(origin("safe/long"), "safe/w/z@1\n");
    host.shell("zfs destroy -r safe/long && zfs promote safe/w/b && zfs list -t all -r safe").ok();
}

#[test]
fn properties_that_came_with_a_stream_are_told_from_those_that_are_set() {
    let Some(host) = host("received_properties") else { return };
    host.shell("zfs create -o compression=zstd -o atime=off -o org:note=theirs tank/p && zfs create -o exec=off tank/p/q && zfs snapshot -r tank/p@1").ok();
    host.shell("zfs send -R tank/p@1 | zfs receive -x atime -o exec=on -o org:shelf=7 safe/p").ok();
    let table = |fs: &str| {
        let list = "compression,atime,exec,org:note,org:shelf";
        host.shell(&format!("zfs get -Ho property,value,received,source {list} {fs}")).ok().out
    };
    assert_eq!(
        table("safe/p"),
        "compression\tzstd\tzstd\treceived\natime\ton\toff\tdefault\nexec\ton\t-\tlocal\norg:note\ttheirs\ttheirs\treceived\norg:shelf\t7\t-\tlocal\n"
    );
    assert_eq!(
        table("safe/p/q"),
        "compression\tzstd\t-\tinherited from safe/p\natime\ton\t-\tdefault\nexec\ton\toff\tinherited from safe/p\norg:note\ttheirs\t-\tinherited from safe/p\norg:shelf\t7\t-\tinherited from safe/p\n"
    );
    assert_eq!(host.shell("zfs get -s received -Ho property all safe/p").ok().out, "compression\norg:note\n");
    let headings = host.shell("zfs get -o all compression safe/p").ok().out;
    assert!(
        headings.split_whitespace().take(5).eq(["NAME", "PROPERTY", "VALUE", "RECEIVED", "SOURCE"]),
        "{headings}"
    );
    host.shell("zfs get -j compression safe/p").ok().says("\"RECEIVED\"");

    // Set, inherited, and back; by the daemon that comes next too. Mounts follow.
    host.shell("zfs set compression=lz4 safe/p && zpool export safe && zpool import -d . safe").ok();
    assert!(table("safe/p").starts_with("compression\tlz4\tzstd\tlocal\n"));
    host.shell("zfs inherit compression safe/p").ok();
    assert!(table("safe/p").starts_with("compression\ton\tzstd\tdefault\n"));
    host.shell(
        "zfs inherit -S compression safe/p && zfs inherit -S atime safe/p && zfs inherit -S exec safe/p/q",
    )
    .ok();
    assert!(table("safe/p").starts_with("compression\tzstd\tzstd\treceived\natime\toff\toff\treceived\n"));
    assert!(table("safe/p/q").contains("exec\toff\toff\treceived\n"));
    let at = host.at("s/p/q").display().to_string();
    host.shell(&format!("grep ' {at} ' /proc/mounts | grep -q noexec")).ok();

    // An increment brings what changed, and what was set stays; and all of it goes back.
    host.shell("zfs set compression=lz4 tank/p; zfs inherit org:note tank/p; zfs set org:shelf=8 safe/p; zfs snapshot -r tank/p@2").ok();
    host.shell("zfs send -R -i @1 tank/p@2 | zfs receive safe/p").ok();
    assert_eq!(
        table("safe/p"),
        "compression\tlz4\tlz4\treceived\natime\toff\toff\treceived\nexec\ton\t-\tlocal\norg:note\t-\t-\t-\norg:shelf\t8\t-\tlocal\n"
    );
    host.shell("zfs send -b safe/p@2 | zfs receive tank/back").ok();
    assert_eq!(host.shell("zfs get -s received -Ho property all tank/back").ok().out, "compression\natime\n");
    assert_eq!(host.shell("zfs get -s local -Ho property all tank/back").ok().out, "");

    host.shell("zfs receive -o exec=on -x exec safe/x < /dev/null")
        .fails(2)
        .says("'exec' specified multiple");
    host.shell("zfs send tank/p@2 | zfs receive -x nothing safe/x").fails(1).says("PROP-UNKNOWN");
    host.shell("zfs send tank/p@2 | zfs receive -x used safe/x").fails(1).says("PROP-READONLY");
    host.shell("zfs list safe/x").fails(1);
}

#[test]
fn what_comes_open_is_sealed_with_a_key_of_its_own() {
    let Some(host) = host("sealed_receives") else { return };
    host.shell("zfs create tank/p && zfs create tank/p/q && echo open > t/p/f && echo below > t/p/q/f && zfs snapshot -r tank/p@1").ok();
    host.shell("head -c 32 /dev/urandom > key; head -c 32 /dev/urandom > other").ok();
    let options = "-o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key";
    host.shell(&format!("zfs send -R tank/p@1 | zfs receive {options} safe/p")).ok();
    host.shell("cat s/p/f s/p/q/f").ok().says("open\nbelow\n");
    assert_eq!(
        host.shell("zfs get -rHo value -t filesystem encryption,encryptionroot,keystatus safe/p").ok().out,
        "aes-256-gcm\nsafe/p\navailable\naes-256-gcm\nsafe/p\navailable\n"
    );
    // Increments go on in it, and it is locked and opened as any other.
    host.shell(
        "echo more >> t/p/f && zfs snapshot -r tank/p@2 && zfs send -R -i @1 tank/p@2 | zfs receive safe/p",
    )
    .ok();
    host.shell("zpool export safe && zpool import -d . safe; zfs get -Ho value keystatus safe/p")
        .ok()
        .says("unavailable");
    host.shell("zfs load-key safe/p && zfs mount -a && cat s/p/f").ok().says("open\nmore\n");
    // Impossible requests are refused, and nothing is created.
    let refused = |line: &str, why: &str| {
        host.shell(line).fails(1).says(why).says("KEY-RULES");
        host.shell("zfs list safe/x").fails(1);
    };
    let send = "zfs send tank/p@1 | zfs receive";
    refused(&format!("{send} -o encryption=on -o keyformat=passphrase safe/x"), "keylocation=file:///PATH");
    refused(&format!("{send} -o encryption=on safe/x"), "without keyformat=");
    refused(&format!("{send} -s {options} safe/x"), "-s");
    refused(
        &format!("zfs send -i @1 tank/p@2 | zfs receive -F {options} safe/p"),
        "an increment is encrypted as its target is",
    );
    refused(
        &format!("zfs send -w safe/p@2 | zfs receive {options} safe/x"),
        "the stream is raw and brings its own key",
    );
    host.shell(&format!("{send} -n -v {options} safe/x")).ok().says("would receive full stream");
    host.shell("zfs list safe/x").fails(1);
    // In the clear below what has a key, if that is said.
    host.shell(&format!("{send} -o encryption=off safe/p/clear; zfs get -Ho value encryption safe/p/clear"))
        .ok()
        .says("off\n");
    host.shell("zfs unmount safe/p && zfs unload-key safe/p && zfs mount safe/p/clear && cat s/p/clear/f")
        .ok()
        .says("open\n");
    host.shell("zfs create -o encryption=off safe/p/too && zfs create safe/p/clear/below").ok();
    host.shell("zfs get -Ho value encryption safe/p/too safe/p/clear/below").ok().says("off\noff\n");
    host.shell("zfs create safe/p/none").fails(1).says("KEY-NEEDED");
    // It may move there, too, and stays what it is.
    host.shell("zfs rename safe/p/too safe/too && zfs rename safe/too safe/p/too && zpool scrub -w safe")
        .ok();
    host.shell("zfs load-key safe/p && zfs unmount safe/p/clear && zfs unmount safe/p/too && zfs mount -a && cat s/p/clear/f").ok().says("open\n");
    host.shell("zfs destroy -r safe/p/clear && zfs destroy safe/p/too").ok();
    // Below what has a key, with another one.
    let other = options.replace("/key", "/other");
    host.shell(&format!("{send} {other} safe/p/own; zfs get -Ho value encryptionroot safe/p/own"))
        .ok()
        .says("safe/p/own\n");
}

#[test]
fn what_changed_is_told_file_by_file() {
    let Some(host) = host("zfs_diff") else { return };
    host.shell("zfs create tank/d && cd t/d && mkdir folder && echo 1 > same && echo 1 > gone && echo 1 > folder/old && echo 1 > changed && ln -s same link").ok();
    host.shell("zfs snapshot tank/d@a && cat t/d/same && cd t/d && rm gone && mv folder/old folder/new && echo 2 >> changed && mkdir fresh && echo 1 > fresh/file && ln changed second && zfs snapshot tank/d@b && echo 3 > later").ok();
    let top = host.at("t/d").display().to_string();
    let told = host.shell("zfs diff tank/d@a tank/d@b").ok().out.replace(&top, "");
    assert_eq!(
        told,
        "M\t/\nM\t/changed\t(+1)\nM\t/folder\nR\t/folder/old -> /folder/new\n+\t/fresh\n+\t/fresh/file\n-\t/gone\n"
    );
    let told = host.shell("zfs diff -FH tank/d@b").ok().out.replace(&top, "");
    assert_eq!(told, "M\t/\t/\n+\tF\t/later\n");
    host.shell("zfs diff -t tank/d@b | head -1 | grep -Eq '^[0-9]+[.][0-9]{9}\tM'").ok();
    host.shell("zfs diff tank/d@b tank/d@a").fails(1).says("STREAM-BASE");

    // A clone against what it began at, or anything before; not against what came after.
    host.shell("zfs clone tank/d@b tank/e && echo own > t/e/own && rm t/e/second && zfs snapshot tank/e@c")
        .ok();
    let top = host.at("t/e").display().to_string();
    let told = host.shell("zfs diff tank/d@b tank/e").ok().out.replace(&top, "");
    assert_eq!(told, "M\t/\nM\t/changed\t(-1)\n+\t/own\n");
    let told = host.shell("zfs diff tank/d@a tank/e@c").ok().out.replace(&top, "");
    assert_eq!(
        told,
        "M\t/\nM\t/changed\nM\t/folder\nR\t/folder/old -> /folder/new\n+\t/fresh\n+\t/fresh/file\n-\t/gone\n+\t/own\n"
    );
    host.shell("zfs snapshot tank/d@d && zfs diff tank/d@d tank/e@c").fails(1).says("STREAM-BASE");
    host.shell("zfs diff tank/e@c tank/d").fails(1).says("STREAM-BASE");
}

#[test]
fn a_line_of_zfs_diff_is_one_file_whatever_its_name() {
    let Some(host) = host("zfs_diff_names") else { return };
    host.shell("zfs create tank/d && cd t/d && mkdir a b && echo 1 > a/x && ln a/x b/y && ln a/x b/z").ok();
    host.shell("cd t/d && mkdir old && echo 1 > old/in && zfs snapshot tank/d@1").ok();
    // The folder of the latest link is the one that the inode knows.
    host.shell("cd t/d && rm b/y b/z && mv old new && echo 2 >> new/in && zfs snapshot tank/d@2").ok();
    let top = host.at("t/d").display().to_string();
    let told = |command: &str| host.shell(command).ok().out.replace(&top, "");
    assert_eq!(
        told("zfs diff -FH tank/d@1 @2"),
        "M\t/\t/\nM\tF\t/a/x\t(-2)\nM\t/\t/b\nR\t/\t/old\t/new\nR\tF\t/old/in\t/new/in\n"
    );
    host.shell("cd t/d && touch $'forged\\n-\\tetc' $'h\\303\\251 \\377\\\\' && zfs snapshot tank/d@3").ok();
    assert_eq!(
        told("zfs diff -H tank/d@2 @3"),
        "M\t/\n+\t/forged\\0012-\\0011etc\n+\t/h\\0303\\0251\\0040\\0377\\0134\n"
    );
    let told = told("zfs diff -h tank/d@2 @3");
    assert_eq!(told, "M\t/\n+\t/forged\\0012-\\0011etc\n+\t/h\u{e9} \\0377\\\n");
}

#[test]
fn compressed_records_go_as_they_are_and_stay_so() {
    let Some(host) = host("compressed_streams") else { return };
    host.shell("zfs create -o compression=zstd-9 tank/home && zfs create -o compression=lz4 tank/home/sub")
        .ok();
    host.shell("seq 2000000 > t/home/numbers && head -c 3000000 /dev/urandom > t/home/noise && echo few > t/home/few").ok();
    host.shell(
        "seq 7 300000 > t/home/sub/more && truncate -s 5M t/home/sub/more && zfs snapshot -r tank/home@a",
    )
    .ok();
    host.shell("zfs set compression=off safe").ok();
    let number = |command: &str| host.shell(command).ok().out.trim().parse::<u64>().expect("a number");
    let plain = number("zfs send tank/home@a | wc -c");
    let packed = number("zfs send -c tank/home@a | wc -c");
    assert!(packed < plain / 2, "{packed} of {plain}");
    // The estimate is near the real size.
    let told = number("zfs send -c -nP tank/home@a | sed -n 's/^size\\t//p'");
    assert!(told > packed * 9 / 10 && told < packed * 11 / 10, "{told} for {packed}");
    host.shell("zfs send --compressed tank/home@a | zfs receive -v safe/home")
        .ok()
        .says("full stream of tank/home@a");
    let data = |fs: &str| number(&format!("zfs get -Hpo value referenced {fs}"));
    assert!(data("safe/home").abs_diff(data("tank/home")) < 200_000);
    host.shell("zfs send tank/home@a | zfs receive safe/plain").ok();
    assert!(data("safe/plain") > data("safe/home") * 2);
    // A tree, with what is not sealed as it is for -w, and increments of all kinds.
    host.shell("zfs send -w -R tank/home@a | zfs receive safe/tree").ok();
    host.shell("diff -r t/home s/home --exclude sub && diff -r t/home s/tree").ok();
    host.shell("seq 4 500000 > t/home/sub/new && truncate -s 70000 t/home/numbers && zfs snapshot -r tank/home@b && date > t/home/b && zfs snapshot -r tank/home@c").ok();
    host.shell("zfs send -c -R -I @a tank/home@c | zfs receive safe/tree && diff -r t/home s/tree").ok();
    host.shell(
        "zfs bookmark tank/home@a tank/home#a && zfs send -c -i '#a' tank/home@b | zfs receive safe/home",
    )
    .ok();
    host.shell(
        "zfs send -cp -i b tank/home@c | zfs receive safe/home && diff -r t/home s/home --exclude sub",
    )
    .ok();
    // A receive that broke off goes on as it was.
    host.shell("zfs send -c tank/home@a | head -c 2500000 | zfs receive -s safe/part")
        .fails(1)
        .says("receive_resume_token");
    let token = host.shell("zfs get -Ho value receive_resume_token safe/part").ok().out;
    assert!(token.starts_with("3-"), "{token}");
    host.shell("zpool export safe && zpool import -d . safe").ok();
    assert_eq!(host.shell("zfs get -Ho value receive_resume_token safe/part").ok().out, token);
    let token = token.trim();
    host.shell(&format!("zfs send -t {token} > rest && test $(stat -c %s rest) -lt {packed}")).ok();
    host.shell("zfs receive -s safe/part < rest && diff -r t/home/.zfs/snapshot/a s/part --exclude sub").ok();
    // Damaged, and by flags that nobody knows.
    host.shell("zfs send -c tank/home@c > whole && (head -c 90000 whole; printf xxxx; tail -c +90005 whole) | zfs receive safe/x")
        .fails(1)
        .says("STREAM-DAMAGED");
    host.shell("(head -c 12 whole; printf '\\40'; tail -c +14 whole) | zfs receive safe/x")
        .fails(1)
        .says("flags");
    host.shell("zfs list safe/x").fails(1);
    host.shell("zpool scrub -w safe && zpool status safe").ok().says("scrub repaired 0B");
    host.shell("zpool export safe && zpool export tank").ok();
}

#[test]
fn what_is_noted_on_snapshots_goes_along() {
    let Some(host) = host("notes_of_streams") else { return };
    host.shell("zfs create tank/n && zfs create tank/n/sub && date > t/n/file && zfs snapshot -r -o org:who=ann tank/n@1").ok();
    host.shell("zfs set org:what=first tank/n@1 && zfs hold -r keep tank/n@1 && zfs hold year tank/n@1").ok();
    // Without -h no tags; with it, unless the receiver wants none.
    host.shell("zfs send -R tank/n@1 > plain && zfs send -R -h tank/n@1 > held").ok();
    host.shell(
        "zfs receive safe/plain < plain && zfs receive safe/held < held && zfs receive -h safe/free < held",
    )
    .ok();
    let tags = |fs: &str| host.shell(&format!("zfs holds -rH {fs}@1 | cut -f 1,2 | LC_ALL=C sort")).ok().out;
    assert_eq!((tags("safe/plain"), tags("safe/free")), (String::new(), String::new()));
    assert_eq!(tags("safe/held"), "safe/held/sub@1\tkeep\nsafe/held@1\tkeep\nsafe/held@1\tyear\n");
    host.shell("zfs destroy safe/held@1").fails(1).says("SNAP-HELD");
    host.shell("zfs get -Ho value userrefs safe/held@1 safe/held/sub@1").ok().says("2\n1\n");

    // Properties come as received values, through an import; set, inherited, and back.
    let told = |name: &str| {
        let list = "org:who,org:what";
        host.shell(&format!("zfs get -Ho property,value,received,source {list} {name}")).ok().out
    };
    let both = "org:who\tann\tann\treceived\norg:what\tfirst\tfirst\treceived\n";
    host.shell("zpool export safe && zpool import -d . safe").ok();
    assert_eq!((told("safe/held@1"), told("safe/plain@1")), (both.into(), both.into()));
    assert_eq!(told("tank/n@1"), "org:who\tann\t-\tlocal\norg:what\tfirst\t-\tlocal\n");
    host.shell("zfs set org:who=bob safe/held@1 && zfs set org:what=all safe/held && zfs inherit org:what safe/held@1").ok();
    assert_eq!(
        told("safe/held@1"),
        "org:who\tbob\tann\tlocal\norg:what\tall\tfirst\tinherited from safe/held\n"
    );
    host.shell("zfs send -b safe/held@1 | zfs receive tank/back").ok();
    assert_eq!(told("tank/back@1"), both);
    host.shell("zfs inherit -S org:who safe/held@1 && zfs inherit -rS org:what safe/held").ok();
    assert_eq!(told("safe/held@1"), both);
    // A property of the file system counts for its snapshots.
    host.shell("zfs send -p tank/n@1 | zfs receive -o org:what=mine -x org:who safe/set").ok();
    assert_eq!(told("safe/set@1"), "org:who\t-\tann\t-\norg:what\tmine\tfirst\tinherited from safe/set\n");

    // Increments, raw ones, and what breaks off.
    host.shell("head -c 32 /dev/urandom > key && zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key tank/sealed").ok();
    host.shell("head -c 5000000 /dev/urandom > t/sealed/noise && zfs snapshot -o org:who=eve tank/sealed@1 && zfs hold keep tank/sealed@1").ok();
    // Decrypted, only without what would hide that it is.
    for options in ["-p", "-b", "-R"] {
        let said = host
            .shell(&format!("zfs send {options} tank/sealed@1 > clear; s=$?; ! test -s clear && exit $s"));
        said.fails(1).says("'tank/sealed' may not be sent with properties").says("STREAM-CLEAR");
    }
    host.shell("zfs send tank/sealed@1 | zfs receive -u safe/clear && zfs destroy -r safe/clear").ok();
    host.shell("zfs send -w -p -h tank/sealed@1 | head -c 3000000 | zfs receive -s safe/sealed").fails(1);
    host.shell(
        "zfs send -h -p -t $(zfs get -Ho value receive_resume_token safe/sealed) | zfs receive safe/sealed",
    )
    .ok();
    host.shell("zfs get -Ho value,source org:who safe/sealed@1").ok().says("eve\treceived\n");
    host.shell("zfs holds -H safe/sealed@1 | cut -f 2").ok().says("keep\n");
    host.shell("zfs snapshot -o org:who=next tank/n@2 && zfs hold more tank/n@2 && zfs send -ph -i 1 tank/n@2 | zfs receive -F safe/free").ok();
    host.shell("zfs get -Ho value org:who safe/free@2 && zfs holds -H safe/free@2 | cut -f 2")
        .ok()
        .says("next\nmore\n");

    // A daemon that does not know them would refuse it at the header; this one knows no more flags.
    host.shell("(head -c 12 held; printf '\\40'; tail -c +14 held) | zfs receive safe/x")
        .fails(1)
        .says("flags");
    host.shell("(head -c 12 held; printf '\\0'; tail -c +14 held) | zfs receive safe/x")
        .fails(1)
        .says("STREAM-DAMAGED");
    host.shell("zfs list safe/x").fails(1);
    host.shell("zpool scrub -w safe && zpool status safe").ok().says("scrub repaired 0B");
    host.shell("zpool export safe && zpool export tank").ok();
}

#[test]
fn a_tree_is_sent_whole_or_says_what_it_leaves_out() {
    let Some(host) = host("left_out_of_streams") else { return };
    host.shell(
        "for name in a a/deep b c c/deep; do zfs create -p tank/w/$name && date > t/w/$name/file; done",
    )
    .ok();
    host.shell("zfs snapshot -r tank/w@1 && zfs create tank/w/young && zfs destroy tank/w/a@1").ok();
    // A file system that lacks the snapshot but is old enough to have it is told; a younger one was
    // no part of it.
    host.shell("zfs send -R tank/w@1 > nothing").fails(1).says("tank/w/a@1").says("SNAP-ABSENT");
    host.shell("zfs send -R -s tank/w@1 2> said | zfs receive safe/w").ok();
    assert_eq!(
        host.shell("cat said").ok().out,
        "WARNING: skipping dataset tank/w/a and its children: snapshot 1 does not exist\n"
    );
    let names = |fs: &str| host.shell(&format!("zfs list -Hro name {fs}")).ok().out.replace(fs, "");
    assert_eq!(names("safe/w"), "\n/b\n/c\n/c/deep\n");
    host.shell("zfs send -R -X tank/w/a,tank/w/c/deep -X tank/w/young tank/w@1 | zfs receive safe/x").ok();
    assert_eq!(names("safe/x"), "\n/b\n/c\n");
    host.shell("zfs send -R -X tank/w tank/w@1 > nothing").fails(2).says("excludes all file systems");
    host.shell("zfs send -X tank/w/a tank/w@1 > nothing").fails(2);
    host.shell("zfs send -R -n -v -X tank/w/a tank/w@1").ok().says("tank/w/c/deep@1");

    // A clone whose origin is left out goes whole.
    host.shell("zfs clone tank/w/b@1 tank/w/clone && zfs snapshot -r tank/w@2 && zfs send -R -X tank/w/b tank/w@2 | zfs receive safe/y").ok();
    host.shell("zfs get -Ho value origin safe/y/clone && diff -r t/w/clone s/y/clone").ok().says("-\n");

    // A dataset in use is in the way where properties come, unless the command is forced.
    host.shell("date > t/w/b/more && zfs snapshot tank/w/b@3 && zfs send -i 2 tank/w/b@3 > inc").ok();
    let line =
        "zfs send tank/w/b@2 | zfs receive safe/z && exec 7< s/z/file; zfs receive -o org:a=b safe/z < inc";
    host.shell(line).fails(1).says("FS-BUSY");
    host.shell("exec 7< s/z/file; zfs receive -M -o org:a=b safe/z < inc && diff -r t/w/b s/z").ok();

    // A tree is mounted from its top.
    host.shell("zfs unmount safe/w && zfs mount -R safe/w && diff -r t/w/c s/w/c").ok();
    host.shell("zpool export safe && zpool export tank").ok();
}

#[test]
fn copies_by_reference_go_once_and_arrive_so() {
    let Some(host) = host("repeats_of_streams") else { return };
    host.shell("zfs create -o dedup=on tank/r && zfs create tank/r/sub && head -c 5000000 /dev/urandom > t/r/a && zpool sync tank").ok();
    host.shell("zfs reflink t/r/a t/r/b && cp t/r/a t/r/sub/c && zfs snapshot -r tank/r@1").ok();
    // Once for the file, its copy, and what dedup found in the other file system.
    host.shell("zfs send -R tank/r@1 > tree && test $(stat -c %s tree) -lt 6000000").ok();
    host.shell("zfs receive -x dedup safe/r < tree && diff -r t/r s/r").ok();
    let saved = host.shell("zpool get -Hpo value bclonesaved safe").ok().out;
    assert!(saved.trim().parse::<u64>().expect("bytes") >= 9 << 20, "{saved}");
    host.shell("zpool export safe && zpool import -d . safe && diff -r t/r s/r && zpool scrub -w safe").ok();
    // Each goes by itself.
    host.shell("rm s/r/a && zfs destroy -r safe/r/sub && zfs destroy safe/r@1 && cmp t/r/a s/r/b").ok();
    // As it is compressed, and half of it.
    host.shell("zfs send -c -R tank/r@1 | zfs receive safe/c && diff -r t/r s/c").ok();
    host.shell("head -c 3000000 tree | zfs receive -s safe/half").fails(1).says("receive_resume_token");
    host.shell("zfs send -t $(zfs get -Ho value receive_resume_token safe/half) | zfs receive safe/half")
        .ok();
    host.shell("diff -r t/r s/half --exclude sub").ok();
    host.shell("zpool export safe && zpool export tank").ok();
    host.run("inspect check {}/safe.img").ok().says("leaked_units=0");
}

#[test]
fn a_replica_follows_what_is_renamed_and_with_force_what_is_destroyed() {
    let Some(host) = host("streams_follow") else { return };
    host.shell("for n in '' /a /a/in /b /c; do zfs create tank/top$n && date > t/top$n/file; done").ok();
    host.shell("zfs snapshot -r tank/top@1 && zfs send -R tank/top@1 | zfs receive -u safe/copy").ok();
    host.shell("zfs create -u safe/copy/mine && zfs snapshot safe/copy/a@mine").ok();
    host.shell(
        "zfs rename tank/top/a tank/top/x && zfs rename tank/top/b tank/top/a && zfs destroy -r tank/top/c",
    )
    .ok();
    host.shell(
        "zfs rename -r tank/top@1 tank/top@first && date > t/top/x/in/more && zfs snapshot -r tank/top@2",
    )
    .ok();
    let names = |kind: &str, of: &str| {
        let out = host.shell(&format!("zfs list -Hr -o name -t {kind} {of}")).ok().out;
        out.lines().map(|name| name[of.len()..].to_owned()).collect::<Vec<_>>()
    };
    // Without -F names are followed, but for what is in the way, and nothing is destroyed.
    host.shell("zfs send -R -i @first tank/top@2 > tree").ok();
    host.shell("zfs receive -u safe/copy < tree").fails(1).says("safe/copy/x@mine");
    assert_eq!(names("filesystem", "safe/copy"), ["", "/a", "/c", "/mine", "/x", "/x/in"]);
    host.shell("zfs receive -u -F safe/copy < tree").ok();
    assert_eq!(names("filesystem", "safe/copy"), names("filesystem", "tank/top"));
    assert_eq!(names("snapshot", "safe/copy"), names("snapshot", "tank/top"));
    host.shell("zfs mount -R safe/copy && diff -r t/top s/copy && test ! -e s/copy/c").ok();
    host.shell("zpool history -i safe").ok().says("rename safe/copy/a").says("destroy safe/copy/mine");
    // A left-out dataset stays, whatever it is here; and one that does not exist is told.
    host.shell("date > t/top/file && zfs snapshot -r tank/top@3").ok();
    host.shell("zfs send -R -X tank/top/y -i @2 tank/top@3 > nothing")
        .fails(1)
        .says("tank/top/y")
        .says("FS-ABSENT");
    host.shell("zfs send -R -X tank/top/x -i @2 tank/top@3 | zfs receive -F safe/copy").ok();
    assert_eq!(names("filesystem", "safe/copy"), names("filesystem", "tank/top"));
    host.shell("zfs list safe/copy/a@3 && ! zfs list safe/copy/x@3").ok();
}

#[test]
fn a_mounted_replica_follows_names_and_promotions_and_is_not_changed_by_it() {
    let Some(host) = host("streams_mounted") else { return };
    host.shell("for n in '' /a /a/in /b; do zfs create tank/top$n && date > t/top$n/file; done").ok();
    host.shell("zfs snapshot -r tank/top@1 && zfs send -R tank/top@1 | zfs receive safe/copy").ok();
    let places = || {
        let (out, s) = (host.shell("zfs mount").ok().out, host.at("s").display().to_string());
        let place = |line: &str| {
            let (name, at) = line.split_once(char::is_whitespace)?;
            let at = at.trim().strip_prefix(&s)?.to_owned();
            Some((name.strip_prefix("safe/copy")?.to_owned(), at.strip_prefix("/copy")?.to_owned()))
        };
        let mut places: Vec<(String, String)> = out.lines().filter_map(place).collect();
        places.sort();
        places
    };
    let at_home = |tails: &[&str]| -> Vec<(String, String)> {
        tails.iter().map(|tail| ((*tail).to_owned(), (*tail).to_owned())).collect()
    };
    assert_eq!(places(), at_home(&["", "/a", "/a/in", "/b"]));
    host.shell("zfs rename tank/top/a tank/top/x && zfs rename tank/top/b tank/top/a").ok();
    host.shell("head -c 300000 /dev/urandom > t/top/x/in/more && zfs snapshot -r tank/top@2").ok();
    host.shell("zfs send -R -i @1 tank/top@2 > tree").ok();

    // Somebody uses what is to be renamed, behind another one that was: that one stays where it is
    // mounted.
    host.shell("exec 3< s/copy/b/file; zfs receive safe/copy < tree")
        .fails(1)
        .says("FS-BUSY")
        .says("s/copy/a, because the folder");
    let displaced = [("", ""), ("/b", "/b"), ("/x", "/a"), ("/x/in", "/a/in")];
    let displaced: Vec<(String, String)> =
        displaced.into_iter().map(|(name, at)| (name.to_owned(), at.to_owned())).collect();
    assert_eq!(places(), displaced);
    host.shell(
        "cmp t/top/x/file s/copy/a/file && cmp t/top/x/in/file s/copy/a/in/file && test ! -e s/copy/x",
    )
    .ok();
    // The stream breaks off: before its first snapshot has come, and behind it.
    host.shell("head -c 700 tree | zfs receive safe/copy").fails(1);
    host.shell("test ! -e s/copy/x && cat s/copy/a/file s/copy/a/in/file").ok();
    host.shell("head -c 200000 tree | zfs receive safe/copy").fails(1);
    assert_eq!(places(), at_home(&["", "/a", "/x", "/x/in"]));
    host.shell("rm -f rest; zfs send -R -i @1 tank/top@2 > rest").ok();
    host.shell("zfs receive safe/copy < rest").ok();
    assert_eq!(places(), at_home(&["", "/a", "/x", "/x/in"]));
    host.shell("diff -r t/top s/copy").ok();

    // Below what is new; and nothing was changed by all of that.
    host.shell(
        "zfs create tank/top/deep && zfs rename tank/top/x tank/top/deep/x && zfs snapshot -r tank/top@3",
    )
    .ok();
    host.shell("zfs send -R -i @2 tank/top@3 | zfs receive safe/copy && diff -r t/top s/copy").ok();
    assert_eq!(places(), at_home(&["", "/a", "/deep", "/deep/x", "/deep/x/in"]));
    // A dataset that was not mounted is not mounted afterwards, whatever its name.
    host.shell(
        "zfs unmount safe/copy/a && zfs rename tank/top/a tank/top/away && zfs snapshot -r tank/top@4",
    )
    .ok();
    host.shell("zfs send -R -i @3 tank/top@4 | zfs receive safe/copy").ok();
    assert_eq!(places(), at_home(&["", "/deep", "/deep/x", "/deep/x/in"]));
    host.shell("zfs mount safe/copy/away && diff -r t/top s/copy").ok();

    // Promotions, while files are open.
    host.shell("zfs clone tank/top/away@4 tank/top/c && date > t/top/c/file && zfs snapshot -r tank/top@5")
        .ok();
    host.shell("zfs send -R -i @4 tank/top@5 | zfs receive safe/copy && diff -r t/top s/copy").ok();
    host.shell("zfs promote tank/top/c && zfs snapshot -r tank/top@6").ok();
    host.shell("zfs send -R -i @5 tank/top@6 | zfs receive safe/copy && diff -r t/top s/copy").ok();
    host.shell("zfs get -Ho value origin safe/copy/away").ok().says("safe/copy/c@4");
    host.shell("ls s/copy/c/.zfs/snapshot").ok().says("4\n5\n6\n");
    host.shell("zpool history -i safe").ok().says("promote safe/copy/c");
    // The dataset that it was cloned from goes there, and here.
    host.shell(
        "zfs destroy -r tank/top/away && zfs destroy tank/top/c@1,2,3,4,5 && zfs snapshot -r tank/top@7",
    )
    .ok();
    host.shell("zfs send -R -i @6 tank/top@7 | zfs receive -F safe/copy && diff -r t/top s/copy").ok();
    host.shell("zfs list -Hro name -t snapshot safe/copy/c | tr '\\n' ' '")
        .ok()
        .says("safe/copy/c@6 safe/copy/c@7 ");
}

/// ZFS refuses this too.
#[test]
fn a_stream_in_the_clear_does_not_replace_an_encrypted_file_system() {
    let Some(host) = host("would_decrypt") else { return };
    std::fs::write(host.at("key"), "a passphrase\n").expect("written");
    let encrypted = "-o encryption=on -o keyformat=passphrase -o keylocation=file://$PWD/key";
    host.shell(&format!("zfs create {encrypted} safe/secret && echo mine > s/secret/file")).ok();
    host.shell("zfs create tank/plain && echo plain > t/plain/file && zfs snapshot tank/plain@1").ok();
    let send = "zfs send tank/plain@1 | zfs receive -F";
    host.shell(&format!("{send} safe/secret")).fails(1).says("STREAM-DECRYPTS");
    host.shell("grep mine s/secret/file && test $(zfs get -Ho value encryption safe/secret) != off").ok();
    // Encrypted content may take its place: by a key, by that of the parent, or raw.
    host.shell(&format!("{send} {encrypted} safe/secret && grep plain s/secret/file")).ok();
    host.shell(&format!("zfs create {encrypted} safe/top && zfs create safe/top/in && {send} safe/top/in"))
        .ok();
    host.shell("zfs unmount safe/secret && zfs destroy safe/secret@1 && zfs snapshot safe/top/in@2 && zfs send -w safe/top/in@2 | zfs receive -uF safe/secret").ok();
    host.shell("zfs get -Ho value encryption safe/secret safe/top/in")
        .ok()
        .says("aes-256-gcm\naes-256-gcm\n");
}

#[test]
fn a_pool_goes_into_the_root_of_another_one() {
    let Some(host) = host("into_root") else { return };
    host.shell("zfs create tank/a && zfs create tank/a/b && seq 9000 > t/root && seq 800 > t/a/b/deep").ok();
    host.shell("zfs set compression=zstd tank && zfs snapshot -r tank@one && zfs create safe/own").ok();
    host.shell("seq 5 > s/old && seq 6 > s/own/kept && zfs send -R tank@one > one.stream").ok();
    host.shell("zfs receive -d safe < one.stream").fails(1).says("STREAM-EXISTS");
    host.shell("zfs receive -d safe/none < one.stream").fails(1).says("FS-ABSENT");
    host.shell("zfs receive -o version=1 safe/none < one.stream").fails(1).says("PROP-VALUE");
    host.shell("zfs receive -x volsize safe/none < one.stream").fails(1).says("PROP-VALUE");
    // Somebody is there, and the stream changes nothing.
    host.shell("(cd s && exec sleep 600) & sleep 0.3; zfs receive -dF safe < one.stream || kill $!")
        .says("busy");
    host.shell("test -e s/old && zfs list safe@one").fails(1);
    host.shell("zfs receive -dF safe < one.stream").ok();
    host.shell("diff t/root s/root && diff t/a/b/deep s/a/b/deep && test ! -e s/old && cat s/own/kept").ok();
    host.shell("zfs get -Ho value,source compression safe").ok().says("zstd\treceived");
    host.shell("zfs get -Ho source mountpoint safe").ok().says("local");
    host.shell("seq 7 > t/later && zfs snapshot -r tank@two").ok();
    host.shell("zfs send -R -I @one tank@two | zfs receive -dF safe && diff t/later s/later").ok();
    host.shell("zfs list -Ht snapshot -o name -d 0 safe && zfs list -Ht snapshot -o name safe@two").ok();
    assert_eq!(host.shell("zfs list -Ht snapshot -o name -d 0 safe").ok().out, "");
    let late = "WARNING: could not send tank@one: incremental source (tank@two) is not earlier than it";
    host.shell("zfs send -R -i @two tank@one > late.stream").fails(1).says(late);
}

/// `-wR` sends each file system as it is stored. Below one that came raw nothing can be sealed.
#[test]
fn a_raw_tree_brings_what_its_sender_keeps_in_the_clear() {
    let Some(host) = host("mixed_raw") else { return };
    host.shell("head -c 32 /dev/urandom > key").ok();
    let options = "-o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key";
    host.shell(&format!(
        "zfs create {options} tank/e; zfs create tank/e/sealed; zfs create -o encryption=off tank/e/clear
         zfs create tank/e/clear/below; zfs create {options} tank/e/clear/again
         for d in e e/sealed e/clear e/clear/below e/clear/again; do echo $d > t/$d/f; done
         zfs snapshot -r tank/e@1"
    ))
    .ok();
    host.shell("zfs send -wR tank/e@1 | zfs receive safe/e").ok();
    let shown = "zfs list -rHo name,encryption,keystatus,origin safe/e";
    let expected = "safe/e\taes-256-gcm\tunavailable\t-\n\
                    safe/e/clear\toff\tnone\t-\n\
                    safe/e/clear/again\taes-256-gcm\tunavailable\t-\n\
                    safe/e/clear/below\toff\tnone\t-\n\
                    safe/e/sealed\taes-256-gcm\tunavailable\t-\n";
    assert_eq!(host.shell(shown).ok().out, expected);
    // Increments go on, and all of it is there with the key.
    host.shell("echo more >> t/e/clear/f; echo more >> t/e/f; zfs snapshot -r tank/e@2").ok();
    host.shell("zfs send -wR -I @1 tank/e@2 | zfs receive safe/e").ok();
    host.shell("cat s/e/clear/f").ok().says("e/clear\nmore\n");
    // A clone of it, directly below what is encrypted, has no value of its own.
    host.shell("zfs clone tank/e/clear@2 tank/e/copy; echo own > t/e/copy/own; zfs snapshot -r tank/e@3")
        .ok();
    host.shell(
        "zfs send -wR -I @2 tank/e@3 | zfs receive safe/e; zfs send -wR tank/e@3 | zfs receive safe/all",
    )
    .ok();
    for tree in ["e", "all"] {
        let expected = format!("off\nsafe/{tree}/clear@2\n");
        assert_eq!(
            host.shell(&format!("zfs get -Ho value encryption,origin safe/{tree}/copy")).ok().out,
            expected
        );
        host.shell(&format!("cat s/{tree}/copy/own s/{tree}/copy/f")).ok().says("own\ne/clear\nmore\n");
    }
    host.shell(
        "zfs unmount -a; zpool export safe; zpool import -d . safe; zfs load-key -L file://$PWD/key safe/e",
    )
    .ok();
    host.shell("for d in sealed clear/again; do zfs load-key -L file://$PWD/key safe/e/$d; done; zfs mount -a; cd s/e; cat f sealed/f clear/f clear/again/f")
        .ok()
        .says("e\nmore\ne/sealed\ne/clear\nmore\ne/clear/again\n");
    host.shell("zpool scrub -w safe; zpool status safe").ok().says("No known data errors");
    // Elsewhere it is the receiver's to say: below what has a key of its own, it is sealed.
    host.shell(&format!(
        "zfs create {options} safe/own; zfs send -w -p tank/e/clear@1 | zfs receive safe/own/c"
    ))
    .ok();
    host.shell("zfs get -Ho value encryption safe/own/c").ok().says("aes-256-gcm");
    // A clone has the key of its origin, whatever its sender had.
    host.shell(
        "zfs send -p -i tank/e/clear@1 tank/e/copy@3 | zfs receive -o origin=safe/own/c@1 safe/e/other",
    )
    .fails(1)
    .says("RAW");
    // Without that word nothing comes in the clear below what is raw.
    host.shell(
        "zfs create tank/open; zfs snapshot tank/open@1; zfs send -p tank/open@1 | zfs receive safe/e/open",
    )
    .fails(1)
    .says("RAW");
}
