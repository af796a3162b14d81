//! Requests of clients by operation: how many, how long, and where their time went.
//!
//! Counters only grow; a reader takes the difference of two samples. Times fall into buckets of
//! powers of two, as those of devices do. Adding one is six additions to atomics, no lock.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::waiting::Split;

/// Buckets of a histogram: bucket `n` holds `2^n` to `2^(n+1) - 1` nanoseconds, the last all above.
pub const BUCKETS: usize = 40;

/// Operations as clients ask for them, whatever their protocol calls them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Operation {
    /// A name in a directory.
    Lookup,
    /// Attributes, and what may be done.
    Getattr,
    /// Attributes are changed, or the size.
    Setattr,
    /// Target of a symbolic link.
    Readlink,
    /// Content is read.
    Read,
    /// Content is written.
    Write,
    /// A file is created.
    Create,
    /// A directory is created.
    Mkdir,
    /// A symbolic link, a device or a fifo is created, or another name for a file.
    Link,
    /// A file's name is removed.
    Remove,
    /// A directory is removed.
    Rmdir,
    /// A name moves.
    Rename,
    /// Names of a directory.
    List,
    /// Changes are made durable.
    Sync,
    /// Extended attributes and ACLs.
    Xattr,
    /// Everything else.
    Other,
}

impl Operation {
    /// All of them.
    pub const ALL: [Operation; 16] = [
        Operation::Lookup,
        Operation::Getattr,
        Operation::Setattr,
        Operation::Readlink,
        Operation::Read,
        Operation::Write,
        Operation::Create,
        Operation::Mkdir,
        Operation::Link,
        Operation::Remove,
        Operation::Rmdir,
        Operation::Rename,
        Operation::List,
        Operation::Sync,
        Operation::Xattr,
        Operation::Other,
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Operation::Lookup => "lookup",
            Operation::Getattr => "getattr",
            Operation::Setattr => "setattr",
            Operation::Readlink => "readlink",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Create => "create",
            Operation::Mkdir => "mkdir",
            Operation::Link => "link",
            Operation::Remove => "remove",
            Operation::Rmdir => "rmdir",
            Operation::Rename => "rename",
            Operation::List => "list",
            Operation::Sync => "sync",
            Operation::Xattr => "xattr",
            Operation::Other => "other",
        }
    }
}

/// The way on which requests come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// Of the kernel, by FUSE.
    Local,
    /// Of NFS clients.
    Nfs,
}

impl Origin {
    /// All of them.
    pub const ALL: [Origin; 2] = [Origin::Local, Origin::Nfs];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Origin::Local => "local",
            Origin::Nfs => "nfs",
        }
    }
}

#[derive(Debug)]
struct Cell {
    own_ns: AtomicU64,
    read_ns: AtomicU64,
    write_ns: AtomicU64,
    histogram: [AtomicU64; BUCKETS],
}

impl Cell {
    fn new() -> Cell {
        let zero = || AtomicU64::new(0);
        let histogram = std::array::from_fn(|_| zero());
        Cell { own_ns: zero(), read_ns: zero(), write_ns: zero(), histogram }
    }

    fn add(&self, split: &Split) {
        self.own_ns.fetch_add(split.own_ns(), Ordering::Relaxed);
        self.read_ns.fetch_add(split.waited.read_ns, Ordering::Relaxed);
        self.write_ns.fetch_add(split.waited.write_ns, Ordering::Relaxed);
        let bucket = (split.total_ns.max(1).ilog2() as usize).min(BUCKETS - 1);
        self.histogram[bucket].fetch_add(1, Ordering::Relaxed);
    }
}

/// Requests of one kind at one moment.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Sample {
    /// The way on which they came.
    pub origin: Origin,
    /// Operation.
    pub operation: Operation,
    /// Nothing had to be read from a device.
    pub is_hot: bool,
    /// How many.
    pub count: u64,
    /// Nanoseconds of our own processing.
    pub own_ns: u64,
    /// Nanoseconds of waiting for reads.
    pub read_ns: u64,
    /// Nanoseconds of waiting for writes.
    pub write_ns: u64,
    /// How many by the power of two of their nanoseconds.
    pub histogram: [u64; BUCKETS],
}

/// Requests of the clients of one pool.
#[derive(Debug)]
pub struct Requests {
    cells: Vec<Cell>,
}

impl Default for Requests {
    fn default() -> Requests {
        let kinds = Origin::ALL.len() * Operation::ALL.len() * 2;
        Requests { cells: (0..kinds).map(|_| Cell::new()).collect() }
    }
}

fn index(origin: Origin, operation: Operation, is_hot: bool) -> usize {
    (origin as usize * Operation::ALL.len() + operation as usize) * 2 + usize::from(is_hot)
}

impl Requests {
    /// A request was answered.
    pub fn add(&self, origin: Origin, operation: Operation, split: &Split) {
        self.cells[index(origin, operation, split.is_hot())].add(split);
    }

    /// Kinds of which there was a request, and their counters.
    #[must_use]
    pub fn samples(&self) -> Vec<Sample> {
        let kinds = Origin::ALL.into_iter().flat_map(|origin| {
            let of = move |operation| [true, false].map(|is_hot| (origin, operation, is_hot));
            Operation::ALL.into_iter().flat_map(of)
        });
        let sample = |(origin, operation, is_hot): (Origin, Operation, bool)| {
            let cell = &self.cells[index(origin, operation, is_hot)];
            let histogram: [u64; BUCKETS] =
                std::array::from_fn(|bucket| cell.histogram[bucket].load(Ordering::Relaxed));
            Sample {
                origin,
                operation,
                is_hot,
                count: histogram.iter().sum(),
                own_ns: cell.own_ns.load(Ordering::Relaxed),
                read_ns: cell.read_ns.load(Ordering::Relaxed),
                write_ns: cell.write_ns.load(Ordering::Relaxed),
                histogram,
            }
        };
        kinds.map(sample).filter(|sample| sample.count > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiting::Waited;

    #[test]
    fn requests_are_told_apart_by_origin_operation_and_heat() {
        let requests = Requests::default();
        assert_eq!(requests.samples(), []);
        let cold = Split { total_ns: 1_000, waited: Waited { read_ns: 700, write_ns: 200 } };
        let hot = Split { total_ns: 1_024, waited: Waited { read_ns: 0, write_ns: 24 } };
        requests.add(Origin::Nfs, Operation::Create, &cold);
        requests.add(Origin::Nfs, Operation::Create, &cold);
        requests.add(Origin::Nfs, Operation::Create, &hot);
        requests.add(Origin::Local, Operation::Other, &hot);
        let samples = requests.samples();
        let told: Vec<_> = samples
            .iter()
            .map(|one| (one.origin.name(), one.operation.name(), one.is_hot, one.count))
            .collect();
        assert_eq!(
            told,
            [("local", "other", true, 1), ("nfs", "create", true, 1), ("nfs", "create", false, 2)]
        );
        let sums = |one: &Sample| (one.own_ns, one.read_ns, one.write_ns);
        assert_eq!((sums(&samples[1]), sums(&samples[2])), ((1_000, 0, 24), (200, 1_400, 400)));
        assert_eq!((samples[1].histogram[10], samples[2].histogram[9]), (1, 2));
    }

    #[test]
    fn every_operation_has_a_cell_of_its_own() {
        let of = |at: usize| Operation::ALL[at] as usize == at;
        assert!((0..Operation::ALL.len()).all(of));
        let mut all: Vec<usize> = Origin::ALL
            .into_iter()
            .flat_map(|origin| Operation::ALL.into_iter().map(move |operation| (origin, operation)))
            .flat_map(|(origin, operation)| [true, false].map(|is_hot| index(origin, operation, is_hot)))
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), Requests::default().cells.len());
    }
}
