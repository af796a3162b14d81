//! Misfortunes of machines: disks that fill up or vanish, processes that are stopped or killed,
//! limits that are too small, names that are no text. Each ends in a clear sentence, with nothing
//! lost that was committed, and no hang.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use steadfast_tests::{Host, find, is_root, no_fuse, skip};

const MIB: u64 = 1 << 20;

fn host(test: &str) -> Option<Host> {
    match no_fuse() {
        Some(why) => {
            skip(test, &why);
            None
        }
        None => Some(Host::new()),
    }
}

/// A host with a pool `tank` on `tank.img`, mounted at `t/`, that holds one committed file.
fn with_tank(test: &str) -> Option<Host> {
    let host = Host::with_tank(test)?;
    host.shell("zfs set compression=off tank; echo kept > t/file; zpool sync").ok();
    Some(host)
}

fn random(bytes: usize) -> Vec<u8> {
    let mut out = vec![0; bytes];
    std::fs::File::open("/dev/urandom").expect("randomness").read_exact(&mut out).expect("random bytes");
    out
}

fn daemon(host: &Host) -> String {
    host.run("daemon pid").ok().out.trim().to_owned()
}

#[test]
fn a_full_disk_under_the_image_suspends_the_pool_and_loses_nothing() {
    if !is_root() {
        return skip("full disk", "only root mounts a small disk");
    }
    let Some(host) = host("full disk") else { return };
    ["off", "on"].into_iter().for_each(|collects| a_full_disk_loses_nothing(&host, collects));
}

fn a_full_disk_loses_nothing(host: &Host, collects: &str) {
    if host.shell("mkdir -p small; mount -t tmpfs -o size=24M small small").status != 0 {
        return skip("full disk", "a tmpfs cannot be mounted here");
    }
    let create = format!("zpool create -O compression=off -O writeback_cache={collects} -m $PWD/t tank");
    host.shell(&format!("truncate -s 128M small/i.img; {create} $PWD/small/i.img")).ok();
    host.shell("echo kept > t/kept; zpool sync").ok();
    // The pool has room, the disk below it has not.
    host.shell("head -c 60M /dev/urandom > t/large && sync t/large").fails(1);
    host.shell("zpool status tank").ok().says("SUSPENDED").says("No space left on device");
    host.shell("cat t/kept").ok().says("kept");
    host.shell("echo x > t/new").fails(1).says("Input/output error");
    host.shell("zpool sync").fails(1).says("HOST-FULL");
    // Changes are lost by -f only, and it says which.
    let refused = host.shell("zpool export tank").fails(1).says("HOST-FULL");
    refused.says("an export loses the changes since its last commit (txg ").says("zpool export -f tank");
    host.run("daemon stop").fails(1).says("HOST-FULL");
    host.shell("cat t/kept").ok().says("kept");
    let lost = host.shell("zpool export -f tank").ok();
    let words = "note: 'tank' was suspended, and the changes since its last commit (txg ";
    assert!(lost.err.starts_with(words) && lost.err.contains(" s ago)"), "{lost:?}");
    assert_eq!(lost.err.lines().count(), 1, "{lost:?}");
    host.shell("zpool events -v").ok().says("changes_lost").says("committed_ns");
    // Looking needs no room; the import that writes says what it lacks.
    host.shell("zpool import -o readonly=on -d $PWD/small/i.img tank; cat t/kept; zpool export tank").ok();
    // The import gives back what no commit names. Of writes that were collected there may be too
    // little: near the end each of them is committed by itself.
    let fill = "head -c 24M /dev/zero > small/rest || true";
    let imported = host.shell(&format!("{fill}; zpool import -d $PWD/small/i.img tank; zpool export tank"));
    if collects == "off" || imported.status == 0 {
        imported.ok();
    } else {
        imported.fails(1).says("HOST-FULL");
    }
    host.shell("rm small/rest; mount -o remount,size=200M small").ok();
    host.shell("zpool import -d $PWD/small/i.img tank; cat t/kept; zpool status -x").ok().says("healthy");
    host.shell("head -c 60M /dev/urandom > t/large; sync t/large; zpool export tank; umount small").ok();
}

/// An import that lacks room takes it from free slots, where commits that came to no root left
/// bytes.
#[test]
fn an_import_on_a_full_disk_gives_back_what_no_commit_names() {
    if !is_root() {
        return skip("full disk at an import", "only root mounts a small disk");
    }
    let Some(host) = host("full disk at an import") else { return };
    if host.shell("mkdir small; mount -t tmpfs -o size=24M small small").status != 0 {
        return skip("full disk at an import", "a tmpfs cannot be mounted here");
    }
    host.shell("truncate -s 128M small/i.img; zpool create -m $PWD/t tank $PWD/small/i.img").ok();
    host.shell("echo kept > t/kept; zpool export tank").ok();
    // Free slots are holes: the import that writes says what it lacks.
    let fill = "head -c 24M /dev/zero > small/rest || true";
    host.shell(&format!("{fill}; zpool import -d $PWD/small/i.img tank"))
        .fails(1)
        .says("No space left on device")
        .says("HOST-FULL");
    // Those at the end have the room, and not the first ones, which an import takes.
    let leave = "dd if=/dev/urandom of=small/i.img bs=1M seek=118 count=8 conv=notrunc";
    host.shell(&format!("rm small/rest; {leave}; {fill}")).ok();
    host.shell("zpool import -d $PWD/small/i.img tank; cat t/kept").ok().says("kept");
    host.shell("rm small/rest; zpool export tank; zpool import -d $PWD/small/i.img tank; cat t/kept").ok();
    host.shell("zpool export tank; umount small").ok();
}

/// Nothing is exported: the pool goes on once the host has room, by `zpool clear` or by itself.
#[test]
fn a_pool_on_a_full_disk_resumes_when_there_is_room() {
    if !is_root() {
        return skip("room again", "only root mounts a small disk");
    }
    let Some(host) = host("room again") else { return };
    if host.shell("mkdir small; mount -t tmpfs -o size=24M small small").status != 0 {
        return skip("room again", "a tmpfs cannot be mounted here");
    }
    host.shell(
        "truncate -s 256M small/i.img; zpool create -O compression=off -m $PWD/t tank $PWD/small/i.img",
    )
    .ok();
    host.shell("echo kept > t/kept; zpool sync").ok();
    host.shell("zpool set failmode=wait tank").ok();
    for (turn, (size, clear)) in [("80M", "zpool clear tank"), ("200M", "true")].into_iter().enumerate() {
        let (file, bytes) = (host.at(&format!("t/large{turn}")), random(60 << 20));
        std::thread::scope(|scope| {
            // It waits, and so does a caller of fsync.
            let writer = scope.spawn(|| {
                let mut file = std::fs::File::create(&file).expect("made");
                file.write_all(&bytes).and_then(|()| file.sync_all())
            });
            host.until("zpool status tank", |told| told.contains("SUSPENDED"));
            host.shell("zpool status tank").ok().says("HOST-FULL").says("No space left on device");
            host.shell("cat t/kept").ok().says("kept");
            host.shell("zpool sync").fails(1).says("HOST-FULL");
            host.shell("zpool clear tank").fails(1).says("HOST-FULL").says("zpool clear tank");
            if writer.is_finished() {
                panic!("it did not wait: {:?}", writer.join());
            }
            host.shell(&format!("mount -o remount,size={size} small; {clear}")).ok();
            writer.join().expect("no panic").expect("it only waited");
        });
        host.until("zpool status tank", |told| told.contains("state: ONLINE"));
        host.shell("zpool sync; zpool status -x").ok().says("healthy");
        assert!(std::fs::read(&file).expect("reads") == bytes, "nothing was lost");
    }
    host.shell("zpool scrub -w tank; zpool status tank").ok().says("repaired 0B");
    host.shell("zpool export tank; zpool import -d $PWD/small/i.img tank; cat t/kept").ok().says("kept");
    host.shell("zpool export tank").ok();
    host.run("inspect check {}/small/i.img").ok();
    host.shell("umount small").ok();
}

#[test]
fn an_image_that_is_cut_short_while_in_use_gives_errors_and_no_other_bytes() {
    let Some(host) = with_tank("cut short") else { return };
    let content = random(40 << 20);
    std::fs::write(host.at("t/large"), &content).expect("written");
    host.shell("zpool export tank; zpool import -d $PWD/tank.img tank").ok();
    let image = std::fs::OpenOptions::new().write(true).open(host.at("tank.img")).expect("the image");
    image.set_len(20 * MIB).expect("cut");
    drop(image);
    let file = std::fs::File::open(host.at("t/large")).expect("opens");
    let (mut good, mut bad) = (0, 0);
    let mut piece = vec![0; 1 << 20];
    for at in (0..content.len()).step_by(1 << 20) {
        match file.read_exact_at(&mut piece, at as u64) {
            Ok(()) => {
                assert!(piece == content[at..at + (1 << 20)], "other bytes at {at}");
                good += 1;
            }
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(5), "EIO at {at}");
                bad += 1;
            }
        }
    }
    drop(file);
    assert!(good > 0 && bad > 0, "{good} pieces read, {bad} did not");
    host.shell("zpool status -v tank").ok().says("t/large");
    // The pool answers, whatever it does; and the damaged image is refused or imported.
    let ran = host.shell("echo more > t/more; zpool sync");
    assert!(ran.status == 0 || ran.err.contains("Input/output error") || ran.err.contains("POOL-SUSPENDED"));
    host.shell("zpool export -f tank").ok();
    let ran = host.shell("zpool import -d $PWD/tank.img tank");
    assert!(ran.status == 0 || ran.err.contains("action:"), "{}", ran.err);
}

#[test]
fn an_image_that_is_removed_or_read_only_while_in_use_goes_on() {
    let Some(host) = with_tank("removed image") else { return };
    host.shell("chmod 0 tank.img; ln tank.img other.img; rm tank.img").ok();
    host.shell("head -c 5M /dev/urandom > t/more; sha256sum t/more > sum; zpool sync; zpool export tank")
        .ok();
    let ran = host.shell("zpool import -d $PWD/tank.img tank").fails(1);
    assert!(ran.says("POOL-NOT-FOUND").err.contains("tank.img"));
    host.shell("chmod 600 other.img; zpool import -d $PWD/other.img tank; sha256sum -c sum; cat t/file").ok();
}

#[test]
fn a_daemon_that_is_stopped_is_named_and_answers_when_it_goes_on() {
    let Some(host) = with_tank("stopped daemon") else { return };
    let pid = daemon(&host);
    host.exec("kill", &["-STOP", &pid], b"").ok();
    // Goes on once the command has said what it waits for.
    let line = format!(
        "steadfast pool list -H -o name 2> said & \
         until grep -q 'kill -CONT {pid}' said; do sleep 0.1; done; kill -CONT {pid}; wait $!"
    );
    let bin = steadfast_tests::steadfast_bin();
    let line = line.replacen("steadfast", &bin.display().to_string(), 1);
    assert_eq!(host.shell(&line).ok().out, "tank\n");
    // A write that meets a stopped daemon waits, too.
    let line = format!(
        "kill -STOP {pid}; (echo late > t/late; sync t/late) & sleep 0.3; kill -CONT {pid}; wait $!; cat t/late"
    );
    assert_eq!(host.shell(&line).ok().out, "late\n");
    assert_eq!(daemon(&host), pid, "the same daemon");
}

#[test]
fn a_daemon_killed_with_files_open_leaves_what_was_committed() {
    let Some(host) = with_tank("killed with open files") else { return };
    let mut open = std::fs::File::create(host.at("t/open")).expect("made");
    let committed = random(3 << 20);
    open.write_all(&committed).expect("written");
    open.sync_all().expect("committed");
    open.write_all(&random(1 << 20)).expect("written");
    let pid = daemon(&host);
    host.kill_daemon();
    let error = open.sync_all().expect_err("nobody is there");
    assert!(matches!(error.raw_os_error(), Some(103 | 107)), "ECONNABORTED or ENOTCONN, not {error}");
    // The next command brings all back, while the dead file is still open.
    host.shell("zpool status -x").ok().says("healthy");
    assert_ne!(daemon(&host), pid);
    assert!(open.write_all(b"x").is_err(), "an old handle stays dead");
    let found = std::fs::read(host.at("t/open")).expect("reads");
    assert!(found[..committed.len()] == committed, "what fsync promised");
    assert_eq!(std::fs::read_to_string(host.at("t/file")).expect("reads"), "kept\n");
    drop(open);
    host.shell("zpool export tank; zpool import -d $PWD/tank.img tank; cat t/file").ok();
}

/// Changes one bit of the image where it holds `content`.
fn flip(image: &Path, content: &[u8]) {
    let bytes = std::fs::read(image).expect("the image reads");
    let place = find(&bytes, &content[5_000..5_064]).expect("it lies in the image");
    let file = std::fs::OpenOptions::new().write(true).open(image).expect("the image opens");
    file.write_all_at(&[bytes[place] ^ 1], place as u64).expect("a bit is flipped");
}

#[test]
fn names_that_are_no_text_stay_within_their_line() {
    let Some(host) = with_tank("names") else { return };
    let names: [&[u8]; 4] = [b"two\nlines", b"\xff\xfe no text", b"\x1b[2Jclear", b"tab\tand \"quotes\" \\"];
    let content = random(64 << 10);
    for name in names {
        std::fs::write(host.at("t").join(OsStr::from_bytes(name)), &content).expect("any bytes name a file");
    }
    let listed: Vec<_> = std::fs::read_dir(host.at("t"))
        .expect("lists")
        .map(|entry| entry.expect("an entry").file_name().as_bytes().to_vec())
        .collect();
    for name in names {
        assert!(listed.iter().any(|found| found == name), "{}", name.escape_ascii());
    }
    // Only one of them is damaged at a time: each content lies in the image by itself.
    let hurt: Vec<Vec<u8>> = names.iter().map(|_| random(64 << 10)).collect();
    for (name, content) in names.iter().zip(&hurt) {
        std::fs::write(host.at("t").join(OsStr::from_bytes(name)), content).expect("written");
    }
    host.shell("zpool export tank").ok();
    hurt.iter().for_each(|content| flip(&host.at("tank.img"), content));
    host.shell("zpool import -d $PWD/tank.img tank").ok();
    for name in names {
        std::fs::read(host.at("t").join(OsStr::from_bytes(name))).expect_err("it is damaged");
    }
    let shown = ["two\\nlines", "\\xff\\xfe no text", "\\u{1b}[2Jclear", "tab\\tand \"quotes\" \\"];
    let status = host.shell("zpool status -v tank").ok().out;
    for name in shown {
        assert_eq!(status.lines().filter(|line| line.contains(name)).count(), 1, "{name} in\n{status}");
    }
    assert!(status.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')), "{status:?}");
    let check = "import json,sys; pools=json.load(sys.stdin)['pools']; print(len(pools['tank']['errlist']))";
    let json = host.shell(&format!("zpool status -v -j tank | python3 -c \"{check}\""));
    assert_eq!(json.ok().out.trim(), "4");
}

#[test]
fn a_daemon_short_of_descriptors_says_so_and_goes_on() {
    let Some(host) = host("descriptors") else { return };
    let mut mounted = 0;
    for limit in [5, 8, 11, 13, 14, 16, 20, 40] {
        let pool = format!("p{limit}");
        host.image(&format!("{pool}.img"), 64 * MIB);
        // Descriptors that the test runner left open would count, too.
        let alone = "for fd in $(ls /proc/$$/fd); do if [ $fd -gt 2 ]; then eval \"exec $fd>&-\"; fi; done";
        let create = format!("zpool create -m $PWD/{pool} {pool} $PWD/{pool}.img");
        let ran = host.shell(&format!("{alone}; ulimit -n {limit}; {create}"));
        if ran.status != 0 {
            assert!(ran.err.contains("action:") && !ran.err.contains("panicked"), "{limit}: {}", ran.err);
        } else {
            mounted += 1;
        }
        // Files are served by the descriptors there are.
        if host.shell(&format!("grep -q ' '$PWD/{pool}' ' /proc/self/mounts")).status == 0 {
            host.shell(&format!(
                "for i in 1 2 3 4 5 6 7 8; do exec {{fd}}> {pool}/f$i; done; echo x > {pool}/g"
            ))
            .ok();
        }
        // It may be refused, but never half done: what is not exported is still served.
        let ran = host.shell(&format!("zpool export {pool}"));
        if ran.err.starts_with("cannot export") && ran.err.contains("Too many open files") {
            host.shell(&format!("zpool list -H -o name | grep -q {pool}")).ok();
        }
        let pid = host.run("daemon pid");
        if pid.status == 0 {
            host.exec("kill", &[pid.out.trim()], b"").ok();
            host.shell(&format!("while test -e /proc/{}; do sleep 0.05; done", pid.out.trim())).ok();
        }
        assert!(
            !std::fs::read_to_string("/proc/self/mounts")
                .expect("a table")
                .contains(&host.at(&pool).display().to_string()),
            "{limit}: a signal ends the daemon in order, whatever the limit"
        );
    }
    assert!(mounted >= 2, "some limits are large enough");
    host.shell("zpool list -H -o name; zpool status -x").ok();
}

#[test]
fn a_daemon_that_a_command_starts_holds_nothing_its_caller_has_open() {
    let Some(host) = host("inherited descriptors") else { return };
    host.image("tank.img", 64 * MIB);
    // A file, a lock, and a pipe whose reader waits for the last writer to end.
    let line = "exec 7> held 8> lock; flock -n 8; mkfifo pipe; cat pipe > read & exec 9> pipe; \
                zpool create -m $PWD/t tank $PWD/tank.img; exec 7>&- 8>&- 9>&-; wait";
    host.shell(line).ok();
    host.shell("flock -n lock true").ok();
    let pid = host.run("daemon pid").ok().out.trim().to_owned();
    let open = host.shell(&format!("readlink /proc/{pid}/fd/*")).out;
    assert!(open.contains("tank.img"), "what the daemon itself opened is seen: {open}");
    for name in ["held", "lock", "pipe"] {
        let path = host.at(name).display().to_string();
        assert!(!open.lines().any(|line| line == path), "{name} is open in the daemon:\n{open}");
    }
}

#[test]
fn a_namespace_that_took_a_copy_of_the_mount_along_holds_no_export_up() {
    let Some(host) = with_tank("copies of the mount") else { return };
    let line = "unshare --mount --propagation private sh -c 'cat t/file; ls t; : > ready; exec sleep 1000' & \
                echo $! > pid; until test -e ready || ! kill -0 $!; do sleep 0.05; done; test -e ready";
    let apart = host.shell(&format!("({line}) > /dev/null 2>&1"));
    if apart.status == 0 {
        host.shell("ls t; zpool export tank; zpool import -d $PWD/tank.img tank; cat t/file")
            .ok()
            .says("kept");
        host.shell("kill $(cat pid)").ok();
    } else {
        skip("copies of the mount", "`unshare --mount` is not allowed here");
    }
}

#[test]
fn symbolic_links_in_a_circle_end() {
    let Some(host) = with_tank("circle of links") else { return };
    host.shell("ln -s b t/a; ln -s a t/b; ln -s self t/self; ln -s . t/here; mkdir t/d; ln -s ../d t/d/up")
        .ok();
    for name in ["t/a", "t/self", "t/self/x"] {
        let error = std::fs::read(host.at(name)).expect_err("it leads nowhere");
        assert_eq!(error.raw_os_error(), Some(40), "ELOOP for {name}");
    }
    let deep = "t/".to_owned() + &"here/".repeat(30) + "file";
    assert_eq!(std::fs::read_to_string(host.at(&deep)).expect("thirty links lead on"), "kept\n");
    let deeper = "t/".to_owned() + &"here/".repeat(41) + "file";
    assert_eq!(std::fs::read(host.at(&deeper)).expect_err("too many").raw_os_error(), Some(40));
    host.shell("cat t/d/up/up/up/../file; test $(find -L t 2>/dev/null | wc -l) -lt 1000").ok().says("kept");
}
