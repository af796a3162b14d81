//! Anchors and parity devices in files: their paths, and the record that this host keeps of each
//! anchor.

use crate::api::{VdevClass, VdevSpec};
use crate::engine::new_devices::listed_twice;
use crate::engine::state::Engine;
use crate::engine::{devices, refuse};
use crate::refusal::{Code, Refusal};
use crate::stores;
use parking_lot::RwLock;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_anchor::{FileRegister, FileWitness, Register, Witness};
use steadfast_bucket::Tuning;
use steadfast_bucket::device::DeviceStore;
use steadfast_device::objects::Store;
use steadfast_device::{ClaimedFile, Error as DeviceError, Medium};
use steadfast_env::Clock;
use steadfast_format::{AnchorRecord, PoolGuid};
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
        let file = ClaimedFile::open(Path::new(path)).map_err(|error| match error {
            DeviceError::Io { source, .. } => source,
            DeviceError::NotFound { .. } => rustix::io::Errno::NOENT.into(),
            DeviceError::Busy { .. } => io::Error::other("it is in use"),
            other => io::Error::other(other),
        })?;
        Ok(Box::new(ParityFile::new(file)))
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

/// The path at which a command makes a register.
pub(super) struct NewRegister {
    path: PathBuf,
    was_there: bool,
}

impl NewRegister {
    /// Looks at the path, before the register is made.
    pub(super) fn at(path: &str) -> NewRegister {
        NewRegister { path: PathBuf::from(path), was_there: Path::new(path).exists() }
    }
}

/// The file or disk of a parity device, which nobody else may use until it is let go of.
#[derive(Clone)]
pub(super) struct ParityFile(Arc<RwLock<Option<ClaimedFile>>>);

impl ParityFile {
    fn new(file: ClaimedFile) -> ParityFile {
        ParityFile(Arc::new(RwLock::new(Some(file))))
    }

    fn with<T>(&self, work: impl FnOnce(&File) -> io::Result<T>) -> io::Result<T> {
        let file = self.0.read();
        let file = file.as_ref().ok_or_else(|| io::Error::other("it is not in use here any more"))?;
        work(file.file())
    }
}

impl ParityMedium for ParityFile {
    fn size(&self) -> io::Result<u64> {
        self.with(ParityMedium::size)
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.with(|file| ParityMedium::read(file, at, out))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|file| ParityMedium::write(file, at, bytes))
    }

    fn flush(&self) -> io::Result<()> {
        self.with(ParityMedium::flush)
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        self.with(|file| ParityMedium::grow(file, bytes))
    }

    fn release(&self) {
        // Waits for the transfers under way.
        *self.0.write() = None;
    }

    fn missing_for(&self, bytes: u64) -> u64 {
        self.with(|file| Ok(ParityMedium::missing_for(file, bytes))).unwrap_or(bytes)
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

    /// Opens the parity device of a device list, if it has one, for a pool that is to have it.
    /// Refuses one that is listed twice, in use, or holds other data, as of any device. A code that
    /// it holds is the pool's to refuse.
    pub(super) fn open_parity(
        &self,
        pool: &str,
        vdevs: &[VdevSpec],
        force: bool,
    ) -> Result<Option<(String, ParityFile)>, Refusal> {
        let Some(path) = Self::parity_of(vdevs) else { return Ok(None) };
        let named = Path::new(&path);
        let beside = vdevs.iter().filter(|vdev| vdev.class != VdevClass::Parity);
        let mut beside = beside.flat_map(|vdev| &vdev.devices);
        // Before it is opened: the lock on the other would make it look used.
        if let Some(medium) = Medium::of(named)
            && beside.any(|device| Medium::of(device) == Some(medium))
        {
            return Err(listed_twice(named));
        }
        let file = ClaimedFile::open(named).map_err(|error| match error {
            DeviceError::NotFound { .. } => {
                let reason = io::Error::from(rustix::io::Errno::NOENT).to_string();
                let (pool, path) = (pool.to_owned(), path.clone());
                refuse::pool(steadfast_pool::Error::ParityUnusable { pool, path, reason })
            }
            error => self.name_user(named, refuse::device(&error)),
        })?;
        devices::check_vacant(named, force)?;
        Ok(Some((path, ParityFile::new(file))))
    }

    /// Takes a register away that a command made for a pool, which is none any more, if that is
    /// there. A file that was there before becomes empty.
    pub(super) fn forget_register(&self, register: Option<NewRegister>, pool: PoolGuid) {
        let Some(NewRegister { path, was_there }) = register else { return };
        let made = FileRegister::new(&path, Arc::clone(&self.env.clock));
        let record = made.read().ok().and_then(|bytes| AnchorRecord::decode(&bytes[..]).ok());
        if record.is_some_and(|record| record.pool == pool) {
            // If it stays, the next command is refused, and says so.
            let _ = match was_there {
                true => File::options().write(true).open(&path).and_then(|file| file.set_len(0)),
                false => fs::remove_file(&path),
            };
        }
        let witness = self.anchor_wish(None).registers.and_then(|registers| registers.witness(pool));
        let _ = witness.map(|witness| witness.forget());
    }

    /// The anchor of a device list, if it has one.
    pub(super) fn anchor_of(&self, vdevs: &[VdevSpec]) -> AnchorWish {
        let mut anchors = vdevs.iter().filter(|vdev| vdev.class == VdevClass::Anchor);
        let path = anchors.next().and_then(|vdev| vdev.devices.first());
        self.anchor_wish(path.map(PathBuf::as_path))
    }
}
