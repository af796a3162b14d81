//! Differences between a snapshot and a later one, or its dataset, file by file (`zfs diff`).
//!
//! Found by the walk of increments (`differ`): names and inodes that differ, without their content.
//! A file is identified by its links, so a move is reported as a move.

use crate::datasets::state::Datasets;
use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_dataset::Dataset;
use steadfast_format::dirent::Dirent;
use steadfast_format::file_keys::NamesKey;
use steadfast_format::inode::{InodeRecord, Time};
use steadfast_format::{BlockPointer, DatasetId, InodeId, Txg};

use crate::core::error::{Error, Result};
use crate::datasets::snapshots::Pin;
use crate::datasets::traverse::{Base, differences};

/// How a file changed.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum ChangeKind {
    /// Its content or its attributes.
    Modified,
    /// It is new, or has one name more.
    Added,
    /// It is gone, or has one name less.
    Removed,
    /// It has another name.
    Renamed,
}

/// A file that changed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FileChange {
    /// How.
    pub kind: ChangeKind,
    /// Its path below the root of the file system, without a leading slash: the old one, unless it
    /// is new.
    pub path: Vec<u8>,
    /// Its new path, if it has another one.
    pub to: Option<Vec<u8>>,
    /// Type and permissions.
    pub mode: u32,
    /// When it last changed: as of the later moment, if it is there.
    pub changed: Time,
}

/// A link: directory and name.
type Link = (InodeId, Vec<u8>);

/// Differences of one inode.
#[derive(Default)]
struct Differs {
    before: Option<InodeRecord>,
    after: Option<InodeRecord>,
    /// Links that went and that came.
    lost: Vec<Link>,
    gained: Vec<Link>,
}

/// One moment of a dataset: its names and their root.
struct Moment {
    dataset: Arc<Dataset>,
    names: Option<BlockPointer>,
    txg: Txg,
    /// Carrier of a raw dataset's blocks.
    carrier: Option<Arc<Dataset>>,
    /// Pin of a snapshot: it is not destroyed meanwhile.
    _pin: Option<Pin>,
    paths: BTreeMap<InodeId, Vec<u8>>,
}

impl Moment {
    fn path_of(&mut self, inode: InodeId) -> Result<Vec<u8>> {
        if let Some(path) = self.paths.get(&inode) {
            return Ok(path.clone());
        }
        let path = self.dataset.path_of(inode)?.unwrap_or_else(|| format!("<inode {inode}>").into_bytes());
        self.paths.insert(inode, path.clone());
        Ok(path)
    }

    fn path(&mut self, (folder, name): &Link) -> Result<Vec<u8>> {
        let folder = self.path_of(*folder)?;
        Ok(if folder.is_empty() { name.clone() } else { [&folder[..], b"/", name].concat() })
    }
}

impl Datasets {
    /// Changes from a snapshot to a later one of the same dataset, or to the dataset now, by path.
    pub fn diff(&self, base: &str, target: &str) -> Result<Vec<FileChange>> {
        let (id, mut before) = self.moment(base)?;
        let (other, mut after) = self.moment(target)?;
        if id != other || before.txg >= after.txg {
            return Err(Error::NotEarlier { name: target.to_owned(), base: base.to_owned() });
        }
        let blocks = match (&after.carrier, &before.carrier) {
            (Some(after), Some(before)) => {
                self.raw_view(id, vec![Arc::clone(after), Arc::clone(before)])?.blocks
            }
            _ => {
                let table = self.table.read();
                let open = table.get(id).and_then(|entry| entry.open.as_ref());
                Arc::clone(&open.ok_or_else(|| Error::NoSuchDataset { name: base.to_owned() })?.blocks)
            }
        };
        let bad = |error: steadfast_format::DecodeError| Error::BadDataset {
            dataset: id,
            reason: error.to_string(),
        };
        let mut found: BTreeMap<InodeId, Differs> = BTreeMap::new();
        let upon = Base { root: before.names, txg: before.txg };
        differences(&blocks, Some(upon), after.names, &mut |key, old, new| {
            match NamesKey::decode(key).map_err(bad)? {
                NamesKey::Inode(inode) => {
                    let differs = found.entry(inode).or_default();
                    differs.before = old.map(InodeRecord::decode).transpose().map_err(bad)?;
                    differs.after = new.map(InodeRecord::decode).transpose().map_err(bad)?;
                }
                NamesKey::Entry { directory, .. } => {
                    if let Some(entry) = old.map(Dirent::decode).transpose().map_err(bad)? {
                        found.entry(entry.inode).or_default().lost.push((directory, entry.name));
                    }
                    if let Some(entry) = new.map(Dirent::decode).transpose().map_err(bad)? {
                        found.entry(entry.inode).or_default().gained.push((directory, entry.name));
                    }
                }
                NamesKey::Xattr { inode, .. } | NamesKey::Target { inode, .. } => {
                    _ = found.entry(inode).or_default()
                }
                NamesKey::Head | NamesKey::Orphan(_) => {}
            }
            Ok(())
        })?;
        let mut changes = Vec::new();
        for (inode, differs) in found {
            changes.extend(self.told(inode, differs, &mut before, &mut after)?);
        }
        changes.sort_by(|a, b| (&a.path, a.kind).cmp(&(&b.path, b.kind)));
        Ok(changes)
    }

    /// One inode's changes.
    fn told(
        &self,
        inode: InodeId,
        mut differs: Differs,
        before: &mut Moment,
        after: &mut Moment,
    ) -> Result<Vec<FileChange>> {
        // The same link under another position is no change.
        let both: Vec<Link> =
            differs.lost.iter().filter(|link| differs.gained.contains(link)).cloned().collect();
        differs.lost.retain(|link| !both.contains(link));
        differs.gained.retain(|link| !both.contains(link));
        let record = |moment: &Moment| moment.dataset.inode(inode).map(|inode| inode.record());
        let Ok(last) = differs.after.or(differs.before).map_or_else(|| record(after), Ok) else {
            return Ok(Vec::new());
        };
        let change = |kind, path, to| FileChange { kind, path, to, mode: last.mode, changed: last.ctime };
        let mut changes = Vec::new();
        let is_same = differs.before.is_some() == differs.after.is_some();
        let mut gained = differs.gained.iter();
        for link in &differs.lost {
            match gained.next().filter(|_| is_same) {
                Some(new) => {
                    changes.push(change(ChangeKind::Renamed, before.path(link)?, Some(after.path(new)?)));
                }
                None => changes.push(change(ChangeKind::Removed, before.path(link)?, None)),
            }
        }
        for link in gained {
            changes.push(change(ChangeKind::Added, after.path(link)?, None));
        }
        // Reading is no change, nor is being stored in another way; what only moved has another
        // ctime too.
        let same = |old: InodeRecord, new: InodeRecord| {
            let moved = !changes.is_empty();
            let ctime = if moved { new.ctime } else { old.ctime };
            let parent = if moved { new.parent } else { old.parent };
            let nlink = if moved { new.nlink } else { old.nlink };
            InodeRecord { allocated: new.allocated, atime: new.atime, ctime, parent, nlink, ..old } == new
        };
        if let (Some(old), Some(new)) = (differs.before, differs.after)
            && new.nlink > 0
            && !same(old, new)
        {
            // By a name that it had before, if it got others besides.
            let mut path = after.path_of(inode)?;
            if changes.iter().any(|change| change.kind == ChangeKind::Added && change.path == path) {
                path = before.path_of(inode)?;
            }
            changes.push(change(ChangeKind::Modified, path, None));
        }
        Ok(changes)
    }

    fn moment(&self, name: &str) -> Result<(DatasetId, Moment)> {
        let paths = BTreeMap::new();
        if !name.contains('@') {
            let id = self.table.read().find(name)?;
            let dataset = self.open_head(id)?;
            if self.is_raw(id) {
                return Ok((id, self.raw_moment(id, dataset, Txg(u64::MAX), None)?));
            }
            if !self.core.health.read_only {
                self.core.commit_changes()?;
            }
            let names = self.table.read().get(id).and_then(|entry| entry.row.names);
            return Ok((id, Moment { dataset, names, txg: Txg(u64::MAX), carrier: None, _pin: None, paths }));
        }
        let (id, pin) = self.pin(name)?;
        if self.is_raw(id) {
            let carrier = Arc::clone(self.open_stored(id, &pin.row.name)?.dataset());
            let txg = crate::datasets::raw::roots_of(&carrier)?.txg;
            return Ok((id, self.raw_moment(id, carrier, txg, Some(pin))?));
        }
        let snapshot = self.open_snapshot(id, &pin.row.name)?;
        let dataset = Arc::clone(snapshot.dataset());
        let (names, txg) = (pin.row.names, pin.txg);
        Ok((id, Moment { dataset, names, txg, carrier: None, _pin: Some(pin), paths }))
    }

    fn raw_moment(&self, id: DatasetId, carrier: Arc<Dataset>, txg: Txg, pin: Option<Pin>) -> Result<Moment> {
        let view = self.raw_view(id, vec![Arc::clone(&carrier)])?;
        let (names, carrier, paths) = (view.roots.names, Some(carrier), BTreeMap::new());
        Ok(Moment { dataset: view.dataset, names, txg, carrier, _pin: pin, paths })
    }
}
