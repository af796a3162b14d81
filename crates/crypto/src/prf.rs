//! A pseudorandom function on blocks of 16 bytes: AES-256. Outputs for different inputs look
//! independent, up to the birthday bound of a permutation (n² / 2^129 for n inputs).

use std::fmt;

use aws_lc_rs::cipher::{AES_256, EncryptingKey, EncryptionContext, UnboundCipherKey};

use crate::Key;

/// AES-256 under one key. The key is wiped when it is dropped, and never printed.
pub struct Prf(EncryptingKey);

impl Prf {
    /// Bytes of an input and of an output.
    pub const BLOCK: usize = 16;

    /// The function of `key`, which has no other use.
    #[must_use]
    pub fn new(key: &Key) -> Prf {
        let key = UnboundCipherKey::new(&AES_256, key.expose()).expect("32 bytes are an AES-256 key");
        Prf(EncryptingKey::ecb(key).expect("AES works on single blocks"))
    }

    /// Replaces each block by its output.
    pub fn fill(&self, blocks: &mut [[u8; Self::BLOCK]]) {
        let done = self.0.less_safe_encrypt(blocks.as_flattened_mut(), EncryptionContext::None);
        done.expect("whole blocks and no nonce");
    }

    /// The output for one block.
    #[must_use]
    pub fn block(&self, input: [u8; Self::BLOCK]) -> [u8; Self::BLOCK] {
        let mut block = [input];
        self.fill(&mut block);
        block[0]
    }
}

impl fmt::Debug for Prf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<redacted>")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::from_hex;

    /// FIPS 197, appendix C.3.
    #[test]
    fn the_function_is_aes_256() {
        let key = Key::from_bytes(std::array::from_fn(|at| u8::try_from(at).expect("small")));
        let prf = Prf::new(&key);
        let input: [u8; 16] = from_hex("00112233445566778899aabbccddeeff").try_into().unwrap();
        let expected = from_hex("8ea2b7ca516745bfeafc49904b496089");
        assert_eq!(prf.block(input).to_vec(), expected);
        let mut many = [input, [0; 16], input];
        prf.fill(&mut many);
        assert_eq!((many[0].to_vec(), many[2]), (expected, many[0]));
        assert_ne!(many[1], many[0]);
        assert_eq!(format!("{prf:?}"), "<redacted>");
    }
}
