//! A recovery that is owed: one found that a store lacks objects which the journal has whole, and
//! has not put all of them back. Decision 0291.
//!
//! ```text
//! [a recovery finds one: the mark is durable]→ owed ─[a recovery ends well: no mark]→ not owed
//! ```
//! Of objects that the journal has alone any number may be lost, and they come back. A pass would
//! leave them to the code, which gives back 2 %. So none is made meanwhile [por.25].

use steadfast_crypto::hash;
use steadfast_format::parity::ParityRepairMark;

use super::device::ParityDevice;
use super::error::Result;
use super::geometry::{BLOCK, Geometry};

/// Where the mark lies in the block of the older header.
const MARK: usize = 2048;

impl ParityDevice {
    /// True if a recovery is owed, and none reads: passes wait for one.
    #[must_use]
    pub fn owes_repair(&self) -> bool {
        self.owes_repair && !self.is_pinned()
    }

    /// A recovery found what only the journal has. Durable when it returns, unless the medium
    /// fails: then this opening makes no pass anyway.
    pub(crate) fn owe_repair(&mut self) {
        if !self.owes_repair {
            let mark = ParityRepairMark { pool: self.header.pool, sequence: self.header.sequence };
            let _ = self.write_mark(&mark.encode(hash));
            self.owes_repair = true;
        }
    }

    /// A recovery has put back all that can come back.
    pub(crate) fn settle_repair(&mut self) {
        if self.owes_repair {
            let settled = self.write_mark(&[0; ParityRepairMark::ENCODED_SIZE]);
            self.owes_repair = settled.is_err();
        }
    }

    fn write_mark(&mut self, mark: &[u8]) -> Result<()> {
        assert!(!self.is_step_running(), "[por.25]: the end of a pass writes to that block, too");
        let at = Geometry::header(self.header.sequence + 1);
        self.guarded(|device| {
            let source = &device.now.source;
            // The older header stays as it is. A block that cannot be read has none to keep: the
            // end of the next pass writes it over, too.
            let mut block = source.read(at, BLOCK as usize).unwrap_or_else(|_| vec![0; BLOCK as usize]);
            block[MARK..MARK + mark.len()].copy_from_slice(mark);
            source.write(at, &block)?;
            source.flush(device.end)
        })
    }

    /// Looks for the mark of a former opening.
    pub(super) fn read_mark(&mut self) -> Result<()> {
        let at = Geometry::header(self.header.sequence + 1) + MARK as u64;
        let bytes = self.now.source.read(at, ParityRepairMark::ENCODED_SIZE)?;
        let here = ParityRepairMark { pool: self.header.pool, sequence: self.header.sequence };
        self.owes_repair = ParityRepairMark::decode(&bytes, hash).is_ok_and(|mark| mark == here);
        Ok(())
    }
}
