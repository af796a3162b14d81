//! Requests and answers of `zpool inject`: deliberate faults.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Long option that a release build needs to inject anything.
pub const STERN_FLAG: &str = "i-want-this-pool-damaged";

/// Inject a fault into a device of an imported pool, or list faults.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolInject {
    /// Name of the pool.
    pub name: String,
    /// The device; with [`InjectCommand::List`] and [`InjectCommand::Clear`] none means all.
    pub device: Option<PathBuf>,
    /// Command.
    pub command: InjectCommand,
    /// The stern flag was given.
    pub damage_wanted: bool,
}

/// Command.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InjectCommand {
    /// List injected faults.
    List,
    /// Remove injected faults; damaged bytes stay damaged.
    Clear,
    /// Write zeros to the device; the pool is not told.
    Zero(Extent),
    /// Flip bits there.
    Flip {
        /// Range.
        extent: Extent,
        /// Number of bits.
        bits: u64,
        /// Seed that selects the bits.
        seed: u64,
    },
    /// Make its calls fail or slow from now on.
    Arm(Fault),
}

/// Range of a device; by default everything between its labels.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Extent {
    /// First byte.
    pub offset: Option<u64>,
    /// Bytes.
    pub length: Option<u64>,
}

/// Fault of calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// Calls fail.
    Eio {
        /// Kind of calls.
        on: Calls,
        /// When.
        when: When,
    },
    /// A write lands in the slot beside its own.
    Misdirect {
        /// When.
        when: When,
    },
    /// All calls fail: the device is gone.
    Gone,
    /// Calls take longer.
    Slow {
        /// Additional nanoseconds of each call.
        latency_ns: u64,
        /// Bytes a second of all calls together; 0: no limit.
        rate: u64,
    },
    /// Calls take as long as on a hard disk.
    Disk {
        /// Nanoseconds of a seek.
        seek_ns: u64,
        /// Bytes a second.
        rate: u64,
    },
}

/// Kind of calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Calls {
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Flushes.
    Flush,
    /// All of them.
    Any,
}

/// Calls that are hit, counted from 1 within their kind.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// Only the call of this number.
    Once(u64),
    /// Every call whose number is a multiple of this.
    Every(u64),
}

/// Answer: the faults in force.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Injections {
    /// Faults in force.
    pub in_force: Vec<InForce>,
    /// Bytes zeroed, or bits flipped, or injections cleared by this request.
    pub done: u64,
}

/// An injection in force.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct InForce {
    /// Path of the device.
    pub device: String,
    /// Fault.
    pub fault: Fault,
    /// Calls of its kind.
    pub seen: u64,
    /// Calls it hit.
    pub struck: u64,
}
