//! The pool's errors as refusals: one table, each line with its code.

use crate::refusal::{Code, Refusal, SHOWS_DEVICES};
use steadfast_format::medium;
use steadfast_pool::Error;

/// What to do if a group has all the devices that it can have.
const GROUP_FULL: &str = "`zpool replace {pool} DEVICE NEW` puts another into the place of one; what has no place there needs a group of its own.";

/// What to do if a device is too small for its place.
const PLACE_SMALL: &str =
    "Take one of at least {needed} bytes; an image file is made larger with `truncate -s {needed} {device}`.";

/// What to do if what would be replaced has something below it or behind it.
const NOT_ALONE: &str =
    "Receive it under another name, or destroy them first: `zfs destroy -r` and each of their names.";

/// What to do if a pool's own file system would be replaced.
const INTO_ROOT: &str = "Receive it below, under a name that is free: `zfs receive -d {pool}/NAME`; increments then go there too.";

/// The refusal that goes with an error of a pool while something is received.
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

/// The refusal that goes with an error of a pool.
pub(super) fn pool(error: Error) -> Refusal {
    let what = error.to_string();
    let with = |code: Code| Refusal::new(code, what.clone());
    match error {
        Error::NoLabel { path, .. } => with(Code::PoolDamaged).with("device", path),
        Error::Occupied { path, pool, .. } => with(Code::VdevForeign).with("device", path).with("pool", pool),
        Error::StillInUse { pool, path } => with(Code::VdevInPlace).with("pool", pool).with("device", path),
        Error::Twice { path } => with(Code::VdevTwice).with("device", path),
        Error::ScanActive { pool, .. } => with(Code::ScanActive).with("pool", pool),
        Error::MoveActive { pool, .. } => with(Code::MoveActive).with("pool", pool),
        Error::MoveNone { pool, .. } => with(Code::MoveNone).with("pool", pool),
        Error::RemoveRoom { pool, path, .. } => {
            with(Code::RemoveRoom).with("pool", pool).with("device", path)
        }
        Error::LastGroup { pool, path } => with(Code::VdevNeeded).with("pool", pool).with("device", path),
        Error::Detach { pool, path, .. } => with(Code::VdevDetach).with("pool", pool).with("device", path),
        Error::Split { pool, .. } => with(Code::PoolSplit).with("pool", pool),
        Error::ScanNone { pool } => with(Code::ScanNone).with("pool", pool),
        Error::DeviceNeeded { pool, path } | Error::DeviceAlone { pool, path } => {
            with(Code::VdevNeeded).with("pool", pool).with("device", path)
        }
        Error::GroupSize { devices, most, .. } if devices > most => {
            with(Code::VdevGroup).advising(GROUP_FULL)
        }
        Error::GroupSize { .. } | Error::GroupOfObjects { .. } | Error::TooManyGroups => {
            with(Code::VdevGroup)
        }
        Error::MissingDevices { pool, missing, .. } => {
            with(Code::PoolDevices).with("pool", pool).with("missing", missing.join(","))
        }
        Error::NotWhole { pool, path } => with(Code::PoolNotWhole).with("pool", pool).with("device", path),
        Error::ForeignDevice { path, pool } => {
            with(Code::PoolDamaged).with("device", path).with("pool", pool)
        }
        Error::NoUberblock { pool }
        | Error::BadRoot { pool, .. }
        | Error::Corrupt { pool, .. }
        | Error::BadTable { pool, .. } => with(Code::PoolDamaged).with("pool", pool),
        Error::LogDamaged { pool, .. } => with(Code::LogDamaged).with("pool", pool),
        Error::LogMissing { pool, path, .. } => {
            with(Code::LogMissing).with("pool", pool).with("device", path)
        }
        Error::LogParity => with(Code::VdevLog),
        Error::LogHeld { pool, .. } => with(Code::LogHeld).with("pool", pool),
        Error::LogUnfit { path, .. } => with(Code::VdevIo).with("device", path),
        Error::SpareInUse { pool, path } => with(Code::SpareInUse).with("pool", pool).with("device", path),
        Error::NoSuchLog { pool, path } | Error::NoSuchAnchor { pool, path } => {
            let refusal = with(Code::VdevMissing).advising(SHOWS_DEVICES);
            refusal.with("pool", pool).with("device", path)
        }
        Error::Destroyed { pool } => with(Code::PoolDestroyed).with("pool", pool),
        Error::BadName { name, .. } => with(Code::NameInvalid).with("pool", name),
        Error::FeatureOff { pool, feature } => {
            with(Code::PoolFeature).with("pool", pool).with("feature", feature)
        }
        Error::InsideItself { name, .. } | Error::KeyBorder { name, .. } => {
            with(Code::FsPlace).with("fs", name)
        }
        Error::NothingToInherit { name, .. } => with(Code::KeyRules).with("fs", name),
        Error::BadDataset { .. } => with(Code::PoolDamaged),
        Error::Shrunk { path, .. } => with(Code::PoolDamaged).with("device", path),
        Error::NotExported { pool, host } => with(Code::PoolActive).with("pool", pool).with("host", host),
        Error::UnknownFeature { pool, feature } => {
            with(Code::PoolVersion).with("pool", pool).with("feature", feature)
        }
        Error::PoolKeyNeeded { pool, keyformat, keylocation } => with(Code::PoolSealed)
            .with("pool", pool)
            .with("keyformat", keyformat)
            .with("keylocation", keylocation),
        Error::WrongKey { name } => with(Code::KeyWrong).with("fs", name),
        Error::BadKey(_) => with(Code::KeyFormat),
        Error::KeyNotLoaded { name } => with(Code::KeyNeeded).with("fs", name),
        Error::NotFollowed { to, .. } => with(Code::SnapshotExists).with("snapshot", to),
        Error::BlocksBeside { root, .. } => with(Code::KeyNeeded).with("fs", root),
        Error::KeyLoaded { name } => with(Code::KeyLoaded).with("fs", name),
        Error::NotEncrypted { name } => with(Code::KeyNone).with("fs", name),
        Error::NotEncryptionRoot { name, root } => {
            with(Code::KeyInherited).with("fs", name).with("root", root)
        }
        Error::NoSuchDataset { name } => with(Code::FsAbsent).with("fs", name),
        Error::DatasetExists { name } => with(Code::FsExists).with("fs", name),
        Error::NoParent { parent } => with(Code::FsParent).with("parent", parent),
        Error::VolumeParent { parent } => with(Code::VolumeParent).with("parent", parent),
        Error::VolumeBytes { name, .. }
        | Error::VolumeBlock { name, .. }
        | Error::VolumeShrinks { name, .. } => with(Code::VolumeSize).with("fs", name),
        Error::NotVolume { name } => with(Code::PropKind).with("fs", name),
        Error::HasChildren { name, children } => {
            with(Code::FsChildren).with("fs", name).with("children", children.join(","))
        }
        Error::NoSuchSnapshot { name } => with(Code::SnapshotAbsent).with("snapshot", name),
        Error::SnapshotExists { name } => with(Code::SnapshotExists).with("snapshot", name),
        Error::SnapshotTwice { name } => with(Code::SnapshotTwice).with("fs", name),
        Error::SnapshotReservation { name, .. } => with(Code::SnapshotSpace).with("fs", name),
        Error::SnapshotHeld { name, tags } => {
            // One tag is released at a time.
            with(Code::SnapshotHeld)
                .with("snapshot", name)
                .with("tag", tags.first().cloned().unwrap_or_default())
        }
        Error::HoldExists { name, tag } => with(Code::HoldExists).with("snapshot", name).with("tag", tag),
        Error::NoSuchHold { name, tag } => with(Code::HoldAbsent).with("snapshot", name).with("tag", tag),
        Error::YoungerSnapshots { name, .. } => with(Code::SnapshotYounger).with("snapshot", name),
        Error::HasSnapshots { name, snapshots } => {
            with(Code::FsSnapshots).with("fs", name).with("snapshots", snapshots.join(","))
        }
        Error::HasClones { name, clones } => {
            with(Code::SnapshotClones).with("snapshot", name).with("clone", clones.join(" "))
        }
        Error::NotClone { name } => with(Code::FsNotClone).with("fs", name),
        Error::PromoteConflict { name, .. } => with(Code::PromoteNames).with("fs", name),
        Error::PromoteOverQuota { name, .. } | Error::RenameOverQuota { name, .. } => {
            with(Code::PropSpace).with("fs", name)
        }
        Error::ReceiveOverQuota => with(Code::PropSpace),
        Error::CloneBorder { to, .. } => with(Code::FsPlace).with("fs", to),
        Error::KeyNeeded { name, datasets } => {
            with(Code::KeyShared).with("fs", name).with("others", datasets.join(" "))
        }
        Error::NoSuchBookmark { name } => with(Code::BookmarkAbsent).with("bookmark", name),
        Error::BookmarkExists { name } => with(Code::BookmarkExists).with("bookmark", name),
        Error::SnapshotPinned { name } => with(Code::StreamBusy).with("snapshot", name),
        Error::StreamDamaged { .. } => with(Code::StreamDamaged),
        Error::StreamEnds { .. } => with(Code::StreamEnds),
        Error::NoStream { .. } => with(Code::StreamNone),
        Error::StreamRead { .. } | Error::StreamWrite { .. } => with(Code::StreamIo),
        Error::NotesTooLong { name } => with(Code::StreamNotes).with("snapshot", name),
        Error::NotEarlier { name, .. } => with(Code::StreamBase).with("snapshot", name),
        Error::DestinationExists { name } => with(Code::StreamExists).with("fs", name),
        Error::NoBase { name } => with(Code::StreamNoBase).with("fs", name),
        Error::BaseNotYoungest { name, .. } => with(Code::StreamYounger).with("fs", name),
        Error::Modified { name } => with(Code::StreamModified).with("fs", name),
        Error::Raw { name } => with(Code::Raw).with("fs", name),
        Error::NoNewKey { name, .. } => with(Code::KeyRules).with("fs", name),
        Error::RawMixed { name } | Error::RawOther { name } => with(Code::RawMixed).with("fs", name),
        Error::RawBookmark { name } => with(Code::StreamBase).with("snapshot", name),
        Error::TargetIsClone { name } => with(Code::StreamExists).with("fs", name),
        Error::NoOrigin { name } | Error::OriginOfWhole { name, .. } => {
            with(Code::StreamNoBase).with("fs", name)
        }
        Error::PartialExists { name } => with(Code::StreamPartial).with("fs", name),
        Error::NoPartial { name } | Error::OtherPartial { name } => {
            with(Code::StreamNoPartial).with("fs", name)
        }
        Error::RootDataset { name } => with(Code::FsRoot).with("pool", name),
        Error::Busy { name } => with(Code::FsBusy).with("fs", name),
        Error::ReceiveActive { name } => with(Code::StreamBusy).with("fs", name),
        Error::ReceivedName { name, .. } => with(Code::NameInvalid).with("snapshot", name),
        Error::FilesystemLimit { name, .. } => {
            with(Code::PropCount).with("fs", name).with("property", "filesystem_limit")
        }
        Error::SnapshotLimit { name, .. } => {
            with(Code::PropCount).with("fs", name).with("property", "snapshot_limit")
        }
        Error::LimitTooLow { name, .. } | Error::ReservationTooHigh { name, .. } => {
            with(Code::PropSpace).with("fs", name)
        }
        Error::Property(_) => with(Code::PropValue),
        Error::ReadOnly { pool } => with(Code::PoolReadonly).with("pool", pool),
        Error::NoSpace { pool } => with(Code::PoolFull).with("pool", pool),
        Error::Suspended { pool, .. } => with(Code::PoolSuspended).with("pool", pool),
        Error::LabelTooLong { pool } => with(Code::NameInvalid).with("pool", pool),
        Error::TooSmall { path, needed, .. } => {
            let refusal = with(Code::VdevSmall);
            let refusal =
                if needed > medium::DEVICE_SIZE_MIN { refusal.advising(PLACE_SMALL) } else { refusal };
            refusal.with("device", path).with("needed", needed)
        }
        Error::Device(error) => device(&error),
        Error::TrimActive { what, path } => {
            with(Code::TrimActive).with("device", path).with("word", what.verb())
        }
        Error::TrimNone { what, path } => with(Code::TrimNone).with("device", path).with("word", what.verb()),
        Error::TrimOut { what, path, .. } => {
            with(Code::TrimOut).with("device", path).with("word", what.verb())
        }
        Error::TrimUnsupported { path } => with(Code::TrimUnsupported).with("device", path),
        Error::PutBack { pool, found, anchored, .. } => with(Code::AnchorRollback)
            .with("pool", pool)
            .with("found_txg", found.0)
            .with("anchored_txg", anchored.0),
        Error::AnchorBehind { pool, register, .. } => {
            with(Code::AnchorOld).with("pool", pool).with("register", register)
        }
        Error::AnchorUnnamed { pool, .. } => with(Code::AnchorUnnamed).with("pool", pool),
        Error::AnchorRetired { pool, .. } => with(Code::AnchorRetired).with("pool", pool),
        Error::AnchorThere { pool, register } => {
            with(Code::AnchorExists).with("pool", pool).with("register", register)
        }
        Error::AnchorUnusable { pool, source } => with(anchor(&source)).with("pool", pool),
        Error::Anchor(source) => with(anchor(&source)),
        Error::Segment(_) | Error::Block(_) | Error::Tree(_) | Error::Dataset(_) => with(Code::VdevIo),
        _ => with(Code::Internal),
    }
}

/// The code that goes with an error of an anchor.
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

/// The refusal that goes with an error of a device.
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
