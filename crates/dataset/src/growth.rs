//! The change of a dataset's sums by one sync.

use std::collections::BTreeMap;

use steadfast_format::InodeId;
use steadfast_format::extent::Extent;

use crate::dataset::Dataset;

/// The change of a dataset's sums by one sync.
#[derive(Default)]
pub(crate) struct Growth {
    /// Bytes that files occupy, as `stat` tells it.
    pub allocated: BTreeMap<InodeId, i64>,
    /// Bytes of content on devices.
    pub(crate) data: i64,
    /// Bytes of content before compression.
    pub(crate) logical: i64,
}

impl Growth {
    /// Counts an extent that came (`sign` 1) or went (-1).
    pub(crate) fn count(&mut self, dataset: &Dataset, inode: InodeId, extent: &Extent, sign: i64) {
        let signed = |bytes: u64| sign * i64::try_from(bytes).expect("extents are small");
        *self.allocated.entry(inode).or_default() += signed(dataset.extent_bytes(extent));
        self.logical += signed(extent.length().into());
        self.data += signed(dataset.extent_data(extent));
    }
}
