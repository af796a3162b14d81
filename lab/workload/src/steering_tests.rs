//! Words that steer an execution, seen from what it does.

use crate::*;
use std::fs;
use steadfast_lab_params::{Operation, parse_text};

/// Carries out a text in which `HERE` stands for a directory of its own; what was said comes with the outcome.
fn run(text: &str) -> (Outcome, Vec<String>, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let plan = parse_text("test.parm", &text.replace("HERE", &dir.path().display().to_string())).unwrap();
    let options = Options { output: "OUT".into(), ..Options::default() };
    let mut said = Vec::new();
    let outcome = execute(&plan, &options, &AtomicBool::new(false), &mut |event| match event {
        Event::Started { run, .. } => said.push(format!("run {}", run.label)),
        Event::Command(to, text) => said.push(format!("{to:?} {text}")),
        Event::Notice(text) => said.push(text.to_string()),
        _ => {}
    });
    (outcome, said, dir)
}

const SD: &str = "sd=sd1,lun=HERE/file,size=1m,threads=3\n";

#[test]
fn commands_stand_where_they_were_asked_for_and_rounds_repeat() {
    let (outcome, said, _dir) = run(&format!(
        "startcmd=(\"echo first $output\",cons)\nendcmd=(\"exit 3\",sum)\nloop=2\n{SD}wd=w,sd=sd1,xfersize=4k\n\
         rd=r,wd=w,iorate=100,elapsed=2,interval=1,maxdata=8k,startcmd=(\"echo before\"),endcmd=(\"echo after >&2\")\n"
    ));
    assert_eq!(outcome.failure(), None);
    let wanted = [
        "Console first OUT",
        "run SD_format",
        "Log before",
        "run r",
        "Log after",
        "loop: round 1 is done, the next begins.",
        "Log before",
        "run r",
        "Log after",
        "Command 'exit 3': ended with exit status: 3.",
    ];
    let said: Vec<&String> = said.iter().filter(|line| !line.starts_with("lun=")).collect();
    assert_eq!(said, wanted);
}

#[test]
fn a_monitor_file_ends_a_run_or_all_of_them_and_an_old_order_is_taken_away() {
    for (order, runs) in [("end_rd", 3), ("terminate", 2)] {
        let (outcome, _, dir) = run(&format!(
            "monitor=HERE/order\nstartcmd=(\"echo end_vdbench > HERE/old\")\n{SD}wd=w,sd=sd1,xfersize=4k\n\
             rd=a,wd=w,iorate=100,elapsed=600,interval=1,startcmd=(\"echo {order} > HERE/order\")\n\
             rd=b,wd=w,iorate=100,elapsed=2,interval=1,maxdata=8k,startcmd=(\"rm HERE/order\")\n"
        ));
        assert_eq!(outcome.failure(), None);
        assert_eq!(outcome.runs.len(), runs, "{order}");
        assert_eq!(outcome.runs[1].lines.len(), 1, "the first interval was the last");
        let path = dir.path().join("old").display().to_string();
        assert!(crate::monitor::order(&path).is_some());
        crate::monitor::clear(&path).unwrap();
        assert!(crate::monitor::order(&path).is_none());
    }
}

#[test]
fn a_share_that_misses_its_skew_fails_the_run() {
    // What moves no data is over at once, so its share of 90 cannot be reached.
    let text = |limit: &str| {
        format!(
            "abort_failed_skew={limit}\nfsd=f,anchor=HERE/a,depth=1,width=1,files=4,size=4k\n\
             fwd=gone,fsd=f,operation=create,skew=90\nfwd=reads,fsd=f,operation=read,fileio=random,skew=10\n\
             rd=r,fwd=*,fwdrate=200,elapsed=3,interval=1,format=yes\n"
        )
    };
    let failure = run(&text("5")).0.failure().unwrap();
    assert!(failure.starts_with("'abort_failed_skew=5' requested: gone of rd=r had 0.00 %"), "{failure}");
    assert_eq!(run(&text("95")).0.failure(), None);
}

#[test]
fn streams_have_equally_many_threads_and_read_everything_once() {
    let (outcome, said, _dir) = run(&format!(
        "{SD}wd=w,sd=sd1,xfersize=64k,seekpct=eof,streams=4\nrd=r,wd=w,iorate=max,elapsed=60,interval=1\n"
    ));
    assert!(said.iter().any(|line| line.contains("threads=3 become 4")), "{said:?}");
    assert_eq!(outcome.runs[1].whole.operation(Operation::Read).count, 16);
}

#[test]
fn a_pattern_file_is_what_is_written() {
    let (_, _, dir) = run(
        "startcmd=(\"true\")\nsd=sd0,lun=HERE/unused,size=1m\nrd=r,sd=sd0,iorate=100,elapsed=2,interval=1,maxdata=4k\n",
    );
    let pattern = dir.path().join("pattern");
    fs::write(&pattern, b"0123456789abc").unwrap();
    let (outcome, _, made) = run(&format!(
        "pattern={}\n{SD}wd=w,sd=sd1,xfersize=4k\nrd=r,wd=w,iorate=100,elapsed=2,interval=1,maxdata=8k\n",
        pattern.display()
    ));
    assert_eq!(outcome.failure(), None);
    let bytes = fs::read(made.path().join("file")).unwrap();
    let period = (1 << 20) / 13 * 13;
    assert!(bytes.iter().enumerate().all(|(at, byte)| *byte == b"0123456789abc"[at % period % 13]));
    let (outcome, _, _dir) = run(&format!("pattern=HERE/none\n{SD}rd=r,sd=sd1,iorate=max\n"));
    assert!(outcome.failure().unwrap().contains("ENOENT"));
}

#[test]
fn files_from_anywhere_are_read_whole_and_a_complete_tree_is_believed() {
    let fsd = "fsd=f,anchor=HERE/a,depth=1,width=1,files=3,size=200k\n";
    let (outcome, _, _dir) = run(&format!(
        "{fsd}fwd=w,fsd=f,operation=read,xfersize=64k,fileio=seqnz,fileselect=(once)\n\
         rd=r,fwd=w,fwdrate=max,elapsed=60,interval=1,format=yes\n"
    ));
    assert_eq!(outcome.failure(), None);
    assert_eq!(outcome.runs[1].whole.operation(Operation::Read).bytes, 3 * 200 * 1024);
    let (outcome, _, _dir) = run(&format!(
        "{fsd}fwd=w,fsd=f,operation=getattr,fileselect=seqnz\n\
         rd=r,fwd=w,fwdrate=max,elapsed=2,interval=1,format=(no,complete)\n"
    ));
    let failure = outcome.failure().unwrap();
    assert!(failure.contains("ENOENT"), "what is not there was believed: {failure}");
}
