//! Progress of snapshot policies since the daemon started.

use crate::engine::audit_spread::Spread;
use std::collections::BTreeMap;
use steadfast_property::Period;

/// Progress of snapshot policies.
#[derive(Default)]
pub(super) struct PolicyState {
    /// The minute of the last look.
    pub minute: u64,
    /// Label and count of the last period that is done, by file system and period.
    pub done: BTreeMap<(String, Period), (String, u32)>,
    /// Pools whose last audit could not be made: until when they rest, in seconds since 1970.
    pub audited: BTreeMap<String, u64>,
    /// Audits of pools that have begun, and are spread over their period.
    pub spread: BTreeMap<String, Spread>,
    /// Last message about a file system, by its name.
    pub said: BTreeMap<String, String>,
}

impl PolicyState {
    /// Prints a message about a file system, unless it was the last one.
    pub fn say(&mut self, name: &str, what: String) {
        if self.said.get(name) != Some(&what) {
            eprintln!("steadfast: '{name}': {what}");
            self.said.insert(name.to_owned(), what);
        }
    }
}
