#![no_main]
use steadfast_fuse::wire::request::{Dialect, decode};

// Both ways SETXATTR comes in.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    for setxattr_ext in [false, true] {
        let _ = decode(bytes, Dialect { setxattr_ext });
    }
});
