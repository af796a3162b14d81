//! History entry: what was done to a pool, and by whom. FORMAT.md, "History entry".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, Txg};

/// Value of a history entry; its key in the meta tree is its number.
///
/// | off | len | field     | meaning                                                  |
/// |-----|-----|-----------|----------------------------------------------------------|
/// |   0 |   8 | time_ns   | wall time, nanoseconds since 1970 UTC                     |
/// |   8 |   8 | txg       | txg that made it durable                                  |
/// |  16 |   4 | uid       | user who asked                                            |
/// |  20 |   1 | internal  | 1 if the pool did it by itself, else 0                    |
/// |  21 |   1 | reserved  | zero                                                      |
/// |  22 |   2 | host_len  | length of the host's name, at most 255                    |
/// |  24 |   4 | text_len  | length of the text, with the host's at most 2,048         |
/// |  28 |   4 | reserved  | zero                                                      |
/// |  32 |     | host      | UTF-8                                                     |
/// |     |     | text      | UTF-8, the command as given, without secrets              |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct HistoryEntry {
    /// When.
    pub time_ns: u64,
    /// In which txg.
    pub txg: Txg,
    /// User.
    pub uid: u32,
    /// True for what no operator asked for.
    pub internal: bool,
    /// Where.
    pub host: String,
    /// Command.
    pub text: String,
}

impl HistoryEntry {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "history_entry",
        &[
            ("time_ns", 0, 8),
            ("txg", 8, 8),
            ("uid", 16, 4),
            ("internal", 20, 1),
            ("reserved", 21, 1),
            ("host_len", 22, 2),
            ("text_len", 24, 4),
            ("reserved", 28, 4),
        ],
        &["host", "text"],
    );
    /// Longest text and host together, so that an entry fits a tree's value.
    pub const TEXT_MAX: usize = 2048;
    /// Longest host.
    pub const HOST_MAX: usize = 255;

    /// The entry's bytes; host and text are cut at [`HistoryEntry::TEXT_MAX`] bytes together.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let host = cut(&self.host, Self::HOST_MAX);
        let text = cut(&self.text, Self::TEXT_MAX - host.len());
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("time_ns", self.time_ns).u64("txg", self.txg.0).u32("uid", self.uid);
        out.u8("internal", u8::from(self.internal)).reserved();
        out.u16("host_len", u16::try_from(host.len()).expect("bounded"));
        out.u32("text_len", u32::try_from(text.len()).expect("bounded")).reserved();
        out.tail("host", host.as_bytes()).tail("text", text.as_bytes()).finish()
    }

    /// Reads an entry.
    pub fn decode(bytes: &[u8]) -> Result<HistoryEntry, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (time_ns, txg, uid) = (from.u64("time_ns"), Txg(from.u64("txg")), from.u32("uid"));
        let internal = from.u8("internal");
        if internal > 1 {
            return Err(from.refuse("internal", internal));
        }
        from.reserved()?;
        let host_len = usize::from(from.u16("host_len"));
        let text_len = from.u32("text_len") as usize;
        if host_len > Self::HOST_MAX {
            return Err(from.refuse("host_len", host_len as u64));
        }
        if text_len > Self::TEXT_MAX - host_len {
            return Err(from.refuse("text_len", text_len as u64));
        }
        from.reserved()?;
        let host = from.tail_text("host", host_len)?;
        let text = from.tail_text("text", text_len)?;
        from.finish()?;
        Ok(HistoryEntry { time_ns, txg, uid, internal: internal == 1, host, text })
    }
}

fn cut(text: &str, bytes: usize) -> &str {
    let mut end = text.len().min(bytes);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_read_back_and_long_texts_are_cut_between_letters() {
        let entry = HistoryEntry {
            time_ns: 1,
            txg: Txg(2),
            uid: 3,
            internal: false,
            host: "h".into(),
            text: "zpool create tank".into(),
        };
        assert_eq!(HistoryEntry::decode(&entry.encode()), Ok(entry.clone()));
        let long = HistoryEntry { text: "ä".repeat(5_000), ..entry };
        let read = HistoryEntry::decode(&long.encode()).unwrap();
        assert!(read.text.len() <= HistoryEntry::TEXT_MAX && long.text.starts_with(&read.text));
    }
}
