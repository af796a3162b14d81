//! Newtypes for numbers that must not be swapped.

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub struct $name(pub u64);

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// Number of a transaction group. The first commit of a pool is 1.
    Txg
);
id!(
    /// Name of a segment, unique in a pool for ever. 0 is never used. Where devices hold whole
    /// objects, it carries the epoch of its writer.
    SegmentId
);
id!(
    /// Name of a leaf device within its pool, given in order of addition, from 1.
    DeviceId
);
id!(
    /// Number of a dataset within its pool, from 1 (the root dataset). Never used again.
    DatasetId
);
id!(
    /// Number of an inode within its dataset. 1 is the root directory. Never used again within a
    /// dataset.
    InodeId
);
id!(
    /// Random name of a pool. Never 0.
    PoolGuid
);

impl SegmentId {
    /// Numbers are below this.
    pub const END: u64 = 1 << 62;
    /// Bits of the counter; the epoch stands above them.
    pub const COUNTER_BITS: u32 = 38;
    /// Counters are below this. A pool that fills segments of 1 MiB reaches it after 128 PiB.
    pub const COUNTER_END: u64 = 1 << (Self::COUNTER_BITS - 1);
    /// Epochs are below this: so often may a pool on stores of whole objects be imported.
    pub const EPOCH_END: u64 = 1 << (62 - Self::COUNTER_BITS);

    /// The segment of this number that the writer of an epoch opens.
    #[must_use]
    pub fn new(epoch: u64, counter: u64) -> SegmentId {
        assert!(epoch < Self::EPOCH_END && counter < Self::COUNTER_END, "{epoch} and {counter} make an id");
        SegmentId(epoch << Self::COUNTER_BITS | counter)
    }

    /// Epoch of its writer; 0 where no device of the pool holds whole objects.
    #[must_use]
    pub fn epoch(self) -> u64 {
        self.0 >> Self::COUNTER_BITS
    }

    /// Its number without the epoch: it grows over all epochs of a pool.
    #[must_use]
    pub fn counter(self) -> u64 {
        self.0 & ((1 << Self::COUNTER_BITS) - 1)
    }
}

impl DatasetId {
    /// Bits of an owner of segments below those that tell which copies of content lie there.
    const COPY_SHIFT: u32 = 60;
    /// Which copy of how many: what the bits above tell, from 1.
    const COPIES: [(usize, usize); 5] = [(0, 2), (1, 2), (0, 3), (1, 3), (2, 3)];

    /// The owner of segments that hold one copy (from 0) of content stored `copies` times, for the
    /// owner `self`. Copies of one block so never lie in one segment, and the cleaner keeps them
    /// apart. `self` where content has one copy.
    #[must_use]
    pub fn of_copy(self, copy: usize, copies: usize) -> DatasetId {
        let known = Self::COPIES.iter().zip(1_u64..).find(|(known, _)| **known == (copy, copies));
        DatasetId(self.without_copy().0 | known.map_or(0, |(_, tag)| tag << Self::COPY_SHIFT))
    }

    /// Which copy of how many the segments of an owner hold; `None` of an owner of blocks that have
    /// one copy, and of metadata.
    #[must_use]
    pub fn copy(self) -> Option<(usize, usize)> {
        let tag = usize::try_from(self.0 >> Self::COPY_SHIFT).ok()?;
        Self::COPIES.get(tag.checked_sub(1)?).copied()
    }

    /// The encryption root, or 0, that an owner of segments is of.
    #[must_use]
    pub fn without_copy(self) -> DatasetId {
        DatasetId(self.0 & ((1 << Self::COPY_SHIFT) - 1))
    }

    /// The owners of the copies of content of an owner of segments.
    pub fn copies(self) -> impl Iterator<Item = DatasetId> {
        Self::COPIES.into_iter().map(move |(copy, of)| self.of_copy(copy, of))
    }
}

impl InodeId {
    /// Numbers are below this everywhere. A dataset that keeps sealed blocks needs so many.
    pub const END: u64 = 1 << 62;
    /// Numbers of a dataset with files of its own are below this: a mount shows inodes of snapshots
    /// above.
    pub const FILES_END: u64 = 1 << 48;

    /// True if an inode may have this number: 1 up to below 2^62.
    #[must_use]
    pub fn is_valid(self) -> bool {
        (1..Self::END).contains(&self.0)
    }
}

impl Txg {
    /// Txgs of all that is stored are below this: no pool lives that long, and nothing that counts
    /// on from one overflows.
    pub const END: u64 = 1 << 62;

    /// The txg after this one.
    #[must_use]
    pub fn next(self) -> Txg {
        Txg(self.0 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_of_copies_are_told_apart() {
        let owners: Vec<DatasetId> = DatasetId(7).copies().collect();
        for (at, owner) in owners.iter().enumerate() {
            assert_eq!(owner.without_copy(), DatasetId(7));
            assert_eq!(owner.copy(), Some(DatasetId::COPIES[at]));
            assert!(!owners[..at].contains(owner));
        }
        assert_eq!((DatasetId(7).of_copy(0, 1), DatasetId(7).copy()), (DatasetId(7), None));
        assert_eq!(DatasetId(u64::MAX).copy(), None);
    }
}
