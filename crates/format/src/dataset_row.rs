//! Dataset row: one dataset as of the last commit. FORMAT.md, "Dataset row".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{BlockPointer, DatasetId, DecodeError, Txg, WrappedKey};

/// Snapshots of a dataset, and the snapshot it was cloned from.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Lineage {
    /// Dataset under whose number its blocks are sealed; 0: its own.
    pub family: DatasetId,
    /// Number of the snapshot it is a clone of; 0: it is none.
    pub origin: DatasetId,
    /// Bytes it refers to that were born before its origin.
    pub shared: u64,
    /// Bytes that only its snapshots hold.
    pub kept: u64,
    /// Content in them before compression.
    pub kept_logical: u64,
    /// Content in `shared` before compression.
    pub shared_logical: u64,
}

/// How a dataset is encrypted.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DatasetEncryption {
    /// Dataset whose user key wraps the master key; may be the dataset itself.
    pub root: DatasetId,
    /// Owner of the segments its blocks lie in: its encryption root when it was made. It stays so
    /// when the dataset takes its key from elsewhere later on.
    pub owner: DatasetId,
    /// The dataset's own master key.
    pub wrapped: WrappedKey,
}

/// Value of a dataset row; its key in the meta tree is the dataset's id.
///
/// | off | len | field           | meaning                                                  |
/// |-----|-----|-----------------|----------------------------------------------------------|
/// |   0 |   8 | id              | the dataset                                              |
/// |   8 |   8 | parent          | parent dataset, 0 for the root dataset                   |
/// |  16 |   8 | created_txg     | txg of its creation                                      |
/// |  24 |   8 | created_ns      | wall time of its creation                                |
/// |  32 | 112 | names           | root of the names tree; zero if empty                    |
/// | 144 | 112 | extents         | root of the extents tree; zero if empty                  |
/// | 256 |   8 | used            | bytes it occupies on devices                             |
/// | 264 |   8 | logical         | bytes of its data before compression                     |
/// | 272 |   8 | files           | inodes                                                   |
/// | 280 |   8 | next_inode      | number of the next inode                                 |
/// | 288 |  16 | hash_seed       | key of the hash that orders directories                  |
/// | 304 |   4 | flags           | bit 0: being destroyed; bit 1: raw; bit 2: a volume      |
/// | 308 |   2 | name_len        | length of the name                                       |
/// | 310 |   2 | reserved        | zero                                                     |
/// | 312 |   8 | encryption_root | dataset whose user key wraps its key; 0: not encrypted   |
/// | 320 |   8 | data            | bytes of file content on devices                         |
/// | 328 |   8 | owner           | owner of its segments; 0: `encryption_root`              |
/// | 336 |   8 | family          | dataset under whose number its blocks are sealed; 0: its own |
/// | 344 |   8 | origin          | number of the snapshot it is a clone of, or 0            |
/// | 352 |   8 | shared          | bytes of `used` that were born before its origin         |
/// | 360 |   8 | kept            | bytes that only its snapshots hold                       |
/// | 368 |   8 | kept_logical    | content in them before compression                       |
/// | 376 |   8 | shared_logical  | content in `shared` before compression                   |
/// | 384 |     | name            | last component, UTF-8; empty for the root dataset        |
/// |     |     | wrapped         | wrapped master key (120 bytes) if encrypted              |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DatasetRow {
    /// The dataset.
    pub id: DatasetId,
    /// Its parent; 0 for the root dataset.
    pub parent: DatasetId,
    /// Last component of its name; empty for the root dataset.
    pub name: String,
    /// Txg of its creation.
    pub created_txg: Txg,
    /// Wall time of its creation.
    pub created_ns: u64,
    /// Root of the names tree.
    pub names: Option<BlockPointer>,
    /// Root of the extents tree.
    pub extents: Option<BlockPointer>,
    /// Bytes it occupies on devices, all copies.
    pub used: u64,
    /// Bytes of file content it occupies on devices.
    pub data: u64,
    /// Bytes of its data before compression.
    pub logical: u64,
    /// Inodes.
    pub files: u64,
    /// Number of the next inode.
    pub next_inode: u64,
    /// Key of the hash that orders directories.
    pub hash_seed: [u8; 16],
    /// True while its blocks are being freed.
    pub destroying: bool,
    /// Its files hold sealed blocks of another pool (docs/format/stream.md, "Raw snapshots").
    pub raw: bool,
    /// True for a volume: its root is a regular file, and nothing else is in it.
    pub volume: bool,
    /// How it is encrypted, if it is.
    pub encryption: Option<DatasetEncryption>,
    /// Its snapshots and its origin.
    pub lineage: Lineage,
}

impl DatasetRow {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "dataset_row",
        &[
            ("id", 0, 8),
            ("parent", 8, 8),
            ("created_txg", 16, 8),
            ("created_ns", 24, 8),
            ("names", 32, 112),
            ("extents", 144, 112),
            ("used", 256, 8),
            ("logical", 264, 8),
            ("files", 272, 8),
            ("next_inode", 280, 8),
            ("hash_seed", 288, 16),
            ("flags", 304, 4),
            ("name_len", 308, 2),
            ("reserved", 310, 2),
            ("encryption_root", 312, 8),
            ("data", 320, 8),
            ("owner", 328, 8),
            ("family", 336, 8),
            ("origin", 344, 8),
            ("shared", 352, 8),
            ("kept", 360, 8),
            ("kept_logical", 368, 8),
            ("shared_logical", 376, 8),
        ],
        &["name", "wrapped"],
    );
    /// Longest name component.
    pub const NAME_MAX: usize = 255;

    /// Most that a figure of a dataset or snapshot counts for, in bytes or inodes: 2^58. Sums over
    /// the datasets of a pool stay numbers.
    pub const FIGURE_MAX: u64 = 1 << 58;

    /// The row with figures that can be added up, whatever it said.
    #[must_use]
    pub fn bounded(mut self) -> DatasetRow {
        let lineage = &mut self.lineage;
        let kept =
            [&mut lineage.shared, &mut lineage.kept, &mut lineage.kept_logical, &mut lineage.shared_logical];
        let own = [&mut self.used, &mut self.data, &mut self.logical, &mut self.files];
        own.into_iter().chain(kept).for_each(|figure| *figure = (*figure).min(Self::FIGURE_MAX));
        self
    }

    /// The dataset under whose number its blocks are sealed: itself, unless it or what it comes
    /// from began as a clone.
    #[must_use]
    pub fn family(&self) -> DatasetId {
        if self.lineage.family.0 == 0 { self.id } else { self.lineage.family }
    }

    /// The row's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.id.0 != 0 && self.name.len() <= Self::NAME_MAX);
        let mut pointer = [0; BlockPointer::ENCODED_SIZE];
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("id", self.id.0).u64("parent", self.parent.0);
        out.u64("created_txg", self.created_txg.0).u64("created_ns", self.created_ns);
        BlockPointer::encode_option(self.names.as_ref(), &mut pointer);
        out.bytes("names", &pointer);
        BlockPointer::encode_option(self.extents.as_ref(), &mut pointer);
        out.bytes("extents", &pointer);
        out.u64("used", self.used).u64("logical", self.logical).u64("files", self.files);
        out.u64("next_inode", self.next_inode).bytes("hash_seed", &self.hash_seed);
        let flags = u32::from(self.raw) << 1 | u32::from(self.volume) << 2;
        out.u32("flags", u32::from(self.destroying) | flags);
        out.u16("name_len", u16::try_from(self.name.len()).expect("bounded")).reserved();
        out.u64("encryption_root", self.encryption.as_ref().map_or(0, |e| e.root.0));
        let owner = self.encryption.as_ref().filter(|e| e.owner != e.root).map_or(0, |e| e.owner.0);
        out.u64("data", self.data).u64("owner", owner);
        out.u64("family", self.lineage.family.0).u64("origin", self.lineage.origin.0);
        out.u64("shared", self.lineage.shared).u64("kept", self.lineage.kept);
        out.u64("kept_logical", self.lineage.kept_logical).u64("shared_logical", self.lineage.shared_logical);
        let wrapped = self.encryption.as_ref().map(|e| e.wrapped.encode());
        out.tail("name", self.name.as_bytes());
        out.tail("wrapped", wrapped.as_ref().map_or(&[], |w| w.as_slice())).finish()
    }

    /// Reads a row.
    pub fn decode(bytes: &[u8]) -> Result<DatasetRow, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (id, parent) = (DatasetId(from.u64("id")), DatasetId(from.u64("parent")));
        if id.0 == 0 || parent == id {
            return Err(from.refuse("parent", parent.0));
        }
        let (created_txg, created_ns) = (Txg(from.u64("created_txg")), from.u64("created_ns"));
        let names = BlockPointer::decode_option(from.bytes("names", 112))?;
        let extents = BlockPointer::decode_option(from.bytes("extents", 112))?;
        let (used, logical, files) = (from.u64("used"), from.u64("logical"), from.u64("files"));
        let (next_inode, hash_seed) = (from.u64("next_inode"), from.array("hash_seed"));
        let flags = from.u32("flags");
        if flags > 7 {
            return Err(from.refuse("flags", flags));
        }
        let name_len = usize::from(from.u16("name_len"));
        if name_len > Self::NAME_MAX || (name_len == 0) != (parent.0 == 0) {
            return Err(from.refuse("name_len", name_len as u64));
        }
        from.reserved()?;
        let root = DatasetId(from.u64("encryption_root"));
        let data = from.u64("data");
        let owner = DatasetId(from.u64("owner"));
        if owner.0 != 0 && (root.0 == 0 || owner == root) {
            return Err(from.refuse("owner", owner.0));
        }
        let lineage = Lineage {
            family: DatasetId(from.u64("family")),
            origin: DatasetId(from.u64("origin")),
            shared: from.u64("shared"),
            kept: from.u64("kept"),
            kept_logical: from.u64("kept_logical"),
            shared_logical: from.u64("shared_logical"),
        };
        if lineage.family == id {
            return Err(from.refuse("family", id.0));
        }
        if lineage.origin.0 == 0 && (lineage.shared, lineage.shared_logical) != (0, 0) {
            return Err(from.refuse("shared", lineage.shared));
        }
        let name = from.tail_text("name", name_len)?;
        let encryption = if root.0 == 0 {
            from.tail("wrapped", 0)?;
            None
        } else {
            let wrapped = WrappedKey::decode(from.tail("wrapped", WrappedKey::ENCODED_SIZE)?)?;
            let owner = if owner.0 == 0 { root } else { owner };
            Some(DatasetEncryption { root, owner, wrapped })
        };
        from.finish()?;
        Ok(DatasetRow {
            id,
            parent,
            name,
            created_txg,
            created_ns,
            names,
            extents,
            used,
            data,
            logical,
            files,
            next_inode,
            hash_seed,
            destroying: flags & 1 != 0,
            raw: flags & 2 != 0,
            volume: flags & 4 != 0,
            encryption,
            lineage,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::KeyFormat;

    #[test]
    fn rows_with_and_without_a_key_are_read_back() {
        let plain = DatasetRow {
            id: DatasetId(2),
            parent: DatasetId(1),
            name: "home".into(),
            created_txg: Txg(3),
            created_ns: 4,
            names: None,
            extents: None,
            used: 5,
            data: 4,
            logical: 6,
            files: 7,
            next_inode: 8,
            hash_seed: [9; 16],
            destroying: false,
            raw: false,
            volume: false,
            encryption: None,
            lineage: Lineage {
                family: DatasetId(4),
                origin: DatasetId(5),
                shared: 6,
                kept: 7,
                kept_logical: 8,
                shared_logical: 9,
            },
        };
        let wrapped =
            WrappedKey { key_format: KeyFormat::Raw, kdf: None, guid: 1, nonce: [2; 12], sealed: [3; 48] };
        let sealed = DatasetRow {
            encryption: Some(DatasetEncryption {
                root: DatasetId(2),
                owner: DatasetId(2),
                wrapped: wrapped.clone(),
            }),
            ..plain.clone()
        };
        let moved = DatasetRow {
            parent: DatasetId(9),
            encryption: Some(DatasetEncryption { root: DatasetId(2), owner: DatasetId(7), wrapped }),
            ..plain.clone()
        };
        let volume = DatasetRow { volume: true, ..plain.clone() };
        let doomed = DatasetRow { destroying: true, ..volume.clone() };
        for row in [plain, sealed, moved, volume, doomed] {
            let bytes = row.encode();
            assert_eq!(DatasetRow::decode(&bytes), Ok(row));
            for end in 0..bytes.len() {
                assert!(DatasetRow::decode(&bytes[..end]).is_err(), "cut at {end}");
            }
        }
    }

    #[test]
    fn a_dataset_inside_itself_an_owner_without_a_key_and_a_share_of_nothing_are_refused() {
        let row = DatasetRow {
            id: DatasetId(2),
            parent: DatasetId(1),
            name: "a".into(),
            created_txg: Txg(1),
            created_ns: 0,
            names: None,
            extents: None,
            used: 0,
            data: 0,
            logical: 0,
            files: 0,
            next_inode: 1,
            hash_seed: [0; 16],
            destroying: false,
            raw: false,
            volume: false,
            encryption: None,
            lineage: Lineage::default(),
        };
        for (at, byte) in [(8, 2), (304, 8), (328, 3), (336, 2), (352, 1), (376, 1)] {
            let mut bytes = row.encode();
            bytes[at] = byte;
            assert!(DatasetRow::decode(&bytes).is_err(), "byte {at}");
        }
    }
}
