//! The most recent events of all pools, in the order in which the daemon learned of them.

use crate::api::PoolEvent;
use std::collections::{BTreeMap, VecDeque};

/// Events kept.
const KEPT: usize = 1024;

/// The events of all pools in the order in which they were heard of.
#[derive(Default)]
pub(super) struct EventRing {
    last: u64,
    events: VecDeque<PoolEvent>,
}

impl EventRing {
    /// The ring as the log has it.
    pub fn of(last: u64, events: Vec<PoolEvent>) -> EventRing {
        let beyond = events.len().saturating_sub(KEPT);
        EventRing { last, events: events.into_iter().skip(beyond).collect() }
    }

    /// Number of the last event ever.
    pub fn last(&self) -> u64 {
        self.last
    }

    pub fn push(
        &mut self,
        time_ns: u64,
        class: String,
        pool: Option<String>,
        fields: BTreeMap<String, String>,
    ) {
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.last += 1;
        self.events.push_back(PoolEvent { eid: self.last, time_ns, class, pool, fields });
    }

    /// All events, oldest first.
    pub fn all(&self) -> impl Iterator<Item = &PoolEvent> {
        self.events.iter()
    }

    /// Removes all events.
    pub fn drain(&mut self) -> impl Iterator<Item = PoolEvent> + '_ {
        self.events.drain(..)
    }
}
