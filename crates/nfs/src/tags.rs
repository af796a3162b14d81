//! Tags of handles that were signed of late.
//!
//! A listing with attributes has a handle for each name, and its tag is a keyed hash: a fifth of
//! the listing's time where all is in memory. A client lists the same folder again and again, so
//! tags of the last files are kept: one of each slot, in less than a mebibyte for the program.
//!
//! Only handles that are handed out are looked for here, never those that clients send: how long it
//! takes to check one of these must not tell which files were seen of late.
//!
//! ## Invariants
//! [nfs_tags.1] A reader takes what one writer put, or nothing: a slot's number is odd while it is
//!      written, and differs afterwards.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Bytes of a tag.
pub(crate) const TAG: usize = 16;
/// A power of two.
const SLOTS: usize = 1 << 14;

/// Whose tag it is: number of the key, inode, generation.
pub(crate) type Owner = [u64; 3];

struct Slot {
    number: AtomicU64,
    owner: [AtomicU64; 3],
    tag: [AtomicU64; 2],
}

static SLOTS_OF_ALL: [Slot; SLOTS] = [const {
    Slot {
        number: AtomicU64::new(0),
        owner: [const { AtomicU64::new(0) }; 3],
        tag: [const { AtomicU64::new(0) }; 2],
    }
}; SLOTS];

/// Has the kernel give memory for all slots, 768 KiB: else a reply waits for that, twice for each
/// page, as a page is looked at before it is written. Once, before there are clients.
pub(crate) fn prepare() {
    // A change that changes nothing would be left out by the compiler.
    let write = |slot: &Slot| slot.number.compare_exchange(0, 2, Ordering::Relaxed, Ordering::Relaxed);
    SLOTS_OF_ALL.iter().for_each(|slot| _ = write(slot));
}

/// Neighbours have neighbouring slots.
fn slot([key, ino, _]: Owner) -> &'static Slot {
    let place = ino.wrapping_add(key.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    &SLOTS_OF_ALL[place as usize % SLOTS]
}

/// The tag of a file, if it is kept.
pub(crate) fn get(owner: Owner) -> Option<[u8; TAG]> {
    let slot = slot(owner);
    let before = slot.number.load(Ordering::Acquire);
    let [key, ino, generation] = &slot.owner;
    let found =
        [key.load(Ordering::Relaxed), ino.load(Ordering::Relaxed), generation.load(Ordering::Relaxed)];
    let tag = [slot.tag[0].load(Ordering::Relaxed), slot.tag[1].load(Ordering::Relaxed)];
    fence(Ordering::Acquire);
    let is_whole = before.is_multiple_of(2) && slot.number.load(Ordering::Relaxed) == before;
    if !is_whole || found != owner {
        return None;
    }
    let mut bytes = [0; TAG];
    bytes[..8].copy_from_slice(&tag[0].to_ne_bytes());
    bytes[8..].copy_from_slice(&tag[1].to_ne_bytes());
    Some(bytes)
}

/// Keeps the tag of a file in place of another one's. Number 0 is no key's.
pub(crate) fn put(owner: Owner, tag: &[u8; TAG]) {
    let slot = slot(owner);
    let before = slot.number.load(Ordering::Relaxed);
    let takes = |before: u64| {
        slot.number.compare_exchange(before, before + 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
    };
    // Where another one writes, this one is not kept.
    if !before.is_multiple_of(2) || !takes(before) {
        return;
    }
    fence(Ordering::Release);
    for (part, value) in slot.owner.iter().zip(owner) {
        part.store(value, Ordering::Relaxed);
    }
    for (part, half) in slot.tag.iter().zip(tag.chunks_exact(8)) {
        part.store(u64::from_ne_bytes(half.try_into().expect("eight bytes")), Ordering::Relaxed);
    }
    slot.number.store(before + 2, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers that no key of another test has.
    const KEY: u64 = u64::MAX;

    #[test]
    fn a_tag_is_its_owners_until_another_one_takes_the_slot() {
        let (one, other) = ([KEY, 5, 1], [KEY, 5 + SLOTS as u64, 1]);
        assert_eq!(get(one), None);
        put(one, &[1; TAG]);
        assert_eq!((get(one), get([KEY, 5, 2]), get([KEY - 1, 5, 1])), (Some([1; TAG]), None, None));
        put(other, &[2; TAG]);
        assert_eq!((get(one), get(other)), (None, Some([2; TAG])));
    }

    #[test]
    fn nobody_gets_a_half_of_two_tags() {
        let owner = |number: u64| [KEY, 9 + number * SLOTS as u64, number];
        std::thread::scope(|scope| {
            for number in 1..3_u8 {
                scope.spawn(move || (0..100_000).for_each(|_| put(owner(number.into()), &[number; TAG])));
                scope.spawn(move || {
                    for _ in 0..100_000 {
                        let found = get(owner(number.into()));
                        assert!(found.is_none_or(|tag| tag == [number; TAG]), "{found:?}");
                    }
                });
            }
        });
    }
}
