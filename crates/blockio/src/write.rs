//! Writing blocks: compress, seal, hash, append (ZFS: `zio_write`).

use std::borrow::Cow;
use std::ops::Deref;

use steadfast_crypto::SEAL_OVERHEAD;
use steadfast_device::Buffer;
use steadfast_env::Job;
use steadfast_format::{Address, BlockKind, BlockPointer, Compression, DatasetId, Stamp, Txg};
use steadfast_segment::Class;

use crate::blocks::{BlockWrite, WriteContext};
use crate::compress::room_for;
use crate::error::Error;
use crate::in_order::{Wanted, in_order};
use crate::io::{BlockIo, PARALLEL_BYTES_MIN};
use crate::seal::Identity;

use crate::stats::add;

/// Bytes of blocks that are sealed ahead of the one that is appended: so much work for the
/// processors while a thread waits for devices.
const AHEAD_BYTES: usize = 2 << 20;

/// Bytes of a block as they are stored.
enum Stored<'a> {
    Plain(Cow<'a, [u8]>),
    Sealed(Buffer),
}

impl Deref for Stored<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Stored::Plain(bytes) => bytes,
            Stored::Sealed(bytes) => bytes,
        }
    }
}

/// A sealed block without its places.
struct Sealed<'a> {
    bytes: Stored<'a>,
    pointer: BlockPointer,
    /// It has the copies that the dataset wishes.
    record: bool,
}

impl BlockIo {
    /// Writes one block.
    pub fn write(&self, context: &WriteContext<'_>, block: BlockWrite<'_>) -> Result<BlockPointer, Error> {
        self.place(context, &self.seal(context, block)?)
    }

    /// Writes blocks in order, compressing, sealing and hashing on all cores. On an error nothing
    /// of them stays allocated.
    pub fn write_many(
        &self,
        context: &WriteContext<'_>,
        blocks: Vec<BlockWrite<'_>>,
    ) -> Result<Vec<BlockPointer>, Error> {
        let mut pointers = Vec::with_capacity(blocks.len());
        let mut failed = None;
        let bytes: usize = blocks.iter().map(|block| block.data.len()).sum();
        let seal = |block| self.seal(context, block);
        let mut place = |sealed: Result<Sealed<'_>, Error>| {
            match sealed.and_then(|sealed| self.place(context, &sealed)) {
                Ok(pointer) => pointers.push(pointer),
                Err(error) => failed = Some(error),
            }
            failed.is_none()
        };
        if blocks.len() <= 1 || bytes < PARALLEL_BYTES_MIN || self.env.tasks.parallelism() <= 1 {
            _ = blocks.into_iter().all(|block| place(seal(block)));
        } else {
            let wanted = blocks.into_iter().map(|of| Wanted { bytes: of.data.len(), of }).collect();
            in_order(&*self.env.tasks, wanted, AHEAD_BYTES, seal, place);
        }
        match failed {
            None => Ok(pointers),
            Some(error) => {
                pointers.iter().for_each(|pointer| self.free(pointer));
                Err(error)
            }
        }
    }

    /// Keyed hashes of contents, in order, on all cores.
    #[must_use]
    pub fn digests(&self, key: &steadfast_crypto::Key, contents: &[&[u8]]) -> Vec<[u8; 32]> {
        let mut digests = vec![[0; 32]; contents.len()];
        let parallelism = self.env.tasks.parallelism();
        let bytes: usize = contents.iter().map(|content| content.len()).sum();
        let portion = match bytes < PARALLEL_BYTES_MIN || parallelism <= 1 {
            true => contents.len(),
            false => contents.len().div_ceil(parallelism * 4),
        };
        let jobs = digests.chunks_mut(portion.max(1)).zip(contents.chunks(portion.max(1)));
        let jobs = jobs.map(|(digests, contents)| -> Job<'_> {
            Box::new(move || {
                let all = digests.iter_mut().zip(contents);
                all.for_each(|(digest, content)| *digest = steadfast_crypto::keyed_hash(key, content));
            })
        });
        self.env.tasks.run_all(jobs.collect());
        digests
    }

    /// Most bytes a block may have before compression: it fits a segment even if it does not
    /// compress and is sealed.
    #[must_use]
    pub fn block_bytes_max(&self) -> u32 {
        let geometry = self.space.geometry();
        (geometry.slot_size - geometry.unit).min(BlockPointer::LSIZE_MAX)
    }

    /// Compresses, seals and hashes.
    fn seal<'a>(&self, context: &WriteContext<'_>, block: BlockWrite<'a>) -> Result<Sealed<'a>, Error> {
        let lsize = match u32::try_from(block.data.len()) {
            Ok(lsize) if (1..=BlockPointer::LSIZE_MAX).contains(&lsize) => lsize,
            _ => return Err(Error::Size { bytes: block.data.len() }),
        };
        let overhead = if context.keys.is_some() { SEAL_OVERHEAD } else { 0 };
        // Compression is kept if it saves a unit of what is allocated.
        let unit = self.space.geometry().unit as usize;
        let units = (block.data.len() + overhead).div_ceil(unit);
        let limit = ((units - 1) * unit).saturating_sub(overhead);
        let packed = block.packed.filter(|(_, bytes)| bytes.len() <= limit);
        let (compression, bytes) = match packed {
            Some((compression, bytes)) => (compression, Cow::Borrowed(bytes)),
            None => self.compressor.compress(context.compression_of(block.kind), block.data, limit),
        };
        let (dataset, birth, kind, level) = (context.family, context.txg, block.kind, block.level);
        let identity = Identity { pool: self.pool, dataset, birth, lsize, kind, level, compression };
        let (stamp, bytes) = match (context.keys, bytes) {
            // With room for the seal: growing would copy all of it.
            (Some(keys), Cow::Owned(mut bytes)) if bytes.capacity() - bytes.len() >= SEAL_OVERHEAD => {
                (keys.seal(&identity.aad(), &mut bytes), Stored::Plain(Cow::Owned(bytes)))
            }
            (Some(keys), plain) => {
                let mut bytes = room_for(plain.len() + SEAL_OVERHEAD);
                (keys.seal_to(&identity.aad(), &plain, &mut bytes), Stored::Sealed(bytes))
            }
            (None, bytes) => (Stamp::default(), Stored::Plain(bytes)),
        };
        let psize = u32::try_from(bytes.len()).expect("at most 16 MiB and a seal");
        let hash = steadfast_crypto::hash(&bytes);
        let copies = [Address::NONE; BlockPointer::COPIES_MAX];
        let written = Txg(0);
        let pointer =
            BlockPointer { hash, copies, psize, lsize, birth, written, stamp, compression, kind, level };
        add(&self.counters.blocks_written, 1);
        add(&self.counters.logical_bytes_written, lsize.into());
        add(&self.counters.blocks_compressed, u64::from(compression != Compression::Off));
        Ok(Sealed { bytes, pointer, record: block.record })
    }

    /// Appends the copies.
    fn place(&self, context: &WriteContext<'_>, sealed: &Sealed<'_>) -> Result<BlockPointer, Error> {
        let mut pointer = sealed.pointer;
        let classes: &[Class] = match pointer.kind {
            BlockKind::Data => return self.place_content(context, sealed),
            BlockKind::Names | BlockKind::Extents => &[Class::Meta0, Class::Meta1],
            BlockKind::Meta | BlockKind::Tail => &[Class::Pool0, Class::Pool1],
        };
        let is_pools = matches!(pointer.kind, BlockKind::Meta | BlockKind::Tail);
        let owner = if is_pools { DatasetId(0) } else { context.owner };
        let twice = if is_pools { self.space.has_pool_copies() } else { context.copies_on_stores };
        for (copy, class) in classes.iter().enumerate() {
            if copy > 0 && !twice && self.space.is_on_store(pointer.copies[0].segment) {
                break;
            }
            self.append(&mut pointer, copy, (owner, *class), &sealed.bytes)?;
        }
        add(&self.counters.stored_bytes_written, u64::from(pointer.psize) * pointer.copy_count() as u64);
        Ok(pointer)
    }

    /// Appends the copies of content, each to segments of its own owner.
    fn place_content(&self, context: &WriteContext<'_>, sealed: &Sealed<'_>) -> Result<BlockPointer, Error> {
        let mut pointer = sealed.pointer;
        let class = if pointer.psize <= context.small_bytes_max { Class::Small } else { Class::Data };
        // A seal takes the place of the third address.
        let most = if pointer.is_sealed() { 2 } else { BlockPointer::COPIES_MAX };
        let copies = if sealed.record { context.copies.clamp(1, most) } else { 1 };
        for copy in 0..copies {
            self.append(&mut pointer, copy, (context.owner.of_copy(copy, copies), class), &sealed.bytes)?;
        }
        add(&self.counters.stored_bytes_written, u64::from(pointer.psize) * copies as u64);
        Ok(pointer)
    }

    /// Appends one copy. On an error the copies before it are freed.
    fn append(
        &self,
        pointer: &mut BlockPointer,
        copy: usize,
        (owner, class): (DatasetId, Class),
        bytes: &[u8],
    ) -> Result<(), Error> {
        match self.space.append(owner, class, bytes) {
            Ok(address) => pointer.copies[copy] = address,
            Err(error) => {
                if copy > 0 {
                    self.free(pointer);
                }
                return Err(error.into());
            }
        }
        Ok(())
    }
}
