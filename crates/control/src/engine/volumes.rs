//! Volumes: what creating one and changing its size come to.

use super::{Held, filesystems::Edit, refuse};
use crate::api::{NewVolume, Properties};
use crate::refusal::{Code, Refusal};
use steadfast_pool::{DatasetInfo, VolumeSpec};

/// The property that is a volume's size.
pub(super) const SIZE: &str = "volsize";
/// The property that keeps room for all of it.
pub(super) const RESERVED: &str = "refreservation";
const BLOCK: &str = "volblocksize";
/// Block of a volume for which none is asked, as in ZFS.
const BLOCK_DEFAULT: u32 = 16 << 10;

/// Takes out of the properties what the volume itself keeps, and reserves what is not to be sparse.
///
/// # Errors
/// [`Code::VolumeSize`].
pub(super) fn spec(volume: NewVolume, properties: &mut Properties) -> Result<VolumeSpec, Refusal> {
    let given = properties.remove(BLOCK);
    let block_bytes = given.and_then(|bytes| bytes.parse().ok()).unwrap_or(BLOCK_DEFAULT);
    let Some(bytes) = volume.bytes.checked_next_multiple_of(u64::from(block_bytes)) else {
        let what = format!("{} bytes are more than a volume can have", volume.bytes);
        return Err(Refusal::new(Code::VolumeSize, what));
    };
    if !volume.sparse {
        properties.entry(RESERVED.to_owned()).or_insert_with(|| bytes.to_string());
    }
    Ok(VolumeSpec { bytes, block_bytes })
}

/// A volume that is to become longer.
#[derive(Clone, Copy)]
pub(super) struct Growth {
    /// Its size.
    pub bytes: u64,
    /// What is kept for it then, if all of it is kept now.
    pub reserved: Option<u64>,
}

/// What a change of `volsize` among the edits comes to. All that can be refused is refused here.
///
/// # Errors
/// [`Code::VolumeSize`], [`Code::KeyNeeded`].
pub(super) fn growth(
    held: &Held,
    name: &str,
    info: &DatasetInfo,
    edits: &[Edit],
) -> Result<Option<Growth>, Refusal> {
    let wanted = edits.iter().find(|(property, _)| property == SIZE).and_then(|(_, value)| value.as_deref());
    let Some(bytes) = wanted.and_then(|text| text.parse::<u64>().ok()) else { return Ok(None) };
    let measured = info.volume.and_then(|volume| Some((volume.bytes?, volume.block_bytes?)));
    let Some((has, block)) = measured else {
        let what = format!("the size of '{name}' cannot be looked at without its key");
        return Err(Refusal::new(Code::KeyNeeded, what).with("fs", name));
    };
    let refuse_size = |what: String| Err(Refusal::new(Code::VolumeSize, what).with("fs", name));
    if bytes < has {
        return refuse_size(format!("'{name}' has {has} bytes, and {bytes} are less"));
    }
    if !bytes.is_multiple_of(block) {
        return refuse_size(format!(
            "{bytes} bytes are no multiple of the blocks of '{name}', {block} bytes"
        ));
    }
    let local = held.pool.local_props(name).map_err(refuse::pool)?;
    let kept = local.get(RESERVED).and_then(|text| text.parse::<u64>().ok());
    Ok(Some(Growth { bytes, reserved: (kept == Some(has) && has != bytes).then_some(bytes) }))
}
