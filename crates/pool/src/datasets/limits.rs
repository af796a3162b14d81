//! Limits of the datasets of a pool: looked at, checked, kept up.

use crate::core::error::Result;
use crate::datasets::quotas::DatasetAccount;
use crate::datasets::quotas::LIMITS;
use crate::datasets::quotas::Limits;
use crate::datasets::quotas::Own;
use crate::datasets::quotas::own_of;
use crate::datasets::state::Datasets;
use crate::datasets::table::Table;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use steadfast_dataset::Dataset;
use steadfast_format::DatasetId;
use steadfast_format::Txg;
use steadfast_property::Local;

impl Datasets {
    /// Holds a dataset to its limits.
    pub(crate) fn open_account(&self, id: DatasetId, head: &Dataset) {
        head.set_account(Arc::new(DatasetAccount { quotas: Arc::clone(&self.quotas), id }));
    }

    /// Brings limits and figures up to date after a commit of `done`, or a change of the table.
    pub(crate) fn update_quotas(&self, done: Option<Txg>) {
        let accounting = self.core.space.accounting();
        let _figures = self.figures.read();
        let table = self.table.read();
        let charged = |entry| {
            let own = own_of(&table, entry);
            own.referenced + own.kept
        };
        let datasets: u64 = table.iter_charged().map(|(_, entry)| charged(entry)).sum();
        let other = accounting.live_bytes.saturating_sub(datasets);
        let room = accounting.capacity_bytes.saturating_sub(other);
        self.core.admission.for_datasets.store(room, Ordering::Relaxed);
        self.quotas.rebuild(&table, done, |id, own| self.held_of(&table, id, own));
    }

    /// Part of a dataset's own bytes that its youngest snapshot refers to as well. Under `figures`.
    fn held_of(&self, table: &Table, id: DatasetId, own: &Own) -> u64 {
        if table.get(id).is_none_or(|entry| entry.snapshots.is_empty()) {
            return 0;
        }
        // A read error counts as 0 here: a caller that asks for `written` itself gets it.
        self.written(table, id).map_or(0, |written| own.referenced.saturating_sub(written))
    }

    /// Refuses snapshots that a commit is about to take where what is reserved would not fit beside
    /// them. Sync context, under `figures`.
    pub(crate) fn check_reserved(&self, table: &Table, txg: Txg, of: &[(DatasetId, String)]) -> Result<()> {
        let reserves =
            |id: &DatasetId| table.get(*id).is_some_and(|entry| Limits::of(&entry.props).refreservation > 0);
        let of: Vec<DatasetId> = of.iter().map(|(id, _)| *id).filter(reserves).collect();
        match of.is_empty() {
            true => Ok(()),
            false => self.quotas.check_snapshots(table, txg, |id, own| self.held_of(table, id, own), &of),
        }
    }

    /// Bytes that the pool takes besides what lives and is promised.
    pub(crate) fn free_bytes(&self) -> u64 {
        let accounting = self.core.space.accounting();
        let promised = self.core.txgs.budget.reserved().space;
        accounting.capacity_bytes.saturating_sub(accounting.live_bytes).saturating_sub(promised)
    }

    /// Refuses limits that cannot be kept.
    pub(crate) fn check_limits(&self, id: DatasetId, edits: &[(&str, Option<&str>)]) -> Result<()> {
        if !edits.iter().any(|(property, _)| LIMITS.contains(property)) {
            return Ok(());
        }
        let name = self.core.dataset_name(id);
        let mut props = self.table.read().get(id).map(|entry| entry.props.clone()).unwrap_or_default();
        for (property, value) in edits {
            match value {
                Some(value) => _ = props.insert((*property).to_owned(), (*value).to_owned()),
                None => _ = props.remove(*property),
            }
        }
        self.quotas.check(id, &name, Limits::of(&props), self.free_bytes())
    }

    /// [`check_limits`] for a dataset that is to be made.
    pub(crate) fn check_new_limits(&self, parent: DatasetId, name: &str, props: &Local) -> Result<()> {
        self.quotas.check_new(parent, name, Limits::of(props), self.free_bytes())
    }
}
