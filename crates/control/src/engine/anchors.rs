//! Anchors and parity devices in files: their paths, and the record that this host keeps of each
//! anchor.

use crate::api::{VdevClass, VdevSpec};
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::refusal::{Code, Refusal};
use crate::stores;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_anchor::{FileRegister, FileWitness, Register, Witness};
use steadfast_bucket::Tuning;
use steadfast_bucket::device::DeviceStore;
use steadfast_device::objects::Store;
use steadfast_env::Clock;
use steadfast_format::PoolGuid;
use steadfast_pool::{AnchorWish, ParityMedium, Registers};

/// A register is a file. This host's record of it is beside the list of pools.
struct Files {
    witnesses: PathBuf,
    clock: Arc<dyn Clock>,
}

impl Registers for Files {
    fn register(&self, path: &str) -> Arc<dyn Register> {
        Arc::new(FileRegister::new(Path::new(path), Arc::clone(&self.clock)))
    }

    fn parity(&self, path: &str) -> io::Result<Box<dyn ParityMedium>> {
        let file = File::options().read(true).write(true).open(path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::other("it is in use"),
            TryLockError::Error(error) => error,
        })?;
        Ok(Box::new(file))
    }

    fn tiles(&self, address: &str) -> io::Result<Arc<dyn Store>> {
        let said = |refusal: Refusal| {
            let again = match refusal.code {
                Code::StoreKeys => {
                    " (a file is looked for again; variables are those of the daemon, read at its start)"
                }
                _ => "",
            };
            io::Error::other(refusal.what + again)
        };
        let location = stores::location(address).map_err(said)?;
        // Passes wait for it, and try again: no request waits long.
        Ok(Arc::new(DeviceStore::shared(stores::open(location, Tuning::impatient()).map_err(said)?)))
    }

    fn witness(&self, pool: PoolGuid) -> Option<Arc<dyn Witness>> {
        let name = format!("{}.seen", pool.0);
        Some(Arc::new(FileWitness::new(&self.witnesses.join(name))))
    }
}

impl Engine {
    /// Wishes about an anchor, with the files of this host.
    pub(super) fn anchor_wish(&self, path: Option<&Path>) -> AnchorWish {
        let files =
            Files { witnesses: self.runtime.witnesses().to_owned(), clock: Arc::clone(&self.env.clock) };
        AnchorWish {
            registers: Some(Arc::new(files)),
            path: path.map(|path| path.display().to_string()),
            ..AnchorWish::default()
        }
    }

    /// The path of the parity device of a device list, if it has one.
    pub(super) fn parity_of(vdevs: &[VdevSpec]) -> Option<String> {
        let mut named = vdevs.iter().filter(|vdev| vdev.class == VdevClass::Parity);
        let path = named.next().and_then(|vdev| vdev.devices.first())?;
        Some(path.display().to_string())
    }

    /// Opens the parity device that a pool is to have.
    pub(super) fn open_parity(&self, pool: &str, path: &str) -> Result<Box<dyn ParityMedium>, Refusal> {
        let registers = self.anchor_wish(None).registers.expect("those of this host");
        let unusable = |error: io::Error| steadfast_pool::Error::ParityUnusable {
            pool: pool.to_owned(),
            path: path.to_owned(),
            reason: error.to_string(),
        };
        registers.parity(path).map_err(unusable).map_err(refuse::pool)
    }

    /// The anchor of a device list, if it has one.
    pub(super) fn anchor_of(&self, vdevs: &[VdevSpec]) -> AnchorWish {
        let mut anchors = vdevs.iter().filter(|vdev| vdev.class == VdevClass::Anchor);
        let path = anchors.next().and_then(|vdev| vdev.devices.first());
        self.anchor_wish(path.map(PathBuf::as_path))
    }
}
