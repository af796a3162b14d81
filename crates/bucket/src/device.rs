//! A store as the pool's device wants it: the nine calls of [`crate::Store`] as the few of
//! [`steadfast_device::objects::Store`], and failures as that room names them.

use std::fs::File;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use steadfast_device::objects::ObjectRange;
use steadfast_device::{Buffer, Error as DeviceError, Operation as DeviceOperation, Result as DeviceResult};

use crate::{Class, Client, Error, Fetch, Operation, Store};

/// A store that holds a pool's device.
pub struct DeviceStore {
    client: Client,
    /// Held for the lock on a folder, which goes with it.
    claim: Mutex<Option<File>>,
}

impl DeviceStore {
    /// Takes a store for use by this handle alone. A folder is locked, as an image is; a bucket
    /// cannot be, and epochs fence its writers.
    ///
    /// # Errors
    /// Another process uses the folder.
    pub fn exclusive(client: Client) -> DeviceResult<DeviceStore> {
        let claim = client.location().folder().map(|folder| {
            let identity = client.address();
            let failed = |source| DeviceError::Io {
                device: identity.clone(),
                operation: DeviceOperation::Open,
                offset: 0,
                source,
            };
            let lock = File::open(folder).map_err(failed)?;
            match lock.try_lock() {
                Ok(()) => Ok(lock),
                Err(std::fs::TryLockError::WouldBlock) => {
                    Err(DeviceError::Busy { device: identity.clone(), holder: None })
                }
                Err(std::fs::TryLockError::Error(error)) => Err(failed(error)),
            }
        });
        Ok(DeviceStore { client, claim: Mutex::new(claim.transpose()?) })
    }

    /// Looks at a store that others may use.
    #[must_use]
    pub fn shared(client: Client) -> DeviceStore {
        DeviceStore { client, claim: Mutex::new(None) }
    }
}

impl DeviceStore {
    /// The error of a range that was not all there.
    fn cut_short(&self, object: &str, needed: u64) -> DeviceError {
        let (device, object) = (self.client.address(), object.to_owned());
        match self.client.head(&object) {
            Ok(Some(head)) => DeviceError::CutShort { device, object, length: head.size, needed },
            Ok(None) => DeviceError::Missing { device, object },
            Err(error) => device_error(&error),
        }
    }
}

fn device_error(error: &Error) -> DeviceError {
    let (device, object) = (error.device.clone(), error.object.clone());
    if error.class == Class::Missing {
        return DeviceError::Missing { device, object };
    }
    let operation = match error.operation {
        Operation::Create | Operation::Put | Operation::Replace => DeviceOperation::Write,
        Operation::Get | Operation::Head => DeviceOperation::Read,
        Operation::List => DeviceOperation::List,
        Operation::Delete => DeviceOperation::Discard,
        _ => DeviceOperation::Open,
    };
    let reason = error.reason();
    if error.class.may_pass() {
        let (status, request) = (error.status, error.request_id.clone());
        return DeviceError::Away { device, operation, object, status, request, reason };
    }
    DeviceError::Store { device, operation, object, reason }
}

/// Outcome of a create.
fn created(result: crate::Result<()>) -> DeviceResult<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.class == Class::Exists => Ok(false),
        Err(error) => Err(device_error(&error)),
    }
}

/// Memory of a segment, as the library takes it.
struct Shared(Arc<Buffer>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl steadfast_device::objects::Store for DeviceStore {
    fn identity(&self) -> String {
        self.client.address()
    }

    fn create(&self, name: &str, bytes: &[u8]) -> DeviceResult<bool> {
        created(self.client.create(name, bytes))
    }

    fn create_shared(&self, name: &str, bytes: &Arc<Buffer>) -> DeviceResult<bool> {
        created(self.client.create_shared(name, Bytes::from_owner(Shared(Arc::clone(bytes)))))
    }

    fn refuses(&self, name: &str) -> DeviceResult<bool> {
        self.client.refuses(name).map_err(|error| device_error(&error))
    }

    fn read(&self, name: &str, range: Option<Range<u64>>) -> DeviceResult<Vec<u8>> {
        let Some(range) = range else {
            return match self.client.get(name) {
                Ok((bytes, _)) => Ok(bytes),
                Err(error) => Err(device_error(&error)),
            };
        };
        let length = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
        let mut out = vec![0; length];
        let mut ranges =
            [ObjectRange { object: name, offset: range.start, outs: vec![&mut out], outcome: Ok(()) }];
        self.read_ranges(&mut ranges);
        let [ObjectRange { outcome, .. }] = ranges;
        outcome.map(|()| out)
    }

    fn read_each(&self, names: &[String]) -> Vec<DeviceResult<Vec<u8>>> {
        let answers = self.client.get_each(names).into_iter();
        answers.map(|answer| answer.map_err(|error| device_error(&error))).collect()
    }

    fn read_ranges(&self, ranges: &mut [ObjectRange<'_>]) {
        let mut fetches: Vec<Fetch<'_>> = ranges
            .iter_mut()
            .map(|range| {
                let (object, offset) = (range.object, range.offset);
                let outs = range.outs.iter_mut().map(|out| &mut **out).collect();
                Fetch { object, offset, outs, outcome: Ok(()) }
            })
            .collect();
        self.client.get_ranges(&mut fetches);
        let outcomes: Vec<_> = fetches.into_iter().map(|fetch| fetch.outcome).collect();
        for (range, outcome) in ranges.iter_mut().zip(outcomes) {
            let end = range.offset + range.bytes() as u64;
            range.outcome = outcome.map_err(|error| match error.class {
                Class::Short => self.cut_short(range.object, end),
                _ => device_error(&error),
            });
        }
    }

    fn list(&self, folder: &str) -> DeviceResult<Vec<String>> {
        match self.client.list(folder) {
            Ok(heads) => Ok(heads.into_iter().map(|head| head.object).collect()),
            Err(error) => Err(device_error(&error)),
        }
    }

    fn delete(&self, names: &[String]) -> DeviceResult<()> {
        self.client.delete(names).map_err(|error| device_error(&error))
    }

    fn release(&self) {
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
