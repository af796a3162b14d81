//! Faults on purpose: what is injected into a pool's devices, and what is written to them behind its back.
//!
//! (E5) Bytes are spoilt only on what carries the label of the very device that the pool uses under that path.

use super::{Engine, Held, devices, refuse};
use crate::api::Caller;
use crate::inject::{
    Calls, Extent, Fault, InForce, InjectCommand, Injections, PoolInject, When, check_wanted,
};
use crate::refusal::{Code, Refusal};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use steadfast_format::medium;
use steadfast_pool::inject as pool;

/// Zeros written at once.
const PIECE: usize = 1 << 20;

impl Engine {
    pub(super) fn inject(&self, caller: &Caller, request: &PoolInject) -> Result<Injections, Refusal> {
        check_wanted(request, cfg!(debug_assertions))?;
        let held = self.held_pool(&request.name)?;
        let device = request.device.as_ref();
        let known = used(&held);
        let paths = known.iter().map(|(path, _)| path.as_str());
        let path = device.map(|device| Engine::among(paths, &request.name, device)).transpose()?;
        let spoilt = || path.as_deref().expect("a fault has a device: it was checked");
        let mut done = 0;
        match &request.command {
            InjectCommand::List => {}
            InjectCommand::Clear => done = held.pool.clear_injected(path.as_deref()) as u64,
            InjectCommand::Arm(fault) => {
                held.pool.inject(spoilt(), injection(*fault)).map_err(refuse::pool)?;
            }
            InjectCommand::Zero(extent) => {
                let (file, from, until) = open_spoilt(&held, spoilt(), *extent)?;
                zero(&file, from, until).map_err(|error| trouble(spoilt(), &error))?;
                done = until - from;
            }
            InjectCommand::Flip { extent, bits, seed } => {
                let (file, from, until) = open_spoilt(&held, spoilt(), *extent)?;
                flip(&file, from, until, *bits, *seed).map_err(|error| trouble(spoilt(), &error))?;
                done = *bits;
            }
        }
        if !matches!(request.command, InjectCommand::List) {
            self.log(&held, caller);
        }
        Ok(Injections { in_force: in_force(&held), done })
    }
}

/// Paths and numbers of the devices that a pool uses: those that hold what it holds, and log and cache devices.
fn used(held: &Held) -> Vec<(String, u64)> {
    let state = held.pool.state();
    let leaves = state.leaves.into_iter().map(|leaf| (leaf.config.path, leaf.config.guid));
    let logs = state.log_devices.into_iter().map(|log| (log.path, log.guid));
    let caches = state.caches.into_iter().map(|cache| (cache.path, cache.guid));
    leaves.chain(logs).chain(caches).collect()
}

/// What is injected into a pool's devices.
fn in_force(held: &Held) -> Vec<InForce> {
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

/// Opens what is to be spoilt, and gives the part that is meant (E5).
fn open_spoilt(held: &Held, path: &str, extent: Extent) -> Result<(File, u64, u64), Refusal> {
    let peek = devices::open(Path::new(path), &steadfast_device::OpenOptions::PEEK)?;
    let label = steadfast_pool::label_of(&*peek.device).map_err(refuse::pool)?;
    let is_it = used(held).iter().any(|(known, guid)| known == path && *guid == label.device_guid);
    if !is_it || label.guid() != held.pool.guid() {
        let what = format!("{path} is not the device that the pool uses under this name");
        return Err(Refusal::new(Code::VdevForeign, what).with("device", path));
    }
    let size = peek.device.character().size_bytes;
    let from = extent.offset.unwrap_or(medium::SLOTS_OFFSET);
    let until = match extent.length {
        Some(length) => from.saturating_add(length),
        None => medium::usable_end(size),
    };
    if from >= until || until > size {
        let what = format!("{path}: bytes {from} to {until} are not on the device, which has {size}");
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
