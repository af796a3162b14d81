//! Requests of guests: users who do not own the daemon.
//! `docs/decisions/0152-guests.md`.
//!
//! ## Invariants
//! [rights.1] A guest changes nothing, reads no file and no file name of a pool, and sends no
//!     secret, unless `zfs allow` allows it.
//!     `is_look`; test: `a_guest_looks_and_changes_nothing`

use crate::api::{DataError, Request};
use crate::caller::Caller;
use crate::refusal::{Code, Refusal};

/// True for requests that only tell what everybody may know: names, sizes, states.
#[must_use]
pub fn is_look(request: &Request) -> bool {
    matches!(
        request,
        Request::PoolList(_)
            | Request::PoolStatus(_)
            | Request::PoolIostat(_)
            | Request::PoolEvents(_)
            | Request::PoolActivities(_)
            | Request::FsList(_)
            | Request::FsListAll(_)
            | Request::FsHolds(_)
            | Request::FsDeleteQueue(_)
            | Request::FsAllowed(_)
            | Request::FsShares(_)
            | Request::DaemonPing(_)
    )
}

/// True for requests about pools that are there: those of root's daemon, if the user has none.
#[must_use]
pub fn is_for_guests(request: &Request) -> bool {
    !matches!(
        request,
        Request::PoolCreate(_)
            | Request::PoolImport(_)
            | Request::PoolImportScan(_)
            | Request::LabelClear(_)
            | Request::DaemonInfo(_)
            | Request::DaemonMemory(_)
            | Request::DaemonStop(_)
    )
}

/// The refusal of a request.
#[must_use]
pub fn denied(caller: &Caller) -> Refusal {
    let what = format!("user {} may look at the pools of this daemon, and not change them", caller.uid);
    Refusal::new(Code::PeerRights, what)
}

/// Takes names of files out of a report for a guest, who could not read their folders.
pub(crate) fn without_paths(errors: &mut [DataError]) {
    for error in errors {
        (error.path, error.mountpoint) = (None, None);
    }
}
