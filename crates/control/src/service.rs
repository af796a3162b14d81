//! The interface between the socket and what answers its requests.

use crate::api::Request;
use crate::caller::Caller;
use crate::refusal::Refusal;
use crate::rights;

/// Answers requests: the engine does; tests of the command line fix some of its figures. Methods
/// run on several threads at once.
pub trait Service: Send + Sync {
    /// Answers a request that has passed [`crate::engine::check`], in the JSON of its answer type.
    ///
    /// # Errors
    /// The refusal to send.
    fn answer(&self, caller: &Caller, request: Request) -> Result<serde_json::Value, Refusal>;

    /// Refuses a request that a guest may not make.
    ///
    /// # Errors
    /// [`crate::Code::PeerRights`].
    fn permit(&self, caller: &Caller, request: &Request) -> Result<(), Refusal> {
        if rights::is_look(request) { Ok(()) } else { Err(rights::denied(caller)) }
    }

    /// Makes all changes of all pools durable, because a program called `sync(2)`.
    fn sync(&self) {}

    /// Unmounts and exports everything, because the daemon ends. Pools stay remembered for the next
    /// start. Without `force` it refuses while files are open, and everything stays as it was.
    ///
    /// # Errors
    /// The refusal to send.
    fn shutdown(&self, force: bool) -> Result<(), Refusal>;
}
