#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steadfast_por::agent::fuzz_question(bytes));
