//! Send and receive stand on the datasets and have no state of their own.

use std::sync::Arc;

use crate::core::state::Core;
use crate::datasets::state::Datasets;

/// Streams of a pool.
pub struct Streams {
    pub(crate) core: Arc<Core>,
    pub(crate) datasets: Arc<Datasets>,
}
