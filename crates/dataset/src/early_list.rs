//! The list of complete records of the open txg that are not stored ([`crate::early`]).

use std::collections::VecDeque;
use std::sync::Arc;

use crate::inode::Inode;

/// The latest records of a txg are left to its sync: a second write to the same place comes soon.
const LAG_BYTES: u64 = 2 << 20;

/// Bytes that are worth a turn.
const STEP_BYTES_MIN: u64 = 4 << 20;

/// The same where content comes as a stream.
const STREAM_STEP_BYTES_MIN: u64 = 1 << 20;

/// Complete records of the open txg that are not stored.
pub(crate) struct EarlyList {
    /// Oldest first. Later changes are known by the record.
    pub(crate) records: VecDeque<Listed>,
    /// Sum of their sizes.
    pub(crate) bytes: u64,
    /// Bytes stored early in the open txg.
    pub(crate) stored: u64,
    pub(crate) lag_bytes: u64,
    pub(crate) step_bytes_min: u64,
}

pub(crate) struct Listed {
    pub(crate) inode: Arc<Inode>,
    pub(crate) start: u64,
    pub(crate) size: u64,
}

impl Default for EarlyList {
    fn default() -> EarlyList {
        let (lag_bytes, step_bytes_min) = (LAG_BYTES, STEP_BYTES_MIN);
        EarlyList { records: VecDeque::new(), bytes: 0, stored: 0, lag_bytes, step_bytes_min }
    }
}

impl EarlyList {
    /// Another txg opens: what was listed is in the layers of the one before.
    pub(crate) fn clear(&mut self) {
        self.records.clear();
        (self.bytes, self.stored) = (0, 0);
    }

    /// Content comes as a stream, or does no more. Nothing of a stream is written twice: none of it
    /// is held back.
    pub(crate) fn set_streamed(&mut self, is_streamed: bool) {
        (self.lag_bytes, self.step_bytes_min) = match is_streamed {
            true => (0, STREAM_STEP_BYTES_MIN),
            false => (LAG_BYTES, STEP_BYTES_MIN),
        };
    }

    pub(crate) fn is_due(&self) -> bool {
        self.bytes >= self.lag_bytes + self.step_bytes_min
    }
}
