//! Scrub, resilver and rebalance; waiting for work in the background.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Read and compare everything that is stored redundantly, or stop that.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolScrub {
    /// Name.
    pub name: String,
    /// Command.
    pub command: ScrubCommand,
}

/// Command to a scrub or rebalance.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ScrubCommand {
    /// Start, or resume if it is paused.
    Start,
    /// Pause; it can be resumed.
    Pause,
    /// Cancel.
    Stop,
}

/// Restart the resilver from the beginning.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolResilver {
    /// Name of the pool.
    pub name: String,
}

/// Start, pause or cancel a rebalance, which evens out how full devices are.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolRebalance {
    /// Name of the pool.
    pub name: String,
    /// Command.
    pub command: ScrubCommand,
}

/// The last scrub or resilver.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct ScanReport {
    /// `scrub` or `resilver`.
    pub function: String,
    /// `active`, `paused`, `finished` or `canceled`.
    pub state: String,
    /// Time of its start, seconds since 1970.
    pub started: u64,
    /// Time of its end; 0 while it is running or paused.
    pub ended: u64,
    /// Time of its pause; 0 if it is not paused.
    #[serde(default)]
    pub paused: u64,
    /// Time when it went on after its last pause, or after the import; else of its start.
    #[serde(default)]
    pub pass_started: u64,
    /// Bytes scanned before that.
    #[serde(default)]
    pub pass_before: u64,
    /// Bytes to scan, as of the start.
    pub total: u64,
    /// Bytes scanned.
    pub scanned: u64,
    /// Bytes repaired in place.
    pub repaired: u64,
    /// Bytes of missing columns reconstructed onto other devices.
    pub resilvered: u64,
    /// Bytes that could not be repaired.
    pub lost: u64,
    /// Damaged places known, at least 1 if bytes could not be repaired.
    #[serde(default)]
    pub errors: u64,
    /// Columns that no device had room for.
    pub missing: u64,
    /// Removed devices, by the names that status prints; by number once they are gone.
    #[serde(default)]
    pub what: String,
    /// Most bytes a second that a scrub reads beside other load; 0: as many as half of the time
    /// allows.
    #[serde(default)]
    pub limit: u64,
    /// File systems that a scrub of single devices skipped, because their keys are not loaded.
    #[serde(default)]
    pub left_out: Vec<String>,
}

/// Ask which work runs in the background of a pool.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolActivities {
    /// Name.
    pub name: String,
    /// Answer when none of these is running (names of [`Activities::left`]); empty: at once.
    #[serde(default)]
    pub until_over: Vec<String>,
    /// Answer after this many milliseconds even if one is running.
    #[serde(default)]
    pub patience_ms: u64,
    /// Count trims and initializations of these devices only; empty: of all.
    #[serde(default)]
    pub devices: Vec<PathBuf>,
}

/// Work in the background of a pool: bytes left of each kind, 0 if none is running.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Activities {
    /// Freeing deleted blocks.
    pub free: u64,
    /// Trim.
    pub trim: u64,
    /// Initialization.
    #[serde(default)]
    pub initialize: u64,
    /// Scrub.
    #[serde(default)]
    pub scrub: u64,
    /// Resilver.
    #[serde(default)]
    pub resilver: u64,
    /// Removal of devices.
    #[serde(default)]
    pub remove: u64,
    /// Expansion of a raidz group.
    #[serde(default)]
    pub expand: u64,
    /// Rebalance.
    #[serde(default)]
    pub rebalance: u64,
}

impl Activities {
    /// Bytes left of an activity, by its name in `zpool wait`; 0 for an unknown name.
    #[must_use]
    pub fn left(&self, name: &str) -> u64 {
        match name {
            "free" => self.free,
            "trim" => self.trim,
            "initialize" => self.initialize,
            "scrub" => self.scrub,
            "resilver" | "replace" => self.resilver,
            "remove" => self.remove,
            "raidz_expand" => self.expand,
            "rebalance" => self.rebalance,
            _ => 0,
        }
    }
}
