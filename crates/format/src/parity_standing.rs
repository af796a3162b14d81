//! How far the parity of a pool stands. FORMAT.md, "Parity standing".

use crate::DecodeError;
use crate::layout::{Decoder, Encoder, Layout};

/// How far the code of the pool's parity device stood when the root of this row was made, and what
/// the last audit said. A device that stands at less was put back to an older state.
///
/// A pool on files and disks, which has no parity device, keeps its last audit in the same row:
/// device, root and position are zero then, and generation is 1.
///
/// | off | len | field      | meaning                                                          |
/// |-----|-----|------------|------------------------------------------------------------------|
/// |   0 |   8 | generation | number of the last pass, not 0                                   |
/// |   8 |  32 | root       | root of the parity after that pass                               |
/// |  40 |   8 | position   | end of the journal, all of it durable before the root is         |
/// |  48 |   8 | audited_ns | end of the last audit, nanoseconds since 1970; 0 if there was none |
/// |  56 |   4 | samples    | cells that it asked for                                          |
/// |  60 |   4 | failed     | samples that were not held                                       |
/// |  64 |   8 | cells      | cells that it chose from                                         |
/// |  72 |   8 | device     | guid of the parity device, as labels list it                     |
/// |  80 |  16 | reserved   | zero                                                             |
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ParityStanding {
    /// Number of the last pass.
    pub generation: u64,
    /// Root of the parity after it.
    pub root: [u8; 32],
    /// End of the journal.
    pub position: u64,
    /// End of the last audit, nanoseconds since 1970; 0 if there was none.
    pub audited_ns: u64,
    /// Cells that it asked for.
    pub samples: u32,
    /// Samples that were not held.
    pub failed: u32,
    /// Cells that it chose from.
    pub cells: u64,
    /// Guid of the device, as labels list it.
    pub device: u64,
}

impl ParityStanding {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "parity_standing",
        &[
            ("generation", 0, 8),
            ("root", 8, 32),
            ("position", 40, 8),
            ("audited_ns", 48, 8),
            ("samples", 56, 4),
            ("failed", 60, 4),
            ("cells", 64, 8),
            ("device", 72, 8),
            ("reserved", 80, 16),
        ],
        &[],
    );
    /// Bytes of an encoded value.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_SIZE] {
        assert!(self.generation != 0 && self.failed <= self.samples);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u64("generation", self.generation).bytes("root", &self.root).u64("position", self.position);
        out.u64("audited_ns", self.audited_ns).u32("samples", self.samples).u32("failed", self.failed);
        out.u64("cells", self.cells).u64("device", self.device).reserved().finish_array()
    }

    /// Reads one.
    ///
    /// # Errors
    /// The bytes are none.
    pub fn decode(bytes: &[u8]) -> Result<ParityStanding, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let standing = ParityStanding {
            generation: from.u64("generation"),
            root: from.array("root"),
            position: from.u64("position"),
            audited_ns: from.u64("audited_ns"),
            samples: from.u32("samples"),
            failed: from.u32("failed"),
            cells: from.u64("cells"),
            device: from.u64("device"),
        };
        from.reserved()?;
        if standing.generation == 0 {
            return Err(from.refuse("generation", 0u64));
        }
        if standing.failed > standing.samples {
            return Err(from.refuse("failed", standing.failed));
        }
        from.finish()?;
        Ok(standing)
    }
}
