#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steadfast_format::fuzz::parity_tile_store(bytes));
