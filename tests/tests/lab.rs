//! The lab and the demo as a newcomer types them, on real mounts: what they find, and that nothing
//! is left behind.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
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
    for words in ["Compression on (lz4)", "OpenZFS, report 000, on", "10.616 ms", "report: "] {
        assert!(ran.out.contains(words), "{words} is not in\n{}", ran.out);
    }
    nothing_left(&work);
    let json = fs::read_to_string(host.at("out/report.json")).unwrap();
    let html = fs::read_to_string(host.at("out/report.html")).unwrap();
    assert!(json.contains("\"schema\": \"steadfast-lab-report\""));
    assert!(html.starts_with("<!DOCTYPE html>") && html.contains("9.037 ms") && !html.contains("http://"));
    // The point of it: data that compresses 2.5 to 1 takes less than half of the space, and not
    // less than a third.
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

/// Tiny sizes and a short way: whether requests are counted and nothing is left, not how fast it
/// is.
#[test]
fn a_bucket_far_away_is_measured_and_cleaned_up() {
    let test = "a_bucket_far_away_is_measured_and_cleaned_up";
    if let Some(why) = no_fuse() {
        return skip(test, &why);
    }
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let line = "lab run bucket --tiny --rtt 1ms --arms bare,local --dir {}/work --out {}/out";
    if !is_root() {
        host.run(line).fails(1).says("needs root");
        return nothing_left(&work);
    }
    let ran = host.run(line).ok();
    nothing_left(&work);
    for words in ["goals are met", "| sequential write, durable, MB/s |", "import, round trips", "report: "] {
        assert!(ran.out.contains(words), "{words} is not in\n{}\n{}", ran.out, ran.err);
    }
    let html = fs::read_to_string(host.at("out/report.html")).unwrap();
    assert!(html.contains("requests over time") && html.contains("<polyline"));
    let json = fs::read_to_string(host.at("out/report.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&json).unwrap();
    for (row, least) in [("write_requests", 3.0), ("import_requests", 3.0), ("scrub_requests", 3.0)] {
        let row = report["rows"].as_array().unwrap().iter().find(|found| found["key"] == row).unwrap();
        let counted = row["values"]["local"][0].as_f64().unwrap();
        assert!(counted >= least, "{row}");
    }
    let (_, secret) = steadfast_hostile::KEYS[0];
    assert!(![&ran.out, &ran.err, &html, &json].into_iter().any(|text| text.contains(secret)));
}

/// Tiny sizes: whether kernels, audits and recoveries are measured, and nothing is left.
#[test]
fn retrievability_is_measured_and_cleaned_up() {
    let test = "retrievability_is_measured_and_cleaned_up";
    let program = steadfast_bin().with_file_name("examples").join("retrievability");
    if !program.is_file() {
        return skip(test, "the example `retrievability` of steadfast-por is not built");
    }
    if let Some(why) = no_fuse() {
        return skip(test, &why);
    }
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let tiny = |name: &str| format!("lab run {name} --tiny --rounds 1 --dir {{}}/work --out {{}}/{name}");
    let ran = host.run(&tiny("iris-encode")).ok();
    for words in ["| tag and encode, MB/s |", "| scalar |", "paper: 500", "report: "] {
        assert!(ran.out.contains(words), "{words} is not in\n{}\n{}", ran.out, ran.err);
    }
    if !is_root() {
        host.run(&tiny("iris-audit")).fails(1).says("needs root");
        return nothing_left(&work);
    }
    let figure = |name: &str, row: &str, arm: &str| {
        let json = fs::read_to_string(host.at(&format!("{name}/report.json"))).unwrap();
        let report: Value = serde_json::from_str(&json).unwrap();
        let row = report["rows"].as_array().unwrap().iter().find(|found| found["key"] == row).unwrap();
        row["values"][arm][0].as_f64().unwrap()
    };
    host.run(&tiny("iris-audit")).ok();
    nothing_left(&work);
    assert!(figure("iris-audit", "samples", "50") >= 2_759.0);
    assert!(figure("iris-audit", "deviations", "memory") < 4.0);
    host.run(&tiny("iris-recover")).ok();
    nothing_left(&work);
    assert!(figure("iris-recover", "lost", "pool") > 0.0);
    assert_eq!(figure("iris-recover", "whole", "memory"), 100.0);
    assert!(figure("iris-audit", "written_at250", "parity") > 0.0);
    assert!(figure("iris-recover", "rate_at250", "pool") > 0.0);
}

/// Tiny sizes and a short way: whether the time of operations is told apart and nothing is left.
#[test]
fn a_portal_is_asked_where_its_time_goes_and_is_cleaned_up() {
    let test = "a_portal_is_asked_where_its_time_goes_and_is_cleaned_up";
    if let Some(why) = no_fuse() {
        return skip(test, &why);
    }
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let line = "lab run iris-latency --tiny --rtt 2ms --dir {}/work --out {}/out --markdown {}/doc.md";
    if !is_root() {
        host.run(line).fails(1).says("needs root");
        return nothing_left(&work);
    }
    let ran = host.run(line).ok();
    nothing_left(&work);
    for words in ["| create, depth 3, ms |", "| list, round trips waited for |", "paper: 14 %", "report: "] {
        assert!(ran.out.contains(words), "{words} is not in\n{}\n{}", ran.out, ran.err);
    }
    let json = fs::read_to_string(host.at("out/report.json")).unwrap();
    let report: Value = serde_json::from_str(&json).unwrap();
    let bars = |heat: usize| report["stacks"][heat]["bars"].as_array().unwrap();
    // Cold and hot, on the same machine, then away.
    assert_eq!([0, 1, 2, 3].map(|heat| bars(heat).len()), [6; 4]);
    // Client, client network, portal, reads, writes.
    let part = |heat: usize, bar: usize, part: usize| bars(heat)[bar]["values"][part].as_f64().unwrap();
    assert!(part(0, 3, 3) > 0.0, "a cold read waits for the store");
    assert_eq!(part(1, 3, 3), 0.0, "a hot one does not");
    assert!(part(1, 0, 4) > 0.0, "a create waits until it is durable");
    assert!((0..4).all(|heat| (0..6).all(|bar| part(heat, bar, 2) > 0.0)), "the portal has its part of each");
    let network: f64 = (0..6).map(|bar| part(3, bar, 1)).sum();
    assert!(network > 0.0, "a client that is away has a network");
    let rows = report["rows"].as_array().unwrap();
    let has =
        |row: &str, arm: &str| rows.iter().any(|one| one["key"] == row && one["values"][arm].is_array());
    for (row, arm) in [("share", "away_cold"), ("list_network", "hot"), ("getattr_away", "away_hot")] {
        assert!(has(row, arm), "{row} of {arm}");
    }
    let html = fs::read_to_string(host.at("out/report.html")).unwrap();
    assert!(
        html.contains("Cold: nothing in memory; client away") && html.contains("<title>client network: ")
    );
    let document = fs::read_to_string(host.at("doc.md")).unwrap();
    assert!(
        document.contains("(img/iris-latency-cold.svg)") && host.at("img/iris-latency-away-hot.svg").exists()
    );
}

/// Tiny sizes: whether caches are set, clients come and nothing is left.
#[test]
fn caches_and_crowds_of_a_portal_are_measured_and_cleaned_up() {
    let test = "caches_and_crowds_of_a_portal_are_measured_and_cleaned_up";
    if let Some(why) = no_fuse() {
        return skip(test, &why);
    }
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let run = |experiment: &str, options: &str, words: &[&str]| {
        let places = format!("--dir {{}}/work --out {{}}/{experiment}");
        let line = format!("lab run {experiment} --tiny --rtt 1ms {options} {places}");
        if !is_root() {
            host.run(&line).fails(1).says("needs root");
            return None;
        }
        let ran = host.run(&line).ok();
        nothing_left(&work);
        for words in words {
            assert!(ran.out.contains(words), "{words} is not in\n{}\n{}", ran.out, ran.err);
        }
        let json = fs::read_to_string(host.at(&format!("{experiment}/report.json"))).unwrap();
        Some(serde_json::from_str::<Value>(&json).unwrap())
    };
    let of = |report: &Value, row: &str, arm: &str| {
        let rows = report["rows"].as_array().unwrap();
        rows.iter().find(|found| found["key"] == row).unwrap()["values"][arm][0].as_f64().unwrap()
    };
    let words = ["| knee at a round trip of 1 ms, MB |", "tar: knee at a round trip of 1 ms at most 5 MB"];
    let Some(report) = run("iris-cache", "", &words) else { return };
    let found = of(&report, "hits_1_5242880", "tar");
    assert!(found > 0.0 && found < 100.0, "{found} % of the nodes were found");
    let words =
        ["| sequential read, cold, link of 250 MB/s, MB/s |", "3 clients", "bare loop", "one of 2 processes"];
    let options = "--rounds 2 --processes 2 --client-rate 100M";
    let Some(report) = run("iris-scale", options, &words) else { return };
    assert!(of(&report, "write", "3") > 0.0 && of(&report, "random_read", "1") > 0.0);
    let rows = report["rows"].as_array().unwrap();
    for (row, arm) in [
        ("read", "bare"),
        ("read", "3"),
        ("read_cpu_all", "bare"),
        ("write_cpu_daemon", "3"),
        ("read_at250", "bare"),
        ("write_of_limit_at250", "3"),
    ] {
        let found = rows.iter().find(|found| found["key"] == row).unwrap();
        assert_eq!(found["values"][arm].as_array().unwrap().len(), 2, "{row} of {arm} in each round");
    }
    assert!(rows.iter().all(|row| row["key"] != "random_read_at250"), "a limit is for sequential work alone");
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

/// Tiny sizes: whether every server does all of the work, where Ganesha is installed that one too,
/// and nothing is left.
#[test]
fn nfs_servers_are_measured_side_by_side_and_cleaned_up() {
    let test = "nfs_servers_are_measured_side_by_side_and_cleaned_up";
    let host = Host::new();
    if let Some(why) = no_fuse().or_else(|| is_root().then(|| no_loops(&host)).flatten()) {
        return skip(test, &why);
    }
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let line = "lab run iris-fronts --tiny --clients 3 --dir {}/work --out {}/out";
    if !is_root() {
        host.run(line).fails(1).says("needs root");
        return nothing_left(&work);
    }
    let ran = host.run(line).ok();
    nothing_left(&work);
    nothing_attached(&host, &work);
    let json = fs::read_to_string(host.at("out/report.json")).unwrap();
    let report: Value = serde_json::from_str(&json).unwrap();
    let arms = report["arms"].as_array().unwrap();
    let missing = arms.iter().any(|arm| arm["missing"].is_string());
    let taking_part = if missing { 2 } else { 4 };
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2 * 12, "ten kinds of work and two processor times, by one client and by three");
    for row in rows {
        let values = row["values"].as_object().unwrap();
        assert_eq!(values.len(), taking_part, "{}", row["key"]);
        let is_time = row["key"].as_str().unwrap().contains("_cpu");
        assert!(is_time || values.values().all(|value| value[0].as_f64().unwrap() > 0.0), "{row}");
    }
    match missing {
        true => assert!(ran.out.contains("apt install nfs-ganesha"), "{}", ran.out),
        false => assert!(ran.out.contains("Ganesha on ext4"), "{}", ran.out),
    }
}

#[track_caller]
fn nothing_attached(host: &Host, work: &Path) {
    let attached = host.exec("losetup", &["--list", "--noheadings", "--output", "BACK-FILE"], b"").ok();
    assert!(!attached.out.contains(&work.display().to_string()), "still attached:\n{}", attached.out);
}

/// Tiny sizes: whether it runs to its end, says what it must, and takes everything away, not how
/// fast anything is.
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
        "cow.parm equal to ext4's rate",
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

    // A mode that this build refuses is a column that says so; one that it takes has figures. Never
    // both.
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

/// Nobody lives below `work` any more: a daemon is told by its environment where it does.
#[track_caller]
fn nobody_left(work: &Path) {
    let path = work.display().to_string();
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let about = fs::read(process.path().join("environ")).unwrap_or_default();
        let lives = about.windows(path.len()).any(|window| window == path.as_bytes());
        assert!(!lives, "process {} still lives below {path}", process.file_name().display());
    }
}

/// Mounts, loop devices, daemons and files are gone.
#[track_caller]
fn all_gone(host: &Host, work: &Path) {
    nothing_left(work);
    nothing_attached(host, work);
    nobody_left(work);
}

/// `report.json` of an experiment with rows.
struct Figures(Value);

impl Figures {
    #[track_caller]
    fn of(host: &Host, out: &str) -> Figures {
        let text = fs::read_to_string(host.at(out).join("report.json")).unwrap();
        Figures(serde_json::from_str(&text).unwrap())
    }

    fn list(&self, name: &str) -> &[Value] {
        self.0[name].as_array().map_or(&[], Vec::as_slice)
    }

    /// Whether the report says why this one took no part or came to no end.
    fn lacks(&self, arm: &str) -> bool {
        !self.list("arms").iter().any(|known| known["key"] == arm && known["missing"].is_null())
    }

    /// Figures of an arm in a row: as many as there should be.
    #[track_caller]
    fn values(&self, row: &str, arm: &str, count: usize) -> Vec<f64> {
        let known = self.list("rows").iter().find(|known| known["key"] == row);
        let known = known.unwrap_or_else(|| panic!("no row {row}"));
        let values: Vec<f64> = known["values"][arm].as_array().map_or(Vec::new(), |values| {
            values.iter().map(|value| value.as_f64().unwrap_or(f64::NAN)).collect()
        });
        assert_eq!(values.len(), count, "{row} of {arm}: {values:?}");
        assert!(values.iter().all(|value| value.is_finite()), "{row} of {arm}: {values:?}");
        values
    }

    /// The one figure of a row.
    #[track_caller]
    fn value(&self, row: &str, arm: &str) -> f64 {
        self.values(row, arm, 1)[0]
    }

    /// The one figure of a row, which is of something that takes time or room.
    #[track_caller]
    fn positive(&self, row: &str, arm: &str) -> f64 {
        let value = self.value(row, arm);
        assert!(value > 0.0, "{row} of {arm}: {value}");
        value
    }

    /// Some goal is judged by this figure, and rightly.
    #[track_caller]
    fn judged(&self, row: &str, arm: &str, measured: f64) {
        let is_it = |goal: &&Value| goal["row"] == row && goal["arm"] == arm;
        let goal = self.list("goals").iter().find(is_it);
        let goal = goal.unwrap_or_else(|| panic!("no goal of {row} and {arm}"));
        same(goal["measured"].as_f64().unwrap(), measured, &goal.to_string());
        let limit = goal["limit"].as_f64().unwrap();
        let is_least = goal["at_least"].as_bool().unwrap();
        let met = if is_least { measured >= limit } else { measured <= limit };
        assert_eq!(goal["verdict"] == "met", met, "{goal}");
    }
}

/// Two ways to one figure.
#[track_caller]
fn same(one: f64, other: f64, what: &str) {
    assert!((one - other).abs() <= 1e-9 * other.abs(), "{what}: {one} and {other}");
}

/// Why bytes cannot go past the page cache here, as an experiment with devices wants it; none if
/// they can.
fn no_direct(host: &Host) -> Option<String> {
    let line = "dd if=/dev/zero of=direct.img bs=1M count=1 oflag=direct status=none && rm direct.img";
    let tried = host.exec("bash", &["-euc", line], b"");
    (tried.status != 0)
        .then(|| format!("no direct transfers in {}: {}", host.path().display(), tried.err.trim()))
}

/// Why an experiment on devices cannot be run here; none if it can. A user other than root is
/// refused in a sentence.
fn no_devices(host: &Host, line: &str) -> Option<String> {
    if let Some(why) = no_fuse() {
        return Some(why);
    }
    if !is_root() {
        host.run(line).fails(1).says("needs root");
        return Some("needs root".to_owned());
    }
    no_loops(host).or_else(|| no_direct(host))
}

/// The page can be drawn again from the data alone, and the document has table and pictures between
/// its marks.
#[track_caller]
fn drawn_and_placed(host: &Host, experiment: &str) {
    let html = fs::read_to_string(host.at("out/report.html")).unwrap();
    assert!(html.starts_with("<!DOCTYPE html>") && !html.contains("src=") && !html.contains("<link"));
    host.run("lab show {}/out/report.json -o {}/again.html").ok();
    assert_eq!(fs::read_to_string(host.at("again.html")).unwrap(), html);
    let document = fs::read_to_string(host.at("doc.md")).unwrap();
    assert!(document.starts_with(&format!("<!-- {experiment} -->")), "{document}");
    let pictures = fs::read_dir(host.at("img")).unwrap().count();
    assert!(pictures > 0 && document.matches("](img/").count() == pictures, "{pictures}: {document}");
}

/// Tiny sizes: whether it runs to its end, says what it must in figures that fit each other, and
/// takes everything away.
fn recovery_of(test: &str, arm: &str, (width, parity): (f64, f64)) -> Option<(Host, Figures, String)> {
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let line = format!(
        "lab run recovery --tiny --rounds 1 --arms {arm} --dir {{}}/work --out {{}}/out --markdown {{}}/doc.md"
    );
    if let Some(why) = no_devices(&host, &line) {
        nothing_left(&work);
        skip(test, &why);
        return None;
    }
    let ran = host.run(&line).ok();
    all_gone(&host, &work);
    let head = format!("| {arm} of {width} |");
    for words in ["goals are met", head.as_str(), "Every byte was compared", "report: "] {
        assert!(ran.out.contains(words), "{words} is not in\n{}\n{}", ran.out, ran.err);
    }
    drawn_and_placed(&host, "recovery");
    let report = Figures::of(&host, "out");
    assert!(!report.lacks(arm), "{}", ran.out);
    let of = |row: &str| report.positive(row, arm);
    let each = |row: &str| report.values(row, arm, 3);
    for row in ["fill", "fill_busy", "fill_all", "read", "clone", "row", "verify"] {
        assert!(each(row).iter().all(|value| *value > 0.0), "{row}: {:?}", each(row));
    }
    for (fill, share) in each("fill").iter().zip(each("fill_all")) {
        same(share, fill / (of("all") * (width - parity) / width), "filling over its share");
    }
    // Of every scrub and resilver there is a course, and the figures are those of the courses.
    let course = |what: &str, fill: u64| {
        let is_it = |course: &&Value| course["what"] == what && course["fill"] == fill;
        report.list("courses").iter().find(is_it).unwrap_or_else(|| panic!("{what} at {fill} %"))
    };
    for fill in [25, 50, 75] {
        for (row, what, bytes) in [
            ("scrub", "scrub", "read"),
            ("heal", "heal", "written"),
            ("healread", "heal", "read"),
            ("resilver", "resilver", "written"),
            ("copy", "copy", "written"),
        ] {
            let course = course(what, fill);
            let moved = course[bytes].as_f64().unwrap();
            let rate = moved / 1e6 / course["seconds"].as_f64().unwrap();
            same(of(&format!("{row}{fill}")), rate, &format!("{row} at {fill} %"));
            let last = course["points"].as_array().unwrap().last().unwrap();
            let at: usize = if bytes == "read" { 1 } else { 2 };
            assert!(last[at].as_f64().unwrap() <= moved, "{course}");
        }
        // A resilver rebuilds a column of the written data, and not all of a device.
        let share = course("resilver", fill)["written"].as_f64().unwrap() / f64::from(64 << 20);
        assert!(share > 0.1 && share < 1.2, "{share} of a device at {fill} %");
        of(&format!("scrubbed{fill}"));
    }
    let (read, clone, row) = (each("read")[2], each("clone")[2], each("row")[2]);
    for (ratio, what, limit) in [
        ("scrub_read", "scrub75", read),
        ("resilver_clone", "resilver75", clone),
        ("resilver_row", "resilver75", row),
        ("copy_clone", "copy75", clone),
    ] {
        same(of(ratio), of(what) / limit, ratio);
        report.judged(ratio, arm, of(ratio));
    }
    same(of("slower"), of("read_whole") / of("read_degraded"), "slower");
    report.judged("slower", arm, of("slower"));
    let mut shares = each("fill_all");
    shares.sort_by(f64::total_cmp);
    report.judged("fill_all", arm, shares[1]);
    Some((host, report, ran.out))
}

#[test]
fn recovery_of_raidz2_is_measured_and_cleaned_up() {
    let test = "recovery_of_raidz2_is_measured_and_cleaned_up";
    let Some((_host, report, _)) = recovery_of(test, "raidz2", (6.0, 2.0)) else { return };
    assert!(!report.list("rows").iter().any(|row| row["key"] == "memory16"), "asked of raidz1 alone");
}

#[test]
fn recovery_of_raidz1_and_what_helps_it_is_measured_and_cleaned_up() {
    let test = "recovery_of_raidz1_and_what_helps_it_is_measured_and_cleaned_up";
    let Some((_host, report, said)) = recovery_of(test, "raidz1", (4.0, 1.0)) else { return };
    for row in [
        "memory16",
        "memory1024",
        "diskheal",
        "diskresilver",
        "diskcacheheal",
        "diskcacheresilver",
        "disklogheal",
        "disklogresilver",
        "small_cold",
        "small_again",
        "small_memory",
        "small_cache",
        "small_special",
        "small_both",
    ] {
        report.positive(row, "raidz1");
    }
    // The cache device was not in vain for want of content, and the report says why it was all the
    // same.
    let held = report.value("diskcacheheld", "raidz1");
    assert!((0.3..1.2).contains(&held), "{held} of the content");
    assert!(said.contains("read the columns of the devices themselves"), "{said}");
    let model = "read by one reader from hard disks (disk seek=1ms rate=400M";
    assert_eq!(said.matches(model).count(), 1, "{said}");
}

/// A zfs-fuse that is none: its pools are in memory, and it fails where it is told.
const STAND_IN: &str = r#"
mkdir -p bin/state
cat > bin/zfs-fuse <<'END'
#!/bin/sh
exec sleep 100000
END
cat > bin/zpool <<'END'
#!/bin/sh
state=${0%/*}/state
echo "$1" >> "$state/said"
if grep -qx "$1 $(grep -cx "$1" "$state/said")" "$state/fails"; then
    echo "this $1 is to fail" >&2
    exit 1
fi
case $1 in
create) mount -t tmpfs -o size=96m stand-in "$4" && echo "$4" > "$state/pool.$5" ;;
destroy) umount "$(cat "$state/pool.$3")" && rm "$state/pool.$3" ;;
list) test -z "$2" || test -e "$state/pool.$2" ;;
esac
END
chmod +x bin/*
"#;

#[test]
fn a_stranger_that_fails_in_a_step_of_recovery_keeps_its_other_figures() {
    let test = "a_stranger_that_fails_in_a_step_of_recovery_keeps_its_other_figures";
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let line =
        "lab run recovery --tiny --rounds 3 --arms zfs-fuse --zfs-fuse {}/bin --dir {}/work --out {}/out";
    if let Some(why) = no_devices(&host, line) {
        nothing_left(&work);
        return skip(test, &why);
    }
    host.shell(STAND_IN).ok();
    // Round 1 makes nothing. Round 2: the resilver at 50 %. Round 3: the replace of a healthy
    // device at 25 %, the clean scrub at 50 %, and at 75 % the scrub that is to heal, and the one
    // that is to mend what was not healed.
    let fails = ["create 1", "replace 3", "replace 7", "scrub 10", "scrub 13", "scrub 14"];
    fs::write(host.at("bin/state/fails"), fails.join("\n") + "\n").unwrap();
    let ran = host.run(line).ok();
    all_gone(&host, &work);
    let report = Figures::of(&host, "out");
    for (row, count) in [
        ("fill", 6),
        ("verify", 5),
        ("scrubbed25", 2),
        ("heal25", 2),
        ("resilver25", 2),
        ("copy25", 1),
        ("scrubbed50", 1),
        ("heal50", 2),
        ("resilver50", 1),
        ("copy50", 1),
        ("scrubbed75", 1),
        ("heal75", 1),
        ("resilver75", 1),
        ("copy75", 1),
    ] {
        report.values(row, "zfs-fuse", count);
    }
    for words in [
        "round 2 at 50 %: replacing a zeroed device did not come to its end, and its other figures stand",
        "round 3 at 25 %: replacing a healthy device did not come to its end",
        "round 3 at 50 %: a clean scrub did not come to its end",
        "round 3 at 75 %: healing a zeroed device by a scrub did not come to its end",
        "zfs-fuse raidz1 of 4 did not come to its end: round 1: ",
        "; round 3: ",
    ] {
        assert_eq!(ran.out.matches(words).count(), 1, "{words}:\n{}\n{}", ran.out, ran.err);
    }
    assert!(!ran.out.contains(&work.display().to_string()), "{}", ran.out);
}

#[test]
fn snapshots_are_measured_beside_btrfs_and_cleaned_up() {
    let test = "snapshots_are_measured_beside_btrfs_and_cleaned_up";
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let line = "lab run snapshots --tiny --dir {}/work --out {}/out --markdown {}/doc.md";
    if let Some(why) = no_devices(&host, line) {
        nothing_left(&work);
        return skip(test, &why);
    }
    let ran = host.run(line).ok();
    all_gone(&host, &work);
    for words in ["goals are met", "| steadfast |", "report: "] {
        assert!(ran.out.contains(words), "{words} is not in\n{}\n{}", ran.out, ran.err);
    }
    drawn_and_placed(&host, "snapshots");
    let report = Figures::of(&host, "out");
    assert!(!report.lacks("steadfast"), "{}", ran.out);
    for arm in ["steadfast", "btrfs"].into_iter().filter(|arm| !report.lacks(arm)) {
        for count in [0, 10, 20] {
            for row in ["take", "writes", "list"] {
                report.positive(&format!("{row}{count}"), arm);
            }
        }
        for row in ["each", "destroy", "freed"] {
            report.positive(row, arm);
        }
        for row in ["room", "unique1", "unique10"] {
            report.value(row, arm);
        }
        // Streams: what is compared fits what it is made of, and the increment has what was written
        // anew, and little else.
        let of = |row: &str| report.positive(&format!("stream_{row}"), arm);
        let seconds = f64::from(16 << 20) / 1e6 / of("rate");
        same(of("cp"), of("rate") / of("copied"), "sent over copied");
        same(of("part_share"), of("part_bytes") / of("bytes"), "share of bytes");
        same(of("part_time"), of("part") / seconds, "share of time");
        same(of("part_send_time"), of("part_send") / of("send"), "share of sending");
        assert!((16.7..18.0).contains(&of("bytes")), "{} MB of 16.8", of("bytes"));
        assert!((0.26..0.40).contains(&of("part_bytes")), "{} MB of 0.262", of("part_bytes"));
    }
    // The written data is kept, and little else.
    let kept = report.positive("unique10", "steadfast");
    assert!((0.9..4.0).contains(&kept), "{kept} of what was written");
    let ours = |row: &str| report.positive(row, "steadfast");
    for row in ["take0", "take20", "list20"] {
        report.judged(row, "steadfast", ours(row));
    }
    report.judged("slower", "steadfast", ours("writes20") / ours("writes10"));
    for row in ["stream_cp", "stream_part_share", "stream_part_time"] {
        report.judged(row, "steadfast", ours(row));
    }
}

#[test]
fn dedup_is_measured_beside_btrfs_and_xfs_and_cleaned_up() {
    let test = "dedup_is_measured_beside_btrfs_and_xfs_and_cleaned_up";
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let line = "lab run dedup --tiny --rounds 1 --dir {}/work --out {}/out --markdown {}/doc.md";
    if let Some(why) = no_devices(&host, line) {
        nothing_left(&work);
        return skip(test, &why);
    }
    let ran = host.run(line).ok();
    all_gone(&host, &work);
    for words in ["goals are met", "| dedup=off |", "report: "] {
        assert!(ran.out.contains(words), "{words} is not in\n{}\n{}", ran.out, ran.err);
    }
    drawn_and_placed(&host, "dedup");
    let report = Figures::of(&host, "out");
    assert!(!report.lacks("steadfast") && !report.lacks("dedup"), "{}", ran.out);
    for arm in ["steadfast", "dedup", "btrfs", "xfs"].into_iter().filter(|arm| !report.lacks(arm)) {
        for row in ["unique", "unique99", "again", "again99", "copy", "room1", "writes", "parting", "remove"]
        {
            report.positive(row, arm);
        }
        for row in ["room2", "room3", "adds_up"] {
            report.value(row, arm);
        }
    }
    let ratio = |row: &str| report.positive(row, "dedup") / report.positive(row, "steadfast");
    for row in ["unique", "again"] {
        report.judged(row, "dedup", ratio(row));
    }
    for (row, arm) in [("room2", "dedup"), ("room3", "steadfast")] {
        report.judged(row, arm, report.value(row, arm));
    }
    // The point of it: content that is there already takes no room again, and content that is
    // there twice takes half.
    assert!(report.value("room2", "dedup") < 0.1 && report.value("room2", "steadfast") > 0.5, "{}", ran.out);
    assert!(report.value("room3", "steadfast") < 0.1, "{}", ran.out);
    let (once, twice) = (report.positive("ratio1", "dedup"), report.positive("ratio2", "dedup"));
    assert!((0.35..0.75).contains(&(twice / once)), "{twice} of {once}");
    assert!(report.positive("adds_up", "dedup") < report.positive("adds_up", "steadfast"), "{}", ran.out);
}

/// Waits until a run has come so far; fails with what the run says if it ends before.
#[track_caller]
fn running_until(mut child: Child, so_far: &str, has_come: impl Fn() -> bool) -> Child {
    while !has_come() {
        if child.try_wait().unwrap().is_some() {
            let ended = child.wait_with_output().unwrap();
            panic!("the run ended before {so_far}: {}", String::from_utf8_lossy(&ended.stderr));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child
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
    let child = spawn(command.arg("--dir").arg(&work).stderr(Stdio::piped())).unwrap();
    let mounted =
        || fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&work.display().to_string());
    let child = running_until(child, "anything was mounted", mounted);
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
    let child = spawn(command.arg("--work").arg(&work).stderr(Stdio::piped())).unwrap();
    let mounted = || {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        mounts.matches(&work.display().to_string()).count() >= 3
    };
    let child = running_until(child, "anything was mounted", mounted);
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
    let child = spawn(command.arg("--dir").arg(&work).stderr(Stdio::piped())).unwrap();
    let child = running_until(child, "it came to the command", || host.at("bin/zpool.reached").exists());
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
        let child = spawn(&mut command).unwrap();
        let reached = || host.at("bin/mkfs.ext4.reached").exists();
        let child = running_until(child, "it came to the command", reached);
        host.exec("kill", &["-INT", &child.id().to_string()], b"").ok();
        let ended = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{experiment}: {said}");
        nothing_left(&work);
        fs::remove_file(host.at("bin/mkfs.ext4.reached")).unwrap();
    }
}

#[test]
fn the_demo_tells_its_story_and_heals() {
    if let Some(why) = no_fuse() {
        return skip("the_demo_tells_its_story_and_heals", &why);
    }
    let host = Host::new();
    let work = host.at("work");
    fs::create_dir(&work).unwrap();
    let ran = host.run("demo --quick --out {}/out --work {}/work").ok();
    for words in [
        "Compression on (lz4)",
        "Encryption on",
        "in 00:00:00 with 0 errors",
        "demo1.img deleted",
        "fresh.img",
        "resilvered",
    ] {
        assert!(ran.out.contains(words), "{words} is not in\n{}", ran.out);
    }
    // After the flip, without an image, and after its replacement.
    for file in ["letters.txt", "photos.tar", "thesis.pdf"] {
        let line = format!("{file:<12} read; all bytes are as written");
        assert_eq!(ran.out.matches(&line).count(), 3, "{line}\n{}", ran.out);
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
