//! Refusals of `zpool` about devices: each in one sentence with advice, and with nothing changed on
//! the pool or on the named devices.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use steadfast_tests::{Host, Ran, no_fuse, skip};

const MIB: u64 = 1 << 20;

/// The command was refused with this code: what happened, what it means, what to do.
#[track_caller]
fn refused(ran: Ran, code: &str) {
    let ran = ran.fails(1);
    let lines: Vec<&str> = ran.err.lines().collect();
    assert!(lines.len() >= 3 && lines[1].starts_with("  meaning: "), "one sentence says what: {}", ran.err);
    assert!(
        lines[2].starts_with("  action:  ") && lines[2].ends_with(&format!("{code}.")),
        "{code}: {}",
        ran.err
    );
    for slip in ["panicked", "Some(", "Err(", "Error {", "{pool}", "{device}", "{group}"] {
        assert!(!ran.err.contains(slip), "{slip:?} in {}", ran.err);
    }
}

/// State of a pool, and of devices that do not belong to it.
struct Scene {
    host: Host,
    strangers: Vec<PathBuf>,
}

impl Scene {
    fn new(test: &str) -> Option<Scene> {
        if let Some(why) = no_fuse() {
            skip(test, &why);
            return None;
        }
        let host = Host::new();
        for at in 1..=9 {
            host.image(&format!("d{at}.img"), 128 * MIB);
        }
        host.image("small.img", MIB);
        host.image("less.img", 64 * MIB);
        host.shell("printf XFSB > xfs.img; truncate -s 128M xfs.img; ln -s d1.img link1; ln -s d5.img link5; mkdir folder").ok();
        // `tank` is a mirror and a spare, `rz` raidz1, `gone` was exported.
        host.shell("zpool create -m $PWD/t tank mirror $PWD/d1.img $PWD/d2.img spare $PWD/d3.img").ok();
        host.shell("zpool create -m $PWD/r rz raidz1 $PWD/d4.img $PWD/d5.img $PWD/d6.img").ok();
        host.shell("zpool create -m $PWD/g gone $PWD/d7.img; zpool export gone").ok();
        host.shell("echo kept > t/file; echo kept > r/file; zpool sync").ok();
        let strangers = ["d7.img", "d8.img", "d9.img", "small.img", "less.img", "xfs.img"];
        let strangers = strangers.map(|name| host.at(name)).to_vec();
        Some(Scene { host, strangers })
    }

    /// All that a refusal must leave alone.
    fn state(&self) -> Vec<String> {
        let mut state: Vec<String> = self
            .strangers
            .iter()
            .map(|path| {
                let seen = fs::metadata(path).expect("an image");
                format!("{} {} {} {}", path.display(), seen.len(), seen.mtime_nsec(), seen.mtime())
            })
            .collect();
        state.push(
            self.host
                .shell("zpool status; zpool get -H all | grep -v -e free -e allocated -e capacity")
                .ok()
                .out,
        );
        state
    }

    fn refuses(&self, cases: &[(&str, &str)]) {
        let before = self.state();
        for (line, code) in cases {
            refused(self.host.shell(line), code);
            let after = self.state();
            assert!(after == before, "{line} changed\n{before:#?}\nto\n{after:#?}");
        }
    }

    fn end(self) {
        for folder in ["t", "r"] {
            assert_eq!(fs::read_to_string(self.host.at(folder).join("file")).expect("readable"), "kept\n");
        }
        self.host.shell("zpool export tank; zpool export rz").ok();
        self.host.shell("zpool import -d $PWD tank; zpool import -d $PWD rz; cat t/file r/file").ok();
        self.host.shell("zpool export tank; zpool export rz").ok();
    }
}

#[test]
fn devices_that_cannot_be_taken_are_refused() {
    let Some(scene) = Scene::new("refusals of devices") else { return };
    scene.refuses(&[
        // Too few, too many.
        ("zpool create new mirror $PWD/d8.img", "VDEV-GROUP"),
        ("zpool create new raidz1 $PWD/d8.img", "VDEV-GROUP"),
        ("zpool create new $PWD/d8.img parity", "VDEV-GROUP"),
        ("zpool create new $PWD/d8.img log cache $PWD/d9.img", "VDEV-GROUP"),
        ("zpool create new mirror mirror $PWD/d8.img $PWD/d9.img", "VDEV-GROUP"),
        ("zpool create new mirror $PWD/d8.img $PWD/d9.img mirror", "VDEV-GROUP"),
        ("zpool add tank mirror raidz $PWD/d8.img $PWD/d9.img", "VDEV-GROUP"),
        ("zpool create new raidz3 $PWD/d8.img $PWD/d9.img $PWD/less.img", "VDEV-GROUP"),
        // The same one twice.
        ("zpool create new mirror $PWD/d8.img $PWD/d8.img", "VDEV-TWICE"),
        ("zpool create new mirror $PWD/d8.img $PWD/folder/../d8.img", "VDEV-TWICE"),
        ("zpool add tank mirror $PWD/d8.img $PWD/d9.img mirror $PWD/d9.img $PWD/less.img", "VDEV-TWICE"),
        ("ln -sf d8.img link8; zpool create new mirror $PWD/d8.img $PWD/link8", "VDEV-TWICE"),
        ("zpool add tank spare $PWD/d8.img $PWD/link8", "VDEV-TWICE"),
        // Too small.
        ("zpool create new $PWD/small.img", "VDEV-SMALL"),
        ("zpool add tank spare $PWD/small.img", "VDEV-SMALL"),
        ("zpool attach tank $PWD/d1.img $PWD/less.img", "VDEV-SMALL"),
        // Not there, no device.
        ("zpool create new $PWD/nothing.img", "VDEV-MISSING"),
        ("zpool create new $PWD/folder", "VDEV-KIND"),
        ("zpool replace tank $PWD/d1.img $PWD/nothing.img", "VDEV-MISSING"),
        // In use, under any name; by itself, by another pool, by a pool that is elsewhere, by
        // something else.
        ("zpool create new $PWD/d4.img", "VDEV-IN-USE"),
        ("zpool create -f new $PWD/link5", "VDEV-IN-USE"),
        ("zpool add tank mirror $PWD/d8.img $PWD/link5", "VDEV-IN-USE"),
        ("zpool add tank mirror $PWD/d8.img $PWD/d3.img", "VDEV-IN-USE"),
        ("zpool attach tank $PWD/d1.img $PWD/d6.img", "VDEV-IN-USE"),
        ("zpool attach tank $PWD/d1.img $PWD/d2.img", "VDEV-TWICE"),
        ("zpool replace tank $PWD/d1.img $PWD/d6.img", "VDEV-IN-USE"),
        ("zpool replace tank $PWD/d1.img $PWD/link5", "VDEV-IN-USE"),
        ("zpool add tank mirror $PWD/d8.img $PWD/d7.img", "VDEV-FOREIGN"),
        ("zpool replace rz $PWD/d4.img $PWD/d7.img", "VDEV-FOREIGN"),
        ("zpool attach tank $PWD/d1.img $PWD/xfs.img", "VDEV-FOREIGN"),
        ("zpool add tank spare $PWD/xfs.img", "VDEV-FOREIGN"),
        ("zpool add tank cache $PWD/small.img", "VDEV-SMALL"),
        ("zpool add tank cache $PWD/d4.img", "VDEV-IN-USE"),
        ("zpool add tank cache $PWD/d7.img", "VDEV-FOREIGN"),
        ("zpool add tank cache $PWD/d8.img $PWD/link8", "VDEV-TWICE"),
        ("zpool add tank cache mirror $PWD/d8.img $PWD/d9.img", "LATER"),
        // Redundancy that does not match.
        ("zpool add tank $PWD/d8.img", "VDEV-MISMATCH"),
        ("zpool add tank raidz1 $PWD/d8.img $PWD/d9.img $PWD/less.img", "VDEV-MISMATCH"),
        // A mirror of two would be as safe as the raidz1 that is there.
        ("zpool add rz $PWD/d8.img", "VDEV-MISMATCH"),
        ("zpool create new $PWD/d8.img mirror $PWD/d9.img $PWD/less.img", "VDEV-MISMATCH"),
        // Devices that the intent log cannot lie on.
        (
            "zpool create new mirror $PWD/d8.img $PWD/d9.img log mirror $PWD/less.img $PWD/nothing.img",
            "VDEV-MISSING",
        ),
        ("zpool create new $PWD/d8.img log mirror $PWD/d9.img", "VDEV-GROUP"),
        ("zpool create new $PWD/d8.img log mirror $PWD/d9.img $PWD/d9.img", "VDEV-TWICE"),
        ("zpool create new $PWD/d8.img log raidz $PWD/d9.img $PWD/less.img", "VDEV-LOG"),
        ("zpool add tank log raidz2 $PWD/d8.img $PWD/d9.img $PWD/less.img", "VDEV-LOG"),
        ("zpool add tank log mirror $PWD/d8.img", "VDEV-GROUP"),
        ("zpool add tank log mirror $PWD/d8.img $PWD/link8", "VDEV-TWICE"),
        ("zpool add tank log mirror $PWD/d8.img $PWD/d3.img", "VDEV-IN-USE"),
        ("zpool add tank log mirror $PWD/d8.img $PWD/small.img", "VDEV-SMALL"),
        ("zpool add tank log mirror $PWD/d8.img $PWD/d7.img", "VDEV-FOREIGN"),
    ]);
    scene.host.shell("zpool add -f -n tank $PWD/d8.img").ok();
    scene.end();
}

#[test]
fn what_cannot_be_spared_stays() {
    let Some(scene) = Scene::new("refusals of what is needed") else { return };
    scene.refuses(&[
        ("zpool remove tank mirror-0", "VDEV-NEEDED"),
        ("zpool remove rz raidz1-0", "VDEV-NEEDED"),
        ("zpool remove tank $PWD/d1.img", "VDEV-MEMBER"),
        ("zpool remove tank $PWD/link1", "VDEV-MEMBER"),
        ("zpool remove tank $PWD/d8.img", "VDEV-MISSING"),
        ("zpool detach rz $PWD/d4.img", "VDEV-DETACH"),
        ("zpool detach tank $PWD/d8.img", "VDEV-MISSING"),
        ("zpool detach tank $PWD/d4.img", "VDEV-MISSING"),
        ("zpool attach tank $PWD/d8.img $PWD/d9.img", "VDEV-MISSING"),
        ("zpool attach tank $PWD/d3.img $PWD/d8.img", "VDEV-MISSING"),
        ("zpool replace tank $PWD/d8.img $PWD/d9.img", "VDEV-MISSING"),
        ("zpool replace tank $PWD/d1.img", "VDEV-IN-PLACE"),
        ("zpool offline tank $PWD/d8.img", "VDEV-MISSING"),
        ("zpool scrub -p tank", "SCAN-NONE"),
        ("zpool remove -s tank", "MOVE-NONE"),
    ]);
    // The last good copy.
    scene.host.shell("zpool offline tank $PWD/d1.img; zpool offline rz $PWD/d4.img").ok();
    scene.refuses(&[
        ("zpool offline tank $PWD/d2.img", "VDEV-NEEDED"),
        ("zpool detach tank $PWD/d2.img", "VDEV-NEEDED"),
        ("zpool offline rz $PWD/link5", "VDEV-NEEDED"),
        ("zpool trim tank $PWD/d1.img", "TRIM-OUT"),
        ("zpool trim tank $PWD/d2.img $PWD/link1", "TRIM-OUT"),
        ("zpool initialize rz $PWD/d4.img", "TRIM-OUT"),
    ]);
    scene
        .host
        .shell("zpool online tank $PWD/d1.img; zpool online rz $PWD/d4.img; zpool wait tank; zpool wait rz")
        .ok();
    // Four copies are the most.
    scene
        .host
        .shell("zpool attach -w tank $PWD/d1.img $PWD/d8.img; zpool attach -w tank $PWD/d1.img $PWD/d9.img")
        .ok();
    scene.host.image("d10.img", 128 * MIB);
    refused(scene.host.shell("zpool attach tank $PWD/d1.img $PWD/d10.img"), "VDEV-GROUP");
    scene.end();
}
