//! From labels to a root: the first states of an import.
//!
//! ```text
//! Found      labels that may be imported, of devices that are enough
//! Unlocked   leaves are open, and so is the pool's own metadata
//! Rooted     the root was chosen, and its commit tail read
//! Loaded     tables are in memory, datasets open, and the log is replayed       (`load.rs`)
//! live       the first commit is durable, and the tasks run
//! ```
//!
//! Each state is made of the one before, and of nothing else. Nothing is written before the last
//! step.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use steadfast_blockio::{BlockIo, ReadContext};
use steadfast_device::MissingDevice;
use steadfast_device::objects::Store;
use steadfast_env::Env;
use steadfast_format::{
    CommitTail, DatasetId, LabelConfig, LeafConfig, LeafState, Need, PoolState, SegmentId, Uberblock,
};
use steadfast_por::SharedParity;
use steadfast_segment::Space;

use crate::core::error::{Error, Result};
use crate::core::events::{EventKind, Events};
use crate::core::state::{Sealing, sealing_of};
use crate::datasets::keys;
use crate::devices::groups::{self, DeviceHandle};
use crate::devices::late_store::LateStore;
use crate::devices::leaf::Leaf;
use crate::devices::parity::{self, FoundParity};
use crate::devices::probe::{self, FoundPool, FoundUberblock, RootAge, Wanted};
use crate::import::anchor::{self, Choice};
use crate::import::checkpoint::{Medium, Seen};
use crate::import::create::Plan;
use crate::import::load::ImportSpec;
use crate::import::split;

/// Devices of a pool whose labels may be imported.
pub(crate) struct Found<'a> {
    pub env: &'a Env,
    pub spec: &'a ImportSpec,
    pub pool: FoundPool,
    /// The pool's name from now on.
    pub name: String,
}

impl<'a> Found<'a> {
    /// Refuses a pool that its labels forbid to import, or of which too few devices were found.
    pub fn new(env: &'a Env, mut pool: FoundPool, spec: &'a ImportSpec) -> Result<Found<'a>> {
        assert!(
            spec.read_only || spec.anchor.as_of.is_none(),
            "a commit would follow on a root that is not its parent"
        );
        probe::check_copies(&pool)?;
        let here: Vec<u64> = pool.devices.iter().map(|device| device.label.device_guid).collect();
        split::take_back(&mut pool.config, |leaf| here.contains(&leaf.guid));
        let config = &pool.config;
        let name = spec.new_name.as_ref().map_or_else(|| config.name.clone(), |new| new.name.clone());
        check_config(config, spec)?;
        // A label is a stranger's word; names go into paths, messages and names of threads.
        steadfast_property::check_pool_name(&name)
            .map_err(|source| Error::BadName { name: name.clone(), source })?;
        groups::check_present(&pool).map_err(|missing| {
            let special = groups::special_among(config, &missing);
            Error::MissingDevices { pool: config.name.clone(), missing, special }
        })?;
        Ok(Found { env, spec, pool, name })
    }

    /// Takes the leaves, and opens the pool's own metadata if it is sealed: nothing below can be
    /// read without its key.
    /// `parity` is the code, if an attempt before this one opened it.
    pub fn unlock(self, parity: Option<SharedParity>) -> Result<Unlocked<'a>> {
        let config = &self.pool.config;
        let events = Arc::new(Events::new(Arc::clone(&self.env.clock)));
        let leaves = leaves_of(self.env, &events, &self.pool)?;
        let random = |out: &mut [u8]| self.env.random.fill(out);
        let sealing = match &config.key {
            None => None,
            Some((wrapped, location)) => {
                let Some(secret) = &self.spec.secret else {
                    return Err(Error::PoolKeyNeeded {
                        pool: config.name.clone(),
                        keyformat: wrapped.key_format.name(),
                        keylocation: location.clone(),
                    });
                };
                let aad = keys::pool_wrap_aad(config.pool);
                let (_, master) = keys::unwrap(&config.name, secret, wrapped, &aad)?;
                Some(sealing_of(master, wrapped.clone(), location.clone(), &random))
            }
        };
        // A pool that is read only writes no journal, and needs none.
        let parity = match parity {
            _ if self.spec.read_only => None,
            Some(code) => Some(Ok(code)),
            None => {
                let key = sealing.as_ref().map(|sealing| parity::key_of(config.pool, sealing));
                let registers = || self.spec.anchor.registers.as_ref().ok_or(io::ErrorKind::Unsupported);
                let open = |path: &str| registers()?.parity(path);
                // Opened when it is asked: without keys the journal goes on.
                let stores = |address: &str| {
                    let (registers, of) = (Arc::clone(registers()?), address.to_owned());
                    let open = move || registers.tiles(&of);
                    Ok(Arc::new(LateStore::new(address, open)) as Arc<dyn Store>)
                };
                parity::find(self.env, config, key.as_ref(), (&open, &stores))
            }
        };
        if let Some(Ok(code)) = &parity {
            parity::cover(&leaves, code);
        }
        Ok(Unlocked { found: self, events, leaves, sealing, parity, restored: Vec::new() })
    }
}

/// Leaves are there, and the keys of the pool's own metadata.
pub(crate) struct Unlocked<'a> {
    pub found: Found<'a>,
    pub events: Arc<Events>,
    pub leaves: Vec<Arc<Leaf>>,
    pub sealing: Option<Sealing>,
    /// The parity device, if labels list one: it covers the stores already.
    pub parity: Option<FoundParity>,
    /// Segments that were put back.
    pub restored: Vec<SegmentId>,
}

impl<'a> Unlocked<'a> {
    /// Reads all stores, and puts back what they lost.
    pub fn recover(self) -> Result<Unlocked<'a>> {
        let pool = self.found.pool.config.name.clone();
        let stores: Vec<_> = self.leaves.iter().filter_map(|leaf| leaf.covered.clone()).collect();
        // Caches are empty still.
        let memory = self.found.spec.memory;
        let memory = (memory.node_cache_bytes + memory.block_cache_bytes) as u64;
        let (env, stop) = (self.found.env, AtomicBool::new(false));
        // Tiles at a store first: the content comes from them. Where they cannot be looked after,
        // it may come back all the same, and a recovery by command tells why.
        if let Some(Ok(code)) = &self.parity {
            _ = steadfast_por::tile_store::mend(code, env, memory, &stop, &mut |_, _| ());
        }
        let repair = steadfast_por::repair(&stores, env, memory, &stop, &mut |_, _| ());
        let repair = repair.map_err(|source| match source {
            steadfast_por::parity::Error::StoreAway { source } => Error::Device(source),
            source => Error::Parity { pool, path: String::new(), source: Box::new(source) },
        })?;
        let lost = repair.from_code.undetermined.len() + repair.from_code.refused.len();
        let objects = repair.restored.len() as u64;
        self.events.note(EventKind::Recovered { objects, lost: lost as u64 });
        Ok(Unlocked { restored: repair.restored, ..self })
    }

    /// Chooses the root, by the anchor if the pool has one, and reads its commit tail from the
    /// places that it names.
    pub fn root(self) -> Result<Rooted<'a>> {
        let (env, spec) = (self.found.env, self.found.spec);
        let config = &self.found.pool.config;
        let present: Vec<_> = self.leaves.iter().filter_map(|leaf| leaf.in_use()).collect();
        let devices: Vec<_> = present.iter().map(|device| &**device).collect();
        let tag_of = |bound: &[u8]| match &self.sealing {
            Some(sealing) => steadfast_crypto::keyed_hash(&sealing.tag_key, bound),
            None => steadfast_crypto::hash(bound),
        };
        let wanted = match (spec.anchor.back, spec.anchor.as_of) {
            (Some(back), _) => Wanted::At(back.to),
            (None, Some(txg)) => Wanted::AsOf(txg),
            (None, None) => Wanted::Newest,
        };
        let (newest, unread) = probe::find_uberblock(config.pool, &devices, tag_of, wanted, env);
        let keys = self.sealing.as_ref().map(|sealing| Arc::clone(&sealing.keys));
        let context =
            ReadContext { dataset: DatasetId(0), family: DatasetId(0), keys: keys.as_deref(), cache: false };
        let readable = |root: &FoundUberblock| {
            let (space, blockio) = Plan::space_of(env, config, &self.leaves, spec.memory);
            space.set_healing(false);
            space.bootstrap(&root.uberblock.tail, root.uberblock.tail_places.clone()).is_ok()
                && blockio.read(&root.uberblock.tail, &context).is_ok()
        };
        let mac_key = keys.as_ref().map(|keys| steadfast_anchor::mac_key(keys.master()));
        let choice = anchor::choose(env, config, &spec.anchor, mac_key, newest, readable);
        let (choice, unread) = match (choice, unread) {
            // A root is there, for all that is known, and was not to be had.
            (Err(Error::NoUberblock { .. }), Some(source)) => return Err(Error::Device(source)),
            (choice, unread) => (choice?, unread),
        };
        let uberblock = &choice.root.uberblock;
        let behind = match (&choice.anchor, wanted) {
            (Some(_), _) | (None, Wanted::AsOf(_)) => None,
            (None, Wanted::Newest | Wanted::At(_)) => probe::roots_behind(uberblock.age(), &devices)?,
        };
        match (behind, unread, spec.anchor.back) {
            (None, _, None) => {}
            (Some(_), Some(source), None) => return Err(Error::Device(source)),
            (Some((_, txg)), None, None) => {
                let (pool, whole) = (config.name.clone(), uberblock.txg);
                return Err(Error::SpoiltRoot { pool, txg, whole });
            }
            (behind, _, Some(back)) if behind == Some(back.from) => {}
            (_, _, Some(back)) => {
                return Err(Error::RootMoved { pool: config.name.clone(), txg: back.from.1 });
            }
        }
        check_devices(config, uberblock)?;

        let medium = Medium { env, config, leaves: &self.leaves, memory: spec.memory, keys: keys.as_ref() };
        let Seen { tail, space, blockio } = medium.see(uberblock)?;
        Ok(Rooted { unlocked: self, choice, behind, tail, space, blockio })
    }
}

/// The root was chosen, and the commit tail behind it read.
pub(crate) struct Rooted<'a> {
    pub unlocked: Unlocked<'a>,
    pub choice: Choice,
    /// The newest root on the stores, if an older one is opened.
    pub behind: Option<RootAge>,
    pub tail: CommitTail,
    pub space: Arc<Space>,
    pub blockio: Arc<BlockIo>,
}

/// Counters only grow, one by one or by a few at an import: one near its end was forged, and would
/// overflow here.
pub(crate) fn exhausted(tail: &CommitTail) -> Option<String> {
    const END: u64 = 1 << 62;
    let counters = [
        ("txg", tail.txg.0, END),
        ("segment id", tail.next_segment.0, SegmentId::END),
        ("segment number", tail.next_segment.counter(), SegmentId::COUNTER_END),
        ("dataset id", tail.next_dataset.0, END),
        ("history number", tail.next_history, END),
    ];
    let found = counters.iter().find(|(_, value, end)| value >= end);
    found.map(|(what, value, _)| format!("its {what} is {value}"))
}

fn check_config(config: &LabelConfig, spec: &ImportSpec) -> Result<()> {
    let pool = config.name.clone();
    match config.state {
        PoolState::Destroyed if !spec.destroyed => return Err(Error::Destroyed { pool }),
        PoolState::Active if config.host != spec.host && !spec.force => {
            return Err(Error::NotExported { pool, host: config.host.clone() });
        }
        _ => {}
    }
    for feature in config.features.iter().filter(|feature| !feature.is_known()) {
        let forbidden = match feature.need {
            Need::Read => true,
            Need::Write => !spec.read_only,
            Need::Safe => false,
        };
        if forbidden {
            return Err(Error::UnknownFeature { pool, feature: feature.name.clone() });
        }
    }
    Ok(())
}

/// The newest root knows how many devices it was written to. Labels that list fewer are older than
/// it, and a device is missing; labels that list more were written by an `add` that did not come to
/// its commit, and carry the root's txg; or a device has left with the newest root, whose labels
/// did not come any more.
fn check_devices(config: &LabelConfig, uberblock: &Uberblock) -> Result<()> {
    let listed = config.leaves.len();
    let counted = uberblock.devices as usize;
    let leaves = |leaf: &&LeafConfig| matches!(leaf.state, LeafState::Leaving | LeafState::Parted);
    let leaving = config.leaves.iter().filter(leaves).count();
    let left = counted < listed && counted + leaving >= listed;
    if counted == listed || left || counted < listed && config.txg >= uberblock.txg {
        return Ok(());
    }
    let reason = format!("it was written to {counted} devices, and the labels list {listed}");
    Err(Error::BadRoot { pool: config.name.clone(), txg: uberblock.txg, reason })
}

/// The pool's devices in the order of the label, with the paths by which they were found now.
fn leaves_of(env: &Env, events: &Arc<Events>, found: &FoundPool) -> Result<Vec<Arc<Leaf>>> {
    let mut leaves = Vec::new();
    for leaf in &found.config.leaves {
        if leaves.iter().any(|other: &Arc<Leaf>| other.config().guid == leaf.guid) {
            return Err(Error::Twice { path: leaf.path.clone() });
        }
        let device = found.devices.iter().find(|device| device.label.device_guid == leaf.guid);
        let Some(device) = device else {
            let keeps = matches!(leaf.state, LeafState::Leaving | LeafState::Spared | LeafState::Parted);
            let state = if keeps { leaf.state } else { LeafState::Gone };
            let config = LeafConfig { state, ..leaf.clone() };
            let missing = Arc::new(MissingDevice::new(&leaf.path));
            leaves.push(Arc::new(Leaf::new(config, missing, env, events)));
            continue;
        };
        let DeviceHandle { path, device: handle } = device.handle.clone();
        if device.label.slot_size != found.config.slot_size || device.label.ashift != found.config.ashift {
            return Err(Error::ForeignDevice { path, pool: found.config.name.clone() });
        }
        let bytes = handle.character().size_bytes;
        let slots = steadfast_format::medium::slot_count(bytes, found.config.column_of(leaf));
        if slots < leaf.slots {
            return Err(Error::Shrunk { path, bytes, slots: leaf.slots });
        }
        let mut config = leaf.clone();
        config.path = path;
        if config.state == LeafState::Gone {
            // It is back. No row looks there for data that it missed.
            config.state = LeafState::Online;
        }
        leaves.push(Arc::new(Leaf::new(config, handle, env, events)));
    }
    Ok(leaves)
}

#[cfg(test)]
mod tests {
    use steadfast_format::Txg;

    use super::*;

    #[test]
    fn counters_near_their_end_are_refused_before_they_overflow() {
        let tail = CommitTail {
            txg: Txg(1),
            next_segment: SegmentId(2),
            next_dataset: DatasetId(3),
            next_history: 4,
            rows: Vec::new(),
            runs: Vec::new(),
        };
        assert_eq!(exhausted(&tail), None);
        for tail in [
            CommitTail { txg: Txg(u64::MAX), ..tail.clone() },
            CommitTail { next_segment: SegmentId(u64::MAX), ..tail.clone() },
            CommitTail { next_segment: SegmentId(3 << 38 | 1 << 37), ..tail.clone() },
            CommitTail { next_dataset: DatasetId(1 << 63), ..tail.clone() },
            CommitTail { next_history: u64::MAX, ..tail.clone() },
        ] {
            assert!(exhausted(&tail).is_some());
        }
    }
}
