//! The dataset table: names, properties, rows, and the open heads.
//!
//! ## Invariants
//! [table.1] Every entry but the root has a parent in the table.
//!      assert: `insert`
//! [table.2] Names are unique among the children of one parent.
//!      `check_place` under the lock under which a dataset comes there; import gives a second one
//!      another name
//! [table.3] A dataset id is never used again: `next_id` only grows, and is stored in every commit
//!      tail.
//! [table.5] A clone's origin is older than the clone's own snapshots; so origins form no circle.
//!      checked: import
//! [table.4] Parents form no circle. A parent may be younger than its child, if it was moved.
//!      checked: `rename_dataset`, import
//! [table.6] A row is stored with its trees or after them, and nothing is put below a dataset
//!      without a stored row.
//!      `table_items`, `check_parent`

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use steadfast_format::Bookmark;

use steadfast_crypto::{BlockKeys, UserKey};
use steadfast_dataset::Dataset;
use steadfast_format::{DatasetId, DatasetRow, ManifestWriter, Txg};
use steadfast_property::{Local, Resolved, Source};

use crate::core::error::{Error, Result};
use crate::datasets::received_props::ReceivedProps;
use crate::datasets::receiving::Receiving;
use crate::datasets::snapshot::Snapshot;
use steadfast_refs::blocks::DatasetBlocks;
use steadfast_refs::deadlist::Deadlist;

/// The root dataset of every pool.
pub(crate) const ROOT: DatasetId = DatasetId(1);

/// Keys of an unlocked encrypted dataset.
#[derive(Clone)]
pub(crate) struct LoadedKeys {
    /// Seals and opens its blocks.
    pub blocks: Arc<BlockKeys>,
    /// On an encryption root: wraps master keys of children made below it.
    pub user: Option<Arc<UserKey>>,
}

/// A dataset whose trees can be read.
#[derive(Clone)]
pub(crate) struct OpenDataset {
    pub head: Arc<Dataset>,
    pub blocks: Arc<DatasetBlocks>,
    /// The reason why nothing but its destruction may use it.
    pub fault: Option<String>,
}

/// One dataset.
pub(crate) struct Entry {
    pub row: DatasetRow,
    /// Properties that count here by themselves, set or received. [received.1]
    pub props: Local,
    pub keys: Option<LoadedKeys>,
    /// Keys of a raw dataset's own blocks.
    pub raw_keys: Option<Arc<BlockKeys>>,
    /// Open while its trees can be read; `None` while locked.
    pub open: Option<OpenDataset>,
    /// Mounts and other users of the open dataset.
    pub uses: Arc<AtomicUsize>,
    /// It is new, and no commit has stored its trees: none stores its row yet, which would lead to
    /// nothing. [table.6]
    pub unborn: bool,
    pub row_dirty: bool,
    /// Properties received with streams.
    pub received: ReceivedProps,
    /// Property names to write or remove at the next commit.
    pub props_dirty: BTreeSet<String>,
    /// By the txg whose roots they keep.
    pub snapshots: BTreeMap<Txg, Snapshot>,
    /// When one was taken or destroyed since the import, nanoseconds since 1970; 0: not since then.
    pub snapshots_changed_ns: u64,
    /// Snapshots to write or remove at the next commit.
    pub snapshots_dirty: BTreeSet<Txg>,
    /// Cells that are being freed: from one txg up to below another.
    pub dead: BTreeMap<Txg, Txg>,
    /// Dead ranges to write or remove at the next commit.
    pub dead_dirty: BTreeSet<Txg>,
    /// It is being destroyed, and the segments that its blocks lay in were dropped.
    pub dropped: bool,
    /// Where what it lets go belongs.
    pub deadlist: Arc<Deadlist>,
    /// Txg of the snapshot that it is a clone of; 0 if it is none.
    pub base: Txg,
    /// By name.
    pub bookmarks: Bookmarks,
    /// Bookmarks to write or remove at the next commit.
    pub bookmarks_dirty: BTreeSet<String>,
    /// Datasets that wrote its blocks, if it has a manifest; else empty.
    pub writers: Vec<ManifestWriter>,
    /// They are to be written at the next commit.
    pub writers_dirty: bool,
    /// The receive into it, while it is hidden.
    pub receiving: Option<Receiving>,
    /// The receive row is to be written or removed at the next commit.
    pub receive_dirty: bool,
}

impl Entry {
    pub fn new(row: DatasetRow, props: Local) -> Entry {
        Entry {
            row,
            props,
            keys: None,
            raw_keys: None,
            open: None,
            uses: Arc::default(),
            unborn: false,
            row_dirty: false,
            received: ReceivedProps::default(),
            props_dirty: BTreeSet::new(),
            snapshots: BTreeMap::new(),
            snapshots_changed_ns: 0,
            snapshots_dirty: BTreeSet::new(),
            dead: BTreeMap::new(),
            dead_dirty: BTreeSet::new(),
            dropped: false,
            deadlist: Arc::default(),
            base: Txg(0),
            bookmarks: Bookmarks::new(),
            bookmarks_dirty: BTreeSet::new(),
            writers: Vec::new(),
            writers_dirty: false,
            receiving: None,
            receive_dirty: false,
        }
    }

    /// When a snapshot was last taken or destroyed, nanoseconds since 1970, if that is known. A
    /// destroy is remembered until the pool is exported.
    pub fn snapshots_changed_ns(&self) -> Option<u64> {
        let youngest = self.snapshots.values().map(|snapshot| snapshot.row.created_ns).max();
        Some(self.snapshots_changed_ns).filter(|ns| *ns > 0).or(youngest)
    }

    /// True while somebody holds it open (a mount).
    pub fn is_in_use(&self) -> bool {
        self.uses.load(Ordering::Acquire) > 0
    }

    /// True if something was written to it that no commit has taken. While nobody uses it, that
    /// does not change but by a commit.
    pub fn has_unstored(&self) -> bool {
        self.open.as_ref().is_some_and(|open| open.head.is_changed())
    }

    /// Gives it these writers, to be stored with its row.
    pub fn set_writers(&mut self, writers: Vec<ManifestWriter>) {
        self.writers_dirty = !writers.is_empty();
        self.writers = writers;
    }

    pub fn is_encrypted(&self) -> bool {
        self.row.encryption.is_some()
    }

    /// Whose segments its blocks lie in, if it is encrypted.
    pub fn owner(&self) -> Option<DatasetId> {
        self.row.encryption.as_ref().map(|encryption| encryption.owner)
    }
}

/// All datasets of a pool.
pub(crate) struct Table {
    pool: String,
    entries: BTreeMap<DatasetId, Entry>,
    next_id: DatasetId,
    /// Ids whose rows and properties the next commit removes.
    removed: Vec<(DatasetId, Vec<String>)>,
    /// Tags of snapshots that the next commit removes.
    released: Vec<(DatasetId, String)>,
    /// Bookmarks of datasets that are gone.
    unmarked: Vec<(DatasetId, String)>,
}

impl Table {
    pub fn new(pool: &str, next_id: DatasetId) -> Table {
        Table {
            pool: pool.to_owned(),
            entries: BTreeMap::new(),
            next_id,
            removed: Vec::new(),
            released: Vec::new(),
            unmarked: Vec::new(),
        }
    }

    pub fn next_id(&self) -> DatasetId {
        self.next_id
    }

    pub fn take_id(&mut self) -> DatasetId {
        let id = self.next_id;
        self.next_id = DatasetId(id.0 + 1);
        id
    }

    pub fn insert(&mut self, entry: Entry) {
        let id = entry.row.id;
        assert!(id.0 < self.next_id.0, "[table.3] dataset {id} was never given out");
        assert!(
            id == ROOT || self.entries.contains_key(&entry.row.parent),
            "[table.1] dataset {id} has no parent"
        );
        let old = self.entries.insert(id, entry);
        assert!(old.is_none(), "[table.3] dataset {id} is in the table twice");
    }

    pub fn remove(&mut self, id: DatasetId) -> Option<Entry> {
        let entry = self.entries.remove(&id)?;
        let marks = entry.bookmarks.keys().chain(&entry.bookmarks_dirty).cloned();
        self.unmarked.extend(marks.map(|mark| (id, mark)));
        let names = entry.props.keys().chain(&entry.props_dirty).chain(entry.received.names());
        self.removed.push((id, names.cloned().collect()));
        Some(entry)
    }

    /// The next commit removes these properties and tags of a snapshot that is gone.
    pub fn remove_traces(&mut self, snapshot: DatasetId, names: Vec<String>, tags: Vec<String>) {
        self.removed.push((snapshot, names));
        self.released.extend(tags.into_iter().map(|tag| (snapshot, tag)));
    }

    pub fn take_released(&mut self) -> Vec<(DatasetId, String)> {
        std::mem::take(&mut self.released)
    }

    pub fn take_unmarked(&mut self) -> Vec<(DatasetId, String)> {
        std::mem::take(&mut self.unmarked)
    }

    pub fn take_removed(&mut self) -> Vec<(DatasetId, Vec<String>)> {
        std::mem::take(&mut self.removed)
    }

    pub fn get(&self, id: DatasetId) -> Option<&Entry> {
        self.entries.get(&id)
    }

    pub fn get_mut(&mut self, id: DatasetId) -> Option<&mut Entry> {
        self.entries.get_mut(&id)
    }

    /// All but those being destroyed, and those that nobody sees yet.
    pub fn iter(&self) -> impl Iterator<Item = (DatasetId, &Entry)> {
        self.iter_all().filter(|(_, entry)| !entry.row.destroying && !entry.is_hidden())
    }

    /// All but those being destroyed: what counts for quotas.
    pub fn iter_charged(&self) -> impl Iterator<Item = (DatasetId, &Entry)> {
        self.iter_all().filter(|(_, entry)| !entry.row.destroying)
    }

    /// All.
    pub fn iter_all(&self) -> impl Iterator<Item = (DatasetId, &Entry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = (DatasetId, &mut Entry)> {
        self.entries.iter_mut().map(|(id, entry)| (*id, entry))
    }

    /// Open heads, parents before children.
    pub fn open_heads(&self) -> Vec<Arc<Dataset>> {
        let living = self.iter_all().filter(|(_, entry)| !entry.row.destroying);
        living.filter_map(|(_, entry)| Some(Arc::clone(&entry.open.as_ref()?.head))).collect()
    }

    /// Ids from the root dataset down to `id`; none for what is gone, as a dataset may be that was
    /// named before the table was held.
    pub fn ancestry(&self, id: DatasetId) -> Vec<DatasetId> {
        if !self.entries.contains_key(&id) {
            return Vec::new();
        }
        let mut ids = vec![id];
        let mut at = id;
        while at != ROOT {
            at = self.entries[&at].row.parent;
            ids.push(at);
            assert!(ids.len() <= self.entries.len(), "[table.1] the parents of {id} go in a circle");
        }
        ids.reverse();
        ids
    }

    /// `pool/a/b`; `<7>` of what is gone.
    pub fn full_name(&self, id: DatasetId) -> String {
        if !self.entries.contains_key(&id) {
            return format!("<{id}>");
        }
        let mut name = self.pool.clone();
        for id in self.ancestry(id).into_iter().skip(1) {
            name.push('/');
            name.push_str(&self.entries[&id].row.name);
        }
        name
    }

    pub fn child(&self, parent: DatasetId, name: &str) -> Option<DatasetId> {
        self.iter()
            .find(|(id, e)| *id != ROOT && e.row.parent == parent && e.row.name == name)
            .map(|(id, _)| id)
    }

    pub fn children(&self, parent: DatasetId) -> Vec<DatasetId> {
        self.iter().filter(|(id, e)| *id != ROOT && e.row.parent == parent).map(|(id, _)| id).collect()
    }

    /// Refuses a parent that is gone or goes. To be asked under the lock under which its child
    /// comes. [destroy.2]
    pub fn check_stays(&self, parent: DatasetId) -> Result<()> {
        match self.get(parent) {
            Some(entry) if !entry.row.destroying => Ok(()),
            _ => Err(Error::NoParent { parent: self.full_name(parent) }),
        }
    }

    /// Refuses a place for a dataset. To be asked under the lock under which it comes there: since
    /// the place was looked for, its parent may have gone or somebody else have taken the name.
    /// [table.2]
    pub fn check_place(&self, parent: DatasetId, name: &str) -> Result<()> {
        self.check_stays(parent)?;
        self.check_parent(parent)?;
        match self.child(parent, name) {
            Some(other) => Err(Error::DatasetExists { name: self.full_name(other) }),
            None => Ok(()),
        }
    }

    /// Gives a dataset another name if an older one of its parent has it: such a pool was written
    /// before [`Table::check_place`] was asked. Returns which, and the full names they had.
    /// [table.2]
    pub fn tell_apart(&mut self) -> Vec<(DatasetId, String)> {
        let mut names: BTreeSet<(DatasetId, String)> = BTreeSet::new();
        let place = |entry: &Entry| (entry.row.parent, entry.row.name.clone());
        let all: Vec<_> = self.iter().map(|(id, entry)| (id, place(entry))).collect();
        let second: Vec<_> = all.into_iter().filter(|(_, place)| !names.insert(place.clone())).collect();
        let mut renamed = Vec::new();
        for (id, (parent, name)) in second {
            let full = self.full_name(id);
            let others = (id.0..).map(|number| (parent, format!("{name}.{number}")));
            let free = others.into_iter().find(|place| !names.contains(place)).expect("numbers do not end");
            let entry = self.entries.get_mut(&id).expect("just found");
            (entry.row.name, entry.row_dirty) = (free.1.clone(), true);
            names.insert(free);
            renamed.push((id, full));
        }
        renamed
    }

    /// All below `id`, parents before children.
    pub fn descendants(&self, id: DatasetId) -> Vec<DatasetId> {
        let mut found = Vec::new();
        let mut open = vec![id];
        while let Some(parent) = open.pop() {
            for child in self.children(parent) {
                found.push(child);
                open.push(child);
            }
        }
        found
    }

    /// Snapshots of `id` and of all below it.
    pub fn snapshots_within(&self, id: DatasetId) -> u64 {
        let within = self.iter().filter(|(other, _)| self.is_within(*other, id));
        within.map(|(_, entry)| entry.snapshots.len() as u64).sum()
    }

    /// Finds a dataset by its full name.
    pub fn find(&self, name: &str) -> Result<DatasetId> {
        let missing = || Error::NoSuchDataset { name: name.to_owned() };
        let mut parts = name.split('/');
        if parts.next() != Some(self.pool.as_str()) {
            return Err(missing());
        }
        parts.try_fold(ROOT, |at, part| self.child(at, part)).ok_or_else(missing)
    }

    /// The value of a property that counts for a dataset, and its source.
    pub fn resolve(&self, id: DatasetId, name: &str, mount_base: &str) -> Option<Resolved> {
        let ids = self.ancestry(id);
        if ids.is_empty() {
            return None;
        }
        let names: Vec<String> = ids.iter().map(|id| self.full_name(*id)).collect();
        let chain: Vec<(&str, &Local)> =
            ids.iter().zip(&names).map(|(id, name)| (name.as_str(), &self.entries[id].props)).collect();
        let mut resolved = steadfast_property::resolve(&chain, name, mount_base)?;
        if resolved.source == Source::Local && self.entries[&id].received.counts(name) {
            resolved.source = Source::Received;
        }
        Some(resolved)
    }

    /// Encryption root of an encrypted dataset.
    pub fn encryption_root(&self, id: DatasetId) -> Option<DatasetId> {
        Some(self.entries.get(&id)?.row.encryption.as_ref()?.root)
    }

    /// Whose key opens a dataset: its encryption root, or itself.
    pub fn key_name(&self, id: DatasetId) -> String {
        self.full_name(self.encryption_root(id).filter(|root| self.get(*root).is_some()).unwrap_or(id))
    }

    /// The owner of an encrypted dataset's segments, if no other dataset's blocks lie in them.
    pub fn owned_alone(&self, id: DatasetId) -> Option<DatasetId> {
        let own = self.entries.get(&id)?.owner()?;
        self.iter_all().all(|(other, entry)| other == id || entry.owner() != Some(own)).then_some(own)
    }

    /// True if `id` is `above` or lies below it.
    pub fn is_within(&self, id: DatasetId, above: DatasetId) -> bool {
        self.ancestry(id).contains(&above)
    }

    /// Datasets that take their key from `root`, itself first.
    pub fn keyed_by(&self, root: DatasetId) -> Vec<DatasetId> {
        let mut ids: Vec<DatasetId> =
            self.iter_all().map(|(id, _)| id).filter(|id| self.encryption_root(*id) == Some(root)).collect();
        ids.sort_by_key(|id| (*id != root, *id));
        ids
    }
}

/// Bookmarks of a dataset by name.
pub(crate) type Bookmarks = BTreeMap<String, Bookmark>;

#[cfg(test)]
mod tests {
    use steadfast_format::MetaKey;

    use super::*;

    #[test]
    fn a_dataset_that_comes_amid_a_commit_is_stored_by_the_next_one() {
        let pool = crate::test_pool::tank();
        let id = pool.datasets.add_dataset(ROOT, "fs", Local::new(), None, None).expect("made");
        let stored = || pool.core.meta.get(&MetaKey::Dataset(id).encode()).expect("read");
        // As if all heads had been frozen before this one was there.
        let open = pool.datasets.table.write().get_mut(id).expect("just made").open.take();
        pool.syncer.commit().expect("committed");
        assert!(stored().is_none(), "a row without trees");
        assert!(matches!(pool.datasets.place_for("tank/fs/below"), Err(Error::NoParent { .. })));
        pool.datasets.table.write().get_mut(id).expect("just made").open = open;
        pool.syncer.commit().expect("committed");
        let row = DatasetRow::decode(&stored().expect("it is stored")).expect("a row");
        assert!(row.names.is_some());
        assert!(pool.datasets.place_for("tank/fs/below").is_ok());
    }
}
