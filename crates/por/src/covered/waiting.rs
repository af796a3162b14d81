//! Objects that are to be deleted, and cannot leave the code yet.
//!
//! ```text
//! to be deleted ─[no room, or for a repair]→ ready ─[leaves the code]→ off the list
//!       └─[the store does not give it]→ unread ─[its turn, a while later]→ off the list
//! ```
//! An object that is missing, or has other bytes than entered the code, is on no list here: it is
//! held back until a repair.

use std::collections::BTreeSet;

use steadfast_device::{Error as DeviceError, Result as DeviceResult};
use steadfast_format::SegmentId;

use super::{Cover, Covered};

/// Segments that are to be deleted, and wait to leave the code. Each is on one of the lists.
#[derive(Default)]
pub(super) struct Waiting {
    /// Those that wait for room, for the end of a repair, or for their first turn.
    ready: BTreeSet<SegmentId>,
    /// Those that the store did not give when they were to leave.
    unread: BTreeSet<SegmentId>,
    /// The one of them that was tried last, and why the store did not give it.
    failed: Option<(SegmentId, String)>,
}

impl Waiting {
    pub fn push(&mut self, segment: SegmentId) {
        if !self.unread.contains(&segment) {
            self.ready.insert(segment);
        }
    }

    pub fn push_unread(&mut self, segment: SegmentId, error: &DeviceError) {
        self.ready.remove(&segment);
        self.unread.insert(segment);
        self.failed = Some((segment, error.to_string()));
    }

    pub fn remove(&mut self, segment: SegmentId) -> bool {
        self.ready.remove(&segment) | self.unread.remove(&segment)
    }

    /// The next one to be tried: of those that the store did not give, the one behind the last.
    fn next(&self) -> Option<SegmentId> {
        let last = self.failed.as_ref().map_or(SegmentId(0), |(last, _)| *last);
        let behind =
            || self.unread.range((std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded)).next();
        let next = self.ready.first().or_else(behind).or_else(|| self.unread.first());
        next.copied()
    }

    pub fn all(&self) -> Vec<SegmentId> {
        self.ready.iter().chain(&self.unread).copied().collect()
    }

    /// Those that the store did not give, and why it did not give the last one.
    fn unread(&self) -> Option<(u64, String)> {
        let why = self.failed.as_ref().filter(|_| !self.unread.is_empty());
        why.map(|(_, why)| (self.unread.len() as u64, why.clone()))
    }
}

/// How it went with a segment that was to leave the code.
pub(super) enum Leave {
    /// It left, or is held back for a repair.
    Done,
    /// It is on the list.
    Waits,
    /// The store did not give its content.
    Unread(DeviceError),
}

/// How a segment leaves the code.
pub(super) struct Leaving<'a> {
    /// Its content, if that is at hand.
    pub content: Option<&'a [u8]>,
    /// The store may be asked for it.
    pub reads: bool,
    /// One that has to wait comes on the list.
    pub lists: bool,
}

impl Leaving<'_> {
    const AGAIN: Leaving<'static> = Leaving { content: None, reads: true, lists: true };

    /// For one that is to be deleted now. While the store does not give others, it is not asked for
    /// this one either before its turn.
    pub fn newly(cover: &Cover) -> Leaving<'static> {
        Leaving { reads: cover.state().waiting.unread.is_empty(), ..Self::AGAIN }
    }
}

impl Covered {
    /// Takes one segment out of the code that had to wait, if there is room. True if there are
    /// more: a caller pauses between them, and longer behind one that fails.
    ///
    /// # Errors
    /// Its store does not give or delete it, or the parity device fails. It waits on, and the
    /// others have their turn first.
    pub fn resume_delete(&self) -> DeviceResult<bool> {
        let Some(cover) = self.covering() else { return Ok(false) };
        let next = {
            let parity = cover.parity();
            let is_full = parity.journal_bytes() > parity.figures().journal_size / 2;
            if parity.is_pinned() || parity.owes_repair() || is_full {
                return Ok(false);
            }
            cover.state().waiting.next()
        };
        let Some(segment) = next else { return Ok(false) };
        let has_left = self.try_waiting(&cover, segment)?;
        Ok(has_left && cover.state().waiting.next().is_some())
    }

    /// Segments that are to be deleted and that the store did not give at the last try, and why.
    #[must_use]
    pub fn unread(&self) -> Option<(u64, String)> {
        self.covering()?.state().waiting.unread()
    }

    /// Tries one that waits. It is on the list until it has left; false if it waits on.
    pub(super) fn try_waiting(&self, cover: &Cover, segment: SegmentId) -> DeviceResult<bool> {
        let (is_known, left) = self.leave(cover, segment, &Leaving::AGAIN)?;
        match left {
            Leave::Waits => return Ok(false),
            Leave::Unread(error) => return Err(error),
            Leave::Done if is_known => {}
            Leave::Done => {
                let deleted = self.inner_objects().delete_segments(&[segment]);
                if let Err(error) = deleted {
                    cover.state().waiting.push_unread(segment, &error);
                    return Err(error);
                }
            }
        }
        cover.state().waiting.remove(segment);
        Ok(true)
    }
}
