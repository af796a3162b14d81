//! Work on the reference table of a pool (ZFS: DDT and BRT).

use crate::core::error::Result;
use crate::core::state::Core;
use std::collections::BTreeMap;
use std::sync::Arc;
use steadfast_format::MetaKey;
use steadfast_format::SharingRow;
use steadfast_format::meta_keys;
use steadfast_refs::ddt::LOAD_STEP;
use steadfast_refs::ddt::Wanted;

/// Rows that a commit forgets at least, however little room there is.
const FORGET_LEAST: usize = 256;

impl Core {
    /// Counts the references that operations of the txg which was frozen made, before anything is
    /// let go. [ddt.2]
    pub(crate) fn count_shares(&self, heads: &[Arc<steadfast_dataset::Dataset>]) {
        if self.references.is_enabled() {
            heads.iter().for_each(|head| head.share_frozen());
        }
    }

    /// `zpool ddtprune`: a bounded part in each commit. Durable when it returns.
    pub(crate) fn prune_known(&self, days: Option<u32>, percent: Option<u8>) -> Result<u64> {
        self.check_writable()?;
        let all = || Some(vec![meta_keys::REFERENCE]);
        let mut wanted = match (days, percent) {
            (Some(days), _) => {
                let minutes = u32::try_from(self.env.clock.wall_ns() / 60_000_000_000).unwrap_or(0);
                Wanted { before: minutes.saturating_sub(days.saturating_mul(24 * 60)), ties: u64::MAX }
            }
            (None, percent) => {
                let (mut ages, mut from) = (BTreeMap::new(), all());
                while let Some(at) = from {
                    let _turn = self.sync_turn.lock();
                    from = self.references.ages(&at, &mut ages)?;
                }
                Wanted::oldest(&ages, percent.unwrap_or(100))
            }
        };
        let (mut forgotten, mut from) = (0, all());
        while let Some(at) = from {
            let turn = self.sync_turn.lock();
            let most = self.frees_max().clamp(FORGET_LEAST, LOAD_STEP);
            let (some, next) = self.references.forget_old(&at, most, &mut wanted)?;
            drop(turn);
            (forgotten, from) = (forgotten + some, next);
            if some > 0 {
                self.commit_changes()?;
            }
        }
        self.note_done(&format!("ddtprune: {forgotten} blocks"));
        self.commit_changes()?;
        Ok(forgotten)
    }

    /// A part of filling the index, in the free time of the sync task. True if there is more to do.
    pub(crate) fn fill_index_step(&self) -> bool {
        let _turn = self.sync_turn.lock();
        // Content whose row cannot be read is stored again; the freeing of such a block tells it.
        self.references.fill_step().unwrap_or(false)
    }

    /// Reads the table's sums, and begins to fill the index.
    pub(crate) fn load_references(&self, pool: &str) -> Result<()> {
        self.references.enable(self.has_feature(steadfast_refs::ddt::FEATURE));
        if let Some(value) = self.meta.get(&MetaKey::Sharing.encode())? {
            let row = SharingRow::decode(&value).map_err(|e| self.corrupt(pool, "sums of references", e))?;
            self.references.load(&row);
            self.fill_index_step();
        }
        Ok(())
    }
}
