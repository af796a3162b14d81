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
    /// State, next slot, slots gone through, time and rate, as text.
    pub fn words(&self) -> Option<String> {
        let state = match self.state {
            TrimState::Active => "active",
            TrimState::Suspended => "suspended",
            TrimState::Complete => "complete",
            TrimState::Unsupported | TrimState::Untrimmed => return None,
        };
        let rate = self.rate.map_or("-".to_owned(), |rate| rate.to_string());
        Some(format!("{state} {} {} {} {rate}", self.next, self.slots, self.since))
    }

    /// The trim of which [`Trim::words`] told.
    pub fn from_words(words: &str, counted_ns: u64) -> Option<Trim> {
        let mut words = words.split(' ');
        let state = match words.next()? {
            "active" => TrimState::Active,
            "suspended" => TrimState::Suspended,
            "complete" => TrimState::Complete,
            _ => return None,
        };
        let (next, slots) = (words.next()?.parse().ok()?, words.next()?.parse::<u32>().ok()?);
        let since = words.next()?.parse().ok()?;
        let rate = match words.next()? {
            "-" => None,
            rate => Some(rate.parse().ok().filter(|rate| *rate > 0)?),
        };
        let whole = words.next().is_none();
        whole.then_some(Trim { state, next, slots: slots.into(), since, rate, allowed: 0, counted_ns })
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trim_goes_on_from_its_words_and_other_words_are_none() {
        for text in ["active 7 5 1700000000 4096", "suspended 0 0 0 -", "complete 4294967295 9 1 -"] {
            assert_eq!(Trim::from_words(text, 3).and_then(|trim| trim.words()).as_deref(), Some(text));
        }
        for text in [
            "",
            "active",
            "active 1 2 3",
            "active 1 2 3 0",
            "active 1 2 3 - 4",
            "active -1 2 3 -",
            "sold 1 2 3 -",
            "active 4294967296 2 3 -",
            "active 1 4294967296 3 -",
            "active 1 2 x -",
        ] {
            assert!(Trim::from_words(text, 3).is_none(), "{text:?}");
        }
    }
}
