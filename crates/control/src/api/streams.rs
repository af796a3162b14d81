//! Sending and receiving streams.

use super::values::Properties;
use crate::refusal::Refusal;
use crate::secret::Key;
use serde::{Deserialize, Serialize};

/// Send snapshots as a stream, to the descriptor that the command hands over.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsSend {
    /// Full name of the snapshot; empty with a token.
    pub snapshot: String,
    /// Full name of the base of an increment.
    pub base: Option<String>,
    /// Each snapshot from the base to the last, one by one (`-I`).
    pub intermediate: bool,
    /// Of all file systems below too, with all their snapshots and properties (`-R`).
    #[serde(default)]
    pub recursive: bool,
    /// With the properties of the file system (`-p`).
    pub properties: bool,
    /// Send received values instead of local ones (`-b`).
    #[serde(default)]
    pub backup: bool,
    /// Send encrypted blocks as they are stored (`-w`).
    #[serde(default)]
    pub raw: bool,
    /// Send compressed blocks as they are stored (`-c`).
    #[serde(default)]
    pub compressed: bool,
    /// With holds (`-h`).
    #[serde(default)]
    pub holds: bool,
    /// Full names of file systems to leave out of a tree, with all below them (`-X`).
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Leave out file systems of a tree that lack the snapshot, with all below them (`-s`).
    #[serde(default)]
    pub skip_missing: bool,
    /// Resume token of an interrupted receive (`-t`).
    pub token: Option<String>,
    /// Only list what would be sent (`-n`); there is no descriptor.
    pub dry_run: bool,
}

/// A sent snapshot.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct SentPart {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Full name of the base, if it is an increment.
    pub base: Option<String>,
    /// Estimated bytes; rough unless this was a dry run.
    pub estimate: u64,
}

/// Answer of a send.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// Snapshots, in order.
    pub parts: Vec<SentPart>,
    /// Bytes of the stream; 0 if nothing was sent.
    pub bytes: u64,
    /// Full names of file systems that were left out because they lack the snapshot.
    #[serde(default)]
    pub skipped: Vec<String>,
}

/// Names of received file systems.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveNaming {
    /// The target itself.
    #[default]
    AsGiven,
    /// Below the target: the sent name without its pool (`-d`).
    WithoutPool,
    /// Below the target: the last component of the sent name (`-e`).
    LastOnly,
}

/// Receive a stream from the descriptor that the command hands over.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsReceive {
    /// Full name of a file system, perhaps with the name of a snapshot.
    pub target: String,
    /// Naming.
    pub naming: ReceiveNaming,
    /// Discard changes since the base (`-F`).
    pub force: bool,
    /// Keep the received part if the stream breaks off, so that it can be resumed (`-s`).
    pub keep: bool,
    /// Do not mount new file systems (`-u`).
    pub no_mount: bool,
    /// Only list what would be received (`-n`).
    pub dry_run: bool,
    /// Properties of the first received file system (`-o`).
    pub properties: Properties,
    /// Properties of the stream to ignore (`-x`).
    pub exclude: Vec<String>,
    /// Key of the first received file system, if it becomes an encryption root.
    #[serde(default)]
    pub key: Option<Key>,
    /// Receive as a clone of this snapshot, by its full name (`-o origin=`).
    #[serde(default)]
    pub origin: Option<String>,
    /// Ignore holds of the stream (`-h`).
    #[serde(default)]
    pub no_holds: bool,
    /// Unmount by force if files are open (`-M`).
    #[serde(default)]
    pub unmount: bool,
}

/// A received snapshot.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct ReceivedPart {
    /// Full name.
    pub snapshot: String,
    /// Full name at the sender.
    pub from: String,
    /// It is an increment.
    pub increment: bool,
    /// Bytes of the stream.
    pub bytes: u64,
    /// Nanoseconds it took.
    pub nanos: u64,
    /// It existed already and was skipped.
    #[serde(default)]
    pub there: bool,
    /// The snapshot of which it became a clone.
    #[serde(default)]
    pub origin: Option<String>,
}

/// Answer of a receive.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct Receipt {
    /// Snapshots, in order.
    pub parts: Vec<ReceivedPart>,
    /// Parts that failed although the receive succeeded.
    pub warnings: Vec<Refusal>,
}

/// Discard the kept part of an interrupted receive (`-A`).
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsReceiveAbort {
    /// Full name of the file system.
    pub name: String,
}
