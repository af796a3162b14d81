//! Connected NBD clients, and the volume that each has opened.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use steadfast_format::DatasetId;

/// Most clients at once.
pub(super) const CLIENTS_MAX: usize = 128;

/// Connected clients.
#[derive(Default)]
pub(super) struct Clients {
    pub list: Mutex<List>,
    pub left: Condvar,
}

#[derive(Default)]
pub(super) struct List {
    pub next: u64,
    pub by_number: BTreeMap<u64, Client>,
}

pub(super) struct Client {
    pub stream: Arc<UnixStream>,
    /// Guid of the pool, and number of the volume it has chosen.
    pub uses: Option<(u64, DatasetId)>,
}
