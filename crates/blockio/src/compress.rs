//! Compression, and knowing early when it is of no use.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;

use steadfast_crypto::SEAL_OVERHEAD;
use steadfast_device::Buffer;
use steadfast_format::Compression;

use crate::zle;

/// The setting of a dataset's `compression` property.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum CompressionSetting {
    /// Store as it is.
    #[default]
    Off,
    /// LZ4.
    Lz4,
    /// Zstandard of a level, 1 to 19 (others are brought into that range).
    Zstd(i8),
    /// Runs of zeros only.
    Zle,
}

impl CompressionSetting {
    /// Zstandard's level where none is given.
    pub const ZSTD_LEVEL_DEFAULT: i8 = 3;
}

/// Blocks below this are not probed: a try costs no more than the probe.
const PROBE_BYTES_MIN: usize = 32 << 10;
/// Pieces that a probe compresses, evenly spread.
const PROBE_PIECES: usize = 4;
const PROBE_PIECE: usize = 4 << 10;
/// Rooms for more are not kept: records are shorter as a rule, and there is one for each thread.
const ROOM_BYTES_MAX: usize = 2 << 20;
/// First bytes on which LZ4 is tried before it may have the rest.
const TRIED_BYTES: usize = 16 << 10;
/// Bytes whose spread is looked at, in each so many.
const LINE: usize = 64;
const LINE_STRIDE: usize = 4 << 10;
/// Of these so many are gathered.
const LINES: usize = 32;
/// Pearson's chi-square of the spread of bytes (255 degrees of freedom: 255 on the average, spread
/// 23) above which they are not noise.
const CHI_SQUARE_NOISE_MAX: u64 = 380;
/// Bits per byte above which a histogram says that entropy coding gains nothing worth its time.
const ENTROPY_BITS_MAX: f64 = 7.7;

/// Compresses and decompresses, keeping Zstandard's contexts (some MiB at high levels) and the
/// room that LZ4 packs into between blocks.
#[derive(Default)]
pub(crate) struct Compressor {
    rooms: Mutex<Vec<Vec<u8>>>,
    packers: Mutex<BTreeMap<i32, Vec<zstd::bulk::Compressor<'static>>>>,
    unpackers: Mutex<Vec<zstd::bulk::Decompressor<'static>>>,
}

impl Compressor {
    /// `data` as it is to be stored: compressed if that takes no more than `limit` bytes (what
    /// saves a unit), else as it is.
    pub fn compress<'d>(
        &self,
        setting: CompressionSetting,
        data: Cow<'d, [u8]>,
        limit: usize,
    ) -> (Compression, Cow<'d, [u8]>) {
        if limit == 0 {
            return (Compression::Off, data);
        }
        let packed = match setting {
            CompressionSetting::Off => None,
            CompressionSetting::Lz4 => self.lz4(&data, limit).map(|bytes| (Compression::Lz4, bytes)),
            CompressionSetting::Zle => zle::compress(&data, limit).map(|bytes| (Compression::Zle, bytes)),
            CompressionSetting::Zstd(level) if promising(&data) => {
                self.zstd(&data, i32::from(level).clamp(1, 19), limit).map(|bytes| (Compression::Zstd, bytes))
            }
            CompressionSetting::Zstd(_) => None,
        };
        match packed {
            Some((compression, bytes)) => (compression, Cow::Owned(bytes)),
            None => (Compression::Off, data),
        }
    }

    /// The `lsize` bytes that were compressed; `None` if `bytes` are not what compression made of
    /// that many. Never makes more than `lsize` bytes.
    pub fn decompress(&self, compression: Compression, bytes: Buffer, lsize: usize) -> Option<Buffer> {
        match compression {
            Compression::Off => (bytes.len() == lsize).then_some(bytes),
            _ => self.unpack(compression, &bytes, lsize),
        }
    }

    /// The same of bytes that stay where they are.
    pub fn unpack(&self, compression: Compression, bytes: &[u8], lsize: usize) -> Option<Buffer> {
        match compression {
            Compression::Off => (bytes.len() == lsize).then(|| Buffer::from(bytes.to_vec())),
            Compression::Zle => zle::decompress(bytes, lsize).map(Buffer::from),
            Compression::Lz4 => {
                let mut out = room_for(lsize);
                let made = lz4_flex::block::decompress_into(bytes, &mut out).ok()?;
                (made == lsize).then_some(out)
            }
            Compression::Zstd => {
                let kept = self.unpackers.lock().expect("no holder panics").pop();
                let mut unpacker = kept.or_else(|| zstd::bulk::Decompressor::new().ok())?;
                let mut out = room_for(lsize);
                let made = unpacker.decompress_to_buffer(bytes, &mut out[..]);
                self.unpackers.lock().expect("no holder panics").push(unpacker);
                (made.ok()? == lsize).then_some(out)
            }
        }
    }

    fn lz4(&self, data: &[u8], limit: usize) -> Option<Vec<u8>> {
        let mut room = self.rooms.lock().expect("no holder panics").pop().unwrap_or_default();
        let most = lz4_flex::block::get_maximum_output_size(data.len());
        if room.len() < most {
            room.resize(most, 0);
        }
        let made = packs(data, &mut room).then(|| lz4_flex::block::compress_into(data, &mut room).ok());
        let packed = made.flatten().filter(|made| *made <= limit).map(|made| {
            // A seal needs no other room then.
            let mut packed = Vec::with_capacity(made + SEAL_OVERHEAD);
            packed.extend_from_slice(&room[..made]);
            packed
        });
        if room.len() <= ROOM_BYTES_MAX {
            self.rooms.lock().expect("no holder panics").push(room);
        }
        packed
    }

    fn zstd(&self, data: &[u8], level: i32, limit: usize) -> Option<Vec<u8>> {
        let kept = self.packers.lock().expect("no holder panics").entry(level).or_default().pop();
        let mut packer = match kept {
            Some(packer) => packer,
            None => zstd::bulk::Compressor::new(level).ok()?,
        };
        // A buffer no longer than what would be kept makes zstd stop as soon as it is full.
        let mut out = vec![0; limit];
        let made = packer.compress_to_buffer(data, &mut out[..]);
        self.packers.lock().expect("no holder panics").entry(level).or_default().push(packer);
        out.truncate(made.ok()?);
        Some(out)
    }
}

/// Shorter buffers are as well off in the general allocator.
const ALIGNED_BYTES_MIN: usize = 64 << 10;

/// Bytes to be filled; what is large comes from memory that is used again.
pub(crate) fn room_for(length: usize) -> Buffer {
    if length < ALIGNED_BYTES_MIN { vec![0; length].into() } else { Buffer::to_fill(length) }
}

/// Entry for fuzzers: any bytes decompress to as many as were asked for, or to nothing. The first
/// byte chooses the method, the next two how many bytes.
pub fn fuzz(bytes: &[u8]) {
    let Some((&[method, low, high], stored)) = bytes.split_first_chunk() else { return };
    let methods = [Compression::Off, Compression::Lz4, Compression::Zstd, Compression::Zle];
    let size = usize::from(u16::from_le_bytes([low, high]));
    let stored = Buffer::from(stored.to_vec());
    let plain = Compressor::default().decompress(methods[usize::from(method % 4)], stored, size);
    assert!(plain.is_none_or(|plain| plain.len() == size));
}

/// False if LZ4 is most likely wasted on `data`: it finds nothing in the first bytes, and from end
/// to end bytes are spread as evenly as those of noise. A run of zeros of 4 KiB is seen wherever it
/// is, and so are 8 KiB of text. Noise that repeats is not, unless the first bytes have it twice.
///
/// LZ4 gives up by itself, but slowly: it looks at each 32nd byte of a record of 128 KiB.
fn packs(data: &[u8], room: &mut [u8]) -> bool {
    if data.len() < PROBE_BYTES_MIN {
        return true;
    }
    let mut counts = [0_u32; 256];
    let mut total = 0;
    let mut lines = [0; LINES * LINE];
    for strides in data.chunks(LINES * LINE_STRIDE) {
        // Gathered first: the processor waits for all of them at once, not for one after the other.
        let mut gathered = 0;
        for line in strides.chunks(LINE_STRIDE).filter_map(|stride| stride.get(..LINE)) {
            lines[gathered..gathered + LINE].copy_from_slice(line);
            gathered += LINE;
        }
        lines[..gathered].iter().for_each(|&byte| counts[usize::from(byte)] += 1);
        total += gathered as u64;
    }
    let squares: u64 = counts.iter().map(|&count| u64::from(count) * u64::from(count)).sum();
    if (squares * 256 / total).saturating_sub(total) > CHI_SQUARE_NOISE_MAX {
        return true;
    }
    let made = lz4_flex::block::compress_into(&data[..TRIED_BYTES], room);
    made.is_ok_and(|made| made <= TRIED_BYTES - TRIED_BYTES / 32)
}

/// False if Zstandard is most likely wasted on `data`: LZ4 finds nothing in any of a few pieces,
/// and their bytes are spread so evenly that entropy coding has nothing to gain either.
///
/// Gain (`benches/write.rs`, two busy cores): noise under zstd-19 goes from 9 to 1,100 MB/s. Up to
/// level 9 Zstandard notices noise by itself, as its output is limited to a size worth keeping.
/// LZ4 has a probe of its own ([`packs`]).
fn promising(data: &[u8]) -> bool {
    if data.len() < PROBE_BYTES_MIN {
        return true;
    }
    let mut histogram = [0_u32; 256];
    let mut scratch = vec![0; lz4_flex::block::get_maximum_output_size(PROBE_PIECE)];
    for piece in 0..PROBE_PIECES {
        let at = (data.len() - PROBE_PIECE) / (PROBE_PIECES - 1) * piece;
        let piece = &data[at..at + PROBE_PIECE];
        match lz4_flex::block::compress_into(piece, &mut scratch) {
            Ok(made) if made > PROBE_PIECE - PROBE_PIECE / 32 => {}
            _ => return true,
        }
        for &byte in piece {
            histogram[usize::from(byte)] += 1;
        }
    }
    let total = (PROBE_PIECES * PROBE_PIECE) as f64;
    let bits: f64 = histogram
        .iter()
        .filter(|&&count| count > 0)
        .map(|&count| f64::from(count) / total)
        .map(|share| -share * share.log2())
        .sum();
    bits <= ENTROPY_BITS_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use steadfast_env::Env;

    fn random(len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Env::seeded(7).random.fill(&mut bytes);
        bytes
    }

    fn text(len: usize) -> Vec<u8> {
        let words = [&b"pool "[..], b"segment ", b"write ", b"once ", b"name ", b"place ", b"proof ", b"\n"];
        let picks = random(len);
        let mut bytes: Vec<u8> =
            picks.iter().flat_map(|pick| words[usize::from(pick % 8)]).copied().collect();
        bytes.truncate(len);
        bytes
    }

    const ALL: [CompressionSetting; 5] = [
        CompressionSetting::Lz4,
        CompressionSetting::Zle,
        CompressionSetting::Zstd(1),
        CompressionSetting::Zstd(3),
        CompressionSetting::Zstd(19),
    ];

    #[test]
    fn what_is_compressed_comes_back() {
        let compressor = Compressor::default();
        let mut holes = text(100_000);
        holes[10_000..60_000].fill(0);
        for setting in ALL {
            let (compression, packed) = compressor.compress(setting, Cow::Borrowed(&holes), 90_000);
            assert_ne!(compression, Compression::Off, "{setting:?}");
            assert!(packed.len() <= 90_000);
            let packed = Buffer::from(packed.into_owned());
            let unpacked = compressor.decompress(compression, packed.clone(), holes.len());
            assert!(unpacked.is_some_and(|unpacked| unpacked == holes));
            assert!(compressor.decompress(compression, packed.clone(), holes.len() - 1).is_none());
            assert!(compressor.decompress(compression, packed, holes.len() + 1).is_none());
        }
    }

    #[test]
    fn what_saves_too_little_is_stored_as_it_is() {
        let compressor = Compressor::default();
        let bytes = random(128 << 10);
        for setting in ALL {
            let (compression, stored) =
                compressor.compress(setting, Cow::Borrowed(&bytes), (128 << 10) - 4096);
            assert_eq!((compression, &*stored), (Compression::Off, &bytes[..]));
        }
        let (compression, _) = compressor.compress(CompressionSetting::Lz4, Cow::Owned(vec![0; 4096]), 0);
        assert_eq!(compression, Compression::Off, "a block of one unit has nothing to save");
    }

    #[test]
    fn the_probe_gives_up_on_noise_only() {
        assert!(!promising(&random(128 << 10)));
        assert!(promising(&text(128 << 10)));
        let digits: Vec<u8> =
            random(64 << 10).iter().flat_map(|b| [b"0123456789abcdef"[usize::from(b & 15)]; 1]).collect();
        assert!(promising(&digits), "LZ4 finds nothing in random digits, entropy coding does");
        let mut half = random(128 << 10);
        half[64 << 10..].fill(1);
        assert!(promising(&half));
    }

    /// LZ4 as it is without a probe: what it makes of these bytes, if that saves a unit.
    fn saves_a_unit(bytes: &[u8]) -> bool {
        let mut room = vec![0; lz4_flex::block::get_maximum_output_size(bytes.len())];
        let made = lz4_flex::block::compress_into(bytes, &mut room).expect("there is room");
        made <= bytes.len() - 4096
    }

    #[test]
    fn lz4_is_spared_noise_and_nothing_that_it_would_pack() {
        let mut room = vec![0; lz4_flex::block::get_maximum_output_size(1 << 20)];
        for length in [32 << 10, 100_000, 128 << 10, 1 << 20] {
            assert!(!packs(&random(length), &mut room), "noise of {length}");
        }
        let noise = random(128 << 10);
        let mut mixed: Vec<(String, Vec<u8>)> = Vec::new();
        for at in (0..120 << 10).step_by(3 << 10) {
            let (mut zeros, mut words) = (noise.clone(), noise.clone());
            zeros[at..at + (8 << 10)].fill(0);
            words[at..at + (8 << 10)].copy_from_slice(&text(8 << 10));
            mixed.push((format!("zeros at {at}"), zeros));
            mixed.push((format!("words at {at}"), words));
        }
        let of = |make: &dyn Fn(usize) -> u8| -> Vec<u8> { (0..128 << 10).map(make).collect() };
        mixed.push(("counters".into(), of(&|at| if at % 4 < 2 { noise[at] } else { (at >> 16) as u8 })));
        mixed.push(("every 8 KiB the same".into(), of(&|at| noise[at % (8 << 10)])));
        mixed.push(("digits".into(), of(&|at| b"0123456789abcdef"[usize::from(noise[at / 4] & 15)])));
        for (name, bytes) in mixed.iter().filter(|(_, bytes)| saves_a_unit(bytes)) {
            assert!(packs(bytes, &mut room), "{name}");
        }
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..400), lsize in 1..100_000_usize) {
            let compressor = Compressor::default();
            for compression in [Compression::Off, Compression::Lz4, Compression::Zstd, Compression::Zle] {
                let method = [Compression::Off, Compression::Lz4, Compression::Zstd, Compression::Zle]
                    .iter().position(|method| *method == compression).expect("one of them") as u8;
                let size = u16::try_from(lsize % 65_536).expect("below");
                fuzz(&[&[method][..], &size.to_le_bytes(), &bytes].concat());
                if let Some(out) = compressor.decompress(compression, bytes.clone().into(), lsize) {
                    prop_assert_eq!(out.len(), lsize);
                }
            }
        }
    }
}
