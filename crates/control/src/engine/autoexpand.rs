//! Devices that have grown: expanded at import, and while the daemon runs, if the pool has
//! `autoexpand=on`.

use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::refusal::Refusal;
use std::path::{Path, PathBuf};
use steadfast_format::LeafState;

impl Engine {
    /// After every import: posts the event, and expands devices that have grown.
    pub(super) fn imported(&self, held: &ImportedPool, name: &str) {
        self.post("pool_import", &held.pool, name, &[]);
        self.destroy_left_live(held);
        if wants_expanding(held) {
            for (path, refusal) in self.expand_grown(held, name, |_| true) {
                // The pool is imported with its old size; status shows the possible gain.
                eprintln!("steadfast: cannot expand {}: {}", path.display(), refusal.what);
            }
        }
    }

    /// Expands due devices that have grown. Gives those that could not be expanded, with the
    /// reason.
    pub(super) fn expand_grown(
        &self,
        held: &ImportedPool,
        name: &str,
        is_due: impl Fn(&Path) -> bool,
    ) -> Vec<(PathBuf, Refusal)> {
        let mut failed = Vec::new();
        for leaf in held.pool.state().leaves {
            // A device that is out of use is expanded when it is back: its labels cannot be written
            // now.
            let has_grown = leaf.config.state == LeafState::Online && leaf.growth.fits > leaf.growth.slots;
            let path = leaf.config.path;
            if !has_grown || !is_due(Path::new(&path)) {
                continue;
            }
            match held.pool.devices().expand(&path) {
                Ok(0) => {}
                Ok(gained) => {
                    let fields = [("vdev_path", path), ("bytes", gained.to_string())];
                    self.post("vdev_autoexpand", &held.pool, name, &fields);
                }
                Err(error) => failed.push((PathBuf::from(path), refuse::pool(error))),
            }
        }
        failed
    }
}

/// True if a pool has `autoexpand=on` and can be written.
pub(super) fn wants_expanding(held: &ImportedPool) -> bool {
    let is_on = held.pool.pool_props().get("autoexpand").is_some_and(|value| value == "on");
    is_on && !held.pool.is_read_only() && held.pool.suspended().is_none()
}
