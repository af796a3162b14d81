//! parse, compare and print, on results of runs of ours and on lines of the original.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use steadfast_lab_report::vdbench_main;

fn vdbench(args: &[&str]) -> (i32, String, String) {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = vdbench_main(&args, &AtomicBool::new(false), &mut out, &mut err);
    (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
}

/// A flatfile in the original's shape, with a rate and a response time for each of two runs.
fn flatfile(dir: &Path, rates: [f64; 2]) -> String {
    fs::create_dir_all(dir).unwrap();
    let mut text = "<title>Vdbench x/flatfile.html</title><pre>\n* rate : found\ntod timestamp Run Interval reqrate rate MB/sec resp\n".to_string();
    for (run, rate) in ["rd1", "rd2"].iter().zip(rates) {
        text += &format!("01:00:00.000 11/21/2026-01:00:00-UTC {run} 1 max {rate:.1} 1.0 0.5\n");
        text += &format!(
            "01:00:01.000 11/21/2026-01:00:01-UTC {run}  avg_2-2 max {rate:.1} 1.0 {:.3}\n",
            100.0 / rate
        );
    }
    fs::write(dir.join("flatfile.html"), text).unwrap();
    dir.display().to_string()
}

#[test]
fn parse_picks_columns_and_rows() {
    let keep = tempfile::tempdir().unwrap();
    let input = flatfile(&keep.path().join("a"), [100.0, 200.0]) + "/flatfile.html";
    let said = vdbench(&["parse", "-i", &input, "-c", "run", "interval", "rate", "-f", "run", "rd2"]);
    assert_eq!(said, (0, "run,interval,rate\nrd2,1,200.0\n".into(), String::new()));
    let output = keep.path().join("o.csv").display().to_string();
    let (status, out, _) = vdbench(&["parseflat", "-i", &input, "-o", &output, "-a", "-c", "Run", "MB/sec"]);
    assert_eq!((status, out.as_str()), (0, ""));
    assert_eq!(fs::read_to_string(&output).unwrap(), "Run,MB/sec\nrd1,1.0\nrd2,1.0\n");
    let (status, _, err) = vdbench(&["parse", "-i", &input, "-c", "speed"]);
    assert!(status == 157 && err.contains("no column speed; there are: tod timestamp Run"), "{err}");
    assert_eq!(vdbench(&["parse"]).0, 157);
}

#[test]
fn parse_reads_what_a_run_of_ours_wrote() {
    let keep = tempfile::tempdir().unwrap();
    for (option, columns) in [("-t", ["Run", "rate", "queue_depth"]), ("-tf", ["Run", "Rate", "Read_resp"])] {
        let out = keep.path().join(option).display().to_string();
        assert_eq!(vdbench(&[option, "-e", "2", "-o", &out]).0, 0);
        let mut args = vec!["parse", "-i"];
        let input = format!("{out}/flatfile.html");
        args.extend([input.as_str(), "-a", "-c"]);
        args.extend(columns);
        let (status, rows, err) = vdbench(&args);
        assert_eq!((status, err.as_str()), (0, ""));
        assert!(rows.lines().any(|row| row.starts_with("rd1,")), "{rows}");
    }
}

#[test]
fn compare_judges_repeated_runs_by_their_ranges() {
    let keep = tempfile::tempdir().unwrap();
    let at = |name: &str, rates| flatfile(&keep.path().join(name), rates);
    let (a, b) = (at("old/1", [100.0, 100.0]), at("old/2", [110.0, 130.0]));
    let (c, d) = (at("new/1", [120.0, 120.0]), at("new/2", [130.0, 90.0]));
    let (status, table, err) = vdbench(&["compare", "old", &a, &b, "new", &c, &d]);
    assert_eq!((status, err.as_str()), (0, ""));
    let rows: Vec<&str> = table.lines().collect();
    let wanted = "rd1  rate    105.000  100.000..110.000  125.000  120.000..130.000    +19.0  better";
    assert!(rows.contains(&wanted), "{table}");
    let file = keep.path().join("table.txt").display().to_string();
    vdbench(&["compare", "-o", &file, "old", &a, &b, "new", &c, &d]);
    let tabs =
        wanted.split("  ").map(str::trim).filter(|word| !word.is_empty()).collect::<Vec<_>>().join("\t");
    assert!(fs::read_to_string(&file).unwrap().contains(&tabs), "a file has tabs");
    assert!(rows.iter().any(|row| row.starts_with("rd1  resp") && row.ends_with("better")), "{table}");
    assert!(
        rows.iter().any(|row| row.starts_with("rd2  rate") && row.ends_with("ranges overlap")),
        "{table}"
    );
    let parents = [keep.path().join("old"), keep.path().join("new")].map(|dir| dir.display().to_string());
    assert_eq!(
        vdbench(&["compare", &parents[0], &parents[1]]).1,
        table,
        "parents of directories are the same"
    );
    let (_, single, _) = vdbench(&["compare", &a, &c]);
    assert!(single.lines().skip(1).all(|row| row.ends_with("one run: no verdict")), "{single}");
    let header = "run,interval,operation,count,rate_per_s,bytes,mean_ms,stddev_ms,p50_ms,p90_ms,p99_ms,p99.9_ms,max_ms";
    for (dir, p99) in [(&a, 4.0), (&b, 5.0), (&c, 2.0), (&d, 3.0)] {
        let row = format!("rd1,avg,read,900,1,1,1,1,0.5,1.0,{p99},,9.0");
        fs::write(Path::new(dir).join("latency.csv"), format!("{header}\n{row}\n")).unwrap();
    }
    let (_, table, _) = vdbench(&["compare", "old", &a, &b, "new", &c, &d]);
    let p99: Vec<&str> = table.lines().filter(|row| row.contains("read p99")).collect();
    assert!(p99.len() == 1 && p99[0].ends_with("better"), "too few operations have no p99.9: {table}");
    let empty = keep.path().join("none").display().to_string();
    let (status, _, err) = vdbench(&["compare", &a, &empty]);
    assert!(status == 157 && err.contains("none cannot be read"), "{err}");
    assert_eq!(vdbench(&["compare", &a]).0, 157);
}

#[test]
fn print_shows_bytes_of_a_file() {
    let keep = tempfile::tempdir().unwrap();
    let file = keep.path().join("f").display().to_string();
    fs::write(&file, [vec![0u8; 4096], b"0123456789abcdefXY".to_vec()].concat()).unwrap();
    let wanted = "0x000000001000  30313233 34353637 38396162 63646566  0123456789abcdef\n\
                  0x000000001010  5859                                 XY\n";
    assert_eq!(vdbench(&["print", &file, "4k"]), (0, wanted.into(), String::new()));
    assert_eq!(
        vdbench(&["print", &file, "0x1010", "1"]).1,
        "0x000000001010  58                                   X\n"
    );
    for bad in [
        vec!["print", &file],
        vec!["print", &file, "x"],
        vec!["print", &file, "1m"],
        vec!["print", "/none", "0"],
    ] {
        assert_eq!(vdbench(&bad).0, 157, "{bad:?}");
    }
}
