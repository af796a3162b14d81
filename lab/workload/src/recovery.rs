//! Journals of storages and trees: begun with the first run that uses one, or gone on with where an
//! earlier execution left them; and the runs that read what they know.
//!
//! A tree has one journal, of the blocks of all its files. It is compared with the files twice: a
//! file that is missing, or shorter than its known blocks reach, is told before anything is read;
//! the rest is read and compared by the run `journal_recovery`, as any other run would.

use crate::anchor::{FileMap, Tree};
use crate::error::Error;
use crate::journal;
use crate::pattern::Pattern;
use crate::random::mix;
use crate::shared::{IoError, errno_text};
use crate::validate::{CORRUPT, Map, Place};
use crate::{file_calls, fill};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use steadfast_lab_params::{
    Arrival, FileFilter, FileIo, FileSelect, FileWork, Fsd, Fwd, JournalRules, Operation, Plan, Rate, Run,
    Sd, Work, XferSize,
};

/// Name of both runs.
pub(crate) const LABEL: &str = "journal_recovery";
/// Transfers of a recovery, where key blocks are not longer.
const TRANSFER: u64 = 128 << 10;

/// How a journal is opened.
pub(crate) struct Opening<'a> {
    pub rules: JournalRules,
    /// Goes on with what is there.
    pub recovers: bool,
    pub ratio: f64,
    pub seed: u64,
    pub pattern: &'a Pattern,
}

impl Opening<'_> {
    /// Opens the journal of a map; the sentence about what was found, and what was under way.
    fn open(
        &self,
        map: &mut Map,
        directory: Option<&str>,
        seed: u64,
    ) -> Result<Option<(String, journal::Pending)>, String> {
        let rules = JournalRules { recover: self.recovers, ..self.rules };
        let directory = PathBuf::from(directory.unwrap_or("."));
        let Some(found) = map.open_journal(&directory, rules, self.ratio, seed)? else { return Ok(None) };
        let said = format!(
            "the journal of process {} knows {} of {} blocks; {} were under way.",
            found.about.owner,
            found.keys.iter().filter(|key| **key != 0).count(),
            found.keys.len(),
            found.pending.len()
        );
        Ok(Some((said, found.pending)))
    }

    /// The journal of a storage, and the blocks that were being written and are wrong.
    pub(crate) fn storage(
        &self,
        map: &mut Map,
        sd: &Sd,
        file_key: u64,
    ) -> Result<Option<(String, Vec<IoError>)>, String> {
        let Some((said, pending)) = self.open(map, sd.journal.as_deref(), self.seed)? else {
            return Ok(None);
        };
        let path = Path::new(&sd.lun);
        let refused = |error: std::io::Error| format!("'{}': {}", sd.lun, errno_text(&error));
        let file = File::open(path).map_err(refused)?;
        let block = map.block();
        let wrong = map.settle(&pending, self.rules.ignore_pending, self.pattern, &mut |at, bytes| {
            bytes.resize(block as usize, 0);
            file.read_exact_at(bytes, at * block).map_err(refused)?;
            Ok(Some(Place { lba: at * block, file_key, path: path.to_path_buf() }))
        })?;
        Ok(Some((format!("sd={}: {said}", sd.name), wrong)))
    }

    /// The journal of a tree; its blocks that were being written and are wrong, and its files that
    /// are missing or too short.
    pub(crate) fn tree(
        &self,
        tree: &Tree,
        keys: &mut FileMap,
    ) -> Result<Option<(String, Vec<IoError>)>, String> {
        let seed = mix(self.seed, tree.identity());
        let Some((said, pending)) = self.open(&mut keys.map, tree.fsd.journal.as_deref(), seed)? else {
            return Ok(None);
        };
        let block = keys.map.block();
        let wrong =
            keys.map.settle(&pending, self.rules.ignore_pending, self.pattern, &mut |at, bytes| {
                let (file, lba) = keys.place(at);
                let path = tree.file(file);
                let length = block.min(tree.target(file) - lba);
                bytes.resize(length as usize, 0);
                match File::open(&path).and_then(|file| file.read_exact_at(bytes, lba)) {
                    Ok(()) => Ok(Some(Place { lba, file_key: mix(tree.key, file), path })),
                    // A write that would have made or extended the file was not done. Its earlier
                    // contents are looked for with all other lost files.
                    Err(error) if is_missing(&error) => Ok(None),
                    Err(error) => Err(format!("'{}': {}", path.display(), errno_text(&error))),
                }
            })?;
        let lost = lost(tree, keys);
        Ok(Some((format!("fsd={}: {said}", tree.fsd.name), wrong.into_iter().chain(lost).collect())))
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotFound, UnexpectedEof};
    matches!(error.kind(), NotFound | UnexpectedEof)
}

/// Files that do not hold all that was written to them; what they should hold is not expected any
/// more.
fn lost(tree: &Tree, keys: &FileMap) -> Vec<IoError> {
    let block = keys.map.block();
    let mut lost = Vec::new();
    for file in 0..tree.file_count() {
        let (first, count) = keys.blocks(file);
        let Some(last) = keys.map.last_known(first, count) else { continue };
        let known = ((last - first + 1) * block).min(tree.target(file));
        let found = tree.state(file);
        let length = found.unwrap_or(0);
        if length >= known {
            continue;
        }
        let is = found.map_or("is not there".to_string(), |length| format!("has {length} bytes"));
        // A block that is there in part is lost too: it would be read as a short one.
        let whole = length / block;
        keys.map.forget(first + whole, count - whole);
        lost.push(IoError {
            at: SystemTime::now(),
            host: None,
            operation: Operation::Read,
            path: tree.file(file).display().to_string(),
            offset: length,
            bytes: known - length,
            errno: CORRUPT.into(),
            evidence: vec![format!(
                "The journal knows {known} bytes that were written to this file; it {is}."
            )],
        });
    }
    lost
}

/// The run that reads all storages or trees of a plan and compares what their journals know.
pub(crate) fn run(plan: &Plan) -> Result<Option<Run>, Error> {
    Ok(match plan.runs.iter().find(|run| matches!(run.work, Work::Files(_))) {
        Some(like) => trees(plan, like),
        None => storages(plan)?,
    })
}

fn storages(plan: &Plan) -> Result<Option<Run>, Error> {
    const MIB: u64 = 1 << 20;
    let mut sds: Vec<Sd> = Vec::new();
    for run in &plan.runs {
        let Work::Raw(work) = &run.work else { continue };
        for sd in
            work.sds.iter().filter(|sd| !sds.iter().any(|known| known.name == sd.name)).collect::<Vec<_>>()
        {
            let found = file_calls::length(Path::new(&sd.lun)).ok().flatten().unwrap_or(0);
            let size = sd.size.map_or(found, |size| size.min(found));
            sds.push(Sd { size: Some(size - size % MIB), ..sd.clone() });
        }
    }
    if sds.is_empty() {
        return Ok(None);
    }
    let mut run = fill::fill(&plan.general, sds)?;
    run.label = LABEL.into();
    run.rd = LABEL.into();
    if let Work::Raw(work) = &mut run.work {
        for (wd, _) in &mut work.wds {
            wd.name = LABEL.into();
            wd.rdpct = 100.0;
        }
    }
    Ok(Some(run))
}

/// Every file of every tree once, from its start to its end.
fn trees(plan: &Plan, like: &Run) -> Option<Run> {
    let mut fsds: Vec<Fsd> = Vec::new();
    for run in &plan.runs {
        let Work::Files(work) = &run.work else { continue };
        for fsd in &work.fsds {
            if !fsds.iter().any(|known| known.name == fsd.name) {
                fsds.push(Fsd { workingset: None, ..fsd.clone() });
            }
        }
    }
    let block = plan.general.validate.map_or(512, |rules| rules.block);
    let fwd = Fwd {
        name: LABEL.into(),
        fsds: fsds.iter().map(|fsd| fsd.name.clone()).collect(),
        operations: vec![Operation::Read],
        xfersize: XferSize::Fixed((TRANSFER / block).max(1) * block),
        fileio: FileIo::Sequential { delete: false, anywhere: false },
        select: FileSelect::Once,
        filter: FileFilter::Any,
        threads: plan.format.threads.saturating_mul(fsds.len() as u32),
        rdpct: None,
        stopafter: None,
        skew: None,
        target: None,
        hosts: Vec::new(),
        openflags: None,
        place: fsds.first()?.place.clone(),
    };
    let all = (0..fsds.len()).collect();
    Some(Run {
        label: LABEL.into(),
        rd: LABEL.into(),
        loops: "None".into(),
        rate: Rate::Max,
        arrival: Arrival::Exponential,
        spike: false,
        startcmd: Default::default(),
        endcmd: Default::default(),
        elapsed: None,
        interval: 1,
        warmup: 0,
        pause: 0,
        maxdata: None,
        maxdataread: None,
        maxdatawritten: None,
        stopcurve: None,
        compratio: plan.general.compratio,
        work: Work::Files(FileWork { fsds, fwds: vec![(fwd, all)], format: None, complete: false }),
        ..like.clone()
    })
}
