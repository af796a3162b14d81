//! Offset tables that code and document share.
//!
//! A [`Layout`] lists the fields of one structure: those at fixed offsets, then the variable parts
//! in order. The encoder and the decoder take fields by name in the table's order and assert that
//! name, offset and length agree, so a structure cannot be written otherwise than its table says; a
//! test compares the same table with FORMAT.md.

use crate::DecodeError;

/// A field at a fixed place: name, offset, length, in bytes.
pub type Field = (&'static str, usize, usize);

/// The table of one structure.
#[derive(Debug)]
pub struct Layout {
    /// Name as in FORMAT.md and in errors.
    pub name: &'static str,
    /// Fixed part: contiguous, starting at 0. Fields called `reserved` are zero.
    pub fields: &'static [Field],
    /// Names of the variable parts that follow, in order.
    pub tail: &'static [&'static str],
}

impl Layout {
    /// A table, checked when compiled: each field begins where the one before it ends.
    #[must_use]
    pub const fn new(name: &'static str, fields: &'static [Field], tail: &'static [&'static str]) -> Layout {
        let mut at = 0;
        let mut index = 0;
        while index < fields.len() {
            assert!(fields[index].1 == at, "fields are contiguous");
            assert!(fields[index].2 > 0, "a field has a length");
            at += fields[index].2;
            index += 1;
        }
        Layout { name, fields, tail }
    }

    /// Bytes of the fixed part.
    #[must_use]
    pub const fn size(&self) -> usize {
        match self.fields.last() {
            Some(last) => last.1 + last.2,
            None => 0,
        }
    }
}

/// Writes a structure as its layout says.
pub(crate) struct Encoder {
    layout: &'static Layout,
    field: usize,
    tail: usize,
    out: Vec<u8>,
}

impl Encoder {
    pub(crate) fn new(layout: &'static Layout) -> Encoder {
        Encoder { layout, field: 0, tail: 0, out: Vec::with_capacity(layout.size()) }
    }

    pub(crate) fn bytes(&mut self, name: &'static str, bytes: &[u8]) -> &mut Self {
        let expected = self.layout.fields.get(self.field).copied();
        let found = (name, self.out.len(), bytes.len());
        assert_eq!(expected, Some(found), "{} is written as its table says", self.layout.name);
        self.field += 1;
        self.out.extend_from_slice(bytes);
        self
    }

    pub(crate) fn u8(&mut self, name: &'static str, value: u8) -> &mut Self {
        self.bytes(name, &[value])
    }

    pub(crate) fn u16(&mut self, name: &'static str, value: u16) -> &mut Self {
        self.bytes(name, &value.to_le_bytes())
    }

    pub(crate) fn u32(&mut self, name: &'static str, value: u32) -> &mut Self {
        self.bytes(name, &value.to_le_bytes())
    }

    pub(crate) fn u64(&mut self, name: &'static str, value: u64) -> &mut Self {
        self.bytes(name, &value.to_le_bytes())
    }

    pub(crate) fn reserved(&mut self) -> &mut Self {
        let (name, _, length) = self.layout.fields[self.field];
        assert_eq!(name, "reserved");
        self.field += 1;
        self.out.resize(self.out.len() + length, 0);
        self
    }

    /// The fixed part alone, where the caller appends the variable parts itself.
    pub(crate) fn finish_fixed(&mut self) -> Vec<u8> {
        assert_eq!(self.field, self.layout.fields.len(), "{} is complete", self.layout.name);
        std::mem::take(&mut self.out)
    }

    /// The next variable part; its length is carried by a fixed field or by the part itself.
    pub(crate) fn tail(&mut self, name: &'static str, bytes: &[u8]) -> &mut Self {
        assert_eq!(self.field, self.layout.fields.len(), "{}: fixed part first", self.layout.name);
        assert_eq!(self.layout.tail.get(self.tail), Some(&name), "{}: parts in order", self.layout.name);
        self.tail += 1;
        self.out.extend_from_slice(bytes);
        self
    }

    pub(crate) fn finish(&mut self) -> Vec<u8> {
        assert_eq!(self.field, self.layout.fields.len(), "{} is complete", self.layout.name);
        assert_eq!(self.tail, self.layout.tail.len(), "{} is complete", self.layout.name);
        std::mem::take(&mut self.out)
    }

    pub(crate) fn finish_array<const N: usize>(&mut self) -> [u8; N] {
        self.finish().try_into().expect("a fixed structure has its fixed size")
    }
}

/// Reads a structure as its layout says. Errors are for the bytes; assertions are for the caller.
pub(crate) struct Decoder<'b> {
    layout: &'static Layout,
    field: usize,
    tail: usize,
    at: usize,
    bytes: &'b [u8],
}

impl<'b> Decoder<'b> {
    pub(crate) fn new(layout: &'static Layout, bytes: &'b [u8]) -> Result<Decoder<'b>, DecodeError> {
        let (need, have) = (layout.size(), bytes.len());
        if have < need {
            return Err(DecodeError::Short { structure: layout.name, need, have });
        }
        Ok(Decoder { layout, field: 0, tail: 0, at: 0, bytes })
    }

    pub(crate) fn bytes(&mut self, name: &'static str, length: usize) -> &'b [u8] {
        let (expected, at, size) = self.layout.fields[self.field];
        assert!((at, size) == (self.at, length), "{} is read as its table says", self.layout.name);
        // Dear for what a listing reads a thousand times, and any test finds it.
        debug_assert_eq!(expected, name, "{} is read as its table says", self.layout.name);
        self.field += 1;
        self.at += length;
        &self.bytes[self.at - length..self.at]
    }

    pub(crate) fn array<const N: usize>(&mut self, name: &'static str) -> [u8; N] {
        self.bytes(name, N).try_into().expect("as long as asked for")
    }

    pub(crate) fn u8(&mut self, name: &'static str) -> u8 {
        self.array::<1>(name)[0]
    }

    pub(crate) fn u16(&mut self, name: &'static str) -> u16 {
        u16::from_le_bytes(self.array(name))
    }

    pub(crate) fn u32(&mut self, name: &'static str) -> u32 {
        u32::from_le_bytes(self.array(name))
    }

    pub(crate) fn u64(&mut self, name: &'static str) -> u64 {
        u64::from_le_bytes(self.array(name))
    }

    pub(crate) fn reserved(&mut self) -> Result<(), DecodeError> {
        let (_, _, length) = self.layout.fields[self.field];
        if is_zero(self.bytes("reserved", length)) {
            Ok(())
        } else {
            Err(DecodeError::Reserved { structure: self.layout.name })
        }
    }

    /// Bytes after the fixed part that were not taken yet.
    pub(crate) fn rest(&self) -> &'b [u8] {
        &self.bytes[self.at..]
    }

    /// Takes the next variable part.
    pub(crate) fn tail(&mut self, name: &'static str, length: usize) -> Result<&'b [u8], DecodeError> {
        assert_eq!(self.field, self.layout.fields.len(), "{}: fixed part first", self.layout.name);
        assert_eq!(self.layout.tail.get(self.tail), Some(&name), "{}: parts in order", self.layout.name);
        self.tail += 1;
        let have = self.bytes.len();
        let end = self.at.saturating_add(length);
        if end > have {
            return Err(DecodeError::Short { structure: self.layout.name, need: end, have });
        }
        let part = &self.bytes[self.at..end];
        self.at = end;
        Ok(part)
    }

    /// A variable part that is UTF-8 text.
    pub(crate) fn tail_text(&mut self, name: &'static str, length: usize) -> Result<String, DecodeError> {
        let structure = self.layout.name;
        match std::str::from_utf8(self.tail(name, length)?) {
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(DecodeError::Text { structure, field: name }),
        }
    }

    /// The end: nothing may follow.
    pub(crate) fn finish(self) -> Result<(), DecodeError> {
        assert_eq!(self.field, self.layout.fields.len(), "{} is read to its end", self.layout.name);
        assert_eq!(self.tail, self.layout.tail.len(), "{} is read to its end", self.layout.name);
        match self.bytes.len() - self.at {
            0 => Ok(()),
            extra => Err(DecodeError::Trailing { structure: self.layout.name, extra }),
        }
    }

    /// Bytes taken so far, where more may follow: one entry of many.
    pub(crate) fn taken(self) -> usize {
        assert_eq!(self.field, self.layout.fields.len(), "{} is read to its end", self.layout.name);
        assert_eq!(self.tail, self.layout.tail.len(), "{} is read to its end", self.layout.name);
        self.at
    }

    pub(crate) fn refuse(&self, field: &'static str, value: impl Into<u64>) -> DecodeError {
        DecodeError::Field { structure: self.layout.name, field, value: value.into() }
    }
}
/// True if all bytes are 0. Labels and rings are mostly that, and are looked at often.
#[must_use]
pub fn is_zero(bytes: &[u8]) -> bool {
    let (blocks, rest) = bytes.as_chunks::<32>();
    blocks.iter().all(|block| *block == [0; 32]) && rest.iter().all(|byte| *byte == 0)
}
