//! A snapshot in memory, and a request to take some.

use crate::core::error::Result;
use crate::datasets::notes::Notes;
use crate::datasets::received_props::ReceivedProps;
use parking_lot::Mutex;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::Weak;
use steadfast_dataset::Dataset;
use steadfast_format::DatasetId;
use steadfast_format::SnapshotRow;
use steadfast_format::Txg;
use steadfast_property::Local;

/// One snapshot of a dataset.
pub(crate) struct Snapshot {
    pub row: SnapshotRow,
    /// Properties of users that count, set or received. [notes.2]
    pub props: Local,
    /// Names of properties to write or remove at the next commit.
    pub props_dirty: Vec<String>,
    /// Properties received with a stream.
    pub received: ReceivedProps,
    /// Tags that keep it, and when they were set, in nanoseconds since 1970.
    pub holds: BTreeMap<String, u64>,
    /// Tags to write or remove at the next commit.
    pub holds_dirty: BTreeSet<String>,
    /// While somebody reads it.
    pub open: Weak<Dataset>,
    /// The same for what a raw one shows.
    pub view: Weak<Dataset>,
    /// Readers hold it for reading; true once the snapshot is destroyed.
    pub gone: Arc<RwLock<bool>>,
    /// Shared by sends and receives: the snapshot is not destroyed meanwhile.
    pub pins: Arc<()>,
}

impl Snapshot {
    /// True if somebody sends it, or receives upon it.
    pub fn is_pinned(&self) -> bool {
        Arc::strong_count(&self.pins) > 1
    }

    pub fn new(row: SnapshotRow, props: Local) -> Snapshot {
        let props_dirty = props.keys().cloned().collect();
        Snapshot {
            row,
            props,
            props_dirty,
            received: ReceivedProps::default(),
            holds: BTreeMap::new(),
            holds_dirty: BTreeSet::new(),
            open: Weak::new(),
            view: Weak::new(),
            gone: Arc::default(),
            pins: Arc::default(),
        }
    }

    /// Moves it to another dataset: the next open reads it with that one's keys.
    pub fn moved(&mut self) {
        (self.open, self.view) = (Weak::new(), Weak::new());
    }
}

/// Snapshots that a commit takes together.
pub(crate) struct Request {
    /// Txg that was open when it was asked for: that or a later one takes them.
    pub open: Txg,
    pub of: Vec<(DatasetId, String)>,
    pub props: Local,
    /// Number for the world and time of a snapshot that was received.
    pub origin: Option<(u64, u64)>,
    /// Properties and tags that came with it.
    pub notes: Notes,
    pub answer: Answer,
}

/// Result of a request for snapshots, once there is one.
pub(crate) type Answer = Arc<Mutex<Option<Result<()>>>>;
