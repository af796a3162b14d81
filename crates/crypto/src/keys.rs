//! Secrets: 32-byte keys, and what an operator's secret becomes.

use std::fmt;

use steadfast_format::{KdfParams, KeyFormat};
use zeroize::{Zeroize, Zeroizing};

use crate::Fill;

/// 32 secret bytes. Wiped when dropped; never printed.
#[derive(Clone)]
pub struct Key(Zeroizing<[u8; 32]>);

impl Key {
    /// A fresh key.
    #[must_use]
    pub fn random(random: Fill<'_>) -> Key {
        let mut key = Key(Zeroizing::new([0; 32]));
        random(&mut *key.0);
        key
    }

    /// A key of given bytes. The caller's own copy is not wiped.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 32]) -> Key {
        Key(Zeroizing::new(bytes))
    }

    /// Moves the bytes into a key and wipes where they were.
    pub(crate) fn take(bytes: &mut [u8; 32]) -> Key {
        let key = Key(Zeroizing::new(*bytes));
        bytes.zeroize();
        key
    }

    /// The secret itself, for this room only.
    pub(crate) fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// Why an operator's secret cannot be a key. Says nothing of the secret but its length.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A passphrase that is too short or too long.
    #[error(
        "a passphrase has {} to {} bytes; this one has {length}",
        UserKey::PASSPHRASE_MIN,
        UserKey::PASSPHRASE_MAX
    )]
    PassphraseLength {
        /// Its length in bytes.
        length: usize,
    },
    /// A raw key that is not 32 bytes.
    #[error("a raw key has 32 bytes; this one has {length}")]
    RawLength {
        /// Its length in bytes.
        length: usize,
    },
    /// A hex key that is not 64 digits.
    #[error("a hex key has 64 digits; this one has {length} characters")]
    HexLength {
        /// Its length in bytes.
        length: usize,
    },
    /// A character that is not a hexadecimal digit.
    #[error("character {position} of the hex key is not a hexadecimal digit")]
    HexDigit {
        /// Which one, from 1.
        position: usize,
    },
    /// Stretching costs out of bounds.
    #[error("{field} of {value} is out of bounds")]
    KdfBounds {
        /// Which one.
        field: &'static str,
        /// Its value.
        value: u32,
    },
    /// A passphrase needs costs and a salt, the other formats have none.
    #[error("keyformat {} does not go with these stretching parameters", format.name())]
    KdfPresence {
        /// The format asked for.
        format: KeyFormat,
    },
    /// Stretching failed; memory is the usual reason.
    #[error("the passphrase could not be stretched with {memory_kib} KiB of memory")]
    Stretch {
        /// Memory asked for.
        memory_kib: u32,
    },
}

/// The key that wraps master keys, made from what the operator typed or stored, and how it was
/// made.
#[derive(Clone, Debug)]
pub struct UserKey {
    pub(crate) key: Key,
    format: KeyFormat,
    kdf: Option<KdfParams>,
}

impl UserKey {
    /// Shortest passphrase in bytes, as in ZFS.
    pub const PASSPHRASE_MIN: usize = 8;
    /// Longest passphrase in bytes, as in ZFS.
    pub const PASSPHRASE_MAX: usize = 512;

    /// Costs for a new passphrase: 64 MiB and 3 passes on one lane (RFC 9106's second choice,
    /// narrowed to one lane), with a fresh salt. Some 0.1 s.
    #[must_use]
    pub fn default_kdf(random: Fill<'_>) -> KdfParams {
        let mut salt = [0; 32];
        random(&mut salt);
        KdfParams { memory_kib: 65_536, passes: 3, lanes: 1, salt }
    }

    /// From the operator's bytes in any format. `kdf` is given exactly for passphrases (a wrapped
    /// key carries both).
    pub fn new(format: KeyFormat, secret: &[u8], kdf: Option<KdfParams>) -> Result<UserKey, KeyError> {
        match (format, kdf) {
            (KeyFormat::Passphrase, Some(kdf)) => UserKey::from_passphrase(secret, kdf),
            (KeyFormat::Raw, None) => UserKey::from_raw(secret),
            (KeyFormat::Hex, None) => UserKey::from_hex(secret),
            _ => Err(KeyError::KdfPresence { format }),
        }
    }

    /// From a passphrase, stretched by Argon2id.
    pub fn from_passphrase(passphrase: &[u8], kdf: KdfParams) -> Result<UserKey, KeyError> {
        if !(Self::PASSPHRASE_MIN..=Self::PASSPHRASE_MAX).contains(&passphrase.len()) {
            return Err(KeyError::PassphraseLength { length: passphrase.len() });
        }
        if let Some((field, value)) = kdf.out_of_bounds() {
            return Err(KeyError::KdfBounds { field, value });
        }
        let failed = |_| KeyError::Stretch { memory_kib: kdf.memory_kib };
        let params = argon2::Params::new(kdf.memory_kib, kdf.passes, kdf.lanes, Some(32)).map_err(failed)?;
        let argon = argon2::Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params);
        let mut out = [0; 32];
        let stretched = argon.hash_password_into(passphrase, &kdf.salt, &mut out).map_err(failed);
        wipe_stack();
        stretched?;
        Ok(UserKey { key: Key::take(&mut out), format: KeyFormat::Passphrase, kdf: Some(kdf) })
    }

    /// From 32 bytes.
    pub fn from_raw(raw: &[u8]) -> Result<UserKey, KeyError> {
        let mut bytes: [u8; 32] = raw.try_into().map_err(|_| KeyError::RawLength { length: raw.len() })?;
        Ok(UserKey { key: Key::take(&mut bytes), format: KeyFormat::Raw, kdf: None })
    }

    /// From 64 hexadecimal digits of either case.
    pub fn from_hex(digits: &[u8]) -> Result<UserKey, KeyError> {
        if digits.len() != 64 {
            return Err(KeyError::HexLength { length: digits.len() });
        }
        let mut bytes = Zeroizing::new([0_u8; 32]);
        for (at, &digit) in digits.iter().enumerate() {
            let value = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                b'A'..=b'F' => digit - b'A' + 10,
                _ => return Err(KeyError::HexDigit { position: at + 1 }),
            };
            bytes[at / 2] |= value << (4 * ((at + 1) % 2));
        }
        Ok(UserKey { key: Key::take(&mut bytes), format: KeyFormat::Hex, kdf: None })
    }

    /// Form of the operator's key.
    #[must_use]
    pub fn format(&self) -> KeyFormat {
        self.format
    }

    /// How it was stretched.
    #[must_use]
    pub fn kdf(&self) -> Option<KdfParams> {
        self.kdf
    }
}

/// Overwrites the stack below the caller's frame: Argon2 hashes the passphrase by BLAKE2b, whose
/// buffer of input lies there, and blake2 0.10 does not wipe it.
#[inline(never)]
fn wipe_stack() {
    let mut below = [0_u8; 32 << 10];
    below.zeroize();
    std::hint::black_box(&below);
}

#[cfg(test)]
pub(crate) fn from_hex(text: &str) -> Vec<u8> {
    assert!(text.len().is_multiple_of(2));
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("hex")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    fn cheap() -> KdfParams {
        KdfParams { memory_kib: 64, passes: 1, lanes: 1, salt: [3; 32] }
    }

    #[test]
    fn keys_are_not_printed() {
        let key = Key::from_bytes([0xab; 32]);
        assert_eq!(format!("{key:?}"), "<redacted>");
        let user = UserKey::from_raw(&[0xab; 32]).unwrap();
        let printed = format!("{user:?}");
        assert!(
            printed.contains("<redacted>") && !printed.contains("171") && !printed.contains("ab, "),
            "{printed}"
        );
    }

    #[test]
    fn hex_and_raw_make_the_same_key() {
        let raw: Vec<u8> = (0..32).map(|n| n * 7).collect();
        let digits: String = raw.iter().map(|byte| format!("{byte:02x}")).collect();
        let (a, b) = (UserKey::from_raw(&raw).unwrap(), UserKey::from_hex(digits.as_bytes()).unwrap());
        assert_eq!(a.key.expose(), b.key.expose());
        let upper = UserKey::from_hex(digits.to_uppercase().as_bytes()).unwrap();
        assert_eq!(a.key.expose(), upper.key.expose());
    }

    #[test]
    fn what_is_no_key_is_refused() {
        assert_eq!(UserKey::from_raw(&[0; 31]).unwrap_err(), KeyError::RawLength { length: 31 });
        assert_eq!(UserKey::from_hex(b"ab").unwrap_err(), KeyError::HexLength { length: 2 });
        let mut digits = [b'0'; 64];
        digits[9] = b'g';
        assert_eq!(UserKey::from_hex(&digits).unwrap_err(), KeyError::HexDigit { position: 10 });
        let short = UserKey::from_passphrase(b"1234567", cheap()).unwrap_err();
        assert_eq!(short, KeyError::PassphraseLength { length: 7 });
        let dear = KdfParams { memory_kib: u32::MAX, ..cheap() };
        let dear = UserKey::from_passphrase(b"12345678", dear).unwrap_err();
        assert!(matches!(dear, KeyError::KdfBounds { field: "kdf_memory_kib", .. }));
        assert!(UserKey::new(KeyFormat::Passphrase, b"12345678", None).is_err());
    }

    /// How often writable memory of this process holds these bytes, each changed by [`MASK`].
    #[cfg(target_os = "linux")]
    fn copies_in_memory(masked: &[u8]) -> usize {
        use std::os::unix::fs::FileExt;
        let memory = std::fs::File::open("/proc/self/mem").unwrap();
        let mut found = 0;
        for line in std::fs::read_to_string("/proc/self/maps").unwrap().lines() {
            let mut words = line.split_whitespace();
            let (range, mode) = (words.next().unwrap(), words.next().unwrap());
            let (start, end) = range.split_once('-').unwrap();
            let [start, end] = [start, end].map(|at| u64::from_str_radix(at, 16).unwrap());
            let mut held = vec![0; usize::try_from(end - start).unwrap()];
            if mode.starts_with("rw") && memory.read_exact_at(&mut held, start).is_ok() {
                let same = |(held, masked): (&u8, &u8)| held ^ MASK == *masked;
                found += held.windows(masked.len()).filter(|at| at.iter().zip(masked).all(same)).count();
            }
            held.zeroize();
        }
        found
    }

    /// Leaves a copy of the bytes in a frame that has ended, below those of later calls.
    #[inline(never)]
    fn leave(bytes: &[u8]) {
        let mut frame = [0_u8; 16 << 10];
        frame[..bytes.len()].copy_from_slice(bytes);
        std::hint::black_box(&frame);
    }

    #[cfg(target_os = "linux")]
    const MASK: u8 = 0x5a;

    #[test]
    #[cfg(target_os = "linux")]
    fn no_copy_of_a_passphrase_stays_on_the_stack() {
        // "Windmuehle-3319-Rotke", changed, so that the program itself does not hold it.
        let masked = b"\x0d\x33\x34\x3e\x37\x2f\x3f\x32\x36\x3f\x77\x69\x69\x6b\x63\x77\x08\x35\x2e\x31\x3f";
        let passphrase = Zeroizing::new(masked.iter().map(|byte| byte ^ MASK).collect::<Vec<u8>>());
        let turn = &Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                drop(UserKey::from_passphrase(&passphrase, cheap()));
                leave(&passphrase);
                drop(passphrase);
                turn.wait();
                turn.wait();
                wipe_stack();
                turn.wait();
                turn.wait();
            });
            let count = || {
                turn.wait();
                let found = copies_in_memory(&masked[6..20]);
                turn.wait();
                found
            };
            assert_eq!([count(), count()], [1, 0]);
        });
    }

    #[test]
    fn passphrase_salt_and_cost_each_change_the_key() {
        let made = |passphrase: &[u8], kdf| *UserKey::from_passphrase(passphrase, kdf).unwrap().key.expose();
        let first = made(b"12345678", cheap());
        assert_eq!(first, made(b"12345678", cheap()));
        assert_ne!(first, made(b"12345679", cheap()));
        assert_ne!(first, made(b"12345678", KdfParams { salt: [4; 32], ..cheap() }));
        assert_ne!(first, made(b"12345678", KdfParams { passes: 2, ..cheap() }));
    }
}
