//! Received property: what a stream said of a property of a dataset, and whether it counts.
//! FORMAT.md, "Received property".

use crate::DecodeError;
use crate::layout::{Decoder, Encoder, Layout};

/// Value of a received property; its key in the meta tree is the dataset and the property's name.
///
/// | off | len | field    | meaning                                                            |
/// |-----|-----|----------|--------------------------------------------------------------------|
/// |   0 |   1 | flags    | bit 0: a value was received; bit 1: the parent's counts instead    |
/// |   1 |   7 | reserved | zero                                                               |
/// |   8 |     | value    | the value received, UTF-8; nothing without bit 0                   |
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ReceivedProperty {
    /// Value in the last stream that brought properties.
    pub value: Option<String>,
    /// The parent's counts, whatever is received.
    pub inherited: bool,
}

impl ReceivedProperty {
    /// Offsets and lengths.
    pub const LAYOUT: Layout =
        Layout::new("received_property", &[("flags", 0, 1), ("reserved", 1, 7)], &["value"]);

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.value.is_some() || self.inherited, "one that says nothing is not stored");
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("flags", u8::from(self.value.is_some()) | u8::from(self.inherited) << 1).reserved();
        out.tail("value", self.value.as_deref().unwrap_or_default().as_bytes()).finish()
    }

    /// Reads it.
    pub fn decode(bytes: &[u8]) -> Result<ReceivedProperty, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let flags = from.u8("flags");
        if !(1..=3).contains(&flags) {
            return Err(from.refuse("flags", flags));
        }
        from.reserved()?;
        let length = from.rest().len();
        if flags & 1 == 0 && length > 0 {
            return Err(from.refuse("flags", flags));
        }
        let text = from.tail_text("value", length)?;
        from.finish()?;
        Ok(ReceivedProperty { value: (flags & 1 != 0).then_some(text), inherited: flags & 2 != 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_and_what_says_nothing_is_refused() {
        let of =
            |value: Option<&str>, inherited| ReceivedProperty { value: value.map(str::to_owned), inherited };
        for row in [of(Some("lz4"), false), of(Some(""), false), of(Some("lz4"), true), of(None, true)] {
            assert_eq!(ReceivedProperty::decode(&row.encode()), Ok(row));
        }
        for bad in [
            &[0, 0, 0, 0, 0, 0, 0, 0][..],
            &[2, 0, 0, 0, 0, 0, 0, 0, b'x'],
            &[4, 0, 0, 0, 0, 0, 0, 0],
            &[1, 1, 0, 0, 0, 0, 0, 0],
            &[1, 0, 0, 0, 0, 0, 0, 0, 0xff],
            &[1, 0],
        ] {
            assert!(ReceivedProperty::decode(bad).is_err(), "{bad:?}");
        }
    }
}
