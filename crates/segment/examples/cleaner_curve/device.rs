//! A device that takes everything and keeps nothing: the cleaner never looks at what it moves.

use steadfast_device::{Character, Device, Kind, Result, SegmentPlace};
use steadfast_format::Txg;
use steadfast_format::medium::UBERBLOCK_SIZE;

/// Counting is `Space`'s work already; this one only answers.
pub struct Blank {
    pub size_bytes: u64,
}

impl Device for Blank {
    fn character(&self) -> Character {
        Character {
            kind: Kind::Memory,
            size_bytes: self.size_bytes,
            appendable: true,
            writable: true,
            identity: "blank".to_owned(),
            medium: None,
        }
    }

    fn put_segment(&self, _: SegmentPlace, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn append_segment(&self, _: SegmentPlace, _: u32, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read_segment(&self, _: SegmentPlace, _: u32, out: &mut [u8]) -> Result<()> {
        // Zeros: rows that were never written have matching parity.
        out.fill(0);
        Ok(())
    }

    fn discard_segment(&self, _: SegmentPlace) -> Result<()> {
        Ok(())
    }

    fn write_label(&self, _: usize, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn read_label(&self, _: usize) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn write_uberblock(&self, _: usize, _: Txg, _: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        Ok(())
    }

    fn read_uberblocks(&self, _: usize) -> Result<Vec<Vec<u8>>> {
        Ok(Vec::new())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
