//! Clones of what is encrypted, sent as they are sealed, through the command line, pipes and real
//! mounts.

use steadfast_tests::Host;

/// A host with pools `tank`, mounted at `t`, `safe` at `s` and `far` at `f`.
fn host(test: &str) -> Option<Host> {
    let host = Host::with_tank(test)?;
    for (pool, at) in [("safe", "s"), ("far", "f")] {
        let at = host.at(at).display().to_string();
        host.shell(&format!("truncate -s 192M {pool}.img && zpool create -m {at} {pool} $PWD/{pool}.img"))
            .ok();
    }
    Some(host)
}

#[test]
fn clones_of_what_is_encrypted_go_as_they_are_sealed() {
    let Some(host) = host("raw_clones") else { return };
    host.shell("head -c 32 /dev/urandom | od -An -vtx1 | tr -d ' \\n' > key").ok();
    host.shell("zfs create -o encryption=on -o keyformat=hex -o keylocation=file://$PWD/key tank/w && zfs create tank/w/z").ok();
    host.shell("head -c 6000000 /dev/urandom > t/w/z/large && zfs snapshot -r tank/w@1").ok();
    // By its name it comes before its origin.
    host.shell("zfs clone tank/w/z@1 tank/w/b && echo own > t/w/b/own && zfs snapshot -r tank/w@2").ok();
    host.shell(
        "zfs send -w -R tank/w@2 > tree && test $(stat -c %s tree) -lt 8000000 && zfs receive safe/w < tree",
    )
    .ok();
    let value = |property: &str, name: &str| {
        host.shell(&format!("zfs get -Ho value {property} {name}")).ok().out.trim().to_owned()
    };
    assert_eq!((value("origin", "safe/w/b"), value("origin", "safe/w/z")), ("safe/w/z@1".into(), "-".into()));
    assert_eq!(value("keystatus", "safe/w/b"), "unavailable");
    host.shell("test $(zfs get -Hpo value used safe/w/b) -lt 1000000").ok();
    // Increments go on into the clone, and a new clone of what is there already comes with them.
    host.shell("echo more >> t/w/b/own && zfs clone tank/w/b@2 tank/w/c && rm t/w/c/large && zfs snapshot -r tank/w@3").ok();
    host.shell("zfs send -w -R -I @2 tank/w@3 | zfs receive safe/w").ok();
    assert_eq!(value("origin", "safe/w/c"), "safe/w/b@2");

    // One by one; half of one, and the rest with a token; with another origin, and none.
    host.shell("zfs send -w -i tank/w/z@1 tank/w/b@2 > one").ok();
    host.shell("zfs receive far/one < one").fails(1).says("STREAM-NO-BASE");
    host.shell("zfs receive safe/one < one").ok();
    assert_eq!(value("origin", "safe/one"), "safe/w/z@1");
    host.shell("head -c 5000000 /dev/urandom > t/w/c/new && zfs snapshot tank/w/c@4 && zfs send -w -i tank/w/z@1 tank/w/c@4 > long").ok();
    host.shell("head -c 3000000 long | zfs receive -s safe/long").fails(1).says("receive_resume_token");
    assert!(value("receive_resume_token", "safe/long").starts_with("2-"));
    host.shell("zfs destroy safe/w/z@1").fails(1);
    host.shell(
        "zfs send -t $(zfs get -Ho value receive_resume_token safe/long) > rest && zfs receive safe/long < rest",
    )
    .ok();
    assert_eq!(value("origin", "safe/long"), "safe/w/z@1");
    host.shell("zfs send -i tank/w/z@1 tank/w/b@2 | zfs receive safe/open").fails(1).says("RAW-MIXED");
    // A bookmark of the origin is a base, too.
    host.shell(
        "zfs bookmark tank/w/z@1 'tank/w/z#mark' && zfs send -w -i 'tank/w/z#mark' tank/w/b@2 | zfs receive -n -v safe/marked",
    )
    .ok();

    // On from where nobody has the key, and opened where it is.
    host.shell("zfs send -w -R safe/w@3 | zfs receive far/w && zpool export far && zpool import -d . far")
        .ok();
    assert_eq!(value("origin", "far/w/c"), "far/w/b@2");
    for (pool, names) in [("far", "w w/z w/b w/c"), ("safe", "long")] {
        let load = format!("zfs load-key -L file://$PWD/key {pool}/$fs && zfs mount {pool}/$fs");
        host.shell(&format!("for fs in {names}; do {load}; done")).ok();
    }
    host.shell("rm t/w/c/new && diff -r t/w f/w && cmp s/long/new t/w/c/.zfs/snapshot/4/new").ok();
    host.shell("diff -r t/w/b/.zfs/snapshot/2 f/w/b/.zfs/snapshot/2").ok();
    for pool in ["safe", "far"] {
        host.shell(&format!("zpool scrub -w {pool} && zpool status {pool}")).ok().says("scrub repaired 0B");
    }
    // Both change places, and what was the origin goes.
    host.shell("zfs promote far/w/b && diff -r t/w f/w").ok();
    assert_eq!((value("origin", "far/w/b"), value("origin", "far/w/z")), ("-".into(), "far/w/b@1".into()));
    host.shell("zfs destroy -r far/w/z && diff -r t/w/b f/w/b && zfs destroy -R far/w").ok();
}
