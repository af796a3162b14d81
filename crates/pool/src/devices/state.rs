//! State of the devices of a pool.

use crate::core::error::Result;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};
use steadfast_format::DatasetId;
use steadfast_format::PoolState;
use steadfast_format::Txg;

use parking_lot::{Mutex, RwLock};
use steadfast_format::{AuxConfig, DeviceId, GroupConfig, ScanRow};

use crate::core::state::Core;
use crate::devices::diagnosis::Diagnosis;
use crate::devices::l2arc::CacheDevice;
use crate::devices::leaf::Leaf;
use crate::devices::scan::Scan;
use crate::devices::scan::ScanProgress;
use crate::devices::spare::Spare;
use crate::devices::sweep::Trims;

/// Groups and leaves (ZFS: the vdev tree).
pub(crate) struct Topology {
    /// Groups of leaves, as labels list them.
    pub groups: RwLock<Vec<GroupConfig>>,
    pub leaves: RwLock<Vec<Arc<Leaf>>>,
    /// Devices that the next import takes into use again: labels call them gone.
    pub until_import: Mutex<BTreeSet<DeviceId>>,
    /// Devices that leave once no row names them.
    pub replacing: Mutex<Vec<DeviceId>>,
    /// Devices that have left and still carry labels.
    pub departed: Mutex<Vec<Arc<Leaf>>>,
}

/// Auxiliary devices: spares, cache devices (ZFS: L2ARC), and the list of all in labels.
pub(crate) struct Auxiliary {
    /// Auxiliary devices, as labels list them.
    pub listed: RwLock<Vec<AuxConfig>>,
    /// Log devices as labels list them until the root of the commit under way is durable, if that
    /// changes them.
    pub logs_before: Mutex<Option<Vec<AuxConfig>>>,
    /// Spares that wait.
    pub spares: RwLock<Vec<Arc<Spare>>>,
    /// Cache devices.
    pub caches: RwLock<Vec<Arc<CacheDevice>>>,
    /// Devices whose spares the operator took away: no other steps in for them.
    pub unhelped: Mutex<BTreeSet<DeviceId>>,
}

/// Scrub and resilver (ZFS: `dsl_scan`).
#[derive(Default)]
pub(crate) struct ScanState {
    /// The scrub or resilver under way, or the last one.
    pub scan: Mutex<Option<Scan>>,
    /// Its progress while it is at work; taken after it, and held for no longer than a copy takes.
    pub progress: Mutex<Option<ScanProgress>>,
    /// The next commit is followed by a resilver.
    pub resilver_wanted: AtomicBool,
    /// Verbs under way that a resilver may follow ([`Devices::resilver_due`]).
    pub resilvers_due: AtomicUsize,
}

/// Jobs that move segments between devices: removal, expansion of a raidz group, rebalance.
#[derive(Default)]
pub(crate) struct MoveState {
    /// The job under way, or the last one.
    pub job: Mutex<Option<Scan>>,
    /// Its progress while a part of it is under way; taken after it, and held for no longer than a
    /// copy takes.
    pub progress: Mutex<Option<ScanRow>>,
    /// Verbs under way that the evening out of a group follows.
    pub expansions_due: AtomicUsize,
}

/// Jobs that go through the free slots of devices.
#[derive(Default)]
pub(crate) struct Sweeps {
    /// Devices that were or are being trimmed.
    pub trims: Mutex<Trims>,
    /// Devices that were or are being initialized.
    pub initials: Mutex<Trims>,
}

/// Where a search goes on: behind this key of this dataset.
#[derive(Default)]
pub(crate) struct Search {
    pub dataset: DatasetId,
    pub behind: Option<Vec<u8>>,
}

/// The search for files in segments that the cleaner could not read.
#[derive(Default)]
pub(crate) struct ErrorSearch {
    pub search: Mutex<Option<Search>>,
    /// There is one, or a step of it is under way.
    pub searching: AtomicBool,
}

/// Log devices: their room labels them.
pub(crate) trait LogLabels: Send + Sync {
    /// Writes two copies of the labels of log devices, and makes them durable [log_device.3].
    fn write_log_labels(&self, copies: [usize; 2], state: PoolState, txg: Txg) -> Result<()>;
}

/// The devices of a pool.
pub struct Devices {
    pub(crate) core: Arc<Core>,
    pub(crate) topology: Topology,
    pub(crate) aux: Auxiliary,
    pub(crate) scans: ScanState,
    pub(crate) moves: MoveState,
    pub(crate) sweeps: Sweeps,
    pub(crate) errors: ErrorSearch,
    /// Errors of devices of late.
    pub(crate) diagnosis: Diagnosis,
    /// The next commit gives the log other segments.
    pub(crate) move_log: AtomicBool,
    /// The log, which labels its devices itself.
    pub(crate) log_labels: OnceLock<Weak<dyn LogLabels>>,
}

impl Devices {
    pub(crate) fn new(
        core: Arc<Core>,
        groups: Vec<GroupConfig>,
        leaves: Vec<Arc<Leaf>>,
        aux: Vec<AuxConfig>,
    ) -> Devices {
        Devices {
            core,
            topology: Topology {
                groups: RwLock::new(groups),
                leaves: RwLock::new(leaves),
                until_import: Mutex::default(),
                replacing: Mutex::default(),
                departed: Mutex::default(),
            },
            aux: Auxiliary {
                listed: RwLock::new(aux),
                logs_before: Mutex::default(),
                spares: RwLock::default(),
                caches: RwLock::default(),
                unhelped: Mutex::default(),
            },
            scans: ScanState::default(),
            moves: MoveState::default(),
            sweeps: Sweeps::default(),
            errors: ErrorSearch::default(),
            diagnosis: Diagnosis::default(),
            move_log: AtomicBool::new(false),
            log_labels: OnceLock::new(),
        }
    }
}
