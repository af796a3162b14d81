//! Inodes by number: found, made, changed, forgotten, reclaimed (ZFS: `zfs_zget`, `zfs_zinactive`,
//! `zfs_rmnode`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_format::dirent::Dirent;
use steadfast_format::file_keys::NamesKey;
use steadfast_format::inode::InodeRecord;
use steadfast_format::{InodeId, Txg};
use steadfast_txg::{AdmitKind, Operation, Patience, Refusal};

use crate::cost::RECLAIM_COST;
use crate::dataset::{Dataset, ROOT_INODE};
use crate::inode::{Inode, InodeState};
use crate::inode_cache::Shard;
use crate::owners::owned_by;
use crate::{Error, Result};

/// Inodes whose times were read into being that wait for a commit with another reason: some 14 MB
/// of them.
const TOUCHED_MAX: usize = 32_768;
/// Changes of the names tree: keys, each with its value, or without one where it goes.
type NamesChanges = Vec<(Vec<u8>, Option<Vec<u8>>)>;
/// Names in a path: more than in any that a kernel resolves, so a circle of hints ends here.
const PATH_PARTS_MAX: usize = 4_096;

impl Dataset {
    /// An inode that is in memory.
    pub(crate) fn cached(&self, id: InodeId) -> Option<Arc<Inode>> {
        self.inodes.shard(id).get(id).map(Arc::clone)
    }

    /// True if an inode is in memory.
    #[must_use]
    pub fn is_live(&self, id: InodeId) -> bool {
        self.inodes.shard(id).is_live(id)
    }

    /// An inode by number: from memory, or read.
    pub fn inode(&self, id: InodeId) -> Result<Arc<Inode>> {
        self.find(id, 0)
    }

    /// An inode by number, with one reference more.
    pub fn inode_ref(&self, id: InodeId) -> Result<Arc<Inode>> {
        self.find(id, 1)
    }

    /// Shows an inode in memory as [`Inode::record_and_pending`] does, and gives it so many
    /// references more: one look at its shard and one at its state. `None` if it is not in memory.
    pub fn peek<R>(
        &self,
        id: InodeId,
        refs: u64,
        show: impl FnOnce(&InodeRecord, Option<u64>) -> R,
    ) -> Result<Option<R>> {
        let shard = self.inodes.shard(id);
        let Some(inode) = shard.get(id) else { return Ok(None) };
        let mut state = inode.state.lock();
        if state.gone {
            return Err(Error::NoInode(id));
        }
        state.refs += refs;
        inode.use_it();
        Ok(Some(show(&state.record, inode.pending(&state))))
    }

    /// An inode of a snapshot, for its content alone: the bytes that its blocks occupy stay unknown
    /// if they are not stored, as counting them takes a look at all its extents. Nobody else gets
    /// it, and it is not kept.
    pub fn inode_to_read(&self, id: InodeId) -> Result<Arc<Inode>> {
        let record = self.names.get(&NamesKey::Inode(id).encode())?.ok_or(Error::NoInode(id))?;
        let record =
            InodeRecord::decode(&record).map_err(|source| Error::Item { dataset: self.id, source })?;
        Ok(Inode::new(id, record))
    }

    fn find(&self, id: InodeId, refs: u64) -> Result<Arc<Inode>> {
        loop {
            let dropped = {
                let shard = self.inodes.shard(id);
                if let Some(inode) = shard.get(id) {
                    let mut state = inode.state.lock();
                    if state.gone {
                        return Err(Error::NoInode(id));
                    }
                    state.refs += refs;
                    drop(state);
                    inode.use_it();
                    return Ok(Arc::clone(inode));
                }
                shard.dropped
            };
            let record = self.names.get(&NamesKey::Inode(id).encode())?.ok_or(Error::NoInode(id))?;
            let mut record =
                InodeRecord::decode(&record).map_err(|source| Error::Item { dataset: self.id, source })?;
            if record.allocated == InodeRecord::ALLOCATED_UNKNOWN {
                record.allocated = self.count_allocated(id)?;
            }
            let mut shard = self.inodes.shard(id);
            // If it was in memory, changed and dropped again meanwhile, the record read may be an
            // old one. [inode_cache.4]
            if shard.is_live(id) || shard.dropped != dropped {
                continue;
            }
            let inode = Inode::new(id, record);
            // It may have rested; what was forgotten since we began is forgotten. [inode_cache.1]
            inode.state.lock().refs = shard.take_lookups(id) + refs;
            shard.insert(&inode);
            self.make_room(&mut shard);
            return Ok(inode);
        }
    }

    /// Number and object of a new inode, known to nobody yet, with one reference; `record` is what
    /// the caller puts into the names tree.
    ///
    /// # Errors
    /// No space, if all numbers were given.
    pub fn new_inode(
        &self,
        op: &Operation<'_>,
        mut record: InodeRecord,
    ) -> Result<(Arc<Inode>, InodeRecord)> {
        let following = |next: u64| (next < InodeId::FILES_END).then_some(next + 1);
        let next = self.next_inode.fetch_update(Ordering::Relaxed, Ordering::Relaxed, following);
        let id = InodeId(next.map_err(|_| Refusal::NoSpace)?);
        record.generation = op.txg().0;
        let inode = Inode::new(id, record);
        {
            let mut state = inode.state.lock();
            (state.changed, state.refs, state.altered) = (op.txg(), 1, true);
            self.note_pending(op.txg(), id, &mut state);
        }
        {
            let mut shard = self.inodes.shard(id);
            shard.insert(&inode);
            self.make_room(&mut shard);
        }
        self.files.fetch_add(1, Ordering::Relaxed);
        self.owners.add_object(owned_by(&record), 1);
        self.changes.changed.note();
        Ok((inode, record))
    }

    /// In an operation that reads nothing and misses a node already: what it will need for a new
    /// inode is read at the same time.
    pub fn want_next_inode(&self) {
        if steadfast_tree::is_unread() {
            let next = InodeId(self.next_inode.load(Ordering::Relaxed));
            // Where it is missing, that is noted.
            _ = self.names.get(&NamesKey::Inode(next).encode());
        }
    }

    /// The reason why the number of the next inode cannot be right, if there is one: it is above
    /// `end`, or something in the names tree has it or a higher one. A new file would replace what
    /// has it. Reads the last leaf of the names tree; where that cannot be read, nothing is said.
    #[must_use]
    pub fn fault_of_next_inode(&self, end: u64) -> Option<String> {
        let next = self.next_inode.load(Ordering::Relaxed);
        if !(2..=end).contains(&next) {
            return Some(format!("the number of its next inode, {next}, is not one of 2 to {end}"));
        }
        let (last, _) = self.names.floor(&[0xff; 8]).ok().flatten()?;
        let highest = u64::from_be_bytes(*last.first_chunk()?);
        (highest >= next)
            .then(|| format!("its next inode would get the number {next}, and inode {highest} exists"))
    }

    /// Takes a new inode back whose names could not be stored.
    pub fn drop_new_inode(&self, inode: &Inode) {
        self.inodes.shard(inode.id).drop_inode(inode.id, true);
        self.changes.dirty.lock().remove(&inode.id);
        self.files.fetch_sub(1, Ordering::Relaxed);
        self.owners.add_object(owned_by(&inode.record()), -1);
    }

    /// Asked by an operation before it changes an inode in memory: can its record be replaced? The
    /// leaf that holds it may be in memory no more, and where it cannot be read the change would
    /// fail the commit.
    ///
    /// # Errors
    /// Those of reading the leaf.
    pub fn may_change(&self, inode: &Inode) -> Result<()> {
        // An inode that an operation of this txg changed was asked for then, or is new.
        if inode.state.lock().changed == self.txgs.gate.present_txg() {
            return Ok(());
        }
        self.look_at_record(inode.id)
    }

    /// Fails where the leaf of an inode's record is not to be had.
    pub(crate) fn look_at_record(&self, id: InodeId) -> Result<()> {
        Ok(self.names.get_with(&NamesKey::Inode(id).encode(), |_| ())?)
    }

    /// Changes an inode as part of an operation. The attributes go to the names tree at freeze.
    pub fn change<R>(
        &self,
        op: &Operation<'_>,
        inode: &Arc<Inode>,
        f: impl FnOnce(&mut InodeRecord) -> R,
    ) -> R {
        let mut state = inode.state.lock();
        let result = f(&mut state.record);
        self.mark(op.txg(), inode, &mut state);
        result
    }

    /// Notes that an inode differs from what is stored. Under its lock, inside an operation of
    /// `txg`.
    pub(crate) fn mark(&self, txg: Txg, inode: &Arc<Inode>, state: &mut InodeState) {
        state.changed = txg;
        state.changes += 1;
        (state.record_dirty, state.altered) = (true, true);
        self.note_owner(txg, state);
        self.note_pending(txg, inode.id, state);
        if !state.dirty {
            state.dirty = true;
            self.changes.dirty.lock().insert(inode.id, Arc::clone(inode));
        }
        self.changes.changed.note();
    }

    /// Changes times only, without an operation's cost and without hurrying a commit: for atime.
    /// Lost in a crash. Where very many were changed so, that is a reason to commit: an inode that
    /// is dirty cannot rest.
    pub fn touch(&self, inode: &Arc<Inode>, f: impl FnOnce(&mut InodeRecord)) {
        let mut state = inode.state.lock();
        f(&mut state.record);
        (state.record_dirty, state.altered) = (true, true);
        if !state.dirty && !state.gone {
            state.dirty = true;
            let mut dirty = self.changes.dirty.lock();
            dirty.insert(inode.id, Arc::clone(inode));
            if dirty.len() >= TOUCHED_MAX {
                self.changes.changed.note();
            }
        }
    }

    /// Notes that the attributes differ from what is stored, which is no reason to commit.
    pub(crate) fn mark_record(&self, inode: &Arc<Inode>, state: &mut InodeState) {
        (state.record_dirty, state.altered) = (true, true);
        if !state.dirty {
            state.dirty = true;
            self.changes.dirty.lock().insert(inode.id, Arc::clone(inode));
        }
    }

    /// Gives references back. The last one of an inode without links starts its reclaim: the answer
    /// is true, and the caller calls [`Dataset::reclaim`].
    pub fn forget(&self, inode: &Arc<Inode>, refs: u64) -> bool {
        self.forget_in(&mut self.inodes.shard(inode.id), inode, refs)
    }

    /// The same by number, in one step, and without reading what rests. `None` where nothing is to
    /// be reclaimed.
    pub fn forget_number(&self, id: InodeId, refs: u64) -> Option<Arc<Inode>> {
        let mut shard = self.inodes.shard(id);
        let Some(inode) = shard.get(id).map(Arc::clone) else {
            shard.forget(id, refs);
            return None;
        };
        let is_orphan = self.forget_in(&mut shard, &inode, refs);
        drop(shard);
        is_orphan.then_some(inode)
    }

    fn forget_in(&self, shard: &mut Shard, inode: &Arc<Inode>, refs: u64) -> bool {
        let mut state = inode.state.lock();
        state.refs = state.refs.saturating_sub(refs);
        if state.refs > 0 {
            return false;
        }
        if state.record.nlink == 0 && !state.gone {
            return true;
        }
        self.remove_unused(shard, inode, &mut state);
        false
    }

    /// Nobody refers to an inode any more. Where inodes have room it stays: the next request of a
    /// network client, which holds nothing between two, would read it again. Else it is dropped
    /// from memory, if nothing of it is still on its way.
    fn remove_unused(&self, shard: &mut Shard, inode: &Arc<Inode>, state: &mut InodeState) {
        const MAP_AND_CALLER: usize = 2;
        if state.refs > 0 || state.dirty || !state.open.is_empty() || inode.frozen.lock().is_some() {
            return;
        }
        if !state.gone && !shard.room.is_short(shard.live.len()) {
            return;
        }
        if state.changed > self.txgs.commits.committed() {
            self.changes.retired.lock().insert(inode.id, Arc::clone(inode));
            return;
        }
        if state.unnoted && !state.gone {
            // Its next reader would have to count its extents, so it is flushed first.
            return self.mark_record(inode, state);
        }
        // Another holder got the object through the map and relies on it. It stays, or a second
        // one would come to be.
        if Arc::strong_count(inode) <= MAP_AND_CALLER {
            shard.drop_inode(inode.id, state.altered);
        }
    }

    /// Looks again at inodes that were kept for a commit.
    pub(crate) fn evict_retired(&self) {
        let retired = std::mem::take(&mut *self.changes.retired.lock());
        for (_, inode) in retired {
            self.evict(&inode);
        }
    }

    /// All references are gone at once (an unmount). Gives the inodes without links, to be
    /// reclaimed.
    pub fn forget_all(&self) -> Vec<Arc<Inode>> {
        let mut orphans = Vec::new();
        let committed = self.txgs.commits.committed();
        for mut shard in self.inodes.shards() {
            shard.forget_all(|inode| {
                let mut state = inode.state.lock();
                state.refs = 0;
                if state.record.nlink == 0 && !state.gone {
                    orphans.push(Arc::clone(inode));
                    return true;
                }
                let busy = state.dirty || !state.open.is_empty() || inode.frozen.lock().is_some();
                busy || state.changed > committed || Arc::strong_count(inode) > 1
            });
        }
        orphans
    }

    /// Inodes that the kernel knows, each with its lookups.
    #[must_use]
    pub fn all_lookups(&self) -> Vec<(InodeId, u64)> {
        let mut known = Vec::new();
        for (number, shard) in self.inodes.shards().enumerate() {
            let live = shard.live.values().map(|inode| (inode.id, inode.state.lock().refs));
            known.extend(live.filter(|(_, refs)| *refs > 0));
            known.extend(shard.resting.iter(number as u64));
        }
        known
    }

    /// True if somebody holds a reference to an inode.
    #[must_use]
    pub fn is_referenced(&self, id: InodeId) -> bool {
        let shard = self.inodes.shard(id);
        match shard.get(id) {
            Some(inode) => inode.state.lock().refs > 0,
            None => shard.resting.contains(id),
        }
    }

    /// Takes over lookups that the kernel made when the dataset had other content. Inodes that are
    /// not in it now stay unknown to every other call.
    pub fn adopt_lookups(&self, lookups: &[(InodeId, u64)]) {
        for (id, more) in lookups.iter().filter(|(_, more)| *more > 0) {
            let mut shard = self.inodes.shard(*id);
            match shard.get(*id) {
                Some(inode) => inode.state.lock().refs += more,
                None => shard.rest(|resting| {
                    let before = resting.take(*id);
                    resting.put(*id, before + more);
                }),
            }
        }
    }

    /// Drops an inode from memory if nobody refers to it and nothing of it is still on its way.
    pub(crate) fn evict(&self, inode: &Arc<Inode>) {
        let mut shard = self.inodes.shard(inode.id);
        let mut state = inode.state.lock();
        if shard.get(inode.id).is_some_and(|known| Arc::ptr_eq(known, inode)) {
            self.remove_unused(&mut shard, inode, &mut state);
        }
    }

    /// Removes an inode without links for good: its names items and content go in one txg.
    pub fn reclaim(&self, inode: &Arc<Inode>) -> Result<()> {
        // The caller removed the last name, and its work is done. This waits on its own behalf, as
        // nobody would do it later.
        let begin = || {
            let begin = || self.txgs.begin_for(self.account(), AdmitKind::Remove, RECLAIM_COST);
            Ok(Patience::Endless.during(begin)?)
        };
        self.operate(begin, |op| {
            {
                let mut state = inode.state.lock();
                if state.gone || state.refs > 0 || state.record.nlink > 0 {
                    return Ok(());
                }
                state.gone = true;
            }
            let items = self.items_of(inode.id, NamesKey::Orphan(inode.id).encode());
            if let Err(error) = items.and_then(|items| self.batch(items)) {
                // Nothing was removed: it is an orphan as before, until somebody tries again.
                inode.state.lock().gone = false;
                return Err(error);
            }
            self.end_content(op.txg(), inode, &mut inode.state.lock());
            Ok(())
        })
    }

    /// Removes an inode with its last name, whose key is `entry`, in one step, so that it is an
    /// orphan at no time. In an operation of [`Dataset::begin_remove`]. False if somebody holds a
    /// reference to it, or some of its items cannot be read: nothing was changed then. Its name can
    /// go without them.
    pub fn remove_with_name(&self, op: &Operation<'_>, inode: &Arc<Inode>, entry: &[u8]) -> Result<bool> {
        // Held while the items go: nobody gets a reference in between, and a flush of the record
        // comes before or finds it gone.
        let mut state = inode.state.lock();
        if state.gone || state.refs > 0 {
            return Ok(false);
        }
        match self.items_of(inode.id, entry.to_vec()) {
            Err(Error::Tree(error)) if error.is_unreadable() => return Ok(false),
            items => self.batch(items?)?,
        }
        (state.record.nlink, state.gone) = (0, true);
        self.end_content(op.txg(), inode, &mut state);
        Ok(true)
    }

    /// Nothing of an inode is in the names tree any more: its content goes, too.
    fn end_content(&self, txg: Txg, inode: &Arc<Inode>, state: &mut InodeState) {
        state.record.size = 0;
        let record_size = state.record_size();
        if state.record.record_shift != 0 {
            state.open.cut(record_size, 0..u64::MAX);
        }
        self.mark(txg, inode, state);
        self.note_gone(txg, state);
        self.files.fetch_sub(1, Ordering::Relaxed);
    }

    /// The removal of all that the names tree holds of an inode without other links, and of the
    /// item that leads to it: its name, or its place among the orphans.
    fn items_of(&self, id: InodeId, leads_to_it: Vec<u8>) -> Result<NamesChanges> {
        let mut changes = vec![(leads_to_it, None)];
        let (from, to) = (NamesKey::all_of(id), NamesKey::all_of(InodeId(id.0 + 1)));
        self.names.scan(&from, &to, |key, _| {
            changes.push((key.to_vec(), None));
            true
        })?;
        Ok(changes)
    }

    /// Inodes without links that a crash or an unmount left behind. Call once after opening,
    /// reclaim each.
    pub fn orphans(&self) -> Result<Vec<InodeId>> {
        let mut found = Vec::new();
        for item in self.names.range(NamesKey::orphans()..NamesKey::all_of(ROOT_INODE)) {
            let (key, _) = item?;
            if let Ok(NamesKey::Orphan(id)) = NamesKey::decode(&key) {
                found.push(id);
            }
        }
        Ok(found)
    }

    /// Visits every entry of every directory, with its directory.
    pub fn each_entry(&self, visit: &mut dyn FnMut(InodeId, Dirent)) -> Result<()> {
        let bad = |source| Error::Item { dataset: self.id, source };
        for item in self.names.range(NamesKey::all_of(ROOT_INODE)..NamesKey::all_of(InodeId(u64::MAX))) {
            let (key, value) = item?;
            if let NamesKey::Entry { directory, .. } = NamesKey::decode(&key).map_err(bad)? {
                visit(directory, Dirent::decode(&value).map_err(bad)?);
            }
        }
        Ok(())
    }

    /// Paths of many inodes below the root directory, without a leading slash. Each directory above
    /// them is read once. An inode without a name, or whose name cannot be read, has none.
    #[must_use]
    pub fn paths_of(&self, ids: &BTreeSet<InodeId>) -> BTreeMap<InodeId, Vec<u8>> {
        let mut links: BTreeMap<InodeId, (InodeId, Vec<u8>)> = BTreeMap::new();
        let mut wanted: BTreeSet<InodeId> = ids.iter().copied().filter(|id| *id != ROOT_INODE).collect();
        // One that has no answer is not asked for again.
        let mut asked = wanted.clone();
        while !wanted.is_empty() {
            let mut of_parent: BTreeMap<InodeId, BTreeSet<InodeId>> = BTreeMap::new();
            for id in wanted {
                let parent = self.inode(id).map_or(InodeId(0), |inode| inode.record().parent);
                if parent.0 != 0 {
                    of_parent.entry(parent).or_default().insert(id);
                }
            }
            wanted = BTreeSet::new();
            for (parent, mut children) in of_parent {
                for item in self.names.range(NamesKey::entries(parent)..NamesKey::xattrs(parent)) {
                    let Ok((_, value)) = item else { break };
                    let Ok(entry) = Dirent::decode(&value) else { continue };
                    if children.remove(&entry.inode) {
                        links.insert(entry.inode, (parent, entry.name));
                    }
                    if children.is_empty() {
                        break;
                    }
                }
                if parent != ROOT_INODE && asked.insert(parent) {
                    wanted.insert(parent);
                }
            }
        }
        let path = |id: &InodeId| {
            let (mut parts, mut at) = (Vec::new(), *id);
            while at != ROOT_INODE {
                let (parent, name) = links.get(&at)?;
                parts.push(name.clone());
                at = if parts.len() < PATH_PARTS_MAX { *parent } else { return None };
            }
            parts.reverse();
            Some((*id, parts.join(&b'/')))
        };
        ids.iter().filter_map(path).collect()
    }

    /// Path of an inode below the root directory, without a leading slash; `None` if it has no name
    /// any more.
    pub fn path_of(&self, id: InodeId) -> Result<Option<Vec<u8>>> {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        let mut at = id;
        for _ in 0..PATH_PARTS_MAX {
            if at == ROOT_INODE {
                parts.reverse();
                return Ok(Some(parts.join(&b'/')));
            }
            let Ok(inode) = self.inode(at) else { return Ok(None) };
            let parent = inode.record().parent;
            if parent.0 == 0 {
                return Ok(None);
            }
            let mut found = None;
            let (from, to) = (NamesKey::entries(parent), NamesKey::xattrs(parent));
            for item in self.names.range(from..to) {
                let (_, value) = item?;
                let entry =
                    Dirent::decode(&value).map_err(|source| Error::Item { dataset: self.id, source })?;
                if entry.inode == at {
                    found = Some(entry.name);
                    break;
                }
            }
            let Some(name) = found else { return Ok(None) };
            parts.push(name);
            at = parent;
        }
        Ok(None)
    }
}
