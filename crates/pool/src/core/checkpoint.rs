//! The pool's checkpoint, as commits see it (ZFS: `spa_checkpoint_check`, `spa_checkpoint_sync`).
//!
//! ```text
//! wished -- the end of commit T --> kept: what T leads to stays -- commit T + 1 --> stored
//! stored -- wished away -- commit D: its root has none --> gone, and slots are free
//! ```
//!
//! ## Invariants
//! [checkpoint.1] From the end of commit T on no slot is given out that T's root names, so that
//!      root is whole when T + 1 stores it. A crash between both leaves no checkpoint.
//!      `Core::keep_wished`
//! [checkpoint.2] The labels list the feature before a root has a checkpoint, and as long as the
//!      newest root has one.
//!      `Pool::checkpoint`, `Pool::forget_checkpoint_feature`

use steadfast_format::{Checkpoint, MetaKey, Uberblock};

use crate::core::error::Result;
use crate::core::state::Core;

/// Name of the feature.
pub(crate) const FEATURE: &str = "checkpoint";

/// The operator's wish, until a commit fulfils it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wish {
    /// The root of the next commit becomes the checkpoint.
    Take,
    /// The checkpoint goes with the next commit.
    Discard,
}

/// The checkpoint, and what is to become of it.
#[derive(Default)]
pub(crate) struct Keeping {
    /// Its root.
    pub root: Option<Uberblock>,
    pub wish: Option<Wish>,
    /// The next commit stores it.
    pub dirty: bool,
}

impl Core {
    /// The checkpoint's item of the meta tree, if the commit under way changes it. All that is not
    /// kept any more is free with this commit. Sync context only.
    pub(crate) fn checkpoint_item(&self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mut keeping = self.checkpoint.lock();
        let key = MetaKey::Checkpoint.encode();
        if keeping.wish == Some(Wish::Discard) {
            *keeping = Keeping::default();
            self.space.let_go();
            return Some((key, None));
        }
        let is_due = std::mem::take(&mut keeping.dirty);
        let root = keeping.root.clone().filter(|_| is_due)?;
        Some((key, Some(Checkpoint { root }.encode().to_vec())))
    }

    /// Keeps what the root leads to that has just been committed, if that was wished for
    /// [checkpoint.1]. At the end of its commit.
    pub(crate) fn keep_wished(&self, committed: Option<&Uberblock>) -> Result<()> {
        if self.checkpoint.lock().wish != Some(Wish::Take) {
            return Ok(());
        }
        self.space.keep_all()?;
        *self.checkpoint.lock() = Keeping { root: committed.cloned(), wish: None, dirty: true };
        self.health.changed.note();
        Ok(())
    }
}
