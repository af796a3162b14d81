//! Users who do not own the daemon, through the command line and real sockets.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;

use steadfast_tests::{Host, Ran, is_root, skip, steadfast_bin};

/// Runs a command as a user without any rights. The program is found by its descriptor: its folder
/// may be closed to others.
fn as_guest(host: &Host, words: &str) -> Ran {
    let program = words.split(' ').next().expect("a program");
    let rest = &words[program.len()..];
    host.shell(&format!(
        "exec 9<{}; setpriv --reuid 4711 --regid 4711 --clear-groups bash -c 'exec -a {program} /proc/self/fd/9{rest}'",
        steadfast_bin().display()
    ))
}

#[test]
fn a_guest_looks_and_changes_nothing() {
    if !is_root() {
        return skip("guests", "it needs root, and another user");
    }
    let Some(host) = Host::with_tank("guests") else { return };
    fs::set_permissions(host.at(""), fs::Permissions::from_mode(0o755)).expect("opened to others");
    host.shell("zfs create -o org:x=1 tank/home && zfs snapshot tank/home@a && zfs hold keep tank/home@a")
        .ok();
    let mode = |path: &str| fs::metadata(host.at(path)).expect("it is there").mode() & 0o777;
    assert_eq!([mode("run"), mode("run/daemon.sock")], [0o700, 0o600]);
    assert_eq!([mode("run.public"), mode("run.public/daemon.sock")], [0o755, 0o666]);

    for words in [
        "zpool list -H",
        "zpool status -v",
        "zpool get -H all tank",
        "zfs list -H -t all",
        "zfs list -j",
        "zfs get -H all tank/home tank/home@a",
        "zfs holds -H tank/home@a",
        "zfs mount",
    ] {
        assert_eq!(as_guest(&host, words).ok().out, host.shell(words).ok().out, "{words}");
    }
    as_guest(&host, "zpool iostat -v tank").ok().says("tank");
    as_guest(&host, "zpool events -H").ok().says("history_event");
    as_guest(&host, "zfs list tank/none").fails(1).says("cannot open");
    as_guest(&host, "zpool status none").fails(1).says("no such pool");

    let before =
        host.shell("zfs list -Ho name,used -t all; zfs get -Ho value all tank/home; zpool history").ok().out;
    for words in [
        "zfs create tank/x",
        "zfs snapshot tank/home@b",
        "zfs destroy -r tank/home",
        "zfs destroy tank/home@a",
        "zfs set atime=off tank/home",
        "zfs inherit org:x tank/home",
        "zfs rollback tank/home@a",
        "zfs release keep tank/home@a",
        "zfs send tank/home@a | cat",
        "zfs diff tank/home@a",
        "zfs unmount tank/home",
        "zfs userspace tank/home",
        "zfs rename tank/home tank/other",
        "zpool history tank",
        "zpool scrub tank",
        "zpool set comment=x tank",
        "zpool sync tank",
        "zpool export tank",
        "zpool destroy tank",
        "zpool events -c",
    ] {
        let words = words.replace(" | cat", " >/dev/null");
        as_guest(&host, &words).fails(1).says("permission denied");
    }
    as_guest(&host, "steadfast daemon stop").fails(1);
    as_guest(&host, "steadfast daemon pid").fails(1);
    let after =
        host.shell("zfs list -Ho name,used -t all; zfs get -Ho value all tank/home; zpool history").ok().out;
    assert_eq!(before, after);
    // Bytes that no command sends end one connection, and nothing else.
    let mut stream = UnixStream::connect(host.at("run.public/daemon.sock")).expect("it listens");
    // It may be closed before all is written.
    let _ = stream.write_all(&vec![0; 2 << 20]);
    let _ = stream.read_to_end(&mut Vec::new());
    as_guest(&host, "zpool list").ok();
    host.run("daemon stop").ok();
    assert!(!host.at("run.public").exists());
}

#[test]
fn permission_sets_and_permissions_at_creation_are_those_of_zfs() {
    if !is_root() {
        return skip("allowed_sets", "it needs root, and another user");
    }
    let Some(host) = Host::with_tank("allowed_sets") else { return };
    fs::set_permissions(host.at(""), fs::Permissions::from_mode(0o755)).expect("opened to others");
    host.shell("zfs create tank/w && zfs create tank/w/a && zfs create tank/other").ok();
    host.shell("zfs allow -s @keep hold,release tank; zfs allow -s @work snapshot,@keep tank/w").ok();
    host.shell("zfs allow 4711 @work,create,mount tank/w; zfs allow 4711 @work tank/other").ok();
    host.shell("zfs allow -c destroy,mount tank/w; zfs allow -s @work bookmark tank/w").ok();
    let line = |name: &str| format!("{:-<70}\n", format!("---- Permissions on {name} "));
    let of_tank = format!("{}Permission sets:\n\t@keep hold,release\n", line("tank"));
    assert_eq!(
        host.shell("zfs allow tank/w").ok().out,
        format!(
            "{}Permission sets:\n\t@work @keep,bookmark,snapshot\nCreate time permissions:\n\tdestroy,mount\n\
             Local+Descendent permissions:\n\tuser (unknown: 4711) @work,create,mount\n{of_tank}",
            line("tank/w")
        )
    );
    let may = |words: &str| as_guest(&host, words).ok();
    let may_not = |words: &str| as_guest(&host, words).fails(1).says("permission denied");
    // The set is defined above one of them only.
    may("zfs snapshot tank/w/a@x");
    may_not("zfs snapshot tank/other@x");
    may("zfs hold keep tank/w/a@x");
    may("zfs create tank/w/mine");
    assert_eq!(
        host.shell("zfs allow tank/w/mine | head -3").ok().out,
        format!("{}Local permissions:\n\tuser (unknown: 4711) destroy,mount\n", line("tank/w/mine"))
    );
    may("zfs destroy tank/w/mine");
    may_not("zfs destroy tank/w/a");
    // A set is what it is now.
    host.shell("zfs unallow -s @work @keep tank/w").ok();
    may_not("zfs release keep tank/w/a@x");
    may("zfs bookmark tank/w/a@x tank/w/a#x");
    host.shell("zfs unallow -s @work tank/w; zfs unallow -c tank/w").ok();
    may_not("zfs snapshot tank/w/a@y");
    may("zfs create tank/w/later");
    may_not("zfs destroy tank/w/later");
    host.shell("zfs allow -s @work mountpoint tank").fails(1).says("cannot be given");
    for words in ["-s work send tank", "-s @work -u send tank", "-cd send tank", "-s @work tank"] {
        host.shell(&format!("zfs allow {words}")).fails(2);
    }
}

#[test]
fn a_guest_does_what_was_allowed_and_no_more() {
    if !is_root() {
        return skip("allowed", "it needs root, and another user");
    }
    let Some(host) = Host::with_tank("allowed") else { return };
    fs::set_permissions(host.at(""), fs::Permissions::from_mode(0o755)).expect("opened to others");
    host.shell("zfs create tank/home && zfs create tank/home/ann && zfs create tank/g && zfs create tank/d")
        .ok();
    host.shell("zfs create tank/d/e && touch t/home/ann/file && zfs snapshot tank/home/ann@root").ok();
    host.shell("zfs allow 4711 mount,send,snapshot,create,destroy,hold,release,rollback,atime,userprop tank/home/ann")
        .ok();
    host.shell("zfs allow -u 4711 -l diff tank/home/ann; zfs allow -g 4711 hold tank/g").ok();
    host.shell("zfs allow -d everyone snapshot tank/d; zfs allow -ld -e send tank").ok();
    let all = "atime,create,destroy,hold,mount,release,rollback,send,snapshot,userprop";
    let line = |name: &str| format!("{:-<70}\n", format!("---- Permissions on {name} "));
    let of_tank = format!("{}Local+Descendent permissions:\n\teveryone send\n", line("tank"));
    assert_eq!(
        host.shell("zfs allow tank/home/ann").ok().out,
        format!(
            "{}Local permissions:\n\tuser (unknown: 4711) diff\nLocal+Descendent permissions:\n\tuser (unknown: 4711) {all}\n{of_tank}",
            line("tank/home/ann")
        )
    );
    let told = as_guest(&host, "zfs allow tank/d/e").ok().out;
    assert_eq!(told, format!("{}Descendent permissions:\n\teveryone snapshot\n{of_tank}", line("tank/d")));

    for words in [
        "zfs snapshot tank/home/ann@mine",
        "zfs hold keep tank/home/ann@mine",
        "zfs release keep tank/home/ann@mine",
        "zfs diff tank/home/ann@mine",
        "zfs rollback tank/home/ann@mine",
        "zfs rollback -r tank/home/ann@root",
        "zfs set atime=off org:x=1 tank/home/ann",
        "zfs inherit org:x tank/home/ann",
        "zfs unmount tank/home/ann",
        "zfs mount tank/home/ann",
        "zfs create tank/home/ann/work",
        "zfs snapshot -r tank/home/ann@again",
        "zfs destroy tank/home/ann@again",
        "zfs destroy -r tank/home/ann/work",
        "zfs snapshot tank/d/e@x",
    ] {
        as_guest(&host, words).ok();
    }
    let sent = as_guest(&host, "zfs send tank/d/e@x >sent").fails(1).err;
    assert!(sent.contains("sent: Permission denied"), "the guest writes what it sends: {sent}");
    host.shell("mkdir -m 777 out").ok();
    as_guest(&host, "zfs send -R tank/d/e@x >out/sent").ok();
    host.shell("zfs receive tank/copy <out/sent && zfs list tank/copy@x && zpool history -l tank")
        .ok()
        .says("4711");

    host.shell("zfs snapshot tank/home@s && zfs snapshot tank/g@s && zfs clone tank/g@s tank/clone").ok();
    for words in [
        "zfs snapshot tank/d@x",
        "zfs snapshot tank/home@x",
        "zfs snapshot -r tank/home@x",
        "zfs set compression=off tank/home/ann",
        "zfs set mountpoint=/etc tank/home/ann",
        "zfs set setuid=on tank/home/ann",
        "zfs inherit mountpoint tank/home/ann",
        "zfs create -o compression=off tank/home/ann/x",
        "zfs create -o mountpoint=/etc tank/home/ann/x",
        "zfs create -V 1M tank/home/ann/x",
        "zfs create -p tank/home/ann/x/y",
        "zfs create tank/home/x",
        "zfs mount -O tank/home/ann",
        "zfs mount -o suid tank/home/ann",
        "zfs rename tank/home/ann tank/home/x",
        "zfs destroy tank/home/ann@root tank/x",
        "zfs destroy -R tank/g@s",
        "zfs release keep tank/g@s",
        "zfs promote tank/clone",
        "zfs allow 4711 destroy tank/home",
        "zfs unallow -e tank",
        "zfs inherit steadfast:allow:e tank/home/ann",
        "zfs receive tank/home/ann/x <out/sent",
    ] {
        let words = words.replace("tank/home/ann@root tank/x", "tank/home@s");
        let ran = as_guest(&host, &words).fails(1);
        assert!(ran.err.contains("permission denied") || ran.err.contains("PROP-"), "{words}: {}", ran.err);
    }
    as_guest(&host, "zfs hold keep tank/g@s").ok();

    // A folder of the user's own could be a link when the daemon mounts there.
    host.shell("chown 4711 t/home/ann").ok();
    as_guest(&host, "zfs create tank/home/ann/y")
        .fails(1)
        .says("filesystem successfully created, but it may only be mounted by root\n");
    as_guest(&host, "zfs mount tank/home/ann/y").fails(1).says("permission denied");
    host.shell("zfs get -Ho value mounted tank/home/ann/y").ok().says("no");

    // Root's own mounts go through no link of a user either, and through root's as before.
    host.shell("mkdir target; setpriv --reuid 4711 --clear-groups ln -s $PWD/target t/home/ann/z").ok();
    host.shell("zfs create tank/home/ann/z").fails(1).says("symbolic link");
    host.shell("zfs mount tank/home/ann/z").fails(1).says("belongs to user 4711");
    host.shell("rm t/home/ann/z; ln -s $PWD/target t/home/ann/z; zfs mount tank/home/ann/z").ok();
    host.shell("mountpoint -q target; zfs destroy tank/home/ann/z").ok();

    // They are stored, neither shown nor set as properties, and go with no stream.
    host.shell("zpool export tank && zpool import -d $PWD tank").ok();
    as_guest(&host, "zfs snapshot tank/home/ann@later").ok();
    assert!(!host.shell("zfs get -r all tank").ok().out.contains("steadfast:allow"));
    host.shell("zfs set steadfast:allow:e=send/send tank").fails(1).says("PROP-");
    host.shell("zfs inherit steadfast:allow:e tank").fails(1).says("PROP-");
    host.shell("zfs send -p tank/home/ann@later | zfs receive -u tank/there").ok();
    assert_eq!(host.shell("zfs allow tank/there").ok().out, of_tank);
    // Others are refused, and taken permissions end at once.
    for words in
        ["zfs allow 4711 mountpoint tank", "zfs allow 4711 receive tank", "zfs allow 4711 nonsense tank"]
    {
        host.shell(words).fails(1).says("cannot be given");
    }
    host.shell("zfs allow no-such-user send tank").fails(2);
    host.shell("zfs unallow 4711 snapshot tank/home/ann; zfs unallow -r -e tank; zfs unallow -g 4711 tank/g")
        .ok();
    as_guest(&host, "zfs snapshot tank/home/ann@no").fails(1).says("permission denied");
    as_guest(&host, "zfs snapshot tank/d/e@no").fails(1).says("permission denied");
    as_guest(&host, "zfs hold other tank/g@s").fails(1).says("permission denied");
    as_guest(&host, "zfs set atime=on tank/home/ann").ok();
    assert_eq!(host.shell("zfs unallow 4711 tank/home/ann; zfs allow tank/home/ann").ok().out, "");
}

#[test]
fn a_guest_takes_snapshots_in_their_folder_if_that_is_allowed() {
    if !is_root() {
        return skip("guests in folders", "it needs root, and another user");
    }
    let Some(host) = Host::with_tank("guests in folders") else { return };
    for folder in ["", "t"] {
        fs::set_permissions(host.at(folder), fs::Permissions::from_mode(0o755)).expect("opened to others");
    }
    let as_user = |words: &str| {
        host.shell(&format!("setpriv --reuid 4711 --regid 4711 --clear-groups bash -c '{words}'"))
    };
    host.shell("zfs create tank/home && chmod 755 t/home").ok();
    as_user("mkdir t/home/.zfs/snapshot/mine").fails(1).says("not permitted");
    host.shell("zfs allow 4711 snapshot tank/home").ok();
    as_user("mkdir t/home/.zfs/snapshot/mine").ok();
    host.shell("zfs list -Ho name -t snapshot tank/home").ok().says("tank/home@mine\n");
    as_user("rmdir t/home/.zfs/snapshot/mine").fails(1).says("not permitted");
    as_user("mv t/home/.zfs/snapshot/mine t/home/.zfs/snapshot/yours").fails(1).says("not permitted");
    host.shell("zfs allow 4711 destroy,mount tank/home").ok();
    as_user("rmdir t/home/.zfs/snapshot/mine").ok();
    host.shell("zfs list tank/home@mine").fails(1);
    host.shell("zpool set delegation=off tank").ok();
    as_user("mkdir t/home/.zfs/snapshot/again").fails(1).says("not permitted");
    as_guest(&host, "zfs snapshot tank/home@again").fails(1).says("permission denied");
    host.shell("zpool set delegation=on tank").ok();
    as_guest(&host, "zfs snapshot tank/home@again").ok();
}

#[test]
fn the_nearest_definition_of_a_set_hides_those_above() {
    if !is_root() {
        return skip("guests' sets", "it needs root, and another user");
    }
    let Some(host) = Host::with_tank("guests' sets") else { return };
    fs::set_permissions(host.at(""), fs::Permissions::from_mode(0o755)).expect("opened to others");
    host.shell(
        "zfs create -p tank/a/b && zfs allow -s @set hold,snapshot tank && zfs allow -s @set bookmark tank/a",
    )
    .ok();
    host.shell("zfs allow 4711 @set tank/a && zfs snapshot tank/a/b@1 && zfs snapshot tank@1").ok();
    as_guest(&host, "zfs snapshot tank/a/b@2").fails(1).says("permission denied");
    as_guest(&host, "zfs bookmark tank/a/b@1 tank/a/b#1").ok();
    // Given above too, it is there what it is there, and below what it is below.
    host.shell("zfs allow 4711 @set tank").ok();
    as_guest(&host, "zfs hold keep tank@1").ok();
    as_guest(&host, "zfs hold keep tank/a/b@1").fails(1).says("permission denied");
}
