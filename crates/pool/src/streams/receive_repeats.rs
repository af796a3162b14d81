//! Receiving: content that the stream brought before is shared with the file that has it already
//! (`receive_fill.rs`). `docs/decisions/0117-repeats-in-streams.md`.
//!
//! ## Invariants
//! [repeats.1] A repeat names only content of the same stream: of the running snapshot, or of one
//!      that the stream brought whole.
//!      `add`; test: `tests/repeats.rs`
//! [repeats.2] While repeats wait no position is noted, so after a break their part of the stream
//!      comes again.
//!      `Repeats::came_to`
//! [repeats.3] A named snapshot is pinned until the commit that counts the new references. A
//!      running sync frees blocks that were destroyed while it ran, and does not know of references
//!      made by the next txg.
//!      `Repeats::count`

use crate::streams::state::Streams;
use std::collections::BTreeMap;
use std::sync::Arc;

use steadfast_dataset::{Dataset, ShareRange, Sharing};
use steadfast_format::stream::Repeat;
use steadfast_format::{DatasetId, InodeId, LogRecord};

use crate::core::error::{Error, Result};
use crate::datasets::snapshots::Pin;
use crate::streams::receive_fill::check_inside;
use crate::streams::stream_io::StreamReader;

/// Repeats that wait for one commit, at most.
const WAITING_MAX: usize = 4_096;
/// Bytes that are copied at once where nothing can be shared.
const COPY_BYTES: u64 = 1 << 20;

/// Snapshots of a stream, in its order: guids and full names of those that it brought. Snapshots
/// that were there before must not be named: the sender of a guid need not have the snapshot.
pub(crate) type Came = Vec<Option<(u64, String)>>;

/// A snapshot that is named.
struct Named {
    dataset: Arc<Dataset>,
    _pin: Pin,
}

/// Repeats of one snapshot.
pub(crate) struct Repeats<'c> {
    /// Dataset into which the running snapshot is received.
    hidden: DatasetId,
    dataset: Arc<Dataset>,
    came: &'c Came,
    waiting: Vec<Repeat>,
    named: BTreeMap<u64, Named>,
    /// Behind the last content that came.
    position: (InodeId, u64),
}

impl<'c> Repeats<'c> {
    pub fn new(hidden: DatasetId, dataset: Arc<Dataset>, came: &'c Came) -> Repeats<'c> {
        let (waiting, named) = (Vec::new(), BTreeMap::new());
        Repeats { hidden, dataset, came, waiting, named, position: (InodeId(0), 0) }
    }

    /// True if a repeat is of the snapshot under way.
    fn is_own(&self, repeat: &Repeat) -> bool {
        repeat.snapshot == self.came.len() as u64 + 1
    }

    /// Content came up to here. [repeats.2]
    pub fn came_to(&mut self, streams: &Streams, position: (InodeId, u64)) {
        self.position = position;
        if self.waiting.is_empty() {
            streams.reached(self.hidden, position);
        }
    }

    /// Takes the repeats of a frame, if all of them can be.
    pub fn add(&mut self, streams: &Streams, payload: &[u8], reader: &StreamReader<'_>) -> Result<()> {
        if payload.is_empty() || !payload.len().is_multiple_of(Repeat::SIZE) {
            return Err(reader.misplaced("its end is cut".into()));
        }
        let mut repeats = Vec::with_capacity(payload.len() / Repeat::SIZE);
        for bytes in payload.chunks(Repeat::SIZE) {
            let repeat = Repeat::decode(bytes).map_err(|error| reader.misplaced(error.to_string()))?;
            let from = self.source(streams, &repeat, reader)?;
            for (dataset, file, at) in
                [(&self.dataset, repeat.inode, repeat.offset), (&from, repeat.source, repeat.from)]
            {
                let inode = dataset.inode(file).map_err(|error| streams.receive_error(reader, error))?;
                let inside = check_inside(file, &inode.record(), at + repeat.length);
                inside.map_err(|reason| reader.misplaced(reason))?;
            }
            let apart = repeat.offset.abs_diff(repeat.from);
            if self.is_own(&repeat) && repeat.inode == repeat.source && apart < repeat.length {
                return Err(reader.misplaced(format!("inode {} repeats itself in itself", repeat.inode)));
            }
            repeats.push(repeat);
        }
        for repeat in repeats {
            self.position = (repeat.inode, repeat.offset + repeat.length);
            self.waiting.push(repeat);
            if self.waiting.len() >= WAITING_MAX {
                self.settle(streams, reader)?;
            }
        }
        Ok(())
    }

    /// Does what waits.
    pub fn settle(&mut self, streams: &Streams, reader: &StreamReader<'_>) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // Afterwards the received part of this snapshot is stored and can be referred to, and
        // commits account for rows.
        if streams.core.references.is_enabled() {
            streams.core.references.expect_rows();
        }
        streams.core.commit_changes()?;
        for repeat in std::mem::take(&mut self.waiting) {
            let from = self.source(streams, &repeat, reader)?;
            let carried = carry(&from, &self.dataset, &repeat);
            carried.map_err(|error| streams.receive_error(reader, error))?;
        }
        streams.reached(self.hidden, self.position);
        Ok(())
    }

    /// Waits until references to what is named are counted; only then may it go. [repeats.3]
    pub fn count(&self, streams: &Streams) -> Result<()> {
        match self.named.is_empty() || streams.core.is_suspended() {
            true => Ok(()),
            false => streams.core.commit_changes(),
        }
    }

    /// Snapshot that a repeat refers to, if the stream brought it. [repeats.1]
    fn source(
        &mut self,
        streams: &Streams,
        repeat: &Repeat,
        reader: &StreamReader<'_>,
    ) -> Result<Arc<Dataset>> {
        if self.is_own(repeat) {
            return Ok(Arc::clone(&self.dataset));
        }
        let number = repeat.snapshot;
        if let Some(named) = self.named.get(&number) {
            return Ok(Arc::clone(&named.dataset));
        }
        let at = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let unknown = || reader.misplaced(format!("it repeats snapshot {number}, which did not come"));
        let came = at.and_then(|at| self.came.get(at)).ok_or_else(unknown)?;
        let passed = || {
            let what = "which was here before: send what is upon the youngest that is here";
            reader.misplaced(format!("it repeats snapshot {number}, {what}"))
        };
        let (guid, name) = came.as_ref().ok_or_else(passed)?;
        let (id, pin) = streams.datasets.pin(name)?;
        // It may have another name by now, and something else its own.
        if pin.row.guid != *guid {
            return Err(Error::NoSuchSnapshot { name: name.clone() });
        }
        if streams.datasets.is_raw(id) {
            return Err(reader.misplaced("it repeats what came sealed".into()));
        }
        let dataset = Arc::clone(streams.datasets.open_stored(id, &pin.row.name)?.dataset());
        self.named.insert(number, Named { dataset: Arc::clone(&dataset), _pin: pin });
        Ok(dataset)
    }
}

/// Makes a range of a file what another place has: by reference as far as that goes, else by
/// copying.
fn carry(from: &Dataset, dataset: &Dataset, repeat: &Repeat) -> steadfast_dataset::Result<()> {
    let (source, target) = (from.inode(repeat.source)?, dataset.inode(repeat.inode)?);
    let record_size = 1_u64 << source.record().record_shift;
    let (mut done, mut buffer) = (0, Vec::new());
    while done < repeat.length {
        let range = ShareRange {
            source: repeat.from + done,
            target: repeat.offset + done,
            length: repeat.length - done,
        };
        if let Sharing::Done(bytes) = dataset.share_from(from, &source, &target, range, |_| ())? {
            done += bytes;
            continue;
        }
        // Another key, records of another size, or a record that is none of its own: what follows
        // may be shared.
        let most = (record_size - range.source % record_size).min(range.length).min(COPY_BYTES);
        buffer.resize(usize::try_from(most).expect("some bytes"), 0);
        let count = from.read(&source, range.source, &mut buffer)?;
        if count == 0 {
            return Err(steadfast_dataset::Error::NoInode(repeat.source));
        }
        let bytes = &buffer[..count];
        dataset.receive(&[LogRecord::Data { inode: repeat.inode, offset: range.target, bytes }])?;
        done += count as u64;
    }
    Ok(())
}
