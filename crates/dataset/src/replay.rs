//! Replay of the intent log: groups bring an opened dataset to the state in which they were drafted.
//!
//! Records say what is there now, so replaying a group twice, or over a newer root, changes nothing (J3); and since all that
//! a replay does is part of an open txg, a crash inside it leaves the root and the log as they were.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_format::file_keys::NamesKey;
use steadfast_format::inode::InodeRecord;
use steadfast_format::{InodeId, LogRecord, Txg};
use steadfast_txg::Cost;

use crate::dataset::Dataset;
use crate::inode::Inode;
use crate::layer::{len, record_space};
use crate::owners::owned_by;
use crate::{Error, Result};

/// Space that items of one group may take, beyond content: for each record.
const RECORD_SPACE: u64 = 4 << 10;

impl Dataset {
    /// Makes the changes of one group, over a root of txg `base`. All its records were decoded before, so that a group is
    /// replayed whole or not at all.
    pub fn replay(&self, records: &[LogRecord<'_>], base: Txg) -> Result<()> {
        let applies = |until: Txg| until.0 == 0 || base < until;
        let count = records.len() as u64;
        let cost = Cost { memory: 4096 * count, space: RECORD_SPACE * count, blocks: count };
        {
            let op = self.txgs.begin_promised(self.account(), cost)?;
            for record in records {
                match record {
                    LogRecord::Gone { inode } => self.replay_gone(op.txg(), *inode)?,
                    LogRecord::Inode { inode, record } => {
                        self.replay_inode(op.txg(), *inode, record)?;
                    }
                    LogRecord::Counters { files, next_inode } => {
                        self.files.store(*files, Ordering::Relaxed);
                        self.next_inode.fetch_max(*next_inode, Ordering::Relaxed);
                    }
                    _ => {}
                }
            }
            let items = records.iter().filter_map(|record| match record {
                LogRecord::Set { key, value } => Some((key.to_vec(), Some(value.to_vec()))),
                LogRecord::Removed { key } => Some((key.to_vec(), None)),
                _ => None,
            });
            self.batch(items.collect())?;
        }
        for record in records {
            match record {
                LogRecord::Cut { inode, start, end, until } if applies(*until) => {
                    let inode = self.inode(*inode)?;
                    let cost = Cost { memory: 4096, space: RECORD_SPACE, blocks: 2 };
                    let op = self.txgs.begin_promised(self.account(), cost)?;
                    self.cut(&op, &inode, *start..*end);
                }
                LogRecord::Data { inode, offset, bytes } => {
                    let inode = self.inode(*inode)?;
                    self.replay_data(&inode, *offset, bytes)?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn replay_gone(&self, txg: Txg, id: InodeId) -> Result<()> {
        let inode = match self.inode(id) {
            Ok(inode) => inode,
            Err(Error::NoInode(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut state = inode.state.lock();
        state.gone = true;
        state.record.size = 0;
        let record_size = state.record_size();
        if state.record.record_shift != 0 {
            state.open.cut(record_size, 0..u64::MAX);
        }
        self.mark(txg, &inode, &mut state);
        self.note_gone(txg, &mut state);
        Ok(())
    }

    fn replay_inode(&self, txg: Txg, id: InodeId, record: &InodeRecord) -> Result<()> {
        let inode = match self.inode(id) {
            Ok(inode) => inode,
            Err(Error::NoInode(_)) => {
                let new = InodeRecord { allocated: 0, ..*record };
                self.batch(vec![(NamesKey::Inode(id).encode(), Some(new.encode().to_vec()))])?;
                let inode = self.inode(id)?;
                self.owners.add_object(owned_by(record), 1);
                inode
            }
            Err(error) => return Err(error),
        };
        let mut state = inode.state.lock();
        // What it occupies is this root's to know.
        state.record = InodeRecord { allocated: state.record.allocated, ..*record };
        self.mark(txg, &inode, &mut state);
        Ok(())
    }

    fn replay_data(&self, inode: &Arc<Inode>, offset: u64, bytes: &[u8]) -> Result<()> {
        let record_size = inode.state.lock().record_size();
        let count = len(bytes);
        let records = (offset + count).div_ceil(record_size) - offset / record_size;
        let space = records * record_space(self.grain(), record_size) + (16 << 10);
        let cost = Cost { memory: count + 4096, space, blocks: records + 1 };
        let mut op = self.txgs.begin_promised(self.account(), cost)?;
        self.write(&mut op, inode, offset, bytes, false, |_| {});
        Ok(())
    }
}
