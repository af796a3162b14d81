//! Errors of a device, with the evidence.

use std::fmt;
use std::io;

/// Result with this room's error.
pub type Result<T> = std::result::Result<T, Error>;

/// An operation on a device.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Opening or finding the size.
    Open,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Flushing.
    Flush,
    /// Giving space back.
    Discard,
    /// Listing names.
    List,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Operation::Open => "open",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Flush => "flush",
            Operation::Discard => "discard",
            Operation::List => "list",
        })
    }
}

/// A fault or a refusal of one device.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused.
    #[error("{device}: {operation} at byte {offset} failed: {source}")]
    Io {
        /// Device.
        device: String,
        /// The operation.
        operation: Operation,
        /// Byte of the device, 0 where there is none.
        offset: u64,
        /// The system's number and words; [`Error::errno`] gives the number.
        source: io::Error,
    },
    /// There is no such path.
    #[error("{device}: no such file or device")]
    NotFound {
        /// Device.
        device: String,
    },
    /// The path is neither a file nor a block device, or not a directory where one is needed.
    #[error("{device}: is {found}, where {wanted} is needed")]
    WrongType {
        /// Device.
        device: String,
        /// Kind of the file found.
        found: &'static str,
        /// Kind of file wanted.
        wanted: &'static str,
    },
    /// Someone else has it open: another daemon, or a mounted file system.
    #[error("{device}: in use by {}", holder.map_or("another process".to_owned(), |id| format!("process {id}")))]
    Busy {
        /// Device.
        device: String,
        /// Process that holds the lock, where the system tells.
        holder: Option<u32>,
    },
    /// Smaller than a pool's device can be.
    #[error("{device}: {size_bytes} bytes; a device has at least {min_bytes}")]
    TooSmall {
        /// Device.
        device: String,
        /// Its size.
        size_bytes: u64,
        /// Least size.
        min_bytes: u64,
    },
    /// A place that is not on the device: the device shrank, or the place is wrong.
    #[error("{device}: {operation} of {length} bytes at byte {offset} is outside (size {size_bytes})")]
    Outside {
        /// Device.
        device: String,
        /// The operation.
        operation: Operation,
        /// First byte.
        offset: u64,
        /// Bytes.
        length: u64,
        /// Device's size.
        size_bytes: u64,
    },
    /// Opened for reading only.
    #[error("{device}: opened for reading only")]
    ReadOnly {
        /// Device.
        device: String,
    },
    /// The pool was exported or closed; others may have the device now.
    #[error("{device}: used after it was released")]
    Released {
        /// Device.
        device: String,
    },
    /// The pool does without it at present.
    #[error("{device}: is not in use")]
    NotInUse {
        /// Device.
        device: String,
    },
    /// The device takes whole segments only.
    #[error("{device}: segment {segment} cannot be appended to; this device takes whole segments")]
    NotAppendable {
        /// Device.
        device: String,
        /// Segment.
        segment: u64,
    },
    /// A name that is created once exists, with other bytes.
    #[error("{device}: {object} exists already")]
    Exists {
        /// Device.
        device: String,
        /// Name of the object.
        object: String,
    },
    /// A segment that should be there is not.
    #[error("{device}: {object} is missing")]
    Missing {
        /// Device.
        device: String,
        /// Name of the object.
        object: String,
    },
    /// An object is shorter than the read asks.
    #[error("{device}: {object} has {length} bytes, fewer than {needed}")]
    CutShort {
        /// Device.
        device: String,
        /// Name of the object.
        object: String,
        /// Bytes it has.
        length: u64,
        /// Bytes asked for.
        needed: u64,
    },
    /// An earlier flush failed; nothing is accepted until the device is opened again.
    #[error("{device}: refused, because an earlier flush failed and what it lost is unknown")]
    Poisoned {
        /// Device.
        device: String,
    },
    /// The store of objects does not answer, or takes nothing from us at present. The same request
    /// may succeed later.
    #[error("{device}: {operation} of {object} failed: {reason}")]
    Away {
        /// Device.
        device: String,
        /// The operation.
        operation: Operation,
        /// Name of the object.
        object: String,
        /// Status of the last answer, if one came.
        status: Option<u16>,
        /// The store's number of the request, if it gave one.
        request: Option<String>,
        /// The store's words.
        reason: String,
    },
    /// The store of objects refused for a reason of its own.
    #[error("{device}: {operation} of {object} failed: {reason}")]
    Store {
        /// Device.
        device: String,
        /// The operation.
        operation: Operation,
        /// Name of the object.
        object: String,
        /// The store's words.
        reason: String,
    },
}

impl Error {
    /// The system's error number, if one caused this.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Io { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }

    /// Name of the device.
    #[must_use]
    pub fn device(&self) -> &str {
        match self {
            Error::Io { device, .. }
            | Error::NotFound { device }
            | Error::WrongType { device, .. }
            | Error::Busy { device, .. }
            | Error::TooSmall { device, .. }
            | Error::Outside { device, .. }
            | Error::ReadOnly { device }
            | Error::Released { device }
            | Error::NotInUse { device }
            | Error::NotAppendable { device, .. }
            | Error::Exists { device, .. }
            | Error::Missing { device, .. }
            | Error::CutShort { device, .. }
            | Error::Poisoned { device }
            | Error::Away { device, .. }
            | Error::Store { device, .. } => device,
        }
    }

    /// Code of the message in docs/operations/messages.md.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Error::NotFound { .. } => "VDEV-MISSING",
            Error::WrongType { .. } => "VDEV-KIND",
            Error::Busy { .. } => "VDEV-IN-USE",
            Error::TooSmall { .. } => "VDEV-SMALL",
            Error::Away { .. } => "STORE-AWAY",
            error if crate::wait::is_full(error) => "HOST-FULL",
            _ => "VDEV-IO",
        }
    }

    /// Role and name of the device, for the message.
    #[must_use]
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let mut fields = vec![("device", self.device().to_owned())];
        if let Error::Away { operation, object, status, request, .. } = self {
            fields.extend([("operation", operation.to_string()), ("object", object.clone())]);
            fields.extend(status.map(|status| ("status", status.to_string())));
            fields.extend(request.iter().map(|request| ("request", request.clone())));
        }
        fields
    }
}
