//! The contents of a parameter file, as values.

use crate::control::{Commands, JournalRules, Repeat, Validate};
use crate::error::{Place, Warning};
use crate::hosts::Host;
use crate::replay::Replay;
use serde::{Deserialize, Serialize};

/// `openflags=`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct OpenFlags {
    /// `o_direct`, `directio`: past the page cache.
    pub direct: bool,
    /// `o_sync`, `o_dsync`, `o_rsync`: each write is durable when it returns.
    pub dsync: bool,
    /// `fsync`: before each close.
    pub fsync: bool,
    /// `fsync_each`, a word of ours: after each write, and the response time spans both.
    pub fsync_each: bool,
}

/// `xfersize=`, in bytes.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum XferSize {
    /// One size.
    Fixed(u64),
    /// `(size,percent,...)`; percentages sum to 100.
    Weighted(Vec<(u64, f64)>),
    /// `(min,max,align)`, uniform.
    Between {
        /// Smallest.
        low: u64,
        /// Largest.
        high: u64,
        /// All sizes are multiples of it.
        align: u64,
    },
}

impl XferSize {
    /// The largest size that can occur.
    pub fn largest(&self) -> u64 {
        match self {
            XferSize::Fixed(size) => *size,
            XferSize::Weighted(list) => list.iter().map(|(size, _)| *size).max().unwrap_or(0),
            XferSize::Between { high, .. } => *high,
        }
    }
}

/// `seekpct=`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub enum Seek {
    /// Percentage of operations that go to a random place; the rest continues where the last ended.
    Percent(f64),
    /// Sequential, and the run ends at the end of the storage.
    Eof,
    /// Sequential from a random place.
    SequentialFromAnywhere,
    /// `backward`, a word of ours: from the end to the start, and again.
    Backward,
    /// `(poisson,n)`: the low addresses more often; the mean lies at 1/n of the storage.
    Poisson(f64),
}

/// A part of a storage.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub enum Range {
    /// Per cent of the size; `high` above 100 wraps.
    Percent {
        /// Start.
        low: f64,
        /// End.
        high: f64,
    },
    /// Bytes.
    Bytes {
        /// Start.
        low: u64,
        /// End.
        high: u64,
    },
}

/// A storage definition: a raw file or device.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Sd {
    /// `sd=`.
    pub name: String,
    /// `lun=`.
    pub lun: String,
    /// `size=`; needed when the file is not there yet.
    pub size: Option<u64>,
    /// `threads=`, 8 if not said.
    pub threads: u32,
    /// `openflags=`, if said.
    pub openflags: Option<OpenFlags>,
    /// `range=`.
    pub range: Option<Range>,
    /// `hitarea=`, bytes.
    pub hitarea: u64,
    /// `align=`, bytes: random addresses are multiples of it instead of the transfer size.
    pub align: Option<u64>,
    /// `offset=`, bytes added to every address.
    pub offset: u64,
    /// `journal=`: directory of its journal; the current one if not said.
    pub journal: Option<String>,
    /// `replay=`: devices of a trace, or groups of them (`rg=`).
    pub replay: Vec<String>,
    /// `dedupratio=` and its like, over the general ones.
    pub dedup: Option<Dedup>,
    /// With `concatenatesds=yes`: the storages that this one consists of, in order. Empty
    /// otherwise.
    pub parts: Vec<Sd>,
    /// `host=`, each with the lun that followed it, empty where `lun` is meant. None at all: every
    /// host has it.
    pub luns: Vec<(Vec<String>, String)>,
    /// Where it was defined.
    #[serde(skip)]
    pub place: Place,
}

/// A workload definition on storages.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Wd {
    /// `wd=`.
    pub name: String,
    /// `sd=`, names resolved.
    pub sds: Vec<String>,
    /// Percentage of reads.
    pub rdpct: f64,
    /// Sizes of operations.
    pub xfersize: XferSize,
    /// Where operations go.
    pub seek: Seek,
    /// Percentage of reads that go to the hit area.
    pub rhpct: f64,
    /// Percentage of writes that go to the hit area.
    pub whpct: f64,
    /// Share of the rate, per cent.
    pub skew: Option<f64>,
    /// `range=`, over the storage's.
    pub range: Option<Range>,
    /// `streams=`: the storage is cut into so many pieces, each with a sequential pointer and
    /// threads of its own.
    pub streams: u32,
    /// `stride=(min,max)`, bytes: a seek skips so far ahead instead of going anywhere.
    pub stride: Option<(u64, u64)>,
    /// `hotband=`: within this part some places are used much more often than others.
    pub hotband: Option<Range>,
    /// `priority=`, 1 is served first.
    pub priority: Option<u32>,
    /// `iorate=` of its own, beside what the run asks of the others.
    pub iorate: Option<f64>,
    /// `threads=` over all its storages; needs `concatenatesds=yes`.
    pub threads: Option<u32>,
    /// `host=`; none: all.
    pub hosts: Vec<String>,
    /// `openflags=`, over the storage's.
    pub openflags: Option<OpenFlags>,
    /// Where it was defined.
    #[serde(skip)]
    pub place: Place,
}

/// `distribution=` of a file system definition.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Eq, PartialEq)]
pub enum Spread {
    /// Files in the lowest directories only.
    Bottom,
    /// Files in all directories.
    All,
}

/// A file system definition: a tree of directories and files below an anchor.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Fsd {
    /// `fsd=`.
    pub name: String,
    /// `anchor=`.
    pub anchor: String,
    /// Levels of directories below the anchor.
    pub depth: u32,
    /// Directories per directory.
    pub width: u32,
    /// Files per directory that has files.
    pub files: u64,
    /// Sizes of files with their weights, per cent. One size of weight 0 is an average.
    pub sizes: Vec<(u64, f64)>,
    /// Stop after so many bytes of files.
    pub totalsize: Option<u64>,
    /// Use only so many bytes of files.
    pub workingset: Option<u64>,
    /// Several hosts or threads share the tree.
    pub shared: bool,
    /// `openflags=`.
    pub openflags: Option<OpenFlags>,
    /// Which directories have files.
    pub spread: Spread,
    /// `mask=(file,directory)`: names, with `%d` or `%04d` for numbers.
    pub mask: Option<(String, String)>,
    /// `dedupratio=` and its like, over the general ones.
    pub dedup: Option<Dedup>,
    /// `journal=`: directory of its journal; the current one if not said.
    pub journal: Option<String>,
    /// The hosts that use it in this run, where there are hosts at all.
    pub hosts: Vec<String>,
    /// `(n,of)`: only every `of`th file belongs to this host, from the `n`th on.
    pub share: Option<(u64, u64)>,
    /// Where it was defined.
    #[serde(skip)]
    pub place: Place,
}

impl Fsd {
    /// Directories below the anchor.
    pub fn directories(&self) -> u64 {
        (1..=self.depth)
            .fold(0u64, |sum, level| sum.saturating_add(u64::from(self.width).saturating_pow(level)))
    }

    /// Files below the anchor, before `totalsize=`.
    pub fn file_count(&self) -> u64 {
        let holders = match self.spread {
            Spread::Bottom => u64::from(self.width).saturating_pow(self.depth),
            Spread::All => self.directories(),
        };
        holders.saturating_mul(self.files)
    }
}

/// Operations of a file workload.
#[allow(missing_docs)]
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub enum Operation {
    Read,
    Write,
    Mkdir,
    Rmdir,
    Create,
    Open,
    Close,
    Delete,
    Getattr,
    Setattr,
    Access,
    Copy,
    Move,
}

impl Operation {
    /// In the order of the report's columns.
    pub const ALL: [Operation; 13] = [
        Operation::Read,
        Operation::Write,
        Operation::Mkdir,
        Operation::Rmdir,
        Operation::Create,
        Operation::Open,
        Operation::Close,
        Operation::Delete,
        Operation::Getattr,
        Operation::Setattr,
        Operation::Access,
        Operation::Copy,
        Operation::Move,
    ];

    /// As written in parameter files.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Mkdir => "mkdir",
            Operation::Rmdir => "rmdir",
            Operation::Create => "create",
            Operation::Open => "open",
            Operation::Close => "close",
            Operation::Delete => "delete",
            Operation::Getattr => "getattr",
            Operation::Setattr => "setattr",
            Operation::Access => "access",
            Operation::Copy => "copy",
            Operation::Move => "move",
        }
    }
}

/// `fileio=`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileIo {
    /// From the start to the end.
    Sequential {
        /// `(seq,delete)`: the file is removed first and written anew.
        delete: bool,
        /// `seqnz`: from a random place, round the end.
        anywhere: bool,
    },
    /// Uniform, in multiples of the transfer size.
    Random {
        /// Several threads may use one file.
        shared: bool,
    },
}

/// `fileselect=`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub enum FileSelect {
    /// With replacement.
    Random,
    /// Round and round, one index per anchor.
    Sequential,
    /// Round and round from a random file.
    SequentialFromAnywhere,
    /// Each file once, then the workload ends.
    Once,
    /// `(poisson,n)`: the first files more often; the mean lies at 1/n of all.
    Poisson(f64),
}

/// Which files `fileselect=` may choose.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FileFilter {
    /// Any.
    #[default]
    Any,
    /// Files of size zero.
    Empty,
    /// Files of full size.
    Full,
    /// Files not of full size.
    NotFull,
}

/// `stopafter=`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub enum StopAfter {
    /// Operations per open.
    Count(u64),
    /// Per cent of the file's size.
    Percent(f64),
}

/// A workload definition on file systems.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Fwd {
    /// `fwd=`.
    pub name: String,
    /// `fsd=`, names resolved.
    pub fsds: Vec<String>,
    /// Operations. More than one: each is a group of threads of its own.
    pub operations: Vec<Operation>,
    /// Sizes of reads and writes.
    pub xfersize: XferSize,
    /// Order inside a file.
    pub fileio: FileIo,
    /// Order of files.
    pub select: FileSelect,
    /// Kinds of files.
    pub filter: FileFilter,
    /// Threads over all file systems of this workload.
    pub threads: u32,
    /// Percentage of reads; needs random order.
    pub rdpct: Option<f64>,
    /// When a file is left.
    pub stopafter: Option<StopAfter>,
    /// Share of the rate, per cent.
    pub skew: Option<f64>,
    /// `target=` of copy and move.
    pub target: Option<String>,
    /// `host=`; none: all.
    pub hosts: Vec<String>,
    /// `openflags=`.
    pub openflags: Option<OpenFlags>,
    /// Where it was defined.
    #[serde(skip)]
    pub place: Place,
}

/// How fast.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum Rate {
    /// As fast as it goes.
    Max,
    /// Operations a second over the whole run.
    Fixed(f64),
    /// `(rate,seconds,rate,seconds,...)` with `distribution=variable`.
    Variable(Vec<(f64, f64)>),
    /// First as fast as it goes, then these percentages of that.
    Curve(Vec<f64>),
    /// When the trace says.
    AsTraced,
}

/// How arrivals are spaced.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Arrival {
    /// As people and programs arrive.
    #[default]
    Exponential,
    /// Uniform between 0 and twice the mean.
    Uniform,
    /// All the same distance.
    Deterministic,
}

/// `maxdata=` and its brothers.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub enum DataLimit {
    /// Bytes.
    Bytes(u64),
    /// Times the total size of the storages.
    Times(f64),
}

/// `format=`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Format {
    /// Any format at all.
    pub wanted: bool,
    /// Only the format, not the run.
    pub only: bool,
    /// Keep what exists, add what is missing.
    pub restart: bool,
    /// Only delete.
    pub clean: bool,
    /// Only before the first of the for-loops.
    pub once: bool,
    /// Only directories.
    pub directories: bool,
    /// Stop the format after `elapsed=`.
    pub limited: bool,
    /// Take the structure for complete without a look at each file.
    pub complete: bool,
}

/// How formats write.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct FormatTuning {
    /// `fwd=format,threads=`.
    pub threads: u32,
    /// `fwd=format,xfersize=`.
    pub xfersize: u64,
    /// `fwd=format,openflags=`.
    pub openflags: Option<OpenFlags>,
}

impl Default for FormatTuning {
    fn default() -> FormatTuning {
        FormatTuning { threads: 8, xfersize: 128 << 10, openflags: None }
    }
}

/// One storage as used by one run.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct RawWork {
    /// The storages.
    pub sds: Vec<Sd>,
    /// The workloads, each with the indices of its storages in `sds`.
    pub wds: Vec<(Wd, Vec<usize>)>,
}

/// File systems and workloads as used by one run.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct FileWork {
    /// The file systems.
    pub fsds: Vec<Fsd>,
    /// The workloads, each with the indices of its file systems in `fsds`. Empty in a format.
    pub fwds: Vec<(Fwd, Vec<usize>)>,
    /// This is the format itself.
    pub format: Option<Format>,
    /// `format=(no,complete)`: the tree is taken for complete without a look.
    pub complete: bool,
}

/// Storages or trees of a run.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub enum Work {
    /// SD and WD.
    Raw(RawWork),
    /// FSD and FWD.
    Files(FileWork),
}

/// One run: a run definition with its loops unrolled.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct Run {
    /// Name in reports: `rd1`, `format_for_rd1`, `rd1_sd2`.
    pub label: String,
    /// Name of the run definition.
    pub rd: String,
    /// `None`, or `threads=1 xfersize=4k`.
    pub loops: String,
    /// Rate.
    pub rate: Rate,
    /// Spacing.
    pub arrival: Arrival,
    /// `distribution=spike`: all arrivals of a second come at its beginning.
    pub spike: bool,
    /// Before the run.
    pub startcmd: Commands,
    /// After the run.
    pub endcmd: Commands,
    /// Seconds measured, after the warm-up. `None`: until the work is done.
    pub elapsed: Option<u64>,
    /// Seconds between lines.
    pub interval: u64,
    /// Seconds before `elapsed` begins.
    pub warmup: u64,
    /// Seconds of rest before the run.
    pub pause: u64,
    /// Ends the run early.
    pub maxdata: Option<DataLimit>,
    /// Ends the run early.
    pub maxdataread: Option<DataLimit>,
    /// Ends the run early.
    pub maxdatawritten: Option<DataLimit>,
    /// Ends a curve, milliseconds of response time.
    pub stopcurve: Option<f64>,
    /// Ratio to which written data compresses, 1 to 25.
    pub compratio: f64,
    /// Blocks written for each distinct content; 1 if nothing repeats.
    pub dedupratio: f64,
    /// `replay=`: what is done is in a trace.
    pub replay: Option<Replay>,
    /// The work.
    pub work: Work,
}

/// `data_errors=`.
#[derive(Serialize, Deserialize, Clone, Debug, Default, Eq, PartialEq)]
pub struct ErrorLimit {
    /// So many errors end the run.
    pub count: u64,
    /// So many seconds after the last error the run ends too.
    pub seconds: Option<u64>,
    /// A storage with an error is not used any more, or not for so many seconds; the others go on.
    pub remove: Option<Removal>,
    /// Command for the shell at the first error, which then ends the run.
    /// `$output $lun $lba $size $sector $error`.
    pub command: Option<String>,
}

/// `data_errors=remove`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Eq, PartialEq)]
pub enum Removal {
    /// For the rest of the run.
    ForGood,
    /// For so many seconds.
    Seconds(u64),
}

/// `timeout=`: what happens when a storage answers nothing.
#[derive(Serialize, Deserialize, Clone, Debug, Eq, PartialEq)]
pub struct Timeout {
    /// After so many seconds without an answer, and again after as many.
    pub seconds: u64,
    /// Then.
    pub then: TimeoutThen,
}

/// Consequence of a storage that answers nothing.
#[derive(Serialize, Deserialize, Clone, Debug, Eq, PartialEq)]
pub enum TimeoutThen {
    /// A line.
    Say,
    /// A line at the end of the run.
    Report,
    /// The end of everything.
    Abort,
    /// A line, and the end after so many seconds.
    AbortAfter(u64),
    /// A command for the shell; if it prints `abort`, the end.
    Script(String),
}

/// `dedupratio=`, `dedupunit=`, `dedupsets=`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub struct Dedup {
    /// Blocks written for each distinct content.
    pub ratio: f64,
    /// Bytes of a block.
    pub unit: u64,
    /// How many contents occur more than once.
    pub sets: DedupSets,
    /// `dedupflipflop=`: which repeated contents change with every rewrite, between two.
    pub flipflop: FlipFlop,
    /// `deduphotsets=`.
    pub hot: HotSets,
}

/// `deduphotsets=(sets,blocks,...)`: the first blocks of a storage belong to sets of so many blocks
/// each.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct HotSets {
    /// Pairs of sets and blocks of each set; (0, 0) from the first that was not said on.
    pub pairs: [(u32, u32); HOT_PAIRS_MAX],
}

/// So many pairs may be said.
pub const HOT_PAIRS_MAX: usize = 8;

impl HotSets {
    /// How many sets there are.
    pub fn sets(&self) -> u64 {
        self.pairs.iter().map(|(sets, _)| u64::from(*sets)).sum()
    }

    /// How many blocks they have.
    pub fn blocks(&self) -> u64 {
        self.pairs.iter().map(|(sets, blocks)| u64::from(*sets) * u64::from(*blocks)).sum()
    }

    /// The hot set of a block, both from 0; `None` behind them. The sets of a pair take turns.
    pub fn set(&self, block: u64) -> Option<u64> {
        let (mut first_block, mut first_set) = (0, 0);
        for (sets, blocks) in self.pairs {
            let (sets, here) = (u64::from(sets), u64::from(sets) * u64::from(blocks));
            if block < first_block + here {
                return Some(first_set + (block - first_block) % sets);
            }
            (first_block, first_set) = (first_block + here, first_set + sets);
        }
        None
    }
}

/// `dedupflipflop=`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum FlipFlop {
    /// None.
    #[default]
    Never,
    /// Of all sets.
    Always,
    /// Of hot sets.
    Hot,
}

/// `dedupsets=`.
#[derive(Serialize, Deserialize, Clone, Copy, Debug, PartialEq)]
pub enum DedupSets {
    /// So many.
    Count(u64),
    /// Per cent of all blocks.
    Percent(f64),
}

/// Parameters before any definition.
#[derive(Serialize, Deserialize, Clone, Debug, PartialEq)]
pub struct General {
    /// Ratio to which written data compresses.
    pub compratio: f64,
    /// How much of what is written was written before.
    pub dedup: Option<Dedup>,
    /// `compressionseed=`.
    pub seed: Option<u64>,
    /// Make the parents of anchors too.
    pub create_anchors: bool,
    /// When I/O errors end a run.
    pub data_errors: ErrorLimit,
    /// `formatxfersize=`: size of the writes that first fill a storage.
    pub formatxfersize: u64,
    /// `validate=`: what is read is compared with what was written.
    pub validate: Option<Validate>,
    /// `journal=`: what was written is known to the next execution too; data is validated then.
    pub journal: Option<JournalRules>,
    /// `histogram=`: upper edges in nanoseconds; none if histograms are suppressed. `None`:
    /// vdbench's 27 buckets.
    pub histogram: Option<Vec<u64>>,
    /// `monitor=`: a file whose content ends a run, or all of them.
    pub monitor: Option<String>,
    /// Before the first run.
    pub startcmd: Commands,
    /// After the last run, unless stopped.
    pub endcmd: Commands,
    /// How often all runs are carried out.
    pub repeat: Repeat,
    /// `abort_failed_skew=`: percentage points by which a share may miss its skew.
    pub abort_failed_skew: Option<f64>,
    /// `pattern=`: a file whose bytes are written over and over.
    pub pattern: Option<String>,
    /// `formatsds=yes`: fill storages even where they are long enough.
    pub formatsds: bool,
    /// `concatenatesds=yes`: the storages of a workload are one long storage.
    pub concatenate: bool,
    /// `timeout=`.
    pub timeout: Option<Timeout>,
    /// `fwd_thread_adjust=no`: threads that cannot be dealt out evenly are refused.
    pub thread_adjust: bool,
    /// `port=`: where agents listen.
    pub port: Option<u16>,
}

impl Default for General {
    fn default() -> General {
        General {
            compratio: 1.0,
            dedup: None,
            seed: None,
            create_anchors: false,
            data_errors: ErrorLimit { count: 50, ..ErrorLimit::default() },
            formatxfersize: 128 << 10,
            validate: None,
            journal: None,
            histogram: None,
            monitor: None,
            startcmd: Commands::default(),
            endcmd: Commands::default(),
            repeat: Repeat::Times(1),
            abort_failed_skew: None,
            pattern: None,
            formatsds: false,
            concatenate: false,
            timeout: None,
            thread_adjust: true,
            port: None,
        }
    }
}

/// A whole parameter file, checked and unrolled.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// General parameters.
    pub general: General,
    /// How formats write.
    pub format: FormatTuning,
    /// Every storage defined.
    pub sds: Vec<Sd>,
    /// Every workload on storages defined.
    pub wds: Vec<Wd>,
    /// Every file system defined.
    pub fsds: Vec<Fsd>,
    /// Every workload on file systems defined.
    pub fwds: Vec<Fwd>,
    /// The runs, in order, formats included.
    pub runs: Vec<Run>,
    /// Words that were accepted but may not be meant.
    pub warnings: Vec<Warning>,
    /// `hd=`: hosts that carry the runs out. None: this process.
    pub hosts: Vec<Host>,
    /// Copy of the input, for `parmfile.html`.
    pub copy: String,
}
