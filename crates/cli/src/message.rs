//! Refusals as text: object and problem, meaning, action, and the code to look up.

use crate::table::tame;
use crate::zfs_phrases::first_line;
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
    #[must_use]
    pub fn translate(self, text: &str) -> String {
        match self {
            Words::Zfs => text.to_owned(),
            Words::Own => text.replace("`zpool ", "`steadfast pool ").replace("`zfs ", "`steadfast fs "),
        }
    }
}

/// A refusal of `doing` ("cannot create 'tank'"). In ZFS's words the first line is ZFS's, and our
/// sentence is a part of the meaning.
///
/// One line alone is for programs, which take the last line as the problem. `typed` is the command.
#[must_use]
pub fn refused(doing: &str, refusal: &Refusal, words: Words, explains: bool, typed: &str) -> String {
    let zfs = match words {
        Words::Zfs => first_line(doing, refusal, typed).map(|line| tame(&line)),
        Words::Own => None,
    };
    let ours = match doing {
        "" => tame(&refusal.what),
        doing => format!("{doing}: {}", tame(&refusal.what)),
    };
    if words == Words::Zfs && !explains {
        return zfs.unwrap_or(ours) + "\n";
    }
    match zfs {
        None => format!("{ours}\n{}", advised("", refusal, words)),
        Some(line) => format!("{line}\n{}", advised(&(sentence(&tame(&refusal.what)) + " "), refusal, words)),
    }
}

/// The lines of meaning and action.
fn advised(problem: &str, refusal: &Refusal, words: Words) -> String {
    let advice = words.translate(&tame(&refusal.advice()));
    format!(
        "  meaning: {problem}{}\n  action:  {advice} See operations/messages.md, {}.\n",
        tame(&refusal.meaning),
        refusal.code
    )
}

/// The text with a capital and a full stop.
#[must_use]
pub fn sentence(text: &str) -> String {
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
