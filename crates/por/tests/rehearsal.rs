//! Before a parity device is made: a medium that fails is found out while nothing is lost.

use std::io;
use std::sync::Mutex;

use steadfast_por::parity::{Creation, Medium, ParityDevice};

use crate::away::THIRTY;
use crate::device::{BLOCK, False, SMALL};

/// A medium whose writes fail from somewhere on, and which notes where the others were.
struct Short {
    medium: False,
    fails_at: u64,
    places: Mutex<Vec<u64>>,
}

impl Medium for Short {
    fn size(&self) -> io::Result<u64> {
        self.medium.size()
    }

    fn read(&self, at: u64, out: &mut [u8]) -> io::Result<()> {
        self.medium.read(at, out)
    }

    fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        if at + bytes.len() as u64 > self.fails_at {
            return Err(io::Error::other("no such place"));
        }
        self.places.lock().unwrap().push(at);
        self.medium.write(at, bytes)
    }

    fn flush(&self) -> io::Result<()> {
        self.medium.flush()
    }

    fn grow(&self, bytes: u64) -> io::Result<()> {
        self.medium.grow(bytes)
    }
}

fn short(creation: &Creation<'_>, fails_at: u64) -> Short {
    let medium = False::new(creation.bytes());
    // Bytes of others, at the places of headers and in the last block.
    for at in [0, 1, creation.bytes() / BLOCK as u64 - 1] {
        medium.write(at * BLOCK as u64, &[0x77; BLOCK]).unwrap();
    }
    Short { medium, fails_at, places: Mutex::default() }
}

/// Each part is written at both of its ends, with the bytes that it has. So a medium that ends
/// anywhere before the end of the device is found out.
#[test]
fn a_rehearsal_comes_to_each_part() {
    for creation in [SMALL, THIRTY] {
        let bytes = creation.bytes();
        let whole = short(&creation, u64::MAX);
        let before = whole.medium.0.lock().unwrap().now.clone();
        // A place of somebody else's, in the middle of a block.
        let other = bytes / 3;
        ParityDevice::rehearse(&whole, &creation, &[other]).unwrap();
        let after = whole.medium.0.lock().unwrap().now.clone();
        assert!(after.iter().all(|(number, block)| match before.get(number) {
            Some(before) => before == block,
            None => **block == [0; BLOCK],
        }));
        let places = whole.places.into_inner().unwrap();
        assert!(places.contains(&(other - other % BLOCK as u64)));
        assert!(places.len() >= 13, "{} parts", places.len());
        for part in 0..16 {
            let fails_at = bytes / 16 * part;
            let short = short(&creation, fails_at);
            assert!(ParityDevice::rehearse(&short, &creation, &[]).is_err(), "{part} sixteenths");
        }
    }
}
