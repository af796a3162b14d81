//! `zfs mount` and `zfs unmount`.

use crate::api::{FsMount, FsUnmount, Outcome};
use crate::caller::Caller;
use crate::check::{check_paths, name_refusal};
use crate::engine::mounts::commit_last;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::engine::{mountpoints, refuse};
use crate::refusal::{Code, Refusal};
use steadfast_property::check_dataset_name;

impl Verb for FsMount {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)?;
        check_paths(self.at.as_slice())
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held(&self.name)?;
        if caller.guest
            && let Some(at) = engine.mountpoint(&held, &self.name)?
        {
            mountpoints::check_for_guest(&at)?;
        }
        engine.mount(&held, &self)?;
        // It is mounted all the same.
        let warnings = engine.share(&held, &self.name).err().into_iter().collect();
        Ok(Outcome { warnings, ..touched(&self.name) })
    }
}

impl Verb for FsUnmount {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, _: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held(&self.name)?;
        held.pool.datasets().dataset_info(&self.name).map_err(refuse::pool)?;
        held.reap();
        if held.mounted_at(&self.name).is_none() {
            let what = format!("'{}' is not mounted", self.name);
            return Err(Refusal::new(Code::FsNotMounted, what).with("fs", &self.name));
        }
        // The file of a volume goes: nothing of ZFS is there.
        let mut inside = held.mounted_below(&self.name);
        inside.retain(|name| held.pool.datasets().dataset_info(name).is_ok_and(|info| info.volume.is_none()));
        held.leave_folders(&inside);
        // Children that are mounted inside it go with it, as in ZFS.
        let done = engine.unmount_below(&held, &self.name, self.force)?;
        commit_last(&held);
        Ok(Outcome { touched: done, warnings: Vec::new() })
    }
}
