//! `steadfast inspect`: stored structures printed and checked offline. No daemon is asked, and
//! nothing is written.

use std::cell::RefCell;
use std::path::Path;

use steadfast_control::{Code, Refusal, stores};
use steadfast_inspect::{Error, Leaf, Record, Request, Selector, Severity, Span};
use zeroize::Zeroizing;

use crate::command::Command;
use crate::options::{Flag, JSON, MANY, Parsed, Syntax};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;

const IN_USE: &str = "in-use";

/// The command.
pub(crate) const COMMAND: Command = Command {
    names: &["inspect"],
    syntax: Syntax {
        flags: &[
            Flag { doc: "as JSON, one object per line", ..JSON },
            Flag { letter: '\0', long: IN_USE, value: "", doc: "even if the daemon uses the devices" },
            Flag {
                letter: 'k',
                long: "key-file",
                value: "file",
                doc: "key of a sealed pool or of encrypted file systems: passphrase, 32 bytes or 64 hex digits",
            },
        ],
        operands: "label|uberblock|tail|segments|log|check device ... | tree device ... meta|names:FS|extents:FS | \
                   block device ... segment:offset:length | anchor file ...",
        least: 2,
        most: MANY,
    },
    doc: "Prints or checks the stored structures of devices, without the daemon and without writing. A device may \
          be the address of a store. \
          `check` exits with 1 if a finding is worse than a note.",
    run: inspect,
};

/// Structure to print.
enum Task {
    Anchor,
    Label,
    Uberblock,
    Tail,
    Segments,
    Log,
    Check,
    Tree(Selector),
    Block(Span),
}

fn inspect(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (verb, rest) = parsed.operands.split_first().expect("two operands at least");
    let usage = |error: &Error| Failure::Usage(tame(&error.to_string()));
    let last = || rest.split_last().filter(|(_, devices)| !devices.is_empty());
    let (task, devices) = match (verb.as_str(), last()) {
        ("anchor", _) => (Task::Anchor, rest),
        ("label", _) => (Task::Label, rest),
        ("uberblock", _) => (Task::Uberblock, rest),
        ("tail", _) => (Task::Tail, rest),
        ("segments", _) => (Task::Segments, rest),
        ("log", _) => (Task::Log, rest),
        ("check", _) => (Task::Check, rest),
        ("tree", Some((word, devices))) => {
            (Task::Tree(word.parse().map_err(|error| usage(&error))?), devices)
        }
        ("block", Some((word, devices))) => {
            (Task::Block(word.parse().map_err(|error| usage(&error))?), devices)
        }
        (word, _) => {
            let sentence = format!("unknown structure '{}', or missing device", tame(word));
            return Err(Failure::Usage(sentence));
        }
    };
    if matches!(task, Task::Anchor) {
        return anchors(session, parsed, devices);
    }
    let doing = || format!("cannot inspect '{}'", tame(&devices[0]));
    let refuse = |error: Error| Refusal::new(Code::FileIo, error.to_string()).with("file", &devices[0]);

    let secret = parsed.value('k').map(|path| read_key(session, path)).transpose()?;
    let mut leaves = Vec::new();
    for device in devices {
        if stores::is_address(Path::new(device)) {
            let path = Path::new(device);
            leaves.push(Leaf::over(path, stores::look(path).doing(doing)?));
            continue;
        }
        let path = session.world.absolute(device);
        leaves.push(Leaf::open(&path, parsed.has_long(IN_USE)).map_err(refuse).doing(doing)?);
    }
    let env = steadfast_env::Env::real();
    let anchor = steadfast_inspect::anchored(&leaves);
    let request = Request { leaves: &leaves, secret, anchor: anchor.as_ref(), env: &env };

    // Straight to the stream: a tree may be longer than memory. A reader that has gone is no
    // failure.
    let json = parsed.has('j');
    let out = RefCell::new(&mut *session.world.out);
    let print = |record: Record| {
        let line = if json { record.to_json() } else { record.to_string() };
        let _ = writeln!(out.borrow_mut(), "{line}");
    };
    let mut sink = print;
    let result = match &task {
        Task::Anchor => unreachable!("handled above"),
        Task::Label => {
            leaves.iter().for_each(|leaf| steadfast_inspect::label(leaf, &mut sink));
            Ok(())
        }
        Task::Uberblock => steadfast_inspect::uberblock(&request, &mut sink),
        Task::Tail => steadfast_inspect::tail(&request, &mut sink),
        Task::Segments => steadfast_inspect::segments(&request, &mut sink),
        Task::Log => steadfast_inspect::log(&request, &mut sink),
        Task::Tree(selector) => steadfast_inspect::tree(&request, selector, &mut sink),
        Task::Block(span) => steadfast_inspect::block(&request, *span, &mut sink),
        Task::Check => {
            let summary = steadfast_inspect::check(&request, &mut |finding| print(finding.record()));
            print(summary.record());
            if summary.worst().is_some_and(|worst| worst > Severity::Note) {
                return Err(Failure::Status(crate::command::FAILED));
            }
            Ok(())
        }
    };
    result.map_err(refuse).doing(doing)
}

/// Prints register files. An anchor names its pool; no device is needed.
fn anchors(session: &mut Session<'_, '_>, parsed: &Parsed, files: &[String]) -> Result<(), Failure> {
    let mut valid = true;
    for file in files {
        let path = session.world.absolute(file);
        let json = parsed.has('j');
        let mut sink = |record: Record| {
            let line = if json { record.to_json() } else { record.to_string() };
            let _ = writeln!(session.world.out, "{line}");
        };
        let refuse = |error: Error| Refusal::new(Code::FileIo, error.to_string()).with("file", file);
        valid &= steadfast_inspect::anchor(&path, &[], &mut sink)
            .map_err(refuse)
            .doing(|| format!("cannot inspect '{}'", tame(file)))?;
    }
    if valid { Ok(()) } else { Err(Failure::Status(crate::command::FAILED)) }
}

/// The bytes of a key file. A line break at the end of a passphrase is dropped.
fn read_key(session: &Session<'_, '_>, path: &str) -> Result<Vec<u8>, Failure> {
    let path = session.world.absolute(path);
    let refuse = |error: std::io::Error| {
        Refusal::new(Code::FileIo, format!("{}: {error}", path.display())).with("file", path.display())
    };
    let bytes = std::fs::read(Path::new(&path)).map_err(refuse).doing(|| "cannot read the key".to_owned())?;
    let bytes = Zeroizing::new(bytes);
    let text = if bytes.len() == 32 { &bytes[..] } else { bytes.strip_suffix(b"\n").unwrap_or(&bytes) };
    Ok(text.to_vec())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use crate::world::World;
    use crate::{command, program};
    use steadfast_control::runtime::Surroundings;
    use steadfast_control::{Code, Refusal};

    /// Runs `steadfast inspect` with these words. No daemon answers: none may be asked.
    fn inspect(words: &[&str]) -> (u8, String, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let surroundings = Surroundings::default();
        let mut world = World {
            input: &mut std::io::empty(),
            input_is_terminal: false,
            input_fd: None,
            out_fd: None,
            out_is_terminal: false,
            explains: true,
            options_first: false,
            out: &mut out,
            err: &mut err,
            cwd: PathBuf::from("/"),
            surroundings,
            uid: 0,
            connect: &mut |_, _| Err(Refusal::new(Code::DaemonAbsent, "no daemon is needed here")),
            guest: &mut |_, _| Ok(None),
            sleep: &mut |_| unreachable!("nothing repeats here"),
        };
        let arguments = ["steadfast", "inspect"].iter().chain(words).map(|word| (*word).to_owned());
        let status = program::run(&mut world, &arguments.collect::<Vec<_>>());
        (status, String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap())
    }

    #[test]
    fn a_blank_device_is_told_of_without_a_daemon() {
        let path = std::env::temp_dir().join(format!("steadfast-inspect-{}.img", std::process::id()));
        std::fs::File::create(&path).unwrap().set_len(64 << 20).unwrap();
        let name = path.to_str().unwrap();
        let label = inspect(&["label", name]);
        let check = inspect(&["check", "--json", name]);
        std::fs::remove_file(&path).unwrap();
        assert_eq!((label.0, label.1.lines().count()), (command::SUCCESS, 4), "{label:?}");
        assert!(label.1.lines().all(|line| line.ends_with("valid=false reason=empty")), "{label:?}");
        assert_eq!(check.0, command::FAILED);
        assert!(
            check.1.contains("\"code\":\"label-none\"") && check.1.contains("\"worst\":\"fatal\""),
            "{check:?}"
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_usage() {
        for words in
            [&["label"][..], &["nothing", "a"], &["tree", "a"], &["tree", "a", "b"], &["block", "a", "1:2"]]
        {
            let (status, out, err) = inspect(words);
            assert_eq!((status, out.as_str()), (command::USAGE, ""), "{words:?}");
            assert!(err.contains("usage:"), "{err}");
        }
    }
}
