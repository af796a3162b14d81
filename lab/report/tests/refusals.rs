//! Refusals of the original, with its words, our place and its exit status.

use std::ffi::OsString;
use std::fs;
use std::sync::atomic::AtomicBool;
use steadfast_lab_report::vdbench_main;

struct Said {
    status: i32,
    out: String,
    err: String,
}

fn vdbench(args: &[&str]) -> Said {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = vdbench_main(&args, &AtomicBool::new(false), &mut out, &mut err);
    Said { status, out: String::from_utf8(out).unwrap(), err: String::from_utf8(err).unwrap() }
}

/// Runs a parameter file in a directory of its own; `HERE` stands for it.
fn run(text: &str, extra: &[&str]) -> (Said, tempfile::TempDir) {
    let keep = tempfile::tempdir().unwrap();
    let here = keep.path().display().to_string();
    fs::write(keep.path().join("bad.parm"), text.replace("HERE", &here)).unwrap();
    let (file, out) = (format!("{here}/bad.parm"), format!("{here}/out"));
    let mut args = vec!["-f", &file, "-o", &out];
    args.extend(extra);
    let mut said = vdbench(&args);
    said.out = said.out.replace(&here, "HERE");
    said.err = said.err.replace(&here, "HERE");
    (said, keep)
}

#[track_caller]
fn assert_said(said: &Said, text: &str, place: &str) {
    assert_eq!(said.status, 157, "{}{}", said.out, said.err);
    let with_time = said.out.lines().any(|line| line.len() > 13 && line.get(13..) == Some(text));
    assert!(with_time, "no line {text:?} in\n{}", said.out);
    assert!(said.err.starts_with("vdbench: ") && said.err.contains(place), "{}", said.err);
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
}

const SD: &str = "sd=sd1,lun=HERE/f1,size=10m\n";

#[test]
fn bad_1_to_5_and_7_and_11_are_refused_before_anything_is_touched() {
    let wd = "wd=wd1,sd=sd1,xfersize=4k\n";
    let cases = [
        (
            format!("compratoi=2\n{SD}{wd}rd=rd1,wd=wd1,iorate=max,elapsed=4,interval=1\n"),
            "Unknown keyword: compratoi",
            "bad.parm:1:",
        ),
        (
            format!("{}{wd}rd=rd1,wd=wd1,iorate=max,elapsed=4,interval=1\n", SD.replace("size", "siez")),
            "Unknown keyword: siez",
            "bad.parm:1: Unknown keyword: siez; as a parameter of sd=, did you mean 'size'?",
        ),
        (
            format!("{SD}wd=wd1,sd=sd2,xfersize=4k\nrd=rd1,wd=wd1,iorate=max,elapsed=4,interval=1\n"),
            "Could not find sd=sd2 for wd=wd1,host=localhost",
            "bad.parm:2:",
        ),
        (
            format!("{SD}{wd}rd=rd1,wd=wd9,iorate=max,elapsed=4,interval=1\n"),
            "Could not find WD=wd9 for RD=rd1",
            "bad.parm:3:",
        ),
        (
            format!("{SD}{wd}rd=rd1,wd=wd1,iorate=max,elapsed=5,interval=2\n"),
            "'elapsed=5' must be multiple of 'interval=2'.",
            "bad.parm:3:",
        ),
        (
            format!("{SD}rd=rd1,sd=sd1,elapsed=4,interval=1\nwd=wd1,sd=sd1\n"),
            "iorate= parameter is missing.",
            "bad.parm:2:",
        ),
        (
            format!("{SD}rd=rd1,sd=sd1,iorate=max,elapsed=4,interval=1\nwd=wd1,sd=sd1\n"),
            "Could not find WD=wd1 for RD=rd1",
            "bad.parm:3:",
        ),
        (
            format!("sd=sd1,lun=HERE/f1\n{wd}rd=rd1,wd=wd1,elapsed=4,interval=1\n"),
            "iorate= parameter is missing.",
            "bad.parm:3:",
        ),
    ];
    for (text, exact, place) in cases {
        let (said, dir) = run(&text, &[]);
        assert_said(&said, exact, place);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "only the parameter file is there");
    }
}

#[test]
fn bad_6_an_odd_transfer_size_is_accepted() {
    let (said, _dir) = run(
        &format!("{SD}wd=wd1,sd=sd1,xfersize=5000\nrd=rd1,wd=wd1,iorate=max,elapsed=4,interval=1\n"),
        &["-e2"],
    );
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("Vdbench execution completed successfully. Output directory: HERE/out "));
}

#[test]
fn bad_8_and_10_places_that_are_not_there() {
    let (said, _dir) = run(
        "fsd=fsd1,anchor=HERE/no/such/dir,depth=1,width=1,files=2,size=8k\nfwd=fwd1,fsd=fsd1,operation=read\n\
         rd=rd1,fwd=fwd1,fwdrate=max,format=yes,elapsed=4,interval=1\n",
        &[],
    );
    assert_said(&said, "Unable to create anchor directory: HERE/no/such/dir", "create_anchors=yes");
    let (said, _dir) =
        run("sd=sd1,lun=HERE/nodir/f1,size=10m\nrd=rd1,sd=sd1,iorate=max,elapsed=4,interval=1\n", &[]);
    assert_said(&said, "Open for lun 'HERE/nodir/f1' failed", "create its directory first");
}

#[test]
fn bad_9_a_run_that_does_nothing_fails_unless_that_is_allowed() {
    let text = "fsd=fsd1,anchor=HERE/newdir,depth=1,width=1,files=2,size=8k\nfwd=fwd1,fsd=fsd1,operation=read,xfersize=4k,threads=1\n\
                rd=rd1,fwd=fwd1,fwdrate=max,format=no,elapsed=4,interval=1\n";
    let (said, _dir) = run(text, &[]);
    assert_said(
        &said,
        "Nothing was done in rd=rd1: no operation that was asked for took place.",
        "format=yes",
    );
    assert!(said.out.contains("finds no files"));
    let (said, _dir) = run(text, &["--allow-idle"]);
    assert_eq!((said.status, said.err.as_str()), (0, ""));
}

#[test]
fn a_full_device_ends_the_format_with_the_originals_lines() {
    let keep = tempfile::tempdir().unwrap();
    let full = keep.path().join("f");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let text = format!(
        "data_errors=3\nsd=sd1,lun={},size=32m\nwd=wd1,sd=sd1,xfersize=4k,rdpct=0\nrd=rd1,wd=wd1,iorate=100,elapsed=4,interval=1\n",
        full.display()
    );
    let (said, dir) = run(&text, &[]);
    assert_said(&said, "'data_errors=3' requested. Abort rd=SD_format after last error.", "make room there");
    let lines: Vec<&str> = said.out.lines().filter(|line| line.contains("op: write  lun: ")).collect();
    assert_eq!(lines.len(), 3, "{}", said.out);
    assert!(lines[0].ends_with(" xfer:   131072 errno: ENOSPC: 'No space left on device' "), "{}", lines[0]);
    let errorlog = fs::read_to_string(dir.path().join("out/errorlog.html")).unwrap();
    assert_eq!(errorlog.lines().filter(|line| line.contains("ENOSPC")).count(), 3);
    assert!(!said.out.contains("Starting RD=rd1"), "a failed format ends everything");
}

#[test]
fn arguments_that_cannot_be_followed() {
    let said = vdbench(&[]);
    assert_said(&said, "No input parameters specified", "-f");
    assert!(said.out.contains("usage:"));
    assert_said(
        &vdbench(&["-f", "no-such.parm"]),
        "Requested parameter file does not exist: no-such.parm",
        "no-such.parm",
    );
    assert_said(
        &vdbench(&["-f", "x.parm", "-jx"]),
        "option -j may be followed by r, o, n, m, s and i, not 'x'.",
        "not 'x'",
    );
    assert_said(
        &vdbench(&["-f", "x.parm", "-vx"]),
        "option -v may be followed by r, w and t, not 'x'.",
        "-v",
    );
    assert_said(
        &vdbench(&["-f", "x.parm", "-z"]),
        "unknown option -z; no arguments at all print the options.",
        "-z",
    );
    assert_said(&vdbench(&["-f"]), "option -f needs a value.", "-f");
    assert_said(&vdbench(&["-t", "-e", "soon"]), "option -e takes seconds, not 'soon'.", "-e");
}

#[test]
fn simulation_replacements_and_appended_parameters() {
    let (said, dir) = run(
        "sd=sd1,lun=$lun,size=!size\nrd=rd1,sd=sd1,iorate=max,elapsed=4,interval=1\n",
        &["-s", "-k", "-d27", "-vq", "--seed", "7", "lun=tmp/q", "size=1g", "+", "iorate=100"],
    );
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    assert!(
        said.out.contains(" Simulating RD=rd1; I/O rate: 100; elapsed=4; For loops: None\n"),
        "{}",
        said.out
    );
    let closing = "Vdbench simulation completed successfully. Output directory: ";
    assert!(said.out.contains(closing), "{}", said.out);
    let page = |name: &str| std::fs::read_to_string(dir.path().join("out").join(name)).unwrap();
    assert!(page("parmfile.html").contains("sd=sd1"), "the directory says what would be run");
    assert!(page("logfile.html").contains("Simulating RD=rd1"));
    assert!(!dir.path().join("tmp").exists(), "a simulation touches nothing else");
    for words in [vec!["-h"], vec!["--help"], vec!["-f", "x", "--help"]] {
        let said = vdbench(&words);
        assert!(said.status == 0 && said.out.contains("--seed N") && said.err.is_empty(), "{words:?}");
    }
    for words in [vec!["-d"], vec!["-dx", "-f", "x"], vec!["-vc", "-f", "x"], vec!["--seed", "x"]] {
        assert_eq!(vdbench(&words).status, 157, "{words:?}");
    }
}

#[test]
fn text_lost_behind_a_blank_is_warned_about_on_standard_error() {
    let (said, _dir) = run(
        "sd=sd1,lun=x,size=1g # a comment, with=comma,\nrd=rd1,sd=sd1,iorate=max,elapsed=4 ,interval=1\n",
        &["-s"],
    );
    assert_eq!(said.status, 0);
    assert_eq!(
        said.err,
        "vdbench: HERE/bad.parm:2: warning: everything after a blank is comment, so ',interval=1' is ignored; \
         remove the blank before it\n"
    );
}

#[test]
fn corrupted_data_is_told_on_the_console_and_in_the_errorlog() {
    let text = format!(
        "data_errors=1\n{}wd=wd1,sd=sd1,xfersize=4k,seekpct=eof\n\
         rd=rd1,wd=wd1,iorate=max,elapsed=60,interval=1,startcmd=(\"printf X | dd of=HERE/f1 bs=1 seek=5120300 conv=notrunc\")\n",
        SD
    );
    let (said, dir) = run(&text, &["-v"]);
    assert_eq!(said.status, 157, "{}{}", said.out, said.err);
    let errorlog = fs::read_to_string(dir.path().join("out/errorlog.html")).unwrap();
    for line in [
        "Corrupted data block for sd=sd1,lun=",
        "; lba: 5,120,000 (0x004e2000) xfersize=4096",
        "1 of 8 sectors are corrupted.",
        "sector lba: 0x004e2000",
        "===> Compression pattern miscompare.",
        "errno: 60003: 'A Data Validation error was discovered'",
        "'data_errors=1' requested. Abort rd=rd1 after last error.",
    ] {
        assert!(errorlog.contains(line) && said.out.contains(line), "{line}\n{errorlog}");
    }
    assert!(errorlog.contains("0x120*"), "byte 300 is in the line that is marked: {errorlog}");
}

#[test]
fn validation_that_compares_nothing_is_a_failure() {
    let make = "startcmd=(\"head -c 1m /dev/zero > HERE/there\")\n";
    let sd = "sd=sd1,lun=HERE/f1,size=1m\nrd=rd1,sd=sd1,iorate=50,elapsed=2,interval=1\n";
    let (said, dir) = run(&format!("{make}{sd}"), &["-v"]);
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    let there = dir.path().join("there").display().to_string();
    let (said, _dir) = run(&sd.replace("HERE/f1", &there), &["-v"]);
    assert_said(
        &said,
        "Data validation compared nothing: no block was read that this execution had written.",
        "-vr",
    );
}

#[test]
fn options_of_rounds_formats_and_histograms_are_followed() {
    let fsd = "histogram=(default,10u,1s)\nfsd=f,anchor=HERE/a,depth=1,width=1,files=2,size=4k\n\
               fwd=w,fsd=f,operation=getattr\nrd=r,fwd=w,fwdrate=50,elapsed=2,interval=1,maxdata=1g\n";
    let (said, dir) = run(fsd, &["-cy", "-l", "2"]);
    assert_eq!(said.status, 0, "{}{}", said.out, said.err);
    assert_eq!(said.out.matches("Starting RD=format_for_r").count(), 2);
    assert_eq!(said.out.matches("Starting RD=r;").count(), 2);
    let page = fs::read_to_string(dir.path().join("out/histogram.html")).unwrap();
    let rows: Vec<&str> =
        page.lines().filter(|line| line.get(8..11) == Some(" < ") || line.contains("max  ")).collect();
    assert!(page.contains("    0.000 <       0.010 ") && page.contains("    0.010 <    1000.000 "), "{page}");
    assert!(rows.iter().all(|row| !row.contains("0.020")), "{page}");
    let (said, _dir) = run(fsd, &["-l0s"]);
    assert_eq!(said.status, 157);
}

#[test]
fn the_built_in_tests_pass_and_leave_only_their_reports() {
    for option in ["-t", "-tf"] {
        let keep = tempfile::tempdir().unwrap();
        let out = keep.path().join("out").display().to_string();
        let said = vdbench(&[option, "-o", &out, "-e", "2"]);
        assert_eq!(said.status, 0, "{}{}", said.out, said.err);
        let left: Vec<_> = fs::read_dir(keep.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["out"]);
    }
}

#[test]
fn output_directories_are_numbered_on_request() {
    let keep = tempfile::tempdir().unwrap();
    let out = format!("{}/out+", keep.path().display());
    for _ in 0..2 {
        assert_eq!(vdbench(&["-t", "-o", &out, "-e", "2"]).status, 0);
    }
    assert!(
        keep.path().join("out/report.json").is_file() && keep.path().join("out001/report.json").is_file()
    );
}
