//! How many datasets and snapshots there may be at a place and below it: `filesystem_limit` and
//! `snapshot_limit`.

use crate::datasets::state::Datasets;
use std::collections::BTreeMap;

use steadfast_format::DatasetId;

use crate::core::error::{Error, Result};
use crate::datasets::table::Table;

impl Table {
    /// Refuses one dataset more below `parent`, or a `moved` one with all below it, where a limit
    /// would be passed.
    pub fn check_filesystem_limits(&self, parent: DatasetId, moved: Option<DatasetId>) -> Result<()> {
        let more = 1 + moved.map_or(0, |id| self.descendants(id).len() as u64);
        let here = moved.map(|id| self.ancestry(id)).unwrap_or_default();
        for above in self.ancestry(parent) {
            let value = self.get(above).and_then(|entry| entry.props.get("filesystem_limit")?.parse().ok());
            let Some(limit) = value.filter(|limit: &u64| *limit > 0 && !here.contains(&above)) else {
                continue;
            };
            if self.descendants(above).len() as u64 + more > limit {
                return Err(Error::FilesystemLimit { name: self.full_name(above), limit });
            }
        }
        Ok(())
    }
}

impl Datasets {
    /// Refuses so many snapshots more of datasets where a limit would be passed, at them or above
    /// them. Datasets in `already` count them now.
    pub(crate) fn check_snapshot_limits(
        &self,
        table: &Table,
        more: &[(DatasetId, u64)],
        already: &[DatasetId],
    ) -> Result<()> {
        let mut added: BTreeMap<DatasetId, u64> = BTreeMap::new();
        for (id, count) in more {
            for above in table.ancestry(*id).into_iter().filter(|above| !already.contains(above)) {
                *added.entry(above).or_default() += count;
            }
        }
        for (id, more) in added {
            let limit = table.get(id).and_then(|entry| entry.props.get("snapshot_limit")?.parse().ok());
            let Some(limit) = limit.filter(|limit: &u64| *limit > 0) else { continue };
            let count = table.snapshots_within(id) + more;
            if count > limit {
                return Err(Error::SnapshotLimit { name: table.full_name(id), limit, count });
            }
        }
        Ok(())
    }
}
