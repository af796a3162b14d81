//! Trim: every free slot of a device is discarded once, on demand (`zpool trim`), whether or not the pool does so by itself
//! (`autotrim`): for what was freed while that was off, for what a crash left behind, for devices that were used before.
//!
//! ## States of a device
//!
//! | from               | to        | by                                                   |
//! |--------------------|-----------|------------------------------------------------------|
//! | untrimmed, trimmed | active    | `start`                                              |
//! | active             | suspended | `suspend`                                            |
//! | suspended          | active    | `start`, from where it stopped                       |
//! | active, suspended  | untrimmed | `cancel`                                             |
//! | active             | trimmed   | no free slot is left behind the one discarded last   |
//!
//! ## Invariants
//! (M1) A slot is discarded only while it is free, as of the last commit: what a root needs is never touched. The
//!      slot is taken meanwhile, and only the sync task appends, between whose commits this runs.  `Space::discard_free_slot`
//! (M2) A trim is bounded in each look, by [`STEP_SLOTS`] and [`STEP_NS`], so commits go on beside it; and it ends, because
//!      it goes through the slots once.
//!
//! ## Not here
//! A trim ends with the import: after the next one a device is untrimmed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use steadfast_format::DeviceId;

use crate::error::{Error, Result};
use crate::events::EventKind;
use crate::inner::{Inner, Leaf};

/// Slots discarded in one look at most, and for how long it may go on.
const STEP_SLOTS: u32 = 64;
const STEP_NS: u64 = 10_000_000;
/// A limited rate may catch up on this much that was not used.
const BURST_NS: u64 = 1_000_000_000;
/// Pause between looks of a trim whose rate is limited.
const PAUSE: Duration = Duration::from_millis(20);

/// What is asked of a trim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum TrimCommand {
    /// Begin, or go on if it is suspended.
    Start {
        /// Bytes a second on each device; `None`: as it was if it is suspended, else without limit.
        rate: Option<u64>,
    },
    /// Stop, so that it may go on later.
    Suspend,
    /// End, as if it had not begun.
    Cancel,
}

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

/// A device's trim.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TrimStatus {
    /// How far.
    pub state: TrimState,
    /// Bytes of the device that were gone through.
    pub done_bytes: u64,
    /// Bytes of the device.
    pub total_bytes: u64,
    /// Bytes given back.
    pub trimmed_bytes: u64,
    /// When it began, or ended if it is complete: seconds since 1970.
    pub since: u64,
}

/// One device's trim that was asked for.
pub(crate) struct Trim {
    state: TrimState,
    /// The next slot to look at.
    next: u32,
    slots: u64,
    since: u64,
    rate: Option<u64>,
    /// Bytes that the rate lets through now, and when that was counted.
    allowed: u64,
    counted_ns: u64,
}

pub(crate) type Trims = BTreeMap<DeviceId, Trim>;

impl Trim {
    /// Adds what the rate has let through since this was last called.
    fn refill(&mut self, now_ns: u64, slot_size: u64) {
        let Some(rate) = self.rate else {
            self.allowed = u64::MAX;
            return;
        };
        let nanos = now_ns.saturating_sub(self.counted_ns).min(BURST_NS);
        let gained = u128::from(nanos) * u128::from(rate) / 1_000_000_000;
        // What was too little for a byte goes on counting.
        if gained > 0 {
            self.counted_ns = now_ns;
        }
        let most = rate.max(slot_size);
        self.allowed = self.allowed.saturating_add(u64::try_from(gained).unwrap_or(most)).min(most);
    }
}

impl Inner {
    /// Begins, suspends or cancels the trim of devices, all of them if none is named. Nothing changes if it is refused.
    pub(crate) fn trim(&self, paths: &[String], command: TrimCommand) -> Result<()> {
        self.check_writable()?;
        let all = self.leaves();
        let named = |path: &String| {
            let leaf = all.iter().find(|leaf| leaf.path() == *path).cloned();
            leaf.ok_or_else(|| Error::ForeignDevice { path: path.clone(), pool: self.name() })
        };
        let leaves: Vec<Arc<Leaf>> =
            if paths.is_empty() { all.clone() } else { paths.iter().map(named).collect::<Result<_>>()? };
        let mut trims = self.trims.lock();
        let mut fit = Vec::new();
        let mut refused = None;
        for leaf in leaves {
            match check(&trims, &leaf, command) {
                Ok(()) => fit.push(leaf),
                // Of a whole pool, those devices take part that can.
                Err(error) if paths.is_empty() => refused = refused.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        if let (true, Some(error)) = (fit.is_empty(), refused) {
            return Err(error);
        }
        for leaf in fit {
            let word = self.turn_trim(&mut trims, leaf.id(), command);
            self.note_trim(&leaf, word);
        }
        drop(trims);
        self.txgs.commits.nudge();
        Ok(())
    }

    /// Makes the change that was found fit; gives what it is called.
    fn turn_trim(&self, trims: &mut Trims, id: DeviceId, command: TrimCommand) -> &'static str {
        let counted_ns = self.env.clock.monotonic_ns();
        let since = self.now_ns() / 1_000_000_000;
        match (command, trims.get_mut(&id)) {
            (TrimCommand::Start { rate }, Some(trim)) if trim.state == TrimState::Suspended => {
                trim.rate = rate.or(trim.rate);
                (trim.state, trim.allowed, trim.counted_ns) = (TrimState::Active, 0, counted_ns);
                "resume"
            }
            (TrimCommand::Start { rate }, _) => {
                let state = TrimState::Active;
                trims.insert(id, Trim { state, next: 0, slots: 0, since, rate, allowed: 0, counted_ns });
                "start"
            }
            (TrimCommand::Suspend, trim) => {
                trim.into_iter().for_each(|trim| trim.state = TrimState::Suspended);
                "suspend"
            }
            (TrimCommand::Cancel, _) => {
                trims.remove(&id);
                "cancel"
            }
        }
    }

    fn note_trim(&self, leaf: &Leaf, word: &'static str) {
        self.events.note(EventKind::Trim { device: leaf.path(), word });
        let txg = self.txgs.gate.open_txg();
        let text = format!("trim {word} vdev={}", leaf.path());
        self.history.lock().add(self.now_ns(), txg, 0, true, &self.host, &text);
        self.changed.store(true, Ordering::Release);
    }

    /// A part of the trims under way. Sync context only, between commits. Gives when to look again, `None` if nothing is
    /// under way.
    pub(crate) fn trim_step(&self) -> Result<Option<Duration>> {
        if !self.trims.lock().values().any(|trim| trim.state == TrimState::Active) {
            return Ok(None);
        }
        let _turn = self.sync_turn.lock();
        // A slot that is free for us may be another daemon's, if it has taken over.
        self.check_anchor()?;
        let began_ns = self.env.clock.monotonic_ns();
        let mut busy = false;
        for leaf in self.leaves() {
            let mut left = STEP_SLOTS;
            while left > 0 && self.env.clock.monotonic_ns().saturating_sub(began_ns) < STEP_NS {
                match self.trim_slot(&leaf) {
                    Some(true) => (left, busy) = (left - 1, true),
                    Some(false) => busy = true,
                    None => break,
                }
            }
        }
        Ok(Some(if busy { Duration::ZERO } else { PAUSE }))
    }

    /// Discards the next free slot of a device; true if one was, false if that was all, `None` if there is nothing to do now.
    fn trim_slot(&self, leaf: &Leaf) -> Option<bool> {
        let (id, slot_size) = (leaf.id(), u64::from(self.column_of(&leaf.config())));
        if self.space.is_out_of_use(id) {
            // Whoever waits for it would wait for ever.
            return self.trims.lock().remove(&id).map(|_| false);
        }
        let mut trims = self.trims.lock();
        let trim = trims.get_mut(&id).filter(|trim| trim.state == TrimState::Active)?;
        trim.refill(self.env.clock.monotonic_ns(), slot_size);
        if trim.allowed < slot_size {
            return None;
        }
        let from = trim.next;
        // Whoever asks how far it is does not wait for the device.
        drop(trims);
        let found = self.space.discard_free_slot(id, from);
        let mut trims = self.trims.lock();
        // It may have been cancelled, suspended or begun anew meanwhile: then what was found is not its own.
        let trim = trims.get_mut(&id).filter(|trim| trim.next == from)?;
        match found {
            Some((slot, result)) => {
                trim.next = slot + 1;
                trim.slots += u64::from(result.is_ok());
                trim.allowed = trim.allowed.saturating_sub(slot_size);
                Some(true)
            }
            None => {
                (trim.state, trim.since) = (TrimState::Complete, self.now_ns() / 1_000_000_000);
                drop(trims);
                self.note_trim(leaf, "finish");
                Some(false)
            }
        }
    }

    /// How far the trim of a device is.
    pub(crate) fn trim_status(&self, leaf: &Leaf) -> TrimStatus {
        let config = leaf.config();
        let slot_size = u64::from(self.column_of(&config));
        let total_bytes = u64::from(config.slots) * slot_size;
        let none = |state| TrimStatus { state, done_bytes: 0, total_bytes, trimmed_bytes: 0, since: 0 };
        match self.trims.lock().get(&leaf.id()) {
            _ if !takes_discards(leaf) => none(TrimState::Unsupported),
            None => none(TrimState::Untrimmed),
            Some(trim) => TrimStatus {
                state: trim.state,
                done_bytes: match trim.state {
                    TrimState::Complete => total_bytes,
                    _ => (u64::from(trim.next) * slot_size).min(total_bytes),
                },
                total_bytes,
                trimmed_bytes: trim.slots * slot_size,
                since: trim.since,
            },
        }
    }

    /// Bytes that trims under way have yet to go through; 0 if none is under way.
    pub(crate) fn trim_remaining(&self) -> u64 {
        if self.is_suspended() {
            return 0;
        }
        let active = |status: &TrimStatus| status.state == TrimState::Active;
        let statuses = self.leaves().into_iter().map(|leaf| self.trim_status(&leaf)).filter(active);
        statuses.map(|status| (status.total_bytes - status.done_bytes).max(1)).sum()
    }
}

fn takes_discards(leaf: &Leaf) -> bool {
    // A store of whole objects holds nothing in a free slot.
    leaf.device.can_discard() && leaf.device.character().appendable
}

/// Whether a command fits the state of a device.
fn check(trims: &Trims, leaf: &Leaf, command: TrimCommand) -> Result<()> {
    let state = trims.get(&leaf.id()).map_or(TrimState::Untrimmed, |trim| trim.state);
    let path = leaf.path();
    match (command, state) {
        (TrimCommand::Start { .. }, _) if !takes_discards(leaf) => Err(Error::TrimUnsupported { path }),
        (TrimCommand::Start { .. }, TrimState::Active) => Err(Error::TrimActive { path }),
        (TrimCommand::Start { .. }, _)
        | (TrimCommand::Suspend | TrimCommand::Cancel, TrimState::Active)
        | (TrimCommand::Cancel, TrimState::Suspended) => Ok(()),
        (TrimCommand::Suspend | TrimCommand::Cancel, _) => Err(Error::TrimNone { path }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_lets_through_what_it_says_and_saves_up_a_second_at_most() {
        let mut trim = Trim {
            state: TrimState::Active,
            next: 0,
            slots: 0,
            since: 0,
            rate: Some(1000),
            allowed: 0,
            counted_ns: 0,
        };
        for step in 1..=2000 {
            trim.refill(step * 500_000, 100);
        }
        assert_eq!(trim.allowed, 1000, "half a millisecond is half a byte, and none is lost");
        trim.refill(3_600_000_000_000, 100);
        assert_eq!(trim.allowed, 1000, "no burst after an hour of silence");
        trim.rate = None;
        trim.refill(3_600_000_000_000, 100);
        assert_eq!(trim.allowed, u64::MAX);
    }
}
