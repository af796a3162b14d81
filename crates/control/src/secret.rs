//! Keys and passphrases on their way from a terminal to a pool.

use crate::refusal::{Code, Refusal};
use rustix::process::getuid;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use zeroize::{Zeroize, Zeroizing};

/// Bytes that are wiped when dropped and print as `<redacted>`. On the wire: hexadecimal digits.
#[derive(Clone, Eq, PartialEq)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    /// Takes the bytes over.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Secret {
        Secret(Zeroizing::new(bytes))
    }

    /// The bytes, for the one place that derives a key from them.
    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut digits = Zeroizing::new(String::with_capacity(self.0.len() * 2));
        for byte in self.0.iter() {
            for half in [byte >> 4, byte & 15] {
                digits
                    .push(char::from_digit(u32::from(half), 16).expect("half a byte is a hexadecimal digit"));
            }
        }
        serializer.serialize_str(&digits)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Secret, D::Error> {
        let digits = Zeroizing::new(String::deserialize(deserializer)?);
        // The text itself must not be quoted in the error.
        from_hex(digits.as_bytes())
            .map(Secret)
            .ok_or_else(|| de::Error::custom("a secret is not hexadecimal"))
    }
}

/// Bytes from hexadecimal digits of either case.
fn from_hex(digits: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let mut bytes = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
    for pair in digits.chunks_exact(2) {
        bytes.push(u8::try_from(value(pair[0])? << 4 | value(pair[1])?).ok()?);
    }
    Some(bytes)
}

/// Form of the user's key.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum KeyFormat {
    /// Words, 8 to 512 bytes.
    Passphrase,
    /// 32 bytes.
    Raw,
    /// 64 hexadecimal digits.
    Hex,
}

impl KeyFormat {
    /// From the property's value; `None` for `none` and anything unknown.
    #[must_use]
    pub fn parse(text: &str) -> Option<KeyFormat> {
        match text {
            "passphrase" => Some(KeyFormat::Passphrase),
            "raw" => Some(KeyFormat::Raw),
            "hex" => Some(KeyFormat::Hex),
            _ => None,
        }
    }

    /// The property's value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            KeyFormat::Passphrase => "passphrase",
            KeyFormat::Raw => "raw",
            KeyFormat::Hex => "hex",
        }
    }
}

/// A user's key, checked for its format: a passphrase as typed, or 32 bytes (hexadecimal keys
/// arrive decoded).
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Key {
    /// How it was given.
    pub format: KeyFormat,
    /// Passphrase, or 32 bytes.
    pub secret: Secret,
}

/// Longest input of a key. The longest passphrase has 512 bytes.
pub const INPUT_BYTES_MAX: u64 = 1024;

/// Path of the file that a keylocation names, if it names one.
#[must_use]
pub fn key_path(location: &str) -> Option<&str> {
    location.strip_prefix("file://").filter(|path| path.starts_with('/'))
}

/// Reads a key from a file.
///
/// # Errors
/// [`Code::KeySource`], [`Code::KeyFormat`].
pub fn key_in_file(format: KeyFormat, path: &str) -> Result<Key, Refusal> {
    let mut input = Zeroizing::new(Vec::with_capacity(INPUT_BYTES_MAX as usize + 1));
    let unsafe_to_use = |why: String| {
        Err(Refusal::new(Code::KeyFileOpen, format!("the key file {path} {why}")).with("file", path))
    };
    let read = File::open(path).and_then(|file| {
        let found = file.metadata()?;
        // Of a device or a pipe nobody but its writer can say.
        let writers = if found.is_file() { writers(&found) } else { None };
        Ok((file.take(INPUT_BYTES_MAX + 1).read_to_end(&mut input)?, writers))
    });
    let read = match read {
        Ok((_, Some(why))) => return unsafe_to_use(why),
        Ok((bytes, None)) => Ok(bytes),
        Err(error) => Err(error),
    };
    match read {
        Ok(bytes) if bytes as u64 <= INPUT_BYTES_MAX => Key::from_input(format, input)
            .map_err(|error| Refusal::new(Code::KeyFormat, format!("the key file {path}: {error}"))),
        Ok(_) => Err(Refusal::new(Code::KeySource, format!("the key file {path} is too long"))),
        Err(error) => {
            Err(Refusal::new(Code::KeySource, format!("the key file {path} cannot be read: {error}")))
        }
    }
}

/// Users other than root and this one who may change a file, if there are any.
fn writers(file: &fs::Metadata) -> Option<String> {
    let own = getuid().as_raw();
    match (file.uid(), file.mode() & 0o7777) {
        (uid, _) if uid != own && uid != 0 => Some(format!("belongs to user {uid}")),
        (_, mode) if mode & 0o002 != 0 => Some(format!("may be changed by every user (mode {mode:04o})")),
        (_, mode) if mode & 0o020 != 0 => Some(format!("may be changed by its group (mode {mode:04o})")),
        _ => None,
    }
}

/// Why bytes are not a key of their format. Says nothing about the bytes but their number.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// A passphrase of the wrong length.
    #[error("a passphrase must have 8 to 512 bytes, not {bytes}")]
    PassphraseLength {
        /// Bytes given.
        bytes: usize,
    },
    /// A raw key of the wrong length.
    #[error("a raw key must have 32 bytes, not {bytes}")]
    RawLength {
        /// Bytes given.
        bytes: usize,
    },
    /// Not 64 hexadecimal digits.
    #[error("a hex key must have 64 hexadecimal digits; this one has {bytes} bytes, or other characters")]
    Hex {
        /// Bytes given.
        bytes: usize,
    },
}

/// Shortest passphrase in bytes.
pub const PASSPHRASE_BYTES_MIN: usize = 8;
/// Longest passphrase in bytes.
pub const PASSPHRASE_BYTES_MAX: usize = 512;
/// Bytes of a raw key.
pub const RAW_KEY_BYTES: usize = 32;

impl Key {
    /// Makes a key of what was typed or read. One line ending after a passphrase or hexadecimal key
    /// is no part of it.
    ///
    /// # Errors
    /// [`KeyError`] where the bytes do not fit the format.
    pub fn from_input(format: KeyFormat, mut input: Zeroizing<Vec<u8>>) -> Result<Key, KeyError> {
        if format != KeyFormat::Raw {
            if input.last() == Some(&b'\n') {
                input.pop();
            }
            if input.last() == Some(&b'\r') {
                input.pop();
            }
        }
        let bytes = input.len();
        let secret = match format {
            KeyFormat::Passphrase if !(PASSPHRASE_BYTES_MIN..=PASSPHRASE_BYTES_MAX).contains(&bytes) => {
                return Err(KeyError::PassphraseLength { bytes });
            }
            KeyFormat::Raw if bytes != RAW_KEY_BYTES => return Err(KeyError::RawLength { bytes }),
            KeyFormat::Passphrase | KeyFormat::Raw => Secret(input),
            KeyFormat::Hex if bytes != 2 * RAW_KEY_BYTES => return Err(KeyError::Hex { bytes }),
            KeyFormat::Hex => Secret(from_hex(&input).ok_or(KeyError::Hex { bytes })?),
        };
        Ok(Key { format, secret })
    }

    /// Checks a key that came over the socket.
    ///
    /// # Errors
    /// [`KeyError`] where the bytes do not fit the format.
    pub fn check(&self) -> Result<(), KeyError> {
        let bytes = self.secret.expose().len();
        match self.format {
            KeyFormat::Passphrase if !(PASSPHRASE_BYTES_MIN..=PASSPHRASE_BYTES_MAX).contains(&bytes) => {
                Err(KeyError::PassphraseLength { bytes })
            }
            KeyFormat::Raw | KeyFormat::Hex if bytes != RAW_KEY_BYTES => Err(KeyError::RawLength { bytes }),
            _ => Ok(()),
        }
    }
}

/// Wipes a string that held a secret.
pub(crate) fn wipe(mut text: String) {
    text.zeroize();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(format: KeyFormat, input: &[u8]) -> Result<Key, KeyError> {
        Key::from_input(format, Zeroizing::new(input.to_vec()))
    }

    #[test]
    fn a_secret_prints_as_redacted() {
        let key = key(KeyFormat::Passphrase, b"correct horse\n").unwrap();
        let printed = format!("{key:?} {:#?}", Some(&key));
        assert!(printed.contains("<redacted>") && !printed.contains("horse"), "{printed}");
    }

    #[test]
    fn a_secret_survives_the_wire() {
        let key = key(KeyFormat::Raw, &[0xA5; 32]).unwrap();
        let line = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<Key>(&line).unwrap(), key);
        let error = serde_json::from_str::<Key>(r#"{"format":"raw","secret":"topsecretXYZ"}"#).unwrap_err();
        assert!(!error.to_string().contains("XYZ"), "{error}");
    }

    #[test]
    fn the_passphrase_of_the_source_reports_is_long_enough() {
        assert_eq!(key(KeyFormat::Passphrase, b"12345678\n").unwrap().secret.expose(), b"12345678");
        assert_eq!(key(KeyFormat::Passphrase, b"1234567\n"), Err(KeyError::PassphraseLength { bytes: 7 }));
        assert!(key(KeyFormat::Passphrase, &[b'x'; 513]).is_err());
    }

    #[test]
    fn a_key_file_that_others_may_change_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let path = std::env::temp_dir().join(format!("steadfast-key-{}", std::process::id()));
        fs::write(&path, [7; 32]).unwrap();
        for (mode, is_safe) in [(0o600, true), (0o644, true), (0o664, false), (0o602, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = key_in_file(KeyFormat::Raw, path.to_str().unwrap());
            let code = read.as_ref().err().map(|refusal| refusal.code);
            assert_eq!(code, (!is_safe).then_some(Code::KeyFileOpen), "{mode:o}: {read:?}");
        }
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_was_taken_out_of_a_line_is_wiped() {
        use std::io::BufRead;
        let sent = b"a secret\nrest";
        let mut stream = crate::wire::Forgetful::new(&sent[..]);
        let line = crate::wire::read_line(&mut stream, 100).unwrap();
        assert_eq!(line.as_deref(), Some("a secret"));
        assert_eq!(stream.fill_buf().unwrap(), b"rest");
        assert_eq!(stream.taken(), [0; 9]);
    }

    #[test]
    fn hex_and_raw_keys_have_one_length() {
        let hex = key(KeyFormat::Hex, "aB".repeat(32).as_bytes()).unwrap();
        assert_eq!(hex.secret.expose(), [0xAB; 32]);
        assert!(hex.check().is_ok());
        assert!(key(KeyFormat::Hex, "xy".repeat(32).as_bytes()).is_err());
        assert!(key(KeyFormat::Hex, b"abcd").is_err());
        assert_eq!(key(KeyFormat::Raw, &[1; 33]), Err(KeyError::RawLength { bytes: 33 }));
        // A raw key may end in any byte, a line ending among them.
        assert!(key(KeyFormat::Raw, &[b'\n'; 32]).is_ok());
    }
}
