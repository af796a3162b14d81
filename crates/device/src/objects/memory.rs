//! A store of whole objects in memory, that several hosts share, with faults.
//!
//! A host has a handle of its own ([`MemoryStore::handle`]). Before each request its *hook* is
//! called: a test counts there, waits there, or lets another host live a whole life while this one
//! "sleeps". Then the request's [`StoreFault`] strikes, if there is one.
//!
//! ## Fault model
//! A create may fail, before or after it was done: in the second case the answer was lost. A list
//! may be *late*: it lacks what was created, and has what was deleted, since the last
//! [`MemoryStore::settle`]. Not played here: stores that lose a create or give back other bytes
//! (the blocks' hashes tell).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Store;
use crate::{Error, Operation, Result};

/// A request to a store.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// Write, read, list or discard.
    pub operation: Operation,
    /// Name of the object, the folder of a list, the first name of a delete.
    pub name: String,
}

/// Effect of a fault on the request it strikes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StoreFault {
    /// It fails, and nothing was done.
    Fails,
    /// It is done, and its answer is lost.
    AnswerLost,
    /// The store is away: it fails, nothing was done, and the same request may succeed later.
    Away,
    /// No answer comes, and nothing was done.
    Silent,
}

/// Decides about each request: waits, counts, returns a fault.
type Hook = dyn Fn(&Request) -> Option<StoreFault> + Send + Sync;

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Vec<u8>>,
    /// Names as lists show them, where they are late.
    listed: Option<Vec<String>>,
    /// A create replaces what is there.
    overwrites: bool,
}

/// One host's handle of a store in memory.
pub struct MemoryStore {
    identity: String,
    state: Arc<Mutex<State>>,
    hook: Option<Box<Hook>>,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new(identity: &str) -> MemoryStore {
        MemoryStore { identity: identity.to_owned(), state: Arc::default(), hook: None }
    }

    /// Another handle of the same store, that calls `hook` before each request.
    #[must_use]
    pub fn handle(
        &self,
        hook: impl Fn(&Request) -> Option<StoreFault> + Send + Sync + 'static,
    ) -> MemoryStore {
        MemoryStore {
            identity: self.identity.clone(),
            state: Arc::clone(&self.state),
            hook: Some(Box::new(hook)),
        }
    }

    /// A store that holds what this one holds now, and lives on by itself.
    #[must_use]
    pub fn copy(&self) -> MemoryStore {
        let state = self.lock();
        let (objects, listed) = (state.objects.clone(), state.listed.clone());
        let copy = State { objects, listed, overwrites: state.overwrites };
        MemoryStore { state: Arc::new(Mutex::new(copy)), ..MemoryStore::new(&self.identity) }
    }

    /// From now on a create replaces what is there, as in stores that know no conditions.
    pub fn forget_conditions(&self) {
        self.lock().overwrites = true;
    }

    /// From now on lists show what is there at this moment.
    pub fn settle(&self) {
        let mut state = self.lock();
        state.listed = Some(state.objects.keys().cloned().collect());
    }

    /// From now on lists are right.
    pub fn list_at_once(&self) {
        self.lock().listed = None;
    }

    /// Names of all objects.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        self.lock().objects.keys().cloned().collect()
    }

    /// Removes an object, as a stranger would.
    pub fn remove(&self, name: &str) -> bool {
        self.lock().objects.remove(name).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does a request, if its fault lets it. No lock is held while the hook runs.
    fn run<T>(&self, operation: Operation, name: &str, act: impl FnOnce(&mut State) -> T) -> Result<T> {
        let request = Request { operation, name: name.to_owned() };
        let fault = self.hook.as_ref().and_then(|hook| hook(&request));
        let failed = |reason: &str| Error::Store {
            device: self.identity.clone(),
            operation,
            object: name.to_owned(),
            reason: reason.to_owned(),
        };
        if fault == Some(StoreFault::Fails) {
            return Err(failed("the store does not answer"));
        }
        if let Some(StoreFault::Away | StoreFault::Silent) = fault {
            let (device, object) = (self.identity.clone(), name.to_owned());
            let reason = "the store does not answer".to_owned();
            let (status, request) = match fault {
                Some(StoreFault::Away) => (Some(503), Some("req-7".to_owned())),
                _ => (None, None),
            };
            return Err(Error::Away { device, operation, object, status, request, reason });
        }
        let done = act(&mut self.lock());
        match fault {
            Some(_) => Err(failed("the answer was lost")),
            None => Ok(done),
        }
    }
}

impl Store for MemoryStore {
    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.run(Operation::Write, name, |state| {
            let is_new = state.overwrites || !state.objects.contains_key(name);
            if is_new {
                state.objects.insert(name.to_owned(), bytes.to_vec());
            }
            is_new
        })
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>> {
        let found = self.run(Operation::Read, name, |state| state.objects.get(name).cloned())?;
        let (device, object) = (self.identity.clone(), name.to_owned());
        let Some(bytes) = found else { return Err(Error::Missing { device, object }) };
        let Some(range) = range else { return Ok(bytes) };
        let length = bytes.len() as u64;
        if range.start >= length {
            return Err(Error::CutShort { device, object, length, needed: range.end });
        }
        let at = |byte: u64| usize::try_from(byte.min(length)).expect("it is in memory");
        Ok(bytes[at(range.start)..at(range.end)].to_vec())
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let below = format!("{folder}/");
        self.run(Operation::List, folder, |state| {
            let of_folder = |name: &&String| name.starts_with(&below);
            match &state.listed {
                Some(listed) => listed.iter().filter(of_folder).cloned().collect(),
                None => state.objects.keys().filter(of_folder).cloned().collect(),
            }
        })
    }

    fn delete(&self, names: &[String]) -> Result<()> {
        let Some(first) = names.first() else { return Ok(()) };
        self.run(Operation::Discard, first, |state| {
            names.iter().for_each(|name| _ = state.objects.remove(name));
        })
    }
}
