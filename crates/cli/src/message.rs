//! Refusals as text: object and problem, meaning, action, and the code to look up.

use crate::table::tame;
use std::fmt::Write as _;
use steadfast_control::Refusal;

/// The operator's vocabulary.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Words {
    /// `zpool list`.
    Zfs,
    /// `steadfast pool list`.
    Own,
}

impl Words {
    /// `zpool`, or our own words for it.
    #[must_use]
    pub fn zpool(self) -> &'static str {
        match self {
            Words::Zfs => "zpool",
            Words::Own => "steadfast pool",
        }
    }

    /// Replaces the commands in a sentence by those of this vocabulary.
    fn translate(self, text: &str) -> String {
        match self {
            Words::Zfs => text.to_owned(),
            Words::Own => text.replace("`zpool ", "`steadfast pool ").replace("`zfs ", "`steadfast fs "),
        }
    }
}

/// A refusal as three lines: problem, meaning, action. `doing` ("cannot create 'tank'") comes
/// first.
#[must_use]
pub fn explain(doing: &str, refusal: &Refusal, words: Words) -> String {
    let problem = tame(&refusal.what);
    let advice = words.translate(&tame(&refusal.advice()));
    let mut text = if doing.is_empty() { String::new() } else { format!("{doing}: ") };
    let _ = writeln!(text, "{problem}");
    let _ = writeln!(text, "  meaning: {}", tame(&refusal.meaning));
    let _ = writeln!(text, "  action:  {advice} See operations/messages.md, {}.", refusal.code);
    text
}

/// The same three lines as `zpool status` prints them, headed `status`, `meaning` and `action`.
#[must_use]
pub fn three_parts(message: &Refusal, words: Words) -> String {
    let explained = explain("", message, words);
    let mut lines = explained.lines();
    let mut text = format!("status: {}\n", sentence(lines.next().unwrap_or_default()));
    for line in lines {
        let line = line.trim_start().replacen("action:  ", "action: ", 1);
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// The text with a capital and a full stop.
fn sentence(text: &str) -> String {
    let text = capital(text);
    if text.ends_with('.') { text } else { text + "." }
}

/// The text with a capital.
#[must_use]
pub fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    first + letters.as_str()
}
