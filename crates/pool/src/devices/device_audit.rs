//! Audit of files and disks: a scrub by sample that says how sure it is. Each device is asked for
//! bytes drawn at random among all that it stores, and gives them itself: neither redundancy nor a
//! cache gives them in its place. DESIGN.md, chapter 24.
//!
//! ## How samples are drawn
//! - Columns of mirrors and raidz have checksums of their chunks, so the segment table says where
//!   all of these lie, and a number below the sum of their bytes is a sample ([`DrawnChunk`]).
//! - Of single devices, and of the pool's own metadata everywhere, only pointers have hashes. So a
//!   walk goes from the roots to every pointer, and keeps as many samples as are wanted
//!   ([`Reservoir`]). It reads nodes and no content; of the pool's tree alone, unless something
//!   stands on a single device.
//! - Blocks of datasets whose keys are not loaded are listed in manifests.
//!
//! ## Invariants
//! [device_audit.1] Samples of a device are drawn independently, and each byte that can be proven
//!     is drawn as often as any other one: so a device of which a fraction x of the bytes is bad
//!     is missed by n samples in (1 - x)^n of all cases.
//!     test: `damage_is_found_as_often_as_the_formula_says`
//! [device_audit.2] No lock is held while samples are read. Wrong ones are put right as by a scrub,
//!     in steps between commits: [`MENDED_MAX`] segments and as many blocks at most.
//! [device_audit.3] Memory: samples, and that of a walk [pointer_walk.1].

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use steadfast_crypto::{Signer, hash};
use steadfast_env::Job;
use steadfast_format::meta_keys::{MANIFEST, MANIFEST_BIRTH};
use steadfast_format::{
    BlockPointer, Checksums, DatasetId, DeviceId, ManifestRun, MetaKey, ParityStanding, SegmentId, Txg,
};
use steadfast_segment::{Depth, DrawnChunk, Positions, Proof};

use crate::core::error::Result;
use crate::core::events::EventKind;
use crate::devices::audit_report::{Asked, AuditReport, Coverage, Samples, StratumReport};
use crate::devices::leaf::Leaf;
use crate::devices::parity::LOSS_PPM;
use crate::devices::pointer_walk::{FileRange, Reads, Seen};
use crate::devices::state::Devices;

/// Samples of a device at most: each takes memory until it was read.
pub const DEVICE_SAMPLES_MAX: u32 = 1 << 20;
/// Reads under way at one device, and at all of them.
const DEVICE_READERS: usize = 4;
const READERS_MAX: usize = 48;
/// Segments, and blocks, that an audit puts right; with more to do a scrub is quicker.
const MENDED_MAX: usize = 64;
/// Wrong samples that a report names.
const NAMED_MAX: usize = 64;
/// Times that samples are drawn anew whose segments went before they were read.
const ROUNDS: u32 = 4;
/// Part of all bytes that may be in segments which are still being filled: one of so many.
const OPEN_PART: u64 = 50;
/// Bytes of a cell, in which reports count.
const CELL: u64 = 4096;

/// Random numbers that follow from a seed.
struct Dice {
    seed: [u8; 32],
    next: u64,
    left: Vec<u64>,
}

impl Dice {
    fn new(seed: [u8; 32]) -> Dice {
        Dice { seed, next: 0, left: Vec::new() }
    }

    fn roll(&mut self) -> u64 {
        if self.left.is_empty() {
            let block = hash(&[&self.seed[..], &self.next.to_le_bytes()].concat());
            self.next += 1;
            self.left = block.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        }
        self.left.pop().expect("a hash has 32 bytes")
    }

    /// A number below another one, each as often: to one in 2^64 of that.
    fn below(&mut self, end: u64) -> u64 {
        u64::try_from((u128::from(self.roll()) * u128::from(end)) >> 64).expect("below the end")
    }

    /// A number from 0 to 1, not 0.
    fn fraction(&mut self) -> f64 {
        ((self.roll() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }
}

/// A number by which a place is to be replaced.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark(f64);

impl Eq for Mark {}

impl Ord for Mark {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Mark {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Independent samples of what passes by, each by its bytes. A place that was filled when `passed`
/// bytes had passed is filled anew when `passed` / u have, with u at random from 0 to 1: the chance
/// that it is not by then is `passed` over that number.
pub(crate) struct Reservoir<T> {
    passed: u64,
    places: Vec<Option<T>>,
    due: BinaryHeap<Reverse<(Mark, usize)>>,
}

impl<T: Clone> Reservoir<T> {
    fn new(places: u32) -> Reservoir<T> {
        let due = (0..places as usize).map(|at| Reverse((Mark(0.0), at))).collect();
        Reservoir { passed: 0, places: vec![None; places as usize], due }
    }

    /// So many bytes pass by.
    fn offer(&mut self, bytes: u64, dice: &mut Dice, make: impl FnOnce() -> T) {
        if bytes == 0 {
            return;
        }
        self.passed += bytes;
        let passed = self.passed as f64;
        let is_due = |due: &BinaryHeap<Reverse<(Mark, usize)>>| {
            due.peek().is_some_and(|Reverse((Mark(mark), _))| *mark < passed)
        };
        if !is_due(&self.due) {
            return;
        }
        let it = make();
        while is_due(&self.due)
            && let Some(Reverse((_, at))) = self.due.pop()
        {
            self.places[at] = Some(it.clone());
            self.due.push(Reverse((Mark(passed / dice.fraction()), at)));
        }
    }
}

/// A block that was drawn, or may be.
struct DrawnBlock {
    pointer: BlockPointer,
    copy: usize,
    /// File that it is content of, if the dataset is as it is now.
    file: Option<FileRange>,
}

/// A sample of a device.
enum Sample {
    Chunk(DrawnChunk),
    /// A block, and where its copy lies: segment, and offset there.
    Block(Arc<DrawnBlock>, SegmentId, u32),
}

/// A sample of a block on a device.
type Place = (Arc<DrawnBlock>, SegmentId, u32);

/// Result of a walk.
struct Walked {
    reservoirs: BTreeMap<DeviceId, Reservoir<Place>>,
    dice: Dice,
    /// Datasets whose keys are not loaded.
    locked: BTreeSet<DatasetId>,
    /// Nodes of which no copy can be read: what is below them is not known.
    unread: Vec<BlockPointer>,
}

/// A sample that was not held.
struct Bad {
    sample: Sample,
    reason: String,
}

impl Sample {
    /// Where it is read, so that a device is asked in order.
    fn place(&self) -> (u8, SegmentId, u32) {
        match self {
            Sample::Chunk(chunk) => (0, chunk.segment, chunk.offset()),
            Sample::Block(_, segment, offset) => (1, *segment, *offset),
        }
    }

    fn bytes(&self) -> u32 {
        match self {
            Sample::Chunk(chunk) => chunk.bytes(),
            Sample::Block(block, ..) => block.pointer.psize,
        }
    }
}

impl Devices {
    /// True if audits of the pool are scrubs by sample: it has files or disks, and no parity
    /// device.
    #[must_use]
    pub fn is_audited_by_device(&self) -> bool {
        self.parity().is_none() && !self.core.space.is_all_objects()
    }

    /// Signs records of audits of files and disks. Only a sealed pool has a secret for that.
    pub(crate) fn device_audit_signer(&self) -> Option<Arc<Signer>> {
        let sealing = self.core.sealing.as_ref()?;
        let pool = self.core.identity.guid.0.to_le_bytes();
        let seed = steadfast_crypto::derive(sealing.keys.master(), &pool, "steadfast audit of devices v1");
        Some(Arc::new(Signer::new(&seed)))
    }

    /// Asks each device for samples, and puts right what is wrong as a scrub would.
    pub(crate) fn ask_devices(&self, samples: Samples) -> Result<AuditReport> {
        let mut seed = [0; 32];
        self.core.env.random.fill(&mut seed);
        let reads = Reads::default();
        self.close_open_segments(samples)?;
        let by_walk = self.core.space.has_single();
        // A walk to all pointers is made once, not for each batch.
        let wanted = if by_walk { samples.at_once } else { samples.all };
        let wanted = wanted.min(DEVICE_SAMPLES_MAX);
        let leaves = self.leaves();
        let mut report = AuditReport { loss_ppm: LOSS_PPM, by_device: true, ..AuditReport::default() };
        report.absent = leaves
            .iter()
            .filter(|leaf| !self.core.space.is_in_use(leaf.id()))
            .map(|leaf| leaf.path())
            .collect();
        let txg = self.core.txgs.commits.committed();
        let mut walked = self.walk_samples(wanted, by_walk, Dice::new(seed), &reads)?;
        let (mut drawn, of) = self.draw(wanted, &mut walked);
        report.coverage = self.coverage_of(&walked, &of.provable);
        report.locked = walked.locked.iter().map(|id| self.core.dataset_name(*id)).collect();
        let mut judged: BTreeMap<DeviceId, Judged> = BTreeMap::new();
        for round in 1..=ROUNDS {
            let gone = self.prove(drawn, &mut judged, &reads);
            if round == ROUNDS || gone.is_empty() {
                break;
            }
            // Their segments went before they were read: others are asked for.
            drawn = self.draw_again(&gone, &mut walked.dice);
        }
        self.tell_unread(&walked.unread, &mut judged);
        self.put_right(&mut judged);
        for leaf in &leaves {
            let Some(judged) = judged.remove(&leaf.id()) else { continue };
            let bytes = of.bytes.get(&leaf.id()).copied().unwrap_or(0);
            report.strata.push(stratum(leaf, judged, bytes, (seed, txg, of.list(leaf.id()))));
        }
        (report.reads, report.read_bytes) = (reads.count.into_inner(), reads.bytes.into_inner());
        Ok(report)
    }

    /// Ends segments that are being filled if they hold much of the pool, as a scrub does. So a
    /// small pool is asked for all of it, and a large one wastes no slots.
    fn close_open_segments(&self, samples: Samples) -> Result<()> {
        let may = !self.core.health.read_only && !self.core.is_suspended();
        if samples.at_once == 0 || !may {
            return Ok(());
        }
        let (provable, _) = self.core.space.draw_chunks(&mut |_| Positions::new());
        let proven: u64 = provable.chunks.values().sum::<u64>() + provable.by_pointer;
        if provable.open > proven / OPEN_PART {
            let turn = self.core.sync_turn.lock();
            self.core.space.close_open()?;
            drop(turn);
            self.core.commit_changes()?;
        }
        Ok(())
    }

    /// Walks to pointers and keeps samples of what these alone prove: in the pool's own tree, and
    /// with `whole` in all datasets.
    fn walk_samples(&self, wanted: u32, whole: bool, dice: Dice, reads: &Reads) -> Result<Walked> {
        let in_use = self.leaves().into_iter().filter(|leaf| self.core.space.is_in_use(leaf.id()));
        let mut reservoirs: BTreeMap<DeviceId, Reservoir<Place>> =
            in_use.map(|leaf| (leaf.id(), Reservoir::new(wanted))).collect();
        let mut dice = dice;
        let seen = match wanted {
            0 => Seen::default(),
            _ => self.walk_pointers(whole, reads, None, &mut |pointer, file| {
                self.offer(&mut reservoirs, &mut dice, pointer, file);
            }),
        };
        let mut walked = Walked { reservoirs, dice, locked: seen.locked, unread: seen.unread };
        self.walk_manifests(&mut walked)?;
        Ok(walked)
    }

    /// Blocks that datasets have written whose keys are not loaded.
    fn walk_manifests(&self, walked: &mut Walked) -> Result<()> {
        if walked.locked.is_empty() {
            return Ok(());
        }
        for item in self.core.meta.range([MANIFEST]..[MANIFEST_BIRTH]) {
            let (key, value) = item?;
            let Some(MetaKey::Manifest(at)) = MetaKey::decode(&key) else { continue };
            let Ok(run) = ManifestRun::decode(&value) else { continue };
            if !walked.locked.contains(&run.dataset) {
                continue;
            }
            for entry in &run.entries {
                let pointer = run.pointer(at.segment, entry);
                if self.core.space.is_live(pointer.copies[0]) {
                    self.offer(&mut walked.reservoirs, &mut walked.dice, &pointer, None);
                }
            }
        }
        Ok(())
    }

    /// A block passes the samples.
    fn offer(
        &self,
        reservoirs: &mut BTreeMap<DeviceId, Reservoir<Place>>,
        dice: &mut Dice,
        pointer: &BlockPointer,
        file: Option<FileRange>,
    ) {
        for copy in 0..pointer.copy_count() {
            let places = self.core.space.places_by_pointer(pointer.copies[copy], pointer.psize as usize);
            let mut block: Option<Arc<DrawnBlock>> = None;
            for (device, segment, offset, bytes) in places {
                let Some(reservoir) = reservoirs.get_mut(&device) else { continue };
                reservoir.offer(bytes, dice, || {
                    let drawn = || Arc::new(DrawnBlock { pointer: *pointer, copy, file: file.clone() });
                    (Arc::clone(block.get_or_insert_with(drawn)), segment, offset)
                });
            }
        }
    }

    /// Draws samples of each device: chunks, and blocks that the walk kept, by their bytes.
    fn draw(&self, wanted: u32, walked: &mut Walked) -> (Vec<(DeviceId, Sample)>, DrawnOf) {
        let mut blocks: Vec<(DeviceId, Sample)> = Vec::new();
        let mut bytes = BTreeMap::new();
        let (reservoirs, dice) = (&walked.reservoirs, &mut walked.dice);
        let (provable, chunks) = self.core.space.draw_chunks(&mut |provable| {
            let mut positions = Positions::new();
            for (device, reservoir) in reservoirs {
                let of_chunks = provable.chunks.get(device).copied().unwrap_or(0);
                let all = of_chunks + reservoir.passed;
                if all == 0 {
                    continue;
                }
                bytes.insert(*device, all);
                let mut of_device = Vec::new();
                let mut kept = reservoir.places.iter().flatten();
                for _ in 0..wanted {
                    let position = dice.below(all);
                    if position < of_chunks {
                        of_device.push(position);
                    } else if let Some((block, segment, offset)) = kept.next() {
                        blocks.push((*device, Sample::Block(Arc::clone(block), *segment, *offset)));
                    }
                }
                of_device.sort_unstable();
                positions.insert(*device, of_device);
            }
            positions
        });
        blocks.extend(chunks.into_iter().map(|chunk| (chunk.device, Sample::Chunk(chunk))));
        (blocks, DrawnOf { provable, bytes })
    }

    /// Draws as many chunks of each device anew.
    fn draw_again(&self, gone: &BTreeMap<DeviceId, u32>, dice: &mut Dice) -> Vec<(DeviceId, Sample)> {
        let (_, chunks) = self.core.space.draw_chunks(&mut |provable| {
            let mut positions = Positions::new();
            for (device, count) in gone {
                let Some(bytes) = provable.chunks.get(device).filter(|bytes| **bytes > 0) else { continue };
                let mut of_device: Vec<u64> = (0..*count).map(|_| dice.below(*bytes)).collect();
                of_device.sort_unstable();
                positions.insert(*device, of_device);
            }
            positions
        });
        chunks.into_iter().map(|chunk| (chunk.device, Sample::Chunk(chunk))).collect()
    }

    /// Reads samples, all devices side by side and each in order, and judges them. Gives how many
    /// chunks of each were gone.
    fn prove(
        &self,
        drawn: Vec<(DeviceId, Sample)>,
        judged: &mut BTreeMap<DeviceId, Judged>,
        reads: &Reads,
    ) -> BTreeMap<DeviceId, u32> {
        let mut lanes: BTreeMap<DeviceId, Vec<Sample>> = BTreeMap::new();
        for (device, sample) in drawn {
            lanes.entry(device).or_default().push(sample);
        }
        let lanes: Vec<(DeviceId, Mutex<VecDeque<Sample>>)> = lanes
            .into_iter()
            .map(|(device, mut samples)| {
                samples.sort_by_key(Sample::place);
                (device, Mutex::new(samples.into()))
            })
            .collect();
        let (gone, results) = (Mutex::new(BTreeMap::new()), Mutex::new(std::mem::take(judged)));
        let readers = (READERS_MAX / lanes.len().max(1)).clamp(1, DEVICE_READERS);
        let mut jobs: Vec<Job<'_>> = Vec::new();
        for _ in 0..readers {
            for (device, lane) in &lanes {
                let (gone, results) = (&gone, &results);
                jobs.push(Box::new(move || {
                    loop {
                        let Some(sample) = lane.lock().pop_front() else { break };
                        reads.add(sample.bytes().into());
                        let proof = self.prove_sample(*device, &sample);
                        let mut results = results.lock();
                        let judged: &mut Judged = results.entry(*device).or_default();
                        judged.answers.push((sample.place(), proof == Proof::Held));
                        let reason = match proof {
                            Proof::Held => {
                                judged.held += 1;
                                continue;
                            }
                            Proof::Gone => {
                                if let Sample::Chunk(_) = sample {
                                    *gone.lock().entry(*device).or_default() += 1;
                                }
                                judged.answers.pop();
                                continue;
                            }
                            Proof::Wrong => "other bytes than were written".to_owned(),
                            Proof::Unreadable(reason) => reason,
                        };
                        judged.bad.push(Bad { sample, reason });
                    }
                }));
            }
        }
        self.core.env.tasks.run_waiting(jobs);
        *judged = results.into_inner();
        gone.into_inner()
    }

    fn prove_sample(&self, device: DeviceId, sample: &Sample) -> Proof {
        match sample {
            Sample::Chunk(chunk) => self.core.space.prove_chunk(chunk, &mut || self.checksum_of(chunk)),
            Sample::Block(block, ..) => {
                let DrawnBlock { pointer, copy, .. } = &**block;
                let place = (pointer.copies[*copy], pointer.psize as usize);
                self.core.space.prove_copy(device, place, &|bytes| hash(bytes) == pointer.hash)
            }
        }
    }

    /// The stored checksum of a chunk.
    fn checksum_of(&self, chunk: &DrawnChunk) -> Option<[u8; Checksums::SIZE]> {
        let key = MetaKey::Checksums(chunk.segment, chunk.part()).encode();
        let value = self.core.meta.get(&key).ok()??;
        Checksums::decode(&value).ok()?.sums.get(chunk.index()).copied()
    }

    /// A node of which no copy can be read is a loss, whether it was drawn or not.
    fn tell_unread(&self, unread: &[BlockPointer], judged: &mut BTreeMap<DeviceId, Judged>) {
        for pointer in unread {
            let places = self.core.space.places_by_pointer(pointer.copies[0], pointer.psize as usize);
            let Some((device, segment, offset, _)) = places.first().copied() else { continue };
            let block = Arc::new(DrawnBlock { pointer: *pointer, copy: 0, file: None });
            let reason = "a node of a tree cannot be read: what is below it was not looked at".to_owned();
            let bad = Bad { sample: Sample::Block(block, segment, offset), reason };
            judged.entry(device).or_default().bad.push(bad);
        }
    }

    /// Puts right what is wrong, as a scrub would, and says so of each sample [device_audit.2].
    fn put_right(&self, judged: &mut BTreeMap<DeviceId, Judged>) {
        let mut bad: Vec<&mut Bad> = judged.values_mut().flat_map(|judged| &mut judged.bad).collect();
        if bad.is_empty() {
            return;
        }
        let mut segments: BTreeMap<SegmentId, &'static str> = BTreeMap::new();
        let (mut blocks, mut is_lost) = (0, false);
        for bad in &mut bad {
            let outcome = match &bad.sample {
                Sample::Chunk(chunk) => match segments.get(&chunk.segment) {
                    Some(outcome) => *outcome,
                    None if segments.len() >= MENDED_MAX => continue,
                    None => {
                        let outcome = self.mend_segment(chunk.segment);
                        segments.insert(chunk.segment, outcome);
                        outcome
                    }
                },
                Sample::Block(..) if blocks >= MENDED_MAX => continue,
                Sample::Block(block, ..) => {
                    blocks += 1;
                    self.mend_block(block)
                }
            };
            is_lost |= outcome == LOST;
            bad.reason = format!("{}; {outcome}", bad.reason);
        }
        let turn = self.core.sync_turn.lock();
        self.diagnose();
        drop(turn);
        if is_lost {
            self.begin_search();
        }
        self.core.health.changed.note();
    }

    /// Mends one segment between two commits.
    fn mend_segment(&self, id: SegmentId) -> &'static str {
        let _turn = self.core.sync_turn.lock();
        if !self.core.health.read_only && self.core.check_ours().is_err() {
            return NOT_NOW;
        }
        let Ok(sums) = self.checksums_of(id) else { return NOT_NOW };
        let others = || {
            let beside = self.core.space.beside(id, id).into_iter();
            beside.map(|id| self.checksums_of(id).unwrap_or_default()).collect()
        };
        match self.core.space.mend_all(&[(id, sums)], Depth::All, &others) {
            Ok(mended) if mended.lost_bytes + mended.lost_copies > 0 => LOST,
            Ok(mended) if mended.repaired_bytes > 0 => RIGHT,
            Ok(_) if self.core.health.read_only => NOT_NOW,
            Ok(_) => RIGHT_AGAIN,
            Err(_) => NOT_NOW,
        }
    }

    /// Looks at all copies of a block between two commits.
    fn mend_block(&self, block: &DrawnBlock) -> &'static str {
        let _turn = self.core.sync_turn.lock();
        if !self.core.health.read_only && self.core.check_ours().is_err() {
            return NOT_NOW;
        }
        let (tally, right) = self.look_at(&block.pointer);
        if tally.lost > 0 {
            if let Some((dataset, inode, range)) = &block.file
                && let Some(head) = self.core.head_of(*dataset)
            {
                head.note_damage(*inode, range.clone());
            }
            return LOST;
        }
        match right {
            Some(_) if tally.repaired > 0 => RIGHT,
            Some(_) if self.core.health.read_only => NOT_NOW,
            Some(_) => RIGHT_AGAIN,
            None => NOT_NOW,
        }
    }

    /// How much of what the pool stores can be drawn.
    fn coverage_of(&self, walked: &Walked, provable: &steadfast_segment::Provable) -> Coverage {
        let chunks: u64 = provable.chunks.values().sum();
        let found: u64 = walked.reservoirs.values().map(|reservoir| reservoir.passed).sum();
        // Blocks that several files share are found by each of them.
        let found = found.min(provable.by_pointer);
        Coverage {
            stored: chunks + provable.by_pointer + provable.open + provable.unproven,
            covered: chunks + found,
            uncovered: 0,
        }
    }

    /// Tells of an audit of files and disks: in an event, in status, and in the next root.
    pub(crate) fn note_device_audit(&self, report: &AuditReport) {
        let sum = |count: fn(&StratumReport) -> u32| {
            report.strata.iter().map(count).fold(0_u32, u32::saturating_add)
        };
        let (samples, held) = (sum(|stratum| stratum.samples), sum(|stratum| stratum.held));
        let cells: BTreeMap<&str, u64> = report.strata.iter().map(|s| (&*s.device, s.cells)).collect();
        {
            let mut audited = self.scans.audited.lock();
            audited.last = Some(ParityStanding {
                generation: 1,
                audited_ns: self.core.now_ns(),
                samples,
                failed: samples - held,
                cells: cells.values().sum(),
                ..ParityStanding::default()
            });
            audited.dirty = true;
        }
        let Coverage { stored, covered, .. } = report.coverage;
        self.core.events.note(EventKind::Audited { samples, failed: samples - held, stored, covered });
        self.core.health.changed.note();
    }

    /// The last audit, of whatever there is to audit.
    pub(crate) fn audited(&self) -> Option<ParityStanding> {
        match self.parity() {
            Some(_) => self.parity_status()?.audit,
            None if self.is_audited_by_device() => self.scans.audited.lock().last,
            None => None,
        }
    }

    /// The last audit of files and disks, if the next root is to tell of it.
    pub(crate) fn device_audit_item(&self) -> Option<Vec<u8>> {
        let mut audited = self.scans.audited.lock();
        let dirty = std::mem::take(&mut audited.dirty);
        audited.last.filter(|_| dirty).map(|last| last.encode().to_vec())
    }
}

/// Outcomes of putting right.
const RIGHT: &str = "put right";
const RIGHT_AGAIN: &str = "right when it was read again";
const LOST: &str = "nothing is there to put it right from";
const NOT_NOW: &str = "not put right";

/// Samples of a device that were read.
#[derive(Default)]
struct Judged {
    held: u32,
    bad: Vec<Bad>,
    answers: Vec<((u8, SegmentId, u32), bool)>,
}

/// Of how many bytes samples were drawn.
struct DrawnOf {
    provable: steadfast_segment::Provable,
    bytes: BTreeMap<DeviceId, u64>,
}

impl DrawnOf {
    /// Hash of what samples of a device were drawn from: how many bytes of chunks, and of blocks.
    fn list(&self, device: DeviceId) -> [u8; 32] {
        let chunks = self.provable.chunks.get(&device).copied().unwrap_or(0);
        let all = self.bytes.get(&device).copied().unwrap_or(0);
        hash(&[chunks.to_le_bytes(), (all - chunks.min(all)).to_le_bytes()].concat())
    }
}

fn stratum(
    leaf: &Leaf,
    judged: Judged,
    bytes: u64,
    (seed, txg, list): ([u8; 32], Txg, [u8; 32]),
) -> StratumReport {
    let Judged { held, mut bad, mut answers } = judged;
    bad.sort_by_key(|bad| bad.sample.place());
    answers.sort_unstable();
    let mut told = Vec::with_capacity(answers.len() * 14);
    for ((kind, segment, offset), is_held) in answers {
        told.extend_from_slice(&segment.0.to_le_bytes());
        told.extend_from_slice(&offset.to_le_bytes());
        told.extend_from_slice(&[kind, u8::from(is_held)]);
    }
    let place = |bad: &Bad| bad.sample.place();
    let failed = bad.iter().take(NAMED_MAX).map(|bad| (place(bad).1.0, place(bad).2, bad.reason.clone()));
    StratumReport {
        device: leaf.path(),
        part: "all",
        store: u16::try_from(leaf.id().0).ok(),
        cells: bytes.div_ceil(CELL),
        samples: held + u32::try_from(bad.len()).expect("as many as samples"),
        held,
        failed: failed.collect(),
        failed_bytes: bad.iter().take(NAMED_MAX).map(|bad| bad.sample.bytes()).collect(),
        asked: Some(Asked { seed, generation: txg.0, list, answers: hash(&told) }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Damage of a part of the bytes, in blocks of many lengths, is missed as often as independent
    /// draws of bytes miss it [device_audit.1].
    #[test]
    fn damage_is_found_as_often_as_the_formula_says() {
        for (samples, bad_part, blocks) in [(200_u32, 0.01, 4000_u64), (50, 0.05, 500), (3, 0.5, 40)] {
            let lengths: Vec<u64> = (0..blocks).map(|at| 4096 * (1 + (at * at) % 61)).collect();
            let all: u64 = lengths.iter().sum();
            // Long blocks, of which few make the damage; the first that pass by, and the last ones.
            let orders: [fn(&[u64], usize) -> u64; 3] =
                [|lengths, at| u64::MAX - lengths[at], |_, at| at as u64, |_, at| u64::MAX - at as u64];
            for (kind, order) in orders.into_iter().enumerate() {
                let mut by: Vec<usize> = (0..lengths.len()).collect();
                by.sort_by_key(|at| order(&lengths, *at));
                let (mut bad, mut bad_bytes) = (BTreeSet::new(), 0);
                for at in by {
                    if bad_bytes as f64 >= bad_part * all as f64 {
                        break;
                    }
                    bad_bytes += lengths[at];
                    bad.insert(at);
                }
                let missed_part = (1.0 - bad_bytes as f64 / all as f64).powi(samples.try_into().unwrap());
                let audits = 2000;
                let mut missed = 0;
                for audit in 0_u32..audits {
                    let seed = [samples, u32::try_from(kind).unwrap(), audit].map(u32::to_le_bytes);
                    let mut dice = Dice::new(hash(seed.as_flattened()));
                    let mut reservoir = Reservoir::new(samples);
                    for (at, length) in lengths.iter().enumerate() {
                        reservoir.offer(*length, &mut dice, || at);
                    }
                    assert_eq!((reservoir.passed, reservoir.places.len()), (all, samples as usize));
                    missed += u32::from(!reservoir.places.iter().flatten().any(|at| bad.contains(at)));
                }
                let expected = missed_part * f64::from(audits);
                let sigma = (expected * (1.0 - missed_part)).sqrt();
                assert!(
                    (f64::from(missed) - expected).abs() < 4.0 * sigma,
                    "{samples} samples missed damage {kind} {missed} times, {expected:.0} ± {sigma:.0} expected"
                );
            }
        }
    }

    #[test]
    fn numbers_are_drawn_evenly() {
        let mut dice = Dice::new([7; 32]);
        let mut counts = [0_u32; 10];
        (0..100_000).for_each(|_| counts[usize::try_from(dice.below(10)).unwrap()] += 1);
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 400), "{counts:?}");
        assert!((0..10_000).map(|_| dice.fraction()).all(|fraction| fraction > 0.0 && fraction <= 1.0));
    }
}
