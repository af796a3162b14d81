//! Uberblock: root of a pool as of one transaction group. FORMAT.md, "Uberblock". Like ZFS's, in a
//! ring of each label; it also names the places of the commit tail, and the head of the intent log.

use crate::layout::{Decoder, Encoder, Layout};
use crate::segment_row::{Column, Placement, Shape};
use crate::{BlockPointer, DecodeError, DeviceId, PoolGuid, Txg};

/// Root of the pool as of one txg. This room parses; the holder of the pool's keys makes and checks
/// the tag.
///
/// | off  | len | field        | meaning |
/// |------|-----|--------------|---|
/// |    0 |   8 | magic        | "SFuber" and two zero bytes |
/// |    8 |   4 | version      | format version of the pool: 1 |
/// |   12 |   4 | flags        | bit 0: the tag is keyed (the pool's metadata is sealed) |
/// |   16 |   8 | pool         | pool's guid |
/// |   24 |   8 | txg          | greater than in the uberblock it replaces |
/// |   32 |   8 | time_ns      | wall time of the commit |
/// |   40 |   4 | devices      | number of leaf devices of the pool |
/// |   44 |   4 | reserved     | zero |
/// |   48 | 112 | meta         | root of the meta tree |
/// |  160 | 112 | tail         | commit tail |
/// |  272 |   8 | tail_device_0| first column of the segment that holds the tail's first copy: device|
/// |  280 |   4 | tail_slot_0  | and slot |
/// |  284 |   4 | tail_shape_0 | layout, columns, parity, chunk_shift of that segment, a byte each; zero: one column |
/// |  288 |   8 | tail_device_1| the same for the second copy; device and shape 0 if there is none |
/// |  296 |   4 | tail_slot_1  | and slot |
/// |  300 |   4 | tail_shape_1 | as above |
/// |  304 |  32 | parent       | tag of the uberblock it replaces; zero in the first |
/// |  336 |   8 | anchor       | sequence number of the anchor record; 0 without an anchor |
/// |  344 |  16 | log_epoch    | epoch of the intent log; zero without one |
/// |  360 |   8 | log_next     | first log group that this txg does not hold; 0 without a log |
/// |  368 | 186 | tail_more_0  | further columns of the first copy's segment: device u16, slot u32, 31 times; zero where there is none |
/// |  554 | 186 | tail_more_1  | the same for the second copy |
/// |  740 |3324 | reserved     | zero (parity root); from 752 on for ever |
/// | 4064 |  32 | tag          | BLAKE3 of bytes 0 to 4063, keyed if flag 0 is set |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Uberblock {
    /// True if the tag is keyed.
    pub keyed: bool,
    /// Pool.
    pub pool: PoolGuid,
    /// Txg.
    pub txg: Txg,
    /// Wall time of the commit, nanoseconds since 1970.
    pub time_ns: u64,
    /// Number of leaf devices.
    pub devices: u32,
    /// Root of the meta tree.
    pub meta: BlockPointer,
    /// Commit tail.
    pub tail: BlockPointer,
    /// Where the segments of the tail's copies lie.
    pub tail_places: [Option<Placement>; 2],
    /// Tag of the uberblock it replaces.
    pub parent: [u8; 32],
    /// Sequence number of the anchor record.
    pub anchor: u64,
    /// Where the intent log goes on behind this txg.
    pub log: Option<LogStart>,
}

/// The part of the intent log that a root needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogStart {
    /// Epoch its groups are of, not 0.
    pub epoch: [u8; 16],
    /// First group that the root does not hold, from 1.
    pub next: u64,
}

const MAGIC: &[u8; 8] = b"SFuber\0\0";

/// Bytes of one of the further columns of a tail's segment, and of all of them.
const MORE_SIZE: usize = 6;
const MORE_BYTES: usize = MORE_SIZE * (crate::SegmentRow::COLUMNS_MAX - 1);

/// Names of the fields that say where a copy of the tail lies.
const TAIL_FIELDS: [[&str; 4]; 2] = [
    ["tail_device_0", "tail_slot_0", "tail_shape_0", "tail_more_0"],
    ["tail_device_1", "tail_slot_1", "tail_shape_1", "tail_more_1"],
];

/// The fields of one copy's place: device and slot of the first column, shape, further columns.
fn encode_place(place: Option<&Placement>) -> (u64, u32, [u8; 4], [u8; MORE_BYTES]) {
    let mut more = [0; MORE_BYTES];
    let Some(place) = place else { return (0, 0, [0; 4], more) };
    let mut columns = place.columns();
    let first = columns.next().flatten().unwrap_or(Column { device: DeviceId(0), slot: 0 });
    for (out, column) in more.chunks_exact_mut(MORE_SIZE).zip(columns) {
        if let Some(Column { device, slot }) = column {
            let device = u16::try_from(device.0).expect("devices of redundant groups have small numbers");
            out[..2].copy_from_slice(&device.to_le_bytes());
            out[2..].copy_from_slice(&slot.to_le_bytes());
        }
    }
    let shape = match place {
        Placement::Plain(_) => [0; 4],
        _ => {
            let Shape { layout, columns, parity, chunk_shift } = place.shape();
            [layout, columns, parity, chunk_shift]
        }
    };
    (first.device.0, first.slot, shape, more)
}

/// The fields of one copy of the tail's place.
struct StoredPlace<'b> {
    first: Column,
    shape: [u8; 4],
    more: &'b [u8],
}

impl StoredPlace<'_> {
    /// The place, if there is one; else the field (of [`TAIL_FIELDS`]) that is wrong, and its
    /// value.
    fn decode(&self) -> Result<Option<Placement>, (usize, u32)> {
        const SLOT: usize = 1;
        const SHAPE: usize = 2;
        const MORE: usize = 3;
        let StoredPlace { first, shape: [layout, columns, parity, chunk_shift], more } = *self;
        if first.device.0 == 0 && first.slot != 0 {
            return Err((SLOT, first.slot));
        }
        let shape = Shape { layout, columns, parity, chunk_shift };
        let plain = self.shape == [0; 4];
        if !plain && (shape.is_possible().is_err() || !shape.is_redundant()) {
            return Err((SHAPE, u32::from_le_bytes(self.shape)));
        }
        let count = if plain { 1 } else { usize::from(columns) };
        let mut all = vec![(first.device.0 != 0).then_some(first)];
        for bytes in more.chunks_exact(MORE_SIZE) {
            let device = DeviceId(u64::from(u16::from_le_bytes([bytes[0], bytes[1]])));
            let slot = u32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
            let exists = device.0 != 0;
            if all.len() < count {
                all.push(exists.then_some(Column { device, slot }));
            } else if exists {
                return Err((MORE, slot));
            }
            if !exists && slot != 0 {
                return Err((MORE, slot));
            }
        }
        if plain { Ok(all[0].map(Placement::Plain)) } else { Ok(Some(Placement::of(shape, all))) }
    }
}

impl Uberblock {
    /// Order of roots: by the epoch of the writer, which is that of the segment of the tail, then
    /// by txg. A host that lost a pool on stores of whole objects may have gone on for a moment.
    #[must_use]
    pub fn age(&self) -> (u64, Txg) {
        (self.tail.copies[0].segment.epoch(), self.txg)
    }

    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "uberblock",
        &[
            ("magic", 0, 8),
            ("version", 8, 4),
            ("flags", 12, 4),
            ("pool", 16, 8),
            ("txg", 24, 8),
            ("time_ns", 32, 8),
            ("devices", 40, 4),
            ("reserved", 44, 4),
            ("meta", 48, 112),
            ("tail", 160, 112),
            ("tail_device_0", 272, 8),
            ("tail_slot_0", 280, 4),
            ("tail_shape_0", 284, 4),
            ("tail_device_1", 288, 8),
            ("tail_slot_1", 296, 4),
            ("tail_shape_1", 300, 4),
            ("parent", 304, 32),
            ("anchor", 336, 8),
            ("log_epoch", 344, 16),
            ("log_next", 360, 8),
            ("tail_more_0", 368, MORE_BYTES),
            ("tail_more_1", 554, MORE_BYTES),
            ("reserved", 740, 3324),
            ("tag", 4064, 32),
        ],
        &[],
    );
    /// Bytes of an encoded uberblock: one slot of the ring.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();
    /// Bytes that the tag authenticates: everything before it.
    pub const BOUND_SIZE: usize = Self::ENCODED_SIZE - 32;
    /// Greatest format version known here.
    pub const VERSION: u32 = 1;

    /// The uberblock's bytes; `tag` makes the tag of the bytes before it.
    #[must_use]
    pub fn encode(&self, tag: impl FnOnce(&[u8]) -> [u8; 32]) -> [u8; Self::ENCODED_SIZE] {
        assert!(self.pool.0 != 0 && self.txg.0 != 0 && self.devices != 0 && self.tail_places[0].is_some());
        let places = [0, 1].map(|copy: usize| encode_place(self.tail_places[copy].as_ref()));
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", MAGIC).u32("version", Self::VERSION).u32("flags", u32::from(self.keyed));
        out.u64("pool", self.pool.0).u64("txg", self.txg.0).u64("time_ns", self.time_ns);
        out.u32("devices", self.devices).reserved();
        out.bytes("meta", &self.meta.to_bytes()).bytes("tail", &self.tail.to_bytes());
        for ([device, slot, shape, _], place) in TAIL_FIELDS.iter().zip(&places) {
            out.u64(device, place.0).u32(slot, place.1).bytes(shape, &place.2);
        }
        out.bytes("parent", &self.parent).u64("anchor", self.anchor);
        let log = self.log.unwrap_or(LogStart { epoch: [0; 16], next: 0 });
        assert_eq!(log.epoch == [0; 16], log.next == 0, "a log has an epoch and a next group, or neither");
        out.bytes("log_epoch", &log.epoch).u64("log_next", log.next);
        out.bytes("tail_more_0", &places[0].3).bytes("tail_more_1", &places[1].3).reserved();
        let mut bytes: [u8; Self::ENCODED_SIZE] = out.bytes("tag", &[0; 32]).finish_array();
        let tag = tag(&bytes[..Self::BOUND_SIZE]);
        bytes[Self::BOUND_SIZE..].copy_from_slice(&tag);
        bytes
    }

    /// Splits an uberblock's bytes into what the tag authenticates and the tag.
    pub fn bound_and_tag(bytes: &[u8]) -> Result<(&[u8], [u8; 32]), DecodeError> {
        let have = bytes.len();
        if have < Self::ENCODED_SIZE {
            return Err(DecodeError::Short { structure: "uberblock", need: Self::ENCODED_SIZE, have });
        }
        let tag = bytes[Self::BOUND_SIZE..Self::ENCODED_SIZE].try_into().expect("32 bytes");
        Ok((&bytes[..Self::BOUND_SIZE], tag))
    }

    /// Reads an uberblock. The tag is not checked here: see [`Uberblock::bound_and_tag`].
    pub fn decode(bytes: &[u8]) -> Result<Uberblock, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        if from.bytes("magic", 8) != MAGIC {
            return Err(DecodeError::Magic { structure: "uberblock" });
        }
        let found = from.u32("version");
        if found == 0 || found > Self::VERSION {
            return Err(DecodeError::Version { structure: "uberblock", found, known: Self::VERSION });
        }
        let flags = from.u32("flags");
        if flags > 1 {
            return Err(from.refuse("flags", flags));
        }
        let pool = PoolGuid(from.u64("pool"));
        if pool.0 == 0 {
            return Err(from.refuse("pool", 0u64));
        }
        let txg = Txg(from.u64("txg"));
        if txg.0 == 0 {
            return Err(from.refuse("txg", 0u64));
        }
        let time_ns = from.u64("time_ns");
        let devices = from.u32("devices");
        if devices == 0 {
            return Err(from.refuse("devices", 0u64));
        }
        from.reserved()?;
        let meta = BlockPointer::decode(from.bytes("meta", 112))?;
        let tail = BlockPointer::decode(from.bytes("tail", 112))?;
        let mut stored = TAIL_FIELDS.map(|[device, slot, shape, _]| StoredPlace {
            first: Column { device: DeviceId(from.u64(device)), slot: from.u32(slot) },
            shape: from.array(shape),
            more: &[],
        });
        let parent = from.array("parent");
        let anchor = from.u64("anchor");
        let log = LogStart { epoch: from.array("log_epoch"), next: from.u64("log_next") };
        if (log.epoch == [0; 16]) != (log.next == 0) {
            return Err(from.refuse("log_next", log.next));
        }
        for ([.., more], stored) in TAIL_FIELDS.iter().zip(&mut stored) {
            stored.more = from.bytes(more, MORE_BYTES);
        }
        let mut tail_places = [None, None];
        for (copy, stored) in stored.iter().enumerate() {
            let place = stored.decode();
            tail_places[copy] =
                place.map_err(|(field, value)| from.refuse(TAIL_FIELDS[copy][field], value))?;
        }
        if tail_places[0].is_none() {
            return Err(from.refuse("tail_device_0", 0u64));
        }
        from.reserved()?;
        from.bytes("tag", 32);
        from.finish()?;
        Ok(Uberblock {
            keyed: flags == 1,
            pool,
            txg,
            time_ns,
            devices,
            meta,
            tail,
            tail_places,
            parent,
            anchor,
            log: (log.next != 0).then_some(log),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Address, BlockKind, Compression, SegmentId, Stamp};

    #[test]
    fn an_uberblock_is_read_back_with_its_tag() {
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
        let uberblock = Uberblock {
            keyed: false,
            pool: PoolGuid(3),
            txg: Txg(7),
            time_ns: 9,
            devices: 1,
            meta: pointer(BlockKind::Meta),
            tail: pointer(BlockKind::Tail),
            tail_places: [Some(Placement::Plain(Column { device: DeviceId(1), slot: 4 })), None],
            parent: [5; 32],
            anchor: 0,
            log: Some(LogStart { epoch: [6; 16], next: 77 }),
        };
        let bytes = uberblock.encode(|bound| {
            assert_eq!(bound.len(), 4064);
            [8; 32]
        });
        assert_eq!(bytes.len(), 4096);
        assert_eq!(Uberblock::decode(&bytes).as_ref(), Ok(&uberblock));
        assert_eq!(Uberblock::bound_and_tag(&bytes).unwrap().1, [8; 32]);
        for at in [0, 8, 12, 44, 284, 368, 1000] {
            let mut bad = bytes;
            bad[at] ^= 0x80;
            assert!(Uberblock::decode(&bad).is_err(), "byte {at}");
        }
        let column = |device: u64| Some(Column { device: DeviceId(device), slot: 9 });
        let widest: Vec<_> = (0..32).map(|device| column(device).filter(|_| device % 5 != 0)).collect();
        let raidz = Placement::Raidz { parity: 3, chunk_shift: 12, columns: widest.into() };
        let mirror = Placement::Mirror([None, column(2)].into());
        for places in [[Some(raidz.clone()), Some(mirror.clone())], [Some(mirror), None], [Some(raidz), None]]
        {
            let redundant = Uberblock { tail_places: places, ..uberblock.clone() };
            let bytes = redundant.encode(|_| [8; 32]);
            assert_eq!(Uberblock::decode(&bytes), Ok(redundant));
            // Columns beyond those that the shape counts, a slot of no device, a shape that is
            // none.
            for at in [285, 287, 553, 739] {
                let mut bad = bytes;
                bad[at] ^= 0x40;
                assert!(Uberblock::decode(&bad).is_err() || at == 553, "byte {at}");
            }
        }
    }
}
