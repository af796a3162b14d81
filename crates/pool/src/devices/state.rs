//! State of the devices of a pool.

use crate::core::error::Result;
use crate::core::ranked::{RankedMutex, RankedRwLock, rank};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Arc, OnceLock, Weak};
use steadfast_format::DatasetId;
use steadfast_format::PoolState;
use steadfast_format::Txg;

use steadfast_format::{AuxConfig, DeviceId, GroupConfig, ScanRow, SegmentId};

use crate::core::state::Core;
use crate::devices::audit_report::DeviceAudit;
use crate::devices::diagnosis::Diagnosis;
use crate::devices::errlog::DamagedFile;
use crate::devices::l2arc::CacheDevice;
use crate::devices::labels_due::LabelsDue;
use crate::devices::leaf::Leaf;
use crate::devices::parity::Parity;
use crate::devices::scan::Scan;
use crate::devices::scan::ScanProgress;
use crate::devices::spare::Spare;
use crate::devices::sweep::Trims;

/// Groups and leaves (ZFS: the vdev tree).
pub(crate) struct Topology {
    /// Groups of leaves, as labels list them.
    pub groups: RankedRwLock<Vec<GroupConfig>, rank::Groups>,
    pub leaves: RankedRwLock<Vec<Arc<Leaf>>, rank::Leaves>,
    /// Devices that the next import takes into use again: labels call them gone.
    pub until_import: RankedMutex<BTreeSet<DeviceId>, rank::UntilImport>,
    /// Devices that leave once no row names them.
    pub replacing: RankedMutex<Vec<DeviceId>, rank::Replacing>,
    /// Devices that have left and still carry labels.
    pub departed: RankedMutex<Vec<Arc<Leaf>>, rank::Departed>,
}

/// Auxiliary devices: spares, cache devices (ZFS: L2ARC), and the list of all in labels.
pub(crate) struct Auxiliary {
    /// Auxiliary devices, as labels list them.
    pub listed: RankedRwLock<Vec<AuxConfig>, rank::Listed>,
    /// Log devices as labels list them until the root of the commit under way is durable, if that
    /// changes them.
    pub logs_before: RankedMutex<Option<Vec<AuxConfig>>, rank::LogsBefore>,
    /// Spares that wait.
    pub spares: RankedRwLock<Vec<Arc<Spare>>, rank::Spares>,
    /// Cache devices.
    pub caches: RankedRwLock<Vec<Arc<CacheDevice>>, rank::Caches>,
    /// The parity device.
    pub parity: RankedRwLock<Option<Arc<Parity>>, rank::Parity>,
    /// There was one, and the root still tells of it.
    pub parity_left: AtomicBool,
    /// Devices whose spares the operator took away: no other steps in for them.
    pub unhelped: RankedMutex<BTreeSet<DeviceId>, rank::Unhelped>,
}

/// Scrub and resilver (ZFS: `dsl_scan`).
#[derive(Default)]
pub(crate) struct ScanState {
    /// The scrub or resilver under way, or the last one.
    pub scan: RankedMutex<Option<Scan>, rank::Scan>,
    /// Its progress while it is at work; taken after it, and held for no longer than a copy takes.
    pub progress: RankedMutex<Option<ScanProgress>, rank::ScanProgress>,
    /// Blocks that scans have asked for themselves, in the measure of
    /// [`steadfast_blockio::Statistics::blocks_asked`].
    pub asked: AtomicU64,
    /// Commands that wait for the scan.
    pub commands: AtomicUsize,
    /// The next commit is followed by a resilver.
    pub resilver_wanted: AtomicBool,
    /// Verbs under way that a resilver may follow ([`Devices::resilver_due`]).
    pub resilvers_due: AtomicUsize,
    /// The last audit of files and disks.
    pub audited: RankedMutex<DeviceAudit, rank::DeviceAudit>,
}

/// Jobs that move segments between devices: removal, expansion of a raidz group, rebalance.
#[derive(Default)]
pub(crate) struct MoveState {
    /// The job under way, or the last one.
    pub job: RankedMutex<Option<Scan>, rank::MoveJob>,
    /// Its progress while a part of it is under way; taken after it, and held for no longer than a
    /// copy takes.
    pub progress: RankedMutex<Option<ScanRow>, rank::MoveProgress>,
    /// Verbs under way that the evening out of a group follows.
    pub expansions_due: AtomicUsize,
}

/// Jobs that go through the free slots of devices.
#[derive(Default)]
pub(crate) struct Sweeps {
    /// Devices that were or are being trimmed.
    pub trims: RankedMutex<Trims, rank::Sweeps>,
    /// Devices that were or are being initialized.
    pub initials: RankedMutex<Trims, rank::Sweeps>,
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
    pub search: RankedMutex<Option<Search>, rank::Search>,
    /// There is one, or a step of it is under way.
    pub searching: AtomicBool,
    /// Files in cells that the last recovery could not give back.
    pub lost: RankedMutex<Vec<DamagedFile>, rank::LostFiles>,
    /// Segments that the import put back, until somebody holds them against their hashes.
    pub unproven: RankedMutex<Vec<SegmentId>, rank::Unproven>,
}

/// Log devices: their room labels them.
pub(crate) trait LogLabels: Send + Sync {
    /// Writes two copies of the labels of log devices, and makes them durable [log_device.3].
    fn write_log_labels(&self, copies: [usize; 2], state: PoolState, txg: Txg) -> Result<()>;

    /// Counts an error on each log device in use that lost its labels. Gives their paths.
    fn count_lost_labels(&self) -> Vec<String>;
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
    /// Changes that labels do not tell yet.
    pub(crate) labels_due: LabelsDue,
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
                groups: RankedRwLock::new(groups),
                leaves: RankedRwLock::new(leaves),
                until_import: RankedMutex::default(),
                replacing: RankedMutex::default(),
                departed: RankedMutex::default(),
            },
            aux: Auxiliary {
                listed: RankedRwLock::new(aux),
                logs_before: RankedMutex::default(),
                spares: RankedRwLock::default(),
                caches: RankedRwLock::default(),
                parity: RankedRwLock::default(),
                parity_left: AtomicBool::new(false),
                unhelped: RankedMutex::default(),
            },
            scans: ScanState::default(),
            moves: MoveState::default(),
            sweeps: Sweeps::default(),
            errors: ErrorSearch::default(),
            diagnosis: Diagnosis::default(),
            labels_due: LabelsDue::default(),
            move_log: AtomicBool::new(false),
            log_labels: OnceLock::new(),
        }
    }
}
