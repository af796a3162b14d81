//! `zpool inject`: deliberate faults of a pool's devices, and deliberate damage of their bytes.
//!
//! [inject.1] Bytes are damaged only on a device whose label says that it is the device that the
//!      pool uses under that path.
//!      assert: `open_target`

use crate::caller::Caller;
use crate::check::check_paths;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::engine::{devices, refuse};
use crate::inject::{Calls, Extent, Fault, InForce, InjectCommand, Injections, PoolInject, When};
use crate::refusal::{Code, Refusal};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use steadfast_format::medium;
use steadfast_pool::inject as pool;

/// Bytes of zeros in one write.
const PIECE: usize = 1 << 20;

/// Longest latency of one call: a daemon could not stop in time if calls waited longer.
const LATENCY_NS_MAX: u64 = 60_000_000_000;

impl Verb for PoolInject {
    // Filling a device with zeros may take long, and no other verb depends on what is injected.
    const IN_TURN: bool = false;

    fn check(&mut self) -> Result<(), Refusal> {
        check_paths(self.device.as_slice())?;
        check_command(self)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Injections, Refusal> {
        check_wanted(&self, cfg!(debug_assertions))?;
        let held = engine.held_pool(&self.name)?;
        let device = self.device.as_ref();
        let known = used(&held);
        let paths = known.iter().map(|(path, _)| path.as_str());
        let path = device.map(|device| Engine::among(paths, &self.name, device)).transpose()?;
        let spoilt = || path.as_deref().expect("a fault has a device: it was checked");
        let mut done = 0;
        match &self.command {
            InjectCommand::List => {}
            InjectCommand::Clear => done = held.pool.clear_injected(path.as_deref()) as u64,
            InjectCommand::Arm(fault) => {
                held.pool.inject(spoilt(), injection(*fault)).map_err(refuse::pool)?;
            }
            InjectCommand::Zero(extent) => {
                let (file, from, until) = open_target(&held, spoilt(), *extent)?;
                zero(&file, from, until).map_err(|error| trouble(spoilt(), &error))?;
                done = until - from;
            }
            InjectCommand::Flip { extent, bits, seed } => {
                let (file, from, until) = open_target(&held, spoilt(), *extent)?;
                flip(&file, from, until, *bits, *seed).map_err(|error| trouble(spoilt(), &error))?;
                done = *bits;
            }
        }
        if !matches!(self.command, InjectCommand::List) {
            engine.log(&held, caller);
        }
        Ok(Injections { in_force: in_force(&held), done })
    }
}

/// Refuses faults without effect.
fn check_command(request: &PoolInject) -> Result<(), Refusal> {
    let wrong = |what: &str| Err(Refusal::new(Code::ApiRequest, what));
    let counts = |when: &When| match when {
        When::Once(at) | When::Every(at) => *at > 0,
    };
    match &request.command {
        InjectCommand::List | InjectCommand::Clear => Ok(()),
        _ if request.device.is_none() => wrong("name the device of the fault"),
        InjectCommand::Flip { bits: 0, .. } => wrong("bits= must be at least 1"),
        InjectCommand::Zero(Extent { length: Some(0), .. })
        | InjectCommand::Flip { extent: Extent { length: Some(0), .. }, .. } => {
            wrong("length= must be at least 1")
        }
        InjectCommand::Arm(Fault::Eio { when, .. } | Fault::Misdirect { when }) if !counts(when) => {
            wrong("nth= and every= must be at least 1")
        }
        InjectCommand::Arm(Fault::Slow { latency_ns: 0, rate: 0 }) => wrong("slow needs latency= or rate="),
        InjectCommand::Arm(Fault::Disk { rate: 0, .. }) => wrong("disk needs rate="),
        InjectCommand::Arm(Fault::Slow { latency_ns, .. } | Fault::Disk { seek_ns: latency_ns, .. })
            if *latency_ns > LATENCY_NS_MAX =>
        {
            wrong("latency= and seek= must be at most one minute")
        }
        _ => Ok(()),
    }
}

/// Whether faults may be injected: in a test build freely, in others if the stern flag was given.
fn check_wanted(request: &PoolInject, is_test_build: bool) -> Result<(), Refusal> {
    let harmless = matches!(request.command, InjectCommand::List | InjectCommand::Clear);
    if harmless || is_test_build || request.damage_wanted {
        return Ok(());
    }
    let what = format!("no fault was injected into '{}'", request.name);
    Err(Refusal::new(Code::InjectFlag, what).with("pool", &request.name))
}

/// Paths and numbers of the devices that a pool uses: data, log and cache devices.
fn used(held: &ImportedPool) -> Vec<(String, u64)> {
    let state = held.pool.state();
    let leaves = state.leaves.into_iter().map(|leaf| (leaf.config.path, leaf.config.guid));
    let logs = state.log_devices.into_iter().map(|log| (log.path, log.guid));
    let caches = state.caches.into_iter().map(|cache| (cache.path, cache.guid));
    leaves.chain(logs).chain(caches).collect()
}

/// Faults in force.
fn in_force(held: &ImportedPool) -> Vec<InForce> {
    let of = |(device, armed): (String, Vec<pool::Armed>)| {
        armed.into_iter().map(move |pool::Armed { injection, seen, struck }| InForce {
            device: device.clone(),
            fault: fault(injection),
            seen,
            struck,
        })
    };
    held.pool.injected().into_iter().flat_map(of).collect()
}

fn trouble(path: &str, error: &io::Error) -> Refusal {
    Refusal::new(Code::VdevIo, format!("{path}: {error}")).with("device", path)
}

/// Opens the device to damage, and gives its range ([inject.1]).
fn open_target(held: &ImportedPool, path: &str, extent: Extent) -> Result<(File, u64, u64), Refusal> {
    let peek = devices::open(Path::new(path), &steadfast_device::OpenOptions::PEEK)?;
    let label = steadfast_pool::label_of(&*peek.device).map_err(refuse::pool)?;
    let is_it = used(held).iter().any(|(known, guid)| known == path && *guid == label.device_guid);
    if !is_it || label.guid() != held.pool.guid() {
        let what = format!("{path} is now a different device than the one that the pool uses");
        return Err(Refusal::new(Code::VdevForeign, what).with("device", path));
    }
    let size = peek.device.character().size_bytes;
    let from = extent.offset.unwrap_or(medium::SLOTS_OFFSET);
    let until = match extent.length {
        Some(length) => from.saturating_add(length),
        None => medium::usable_end(size),
    };
    if from >= until || until > size {
        let what = match extent.length {
            Some(length) => {
                format!("{path} has {size} bytes; it does not have {length} bytes from offset {from} on")
            }
            None => format!("{path} has {size} bytes; the offset must be less than {until}, not {from}"),
        };
        return Err(Refusal::new(Code::ApiRequest, what).with("device", path));
    }
    let file = OpenOptions::new().read(true).write(true).open(path).map_err(|error| trouble(path, &error))?;
    Ok((file, from, until))
}

fn zero(file: &File, from: u64, until: u64) -> io::Result<()> {
    let zeros = vec![0; PIECE];
    let mut at = from;
    while at < until {
        let piece = usize::try_from(until - at).map_or(PIECE, |left| left.min(PIECE));
        file.write_all_at(&zeros[..piece], at)?;
        at += piece as u64;
    }
    file.sync_data()
}

/// Flips bits of a part, chosen by a seed.
fn flip(file: &File, from: u64, until: u64, bits: u64, seed: u64) -> io::Result<()> {
    // SplitMix64: every seed gives another sequence.
    let mut state = seed;
    let mut random = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    };
    for _ in 0..bits {
        let at = from + random() % (until - from);
        let mut byte = [0];
        file.read_exact_at(&mut byte, at)?;
        byte[0] ^= 1 << (random() % 8);
        file.write_all_at(&byte, at)?;
    }
    file.sync_data()
}

fn injection(fault: Fault) -> pool::Injection {
    match fault {
        Fault::Eio { on, when } => {
            let calls = match on {
                Calls::Read => pool::Calls::Reads,
                Calls::Write => pool::Calls::Writes,
                Calls::Flush => pool::Calls::Flushes,
                Calls::Any => pool::Calls::All,
            };
            pool::Injection::Fail { calls, when: when_of(when) }
        }
        Fault::Misdirect { when } => pool::Injection::Misdirect { when: when_of(when) },
        Fault::Gone => pool::Injection::Gone,
        Fault::Slow { latency_ns, rate } => pool::Injection::Slow { latency_ns, bytes_per_second: rate },
        Fault::Disk { seek_ns, rate } => pool::Injection::Disk { seek_ns, bytes_per_second: rate },
    }
}

fn when_of(when: When) -> pool::When {
    match when {
        When::Once(at) => pool::When::Once(at),
        When::Every(at) => pool::When::Every(at),
    }
}

/// The reverse of [`injection`].
fn fault(injection: pool::Injection) -> Fault {
    let when = |when| match when {
        pool::When::Once(at) => When::Once(at),
        pool::When::Every(at) => When::Every(at),
    };
    match injection {
        pool::Injection::Fail { calls, when: at } => {
            let on = match calls {
                pool::Calls::Reads => Calls::Read,
                pool::Calls::Writes => Calls::Write,
                pool::Calls::Flushes => Calls::Flush,
                pool::Calls::All => Calls::Any,
            };
            Fault::Eio { on, when: when(at) }
        }
        pool::Injection::Misdirect { when: at } => Fault::Misdirect { when: when(at) },
        pool::Injection::Gone => Fault::Gone,
        pool::Injection::Slow { latency_ns, bytes_per_second: rate } => Fault::Slow { latency_ns, rate },
        pool::Injection::Disk { seek_ns, bytes_per_second: rate } => Fault::Disk { seek_ns, rate },
    }
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
            check_command(&request(command.clone())).expect_err(&format!("{command:?}"));
        }
        check_command(&PoolInject { device: None, ..request(InjectCommand::Arm(Fault::Gone)) }).unwrap_err();
        check_command(&request(InjectCommand::Arm(Fault::Gone))).unwrap();
    }
}
