//! A volume as an NBD client reads and writes it.

use std::ops::Range;
use std::sync::Arc;

use steadfast_nbd::{Export, Fault};
use steadfast_pool::{DatasetHandle, SnapshotHandle};
use steadfast_posix::{Atime, Errno, Fallocate, FileSystem, Options, Usage};

/// Inode of the one file that a volume is.
const ROOT: u64 = 1;

/// A volume, or a snapshot of one, that an NBD client has opened.
pub struct OpenVolume {
    files: FileSystem,
    bytes: u64,
    block_bytes: u32,
    read_only: bool,
    /// Range that held only data at the last look for the next hole, which may be far away. A hole
    /// that was made there since is reported as data, which is correct: it reads as zeros.
    data: Range<u64>,
    /// The snapshot, if this is one. It may be destroyed while it is open.
    snapshot: Option<SnapshotHandle>,
    // Dropped last: the dataset is in use until then.
    _handle: DatasetHandle,
}

impl OpenVolume {
    /// Opens a volume, or its snapshot of that name. `None` if there is no such snapshot, or it is
    /// no volume.
    #[must_use]
    pub fn new(
        handle: DatasetHandle,
        snapshot: Option<&str>,
        usage: Arc<dyn Fn() -> Usage + Send + Sync>,
        read_only: bool,
    ) -> Option<OpenVolume> {
        let options = Options { atime: Atime::Off, usage, block_bytes: 4096 };
        let (files, snapshot) = match snapshot {
            None => (FileSystem::new(Arc::clone(handle.dataset()), options).ok()?, None),
            Some(name) => {
                let snapshot = handle.snapshots().open(name)?;
                let dataset = snapshot.with(Arc::clone)?;
                (FileSystem::of_snapshot(dataset, options), Some(snapshot))
            }
        };
        let attr = files.getattr(ROOT).ok().filter(|_| files.is_volume())?;
        let read_only = read_only || snapshot.is_some();
        let (bytes, block_bytes) = (attr.size, attr.blksize);
        Some(OpenVolume { files, bytes, block_bytes, read_only, data: 0..0, snapshot, _handle: handle })
    }

    fn ask<T>(&self, ask: impl FnOnce(&FileSystem) -> steadfast_posix::Result<T>) -> Result<T, Fault> {
        let answer = match &self.snapshot {
            None => ask(&self.files),
            // It was destroyed.
            Some(snapshot) => snapshot.with(|_| ask(&self.files)).ok_or(Fault::Shutdown)?,
        };
        answer.map_err(fault)
    }
}

fn fault(errno: Errno) -> Fault {
    match errno {
        Errno::ENOSPC | Errno::EDQUOT => Fault::NoSpace,
        Errno::EROFS | Errno::EPERM | Errno::EACCES => Fault::Perm,
        Errno::EINVAL => Fault::Invalid,
        _ => Fault::Io,
    }
}

impl Export for OpenVolume {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < out.len() {
            let count = self.ask(|files| files.read(ROOT, offset + done as u64, &mut out[done..]))?;
            if count == 0 {
                return Err(Fault::Io);
            }
            done += count;
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.ask(|files| files.write(ROOT, offset, data, false)).map(drop)
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Fault> {
        self.data = 0..0;
        self.ask(|files| files.fallocate(ROOT, Fallocate::PunchHole, offset, length, false)).map(drop)
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if self.read_only {
            return Ok(());
        }
        self.ask(|files| files.fsync(ROOT))
    }

    fn extent(&mut self, offset: u64, length: u64) -> Result<(u64, bool), Fault> {
        if self.data.contains(&offset) {
            return Ok(((self.data.end - offset).min(length), true));
        }
        let next = |data: bool| {
            let found = self.ask(|files| match files.seek(ROOT, offset, data) {
                Err(Errno::ENXIO) => Ok(None),
                found => found.map(Some),
            })?;
            Ok(found.unwrap_or(self.bytes))
        };
        let data = next(true)?;
        match data == offset {
            true => {
                let end = next(false)?;
                self.data = offset..end;
                Ok(((end - offset).min(length), true))
            }
            false => Ok(((data - offset).min(length), false)),
        }
    }
}
