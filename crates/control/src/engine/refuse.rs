//! The pool's errors as refusals: each kind below its code.

use crate::refusal::{Code, Refusal, SHOWS_DEVICES};
use steadfast_format::medium;
use steadfast_pool::Error;

/// Action if a group is full.
const GROUP_FULL: &str = "Replace a device of the group with `zpool replace {pool} DEVICE NEW`, or add another group with `zpool add`.";

/// Action if a device is too small for its place.
const PLACE_SMALL: &str =
    "Use a device of at least {needed} bytes; `truncate -s {needed} {device}` enlarges an image file.";

/// Action if a file system that would be replaced has children or snapshots.
const NOT_ALONE: &str = "Receive it under another name, or destroy them first with `zfs destroy -r NAME`.";

/// Action if the root file system of a pool would be replaced.
const INTO_ROOT: &str = "Receive it below the root, under a free name: `zfs receive -d {pool}/NAME`. Receive increments there too.";

/// The refusal of an error of a pool during a receive.
pub(super) fn receive(error: Error) -> Refusal {
    let exists = |name: &str| Refusal::new(Code::StreamExists, error.to_string()).with("fs", name);
    match &error {
        Error::HasChildren { name, .. } | Error::HasSnapshots { name, .. } => {
            exists(name).advising(NOT_ALONE)
        }
        Error::RootDataset { name } | Error::DestinationExists { name } if !name.contains('/') => {
            exists(name).advising(INTO_ROOT).with("pool", name)
        }
        _ => pool(error),
    }
}

/// The refusal of an error of the pool of this name.
pub(super) fn of_pool(error: Error, name: &str) -> Refusal {
    pool(error).with("pool", name)
}

/// Matches an error against kinds, each below its code with the fields of its message. A kind that
/// needs more is left to another function.
macro_rules! by_code {
    ($error:ident, $what:ident, $else:ident;
     $($code:ident: $($kind:ident { $($field:ident: $name:literal),* }),+;)*) => {
        match $error {
            $($(Error::$kind { $($field,)* .. } => {
                Refusal::new(Code::$code, $what)$(.with($name, $field))*
            })+)*
            other => $else(other, $what),
        }
    };
}

/// The refusal of an error of a pool.
pub(super) fn pool(error: Error) -> Refusal {
    let what = error.to_string();
    by_code! { error, what, special;
        // Devices.
        VdevInPlace: StillInUse { pool: "pool", path: "device" };
        VdevForeign: Occupied { path: "device", pool: "pool" };
        VdevTwice: Twice { path: "device" };
        VdevNeeded: LastGroup { pool: "pool", path: "device" }, DeviceNeeded { pool: "pool", path: "device" },
            DeviceAlone { pool: "pool", path: "device" };
        VdevDetach: Detach { pool: "pool", path: "device" };
        VdevLog: LogParity {};
        VdevIo: LogUnfit { path: "device" };
        SpareInUse: SpareInUse { pool: "pool", path: "device" };
        ScanActive: ScanActive { pool: "pool" };
        ScanNone: ScanNone { pool: "pool" };
        MoveActive: MoveActive { pool: "pool" };
        MoveNone: MoveNone { pool: "pool" };
        RemoveRoom: RemoveRoom { pool: "pool", path: "device" };
        TrimUnsupported: TrimUnsupported { path: "device" };
        // Pools.
        PoolSplit: Split { pool: "pool" };
        PoolNotWhole: NotWhole { pool: "pool", path: "device" };
        PoolDamaged: NoLabel { path: "device" }, ForeignDevice { path: "device", pool: "pool" },
            NoUberblock { pool: "pool" }, BadRoot { pool: "pool" }, Corrupt { pool: "pool" },
            BadTable { pool: "pool" }, Shrunk { path: "device" }, BadDataset {};
        PoolDestroyed: Destroyed { pool: "pool" };
        PoolActive: NotExported { pool: "pool", host: "host" };
        PoolFeature: FeatureOff { pool: "pool", feature: "feature" };
        PoolVersion: UnknownFeature { pool: "pool", feature: "feature" };
        PoolReadonly: ReadOnly { pool: "pool" };
        PoolSuspended: Suspended { pool: "pool" };
        PoolFull: NoSpace { pool: "pool" };
        PoolSealed: PoolKeyNeeded { pool: "pool", keyformat: "keyformat", keylocation: "keylocation" };
        NameInvalid: BadName { name: "pool" }, LabelTooLong { pool: "pool" }, ReceivedName { name: "snapshot" };
        // Anchor and intent log.
        AnchorOld: AnchorBehind { pool: "pool", register: "register" };
        AnchorUnnamed: AnchorUnnamed { pool: "pool" };
        AnchorRetired: AnchorRetired { pool: "pool" };
        AnchorExists: AnchorThere { pool: "pool", register: "register" };
        LogDamaged: LogDamaged { pool: "pool" };
        LogMissing: LogMissing { pool: "pool", path: "device" };
        LogHeld: LogHeld { pool: "pool" };
        // File systems.
        FsAbsent: NoSuchDataset { name: "fs" };
        FsExists: DatasetExists { name: "fs" };
        FsParent: NoParent { parent: "parent" };
        FsPlace: InsideItself { name: "fs" }, KeyBorder { name: "fs" }, CloneBorder { to: "fs" };
        FsRoot: RootDataset { name: "pool" };
        FsBusy: Busy { name: "fs" };
        FsNotClone: NotClone { name: "fs" };
        PromoteNames: PromoteConflict { name: "fs" };
        VolumeParent: VolumeParent { parent: "parent" };
        VolumeSize: VolumeBytes { name: "fs" }, VolumeBlock { name: "fs" }, VolumeShrinks { name: "fs" };
        PropKind: NotVolume { name: "fs" };
        PropSpace: PromoteOverQuota { name: "fs" }, RenameOverQuota { name: "fs" }, ReceiveOverQuota {},
            LimitTooLow { name: "fs" }, ReservationTooHigh { name: "fs" };
        // Snapshots and bookmarks.
        SnapshotAbsent: NoSuchSnapshot { name: "snapshot" };
        SnapshotExists: SnapshotExists { name: "snapshot" }, NotFollowed { to: "snapshot" };
        SnapshotTwice: SnapshotTwice { name: "fs" };
        SnapshotSpace: SnapshotReservation { name: "fs" };
        SnapshotYounger: YoungerSnapshots { name: "snapshot" };
        HoldExists: HoldExists { name: "snapshot", tag: "tag" };
        HoldAbsent: NoSuchHold { name: "snapshot", tag: "tag" };
        BookmarkAbsent: NoSuchBookmark { name: "bookmark" };
        BookmarkExists: BookmarkExists { name: "bookmark" };
        // Keys.
        KeyWrong: WrongKey { name: "fs" };
        KeyNeeded: KeyNotLoaded { name: "fs" }, BlocksBeside { root: "fs" };
        KeyLoaded: KeyLoaded { name: "fs" };
        KeyNone: NotEncrypted { name: "fs" };
        KeyInherited: NotEncryptionRoot { name: "fs", root: "root" };
        KeyRules: NothingToInherit { name: "fs" }, NoNewKey { name: "fs" };
        // Streams.
        StreamBusy: SnapshotPinned { name: "snapshot" }, ReceiveActive { name: "fs" };
        StreamDamaged: StreamDamaged {};
        StreamEnds: StreamEnds {};
        StreamNone: NoStream {};
        StreamIo: StreamRead {}, StreamWrite {};
        StreamNotes: NotesTooLong { name: "snapshot" };
        StreamBase: NotEarlier { name: "snapshot" }, RawBookmark { name: "snapshot" };
        StreamExists: DestinationExists { name: "fs" }, TargetIsClone { name: "fs" };
        StreamNoBase: NoBase { name: "fs" }, NoOrigin { name: "fs" }, OriginOfWhole { name: "fs" };
        StreamYounger: BaseNotYoungest { name: "fs" };
        StreamModified: Modified { name: "fs" };
        StreamPartial: PartialExists { name: "fs" };
        StreamNoPartial: NoPartial { name: "fs" }, OtherPartial { name: "fs" };
        Raw: Raw { name: "fs" };
        RawMixed: RawMixed { name: "fs" }, RawOther { name: "fs" };
    }
}

/// The refusal of an error whose code or fields depend on more than its kind.
fn special(error: Error, what: String) -> Refusal {
    let with = |code: Code| Refusal::new(code, what);
    match error {
        Error::GroupSize { devices, most, .. } if devices > most => {
            with(Code::VdevGroup).advising(GROUP_FULL)
        }
        Error::GroupSize { .. } | Error::GroupOfObjects { .. } | Error::TooManyGroups => {
            with(Code::VdevGroup)
        }
        Error::TooSmall { path, needed, .. } => {
            let refusal = with(Code::VdevSmall);
            let refusal =
                if needed > medium::DEVICE_SIZE_MIN { refusal.advising(PLACE_SMALL) } else { refusal };
            refusal.with("device", path).with("needed", needed)
        }
        Error::NoSuchLog { pool, path } | Error::NoSuchAnchor { pool, path } => {
            let refusal = with(Code::VdevMissing).advising(SHOWS_DEVICES);
            refusal.with("pool", pool).with("device", path)
        }
        Error::TrimActive { what, path } => {
            with(Code::TrimActive).with("device", path).with("word", what.verb())
        }
        Error::TrimNone { what, path } => with(Code::TrimNone).with("device", path).with("word", what.verb()),
        Error::TrimOut { what, path, .. } => {
            with(Code::TrimOut).with("device", path).with("word", what.verb())
        }
        Error::MissingDevices { pool, missing, .. } => {
            with(Code::PoolDevices).with("pool", pool).with("missing", missing.join(","))
        }
        Error::HasChildren { name, children } => {
            with(Code::FsChildren).with("fs", name).with("children", children.join(","))
        }
        Error::HasSnapshots { name, snapshots } => {
            with(Code::FsSnapshots).with("fs", name).with("snapshots", snapshots.join(","))
        }
        Error::HasClones { name, clones } => {
            with(Code::SnapshotClones).with("snapshot", name).with("clone", clones.join(" "))
        }
        // `zfs release` takes one tag.
        Error::SnapshotHeld { name, tags } => with(Code::SnapshotHeld)
            .with("snapshot", name)
            .with("tag", tags.first().cloned().unwrap_or_default()),
        Error::KeyNeeded { name, datasets } => {
            with(Code::KeyShared).with("fs", name).with("others", datasets.join(" "))
        }
        Error::FilesystemLimit { name, .. } => {
            with(Code::PropCount).with("fs", name).with("property", "filesystem_limit")
        }
        Error::SnapshotLimit { name, .. } => {
            with(Code::PropCount).with("fs", name).with("property", "snapshot_limit")
        }
        Error::PutBack { pool, found, anchored, .. } => with(Code::AnchorRollback)
            .with("pool", pool)
            .with("found_txg", found.0)
            .with("anchored_txg", anchored.0),
        Error::AnchorUnusable { pool, source } => with(anchor(&source)).with("pool", pool),
        Error::Anchor(source) => with(anchor(&source)),
        Error::Device(error) => device(&error),
        Error::BadKey(_) => with(Code::KeyFormat),
        Error::Property(_) => with(Code::PropValue),
        Error::Segment(_) | Error::Block(_) | Error::Tree(_) | Error::Dataset(_) => with(Code::VdevIo),
        _ => with(Code::Internal),
    }
}

/// The code of an error of an anchor.
fn anchor(error: &steadfast_anchor::Error) -> Code {
    use steadfast_anchor::{Error, RegisterError};
    match error {
        Error::Register(RegisterError::Missing { .. }) => Code::AnchorMissing,
        Error::Register(RegisterError::Occupied { .. }) => Code::VdevForeign,
        Error::Register(RegisterError::Unfit { .. }) => Code::AnchorUnfit,
        Error::Register(RegisterError::Damaged { .. }) | Error::Undecodable { .. } | Error::Forged { .. } => {
            Code::AnchorDamaged
        }
        Error::Foreign { .. } => Code::AnchorForeign,
        Error::Behind { .. } => Code::AnchorOld,
        Error::Fenced { .. } => Code::AnchorFenced,
        _ => Code::AnchorSilent,
    }
}

/// The refusal of an error of a device.
pub(super) fn device(error: &steadfast_device::Error) -> Refusal {
    use steadfast_device::Error;
    let code = match error {
        Error::NotFound { .. } => Code::VdevMissing,
        Error::WrongType { .. } => Code::VdevKind,
        Error::Busy { .. } => Code::VdevInUse,
        Error::TooSmall { .. } => Code::VdevSmall,
        _ => Code::VdevIo,
    };
    Refusal::new(code, error.to_string()).with("device", error.device())
}
