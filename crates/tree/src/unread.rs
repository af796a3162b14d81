//! Operations that hold locks read nothing.
//!
//! An operation looks at trees and then changes them, under locks that others want: the gate of the
//! transaction groups, a mutex over names. A node that it needs may not be in memory. If it were
//! read there and then, all others would wait for the device with it. Instead the operation runs in
//! [`Attempts`]: a tree that misses a node notes it and fails with
//! [`Error::Unread`](crate::Error::Unread). The operation gives up, which it can do because it
//! looks before it changes, and lets go of its locks. Then what was noted is read, down to the
//! leaves and side by side, and the operation begins again.
//!
//! ## Invariants
//! [unread.1] A node that was read for an operation stays in its hands until it has ended, whatever
//!      the cache does. So each round finds more in memory, and only changes of the tree by others
//!      can make another round necessary.
//!      test: `an_operation_ends_though_the_cache_keeps_nothing`
//! [unread.2] An operation that fails with [`Error::Unread`](crate::Error::Unread) has changed
//!      nothing.
//!      test: `posix`, `tests/cold.rs`
//! [unread.3] After [`ROUNDS_MAX`] rounds it reads under its locks, so that it ends even where a
//!      sync replaces what was read in each of them.
//!
//! An error of a read is kept with its pointer, and told in the next round if the pointer is still
//! wanted: what a sync freed meanwhile is not.

use std::cell::RefCell;
use std::sync::Arc;

use steadfast_cache::AddressMap;
use steadfast_env::brief;
use steadfast_format::BlockPointer;

use crate::Result;
use crate::node::{Child, Node};
use crate::nodes::{Nodes, Wanted};
use crate::write::Bounds;

/// Rounds in which an operation reads nothing under its locks. Each begins where a sync replaced
/// what the one before had read: more than a few in a row do not happen by chance.
const ROUNDS_MAX: usize = 16;
/// Nodes of one level that a range of keys brings in at most. The rest is read in further rounds.
const NODES_OF_A_RANGE_MAX: usize = 32;

/// Keys that are wanted below a node.
#[derive(Clone)]
pub(crate) struct KeyRange {
    pub(crate) from: Vec<u8>,
    /// Up to and including this one; without one, to the end.
    pub(crate) to: Option<Vec<u8>>,
    /// Nodes of one level that are read for it at most. The rest is missed again.
    pub(crate) nodes_max: usize,
}

impl KeyRange {
    pub(crate) fn new(from: Vec<u8>, to: Option<Vec<u8>>) -> KeyRange {
        KeyRange { from, to, nodes_max: NODES_OF_A_RANGE_MAX }
    }
}

/// A node that was not in memory, and the keys below it that are wanted.
struct Missed {
    nodes: Nodes,
    wanted: Wanted,
    ranges: Vec<KeyRange>,
}

struct Pin {
    pointer: BlockPointer,
    domain: u64,
    /// The node, or why it cannot be had.
    node: Result<Arc<Node>>,
}

#[derive(Default)]
struct Scope {
    /// It reads under its locks after all. [unread.3]
    reads: bool,
    missed: Vec<Missed>,
    pins: AddressMap<Pin>,
}

thread_local! {
    static SCOPE: RefCell<Option<Scope>> = const { RefCell::new(None) };
}

/// The attempts of one operation that reads nothing.
#[derive(Default)]
pub struct Attempts {
    scope: Scope,
    rounds: usize,
}

impl Attempts {
    /// An operation that was not tried yet.
    #[must_use]
    pub fn new() -> Attempts {
        Attempts::default()
    }

    /// Tries it: `act` fails where a tree does ([`Error::Unread`](crate::Error::Unread)), and has
    /// changed nothing then. `None` if a node was missing: the caller lets go of its locks, calls
    /// [`Attempts::read`] and tries again. Inside another operation this is part of the attempt
    /// under way, which begins again as a whole.
    pub fn attempt<R, E>(&mut self, act: impl FnOnce() -> Result<R, E>) -> Option<Result<R, E>> {
        struct Leave<'a>(&'a mut Scope);
        impl Drop for Leave<'_> {
            fn drop(&mut self) {
                *self.0 = SCOPE.take().unwrap_or_default();
            }
        }
        if SCOPE.with_borrow(Option::is_some) {
            return Some(act());
        }
        self.scope.reads = self.rounds >= ROUNDS_MAX;
        SCOPE.set(Some(std::mem::take(&mut self.scope)));
        let leave = Leave(&mut self.scope);
        let result = if self.rounds >= ROUNDS_MAX { brief::excused(act) } else { act() };
        drop(leave);
        let is_unread = !self.scope.missed.is_empty();
        debug_assert!(!is_unread || result.is_err(), "an operation went on though a tree missed a node");
        // One that is done is not done again.
        if is_unread && result.is_err() { None } else { Some(result) }
    }

    /// The same, with so many nodes of a level for each range of keys at most.
    pub(crate) fn read_most(&mut self, nodes_max: usize) {
        let ranges = self.scope.missed.iter_mut().flat_map(|missed| &mut missed.ranges);
        ranges.for_each(|range| range.nodes_max = nodes_max);
        self.read();
    }

    /// Reads what the last attempt missed.
    pub fn read(&mut self) {
        self.rounds += 1;
        read(std::mem::take(&mut self.scope.missed), &mut self.scope.pins);
    }
}

/// Runs an operation that takes all its locks itself and lets go of them before it returns, until
/// no tree that it asks misses a node. See [`Attempts`].
pub fn without_reading<R, E>(mut act: impl FnMut() -> Result<R, E>) -> Result<R, E> {
    let mut attempts = Attempts::new();
    loop {
        if let Some(result) = attempts.attempt(&mut act) {
            return result;
        }
        attempts.read();
    }
}

/// True if the thread is in an operation that missed a node, and will begin again.
#[must_use]
pub fn is_unread() -> bool {
    SCOPE.with_borrow(|scope| scope.as_ref().is_some_and(|scope| !scope.missed.is_empty()))
}

fn with<R>(act: impl FnOnce(&mut Scope) -> R) -> Option<R> {
    SCOPE.with_borrow_mut(|scope| scope.as_mut().map(act))
}

/// True if the thread is in an operation that reads nothing.
pub(crate) fn is_strict() -> bool {
    SCOPE.with_borrow(|scope| scope.as_ref().is_some_and(|scope| !scope.reads))
}

/// A node as the operation of this thread has read it, or why it could not.
pub(crate) fn held(nodes: &Nodes, pointer: &BlockPointer) -> Option<Result<Arc<Node>>> {
    with(|scope| {
        let pin = scope.pins.get(&pointer.copies[0])?;
        (pin.pointer == *pointer && pin.domain == nodes.cache.domain()).then(|| pin.node.clone())
    })?
}

/// Keeps a node until the operation that this thread is in has ended.
pub(crate) fn hold(nodes: &Nodes, pointer: &BlockPointer, node: Result<Arc<Node>>) {
    let domain = nodes.cache.domain();
    with(|scope| scope.pins.insert(pointer.copies[0], Pin { pointer: *pointer, domain, node }));
}

/// Notes a node to be read before the next attempt, with what leads to these keys below it.
pub(crate) fn miss(nodes: &Nodes, wanted: Wanted, ranges: Vec<KeyRange>) {
    with(|scope| {
        let is_known = |missed: &&mut Missed| missed.wanted.pointer == wanted.pointer;
        match scope.missed.iter_mut().find(is_known) {
            Some(known) => known.ranges.extend(ranges),
            None => scope.missed.push(Missed { nodes: nodes.clone(), wanted, ranges }),
        }
    });
}

/// Reads what was missed, level by level, all of a level side by side.
fn read(mut front: Vec<Missed>, pins: &mut AddressMap<Pin>) {
    while !front.is_empty() {
        let mut below = Vec::new();
        while let Some(first) = front.first() {
            // Nodes of one store at a time.
            let nodes = first.nodes.clone();
            let (of_it, rest): (Vec<Missed>, Vec<Missed>) =
                front.into_iter().partition(|missed| Arc::ptr_eq(&missed.nodes.store, &nodes.store));
            front = rest;
            let wanted: Vec<Wanted> = of_it.iter().map(|missed| missed.wanted.clone()).collect();
            for (missed, node) in of_it.into_iter().zip(nodes.read_many(&wanted)) {
                let (pointer, domain) = (missed.wanted.pointer, nodes.cache.domain());
                pins.insert(pointer.copies[0], Pin { pointer, domain, node: node.clone() });
                if let Ok(node) = node {
                    descend(&nodes, &node, missed.wanted.bounds(), &missed.ranges, &mut below, pins);
                }
            }
        }
        front = below;
    }
}

/// Finds what is missing of the children of a node that lead to these keys.
fn descend(
    nodes: &Nodes,
    node: &Node,
    bounds: Bounds<'_>,
    ranges: &[KeyRange],
    below: &mut Vec<Missed>,
    pins: &mut AddressMap<Pin>,
) {
    if node.is_leaf() {
        return;
    }
    // By child, the ranges that it leads to.
    let mut children: Vec<(usize, Vec<KeyRange>)> = Vec::new();
    for range in ranges {
        let first = node.child_index(&range.from);
        let last = match &range.to {
            Some(to) => node.child_index(to),
            None => node.children.len() - 1,
        };
        for index in (first..=last.max(first)).take(range.nodes_max) {
            match children.iter_mut().find(|(known, _)| *known == index) {
                Some((_, ranges)) => ranges.push(range.clone()),
                None => children.push((index, vec![range.clone()])),
            }
        }
    }
    for (index, ranges) in children {
        let Child::Stored(pointer) = &node.children[index] else {
            unreachable!("a stored node has stored children")
        };
        let bounds = bounds.of_child(node, index);
        match nodes.cache.glance(pointer) {
            Some(child) => {
                let (pointer, domain, node) = (*pointer, nodes.cache.domain(), Ok(Arc::clone(&child)));
                pins.insert(pointer.copies[0], Pin { pointer, domain, node });
                descend(nodes, &child, bounds, &ranges, below, pins);
            }
            None => {
                let wanted = Wanted::new(pointer, bounds);
                below.push(Missed { nodes: nodes.clone(), wanted, ranges });
            }
        }
    }
}
