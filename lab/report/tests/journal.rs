//! A journal outlives the program: killed while it writes, deletes and makes files, nothing is
//! called wrong afterwards.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const PROGRAM: &str = env!("CARGO_BIN_EXE_steadfast-vdbench");
/// Nothing is measured by it: what takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(120);

fn vdbench(dir: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.current_dir(dir).args(["-f", "churn.parm", "-o", "out"]).args(options);
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_program_killed_amid_a_tree_leaves_a_journal_that_calls_nothing_wrong() {
    let dir = tempfile::tempdir().unwrap();
    // A limit so small that the journal begins again many times.
    let file = |rules: &str, format: &str| {
        let text = format!(
            "journal=({rules},max,64k)\n\
             fsd=fsd1,anchor=tree,depth=1,width=2,files=20,size=30k,journal=.\n\
             fwd=w,fsd=fsd1,operation=write,xfersize=(1k,50,4k,50),fileio=random,fileselect=random,threads=2\n\
             fwd=s,fsd=fsd1,operation=write,xfersize=4k,fileio=(seq,delete),fileselect=random,threads=2\n\
             fwd=c,fsd=fsd1,operation=(create,delete),fileselect=random,threads=2\n\
             rd=r,fwd=(w,s,c),fwdrate=max,elapsed=600,interval=1{format}\n"
        );
        fs::write(dir.path().join("churn.parm"), text).unwrap();
    };
    for round in 0..3 {
        if round == 0 {
            file("noflush", ",format=yes")
        } else {
            file("recover,noflush", "")
        };
        let mut child = vdbench(dir.path(), &[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Until the run itself goes on: its first interval is in the flat file.
        let begun = Instant::now();
        loop {
            let flat = fs::read_to_string(dir.path().join("out/flatfile.html")).unwrap_or_default();
            let row = |line: &str| !line.starts_with('*') && line.split_whitespace().any(|word| word == "r");
            if flat.lines().any(row) {
                break;
            }
            assert!(begun.elapsed() < PATIENCE && child.try_wait().unwrap().is_none(), "{flat}");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        child.kill().unwrap();
        child.wait().unwrap();
        fs::remove_dir_all(dir.path().join("out")).unwrap();
        let output = vdbench(dir.path(), &["-jro"]).output().unwrap();
        let said = text(&output);
        assert_eq!(output.status.code(), Some(0), "round {round}: {said}");
        assert!(
            said.contains("fsd=fsd1: the journal of process") && said.contains("RD=journal_recovery"),
            "{said}"
        );
        assert!(!said.contains("60003"), "{said}");
        fs::remove_dir_all(dir.path().join("out")).unwrap();
    }
}
