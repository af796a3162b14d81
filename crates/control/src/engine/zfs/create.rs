//! `zfs create`: file systems and volumes.

use crate::api::{FsCreate, Outcome};
use crate::caller::Caller;
use crate::check::{check_key, check_kind, exact, name_refusal};
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::engine::zfs::allow::give_creator;
use crate::engine::zfs::keys::key_rules;
use crate::engine::zfs::parents::{give, with_parents};
use crate::engine::zfs::volumes;
use crate::engine::{mountpoints, refuse};
use crate::refusal::{Code, Refusal};
use steadfast_property::{Change, Scope, check_dataset_name};

impl Verb for FsCreate {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)?;
        self.properties = exact(Scope::Dataset, &self.properties, &[Change::AtCreation, Change::Anytime])?;
        check_key(&self.properties, self.key.as_ref())?;
        check_kind(&self.name, &self.properties, self.volume.is_some())?;
        if self.properties.contains_key("volsize") {
            let what = "a volume's size is set with -V, not with -o volsize";
            return Err(Refusal::new(Code::VolumeSize, what).with("fs", &self.name));
        }
        Ok(())
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held(&self.name)?;
        let all = held.pool.datasets().names();
        if all.contains(&self.name) {
            let there = held.pool.datasets().dataset_info(&self.name).map_err(refuse::pool)?;
            if self.parents && there.volume.is_some() == self.volume.is_some() {
                return Ok(Outcome::default());
            }
            let what = format!("'{}' exists", self.name);
            return Err(Refusal::new(Code::FsExists, what).with("fs", &self.name));
        }
        // Parents that are missing, outermost first.
        let ends = self.name.match_indices('/').map(|(at, _)| at);
        let missing: Vec<String> =
            ends.map(|end| self.name[..end].to_owned()).filter(|parent| !all.contains(parent)).collect();
        if let Some(parent) = missing.first().filter(|_| !self.parents) {
            let what = format!("the parent '{parent}' does not exist");
            return Err(Refusal::new(Code::FsParent, what).with("parent", parent));
        }
        let mut nearest = self.name.match_indices('/').map(|(at, _)| &self.name[..at]);
        let nearest = nearest.rfind(|parent| all.iter().any(|n| n == parent)).unwrap_or(&self.name);
        let parent = held.pool.datasets().dataset_info(nearest).map_err(refuse::pool)?;
        let mut props = self.properties.clone();
        key_rules(&mut props, parent.encryption_root.as_deref(), self.key.as_ref())?;
        let is_clear = props.get("encryption").is_some_and(|cipher| cipher == "off");
        if parent.encryption_root.is_some() && !parent.key_loaded && self.key.is_none() && !is_clear {
            let root = parent.encryption_root.unwrap_or_default();
            let what =
                format!("the key of '{root}' is not loaded; file systems below it are encrypted with it");
            return Err(Refusal::new(Code::KeyNeeded, what).with("fs", root));
        }
        if held.pool.is_read_only() {
            let what = "the pool is imported read-only";
            return Err(Refusal::new(Code::PoolReadonly, what).with("pool", held.pool.name()));
        }
        let copies = volumes::copies(&held, nearest, props.get("copies"))?;
        let volume = self.volume.map(|volume| volumes::spec(volume, copies, &mut props)).transpose()?;
        let mut created = missing.clone();
        created.push(self.name.clone());
        if self.dry_run {
            return Ok(Outcome { touched: created, warnings: Vec::new() });
        }
        let key = self.key.as_ref().map(|key| engine.new_key(key)).transpose()?;
        let made = with_parents(&held, &missing, || match volume {
            None => held.pool.datasets().create_dataset(&self.name, props, key).map(drop),
            Some(spec) => held.pool.datasets().create_volume(&self.name, props, key, spec).map(drop),
        });
        made.map_err(refuse::pool)?;
        engine.log(&held, caller);
        let mut warnings: Vec<Refusal> =
            created.iter().filter_map(|name| give(&held, name, caller).err()).collect();
        warnings.extend(created.iter().filter_map(|name| give_creator(&held, name, caller).err()));
        if !self.no_mount {
            // Only new ones: an unmounted sibling stays unmounted.
            for name in &created {
                let at = if caller.guest { engine.mountpoint(&held, name)? } else { None };
                match at.map_or(Ok(()), |at| mountpoints::check_for_guest(&at)) {
                    Ok(()) => warnings.extend(engine.mount_below(&held, name)),
                    Err(refusal) => warnings.push(refusal),
                }
            }
        }
        Ok(Outcome { touched: created, warnings })
    }
}
