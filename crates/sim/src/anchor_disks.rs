//! An anchor's state beside the devices: its register, and the host's memory of it.
//!
//! Both lie on a false device each, so that a crash may come before and after each of their writes.
//! A register is durable when it answers, and never torn (its file has two slots and a hash each:
//! `steadfast_anchor::file`); a witness is written without a flush, and may be behind.

use std::io;
use std::sync::Arc;

use steadfast_anchor::{RecordBytes, Register, RegisterError, SwapError, Witness};
use steadfast_device::Error;
use steadfast_format::PoolGuid;
use steadfast_pool::Registers;

use crate::disk::Disk;
use crate::log::Area;

/// Where the register and the witness of the one pool are.
pub struct AnchorDisks {
    /// Device of the register.
    pub register: Arc<Disk>,
    /// Device of the witness.
    pub witness: Arc<Disk>,
}

impl Registers for AnchorDisks {
    fn register(&self, _: &str) -> Arc<dyn Register> {
        Arc::new(Kept(Arc::clone(&self.register)))
    }

    fn witness(&self, _: PoolGuid) -> Option<Arc<dyn Witness>> {
        Some(Arc::new(Kept(Arc::clone(&self.witness))))
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
