//! Requests of the verbs of clones, and the part of a host that serves them. Part of [`crate::api`].

use crate::api::{Caller, Outcome, Properties};
use crate::refusal::Refusal;
use serde::{Deserialize, Serialize};

/// Make a file system that begins as what a snapshot keeps.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsClone {
    /// Full name of the snapshot.
    pub snapshot: String,
    /// Name of the file system.
    pub name: String,
    /// Create missing parents too (`-p`), and be content if it exists.
    pub parents: bool,
    /// Do not mount (`-u`).
    pub no_mount: bool,
    /// `-o`.
    pub properties: Properties,
}

/// Make a clone what its origin's file system was.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct FsPromote {
    /// Name of the clone.
    pub name: String,
}

/// The part of a host that serves the verbs of clones.
#[allow(clippy::missing_errors_doc)] // As in `Host`.
pub trait CloneHost {
    /// Makes a clone and mounts it; `touched` lists what was created.
    fn fs_clone(&self, caller: &Caller, request: FsClone) -> Result<Outcome, Refusal>;
    /// Promotes a clone.
    fn fs_promote(&self, caller: &Caller, request: FsPromote) -> Result<Outcome, Refusal>;
}
