//! Stored nodes as a tree sees them: its store behind the pool's cache.
//!
//! A node that is missing is read once, however many want it. The first reader leads; the others
//! wait for its node ([`Flight`]) and hold no lock. If the leader fails, each of them reads for
//! itself, so that the error is its own. If the node is freed meanwhile, or the cache cleared, the
//! flight ends as usual and leaves nothing in the cache. Nodes that are wanted together are read
//! side by side.

use std::sync::{Arc, Condvar, Mutex};

use steadfast_cache::AddressMap;
use steadfast_env::waiting::for_read;
use steadfast_format::BlockPointer;

use crate::cache::CacheView;
use crate::node::Node;
use crate::write::Bounds;
use crate::{Error, NodeStore, Result, StoreError};

/// A tree's store and its view of the cache. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Nodes {
    pub(crate) store: Arc<dyn NodeStore>,
    pub(crate) cache: CacheView,
}

/// A node to be read, and what its parent says of it.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) pointer: BlockPointer,
    pub(crate) lower: Option<Vec<u8>>,
    pub(crate) upper: Option<Vec<u8>>,
}

impl Wanted {
    pub(crate) fn new(pointer: &BlockPointer, bounds: Bounds<'_>) -> Wanted {
        Wanted {
            pointer: *pointer,
            lower: bounds.lower.map(<[u8]>::to_vec),
            upper: bounds.upper.map(<[u8]>::to_vec),
        }
    }

    pub(crate) fn bounds(&self) -> Bounds<'_> {
        Bounds { lower: self.lower.as_deref(), upper: self.upper.as_deref() }
    }
}

/// A node being read.
#[derive(Debug)]
pub(crate) struct Flight {
    pointer: BlockPointer,
    domain: u64,
    landed: Mutex<Landed>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Landed {
    /// `Some` once it has ended, with the node if it was good.
    node: Option<Option<Arc<Node>>>,
    /// Somebody waits for that. To wake nobody is a call of the system, too.
    is_awaited: bool,
}

impl Flight {
    fn land(&self, node: Option<Arc<Node>>) {
        let is_awaited = {
            let mut landed = self.landed.lock().expect("no panic while held");
            landed.node = Some(node);
            landed.is_awaited
        };
        if is_awaited {
            self.ended.notify_all();
        }
    }

    /// Waits for the leader; `None` if it failed.
    fn wait(&self) -> Option<Arc<Node>> {
        let mut landed = self.landed.lock().expect("no panic while held");
        landed.is_awaited = true;
        let landed = for_read(|| self.ended.wait_while(landed, |landed| landed.node.is_none()));
        landed.expect("no panic while held").node.clone().expect("it has ended")
    }
}

/// Nodes being read, by the address of their first copy.
pub(crate) type Flights = Mutex<AddressMap<Arc<Flight>>>;

/// Answer to a reader.
enum Lookup {
    Hit(Arc<Node>),
    /// Somebody reads it.
    Follow(Arc<Flight>),
    /// Read it, and say so.
    Lead(Arc<Flight>),
    /// Read it: the address is being read as another node, which one of the two is not.
    Alone,
}

/// Flights that this thread leads. Dropped before they landed, they end as failed.
struct Leads<'n> {
    nodes: &'n Nodes,
    flights: Vec<Arc<Flight>>,
}

impl Leads<'_> {
    fn land(&mut self, flight: &Arc<Flight>, node: Option<Arc<Node>>) {
        if let Some(at) = self.flights.iter().position(|known| Arc::ptr_eq(known, flight)) {
            self.flights.swap_remove(at);
            self.nodes.end(flight, node);
        }
    }
}

impl Drop for Leads<'_> {
    fn drop(&mut self) {
        self.flights.drain(..).for_each(|flight| self.nodes.end(&flight, None));
    }
}

impl Nodes {
    /// A stored node from the store, or from another reader of it, checked against what its parent
    /// says. For a caller that did not find it in the cache.
    pub(crate) fn read(&self, pointer: &BlockPointer, bounds: Bounds<'_>) -> Result<Arc<Node>> {
        let mut read = self.read_many(&[Wanted::new(pointer, bounds)]);
        read.pop().expect("an answer for each")
    }

    /// The same for many, side by side; answers in the same order.
    pub(crate) fn read_many(&self, wanted: &[Wanted]) -> Vec<Result<Arc<Node>>> {
        let lookups: Vec<Lookup> = wanted.iter().map(|wanted| self.begin(&wanted.pointer)).collect();
        let led = |lookup: &Lookup| match lookup {
            Lookup::Lead(flight) => Some(Arc::clone(flight)),
            _ => None,
        };
        let mut leads = Leads { nodes: self, flights: lookups.iter().filter_map(led).collect() };
        let is_mine = |lookup: &Lookup| matches!(lookup, Lookup::Lead(_) | Lookup::Alone);
        let mine = || wanted.iter().zip(&lookups).filter(|(_, lookup)| is_mine(lookup));
        let pointers: Vec<BlockPointer> = mine().map(|(wanted, _)| wanted.pointer).collect();
        let mut bytes = match &pointers[..] {
            [] => Vec::new(),
            [pointer] => vec![self.store.read(pointer)],
            pointers => self.store.read_many(pointers),
        }
        .into_iter();
        let mut answers: Vec<Option<Result<Arc<Node>>>> = Vec::with_capacity(wanted.len());
        for (wanted, lookup) in wanted.iter().zip(&lookups) {
            answers.push(match lookup {
                Lookup::Hit(node) => {
                    // Checked when it was read, but perhaps for another parent.
                    let place = check_place(node, &wanted.pointer, wanted.bounds());
                    Some(place.map(|()| Arc::clone(node)))
                }
                Lookup::Follow(_) => None,
                Lookup::Lead(_) | Lookup::Alone => {
                    let node = Self::decode(wanted, bytes.next().expect("an answer for each"));
                    if let Lookup::Lead(flight) = lookup {
                        leads.land(flight, node.as_ref().ok().cloned());
                    }
                    Some(node)
                }
            });
        }
        drop(leads);
        // After this thread's own have landed, so that no two wait for each other.
        let each = answers.into_iter().zip(wanted.iter().zip(&lookups));
        each.map(|(answer, (wanted, lookup))| match (answer, lookup) {
            (Some(answer), _) => answer,
            (None, Lookup::Follow(flight)) => match flight.wait() {
                Some(node) => {
                    self.cache.count_shared(&wanted.pointer);
                    check_place(&node, &wanted.pointer, wanted.bounds()).map(|()| node)
                }
                None => Self::decode(wanted, self.store.read(&wanted.pointer)),
            },
            (None, _) => unreachable!("all but followers have their answer"),
        })
        .collect()
    }

    fn decode(wanted: &Wanted, bytes: Result<Vec<u8>, StoreError>) -> Result<Arc<Node>> {
        let pointer = &wanted.pointer;
        let (address, level) = (pointer.copies[0], pointer.level);
        let bytes = bytes.map_err(|source| Error::Read { address, level, source })?;
        let node = Node::decode(bytes).map_err(|source| Error::Decode { address, level, source })?;
        check_place(&node, pointer, wanted.bounds())?;
        Ok(Arc::new(node))
    }

    fn begin(&self, pointer: &BlockPointer) -> Lookup {
        let (address, domain) = (pointer.copies[0], self.cache.domain());
        let mut flights = self.cache.flights().lock().expect("no panic while held");
        // A node that landed since the caller looked is here: a flight ends after its node is kept.
        if let Some(node) = self.cache.peek(pointer) {
            return Lookup::Hit(node);
        }
        if let Some(flight) = flights.get(&address) {
            let is_same = flight.pointer == *pointer && flight.domain == domain;
            return if is_same { Lookup::Follow(Arc::clone(flight)) } else { Lookup::Alone };
        }
        self.cache.count_miss(pointer);
        let (landed, ended) = (Mutex::default(), Condvar::new());
        let flight = Arc::new(Flight { pointer: *pointer, domain, landed, ended });
        flights.insert(address, Arc::clone(&flight));
        Lookup::Lead(flight)
    }

    fn end(&self, flight: &Arc<Flight>, node: Option<Arc<Node>>) {
        let mut flights = self.cache.flights().lock().expect("no panic while held");
        let address = flight.pointer.copies[0];
        if flights.get(&address).is_some_and(|known| Arc::ptr_eq(known, flight)) {
            if let Some(node) = node.as_ref().filter(|_| self.store.keeps()) {
                self.cache.insert(flight.pointer, Arc::clone(node));
            }
            flights.remove(&address);
        }
        drop(flights);
        flight.land(node);
    }
}

/// Is this the node that the parent's pointer and separators speak of?
pub(crate) fn check_place(node: &Node, pointer: &BlockPointer, bounds: Bounds<'_>) -> Result<()> {
    let (address, level) = (pointer.copies[0], pointer.level);
    if node.level != level {
        return Err(Error::WrongLevel { address, expected: level, found: node.level });
    }
    match node.key_outside(bounds.lower, bounds.upper) {
        None => Ok(()),
        Some(key) => Err(Error::Misplaced {
            address,
            level,
            key: key.to_vec(),
            lower: bounds.lower.map(<[u8]>::to_vec),
            upper: bounds.upper.map(<[u8]>::to_vec),
        }),
    }
}
