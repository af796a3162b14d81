//! External Data Representation (RFC 4506): four-byte units, most significant byte first.

/// Bytes that are no value of the expected type, or a value beyond its bound.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("bytes that are not what the protocol says")]
pub struct Garbage;

/// Result of reading.
pub type Result<T> = std::result::Result<T, Garbage>;

/// Reads values from the front of bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Reads from these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    /// Bytes not yet read.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Garbage)?;
        self.rest = rest;
        Ok(taken)
    }

    /// An unsigned number of 32 bits.
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_be_bytes(self.take(4)?.try_into().expect("four bytes")))
    }

    /// An unsigned number of 64 bits.
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_be_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    /// A truth value: 0 or 1.
    pub fn bool(&mut self) -> Result<bool> {
        match self.u32()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    /// Bytes of a fixed number, which is a multiple of four.
    pub fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        const { assert!(N.is_multiple_of(4)) };
        Ok(self.take(N)?.try_into().expect("that many"))
    }

    /// Bytes of a number that stands before them, `max` at most.
    pub fn opaque(&mut self, max: usize) -> Result<&'a [u8]> {
        let length = usize::try_from(self.u32()?).map_err(|_| Garbage)?;
        if length > max {
            return Err(Garbage);
        }
        let bytes = self.take(length)?;
        // The padding says nothing, so nothing is asked of it.
        self.take(length.next_multiple_of(4) - length)?;
        Ok(bytes)
    }

    /// A value that may be missing.
    pub fn optional<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.bool()? { read(self).map(Some) } else { Ok(None) }
    }
}

/// Puts values behind one another.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    /// The bytes so far.
    pub out: Vec<u8>,
}

impl Writer {
    /// An unsigned number of 32 bits.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.out.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// An unsigned number of 64 bits.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.out.extend_from_slice(&value.to_be_bytes());
        self
    }

    /// A truth value.
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.u32(u32::from(value))
    }

    /// Bytes of a fixed number, which is a multiple of four.
    pub fn fixed(&mut self, bytes: &[u8]) -> &mut Self {
        assert!(bytes.len().is_multiple_of(4), "a field of the protocol has whole units");
        self.out.extend_from_slice(bytes);
        self
    }

    /// Bytes behind their number.
    pub fn opaque(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(u32::try_from(bytes.len()).expect("below 4 GiB"));
        self.out.extend_from_slice(bytes);
        self.pad(bytes.len())
    }

    /// Zeros up to a whole unit behind `length` bytes.
    pub fn pad(&mut self, length: usize) -> &mut Self {
        self.out.extend_from_slice(&[0; 3][..length.next_multiple_of(4) - length]);
        self
    }

    /// Writes another number over the one at `at`.
    pub fn set_u32(&mut self, at: usize, value: u32) {
        self.out[at..at + 4].copy_from_slice(&value.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_the_bytes_of_rfc_4506() {
        let mut out = Writer::default();
        out.u32(0x0102_0304).u64(5).bool(true).opaque(b"abcde").fixed(b"wxyz");
        let expected = b"\x01\x02\x03\x04\0\0\0\0\0\0\0\x05\0\0\0\x01\0\0\0\x05abcde\0\0\0wxyz";
        assert_eq!(out.out, expected);
        let mut read = Reader::new(expected);
        assert_eq!((read.u32(), read.u64(), read.bool()), (Ok(0x0102_0304), Ok(5), Ok(true)));
        assert_eq!((read.opaque(5), read.fixed(), read.rest()), (Ok(&b"abcde"[..]), Ok(*b"wxyz"), &b""[..]));
        assert_eq!(read.u32(), Err(Garbage));
    }

    #[test]
    fn a_length_is_bounded_by_its_type_and_by_the_bytes() {
        assert_eq!(Reader::new(b"\0\0\0\x02ab\0\0").opaque(1), Err(Garbage));
        assert_eq!(Reader::new(b"\0\0\0\x02ab\0").opaque(9), Err(Garbage), "the padding is missing");
        assert_eq!(Reader::new(b"\xff\xff\xff\xffab").opaque(usize::MAX), Err(Garbage));
        assert_eq!(Reader::new(b"\0\0\0\x02").bool(), Err(Garbage));
    }
}
