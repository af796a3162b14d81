//! A trim or an initialization of one device: where it is, and what its rate lets through.

use std::collections::BTreeMap;
use steadfast_format::DeviceId;

/// A limited rate may catch up on this much that was not used.
pub(crate) const BURST_NS: u64 = 1_000_000_000;

/// How far a device's trim is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TrimState {
    /// The device takes no discards.
    Unsupported,
    /// Not since the import.
    Untrimmed,
    /// Under way.
    Active,
    /// Stopped for now.
    Suspended,
    /// Ended.
    Complete,
}

/// One device's trim that was asked for.
pub(crate) struct Trim {
    pub state: TrimState,
    /// The next slot to look at.
    pub next: u32,
    pub slots: u64,
    pub since: u64,
    pub rate: Option<u64>,
    /// Bytes that the rate lets through now, and when that was counted.
    pub allowed: u64,
    pub counted_ns: u64,
}

pub(crate) type Trims = BTreeMap<DeviceId, Trim>;

impl Trim {
    /// Adds what the rate has let through since this was last called.
    pub fn refill(&mut self, now_ns: u64, slot_size: u64) {
        let Some(rate) = self.rate else {
            self.allowed = u64::MAX;
            return;
        };
        let nanos = now_ns.saturating_sub(self.counted_ns).min(BURST_NS);
        let gained = u128::from(nanos) * u128::from(rate) / 1_000_000_000;
        // Time too short for one byte goes on counting.
        if gained > 0 {
            self.counted_ns = now_ns;
        }
        let most = rate.max(slot_size);
        self.allowed = self.allowed.saturating_add(u64::try_from(gained).unwrap_or(most)).min(most);
    }
}
