//! Judging figures: a ratio of two arms, or a figure itself, against what was to be reached, with
//! the spread of the rounds.
//!
//! The middle of the rounds decides. A goal is *within the spread* when the middle misses it and
//! the best that the rounds allow to be said does not: the best of one side against the worst of
//! the other.

use super::{Goal, Row, Verdict, shown};

/// Limit of a figure by itself.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Not less.
    AtLeast(f64),
    /// Not more.
    AtMost(f64),
}

fn find<'a>(rows: &'a [Row], key: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.key == key)
}

/// `arm` at least `limit` times as good as `against`; none when the row was left out of this run.
pub fn ratio(rows: &[Row], key: &str, arm: &str, against: &str, limit: f64, text: &str) -> Option<Goal> {
    let row = find(rows, key)?;
    let measured = row.ratio(arm, against);
    let range = match (row.spread(arm), row.spread(against)) {
        (Some(ours), Some(theirs)) if row.more => Some((ours.0 / theirs.1, ours.1 / theirs.0)),
        (Some(ours), Some(theirs)) => Some((theirs.0 / ours.1, theirs.1 / ours.0)),
        _ => None,
    };
    let verdict = match (measured, range) {
        (Some(ratio), _) if ratio >= limit => Verdict::Met,
        (Some(_), Some((_, best))) if best >= limit => Verdict::WithinSpread,
        (Some(_), _) => Verdict::NotMet,
        (None, _) => Verdict::NotMeasured,
    };
    Some(Goal {
        text: text.to_owned(),
        row: key.to_owned(),
        arm: arm.to_owned(),
        against: Some(against.to_owned()),
        limit,
        at_least: true,
        measured,
        range,
        verdict,
    })
}

/// The figure of `arm` itself within `bound`; none when the row was left out of this run.
pub fn bound(rows: &[Row], key: &str, arm: &str, bound: Bound, text: &str) -> Option<Goal> {
    let row = find(rows, key)?;
    let (measured, range) = (row.median(arm), row.spread(arm));
    let (limit, at_least) = match bound {
        Bound::AtLeast(limit) => (limit, true),
        Bound::AtMost(limit) => (limit, false),
    };
    let holds = |value: f64| if at_least { value >= limit } else { value <= limit };
    let verdict = match (measured, range) {
        (Some(value), _) if holds(value) => Verdict::Met,
        (Some(_), Some((least, most))) if holds(least) || holds(most) => Verdict::WithinSpread,
        (Some(_), _) => Verdict::NotMet,
        (None, _) => Verdict::NotMeasured,
    };
    Some(Goal {
        text: text.to_owned(),
        row: key.to_owned(),
        arm: arm.to_owned(),
        against: None,
        limit,
        at_least,
        measured,
        range,
        verdict,
    })
}

impl Goal {
    /// "0.83 of 0.7"; the words of a table cell.
    pub fn figure(&self) -> String {
        match self.measured {
            Some(value) => shown(value),
            None => "not measured".to_owned(),
        }
    }

    /// "at least 0.7", "at most 2.5".
    pub fn bound(&self) -> String {
        let word = if self.against.is_some() || self.at_least { "at least" } else { "at most" };
        format!("{word} {}", self.limit)
    }
}

impl Verdict {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::WithinSpread => "within the spread",
            Verdict::NotMet => "not met",
            Verdict::NotMeasured => "not measured",
        }
    }
}

/// Summary, in a sentence or three.
pub fn summary(goals: &[Goal]) -> String {
    let count = |verdict| goals.iter().filter(|goal| goal.verdict == verdict).count();
    let unmeasured = count(Verdict::NotMeasured);
    let judged = goals.len() - unmeasured;
    if judged == 0 {
        return "No goal could be judged: what they compare was not measured.".to_owned();
    }
    let mut words = format!("{} of {judged} goals are met", count(Verdict::Met));
    let near = count(Verdict::WithinSpread);
    if near > 0 {
        words.push_str(&format!(", {near} within the spread of the rounds"));
    }
    words.push('.');
    let missed: Vec<String> = goals
        .iter()
        .filter(|goal| goal.verdict == Verdict::NotMet)
        .map(|goal| format!("{} ({})", goal.text, goal.figure()))
        .collect();
    if !missed.is_empty() {
        words.push_str(&format!(" Not met: {}.", missed.join("; ")));
    }
    words
}
