//! The sender of a request.

use crate::descriptor::Descriptor;
use crate::steps::Steps;

/// The sender of a request: recorded in history, and the owner of new file systems.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Caller {
    /// User id, as the kernel reports it.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// True if somebody else owns the daemon: the caller looks, or does what `zfs allow` allows.
    pub guest: bool,
    /// Process.
    pub pid: u32,
    /// The command as typed (`zpool create tank disk.img`), for history. It holds no secret,
    /// because no option takes one.
    pub command: String,
    /// Source or target of a stream, for verbs that have one.
    pub descriptor: Option<Descriptor>,
    /// Where the steps of the request are told; `None` if its command shows none.
    pub steps: Option<Steps>,
}
