//! Comments of source files: how wide they are, and how their sentences begin.

use crate::ratchet::{Counts, Rule};

/// Widest line of a comment, in characters.
const COLUMNS_MAX: usize = 100;
/// Words that begin no sentence, unless it asks.
const RIDDLES: &[&str] = &["What", "Who", "Whoever", "Whatever"];

const WIDE: Rule = Rule { name: "wide-comments", goal: 0, advice: "wrap comments at 100 columns" };
const RIDDLE: Rule = Rule {
    name: "riddles",
    goal: 0,
    advice: "name the thing: no sentence begins with What or Who for a noun",
};

/// Counts wide lines and riddles of a source file, under the room that it belongs to.
pub fn count(room: &str, text: &str, counts: &mut Counts) {
    let (mut wide, mut riddles) = (0, 0);
    let mut block: Vec<&str> = Vec::new();
    for line in text.lines().chain([""]) {
        match comment(line) {
            Some((begins_line, words)) => {
                // A row of a table cannot be wrapped.
                let is_row = words.trim_start().starts_with('|');
                wide += usize::from(begins_line && !is_row && line.chars().count() > COLUMNS_MAX);
                if !begins_line {
                    riddles += riddles_of(&std::mem::take(&mut block));
                }
                block.push(words);
                if !begins_line {
                    riddles += riddles_of(&std::mem::take(&mut block));
                }
            }
            None => riddles += riddles_of(&std::mem::take(&mut block)),
        }
    }
    counts.add(WIDE, room, wide);
    counts.add(RIDDLE, room, riddles);
}

/// The words of the comment in a line, and whether nothing stands before it.
pub fn comment(line: &str) -> Option<(bool, &str)> {
    let trimmed = line.trim_start();
    if let Some(words) = trimmed.strip_prefix("//") {
        return Some((true, words.trim_start_matches(['/', '!'])));
    }
    let (_, words) = line.split_once(" // ")?;
    // In a string, if a quotation mark is still open.
    let before = &line[..line.len() - words.len()];
    before.matches('"').count().is_multiple_of(2).then_some((false, words))
}

/// Sentences in the lines of one comment that begin with a riddle and do not ask.
fn riddles_of(lines: &[&str]) -> usize {
    let mut paragraphs: Vec<String> = vec![String::new()];
    for line in lines {
        let line = line.trim();
        let item = line.strip_prefix("- ").or_else(|| line.strip_prefix("* "));
        if line.is_empty() || item.is_some() {
            paragraphs.push(String::new());
        }
        if let Some(last) = paragraphs.last_mut() {
            if !last.is_empty() {
                last.push(' ');
            }
            last.push_str(item.unwrap_or(line));
        }
    }
    let is_riddle = |(at, sentence): (usize, &str)| {
        let first = sentence.split([' ', ',']).next().unwrap_or_default();
        let begins =
            RIDDLES.iter().any(|word| first == *word || (at == 0 && first.eq_ignore_ascii_case(word)));
        begins && !sentence.trim_end().ends_with('?') && !sentence.contains("? ")
    };
    let sentences = |paragraph: &str| paragraph.split(". ").enumerate().filter(|s| is_riddle(*s)).count();
    paragraphs.iter().map(|paragraph| sentences(paragraph)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        let mut counts = Counts::default();
        count("crates/a", text, &mut counts);
        counts.findings("")
    }

    #[test]
    fn plain_comments_have_no_findings() {
        let text = "/// Bytes left. Who wrote them?\n/// A list:\n/// - one\nlet a = \"x // What\"; // bytes left\nfn what() {}\n";
        assert_eq!(findings(text), Vec::<String>::new());
    }

    #[test]
    fn each_riddle_is_noticed() {
        for text in [
            "/// What is left.",
            "// what is left",
            "let a = 1; // what is left",
            "//! Plain. Whoever comes\n//! waits.",
            "/// Plain.\n///\n/// Who comes waits.",
            "/// - Whatever comes",
        ] {
            assert_eq!(findings(text).len(), 1, "{text}");
        }
    }

    #[test]
    fn a_wide_comment_is_noticed() {
        assert_eq!(findings(&format!("// {}", "a".repeat(97))).len(), 0);
        assert_eq!(findings(&format!("// {}", "a".repeat(98))).len(), 1);
        assert_eq!(findings(&format!("// | {} |", "a".repeat(98))).len(), 0);
    }
}
