//! Replays, seen from parameter file and trace to what was done to the storage.

use crate::*;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use steadfast_lab_params::{Operation, parse_text};

/// Carries out a text in a directory; `HERE` stands for it.
fn run(dir: &Path, text: &str) -> (Outcome, Vec<String>) {
    let plan = parse_text("test.parm", &text.replace("HERE", &dir.display().to_string())).unwrap();
    let mut said = Vec::new();
    let outcome = execute(&plan, &Options::default(), &AtomicBool::new(false), &mut |event| match event {
        Event::Notice(text) => said.push(text.to_string()),
        Event::Error(error) => said.push(error.to_string()),
        _ => {}
    });
    (outcome, said)
}

/// A directory with a trace and two luns of 64 KiB.
fn prepared(trace: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("trace"), trace).unwrap();
    ["f", "g"].iter().for_each(|name| fs::write(dir.path().join(name), vec![0u8; 64 << 10]).unwrap());
    dir
}

const SDS: &str = "sd=s1,lun=HERE/f,replay=DEVICES1\nsd=s2,lun=HERE/g,replay=DEVICES2\nwd=w,sd=s*\n";

fn file(devices: [&str; 2], rd: &str) -> String {
    let sds = SDS.replace("DEVICES1", devices[0]).replace("DEVICES2", devices[1]);
    format!("{sds}rd=r,wd=w,elapsed=60,interval=1,{rd}\n")
}

fn counts(outcome: &Outcome) -> [(u64, u64); 2] {
    let run = outcome.runs.last().unwrap();
    [Operation::Read, Operation::Write].map(|operation| {
        let times = run.whole.operation(operation);
        (times.count, times.bytes)
    })
}

const TRACE: &str = "steadfast trace 1\n0.00 a write 4096 8192\n0.01 b read 0 4096\n0.02 a read 4096 512\n\
                     0.03 a flush\n0.04 c read 0 512\n0.05 b write 61440 4096\n0.06 a trim 0 4096\n";

#[test]
fn what_is_in_the_trace_is_done_where_its_device_lies() {
    let dir = prepared(TRACE);
    for (rate, rounds) in [("iorate=max", 1), ("iorate=500,interval=1", 1), ("threads=2", 3)] {
        let text = file(["a", "b"], &format!("replay=(HERE/trace,repeat={rounds}),{rate}"));
        let (outcome, said) = run(dir.path(), &text);
        assert_eq!(outcome.failure(), None, "{rate}: {said:?}");
        assert_eq!(counts(&outcome), [(2 * rounds, 4608 * rounds), (2 * rounds, 12288 * rounds)], "{rate}");
        let all = said.join("\n");
        for line in [
            "steadfast trace 1, 6 operations of 3 devices in 0.050 seconds",
            "1 operations of device c are not done: no sd has it.",
            "1 trims are not done.",
            &format!("sd=s1: {rounds} flushes of "),
        ] {
            assert!(all.contains(line), "{rate}: no {line:?} in {all}");
        }
        assert_eq!(all.contains("furthest behind the trace"), rate != "iorate=max", "{all}");
        let written = |name: &str| {
            let bytes = fs::read(dir.path().join(name)).unwrap();
            let blocks = bytes.chunks(4096).map(|block| block.iter().any(|byte| *byte != 0));
            blocks.enumerate().filter(|(_, written)| *written).map(|(at, _)| at).collect::<Vec<_>>()
        };
        assert_eq!((written("f"), written("g")), (vec![1, 2], vec![15]));
    }
}

#[test]
fn a_group_is_one_storage_and_one_sd_has_what_no_other_names() {
    let dir = prepared(TRACE);
    // b begins behind a, at 12,288: its last block would lie at 73,728 of 131,072, in the second
    // storage.
    let text = format!("rg=all,devices=(a,b)\n{}", file(["all", "all"], "replay=HERE/trace,iorate=max"));
    let (outcome, said) = run(dir.path(), &text);
    assert_eq!(outcome.failure(), None, "{said:?}");
    let g = fs::read(dir.path().join("g")).unwrap();
    assert!(g[73_728 - 65_536..][..4096].iter().any(|byte| *byte != 0));
    assert!(g[..73_728 - 65_536].iter().all(|byte| *byte == 0));
    let text = file(["b", "-"], "replay=HERE/trace,iorate=max").replace(",replay=-", "");
    let (outcome, said) = run(dir.path(), &text);
    assert_eq!((outcome.failure(), counts(&outcome)[0]), (None, (3, 5120)), "a and c are on s2: {said:?}");
}

#[test]
fn a_trace_of_fio_is_replayed_and_errors_are_counted() {
    let dir =
        prepared("fio version 3 iolog\n5 /x add\n9 /x read 0 4096\n10 /x write 8192 4096\n20 /x sync 0 0\n");
    let one = |rest: &str| format!("sd=s1,lun=HERE/f\nwd=w,sd=s1\nrd=r,wd=w,elapsed=60,interval=1,{rest}\n");
    let (outcome, said) = run(dir.path(), &one("replay=HERE/trace"));
    assert_eq!((outcome.failure(), counts(&outcome)), (None, [(1, 4096), (1, 4096)]), "{said:?}");
    // size= promises more than there is: what lies behind the end comes back short.
    fs::write(dir.path().join("trace"), "steadfast trace 1\n0 a read 60000 8192\n0 a read 0 512\n").unwrap();
    let short = one("replay=HERE/trace").replace("lun=HERE/f", "lun=HERE/f,size=128k");
    fs::OpenOptions::new().write(true).open(dir.path().join("f")).unwrap().set_len(128 << 10).unwrap();
    let cut = "startcmd=(\"truncate -s 64k HERE/f\")";
    let (outcome, said) = run(dir.path(), &short.replace("interval=1", &format!("interval=1,{cut}")));
    assert_eq!((outcome.runs[0].errors, counts(&outcome)[0].0), (1, 1), "{said:?}");
    assert!(said.iter().any(|line| line.contains("INCORRECT_SIZE")), "{said:?}");
}

#[test]
fn what_cannot_be_replayed_is_refused_with_the_way_out() {
    let dir = prepared("steadfast trace 1\n0 a read 1000000 4096\n");
    let why = |text: &str| run(dir.path(), text).0.failure().unwrap();
    let said = why(&file(["b", "c"], "replay=HERE/trace"));
    assert!(said.contains("it has no operation of device b; its devices are a"), "{said}");
    let one = |rest: &str| format!("sd=s1,lun=HERE/f\nwd=w,sd=s1\nrd=r,wd=w,elapsed=60,{rest}\n");
    let said = why(&one("replay=HERE/trace"));
    assert!(said.contains("reach to 1,004,096") && said.contains("fold=size"), "{said}");
    let (outcome, said) = run(dir.path(), &one("replay=(HERE/trace,fold=64k)"));
    assert_eq!((outcome.failure(), counts(&outcome)[0].0), (None, 1), "{said:?}");
    assert!(why(&one("replay=HERE/nothing")).contains("cannot be read"));
    fs::write(dir.path().join("trace"), "nothing of the kind\n").unwrap();
    assert!(why(&one("replay=HERE/trace")).contains("blkparse(1)"));
}
