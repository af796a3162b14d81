//! Sizes and reservations of volumes.

use crate::api::{NewVolume, Properties};
use crate::engine::refuse;
use crate::engine::state::ImportedPool;
use crate::refusal::{Code, Refusal};
use steadfast_pool::{DatasetInfo, VolumeSpec};
use steadfast_property::volume_reservation;

/// Property: size of a volume.
pub(in crate::engine) const SIZE: &str = "volsize";

/// Property: reserved space.
pub(in crate::engine) const RESERVED: &str = "refreservation";

/// Value of it: all that the volume can hold.
pub(in crate::engine) const AUTO: &str = "auto";

/// Property: how often content is stored.
const COPIES: &str = "copies";

const BLOCK: &str = "volblocksize";

/// Default of `volblocksize`, as in ZFS.
const BLOCK_DEFAULT: u32 = 16 << 10;

/// How often the content of a dataset is stored that is made with these properties below `parent`,
/// or of `parent` itself where these are edits.
///
/// # Errors
/// Of the pool, if `parent` is gone.
pub(in crate::engine) fn copies(
    held: &ImportedPool,
    parent: &str,
    given: Option<&String>,
) -> Result<u64, Refusal> {
    let inherited = held.pool.datasets().resolve(parent, COPIES, "/").map_err(refuse::pool)?;
    let value = given.cloned().or(inherited.map(|resolved| resolved.value));
    Ok(value.and_then(|value| value.parse().ok()).unwrap_or(1))
}

/// Size of a new volume, whose content is stored so often. Takes `volblocksize` out of the
/// properties, and adds the reservation unless it is sparse.
///
/// # Errors
/// [`Code::VolumeSize`].
pub(in crate::engine) fn spec(
    volume: NewVolume,
    copies: u64,
    properties: &mut Properties,
) -> Result<VolumeSpec, Refusal> {
    let given = properties.remove(BLOCK);
    let block_bytes = given.and_then(|bytes| bytes.parse().ok()).unwrap_or(BLOCK_DEFAULT);
    let Some(bytes) = volume.bytes.checked_next_multiple_of(u64::from(block_bytes)) else {
        let what = format!("{} bytes exceed the largest possible volume", volume.bytes);
        return Err(Refusal::new(Code::VolumeSize, what));
    };
    let reserved = volume_reservation(bytes, block_bytes.into(), copies).to_string();
    if properties.get(RESERVED).is_some_and(|value| value == AUTO) {
        properties.insert(RESERVED.to_owned(), reserved.clone());
    }
    if !volume.sparse {
        properties.entry(RESERVED.to_owned()).or_insert(reserved);
    }
    Ok(VolumeSpec { bytes, block_bytes })
}

/// Replaces `refreservation=auto` by the size that the volume has, or gets by the same edits, as
/// often as its content is stored.
///
/// # Errors
/// [`Code::KeyNeeded`].
pub(in crate::engine) fn reserve_all(
    held: &ImportedPool,
    name: &str,
    info: &DatasetInfo,
    edits: &mut [(String, Option<String>)],
) -> Result<(), Refusal> {
    let wanted = edits.iter().find(|(property, _)| property == SIZE).and_then(|(_, value)| value.clone());
    let copies = copies(held, name, given(edits, COPIES))?;
    for (_, value) in edits.iter_mut().filter(|(property, _)| property == RESERVED) {
        if value.as_deref() == Some(AUTO) {
            let wanted = wanted.as_deref().and_then(|bytes| bytes.parse().ok());
            *value = Some(all_of(info, wanted, copies).ok_or_else(|| locked(name))?.to_string());
        }
    }
    Ok(())
}

/// The value that edits give a property.
fn given<'e>(edits: &'e [(String, Option<String>)], property: &str) -> Option<&'e String> {
    edits.iter().rfind(|(edited, _)| edited == property).and_then(|(_, value)| value.as_ref())
}

/// Reservation for all of a volume, of the size that it has or gets. `None` if that is not known,
/// or for a file system.
pub(in crate::engine) fn all_of(info: &DatasetInfo, wanted: Option<u64>, copies: u64) -> Option<u64> {
    let volume = info.volume?;
    Some(volume_reservation(wanted.or(volume.bytes)?, volume.block_bytes?, copies))
}

fn locked(name: &str) -> Refusal {
    let what = format!("the key of '{name}' is not loaded, so its size is not known");
    Refusal::new(Code::KeyNeeded, what).with("fs", name)
}

/// New size of a volume that grows.
#[derive(Clone, Copy)]
pub(in crate::engine) struct Growth {
    /// Bytes.
    pub bytes: u64,
    /// New reservation, if the whole volume is reserved now.
    pub reserved: Option<u64>,
}

/// A change of `volsize` among the edits. Everything that can be refused is refused here.
///
/// # Errors
/// [`Code::VolumeSize`], [`Code::KeyNeeded`].
pub(in crate::engine) fn growth(
    held: &ImportedPool,
    name: &str,
    info: &DatasetInfo,
    edits: &[(String, Option<String>)],
) -> Result<Option<Growth>, Refusal> {
    let wanted = edits.iter().find(|(property, _)| property == SIZE).and_then(|(_, value)| value.as_deref());
    let Some(bytes) = wanted.and_then(|text| text.parse::<u64>().ok()) else { return Ok(None) };
    let measured = info.volume.and_then(|volume| Some((volume.bytes?, volume.block_bytes?)));
    let Some((has, block)) = measured else { return Err(locked(name)) };
    let refuse_size = |what: String| Err(Refusal::new(Code::VolumeSize, what).with("fs", name));
    if bytes < has {
        return refuse_size(format!("'{name}' has {has} bytes and cannot shrink to {bytes}"));
    }
    if !bytes.is_multiple_of(block) {
        return refuse_size(format!(
            "{bytes} bytes are not a multiple of the volblocksize of '{name}' ({block} bytes)"
        ));
    }
    let local = held.pool.datasets().local_props(name).map_err(refuse::pool)?;
    let kept = local.get(RESERVED).and_then(|text| text.parse::<u64>().ok());
    let copies = copies(held, name, given(edits, COPIES))?;
    // An older version reserved its size alone.
    let was_all =
        kept == Some(volume_reservation(has, block, copies)) || kept == Some(has.saturating_mul(copies));
    let reserved = (was_all && has != bytes).then(|| volume_reservation(bytes, block, copies));
    Ok(Some(Growth { bytes, reserved }))
}
