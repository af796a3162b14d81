//! The host that took a pool over from this one.

use steadfast_device::objects::LaterOwner;
use steadfast_format::{LabelConfig, Uberblock};

/// The host that took the pool over, by the marks that it left on the store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Overtaker {
    /// Its name.
    pub host: String,
    /// Epoch that it claimed.
    pub epoch: u64,
    /// When it made the first of its commits that the store lists, nanoseconds since 1970.
    pub committed_ns: Option<u64>,
}

impl Overtaker {
    pub(crate) fn of(owner: &LaterOwner) -> Option<Overtaker> {
        let label = LabelConfig::decode(&owner.label, steadfast_crypto::hash).ok()?;
        let root = owner.root.as_deref().and_then(|root| Uberblock::decode(root).ok());
        Some(Overtaker { host: label.host, epoch: owner.epoch, committed_ns: root.map(|root| root.time_ns) })
    }
}
