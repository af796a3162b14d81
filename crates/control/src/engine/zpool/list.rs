//! `zpool list` and `zpool get`: pools with their properties.

use crate::api::{Health, LastAudit, PoolInfo, PoolList, Source, StoreReport, Value, VdevClass, WentBack};
use crate::cachefile::CachedPool;
use crate::caller::Caller;
use crate::engine::pool_properties::feature_states;
use crate::engine::reports::dedup;
use crate::engine::reports::devices::{health, raw_room, tops};
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::refusal::Refusal;
use std::collections::BTreeMap;
use steadfast_bucket::prices::amount;
use steadfast_property::{Change, POOL, is_user_property};

impl Verb for PoolList {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<Vec<PoolInfo>, Refusal> {
        let lost = engine.missing_pools(&self.names);
        let here: Vec<String> =
            self.names.iter().filter(|n| !lost.iter().any(|(l, _)| l.name == **n)).cloned().collect();
        let mut infos: Vec<PoolInfo> = lost.iter().map(|(pool, _)| lost_info(pool)).collect();
        if self.names.is_empty() || !here.is_empty() {
            for (name, held) in engine.select(&here)? {
                infos.push(pool_info(engine, &name, &held));
            }
        }
        infos.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(infos)
    }
}

fn pool_info(engine: &Engine, name: &str, held: &ImportedPool) -> PoolInfo {
    let measured = held.pool.state();
    let stores = engine.store_reports(held, &measured);
    let set = held.pool.pool_props();
    let mut properties: BTreeMap<String, Value> = BTreeMap::new();
    for property in POOL {
        match (set.get(property.name), property.default) {
            (Some(value), _) => {
                properties
                    .insert(property.name.into(), Value { value: value.clone(), source: Source::Local });
            }
            (None, Some(default)) if property.change == Change::Never => {
                properties.insert(property.name.into(), Value::measured(default));
            }
            (None, Some(default)) => {
                properties
                    .insert(property.name.into(), Value { value: default.into(), source: Source::Default });
            }
            (None, None) => {}
        }
    }
    for (name, value) in set.iter().filter(|(name, _)| is_user_property(name)) {
        properties.insert(name.clone(), Value { value: value.clone(), source: Source::Local });
    }
    let accounting = &measured.accounting;
    let (size, live) = raw_room(&measured);
    let state = health(&measured);
    let percent = (live * 100).checked_div(size).unwrap_or(0);
    let gain: u64 = tops(&measured).iter().map(|vdev| vdev.expandsize).sum();
    let values: [(&str, String); 14] = [
        ("size", size.to_string()),
        ("allocated", live.to_string()),
        ("free", size.saturating_sub(live).to_string()),
        ("capacity", percent.to_string()),
        ("fragmentation", accounting.fragmentation_percent().to_string()),
        ("health", state.as_str().into()),
        ("guid", held.pool.guid().0.to_string()),
        ("version", "-".into()),
        ("checkpoint", measured.checkpoint.map_or("-".into(), |checkpoint| checkpoint.bytes.to_string())),
        ("freeing", held.pool.datasets().freeing().to_string()),
        ("requests", of_month(&stores, |store| store.this_month.total())),
        ("egress", of_month(&stores, |store| store.this_month.bytes_in)),
        ("price", price_of(&stores)),
        ("expandsize", if gain == 0 { "-".into() } else { gain.to_string() }),
    ];
    for (name, value) in values.into_iter().chain(dedup::values(&held.pool.sharing())) {
        properties.insert(name.into(), Value::measured(value));
    }
    // Features of ZFS whose function every pool has: whether this one uses it.
    let special = tops(&measured).iter().any(|vdev| vdev.class == VdevClass::Special);
    for (name, active) in [("allocation_classes", special), ("large_dnode", wants_large_dnodes(held))] {
        let value = if active { "active" } else { "enabled" };
        properties.insert(format!("feature@{name}"), Value { value: value.into(), source: Source::Local });
    }
    for (name, state) in feature_states(held) {
        properties.insert(name, Value { value: state.into(), source: Source::Local });
    }
    properties
        .insert("ashift".into(), Value { value: held.pool.ashift().to_string(), source: Source::Local });
    let temporary = |value: String| Value { value, source: Source::Local };
    if let Some(altroot) = &held.altroot {
        properties.insert("altroot".into(), temporary(altroot.display().to_string()));
    }
    if let Some(shown) = held.listed.read().shown() {
        properties.insert("cachefile".into(), temporary(shown));
    }
    if held.pool.is_read_only() {
        properties.insert("readonly".into(), temporary("on".into()));
    }
    let audit = measured.audited.map(|audit| LastAudit {
        ended_ns: audit.audited_ns,
        samples: audit.samples,
        failed: audit.failed,
    });
    let went_back = held.pool.went_back();
    PoolInfo {
        name: name.to_owned(),
        guid: held.pool.guid().0,
        state,
        txg: measured.txg.0,
        went_back: went_back.map(|back| WentBack { from: back.from.0, to: back.to.0, time_ns: back.time_ns }),
        properties,
        audit,
    }
}

/// True if a dataset asks for inodes of another size than the least of ZFS.
fn wants_large_dnodes(held: &ImportedPool) -> bool {
    held.pool.datasets().names().iter().any(|name| {
        let props = held.pool.datasets().local_props(name).unwrap_or_default();
        props.get("dnodesize").is_some_and(|size| size != "legacy")
    })
}

/// A sum over the stores of a pool; `-` of a pool without any.
fn of_month(stores: &[StoreReport], part: fn(&StoreReport) -> u64) -> String {
    match stores {
        [] => "-".to_owned(),
        _ => stores.iter().map(part).fold(0, u64::saturating_add).to_string(),
    }
}

/// Price of this month so far, of each currency; `-` if a store has none.
fn price_of(stores: &[StoreReport]) -> String {
    let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
    for store in stores {
        let Some(price) = &store.price else { return "-".to_owned() };
        let sum = sums.entry(&price.currency).or_default();
        *sum = sum.saturating_add(price.total());
    }
    let amounts: Vec<String> = sums.into_iter().map(|(currency, nano)| amount(nano, currency)).collect();
    if amounts.is_empty() { "-".to_owned() } else { amounts.join("+") }
}

/// A remembered pool that is not imported.
fn lost_info(pool: &CachedPool) -> PoolInfo {
    let mut properties = BTreeMap::new();
    properties.insert("health".to_owned(), Value::measured(Health::Unavail.as_str()));
    properties.insert("guid".to_owned(), Value::measured(pool.guid));
    let (name, state) = (pool.name.clone(), Health::Unavail);
    PoolInfo { name, guid: pool.guid, state, txg: 0, went_back: None, properties, audit: None }
}
