//! The cases of a suite, counted.

use std::collections::BTreeMap;

/// Result of one suite.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tally {
    /// Its name.
    pub name: String,
    /// Cases that passed.
    pub passed: usize,
    /// Cases that failed, with what was said of them.
    pub failed: BTreeMap<String, String>,
    /// Cases that were skipped, with the reason.
    pub skipped: BTreeMap<String, String>,
    /// Why the whole suite was skipped.
    pub skipped_whole: Option<String>,
    /// Failures that are not known, and known ones that passed: one line each.
    pub unexpected: Vec<String>,
    /// Processor seconds of the suite and of the daemon it loaded.
    pub cpu_s: f64,
    /// Seconds by the clock.
    pub wall_s: f64,
    passed_names: Vec<String>,
}

impl Tally {
    /// A suite that cannot be run here.
    pub fn skipped(name: &str, why: &str) -> Tally {
        let mut tally = Tally { name: name.to_owned(), ..Tally::default() };
        tally.skipped.insert("all".to_owned(), why.to_owned());
        tally.skipped_whole = Some(why.to_owned());
        tally
    }

    /// Reads a log: lines that begin with `PASS CASE`, `FAIL CASE words` or `SKIP CASE words`
    /// count, all others are for people.
    pub fn read(name: &str, log: &str) -> Tally {
        let mut tally = Tally { name: name.to_owned(), ..Tally::default() };
        for line in log.lines() {
            let mut words = line.splitn(3, ' ');
            let (Some(word), Some(case)) = (words.next(), words.next()) else { continue };
            let rest = words.next().unwrap_or_default();
            tally.note(word, case, rest);
        }
        if let Some(why) = tally.skipped.get("all") {
            tally.skipped_whole = Some(why.clone());
        }
        tally
    }

    /// Adds one case; words other than PASS, FAIL and SKIP add nothing.
    pub fn note(&mut self, word: &str, case: &str, rest: &str) {
        match word {
            "PASS" => {
                self.passed += 1;
                self.passed_names.push(case.to_owned());
            }
            "FAIL" => _ = self.failed.insert(case.to_owned(), rest.to_owned()),
            "SKIP" => _ = self.skipped.insert(case.to_owned(), rest.to_owned()),
            _ => {}
        }
    }

    /// Takes the known failures off [conformance.2].
    pub fn judge(&mut self, known: &BTreeMap<String, String>) {
        for (case, words) in &self.failed {
            if !known.contains_key(case) {
                self.unexpected.push(format!("{case} {words}").trim_end().to_owned());
            }
        }
        for case in known.keys().filter(|case| self.passed_names.contains(case)) {
            self.unexpected.push(format!("{case} passes, and stands in the list of known failures"));
        }
        if self.passed == 0 && self.failed.is_empty() && self.skipped.is_empty() {
            self.unexpected.push("the suite said nothing".to_owned());
        }
    }

    /// `name passed failed skipped cpu wall`.
    pub fn line(&self) -> String {
        format!(
            "{:<12} {:>7} {:>6} {:>7} {:>8.1} {:>8.1}",
            self.name,
            self.passed,
            self.failed.len(),
            self.skipped.len(),
            self.cpu_s,
            self.wall_s
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_that_begin_with_the_word_count() {
        let log = "PASS a\n+ echo FAIL b\nFAIL c two words\nSKIP d not built\n PASS e\n";
        let mut tally = Tally::read("x", log);
        assert_eq!((tally.passed, tally.failed.len(), tally.skipped.len()), (1, 1, 1));
        tally.judge(&BTreeMap::new());
        assert_eq!(tally.unexpected, ["c two words"]);
    }

    #[test]
    fn a_known_failure_is_no_surprise_until_it_passes() {
        let known = BTreeMap::from([("a".to_owned(), "a reason".to_owned())]);
        let mut failing = Tally::read("x", "PASS b\nFAIL a\n");
        failing.judge(&known);
        assert!(failing.unexpected.is_empty());
        let mut passing = Tally::read("x", "PASS a\n");
        passing.judge(&known);
        assert_eq!(passing.unexpected.len(), 1);
    }

    #[test]
    fn silence_is_a_failure() {
        let mut tally = Tally::read("x", "all is well\n");
        tally.judge(&BTreeMap::new());
        assert_eq!(tally.unexpected, ["the suite said nothing"]);
        let mut skipped = Tally::read("x", "SKIP all not installed\n");
        skipped.judge(&BTreeMap::new());
        assert!(skipped.unexpected.is_empty());
    }
}
