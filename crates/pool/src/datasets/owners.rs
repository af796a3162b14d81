//! Users and groups of a dataset: what they take up, and their quotas, which are properties
//! (`userquota@1000`).

use crate::datasets::state::Datasets;
use std::collections::{BTreeMap, HashMap};

use steadfast_dataset::{Dataset, OwnerQuota};
use steadfast_format::{DatasetId, Owner, OwnerRow};
use steadfast_property::{Local, OwnerProperty};

use crate::core::error::{Error, Result};

/// The feature without which owners are not counted.
pub(crate) const FEATURE: &str = "owner_accounting";

/// Use and quota of a user or a group in a dataset.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OwnerUse {
    /// As of the last commit.
    pub row: OwnerRow,
    /// Its quotas.
    pub quota: OwnerQuota,
}

/// Quotas of owners among properties.
fn quotas_of(props: &Local) -> HashMap<Owner, OwnerQuota> {
    let mut quotas: HashMap<Owner, OwnerQuota> = HashMap::new();
    for (name, value) in props {
        let (Some(OwnerProperty { owner: (group, id), objects, used: false }), Ok(limit)) =
            (OwnerProperty::parse(name), value.parse::<u64>())
        else {
            continue;
        };
        if limit > 0 {
            let quota = quotas.entry(if group { Owner::group(id) } else { Owner::user(id) }).or_default();
            *(if objects { &mut quota.objects } else { &mut quota.bytes }) = Some(limit);
        }
    }
    quotas
}

/// Those of some properties that are quotas of owners. As in ZFS a clone begins with them.
pub(crate) fn owner_quotas(props: &Local) -> Local {
    let is_quota = |name: &str| OwnerProperty::parse(name).is_some_and(|property| !property.used);
    props.iter().filter(|(name, _)| is_quota(name)).map(|(a, b)| (a.clone(), b.clone())).collect()
}

impl Datasets {
    /// Counts owners of a dataset as the pool's format allows, and holds them to their quotas.
    pub(crate) fn watch_owners(&self, id: DatasetId, head: &Dataset) {
        if self.core.has_feature(FEATURE) && !self.core.health.read_only {
            head.count_owners();
        }
        let table = self.table.read();
        head.set_owner_quotas(table.get(id).map(|entry| quotas_of(&entry.props)).unwrap_or_default());
    }

    /// Refuses quotas of owners that nobody counts.
    pub(crate) fn check_owner_quotas<'a>(&self, names: impl Iterator<Item = &'a str>) -> Result<()> {
        let mut names = names;
        if names.any(|name| OwnerProperty::parse(name).is_some()) {
            self.core.need_feature(FEATURE)
        } else {
            Ok(())
        }
    }

    /// Use of the users and groups of a snapshot, which shows the quotas of its dataset, as it does
    /// with other properties.
    fn owner_uses_then(&self, fs: &str, snapshot: &str) -> Result<BTreeMap<Owner, OwnerUse>> {
        self.core.need_feature(FEATURE)?;
        let id = self.table.read().find(fs)?;
        let missing = || Error::NoSuchSnapshot { name: format!("{fs}@{snapshot}") };
        let rows = self.open_snapshot(id, snapshot)?.with(|then| then.owners()).ok_or_else(missing)?;
        Ok(self.with_quotas(id, rows.unwrap_or_default()))
    }

    fn with_quotas(&self, id: DatasetId, rows: Vec<(Owner, OwnerRow)>) -> BTreeMap<Owner, OwnerUse> {
        let mut uses: BTreeMap<Owner, OwnerUse> = BTreeMap::new();
        for (owner, row) in rows {
            uses.entry(owner).or_default().row = row;
        }
        let props = self.table.read().get(id).map(|entry| entry.props.clone()).unwrap_or_default();
        for (owner, quota) in quotas_of(&props) {
            uses.entry(owner).or_default().quota = quota;
        }
        uses
    }

    /// Use and quotas of the users and groups of a dataset, or use of those of a snapshot.
    pub fn owner_uses(&self, name: &str) -> Result<BTreeMap<Owner, OwnerUse>> {
        if let Some((fs, snapshot)) = name.split_once('@') {
            return self.owner_uses_then(fs, snapshot);
        }
        let id = self.table.read().find(name)?;
        let head = self.open_head(id)?;
        if self.is_raw(id) {
            // The owners of what is inside, which the key shows.
            self.core.need_feature(FEATURE)?;
            let inside = self.raw_view(id, vec![head])?.dataset;
            return Ok(self.with_quotas(id, inside.owners().unwrap_or_default()));
        }
        if head.owners().is_none() {
            // A pool that is never written to shows what it knows, which is nothing.
            self.core.need_feature(FEATURE)?;
            self.core.wait_durable()?;
        }
        Ok(self.with_quotas(id, head.owners().unwrap_or_default()))
    }
}
