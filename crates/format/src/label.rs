//! Label: what a device says of itself and of its pool. Four copies on every leaf device. FORMAT.md, "Label".

use crate::feature::Feature;
use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, DeviceId, PoolGuid, Txg, WrappedKey};

/// Whether a pool may be taken.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum PoolState {
    /// A daemon holds it, or held it and did not export it.
    Active = 1,
    /// Exported: anybody may import it.
    Exported = 2,
    /// Destroyed: imported only when asked for by that word.
    Destroyed = 3,
}

/// One leaf device of the pool, as every label lists it.
///
/// | off | len | field    | meaning                         |
/// |-----|-----|----------|---------------------------------|
/// |   0 |   8 | id       | device, from 1                  |
/// |   8 |   8 | guid     | its guid                        |
/// |  16 |   4 | slots    | number of its slots             |
/// |  20 |   2 | path_len | length of the path              |
/// |  22 |   2 | reserved | zero                            |
/// |  24 |     | path     | path by which it was last opened|
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeafConfig {
    /// Device.
    pub id: DeviceId,
    /// Random name of the device.
    pub guid: u64,
    /// Number of slots.
    pub slots: u32,
    /// Path by which it was last opened.
    pub path: String,
}

/// What an auxiliary device is for.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum AuxClass {
    /// Intent log.
    Log = 1,
    /// Register that holds the only acceptable root.
    Anchor = 2,
}

/// An auxiliary device of the pool, as every label lists it.
///
/// | off | len | field    | meaning                                         |
/// |-----|-----|----------|-------------------------------------------------|
/// |   0 |   8 | guid     | its guid, not 0                                 |
/// |   8 |   1 | class    | 1 intent log, 2 anchor                          |
/// |   9 |   1 | given_up | 1 if the pool does without it for ever, else 0  |
/// |  10 |   2 | path_len | length of the path                              |
/// |  12 |   4 | reserved | zero                                            |
/// |  16 |     | path     | path by which it was last opened                |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuxConfig {
    /// What it is for.
    pub class: AuxClass,
    /// It failed or was lost. Nothing on it is needed as of the label's txg, and nothing is written to it any more.
    pub given_up: bool,
    /// Random name of the device.
    pub guid: u64,
    /// Path by which it was last opened.
    pub path: String,
}

/// Configuration part of a label.
///
/// | off | len | field        | meaning                                                          |
/// |-----|-----|--------------|------------------------------------------------------------------|
/// |   0 |   8 | magic        | "SFlabel" and a zero byte                                        |
/// |   8 |   4 | version      | 1                                                                |
/// |  12 |   4 | length       | bytes of the whole configuration                                 |
/// |  16 |  32 | checksum     | BLAKE3 of bytes 48 to `length`                                   |
/// |  48 |   8 | pool         | pool's guid                                                      |
/// |  56 |   8 | device       | this device's id; 0 on an auxiliary device                       |
/// |  64 |   8 | device_guid  | this device's guid                                               |
/// |  72 |   8 | txg          | last txg committed before the label was written                  |
/// |  80 |   8 | created_ns   | wall time of the pool's creation                                 |
/// |  88 |   1 | state        | 1 active, 2 exported, 3 destroyed                                |
/// |  89 |   1 | ashift       | log2 of the allocation unit, 9 to 13                             |
/// |  90 |   1 | key          | 1 if the pool's metadata is sealed, else 0                       |
/// |  91 |   1 | reserved     | zero                                                             |
/// |  92 |   4 | slot_size    | bytes of a slot, a power of two, 2^16 to 2^26                    |
/// |  96 |   2 | leaves       | number of leaf devices, 1 to 255                                 |
/// |  98 |   2 | features     | number of features                                               |
/// | 100 |   2 | name_len     | length of the pool's name                                        |
/// | 102 |   2 | host_len     | length of the host's name                                        |
/// | 104 |   2 | location_len | length of the key's location                                     |
/// | 106 |   2 | aux          | number of auxiliary devices                                      |
/// | 108 |  84 | reserved     | zero                                                             |
/// | 192 |     | name         | pool's name, UTF-8                                               |
/// |     |     | host         | host that wrote the label, UTF-8                                 |
/// |     |     | location     | `prompt` or `file://...`; empty unless sealed                    |
/// |     |     | wrapped      | pool master key, wrapped (120 bytes), if sealed                  |
/// |     |     | leaf ...     | a leaf, `leaves` times                                           |
/// |     |     | feature ...  | a feature, `features` times                                      |
/// |     |     | aux ...      | an auxiliary device, `aux` times                                 |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LabelConfig {
    /// Pool.
    pub pool: PoolGuid,
    /// Pool's name.
    pub name: String,
    /// This device.
    pub device: DeviceId,
    /// This device's guid.
    pub device_guid: u64,
    /// Last txg committed before the label was written.
    pub txg: Txg,
    /// When the pool was made.
    pub created_ns: u64,
    /// Whether it may be taken.
    pub state: PoolState,
    /// Host that wrote the label.
    pub host: String,
    /// Log2 of the allocation unit.
    pub ashift: u8,
    /// Bytes of a slot.
    pub slot_size: u32,
    /// All leaf devices.
    pub leaves: Vec<LeafConfig>,
    /// Features in use.
    pub features: Vec<Feature>,
    /// Auxiliary devices: what the pool uses beside its leaves.
    pub aux: Vec<AuxConfig>,
    /// Sealed pools: the pool master key, and where its user key is to be found.
    pub key: Option<(WrappedKey, String)>,
}

const MAGIC: &[u8; 8] = b"SFlabel\0";
const VERSION: u32 = 1;

impl LabelConfig {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "label",
        &[
            ("magic", 0, 8),
            ("version", 8, 4),
            ("length", 12, 4),
            ("checksum", 16, 32),
            ("pool", 48, 8),
            ("device", 56, 8),
            ("device_guid", 64, 8),
            ("txg", 72, 8),
            ("created_ns", 80, 8),
            ("state", 88, 1),
            ("ashift", 89, 1),
            ("key", 90, 1),
            ("reserved", 91, 1),
            ("slot_size", 92, 4),
            ("leaves", 96, 2),
            ("features", 98, 2),
            ("name_len", 100, 2),
            ("host_len", 102, 2),
            ("location_len", 104, 2),
            ("aux", 106, 2),
            ("reserved", 108, 84),
        ],
        &["name", "host", "location", "wrapped", "leaf", "feature", "aux"],
    );
    /// Most bytes of a configuration.
    pub const SIZE_MAX: usize = 56 << 10;
    /// Most leaf devices.
    pub const LEAVES_MAX: usize = 255;
    /// Where the bytes begin that the checksum covers.
    pub const BOUND_START: usize = 48;

    /// The configuration's bytes; `hash` is BLAKE3. `None` if it is longer than a label holds.
    #[must_use]
    pub fn encode(&self, hash: impl FnOnce(&[u8]) -> [u8; 32]) -> Option<Vec<u8>> {
        assert!(self.pool.0 != 0 && !self.leaves.is_empty());
        let short = |n: usize| u16::try_from(n).ok();
        let mut leaves = Vec::new();
        for leaf in &self.leaves {
            leaves.extend_from_slice(&leaf.encode()?);
        }
        let mut features = Vec::new();
        for feature in &self.features {
            features.extend_from_slice(&feature.encode()?);
        }
        let mut aux = Vec::new();
        for device in &self.aux {
            aux.extend_from_slice(&device.encode()?);
        }
        let location = self.key.as_ref().map_or("", |(_, location)| location);
        let wrapped = self.key.as_ref().map(|(wrapped, _)| wrapped.encode());
        let wrapped = wrapped.as_ref().map_or(&[][..], |w| w.as_slice());
        let length = Self::LAYOUT.size()
            + self.name.len()
            + self.host.len()
            + location.len()
            + wrapped.len()
            + leaves.len()
            + features.len()
            + aux.len();
        if length > Self::SIZE_MAX || self.leaves.len() > Self::LEAVES_MAX {
            return None;
        }
        let mut out = Encoder::new(&Self::LAYOUT);
        out.bytes("magic", MAGIC).u32("version", VERSION);
        out.u32("length", u32::try_from(length).expect("bounded")).bytes("checksum", &[0; 32]);
        out.u64("pool", self.pool.0).u64("device", self.device.0).u64("device_guid", self.device_guid);
        out.u64("txg", self.txg.0).u64("created_ns", self.created_ns);
        out.u8("state", self.state as u8).u8("ashift", self.ashift);
        out.u8("key", u8::from(self.key.is_some())).reserved().u32("slot_size", self.slot_size);
        out.u16("leaves", short(self.leaves.len())?).u16("features", short(self.features.len())?);
        out.u16("name_len", short(self.name.len())?).u16("host_len", short(self.host.len())?);
        out.u16("location_len", short(location.len())?).u16("aux", short(self.aux.len())?).reserved();
        out.tail("name", self.name.as_bytes()).tail("host", self.host.as_bytes());
        out.tail("location", location.as_bytes()).tail("wrapped", wrapped);
        let mut bytes = out.tail("leaf", &leaves).tail("feature", &features).tail("aux", &aux).finish();
        let checksum = hash(&bytes[Self::BOUND_START..]);
        bytes[16..48].copy_from_slice(&checksum);
        Some(bytes)
    }

    /// Reads a configuration from the front of a label's area; `hash` is BLAKE3. Bytes behind it are ignored.
    pub fn decode(area: &[u8], hash: impl FnOnce(&[u8]) -> [u8; 32]) -> Result<LabelConfig, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, area)?;
        if from.bytes("magic", 8) != MAGIC {
            return Err(DecodeError::Magic { structure: "label" });
        }
        let found = from.u32("version");
        if found != VERSION {
            return Err(DecodeError::Version { structure: "label", found, known: VERSION });
        }
        let length = from.u32("length") as usize;
        if length < Self::LAYOUT.size() || length > Self::SIZE_MAX.min(area.len()) {
            return Err(from.refuse("length", length as u64));
        }
        let bytes = &area[..length];
        if hash(&bytes[Self::BOUND_START..]) != area[16..48] {
            return Err(DecodeError::Checksum { structure: "label" });
        }

        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        from.bytes("magic", 8);
        from.u32("version");
        from.u32("length");
        from.bytes("checksum", 32);
        let pool = PoolGuid(from.u64("pool"));
        if pool.0 == 0 {
            return Err(from.refuse("pool", 0u64));
        }
        let (device, device_guid) = (DeviceId(from.u64("device")), from.u64("device_guid"));
        let (txg, created_ns) = (Txg(from.u64("txg")), from.u64("created_ns"));
        let state = match from.u8("state") {
            1 => PoolState::Active,
            2 => PoolState::Exported,
            3 => PoolState::Destroyed,
            other => return Err(from.refuse("state", other)),
        };
        let ashift = from.u8("ashift");
        if !(9..=13).contains(&ashift) {
            return Err(from.refuse("ashift", ashift));
        }
        let sealed = from.u8("key");
        if sealed > 1 {
            return Err(from.refuse("key", sealed));
        }
        from.reserved()?;
        let slot_size = from.u32("slot_size");
        if !slot_size.is_power_of_two() || !(1 << 16..=1 << 26).contains(&slot_size) {
            return Err(from.refuse("slot_size", slot_size));
        }
        let leaf_count = usize::from(from.u16("leaves"));
        if !(1..=Self::LEAVES_MAX).contains(&leaf_count) {
            return Err(from.refuse("leaves", leaf_count as u64));
        }
        let feature_count = from.u16("features");
        let (name_len, host_len) = (from.u16("name_len"), from.u16("host_len"));
        let location_len = from.u16("location_len");
        if sealed == 0 && location_len != 0 {
            return Err(from.refuse("location_len", location_len));
        }
        let aux_count = from.u16("aux");
        from.reserved()?;
        let name = from.tail_text("name", name_len.into())?;
        let host = from.tail_text("host", host_len.into())?;
        let location = from.tail_text("location", location_len.into())?;
        let key = if sealed == 1 {
            Some((WrappedKey::decode(from.tail("wrapped", WrappedKey::ENCODED_SIZE)?)?, location))
        } else {
            from.tail("wrapped", 0)?;
            None
        };
        let (mut leaves, mut length) = (Vec::<LeafConfig>::with_capacity(leaf_count), 0);
        for _ in 0..leaf_count {
            let (leaf, taken) = LeafConfig::decode(&from.rest()[length..])?;
            if leaves.iter().any(|other| other.id == leaf.id) {
                return Err(from.refuse("leaf", leaf.id.0));
            }
            leaves.push(leaf);
            length += taken;
        }
        from.tail("leaf", length)?;
        let (mut features, mut length) = (Vec::new(), 0);
        for _ in 0..feature_count {
            let (feature, taken) = Feature::decode(&from.rest()[length..])?;
            features.push(feature);
            length += taken;
        }
        from.tail("feature", length)?;
        let (mut aux, mut length) = (Vec::new(), 0);
        for _ in 0..aux_count {
            let (device, taken) = AuxConfig::decode(&from.rest()[length..])?;
            aux.push(device);
            length += taken;
        }
        from.tail("aux", length)?;
        from.finish()?;
        let own = match device.0 {
            0 => aux.iter().any(|device| device.guid == device_guid),
            _ => leaves.iter().any(|leaf| leaf.id == device && leaf.guid == device_guid),
        };
        if !own {
            return Err(DecodeError::Field { structure: "label", field: "device", value: device.0 });
        }
        Ok(LabelConfig {
            pool,
            name,
            device,
            device_guid,
            txg,
            created_ns,
            state,
            host,
            ashift,
            slot_size,
            leaves,
            features,
            aux,
            key,
        })
    }
}

impl LeafConfig {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "leaf",
        &[("id", 0, 8), ("guid", 8, 8), ("slots", 16, 4), ("path_len", 20, 2), ("reserved", 22, 2)],
        &["path"],
    );

    /// The leaf's bytes; `None` if its path is too long for a label.
    fn encode(&self) -> Option<Vec<u8>> {
        assert!(self.id.0 != 0);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("id", self.id.0).u64("guid", self.guid).u32("slots", self.slots);
        out.u16("path_len", u16::try_from(self.path.len()).ok()?).reserved();
        Some(out.tail("path", self.path.as_bytes()).finish())
    }

    /// Reads one leaf off the front, and how many bytes it took.
    fn decode(bytes: &[u8]) -> Result<(LeafConfig, usize), DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let (id, guid, slots) = (DeviceId(from.u64("id")), from.u64("guid"), from.u32("slots"));
        if id.0 == 0 {
            return Err(from.refuse("id", 0u64));
        }
        let path_len = from.u16("path_len");
        from.reserved()?;
        let path = from.tail_text("path", path_len.into())?;
        Ok((LeafConfig { id, guid, slots, path }, from.taken()))
    }
}

impl AuxConfig {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "aux",
        &[("guid", 0, 8), ("class", 8, 1), ("given_up", 9, 1), ("path_len", 10, 2), ("reserved", 12, 4)],
        &["path"],
    );

    /// The device's bytes; `None` if its path is too long for a label.
    fn encode(&self) -> Option<Vec<u8>> {
        assert!(self.guid != 0);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("guid", self.guid).u8("class", self.class as u8).u8("given_up", u8::from(self.given_up));
        out.u16("path_len", u16::try_from(self.path.len()).ok()?).reserved();
        Some(out.tail("path", self.path.as_bytes()).finish())
    }

    /// Reads one device off the front, and how many bytes it took.
    fn decode(bytes: &[u8]) -> Result<(AuxConfig, usize), DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let guid = from.u64("guid");
        if guid == 0 {
            return Err(from.refuse("guid", 0u64));
        }
        let class = match from.u8("class") {
            1 => AuxClass::Log,
            2 => AuxClass::Anchor,
            other => return Err(from.refuse("class", other)),
        };
        let given_up = from.u8("given_up");
        if given_up > 1 {
            return Err(from.refuse("given_up", given_up));
        }
        let path_len = from.u16("path_len");
        from.reserved()?;
        let path = from.tail_text("path", path_len.into())?;
        Ok((AuxConfig { class, given_up: given_up == 1, guid, path }, from.taken()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: &[u8]) -> [u8; 32] {
        let sum = bytes.iter().fold(1u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
        [sum; 32]
    }

    fn sample() -> LabelConfig {
        LabelConfig {
            pool: PoolGuid(1),
            name: "tank".into(),
            device: DeviceId(1),
            device_guid: 2,
            txg: Txg(3),
            created_ns: 4,
            state: PoolState::Active,
            host: "host".into(),
            ashift: 12,
            slot_size: 1 << 20,
            leaves: vec![LeafConfig { id: DeviceId(1), guid: 2, slots: 255, path: "a.img".into() }],
            features: vec![Feature::known("zstd").unwrap()],
            aux: vec![
                AuxConfig { class: AuxClass::Anchor, given_up: false, guid: 7, path: "a.anchor".into() },
                AuxConfig { class: AuxClass::Log, given_up: true, guid: 8, path: "a.log".into() },
            ],
            key: None,
        }
    }

    #[test]
    fn a_label_is_read_back_from_a_larger_area() {
        let mut area = sample().encode(hash).unwrap();
        let length = area.len();
        area.resize(LabelConfig::SIZE_MAX, 0x55);
        assert_eq!(LabelConfig::decode(&area, hash), Ok(sample()));
        for end in 0..length {
            assert!(LabelConfig::decode(&area[..end], hash).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn a_label_that_does_not_list_its_own_device_is_refused() {
        let strange = LabelConfig { device_guid: 99, ..sample() };
        assert!(LabelConfig::decode(&strange.encode(hash).unwrap(), hash).is_err());
        // The same of devices that are no leaves.
        let log = LabelConfig { device: DeviceId(0), device_guid: 8, ..sample() };
        assert_eq!(LabelConfig::decode(&log.encode(hash).unwrap(), hash), Ok(log));
        let leaf = LabelConfig { device: DeviceId(0), ..sample() };
        assert!(LabelConfig::decode(&leaf.encode(hash).unwrap(), hash).is_err());
    }

    #[test]
    fn a_label_that_would_not_fit_is_not_written() {
        let long = LabelConfig { host: "h".repeat(LabelConfig::SIZE_MAX), ..sample() };
        assert_eq!(long.encode(hash), None);
    }
}
