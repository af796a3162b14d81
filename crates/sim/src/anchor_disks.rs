//! The trusted corner beside the devices: an anchor's register, the host's memory of it, and the
//! parity device.
//!
//! Each lies on a false device, so that a crash may come before and after each of their writes. A
//! register is durable when it answers, and never torn (its file has two slots and a hash each:
//! `steadfast_anchor::file`); a witness is written without a flush, and may be behind. A parity
//! device is a disk with a cache: its writes may be lost, land in any order, and be torn.

use std::io;
use std::sync::Arc;

use steadfast_anchor::{RecordBytes, Register, RegisterError, SwapError, Witness};
use steadfast_device::Error;
use steadfast_format::PoolGuid;
use steadfast_pool::{ParityMedium, Registers};

use crate::disk::Disk;
use crate::log::Area;

/// The trusted corner of the one pool.
pub struct Corner {
    /// Devices of the register and of the witness, if the pool has an anchor.
    pub anchor: Option<[Arc<Disk>; 2]>,
    /// Bytes for a parity device, if there are any.
    pub parity: Option<Arc<Disk>>,
}

impl Registers for Corner {
    fn parity(&self, _: &str) -> io::Result<Box<dyn ParityMedium>> {
        let disk = self.parity.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(Box::new(ParityBytes(Arc::clone(disk))))
    }

    fn register(&self, _: &str) -> Arc<dyn Register> {
        let [register, _] = self.anchor.as_ref().expect("a pool with an anchor");
        Arc::new(Kept(Arc::clone(register)))
    }

    fn witness(&self, _: PoolGuid) -> Option<Arc<dyn Witness>> {
        let [_, witness] = self.anchor.as_ref()?;
        Some(Arc::new(Kept(Arc::clone(witness))))
    }
}

/// The bytes of a parity device.
struct ParityBytes(Arc<Disk>);

impl ParityMedium for ParityBytes {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.image().size_bytes())
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(at, out).map_err(|error| io::Error::other(error.to_string()))
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write(at, bytes, Area::Parity).map_err(|error| io::Error::other(error.to_string()))
    }

    fn flush(&self) -> io::Result<()> {
        self.0.flush().map_err(|error| io::Error::other(error.to_string()))
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        match bytes <= self.size()? {
            true => Ok(()),
            false => Err(io::ErrorKind::StorageFull.into()),
        }
    }
}

/// A record at the beginning of a device.
struct Kept(Arc<Disk>);

impl Kept {
    fn record(&self) -> Result<Option<Box<RecordBytes>>, Error> {
        let mut bytes: Box<RecordBytes> = Box::new([0; _]);
        self.0.read(0, &mut bytes[..])?;
        Ok(bytes.iter().any(|byte| *byte != 0).then_some(bytes))
    }

    fn unreachable(&self, error: &Error) -> RegisterError {
        RegisterError::Unreachable { register: self.identity(), reason: error.to_string() }
    }

    fn put(&self, record: &RecordBytes) -> Result<(), RegisterError> {
        let written = self.0.write(0, record, Area::Register).and_then(|()| self.0.flush());
        written.map_err(|error| self.unreachable(&error))
    }
}

impl Register for Kept {
    fn identity(&self) -> String {
        "register".to_owned()
    }

    fn check_vacant(&self, replace: bool) -> Result<(), RegisterError> {
        match self.record().map_err(|error| self.unreachable(&error))? {
            Some(_) if !replace => {
                let (register, contents) = (self.identity(), "a record".to_owned());
                Err(RegisterError::Occupied { register, contents })
            }
            _ => Ok(()),
        }
    }

    fn create(&self, first: &RecordBytes, replace: bool) -> Result<(), RegisterError> {
        self.check_vacant(replace)?;
        self.put(first)
    }

    fn read(&self) -> Result<Box<RecordBytes>, RegisterError> {
        let record = self.record().map_err(|error| self.unreachable(&error))?;
        record.ok_or_else(|| RegisterError::Missing { register: self.identity() })
    }

    fn swap(&self, expected: &RecordBytes, next: &RecordBytes) -> Result<(), SwapError> {
        let now = self.read()?;
        if *now != *expected && *now != *next {
            return Err(SwapError::Lost(now));
        }
        Ok(self.put(next)?)
    }
}

impl Witness for Kept {
    fn recall(&self) -> Option<Box<RecordBytes>> {
        self.record().ok().flatten()
    }

    fn note(&self, record: &RecordBytes, durable: bool) -> io::Result<()> {
        let written = self.0.write(0, record, Area::Witness);
        let flushed = written.and_then(|()| if durable { self.0.flush() } else { Ok(()) });
        flushed.map_err(|error| io::Error::other(error.to_string()))
    }

    fn forget(&self) -> io::Result<()> {
        let written = self.0.write(0, &[0; std::mem::size_of::<RecordBytes>()], Area::Witness);
        written.map_err(|error| io::Error::other(error.to_string()))
    }
}
