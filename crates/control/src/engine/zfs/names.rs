//! Names of snapshots, and of all snapshots of one name in a tree.

use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::refusal::{Code, Refusal};

/// File system and snapshot of a full name.
pub(in crate::engine) fn halves(name: &str) -> Result<(&str, &str), Refusal> {
    name.split_once('@').ok_or_else(|| {
        Refusal::new(Code::NameInvalid, "the name has no '@': a snapshot is named FILESYSTEM@NAME")
    })
}

impl Engine {
    /// Full names of the snapshots of one name: of the file system, or of its tree.
    pub(in crate::engine) fn in_tree(&self, name: &str, recursive: bool) -> Result<Vec<String>, Refusal> {
        let (fs, snapshot) = halves(name)?;
        let held = self.held(fs)?;
        held.pool.datasets().dataset_info(fs).map_err(refuse::pool)?;
        let below = format!("{fs}/");
        let mut found = Vec::new();
        for dataset in
            held.pool.datasets().names().into_iter().filter(|n| n == fs || recursive && n.starts_with(&below))
        {
            let names = held.pool.datasets().snapshot_names(&dataset).map_err(refuse::pool)?;
            if names.iter().any(|known| known == snapshot) {
                found.push(format!("{dataset}@{snapshot}"));
            }
        }
        if found.is_empty() {
            let what = format!("there is no snapshot '{name}'");
            return Err(Refusal::new(Code::SnapshotAbsent, what).with("snapshot", name));
        }
        Ok(found)
    }

    /// Refuses a read-only pool.
    pub(in crate::engine) fn check_writable(&self, held: &ImportedPool) -> Result<(), Refusal> {
        if held.pool.is_read_only() {
            let what = "the pool is imported read-only";
            return Err(Refusal::new(Code::PoolReadonly, what).with("pool", held.pool.name()));
        }
        Ok(())
    }
}

/// True if `name` is `above`, or lies below it.
pub(in crate::engine) fn is_at_or_below(name: &str, above: &str) -> bool {
    name.strip_prefix(above).is_some_and(|tail| tail.is_empty() || tail.starts_with('/'))
}
