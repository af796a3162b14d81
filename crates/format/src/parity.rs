//! Structures of a parity device: header, tiles, journal and manifest. docs/format/parity.md.
//!
//! Each structure has a check, BLAKE3 of what follows it: a torn write is noticed. The device is
//! trusted, so the check has no key.

use std::collections::BTreeSet;

use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, PoolGuid, SegmentId};

/// Where the bytes begin that a check covers, in each structure here.
const CHECKED_FROM: usize = 40;
const VERSION: u32 = 1;
/// Version of a header and of a manifest that tell of a code under another map.
const REKEYED: u32 = 2;
/// Version of a header whose codes have other sizes than one another, or other places.
const PLACED: u32 = 3;
/// Version of a header whose tiles lie at a store.
const AWAY: u32 = 4;
/// Version of a header that counts recoveries under its map.
const COUNTED: u32 = 5;

/// The check in the bytes of a structure of this module, for the one that names it.
///
/// # Panics
/// If there are fewer than 40 bytes.
#[must_use]
pub fn check_of(bytes: &[u8]) -> [u8; 32] {
    bytes[8..CHECKED_FROM].try_into().expect("32 bytes")
}

/// Puts the check into finished bytes.
fn seal(mut bytes: Vec<u8>, hash: impl Fn(&[u8]) -> [u8; 32]) -> Vec<u8> {
    let check = hash(&bytes[CHECKED_FROM..]);
    bytes[8..CHECKED_FROM].copy_from_slice(&check);
    bytes
}

/// Reads magic, check and version 1.
fn begin<'b>(
    layout: &'static Layout,
    magic: &[u8; 8],
    bytes: &'b [u8],
) -> Result<(Decoder<'b>, [u8; 32]), DecodeError> {
    let (from, check, _) = begin_of(layout, magic, bytes, VERSION)?;
    Ok((from, check))
}

/// Reads magic, check and a version up to `known`.
fn begin_of<'b>(
    layout: &'static Layout,
    magic: &[u8; 8],
    bytes: &'b [u8],
    known: u32,
) -> Result<(Decoder<'b>, [u8; 32], u32), DecodeError> {
    let mut from = Decoder::new(layout, bytes)?;
    if from.bytes("magic", 8) != magic {
        return Err(DecodeError::Magic { structure: layout.name });
    }
    let check = from.array("check");
    let found = from.u32("version");
    if !(VERSION..=known).contains(&found) {
        return Err(DecodeError::Version { structure: layout.name, found, known });
    }
    Ok((from, check, found))
}

/// Header of a parity device: what it is for, and where its parts stand.
///
/// | off | len | field          | meaning                                                      |
/// |-----|-----|----------------|--------------------------------------------------------------|
/// |   0 |   8 | magic          | `SFparity`                                                   |
/// |   8 |  32 | check          | BLAKE3 of all that follows                                   |
/// |  40 |   4 | version        | 1; 2 if next_map or slot_area is not zero; 3 if first_tiles is not; 4 with bit 1 of flags; 5 if recoveries is not zero |
/// |  44 |   4 | flags          | bit 0: root_key is zero, the key comes from the pool's own; bit 1: tiles lie at a store |
/// |  48 |   8 | pool           | the pool                                                     |
/// |  56 |   8 | sequence       | from 1; the copy with the greater one counts                 |
/// |  64 |   8 | cells          | cells that the code is made for                              |
/// |  72 |   4 | loss_ppm       | cells in a million that may be lost, 1 to 500,000            |
/// |  76 |   4 | tiles          | tiles                                                        |
/// |  80 |   8 | map            | generation of the map, not 0                                 |
/// |  88 |  32 | root_key       | key of map, tags and masks                                   |
/// | 120 |   8 | journal_size   | bytes of the journal's ring, a multiple of 4,096             |
/// | 128 |   8 | journal_tail   | position of the first record that not all tiles include      |
/// | 136 |   8 | manifest_len   | bytes of the manifest                                        |
/// | 144 |  32 | manifest_check | its check                                                    |
/// | 176 |   4 | manifest_area  | 1 or 2                                                       |
/// | 180 |  32 | journal_prev   | check of the record before journal_tail; random at first     |
/// | 212 |   8 | next_map       | map of the code that is being made in the other area; 0: none |
/// | 220 |   4 | slot_area      | area of the slots of map: 0 before the tags, 1 behind them; 0 if first_tiles is not |
/// | 224 |   4 | first_tiles    | version 3 to 5: tiles for which area 0 has room, or 0, and so are those behind |
/// | 228 |   4 | next_loss_ppm  | like loss_ppm, of next_map; 0 without it                     |
/// | 232 |   4 | next_tiles     | tiles of next_map; 0 without it                              |
/// | 236 |   8 | slots_at       | where the slots of map begin, a multiple of 4,096            |
/// | 244 |   8 | next_slots_at  | where those of next_map begin; 0 without it                  |
/// | 252 |   4 | recoveries     | recoveries under map of which stores saw something           |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParityHeader {
    /// Pool.
    pub pool: PoolGuid,
    /// Order of headers.
    pub sequence: u64,
    /// Cells that the code is made for.
    pub cells: u64,
    /// Cells in a million that may be lost.
    pub loss_ppm: u32,
    /// Tiles.
    pub tiles: u32,
    /// Generation of the map.
    pub map: u64,
    /// The key, unless it comes from the pool's own.
    pub root_key: Option<[u8; 32]>,
    /// Bytes of the journal's ring.
    pub journal_size: u64,
    /// Position of the first record that not all tiles include.
    pub journal_tail: u64,
    /// Bytes of the manifest.
    pub manifest_len: u64,
    /// Its check.
    pub manifest_check: [u8; 32],
    /// The area it lies in, 1 or 2.
    pub manifest_area: u32,
    /// Check of the record before the tail.
    pub journal_prev: [u8; 32],
    /// Map of the code that is being made in the other area of slots.
    pub next_map: Option<u64>,
    /// Area of the slots of the code, 0 or 1; 0 if there are places.
    pub slot_area: u32,
    /// Places of the codes, if they are not those of areas of one size.
    pub places: Option<ParityPlaces>,
    /// The tiles lie at a store, which a [`ParityTileStore`] names.
    pub is_away: bool,
    /// Recoveries under this map of which stores saw something.
    pub recoveries: u32,
}

/// Places of codes on a parity device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ParityPlaces {
    /// Tiles for which the area before the tags has room.
    pub first_tiles: u32,
    /// Where the slots of the code begin.
    pub slots_at: u64,
    /// The code that is being made.
    pub next: Option<NextParity>,
}

/// Figures and place of the code that is being made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NextParity {
    /// Cells in a million that may be lost.
    pub loss_ppm: u32,
    /// Tiles.
    pub tiles: u32,
    /// Where its slots begin.
    pub slots_at: u64,
}

const DERIVED: u32 = 1;
const AT_STORE: u32 = 2;

impl ParityHeader {
    const MAGIC: &'static [u8; 8] = b"SFparity";
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "parity_header",
        &[
            ("magic", 0, 8),
            ("check", 8, 32),
            ("version", 40, 4),
            ("flags", 44, 4),
            ("pool", 48, 8),
            ("sequence", 56, 8),
            ("cells", 64, 8),
            ("loss_ppm", 72, 4),
            ("tiles", 76, 4),
            ("map", 80, 8),
            ("root_key", 88, 32),
            ("journal_size", 120, 8),
            ("journal_tail", 128, 8),
            ("manifest_len", 136, 8),
            ("manifest_check", 144, 32),
            ("manifest_area", 176, 4),
            ("journal_prev", 180, 32),
            ("next_map", 212, 8),
            ("slot_area", 220, 4),
            ("first_tiles", 224, 4),
            ("next_loss_ppm", 228, 4),
            ("next_tiles", 232, 4),
            ("slots_at", 236, 8),
            ("next_slots_at", 244, 8),
            ("recoveries", 252, 4),
        ],
        &[],
    );
    /// Its bytes.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();

    /// The header's bytes.
    #[must_use]
    pub fn encode(&self, hash: impl Fn(&[u8]) -> [u8; 32]) -> Vec<u8> {
        assert!(self.pool.0 != 0 && self.sequence != 0 && self.tiles != 0 && self.map != 0);
        assert!((1..=500_000).contains(&self.loss_ppm) && (1..=2).contains(&self.manifest_area));
        assert!(self.journal_size != 0 && self.journal_size.is_multiple_of(4096));
        assert!(self.root_key != Some([0; 32]), "a key is not zero");
        assert!(self.next_map != Some(0) && self.next_map != Some(self.map) && self.slot_area <= 1);
        let version = match (self.places, self.next_map, self.slot_area) {
            _ if self.recoveries != 0 => COUNTED,
            _ if self.is_away => AWAY,
            (Some(_), ..) => PLACED,
            (None, None, 0) => VERSION,
            (None, ..) => REKEYED,
        };
        assert!(self.places.is_none_or(|places| self.are_right(places)), "places of codes");
        let flags =
            if self.root_key.is_none() { DERIVED } else { 0 } | if self.is_away { AT_STORE } else { 0 };
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", Self::MAGIC).bytes("check", &[0; 32]).u32("version", version).u32("flags", flags);
        out.u64("pool", self.pool.0).u64("sequence", self.sequence).u64("cells", self.cells);
        out.u32("loss_ppm", self.loss_ppm).u32("tiles", self.tiles).u64("map", self.map);
        out.bytes("root_key", &self.root_key.unwrap_or([0; 32]));
        out.u64("journal_size", self.journal_size).u64("journal_tail", self.journal_tail);
        out.u64("manifest_len", self.manifest_len).bytes("manifest_check", &self.manifest_check);
        out.u32("manifest_area", self.manifest_area).bytes("journal_prev", &self.journal_prev);
        out.u64("next_map", self.next_map.unwrap_or(0)).u32("slot_area", self.slot_area);
        let none = NextParity { loss_ppm: 0, tiles: 0, slots_at: 0 };
        let places = self.places.unwrap_or(ParityPlaces { first_tiles: 0, slots_at: 0, next: None });
        let next = places.next.unwrap_or(none);
        out.u32("first_tiles", places.first_tiles).u32("next_loss_ppm", next.loss_ppm);
        out.u32("next_tiles", next.tiles).u64("slots_at", places.slots_at);
        out.u64("next_slots_at", next.slots_at).u32("recoveries", self.recoveries);
        seal(out.finish(), hash)
    }

    /// True if places belong to such a header.
    fn are_right(&self, places: ParityPlaces) -> bool {
        let is_place = |at: u64| at != 0 && at.is_multiple_of(4096);
        let is_right = |next: NextParity| {
            (1..=500_000).contains(&next.loss_ppm) && next.tiles != 0 && is_place(next.slots_at)
        };
        places.first_tiles != 0
            && self.slot_area == 0
            && is_place(places.slots_at)
            && places.next.is_some() == self.next_map.is_some()
            && places.next.is_none_or(is_right)
    }

    /// Reads a header. Bytes behind it are not looked at.
    ///
    /// # Errors
    /// The bytes are no header, or not one that this version writes.
    pub fn decode(bytes: &[u8], hash: impl Fn(&[u8]) -> [u8; 32]) -> Result<ParityHeader, DecodeError> {
        let (mut from, check, version) = begin_of(&Self::LAYOUT, Self::MAGIC, bytes, COUNTED)?;
        let flags = from.u32("flags");
        let is_away = flags & AT_STORE != 0;
        if flags & !(DERIVED | AT_STORE) != 0 || version < COUNTED && is_away != (version == AWAY) {
            return Err(from.refuse("flags", flags));
        }
        let (pool, sequence, cells) = (PoolGuid(from.u64("pool")), from.u64("sequence"), from.u64("cells"));
        let (loss_ppm, tiles, map) = (from.u32("loss_ppm"), from.u32("tiles"), from.u64("map"));
        let root_key: [u8; 32] = from.array("root_key");
        let (journal_size, journal_tail) = (from.u64("journal_size"), from.u64("journal_tail"));
        let (manifest_len, manifest_check) = (from.u64("manifest_len"), from.array("manifest_check"));
        let (manifest_area, journal_prev) = (from.u32("manifest_area"), from.array("journal_prev"));
        let (next_map, slot_area) = (from.u64("next_map"), from.u32("slot_area"));
        let (first_tiles, next_loss_ppm) = (from.u32("first_tiles"), from.u32("next_loss_ppm"));
        let (next_tiles, slots_at) = (from.u32("next_tiles"), from.u64("slots_at"));
        let (next_slots_at, recoveries) = (from.u64("next_slots_at"), from.u32("recoveries"));
        let next = NextParity { loss_ppm: next_loss_ppm, tiles: next_tiles, slots_at: next_slots_at };
        let next =
            (next_map != 0 || next != NextParity { loss_ppm: 0, tiles: 0, slots_at: 0 }).then_some(next);
        let is_placed = version == PLACED || version >= AWAY && first_tiles != 0;
        let places = is_placed.then_some(ParityPlaces { first_tiles, slots_at, next });
        let is_plain = (next_map, slot_area) == (0, 0);
        let beyond = u64::from(first_tiles | next_loss_ppm | next_tiles) | slots_at | next_slots_at;
        let loss_ok = (1..=500_000).contains(&loss_ppm);
        for (field, value, is_right) in [
            ("pool", pool.0, pool.0 != 0),
            ("sequence", sequence, sequence != 0),
            ("loss_ppm", u64::from(loss_ppm), loss_ok),
            ("tiles", u64::from(tiles), tiles != 0),
            ("map", map, map != 0),
            ("root_key", 0, (root_key == [0; 32]) == (flags & DERIVED != 0)),
            ("journal_size", journal_size, journal_size != 0 && journal_size.is_multiple_of(4096)),
            ("manifest_area", u64::from(manifest_area), (1..=2).contains(&manifest_area)),
            ("next_map", next_map, next_map != map),
            ("slot_area", u64::from(slot_area), slot_area <= 1),
            ("version", u64::from(version), version >= PLACED || is_plain == (version == VERSION)),
            ("first_tiles", beyond, is_placed || beyond == 0),
            ("recoveries", u64::from(recoveries), (recoveries != 0) == (version == COUNTED)),
            ("check", 0, hash(&bytes[CHECKED_FROM..Self::ENCODED_SIZE]) == check),
        ] {
            if !is_right {
                return Err(from.refuse(field, value));
            }
        }
        let root_key = (flags & DERIVED == 0).then_some(root_key);
        let header = ParityHeader {
            pool,
            sequence,
            cells,
            loss_ppm,
            tiles,
            map,
            root_key,
            journal_size,
            journal_tail,
            manifest_len,
            manifest_check,
            manifest_area,
            journal_prev,
            next_map: (next_map != 0).then_some(next_map),
            slot_area,
            places,
            is_away,
            recoveries,
        };
        match places {
            Some(places) if !header.are_right(places) => Err(from.refuse("first_tiles", beyond)),
            _ => Ok(header),
        }
    }
}

/// The store that holds the tiles of a parity device, and the code that covers them there. Written
/// once, before the header.
///
/// | off | len  | field      | meaning                                              |
/// |-----|------|------------|------------------------------------------------------|
/// |   0 |    8 | magic      | `SFptstor`                                           |
/// |   8 |   32 | check      | BLAKE3 of all that follows                           |
/// |  40 |    4 | version    | 1                                                    |
/// |  44 |    4 | reserved   | zero                                                 |
/// |  48 |    8 | pool       | the pool                                             |
/// |  56 |    8 | folder     | number of the folder at the store, not 0             |
/// |  64 |    8 | inner_size | bytes of the inner parity device, a multiple of 4,096, not 0 |
/// |  72 |    4 | length     | bytes of the address, 1 to 2,048                     |
/// |  76 | 2048 | address    | address of the store, UTF-8, filled up with zeros    |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParityTileStore {
    /// Pool.
    pub pool: PoolGuid,
    /// Number of the folder at the store.
    pub folder: u64,
    /// Bytes of the inner parity device.
    pub inner_size: u64,
    /// Address of the store.
    pub address: String,
}

impl ParityTileStore {
    const MAGIC: &'static [u8; 8] = b"SFptstor";
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "parity_tile_store",
        &[
            ("magic", 0, 8),
            ("check", 8, 32),
            ("version", 40, 4),
            ("reserved", 44, 4),
            ("pool", 48, 8),
            ("folder", 56, 8),
            ("inner_size", 64, 8),
            ("length", 72, 4),
            ("address", 76, Self::ADDRESS_MAX),
        ],
        &[],
    );
    /// Most bytes of an address.
    pub const ADDRESS_MAX: usize = 2048;
    /// Its bytes.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();

    /// Its bytes.
    ///
    /// # Panics
    /// If a field is not as the layout says.
    #[must_use]
    pub fn encode(&self, hash: impl Fn(&[u8]) -> [u8; 32]) -> Vec<u8> {
        let length = self.address.len();
        assert!(self.pool.0 != 0 && self.folder != 0 && (1..=Self::ADDRESS_MAX).contains(&length));
        assert!(self.inner_size != 0 && self.inner_size.is_multiple_of(4096));
        let mut address = self.address.clone().into_bytes();
        address.resize(Self::ADDRESS_MAX, 0);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", Self::MAGIC).bytes("check", &[0; 32]).u32("version", VERSION);
        let out = out.reserved().u64("pool", self.pool.0).u64("folder", self.folder);
        let out = out.u64("inner_size", self.inner_size);
        let out = out.u32("length", u32::try_from(length).expect("2,048 at most"));
        seal(out.bytes("address", &address).finish(), hash)
    }

    /// Reads it. Bytes behind it are not looked at.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn decode(bytes: &[u8], hash: impl Fn(&[u8]) -> [u8; 32]) -> Result<ParityTileStore, DecodeError> {
        let (mut from, check) = begin(&Self::LAYOUT, Self::MAGIC, bytes)?;
        from.reserved()?;
        let (pool, folder) = (PoolGuid(from.u64("pool")), from.u64("folder"));
        let (inner_size, length) = (from.u64("inner_size"), from.u32("length"));
        let address = from.bytes("address", Self::ADDRESS_MAX);
        let known = usize::try_from(length).unwrap_or(usize::MAX).min(Self::ADDRESS_MAX);
        let (address, rest) = address.split_at(known);
        let text = String::from_utf8(address.to_vec()).unwrap_or_default();
        for (field, value, is_right) in [
            ("pool", pool.0, pool.0 != 0),
            ("folder", folder, folder != 0),
            ("inner_size", inner_size, inner_size != 0 && inner_size.is_multiple_of(4096)),
            ("length", u64::from(length), known == length as usize && known > 0),
            ("address", 0, !text.is_empty() && rest.iter().all(|byte| *byte == 0)),
            ("check", 0, hash(&bytes[CHECKED_FROM..Self::ENCODED_SIZE]) == check),
        ] {
            if !is_right {
                return Err(from.refuse(field, value));
            }
        }
        Ok(ParityTileStore { pool, folder, inner_size, address: text })
    }
}

/// A recovery found that a store lacks objects which the journal has, and has not put back all.
///
/// | off | len | field    | meaning                                              |
/// |-----|-----|----------|------------------------------------------------------|
/// |   0 |   8 | magic    | `SFpmark` and a zero                                 |
/// |   8 |  32 | check    | BLAKE3 of all that follows                           |
/// |  40 |   4 | version  | 1                                                    |
/// |  44 |   4 | reserved | zero                                                 |
/// |  48 |   8 | pool     | the pool                                             |
/// |  56 |   8 | sequence | that of the newest header; else it does not count    |
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ParityRepairMark {
    /// Pool.
    pub pool: PoolGuid,
    /// Sequence of the header beside which it counts.
    pub sequence: u64,
}

impl ParityRepairMark {
    const MAGIC: &'static [u8; 8] = b"SFpmark\0";
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "parity_repair_mark",
        &[
            ("magic", 0, 8),
            ("check", 8, 32),
            ("version", 40, 4),
            ("reserved", 44, 4),
            ("pool", 48, 8),
            ("sequence", 56, 8),
        ],
        &[],
    );
    /// Its bytes.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();

    /// The mark's bytes.
    #[must_use]
    pub fn encode(&self, hash: impl Fn(&[u8]) -> [u8; 32]) -> Vec<u8> {
        assert!(self.pool.0 != 0 && self.sequence != 0);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", Self::MAGIC).bytes("check", &[0; 32]).u32("version", VERSION);
        seal(out.reserved().u64("pool", self.pool.0).u64("sequence", self.sequence).finish(), hash)
    }

    /// Reads a mark. Bytes behind it are not looked at.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn decode(bytes: &[u8], hash: impl Fn(&[u8]) -> [u8; 32]) -> Result<ParityRepairMark, DecodeError> {
        let (mut from, check) = begin(&Self::LAYOUT, Self::MAGIC, bytes)?;
        from.reserved()?;
        let (pool, sequence) = (PoolGuid(from.u64("pool")), from.u64("sequence"));
        for (field, value, is_right) in [
            ("pool", pool.0, pool.0 != 0),
            ("sequence", sequence, sequence != 0),
            ("check", 0, hash(&bytes[CHECKED_FROM..Self::ENCODED_SIZE]) == check),
        ] {
            if !is_right {
                return Err(from.refuse(field, value));
            }
        }
        Ok(ParityRepairMark { pool, sequence })
    }
}

/// Head of a tile's slot: which tile lies there, and what it includes.
///
/// | off | len | field      | meaning                                              |
/// |-----|-----|------------|------------------------------------------------------|
/// |   0 |   8 | magic      | `SFptile` and a zero                                 |
/// |   8 |  32 | check      | BLAKE3 of all that follows                           |
/// |  40 |   4 | version    | 1                                                    |
/// |  44 |   4 | tile       | number of the tile                                   |
/// |  48 |   8 | pool       | the pool                                             |
/// |  56 |   8 | map        | generation of the map                                |
/// |  64 |   8 | generation | of this tile, from 1; the slot with the greater counts |
/// |  72 |   8 | cut        | position of the journal up to which it includes all  |
/// |  80 |  32 | hash       | BLAKE3 of the tile's bytes, as they lie in the slot or at the store |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParityTile {
    /// Number of the tile.
    pub tile: u32,
    /// Pool.
    pub pool: PoolGuid,
    /// Generation of the map.
    pub map: u64,
    /// Generation of this tile.
    pub generation: u64,
    /// Position of the journal up to which it includes all.
    pub cut: u64,
    /// BLAKE3 of the tile's bytes.
    pub hash: [u8; 32],
}

impl ParityTile {
    const MAGIC: &'static [u8; 8] = b"SFptile\0";
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "parity_tile",
        &[
            ("magic", 0, 8),
            ("check", 8, 32),
            ("version", 40, 4),
            ("tile", 44, 4),
            ("pool", 48, 8),
            ("map", 56, 8),
            ("generation", 64, 8),
            ("cut", 72, 8),
            ("hash", 80, 32),
        ],
        &[],
    );
    /// Its bytes.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();

    /// The head's bytes.
    #[must_use]
    pub fn encode(&self, hash: impl Fn(&[u8]) -> [u8; 32]) -> Vec<u8> {
        assert!(self.pool.0 != 0 && self.map != 0 && self.generation != 0);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", Self::MAGIC).bytes("check", &[0; 32]).u32("version", VERSION);
        out.u32("tile", self.tile).u64("pool", self.pool.0).u64("map", self.map);
        out.u64("generation", self.generation).u64("cut", self.cut);
        seal(out.bytes("hash", &self.hash).finish(), hash)
    }

    /// Reads a head. Bytes behind it are not looked at.
    ///
    /// # Errors
    /// The bytes are no head of a tile.
    pub fn decode(bytes: &[u8], hash: impl Fn(&[u8]) -> [u8; 32]) -> Result<ParityTile, DecodeError> {
        let (mut from, check) = begin(&Self::LAYOUT, Self::MAGIC, bytes)?;
        let (tile, pool, map) = (from.u32("tile"), PoolGuid(from.u64("pool")), from.u64("map"));
        let (generation, cut, of_tile) = (from.u64("generation"), from.u64("cut"), from.array("hash"));
        for (field, value) in [("pool", pool.0), ("map", map), ("generation", generation)] {
            if value == 0 {
                return Err(from.refuse(field, value));
            }
        }
        if hash(&bytes[CHECKED_FROM..Self::ENCODED_SIZE]) != check {
            return Err(from.refuse("check", 0u64));
        }
        Ok(ParityTile { tile, pool, map, generation, cut, hash: of_tile })
    }
}

/// Whether the cells of a record enter the code or leave it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum RecordKind {
    /// They enter.
    Add,
    /// They leave.
    Remove,
}

/// The cells of a segment on one store, as manifest and journal name them.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ParitySegment {
    /// Segment.
    pub segment: SegmentId,
    /// Number of the store.
    pub store: u16,
    /// Random number of the opening under which it was written.
    pub opening: u32,
    /// Bytes of its content there, from 1; the last cell is filled up with zeros.
    pub length: u32,
}

impl ParitySegment {
    /// Bytes of a cell.
    const CELL: u32 = 4096;
    /// Most bytes: 64 MiB.
    pub const LENGTH_MAX: u32 = 1 << 26;
    /// Tags in a unit of the tag area.
    pub const UNIT_TAGS: u16 = 256;

    /// Number of its cells.
    #[must_use]
    pub fn cells(&self) -> u16 {
        u16::try_from(self.length.div_ceil(Self::CELL)).expect("64 MiB at most")
    }

    /// Units of the tag area that its tags take.
    #[must_use]
    pub fn units(&self) -> u16 {
        self.cells().div_ceil(Self::UNIT_TAGS)
    }
}

/// Head of a record of the journal. At 4,096 bytes behind it are the cells' contents, then their
/// tags, filled up to a multiple of 4,096 with zeros.
///
/// | off | len | field    | meaning                                            |
/// |-----|-----|----------|----------------------------------------------------|
/// |   0 |   8 | magic    | `SFpjrnl` and a zero                               |
/// |   8 |  32 | check    | BLAKE3 of all that follows                         |
/// |  40 |   4 | version  | 1                                                  |
/// |  44 |   2 | kind     | 1: the cells enter the code; 2: they leave it      |
/// |  46 |   2 | store    | number of the store                                |
/// |  48 |   8 | pool     | the pool                                           |
/// |  56 |   8 | position | of this record; grows by each record's bytes       |
/// |  64 |   8 | segment  | the segment                                        |
/// |  72 |   4 | opening  | random number of the opening that wrote it, not 0  |
/// |  76 |   4 | length   | bytes of content, 1 to 64 Mi                       |
/// |  80 |  32 | prev     | check of the record before it                      |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParityRecord {
    /// Direction.
    pub kind: RecordKind,
    /// Pool.
    pub pool: PoolGuid,
    /// Position of the record.
    pub position: u64,
    /// The segment.
    pub segment: ParitySegment,
    /// Check of the record before it.
    pub prev: [u8; 32],
}

impl ParityRecord {
    const MAGIC: &'static [u8; 8] = b"SFpjrnl\0";
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "parity_record",
        &[
            ("magic", 0, 8),
            ("check", 8, 32),
            ("version", 40, 4),
            ("kind", 44, 2),
            ("store", 46, 2),
            ("pool", 48, 8),
            ("position", 56, 8),
            ("segment", 64, 8),
            ("opening", 72, 4),
            ("length", 76, 4),
            ("prev", 80, 32),
        ],
        &[],
    );
    /// Its bytes.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();

    /// The head's bytes.
    #[must_use]
    pub fn encode(&self, hash: impl Fn(&[u8]) -> [u8; 32]) -> Vec<u8> {
        let ParitySegment { segment, store, opening, length } = self.segment;
        assert!(self.pool.0 != 0 && segment.0 != 0 && opening != 0);
        assert!((1..=ParitySegment::LENGTH_MAX).contains(&length));
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", Self::MAGIC).bytes("check", &[0; 32]).u32("version", VERSION);
        out.u16("kind", if self.kind == RecordKind::Add { 1 } else { 2 }).u16("store", store);
        out.u64("pool", self.pool.0).u64("position", self.position).u64("segment", segment.0);
        out.u32("opening", opening).u32("length", length);
        seal(out.bytes("prev", &self.prev).finish(), hash)
    }

    /// Reads a head. Bytes behind it are not looked at.
    ///
    /// # Errors
    /// The bytes are no head of a record.
    pub fn decode(bytes: &[u8], hash: impl Fn(&[u8]) -> [u8; 32]) -> Result<ParityRecord, DecodeError> {
        let (mut from, check) = begin(&Self::LAYOUT, Self::MAGIC, bytes)?;
        let kind = match from.u16("kind") {
            1 => RecordKind::Add,
            2 => RecordKind::Remove,
            other => return Err(from.refuse("kind", other)),
        };
        let (store, pool, position) = (from.u16("store"), PoolGuid(from.u64("pool")), from.u64("position"));
        let (segment, opening, length) =
            (SegmentId(from.u64("segment")), from.u32("opening"), from.u32("length"));
        let prev = from.array("prev");
        for (field, value, is_right) in [
            ("pool", pool.0, pool.0 != 0),
            ("segment", segment.0, segment.0 != 0),
            ("opening", u64::from(opening), opening != 0),
            ("length", u64::from(length), (1..=ParitySegment::LENGTH_MAX).contains(&length)),
            ("check", 0, hash(&bytes[CHECKED_FROM..Self::ENCODED_SIZE]) == check),
        ] {
            if !is_right {
                return Err(from.refuse(field, value));
            }
        }
        let segment = ParitySegment { segment, store, opening, length };
        Ok(ParityRecord { kind, pool, position, segment, prev })
    }
}

/// The segments that the code covers, as of a position of the journal.
///
/// | off | len | field    | meaning                                                                    |
/// |-----|-----|----------|----------------------------------------------------------------------------|
/// |   0 |   8 | magic    | `SFpmanif`                                                                 |
/// |   8 |  32 | check    | BLAKE3 of all that follows, rows included                                  |
/// |  40 |   4 | version  | 1; 2 if a row has a flag                                                   |
/// |  44 |   4 | count    | number of rows                                                             |
/// |  48 |   8 | pool     | the pool                                                                   |
/// |  56 |   8 | cut      | position of the journal up to which it includes all                        |
/// |  64 |     | row ...  | segment (8), store (2), zero (2), opening (4), length (4), flags (4); ascending |
/// |     |     | unit ... | units of the tag area (4 each), for one row after the other                |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ParityManifest {
    /// Pool.
    pub pool: PoolGuid,
    /// Position of the journal up to which it includes all.
    pub cut: u64,
    /// Segments, ascending.
    pub segments: Vec<ParitySegment>,
    /// Units of the tag area that hold their tags: [`ParitySegment::units`] for each, in their
    /// order. None is named twice.
    pub units: Vec<u32>,
    /// Segments of these that the code that is being made leaves out.
    pub left_out: BTreeSet<ParitySegment>,
}

impl ParityManifest {
    const MAGIC: &'static [u8; 8] = b"SFpmanif";
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "parity_manifest",
        &[
            ("magic", 0, 8),
            ("check", 8, 32),
            ("version", 40, 4),
            ("count", 44, 4),
            ("pool", 48, 8),
            ("cut", 56, 8),
        ],
        &["row", "unit"],
    );
    /// Bytes of a row.
    pub const ROW_SIZE: usize = 24;
    /// Flag of a row: the code that is being made leaves the segment out.
    const LEFT_OUT: u32 = 1;
    /// Bytes of the number of a unit.
    pub const UNIT_SIZE: usize = 4;

    /// Bytes of a manifest of so many segments, with so many units.
    #[must_use]
    pub const fn size(segments: usize, units: usize) -> usize {
        Self::LAYOUT.size() + segments * Self::ROW_SIZE + units * Self::UNIT_SIZE
    }

    /// The manifest's bytes.
    #[must_use]
    pub fn encode(&self, hash: impl Fn(&[u8]) -> [u8; 32]) -> Vec<u8> {
        assert!(self.pool.0 != 0 && self.segments.is_sorted_by(|one, next| one < next));
        let mut rows = Vec::with_capacity(self.segments.len() * Self::ROW_SIZE);
        for row in &self.segments {
            assert!(row.segment.0 != 0 && row.opening != 0);
            assert!((1..=ParitySegment::LENGTH_MAX).contains(&row.length));
            rows.extend_from_slice(&row.segment.0.to_le_bytes());
            rows.extend_from_slice(&u32::from(row.store).to_le_bytes());
            rows.extend_from_slice(&row.opening.to_le_bytes());
            rows.extend_from_slice(&row.length.to_le_bytes());
            let flags = if self.left_out.contains(row) { Self::LEFT_OUT } else { 0 };
            rows.extend_from_slice(&flags.to_le_bytes());
        }
        assert!(self.left_out.iter().all(|segment| self.segments.binary_search(segment).is_ok()));
        let version = if self.left_out.is_empty() { VERSION } else { REKEYED };
        let units: usize = self.segments.iter().map(|row| usize::from(row.units())).sum();
        assert!(units == self.units.len(), "{units} units of the rows, {} here", self.units.len());
        let units: Vec<u8> = self.units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
        let count = u32::try_from(self.segments.len()).expect("fewer than 2^32 segments");
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", Self::MAGIC).bytes("check", &[0; 32]).u32("version", version);
        out.u32("count", count).u64("pool", self.pool.0).u64("cut", self.cut);
        seal(out.tail("row", &rows).tail("unit", &units).finish(), hash)
    }

    /// Reads a manifest, all of `bytes`.
    ///
    /// # Errors
    /// The bytes are no manifest.
    pub fn decode(bytes: &[u8], hash: impl Fn(&[u8]) -> [u8; 32]) -> Result<ParityManifest, DecodeError> {
        let (mut from, check, version) = begin_of(&Self::LAYOUT, Self::MAGIC, bytes, REKEYED)?;
        let (count, pool, cut) = (from.u32("count"), PoolGuid(from.u64("pool")), from.u64("cut"));
        if pool.0 == 0 {
            return Err(from.refuse("pool", 0u64));
        }
        let rows = from.tail("row", (count as usize).saturating_mul(Self::ROW_SIZE))?;
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
        let mut segments: Vec<ParitySegment> = Vec::with_capacity(rows.len() / Self::ROW_SIZE);
        let mut left_out = BTreeSet::new();
        for row in rows.chunks_exact(Self::ROW_SIZE) {
            let (segment, middle, last) = (number(&row[..8]), number(&row[8..16]), number(&row[16..]));
            let low = |number: u64| u32::try_from(number & 0xffff_ffff).expect("four bytes");
            let (store, opening) = (low(middle), low(middle >> 32));
            let (length, flags) = (low(last), low(last >> 32));
            let is_right = segment != 0
                && opening != 0
                && (1..=ParitySegment::LENGTH_MAX).contains(&length)
                && flags & !Self::LEFT_OUT == 0;
            let Some(store) = u16::try_from(store).ok().filter(|_| is_right) else {
                return Err(from.refuse("row", segment));
            };
            let row = ParitySegment { segment: SegmentId(segment), store, opening, length };
            if segments.last().is_some_and(|last| *last >= row) {
                return Err(from.refuse("row", segment));
            }
            segments.push(row);
            if flags == Self::LEFT_OUT {
                left_out.insert(row);
            }
        }
        if left_out.is_empty() != (version == VERSION) {
            return Err(from.refuse("version", version));
        }
        let count: usize = segments.iter().map(|row| usize::from(row.units())).sum();
        let units = from.tail("unit", count * Self::UNIT_SIZE)?.as_chunks().0;
        let units: Vec<u32> = units.iter().map(|unit| u32::from_le_bytes(*unit)).collect();
        let mut sorted = units.clone();
        sorted.sort_unstable();
        if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(from.refuse("unit", twice[0]));
        }
        if hash(&bytes[CHECKED_FROM..Self::size(segments.len(), units.len())]) != check {
            return Err(from.refuse("check", 0u64));
        }
        from.finish()?;
        Ok(ParityManifest { pool, cut, segments, units, left_out })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> [u8; 32] {
        let mut sum = [0_u8; 32];
        bytes.iter().enumerate().for_each(|(at, byte)| sum[at % 32] = sum[at % 32].wrapping_mul(3) ^ *byte);
        sum
    }

    /// Every byte counts: a change of any is refused.
    fn each_byte_counts(bytes: &[u8], decodes: impl Fn(&[u8]) -> bool) {
        assert!(decodes(bytes) && !decodes(&bytes[..bytes.len() - 1]));
        for at in 0..bytes.len() {
            let mut changed = bytes.to_vec();
            changed[at] ^= 1;
            assert!(!decodes(&changed), "byte {at}");
        }
    }

    #[test]
    fn structures_are_read_back_and_any_changed_byte_is_refused() {
        let segment = ParitySegment { segment: SegmentId(7), store: 2, opening: 9, length: 4097 };
        assert_eq!(segment.cells(), 2);
        let header = ParityHeader {
            pool: PoolGuid(1),
            sequence: 2,
            cells: 3,
            loss_ppm: 20_000,
            tiles: 4,
            map: 5,
            root_key: Some([6; 32]),
            journal_size: 8192,
            journal_tail: 4096,
            manifest_len: 64,
            manifest_check: [8; 32],
            manifest_area: 2,
            journal_prev: [9; 32],
            next_map: None,
            slot_area: 0,
            places: None,
            is_away: false,
            recoveries: 0,
        };
        let next = NextParity { loss_ppm: 5_000, tiles: 2, slots_at: 3 * 4096 };
        let places = ParityPlaces { first_tiles: 1, slots_at: 2 * 4096, next: None };
        let placed = Some(ParityPlaces { next: Some(next), ..places });
        for header in [
            ParityHeader { root_key: None, ..header.clone() },
            ParityHeader { next_map: Some(4), ..header.clone() },
            ParityHeader { slot_area: 1, ..header.clone() },
            ParityHeader { next_map: Some(4), slot_area: 1, ..header.clone() },
            ParityHeader { places: Some(places), ..header.clone() },
            ParityHeader { next_map: Some(4), places: placed, ..header.clone() },
            ParityHeader { is_away: true, ..header.clone() },
            ParityHeader { is_away: true, slot_area: 1, ..header.clone() },
            ParityHeader { is_away: true, next_map: Some(4), places: placed, ..header.clone() },
            ParityHeader { recoveries: 1, ..header.clone() },
            ParityHeader { recoveries: 2, is_away: true, ..header.clone() },
            ParityHeader { recoveries: u32::MAX, next_map: Some(4), places: placed, ..header.clone() },
            header.clone(),
        ] {
            let bytes = header.encode(sum);
            assert_eq!(ParityHeader::decode(&bytes, sum), Ok(header));
            each_byte_counts(&bytes, |bytes| ParityHeader::decode(bytes, sum).is_ok());
        }
        // Places that are none, and a code that is being made without one or the other way round.
        let bytes = ParityHeader { next_map: Some(4), places: placed, ..header }.encode(sum);
        for (field, value) in [
            ("next_map", 0_u64),
            ("first_tiles", 0),
            ("next_loss_ppm", 0),
            ("next_tiles", 0),
            ("slots_at", 4097),
            ("next_slots_at", 0),
            ("version", 2),
        ] {
            let (_, offset, length) =
                *ParityHeader::LAYOUT.fields.iter().find(|(name, ..)| *name == field).expect("a field");
            let mut bytes = bytes.clone();
            bytes[offset..offset + length].copy_from_slice(&value.to_le_bytes()[..length]);
            assert!(ParityHeader::decode(&seal(bytes, sum), sum).is_err(), "{field}");
        }
        let store = ParityTileStore {
            pool: PoolGuid(2),
            folder: 3,
            inner_size: 8192,
            address: "s3://bucket/tiles".to_owned(),
        };
        let longest = ParityTileStore { address: "a".repeat(2048), ..store.clone() };
        for store in [store, longest] {
            let bytes = store.encode(sum);
            assert_eq!(ParityTileStore::decode(&bytes, sum), Ok(store));
            each_byte_counts(&bytes, |bytes| ParityTileStore::decode(bytes, sum).is_ok());
            for (at, value) in [(72, 0), (72, 2049), (72, 5), (64, 4097), (56, 0), (44, 1)] {
                let mut bytes = bytes.clone();
                bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(value));
                assert!(ParityTileStore::decode(&seal(bytes, sum), sum).is_err(), "{value} at {at}");
            }
        }
        let tile = ParityTile { tile: 1, pool: PoolGuid(2), map: 3, generation: 4, cut: 5, hash: [6; 32] };
        assert_eq!(ParityTile::decode(&tile.encode(sum), sum), Ok(tile.clone()));
        each_byte_counts(&tile.encode(sum), |bytes| ParityTile::decode(bytes, sum).is_ok());
        for kind in [RecordKind::Add, RecordKind::Remove] {
            let record = ParityRecord { kind, pool: PoolGuid(1), position: 4096, segment, prev: [3; 32] };
            assert_eq!(ParityRecord::decode(&record.encode(sum), sum), Ok(record.clone()));
            each_byte_counts(&record.encode(sum), |bytes| ParityRecord::decode(bytes, sum).is_ok());
        }
        let segments = vec![segment, ParitySegment { store: 3, ..segment }];
        for (segments, units, left_out) in [
            (Vec::new(), Vec::new(), BTreeSet::new()),
            (segments.clone(), vec![9, 4], BTreeSet::new()),
            (segments, vec![9, 4], BTreeSet::from([segment])),
        ] {
            let manifest = ParityManifest { pool: PoolGuid(1), cut: 4096, segments, units, left_out };
            let bytes = manifest.encode(sum);
            assert_eq!(bytes.len(), ParityManifest::size(manifest.segments.len(), manifest.units.len()));
            assert_eq!(ParityManifest::decode(&bytes, sum), Ok(manifest));
            each_byte_counts(&bytes, |bytes| ParityManifest::decode(bytes, sum).is_ok());
        }
    }
}
