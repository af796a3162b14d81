//! Wrapped key: a dataset's master key, sealed with a user's key. FORMAT.md, "Wrapped key".

use crate::DecodeError;
use crate::layout::{Decoder, Encoder, Layout};

/// Form of the operator's key.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum KeyFormat {
    /// 8 to 512 bytes of text, stretched by Argon2id.
    Passphrase = 1,
    /// 32 bytes.
    Raw = 2,
    /// 64 hexadecimal digits.
    Hex = 3,
}

impl KeyFormat {
    /// The word of the property `keyformat`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            KeyFormat::Passphrase => "passphrase",
            KeyFormat::Raw => "raw",
            KeyFormat::Hex => "hex",
        }
    }

    /// The format a word names.
    #[must_use]
    pub fn from_name(name: &str) -> Option<KeyFormat> {
        [KeyFormat::Passphrase, KeyFormat::Raw, KeyFormat::Hex]
            .into_iter()
            .find(|format| format.name() == name)
    }
}

/// Cost and salt of Argon2id (RFC 9106). Decoding bounds the cost: a hostile label may waste
/// seconds, not the machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KdfParams {
    /// Memory in KiB; at least 8 a lane.
    pub memory_kib: u32,
    /// Passes over the memory.
    pub passes: u32,
    /// Lanes.
    pub lanes: u32,
    /// Random, not secret.
    pub salt: [u8; 32],
}

impl KdfParams {
    /// 1 GiB.
    pub const MEMORY_KIB_MAX: u32 = 1 << 20;
    /// Greatest number of passes.
    pub const PASSES_MAX: u32 = 16;
    /// Greatest number of lanes.
    pub const LANES_MAX: u32 = 16;

    /// Name and value of the first field out of bounds.
    #[must_use]
    pub fn out_of_bounds(&self) -> Option<(&'static str, u32)> {
        if self.lanes == 0 || self.lanes > Self::LANES_MAX {
            return Some(("kdf_lanes", self.lanes));
        }
        if self.passes == 0 || self.passes > Self::PASSES_MAX {
            return Some(("kdf_passes", self.passes));
        }
        if self.memory_kib < 8 * self.lanes || self.memory_kib > Self::MEMORY_KIB_MAX {
            return Some(("kdf_memory_kib", self.memory_kib));
        }
        None
    }
}

/// A master key sealed with AES-256-GCM under a user key.
///
/// | off | len | field          | meaning                                                     |
/// |-----|-----|----------------|-------------------------------------------------------------|
/// |   0 |   1 | suite          | 1: AES-256-GCM; Argon2id, version 0x13                      |
/// |   1 |   1 | key_format     | 1 passphrase, 2 raw, 3 hex                                  |
/// |   2 |   2 | reserved       | zero                                                        |
/// |   4 |   4 | kdf_memory_kib | Argon2id memory in KiB; zero unless passphrase              |
/// |   8 |   4 | kdf_passes     | Argon2id passes; zero unless passphrase                     |
/// |  12 |   4 | kdf_lanes      | Argon2id lanes; zero unless passphrase                      |
/// |  16 |  32 | kdf_salt       | Argon2id salt; zero unless passphrase                       |
/// |  48 |   8 | guid           | names the master key; the same after a change of user key   |
/// |  56 |  12 | nonce          | random                                                      |
/// |  68 |   4 | reserved       | zero                                                        |
/// |  72 |  48 | sealed         | master key (32) and tag (16); bytes 0 to 71 are bound in    |
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WrappedKey {
    /// Form of the operator's key.
    pub key_format: KeyFormat,
    /// How a passphrase is stretched; `None` for raw and hex keys.
    pub kdf: Option<KdfParams>,
    /// Name of the master key, derived from it.
    pub guid: u64,
    /// Nonce of the seal.
    pub nonce: [u8; 12],
    /// Sealed master key and tag.
    pub sealed: [u8; 48],
}

const SUITE: u8 = 1;

impl WrappedKey {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new(
        "wrapped_key",
        &[
            ("suite", 0, 1),
            ("key_format", 1, 1),
            ("reserved", 2, 2),
            ("kdf_memory_kib", 4, 4),
            ("kdf_passes", 8, 4),
            ("kdf_lanes", 12, 4),
            ("kdf_salt", 16, 32),
            ("guid", 48, 8),
            ("nonce", 56, 12),
            ("reserved", 68, 4),
            ("sealed", 72, 48),
        ],
        &[],
    );
    /// Bytes of an encoded wrapped key.
    pub const ENCODED_SIZE: usize = Self::LAYOUT.size();
    /// Bytes that the seal authenticates: everything before it.
    pub const BOUND_SIZE: usize = 72;

    /// The structure's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::ENCODED_SIZE] {
        assert_eq!(
            self.kdf.is_some(),
            self.key_format == KeyFormat::Passphrase,
            "only a passphrase is stretched"
        );
        let none = KdfParams { memory_kib: 0, passes: 0, lanes: 0, salt: [0; 32] };
        if let Some(kdf) = &self.kdf {
            assert_eq!(kdf.out_of_bounds(), None, "what is written can be read");
        }
        let kdf = self.kdf.unwrap_or(none);
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("suite", SUITE).u8("key_format", self.key_format as u8).reserved();
        out.u32("kdf_memory_kib", kdf.memory_kib).u32("kdf_passes", kdf.passes).u32("kdf_lanes", kdf.lanes);
        out.bytes("kdf_salt", &kdf.salt).u64("guid", self.guid).bytes("nonce", &self.nonce).reserved();
        out.bytes("sealed", &self.sealed).finish_array()
    }

    /// Reads a wrapped key of exactly [`WrappedKey::ENCODED_SIZE`] bytes.
    pub fn decode(bytes: &[u8]) -> Result<WrappedKey, DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let suite = from.u8("suite");
        if suite != SUITE {
            return Err(from.refuse("suite", suite));
        }
        let key_format = match from.u8("key_format") {
            1 => KeyFormat::Passphrase,
            2 => KeyFormat::Raw,
            3 => KeyFormat::Hex,
            other => return Err(from.refuse("key_format", other)),
        };
        from.reserved()?;
        let kdf = KdfParams {
            memory_kib: from.u32("kdf_memory_kib"),
            passes: from.u32("kdf_passes"),
            lanes: from.u32("kdf_lanes"),
            salt: from.array("kdf_salt"),
        };
        let kdf = if key_format == KeyFormat::Passphrase {
            if let Some((field, value)) = kdf.out_of_bounds() {
                return Err(from.refuse(field, value));
            }
            Some(kdf)
        } else {
            if (kdf.memory_kib, kdf.passes, kdf.lanes, kdf.salt) != (0, 0, 0, [0; 32]) {
                return Err(from.refuse("kdf_memory_kib", kdf.memory_kib));
            }
            None
        };
        let guid = from.u64("guid");
        let nonce = from.array("nonce");
        from.reserved()?;
        let sealed = from.array("sealed");
        from.finish()?;
        Ok(WrappedKey { key_format, kdf, guid, nonce, sealed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> WrappedKey {
        WrappedKey {
            key_format: KeyFormat::Passphrase,
            kdf: Some(KdfParams { memory_kib: 65_536, passes: 3, lanes: 1, salt: [5; 32] }),
            guid: 0x1122_3344_5566_7788,
            nonce: [6; 12],
            sealed: [7; 48],
        }
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        assert_eq!(WrappedKey::decode(&sample().encode()), Ok(sample()));
        let raw = WrappedKey { key_format: KeyFormat::Raw, kdf: None, ..sample() };
        assert_eq!(WrappedKey::decode(&raw.encode()), Ok(raw));
    }

    #[test]
    fn a_terabyte_of_stretching_is_refused() {
        let mut bytes = sample().encode();
        bytes[4..8].copy_from_slice(&(1_u32 << 30).to_le_bytes());
        let error = WrappedKey::decode(&bytes).unwrap_err();
        assert!(matches!(error, DecodeError::Field { field: "kdf_memory_kib", .. }), "{error}");
    }

    #[test]
    fn formats_go_by_their_words() {
        assert_eq!(KeyFormat::from_name("hex"), Some(KeyFormat::Hex));
        assert_eq!(KeyFormat::from_name("Hex"), None);
    }
}
