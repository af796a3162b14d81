//! Requests of the verbs of streams, and the part of a host that serves them. Part of [`crate::api`].

use crate::api::{Caller, Outcome, Properties};
use crate::refusal::Refusal;
use crate::secret::Key;
use serde::{Deserialize, Serialize};

/// Send snapshots as a stream. The command hands over the descriptor that it goes to.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsSend {
    /// Full name of the snapshot; empty with a token.
    pub snapshot: String,
    /// Full name of the snapshot that it is an increment upon.
    pub base: Option<String>,
    /// All snapshots between the two, each by itself (`-I`).
    pub intermediate: bool,
    /// Of all file systems below too, with all their snapshots and properties (`-R`).
    #[serde(default)]
    pub recursive: bool,
    /// With the properties of the file system (`-p`).
    pub properties: bool,
    /// Of these only what it received, if it received any (`-b`).
    #[serde(default)]
    pub backup: bool,
    /// As it is sealed (`-w`).
    #[serde(default)]
    pub raw: bool,
    /// Records that are compressed go so (`-c`).
    #[serde(default)]
    pub compressed: bool,
    /// With the tags that hold the snapshots (`-h`).
    #[serde(default)]
    pub holds: bool,
    /// Full names of file systems that are left out of a tree, with all below them (`-X`).
    #[serde(default)]
    pub exclude: Vec<String>,
    /// File systems of a tree that lack the snapshot are left out, with all below them (`-s`).
    #[serde(default)]
    pub skip_missing: bool,
    /// Where a receive broke off (`-t`).
    pub token: Option<String>,
    /// Only say what would be sent (`-n`): no descriptor is asked for.
    pub dry_run: bool,
}

/// A snapshot that is sent.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct SentPart {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Full name of what it is an increment upon.
    pub base: Option<String>,
    /// About how many bytes; a first guess unless it was only asked for (`dry_run`).
    pub estimate: u64,
}

/// What was sent, or would be.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Snapshot by snapshot.
    pub parts: Vec<SentPart>,
    /// Bytes of the stream; 0 if nothing was sent.
    pub bytes: u64,
    /// Full names of file systems that lack the snapshot and were left out.
    #[serde(default)]
    pub skipped: Vec<String>,
}

/// How names are made of those in a stream.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveNaming {
    /// As given.
    #[default]
    AsGiven,
    /// Below what is given, without the sender's pool (`-d`).
    WithoutPool,
    /// Below what is given, the last component (`-e`).
    LastOnly,
}

/// Receive a stream. The command hands over the descriptor that it comes from.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsReceive {
    /// Full name of a file system, perhaps with the name of a snapshot.
    pub target: String,
    /// How names are made of it.
    pub naming: ReceiveNaming,
    /// What was changed since the base goes (`-F`).
    pub force: bool,
    /// What was received stays if the stream breaks off (`-s`).
    pub keep: bool,
    /// Do not mount what is new (`-u`).
    pub no_mount: bool,
    /// Only say what would be received (`-n`).
    pub dry_run: bool,
    /// Properties to set on the first of what is received (`-o`).
    pub properties: Properties,
    /// Properties of the stream that do not count (`-x`).
    pub exclude: Vec<String>,
    /// Key of the first of what is received, if it becomes an encryption root.
    #[serde(default)]
    pub key: Option<Key>,
    /// Full name of the snapshot that what is received becomes a clone of (`-o origin=`).
    #[serde(default)]
    pub origin: Option<String>,
    /// Tags of the stream hold nothing here (`-h`).
    #[serde(default)]
    pub no_holds: bool,
    /// What is mounted is unmounted though files of it are open (`-M`).
    #[serde(default)]
    pub unmount: bool,
}

/// A snapshot that was received.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct ReceivedPart {
    /// Full name.
    pub snapshot: String,
    /// Full name where it came from.
    pub from: String,
    /// It is an increment.
    pub increment: bool,
    /// Bytes of the stream.
    pub bytes: u64,
    /// How long it took, in nanoseconds.
    pub nanos: u64,
    /// It was there already, and was passed over.
    #[serde(default)]
    pub there: bool,
}

/// What was received, or would be.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Snapshot by snapshot.
    pub parts: Vec<ReceivedPart>,
    /// What went wrong besides.
    pub warnings: Vec<Refusal>,
}

/// Free what was kept of a receive that broke off (`-A`).
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsReceiveAbort {
    /// Full name of the file system.
    pub name: String,
}

/// Make a bookmark.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsBookmark {
    /// Full name of the snapshot or bookmark.
    pub of: String,
    /// What is to follow the `#`.
    pub name: String,
}

/// Remove a bookmark.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsBookmarkDestroy {
    /// Full name.
    pub name: String,
}

/// Which files changed.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsDiff {
    /// Full name of the earlier snapshot.
    pub base: String,
    /// Full name of a later snapshot, or of its file system.
    pub target: String,
}

/// A file that changed.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsDiffEntry {
    /// `+` new, `-` gone, `M` modified, `R` renamed.
    pub change: String,
    /// What it is, as `ls -F` shows it; `F` a file.
    pub kind: String,
    /// Its path, with the mountpoint if it has one; bytes that are no text as `\\xHH`.
    pub path: String,
    /// Its new path.
    pub to: Option<String>,
    /// When it changed last: seconds since 1970, and nanoseconds.
    pub time: String,
}

/// The part of a host that serves the verbs of streams.
#[allow(clippy::missing_errors_doc)] // As in `Host`.
pub trait StreamHost {
    /// Sends snapshots to the caller's descriptor.
    fn fs_send(&self, caller: &Caller, request: FsSend) -> Result<Sent, Refusal>;
    /// Receives a stream from the caller's descriptor.
    fn fs_receive(&self, caller: &Caller, request: FsReceive) -> Result<Receipt, Refusal>;
    /// Tells which files changed.
    fn fs_diff(&self, caller: &Caller, request: FsDiff) -> Result<Vec<FsDiffEntry>, Refusal>;
    /// Makes a bookmark.
    fn fs_bookmark(&self, caller: &Caller, request: FsBookmark) -> Result<Outcome, Refusal>;
    /// Removes a bookmark.
    fn fs_bookmark_destroy(&self, caller: &Caller, request: FsBookmarkDestroy) -> Result<Outcome, Refusal>;
    /// Frees what was kept.
    fn fs_receive_abort(&self, caller: &Caller, request: FsReceiveAbort) -> Result<Outcome, Refusal>;
}
