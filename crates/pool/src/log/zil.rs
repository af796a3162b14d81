//! The intent log of a pool: its segments, its datasets, its replay. Theory in the room
//! `intent_log`.

use crate::core::view::Reader;
use crate::log::state::Zil;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_crypto::BlockKeys;
use steadfast_env::Bug;
use steadfast_format::{HeldLog, LogHead, LogRecord, LogStart, Txg};
use steadfast_intent_log::{Damage, Group, LogCounts, Medium, Survey, Wanted, open_group, survey};

use crate::core::error::{Error, Result};

/// Share of a pool's slots that its log takes, and bounds.
const SLOTS_SHARE: u32 = 32;
const SLOTS_MIN: u32 = 2;
const SLOTS_MAX: u32 = 8;
/// Bytes of zeros written at once when segments of the log are prepared.
const ZEROS: usize = 1 << 20;

/// How a group of the log can be read.
enum Readable {
    /// We, with these keys if it is sealed.
    With(Option<Arc<BlockKeys>>),
    /// Not before its key is loaded.
    Later,
    /// Its dataset is gone.
    ByNobody,
}

/// Status that `zpool status` shows for a log.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogStatus {
    /// Bytes of the segments, or of the log devices, that groups go to; 0 while there are none.
    pub size_bytes: u64,
    /// Counts since import.
    pub counts: LogCounts,
    /// Groups that were replayed since import.
    pub replayed: u64,
    /// Datasets for which groups are held until their keys are loaded.
    pub held: usize,
}

impl Zil {
    /// Reserves segments if somebody wants a log. In the sync, before the changes of the table are
    /// taken.
    pub(crate) fn reserve_log(&self) {
        if self.log.is_wanted() && !self.log.is_ready() && self.log_target().is_empty() {
            let total = u32::try_from(self.core.space.accounting().slots).unwrap_or(u32::MAX);
            let segments = self.core.space.reserve_log((total / SLOTS_SHARE).clamp(SLOTS_MIN, SLOTS_MAX));
            self.fresh.store(!segments.is_empty(), Ordering::Relaxed);
        }
    }

    /// Head of the log for the uberblock of a txg.
    pub(crate) fn log_head(&self, frozen: LogStart) -> Option<LogStart> {
        if let Some(held) = self.held.lock().head() {
            return Some(held); // [held_log.1]
        }
        let is_there = || self.log.is_ready() || !self.log_medium().is_empty();
        is_there().then_some(frozen)
    }

    /// The uberblock of `durable`, which names this import's epoch, is durable: the log may be
    /// written, if it has a place [intent_log.4].
    pub(crate) fn begin_log(&self, durable: Txg) {
        let rests = self.rests.load(Ordering::Acquire);
        if rests || self.log.is_ready() || self.held.lock().head().is_some() {
            return;
        }
        if self.devices.labels_due.is_due() {
            return; // [log_device.6]
        }
        let medium = self.log_target();
        if medium.is_empty() {
            return;
        }
        if medium.is_in_pool() && self.fresh.swap(false, Ordering::Relaxed) {
            // Written once in full, so that no later flush has to make the host find room for it.
            // If that fails, so will a group.
            let zeros = vec![0; ZEROS.min(medium.segment_bytes() as usize)];
            for segment in 0..medium.segments() {
                for at in (0..medium.segment_bytes()).step_by(zeros.len()) {
                    let _ = medium.write(segment, at, &zeros);
                }
            }
            let _ = medium.flush(0);
        }
        self.log.ready(Arc::new(medium), durable);
    }

    /// Status of the log.
    pub(crate) fn log_status(&self) -> LogStatus {
        let segments = self.log_target().segments() as u64;
        LogStatus {
            size_bytes: segments * u64::from(self.core.identity.slot_size),
            counts: self.log.counts(),
            replayed: self.replayed.load(Ordering::Relaxed),
            held: self.held.lock().count(),
        }
    }

    /// Replays the log behind the root of `base`, into the open txg. Groups of a dataset whose key
    /// is not loaded are held. A damaged group is refused; with `accept` it is given up with all
    /// groups behind it, and the result is the notice for the history. `vouched` is the end of the
    /// log by the pool's anchor, if it has one that is believed.
    pub(crate) fn replay_log(
        &self,
        head: LogStart,
        base: Txg,
        accept: bool,
        vouched: Option<LogHead>,
    ) -> Result<Option<String>> {
        let twice = self.core.env.has_bug(Bug::LogReplayedTwice);
        let head = if twice { LogStart { next: 1, ..head } } else { head };
        let unhashed = self.core.env.has_bug(Bug::LogTornAccepted);
        let wanted = Wanted { pool: self.core.identity.guid, head, unhashed };
        if self.held.lock().head().is_some() {
            // An earlier import replayed all but what is held, and `open_head` does that.
            return Ok(if accept { self.give_up_held(&survey(&self.log_medium(), &wanted)) } else { None });
        }
        let medium = self.log_medium();
        let mut found = survey(&medium, &wanted);
        if let Some(promised) = vouched {
            found.hold_to(head.next, promised); // [intent_log.7]
        }
        self.judge(&mut found, base);
        let mut notice = None;
        if !found.damage.is_empty() {
            let safe = self.what_is_safe(&found, base);
            let reason = found.damage[0].to_string();
            if !accept {
                return Err(Error::LogDamaged { pool: self.core.name(), reason, safe });
            }
            notice = Some(format!("the operator gave up a part of the intent log: {reason}. {safe}"));
        }
        let groups = found.groups;
        self.note_lacks(&medium, &groups, &found.lacks);
        let Some(last) = groups.last() else { return Ok(notice) };
        let held = HeldLog { epoch: head.epoch, base, end: last.header.sequence + 1, hash: last.hash };
        let mut bodies = Vec::with_capacity(groups.len());
        for group in &groups {
            match self.keys_for(group) {
                Readable::ByNobody => {}
                Readable::Later => self.hold_log(group.header.dataset, head, held),
                Readable::With(keys) => {
                    let body = open_group(group, keys.as_deref()).expect("judged before");
                    bodies.push((group, body));
                }
            }
        }
        for (group, body) in &bodies {
            let dataset = self.core.open_head(group.header.dataset)?;
            let records = LogRecord::decode_all(body, group.header.records).expect("decoded before");
            dataset.replay(&records, base)?;
        }
        if self.core.env.has_bug(Bug::ReplayErasesLog) {
            let medium = self.log_medium();
            for segment in 0..medium.segments() {
                let _ = medium.write(segment, 0, &[0; ZEROS]);
                let _ = medium.flush(segment);
            }
        }
        self.replayed.fetch_add(bodies.len() as u64, Ordering::Relaxed);
        Ok(notice)
    }

    /// End of the log behind a head, as it was found: the end that an operator accepts together
    /// with the root.
    pub(crate) fn log_found(&self, head: Option<LogStart>) -> LogHead {
        let Some(head) = head else { return LogHead::default() };
        let found =
            survey(&self.log_medium(), &Wanted { pool: self.core.identity.guid, head, unhashed: false });
        let last = found.groups.last();
        last.map_or(LogHead::default(), |last| LogHead { seq: last.header.sequence, head: last.hash })
    }

    /// Looks into whole groups: what cannot be replayed is damage, and strands all behind it.
    fn judge(&self, found: &mut Survey, base: Txg) {
        let bad = found.groups.iter().enumerate().find_map(|(at, group)| {
            let sequence = group.header.sequence;
            if group.header.txg <= base && !self.core.env.has_bug(Bug::LogReplayedTwice) {
                return Some((at, Damage::Committed { sequence, txg: group.header.txg }));
            }
            match self.keys_for(group) {
                Readable::With(keys) => open_group(group, keys.as_deref()).err().map(|damage| (at, damage)),
                Readable::Later | Readable::ByNobody => None,
            }
        });
        if let Some((at, damage)) = bad {
            let behind = found.groups.split_off(at);
            found.stranded.splice(0..0, behind);
            found.damage.insert(0, damage);
        }
    }

    /// Which part of a damaged log is safe and which is lost, as far as that is known.
    fn what_is_safe(&self, found: &Survey, base: Txg) -> String {
        let whole = found.groups.len();
        let mut lost: BTreeMap<String, u64> = BTreeMap::new();
        for group in &found.stranded {
            *lost.entry(self.core.dataset_name(group.header.dataset)).or_default() += 1;
        }
        let of: Vec<String> = lost.iter().map(|(name, groups)| format!("{name} {groups}")).collect();
        let missing = found.missing;
        let mut safe =
            format!("All commits up to txg {base} are safe. Groups of the log after them: {whole} are whole");
        if !of.is_empty() {
            safe.push_str(&format!("; lost, by file system: {}", of.join(", ")));
        }
        if missing > 0 {
            safe.push_str(&format!("; {missing} are missing"));
        }
        if of.is_empty() && missing == 0 {
            safe.push_str("; it is not known how many are lost");
        }
        safe
    }

    /// Gives the log other segments than it has, if that was asked for: this commit holds all that
    /// it promised. At the beginning of a commit.
    pub(crate) fn move_log_away(&self) {
        // A held log stays: no root holds its groups.
        if self.held.lock().count() > 0 || !self.devices.move_log.swap(false, Ordering::AcqRel) {
            return;
        }
        if !self.core.space.log_segments().is_empty() {
            self.log.stand_down();
            self.core.space.drop_log();
            self.log.want();
        }
    }

    /// How a group can be read.
    fn keys_for(&self, group: &Group) -> Readable {
        match self.core.reader_of(group.header.dataset) {
            None => Readable::ByNobody,
            Some(Reader { keys: None, is_encrypted: true, .. }) => Readable::Later,
            Some(Reader { keys, .. }) => Readable::With(keys),
        }
    }
}
