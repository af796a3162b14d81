//! The meta tree, loaded: the rest of the segment table, and the datasets.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_format::{
    BlockKind, BlockPointer, Bookmark as Marked, Cell, CellId, CellPlace, Checkpoint, Checksums, DatasetId,
    DatasetRow, DeadRange, HeldLog, HistoryEntry, ManifestRun, ManifestWriter, MetaKey, ParityStanding,
    ReceiveRow, ReceivedProperty, ReferenceRow, RelocationRow, ScanRow, SegmentId, SegmentRow, SharingRow,
    SnapshotRow, Txg, Uberblock,
};

use crate::finding::Bookmark;
use crate::keys::dataset_wrap_aad;
use crate::view::{Request, View};
use crate::walk::{Item, Visit, Walk};
use crate::{Finding, Found};

/// Content of the meta tree.
pub(crate) struct Meta {
    /// Its nodes.
    pub nodes: Vec<(BlockPointer, Bookmark)>,
    /// Rows that contradict nothing, by id.
    pub datasets: Vec<DatasetRow>,
    /// True if all of it could be read.
    pub whole: bool,
    /// True if the segment table is as import would accept it.
    pub table_whole: bool,
    /// Parts of the intent log that are kept for datasets without a key.
    pub held: Vec<HeldLog>,
    /// Checksums of chunks, by segment and part.
    pub sums: BTreeMap<(SegmentId, u32), Vec<[u8; Checksums::SIZE]>>,
    /// Snapshots, by dataset and age.
    pub snapshots: BTreeMap<(DatasetId, Txg), SnapshotRow>,
    /// Sums of what datasets let go.
    pub cells: BTreeMap<(DatasetId, CellId), Cell>,
    /// Places of cells, run by run.
    pub runs: Vec<(DatasetId, CellId, Vec<CellPlace>)>,
    /// Of clones: dataset and txg of the snapshot that each is a clone of.
    pub origins: BTreeMap<DatasetId, (DatasetId, Txg)>,
    /// Cells that are being freed: from one txg up to below another.
    pub dead: Vec<(DatasetId, Txg, Txg)>,
    /// Hidden datasets that began as a snapshot of another, with its txg.
    pub receives: BTreeMap<DatasetId, (DatasetId, Txg)>,
    /// All hidden datasets: something is being received into each.
    pub hidden: BTreeSet<DatasetId>,
    /// Root of the checkpoint.
    pub checkpoint: Option<Uberblock>,
    tail_rows: BTreeSet<SegmentId>,
    tail_runs: BTreeSet<(SegmentId, u32)>,
}

impl Meta {
    /// Walks the meta tree and completes the segment table of `view`.
    pub fn load(view: &mut View, request: &Request<'_>, found: &mut Found<'_>) -> Meta {
        let own = view.uberblock.tail.copies.into_iter().map(|address| address.segment);
        let mut meta = Meta {
            nodes: Vec::new(),
            datasets: Vec::new(),
            whole: true,
            table_whole: true,
            held: Vec::new(),
            sums: BTreeMap::new(),
            snapshots: BTreeMap::new(),
            cells: BTreeMap::new(),
            runs: Vec::new(),
            origins: BTreeMap::new(),
            dead: Vec::new(),
            receives: BTreeMap::new(),
            hidden: BTreeSet::new(),
            checkpoint: None,
            tail_rows: view.tail.rows.iter().map(|(id, _)| *id).chain(own).collect(),
            tail_runs: view.tail.runs.iter().map(|(from, _)| *from).collect(),
        };
        let walk = Walk {
            dataset: DatasetId(0),
            kind: BlockKind::Meta,
            keys: view.front.keys.clone(),
            root: view.uberblock.meta,
        };
        meta.whole = walk.run(view, &mut meta, found);
        meta.keep(view, request, found);
        if let Err(error) = view.space.finish_load() {
            meta.table_whole = false;
            found(Finding::Table { reason: error.to_string() });
        }
        let runs = |run: &RelocationRow| run.unit.checked_add(run.units).is_some();
        view.table.runs.retain(|_, run| runs(run));
        meta.drop_orphans(found);
        meta.drop_strays(found);
        meta.find_origins(found);
        view.families = meta.datasets.iter().map(|row| (row.id, row.family())).collect();
        let root = meta.datasets.first().map(|row| row.id);
        if meta.whole && root != Some(DatasetId(1)) {
            found(Finding::Dataset { dataset: DatasetId(1), reason: "the root dataset has no row" });
        }
        meta
    }

    /// Keeps what the checkpoint needs.
    fn keep(&mut self, view: &View, request: &Request<'_>, found: &mut Found<'_>) {
        let Some(root) = &self.checkpoint else { return };
        let rows = crate::checkpoint::rows(request, root);
        let kept = match rows {
            None => Err("that of the checkpoint cannot be read".to_owned()),
            Some(rows) => view.space.load_kept(&rows).map_err(|error| format!("of the checkpoint: {error}")),
        };
        if let Err(reason) = kept {
            self.table_whole = false;
            found(Finding::Table { reason });
        }
    }

    /// Full name of a dataset.
    pub fn name(&self, pool: &str, id: DatasetId) -> String {
        let mut parts = Vec::new();
        let mut at = id;
        // No circle came through `drop_orphans`, so this ends.
        while let Some(row) = self.datasets.iter().find(|row| row.id == at)
            && row.parent.0 != 0
        {
            parts.push(row.name.as_str());
            at = row.parent;
        }
        parts.push(pool);
        parts.reverse();
        parts.join("/")
    }

    fn dataset(&self, view: &View, id: DatasetId, row: &DatasetRow) -> Option<&'static str> {
        if row.id != id {
            return Some("its row has another id than its key");
        }
        if id >= view.tail.next_dataset {
            return Some("its id was not given out yet");
        }
        if id.0 == 1 && row.destroying {
            return Some("the root dataset is being destroyed");
        }
        if (row.parent.0 == 0) != (id.0 == 1) {
            return Some("its parent does not exist");
        }
        if self
            .datasets
            .iter()
            .any(|other| other.parent == row.parent && other.name == row.name && !other.destroying)
            && !row.destroying
        {
            return Some("another dataset of its parent has the same name");
        }
        None
    }

    /// Drops rows that no chain of parents joins to the root dataset, and rows without their
    /// encryption root. A dropped row may be one that another row needs, so this repeats until
    /// nothing is found.
    fn drop_orphans(&mut self, found: &mut Found<'_>) {
        let mut joined = BTreeSet::from([DatasetId(0)]);
        while let Some(row) =
            self.datasets.iter().find(|row| !joined.contains(&row.id) && joined.contains(&row.parent))
        {
            joined.insert(row.id);
        }
        let mut orphan = |row: &DatasetRow, reason| found(Finding::Dataset { dataset: row.id, reason });
        self.datasets.retain(|row| {
            let keep = joined.contains(&row.id);
            if !keep {
                orphan(row, "its parent does not exist");
            }
            keep
        });
        let roots: BTreeSet<DatasetId> = self.datasets.iter().map(|row| row.id).collect();
        self.datasets.retain(|row| {
            let keep = row.encryption.as_ref().is_none_or(|encryption| roots.contains(&encryption.root));
            if !keep {
                orphan(row, "its encryption root does not exist");
            }
            keep
        });
    }

    /// Snapshots of datasets that are not there, and what two snapshots claim to be.
    fn drop_strays(&mut self, found: &mut Found<'_>) {
        let known: BTreeSet<DatasetId> = self.datasets.iter().map(|row| row.id).collect();
        let mut names: BTreeSet<(DatasetId, String)> = BTreeSet::new();
        let mut numbers: BTreeSet<DatasetId> = known.clone();
        self.snapshots.retain(|&(dataset, _), row| {
            let reason = if !known.contains(&dataset) {
                "it has a snapshot, and no row"
            } else if !names.insert((dataset, row.name.clone())) {
                "two of its snapshots have one name"
            } else if !numbers.insert(row.number) {
                "its snapshot has the number of something else"
            } else {
                return true;
            };
            found(Finding::Dataset { dataset, reason });
            false
        });
        self.receives.retain(|&dataset, base| {
            let there = known.contains(&dataset) && self.snapshots.contains_key(base);
            if !there {
                found(Finding::Dataset { dataset, reason: "what is received into it builds upon nothing" });
            }
            there
        });
        let cells = self.cells.keys().map(|(id, _)| *id).chain(self.dead.iter().map(|(id, ..)| *id));
        for dataset in cells.filter(|id| !known.contains(id)).collect::<BTreeSet<_>>() {
            found(Finding::Dataset { dataset, reason: "cells of it are left, and it has no row" });
        }
    }

    /// Keys of a dataset; `Err` if it is encrypted and they are not to be had.
    pub fn keys_of(
        view: &mut View,
        row: &DatasetRow,
        found: &mut Found<'_>,
    ) -> Result<Option<std::sync::Arc<steadfast_crypto::BlockKeys>>, ()> {
        let Some(encryption) = &row.encryption else { return Ok(None) };
        let aad = dataset_wrap_aad(view.front.config.pool, row.id);
        match view.front.secret.unwrap(&encryption.wrapped, &aad) {
            Ok(master) => Ok(Some(view.front.secret.block_keys(master))),
            Err(reason) => {
                if view.front.secret.is_given() {
                    found(Finding::KeyWrong { what: format!("dataset {}", row.id), reason });
                }
                found(Finding::DatasetLocked { dataset: row.id });
                Err(())
            }
        }
    }
}

impl Visit for Meta {
    fn node(&mut self, _: &mut View, pointer: &BlockPointer, bookmark: &Bookmark, _: &mut Found<'_>) -> bool {
        self.nodes.push((*pointer, bookmark.clone()));
        true
    }

    fn item(&mut self, view: &mut View, item: Item<'_>, found: &mut Found<'_>) {
        let Some(key) = MetaKey::decode(item.key) else {
            found(item.bad("not a key of the meta tree"));
            return;
        };
        match key {
            MetaKey::Segment(id) => match SegmentRow::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(_) if self.tail_rows.contains(&id) => {}
                Ok(row) => match view.space.load_rows([(id, row.clone())]) {
                    Ok(()) => view.table.add_row(id, &row),
                    Err(error) => {
                        self.table_whole = false;
                        found(Finding::Table { reason: error.to_string() });
                    }
                },
            },
            MetaKey::Relocation(segment, unit) => match RelocationRow::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(_) if self.tail_runs.contains(&(segment, unit)) => {}
                Ok(run) => match view.space.load_runs([((segment, unit), run)]) {
                    Ok(()) => _ = view.table.runs.insert((segment, unit), run),
                    Err(error) => {
                        self.table_whole = false;
                        found(Finding::Table { reason: error.to_string() });
                    }
                },
            },
            MetaKey::Dataset(id) => match DatasetRow::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(row) => match self.dataset(view, id, &row) {
                    Some(reason) => found(Finding::Dataset { dataset: id, reason }),
                    None => self.datasets.push(row),
                },
            },
            MetaKey::History(number) => match HistoryEntry::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(_) if number >= view.tail.next_history => {
                    found(item.bad("its number was not given out yet"))
                }
                Ok(_) => {}
            },
            key @ (MetaKey::Scan | MetaKey::Move) => match ScanRow::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(row) if row.kind.moves() != (key == MetaKey::Move) => {
                    found(item.bad("it is stored where the other kind is"));
                }
                Ok(_) => {}
            },
            MetaKey::Checksums(segment, part_number) => match Checksums::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(part) => _ = self.sums.insert((segment, part_number), part.sums),
            },
            MetaKey::Checkpoint => match Checkpoint::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(_) if view.front.is_checkpoint => found(item.bad("a checkpoint has a checkpoint")),
                Ok(Checkpoint { root }) if root.pool != view.front.config.pool => {
                    found(item.bad("it is of another pool"));
                }
                Ok(Checkpoint { root }) if root.txg >= view.uberblock.txg => {
                    found(item.bad("it is not older than the newest commit"));
                }
                Ok(Checkpoint { root }) => self.checkpoint = Some(root),
            },
            MetaKey::Parity => {
                if let Err(error) = ParityStanding::decode(item.value) {
                    found(item.bad(error));
                }
            }
            MetaKey::HeldLog(_) => match HeldLog::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(held) if view.uberblock.log.is_none_or(|log| log.epoch != held.epoch) => {
                    found(item.bad("the uberblock names another intent log"));
                }
                Ok(held) => self.held.push(held),
            },
            MetaKey::Snapshot(id, txg) => match SnapshotRow::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(row) if row.number >= view.tail.next_dataset => {
                    found(item.bad("its number was not given out yet"));
                }
                Ok(_) if txg > view.uberblock.txg => found(item.bad("it is younger than the newest commit")),
                Ok(row) => _ = self.snapshots.insert((id, txg), row),
            },
            MetaKey::Cell(id, cell) => match Cell::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(sum) => _ = self.cells.insert((id, cell), sum),
            },
            MetaKey::CellRun(id, cell, _) => match CellPlace::decode_run(item.value) {
                // Blocks there are not known to be in use.
                Err(error) => {
                    self.whole = false;
                    found(item.bad(error));
                }
                Ok(run) => self.runs.push((id, cell, run)),
            },
            MetaKey::DeadRange(id, after) => match DeadRange::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(range) => self.dead.push((id, after, range.before)),
            },
            MetaKey::Receive(id) => match ReceiveRow::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(row) => {
                    self.hidden.insert(id);
                    if let Some((txg, _)) = row.base {
                        self.receives.insert(id, (row.target, txg));
                    }
                }
            },
            MetaKey::ReceivedProperty(..) => {
                if let Err(error) = ReceivedProperty::decode(item.value) {
                    found(item.bad(error));
                }
            }
            MetaKey::Hold(..) => {
                if <[u8; 8]>::try_from(item.value).is_err() {
                    found(item.bad("a hold that is no time"));
                }
            }
            MetaKey::Reference(at) => match ReferenceRow::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(row) => view.table.references.add(at, row),
            },
            MetaKey::Sharing => match SharingRow::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(sums) => view.table.references.set_sums(sums),
            },
            MetaKey::Manifest(at) => match ManifestRun::decode(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(run) if run.entries.first().is_some_and(|first| first.offset != at.offset) => {
                    found(item.bad("it stands under another offset than that of its first block"));
                }
                Ok(run) if run.birth > view.uberblock.txg => {
                    found(item.bad("it is younger than the newest commit"));
                }
                Ok(run) => view.table.manifests.add(at.segment, &run),
            },
            MetaKey::ManifestBirth(dataset, txg, segment) if item.value.is_empty() => {
                view.table.manifests.add_birth(dataset, txg, segment);
            }
            MetaKey::ManifestReference(at, txg, dataset) if item.value.is_empty() => {
                view.table.manifests.add_reference(at, txg, dataset);
            }
            MetaKey::ManifestBirth(..) | MetaKey::ManifestReference(..) => {
                found(item.bad("it has a value where its key says all"));
            }
            MetaKey::ManifestWriters(id) => match ManifestWriter::decode_all(item.value) {
                Err(error) => found(item.bad(error)),
                Ok(writers) => view.table.manifests.add_writers(id, writers),
            },
            MetaKey::Bookmark(..) => {
                if let Err(error) = Marked::decode(item.value) {
                    found(item.bad(error));
                }
            }
            MetaKey::PoolProperty(_) | MetaKey::DatasetProperty(..) => {
                if std::str::from_utf8(item.value).is_err() {
                    found(item.bad("a property that is not text"));
                }
            }
        }
    }
}
