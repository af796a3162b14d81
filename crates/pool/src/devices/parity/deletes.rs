//! Objects that are to be deleted, and could not leave the code of a parity device yet.
//!
//! ## Passes for deletes alone
//! A pass ends, a root tells of it, and the commit of that root frees objects of metadata itself:
//! these wait for a pass, too. So a pool in which nobody writes would move all of its tiles for
//! ever, for the sake of some kilobytes.

use super::{PASS, PAUSE, Parity};
use crate::devices::state::Devices;
use std::sync::atomic::Ordering;
use std::time::Duration;
use steadfast_por::parity::ParityDevice;
use steadfast_por::{Covered, Tile};

/// Objects that are read between two looks at other work.
const AT_ONCE: usize = 16;

/// Passes for deletes alone behind the last commit in which somebody wrote: objects that it freed
/// may come while the first one is under way.
const IDLE_PASSES: u32 = 2;
/// Further ones are made for deletes of this part of the tiles' bytes at least.
const WORTH_PART: u64 = 64;

impl Parity {
    /// True if objects wait for the end of a pass, and it is worth one.
    pub(super) fn is_pass_worth(&self, code: &ParityDevice) -> bool {
        let (owed, tiles) = (code.owed_bytes(), u64::from(code.figures().tiles) * Tile::SIZE as u64);
        let is_idle = self.idle_passes.load(Ordering::Relaxed) >= IDLE_PASSES;
        owed > 0 && (!is_idle || owed >= tiles / WORTH_PART)
    }
}

/// Takes some out of the code. True if there are more.
fn resume_some(store: &Covered) -> steadfast_device::Result<bool> {
    for _ in 0..AT_ONCE {
        if !store.resume_delete()? {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Devices {
    /// Tries some of those that wait. Where a store does not give one, it is asked for the next one
    /// half a minute later; one that is not in use is not asked. Gives when to look again.
    pub(super) fn resume_deletes(&self, parity: &Parity) -> Option<Duration> {
        let now = self.core.env.clock.monotonic_ns();
        let mut next = None;
        for leaf in self.leaves().iter().filter(|leaf| leaf.in_use().is_some()) {
            let Some(store) = &leaf.covered else { continue };
            let due = parity.catch_up.lock().resume_ns.get(&leaf.id()).copied().unwrap_or(0);
            let pause = match due.saturating_sub(now) {
                0 => {
                    let unread = || store.unread().map_or(0, |(count, _)| count);
                    let before = unread();
                    let resumed = resume_some(store);
                    // Those that came late wait for a pass, whoever writes. The others have one.
                    if unread() < before {
                        parity.idle_passes.store(0, Ordering::Relaxed);
                    }
                    match resumed {
                        Ok(more) => more.then_some(PAUSE),
                        Err(_) => {
                            parity.catch_up.lock().resume_ns.insert(leaf.id(), self.after_a_failure());
                            Some(PASS)
                        }
                    }
                }
                wait => store.unread().map(|_| Duration::from_nanos(wait)),
            };
            next = next.into_iter().chain(pause).min();
        }
        next
    }
}
