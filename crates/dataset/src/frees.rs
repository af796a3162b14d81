//! Freeing the extents of cuts, a bounded number a sync (ZFS: the async destroy of freed blocks).
//!
//! Where extents cannot be read, the cut waits for the next opening of the dataset, and the sync
//! goes on: a file can be removed though its content is damaged. Space behind the damage stays in
//! use meanwhile (ZFS: `zfs_free_leak_on_eio=0`).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_format::InodeId;
use steadfast_format::extent::{self, Extent};
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_tree::Change;

use crate::cuts::Cuts;
use crate::dataset::Dataset;
use crate::extents::extent_key;
use crate::growth::Growth;
use crate::inode::Inode;
use crate::{Error, Result};

/// Extents freed in one batch of the tree.
const FREE_BATCH: usize = 4_096;

impl Dataset {
    /// Reads the list of cuts.
    pub(crate) fn load_cuts(&self) -> Result<()> {
        let mut cuts = Cuts::default();
        let decode = |source| Error::Item { dataset: self.id, source };
        for item in self.extents.range(ExtentsKey::cuts()..NamesKey::all_of(InodeId(1))) {
            let (key, value) = item?;
            if let ExtentsKey::Cut { inode, start } = ExtentsKey::decode(&key).map_err(decode)? {
                cuts.add(inode, start..extent::decode_cut(start, &value).map_err(decode)?);
            }
        }
        cuts.listed = cuts.items();
        *self.freeing.cuts.write() = cuts;
        Ok(())
    }

    /// Frees extents of earlier txgs' cuts, as far as `budget` goes.
    /// Gives the inodes that are left with less.
    pub(crate) fn work_off_cuts(
        &self,
        budget: &mut usize,
        grown: &mut Growth,
    ) -> Result<Vec<(Arc<Inode>, i64)>> {
        let mut shrunk_inodes = Vec::new();
        let owed: Vec<InodeId> = {
            let cuts = self.freeing.cuts.read();
            cuts.by_inode.keys().filter(|id| !cuts.blocked.contains(id)).copied().collect()
        };
        for id in owed {
            // Loaded before anything is freed: if what it occupies must be counted, then with what
            // is counted off below.
            let inode = match self.inode(id) {
                Ok(inode) => Some(inode),
                Err(Error::NoInode(_)) => None, // it is removed, and only its content is left
                Err(Error::Tree(error)) if error.is_unreadable() => {
                    self.freeing.cuts.write().blocked.insert(id);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let ranges: Vec<Range<u64>> =
                self.freeing.cuts.read().of(id).map(|ranges| ranges.iter().collect()).unwrap_or_default();
            for range in ranges {
                let reached = self.free_extents(id, range.clone(), budget, grown)?;
                self.freeing.cuts.write().remove(id, range.start..reached);
            }
            let shrunk = grown.allocated.remove(&id).unwrap_or(0);
            if let Some(inode) = inode {
                self.note_allocated(&inode, shrunk);
                self.tell_resized(std::iter::once(id).filter(|_| shrunk != 0));
                self.evict(&inode);
                shrunk_inodes.push((inode, shrunk));
            }
        }
        Ok(shrunk_inodes)
    }

    /// Frees the extents that begin in `range` and end in it, as far as `budget` goes, and keeps
    /// the rest as a cut.
    pub(crate) fn free_cut(
        &self,
        inode: InodeId,
        range: Range<u64>,
        budget: &mut usize,
        grown: &mut Growth,
    ) -> Result<()> {
        let reached = self.free_extents(inode, range.clone(), budget, grown)?;
        if reached < range.end {
            self.freeing.cuts.write().add(inode, reached..range.end);
        }
        Ok(())
    }

    /// Up to where the extents of `range` are freed. Short of its end if `budget` is spent or if
    /// extents cannot be read.
    fn free_extents(
        &self,
        inode: InodeId,
        range: Range<u64>,
        budget: &mut usize,
        grown: &mut Growth,
    ) -> Result<u64> {
        let end = match range.end {
            u64::MAX => extent_key(InodeId(inode.0 + 1), 0),
            end => extent_key(inode, end),
        };
        let mut at = range.start;
        while at < range.end {
            if *budget == 0 {
                return Ok(at);
            }
            let step = FREE_BATCH.min(*budget);
            let mut found: Vec<(Vec<u8>, Extent)> = Vec::new();
            let (mut seen, mut is_blocked) = (0, false);
            for item in self.extents.range(extent_key(inode, at)..end.clone()).take(step) {
                let (key, value) = match item {
                    Err(error) if error.is_unreadable() => {
                        is_blocked = true;
                        break;
                    }
                    item => item?,
                };
                let decoded = ExtentsKey::decode(&key);
                let key_of = |source| Error::Item { dataset: self.id, source };
                let ExtentsKey::Extent { offset, .. } = decoded.map_err(key_of)? else { continue };
                let extent = self.decode_extent(&value)?;
                seen += 1;
                at = offset + u64::from(extent.length());
                // One that reaches beyond the cut is rebuilt instead.
                if offset + u64::from(extent.length()) <= range.end {
                    found.push((key, extent));
                }
            }
            let removed: Vec<Change<'_>> = found.iter().map(|(key, _)| Change::Remove(key)).collect();
            self.extents.batch(&removed)?;
            for (_, extent) in &found {
                self.drop_extent(inode, extent, grown);
            }
            *budget -= seen;
            if is_blocked {
                self.freeing.cuts.write().blocked.insert(inode);
                return Ok(at);
            }
            if seen < step {
                return Ok(range.end);
            }
        }
        Ok(range.end)
    }

    /// Makes the extents tree list exactly the cuts that are left.
    pub(crate) fn list_cuts(&self) -> Result<()> {
        // Readers want the cuts, and the batch may have to read; only a sync changes them.
        let (items, listed) = {
            let cuts = self.freeing.cuts.read();
            (cuts.items(), cuts.listed.clone())
        };
        let key = |inode, start| ExtentsKey::Cut { inode, start }.encode();
        let mut changes: BTreeMap<Vec<u8>, Option<[u8; extent::CUT_SIZE]>> = BTreeMap::new();
        changes.extend(listed.difference(&items).map(|&(inode, start, _)| (key(inode, start), None)));
        let new = items.difference(&listed);
        changes.extend(new.map(|&(inode, start, end)| (key(inode, start), Some(extent::encode_cut(end)))));
        let changes: Vec<Change<'_>> = changes
            .iter()
            .map(|(key, value)| match value {
                Some(value) => Change::Insert(key, value),
                None => Change::Remove(key),
            })
            .collect();
        self.extents.batch(&changes)?;
        self.freeing.cuts.write().listed = items;
        Ok(())
    }

    /// True while cuts of earlier txgs are left, which the next syncs free part by part.
    pub fn owes_frees(&self) -> bool {
        self.freeing.cuts.read().is_due()
    }

    /// Extents that cuts may free in this sync.
    pub(crate) fn free_budget(&self) -> usize {
        self.freeing.per_sync.load(Ordering::Relaxed).min(self.freeing.room.load(Ordering::Relaxed))
    }

    /// Takes records that were stored anew out of the cuts.
    pub(crate) fn uncut(&self, records: impl Iterator<Item = (InodeId, Range<u64>)>) {
        if self.freeing.cuts.read().is_empty() {
            return;
        }
        let mut cuts = self.freeing.cuts.write();
        for (inode, range) in records {
            cuts.remove(inode, range);
        }
    }
}
