//! A register in memory, for tests and simulation, with faults.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use steadfast_format::anchor::RecordBytes;

use crate::register::{Register, RegisterError, SwapError};

/// How the next swaps go wrong.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The register does not answer, and nothing was done.
    Before,
    /// It was done, and the answer was lost.
    After,
}

/// A register in memory.
#[derive(Default)]
pub struct MemoryRegister {
    name: String,
    record: Mutex<Option<Box<RecordBytes>>>,
    faults: Mutex<Vec<Fault>>,
    swaps: AtomicU64,
    failures: AtomicU64,
}

impl MemoryRegister {
    /// An empty one.
    #[must_use]
    pub fn new(name: &str) -> MemoryRegister {
        MemoryRegister { name: name.to_owned(), ..MemoryRegister::default() }
    }

    /// The next swaps go wrong so, one after the other.
    pub fn arm(&self, faults: &[Fault]) {
        let mut armed = self.faults.lock();
        armed.extend(faults);
        armed.reverse();
    }

    /// The next swaps go well.
    pub fn disarm(&self) {
        self.faults.lock().clear();
    }

    /// Its record, whatever the faults.
    #[must_use]
    pub fn peek(&self) -> Option<Box<RecordBytes>> {
        self.record.lock().clone()
    }

    /// Puts anything there, as an operator of the register could.
    pub fn put(&self, record: Option<Box<RecordBytes>>) {
        *self.record.lock() = record;
    }

    /// Swaps that were done.
    #[must_use]
    pub fn swaps(&self) -> u64 {
        self.swaps.load(Ordering::Relaxed)
    }

    /// Swaps that went wrong.
    #[must_use]
    pub fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    fn unreachable(&self, reason: &str) -> RegisterError {
        RegisterError::Unreachable { register: self.identity(), reason: reason.to_owned() }
    }
}

impl Register for MemoryRegister {
    fn identity(&self) -> String {
        self.name.clone()
    }

    fn check_vacant(&self, replace: bool) -> Result<(), RegisterError> {
        if self.record.lock().is_none() || replace {
            return Ok(());
        }
        Err(RegisterError::Occupied { register: self.identity(), contents: "a record".to_owned() })
    }

    fn create(&self, first: &RecordBytes, replace: bool) -> Result<(), RegisterError> {
        self.check_vacant(replace)?;
        *self.record.lock() = Some(Box::new(*first));
        Ok(())
    }

    fn read(&self) -> Result<Box<RecordBytes>, RegisterError> {
        self.peek().ok_or_else(|| RegisterError::Missing { register: self.identity() })
    }

    fn swap(&self, expected: &RecordBytes, next: &RecordBytes) -> Result<(), SwapError> {
        let fault = self.faults.lock().pop();
        self.failures.fetch_add(u64::from(fault.is_some()), Ordering::Relaxed);
        if fault == Some(Fault::Before) {
            return Err(self.unreachable("no answer").into());
        }
        let mut record = self.record.lock();
        match &*record {
            None => return Err(RegisterError::Missing { register: self.identity() }.into()),
            Some(now) if **now == *next => {}
            Some(now) if **now == *expected => {
                *record = Some(Box::new(*next));
                self.swaps.fetch_add(1, Ordering::Relaxed);
            }
            Some(now) => return Err(SwapError::Lost(now.clone())),
        }
        match fault {
            Some(_) => Err(self.unreachable("the answer was lost").into()),
            None => Ok(()),
        }
    }
}
