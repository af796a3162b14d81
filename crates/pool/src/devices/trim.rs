//! Trim: discards every free slot of a device once, on demand (`zpool trim`), with or without
//! `autotrim`. It reaches slots that were freed while `autotrim` was off, that a crash left behind,
//! and that were used before the pool.
//!
//! Initialize is the opposite: it fills every free slot with a pattern, so that thin storage below
//! the devices provides the room now, or fails now. The pool does not need it: no byte is read that
//! was not written. Slots that are trimmed afterwards, or freed while `autotrim` is on, are given
//! back again.
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
//! [trim.1] A slot is discarded only while it is free as of the last commit: slots that a root
//!      needs are never touched. The slot is reserved meanwhile, and only the sync task appends,
//!      between whose commits this runs.
//!      `Space::discard_free_slot`
//! [trim.2] A trim is bounded in each look, by [`STEP_SLOTS`] and [`STEP_NS`], so commits go on
//!      beside it; and it ends, because it goes through the slots once.
//! [trim.3] A device that is out of use is not trimmed: a command that names it is refused, and one
//!      for the whole pool passes over it. While a device is offline its trim rests.
//!      `out_of_reach`, `rests`
//!
//! ## Not here
//! An import begins without trims. The caller takes them along by [`Devices::sweeps_in_words`] and
//! [`Devices::resume_sweep`]; after a crash a device is untrimmed.

use crate::core::ranked::{RankedMutex, rank};
use crate::core::sweep::Sweep;
use crate::devices::state::Devices;
use crate::devices::sweep::Trim;
use crate::devices::sweep::TrimState;
use crate::devices::sweep::Trims;
use std::sync::Arc;
use std::time::Duration;

use steadfast_device::Presence;
use steadfast_format::{DeviceId, LeafState};

use crate::core::error::{Error, Result};
use crate::core::events::EventKind;
use crate::devices::leaf::Leaf;

/// Slots discarded in one look at most, and for how long it may go on.
const STEP_SLOTS: u32 = 64;
const STEP_NS: u64 = 10_000_000;
/// Pause between looks of a trim whose rate is limited.
const PAUSE: Duration = Duration::from_millis(20);

/// Commands of a trim.
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
    /// Forget one that ended or was suspended.
    Forget,
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

impl Devices {
    fn sweeps(&self, what: Sweep) -> &RankedMutex<Trims, rank::Sweeps> {
        match what {
            Sweep::Trim => &self.sweeps.trims,
            Sweep::Initialize => &self.sweeps.initials,
        }
    }

    /// Begins, suspends or cancels the trim or the initialization of devices, all of them if none
    /// is named. It goes on in the background; initialization fills free slots with a pattern. An
    /// error changes nothing.
    pub fn sweep(&self, what: Sweep, paths: &[String], command: TrimCommand) -> Result<()> {
        self.core.check_writable()?;
        let all = self.leaves();
        let named = |path: &String| {
            let leaf = all.iter().find(|leaf| leaf.path() == *path).cloned();
            leaf.ok_or_else(|| Error::ForeignDevice { path: path.clone(), pool: self.core.name() })
        };
        let leaves: Vec<Arc<Leaf>> =
            if paths.is_empty() { all.clone() } else { paths.iter().map(named).collect::<Result<_>>()? };
        let mut trims = self.sweeps(what).lock();
        let mut fit = Vec::new();
        let mut refused = None;
        for leaf in leaves {
            let checked = match self.out_of_reach(&leaf) {
                Some(why) if matches!(command, TrimCommand::Start { .. }) => {
                    Err(Error::TrimOut { what, path: leaf.path(), why })
                }
                _ => check(what, &trims, &leaf, command),
            };
            match checked {
                Ok(()) => fit.push(leaf),
                // For a whole pool, those devices take part that can.
                Err(error) if paths.is_empty() => refused = refused.or(Some(error)),
                Err(error) => return Err(error),
            }
        }
        if let (true, Some(error)) = (fit.is_empty(), refused) {
            return Err(error);
        }
        for leaf in fit {
            let word = self.turn_trim(&mut trims, leaf.id(), command);
            self.note_trim(what, &leaf, word);
        }
        drop(trims);
        self.core.txgs.commits.nudge();
        Ok(())
    }

    /// True while the operator has taken a device offline. As in ZFS its trim or initialization
    /// goes on from where it is when the device is back.
    fn rests(&self, leaf: &Leaf) -> bool {
        leaf.config().state == LeafState::Offline
    }

    /// Ends the trim and the initialization of a device that is to leave the pool.
    pub(crate) fn end_sweeps(&self, id: DeviceId) {
        for what in [Sweep::Trim, Sweep::Initialize] {
            self.sweeps(what).lock().remove(&id);
        }
    }

    /// Why a device is not gone through, if it is not: nobody knows what is free on one that is out
    /// of use, or gone.
    fn out_of_reach(&self, leaf: &Leaf) -> Option<&'static str> {
        match leaf.config().state {
            LeafState::Offline => Some("it is offline"),
            LeafState::Faulted => Some("it is out of use"),
            LeafState::Gone => Some("it was not found at import"),
            LeafState::Spared => Some("it is replaced by a spare"),
            LeafState::Parted => Some("it went to another pool"),
            LeafState::Online | LeafState::Leaving if self.core.space.is_out_of_use(leaf.id()) => {
                Some("it is out of use")
            }
            LeafState::Online | LeafState::Leaving => match leaf.device.presence() {
                Presence::Whole => None,
                Presence::Removed => Some("it was removed while in use"),
                Presence::Short { .. } => Some("it was cut short while in use"),
            },
        }
    }

    /// Discards all free slots at once, before an import's first write: those that commits took
    /// which came to no root, too. Gives how many there were, holes among them; none without
    /// `autotrim`.
    pub(crate) fn give_back_free(&self) -> u64 {
        let mut given = 0;
        if !self.core.space.is_discarding() {
            return given;
        }
        for leaf in self.leaves().iter().filter(|leaf| takes_discards(leaf)) {
            let mut from = 0;
            while self.out_of_reach(leaf).is_none()
                && let Some((slot, result)) = self.core.space.discard_free_slot(leaf.id(), from)
            {
                given += u64::from(result.is_ok());
                from = slot + 1;
            }
        }
        given
    }

    /// Makes the change that was found fit; gives what it is called.
    fn turn_trim(&self, trims: &mut Trims, id: DeviceId, command: TrimCommand) -> &'static str {
        let counted_ns = self.core.env.clock.monotonic_ns();
        let since = self.core.now_ns() / 1_000_000_000;
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
            (TrimCommand::Forget, _) => {
                trims.remove(&id);
                "forget"
            }
        }
    }

    fn note_trim(&self, what: Sweep, leaf: &Leaf, word: &'static str) {
        self.core.events.note(EventKind::Trim { what: what.verb(), device: leaf.path(), word });
        let txg = self.core.txgs.gate.open_txg();
        let text = format!("{} {word} vdev={}", what.verb(), leaf.path());
        self.core.history.lock().add(self.core.now_ns(), txg, 0, true, &self.core.identity.host, &text);
        self.core.health.changed.note();
    }

    /// A part of the trims under way. Sync context only, between commits. Gives when to look again,
    /// `None` if nothing is under way.
    pub(crate) fn trim_step(&self) -> Result<Option<Duration>> {
        if self.core.is_sparing() {
            return Ok(None);
        }
        let trim = self.sweep_step(Sweep::Trim)?;
        let initialize = self.sweep_step(Sweep::Initialize)?;
        Ok(trim.into_iter().chain(initialize).min())
    }

    fn sweep_step(&self, what: Sweep) -> Result<Option<Duration>> {
        let active: Vec<DeviceId> = {
            let trims = self.sweeps(what).lock();
            trims.iter().filter(|(_, trim)| trim.state == TrimState::Active).map(|(id, _)| *id).collect()
        };
        let resting: Vec<DeviceId> =
            self.leaves().iter().filter(|leaf| self.rests(leaf)).map(|leaf| leaf.id()).collect();
        if active.iter().all(|id| resting.contains(id)) {
            return Ok(None);
        }
        let _turn = self.core.sync_turn.lock();
        // A slot that is free for us may be another daemon's, if it has taken over.
        self.core.check_ours()?;
        let began_ns = self.core.env.clock.monotonic_ns();
        let leaves = self.leaves();
        // One that has left is looked at no more, and would be under way for ever.
        self.sweeps(what).lock().retain(|id, _| leaves.iter().any(|leaf| leaf.id() == *id));
        let mut busy = false;
        for leaf in leaves {
            let mut left = STEP_SLOTS;
            while left > 0 && self.core.env.clock.monotonic_ns().saturating_sub(began_ns) < STEP_NS {
                match self.trim_slot(what, &leaf) {
                    Some(true) => (left, busy) = (left - 1, true),
                    Some(false) => busy = true,
                    None => break,
                }
            }
        }
        Ok(Some(if busy { Duration::ZERO } else { PAUSE }))
    }

    /// Discards the next free slot of a device; true if one was, false if that was all, `None` if
    /// there is nothing to do now.
    fn trim_slot(&self, what: Sweep, leaf: &Leaf) -> Option<bool> {
        let (id, slot_size) = (leaf.id(), u64::from(self.column_of(&leaf.config())));
        if self.rests(leaf) {
            return None;
        }
        if self.core.space.is_out_of_use(id) {
            // A caller that waits for this trim would wait for ever.
            return self.sweeps(what).lock().remove(&id).map(|_| false);
        }
        let mut trims = self.sweeps(what).lock();
        let trim = trims.get_mut(&id).filter(|trim| trim.state == TrimState::Active)?;
        trim.refill(self.core.env.clock.monotonic_ns(), slot_size);
        if trim.allowed < slot_size {
            return None;
        }
        let from = trim.next;
        // A look at the progress must not wait for the device.
        drop(trims);
        let found = match what {
            Sweep::Trim => self.core.space.discard_free_slot(id, from),
            Sweep::Initialize => self.core.space.fill_free_slot(id, from),
        };
        let mut trims = self.sweeps(what).lock();
        // It may have been cancelled, suspended or begun anew meanwhile: then what was found is not
        // its own.
        let trim = trims.get_mut(&id).filter(|trim| trim.next == from)?;
        match found {
            Some((slot, result)) => {
                trim.next = slot + 1;
                trim.slots += u64::from(result.is_ok());
                trim.allowed = trim.allowed.saturating_sub(slot_size);
                Some(true)
            }
            None => {
                (trim.state, trim.since) = (TrimState::Complete, self.core.now_ns() / 1_000_000_000);
                drop(trims);
                self.note_trim(what, leaf, "finish");
                Some(false)
            }
        }
    }

    /// Trims, or initializations, by the number of their device, in words for
    /// [`Devices::resume_sweep`].
    #[must_use]
    pub fn sweeps_in_words(&self, what: Sweep) -> Vec<(u64, String)> {
        let leaves = self.leaves();
        let trims = self.sweeps(what).lock();
        let words = |leaf: &Arc<Leaf>| Some((leaf.config().guid, trims.get(&leaf.id())?.words()?));
        leaves.iter().filter_map(words).collect()
    }

    /// Goes on with the trim, or initialization, of a device, as [`Devices::sweeps_in_words`] told
    /// it before an export. Other words are passed over: they are somebody's text.
    pub fn resume_sweep(&self, what: Sweep, guid: u64, words: &str) {
        let counted_ns = self.core.env.clock.monotonic_ns();
        let leaf = self.leaves().into_iter().find(|leaf| leaf.config().guid == guid);
        if let (Some(leaf), Some(trim)) = (leaf, Trim::from_words(words, counted_ns))
            && takes(what, &leaf)
        {
            self.sweeps(what).lock().insert(leaf.id(), trim);
            self.core.txgs.commits.nudge();
        }
    }

    /// How far the trim, or initialization, of a device is.
    pub(crate) fn trim_status(&self, what: Sweep, leaf: &Leaf) -> TrimStatus {
        let config = leaf.config();
        let slot_size = u64::from(self.column_of(&config));
        let total_bytes = u64::from(config.slots) * slot_size;
        let none = |state| TrimStatus { state, done_bytes: 0, total_bytes, trimmed_bytes: 0, since: 0 };
        match self.sweeps(what).lock().get(&leaf.id()) {
            _ if !takes(what, leaf) => none(TrimState::Unsupported),
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

    /// Bytes left to sweep; 0 if no sweep of this kind is under way.
    #[must_use]
    pub fn sweep_remaining(&self, what: Sweep) -> u64 {
        self.sweep_remaining_on(what, &[])
    }

    /// The same on the devices with these paths; on all, if none is named.
    #[must_use]
    pub fn sweep_remaining_on(&self, what: Sweep, paths: &[String]) -> u64 {
        if self.core.is_suspended() {
            return 0;
        }
        let active = |status: &TrimStatus| status.state == TrimState::Active;
        // Nobody waits for a device that the operator has taken offline.
        let leaves = self.leaves().into_iter().filter(|leaf| !self.rests(leaf));
        let leaves = leaves.filter(|leaf| paths.is_empty() || paths.contains(&leaf.path()));
        let statuses = leaves.map(|leaf| self.trim_status(what, &leaf)).filter(active);
        statuses.map(|status| (status.total_bytes - status.done_bytes).max(1)).sum()
    }
}

fn takes_discards(leaf: &Leaf) -> bool {
    // A store of whole objects holds nothing in a free slot.
    leaf.device.can_discard() && leaf.device.character().appendable
}

fn takes(what: Sweep, leaf: &Leaf) -> bool {
    match what {
        Sweep::Trim => takes_discards(leaf),
        Sweep::Initialize => leaf.device.character().appendable,
    }
}

/// Whether a command fits the state of a device.
fn check(what: Sweep, trims: &Trims, leaf: &Leaf, command: TrimCommand) -> Result<()> {
    let state = trims.get(&leaf.id()).map_or(TrimState::Untrimmed, |trim| trim.state);
    let path = leaf.path();
    match (command, state) {
        (TrimCommand::Start { .. }, _) if !takes(what, leaf) => Err(Error::TrimUnsupported { path }),
        (TrimCommand::Start { .. }, TrimState::Active) => Err(Error::TrimActive { what, path }),
        (TrimCommand::Start { .. }, _)
        | (TrimCommand::Suspend | TrimCommand::Cancel, TrimState::Active)
        | (TrimCommand::Cancel, TrimState::Suspended) => Ok(()),
        (TrimCommand::Forget, TrimState::Active) => Err(Error::TrimActive { what, path }),
        (TrimCommand::Forget, _) => Ok(()),
        (TrimCommand::Suspend | TrimCommand::Cancel, _) => Err(Error::TrimNone { what, path }),
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
