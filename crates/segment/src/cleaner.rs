//! The cleaner: copies what lives out of segments that are mostly dead, so that their slots can be used again.
//! Why it always gets on is argued in the crate's documentation.

use steadfast_format::{DatasetId, SegmentId};

use crate::Class;
use crate::error::Error;
use crate::space::{Space, lock};
use crate::table::Row;
use steadfast_device::Place;

/// What one round of cleaning did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CleanReport {
    /// Segments from which everything was moved.
    pub segments_emptied: u32,
    /// Bytes copied.
    pub bytes_moved: u64,
    /// Segments that could not be read; they are left alone until the next import.
    pub segments_unreadable: u32,
    /// True if there was no slot to copy into.
    pub stopped_for_space: bool,
}

/// Free slots below which cleaning begins, as a share of all slots, and its bounds.
const LOW_DIVISOR: u32 = 16;
const LOW_MIN: u32 = 10;
const LOW_MAX: u32 = 64;
/// Free slots above what file content may not take, below which the cheapest victims are taken whatever their age or fill.
const URGENT_ABOVE: u32 = 4;
/// Victims that live more than this (in sixteenths) are not worth their copying unless it is urgent.
const WORTHWHILE_SIXTEENTHS: u64 = 14;
/// A victim of more runs than this is read whole: one large read costs less than many small ones.
const READ_WHOLE_RUNS: usize = 16;

/// Free slots against what is wanted.
struct Pressure {
    soon_free: u32,
    /// Below this, gain comes before cost.
    urgent: u32,
    /// Below this, cleaning begins.
    low: u32,
    /// At this, it ends.
    high: u32,
}

impl Pressure {
    fn is_urgent(&self) -> bool {
        self.soon_free < self.urgent
    }
}

/// A segment the cleaner may take.
struct Candidate {
    id: SegmentId,
    score: f64,
}

/// What is needed to copy a victim.
struct Victim {
    id: SegmentId,
    row: Row,
}

impl Space {
    /// How slots stand: those that are free once this commit is done, and what is wanted.
    fn pressure(&self) -> Pressure {
        let table = &self.read_state().table;
        let emptied = u32::try_from(table.emptied.len()).unwrap_or(u32::MAX);
        let urgent = Self::floor(table, Class::Data, false) + URGENT_ABOVE;
        let low = (table.total_slots() / LOW_DIVISOR).clamp(LOW_MIN, LOW_MAX).max(urgent + URGENT_ABOVE);
        Pressure { soon_free: table.free_slots() + emptied, urgent, low, high: low + low / 2 }
    }

    /// True if slots run low and there is something to gain. Writers should wait for cleaning once
    /// [`Space::room_for_txg_bytes`] is less than they need.
    #[must_use]
    pub fn needs_cleaning(&self) -> bool {
        let pressure = self.pressure();
        pressure.soon_free < pressure.low && !self.candidates(pressure.is_urgent()).is_empty()
    }

    /// Cleans until enough slots will be free, or `budget_bytes` were copied. Sync context only, before the
    /// changes of the table are taken. The slots come back with the commit.
    pub fn clean(&self, budget_bytes: u64) -> Result<CleanReport, Error> {
        let _sync = lock(&self.sync);
        let mut report = CleanReport::default();
        for candidate in self.candidates(self.pressure().is_urgent()) {
            let pressure = self.pressure();
            if pressure.soon_free >= pressure.high || report.bytes_moved >= budget_bytes {
                break;
            }
            self.clean_segment(candidate.id, &mut report)?;
            if report.stopped_for_space {
                break;
            }
        }
        Ok(report)
    }

    /// Segments that may be taken, best first.
    fn candidates(&self, urgent: bool) -> Vec<Candidate> {
        let state = self.read_state();
        let slot_units = u64::from(self.geometry.slot_units());
        let next = state.table.next_id.0;
        let mut candidates: Vec<Candidate> = state
            .table
            .rows
            .iter()
            .filter(|(_, row)| !row.open && !row.unreadable)
            .filter(|(_, row)| {
                let live = u64::from(row.live);
                live < slot_units && (urgent || live * 16 <= slot_units * WORTHWHILE_SIXTEENTHS)
            })
            .map(|(&id, row)| {
                let used = f64::from(row.live) / slot_units as f64;
                let age = (next - id.0) as f64;
                // Cost-benefit; the logarithm keeps very old, nearly full segments from always winning.
                let weight = if urgent { 1.0 } else { age.log2().max(1.0) };
                Candidate { id, score: (1.0 - used) / (1.0 + used) * weight }
            })
            .collect();
        candidates.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.id.cmp(&b.id)));
        candidates
    }

    /// Moves everything that lives out of one segment.
    fn clean_segment(&self, id: SegmentId, report: &mut CleanReport) -> Result<(), Error> {
        let victim = {
            let state = self.read_state();
            match state.table.rows.get(&id) {
                Some(row) if !row.open => Victim { id, row: row.clone() },
                _ => return Ok(()),
            }
        };
        let runs = victim.row.dead.live_runs(victim.row.filled);
        let whole = runs.len() > READ_WHOLE_RUNS;
        let unit = self.geometry.unit;
        let image = if whole { Some(self.read_units(&victim, 0, victim.row.filled)) } else { None };
        let image = match image {
            None => None,
            Some(Some(bytes)) => Some(bytes),
            Some(None) => return self.leave_unreadable(id, report),
        };
        for (start, count) in runs {
            let read;
            let bytes = match &image {
                Some(image) => &image[(start * unit) as usize..((start + count) * unit) as usize],
                None => match self.read_units(&victim, start, count) {
                    Some(bytes) => {
                        read = bytes;
                        &read[..]
                    }
                    None => return self.leave_unreadable(id, report),
                },
            };
            if !self.move_run(&victim, start, bytes, report)? {
                report.stopped_for_space = true;
                return Ok(());
            }
        }
        report.segments_emptied += 1;
        Ok(())
    }

    /// Copies living units of a victim, in as many parts as segments make necessary. False if no slot is left.
    fn move_run(
        &self,
        victim: &Victim,
        start: u32,
        bytes: &[u8],
        report: &mut CleanReport,
    ) -> Result<bool, Error> {
        let (owner, class): (DatasetId, Class) = (victim.row.owner, victim.row.class.cleaned_into());
        let (mut rest, mut at) = (bytes, start);
        while !rest.is_empty() {
            let (address, units) = match self.append_part(owner, class, rest) {
                Ok(part) => part,
                Err(Error::NoSpace) => return Ok(false),
                Err(error) => return Err(error),
            };
            let target = (address.segment, address.offset / self.geometry.unit);
            self.write_state().table.relocate(victim.id, at, target, units);
            let taken = units as usize * self.geometry.unit as usize;
            report.bytes_moved += taken as u64;
            rest = &rest[taken..];
            at += units;
        }
        Ok(true)
    }

    /// Units of a victim as its device has them. Whether they are right is for readers to judge: a copy of rot is as
    /// detectable as the rot.
    fn read_units(&self, victim: &Victim, start: u32, count: u32) -> Option<Vec<u8>> {
        let unit = self.geometry.unit;
        let place = Place { segment: victim.id, slot: victim.row.slot, slot_size: self.geometry.slot_size };
        let mut bytes = vec![0; (count * unit) as usize];
        self.read_place(victim.row.device, place, start * unit, &mut bytes).ok().map(|()| bytes)
    }

    fn leave_unreadable(&self, id: SegmentId, report: &mut CleanReport) -> Result<(), Error> {
        report.segments_unreadable += 1;
        if let Some(row) = self.write_state().table.rows.get_mut(&id) {
            row.unreadable = true;
        }
        Ok(())
    }
}
