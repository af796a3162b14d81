#![no_main]
use steadfast_blockio::zle;

// The first bytes choose the size that is asked for, up to 64 KiB.
libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((size, encoded)) = bytes.split_first_chunk::<2>() else { return };
    let size = usize::from(u16::from_le_bytes(*size));
    let Some(plain) = zle::decompress(encoded, size) else { return };
    assert_eq!(plain.len(), size);
    if let Some(again) = zle::compress(&plain, usize::MAX) {
        assert_eq!(zle::decompress(&again, size), Some(plain));
    }
});
