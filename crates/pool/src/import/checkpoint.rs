//! The checkpoint at import: which segments it needs, and the way back to it (ZFS:
//! `spa_ld_checkpoint_rewind`).
//!
//! A pool that is taken back opens the trees of the checkpoint's root and goes on behind the newest
//! one: the next txg, the ids of segments and datasets behind all that were given out, an epoch of
//! the intent log of its own, and the newest uberblock as parent. So the newest root counts until
//! the first commit is durable, a crash before that changes nothing, and for an anchor the way back
//! is a commit like any other: its register never holds an older root than before.
//!
//! ## Invariants
//! [checkpoint.3] All that is read of the checkpoint is proved: its row stands in the meta tree of
//!      the newest root, which the anchor vouches for.
//! [checkpoint.4] No slot that the newest root names is used before the first commit of a pool that
//!      is taken back.
//!      `Space::load_left`
//! [checkpoint.5] Promises of the intent log behind the newest root go with it: nothing is replayed
//!      over an earlier state.
//!      `Rooted::load`

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use steadfast_blockio::{BlockIo, ReadContext};
use steadfast_crypto::BlockKeys;
use steadfast_env::Env;
use steadfast_format::{
    Checkpoint, CommitTail, DatasetId, LabelConfig, MetaKey, RelocationRow, SegmentId, SegmentRow, Uberblock,
    meta_keys,
};
use steadfast_refs::blocks::MetaStore;
use steadfast_segment::Space;
use steadfast_tree::{NodeCache, Options, Tree};

use crate::core::checkpoint::FEATURE;
use crate::core::error::{Error, Result};
use crate::devices::leaf::Leaf;
use crate::import::create::Plan;
use crate::import::root::exhausted;
use crate::memory::Memory;

/// Nodes kept while a table is read once.
const NODE_BYTES: usize = 4 << 20;

/// A pool that is being imported, as far as all its roots share it.
#[derive(Clone, Copy)]
pub(crate) struct Medium<'a> {
    pub env: &'a Env,
    pub config: &'a LabelConfig,
    pub leaves: &'a [Arc<Leaf>],
    pub memory: Memory,
    /// Keys of the pool's own metadata, if it is sealed.
    pub keys: Option<&'a Arc<BlockKeys>>,
}

/// A root whose commit tail was read: its meta tree can be.
pub(crate) struct Seen {
    pub tail: CommitTail,
    pub space: Arc<Space>,
    pub blockio: Arc<BlockIo>,
}

/// Segments of another root than the one that is opened.
pub(crate) enum Beside {
    /// Of the checkpoint, which keeps them.
    Kept(Vec<(SegmentId, SegmentRow)>),
    /// Of the newest root, while the checkpoint is opened; and the id behind them.
    Left(Vec<(SegmentId, SegmentRow)>, SegmentId),
}

impl Medium<'_> {
    /// Reads the commit tail of a root from the places that it names.
    pub fn see(&self, uberblock: &Uberblock) -> Result<Seen> {
        let name = || self.config.name.clone();
        let (space, blockio) = Plan::space_of(self.env, self.config, self.leaves, self.memory);
        space.set_healing(false);
        let bad = |reason: String| Error::BadRoot {
            pool: name(),
            txg: uberblock.txg,
            reason: format!("commit tail: {reason}"),
        };
        let context = ReadContext {
            dataset: DatasetId(0),
            family: DatasetId(0),
            keys: self.keys.map(|keys| &**keys),
            cache: false,
        };
        let bootstrap = space.bootstrap(&uberblock.tail, uberblock.tail_places.clone());
        bootstrap.map_err(|error| bad(error.to_string()))?;
        let block = blockio.read(&uberblock.tail, &context).map_err(|error| match &error {
            steadfast_blockio::Error::Bad(fault) if fault.is_away() => Error::Block(error),
            _ => bad(error.to_string()),
        })?;
        let tail = CommitTail::decode(&block).map_err(|source| Error::Corrupt {
            pool: name(),
            what: "commit tail",
            source,
        })?;
        if tail.txg != uberblock.txg {
            return Err(bad(format!("it is of txg {}", tail.txg)));
        }
        if let Some(reason) = exhausted(&tail) {
            return Err(bad(reason));
        }
        space.load_tail(&tail, &uberblock.tail).map_err(|error| bad(error.to_string()))?;
        Ok(Seen { tail, space, blockio })
    }

    fn meta(&self, seen: &Seen, root: &Uberblock) -> Tree {
        let store = MetaStore {
            blockio: Arc::clone(&seen.blockio),
            keys: self.keys.cloned(),
            syncing: Arc::new(AtomicU64::new(root.txg.0)),
        };
        Tree::open(Arc::new(store), NodeCache::new(NODE_BYTES), Some(root.meta), Options::META)
    }

    /// The checkpoint that a root has.
    pub fn checkpoint(&self, seen: &Seen, root: &Uberblock) -> Result<Option<Uberblock>> {
        if !self.config.features.iter().any(|feature| feature.name == FEATURE) {
            return Ok(None);
        }
        let value = self.meta(seen, root).get(&MetaKey::Checkpoint.encode())?;
        let corrupt =
            |source| Error::Corrupt { pool: self.config.name.clone(), what: "the checkpoint", source };
        let found = value.map(|value| Checkpoint::decode(&value)).transpose().map_err(corrupt)?;
        let Some(Checkpoint { root: found }) = found else { return Ok(None) };
        if found.pool != self.config.pool || found.txg >= root.txg || found.keyed != root.keyed {
            let reason = "its checkpoint is none of its earlier roots".to_owned();
            return Err(Error::BadRoot { pool: self.config.name.clone(), txg: root.txg, reason });
        }
        Ok(Some(found))
    }

    /// All segments of a root, read completely.
    pub fn rows(&self, seen: &Seen, root: &Uberblock) -> Result<Vec<(SegmentId, SegmentRow)>> {
        let pool = || self.config.name.clone();
        let bad = |error: steadfast_segment::TableError| Error::BadTable {
            pool: pool(),
            reason: format!("of txg {}: {error}", root.txg),
        };
        let meta = self.meta(seen, root);
        for item in meta.range([meta_keys::SEGMENT]..[meta_keys::SEGMENT + 1]) {
            let (key, value) = item?;
            let Some(MetaKey::Segment(id)) = MetaKey::decode(&key) else { continue };
            let row = SegmentRow::decode(&value).map_err(|source| Error::Corrupt {
                pool: pool(),
                what: "a segment row",
                source,
            })?;
            seen.space.load_rows([(id, row)]).map_err(bad)?;
        }
        for item in meta.range([meta_keys::RELOCATION]..[meta_keys::RELOCATION + 1]) {
            let (key, value) = item?;
            let Some(MetaKey::Relocation(id, unit)) = MetaKey::decode(&key) else { continue };
            let run = RelocationRow::decode(&value).map_err(|source| Error::Corrupt {
                pool: pool(),
                what: "a relocation row",
                source,
            })?;
            seen.space.load_runs([((id, unit), run)]).map_err(bad)?;
        }
        seen.space.finish_load().map_err(bad)?;
        Ok(seen.space.rows())
    }
}
