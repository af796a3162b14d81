//! `zpool split`.

use crate::api::{Outcome, PoolSplit};
use crate::caller::Caller;
use crate::check::{check_features, check_paths, exact, name_refusal};
use crate::engine::pool_properties::set_property;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::engine::{devices, refuse, sweeps};
use crate::refusal::{Code, Refusal};
use std::path::{Path, PathBuf};
use steadfast_pool::{ImportSpec, Pool};
use steadfast_property::{Change, Scope, check_pool_name};

impl Verb for PoolSplit {
    fn check(&mut self) -> Result<(), Refusal> {
        check_pool_name(&self.new_name).map_err(name_refusal)?;
        check_paths(&self.devices)?;
        self.properties = exact(Scope::Pool, &self.properties, &[Change::Anytime])?;
        check_features(&self.properties)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        held.refuse_recovering()?;
        if engine.pools.read().contains_key(&self.new_name) {
            let what = format!("a pool named '{}' is imported already", self.new_name);
            return Err(Refusal::new(Code::PoolExists, what).with("pool", &self.new_name));
        }
        let devices = self.devices.iter().map(|device| Engine::member(&held, &self.name, device));
        let devices = devices.collect::<Result<Vec<_>, Refusal>>()?;
        if !self.dry_run {
            // Devices of the new pool take their trims along.
            sweeps::write_down(&held);
        }
        let parted = held.pool.split(&self.new_name, &devices, self.dry_run);
        sweeps::forget(&held.pool);
        let parted = parted.map_err(|error| refuse::of_pool(error, &self.name))?;
        if self.dry_run {
            return Ok(Outcome { touched: parted, warnings: Vec::new() });
        }
        held.devices.write().retain(|path| !parted.iter().any(|parted| path == Path::new(parted)));
        let fields = [("new_pool", self.new_name.clone()), ("vdev_path", parted.join(","))];
        engine.post("pool_split", &held.pool, &self.name, &fields);
        engine.log(&held, caller);
        let mut warnings: Vec<Refusal> = engine.remember().err().into_iter().collect();
        if !self.properties.is_empty() {
            warnings.extend(give_properties(engine, &self, &parted).err());
        }
        Ok(Outcome { touched: parted, warnings })
    }
}

/// Gives the new pool of a split its properties. It is exported before and after.
fn give_properties(engine: &Engine, request: &PoolSplit, parted: &[String]) -> Result<(), Refusal> {
    let paths: Vec<PathBuf> = parted.iter().map(PathBuf::from).collect();
    let mut pools = devices::search(&paths)?.pools.into_iter();
    let found = pools.find(|pool| pool.config.name == request.new_name).ok_or_else(|| {
        Refusal::new(Code::PoolDamaged, "the new pool was not found on its devices")
            .with("device", &parted[0])
    })?;
    let spec = ImportSpec {
        new_name: None,
        force: false,
        destroyed: false,
        read_only: false,
        secret: None,
        anchor: engine.anchor_wish(None),
        accept_lost_log: false,
        to_checkpoint: false,
        host: engine.host.clone(),
        memory: *engine.memory.read(),
    };
    let pool = Pool::import(&engine.env, devices::reopen(found, false)?, &spec)
        .map_err(|error| refuse::of_pool(error, &request.new_name))?;
    let mut properties = request.properties.iter();
    let set = properties.try_for_each(|(name, value)| set_property(&pool, name, value));
    pool.export().map_err(|error| refuse::of_pool(error, &request.new_name))?;
    set
}
