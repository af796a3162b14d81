//! Labels of invariants: `[txg.7]` is defined once, in the head of a module, and everything else
//! that names it means that.

use std::collections::BTreeMap;

use crate::prose::comment;
use crate::ratchet::{Counts, Rule};

/// Definitions as they were before labels had a room.
const OLD: Rule = Rule { name: "old-labels", goal: 0, advice: "write [room.1] instead of (R1)" };

/// Labels of the whole tree.
#[derive(Default)]
pub struct Labels {
    /// Label, and the places that define it.
    defined: BTreeMap<String, Vec<String>>,
    /// Label, and a place that names it.
    named: BTreeMap<String, String>,
}

impl Labels {
    /// Reads a source file or a page.
    pub fn read(&mut self, name: &str, text: &str, counts: &mut Counts) {
        let is_code = name.ends_with(".rs");
        let mut old = 0;
        for (index, line) in text.lines().enumerate() {
            let place = format!("{name}:{}", index + 1);
            let words = if is_code { comment(line).map_or("", |(_, words)| words) } else { line };
            // As in a list.
            let head =
                line.trim_start().strip_prefix("//!").map(|words| words.trim_start_matches([' ', '-', '*']));
            let defined = head.and_then(|head| labels(head).into_iter().next().filter(|(at, _)| *at == 0));
            for (_, label) in labels(words) {
                self.named.entry(label).or_insert_with(|| place.clone());
            }
            if let Some((_, label)) = defined {
                self.defined.entry(label).or_default().push(place);
            } else if head.is_some_and(is_old_definition) {
                old += 1;
            }
        }
        if is_code {
            counts.add(OLD, name, old);
        }
    }

    /// Labels that are defined twice, or named and never defined.
    pub fn findings(&self) -> Vec<String> {
        let twice = self.defined.iter().filter(|(_, places)| places.len() > 1);
        let twice = twice.map(|(label, places)| format!("[{label}] is defined in {}", places.join(" and ")));
        let lost = self.named.iter().filter(|(label, _)| !self.defined.contains_key(*label));
        let lost = lost.map(|(label, place)| format!("{place}: [{label}] is defined nowhere"));
        twice.chain(lost).collect()
    }
}

/// Labels in a line, outside of backquotes, with where they stand.
fn labels(line: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut is_quoted = false;
    for (at, sign) in line.char_indices() {
        is_quoted ^= sign == '`';
        let Some((inside, _)) = line[at..].strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
            continue;
        };
        let Some((room, number)) = inside.split_once('.').filter(|_| !is_quoted) else { continue };
        let is_word = |sign: char| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '_';
        let is_room = room.starts_with(|sign: char| sign.is_ascii_lowercase()) && room.chars().all(is_word);
        if is_room && number.parse::<u32>().is_ok_and(|number| number > 0) {
            found.push((at, inside.to_owned()));
        }
    }
    found
}

/// True of `(T3) One txg is open`.
fn is_old_definition(head: &str) -> bool {
    let Some((inside, _)) = head.strip_prefix('(').and_then(|rest| rest.split_once(')')) else {
        return false;
    };
    let number = inside.trim_start_matches(|sign: char| sign.is_ascii_uppercase());
    !number.is_empty() && number.len() < inside.len() && number.chars().all(|sign| sign.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(files: &[(&str, &str)]) -> Vec<String> {
        let (mut labels, mut counts) = (Labels::default(), Counts::default());
        files.iter().for_each(|(name, text)| labels.read(name, text, &mut counts));
        [labels.findings(), counts.findings("")].concat()
    }

    #[test]
    fn labels_defined_once_and_named_anywhere_have_no_findings() {
        let files = [
            (
                "crates/txg/src/a.rs",
                "//! [txg.1] One is open.\n//! - [txg.2] So [txg.1] holds.\nlet a = b[c.1]; // see [txg.2]\n",
            ),
            ("docs/DESIGN.md", "By [txg.1], not `x[pair.1]`, and [a link](x.md) of 1 [page.0].\n"),
        ];
        assert_eq!(findings(&files), Vec::<String>::new());
    }

    #[test]
    fn a_label_defined_twice_or_never_is_noticed() {
        let twice = [("a.rs", "//! [txg.1] One."), ("b.rs", "//!   [txg.1] Another.")];
        assert_eq!(findings(&twice).len(), 1);
        assert_eq!(findings(&[("a.rs", "// see [txg.9]")]).len(), 1);
        assert_eq!(findings(&[("docs/A.md", "see [txg.9]")]).len(), 1);
        assert_eq!(findings(&[("a.rs", "// see [l2arc.9]")]).len(), 1);
    }

    #[test]
    fn a_label_without_a_room_is_noticed_where_it_is_defined() {
        assert_eq!(findings(&[("a.rs", "//! (T3) One txg is open.\n//! By (T3).\n")]).len(), 1);
        assert_eq!(findings(&[("a.rs", "//! (three) words, (C) and (1)\n")]).len(), 0);
    }
}
