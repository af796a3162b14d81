//! Files with blocks that could not be read, for `zpool status -v`.

use crate::devices::state::Devices;
use crate::devices::state::Search;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use steadfast_format::{BlockPointer, DatasetId, DeviceId};

use crate::core::events::EventKind;

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
pub(crate) fn join(ranges: impl IntoIterator<Item = (u64, u64)>) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::new();
    for (start, end) in ranges {
        match joined.last_mut() {
            Some(last) if start <= last.1 => last.1 = last.1.max(end),
            _ => joined.push((start, end)),
        }
    }
    joined
}

/// Extents looked at in one step of a search.
const SEARCH_ITEMS: usize = 4_096;

impl Devices {
    /// The cleaner could not read a segment, or a scrub could not mend it: what lies there is
    /// looked for, so that status can name the files.
    pub(crate) fn begin_search(&self) {
        self.errors.searching.store(true, Ordering::Release);
        *self.errors.search.lock() = Some(Search::default());
    }

    /// A step of the search: reads content that lies in segments that could not be read, which
    /// notes what is bad of it. True if there is more to do. One caller at a time. Datasets whose
    /// keys are not loaded are left out.
    pub(crate) fn search_step(&self) -> bool {
        let Some(search) = self.errors.search.lock().take() else { return false };
        let heads = self.core.heads();
        let Some(head) = heads.iter().filter(|head| head.id() >= search.dataset).min_by_key(|head| head.id())
        else {
            // One that was begun meanwhile goes on.
            let goes_on = self.errors.search.lock().is_some();
            self.errors.searching.store(goes_on, Ordering::Release);
            return goes_on;
        };
        let behind = search.behind.filter(|_| head.id() == search.dataset);
        let suspect = |pointer: &BlockPointer| {
            let length = usize::try_from(pointer.psize).unwrap_or(usize::MAX);
            let copies = &pointer.copies[..pointer.copy_count()];
            let is_suspect = copies.iter().any(|copy| self.core.space.is_suspect(*copy, length));
            // Of several copies the right ones heal the others.
            is_suspect && (copies.len() == 1 || self.look_at(pointer).0.lost > 0)
        };
        // Unreadable metadata is reported by its readers; the search goes on with the next dataset.
        let next = match head.look_over(behind, SEARCH_ITEMS, &suspect).unwrap_or(None) {
            Some(key) => Search { dataset: head.id(), behind: Some(key) },
            None => Search { dataset: DatasetId(head.id().0 + 1), behind: None },
        };
        // The cleaner may have begun a new one meanwhile.
        self.errors.search.lock().get_or_insert(next);
        true
    }

    /// Everything that was found damaged since the pool was imported.
    pub(crate) fn damaged_files(&self) -> Vec<DamagedFile> {
        let mut found = BTreeSet::new();
        for head in self.core.heads() {
            let dataset = self.core.dataset_name(head.id());
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
                    self.core.events.file(head.id(), kind);
                }
                found.insert(DamagedFile { dataset: dataset.clone(), path, inode: inode.0, ranges });
            }
        }
        for fault in self.core.blockio.faults() {
            if fault.kind.is_metadata() && !fault.healed {
                let dataset = if fault.dataset.0 == 0 {
                    self.core.name()
                } else {
                    self.core.dataset_name(fault.dataset)
                };
                found.insert(DamagedFile { dataset, path: None, inode: 0, ranges: Vec::new() });
            }
        }
        found.extend(self.errors.lost.lock().iter().cloned());
        found.into_iter().collect()
    }

    /// Forgets what was counted of devices, all if none is named; and of all also what is damaged.
    pub(crate) fn clear_errors(&self, paths: &[String]) {
        let leaves: Vec<_> = self
            .leaves()
            .into_iter()
            .filter(|leaf| paths.is_empty() || paths.contains(&leaf.path()))
            .collect();
        let ids: Vec<DeviceId> = leaves.iter().map(|leaf| leaf.id()).collect();
        leaves.iter().for_each(|leaf| leaf.meter.forget_slow());
        self.core.space.clear_errors(&ids);
        self.diagnosis.forget(&ids);
        if paths.is_empty() {
            // The cleaner may find something to gain again.
            self.core.admission.stalled.store(false, Ordering::Relaxed);
            self.clear_damage();
        }
    }

    /// Forgets it.
    fn clear_damage(&self) {
        self.core.events.forget_errors();
        self.core.blockio.clear_faults();
        self.errors.lost.lock().clear();
        for head in self.core.heads() {
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
