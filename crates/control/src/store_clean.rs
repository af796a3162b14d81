//! Removes the objects of a destroyed pool from its store.
//!
//! `zpool destroy` marks the labels and leaves everything else, so that `zpool import -D` can undo
//! it. Space on a store is paid for, so there is a way to remove what is left.
//!
//! ## Invariants
//! [store_clean.1] Nothing is deleted below a prefix whose newest label says that a daemon holds
//!      the pool, or of whose pool an epoch was claimed since that label: the first commit of an
//!      import comes behind its answer, and a label with it. A pool that was exported, and a
//!      prefix without a label, take a force.
//! [store_clean.3] Before anything is deleted, the next epoch is claimed and a label says that the
//!      pool is destroyed: a later import finds that label. Then roots go, and if nobody has
//!      claimed an epoch by then, the rest: an import without an anchor looks for its root behind
//!      its claim, so none goes on with a pool of which segments are missing.
//! [store_clean.2] Only objects that were listed before that look, and that have a name of a pool's
//!      objects, are deleted. Claimed epochs go last: until then nobody claims one of them again,
//!      so a new pool on the prefix makes no object of a listed name.

use std::path::Path;
use std::sync::Arc;

use steadfast_bucket::{Location, Store as _, Tuning};
use steadfast_device::{Device, Objects};
use steadfast_format::object_names::{
    self, CAPACITIES, EPOCHS, LABELS, OfEpoch, PRUNED, ROOTS, SEGMENTS, parse_numbered, parse_of_epoch,
    parse_segment,
};
use steadfast_format::{LabelConfig, PoolState};

use crate::refusal::{Code, Refusal};
use crate::{engine, stores};

/// Objects removed with one call, at most.
const BATCH: usize = 1_000;

/// Outcome of a removal, or of a look.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Cleaned {
    /// Name of the pool that lay there, if a label told.
    pub pool: Option<String>,
    /// Objects of a pool.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Objects below the prefix that no pool made. They stay.
    pub others: u64,
}

/// When an object goes; none for one that no pool made [store_clean.2].
fn turn(name: &str) -> Option<u8> {
    if name.starts_with(SEGMENTS) {
        return parse_segment(name).map(|_| 1);
    }
    let of_epoch = |folder| parse_of_epoch(folder, name).is_some();
    if of_epoch(ROOTS) {
        Some(0)
    } else if of_epoch(LABELS) {
        Some(2)
    } else if [CAPACITIES, PRUNED].iter().any(|folder| parse_numbered(folder, name).is_some()) {
        Some(3)
    } else {
        parse_numbered(EPOCHS, name).map(|_| 4)
    }
}

/// Removes the objects of the pool that was stored at an address; with `dry_run` only counts them.
///
/// # Errors
/// [`Code::StoreAddress`], [`Code::StoreKeys`], [`Code::StoreFailed`]; [`Code::StoreInUse`] if the
/// pool was not destroyed.
pub fn clean(address: &str, dry_run: bool, force: bool) -> Result<Cleaned, Refusal> {
    let location = stores::location(address)?;
    let client = stores::open(location.clone(), Tuning::impatient())?;
    let failed = |error: Box<steadfast_bucket::Error>| stores::refusal(&error);
    let listed = client.list("").map_err(failed)?;
    let mut cleaned = Cleaned::default();
    let mut ours: Vec<(u8, String)> = Vec::new();
    for head in listed {
        match turn(&head.object) {
            Some(turn) => {
                cleaned.objects += 1;
                cleaned.bytes += head.size;
                ours.push((turn, head.object));
            }
            None => cleaned.others += 1,
        }
    }
    if ours.is_empty() {
        return Ok(cleaned);
    }
    let newest = newest_label(&location)?;
    let (device, label) = newest.map_or((None, None), |(device, label)| (Some(device), label));
    let claimed = device.as_deref().and_then(Device::objects);
    let claimed = claimed.map(|objects| newest_claim(objects, &ours)).transpose()?.unwrap_or(0);
    let labelled = ours.iter().filter_map(|(_, name)| parse_of_epoch(LABELS, name)).max();
    let is_imported = labelled.is_some_and(|labelled| claimed > labelled.epoch);
    let state = match &label {
        Some(label) if is_imported => Some(format!(
            "{location} holds the pool '{}', which a host imported after its label was written",
            label.name
        )),
        Some(label) if label.state == PoolState::Destroyed => None,
        Some(label) if label.state == PoolState::Exported && force => None,
        None if force => None,
        Some(label) if label.state == PoolState::Exported => {
            Some(format!("{location} holds the pool '{}', which was exported", label.name))
        }
        Some(label) => Some(format!("{location} holds the pool '{}', which was not destroyed", label.name)),
        None => Some(format!("{location} holds objects of a pool, and no label tells which")),
    };
    if let Some(what) = state {
        let command = format!("steadfast store clean -f '{location}'");
        let advice = match &label {
            Some(label) if is_imported || label.state != PoolState::Exported => {
                format!(
                    "Destroy it first: `zpool destroy {}`; import it before that if no daemon has it.",
                    label.name
                )
            }
            _ => format!("If nobody needs it any more, type `{command}`."),
        };
        return Err(Refusal::new(Code::StoreInUse, what)
            .advising(&advice)
            .with("store", location.to_string()));
    }
    cleaned.pool = label.as_ref().map(|label| label.name.clone());
    if dry_run {
        return Ok(cleaned);
    }
    let mut taken = None;
    if let (Some(device), Some(label)) = (device, label) {
        let names = take(&*device, &label, claimed + 1, &location)?;
        ours.extend(names.filter_map(|name| Some((turn(&name)?, name))));
        taken = Some((device, label));
    }
    ours.sort();
    let names: Vec<(u8, String)> = ours;
    for of_turn in names.chunk_by(|a, b| a.0 == b.0) {
        if let Some((device, label)) = taken.take_if(|_| of_turn[0].0 > 0) {
            check_untaken(&*device, &label, claimed + 2, &location)?;
        }
        for batch in of_turn.chunks(BATCH) {
            let batch: Vec<String> = batch.iter().map(|(_, name)| name.clone()).collect();
            client.delete(&batch).map_err(failed)?;
        }
    }
    Ok(cleaned)
}

/// The store as a device, and the label that counts, if one can be read.
type Labelled = (Arc<dyn Device>, Option<LabelConfig>);

/// Looks for a label; `None` if the store has nothing of a pool.
fn newest_label(location: &Location) -> Result<Option<Labelled>, Refusal> {
    let device = match stores::look(Path::new(&location.to_string())) {
        Ok(device) => device,
        Err(refusal) if refusal.code == Code::PoolNotFound => return Ok(None),
        Err(refusal) => return Err(refusal),
    };
    // A label that the store does not give is not a label that is missing.
    device.read_label(0).map_err(|error| engine::device_refusal(&error))?;
    let label = steadfast_pool::label_of(&*device).ok();
    Ok(Some((device, label)))
}

/// The greatest epoch that was claimed. The list is a hint, so the next ones are asked for by name.
fn newest_claim(objects: &dyn Objects, listed: &[(u8, String)]) -> Result<u64, Refusal> {
    let mut newest = listed.iter().filter_map(|(_, name)| parse_numbered(EPOCHS, name)).max().unwrap_or(0);
    while objects.is_claimed(newest + 1).map_err(|error| engine::device_refusal(&error))? {
        newest += 1;
    }
    Ok(newest)
}

/// Takes the pool from whoever imports it, and marks it as destroyed [store_clean.3]. Gives the
/// names of what that created.
fn take(
    device: &dyn Device,
    label: &LabelConfig,
    epoch: u64,
    location: &Location,
) -> Result<impl Iterator<Item = String>, Refusal> {
    if !steadfast_pool::mark_destroyed(device, label, epoch)
        .map_err(|error| engine::device_refusal(&error))?
    {
        return Err(imported_now(label, location));
    }
    let label = object_names::of_epoch(LABELS, OfEpoch { epoch, number: 1 });
    Ok([label, object_names::numbered(EPOCHS, epoch)].into_iter())
}

/// Refuses to go on if somebody has claimed an epoch [store_clean.3].
fn check_untaken(
    device: &dyn Device,
    label: &LabelConfig,
    next: u64,
    location: &Location,
) -> Result<(), Refusal> {
    let objects = device.objects().expect("a store holds objects");
    match objects.is_claimed(next).map_err(|error| engine::device_refusal(&error))? {
        true => Err(imported_now(label, location)),
        false => Ok(()),
    }
}

fn imported_now(label: &LabelConfig, location: &Location) -> Refusal {
    let what = format!("{location} holds the pool '{}', which a host just imported", label.name);
    let advice = format!("Destroy it there first: `zpool destroy {}`.", label.name);
    Refusal::new(Code::StoreInUse, what).advising(&advice).with("store", location.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_loses_what_a_pool_made_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("steadfast-clean-{}", std::process::id()));
        let names = [
            "seg/00000001/0000004000000001",
            "seg/00000001/notes",
            "pool/root/00000001-0000000000000007",
            "pool/epoch/00000000000000000001",
            "papers/seg/00000001/0000004000000001",
            "seg.txt",
        ];
        for name in names {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, b"12345").expect("written");
        }
        let address = format!("file://{}", folder.display());
        let refused = clean(&address, true, false).unwrap_err();
        assert_eq!(refused.code, Code::StoreInUse);
        assert!(refused.action.contains("store clean -f"), "{}", refused.action);
        let expected = Cleaned { pool: None, objects: 3, bytes: 15, others: 3 };
        assert_eq!(clean(&address, true, true).unwrap(), expected);
        assert_eq!(clean(&address, false, true).unwrap(), expected, "a dry run deletes nothing");
        for (at, name) in names.iter().enumerate() {
            assert_eq!(folder.join(name).exists(), [1, 4, 5].contains(&at), "{name}");
        }
        assert_eq!(clean(&address, false, false).unwrap(), Cleaned { others: 3, ..Cleaned::default() });
        std::fs::remove_dir_all(folder).expect("removed");
    }

    /// As `zpool remove` and `zpool destroy` tell it to be typed.
    #[test]
    fn tiles_go_by_the_address_of_their_folder() {
        let folder = std::env::temp_dir().join(format!("steadfast-clean-tiles-{}", std::process::id()));
        let tile = object_names::segment(steadfast_format::SegmentId(0x12_3456_789a_bcde));
        let names = [format!("parity/00000000000000aa/{tile}"), format!("parity/00000000000000bb/{tile}")];
        for name in &names {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            std::fs::write(path, b"12345").expect("written");
        }
        let address = format!("file://{}/parity/00000000000000aa", folder.display());
        assert_eq!(clean(&address, false, true).unwrap().objects, 1);
        assert_eq!(names.map(|name| folder.join(name).exists()), [false, true]);
        std::fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn roots_go_first_and_epochs_last() {
        assert!(turn("pool/epoch/00000000000000000001") > turn("pool/label/00000001-0000000000000007"));
        assert!(turn("pool/label/00000001-0000000000000007") > turn("seg/00000001/0000004000000001"));
        assert!(turn("seg/00000001/0000004000000001") > turn("pool/root/00000001-0000000000000007"));
        assert_eq!(turn("pool/epoch/1"), None);
    }
}
