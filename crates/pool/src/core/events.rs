//! Events of a pool that an operator wants to hear of: bad blocks, failed devices, no space, slow
//! commits. Kept in memory until somebody takes them (`zpool events`); the oldest go first.

use crate::core::ranked::{RankedMutex, rank};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use steadfast_device::{DeviceWait, Outage};

use steadfast_blockio::{Badness, BlockFault, ErrorLog};
use steadfast_env::Clock;
use steadfast_format::{Address, DatasetId, DeviceId, Txg};

/// Events kept.
const KEPT: usize = 512;
/// Bad blocks told apart; when there are more, telling them apart begins anew.
const BLOCKS_KEPT: usize = 65_536;
/// Refusals for want of space within this time are one event.
const FULL_QUIET: Duration = Duration::from_secs(10);
/// A commit that took longer is an event: nothing the pool does to itself should.
pub(crate) const STALL: Duration = Duration::from_secs(10);

/// Something that happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// What.
    pub kind: EventKind,
}

/// Kinds of events.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum EventKind {
    /// A copy of a block was bad; told once for each address.
    Block {
        /// The device it came from, if one is to blame.
        device: Option<DeviceId>,
        /// The dataset it belongs to, 0 for the pool's own metadata.
        dataset: DatasetId,
        /// Where its pointer says it is.
        address: Address,
        /// Kind of damage.
        badness: Badness,
        /// The same in words.
        detail: String,
        /// True if another copy was good.
        healed: bool,
    },
    /// A range of a file could not be read from any copy.
    File {
        /// Full name of the dataset.
        dataset: String,
        /// Path within it, if it has one.
        path: Option<Vec<u8>>,
        /// Inode.
        inode: u64,
        /// First bad byte.
        offset: u64,
        /// Bad bytes.
        length: u64,
    },
    /// A device answered with an error.
    Device {
        /// Name of the device.
        device: String,
        /// Error of the operating system.
        detail: String,
        /// The system's number, if it gave one.
        errno: Option<i32>,
    },
    /// Writes were refused because the pool is full; told at most once in ten seconds.
    NoSpace,
    /// A commit took unusually long.
    Stall {
        /// Which.
        txg: Txg,
        /// How long.
        nanos: u64,
    },
    /// A scrub or resilver began, ended or was stopped.
    Scan {
        /// `scrub` or `resilver`.
        what: &'static str,
        /// Step: start, resume, pause, cancel, finish.
        word: &'static str,
    },
    /// A device left the pool: what it held is elsewhere.
    DeviceRemoved {
        /// Device.
        path: String,
    },
    /// A device failed, and its group does without it from now on.
    DeviceFaulted {
        /// Device.
        path: String,
        /// Error of the device.
        reason: String,
    },
    /// A spare stepped in for a device, or waits again.
    Spare {
        /// The spare.
        path: String,
        /// INUSE or AVAIL.
        word: &'static str,
        /// Device that the spare stands for; empty if the spare waits.
        instead: String,
    },
    /// A device errs too much; it goes on being used.
    DeviceDegraded {
        /// Device.
        path: String,
        /// Errors that the device made.
        reason: String,
    },
    /// The operator accepted a root that the anchor did not hold, or gave the anchor up.
    RootAccepted {
        /// Root that was accepted, and the root that it replaces.
        notice: String,
    },
    /// A log device failed; `fsync` commits until the log has another place.
    LogFailed {
        /// The device.
        path: String,
        /// Error of the operating system.
        reason: String,
    },
    /// A log device had lost groups of the log that another one of its mirror had; they were
    /// written to it.
    LogMended {
        /// The device.
        path: String,
        /// How many.
        groups: u64,
    },
    /// A scrub found none of the pool's labels on a device; it writes them again.
    LabelsLost {
        /// The device.
        path: String,
    },
    /// The operator accepted that promises of the intent log are lost.
    LogGivenUp {
        /// Losses that the operator accepted.
        notice: String,
    },
    /// A trim or an initialization began, went on, stopped or ended.
    Trim {
        /// `trim` or `initialize`.
        what: &'static str,
        /// Name of the device.
        device: String,
        /// Which: start, resume, suspend, cancel, finish.
        word: &'static str,
    },
    /// The pool stopped writing.
    Suspended {
        /// Why.
        reason: String,
    },
    /// A store of objects is away. A commit waits for it.
    StoreAway {
        /// The first request that failed.
        outage: Outage,
    },
    /// The parity device cannot be used; the pool goes on without it.
    ParityOut {
        /// The device.
        path: String,
        /// Why.
        reason: String,
    },
    /// The store that holds the tiles of the parity device does not do what it is asked: passes
    /// wait.
    TilesAway {
        /// Its address.
        address: String,
        /// Why.
        reason: String,
    },
    /// Stores were asked for what they should hold.
    Audited {
        /// Samples.
        samples: u32,
        /// Samples that were not held.
        failed: u32,
        /// Bytes that the pool stores.
        stored: u64,
        /// Those of them that the code covers.
        covered: u64,
    },
    /// The agent beside a store gave no answer; the store itself is asked.
    AgentSilent {
        /// The store.
        device: String,
        /// Why.
        reason: String,
    },
    /// All stores were read, and what they lost was put back as far as it could be.
    Recovered {
        /// Objects that were put back.
        objects: u64,
        /// Cells that did not come back.
        lost: u64,
    },
    /// Blocks in objects that were put back were held against the hashes in their pointers.
    Proven {
        /// Blocks.
        blocks: u64,
        /// Bytes of these.
        bytes: u64,
        /// Blocks that do not have their hash.
        wrong: u64,
        /// Nodes that could not be read.
        unread: u64,
        /// Datasets whose keys are not loaded.
        left_out: Vec<String>,
    },
    /// The code of the parity device was made anew, under another map.
    Rekeyed {
        /// Objects that it leaves out, because cells of them did not come back.
        left_out: u64,
    },
    /// It was not.
    RekeyFailed {
        /// Why.
        reason: String,
    },
    /// The pool writes again: the host has room, or the store answers.
    Resumed {
        /// The outage that has ended.
        outage: Outage,
        /// How long.
        nanos: u64,
    },
}

/// Collects events of one pool.
pub(crate) struct Events {
    clock: Arc<dyn Clock>,
    state: RankedMutex<State, rank::Events>,
    /// Transfers that wait for a device.
    pub wait: Arc<DeviceWait>,
}

#[derive(Default)]
struct State {
    ring: VecDeque<Event>,
    blocks: BTreeSet<Address>,
    files: BTreeSet<(DatasetId, u64, u64)>,
    full_since_ns: Option<u64>,
}

impl Events {
    pub fn new(clock: Arc<dyn Clock>) -> Events {
        Events { clock, state: RankedMutex::default(), wait: Arc::default() }
    }

    fn push(&self, state: &mut State, kind: EventKind) {
        if state.ring.len() == KEPT {
            state.ring.pop_front();
        }
        let time_ns = u64::try_from(self.clock.wall_ns()).unwrap_or(0);
        state.ring.push_back(Event { time_ns, kind });
    }

    pub fn note(&self, kind: EventKind) {
        self.push(&mut self.state.lock(), kind);
    }

    /// A write was refused for want of space.
    pub fn full(&self) {
        let now = self.clock.monotonic_ns();
        let mut state = self.state.lock();
        let quiet = u64::try_from(FULL_QUIET.as_nanos()).unwrap_or(u64::MAX);
        if state.full_since_ns.is_none_or(|since| now.saturating_sub(since) >= quiet) {
            state.full_since_ns = Some(now);
            self.push(&mut state, EventKind::NoSpace);
        }
    }

    pub fn device_failed(&self, error: &steadfast_device::Error) {
        let (device, detail) = (error.device().to_owned(), error.to_string());
        self.note(EventKind::Device { device, detail, errno: error.errno() });
    }

    /// A damaged range of a file. ScanProgress once.
    pub fn file(&self, id: DatasetId, kind: EventKind) {
        let EventKind::File { inode, offset, .. } = kind else { unreachable!("a damaged file is one") };
        let mut state = self.state.lock();
        if state.files.insert((id, inode, offset)) {
            self.push(&mut state, kind);
        }
    }

    /// From now on every bad block and file is news again.
    pub fn forget_errors(&self) {
        let mut state = self.state.lock();
        state.blocks.clear();
        state.files.clear();
    }

    /// Everything since this was last called, oldest first.
    pub fn take(&self) -> Vec<Event> {
        self.state.lock().ring.drain(..).collect()
    }
}

impl ErrorLog for Events {
    fn block_failed(&self, fault: &BlockFault) {
        let mut state = self.state.lock();
        for attempt in &fault.attempts {
            if state.blocks.len() >= BLOCKS_KEPT {
                state.blocks.clear();
            }
            if state.blocks.insert(attempt.address) {
                let kind = EventKind::Block {
                    device: attempt.device,
                    dataset: fault.dataset,
                    address: attempt.address,
                    badness: attempt.badness,
                    detail: attempt.detail.clone(),
                    healed: fault.healed,
                };
                self.push(&mut state, kind);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use steadfast_env::Env;

    use super::*;

    #[test]
    fn the_oldest_go_first_and_all_are_told_once() {
        let events = Events::new(Env::seeded(1).clock);
        for txg in 0..(KEPT as u64 + 3) {
            events.note(EventKind::Stall { txg: Txg(txg), nanos: 1 });
        }
        let taken = events.take();
        assert_eq!(taken.len(), KEPT);
        assert_eq!(taken[0].kind, EventKind::Stall { txg: Txg(3), nanos: 1 });
        assert!(taken.windows(2).all(|pair| pair[0].time_ns <= pair[1].time_ns));
        assert!(events.take().is_empty());
    }

    #[test]
    fn a_full_pool_is_told_again_only_after_a_while() {
        let env = Env::seeded(1);
        let events = Events::new(Arc::clone(&env.clock));
        (0..100).for_each(|_| events.full());
        assert_eq!(events.take().len(), 1);
        env.clock.sleep(FULL_QUIET);
        events.full();
        assert_eq!(events.take().len(), 1);
    }
}
