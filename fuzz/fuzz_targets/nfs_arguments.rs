#![no_main]
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| steadfast_nfs::fuzz::nfs_arguments(bytes));
