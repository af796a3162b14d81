//! `zfs clone`.

use crate::api::{FsClone, Outcome};
use crate::caller::Caller;
use crate::check::{check_kind, exact, name_refusal};
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::engine::zfs::names::halves;
use crate::engine::zfs::parents::{give, with_parents};
use crate::engine::zfs::volumes::{self, AUTO, RESERVED};
use crate::refusal::{Code, Refusal};
use steadfast_property::{Change, Scope, check_dataset_name, check_snapshot_name};

/// Properties that a clone shares with its origin.
const OF_ORIGIN: [&str; 3] = ["encryption", "keyformat", "keylocation"];

impl Verb for FsClone {
    fn check(&mut self) -> Result<(), Refusal> {
        check_snapshot_name(&self.snapshot).map_err(name_refusal)?;
        check_dataset_name(&self.name).map_err(name_refusal)?;
        self.properties = exact(Scope::Dataset, &self.properties, &[Change::AtCreation, Change::Anytime])?;
        // A volume has the size and blocks of its origin, and may reserve that.
        let mut others = self.properties.clone();
        others.retain(|name, value| (name.as_str(), value.as_str()) != (RESERVED, AUTO));
        check_kind(&self.name, &others, false)
    }

    fn run(mut self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let (fs, snapshot) = halves(&self.snapshot)?;
        let name = self.name.as_str();
        let held = engine.held(fs)?;
        let pool = fs.split('/').next().unwrap_or(fs);
        if name.split('/').next() != Some(pool) {
            let what = format!("'{name}' is not in the pool of '{}'", self.snapshot);
            return Err(Refusal::new(Code::FsPlace, what).with("fs", name));
        }
        if !held
            .pool
            .datasets()
            .snapshot_names(fs)
            .map_err(refuse::pool)?
            .iter()
            .any(|there| there == snapshot)
        {
            let what = format!("there is no snapshot '{}'", self.snapshot);
            return Err(Refusal::new(Code::SnapshotAbsent, what).with("snapshot", &self.snapshot));
        }
        let all = held.pool.datasets().names();
        if all.iter().any(|there| there == name) {
            if self.parents {
                return Ok(Outcome::default());
            }
            return Err(Refusal::new(Code::FsExists, format!("'{name}' exists")).with("fs", name));
        }
        if let Some(property) = OF_ORIGIN.iter().find(|property| self.properties.contains_key(**property)) {
            let what =
                format!("a clone uses the encryption and the key of its origin: {property} cannot be set");
            return Err(Refusal::new(Code::KeyRules, what).with("fs", name));
        }
        let ends = name.match_indices('/').map(|(at, _)| at);
        let missing: Vec<String> =
            ends.map(|end| name[..end].to_owned()).filter(|parent| !all.contains(parent)).collect();
        if let Some(parent) = missing.first().filter(|_| !self.parents) {
            let what = format!("the parent '{parent}' does not exist");
            return Err(Refusal::new(Code::FsParent, what).with("parent", parent));
        }
        let origin = held.pool.datasets().dataset_info(fs).map_err(refuse::pool)?;
        check_kind(name, &self.properties, origin.volume.is_some())?;
        let copies = self.properties.get("copies").and_then(|copies| copies.parse().ok()).unwrap_or(1);
        if let Some(reserved) = self.properties.get_mut(RESERVED).filter(|value| *value == AUTO) {
            *reserved = volumes::all_of(&origin, None, copies).unwrap_or_default().to_string();
        }
        engine.check_writable(&held)?;
        let made = with_parents(&held, &missing, || {
            held.pool.datasets().clone_snapshot(&self.snapshot, name, self.properties).map(drop)
        });
        made.map_err(refuse::pool)?;
        engine.log(&held, caller);
        // Its files keep their owners; only its parents are new.
        let mut warnings: Vec<Refusal> =
            missing.iter().filter_map(|parent| give(&held, parent, caller).err()).collect();
        let mut created = missing;
        created.push(self.name);
        if !self.no_mount {
            for name in &created {
                warnings.extend(engine.mount_below(&held, name));
            }
        }
        Ok(Outcome { touched: created, warnings })
    }
}
