//! Files with blocks that could not be read, for `zpool status -v`.

use std::collections::{BTreeMap, BTreeSet};

use crate::events::EventKind;
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
    /// Bytes that could not be read, in order and without overlap; empty for metadata.
    pub ranges: Vec<(u64, u64)>,
}

/// Joins ranges that touch. They come in order of their beginnings.
fn join(ranges: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

impl Inner {
    /// Everything that was found damaged since the pool was imported.
    pub(crate) fn damaged_files(&self) -> Vec<DamagedFile> {
        let mut found = BTreeSet::new();
        for head in self.heads() {
            let dataset = self.dataset_name(head.id());
            let mut inodes: BTreeMap<_, BTreeSet<(u64, u64)>> = BTreeMap::new();
            for damage in head.damage() {
                inodes.entry(damage.inode).or_default().insert((damage.range.start, damage.range.end));
            }
            for (inode, ranges) in inodes {
                let path = head.path_of(inode).ok().flatten();
                let ranges = join(ranges);
                for &(offset, end) in &ranges {
                    let (dataset, path) = (dataset.clone(), path.clone());
                    let kind =
                        EventKind::File { dataset, path, inode: inode.0, offset, length: end - offset };
                    self.events.file(head.id(), kind);
                }
                found.insert(DamagedFile { dataset: dataset.clone(), path, inode: inode.0, ranges });
            }
        }
        for fault in self.blockio.faults() {
            if fault.kind.is_metadata() && !fault.healed {
                let dataset =
                    if fault.dataset.0 == 0 { self.name() } else { self.dataset_name(fault.dataset) };
                found.insert(DamagedFile { dataset, path: None, inode: 0, ranges: Vec::new() });
            }
        }
        found.into_iter().collect()
    }

    /// Forgets it.
    pub(crate) fn clear_damage(&self) {
        self.events.forget_errors();
        self.blockio.clear_faults();
        for head in self.heads() {
            head.clear_damage();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_touch_are_one() {
        assert_eq!(join([(0, 4), (4, 8), (6, 7), (10, 12)]), [(0, 8), (10, 12)]);
        assert_eq!(join([]), []);
    }
}
