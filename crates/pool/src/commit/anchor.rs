//! The anchor's place in a commit.

use crate::commit::sync::Syncer;
use crate::core::error::Result;
use steadfast_anchor::Root;
use steadfast_format::AuxClass;
use steadfast_format::LogHead;

/// Name of the feature.
pub(crate) const FEATURE: &str = "anchor";

impl Syncer {
    /// Step 8 of a commit: makes its root the only acceptable one. Until this returns, and if it
    /// fails, nothing that the root before needs may be released [anchor.2].
    pub(crate) fn move_anchor(&self, root: Root, retiring: bool) -> Result<()> {
        let Some(anchor) = self.core.anchor() else { return Ok(()) };
        let txg = root.uberblock.txg;
        if retiring {
            anchor.retire(root)?;
            // In this order: what is promised before is vouched for, and the host hears of no
            // record afterwards.
            self.zil.log.set_vouch(None);
            anchor.forget();
            *self.core.anchor.write() = None;
            self.unlist_anchor();
            return Ok(());
        }
        let named = |root: &Root| root.uberblock.log.map(|head| head.epoch);
        // The promises of a log that the new root names as well go on.
        let goes_on = anchor.held().is_some_and(|(held, _)| named(&held) == named(&root));
        anchor.advance(root, if goes_on { None } else { Some(LogHead::default()) })?;
        let anchored = anchor.held().map(|(root, _)| root.uberblock.txg);
        assert_eq!(anchored, Some(txg), "what is released next is released by the anchored root [anchor.2]");
        Ok(())
    }

    /// The labels written next list no anchor.
    pub(crate) fn unlist_anchor(&self) {
        self.core.features.write().retain(|feature| feature.name != FEATURE);
        self.devices.aux.listed.write().retain(|aux| aux.class != AuxClass::Anchor);
    }
}
