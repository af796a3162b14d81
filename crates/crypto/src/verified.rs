//! Evidence as a type: a [`Verified`] value can only be made by comparing bytes with the hash their
//! parent carries, or from bytes that this program wrote itself.

use std::ops::Deref;

use crate::{hash, tags_equal};

/// Bytes whose BLAKE3 is the one expected, or what was computed from such bytes alone.
///
/// There is no other constructor. Rooms above accept nothing else from storage.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Verified<T>(T);

/// Bytes that are not the ones expected, with both hashes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("hash {} where {} is expected", short(found), short(expected))]
pub struct Mismatch {
    /// Hash the parent carries.
    pub expected: [u8; 32],
    /// Hash of the bytes.
    pub found: [u8; 32],
}

fn short(hash: &[u8; 32]) -> String {
    hash[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl<T: AsRef<[u8]>> Verified<T> {
    /// Bytes, if they hash to `expected`.
    pub fn check(bytes: T, expected: &[u8; 32]) -> Result<Verified<T>, Mismatch> {
        let found = hash(bytes.as_ref());
        if tags_equal(&found, expected) {
            Ok(Verified(bytes))
        } else {
            Err(Mismatch { expected: *expected, found })
        }
    }

    /// Bytes about to be written, with the hash their parent is to carry: the other way to know
    /// that they match.
    pub fn sign(bytes: T) -> (Verified<T>, [u8; 32]) {
        let made = hash(bytes.as_ref());
        (Verified(bytes), made)
    }
}

impl<T> Verified<T> {
    /// Content of a block that was written just now. A reader of its pointer would get the same
    /// bytes, as the pointer's hash was made from them.
    pub fn written(bytes: T) -> Verified<T> {
        Verified(bytes)
    }

    /// The value, without its evidence.
    pub fn into_inner(self) -> T {
        self.0
    }

    /// The same bytes in another holder.
    pub fn hold<U>(self, holder: impl FnOnce(T) -> U) -> Verified<U> {
        Verified(holder(self.0))
    }

    /// Applies `step` (opening, decompression, decoding): its result is as trustworthy as the
    /// verified bytes. `step` must not bring in bytes from elsewhere.
    pub fn try_map<U, E>(self, step: impl FnOnce(T) -> Result<U, E>) -> Result<Verified<U>, E> {
        step(self.0).map(Verified)
    }
}

impl<T> Deref for Verified<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_expected_bytes_are_verified() {
        let (written, expected) = Verified::sign(b"block".to_vec());
        assert_eq!(Verified::check(b"block".to_vec(), &expected), Ok(written));
        let mismatch = Verified::check(b"bloc?".to_vec(), &expected).unwrap_err();
        assert_eq!((mismatch.expected, mismatch.found), (expected, hash(b"bloc?")));
    }
}
