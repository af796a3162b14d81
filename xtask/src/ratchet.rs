//! Counts that may only become smaller: `xtask/ratchets.txt` has a line for each that is above its
//! goal.
//!
//! A rule that much of the tree breaks cannot be a wall at once. Here each place that breaks it is
//! listed with its count; more is a finding, and `cargo xtask tidy --lower` writes the counts of
//! today where they are smaller.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// One counted rule: its name in the file, the goal, and what to do about it.
#[derive(Clone, Copy)]
pub struct Rule {
    pub name: &'static str,
    pub goal: usize,
    pub advice: &'static str,
}

/// Counts of today, by rule and place.
#[derive(Default)]
pub struct Counts(BTreeMap<(&'static str, String), (usize, Rule)>);

impl Counts {
    /// Notes a count; several of one place are added.
    pub fn add(&mut self, rule: Rule, place: &str, count: usize) {
        self.0.entry((rule.name, place.to_owned())).or_insert((0, rule)).0 += count;
    }

    /// A finding for each count that is above its goal and above what is listed.
    pub fn findings(&self, listed: &str) -> Vec<String> {
        let mut findings = Vec::new();
        let mut allowed = BTreeMap::new();
        for line in listed.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            match line.split_whitespace().collect::<Vec<_>>()[..] {
                [rule, place, count] if count.parse::<usize>().is_ok() => {
                    allowed.insert((rule, place), count.parse().unwrap_or(0));
                }
                _ => findings.push(format!("xtask/ratchets.txt: '{line}' is not: RULE PLACE COUNT")),
            }
        }
        for ((name, place), (count, rule)) in &self.0 {
            let most = allowed.get(&(*name, place.as_str())).copied().unwrap_or(0).max(rule.goal);
            if *count > most {
                findings.push(format!(
                    "{place}: {name}: {count}, and at most {most} is allowed; {}",
                    rule.advice
                ));
            }
        }
        findings
    }

    /// The list as it is when every count of today that is smaller is written down.
    pub fn lowered(&self, listed: &str) -> String {
        let mut lines: Vec<String> =
            listed.lines().take_while(|line| line.starts_with('#')).map(str::to_owned).collect();
        for line in listed.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [name, place, most] = words[..] else { continue };
            let today = self.0.iter().find(|((rule, at), _)| *rule == name && at == place);
            let Some((_, (count, rule))) = today else { continue };
            let count = (*count).min(most.parse().unwrap_or(0));
            if count > rule.goal {
                lines.push(format!("{name} {place} {count}"));
            }
        }
        lines.join("\n") + "\n"
    }
}

/// Where the list is.
pub fn list(root: &Path) -> PathBuf {
    root.join("xtask/ratchets.txt")
}

/// The findings of the tree at `root`.
pub fn check(root: &Path, counts: &Counts) -> Vec<String> {
    match fs::read_to_string(list(root)) {
        Ok(listed) => counts.findings(&listed),
        Err(error) => vec![format!("xtask/ratchets.txt: {error}")],
    }
}

/// Writes the counts of today where they are smaller than the listed ones.
///
/// # Errors
/// Of the system.
pub fn lower(root: &Path, counts: &Counts) -> std::io::Result<()> {
    let listed = fs::read_to_string(list(root))?;
    fs::write(list(root), counts.lowered(&listed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule { name: "lines", goal: 10, advice: "split it" };

    fn counts(of: &[(&str, usize)]) -> Counts {
        let mut counts = Counts::default();
        of.iter().for_each(|(place, count)| counts.add(RULE, place, *count));
        counts
    }

    #[test]
    fn more_than_the_goal_and_the_list_allow_is_a_finding() {
        let listed = "# a remark\nlines a 20\n";
        assert_eq!(counts(&[("a", 20), ("b", 10)]).findings(listed), Vec::<String>::new());
        assert_eq!(counts(&[("a", 21)]).findings(listed).len(), 1);
        assert_eq!(counts(&[("b", 11)]).findings(listed).len(), 1);
        assert_eq!(counts(&[("b", 6), ("b", 6)]).findings(listed).len(), 1);
        assert_eq!(counts(&[]).findings("lines a\n").len(), 1);
    }

    #[test]
    fn lowering_never_raises_and_forgets_what_has_reached_its_goal() {
        let listed = "# a remark\nlines a 20\nlines b 20\nlines c 20\nlines gone 20\n";
        let today = counts(&[("a", 15), ("b", 25), ("c", 10), ("d", 30)]);
        assert_eq!(today.lowered(listed), "# a remark\nlines a 15\nlines b 20\n");
    }
}
