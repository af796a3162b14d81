//! Tiles of the parity device at a store: steps of the work there.
//! Decisions 0263, 0270.

use super::{PASS, PAUSE, Parity, reading};
use crate::core::error::Result;
use crate::core::events::EventKind;
use crate::devices::state::Devices;
use std::sync::atomic::Ordering;
use std::time::Duration;
use steadfast_por::tile_store::tend;
use steadfast_por::{SharedParity, TileStore, TilesStatus, tile_store};

impl Devices {
    /// A step of the work for which the store of the tiles is asked, where the tiles lie at one and
    /// tasks run beside each other. Gives when to look again.
    pub(crate) fn tiles_step(&self) -> Result<Option<Duration>> {
        let Some(parity) = self.parity() else { return Ok(None) };
        let Ok(code) = &parity.code else { return Ok(None) };
        let is_due = {
            let code = reading(code);
            code.bodies().is_some() && !code.has_failed()
        };
        if is_due { self.tend_and_pass(&parity, code) } else { Ok(None) }
    }

    pub(super) fn tend_and_pass(&self, parity: &Parity, code: &SharedParity) -> Result<Option<Duration>> {
        // The pass goes on beside a list of any length.
        let tends = self.tend_step(parity, code)?;
        let next = self.pass_step(parity, code)?;
        Ok(next.into_iter().chain(tends).min())
    }

    /// Lets some objects at the store of the tiles go that no head names. Gives when to look again.
    fn tend_step(&self, parity: &Parity, code: &SharedParity) -> Result<Option<Duration>> {
        let now = self.core.env.clock.monotonic_ns();
        let Some(bodies) = tile_store(&reading(code)) else { return Ok(None) };
        if let wait @ 1.. = parity.tend_ns.load(Ordering::Relaxed).saturating_sub(now) {
            return Ok(Some(Duration::from_nanos(wait)));
        }
        let committed = parity.committed.load(Ordering::Acquire);
        // [por.23]
        let mut is_ours = Ok(());
        let tended = tend(code, committed, &mut || {
            is_ours = self.core.check_ours();
            is_ours.is_ok()
        });
        is_ours?;
        self.note_tiles(parity, &bodies);
        Ok(match tended {
            Ok(more) => more.then_some(PAUSE),
            Err(_) => {
                parity.tend_ns.store(self.after_a_failure(), Ordering::Relaxed);
                Some(PASS)
            }
        })
    }

    /// Tells once that the store of the tiles fails.
    pub(super) fn note_tiles(&self, parity: &Parity, bodies: &TileStore) {
        let TilesStatus { address, trouble, lost, .. } = bodies.status();
        let lost = lost.map(|tile| format!("tile {tile} is missing there, or has other bytes"));
        let reason = lost.or(trouble);
        let was_away = parity.tiles_away.swap(reason.is_some(), Ordering::Relaxed);
        if let Some(reason) = reason.filter(|_| !was_away) {
            self.core.events.note(EventKind::TilesAway { address, reason });
        }
    }
}
