//! The four parameter files of the source reports: as they are, they parse; shortened, and on a
//! directory that is there, they run. Only times and sizes are shortened.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use steadfast_lab_params::{Request, parse};
use steadfast_lab_report::vdbench_main;

fn carried(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads").join(name)
}

fn reported() -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(carried("reported.json")).unwrap()).unwrap()
}

/// Runs a shortened copy; its report.json.
fn run(name: &str, changes: &[(&str, &str)], options: &[&str]) -> serde_json::Value {
    let keep = tempfile::tempdir().unwrap();
    let here = keep.path().display().to_string();
    let mut text = fs::read_to_string(carried(name)).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{name} does not say {from}");
        text = text.replace(from, &to.replace("HERE", &here));
    }
    let file = keep.path().join(name);
    fs::write(&file, text).unwrap();
    let out = keep.path().join("out");
    let mut args: Vec<OsString> = vec!["-f".into(), file.into(), "-o".into(), out.clone().into()];
    args.extend(options.iter().map(OsString::from));
    let (mut console, mut err) = (Vec::new(), Vec::new());
    let status = vdbench_main(&args, &AtomicBool::new(false), &mut console, &mut err);
    assert_eq!(status, 0, "{}\n{}", String::from_utf8_lossy(&console), String::from_utf8_lossy(&err));
    serde_json::from_str(&fs::read_to_string(out.join("report.json")).unwrap()).unwrap()
}

fn labels(report: &serde_json::Value) -> Vec<&str> {
    report["runs"].as_array().unwrap().iter().map(|run| run["label"].as_str().unwrap()).collect()
}

fn count(report: &serde_json::Value, run: usize, operation: &str) -> u64 {
    report["runs"][run]["whole"]["operations"][operation]["count"].as_u64().unwrap_or(0)
}

#[test]
fn all_four_parse_as_they_are_and_have_the_runs_that_the_reports_name() {
    let mut carried_out = 0;
    for (name, workload) in reported()["workloads"].as_object().unwrap() {
        assert!(!workload["reports"].as_array().unwrap().is_empty());
        // Figures reported for another program have no parameter file.
        if workload["file"] == "" {
            continue;
        }
        carried_out += 1;
        let plan = parse(&Request::file(carried(workload["file"].as_str().unwrap()))).unwrap();
        assert!(plan.warnings.is_empty(), "{name}: {:?}", plan.warnings);
        for label in workload["runs"].as_object().unwrap().values() {
            assert!(
                plan.runs.iter().any(|run| Some(run.label.as_str()) == label.as_str()),
                "{name} has no run {label}"
            );
        }
    }
    assert_eq!(carried_out, 4);
}

#[test]
fn compression_runs_shortened() {
    let report = run(
        "compression.parm",
        &[
            ("anchor=/zfs_compress", "anchor=HERE/on"),
            ("anchor=/zfs_nocompress", "anchor=HERE/off"),
            ("size=8M", "size=1M"),
        ],
        &["-e", "2"],
    );
    let names = ["write_compressed", "read_compressed", "write_uncompressed", "read_uncompressed"];
    assert_eq!(
        labels(&report),
        [
            "format_for_write_compressed",
            names[0],
            names[1],
            "format_for_write_uncompressed",
            names[2],
            names[3]
        ]
    );
    for (run, operation) in [(1, "write"), (2, "read"), (4, "write"), (5, "read")] {
        // 200 arrivals expected in two seconds; six standard deviations.
        assert!(count(&report, run, operation).abs_diff(200) < 85, "{}", report["runs"][run]["whole"]);
    }
    assert_eq!(
        (count(&report, 0, "create"), count(&report, 0, "mkdir"), count(&report, 0, "write")),
        (8, 6, 64)
    );
}

#[test]
fn encryption_runs_shortened() {
    let report = run(
        "encryption.parm",
        &[
            ("anchor=/zfs_encrypt/encrypted", "anchor=HERE/encrypted"),
            ("anchor=/zfs_noencrypt", "anchor=HERE/off"),
            ("size=8M", "size=512k"),
        ],
        &["-e", "2"],
    );
    assert_eq!(report["runs"].as_array().unwrap().len(), 6);
    assert_eq!((count(&report, 0, "create"), count(&report, 0, "mkdir")), (8, 1));
    assert!(count(&report, 2, "read") > 100 && count(&report, 2, "write") == 0);
}

#[test]
fn cow_and_journal_run_shortened_with_their_mixes() {
    let cow = run(
        "cow.parm",
        &[("lun=/mypool/testfile", "lun=HERE/testfile"), ("size=1g", "size=16m")],
        &["-e", "2", "-i", "1"],
    );
    let journal = run(
        "journal.parm",
        &[("lun=/mnt/newdrive/testfile", "lun=HERE/testfile"), ("size=10G", "size=16m")],
        &["-e", "2", "-i", "1"],
    );
    for (report, share) in [(cow, 0.5), (journal, 0.7)] {
        assert_eq!(report["runs"][0]["label"], "SD_format");
        assert_eq!(count(&report, 0, "write"), 128);
        let (reads, writes) = (count(&report, 1, "read") as f64, count(&report, 1, "write") as f64);
        assert!(reads + writes > 1_000.0);
        assert!((reads / (reads + writes) - share).abs() < 0.05, "{reads} reads and {writes} writes");
    }
}
