//! Label: what a device says of itself and of its pool. Four copies on every leaf device.
//! FORMAT.md, "Label".

use crate::feature::Feature;
use crate::layout::{Decoder, Encoder, Layout};
use crate::{DecodeError, DeviceId, Placement, PoolGuid, SegmentRow, Txg, WrappedKey};

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
/// |  22 |   1 | group    | its group, from 1; 0 if it stands alone |
/// |  23 |   1 | state    | 0 in use, 1 offline, 2 faulted, 3 gone, 4 leaving, 5 spared, 6 parted |
/// |  24 |     | path     | path by which it was last opened|
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LeafConfig {
    /// Device.
    pub id: DeviceId,
    /// Random name of the device.
    pub guid: u64,
    /// Number of slots.
    pub slots: u32,
    /// Its group; 0 if it stands alone.
    pub group: u8,
    /// Whether the pool writes to it.
    pub state: LeafState,
    /// Path by which it was last opened.
    pub path: String,
}

/// Whether a pool writes to one of its leaves.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum LeafState {
    /// It does.
    #[default]
    Online = 0,
    /// The operator took it out of use; what it holds counts.
    Offline = 1,
    /// It failed too often.
    Faulted = 2,
    /// It could not be opened when the pool was last imported.
    Gone = 3,
    /// It is read, and what it holds moves to others; then it leaves.
    Leaving = 4,
    /// It is out of use, and a spare holds all that it should: it counts for nothing until it is
    /// back or replaced.
    Spared = 5,
    /// It went to another pool by a split: nothing on it is needed. One that is found is in use
    /// again. Feature `split`.
    Parted = 6,
}

/// Layout of a group's columns.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum GroupKind {
    /// Every column holds all bytes.
    Mirror,
    /// Rows with 1 to 3 columns of parity.
    Raidz(u8),
}

/// Leaves that keep segments together, as every label lists them. With the feature `uneven_devices`
/// a segment of a raidz group may have fewer columns than `width`.
///
/// | off | len | field    | meaning                                                        |
/// |-----|-----|----------|----------------------------------------------------------------|
/// |   0 |   1 | id       | group, from 1                                                  |
/// |   1 |   1 | kind     | 1 mirror, 2 raidz                                              |
/// |   2 |   1 | parity   | columns of parity, 1 to 3; 0 of a mirror                       |
/// |   3 |   1 | width    | columns of a new segment: 1 to 4 of a mirror, parity + 1 to 32 |
/// |   4 |   4 | column   | bytes of a slot on its leaves                                  |
/// |   8 |   1 | class    | 0 holds everything, 1 special: metadata and small blocks       |
/// |   9 |   7 | reserved | zero                                                           |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GroupConfig {
    /// Group.
    pub id: u8,
    /// Layout of its columns.
    pub kind: GroupKind,
    /// Columns of a new segment.
    pub width: u8,
    /// Bytes of a slot on its leaves: what a column of a segment takes.
    pub column: u32,
    /// Class of its content. Feature `special_devices`.
    pub class: GroupClass,
}

/// Class of a group's content.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum GroupClass {
    /// Everything.
    #[default]
    Normal = 0,
    /// Metadata, and small blocks of file content.
    Special = 1,
}

/// Purpose of an auxiliary device.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum AuxClass {
    /// Intent log.
    Log = 1,
    /// Register that holds the only acceptable root.
    Anchor = 2,
    /// Steps in for a leaf that is out of use.
    Spare = 3,
    /// Keeps what was read from slower devices. Nothing on it is needed.
    Cache = 4,
    /// Holds the code from which lost objects come back.
    Parity = 5,
}

/// The device that a spare in use stands in for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Standing {
    /// The leaf that it is meanwhile.
    pub leaf: DeviceId,
    /// The leaf that it stands for.
    pub instead: DeviceId,
}

/// State of a log device in labels. Feature `log_mirrors`, unless it stands alone and is in use.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct LogPart {
    /// Its mirror, from 1; 0 if it stands alone.
    pub mirror: u8,
    /// Why nothing is written to it, for the time being. Of one that is given up nothing is said.
    pub out: Option<LogOut>,
}

/// Why a log device is out of use, and not for ever.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum LogOut {
    /// The operator took it out of use.
    Offline = 2,
    /// Another device of its mirror was enough when the pool was last imported. One that is found
    /// is in use again.
    Gone = 3,
}

/// An auxiliary device of the pool, as every label lists it.
///
/// | off | len | field    | meaning |
/// |-----|-----|----------|---|
/// |   0 |   8 | guid     | its guid, not 0 |
/// |   8 |   1 | class    | 1 intent log, 2 anchor, 3 spare, 4 cache, 5 parity |
/// |   9 |   1 | given_up | 1 if the pool does without it; of a log device 2 offline, 3 gone; else 0 |
/// |  10 |   2 | path_len | length of the path |
/// |  12 |   2 | leaf     | of a spare in use, the leaf that it is; of a log device its mirror, 1 to 255; else 0 |
/// |  14 |   2 | instead  | of a spare in use, the leaf that it stands for; else 0 |
/// |  16 |     | path     | path by which it was last opened |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuxConfig {
    /// Its purpose.
    pub class: AuxClass,
    /// It failed, was lost, or is a cache device that somebody took out of use. Nothing on it is
    /// needed as of the label's txg, and nothing is written to it any more.
    pub given_up: bool,
    /// Random name of the device.
    pub guid: u64,
    /// Path by which it was last opened.
    pub path: String,
    /// Of a spare in use, what it stands for.
    pub standing: Option<Standing>,
    /// Of a log device, which mirror it is of and whether it is out of use.
    pub log: LogPart,
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
/// | 108 |   1 | groups       | number of groups                                                 |
/// | 109 |   3 | reserved     | zero                                                             |
/// | 112 |   8 | known_as     | number by which people know the pool; 0: by `pool`               |
/// | 120 |   8 | becoming     | number by which it is about to be known; else 0                  |
/// | 128 |  64 | reserved     | zero                                                             |
/// | 192 |     | name         | pool's name, UTF-8                                               |
/// |     |     | host         | host that wrote the label, UTF-8                                 |
/// |     |     | location     | `prompt` or `file://...`; empty unless sealed                    |
/// |     |     | wrapped      | pool master key, wrapped (120 bytes), if sealed                  |
/// |     |     | leaf ...     | a leaf, `leaves` times                                           |
/// |     |     | feature ...  | a feature, `features` times                                      |
/// |     |     | aux ...      | an auxiliary device, `aux` times                                 |
/// |     |     | group ...    | a group, `groups` times                                          |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LabelConfig {
    /// Pool: what its blocks, uberblocks and keys are bound to, for its life.
    pub pool: PoolGuid,
    /// Number by which people know it, if not by that. Feature `renumbered`.
    pub known_as: Option<PoolGuid>,
    /// Number by which it is about to be known.
    pub becoming: Option<PoolGuid>,
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
    /// Groups of leaves, with ascending ids. Feature `redundancy`.
    pub groups: Vec<GroupConfig>,
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
            ("groups", 108, 1),
            ("reserved", 109, 3),
            ("known_as", 112, 8),
            ("becoming", 120, 8),
            ("reserved", 128, 64),
        ],
        &["name", "host", "location", "wrapped", "leaf", "feature", "aux", "group"],
    );
    /// Most bytes of a configuration.
    pub const SIZE_MAX: usize = 56 << 10;
    /// Most leaf devices.
    pub const LEAVES_MAX: usize = 255;
    /// Most groups.
    pub const GROUPS_MAX: usize = 255;

    /// Number by which people know the pool.
    #[must_use]
    pub fn guid(&self) -> PoolGuid {
        self.known_as.unwrap_or(self.pool)
    }

    /// Bytes of a slot on a leaf.
    #[must_use]
    pub fn column_of(&self, leaf: &LeafConfig) -> u32 {
        let group = self.groups.iter().find(|group| group.id == leaf.group);
        group.map_or(self.slot_size, |group| group.column)
    }

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
            + aux.len()
            + self.groups.len() * GroupConfig::LAYOUT.size();
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
        out.u16("location_len", short(location.len())?).u16("aux", short(self.aux.len())?);
        out.u8("groups", u8::try_from(self.groups.len()).ok()?).reserved();
        let number = |guid: Option<PoolGuid>| guid.map_or(0, |guid| guid.0);
        out.u64("known_as", number(self.known_as)).u64("becoming", number(self.becoming)).reserved();
        out.tail("name", self.name.as_bytes()).tail("host", self.host.as_bytes());
        out.tail("location", location.as_bytes()).tail("wrapped", wrapped);
        let bytes = out.tail("leaf", &leaves).tail("feature", &features).tail("aux", &aux);
        let groups: Vec<u8> = self.groups.iter().flat_map(GroupConfig::encode).collect();
        let mut bytes = bytes.tail("group", &groups).finish();
        let checksum = hash(&bytes[Self::BOUND_START..]);
        bytes[16..48].copy_from_slice(&checksum);
        Some(bytes)
    }

    /// Reads a configuration from the front of a label's area; `hash` is BLAKE3. Bytes behind it
    /// are ignored.
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
        let group_count = usize::from(from.u8("groups"));
        from.reserved()?;
        let number = |guid: u64| (guid != 0).then_some(PoolGuid(guid));
        let (known_as, becoming) = (number(from.u64("known_as")), number(from.u64("becoming")));
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
        let stored = from.tail("group", group_count * GroupConfig::LAYOUT.size())?;
        let groups = stored.chunks_exact(GroupConfig::LAYOUT.size()).map(GroupConfig::decode);
        let groups = groups.collect::<Result<Vec<_>, _>>()?;
        if let Some(pair) = groups.windows(2).find(|pair| pair[0].id >= pair[1].id) {
            return Err(from.refuse("group", pair[1].id));
        }
        // A leaf of a group has the group, and a group has leaves for its segments.
        let homeless =
            |leaf: &&LeafConfig| leaf.group != 0 && !groups.iter().any(|group| group.id == leaf.group);
        if let Some(leaf) = leaves.iter().find(homeless) {
            return Err(from.refuse("leaf", leaf.group));
        }
        let members = |group: &GroupConfig| leaves.iter().filter(|leaf| leaf.group == group.id).count();
        if let Some(group) = groups.iter().find(|group| members(group) < usize::from(group.width)) {
            return Err(from.refuse("group", group.id));
        }
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
            known_as,
            becoming,
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
            groups,
            key,
        })
    }
}

impl LeafConfig {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "leaf",
        &[
            ("id", 0, 8),
            ("guid", 8, 8),
            ("slots", 16, 4),
            ("path_len", 20, 2),
            ("group", 22, 1),
            ("state", 23, 1),
        ],
        &["path"],
    );

    /// The leaf's bytes; `None` if its path is too long for a label.
    fn encode(&self) -> Option<Vec<u8>> {
        assert!(self.id.0 != 0);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("id", self.id.0).u64("guid", self.guid).u32("slots", self.slots);
        out.u16("path_len", u16::try_from(self.path.len()).ok()?);
        out.u8("group", self.group).u8("state", self.state as u8);
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
        let group = from.u8("group");
        let state = match from.u8("state") {
            0 => LeafState::Online,
            1 => LeafState::Offline,
            2 => LeafState::Faulted,
            3 => LeafState::Gone,
            4 => LeafState::Leaving,
            5 => LeafState::Spared,
            6 => LeafState::Parted,
            other => return Err(from.refuse("state", other)),
        };
        let path = from.tail_text("path", path_len.into())?;
        Ok((LeafConfig { id, guid, slots, group, state, path }, from.taken()))
    }
}

impl GroupConfig {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "group",
        &[
            ("id", 0, 1),
            ("kind", 1, 1),
            ("parity", 2, 1),
            ("width", 3, 1),
            ("column", 4, 4),
            ("class", 8, 1),
            ("reserved", 9, 7),
        ],
        &[],
    );

    /// The group's bytes.
    fn encode(&self) -> Vec<u8> {
        assert!(self.id != 0 && self.width_is_possible(), "{self:?}");
        let (kind, parity) = match self.kind {
            GroupKind::Mirror => (1, 0),
            GroupKind::Raidz(parity) => (2, parity),
        };
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("id", self.id).u8("kind", kind).u8("parity", parity).u8("width", self.width);
        out.u32("column", self.column).u8("class", self.class as u8).reserved().finish()
    }

    /// Reads a group.
    fn decode(bytes: &[u8]) -> Result<GroupConfig, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let id = from.u8("id");
        if id == 0 {
            return Err(from.refuse("id", id));
        }
        let (kind, parity) = (from.u8("kind"), from.u8("parity"));
        let kind = match (kind, parity) {
            (1, 0) => GroupKind::Mirror,
            (2, 1..=Placement::PARITY_MAX) => GroupKind::Raidz(parity),
            (1 | 2, _) => return Err(from.refuse("parity", parity)),
            _ => return Err(from.refuse("kind", kind)),
        };
        let (width, column) = (from.u8("width"), from.u32("column"));
        let class = match from.u8("class") {
            0 => GroupClass::Normal,
            1 => GroupClass::Special,
            other => return Err(from.refuse("class", other)),
        };
        let group = GroupConfig { id, kind, width, column, class };
        if !group.width_is_possible() {
            return Err(from.refuse("width", group.width));
        }
        if group.column == 0 || !group.column.is_multiple_of(4096) || group.column > 1 << 26 {
            return Err(from.refuse("column", group.column));
        }
        from.reserved()?;
        from.finish()?;
        Ok(group)
    }

    fn width_is_possible(&self) -> bool {
        let width = usize::from(self.width);
        match self.kind {
            GroupKind::Mirror => (1..=Placement::COPIES_MAX).contains(&width),
            GroupKind::Raidz(parity) => (usize::from(parity) + 1..=SegmentRow::COLUMNS_MAX).contains(&width),
        }
    }
}

impl AuxConfig {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "aux",
        &[
            ("guid", 0, 8),
            ("class", 8, 1),
            ("given_up", 9, 1),
            ("path_len", 10, 2),
            ("leaf", 12, 2),
            ("instead", 14, 2),
        ],
        &["path"],
    );

    /// A device that is in use, stands for no leaf and is of no mirror.
    #[must_use]
    pub fn new(class: AuxClass, guid: u64, path: String) -> AuxConfig {
        AuxConfig { class, given_up: false, guid, path, standing: None, log: LogPart::default() }
    }

    /// False of a log device that is given up, offline or gone: it may lack what others of its
    /// mirror have.
    #[must_use]
    pub fn is_in_use(&self) -> bool {
        !self.given_up && self.log.out.is_none()
    }

    /// The device's bytes; `None` if its path is too long for a label.
    fn encode(&self) -> Option<Vec<u8>> {
        assert!(self.guid != 0);
        assert!(self.class == AuxClass::Log || self.log == LogPart::default(), "{self:?}");
        let given_up = match self.log.out {
            _ if self.given_up => 1,
            Some(out) => out as u8,
            None => 0,
        };
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("guid", self.guid).u8("class", self.class as u8).u8("given_up", given_up);
        let device = |id: DeviceId| u16::try_from(id.0).expect("leaves of groups have two bytes");
        let standing =
            |part: fn(&Standing) -> DeviceId| self.standing.as_ref().map_or(0, |s| device(part(s)));
        out.u16("path_len", u16::try_from(self.path.len()).ok()?);
        let leaf = match self.class {
            AuxClass::Log => u16::from(self.log.mirror),
            _ => standing(|standing| standing.leaf),
        };
        out.u16("leaf", leaf).u16("instead", standing(|standing| standing.instead));
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
            3 => AuxClass::Spare,
            4 => AuxClass::Cache,
            5 => AuxClass::Parity,
            other => return Err(from.refuse("class", other)),
        };
        let given_up = from.u8("given_up");
        let out = match given_up {
            0 | 1 => None,
            2 if class == AuxClass::Log => Some(LogOut::Offline),
            3 if class == AuxClass::Log => Some(LogOut::Gone),
            _ => return Err(from.refuse("given_up", given_up)),
        };
        let path_len = from.u16("path_len");
        let (leaf, instead) = (from.u16("leaf"), from.u16("instead"));
        let mirror = match (class, u8::try_from(leaf)) {
            (AuxClass::Log, Ok(mirror)) => mirror,
            (AuxClass::Log, Err(_)) => return Err(from.refuse("leaf", leaf)),
            _ => 0,
        };
        let standing = match (if class == AuxClass::Log { 0 } else { leaf }, instead) {
            (0, 0) => None,
            (0, _) if class == AuxClass::Log => return Err(from.refuse("instead", instead)),
            (0, _) => return Err(from.refuse("leaf", leaf)),
            _ if class != AuxClass::Spare => return Err(from.refuse("leaf", leaf)),
            (_, 0) => return Err(from.refuse("instead", instead)),
            _ => Some(Standing { leaf: DeviceId(leaf.into()), instead: DeviceId(instead.into()) }),
        };
        let path = from.tail_text("path", path_len.into())?;
        let log = LogPart { mirror, out };
        Ok((AuxConfig { class, given_up: given_up == 1, guid, path, standing, log }, from.taken()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(bytes: &[u8]) -> [u8; 32] {
        let sum = bytes.iter().fold(1u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(*byte));
        [sum; 32]
    }

    fn leaf(id: u64, group: u8) -> LeafConfig {
        let state = LeafState::Online;
        LeafConfig { id: DeviceId(id), guid: id + 1, slots: 255, group, state, path: "a.img".into() }
    }

    fn sample() -> LabelConfig {
        LabelConfig {
            pool: PoolGuid(1),
            known_as: None,
            becoming: None,
            name: "tank".into(),
            device: DeviceId(1),
            device_guid: 2,
            txg: Txg(3),
            created_ns: 4,
            state: PoolState::Active,
            host: "host".into(),
            ashift: 12,
            slot_size: 1 << 20,
            leaves: vec![leaf(1, 0)],
            features: vec![Feature::known("zstd").unwrap()],
            aux: vec![
                AuxConfig {
                    class: AuxClass::Anchor,
                    given_up: false,
                    guid: 7,
                    path: "a.anchor".into(),
                    standing: None,
                    log: LogPart::default(),
                },
                AuxConfig {
                    class: AuxClass::Log,
                    given_up: true,
                    guid: 8,
                    path: "a.log".into(),
                    standing: None,
                    log: LogPart::default(),
                },
            ],
            groups: Vec::new(),
            key: None,
        }
    }

    #[test]
    fn groups_are_read_back_and_impossible_ones_refused() {
        let group = |id, kind, width| {
            let class = if id == 5 { GroupClass::Special } else { GroupClass::Normal };
            GroupConfig { id, kind, width, column: 1 << 18, class }
        };
        let groups = vec![group(2, GroupKind::Raidz(2), 4), group(5, GroupKind::Mirror, 2)];
        let mut leaves: Vec<_> = (1..=5).map(|id| leaf(id, 2)).chain((6..=7).map(|id| leaf(id, 5))).collect();
        (leaves[3].state, leaves[4].state) = (LeafState::Faulted, LeafState::Parted);
        let label = LabelConfig { groups: groups.clone(), leaves: leaves.clone(), ..sample() };
        assert_eq!(LabelConfig::decode(&label.encode(hash).unwrap(), hash), Ok(label.clone()));
        // Twice the same group; a leaf of none; a group with fewer leaves than columns.
        let twice = vec![groups[0].clone(), groups[0].clone()];
        let few = leaves[3..].to_vec();
        for wrong in [
            LabelConfig { groups: twice, ..label.clone() },
            LabelConfig { groups: groups[..1].to_vec(), ..label.clone() },
            LabelConfig { leaves: [&[leaf(1, 0)], &few[..]].concat(), ..label.clone() },
        ] {
            assert!(LabelConfig::decode(&wrong.encode(hash).unwrap(), hash).is_err());
        }
        for (at, value) in [(0, 0), (1, 3), (2, 4), (3, 2), (3, 33), (5, 1), (8, 2), (9, 1)] {
            let mut bad = groups[0].encode();
            bad[at] = value;
            assert!(GroupConfig::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_spare_says_what_it_stands_for_and_nothing_else_does() {
        let standing = Some(Standing { leaf: DeviceId(9), instead: DeviceId(3) });
        let spare = AuxConfig {
            class: AuxClass::Spare,
            given_up: false,
            guid: 5,
            path: "s.img".into(),
            standing,
            log: LogPart::default(),
        };
        let bytes = spare.encode().unwrap();
        assert_eq!(AuxConfig::decode(&bytes), Ok((spare.clone(), bytes.len())));
        let waiting = AuxConfig { standing: None, ..spare };
        let idle = waiting.encode().unwrap();
        assert_eq!(AuxConfig::decode(&idle), Ok((waiting, idle.len())));
        for (at, value) in [(8, 1), (8, 4), (12, 0), (14, 0)] {
            let mut bad = bytes.clone();
            bad[at] = value;
            assert!(AuxConfig::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_log_device_says_its_mirror_and_why_it_is_out_and_nothing_else_does() {
        let log = |mirror, out| AuxConfig {
            class: AuxClass::Log,
            given_up: false,
            guid: 5,
            path: "l.img".into(),
            standing: None,
            log: LogPart { mirror, out },
        };
        for aux in [
            log(0, None),
            log(1, None),
            log(255, Some(LogOut::Offline)),
            log(0, Some(LogOut::Offline)),
            log(7, Some(LogOut::Gone)),
            AuxConfig { given_up: true, ..log(7, None) },
        ] {
            let bytes = aux.encode().unwrap();
            assert_eq!(AuxConfig::decode(&bytes), Ok((aux, bytes.len())));
        }
        // Of no other class; no fourth reason; no mirror of two bytes; and it stands for nobody.
        let bytes = log(1, Some(LogOut::Gone)).encode().unwrap();
        for (at, value) in [(8, 2), (8, 3), (8, 4), (9, 4), (13, 1), (14, 1)] {
            let mut bad = bytes.clone();
            bad[at] = value;
            assert!(AuxConfig::decode(&bad).is_err(), "byte {at}");
        }
        // One that is given up says so, whatever it was before.
        let given_up = AuxConfig { given_up: true, ..log(7, Some(LogOut::Offline)) };
        let (read, _) = AuxConfig::decode(&given_up.encode().unwrap()).unwrap();
        assert_eq!(read, AuxConfig { given_up: true, ..log(7, None) });
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
