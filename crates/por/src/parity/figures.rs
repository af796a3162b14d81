//! Figures of a parity device.

/// Recoveries under one map that stores saw: each tells them a bit, that objects came back or did
/// not.
pub const RECOVERIES_MAX: u32 = 1024;

/// Figures of a parity device.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Figures {
    /// Cells that the code covers, and that it is made for.
    pub cells: u64,
    /// Cells that the code is made for.
    pub planned: u64,
    /// Cells in a million that may be lost.
    pub loss_ppm: u32,
    /// Tiles.
    pub tiles: u32,
    /// Bytes of the journal's ring, and of records in it.
    pub journal_size: u64,
    /// Bytes of records in it.
    pub journal_used: u64,
    /// Number of the last pass.
    pub generation: u64,
    /// A step of a pass is running.
    pub is_step_running: bool,
    /// Segments that the code covers.
    pub segments: u64,
    /// Bytes of the whole device.
    pub bytes: u64,
    /// Recoveries under the present map that stores saw: something came back, or could not.
    pub recoveries: u32,
    /// The code that is being made anew, under another map.
    pub next: Option<NextFigures>,
}

impl Figures {
    /// True if stores saw so many recoveries under this map that it should be another.
    #[must_use]
    pub fn is_map_used_up(&self) -> bool {
        self.recoveries >= RECOVERIES_MAX
    }
}

/// Figures of a code that is being made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NextFigures {
    /// Tiles that are made, and that it will have.
    pub made: u32,
    /// Tiles that it will have.
    pub tiles: u32,
    /// Cells in a million that may be lost then.
    pub loss_ppm: u32,
}
