//! Sizes and times of files, told to a kernel that collects writes, where they changed behind its
//! back: by a network client, by a rollback, by a received stream.
//!
//! ## The problem
//! Such a kernel takes neither from any answer as long as it knows the file, because its own pages
//! may hold newer content. It can be told to forget pages and other attributes, but not these.
//!
//! ## The idea
//! It takes them from an answer to a change that it asks for itself. So the daemon truncates the
//! file through its own mount, and sets its time; the handler knows the thread, changes nothing,
//! and answers what is so.
//!
//! Where a client cuts a file that a local program may be writing, the kernel is asked for a
//! truncation first. While the handler has not answered, no page of the file changes and none is
//! written ([`StillFile`]). The client's cut is made then, and its size is the answer. So each
//! write of the program is before the cut, or behind it.
//!
//! A program that writes meanwhile must lose nothing. The kernel truncates under the lock of the
//! file, under which no write makes it longer; and where a file has another size than the one to
//! truncate to, it sends a time of modification along. So it is asked to truncate to the size that
//! it has: [`KnownFile::tell_size`](steadfast_fuse::KnownFile::tell_size) compares and exchanges.
//!
//! ## Invariants
//! [teller.1] Where the kernel may hold pages of a file they are handed over after its size was
//!      looked at and before it is told another one, and if its size has changed by then it is told
//!      nothing: so no page that made the file longer is cut off.
//! [teller.2] Nothing is held while the kernel is told: neither a lock of the mount nor a handler
//!      waits for it. Replies to network clients wait, for a limited time. Exception: the handler
//!      of a file that is kept still waits for the client's change, for a limited time.
//! [teller.3] A time that the kernel hands over while it is told one is that of a write that it
//!      collected. It is taken if it is later than ours.
//!
//! ## Limits
//! The time of the last change of all (`ctime`) is that of the telling. A file that is being
//! executed, or that a local program makes longer without a pause, is told when it changes next.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};
use steadfast_fuse::{Errno, HeldPages, SetAttr, SetTime};
use steadfast_posix::{FileSystem, S_IFMT, S_IFREG};

use crate::convert::{posix_time, time};
use crate::snapshots::SnapshotFolders;

/// Looks at one file, while programs write to it.
const LOOKS_MAX: u32 = 8;
/// The thread ends when it had nothing to tell for so long.
const REST: Duration = Duration::from_secs(2);
/// More of them are not asked for again.
const DOUBTFUL_MAX: usize = 1 << 10;
/// Before the kernel is asked again about a file that it was about to learn of.
const LOOKUP_TIME: Duration = Duration::from_millis(20);

/// Longest wait until the kernel keeps a file still, and then for the change of it.
const STILL_MAX: Duration = Duration::from_secs(1);

/// The content of a file as it can be told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Content {
    pub generation: u64,
    pub size: u64,
    pub mtime: steadfast_posix::Time,
    pub ctime: steadfast_posix::Time,
}

impl Content {
    /// None for one that is gone, or no regular file: then the kernel takes what it is answered.
    pub(crate) fn of(fs: &FileSystem, ino: u64) -> Option<Content> {
        let (attributes, generation) = (fs.getattr(ino).ok()?, fs.generation(ino).ok()?);
        let is_file = attributes.mode & S_IFMT == S_IFREG;
        let (size, mtime, ctime) = (attributes.size, attributes.mtime, attributes.ctime);
        is_file.then_some(Content { generation, size, mtime, ctime })
    }
}

/// Tells one mount's kernel.
#[derive(Default)]
pub(crate) struct Teller {
    /// Held while it is told.
    gate: Mutex<()>,
    /// The thread that tells; 0 if none does.
    thread: AtomicU32,
    /// The time that it tells.
    told: Mutex<Option<steadfast_posix::Time>>,
    /// The file that the kernel is asked to keep still.
    still: Mutex<Option<Arc<Still>>>,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Inodes to be told.
    waiting: BTreeSet<u64>,
    /// Inodes to be asked for again, at this moment.
    doubtful: BTreeSet<u64>,
    due: Option<Instant>,
    /// How often something was asked for, and how much of that is done.
    asked: u64,
    done: u64,
    has_thread: bool,
}

impl Queue {
    /// Takes those that are to be told now.
    fn take(&mut self, now: Instant) -> BTreeSet<u64> {
        let mut files = std::mem::take(&mut self.waiting);
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
            files.append(&mut self.doubtful);
        }
        files
    }
}

/// How far a file is that the kernel is asked to keep still.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Phase {
    /// The kernel is asked.
    #[default]
    Asked,
    /// It waits for an answer.
    Held,
    /// The answer is the size that was set.
    Set,
    /// The answer is a refusal: nothing was set, or that took too long.
    Refused,
}

/// A file that the kernel is asked to keep still.
#[derive(Debug, Default)]
struct Still {
    phase: Mutex<Phase>,
    changed: Condvar,
}

impl Still {
    /// Goes on to a phase, unless it is over.
    fn go_on(&self, to: Phase) {
        let mut phase = self.phase.lock();
        if matches!(*phase, Phase::Asked | Phase::Held) {
            *phase = to;
        }
        self.changed.notify_all();
    }

    /// Waits for the end of a phase. One that does not end in time is refused.
    fn await_end_of(&self, this: Phase) -> Phase {
        let end = Instant::now() + STILL_MAX;
        let mut phase = self.phase.lock();
        while *phase == this {
            if self.changed.wait_until(&mut phase, end).timed_out() && *phase == this {
                *phase = Phase::Refused;
            }
        }
        *phase
    }
}

/// Of this file no page changes in the kernel, and none is written, while a client sets its size.
/// The kernel takes over the size in the end, or keeps its own if none was set.
#[derive(Debug)]
pub(crate) struct StillFile(Arc<Still>);

impl StillFile {
    pub(crate) fn end(self, is_set: bool) {
        self.0.go_on(if is_set { Phase::Set } else { Phase::Refused });
    }
}

impl Drop for StillFile {
    fn drop(&mut self) {
        self.0.go_on(Phase::Refused);
    }
}

/// Answer of a handler to a change that the telling thread asked for.
pub(crate) enum Answer {
    /// The attributes as they are.
    AsItIs,
    /// Refused: the kernel's view has changed.
    Refused(Errno),
    /// It is none: the kernel hands over a time of its own.
    Change,
}

impl Teller {
    /// The request is one of the telling thread.
    pub(crate) fn is_telling(&self, thread: u32) -> bool {
        thread != 0 && self.thread.load(Ordering::Acquire) == thread
    }

    /// Has the kernel keep a file still. None if it does not know it, or not in time.
    pub(crate) fn keep_still(self: &Arc<Teller>, pages: &HeldPages, file: (u64, u64)) -> Option<StillFile> {
        let still = Arc::new(Still::default());
        let (teller, pages, asked) = (Arc::clone(self), pages.clone(), Arc::clone(&still));
        let thread = std::thread::Builder::new().name("still".into());
        thread.spawn(move || teller.ask_for_stillness(&pages, file, &asked)).ok()?;
        (still.await_end_of(Phase::Asked) == Phase::Held).then(|| StillFile(still))
    }

    fn ask_for_stillness(&self, pages: &HeldPages, file: (u64, u64), still: &Arc<Still>) {
        if let Some(_gate) = self.gate.try_lock_for(STILL_MAX) {
            *self.still.lock() = Some(Arc::clone(still));
            let ask = || pages.known(file).and_then(|known| known.tell_size(known.view()?.size));
            // Where it fails the kernel is told of the change when it was made.
            let _ = self.as_teller(ask);
            *self.still.lock() = None;
        }
        still.go_on(Phase::Refused);
    }

    /// The kernel keeps a file still for as long as this takes. True if its size was set then.
    pub(crate) fn was_set_still(&self) -> Option<bool> {
        let still = self.still.lock().clone()?;
        still.go_on(Phase::Held);
        Some(still.await_end_of(Phase::Held) == Phase::Set)
    }

    /// The file of a truncation that the telling thread asks for is to be kept still.
    pub(crate) fn keeps_still(&self) -> bool {
        self.still.lock().is_some()
    }

    /// Runs `tell` on a thread whose changes are known as those of the teller.
    fn as_teller<T: Send>(&self, tell: impl FnOnce() -> T + Send) -> T {
        steadfast_fuse::aside(|| {
            let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
            self.thread.store(own, Ordering::Release);
            let told = tell();
            self.thread.store(0, Ordering::Release);
            told
        })
    }

    /// The answer to a change that the telling thread asked for. `mtime`: ours.
    pub(crate) fn answer(&self, set: &SetAttr, mtime: steadfast_posix::Time) -> Answer {
        match (set.size, set.mtime) {
            // [teller.1]
            (Some(_), Some(_)) => Answer::Refused(Errno::EBUSY),
            // [teller.3]
            (None, Some(SetTime::At(theirs))) if *self.told.lock() != Some(posix_time(theirs)) => {
                if posix_time(theirs) > mtime {
                    Answer::Change
                } else {
                    Answer::AsItIs
                }
            }
            _ => Answer::AsItIs,
        }
    }

    /// Tells what is so of each file. `look` gives the content of one, and whether the kernel may
    /// hold pages of it.
    pub(crate) fn tell(
        &self,
        pages: &HeldPages,
        files: &[u64],
        look: impl Fn(u64) -> Option<(Content, bool)> + Sync,
    ) {
        let _gate = self.gate.lock();
        self.as_teller(|| {
            for &ino in files {
                // One that cannot be told is gone, or is told the next time.
                let _ = self.tell_one(pages, ino, || look(ino));
            }
        });
    }

    fn tell_one(
        &self,
        pages: &HeldPages,
        ino: u64,
        look: impl Fn() -> Option<(Content, bool)>,
    ) -> std::io::Result<()> {
        let mut has_told = false;
        for _ in 0..LOOKS_MAX {
            let Some((content, may_be_dirty)) = look() else { return Ok(()) };
            let file = (ino, content.generation);
            let known = pages.known(file)?;
            let view = known.view()?;
            if view.size != content.size {
                if may_be_dirty {
                    pages.finish(&[file])?;
                    if look().is_none_or(|(content, _)| content.size == view.size) {
                        continue;
                    }
                }
                match known.tell_size(view.size) {
                    Err(error) if error.raw_os_error() == Some(Errno::EBUSY.0) => continue,
                    told => told?,
                }
            }
            let (mtime, ctime) = (time(content.mtime), time(content.ctime));
            // The kernel's clock may be a tick behind ours.
            if view.mtime != mtime || view.ctime < ctime && !has_told {
                *self.told.lock() = Some(content.mtime);
                known.tell_mtime(mtime)?;
                has_told = true;
            } else if view.size == content.size {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A file changed that the kernel knows; or, if it is `doubtful`, may know in a moment: an
    /// answer to a lookup was under way.
    pub(crate) fn note(self: &Arc<Teller>, ino: u64, doubtful: bool, mount: &Weak<SnapshotFolders>) {
        let mut queue = self.queue.lock();
        if doubtful && queue.doubtful.len() < DOUBTFUL_MAX {
            queue.doubtful.insert(ino);
            queue.due.get_or_insert_with(|| Instant::now() + LOOKUP_TIME);
        } else if !doubtful {
            queue.waiting.insert(ino);
            queue.asked += 1;
        }
        if queue.has_thread {
            self.changed.notify_all();
            return;
        }
        let (teller, mount) = (Arc::clone(self), mount.clone());
        let thread = std::thread::Builder::new().name("teller".into());
        // Without the thread the kernel is told at the next change.
        queue.has_thread = thread.spawn(move || teller.run(&mount)).is_ok();
    }

    /// Keeps it from using the mount while this lives, if that can be had in time.
    pub(crate) fn pause(&self, longest: Duration) -> Option<MutexGuard<'_, ()>> {
        self.gate.try_lock_for(longest)
    }

    /// True if the kernel knows all that it is to be told.
    pub(crate) fn is_idle(&self) -> bool {
        let queue = self.queue.lock();
        queue.done == queue.asked
    }

    /// Waits until the kernel was told what was asked for before, for a limited time.
    pub(crate) fn await_told(&self, longest: Duration) {
        let end = Instant::now() + longest;
        let mut queue = self.queue.lock();
        let asked = queue.asked;
        while queue.done < asked && queue.has_thread {
            if self.changed.wait_until(&mut queue, end).timed_out() {
                return;
            }
        }
    }

    fn run(&self, mount: &Weak<SnapshotFolders>) {
        loop {
            let (files, asked) = {
                let mut queue = self.queue.lock();
                let mut has_rested = false;
                let files = loop {
                    let files = queue.take(Instant::now());
                    if !files.is_empty() {
                        break files;
                    }
                    if has_rested {
                        queue.has_thread = false;
                        return;
                    }
                    let rest = Instant::now() + REST;
                    let until = queue.due.unwrap_or(rest);
                    has_rested =
                        self.changed.wait_until(&mut queue, until).timed_out() && queue.due.is_none();
                };
                (files.into_iter().collect::<Vec<_>>(), queue.asked)
            };
            // The mount may end meanwhile.
            let collected = mount.upgrade().map(|mount| Arc::clone(&mount.head.read().collected));
            if let Some(collected) = collected {
                collected.tell(&files, |ino| mount.upgrade()?.head.read().content(ino));
            }
            self.queue.lock().done = asked;
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> steadfast_posix::Time {
        steadfast_posix::Time { seconds, nanos: 5 }
    }

    #[test]
    fn a_file_that_the_kernel_may_know_is_asked_for_in_time_however_much_changes() {
        let (mut queue, now) = (Queue::default(), Instant::now());
        queue.doubtful.insert(5);
        queue.due = Some(now + LOOKUP_TIME);
        queue.waiting.insert(6);
        assert_eq!(queue.take(now), BTreeSet::from([6]));
        queue.waiting.insert(6);
        assert_eq!(queue.take(now + LOOKUP_TIME), BTreeSet::from([5, 6]));
        assert!(queue.due.is_none() && queue.take(now + REST).is_empty());
    }

    #[test]
    fn only_the_thread_that_tells_changes_nothing() {
        let teller = Teller::default();
        let own = rustix::thread::gettid().as_raw_nonzero().get().cast_unsigned();
        assert!(!teller.is_telling(0) && !teller.is_telling(own));
        teller.thread.store(own, Ordering::Release);
        assert!(teller.is_telling(own) && !teller.is_telling(0));
    }

    #[test]
    fn a_size_that_changed_is_not_told_and_a_later_time_is_taken() {
        let teller = Teller::default();
        *teller.told.lock() = Some(at(50));
        let set = |size: Option<u64>, mtime: Option<i64>| {
            let mtime = mtime.map(|seconds| SetTime::At(time(at(seconds))));
            teller.answer(&SetAttr { size, mtime, ..SetAttr::default() }, at(50))
        };
        assert!(matches!(set(Some(7), None), Answer::AsItIs));
        assert!(matches!(set(Some(7), Some(60)), Answer::Refused(Errno::EBUSY)));
        assert!(matches!(set(None, Some(50)), Answer::AsItIs), "the one that is told");
        assert!(matches!(set(None, Some(40)), Answer::AsItIs), "older than ours");
        assert!(matches!(set(None, Some(60)), Answer::Change));
        assert!(matches!(set(None, None), Answer::AsItIs));
    }
}
