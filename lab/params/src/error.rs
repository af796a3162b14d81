//! Why a parameter file was refused, where, and what to write instead.

use std::fmt;
use std::sync::Arc;

/// A line of a parameter file, or of the command line (`line` is then 0).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// The file as it was named by the caller.
    pub file: Arc<str>,
    /// Counted from 1.
    pub line: u32,
}

impl Default for Place {
    fn default() -> Place {
        Place { file: "".into(), line: 0 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line == 0 { f.write_str(&self.file) } else { write!(f, "{}:{}", self.file, self.line) }
    }
}

/// The kinds of refusal. A caller rarely needs more than the sentence; a test asks for the kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A parameter file or include file could not be read.
    Unreadable,
    /// Quotes, parentheses or commas do not fit together.
    Syntax,
    /// No such keyword in the section that is open.
    UnknownKeyword,
    /// The keyword is known, its value is not acceptable.
    BadValue,
    /// Something required was not said.
    Missing,
    /// Two parameters, each acceptable, do not go together.
    Conflict,
    /// A name that nothing defines.
    Unresolved,
    /// A name defined twice.
    Duplicate,
    /// Part of the language that this program does not carry out yet.
    NotYet,
    /// A range, loop or count that expands beyond any use.
    TooLarge,
}

/// One refusal: what vdbench says, where it is, and the way out.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{}", self.sentence())]
pub struct Error {
    /// Kind of mistake, for programs.
    pub kind: ErrorKind,
    /// Where, if the error belongs to a line.
    pub place: Option<Place>,
    /// The word of the file that is at fault.
    pub word: String,
    /// vdbench's own text where it has one, else ours.
    pub text: String,
    /// Advice; may be empty.
    pub hint: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, place: &Place, word: &str, text: String) -> Error {
        Error { kind, place: Some(place.clone()), word: clip(word), text: clip(&text), hint: String::new() }
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Error {
        self.hint = clip(&hint.into());
        self
    }

    /// `file:line: 'word': text Hint.`, one sentence for one line of an operator's terminal.
    pub fn sentence(&self) -> String {
        let mut out = String::new();
        if let Some(place) = &self.place {
            out += &format!("{place}: ");
        }
        if !self.word.is_empty() && !self.text.contains(&self.word) {
            out += &format!("'{}': ", self.word);
        }
        out += self.text.trim_end();
        if !self.hint.is_empty() {
            let mut letters = self.hint.chars();
            if out.ends_with('.') {
                out.push(' ');
                out.extend(letters.next().into_iter().flat_map(char::to_uppercase));
            } else {
                out += "; ";
            }
            out += letters.as_str();
        }
        out
    }
}

/// Something was accepted that the author may not have meant.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Warning {
    /// Where.
    pub place: Place,
    /// One sentence.
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: warning: {}", self.place, self.text)
    }
}

/// A hostile file must not be able to fill a terminal with one word.
fn clip(text: &str) -> String {
    const LIMIT: usize = 400;
    if text.chars().count() <= LIMIT {
        return text.to_string();
    }
    text.chars().take(LIMIT).chain("...".chars()).collect()
}

/// The known word nearest to `word`, if it is near enough to be worth saying.
pub(crate) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let word: Vec<char> = word.chars().take(40).flat_map(char::to_lowercase).collect();
    let limit = if word.len() <= 3 { 1 } else { 2 };
    known
        .map(|name| (distance(&word, &name.chars().collect::<Vec<_>>()), name))
        .min()
        .filter(|(d, _)| *d <= limit)
        .map(|(_, name)| name)
}

/// Levenshtein distance in which a swap of neighbours counts once, as in `siez`.
fn distance(a: &[char], b: &[char]) -> usize {
    let mut rows = vec![vec![0usize; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..=b.len()).collect();
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let change = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + change);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_swapped_pair_of_letters_finds_its_keyword() {
        assert_eq!(nearest("siez", ["lun", "size", "threads"].into_iter()), Some("size"));
        assert_eq!(nearest("COMPRATOI", ["compratio"].into_iter()), Some("compratio"));
        assert_eq!(nearest("garbage", ["lun", "size"].into_iter()), None);
    }
}
