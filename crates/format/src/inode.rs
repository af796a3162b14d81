//! Inode record: the attributes of a file. FORMAT.md, "Inode".

use crate::dirent::KINDS;
use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, InodeId};

/// A moment: seconds and nanoseconds since 1970-01-01 UTC.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Time {
    /// Seconds; negative before 1970.
    pub seconds: i64,
    /// Nanoseconds after that, below 1,000,000,000.
    pub nanos: u32,
}

impl Time {
    /// The moment of a clock that counts nanoseconds.
    #[must_use]
    pub fn from_ns(ns: i128) -> Time {
        let seconds = i64::try_from(ns.div_euclid(1_000_000_000)).unwrap_or(i64::MAX);
        let nanos = u32::try_from(ns.rem_euclid(1_000_000_000)).expect("below a second");
        Time { seconds, nanos }
    }

    /// Nanoseconds since 1970.
    #[must_use]
    pub fn as_ns(self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanos)
    }
}

/// Attributes of an inode as stored.
///
/// | off | len | field         | meaning |
/// |-----|-----|---------------|---|
/// |   0 |   8 | generation    | txg of creation; with the number it names the file for ever |
/// |   8 |   8 | parent        | a directory that had a link to it lately (a hint), or 0 |
/// |  16 |   8 | size          | bytes; of a directory: its entries |
/// |  24 |   8 | allocated     | bytes its blocks occupy; all ones: not noted, look at its extent |
/// |  32 |   4 | mode          | type and permissions, as in `stat` |
/// |  36 |   4 | nlink         | links; 0 on an orphan |
/// |  40 |   4 | uid           | owner |
/// |  44 |   4 | gid           | group |
/// |  48 |   4 | rdev          | device number of a device node |
/// |  52 |   1 | record_shift  | binary logarithm of the record size; 0 on what has no content |
/// |  53 |   1 | flags         | 1 record size is final, 2 has attributes, 4 has capabilities, 8 access ACL, 16 default ACL |
/// |  54 |   2 | reserved      | zero |
/// |  56 |   8 | atime_seconds | last read |
/// |  64 |   8 | mtime_seconds | last change of content |
/// |  72 |   8 | ctime_seconds | last change of anything |
/// |  80 |   8 | btime_seconds | birth |
/// |  88 |   4 | atime_nanos   | nanoseconds to the seconds above |
/// |  92 |   4 | mtime_nanos   | |
/// |  96 |   4 | ctime_nanos   | |
/// | 100 |   4 | btime_nanos   | |
/// | 104 |  24 | reserved      | zero |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct InodeRecord {
    /// Txg of creation.
    pub generation: u64,
    /// Hint where a link is; 0 is none.
    pub parent: InodeId,
    /// Bytes, or entries of a directory.
    pub size: u64,
    /// Bytes its blocks occupy, or [`InodeRecord::ALLOCATED_UNKNOWN`].
    pub allocated: u64,
    /// Type and permissions.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Binary logarithm of the record size, or 0.
    pub record_shift: u8,
    /// Sum of the `FLAG_` constants.
    pub flags: u8,
    /// Last read.
    pub atime: Time,
    /// Last change of content.
    pub mtime: Time,
    /// Last change of anything.
    pub ctime: Time,
    /// Birth.
    pub btime: Time,
}

/// Layout of [`InodeRecord`].
pub static LAYOUT: Layout = Layout::new(
    "inode",
    &[
        ("generation", 0, 8),
        ("parent", 8, 8),
        ("size", 16, 8),
        ("allocated", 24, 8),
        ("mode", 32, 4),
        ("nlink", 36, 4),
        ("uid", 40, 4),
        ("gid", 44, 4),
        ("rdev", 48, 4),
        ("record_shift", 52, 1),
        ("flags", 53, 1),
        ("reserved", 54, 2),
        ("atime_seconds", 56, 8),
        ("mtime_seconds", 64, 8),
        ("ctime_seconds", 72, 8),
        ("btime_seconds", 80, 8),
        ("atime_nanos", 88, 4),
        ("mtime_nanos", 92, 4),
        ("ctime_nanos", 96, 4),
        ("btime_nanos", 100, 4),
        ("reserved", 104, 24),
    ],
    &[],
);

impl InodeRecord {
    /// Bytes of a record.
    pub const ENCODED_SIZE: usize = 128;
    /// `allocated` was not known when the record was written.
    pub const ALLOCATED_UNKNOWN: u64 = u64::MAX;
    /// Most that `allocated` says: 2^62.
    pub const ALLOCATED_MAX: u64 = 1 << 62;
    /// The record size does not change any more.
    pub const FLAG_RECORD_FINAL: u8 = 1;
    /// There are extended attributes.
    pub const FLAG_XATTRS: u8 = 2;
    /// `security.capability` is among them.
    pub const FLAG_CAPABILITY: u8 = 4;
    /// `system.posix_acl_access` is among them.
    pub const FLAG_ACCESS_ACL: u8 = 8;
    /// `system.posix_acl_default` is among them.
    pub const FLAG_DEFAULT_ACL: u8 = 16;
    /// Records are 512 bytes to 16 MiB.
    pub const RECORD_SHIFTS: std::ops::RangeInclusive<u8> = 9..=24;
    const FLAGS_ALL: u8 = 31;

    /// True if a mode has one of the seven types, and nothing above its type.
    #[must_use]
    pub fn mode_is_valid(mode: u32) -> bool {
        u8::try_from(mode >> 12).is_ok_and(|kind| KINDS.contains(&kind))
    }

    /// The record's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_SIZE] {
        let times = [self.atime, self.mtime, self.ctime, self.btime];
        assert!(times.iter().all(|time| time.nanos < 1_000_000_000), "nanoseconds are below a second");
        let mut out = Encoder::new(&LAYOUT);
        out.u64("generation", self.generation).u64("parent", self.parent.0).u64("size", self.size);
        out.u64("allocated", self.allocated).u32("mode", self.mode).u32("nlink", self.nlink);
        out.u32("uid", self.uid).u32("gid", self.gid).u32("rdev", self.rdev);
        out.u8("record_shift", self.record_shift).u8("flags", self.flags).reserved();
        let names = ["atime_seconds", "mtime_seconds", "ctime_seconds", "btime_seconds"];
        for (name, time) in names.into_iter().zip(times) {
            out.bytes(name, &time.seconds.to_le_bytes());
        }
        let names = ["atime_nanos", "mtime_nanos", "ctime_nanos", "btime_nanos"];
        for (name, time) in names.into_iter().zip(times) {
            out.u32(name, time.nanos);
        }
        out.reserved().finish_array()
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<InodeRecord, DecodeError> {
        let mut from = Decoder::new(&LAYOUT, bytes)?;
        let mut record = InodeRecord {
            generation: from.u64("generation"),
            parent: InodeId(from.u64("parent")),
            size: from.u64("size"),
            allocated: from.u64("allocated"),
            mode: from.u32("mode"),
            nlink: from.u32("nlink"),
            uid: from.u32("uid"),
            gid: from.u32("gid"),
            rdev: from.u32("rdev"),
            record_shift: from.u8("record_shift"),
            flags: from.u8("flags"),
            atime: Time::default(),
            mtime: Time::default(),
            ctime: Time::default(),
            btime: Time::default(),
        };
        from.reserved()?;
        record.atime.seconds = i64::from_le_bytes(from.array("atime_seconds"));
        record.mtime.seconds = i64::from_le_bytes(from.array("mtime_seconds"));
        record.ctime.seconds = i64::from_le_bytes(from.array("ctime_seconds"));
        record.btime.seconds = i64::from_le_bytes(from.array("btime_seconds"));
        record.atime.nanos = from.u32("atime_nanos");
        record.mtime.nanos = from.u32("mtime_nanos");
        record.ctime.nanos = from.u32("ctime_nanos");
        record.btime.nanos = from.u32("btime_nanos");
        from.reserved()?;
        for (field, time) in [
            ("atime_nanos", record.atime),
            ("mtime_nanos", record.mtime),
            ("ctime_nanos", record.ctime),
            ("btime_nanos", record.btime),
        ] {
            if time.nanos >= 1_000_000_000 {
                return Err(from.refuse(field, time.nanos));
            }
        }
        // A size that is final is one: records of a byte would be as many as the file has bytes.
        let may_be_none = record.flags & Self::FLAG_RECORD_FINAL == 0;
        if !(record.record_shift == 0 && may_be_none || Self::RECORD_SHIFTS.contains(&record.record_shift)) {
            return Err(from.refuse("record_shift", record.record_shift));
        }
        if record.flags & !Self::FLAGS_ALL != 0 {
            return Err(from.refuse("flags", record.flags));
        }
        if !Self::mode_is_valid(record.mode) {
            return Err(from.refuse("mode", record.mode));
        }
        if record.parent.0 >= InodeId::END {
            return Err(from.refuse("parent", record.parent.0));
        }
        if record.allocated != Self::ALLOCATED_UNKNOWN && record.allocated > Self::ALLOCATED_MAX {
            return Err(from.refuse("allocated", record.allocated));
        }
        // Sizes above what an offset can say would overflow the arithmetic of every reader.
        if i64::try_from(record.size).is_err() {
            return Err(from.refuse("size", record.size));
        }
        from.finish()?;
        Ok(record)
    }
}

/// Any bytes: what is accepted encodes to what it came from.
pub fn fuzz(bytes: &[u8]) {
    if let Ok(record) = InodeRecord::decode(bytes) {
        assert_eq!(record.encode().as_slice(), bytes);
    }
}

const _: () = assert!(LAYOUT.size() == InodeRecord::ENCODED_SIZE);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file_keys::tests::from_hex;

    fn sample() -> InodeRecord {
        let time = |seconds, nanos| Time { seconds, nanos };
        InodeRecord {
            generation: 5,
            parent: InodeId(1),
            size: 300_000,
            allocated: 307_200,
            mode: 0o100_644,
            nlink: 2,
            uid: 1000,
            gid: 100,
            rdev: 0,
            record_shift: 17,
            flags: 3,
            atime: time(1, 2),
            mtime: time(3, 4),
            ctime: time(5, 999_999_999),
            btime: time(-7, 8),
        }
    }

    #[test]
    fn golden_inode_decodes_and_encodes_to_the_same_bytes() {
        let golden = from_hex(include_str!("../golden/inode.v1.hex"));
        assert_eq!(InodeRecord::decode(&golden), Ok(sample()));
        assert_eq!(sample().encode().as_slice(), golden);
    }

    #[test]
    fn what_is_not_allowed_is_refused() {
        let bytes = sample().encode();
        for (at, value) in
            [(52, 25), (52, 3), (52, 0), (53, 32), (54, 1), (91, 0xff), (104, 1), (127, 1), (23, 0x80)]
        {
            let mut bad = bytes;
            bad[at] = value;
            assert!(InodeRecord::decode(&bad).is_err(), "byte {at}");
        }
        let mut without_content = bytes;
        (without_content[52], without_content[53]) = (0, 2);
        assert!(InodeRecord::decode(&without_content).is_ok());
        for (at, value, why) in [
            (15, 0x40, "a parent of 2^62"),
            (31, 0x41, "more bytes than there are"),
            (33, 0x01, "no type"),
            (34, 0x01, "bits above the type"),
        ] {
            let mut bad = bytes;
            bad[at] = value;
            assert!(InodeRecord::decode(&bad).is_err(), "{why}");
        }
        assert!(InodeRecord::decode(&bytes[..127]).is_err());
    }

    #[test]
    fn a_moment_before_1970_has_positive_nanoseconds() {
        let time = Time::from_ns(-1);
        assert_eq!(time, Time { seconds: -1, nanos: 999_999_999 });
        assert_eq!(time.as_ns(), -1);
    }
}
