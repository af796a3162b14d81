//! FSD and FWD: operations on a tree of files, and the format that makes the tree.
//!
//! A *group* is one operation of one fwd on one fsd, with threads of its own. A thread that reads
//! or writes takes a file into use, opens it, does operations until the file (or `stopafter=`) is
//! done, closes it and chooses again. Opens and closes have their own columns and count as
//! requested only where they are the operation asked for. Response times span the call alone:
//! unlike vdbench's, those of writes do not contain making the data.

use crate::anchor::{FileMap, Tree};
use crate::event::Meet;
use crate::file_calls::{self, open_flags};
use crate::pattern::Pattern;
use crate::random::{Random, mix};
use crate::rate::{Gate, Schedule, sleep_until};
use crate::raw::{self, transfer};
use crate::shared::{Buffer, Cells, Count, INCORRECT_SIZE, Shared, Slot, errno_text};
use crate::validate::Transfer;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use steadfast_lab_params::{
    FileFilter, FileIo, FileSelect, Format, FormatTuning, Fwd, OpenFlags, Operation, StopAfter,
};

/// Sleep of a thread that found every file in use.
const BUSY_NAP: Duration = Duration::from_micros(200);
/// So many busy files in a row end the run, as in vdbench.
const BUSY_MAX: u32 = 10_000;

/// One operation of one fwd on one fsd.
pub(crate) struct Group {
    pub fwd: Fwd,
    pub workload: usize,
    pub storage: usize,
    pub operation: Operation,
    pub tree: Arc<Tree>,
    pub target: Option<Arc<Tree>>,
    pub flags: OpenFlags,
    pub threads: u32,
    pub schedule: Option<Schedule>,
    /// Index in the gate.
    pub lane: usize,
    /// Another group of this run makes what this one may find missing.
    pub supplied: bool,
    /// Where `fileselect=seqnz` begins.
    pub first: u64,
    /// Round of `fileselect=once`.
    pub once: AtomicU64,
    pub live: AtomicUsize,
    /// The message about missing files is said once.
    pub told: AtomicBool,
}

/// Slots of a thread of this group, in the order of [`Operation::ALL`].
pub(crate) fn slots(workload: usize, storage: usize, requested: impl Fn(Operation) -> bool) -> Vec<Slot> {
    Operation::ALL
        .iter()
        .map(|o| Slot { storage, workload, operation: *o, requested: requested(*o) })
        .collect()
}

impl Group {
    /// Operations that this group's threads may count, and those that were asked for.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        let mixed = self.fwd.rdpct.is_some();
        slots(self.workload, self.storage, |o| {
            o == self.operation || (mixed && matches!(o, Operation::Read | Operation::Write))
        })
    }
}

/// Tools of one thread.
struct Hand<'a, 'b> {
    shared: &'a Shared<'b>,
    cells: &'a Cells,
    pattern: &'a Pattern,
    random: Random,
    buffer: Buffer,
    generation: u64,
    /// How late the next operation that was asked for begins, where response times begin at the
    /// arrival.
    late_ns: u64,
}

impl Hand<'_, '_> {
    #[inline]
    fn record(&self, operation: Operation, ns: u64, bytes: u64) {
        self.cells.slots[operation as usize].1.record(ns, bytes, self.shared.interval.load(Relaxed));
    }

    /// Times a call that moves no data; its failure ends the run.
    fn timed<T>(
        &self,
        operation: Operation,
        path: &Path,
        call: impl FnOnce() -> std::io::Result<T>,
    ) -> Option<T> {
        let before = Instant::now();
        let result = call();
        let ns = before.elapsed().as_nanos() as u64;
        match result {
            Ok(value) => {
                self.record(operation, ns, 0);
                Some(value)
            }
            Err(error) => {
                let text = errno_text(&error);
                let hint = if text.starts_with("ENOSPC") {
                    "; make room there, or ask for fewer or smaller files"
                } else {
                    ""
                };
                self.shared.fail(format!(
                    "{} of '{}' failed: {text}{hint}.",
                    operation.name(),
                    path.display()
                ));
                None
            }
        }
    }

    /// One read or write of `length` bytes; whether it did all.
    #[inline]
    fn transfer(&mut self, tree: &Tree, at: &OpenFile, write: bool, offset: u64, length: u64) -> bool {
        if let Some(keys) = &tree.map {
            return self.validated(tree, keys, at, write, offset, length);
        }
        let bytes = self.buffer.bytes(length as usize);
        if write {
            self.generation += 1;
            self.pattern.fill(bytes, mix(tree.key, at.index), offset, self.generation);
        }
        let before = Instant::now();
        let done = if write {
            file_calls::write(&at.file, bytes, offset, at.fsync_each)
        } else {
            at.file.read_at(bytes, offset)
        };
        let ns = before.elapsed().as_nanos() as u64 + std::mem::take(&mut self.late_ns);
        let operation = if write { Operation::Write } else { Operation::Read };
        match done {
            Ok(count) if count as u64 == length => {
                self.record(operation, ns, length);
                return true;
            }
            Ok(_) => {
                self.shared.io_error(operation, &tree.file(at.index), offset, length, INCORRECT_SIZE.into())
            }
            Err(error) => {
                self.shared.io_error(operation, &tree.file(at.index), offset, length, errno_text(&error))
            }
        }
        false
    }

    /// One read or write under validation: apart, so that the others do not carry its code.
    #[cold]
    #[inline(never)]
    fn validated(
        &mut self,
        tree: &Tree,
        keys: &FileMap,
        at: &OpenFile,
        write: bool,
        offset: u64,
        length: u64,
    ) -> bool {
        let bytes = self.buffer.bytes(length as usize);
        let (cells, shared) = (self.cells, self.shared);
        let transfer = Transfer {
            map: &keys.map,
            first: keys.first(at.index, offset),
            lba: offset,
            file_key: mix(tree.key, at.index),
            file: &at.file,
            path: &tree.file(at.index),
            fsync_each: at.fsync_each,
            pattern: self.pattern,
            shared,
        };
        transfer.run(write, bytes, &mut |operation, ns| {
            let cell = &cells.slots[operation as usize].1;
            cell.record(ns, length, shared.interval.load(Relaxed));
        })
    }

    fn close(&self, tree: &Tree, at: OpenFile, fsync: bool) {
        let before = Instant::now();
        if at.write
            && fsync
            && let Err(error) = at.file.sync_all()
        {
            self.shared.io_error(Operation::Close, &tree.file(at.index), 0, 0, errno_text(&error));
        }
        drop(at.file);
        self.record(Operation::Close, before.elapsed().as_nanos() as u64, 0);
        self.shared.count(Count::FileCloses);
    }
}

/// A file that this thread has in use.
struct OpenFile {
    file: File,
    index: u64,
    write: bool,
    fsync_each: bool,
    /// Length when it was opened (reading) or wanted (writing).
    length: u64,
    position: u64,
    /// End of the furthest byte written.
    reached: u64,
    /// It began empty.
    fresh: bool,
    /// Bytes still to be moved before it is left.
    left: u64,
}

impl Group {
    /// One thread's whole life in a run.
    pub(crate) fn work(
        &self,
        shared: &Shared<'_>,
        gate: Option<&Gate>,
        cells: &Cells,
        pattern: &Pattern,
        key: u64,
    ) {
        let mut hand = Hand {
            shared,
            cells,
            pattern,
            random: Random::new(&[key]),
            buffer: Buffer::new(self.fwd.xfersize.largest() as usize),
            generation: key << 40,
            late_ns: 0,
        };
        match self.operation {
            Operation::Read | Operation::Write => self.read_or_write(&mut hand, gate),
            _ => while self.admitted(&mut hand, gate) && self.one(&mut hand) {},
        }
        if self.live.fetch_sub(1, Relaxed) == 1
            && let Some(gate) = gate
        {
            gate.leave(self.lane);
        }
    }

    /// Waits for this thread's next turn; false at the end of the run.
    #[inline]
    fn admitted(&self, hand: &mut Hand<'_, '_>, gate: Option<&Gate>) -> bool {
        let shared = hand.shared;
        if shared.ended() {
            return false;
        }
        if let Some(schedule) = &self.schedule {
            let due = schedule.take(&mut hand.random, shared.now_ns());
            let admitted = sleep_until(shared.start, due, || shared.ended());
            if shared.from_arrival {
                hand.late_ns = shared.now_ns().saturating_sub(due);
            }
            return admitted;
        }
        if let Some(gate) = gate {
            while !gate.admit(self.lane) {
                if shared.ended() {
                    return false;
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        true
    }

    fn read_or_write(&self, hand: &mut Hand<'_, '_>, gate: Option<&Gate>) {
        let write =
            self.operation == Operation::Write || self.fwd.rdpct.is_some_and(|percent| percent < 100.0);
        let shared_use = self.tree.fsd.shared || matches!(self.fwd.fileio, FileIo::Random { shared: true });
        let mut resume: Option<(u64, u64)> = None;
        let mut open: Option<OpenFile> = None;
        while self.admitted(hand, gate) {
            if open.is_none() {
                let Some(file) = self.open_next(hand, write, shared_use, resume.take()) else { break };
                open = Some(file);
            }
            let Some(file) = open.as_mut() else { break };
            let whole = match self.fwd.fileio {
                FileIo::Random { .. } => self.random_step(hand, file),
                FileIo::Sequential { .. } => self.sequential_step(hand, file),
            };
            if (!whole || file.left == 0)
                && let Some(file) = open.take()
            {
                let partly = whole && !file.fresh && file.position > 0 && file.position < file.length;
                if partly
                    && self.fwd.stopafter.is_some()
                    && matches!(self.fwd.fileio, FileIo::Sequential { .. })
                {
                    resume = Some((file.index, file.position));
                }
                self.leave(hand, file, shared_use);
            }
        }
        if let Some(file) = open {
            self.leave(hand, file, shared_use);
        }
    }

    fn leave(&self, hand: &mut Hand<'_, '_>, file: OpenFile, shared_use: bool) {
        let (index, write, reached, fresh) = (file.index, file.write, file.reached, file.fresh);
        hand.close(&self.tree, file, self.flags.fsync);
        if write {
            let before = if fresh { 0 } else { self.tree.state(index).unwrap_or(0) };
            let length = before.max(reached);
            self.tree.set(index, Some(length));
        } else if !shared_use {
            self.tree.release(index);
        }
    }

    fn sequential_step(&self, hand: &mut Hand<'_, '_>, file: &mut OpenFile) -> bool {
        if self.anywhere() && file.position >= file.length {
            file.position = 0;
        }
        let rest = (file.length - file.position).min(if self.anywhere() && self.fwd.stopafter.is_none() {
            file.left
        } else {
            u64::MAX
        });
        let length = transfer(&self.fwd.xfersize, &mut hand.random).min(rest);
        let offset = file.position;
        // `forrdpct=`: reads and writes take turns at one position.
        let write = match self.fwd.rdpct {
            Some(percent) => !hand.random.hit(percent),
            None => file.write,
        };
        if length == 0 || !hand.transfer(&self.tree, file, write, offset, length) {
            return false;
        }
        file.position += length;
        file.reached = file.reached.max(if write { file.position } else { 0 });
        file.left = file.left.saturating_sub(length);
        if !self.anywhere() {
            file.left = file.left.min(file.length - file.position);
        }
        true
    }

    /// Sequential from a random place and round the end, until the whole file is done.
    fn anywhere(&self) -> bool {
        matches!(self.fwd.fileio, FileIo::Sequential { anywhere: true, .. })
    }

    #[inline]
    fn random_step(&self, hand: &mut Hand<'_, '_>, file: &mut OpenFile) -> bool {
        let xfer = transfer(&self.fwd.xfersize, &mut hand.random).max(1);
        let blocks = (file.length / xfer).max(1);
        let offset = hand.random.below(blocks) * xfer;
        let length = xfer.min(file.length - offset);
        let write = match self.fwd.rdpct {
            Some(percent) => !hand.random.hit(percent),
            None => file.write,
        };
        if length == 0 || !hand.transfer(&self.tree, file, write, offset, length) {
            return false;
        }
        file.reached = file.reached.max(if write { offset + length } else { 0 });
        file.left = file.left.saturating_sub(xfer);
        true
    }

    fn open_next(
        &self,
        hand: &mut Hand<'_, '_>,
        write: bool,
        shared_use: bool,
        resume: Option<(u64, u64)>,
    ) -> Option<OpenFile> {
        let again = resume.filter(|(index, _)| shared_use || self.tree.take(*index, true).is_ok());
        let index = match again {
            Some((index, _)) => index,
            None => self.choose(hand, true, shared_use)?,
        };
        let start = again.map_or(0, |(_, position)| position);
        let path = self.tree.file(index);
        let delete = matches!(self.fwd.fileio, FileIo::Sequential { delete: true, .. });
        if delete && write {
            if !self.tree.gone(index, hand.shared) {
                self.tree.release(index);
                return None;
            }
            hand.timed(Operation::Delete, &path, || fs::remove_file(&path))?;
            hand.shared.count(Count::FileDeletes);
        }
        let read_too = self.fwd.rdpct.is_some() || !write || self.tree.map.is_some();
        let opened = hand.timed(Operation::Open, &path, || {
            let mut options = OpenOptions::new();
            options.read(read_too).write(write).custom_flags(open_flags(self.flags));
            if write {
                options.create(true).truncate(false);
            }
            options.open(&path)
        });
        let Some(file) = opened else {
            self.tree.release(index);
            return None;
        };
        hand.shared.count(if write { Count::WriteOpens } else { Count::ReadOpens });
        let length = match (write, &self.tree.map) {
            (true, _) => self.tree.target(index),
            (false, None) => self.tree.state(index).unwrap_or(0),
            // Data appended by another process has no keys.
            (false, Some(_)) => self.tree.state(index).unwrap_or(0).min(self.tree.target(index)),
        };
        let left = match self.fwd.stopafter {
            None => length,
            Some(StopAfter::Count(count)) => count.saturating_mul(self.fwd.xfersize.largest()),
            Some(StopAfter::Percent(percent)) => (length as f64 * percent / 100.0) as u64,
        };
        let position = if self.anywhere() {
            let xfer = self.fwd.xfersize.largest().max(1);
            hand.random.below((length / xfer).max(1)) * xfer
        } else {
            start.min(length)
        };
        Some(OpenFile {
            file,
            index,
            write,
            fsync_each: self.flags.fsync_each,
            length,
            position,
            reached: 0,
            fresh: delete && write,
            left: left.max(1),
        })
    }

    /// Takes a file into use. `existing`: one that is there, or one that is not.
    fn choose(&self, hand: &mut Hand<'_, '_>, existing: bool, shared_use: bool) -> Option<u64> {
        let count = self.tree.usable;
        let (mut busy, mut missed) = (0u32, 0u64);
        loop {
            if hand.shared.ended() {
                return None;
            }
            let any = if existing {
                self.tree.existing.load(Relaxed) > 0
            } else {
                self.tree.existing.load(Relaxed) < count
            };
            if !any || count == 0 || missed > 4 * count + 1_000 {
                if self.supplied {
                    std::thread::sleep(BUSY_NAP);
                    missed = 0;
                    continue;
                }
                self.tell_nothing_left(hand, existing);
                return None;
            }
            let at = match self.fwd.select {
                FileSelect::Random => hand.random.below(count),
                FileSelect::Poisson(midpoint) => raw::poisson(&mut hand.random, count, midpoint),
                FileSelect::Sequential if !existing => self.tree.next_absent.fetch_add(1, Relaxed) % count,
                FileSelect::Sequential => self.tree.next.fetch_add(1, Relaxed) % count,
                FileSelect::SequentialFromAnywhere => {
                    let next = if existing { &self.tree.next } else { &self.tree.next_absent };
                    (self.first + next.fetch_add(1, Relaxed)) % count
                }
                FileSelect::Once => {
                    let index = self.once.fetch_add(1, Relaxed);
                    if index >= count {
                        return None;
                    }
                    index
                }
            };
            let index = self.tree.own(at);
            if !self.fits(index) {
                missed += 1;
                continue;
            }
            if shared_use && existing && self.tree.state(index).is_some() {
                return Some(index);
            }
            match self.tree.take(index, existing) {
                Ok(_) => return Some(index),
                Err(true) => {
                    hand.shared.count(Count::FileBusy);
                    busy += 1;
                    if busy >= BUSY_MAX {
                        let anchor = self.tree.root.display();
                        hand.shared.fail(format!(
                            "anchor={anchor}: {BUSY_MAX} files in a row were in use by other threads; use more files or fewer threads."
                        ));
                        return None;
                    }
                    std::thread::sleep(BUSY_NAP);
                }
                Err(false) => {
                    if existing {
                        hand.shared.count(Count::FileMustExist);
                    }
                    missed += 1;
                }
            }
        }
    }

    fn fits(&self, index: u64) -> bool {
        let state = self.tree.state(index);
        // Where nothing can be moved, a thread would open and close for ever.
        let nothing = match self.operation {
            Operation::Read => state == Some(0),
            Operation::Write => self.tree.target(index) == 0,
            _ => false,
        };
        if nothing {
            return false;
        }
        match self.fwd.filter {
            FileFilter::Any => true,
            FileFilter::Empty => state == Some(0),
            FileFilter::Full => state == Some(self.tree.target(index)),
            FileFilter::NotFull => state.is_some_and(|length| length < self.tree.target(index)),
        }
    }

    fn tell_nothing_left(&self, hand: &Hand<'_, '_>, existing: bool) {
        if self.told.swap(true, Relaxed) {
            return;
        }
        let (anchor, name) = (self.tree.root.display(), self.operation.name());
        let text = if existing {
            hand.shared.count(Count::FileMustExist);
            format!(
                "Anchor: {anchor}\noperation={name} finds no files, and no thread of this run creates any: its threads end. \
                 Write format=yes to create them."
            )
        } else {
            format!("Anchor: {anchor}\noperation={name} finds nothing left to create: its threads end.")
        };
        hand.shared.note(crate::shared::Note::Message(text));
    }

    /// One operation that is no read and no write; false when there is nothing left to do.
    fn one(&self, hand: &mut Hand<'_, '_>) -> bool {
        match self.operation {
            Operation::Mkdir => self.mkdir(hand),
            Operation::Rmdir => self.rmdir(hand),
            Operation::Create => self.create(hand),
            Operation::Delete => self.delete(hand),
            Operation::Copy | Operation::Move => self.copy_or_move(hand),
            operation => self.look(hand, operation),
        }
    }

    fn mkdir(&self, hand: &mut Hand<'_, '_>) -> bool {
        let count = self.tree.directory_count();
        let first = self.tree.next_directory.fetch_add(1, Relaxed);
        for at in 0..count {
            let index = (first + at) % count;
            let ready = self.tree.parent(index).is_none_or(|parent| self.tree.directory_exists(parent));
            if ready && self.tree.claim_directory(index, false) {
                let path = self.tree.directory(index);
                let done = hand.timed(Operation::Mkdir, &path, || fs::create_dir(&path)).is_some();
                self.tree.set_directory(index, done);
                hand.shared.count(Count::DirectoryCreates);
                return done;
            }
        }
        // A missing directory waits for its parent, which another thread is about to make.
        self.wait_for_others(hand, !self.tree.all_directories(true))
    }

    fn rmdir(&self, hand: &mut Hand<'_, '_>) -> bool {
        let count = self.tree.directory_count();
        let first = self.tree.next_directory.fetch_add(1, Relaxed);
        for at in 0..count {
            let index = count - 1 - (first + at) % count;
            if !self.tree.directory_exists(index) {
                continue;
            }
            let path = self.tree.directory(index);
            let empty = fs::read_dir(&path).is_ok_and(|mut entries| entries.next().is_none());
            if empty && self.tree.claim_directory(index, true) {
                let done = hand.timed(Operation::Rmdir, &path, || fs::remove_dir(&path)).is_some();
                self.tree.set_directory(index, !done);
                hand.shared.count(Count::DirectoryDeletes);
                return done;
            }
        }
        let files = self.tree.existing.load(Relaxed) > 0;
        self.wait_for_others(hand, !files && !self.tree.all_directories(false))
    }

    /// Nothing to do now. Whether it can change: by other groups, or (`soon`) by other threads of
    /// this one.
    fn wait_for_others(&self, hand: &Hand<'_, '_>, soon: bool) -> bool {
        std::thread::sleep(BUSY_NAP);
        (self.supplied || soon) && !hand.shared.ended()
    }

    fn create(&self, hand: &mut Hand<'_, '_>) -> bool {
        let Some(index) = self.choose(hand, false, false) else { return false };
        if !self.tree.holder_exists(index) {
            self.tree.release(index);
            if self.supplied {
                return self.wait_for_others(hand, true);
            }
            let path = self.tree.holder_path(index);
            hand.shared.fail(format!(
                "create: directory '{}' does not exist, and no thread creates it; write format=(yes) or add operation=mkdir.",
                path.display()
            ));
            return false;
        }
        let path = self.tree.file(index);
        let made = hand
            .timed(Operation::Create, &path, || OpenOptions::new().write(true).create_new(true).open(&path));
        self.tree.set(index, made.is_some().then_some(0));
        hand.shared.count(Count::FileCreates);
        made.is_some()
    }

    fn delete(&self, hand: &mut Hand<'_, '_>) -> bool {
        let Some(index) = self.choose(hand, true, false) else { return false };
        if !self.tree.gone(index, hand.shared) {
            return false;
        }
        let path = self.tree.file(index);
        let done = hand.timed(Operation::Delete, &path, || fs::remove_file(&path)).is_some();
        self.tree.set(index, None);
        hand.shared.count(Count::FileDeletes);
        done
    }

    /// getattr, setattr, access, open, close: nothing changes.
    fn look(&self, hand: &mut Hand<'_, '_>, operation: Operation) -> bool {
        let Some(index) = self.choose(hand, true, false) else { return false };
        let path = self.tree.file(index);
        let done = match operation {
            Operation::Getattr => hand.timed(operation, &path, || fs::symlink_metadata(&path)).is_some(),
            Operation::Setattr => {
                let mode = 0o600 | (hand.random.below(8) as u32) << 3;
                hand.timed(operation, &path, || fs::set_permissions(&path, fs::Permissions::from_mode(mode)))
                    .is_some()
            }
            Operation::Access => {
                let readable = rustix::fs::Access::READ_OK;
                hand.timed(operation, &path, || Ok(rustix::fs::access(&path, readable)?)).is_some()
            }
            _ => match hand.timed(Operation::Open, &path, || File::open(&path)) {
                Some(file) => {
                    hand.shared.count(Count::ReadOpens);
                    let at = OpenFile {
                        file,
                        index,
                        write: false,
                        fsync_each: false,
                        length: 0,
                        position: 0,
                        reached: 0,
                        fresh: false,
                        left: 0,
                    };
                    hand.close(&self.tree, at, false);
                    true
                }
                None => false,
            },
        };
        self.tree.release(index);
        done
    }

    fn copy_or_move(&self, hand: &mut Hand<'_, '_>) -> bool {
        let Some(target) = &self.target else { return false };
        let Some(index) = self.choose(hand, true, false) else { return false };
        let (own, step) = (target.own_files().max(1), self.tree.fsd.share.map_or(1, |(_, step)| step));
        let to_index = target.own(index / step % own);
        let (from, to) = (self.tree.file(index), target.file(to_index));
        let length = self.tree.state(index).unwrap_or(0);
        let moves = self.operation == Operation::Move;
        if !target.gone(to_index, hand.shared) || (moves && !self.tree.gone(index, hand.shared)) {
            return false;
        }
        let done = if self.operation == Operation::Copy {
            hand.shared.count(Count::FileCopies);
            hand.timed(Operation::Copy, &from, || fs::copy(&from, &to)).is_some()
        } else {
            hand.shared.count(Count::FileMoves);
            hand.timed(Operation::Move, &from, || fs::rename(&from, &to)).is_some()
        };
        if moves && done {
            self.tree.set(index, None);
        } else {
            self.tree.release(index);
        }
        if done {
            target.set(to_index, Some(length));
            target.forget(to_index);
        }
        done
    }
}

/// Files and directories of an earlier format.
pub(crate) type Remains = (Vec<PathBuf>, Vec<PathBuf>);

/// The format of one file system: delete, mkdir, create. All threads of it go through each step
/// together.
pub(crate) struct Formatter<'a> {
    pub storage: usize,
    /// Where the hosts meet that share the tree.
    pub meet: Option<&'a Meet<'a>>,
    pub tree: Arc<Tree>,
    pub format: Format,
    pub tuning: FormatTuning,
    pub flags: OpenFlags,
    /// Result of the first step.
    pub remains: Mutex<Arc<Remains>>,
    pub next: AtomicU64,
    pub arrived: AtomicUsize,
}

impl Formatter<'_> {
    /// Slots: writes are what a format is asked for.
    pub(crate) fn slots(&self) -> Vec<Slot> {
        slots(0, self.storage, |o| o == Operation::Write)
    }

    /// One thread's whole life in a format.
    pub(crate) fn work(&self, shared: &Shared<'_>, cells: &Cells, pattern: &Pattern, key: u64) {
        let mut hand = Hand {
            shared,
            cells,
            pattern,
            random: Random::new(&[key]),
            buffer: Buffer::new(self.tuning.xfersize as usize),
            generation: key << 40,
            late_ns: 0,
        };
        let anchor = self.tree.root.display().to_string();
        let mut step = 0;
        if !self.format.restart {
            // The first of the hosts that share a tree deletes what is there.
            let first = self.tree.fsd.share.is_none_or(|(at, _)| at == 0);
            if !self.together(&mut step, shared, || {
                if first {
                    self.look_for_remains(shared)
                }
                self.tree.all_gone(shared);
            }) {
                return;
            }
            let remains = self.remains.lock().map(|found| found.clone()).unwrap_or_default();
            let (files, directories) = &*remains;
            self.delete(&mut hand, files);
            if !self.together(&mut step, shared, || {
                for path in directories.iter().rev() {
                    if hand.timed(Operation::Rmdir, path, || fs::remove_dir(path)).is_some() {
                        shared.count(Count::DirectoryDeletes);
                    }
                }
                (0..self.tree.directory_count()).for_each(|d| self.tree.set_directory(d, false));
                (0..self.tree.file_count()).for_each(|f| self.tree.set(f, None));
                if first {
                    let _ = fs::remove_file(self.tree.root.join(crate::anchor::CONTROL));
                }
            }) {
                return;
            }
        }
        if self.format.clean {
            return;
        }
        for level in 0..self.tree.fsd.depth {
            let (first, count) = self.tree.level(level);
            while let Some(number) = self.claim(count, shared) {
                let (index, path) = (first + number, self.tree.directory(first + number));
                let others = self.tree.fsd.share.is_some_and(|(at, of)| number % of != at);
                if !others && self.tree.claim_directory(index, false) {
                    let done = hand.timed(Operation::Mkdir, &path, || fs::create_dir(&path)).is_some();
                    self.tree.set_directory(index, done);
                    if !done {
                        return;
                    }
                    shared.count(Count::DirectoryCreates);
                }
            }
            if !self.together(&mut step, shared, || {}) {
                return;
            }
            if self.meet.is_some() {
                // The others have made theirs.
                (first..first + count).for_each(|index| self.tree.set_directory(index, true));
            }
        }
        self.together(&mut step, shared, || {
            shared.note(crate::shared::Note::Message(format!("anchor={anchor} mkdir complete.")));
        });
        if self.format.directories {
            return;
        }
        while let Some(at) = self.claim(self.tree.own_files(), shared) {
            let index = self.tree.own(at);
            if self.tree.state(index) != Some(self.tree.target(index)) && !self.create(&mut hand, index) {
                break;
            }
        }
        self.together(&mut step, shared, || {
            self.tree.save();
            shared.note(crate::shared::Note::Message(format!("anchor={anchor} create complete.")));
        });
    }

    /// The next number below `count` of this step.
    fn claim(&self, count: u64, shared: &Shared<'_>) -> Option<u64> {
        if shared.ended() {
            return None;
        }
        let next = self.next.fetch_add(1, Relaxed);
        (next < count).then_some(next)
    }

    /// Waits for all threads; the last to arrive does `last` before anybody goes on. False at the
    /// end of the run.
    fn together(&self, step: &mut usize, shared: &Shared<'_>, last: impl FnOnce()) -> bool {
        let threads = self.tuning.threads as usize;
        *step += 1;
        // Twice per step: all have arrived; the last has done its work.
        let goal = *step * (threads + 1);
        if self.arrived.fetch_add(1, Relaxed) + 1 == goal - 1 {
            if !shared.ended() {
                last();
            }
            if let Some(meet) = self.meet {
                meet(&self.tree.fsd.name, *step, &|| shared.ended());
            }
            self.next.store(0, Relaxed);
            self.arrived.fetch_add(1, std::sync::atomic::Ordering::Release);
        }
        while self.arrived.load(std::sync::atomic::Ordering::Acquire) < goal {
            if shared.ended() {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        !shared.ended()
    }

    fn look_for_remains(&self, shared: &Shared<'_>) {
        match self.tree.remains(|| shared.ended()) {
            Ok(found) => {
                if let Ok(mut remains) = self.remains.lock() {
                    *remains = Arc::new(found);
                }
            }
            Err(error) => shared.fail(format!(
                "anchor={} cannot be read: {}.",
                self.tree.root.display(),
                errno_text(&error)
            )),
        }
    }

    fn delete(&self, hand: &mut Hand<'_, '_>, files: &[PathBuf]) {
        while let Some(at) = self.claim(files.len() as u64, hand.shared) {
            let path = &files[at as usize];
            if hand.timed(Operation::Delete, path, || fs::remove_file(path)).is_none() {
                return;
            }
            hand.shared.count(Count::FileDeletes);
        }
    }

    /// Opens, writes from start to end, closes. `Create` spans all three, as in vdbench.
    fn create(&self, hand: &mut Hand<'_, '_>, index: u64) -> bool {
        let path = self.tree.file(index);
        if !self.tree.gone(index, hand.shared) {
            return false;
        }
        let begun = Instant::now();
        let opened = hand.timed(Operation::Open, &path, || {
            let mut options = OpenOptions::new();
            options.read(self.tree.map.is_some());
            options.write(true).create(true).truncate(true).custom_flags(open_flags(self.flags)).open(&path)
        });
        let Some(file) = opened else { return false };
        hand.shared.count(Count::WriteOpens);
        hand.shared.count(Count::FileCreates);
        let length = self.tree.target(index);
        let mut at = OpenFile {
            file,
            index,
            write: true,
            fsync_each: self.flags.fsync_each,
            length,
            position: 0,
            reached: 0,
            fresh: true,
            left: length,
        };
        while at.position < length && !hand.shared.ended() {
            let (offset, count) = (at.position, self.tuning.xfersize.min(length - at.position));
            // A failed write is tried again, as in vdbench, until there were too many.
            if hand.transfer(&self.tree, &at, true, offset, count) {
                at.position += count;
            }
        }
        self.tree.set(index, Some(at.position));
        let whole = at.position == length;
        hand.close(&self.tree, at, self.flags.fsync);
        hand.record(Operation::Create, begun.elapsed().as_nanos() as u64, 0);
        whole
    }
}
