//! State of the intent log of a pool.

use crate::core::ranked::{RankedMutex, RankedRwLock, rank};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use steadfast_intent_log::Log;

use crate::core::state::Core;
use crate::devices::state::Devices;
use crate::log::held::Held;
use crate::log::interval::Interval;
use crate::log::log_change::LogChange;
use crate::log::log_device::{LogDevice, LogMend};

/// The intent log of a pool: like ZFS's ZIL, but one for all datasets.
pub struct Zil {
    pub(crate) core: Arc<Core>,
    pub(crate) devices: Arc<Devices>,
    pub(crate) log: Arc<Log>,
    /// Log devices that are here (ZFS: SLOG).
    pub(crate) log_devices: RankedRwLock<Vec<Arc<LogDevice>>, rank::LogDevices>,
    /// Changes of log devices that the next commit makes.
    pub(crate) changes: RankedMutex<Vec<LogChange>, rank::LogChanges>,
    /// Groups that the replay found to be lacking on log devices.
    pub(crate) mends: RankedMutex<Vec<LogMend>, rank::LogMends>,
    /// Logs of datasets whose keys were not there at import.
    pub(crate) held: RankedMutex<Held, rank::HeldLogs>,
    /// The log's segments were reserved and never written.
    pub(crate) fresh: AtomicBool,
    /// No group of the log is written: [`crate::log::log_devices::LogRest`].
    pub(crate) rests: AtomicBool,
    /// Groups that import replayed.
    pub(crate) replayed: AtomicU64,
    /// Datasets whose changes are logged about once a second.
    pub(crate) interval: Interval,
}

impl Zil {
    pub(crate) fn new(core: Arc<Core>, devices: Arc<Devices>, log: Arc<Log>) -> Zil {
        Zil {
            core,
            devices,
            log,
            log_devices: RankedRwLock::default(),
            changes: RankedMutex::default(),
            mends: RankedMutex::default(),
            held: RankedMutex::default(),
            fresh: AtomicBool::new(false),
            rests: AtomicBool::new(false),
            replayed: AtomicU64::new(0),
            interval: Interval::default(),
        }
    }
}
