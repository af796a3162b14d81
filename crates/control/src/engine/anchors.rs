//! Anchors in files: their paths, and the record that this host keeps of each.

use crate::api::{VdevClass, VdevSpec};
use crate::engine::state::Engine;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_anchor::{FileRegister, FileWitness, Register, Witness};
use steadfast_env::Clock;
use steadfast_format::PoolGuid;
use steadfast_pool::{AnchorWish, Registers};

/// A register is a file. This host's record of it is beside the list of pools.
struct Files {
    witnesses: PathBuf,
    clock: Arc<dyn Clock>,
}

impl Registers for Files {
    fn register(&self, path: &str) -> Arc<dyn Register> {
        Arc::new(FileRegister::new(Path::new(path), Arc::clone(&self.clock)))
    }

    fn witness(&self, pool: PoolGuid) -> Option<Arc<dyn Witness>> {
        let name = format!("{}.seen", pool.0);
        Some(Arc::new(FileWitness::new(&self.witnesses.join(name))))
    }
}

impl Engine {
    /// Wishes about an anchor, with the files of this host.
    pub(super) fn anchor_wish(&self, path: Option<&Path>) -> AnchorWish {
        let files =
            Files { witnesses: self.runtime.witnesses().to_owned(), clock: Arc::clone(&self.env.clock) };
        AnchorWish {
            registers: Some(Arc::new(files)),
            path: path.map(|path| path.display().to_string()),
            ..AnchorWish::default()
        }
    }

    /// The anchor of a device list, if it has one.
    pub(super) fn anchor_of(&self, vdevs: &[VdevSpec]) -> AnchorWish {
        let mut anchors = vdevs.iter().filter(|vdev| vdev.class == VdevClass::Anchor);
        let path = anchors.next().and_then(|vdev| vdev.devices.first());
        self.anchor_wish(path.map(PathBuf::as_path))
    }
}
