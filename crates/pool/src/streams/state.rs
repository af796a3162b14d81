//! Send and receive stand on the datasets, and remember which snapshots they swept.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use steadfast_format::DatasetId;

use crate::core::state::Core;
use crate::datasets::state::Datasets;

/// Streams of a pool.
pub struct Streams {
    pub(crate) core: Arc<Core>,
    pub(crate) datasets: Arc<Datasets>,
    /// Received snapshots, by dataset and guid, that have no dead inode records: they were swept,
    /// or this import received them upon one that was.
    pub(crate) swept: Mutex<BTreeSet<(DatasetId, u64)>>,
}
