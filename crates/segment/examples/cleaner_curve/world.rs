//! A pool reduced to what space sees of it, and a clock that the device moves.
//!
//! Real are: [`Space`] with its table, streams, cleaner and commit hooks, the limits that the pool sets, and the curve of
//! the write throttle. Counted instead of kept are file content and the nodes of trees. Played is time: the device takes bytes at
//! a steady rate, one writer writes as fast as it is let in, a commit lasts as long as its bytes and flushes.

use std::sync::Arc;

use steadfast_device::SharedDevice;
use steadfast_env::Env;
use steadfast_format::{Address, CommitTail, DatasetId, DeviceId, SegmentId, Txg};
use steadfast_segment::{Class, Geometry, Space};

use crate::device::Blank;
use crate::tree::Leaves;

const OWNER: DatasetId = DatasetId(0);
/// Dirty data that a pool allows itself.
const MEMORY_BYTES: u64 = 256 << 20;
/// Fullness at which a txg is closed, in thousandths.
const CLOSE_AT: u64 = 250;
/// Flushes of a commit.
const FLUSHES: u64 = 3;
/// Space that a write reserves for metadata.
const METADATA_COST: u64 = 8 << 10;
/// Commits in a row that let nothing in before the pool counts as full.
const FUTILE_MAX: u32 = 200;
/// Items of a leaf of 4 KiB: extents, segment rows with a bitmap, relocations.
const FILL: [usize; 3] = [130, 12, 100];

/// An error here is one of the cleaner or its pacing: what was admitted finds room.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What is simulated.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Slots of the device.
    pub slots: u32,
    /// Bytes of a slot.
    pub slot_bytes: u32,
    /// Bytes of a block as stored.
    pub block_bytes: u32,
    /// Living file content, in hundredths of the capacity.
    pub percent: u64,
    /// Bytes that the device reads or writes in a second.
    pub device_rate: u64,
    /// Nanoseconds of a flush.
    pub flush_ns: u64,
    /// Bytes that a writer hands over in a second if nobody slows it.
    pub memory_rate: u64,
    /// Bytes that the cleaner copies in a commit, about.
    pub clean_bytes: u64,
    /// Tenths of the writes that go to the first tenth of the blocks; 1 is uniform.
    pub hot_tenths: u64,
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
}

/// What was seen.
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
    /// Reserved bytes that the last commit left room for.
    room: u64,
    /// Bytes that may be admitted while a commit runs.
    promised: u64,
    seen: Seen,
}

impl World {
    pub fn new(setting: Setting) -> World {
        let geometry = Geometry { slot_size: setting.slot_bytes, unit: 4096 };
        let device: SharedDevice =
            Arc::new(Blank { size_bytes: u64::from(setting.slots) * u64::from(setting.slot_bytes) });
        let space = Space::new(geometry, vec![(DeviceId(1), setting.slots, device)], Env::seeded(1));
        World {
            setting,
            space,
            extents: Leaves::new([Class::Meta0, Class::Meta1], 4096, FILL[0]),
            rows: Leaves::new([Class::Pool0, Class::Pool1], 4096, FILL[1]),
            runs: Leaves::new([Class::Pool0, Class::Pool1], 4096, FILL[2]),
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
            room: u64::MAX,
            promised: 0,
            seen: Seen::default(),
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % bound
    }

    /// Fills to the wanted share, overwrites `warm` times that much unseen, then `fold` times that much seen.
    pub fn run(mut self, warm: f64, fold: f64) -> Outcome<Seen> {
        let capacity = self.space.accounting().capacity_bytes;
        let names = capacity * self.setting.percent / 100 / u64::from(self.setting.block_bytes);
        self.blocks = vec![Address::NONE; names as usize];
        let mut next = 0;
        self.write(names, |_| {
            next += 1;
            next - 1
        })?;
        let hot_tenths = self.setting.hot_tenths;
        let pick = move |world: &mut World| match world.below(10) {
            chance if hot_tenths > 1 && chance < hot_tenths => world.below(names / 10),
            _ => world.below(names),
        };
        self.write((names as f64 * warm) as u64, pick)?;
        self.seen = Seen::default();
        let (start_ns, before) = (self.now_ns, self.space.device_counts()[&DeviceId(1)]);
        for _ in 0..10 {
            self.write((names as f64 * fold / 10.0) as u64, pick)?;
            self.seen.relocations.push(self.space.accounting().relocations);
        }
        let after = self.space.device_counts()[&DeviceId(1)];
        self.seen.sums.device_written = after.written_bytes - before.written_bytes;
        self.seen.sums.device_read = after.read_bytes - before.read_bytes;
        self.seen.elapsed_ns = self.now_ns - start_ns;
        let accounting = self.space.accounting();
        let taken = (accounting.slots - accounting.free_slots) * u64::from(accounting.slot_size);
        self.seen.taken_live = accounting.live_bytes as f64 / taken as f64;
        self.seen.fragmentation = accounting.fragmentation_percent();
        self.space.check().expect("the table holds its invariants");
        Ok(self.seen)
    }

    /// Writes `count` blocks chosen by `pick`, through commits that overlap with the writing.
    fn write(&mut self, count: u64, mut pick: impl FnMut(&mut World) -> u64) -> Outcome<()> {
        let mut left = count;
        let mut open: Vec<u64> = Vec::new();
        let mut futile = 0;
        while left > 0 || !open.is_empty() {
            // The txg fills until it is closed: because it holds enough, or because slots are short.
            let close_at = self.limit * CLOSE_AT / 1000;
            while left > 0 && open.len() as u64 * self.cost() < close_at.max(1) {
                let hurry = self.space.needs_cleaning() && self.asked_ns() > self.now_ns;
                if hurry || !self.admit(self.now_ns, open.len()) {
                    break;
                }
                self.now_ns = self.now_ns.max(self.admitted_ns);
                open.push(pick(self));
                left -= 1;
            }
            futile = if open.is_empty() { futile + 1 } else { 0 };
            assert!(futile <= FUTILE_MAX, "nothing is let in: {:?}", self.space.accounting());
            let frozen = std::mem::take(&mut open);
            self.promised = self.limit.saturating_sub(frozen.len() as u64 * self.cost());
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
        self.now_ns = self.now_ns.max(self.writer_ns);
        Ok(())
    }

    /// What a write reserves.
    fn cost(&self) -> u64 {
        u64::from(self.setting.block_bytes) + METADATA_COST
    }

    /// When the writer asked for its next write to be let in.
    fn asked_ns(&self) -> u64 {
        self.waiting_ns.unwrap_or(self.writer_ns)
    }

    /// Lets the next write in, not before `earliest_ns`, while `held` writes are reserved; false if it has to wait for a
    /// commit.
    fn admit(&mut self, earliest_ns: u64, held: usize) -> bool {
        let (asked, cost, reserved) = (self.asked_ns(), self.cost(), held as u64 * self.cost());
        if reserved + cost > self.room || (reserved > 0 && reserved + cost > self.limit) {
            self.waiting_ns = Some(asked);
            return false;
        }
        let fullness = u32::try_from(reserved * 1000 / self.limit.max(1)).unwrap_or(u32::MAX);
        let block = u64::from(self.setting.block_bytes);
        self.admitted_ns = asked.max(earliest_ns) + steadfast_txg::delay_ns(fullness, block);
        self.waiting_ns = None;
        self.writer_ns = self.admitted_ns + block * 1_000_000_000 / self.setting.memory_rate;
        self.seen.waits.push(self.admitted_ns - asked);
        self.seen.sums.accepted += block;
        true
    }

    /// One commit; how long the device works on it.
    fn sync(&mut self, names: &[u64]) -> Outcome<u64> {
        let before = self.space.device_counts()[&DeviceId(1)];
        for &name in names {
            let address = self.space.append(OWNER, Class::Data, &self.content).map_err(|error| {
                format!("content of a txg of {} writes: {error}: {:?}", names.len(), self.space.accounting())
            })?;
            let old = std::mem::replace(&mut self.blocks[name as usize], address);
            if old.is_some() {
                self.space.free(old, self.content.len())?;
            }
            self.extents.change((name, 0), true);
        }
        self.seen.sums.metadata += self.extents.sync(&self.space)?;
        for (address, len) in std::mem::take(&mut self.tail) {
            self.space.free(address, len)?;
        }
        let moved = self.space.clean(self.setting.clean_bytes, self.promised)?.bytes_moved;
        self.seen.sums.moved += moved;
        self.seen.moved_max = self.seen.moved_max.max(moved);
        self.commit()?;
        let limit = self.space.txg_bytes_max(self.setting.block_bytes, self.setting.clean_bytes);
        self.limit = MEMORY_BYTES.min(limit);
        self.room = self.space.room_for_txg_bytes(self.setting.block_bytes);
        let after = self.space.device_counts()[&DeviceId(1)];
        let bytes = after.written_bytes - before.written_bytes + after.read_bytes - before.read_bytes;
        let transfer = u128::from(bytes) * 1_000_000_000 / u128::from(self.setting.device_rate);
        Ok(u64::try_from(transfer).expect("less than centuries") + FLUSHES * self.setting.flush_ns)
    }

    fn commit(&mut self) -> Outcome<()> {
        let changes = self.space.table_changes();
        for (SegmentId(id), row) in &changes.rows {
            self.rows.change((*id, 0), row.is_some());
        }
        for ((SegmentId(id), unit), run) in &changes.runs {
            self.runs.change((*id, *unit), run.is_some());
        }
        self.seen.sums.metadata += self.rows.sync(&self.space)? + self.runs.sync(&self.space)?;
        self.txg += 1;
        let tail = self.space.tail()?;
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
