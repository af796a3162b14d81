//! # Sealing blocks
//!
//! A block is sealed with AES-256-GCM. GCM is ruined by one repeated (key, nonce) pair, so nonces
//! here are structural, not random.
//!
//! ## Definitions
//! *Master key*: 32 random bytes of a dataset (or of the pool), stored wrapped.
//! *Epoch*: the life of one [`BlockKeys`], from a key's loading to its unloading. Its *salt* is 16
//! random bytes.
//! *Block key*: HKDF-SHA-256(master, salt, "steadfast block v1"). *Nonce*: counter as 8
//! little-endian bytes, then 4 zeros.
//! *Stamp*: salt and counter; every pointer to a sealed block carries one.
//!
//! ## Invariants
//! [seal.1] A counter is drawn once per epoch, by an atomic add.
//!      test: `nonces_never_repeat_across_threads`
//! [seal.2] A `BlockKeys` draws its own salt, so two epochs have different block keys (but for a
//!      2^-64 chance after 2^32 epochs), whatever a crash, a copied machine or a restored disk
//!      makes of everything else.
//!      test: `epochs_differ`
//! [seal.3] Counters end before they wrap; 2^64 blocks of an epoch take longer than any machine
//!      lasts.
//!      assert: `seal`
//! [seal.4] Opening never returns bytes that failed authentication: the buffer is emptied.
//!      test: `a_changed_bit_is_noticed`
//!
//! ## Cost
//! Sealing takes no lock: one atomic add, then AES-GCM over the bytes. Opening a block of the
//! current epoch takes none either; of an older epoch, a short lock around a list of at most
//! [`EPOCHS_KEPT`] keys (a few hundred bytes each).

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use steadfast_format::Stamp;

use crate::{Fill, Key, derive};

/// Bytes that sealing adds to a block.
pub const SEAL_OVERHEAD: usize = 16;
/// Holds for every block that is sealed.
const LENGTH: &str = "a block is far below GCM's greatest length, and its seal has 16 bytes";

/// Keys of past epochs held ready; an epoch is an import, so a working set rarely spans more.
const EPOCHS_KEPT: usize = 32;

const INFO: &str = "steadfast block v1";

/// The bytes, the stamp, the key or what the block is bound to are not what they were when it was
/// sealed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the block fails authentication")]
pub struct AuthError;

/// Seals new blocks and opens old ones of one master key. Shared by all threads.
pub struct BlockKeys {
    master: Key,
    salt: [u8; 16],
    current: LessSafeKey,
    counter: AtomicU64,
    past: Mutex<VecDeque<([u8; 16], Arc<LessSafeKey>)>>,
}

/// True from the first [`BlockKeys`] of this process on.
static HAS_HAD_KEYS: AtomicBool = AtomicBool::new(false);

impl BlockKeys {
    /// True if this process has or had keys: memory that it freed may hold what they opened.
    #[must_use]
    pub fn were_ever_here() -> bool {
        HAS_HAD_KEYS.load(Ordering::Acquire)
    }

    /// Begins an epoch with a fresh salt from `random`.
    #[must_use]
    pub fn new(master: Key, random: Fill<'_>) -> BlockKeys {
        HAS_HAD_KEYS.store(true, Ordering::Release);
        let mut salt = [0; 16];
        // A zero salt means "not sealed" in a pointer.
        while salt == [0; 16] {
            random(&mut salt);
        }
        let current = block_key(&master, &salt);
        let past = Mutex::new(VecDeque::with_capacity(EPOCHS_KEPT));
        BlockKeys { master, salt, current, counter: AtomicU64::new(1), past }
    }

    /// Seals `buffer` in place and appends the tag ([`SEAL_OVERHEAD`] bytes). `aad` must be given
    /// again to open it.
    #[must_use]
    pub fn seal(&self, aad: &[u8], buffer: &mut Vec<u8>) -> Stamp {
        let counter = self.next_counter();
        let sealed = self.current.seal_in_place_append_tag(nonce(counter), Aad::from(aad), buffer);
        sealed.expect(LENGTH);
        Stamp { salt: self.salt, counter }
    }

    /// The same from one place to another, which has [`SEAL_OVERHEAD`] bytes more.
    #[must_use]
    pub fn seal_to(&self, aad: &[u8], plain: &[u8], sealed: &mut [u8]) -> Stamp {
        let counter = self.next_counter();
        let (bytes, tag) = sealed.split_at_mut(plain.len());
        let (nonce, aad) = (nonce(counter), Aad::from(aad));
        let done = self.current.seal_out_of_place_scatter(nonce, aad, plain, bytes, &[], tag);
        done.expect(LENGTH);
        Stamp { salt: self.salt, counter }
    }

    fn next_counter(&self) -> u64 {
        let counter = self.counter.fetch_add(1, Ordering::Relaxed);
        assert!(counter != 0 && counter < u64::MAX / 2, "an epoch ends before its counters do");
        counter
    }

    /// Opens `buffer` in place and takes off the tag. On failure the buffer is emptied.
    pub fn open(&self, stamp: &Stamp, aad: &[u8], buffer: &mut Vec<u8>) -> Result<(), AuthError> {
        match self.open_slice(stamp, aad, buffer) {
            Ok(length) => {
                buffer.truncate(length);
                Ok(())
            }
            Err(error) => {
                buffer.clear();
                Err(error)
            }
        }
    }

    /// Opens `buffer` in place; its first bytes, as many as returned, are what was sealed. On
    /// failure what is in it is of no meaning.
    pub fn open_slice(&self, stamp: &Stamp, aad: &[u8], buffer: &mut [u8]) -> Result<usize, AuthError> {
        if stamp.salt == self.salt {
            open_with(&self.current, stamp.counter, aad, buffer)
        } else {
            open_with(&self.past_key(&stamp.salt), stamp.counter, aad, buffer)
        }
    }

    /// The master key, to be wrapped again when the user key changes.
    #[must_use]
    pub fn master(&self) -> &Key {
        &self.master
    }

    fn past_key(&self, salt: &[u8; 16]) -> Arc<LessSafeKey> {
        let mut past = self.past.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, key)) = past.iter().find(|(kept, _)| kept == salt) {
            return Arc::clone(key);
        }
        // First come, first gone: a salt that is still wanted is derived again in a microsecond.
        if past.len() == EPOCHS_KEPT {
            past.pop_front();
        }
        let key = Arc::new(block_key(&self.master, salt));
        past.push_back((*salt, Arc::clone(&key)));
        key
    }
}

impl fmt::Debug for BlockKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BlockKeys(<redacted>)")
    }
}

fn block_key(master: &Key, salt: &[u8; 16]) -> LessSafeKey {
    let key = derive(master, salt, INFO);
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.expose()).expect("32 bytes are an AES-256 key"))
}

fn nonce(counter: u64) -> Nonce {
    let mut nonce = [0; 12];
    nonce[..8].copy_from_slice(&counter.to_le_bytes());
    Nonce::assume_unique_for_key(nonce)
}

fn open_with(key: &LessSafeKey, counter: u64, aad: &[u8], buffer: &mut [u8]) -> Result<usize, AuthError> {
    let opened = key.open_in_place(nonce(counter), Aad::from(aad), buffer);
    opened.map(|plain| plain.len()).map_err(|_| AuthError)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::from_hex;
    use std::collections::HashSet;

    fn salted(byte: u8) -> BlockKeys {
        BlockKeys::new(Key::from_bytes([1; 32]), &move |out: &mut [u8]| out.fill(byte))
    }

    #[test]
    fn the_cipher_is_aes_256_gcm() {
        // Test cases 14 and 16 of the GCM specification (McGrew and Viega).
        let key = UnboundKey::new(&AES_256_GCM, &[0; 32]).unwrap();
        let mut buffer = vec![0; 16];
        let none = Nonce::assume_unique_for_key([0; 12]);
        LessSafeKey::new(key).seal_in_place_append_tag(none, Aad::empty(), &mut buffer).unwrap();
        let expected = "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919";
        assert_eq!(buffer, from_hex(expected));

        let key = from_hex("feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308");
        let nonce = from_hex("cafebabefacedbaddecaf888").try_into().unwrap();
        let aad = from_hex("feedfacedeadbeeffeedfacedeadbeefabaddad2");
        let mut buffer = from_hex(
            "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a72\
             1c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657ba637b39",
        );
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).unwrap());
        let nonce = Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce, Aad::from(aad), &mut buffer).unwrap();
        let expected = "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa\
                        8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0abcc9f662\
                        76fc6ece0f4e1768cddf8853bb2d551b";
        assert_eq!(buffer, from_hex(expected));
    }

    #[test]
    fn the_key_and_nonce_are_as_written_down() {
        // An independent path to the same bytes: derived key, counter 1 little-endian, four zeros.
        let keys = salted(0xaa);
        let mut sealed = b"hello".to_vec();
        assert_eq!(keys.seal(b"where", &mut sealed), Stamp { salt: [0xaa; 16], counter: 1 });
        let key = derive(&Key::from_bytes([1; 32]), &[0xaa; 16], "steadfast block v1");
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.expose()).unwrap());
        let nonce = Nonce::assume_unique_for_key([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(key.open_in_place(nonce, Aad::from(b"where"), &mut sealed).unwrap(), b"hello");
    }

    #[test]
    fn what_is_sealed_is_opened_also_in_a_later_epoch() {
        let (first, second) = (salted(1), salted(2));
        let mut buffer = vec![7; 5000];
        let stamp = first.seal(b"aad", &mut buffer);
        assert_eq!(buffer.len(), 5000 + SEAL_OVERHEAD);
        second.open(&stamp, b"aad", &mut buffer).unwrap();
        assert_eq!(buffer, vec![7; 5000]);
    }

    #[test]
    fn a_seal_in_another_place_is_the_one_in_place() {
        let (mut in_place, mut apart) = (vec![7; 5000], vec![1; 5000 + SEAL_OVERHEAD]);
        let stamp = salted(1).seal(b"aad", &mut in_place);
        assert_eq!(salted(1).seal_to(b"aad", &[7; 5000], &mut apart), stamp);
        assert_eq!(apart, in_place);
    }

    #[test]
    fn epochs_differ() {
        let (mut one, mut two) = (vec![0; 64], vec![0; 64]);
        let stamps = (salted(1).seal(b"", &mut one), salted(2).seal(b"", &mut two));
        assert_eq!((stamps.0.counter, stamps.1.counter), (1, 1));
        assert_ne!(one, two);
    }

    #[test]
    fn a_changed_bit_is_noticed() {
        let keys = salted(1);
        let mut sealed = b"some bytes".to_vec();
        let stamp = keys.seal(b"aad", &mut sealed);
        for bit in 0..sealed.len() * 8 {
            let mut changed = sealed.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(keys.open(&stamp, b"aad", &mut changed), Err(AuthError), "bit {bit}");
            assert!(changed.is_empty(), "nothing unauthenticated is left behind");
        }
        let refused = |stamp: Stamp, aad: &[u8]| keys.open(&stamp, aad, &mut sealed.clone()).is_err();
        assert!(refused(stamp, b"dad"));
        assert!(refused(Stamp { counter: 2, ..stamp }, b"aad"));
        assert!(refused(Stamp { salt: [9; 16], ..stamp }, b"aad"));
        assert!(keys.open(&stamp, b"aad", &mut vec![1; 3]).is_err(), "shorter than a tag");
    }

    #[test]
    fn nonces_never_repeat_across_threads() {
        let keys = salted(1);
        let draw = || (0..2000).map(|_| keys.seal(b"", &mut vec![0; 8]).counter).collect::<Vec<_>>();
        let drawn = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(draw)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert_eq!(drawn.iter().collect::<HashSet<_>>().len(), 16_000);
        assert!(!drawn.contains(&0));
    }

    #[test]
    fn many_past_epochs_take_bounded_room() {
        let now = salted(0xff);
        for epoch in 1..=100 {
            let mut buffer = vec![epoch; 10];
            let stamp = salted(epoch).seal(b"", &mut buffer);
            now.open(&stamp, b"", &mut buffer).unwrap();
            assert_eq!(buffer, vec![epoch; 10]);
        }
        assert_eq!(now.past.lock().unwrap().len(), EPOCHS_KEPT);
        assert_eq!(format!("{now:?}"), "BlockKeys(<redacted>)");
    }
}
