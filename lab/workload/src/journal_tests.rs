//! Journals, seen from an execution and the next.

use crate::*;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use steadfast_lab_params::{Operation, parse_text};

/// Carries out a text in a directory that stays.
fn run(dir: &Path, text: &str) -> (Outcome, Vec<String>) {
    let plan = parse_text("test.parm", &text.replace("HERE", &dir.display().to_string())).unwrap();
    let mut said = Vec::new();
    let outcome = execute(&plan, &Options::default(), &AtomicBool::new(false), &mut |event| match event {
        Event::Started { run, .. } => said.push(format!("run {}", run.label)),
        Event::Notice(text) => said.push(text.to_string()),
        _ => {}
    });
    (outcome, said)
}

const WRITES: &str = "sd=sd1,lun=HERE/f,size=1m,journal=HERE\nwd=w,sd=sd1,xfersize=4k,seekpct=eof,rdpct=0\n\
                      rd=a,wd=w,iorate=max,elapsed=60,interval=1\n";

#[test]
fn the_next_execution_knows_what_the_last_one_wrote() {
    let dir = tempfile::tempdir().unwrap();
    let (outcome, _) = run(dir.path(), &format!("journal=yes\n{WRITES}"));
    assert_eq!(outcome.failure(), None);
    let (outcome, said) = run(dir.path(), &format!("journal=(recover,only)\n{WRITES}"));
    assert_eq!(outcome.failure(), None);
    assert!(said[0].ends_with("knows 256 of 256 blocks; 0 were under way."), "{said:?}");
    assert_eq!(said[1], "run journal_recovery");
    assert_eq!(outcome.runs.len(), 1);
    assert_eq!((outcome.compared, outcome.runs[0].errors), (Some(256), 0));
    // A write that was lost in between, or somebody else's, is found.
    let mut bytes = fs::read(dir.path().join("f")).unwrap();
    bytes[40_960..40_970].fill(7);
    fs::write(dir.path().join("f"), bytes).unwrap();
    let (outcome, _) = run(dir.path(), &format!("journal=(recover,only)\n{WRITES}"));
    assert_eq!(outcome.runs[0].errors, 1);
    // And a recovery that goes on writes and knows both.
    let (outcome, said) = run(dir.path(), &format!("journal=recover\n{WRITES}"));
    assert!(said.contains(&"run a".to_string()), "{said:?}");
    assert_eq!(
        outcome.runs.last().unwrap().whole.operation(Operation::Write).count,
        255,
        "the bad block stays"
    );
}

#[test]
fn a_write_that_was_under_way_may_be_old_or_new_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &format!("journal=yes\n{WRITES}")).0.failure(), None);
    let found = crate::journal::recover(dir.path(), "sd1").unwrap();
    let rules = steadfast_lab_params::JournalRules::default();
    // As if the machine had stopped between the entry before a write and the one behind it.
    let begin = || {
        crate::journal::Journal::begin(dir.path(), "sd1", rules, &found.about, || found.keys.clone()).unwrap()
    };
    begin().note(false, 3, &[found.keys[3] % 126 + 1]).unwrap();
    let (outcome, said) = run(dir.path(), &format!("journal=(recover,only)\n{WRITES}"));
    assert_eq!((outcome.failure(), outcome.compared), (None, Some(256)));
    assert!(said.iter().any(|line| line.ends_with("1 were under way.")), "{said:?}");
    begin().note(false, 3, &[found.keys[3] % 126 + 1]).unwrap();
    let mut bytes = fs::read(dir.path().join("f")).unwrap();
    bytes[3 * 4096 + 100] ^= 1;
    fs::write(dir.path().join("f"), bytes).unwrap();
    let (outcome, _) = run(dir.path(), &format!("journal=(recover,only)\n{WRITES}"));
    assert_eq!((outcome.failure(), outcome.runs[0].errors), (None, 1), "one error, and the recovery goes on");
    let (outcome, _) = run(dir.path(), &format!("data_errors=1\njournal=(recover,only)\n{WRITES}"));
    assert_eq!(outcome.failure(), None, "a bad block is told once");
    begin().note(false, 3, &[found.keys[3] % 126 + 1]).unwrap();
    let (outcome, _) = run(dir.path(), &format!("data_errors=1\njournal=(recover,only)\n{WRITES}"));
    assert!(outcome.failure().unwrap().contains("'data_errors=1' requested"), "{:?}", outcome.failure());
    begin().note(false, 3, &[found.keys[3] % 126 + 1]).unwrap();
    let (outcome, _) = run(dir.path(), &format!("journal=(recover,only,ignore_pending)\n{WRITES}"));
    assert!(outcome.failure().is_none(), "{:?}", outcome.failure());
}

#[test]
fn a_journal_of_other_data_or_none_is_refused_with_a_sentence() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), vec![0; 1 << 20]).unwrap();
    let (outcome, _) = run(dir.path(), &format!("journal=recover\n{WRITES}"));
    assert!(outcome.failure().unwrap().contains("sd1.map"), "{:?}", outcome.failure());
    assert_eq!(run(dir.path(), &format!("journal=maponly\n{WRITES}")).0.failure(), None);
    let (outcome, _) = run(dir.path(), &format!("journal=recover\ncompratio=2\n{WRITES}"));
    assert!(outcome.failure().unwrap().contains("other data"), "{:?}", outcome.failure());
    fs::remove_file(dir.path().join("f")).unwrap();
    let (outcome, _) = run(dir.path(), &format!("journal=recover\n{WRITES}"));
    assert!(outcome.failure().unwrap().contains("nothing to compare with"), "{:?}", outcome.failure());
}

const TREE: &str = "fsd=fsd1,anchor=HERE/a,depth=1,width=2,files=3,size=10k,journal=HERE\n\
                    fwd=w,fsd=fsd1,operation=write,xfersize=4k,fileselect=once\n\
                    rd=a,fwd=w,fwdrate=max,elapsed=60,interval=1";

/// The `at`th file of [`TREE`].
fn tree_file(dir: &Path, at: usize) -> std::path::PathBuf {
    dir.join(format!("a/vdb.1_{}.dir/vdb_f{at:04}.file", at / 3 + 1))
}

#[test]
fn the_next_execution_knows_what_the_last_one_wrote_into_a_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (outcome, _) = run(dir.path(), &format!("journal=yes\n{TREE},format=yes\n"));
    assert_eq!(outcome.failure(), None);
    let recover = |rules: &str| run(dir.path(), &format!("journal=({rules})\n{TREE}\n"));
    let (outcome, said) = recover("recover,only");
    assert_eq!(outcome.failure(), None);
    // Three blocks of each of six files, the last of them short.
    assert!(said[0].ends_with("knows 18 of 18 blocks; 0 were under way."), "{said:?}");
    assert_eq!((said[1].as_str(), outcome.runs.len()), ("run journal_recovery", 1));
    assert_eq!((outcome.compared, outcome.runs[0].errors), (Some(18), 0));
    // Somebody else's bytes, in the short block.
    let spoiled = tree_file(dir.path(), 4);
    let mut bytes = fs::read(&spoiled).unwrap();
    bytes[10_200..10_210].fill(7);
    fs::write(&spoiled, bytes).unwrap();
    let (outcome, _) = recover("recover,only");
    assert_eq!((outcome.runs[0].errors, outcome.compared), (1, Some(18)));
    // A recovery that goes on writes and knows both; the bad block stays.
    let (outcome, said) = recover("recover");
    assert!(said.contains(&"run a".to_string()), "{said:?}");
    assert_eq!(outcome.runs.last().unwrap().whole.operation(Operation::Write).count, 17);
}

#[test]
fn files_that_are_missing_or_short_after_a_crash_are_told_once() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &format!("journal=yes\n{TREE},format=yes\n")).0.failure(), None);
    fs::remove_file(tree_file(dir.path(), 1)).unwrap();
    fs::OpenOptions::new().write(true).open(tree_file(dir.path(), 5)).unwrap().set_len(5000).unwrap();
    let plan = parse_text(
        "test.parm",
        &format!("journal=(recover,only)\n{TREE}\n").replace("HERE", &dir.path().display().to_string()),
    );
    let plan = plan.unwrap();
    let mut told = Vec::new();
    let mut recover = || {
        told.clear();
        let stop = AtomicBool::new(false);
        let outcome = execute(&plan, &Options::default(), &stop, &mut |event| {
            if let Event::Error(error) = event {
                told.push((error.offset, error.bytes, error.evidence.join(" ")));
            }
        });
        (outcome, told.clone())
    };
    let (outcome, told) = recover();
    assert_eq!(outcome.failure(), None);
    assert_eq!((outcome.runs[0].errors, outcome.compared), (2, Some(4 * 3 + 1)));
    assert_eq!((told[0].0, told[0].1, told[1].0, told[1].1), (0, 10_240, 5000, 5240));
    assert!(told[0].2.ends_with("it is not there.") && told[1].2.ends_with("it has 5000 bytes."), "{told:?}");
    // Lost files are not expected again: the journal says so.
    let (outcome, told) = recover();
    assert_eq!((outcome.runs[0].errors, told.len(), outcome.compared), (0, 0, Some(13)));
    // Not even the anchor.
    fs::remove_dir_all(dir.path().join("a")).unwrap();
    let (outcome, _) = recover();
    assert!(outcome.failure().unwrap().contains("nothing to compare with"), "{:?}", outcome.failure());
    assert!(!dir.path().join("a").exists(), "a recovery makes no anchor");
}

#[test]
fn what_is_deleted_cut_or_replaced_is_not_expected_by_the_next_execution() {
    let dir = tempfile::tempdir().unwrap();
    let target = "fsd=fsd2,anchor=HERE/b,depth=1,width=2,files=3,size=10k,journal=HERE\n";
    let text = format!(
        "journal=yes\n{target}{TREE},format=yes\n\
         fwd=w2,fsd=fsd2,operation=write,xfersize=4k,fileselect=once\nrd=a2,fwd=w2,fwdrate=max,elapsed=60,interval=1,format=yes\n\
         fwd=d,fsd=fsd1,operation=delete,fileselect=once\n\
         fwd=m,fsd=fsd1,operation=move,target=fsd2,fileselect=once\n\
         RUN,fwdrate=max,elapsed=60,interval=1\n"
    );
    let text = |rules: &str, last: &str| {
        let mut lines: Vec<&str> = text.lines().collect();
        // Workloads stand before runs.
        lines.sort_by_key(|line| match line.split('=').next().unwrap_or_default() {
            "journal" => 0,
            "fsd" => 1,
            "fwd" => 2,
            _ => 3,
        });
        lines.join("\n").replace("journal=yes", rules).replace("RUN", last) + "\n"
    };
    for last in ["rd=z,fwd=d", "rd=z,fwd=m", "rd=a3,fwd=w,format=restart", "rd=z,fwd=w,format=clean"] {
        let (outcome, _) = run(dir.path(), &text("journal=yes", last));
        assert_eq!(outcome.failure(), None, "{last}");
        let (outcome, _) = run(dir.path(), &text("journal=(recover,only)", last));
        let errors: u64 = outcome.runs.iter().map(|run| run.errors).sum();
        assert_eq!((outcome.failure(), errors), (None, 0), "{last}");
    }
}

#[test]
fn a_write_into_a_file_that_was_under_way_may_be_old_or_new_or_not_there() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &format!("journal=yes\n{TREE},format=yes\n")).0.failure(), None);
    let found = crate::journal::recover(dir.path(), "fsd1").unwrap();
    let rules = steadfast_lab_params::JournalRules::default();
    let begin = |keys: Vec<u8>| {
        crate::journal::Journal::begin(dir.path(), "fsd1", rules, &found.about, move || keys).unwrap()
    };
    let recover = || run(dir.path(), &format!("journal=(recover,only)\n{TREE}\n"));
    // Block 5 is the short one of the second file; it holds the old data.
    begin(found.keys.clone()).note(false, 5, &[found.keys[5] % 126 + 1]).unwrap();
    let (outcome, said) = recover();
    assert!(said[0].ends_with("1 were under way."), "{said:?}");
    assert_eq!((outcome.failure(), outcome.compared, outcome.runs[0].errors), (None, Some(18), 0));
    // The first writes of a file that never came to be.
    fs::remove_file(tree_file(dir.path(), 1)).unwrap();
    let mut keys = found.keys.clone();
    keys[3..6].fill(0);
    begin(keys).note(false, 3, &[9, 9]).unwrap();
    let (outcome, _) = recover();
    assert_eq!((outcome.failure(), outcome.compared, outcome.runs[0].errors), (None, Some(15), 0));
    // Neither old nor new.
    begin(found.keys.clone()).note(false, 8, &[found.keys[8] % 126 + 1]).unwrap();
    let spoiled = tree_file(dir.path(), 2);
    let mut bytes = fs::read(&spoiled).unwrap();
    bytes[10_200] ^= 1;
    fs::write(&spoiled, bytes).unwrap();
    let mut told = Vec::new();
    let plan = format!("journal=(recover,only)\n{TREE}\n").replace("HERE", &dir.path().display().to_string());
    let plan = steadfast_lab_params::parse_text("journal.parm", &plan).unwrap();
    let outcome = execute(&plan, &Options::default(), &AtomicBool::new(false), &mut |event| {
        if let Event::Error(error) = event {
            told.extend(error.evidence.iter().cloned());
        }
    });
    // The file that is not there and this block: two of the fifty errors that data_errors= allows.
    assert_eq!((outcome.failure(), outcome.runs[0].errors), (None, 2));
    let wrong = |line: &String| line.contains("The block at 8192 of '") && line.contains("vdb_f0002.file");
    assert!(told.iter().any(wrong), "{told:?}");
}

#[test]
fn a_journal_of_another_tree_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &format!("journal=yes\n{TREE},format=yes\n")).0.failure(), None);
    // As many blocks, other files: without the control file nobody else would notice.
    fs::remove_file(dir.path().join("a/vdb_control.file")).unwrap();
    let other = TREE.replace("width=2,files=3", "width=3,files=2");
    let (outcome, _) = run(dir.path(), &format!("journal=(recover,only)\n{other}\n"));
    assert!(outcome.failure().unwrap().contains("fsd=fsd1: journal: it is about"), "{:?}", outcome.failure());
}

#[test]
fn a_file_that_somebody_made_longer_is_judged_up_to_its_length() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &format!("journal=yes\n{TREE},format=yes\n")).0.failure(), None);
    let longer = fs::OpenOptions::new().write(true).open(tree_file(dir.path(), 5)).unwrap();
    longer.set_len(50_000).unwrap();
    let (outcome, _) = run(dir.path(), &format!("journal=(recover,only)\n{TREE}\n"));
    assert_eq!((outcome.failure(), outcome.compared, outcome.runs[0].errors), (None, Some(18), 0));
}

#[test]
fn what_is_about_to_be_destroyed_is_forgotten_by_an_entry() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(run(dir.path(), &format!("journal=yes\n{TREE},format=yes\n")).0.failure(), None);
    let found = crate::journal::recover(dir.path(), "fsd1").unwrap();
    let about = found.about;
    let validate = steadfast_lab_params::Validate { block: about.block, ..Default::default() };
    let mut map = crate::validate::Map::new(validate, about.blocks, "fsd1").unwrap();
    let rules = steadfast_lab_params::JournalRules { recover: true, ..Default::default() };
    map.open_journal(dir.path(), rules, f64::from_bits(about.ratio), about.seed).unwrap().unwrap();
    let stop = AtomicBool::new(false);
    let shared = crate::shared::Shared::new(&stop, "t", 50, std::sync::mpsc::channel().0);
    assert!(map.gone(3, 3, &shared));
    // The machine stops here: no new map.
    let after = crate::journal::recover(dir.path(), "fsd1").unwrap();
    let known: Vec<usize> = (0..18).filter(|at| after.keys[*at] != 0).collect();
    assert_eq!(known, (0..3).chain(6..18).collect::<Vec<_>>());
    assert!(!shared.ended());
}
