//! Making records durable beside others who use the device.

use super::error::{Error, Result};
use super::source::Source;

/// Makes records durable without the device's lock.
pub struct Flusher {
    pub(super) source: Source,
    pub(super) end: u64,
    pub(super) has_failed: bool,
}

impl Flusher {
    /// Makes durable what was added and removed up to its making. Nothing more is accepted if it
    /// fails. The position up to which all is durable then.
    ///
    /// # Errors
    /// The medium fails, or has failed.
    pub fn flush(&self) -> Result<u64> {
        if self.has_failed {
            return Err(Error::Failed);
        }
        self.source.flush_records(self.end)?;
        Ok(self.end)
    }

    /// Makes it durable now if it is much, so that a flush finds little. Another one that runs
    /// holds this up as little as one that failed: the next flush tells of that.
    pub fn flush_ahead(&self) {
        if !self.has_failed {
            let _ = self.source.flush_ahead(self.end);
        }
    }
}
