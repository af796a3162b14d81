//! What users and groups take up.

use super::{Engine, refuse};
use crate::api::OwnerEntry;
use crate::refusal::Refusal;
use steadfast_format::OwnerKind;

impl Engine {
    pub(super) fn userspace(&self, name: &str) -> Result<Vec<OwnerEntry>, Refusal> {
        let held = self.held(name)?;
        let uses = held.pool.owner_uses(name).map_err(refuse::pool)?;
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
