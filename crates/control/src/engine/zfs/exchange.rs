//! A mounted file system gets other content while its files stay open: a rollback, a received
//! increment.

use crate::engine::front::Mounted;
use crate::engine::state::ImportedPool;
use crate::refusal::Refusal;
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl ImportedPool {
    /// The mount of a file system, if its content can be exchanged, and where it is.
    pub(super) fn renewable(&self, name: &str) -> Option<(Arc<dyn Mounted>, PathBuf)> {
        self.reap();
        let mounts = self.mounts.lock();
        let mount = mounts.get(name).filter(|mount| mount.served.may_renew())?;
        Some((Arc::clone(&mount.served), mount.at.clone()))
    }

    /// Mounts on folders of the mount at a path: names and paths.
    pub(super) fn inner_mounts(&self, at: &Path) -> Vec<(String, PathBuf)> {
        let mounts = self.mounts.lock();
        let inside: Vec<(&String, &PathBuf)> = mounts
            .iter()
            .map(|(name, mount)| (name, &mount.at))
            .filter(|(_, place)| place.starts_with(at) && *place != at)
            .collect();
        let is_inner = |place: &Path| {
            !inside.iter().any(|(_, between)| place.starts_with(between) && place != between.as_path())
        };
        let inner = inside.iter().filter(|(_, place)| is_inner(place));
        inner.map(|(name, place)| ((*name).clone(), (*place).clone())).collect()
    }

    /// Has `change` exchange the content of a mounted file system. Gives its answer, and a refusal
    /// if the mount has no file system any more: then it was ended.
    ///
    /// # Errors
    /// `change` was not called.
    pub(super) fn exchange<T>(
        &self,
        fs: &str,
        served: &dyn Mounted,
        change: impl FnOnce() -> T,
    ) -> Result<(T, Option<Refusal>), Refusal> {
        let (mut change, mut answer) = (Some(change), None);
        let renewed = served.renew(&mut || {
            answer = change.take().map(|change| change());
            self.pool.datasets().open_dataset(fs).ok()
        });
        match (renewed, answer) {
            (Ok(()), Some(answer)) => Ok((answer, None)),
            (Err(refusal), Some(answer)) => {
                let _ = self.unmount(fs, true);
                Ok((answer, Some(refusal)))
            }
            (Err(refusal), None) => Err(refusal),
            (Ok(()), None) => unreachable!("a mount was renewed by nothing"),
        }
    }
}
