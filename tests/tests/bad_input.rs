//! Bad input: each ends in one clear sentence that says what to do, a non-zero exit status, and
//! nothing lost or changed.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use steadfast_tests::{Host, Ran};

const MIB: u64 = 1 << 20;

/// A host with an imported pool `tank` at `t/` that holds a stored file.
fn with_file(test: &str) -> Option<Host> {
    let host = Host::with_tank(test)?;
    host.shell("echo kept > t/file; zpool sync").ok();
    Some(host)
}

/// The command was refused with this code, in words and with advice.
#[track_caller]
fn refused(ran: Ran, code: &str) -> Ran {
    let ran = in_words(ran, 1);
    let lines: Vec<&str> = ran.err.lines().collect();
    let at = lines.iter().position(|line| line.starts_with("  meaning: "));
    let at = at.unwrap_or_else(|| panic!("{} does not say what it means:\n{}", ran.words, ran.err));
    assert_eq!(at, 1, "one sentence says what is wrong: {}", ran.err);
    assert!(lines[at + 1].starts_with("  action:  "), "{}", ran.err);
    assert!(lines[at + 1].ends_with(&format!("{code}.")), "{} is not {code}:\n{}", ran.words, ran.err);
    ran
}

/// The command failed with this status and spoke to a person.
#[track_caller]
fn in_words(ran: Ran, status: i32) -> Ran {
    let ran = ran.fails(status);
    for slip in ["panicked", "RUST_BACKTRACE", "Some(", "None)", "Err(", "Error {", "PathBuf", "::"] {
        assert!(!ran.err.contains(slip), "{} prints {slip:?}:\n{}", ran.words, ran.err);
    }
    ran
}

/// The pool that was there before still is, and works: for reading, for writing, and for being
/// imported anew.
#[track_caller]
fn tank_is_whole(host: &Host) {
    assert_eq!(std::fs::read_to_string(host.at("t/file")).expect("the file reads"), "kept\n");
    std::fs::write(host.at("t/more"), "more").expect("the pool takes writes");
    let image = host.at("tank.img");
    host.shell("zpool export tank; zpool import -d $PWD/tank.img tank; rm t/more").ok();
    assert!(image.exists());
    assert_eq!(std::fs::read_to_string(host.at("t/file")).expect("the file reads"), "kept\n");
    host.shell("zpool status -x").ok().says("all pools are healthy");
}

/// Bytes without meaning, the same in every run (Vigna's SplitMix64): a test of what is said about
/// the first line of them must not meet, once in a hundred runs, a first line that is empty or a
/// comment.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed;
    let mut word = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)).to_le_bytes()
    };
    let mut out = Vec::with_capacity(bytes + 7);
    while out.len() < bytes {
        out.extend(word());
    }
    out.truncate(bytes);
    out
}

fn bytes_of(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("an image reads")
}

#[test]
fn a_wrong_passphrase_opens_nothing() {
    let Some(host) = with_file("wrong passphrase") else { return };
    let new = "zfs create -o encryption=on -o keyformat=passphrase tank/secret";
    host.shell(&format!("echo 12345678 | {new}; echo s > t/secret/file; zfs unmount tank/secret")).ok();
    host.shell("zfs unload-key tank/secret").ok();
    refused(host.shell("echo 87654321 | zfs load-key tank/secret"), "KEY-WRONG");
    refused(host.shell("echo short | zfs load-key tank/secret"), "KEY-FORMAT");
    refused(host.shell("zfs load-key tank/secret < /dev/null"), "KEY-FORMAT");
    refused(host.shell("zfs mount tank/secret"), "KEY-NEEDED");
    host.shell("zfs get -H -o value keystatus tank/secret").ok().says("unavailable");
    host.shell("echo 12345678 | zfs load-key tank/secret; zfs mount tank/secret; cat t/secret/file").ok();
    refused(host.shell("echo 12345678 | zfs load-key tank/secret"), "KEY-LOADED");
    refused(host.shell("zfs unload-key tank/secret"), "KEY-BUSY");
    refused(host.shell("echo 12345678 | zfs load-key tank"), "KEY-NONE");
    host.shell("zfs destroy tank/secret").ok();
    tank_is_whole(&host);
}

#[test]
fn keys_that_do_not_fit_together_create_nothing() {
    let Some(host) = with_file("key rules") else { return };
    for (options, code) in [
        ("-o encryption=on", "KEY-RULES"),
        ("-o keyformat=passphrase", "KEY-RULES"),
        ("-o keylocation=prompt", "KEY-RULES"),
        ("-o encryption=off -o keyformat=passphrase", "KEY-RULES"),
        ("-o encryption=rot13 -o keyformat=passphrase", "PROP-VALUE"),
        ("-o encryption=on -o keyformat=rot13", "PROP-VALUE"),
        ("-o encryption=on -o keyformat=hex", "KEY-FORMAT"),
        ("-o encryption=on -o keyformat=raw", "KEY-FORMAT"),
        ("-o encryption=on -o keyformat=passphrase -o keylocation=file:///not/there", "KEY-SOURCE"),
        ("-o encryption=on -o keyformat=passphrase -o keylocation=file://relative", "KEY-SOURCE"),
        ("-o encryption=on -o keyformat=passphrase -o keylocation=somewhere", "KEY-SOURCE"),
    ] {
        refused(host.shell(&format!("echo 12345678 | zfs create {options} tank/new")), code);
    }
    let seven = "echo 1234567 | zfs create -o encryption=on -o keyformat=passphrase tank/new";
    refused(host.shell(seven), "KEY-FORMAT").says("8 to 512").says("not 7");
    assert_eq!(host.shell("zfs list -H -o name").ok().out, "tank\n");
    tank_is_whole(&host);
}

#[test]
fn a_device_that_is_missing_or_another_pools_is_named() {
    let Some(host) = with_file("missing device") else { return };
    host.image("1.img", 128 * MIB);
    host.image("2.img", 128 * MIB);
    host.shell("zpool create -m $PWD/p two $PWD/1.img $PWD/2.img; echo both > p/file").ok();
    host.shell("head -c 9M /dev/urandom > p/large; sha256sum p/large > sum; zpool export two").ok();
    let second = bytes_of(&host.at("2.img"));
    let attempt = |contents: Option<&[u8]>, code: &str| {
        std::fs::create_dir(host.at("d")).expect("a folder");
        host.shell("cp --sparse=always 1.img d/1.img").ok();
        if let Some(contents) = contents {
            std::fs::write(host.at("d/2.img"), contents).expect("an image");
        }
        let before = bytes_of(&host.at("d/1.img"));
        refused(host.shell("zpool import -d $PWD/d two"), code).says("2.img");
        assert!(before == bytes_of(&host.at("d/1.img")), "a refused import writes nothing");
        host.shell("rm -r d").ok();
    };
    attempt(None, "POOL-DEVICES");
    attempt(Some(&bytes_of(&host.at("tank.img"))), "POOL-DEVICES");
    attempt(Some(&vec![0; second.len()]), "POOL-DEVICES");
    attempt(Some(&noise(1, second.len())), "POOL-DEVICES");
    attempt(Some(&second[..second.len() / 2]), "POOL-DAMAGED");
    attempt(Some(&second[..1000]), "POOL-DEVICES");
    host.shell("zpool import -d $PWD/1.img -d $PWD/2.img two; sha256sum -c sum; zpool destroy two").ok();
    tank_is_whole(&host);
}

#[test]
fn images_that_hold_no_pool_are_refused_by_name() {
    let Some(host) = with_file("images without a pool") else { return };
    host.image("zeros.img", 128 * MIB);
    std::fs::write(host.at("random.img"), noise(2, 128 << 20)).expect("an image");
    std::fs::write(host.at("small.img"), noise(3, 5000)).expect("an image");
    host.image("empty.img", 0);
    for image in ["zeros", "random", "small", "empty"] {
        for pool in ["", "some"] {
            let ran = host.shell(&format!("zpool import -d $PWD/{image}.img {pool}"));
            refused(ran, "POOL-DAMAGED").says(&format!("{image}.img"));
        }
    }
    refused(host.shell("zpool import -d $PWD/none some"), "POOL-NOT-FOUND").says("none");
    refused(host.shell("zpool import -d $PWD/t some"), "POOL-NOT-FOUND");
    // Half written: everything after the first labels is gone.
    host.image("half.img", 128 * MIB);
    host.shell("zpool create -m $PWD/h half $PWD/half.img; head -c 9M /dev/urandom > h/x; zpool export half")
        .ok();
    let whole = bytes_of(&host.at("half.img"));
    let mut half = whole.clone();
    half[1 << 20..].fill(0);
    std::fs::write(host.at("half.img"), &half).expect("an image");
    refused(host.shell("zpool import -d $PWD/half.img half"), "POOL-DAMAGED");
    assert!(bytes_of(&host.at("half.img")) == half, "a refused import writes nothing");
    std::fs::write(host.at("half.img"), &whole[..100 << 20]).expect("an image");
    refused(host.shell("zpool import -d $PWD/half.img half"), "POOL-DAMAGED").says("cut short");
    std::fs::write(host.at("half.img"), &whole).expect("an image");
    host.shell("zpool import -d $PWD/half.img half; zpool destroy half").ok();
    tank_is_whole(&host);
}

#[test]
fn a_copy_of_an_image_beside_it_does_not_take_the_pool_back() {
    let Some(host) = with_file("copy of an image") else { return };
    host.shell("zpool export tank; cp --sparse=always tank.img a-copy.img").ok();
    host.shell("zpool import -d $PWD/tank.img tank; echo later > t/later; zpool export tank").ok();
    host.shell("zpool import -d $PWD tank; cat t/later; zpool status tank").ok().says("tank.img");
    tank_is_whole(&host);
}

#[test]
fn a_pool_is_imported_and_created_once() {
    let Some(host) = with_file("imported already") else { return };
    host.image("b.img", 128 * MIB);
    refused(host.shell("zpool import -d $PWD tank"), "POOL-IMPORTED");
    refused(host.shell("zpool create -m $PWD/b tank $PWD/b.img"), "POOL-EXISTS");
    refused(host.shell("zpool create -m $PWD/b other $PWD/tank.img"), "VDEV-IN-USE").says("tank");
    refused(host.shell("zpool create -f -m $PWD/b other $PWD/tank.img"), "VDEV-IN-USE");
    refused(host.shell("zpool create -m $PWD/b other $PWD/b.img $PWD/b.img"), "VDEV-TWICE");
    host.shell("ln -s b.img link.img; ln b.img hard.img").ok();
    refused(host.shell("zpool create -m $PWD/b other $PWD/b.img $PWD/link.img"), "VDEV-TWICE");
    refused(host.shell("zpool create -m $PWD/b other $PWD/b.img $PWD/hard.img"), "VDEV-TWICE");
    refused(host.shell("zpool create -m $PWD/b other $PWD/none.img"), "VDEV-MISSING");
    refused(host.shell("zpool create -m $PWD/b other $PWD/t"), "VDEV-KIND");
    host.image("small.img", MIB);
    refused(host.shell("zpool create -m $PWD/b other $PWD/small.img"), "VDEV-SMALL").says("64 MiB");
    assert!(bytes_of(&host.at("b.img")).iter().all(|&byte| byte == 0), "nothing was written");
    host.shell("zpool create -m $PWD/b other $PWD/b.img; zpool export other").ok();
    let before = bytes_of(&host.at("b.img"));
    refused(host.shell("zpool create -m $PWD/b new $PWD/b.img"), "VDEV-FOREIGN").says("other").says("-f");
    assert!(before == bytes_of(&host.at("b.img")), "the exported pool is as it was");
    host.shell("zpool create -f -m $PWD/b new $PWD/b.img; zpool destroy new").ok();
    for word in ["destroy", "export", "status", "list", "history", "sync", "import"] {
        let ran = host.shell(&format!("zpool {word} nosuch"));
        refused(ran, if word == "import" { "POOL-NOT-FOUND" } else { "POOL-ABSENT" });
    }
    assert_eq!(host.shell("zpool list -H -o name").ok().out, "tank\n");
    tank_is_whole(&host);
}

#[test]
fn a_mountpoint_that_is_not_empty_is_not_covered() {
    let Some(host) = with_file("mountpoint") else { return };
    host.image("b.img", 128 * MIB);
    host.shell("mkdir full; echo mine > full/file; echo x > plain").ok();
    refused(host.shell("zpool create -m $PWD/full other $PWD/b.img"), "FS-MOUNTPOINT").says("not empty");
    refused(host.shell("zpool create -m $PWD/plain other $PWD/b.img"), "FS-MOUNTPOINT");
    refused(host.shell("zpool create -m $PWD/t other $PWD/b.img"), "FS-MOUNTPOINT");
    assert!(bytes_of(&host.at("b.img")).iter().all(|&byte| byte == 0), "no pool was made");
    refused(host.shell("zfs set overlay=off tank; zfs set mountpoint=$PWD/full tank"), "FS-MOUNTPOINT");
    refused(host.shell("zfs set mountpoint=relative tank"), "PROP-VALUE");
    assert_eq!(std::fs::read_to_string(host.at("full/file")).expect("reads"), "mine\n");
    tank_is_whole(&host);
}

#[test]
fn unknown_properties_values_and_names_change_nothing() {
    let Some(host) = with_file("words") else { return };
    host.image("b.img", 128 * MIB);
    refused(host.shell("zfs set compressio=lz4 tank"), "PROP-UNKNOWN").says("'compression'");
    refused(host.shell("zfs set compression=lz5 tank"), "PROP-VALUE").says("lz4");
    refused(host.shell("zfs set recordsize=5 tank"), "PROP-VALUE");
    refused(host.shell("zfs set used=5 tank"), "PROP-READONLY");
    refused(host.shell("zfs set encryption=off tank"), "PROP-CREATION");
    refused(host.shell("zpool set size=5 tank"), "PROP-READONLY");
    refused(host.shell("zpool set nosuch=5 tank"), "PROP-UNKNOWN");
    refused(host.shell("zpool create -o nosuch=1 -m $PWD/b other $PWD/b.img"), "PROP-UNKNOWN");
    refused(host.shell("zpool create -O atime=maybe -m $PWD/b other $PWD/b.img"), "PROP-VALUE");
    in_words(host.shell("zfs get nosuch tank"), 2);
    in_words(host.shell("zfs set compression tank"), 2);
    let long = "x".repeat(300);
    for name in ["1tank", "mirror", "log", "ta/nk", "tank@x", ".x", "", "é", &long] {
        let ran = host.shell(&format!("zpool create -m $PWD/b '{name}' $PWD/b.img"));
        refused(ran, "NAME-INVALID");
    }
    for name in ["tank/", "tank//x", "/x", "tank/..", "tank/é", "tank/x@y", &format!("tank/{long}")] {
        refused(host.shell(&format!("zfs create '{name}'")), "NAME-INVALID");
    }
    refused(host.shell("zfs create nosuch/x"), "FS-ABSENT").says("no pool 'nosuch'");
    refused(host.shell("zfs create tank/a/b"), "FS-PARENT");
    refused(host.shell("zfs create tank"), "FS-EXISTS");
    assert!(bytes_of(&host.at("b.img")).iter().all(|&byte| byte == 0), "no pool was made");
    assert_eq!(host.shell("zfs list -H -o name").ok().out, "tank\n");
    tank_is_whole(&host);
}

#[test]
fn commands_and_options_that_do_not_exist_exit_with_2() {
    let host = Host::new();
    for line in
        ["", "frob", "pool", "pool frob", "fs frob", "pool list -Z", "pool list --warp", "pool create"]
    {
        in_words(host.run(line), 2).says("usage:");
    }
    refused(host.run("pool attach tank a b"), "POOL-ABSENT");
    refused(host.run("pool checkpoint tank"), "POOL-ABSENT");
    refused(host.run("pool split tank two"), "POOL-ABSENT");
    refused(host.run("pool scrub tank"), "POOL-ABSENT");
    refused(host.run("fs redact tank@x book tank@y"), "LATER");
    refused(host.run("fs clone tank@x tank/y"), "POOL-ABSENT");
}

#[test]
fn a_parameter_file_with_a_typo_is_told_by_file_line_and_word() {
    let host = Host::new();
    let good = "fsd=fsd1,anchor=ANCHOR,depth=1,width=1,files=4,size=4k\n\
                fwd=fwd1,fsd=fsd1,operation=read,xfersize=4k,threads=1\n\
                rd=run1,fwd=fwd1,fwdrate=max,format=yes,elapsed=2,interval=1\n";
    let anchor = host.at("anchor").display().to_string();
    let bench = |text: &str| {
        std::fs::write(host.at("p.parm"), text.replace("ANCHOR", &anchor)).expect("a file");
        host.run("bench -f p.parm -o {}/out")
    };
    for (from, to, line, word) in [
        ("threads", "thraeds", 2, "thraeds"),
        ("size=4k\n", "size=4q\n", 1, "4q"),
        ("fsd=fsd1,op", "fsd=nope,op", 2, "nope"),
        ("elapsed=2", "elapsed=1", 3, "elapsed=1"),
        ("operation=read", "operation=raed", 2, "raed"),
    ] {
        let ran = in_words(bench(&good.replace(from, to)), 157);
        assert!(ran.err.contains(&format!("p.parm:{line}:")), "{}", ran.err);
        assert!(ran.err.contains(word), "{}", ran.err);
        assert!(!host.at("anchor").exists(), "nothing was made");
    }
    std::fs::write(host.at("p.parm"), noise(4, 3000)).expect("a file");
    in_words(host.run("bench -f p.parm"), 157).says("p.parm:1:");
    in_words(host.run("bench -f none.parm"), 157).says("none.parm");
    in_words(bench(&good.replace("ANCHOR", "ANCHOR/is/not/there")), 157).says("create its parent directory");
    assert!(!host.at("anchor").exists(), "nothing was made");
}

#[test]
fn a_format_phase_without_space_says_so_and_the_pool_stays_usable() {
    let Some(host) = with_file("format without space") else { return };
    let parm = "fsd=fsd1,anchor=ANCHOR,depth=1,width=1,files=100,size=4m\n\
                fwd=fwd1,fsd=fsd1,operation=read,xfersize=128k,threads=2\n\
                rd=run1,fwd=fwd1,fwdrate=max,format=yes,elapsed=2,interval=1\n";
    let anchor = host.at("t/bench").display().to_string();
    std::fs::write(host.at("p.parm"), parm.replace("ANCHOR", &anchor)).expect("a file");
    let ran = in_words(host.run("bench -f p.parm -o {}/out"), 157);
    // The last straw is a write, or the open of one file more: either sentence says what is missing
    // and what to do.
    assert!(ran.err.contains("No space") && ran.err.contains("room"), "{}", ran.err);
    host.shell("rm -r t/bench; zpool sync").ok();
    tank_is_whole(&host);
}

#[test]
fn what_is_in_use_is_neither_unmounted_nor_destroyed() {
    let Some(host) = with_file("in use") else { return };
    host.shell("zfs create tank/child; echo c > t/child/file").ok();
    let open = std::fs::File::options().append(true).open(host.at("t/file")).expect("opens");
    for line in ["zpool export tank", "zpool destroy tank", "zfs unmount tank"] {
        let code = if line.starts_with("zpool") { "POOL-BUSY" } else { "FS-BUSY" };
        let mountpoint = host.at("t").display().to_string();
        refused(host.shell(line), code).says(&format!("fuser -vm {mountpoint}`"));
        assert_eq!(std::fs::read_to_string(host.at("t/child/file")).expect("mounted again"), "c\n");
    }
    refused(host.shell("zfs destroy tank"), "FS-ROOT");
    let child = std::fs::File::open(host.at("t/child/file")).expect("opens");
    refused(host.shell("zfs destroy tank/child"), "FS-BUSY");
    drop((open, child));
    host.shell("zfs destroy tank/child").ok();
    assert!(!host.at("t/child").exists(), "the mountpoint goes with the file system");
    tank_is_whole(&host);
}

#[test]
fn a_sealed_pool_needs_its_key() {
    let Some(host) = with_file("sealed pool") else { return };
    host.image("s.img", 128 * MIB);
    let options = "-O encryption=on -O keyformat=passphrase -m $PWD/s";
    host.shell(&format!("echo 12345678 | zpool create {options} sealed $PWD/s.img; echo s > s/f")).ok();
    host.shell("zpool export sealed").ok();
    let before = bytes_of(&host.at("s.img"));
    refused(host.shell("zpool import -d $PWD sealed < /dev/null"), "POOL-SEALED").says("import -l");
    refused(host.shell("echo wrong-passphrase | zpool import -l -d $PWD sealed"), "KEY-WRONG");
    refused(host.shell("echo short | zpool import -l -d $PWD sealed"), "KEY-FORMAT");
    assert!(before == bytes_of(&host.at("s.img")), "a refused import writes nothing");
    host.shell("echo 12345678 | zpool import -l -d $PWD sealed; cat s/f; zpool destroy sealed").ok();
    tank_is_whole(&host);
}

#[test]
fn a_read_only_import_writes_nothing() {
    let Some(host) = with_file("read-only import") else { return };
    host.shell("zfs create tank/child; echo c > t/child/file; zpool export tank").ok();
    let before = bytes_of(&host.at("tank.img"));
    let ran = host.shell("zpool import -o readonly=on -d $PWD tank").ok();
    assert!(ran.err.is_empty(), "{}", ran.err);
    host.shell("cat t/file t/child/file").ok().says("kept");
    let error = std::fs::write(host.at("t/new"), "x").expect_err("read-only");
    assert_eq!(error.raw_os_error(), Some(30), "EROFS");
    for line in ["zfs set compression=off tank", "zfs create tank/new", "zpool set comment=x tank"] {
        refused(host.shell(line), "POOL-READONLY");
    }
    refused(host.shell("zfs destroy tank/child"), "POOL-READONLY");
    refused(host.shell("zpool clear tank"), "POOL-READONLY");
    host.shell("cat t/child/file; zpool sync").ok();
    // As in ZFS it lets go of the pool.
    let ran = host.shell("zpool destroy tank").ok();
    assert!(ran.err.contains("its devices are as they were"), "{}", ran.err);
    assert!(before == bytes_of(&host.at("tank.img")), "not a byte was written");
    host.shell("zpool import -d $PWD tank").ok();
    tank_is_whole(&host);
}

#[test]
fn a_pool_comes_in_under_a_new_name_that_is_allowed_and_free() {
    let Some(host) = with_file("new name") else { return };
    host.image("b.img", 128 * MIB);
    host.shell("zpool create -m $PWD/b other $PWD/b.img; zpool export other").ok();
    refused(host.shell("zpool import -d $PWD other 1bad"), "NAME-INVALID");
    refused(host.shell("zpool import -d $PWD other a/b"), "NAME-INVALID");
    refused(host.shell("zpool import -d $PWD other tank"), "POOL-EXISTS");
    host.shell("zpool import -d $PWD other new; zfs list new; zpool destroy new").ok();
    tank_is_whole(&host);
}

#[test]
fn noise_on_the_socket_is_answered_or_dropped_and_the_daemon_lives() {
    let Some(host) = with_file("noise on the socket") else { return };
    let pid = host.run("daemon pid").ok().out;
    let mut noises: Vec<Vec<u8>> =
        vec![b"[".repeat(100_000), b"\n".repeat(1000), b"x".repeat(8 << 20), vec![]];
    noises.extend((0..40).map(|n| noise(n, 1 << (n % 16))));
    noises.push(br#"{"version":2,"id":1,"command":"x","call":{"PoolList":{"names":[3]}}}"#.to_vec());
    noises.push(br#"{"version":4294967295,"id":1}"#.to_vec());
    for mut bytes in noises {
        bytes.push(b'\n');
        let mut socket = UnixStream::connect(host.at("run/daemon.sock")).expect("the daemon listens");
        socket.set_read_timeout(Some(Duration::from_secs(300))).expect("a timeout");
        let _ = socket.write_all(&bytes); // it may hang up before all is said
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        if let Err(error) = socket.read_to_end(&mut answer) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "neither answered nor dropped");
        }
        let text = String::from_utf8(answer).expect("answers are text");
        for line in text.lines() {
            assert!(line.contains(r#""refused":{"code":"API-"#), "{line}");
        }
    }
    assert_eq!(host.run("daemon pid").ok().out, pid, "the same daemon");
    tank_is_whole(&host);
}

#[test]
fn after_a_killed_daemon_the_next_commands_find_everything_committed() {
    let Some(host) = with_file("killed daemon") else { return };
    host.shell("zfs create tank/child; echo c > t/child/file; sync t/child/file").ok();
    let pid = host.run("daemon pid").ok().out.trim().to_owned();
    host.kill_daemon();
    let error = std::fs::read_to_string(host.at("t/file")).expect_err("nobody serves the mount");
    assert!(matches!(error.raw_os_error(), Some(103 | 107)), "ECONNABORTED or ENOTCONN, not {error}");
    // All at once: one of them starts the daemon, and all are answered by it.
    let lines = ["pool list -H -o name", "fs list -H -o name tank", "pool status", "pool sync"];
    let answers: Vec<Ran> = std::thread::scope(|scope| {
        let running: Vec<_> = lines.iter().map(|line| scope.spawn(|| host.run(line))).collect();
        running.into_iter().map(|thread| thread.join().expect("it ran")).collect()
    });
    for ran in answers {
        ran.ok();
    }
    assert_ne!(host.run("daemon pid").ok().out.trim(), pid);
    assert_eq!(std::fs::read_to_string(host.at("t/child/file")).expect("mounted again"), "c\n");
    tank_is_whole(&host);
    in_words(host.run("daemon run"), 3).says("already running");
}
