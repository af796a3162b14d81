//! Signatures that anybody can check: Ed25519 (RFC 8032).

use std::fmt;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};

use crate::Key;

/// Signs. The key is never printed.
pub struct Signer(Ed25519KeyPair);

/// Bytes of a public key.
pub const PUBLIC: usize = 32;
/// Bytes of a signature.
pub const SIGNATURE: usize = 64;

impl Signer {
    /// The signer of a seed, which has no other use.
    #[must_use]
    pub fn new(seed: &Key) -> Signer {
        Signer(Ed25519KeyPair::from_seed_unchecked(seed.expose()).expect("32 bytes are a seed"))
    }

    /// The key with which others check.
    #[must_use]
    pub fn public(&self) -> [u8; PUBLIC] {
        self.0.public_key().as_ref().try_into().expect("bytes of a public key")
    }

    /// Signature of a message: the same each time.
    #[must_use]
    pub fn sign(&self, message: &[u8]) -> [u8; SIGNATURE] {
        self.0.sign(message).as_ref().try_into().expect("bytes of a signature")
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

/// True if the holder of the key signed this message.
#[must_use]
pub fn is_signed(public: &[u8; PUBLIC], message: &[u8], signature: &[u8; SIGNATURE]) -> bool {
    UnparsedPublicKey::new(&ED25519, public).verify(message, signature).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::from_hex;

    /// RFC 8032, section 7.1, test 2.
    #[test]
    fn signatures_are_those_of_the_standard() {
        let seed: [u8; 32] =
            from_hex("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb").try_into().unwrap();
        let signer = Signer::new(&Key::from_bytes(seed));
        let public = from_hex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c");
        assert_eq!(signer.public().to_vec(), public);
        let signature = signer.sign(&[0x72]);
        assert_eq!(
            signature.to_vec(),
            from_hex(
                "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da\
                 085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
            )
        );
        assert!(is_signed(&signer.public(), &[0x72], &signature));
        assert_eq!(format!("{signer:?}"), "<redacted>");
    }

    #[test]
    fn another_message_key_or_signature_is_not_signed() {
        let (one, other) = (Signer::new(&Key::from_bytes([1; 32])), Signer::new(&Key::from_bytes([2; 32])));
        let signature = one.sign(b"held");
        assert!(is_signed(&one.public(), b"held", &signature));
        assert!(!is_signed(&one.public(), b"Held", &signature));
        assert!(!is_signed(&other.public(), b"held", &signature));
        assert!(!is_signed(&[0xff; 32], b"held", &signature), "no key at all");
        for at in 0..SIGNATURE {
            let mut changed = signature;
            changed[at] ^= 1;
            assert!(!is_signed(&one.public(), b"held", &changed), "byte {at}");
        }
    }
}
