//! Master keys at rest: sealed with AES-256-GCM under a user key.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use steadfast_format::WrappedKey;
use zeroize::Zeroizing;

use crate::{Fill, Key, UserKey, derive};

/// The user key is not the one this master key was wrapped with, or the wrapped key or what it is
/// bound to was changed: the two cannot be told apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the key does not open it")]
pub struct WrongKey;

/// Name of a master key: the same for the same key whatever wraps it; tells nothing of the key.
/// Never 0.
#[must_use]
pub fn key_guid(master: &Key) -> u64 {
    let made = derive(master, &[], "steadfast key guid v1");
    let guid = u64::from_le_bytes(made.expose()[..8].try_into().expect("eight bytes"));
    guid.max(1)
}

/// Seals `master` for the holder of `user`. `aad` says where the result belongs (pool, dataset) and
/// must be given again to open it. The nonce is random: a user key wraps few keys, far below GCM's
/// bound of 2^32.
#[must_use]
pub fn wrap(user: &UserKey, master: &Key, aad: &[u8], random: Fill<'_>) -> WrappedKey {
    let mut nonce = [0; 12];
    random(&mut nonce);
    let mut wrapped = WrappedKey {
        key_format: user.format(),
        kdf: user.kdf(),
        guid: key_guid(master),
        nonce,
        sealed: [0; 48],
    };
    let mut body = Zeroizing::new(*master.expose());
    let aad = Aad::from(bound(&wrapped, aad));
    let nonce = Nonce::assume_unique_for_key(nonce);
    let tag =
        cipher(user).seal_in_place_separate_tag(nonce, aad, &mut *body).expect("32 bytes can be sealed");
    wrapped.sealed[..32].copy_from_slice(&*body);
    wrapped.sealed[32..].copy_from_slice(tag.as_ref());
    wrapped
}

/// Opens a wrapped key with the user key and the `aad` it was wrapped with.
pub fn unwrap(user: &UserKey, wrapped: &WrappedKey, aad: &[u8]) -> Result<Key, WrongKey> {
    if (user.format(), user.kdf()) != (wrapped.key_format, wrapped.kdf) {
        return Err(WrongKey);
    }
    let mut body = Zeroizing::new(wrapped.sealed);
    let aad = Aad::from(bound(wrapped, aad));
    let nonce = Nonce::assume_unique_for_key(wrapped.nonce);
    let opened = cipher(user).open_in_place(nonce, aad, &mut *body).map_err(|_| WrongKey)?;
    let key = Key::take(opened.try_into().expect("32 bytes were sealed"));
    if key_guid(&key) == wrapped.guid { Ok(key) } else { Err(WrongKey) }
}

fn cipher(user: &UserKey) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, user.key.expose()).expect("32 bytes are an AES-256 key"))
}

/// Bytes that the seal authenticates besides the key: the structure's other fields, then the
/// caller's words.
fn bound(wrapped: &WrappedKey, aad: &[u8]) -> Vec<u8> {
    [&wrapped.encode()[..WrappedKey::BOUND_SIZE], aad].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(byte: u8) -> UserKey {
        UserKey::from_raw(&[byte; 32]).unwrap()
    }

    fn fixed(out: &mut [u8]) {
        out.fill(0x5a);
    }

    #[test]
    fn what_is_wrapped_is_unwrapped() {
        let master = Key::from_bytes([9; 32]);
        let wrapped = wrap(&user(1), &master, b"pool 7", &fixed);
        assert_eq!(unwrap(&user(1), &wrapped, b"pool 7").unwrap().expose(), master.expose());
        assert_eq!(unwrap(&user(2), &wrapped, b"pool 7").unwrap_err(), WrongKey);
        assert_eq!(unwrap(&user(1), &wrapped, b"pool 8").unwrap_err(), WrongKey);
    }

    #[test]
    fn any_changed_bit_is_noticed() {
        let bytes = wrap(&user(1), &Key::from_bytes([9; 32]), b"", &fixed).encode();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            if let Ok(wrapped) = WrappedKey::decode(&changed) {
                assert_eq!(unwrap(&user(1), &wrapped, b"").unwrap_err(), WrongKey, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_master_key_keeps_its_guid_under_another_user_key() {
        let master = Key::from_bytes([9; 32]);
        let (one, two) = (wrap(&user(1), &master, b"", &fixed), wrap(&user(2), &master, b"", &fixed));
        assert_eq!(one.guid, two.guid);
        assert_ne!(one.sealed, two.sealed);
        assert_ne!(one.guid, key_guid(&Key::from_bytes([8; 32])));
    }
}
