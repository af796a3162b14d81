//! [`Buffer`]: bytes that lie in memory as direct transfers want them.

use std::ops::{Deref, DerefMut};

/// Alignment of direct transfers, in memory and on the device. Covers every disk sold.
pub(crate) const ALIGNMENT: usize = 4096;

/// Bytes, most often with an address that is a multiple of 4,096: then a direct transfer needs no copy. The bytes are the
/// end of a somewhat longer allocation, so nothing here is unsafe.
///
/// A buffer made from a vector takes it as it is, aligned or not; transfers of it work, with a copy.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    memory: Vec<u8>,
    start: usize,
}

impl Buffer {
    /// No bytes, with room for `capacity`; aligned.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Buffer {
        let mut memory = Vec::with_capacity(capacity + ALIGNMENT - 1);
        let start = offset_of_alignment(&memory);
        memory.resize(start, 0);
        Buffer { memory, start }
    }

    /// `length` zeros; aligned.
    #[must_use]
    pub fn zeroed(length: usize) -> Buffer {
        let mut memory = vec![0; length + ALIGNMENT - 1];
        let start = offset_of_alignment(&memory);
        memory.truncate(start + length);
        Buffer { memory, start }
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If they do not fit into the capacity: growing would move all bytes and lose the alignment.
    pub fn extend(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.memory.capacity() - self.memory.len(), "a buffer does not grow");
        self.memory.extend_from_slice(bytes);
    }

    /// Makes it `length` bytes long, with zeros for what is new.
    ///
    /// # Panics
    /// If that is beyond the capacity.
    pub fn resize(&mut self, length: usize) {
        assert!(self.start + length <= self.memory.capacity(), "a buffer does not grow");
        self.memory.resize(self.start + length, 0);
    }

    /// The bytes as a vector, moved to its beginning if they did not begin there.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<u8> {
        if self.start > 0 {
            let length = self.len();
            self.memory.copy_within(self.start.., 0);
            self.memory.truncate(length);
        }
        self.memory
    }

    /// Memory it holds, in bytes: what is between its end and its capacity counts.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.memory.capacity()
    }
}

fn offset_of_alignment(memory: &[u8]) -> usize {
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    assert!(start < ALIGNMENT, "a byte pointer can be aligned");
    start
}

impl From<Vec<u8>> for Buffer {
    fn from(memory: Vec<u8>) -> Buffer {
        Buffer { memory, start: 0 }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl PartialEq<Vec<u8>> for Buffer {
    fn eq(&self, other: &Vec<u8>) -> bool {
        **self == **other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_aligned(bytes: &[u8]) -> bool {
        bytes.as_ptr().addr().is_multiple_of(ALIGNMENT)
    }

    #[test]
    fn buffers_are_aligned_and_stay_so_while_they_fill() {
        for length in [1, 511, 4096, 5000, 1 << 20] {
            let zeroed = Buffer::zeroed(length);
            assert!(is_aligned(&zeroed) && zeroed.len() == length && zeroed.iter().all(|&byte| byte == 0));
            let mut filled = Buffer::with_capacity(length);
            assert!(filled.is_empty());
            for at in 0..length {
                filled.extend(&[at as u8]);
            }
            assert!(is_aligned(&filled));
            assert_eq!(filled.len(), length);
            assert_eq!(filled[length - 1], (length - 1) as u8);
            assert_eq!(filled.clone().into_vec(), filled.to_vec());
            filled.resize(0);
            filled.resize(length);
            assert!(is_aligned(&filled) && filled.iter().all(|&byte| byte == 0));
        }
        assert_eq!(Buffer::from(vec![1, 2, 3]).into_vec(), [1, 2, 3]);
    }

    #[test]
    #[should_panic(expected = "does not grow")]
    fn a_buffer_does_not_grow() {
        Buffer::with_capacity(10).extend(&[0; 10 + ALIGNMENT]);
    }
}
