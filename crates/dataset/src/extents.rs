//! Extents as they are stored, by inode and offset.

use steadfast_format::extent::Extent;
use steadfast_format::file_keys::ExtentsKey;
use steadfast_format::{BlockPointer, InodeId};

use crate::dataset::Dataset;
use crate::store::occupied;
use crate::{Error, Result};

pub(crate) fn extent_key(inode: InodeId, offset: u64) -> Vec<u8> {
    ExtentsKey::Extent { inode, offset }.encode()
}

/// Bytes that a file is charged with for an extent.
pub(crate) fn stored_bytes(extent: &Extent, unit: u32) -> u64 {
    let occupied = |pointer: &BlockPointer| u64::from(pointer.asize(unit)) * pointer.copy_count() as u64;
    match extent {
        Extent::Inline(_) => 512,
        _ => extent.pointers().into_iter().map(occupied).sum(),
    }
}

impl Dataset {
    /// The stored extent that begins at `offset` of an inode.
    pub fn extent_at(&self, inode: InodeId, offset: u64) -> Result<Option<Extent>> {
        let value = self.extents.get(&extent_key(inode, offset))?;
        value.map(|value| self.decode_extent(&value)).transpose()
    }

    pub(crate) fn count_allocated(&self, id: InodeId) -> Result<u64> {
        let mut sum = 0;
        let (from, to) =
            (extent_key(id, 0), ExtentsKey::Extent { inode: InodeId(id.0 + 1), offset: 0 }.encode());
        for item in self.extents.range(from..to) {
            let (_, value) = item?;
            sum += self.extent_bytes(&self.decode_extent(&value)?);
        }
        Ok(sum)
    }

    pub(crate) fn decode_extent(&self, value: &[u8]) -> Result<Extent> {
        Extent::decode(value).map_err(|source| Error::Item { dataset: self.id, source })
    }

    pub(crate) fn extent_bytes(&self, extent: &Extent) -> u64 {
        stored_bytes(extent, self.blocks.unit())
    }

    /// Bytes its blocks occupy.
    pub(crate) fn extent_data(&self, extent: &Extent) -> u64 {
        extent.pointers().into_iter().map(|pointer| occupied(&*self.blocks, pointer)).sum()
    }
}
