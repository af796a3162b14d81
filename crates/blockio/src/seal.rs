//! The identity that a sealed block is bound to: the associated data of its seal.
//! `docs/format/seal.md` has the bytes.

use steadfast_format::{BlockKind, BlockPointer, Compression, DatasetId, PoolGuid, Txg};

/// Bytes of the associated data.
pub const AAD_SIZE: usize = 40;

/// The identity of a block, which its seal binds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Identity {
    /// Pool.
    pub pool: PoolGuid,
    /// Dataset, 0 for the pool's own metadata.
    pub dataset: DatasetId,
    /// Txg that wrote it.
    pub birth: Txg,
    /// Bytes after opening and decompression.
    pub lsize: u32,
    /// Its kind.
    pub kind: BlockKind,
    /// Height above the leaves.
    pub level: u8,
    /// How it was compressed before it was sealed.
    pub compression: Compression,
}

impl Identity {
    /// Of the block that `pointer` of `dataset` names.
    #[must_use]
    pub fn of(pool: PoolGuid, dataset: DatasetId, pointer: &BlockPointer) -> Identity {
        Identity {
            pool,
            dataset,
            birth: pointer.written_in(),
            lsize: pointer.lsize,
            kind: pointer.kind,
            level: pointer.level,
            compression: pointer.compression,
        }
    }

    /// The associated data.
    ///
    /// | off | len | field       | meaning                         |
    /// |-----|-----|-------------|---------------------------------|
    /// |   0 |   8 | version     | "SFblock" and 1                 |
    /// |   8 |   8 | pool        | pool's guid                     |
    /// |  16 |   8 | dataset     | family of the dataset, or 0     |
    /// |  24 |   8 | birth       | txg that wrote it, whoever refers to it since |
    /// |  32 |   4 | lsize       | bytes after decompression       |
    /// |  36 |   1 | kind        | as in the block pointer         |
    /// |  37 |   1 | level       | as in the block pointer         |
    /// |  38 |   1 | compression | as in the block pointer         |
    /// |  39 |   1 | reserved    | zero                            |
    #[must_use]
    pub fn aad(&self) -> [u8; AAD_SIZE] {
        let mut out = [0; AAD_SIZE];
        out[0..8].copy_from_slice(b"SFblock\x01");
        out[8..16].copy_from_slice(&self.pool.0.to_le_bytes());
        out[16..24].copy_from_slice(&self.dataset.0.to_le_bytes());
        out[24..32].copy_from_slice(&self.birth.0.to_le_bytes());
        out[32..36].copy_from_slice(&self.lsize.to_le_bytes());
        out[36] = self.kind as u8;
        out[37] = self.level;
        out[38] = self.compression as u8;
        out
    }
}
