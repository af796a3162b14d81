//! Files with blocks that could not be read, for `zpool status -v`.

use std::collections::BTreeSet;

use crate::inner::Inner;

/// A file, or a part of a dataset's metadata, that could not be read from any copy.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct DamagedFile {
    /// Full name of the dataset, or of the pool for the pool's own metadata.
    pub dataset: String,
    /// Path within it; `None` for metadata, or if the file has no name any more.
    pub path: Option<Vec<u8>>,
    /// Number of the inode; 0 for metadata.
    pub inode: u64,
}

impl Inner {
    /// Everything that was found damaged since the pool was imported.
    pub(crate) fn damaged_files(&self) -> Vec<DamagedFile> {
        let mut found = BTreeSet::new();
        for head in self.heads() {
            let dataset = self.dataset_name(head.id());
            let inodes: BTreeSet<_> = head.damage().into_iter().map(|damage| damage.inode).collect();
            for inode in inodes {
                let path = head.path_of(inode).ok().flatten();
                found.insert(DamagedFile { dataset: dataset.clone(), path, inode: inode.0 });
            }
        }
        for fault in self.blockio.faults() {
            if fault.kind.is_metadata() && !fault.healed {
                let dataset =
                    if fault.dataset.0 == 0 { self.name() } else { self.dataset_name(fault.dataset) };
                found.insert(DamagedFile { dataset, path: None, inode: 0 });
            }
        }
        found.into_iter().collect()
    }

    /// Forgets it.
    pub(crate) fn clear_damage(&self) {
        self.blockio.clear_faults();
        for head in self.heads() {
            head.clear_damage();
        }
    }
}
