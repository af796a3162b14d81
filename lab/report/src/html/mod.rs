//! A report as one file of HTML: no script is needed, nothing is fetched, it prints, and it follows
//! the reader's light or dark setting.
//!
//! Colours belong to arms, never to rank: the first arm (the feature) is always blue and drawn
//! solid, the second (what it is compared with) always orange and drawn dashed. Both pairs stay
//! apart for colour-blind readers, and no fact is told by colour alone: every bar has its name
//! before it and its number behind it, every line has dashes of its own, and where there are more
//! than three its name at its end.

mod bars;
pub mod lines;
mod page;
pub mod parts;
mod tables;

pub use page::render;

/// Style of every page.
pub(super) const STYLE: &str = include_str!("style.css");

/// Text made safe between tags and inside quoted attributes.
pub fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            _ => safe.push(character),
        }
    }
    safe
}

/// The colour class of an arm.
pub fn colour(index: usize) -> &'static str {
    ["c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"][index % 9]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_file_becomes_markup() {
        assert_eq!(escape("<a href=\"x\">'&"), "&lt;a href=&quot;x&quot;&gt;&#39;&amp;");
    }
}
