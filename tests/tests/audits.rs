//! The page "Audits", typed as it stands there: a store loses objects, and they come back.

use steadfast_tests::{Host, is_root, no_fuse, skip, steadfast_bin};

/// Lines of the commands at the head of the page, or of its section on files and disks.
fn commands(section: &str) -> Vec<&'static str> {
    let page = include_str!("../../docs/operations/audit.md");
    let (_, page) = page.split_once(section).expect("a section");
    let (_, rest) = page.split_once("```\n").expect("commands");
    rest.split_once("\n```").expect("they end").0.lines().collect()
}

#[test]
fn the_commands_of_the_page_can_be_typed() {
    if let Some(why) = no_fuse() {
        return skip("the page Audits", &why);
    }
    let host = Host::new();
    let _agent = Agent(host.at("agent.pid"));
    host.shell(&format!("mkdir bin; ln -s {} bin/steadfast", steadfast_bin().display())).ok();
    let before = "export HOME=$PWD PATH=$PWD/bin:$PATH\n";
    let mut said = Vec::new();
    for command in commands("# Audits\n") {
        let ran = host.shell(&format!("{before}{command}")).ok();
        if command.starts_with("zpool add") {
            // Content that was there before comes in by and by.
            host.until("zpool status tank", |told| told.contains("all covered"));
        }
        said.push((command, format!("{}{}", ran.out, ran.err)));
    }
    let of = |word: &str| -> Vec<&String> {
        said.iter().filter(|(command, _)| command.contains(word)).map(|(_, said)| said).collect()
    };
    let audits = of("audit tank");
    assert_eq!(audits.len(), 3, "{said:?}");
    for held in [audits[0], audits[2]] {
        assert!(held.contains("challenges") && held.contains(": held") && held.contains("2^40"), "{held}");
        assert!(held.contains("of all that the pool stores ("), "{held}");
    }
    assert!(audits[1].contains("not held") && audits[1].contains("AUDIT-FAILED"), "{}", audits[1]);
    let added = of("audit -r")[0];
    // The schedule may have asked once, too.
    assert!(added.contains(" records added, the newest is record ") && added.contains(", key "), "{added}");
    let verified = of("audit verify")[0];
    assert!(
        verified.contains(" records of pool tank, 1 to ") && verified.contains(" not held"),
        "{verified}"
    );
    let by_agent = of("audit -a")[0];
    assert!(by_agent.contains("sum of 2,759 challenges") && by_agent.contains("2^40"), "{by_agent}");
    let recovered = of("audit recover")[0];
    assert!(recovered.contains("objects put back: 2"), "{recovered}");
    assert!(
        recovered.contains(" live blocks in them, ") && recovered.contains(": each has its hash"),
        "{recovered}"
    );
    let rekeyed = of("audit rekey")[0];
    assert!(rekeyed.contains("the code was made anew under another map in "), "{rekeyed}");
    an_auditor_finds_changes(&host, before);
}

/// The section on files and disks, typed as it stands there: one image of three is spoilt.
#[test]
fn the_commands_on_files_and_disks_can_be_typed() {
    if let Some(why) = no_fuse() {
        return skip("the page Audits, files and disks", &why);
    }
    let host = Host::new();
    host.shell(&format!("mkdir bin; ln -s {} bin/steadfast", steadfast_bin().display())).ok();
    let before = "export HOME=$PWD PATH=$PWD/bin:$PATH\n";
    let mut said = Vec::new();
    for command in commands("## Files and disks\n") {
        let ran = host.shell(&format!("{before}{command}")).ok();
        said.push((command, format!("{}{}", ran.out, ran.err)));
    }
    let of = |word: &str| -> Vec<&String> {
        said.iter().filter(|(command, _)| command.contains(word)).map(|(_, said)| said).collect()
    };
    let audits = of("steadfast audit disks");
    assert_eq!(audits.len(), 3, "{said:?}");
    for held in [audits[0], audits[2]] {
        assert_eq!(held.matches("2,759 samples of ").count(), 3, "{held}");
        assert_eq!(held.matches(" cells: held\n").count(), 3, "{held}");
        let sure = " % of the bytes are bad is found out so but for one case in 2^40.0\n";
        assert!(held.contains(", a device of which 1") && held.contains(sure), "{held}");
    }
    let wrong = audits[1];
    assert!(wrong.contains(" not held\n") && wrong.matches(": held\n").count() == 2, "{wrong}");
    assert!(wrong.contains("    segment ") && wrong.contains(", offset "), "{wrong}");
    assert!(wrong.contains("other bytes than were written; put right\n"), "{wrong}");
    assert!(wrong.contains("zpool scrub disks") && wrong.contains("AUDIT-WRONG"), "{wrong}");
    let status = of("zpool status disks").pop().expect("told");
    assert!(status.contains(" audit: 8277 samples held ") && !status.contains("AUDIT-WRONG"), "{status}");
    host.shell("zpool destroy disks").ok();
}

/// On a disk that stands alone nothing gives bytes back: the file is named, with -f its range. A
/// sealed pool leaves records, and lacks nothing for want of a key of a file system.
#[test]
fn a_bad_place_of_a_single_file_names_what_lay_there() {
    if let Some(why) = no_fuse() {
        return skip("audits of a single file", &why);
    }
    let host = Host::new();
    let steadfast = steadfast_bin();
    let audit = |words: &str| host.shell(&format!("{} audit {words}", steadfast.display()));
    host.shell("truncate -s 256M one.img; head -c 32 /dev/urandom > key").ok();
    let sealed = "-O encryption=on -O keyformat=raw -O keylocation=file://$PWD/key";
    host.shell(&format!("zpool create {sealed} -m $PWD/t tank $PWD/one.img")).ok();
    host.shell("head -c 40M /dev/urandom > t/noise; zpool sync tank").ok();
    audit("-r one.record tank").ok().says(": held").says("the newest is record 1, key ");
    audit("verify one.record").ok().says("each sample of each audit was held");
    audit("recover tank").fails(1).says("PARITY-NONE");
    let json = audit("-j -n 100 tank").ok();
    let json: serde_json::Value = serde_json::from_str(&json.out).expect("a document");
    assert_eq!((json["kind"].as_str(), json["held"].as_bool()), (Some("devices"), Some(true)), "{json}");
    assert_eq!((json["missing_ppm"].as_u64(), json["loss_ppm"].as_u64()), (Some(10_000), None), "{json}");
    let (stored, covered) = (json["stored_bytes"].as_u64(), json["covered_bytes"].as_u64());
    assert!(covered > Some(36 << 20) && covered <= stored, "{json}");

    host.shell("zpool export tank; dd if=/dev/urandom of=one.img bs=1M seek=16 count=8 conv=notrunc").ok();
    host.shell("zpool import -l -d $PWD tank").ok();
    let ran = audit("-f tank || test $? = 1").ok();
    ran.says("nothing is there to put it right from").says("t/noise (bytes ");
    host.shell("zpool status -v tank").ok().says("AUDIT-WRONG").says("noise");
    host.shell("zpool events tank").ok().says("audit_failure");
    audit("verify one.record").ok();
    host.shell("zpool destroy -f tank").ok();
}

/// Tiles at a store of their own: both stores lose objects, and all come back.
#[test]
fn the_commands_for_tiles_at_a_store_can_be_typed() {
    if let Some(why) = no_fuse() {
        return skip("tiles at a store", &why);
    }
    let host = Host::new();
    host.shell(&format!("mkdir bin; ln -s {} bin/steadfast", steadfast_bin().display())).ok();
    let before = "export HOME=$PWD PATH=$PWD/bin:$PATH\n";
    let mut said = Vec::new();
    for command in commands("## Tiles at another provider\n") {
        if command.starts_with("zpool export") {
            host.until("zpool status lake", |told| told.contains("all covered"));
        }
        let line = format!("{before}{command}");
        if command == "steadfast audit lake" {
            // Samples of objects that a pass deletes meanwhile prove nothing, and are not counted.
            let told = host.until(&line, |told| told.contains("/far: 2,759 challenges of "));
            said.push((command, told));
            continue;
        }
        let ran = host.shell(&line).ok();
        said.push((command, format!("{}{}", ran.out, ran.err)));
        if command.starts_with("zpool remove") {
            assert_eq!(host.shell("find far -type f").out, "", "no object is left");
        }
    }
    let of = |word: &str| -> Vec<&String> {
        said.iter().filter(|(command, _)| command.contains(word)).map(|(_, said)| said).collect()
    };
    let status = of("zpool status lake")[0];
    assert!(status.contains(", tiles at file://") && status.contains("/far"), "{status}");
    let audits = of("audit lake");
    assert_eq!(audits.len(), 3, "{said:?}");
    for held in [audits[0], audits[2]] {
        assert!(
            held.contains("/far: 2,759 challenges of ") && held.contains(" cells of the parity: held"),
            "{held}"
        );
    }
    assert!(audits[1].contains("not held") && audits[1].contains("AUDIT-FAILED"), "{}", audits[1]);
    let recovered = of("audit recover")[0];
    assert!(recovered.contains("tiles of the parity put back at their store: 1"), "{recovered}");
    assert!(recovered.contains("objects put back: 1"), "{recovered}");
    // To destroy the pool leaves tiles on purpose, and is no failure.
    let add =
        "mkdir far2; truncate -s 400M parity2; zpool add -o tiles=file://$PWD/far2 lake parity $PWD/parity2";
    let destroyed = host.shell(&format!("{before}{add}; zpool destroy lake")).ok();
    assert!(destroyed.err.starts_with("note: the tiles of the parity device stay at "), "{}", destroyed.err);
    destroyed.says("`steadfast store clean -f 'file://");
}

/// More is lost than the code covers: the recovery names the files and their ranges, of the dataset
/// and of a snapshot, and so does `zpool status -v`.
#[test]
fn files_that_did_not_come_back_are_named() {
    if let Some(why) = no_fuse() {
        return skip("files in lost cells", &why);
    }
    let host = Host::new();
    host.shell("mkdir bucket; truncate -s 48M parity; zpool create -m $PWD/t tank file://$PWD/bucket").ok();
    host.shell("zpool add tank parity $PWD/parity").ok();
    for number in 0..8 {
        let file = format!("head -c 4M /dev/urandom > 't/file {number}'; zpool sync");
        host.shell(&file).ok();
    }
    // Objects that the journal still has come back: the first ones have left it.
    host.until("zpool status tank", |told| told.contains("all covered"));
    host.shell("zfs snapshot tank@monday; rm 't/file 0'; zpool sync").ok();
    host.shell("find bucket -path '*seg*' -size +2M | sort | head -4 | xargs rm").ok();
    let ran = host.shell(&format!("{} audit recover tank", steadfast_bin().display()));
    assert_eq!(ran.status, 1, "{}{}", ran.out, ran.err);
    let said = ran.out;
    assert!(said.contains("cells did not come back") && said.contains("live data in "), "{said}");
    assert!(said.contains("    tank@monday:/file 0 (bytes 0 to "), "{said}");
    assert!(said.contains("/t/file 1 (bytes 0 to "), "{said}");
    assert!(!said.contains("/t/file 0 ") && !said.contains("file 7"), "{said}");
    let status = host.shell("zpool status -v tank").out;
    assert!(status.contains("tank@monday:/file 0") && status.contains("/t/file 1"), "{status}");
    // A reader finds that it cannot be read, unless the kernel still has its pages.
    host.shell("dd if='t/file 1' iflag=nocache count=0 status=none").ok();
    assert_ne!(host.shell("cat 't/file 1' > /dev/null").status, 0);
    host.shell("cat 't/file 7' > /dev/null").ok();
    host.shell("zpool clear tank").ok();
}

/// Bytes that were wrong before the code took them in come back as they were, when an import
/// recovers by itself. Behind it blocks are held against the hashes in their pointers: the file is
/// named, and so is a dataset whose key is not there. [recoveries.5]
#[test]
fn what_an_import_put_back_is_held_against_its_hashes() {
    if let Some(why) = no_fuse() {
        return skip("content that an import puts back", &why);
    }
    let host = Host::new();
    let import = "zpool import -d file://$PWD/bucket tank";
    host.shell("mkdir bucket; truncate -s 64M parity; zpool create -m $PWD/t tank file://$PWD/bucket").ok();
    host.shell("head -c 2M /dev/urandom > t/noise; head -c 32 /dev/urandom > key; zpool sync").ok();
    host.shell("zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key tank/sealed")
        .ok();
    host.shell("zpool export tank").ok();
    let largest =
        host.shell("find bucket -path '*seg*' -type f -printf '%s %p\n' | sort -n | tail -1").ok().out;
    let (bytes, object) = largest.trim().split_once(' ').expect("an object");
    let middle = bytes.parse::<u64>().unwrap() / 2;
    assert!(middle > 512 << 10, "{largest}");
    let mut content = std::fs::read(host.at(object)).unwrap();
    content[usize::try_from(middle).unwrap()] ^= 0x10;
    std::fs::write(host.at(object), content).unwrap();
    host.shell(import).ok();
    host.shell("zpool add tank parity $PWD/parity").ok();
    host.until("zpool status tank", |told| told.contains("all covered"));
    // All of it leaves the journal, which would serve it.
    host.run("audit rekey tank").ok();
    assert!(!host.shell("zpool status tank").ok().out.contains("was not looked at"));
    host.shell("zpool export tank; find bucket -path '*seg*' -type f -delete").ok();

    host.shell(import).ok();
    let status = host.until("zpool status -v tank", |told| told.contains(" live blocks: "));
    assert!(status.contains(" live blocks: 1 do not have their hash"), "{status}");
    assert!(status.contains("tank/sealed was not looked at: its key is not loaded"), "{status}");
    assert!(status.contains("t/noise"), "{status}");
    let events = host.shell("zpool events -v tank").ok().out;
    assert!(events.contains("recover_finish") && events.contains("prove_failure"), "{events}");
    assert!(events.contains("wrong = \"1\"") && events.contains("tank/sealed"), "{events}");
    // The next import puts nothing back.
    host.shell("zpool export tank").ok();
    host.shell(import).ok();
    assert!(!host.shell("zpool status tank").ok().out.contains("put back"));
    host.shell("zpool destroy tank").ok();
}

/// The loss is named when the device comes, and changed while the pool is in use.
#[test]
fn the_loss_is_named_and_changed() {
    if let Some(why) = no_fuse() {
        return skip("a loss", &why);
    }
    let host = Host::new();
    host.shell("mkdir bucket; truncate -s 64M parity; zpool create -m $PWD/t tank file://$PWD/bucket").ok();
    let refused = host.shell("zpool add -o loss=20% tank parity $PWD/parity");
    assert!(refused.status == 1 && refused.err.contains("0.5 % to 10 % of all"), "{}", refused.err);
    assert_eq!(host.shell("zpool add -o loss=two tank parity $PWD/parity").status, 2);
    let refused = host.shell("truncate -s 64M spare; zpool add -o loss=2% tank spare $PWD/spare");
    assert!(refused.status == 1 && refused.err.contains("only a parity device"), "{}", refused.err);
    host.shell("zpool add -o loss=1% tank parity $PWD/parity; head -c 4M /dev/urandom > t/noise; zpool sync")
        .ok();
    let status = host.until("zpool status tank", |told| told.contains("all covered"));
    assert!(status.contains("up to 1 % may be lost"), "{status}");
    let steadfast = steadfast_bin();
    let rekey = |words: &str| host.shell(&format!("{} audit rekey {words} tank", steadfast.display()));
    rekey("--loss 5%").ok();
    let status = host.shell("zpool status tank").out;
    assert!(status.contains("up to 5 % may be lost"), "{status}");
    assert_eq!(rekey("--loss 0.1%").status, 1);
    rekey("").ok();
    assert!(host.shell("zpool status tank").out.contains("up to 5 % may be lost"));
    host.shell("find bucket -path '*seg*' -size +2M | head -1 | xargs rm").ok();
    host.shell(&format!("{} audit recover tank; cat t/noise > /dev/null", steadfast.display())).ok();
}

/// A parity device that fails when a pool is created takes the pool with it.
#[test]
fn a_pool_is_not_created_without_the_parity_device_that_it_was_to_have() {
    if !is_root() {
        return skip("a parity device that fails", "only root mounts a small disk");
    }
    if let Some(why) = no_fuse() {
        return skip("a parity device that fails", &why);
    }
    let host = Host::new();
    if host.shell("mkdir small bucket; mount -t tmpfs -o size=16M small small").status != 0 {
        return skip("a parity device that fails", "a tmpfs cannot be mounted here");
    }
    host.shell("truncate -s 64M small/parity; head -c 16M /dev/zero > small/filler || true").ok();
    let create = "zpool create -m $PWD/t tank file://$PWD/bucket parity $PWD/small/parity";
    host.shell(&format!("{create} -n")).ok().says("parity").says("small/parity");
    host.shell(create).fails(1).says("; no pool was created").says("small/parity");
    assert_eq!(host.shell("zpool list -H").ok().out, "");
    assert!(!host.shell("zpool import -d file://$PWD/bucket").out.contains("tank"));
    host.shell("rm small/filler").ok();
    host.shell(create).ok();
    host.until("zpool status tank", |told| told.contains("all covered"));
    host.shell("zpool destroy tank; umount small").ok();
}

/// A re-key takes the room for its second code before it begins. Where that lacks, it says how many
/// bytes; the present code stays, and the same command works when they are there.
#[test]
fn a_full_file_system_refuses_a_re_key_and_says_what_is_missing() {
    const MIB: u64 = 1 << 20;
    if !is_root() {
        return skip("no room for a re-key", "only root mounts a small disk");
    }
    if let Some(why) = no_fuse() {
        return skip("no room for a re-key", &why);
    }
    let host = Host::new();
    if host.shell("mkdir small bucket; mount -t tmpfs -o size=128M small small").status != 0 {
        return skip("no room for a re-key", "a tmpfs cannot be mounted here");
    }
    host.shell("truncate -s 64M small/parity; zpool create -m $PWD/t tank file://$PWD/bucket").ok();
    host.shell("head -c 4M /dev/urandom > t/noise; zpool sync; zpool add tank parity $PWD/small/parity").ok();
    host.until("zpool status tank", |told| told.contains("all covered"));
    // The first code keeps room for what it has not written yet.
    host.shell("free=$(df --output=avail -B1 small | tail -1); head -c $((free - (16 << 20))) /dev/zero > small/filler")
        .ok();
    let refused = || {
        let ran = host.run("audit rekey tank").fails(1).says("PARITY-ROOM").says("pool remove tank");
        let told = format!("{}{}", ran.out, ran.err);
        let (before, _) = told.split_once(" bytes are missing").expect(&told);
        before.rsplit(' ').next().and_then(|word| word.parse::<u64>().ok()).expect(&told)
    };
    let missing = refused();
    assert!(missing > 8 * MIB, "{missing}");
    // Nothing was taken, and less than that is not enough.
    host.shell("stat -c %s small/parity").ok().says("67108864");
    host.shell(&format!("truncate -s -{} small/filler", missing - MIB)).ok();
    let left = refused();
    assert!(left <= MIB + MIB / 2, "{left} of {missing}");
    host.run("audit tank").ok().says(": held");
    host.shell("rm small/filler").ok();
    host.run("audit rekey tank").ok().says("the code was made anew");
    host.run("audit tank").ok().says(": held");
    host.shell("zpool export tank; umount small").ok();
}

/// A record that was changed or left out is found by its reader, anywhere.
fn an_auditor_finds_changes(host: &Host, before: &str) {
    // The verdict is its output, so it stands on standard output.
    let verify = |words: &str, status: i32, says: &str| {
        let ran = host.shell(&format!("{before}steadfast audit verify {words}")).says(says);
        assert_eq!(ran.status, status, "{}\n{}", ran.words, ran.out);
    };
    let text = std::fs::read_to_string(host.at("tank.record")).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let key = lines[0].split(' ').nth(2).unwrap();
    verify(&format!("tank.record -k {key}"), 3, "not held");
    let another = key.replace(|digit: char| digit.is_ascii_digit(), "0");
    verify(&format!("tank.record -k {another}"), 1, "line 1 is of another key");
    std::fs::write(host.at("other.record"), text.replacen("\"held\":", "\"held\":1", 1)).unwrap();
    verify("other.record", 1, "line 1: its signature");
    std::fs::write(host.at("other.record"), [lines[0], lines[2]].join("\n")).unwrap();
    verify("other.record", 1, "does not follow the one before");
    // The last two were made after the recovery.
    std::fs::write(host.at("other.record"), lines[lines.len() - 2..].join("\n")).unwrap();
    verify("other.record", 0, "each sample of each audit was held");
    verify("no.record", 1, "cannot read");
}

/// Ends the agent that the page starts, however the test ends.
struct Agent(std::path::PathBuf);

impl Drop for Agent {
    fn drop(&mut self) {
        let Ok(pid) = std::fs::read_to_string(&self.0) else { return };
        let _ =
            std::process::Command::new("kill").arg(pid.trim()).stderr(std::process::Stdio::null()).status();
    }
}
