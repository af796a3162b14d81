use super::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use steadfast_lab_params::Rate;
use steadfast_lab_params::{Operation, parse_text};

fn run(text: &str) -> Result<Outcome, Error> {
    let plan = parse_text("test.parm", text).unwrap();
    let mut outcome = execute(&plan, &Options::default(), &AtomicBool::new(false), &mut |_| {});
    outcome.refused.take().map_or(Ok(outcome), Err)
}

/// All files below a directory, sorted.
fn tree(root: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut open = vec![root.to_path_buf()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { out.push(path) }
        }
    }
    out.sort();
    out
}

#[test]
fn a_format_makes_the_tree_and_reads_and_writes_use_it() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "compratio=2.5\nfsd=fsd1,anchor={}/a,depth=2,width=2,files=2,size=256k\n\
         fwd=w,fsd=fsd1,operation=write,xfersize=64k,fileio=sequential,fileselect=random,threads=2\n\
         fwd=r,fsd=fsd1,operation=read,xfersize=64k,fileio=sequential,fileselect=random,threads=2\n\
         rd=write,fwd=w,fwdrate=100,format=yes,elapsed=2,interval=1\nrd=read,fwd=r,fwdrate=100,format=no,elapsed=2,interval=1\n",
        dir.path().display()
    );
    let outcome = run(&text).unwrap();
    assert_eq!(outcome.failure(), None);
    let labels: Vec<&str> = outcome.runs.iter().map(|r| r.run.label.as_str()).collect();
    assert_eq!(labels, ["format_for_write", "write", "read"]);
    let format = &outcome.runs[0].whole;
    assert_eq!(format.operation(Operation::Mkdir).count, 6);
    assert_eq!(format.operation(Operation::Create).count, 8);
    assert_eq!(
        (format.operation(Operation::Write).count, format.operation(Operation::Write).bytes),
        (16, 8 * 256 * 1024)
    );
    let files = tree(&dir.path().join("a"));
    assert_eq!(files.len(), 9);
    for file in files.iter().filter(|f| !f.ends_with("vdb_control.file")) {
        assert_eq!(fs::metadata(file).unwrap().len(), 256 * 1024);
    }
    // 200 arrivals expected; six standard deviations of a Poisson process.
    for (run, operation) in [(1, Operation::Write), (2, Operation::Read)] {
        let count = outcome.runs[run].whole.operation(operation).count;
        assert!(count.abs_diff(200) < 85, "{count} operations at a rate of 100 for two seconds");
        assert!(outcome.runs[run].did_work());
    }
    let stored: usize = files
        .iter()
        .filter(|f| !f.ends_with("vdb_control.file"))
        .flat_map(|f| fs::read(f).unwrap().chunks(128 << 10).map(<[u8]>::to_vec).collect::<Vec<_>>())
        .map(|block| lz4_flex::block::compress(&block).len())
        .sum();
    let ratio = (8 * 256 * 1024) as f64 / stored as f64;
    assert!((ratio / 2.5 - 1.0).abs() < 0.03, "what lies on the disk compresses {ratio} to 1");
}

#[test]
fn a_missing_storage_is_filled_and_mixes_are_as_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "sd=sd1,lun={}/file,size=8m\nwd=wd1,sd=sd1,xfersize=4k,rdpct=70,rhpct=50\n\
         rd=rd1,wd=wd1,iorate=max,elapsed=2,interval=1,threads=2\n",
        dir.path().display()
    );
    let outcome = run(&text).unwrap();
    assert_eq!(outcome.runs[0].run.label, "SD_format");
    assert_eq!(outcome.runs[0].whole.operation(Operation::Write).bytes, 8 << 20);
    assert_eq!(fs::metadata(dir.path().join("file")).unwrap().len(), 8 << 20);
    let (read, write) =
        (outcome.runs[1].whole.operation(Operation::Read), outcome.runs[1].whole.operation(Operation::Write));
    let share = read.count as f64 / (read.count + write.count) as f64;
    assert!(read.count > 1_000, "{}", read.count);
    assert!((share - 0.7).abs() < 0.05, "{share}");
    assert_eq!((read.bytes, write.bytes), (read.count * 4096, write.count * 4096));
}

#[test]
fn metadata_operations_count_what_they_do() {
    let dir = tempfile::tempdir().unwrap();
    let anchor = dir.path().join("a");
    let text = |operations: &str, format: &str| {
        format!(
            "fsd=fsd1,anchor={},depth=1,width=3,files=4,size=4k\nfwd=f,fsd=fsd1,operation=({operations}),fileselect=sequential\n\
             rd=rd1,fwd=f,fwdrate=200,elapsed=2,interval=1{format}\n",
            anchor.display()
        )
    };
    let outcome = run(&text("getattr,setattr,access,open,close", ",format=yes")).unwrap();
    let found = &outcome.runs[1].whole;
    for operation in
        [Operation::Getattr, Operation::Setattr, Operation::Access, Operation::Open, Operation::Close]
    {
        let count = found.operation(operation).count;
        assert!(count > 20, "{operation:?}: {count}");
    }
    let outcome = run(&text("delete", "")).unwrap();
    assert_eq!(outcome.runs[0].whole.operation(Operation::Delete).count, 12);
    assert_eq!(tree(&anchor).len(), 1, "only the control file is left");
    let outcome = run(&text("rmdir", "")).unwrap();
    assert_eq!(outcome.runs[0].whole.operation(Operation::Rmdir).count, 3);
    let outcome = run(&text("mkdir,create", "")).unwrap();
    assert_eq!(outcome.runs[0].whole.operation(Operation::Mkdir).count, 3);
    assert_eq!(outcome.runs[0].whole.operation(Operation::Create).count, 12);
    assert_eq!(tree(&anchor).len(), 13);
}

#[test]
fn copies_and_moves_arrive_at_their_target() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display();
    let text = |operation: &str| {
        format!(
            "fsd=fsd1,anchor={here}/a,depth=1,width=1,files=3,size=4k\nfsd=fsd2,anchor={here}/b,depth=1,width=1,files=3,size=4k\n\
             fwd=f,fsd=fsd1,target=fsd2,operation={operation},fileselect=once\nrd=rd1,fwd=f,fwdrate=max,elapsed=2,interval=1,format=yes\n"
        )
    };
    for (operation, left) in [("copy", 4), ("move", 1)] {
        let outcome = run(&text(operation)).unwrap();
        assert_eq!(outcome.failure(), None);
        assert_eq!(outcome.runs[1].whole.requested().count, 3);
        assert_eq!(tree(&dir.path().join("a")).len(), left, "{operation}");
        assert_eq!(tree(&dir.path().join("b")).len(), 4);
    }
}

#[test]
fn skewed_workloads_keep_their_shares_at_full_speed() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "fsd=fsd1,anchor={}/a,depth=1,width=1,files=8,size=64k\n\
         fwd=big,fsd=fsd1,operation=read,fileio=random,fileselect=random,skew=75\n\
         fwd=small,fsd=fsd1,operation=read,fileio=random,fileselect=random\n\
         rd=rd1,fwd=(big,small),fwdrate=max,elapsed=2,interval=1,format=yes\n",
        dir.path().display()
    );
    let outcome = run(&text).unwrap();
    let of = |name: &str| outcome.runs[1].whole.merged(|g| g.workload == name && g.requested).count as f64;
    let share = of("big") / (of("big") + of("small"));
    assert!((share - 0.75).abs() < 0.03, "{share}");
}

#[test]
fn a_curve_runs_its_points_at_the_proportions_it_found() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "sd=sd1,lun={}/f,size=4m,threads=2\nwd=wd1,sd=sd1,rdpct=100\nrd=rd1,wd=wd1,iorate=curve,curve=(1,2),elapsed=2,interval=1\n",
        dir.path().display()
    );
    let outcome = run(&text).unwrap();
    let labels: Vec<&str> = outcome.runs.iter().map(|r| r.run.label.as_str()).collect();
    assert_eq!(labels, ["SD_format", "rd1", "rd1_(1%)", "rd1_(2%)"]);
    let Rate::Fixed(rate) = outcome.runs[2].run.rate else { panic!("no rate") };
    let count = outcome.runs[2].whole.requested().count as f64;
    assert!(
        count > 0.5 * rate && count < 2.5 * rate,
        "{count} operations at a rate of {rate} for two seconds"
    );
}

#[test]
fn reading_where_nothing_is_says_so_and_did_no_work() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "fsd=fsd1,anchor={}/a,depth=1,width=1,files=2,size=8k\nfwd=fwd1,fsd=fsd1,operation=read\n\
         rd=rd1,fwd=fwd1,fwdrate=max,format=no,elapsed=4,interval=1\n",
        dir.path().display()
    );
    let plan = parse_text("bad9.parm", &text).unwrap();
    let mut said = Vec::new();
    let outcome = execute(&plan, &Options::default(), &AtomicBool::new(false), &mut |event| {
        if let Event::Message(text) = event {
            said.push(text.to_string());
        }
    });
    assert!(said.iter().any(|text| text.contains("finds no files")), "{said:?}");
    assert_eq!(outcome.idle_runs(), ["rd1"]);
}

#[test]
fn what_cannot_begin_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let here = dir.path().display();
    let error = run(&format!("sd=sd1,lun={here}/nodir/f1,size=10m\nrd=rd1,sd=sd1,iorate=max\n"))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with(&format!("Open for lun '{here}/nodir/f1' failed\nENOENT")), "{error}");
    let error = run(&format!("sd=sd1,lun={here}/f1\nrd=rd1,sd=sd1,iorate=max\n")).unwrap_err().to_string();
    assert!(error.contains("has no size="), "{error}");
    let error =
        run(&format!("sd=sd1,lun={here}/f1,size=1000k\nrd=rd1,sd=sd1,iorate=max\n")).unwrap_err().to_string();
    assert!(error.contains("not a multiple of 1m"), "{error}");
}

#[test]
fn a_file_cut_short_under_a_run_ends_it_after_the_allowed_errors() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "data_errors=5\nsd=sd1,lun={}/tf,size=8m,threads=1\nwd=wd1,sd=sd1,xfersize=4k,rdpct=100\nrd=rd1,wd=wd1,iorate=2000,elapsed=20,interval=1\n",
        dir.path().display()
    );
    let plan = parse_text("trunc.parm", &text).unwrap();
    let mut lines = Vec::new();
    let file = dir.path().join("tf");
    let outcome = execute(&plan, &Options::default(), &AtomicBool::new(false), &mut |event| match event {
        Event::Interval { run, interval } if run.label == "rd1" && interval.line.number == 1 => {
            fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(0).unwrap();
        }
        Event::Error(error) => lines.push(error.to_string()),
        _ => {}
    });
    assert_eq!(
        outcome.failure(),
        Some("'data_errors=5' requested. Abort rd=rd1 after last error.".to_string())
    );
    assert_eq!(lines.len(), 5);
    assert!(lines[0].starts_with("op: read   lun: "), "{}", lines[0]);
    assert!(
        lines[0].contains(
            "errno: INCORRECT_SIZE: 'Vdbench determined that not enough bytes were read or written'"
        )
    );
}

#[test]
fn the_stop_flag_ends_runs_and_formats_early() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "fsd=fsd1,anchor={}/a,depth=1,width=1,files=2,size=64k\nfwd=f,fsd=fsd1,operation=read\n\
         rd=rd1,fwd=f,fwdrate=5,format=yes,elapsed=60,interval=1\nrd=rd2,fwd=f,fwdrate=5,elapsed=60,interval=1\n",
        dir.path().display()
    );
    let plan = parse_text("stop.parm", &text).unwrap();
    let stop = AtomicBool::new(false);
    let outcome = execute(&plan, &Options::default(), &stop, &mut |event| {
        if matches!(event, Event::Interval { run, .. } if run.label == "rd1") {
            stop.store(true, Relaxed);
        }
    });
    assert!(outcome.stopped);
    let labels: Vec<(&str, usize)> =
        outcome.runs.iter().map(|r| (r.run.label.as_str(), r.lines.len())).collect();
    assert_eq!(labels.last().map(|(label, _)| *label), Some("rd1"));
    assert!(labels[1].1 <= 2, "{labels:?}");
}

#[test]
fn maxdata_ends_a_run() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "sd=sd1,lun={}/f,size=4m,threads=2\nwd=wd1,sd=sd1,rdpct=100\nrd=rd1,wd=wd1,iorate=max,elapsed=600,interval=1,maxdata=2\n",
        dir.path().display()
    );
    let outcome = run(&text).unwrap();
    assert!(outcome.runs[1].whole.requested().bytes >= 8 << 20);
    assert!(outcome.runs[1].lines.len() < 100);
}

#[test]
fn a_deleted_and_half_rewritten_file_is_known_to_be_short() {
    let dir = tempfile::tempdir().unwrap();
    let anchor = dir.path().join("a");
    let text = |rest: &str| {
        format!(
            "fsd=fsd1,anchor={},depth=1,width=1,files=1,size=1m\nfwd=f,fsd=fsd1,xfersize=64k,{rest}\n",
            anchor.display()
        )
    };
    let write = text("operation=write,fileio=(seq,delete),stopafter=3")
        + "rd=w,fwd=f,fwdrate=2,elapsed=2,interval=1,format=yes\n";
    let outcome = run(&write).unwrap();
    assert_eq!(outcome.failure(), None);
    let read = text("operation=read,fileio=sequential") + "rd=r,fwd=f,fwdrate=100,elapsed=2,interval=1\n";
    let outcome = run(&read).unwrap();
    assert_eq!((outcome.failure(), outcome.runs[0].errors), (None, 0));
    let length = fs::metadata(anchor.join("vdb.1_1.dir/vdb_f0000.file")).unwrap().len();
    assert!(length <= 3 * 64 * 1024, "{length}");
}

#[test]
fn empty_files_cannot_be_read_and_that_is_said() {
    let dir = tempfile::tempdir().unwrap();
    let text = |operation: &str| {
        format!(
            "fsd=fsd1,anchor={}/a,depth=1,width=1,files=3,size=4k\nfwd=f,fsd=fsd1,operation={operation}\n\
             rd=rd1,fwd=f,fwdrate=max,elapsed=2,interval=1,format=dirs\n",
            dir.path().display()
        )
    };
    assert_eq!(run(&text("create")).unwrap().runs[1].whole.requested().count, 3);
    assert_eq!(run(&text("read").replace(",format=dirs", "")).unwrap().idle_runs(), ["rd1"]);
}

#[test]
fn buffers_beyond_all_memory_are_refused_and_not_allocated() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "fsd=fsd1,anchor={}/a,files=1\nfwd=f,fsd=fsd1,operation=write,xfersize=1g,threads=4000\nrd=rd1,fwd=f,fwdrate=max,elapsed=2,interval=1\n",
        dir.path().display()
    );
    let error = run(&text).unwrap_err().to_string();
    assert!(error.contains("use fewer threads="), "{error}");
}

#[test]
fn formats_restart_clean_and_only_do_what_they_are_called() {
    let dir = tempfile::tempdir().unwrap();
    let anchor = dir.path().join("a");
    let text = |format: &str| {
        format!(
            "fsd=fsd1,anchor={},depth=2,width=2,files=2,size=8k\nfwd=f,fsd=fsd1,operation=read\n\
             rd=rd1,fwd=f,fwdrate=max,elapsed=2,interval=1,format={format}\n",
            anchor.display()
        )
    };
    let labels = |outcome: &Outcome| outcome.runs.iter().map(|r| r.run.label.clone()).collect::<Vec<_>>();
    let outcome = run(&text("(yes,only)")).unwrap();
    assert_eq!(labels(&outcome), ["format_for_rd1"]);
    assert_eq!(tree(&anchor).len(), 9);
    // One file is gone, one is short; somebody else's file stands beside them.
    let files = tree(&anchor);
    fs::remove_file(&files[0]).unwrap();
    fs::write(&files[1], b"short").unwrap();
    fs::write(anchor.join("mine.txt"), b"kept").unwrap();
    let outcome = run(&text("(restart,only)")).unwrap();
    assert_eq!(
        outcome.runs[0].whole.operation(Operation::Create).count,
        2,
        "only what is missing or short is made"
    );
    assert_eq!(outcome.runs[0].whole.operation(Operation::Delete).count, 0);
    assert_eq!(tree(&anchor).len(), 10);
    let again = run(&text("(restart,only)")).unwrap();
    assert_eq!((again.runs[0].whole.operation(Operation::Create).count, again.idle_runs().len()), (0, 0));
    let outcome = run(&text("clean")).unwrap();
    assert_eq!(labels(&outcome), ["format_for_rd1"]);
    assert_eq!(outcome.runs[0].whole.operation(Operation::Rmdir).count, 6);
    let left: Vec<_> = tree(&anchor).iter().map(|p| p.file_name().unwrap().to_os_string()).collect();
    assert_eq!(left, ["mine.txt", "vdb_control.file"], "what is not ours stays");
}

#[test]
fn sizes_and_working_sets_choose_files() {
    let dir = tempfile::tempdir().unwrap();
    let anchor = dir.path().join("a");
    let text = format!(
        "fsd=fsd1,anchor={},depth=1,width=1,files=200,sizes=(4k,50,8k,50),wss=40k\n\
         fwd=f,fsd=fsd1,operation=read,fileselect=once\nrd=rd1,fwd=f,fwdrate=max,elapsed=2,interval=1,format=yes\n",
        anchor.display()
    );
    let outcome = run(&text).unwrap();
    let lengths: Vec<u64> = tree(&anchor)
        .iter()
        .filter(|p| p.extension().is_some_and(|e| e == "file") && !p.ends_with("vdb_control.file"))
        .map(|p| fs::metadata(p).unwrap().len())
        .collect();
    let small = lengths.iter().filter(|length| **length == 4096).count();
    assert_eq!(lengths.len(), 200);
    // Half of 200; five standard deviations of a binomial.
    assert!(small.abs_diff(100) < 36 && lengths.iter().all(|l| [4096, 8192].contains(l)), "{small}");
    let read = outcome.runs[1].whole.operation(Operation::Read);
    assert!(read.bytes <= 40 << 10 && read.bytes > 30 << 10, "the working set is read once: {}", read.bytes);
}

#[test]
fn operations_stay_within_their_range() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    let text = |range: &str, more: &str| {
        format!(
            "sd=sd1,lun={},size=8m,threads=2\nwd=wd1,sd=sd1,rdpct=0,xfersize=4k{range}\nrd=rd1,wd=wd1,iorate=max,elapsed=2,interval=1{more}\n",
            file.display()
        )
    };
    let changed = |range: &str| {
        fs::write(&file, vec![0u8; 8 << 20]).unwrap();
        run(&text(range, ",maxdata=8m")).unwrap();
        let data = fs::read(&file).unwrap();
        assert_eq!(data.len(), 8 << 20);
        let touched = data.chunks(4096).map(|block| block.iter().any(|b| *b != 0));
        touched.enumerate().filter(|(_, touched)| *touched).map(|(at, _)| at).collect::<Vec<_>>()
    };
    let middle = changed(",range=(25,50)");
    assert!(middle.len() > 200 && middle.iter().all(|block| (512..1024).contains(block)));
    let around = changed(",range=(75,125)");
    assert!(around.iter().any(|block| *block < 512) && around.iter().any(|block| *block >= 1536));
    assert!(
        around.iter().all(|block| *block < 512 || *block >= 1536),
        "a range beyond 100 % goes on at the start"
    );
    let hits = changed(",whpct=100");
    assert!(hits.len() > 200 && hits.iter().all(|block| *block < 256), "hits stay in the first mebibyte");
}

/// Blocks of a file, and how many of them are different.
fn distinct(path: &Path, unit: usize) -> (usize, usize) {
    let bytes = fs::read(path).unwrap();
    let blocks: std::collections::HashSet<&[u8]> = bytes.chunks(unit).collect();
    (bytes.len() / unit, blocks.len())
}

#[test]
fn storages_and_trees_repeat_as_each_of_them_says() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    run(&format!(
        "dedupratio=2,dedupunit=4k\nsd=default,size=8m\nsd=s1,lun={},dedupratio=8\nsd=s2,lun={}\nsd=s3,lun={},dedupratio=1\n\
         wd=w,sd=s*,xfersize=4k,rdpct=0\nrd=r,wd=w,iorate=10,elapsed=2,interval=1,maxdata=4k\n",
        at("one").display(),
        at("two").display(),
        at("three").display()
    ))
    .unwrap();
    for (name, ratio) in [("one", 8.0), ("two", 2.0), ("three", 1.0)] {
        let (all, different) = distinct(&at(name), 4096);
        let found = all as f64 / different as f64;
        assert!((found / ratio - 1.0).abs() < 0.2, "{name}: {found} for {ratio}");
    }
    let text = |ratio: &str| {
        format!(
            "fsd=f,anchor={},files=1,size=8m{ratio}\nfwd=w,fsd=f,xfersize=4k\nrd=r,fwd=w,fwdrate=max,format=only\n",
            at("tree").display()
        )
    };
    run(&text(",dedupratio=4,dedupunit=4k")).unwrap();
    let (all, different) = distinct(&at("tree/vdb.1_1.dir/vdb_f0000.file"), 4096);
    assert!((all as f64 / different as f64 / 4.0 - 1.0).abs() < 0.2, "{all} {different}");
}
