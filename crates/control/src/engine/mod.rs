//! The engine: holds imported pools, mounts their file systems, and carries out the verbs of the
//! API.
//!
//! Each verb is a file: `zpool/scrub.rs`, `zfs/hold.rs`. A verb translates: a request into calls of
//! the room `pool`, the pool's errors into refusals. The engine owns three things: the pools it
//! holds (and remembers for the next start), their mounts, and the order of verbs.
//!
//! - `verb`: the shape of a verb; `dispatch`: from a request to its verb; `zpool/`, `zfs/`: the
//!   verbs.
//! - `state`: the engine and an imported pool; `registry`: looking pools up, taking them in,
//!   letting them go.
//! - `life`: start and end; `upkeep`, `auto_snapshot`: work in the background.
//! - `mounts`, `mounted`, `mountpoints`, `mount_options`: mounts; `front`: how tests replace the
//!   kernel.
//! - `events`, `event_ring`: events for `zpool events`; `event_relay`: for the log on disk, the
//!   journal and hooks.
//! - `costs`: counters, prices and budgets of stores of objects.
//! - `key_files`: keys that are loaded at the start. `sweeps`: trims that go on after an export.
//! - `nbd`: volumes for NBD clients. `shares`: file systems for NFS clients.
//! - `reports/`: states of devices and pools in the form of the API; `refuse`: the pool's errors as
//!   refusals.
//!
//! ## Invariants
//! [engine.1] Verbs that change something run one at a time; verbs that only read never wait for
//!      them. assert: `Verb::IN_TURN`
//! [engine.2] A file system is unmounted before its pool lets go of it, children before parents.
//! [engine.3] A pool that cannot be imported at the start stays remembered, with the reason, until
//!      it is imported or exported.
//! [engine.4] A refused verb changes nothing: everything that can be checked is checked before the
//!      first change.

mod anchors;
mod audit_spread;
mod audits;
mod auto_snapshot;
mod autoexpand;
mod backoff;
mod costs;
mod desk;
mod device_list;
mod devices;
mod dispatch;
mod event_hooks;
mod event_log;
mod event_message;
mod event_relay;
mod event_ring;
mod events;
mod front;
mod fuse_front;
mod key_files;
mod life;
mod members;
mod memory;
mod mount_options;
mod mounted;
mod mountpoints;
mod mounts;
mod nbd;
mod nbd_clients;
mod new_devices;
mod policy_state;
mod pool_properties;
mod recoveries;
mod refuse;
mod registry;
mod reports;
mod shares;
mod state;
mod sweeps;
mod upkeep;
mod verb;
mod zfs;
mod zpool;

pub(crate) use devices::look_at_store;
pub use dispatch::check;
pub use front::{Front, MountSettings, Mounted, UsageOf};
pub use fuse_front::FuseFront;
pub(crate) use refuse::device as device_refusal;
pub use state::Engine;
pub use verb::Verb;
