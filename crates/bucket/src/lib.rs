//! Stores of whole objects: their addresses, credentials and requests.
//!
//! Buckets are slow, may be away for an hour, and belong to somebody else. This room makes of one
//! such store something that the rooms above can call as they call a disk: a call that blocks,
//! retries what may be retried, and fails with a sentence.
//!
//! Reading order: [`location`], [`credentials`].
#![forbid(unsafe_code)]

pub mod credentials;
pub mod location;

pub use credentials::{Credentials, CredentialsError};
pub use location::{Location, LocationError, Scheme, Style};
