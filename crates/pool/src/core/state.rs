//! The parts of an imported pool, shared by its operations and its sync task.

use crate::core::overtaker::Overtaker;
use crate::core::ranked::{RankedMutex, RankedRwLock, rank};
use crate::core::view::DatasetView;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use steadfast_format::DecodeError;
use steadfast_format::MetaKey;

use steadfast_anchor::Anchor;
use steadfast_blockio::BlockIo;
use steadfast_crypto::{BlockKeys, Key};
use steadfast_dataset::InodeRoom;
use steadfast_device::{Change, Obstacle, Outage};
use steadfast_env::Env;
use steadfast_env::requests::Requests;
use steadfast_format::{BlockPointer, Feature, PoolGuid, PoolState, Txg, Uberblock, WrappedKey};
use steadfast_property::Local;
use steadfast_segment::{CommitRoom, Space};
use steadfast_tree::{NodeCache, Tree};
use steadfast_txg::{Changed, Limits, Txgs};

use crate::core::admission::Admission;
use crate::core::checkpoint::Keeping;
use crate::core::error::{Error, Result};
use crate::core::events::{EventKind, Events};
use crate::core::history::History;
use steadfast_refs::ddt::References;
use steadfast_refs::manifest::Manifests;

/// The key that seals the pool's own metadata.
pub(crate) struct Sealing {
    pub keys: Arc<BlockKeys>,
    /// Keys the tags of uberblocks.
    pub tag_key: Key,
    /// For the labels: the wrapped master key, and where its user key is to be found.
    pub wrapped: RankedRwLock<(WrappedKey, String), rank::WrappedKey>,
}

/// Properties of the pool itself.
#[derive(Default)]
pub(crate) struct PoolProps {
    pub values: Local,
    pub dirty: BTreeSet<String>,
}

/// Results of the last commit that the next one needs.
pub(crate) struct CommitState {
    pub tag: [u8; 32],
    /// The uberblock that the tag is of; `None` before the first.
    pub last: Option<Uberblock>,
    /// The next commit is the last that moves the anchor.
    pub retiring: bool,
    pub tail: Option<BlockPointer>,
    pub state: PoolState,
    /// Txg of the root of which stores of whole objects have a copy, in a pool with an anchor.
    pub copied: Option<Txg>,
}

/// A pool's name and numbers, and sizes that never change.
pub(crate) struct Identity {
    /// The number with which the pool was made. Blocks, uberblocks and keys are bound to it.
    pub guid: PoolGuid,
    /// The number that people see, if `zpool reguid` gave it another one.
    pub known_as: RankedRwLock<Option<PoolGuid>, rank::KnownAs>,
    /// The number that a `zpool reguid` under way gives it.
    pub becoming: RankedRwLock<Option<PoolGuid>, rank::Becoming>,
    pub created_ns: u64,
    pub name: RankedRwLock<String, rank::Name>,
    /// The name on the devices, if `name` is a temporary one.
    pub label_name: Option<String>,
    pub host: String,
    /// Log2 of the allocation unit.
    pub ashift: u8,
    pub slot_size: u32,
}

/// An older root that an import went back to (`zpool import -F`).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WentBack {
    /// Txg of the newest root.
    pub from: Txg,
    /// Txg of the root that was opened.
    pub to: Txg,
    /// When that one was committed, in nanoseconds since 1970.
    pub time_ns: u64,
}

/// Whether the pool may write, and whether it has to.
pub(crate) struct Health {
    pub read_only: bool,
    /// The tasks are to end.
    pub stopping: AtomicBool,
    /// Why the pool is suspended, if it is.
    pub suspended: RankedMutex<Option<String>, rank::Suspended>,
    /// Another host has imported the pool from its store.
    pub is_overtaken: AtomicBool,
    /// That host, once it was found.
    pub overtaker: OnceLock<Overtaker>,
    /// The import took the pool back to an older root.
    pub went_back: OnceLock<WentBack>,
    /// Something changed of which no dataset knows: properties, history, a destroyed dataset.
    pub changed: Changed,
    /// Wall time of the last commit, nanoseconds since 1970.
    pub committed_ns: AtomicU64,
}

/// Caches that all trees and datasets of the pool share. The cache of blocks is in `blockio`.
pub(crate) struct Caches {
    /// Nodes of trees.
    pub nodes: Arc<NodeCache>,
    /// Inodes in memory.
    pub inodes: Arc<InodeRoom>,
}

/// Budgets of the stores that are nearly used up: work in the background waits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Short {
    /// That of requests.
    pub requests: bool,
    /// That of bytes read.
    pub egress: bool,
}

/// The write throttle: how much a txg may hold (ZFS: `dirty_data_max`, but the bound on space
/// follows the last commit).
pub(crate) struct Throttle {
    /// Bytes of the longest block.
    pub block_bytes_max: u32,
    pub dirty_bytes_max: AtomicU64,
    /// How much the cleaner copies in one commit.
    pub pace: steadfast_segment::Pace,
    /// Work that only costs waits: a budget of the stores is used up.
    pub is_sparing: AtomicBool,
    /// Space that the last txg needed, metadata included, in thousandths of its content.
    pub need_thousandths: AtomicU64,
}

/// The bottom of an imported pool: what every room of it uses. It knows no device and no dataset;
/// of datasets it asks [`DatasetView`].
pub(crate) struct Core {
    pub env: Env,
    pub identity: Identity,
    pub features: RankedRwLock<Vec<Feature>, rank::Features>,
    pub events: Arc<Events>,
    pub space: Arc<Space>,
    pub blockio: Arc<BlockIo>,
    pub caches: Caches,
    pub meta: Arc<Tree>,
    /// Blocks with more than one reference.
    pub references: Arc<References>,
    /// Lists of the sealed blocks of datasets.
    pub manifests: Arc<Manifests>,
    /// Keys of the pool's own metadata, if that is sealed.
    pub sealing: Option<Sealing>,
    pub txgs: Arc<Txgs>,
    pub admission: Arc<Admission>,
    pub throttle: Throttle,
    pub props: RankedRwLock<PoolProps, rank::Props>,
    pub history: RankedMutex<History, rank::History>,
    pub commit_state: RankedMutex<CommitState, rank::CommitState>,
    /// The pool's checkpoint.
    pub checkpoint: RankedMutex<Keeping, rank::Checkpoint>,
    /// Held for a whole commit.
    pub sync_turn: RankedMutex<(), rank::SyncTurn>,
    /// The txg being synced; the stores of all trees look here.
    pub syncing: Arc<AtomicU64>,
    /// The register that holds the only acceptable root, if the pool has one.
    pub anchor: RankedRwLock<Option<Arc<Anchor>>, rank::Anchor>,
    pub health: Health,
    /// Requests of clients, as the fronts count them.
    pub requests: Arc<Requests>,
    /// The datasets, once they stand.
    pub view: OnceLock<Weak<dyn DatasetView>>,
}

/// Blocks that a commit frees of what was cut or destroyed however little room there is, if
/// cleaning gives back none.
pub(crate) const FREES_LEAST: usize = 16;

impl Core {
    pub fn name(&self) -> String {
        self.identity.name.read().clone()
    }

    /// Nanoseconds since 1970, as structures store them.
    pub fn now_ns(&self) -> u64 {
        u64::try_from(self.env.clock.wall_ns()).unwrap_or(0)
    }

    pub fn has_changes(&self) -> bool {
        self.health.changed.is_set() || self.heads().iter().any(|head| head.has_changes())
    }

    /// Monotonic time from which the interval counts after which the open txg is committed; `None`
    /// if there is nothing to commit. Work that a commit left over counts from `committed_ns`.
    pub fn changed_since_ns(&self, committed_ns: u64) -> Option<u64> {
        let of_heads = self
            .heads()
            .into_iter()
            .flat_map(|head| [head.changed_since_ns(), head.has_leftovers().then_some(committed_ns)]);
        of_heads.chain([self.health.changed.since_ns()]).flatten().min()
    }

    /// True if work in the background waits that only costs: [`crate::Pool::hold_background`].
    pub fn is_sparing(&self) -> bool {
        self.throttle.is_sparing.load(Ordering::Acquire)
    }

    pub fn is_stopping(&self) -> bool {
        self.health.stopping.load(Ordering::Acquire)
    }

    pub fn is_suspended(&self) -> bool {
        self.suspension().is_some()
    }

    /// Why nothing is written, if so: for good, or while a commit waits for a device.
    pub fn suspension(&self) -> Option<String> {
        let for_good = self.health.suspended.lock().clone();
        for_good.or_else(|| self.events.wait.outage().map(|outage| outage.reason))
    }

    /// The store for which a commit waits.
    pub fn store_away(&self) -> Option<Outage> {
        let is_away = self.events.wait.waits_for() == Some(Obstacle::StoreAway);
        self.events.wait.outage().filter(|_| is_away)
    }

    /// From now on a commit waits for its devices: until the host has room, which suspends the pool
    /// meanwhile, or until a store answers, which holds up commits alone.
    pub fn wait_for_devices(self: &Arc<Self>) {
        let weak = Arc::downgrade(self);
        let on_change = Box::new(move |change: &Change| {
            let Some(core) = weak.upgrade() else { return };
            match change {
                Change::Waits(outage) if outage.obstacle == Obstacle::StoreAway => {
                    core.events.note(EventKind::StoreAway { outage: outage.clone() });
                    core.txgs.commits.stall(&outage.reason);
                }
                Change::Waits(outage) => {
                    core.events.note(EventKind::Suspended { reason: outage.reason.clone() });
                    core.txgs.commits.suspend(&outage.reason);
                }
                Change::Forgotten(_) => core.go_on(),
                Change::GoesOn(outage) => {
                    let nanos = core.now_ns().saturating_sub(outage.since_ns);
                    core.events.note(EventKind::Resumed { outage: outage.clone(), nanos });
                    core.go_on();
                }
            }
        });
        let weak = Arc::downgrade(&self.space);
        let is_spared = move |device| weak.upgrade().is_some_and(|space| space.can_spare(device));
        self.events.wait.begin(on_change, Box::new(is_spared));
    }

    /// The devices answer again. A suspension for good that began meanwhile stays: waits for a
    /// commit would have no end.
    fn go_on(&self) {
        self.txgs.commits.resume();
        if let Some(reason) = self.health.suspended.lock().as_deref() {
            self.txgs.commits.suspend(reason);
        }
    }

    /// Stops all writing until the pool is opened again.
    pub fn suspend(&self, error: &Error) {
        self.note_overtaken(error);
        self.suspend_because(&error.to_string());
    }

    /// Remembers that another host has the pool, if an error says so. A register tells it of pools
    /// on other devices as well: there nobody shares the devices, and the anchor is what matters.
    pub fn note_overtaken(&self, error: &Error) {
        let is_fenced = matches!(error, Error::Anchor(steadfast_anchor::Error::Fenced { .. }));
        if matches!(error, Error::Overtaken { .. }) || (is_fenced && self.space.has_objects()) {
            self.health.is_overtaken.store(true, Ordering::Release);
        }
    }

    /// The same, for what is no error of a call.
    pub fn suspend_because(&self, reason: &str) {
        let mut suspended = self.health.suspended.lock();
        if suspended.is_none() {
            self.events.note(EventKind::Suspended { reason: reason.to_owned() });
            *suspended = Some(reason.to_owned());
        }
        drop(suspended);
        // A suspended pool writes nothing anew: another daemon may have its devices.
        self.space.set_healing(false);
        self.txgs.commits.suspend(reason);
    }

    fn suspended_by(&self, reason: String) -> Error {
        let pool = self.name();
        match self.events.wait.waits_for() {
            Some(Obstacle::HostFull) => Error::HostFull { pool, reason },
            Some(_) => Error::StoreAway { pool, reason },
            None if self.health.is_overtaken.load(Ordering::Acquire) => Error::Overtaken { pool },
            None => Error::Suspended { pool, reason },
        }
    }

    /// Refuses what cannot be done on this pool now.
    pub fn check_writable(&self) -> Result<()> {
        if self.health.read_only {
            return Err(Error::ReadOnly { pool: self.name() });
        }
        match self.suspension() {
            Some(reason) => Err(self.suspended_by(reason)),
            None => Ok(()),
        }
    }

    /// Notes a change that no dataset knows of, and waits until everything done so far is durable.
    pub fn commit_changes(&self) -> Result<()> {
        self.health.changed.note();
        self.wait_durable()
    }

    /// Waits until everything done so far is durable.
    pub fn wait_durable(&self) -> Result<()> {
        // There is nothing to commit, and no task that would: a wait would have no end.
        if self.health.read_only {
            return Ok(());
        }
        let open = self.txgs.gate.open_txg();
        self.txgs.commits.request_sync(open);
        self.txgs
            .commits
            .wait_committed(open)
            .map_err(|suspended| self.suspended_by(suspended.reason.to_string()))
    }

    /// Room for blocks that can be admitted now, between two commits.
    pub fn commit_room(&self) -> CommitRoom {
        // Each block that is written may have an item of its own, and each that is freed may take
        // one along.
        let has_items = self.references.may_have_rows() || self.manifests.any();
        self.space.commit_room(self.throttle.block_bytes_max).with_references(has_items)
    }

    /// Takes the figures of the last commit over into admission and throttle.
    pub fn update_limits(&self) {
        let accounting = self.space.accounting();
        self.admission.live.store(accounting.live_bytes, Ordering::Relaxed);
        self.admission.keeps.store(self.space.keeps(), Ordering::Relaxed);
        self.admission.note_capacity(accounting.capacity_bytes, self.space.may_widen());
        let autotrim = self.props.read().values.get("autotrim").is_none_or(|value| value != "off");
        self.space.set_discarding(autotrim);
        *self.admission.room.write() = self.commit_room();
        let need = self.throttle.need_thousandths.load(Ordering::Relaxed);
        let space = self.space.txg_bytes_max(self.throttle.block_bytes_max, self.throttle.pace.bytes(), need);
        let memory = self.throttle.dirty_bytes_max.load(Ordering::Relaxed);
        self.txgs.budget.set_limits(Limits { memory, space });
    }

    /// The fate of operations that a suspended pool cannot take, as the property `failmode` says.
    pub fn apply_failmode(&self) {
        let waits = self.props.read().values.get("failmode").is_some_and(|value| value == "wait");
        self.txgs.commits.set_holding(waits);
        let holds_reads = waits && self.space.has_objects();
        self.txgs.commits.set_holding_reads(holds_reads);
        self.events.wait.hold_reads(holds_reads);
    }

    /// True if the pool's labels list a feature.
    pub fn has_feature(&self, name: &str) -> bool {
        self.features.read().iter().any(|feature| feature.name == name)
    }

    pub(crate) fn corrupt(&self, pool: &str, what: &'static str, source: DecodeError) -> Error {
        Error::Corrupt { pool: pool.to_owned(), what, source }
    }

    /// Items of the meta tree whose key begins with `kind`.
    pub(crate) fn items_of(&self, kind: u8) -> impl Iterator<Item = Result<(MetaKey, Vec<u8>)>> + '_ {
        let pool = self.name();
        self.meta.range([kind]..[kind + 1]).map(move |item| {
            let (key, value) = item?;
            let key = MetaKey::decode(&key).ok_or_else(|| {
                let source = DecodeError::Field { structure: "meta_key", field: "kind", value: kind.into() };
                self.corrupt(&pool, "a key of the meta tree", source)
            })?;
            Ok((key, value))
        })
    }

    /// The pool's anchor, if it has one.
    pub(crate) fn anchor(&self) -> Option<Arc<Anchor>> {
        self.anchor.read().clone()
    }

    /// Refuses to go on if another daemon has taken over, as far as the anchor or a store of whole
    /// objects tells.
    pub(crate) fn check_ours(&self) -> Result<()> {
        match self.anchor() {
            Some(anchor) => Ok(anchor.check()?),
            None if self.space.is_overtaken()? => Err(Error::Overtaken { pool: self.name() }),
            None => Ok(()),
        }
    }

    /// Refuses what needs a feature that the pool does not use.
    pub(crate) fn need_feature(&self, name: &'static str) -> Result<()> {
        if self.has_feature(name) {
            return Ok(());
        }
        Err(Error::FeatureOff { pool: self.name(), feature: name })
    }

    /// Blocks that this commit may free besides those that operations replace.
    pub(crate) fn frees_max(&self) -> usize {
        let reserved = self.txgs.budget.reserved();
        let room = self.commit_room().frees_max(reserved.space, reserved.blocks);
        // Deleting writes before it gives back, so it waits for the cleaner while that gets on.
        if self.admission.stalled.load(Ordering::Relaxed) { room.max(FREES_LEAST) } else { room }
    }

    /// Number by which people know the pool.
    pub(crate) fn known_as(&self) -> PoolGuid {
        self.identity.known_as.read().unwrap_or(self.identity.guid)
    }
}

/// Greatest logical size of a block: a quarter of a slot, so that segments fill well.
pub(crate) fn block_bytes_max(slot_size: u32) -> u32 {
    (slot_size / 4).min(steadfast_format::BlockPointer::LSIZE_MAX)
}

/// The keys that seal a pool, from its master key.
pub(crate) fn sealing_of(
    master: Key,
    wrapped: steadfast_format::WrappedKey,
    location: String,
    random: &dyn Fn(&mut [u8]),
) -> Sealing {
    let tag_key = steadfast_crypto::derive(&master, b"", "steadfast uberblock tag v1");
    Sealing {
        keys: Arc::new(BlockKeys::new(master, &random)),
        tag_key,
        wrapped: RankedRwLock::new((wrapped, location)),
    }
}

/// Suspends the pool if the work of this name panics: nobody would wake the threads that wait for a
/// commit, or keep the promise.
pub(crate) struct Watch<'a>(pub &'a Core, pub &'static str);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (core, name) = (self.0, self.1);
            core.suspend_because(&format!(
                "internal error in a background task ({name}); see the daemon's log"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceHandle;
    use crate::test_pool::tank_of;
    use std::time::Duration;
    use steadfast_device::objects::{MemoryStore, ObjectDevice, Request, StoreFault};

    /// A store is away, and the pool is suspended for another reason meanwhile. Nobody commits when
    /// the store is back, so nobody may wait for it.
    #[test]
    fn a_store_that_is_back_ends_no_suspension_for_good() {
        let away = Arc::new(AtomicBool::new(false));
        let hook = {
            let away = Arc::clone(&away);
            move |_: &Request| away.load(Ordering::SeqCst).then_some(StoreFault::Away)
        };
        let store = Arc::new(MemoryStore::new("bucket").handle(hook));
        let device = Arc::new(ObjectDevice::open(store, Some(256 << 20), [1; 16]).expect("a store"));
        let pool = tank_of(&Env::real(), DeviceHandle { path: "bucket".into(), device });
        pool.wait_for_devices();
        away.store(true, Ordering::SeqCst);
        let refused = pool.core.commit_changes().expect_err("the store is away");
        assert!(matches!(refused, Error::StoreAway { .. }), "{refused}");
        pool.core.suspend_because("a device failed");
        away.store(false, Ordering::SeqCst);
        // A request that was refused a moment before may be told behind the first call.
        let is_back = (0..60).any(|_| pool.core.events.wait.retry(Duration::from_secs(1)));
        assert!(is_back && pool.store_away().is_none());
        let suspended = pool.core.txgs.commits.check().expect_err("it stays suspended");
        assert_eq!(&*suspended.reason, "a device failed");
        let refused = pool.sync().expect_err("it does not wait");
        assert!(matches!(refused, Error::Suspended { .. }), "{refused}");
    }
}
