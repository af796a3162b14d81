//! Journals, seen from an execution and the next.

use crate::*;
use std::fs;
use std::path::Path;
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
    let begin =
        || crate::journal::Journal::begin(dir.path(), "sd1", rules, &found.about, &found.keys).unwrap();
    begin().note(false, 3, &[found.keys[3] % 126 + 1]).unwrap();
    let (outcome, said) = run(dir.path(), &format!("journal=(recover,only)\n{WRITES}"));
    assert_eq!((outcome.failure(), outcome.compared), (None, Some(256)));
    assert!(said.iter().any(|line| line.ends_with("1 were under way.")), "{said:?}");
    begin().note(false, 3, &[found.keys[3] % 126 + 1]).unwrap();
    let mut bytes = fs::read(dir.path().join("f")).unwrap();
    bytes[3 * 4096 + 100] ^= 1;
    fs::write(dir.path().join("f"), bytes).unwrap();
    let (outcome, _) = run(dir.path(), &format!("journal=(recover,only)\n{WRITES}"));
    assert!(outcome.failure().unwrap().contains("the block at 12288"), "{:?}", outcome.failure());
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
    assert!(outcome.failure().unwrap().contains("nothing is left to compare"), "{:?}", outcome.failure());
}
