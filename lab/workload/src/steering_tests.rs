//! Words that steer an execution, seen from what it does.

use crate::*;
use std::fs;
use std::sync::atomic::AtomicBool;
use steadfast_lab_params::{Operation, parse_text};

/// Carries out a text in which `HERE` stands for a directory of its own; what was said comes with
/// the outcome.
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
    // Operations without data end at once, so their share of 90 cannot be reached.
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
    assert!(said.iter().any(|line| line.contains("threads=3 becomes 4")), "{said:?}");
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

/// The reads and writes of a run, as lines `r|w OFFSET`, cannot be seen from outside; a sparse file
/// shows them.
fn written_blocks(path: &std::path::Path, block: usize) -> Vec<usize> {
    let bytes = fs::read(path).unwrap();
    let filled = bytes.chunks(block).enumerate().filter(|(_, chunk)| chunk.iter().any(|byte| *byte != 0));
    filled.map(|(at, _)| at).collect()
}

#[test]
fn a_storage_of_several_parts_is_used_from_one_end_to_the_other() {
    let (outcome, _, dir) = run(
        "concatenatesds=yes\nsd=default,size=1m\nsd=a,lun=HERE/a\nsd=b,lun=HERE/b\nsd=c,lun=HERE/c\n\
         wd=w,sd=(a,b,c),rdpct=0,xfersize=64k,seekpct=eof,threads=3\nrd=r,wd=w,iorate=max,elapsed=60,interval=1\n",
    );
    assert_eq!(outcome.failure(), None);
    let run = outcome.runs.last().unwrap();
    assert_eq!(run.whole.operation(Operation::Write).count, 3 * 16);
    for part in ["a", "b", "c"] {
        assert_eq!(written_blocks(&dir.path().join(part), 65_536).len(), 16);
    }
}

#[test]
fn a_workload_with_a_rate_of_its_own_has_it_beside_the_others() {
    let (outcome, _, _dir) = run(&format!(
        "{SD}wd=own,sd=sd1,xfersize=4k,priority=1,iorate=200\nwd=rest,sd=sd1,xfersize=4k,priority=2\n\
         rd=r,wd=*,iorate=50,elapsed=4,interval=1,distribution=d\n"
    ));
    assert_eq!(outcome.failure(), None);
    let whole = &outcome.runs.last().unwrap().whole;
    let count = |name: &str| whole.merged(|group| group.workload == name).count;
    assert!(count("own").abs_diff(800) < 120, "{}", count("own"));
    assert!(count("rest").abs_diff(200) < 60, "{}", count("rest"));
}

#[test]
fn names_of_files_and_directories_follow_the_mask_and_a_format_finds_them_again() {
    let text = |format: &str| {
        format!(
            "fsd=f,anchor=HERE/a,depth=1,width=2,files=2,size=4k,mask=(data%03d.bin,level%d.%d)\n\
             fwd=w,fsd=f,operation=read,fileselect=once\nrd=r,fwd=w,fwdrate=max,elapsed=60,interval=1,format={format}\n"
        )
    };
    let (outcome, _, dir) = run(&text("yes"));
    assert_eq!(outcome.failure(), None);
    assert!(dir.path().join("a/level1.2/data003.bin").is_file());
    let plan = parse_text("t", &text("clean").replace("HERE", &dir.path().display().to_string())).unwrap();
    let again = execute(&plan, &Options::default(), &AtomicBool::new(false), &mut |_| {});
    assert_eq!(again.failure(), None);
    assert!(!dir.path().join("a/level1.2").exists());
}

#[test]
fn errors_call_a_command_or_take_a_storage_out() {
    // A storage that is shorter than it was said to be when it is read.
    let short = "sd=gone,lun=HERE/gone,size=1m\nsd=here,lun=HERE/here,size=1m\n";
    let runs = |errors: &str| {
        run(&format!(
            "data_errors={errors}\n{short}wd=w,sd=*,xfersize=4k,rdpct=100\n\
             rd=r,wd=w,iorate=100,elapsed=2,interval=1,startcmd=(\"truncate -s 0 HERE/gone\")\n"
        ))
    };
    let (outcome, said, _dir) = runs("\"echo failed $lun $lba $size\"");
    assert!(outcome.failure().unwrap().contains("Abort rd=r"), "{:?}", outcome.failure());
    assert!(
        said.iter().any(|line| line.starts_with("Console failed ")
            && line.contains("/gone ")
            && line.ends_with(" 4096")),
        "{said:?}"
    );
    let (outcome, _, _dir) = runs("remove");
    assert_eq!(outcome.failure(), None);
    let run = outcome.runs.last().unwrap();
    assert!(run.errors > 0 && run.errors <= 8, "each of its threads failed at most once: {}", run.errors);
    assert!(run.whole.merged(|group| group.storage == "here").count > 60);
    let (outcome, _, _dir) = runs("1000");
    assert_eq!(outcome.failure(), None);
    let plan = parse_text("t", "sd=s,lun=s,size=1m\nrd=r,sd=s,iorate=max\n").unwrap();
    assert!(outcome.failed_operations(&plan).unwrap().contains("operations failed"));
}

#[test]
fn silence_is_told_and_can_end_everything() {
    let text = |timeout: &str| {
        format!(
            "timeout={timeout}\n{SD}wd=w,sd=sd1,xfersize=4k\n\
             rd=r,wd=w,iorate=(100,1,0.001,9),distribution=(d,variable),elapsed=8,interval=1\n"
        )
    };
    let (outcome, _, _dir) = run(&text("(2,abort)"));
    assert!(
        outcome.failure().unwrap().starts_with("timeout: no operation on sd1"),
        "{:?}",
        outcome.failure()
    );
    let (outcome, _, _dir) = run(&text("(2,\"echo abort\")"));
    assert!(outcome.failure().unwrap().starts_with("timeout: "), "{:?}", outcome.failure());
    let (outcome, said, _dir) = run(&text("(report,2)"));
    assert_eq!(outcome.failure(), None);
    assert!(said.iter().any(|line| line.starts_with("Longest idle period for sd1")), "{said:?}");
}

#[test]
fn duplicates_that_flip_have_two_contents_each() {
    use std::collections::HashSet;
    let contents = |word: &str| {
        let text = format!(
            "dedupratio=4\ndedupunit=4k\ndedupsets=8\ndedupflipflop={word}\nsd=s,lun=x,size=1m\nrd=r,sd=s,iorate=max\n"
        );
        let dedup = parse_text("t", &text).unwrap().general.dedup.unwrap();
        let pattern = crate::pattern::Pattern::new(1.0, 1).repeating(&dedup, 1 << 20, 1);
        let mut seen: Vec<HashSet<Vec<u8>>> = vec![HashSet::new(); 256];
        let mut block = vec![0; 4096];
        for generation in 0..64 {
            for (at, seen) in seen.iter_mut().enumerate() {
                pattern.fill(&mut block, 1, (at * 4096) as u64, generation);
                seen.insert(block.clone());
            }
        }
        let repeated: Vec<usize> = seen.iter().map(HashSet::len).filter(|count| *count < 64).collect();
        assert!(repeated.len() > 128, "{}", repeated.len());
        repeated
    };
    assert!(contents("no").iter().all(|count| *count == 1));
    assert!(contents("yes").iter().all(|count| *count == 2));
}

#[test]
fn several_hosts_are_refused_by_name_and_line_before_anything_is_touched() {
    let (outcome, said, dir) = run(&format!("hd=a,system=10.0.0.1\n{SD}rd=r,sd=sd1,iorate=max\n"));
    let failure = outcome.failure().unwrap();
    assert!(failure.starts_with("test.parm:1: host a is not this machine"), "{failure}");
    assert!(said.is_empty() && !dir.path().join("file").exists());
}

/// The blocks that an execution wrote to a file of zeros.
fn written(draws: u64, rounds: u32) -> std::collections::BTreeSet<usize> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    fs::File::create(&file).unwrap().set_len(64 << 20).unwrap();
    let text = format!(
        "loop={rounds}\nsd=s,lun={},size=64m,threads=1\nwd=w,sd=s,rdpct=0,xfersize=4k\n\
         rd=r,wd=w,iorate=500,distribution=deterministic,elapsed=600,interval=1,maxdata=128k\n",
        file.display()
    );
    let plan = parse_text("draws.parm", &text).unwrap();
    let options = Options { draws, ..Options::default() };
    let outcome = execute(&plan, &options, &AtomicBool::new(false), &mut |_| {});
    assert_eq!(outcome.failure(), None);
    let bytes = fs::read(&file).unwrap();
    let touched = |block: &&[u8]| block.iter().any(|byte| *byte != 0);
    bytes.chunks(4096).enumerate().filter(|(_, block)| touched(block)).map(|(at, _)| at).collect()
}

#[test]
fn addresses_differ_by_seed_and_by_round_and_a_seed_repeats_them() {
    let (first, again, other) = (written(7, 1), written(7, 1), written(8, 1));
    let (few, many) = if first.len() < again.len() { (&first, &again) } else { (&again, &first) };
    assert!(few.len() >= 25 && few.is_subset(many), "the same addresses: {first:?} and {again:?}");
    assert!(first.intersection(&other).count() < 8, "another seed draws others");
    let rounds = written(7, 2);
    assert!(rounds.len() >= 50, "and the second round draws others too: {}", rounds.len());
}

#[test]
fn reads_and_writes_of_sequential_files_follow_a_percentage_and_files_need_no_directory() {
    let dir = tempfile::tempdir().unwrap();
    let text = format!(
        "fsd=f,anchor={0},depth=0,files=4,size=64k\nfwd=w,fsd=f,xfersize=4k,fileio=sequential\n\
         rd=r,fwd=w,fwdrate=max,format=yes,elapsed=600,interval=1,maxdata=4m,forrdpct=(50)\n",
        dir.path().display()
    );
    let plan = parse_text("depth.parm", &text).unwrap();
    let outcome = execute(&plan, &Options::default(), &AtomicBool::new(false), &mut |_| {});
    assert_eq!(outcome.failure(), None);
    assert_eq!(fs::metadata(dir.path().join("vdb_f0003.file")).unwrap().len(), 64 << 10);
    let whole = &outcome.runs[1].whole;
    let (reads, writes) = (whole.operation(Operation::Read).count, whole.operation(Operation::Write).count);
    assert!(reads > 300 && writes > 300, "{reads} reads, {writes} writes");
}
