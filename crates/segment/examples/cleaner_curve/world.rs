//! A pool reduced to what space sees of it, and a clock that the device moves.
//!
//! Real are: [`Space`] with its table, streams, cleaner and commit hooks, the limits that the pool
//! sets, and the curve of the write throttle. Counted instead of kept are file content and the
//! nodes of trees. Played is time: the device takes bytes at a steady rate, one writer writes as
//! fast as it is let in, a commit lasts as long as its bytes and flushes.

use std::collections::VecDeque;
use std::sync::Arc;

use steadfast_device::SharedDevice;
use steadfast_env::Env;
use steadfast_format::{Address, CommitTail, DatasetId, DeviceId, GroupClass, SegmentId, Txg};
use steadfast_segment::{
    Class, CommitRoom, DeviceCounts, Geometry, GroupSpec, MemberSpec, Pace, Redundancy, Space,
};

use super::device::Blank;
use super::tree::Leaves;

const OWNER: DatasetId = DatasetId(0);
/// Dirty data that a pool allows itself.
const MEMORY_BYTES: u64 = 256 << 20;
/// Fullness at which a txg is closed, in thousandths.
const CLOSE_AT: u64 = 250;
/// Flushes of a commit.
const FLUSHES: u64 = 3;
/// Space that a write reserves for metadata, and changed blocks.
const METADATA_COST: u64 = 8 << 10;
const BLOCKS_COST: u64 = 1;
/// Commits in a row that let nothing in before the pool counts as full.
const FUTILE_MAX: u32 = 200;

/// Stored bytes of a node and items that it holds: extents, segment rows with a bitmap,
/// relocations.
#[derive(Clone, Copy, Debug)]
pub struct Nodes {
    pub bytes: [usize; 3],
    pub fill: [usize; 3],
}

impl Nodes {
    /// As LZ4 leaves them.
    pub const COMPRESSED: Nodes = Nodes { bytes: [8 << 10, 8 << 10, 4 << 10], fill: [140, 50, 210] };
    /// As large as they may be: sealed, and nothing gained by compression.
    #[allow(dead_code, reason = "one of those who share this world uses it")]
    pub const LARGEST: Nodes = Nodes { bytes: [20 << 10, 12 << 10, 12 << 10], fill: [140, 50, 210] };
}

/// Commits for which deletions wait for the cleaner, and how many go on then.
const PATIENCE: u32 = 50;
const FREES_LEAST: usize = 16;

/// An error here is one of the cleaner or its pacing: what was admitted finds room.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// The simulated pool and load.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Slots of the device.
    pub slots: u32,
    /// Slots of devices that form a raidz1 group instead, as far as the parity allows.
    pub uneven: &'static [u32],
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Bytes of a block as stored.
    pub block_bytes: u32,
    /// Living bytes, metadata included, in hundredths of the capacity.
    pub percent: u64,
    pub nodes: Nodes,
    /// Bytes that the device reads or writes in a second.
    pub device_rate: u64,
    /// Nanoseconds of a flush.
    pub flush_ns: u64,
    /// Bytes that a writer hands over in a second if nobody slows it.
    pub memory_rate: u64,
    /// Bytes that the cleaner copies in a commit, about; at the pace of a pool if nothing is said.
    pub clean_bytes: Option<u64>,
    /// Writes that wait longer are told of on standard error, with the commits that they waited
    /// for.
    pub longer_ns: u64,
    /// Tenths of the writes that go to the first tenth of the blocks; 1 is uniform.
    pub hot_tenths: u64,
}

/// Commits that are remembered.
const NOTES: usize = 16;

/// A commit, to find out how long a write waited: its bytes, and its admissions afterwards.
#[derive(Debug)]
#[allow(dead_code, reason = "read by Debug")]
struct Note {
    start_ns: u64,
    ns: u64,
    content: u64,
    metadata: u64,
    moved: u64,
    budget: u64,
    device: u64,
    limit: u64,
    room: u64,
    overhead: u64,
    free_slots: u64,
    promised: u64,
    live: u64,
    report: steadfast_segment::CleanReport,
}

/// Bytes since the measurement began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sums {
    pub accepted: u64,
    pub device_written: u64,
    pub device_read: u64,
    pub moved: u64,
    pub metadata: u64,
    pub commits: u64,
    /// Blocks deleted to keep to the share.
    pub deleted: u64,
}

/// Results of a run.
#[derive(Default)]
pub struct Seen {
    pub sums: Sums,
    pub elapsed_ns: u64,
    /// Wait of each write, in nanoseconds.
    pub waits: Vec<u64>,
    /// Duration of each commit.
    pub commits: Vec<u64>,
    /// Most bytes that one commit moved.
    pub moved_max: u64,
    /// Relocations at the end of each tenth.
    pub relocations: Vec<u64>,
    /// Living share of the room that closed segments and open ones take, at the end.
    pub taken_live: f64,
    pub fragmentation: u32,
}

pub struct World {
    setting: Setting,
    space: Space,
    extents: Leaves,
    rows: Leaves,
    runs: Leaves,
    blocks: Vec<Address>,
    tail: Vec<(Address, usize)>,
    txg: u64,
    random: u64,
    content: Vec<u8>,
    limit: u64,
    now_ns: u64,
    /// When the writer comes with its next write.
    writer_ns: u64,
    /// Since when it waits for a commit, if it does.
    waiting_ns: Option<u64>,
    /// When the last write was let in.
    admitted_ns: u64,
    /// Room that the last commit left.
    room: CommitRoom,
    /// Need of the last txg, in thousandths of its content.
    need_thousandths: u64,
    /// Bytes that may be admitted while a commit runs.
    promised: u64,
    seen: Seen,
    report: Option<steadfast_segment::CleanReport>,
    waiting_frees: u32,
    pace: Pace,
    /// The last commits.
    notes: VecDeque<Note>,
}

impl World {
    pub fn new(setting: Setting) -> World {
        let geometry = Geometry { slot_size: setting.slot_bytes, unit: 4096 };
        let device = |slots: u32| -> SharedDevice {
            Arc::new(Blank { size_bytes: u64::from(slots) * u64::from(setting.slot_bytes) })
        };
        let space = match setting.uneven {
            [] => {
                let device = device(setting.slots);
                Space::new(geometry, vec![(DeviceId(1), setting.slots, device)], Env::seeded(1))
            }
            sizes => {
                let redundancy = Redundancy::Raidz(1);
                let width = u32::try_from(sizes.len()).expect("a few devices");
                let member = |(id, &slots): (u64, &u32)| MemberSpec {
                    id: DeviceId(id),
                    slots,
                    device: Some(device(slots)),
                };
                let group = GroupSpec {
                    redundancy,
                    class: GroupClass::Normal,
                    width,
                    column: redundancy.column_bytes(width, geometry),
                    members: (1..).zip(sizes).map(member).collect(),
                };
                let space = Space::with_groups(geometry, vec![group], Env::seeded(1));
                space.set_uneven(true);
                space
            }
        };
        World {
            setting,
            space,
            extents: Leaves::new([Class::Meta0, Class::Meta1], setting.nodes.bytes[0], setting.nodes.fill[0]),
            rows: Leaves::new([Class::Pool0, Class::Pool1], setting.nodes.bytes[1], setting.nodes.fill[1]),
            runs: Leaves::new([Class::Pool0, Class::Pool1], setting.nodes.bytes[2], setting.nodes.fill[2]),
            blocks: Vec::new(),
            tail: Vec::new(),
            txg: 0,
            random: 0x5eed,
            content: vec![0; setting.block_bytes as usize],
            limit: MEMORY_BYTES,
            now_ns: 0,
            writer_ns: 0,
            waiting_ns: None,
            admitted_ns: 0,
            room: CommitRoom::flat(u64::MAX, u64::MAX),
            need_thousandths: 1000,
            promised: 0,
            seen: Seen::default(),
            report: None,
            waiting_frees: 0,
            pace: Pace::default(),
            notes: VecDeque::new(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    /// Fills to the wanted share, overwrites `warm` times that much unseen, then `fold` times that
    /// much seen.
    pub fn run(&mut self, warm: f64, fold: f64) -> Outcome<Seen> {
        while !self.is_full() {
            // A txg may bring too much, which shows only afterwards: deletions make up for it.
            let first = self.blocks.len() as u64;
            let count = (self.target() - self.space.accounting().live_bytes) / self.cost() + 1;
            let count = count.min((32 << 20) / self.cost() + 1);
            self.blocks.resize(self.blocks.len() + count as usize, Address::NONE);
            let mut next = first;
            self.write(count, |_| {
                next += 1;
                next - 1
            })?;
        }
        let names = self.blocks.len() as u64;
        let hot_tenths = self.setting.hot_tenths;
        let pick = move |world: &mut World| {
            let names = world.blocks.len() as u64;
            match world.below(10) {
                chance if hot_tenths > 1 && chance < hot_tenths => world.below(names / 10),
                _ => world.below(names),
            }
        };
        self.write((names as f64 * warm) as u64, pick)?;
        self.seen = Seen::default();
        let (start_ns, before) = (self.now_ns, self.device_counts());
        for _ in 0..10 {
            self.write((names as f64 * fold / 10.0) as u64, pick)?;
            self.seen.relocations.push(self.space.accounting().relocations);
        }
        let after = self.device_counts();
        self.seen.sums.device_written = after.written_bytes - before.written_bytes;
        self.seen.sums.device_read = after.read_bytes - before.read_bytes;
        self.seen.elapsed_ns = self.now_ns - start_ns;
        let accounting = self.space.accounting();
        let taken = (accounting.slots - accounting.free_slots) * u64::from(accounting.slot_size);
        self.seen.taken_live = accounting.live_bytes as f64 / taken as f64;
        self.seen.fragmentation = accounting.fragmentation_percent();
        self.space.check().expect("the table holds its invariants");
        Ok(std::mem::take(&mut self.seen))
    }

    /// Bytes asked of all devices.
    fn device_counts(&self) -> DeviceCounts {
        self.space.device_counts().values().fold(DeviceCounts::default(), |sum, counts| DeviceCounts {
            read_bytes: sum.read_bytes + counts.read_bytes,
            written_bytes: sum.written_bytes + counts.written_bytes,
            ..sum
        })
    }

    /// Bytes that are to live.
    fn target(&self) -> u64 {
        self.space.accounting().capacity_bytes * self.setting.percent / 100
    }

    fn is_full(&self) -> bool {
        self.space.accounting().live_bytes >= self.target()
    }

    /// Deletes as many blocks as the pool allows in one commit, while more lives than is to.
    /// Relocations and leaves that are half full come with overwriting, so that content has to go
    /// for them.
    fn shrink(&mut self, frees_max: usize) -> Outcome<()> {
        let most = self.space.accounting().live_bytes.saturating_sub(self.target());
        let most = most.div_ceil(self.setting.block_bytes.into());
        // As a pool does: it lets deletions wait for the cleaner while that gets on.
        self.waiting_frees = if most > 0 && frees_max == 0 { self.waiting_frees + 1 } else { 0 };
        let frees_max = if self.waiting_frees > PATIENCE { FREES_LEAST } else { frees_max };
        let count = most.min(frees_max as u64).min(self.blocks.len() as u64);
        for _ in 0..count {
            let name = self.blocks.len() as u64 - 1;
            if let Some(address) = self.blocks.pop().filter(|address| address.is_some()) {
                self.space.free(address, self.content.len())?;
            }
            self.extents.change((name, 0), false);
        }
        self.seen.sums.deleted += count;
        Ok(())
    }

    /// Deletes everything, commit by commit; how many commits it took.
    #[allow(dead_code, reason = "one of those who share this world uses it")]
    pub fn delete_all(&mut self) -> Outcome<u64> {
        self.setting.percent = 0;
        let before = self.seen.sums.commits;
        while !self.blocks.is_empty() {
            self.sync(&[])?;
        }
        Ok(self.seen.sums.commits - before)
    }

    /// Writes `count` blocks chosen by `pick`, through commits that overlap with the writing.
    fn write(&mut self, count: u64, mut pick: impl FnMut(&mut World) -> u64) -> Outcome<()> {
        let mut left = count;
        let mut open: Vec<u64> = Vec::new();
        let mut futile = 0;
        while left > 0 || !open.is_empty() {
            // The txg fills until it is closed: because it holds enough, or because slots are
            // short.
            let close_at = self.limit * CLOSE_AT / 1000;
            while left > 0 && self.need(open.len() as u64) < close_at.max(1) {
                let hurry = self.space.needs_cleaning() && self.asked_ns() > self.now_ns;
                if hurry || !self.admit(self.now_ns, open.len()) {
                    break;
                }
                self.now_ns = self.now_ns.max(self.admitted_ns);
                open.push(pick(self));
                left -= 1;
            }
            futile = if open.is_empty() { futile + 1 } else { 0 };
            assert!(
                futile <= FUTILE_MAX,
                "nothing is let in: {:?}, {:?}, limit {}, overhead {} and {}, last {:?}",
                self.space.accounting(),
                self.room,
                self.limit,
                self.room.overhead(0),
                self.room.overhead(1),
                self.report
            );
            let frozen = std::mem::take(&mut open);
            let held = frozen.len() as u64 * self.cost();
            self.promised = self.limit.max(self.need(frozen.len() as u64)).saturating_sub(held);
            if !frozen.is_empty() {
                self.need_thousandths = self.need(frozen.len() as u64) * 1000 / held;
            }
            let (start_ns, limit) = (self.now_ns, self.limit);
            let end_ns = start_ns + self.sync(&frozen)?;
            // The writer goes on meanwhile under the old limit, slowed by the throttle.
            let limit = std::mem::replace(&mut self.limit, limit);
            while left > 0 && self.asked_ns() < end_ns {
                if !self.admit(start_ns, frozen.len() + open.len()) {
                    break;
                }
                open.push(pick(self));
                left -= 1;
            }
            self.limit = limit;
            self.now_ns = end_ns;
            self.seen.commits.push(end_ns - start_ns);
        }
        // The next blocks arrive once these are durable: the time between is no wait of a writer.
        self.now_ns = self.now_ns.max(self.writer_ns);
        self.writer_ns = self.now_ns;
        Ok(())
    }

    /// Bytes that a write reserves.
    fn cost(&self) -> u64 {
        u64::from(self.setting.block_bytes) + METADATA_COST
    }

    /// Bytes that so many writes need, with metadata.
    fn need(&self, writes: u64) -> u64 {
        writes * self.cost() + self.room.overhead(writes * BLOCKS_COST)
    }

    /// When the writer asked for its next write to be let in.
    fn asked_ns(&self) -> u64 {
        self.waiting_ns.unwrap_or(self.writer_ns)
    }

    /// Lets the next write in, not before `earliest_ns`, while `held` writes are reserved; false if
    /// it has to wait for a commit.
    fn admit(&mut self, earliest_ns: u64, held: usize) -> bool {
        let (asked, reserved, need) = (self.asked_ns(), self.need(held as u64), self.need(held as u64 + 1));
        let reserved = if held == 0 { 0 } else { reserved };
        let live = self.space.accounting().live_bytes + (held as u64 + 1) * self.cost();
        let full = live > self.space.accounting().capacity_bytes;
        if full || need > self.room.content || (held > 0 && need > self.limit) {
            self.waiting_ns = Some(asked);
            return false;
        }
        let fullness = u32::try_from(reserved * 1000 / self.limit.max(1)).unwrap_or(u32::MAX);
        let block = u64::from(self.setting.block_bytes);
        self.admitted_ns = asked.max(earliest_ns) + steadfast_txg::delay_ns(fullness, block);
        self.waiting_ns = None;
        self.writer_ns = self.admitted_ns + block * 1_000_000_000 / self.setting.memory_rate;
        self.seen.waits.push(self.admitted_ns - asked);
        if self.admitted_ns - asked > self.setting.longer_ns {
            self.tell(asked);
        }
        self.seen.sums.accepted += block;
        true
    }

    /// Tells what a write waited for.
    fn tell(&self, asked_ns: u64) {
        let ms = |ns: u64| ns as f64 / 1e6;
        eprintln!(
            "{:.0} ms at {:.0} ms, limit {}",
            ms(self.admitted_ns - asked_ns),
            ms(asked_ns),
            self.limit
        );
        for note in self.notes.iter() {
            eprintln!("    {:+.0} ms for {:.0}: {note:?}", ms(note.start_ns) - ms(asked_ns), ms(note.ns));
        }
    }

    /// One commit; how long the device works on it.
    fn sync(&mut self, names: &[u64]) -> Outcome<u64> {
        let before = self.device_counts();
        let held = names.len() as u64;
        let metadata = self.seen.sums.metadata;
        let device_rate = u128::from(self.setting.device_rate);
        let transfer_ns = |bytes: u64| {
            u64::try_from(u128::from(bytes) * 1_000_000_000 / device_rate).expect("less than centuries")
        };
        self.shrink(
            self.space
                .commit_room(self.setting.block_bytes)
                .frees_max(held * self.cost(), held * BLOCKS_COST),
        )?;
        for &name in names {
            // It may have been deleted since.
            if name >= self.blocks.len() as u64 {
                continue;
            }
            let address = self.space.append(OWNER, Class::Data, &self.content).map_err(|error| {
                format!("content of a txg of {} writes: {error}: {:?}", names.len(), self.space.accounting())
            })?;
            let old = std::mem::replace(&mut self.blocks[name as usize], address);
            if old.is_some() {
                self.space.free(old, self.content.len())?;
            }
            self.extents.change((name, 0), true);
        }
        let (state, leaves) = (self.space.accounting(), self.extents.unwritten_bytes());
        let result = self.extents.sync(&self.space);
        self.seen.sums.metadata += result.map_err(|error| {
            format!("{leaves} bytes of extents for {held} writes: {error}: {state:?}, {:?}", self.room)
        })?;
        for (address, len) in std::mem::take(&mut self.tail) {
            self.space.free(address, len)?;
        }
        let (space, rows, runs) = (&self.space, &mut self.rows, &mut self.runs);
        let mut note = || {
            let changes = space.table_changes();
            for (SegmentId(id), row) in &changes.rows {
                rows.change((*id, 0), row.is_some());
            }
            for ((SegmentId(id), unit), run) in &changes.runs {
                runs.change((*id, *unit), run.is_some());
            }
            Some(rows.unwritten_bytes() + runs.unwritten_bytes())
        };
        let content = held * u64::from(self.setting.block_bytes);
        let elapsed_ns = transfer_ns(content + self.seen.sums.metadata - metadata);
        let budget = self.setting.clean_bytes.unwrap_or_else(|| self.pace.budget(elapsed_ns));
        let report = space.clean(budget, self.promised, &mut note)?;
        self.report = Some(report);
        let moved = report.bytes_moved;
        note();
        self.seen.sums.moved += moved;
        self.seen.moved_max = self.seen.moved_max.max(moved);
        self.commit()?;
        let (block, clean) =
            (self.setting.block_bytes, self.setting.clean_bytes.unwrap_or(self.pace.bytes()));
        self.limit = MEMORY_BYTES.min(self.space.txg_bytes_max(block, clean, self.need_thousandths));
        self.room = self.space.commit_room(block);
        let after = self.device_counts();
        let bytes = after.written_bytes - before.written_bytes + after.read_bytes - before.read_bytes;
        let ns = transfer_ns(bytes) + FLUSHES * self.setting.flush_ns;
        self.pace.observe(bytes, ns);
        if self.notes.len() == NOTES {
            self.notes.pop_front();
        }
        self.notes.push_back(Note {
            start_ns: self.now_ns,
            ns,
            content,
            metadata: self.seen.sums.metadata - metadata,
            moved,
            budget,
            device: bytes,
            limit: self.limit,
            room: self.room.content,
            overhead: self.room.overhead(held * BLOCKS_COST),
            free_slots: self.space.accounting().free_slots,
            promised: self.promised,
            live: self.space.accounting().live_bytes >> 12,
            report,
        });
        Ok(ns)
    }

    fn commit(&mut self) -> Outcome<()> {
        let state = self.space.accounting();
        let (rows, runs) = (self.rows.unwritten_bytes(), self.runs.unwritten_bytes());
        let result = self.rows.sync(&self.space).and_then(|bytes| Ok(bytes + self.runs.sync(&self.space)?));
        self.seen.sums.metadata += result.map_err(|error| {
            format!(
                "{rows} bytes of rows, {runs} of relocations: {error}: {state:?}, {:?}, {:?}",
                self.room, self.report
            )
        })?;
        self.txg += 1;
        let tail = self.space.tail().map_err(|error| {
            let after = self.space.accounting();
            format!("tail after {rows} bytes of rows, {runs} of relocations: {error}: {state:?}, {after:?}, {:?}, {:?}", self.room, self.report)
        })?;
        let tail = CommitTail {
            txg: Txg(self.txg),
            next_segment: tail.next_segment,
            next_dataset: DatasetId(1),
            next_history: 1,
            rows: tail.changes.rows,
            runs: tail.changes.runs,
        };
        let bytes = tail.encode();
        for class in [Class::Pool0, Class::Pool1] {
            let address = self.space.append(OWNER, class, &bytes)?;
            self.tail.push((address, bytes.len()));
            self.seen.sums.metadata += bytes.len() as u64;
        }
        self.space.flush_open()?;
        self.space.flush_devices()?;
        self.space.committed();
        self.seen.sums.commits += 1;
        Ok(())
    }
}
