//! FSD: a tree of directories and files below an anchor, and what is known to exist of it.
//!
//! # Names and order
//!
//! Directories are `vdb.<level>_<number>.dir`, numbers from 1 to the width; files
//! `vdb_f<number>.file`, numbered over the whole anchor. Directories of one level are ordered with
//! the first level's number running fastest, so the lowest directories of a 2x2 tree are 1_1/2_1,
//! 1_2/2_1, 1_1/2_2, 1_2/2_2.
//!
//! # State
//!
//! One atomic word per file: existing, in use, length. It begins from `vdb_control.file` where that
//! is ours and whole, else from a look at each file, and is written back at the end of a run. A
//! control file that describes another structure refuses the run: reading a tree as what it is not
//! would measure something else.

use crate::random::mix;
use crate::shared::Shared;
use crate::validate::Map;
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering::Relaxed};
use steadfast_lab_params::{Fsd, Spread, Validate};

const EXISTS: u64 = 1 << 63;
const IN_USE: u64 = 1 << 62;
const LENGTH: u64 = IN_USE - 1;
/// States of a directory.
const ABSENT: u8 = 0;
const CHANGING: u8 = 1;
const PRESENT: u8 = 2;
/// Up to here every file is looked at; beyond, the control file is believed.
const LOOK_MAX: u64 = 20_000;
/// Name of the state file, as vdbench's.
pub(crate) const CONTROL: &str = "vdb_control.file";
const CONTROL_TITLE: &str = "* steadfast lab control file, version 1";

/// Errors before the first operation.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(
        "Unable to create anchor directory: {0}\n{1}; create its parent directory, or write create_anchors=yes."
    )]
    Anchor(String, String),
    #[error(
        "anchor={0} holds another structure ({1}) than the parameter file asks for ({2}); write format=yes to replace it."
    )]
    Structure(String, String, String),
    #[error("anchor={0} has too many blocks to validate; use fewer or smaller files, or a larger xfersize=.")]
    Validate(String),
    #[error("fsd={0}: journal: {1}.")]
    Journal(String, String),
}

/// Knowledge of a tree before it is opened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Known {
    /// Its control file, checked by a look at the files.
    Checked,
    /// The result of a look at every file: after a crash the control file is older than they are.
    Looked,
    /// Nothing: a format replaces it.
    Fresh,
    /// That it is complete: `format=(no,complete)`.
    Complete,
}

/// Keys of the files of a tree: those of one file after those of the other.
#[derive(Debug)]
pub(crate) struct FileMap {
    pub map: Map,
    block: u64,
    /// First block of each file, and the end.
    starts: Vec<u64>,
}

impl FileMap {
    fn new(tree: &Tree, rules: Validate) -> Option<FileMap> {
        let mut starts = vec![0];
        for file in 0..tree.file_count() {
            starts.push(starts[file as usize] + tree.target(file).div_ceil(rules.block));
        }
        let map = Map::new(rules, starts[starts.len() - 1], &tree.fsd.name)?.of_tree();
        Some(FileMap { map, block: rules.block, starts })
    }

    /// Index of the first block of a file, and how many it has.
    pub(crate) fn blocks(&self, file: u64) -> (u64, u64) {
        let at = file as usize;
        (self.starts[at], self.starts[at + 1] - self.starts[at])
    }

    /// The file of a block, and where in it the block lies.
    pub(crate) fn place(&self, block: u64) -> (u64, u64) {
        // Files without a block begin where the next one does.
        let file = self.starts.partition_point(|start| *start <= block).saturating_sub(1);
        (file as u64, (block - self.starts[file]) * self.block)
    }

    /// Index of the block of a file at `offset`.
    pub(crate) fn first(&self, file: u64, offset: u64) -> u64 {
        self.starts[file as usize] + offset / self.block
    }
}

/// A tree and its state.
#[derive(Debug)]
pub(crate) struct Tree {
    pub fsd: Fsd,
    pub root: PathBuf,
    directories: Vec<AtomicU8>,
    files: Vec<AtomicU64>,
    /// How many files exist.
    pub existing: AtomicU64,
    /// Round robin of `fileselect=sequential`.
    pub next: AtomicU64,
    /// The same for files that are to be made, so that makers and users do not skip for each other.
    pub next_absent: AtomicU64,
    /// The same for directories.
    pub next_directory: AtomicU64,
    /// Files that may be chosen: all of this host, or as many of them as the working set holds.
    /// [`Tree::own`] says which.
    pub usable: u64,
    pub key: u64,
    /// Keys of all files, if data is validated.
    pub map: Option<Arc<FileMap>>,
    /// The anchor was made by us, and nobody was told yet.
    pub created_anchor: AtomicBool,
}

impl Tree {
    /// Makes the anchor if need be and finds out what exists below it.
    pub(crate) fn open(fsd: &Fsd, create_parents: bool, known: Known) -> Result<Tree, Error> {
        let root = PathBuf::from(&fsd.anchor);
        let refused = |e: std::io::Error| Error::Anchor(fsd.anchor.clone(), crate::shared::errno_text(&e));
        let mut created_anchor = false;
        if !root.is_dir() {
            let made = if create_parents { fs::create_dir_all(&root) } else { fs::create_dir(&root) };
            // Another host that shares it may have been quicker.
            created_anchor = match made {
                Err(_) if fsd.share.is_some() && root.is_dir() => false,
                made => made.map(|()| true).map_err(refused)?,
            };
        }
        let share = fsd.share.unwrap_or((0, 1));
        let mut count = fsd.file_count();
        if let Some(limit) = fsd.totalsize {
            count = prefix(fsd, count, limit);
        }
        let usable = fsd.workingset.map_or(count, |limit| prefix(fsd, count, limit).max(1).min(count));
        let tree = Tree {
            fsd: fsd.clone(),
            root,
            directories: (0..fsd.directories()).map(|_| AtomicU8::new(ABSENT)).collect(),
            files: (0..count).map(|_| AtomicU64::new(0)).collect(),
            existing: AtomicU64::new(0),
            next: AtomicU64::new(0),
            next_absent: AtomicU64::new(0),
            next_directory: AtomicU64::new(0),
            usable: owned(usable, share),
            key: fsd.anchor.bytes().fold(1, |key, byte| mix(key, u64::from(byte))),
            map: None,
            created_anchor: AtomicBool::new(created_anchor),
        };
        match known {
            Known::Complete => tree.believe(),
            _ if created_anchor => {}
            _ => tree.load(known)?,
        }
        Ok(tree)
    }

    /// Takes every directory and every file for there, and of its full length.
    fn believe(&self) {
        (0..self.directory_count()).for_each(|index| self.set_directory(index, true));
        (0..self.own_files())
            .map(|at| self.own(at))
            .for_each(|index| self.set(index, Some(self.target(index))));
    }

    fn load(&self, how: Known) -> Result<(), Error> {
        let fresh = how == Known::Fresh;
        let text = fs::read_to_string(self.root.join(CONTROL)).unwrap_or_default();
        let known = parse_control(&text);
        if let (Some((structure, _, _)), false) = (&known, fresh) {
            let wanted = self.structure();
            if *structure != wanted {
                return Err(Error::Structure(self.fsd.anchor.clone(), structure.clone(), wanted));
            }
        }
        if let (Some((_, directories, lengths)), true) =
            (&known, self.files.len() as u64 > LOOK_MAX && how == Known::Checked)
            && self.fsd.share.is_none()
            && directories.len() == self.directories.len()
            && lengths.len() == self.files.len()
        {
            (0..).zip(directories).for_each(|(index, exists)| self.set_directory(index, *exists));
            for (index, length) in lengths.iter().enumerate() {
                if let Some(length) = length {
                    self.set(index as u64, Some(length.unwrap_or_else(|| self.target(index as u64))));
                }
            }
            return Ok(());
        }
        for index in 0..self.directories.len() as u64 {
            self.set_directory(index, self.directory(index).is_dir());
        }
        for index in (0..self.own_files()).map(|at| self.own(at)) {
            if !self.holder_exists(index) {
                continue;
            }
            if let Ok(meta) = fs::symlink_metadata(self.file(index)) {
                self.set(index, meta.is_file().then_some(meta.len()));
            }
        }
        Ok(())
    }

    /// Writes the control file; a failure is no failure of the run, since it can be looked up
    /// again.
    pub(crate) fn save(&self) {
        // A host that shares a tree knows only its own files.
        if self.fsd.share.is_some() {
            return;
        }
        let mut text = format!("{CONTROL_TITLE}\n{}\n", self.structure());
        text += "directories=";
        text.extend(self.directories.iter().map(|d| if d.load(Relaxed) == PRESENT { 'y' } else { '.' }));
        text += "\nfiles=";
        for (index, state) in self.files.iter().enumerate() {
            let state = state.load(Relaxed);
            match (state & EXISTS != 0, state & LENGTH) {
                (false, _) => text.push('.'),
                (true, length) if length == self.target(index as u64) => text.push('f'),
                (true, length) => text += &format!("({length})"),
            }
        }
        text.push('\n');
        text += &format!("checksum={:016x}\n", checksum(&text));
        let _ = fs::write(self.root.join(CONTROL), text);
    }

    fn structure(&self) -> String {
        let sizes: Vec<String> =
            self.fsd.sizes.iter().map(|(size, percent)| format!("{size},{percent}")).collect();
        let spread = if self.fsd.spread == Spread::Bottom { "bottom" } else { "all" };
        let mask =
            self.fsd.mask.as_ref().map_or(String::new(), |(file, dir)| format!(" mask=({file},{dir})"));
        format!(
            "depth={} width={} files={} distribution={spread} sizes={}{mask}",
            self.fsd.depth,
            self.fsd.width,
            self.fsd.files,
            sizes.join(",")
        )
    }

    pub(crate) fn file_count(&self) -> u64 {
        self.files.len() as u64
    }

    /// How many files are this host's.
    pub(crate) fn own_files(&self) -> u64 {
        owned(self.file_count(), self.fsd.share.unwrap_or((0, 1)))
    }

    /// The file that is the `at`th of this host's.
    pub(crate) fn own(&self, at: u64) -> u64 {
        let (first, step) = self.fsd.share.unwrap_or((0, 1));
        first + at * step
    }

    pub(crate) fn directory_count(&self) -> u64 {
        self.directories.len() as u64
    }

    /// Index of the first directory of a level (from 0) and how many it has.
    pub(crate) fn level(&self, level: u32) -> (u64, u64) {
        let width = u64::from(self.fsd.width);
        ((1..=level).map(|l| width.pow(l)).sum(), width.pow(level + 1))
    }

    fn level_of(&self, directory: u64) -> (u32, u64) {
        let mut level = 0;
        loop {
            let (first, count) = self.level(level);
            if directory < first + count || level + 1 >= self.fsd.depth {
                return (level, directory - first);
            }
            level += 1;
        }
    }

    /// The directory that holds this one; `None` below the anchor.
    pub(crate) fn parent(&self, directory: u64) -> Option<u64> {
        let (level, number) = self.level_of(directory);
        let above = level.checked_sub(1)?;
        let (first, count) = self.level(above);
        Some(first + number % count)
    }

    /// Path of a directory.
    pub(crate) fn directory(&self, directory: u64) -> PathBuf {
        let (level, mut number) = self.level_of(directory);
        let width = u64::from(self.fsd.width);
        let mut path = self.root.clone();
        for at in 0..=level {
            path.push(self.directory_name(u64::from(at) + 1, number % width + 1));
            number /= width;
        }
        path
    }

    /// The directory that holds a file; `None` for the anchor itself, with `depth=0`.
    fn holder(&self, file: u64) -> Option<u64> {
        let holder = file / self.fsd.files.max(1);
        let lowest = self.fsd.depth.checked_sub(1)?;
        Some(match self.fsd.spread {
            Spread::Bottom => self.level(lowest).0 + holder,
            Spread::All => holder,
        })
    }

    /// Path of the directory that holds a file.
    pub(crate) fn holder_path(&self, file: u64) -> PathBuf {
        self.holder(file).map_or_else(|| self.root.clone(), |directory| self.directory(directory))
    }

    /// Whether it exists.
    pub(crate) fn holder_exists(&self, file: u64) -> bool {
        self.holder(file).is_none_or(|directory| self.directory_exists(directory))
    }

    /// Path of a file.
    pub(crate) fn file(&self, file: u64) -> PathBuf {
        self.holder_path(file).join(match &self.fsd.mask {
            None => format!("vdb_f{file:04}.file"),
            Some((mask, _)) => masked(mask, &[file]),
        })
    }

    fn directory_name(&self, level: u64, number: u64) -> String {
        match &self.fsd.mask {
            None => format!("vdb.{level}_{number}.dir"),
            Some((_, mask)) => masked(mask, &[level, number]),
        }
    }

    /// Whether a name is one that a format gives.
    fn is_ours(&self, name: &str, directory: bool) -> bool {
        match (&self.fsd.mask, directory) {
            (None, true) => name.starts_with("vdb.") && name.ends_with(".dir"),
            (None, false) => name.starts_with("vdb_f") && name.ends_with(".file"),
            (Some((_, mask)), true) | (Some((mask, _)), false) => fits_mask(mask, name),
        }
    }

    /// Length this file shall have.
    pub(crate) fn target(&self, file: u64) -> u64 {
        target(&self.fsd, file)
    }

    pub(crate) fn directory_exists(&self, directory: u64) -> bool {
        self.directories[directory as usize].load(Relaxed) == PRESENT
    }

    /// Makes the caller the one who makes (`exists` false) or removes a directory. The caller must
    /// report the result with [`Tree::set_directory`]; until then the directory neither exists nor
    /// is missing for others.
    pub(crate) fn claim_directory(&self, directory: u64, exists: bool) -> bool {
        let from = if exists { PRESENT } else { ABSENT };
        self.directories[directory as usize].compare_exchange(from, CHANGING, Relaxed, Relaxed).is_ok()
    }

    pub(crate) fn set_directory(&self, directory: u64, exists: bool) {
        self.directories[directory as usize].store(if exists { PRESENT } else { ABSENT }, Relaxed);
    }

    /// Whether all directories are there (or, with `exists` false, all are gone).
    pub(crate) fn all_directories(&self, exists: bool) -> bool {
        let wanted = if exists { PRESENT } else { ABSENT };
        self.directories.iter().all(|d| d.load(Relaxed) == wanted)
    }

    /// Length, if it exists.
    pub(crate) fn state(&self, file: u64) -> Option<u64> {
        let state = self.files[file as usize].load(Relaxed);
        (state & EXISTS != 0).then_some(state & LENGTH)
    }

    /// Takes a file into use. `wanted`: whether it must exist. `Err(true)`: somebody else uses it.
    pub(crate) fn take(&self, file: u64, wanted: bool) -> Result<u64, bool> {
        let cell = &self.files[file as usize];
        let state = cell.load(Relaxed);
        if (state & EXISTS != 0) != wanted {
            return Err(false);
        }
        if state & IN_USE != 0 || cell.compare_exchange(state, state | IN_USE, Relaxed, Relaxed).is_err() {
            return Err(true);
        }
        Ok(state & LENGTH)
    }

    /// Before a run: data of another ratio is forgotten.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub(crate) fn begin(&self, ratio: f64) -> std::io::Result<()> {
        self.map.as_ref().map_or(Ok(()), |keys| keys.map.begin(ratio))
    }

    /// The contents of a file are gone, or not ours.
    pub(crate) fn forget(&self, file: u64) {
        if let Some(keys) = &self.map {
            let (first, count) = keys.blocks(file);
            keys.map.forget(first, count);
        }
    }

    /// To be called before what a file holds is destroyed: nobody expects it any more, not even
    /// after a crash. False if that cannot be written down, which ends the run.
    pub(crate) fn gone(&self, file: u64, shared: &Shared<'_>) -> bool {
        self.map.as_ref().is_none_or(|keys| {
            let (first, count) = keys.blocks(file);
            keys.map.gone(first, count, shared)
        })
    }

    /// [`Tree::gone`] for all files at once.
    pub(crate) fn all_gone(&self, shared: &Shared<'_>) -> bool {
        self.map.as_ref().is_none_or(|keys| keys.map.gone(0, keys.map.blocks(), shared))
    }

    /// Two trees of which this is true have the same files with the same blocks.
    fn is_shaped_like(&self, other: &Tree) -> bool {
        self.fsd.name == other.fsd.name
            && self.fsd.share == other.fsd.share
            && self.file_count() == other.file_count()
            && self.structure() == other.structure()
    }

    /// Stands for anchor and structure: keys of one tree say nothing about another.
    pub(crate) fn identity(&self) -> u64 {
        mix(self.key, checksum(&self.structure()))
    }

    /// Gives a file back as it was.
    pub(crate) fn release(&self, file: u64) {
        self.files[file as usize].fetch_and(!IN_USE, Relaxed);
    }

    /// Gives a file back with a new state.
    pub(crate) fn set(&self, file: u64, length: Option<u64>) {
        if length.unwrap_or(0) == 0 {
            self.forget(file);
        }
        let state = length.map_or(0, |length| EXISTS | length & LENGTH);
        let before = self.files[file as usize].swap(state, Relaxed);
        match (before & EXISTS != 0, length.is_some()) {
            (false, true) => {
                self.existing.fetch_add(1, Relaxed);
            }
            (true, false) => {
                self.existing.fetch_sub(1, Relaxed);
            }
            _ => {}
        }
    }

    /// Everything below the anchor that bears our names: files, then directories, deepest last.
    /// Links are not followed.
    pub(crate) fn remains(&self, ended: impl Fn() -> bool) -> std::io::Result<(Vec<PathBuf>, Vec<PathBuf>)> {
        let (mut files, mut directories) = (Vec::new(), Vec::new());
        let mut open = vec![self.root.clone()];
        while let Some(at) = open.pop().filter(|_| !ended()) {
            for entry in fs::read_dir(&at)? {
                let entry = entry?;
                let name = entry.file_name();
                let name = name.to_string_lossy();
                let kind = entry.file_type()?;
                if kind.is_dir() && self.is_ours(&name, true) {
                    directories.push(entry.path());
                    open.push(entry.path());
                } else if kind.is_file() && (name == CONTROL || self.is_ours(&name, false)) {
                    files.push(entry.path());
                }
            }
        }
        Ok((files, directories))
    }
}

/// A mask with its numbers in their places: `%d`, `%4d`, `%04d`.
fn masked(mask: &str, numbers: &[u64]) -> String {
    let (mut out, mut rest, mut numbers) = (String::new(), mask, numbers.iter());
    while let Some(at) = rest.find('%') {
        out += &rest[..at];
        let digits = rest[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        let spec = &rest[at + 1..at + 1 + digits];
        let width = spec.parse::<usize>().unwrap_or(0);
        let number = numbers.next().copied().unwrap_or(0);
        out += &if spec.starts_with('0') { format!("{number:0width$}") } else { format!("{number:width$}") };
        rest = rest.get(at + 2 + digits..).unwrap_or_default();
    }
    out + rest
}

/// Whether a name is the mask with some numbers.
fn fits_mask(mask: &str, name: &str) -> bool {
    let (mut mask, mut name) = (mask, name);
    while let Some(at) = mask.find('%') {
        let Some(after) = name.strip_prefix(&mask[..at]) else { return false };
        let digits = after.bytes().take_while(|b| b.is_ascii_digit() || *b == b' ').count();
        if digits == 0 {
            return false;
        }
        let spec = mask[at + 1..].bytes().take_while(u8::is_ascii_digit).count();
        (mask, name) = (mask.get(at + 2 + spec..).unwrap_or_default(), &after[digits..]);
    }
    mask == name
}

/// How many of the first `count` files belong to one share.
fn owned(count: u64, (first, step): (u64, u64)) -> u64 {
    count.saturating_sub(first).div_ceil(step.max(1))
}

/// How many files fit into `limit` bytes.
fn prefix(fsd: &Fsd, count: u64, limit: u64) -> u64 {
    let mut sum = 0u64;
    for file in 0..count {
        sum = sum.saturating_add(target(fsd, file));
        if sum > limit {
            return file;
        }
    }
    count
}

fn target(fsd: &Fsd, file: u64) -> u64 {
    match fsd.sizes.as_slice() {
        [(average, 0.0)] => return around(*average, file),
        [(size, _)] => return *size,
        _ => {}
    }
    let mut draw = (mix(file, 0x517e) >> 11) as f64 / (1u64 << 53) as f64 * 100.0;
    for (size, percent) in &fsd.sizes {
        if draw < *percent {
            return *size;
        }
        draw -= percent;
    }
    fsd.sizes.last().map_or(0, |(size, _)| *size)
}

/// A size around an average: uniform, symmetric, and a round number as vdbench's rules have it.
fn around(average: u64, file: u64) -> u64 {
    const K: u64 = 1 << 10;
    const M: u64 = 1 << 20;
    let step = match average {
        size if size > 10 * M => M,
        size if size > M => 100 * K,
        size if size > 100 * K => 10 * K,
        _ => K,
    };
    let middle = (average / step).max(1);
    (1 + crate::random::Random::new(&[file, 0x517e]).below(2 * middle - 1)) * step
}

fn checksum(text: &str) -> u64 {
    text.bytes().fold(0x5eed, |sum, byte| mix(sum, u64::from(byte)))
}

/// Structure, directories, files (existing; their length if not full). `None` if it is not ours or
/// not whole.
#[allow(clippy::type_complexity)]
fn parse_control(text: &str) -> Option<(String, Vec<bool>, Vec<Option<Option<u64>>>)> {
    let (body, sum) = text.rsplit_once("checksum=")?;
    if u64::from_str_radix(sum.trim(), 16).ok()? != checksum(body) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next()? != CONTROL_TITLE {
        return None;
    }
    let structure = lines.next()?.to_string();
    let directories = lines.next()?.strip_prefix("directories=")?.chars().map(|c| c == 'y').collect();
    let mut files = Vec::new();
    let mut rest = lines.next()?.strip_prefix("files=")?;
    while let Some(first) = rest.chars().next() {
        match first {
            'f' => files.push(Some(None)),
            '(' => {
                let (length, _) = rest[1..].split_once(')')?;
                files.push(Some(Some(length.parse().ok()?)));
                rest = &rest[length.len() + 1..];
            }
            _ => files.push(None),
        }
        rest = &rest[rest.chars().next().map_or(0, char::len_utf8)..];
    }
    Some((structure, directories, files))
}

/// Trees of earlier runs of the same file: what they know is kept.
pub(crate) struct Trees {
    known: HashMap<String, Arc<Tree>>,
    /// Whether data is validated, and how.
    validate: Option<Validate>,
}

impl Trees {
    /// None is known yet.
    pub(crate) fn new(validate: Option<Validate>) -> Trees {
        Trees { known: HashMap::new(), validate }
    }

    /// Keys of all trees.
    pub(crate) fn maps(&self) -> impl Iterator<Item = &Map> {
        self.known.values().filter_map(|tree| tree.map.as_ref()).map(|keys| &keys.map)
    }

    /// The journals begin again with all that is known.
    ///
    /// # Errors
    /// The sentence about the one that cannot be written.
    pub(crate) fn checkpoint(&self) -> Result<(), String> {
        for tree in self.known.values() {
            let done = tree.map.as_ref().map_or(Ok(()), |keys| keys.map.checkpoint());
            done.map_err(|error| {
                format!("the journal of fsd={} cannot be written: {error}.", tree.fsd.name)
            })?;
        }
        Ok(())
    }

    /// The tree of this fsd, known or looked up. `journal` gives the keys of a tree that is new a
    /// journal.
    pub(crate) fn open(
        &mut self,
        fsd: &Fsd,
        parents: bool,
        known: Known,
        journal: &mut dyn FnMut(&Tree, &mut FileMap) -> Result<(), String>,
    ) -> Result<Arc<Tree>, Error> {
        let before = self.known.get(&fsd.anchor).filter(|tree| tree.root.is_dir());
        if let Some(tree) = before.filter(|tree| tree.fsd == *fsd) {
            return Ok(tree.clone());
        }
        let mut tree = Tree::open(fsd, parents, known)?;
        if let Some(rules) = self.validate {
            let kept =
                before.filter(|before| before.is_shaped_like(&tree)).and_then(|before| before.map.clone());
            tree.map = match kept {
                Some(keys) => Some(keys),
                None => {
                    let none = || Error::Validate(fsd.anchor.clone());
                    let mut keys = FileMap::new(&tree, rules).ok_or_else(none)?;
                    journal(&tree, &mut keys).map_err(|why| Error::Journal(fsd.name.clone(), why))?;
                    Some(Arc::new(keys))
                }
            };
        }
        let tree = Arc::new(tree);
        self.known.insert(fsd.anchor.clone(), tree.clone());
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fsd(text: &str) -> Fsd {
        let text = format!("fsd=fsd1,{text}\nfwd=fwd1,fsd=fsd1\nrd=rd1,fwd=fwd1,fwdrate=max\n");
        steadfast_lab_params::parse_text("t", &text).unwrap().fsds.remove(0)
    }

    #[test]
    fn sizes_around_an_average_are_round_and_have_it() {
        for (average, step) in
            [(50 << 10, 1u64 << 10), (512 << 10, 10 << 10), (5 << 20, 100 << 10), (64 << 20, 1 << 20)]
        {
            let sizes: Vec<u64> = (0..10_000).map(|file| around(average, file)).collect();
            assert!(sizes.iter().all(|size| *size > 0 && size.is_multiple_of(step) && *size < 2 * average));
            let mean = sizes.iter().sum::<u64>() as f64 / 10_000.0;
            assert!((mean / average as f64 - 1.0).abs() < 0.03, "{average}: {mean}");
        }
    }

    #[test]
    fn files_are_numbered_over_the_anchor_with_the_first_level_running_fastest() {
        let dir = tempfile::tempdir().unwrap();
        let anchor = dir.path().join("a");
        let tree = Tree::open(
            &fsd(&format!("anchor={},depth=2,width=2,files=2", anchor.display())),
            false,
            Known::Checked,
        )
        .unwrap();
        let path = |file| tree.file(file).strip_prefix(&anchor).unwrap().display().to_string();
        assert_eq!(path(0), "vdb.1_1.dir/vdb.2_1.dir/vdb_f0000.file");
        assert_eq!(path(2), "vdb.1_2.dir/vdb.2_1.dir/vdb_f0002.file");
        assert_eq!(path(5), "vdb.1_1.dir/vdb.2_2.dir/vdb_f0005.file");
        assert_eq!(path(7), "vdb.1_2.dir/vdb.2_2.dir/vdb_f0007.file");
        assert_eq!((tree.directory_count(), tree.file_count()), (6, 8));
        for directory in 2..6 {
            assert_eq!(
                tree.directory(directory).parent().unwrap(),
                tree.directory(tree.parent(directory).unwrap())
            );
        }
        assert!(tree.created_anchor.load(Relaxed));
    }

    #[test]
    fn the_control_file_remembers_and_another_structure_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let anchor = dir.path().join("a");
        let here = |rest: &str| fsd(&format!("anchor={},{rest}", anchor.display()));
        let tree = Tree::open(&here("files=3,size=1k"), false, Known::Checked).unwrap();
        tree.set(0, Some(1024));
        tree.set(2, Some(77));
        tree.save();
        let text = fs::read_to_string(anchor.join(CONTROL)).unwrap();
        let (structure, directories, files) = parse_control(&text).unwrap();
        assert_eq!((structure, directories), (tree.structure(), vec![false]));
        assert_eq!(files, [Some(None), None, Some(Some(77))]);
        assert!(parse_control(&text.replace('f', "g")).is_none());
        assert!(matches!(
            Tree::open(&here("files=4,size=1k"), false, Known::Checked),
            Err(Error::Structure(..))
        ));
        assert!(Tree::open(&here("files=4,size=1k"), false, Known::Fresh).is_ok());
    }

    #[test]
    fn any_control_file_is_read_or_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let anchor = dir.path().join("a");
        let fsd = fsd(&format!("anchor={},depth=2,width=2,files=9,size=1k", anchor.display()));
        let tree = Tree::open(&fsd, false, Known::Checked).unwrap();
        tree.set(3, Some(500));
        tree.save();
        let whole = fs::read_to_string(anchor.join(CONTROL)).unwrap();
        let mut random = crate::random::Random::new(&[3]);
        for _ in 0..2_000 {
            let mut text: Vec<char> = whole.chars().collect();
            let at = random.below(text.len() as u64) as usize;
            match random.below(3) {
                0 => text.truncate(at),
                1 => text[at] = ['(', ')', 'f', '9', '\u{e9}', '\n'][random.below(6) as usize],
                _ => text.insert(at, '('),
            }
            // With a checksum that fits, as an attacker would write it.
            let text: String = text.into_iter().collect();
            let body = text.split("checksum=").next().unwrap_or_default();
            let _ = parse_control(&format!("{body}checksum={:016x}\n", checksum(body)));
            let _ = parse_control(&text);
        }
        fs::write(anchor.join(CONTROL), [0xff, 0xfe, b'x']).unwrap();
        assert!(Tree::open(&fsd, false, Known::Checked).is_ok(), "a foreign control file is passed over");
    }

    #[test]
    fn an_anchor_without_its_parent_is_refused_unless_anchors_may_be_made() {
        let dir = tempfile::tempdir().unwrap();
        let fsd = fsd(&format!("anchor={}/no/such/dir", dir.path().display()));
        let error = Tree::open(&fsd, false, Known::Checked).unwrap_err().to_string();
        assert!(error.starts_with(&format!("Unable to create anchor directory: {}", fsd.anchor)), "{error}");
        assert!(Tree::open(&fsd, true, Known::Checked).is_ok());
    }
}
