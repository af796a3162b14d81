//! The catalogue: one variant for each thing that can be wrong with a pool's devices. Its severity
//! follows from what the fault costs, not from how it came about. New checks add variants; codes
//! are never used again for another thing.

use std::fmt;

use steadfast_blockio::Badness;
use steadfast_dataset::Problem;
use steadfast_format::{Address, BlockKind, DatasetId, DeviceId, InodeId, PoolGuid, SegmentId, Txg};

use crate::Record;

/// Severity of a finding, mildest first.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Severity {
    /// Nothing: what a crash or an older commit leaves behind.
    Note,
    /// Nothing known: it could not be looked at (a key or a device is missing).
    Unchecked,
    /// Space is lost or a count is wrong; no content is.
    Leak,
    /// One copy, or one safeguard, is lost; everything can still be read.
    Degraded,
    /// Content cannot be read, or metadata contradicts itself and may cost content later.
    Damage,
    /// The pool cannot be imported as it is.
    Fatal,
}

impl Severity {
    /// One word, for records.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Unchecked => "unchecked",
            Severity::Leak => "leak",
            Severity::Degraded => "degraded",
            Severity::Damage => "damage",
            Severity::Fatal => "fatal",
        }
    }
}

/// Owner of a block, so that a finding can be followed to a file.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Bookmark {
    /// Dataset, 0 for the pool's own metadata.
    pub dataset: DatasetId,
    /// Kind of the block.
    pub kind: BlockKind,
    /// Height above the leaves.
    pub level: u8,
    /// Where in its tree or file.
    pub at: At,
}

/// Where in a tree or a file a block is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum At {
    /// The root of a tree, or the commit tail.
    Root,
    /// Below an inner node, from this key on (empty: from its beginning).
    Key(Vec<u8>),
    /// Content of a file from this offset on.
    File {
        /// The file.
        inode: InodeId,
        /// The offset.
        offset: u64,
    },
    /// In a cell of what a dataset let go.
    Cell {
        /// Youngest snapshot when it was let go.
        left: Txg,
        /// Youngest snapshot older than its birth, or 0.
        born: Txg,
    },
}

impl fmt::Display for Bookmark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dataset {}, {:?}, level {}", self.dataset, self.kind, self.level)?;
        match &self.at {
            At::Root => f.write_str(", root"),
            At::Key(key) => write!(f, ", from key {}", crate::record::hex(key)),
            At::File { inode, offset } => write!(f, ", inode {inode}, offset {offset}"),
            At::Cell { left, born } => write!(f, ", in the cell ({left}, {born})"),
        }
    }
}

/// Something that is not as it should be.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Finding {
    /// One copy of a label is not valid.
    #[error("{path}: label copy {copy}: {reason}")]
    LabelCopy {
        /// Device.
        path: String,
        /// Which copy, 0 to 3.
        copy: usize,
        /// The fault.
        reason: String,
    },
    /// A device has no valid label.
    #[error("{path}: no copy of its label is valid")]
    LabelNone {
        /// Device.
        path: String,
    },
    /// Valid copies of one label differ: a crash while labels were written.
    #[error("{path}: label copy {copy} is of txg {txg}, another is of txg {newest}")]
    LabelOld {
        /// Device.
        path: String,
        /// Which copy.
        copy: usize,
        /// Its txg.
        txg: Txg,
        /// The newest copy's.
        newest: Txg,
    },
    /// A device belongs to another pool than the first one.
    #[error("{path}: is a device of pool {pool}, not of this one")]
    DeviceForeign {
        /// Device.
        path: String,
        /// Its pool.
        pool: PoolGuid,
    },
    /// A device of the pool was given twice, or two devices claim to be the same.
    #[error("{path}: device {device} was given already")]
    DeviceTwice {
        /// Device.
        path: String,
        /// Its number.
        device: DeviceId,
    },
    /// A device of the pool was not given.
    #[error("device {device} of the pool, last seen at {path}, was not given")]
    DeviceMissing {
        /// Last known path.
        path: String,
        /// Its number.
        device: DeviceId,
    },
    /// A device was not given, and its group can do without it.
    #[error("device {device} of the pool, last seen at {path}, was not given; its group can do without it")]
    DeviceSpared {
        /// Last known path.
        path: String,
        /// Its number.
        device: DeviceId,
    },
    /// A device that was given has no valid label, and the pool can do without those that were not
    /// found.
    #[error("{path}: no copy of its label is valid; the pool can do without it")]
    LabelSpared {
        /// Device.
        path: String,
    },
    /// A device is out of use: taken out, failed, or gone at the last import. Its content is old.
    #[error("device {device}, {path}, is out of use ({state})")]
    DeviceOut {
        /// Last known path.
        path: String,
        /// Its number.
        device: DeviceId,
        /// Why: offline, faulted, gone.
        state: &'static str,
    },
    /// A device is smaller than its slots need.
    #[error("{path}: has room for {room} slots, its label promises {slots}")]
    DeviceShort {
        /// Device.
        path: String,
        /// Slots there is room for.
        room: u32,
        /// Slots it should have.
        slots: u32,
    },
    /// A ring could not be read.
    #[error("{path}: ring {copy} cannot be read: {reason}")]
    RingUnreadable {
        /// Device.
        path: String,
        /// Which label's ring.
        copy: usize,
        /// Why.
        reason: String,
    },
    /// A slot of a ring holds something that is no valid uberblock.
    #[error("{path}: ring {copy}, slot {slot}: {reason}")]
    UberblockTorn {
        /// Device.
        path: String,
        /// Which label's ring.
        copy: usize,
        /// Which slot.
        slot: usize,
        /// Why it does not count.
        reason: String,
    },
    /// The newest uberblock is not in every ring.
    #[error("the uberblock of txg {txg} is in {found} of {rings} rings")]
    UberblockFew {
        /// Its txg.
        txg: Txg,
        /// Rings that have it.
        found: usize,
        /// Rings there are.
        rings: usize,
    },
    /// Two different valid uberblocks claim the same txg: somebody wrote history twice.
    #[error("{path}: ring {copy} has another uberblock of txg {txg} than the first")]
    UberblockFork {
        /// Device.
        path: String,
        /// Which label's ring.
        copy: usize,
        /// The txg.
        txg: Txg,
    },
    /// An uberblock does not follow the one before it.
    #[error("the uberblock of txg {txg} does not carry the tag of txg {before}, which is in the ring")]
    UberblockParent {
        /// Its txg.
        txg: Txg,
        /// The one before it.
        before: Txg,
    },
    /// No uberblock counts.
    #[error("no ring holds a valid uberblock of this pool")]
    UberblockNone,
    /// The pool's own metadata is sealed and the key was not given.
    #[error(
        "the pool's metadata is sealed: only its labels, its rings and the hash of its tail can be checked"
    )]
    PoolLocked,
    /// A given secret opens nothing.
    #[error("the key does not open {what}: {reason}")]
    KeyWrong {
        /// The thing that it was tried on.
        what: String,
        /// Why not.
        reason: String,
    },
    /// An encrypted dataset whose key was not given: its trees end at their roots.
    #[error("dataset {dataset} is encrypted: only the hashes of its roots were checked")]
    DatasetLocked {
        /// The dataset.
        dataset: DatasetId,
    },
    /// The commit tail is not acceptable.
    #[error("commit tail: {reason}")]
    Tail {
        /// Why.
        reason: String,
    },
    /// The segment table contradicts itself.
    #[error("segment table: {reason}")]
    Table {
        /// How.
        reason: String,
    },
    /// A copy of a block cannot be used, but another can.
    #[error("{bookmark}: copy at segment {}, offset {}: {}, {detail}", address.segment, address.offset, badness.word())]
    CopyBad {
        /// The block.
        bookmark: Bookmark,
        /// The copy.
        address: Address,
        /// How it is bad.
        badness: Badness,
        /// More of it.
        detail: String,
    },
    /// No copy of a block can be used: it and all below it are lost.
    #[error("{bookmark}: no copy can be used: {detail}")]
    BlockLost {
        /// The block.
        bookmark: Bookmark,
        /// The fault of each.
        detail: String,
    },
    /// Metadata with one copy only, and not on a store of whole objects.
    #[error("{bookmark}: has one copy only")]
    CopyMissing {
        /// The block.
        bookmark: Bookmark,
    },
    /// Both copies lie in one segment: one fault takes both.
    #[error("{bookmark}: both copies lie in segment {segment}")]
    CopiesTogether {
        /// The block.
        bookmark: Bookmark,
        /// Where both lie.
        segment: SegmentId,
    },
    /// A pointer says something of its block that cannot be.
    #[error("{bookmark}: its pointer is wrong: {reason}")]
    PointerOdd {
        /// The block.
        bookmark: Bookmark,
        /// How.
        reason: String,
    },
    /// A pointer leads to units that no segment has.
    #[error("{bookmark}: nothing is stored at segment {}, offset {}", address.segment, address.offset)]
    PointerUnallocated {
        /// The block.
        bookmark: Bookmark,
        /// The copy.
        address: Address,
    },
    /// A pointer leads to units that the table calls dead: they may be overwritten any time.
    #[error("{bookmark}: {units} units of segment {}, offset {} are dead in the table", address.segment, address.offset)]
    PointerDead {
        /// The block.
        bookmark: Bookmark,
        /// The copy.
        address: Address,
        /// How many of its units.
        units: u32,
    },
    /// Two pointers lead to the same units.
    #[error("{bookmark}: {units} units of segment {}, offset {} belong to another block too", address.segment, address.offset)]
    Overlap {
        /// The later of the two.
        bookmark: Bookmark,
        /// The copy.
        address: Address,
        /// How many of its units.
        units: u32,
    },
    /// A block lies in a segment of another owner or class: destroying that owner would take it
    /// along.
    #[error("{bookmark}: lies in segment {segment} of owner {owner}, class {class}")]
    SegmentWrong {
        /// The block.
        bookmark: Bookmark,
        /// Where it lies.
        segment: SegmentId,
        /// Whose the segment is.
        owner: DatasetId,
        /// Its class.
        class: u8,
    },
    /// The right bytes are not the node they should be.
    #[error("{bookmark}: not a node: {reason}")]
    Node {
        /// The block.
        bookmark: Bookmark,
        /// Why.
        reason: String,
    },
    /// An item of a tree cannot be read.
    #[error("{bookmark}: item {key}: {reason}")]
    Item {
        /// Its leaf.
        bookmark: Bookmark,
        /// Its key in hexadecimal digits.
        key: String,
        /// Why.
        reason: String,
    },
    /// A dataset row contradicts the others.
    #[error("dataset {dataset}: {reason}")]
    Dataset {
        /// The dataset.
        dataset: DatasetId,
        /// How.
        reason: &'static str,
    },
    /// A dataset's count of bytes is not what its blocks take.
    #[error("dataset {dataset}: {field} says {stored} bytes, its blocks take {found}")]
    Count {
        /// The dataset.
        dataset: DatasetId,
        /// Which count.
        field: &'static str,
        /// Number in the row.
        stored: u64,
        /// Number found.
        found: u64,
    },
    /// Names, inodes and content of a dataset or of a snapshot do not fit together.
    #[error("dataset {dataset}{}: {problem}", at_snapshot(snapshot.as_ref()))]
    Namespace {
        /// The dataset.
        dataset: DatasetId,
        /// Name of the snapshot, if the trees are a snapshot's.
        snapshot: Option<String>,
        /// The fault.
        problem: Problem,
    },
    /// Units that live in the table and that no pointer leads to.
    #[error("segment {segment}: {units} units live in the table, but no block is there")]
    Leaked {
        /// The segment.
        segment: SegmentId,
        /// How many.
        units: u32,
    },
    /// A snapshot needs a block that neither its dataset nor a cell keeps.
    #[error("{bookmark}: a snapshot needs segment {}, offset {}, of which {units} units are kept for nobody", address.segment, address.offset)]
    SnapshotLost {
        /// The block.
        bookmark: Bookmark,
        /// Which copy.
        address: Address,
        /// Units that nothing keeps.
        units: u32,
    },
    /// A clone shares a block with its origin that none of its relatives keeps.
    #[error("{bookmark}: a clone shares segment {}, offset {}, of which {units} units are kept for nobody", address.segment, address.offset)]
    CloneLost {
        /// The block.
        bookmark: Bookmark,
        /// Which copy.
        address: Address,
        /// Units that nothing keeps.
        units: u32,
    },
    /// A block has another number of references than its row says: it would be freed too early, or
    /// never.
    #[error("the block at segment {}, offset {} has {found} references, and its row says {stored}", address.segment, address.offset)]
    References {
        /// Where it lies.
        address: Address,
        /// Number in its row.
        stored: u64,
        /// Pointers and places in cells.
        found: u64,
    },
    /// The sums of the reference table are not those of its rows.
    #[error("the sums of the reference table are not those of its rows")]
    ReferenceSums,
    /// A raw send without the key would not find a sealed block.
    #[error("{bookmark}: the block at segment {}, offset {} is not in the manifest as it should be: {reason}", address.segment, address.offset)]
    ManifestLacks {
        /// A pointer to it.
        bookmark: Bookmark,
        /// Where it lies.
        address: Address,
        /// The fault.
        reason: String,
    },
    /// Blocks are listed of a segment in which nothing lives.
    #[error("a manifest lists blocks of segment {segment}, of which nothing is left")]
    ManifestStray {
        /// The segment.
        segment: SegmentId,
    },
    /// A cell that no snapshot holds is in no dead range, or one that is held is in one.
    #[error("dataset {dataset}: nobody knows whether the cell ({left}, {born}) is held")]
    CellStray {
        /// The dataset.
        dataset: DatasetId,
        /// Youngest snapshot when its blocks were let go.
        left: Txg,
        /// Youngest snapshot older than their birth, or 0.
        born: Txg,
    },
    /// A dead range reaches over a living snapshot: what it holds would be freed.
    #[error(
        "dataset {dataset}: the dead range from {after} to {before} reaches over the snapshot of txg {snapshot}, which lives"
    )]
    DeadRange {
        /// The dataset.
        dataset: DatasetId,
        /// Youngest snapshot before the range, or 0.
        after: Txg,
        /// Oldest snapshot behind it.
        before: Txg,
        /// The snapshot.
        snapshot: Txg,
    },
    /// A segment has no column where it should have one: it was written while a device was out of
    /// use.
    #[error("segment {segment}: column {column} is missing")]
    ColumnMissing {
        /// The segment.
        segment: SegmentId,
        /// Which column.
        column: usize,
    },
    /// A column cannot be read.
    #[error("segment {segment}: column {column} on device {device} cannot be read")]
    ColumnUnreadable {
        /// The segment.
        segment: SegmentId,
        /// Which column.
        column: usize,
        /// Where it lies.
        device: DeviceId,
    },
    /// A chunk of a column is not what its checksum says.
    #[error("segment {segment}: row {row} of column {column} on device {device} is wrong: {wrong}")]
    ChunkWrong {
        /// The segment.
        segment: SegmentId,
        /// Which column.
        column: usize,
        /// Where it lies.
        device: DeviceId,
        /// Which row.
        row: usize,
        /// How: hash, stale, misplaced.
        wrong: &'static str,
    },
    /// Parity is not that of the data, or copies differ, and no checksum tells which is wrong.
    #[error("segment {segment}: the columns of row {row} do not fit together")]
    ParityWrong {
        /// The segment.
        segment: SegmentId,
        /// Which row.
        row: usize,
    },
    /// More columns of a row are wrong or missing than redundancy makes up for.
    #[error(
        "segment {segment}: {wrong} columns of row {row} are wrong or missing, and {spared} could be mended"
    )]
    RowLost {
        /// The segment.
        segment: SegmentId,
        /// Which row.
        row: usize,
        /// How many.
        wrong: usize,
        /// How many there may be.
        spared: usize,
    },
    /// Fewer checksums are stored than a segment has chunks.
    #[error("segment {segment}: {stored} of {wanted} checksums of its chunks are stored")]
    ChecksumsFew {
        /// The segment.
        segment: SegmentId,
        /// Checksums stored.
        stored: usize,
        /// Chunks.
        wanted: usize,
    },
    /// Checksums are stored of a segment that is not there.
    #[error("segment {segment}: checksums are stored, and the table has no such segment")]
    ChecksumsStray {
        /// The segment.
        segment: SegmentId,
    },
    /// Sums of living units differ.
    #[error("the rows' living units are {rows}, the table counts {table}")]
    LiveSum {
        /// Sum over the rows.
        rows: u64,
        /// Number in the loaded table.
        table: u64,
    },
    /// A log device that the labels list was not given.
    #[error(
        "the log device last seen at {path} was not given: what was promised to fsync may be there and nowhere else"
    )]
    LogDeviceMissing {
        /// Last known path.
        path: String,
    },
    /// A log device's labels are older than those of the leaves: it is a copy that was put back.
    #[error("{path}: the labels of this log device are of txg {txg}, those of the pool of txg {newest}")]
    LogDeviceOld {
        /// Device.
        path: String,
        /// Its txg.
        txg: Txg,
        /// Newest txg of the leaves.
        newest: Txg,
    },
    /// The same of one of a mirror, of which another one was given.
    #[error("the log device last seen at {path} was not given; another one of its mirror has all")]
    LogSideMissing {
        /// Last known path.
        path: String,
    },
    /// The labels of one of a mirror are older than those of the leaves; another one has all.
    #[error(
        "{path}: the labels of this log device are of txg {txg}, those of the pool of txg {newest}; another one of its \
         mirror has all"
    )]
    LogSideOld {
        /// Device.
        path: String,
        /// Its txg.
        txg: Txg,
        /// Newest txg of the leaves.
        newest: Txg,
    },
    /// One device of a log mirror lost a group that another one has.
    #[error(
        "intent log, {place}: group {sequence} is missing or damaged there, and whole on another device of its mirror"
    )]
    LogCopy {
        /// Slot of a device.
        place: String,
        /// The group.
        sequence: u64,
    },
    /// A part of the intent log cannot be read.
    #[error("intent log, {place}: cannot be read: {reason}")]
    LogUnreadable {
        /// Segment, or slot of a device.
        place: String,
        /// Why.
        reason: String,
    },
    /// Groups are missing before one that is there: they had been durable.
    #[error("intent log: group {missing} is missing or damaged, and group {found} behind it is whole")]
    LogGap {
        /// First one missing.
        missing: u64,
        /// First one behind it.
        found: u64,
    },
    /// The log does not reach as far as the anchor says that it was promised.
    #[error("intent log: the anchor vouches for it up to group {promised}, and that group is not there")]
    LogShort {
        /// Last group that was promised.
        promised: u64,
    },
    /// A group does not follow the one before it.
    #[error("intent log: group {sequence} does not name the hash of the one before it")]
    LogChain {
        /// Its number.
        sequence: u64,
    },
    /// A group promises what is committed.
    #[error("intent log: group {sequence} is of txg {txg}, which is committed")]
    LogCommitted {
        /// Its number.
        sequence: u64,
        /// Its txg.
        txg: Txg,
    },
    /// A group is sealed and should not be, or the reverse, or its seal does not open.
    #[error("intent log: group {sequence} of dataset {dataset} fails authentication")]
    LogSeal {
        /// Its number.
        sequence: u64,
        /// Whose it says it is.
        dataset: DatasetId,
    },
    /// A whole group holds what cannot be understood, such as a record of an unknown kind.
    #[error("intent log: group {sequence}: {reason}")]
    LogRecords {
        /// Its number.
        sequence: u64,
        /// Why.
        reason: String,
    },
    /// Groups that are kept until a dataset's key is loaded are not all there.
    #[error("intent log: group {sequence}, which is kept until a key is loaded, is not there")]
    LogHeld {
        /// The last of them.
        sequence: u64,
    },
    /// Sealed groups whose key was not given.
    #[error("intent log: groups of dataset {dataset} are sealed: only their hashes were checked")]
    LogLocked {
        /// The dataset.
        dataset: DatasetId,
    },
    /// A group of a dataset that is gone.
    #[error("intent log: group {sequence} is of dataset {dataset}, which is gone: nobody will replay it")]
    LogDataset {
        /// Its number.
        sequence: u64,
        /// The dataset.
        dataset: DatasetId,
    },
    /// A group that was cut off while it was written: promised to nobody.
    #[error("intent log: group {sequence} is torn, and nothing follows it")]
    LogTorn {
        /// Its number.
        sequence: u64,
    },
    /// Groups of another pool: what the device held before.
    #[error("intent log, {place}: a group of pool {pool}")]
    LogForeign {
        /// Segment, or slot of a device.
        place: String,
        /// Whose.
        pool: PoolGuid,
    },
    /// Too much of one kind: the rest was counted only.
    #[error("{count} more findings of the kind {code}")]
    More {
        /// The kind.
        code: &'static str,
        /// How many were not shown.
        count: u64,
    },
}

impl Finding {
    /// A name that programs can match, and what the finding costs.
    #[must_use]
    pub fn class(&self) -> (&'static str, Severity) {
        use Severity::{Damage, Degraded, Fatal, Leak, Note, Unchecked};
        match self {
            Finding::LabelCopy { .. } => ("label-copy", Degraded),
            Finding::LabelNone { .. } => ("label-none", Fatal),
            Finding::LabelOld { .. } => ("label-old", Note),
            Finding::DeviceForeign { .. } => ("device-foreign", Unchecked),
            Finding::DeviceTwice { .. } => ("device-twice", Unchecked),
            Finding::DeviceMissing { .. } => ("device-missing", Fatal),
            Finding::DeviceSpared { .. } => ("device-spared", Degraded),
            Finding::LabelSpared { .. } => ("label-spared", Degraded),
            Finding::DeviceOut { .. } => ("device-out", Degraded),
            Finding::DeviceShort { .. } => ("device-short", Fatal),
            Finding::RingUnreadable { .. } => ("ring-unreadable", Degraded),
            Finding::UberblockTorn { .. } => ("uberblock-torn", Degraded),
            Finding::UberblockFew { .. } => ("uberblock-few", Degraded),
            Finding::UberblockFork { .. } => ("uberblock-fork", Damage),
            Finding::UberblockParent { .. } => ("uberblock-parent", Damage),
            Finding::UberblockNone => ("uberblock-none", Fatal),
            Finding::PoolLocked => ("pool-locked", Unchecked),
            Finding::KeyWrong { .. } => ("key-wrong", Unchecked),
            Finding::DatasetLocked { .. } => ("dataset-locked", Unchecked),
            Finding::Tail { .. } => ("tail", Fatal),
            Finding::Table { .. } => ("table", Fatal),
            Finding::CopyBad { .. } => ("copy-bad", Degraded),
            Finding::BlockLost { bookmark, .. } => match bookmark.kind {
                BlockKind::Meta | BlockKind::Tail => ("block-lost", Fatal),
                _ => ("block-lost", Damage),
            },
            Finding::CopyMissing { .. } => ("copy-missing", Degraded),
            Finding::CopiesTogether { .. } => ("copies-together", Degraded),
            Finding::PointerOdd { .. } => ("pointer-odd", Damage),
            Finding::PointerUnallocated { .. } => ("pointer-unallocated", Damage),
            Finding::PointerDead { .. } => ("pointer-dead", Damage),
            Finding::Overlap { .. } => ("overlap", Damage),
            Finding::SegmentWrong { .. } => ("segment-wrong", Damage),
            Finding::Node { .. } => ("node", Damage),
            Finding::Item { .. } => ("item", Damage),
            Finding::Dataset { .. } => ("dataset", Fatal),
            Finding::Count { .. } => ("count", Leak),
            Finding::Namespace { problem, .. } => class_of(problem),
            Finding::Leaked { .. } => ("leaked", Leak),
            Finding::SnapshotLost { .. } => ("snapshot-lost", Damage),
            Finding::CloneLost { .. } => ("clone-lost", Damage),
            Finding::CellStray { .. } => ("cell-stray", Leak),
            Finding::References { stored, found, .. } if found > stored => ("references-few", Damage),
            Finding::References { .. } => ("references-many", Leak),
            Finding::ReferenceSums => ("reference-sums", Leak),
            Finding::ManifestLacks { .. } => ("manifest-lacks", Damage),
            Finding::ManifestStray { .. } => ("manifest-stray", Leak),
            Finding::DeadRange { .. } => ("dead-range", Damage),
            Finding::ColumnMissing { .. } => ("column-missing", Degraded),
            Finding::ColumnUnreadable { .. } => ("column-unreadable", Degraded),
            Finding::ChunkWrong { .. } => ("chunk-wrong", Degraded),
            Finding::ParityWrong { .. } => ("parity-wrong", Degraded),
            Finding::RowLost { .. } => ("row-lost", Damage),
            Finding::ChecksumsFew { .. } => ("checksums-few", Degraded),
            Finding::ChecksumsStray { .. } => ("checksums-stray", Leak),
            Finding::LiveSum { .. } => ("live-sum", Damage),
            Finding::LogDeviceMissing { .. } => ("log-device-missing", Fatal),
            Finding::LogDeviceOld { .. } => ("log-device-old", Fatal),
            Finding::LogSideMissing { .. } => ("log-side-missing", Degraded),
            Finding::LogSideOld { .. } => ("log-side-old", Degraded),
            Finding::LogCopy { .. } => ("log-copy", Degraded),
            Finding::LogUnreadable { .. } => ("log-unreadable", Fatal),
            Finding::LogGap { .. } => ("log-gap", Fatal),
            Finding::LogShort { .. } => ("log-short", Fatal),
            Finding::LogChain { .. } => ("log-chain", Fatal),
            Finding::LogCommitted { .. } => ("log-committed", Fatal),
            Finding::LogSeal { .. } => ("log-seal", Fatal),
            Finding::LogRecords { .. } => ("log-records", Fatal),
            Finding::LogHeld { .. } => ("log-held", Damage),
            Finding::LogLocked { .. } => ("log-locked", Unchecked),
            Finding::LogDataset { .. } => ("log-dataset", Note),
            Finding::LogTorn { .. } => ("log-torn", Note),
            Finding::LogForeign { .. } => ("log-foreign", Note),
            Finding::More { .. } => ("more", Note),
        }
    }

    /// The severity of the finding.
    #[must_use]
    pub fn severity(&self) -> Severity {
        self.class().1
    }

    /// The finding as a line of output.
    #[must_use]
    pub fn record(&self) -> Record {
        let (code, severity) = self.class();
        Record::new("finding")
            .with("severity", severity.word())
            .with("code", code)
            .with("text", self.to_string())
    }
}

/// The name and the cost of a fault of a dataset's trees.
fn class_of(problem: &Problem) -> (&'static str, Severity) {
    use Severity::{Damage, Leak};
    match problem {
        Problem::Item(_) => ("item", Damage),
        Problem::NoRoot => ("root-missing", Damage),
        Problem::EntryWithoutInode { .. } => ("entry-without-inode", Damage),
        Problem::EntryOutsideDirectory(_) => ("entry-outside-directory", Damage),
        Problem::EntryKind { .. } => ("entry-kind", Damage),
        Problem::EntryPlace { .. } => ("entry-place", Damage),
        Problem::EntryTwice { .. } => ("entry-twice", Damage),
        Problem::DirectoryTwice { .. } => ("directory-twice", Damage),
        Problem::Circle { .. } => ("directory-circle", Damage),
        Problem::Unreachable(_) => ("directory-unreachable", Damage),
        Problem::Links { .. } => ("links", Damage),
        Problem::DirectorySize { .. } => ("directory-size", Damage),
        Problem::Parent { .. } => ("directory-parent", Damage),
        Problem::OrphanUnlisted(_) => ("orphan-unlisted", Leak),
        Problem::OrphanLinked(_) => ("orphan-linked", Damage),
        Problem::ItemsWithoutInode(_) => ("items-without-inode", Leak),
        Problem::TargetSize(_) => ("target-size", Damage),
        Problem::ExtentsWithoutInode(_) => ("extents-without-inode", Leak),
        Problem::ExtentPlace { .. } => ("extent-place", Damage),
        Problem::ExtentOverlap { .. } => ("extent-overlap", Damage),
        Problem::ExtentBehindEnd { .. } => ("extent-behind-end", Damage),
        Problem::Unsettled { .. } => ("extent-unsettled", Leak),
        Problem::Owner { .. } => ("owner", Leak),
        Problem::Counter { .. } => ("count", Leak),
        Problem::NextInode { .. } | Problem::NextInodeOutside { .. } => ("next-inode", Damage),
        _ => ("namespace", Damage),
    }
}

/// The part of a sentence that names a snapshot.
fn at_snapshot(name: Option<&String>) -> String {
    name.map_or_else(String::new, |name| format!(", snapshot {name:?}"))
}

/// Receives findings as they are made.
pub type Found<'a> = dyn FnMut(Finding) + 'a;
