//! Cuts of the power: at which write, and the content of the devices afterwards.
//!
//! The log of a workload is walked event by event. A write before the last flush of its device is
//! durable; of what came after it, each write may have landed or not, whole or in part. At each
//! event the states are enumerated that the event makes newly possible: a write makes those in
//! which it landed; the return of an operation makes no new ones, but promises more of all that are
//! possible, so they are judged again.

use crate::draw::Draw;
use crate::log::{Area, Event, EventKind};
use crate::pages::{Image, PAGE, Prepared};

/// How thoroughly states are enumerated.
#[derive(Clone, Copy, Debug)]
pub struct Depth {
    /// Up to so many unflushed writes all subsets are tried.
    pub all_below: usize,
    /// Above that, so many drawn ones besides the regular ones.
    pub drawn: usize,
    /// Writes are torn.
    pub tears: bool,
    /// Bytes that a device writes all or nothing: 512 or 4,096.
    pub sector: usize,
    /// Of a log about so many states are drawn, spread over its events, and never more than twice
    /// as many; `None`: all.
    pub states_max: Option<usize>,
}

impl Depth {
    /// For the cuts of a workload.
    pub const FULL: Depth = Depth { all_below: 7, drawn: 48, tears: true, sector: 512, states_max: None };
    /// For cuts inside recovery.
    pub const SECOND: Depth = Depth { all_below: 2, drawn: 4, tears: false, sector: 512, states_max: None };
    /// For pools of many devices, whose states are dear and many: each write has all others of its
    /// moment beside it.
    pub const SAMPLED: Depth = Depth { all_below: 3, drawn: 8, states_max: Some(96), ..Depth::FULL };
    /// For cuts inside the recovery of such a pool.
    pub const SAMPLED_SECOND: Depth = Depth { states_max: Some(16), ..Depth::SECOND };
}

/// Fate of an unflushed write.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It never happened.
    Dropped,
    /// It landed.
    Applied,
    /// Sectors `from..to` of it landed.
    Part(usize, usize),
    /// All but these did.
    Hole(usize, usize),
    /// Every other sector did.
    Alternate,
    /// A discarded range reads as something else.
    Garbage,
}

struct Cached {
    disk: usize,
    kind: Kept,
}

enum Kept {
    Write { at: u64, bytes: std::sync::Arc<[u8]>, prepared: Prepared, area: Area },
    Discard { at: u64, length: u64 },
}

/// How far the workload was when the power went.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Moment {
    /// Events that had happened.
    pub event: usize,
    /// Operations that had begun.
    pub begun: usize,
    /// Operations that had returned.
    pub returned: usize,
}

/// Walks a log.
pub struct Cutter {
    durable: Vec<Image>,
    cached: Vec<Cached>,
    depth: Depth,
    draw: Draw,
}

impl Cutter {
    /// From images, as a log begins.
    #[must_use]
    pub fn new(images: Vec<Image>, depth: Depth, seed: u64) -> Cutter {
        Cutter { durable: images, cached: Vec::new(), depth, draw: Draw(seed) }
    }

    /// Calls `state` with every state that `events` make possible.
    ///
    /// # Errors
    /// The first that `state` returns.
    pub fn walk<E>(
        mut self,
        events: &[Event],
        mut state: impl FnMut(Moment, &[Fate], Vec<Image>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut begun, mut returned) = (0, 0);
        let mut told = 0;
        for (at, event) in events.iter().enumerate() {
            match &event.kind {
                EventKind::Begin(index) => {
                    begun = index + 1;
                    continue;
                }
                EventKind::Return(index) => returned = index + 1,
                // Writes that failed are dropped, as by a kernel that calls the next flush a
                // success.
                EventKind::FlushFailed => self.cached.retain(|cached| cached.disk != event.disk),
                EventKind::Flush => self.flush(event.disk),
                EventKind::Write { at, bytes, area } => {
                    let prepared = Prepared::new(*at, bytes);
                    let kind = Kept::Write { at: *at, bytes: bytes.clone(), prepared, area: *area };
                    self.cached.push(Cached { disk: event.disk, kind });
                }
                EventKind::Discard { at, length } => {
                    let kind = Kept::Discard { at: *at, length: *length };
                    self.cached.push(Cached { disk: event.disk, kind });
                }
            }
            let Some(share) = self.share(events.len(), told) else { continue };
            let mut choices = match &event.kind {
                EventKind::Write { .. } => self.with_newest(),
                EventKind::Flush => vec![vec![Fate::Applied; self.cached.len()]],
                EventKind::Discard { .. } => {
                    let last = self.cached.len() - 1;
                    let mut garbage = vec![Fate::Applied; last + 1];
                    garbage[last] = Fate::Garbage;
                    vec![vec![Fate::Applied; last + 1], garbage]
                }
                _ => self.subsets(self.cached.len()),
            };
            while choices.len() > share {
                let one = self.draw.below(choices.len());
                choices.swap_remove(one);
            }
            told += choices.len();
            for fates in choices {
                let moment = Moment { event: at, begun, returned };
                state(moment, &fates, self.images(&fates))?;
            }
        }
        Ok(())
    }

    /// States of the next event that are told, of a log of so many events of which so many states
    /// were told; `None` if it is left out.
    fn share(&mut self, events: usize, told: usize) -> Option<usize> {
        let Some(most) = self.depth.states_max else { return Some(usize::MAX) };
        if told >= 2 * most {
            return None;
        }
        // Where there are fewer events than states, some of each; else one of some.
        let each = most / events.max(1);
        let is_drawn = self.draw.below(events.max(1)) < most;
        (each > 0 || is_drawn).then_some(each.max(1))
    }

    fn flush(&mut self, disk: usize) {
        for cached in std::mem::take(&mut self.cached) {
            if cached.disk == disk {
                apply(&mut self.durable[disk], &cached.kind, Fate::Applied, self.depth.sector);
            } else {
                self.cached.push(cached);
            }
        }
    }

    fn images(&self, fates: &[Fate]) -> Vec<Image> {
        let mut images = self.durable.clone();
        for (cached, fate) in self.cached.iter().zip(fates) {
            apply(&mut images[cached.disk], &cached.kind, *fate, self.depth.sector);
        }
        images
    }

    /// Subsets of the first `count` cached writes.
    fn subsets(&mut self, count: usize) -> Vec<Vec<Fate>> {
        let of = |landed: &dyn Fn(usize) -> bool| -> Vec<Fate> {
            (0..count).map(|at| if landed(at) { Fate::Applied } else { Fate::Dropped }).collect()
        };
        if count <= self.depth.all_below {
            return (0..1_usize << count).map(|mask| of(&|at| mask >> at & 1 == 1)).collect();
        }
        let root = |at: usize| matches!(self.cached[at].kind, Kept::Write { area: Area::Root, .. });
        let mut choices = vec![of(&|_| true), of(&|_| false), of(&root), of(&|at| !root(at))];
        for cut in 0..count {
            choices.push(of(&|at| at < cut));
            choices.push(of(&|at| at > cut));
            choices.push(of(&|at| at == cut));
            choices.push(of(&|at| at != cut));
        }
        for turn in 0..self.depth.drawn {
            let chance = [10, 50, 90][turn % 3];
            let drawn: Vec<bool> = (0..count).map(|_| self.draw.percent(chance)).collect();
            choices.push(of(&|at| drawn[at]));
        }
        choices
    }

    /// Everything in which the newest write landed, at least in part.
    fn with_newest(&mut self) -> Vec<Vec<Fate>> {
        let newest = self.cached.len() - 1;
        let mut choices = self.subsets(newest);
        for choice in &mut choices {
            choice.push(Fate::Applied);
        }
        if self.depth.tears {
            for others in [Fate::Applied, Fate::Dropped] {
                for tear in self.tears(newest, false) {
                    let mut choice = vec![others; newest + 1];
                    choice[newest] = tear;
                    choices.push(choice);
                }
            }
            for older in 0..newest {
                for tear in self.tears(older, true) {
                    let mut choice = vec![Fate::Applied; newest + 1];
                    choice[older] = tear;
                    choices.push(choice);
                }
            }
        }
        choices
    }

    fn tears(&mut self, at: usize, few: bool) -> Vec<Fate> {
        let Kept::Write { bytes, area, .. } = &self.cached[at].kind else { return vec![Fate::Garbage] };
        if !area.is_torn() {
            return Vec::new();
        }
        let sectors = bytes.len().div_ceil(self.depth.sector);
        if sectors < 2 {
            return Vec::new();
        }
        let middle = sectors / 2;
        let mut tears = vec![Fate::Part(0, middle), Fate::Hole(middle, middle + 1)];
        if few {
            return tears;
        }
        tears.extend([Fate::Alternate, Fate::Part(middle, sectors)]);
        if *area == Area::Root || sectors <= 4 {
            for cut in 1..sectors {
                tears.extend([
                    Fate::Part(0, cut),
                    Fate::Part(cut, sectors),
                    Fate::Hole(cut - 1, cut),
                    Fate::Part(cut, cut + 1),
                ]);
            }
        } else {
            tears.extend([Fate::Part(0, 1), Fate::Part(0, sectors - 1), Fate::Part(1, sectors)]);
            let page = PAGE / self.depth.sector;
            let drawn = 1 + self.draw.below(sectors - 1);
            tears.extend([Fate::Part(0, drawn), Fate::Hole(drawn - 1, (drawn + page).min(sectors))]);
        }
        tears
    }
}

fn apply(image: &mut Image, kept: &Kept, fate: Fate, sector: usize) {
    match kept {
        Kept::Discard { at, length } => match fate {
            Fate::Dropped => {}
            Fate::Garbage => image.garble(*at, *length),
            _ => image.discard(*at, *length),
        },
        Kept::Write { at, bytes, prepared, .. } => {
            let mut part = |from: usize, to: usize| {
                let (from, to) = (from * sector, (to * sector).min(bytes.len()));
                if from < to {
                    image.write(at + from as u64, &bytes[from..to]);
                }
            };
            let sectors = bytes.len().div_ceil(sector);
            match fate {
                Fate::Dropped | Fate::Garbage => {}
                Fate::Applied => image.apply(prepared),
                Fate::Part(from, to) => part(from, to),
                Fate::Hole(from, to) => {
                    part(0, from);
                    part(to, sectors);
                }
                Fate::Alternate => (0..sectors).step_by(2).for_each(|at| part(at, at + 1)),
            }
        }
    }
}

/// One fingerprint for all devices.
#[must_use]
pub fn print(images: &[Image]) -> u128 {
    let rotated = images.iter().zip(0..).map(|(image, disk)| image.print().rotate_left(17 * disk));
    rotated.fold(0, |all, print| all ^ print)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn write(disk: usize, at: u64, byte: u8, length: usize) -> Event {
        let kind = EventKind::Write { at, bytes: vec![byte; length].into(), area: Area::Segment };
        Event { disk, kind }
    }

    fn states(events: &[Event], disks: usize) -> HashSet<Vec<[u8; 3]>> {
        let depth = Depth { tears: false, ..Depth::FULL };
        let mut seen = HashSet::new();
        let cutter = Cutter::new(vec![Image::blank(64 << 20); disks], depth, 1);
        let walked: Result<(), ()> = cutter.walk(events, |_, _, images| {
            let bytes = |image: &Image| {
                let mut out = [0; 3];
                (0_u64..3).for_each(|at| {
                    image.read(at * 4096, &mut out[at as usize..][..1]);
                });
                out
            };
            seen.insert(images.iter().map(bytes).collect());
            Ok(())
        });
        walked.expect("no state is refused");
        seen
    }

    #[test]
    fn unflushed_writes_land_in_every_combination_and_flushed_ones_surely() {
        let events = [
            write(0, 0, 1, 4096),
            Event { disk: 0, kind: EventKind::Flush },
            write(0, 4096, 2, 4096),
            write(0, 8192, 3, 4096),
        ];
        let expected: HashSet<Vec<[u8; 3]>> =
            [[1, 0, 0], [1, 2, 0], [1, 0, 3], [1, 2, 3]].into_iter().map(|state| vec![state]).collect();
        assert_eq!(states(&events, 1), expected);
    }

    #[test]
    fn a_flush_of_one_device_says_nothing_of_another() {
        let events = [
            write(0, 0, 1, 4096),
            write(1, 0, 2, 4096),
            Event { disk: 1, kind: EventKind::Flush },
            Event { disk: 0, kind: EventKind::Return(0) },
        ];
        assert!(states(&events, 2).contains(&vec![[0, 0, 0], [2, 0, 0]]));
    }

    #[test]
    fn of_a_long_log_some_states_of_all_its_parts_are_drawn_and_never_too_many() {
        let mut events = Vec::new();
        for at in 0..2000 {
            events.push(write(at % 5, (at / 5 % 9) as u64 * 4096, at as u8 | 1, 4096));
            if at % 100 == 99 {
                events.extend((0..5).map(|disk| Event { disk, kind: EventKind::Flush }));
            }
        }
        for most in [1, 16, 96, 5000] {
            let depth = Depth { states_max: Some(most), ..Depth::SAMPLED };
            let (mut states, mut parts) = (0, HashSet::new());
            let cutter = Cutter::new(vec![Image::blank(64 << 20); 5], depth, 7);
            let walked: Result<(), ()> = cutter.walk(&events, |moment, _, _| {
                states += 1;
                parts.insert(moment.event * 4 / events.len());
                Ok(())
            });
            walked.expect("no state is refused");
            assert!(states <= 2 * most && (most == 1 || states >= most / 2), "{states} of {most}");
            assert!(most < 16 || parts.len() == 4, "{parts:?} of {most}");
        }
    }

    #[test]
    fn writes_are_torn_at_sectors() {
        let mut torn = HashSet::new();
        let cutter = Cutter::new(vec![Image::blank(64 << 20)], Depth::FULL, 1);
        let walked: Result<(), ()> = cutter.walk(&[write(0, 0, 1, 2048)], |_, _, images| {
            let mut out = [0; 2048];
            images[0].read(0, &mut out);
            torn.insert(out.chunks(512).map(|sector| sector == [1; 512]).collect::<Vec<_>>());
            Ok(())
        });
        walked.expect("no state is refused");
        for wanted in [[true, true, false, false], [false, true, true, true], [true, false, true, true]] {
            assert!(torn.contains(wanted.as_slice()), "{wanted:?}");
        }
    }
}
