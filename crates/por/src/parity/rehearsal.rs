//! Before a parity device is made, and when it is to be none any more.

use super::creation::{Creation, inner_creation};
use super::device::{ParityDevice, flush, read, read_header, write};
use super::error::Result;
use super::geometry::BLOCK;
use super::medium::Medium;
use steadfast_format::PoolGuid;

impl ParityDevice {
    /// Writes blocks of a medium over with themselves: the first and the last one of each part of a
    /// device that is made there, and `others`. A medium that lacks the room, or is shorter than it
    /// says, or fails, is found out while nothing is lost.
    ///
    /// # Errors
    /// The medium fails.
    pub fn rehearse(medium: &dyn Medium, creation: &Creation<'_>, others: &[u64]) -> Result<()> {
        let geometry = creation.geometry();
        let mut places = geometry.edges();
        if creation.is_away {
            let inner = inner_creation(creation.pool, creation.tiles(), None).geometry();
            places.extend(inner.edges().into_iter().map(|place| geometry.inner() + place));
        }
        places.extend(others.iter().map(|place| place - place % BLOCK));
        for at in places {
            let mut block = vec![0; BLOCK as usize];
            read(medium, at, &mut block)?;
            write(medium, at, &block)?;
        }
        flush(medium)
    }

    /// Blanks the headers of a pool's parity device, which is none from then on. False if it is
    /// none, or another pool's.
    ///
    /// # Errors
    /// The medium fails.
    pub fn blank(medium: &dyn Medium, pool: PoolGuid) -> Result<bool> {
        if !read_header(medium).is_ok_and(|header| header.pool == pool) {
            return Ok(false);
        }
        write(medium, 0, &[0; 2 * BLOCK as usize])?;
        flush(medium)?;
        Ok(true)
    }
}
