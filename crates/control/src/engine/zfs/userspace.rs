//! `zfs userspace` and `zfs groupspace`.

use crate::api::{FsUserspace, OwnerEntry};
use crate::caller::Caller;
use crate::check::name_refusal;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::Refusal;
use steadfast_format::OwnerKind;
use steadfast_property::{check_dataset_name, check_snapshot_name};

impl Verb for FsUserspace {
    const IN_TURN: bool = false;

    fn check(&mut self) -> Result<(), Refusal> {
        match self.name.contains('@') {
            true => check_snapshot_name(&self.name).map_err(name_refusal),
            false => check_dataset_name(&self.name).map_err(name_refusal),
        }
    }

    fn run(self, engine: &Engine, _: &Caller) -> Result<Vec<OwnerEntry>, Refusal> {
        let held = engine.held(self.name.split('@').next().unwrap_or_default())?;
        let uses = held.pool.datasets().owner_uses(&self.name).map_err(refuse::pool)?;
        let entry = |(owner, each): (steadfast_format::Owner, steadfast_pool::OwnerUse)| OwnerEntry {
            group: owner.kind == OwnerKind::Group,
            id: owner.id,
            used: each.row.bytes,
            quota: each.quota.bytes.unwrap_or(0),
            objects: each.row.objects,
            object_quota: each.quota.objects.unwrap_or(0),
        };
        Ok(uses.into_iter().map(entry).collect())
    }
}
