//! Anchor record: what a register holds, and how a register file keeps it. FORMAT.md, "Anchor
//! record", "Register file".

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, PoolGuid, Txg, Uberblock};

/// How far the intent log is promised: its replay ends exactly here, and a log that is shorter is
/// an attack.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LogHead {
    /// Number of the last batch of the log that an `fsync` was answered for; 0 if the log is empty
    /// or not anchored.
    pub seq: u64,
    /// Chained hash of the log up to it; zero if `seq` is 0.
    pub head: [u8; 32],
}

/// The content of a register: the only acceptable root of a pool. This room parses; the holder of
/// the pool's keys makes and checks the mac.
///
/// | off | len | field    | meaning |
/// |-----|-----|----------|---|
/// |   0 |   8 | magic    | "SFanchor" |
/// |   8 |   4 | version  | 1 |
/// |  12 |   4 | flags    | bit 0: the mac is keyed; bit 1: retired, the pool lives without |
/// |  16 |   8 | pool     | pool's guid |
/// |  24 |   8 | seq      | from 1; one more than in the record it replaces |
/// |  32 |   8 | epoch    | from 1; one more with each takeover |
/// |  40 |   8 | writer   | random number of the import that wrote it, not 0 |
/// |  48 |   8 | txg      | of the root |
/// |  56 |   8 | time_ns  | wall time |
/// |  64 |   8 | zil_seq  | last batch of the intent log that was promised; 0 if none |
/// |  72 |  32 | zil_head | chained hash of the intent log up to it; zero if none |
/// | 104 |   8 | por_gen  | generation of the parity; 0 if none |
/// | 112 |  32 | por_root | root of the parity; zero if none |
/// | 144 |  32 | prev     | BLAKE3 of the record it replaces, all its bytes; zero in the first |
/// | 176 |  32 | root_tag | tag of the root's uberblock |
/// | 208 | 752 | root     | the first 752 bytes of the root's uberblock; what follows there is zero|
/// | 960 |  32 | reserved | zero |
/// | 992 |  32 | mac      | BLAKE3 of bytes 0 to 991, keyed if flag 0 is set |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AnchorRecord {
    /// True if the mac is keyed.
    pub keyed: bool,
    /// True if the pool lives without this register from here on.
    pub retired: bool,
    /// Pool.
    pub pool: PoolGuid,
    /// Order of records.
    pub seq: u64,
    /// Order of takeovers: the holder of an older one is fenced.
    pub epoch: u64,
    /// The import that wrote it.
    pub writer: u64,
    /// Wall time, nanoseconds since 1970.
    pub time_ns: u64,
    /// How far the intent log is promised.
    pub log: LogHead,
    /// Generation of the parity; 0 if there is none.
    pub por_gen: u64,
    /// Root of the parity.
    pub por_root: [u8; 32],
    /// BLAKE3 of the record it replaces.
    pub prev: [u8; 32],
    /// Tag of the root's uberblock.
    pub root_tag: [u8; 32],
    /// The root itself.
    pub root: Uberblock,
}

const MAGIC: &[u8; 8] = b"SFanchor";
const KEYED: u32 = 1;
const RETIRED: u32 = 2;

impl AnchorRecord {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "anchor_record",
        &[
            ("magic", 0, 8),
            ("version", 8, 4),
            ("flags", 12, 4),
            ("pool", 16, 8),
            ("seq", 24, 8),
            ("epoch", 32, 8),
            ("writer", 40, 8),
            ("txg", 48, 8),
            ("time_ns", 56, 8),
            ("zil_seq", 64, 8),
            ("zil_head", 72, 32),
            ("por_gen", 104, 8),
            ("por_root", 112, 32),
            ("prev", 144, 32),
            ("root_tag", 176, 32),
            ("root", 208, Self::ROOT_SIZE),
            ("reserved", 960, 32),
            ("mac", 992, 32),
        ],
        &[],
    );
    /// Bytes of an encoded record.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();
    /// Bytes that the mac authenticates: everything before it.
    pub const BOUND_SIZE: usize = Self::ENCODED_SIZE - 32;
    /// Bytes of the uberblock that a record carries; the rest of its reserved room is zero.
    pub const ROOT_SIZE: usize = 752;
    /// Greatest version known here.
    pub const VERSION: u32 = 1;

    /// The root's txg.
    #[must_use]
    pub fn txg(&self) -> Txg {
        self.root.txg
    }

    /// The record's bytes; `mac` makes the mac of the bytes before it.
    #[must_use]
    pub fn encode(&self, mac: impl FnOnce(&[u8]) -> [u8; 32]) -> [u8; Self::ENCODED_SIZE] {
        assert!(self.pool.0 != 0 && self.seq != 0 && self.epoch != 0 && self.writer != 0);
        assert!(
            self.root.pool == self.pool && self.root.anchor <= self.seq,
            "a root of this pool and register"
        );
        assert!(self.log.seq != 0 || self.log.head == [0; 32]);
        assert!(self.por_gen != 0 || self.por_root == [0; 32]);
        let root = self.root_bytes();
        let after = &root[Self::ROOT_SIZE..Uberblock::BOUND_SIZE];
        assert!(crate::is_zero(after), "a record carries all of the uberblock that means something");
        let flags = if self.keyed { KEYED } else { 0 } | if self.retired { RETIRED } else { 0 };
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", MAGIC).u32("version", Self::VERSION).u32("flags", flags);
        out.u64("pool", self.pool.0).u64("seq", self.seq).u64("epoch", self.epoch).u64("writer", self.writer);
        out.u64("txg", self.root.txg.0).u64("time_ns", self.time_ns);
        out.u64("zil_seq", self.log.seq).bytes("zil_head", &self.log.head);
        out.u64("por_gen", self.por_gen).bytes("por_root", &self.por_root);
        out.bytes("prev", &self.prev).bytes("root_tag", &self.root_tag);
        out.bytes("root", &root[..Self::ROOT_SIZE]).reserved();
        let mut bytes: [u8; Self::ENCODED_SIZE] = out.bytes("mac", &[0; 32]).finish_array();
        let mac = mac(&bytes[..Self::BOUND_SIZE]);
        bytes[Self::BOUND_SIZE..].copy_from_slice(&mac);
        bytes
    }

    /// The root's uberblock, whole.
    #[must_use]
    pub fn root_bytes(&self) -> [u8; Uberblock::ENCODED_SIZE] {
        self.root.encode(|_| self.root_tag)
    }

    /// Splits a record's bytes into what the mac authenticates and the mac.
    pub fn bound_and_mac(bytes: &[u8]) -> Result<(&[u8], [u8; 32]), DecodeError> {
        let have = bytes.len();
        if have < Self::ENCODED_SIZE {
            return Err(DecodeError::Short { structure: "anchor_record", need: Self::ENCODED_SIZE, have });
        }
        let mac = bytes[Self::BOUND_SIZE..Self::ENCODED_SIZE].try_into().expect("32 bytes");
        Ok((&bytes[..Self::BOUND_SIZE], mac))
    }

    /// Reads a record. The mac is not checked here: see [`AnchorRecord::bound_and_mac`].
    pub fn decode(bytes: &[u8]) -> Result<AnchorRecord, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        if from.bytes("magic", 8) != MAGIC {
            return Err(DecodeError::Magic { structure: "anchor_record" });
        }
        let found = from.u32("version");
        if found == 0 || found > Self::VERSION {
            return Err(DecodeError::Version { structure: "anchor_record", found, known: Self::VERSION });
        }
        let flags = from.u32("flags");
        if flags & !(KEYED | RETIRED) != 0 {
            return Err(from.refuse("flags", flags));
        }
        let pool = PoolGuid(from.u64("pool"));
        let (seq, epoch, writer) = (from.u64("seq"), from.u64("epoch"), from.u64("writer"));
        let (txg, time_ns) = (Txg(from.u64("txg")), from.u64("time_ns"));
        for (field, value) in [("pool", pool.0), ("seq", seq), ("epoch", epoch), ("writer", writer)] {
            if value == 0 {
                return Err(from.refuse(field, 0u64));
            }
        }
        let log = LogHead { seq: from.u64("zil_seq"), head: from.array("zil_head") };
        if log.seq == 0 && log.head != [0; 32] {
            return Err(from.refuse("zil_seq", 0u64));
        }
        let (por_gen, por_root) = (from.u64("por_gen"), from.array("por_root"));
        if por_gen == 0 && por_root != [0; 32] {
            return Err(from.refuse("por_gen", 0u64));
        }
        let (prev, root_tag): ([u8; 32], [u8; 32]) = (from.array("prev"), from.array("root_tag"));
        let mut root = [0; Uberblock::ENCODED_SIZE];
        root[..Self::ROOT_SIZE].copy_from_slice(from.bytes("root", Self::ROOT_SIZE));
        root[Uberblock::BOUND_SIZE..].copy_from_slice(&root_tag);
        let root = Uberblock::decode(&root)?;
        if root.pool != pool {
            return Err(from.refuse("pool", pool.0));
        }
        if root.txg != txg {
            return Err(from.refuse("txg", txg.0));
        }
        if root.anchor > seq {
            return Err(from.refuse("seq", seq));
        }
        from.reserved()?;
        from.bytes("mac", 32);
        from.finish()?;
        let (keyed, retired) = (flags & KEYED != 0, flags & RETIRED != 0);
        Ok(AnchorRecord {
            keyed,
            retired,
            pool,
            seq,
            epoch,
            writer,
            time_ns,
            log,
            por_gen,
            por_root,
            prev,
            root_tag,
            root,
        })
    }
}

/// Bytes of one of the two slots of a register file: one write, one block.
pub const SLOT_SIZE: usize = SLOT_LAYOUT.size();
/// Slots of a register file. The record of `seq` lies in slot `seq` modulo 2.
pub const SLOTS: usize = 2;
/// Bytes of a register file.
pub const FILE_SIZE: usize = SLOTS * SLOT_SIZE;

/// A slot of a register file. All zero if it was never written.
///
/// | off  | len | field    | meaning                                                       |
/// |------|-----|----------|---------------------------------------------------------------|
/// |    0 |1024 | record   | anchor record                                                 |
/// | 1024 |  32 | checksum | BLAKE3 of the record: a slot that was torn does not count     |
/// | 1056 |3040 | reserved | zero                                                          |
pub const SLOT_LAYOUT: Layout = Layout::new(
    "register_slot",
    &[("record", 0, AnchorRecord::ENCODED_SIZE), ("checksum", 1024, 32), ("reserved", 1056, 3040)],
    &[],
);

/// A record's bytes.
pub type RecordBytes = [u8; AnchorRecord::ENCODED_SIZE];

/// The bytes of a slot that holds a record; `hash` is BLAKE3.
#[must_use]
pub fn encode_slot(record: &RecordBytes, hash: impl FnOnce(&[u8]) -> [u8; 32]) -> [u8; SLOT_SIZE] {
    let mut out = Encoder::new(&SLOT_LAYOUT);
    out.bytes("record", record).bytes("checksum", &hash(record)).reserved().finish_array()
}

/// The record in a slot, `None` if it was never written; `hash` is BLAKE3. The record itself is not
/// looked at.
pub fn decode_slot(
    bytes: &[u8],
    hash: impl FnOnce(&[u8]) -> [u8; 32],
) -> Result<Option<&RecordBytes>, DecodeError> {
    let mut from = Decoder::new(&SLOT_LAYOUT, bytes)?;
    let record = from.bytes("record", AnchorRecord::ENCODED_SIZE);
    let checksum: [u8; 32] = from.array("checksum");
    from.reserved()?;
    from.finish()?;
    if checksum == [0; 32] && crate::is_zero(record) {
        return Ok(None);
    }
    if hash(record) != checksum {
        return Err(DecodeError::Checksum { structure: "register_slot" });
    }
    Ok(Some(record.try_into().expect("as long as a record")))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{Address, BlockKind, BlockPointer, Compression, DeviceId, SegmentId, Stamp};

    fn sample() -> AnchorRecord {
        let pointer = |kind| BlockPointer {
            hash: [1; 32],
            copies: [Address { segment: SegmentId(2), offset: 0 }, Address::NONE, Address::NONE],
            psize: 100,
            lsize: 200,
            birth: Txg(7),
            written: Txg(0),
            stamp: Stamp::default(),
            compression: Compression::Lz4,
            kind,
            level: 0,
        };
        let root = Uberblock {
            keyed: true,
            pool: PoolGuid(3),
            txg: Txg(7),
            time_ns: 9,
            devices: 1,
            meta: pointer(BlockKind::Meta),
            tail: pointer(BlockKind::Tail),
            tail_places: [
                Some(crate::Placement::Plain(crate::Column { device: DeviceId(1), slot: 4 })),
                None,
            ],
            parent: [5; 32],
            anchor: 11,
            log: None,
        };
        AnchorRecord {
            keyed: true,
            retired: false,
            pool: PoolGuid(3),
            seq: 12,
            epoch: 2,
            writer: 99,
            time_ns: 10,
            log: LogHead { seq: 4, head: [6; 32] },
            por_gen: 0,
            por_root: [0; 32],
            prev: [7; 32],
            root_tag: [8; 32],
            root,
        }
    }

    #[test]
    fn a_record_is_read_back_with_its_root() {
        let bytes = sample().encode(|bound| {
            assert_eq!(bound.len(), 992);
            [9; 32]
        });
        assert_eq!(AnchorRecord::decode(&bytes), Ok(sample()));
        assert_eq!(AnchorRecord::bound_and_mac(&bytes).unwrap().1, [9; 32]);
        assert_eq!(Uberblock::decode(&sample().root_bytes()), Ok(sample().root));
        for at in [0, 8, 12, 48, 220, 960] {
            let mut bad = bytes;
            bad[at] ^= 0x80;
            assert!(AnchorRecord::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_record_of_a_root_of_another_pool_or_txg_is_refused() {
        let bytes = sample().encode(|_| [9; 32]);
        for (at, field) in [(16, "pool"), (48, "txg")] {
            let mut bad = bytes;
            bad[at] ^= 1;
            assert!(
                matches!(AnchorRecord::decode(&bad), Err(DecodeError::Field { field: found, .. }) if found == field)
            );
        }
        let mut older = bytes;
        older[24] = 10;
        assert!(matches!(AnchorRecord::decode(&older), Err(DecodeError::Field { field: "seq", .. })));
    }

    #[test]
    fn a_slot_is_empty_or_whole() {
        let sum = |bytes: &[u8]| [bytes.iter().fold(1, |sum: u8, byte| sum.wrapping_add(*byte)); 32];
        let record = sample().encode(|_| [9; 32]);
        let slot = encode_slot(&record, sum);
        assert_eq!(decode_slot(&slot, sum), Ok(Some(&record)));
        assert_eq!(decode_slot(&[0; SLOT_SIZE], sum), Ok(None));
        for at in [0, 1023, 1024, 1055, 1056, 4095] {
            let mut torn = slot;
            torn[at] ^= 1;
            assert!(decode_slot(&torn, sum).is_err(), "byte {at}");
        }
        assert!(decode_slot(&slot[..4095], sum).is_err());
    }
}
