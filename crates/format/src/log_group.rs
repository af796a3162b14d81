//! Groups of the intent log (ZFS: log blocks `zil_chain` and records `lr_t`). FORMAT.md, "Log
//! group" and "Log record".
//!
//! One flush of the log makes one group durable: a header, then records, sealed if their dataset
//! is. This module lays the bytes out; the intent log hashes, seals and opens them.

use crate::inode::InodeRecord;
use crate::layout::{Decoder, Encoder, Layout};
use crate::{DatasetId, DecodeError, InodeId, PoolGuid, Stamp, Txg};

const MAGIC: &[u8; 8] = b"SFilog\0\0";

/// Header of a group. Its records begin at byte 160.
///
/// | off | len | field    | meaning                                                               |
/// |-----|-----|----------|-----------------------------------------------------------------------|
/// |   0 |   8 | magic    | "SFilog" and two zero bytes                                           |
/// |   8 |   4 | version  | 1                                                                     |
/// |  12 |   2 | flags    | bit 0: the records are sealed                                         |
/// |  14 |   2 | behind   | how many groups before this one were not known to be durable          |
/// |  16 |   8 | pool     | pool's guid                                                           |
/// |  24 |  16 | epoch    | random number of the import that wrote it, not 0                      |
/// |  40 |   8 | sequence | number of the group in its epoch, from 1                              |
/// |  48 |   8 | txg      | txg that was open; the group is of no use once that is committed      |
/// |  56 |   8 | dataset  | whose changes these are                                               |
/// |  64 |   4 | length   | bytes of the records as stored, with the tag of their seal            |
/// |  68 |   4 | records  | how many there are, at least 1                                        |
/// |  72 |  16 | salt     | epoch salt of the sealing key; zero if not sealed                     |
/// |  88 |   8 | counter  | nonce counter from 1; 0 if not sealed                                 |
/// |  96 |  32 | parent   | hash of the group before; zero in the first of an epoch               |
/// | 128 |  32 | hash     | BLAKE3 of bytes 0 to 127 and the records as stored                    |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogHeader {
    /// Pool.
    pub pool: PoolGuid,
    /// Import that wrote it.
    pub epoch: [u8; 16],
    /// How many groups before it were not known to be durable when it was written.
    pub behind: u16,
    /// Number in the epoch.
    pub sequence: u64,
    /// Txg that was open.
    pub txg: Txg,
    /// Whose changes.
    pub dataset: DatasetId,
    /// Bytes of the body.
    pub length: u32,
    /// Records in it.
    pub records: u32,
    /// Seal; zero if there is none.
    pub stamp: Stamp,
    /// Hash of the group before.
    pub parent: [u8; 32],
}

impl LogHeader {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "log_group",
        &[
            ("magic", 0, 8),
            ("version", 8, 4),
            ("flags", 12, 2),
            ("behind", 14, 2),
            ("pool", 16, 8),
            ("epoch", 24, 16),
            ("sequence", 40, 8),
            ("txg", 48, 8),
            ("dataset", 56, 8),
            ("length", 64, 4),
            ("records", 68, 4),
            ("salt", 72, 16),
            ("counter", 88, 8),
            ("parent", 96, 32),
            ("hash", 128, 32),
        ],
        &[],
    );
    /// Bytes before the body.
    pub const SIZE: usize = 160;
    /// Bytes that the seal of the body binds in: all that is known before it is sealed.
    pub const BOUND_SIZE: usize = 72;
    /// Groups begin at multiples of this in their segment, and never cross its end.
    pub const ALIGNMENT: usize = 4096;
    /// Version written here.
    pub const VERSION: u32 = 1;

    /// The header's bytes; `hash` makes the hash of those before it and of the body.
    #[must_use]
    pub fn encode(&self, hash: impl FnOnce(&[u8]) -> [u8; 32]) -> [u8; Self::SIZE] {
        let sealed = self.stamp.counter != 0;
        assert!(
            self.pool.0 != 0
                && self.epoch != [0; 16]
                && self.sequence > u64::from(self.behind)
                && self.txg.0 != 0
        );
        assert!(self.dataset.0 != 0 && self.records != 0 && sealed == (self.stamp.salt != [0; 16]));
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", MAGIC).u32("version", Self::VERSION).u16("flags", u16::from(sealed));
        out.u16("behind", self.behind);
        out.u64("pool", self.pool.0).bytes("epoch", &self.epoch).u64("sequence", self.sequence);
        out.u64("txg", self.txg.0).u64("dataset", self.dataset.0);
        out.u32("length", self.length).u32("records", self.records);
        out.bytes("salt", &self.stamp.salt).u64("counter", self.stamp.counter);
        out.bytes("parent", &self.parent);
        let bytes = out.bytes("hash", &[0; 32]).finish_fixed();
        let mut bytes: [u8; Self::SIZE] = bytes.try_into().expect("as long as its table");
        let hash = hash(&bytes[..128]);
        bytes[128..].copy_from_slice(&hash);
        bytes
    }

    /// Reads a header off the front of `bytes`, with the hash it carries. The hash is not checked
    /// here.
    pub fn decode(bytes: &[u8]) -> Result<(LogHeader, [u8; 32]), DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        if from.bytes("magic", 8) != MAGIC {
            return Err(DecodeError::Magic { structure: "log_group" });
        }
        let found = from.u32("version");
        if found == 0 || found > Self::VERSION {
            return Err(DecodeError::Version { structure: "log_group", found, known: Self::VERSION });
        }
        let flags = from.u16("flags");
        if flags > 1 {
            return Err(from.refuse("flags", flags));
        }
        let behind = from.u16("behind");
        let pool = PoolGuid(from.u64("pool"));
        if pool.0 == 0 {
            return Err(from.refuse("pool", 0u64));
        }
        let epoch: [u8; 16] = from.array("epoch");
        if epoch == [0; 16] {
            return Err(from.refuse("epoch", 0u64));
        }
        let sequence = from.u64("sequence");
        if sequence == 0 {
            return Err(from.refuse("sequence", 0u64));
        }
        if u64::from(behind) >= sequence {
            return Err(from.refuse("behind", behind));
        }
        let txg = Txg(from.u64("txg"));
        if txg.0 == 0 {
            return Err(from.refuse("txg", 0u64));
        }
        let dataset = DatasetId(from.u64("dataset"));
        if dataset.0 == 0 {
            return Err(from.refuse("dataset", 0u64));
        }
        let length = from.u32("length");
        let records = from.u32("records");
        if records == 0 {
            return Err(from.refuse("records", 0u64));
        }
        let salt: [u8; 16] = from.array("salt");
        let counter = from.u64("counter");
        if (counter != 0) != (flags == 1) {
            return Err(from.refuse("counter", counter));
        }
        if (salt != [0; 16]) != (flags == 1) {
            return Err(from.refuse("salt", u64::from(salt[0])));
        }
        let parent = from.array("parent");
        let hash = from.array("hash");
        let stamp = Stamp { salt, counter };
        let header =
            LogHeader { pool, epoch, behind, sequence, txg, dataset, length, records, stamp, parent };
        Ok((header, hash))
    }

    /// Bytes of the whole group on its segment, with what fills it up to the next one.
    #[must_use]
    pub fn stored_bytes(body: usize) -> usize {
        (Self::SIZE + body).next_multiple_of(Self::ALIGNMENT)
    }
}

/// One change that a group makes when it is replayed.
///
/// | off | len | field     | meaning                                                              |
/// |-----|-----|-----------|----------------------------------------------------------------------|
/// |   0 |   1 | kind      | 1 set, 2 removed, 3 inode, 4 gone, 5 data, 6 cut, 7 counters         |
/// |   1 |   1 | reserved  | zero                                                                 |
/// |   2 |   2 | key_len   | length of the key                                                    |
/// |   4 |   4 | value_len | length of the value                                                  |
/// |   8 |   8 | inode     | inode; counters: number of inodes                                    |
/// |  16 |   8 | start     | first byte; counters: next inode                                     |
/// |  24 |   8 | end       | cut: the byte after the last                                         |
/// |  32 |   8 | until     | cut: applies only to a root of a txg below this; 0: always           |
/// |  40 |     | key       | of the names tree                                                    |
/// |     |     | value     | of the names tree, an inode, or content                              |
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LogRecord<'b> {
    /// An item of the names tree has this value now.
    Set {
        /// Its key.
        key: &'b [u8],
        /// Its value.
        value: &'b [u8],
    },
    /// There is no item of this key in the names tree now.
    Removed {
        /// The key.
        key: &'b [u8],
    },
    /// An inode has these attributes now, but for the bytes it occupies.
    Inode {
        /// Number.
        inode: InodeId,
        /// Attributes.
        record: InodeRecord,
    },
    /// An inode without links was given up, and all its content.
    Gone {
        /// Number.
        inode: InodeId,
    },
    /// A file has these bytes now.
    Data {
        /// File.
        inode: InodeId,
        /// Where they begin.
        offset: u64,
        /// They themselves.
        bytes: &'b [u8],
    },
    /// A range of a file reads as zeros now.
    Cut {
        /// File.
        inode: InodeId,
        /// First byte.
        start: u64,
        /// The byte after the last.
        end: u64,
        /// Applies only below this txg; 0: always.
        until: Txg,
    },
    /// Sums of the dataset.
    Counters {
        /// Inodes.
        files: u64,
        /// Number of the next inode.
        next_inode: u64,
    },
}

const SET: u8 = 1;
const REMOVED: u8 = 2;
const INODE: u8 = 3;
const GONE: u8 = 4;
const DATA: u8 = 5;
const CUT: u8 = 6;
const COUNTERS: u8 = 7;

/// Layout of [`LogRecord`].
pub static RECORD_LAYOUT: Layout = Layout::new(
    "log_record",
    &[
        ("kind", 0, 1),
        ("reserved", 1, 1),
        ("key_len", 2, 2),
        ("value_len", 4, 4),
        ("inode", 8, 8),
        ("start", 16, 8),
        ("end", 24, 8),
        ("until", 32, 8),
    ],
    &["key", "value"],
);

/// The parts of a record of any kind.
#[derive(Clone, Copy, Default)]
struct Parts<'b> {
    kind: u8,
    inode: u64,
    start: u64,
    end: u64,
    until: u64,
    key: &'b [u8],
    value: &'b [u8],
}

impl<'b> LogRecord<'b> {
    /// Bytes before key and value.
    pub const HEADER_SIZE: usize = 40;

    /// Appends the record's bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let attributes;
        let parts = match self {
            LogRecord::Set { key, value } => Parts { kind: SET, key, value, ..Parts::default() },
            LogRecord::Removed { key } => Parts { kind: REMOVED, key, ..Parts::default() },
            LogRecord::Inode { inode, record } => {
                attributes = record.encode();
                Parts { kind: INODE, inode: inode.0, value: &attributes, ..Parts::default() }
            }
            LogRecord::Gone { inode } => Parts { kind: GONE, inode: inode.0, ..Parts::default() },
            LogRecord::Data { inode, offset, bytes } => {
                Parts { kind: DATA, inode: inode.0, start: *offset, value: bytes, ..Parts::default() }
            }
            LogRecord::Cut { inode, start, end, until } => Parts {
                kind: CUT,
                inode: inode.0,
                start: *start,
                end: *end,
                until: until.0,
                ..Parts::default()
            },
            LogRecord::Counters { files, next_inode } => {
                Parts { kind: COUNTERS, inode: *files, start: *next_inode, ..Parts::default() }
            }
        };
        let mut fixed = Encoder::new(&RECORD_LAYOUT);
        fixed.u8("kind", parts.kind).reserved();
        fixed.u16("key_len", u16::try_from(parts.key.len()).expect("keys are short"));
        fixed.u32("value_len", u32::try_from(parts.value.len()).expect("values are short"));
        fixed.u64("inode", parts.inode).u64("start", parts.start);
        fixed.u64("end", parts.end).u64("until", parts.until);
        out.extend_from_slice(&fixed.finish_fixed());
        out.extend_from_slice(parts.key);
        out.extend_from_slice(parts.value);
    }

    /// Reads one record off the front, and how many bytes it took.
    pub fn decode(bytes: &'b [u8]) -> Result<(LogRecord<'b>, usize), DecodeError> {
        let mut from = Decoder::new(&RECORD_LAYOUT, bytes)?;
        let kind = from.u8("kind");
        if !(SET..=COUNTERS).contains(&kind) {
            return Err(from.refuse("kind", kind));
        }
        from.reserved()?;
        let key_len = from.u16("key_len");
        let value_len = from.u32("value_len");
        let (inode, start, end, until) =
            (from.u64("inode"), from.u64("start"), from.u64("end"), from.u64("until"));
        let has_key = matches!(kind, SET | REMOVED);
        if has_key != (key_len > 0) {
            return Err(from.refuse("key_len", key_len));
        }
        let good_value = match kind {
            SET => true,
            INODE => value_len as usize == InodeRecord::ENCODED_SIZE,
            DATA => value_len > 0,
            _ => value_len == 0,
        };
        if !good_value {
            return Err(from.refuse("value_len", value_len));
        }
        if has_key == (inode > 0) && kind != COUNTERS {
            return Err(from.refuse("inode", inode));
        }
        if kind != COUNTERS && inode >= InodeId::END {
            return Err(from.refuse("inode", inode));
        }
        let good_start = match kind {
            DATA => start.checked_add(value_len.into()).is_some_and(|end| end <= i64::MAX as u64),
            CUT => start < end && start <= i64::MAX as u64,
            COUNTERS => (2..=InodeId::END).contains(&start),
            _ => start == 0,
        };
        if !good_start {
            return Err(from.refuse("start", start));
        }
        if kind != CUT && end != 0 {
            return Err(from.refuse("end", end));
        }
        if kind != CUT && until != 0 {
            return Err(from.refuse("until", until));
        }
        let key = from.tail("key", key_len.into())?;
        let value = from.tail("value", value_len as usize)?;
        let (id, until) = (InodeId(inode), Txg(until));
        let record = match kind {
            SET => LogRecord::Set { key, value },
            REMOVED => LogRecord::Removed { key },
            INODE => LogRecord::Inode { inode: id, record: InodeRecord::decode(value)? },
            GONE => LogRecord::Gone { inode: id },
            DATA => LogRecord::Data { inode: id, offset: start, bytes: value },
            CUT => LogRecord::Cut { inode: id, start, end, until },
            COUNTERS => LogRecord::Counters { files: inode, next_inode: start },
            _ => unreachable!("checked above"),
        };
        Ok((record, from.taken()))
    }

    /// Reads all records of a group: as many as its header says, and nothing after them.
    pub fn decode_all(body: &'b [u8], records: u32) -> Result<Vec<LogRecord<'b>>, DecodeError> {
        let mut found = Vec::new();
        let mut at = 0;
        for _ in 0..records {
            let (record, taken) = LogRecord::decode(&body[at..])?;
            found.push(record);
            at += taken;
        }
        match body.len() - at {
            0 => Ok(found),
            extra => Err(DecodeError::Trailing { structure: "log_group", extra }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_with_its_hash_and_no_byte_of_it_is_free() {
        let header = LogHeader {
            pool: PoolGuid(1),
            epoch: [2; 16],
            behind: 2,
            sequence: 3,
            txg: Txg(4),
            dataset: DatasetId(5),
            length: 100,
            records: 2,
            stamp: Stamp { salt: [6; 16], counter: 7 },
            parent: [8; 32],
        };
        let bytes = header.encode(|bound| {
            assert_eq!(bound.len(), 128);
            [9; 32]
        });
        assert_eq!(LogHeader::decode(&bytes), Ok((header.clone(), [9; 32])));
        for at in [0, 8, 12, 13, 15] {
            let mut bad = bytes;
            bad[at] ^= 0x80;
            assert!(LogHeader::decode(&bad).is_err(), "byte {at}");
        }
        let open = LogHeader { stamp: Stamp::default(), ..header };
        assert_eq!(LogHeader::decode(&open.encode(|_| [0; 32])).unwrap().0, open);
        assert_eq!(LogHeader::stored_bytes(4096 - 160), 4096);
        assert_eq!(LogHeader::stored_bytes(4096 - 159), 8192);
    }

    #[test]
    fn records_follow_each_other_and_unknown_kinds_are_named() {
        let records = [
            LogRecord::Set { key: b"key", value: b"" },
            LogRecord::Removed { key: b"key" },
            LogRecord::Gone { inode: InodeId(3) },
            LogRecord::Data { inode: InodeId(4), offset: 5, bytes: b"content" },
            LogRecord::Cut { inode: InodeId(4), start: 5, end: u64::MAX, until: Txg(9) },
            LogRecord::Counters { files: 0, next_inode: 2 },
        ];
        let mut body = Vec::new();
        records.iter().for_each(|record| record.encode(&mut body));
        assert_eq!(LogRecord::decode_all(&body, 6).unwrap(), records);
        assert!(LogRecord::decode_all(&body, 5).is_err(), "something follows");
        assert!(LogRecord::decode_all(&body, 7).is_err(), "something is missing");
        body[0] = 99;
        let error = LogRecord::decode_all(&body, 6).unwrap_err();
        assert_eq!(error, DecodeError::Field { structure: "log_record", field: "kind", value: 99 });
        assert!(LogRecord::decode(&[0; 39]).is_err());
        for record in [
            LogRecord::Gone { inode: InodeId(InodeId::END) },
            LogRecord::Data { inode: InodeId(u64::MAX), offset: 5, bytes: b"content" },
            LogRecord::Data { inode: InodeId(4), offset: i64::MAX as u64 - 6, bytes: b"content" },
            LogRecord::Cut { inode: InodeId(4), start: u64::MAX - 1, end: u64::MAX, until: Txg(0) },
            LogRecord::Counters { files: 0, next_inode: InodeId::END + 1 },
            LogRecord::Counters { files: 0, next_inode: 1 },
        ] {
            let mut body = Vec::new();
            record.encode(&mut body);
            assert!(LogRecord::decode_all(&body, 1).is_err(), "{record:?}");
        }
    }
}
