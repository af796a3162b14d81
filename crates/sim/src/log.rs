//! Writes and flushes of the devices of a world, in order, with the operations of the workload
//! between.

use std::sync::{Arc, Mutex, PoisonError};

/// Part of a device that a write goes to.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Area {
    /// The configuration in a label.
    Label,
    /// A slot of a ring of uberblocks.
    Root,
    /// A segment.
    Segment,
    /// A whole object: there or not, never in part.
    Object,
    /// The register of an anchor: the record before or this one.
    Register,
    /// A host's memory of it.
    Witness,
    /// A parity device.
    Parity,
}

impl Area {
    /// True if a write to it may land in part.
    #[must_use]
    pub fn is_torn(self) -> bool {
        matches!(self, Area::Label | Area::Root | Area::Segment | Area::Parity)
    }
}

/// One thing that happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EventKind {
    /// A write.
    Write {
        /// Byte of the device.
        at: u64,
        /// Bytes written.
        bytes: Arc<[u8]>,
        /// Where that is.
        area: Area,
    },
    /// All writes before it are durable.
    Flush,
    /// A flush that failed: writes before it that were not durable are gone, and no later flush
    /// brings them back.
    FlushFailed,
    /// A range is needed no more.
    Discard {
        /// First byte.
        at: u64,
        /// Bytes.
        length: u64,
    },
    /// Operation of this number of the workload begins.
    Begin(usize),
    /// It has returned to its caller.
    Return(usize),
}

impl EventKind {
    /// Its name in reports.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            EventKind::Write { area, .. } => match area {
                Area::Label => "label",
                Area::Root => "uberblock",
                Area::Segment => "segment",
                Area::Object => "object",
                Area::Register => "register",
                Area::Witness => "witness",
                Area::Parity => "parity",
            },
            EventKind::Flush | EventKind::FlushFailed => "flush",
            EventKind::Discard { .. } => "discard",
            EventKind::Begin(_) | EventKind::Return(_) => "return",
        }
    }
}

/// Something that happened, and on which device (0 for what happened on none).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Event {
    /// Device.
    pub disk: usize,
    /// Kind of the event.
    pub kind: EventKind,
}

/// All of it.
#[derive(Default)]
pub struct Log {
    events: Mutex<Vec<Event>>,
    reads: Mutex<Vec<(usize, u32)>>,
    hears: Hears,
}

/// Operations that a log notes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Hears {
    #[default]
    All,
    Reads,
    Nothing,
}

impl Log {
    /// A log of which nobody asks anything.
    #[must_use]
    pub fn deaf() -> Log {
        Log { hears: Hears::Nothing, ..Log::default() }
    }

    /// A log of what was read, and of nothing that was written.
    #[must_use]
    pub fn of_reads() -> Log {
        Log { hears: Hears::Reads, ..Log::default() }
    }

    /// True if it keeps nothing.
    #[must_use]
    pub fn is_deaf(&self) -> bool {
        self.hears == Hears::Nothing
    }

    /// True if it keeps what was written.
    #[must_use]
    pub fn hears_writes(&self) -> bool {
        self.hears == Hears::All
    }

    /// Notes an event.
    pub fn note(&self, disk: usize, kind: EventKind) {
        if !self.hears_writes() {
            return;
        }
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(Event { disk, kind });
    }

    /// Notes that a page of what a device held when it was opened was read for the first time.
    pub fn note_read(&self, disk: usize, page: u32) {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).push((disk, page));
    }

    /// Pages of the first images on which what was done so far depends, in the order in which they
    /// were first read.
    #[must_use]
    pub fn reads(&self) -> Vec<(usize, u32)> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes all events out.
    #[must_use]
    pub fn take(&self) -> Vec<Event> {
        std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
