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
