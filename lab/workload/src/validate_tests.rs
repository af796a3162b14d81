//! Data validation, seen from what it says about data that was spoiled behind its back.

use crate::*;
use std::sync::atomic::AtomicBool;
use steadfast_lab_params::{Operation, parse_text};

/// Carries out a text in which `HERE` stands for a directory of its own; the errors come with the
/// outcome.
fn run(text: &str) -> (Outcome, Vec<IoError>) {
    let dir = tempfile::tempdir().unwrap();
    let plan = parse_text("test.parm", &text.replace("HERE", &dir.path().display().to_string())).unwrap();
    let mut errors = Vec::new();
    let outcome = execute(&plan, &Options::default(), &AtomicBool::new(false), &mut |event| match event {
        Event::Error(error) => errors.push((*error).clone()),
        Event::Notice(text) => assert!(!text.starts_with("Command"), "{text}"),
        _ => {}
    });
    (outcome, errors)
}

/// A lun of 1 MiB that is filled, spoiled by a command, and read to its end.
fn spoiled(rules: &str, command: &str) -> (Outcome, Vec<IoError>) {
    run(&format!(
        "validate={rules}\nsd=sd1,lun=HERE/f,size=1m\nwd=w,sd=sd1,xfersize=4k,seekpct=eof\n\
         rd=r,wd=w,iorate=max,elapsed=60,interval=1,startcmd=(\"cd HERE; {command}\")\n"
    ))
}

#[track_caller]
fn assert_told(errors: &[IoError], offset: u64, lines: &[&str]) {
    assert_eq!(errors.len(), 1, "{errors:?}");
    let error = &errors[0];
    assert_eq!((error.operation, error.offset, error.bytes), (Operation::Read, offset, 4096));
    assert!(error.errno.starts_with("60003: "), "{error}");
    let all = error.evidence.join("\n");
    lines.iter().for_each(|line| assert!(all.contains(line), "no {line:?} in\n{all}"));
}

#[test]
fn untouched_data_is_compared_and_found_right() {
    let (outcome, errors) = spoiled("yes", "true");
    assert_eq!((outcome.failure(), errors.len(), outcome.compared), (None, 0, Some(256)));
}

#[test]
fn one_flipped_byte_is_found_in_its_sector() {
    // Four bytes: one alone is what it was before in one case of 256.
    let (_, errors) = spoiled("yes", "printf xxxx | dd of=f bs=1 seek=9000 conv=notrunc");
    // 9000 = 0x2328: block 0x2000, sector 0x2200, line 0x120 of it.
    let lines = ["Key block lba: 0x00002000", "1 of 8 sectors are corrupted.", "sector lba: 0x00002200"];
    assert_told(&errors, 8192, &lines);
    assert_told(&errors, 8192, &["===> Compression pattern miscompare.", "0x120*"]);
    let told = errors[0].evidence.join("\n");
    assert!(told.starts_with("Corrupted data block for sd=sd1,lun="), "{told}");
    for wanted in
        ["   Timeline:", " UTC The first corrupted sector was written", " UTC The key block was found"]
    {
        assert!(told.contains(wanted), "no {wanted:?} in\n{told}");
    }
    let line = told.lines().find(|line| line.starts_with("0x000 ")).unwrap();
    assert!(line.contains("00000000 00002200 ........ ........   ........ ........ "), "{line}");
    let line = told.lines().find(|line| line.starts_with("0x120*")).unwrap();
    assert!(line.ends_with("78787878 ........") || line.contains("........ 78787878"), "{line}");
}

#[test]
fn a_misplaced_block_says_where_it_belongs() {
    let (_, errors) = spoiled("yes", "dd if=f of=f bs=4k count=1 skip=3 seek=5 conv=notrunc");
    let lines =
        ["===> Logical byte address miscompare.", "Logical byte address expected: 0x5000; found: 0x3000"];
    assert_told(&errors, 5 * 4096, &lines);
    assert_told(
        &errors,
        5 * 4096,
        &["8 of 8 sectors are corrupted.", "All sectors are wrong in the same way"],
    );
}

#[test]
fn zeros_are_corruption_unless_they_are_to_be_ignored() {
    let zeros = "dd if=/dev/zero of=f bs=4k count=1 seek=7 conv=notrunc";
    assert_told(&spoiled("yes", zeros).1, 7 * 4096, &["===> Data Validation key miscompare.", "found: 0x0"]);
    assert!(spoiled("(yes,ignore_zero_reads)", zeros).1.is_empty());
}

#[test]
fn a_lost_write_is_found_by_its_key_and_a_bad_block_is_told_once() {
    let (outcome, errors) = run("validate=yes\nsd=sd1,lun=HERE/f,size=1m,threads=1\n\
         wd=w,sd=sd1,xfersize=4k,seekpct=eof,rdpct=0\nwd=r,sd=sd1,xfersize=4k,seekpct=eof\n\
         rd=a,wd=w,iorate=max,elapsed=60,interval=1,startcmd=(\"dd if=HERE/f of=HERE/old bs=4k count=1 skip=9\")\n\
         rd=b,wd=r,iorate=max,elapsed=60,interval=1,startcmd=(\"dd if=HERE/old of=HERE/f bs=4k seek=9 conv=notrunc\")\n\
         rd=c,wd=w,iorate=max,elapsed=60,interval=1\nrd=d,wd=r,iorate=max,elapsed=60,interval=1\n");
    assert_eq!(outcome.failure(), None);
    assert_told(&errors, 9 * 4096, &["===> Data Validation key miscompare."]);
    let writes = |run: usize| outcome.runs[run].whole.operation(Operation::Write).count;
    assert_eq!((writes(1), writes(3)), (256, 255), "the bad block is not written again");
    assert_eq!(
        outcome.runs[1].whole.operation(Operation::Read).count,
        256,
        "reads before writes are counted"
    );
}

#[test]
fn reading_after_each_write_and_not_before_it() {
    for (rules, reads) in [("(yes,read_after_write,no_preread)", 256), ("(yes,no_preread,time)", 0)] {
        let (outcome, errors) = run(&format!(
            "validate={rules}\nsd=sd1,lun=HERE/f,size=1m\nwd=w,sd=sd1,xfersize=4k,seekpct=eof,rdpct=0\n\
             rd=a,wd=w,iorate=max,elapsed=60,interval=1\n"
        ));
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(outcome.runs[1].whole.operation(Operation::Read).count, reads);
    }
}

#[test]
fn many_threads_and_sizes_on_few_blocks_find_nothing_wrong() {
    let (outcome, errors) = run(
        "validate=(yes,read_after_write,time)\ncompratio=2\nsd=sd1,lun=HERE/f,size=1m,threads=8,hitarea=64k\n\
         wd=w,sd=sd1,xfersize=(4k,50,16k,50),rdpct=40,rhpct=20\n\
         rd=a,wd=w,iorate=max,elapsed=2,interval=1,forcompratio=(2,4)\n",
    );
    assert_eq!((outcome.failure(), errors.len()), (None, 0), "{:?}", errors.first().map(|e| &e.evidence));
    assert!(outcome.compared.unwrap() > 1_000);
}

#[test]
fn files_are_validated_with_their_short_last_blocks() {
    let with = |command: &str| {
        run(&format!(
            "validate=yes\nfsd=fsd1,anchor=HERE/a,depth=1,width=1,files=4,size=10300\n\
             fwd=w,fsd=fsd1,operation=write,xfersize=4k,fileselect=once\nfwd=r,fsd=fsd1,xfersize=4k,fileselect=once\n\
             rd=write,fwd=w,fwdrate=max,elapsed=60,interval=1,format=yes\n\
             rd=read,fwd=r,fwdrate=max,elapsed=60,interval=1,startcmd=(\"cd HERE/a/vdb.1_1.dir; {command}\")\n"
        ))
    };
    let (outcome, errors) = with("true");
    // Three blocks of each of four files, before each write and at each read.
    assert_eq!((outcome.failure(), errors.len(), outcome.compared), (None, 0, Some(24)));
    let (_, errors) = with("printf xxxx | dd of=vdb_f0002.file bs=1 seek=10299 conv=notrunc");
    assert_eq!(errors.len(), 1);
    assert!(errors[0].evidence[0].starts_with("Corrupted data block for fsd=fsd1,file="), "{:?}", errors[0]);
    assert!(errors[0].path.ends_with("vdb_f0002.file") && errors[0].offset == 8192, "{errors:?}");
    let (_, errors) = with("cp vdb_f0001.file vdb_f0003.file");
    // The same name, addresses and keys perhaps: the data says that it is another file's.
    assert_eq!(errors.len(), 3);
}

#[test]
fn files_that_are_made_anew_are_not_judged_by_what_was_there() {
    let (outcome, errors) = run("validate=yes\nfsd=fsd1,anchor=HERE/a,depth=1,width=1,files=4,size=16k\n\
         fwd=w,fsd=fsd1,operation=write,xfersize=4k,fileio=(seq,delete),fileselect=once\n\
         fwd=c,fsd=fsd1,operation=(delete,create)\nfwd=r,fsd=fsd1,xfersize=4k,fileselect=once\n\
         fwd=m,fsd=fsd1,operation=create,fileselect=once\n\
         rd=write,fwd=w,fwdrate=max,elapsed=60,interval=1,format=yes\n\
         rd=churn,fwd=c,fwdrate=100,elapsed=2,interval=1\n\
         rd=make,fwd=m,fwdrate=max,elapsed=60,interval=1\n\
         rd=again,fwd=w,fwdrate=max,elapsed=60,interval=1\nrd=read,fwd=r,fwdrate=max,elapsed=60,interval=1\n");
    assert!(errors.is_empty(), "{errors:?}");
    assert!(outcome.compared.unwrap() > 0, "{:?}", outcome.failure());
}

#[test]
fn sizes_that_do_not_fit_together_are_refused() {
    let with = |xfersize: &str, general: &str| {
        parse_text(
            "v",
            &format!(
                "validate=yes\n{general}\nsd=sd1,lun=x,size=1m\nwd=w,sd=sd1,xfersize={xfersize}\nrd=r,wd=w,iorate=max\n"
            ),
        )
    };
    assert_eq!(with("(4k,50,8k,50)", "").unwrap().general.validate.unwrap().block, 4096);
    assert!(with("(4k,50,6k,50)", "").unwrap_err().text.contains("multiples of the smallest"));
    assert!(with("256", "").unwrap_err().text.contains("multiples of 512"));
    assert!(with("4k", "pattern=x").unwrap_err().text.contains("cannot be combined"));
}

#[test]
fn a_file_that_ends_within_a_transfer_is_written_on_without_a_complaint() {
    // Files begin empty; a block of 1k is known where a write of 4k goes that reaches beyond the
    // end.
    let (outcome, errors) = run("validate=yes\nfsd=fsd1,anchor=HERE/a,depth=1,width=1,files=2,size=30k\n\
         fwd=m,fsd=fsd1,operation=create,fileselect=once\n\
         fwd=w,fsd=fsd1,operation=write,xfersize=(1k,50,4k,50),fileio=random,fileselect=random,stopafter=3\n\
         rd=make,fwd=m,fwdrate=max,elapsed=60,interval=1,format=(restart,directories)\n\
         rd=write,fwd=w,fwdrate=max,elapsed=2,interval=1\n");
    assert!(errors.is_empty(), "{:?}", errors.first());
    assert!(outcome.compared.unwrap() > 0, "{:?}", outcome.failure());
}
