//! `zpool import` without a pool: lists the pools that could be imported.

use crate::api::{Health, PoolCandidate, PoolImportScan};
use crate::caller::Caller;
use crate::check::check_paths;
use crate::engine::reports::labels;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::engine::zpool::import::in_use;
use crate::engine::{devices, refuse};
use crate::refusal::{Code, Refusal};
use crate::secret::KeyFormat;
use steadfast_format::{AuxClass, AuxConfig, PoolState};
use steadfast_pool::FoundPool;

impl Verb for PoolImportScan {
    const IN_TURN: bool = false;

    fn check(&mut self) -> Result<(), Refusal> {
        check_paths(&self.search)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Vec<PoolCandidate>, Refusal> {
        let tell = |done, of| {
            let now = || engine.env.clock.monotonic_ns();
            caller.steps.iter().for_each(|steps| steps.tell(now(), "searching", done, of));
        };
        let mut search = devices::search_telling(&engine.search_places(&self.search), &tell)?;
        let held: Vec<u64> = engine.pools.read().values().map(|held| held.pool.guid().0).collect();
        search.pools.retain(|found| !held.contains(&found.guid.0));
        search.pools.retain(|found| (found.config.state == PoolState::Destroyed) == self.destroyed);
        if search.pools.is_empty()
            && let Some(refusal) = search.refused.into_iter().next()
        {
            // A named device without a pool is an error, not an empty list.
            return Err(refusal);
        }
        Ok(search.pools.iter().map(|found| candidate(engine, found)).collect())
    }
}

fn candidate(engine: &Engine, found: &FoundPool) -> PoolCandidate {
    let config = &found.config;
    let name = &config.name;
    let missing = !steadfast_pool::is_enough(found);
    let copies = steadfast_pool::check_copies(found).map_err(refuse::pool).err();
    let importable = !missing && copies.is_none();
    let message = if copies.is_some() {
        copies
    } else if missing {
        let special = steadfast_pool::special_among(config, &found.missing);
        let why = steadfast_pool::lost_metadata(&special);
        let what = format!("devices are missing: {}{why}", found.missing.join(", "));
        Some(Refusal::new(Code::PoolDevices, what).with("pool", name))
    } else if config.state == PoolState::Destroyed {
        let what = format!("the pool '{name}' was destroyed");
        Some(Refusal::new(Code::PoolDestroyed, what).with("pool", name))
    } else if config.state == PoolState::Active && !engine.is_ours(found) {
        Some(in_use(engine, config))
    } else if let Some(aux) = missing_log(found) {
        let what = format!("the log device {} was not found", aux.path);
        Some(Refusal::new(Code::LogMissing, what).with("pool", name).with("device", &aux.path))
    } else {
        None
    };
    let state = match &message {
        _ if missing => Health::Unavail,
        Some(message) if message.code == Code::LogMissing => Health::Degraded,
        _ if !found.missing.is_empty() || is_log_degraded(found) => Health::Degraded,
        _ => Health::Online,
    };
    PoolCandidate {
        name: name.clone(),
        guid: found.guid.0,
        state,
        importable,
        sealed: config.key.as_ref().and_then(|(wrapped, _)| KeyFormat::parse(wrapped.key_format.name())),
        vdevs: labels::vdevs(found),
        message,
    }
}

/// A missing log device, if no other side of its mirror was found.
pub(super) fn missing_log(found: &FoundPool) -> Option<&AuxConfig> {
    let has = |aux: &AuxConfig| labels::here(found, aux.guid).is_some();
    let mut used = found.config.aux.iter().filter(|aux| aux.class == AuxClass::Log && aux.is_in_use());
    let has_other = |aux: &AuxConfig| {
        let beside = |other: &AuxConfig| aux.log.mirror != 0 && other.log.mirror == aux.log.mirror;
        found.config.aux.iter().any(|other| beside(other) && other.is_in_use() && has(other))
    };
    used.find(|aux| !has(aux) && !has_other(aux))
}

/// True if a log mirror lacks a side.
fn is_log_degraded(found: &FoundPool) -> bool {
    let mut logs = found.config.aux.iter().filter(|aux| aux.class == AuxClass::Log && aux.log.mirror != 0);
    logs.any(|aux| labels::here(found, aux.guid).is_none() || !aux.is_in_use())
}
