//! `zfs snapshot`.

use crate::api::{FsSnapshot, Outcome};
use crate::caller::Caller;
use crate::check::{check_user_properties, name_refusal};
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::engine::zfs::names::halves;
use crate::refusal::{Code, Refusal};
use std::collections::BTreeMap;
use steadfast_property::check_snapshot_name;

impl Verb for FsSnapshot {
    // It takes its turn after the kernel wrote out dirty pages: that may wait for a pool that
    // another verb resumes.
    const IN_TURN: bool = false;

    fn check(&mut self) -> Result<(), Refusal> {
        self.names.iter().try_for_each(|name| check_snapshot_name(name)).map_err(name_refusal)?;
        check_user_properties(&mut self.properties)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let warnings = settle(engine, &self);
        let _turn = engine.verbs.lock();
        let mut by_pool: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in &self.names {
            let pool = name.split(['/', '@']).next().unwrap_or(name);
            by_pool.entry(pool.to_owned()).or_default().push(name.clone());
        }
        if by_pool.len() > 1 {
            let what = "the snapshots are of several pools; run one command for each pool";
            return Err(Refusal::new(Code::ApiRequest, what));
        }
        let mut touched = Vec::new();
        for (pool, names) in by_pool {
            let held = engine.held(&pool)?;
            for name in names {
                let (dataset, snapshot) = halves(&name)?;
                held.pool.datasets().dataset_info(dataset).map_err(refuse::pool)?;
                let below = format!("{dataset}/");
                let all = held.pool.datasets().names();
                let of = all.iter().filter(|n| *n == dataset || self.recursive && n.starts_with(&below));
                touched.extend(of.map(|n| format!("{n}@{snapshot}")));
            }
            // Below it names are longer than the one that was checked.
            touched.iter().try_for_each(|name| check_snapshot_name(name)).map_err(name_refusal)?;
            engine.check_writable(&held)?;
            held.pool.datasets().take_snapshots(&touched, &self.properties).map_err(refuse::pool)?;
            held.note_snapshots(touched.iter().filter_map(|name| Some(name.split_once('@')?.0)));
            engine.log(&held, caller);
        }
        Ok(Outcome { touched, warnings })
    }
}

/// Makes the kernel write out dirty pages of the file systems, and warns of failures. Missing file
/// systems are refused later.
fn settle(engine: &Engine, request: &FsSnapshot) -> Vec<Refusal> {
    let mut warnings = Vec::new();
    for name in &request.names {
        let dataset = name.split('@').next().unwrap_or(name);
        let below = format!("{dataset}/");
        let Ok(held) = engine.held(dataset) else { continue };
        warnings.extend(held.settle(|name| name == dataset || request.recursive && name.starts_with(&below)));
    }
    warnings
}
