//! The top folder as the kernel may have seen it.
//!
//! A change by a network client is told to the kernel, by another thread, and its reply waits for
//! that. Of a folder that the kernel does not remember there is nothing to tell. It remembers the
//! top folder as long as it is mounted; so for that one each question of the kernel is noted.
//! Where no program of this machine looks at the mount, nobody is woken for a create in its top.
//!
//! ## Invariants
//! [top.1] Something that the kernel asks for is noted before it is looked up. So a client's
//!      change that finds no note was made before the look, and the kernel's answer has it.
//! [top.2] A note of attributes is taken away only by a thread that tells the kernel to forget
//!      them, and it is made again with each answer: an answer that was under way meanwhile is
//!      told of at the next change. A change that finds no note waits for the threads that tell
//!      ([`NetworkDoor`]).
//!
//! [`NetworkDoor`]: crate::share::NetworkDoor

use std::sync::atomic::{AtomicBool, Ordering, fence};

use parking_lot::Mutex;

/// Inode of the top folder, of which the kernel knows without a lookup.
pub(crate) const TOP: u64 = 1;

/// Notes about the top folder of one mount.
#[derive(Debug, Default)]
pub(crate) struct TopFolder {
    attributes: AtomicBool,
    names: AtomicBool,
    telling: Mutex<()>,
}

fn set(note: &AtomicBool) {
    if !note.load(Ordering::Relaxed) {
        note.store(true, Ordering::Relaxed);
    }
    // [top.1], beside the one in `is_set`.
    fence(Ordering::SeqCst);
}

fn is_set(note: &AtomicBool) -> bool {
    fence(Ordering::SeqCst);
    note.load(Ordering::Relaxed)
}

impl TopFolder {
    /// The kernel gets attributes of `ino`, or access lists, which it keeps as long as these.
    pub(crate) fn shows_attributes(&self, ino: u64) {
        if ino == TOP {
            set(&self.attributes);
        }
    }

    /// The kernel learns of a name in `folder`, or that it is not there.
    pub(crate) fn shows_names(&self, folder: u64) {
        if folder == TOP {
            set(&self.names);
        }
    }

    /// True if the kernel may hold names in the top folder. It can be told to forget one, not all,
    /// so this stays.
    pub(crate) fn has_shown_names(&self) -> bool {
        is_set(&self.names)
    }

    /// Has the kernel told to forget the attributes, if it may hold them. False if not.
    pub(crate) fn tell_attributes(&self, tell: impl FnOnce()) -> bool {
        if !is_set(&self.attributes) {
            // Another thread may have taken the note and be telling. [top.2]
            drop(self.telling.lock());
            return false;
        }
        let _telling = self.telling.lock();
        let has = self.attributes.swap(false, Ordering::SeqCst);
        if has {
            tell();
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_kernel_that_has_looked_is_told_and_one_that_has_not_is_not() {
        let top = TopFolder::default();
        let told = Cell::new(0);
        let tell = || top.tell_attributes(|| told.set(told.get() + 1));
        top.shows_attributes(TOP + 1);
        top.shows_names(TOP + 1);
        assert!(!tell() && !top.has_shown_names(), "another folder");
        for round in 1..4 {
            top.shows_attributes(TOP);
            assert!(tell());
            assert!(!tell(), "it holds none any more");
            assert_eq!(told.get(), round);
        }
        top.shows_names(TOP);
        assert!(top.has_shown_names() && !tell());
        assert!(top.has_shown_names());
    }

    #[test]
    fn a_change_that_finds_no_note_waited_for_the_one_that_tells() {
        let (top, told) = (TopFolder::default(), AtomicBool::new(false));
        for _ in 0..2_000 {
            top.shows_attributes(TOP);
            told.store(false, Ordering::SeqCst);
            let one = || {
                top.tell_attributes(|| told.store(true, Ordering::SeqCst));
                assert!(told.load(Ordering::SeqCst));
            };
            std::thread::scope(|scope| {
                scope.spawn(one);
                one();
            });
        }
    }
}
