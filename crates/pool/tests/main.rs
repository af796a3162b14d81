//! Integration tests of this crate: one program, so that the engine is linked once.

mod anchored;
mod at_once;
mod attacks;
mod away;
mod budgets;
mod checkpoint;
mod cold;
mod common;
mod content_copies;
mod copies;
mod covered;
mod crash;
mod dead_records;
mod dedup;
mod deletes;
mod destroyed_amid;
mod destroyed_unread;
mod diagnosis;
mod early_store;
mod estimates;
mod faults;
mod fencing;
mod full;
mod full_log;
mod garbage;
mod golden;
mod grow;
#[cfg(debug_assertions)]
mod hashes;
mod held_reads;
mod hostile;
mod hostile_items;
mod hostile_streams;
mod in_place;
mod kept;
mod life;
mod log;
mod log_device;
mod log_interval;
mod log_mirror;
mod manifests;
mod memory;
mod moving;
mod notes;
mod one_moment;
mod overwrites;
mod owners;
mod packed;
mod packed_kinds;
mod parity_media;
mod quotas;
mod raw;
mod raw_clones;
mod raw_volumes;
mod received;
mod received_clones;
mod received_promotions;
mod received_trees;
mod redundancy;
mod refused_labels;
mod repeats;
mod requests;
mod rewind;
mod rewind_store;
mod round_trips;
mod sampled;
mod sealed_receives;
mod single;
mod snapshot_cost;
mod spares;
mod special;
mod split;
mod streams;
mod sync_property;
mod tiles;
mod trips;
mod txg_age;
mod uneven;
mod wide;

#[path = "common/counting.rs"]
mod counting;
#[path = "common/far.rs"]
mod far;
#[path = "common/far_store.rs"]
mod far_store;
#[path = "common/forge.rs"]
mod forge;
#[path = "common/forge_stream.rs"]
mod forge_stream;
#[path = "common/streams.rs"]
mod hosts;
#[path = "common/outlet.rs"]
mod outlet;
#[path = "common/promises.rs"]
mod promises;
