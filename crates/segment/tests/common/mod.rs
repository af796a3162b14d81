//! A pool in miniature: everything a commit does, without trees. Shared by the tests of this room.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_device::memory::Fate;
use steadfast_device::{MemoryDevice, SharedDevice};
use steadfast_env::Env;
use steadfast_format::{
    Address, BlockKind, BlockPointer, Checksums, CommitTail, Compression, DatasetId, DeviceId, GroupClass,
    Placement, RelocationRow, SegmentId, SegmentRow, Stamp, Txg,
};
use steadfast_segment::{
    Class, CleanReport, Error, Geometry, GroupSpec, MemberSpec, ReadError, Redundancy, Space, TableError,
};

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Block {
    pub owner: DatasetId,
    pub address: Address,
    pub len: usize,
    pub seed: u64,
}

impl Block {
    pub fn bytes(&self) -> Vec<u8> {
        content(self.seed, self.len)
    }
}

pub fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// The state of the devices and of the meta tree as of the last commit.
#[derive(Clone, Default)]
pub struct Durable {
    pub rows: BTreeMap<SegmentId, SegmentRow>,
    pub runs: BTreeMap<(SegmentId, u32), RelocationRow>,
    pub txg: u64,
    /// The tail's bytes, as they were appended.
    pub tail_blocks: Vec<Block>,
    pub tail_bytes: Vec<u8>,
    pub places: [Option<Placement>; 2],
    pub sums: BTreeMap<(SegmentId, u32), Checksums>,
    pub blocks: BTreeMap<u64, Block>,
    pub pool_blocks: Vec<Block>,
}

pub struct MiniPool {
    pub geometry: Geometry,
    /// Slots of each device.
    pub sizes: Vec<u32>,
    /// Segments may have fewer columns than their group.
    pub uneven: bool,
    pub devices: Vec<Arc<MemoryDevice>>,
    /// All devices are one group: how, and in how many columns.
    pub group: Option<(Redundancy, u32)>,
    /// Devices that are not there.
    pub gone: BTreeSet<usize>,
    pub space: Space,
    pub durable: Durable,
    /// Living blocks by number.
    pub blocks: BTreeMap<u64, Block>,
    pub pool_blocks: Vec<Block>,
    pub seed: u64,
    pub moved: u64,
}

impl MiniPool {
    pub fn new(geometry: Geometry, slots: u32, appendable: &[bool]) -> MiniPool {
        let device = |&appendable: &bool| match appendable {
            true => Arc::new(MemoryDevice::new("memory", 64 << 20)),
            false => Arc::new(MemoryDevice::whole_segments("objects", 64 << 20)),
        };
        let sizes = vec![slots; appendable.len()];
        Self::of(geometry, sizes, false, appendable.iter().map(device).collect(), None)
    }

    /// A pool of one group, on devices of `slots` slots each.
    pub fn with_group(
        geometry: Geometry,
        slots: u32,
        redundancy: Redundancy,
        width: u32,
        devices: usize,
    ) -> MiniPool {
        let sizes = vec![slots; devices];
        let devices = (0..devices).map(|_| Arc::new(MemoryDevice::new("memory", 64 << 20)));
        Self::of(geometry, sizes, false, devices.collect(), Some((redundancy, width)))
    }

    /// A pool of one group on devices of so many slots, with a column of a whole segment on each,
    /// where segments may be narrower.
    pub fn with_uneven(geometry: Geometry, sizes: &[u32], redundancy: Redundancy) -> MiniPool {
        let devices = sizes.iter().map(|_| Arc::new(MemoryDevice::new("memory", 64 << 20)));
        let width = u32::try_from(sizes.len()).expect("a few devices");
        Self::of(geometry, sizes.to_vec(), true, devices.collect(), Some((redundancy, width)))
    }

    fn of(
        geometry: Geometry,
        sizes: Vec<u32>,
        uneven: bool,
        devices: Vec<Arc<MemoryDevice>>,
        group: Option<(Redundancy, u32)>,
    ) -> MiniPool {
        let gone = BTreeSet::new();
        let space = Self::open(geometry, &sizes, uneven, &devices, group, &gone);
        let mut pool = MiniPool {
            geometry,
            sizes,
            uneven,
            devices,
            group,
            gone,
            space,
            durable: Durable::default(),
            blocks: BTreeMap::new(),
            pool_blocks: Vec::new(),
            seed: 1,
            moved: 0,
        };
        pool.commit();
        pool
    }

    fn open(
        geometry: Geometry,
        sizes: &[u32],
        uneven: bool,
        devices: &[Arc<MemoryDevice>],
        group: Option<(Redundancy, u32)>,
        gone: &BTreeSet<usize>,
    ) -> Space {
        let members = devices.iter().enumerate().map(|(at, device)| MemberSpec {
            id: DeviceId(at as u64 + 1),
            slots: sizes[at],
            device: (!gone.contains(&at)).then(|| Arc::clone(device) as SharedDevice),
        });
        let groups = match group {
            Some((redundancy, width)) => {
                let (column, class) = (redundancy.column_bytes(width, geometry), GroupClass::Normal);
                vec![GroupSpec { redundancy, class, width, column, members: members.collect() }]
            }
            None => members
                .map(|member| GroupSpec {
                    class: GroupClass::Normal,
                    redundancy: Redundancy::None,
                    width: 1,
                    column: geometry.slot_size,
                    members: vec![member],
                })
                .collect(),
        };
        let space = Space::with_groups(geometry, groups, Env::seeded(1));
        space.set_uneven(uneven);
        space
    }

    pub fn append_to(&mut self, owner: DatasetId, class: Class, len: usize) -> Result<Block, Error> {
        self.seed += 1;
        let seed = self.seed;
        let address = self.space.append(owner, class, &content(seed, len))?;
        Ok(Block { owner, address, len, seed })
    }

    /// Writes block number `name` anew, freeing what it was.
    pub fn write(&mut self, name: u64, owner: DatasetId, len: usize) -> Result<(), Error> {
        self.write_class(name, owner, Class::Data, len)
    }

    /// The same in any class.
    pub fn write_class(
        &mut self,
        name: u64,
        owner: DatasetId,
        class: Class,
        len: usize,
    ) -> Result<(), Error> {
        let block = self.append_to(owner, class, len)?;
        if let Some(before) = self.blocks.insert(name, block) {
            self.space.free(before.address, before.len)?;
        }
        Ok(())
    }

    pub fn free(&mut self, name: u64) {
        if let Some(block) = self.blocks.remove(&name) {
            self.space.free(block.address, block.len).expect("a living block can be freed");
        }
    }

    pub fn clean(&mut self, budget: u64) -> CleanReport {
        // A node in each copy.
        let node = u64::from(3 * self.geometry.unit);
        let report = self.space.clean(budget, 0, &mut || Some(node)).expect("cleaning works");
        self.moved += report.bytes_moved;
        report
    }

    /// Everything a commit does.
    pub fn commit(&mut self) {
        let mut rows = self.durable.rows.clone();
        let mut runs = self.durable.runs.clone();
        let mut sums = self.durable.sums.clone();
        self.space.seal_rows().expect("the devices write");
        let changes = self.space.table_changes();
        for (part, stored) in changes.sums {
            match stored {
                Some(stored) => sums.insert(part, stored),
                None => sums.remove(&part),
            };
        }
        for (id, row) in changes.rows {
            match row {
                Some(row) => rows.insert(id, row),
                None => rows.remove(&id),
            };
        }
        for (from, run) in changes.runs {
            match run {
                Some(run) => runs.insert(from, run),
                None => runs.remove(&from),
            };
        }
        // The meta tree writes nodes and frees those they replace; the previous tail goes as well.
        let node = 3 * self.geometry.unit as usize - 100;
        let mut old = self.durable.tail_blocks.clone();
        if self.pool_blocks.len() >= 8 {
            old.extend(self.pool_blocks.drain(..2));
        }
        for class in [Class::Pool0, Class::Pool1] {
            let block = self.append_to(DatasetId(0), class, node).expect("room for metadata");
            self.pool_blocks.push(block);
        }
        for block in old {
            self.space.free(block.address, block.len).expect("the old tail lives");
        }
        let space_tail = self.space.tail().expect("room for the tail");
        let tail = CommitTail {
            txg: Txg(self.durable.txg + 1),
            next_segment: space_tail.next_segment,
            next_dataset: DatasetId(1),
            next_history: 1,
            rows: space_tail.changes.rows,
            runs: space_tail.changes.runs,
        };
        let tail_bytes = tail.encode();
        let tail_blocks = [Class::Pool0, Class::Pool1].map(|class| {
            let address = self.space.append(DatasetId(0), class, &tail_bytes).expect("room was reserved");
            Block { owner: DatasetId(0), address, len: tail_bytes.len(), seed: 0 }
        });
        let places = tail_blocks.map(|block| self.space.place_of(block.address.segment));
        let known = |id: &SegmentId| *id < tail.next_segment;
        assert!(tail.rows.iter().all(|(id, _)| known(id)), "ids are below the next one");
        assert!(
            tail_blocks.iter().all(|block| tail
                .rows
                .iter()
                .any(|(id, row)| { *id == block.address.segment && row.is_some() })),
            "the tail knows the segments it lies in"
        );
        self.space.flush_open().expect("the device writes");
        self.space.flush_devices().expect("the device flushes");
        self.durable = Durable {
            rows,
            runs,
            sums,
            txg: tail.txg.0,
            tail_blocks: tail_blocks.to_vec(),
            tail_bytes,
            places,
            blocks: self.blocks.clone(),
            pool_blocks: self.pool_blocks.clone(),
        };
        self.space.committed();
    }

    /// Loses everything since the last commit and imports. Unflushed writes meet any fate.
    pub fn crash(&mut self) {
        self.seed += 1;
        for device in &self.devices {
            let mut state = self.seed;
            device.power_on(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                match state >> 62 {
                    0 | 1 => Fate::Dropped,
                    2 => Fate::Applied,
                    _ => Fate::Torn { sectors: (state >> 40) as usize % 40 },
                }
            });
        }
        self.import().expect("what was committed can be imported");
    }

    /// The pointer to the durable tail.
    pub fn tail_pointer(&self) -> BlockPointer {
        let copies = &self.durable.tail_blocks;
        BlockPointer {
            hash: [0; 32],
            copies: [copies[0].address, copies[1].address, Address::NONE],
            psize: copies[0].len as u32,
            lsize: copies[0].len as u32,
            birth: Txg(self.durable.txg),
            written: Txg(0),
            stamp: Stamp::default(),
            compression: Compression::Off,
            kind: BlockKind::Tail,
            level: 0,
        }
    }

    pub fn import(&mut self) -> Result<(), TableError> {
        let tail = CommitTail::decode(&self.durable.tail_bytes).expect("a tail is a tail");
        self.import_with(&tail)
    }

    pub fn import_with(&mut self, tail: &CommitTail) -> Result<(), TableError> {
        let durable = self.durable.clone();
        let (sizes, devices) = (&self.sizes, &self.devices);
        let space = Self::open(self.geometry, sizes, self.uneven, devices, self.group, &self.gone);
        let pointer = self.tail_pointer();
        space.bootstrap(&pointer, durable.places.clone())?;
        for address in pointer.copies.into_iter().filter(|address| address.is_some()) {
            let judge = |bytes| if bytes == durable.tail_bytes { Ok(bytes) } else { Err(()) };
            let read = space.read(address, pointer.psize as usize, judge);
            assert!(read.is_ok(), "the tail is readable before the table is");
        }
        space.load_tail(tail, &pointer)?;
        for block in &durable.pool_blocks {
            read(&space, block).expect("the meta tree is readable before the table is");
        }
        space.load_rows(durable.rows)?;
        space.load_runs(durable.runs)?;
        space.finish_load()?;
        space.claim_epoch(0).expect("nobody else claims it");
        space.find_leftovers().expect("the device lists");
        self.space = space;
        self.blocks = durable.blocks;
        self.pool_blocks = durable.pool_blocks;
        Ok(())
    }

    /// Every invariant of the table, every living block's bytes, and the sum of what lives.
    pub fn verify(&self) {
        self.space.check().unwrap();
        let mut live = 0;
        for block in &self.durable.tail_blocks {
            live += block.len.next_multiple_of(self.geometry.unit as usize) as u64;
        }
        for block in self.blocks.values().chain(&self.pool_blocks) {
            read(&self.space, block).unwrap_or_else(|error| panic!("{block:?}: {error}"));
            live += block.len.next_multiple_of(self.geometry.unit as usize) as u64;
        }
        assert_eq!(live, self.space.accounting().live_bytes);
    }
}

pub fn read(space: &Space, block: &Block) -> Result<(), ReadError<String>> {
    let expected = block.bytes();
    space.read(block.address, block.len, |bytes| {
        if bytes == expected { Ok(()) } else { Err("other bytes".to_owned()) }
    })
}
