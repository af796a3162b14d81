//! The intent log of a pool: its segments, its datasets, its replay. Theory in the room `intent_log`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_dataset::{Dataset, JournalMode, SyncMode};
use steadfast_format::{DatasetId, HeldLog, LogRecord, LogStart, Txg};
use steadfast_intent_log::{
    Damage, DatasetLog, LogCounts, Medium, MediumError, Wanted, open_group, read_groups,
};
use steadfast_segment::{LogSegment, Space};

use crate::error::Result;
use crate::inner::Inner;

/// Share of a pool's slots that its log takes, and bounds.
const SLOTS_SHARE: u32 = 32;
const SLOTS_MIN: u32 = 2;
const SLOTS_MAX: u32 = 8;
/// Bytes of zeros written at once when segments of the log are prepared.
const ZEROS: usize = 1 << 20;

/// What `zpool status` shows of a log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogStatus {
    /// Bytes of its segments; 0 while there are none.
    pub size_bytes: u64,
    /// What it did since import.
    pub counts: LogCounts,
    /// Groups that were replayed since import.
    pub replayed: u64,
    /// Datasets for which groups are held until their keys are loaded.
    pub held: usize,
}

/// Segments of a pool as the log's medium.
pub(crate) struct PoolMedium {
    space: Arc<Space>,
    segments: Vec<LogSegment>,
}

impl Medium for PoolMedium {
    fn segments(&self) -> usize {
        self.segments.len()
    }

    fn segment_bytes(&self) -> u32 {
        self.space.geometry().slot_size
    }

    fn write(&self, segment: usize, offset: u32, bytes: &[u8]) -> std::result::Result<(), MediumError> {
        Ok(self.space.write_log(&self.segments[segment], offset, bytes)?)
    }

    fn flush(&self, segment: usize) -> std::result::Result<(), MediumError> {
        Ok(self.space.flush_log(&self.segments[segment])?)
    }

    fn read(&self, segment: usize, offset: u32, out: &mut [u8]) -> std::result::Result<(), MediumError> {
        Ok(self.space.read_log(&self.segments[segment], offset, out)?)
    }
}

impl Inner {
    pub(crate) fn log_medium(&self) -> PoolMedium {
        PoolMedium { space: Arc::clone(&self.space), segments: self.space.log_segments() }
    }

    /// What a dataset's `fsync` shall write.
    fn journal_mode(&self, id: DatasetId) -> JournalMode {
        let table = self.table.read();
        let value = table.resolve(id, "journal", "/").map(|resolved| resolved.value);
        match value.as_deref() {
            Some("off") => JournalMode::Off,
            Some("writeback") => JournalMode::Writeback,
            _ => JournalMode::Ordered,
        }
    }

    /// What a dataset's changes wait for.
    fn sync_mode(&self, id: DatasetId) -> SyncMode {
        let table = self.table.read();
        let value = table.resolve(id, "sync", "/").map(|resolved| resolved.value);
        match value.as_deref() {
            Some("always") => SyncMode::Always,
            Some("disabled") => SyncMode::Disabled,
            _ => SyncMode::Standard,
        }
    }

    /// Connects an open dataset with the log, as its properties say.
    pub(crate) fn connect_log(&self, id: DatasetId, head: &Dataset) {
        let sync = self.sync_mode(id);
        head.set_sync_mode(sync);
        // Nobody will ask: nothing needs to be tracked.
        let mode = if sync == SyncMode::Disabled { JournalMode::Off } else { self.journal_mode(id) };
        let (locked, keys) = {
            let table = self.table.read();
            let entry = table.get(id);
            let keys = entry.and_then(|entry| Some(Arc::clone(&entry.keys.as_ref()?.blocks)));
            (entry.is_none_or(|entry| entry.is_encrypted() && keys.is_none()), keys)
        };
        if self.read_only || locked || mode == JournalMode::Off || !self.has_feature("intent_log") {
            head.set_journal(None, JournalMode::Off);
        } else if head.journal_mode() == JournalMode::Off {
            head.set_journal(Some(Arc::new(DatasetLog::new(Arc::clone(&self.log), keys))), mode);
        } else {
            head.set_journal_mode(mode);
        }
    }

    /// Reserves segments if somebody wants a log. In the sync, before the changes of the table are taken.
    pub(crate) fn reserve_log(&self) {
        if self.log.is_retired() {
            return;
        }
        if self.log.is_wanted() && !self.log.is_ready() && self.space.log_segments().is_empty() {
            let total = u32::try_from(self.space.accounting().slots).unwrap_or(u32::MAX);
            let segments = self.space.reserve_log((total / SLOTS_SHARE).clamp(SLOTS_MIN, SLOTS_MAX));
            self.log_fresh.store(!segments.is_empty(), Ordering::Relaxed);
        }
    }

    /// What the uberblock of a txg says of the log.
    pub(crate) fn log_head(&self, frozen: LogStart) -> Option<LogStart> {
        if let Some(held) = self.held.lock().head() {
            return Some(held); // (H1)
        }
        let is_there = || self.log.is_ready() || !self.space.log_segments().is_empty();
        (!self.log.is_retired() && is_there()).then_some(frozen)
    }

    /// An uberblock that names this import's epoch is durable: the log may be written, if it has segments (L4).
    pub(crate) fn begin_log(&self) {
        if self.log.is_ready() || self.log.is_retired() || self.held.lock().head().is_some() {
            return;
        }
        let medium = self.log_medium();
        if medium.segments.is_empty() {
            return;
        }
        if self.log_fresh.swap(false, Ordering::Relaxed) {
            // Written once in full, so that no later flush has to make the host find room for it. If that fails, so will a group.
            let zeros = vec![0; ZEROS.min(medium.segment_bytes() as usize)];
            for segment in 0..medium.segments() {
                for at in (0..medium.segment_bytes()).step_by(zeros.len()) {
                    let _ = medium.write(segment, at, &zeros);
                }
            }
            let _ = medium.flush(0);
        }
        self.log.ready(Arc::new(medium));
    }

    /// What the log did and is.
    pub(crate) fn log_status(&self) -> LogStatus {
        let segments = self.space.log_segments().len() as u64;
        LogStatus {
            size_bytes: segments * u64::from(self.slot_size),
            counts: self.log.counts(),
            replayed: self.log_replayed.load(Ordering::Relaxed),
            held: self.held.lock().count(),
        }
    }

    /// Replays what was promised behind the root of `base`, into the open txg. What is of a dataset whose key is not loaded
    /// is held.
    pub(crate) fn replay_log(&self, head: LogStart, base: Txg) -> Result<()> {
        if self.held.lock().head().is_some() {
            // An earlier import replayed all but what is held, and `open_head` does that.
            return Ok(());
        }
        let damaged = |damage: Damage| self.log_damaged(&damage);
        let wanted = Wanted { pool: self.guid, head };
        let groups = read_groups(&self.log_medium(), &wanted).map_err(damaged)?;
        let Some(last) = groups.last() else { return Ok(()) };
        let held = HeldLog { epoch: head.epoch, base, end: last.header.sequence + 1, hash: last.hash };
        let mut bodies = Vec::with_capacity(groups.len());
        for group in &groups {
            let id = group.header.dataset;
            if group.header.txg <= base {
                let sequence = group.header.sequence;
                return Err(damaged(Damage::Chain { sequence }));
            }
            let (locked, keys) = {
                let table = self.table.read();
                let Some(entry) = table.get(id).filter(|entry| !entry.row.destroying) else { continue };
                let keys = entry.keys.as_ref().map(|keys| Arc::clone(&keys.blocks));
                (entry.is_encrypted() && keys.is_none(), keys)
            };
            if locked {
                self.hold_log(id, head, held);
            } else {
                bodies.push((group, open_group(group, keys.as_deref()).map_err(damaged)?));
            }
        }
        for (group, body) in &bodies {
            let dataset = self.open_head(group.header.dataset)?;
            let records = LogRecord::decode_all(body, group.header.records).expect("decoded before");
            dataset.replay(&records, base)?;
        }
        self.log_replayed.fetch_add(bodies.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}
