//! Pools with an anchor, through the command line: made, watched, put back, fenced, lost, moved,
//! removed.

use std::path::Path;

use steadfast_tests::{Host, Ran, no_fuse, skip};

const MIB: u64 = 1 << 20;

/// The command was refused with this code, in three parts.
#[track_caller]
fn refused(ran: Ran, code: &str) -> Ran {
    let ran = ran.fails(1);
    assert!(ran.err.contains("  meaning: "), "{}", ran.err);
    assert!(ran.err.trim_end().ends_with(&format!("{code}.")), "{} is not {code}:\n{}", ran.words, ran.err);
    ran
}

/// A host with an anchored pool `tank` at `t/` that holds one committed file, exported, and a copy
/// of all of it.
fn with_tank(test: &str) -> Option<Host> {
    if let Some(why) = no_fuse() {
        skip(test, &why);
        return None;
    }
    let host = Host::new();
    host.image("tank.img", 128 * MIB);
    host.shell("zpool create -m $PWD/t tank $PWD/tank.img anchor $PWD/tank.anchor; echo kept > t/file; zpool export tank").ok();
    host.shell("cp --sparse=always tank.img old.img; cp tank.anchor old.anchor").ok();
    Some(host)
}

fn bytes_of(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("a file reads")
}

const IMPORT: &str = "zpool import -d $PWD/tank.img";

#[test]
fn an_anchor_is_shown_and_inspected_and_comes_and_goes() {
    let Some(host) = with_tank("an anchor") else { return };
    host.shell(&format!("{IMPORT} tank")).ok();
    host.shell("zpool status tank").ok().says("anchor").says("tank.anchor").says("epoch 2");
    host.shell("zpool status -j tank").ok().says("\"class\":\"anchor\"");
    host.shell("zpool list -v tank").ok().says("tank.anchor");
    host.shell("zpool get -H -o value feature@anchor tank").ok().says("active");
    host.run("inspect anchor {}/tank.anchor").ok().says("valid=true").says("epoch=2");
    host.run("inspect anchor --json {}/tank.anchor").ok().says("\"mac\":\"right\"");
    // One is enough, and what alone holds data stays.
    refused(host.shell("zpool add tank anchor $PWD/other.anchor"), "ANCHOR-EXISTS");
    refused(host.shell("zpool remove tank $PWD/tank.img"), "VDEV-NEEDED");
    refused(host.shell("zpool remove tank $PWD/other.anchor"), "VDEV-MISSING");
    assert!(!host.at("other.anchor").exists());
    host.shell("zpool remove -n tank $PWD/tank.anchor; zpool status tank").ok().says("tank.anchor");
    host.shell("zpool remove tank $PWD/tank.anchor; zpool status tank; zpool export tank; rm tank.anchor")
        .ok();
    host.shell(&format!("{IMPORT} tank; cat t/file")).ok().says("kept");
    // Places that cannot hold one.
    std::fs::write(host.at("precious"), "precious").expect("a file");
    for (place, code) in
        [("$PWD/precious", "VDEV-FOREIGN"), ("$PWD", "ANCHOR-UNFIT"), ("$PWD/no/a", "ANCHOR-UNFIT")]
    {
        refused(host.shell(&format!("zpool add tank anchor {place}")), code);
    }
    assert_eq!(bytes_of(&host.at("precious")), b"precious");
    host.shell("zpool add -n tank anchor $PWD/new.anchor").ok();
    assert!(!host.at("new.anchor").exists(), "-n only checks");
    host.shell("zpool add tank anchor $PWD/new.anchor; zpool status tank").ok().says("new.anchor");
    host.shell("zpool history tank").ok().says("zpool remove tank").says("zpool add tank anchor");
    host.shell("zpool destroy tank").ok();
}

#[test]
fn a_pool_put_back_whole_is_refused_and_accepted_only_by_that_word() {
    let Some(host) = with_tank("a pool put back") else { return };
    host.shell(&format!(
        "{IMPORT} tank; echo new > t/new; zpool export tank; cp --sparse=always old.img tank.img"
    ))
    .ok();
    let (image, anchor) = (bytes_of(&host.at("tank.img")), bytes_of(&host.at("tank.anchor")));
    for options in ["", "-f", "-o readonly=on", "--accept-lost-anchor"] {
        let said = refused(host.shell(&format!("{IMPORT} {options} tank")), "ANCHOR-ROLLBACK");
        assert!(said.err.contains("was put back to an earlier copy"), "{}", said.err);
        assert!(said.err.contains("--accept-rollback tank"), "{}", said.err);
    }
    assert!(bytes_of(&host.at("tank.img")) == image && bytes_of(&host.at("tank.anchor")) == anchor);
    host.shell(&format!("{IMPORT} --accept-rollback tank; cat t/file; test ! -e t/new")).ok().says("kept");
    host.shell("zpool history -i tank").ok().says("the operator accepted txg");
    host.shell("zpool events -v tank").ok().says("rollback");
    host.shell("zpool export tank").ok();
    host.shell(&format!("{IMPORT} tank; cat t/file; zpool status -x")).ok().says("all pools are healthy");
    host.shell("zpool destroy tank").ok();
}

#[test]
fn an_anchor_that_is_missing_damaged_old_new_or_anothers_is_told_apart() {
    let Some(host) = with_tank("a bad anchor") else { return };
    host.shell(&format!(
        "{IMPORT} tank; echo new > t/new; zpool sync; echo more > t/more; zpool export tank"
    ))
    .ok();
    host.shell("cp tank.anchor new.anchor").ok();
    host.image("two.img", 128 * MIB);
    host.shell("zpool create -m none two $PWD/two.img anchor $PWD/two.anchor; zpool export two").ok();
    let image = bytes_of(&host.at("tank.img"));
    for (make, code) in [
        ("rm tank.anchor", "ANCHOR-MISSING"),
        (": > tank.anchor", "ANCHOR-DAMAGED"),
        ("head -c 8192 /dev/zero > tank.anchor", "ANCHOR-DAMAGED"),
        ("head -c 5000 new.anchor > tank.anchor", "ANCHOR-DAMAGED"),
        ("head -c 8192 /dev/zero | tr '\\0' x > tank.anchor", "ANCHOR-DAMAGED"),
        ("rm tank.anchor; mkdir tank.anchor", "ANCHOR-DAMAGED"),
        ("rmdir tank.anchor; mkfifo tank.anchor", "ANCHOR-DAMAGED"),
        ("rm tank.anchor; cp two.anchor tank.anchor", "ANCHOR-FOREIGN"),
        ("cp old.anchor tank.anchor", "ANCHOR-OLD"),
    ] {
        host.shell(make).ok();
        refused(host.shell(&format!("{IMPORT} tank")), code);
        refused(host.shell(&format!("{IMPORT} -f tank")), code);
    }
    // This host saw a newer record; one that saw nothing has the devices to tell it.
    let strange = Host::new();
    let words = format!("pool import -d {0}/tank.img --anchor {0}/old.anchor tank", host.path().display());
    refused(strange.run(&words), "ANCHOR-OLD");
    assert!(bytes_of(&host.at("tank.img")) == image, "a refused import writes nothing");
    refused(
        host.shell("cp two.anchor tank.anchor; zpool import -d $PWD/tank.img --anchor $PWD/nowhere tank"),
        "ANCHOR-MISSING",
    );
    // It was moved.
    host.shell(
        "mkdir safe; mv new.anchor safe/; zpool import -d $PWD/tank.img --anchor $PWD/safe/new.anchor tank",
    )
    .ok();
    host.shell("cat t/more; zpool export tank; rm tank.anchor").ok().says("more");
    host.shell(&format!("{IMPORT} tank; zpool status tank; zpool export tank")).ok().says("safe/new.anchor");
    // It is lost.
    host.shell("rm safe/new.anchor").ok();
    refused(host.shell(&format!("{IMPORT} --accept-rollback tank")), "ANCHOR-MISSING");
    host.shell(&format!("{IMPORT} --accept-lost-anchor tank; cat t/more; zpool history -i tank"))
        .ok()
        .says("gave up");
    host.shell("zpool export tank").ok();
    host.shell(&format!("{IMPORT} tank; zpool destroy tank")).ok();
}

/// Two daemons, each with a copy of the image, and one anchor: exactly one goes on.
#[test]
fn of_two_daemons_on_one_pool_exactly_one_wins_and_the_other_says_why() {
    let Some(host) = with_tank("two daemons") else { return };
    host.shell(&format!("{IMPORT} tank; cp --sparse=always tank.img copy.img")).ok();
    let other = Host::new();
    let here = host.path().display().to_string();
    // The same image: the lock on the device comes first, and the anchor is not touched.
    let before = bytes_of(&host.at("tank.anchor"));
    refused(other.run(&format!("pool import -f -d {here}/tank.img tank")), "VDEV-IN-USE");
    assert!(bytes_of(&host.at("tank.anchor")) == before);
    // A copy, which no lock protects.
    other.run(&format!("pool import -f -N -d {here}/copy.img tank")).ok();
    other.run("fs set mountpoint={}/t tank").ok();
    other.shell("zfs mount tank || true; echo winner > t/winner; zpool sync").ok();
    host.shell("echo loser > t/loser || true; zpool sync").fails(1).says("taken over");
    host.shell("zpool status tank")
        .ok()
        .says("ANCHOR-FENCED")
        .says("SUSPENDED")
        .says("another daemon has taken over");
    host.shell("cat t/file").ok().says("kept");
    assert_ne!(host.shell("echo more > t/more && sync t/more").status, 0, "the loser takes no more writes");
    host.shell("zpool export -f tank").ok();
    other.shell("cat t/winner; zpool status -x; zpool export tank").ok().says("winner");
    other.run(&format!("pool import -d {here}/copy.img tank")).ok();
    other.shell("cat t/winner").ok().says("winner");
    // The loser's devices are an earlier copy now.
    refused(host.shell(&format!("{IMPORT} tank")), "ANCHOR-ROLLBACK");
    other.shell("zpool export tank").ok();
}

/// The key of a sealed pool makes its macs: a record that anybody could make is not believed.
#[test]
fn the_anchor_of_a_sealed_pool_needs_its_key() {
    if let Some(why) = no_fuse() {
        return skip("a sealed anchor", &why);
    }
    let host = Host::new();
    host.image("s.img", 128 * MIB);
    let key = "-O encryption=on -O keyformat=passphrase";
    host.shell(&format!("echo 12345678 | zpool create -m $PWD/s {key} s $PWD/s.img anchor $PWD/s.anchor"))
        .ok();
    host.shell("echo sealed > s/file; zpool export s").ok();
    host.run("inspect anchor {}/s.anchor").ok().says("mac=not-checked").says("keyed=true");
    host.shell(
        "cp --sparse=always s.img old.img; echo 12345678 | zpool import -l -d $PWD/s.img s; cat s/file",
    )
    .ok()
    .says("sealed");
    host.shell("echo more > s/more; zpool export s; cp --sparse=always old.img s.img").ok();
    refused(host.shell("echo 12345678 | zpool import -l -d $PWD/s.img s"), "ANCHOR-ROLLBACK");
    host.shell(
        "echo 12345678 | zpool import -l --accept-rollback -d $PWD/s.img s; cat s/file; zpool destroy s",
    )
    .ok();
}
