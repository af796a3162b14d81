//! Features of a pool: what it may use from now on.

use crate::Pool;
use crate::core::error::Error;
use crate::core::error::Result;
use crate::devices::groups;
use steadfast_format::Feature;
use steadfast_refs::ddt;

impl Pool {
    /// Lets the pool use a feature from now on. Durable when it returns; a pool that uses it
    /// already stays as it is.
    pub fn enable_feature(&self, name: &str) -> Result<()> {
        self.core.check_writable()?;
        let unknown = || Error::UnknownFeature { pool: self.core.name(), feature: name.to_owned() };
        // Sealing is decided when a pool is made: what lies open on its devices cannot be sealed
        // afterwards. An anchor comes and goes with its register.
        let feature =
            Feature::known(name).filter(|_| !Feature::STRUCTURAL.contains(&name)).ok_or_else(unknown)?;
        let _turn = self.core.sync_turn.lock();
        if self.core.features.read().contains(&feature) {
            return Ok(());
        }
        self.core.features.write().push(feature);
        let written = self
            .devices
            .write_labels_or(&[], || self.core.features.write().retain(|known| known.name != name));
        for head in self.core.heads() {
            head.allow_overlays(self.core.has_feature("overlays"));
        }
        self.core.references.enable(self.core.has_feature(ddt::FEATURE));
        if name == groups::UNEVEN {
            self.core.space.set_uneven(self.core.has_feature(name));
            self.core.update_limits();
        }
        let open: Vec<_> = self.core.heads().into_iter().map(|head| (head.id(), head)).collect();
        open.iter().for_each(|(id, head)| {
            self.datasets.connect_log(*id, head);
            self.datasets.watch_owners(*id, head);
        });
        written
    }
}
