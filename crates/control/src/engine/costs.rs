//! Costs of pools on stores of objects: counters by day and month, prices, and budgets.
//! `docs/decisions/0159-cost-of-stores.md`.
//!
//! ## Invariants
//! [costs.1] A budget stops only work in the background. Programs read and write beyond it.
//!     test: `a_budget_holds_background_work_until_the_day_turns`
//! [costs.2] Work that was stopped goes on by itself within [`LOOK`] of the moment at which less
//!     than [`REACHED_PERCENT`] of each budget is used: the day or month turned, or the operator
//!     raised it. test: the same

use crate::api::{BudgetLevel, BudgetReport, PriceReport, StoreIo, StoreReport};
use crate::engine::state::{Engine, ImportedPool};
use crate::{meters, prices, stores};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use steadfast_bucket::prices::Price;
use steadfast_bucket::{Counts, Location};
use steadfast_format::DeviceId;
use steadfast_pool::{PoolStatus as Measured, Short};

/// Time between two looks at the counters.
const LOOK: Duration = Duration::from_secs(2);
/// Share of a budget at which background work stops.
const REACHED_PERCENT: u64 = 80;

/// Budgets: requests of a day, and bytes read of a month.
const BUDGETS: [&str; 2] = ["requestbudget", "egressbudget"];

/// A store among the devices of a pool.
struct PoolStore {
    /// As the list of devices has it.
    name: String,
    guid: u64,
    id: DeviceId,
    /// As counters are kept: two spellings of one address are one store.
    address: String,
    location: Location,
    /// Bytes that lie there.
    stored_bytes: u64,
}

fn stores_of(held: &ImportedPool, measured: &Measured) -> Vec<PoolStore> {
    let is_store = |leaf: &steadfast_pool::LeafStatus| stores::is_address(Path::new(&leaf.config.path));
    if !measured.leaves.iter().any(is_store) {
        return Vec::new();
    }
    let stored = held.pool.stored_by_device();
    let leaves = measured.leaves.iter().filter(|leaf| is_store(leaf)).filter_map(|leaf| {
        let location: Location = leaf.config.path.parse().ok()?;
        Some(PoolStore {
            name: leaf.config.path.clone(),
            guid: leaf.config.guid,
            id: leaf.config.id,
            address: location.to_string(),
            location,
            stored_bytes: stored.get(&leaf.config.id).copied().unwrap_or(0),
        })
    });
    leaves.collect()
}

/// Address of the store of the parity's tiles: its traffic counts as that of the pool's stores.
fn store_of_tiles(measured: &Measured) -> Option<String> {
    measured.parity.as_ref()?.tiles.as_ref().map(|tiles| tiles.address.clone())
}

impl Engine {
    /// Starts the thread that looks at the counters. It is not part of upkeep, which waits for
    /// verbs.
    pub(super) fn keep_costs(self: &Arc<Self>) {
        let (weak, env) = (Arc::downgrade(self), self.env.clone());
        let clock = Arc::clone(&env.clock);
        let job = Box::new(move || {
            while let Some(engine) = weak.upgrade() {
                engine.look_at_costs();
                drop(engine);
                clock.sleep(LOOK);
            }
        });
        drop(env.tasks.spawn("costs", job));
    }

    /// Nanoseconds of a clock that only goes forward.
    pub(super) fn now_ns(&self) -> u64 {
        self.env.clock.monotonic_ns()
    }

    /// Counters of the stores of a pool since the daemon began, by their addresses.
    pub(super) fn traffic(&self, held: &ImportedPool) -> BTreeMap<String, Counts> {
        let measured = held.pool.state();
        let mut addresses: Vec<String> =
            stores_of(held, &measured).into_iter().map(|store| store.address).collect();
        addresses.extend(store_of_tiles(&measured));
        meters::counters().into_iter().filter(|(address, _)| addresses.contains(address)).collect()
    }

    /// Price of some traffic of the store at an address, in billionths, and its currency. None if
    /// it has no price.
    pub(super) fn price_of_traffic(&self, address: &str, counts: &Counts) -> Option<(u64, String)> {
        let location: Location = address.parse().ok()?;
        let table = prices::load(&self.runtime.prices()).ok()?;
        let row = prices::find(&table, &location).ok()?;
        Some((row.of_traffic(counts).total(), row.currency.clone()))
    }

    pub(super) fn now_s(&self) -> u64 {
        u64::try_from(self.env.clock.wall_ns() / 1_000_000_000).unwrap_or(0)
    }

    /// Takes over the counters of all stores, and holds back or lets go the background work of
    /// pools as their budgets say.
    pub fn look_at_costs(&self) {
        let now = self.now_s();
        let pools: Vec<(String, Arc<ImportedPool>)> =
            self.pools.read().iter().map(|(name, held)| (name.clone(), Arc::clone(held))).collect();
        self.ledger.take(now, meters::counters());
        for (name, held) in pools {
            let measured = held.pool.state();
            let stores = stores_of(&held, &measured);
            let table = (!stores.is_empty()).then(|| prices::load(&self.runtime.prices()).ok()).flatten();
            for store in stores {
                self.ledger.note_stored(now, &store.address, store.stored_bytes);
                let region = meters::region(&store.address);
                let price = table.as_ref().and_then(|table| table.find(&store.location, region.as_deref()));
                held.pool.set_garbage_share(store.id, price.map(Price::garbage_thousandths));
            }
            self.spare(&name, &held, &self.budgets(&held, &measured));
        }
        self.ledger.write(now, false);
    }

    /// Writes the counters down, because the daemon ends or a pool leaves.
    pub(super) fn keep_counters(&self) {
        self.ledger.take(self.now_s(), meters::counters());
        self.ledger.write(self.now_s(), true);
    }

    /// Holds back background work of a pool, or lets it go, and tells of each change.
    fn spare(&self, name: &str, held: &ImportedPool, budgets: &[BudgetReport]) {
        let mut levels = held.budgets.lock();
        for property in BUDGETS {
            let budget = budgets.iter().find(|budget| budget.property == property);
            let level = budget.map_or(BudgetLevel::Free, |budget| budget.level);
            let before = levels.insert(property, level).unwrap_or_default();
            if level == before {
                continue;
            }
            let what = match level {
                BudgetLevel::Free => "budget_freed",
                // The operator raised it, by too little to let anything go on.
                BudgetLevel::Reached if before == BudgetLevel::Exceeded => continue,
                BudgetLevel::Reached => "budget_reached",
                BudgetLevel::Exceeded => "budget_exceeded",
            };
            let (used, limit) = budget.map_or((0, 0), |budget| (budget.used, budget.limit));
            let fields = [
                ("property", property.to_owned()),
                ("used", used.to_string()),
                ("limit", limit.to_string()),
                ("background", if level == BudgetLevel::Free { "goes on" } else { "waits" }.to_owned()),
            ];
            self.post(what, &held.pool, name, &fields);
        }
        let is_short = |property: &str| levels.get(property).is_some_and(|level| *level > BudgetLevel::Free);
        let [requests, egress] = BUDGETS.map(is_short);
        held.pool.hold_background(Short { requests, egress });
    }

    /// Budgets of a pool that are set.
    pub(super) fn budgets(&self, held: &ImportedPool, measured: &Measured) -> Vec<BudgetReport> {
        let set = held.pool.pool_props();
        let limit =
            |property: &str| set.get(property).and_then(|text| text.parse().ok()).filter(|n: &u64| *n > 0);
        if BUDGETS.iter().all(|property| limit(property).is_none()) {
            return Vec::new();
        }
        let (mut requests, mut egress) = (0_u64, 0_u64);
        let mut addresses: BTreeSet<String> =
            stores_of(held, measured).into_iter().map(|store| store.address).collect();
        addresses.extend(store_of_tiles(measured));
        for address in addresses {
            let usage = self.ledger.usage(self.now_s(), &address);
            requests = requests.saturating_add(usage.today.counts.total());
            egress = egress.saturating_add(usage.this_month.counts.bytes_in);
        }
        let report = |(property, used): (&str, u64)| {
            let limit = limit(property)?;
            let mut budget =
                BudgetReport { property: property.to_owned(), used, limit, level: BudgetLevel::Free };
            budget.level = match budget.percent() {
                100.. => BudgetLevel::Exceeded,
                REACHED_PERCENT.. => BudgetLevel::Reached,
                _ => BudgetLevel::Free,
            };
            Some(budget)
        };
        BUDGETS.into_iter().zip([requests, egress]).filter_map(report).collect()
    }

    /// Counters and prices of the stores of a pool, up to this moment.
    pub(super) fn store_reports(&self, held: &ImportedPool, measured: &Measured) -> Vec<StoreReport> {
        let found = stores_of(held, measured);
        if found.is_empty() {
            return Vec::new();
        }
        let now = self.now_s();
        self.ledger.take(now, meters::counters());
        let table = prices::load(&self.runtime.prices()).map_err(|refusal| refusal.what);
        let report = |store: PoolStore| {
            self.ledger.note_stored(now, &store.address, store.stored_bytes);
            let usage = self.ledger.usage(now, &store.address);
            let region = meters::region(&store.address);
            let found = table.as_ref().map(|table| table.find(&store.location, region.as_deref()));
            let price = |price: &Price| {
                let traffic = price.of_traffic(&usage.this_month.counts.counts());
                let whole = (usage.stored_bytes.div_ceil(1024)).saturating_mul(usage.month_seconds);
                PriceReport {
                    table: price.name.clone(),
                    currency: price.currency.clone(),
                    requests: traffic.requests,
                    egress: traffic.egress,
                    stored: price.of_stored(usage.this_month.kib_seconds, usage.month_seconds),
                    stored_month: price.of_stored(whole, usage.month_seconds),
                }
            };
            StoreReport {
                name: store.name,
                guid: store.guid,
                price: found.as_ref().ok().and_then(|found| found.map(price)),
                unpriced: match &found {
                    Ok(Some(_)) => None,
                    Ok(None) => Some(prices::unpriced(&store.location, region.as_deref())),
                    Err(why) => Some((*why).clone()),
                },
                day: usage.day,
                today: usage.today.counts,
                month: usage.month,
                this_month: usage.this_month.counts,
                stored_bytes: usage.stored_bytes,
                garbage_thousandths: held.pool.garbage_share(store.id),
            }
        };
        found.into_iter().map(report).collect()
    }

    /// Counters of the stores of a pool since this daemon opened them.
    pub(super) fn store_io(&self, held: &ImportedPool, measured: &Measured) -> Vec<StoreIo> {
        let found = stores_of(held, measured);
        if found.is_empty() {
            return Vec::new();
        }
        let (table, counters) = (prices::load(&self.runtime.prices()), meters::counters());
        let report = |store: PoolStore| {
            let counts = counters.iter().find(|(address, _)| *address == store.address);
            let counts = counts.map(|(_, counts)| *counts).unwrap_or_default();
            let region = meters::region(&store.address);
            let price = table.as_ref().ok().and_then(|table| table.find(&store.location, region.as_deref()));
            StoreIo {
                name: store.name,
                guid: store.guid,
                counts: counts.into(),
                cost: price.map(|price| price.of_traffic(&counts).total()),
                currency: price.map(|price| price.currency.clone()).unwrap_or_default(),
            }
        };
        found.into_iter().map(report).collect()
    }
}
