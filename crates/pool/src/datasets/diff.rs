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
    /// Its content, its attributes or its number of links.
    Modified,
    /// It is new.
    Added,
    /// It is gone.
    Removed,
    /// It has another path. Its content may differ too.
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
    /// Hard links that it gained, less those that it lost.
    pub links: i64,
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
    pin: Option<Pin>,
    paths: BTreeMap<InodeId, Vec<u8>>,
    /// A link of each changed inode, once one was needed.
    links: Option<BTreeMap<InodeId, Link>>,
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

    /// The path of a changed inode. An inode knows the folder of its latest link only. If that link
    /// is gone, the names are searched once, for all changed inodes.
    fn path_of_changed(&mut self, inode: InodeId, changed: &BTreeMap<InodeId, Differs>) -> Result<Vec<u8>> {
        if let Some(path) = self.dataset.path_of(inode)? {
            return Ok(path);
        }
        if self.links.is_none() {
            let mut links = BTreeMap::new();
            self.dataset.each_entry(&mut |folder, entry| {
                if changed.contains_key(&entry.inode) {
                    links.entry(entry.inode).or_insert((folder, entry.name));
                }
            })?;
            self.links = Some(links);
        }
        match self.links.as_ref().and_then(|links| links.get(&inode)).cloned() {
            Some(link) => self.path(&link),
            None => self.path_of(inode),
        }
    }

    fn path(&mut self, (folder, name): &Link) -> Result<Vec<u8>> {
        let folder = self.path_of(*folder)?;
        Ok(if folder.is_empty() { name.clone() } else { [&folder[..], b"/", name].concat() })
    }
}

impl Datasets {
    /// Changes from a snapshot to a later one of the same dataset or of a clone that began at it or
    /// later, or to the dataset or clone now, by path.
    pub fn diff(&self, base: &str, target: &str) -> Result<Vec<FileChange>> {
        let (of, mut before) = self.moment(base)?;
        let (id, mut after) = self.moment(target)?;
        let origin = before.pin.as_ref().map_or(before.txg, |pin| pin.txg);
        let is_apart = id != of && !self.table.read().begins_after(id, of, origin);
        if is_apart || before.txg >= after.txg {
            return Err(Error::NotEarlier { name: target.to_owned(), base: base.to_owned() });
        }
        let blocks = match (&after.carrier, &before.carrier) {
            (Some(after), Some(before)) => {
                self.raw_view(id, vec![Arc::clone(after), Arc::clone(before)])?.blocks
            }
            _ => {
                let table = self.table.read();
                let open = table.get(id).and_then(|entry| entry.open.as_ref());
                Arc::clone(&open.ok_or_else(|| Error::NoSuchDataset { name: target.to_owned() })?.blocks)
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
        for (inode, differs) in &found {
            changes.extend(self.told(*inode, differs, &found, (&mut before, &mut after))?);
        }
        changes.sort_by(|a, b| (&a.path, a.kind).cmp(&(&b.path, b.kind)));
        Ok(changes)
    }

    /// The change of one inode: one, as in ZFS, whatever happened to it.
    fn told(
        &self,
        inode: InodeId,
        differs: &Differs,
        found: &BTreeMap<InodeId, Differs>,
        (before, after): (&mut Moment, &mut Moment),
    ) -> Result<Option<FileChange>> {
        // The same link under another position is no change.
        let lost = differs.lost.iter().find(|link| !differs.gained.contains(link));
        let gained = differs.gained.iter().find(|link| !differs.lost.contains(link));
        // A record that differs is in the tree of its moment. One that does not is in both.
        let is_same_record = differs.before.is_none() && differs.after.is_none();
        let (old, new) = match is_same_record {
            false => (differs.before, differs.after),
            true => match after.dataset.inode(inode).map(|inode| inode.record()) {
                Ok(record) => (Some(record), Some(record)),
                Err(_) => return Ok(None),
            },
        };
        // A file without links is one that was removed while it was open.
        let (old, new) = (old.filter(|old| old.nlink > 0), new.filter(|new| new.nlink > 0));
        let change = |kind, path, to, links, record: InodeRecord| {
            Ok(Some(FileChange { kind, path, to, links, mode: record.mode, changed: record.ctime }))
        };
        let (old, new) = match (old, new) {
            (None, None) => return Ok(None),
            (None, Some(new)) => {
                return change(ChangeKind::Added, after.path_of_changed(inode, found)?, None, 0, new);
            }
            (Some(old), None) => {
                let record = differs.after.unwrap_or(old);
                return change(ChangeKind::Removed, before.path_of_changed(inode, found)?, None, 0, record);
            }
            (Some(old), Some(new)) => (old, new),
        };
        let is_directory = new.mode & 0o170_000 == 0o040_000;
        let links = if is_directory { 0 } else { i64::from(new.nlink) - i64::from(old.nlink) };
        if links != 0 {
            // By a name that it has at both moments, most likely.
            let path = if links > 0 { &mut *before } else { &mut *after }.path_of_changed(inode, found)?;
            return change(ChangeKind::Modified, path, None, links, new);
        }
        if let (Some(lost), Some(gained)) = (lost, gained) {
            return change(ChangeKind::Renamed, before.path(lost)?, Some(after.path(gained)?), 0, new);
        }
        // Reading is no change, nor is being stored in another way.
        if (InodeRecord { allocated: new.allocated, atime: new.atime, ..old }) == new {
            return Ok(None);
        }
        let (from, to) = (before.path_of_changed(inode, found)?, after.path_of_changed(inode, found)?);
        match from == to {
            true => change(ChangeKind::Modified, to, None, 0, new),
            // A folder above it has another name.
            false => change(ChangeKind::Renamed, from, Some(to), 0, new),
        }
    }

    fn moment(&self, name: &str) -> Result<(DatasetId, Moment)> {
        let (paths, links) = (BTreeMap::new(), None);
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
            return Ok((
                id,
                Moment { dataset, names, txg: Txg(u64::MAX), carrier: None, pin: None, paths, links },
            ));
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
        Ok((id, Moment { dataset, names, txg, carrier: None, pin: Some(pin), paths, links }))
    }

    fn raw_moment(&self, id: DatasetId, carrier: Arc<Dataset>, txg: Txg, pin: Option<Pin>) -> Result<Moment> {
        let view = self.raw_view(id, vec![Arc::clone(&carrier)])?;
        let (names, carrier, paths) = (view.roots.names, Some(carrier), BTreeMap::new());
        Ok(Moment { dataset: view.dataset, names, txg, carrier, pin, paths, links: None })
    }
}
