//! Our reports beside lines of the original: headers letter by letter, numbers by where their
//! columns end.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use steadfast_lab_report::vdbench_main;

/// A run of the command, and what it left.
struct Run {
    status: i32,
    console: String,
    dir: PathBuf,
    _keep: tempfile::TempDir,
}

impl Run {
    fn of(text: &str, extra: &[&str]) -> Run {
        let keep = tempfile::tempdir().unwrap();
        let here = keep.path().display().to_string();
        fs::write(keep.path().join("test.parm"), text.replace("HERE", &here)).unwrap();
        let dir = keep.path().join("out");
        let mut args: Vec<OsString> =
            vec![format!("-f{here}/test.parm").into(), "-o".into(), dir.clone().into()];
        args.extend(extra.iter().map(OsString::from));
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = vdbench_main(&args, &AtomicBool::new(false), &mut out, &mut err);
        let console = String::from_utf8(out).unwrap();
        assert_eq!(String::from_utf8(err).unwrap(), "");
        Run { status, console, dir, _keep: keep }
    }

    fn page(&self, name: &str) -> String {
        fs::read_to_string(self.dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }
}

const FILES: &str = "compratio=2.5\nfsd=fsd1,anchor=HERE/tree,depth=2,width=2,files=2,size=1m\n\
    fwd=fwd1_1,fsd=fsd1,operation=write,xfersize=256k,fileio=sequential,fileselect=random,threads=2\n\
    rd=write_compressed,fwd=fwd1_1,fwdrate=100,format=yes,elapsed=3,interval=1\n";

const RAW: &str = "sd=sd1,lun=HERE/file,size=16m\nwd=wd1,sd=sd1,xfersize=4k,rdpct=50,rhpct=10,seekpct=50\n\
    rd=rd1,wd=wd1,iorate=2000,elapsed=3,interval=1\n";

fn shape(name: &str) -> Vec<String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes").join(name);
    fs::read_to_string(path).unwrap().lines().map(String::from).collect()
}

/// Positions behind the last character of each word.
fn ends(line: &str) -> Vec<usize> {
    let bytes = line.as_bytes();
    (0..bytes.len()).filter(|at| bytes[*at] != b' ' && bytes.get(at + 1).is_none_or(|c| *c == b' ')).collect()
}

fn find<'a>(lines: impl IntoIterator<Item = &'a str>, what: &str) -> &'a str {
    lines.into_iter().find(|line| line.contains(what)).unwrap_or_else(|| panic!("no line with {what:?}"))
}

/// Behind the time or date in front.
fn body(line: &str) -> &str {
    &line[12..]
}

fn assert_same_columns(ours: &str, theirs: &str) {
    assert_eq!(
        ends(body(ours)),
        ends(body(theirs)),
        "columns end elsewhere:\nours   {ours}\ntheirs {theirs}"
    );
    assert_eq!(ours.len(), theirs.len(), "another length:\nours   {ours:?}\ntheirs {theirs:?}");
}

#[test]
fn the_table_of_a_file_run_is_the_originals() {
    let run = Run::of(FILES, &[]);
    assert_eq!(run.status, 0, "{}", run.console);
    let theirs = shape("files.console.txt");
    let (ours, theirs): (Vec<&str>, Vec<&str>) =
        (run.console.lines().collect(), theirs.iter().map(String::as_str).collect());
    for what in ["..Interval..", "  rate   resp total  sys"] {
        assert_eq!(body(find(ours.iter().copied(), what)), body(find(theirs.iter().copied(), what)));
    }
    // A format that ends within its first interval measured nothing: NaN, and blank deviations.
    for what in [" avg_2-1", " std_2-1", " max_2-1"] {
        assert_eq!(body(find(ours.iter().copied(), what)), body(find(theirs.iter().copied(), what)));
    }
    let average = |lines: &[&str], from: &str| -> [String; 3] {
        let at = lines.iter().position(|line| line.contains(from)).unwrap_or_else(|| panic!("no {from}"));
        [lines[at], lines[at + 1], lines[at + 2]].map(String::from)
    };
    // The original's label is one letter longer.
    for (ours, theirs) in average(&ours, " avg_2-3").iter().zip(average(&theirs, " avg_2-10")) {
        assert_same_columns(
            &ours.replace(" avg_", "avg_1").replace(" std_", "std_1").replace(" max_", "max_1"),
            &theirs,
        );
    }
    let interval = ours.iter().find(|line| line.len() > 30 && line[13..25].trim() == "2").unwrap();
    let original = theirs.iter().find(|line| line.len() > 30 && line[13..25].trim() == "2").unwrap();
    assert_same_columns(interval, original);
    let (ours, theirs) = (find(ours, "WRITE_OPENS"), find(theirs, "WRITE_OPENS"));
    assert_same_columns(ours, theirs);
}

#[test]
fn the_table_of_a_raw_run_is_the_originals() {
    let run = Run::of(RAW, &[]);
    assert_eq!(run.status, 0, "{}", run.console);
    let theirs = shape("raw.console.txt");
    let theirs: Vec<&str> = theirs.iter().map(String::as_str).collect();
    let ours: Vec<&str> = run.console.lines().collect();
    for what in ["   interval  ", "1024**2     i/o", " avg_2-1 "] {
        assert_eq!(body(find(ours.iter().copied(), what)), body(find(theirs.iter().copied(), what)));
    }
    assert_same_columns(find(ours.iter().copied(), " avg_2-3 "), find(theirs.iter().copied(), " avg_2-6 "));
    let banner =
        "Starting RD=SD_format; I/O rate: Uncontrolled MAX; elapsed=(none); For loops: threads=2 iorate=max";
    assert!(run.console.contains(banner), "{}", run.console);
}

#[test]
fn flatfile_has_the_originals_columns() {
    for (text, name) in [(FILES, "files.flatfile.txt"), (RAW, "raw.flatfile.txt")] {
        let page = Run::of(text, &[]).page("flatfile.html");
        let theirs = shape(name);
        let names = find(page.lines(), "         tod  ");
        assert_eq!(names, theirs[0]);
        let rows: Vec<usize> = page
            .lines()
            .filter(|line| line.contains("-UTC "))
            .map(|line| line.split_whitespace().count())
            .collect();
        assert!(
            rows.len() >= 5 && rows.iter().all(|count| *count == theirs[1].split_whitespace().count()),
            "{rows:?}"
        );
    }
}

#[test]
fn histogram_skew_and_status_have_the_originals_shape() {
    let run = Run::of(FILES, &[]);
    let (page, theirs) = (run.page("histogram.html"), shape("files.histogram.txt"));
    assert_eq!(find(page.lines(), "min(ms)"), find(theirs.iter().map(String::as_str), "min(ms)"));
    let rows = |lines: Vec<String>| -> Vec<Vec<usize>> {
        let rows = lines.into_iter().filter(|line| line.contains(" < ") && !line.contains("min(ms)"));
        rows.take(27).map(|line| ends(&line[..54]).into_iter().take(5).collect()).collect()
    };
    let (found, original) = (rows(page.lines().map(String::from).collect()), rows(theirs));
    assert_eq!(found.len(), 27);
    assert_eq!(found, original);

    let (page, theirs) = (run.page("skew.html"), shape("files.skew.txt"));
    for what in [".ReqstdOps...  read", "FSD:            rate", "FWD:            rate"] {
        assert_eq!(body(find(page.lines(), what)), body(find(theirs.iter().map(String::as_str), what)));
    }
    let (page, theirs) = (Run::of(RAW, &[]).page("skew.html"), shape("raw.skew.txt"));
    for what in ["      i/o   MB/sec", "SD:                 rate"] {
        assert_eq!(body(find(page.lines(), what)), body(find(theirs.iter().map(String::as_str), what)));
    }
    assert_eq!(ends(find(page.lines(), "Total  ")), ends(find(theirs.iter().map(String::as_str), "Total  ")));

    let events = |lines: Vec<String>| -> Vec<String> {
        let of_runs =
            lines.into_iter().filter(|line| line.contains("\trd=") && line.contains("write_compressed"));
        of_runs.map(|line| line[24..].to_string()).collect()
    };
    let found = events(run.page("status.html").lines().map(String::from).collect());
    assert_eq!(found, events(shape("files.status.txt")));
    let status = run.page("status.html");
    let stamp = status.lines().find(|line| line.contains("\tStarting\t")).unwrap();
    assert!(stamp[..24].ends_with("-UTC ") && stamp.as_bytes()[2] == b'/', "{stamp}");
}

#[test]
fn every_page_is_there_and_the_json_agrees_with_the_tables() {
    let run = Run::of(FILES, &[]);
    for name in [
        "summary",
        "totals",
        "flatfile",
        "histogram",
        "status",
        "errorlog",
        "parmfile",
        "logfile",
        "anchors",
        "skew",
        "fsd1",
        "fsd1.histogram",
        "fwd1_1",
        "fwd1_1.histogram",
        "format",
    ] {
        assert!(run.page(&format!("{name}.html")).starts_with("<title>Vdbench "), "{name}");
    }
    assert!(run.page("parmfile.html").contains("\ncompratio=2.5\n"));
    let report: serde_json::Value = serde_json::from_str(&run.page("report.json")).unwrap();
    assert_eq!(
        (report["schema"].as_str(), report["version"].as_u64()),
        (Some("steadfast-lab-report"), Some(1))
    );
    let runs = report["runs"].as_array().unwrap();
    assert_eq!(
        (runs[0]["format"].as_bool(), runs[0]["whole"]["operations"]["write"]["bytes"].as_u64()),
        (Some(true), Some(8 << 20))
    );
    let average = find(run.console.lines(), " avg_2-3");
    let rate: f64 = average[26..].split_whitespace().next().unwrap().parse().unwrap();
    let json = runs[1]["average"]["requested"]["rate_per_s"].as_f64().unwrap();
    assert!((rate - json).abs() < 0.06, "{rate} and {json}");
    let write = &runs[1]["average"]["operations"]["write"];
    let p = |name: &str| write[name].as_f64().unwrap();
    assert!(p("p50_ms") > 0.0 && p("p50_ms") <= p("p90_ms") && p("p90_ms") <= p("p99_ms"), "{write}");
    assert!(p("p99_ms") <= p("max_ms"), "{write}");
    assert!(write["p999_ms"].is_null(), "some 200 operations have no p99.9: {write}");
    let latency = run.page("latency.csv");
    let columns: Vec<usize> = latency.lines().map(|line| line.split(',').count()).collect();
    assert!(columns.iter().all(|count| *count == 13), "{latency}");
    assert!(latency.lines().any(|line| line.starts_with("write_compressed,avg,write,")));
}

#[test]
fn storages_and_workloads_never_take_each_others_pages() {
    let text = RAW
        .replace("wd=wd1", "wd=sd1")
        .replace("sd=sd1,lun", "sd=totals,lun")
        .replace("sd=sd1,xfersize", "sd=totals,xfersize");
    let run = Run::of(&text, &["-e2"]);
    assert_eq!(run.status, 0, "{}", run.console);
    assert!(
        run.page("totals.html").contains("Run totals")
            && run.page("totals_2.html").contains("SD report for sd=totals")
    );
    assert!(run.page("sd1.html").contains("Workload Report for wd=sd1"));
}
