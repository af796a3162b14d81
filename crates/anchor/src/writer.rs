//! One import's hold on a register: read and judge, take over, advance, notice that another took
//! over.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use steadfast_crypto::Key;
use steadfast_env::brief::check_none_held;
use steadfast_env::waiting::{Way, asking};
use steadfast_env::{Clock, Env};
use steadfast_format::anchor::RecordBytes;
use steadfast_format::{AnchorRecord, DecodeError, LogHead, PoolGuid, Txg, Uberblock};

use crate::register::{Register, RegisterError, SwapError};
use crate::witness::Witness;

/// Pauses between the attempts of a swap whose outcome is not known. When they are used up the pool
/// stops.
const RETRY_PAUSES: [Duration; 4] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_millis(2000),
];

/// Fault of a register, or of our hold on it.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The register itself.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The register is another pool's.
    #[error("the anchor {register} belongs to another pool ({})", found.0)]
    Foreign {
        /// The register.
        register: String,
        /// The pool in its record.
        found: PoolGuid,
    },
    /// The record's mac is not one that this pool's key makes.
    #[error("the record of the anchor {register} was not made with this pool's key")]
    Forged {
        /// The register.
        register: String,
    },
    /// The record is not one.
    #[error("the anchor {register} is damaged: {source}")]
    Undecodable {
        /// The register.
        register: String,
        /// Why it was refused.
        source: DecodeError,
    },
    /// The register holds an older record than this host has seen, or another one of the same
    /// number.
    #[error(
        "the anchor {register} was put back: it holds record {seq} (txg {txg}), and this host has seen record {seen_seq} \
         (txg {seen_txg})"
    )]
    Behind {
        /// The register.
        register: String,
        /// Its record.
        seq: u64,
        /// Root of its record.
        txg: Txg,
        /// The record that was seen.
        seen_seq: u64,
        /// Root of that.
        seen_txg: Txg,
    },
    /// Another writer has replaced our record: nothing that we write counts any more.
    #[error(
        "another daemon has taken over this pool: the anchor {register} is at record {seq}, epoch {epoch}, txg {txg}, \
         and ours was record {ours_seq}, epoch {ours_epoch}"
    )]
    Fenced {
        /// The register.
        register: String,
        /// Its record.
        seq: u64,
        /// Its epoch.
        epoch: u64,
        /// Its root.
        txg: Txg,
        /// The record that we expected.
        ours_seq: u64,
        /// Its epoch.
        ours_epoch: u64,
    },
}

impl Error {
    /// Code of the message in docs/operations/messages.md.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::Register(RegisterError::Missing { .. }) => "ANCHOR-MISSING",
            Error::Register(RegisterError::Occupied { .. }) => "VDEV-FOREIGN",
            Error::Register(RegisterError::Unfit { .. }) => "ANCHOR-UNFIT",
            Error::Register(RegisterError::Unreachable { .. }) => "ANCHOR-SILENT",
            Error::Register(RegisterError::Damaged { .. })
            | Error::Undecodable { .. }
            | Error::Forged { .. } => "ANCHOR-DAMAGED",
            Error::Foreign { .. } => "ANCHOR-FOREIGN",
            Error::Behind { .. } => "ANCHOR-OLD",
            Error::Fenced { .. } => "ANCHOR-FENCED",
        }
    }
}

/// An uberblock with its tag.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Root {
    /// The uberblock.
    pub uberblock: Uberblock,
    /// Its tag.
    pub tag: [u8; 32],
}

/// A record that was read from a register, and found to be of this pool and made with its key.
/// There is no other way to have one.
#[derive(Clone, Debug)]
pub struct Holding {
    record: Box<AnchorRecord>,
    bytes: Box<RecordBytes>,
}

impl Holding {
    /// Reads a register and judges what it holds. `key` is the mac's, if the pool is sealed.
    pub fn read(register: &dyn Register, pool: PoolGuid, key: Option<&Key>) -> Result<Holding, Error> {
        check_none_held("a register");
        Holding::judge(register.read()?, register, pool, key)
    }

    fn judge(
        bytes: Box<RecordBytes>,
        register: &dyn Register,
        pool: PoolGuid,
        key: Option<&Key>,
    ) -> Result<Holding, Error> {
        let name = || register.identity();
        let record = AnchorRecord::decode(&bytes[..])
            .map_err(|source| Error::Undecodable { register: name(), source })?;
        if record.pool != pool {
            return Err(Error::Foreign { register: name(), found: record.pool });
        }
        let (bound, mac) = AnchorRecord::bound_and_mac(&bytes[..]).expect("just read");
        // A record without a key does not speak for a pool that has one, nor the reverse.
        if record.keyed != key.is_some() || !steadfast_crypto::tags_equal(&mac_of(key, bound), &mac) {
            return Err(Error::Forged { register: name() });
        }
        Ok(Holding { record: Box::new(record), bytes })
    }

    /// The record.
    #[must_use]
    pub fn record(&self) -> &AnchorRecord {
        &self.record
    }

    /// The only acceptable root.
    #[must_use]
    pub fn root(&self) -> Root {
        Root { uberblock: self.record.root.clone(), tag: self.record.root_tag }
    }

    /// Refuses a register that holds less than a host remembers.
    pub fn check_witness(&self, register: &dyn Register, witness: &dyn Witness) -> Result<(), Error> {
        let Some(seen_bytes) = witness.recall() else { return Ok(()) };
        let Ok(seen) = AnchorRecord::decode(&seen_bytes[..]) else { return Ok(()) };
        if seen.pool != self.record.pool {
            return Ok(());
        }
        let seen_hash = steadfast_crypto::hash(&seen_bytes[..]);
        let holds = match self.record.seq {
            seq if seq < seen.seq => false,
            seq if seq == seen.seq => self.bytes == seen_bytes,
            seq if seq == seen.seq + 1 => self.record.prev == seen_hash,
            _ => true,
        };
        if holds {
            return Ok(());
        }
        Err(Error::Behind {
            register: register.identity(),
            seq: self.record.seq,
            txg: self.record.txg(),
            seen_seq: seen.seq,
            seen_txg: seen.txg(),
        })
    }
}

fn mac_of(key: Option<&Key>, bound: &[u8]) -> [u8; 32] {
    match key {
        Some(key) => steadfast_crypto::keyed_hash(key, bound),
        None => steadfast_crypto::hash(bound),
    }
}

/// How a writer comes to its register.
pub enum Start {
    /// The register holds this, and we take over from its writer.
    TakeOver(Holding),
    /// There is no record yet: the first advance makes it, over what may be there if `replace`.
    New {
        /// Over what may be there.
        replace: bool,
        /// Epoch of the first record, from 1.
        epoch: u64,
    },
}

/// State for the operator.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Status {
    /// Path or address of the register.
    pub register: String,
    /// Number of the record; 0 if there is none yet.
    pub seq: u64,
    /// Epoch.
    pub epoch: u64,
    /// Txg of the anchored root.
    pub txg: Txg,
    /// When the record was written, nanoseconds since 1970.
    pub time_ns: u64,
    /// True if the mac is keyed.
    pub keyed: bool,
    /// Swaps since the import.
    pub swaps: u64,
    /// Swaps that failed since the import; they were sent again.
    pub failures: u64,
    /// The writer that fenced us, if any.
    pub fenced: Option<String>,
    /// Why this host's memory of the register is not kept, if it is not.
    pub witness_trouble: Option<String>,
}

struct State {
    held: Option<Holding>,
    replace: bool,
    /// Epoch of a first record.
    first_epoch: u64,
    fenced: Option<Error>,
    swaps: u64,
    failures: u64,
    witness_trouble: Option<String>,
    /// The record that is held is to be noted by the witness.
    is_unnoted: bool,
    /// Number and root of the last pass of the pool's parity; 0 if it has none.
    parity: (u64, [u8; 32]),
}

/// When this host remembers a record that the register holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Note {
    /// With [`Anchor::remember`].
    Later,
    /// At once.
    Now,
    /// At once, and synced.
    Synced,
}

/// One import's hold on a register.
pub struct Anchor {
    register: Arc<dyn Register>,
    witness: Option<Arc<dyn Witness>>,
    clock: Arc<dyn Clock>,
    key: Option<Key>,
    pool: PoolGuid,
    writer: u64,
    state: Mutex<State>,
}

impl Anchor {
    /// A hold on a register. Nothing is written: see [`Anchor::take_over`] and [`Anchor::advance`].
    #[must_use]
    pub fn new(
        env: &Env,
        pool: PoolGuid,
        register: Arc<dyn Register>,
        witness: Option<Arc<dyn Witness>>,
        key: Option<Key>,
        start: Start,
    ) -> Anchor {
        let parity = match &start {
            Start::TakeOver(holding) => (holding.record.por_gen, holding.record.por_root),
            Start::New { .. } => (0, [0; 32]),
        };
        let (held, replace, first_epoch) = match start {
            Start::TakeOver(holding) => (Some(holding), false, 1),
            Start::New { replace, epoch } => (None, replace, epoch),
        };
        let state = State {
            held,
            replace,
            first_epoch,
            fenced: None,
            swaps: 0,
            failures: 0,
            witness_trouble: None,
            is_unnoted: false,
            parity,
        };
        Anchor {
            register,
            witness,
            clock: Arc::clone(&env.clock),
            key,
            pool,
            writer: env.random.nonzero_u64(),
            state: Mutex::new(state),
        }
    }

    /// Path or address of the register.
    #[must_use]
    pub fn identity(&self) -> String {
        self.register.identity()
    }

    /// Becomes the register's writer: one epoch more, or `least_epoch` if that is greater; the same
    /// root, or another one that the operator decided to accept, with how far its log is believed.
    /// The former writer is fenced. Of two that take over from one record, one does.
    pub fn take_over(&self, accepted: Option<(Root, LogHead)>, least_epoch: u64) -> Result<(), Error> {
        let mut state = self.state.lock();
        let held = state.held.as_ref().expect("there is a record to take over");
        let is_accepted = accepted.is_some();
        let (root, log) = accepted.unwrap_or_else(|| (held.root(), held.record.log));
        let record = AnchorRecord {
            seq: held.record.seq + 1,
            epoch: (held.record.epoch + 1).max(least_epoch),
            ..self.record_of(&state, root, log)
        };
        if is_accepted && let Some(witness) = &self.witness {
            // It remembers what the operator decided not to insist on.
            let _ = witness.forget();
        }
        self.swap(&mut state, record, Note::Synced)
    }

    /// The number that the record of the next advance will have: what its uberblock carries.
    #[must_use]
    pub fn next_seq(&self) -> u64 {
        self.state.lock().held.as_ref().map_or(1, |held| held.record.seq + 1)
    }

    /// Makes `root` the only acceptable one. Everything reachable from it is durable [anchor.1],
    /// and it replaces the one that was acceptable until now. How far the log is promised stays, or
    /// becomes `log`. Durable when it returns; if it fails, nothing more may be written.
    pub fn advance(&self, root: Root, log: Option<LogHead>) -> Result<(), Error> {
        self.advance_as(root, log, false)
    }

    /// The same, and the last time: the pool lives without this register from now on.
    pub fn retire(&self, root: Root) -> Result<(), Error> {
        self.advance_as(root, Some(LogHead::default()), true)
    }

    fn advance_as(&self, root: Root, log: Option<LogHead>, retired: bool) -> Result<(), Error> {
        let mut state = self.state.lock();
        let Some(held) = &state.held else {
            let first = AnchorRecord {
                keyed: self.key.is_some(),
                retired,
                pool: self.pool,
                seq: 1,
                epoch: state.first_epoch,
                writer: self.writer,
                time_ns: self.now_ns(),
                log: log.unwrap_or_default(),
                por_gen: state.parity.0,
                por_root: state.parity.1,
                prev: [0; 32],
                root_tag: root.tag,
                root: root.uberblock,
            };
            let bytes = Box::new(first.encode(|bound| mac_of(self.key.as_ref(), bound)));
            check_none_held("a register");
            asking(Way::Write, || self.register.create(&bytes, state.replace))?;
            if let Some(witness) = &self.witness {
                // The remembered record belongs to a register that no longer exists.
                let _ = witness.forget();
            }
            // Not noted yet: until the pool's labels name the register, a crash leaves one that
            // nobody needs.
            state.held = Some(Holding { record: Box::new(first), bytes });
            return Ok(());
        };
        assert!(root.uberblock.txg > held.record.txg(), "a commit moves the register forward [anchor.4]");
        assert_eq!(
            root.uberblock.parent, held.record.root_tag,
            "a root names the one it replaces [anchor.4]"
        );
        let log = log.unwrap_or(held.record.log);
        let next = AnchorRecord { seq: held.record.seq + 1, retired, ..self.record_of(&state, root, log) };
        self.swap(&mut state, next, Note::Now)
    }

    /// Anchors how far the intent log is promised; the root stays. This host remembers it with
    /// [`Anchor::remember`], for which no caller need wait.
    pub fn advance_log(&self, log: LogHead) -> Result<(), Error> {
        let mut state = self.state.lock();
        let held = state.held.as_ref().expect("a pool that is in use has a record");
        let next = AnchorRecord { seq: held.record.seq + 1, ..self.record_of(&state, held.root(), log) };
        self.swap(&mut state, next, Note::Later)
    }

    /// Has this host remember how far the log was anchored, if it does not yet.
    pub fn remember(&self) {
        let mut state = self.state.lock();
        // Another process of this host, which fenced this one, remembers more by now.
        if std::mem::take(&mut state.is_unnoted)
            && state.fenced.is_none()
            && let (Some(witness), Some(held)) = (&self.witness, &state.held)
        {
            let noted = witness.note(&held.bytes, false);
            trouble(&mut state, noted);
        }
    }

    /// Looks whether the register still holds our record. Before anything is written for a commit,
    /// and before anything is discarded: what a fenced writer holds to be free may be another's by
    /// now.
    pub fn check(&self) -> Result<(), Error> {
        let mut state = self.state.lock();
        if let Some(fenced) = &state.fenced {
            return Err(fenced.clone());
        }
        let Some(held) = &state.held else { return Ok(()) };
        let mut pauses = RETRY_PAUSES.iter();
        let now = loop {
            check_none_held("a register");
            match asking(Way::Write, || self.register.read()) {
                Ok(now) if now == held.bytes => return Ok(()),
                Ok(now) => break now,
                Err(error) => self.clock.sleep(next_pause(&mut pauses, error)?),
            }
        };
        Err(self.fence(&mut state, now))
    }

    /// Number and root of the last pass of the pool's parity, or none: records from the next one on
    /// carry them.
    pub fn note_parity(&self, pass: Option<(u64, [u8; 32])>) {
        self.state.lock().parity = pass.unwrap_or((0, [0; 32]));
    }

    /// Number of the last pass of the pool's parity, as the record carries it; 0 if there is none.
    #[must_use]
    pub fn parity_generation(&self) -> u64 {
        self.state.lock().held.as_ref().map_or(0, |held| held.record.por_gen)
    }

    /// The anchored root, and the end of the promised log.
    #[must_use]
    pub fn held(&self) -> Option<(Root, LogHead)> {
        self.state.lock().held.as_ref().map(|held| (held.root(), held.record.log))
    }

    /// Syncs what this host remembers.
    pub fn settle(&self) {
        let mut state = self.state.lock();
        if let (Some(witness), Some(held)) = (&self.witness, &state.held)
            && state.fenced.is_none()
        {
            let noted = witness.note(&held.bytes, true);
            state.is_unnoted = false;
            trouble(&mut state, noted);
        }
    }

    /// Forgets what this host remembers: the pool lives without an anchor from now on.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        state.is_unnoted = false;
        if let Some(witness) = &self.witness {
            let forgotten = witness.forget();
            trouble(&mut state, forgotten);
        }
    }

    /// State for the operator.
    #[must_use]
    pub fn status(&self) -> Status {
        let state = self.state.lock();
        let record = state.held.as_ref().map(|held| &*held.record);
        Status {
            register: self.register.identity(),
            seq: record.map_or(0, |record| record.seq),
            epoch: record.map_or(0, |record| record.epoch),
            txg: record.map_or(Txg(0), AnchorRecord::txg),
            time_ns: record.map_or(0, |record| record.time_ns),
            keyed: self.key.is_some(),
            swaps: state.swaps,
            failures: state.failures,
            fenced: state.fenced.as_ref().map(ToString::to_string),
            witness_trouble: state.witness_trouble.clone(),
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.clock.wall_ns()).unwrap_or(0)
    }

    /// A record after `held` with `root`, of the same seq and epoch.
    fn record_of(&self, state: &State, root: Root, log: LogHead) -> AnchorRecord {
        let held = state.held.as_ref().expect("a record follows another one");
        AnchorRecord {
            writer: self.writer,
            time_ns: self.now_ns(),
            log,
            prev: steadfast_crypto::hash(&held.bytes[..]),
            root_tag: root.tag,
            root: root.uberblock,
            por_gen: state.parity.0,
            por_root: state.parity.1,
            ..AnchorRecord::clone(&held.record)
        }
    }

    fn swap(&self, state: &mut State, next: AnchorRecord, note: Note) -> Result<(), Error> {
        if let Some(fenced) = &state.fenced {
            // [anchor.5]
            return Err(fenced.clone());
        }
        let held = state.held.as_ref().expect("a swap replaces a record");
        assert_eq!(next.seq, held.record.seq + 1, "records count up by one [anchor.4]");
        assert!(next.epoch >= held.record.epoch && next.pool == self.pool, "[anchor.4]");
        let bytes = Box::new(next.encode(|bound| mac_of(self.key.as_ref(), bound)));
        let mut pauses = RETRY_PAUSES.iter();
        loop {
            check_none_held("a register");
            match asking(Way::Write, || self.register.swap(&held.bytes, &bytes)) {
                Ok(()) => {
                    state.swaps += 1;
                    self.accept(state, Holding { record: Box::new(next), bytes }, note);
                    return Ok(());
                }
                Err(SwapError::Lost(now)) => return Err(self.fence(state, now)),
                Err(SwapError::Failed(error)) => {
                    state.failures += 1;
                    self.clock.sleep(next_pause(&mut pauses, error)?);
                }
            }
        }
    }

    fn accept(&self, state: &mut State, holding: Holding, note: Note) {
        state.is_unnoted = note == Note::Later;
        if let Some(witness) = self.witness.as_ref().filter(|_| note != Note::Later) {
            let noted = witness.note(&holding.bytes, note == Note::Synced);
            trouble(state, noted);
        }
        state.held = Some(holding);
    }

    fn fence(&self, state: &mut State, now: Box<RecordBytes>) -> Error {
        let ours = state.held.as_ref().expect("a swap replaces a record");
        let (ours_seq, ours_epoch) = (ours.record.seq, ours.record.epoch);
        // The record is not ours.
        let error = match Holding::judge(now, &*self.register, self.pool, self.key.as_ref()) {
            Ok(other) => Error::Fenced {
                register: self.identity(),
                seq: other.record.seq,
                epoch: other.record.epoch,
                txg: other.record.txg(),
                ours_seq,
                ours_epoch,
            },
            Err(error) => error,
        };
        state.fenced = Some(error.clone());
        error
    }
}

/// How long to wait before the next attempt. Only what may pass by itself is tried again.
fn next_pause(pauses: &mut std::slice::Iter<'_, Duration>, error: RegisterError) -> Result<Duration, Error> {
    let may_pass = matches!(error, RegisterError::Unreachable { .. });
    pauses.next().filter(|_| may_pass).copied().ok_or(Error::Register(error))
}

fn trouble(state: &mut State, result: io::Result<()>) {
    state.witness_trouble = result.err().map(|error| error.to_string());
}
