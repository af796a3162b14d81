//! Questions and outcome of an audit.

/// Samples of the newest segments at most: 99 % for a loss of 1 % of them.
const NEWEST_SAMPLES: u32 = 459;
/// Tiles of the parity that each audit reads.
const TILE_SAMPLES: u32 = 2;

/// Samples of an audit, or of a batch of one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Samples {
    /// Of each store.
    pub all: u32,
    /// Of the newest objects of each store.
    pub newest: u32,
    /// Tiles of the parity.
    pub tiles: u32,
}

impl From<u32> for Samples {
    fn from(all: u32) -> Samples {
        Samples { all, newest: all.min(NEWEST_SAMPLES), tiles: TILE_SAMPLES }
    }
}

impl Samples {
    /// Those of the batches from one number on up to another one, of so many equal ones.
    #[must_use]
    pub fn batches(self, from: u32, to: u32, of: u32) -> Samples {
        let before = |samples: u32, batch: u32| {
            u32::try_from(u64::from(samples) * u64::from(batch) / u64::from(of)).unwrap_or(samples)
        };
        let part = |samples| before(samples, to) - before(samples, from);
        Samples { all: part(self.all), newest: part(self.newest), tiles: part(self.tiles) }
    }
}

/// Outcome of an audit of one part of the pool.
#[derive(Clone, Debug)]
pub struct StratumReport {
    /// Store, or the parity device.
    pub device: String,
    /// Part of it: `all`, `newest`, `agent` or `tiles`.
    pub part: &'static str,
    /// Number of the store, if samples that failed name cells of it.
    pub store: Option<u16>,
    /// Cells (or tiles) of which samples were drawn.
    pub cells: u64,
    /// Samples.
    pub samples: u32,
    /// Samples that were held.
    pub held: u32,
    /// Some of the others: segment, cell, reason.
    pub failed: Vec<(u64, u32, String)>,
    /// Question and answers, of a store.
    pub asked: Option<Asked>,
}

/// Question of an audit, and what was answered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Asked {
    /// Seed that chose the cells.
    pub seed: [u8; 32],
    /// Number of the list of cells, and its hash.
    pub generation: u64,
    /// Hash of the list of cells.
    pub list: [u8; 32],
    /// Hash of the answers.
    pub answers: [u8; 32],
}

/// How much of what a pool stores its code covers: audits promise something of that alone.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Coverage {
    /// Bytes that the pool stores.
    pub stored: u64,
    /// Those of them that the code covers.
    pub covered: u64,
    /// Objects that it does not cover.
    pub uncovered: u64,
}

/// Outcome of an audit.
#[derive(Clone, Debug)]
pub struct AuditReport {
    /// Cells in a million that may be lost and still come back.
    pub loss_ppm: u32,
    /// Coverage when the first question was drawn.
    pub coverage: Coverage,
    /// Part by part.
    pub strata: Vec<StratumReport>,
}

impl AuditReport {
    /// True if every sample was held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.strata.iter().all(|stratum| stratum.held == stratum.samples)
    }

    /// Adds a later batch of the same audit.
    pub fn add(&mut self, batch: AuditReport) {
        self.loss_ppm = batch.loss_ppm;
        self.strata.extend(batch.strata);
    }
}
