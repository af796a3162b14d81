//! Tables of a pool, read at import.

use crate::Pool;
use crate::core::error::Error;
use crate::core::error::Result;
use crate::core::rows::TABLES;
use crate::datasets::table::Entry;
use crate::datasets::table::ROOT;
use crate::import::checkpoint::Beside;
use std::collections::BTreeMap;
use steadfast_blockio::ReadContext;
use steadfast_env::Job;
use steadfast_format::BlockPointer;
use steadfast_format::DatasetId;
use steadfast_format::DatasetRow;
use steadfast_format::DecodeError;
use steadfast_format::MetaKey;
use steadfast_format::ReceivedProperty;
use steadfast_format::RelocationRow;
use steadfast_format::SegmentRow;
use steadfast_format::Txg;
use steadfast_format::meta_keys;
use steadfast_property::Local;

/// Tasks that read roots of datasets at once.
const READERS: usize = 32;
/// Bytes around the root of a dataset's tree that come with it, at most: a commit writes the nodes
/// of a tree one after the other, and an opening reads a leaf or two.
const AROUND_ROOT: usize = 1 << 20;
/// The same around all roots together.
const AROUND_ROOTS: usize = 4 << 20;

/// Orders rows so that each comes after its parent. Refuses those that no chain of parents joins to
/// the root dataset, and those whose encryption root is none.
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

/// Leaves of each table that are brought at first: the rest of a long one is read ahead of its
/// reader.
const TABLE_LEAVES: usize = 4;

impl Pool {
    /// Brings the first leaves of all tables side by side, where each would be a round trip. The
    /// reader of a table meets what was wrong, and tells it.
    pub(crate) fn bring_tables(&self) {
        if self.core.space.has_objects() {
            let ranges = TABLES.map(|kind| (vec![kind], vec![kind + 1]));
            self.core.meta.bring(&ranges, TABLE_LEAVES);
        }
    }

    /// Reads the segment table, with what another root of the pool needs `beside` it.
    pub(crate) fn load_space(&self, pool: &str, beside: Option<Beside>) -> Result<()> {
        let bad = |error: steadfast_segment::TableError| Error::BadTable {
            pool: pool.to_owned(),
            reason: error.to_string(),
        };
        for item in self.core.items_of(meta_keys::SEGMENT) {
            let (MetaKey::Segment(id), value) = item? else { continue };
            let row = SegmentRow::decode(&value);
            let row = row.map_err(|source| self.core.corrupt(pool, "a segment row", source))?;
            self.core.space.load_rows([(id, row)]).map_err(bad)?;
        }
        for item in self.core.items_of(meta_keys::RELOCATION) {
            let (MetaKey::Relocation(id, unit), value) = item? else { continue };
            let run = RelocationRow::decode(&value);
            let run = run.map_err(|source| self.core.corrupt(pool, "a relocation row", source))?;
            self.core.space.load_runs([((id, unit), run)]).map_err(bad)?;
        }
        match &beside {
            None => {}
            Some(Beside::Kept(rows)) => self.core.space.load_kept(rows).map_err(bad)?,
            Some(Beside::Left(rows, next)) => self.core.space.load_left(rows, *next).map_err(bad)?,
        }
        self.core.space.finish_load().map_err(bad)
    }

    pub(crate) fn load_table(&self, pool: &str, newest: Txg) -> Result<()> {
        let mut rows = Vec::new();
        for item in self.core.items_of(meta_keys::DATASET) {
            let (MetaKey::Dataset(id), value) = item? else { continue };
            let row = DatasetRow::decode(&value);
            let row = row.map_err(|source| self.core.corrupt(pool, "a dataset row", source))?;
            let next = self.datasets.table.read().next_id();
            let is_root = id == ROOT;
            if row.id != id || id.0 >= next.0 || (row.parent.0 == 0) != is_root || is_root && row.destroying {
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
            self.datasets.table.write().insert(Entry::new(row.bounded(), Local::new()));
        }
        let renamed = self.datasets.table.write().tell_apart();
        for (id, had) in renamed {
            let has = self.core.dataset_name(id);
            self.core.note_in_history(&format!("two datasets had the name {had}: the younger is {has} now"));
        }
        self.datasets.load_snapshots(pool, newest)?;
        self.core.load_references(pool)?;
        self.datasets.load_writers(pool)?;
        let snapshots = self.datasets.table.read().snapshots_by_number();
        let text = |value: Vec<u8>| {
            String::from_utf8(value).map_err(|_| {
                let source = DecodeError::Text { structure: "property", field: "value" };
                self.core.corrupt(pool, "a property", source)
            })
        };
        for item in self.core.items_of(meta_keys::DATASET_PROPERTY) {
            let (MetaKey::DatasetProperty(id, name), value) = item? else { continue };
            let value = text(value)?;
            let mut table = self.datasets.table.write();
            let of_snapshot =
                snapshots.get(&id).and_then(|(of, txg)| table.get_mut(*of)?.snapshots.get_mut(txg));
            if let Some(snapshot) = of_snapshot {
                snapshot.props.insert(name, value);
            } else if let Some(entry) = table.get_mut(id) {
                entry.props.insert(name, value);
            }
        }
        for item in self.core.items_of(meta_keys::RECEIVED_PROPERTY) {
            let (MetaKey::ReceivedProperty(id, name), value) = item? else { continue };
            let row = ReceivedProperty::decode(&value)
                .map_err(|source| self.core.corrupt(pool, "a received property", source))?;
            let mut table = self.datasets.table.write();
            let of_snapshot =
                snapshots.get(&id).and_then(|(of, txg)| table.get_mut(*of)?.snapshots.get_mut(txg));
            if let Some(snapshot) = of_snapshot {
                snapshot.received.load(&mut snapshot.props, name, row);
            } else if let Some(entry) = table.get_mut(id) {
                entry.received.load(&mut entry.props, name, row);
            }
        }
        for item in self.core.items_of(meta_keys::POOL_PROPERTY) {
            let (MetaKey::PoolProperty(name), value) = item? else { continue };
            let value = text(value)?;
            self.core.props.write().values.insert(name, value);
        }
        Ok(())
    }

    /// Brings the roots of the trees of all datasets that can be read, side by side, where each
    /// would be a round trip when its dataset is opened.
    pub(crate) fn bring_roots(&self) {
        if !self.core.space.has_objects() {
            return;
        }
        let heads = self.core.dataset_roots().into_iter().filter(|roots| roots.is_head);
        let asked: Vec<(DatasetId, BlockPointer)> =
            heads.flat_map(|head| head.roots.into_iter().map(move |root| (head.dataset, root))).collect();
        let places: Vec<_> = asked.iter().map(|(_, root)| (root.copies[0], root.psize as usize)).collect();
        self.core.space.bring_around(&places, (AROUND_ROOTS / asked.len().max(1)).min(AROUND_ROOT));
        let jobs = asked.chunks(asked.len().div_ceil(READERS).max(1)).map(|some| -> Job<'_> {
            Box::new(move || {
                for (dataset, root) in some {
                    let Some(reader) = self.core.reader_of(*dataset) else { continue };
                    let (keys, family) = (reader.keys.as_deref(), reader.family);
                    if keys.is_some() || !reader.is_encrypted {
                        let context = ReadContext { dataset: *dataset, family, keys, cache: false };
                        // The opening meets the same fault, and tells it.
                        let _ = self.core.blockio.read(root, &context);
                    }
                }
            })
        });
        self.core.env.tasks.run_waiting(jobs.collect());
    }

    /// Opens all datasets that need no key, and those whose key is loaded. One that is faulty is
    /// refused to whoever uses it.
    pub(crate) fn open_unlocked(&self) -> Result<()> {
        let all: Vec<(DatasetId, bool)> = {
            let table = self.datasets.table.read();
            table.iter_all().map(|(id, entry)| (id, !entry.is_encrypted() || entry.keys.is_some())).collect()
        };
        for (id, readable) in all {
            if readable {
                self.datasets.open_for_destroy(id)?;
            }
        }
        Ok(())
    }
}
