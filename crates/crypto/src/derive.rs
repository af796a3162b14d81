//! Derivation of one key from another: HKDF-SHA-256 (RFC 5869).

use aws_lc_rs::hkdf;

use crate::Key;

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// The key that `key`, `salt` and `info` make. `info` names the purpose; two purposes never share
/// one.
#[must_use]
pub fn derive(key: &Key, salt: &[u8], info: &str) -> Key {
    let mut out = [0; 32];
    hkdf(key.expose(), salt, info.as_bytes(), &mut out);
    Key::take(&mut out)
}

fn hkdf(secret: &[u8], salt: &[u8], info: &[u8], out: &mut [u8]) {
    let pseudorandom = hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret);
    let info = [info];
    let okm = pseudorandom.expand(&info, Length(out.len())).expect("fewer than 255 blocks are asked for");
    okm.fill(out).expect("as long as asked for");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::from_hex;

    #[test]
    fn rfc_5869_vectors_hold() {
        let cases = [
            (
                "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b",
                "000102030405060708090a0b0c",
                "f0f1f2f3f4f5f6f7f8f9",
                "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
            ),
            (
                "0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b",
                "",
                "",
                "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
            ),
        ];
        for (secret, salt, info, expected) in cases {
            let expected = from_hex(expected);
            let mut out = vec![0; expected.len()];
            hkdf(&from_hex(secret), &from_hex(salt), &from_hex(info), &mut out);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn salt_and_purpose_each_change_the_key() {
        let key = Key::from_bytes([1; 32]);
        let made = derive(&key, b"s", "a");
        assert_ne!(made.expose(), derive(&key, b"t", "a").expose());
        assert_ne!(made.expose(), derive(&key, b"s", "b").expose());
        assert_eq!(made.expose(), derive(&key, b"s", "a").expose());
    }
}
