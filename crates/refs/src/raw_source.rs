//! Sealed blocks of another pool as a raw dataset holds them.

use crate::{Error, Result};
use std::sync::Arc;
use steadfast_blockio::Badness;
use steadfast_blockio::Block;
use steadfast_blockio::BlockIo;
use steadfast_blockio::ReadContext;
use steadfast_dataset::Dataset;
use steadfast_device::Buffer;
use steadfast_format::Address;
use steadfast_format::BlockPointer;
use steadfast_format::InodeId;
use steadfast_format::PoolGuid;
use steadfast_format::Stamp;
use steadfast_format::raw::RawBlock;
use steadfast_format::raw::STRIDE;
use steadfast_format::raw::is_stamp;

/// The file of the roots.
pub const ROOTS: InodeId = InodeId(2);

/// The file that holds blocks of a salt. Two salts with one file are as unlikely as 62 random bits
/// are to be the same, and who makes such salts gets blocks that do not open.
pub fn file_of(salt: &[u8; 16]) -> InodeId {
    let made = steadfast_crypto::hash_parts(&[b"steadfast raw file", salt]);
    let number = u64::from_le_bytes(made[..8].try_into().expect("eight bytes")) >> 2;
    InodeId(number.max(ROOTS.0 + 1))
}

/// The name of that file.
pub fn name_of(salt: &[u8; 16]) -> Vec<u8> {
    salt.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

/// Where a block lies in the file of its salt.
pub fn offset_of(stamp: &Stamp) -> u64 {
    stamp.counter * STRIDE
}

/// Where blocks of a view come from.
pub struct RawSource {
    /// Pool that sealed them.
    pub pool: PoolGuid,
    /// Raw datasets, or snapshots of some, in which they are looked for.
    pub carriers: Vec<Arc<Dataset>>,
}

impl RawSource {
    /// A block, verified and opened.
    pub fn read(
        &self,
        blockio: &BlockIo,
        pointer: &BlockPointer,
        context: &ReadContext<'_>,
    ) -> Result<Block> {
        let bad = |reason: String| Error::BadDataset { dataset: context.dataset, reason };
        let absent =
            || bad(format!("block {} of salt {} is not there", pointer.stamp.counter, tell(pointer)));
        if !is_stamp(&pointer.stamp) {
            return Err(absent());
        }
        for carrier in &self.carriers {
            if let Some((header, bytes)) = stored(carrier, &pointer.stamp)?
                && header.psize == pointer.psize
            {
                let opened = blockio.open_foreign(Buffer::from(bytes), self.pool, pointer, context);
                if let Err(steadfast_blockio::Error::Bad(fault)) = &opened
                    && fault.badness() == Badness::Authentication
                    && let Some(address) = place_of(carrier, &pointer.stamp)
                {
                    // No device is to blame; it is counted where it lies, as that of a block of
                    // this pool is.
                    blockio.note_unopened(address);
                }
                return Ok(opened?);
            }
        }
        Err(absent())
    }
}

fn tell(pointer: &BlockPointer) -> String {
    String::from_utf8_lossy(&name_of(&pointer.stamp.salt)).into_owned()
}

/// A block as a raw dataset has it: its header, and its bytes.
pub fn stored(carrier: &Dataset, stamp: &Stamp) -> Result<Option<(RawBlock, Vec<u8>)>> {
    let file = match carrier.inode(file_of(&stamp.salt)) {
        Ok(file) => file,
        Err(steadfast_dataset::Error::NoInode(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let mut header = [0; RawBlock::SIZE];
    carrier.read(&file, offset_of(stamp), &mut header)?;
    let Some(header) = RawBlock::decode(&header).ok().filter(|header| header.stamp == *stamp) else {
        return Ok(None);
    };
    let mut bytes = vec![0; header.psize as usize];
    carrier.read(&file, offset_of(stamp) + RawBlock::SIZE as u64, &mut bytes)?;
    Ok(Some((header, bytes)))
}

/// Where on devices a raw dataset has a block, or its first bytes; `None` of one so small that it
/// lies in the tree.
fn place_of(carrier: &Dataset, stamp: &Stamp) -> Option<Address> {
    let extent = carrier.extent_at(file_of(&stamp.salt), offset_of(stamp)).ok()??;
    steadfast_dataset::blocks_of(&extent).first().map(|(pointer, _)| pointer.copies[0])
}
