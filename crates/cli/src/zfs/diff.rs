//! `zfs diff`: which files changed.

use crate::command::Command;
use crate::options::{Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{FsDiff, FsDiffEntry};

pub(super) const COMMAND: Command = Command {
    names: &["diff"],
    syntax: Syntax {
        flags: &[
            flag('F', "with the type of each file, as `ls -F` prints it"),
            flag('H', "for scripts: tabs, and no arrow"),
            flag('h', "print spaces and characters that are not ASCII as they are, not as `\\0ooo`"),
            flag('t', "with the time of the change, in seconds since 1970"),
        ],
        operands: "filesystem@snapshot [filesystem@snapshot|filesystem]",
        least: 1,
        most: 2,
    },
    doc: "Lists the files that changed since a snapshot: + created, - removed, M modified, R renamed. \
          Bytes outside printable ASCII, spaces and backslashes are printed as `\\0ooo`, in octal. \
          `(+1)` behind a file is the number of hard links that it gained.",
    run: diff,
};

fn diff(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let base = parsed.operands[0].clone();
    let fs = base.split('@').next().unwrap_or_default().to_owned();
    let target = match parsed.operands.get(1) {
        None => fs,
        Some(snapshot) if snapshot.starts_with('@') => format!("{fs}{snapshot}"),
        Some(target) => target.clone(),
    };
    let doing = || format!("cannot list the changes since '{}'", tame(&base));
    let (types, script, times) = (parsed.has('F'), parsed.has('H'), parsed.has('t'));
    let shown = |path: &str| if parsed.has('h') { plain(path) } else { tame(path) };
    for FsDiffEntry { change, kind, path, to, links, time } in
        session.ask(FsDiff { base: base.clone(), target }).doing(doing)?
    {
        let mut columns = Vec::new();
        if times {
            columns.push(time);
        }
        columns.push(change);
        if types {
            columns.push(kind);
        }
        columns.push(match (to, script) {
            (None, _) => shown(&path),
            (Some(to), true) => format!("{}\t{}", shown(&path), shown(&to)),
            (Some(to), false) => format!("{} -> {}", shown(&path), shown(&to)),
        });
        if links != 0 {
            columns.push(format!("({links:+})"));
        }
        session.line(columns.join("\t"));
    }
    Ok(())
}

/// A path with its escapes replaced by the characters, except those that would end the line or
/// write on the terminal.
fn plain(escaped: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = escaped.as_bytes();
    while let Some((&first, behind)) = rest.split_first() {
        let octal = (first == b'\\').then(|| rest.get(1..5)).flatten();
        let byte = octal.and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(byte.unwrap_or(first));
        rest = if byte.is_some() { &rest[5..] } else { behind };
    }
    let mut text = String::new();
    let escape = |text: &mut String, byte: u8| text.push_str(&format!("\\{byte:04o}"));
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character.is_control() {
                true => character.to_string().bytes().for_each(|byte| escape(&mut text, byte)),
                false => text.push(character),
            }
        }
        chunk.invalid().iter().for_each(|byte| escape(&mut text, *byte));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_path_is_one_line_and_has_its_characters() {
        assert_eq!(plain("/a\\0040b\\0303\\0251\\0134"), "/a bé\\");
        assert_eq!(plain("/a\\0012M\\0011\\0377\\0302\\0205"), "/a\\0012M\\0011\\0377\\0302\\0205");
        assert_eq!(plain("/a\\9\\00"), "/a\\9\\00", "no escape");
    }
}
