//! What can go wrong with a pool: refusals of an operator's wish, and faults of the world.

use steadfast_format::{DatasetId, DecodeError, Txg};

/// Result of this room.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a pool operation did not happen. One variant, one site or one family of sites.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No label of a pool on a device.
    #[error("{path} has no intact Steadfast label ({reason})")]
    NoLabel {
        /// Device as the operator named it.
        path: String,
        /// What the four label copies looked like.
        reason: String,
    },
    /// A device carries a pool already.
    #[error("{path} belongs to pool '{pool}' ({state})")]
    Occupied {
        /// Device.
        path: String,
        /// Name in its label.
        pool: String,
        /// Exported, active or destroyed.
        state: &'static str,
    },
    /// What lies under a device's own path is to take its place, and it is in use.
    #[error("{path} is the device that '{pool}' already uses")]
    StillInUse {
        /// Pool.
        pool: String,
        /// Device.
        path: String,
    },
    /// One device was given twice.
    #[error("{path} is listed twice")]
    Twice {
        /// Device.
        path: String,
    },
    /// A scrub or resilver is under way.
    #[error("a {what} of '{pool}' is in progress")]
    ScanActive {
        /// Pool.
        pool: String,
        /// Which.
        what: &'static str,
    },
    /// A spare stands for a device.
    #[error("the spare {path} of '{pool}' is in use")]
    SpareInUse {
        /// Pool.
        pool: String,
        /// The spare.
        path: String,
    },
    /// There is no scrub to pause or stop.
    #[error("no scrub of '{pool}' is in progress")]
    ScanNone {
        /// Pool.
        pool: String,
    },
    /// A device is needed: its group could not be read without it.
    #[error("{path} is needed: without it a part of the data of '{pool}' could not be read")]
    DeviceNeeded {
        /// Pool.
        pool: String,
        /// Device.
        path: String,
    },
    /// Something is moved already.
    #[error("a {what} of '{pool}' is in progress")]
    MoveActive {
        /// Pool.
        pool: String,
        /// Which.
        what: &'static str,
    },
    /// There is nothing to pause or stop.
    #[error("no {what} of '{pool}' is in progress")]
    MoveNone {
        /// Pool.
        pool: String,
        /// Which.
        what: &'static str,
    },
    /// The last devices that hold segments.
    #[error("{path} is the last device of '{pool}'")]
    LastGroup {
        /// Pool.
        pool: String,
        /// Device.
        path: String,
    },
    /// The others have no room for what a device holds.
    #[error(
        "the other devices of '{pool}' have no room for the data on {path}: the pool holds {needed} bytes of live data, and without the device {room} fit"
    )]
    RemoveRoom {
        /// Pool.
        pool: String,
        /// Device.
        path: String,
        /// Bytes that live.
        needed: u64,
        /// Bytes that there would be room for.
        room: u64,
    },
    /// A device that cannot be detached.
    #[error("{path} of '{pool}' cannot be detached: {reason}")]
    Detach {
        /// Pool.
        pool: String,
        /// Device.
        path: String,
        /// Why.
        reason: &'static str,
    },
    /// A device that stands alone has nobody to compute its content.
    #[error("{path} of '{pool}' is not in a mirror: no other device has a copy of its data")]
    DeviceAlone {
        /// Pool.
        pool: String,
        /// Device.
        path: String,
    },
    /// A group of too few or too many devices.
    #[error("a {group} has {least} to {most} devices, not {devices}")]
    GroupSize {
        /// What it was to be.
        group: String,
        /// Devices given.
        devices: usize,
        /// The least it takes.
        least: usize,
        /// The most.
        most: usize,
    },
    /// A device that takes whole objects only cannot be part of a group.
    #[error("{path} stores only whole objects and cannot be a member of a {group}")]
    GroupOfObjects {
        /// Device.
        path: String,
        /// What it was to be part of.
        group: String,
    },
    /// A pool cannot be split.
    #[error("pool '{pool}' cannot be split: {reason}")]
    Split {
        /// Pool.
        pool: String,
        /// Why.
        reason: String,
    },
    /// A pool has had as many groups, or devices in groups, as it can number.
    #[error("the pool has the largest possible number of groups, or of devices in groups")]
    TooManyGroups,
    /// Devices of a pool that were not found.
    #[error("devices of pool '{pool}' are missing: {}{}", missing.join(", "), lost_metadata(special))]
    MissingDevices {
        /// Pool.
        pool: String,
        /// Last known paths.
        missing: Vec<String>,
        /// Those of them that are special devices.
        special: Vec<String>,
    },
    /// A device is being trimmed already, or initialized.
    #[error("{path} is already being {}", what.passive())]
    TrimActive {
        /// What is under way.
        what: crate::core::sweep::Sweep,
        /// Device.
        path: String,
    },
    /// There is no trim to suspend or cancel.
    #[error("no {} of {path} is in progress", what.noun())]
    TrimNone {
        /// What is not.
        what: crate::core::sweep::Sweep,
        /// Device.
        path: String,
    },
    /// A device that is to be gone through is not here, or out of use.
    #[error("{path} cannot be {}: {why}", what.passive())]
    TrimOut {
        /// What was asked for.
        what: crate::core::sweep::Sweep,
        /// Device.
        path: String,
        /// What became of it.
        why: &'static str,
    },
    /// A device takes no discards.
    #[error("{path} cannot be trimmed: it does not support discard")]
    TrimUnsupported {
        /// Device.
        path: String,
    },
    /// A device is not here, or out of use.
    #[error("{path} of the pool '{pool}' is missing or out of use")]
    NotWhole {
        /// Pool.
        pool: String,
        /// Device.
        path: String,
    },
    /// A device's label names another pool than the others'.
    #[error("{path} is not a device of pool '{pool}'")]
    ForeignDevice {
        /// Device.
        path: String,
        /// Pool being imported.
        pool: String,
    },
    /// Labels are there, but no uberblock that counts.
    #[error("pool '{pool}': no valid uberblock on any of its devices")]
    NoUberblock {
        /// Pool.
        pool: String,
    },
    /// The newest uberblock points to a root that cannot be read.
    #[error("pool '{pool}': the root of txg {txg} cannot be read: {reason}")]
    BadRoot {
        /// Pool.
        pool: String,
        /// Txg of the uberblock.
        txg: Txg,
        /// Evidence.
        reason: String,
    },
    /// The devices hold an older root than the anchor.
    #[error(
        "the whole pool '{pool}' was put back to an earlier copy: its devices are at txg {found}, its anchor is at txg \
         {anchored}, {older_seconds} s later"
    )]
    PutBack {
        /// Pool.
        pool: String,
        /// Txg of the newest root on the devices.
        found: Txg,
        /// Txg of the anchored one.
        anchored: Txg,
        /// How much older it is.
        older_seconds: u64,
    },
    /// The devices hold a newer root than the anchor, and not by a commit that was cut off.
    #[error(
        "the anchor {register} is older than the pool '{pool}': the anchor is at txg {anchored}, the devices are at txg {found}"
    )]
    AnchorBehind {
        /// Pool.
        pool: String,
        /// The register.
        register: String,
        /// Txg of the anchored root.
        anchored: Txg,
        /// Txg of the newest root on the devices.
        found: Txg,
    },
    /// The pool has an anchor, and nobody says where.
    #[error("the pool '{pool}' has an anchor, but its path is not known: {reason}")]
    AnchorUnnamed {
        /// Pool.
        pool: String,
        /// How it is known that there is one.
        reason: &'static str,
    },
    /// The pool's anchor cannot be used.
    #[error("the pool '{pool}' cannot be opened without its anchor: {source}")]
    AnchorUnusable {
        /// Pool.
        pool: String,
        /// What is wrong with it.
        source: steadfast_anchor::Error,
    },
    /// The register was this pool's, and is not any more.
    #[error("the anchor {register} was removed from the pool '{pool}', which continues without it")]
    AnchorRetired {
        /// Pool.
        pool: String,
        /// The register.
        register: String,
    },
    /// A pool has one anchor.
    #[error("the pool '{pool}' already has an anchor: {register}")]
    AnchorThere {
        /// Pool.
        pool: String,
        /// The register.
        register: String,
    },
    /// What shall be removed is not the pool's anchor.
    #[error("{path} is not the anchor of the pool '{pool}'")]
    NoSuchAnchor {
        /// Pool.
        pool: String,
        /// As it was named.
        path: String,
    },
    /// The label says the pool is in use, and not by us.
    #[error("pool '{pool}' was last used by host '{host}' and was not exported")]
    NotExported {
        /// Pool.
        pool: String,
        /// Host in its label.
        host: String,
    },
    /// The label says the pool was destroyed.
    #[error("pool '{pool}' was destroyed")]
    Destroyed {
        /// Pool.
        pool: String,
    },
    /// A feature this code does not know is needed.
    #[error("pool '{pool}' needs the feature {feature}, which this version does not know")]
    UnknownFeature {
        /// Pool.
        pool: String,
        /// Feature's name.
        feature: String,
    },
    /// The intent log cannot be replayed whole.
    #[error("the intent log of pool '{pool}' cannot be replayed completely: {reason}. {safe}")]
    LogDamaged {
        /// Pool.
        pool: String,
        /// What is wrong.
        reason: String,
        /// What can be had, and what cannot.
        safe: String,
    },
    /// A log device that the pool needs is not there.
    #[error(
        "the log device {path} of pool '{pool}' is missing: {reason}. All commits up to txg {committed} are safe; {}",
        if *empty { "the log held nothing else, so nothing is lost without it" }
        else { "what fsync promised since may be on that device, and nowhere else" }
    )]
    LogMissing {
        /// Pool.
        pool: String,
        /// Last known path.
        path: String,
        /// Why what is there does not count.
        reason: String,
        /// Root that is opened.
        committed: Txg,
        /// No promise can be on it.
        empty: bool,
    },
    /// The log cannot change its place while it keeps what file systems without a key were
    /// promised.
    #[error(
        "the intent log of pool '{pool}' still holds data of {datasets} file systems whose keys are not loaded"
    )]
    LogHeld {
        /// Pool.
        pool: String,
        /// How many file systems.
        datasets: usize,
    },
    /// A log device does not take its labels.
    #[error("the log device {path} failed: {reason}")]
    LogUnfit {
        /// Device.
        path: String,
        /// What it said.
        reason: String,
    },
    /// A log device is no part of a group with parity.
    #[error("invalid vdev specification: unsupported 'log' device: raidz")]
    LogParity,
    /// What shall be removed is no log device of the pool.
    #[error("{path} is not a log device of the pool '{pool}'")]
    NoSuchLog {
        /// Pool.
        pool: String,
        /// As it was named.
        path: String,
    },
    /// The pool's own metadata is sealed and no key was given.
    #[error("the metadata of pool '{pool}' is sealed, and its key is not loaded")]
    PoolKeyNeeded {
        /// Pool.
        pool: String,
        /// passphrase, raw or hex.
        keyformat: &'static str,
        /// Where the key is to be found.
        keylocation: String,
    },
    /// A secret does not open the wrapped key.
    #[error("the key does not open '{name}'")]
    WrongKey {
        /// Pool or dataset.
        name: String,
    },
    /// A secret is not a key at all.
    #[error(transparent)]
    BadKey(#[from] steadfast_crypto::KeyError),
    /// A dataset's key is not loaded.
    #[error("the key of '{name}' is not loaded")]
    KeyNotLoaded {
        /// Dataset.
        name: String,
    },
    /// Something has another name where it comes from, and cannot have that here.
    #[error("the sender renamed '{name}' to '{to}', but another one here has that name")]
    NotFollowed {
        /// Full name.
        name: String,
        /// Full name as it would be.
        to: String,
    },
    /// A dataset's key is not loaded, and what it has lies among what others have.
    #[error(
        "the key of '{root}' is not loaded: without it '{name}' can be destroyed only together with {}, because they share segments",
        beside.join(", ")
    )]
    BlocksBeside {
        /// Dataset.
        name: String,
        /// Whose key it is.
        root: String,
        /// Full names of the others.
        beside: Vec<String>,
    },
    /// A dataset's key is loaded already.
    #[error("the key of '{name}' is already loaded")]
    KeyLoaded {
        /// Dataset.
        name: String,
    },
    /// The dataset is not encrypted.
    #[error("'{name}' is not encrypted")]
    NotEncrypted {
        /// Dataset.
        name: String,
    },
    /// Keys are loaded at encryption roots only.
    #[error("'{name}' inherits its key from '{root}'")]
    NotEncryptionRoot {
        /// Dataset.
        name: String,
        /// Its encryption root.
        root: String,
    },
    /// No such dataset.
    #[error("dataset '{name}' does not exist")]
    NoSuchDataset {
        /// Name as given.
        name: String,
    },
    /// There is one of that name.
    #[error("dataset '{name}' already exists")]
    DatasetExists {
        /// Name as given.
        name: String,
    },
    /// The parent is missing.
    #[error("the parent '{parent}' does not exist")]
    NoParent {
        /// Missing parent.
        parent: String,
    },
    /// A volume holds no names.
    #[error("the parent '{parent}' is a volume, and a volume has no children")]
    VolumeParent {
        /// The volume.
        parent: String,
    },
    /// A size that no volume has.
    #[error(
        "'{name}' cannot have {bytes} bytes: the size of a volume is one or more whole blocks ({block} bytes each), and less than 8 EiB"
    )]
    VolumeBytes {
        /// The volume.
        name: String,
        /// What was asked for.
        bytes: u64,
        /// Its block.
        block: u64,
    },
    /// A block that no volume of this pool has.
    #[error(
        "'{name}' cannot have blocks of {block} bytes: the size of a block is a power of two, 4096 to {most} in this pool"
    )]
    VolumeBlock {
        /// The volume.
        name: String,
        /// What was asked for.
        block: u64,
        /// Most bytes of a block.
        most: u32,
    },
    /// It would lose its end.
    #[error("'{name}' has {has} bytes and cannot shrink to {wanted}: the data at its end would be lost")]
    VolumeShrinks {
        /// The volume.
        name: String,
        /// Bytes it has.
        has: u64,
        /// What was asked for.
        wanted: u64,
    },
    /// Only a volume has a size.
    #[error("'{name}' is a file system, not a volume")]
    NotVolume {
        /// The file system.
        name: String,
    },
    /// A dataset has children.
    #[error("'{name}' has children: {}", children.join(", "))]
    HasChildren {
        /// Dataset.
        name: String,
        /// Full names.
        children: Vec<String>,
    },
    /// No such snapshot.
    #[error("snapshot '{name}' does not exist")]
    NoSuchSnapshot {
        /// Name as given.
        name: String,
    },
    /// There is one of that name.
    #[error("snapshot '{name}' already exists")]
    SnapshotExists {
        /// Full name.
        name: String,
    },
    /// A commit takes one snapshot of a dataset.
    #[error("two snapshots of '{name}' cannot be taken at once: they would be the same")]
    SnapshotTwice {
        /// Dataset.
        name: String,
    },
    /// Tags keep a snapshot.
    #[error("'{name}' has holds: {}", tags.join(", "))]
    SnapshotHeld {
        /// Full name.
        name: String,
        /// What keeps it.
        tags: Vec<String>,
    },
    /// A snapshot is held by that tag already.
    #[error("'{name}' already has a hold with the tag '{tag}'")]
    HoldExists {
        /// Full name.
        name: String,
        /// Tag as given.
        tag: String,
    },
    /// A snapshot is not held by that tag.
    #[error("'{name}' has no hold with the tag '{tag}'")]
    NoSuchHold {
        /// Full name.
        name: String,
        /// Tag as given.
        tag: String,
    },
    /// Only the youngest snapshot can be gone back to.
    #[error("there are snapshots younger than '{name}': {}", snapshots.join(", "))]
    YoungerSnapshots {
        /// Full name.
        name: String,
        /// Full names.
        snapshots: Vec<String>,
    },
    /// A dataset has snapshots.
    #[error("'{name}' has snapshots: {}", snapshots.join(", "))]
    HasSnapshots {
        /// Dataset.
        name: String,
        /// Full names.
        snapshots: Vec<String>,
    },
    /// Datasets begin as what a snapshot keeps.
    #[error("'{name}' has clones: {}", clones.join(", "))]
    HasClones {
        /// Snapshot, in full.
        name: String,
        /// Full names.
        clones: Vec<String>,
    },
    /// Only a clone can be promoted.
    #[error("'{name}' is not a clone")]
    NotClone {
        /// Dataset.
        name: String,
    },
    /// A promotion would give a dataset two snapshots of one name.
    #[error("'{name}' has snapshots of the same names as its origin's file system: {}", snapshots.join(", "))]
    PromoteConflict {
        /// Clone.
        name: String,
        /// Full names of the clone's.
        snapshots: Vec<String>,
    },
    /// A promotion would charge a dataset with more than it may have.
    #[error("promoting '{clone}' would add {bytes} bytes to '{name}', which exceeds its quota of {quota}")]
    PromoteOverQuota {
        /// Clone.
        clone: String,
        /// Dataset with the quota.
        name: String,
        /// The quota.
        quota: u64,
        /// Bytes that would be charged anew.
        bytes: u64,
    },
    /// A move would charge a dataset with more than it may have.
    #[error("'{dataset}' with all below it uses {bytes} bytes, which exceeds the quota of '{name}', {quota}")]
    RenameOverQuota {
        /// Dataset that was to be moved.
        dataset: String,
        /// Dataset with the quota.
        name: String,
        /// The quota.
        quota: u64,
        /// Bytes that would be charged anew.
        bytes: u64,
    },
    /// What arrives goes beyond a quota.
    #[error("the received data exceeds the quota of its file system, or of one above it")]
    ReceiveOverQuota,
    /// A clone is encrypted as its origin is.
    #[error("'{name}' cannot be cloned to '{to}': {reason}")]
    CloneBorder {
        /// Snapshot.
        name: String,
        /// Where the clone was to be.
        to: String,
        /// Why.
        reason: String,
    },
    /// Others take their keys from a dataset.
    #[error("these file systems inherit their key from '{name}': {}", datasets.join(", "))]
    KeyNeeded {
        /// Encryption root.
        name: String,
        /// Full names.
        datasets: Vec<String>,
    },
    /// A snapshot that somebody sends, or receives upon.
    #[error("'{name}' is being sent, or is the base of a receive in progress")]
    SnapshotPinned {
        /// Full name.
        name: String,
    },
    /// No such bookmark.
    #[error("bookmark '{name}' does not exist")]
    NoSuchBookmark {
        /// Full name.
        name: String,
    },
    /// There is one of that name.
    #[error("bookmark '{name}' already exists")]
    BookmarkExists {
        /// Full name.
        name: String,
    },
    /// A stream could not be written on.
    #[error("the stream cannot be written: {source}")]
    StreamWrite {
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A stream could not be read on.
    #[error("the stream cannot be read: {source}")]
    StreamRead {
        /// What the operating system said.
        source: std::io::Error,
    },
    /// What is to be received is no stream, or one of a newer version.
    #[error("the input is not a stream that can be received: {reason}")]
    NoStream {
        /// What the decoder said.
        reason: String,
    },
    /// A stream ends in the middle.
    #[error("the stream ends at byte {at}, in frame {frame}, before it is complete")]
    StreamEnds {
        /// Number of the frame, from 1.
        frame: u64,
        /// Where that begins.
        at: u64,
    },
    /// A frame is not what was sent, or not what a sender would send.
    #[error("the stream is damaged at byte {at}, in frame {frame}: {reason}")]
    StreamDamaged {
        /// Number of the frame, from 1.
        frame: u64,
        /// Where it begins.
        at: u64,
        /// What is wrong.
        reason: String,
    },
    /// Properties and tags go along with streams up to a length and a number.
    #[error("the properties of '{name}' and of its file system, or its tags, are too long for a stream")]
    NotesTooLong {
        /// Full name of the snapshot.
        name: String,
    },
    /// An increment goes from an earlier snapshot of the same dataset to a later one.
    #[error("'{base}' is not an earlier snapshot of the same file system as '{name}'")]
    NotEarlier {
        /// What is to be sent.
        name: String,
        /// What it was to be an increment upon.
        base: String,
    },
    /// A whole snapshot makes a dataset, and there is one.
    #[error("destination '{name}' exists")]
    DestinationExists {
        /// Dataset.
        name: String,
    },
    /// The dataset lacks the snapshot that an increment builds upon.
    #[error("'{name}' does not have the base snapshot of the stream")]
    NoBase {
        /// Dataset.
        name: String,
    },
    /// An increment goes upon the youngest snapshot.
    #[error("'{name}' has snapshots younger than the base of the stream: {}", snapshots.join(", "))]
    BaseNotYoungest {
        /// Dataset.
        name: String,
        /// Full names of those.
        snapshots: Vec<String>,
    },
    /// A dataset was changed since its youngest snapshot.
    #[error("'{name}' was changed since its youngest snapshot")]
    Modified {
        /// Dataset.
        name: String,
    },
    /// A whole snapshot in the place of a clone.
    #[error("'{name}' is a clone, which a receive cannot replace: destroy it first")]
    TargetIsClone {
        /// Dataset.
        name: String,
    },
    /// A clone of something that is not here.
    #[error("the origin of the clone '{name}' is not here")]
    NoOrigin {
        /// Dataset.
        name: String,
    },
    /// A whole snapshot is no clone.
    #[error("'{name}' cannot become a clone of '{origin}': the stream is a full stream, not an increment")]
    OriginOfWhole {
        /// Dataset.
        name: String,
        /// Full name of the snapshot.
        origin: String,
    },
    /// What it was received as cannot be changed here.
    #[error("'{name}' was received raw: its content cannot be changed here")]
    Raw {
        /// Dataset.
        name: String,
    },
    /// What is received cannot be given a key of its own.
    #[error("the encryption of '{name}' cannot be set here: {reason}")]
    NoNewKey {
        /// Dataset.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// A raw increment upon what was received opened, or the other way round.
    #[error("'{name}' and the stream must both be raw, or both not")]
    RawMixed {
        /// Dataset.
        name: String,
    },
    /// A raw increment upon what has the name of its base, and was sealed elsewhere.
    #[error("'{name}' comes from another pool or file system than the snapshot here that it would continue")]
    RawOther {
        /// What was sent.
        name: String,
    },
    /// Of what a bookmark had nobody knows which blocks are gone: it has no manifest, or is opened
    /// where it was received raw.
    #[error(
        "'{name}' cannot be sent raw from a bookmark: it has no manifest of its blocks; or it was received raw and would be sent decrypted"
    )]
    RawBookmark {
        /// What was to be sent.
        name: String,
    },
    /// Something that broke off is kept.
    #[error("an interrupted receive into '{name}' has kept its part")]
    PartialExists {
        /// Dataset.
        name: String,
    },
    /// Nothing that broke off is kept.
    #[error("'{name}' has no interrupted receive")]
    NoPartial {
        /// Dataset.
        name: String,
    },
    /// A stream that goes on, but not with what is kept.
    #[error("the stream does not continue the interrupted receive of '{name}'")]
    OtherPartial {
        /// Dataset.
        name: String,
    },
    /// A receive is under way there.
    #[error("a receive into '{name}', or below it, is in progress")]
    ReceiveActive {
        /// Dataset.
        name: String,
    },
    /// A stream whose snapshot could not have the name here that it would get.
    #[error("the received name '{name}' is not valid here: {reason}")]
    ReceivedName {
        /// The name.
        name: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The root dataset lives and dies with its pool.
    #[error("'{name}' is the root dataset of its pool")]
    RootDataset {
        /// Dataset.
        name: String,
    },
    /// A dataset cannot lie inside itself.
    #[error("'{name}' cannot be renamed to '{to}', which is below it")]
    InsideItself {
        /// Dataset.
        name: String,
        /// Where it was to go.
        to: String,
    },
    /// A dataset keeps its way of being encrypted when it moves.
    #[error("'{name}' cannot be renamed to '{to}': {reason}")]
    KeyBorder {
        /// Dataset.
        name: String,
        /// Where it was to go.
        to: String,
        /// Why.
        reason: String,
    },
    /// There is no key above that a dataset could take its own from.
    #[error("'{name}' cannot inherit a key: '{parent}' is not encrypted")]
    NothingToInherit {
        /// Dataset.
        name: String,
        /// Its parent.
        parent: String,
    },
    /// The pool does not use a feature that this needs.
    #[error("pool '{pool}' does not use the feature {feature} yet")]
    FeatureOff {
        /// Pool.
        pool: String,
        /// Feature's name.
        feature: &'static str,
    },
    /// A dataset is in use.
    #[error("'{name}' is busy")]
    Busy {
        /// Dataset.
        name: String,
    },
    /// A property is not valid (checked by the room `property`).
    #[error("{0}")]
    Property(String),
    /// The pool takes no changes.
    #[error("pool '{pool}' is read-only")]
    ReadOnly {
        /// Pool.
        pool: String,
    },
    /// The pool cannot place what this needs.
    #[error("pool '{pool}' has no space left for this")]
    NoSpace {
        /// Pool.
        pool: String,
    },
    /// As many file systems below a dataset as it may have.
    #[error("'{name}' may have {limit} file systems below it (filesystem_limit), and has them")]
    FilesystemLimit {
        /// Dataset with the limit.
        name: String,
        /// Its limit.
        limit: u64,
    },
    /// As many snapshots of a dataset and all below it as it may have.
    #[error(
        "'{name}' may have {limit} snapshots with all below it (snapshot_limit); this would make {count}"
    )]
    SnapshotLimit {
        /// Dataset with the limit.
        name: String,
        /// Its limit.
        limit: u64,
        /// How many there would be.
        count: u64,
    },
    /// A quota below what is used or reserved already.
    #[error(
        "size is less than current used or reserved space: {property} of '{name}' must be at least {needed} bytes now"
    )]
    LimitTooLow {
        /// Dataset.
        name: String,
        /// Property.
        property: String,
        /// Least value.
        needed: u64,
    },
    /// A snapshot beside which what is reserved for its dataset does not fit.
    #[error(
        "out of space: with a snapshot, the refreservation of '{name}' needs {bytes} bytes more than the pool has"
    )]
    SnapshotReservation {
        /// Dataset.
        name: String,
        /// What it would use more.
        bytes: u64,
    },
    /// A reservation of more than there is.
    #[error("size is greater than available space: {property} of '{name}' can be {room} bytes at most now")]
    ReservationTooHigh {
        /// Dataset.
        name: String,
        /// Property.
        property: String,
        /// Greatest value.
        room: u64,
    },
    /// After a fault of unknown extent nothing is written any more.
    #[error("pool '{pool}' is suspended: {reason}")]
    Suspended {
        /// Pool.
        pool: String,
        /// The fault.
        reason: String,
    },
    /// A stored structure of the pool is not what it should be.
    #[error("pool '{pool}': {what}: {source}")]
    Corrupt {
        /// Pool.
        pool: String,
        /// Which structure.
        what: &'static str,
        /// Why it was refused.
        source: DecodeError,
    },
    /// A label, or the operator, names the pool as no pool can be named.
    #[error("{name:?} is not a valid name for a pool: {source}; import it under another name")]
    BadName {
        /// The name.
        name: String,
        /// What is wrong with it.
        source: steadfast_property::NameError,
    },
    /// The dataset's stored state contradicts itself.
    #[error("dataset {dataset}: {reason}")]
    BadDataset {
        /// Dataset.
        dataset: DatasetId,
        /// What is wrong.
        reason: String,
    },
    /// Paths and names do not fit a label.
    #[error("pool '{pool}': the paths of its devices do not fit a label; use shorter ones")]
    LabelTooLong {
        /// Pool.
        pool: String,
    },
    /// A device is too small for a pool, or for its place there.
    #[error("{path} has {bytes} bytes; its place needs at least {needed}")]
    TooSmall {
        /// Device.
        path: String,
        /// Its size.
        bytes: u64,
        /// The least that would do.
        needed: u64,
    },
    /// A device has become smaller than the pool's part of it.
    #[error("{path} was cut short: it has {bytes} bytes, less than its {slots} slots need")]
    Shrunk {
        /// Device.
        path: String,
        /// Its size now.
        bytes: u64,
        /// Slots its label promises.
        slots: u32,
    },
    /// The segment table contradicts itself.
    #[error("pool '{pool}': its segment table is not consistent: {reason}")]
    BadTable {
        /// Pool.
        pool: String,
        /// What is wrong.
        reason: String,
    },
    /// A device failed.
    #[error(transparent)]
    Device(#[from] steadfast_device::Error),
    /// The segment room failed.
    #[error(transparent)]
    Segment(#[from] steadfast_segment::Error),
    /// A block could not be written or read.
    #[error(transparent)]
    Block(#[from] steadfast_blockio::Error),
    /// A tree could not be read or written.
    #[error(transparent)]
    Tree(#[from] steadfast_tree::Error),
    /// A dataset failed.
    #[error(transparent)]
    Dataset(#[from] steadfast_dataset::Error),
    /// The anchor failed.
    #[error(transparent)]
    Anchor(#[from] steadfast_anchor::Error),
}

impl From<steadfast_refs::Error> for Error {
    fn from(error: steadfast_refs::Error) -> Error {
        use steadfast_refs::Error as Refs;
        match error {
            Refs::Corrupt { pool, what, source } => Error::Corrupt { pool, what, source },
            Refs::BadDataset { dataset, reason } => Error::BadDataset { dataset, reason },
            Refs::Raw { name } => Error::Raw { name },
            Refs::Block(error) => Error::Block(error),
            Refs::Tree(error) => Error::Tree(error),
            Refs::Dataset(error) => Error::Dataset(error),
        }
    }
}

/// What it means that special devices are missing.
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
