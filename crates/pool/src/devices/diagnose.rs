//! Judges what devices did since the last look, and takes those out of use that err too much.

use crate::core::events::EventKind;
use crate::devices::diagnosis::Cause;
use crate::devices::leaf::Leaf;
use crate::devices::state::Devices;

impl Devices {
    /// Looks at what devices did since the last look. Sync context only, between commits.
    pub(crate) fn diagnose(&self) {
        let counts = self.core.space.device_counts();
        for leaf in self.leaves().iter().filter(|leaf| leaf.in_use().is_some()) {
            let Some(counts) = counts.get(&leaf.id()) else { continue };
            // A store that is away is waited for, and is no worse afterwards.
            let is_store = leaf.device.objects().is_some();
            let io = if is_store { 0 } else { counts.read_errors + counts.write_errors };
            let slow = if is_store { 0 } else { leaf.meter.slow() };
            let totals = [io, counts.checksum_errors, slow];
            let cause = {
                let mut cases = self.diagnosis.cases.lock();
                let case = cases.entry(leaf.id()).or_default();
                // The clock is not asked for nothing.
                if !case.has_news(totals) {
                    continue;
                }
                case.observe(totals, self.core.env.clock.monotonic_ns())
            };
            if let Some(cause) = cause {
                self.condemn(leaf, cause);
            }
        }
    }

    fn condemn(&self, leaf: &Leaf, cause: Cause) {
        if cause == Cause::Io && self.core.space.give_up(leaf.id(), &cause.words()) {
            // The next commit writes it into the labels and tells it.
            self.core.health.changed.note();
            self.core.txgs.commits.request_sync(self.core.txgs.gate.open_txg());
        } else if self.diagnosis.set(leaf.id(), cause) {
            self.core.events.note(EventKind::DeviceDegraded { path: leaf.path(), reason: cause.words() });
        }
    }
}
