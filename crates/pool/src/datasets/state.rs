//! State of the datasets of a pool.

use crate::core::ranked::{RankedMutex, RankedRwLock, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use steadfast_dataset::Dataset;
use steadfast_format::{BlockPointer, DatasetId, Txg};

use crate::core::error::Result;
use crate::core::state::Core;
use crate::core::view::{DatasetView, Reader, Roots};
use crate::datasets::freeing::Freeing;
use crate::datasets::quotas::Quotas;
use crate::datasets::snapshot::Request;
use crate::datasets::table::Table;
use crate::devices::state::Devices;
use crate::log::state::Zil;

/// The datasets of a pool (ZFS: DSL).
pub struct Datasets {
    pub(crate) core: Arc<Core>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) zil: Arc<Zil>,
    pub(crate) table: RankedRwLock<Table, rank::Table>,
    /// Limits of datasets.
    pub(crate) quotas: Arc<Quotas>,
    /// Whether the running commit found anything to free.
    pub(crate) freeing: Freeing,
    /// The last commit destroyed a part of a dataset and not all of it.
    pub(crate) destroying: AtomicBool,
    /// Snapshots that the next commits take.
    pub(crate) asked: RankedMutex<Vec<Request>, rank::Asked>,
    /// Txg of the last commit that took the snapshots asked for.
    pub(crate) snapped: AtomicU64,
    /// Held for writing while rows, snapshots and cells go from what the last commit stored to what
    /// the next one will: what is summed up of them under it is of one commit.
    pub(crate) figures: RankedRwLock<(), rank::Figures>,
}

impl Datasets {
    pub(crate) fn new(core: Arc<Core>, devices: Arc<Devices>, zil: Arc<Zil>, table: Table) -> Datasets {
        let quotas = Arc::new(Quotas::new(Arc::clone(&core.admission)));
        Datasets {
            core,
            devices,
            zil,
            table: RankedRwLock::new(table),
            quotas,
            freeing: Freeing::default(),
            destroying: AtomicBool::new(false),
            asked: RankedMutex::default(),
            snapped: AtomicU64::new(0),
            figures: RankedRwLock::default(),
        }
    }
}

impl DatasetView for Datasets {
    fn name_of(&self, id: DatasetId) -> String {
        let table = self.table.read();
        table.full_name(id)
    }

    fn heads(&self) -> Vec<Arc<Dataset>> {
        self.table.read().open_heads()
    }

    fn head_of(&self, id: DatasetId) -> Option<Arc<Dataset>> {
        let table = self.table.read();
        Some(Arc::clone(&table.get(id)?.open.as_ref()?.head))
    }

    fn open_head(&self, id: DatasetId) -> Result<Arc<Dataset>> {
        Datasets::open_head(self, id)
    }

    fn reader(&self, id: DatasetId) -> Option<Reader> {
        let table = self.table.read();
        let entry = table.get(id).filter(|entry| !entry.row.destroying)?;
        let keys = entry.keys.as_ref().map(|keys| Arc::clone(&keys.blocks));
        Some(Reader { keys, is_encrypted: entry.is_encrypted(), family: entry.row.family() })
    }

    fn roots(&self) -> Vec<Roots> {
        let both = |roots: [Option<BlockPointer>; 2]| roots.into_iter().flatten().collect();
        let table = self.table.read();
        let mut all = Vec::new();
        for (dataset, entry) in table.iter() {
            let roots = both([entry.row.extents, entry.row.names]);
            // Of a snapshot that goes on from no snapshot of its own, the origin has what is older.
            let origin = table.origin_of(dataset);
            let before = |txg: Txg| match entry.snapshots.contains_key(&txg) {
                true => Some((dataset, txg)),
                false => origin,
            };
            let last = entry.snapshots.keys().next_back().map_or(entry.base, |last| *last);
            let (after, before_head) = (entry.base, before(last));
            all.push(Roots { dataset, moment: None, before: before_head, after, is_head: true, roots });
            for (txg, snapshot) in &entry.snapshots {
                let roots = both([snapshot.row.extents, snapshot.row.names]);
                let after = entry.neighbours(*txg).0;
                let (moment, before) = (Some(*txg), before(after));
                all.push(Roots { dataset, moment, before, after, is_head: false, roots });
            }
        }
        all
    }

    fn name_of_moment(&self, id: DatasetId, moment: Option<Txg>) -> String {
        let table = self.table.read();
        let name = table.full_name(id);
        let Some(txg) = moment else { return name };
        match table.get(id).and_then(|entry| entry.snapshots.get(&txg)) {
            Some(snapshot) => format!("{name}@{}", snapshot.row.name),
            None => format!("{name}@<{txg}>"),
        }
    }

    fn read_moment(&self, id: DatasetId, moment: Option<Txg>, read: &mut dyn FnMut(&Arc<Dataset>)) {
        if self.is_raw(id) {
            return;
        }
        let Some(txg) = moment else {
            if let Ok(head) = Datasets::open_head(self, id) {
                read(&head);
            }
            return;
        };
        let name = {
            let table = self.table.read();
            let snapshot = table.get(id).and_then(|entry| entry.snapshots.get(&txg));
            snapshot.map(|snapshot| snapshot.row.name.clone())
        };
        if let Some(Ok(snapshot)) = name.map(|name| self.open_snapshot(id, &name)) {
            snapshot.with(read);
        }
    }
}
