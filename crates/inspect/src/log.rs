//! The intent log: what lies where, and whether all that counts could be replayed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use steadfast_crypto::BlockKeys;
use steadfast_device::SegmentPlace;
use steadfast_format::{AuxClass, AuxConfig, DatasetId, LogRecord, LogStart, SegmentId, medium};
use steadfast_intent_log::{
    Damage, Group, Lack, Listed, Medium, MediumError, Survey, Wanted, list_groups, open_group, survey,
};
use steadfast_segment::{LogSegment, Space};

use crate::leaf::Leaf;
use crate::meta::Meta;
use crate::record::hex;
use crate::view::{Front, Request, View};
use crate::{Error, Finding, Found, Record, Sink};

/// Bytes of a log device that count (FORMAT.md, Auxiliary device).
const DEVICE_BYTES: u32 = 128 << 20;

enum Part {
    Segment(LogSegment),
    /// A slot of each device of a mirror, or of one that stands alone.
    Slot(Vec<Leaf>, u32),
}

/// All places where groups may lie. Nothing is written.
struct Places {
    space: Arc<Space>,
    slot_size: u32,
    parts: Vec<Part>,
}

impl Places {
    /// Places in the table and the labels. A listed device that was not given is a finding.
    fn of(view: &View, found: &mut Found<'_>) -> Places {
        let config = &view.front.config;
        let slot_size = config.slot_size;
        let given: Vec<_> = view.space.accounting().devices.iter().map(|usage| usage.device).collect();
        let segments = view.space.log_segments().into_iter();
        let mut parts: Vec<Part> = segments
            .filter(|at| at.devices().iter().any(|id| given.contains(id)))
            .map(Part::Segment)
            .collect();
        // Those that are out of use have perhaps only some of what was promised, and are not read.
        let used = config.aux.iter().filter(|aux| aux.class == AuxClass::Log && aux.is_in_use());
        let mut mirrors: Vec<Vec<&AuxConfig>> = Vec::new();
        for aux in used {
            let same =
                |mirror: &&mut Vec<&AuxConfig>| aux.log.mirror != 0 && mirror[0].log.mirror == aux.log.mirror;
            match mirrors.iter_mut().find(same) {
                Some(mirror) => mirror.push(aux),
                None => mirrors.push(vec![aux]),
            }
        }
        for mirror in mirrors {
            let sides = Places::sides(view, &mirror, found);
            let fits = |leaf: &Leaf| {
                let fits = medium::slot_count(leaf.device.character().size_bytes, slot_size);
                fits.min((DEVICE_BYTES / slot_size).max(1))
            };
            for slot in 0..sides.iter().map(&fits).max().unwrap_or(0) {
                let those = sides.iter().filter(|leaf| slot < fits(leaf)).cloned().collect();
                parts.push(Part::Slot(those, slot));
            }
        }
        Places { space: Arc::clone(&view.space), slot_size, parts }
    }

    /// Those devices of a mirror, or the one that stands alone, that were given and count; or
    /// without any that counts those that were given.
    fn sides(view: &View, mirror: &[&AuxConfig], found: &mut Found<'_>) -> Vec<Leaf> {
        let newest = view.front.config.txg;
        let given = |aux: &AuxConfig| view.front.logs.iter().find(|(guid, ..)| *guid == aux.guid);
        let is_whole = |aux: &AuxConfig| given(aux).is_some_and(|(_, txg, _)| *txg >= newest);
        let is_enough = mirror.iter().any(|aux| is_whole(aux));
        let mut sides = Vec::new();
        for aux in mirror {
            match (given(aux), is_enough) {
                (None, true) => found(Finding::LogSideMissing { path: aux.path.clone() }),
                (None, false) => found(Finding::LogDeviceMissing { path: aux.path.clone() }),
                (Some((_, txg, leaf)), true) if *txg < newest => {
                    found(Finding::LogSideOld { path: leaf.path.clone(), txg: *txg, newest });
                }
                (Some((_, txg, leaf)), _) => {
                    if *txg < newest {
                        found(Finding::LogDeviceOld { path: leaf.path.clone(), txg: *txg, newest });
                    }
                    sides.push(leaf.clone());
                }
            }
        }
        sides
    }

    fn name(&self, segment: usize) -> String {
        match &self.parts[segment] {
            Part::Segment(at) => format!("segment {}", at.segment),
            Part::Slot(sides, slot) => {
                let paths: Vec<&str> = sides.iter().map(|leaf| leaf.path.as_str()).collect();
                format!("{}, slot {slot}", paths.join(" and "))
            }
        }
    }

    /// The name of one copy.
    fn name_of(&self, segment: usize, copy: usize) -> String {
        match &self.parts[segment] {
            Part::Segment(_) => self.name(segment),
            Part::Slot(sides, slot) => format!("{}, slot {slot}", sides[copy].path),
        }
    }
}

impl Medium for Places {
    fn segments(&self) -> usize {
        self.parts.len()
    }

    fn segment_bytes(&self) -> u32 {
        self.slot_size
    }

    fn bytes_of(&self, segment: usize) -> u32 {
        match &self.parts[segment] {
            Part::Segment(at) => at.bytes,
            Part::Slot(..) => self.slot_size,
        }
    }

    fn copies(&self, segment: usize) -> usize {
        match &self.parts[segment] {
            Part::Segment(at) => at.copies(),
            Part::Slot(sides, _) => sides.len(),
        }
    }

    fn write(&self, _: usize, _: u32, _: &[u8]) -> Result<(), MediumError> {
        Err("inspection writes nothing".into())
    }

    fn flush(&self, _: usize) -> Result<(), MediumError> {
        Err("inspection writes nothing".into())
    }

    fn read(&self, segment: usize, copy: usize, offset: u32, out: &mut [u8]) -> Result<(), MediumError> {
        match &self.parts[segment] {
            Part::Segment(at) => Ok(self.space.read_log(at, copy, offset, out)?),
            Part::Slot(sides, slot) => {
                let segment = SegmentId(u64::from(*slot) + 1);
                let place = SegmentPlace { segment, slot: *slot, slot_size: self.slot_size };
                Ok(sides[copy].device.read_segment(place, offset, out)?)
            }
        }
    }
}

/// Prints the head, the places, and every group in them, whosever it is.
pub fn log(request: &Request<'_>, sink: &mut Sink<'_>) -> Result<(), Error> {
    let mut telling = |finding: Finding| sink(finding.record());
    let view = Front::open(request, &mut telling).and_then(|front| View::open(front, request, &mut telling));
    let mut view = view.ok_or(Error::NoPool)?;
    let meta = Meta::load(&mut view, request, &mut telling);
    let places = Places::of(&view, &mut telling);
    let head = view.uberblock.log;
    let record = Record::new("log").with("txg", view.uberblock.txg.0);
    sink(
        record
            .with_some("epoch", head.map(|head| hex(&head.epoch)))
            .with_some("next", head.map(|head| head.next))
            .with("places", places.parts.len())
            .with("bytes", places.parts.len() as u64 * u64::from(places.slot_size))
            .with("held", meta.held.len()),
    );
    let mut listed: Vec<Listed> = Vec::new();
    let unreadable = list_groups(&places, &mut |group| listed.push(group));
    for group in listed {
        let header = &group.header;
        let ours = header.pool == view.front.config.pool;
        let counts = head.is_some_and(|head| header.epoch == head.epoch && header.sequence >= head.next);
        let why = match (ours, counts, group.is_whole) {
            (false, ..) => "of another pool",
            (true, false, _) => "committed, or of another import",
            (true, true, false) => "torn or damaged",
            (true, true, true) => "",
        };
        let record = Record::new("group")
            .with("place", places.name_of(group.place.0, group.copy))
            .with("offset", group.place.1)
            .with("sequence", header.sequence)
            .with("txg", header.txg.0)
            .with("dataset", header.dataset.0)
            .with("bytes", header.length)
            .with("records", header.records)
            .with("sealed", header.stamp.counter != 0)
            .with("whole", group.is_whole)
            .with("counts", why.is_empty());
        sink(record.with_some("reason", Some(why).filter(|why| !why.is_empty())));
    }
    let Some(head) = head else {
        unreadable.iter().for_each(|damage| sink(finding_of(damage, &places).record()));
        return Ok(());
    };
    let Survey { groups, stranded, missing, damage, lacks } = found_behind(&view, &places, head);
    damage.iter().for_each(|damage| sink(finding_of(damage, &places).record()));
    lacks.iter().filter_map(|lack| lack_of(lack, &places)).for_each(|finding| sink(finding.record()));
    sink(
        Record::new("totals")
            .with("replayable", groups.len())
            .with("stranded", stranded.len())
            .with("missing", missing)
            .with("bytes", groups.iter().map(|group| group.body.len() as u64).sum::<u64>())
            .with("kinds", kinds(&groups)),
    );
    Ok(())
}

/// Groups behind the head of a root; in a pool with an anchor whose record was given, as far as
/// that vouches for them.
fn found_behind(view: &View, places: &Places, head: LogStart) -> Survey {
    let mut all = survey(places, &Wanted { pool: view.front.config.pool, head, unhashed: false });
    if let Some(promised) = view.front.promised {
        all.hold_to(head.next, promised);
    }
    all
}

/// How many records of each kind stand in groups that are not sealed.
fn kinds(groups: &[Group]) -> String {
    const KINDS: [&str; 7] = ["set", "removed", "inode", "gone", "data", "cut", "counters"];
    let mut counts = [0_u64; KINDS.len()];
    for group in groups.iter().filter(|group| group.header.stamp.counter == 0) {
        for record in LogRecord::decode_all(&group.body, group.header.records).unwrap_or_default() {
            counts[match record {
                LogRecord::Set { .. } => 0,
                LogRecord::Removed { .. } => 1,
                LogRecord::Inode { .. } => 2,
                LogRecord::Gone { .. } => 3,
                LogRecord::Data { .. } => 4,
                LogRecord::Cut { .. } => 5,
                LogRecord::Counters { .. } => 6,
            }] += 1;
        }
    }
    let some = KINDS.iter().zip(counts).filter(|(_, count)| *count > 0);
    some.map(|(kind, count)| format!("{kind}:{count}")).collect::<Vec<_>>().join(",")
}

fn finding_of(damage: &Damage, places: &Places) -> Finding {
    match damage {
        Damage::Unreadable { segment, source } => {
            Finding::LogUnreadable { place: places.name(*segment), reason: source.to_string() }
        }
        Damage::Gap { missing, found } => Finding::LogGap { missing: *missing, found: *found },
        Damage::Chain { sequence } => Finding::LogChain { sequence: *sequence },
        Damage::Short { promised } => Finding::LogShort { promised: *promised },
        Damage::Committed { sequence, txg } => Finding::LogCommitted { sequence: *sequence, txg: *txg },
        Damage::Lost { sequence } => Finding::LogHeld { sequence: *sequence },
        Damage::Records { sequence, source } => {
            Finding::LogRecords { sequence: *sequence, reason: source.to_string() }
        }
        other => Finding::LogRecords { sequence: 0, reason: other.to_string() },
    }
}

/// A group that one device of a mirror lost and another one has. A group that never came to one is
/// the work of a crash.
fn lack_of(lack: &Lack, places: &Places) -> Option<Finding> {
    let (segment, _) = lack.place;
    let is_mirror = matches!(places.parts[segment], Part::Slot(..));
    let finding = || Finding::LogCopy { place: places.name_of(segment, lack.copy), sequence: lack.sequence };
    (is_mirror && lack.was_durable).then(finding)
}

/// Keys of a dataset, if they are to be had and it needs any.
type Keys = Result<Option<Arc<BlockKeys>>, ()>;

/// Holds the log against the root and the datasets.
pub(crate) fn check(view: &mut View, meta: &Meta, found: &mut Found<'_>) {
    let places = Places::of(view, found);
    let pool = view.front.config.pool;
    let head = view.uberblock.log;
    let mut torn: Vec<u64> = Vec::new();
    let mut strangers = BTreeSet::new();
    let unreadable = list_groups(&places, &mut |Listed { place, header, is_whole, .. }| {
        if header.pool != pool && is_whole && strangers.insert(header.pool) {
            found(Finding::LogForeign { place: places.name(place.0), pool: header.pool });
        }
        let ours = header.pool == pool;
        if head.is_some_and(|head| ours && header.epoch == head.epoch && header.sequence >= head.next)
            && !is_whole
        {
            torn.push(header.sequence);
        }
    });
    let Some(head) = head else {
        unreadable.iter().for_each(|damage| found(finding_of(damage, &places)));
        return;
    };
    let all = found_behind(view, &places, head);
    all.damage.iter().for_each(|damage| found(finding_of(damage, &places)));
    all.lacks.iter().filter_map(|lack| lack_of(lack, &places)).for_each(&mut *found);
    // Groups before a gap are part of that finding.
    let last = all.groups.iter().chain(&all.stranded).map(|group| group.header.sequence).max();
    for sequence in torn.into_iter().filter(|sequence| last.is_none_or(|last| *sequence > last)) {
        found(Finding::LogTorn { sequence });
    }
    for held in &meta.held {
        let is_there =
            all.groups.iter().any(|group| group.header.sequence + 1 == held.end && group.hash == held.hash);
        if !is_there {
            found(Finding::LogHeld { sequence: held.end.saturating_sub(1) });
        }
    }
    let base = meta.held.iter().map(|held| held.base).min().unwrap_or(view.uberblock.txg);
    let mut known = BTreeMap::new();
    for group in &all.groups {
        check_group(view, meta, group, base, &mut known, found);
    }
}

fn check_group(
    view: &mut View,
    meta: &Meta,
    group: &Group,
    base: steadfast_format::Txg,
    known: &mut BTreeMap<DatasetId, Keys>,
    found: &mut Found<'_>,
) {
    let (sequence, dataset, txg) = (group.header.sequence, group.header.dataset, group.header.txg);
    if txg <= base {
        found(Finding::LogCommitted { sequence, txg });
        return;
    }
    let Some(row) = meta.datasets.iter().find(|row| row.id == dataset) else {
        found(Finding::LogDataset { sequence, dataset });
        return;
    };
    let is_sealed = group.header.stamp.counter != 0;
    if is_sealed != row.encryption.is_some() {
        found(Finding::LogSeal { sequence, dataset });
        return;
    }
    let keys = known.entry(dataset).or_insert_with(|| {
        // Why a dataset cannot be opened was told when its trees were checked.
        let keys = Meta::keys_of(view, row, &mut |_| {});
        if keys.is_err() {
            found(Finding::LogLocked { dataset });
        }
        keys
    });
    let Ok(keys) = keys else { return };
    match open_group(group, keys.as_deref()) {
        Ok(_) => {}
        Err(Damage::Records { sequence, source }) => {
            found(Finding::LogRecords { sequence, reason: source.to_string() });
        }
        Err(_) => found(Finding::LogSeal { sequence, dataset }),
    }
}
