#![no_main]
//! Any change of whole streams, their chains made anew: received, looked at, changed, destroyed.
use std::sync::OnceLock;

#[path = "../../crates/pool/tests/common/mod.rs"]
mod common;
#[path = "../../crates/pool/tests/common/forge_stream.rs"]
mod forge_stream;
#[path = "../../crates/pool/tests/common/streams.rs"]
mod hosts;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    static FORGER: OnceLock<forge_stream::Forger> = OnceLock::new();
    let _ = FORGER.get_or_init(forge_stream::Forger::new).attempt(bytes);
});
