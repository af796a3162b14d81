//! Stores of whole objects: their addresses, credentials and requests.
//!
//! Buckets are slow, may be away for an hour, and belong to somebody else. This room makes of one
//! such store something that the rooms above can call as they call a disk: a call that blocks,
//! retries what may be retried, and fails with a sentence.
//!
//! Reading order: [`location`], [`credentials`], [`client`] (promises `bucket.1` to `bucket.3`),
//! [`pace`], [`error`], [`probe`], [`meter`], [`prices`],
//! [`device`]. The async runtime is in `runtime`; nothing above this room
//! sees it.
#![forbid(unsafe_code)]

pub mod client;
pub mod credentials;
pub mod device;
pub mod error;
mod lifecycle;
pub mod location;
pub mod meter;
pub mod pace;
pub mod prices;
pub mod probe;
mod provider;
mod runtime;

pub use client::{Client, Fetch, Head, Store, Tag};
pub use credentials::{Credentials, CredentialsError, Surroundings};
pub use error::{Class, Error, Operation, Result};
pub use location::{Location, LocationError, Scheme, Style};
pub use meter::{Counts, Meter};
pub use pace::Tuning;
