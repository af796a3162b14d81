//! BLAKE3, plain and keyed.

use crate::Key;

/// BLAKE3 of `bytes`: what block pointers and labels carry.
#[must_use]
pub fn hash(bytes: &[u8]) -> [u8; 32] {
    let hash = *blake3::hash(bytes).as_bytes();
    #[cfg(debug_assertions)]
    noted::note(hash);
    hash
}

/// Hashes that a thread computed, for tests that count them. Builds without debug assertions have
/// nothing of it.
#[cfg(debug_assertions)]
pub mod noted {
    use std::cell::RefCell;

    thread_local! {
        static NOTED: RefCell<Option<Vec<[u8; 32]>>> = const { RefCell::new(None) };
    }

    pub(super) fn note(hash: [u8; 32]) {
        let add = |noted: &RefCell<Option<Vec<[u8; 32]>>>| {
            if let Some(noted) = noted.borrow_mut().as_mut() {
                noted.push(hash);
            }
        };
        // A thread that ends notes nothing.
        _ = NOTED.try_with(add);
    }

    /// Does some work, and gives the result of each [`super::hash`] in it on this thread, in order.
    pub fn during<T>(work: impl FnOnce() -> T) -> (T, Vec<[u8; 32]>) {
        NOTED.set(Some(Vec::new()));
        let done = work();
        (done, NOTED.take().unwrap_or_default())
    }
}

/// BLAKE3 of parts, as if they were one.
#[must_use]
pub fn hash_parts(parts: &[&[u8]]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    parts.iter().for_each(|part| _ = hasher.update(part));
    *hasher.finalize().as_bytes()
}

/// Keyed BLAKE3 of `bytes`: an authenticator, for the holder of `key` (uberblocks of sealed pools).
#[must_use]
pub fn keyed_hash(key: &Key, bytes: &[u8]) -> [u8; 32] {
    *blake3::keyed_hash(key.expose(), bytes).as_bytes()
}

/// Compares two tags in time that does not depend on where they differ.
#[must_use]
pub fn tags_equal(left: &[u8; 32], right: &[u8; 32]) -> bool {
    blake3::Hash::from_bytes(*left) == blake3::Hash::from_bytes(*right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::from_hex;

    /// The input of BLAKE3's published vectors: 0, 1, 2 ... 250, 0, 1 ...
    fn published_input(length: usize) -> Vec<u8> {
        (0..length).map(|at| u8::try_from(at % 251).expect("below 251")).collect()
    }

    #[test]
    fn published_vectors_hold() {
        let cases = [
            (0, "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"),
            (1, "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213"),
            (1024, "42214739f095a406f3fc83deb889744ac00df831c10daa55189b5d121c855af7"),
        ];
        for (length, expected) in cases {
            assert_eq!(hash(&published_input(length)).to_vec(), from_hex(expected), "length {length}");
        }
    }

    #[test]
    fn published_keyed_vectors_hold() {
        let key = Key::from_bytes(*b"whats the Elvish word for friend");
        let cases = [
            (0, "92b2b75604ed3c761f9d6f62392c8a9227ad0ea3f09573e783f1498a4ed60d26"),
            (1, "6d7878dfff2f485635d39013278ae14f1454b8c0a3a2d34bc1ab38228a80c95b"),
        ];
        for (length, expected) in cases {
            assert_eq!(keyed_hash(&key, &published_input(length)).to_vec(), from_hex(expected));
        }
    }

    #[test]
    fn one_bit_makes_tags_differ() {
        let tag = hash(b"a");
        let mut other = tag;
        other[31] ^= 1;
        assert!(tags_equal(&tag, &tag) && !tags_equal(&tag, &other));
    }
}
