//! The check: everything that can be reached is read, and the table is held against what was
//! reached.
//!
//! ## What is claimed when nothing is found
//! [inspect.1] Every copy of every block reachable from the newest uberblock has the hash its
//!      parent carries and, where the key is at hand, opens and decompresses to what its pointer
//!      says.
//! [inspect.2] Every unit a pointer leads to lives in the table, in a segment of the right owner
//!      and class, and belongs to one block only, which one pointer leads to, or as many as its
//!      reference row says.
//! [inspect.3] Every unit that lives in the table belongs to a block, so that no space is lost.
//! [inspect.4] Rows, relocations, datasets and counts agree with each other and with what import
//!      demands.
//! [inspect.5] Every chunk of every column of a redundant segment has its checksum, its parity
//!      fits, and its copies are alike.
//! [inspect.6] Each block that a snapshot needs is kept by its dataset or by a cell, and each block
//!      in a cell is needed by a snapshot, to the byte.
//! [inspect.7] A block has as many references as its row says, one if it has none, and sums are
//!      those of the rows.
//! [inspect.13] In each head and snapshot each entry leads to an inode of its kind, lies where its
//!      name's hash says and is the only one of its name; directories form one tree below the root;
//!      links, sizes of directories, orphans, owners' rows and the row's counts are those that are
//!      counted; and the next inode's number is free.
//! [inspect.14] No dead range reaches over a living snapshot.
//! [inspect.15] All this is so of the checkpoint's root too, and no segment lies where another of
//!      its segments does.
//!
//! Without a key, [inspect.1] ends at the roots of encrypted datasets, [inspect.3] says nothing
//! of their segments, and [inspect.13] nothing of them.

use std::collections::{BTreeMap, BTreeSet};

use steadfast_device::Device;
use steadfast_format::extent::{Extent, decode_cut};
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::{Address, BlockKind, BlockPointer, DatasetId, DatasetRow, OwnerRow, Txg, Uberblock};
use steadfast_segment::Class;

use crate::checkpoint;
use crate::clones::{self, Border, Shared};
use crate::finding::{At, Bookmark, Severity};
use crate::items;
use crate::leaf::{RingSlot, Tag, copies_of};
use crate::meta::Meta;
use crate::namespace;
use crate::snapshots;
use crate::view::{Content, Front, Request, View};
use crate::walk::{Item, Visit, Walk};
use crate::{Finding, Found, Record};

/// Findings of one kind that are told one by one; the rest are counted.
const SHOWN_MAX: u64 = 1_000;

/// Result of a check.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Summary {
    /// Findings by severity.
    pub findings: BTreeMap<Severity, u64>,
    /// Txg that was checked.
    pub txg: Option<Txg>,
    /// Datasets whose trees were walked.
    pub datasets: u64,
    /// Snapshots whose trees were walked.
    pub snapshots: u64,
    /// Blocks that were reached.
    pub blocks: u64,
    /// Their bytes on devices, all copies, with padding.
    pub bytes: u64,
    /// Segments with a row.
    pub segments: u64,
    /// Of these, segments in which nothing lives: they were open at the commit, and import gives
    /// them back.
    pub empty_segments: u64,
    /// Units that live in the table.
    pub live_units: u64,
    /// Units below the fill marks that are dead in the table: what the cleaner can give back.
    pub dead_units: u64,
    /// Units that live in the table and belong to no block.
    pub leaked_units: u64,
    /// Units of segments about which this could not be told.
    pub unknown_units: u64,
}

impl Summary {
    /// The gravest finding.
    #[must_use]
    pub fn worst(&self) -> Option<Severity> {
        self.findings.keys().next_back().copied()
    }

    /// The summary as a line of output.
    #[must_use]
    pub fn record(&self) -> Record {
        let mut record = Record::new("summary")
            .with("worst", self.worst().map_or("none", Severity::word))
            .with_some("txg", self.txg.map(|txg| txg.0))
            .with("datasets", self.datasets)
            .with("snapshots", self.snapshots)
            .with("blocks", self.blocks)
            .with("bytes", self.bytes)
            .with("segments", self.segments)
            .with("empty_segments", self.empty_segments)
            .with("live_units", self.live_units)
            .with("dead_units", self.dead_units)
            .with("leaked_units", self.leaked_units)
            .with("unknown_units", self.unknown_units);
        for (severity, count) in &self.findings {
            record = record.with(severity.word(), *count);
        }
        record
    }
}

/// Checks a pool. Findings come as they are made.
pub fn check(request: &Request<'_>, found: &mut Found<'_>) -> Summary {
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut findings: BTreeMap<Severity, u64> = BTreeMap::new();
    let mut limited = |finding: Finding| {
        let (code, severity) = finding.class();
        *findings.entry(severity).or_default() += 1;
        let count = counts.entry(code).or_default();
        *count += 1;
        if *count <= SHOWN_MAX {
            found(finding);
        }
    };
    let mut summary = Summary::default();
    run(request, &mut summary, &mut limited);
    for (code, count) in counts {
        if count > SHOWN_MAX {
            found(Finding::More { code, count: count - SHOWN_MAX });
        }
    }
    Summary { findings, ..summary }
}

fn run(request: &Request<'_>, summary: &mut Summary, found: &mut Found<'_>) {
    let Some(front) = Front::open(request, found) else { return };
    check_rings(&front, request, found);
    let Some(view) = View::open(front, request, found) else { return };
    let checkpoint = check_root(view, request, summary, found);
    // [inspect.15]
    let view = checkpoint.and_then(|root| checkpoint::view(request, &root, found));
    if let Some(view) = view {
        check_root(view, request, &mut Summary::default(), found);
    }
}

/// Checks all that one root leads to. Gives the root of its checkpoint.
fn check_root(
    mut view: View,
    request: &Request<'_>,
    summary: &mut Summary,
    found: &mut Found<'_>,
) -> Option<Uberblock> {
    summary.txg = Some(view.uberblock.txg);
    let meta = Meta::load(&mut view, request, found);

    let mut reach =
        Reach { owner: DatasetId(0), encrypted: view.front.keys.is_some(), bytes: 0, data: 0, blocks: 0 };
    let tail = view.uberblock.tail;
    let bookmark = Bookmark { dataset: DatasetId(0), kind: BlockKind::Tail, level: tail.level, at: At::Root };
    reach.judge(&mut view, &tail, &bookmark, found);
    for (pointer, bookmark) in &meta.nodes {
        reach.judge(&mut view, pointer, bookmark, found);
    }
    reach.add_to(summary);

    // Owners of which not everything was reached: what lives in their segments unseen is not called
    // leaked.
    let mut partly: BTreeSet<DatasetId> = BTreeSet::new();
    let mut opened = Vec::new();
    let owner_of =
        |row: &DatasetRow| row.encryption.as_ref().map_or(DatasetId(0), |encryption| encryption.owner);
    for row in &meta.datasets {
        let keys = Meta::keys_of(&mut view, row, found);
        // The snapshot that a hidden dataset began as belongs to its target.
        let began = meta.receives.get(&row.id).map_or(Txg(0), |(_, txg)| *txg);
        let base = meta.base(row.id).max(began);
        let head = check_dataset(&mut view, row, (owner_of(row), base), &keys, summary, found);
        if !head.whole {
            partly.insert(owner_of(row));
        }
        opened.push((keys, head));
    }
    // Nobody reads what is left of owners that go as a whole: their segments are dropped.
    let mut going: BTreeSet<DatasetId> =
        meta.datasets.iter().filter(|row| row.destroying).map(owner_of).collect();
    meta.datasets.iter().filter(|row| !row.destroying).for_each(|row| _ = going.remove(&owner_of(row)));
    going.remove(&DatasetId(0));
    partly.extend(going);
    snapshots::check_cells(&mut view, &meta, found);
    let unsure = meta.datasets.iter().filter(|row| partly.contains(&owner_of(row))).map(|row| row.id);
    let unsure: BTreeSet<DatasetId> = unsure.collect();
    clones::check_shadows(&view, &meta, &unsure, found);
    for (row, (keys, head)) in meta.datasets.iter().zip(opened) {
        if let Ok(keys) = keys {
            namespace::check(&view, &meta, row, &keys, found);
            let mut shared = Shared::new(row.id, keys, !unsure.contains(&row.id));
            if meta.origins.contains_key(&row.id) {
                shared.behind(&mut view, &head.border, found);
                if head.whole {
                    shared.compare(&meta, row, (head.bytes, head.data), found);
                }
            }
            snapshots::check_snapshots(&mut view, &meta, row, &mut shared, summary, found);
        }
    }
    check_table(&view, &meta, &partly, summary, found);
    if meta.whole {
        crate::references::check(&view, &partly, found);
        crate::manifests::check(&view, found);
    }
    crate::log::check(&mut view, &meta, found);
    if meta.table_whole {
        crate::columns::check(&view, &meta, found);
    }
    meta.checkpoint
}

/// Rings: torn slots, missing copies, forks, and the chain of parents.
fn check_rings(front: &Front, request: &Request<'_>, found: &mut Found<'_>) {
    let mut chain: BTreeMap<(u64, Txg), ([u8; 32], [u8; 32])> = BTreeMap::new();
    let newest = front.uberblock().map(Uberblock::age);
    let mut copies = 0;
    for seen in &front.seen {
        let path = || request.leaves[seen.leaf].path.clone();
        let torn = |reason: String| Finding::UberblockTorn {
            path: path(),
            copy: seen.copy,
            slot: seen.slot,
            reason,
        };
        match &seen.content {
            RingSlot::Empty => {}
            RingSlot::Malformed(error) => found(torn(error.to_string())),
            RingSlot::Uberblock { validity: Tag::Wrong, .. } => found(torn("its tag is wrong".to_owned())),
            RingSlot::Uberblock { uberblock, tag, .. } => {
                if uberblock.pool != front.config.pool {
                    found(torn(format!("it is of pool {}", uberblock.pool)));
                    continue;
                }
                if uberblock.keyed != front.config.key.is_some() {
                    found(torn("its tag is keyed, or not, unlike the pool".to_owned()));
                    continue;
                }
                if front.anchored.is_some_and(|anchored| uberblock.txg > anchored) {
                    continue; // of a commit that did not come to its register
                }
                copies += usize::from(Some(uberblock.age()) == newest);
                let known = chain.entry(uberblock.age()).or_insert((*tag, uberblock.parent));
                if known.0 != *tag {
                    found(Finding::UberblockFork { path: path(), copy: seen.copy, txg: uberblock.txg });
                }
            }
        }
    }
    // A store has a copy of the anchored root when the commit is over, or of one before.
    let is_asked = |device: &dyn Device| front.anchored.is_none() || device.objects().is_none();
    let present = request.leaves.iter().zip(&front.devices).filter(|(_, at)| at.is_some());
    let asked = present.map(|(leaf, _)| &*leaf.device).filter(|device| is_asked(*device));
    let rings = asked.map(copies_of).sum::<usize>();
    if let Some((_, txg)) = newest
        && copies < rings
    {
        found(Finding::UberblockFew { txg, found: copies, rings });
    }
    for ((before, (tag, _)), (root, (_, parent))) in chain.iter().zip(chain.iter().skip(1)) {
        if (before.0, before.1.next()) == *root && parent != tag {
            found(Finding::UberblockParent { txg: root.1, before: before.1 });
        }
    }
}

/// Result of the walk of a head.
struct Head {
    /// False if not all of it was reached.
    whole: bool,
    /// Bytes that it reached, and how many of them are content.
    bytes: u64,
    data: u64,
    /// Where it stopped, of a clone.
    border: Border,
}

/// Walks both trees of a dataset, of a clone as far as they are its own: what was born after its
/// base.
fn check_dataset(
    view: &mut View,
    row: &DatasetRow,
    (owner, base): (DatasetId, Txg),
    keys: &Result<Option<std::sync::Arc<steadfast_crypto::BlockKeys>>, ()>,
    summary: &mut Summary,
    found: &mut Found<'_>,
) -> Head {
    let trees = [(BlockKind::Names, row.names), (BlockKind::Extents, row.extents)];
    let mut reach = Reach { owner, encrypted: row.encryption.is_some(), bytes: 0, data: 0, blocks: 0 };
    let (mut whole, mut border) = (keys.is_ok(), Border::new());
    for (kind, root) in trees {
        let Some(root) = root else { continue };
        let keys = keys.clone().unwrap_or_default();
        let walk = Walk { dataset: row.id, kind, keys: keys.clone(), root };
        let mut blocks =
            Blocks { reach: &mut reach, dataset: row.id, base, border: &mut border, keys, whole: true };
        whole &= walk.run(view, &mut blocks, found);
        whole &= blocks.whole;
    }
    summary.datasets += 1;
    reach.add_to(summary);
    if whole && !row.destroying && base.0 == 0 {
        for (field, stored, found_bytes) in [("used", row.used, reach.bytes), ("data", row.data, reach.data)]
        {
            if stored != found_bytes {
                found(Finding::Count { dataset: row.id, field, stored, found: found_bytes });
            }
        }
    }
    Head { whole, bytes: reach.bytes, data: reach.data, border }
}

/// Holds the table against what was reached.
fn check_table(
    view: &View,
    meta: &Meta,
    partly: &BTreeSet<DatasetId>,
    summary: &mut Summary,
    found: &mut Found<'_>,
) {
    for (&segment, row) in &view.table.rows {
        let live = row.live();
        summary.segments += 1;
        summary.live_units += u64::from(live);
        summary.dead_units += u64::from(row.filled - live);
        summary.empty_segments += u64::from(live == 0);
        // Segments of the intent log belong to it: no pointer leads there.
        let of_log = Class::from_u8(row.class) == Some(Class::Log);
        let units = if of_log { 0 } else { view.table.unmarked(segment) };
        let of_pool = Class::from_u8(row.class).is_some_and(Class::is_pool);
        if !meta.whole || !meta.table_whole || (!of_pool && partly.contains(&row.owner.without_copy())) {
            summary.unknown_units += u64::from(units);
        } else if units > 0 {
            summary.leaked_units += u64::from(units);
            found(Finding::Leaked { segment, units });
        }
    }
    if meta.table_whole {
        let unit = u64::from(view.table.geometry.unit);
        let table = view.space.accounting().live_bytes / unit;
        if table != summary.live_units {
            found(Finding::LiveSum { rows: summary.live_units, table });
        }
        if let Err(reason) = view.space.check() {
            found(Finding::Table { reason });
        }
    }
}

/// Judges pointers of one owner and marks what they lead to.
struct Reach {
    owner: DatasetId,
    encrypted: bool,
    /// Bytes of all copies of all blocks, with padding.
    bytes: u64,
    /// Of these, file content.
    data: u64,
    blocks: u64,
}

impl Reach {
    fn add_to(&self, summary: &mut Summary) {
        summary.blocks += self.blocks;
        summary.bytes += self.bytes;
    }

    /// True if the block is worth reading: it was not reached before.
    fn judge(
        &mut self,
        view: &mut View,
        pointer: &BlockPointer,
        bookmark: &Bookmark,
        found: &mut Found<'_>,
    ) -> bool {
        let odd =
            |reason: &str| Finding::PointerOdd { bookmark: bookmark.clone(), reason: reason.to_owned() };
        if pointer.birth > view.uberblock.txg {
            found(odd("it was born after the newest commit"));
        }
        if pointer.is_sealed() != self.encrypted {
            found(odd(if self.encrypted {
                "it is not sealed"
            } else {
                "it is sealed, and no key belongs to it"
            }));
        }
        if pointer.kind.is_metadata()
            && pointer.copy_count() == 1
            && !view.is_on_stores(pointer.copies[0], pointer.psize)
        {
            found(Finding::CopyMissing { bookmark: bookmark.clone() });
        }
        if let Some(reason) = view.table.manifests.lacks(pointer, bookmark) {
            let (bookmark, address) = (bookmark.clone(), pointer.copies[0]);
            found(Finding::ManifestLacks { bookmark, address, reason: reason.to_owned() });
        }
        let mut fresh = true;
        let mut lies_in: BTreeSet<_> = BTreeSet::new();
        for (copy, &address) in pointer.copies[..pointer.copy_count()].iter().enumerate() {
            let Some(pieces) = view.table.resolve(address, pointer.psize) else {
                found(Finding::PointerUnallocated { bookmark: bookmark.clone(), address });
                continue;
            };
            let segments: BTreeSet<_> = pieces.iter().map(|piece| piece.segment).collect();
            if let Some(&segment) = lies_in.intersection(&segments).next() {
                found(Finding::CopiesTogether { bookmark: bookmark.clone(), segment });
            }
            for &segment in &segments {
                let Some(row) = view.table.rows.get(&segment) else { continue };
                let owner = match pointer.kind {
                    BlockKind::Data => self.owner.of_copy(copy, pointer.copy_count()),
                    _ => self.owner,
                };
                if row.owner != owner || !class_fits(pointer.kind, copy, row.class) {
                    let (bookmark, owner, class) = (bookmark.clone(), row.owner, row.class);
                    found(Finding::SegmentWrong { bookmark, segment, owner, class });
                }
            }
            // Units of a block that is shared are marked by its first reference.
            if copy == 0 && view.table.references.is_listed(pointer) {
                view.table.references.see(bookmark, pointer);
                if !view.table.references.count(address) {
                    fresh = false;
                    lies_in.extend(segments);
                    continue;
                }
            }
            fresh &= self.mark(view, &pieces, (address, bookmark), found);
            lies_in.extend(segments);
        }
        let bytes = u64::from(pointer.asize(view.table.geometry.unit)) * pointer.copy_count() as u64;
        self.blocks += 1;
        self.bytes += bytes;
        self.data += if pointer.kind == BlockKind::Data { bytes } else { 0 };
        fresh
    }

    fn mark(
        &self,
        view: &mut View,
        pieces: &[crate::table::Piece],
        (address, bookmark): (Address, &Bookmark),
        found: &mut Found<'_>,
    ) -> bool {
        let (mut dead, mut twice) = (0, 0);
        for piece in pieces {
            let marked = view.table.mark(*piece);
            view.table.see(*piece);
            dead += marked.dead;
            twice += marked.twice;
        }
        if dead > 0 {
            found(Finding::PointerDead { bookmark: bookmark.clone(), address, units: dead });
        }
        if twice > 0 {
            found(Finding::Overlap { bookmark: bookmark.clone(), address, units: twice });
        }
        twice == 0
    }
}

fn class_fits(kind: BlockKind, copy: usize, class: u8) -> bool {
    let Some(class) = Class::from_u8(class) else { return false };
    match kind {
        BlockKind::Data => matches!(class, Class::Data | Class::Clean | Class::Small),
        BlockKind::Names | BlockKind::Extents => class == [Class::Meta0, Class::Meta1][copy],
        BlockKind::Meta | BlockKind::Tail => class == [Class::Pool0, Class::Pool1][copy],
    }
}

/// Blocks of one dataset: judged, and content read.
struct Blocks<'r> {
    reach: &'r mut Reach,
    dataset: DatasetId,
    /// Blocks born by then belong to its origin, and are not entered here.
    base: Txg,
    border: &'r mut Border,
    keys: Option<std::sync::Arc<steadfast_crypto::BlockKeys>>,
    whole: bool,
}

impl Blocks<'_> {
    /// True if a block is the dataset's own; else it is noted as its border.
    fn is_own(&mut self, pointer: &BlockPointer, bookmark: &Bookmark) -> bool {
        if pointer.birth <= self.base {
            self.border.push((*pointer, bookmark.clone()));
        }
        pointer.birth > self.base
    }
}

impl Visit for Blocks<'_> {
    fn node(
        &mut self,
        view: &mut View,
        pointer: &BlockPointer,
        bookmark: &Bookmark,
        found: &mut Found<'_>,
    ) -> bool {
        self.is_own(pointer, bookmark) && self.reach.judge(view, pointer, bookmark, found)
    }

    fn item(&mut self, view: &mut View, item: Item<'_>, found: &mut Found<'_>) {
        if item.leaf.kind == BlockKind::Names {
            let checked = NamesKey::decode(item.key).and_then(|key| items::names_value(&key, item.value));
            if let Err(error) = checked {
                found(item.bad(error));
            }
            return;
        }
        let (inode, offset) = match ExtentsKey::decode(item.key) {
            Ok(ExtentsKey::Extent { inode, offset }) => (inode, offset),
            Ok(ExtentsKey::Cut { start, .. }) => {
                if let Err(error) = decode_cut(start, item.value) {
                    found(item.bad(error));
                }
                return;
            }
            Ok(ExtentsKey::Owners) => return,
            Ok(ExtentsKey::Owner(_)) => {
                if let Err(error) = OwnerRow::decode(item.value) {
                    found(item.bad(error));
                }
                return;
            }
            Err(error) => {
                // The blocks of such an item are unknown.
                self.whole = false;
                found(item.bad(error));
                return;
            }
        };
        match Extent::decode(item.value) {
            Err(error) => {
                self.whole = false;
                found(item.bad(error));
            }
            Ok(extent) => {
                for pointer in extent.pointers() {
                    let at = At::File { inode, offset };
                    let bookmark =
                        Bookmark { dataset: self.dataset, kind: BlockKind::Data, level: pointer.level, at };
                    if pointer.kind != BlockKind::Data || pointer.level != 0 {
                        let reason = format!("it is of kind {:?}, level {}", pointer.kind, pointer.level);
                        found(Finding::PointerOdd { bookmark: bookmark.clone(), reason });
                    }
                    if self.is_own(pointer, &bookmark) && self.reach.judge(view, pointer, &bookmark, found) {
                        let content = view.read(pointer, &bookmark, self.keys.as_deref(), found);
                        debug_assert!(!matches!(content, Content::Locked) || self.keys.is_none());
                    }
                }
            }
        }
    }
}
