//! Before a parity device is made, and when it is to be none any more.

use super::creation::{Creation, inner_creation};
use super::device::{ParityDevice, flush, read, read_header, write};
use super::error::Result;
use super::geometry::{BLOCK, Geometry};
use super::medium::Medium;
use steadfast_format::PoolGuid;
use steadfast_format::parity::ParityManifest;

impl ParityDevice {
    /// Writes the bytes of a medium, where a device that is made there is written first, over with
    /// themselves. A medium that lacks the room, or fails, is found out while nothing is lost.
    ///
    /// # Errors
    /// The medium fails.
    pub fn rehearse(medium: &dyn Medium, creation: &Creation<'_>) -> Result<()> {
        let begin = |geometry: &Geometry| geometry.manifest(1) + ParityManifest::size(0, 0) as u64;
        let geometry = creation.geometry();
        let inner = creation.is_away.then(|| {
            let inner = inner_creation(creation.pool, creation.tiles(), None).geometry();
            (geometry.inner(), begin(&inner))
        });
        for (at, length) in [(0, begin(&geometry))].into_iter().chain(inner) {
            let mut bytes = vec![0; usize::try_from(length).expect("a few blocks")];
            read(medium, at, &mut bytes)?;
            write(medium, at, &bytes)?;
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
