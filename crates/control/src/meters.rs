//! Counters of the stores that this process uses, by address.
//!
//! They belong to the process: a search for pools, the checks before a create and the pool itself
//! open a store each for themselves, and the provider writes one bill for all.

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use steadfast_bucket::{Client, Counts, Credentials, Location, Meter, Result, Tuning};
use steadfast_env::Env;

struct Known {
    meter: Arc<Meter>,
    /// Region of the keys, which the address need not name.
    region: Option<String>,
}

static KNOWN: Mutex<BTreeMap<String, Known>> = Mutex::new(BTreeMap::new());

/// Opens a store whose requests are counted for its address. No request is made.
///
/// # Errors
/// Those of [`Client::open`].
pub(crate) fn open(location: Location, keys: &Credentials, tuning: Tuning) -> Result<Client> {
    let region = keys.region().map(str::to_owned);
    let meter = {
        let mut known = KNOWN.lock();
        let entry = known.entry(location.to_string());
        let one = entry.or_insert_with(|| Known { meter: Arc::default(), region: None });
        one.region = region;
        Arc::clone(&one.meter)
    };
    Client::open_counted(location, keys, Env::real(), tuning, meter)
}

/// Counters of every store that was opened, since the process began.
pub(crate) fn counters() -> Vec<(String, Counts)> {
    KNOWN.lock().iter().map(|(address, known)| (address.clone(), known.meter.counts())).collect()
}

/// Region of the keys with which a store was opened.
pub(crate) fn region(address: &str) -> Option<String> {
    KNOWN.lock().get(address).and_then(|known| known.region.clone())
}
