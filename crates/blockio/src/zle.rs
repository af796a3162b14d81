//! ZLE: runs of zeros are counted, all else is kept. `docs/format/zle.md` has the bytes.

/// Most literal bytes under one token.
const LITERALS_MAX: usize = 128;
/// Shorter runs of zeros cost more as a token of their own than among literals.
const RUN_MIN: usize = 3;

/// The encoded form of `bytes`, or `None` once it is longer than `limit`.
#[must_use]
pub fn compress(bytes: &[u8], limit: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(limit.min(bytes.len()));
    let mut literals = 0; // where the literals not written yet begin
    let mut at = 0;
    while at < bytes.len() {
        let zeros = bytes[at..].iter().take_while(|&&byte| byte == 0).count();
        if zeros >= RUN_MIN {
            put_literals(&mut out, &bytes[literals..at]);
            put_zeros(&mut out, zeros);
            at += zeros;
            literals = at;
        } else {
            at += zeros.max(1);
        }
        if out.len() > limit {
            return None;
        }
    }
    put_literals(&mut out, &bytes[literals..]);
    (out.len() <= limit).then_some(out)
}

fn put_literals(out: &mut Vec<u8>, bytes: &[u8]) {
    for part in bytes.chunks(LITERALS_MAX) {
        out.push(u8::try_from(part.len() - 1).expect("at most 127"));
        out.extend_from_slice(part);
    }
}

fn put_zeros(out: &mut Vec<u8>, count: usize) {
    let mut rest = count - 1;
    let mut token = 0x80 | (rest & 0x3f) as u8;
    rest >>= 6;
    let mut shift = 7;
    while rest > 0 {
        // The bit below the flag says that more of the count follows.
        out.push(token | if shift == 7 { 0x40 } else { 0x80 });
        token = (rest & 0x7f) as u8;
        rest >>= 7;
        shift += 7;
    }
    out.push(token);
}

/// The original bytes of exactly `size`, or `None` if `encoded` is not the encoding of that many.
#[must_use]
pub fn decompress(encoded: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(size);
    let mut from = encoded;
    while let Some((&token, rest)) = from.split_first() {
        from = rest;
        if token < 0x80 {
            let (literals, rest) = from.split_at_checked(usize::from(token) + 1)?;
            from = rest;
            out.extend_from_slice(literals);
        } else {
            let mut count = usize::from(token & 0x3f);
            let mut more = token & 0x40 != 0;
            let mut shift = 6;
            while more {
                let (&next, rest) = from.split_first()?;
                from = rest;
                // Beyond 34 bits no run fits any block.
                if shift > 27 {
                    return None;
                }
                count |= usize::from(next & 0x7f) << shift;
                more = next & 0x80 != 0;
                shift += 7;
            }
            let end = out.len().checked_add(count)?.checked_add(1)?;
            if end > size {
                return None;
            }
            out.resize(end, 0);
        }
        if out.len() > size {
            return None;
        }
    }
    (out.len() == size).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_documented_examples_hold() {
        let cases: [(&[u8], &[u8]); 5] = [
            (&[7], &[0x00, 7]),
            (&[0, 0, 0], &[0x82]),
            (&[0; 64], &[0xbf]),
            (&[0; 65], &[0xc0, 0x01]),
            (&[1, 0, 0, 2], &[0x03, 1, 0, 0, 2]),
        ];
        for (bytes, encoded) in cases {
            assert_eq!(compress(bytes, 100).as_deref(), Some(encoded));
            assert_eq!(decompress(encoded, bytes.len()).as_deref(), Some(bytes));
        }
        assert_eq!(compress(&[0; 16 << 20], 100), Some(vec![0xff, 0xff, 0xff, 0x0f]));
    }

    proptest! {
        #[test]
        fn what_is_compressed_comes_back(parts in prop::collection::vec((any::<u8>(), 0..300_usize, 0..9000_usize), 0..20)) {
            let mut bytes = Vec::new();
            for (value, literals, zeros) in parts {
                bytes.extend((0..literals).map(|at| value.wrapping_add(at as u8)));
                bytes.resize(bytes.len() + zeros, 0);
            }
            let encoded = compress(&bytes, usize::MAX).unwrap();
            prop_assert_eq!(decompress(&encoded, bytes.len()), Some(bytes.clone()));
            prop_assert_eq!(decompress(&encoded, bytes.len() + 1), None);
            prop_assert_eq!(compress(&bytes, encoded.len()), Some(encoded.clone()));
            if !encoded.is_empty() {
                prop_assert_eq!(compress(&bytes, encoded.len() - 1), None);
                prop_assert_eq!(decompress(&encoded[..encoded.len() - 1], bytes.len()), None);
            }
        }

        #[test]
        fn foreign_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), size in 0..5000_usize) {
            if let Some(out) = decompress(&bytes, size) {
                prop_assert_eq!(out.len(), size);
            }
        }
    }
}
