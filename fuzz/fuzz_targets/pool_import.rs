#![no_main]
//! Any change of a pool's images, hashed again where a stranger would: scanned, imported, looked
//! at, closed.
use std::sync::OnceLock;

#[path = "../../crates/pool/tests/common/mod.rs"]
mod common;
#[path = "../../crates/pool/tests/common/forge.rs"]
mod forge;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static FORGER: OnceLock<forge::Forger> = OnceLock::new();
    FORGER.get_or_init(forge::Forger::new).attempt(bytes);
});
