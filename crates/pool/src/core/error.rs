//! Errors of a pool: refused requests, and faults of devices and stored data.
//!
//! ## Shape
//! An error is one *kind*, with its subjects and its cause.
//! - *Kind*: the variant, one for each site or family of sites.
//! - *Subject*: the device, pool, dataset or snapshot that the error is about. The field has a
//!   *role*, such as `path: String as device`. A command's advice names its subjects by role.
//! - *Cause*: an error of a lower crate. It is the field `source` if the kind adds a message, and
//!   the only field otherwise.
//! - *Code*: the entry of docs/operations/messages.md. Several kinds may share one. A kind whose
//!   cause has several codes takes the code `by` its cause.
//!
//! [error.1] The catalogue of `control` has the code of each kind and of each cause.
//!   tests: `the_catalogue_has_the_codes_of_the_pool`, `devices_and_anchors_have_several_codes`

use steadfast_format::{DatasetId, DecodeError, Txg};

use crate::core::sweep::Sweep;

/// Result of this room.
pub type Result<T> = std::result::Result<T, Error>;

/// Each entry: documentation, kind, code, fields with their roles, message. Those below `causes`
/// have the message of their cause.
macro_rules! errors {
    (
        $($(#[doc = $doc:literal])+ $kind:ident $($code:literal)? $(by $source:ident)?
            $({ $($field:ident: $type:ty $(as $role:ident)?),* })? =>
            $message:literal $(, $argument:expr)*;)*
        causes:
        $($(#[doc = $cause_doc:literal])+ $cause:ident($cause_type:ty)
            $($cause_code:literal)? $(by $by:ident $(, fields by $fields:ident)?)?;)*
    ) => {
        /// Why a pool operation did not happen.
        #[derive(Debug, thiserror::Error)]
        #[non_exhaustive]
        pub enum Error {
            $(
                $(#[doc = $doc])+
                ///
                #[doc = concat!("Message: `", $message, "`")]
                #[error($message $(, $argument)*)]
                $kind $({ $(#[allow(missing_docs, reason = "the message shows it")] $field: $type),* })?,
            )*
            $(
                $(#[doc = $cause_doc])+
                #[error(transparent)]
                $cause(#[from] $cause_type),
            )*
        }

        impl Error {
            /// All codes but those that a cause decides.
            pub const CODES: &'static [&'static str] = &[$($($code,)?)* $($($cause_code,)?)*];

            /// Code of the message in the manual.
            #[must_use]
            pub fn code(&self) -> &'static str {
                match self {
                    $(Error::$kind { $($source,)? .. } => { $($code)? $($source.code())? })*
                    $(Error::$cause($($by,)? ..) => { $($cause_code)? $($by.code())? })*
                }
            }

            /// Roles and texts of the subjects.
            #[must_use]
            pub fn fields(&self) -> Vec<(&'static str, String)> {
                match self {
                    $(Error::$kind { $($($($field: $role,)?)*)? .. } => {
                        vec![$($($((stringify!($role), $role.to_string()),)?)*)?]
                    })*
                    $(Error::$cause($($($fields,)?)? ..) => {
                        std::iter::empty()$($(.chain($fields.fields()))?)?.collect()
                    })*
                }
            }
        }
    };
}

errors! {
    // Devices.
    /// A device has no label of a pool.
    NoLabel "POOL-DAMAGED" { path: String as device, reason: String } =>
        "{path} has no intact Steadfast label ({reason})";
    /// A device belongs to another pool.
    Occupied "VDEV-FOREIGN" { path: String as device, pool: String as pool, state: &'static str } =>
        "{path} belongs to pool '{pool}' ({state})";
    /// A device's label names another pool than the labels of the others.
    ForeignDevice "POOL-DAMAGED" { path: String as device, pool: String as pool } =>
        "{path} is not a device of pool '{pool}'";
    /// The new device at the path of the old one is the old one.
    StillInUse "VDEV-IN-PLACE" { pool: String as pool, path: String as device } =>
        "{path} is the device that '{pool}' already uses";
    /// One device was given twice.
    Twice "VDEV-TWICE" { path: String as device } =>
        "{path} is listed twice";
    /// Several files or disks are copies of one device.
    Copies "VDEV-COPIES" { pool: String as pool, paths: Vec<String> } =>
        "a device of pool '{pool}' was found more than once: {} are copies of each other",
        paths.join(" and ");
    /// A device is too small for a pool, or for its place there.
    TooSmall "VDEV-SMALL" { path: String as device, bytes: u64, needed: u64 as needed } =>
        "{path} has {bytes} bytes; its place needs at least {needed}";
    /// A device has become smaller than the pool's part of it.
    Shrunk "POOL-DAMAGED" { path: String as device, bytes: u64, slots: u32 } =>
        "{path} was cut short: it has {bytes} bytes, less than its {slots} slots need";
    /// A device is missing or out of use.
    NotWhole "POOL-NOT-WHOLE" { pool: String as pool, path: String as device } =>
        "{path} of the pool '{pool}' is missing or out of use";
    /// Devices of a pool were not found.
    MissingDevices "POOL-DEVICES" { pool: String as pool, missing: Vec<String>, special: Vec<String> } =>
        "devices of pool '{pool}' are missing: {}{}", missing.join(", "), lost_metadata(special);
    /// A device's group could not be read without it.
    DeviceNeeded "VDEV-NEEDED" { pool: String as pool, path: String as device } =>
        "{path} is needed: without it a part of the data of '{pool}' could not be read";
    /// No other device holds segments.
    LastGroup "VDEV-NEEDED" { pool: String as pool, path: String as device } =>
        "without {path} and its group '{pool}' has no device for data";
    /// A device cannot be detached.
    Detach "VDEV-DETACH" { pool: String as pool, path: String as device, reason: &'static str } =>
        "{path} of '{pool}' cannot be detached: {reason}";
    /// A spare replaces a device at present.
    SpareInUse "SPARE-IN-USE" { pool: String as pool, path: String as device } =>
        "the spare {path} of '{pool}' is in use";
    /// A group of too few or too many devices.
    GroupSize "VDEV-GROUP" { group: String, devices: usize, least: usize, most: usize } =>
        "a {group} has {least} to {most} devices, not {devices}";
    /// A device that stores only whole objects cannot be a member of a group.
    GroupOfObjects "VDEV-GROUP" { path: String, group: String } =>
        "{path} stores only whole objects and cannot be a member of a {group}";
    /// The pool cannot number more groups, or more devices in groups.
    TooManyGroups "VDEV-GROUP" =>
        "the pool has the largest possible number of groups, or of devices in groups";
    /// The other devices have no room for the data of a device.
    RemoveRoom "REMOVE-ROOM" { pool: String as pool, path: String as device, needed: u64, room: u64 } =>
        "the other devices of '{pool}' have no room for the data on {path}: the pool holds {needed} bytes \
         of live data, and without the device {room} fit";
    /// A removal or rebalance is running.
    MoveActive "MOVE-ACTIVE" { pool: String as pool, what: &'static str } =>
        "a {what} of '{pool}' is in progress";
    /// No removal or rebalance is running that could be paused or stopped.
    MoveNone "MOVE-NONE" { pool: String as pool, what: &'static str } =>
        "no {what} of '{pool}' is in progress";
    /// A scrub or resilver is running.
    ScanActive "SCAN-ACTIVE" { pool: String as pool, what: &'static str } =>
        "a {what} of '{pool}' is in progress";
    /// No scrub is running that could be paused or stopped.
    ScanNone "SCAN-NONE" { pool: String as pool } =>
        "no scrub of '{pool}' is in progress";
    /// A device is already being trimmed or initialized.
    TrimActive "TRIM-ACTIVE" { what: Sweep, path: String as device } =>
        "{path} is already being {}", what.passive();
    /// No trim or initialization is running that could be suspended or cancelled.
    TrimNone "TRIM-NONE" { what: Sweep, path: String as device } =>
        "no {} of {path} is in progress", what.noun();
    /// A device that shall be trimmed or initialized is missing or out of use.
    TrimOut "TRIM-OUT" { what: Sweep, path: String as device, why: &'static str } =>
        "{path} cannot be {}: {why}", what.passive();
    /// A device does not support discard.
    TrimUnsupported "TRIM-UNSUPPORTED" { path: String as device } =>
        "{path} cannot be trimmed: it does not support discard";

    // Pools.
    /// The label names a host that uses the pool.
    NotExported "POOL-ACTIVE" { pool: String as pool, host: String as host } =>
        "pool '{pool}' was last used by host '{host}' and was not exported";
    /// The label says that the pool was destroyed.
    Destroyed "POOL-DESTROYED" { pool: String as pool } =>
        "pool '{pool}' was destroyed";
    /// The pool needs a feature that this version does not know.
    UnknownFeature "POOL-VERSION" { pool: String as pool, feature: String as feature } =>
        "pool '{pool}' needs the feature {feature}, which this version does not know";
    /// The pool does not use a feature that the request needs.
    FeatureOff "POOL-FEATURE" { pool: String as pool, feature: &'static str as feature } =>
        "pool '{pool}' does not use the feature {feature} yet";
    /// Sealed content cannot have three copies.
    SealedCopies "PROP-COPIES" { name: String as fs } =>
        "copies=3 cannot be set on '{name}': encrypted content has two copies at most";
    /// The pool was imported read-only.
    ReadOnly "POOL-READONLY" { pool: String as pool } =>
        "pool '{pool}' is read-only";
    /// After a fault of unknown extent the pool writes nothing.
    Suspended "POOL-SUSPENDED" { pool: String as pool, reason: String } =>
        "pool '{pool}' is suspended: {reason}";
    /// The host's file system is full, and the pool waits for room there.
    HostFull "HOST-FULL" { pool: String as pool, reason: String } =>
        "pool '{pool}' is suspended until its host has room: {reason}";
    /// A store of objects is away, and a commit waits for it.
    StoreAway "STORE-AWAY" { pool: String as pool, reason: String } =>
        "pool '{pool}' waits for its store: {reason}";
    /// The pool has no room for the request.
    NoSpace "POOL-FULL" { pool: String as pool } =>
        "pool '{pool}' has no space left for this";
    /// The pool has a checkpoint.
    CheckpointThere "CHECKPOINT-EXISTS" { pool: String as pool } =>
        "checkpoint exists: pool '{pool}' has one";
    /// The pool has no checkpoint.
    NoCheckpoint "CHECKPOINT-NONE" { pool: String as pool } =>
        "checkpoint does not exist: pool '{pool}' has none";
    /// Too little would be free beside a checkpoint.
    CheckpointRoom "CHECKPOINT-ROOM" { pool: String as pool } =>
        "pool '{pool}' has too little free space to go on beside a checkpoint";
    /// A device of the pool is a store of objects.
    CheckpointStore "CHECKPOINT-STORE" { pool: String as pool } =>
        "pool '{pool}' is on a store of objects, where it cannot have a checkpoint";
    /// A pool cannot be split.
    Split "POOL-SPLIT" { pool: String as pool, reason: String } =>
        "pool '{pool}' cannot be split: {reason}";
    /// The name in the label, or the given one, is not a name of a pool.
    BadName "NAME-INVALID" { name: String as pool, source: steadfast_property::NameError } =>
        "{name:?} is not a valid name for a pool: {source}; import it under another name";
    /// The paths of the devices do not fit a label.
    LabelTooLong "NAME-INVALID" { pool: String as pool } =>
        "pool '{pool}': the paths of its devices do not fit a label; use shorter ones";
    /// The labels are intact, but no uberblock is valid.
    NoUberblock "POOL-DAMAGED" { pool: String as pool } =>
        "pool '{pool}': no valid uberblock on any of its devices";
    /// The root of the newest uberblock cannot be read.
    BadRoot "POOL-DAMAGED" { pool: String as pool, txg: Txg, reason: String } =>
        "pool '{pool}': the root of txg {txg} cannot be read: {reason}";
    /// The newest root on a store of whole objects is not whole, and one before it is.
    SpoiltRoot "ROOT-DAMAGED" { pool: String as pool, txg: Txg as txg, whole: Txg } =>
        "pool '{pool}': its newest root, of txg {txg}, is damaged or gone; that of txg {whole} is whole";
    /// Objects that an older root names are gone.
    RootObjects "POOL-DAMAGED" { pool: String as pool, txg: Txg, gone: usize, first: String } =>
        "pool '{pool}': {gone} objects that the root of txg {txg} needs are gone or cut short, {first} among \
         them";
    /// The segment table contradicts itself.
    BadTable "POOL-DAMAGED" { pool: String as pool, reason: String } =>
        "pool '{pool}': its segment table is not consistent: {reason}";
    /// A stored structure of the pool cannot be decoded.
    Corrupt "POOL-DAMAGED" { pool: String as pool, what: &'static str, source: DecodeError } =>
        "pool '{pool}': {what}: {source}";

    // Anchor.
    /// The devices hold an older root than the anchor.
    PutBack "ANCHOR-ROLLBACK" {
        pool: String as pool, found: Txg as found_txg, anchored: Txg as anchored_txg, older_seconds: u64
    } =>
        "the whole pool '{pool}' was put back to an earlier copy: its devices are at txg {found}, its \
         anchor is at txg {anchored}, {older_seconds} s later";
    /// Another host has claimed the next epoch on a store of whole objects.
    Overtaken "POOL-OVERTAKEN" { pool: String as pool } =>
        "another host has imported pool '{pool}' from the same store";
    /// A store overwrites what it should refuse to create, and the pool has no anchor.
    Unfenced "STORE-UNFENCED" { pool: String as pool } =>
        "the store of pool '{pool}' lets two hosts create one name, and the pool has no anchor";
    /// Somebody committed while this import was under way.
    RootMoved "POOL-OVERTAKEN" { pool: String as pool, txg: Txg as txg } =>
        "another host went on from txg {txg} of pool '{pool}' while it was imported here";
    /// The devices hold a newer root than the anchor, and no interrupted commit explains it.
    AnchorBehind "ANCHOR-OLD" {
        pool: String as pool, register: String as register, anchored: Txg, found: Txg
    } =>
        "the anchor {register} is older than the pool '{pool}': the anchor is at txg {anchored}, the \
         devices are at txg {found}";
    /// The pool has an anchor, and its path is not known.
    AnchorUnnamed "ANCHOR-UNNAMED" { pool: String as pool, reason: &'static str } =>
        "the pool '{pool}' has an anchor, but its path is not known: {reason}";
    /// The pool's anchor cannot be used.
    AnchorUnusable by source { pool: String as pool, source: steadfast_anchor::Error } =>
        "the pool '{pool}' cannot be opened without its anchor: {source}";
    /// The register is no longer the pool's anchor.
    AnchorRetired "ANCHOR-RETIRED" { pool: String as pool, register: String } =>
        "the anchor {register} was removed from the pool '{pool}', which continues without it";
    /// The pool has an anchor already; it can have one.
    AnchorThere "ANCHOR-EXISTS" { pool: String as pool, register: String as register } =>
        "the pool '{pool}' already has an anchor: {register}";
    /// The anchor to remove is not the pool's.
    NoSuchAnchor "VDEV-MISSING" { pool: String as pool, path: String as device } =>
        "{path} is not the anchor of the pool '{pool}'";

    // Intent log.
    /// The intent log cannot be replayed completely.
    LogDamaged "LOG-DAMAGED" { pool: String as pool, reason: String, safe: String } =>
        "the intent log of pool '{pool}' cannot be replayed completely: {reason}. {safe}";
    /// A log device that the pool needs is missing.
    LogMissing "LOG-MISSING" {
        pool: String as pool, path: String as device, reason: String, committed: Txg, empty: bool
    } =>
        "the log device {path} of pool '{pool}' is missing: {reason}. All commits up to txg {committed} \
         are safe; {}", lost_promises(*empty);
    /// The log cannot move: it holds data of file systems whose keys are not loaded.
    LogHeld "LOG-HELD" { pool: String as pool, datasets: usize } =>
        "the intent log of pool '{pool}' still holds data of {datasets} file systems whose keys are not \
         loaded";
    /// A log device failed when its labels were written.
    LogUnfit "VDEV-IO" { path: String as device, reason: String } =>
        "the log device {path} failed: {reason}";
    /// A log device cannot be raidz.
    LogParity "VDEV-LOG" =>
        "invalid vdev specification: unsupported 'log' device: raidz";
    /// The log device to remove is not one of the pool.
    NoSuchLog "VDEV-MISSING" { pool: String as pool, path: String as device } =>
        "{path} is not a log device of the pool '{pool}'";

    // Datasets.
    /// A dataset does not exist.
    NoSuchDataset "FS-ABSENT" { name: String as fs } =>
        "dataset '{name}' does not exist";
    /// A dataset of this name exists.
    DatasetExists "FS-EXISTS" { name: String as fs } =>
        "dataset '{name}' already exists";
    /// The parent does not exist.
    NoParent "FS-PARENT" { parent: String as parent } =>
        "the parent '{parent}' does not exist";
    /// A dataset has children.
    HasChildren "FS-CHILDREN" { name: String as fs, children: Vec<String> } =>
        "'{name}' has children: {}", children.join(", ");
    /// A dataset has snapshots.
    HasSnapshots "FS-SNAPSHOTS" { name: String as fs, snapshots: Vec<String> } =>
        "'{name}' has snapshots: {}", snapshots.join(", ");
    /// The root dataset exists as long as its pool.
    RootDataset "FS-ROOT" { name: String as pool } =>
        "'{name}' is the root dataset of its pool";
    /// A dataset cannot be renamed to a name below itself.
    InsideItself "FS-PLACE" { name: String as fs, to: String } =>
        "'{name}' cannot be renamed to '{to}', which is below it";
    /// A rename cannot change the encryption of a dataset.
    KeyBorder "FS-PLACE" { name: String as fs, to: String, reason: String } =>
        "'{name}' cannot be renamed to '{to}': {reason}";
    /// A dataset is in use.
    Busy "FS-BUSY" { name: String as fs } =>
        "'{name}' is busy";
    /// Only a clone can be promoted.
    NotClone "FS-NOT-CLONE" { name: String as fs } =>
        "'{name}' is not a clone";
    /// A promotion would give a dataset two snapshots of one name.
    PromoteConflict "PROMOTE-NAMES" { name: String as fs, snapshots: Vec<String> } =>
        "'{name}' has snapshots of the same names as its origin's file system: {}", snapshots.join(", ");
    /// The stored state of a dataset contradicts itself.
    BadDataset "POOL-DAMAGED" { dataset: DatasetId, reason: String } =>
        "dataset {dataset}: {reason}";

    // Volumes.
    /// The parent is a volume.
    VolumeParent "VOL-PARENT" { parent: String as parent } =>
        "the parent '{parent}' is a volume, and a volume has no children";
    /// A volume cannot have this size.
    VolumeBytes "VOL-SIZE" { name: String as fs, bytes: u64, block: u64 } =>
        "'{name}' cannot have {bytes} bytes: the size of a volume is one or more whole blocks ({block} \
         bytes each), and less than 8 EiB";
    /// A volume of this pool cannot have blocks of this size.
    VolumeBlock "VOL-SIZE" { name: String as fs, block: u64, most: u32 } =>
        "'{name}' cannot have blocks of {block} bytes: the size of a block is a power of two, 4096 to \
         {most} in this pool";
    /// A volume cannot shrink.
    VolumeShrinks "VOL-SIZE" { name: String as fs, has: u64, wanted: u64 } =>
        "'{name}' has {has} bytes and cannot shrink to {wanted}: the data at its end would be lost";
    /// A file system has no size.
    NotVolume "PROP-KIND" { name: String as fs } =>
        "'{name}' is a file system, not a volume";

    // Limits.
    /// A dataset has as many file systems below it as it may have.
    FilesystemLimit "PROP-COUNT" { name: String as fs, limit: u64 } =>
        "'{name}' may have {limit} file systems below it (filesystem_limit), and has them";
    /// A dataset and those below it have as many snapshots as they may have.
    SnapshotLimit "PROP-COUNT" { name: String as fs, limit: u64, count: u64 } =>
        "'{name}' may have {limit} snapshots with all below it (snapshot_limit); this would make {count}";
    /// A quota is below the space that is used or reserved.
    LimitTooLow "PROP-SPACE" { name: String as fs, property: String, needed: u64 } =>
        "size is less than current used or reserved space: {property} of '{name}' must be at least \
         {needed} bytes now";
    /// A reservation is above the available space.
    ReservationTooHigh "PROP-SPACE" { name: String as fs, property: String, room: u64 } =>
        "size is greater than available space: {property} of '{name}' can be {room} bytes at most now";
    /// After the snapshot, the refreservation of its dataset would not fit the pool.
    SnapshotReservation "SNAP-SPACE" { name: String as fs, bytes: u64 } =>
        "out of space: a snapshot would make the refreservation of '{name}' reserve {bytes} bytes more, which \
         do not fit";
    /// A promotion would exceed a quota.
    PromoteOverQuota "PROP-SPACE" { clone: String, name: String as fs, quota: u64, bytes: u64 } =>
        "promoting '{clone}' would add {bytes} bytes to '{name}', which exceeds its quota of {quota}";
    /// A rename would exceed a quota.
    RenameOverQuota "PROP-SPACE" { dataset: String, name: String as fs, quota: u64, bytes: u64 } =>
        "'{dataset}' with all below it uses {bytes} bytes, which exceeds the quota of '{name}', {quota}";
    /// A rollback would exceed a refquota.
    RollbackOverQuota "PROP-SPACE" { name: String as fs, quota: u64, bytes: u64 } =>
        "'{name}' had {bytes} bytes in the snapshot, which exceeds its refquota of {quota}";
    /// The received data exceeds a quota.
    ReceiveOverQuota "PROP-SPACE" =>
        "the received data exceeds the quota of its file system, or of one above it";

    // Snapshots, holds and bookmarks.
    /// A snapshot does not exist.
    NoSuchSnapshot "SNAP-ABSENT" { name: String as snapshot } =>
        "snapshot '{name}' does not exist";
    /// A snapshot of this name exists.
    SnapshotExists "SNAP-EXISTS" { name: String as snapshot } =>
        "snapshot '{name}' already exists";
    /// One commit takes at most one snapshot of a dataset.
    SnapshotTwice "SNAP-TWICE" { name: String as fs } =>
        "two snapshots of '{name}' cannot be taken at once: they would be the same";
    /// Only the youngest snapshot can be rolled back to.
    YoungerSnapshots "SNAP-YOUNGER" { name: String as snapshot, snapshots: Vec<String> } =>
        "there are snapshots younger than '{name}': {}", snapshots.join(", ");
    /// A snapshot has clones.
    HasClones "SNAP-CLONES" { name: String as snapshot, clones: Vec<String> } =>
        "'{name}' has clones: {}", clones.join(", ");
    /// A snapshot is being sent, or is the base of a receive.
    SnapshotPinned "STREAM-BUSY" { name: String as snapshot } =>
        "'{name}' is being sent, or is the base of a receive in progress";
    /// A snapshot has holds.
    SnapshotHeld "SNAP-HELD" { name: String as snapshot, tags: Vec<String> } =>
        "'{name}' has holds: {}", tags.join(", ");
    /// A snapshot has a hold with this tag.
    HoldExists "HOLD-EXISTS" { name: String as snapshot, tag: String as tag } =>
        "'{name}' already has a hold with the tag '{tag}'";
    /// A snapshot has no hold with this tag.
    NoSuchHold "HOLD-ABSENT" { name: String as snapshot, tag: String as tag } =>
        "'{name}' has no hold with the tag '{tag}'";
    /// A bookmark does not exist.
    NoSuchBookmark "BOOKMARK-ABSENT" { name: String as bookmark } =>
        "bookmark '{name}' does not exist";
    /// A bookmark of this name exists.
    BookmarkExists "BOOKMARK-EXISTS" { name: String as bookmark } =>
        "bookmark '{name}' already exists";

    // Keys.
    /// The metadata of the pool is sealed, and no key was given.
    PoolKeyNeeded "POOL-SEALED" {
        pool: String as pool, keyformat: &'static str as keyformat, keylocation: String as keylocation
    } =>
        "the metadata of pool '{pool}' is sealed, and its key is not loaded";
    /// The key does not open a pool or dataset.
    WrongKey "KEY-WRONG" { name: String as fs } =>
        "the key does not open '{name}'";
    /// The key of a dataset is not loaded.
    KeyNotLoaded "KEY-NEEDED" { name: String as fs } =>
        "the key of '{name}' is not loaded";
    /// A dataset shares segments with others, and its key is not loaded.
    BlocksBeside "KEY-NEEDED" { name: String, root: String as fs, beside: Vec<String> } =>
        "the key of '{root}' is not loaded: without it '{name}' can be destroyed only together with {}, \
         because they share segments", beside.join(", ");
    /// The key of a dataset is loaded already.
    KeyLoaded "KEY-LOADED" { name: String as fs } =>
        "the key of '{name}' is already loaded";
    /// A dataset is not encrypted.
    NotEncrypted "KEY-NONE" { name: String as fs } =>
        "'{name}' is not encrypted";
    /// A key is loaded at its encryption root.
    NotEncryptionRoot "KEY-INHERITED" { name: String as fs, root: String as root } =>
        "'{name}' inherits its key from '{root}'";
    /// Other datasets inherit the key of this one.
    KeyNeeded "KEY-SHARED" { name: String as fs, datasets: Vec<String> } =>
        "these file systems inherit their key from '{name}': {}", datasets.join(", ");
    /// A received dataset cannot get a key of its own.
    NoNewKey "KEY-RULES" { name: String as fs, reason: &'static str } =>
        "the encryption of '{name}' cannot be set here: {reason}";
    /// The parent of a dataset has no key to inherit.
    NothingToInherit "KEY-RULES" { name: String as fs, parent: String } =>
        "'{name}' cannot inherit a key: '{parent}' is not encrypted";

    // Streams.
    /// A stream cannot be written.
    StreamWrite "STREAM-IO" { source: std::io::Error } =>
        "the stream cannot be written: {source}";
    /// A stream cannot be read.
    StreamRead "STREAM-IO" { source: std::io::Error } =>
        "the stream cannot be read: {source}";
    /// The input is no stream, or one of a newer version.
    NoStream "STREAM-NONE" { reason: String } =>
        "the input is not a stream that can be received: {reason}";
    /// A stream ends before it is complete.
    StreamEnds "STREAM-ENDS" { frame: u64, at: u64 } =>
        "the stream ends at byte {at}, in frame {frame}, before it is complete";
    /// A frame is damaged, or not one that a sender writes.
    StreamDamaged "STREAM-DAMAGED" { frame: u64, at: u64, reason: String } =>
        "the stream is damaged at byte {at}, in frame {frame}: {reason}";
    /// Properties and holds do not fit a stream.
    NotesTooLong "STREAM-NOTES" { name: String as snapshot } =>
        "the properties of '{name}' and of its file system, or its tags, are too long for a stream";
    /// The base of an increment is not an earlier snapshot of the same dataset.
    NotEarlier "STREAM-BASE" { name: String as snapshot, base: String as base } =>
        "'{base}' is not an earlier snapshot of the same file system as '{name}'";
    /// The sender renamed a dataset or snapshot, and the new name is taken here.
    NotFollowed "SNAP-EXISTS" { name: String, to: String as snapshot } =>
        "the sender renamed '{name}' to '{to}', but another one here has that name";
    /// The received snapshot would get a name that is not valid here.
    ReceivedName "NAME-INVALID" { name: String as snapshot, reason: String } =>
        "the received name '{name}' is not valid here: {reason}";
    /// A full stream creates a dataset, and one of this name exists.
    DestinationExists "STREAM-EXISTS" { name: String as fs } =>
        "destination '{name}' exists";
    /// A full stream would put content in the clear where there is encrypted content.
    WouldDecrypt "STREAM-DECRYPTS" { name: String as fs } =>
        "'{name}' is encrypted, and what the stream makes of it would not be";
    /// A full stream cannot replace a clone.
    TargetIsClone "STREAM-EXISTS" { name: String as fs } =>
        "'{name}' is a clone, which a receive cannot replace: destroy it first";
    /// A full stream cannot replace the content of a dataset that must stay.
    InPlace "STREAM-EXISTS" { name: String as fs, reason: &'static str } =>
        "the content of '{name}' cannot be replaced by this stream: {reason}";
    /// The dataset lacks the base snapshot of the increment.
    NoBase "STREAM-NO-BASE" { name: String as fs } =>
        "'{name}' does not have the base snapshot of the stream";
    /// The origin of a received clone is not in this pool.
    NoOrigin "STREAM-NO-BASE" { name: String as fs } =>
        "the origin of the clone '{name}' is not here";
    /// A full stream cannot become a clone of that snapshot.
    OriginOfWhole "STREAM-NO-BASE" { name: String as fs, origin: String, reason: &'static str } =>
        "'{name}' cannot become a clone of '{origin}' by this full stream: {reason}";
    /// The base of the increment is not the youngest snapshot.
    BaseNotYoungest "STREAM-YOUNGER" { name: String as fs, snapshots: Vec<String> } =>
        "'{name}' has snapshots younger than the base of the stream: {}", snapshots.join(", ");
    /// The dataset was changed since its youngest snapshot.
    Modified "STREAM-MODIFIED" { name: String as fs } =>
        "'{name}' was changed since its youngest snapshot";

    // Raw streams and interrupted receives.
    /// The content of a dataset received raw cannot be changed.
    Raw "RAW" { name: String as fs } =>
        "'{name}' was received raw: its content cannot be changed here";
    /// A raw increment on a dataset received decrypted, or the reverse.
    RawMixed "RAW-MIXED" { name: String as fs } =>
        "'{name}' and the stream must both be raw, or both not";
    /// A raw increment from another pool or dataset than its base here.
    RawOther "RAW-MIXED" { name: String as fs } =>
        "'{name}' comes from another pool or file system than the snapshot here that it would continue";
    /// The blocks freed since a bookmark are not known: no manifest, or received raw.
    RawBookmark "STREAM-BASE" { name: String as snapshot } =>
        "'{name}' cannot be sent from a bookmark: for a raw stream it needs a manifest of its blocks, and \
         what was received raw can be sent only raw";
    /// An interrupted receive is kept.
    PartialExists "STREAM-PARTIAL" { name: String as fs } =>
        "an interrupted receive into '{name}' has kept its part";
    /// No interrupted receive is kept.
    NoPartial "STREAM-NO-PARTIAL" { name: String as fs } =>
        "'{name}' has no interrupted receive";
    /// The stream does not continue the interrupted receive.
    OtherPartial "STREAM-NO-PARTIAL" { name: String as fs } =>
        "the stream does not continue the interrupted receive of '{name}'";
    /// The pool has a parity device.
    ParityThere "PARITY-EXISTS" { pool: String as pool, path: String as device } =>
        "'{pool}' has a parity device already: {path}";
    /// The pool has no parity device.
    NoParity "PARITY-NONE" { pool: String as pool } =>
        "'{pool}' has no parity device";
    /// A parity device covers stores of whole objects.
    ParityNoStores "PARITY-STORES" { pool: String as pool } =>
        "'{pool}' has devices that are no stores of objects, and a parity device covers only those";
    /// A parity device has too few bytes.
    ParitySmall "PARITY-SMALL" { path: String as device, bytes: u64, needed: u64 as needed } =>
        "{path} has {bytes} bytes; the pool needs a parity device of at least {needed}";
    /// A parity device is another pool's.
    ParityForeign "PARITY-FOREIGN" { path: String as device } =>
        "{path} is a parity device already, of this pool's former code or of another pool";
    /// A parity device cannot be used.
    ParityUnusable "PARITY-UNUSABLE" { pool: String as pool, path: String as device, reason: String } =>
        "the parity device {path} of '{pool}' is not in use: {reason}";
    /// The parity device failed, or a store refused what came back.
    Parity "PARITY-UNUSABLE" { pool: String as pool, path: String as device,
        source: Box<steadfast_por::parity::Error> } =>
        "the parity device {path} of '{pool}': {source}";

    /// An agent that an audit was to ask gave no answer: nothing is known of the stores.
    AgentSilent "AGENT-SILENT" { pool: String as pool, reason: String } =>
        "no audit of '{pool}' was made: {reason}";

    /// A parity device has no room for a second code.
    ParityRoom "PARITY-ROOM" { pool: String as pool, path: String as device, bytes: u64, needed: u64 as needed,
        missing: u64 as missing } =>
        "the parity device {path} of '{pool}' has {bytes} bytes; a second code beside the present one needs {needed}, and \
         {missing} bytes are missing";
    /// The code was not made anew.
    Rekey "REKEY-FAILED" { pool: String as pool, path: String as device,
        source: Box<steadfast_por::parity::Error> } =>
        "the code of '{pool}' on {path} was not made anew: {source}";

    /// A receive into the dataset is in progress.
    ReceiveActive "STREAM-BUSY" { name: String as fs } =>
        "a receive into '{name}', or below it, is in progress";

    causes:
    /// A secret is not a key.
    BadKey(steadfast_crypto::KeyError) "KEY-FORMAT";
    /// A device failed.
    Device(steadfast_device::Error) by cause, fields by cause;
    /// The anchor failed.
    Anchor(steadfast_anchor::Error) by cause;
    /// The segment table, or a segment, failed.
    Segment(steadfast_segment::Error) "VDEV-IO";
    /// A block could not be written or read.
    Block(steadfast_blockio::Error) "VDEV-IO";
    /// A tree could not be read or written.
    Tree(steadfast_tree::Error) "VDEV-IO";
    /// A dataset failed.
    Dataset(steadfast_dataset::Error) "VDEV-IO";
    /// The reference table, a deadlist or a manifest failed.
    Refs(steadfast_refs::Error) by cause, fields by cause;
}

impl Error {
    /// True if stored content could not be read, or was not what it should be.
    #[must_use]
    pub fn is_of_content(&self) -> bool {
        matches!(
            self,
            Error::Device(_)
                | Error::Segment(_)
                | Error::Block(_)
                | Error::Tree(_)
                | Error::Dataset(_)
                | Error::Refs(_)
                | Error::Corrupt { .. }
                | Error::BadRoot { .. }
                | Error::SpoiltRoot { .. }
                | Error::NoUberblock { .. }
        )
    }

    /// True if an import failed because a root, or what it leads to, is damaged or gone: an older
    /// root may be whole. An object that a store does not give now may be good, and is none of it.
    #[must_use]
    pub fn is_of_root(&self) -> bool {
        use steadfast_device::Error::{CutShort, Missing};
        let own: Option<&(dyn std::error::Error + 'static)> = match self {
            Error::Device(error) => Some(error),
            Error::Segment(error) => Some(error),
            Error::Block(error) => Some(error),
            Error::Tree(error) => Some(error),
            Error::Dataset(error) => Some(error),
            Error::Refs(error) => Some(error),
            _ => None,
        };
        let causes = std::iter::successors(own, |cause| cause.source());
        let mut is_spoilt = matches!(self.code(), "ROOT-DAMAGED" | "POOL-DAMAGED");
        for cause in causes {
            if let Some(error) = cause.downcast_ref::<steadfast_device::Error>() {
                return matches!(error, Missing { .. } | CutShort { .. });
            }
            let of_store = cause.downcast_ref().and_then(steadfast_tree::StoreError::downcast_ref);
            if let Some(steadfast_blockio::Error::Bad(fault)) = cause.downcast_ref().or(of_store) {
                return !fault.is_away();
            }
            is_spoilt |= cause.is::<steadfast_format::DecodeError>();
        }
        is_spoilt
    }

    /// The device whose host had no room, if that is the cause. It may lie below several rooms.
    #[must_use]
    pub fn full_device(&self) -> Option<&steadfast_device::Error> {
        let mut causes = std::iter::successors(std::error::Error::source(self), |cause| cause.source());
        let full = |error: &&steadfast_device::Error| error.code() == "HOST-FULL";
        causes.find_map(|cause| cause.downcast_ref::<steadfast_device::Error>().filter(full))
    }
}

/// The consequence of missing special devices.
#[must_use]
pub fn lost_metadata(special: &[String]) -> String {
    match special {
        [] => String::new(),
        special => format!(
            "; special devices ({}) hold its metadata, without which no file is found",
            special.join(", ")
        ),
    }
}

/// The consequence of a missing log device. An empty log holds no promise.
fn lost_promises(empty: bool) -> &'static str {
    match empty {
        true => "the log held nothing else, so nothing is lost without it",
        false => "what fsync promised since may be on that device, and nowhere else",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_references_keeps_message_code_and_subjects() {
        // [error.1]
        use steadfast_refs::Error as Refs;
        let (pool, what) = ("tank".to_owned(), "a reference row");
        let corrupt = |pool, source| Refs::Corrupt { pool, what, source };
        let bad = Refs::BadDataset { dataset: DatasetId(7), reason: "no rows".to_owned() };
        let source = || DecodeError::Magic { structure: "row" };
        for (refs, own) in [
            (corrupt(pool.clone(), source()), Error::Corrupt { pool, what, source: source() }),
            (bad, Error::BadDataset { dataset: DatasetId(7), reason: "no rows".to_owned() }),
            (Refs::Raw { name: "tank/a".to_owned() }, Error::Raw { name: "tank/a".to_owned() }),
        ] {
            let refs = Error::from(refs);
            assert_eq!(refs.to_string(), own.to_string());
            assert_eq!((refs.code(), refs.fields()), (own.code(), own.fields()));
            assert!(Error::CODES.contains(&refs.code()));
        }
    }
}
