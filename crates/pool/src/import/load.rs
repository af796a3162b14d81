//! Importing a pool: from labels to uberblock to tail to table to datasets. Reads only, until the first commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_blockio::ReadContext;
use steadfast_device::MissingDevice;
use steadfast_env::Env;
use steadfast_format::{
    AuxClass, CommitTail, DatasetId, DatasetRow, DecodeError, Feature, LabelConfig, LeafConfig, LeafState,
    MetaKey, Need, PoolState, ReceivedProperty, RelocationRow, ScanKind, ScanRow, ScanState, SegmentRow, Txg,
    Uberblock, meta_keys,
};
use steadfast_property::Local;

use crate::Pool;
use crate::core::error::{Error, Result};
use crate::core::events::Events;
use crate::core::inner::{CommitState, Inner, Leaf};
use crate::core::memory::Memory;
use crate::datasets::table::{Entry, ROOT, Table};
use crate::devices::scrub::Scan;
use crate::import::anchor::{self, AnchorWish};
use crate::import::create::{DeviceHandle, Plan, sealing_of};
use crate::import::scan::{self, FoundPool};
use crate::log::log_device;

/// How to import.
pub struct ImportSpec {
    /// Another name for the pool; it keeps it.
    pub new_name: Option<String>,
    /// Import although the label says that another host uses it.
    pub force: bool,
    /// Import a destroyed pool.
    pub destroyed: bool,
    /// Change nothing on the devices.
    pub read_only: bool,
    /// Secret for a sealed pool's key, as the operator gave it.
    pub secret: Option<Vec<u8>>,
    /// Where the pool's anchor is, and what the operator accepts.
    pub anchor: AnchorWish,
    /// Open what is committed, though a part of what the intent log promised is lost. The operator's decision.
    pub accept_lost_log: bool,
    /// Name of this host.
    pub host: String,
    /// Memory to use.
    pub memory: Memory,
}

impl Pool {
    /// Imports a pool of which [`scan::scan`] found the devices. Datasets whose keys are not loaded stay locked.
    pub fn import(env: &Env, found: FoundPool, spec: &ImportSpec) -> Result<Pool> {
        let devices: Vec<_> = found.devices.iter().map(|found| Arc::clone(&found.handle.device)).collect();
        let imported = Pool::import_found(env, found, spec);
        if imported.is_err() {
            // A thread that read ahead for it may hold the devices for a moment; they are free for anyone all the same.
            devices.iter().for_each(|device| device.release());
        }
        imported
    }

    fn import_found(env: &Env, mut found: FoundPool, spec: &ImportSpec) -> Result<Pool> {
        let here: Vec<u64> = found.devices.iter().map(|device| device.label.device_guid).collect();
        crate::import::split::take_back(&mut found.config, |leaf| here.contains(&leaf.guid));
        let config = &found.config;
        let name = spec.new_name.clone().unwrap_or_else(|| config.name.clone());
        check_config(config, spec)?;
        // A label is a stranger's word; names go into paths, messages and names of threads.
        steadfast_property::check_pool_name(&name)
            .map_err(|source| Error::BadName { name: name.clone(), source })?;
        crate::devices::groups::check_present(&found).map_err(|missing| {
            let special = crate::devices::groups::special_among(config, &missing);
            Error::MissingDevices { pool: config.name.clone(), missing, special }
        })?;
        let events = Arc::new(Events::new(Arc::clone(&env.clock)));
        let leaves = leaves_of(env, &events, &found)?;
        let random = |out: &mut [u8]| env.random.fill(out);

        // A sealed pool: its key first, for nothing below can be read without it.
        let mut user = None;
        let sealing = match &config.key {
            None => None,
            Some((wrapped, location)) => {
                let Some(secret) = &spec.secret else {
                    return Err(Error::PoolKeyNeeded {
                        pool: config.name.clone(),
                        keyformat: wrapped.key_format.name(),
                        keylocation: location.clone(),
                    });
                };
                let aad = crate::datasets::keys::pool_wrap_aad(config.pool);
                let (key, master) = crate::datasets::keys::unwrap(&config.name, secret, wrapped, &aad)?;
                user = Some(key);
                Some(sealing_of(master, wrapped.clone(), location.clone(), &random))
            }
        };
        let present: Vec<_> = leaves.iter().filter_map(|leaf| leaf.in_use()).collect();
        let devices: Vec<_> = present.iter().map(|device| &**device).collect();
        let tag_of = |bound: &[u8]| match &sealing {
            Some(sealing) => steadfast_crypto::keyed_hash(&sealing.tag_key, bound),
            None => steadfast_crypto::hash(bound),
        };
        let (newest, unread) = scan::newest_uberblock(config.pool, &devices, tag_of, env);
        let keys = sealing.as_ref().map(|sealing| Arc::clone(&sealing.keys));
        let readable = |root: &scan::FoundUberblock| {
            let (space, blockio) = Plan::space_of(env, config, &leaves, spec.memory);
            space.set_healing(false);
            let context = ReadContext {
                dataset: DatasetId(0),
                family: DatasetId(0),
                keys: keys.as_deref(),
                cache: false,
            };
            space.bootstrap(&root.uberblock.tail, root.uberblock.tail_places.clone()).is_ok()
                && blockio.read(&root.uberblock.tail, &context).is_ok()
        };
        let mac_key = keys.as_ref().map(|keys| steadfast_anchor::mac_key(keys.master()));
        let choice = anchor::choose(env, config, &spec.anchor, mac_key, newest, readable);
        let choice = choice.map_err(|error| match (error, unread) {
            // A root is there, for all that is known, and was not to be had.
            (Error::NoUberblock { .. }, Some(source)) => Error::Device(source),
            (error, _) => error,
        })?;
        let (newest, accepted) = (choice.root, choice.accepted);
        let uberblock = newest.uberblock;
        check_devices(config, &uberblock)?;

        let (space, blockio) = Plan::space_of(env, config, &leaves, spec.memory);
        space.set_healing(false);
        let bad_root = |what: &str, reason: String| Error::BadRoot {
            pool: config.name.clone(),
            txg: uberblock.txg,
            reason: format!("{what}: {reason}"),
        };
        let corrupt = |what: &'static str| {
            let pool = config.name.clone();
            move |source: DecodeError| Error::Corrupt { pool: pool.clone(), what, source }
        };

        // The tail, from the places that the uberblock names.
        let bootstrap = space.bootstrap(&uberblock.tail, uberblock.tail_places.clone());
        bootstrap.map_err(|error| bad_root("commit tail", error.to_string()))?;
        let keys = sealing.as_ref().map(|sealing| &*sealing.keys);
        let context = ReadContext { dataset: DatasetId(0), family: DatasetId(0), keys, cache: false };
        let block =
            blockio.read(&uberblock.tail, &context).map_err(|e| bad_root("commit tail", e.to_string()))?;
        let tail = CommitTail::decode(&block).map_err(corrupt("commit tail"))?;
        if tail.txg != uberblock.txg {
            return Err(bad_root("commit tail", format!("it is of txg {}", tail.txg)));
        }
        if let Some(reason) = exhausted(&tail) {
            return Err(bad_root("commit tail", reason));
        }
        space.load_tail(&tail, &uberblock.tail).map_err(|e| bad_root("commit tail", e.to_string()))?;

        let mut logs = log_device::find(env, &events, &found);
        let spares = crate::devices::spares::find(&found, &mut logs.aux);
        let caches = crate::devices::l2arc::find(&found, &mut logs.aux);
        let plan = Plan {
            env: env.clone(),
            guid: config.pool,
            name: name.clone(),
            host: spec.host.clone(),
            created_ns: config.created_ns,
            ashift: config.ashift,
            slot_size: config.slot_size,
            features: config.features.clone(),
            aux: logs.aux,
            anchor: choice.anchor,
            groups: config.groups.clone(),
            leaves,
            events,
            sealing,
            memory: spec.memory,
            read_only: spec.read_only,
            space,
            blockio,
        };
        let state = CommitState {
            tag: newest.tag,
            last: Some(uberblock.clone()),
            retiring: false,
            tail: Some(uberblock.tail),
            labels_dirty: false,
            state: PoolState::Active,
        };
        let table = Table::new(&name, tail.next_dataset);
        let inner =
            plan.build(Some(uberblock.meta), uberblock.txg, state, table, Local::new(), tail.next_history);
        *inner.log_devices.write() = logs.devices;
        *inner.spares.write() = spares;
        *inner.known_as.write() = Some(found.guid).filter(|guid| *guid != config.pool);
        inner.load_space(&config.name)?;
        inner.load_table(&config.name, uberblock.txg)?;
        inner.update_quotas(None);
        inner.load_held(&config.name, uberblock.log)?;
        if let Some(value) = inner.meta.get(&MetaKey::Scan.encode())? {
            let row = ScanRow::decode(&value).map_err(corrupt("the last scan"))?;
            *inner.scan.lock() = Some(Scan::new(row));
        }
        if let Some(value) = inner.meta.get(&MetaKey::Move.encode())? {
            let row = ScanRow::decode(&value).map_err(corrupt("the last move"))?;
            *inner.moving.lock() = Some(Scan::new(row));
        }
        for leaf in inner.leaves().iter().filter(|leaf| leaf.config().state == LeafState::Leaving) {
            inner.space.set_leaving(leaf.id(), true);
            inner.replacing.lock().push(leaf.id());
        }
        inner.begin_without_parted();
        let mut notices = Vec::new();
        if !spec.read_only {
            inner.space.set_healing(true);
            let promised = uberblock.log.is_some() && config.state != PoolState::Exported;
            notices = inner.do_without(&logs.missing, spec.accept_lost_log, promised)?;
        }
        if let (Some(user), Some(secret)) = (user, &spec.secret) {
            drop(user);
            let root = inner.name();
            match inner.load_key(&root, secret, false) {
                // A change of key was cut off between the root dataset's row and the labels: the old key opens the pool,
                // and the new one its root dataset.
                Err(Error::WrongKey { .. }) => {}
                other => other?,
            }
        }
        inner.open_unlocked()?;
        inner.update_limits();
        if !spec.read_only
            && let Some(head) = uberblock.log
        {
            // Of what the operator accepts the register knows nothing. It writes nothing, and what another daemon promises
            // meanwhile moves the register, which can then not be taken over.
            let known = inner.anchor().filter(|_| accepted.is_none());
            let vouched = known.and_then(|anchor| anchor.held()).map(|(_, log)| log);
            notices.extend(inner.replay_log(head, uberblock.txg, spec.accept_lost_log, vouched)?);
        }
        // The labels say what is so from now on: where the register is, or that there is none.
        let listed = inner.aux.read().iter().find(|aux| aux.class == AuxClass::Anchor).cloned();
        inner.unlist_anchor();
        if let Some(anchor) = inner.anchor() {
            let listed = listed.filter(|aux| aux.path == choice.path);
            inner.aux.write().push(listed.unwrap_or_else(|| anchor::aux(env, &choice.path)));
            inner.features.write().extend(Feature::known(anchor::FEATURE));
            if !spec.read_only {
                // Before the first write: whoever had the pool until now is fenced.
                anchor.take_over(accepted.map(|root| (root, inner.log_found(uberblock.log))))?;
            }
            let opened = steadfast_anchor::Root { uberblock: uberblock.clone(), tag: newest.tag };
            let held = anchor.held().map(|(root, _)| root);
            assert!(spec.read_only || held == Some(opened), "what is opened is what is anchored [anchor.3]");
        }
        if let Some(notice) = &choice.notice {
            inner.note_accepted(notice);
        }
        if !spec.read_only {
            inner.mend_logs();
            notices.iter().for_each(|notice| inner.note_log_given_up(notice));
            inner.space.discard_leftovers()?;
            inner.commit_state.lock().labels_dirty = true;
            inner.changed.store(true, std::sync::atomic::Ordering::Release);
            inner.commit()?;
            if inner.take_back_logs(&logs.returning) {
                inner.commit()?;
            }
            inner.forget_parted(|| inner.commit())?;
            let under_way = inner
                .scan_status()
                .is_some_and(|scan| scan.kind == ScanKind::Resilver && scan.state == ScanState::Active);
            if !under_way {
                inner.resilver_if_needed();
            }
            inner.resume_moves();
        }
        // Last: what has a task of its own must not outlive an import that fails.
        inner.begin_caches(caches);
        let pool = Pool::start(inner);
        if !spec.read_only {
            // What cannot be freed now is freed when its key is there, or by who receives next.
            let _ = pool.inner.discard_broken_off();
        }
        Ok(pool)
    }
}

/// Orders rows so that each comes after its parent. Refuses those that no chain of parents joins to the root dataset, and
/// those whose encryption root is none.
fn parents_first(rows: Vec<DatasetRow>) -> Result<Vec<DatasetRow>> {
    let is_root = |id: DatasetId| {
        rows.iter().any(|row| row.id == id && row.encryption.as_ref().is_some_and(|e| e.root == id))
    };
    let lost = rows.iter().find(|row| row.encryption.as_ref().is_some_and(|e| !is_root(e.root)));
    if let Some(row) = lost {
        let reason = "its encryption root is none".to_owned();
        return Err(Error::BadDataset { dataset: row.id, reason });
    }
    let mut waiting: BTreeMap<DatasetId, Vec<DatasetRow>> = BTreeMap::new();
    for row in rows {
        waiting.entry(row.parent).or_default().push(row);
    }
    let mut ordered: Vec<DatasetRow> = waiting.remove(&DatasetId(0)).unwrap_or_default();
    let mut at = 0;
    while at < ordered.len() {
        let children = waiting.remove(&ordered[at].id).unwrap_or_default();
        ordered.extend(children);
        at += 1;
    }
    match waiting.values().flatten().next() {
        None => Ok(ordered),
        Some(row) => {
            let reason = "no chain of parents joins it to the root dataset".to_owned();
            Err(Error::BadDataset { dataset: row.id, reason })
        }
    }
}

/// Counters only grow, one by one or by a few at an import: one near its end was forged, and would overflow here.
fn exhausted(tail: &CommitTail) -> Option<String> {
    const END: u64 = 1 << 62;
    let counters = [
        ("txg", tail.txg.0),
        ("segment id", tail.next_segment.0),
        ("dataset id", tail.next_dataset.0),
        ("history number", tail.next_history),
    ];
    counters.iter().find(|(_, value)| *value >= END).map(|(what, value)| format!("its {what} is {value}"))
}

fn check_config(config: &LabelConfig, spec: &ImportSpec) -> Result<()> {
    let pool = config.name.clone();
    match config.state {
        PoolState::Destroyed if !spec.destroyed => return Err(Error::Destroyed { pool }),
        PoolState::Active if config.host != spec.host && !spec.force => {
            return Err(Error::NotExported { pool, host: config.host.clone() });
        }
        _ => {}
    }
    for feature in config.features.iter().filter(|feature| !feature.is_known()) {
        let forbidden = match feature.need {
            Need::Read => true,
            Need::Write => !spec.read_only,
            Need::Safe => false,
        };
        if forbidden {
            return Err(Error::UnknownFeature { pool, feature: feature.name.clone() });
        }
    }
    Ok(())
}

/// The newest root knows how many devices it was written to. Labels that list fewer are older than it, and a device is
/// missing; labels that list more were written by an `add` that did not come to its commit, and carry the root's txg; or a device
/// has left with the newest root, whose labels did not come any more.
fn check_devices(config: &LabelConfig, uberblock: &Uberblock) -> Result<()> {
    let listed = config.leaves.len();
    let counted = uberblock.devices as usize;
    let leaves = |leaf: &&LeafConfig| matches!(leaf.state, LeafState::Leaving | LeafState::Parted);
    let leaving = config.leaves.iter().filter(leaves).count();
    let left = counted < listed && counted + leaving >= listed;
    if counted == listed || left || counted < listed && config.txg >= uberblock.txg {
        return Ok(());
    }
    let reason = format!("it was written to {counted} devices, and the labels list {listed}");
    Err(Error::BadRoot { pool: config.name.clone(), txg: uberblock.txg, reason })
}

/// The pool's devices in the order of the label, with the paths by which they were found now.
fn leaves_of(env: &Env, events: &Arc<Events>, found: &FoundPool) -> Result<Vec<Arc<Leaf>>> {
    let mut leaves = Vec::new();
    for leaf in &found.config.leaves {
        if leaves.iter().any(|other: &Arc<Leaf>| other.config().guid == leaf.guid) {
            return Err(Error::Twice { path: leaf.path.clone() });
        }
        let device = found.devices.iter().find(|device| device.label.device_guid == leaf.guid);
        let Some(device) = device else {
            let keeps = matches!(leaf.state, LeafState::Leaving | LeafState::Spared | LeafState::Parted);
            let state = if keeps { leaf.state } else { LeafState::Gone };
            let config = LeafConfig { state, ..leaf.clone() };
            let missing = Arc::new(MissingDevice::new(&leaf.path));
            leaves.push(Arc::new(Leaf::new(config, missing, env, events)));
            continue;
        };
        let DeviceHandle { path, device: handle } = device.handle.clone();
        if device.label.slot_size != found.config.slot_size || device.label.ashift != found.config.ashift {
            return Err(Error::ForeignDevice { path, pool: found.config.name.clone() });
        }
        let bytes = handle.character().size_bytes;
        let slots = steadfast_format::medium::slot_count(bytes, found.config.column_of(leaf));
        if slots < leaf.slots {
            return Err(Error::Shrunk { path, bytes, slots: leaf.slots });
        }
        let mut config = leaf.clone();
        config.path = path;
        if config.state == LeafState::Gone {
            // It is back. What it missed, rows do not look for on it.
            config.state = LeafState::Online;
        }
        leaves.push(Arc::new(Leaf::new(config, handle, env, events)));
    }
    Ok(leaves)
}

impl Inner {
    pub(crate) fn corrupt(&self, pool: &str, what: &'static str, source: DecodeError) -> Error {
        Error::Corrupt { pool: pool.to_owned(), what, source }
    }

    /// Items of the meta tree whose key begins with `kind`.
    pub(crate) fn items_of(&self, kind: u8) -> impl Iterator<Item = Result<(MetaKey, Vec<u8>)>> + '_ {
        let pool = self.name();
        self.meta.range([kind]..[kind + 1]).map(move |item| {
            let (key, value) = item?;
            let key = MetaKey::decode(&key).ok_or_else(|| {
                let source = DecodeError::Field { structure: "meta_key", field: "kind", value: kind.into() };
                self.corrupt(&pool, "a key of the meta tree", source)
            })?;
            Ok((key, value))
        })
    }

    fn load_space(&self, pool: &str) -> Result<()> {
        let bad = |error: steadfast_segment::TableError| Error::BadTable {
            pool: pool.to_owned(),
            reason: error.to_string(),
        };
        for item in self.items_of(meta_keys::SEGMENT) {
            let (MetaKey::Segment(id), value) = item? else { continue };
            let row = SegmentRow::decode(&value);
            let row = row.map_err(|source| self.corrupt(pool, "a segment row", source))?;
            self.space.load_rows([(id, row)]).map_err(bad)?;
        }
        for item in self.items_of(meta_keys::RELOCATION) {
            let (MetaKey::Relocation(id, unit), value) = item? else { continue };
            let run = RelocationRow::decode(&value);
            let run = run.map_err(|source| self.corrupt(pool, "a relocation row", source))?;
            self.space.load_runs([((id, unit), run)]).map_err(bad)?;
        }
        self.space.finish_load().map_err(bad)
    }

    fn load_table(&self, pool: &str, newest: Txg) -> Result<()> {
        let mut rows = Vec::new();
        for item in self.items_of(meta_keys::DATASET) {
            let (MetaKey::Dataset(id), value) = item? else { continue };
            let row = DatasetRow::decode(&value);
            let row = row.map_err(|source| self.corrupt(pool, "a dataset row", source))?;
            let next = self.table.read().next_id();
            if row.id != id || id.0 >= next.0 || (row.parent.0 == 0) != (id == ROOT) {
                let reason = "its row contradicts the others".to_owned();
                return Err(Error::BadDataset { dataset: id, reason });
            }
            // `p` stands for the pool's name, which was checked and may be another one today.
            let named = |name: &str| {
                !name.contains('/') && steadfast_property::check_dataset_name(&format!("p/{name}")).is_ok()
            };
            if id != ROOT && !named(&row.name) {
                let reason = format!("its name {:?} is none", row.name);
                return Err(Error::BadDataset { dataset: id, reason });
            }
            rows.push(row);
        }
        if rows.first().is_none_or(|row| row.id != ROOT) {
            return Err(Error::BadDataset { dataset: ROOT, reason: "the root dataset is missing".into() });
        }
        for row in parents_first(rows)? {
            self.table.write().insert(Entry::new(row, Local::new()));
        }
        self.load_snapshots(pool, newest)?;
        self.load_references(pool)?;
        self.load_writers(pool)?;
        let snapshots = self.table.read().snapshots_by_number();
        let text = |value: Vec<u8>| {
            String::from_utf8(value).map_err(|_| {
                let source = DecodeError::Text { structure: "property", field: "value" };
                self.corrupt(pool, "a property", source)
            })
        };
        for item in self.items_of(meta_keys::DATASET_PROPERTY) {
            let (MetaKey::DatasetProperty(id, name), value) = item? else { continue };
            let value = text(value)?;
            let mut table = self.table.write();
            let of_snapshot =
                snapshots.get(&id).and_then(|(of, txg)| table.get_mut(*of)?.snapshots.get_mut(txg));
            if let Some(snapshot) = of_snapshot {
                snapshot.props.insert(name, value);
            } else if let Some(entry) = table.get_mut(id) {
                entry.props.insert(name, value);
            }
        }
        for item in self.items_of(meta_keys::RECEIVED_PROPERTY) {
            let (MetaKey::ReceivedProperty(id, name), value) = item? else { continue };
            let row = ReceivedProperty::decode(&value)
                .map_err(|source| self.corrupt(pool, "a received property", source))?;
            let mut table = self.table.write();
            let of_snapshot =
                snapshots.get(&id).and_then(|(of, txg)| table.get_mut(*of)?.snapshots.get_mut(txg));
            if let Some(snapshot) = of_snapshot {
                snapshot.received.load(&mut snapshot.props, name, row);
            } else if let Some(entry) = table.get_mut(id) {
                entry.received.load(&mut entry.props, name, row);
            }
        }
        for item in self.items_of(meta_keys::POOL_PROPERTY) {
            let (MetaKey::PoolProperty(name), value) = item? else { continue };
            let value = text(value)?;
            self.props.write().values.insert(name, value);
        }
        Ok(())
    }

    /// Opens all datasets that need no key, and those whose key is loaded.
    fn open_unlocked(&self) -> Result<()> {
        let all: Vec<(DatasetId, bool)> = {
            let table = self.table.read();
            table.iter_all().map(|(id, entry)| (id, !entry.is_encrypted() || entry.keys.is_some())).collect()
        };
        for (id, readable) in all {
            if readable {
                self.open_head(id)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use steadfast_format::SegmentId;

    use super::*;

    #[test]
    fn counters_near_their_end_are_refused_before_they_overflow() {
        let tail = CommitTail {
            txg: Txg(1),
            next_segment: SegmentId(2),
            next_dataset: DatasetId(3),
            next_history: 4,
            rows: Vec::new(),
            runs: Vec::new(),
        };
        assert_eq!(exhausted(&tail), None);
        for tail in [
            CommitTail { txg: Txg(u64::MAX), ..tail.clone() },
            CommitTail { next_segment: SegmentId(u64::MAX), ..tail.clone() },
            CommitTail { next_dataset: DatasetId(1 << 63), ..tail.clone() },
            CommitTail { next_history: u64::MAX, ..tail.clone() },
        ] {
            assert!(exhausted(&tail).is_some());
        }
    }
}
