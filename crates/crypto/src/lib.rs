//! Keys, derivation, sealing, opening and hashing behind our own types; alone in naming a crypto
//! library.
//!
//! Primitives are composed here, never written here: AES-256-GCM, HKDF-SHA-256 and Ed25519 from
//! AWS-LC, BLAKE3 from its authors' crate, Argon2id from RustCrypto. Nothing here reads a clock or
//! draws a random number: randomness comes in as a function that fills a slice.
//!
//! Reading order: [`keys`] (what is secret), [`wrap`](mod@wrap) (how a master key is stored),
//! [`derive`](mod@derive), [`seal`] (how a block is sealed, and why no nonce repeats),
//! [`hash`](mod@hash), [`prf`], [`sign`], [`verified`] (evidence as a type).
#![forbid(unsafe_code)]

pub mod derive;
pub mod hash;
pub mod keys;
pub mod prf;
pub mod seal;
pub mod sign;
pub mod verified;
pub mod wrap;

pub use derive::derive;
pub use hash::{hash, hash_parts, keyed_hash, tags_equal};
pub use keys::{Key, KeyError, UserKey};
pub use prf::Prf;
pub use seal::{AuthError, BlockKeys, SEAL_OVERHEAD};
pub use sign::{Signer, is_signed};
pub use steadfast_format::{KdfParams, KeyFormat, Stamp, WrappedKey};
pub use verified::{Mismatch, Verified};
pub use wrap::{WrongKey, key_guid, unwrap, wrap};

/// Fills a slice with random bytes fit for keys (`env`'s `Random`, passed as a function).
pub type Fill<'a> = &'a dyn Fn(&mut [u8]);
