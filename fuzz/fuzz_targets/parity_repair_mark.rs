#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steadfast_format::fuzz::parity_repair_mark(bytes));
