//! Anchors in files: where they are, what this host remembers of them, and the verbs that add and remove them.

use super::{Engine, Held, refuse, touched};
use crate::api::{Caller, Outcome, PoolRemove, VdevClass, VdevSpec};
use crate::refusal::{Code, Refusal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_anchor::{FileRegister, FileWitness, Register, Witness};
use steadfast_env::Clock;
use steadfast_format::PoolGuid;
use steadfast_pool::{AnchorWish, Registers};

/// Registers are files by path; what this host remembers of each lies beside its list of pools.
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

/// The devices of a list that hold segments, without what is for other purposes.
pub(super) fn main_devices(vdevs: &[VdevSpec]) -> Vec<VdevSpec> {
    vdevs.iter().filter(|vdev| vdev.class == VdevClass::Main).cloned().collect()
}

impl Engine {
    /// What is wanted of an anchor, with the files of this host.
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

    pub(super) fn remove_devices(&self, caller: &Caller, request: &PoolRemove) -> Result<Outcome, Refusal> {
        let name = &request.name;
        let held = self.held_pool(name)?;
        for device in &request.devices {
            anchor_named(&held, name, device)?;
        }
        if request.devices.len() > 1 {
            let what = format!("the anchor of the pool '{name}' is named twice");
            return Err(Refusal::new(Code::VdevTwice, what).with("pool", name));
        }
        if request.dry_run {
            return Ok(touched(name));
        }
        for device in &request.devices {
            let path = anchor_named(&held, name, device)?;
            held.pool.remove_anchor(&path).map_err(refuse::pool)?;
            self.post("vdev_remove", &held.pool, name, &[("vdev_path", path)]);
        }
        self.log(&held, caller);
        Ok(touched(name))
    }
}

/// The path of the pool's anchor as the pool knows it, if it is what was named.
fn anchor_named(held: &Held, pool: &str, device: &Path) -> Result<String, Refusal> {
    let state = held.pool.state();
    let same = |path: &str| {
        Path::new(path) == device
            || super::devices::identity(Path::new(path))
                .is_some_and(|id| super::devices::identity(device) == Some(id))
    };
    if let Some(anchor) = state.anchor.filter(|anchor| same(&anchor.register)) {
        return Ok(anchor.register);
    }
    if state.leaves.iter().any(|leaf| same(&leaf.config.path)) {
        let what = format!("{} holds data, and moving it off a device is not yet built", device.display());
        return Err(Refusal::new(Code::Later, what).with("word", "remove"));
    }
    let what = format!("{} is no device of the pool '{pool}'", device.display());
    Err(Refusal::new(Code::VdevMissing, what).with("device", device.display()))
}
