//! Memory of long replies and records, content of files and listings, kept for the next ones.
//!
//! A reply of a megabyte from the allocator is memory that the kernel cleared, and cleared again
//! when it is given a length: two passes over what a third fills and a fourth sends. Memory of an
//! earlier reply has been written already.
//!
//! ## Invariants
//! [nfs_spare.1] Bytes of an earlier reply or call are never sent: a buffer ends where its content
//!      does.
//!      The caller cuts it there.

use parking_lot::Mutex;
use std::ops::Range;

/// Shorter replies are better off in the allocator.
const BYTES_MIN: usize = 64 << 10;
/// Most buffers that wait; none is longer than a reply.
const BUFFERS_MAX: usize = 16;

static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());

/// Makes `out` `length` bytes long. The bytes behind its present end mean nothing [nfs_spare.1].
pub(crate) fn lengthen(out: &mut Vec<u8>, length: usize) {
    if length >= BYTES_MIN
        && out.capacity() < length
        && let Some(mut spare) = take(length)
    {
        spare.resize(length, 0);
        spare[..out.len()].copy_from_slice(out);
        *out = spare;
    } else {
        out.resize(length, 0);
    }
}

/// Makes room for `more` bytes behind those that are there.
pub(crate) fn reserve(out: &mut Vec<u8>, more: usize) {
    let length = out.len() + more;
    if length >= BYTES_MIN
        && out.capacity() < length
        && let Some(mut spare) = take(length)
    {
        spare.clear();
        spare.extend_from_slice(out);
        *out = spare;
    } else {
        out.reserve(more);
    }
}

/// Moves the bytes to memory with room for `length`, and for a quarter more at most, if some of it
/// waits.
pub(crate) fn move_to(out: &mut Vec<u8>, length: usize) {
    if length >= BYTES_MIN
        && let Some(mut spare) = take_of(length..length + length / 4)
    {
        spare.clear();
        spare.extend_from_slice(out);
        keep(std::mem::replace(out, spare));
    }
}

/// Memory with room for `length` bytes, and for less than twice as many if it is an earlier one.
pub(crate) fn room(length: usize) -> Vec<u8> {
    match take_of(length..2 * length) {
        Some(mut spare) => {
            spare.clear();
            spare
        }
        None => Vec::with_capacity(length),
    }
}

fn take(length: usize) -> Option<Vec<u8>> {
    take_of(length..usize::MAX)
}

fn take_of(lengths: Range<usize>) -> Option<Vec<u8>> {
    let mut waiting = SPARE.lock();
    let at = waiting.iter().rposition(|buffer| lengths.contains(&buffer.capacity()))?;
    Some(waiting.swap_remove(at))
}

/// A reply was sent, or a record carried out.
pub(crate) fn keep(reply: Vec<u8>) {
    if reply.capacity() >= BYTES_MIN {
        let mut waiting = SPARE.lock();
        if waiting.len() < BUFFERS_MAX {
            waiting.push(reply);
        }
    }
}

/// Gives back half of what waits. To be called every few seconds.
pub(crate) fn trim() {
    let mut waiting = SPARE.lock();
    let gone = waiting.len().div_ceil(2);
    let gone: Vec<_> = waiting.drain(..gone).collect();
    drop(waiting);
    drop(gone);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_keeps_its_head_in_memory_of_an_earlier_one() {
        keep(vec![7; 2 * BYTES_MIN]);
        let mut out = b"head".to_vec();
        lengthen(&mut out, BYTES_MIN + 1);
        assert!(out.starts_with(b"head") && out.len() == BYTES_MIN + 1);
        assert!(out.capacity() >= 2 * BYTES_MIN, "the earlier one's");
        keep(Vec::from(b"short"));
        keep(out);
        let mut listing = b"head".to_vec();
        reserve(&mut listing, BYTES_MIN);
        assert_eq!(listing, b"head");
        assert!(listing.capacity() >= 2 * BYTES_MIN, "the earlier one's");
        trim();
        let mut long = vec![1; 3];
        lengthen(&mut long, 100);
        assert!(long.len() == 100 && long[..3] == [1; 3] && long[3..].iter().all(|byte| *byte == 0));
    }
}
