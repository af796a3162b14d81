//! Maps by address.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use steadfast_format::Address;

/// Map keyed by addresses. They are ours, not an attacker's, so hashing is two multiplications.
pub type AddressMap<V> = HashMap<Address, V, BuildHasherDefault<AddressHasher>>;

/// Hasher of [`AddressMap`].
#[derive(Debug, Default)]
pub struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        // An odd constant near 2^64 / golden ratio spreads consecutive numbers.
        self.0 = (self.0.rotate_left(26) ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

/// The shard, of `shards`, that holds an address.
#[must_use]
pub fn shard_of(address: Address, shards: usize) -> usize {
    let mut hasher = AddressHasher::default();
    address.hash(&mut hasher);
    // The table of the shard uses the low and the top bits; take others.
    (hasher.finish() >> 32) as usize % shards
}
