//! Notes on a snapshot: user properties, and the tags that hold it.

use std::collections::{BTreeMap, BTreeSet};

use super::assignments::{assigned, assignments};
use crate::DecodeError;
use crate::layout::{Decoder, Encoder, Layout};

/// Notes on the snapshot that began: user properties, and tags that hold it, at most 1,024 of
/// each. Empty notes are not sent.
///
/// | off | len | field     | meaning                                                           |
/// |-----|-----|-----------|-------------------------------------------------------------------|
/// |   0 |   4 | props_len | length of the properties, at most 2^16                            |
/// |   4 |   4 | tags_len  | length of the tags, at most 2^16; not 0 if there are no properties |
/// |   8 |   8 | reserved  | zero                                                              |
/// |  16 |     | props     | `name=value`, each followed by a zero byte, UTF-8; names ascending |
/// |     |     | tags      | each followed by a zero byte, UTF-8; ascending                    |
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct StreamNotes {
    /// Properties of users.
    pub properties: BTreeMap<String, String>,
    /// Tags that hold it.
    pub tags: BTreeSet<String>,
}

impl StreamNotes {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "stream_notes",
        &[("props_len", 0, 4), ("tags_len", 4, 4), ("reserved", 8, 8)],
        &["props", "tags"],
    );
    /// Longest text of properties, and of tags.
    pub const TEXT_MAX: u32 = 1 << 16;
    /// Most properties, and tags: each is an item where it is stored, however short it is.
    pub const COUNT_MAX: usize = 1 << 10;

    /// True if nothing is noted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.properties.is_empty() && self.tags.is_empty()
    }

    /// True if it is no more than a frame of notes may hold.
    #[must_use]
    pub fn fits(&self) -> bool {
        let props = self.properties.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>();
        let tags = self.tags.iter().map(|tag| tag.len() + 1).sum::<usize>();
        let count = self.properties.len().max(self.tags.len());
        props.max(tags) <= Self::TEXT_MAX as usize && count <= Self::COUNT_MAX
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(!self.is_empty() && self.fits());
        let props = assignments(self.properties.iter());
        let mut tags = Vec::new();
        for tag in &self.tags {
            assert!(!tag.is_empty() && !tag.contains('\0'));
            tags.extend_from_slice(tag.as_bytes());
            tags.push(0);
        }
        let length = |text: &[u8]| u32::try_from(text.len()).expect("it fits");
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u32("props_len", length(&props)).u32("tags_len", length(&tags)).reserved();
        out.tail("props", &props).tail("tags", &tags).finish()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<StreamNotes, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (props_len, tags_len) = (from.u32("props_len"), from.u32("tags_len"));
        if props_len > Self::TEXT_MAX {
            return Err(from.refuse("props_len", props_len));
        }
        if tags_len > Self::TEXT_MAX || props_len == 0 && tags_len == 0 {
            return Err(from.refuse("tags_len", tags_len));
        }
        from.reserved()?;
        let bad = |field| DecodeError::Text { structure: "stream_notes", field };
        let properties = assigned(&from.tail_text("props", props_len as usize)?);
        let properties = properties.ok_or_else(|| bad("props"))?;
        let is_sorted = properties.is_sorted_by(|(one, _), (next, _)| one < next);
        if !is_sorted || properties.len() > Self::COUNT_MAX {
            return Err(bad("props"));
        }
        let text = from.tail_text("tags", tags_len as usize)?;
        from.finish()?;
        let mut tags: BTreeSet<String> = BTreeSet::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (tag, tail) = rest.split_once('\0').ok_or_else(|| bad("tags"))?;
            let is_behind = tags.last().is_none_or(|last| last.as_str() < tag);
            if tag.is_empty() || !is_behind || tags.len() == Self::COUNT_MAX {
                return Err(bad("tags"));
            }
            tags.insert(tag.to_owned());
            rest = tail;
        }
        Ok(StreamNotes { properties: properties.into_iter().collect(), tags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_back_and_have_one_form() {
        let notes = StreamNotes {
            properties: [("org:a", "1=2"), ("org:b", "")].map(|(n, v)| (n.to_owned(), v.to_owned())).into(),
            tags: ["keep", "other"].map(String::from).into(),
        };
        let bytes = notes.encode();
        assert_eq!(StreamNotes::decode(&bytes), Ok(notes.clone()));
        for end in 0..bytes.len() {
            assert!(StreamNotes::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        for half in [
            StreamNotes { tags: BTreeSet::new(), ..notes.clone() },
            StreamNotes { properties: BTreeMap::new(), ..notes.clone() },
        ] {
            assert_eq!(StreamNotes::decode(&half.encode()), Ok(half));
        }
        assert!(StreamNotes::decode(&[0; 16]).is_err(), "nothing is noted");
        // In another order, or twice; a name that is none, a tag that is none, and what is neither.
        let text = |props: &str, tags: &str| {
            let length = |text: &str| u32::try_from(text.len()).unwrap().to_le_bytes();
            let head = [&length(props)[..], &length(tags)[..], &[0; 8]].concat();
            [&head[..], props.as_bytes(), tags.as_bytes()].concat()
        };
        assert_eq!(text("org:a=1=2\0org:b=\0", "keep\0other\0"), bytes);
        for (props, tags) in [
            ("org:b=\0org:a=1\0", ""),
            ("org:a=1\0org:a=2\0", ""),
            ("=1\0", ""),
            ("org:a\0", ""),
            ("org:a=1", ""),
            ("", "other\0keep\0"),
            ("", "keep\0keep\0"),
            ("", "\0"),
            ("", "keep"),
        ] {
            assert!(StreamNotes::decode(&text(props, tags)).is_err(), "{props:?} {tags:?}");
        }
        let many = (0..9_000).map(|at| format!("tag{at:05}")).collect::<BTreeSet<_>>();
        assert!(!StreamNotes { tags: many, ..notes.clone() }.fits() && notes.fits());
        let numbers: Vec<String> = (0..=StreamNotes::COUNT_MAX).map(|at| format!("{at:04}")).collect();
        let ended = |texts: &[String], end: &str| texts.join(end) + end;
        for (props, tags) in [(ended(&numbers, "=\0"), String::new()), (String::new(), ended(&numbers, "\0"))]
        {
            assert!(StreamNotes::decode(&text(&props, &tags)).is_err(), "one too many");
        }
        let most = text(&ended(&numbers[1..], "=\0"), &ended(&numbers[1..], "\0"));
        assert!(StreamNotes::decode(&most).is_ok_and(|most| most.fits()));
        assert!(!StreamNotes { tags: numbers.into_iter().collect(), ..notes }.fits());
    }
}
