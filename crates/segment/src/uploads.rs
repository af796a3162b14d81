//! Uploads: segments that take no more blocks, on their way to devices of whole objects.
//!
//! A put to a bucket takes as long as a thousand appends to memory. So a stream that has filled a
//! segment hands it over and opens the next one at once, and up to [`UPLOADS_MAX`] puts run side
//! by side.
//!
//! ## States of a put
//! waiting ─[a worker is free]→ under way ─→ stored ─[`Space::take_stored`]→ its row is closed
//!                                       └─→ failed ─[the next flush]→ waiting
//!
//! ## Invariants
//! [uploads.1] Bytes stay in memory, where readers find them, until their put has succeeded. Until
//!      then the row is open: nothing moves, cleans or mends it.
//!      `Table::full`; assert: `Table::check`
//! [uploads.2] No root names a segment whose put has not succeeded: `Space::finish_uploads` fails,
//!      or returns when none is left of those that were handed over before.
//!      tests: `a_put_that_failed_is_made_again_by_the_next_flush`,
//!      `a_put_whose_failure_an_append_was_told_of_fails_the_flush_too`,
//!      `a_flush_waits_for_what_was_handed_over_and_no_more`
//! [uploads.3] No lock is held across a put.
//!      assert: `brief::check_none_held`
//! [uploads.4] Segments on their way hold no more bytes than they may, and one segment for each
//!      thread that appends: it waits before it goes on.
//!      `Space::make_way`, test: `appends_wait_when_uploads_hold_what_they_may`
//!
//! Where nothing runs beside anything, as in the simulator, a put is made by the caller that
//! filled the segment, after it has let its stream go.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use steadfast_device::{Error as DeviceError, Operation, SegmentPlace, SharedDevice};
use steadfast_env::brief;
use steadfast_format::{DatasetId, DeviceId, SegmentId};

use crate::accounting::Counters;
use crate::error::Error;
use crate::space::Space;
use crate::stream::OpenSegment;

/// Puts under way at once at most: 32 of 8 MiB carry 2.5 GB/s at a round trip of 100 ms.
pub(crate) const UPLOADS_MAX: usize = 32;

/// Bytes of segments on their way at most, unless the pool says otherwise.
const UPLOAD_BYTES: u64 = 256 << 20;

/// How far puts were handed over: they are numbered in their order.
#[derive(Clone, Copy, Debug)]
pub struct Handed(u64);

/// A segment on its way.
struct Upload {
    number: u64,
    segment: Arc<OpenSegment>,
    device: DeviceId,
    place: SegmentPlace,
    /// The device when the put was asked for; nothing while the pool does without it.
    opened: Option<SharedDevice>,
    counters: Arc<Counters>,
}

impl Upload {
    fn put(&self) -> Result<(), DeviceError> {
        let bytes = self.segment.shared();
        let result = match &self.opened {
            Some(device) => device.put_shared(self.place, &bytes),
            None => Err(DeviceError::NotInUse { device: format!("device {}", self.device) }),
        };
        self.counters.wrote(bytes.len(), result.is_ok());
        result
    }
}

/// A put that failed, and why: the error is told once.
struct Failed {
    upload: Upload,
    error: Option<Error>,
}

impl Upload {
    /// The error of a put whose own one was told already.
    fn again(&self) -> Error {
        let source = DeviceError::Store {
            device: format!("device {}", self.device),
            operation: Operation::Write,
            object: format!("segment {}", self.segment.id),
            reason: "its put failed".to_owned(),
        };
        Error::Device { device: self.device, source }
    }
}

#[derive(Default)]
struct Queue {
    /// Number of the last put that was asked for.
    last: u64,
    waiting: VecDeque<Upload>,
    /// Threads that make puts, and numbers of puts under way.
    workers: usize,
    under_way: BTreeSet<u64>,
    stored: Vec<Arc<OpenSegment>>,
    failed: Vec<Failed>,
    /// Numbers of those that failed and are about to wait again.
    again: BTreeSet<u64>,
    /// Bytes of all of these.
    bytes: u64,
    /// A put ended by a bug, so one that is waited for may never end.
    panicked: bool,
}

impl Queue {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// True if none of the puts up to this one waits or is under way.
    fn has_ended(&self, handed: Handed) -> bool {
        let waiting = self.waiting.iter().map(|upload| &upload.number);
        waiting.chain(&self.under_way).chain(&self.again).all(|number| *number > handed.0)
    }
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    /// A put has ended.
    ended: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(!queue.panicked, "an upload ended by a bug");
        queue
    }

    /// Makes the puts that wait, one after the other, until there are none.
    fn work(&self) {
        while let Some(upload) = self.next() {
            let mut put = UnderWay { shared: self, upload: Some(upload) };
            let upload = put.upload.as_ref().expect("it is under way");
            let result = upload.put();
            put.end(result);
        }
    }

    fn next(&self) -> Option<Upload> {
        let mut queue = self.lock();
        let next = queue.waiting.pop_front();
        match &next {
            Some(upload) => _ = queue.under_way.insert(upload.number),
            None => queue.workers -= 1,
        }
        next
    }
}

/// A put under way: a panic in it is told to whoever waits.
struct UnderWay<'a> {
    shared: &'a Shared,
    upload: Option<Upload>,
}

impl UnderWay<'_> {
    fn end(&mut self, result: Result<(), DeviceError>) {
        let upload = self.upload.take().expect("it ends once");
        let mut queue = self.shared.lock();
        queue.under_way.remove(&upload.number);
        match result {
            Ok(()) => queue.stored.push(upload.segment),
            Err(source) => {
                let error = Some(Error::Device { device: upload.device, source });
                queue.failed.push(Failed { upload, error });
            }
        }
        self.shared.ended.notify_all();
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if self.upload.is_some() {
            self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner).panicked = true;
            self.shared.ended.notify_all();
        }
    }
}

/// Segments on their way.
pub(crate) struct Uploads {
    shared: Arc<Shared>,
    bytes_max: AtomicU64,
}

impl Default for Uploads {
    fn default() -> Uploads {
        Uploads { shared: Arc::default(), bytes_max: AtomicU64::new(UPLOAD_BYTES) }
    }
}

impl Space {
    /// Bytes of full segments that may be on their way to devices of whole objects. An append waits
    /// when they are reached.
    pub fn set_upload_bytes(&self, bytes: u64) {
        self.uploads.bytes_max.store(bytes, Ordering::Relaxed);
    }

    /// Bytes of segments on their way, of those that failed too.
    #[must_use]
    pub fn upload_bytes(&self) -> u64 {
        self.uploads.shared.lock().bytes
    }

    /// True if so many bytes more can be appended, and no append waits for what is on its way.
    #[must_use]
    pub fn has_upload_room(&self, more: u64) -> bool {
        self.upload_bytes().saturating_add(more) <= self.uploads.bytes_max.load(Ordering::Relaxed)
    }

    /// A segment that its stream has left is to be put, by [`Space::start_uploads`]: under the
    /// number that it had, if it was before.
    fn upload(&self, segment: &Arc<OpenSegment>, number: Option<u64>) {
        let (device, place) = segment.plain().expect("groups can be appended to");
        let handle = &self.devices[&device];
        let (opened, counters) = (handle.in_use(), Arc::clone(&handle.counters));
        let mut queue = self.uploads.shared.lock();
        queue.last += u64::from(number.is_none());
        let number = number.unwrap_or(queue.last);
        let upload = Upload { number, segment: Arc::clone(segment), device, place, opened, counters };
        queue.bytes += segment.len();
        queue.waiting.push_back(upload);
    }

    /// Sees to it that somebody makes the puts that wait. The caller holds no stream.
    pub(crate) fn start_uploads(&self) {
        let beside = self.env.tasks.waits_beside();
        let workers_max = if beside { UPLOADS_MAX } else { 1 };
        loop {
            let mut queue = self.uploads.shared.lock();
            if queue.workers - queue.under_way.len() >= queue.waiting.len() || queue.workers >= workers_max {
                return;
            }
            queue.workers += 1;
            drop(queue);
            let shared = Arc::clone(&self.uploads.shared);
            if beside {
                drop(self.env.tasks.spawn("upload", Box::new(move || shared.work())));
            } else {
                brief::check_none_held("an upload");
                shared.work();
            }
        }
    }

    /// Closes the rows of what is stored: from now on it is read from its device.
    pub(crate) fn take_stored(&self) {
        let stored = {
            let mut queue = self.uploads.shared.lock();
            let stored = std::mem::take(&mut queue.stored);
            queue.bytes -= stored.iter().map(|segment| segment.len()).sum::<u64>();
            stored
        };
        stored.into_iter().for_each(|segment| self.end(segment));
    }

    /// Waits while segments on their way hold more than they may [uploads.4]. The caller holds no
    /// stream.
    pub(crate) fn make_way(&self) -> Result<(), Error> {
        let bytes_max = self.uploads.bytes_max.load(Ordering::Relaxed);
        loop {
            let queue = self.uploads.shared.lock();
            if queue.stored.is_empty() {
                if queue.bytes <= bytes_max {
                    return Ok(());
                }
                if queue.is_idle() {
                    // All that is left has failed.
                    drop(queue);
                    self.retry_uploads();
                    return self.finish_uploads(self.handed());
                }
                brief::check_none_held("an upload");
                drop(self.uploads.shared.ended.wait(queue).unwrap_or_else(PoisonError::into_inner));
            } else {
                drop(queue);
            }
            self.take_stored();
        }
    }

    /// Puts that failed are to be made once more.
    pub(crate) fn retry_uploads(&self) {
        let failed: Vec<Upload> = {
            let mut queue = self.uploads.shared.lock();
            let failed = std::mem::take(&mut queue.failed).into_iter().map(|failed| failed.upload);
            let failed: Vec<Upload> = failed.collect();
            queue.bytes -= failed.iter().map(|upload| upload.segment.len()).sum::<u64>();
            queue.again.extend(failed.iter().map(|upload| upload.number));
            failed
        };
        for Upload { number, segment, .. } in failed {
            self.leave_as(segment, Some(number));
            self.uploads.shared.lock().again.remove(&number);
            self.uploads.shared.ended.notify_all();
        }
        self.start_uploads();
    }

    /// All puts that were asked for until now.
    pub(crate) fn handed(&self) -> Handed {
        Handed(self.uploads.shared.lock().last)
    }

    /// Waits until none of these puts is left, and says whether one failed [uploads.2]. Later ones
    /// may be under way then.
    pub fn finish_uploads(&self, handed: Handed) -> Result<(), Error> {
        self.start_uploads();
        brief::check_none_held("an upload");
        let mut queue = self.uploads.shared.lock();
        while !queue.has_ended(handed) {
            drop(self.uploads.shared.ended.wait(queue).unwrap_or_else(PoisonError::into_inner));
            queue = self.uploads.shared.lock();
        }
        // One whose error somebody else was told has failed all the same.
        let mut error = None;
        for failed in queue.failed.iter_mut().filter(|failed| failed.upload.number <= handed.0) {
            error = error.or_else(|| Some(failed.error.take().unwrap_or_else(|| failed.upload.again())));
        }
        drop(queue);
        self.take_stored();
        error.map_or(Ok(()), Err)
    }

    /// A segment takes no more blocks: it is put, if anything lives there, or forgotten.
    pub(crate) fn leave(&self, segment: Arc<OpenSegment>) {
        self.leave_as(segment, None);
    }

    fn leave_as(&self, segment: Arc<OpenSegment>, number: Option<u64>) {
        let mut state = self.write_state();
        // It is gone if its owner was dropped.
        let lives = state.table.rows.get(&segment.id).is_some_and(|row| row.open && row.live > 0);
        if lives {
            state.table.fill(segment.id);
            drop(state);
            self.upload(&segment, number);
        } else {
            drop(state);
            self.end(segment);
        }
    }

    /// Memory forgets a segment that its device has, or that nobody needs.
    pub(crate) fn end(&self, segment: Arc<OpenSegment>) {
        let mut state = self.write_state();
        // One of an owner that was dropped is closed already.
        if state.open.remove(&segment.id).is_some() {
            state.table.close(segment.id);
        }
        drop(state);
        self.spare.put(segment);
    }

    /// Forgets what an owner has on its way. A put under way is waited for by the commit.
    pub(crate) fn forget_uploads(&self, owner: DatasetId) {
        let mut state = self.write_state();
        let of_owner = |id: &SegmentId| state.table.rows.get(id).is_some_and(|row| row.owner == owner);
        let ids: BTreeSet<SegmentId> = state.table.full.iter().copied().filter(of_owner).collect();
        for &id in &ids {
            state.open.remove(&id);
            state.table.close(id);
        }
        drop(state);
        let mut queue = self.uploads.shared.lock();
        let Queue { waiting, failed, bytes, .. } = &mut *queue;
        let mut stays = |upload: &Upload| {
            let stays = !ids.contains(&upload.segment.id);
            *bytes -= if stays { 0 } else { upload.segment.len() };
            stays
        };
        waiting.retain(&mut stays);
        failed.retain(|failed| stays(&failed.upload));
    }
}
