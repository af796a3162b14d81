//! From devices to a readable pool: label, key, ring, tail. Like import, but every obstacle is a
//! finding, and nothing is refused that can still be read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_blockio::{BlockIo, Error as BlockError, ReadContext};
use steadfast_crypto::{BlockKeys, Key, Verified};
use steadfast_env::Env;
use steadfast_format::{
    Address, AnchorRecord, BlockKind, BlockPointer, Column, CommitTail, DatasetId, DeviceId, LabelConfig,
    LeafConfig, LeafState, LogHead, Placement, Txg, Uberblock, medium,
};
use steadfast_segment::{Geometry, ReadError, Space, groups_of};

use crate::columns;
use crate::finding::{At, Bookmark};
use crate::keys::{self, Secret};
use crate::leaf::{self, Leaf, RingSlot, Tag};
use crate::table::{Piece, Table};
use crate::{Finding, Found};

/// Devices and keys that lead to a pool.
pub struct Request<'a> {
    /// Devices of one pool, in any order.
    pub leaves: &'a [Leaf],
    /// Opens a sealed pool and encrypted datasets: passphrase, 32 bytes or 64 digits, as each key's
    /// format says.
    pub secret: Option<Vec<u8>>,
    /// Record of the pool's anchor, if it has one and the register was read: the root it names is
    /// the one that is checked. Later uberblocks in the rings were never acknowledged, and their
    /// blocks may be overwritten.
    pub anchor: Option<&'a AnchorRecord>,
    /// The world.
    pub env: &'a Env,
}

/// An uberblock and where it was found.
pub(crate) struct Seen {
    pub leaf: usize,
    pub copy: usize,
    pub slot: usize,
    pub content: RingSlot,
}

/// Label, keys and rings of a pool: what can be known before its first block is read.
pub(crate) struct Front {
    pub config: LabelConfig,
    /// For each device given, its number in the pool if it is one of this pool.
    pub devices: Vec<Option<usize>>,
    /// Log devices among them: guid, txg of the label, and the device.
    pub logs: Vec<(u64, Txg, Leaf)>,
    pub secret: Secret,
    /// Keys of the pool's own metadata, if it is sealed and the secret opens it.
    pub keys: Option<Arc<BlockKeys>>,
    pub seen: Vec<Seen>,
    /// Index in `seen` of the uberblock that counts.
    pub newest: Option<usize>,
    /// The anchored root, where the devices do not have it.
    pub recorded: Option<Uberblock>,
    /// It leads to the checkpoint's root, not to the newest.
    pub is_checkpoint: bool,
    /// A device holds whole objects.
    pub is_on_stores: bool,
    /// Devices of whole objects.
    stores: BTreeSet<DeviceId>,
    /// Txg of the anchored root, if one was named and found.
    pub anchored: Option<Txg>,
    /// How far its record vouches for the intent log behind it.
    pub promised: Option<LogHead>,
}

impl Front {
    /// Reads labels and rings.
    pub fn open(request: &Request<'_>, found: &mut Found<'_>) -> Option<Front> {
        let copies: Vec<_> = request.leaves.iter().map(|leaf| leaf::label_copies(&*leaf.device)).collect();
        for (leaf, copies) in request.leaves.iter().zip(&copies) {
            leaf::check_label(leaf, copies, found);
        }
        let labels: Vec<Option<&LabelConfig>> =
            copies.iter().map(|copies| leaf::newest_label(copies)).collect();
        let blank = request.leaves.iter().zip(&labels).filter(|(_, label)| label.is_none());
        let blank: Vec<String> = blank.map(|(leaf, _)| leaf.path.clone()).collect();
        let Some(pool) = labels.iter().flatten().next().map(|label| label.pool) else {
            blank.into_iter().for_each(|path| found(Finding::LabelNone { path }));
            return None;
        };
        let ours = labels.iter().flatten().filter(|label| label.pool == pool);
        // A leaf's label counts before a log device's, which may have been given up.
        let config = (*ours.rev().max_by_key(|label| (label.device.0 != 0, label.txg))?).clone();
        let mut logs = Vec::new();
        let mut devices: Vec<Option<usize>> = Vec::new();
        for (leaf, label) in request.leaves.iter().zip(&labels) {
            if let Some(label) = label.filter(|label| label.pool == pool && label.device.0 == 0) {
                logs.push((label.device_guid, label.txg, leaf.clone()));
            }
            let path = leaf.path.clone();
            // A device that the pool does without holds old state.
            let known = |label: &&LabelConfig| {
                let is_it = |l: &LeafConfig| l.guid == label.device_guid && columns::out_of_use(l).is_none();
                config.leaves.iter().position(is_it)
            };
            let at = match label {
                None => None,
                Some(label) if label.pool != pool => {
                    found(Finding::DeviceForeign { path, pool: label.pool });
                    None
                }
                Some(label) => match known(label) {
                    Some(at) if devices.contains(&Some(at)) => {
                        found(Finding::DeviceTwice { path, device: label.device });
                        None
                    }
                    at => at,
                },
            };
            devices.push(at);
        }
        let given = |leaf: &LeafConfig| {
            let at = config.leaves.iter().position(|listed| listed.id == leaf.id);
            devices.contains(&at)
        };
        let enough = columns::check_devices(&config, &given, found);
        for path in blank {
            found(if enough { Finding::LabelSpared { path } } else { Finding::LabelNone { path } });
        }

        let mut secret = Secret::new(request.secret.clone(), request.env.clone());
        let (mut keys, mut tag_key) = (None, None);
        if let Some((wrapped, _)) = &config.key {
            match secret.unwrap(wrapped, &keys::pool_wrap_aad(config.pool)) {
                Ok(master) => {
                    tag_key = Some(keys::tag_key(&master));
                    keys = Some(secret.block_keys(master));
                }
                Err(reason) if secret.is_given() => {
                    found(Finding::KeyWrong { what: "the pool's metadata".to_owned(), reason });
                }
                Err(_) => {}
            }
        }
        let is_store = |(leaf, at): (&Leaf, &Option<usize>)| {
            let at = at.filter(|_| !leaf.device.character().appendable)?;
            config.leaves.get(at).map(|leaf| leaf.id)
        };
        let stores = request.leaves.iter().zip(&devices).filter_map(is_store).collect();
        let mut front = Front {
            stores,
            config,
            devices,
            logs,
            secret,
            keys,
            seen: Vec::new(),
            newest: None,
            anchored: None,
            promised: None,
            recorded: None,
            is_checkpoint: false,
            is_on_stores: request.leaves.iter().any(|leaf| leaf.device.objects().is_some()),
        };
        front.read_rings(request.leaves, tag_key.as_ref(), found);
        front.choose_anchored(request.anchor);
        Some(front)
    }

    /// The anchored root counts, wherever it is among those that were seen ([anchor.3]).
    fn choose_anchored(&mut self, record: Option<&AnchorRecord>) {
        let Some(record) = record.filter(|record| record.pool == self.config.pool) else { return };
        let is_it =
            |seen: &Seen| matches!(&seen.content, RingSlot::Uberblock { tag, .. } if *tag == record.root_tag);
        if let Some(at) = self.seen.iter().rposition(is_it) {
            (self.newest, self.anchored) = (Some(at), Some(record.txg()));
            self.promised = Some(record.log);
        } else if self.is_on_stores {
            // The anchor alone has it: what stores have is a copy of some root before.
            (self.recorded, self.anchored) = (Some(record.root.clone()), Some(record.txg()));
            self.promised = Some(record.log);
        }
    }

    fn read_rings(&mut self, leaves: &[Leaf], tag_key: Option<&Key>, found: &mut Found<'_>) {
        for (at, leaf) in leaves.iter().enumerate() {
            if self.devices[at].is_none() {
                continue;
            }
            for copy in 0..leaf::copies_of(&*leaf.device) {
                match leaf::ring(&*leaf.device, copy, tag_key) {
                    Err(error) => {
                        let reason = error.to_string();
                        found(Finding::RingUnreadable { path: leaf.path.clone(), copy, reason });
                    }
                    Ok(slots) => {
                        let slots = slots.into_iter().enumerate();
                        let slots = slots.filter(|(_, content)| *content != RingSlot::Empty);
                        self.seen.extend(slots.map(|(slot, content)| Seen { leaf: at, copy, slot, content }));
                    }
                }
            }
        }
        // Without the key of a sealed pool, tags prove nothing; what looks newest is shown as such.
        let sealed = self.config.key.is_some();
        let age = |seen: &Seen| match &seen.content {
            RingSlot::Uberblock { uberblock, validity, .. }
                if *validity != Tag::Wrong
                    && uberblock.pool == self.config.pool
                    && uberblock.keyed == sealed =>
            {
                Some(uberblock.age())
            }
            _ => None,
        };
        let counted = self.seen.iter().enumerate().rev().filter_map(|(at, seen)| Some((age(seen)?, at)));
        self.newest = counted.max_by_key(|(age, _)| *age).map(|(_, at)| at);
    }

    /// The uberblock that counts.
    pub fn uberblock(&self) -> Option<&Uberblock> {
        if let Some(recorded) = &self.recorded {
            return Some(recorded);
        }
        match &self.seen[self.newest?].content {
            RingSlot::Uberblock { uberblock, .. } => Some(uberblock),
            _ => None,
        }
    }

    pub fn geometry(&self) -> Geometry {
        Geometry { slot_size: self.config.slot_size, unit: 1 << self.config.ashift }
    }
}

/// A pool whose tail was read: blocks can be read through it.
pub(crate) struct View {
    pub front: Front,
    pub uberblock: Uberblock,
    pub tail: CommitTail,
    pub space: Arc<Space>,
    pub blockio: BlockIo,
    pub table: Table,
    /// Under whose number the blocks of datasets are sealed, if not under their own.
    pub families: BTreeMap<DatasetId, DatasetId>,
}

/// Result of reading a block.
pub(crate) enum Content {
    /// Its bytes, opened.
    Open(Vec<u8>),
    /// At least one copy has the right hash; the key to open it is missing.
    Locked,
    /// No copy can be used.
    Lost,
}

impl View {
    /// True if a block lies on devices of whole objects alone: metadata may have one copy there.
    pub fn is_on_stores(&self, address: Address, bytes: u32) -> bool {
        let is_there = |column: &Column| self.front.stores.contains(&column.device);
        let on_store = |piece: &Piece| {
            let row = self.table.rows.get(&piece.segment);
            row.is_some_and(|row| matches!(&row.place, Placement::Plain(column) if is_there(column)))
        };
        self.table.resolve(address, bytes).is_some_and(|pieces| pieces.iter().all(on_store))
    }

    /// Reads the tail of the uberblock that counts and takes over its rows.
    pub fn open(front: Front, request: &Request<'_>, found: &mut Found<'_>) -> Option<View> {
        let Some(uberblock) = front.uberblock().cloned() else {
            found(Finding::UberblockNone);
            return None;
        };
        let geometry = front.geometry();
        let config = &front.config;
        // One that is spared counts for nothing.
        let counted = config.leaves.iter().filter(|leaf| leaf.state != LeafState::Spared);
        let counted: Vec<LeafConfig> = counted.cloned().collect();
        let groups = groups_of(config.slot_size, &config.groups, &counted, |listed| {
            let at = config.leaves.iter().position(|leaf| leaf.id == listed.id);
            let given = front.devices.iter().position(|known| *known == at);
            let Some(leaf) = given.map(|given| &request.leaves[given]) else { return (listed.slots, None) };
            let character = leaf.device.character();
            let room = medium::slot_count(character.size_bytes, config.column_of(listed));
            if room < listed.slots {
                let (path, slots) = (leaf.path.clone(), listed.slots);
                found(Finding::DeviceShort { path, room, slots });
            }
            // Never more than fit: a label's number alone must not make tables long.
            (listed.slots.min(room), Some(Arc::clone(&leaf.device)))
        });
        // Of a device that is not given nothing tells how long it is.
        let groups = groups.into_iter().map(|mut group| {
            let given = group.members.iter().filter(|member| member.device.is_some());
            let most = given.map(|member| member.slots).max().unwrap_or(0);
            for member in group.members.iter_mut().filter(|member| member.device.is_none()) {
                member.slots = member.slots.min(most.max(1 << 20));
            }
            group
        });
        let space = Arc::new(Space::with_groups(geometry, groups.collect(), request.env.clone()));
        space.set_healing(false);
        space.set_uneven(config.features.iter().any(|feature| feature.name == "uneven_devices"));
        let blockio = BlockIo::new(Arc::clone(&space), request.env.clone(), front.config.pool, 0);
        let known = |column: Column| config.leaves.iter().any(|leaf| leaf.id == column.device);
        let places = uberblock.tail_places.clone();
        let places =
            places.map(|place| place.filter(|place| place.present().all(|(_, column)| known(column))));
        let table = Table::new(geometry);
        let tail = CommitTail {
            txg: uberblock.txg,
            next_segment: steadfast_format::SegmentId(0),
            next_dataset: DatasetId(0),
            next_history: 0,
            rows: Vec::new(),
            runs: Vec::new(),
        };
        let mut view = View { front, uberblock, tail, space, blockio, table, families: BTreeMap::new() };
        view.load_tail(places, found)?;
        Some(view)
    }

    fn load_tail(&mut self, places: [Option<Placement>; 2], found: &mut Found<'_>) -> Option<()> {
        let pointer = self.uberblock.tail;
        if let Err(error) = self.space.bootstrap(&pointer, places) {
            found(Finding::Tail { reason: error.to_string() });
            return None;
        }
        let bookmark =
            Bookmark { dataset: DatasetId(0), kind: BlockKind::Tail, level: pointer.level, at: At::Root };
        let keys = self.front.keys.clone();
        let bytes = match self.read(&pointer, &bookmark, keys.as_deref(), found) {
            Content::Open(bytes) => bytes,
            Content::Locked => {
                found(Finding::PoolLocked);
                return None;
            }
            Content::Lost => return None,
        };
        let tail = match CommitTail::decode(&bytes) {
            Ok(tail) => tail,
            Err(error) => {
                found(Finding::Tail { reason: error.to_string() });
                return None;
            }
        };
        if tail.txg != self.uberblock.txg {
            let reason = format!("it is of txg {}, its uberblock of txg {}", tail.txg, self.uberblock.txg);
            found(Finding::Tail { reason });
            return None;
        }
        if let Err(error) = self.space.load_tail(&tail, &pointer) {
            found(Finding::Tail { reason: error.to_string() });
            return None;
        }
        for (id, row) in &tail.rows {
            if let Some(row) = row {
                self.table.add_row(*id, row);
            }
        }
        for address in pointer.copies.into_iter().filter(|address| address.is_some()) {
            self.table.add_tail_block(address, pointer.psize);
        }
        for (from, run) in &tail.runs {
            if let Some(run) = run {
                self.table.runs.insert(*from, *run);
            }
        }
        self.tail = tail;
        Some(())
    }

    /// Reads every copy of a block; each that cannot be used is a finding.
    pub fn read(
        &self,
        pointer: &BlockPointer,
        bookmark: &Bookmark,
        keys: Option<&BlockKeys>,
        found: &mut Found<'_>,
    ) -> Content {
        let mut content = Content::Lost;
        let mut bad = Vec::new();
        for &address in &pointer.copies[..pointer.copy_count()] {
            match self.read_copy(address, pointer, bookmark.dataset, keys) {
                Ok(read) if matches!(content, Content::Lost) => content = read,
                Ok(_) => {}
                Err((badness, detail)) => bad.push((address, badness, detail)),
            }
        }
        if matches!(content, Content::Lost) {
            let each = bad.iter().map(|(address, badness, detail)| {
                format!(
                    "segment {}, offset {}: {}, {detail}",
                    address.segment,
                    address.offset,
                    badness.word()
                )
            });
            let detail = each.collect::<Vec<_>>().join("; ");
            found(Finding::BlockLost { bookmark: bookmark.clone(), detail });
        } else {
            for (address, badness, detail) in bad {
                found(Finding::CopyBad { bookmark: bookmark.clone(), address, badness, detail });
            }
        }
        content
    }

    fn read_copy(
        &self,
        address: Address,
        pointer: &BlockPointer,
        dataset: DatasetId,
        keys: Option<&BlockKeys>,
    ) -> Result<Content, (steadfast_blockio::Badness, String)> {
        use steadfast_blockio::Badness;
        let nothing = || (Badness::Unreadable, "nothing is stored there".to_owned());
        if pointer.is_sealed() && keys.is_none() {
            let judge = |bytes: steadfast_device::Buffer| Verified::check(bytes, &pointer.hash).map(drop);
            return match self.space.read(address, pointer.psize as usize, judge) {
                Ok(()) => Ok(Content::Locked),
                Err(ReadError::Unallocated { .. }) => Err(nothing()),
                Err(ReadError::Rejected { verdict, .. }) => Err((Badness::Checksum, verdict.to_string())),
                Err(error) => Err((Badness::Unreadable, error.to_string())),
            };
        }
        // One copy at a time: the seal and the hash bind no address.
        let one = BlockPointer { copies: [address, Address::NONE, Address::NONE], ..*pointer };
        let family = self.families.get(&dataset).copied().unwrap_or(dataset);
        match self.blockio.read(&one, &ReadContext { dataset, family, keys, cache: false }) {
            Ok(block) => Ok(Content::Open(block.to_vec())),
            Err(BlockError::Unallocated { .. }) => Err(nothing()),
            Err(BlockError::Bad(fault)) => {
                let detail = fault.attempts.first().map_or(String::new(), |attempt| attempt.detail.clone());
                Err((fault.badness(), detail))
            }
            Err(error) => Err((Badness::Unreadable, error.to_string())),
        }
    }
}
