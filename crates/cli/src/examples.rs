//! Examples of a command: lines of the pages of docs/operations, which a test types.

use std::fmt::Write as _;

/// The pages, those of common tasks first: a command has its first few examples.
const PAGES: &[&str] = &[
    include_str!("../../../docs/operations/create.md"),
    include_str!("../../../docs/operations/import.md"),
    include_str!("../../../docs/operations/grow.md"),
    include_str!("../../../docs/operations/repair.md"),
    include_str!("../../../docs/operations/watch.md"),
    include_str!("../../../docs/operations/snapshot.md"),
    include_str!("../../../docs/operations/send.md"),
    include_str!("../../../docs/operations/encrypt.md"),
    include_str!("../../../docs/operations/raw.md"),
    include_str!("../../../docs/operations/quota.md"),
    include_str!("../../../docs/operations/dedup.md"),
    include_str!("../../../docs/operations/fast.md"),
    include_str!("../../../docs/operations/log.md"),
    include_str!("../../../docs/operations/anchor.md"),
    include_str!("../../../docs/operations/tune.md"),
    include_str!("../../../docs/operations/sharing.md"),
    include_str!("../../../docs/operations/volume.md"),
    include_str!("../../../docs/operations/inject.md"),
    include_str!("../../../docs/operations/system.md"),
];
/// Examples of one command.
const MOST: usize = 5;

/// Lines that call a command of a family, each with its remark if it has one.
pub(crate) fn of(family: &str, word: &str, names: &[&str]) -> Vec<(&'static str, &'static str)> {
    let mut found: Vec<(&str, &str)> = Vec::new();
    for line in PAGES.iter().flat_map(|page| command_lines(page)) {
        let (command, remark) = line.split_once("  #").unwrap_or((line, ""));
        let (command, remark) = (command.trim(), remark.trim());
        let calls = |begin: String| {
            command.strip_prefix(&begin).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
        };
        let is_ours = names.iter().any(|name| match word {
            "" => calls(format!("steadfast {name}")),
            word => calls(format!("steadfast {word} {name}")) || calls(format!("{family} {name}")),
        });
        let is_new = found.iter().all(|(known, _)| *known != command);
        if is_ours && is_new && !command.ends_with('\\') && found.len() < MOST {
            found.push((command, remark));
        }
    }
    found
}

/// Lines of a page that are typed: indented, or fenced.
fn command_lines(page: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    page.lines().filter_map(move |line| {
        if line.starts_with("```") {
            fenced = !fenced;
            return None;
        }
        if fenced { Some(line) } else { line.strip_prefix("    ") }
    })
}

/// The section of a manual page; `plain` escapes a text.
pub(crate) fn section(found: &[(&str, &str)], plain: impl Fn(&str) -> String) -> String {
    if found.is_empty() {
        return String::new();
    }
    let mut text = ".SH EXAMPLES\n".to_owned();
    for (command, remark) in found {
        let _ = writeln!(text, ".TP\n\\fB{}\\fR", plain(command));
        if !remark.is_empty() {
            let _ = writeln!(text, "{}", plain(remark));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn examples_are_lines_of_the_pages() {
        let scrub = of("zpool", "pool", &["scrub"]);
        assert!(!scrub.is_empty() && scrub.len() <= MOST, "{scrub:?}");
        assert!(scrub.iter().all(|(command, _)| command.contains("scrub")), "{scrub:?}");
        assert!(of("zfs", "fs", &["no-such-verb"]).is_empty());
        // `set` is no beginning of `settle`, and remarks are apart.
        let status = of("zpool", "pool", &["status"]);
        assert!(status.iter().any(|(_, remark)| !remark.is_empty()), "{status:?}");
        assert!(status.iter().all(|(command, _)| !command.contains(" #")), "{status:?}");
        let lines: Vec<&str> = command_lines("text\n    a\n```\nb\n```\nc\n").collect();
        assert_eq!(lines, ["a", "b"]);
    }
}
