//! # Quotas and reservations
//!
//! Bounds on the bytes of a dataset, and bytes that others must leave to it.
//!
//! ## Definitions
//! *Promised*: worst cases of operations whose txg is not committed. For a dataset d:
//!
//! ```text
//! own(d)     = referenced(d) without what it shares with its origin + promised(d)
//! held(d)    = the part of it that its youngest snapshot refers to as well
//! unique(d)  = own(d) - held(d)
//! used(d)    = own(d) + max(refreservation(d) - unique(d), 0) + kept by its snapshots
//!              + sum of charged(c) over its children c
//! charged(d) = max(used(d), reservation(d)): the bytes that d counts for in its parent
//! ```
//! These are the sums of ZFS's `dsl_dir`. The content of a snapshot may have to be written again
//! beside it. So a refreservation counts in full after a snapshot, and a snapshot without room for
//! that is refused. A running or kept partial receive is a dataset below its target, or below its
//! future parent: it counts with its bytes beyond its base. Limits of the dataset itself that came
//! with a stream do not bind the blocks that arrive for it: its sender kept to them, to the last
//! byte, and here an operation's worst case has to fit.
//!
//! ## Invariants
//! [quota.1] An operation that may take more is admitted only if afterwards own(d) and its shared
//!      bytes are <= refquota(d), used(a) <= quota(a) for d and all above it, and charged(root) <=
//!      the bytes that the pool has for datasets.
//!      `admit`; tests: `tests/quotas.rs`
//! [quota.2] An operation that only gives back is always admitted here.
//!      test: `deleting_works_over_the_quota`
//! [quota.3] An operation refused at a limit would not have fitted even if all promises had come to
//!      nothing. So a refusal is exact to the operation's own worst case: it is `QuotaAfterCommit`
//!      while anything below the limit is promised.
//!      `QuotaAfterCommit` while anything below the limit is promised.
//! [quota.4] The check and the reservation are one step under the budget's lock (`txg::Account`).
//! [quota.5] A snapshot after which [quota.1] would not hold is not taken.
//!      `check_snapshots`; test: `a_snapshot_needs_what_may_be_written_again`
//!
//! ## What exactly means
//! Content is promised in allocation units, at its uncompressed size, and 16 KiB for new nodes of
//! trees. A write is refused if used and these exceed the quota. Nodes are compressed and
//! rewritten, so their size is known only after the commit: used may be a few nodes above the
//! limit, and then only deleting goes on.
//!
//! ## What it costs
//! Nothing without a limit in the pool. With a limit: a short lock and a walk to the root of the
//! names for each operation, and a pass over the datasets in each commit.
//!
//! ## What a crash does
//! Limits are properties, and used is part of the dataset's row: both are of the root that is
//! opened. Promises are forgotten together with the operations that they were made for.

use crate::core::ranked::{RankedMutex, rank};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_format::{DatasetId, DatasetRow, Txg};
use steadfast_property::Local;
use steadfast_txg::{Account, AdmitKind, Verdict};

use crate::core::admission::Admission;
use crate::core::error::{Error, Result};
use crate::datasets::received_props::ReceivedProps;
use crate::datasets::table::{Entry, ROOT, Table};

/// Txgs that can hold promises at once (as in the budget).
const TXG_SLOTS: usize = 4;

/// Properties that are limits, in the order of [`Limits`].
pub(crate) const LIMITS: [&str; 4] = ["quota", "refquota", "reservation", "refreservation"];

/// Limits set on a dataset, in bytes; 0 is none.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Limits {
    pub quota: u64,
    pub refquota: u64,
    pub reservation: u64,
    pub refreservation: u64,
}

impl Limits {
    pub fn of(props: &Local) -> Limits {
        // No pool has so many bytes, and sums of what is reserved stay numbers.
        let bytes = |name: &str| {
            let bytes: u64 = props.get(name).and_then(|value| value.parse().ok()).unwrap_or(0);
            bytes.min(DatasetRow::FIGURE_MAX)
        };
        let [quota, refquota, reservation, refreservation] = LIMITS.map(bytes);
        Limits { quota, refquota, reservation, refreservation }
    }

    pub fn is_none(&self) -> bool {
        *self == Limits::default()
    }
}

/// A limit as a bound.
fn bound(limit: u64) -> u64 {
    if limit == 0 { u64::MAX } else { limit }
}

/// One dataset.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    /// `None` for the root.
    pub parent: Option<DatasetId>,
    pub limits: Limits,
    /// Bytes of its own as of the last commit.
    pub referenced: u64,
    /// Part of it: what its youngest snapshot refers to as well. Known where something is reserved
    /// for it.
    pub held: u64,
    /// Bytes it refers to that are its origin's.
    pub shared: u64,
    /// Bytes that only its snapshots hold.
    pub kept: u64,
    /// Bytes of content before compression and on devices, here and below.
    pub logical: u64,
    pub data: u64,
    /// Nobody sees it: something is received into it.
    pub hidden: bool,
    /// Target of the receive, and the target's quota that binds the blocks that arrive; 0 is none.
    pub held_by: Option<(DatasetId, u64)>,
    /// Datasets below it.
    pub below: u64,
    /// Snapshots, here and below.
    pub snapshots: u64,
    /// Promised to operations that have no txg yet, and by txg.
    pub promised: u64,
    pub promised_in: [u64; TXG_SLOTS],
    /// Sum of what its children are charged with.
    pub children: u64,
    /// The same without promises.
    pub children_settled: u64,
    /// Sum of what is promised here and below.
    pub promised_below: u64,
    /// It, or one below it, gives something back from commit to commit.
    pub freeing: bool,
}

impl Node {
    pub fn own(&self) -> u64 {
        self.referenced.saturating_add(self.all_promised())
    }

    pub fn all_promised(&self) -> u64 {
        self.promised + self.promised_in.iter().sum::<u64>()
    }

    pub fn used_if(&self, own: u64, children: u64) -> u64 {
        own.max(self.reserved()).saturating_add(self.kept).saturating_add(children)
    }

    /// Least amount that `own` is charged with: the refreservation, and `held`.
    pub fn reserved(&self) -> u64 {
        match self.limits.refreservation {
            0 => 0,
            bytes => bytes.saturating_add(self.held),
        }
    }

    pub fn used(&self) -> u64 {
        self.used_if(self.own(), self.children)
    }

    pub fn charged(&self) -> u64 {
        self.used().max(self.limits.reservation)
    }

    /// Bytes charged to its parent, without promises.
    pub fn charged_settled(&self) -> u64 {
        self.used_if(self.referenced, self.children_settled).max(self.limits.reservation)
    }
}

/// Figures of a dataset, without promises.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Measure {
    /// With children, and what is kept for it.
    pub used: u64,
    /// Part of it: its children.
    pub by_children: u64,
    /// Bytes of content before compression and on devices, with children.
    pub logical: u64,
    pub data: u64,
    /// Datasets below it.
    pub filesystems: u64,
    /// Snapshots of it and of all below it.
    pub snapshots: u64,
    /// Part of it: kept by refreservation and not written.
    pub by_refreservation: u64,
    /// Bytes that can still be written to it.
    pub available: u64,
}

#[derive(Default)]
pub(crate) struct Tree {
    pub nodes: HashMap<DatasetId, Node>,
    /// Bytes that all datasets own, snapshots included.
    pub own: u64,
    /// A reservation is set somewhere, so what one dataset takes another may lack.
    pub reserving: bool,
}

/// All datasets' limits, and what counts against them.
pub(crate) struct Quotas {
    pub tree: RankedMutex<Tree, rank::Quotas>,
    /// A limit is set somewhere.
    pub limited: AtomicBool,
    pub admission: Arc<Admission>,
}

impl Quotas {
    pub fn new(admission: Arc<Admission>) -> Quotas {
        Quotas { tree: RankedMutex::default(), limited: AtomicBool::new(false), admission }
    }

    /// Takes over limits and figures of all datasets; what was promised in `done` has become part
    /// of them. `held` says what of a dataset its youngest snapshot refers to as well.
    pub fn rebuild(&self, table: &Table, done: Option<Txg>, held: impl Fn(DatasetId, &Own) -> u64) {
        let mut tree = self.tree.lock();
        let mut old = std::mem::take(&mut tree.nodes);
        let mut limited = false;
        tree.reserving = false;
        for (id, entry) in table.iter_charged() {
            let mut limits = Limits::of(&entry.props);
            limited |= !limits.is_none();
            let mut held_by = None;
            if let Some(receiving) = &entry.receiving {
                let own = Expected::of(&entry.props, &entry.received);
                (limits.quota, limits.refquota) = (own.quota, own.refquota);
                if receiving.replaces(table, entry.row.parent) || receiving.is_in_place() {
                    // The dataset that it replaces reserves them.
                    (limits.reservation, limits.refreservation) = (0, 0);
                }
                if let Some(expected) = receiving.expected {
                    limits.refquota = expected.refquota;
                    held_by = receiving.goal(entry.row.parent).map(|goal| (goal, expected.quota));
                }
            }
            tree.reserving |= limits.reservation > 0 || limits.refreservation > 0;
            let known = old.remove(&id).unwrap_or_default();
            let mut promised_in = known.promised_in;
            done.iter().for_each(|txg| promised_in[slot(*txg)] = 0);
            let own = own_of(table, entry);
            let held = if limits.refreservation > 0 { held(id, &own) } else { 0 };
            let Own { referenced, shared, shared_logical, kept, kept_logical } = own;
            let node = Node {
                parent: (id != ROOT).then_some(entry.row.parent),
                limits,
                referenced,
                held,
                shared,
                kept,
                logical: (entry.row.logical + kept_logical).saturating_sub(shared_logical),
                data: (entry.row.data + kept).saturating_sub(shared),
                hidden: entry.is_hidden(),
                held_by,
                promised: known.promised,
                promised_in,
                snapshots: entry.snapshots.len() as u64,
                freeing: entry.open.as_ref().is_some_and(|open| open.head.owes_frees()),
                ..Node::default()
            };
            tree.nodes.insert(id, node);
        }
        tree.sum_up();
        self.limited.store(limited, Ordering::Release);
    }

    /// Figures of a dataset; `None` if no commit has seen it. `free` are the bytes that the pool
    /// takes besides live and promised ones, without regard to reservations.
    pub fn measure(&self, id: DatasetId, free: u64) -> Option<Measure> {
        let tree = self.tree.lock();
        let node = tree.nodes.get(&id)?;
        let kept = node.reserved().saturating_sub(node.own());
        let by_refreservation = node.reserved().saturating_sub(node.referenced);
        let below = node.children_settled;
        let available = tree.available(id, free).saturating_add(kept);
        let room = bound(node.limits.refquota).saturating_sub(node.own().saturating_add(node.shared));
        Some(Measure {
            used: (node.referenced + node.kept).saturating_add(by_refreservation).saturating_add(below),
            by_children: below,
            logical: node.logical,
            data: node.data,
            filesystems: node.below,
            snapshots: node.snapshots,
            by_refreservation,
            available: available.min(room),
        })
    }

    /// Bytes that can still be written to a dataset as far as quotas are concerned; `None` without
    /// one.
    pub fn room(&self, id: DatasetId) -> Option<u64> {
        let tree = self.tree.lock();
        let held_by = tree.nodes.get(&id).and_then(|node| node.held_by);
        let mut room = None;
        let mut at = Some(id);
        while let Some(node) = at.and_then(|id| tree.nodes.get(&id)) {
            let mut limit = |limit: u64, used: u64| {
                if limit > 0 {
                    let left = limit.saturating_sub(used);
                    room = Some(room.map_or(left, |room: u64| room.min(left)));
                }
            };
            if at == Some(id) {
                limit(node.limits.refquota, node.own() + node.shared);
            }
            limit(quota_for(at, node, held_by), node.used());
            at = node.parent;
        }
        room
    }

    /// [`Tree::check`] of the datasets as they are.
    pub fn check(&self, id: DatasetId, name: &str, new: Limits, free: u64) -> Result<()> {
        self.tree.lock().check(id, name, new, free)
    }

    /// Refuses to charge `to` with what was `from`'s where a quota above the one and not above the
    /// other has no room for it.
    pub fn check_moved(
        &self,
        from: DatasetId,
        to: DatasetId,
        bytes: u64,
        clone: &str,
        name: impl Fn(DatasetId) -> String,
    ) -> Result<()> {
        let over = self.tree.lock().without_room(from, to, bytes);
        let over = over.map(|(id, quota)| {
            let (clone, name) = (clone.to_owned(), name(id));
            Error::PromoteOverQuota { clone, name, quota, bytes }
        });
        over.map_or(Ok(()), Err)
    }

    /// The same for a dataset that is to lie below `to`, with all below it.
    pub fn check_renamed(
        &self,
        id: DatasetId,
        to: DatasetId,
        dataset: &str,
        name: impl Fn(DatasetId) -> String,
    ) -> Result<()> {
        let tree = self.tree.lock();
        let Some(node) = tree.nodes.get(&id) else { return Ok(()) };
        let Some(from) = node.parent else { return Ok(()) };
        let bytes = node.charged();
        let over = tree.without_room(from, to, bytes).map(|(id, quota)| {
            let (dataset, name) = (dataset.to_owned(), name(id));
            Error::RenameOverQuota { dataset, name, quota, bytes }
        });
        over.map_or(Ok(()), Err)
    }

    /// Refuses snapshots of datasets that a commit of `txg` is to take, if what is reserved for
    /// these would not fit beside what the snapshots hold. [quota.5]
    pub fn check_snapshots(
        &self,
        table: &Table,
        txg: Txg,
        held: impl Fn(DatasetId, &Own) -> u64,
        of: &[DatasetId],
    ) -> Result<()> {
        let trial = Quotas::new(Arc::clone(&self.admission));
        let nodes = self.tree.lock().nodes.clone();
        trial.tree.lock().nodes = nodes;
        trial.rebuild(table, Some(txg), held);
        let pool_bytes = self.admission.for_datasets.load(Ordering::Relaxed);
        let mut tree = trial.tree.into_inner();
        match of.iter().find_map(|id| tree.hold(*id, pool_bytes)) {
            Some((id, bytes)) => Err(Error::SnapshotReservation { name: table.full_name(id), bytes }),
            None => Ok(()),
        }
    }

    /// [`Quotas::check`] for a dataset that is to be made below `parent`.
    pub fn check_new(&self, parent: DatasetId, name: &str, new: Limits, free: u64) -> Result<()> {
        const NEW: DatasetId = DatasetId(u64::MAX);
        let limits = Limits { quota: new.quota, refquota: new.refquota, ..Limits::default() };
        let node = Node { parent: Some(parent), limits, ..Node::default() };
        // Under one lock: a commit in between would take it for gone.
        let mut tree = self.tree.lock();
        tree.nodes.insert(NEW, node);
        let checked = tree.check(NEW, name, new, free);
        tree.nodes.remove(&NEW);
        checked
    }
}

/// Limits of a dataset that hold what arrives for it; 0 is none.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Expected {
    pub quota: u64,
    pub refquota: u64,
}

impl Expected {
    /// Limits that these properties will set.
    pub fn of(props: &Local, received: &ReceivedProps) -> Expected {
        let Limits { quota, refquota, .. } = Limits::of(props);
        let held = |name: &str, limit: u64| if received.counts(name) { 0 } else { limit };
        Expected { quota: held("quota", quota), refquota: held("refquota", refquota) }
    }
}

/// Bytes of a dataset, by owner.
pub(crate) struct Own {
    /// Bytes that it refers to, without what is its origin's, or its base's.
    pub referenced: u64,
    /// Bytes that it refers to and that are those.
    pub shared: u64,
    pub shared_logical: u64,
    /// Bytes that only its snapshots hold.
    pub kept: u64,
    pub kept_logical: u64,
}

/// The quota of a node that holds what is written there or below, by one that is held so.
fn quota_for(at: Option<DatasetId>, node: &Node, held_by: Option<(DatasetId, u64)>) -> u64 {
    held_by.filter(|(id, _)| Some(*id) == at).map_or(node.limits.quota, |(_, quota)| quota)
}

fn slot(txg: Txg) -> usize {
    usize::try_from(txg.0 % TXG_SLOTS as u64).expect("small")
}

impl Tree {
    /// Computes what depends on what lies below.
    pub fn sum_up(&mut self) {
        let ids: Vec<DatasetId> = self.nodes.keys().copied().collect();
        let mut deepest_first: Vec<(usize, DatasetId)> = Vec::with_capacity(ids.len());
        for id in ids {
            let mut depth = 0;
            let mut at = id;
            while let Some(parent) = self.nodes.get(&at).and_then(|node| node.parent) {
                depth += 1;
                at = parent;
            }
            deepest_first.push((depth, id));
        }
        deepest_first.sort_unstable_by(|a, b| b.cmp(a));
        self.own = self.nodes.values().map(|node| node.own() + node.kept).sum();
        for (_, id) in deepest_first {
            let node = self.nodes.get_mut(&id).expect("just listed");
            node.promised_below += node.all_promised();
            let (charged, promised, freeing) = (node.charged(), node.promised_below, node.freeing);
            let settled = node.charged_settled();
            let (logical, data, below) = (node.logical, node.data, node.below + u64::from(!node.hidden));
            let snapshots = node.snapshots;
            let Some(parent) = node.parent.and_then(|parent| self.nodes.get_mut(&parent)) else { continue };
            parent.children = parent.children.saturating_add(charged);
            parent.children_settled = parent.children_settled.saturating_add(settled);
            parent.logical += logical;
            parent.data += data;
            parent.below += below;
            parent.snapshots += snapshots;
            parent.promised_below += promised;
            parent.freeing |= freeing;
        }
    }

    /// Says whether limits can be set as ZFS does: not below what is used or reserved already, and
    /// reserving no more than there is.
    pub fn check(&mut self, id: DatasetId, name: &str, new: Limits, free: u64) -> Result<()> {
        let Some(node) = self.nodes.get(&id) else { return Ok(()) };
        let (old, used, own, shared) = (node.limits, node.used(), node.own(), node.shared);
        let unique = own.saturating_sub(node.held);
        // Blocks that arrive for it came with the limit, and their sender kept to it.
        let is_for = |other: &&Node| other.held_by.is_some_and(|(target, _)| target == id);
        let arriving: u64 = self.nodes.values().filter(is_for).map(Node::charged).sum();
        let used = used - arriving;
        let node = self.nodes.get_mut(&id).expect("it was there");
        // The room to reserve follows from the new quota. No sum depends on it.
        node.limits.quota = new.quota;
        let above = match node.parent {
            Some(parent) => self.available(parent, free),
            None => self.unreserved(free),
        };
        let below = self.available(id, free);
        self.nodes.get_mut(&id).expect("it was there").limits = old;
        let low = |property: &str, needed: u64| Error::LimitTooLow {
            name: name.to_owned(),
            property: property.to_owned(),
            needed,
        };
        let high = |property: &str, room: u64| Error::ReservationTooHigh {
            name: name.to_owned(),
            property: property.to_owned(),
            room,
        };
        if new.quota != old.quota && bound(new.quota) < used.max(new.reservation) {
            return Err(low("quota", used.max(new.reservation)));
        }
        let referred = (own + shared).max(new.refreservation);
        if new.refquota != old.refquota && bound(new.refquota) < referred {
            return Err(low("refquota", referred));
        }
        // A reservation must fit into the room that others leave.
        let room = used.max(old.reservation).saturating_add(above).min(bound(new.quota));
        if new.reservation > old.reservation && new.reservation > room {
            return Err(high("reservation", room));
        }
        let room = unique.max(old.refreservation).saturating_add(below).min(bound(new.refquota));
        if new.refreservation > old.refreservation && new.refreservation > room {
            return Err(high("refreservation", room));
        }
        Ok(())
    }

    /// A dataset at or above `to`, and neither at nor above `from`, whose quota has no room for so
    /// many bytes that it would be charged with, and that quota.
    pub fn without_room(&self, from: DatasetId, to: DatasetId, bytes: u64) -> Option<(DatasetId, u64)> {
        let above = |id: DatasetId| {
            std::iter::successors(Some(id), |id| self.nodes.get(id).and_then(|node| node.parent))
        };
        let shared: Vec<DatasetId> = above(from).collect();
        let mut charged = above(to).take_while(|id| !shared.contains(id));
        charged.find_map(|id| {
            let node = self.nodes.get(&id)?;
            (node.used() + bytes > bound(node.limits.quota)).then_some((id, node.limits.quota))
        })
    }

    /// Bytes of the pool that nobody has reserved, of `free` that live and promised ones leave.
    pub fn unreserved(&self, free: u64) -> u64 {
        let Some(root) = self.nodes.get(&ROOT) else { return free };
        free.saturating_sub(root.charged().saturating_sub(self.own))
    }

    /// Bytes that can still be written at or below `id`, its own refquota and refreservation aside.
    pub fn available(&self, id: DatasetId, free: u64) -> u64 {
        let Some(node) = self.nodes.get(&id) else { return free };
        let mine = bound(node.limits.quota).saturating_sub(node.used());
        let above = match node.parent {
            Some(parent) => self.available(parent, free),
            None => self.unreserved(free),
        };
        above.saturating_add(node.limits.reservation.saturating_sub(node.used())).min(mine)
    }

    /// Changes what is promised to a dataset, and all sums above it.
    pub fn shift(&mut self, id: DatasetId, change: impl FnOnce(&mut Node)) {
        let Some(node) = self.nodes.get_mut(&id) else { return };
        let (before, promised) = (node.charged(), node.all_promised());
        change(node);
        let (after, now) = (node.charged(), node.all_promised());
        node.promised_below = node.promised_below + now - promised;
        self.own = self.own + now - promised;
        let (mut before, mut after, mut at) = (before, after, node.parent);
        while let Some(node) = at.and_then(|id| self.nodes.get_mut(&id)) {
            let charged = node.charged();
            node.children = node.children + after - before;
            node.promised_below = node.promised_below + now - promised;
            (before, after, at) = (charged, node.charged(), node.parent);
        }
    }

    /// A snapshot holds all of a dataset. Gives it, and what that adds to what it uses, where there
    /// is no room for it.
    pub fn hold(&mut self, id: DatasetId, pool_bytes: u64) -> Option<(DatasetId, u64)> {
        let above = |id: DatasetId| {
            std::iter::successors(Some(id), |id| self.nodes.get(id).and_then(|node| node.parent))
        };
        let used = |tree: &Tree, id: &DatasetId| tree.nodes.get(id).map_or(0, Node::used);
        let before: Vec<(DatasetId, u64)> = above(id).map(|id| (id, used(self, &id))).collect();
        self.shift(id, |node| node.held = node.referenced);
        let more = used(self, &id) - before[0].1;
        let over = |(id, before): &(DatasetId, u64)| {
            // A parent that a spoilt table says is being destroyed has no node.
            let Some(node) = self.nodes.get(id) else { return false };
            let room = if node.parent.is_none() { pool_bytes } else { u64::MAX };
            node.used() > *before && node.used() > room.min(bound(node.limits.quota))
        };
        (more > 0 && before.iter().any(over)).then_some((id, more))
    }

    /// [quota.1]: where so many bytes more would not fit, and whether that is for want of a quota.
    pub fn obstacle(&self, id: DatasetId, space: u64, pool_bytes: u64) -> Option<(&Node, bool)> {
        let mut node = self.nodes.get(&id)?;
        let (mut at, held_by) = (Some(id), node.held_by);
        let own = node.own() + space;
        if own + node.shared > bound(node.limits.refquota) {
            return Some((node, true));
        }
        let mut used = node.used_if(own, node.children);
        loop {
            let more = used - node.used();
            if more > 0 && used > bound(quota_for(at, node, held_by)) {
                return Some((node, true));
            }
            at = node.parent;
            let charged = used.max(node.limits.reservation);
            match node.parent.and_then(|parent| self.nodes.get(&parent)) {
                Some(parent) => {
                    let children = parent.children + charged - node.charged();
                    (used, node) = (parent.used_if(parent.own(), children), parent);
                }
                None if self.reserving && more > 0 && used > pool_bytes => return Some((node, false)),
                None => return None,
            }
        }
    }
}

/// The account of one dataset.
pub(crate) struct DatasetAccount {
    pub quotas: Arc<Quotas>,
    pub id: DatasetId,
}

impl Account for DatasetAccount {
    fn is_limited(&self) -> bool {
        self.quotas.limited.load(Ordering::Acquire)
    }

    fn room(&self) -> Option<u64> {
        self.quotas.room(self.id)
    }

    fn free(&self, free: u64) -> u64 {
        let available = self.quotas.tree.lock().available(self.id, free);
        self.room().map_or(available, |room| room.min(available)).min(free)
    }

    fn admit(&self, kind: AdmitKind, space: u64) -> Verdict {
        if matches!(kind, AdmitKind::Remove | AdmitKind::Accepted) {
            return Verdict::Admit;
        }
        let tree = self.quotas.tree.lock();
        let pool_bytes = self.quotas.admission.for_datasets.load(Ordering::Relaxed);
        match tree.obstacle(self.id, space, pool_bytes) {
            None => Verdict::Admit,
            Some((node, _)) if node.freeing => Verdict::AfterCleaning,
            // [quota.3]
            Some((node, true)) if node.promised_below > 0 => Verdict::QuotaAfterCommit,
            Some((node, false)) if node.promised_below > 0 => Verdict::AfterCommit,
            Some((_, true)) => Verdict::OverQuota,
            Some((_, false)) => Verdict::NoSpace,
        }
    }

    fn take(&self, space: u64) {
        self.quotas.tree.lock().shift(self.id, |node| node.promised += space);
    }

    fn assign(&self, txg: Txg, space: u64) {
        self.quotas.tree.lock().shift(self.id, |node| {
            node.promised -= space;
            node.promised_in[slot(txg)] += space;
        });
    }

    fn settle(&self, txg: Txg, old: u64, new: u64) {
        self.quotas.tree.lock().shift(self.id, |node| {
            let promised = &mut node.promised_in[slot(txg)];
            *promised = *promised + new - old;
        });
    }

    fn give_back(&self, space: u64) {
        self.quotas.tree.lock().shift(self.id, |node| node.promised -= space);
    }
}

pub(crate) fn own_of(table: &Table, entry: &Entry) -> Own {
    let (row, lineage) = (&entry.row, &entry.row.lineage);
    let base = entry.receiving.as_ref().and_then(|receiving| {
        let (txg, _) = receiving.row.base?;
        table.get(receiving.row.target)?.snapshots.get(&txg)
    });
    let (shared, shared_logical, kept, kept_logical) = match base {
        // Blocks of the base that it let go live on in the base. [receive.2]
        Some(base) => (
            base.row.used.saturating_sub(lineage.kept),
            base.row.logical.saturating_sub(lineage.kept_logical),
            0,
            0,
        ),
        None => (lineage.shared, lineage.shared_logical, lineage.kept, lineage.kept_logical),
    };
    Own { referenced: row.used.saturating_sub(shared), shared, shared_logical, kept, kept_logical }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The root (1), 2 below it, 3 and 4 below 2.
    fn quotas(limits: &[(u64, Limits, u64)]) -> Arc<Quotas> {
        let quotas = Quotas::new(Arc::default());
        {
            let mut tree = quotas.tree.lock();
            for id in 1..=4 {
                let parent = [None, Some(1), Some(2), Some(2)][id as usize - 1].map(DatasetId);
                tree.nodes.insert(DatasetId(id), Node { parent, ..Node::default() });
            }
            for (id, limits, referenced) in limits {
                let node = tree.nodes.get_mut(&DatasetId(*id)).unwrap();
                (node.limits, node.referenced) = (*limits, *referenced);
                tree.reserving |= limits.reservation + limits.refreservation > 0;
            }
            tree.sum_up();
        }
        quotas.limited.store(true, Ordering::Release);
        quotas.admission.for_datasets.store(100 * MIB, Ordering::Relaxed);
        Arc::new(quotas)
    }

    fn account(quotas: &Arc<Quotas>, id: u64) -> DatasetAccount {
        DatasetAccount { quotas: Arc::clone(quotas), id: DatasetId(id) }
    }

    fn none() -> Limits {
        Limits::default()
    }

    #[test]
    fn a_quota_counts_all_below_it_and_is_reached_to_the_byte() {
        let quotas = quotas(&[
            (2, Limits { quota: 10 * MIB, ..none() }, 0),
            (3, none(), 4 * MIB),
            (4, none(), 5 * MIB),
        ]);
        let three = account(&quotas, 3);
        assert_eq!(three.admit(AdmitKind::Write, MIB), Verdict::Admit);
        assert_eq!(three.admit(AdmitKind::Write, MIB + 1), Verdict::OverQuota);
        assert_eq!((three.room(), three.free(u64::MAX)), (Some(MIB), MIB));
        assert_eq!(three.free(5), 5, "no more than the pool has");
        assert_eq!(account(&quotas, 1).admit(AdmitKind::Write, 50 * MIB), Verdict::Admit, "above it is free");
    }

    #[test]
    fn what_others_were_promised_is_waited_for() {
        let quotas = quotas(&[(2, Limits { quota: 10 * MIB, ..none() }, 0)]);
        let (three, four) = (account(&quotas, 3), account(&quotas, 4));
        four.take(8 * MIB);
        assert_eq!(three.admit(AdmitKind::Write, 3 * MIB), Verdict::QuotaAfterCommit);
        four.assign(Txg(7), 8 * MIB);
        four.settle(Txg(7), 8 * MIB, 2 * MIB);
        assert_eq!(three.admit(AdmitKind::Write, 3 * MIB), Verdict::Admit);
        three.take(MIB);
        three.give_back(MIB);
        assert_eq!(quotas.tree.lock().nodes[&DatasetId(1)].children, 2 * MIB);
        assert_eq!(quotas.tree.lock().nodes[&DatasetId(2)].promised_below, 2 * MIB);
    }

    #[test]
    fn deleting_works_over_the_quota() {
        let quotas = quotas(&[(3, Limits { quota: MIB, refquota: MIB, ..none() }, 9 * MIB)]);
        let three = account(&quotas, 3);
        assert_eq!(three.admit(AdmitKind::Write, 1), Verdict::OverQuota);
        assert_eq!(three.admit(AdmitKind::Remove, 64 << 10), Verdict::Admit);
        assert_eq!(three.admit(AdmitKind::Accepted, 64 << 10), Verdict::Admit);
    }

    #[test]
    fn a_reservation_is_there_for_its_owner_and_for_nobody_else() {
        let quotas =
            quotas(&[(3, Limits { reservation: 60 * MIB, ..none() }, 10 * MIB), (4, none(), 30 * MIB)]);
        let (three, four) = (account(&quotas, 3), account(&quotas, 4));
        assert_eq!(four.admit(AdmitKind::Write, 10 * MIB), Verdict::Admit);
        assert_eq!(four.admit(AdmitKind::Write, 10 * MIB + 1), Verdict::NoSpace);
        assert_eq!(three.admit(AdmitKind::Write, 60 * MIB), Verdict::Admit);
        assert_eq!(three.admit(AdmitKind::Write, 60 * MIB + 1), Verdict::NoSpace);
        let measure = |id: u64| quotas.measure(DatasetId(id), 60 * MIB).unwrap();
        assert_eq!((measure(2).used, measure(3).used), (90 * MIB, 10 * MIB));
        assert_eq!((measure(3).available, measure(4).available), (60 * MIB, 10 * MIB));
    }

    #[test]
    fn a_refreservation_counts_as_used_where_it_is_set() {
        let limits = Limits { refreservation: 20 * MIB, quota: 25 * MIB, ..none() };
        let quotas = quotas(&[(2, limits, 5 * MIB), (3, none(), MIB)]);
        let two = quotas.measure(DatasetId(2), 94 * MIB).unwrap();
        assert_eq!(
            two,
            Measure {
                used: 21 * MIB,
                by_children: MIB,
                logical: 0,
                data: 0,
                filesystems: 2,
                snapshots: 0,
                by_refreservation: 15 * MIB,
                available: 19 * MIB
            }
        );
        assert_eq!(account(&quotas, 2).admit(AdmitKind::Write, 19 * MIB), Verdict::Admit);
        assert_eq!(account(&quotas, 2).admit(AdmitKind::Write, 19 * MIB + 1), Verdict::OverQuota);
        assert_eq!(account(&quotas, 3).admit(AdmitKind::Write, 4 * MIB), Verdict::Admit);
        assert_eq!(account(&quotas, 3).admit(AdmitKind::Write, 4 * MIB + 1), Verdict::OverQuota);
    }

    #[test]
    fn limits_that_cannot_be_kept_are_refused() {
        let quotas = quotas(&[(3, Limits { reservation: 6 * MIB, ..none() }, 5 * MIB), (4, none(), 5 * MIB)]);
        let check = |id: u64, property: &str, mib: u64| {
            let mut new = quotas.tree.lock().nodes[&DatasetId(id)].limits;
            match property {
                "quota" => new.quota = mib * MIB,
                "refquota" => new.refquota = mib * MIB,
                "reservation" => new.reservation = mib * MIB,
                _ => new.refreservation = mib * MIB,
            }
            quotas.check(DatasetId(id), "tank/x", new, 90 * MIB).is_ok()
        };
        assert!(check(3, "quota", 6) && !check(3, "quota", 5), "the reservation is more than is used");
        assert!(check(4, "quota", 5) && !check(4, "quota", 4) && check(4, "quota", 0));
        assert!(check(4, "refquota", 5) && !check(4, "refquota", 4));
        assert!(check(4, "reservation", 94) && !check(4, "reservation", 95));
        assert!(check(4, "refreservation", 94) && !check(4, "refreservation", 95));
        let both = Limits { quota: 10 * MIB, reservation: 11 * MIB, ..none() };
        assert!(quotas.check_new(DatasetId(2), "tank/x", both, 90 * MIB).is_err());
        let both = Limits { reservation: 10 * MIB, ..both };
        assert!(quotas.check_new(DatasetId(2), "tank/x", both, 90 * MIB).is_ok());
    }

    #[test]
    fn what_is_moved_has_room_below_every_quota_that_it_comes_below() {
        let quota = |mib: u64| Limits { quota: mib * MIB, ..none() };
        for (room, fits) in [(9, true), (8, false)] {
            let quotas = quotas(&[(2, quota(9), 0), (3, quota(room), 4 * MIB), (4, none(), 5 * MIB)]);
            let moved = |id: u64, to: u64| {
                quotas.check_renamed(DatasetId(id), DatasetId(to), "tank/x", |id| id.0.to_string())
            };
            assert_eq!(moved(4, 3).is_ok(), fits, "the quota above both counts it already");
            assert!(moved(4, 1).is_ok() && moved(4, 2).is_ok());
            let error = moved(4, 3).err().map(|error| error.to_string());
            assert!(error.is_none_or(|error| error.contains("exceeds the quota of '3'")));
        }
    }

    #[test]
    fn sums_follow_whatever_is_promised_and_settled() {
        let limits = Limits { reservation: 3 * MIB, refreservation: 2 * MIB, quota: 50 * MIB, ..none() };
        let quotas = quotas(&[(2, limits, MIB), (3, limits, MIB), (4, none(), 0)]);
        let mut seed = 1_u64;
        let mut open: Vec<(u64, u64)> = Vec::new();
        for round in 0..2_000_u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let (id, bytes) = (1 + (seed >> 33) % 4, (seed >> 40) % (2 * MIB));
            let of = account(&quotas, id);
            of.take(bytes);
            match round % 3 {
                0 => of.give_back(bytes),
                _ => {
                    of.assign(Txg(round / 100), bytes);
                    of.settle(Txg(round / 100), bytes, bytes / 2);
                    open.push((id, bytes / 2));
                }
            }
            if round % 100 == 99 {
                let mut tree = quotas.tree.lock();
                let sums = |tree: &Tree| -> Vec<(u64, u64)> {
                    (1..=4)
                        .map(|id| &tree.nodes[&DatasetId(id)])
                        .map(|n| (n.children, n.promised_below))
                        .collect()
                };
                let before = sums(&tree);
                for node in tree.nodes.values_mut() {
                    (node.children, node.promised_below, node.children_settled) = (0, 0, 0);
                }
                tree.sum_up();
                assert_eq!(before, sums(&tree));
                let total: u64 = open.iter().map(|(_, bytes)| bytes).sum();
                assert_eq!(tree.nodes[&ROOT].promised_below, total);
            }
        }
    }
}
