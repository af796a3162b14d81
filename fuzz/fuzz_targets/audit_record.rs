#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steadfast_control::audit_record::fuzz(bytes));
