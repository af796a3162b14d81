//! State of the engine, and of an imported pool.

use crate::api::{BudgetLevel, Outcome};
use crate::cachefile::{CachedPool, Cachefile, Listed, OtherLists};
use crate::engine::backoff::DeviceBackoff;
use crate::engine::event_relay::EventRelay;
use crate::engine::event_ring::EventRing;
use crate::engine::front::{Front, Mount};
use crate::engine::nbd_clients::Clients;
use crate::engine::policy_state::PolicyState;
use crate::engine::recoveries::Recoveries;
use crate::engine::shares::Shares;
use crate::engine::verb::Verbs;
use crate::ledger::Ledger;
use crate::refusal::Refusal;
use crate::runtime::Runtime;
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock, Weak};
use steadfast_env::Env;
use steadfast_pool::{Memory, Pool};

/// The engine, for threads that must not keep it alive. Empty before [`Engine::tend`].
pub(super) type Me = Arc<OnceLock<Weak<Engine>>>;

/// The pools of one daemon, and their mounts.
pub struct Engine {
    pub(super) me: Me,
    pub(super) env: Env,
    pub(super) runtime: Runtime,
    /// Which pools to import at the next start.
    pub(super) cachefile: Cachefile,
    /// Lists of pools for `zpool import -c`.
    pub(super) other_lists: OtherLists,
    /// Name of this machine, as labels and history carry it.
    pub(super) host: String,
    /// Memory that all pools together may use.
    pub(super) memory: RwLock<Memory>,
    pub(super) front: Arc<dyn Front>,
    /// Imported pools by name.
    pub(super) pools: RwLock<BTreeMap<String, Arc<ImportedPool>>>,
    /// Remembered pools that could not be imported, by name.
    pub(super) lost: Mutex<BTreeMap<String, MissingPool>>,
    /// Numbers of pools that were exported here, though their labels could not be written: they
    /// were suspended, missing or read-only. Their labels still say that this daemon uses them.
    pub(super) given_up: Mutex<BTreeSet<u64>>,
    pub(super) verbs: Verbs,
    pub(super) events: Mutex<EventRing>,
    /// Events on their way to the log on disk, the journal and hooks.
    pub(super) relay: Mutex<EventRelay>,
    /// Devices that autoreplace or autoexpand could not use.
    pub(super) backoff: Mutex<DeviceBackoff>,
    /// Snapshot policies.
    pub(super) policies: Mutex<PolicyState>,
    /// Requests and bytes of stores of objects, by day and month.
    pub(super) ledger: Ledger,
    /// Clients of NBD.
    pub(super) clients: Clients,
    /// File systems that are shared with NFS clients.
    pub(super) shares: Shares,
}

/// An imported pool.
pub(super) struct ImportedPool {
    pub(super) pool: Pool,
    pub(super) devices: RwLock<Vec<PathBuf>>,
    /// When it was imported, on the monotonic clock.
    pub(super) since_ns: u64,
    /// Prefix of its mountpoints.
    pub(super) altroot: Option<PathBuf>,
    /// The list in which it stands, for the next start or for `zpool import -c`.
    pub(super) listed: RwLock<Listed>,
    pub(super) mounts: Mutex<BTreeMap<String, Mount>>,
    /// Mountpoints that `zfs unmount` left, by file system, with the folders that we made for them.
    pub(super) folders: Mutex<BTreeMap<String, (PathBuf, Vec<PathBuf>)>>,
    /// How much of each budget is used, by its property.
    pub(super) budgets: Mutex<BTreeMap<&'static str, BudgetLevel>>,
    /// Streams that go out or come in.
    pub(super) streams: AtomicUsize,
    /// Recovery of what stores lost.
    pub(super) recoveries: Recoveries,
}

/// A remembered pool that could not be imported.
pub(super) struct MissingPool {
    pub(super) pool: CachedPool,
    pub(super) why: Refusal,
}

/// The outcome of a verb that changed one thing.
pub(super) fn touched(name: &str) -> Outcome {
    Outcome { touched: vec![name.to_owned()], warnings: Vec::new() }
}
