//! The medium of a parity device, before it is one.

use crate::core::error::{Error, Result};
use std::io;
use steadfast_format::medium::{CONFIG_OFFSET, DEVICE_SIZE_MIN, LABELS, label_offset};
use steadfast_por::parity::{Creation, Medium, ParityDevice};

/// Writes a medium over with itself at each place that a parity device has there, and where labels
/// of a pool would be blanked.
///
/// # Errors
/// The medium fails. Nothing is lost.
pub(crate) fn rehearse(
    medium: &dyn Medium,
    creation: &Creation<'_>,
) -> std::result::Result<(), steadfast_por::parity::Error> {
    let labels = medium.size().map(labels_on).unwrap_or_default();
    ParityDevice::rehearse(medium, creation, &labels)
}

/// Where the labels of a pool's device of so many bytes begin.
fn labels_on(size: u64) -> Vec<u64> {
    let copies = if size < DEVICE_SIZE_MIN { 0 } else { LABELS };
    (0..copies).map(|copy| label_offset(copy, size) + CONFIG_OFFSET).collect()
}

/// Blanks the labels of a pool that a medium carries. It becomes a parity device, and an import
/// that found them would write there.
pub(super) fn blank_labels(medium: &dyn Medium) -> io::Result<()> {
    labels_on(medium.size()?).into_iter().try_for_each(|at| {
        let mut label = [0; 512];
        // A hole of a sparse file stays one: the disk below it may be full.
        let is_hole = medium.read(at, &mut label).is_ok() && label == [0; 512];
        if is_hole { Ok(()) } else { medium.write(at, &[0; 512]) }
    })
}

/// Refuses a medium that holds a code already, unless `force`.
pub(crate) fn check_parity(path: &str, medium: &dyn Medium, force: bool) -> Result<()> {
    if !force && ParityDevice::is_one(medium) {
        return Err(Error::ParityForeign { path: path.to_owned() });
    }
    Ok(())
}
