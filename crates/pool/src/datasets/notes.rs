//! Notes on a snapshot that come with a stream: properties of users, and tags that hold it.

use crate::datasets::received_props::ReceivedProps;
use crate::datasets::snapshot::Snapshot;
use std::collections::BTreeSet;
use steadfast_property::Local;

/// Properties and tags that a snapshot gets with a stream.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// Properties that count.
    pub props: Local,
    /// Properties that came.
    pub received: ReceivedProps,
    /// Tags that hold it from the beginning.
    pub tags: BTreeSet<String>,
}

impl Snapshot {
    /// A snapshot that nobody knows yet gets what came with it. Tags are set here and now.
    pub fn take_notes(&mut self, notes: &Notes, now_ns: u64) {
        self.props.extend(notes.props.clone());
        self.props_dirty.extend(notes.props.keys().cloned());
        self.received = notes.received.clone();
        self.holds.extend(notes.tags.iter().map(|tag| (tag.clone(), now_ns)));
        self.holds_dirty.extend(notes.tags.iter().cloned());
    }
}
