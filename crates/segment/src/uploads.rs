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
//! [uploads.2] No root names a segment whose put has not succeeded: `Space::flush_open` fails, or
//!      returns when none is left.
//!      test: `a_put_that_failed_is_made_again_by_the_next_flush`
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

use steadfast_device::{Error as DeviceError, SegmentPlace, SharedDevice};
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

/// A segment on its way.
struct Upload {
    segment: Arc<OpenSegment>,
    device: DeviceId,
    place: SegmentPlace,
    /// The device when the put was asked for; nothing while the pool does without it.
    opened: Option<SharedDevice>,
    counters: Arc<Counters>,
}

impl Upload {
    fn put(&self) -> Result<(), DeviceError> {
        let bytes = self.segment.bytes.read().expect("no append panics");
        let result = match &self.opened {
            Some(device) => device.put_segment(self.place, &bytes),
            None => Err(DeviceError::NotInUse { device: format!("device {}", self.device) }),
        };
        self.counters.wrote(bytes.len(), result.is_ok());
        result
    }
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Upload>,
    /// Threads that make puts, and puts under way.
    workers: usize,
    under_way: usize,
    stored: Vec<Arc<OpenSegment>>,
    failed: Vec<Upload>,
    error: Option<Error>,
    /// Bytes of all of these.
    bytes: u64,
    /// A put ended by a bug, so one that is waited for may never end.
    panicked: bool,
}

impl Queue {
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way == 0
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
        match next {
            Some(_) => queue.under_way += 1,
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
        queue.under_way -= 1;
        match result {
            Ok(()) => queue.stored.push(upload.segment),
            Err(source) => {
                queue.error.get_or_insert(Error::Device { device: upload.device, source });
                queue.failed.push(upload);
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

    /// Bytes of segments on their way.
    #[must_use]
    pub fn upload_bytes(&self) -> u64 {
        self.uploads.shared.lock().bytes
    }

    /// A segment that its stream has left is to be put, by [`Space::start_uploads`].
    pub(crate) fn upload(&self, segment: &Arc<OpenSegment>) {
        let (device, place) = segment.plain().expect("groups can be appended to");
        let handle = &self.devices[&device];
        let (opened, counters) = (handle.in_use(), Arc::clone(&handle.counters));
        let upload = Upload { segment: Arc::clone(segment), device, place, opened, counters };
        let mut queue = self.uploads.shared.lock();
        queue.bytes += segment.len();
        queue.waiting.push_back(upload);
    }

    /// Sees to it that somebody makes the puts that wait. The caller holds no stream.
    pub(crate) fn start_uploads(&self) {
        let beside = self.env.tasks.waits_beside();
        let workers_max = if beside { UPLOADS_MAX } else { 1 };
        loop {
            let mut queue = self.uploads.shared.lock();
            if queue.workers - queue.under_way >= queue.waiting.len() || queue.workers >= workers_max {
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
                    return self.finish_uploads();
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
        let failed = {
            let mut queue = self.uploads.shared.lock();
            queue.error = None;
            let failed = std::mem::take(&mut queue.failed);
            queue.bytes -= failed.iter().map(|upload| upload.segment.len()).sum::<u64>();
            failed
        };
        failed.into_iter().for_each(|upload| self.leave(upload.segment));
        self.start_uploads();
    }

    /// Waits until no put is left, and says whether one failed [uploads.2].
    pub(crate) fn finish_uploads(&self) -> Result<(), Error> {
        self.start_uploads();
        brief::check_none_held("an upload");
        let mut queue = self.uploads.shared.lock();
        while !queue.is_idle() {
            drop(self.uploads.shared.ended.wait(queue).unwrap_or_else(PoisonError::into_inner));
            queue = self.uploads.shared.lock();
        }
        let error = queue.error.take();
        drop(queue);
        self.take_stored();
        error.map_or(Ok(()), Err)
    }

    /// A segment takes no more blocks: it is put, if anything lives there, or forgotten.
    pub(crate) fn leave(&self, segment: Arc<OpenSegment>) {
        let mut state = self.write_state();
        // It is gone if its owner was dropped.
        let lives = state.table.rows.get(&segment.id).is_some_and(|row| row.open && row.live > 0);
        if lives {
            state.table.fill(segment.id);
            drop(state);
            self.upload(&segment);
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
        failed.retain(&mut stays);
    }
}
