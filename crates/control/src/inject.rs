//! Faults on purpose, as they travel: what `zpool inject` asks, and what it is told.

use crate::refusal::{Code, Refusal};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The long option without which a release build injects nothing.
pub const STERN_FLAG: &str = "i-want-this-pool-damaged";

/// Do something to a device of an imported pool, or tell what was done.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PoolInject {
    /// Name of the pool.
    pub name: String,
    /// The device; with [`InjectCommand::List`] and [`InjectCommand::Clear`] none means all.
    pub device: Option<PathBuf>,
    /// What.
    pub command: InjectCommand,
    /// The stern flag was given.
    pub damage_wanted: bool,
}

/// What is asked.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InjectCommand {
    /// Tell what is injected.
    List,
    /// Inject nothing any more; bytes that were spoilt stay so.
    Clear,
    /// Write zeros to the device, behind the pool's back.
    Zero(Extent),
    /// Flip bits there.
    Flip {
        /// Where.
        extent: Extent,
        /// How many.
        bits: u64,
        /// Chooses which.
        seed: u64,
    },
    /// Do something to its calls from now on.
    Arm(Fault),
}

/// A part of a device; where nothing is said, all that lies between its labels.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Extent {
    /// First byte.
    pub offset: Option<u64>,
    /// Bytes.
    pub length: Option<u64>,
}

/// What is done to calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// They fail.
    Eio {
        /// Which.
        on: Calls,
        /// When.
        when: When,
    },
    /// A write lands in the slot beside its own.
    Misdirect {
        /// When.
        when: When,
    },
    /// All fail.
    Gone,
    /// They take longer.
    Slow {
        /// Nanoseconds more for each.
        latency_ns: u64,
        /// Bytes a second of all together; 0: no limit.
        rate: u64,
    },
    /// They take what a hard disk would take.
    Disk {
        /// Nanoseconds of a seek.
        seek_ns: u64,
        /// Bytes a second.
        rate: u64,
    },
}

/// Which calls fail.
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

/// When, counted in calls of the kind, from 1.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum When {
    /// At this one only.
    Once(u64),
    /// At every so-many-th.
    Every(u64),
}

/// What was done, or is in force.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Injections {
    /// What is in force.
    pub in_force: Vec<InForce>,
    /// Bytes zeroed, or bits flipped, or injections cleared by this request.
    pub done: u64,
}

/// An injection in force.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct InForce {
    /// Path of the device.
    pub device: String,
    /// What.
    pub fault: Fault,
    /// Calls it concerned.
    pub seen: u64,
    /// Calls it did something to.
    pub struck: u64,
}

/// Refuses what makes no sense.
pub(crate) fn check(request: &PoolInject) -> Result<(), Refusal> {
    let wrong = |what: &str| Err(Refusal::new(Code::ApiRequest, what));
    let counts = |when: &When| match when {
        When::Once(at) | When::Every(at) => *at > 0,
    };
    match &request.command {
        InjectCommand::List | InjectCommand::Clear => Ok(()),
        _ if request.device.is_none() => wrong("a fault is injected into one device, which is not named"),
        InjectCommand::Flip { bits: 0, .. } => wrong("flipping no bits does nothing"),
        InjectCommand::Zero(Extent { length: Some(0), .. })
        | InjectCommand::Flip { extent: Extent { length: Some(0), .. }, .. } => {
            wrong("an extent of no bytes holds nothing")
        }
        InjectCommand::Arm(Fault::Eio { when, .. } | Fault::Misdirect { when }) if !counts(when) => {
            wrong("calls are counted from 1")
        }
        InjectCommand::Arm(Fault::Slow { latency_ns: 0, rate: 0 }) => {
            wrong("a slow device has a latency or a rate")
        }
        InjectCommand::Arm(Fault::Disk { rate: 0, .. }) => wrong("a hard disk has a rate"),
        InjectCommand::Arm(Fault::Slow { latency_ns, .. } | Fault::Disk { seek_ns: latency_ns, .. })
            if *latency_ns > LATENCY_NS_MAX =>
        {
            wrong("a latency is at most a minute")
        }
        _ => Ok(()),
    }
}

/// Longest latency of one call: what waits longer could not be stopped in time.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

/// Whether faults may be injected: in a test build freely, in others if the stern flag was given.
pub(crate) fn check_wanted(request: &PoolInject, is_test_build: bool) -> Result<(), Refusal> {
    let harmless = matches!(request.command, InjectCommand::List | InjectCommand::Clear);
    if harmless || is_test_build || request.damage_wanted {
        return Ok(());
    }
    let what = format!("nothing was done to '{}'", request.name);
    Err(Refusal::new(Code::InjectFlag, what).with("pool", &request.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(command: InjectCommand) -> PoolInject {
        PoolInject { name: "tank".into(), device: Some("/d".into()), command, damage_wanted: false }
    }

    #[test]
    fn a_release_build_wants_the_stern_flag_for_all_that_damages() {
        let gone = request(InjectCommand::Arm(Fault::Gone));
        assert_eq!(check_wanted(&gone, false).unwrap_err().code, Code::InjectFlag);
        check_wanted(&gone, true).unwrap();
        check_wanted(&PoolInject { damage_wanted: true, ..gone }, false).unwrap();
        check_wanted(&request(InjectCommand::List), false).unwrap();
        check_wanted(&request(InjectCommand::Clear), false).unwrap();
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let refused = [
            InjectCommand::Flip { extent: Extent::default(), bits: 0, seed: 1 },
            InjectCommand::Zero(Extent { offset: None, length: Some(0) }),
            InjectCommand::Arm(Fault::Eio { on: Calls::Any, when: When::Every(0) }),
            InjectCommand::Arm(Fault::Misdirect { when: When::Once(0) }),
            InjectCommand::Arm(Fault::Slow { latency_ns: 0, rate: 0 }),
            InjectCommand::Arm(Fault::Disk { seek_ns: 1, rate: 0 }),
            InjectCommand::Arm(Fault::Disk { seek_ns: u64::MAX, rate: 1 }),
        ];
        for command in refused {
            check(&request(command.clone())).expect_err(&format!("{command:?}"));
        }
        check(&PoolInject { device: None, ..request(InjectCommand::Arm(Fault::Gone)) }).unwrap_err();
        check(&request(InjectCommand::Arm(Fault::Gone))).unwrap();
    }
}
