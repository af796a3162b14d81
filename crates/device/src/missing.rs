//! A device that is not there: it stands where one is listed, and refuses everything.

use steadfast_format::Txg;
use steadfast_format::medium::UBERBLOCK_SIZE;

use crate::{Character, Device, Error, Kind, Presence, Result, SegmentPlace};

/// In place of a device that was not found.
#[derive(Debug)]
pub struct MissingDevice {
    identity: String,
}

impl MissingDevice {
    /// Its last known path.
    #[must_use]
    pub fn new(identity: &str) -> MissingDevice {
        MissingDevice { identity: identity.to_owned() }
    }

    fn refuse<T>(&self) -> Result<T> {
        Err(Error::NotInUse { device: self.identity.clone() })
    }
}

impl Device for MissingDevice {
    fn character(&self) -> Character {
        let identity = self.identity.clone();
        Character {
            kind: Kind::Missing,
            size_bytes: 0,
            appendable: true,
            writable: false,
            identity,
            medium: None,
        }
    }

    fn put_segment(&self, _: SegmentPlace, _: &[u8]) -> Result<()> {
        self.refuse()
    }

    fn append_segment(&self, _: SegmentPlace, _: u32, _: &[u8]) -> Result<()> {
        self.refuse()
    }

    fn read_segment(&self, _: SegmentPlace, _: u32, _: &mut [u8]) -> Result<()> {
        self.refuse()
    }

    fn discard_segment(&self, _: SegmentPlace) -> Result<()> {
        self.refuse()
    }

    fn can_discard(&self) -> bool {
        false
    }

    fn write_label(&self, _: usize, _: &[u8]) -> Result<()> {
        self.refuse()
    }

    fn read_label(&self, _: usize) -> Result<Vec<u8>> {
        self.refuse()
    }

    fn write_uberblock(&self, _: usize, _: Txg, _: &[u8; UBERBLOCK_SIZE]) -> Result<()> {
        self.refuse()
    }

    fn read_uberblocks(&self, _: usize) -> Result<Vec<Vec<u8>>> {
        self.refuse()
    }

    fn flush(&self) -> Result<()> {
        self.refuse()
    }

    fn presence(&self) -> Presence {
        Presence::Removed
    }
}
