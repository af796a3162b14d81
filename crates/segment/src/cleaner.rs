//! The cleaner: copies living units out of segments that are mostly dead, so that their slots can
//! be used again. ZFS has none, as it allocates into the gaps; this is the segment cleaner of LFS.
//! The crate's documentation argues why it always makes progress.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Mutex;

use steadfast_env::Job;
use steadfast_format::{Address, Column, DatasetId, Placement, SegmentId};

use crate::Class;
use crate::commit_room::node_units;
use crate::error::Error;
use crate::headroom::CleanerRoom;
use crate::row::Row;
use crate::side::Side;
use crate::space::{Space, lock};
use crate::store_room::{MERGED_MIN, SmallObjects};
use crate::uneven::SlotUnits;
use steadfast_device::SegmentPlace;

/// Result of one round of cleaning.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct CleanReport {
    /// Segments from which everything was moved.
    pub segments_emptied: u32,
    /// Bytes copied.
    pub bytes_moved: u64,
    /// Segments that could not be read; they are left alone until the next import, or until errors
    /// are cleared.
    pub segments_unreadable: u32,
    /// True if there was no slot to copy into.
    pub stopped_for_space: bool,
}

/// Room, in slots, that cleaning keeps for file content whatever it costs, as a share of all slots,
/// and its bounds. More of them let larger txgs in; but a free slot holds nothing that dies, so
/// each of them makes victims live longer.
const SPARE_DIVISOR: u32 = 64;
const SPARE_MIN: u32 = 4;
const SPARE_MAX: u32 = 64;
/// Where little lives that costs next to nothing, and small txgs cost much: a page overwritten at
/// random changes a leaf, which is written once a txg. So of what does not live beyond an eighth of
/// all slots this share is kept besides, up to a bound.
const CHEAP_SHARE: u32 = 4;
const CHEAP_MAX: u32 = 128;
/// Room, in slots, below which the cheapest victims are taken whatever their age.
const URGENT_SLOTS: i64 = 1;
/// Age outweighs cost only so far: no victim gives back less than the cheapest one's gain divided
/// by this.
const WORTHWHILE_SHARE: u32 = 2;
/// A victim of more runs than this is read whole: one large read costs less than many small ones.
const READ_WHOLE_RUNS: usize = 16;
/// Victims on stores read side by side at most, and the bytes they may hold.
const FETCHES_MAX: usize = 32;
const FETCH_BYTES_MAX: u64 = 64 << 20;
/// A victim on a store of which more than this share of its span is dead is read run by run, unless
/// the span is short: bytes may cost more there than requests.
const SPARSE_SHARE: u32 = 4;
const SPARSE_BYTES: u32 = 256 << 10;
/// Runs moved between two counts of what the commit's own metadata takes.
const NOTE_RUNS: u32 = 16;
/// Changed blocks for which there should be room at least.
const TXG_BLOCKS_MIN: u64 = 64;
/// File content that a txg may hold however dear cleaning is, if there is room for it.
const TXG_BYTES_MIN: u64 = 2 << 20;
/// A victim on a special group gives back this part of a slot at least: what is full of what lives
/// is left alone.
const SPECIAL_SHARE: u32 = 8;
/// Slots of the special side wanted whatever it costs are no more than this part of it.
const SPECIAL_SPARE_SHARE: u32 = 8;
/// Narrow segments are written anew for what their slots are worth where this part of the capacity
/// lives, in eighths.
const WIDENING_EIGHTHS: u64 = 7;

/// Room for what is written against what is wanted, in units.
struct Pressure {
    /// Room once this commit is done: free slots less those kept, and what open segments still
    /// take.
    room: i64,
    /// Goal of cleaning: at this level it gives back as much as is appended, at twice the level
    /// nothing.
    target: i64,
    /// The part of that which is worth any price: below, commits are made for nothing but cleaning,
    /// and txgs get small.
    least: i64,
    /// The part of it that content may take: without any, none is let in.
    content: i64,
    /// Below this, gain comes before cost.
    urgent: i64,
    unit: u64,
}

impl Pressure {
    fn is_urgent(&self) -> bool {
        self.room < self.urgent || self.content <= 0
    }

    /// Bytes to give back for `appended` bytes of file content: in proportion, more the less room
    /// there is.
    fn wanted(&self, appended: u64) -> u64 {
        let missing = self.target - self.room;
        let share = (self.target + missing).clamp(0, 2 * self.target).unsigned_abs();
        appended * share / self.target.unsigned_abs() + missing.max(0).unsigned_abs() * self.unit
    }
}

/// A segment the cleaner may take. The greatest is the best.
struct Candidate {
    id: SegmentId,
    score: f64,
    /// Units that its slots are worth, and that come back for what is copied: none if it has to go
    /// in any case.
    worth: u32,
    back: u32,
}

impl Ord for Candidate {
    fn cmp(&self, other: &Candidate) -> Ordering {
        self.score.total_cmp(&other.score).then(other.id.cmp(&self.id))
    }
}

impl PartialOrd for Candidate {
    fn partial_cmp(&self, other: &Candidate) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Candidate {
    fn eq(&self, other: &Candidate) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Candidate {}

/// Units of a victim that were read, from the first one on.
struct Image {
    first: u32,
    bytes: Vec<u8>,
}

impl Image {
    fn part(&self, start: u32, units: u32, unit: u32) -> &[u8] {
        let at = ((start - self.first) * unit) as usize;
        &self.bytes[at..at + (units * unit) as usize]
    }
}

/// Units of a victim to be read: the first one, and how many.
type Span = (Victim, u32, u32);

/// Victims that were read ahead of their turn, and those that were not for a reason.
type Images = BTreeMap<SegmentId, Option<Image>>;

/// Room needed to copy a victim.
struct Victim {
    id: SegmentId,
    row: Row,
}

impl Space {
    /// How room stands on a side, and what is wanted there.
    fn pressure(&self, side: Side) -> Pressure {
        let table_overhead = self.commit_room(self.geometry.unit).overhead(TXG_BLOCKS_MIN);
        let wished = self.wished_units();
        let table = &self.read_state().table;
        let slot_units = i64::from(self.geometry.slot_units());
        let reachable = table.reachable_of(side) / slot_units.unsigned_abs();
        let slots = u32::try_from(reachable).unwrap_or(u32::MAX);
        let spare = (slots / SPARE_DIVISOR).clamp(SPARE_MIN, SPARE_MAX);
        let live =
            u32::try_from(table.live_units_of_side(side) / slot_units.unsigned_abs()).unwrap_or(u32::MAX);
        let cheap = ((slots - slots / 8).saturating_sub(live) / CHEAP_SHARE).min(CHEAP_MAX);
        let unit = u64::from(self.geometry.unit);
        if side == Side::Special {
            let least = i64::from(spare.min(slots / SPECIAL_SPARE_SHARE).max(1)) * slot_units;
            let after = table.after_commit(table.headroom(0), None);
            return Pressure {
                room: after.special + table.open_room_units(&[Class::Small]),
                target: least + i64::from(cheap) * slot_units,
                least,
                content: i64::MAX,
                urgent: URGENT_SLOTS * slot_units,
                unit,
            };
        }
        let metadata = table_overhead / u64::from(self.geometry.unit);
        let owners = u32::try_from(table.owners.len()).unwrap_or(u32::MAX);
        let begun = table.open_room_units(&[Class::Data]).min(slot_units);
        let content = table.content_headroom_units(Self::CLEANER_SLOTS) + begun;
        let least = i64::from(spare) * slot_units + i64::try_from(metadata).unwrap_or(i64::MAX);
        let least = least.max(wished);
        let after = table.after_commit(table.headroom(Self::CLEANER_SLOTS + (owners - 1)), None);
        Pressure {
            content,
            room: after.content() + table.open_room_units(&[Class::Data, Class::Clean]),
            target: least + i64::from(cheap) * slot_units,
            least,
            urgent: URGENT_SLOTS * slot_units,
            unit,
        }
    }

    /// True if slots are short and there is something to gain, whether or not anything is written.
    /// Special groups are cleaned in commits that are made anyway.
    #[must_use]
    pub fn needs_cleaning(&self) -> bool {
        let pressure = self.pressure(Side::Normal);
        let short = pressure.room < pressure.least || self.read_state().table.garbage().wanted() > 0;
        short && !self.candidates(Side::Normal, pressure.is_urgent()).is_empty() || self.read_state().widening
    }

    /// True if cleaning cannot wait for a better time: slots are short, or segments have to go.
    #[must_use]
    pub fn must_clean(&self) -> bool {
        let is_short = |side| {
            let pressure = self.pressure(side);
            pressure.room < pressure.least || pressure.is_urgent()
        };
        let (special, leaving) = {
            let state = self.read_state();
            (state.table.has_special(), state.table.empty_leaving)
        };
        leaving || self.may_widen() || is_short(Side::Normal) || special && is_short(Side::Special)
    }

    /// True if slots are short and there is nothing to gain, because what has dead units cannot be
    /// read.
    #[must_use]
    pub fn is_barren(&self) -> bool {
        let pressure = self.pressure(Side::Normal);
        pressure.room < pressure.target && self.candidates(Side::Normal, pressure.is_urgent()).is_empty()
    }

    /// Bytes of file content that operations should have reserved at once at most, if each commit's
    /// cleaner copies `clean_bytes`: what it gives back for them in two commits, and what stands
    /// free above that. No block is larger than `block_bytes_max`. Never more than half of what
    /// there is room for, because one txg is synced while the next one fills. Content needs
    /// `need_thousandths` of its bytes with the metadata that goes beyond its slots
    /// ([`CommitRoom::overhead`]), and what is given is of that kind.
    ///
    /// [`CommitRoom::overhead`]: crate::CommitRoom::overhead
    #[must_use]
    pub fn txg_bytes_max(&self, block_bytes_max: u32, clean_bytes: u64, need_thousandths: u64) -> u64 {
        let room = self.room_for_txg_bytes(block_bytes_max);
        let pressure = self.pressure(Side::Normal);
        let live = self.read_state().victim_live.max(0.01);
        let gain = (clean_bytes as f64 * (1.0 - live).max(0.0) / live) as u64;
        let above = (pressure.room - pressure.least).max(0).unsigned_abs() * pressure.unit;
        let wish = (gain.saturating_mul(2) + above).max(TXG_BYTES_MIN);
        (wish.saturating_mul(need_thousandths.max(1000)) / 1000).min(room / 2)
    }

    /// Gives back about as much as was appended since the last commit, more if free slots are
    /// short, less if there are many; but begins no further victim when `budget_bytes` were copied,
    /// and takes no room that operations need which were admitted for `promised_bytes` (of content,
    /// and of metadata beyond its slots) and are not written yet, nor what this commit's own
    /// metadata takes: `metadata_bytes` stores what [`Space::table_changes`] gives, and says how
    /// many bytes of one copy will then be written at most, padded to units; `None` ends the
    /// cleaning. Sync context only, after the content and the metadata of datasets was appended.
    /// The slots come back with the commit.
    pub fn clean(
        &self,
        budget_bytes: u64,
        promised_bytes: u64,
        metadata_bytes: &mut dyn FnMut() -> Option<u64>,
    ) -> Result<CleanReport, Error> {
        let _sync = lock(&self.sync);
        let mut report = CleanReport::default();
        let unit = u64::from(self.geometry.unit);
        let appended = unit * std::mem::take(&mut self.write_state().table.appended_units);
        let promised_units = u32::try_from(promised_bytes.div_ceil(unit)).unwrap_or(u32::MAX);
        let pressure = self.pressure(Side::Normal);
        let alone = appended == 0 && pressure.is_urgent();
        let emptying_units = self.geometry.slot_units();
        let room =
            CleanerRoom { alone, promised_units, pool_units: 0, emptying: Side::Normal, emptying_units };
        // These are cleaned at any pressure: else a pool would be full before its devices are, and
        // a removal would wait for ever.
        let (widening, leaving) = (self.may_widen(), self.read_state().table.empty_leaving);
        let least = |asked: bool| if asked { u64::from(self.geometry.slot_size) } else { 0 };
        let garbage = self.read_state().table.garbage().wanted() * unit;
        let wanted = pressure.wanted(appended).max(least(widening || leaving)).max(garbage);
        self.clean_side(room, &pressure, wanted, budget_bytes, metadata_bytes, &mut report)?;
        self.write_state().widening = widening && report.segments_emptied > 0;
        if self.read_state().table.has_special() {
            let special = unit * self.read_state().table.special_units;
            let pressure = self.pressure(Side::Special);
            let room = CleanerRoom { alone: false, emptying: Side::Special, ..room };
            // Its devices are others, so what was copied on the other side counts for nothing here.
            let budget = budget_bytes + report.bytes_moved;
            let wanted = pressure.wanted(special).max(least(leaving));
            self.clean_side(room, &pressure, wanted, budget, metadata_bytes, &mut report)?;
            // The cleaner's own copies are not to be given back for.
            self.write_state().table.special_units = 0;
        }
        self.write_state().table.empty_leaving = false;
        Ok(report)
    }

    /// Cleans one side until so many bytes are gained or copied.
    fn clean_side(
        &self,
        room: CleanerRoom,
        pressure: &Pressure,
        wanted: u64,
        budget_bytes: u64,
        metadata_bytes: &mut dyn FnMut() -> Option<u64>,
        report: &mut CleanReport,
    ) -> Result<(), Error> {
        let unit = u64::from(self.geometry.unit);
        let moved_before = report.bytes_moved;
        self.write_state().cleaner_room = room;
        if wanted == 0 {
            return Ok(());
        }
        let mut candidates = self.candidates(room.emptying, pressure.is_urgent());
        // Bytes that emptied segments held, that were gained by it, and that were copied because
        // they had to go.
        let (mut held, mut gained, mut removed) = (0, 0, 0);
        let mut count = || self.count_metadata(metadata_bytes);
        if !count() {
            report.stopped_for_space = true;
            return Ok(());
        }
        let (mut ahead, mut images) = (VecDeque::new(), Images::new());
        while gained < wanted && report.bytes_moved < budget_bytes {
            let next = ahead.pop_front().or_else(|| candidates.pop());
            let Some(Candidate { id, worth, back, .. }) = next else { break };
            if !images.contains_key(&id) && self.is_on_store(id) {
                // Each is an answer from far away, so those that are likely to follow come too.
                let mut batch = vec![id];
                let mut worth = u64::from(worth) * unit;
                while batch.len() < FETCHES_MAX && worth < (wanted - gained).min(FETCH_BYTES_MAX) {
                    let Some(next) = candidates.pop() else { break };
                    worth += u64::from(next.worth) * unit;
                    batch.push(next.id);
                    ahead.push_back(next);
                }
                images = self.fetch_victims(&batch);
            }
            let image = images.remove(&id).flatten();
            let (before, emptied) = (report.bytes_moved, report.segments_emptied);
            self.write_state().cleaner_room.emptying_units = back;
            self.clean_segment(id, image, report, &mut count)?;
            let moved = report.bytes_moved - before;
            if back == 0 {
                removed += moved;
            }
            if report.segments_emptied > emptied {
                held += u64::from(back) * unit;
            }
            if report.stopped_for_space {
                break;
            }
            // One that is left alone gives back nothing, so others have to.
            if report.segments_emptied > emptied {
                gained += (u64::from(worth) * unit).saturating_sub(moved);
            }
        }
        if held > 0 && room.emptying == Side::Normal {
            let moved = report.bytes_moved - moved_before - removed;
            let live = moved as f64 / held as f64;
            let mut state = self.write_state();
            state.victim_live += (live - state.victim_live) / 4.0;
        }
        Ok(())
    }

    /// Segments of a side that may be taken.
    fn candidates(&self, side: Side, urgent: bool) -> BinaryHeap<Candidate> {
        let state = self.read_state();
        let table = &state.table;
        let next = table.next_id.counter();
        let mut known = SlotUnits::new();
        let closed = || {
            let rows = table.rows.iter();
            // [kept.2]
            rows.filter(|(_, row)| !row.open && !row.unreadable && !row.pinned && row.class != Class::Log)
                .filter(|(_, row)| table.side_of(row) == side)
        };
        // Small objects of one stream can be merged, whatever lives in them.
        let mut small = SmallObjects::new();
        for (_, row) in closed().filter(|(_, row)| table.is_small_object(row)) {
            *small.entry((row.owner, row.class.cleaned_into())).or_default() += 1;
        }
        let worth_units = |row: &Row, known: &mut SlotUnits| {
            let worth = table.worth_units(row, known);
            let merges =
                || small.get(&(row.owner, row.class.cleaned_into())).is_some_and(|n| *n >= MERGED_MIN);
            match table.store_of(row.group) {
                Some(_) if row.live < row.filled || table.is_small_object(row) && merges() => {
                    worth + table.object_units()
                }
                _ => worth,
            }
        };
        // A segment of a group that leaves is emptied whatever lives there, if that is asked for.
        let leaves = |row: &Row| table.empty_leaving && table.is_group_leaving(row.group);
        let stays = closed().filter(|(_, row)| !leaves(row));
        let most = stays.map(|(_, row)| worth_units(row, &mut known).saturating_sub(row.live)).max();
        let least = if urgent { 1 } else { most.unwrap_or(0) / WORTHWHILE_SHARE };
        let least = match side {
            Side::Normal => least,
            Side::Special => least.max(self.geometry.slot_units() / SPECIAL_SHARE),
        };
        let candidates = closed().filter_map(|(&id, row)| {
            let holds = table.capacity_units(row);
            if leaves(row) {
                return Some(Candidate { id, score: f64::INFINITY, worth: holds + row.live, back: 0 });
            }
            let worth = worth_units(row, &mut known);
            let dead = worth.saturating_sub(row.live);
            if dead == 0 || dead < least {
                return None;
            }
            let used = f64::from(row.live) / f64::from(worth);
            // The counter goes on over all epochs.
            let age = next.saturating_sub(id.counter()) as f64;
            // Cost-benefit. The root of the age, not the age: by simulation the better compromise
            // between data that is overwritten evenly (1 % dearer than without age) and a hot tenth
            // (a quarter cheaper).
            let weight = if urgent { 1.0 } else { age.sqrt() };
            Some(Candidate { id, score: (1.0 - used) / (1.0 + used) * weight, worth, back: holds })
        });
        candidates.collect::<Vec<_>>().into()
    }

    /// Whether nearly all that may live does, and slots of some narrow segment are worth more than
    /// it holds: emptied, they complete what others have free.
    #[must_use]
    pub fn may_widen(&self) -> bool {
        let table = &self.read_state().table;
        if !table.has_narrow_rows() {
            return false;
        }
        let unit = u64::from(self.geometry.unit);
        let reachable = table.reachable_of(Side::Normal) * unit;
        let capacity = reachable.saturating_sub(self.reserve_of(table, reachable));
        if table.live_units_of_side(Side::Normal) * unit * 8 <= capacity * WIDENING_EIGHTHS {
            return false;
        }
        let mut known = SlotUnits::new();
        let mut rows = table.rows.values().filter(|row| !row.open && !row.unreadable && !row.pinned);
        rows.any(|row| table.worth_units(row, &mut known) > table.capacity_units(row))
    }

    /// Reads victims on stores of objects side by side, each with one request; not those of which
    /// that would be mostly what is dead, which are read run by run.
    fn fetch_victims(&self, ids: &[SegmentId]) -> Images {
        let unit = self.geometry.unit;
        let wanted: Vec<(SegmentId, Option<Span>)> = {
            let state = self.read_state();
            let span = |id: &SegmentId| {
                let row = state.table.rows.get(id).filter(|row| !row.open)?.clone();
                let runs = row.dead.live_runs(row.filled);
                let (first, last) = (*runs.first()?, *runs.last()?);
                let units = last.0 + last.1 - first.0;
                let dense = units / SPARSE_SHARE <= row.live || units * unit <= SPARSE_BYTES;
                dense.then_some((Victim { id: *id, row }, first.0, units))
            };
            ids.iter().map(|id| (*id, span(id))).collect()
        };
        let read: Vec<Mutex<Option<Image>>> = wanted.iter().map(|_| Mutex::default()).collect();
        let jobs = wanted.iter().zip(&read).map(|((_, span), read)| -> Job<'_> {
            Box::new(move || {
                let Some((victim, first, units)) = span else { return };
                let bytes = self.read_units(victim, *first, *units);
                *lock(read) = bytes.map(|bytes| Image { first: *first, bytes });
            })
        });
        self.env.tasks.run_waiting(jobs.collect());
        let read = read.into_iter().map(|read| read.into_inner().expect("no read panics"));
        wanted.into_iter().map(|(id, _)| id).zip(read).collect()
    }

    /// Moves everything that lives out of one segment, of which a part may have been read.
    fn clean_segment(
        &self,
        id: SegmentId,
        fetched: Option<Image>,
        report: &mut CleanReport,
        count: &mut dyn FnMut() -> bool,
    ) -> Result<(), Error> {
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
        // A segment that cannot be read whole may be bad where nothing lives.
        let read_whole = || {
            let bytes = self.read_units(&victim, 0, victim.row.filled)?;
            Some(Image { first: 0, bytes })
        };
        let image = fetched.or_else(|| if whole { read_whole() } else { None });
        for (at, (start, units)) in (1_u32..).zip(runs) {
            let read;
            let bytes = match &image {
                Some(image) => image.part(start, units, unit),
                None => match self.read_units(&victim, start, units) {
                    Some(bytes) => {
                        read = bytes;
                        &read[..]
                    }
                    None => return self.leave_unreadable(id, report),
                },
            };
            let moved = self.move_run(&victim, start, bytes, report)?;
            if !moved || (at.is_multiple_of(NOTE_RUNS) && !count()) {
                report.stopped_for_space = true;
                return Ok(());
            }
        }
        if !count() {
            report.stopped_for_space = true;
        }
        report.segments_emptied += 1;
        Ok(())
    }

    /// Counts what the commit has yet to write of the pool's own metadata, with what the next few
    /// moves may add and the tail. False if the cleaner has to stop.
    fn count_metadata(&self, metadata_bytes: &mut dyn FnMut() -> Option<u64>) -> bool {
        let Some(bytes) = metadata_bytes() else { return false };
        let unit = u64::from(self.geometry.unit);
        let mut state = self.write_state();
        let stored =
            state.table.class_live_units(Class::Pool0).max(state.table.class_live_units(Class::Pool1));
        // Each move changes a row and a relocation, or as many leaves as there are.
        let next = (u64::from(2 * NOTE_RUNS) * node_units(self.geometry)).min(stored);
        // The tail may have grown, and leaves the rest of a segment that it does not fit into.
        let tail = 3 * state.tail_bytes.div_ceil(unit) + node_units(self.geometry);
        let units = bytes.div_ceil(unit) + next + tail;
        state.cleaner_room.pool_units = u32::try_from(units).unwrap_or(u32::MAX);
        true
    }

    /// Copies living units of a victim, in as many parts as segments make necessary. False if no
    /// slot is left.
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
            let part = match self.append_part(owner, class, rest) {
                Err(Error::NoSpace) if class.elsewhere() != class => {
                    self.append_part(owner, class.elsewhere(), rest)
                }
                part => part,
            };
            let (address, units) = match part {
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

    /// Units of a victim as its device has them. Whether they are right is for readers to judge: a
    /// copy of rot is as detectable as the rot.
    fn read_units(&self, victim: &Victim, start: u32, count: u32) -> Option<Vec<u8>> {
        let unit = self.geometry.unit;
        let (offset, len) = (start * unit, (count * unit) as usize);
        if let Placement::Plain(Column { device, slot }) = victim.row.place {
            let place = SegmentPlace { segment: victim.id, slot, slot_size: self.geometry.slot_size };
            let mut bytes = vec![0; len];
            return self.read_place(device, place, offset, &mut bytes).ok().map(|()| bytes);
        }
        // A row that does not fit together has rot in one of its columns. To copy it would give
        // the rot a parity of its own.
        let column = self.read_state().table.column_bytes(&victim.row.place);
        let columns = self.columns(victim.id, &victim.row.place, column);
        let whole = columns.present_count() == victim.row.place.columns().count();
        let bytes = match columns.read_consistent(offset as usize, len) {
            Some(bytes) => Some(bytes),
            None if whole => None,
            None => columns.attempts(offset as usize, len).next(),
        };
        bytes.map(|bytes| bytes.to_vec())
    }

    /// True if a part of a block lies in a segment of which something could not be read.
    #[must_use]
    pub fn is_suspect(&self, address: Address, len: usize) -> bool {
        let table = &self.read_state().table;
        let pieces = table
            .units_of(address, len)
            .and_then(|(unit, units)| table.resolve(address.segment, unit, units));
        let is_bad = |id: &SegmentId| table.rows.get(id).is_some_and(|row| row.unreadable);
        pieces.is_ok_and(|pieces| pieces.iter().any(|piece| is_bad(&piece.segment)))
    }

    /// True if there are segments that could not be read, and that hold copies of content.
    #[must_use]
    pub fn has_suspect_copies(&self) -> bool {
        let state = self.read_state();
        state.table.rows.values().any(|row| row.unreadable && row.owner.copy().is_some())
    }

    /// Lets the cleaner try again what it could not read.
    pub fn retry_unreadable(&self) {
        self.write_state().table.rows.values_mut().for_each(|row| row.unreadable = false);
    }

    fn leave_unreadable(&self, id: SegmentId, report: &mut CleanReport) -> Result<(), Error> {
        report.segments_unreadable += 1;
        self.note_unreadable(id);
        Ok(())
    }

    /// A part of a segment is lost: the cleaner leaves it alone, and the search for damaged files
    /// looks there.
    pub(crate) fn note_unreadable(&self, id: SegmentId) {
        if let Some(row) = self.write_state().table.rows.get_mut(&id) {
            row.unreadable = true;
        }
    }
}
