//! Owners in the extents tree: counting, charging in sync, quotas (ZFS: `zfs userspace`,
//! `dmu_objset_userquota`). Theory: [`crate::owners`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_format::extent::Extent;
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::inode::InodeRecord;
use steadfast_format::{BlockPointer, DatasetRow, InodeId, Owner, OwnerRow, Txg};
use steadfast_tree::{Change, Options, Tree};
use steadfast_txg::{Account, Claim};

use crate::cost::ITEM_SPACE;
use crate::dataset::Dataset;
use crate::inode::{Inode, InodeState};
use crate::owners::{Entry, OwnedBy, OwnerAccount, OwnerQuota, Stage, both, owned_by, slot};
use crate::record::{Grain, record_space};
use crate::{Error, Result};

/// Bytes of a page of the kernel.
const PAGE: u64 = 4096;

/// Room for writes to a dataset.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct WriteRoom {
    /// Bytes in the pool, as far as the dataset's quotas allow.
    pub bytes: u64,
    /// Bytes in the pool once the cleaner has got to what died, whatever quotas say.
    pub pool: u64,
    /// Bytes that quotas, and what is reserved for others, leave of it, if they leave less.
    pub quota: Option<u64>,
    /// Bytes of space that a page of content takes at most, once it is committed.
    pub page: u64,
    /// Bytes of each user and group that has a quota.
    pub owners: Vec<(Owner, u64)>,
    /// No commit comes for now: the pool is suspended, or its store is away.
    pub is_halted: bool,
}

/// How content of a file is counted that comes later.
#[derive(Clone, Copy, Debug)]
pub struct WriteTerms {
    pub(crate) record_size: u64,
    pub(crate) grain: Grain,
}

impl WriteTerms {
    /// Terms of a file without copies or encryption.
    #[must_use]
    pub fn flat(record_size: u64) -> WriteTerms {
        WriteTerms { record_size, grain: Grain { unit: 4096, sealed: false, copies: 1 } }
    }

    /// Bytes of a record.
    #[must_use]
    pub fn record_size(&self) -> u64 {
        self.record_size
    }

    /// Bytes that a record of this length takes at worst, with its place in the tree.
    #[must_use]
    pub fn space(&self, length: u64) -> u64 {
        record_space(self.grain, length) + ITEM_SPACE
    }

    /// The same of a page of content that is written alone.
    fn page_space(&self) -> u64 {
        let in_one = self.record_size.clamp(1, PAGE);
        PAGE.div_ceil(in_one) * self.space(in_one)
    }
}

/// The cost of writes at worst, when they come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct WriteClaim {
    /// Bytes.
    pub space: u64,
    /// Records that change.
    pub records: u64,
}

impl Dataset {
    /// From now on owners are counted, as the pool's format allows: at once, if the trees hold it,
    /// else with the next txg.
    pub fn count_owners(&self) {
        let mut state = self.owners.state.lock();
        if state.stage == Stage::Off {
            state.stage = Stage::Wanted;
            self.owners.wanting.store(true, Ordering::Release);
        }
    }

    /// Quotas of all owners that have any. One of bytes counts to the end of its last unit, so that
    /// a file of just as many bytes fits.
    pub fn set_owner_quotas(&self, mut quotas: HashMap<Owner, OwnerQuota>) {
        let unit = u64::from(self.blocks.unit());
        for quota in quotas.values_mut() {
            quota.bytes = quota.bytes.map(|bytes| bytes.checked_next_multiple_of(unit).unwrap_or(bytes));
        }
        self.owners.limited.store(!quotas.is_empty(), Ordering::Relaxed);
        self.owners.state.lock().quotas = quotas;
    }

    /// Usage of each owner as of the last sync, in the order of their numbers; `None` if it is not
    /// counted yet.
    #[must_use]
    pub fn owners(&self) -> Option<Vec<(Owner, OwnerRow)>> {
        let state = self.owners.state.lock();
        if !state.stage.is_known() {
            return None;
        }
        let rows = state.entries.iter().filter_map(|(owner, entry)| Some((*owner, entry.row()?)));
        let mut rows: Vec<(Owner, OwnerRow)> = rows.collect();
        rows.sort_unstable_by_key(|(owner, _)| *owner);
        Some(rows)
    }

    /// Room for writes as of now. Exact where nothing is under way; else rather less.
    #[must_use]
    pub fn write_room(&self) -> WriteRoom {
        let budget = &self.txgs.budget;
        let room = budget.room();
        let reserved = budget.reserved().space;
        let (pool, free) = (room.free.saturating_sub(reserved), room.free.min(room.placeable));
        let free = free.saturating_sub(reserved);
        let terms = WriteTerms { record_size: self.settings.read().recordsize.into(), grain: self.grain() };
        let bytes = self.account().map_or(free, |account| account.free(free));
        let limited = self.owners.limited.load(Ordering::Relaxed);
        let owners = if limited { self.owners.rooms() } else { Vec::new() };
        let quota = (bytes < free).then_some(bytes);
        let page = terms.page_space();
        WriteRoom { bytes, pool, quota, page, owners, is_halted: self.is_halted() }
    }

    /// A claim to the pool's space, for a cache above the dataset.
    #[must_use]
    pub fn join_claims(&self) -> Claim {
        self.txgs.claims.join()
    }

    /// True if no commit comes for now: the pool is suspended, or its store is away.
    #[must_use]
    pub fn is_halted(&self) -> bool {
        self.txgs.commits.is_halted()
    }

    /// Whose limits a write to an inode is held to.
    pub(crate) fn account_of(&self, inode: &Inode) -> Option<Arc<dyn Account>> {
        let above = self.account();
        if !self.owners.limited.load(Ordering::Relaxed) {
            return above;
        }
        let owner = owned_by(&inode.record());
        Some(Arc::new(OwnerAccount { above, owners: Arc::clone(&self.owners), owner }))
    }

    /// Refuses one object more for owners who have as many as they may. Under the lock of names.
    /// [owners.4]
    pub fn check_object_quota(&self, uid: u32, gid: u32) -> Result<()> {
        if !self.owners.limited.load(Ordering::Relaxed) {
            return Ok(());
        }
        let state = self.owners.state.lock();
        for owner in both((uid, gid)) {
            let Some(limit) = state.quotas.get(&owner).and_then(|quota| quota.objects) else { continue };
            let has = state.entries.get(&owner).map_or(0, |entry| entry.objects);
            if u64::try_from(has).unwrap_or(0) >= limit {
                return Err(Error::Refused(steadfast_txg::Refusal::OverQuota));
            }
        }
        Ok(())
    }

    /// Refuses to give an inode to owners whose quotas would not hold it. Waits for commits that
    /// may make room, so without a gate or lock held.
    pub fn check_new_owner(&self, inode: &Inode, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        if !self.owners.limited.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (record, pending) = inode.record_and_pending();
        let bytes = record.allocated + pending.unwrap_or(0) * self.grain().copies;
        let users = uid.filter(|uid| *uid != record.uid).map(Owner::user);
        let groups = gid.filter(|gid| *gid != record.gid).map(Owner::group);
        for owner in users.into_iter().chain(groups) {
            for attempt in 0.. {
                let waits = {
                    let state = self.owners.state.lock();
                    let quota = state.quotas.get(&owner).copied().unwrap_or_default();
                    let entry = state.entries.get(&owner).copied().unwrap_or_default();
                    let objects = u64::try_from(entry.objects).unwrap_or(0);
                    if quota.objects.is_some_and(|limit| objects >= limit) {
                        return Err(Error::Refused(steadfast_txg::Refusal::OverQuota));
                    }
                    let promised = entry.all_promised();
                    if quota.bytes.is_none_or(|limit| entry.bytes + promised + bytes <= limit) {
                        break;
                    }
                    promised > 0 || entry.freed_in.contains(&true)
                };
                if !waits || attempt == 2 {
                    return Err(Error::Refused(steadfast_txg::Refusal::OverQuota));
                }
                let open = self.txgs.gate.open_txg();
                self.txgs.commits.request_sync(open);
                self.txgs.commits.wait_committed(open)?;
            }
        }
        Ok(())
    }

    /// Reads what the extents tree says of owners.
    pub(crate) fn load_owners(&self) -> Result<()> {
        let (mut stage, mut entries) = (None, Vec::new());
        for item in self.extents.range(ExtentsKey::cuts()..NamesKey::all_of(InodeId(1))) {
            let (key, value) = item?;
            let bad = |source| Error::Item { dataset: self.id, source };
            match ExtentsKey::decode(&key).map_err(bad)? {
                ExtentsKey::Owners => stage = Some(Stage::Counted),
                ExtentsKey::Owner(owner) => {
                    let row = OwnerRow::decode(&value).map_err(bad)?;
                    // A count that goes on from a forged row stays a number.
                    let objects = row.objects.min(DatasetRow::FIGURE_MAX);
                    let objects = i64::try_from(objects).expect("below 2^63");
                    let entry =
                        Entry { bytes: row.bytes, objects, objects_frozen: objects, ..Entry::default() };
                    entries.push((owner, entry));
                }
                _ => {}
            }
        }
        let mut state = self.owners.state.lock();
        state.stage = stage.unwrap_or(state.stage);
        state.entries.extend(entries);
        Ok(())
    }

    /// Moves the charge for an inode with this freeze, if its owner changed or it is gone. Returns
    /// the owner charged before. [owners.2]
    pub(crate) fn freeze_owner(&self, state: &mut InodeState) -> Option<OwnedBy> {
        let now = (!state.gone).then(|| owned_by(&state.record));
        if state.charged == now {
            return None;
        }
        std::mem::replace(&mut state.charged, now)
    }

    /// Notes under an inode's lock that its owner may have changed.
    pub(crate) fn note_owner(&self, txg: Txg, state: &mut InodeState) {
        let now = owned_by(&state.record);
        if state.object_of != Some(now)
            && !state.gone
            && let Some(before) = state.object_of.replace(now)
        {
            self.owners.add_object(before, -1);
            self.owners.add_object(now, 1);
            self.owners.note_freed(txg, before);
        }
    }

    /// An inode is gone: no object of anybody's any more.
    pub(crate) fn note_gone(&self, txg: Txg, state: &mut InodeState) {
        if let Some(owner) = state.object_of.take() {
            self.owners.add_object(owner, -1);
            self.owners.note_freed(txg, owner);
        }
    }

    /// Charges what a sync changed of bytes, moves what changed its owner, and writes rows into the
    /// extents tree.
    pub(crate) fn sync_owners(
        &self,
        txg: Txg,
        moved: &[(Arc<Inode>, OwnedBy)],
        grown: &[(Arc<Inode>, i64)],
    ) -> Result<()> {
        let mut changes: HashMap<Owner, i64> = HashMap::new();
        let mut charge = |owner: OwnedBy, bytes: i64| {
            both(owner).into_iter().for_each(|owner| *changes.entry(owner).or_default() += bytes);
        };
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        for (inode, before) in moved {
            let mut state = inode.state.lock();
            charge(*before, -signed(state.charged_bytes));
            match state.charged {
                Some(now) => charge(now, signed(state.charged_bytes)),
                None => state.charged_bytes = 0,
            }
        }
        for (inode, bytes) in grown {
            let mut state = inode.state.lock();
            // Content of an inode that is gone was taken off with it.
            if let Some(owner) = state.charged {
                charge(owner, *bytes);
                state.charged_bytes = state.charged_bytes.saturating_add_signed(*bytes);
            }
        }
        let owing = !self.freeing.cuts.read().is_empty();
        let mut changes_of_rows: BTreeMap<Vec<u8>, Option<Vec<u8>>> = BTreeMap::new();
        let mut guard = self.owners.state.lock();
        let state = &mut *guard;
        state.owing = owing;
        for entry in state.entries.values_mut() {
            entry.promised_in[slot(txg)] = 0;
            entry.freed_in[slot(txg)] = false;
        }
        let mut rows: BTreeSet<Owner> = std::mem::take(&mut state.touched_frozen);
        if !state.stage.is_known() {
            return Ok(());
        }
        for (owner, bytes) in changes.into_iter().filter(|(_, bytes)| *bytes != 0) {
            let entry = state.entries.entry(owner).or_default();
            entry.bytes = entry.bytes.saturating_add_signed(bytes);
            rows.insert(owner);
        }
        if state.stage == Stage::Unwritten {
            rows.extend(state.entries.keys());
            changes_of_rows.insert(ExtentsKey::Owners.encode(), Some(Vec::new()));
            state.stage = Stage::Counted;
            self.owners.wanting.store(false, Ordering::Release);
        }
        let row_of =
            |owner: Owner| state.entries.get(&owner).and_then(Entry::row).map(|row| row.encode().to_vec());
        changes_of_rows.extend(rows.into_iter().map(|owner| (owner.key(), row_of(owner))));
        // Operations want the lock, and the batch may have to read.
        drop(guard);
        let changes: Vec<Change<'_>> = changes_of_rows
            .iter()
            .map(|(key, row)| match row {
                Some(row) => Change::Insert(key, row),
                None => Change::Remove(key),
            })
            .collect();
        self.extents.batch(&changes)?;
        // An owner without usage and promises is forgotten.
        self.owners.state.lock().entries.retain(|_, entry| {
            let waits = entry.all_promised() > 0 || entry.freed_in.contains(&true);
            entry.row().is_some() || entry.objects != 0 || waits
        });
        Ok(())
    }

    /// Counts all owners, if this sync is to, in the trees that it leaves.
    pub(crate) fn count_if_wanted(&self, names: Option<BlockPointer>) -> Result<()> {
        if self.owners.state.lock().stage != Stage::Counting {
            return Ok(());
        }
        let counted = self.count_all_owners(names)?;
        let mut state = self.owners.state.lock();
        for (owner, row) in counted {
            let entry = state.entries.entry(owner).or_default();
            entry.bytes = row.bytes;
            // Operations of the open txg counted beside it meanwhile.
            entry.objects_frozen = i64::try_from(row.objects).unwrap_or(i64::MAX);
            entry.objects += entry.objects_frozen;
        }
        state.stage = Stage::Unwritten;
        Ok(())
    }

    /// Counts what each owner has in a names tree, with the extents as they are. Both trees are
    /// walked side by side.
    fn count_all_owners(&self, names: Option<BlockPointer>) -> Result<HashMap<Owner, OwnerRow>> {
        let store = Arc::clone(&self.names_store) as _;
        let names = Tree::open(store, Arc::clone(&self.cache), names, Options::DATASET);
        let mut rows: HashMap<Owner, OwnerRow> = HashMap::new();
        let mut extents = self.extents.range(NamesKey::all_of(InodeId(1))..).peekable();
        let bad = |source| Error::Item { dataset: self.id, source };
        for item in names.range(NamesKey::all_of(InodeId(1))..) {
            let (key, value) = item?;
            let Ok(NamesKey::Inode(id)) = NamesKey::decode(&key) else { continue };
            let record = InodeRecord::decode(&value).map_err(bad)?;
            let mut bytes = 0;
            let end = NamesKey::all_of(InodeId(id.0 + 1));
            // Extents of inodes that are gone lie between.
            while let Some(item) = extents.next_if(|item| item.as_ref().map_or(true, |(key, _)| *key < end)) {
                let (key, value) = item?;
                if let Ok(ExtentsKey::Extent { inode, .. }) = ExtentsKey::decode(&key)
                    && inode == id
                {
                    bytes += self.extent_bytes(&Extent::decode(&value).map_err(bad)?);
                }
            }
            for owner in both(owned_by(&record)) {
                let row = rows.entry(owner).or_default();
                row.bytes += bytes;
                row.objects += 1;
            }
        }
        Ok(rows)
    }
}
