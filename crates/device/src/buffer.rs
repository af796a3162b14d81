//! [`Buffer`]: bytes that lie in memory as direct transfers want them.

use std::fmt;
use std::ops::{Deref, DerefMut};

use crate::pages::{self, SPAN_BYTES_MIN, Span};

/// Alignment of direct transfers, in memory and on the device. Covers every disk sold.
pub(crate) const ALIGNMENT: usize = 4096;

/// Bytes, most often with an address that is a multiple of 4,096: then a direct transfer needs no
/// copy. From some 60 KiB to 2 MiB they lie in memory that is kept and used again
/// ([`crate::pages`]); otherwise they are the end of a somewhat longer allocation.
///
/// A buffer made from a vector takes it as it is, aligned or not; transfers of it work, with a
/// copy.
#[derive(Default)]
pub struct Buffer(Memory);

enum Memory {
    /// The bytes from `start` on.
    Heap { bytes: Vec<u8>, start: usize },
    /// The first `length` bytes.
    Span { span: Span, length: usize },
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::Heap { bytes: Vec::new(), start: 0 }
    }
}

impl Buffer {
    /// No bytes, with room for `capacity`; aligned.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Buffer {
        if let Some(span) = Span::take(capacity) {
            return Buffer(Memory::Span { span, length: 0 });
        }
        let waits = pages::take_long(capacity);
        let mut bytes = waits.unwrap_or_else(|| Vec::with_capacity(capacity + ALIGNMENT - 1));
        let start = offset_of_alignment(&bytes);
        bytes.resize(start, 0);
        Buffer(Memory::Heap { bytes, start })
    }

    /// No bytes, with room for `capacity` and, if that is small, hardly more; aligned if it is
    /// large.
    #[must_use]
    pub fn with_room(capacity: usize) -> Buffer {
        if capacity < SPAN_BYTES_MIN {
            Vec::with_capacity(capacity).into()
        } else {
            Buffer::with_capacity(capacity)
        }
    }

    /// `length` zeros; aligned.
    #[must_use]
    pub fn zeroed(length: usize) -> Buffer {
        if let Some(mut span) = Span::take(length) {
            span.as_mut_slice()[..length].fill(0);
            return Buffer(Memory::Span { span, length });
        }
        Buffer::of_bytes(vec![0; length + ALIGNMENT - 1], length)
    }

    /// `length` bytes of no meaning, to be filled by the caller; aligned.
    #[must_use]
    pub fn to_fill(length: usize) -> Buffer {
        if let Some(span) = Span::take(length) {
            return Buffer(Memory::Span { span, length });
        }
        let waits = pages::take_long(length);
        Buffer::of_bytes(waits.unwrap_or_else(|| vec![0; length + ALIGNMENT - 1]), length)
    }

    /// `length` bytes of an allocation that has room for them from where it is aligned on.
    fn of_bytes(mut bytes: Vec<u8>, length: usize) -> Buffer {
        let start = offset_of_alignment(&bytes);
        bytes.truncate(start + length);
        Buffer(Memory::Heap { bytes, start })
    }

    /// The bytes of several slices, one behind the other; aligned.
    #[must_use]
    pub fn gather(parts: &[&[u8]]) -> Buffer {
        let mut buffer = Buffer::with_capacity(parts.iter().map(|part| part.len()).sum());
        parts.iter().for_each(|part| buffer.extend(part));
        buffer
    }

    /// Appends bytes.
    ///
    /// # Panics
    /// If they do not fit into the capacity: growing would move all bytes and lose the alignment.
    pub fn extend(&mut self, more: &[u8]) {
        assert!(more.len() <= self.capacity() - self.len(), "a buffer does not grow");
        match &mut self.0 {
            Memory::Heap { bytes, .. } => bytes.extend_from_slice(more),
            Memory::Span { span, length } => {
                span.as_mut_slice()[*length..*length + more.len()].copy_from_slice(more);
                *length += more.len();
            }
        }
    }

    /// Makes it `length` bytes long, with zeros for what is new.
    ///
    /// # Panics
    /// If that is beyond the capacity.
    pub fn resize(&mut self, new: usize) {
        assert!(new <= self.capacity(), "a buffer does not grow");
        match &mut self.0 {
            Memory::Heap { bytes, start } => bytes.resize(*start + new, 0),
            Memory::Span { span, length } => {
                if new > *length {
                    span.as_mut_slice()[*length..new].fill(0);
                }
                *length = new;
            }
        }
    }

    /// Bytes it has room for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        match &self.0 {
            Memory::Heap { bytes, start } => bytes.capacity() - start,
            Memory::Span { span, .. } => span.len(),
        }
    }

    /// The bytes as a vector.
    #[must_use]
    pub fn into_vec(mut self) -> Vec<u8> {
        match std::mem::take(&mut self.0) {
            Memory::Heap { mut bytes, start } => {
                if start > 0 {
                    let length = bytes.len() - start;
                    bytes.copy_within(start.., 0);
                    bytes.truncate(length);
                }
                bytes
            }
            Memory::Span { span, length } => span.as_slice()[..length].to_vec(),
        }
    }

    /// Memory it holds, in bytes: what is between its end and its capacity counts.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.0 {
            Memory::Heap { bytes, .. } => bytes.capacity(),
            Memory::Span { span, .. } => span.len(),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Memory::Heap { bytes, .. } = &mut self.0
            && bytes.len() > pages::LONG_BYTES_MIN
        {
            pages::keep_long(std::mem::take(bytes));
        }
    }
}

impl Clone for Buffer {
    fn clone(&self) -> Buffer {
        let mut copy = Buffer::with_room(self.len());
        copy.extend(self);
        copy
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

pub(crate) fn offset_of_alignment(memory: &[u8]) -> usize {
    let start = memory.as_ptr().align_offset(ALIGNMENT);
    assert!(start < ALIGNMENT, "a byte pointer can be aligned");
    start
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer(Memory::Heap { bytes, start: 0 })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Heap { bytes, start } => &bytes[*start..],
            Memory::Span { span, length } => &span.as_slice()[..*length],
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Heap { bytes, start } => &mut bytes[*start..],
            Memory::Span { span, length } => &mut span.as_mut_slice()[..*length],
        }
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
        for length in [1, 511, 4096, 5000, 100_000, 1 << 20, (2 << 20) + 1] {
            let zeroed = Buffer::zeroed(length);
            assert!(is_aligned(&zeroed) && zeroed.len() == length && zeroed.iter().all(|&byte| byte == 0));
            let mut filled = Buffer::with_capacity(length);
            assert!(filled.is_empty());
            let bytes: Vec<u8> = (0..length).map(|at| at as u8).collect();
            bytes.chunks(3_333).for_each(|some| filled.extend(some));
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
    fn long_buffers_are_used_again_and_zeroed_ones_are_zero() {
        // Of lengths that no other test takes.
        let lengths = [9_000_000, 8_800_000, 9_000_001, 11_000_000];
        for (turn, length) in lengths.into_iter().enumerate() {
            let mut buffer = Buffer::to_fill(length);
            assert!(is_aligned(&buffer) && buffer.len() == length, "{length}");
            buffer.fill(turn as u8 + 1);
            drop(buffer);
            let zeroed = Buffer::zeroed(length);
            assert!(is_aligned(&zeroed) && zeroed.len() == length && zeroed.iter().all(|&byte| byte == 0));
        }
        let mut filled = Buffer::with_capacity(9_200_000);
        filled.extend(&vec![7; 9_200_000]);
        let place = filled.as_ptr();
        drop(filled);
        let empty = Buffer::with_capacity(9_199_999);
        assert!(empty.is_empty() && empty.as_ptr() == place, "memory that was filled before");
        let vector = Buffer::to_fill(9_000_000).into_vec();
        assert_eq!(vector.len(), 9_000_000);
        let mut cleared = Buffer::with_capacity(9_000_000);
        cleared.resize(9_000_000);
        assert!(is_aligned(&cleared) && cleared.iter().all(|&byte| byte == 0));
    }

    #[test]
    #[should_panic(expected = "does not grow")]
    fn a_buffer_does_not_grow() {
        Buffer::with_capacity(10).extend(&[0; 10 + ALIGNMENT]);
    }
}
