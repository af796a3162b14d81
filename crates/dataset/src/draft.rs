//! Drafts: the records of one log group (ZFS: `zil_commit` writing a chain of itxs), and the notes
//! they are made from.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use steadfast_env::Bug;
use steadfast_format::{InodeId, LogRecord, Txg};

use crate::dataset::Dataset;
use crate::inode::{Inode, InodeState};
use crate::journal::{Answer, Durable, Journal, JournalMode};
use crate::layer::Layer;
use crate::record::index;

use crate::{RangeSet, Result, SyncMode};

/// Keys and inodes of one group, at most: more is better committed.
const ITEMS_MAX: usize = 8_192;
/// Between two looks for a commit, by those who wait for it.
const LATER_LOOK: Duration = Duration::from_secs(60);

/// Records of a group that is not written yet.
pub struct Draft {
    /// The records.
    pub body: Vec<u8>,
    /// How many.
    pub records: u32,
    /// Inodes it holds.
    inodes: Vec<Arc<Inode>>,
}

/// Result of drafting.
pub enum Drafted {
    /// Nothing is pending of what was asked for.
    Nothing,
    /// This.
    Group(Draft),
    /// It cannot be logged (too large, or the journal is off): commit.
    CommitInstead,
    /// Content is on its way from memory to a root: again after that txg's commit.
    After(Txg),
}

enum Refused {
    TooLarge,
    After(Txg),
}

impl Draft {
    fn push(&mut self, record: &LogRecord<'_>) {
        record.encode(&mut self.body);
        self.records += 1;
    }
}

impl Dataset {
    /// Sets what the log holds and who writes it. Takes effect with the next commit.
    pub fn set_journal(&self, journal: Option<Arc<dyn Journal>>, mode: JournalMode) {
        let mode = if journal.is_some() { mode } else { JournalMode::Off };
        *self.log.journal.write() = journal;
        let begins = mode != JournalMode::Off && !self.is_tracked();
        if begins {
            // Before anybody can be told that what was not noted is logged.
            self.log.tracked_from.store(u64::MAX, Ordering::Release);
        }
        self.log.mode.store(mode as u8, Ordering::Release);
        if begins {
            // Operations of the open txg may have been under way before the switch.
            self.log.tracked_from.store(self.txgs.gate.open_txg().0, Ordering::Release);
        }
    }

    /// Changes what the log holds, for a dataset that has one.
    pub fn set_journal_mode(&self, mode: JournalMode) {
        let journal = self.log.journal.read().clone();
        self.set_journal(journal, mode);
    }

    /// Content of the log.
    #[must_use]
    pub fn journal_mode(&self) -> JournalMode {
        JournalMode::from_u8(self.log.mode.load(Ordering::Acquire))
    }

    fn is_tracked(&self) -> bool {
        self.log.mode.load(Ordering::Relaxed) != JournalMode::Off as u8
    }

    /// True if an `fsync` is likely to be answered by the journal.
    #[must_use]
    pub fn is_journaled(&self) -> bool {
        self.is_tracked()
    }

    /// As [`Dataset::wait_durable`], without waiting: another thread may call `answer` after this
    /// returned.
    pub fn make_durable_later(&self, inode: &Arc<Inode>, answer: impl FnOnce(Result<()>) + Send + 'static) {
        let changed = inode.changed_txg();
        let is_ignored = self.env.has_bug(Bug::FsyncIgnored) || self.sync_mode() == SyncMode::Disabled;
        if is_ignored || changed <= self.txgs.commits.committed() {
            return answer(Ok(()));
        }
        let txgs = Arc::clone(&self.txgs);
        let answer: Answer = Box::new(move |durable| {
            if durable == Durable::Yes {
                return answer(Ok(()));
            }
            txgs.commits.request_sync(changed);
            // Callers that die are answered by others, so this may wait for a suspended pool too.
            let durable = loop {
                match txgs.commits.wait_committed_for(changed, LATER_LOOK) {
                    Ok(false) => {}
                    Ok(true) => break Ok(()),
                    Err(suspended) => break Err(suspended.into()),
                }
            };
            answer(durable);
        });
        // Not in the scrutinee: the lock would be held until the journal is done, which may wait
        // for a commit.
        let journal = self.log.journal.read().clone().filter(|_| self.is_tracked());
        match journal {
            Some(journal) => journal.make_durable_later(self, inode, answer),
            None => answer(Durable::CommitInstead),
        }
    }

    /// Asks the journal, if there is one.
    pub(crate) fn log_durable(
        &self,
        inode: &Arc<Inode>,
        patience: Duration,
        go_on: &dyn Fn() -> bool,
    ) -> Durable {
        if !self.is_tracked() {
            return Durable::CommitInstead;
        }
        let journal = self.log.journal.read().clone();
        journal.map_or(Durable::CommitInstead, |journal| journal.make_durable(self, inode, patience, go_on))
    }

    /// Logs all pending changes, of any caller: `journal=data` promises that about once a second.
    /// Waits for no commit. True if everything done before is durable; otherwise a commit was asked
    /// for, or is on its way.
    pub fn log_pending(&self) -> bool {
        let committed = self.txgs.commits.committed();
        if !self.has_changes() && self.last_frozen() <= committed {
            return true;
        }
        let journal = self.log.journal.read().clone().filter(|_| self.is_tracked());
        match journal.map_or(Durable::CommitInstead, |journal| journal.log_pending(self)) {
            Durable::Yes => true,
            // Frozen content belongs to the txg before. Later changes can be logged once that txg
            // is committed.
            Durable::GaveUp => false,
            Durable::CommitInstead => {
                self.txgs.commits.request_sync(self.txgs.gate.open_txg());
                false
            }
        }
    }

    /// Notes that an operation of `txg` changed an inode. Under its lock.
    pub(crate) fn note_pending(&self, txg: Txg, id: InodeId, state: &mut InodeState) {
        if self.is_tracked() && state.pending_in != txg {
            state.pending_in = txg;
            self.log.pending.lock().open.inodes.push(id);
        }
    }

    /// Notes keys of the names tree that an operation changed. Inodes that are set are noted by
    /// their number.
    pub(crate) fn note_keys(&self, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>) {
        if !self.is_tracked() {
            return;
        }
        let keys = changes.into_iter().filter(|(key, value)| value.is_none() || !is_inode_key(key));
        self.log.pending.lock().open.keys.extend(keys.map(|(key, _)| key));
    }

    /// Notes a write.
    pub(crate) fn note_written(&self, state: &mut InodeState, range: Range<u64>) {
        if self.is_tracked() {
            state.journal.get_or_insert_default().open.writes.push(range);
        }
    }

    /// Notes that a range became a hole.
    pub(crate) fn note_cut(&self, state: &mut InodeState, range: Range<u64>) {
        if self.is_tracked() && !range.is_empty() {
            state.journal.get_or_insert_default().open.cuts.push(range);
        }
    }

    /// The open txg closes: what is pending of it is the frozen one's from now on.
    pub(crate) fn freeze_pending(&self, txg: Txg) {
        if self.is_tracked() || self.log.tracked_from.load(Ordering::Relaxed) > 0 {
            let mut pending = self.log.pending.lock();
            pending.frozen = std::mem::take(&mut pending.open);
            pending.frozen_txg = txg;
        }
    }

    /// Writes down all that is pending, in a body of at most `limit` bytes. `asked` are inodes that
    /// somebody waits for; `None` is whoever changed anything. In a still moment of the gate.
    /// Nothing is cleared before [`Dataset::accept`].
    pub fn draft(&self, asked: Option<&[Arc<Inode>]>, limit: usize) -> Result<Drafted> {
        let committed = self.txgs.commits.committed();
        let mode = self.journal_mode();
        let whole = committed.0 >= self.log.tracked_from.load(Ordering::Acquire);
        if mode == JournalMode::Off || !whole || self.destroying.load(Ordering::Acquire) {
            return Ok(Drafted::CommitInstead);
        }
        let pending = self.log.pending.lock();
        let older = if pending.frozen_txg > committed { Some(&pending.frozen) } else { None };
        let generations = || std::iter::once(&pending.open).chain(older);
        let mut keys: Vec<&[u8]> = generations().flat_map(|g| g.keys.iter().map(Vec::as_slice)).collect();
        let mut ids: Vec<InodeId> = generations().flat_map(|g| g.inodes.iter().copied()).collect();
        if keys.len() + ids.len() > ITEMS_MAX {
            return Ok(Drafted::CommitInstead);
        }
        if self.has_bug(Bug::NamesNotLogged) {
            keys.clear();
        }
        keys.sort_unstable();
        keys.dedup();
        ids.sort_unstable();
        ids.dedup();

        let mut draft = Draft { body: Vec::with_capacity(8 << 10), records: 0, inodes: Vec::new() };
        // Changes of an inode that are not pending are in an earlier group.
        let is_wanted = match asked {
            Some(asked) => asked.iter().any(|inode| inode.state.lock().pending_in > committed),
            None => keys.len() + ids.len() > 0,
        };
        if !is_wanted {
            return Ok(Drafted::Nothing);
        }
        for id in ids {
            // An inode that is not in memory any more was committed, or never came to be.
            let Some(inode) = self.cached(id) else { continue };
            match self.draft_inode(&mut draft, &inode, mode, committed, limit) {
                Ok(()) => {}
                Err(Refused::TooLarge) => return Ok(Drafted::CommitInstead),
                Err(Refused::After(txg)) => return Ok(Drafted::After(txg)),
            }
        }
        for key in keys {
            match self.names.get(key)? {
                Some(_) if is_inode_key(key) => {}
                Some(value) => draft.push(&LogRecord::Set { key, value: &value }),
                None => draft.push(&LogRecord::Removed { key }),
            }
        }
        let counters = self.counters();
        draft.push(&LogRecord::Counters { files: counters.files, next_inode: counters.next_inode });
        Ok(if draft.body.len() > limit { Drafted::CommitInstead } else { Drafted::Group(draft) })
    }

    fn draft_inode(
        &self,
        draft: &mut Draft,
        inode: &Arc<Inode>,
        mode: JournalMode,
        committed: Txg,
        limit: usize,
    ) -> std::result::Result<(), Refused> {
        let state = inode.state.lock();
        if state.pending_in <= committed {
            return Ok(());
        }
        draft.inodes.push(Arc::clone(inode));
        if state.gone {
            draft.push(&LogRecord::Gone { inode: inode.id });
            return Ok(());
        }
        draft.push(&LogRecord::Inode { inode: inode.id, record: state.record });
        let Some(journal) = &state.journal else { return Ok(()) };
        let frozen = (journal.frozen_txg > committed).then_some(&journal.frozen);
        if mode == JournalMode::Writeback {
            let generations = frozen.map(|frozen| (frozen, journal.frozen_txg)).into_iter();
            for (unlogged, until) in generations.chain([(&journal.open, Txg(0))]) {
                for Range { start, end } in unlogged.cuts.ranges.iter().cloned() {
                    draft.push(&LogRecord::Cut { inode: inode.id, start, end, until });
                }
            }
            return Ok(());
        }
        let generations = || std::iter::once(&journal.open).chain(frozen);
        let written = generations().flat_map(|unlogged| &unlogged.writes.ranges);
        // Told before any of it is copied. The same bytes may count twice, which is the commit's
        // gain.
        if written.map(|range| range.end - range.start).sum::<u64>() > limit as u64 {
            return Err(Refused::TooLarge);
        }
        let mut ranges = RangeSet::default();
        let all = generations().flat_map(|u| u.writes.ranges.iter().chain(&u.cuts.ranges));
        all.for_each(|range| ranges.insert(range.clone()));
        self.draft_content(draft, inode, &state, &ranges, journal.frozen_txg, limit)
    }

    /// Content of `ranges` of a file now, as far as it is in memory.
    fn draft_content(
        &self,
        draft: &mut Draft,
        inode: &Arc<Inode>,
        state: &InodeState,
        ranges: &RangeSet,
        frozen_txg: Txg,
        limit: usize,
    ) -> std::result::Result<(), Refused> {
        let id = inode.id;
        let record_size = state.record_size();
        let frozen = inode.frozen.lock().clone();
        for range in ranges.iter() {
            let mut at = range.start;
            while at < range.end {
                let (found, until) = state.open.state_at(record_size, at);
                let mut until = until.min(range.end);
                let mut layer: &Layer = &state.open;
                let mut found = found;
                if found.is_none() {
                    let Some(frozen) = &frozen else { return Err(Refused::After(frozen_txg)) };
                    let (below, below_until) = frozen.layer.state_at(record_size, at);
                    until = until.min(below_until);
                    layer = &frozen.layer;
                    found = below;
                }
                match found {
                    // Its content is in a block to which only a commit refers.
                    Some(true) if layer.is_shared(record_size, at) => return Err(Refused::TooLarge),
                    Some(true) => {
                        let length = index(until - at);
                        if draft.body.len() + length > limit {
                            return Err(Refused::TooLarge);
                        }
                        let mut bytes = vec![0; length];
                        let missing =
                            layer.fill(record_size, at, &mut bytes, std::iter::once(at..until).collect());
                        assert!(missing.is_empty(), "the layer said that it has data here");
                        draft.push(&LogRecord::Data { inode: id, offset: at, bytes: &bytes });
                    }
                    Some(false) => {
                        draft.push(&LogRecord::Cut { inode: id, start: at, end: until, until: Txg(0) });
                    }
                    None => return Err(Refused::After(frozen_txg)),
                }
                at = until;
            }
        }
        Ok(())
    }

    /// A draft is going to be written: what it holds is pending no more. In the still moment in
    /// which it was made [journal.4].
    pub fn accept(&self, draft: &mut Draft) {
        let mut pending = self.log.pending.lock();
        (pending.open, pending.frozen) = Default::default();
        for inode in draft.inodes.drain(..) {
            let mut state = inode.state.lock();
            state.pending_in = Txg(0);
            state.journal = None;
        }
    }
}

fn is_inode_key(key: &[u8]) -> bool {
    key.len() == 9 && key[8] == 1 && key[..8] != [0; 8]
}

#[cfg(test)]
mod tests {
    use steadfast_format::file_keys::NamesKey;

    use super::*;

    #[test]
    fn keys_of_inodes_are_told_from_others() {
        assert!(is_inode_key(&NamesKey::Inode(InodeId(7)).encode()));
        assert!(!is_inode_key(&NamesKey::Head.encode()));
        assert!(!is_inode_key(&NamesKey::Orphan(InodeId(1)).encode()));
        assert!(!is_inode_key(&NamesKey::Entry { directory: InodeId(1), cookie: 1 }.encode()));
    }
}
