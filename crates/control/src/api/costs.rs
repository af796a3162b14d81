//! Requests, bytes and prices of the stores that pools lie on.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use steadfast_bucket::{Counts, Operation};

/// Counters of a store of objects.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct StoreCounts {
    /// Requests by operation, without those that were never made.
    #[serde(default)]
    pub requests: BTreeMap<String, u64>,
    /// Operations that failed for good, in the same way.
    #[serde(default)]
    pub failed: BTreeMap<String, u64>,
    /// Bytes of objects read: the provider's egress.
    #[serde(default)]
    pub bytes_in: u64,
    /// Bytes of objects sent.
    #[serde(default)]
    pub bytes_out: u64,
    /// Requests that repeated a failed one.
    #[serde(default)]
    pub retries: u64,
    /// Reads that were asked for twice, because the first was slow.
    #[serde(default)]
    pub hedges: u64,
    /// Answers that asked for fewer requests.
    #[serde(default)]
    pub slowdowns: u64,
}

impl From<Counts> for StoreCounts {
    fn from(counts: Counts) -> StoreCounts {
        let words = || Operation::REQUESTS.iter().map(|operation| operation.word());
        let named = |numbers: [u64; Operation::REQUESTS.len()]| {
            let pairs = words().zip(numbers).filter(|(_, number)| *number > 0);
            pairs.map(|(word, number)| (word.to_owned(), number)).collect()
        };
        StoreCounts {
            requests: named(counts.requests),
            failed: named(counts.failed),
            bytes_in: counts.bytes_in,
            bytes_out: counts.bytes_out,
            retries: counts.retries,
            hedges: counts.hedges,
            slowdowns: counts.slowdowns,
        }
    }
}

impl StoreCounts {
    /// The counters as the client has them. Words of operations that it does not know are left out.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let numbers = |map: &BTreeMap<String, u64>| {
            Operation::REQUESTS.map(|operation| map.get(operation.word()).copied().unwrap_or(0))
        };
        Counts {
            requests: numbers(&self.requests),
            failed: numbers(&self.failed),
            bytes_in: self.bytes_in,
            bytes_out: self.bytes_out,
            retries: self.retries,
            hedges: self.hedges,
            slowdowns: self.slowdowns,
        }
    }

    /// All requests.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.counts().total()
    }

    /// Requests of some operations.
    #[must_use]
    pub fn of(&self, operations: &[Operation]) -> u64 {
        operations.iter().filter_map(|operation| self.requests.get(operation.word())).sum()
    }
}

/// An estimate of a store's price, in billionths of the currency.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PriceReport {
    /// Name of the row of the table.
    pub table: String,
    /// Currency.
    pub currency: String,
    /// Requests of this month.
    pub requests: u64,
    /// Bytes read of this month.
    pub egress: u64,
    /// Bytes stored, from the beginning of this month until now.
    pub stored: u64,
    /// Bytes stored now, for a whole month.
    pub stored_month: u64,
}

impl PriceReport {
    /// Price of this month so far.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.requests.saturating_add(self.egress).saturating_add(self.stored)
    }
}

/// Counters of one store by day and month, in UTC, as this daemon counted them.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Its address, as the list of devices has it.
    pub name: String,
    /// Number of the device.
    pub guid: u64,
    /// Day, `2026-11-27`.
    pub day: String,
    /// Counters of the day.
    pub today: StoreCounts,
    /// Month, `2026-11`.
    pub month: String,
    /// Counters of the month.
    pub this_month: StoreCounts,
    /// Bytes that lie there.
    pub stored_bytes: u64,
    /// Garbage that is left there, in thousandths of what lives.
    pub garbage_thousandths: u32,
    /// Price, if the table has one.
    pub price: Option<PriceReport>,
    /// Reason why there is none.
    pub unpriced: Option<String>,
}

/// Counters of one store since the daemon opened it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct StoreIo {
    /// Its address, as the list of devices has it.
    pub name: String,
    /// Number of the device.
    pub guid: u64,
    /// Counters.
    pub counts: StoreCounts,
    /// Price of the requests and of the bytes read, in billionths; `None` without a price.
    pub cost: Option<u64>,
    /// Currency; empty without a price.
    pub currency: String,
}

/// How much of a budget is used.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetLevel {
    /// Less than the share at which background work stops.
    #[default]
    Free,
    /// Background work waits.
    Reached,
    /// All of it is used; programs go on.
    Exceeded,
}

/// A budget of a pool.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct BudgetReport {
    /// The property: `requestbudget` or `egressbudget`.
    pub property: String,
    /// Requests of the day, or bytes read of the month, of all stores of the pool.
    pub used: u64,
    /// The bound.
    pub limit: u64,
    /// How much of it is used.
    pub level: BudgetLevel,
}

impl BudgetReport {
    /// Share that is used, in per cent.
    #[must_use]
    pub fn percent(&self) -> u64 {
        let percent = u128::from(self.used) * 100 / u128::from(self.limit.max(1));
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}
