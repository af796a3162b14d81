//! Trims and initializations go on after an export, as in ZFS: they are properties of the pool
//! meanwhile, beside those of its devices. After a crash none is there, so nothing goes on from an
//! old place.

use crate::engine::state::ImportedPool;
use steadfast_pool::{Pool, Sweep};
use steadfast_property::{VDEV_PREFIX, vdev_property};

const SWEEPS: [(Sweep, &str); 2] = [(Sweep::Trim, "trim"), (Sweep::Initialize, "initialize")];

/// Name of the property of the pool.
fn property(guid: u64, word: &str) -> String {
    vdev_property(&guid.to_string(), word)
}

/// Writes down what is under way, or done, in a pool that is to leave. A pool that cannot be
/// written leaves without.
pub(super) fn write_down(held: &ImportedPool) {
    if held.pool.is_read_only() || held.pool.suspended().is_some() || held.pool.store_away().is_some() {
        return;
    }
    for (what, word) in SWEEPS {
        for (guid, words) in held.pool.devices().sweeps_in_words(what) {
            let _ = held.pool.set_pool_prop(&property(guid, word), Some(&words));
        }
    }
}

/// Removes what was written down, of a pool that stays after all.
pub(super) fn forget(pool: &Pool) {
    let written = |name: &&String| {
        name.starts_with(VDEV_PREFIX) && SWEEPS.iter().any(|(_, word)| name.ends_with(&format!(":{word}")))
    };
    for name in pool.pool_props().keys().filter(written) {
        // A user's own property of a device has one colon more.
        if name.matches(':').count() == 3 {
            let _ = pool.set_pool_prop(name, None);
        }
    }
}

/// Goes on with what was written down.
pub(super) fn resume(pool: &Pool) {
    if pool.is_read_only() {
        return;
    }
    let props = pool.pool_props();
    for guid in pool.state().leaves.iter().map(|leaf| leaf.config.guid) {
        for (what, word) in SWEEPS {
            let name = property(guid, word);
            if let Some(words) = props.get(&name)
                && pool.set_pool_prop(&name, None).is_ok()
            {
                pool.devices().resume_sweep(what, guid, words);
            }
        }
    }
}
