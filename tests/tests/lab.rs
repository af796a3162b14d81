//! The lab and the demo as a newcomer types them, on real mounts: what they find, and that nothing is left behind.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use steadfast_tests::{Host, is_root, no_fuse, skip, spawn, steadfast_bin};

/// Everything below `work` is gone, and nothing is mounted there.
#[track_caller]
fn nothing_left(work: &Path) {
    let left: Vec<_> = fs::read_dir(work).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(left.is_empty(), "left behind in {}: {left:?}", work.display());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&work.display().to_string()), "still mounted:\n{mounts}");
}

#[test]
fn compression_is_measured_beside_the_source_reports_and_cleaned_up() {
    if let Some(why) = no_fuse() {
        return skip("compression_is_measured_beside_the_source_reports_and_cleaned_up", &why);
    }
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let ran = host.run("lab run compression --elapsed 2 --out {}/out --work {}/work").ok();
    for words in ["Compression on (lz4)", "Report A, on", "10.616 ms", "report: "] {
        assert!(ran.out.contains(words), "{words} is not in\n{}", ran.out);
    }
    nothing_left(&work);
    let json = fs::read_to_string(host.at("out/report.json")).unwrap();
    let html = fs::read_to_string(host.at("out/report.html")).unwrap();
    assert!(json.contains("\"schema\": \"steadfast-lab-report\""));
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("9.037 ms") && !html.contains("http://"));
    // What it is all about: data that compresses 2.5 to 1 takes less than half of the space, and not less than a third.
    let used = json.split("\"key\": \"used\"").nth(1).unwrap();
    let value = |arm: &str| -> f64 {
        let at = used.split(&format!("\"{arm}\": [")).nth(1).unwrap();
        at.split(']').next().unwrap().trim().parse().unwrap()
    };
    let ratio = value("on") / value("off");
    assert!((0.33..0.50).contains(&ratio), "{} MiB on, {} MiB off", value("on"), value("off"));
    // The same page again from the data alone.
    host.run("lab show {}/out/report.json -o {}/again.html").ok();
    assert_eq!(fs::read_to_string(host.at("again.html")).unwrap(), html);
}

/// Tiny sizes: whether it runs to its end and says what it must, not how fast anything is.
#[test]
fn the_engine_is_measured_beside_ext4_and_cleaned_up() {
    let test = "the_engine_is_measured_beside_ext4_and_cleaned_up";
    if let Some(why) = no_fuse() {
        return skip(test, &why);
    }
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let line = "lab run engine --tiny --rounds 1 --arms ext4,plain,sealed --only file,names,tree,cow,pool,memory \
                --dir {}/work --out {}/out --markdown {}/doc.md";
    if !is_root() {
        host.run(line).fails(1).says("needs root");
        return nothing_left(&work);
    }
    if let Some(why) = no_loops(&host) {
        return skip(test, &why);
    }
    let ran = host.run(line).ok();
    nothing_left(&work);
    for words in ["goals are met", "| ext4 |", "steadfast, encrypted", "sequential write 1 MiB", "report: "] {
        assert!(ran.out.contains(words), "{words} is not in\n{}\n{}", ran.out, ran.err);
    }
    let html = fs::read_to_string(host.at("out/report.html")).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("<polyline"));
    let document = fs::read_to_string(host.at("doc.md")).unwrap();
    assert!(document.starts_with("<!-- engine -->") && document.contains("(img/engine-pool.svg)"));
    assert!(host.at("img/engine-pool.svg").exists());
    host.run("lab show {}/out/report.json -o {}/again.html").ok();
    assert_eq!(fs::read_to_string(host.at("again.html")).unwrap(), html);
    nothing_attached(&host, &work);
}

/// Why loop devices cannot be used here; none if they can.
fn no_loops(host: &Host) -> Option<String> {
    let probe = host.at("probe.img");
    fs::File::create(&probe).unwrap().set_len(1 << 20).unwrap();
    let loops = host.exec("losetup", &["--find", "--show", probe.to_str().unwrap()], b"");
    if loops.status != 0 {
        return Some(format!("no loop devices here: {}", loops.err.trim()));
    }
    host.exec("losetup", &["--detach", loops.out.trim()], b"").ok();
    None
}

#[track_caller]
fn nothing_attached(host: &Host, work: &Path) {
    let attached = host.exec("losetup", &["--list", "--noheadings", "--output", "BACK-FILE"], b"").ok();
    assert!(!attached.out.contains(&work.display().to_string()), "still attached:\n{}", attached.out);
}

/// Tiny sizes: whether it runs to its end, says what it must, and takes everything away, not how fast anything is.
#[test]
fn cow_and_journal_are_measured_beside_ext4_and_cleaned_up() {
    let test = "cow_and_journal_are_measured_beside_ext4_and_cleaned_up";
    if let Some(why) = no_fuse() {
        return skip(test, &why);
    }
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let cow =
        "lab run cow --tiny --rounds 1 --arms ext4,steadfast --dir {}/work --out {}/cow --markdown {}/doc.md";
    if !is_root() {
        host.run(cow).fails(1).says("needs root");
        return nothing_left(&work);
    }
    if let Some(why) = no_loops(&host) {
        return skip(test, &why);
    }
    let ran = host.run(cow).ok();
    nothing_left(&work);
    nothing_attached(&host, &work);
    for words in [
        "goals are met",
        "| ext4, data=ordered |",
        "as the file says: I/O rate, 1/s",
        "fsync after every write: bytes to the device per byte accepted",
        "on request the file is 32.0 MiB instead of 1.0 GiB",
        "cow.parm at least 0.6 of ext4's rate",
        "report: ",
    ] {
        assert!(ran.out.contains(words), "{words} is not in\n{}\n{}", ran.out, ran.err);
    }
    let html = fs::read_to_string(host.at("cow/report.html")).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && !html.contains("src=") && !html.contains("<link"));
    for words in ["rate over time", "2,172", "32,250", "rdpct=50,rhpct=10,seekpct=50"] {
        assert!(html.contains(words), "{words}");
    }
    assert!(host.at("cow/vdbench/1-steadfast-fsync/flatfile.html").exists());
    let document = fs::read_to_string(host.at("doc.md")).unwrap();
    assert!(document.starts_with("<!-- cow -->") && document.contains("(img/cow-rate.svg)"));
    assert!(host.at("img/cow-fsync-rate.svg").exists());
    host.run("lab show {}/cow/report.json -o {}/again.html").ok();
    assert_eq!(fs::read_to_string(host.at("again.html")).unwrap(), html);

    // A mode that this build refuses is a column that says so; one that it takes has figures. Never both.
    let line = "lab run journal --tiny --rounds 1 --only plain --arms ordered,data,off --dir {}/work --out {}/journal";
    let ran = host.run(line).ok();
    nothing_left(&work);
    for mode in ["ordered", "data", "off"] {
        let refused = ran
            .out
            .contains(&format!("steadfast, journal={mode} took no part: this build refuses journal={mode}"));
        let measured = ran.out.contains(&format!("steadfast, journal={mode} |"));
        assert!(refused != measured, "{mode}:\n{}\n{}", ran.out, ran.err);
    }
}

#[test]
fn ctrl_c_takes_loop_devices_away_too() {
    let test = "ctrl_c_takes_loop_devices_away_too";
    let host = Host::new();
    if let Some(why) =
        no_fuse().or_else(|| (!is_root()).then(|| "needs root".to_owned())).or_else(|| no_loops(&host))
    {
        return skip(test, &why);
    }
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let mut command = Command::new(steadfast_bin());
    command.args(["lab", "run", "cow", "--size", "64M", "--arms", "ext4", "--out"]).arg(host.at("out"));
    let mut child = spawn(command.arg("--dir").arg(&work).stderr(Stdio::piped())).unwrap();
    while !fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&work.display().to_string()) {
        assert!(child.try_wait().unwrap().is_none(), "it ended before anything was mounted");
        std::thread::sleep(Duration::from_millis(20));
    }
    host.exec("kill", &["-INT", &child.id().to_string()], b"").ok();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
    nothing_left(&work);
    nothing_attached(&host, &work);
}

#[test]
fn ctrl_c_takes_everything_away() {
    if let Some(why) = no_fuse() {
        return skip("ctrl_c_takes_everything_away", &why);
    }
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let mut command = Command::new(steadfast_bin());
    command.args(["lab", "run", "encryption", "--out"]).arg(host.at("out"));
    let mut child = spawn(command.arg("--work").arg(&work).stderr(Stdio::piped())).unwrap();
    let mounted = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.matches(&work.display().to_string()).count() >= 3
    };
    while !mounted() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before anything was mounted");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = child.id().to_string();
    host.exec("kill", &["-INT", &pid], b"").ok();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains("stopped before the end"), "{said}");
    nothing_left(&work);
}

/// The command it would wait for never ends by itself: a `zpool create` of a zfs-fuse that is none.
#[test]
fn ctrl_c_ends_the_command_that_runs() {
    let test = "ctrl_c_ends_the_command_that_runs";
    if let Some(why) = no_fuse().or_else(|| (!is_root()).then(|| "needs root".to_owned())) {
        return skip(test, &why);
    }
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    host.shell(
        "mkdir bin; echo 'exec sleep 100000' > bin/zfs-fuse; \
         echo 'test \"$1\" != create || { echo reached > \"$0.reached\"; sleep 100000; }' > bin/zpool; \
         sed -i '1i #!/bin/sh' bin/*; chmod +x bin/*",
    )
    .ok();
    let devices: Vec<String> =
        (0..7).map(|at| host.image(&format!("d{at}.img"), 16 << 20).display().to_string()).collect();
    let mut command = Command::new(steadfast_bin());
    command.args(["lab", "run", "recovery", "--arms", "zfs-fuse", "--devices", &devices.join(",")]);
    command.arg("--zfs-fuse").arg(host.at("bin")).arg("--out").arg(host.at("out"));
    let mut child = spawn(command.arg("--dir").arg(&work).stderr(Stdio::piped())).unwrap();
    while !host.at("bin/zpool.reached").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended before it came to the command");
        std::thread::sleep(Duration::from_millis(20));
    }
    host.exec("kill", &["-INT", &child.id().to_string()], b"").ok();
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130), "{}", String::from_utf8_lossy(&ended.stderr));
    nothing_left(&work);
    assert_eq!(fs::metadata(&devices[0]).unwrap().len(), 16 << 20, "what was given is left");
}

/// Making a file system never ends by itself: a `mkfs.ext4` that is none.
#[test]
fn ctrl_c_ends_what_makes_a_file_system_in_other_experiments_too() {
    let test = "ctrl_c_ends_what_makes_a_file_system_in_other_experiments_too";
    if let Some(why) = no_fuse().or_else(|| (!is_root()).then(|| "needs root".to_owned())) {
        return skip(test, &why);
    }
    let host = Host::new();
    host.shell(
        "mkdir bin; echo 'echo reached > \"$0.reached\"; sleep 100000' > bin/mkfs.ext4; \
         sed -i '1i #!/bin/sh' bin/*; chmod +x bin/*",
    )
    .ok();
    let path = format!("{}:{}", host.at("bin").display(), std::env::var("PATH").unwrap_or_default());
    for experiment in ["engine", "cow", "journal"] {
        let (work, out) = (host.at(experiment), host.at(&format!("{experiment}.out")));
        fs::create_dir(&work).unwrap();
        let mut command = Command::new(steadfast_bin());
        command.args(["lab", "run", experiment, "--tiny", "--arms", "ext4", "--out"]).arg(out);
        command.env("PATH", &path).arg("--dir").arg(&work).stderr(Stdio::piped());
        let mut child = spawn(&mut command).unwrap();
        while !host.at("bin/mkfs.ext4.reached").exists() {
            assert!(child.try_wait().unwrap().is_none(), "{experiment} ended before it came to the command");
            std::thread::sleep(Duration::from_millis(20));
        }
        host.exec("kill", &["-INT", &child.id().to_string()], b"").ok();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{experiment}: {said}");
        nothing_left(&work);
        fs::remove_file(host.at("bin/mkfs.ext4.reached")).unwrap();
    }
}

#[test]
fn the_demo_tells_its_story_and_catches_the_flipped_bit() {
    if let Some(why) = no_fuse() {
        return skip("the_demo_tells_its_story_and_catches_the_flipped_bit", &why);
    }
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let ran = host.run("demo --elapsed 2 --out {}/out --work {}/work").ok();
    for words in [
        "Compression on (lz4)",
        "Encryption on",
        "letters.txt  reads, and is byte for byte what was written",
        "photos.tar   bytes 524288 to 655359 are refused: Input/output error",
        "thesis.pdf   reads, and is byte for byte what was written",
        "mnt/demo/photos.tar",
    ] {
        assert!(ran.out.contains(words), "{words} is not in\n{}", ran.out);
    }
    assert!(
        host.at("out/compression/report.html").exists() && host.at("out/encryption/report.html").exists()
    );
    nothing_left(&work);
}

#[test]
fn what_cannot_be_run_is_said_in_a_sentence_before_anything_is_made() {
    let host = Host::new();
    host.run("lab run speed").fails(2).says("there is no experiment `speed`");
    host.run("lab run compression --size 1M").fails(2).says("128M or more");
    host.run("lab run compression --target dir:{}").fails(2).says("dir:FIRST,SECOND");
    host.run("lab show {}/none.json").fails(1).says("none.json");
    fs::write(host.at("other.json"), "{}").unwrap();
    host.run("lab show {}/other.json").fails(2).says("not a lab report");
    host.run("demo --faster").fails(2).says("--faster");
    assert!(!host.at("steadfast-demo").exists());
}
