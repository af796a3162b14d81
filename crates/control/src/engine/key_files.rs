//! Keys in files: the daemon loads them for the pools that it imports when it starts.

use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::zfs::keys::secret;
use crate::refusal::{Code, Refusal};
use crate::secret::{Key, KeyFormat, key_in_file, key_path};
use std::path::Path;
use steadfast_format::LabelConfig;
use zeroize::Zeroizing;

impl Engine {
    /// Loads the keys of a pool's file systems that lie in files. Failures are warnings.
    pub(super) fn load_key_files(&self, held: &ImportedPool) -> Vec<Refusal> {
        let names = held.pool.datasets().names().into_iter();
        names.filter_map(|name| self.load_key_file(held, &name).err()).collect()
    }

    fn load_key_file(&self, held: &ImportedPool, name: &str) -> Result<(), Refusal> {
        let info = held.pool.datasets().dataset_info(name).map_err(refuse::pool)?;
        if info.encryption_root.as_deref() != Some(name) || info.key_loaded {
            return Ok(());
        }
        let format = KeyFormat::parse(&self.value(held, name, "keyformat")?);
        let location = self.value(held, name, "keylocation")?;
        let Some(key) = format.and_then(|format| of_location(format, &location)) else { return Ok(()) };
        held.pool.datasets().load_key(name, &secret(&key?), false).map_err(refuse::pool)
    }
}

/// The key of a sealed pool, if it lies in a file.
pub(super) fn of_pool(config: &LabelConfig) -> Option<Result<Zeroizing<Vec<u8>>, Refusal>> {
    let (wrapped, location) = config.key.as_ref()?;
    let format = KeyFormat::parse(wrapped.key_format.name())?;
    Some(of_location(format, location)?.map(|key| secret(&key)))
}

fn of_location(format: KeyFormat, location: &str) -> Option<Result<Key, Refusal>> {
    let path = key_path(location)?;
    if !Path::new(path).is_file() {
        // A pipe would stop the daemon until somebody writes to it.
        let what = format!("the key file {path} does not exist, or is no regular file");
        return Some(Err(Refusal::new(Code::KeySource, what)));
    }
    Some(key_in_file(format, path))
}
