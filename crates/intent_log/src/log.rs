//! [`Log`]: writes groups.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use steadfast_crypto::{BlockKeys, SEAL_OVERHEAD};
use steadfast_dataset::{Dataset, Draft, Drafted, Durable, Inode, without_reading};
use steadfast_env::Bug;
use steadfast_format::{LogHead, LogHeader, LogStart, PoolGuid, Stamp, Txg};
use steadfast_txg::Txgs;

use crate::circle::{Circle, GroupPosition};
use crate::flow::{Flow, Mark};
use crate::read::seal_bound;

/// Greatest body of a group: more is as quickly committed.
const BODY_MAX: usize = 1 << 20;
/// How often a group that has to wait for a commit tries again before its callers commit.
const ATTEMPTS: usize = 3;

/// Error of a medium.
pub type MediumError = Box<dyn std::error::Error + Send + Sync>;

/// Where the log lies: segments of one size, by rank.
pub trait Medium: Send + Sync {
    /// How many there are.
    fn segments(&self) -> usize;
    /// Bytes of each that are written.
    fn segment_bytes(&self) -> u32;
    /// Bytes of one that groups may lie in: not fewer.
    fn bytes_of(&self, _segment: usize) -> u32 {
        self.segment_bytes()
    }
    /// Copies that one is written in, each of which may hold what others lost.
    fn copies(&self, _segment: usize) -> usize {
        1
    }
    /// Writes into one.
    fn write(&self, segment: usize, offset: u32, bytes: &[u8]) -> Result<(), MediumError>;
    /// Makes what was written to one durable.
    fn flush(&self, segment: usize) -> Result<(), MediumError>;
    /// Reads from a copy of one.
    fn read(&self, segment: usize, copy: usize, offset: u32, out: &mut [u8]) -> Result<(), MediumError>;
}

/// Remembers outside of the pool how far the log is promised: the pool's anchor.
pub trait Vouch: Send + Sync {
    /// True if this import may still write the pool.
    fn is_ours(&self) -> bool;
    /// From now on a log that does not reach so far is no log of this pool. Durable when it
    /// returns; false if it failed.
    fn vouch(&self, promised: LogHead) -> bool;
    /// Callers have been answered: what need not be done before that may be done now.
    fn answered(&self) {}
}

/// Counters of a log since import.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LogCounts {
    /// Groups written.
    pub groups: u64,
    /// Bytes of them on their segments.
    pub bytes: u64,
    /// Calls of `fsync` that the log answered.
    pub durable: u64,
    /// Calls that it passed on to a commit.
    pub committed_instead: u64,
    /// Writes and flushes that failed.
    pub errors: u64,
}

#[derive(Default)]
struct Counters {
    groups: AtomicU64,
    bytes: AtomicU64,
    durable: AtomicU64,
    committed_instead: AtomicU64,
    errors: AtomicU64,
}

/// The circle, and what the next group needs to know of the last.
struct Writer {
    medium: Arc<dyn Medium>,
    circle: Circle,
    parent: [u8; 32],
}

/// The intent log of a pool, for one import.
pub struct Log {
    pool: PoolGuid,
    epoch: [u8; 16],
    txgs: Arc<Txgs>,
    /// Number of the next group. Changes in still moments of the gate only.
    next: AtomicU64,
    /// Somebody would have used it.
    wanted: AtomicBool,
    /// Txg that must be durable before groups go anywhere again.
    resting: AtomicU64,
    circle: Mutex<Option<Writer>>,
    flow: Flow,
    /// Held for reading by its users, so that it has none once it is gone.
    vouch: RwLock<Option<Arc<dyn Vouch>>>,
    counters: Counters,
}

/// The answer where no group is written, and the medium and number of the groups before, where
/// those hold all.
type NoGroup = (Written, Option<(Arc<dyn Medium>, u64)>);

impl Log {
    /// A log without segments. `epoch` is random.
    #[must_use]
    pub fn new(pool: PoolGuid, mut epoch: [u8; 16], txgs: Arc<Txgs>) -> Log {
        // Zero means that there is no log.
        epoch[0] |= u8::from(epoch == [0; 16]);
        Log {
            pool,
            epoch,
            txgs,
            next: AtomicU64::new(1),
            wanted: AtomicBool::new(false),
            resting: AtomicU64::new(0),
            circle: Mutex::new(None),
            flow: Flow::default(),
            vouch: RwLock::new(None),
            counters: Counters::default(),
        }
    }

    /// The log's fields in the uberblock of the txg that is just being frozen, if it has segments.
    /// Called in the still moment of the freeze [intent_log.2].
    #[must_use]
    pub fn head(&self) -> LogStart {
        LogStart { epoch: self.epoch, next: self.next.load(Ordering::Acquire) }
    }

    /// From now on nothing is promised that this does not vouch for; or with `None`, nobody is
    /// asked. Nobody is being asked when it returns [intent_log.7].
    pub fn set_vouch(&self, vouch: Option<Arc<dyn Vouch>>) {
        *self.vouch.write() = vouch;
    }

    /// Has `change` made while no group is under way, told how far the log is promised.
    pub fn paused<T>(&self, change: impl FnOnce(LogHead) -> T) -> T {
        let _writer = self.circle.lock();
        self.flow.settle();
        let (seq, head) = self.flow.durable();
        // After a commit has repaired the log, no hash names its groups, and a root holds them.
        change(if head == [0; 32] { LogHead::default() } else { LogHead { seq, head } })
    }

    /// The import's number: what heads of roots name.
    #[must_use]
    pub fn epoch(&self) -> [u8; 16] {
        self.epoch
    }

    /// True if somebody wanted a log and there is none.
    #[must_use]
    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Acquire)
    }

    /// Somebody will use it.
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Release);
    }

    /// Writes no more groups until all that were written are held by a root, so that the next ones
    /// may go elsewhere.
    pub fn stand_down(&self) {
        let mut writer = self.circle.lock();
        if writer.take().is_some() {
            // Places of what is under way are those of the old medium.
            self.flow.settle();
            self.resting.store(self.txgs.gate.open_txg().0, Ordering::Release);
        }
    }

    /// There are segments, and the uberblock of `durable`, which names this log, is durable
    /// [intent_log.4].
    pub fn ready(&self, medium: Arc<dyn Medium>, durable: Txg) {
        let mut writer = self.circle.lock();
        let rested = self.resting.load(Ordering::Acquire) <= durable.0;
        if writer.is_none() && rested && medium.segments() > 0 {
            let circle = Circle::new(medium.segments(), medium.segment_bytes());
            *writer = Some(Writer { medium, circle, parent: [0; 32] });
        }
    }

    /// True if groups can be written.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.circle.lock().is_some()
    }

    /// Counters so far.
    #[must_use]
    pub fn counts(&self) -> LogCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogCounts {
            groups: of(&self.counters.groups),
            bytes: of(&self.counters.bytes),
            durable: of(&self.counters.durable),
            committed_instead: of(&self.counters.committed_instead),
            errors: of(&self.counters.errors),
        }
    }

    pub(crate) fn count_answer(&self, answer: Durable) {
        match answer {
            Durable::Yes => self.counters.durable.fetch_add(1, Ordering::Relaxed),
            _ => self.counters.committed_instead.fetch_add(1, Ordering::Relaxed),
        };
    }

    /// Makes durable what is pending of a dataset, with the content of the files `asked` for.
    pub(crate) fn make_durable(
        &self,
        dataset: &Dataset,
        keys: Option<&BlockKeys>,
        asked: &[Arc<Inode>],
    ) -> Durable {
        for _ in 0..ATTEMPTS {
            match self.write(dataset, keys, Some(asked)) {
                Written::Yes => return Durable::Yes,
                Written::CommitInstead => return Durable::CommitInstead,
                Written::After(txg) => {
                    self.txgs.commits.request_sync(txg);
                    if self.txgs.commits.wait_committed_held(txg).is_err() {
                        break;
                    }
                }
            }
        }
        Durable::CommitInstead
    }

    /// Makes all that is pending of a dataset durable. Waits for no commit.
    pub(crate) fn log_pending(&self, dataset: &Dataset, keys: Option<&BlockKeys>) -> Durable {
        match self.write(dataset, keys, None) {
            Written::Yes => Durable::Yes,
            Written::CommitInstead => Durable::CommitInstead,
            Written::After(_) => Durable::GaveUp,
        }
    }

    /// Writes pending changes of a dataset if that is of use to the callers in `asked`; `None` is
    /// all of them.
    fn write(&self, dataset: &Dataset, keys: Option<&BlockKeys>, asked: Option<&[Arc<Inode>]>) -> Written {
        // Under the circle's lock and the gate nothing is read.
        let group = match without_reading(|| self.prepare(dataset, keys, asked)) {
            Ok(group) => group,
            Err((Written::Yes, Some((medium, goal)))) => {
                // It stands in groups before, which may be under way.
                let secure = |on: &[usize], last| self.secure(&*medium, on, last);
                return if self.flow.reach(goal, secure) { Written::Yes } else { Written::CommitInstead };
            }
            Err((outcome, _)) => return outcome,
        };
        let Group { medium, spot, sequence, hash, txg, bytes, crowded } = group;
        let mark = Mark { sequence, hash, segment: spot.segment };
        let under_way = UnderWay { log: self, mark, is_written: false };
        let (skips, swallows) =
            (dataset.has_bug(Bug::LogNotFlushed), dataset.has_bug(Bug::LogErrorSwallowed));
        let trusts = dataset.has_bug(Bug::LogNotVouched);
        if !self.is_ours() {
            return Written::CommitInstead; // which finds the same
        }
        if medium.write(spot.segment, spot.offset, &bytes).is_err() && !swallows {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
            return Written::CommitInstead;
        }
        let flush = |segment: &usize| skips || self.flush(&*medium, *segment) || swallows;
        if !under_way.wrote(|on, last| on.iter().all(flush) && (trusts || self.vouch(last))) {
            return Written::CommitInstead;
        }
        self.counters.groups.fetch_add(1, Ordering::Relaxed);
        self.counters.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        if crowded {
            self.txgs.commits.request_sync(txg);
        }
        Written::Yes
    }

    fn flush(&self, medium: &dyn Medium, segment: usize) -> bool {
        let is_flushed = medium.flush(segment).is_ok();
        if !is_flushed {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
        }
        is_flushed
    }

    /// Makes what is on these segments durable, and all groups up to `last` something that can be
    /// missed [intent_log.7].
    fn secure(&self, medium: &dyn Medium, segments: &[usize], last: Mark) -> bool {
        segments.iter().all(|segment| self.flush(medium, *segment)) && self.vouch(last)
    }

    fn is_ours(&self) -> bool {
        self.vouch.read().as_ref().is_none_or(|vouch| vouch.is_ours())
    }

    fn vouch(&self, last: Mark) -> bool {
        let vouch = self.vouch.read();
        let is_vouched =
            vouch.as_ref().is_none_or(|vouch| vouch.vouch(LogHead { seq: last.sequence, head: last.hash }));
        if !is_vouched {
            self.counters.errors.fetch_add(1, Ordering::Relaxed);
        }
        is_vouched
    }

    /// Callers have been answered.
    pub(crate) fn answered(&self) {
        if let Some(vouch) = &*self.vouch.read() {
            vouch.answered();
        }
    }

    /// Drafts a group and settles where it goes. Otherwise says what to do, and which medium has
    /// the groups before, up to which.
    fn prepare(
        &self,
        dataset: &Dataset,
        keys: Option<&BlockKeys>,
        asked: Option<&[Arc<Inode>]>,
    ) -> Result<Group, NoGroup> {
        let mut guard = self.circle.lock();
        let Some(writer) = guard.as_mut() else {
            self.wanted.store(true, Ordering::Release);
            return Err((Written::CommitInstead, None));
        };
        let committed = self.txgs.commits.committed();
        if !self.flow.is_open(committed, self.next.load(Ordering::Acquire)) {
            return Err((Written::CommitInstead, None)); // [intent_log.5]
        }
        writer.circle.release(committed, self.flow.written_to());
        let limit = BODY_MAX.min(writer.medium.segment_bytes() as usize / 4);
        // [intent_log.2]: number, txg, content and place are settled while nothing moves.
        let settled = self.txgs.gate.still(|txg| {
            let mut draft = match dataset.draft(asked, limit) {
                Ok(Drafted::Group(draft)) => draft,
                Ok(Drafted::Nothing) => return Err(Written::Yes),
                Ok(Drafted::After(txg)) => return Err(Written::After(txg)),
                // An error of a tree is reported by the commit.
                Ok(Drafted::CommitInstead) | Err(_) => return Err(Written::CommitInstead),
            };
            let sealed = draft.body.len() + keys.map_or(0, |_| SEAL_OVERHEAD);
            let bytes = LogHeader::stored_bytes(sealed);
            let sequence = self.next.load(Ordering::Acquire);
            let spot = writer.circle.place(bytes, txg, sequence).ok_or(Written::CommitInstead)?;
            dataset.accept(&mut draft);
            self.next.store(sequence + 1, Ordering::Release);
            self.flow.begin();
            Ok((draft, spot, sequence, txg))
        });
        let medium = Arc::clone(&writer.medium);
        let (draft, spot, sequence, txg) = match settled {
            Ok(settled) => settled,
            Err(outcome) => return Err((outcome, Some((medium, self.next.load(Ordering::Acquire) - 1)))),
        };
        let bytes = self.encode(writer, dataset, keys, draft, sequence, txg);
        let (hash, crowded) = (writer.parent, writer.circle.is_half_full());
        Ok(Group { medium, spot, sequence, hash, txg, bytes, crowded })
    }

    /// A group's bytes, with zeros up to the next one.
    fn encode(
        &self,
        writer: &mut Writer,
        dataset: &Dataset,
        keys: Option<&BlockKeys>,
        draft: Draft,
        sequence: u64,
        txg: Txg,
    ) -> Vec<u8> {
        let Draft { mut body, records, .. } = draft;
        let length = body.len() + keys.map_or(0, |_| SEAL_OVERHEAD);
        let mut header = LogHeader {
            pool: self.pool,
            epoch: self.epoch,
            behind: u16::try_from(self.flow.behind(sequence)).expect("few are under way"),
            sequence,
            txg,
            dataset: dataset.id(),
            length: u32::try_from(length).expect("bounded"),
            records,
            stamp: Stamp::default(),
            parent: writer.parent,
        };
        if let Some(keys) = keys {
            header.stamp = keys.seal(&seal_bound(&header, true), &mut body);
        }
        let head = header.encode(|bound| {
            writer.parent = steadfast_crypto::hash_parts(&[bound, &body]);
            writer.parent
        });
        let stored = LogHeader::stored_bytes(body.len());
        let mut bytes = Vec::with_capacity(stored);
        bytes.extend_from_slice(&head);
        bytes.extend_from_slice(&body);
        bytes.resize(stored, 0);
        bytes
    }
}

/// Ends a group, by an error or a panic too: those behind it must not wait for what does not come.
struct UnderWay<'a> {
    log: &'a Log,
    mark: Mark,
    is_written: bool,
}

impl UnderWay<'_> {
    fn end(&self, secure: impl Fn(&[usize], Mark) -> bool) -> bool {
        let open = || self.log.txgs.gate.open_txg();
        self.log.flow.wrote(self.mark, self.is_written, secure, open)
    }

    /// The group is written. True once it is durable.
    fn wrote(mut self, secure: impl Fn(&[usize], Mark) -> bool) -> bool {
        self.is_written = true;
        self.end(secure)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_written {
            self.end(|_, _| false);
        }
    }
}

/// A group on its way.
struct Group {
    medium: Arc<dyn Medium>,
    spot: GroupPosition,
    sequence: u64,
    hash: [u8; 32],
    txg: Txg,
    bytes: Vec<u8>,
    /// Half of the circle is needed.
    crowded: bool,
}

enum Written {
    Yes,
    CommitInstead,
    After(Txg),
}
