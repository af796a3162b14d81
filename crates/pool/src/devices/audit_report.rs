//! Questions and outcome of an audit.

use steadfast_format::ParityStanding;

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
    /// Of each file or disk, where a walk to all pointers is needed: all in the first batch.
    pub at_once: u32,
}

impl From<u32> for Samples {
    fn from(all: u32) -> Samples {
        Samples { all, newest: all.min(NEWEST_SAMPLES), tiles: TILE_SAMPLES, at_once: all }
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
        Samples {
            all: part(self.all),
            newest: part(self.newest),
            tiles: part(self.tiles),
            at_once: if from == 0 && to > 0 { self.at_once } else { 0 },
        }
    }
}

/// Outcome of an audit of one part of the pool.
#[derive(Clone, Debug)]
pub struct StratumReport {
    /// Store, parity device, file or disk.
    pub device: String,
    /// Part of it: `all`, `newest`, `agent` or `tiles`; `parity` for tiles at a store.
    pub part: &'static str,
    /// Number of the store, if samples that failed name cells of it.
    pub store: Option<u16>,
    /// Cells (or tiles) of which samples were drawn; of a file or disk each 4,096 of the bytes that
    /// could be drawn.
    pub cells: u64,
    /// Samples.
    pub samples: u32,
    /// Samples that were held.
    pub held: u32,
    /// Some of the others: segment, cell, reason. Of a file or disk the offset in the segment's
    /// column instead of the cell.
    pub failed: Vec<(u64, u32, String)>,
    /// Of a file or disk how many bytes each of these has.
    pub failed_bytes: Vec<u32>,
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
#[derive(Clone, Debug, Default)]
pub struct AuditReport {
    /// Cells in a million that may be lost and still come back; of files and disks, twice the part
    /// of the bytes that is found out if it is bad.
    pub loss_ppm: u32,
    /// Files and disks were asked, and no stores: nothing comes back but by redundancy.
    pub by_device: bool,
    /// Files and disks that are away or out of use: nothing is said of them.
    pub absent: Vec<String>,
    /// Datasets whose keys are not loaded: blocks of them were drawn as far as manifests list them.
    pub locked: Vec<String>,
    /// Reads of files and disks, and bytes.
    pub reads: u64,
    /// Bytes of these.
    pub read_bytes: u64,
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
        self.reads += batch.reads;
        self.read_bytes += batch.read_bytes;
        self.strata.extend(batch.strata);
    }
}

/// The last audit of files and disks, for the root.
#[derive(Default)]
pub(crate) struct DeviceAudit {
    pub last: Option<ParityStanding>,
    /// The root does not tell of it yet.
    pub dirty: bool,
}
