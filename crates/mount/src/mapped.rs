//! Files whose newest content the kernel may hold, in pages that a program changed.
//!
//! FUSE asks for the next data or hole of a file (`LSEEK`) without writing changed pages first, so
//! an exact answer would deny what a mapping has just stored, and a copying program would leave it
//! out. Nobody tells a file system of mappings; but a shared mapping that can be changed needs a
//! descriptor for reading and writing, which is released only after the mapping's pages are written
//! (`fuse_vma_close`, `fuse_release`). Where the kernel collects writes, any descriptor for writing
//! will do.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Bits of the flags of `open(2)` that say what for.
const O_ACCMODE: u32 = 3;
const O_RDONLY: u32 = 0;
const O_RDWR: u32 = 2;

/// Counts descriptors through which pages may become dirty.
#[derive(Debug, Default)]
pub(crate) struct Mapped {
    /// By inode.
    open: Mutex<HashMap<u64, u32>>,
}

impl Mapped {
    /// A file is opened with these flags. `collects`: the kernel collects writes.
    pub(crate) fn opened(&self, ino: u64, flags: u32, collects: bool) {
        if may_dirty(flags, collects) {
            *self.open.lock().entry(ino).or_default() += 1;
        }
    }

    /// A descriptor that was opened with these flags is no more.
    pub(crate) fn released(&self, ino: u64, flags: u32, collects: bool) {
        if !may_dirty(flags, collects) {
            return;
        }
        let mut open = self.open.lock();
        if let Some(count) = open.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                open.remove(&ino);
            }
        }
    }

    /// Files that the kernel may hold changed pages of.
    pub(crate) fn files(&self) -> Vec<u64> {
        self.open.lock().keys().copied().collect()
    }

    /// True if the kernel may hold changed pages of a file.
    pub(crate) fn may_be_dirty(&self, ino: u64) -> bool {
        self.open.lock().contains_key(&ino)
    }
}

fn may_dirty(flags: u32, collects: bool) -> bool {
    match flags & O_ACCMODE {
        O_RDONLY => false,
        O_RDWR => true,
        _ => collects,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_may_be_dirty_while_a_descriptor_can_map_it_for_writing() {
        let (files, write_only) = (Mapped::default(), 1);
        files.opened(7, O_RDONLY, true);
        files.opened(7, write_only, false);
        assert!(!files.may_be_dirty(7));
        files.opened(7, O_RDWR, false);
        files.opened(7, O_RDWR, false);
        files.released(7, O_RDONLY, false);
        files.released(7, write_only, false);
        files.released(7, O_RDWR, false);
        assert!(files.may_be_dirty(7) && !files.may_be_dirty(8));
        assert_eq!(files.files(), [7]);
        files.released(7, O_RDWR, false);
        assert!(!files.may_be_dirty(7));
        files.opened(7, write_only, true);
        assert!(files.may_be_dirty(7), "writes are collected");
    }
}
