#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steadfast_nfs::fuzz::small_arguments(bytes));
