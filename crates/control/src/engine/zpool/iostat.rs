//! `zpool iostat`: counters of pools, groups and devices.

use crate::api::{CacheIo, CallCount, DeviceIo, GroupIo, PoolIo, PoolIostat, RequestIo, VdevClass};
use crate::caller::Caller;
use crate::engine::reports::devices::{class_of, group_report, leaf_report, raw_room, stands_alone};
use crate::engine::reports::groups::{group_name, log_mirror_number, log_mirror_of, log_mirrors};
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::refusal::Refusal;
use std::sync::Arc;
use steadfast_env::requests::Sample;
use steadfast_pool::{LeafStatus, MemoryUse, PoolStatus as Measured};

impl Verb for PoolIostat {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<Vec<PoolIo>, Refusal> {
        let count = |count: &steadfast_pool::Count| CallCount {
            calls: count.calls,
            bytes: count.bytes,
            nanos: count.nanos,
            histogram: count.histogram.to_vec(),
            sizes: count.sizes.to_vec(),
        };
        let device = |state: &Measured, leaf: &LeafStatus| DeviceIo {
            class: class_of(state, leaf.config.group),
            group: if stands_alone(state, leaf) {
                String::new()
            } else {
                group_name(state, leaf.config.group)
            },
            name: leaf.config.path.clone(),
            guid: leaf.config.guid,
            allocated: leaf.allocated_bytes,
            free: leaf.size_bytes.saturating_sub(leaf.allocated_bytes),
            read: count(&leaf.sample.read),
            write: count(&leaf.sample.write),
            flush: count(&leaf.sample.flush),
            trim: count(&leaf.sample.trim),
        };
        let pool = |(name, held): (String, Arc<ImportedPool>)| {
            let state = held.pool.state();
            let (size, live) = raw_room(&state);
            let devices = {
                let logs = state.log_devices.iter().filter_map(|log| Some((log, log.sample.as_ref()?)));
                let logs = logs.map(|(log, sample)| DeviceIo {
                    class: VdevClass::Log,
                    group: log_mirror_of(log).unwrap_or_default(),
                    name: log.path.clone(),
                    guid: log.guid,
                    allocated: 0,
                    free: log.size_bytes,
                    read: count(&sample.read),
                    write: count(&sample.write),
                    flush: count(&sample.flush),
                    trim: count(&sample.trim),
                });
                let caches = state.caches.iter().filter_map(|cache| Some((cache, cache.sample.as_ref()?)));
                let caches = caches.map(|(cache, sample)| DeviceIo {
                    class: VdevClass::Cache,
                    group: String::new(),
                    name: cache.path.clone(),
                    guid: cache.guid,
                    allocated: cache.counts.bytes,
                    free: cache.size_bytes.saturating_sub(cache.counts.bytes),
                    read: count(&sample.read),
                    write: count(&sample.write),
                    flush: count(&sample.flush),
                    trim: count(&sample.trim),
                });
                let (special, main): (Vec<DeviceIo>, Vec<DeviceIo>) = state
                    .leaves
                    .iter()
                    .map(|leaf| device(&state, leaf))
                    .partition(|device| device.class == VdevClass::Special);
                main.into_iter().chain(special).chain(logs).chain(caches).collect()
            };
            PoolIo {
                name,
                guid: held.pool.guid().0,
                age_ns: engine.env.clock.monotonic_ns().saturating_sub(held.since_ns),
                allocated: live,
                free: size.saturating_sub(live),
                groups: rooms(&state),
                devices,
                stores: engine.store_io(&held, &state),
                requests: held.pool.requests().iter().map(requests).collect(),
                caches: caches(held.pool.memory()),
            }
        };
        Ok(engine.select(&self.names)?.into_iter().map(pool).collect())
    }
}

fn caches(used: MemoryUse) -> Vec<CacheIo> {
    let all = [("nodes", used.nodes), ("blocks", used.blocks), ("chunks", used.chunks)];
    all.map(|(cache, counts)| CacheIo { cache: cache.to_owned(), counts: counts.into() }).into()
}

fn requests(sample: &Sample) -> RequestIo {
    RequestIo {
        origin: sample.origin.name().to_owned(),
        operation: sample.operation.name().to_owned(),
        hot: sample.is_hot,
        count: sample.count,
        own_ns: sample.own_ns,
        read_ns: sample.read_ns,
        write_ns: sample.write_ns,
        histogram: sample.histogram.to_vec(),
    }
}

/// Space of each group and log mirror.
fn rooms(measured: &Measured) -> Vec<GroupIo> {
    let room = |name: String, guid: u64, allocated: u64, size: u64| GroupIo {
        name,
        guid,
        allocated,
        free: size.saturating_sub(allocated),
    };
    let groups = measured.groups.iter().map(|group| {
        let report = group_report(measured, group.id, &|leaf| leaf_report(measured, leaf));
        room(report.name, report.guid, report.allocated, report.size)
    });
    let logs = log_mirrors(measured).into_iter().map(|(name, sides)| {
        // Each side holds everything. The size of a missing one is not known.
        let sizes = sides.iter().map(|log| log.size_bytes).filter(|size| *size > 0);
        let guid = log_mirror_number(measured.made_as, sides[0].mirror);
        room(name, guid, 0, sizes.min().unwrap_or(0))
    });
    groups.chain(logs).collect()
}
