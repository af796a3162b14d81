//! A snapshot that is being received into a hidden dataset.

use crate::datasets::quotas::Expected;
use crate::datasets::table::Table;
use std::collections::VecDeque;
use steadfast_format::DatasetId;
use steadfast_format::InodeId;
use steadfast_format::ReceiveRow;
use steadfast_format::Txg;

/// A receive into a hidden dataset.
pub(crate) struct Receiving {
    pub row: ReceiveRow,
    /// Somebody receives into it now.
    pub active: bool,
    /// Limits that bind an increment, while it is being received.
    pub expected: Option<Expected>,
    /// Positions, each with the txg that was open when it was reached.
    pub steps: VecDeque<(Txg, (InodeId, u64))>,
}

impl Receiving {
    pub(crate) fn new(row: ReceiveRow, active: bool) -> Receiving {
        Receiving { row, active, expected: None, steps: VecDeque::new() }
    }

    /// It is for a dataset that is there.
    pub(crate) fn is_increment(&self) -> bool {
        self.row.target.0 != 0 && !self.row.clone
    }

    /// Its content will be that of its parent, in place of what the parent has.
    /// `docs/decisions/0211-a-stream-in-place.md`
    pub(crate) fn is_in_place(&self) -> bool {
        self.row.target.0 == 0 && self.row.name.starts_with('@')
    }

    /// The dataset that is there and gets the content. `parent`: the hidden one's.
    pub(crate) fn goal(&self, parent: DatasetId) -> Option<DatasetId> {
        match self.is_in_place() {
            true => Some(parent),
            false => Some(self.row.target).filter(|_| self.is_increment()),
        }
    }

    /// There is a dataset whose name it will have.
    pub(crate) fn replaces(&self, table: &Table, parent: DatasetId) -> bool {
        let last = self.row.name.split('@').next().unwrap_or_default();
        !last.is_empty() && table.child(parent, last).is_some()
    }

    pub(crate) fn reached(&mut self, open: Txg, position: (InodeId, u64)) {
        match self.steps.back_mut().filter(|(txg, _)| *txg == open) {
            Some(step) => step.1 = position,
            None => self.steps.push_back((open, position)),
        }
    }

    /// `txg` is being committed. True if the row changed. [receive.4]
    pub fn settle(&mut self, txg: Txg) -> bool {
        let mut settled = false;
        while let Some((_, position)) = self.steps.front().filter(|(step, _)| *step <= txg) {
            (self.row.position, settled) = (*position, true);
            self.steps.pop_front();
        }
        settled
    }
}
