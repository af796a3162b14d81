//! A register file: both slots, the record that counts, and whether it belongs to a pool's devices.

use std::fs;
use std::path::Path;

use steadfast_anchor::file::{Slot, slots};
use steadfast_crypto::Key;
use steadfast_format::anchor::{FILE_SIZE, RecordBytes};
use steadfast_format::{AnchorRecord, AuxClass};

use crate::leaf::{label_copies, newest_label};
use crate::{Error, Leaf, Record, Sink};

/// The record in the register that a pool's labels name, if it can be read and is of that pool. Its
/// mac is not looked at.
#[must_use]
pub fn anchored(leaves: &[Leaf]) -> Option<AnchorRecord> {
    let copies: Vec<_> = leaves.iter().map(|leaf| label_copies(&*leaf.device)).collect();
    let labels = copies.iter().filter_map(|copies| newest_label(copies));
    let label = labels.max_by_key(|label| label.txg)?;
    let path = Path::new(&label.aux.iter().find(|aux| aux.class == AuxClass::Anchor)?.path);
    let is_register = |found: &fs::Metadata| found.is_file() && found.len() == FILE_SIZE as u64;
    fs::metadata(path).ok().filter(is_register)?;
    let bytes = <Box<[u8; FILE_SIZE]>>::try_from(fs::read(path).ok()?.into_boxed_slice()).ok()?;
    let whole = slots(&bytes).into_iter().filter_map(|slot| match slot {
        Slot::Whole(_, record) => Some(*record),
        Slot::Empty | Slot::Bad(_) => None,
    });
    whole.max_by_key(|record| record.seq).filter(|record| record.pool == label.pool)
}

/// Prints and checks a register file. `keys` are the mac keys that may be right, for a record whose
/// mac is keyed; without any such a mac is not checked. True if the register would be believed, as
/// far as could be checked.
///
/// # Errors
/// If the file cannot be read.
pub fn anchor(path: &Path, keys: &[Key], sink: &mut Sink<'_>) -> Result<bool, Error> {
    let name = path.display().to_string();
    let refuse = |source: std::io::Error| Error::File { path: name.clone(), source };
    // A register is small: a file of another size is told of, not read.
    let found = fs::metadata(path).map_err(refuse)?;
    if !found.is_file() || found.len() != FILE_SIZE as u64 {
        let reason = if found.is_file() {
            format!("it has {} bytes and not {FILE_SIZE}", found.len())
        } else {
            "it is no regular file".to_owned()
        };
        sink(Record::new("register").with("file", name).with("valid", false).with("reason", reason));
        return Ok(false);
    }
    let bytes = fs::read(path).map_err(refuse)?;
    let Ok(bytes) = <Box<[u8; FILE_SIZE]>>::try_from(bytes.into_boxed_slice()) else {
        sink(Record::new("register").with("file", name).with("valid", false).with("reason", "it changed"));
        return Ok(false);
    };
    let slots = slots(&bytes);
    let mut good = Vec::new();
    for (index, slot) in slots.iter().enumerate() {
        let line = Record::new("slot").with("file", name.clone()).with("slot", index as u64);
        match slot {
            Slot::Empty => sink(line.with("valid", false).with("reason", "empty")),
            Slot::Bad(reason) => sink(line.with("valid", false).with("reason", reason.clone())),
            Slot::Whole(bytes, record) => {
                let mac = mac(bytes, record, keys);
                sink(told(line.with("valid", mac != Some(false)), record).with(
                    "mac",
                    match mac {
                        None => "not-checked",
                        Some(true) => "right",
                        Some(false) => "wrong",
                    },
                ));
                good.push((bytes, record, mac));
            }
        }
    }
    good.sort_by_key(|(_, record, _)| record.seq);
    let Some((_, newest, mac)) = good.last() else {
        sink(
            Record::new("register")
                .with("file", name)
                .with("valid", false)
                .with("reason", "no slot holds a record"),
        );
        return Ok(false);
    };
    let mut faults = Vec::new();
    if *mac == Some(false) {
        faults.push("the mac of the newest record is wrong");
    }
    if let [(older, before, _), (_, after, _)] = &good[..] {
        if before.pool != after.pool {
            faults.push("the slots speak of different pools");
        } else if after.seq != before.seq + 1 || after.prev != steadfast_crypto::hash(&older[..]) {
            faults.push("the newest record does not follow the other one");
        } else if after.epoch < before.epoch {
            faults.push("the epoch fell");
        }
    } else if newest.seq > 1 {
        // A torn write looks so too, and is harmless: the record that it should have replaced is
        // the other one.
        faults.push("the other slot is damaged");
    }
    let valid = faults.is_empty();
    let line = Record::new("register")
        .with("file", name)
        .with("valid", valid)
        .with("pool", newest.pool.0)
        .with("seq", newest.seq)
        .with("epoch", newest.epoch)
        .with("txg", newest.txg().0);
    sink(if valid { line } else { line.with("reason", faults.join("; ")) });
    Ok(valid)
}

/// Whether a record's mac is right; `None` if no key was given for it.
fn mac(bytes: &RecordBytes, record: &AnchorRecord, keys: &[Key]) -> Option<bool> {
    let (bound, mac) = AnchorRecord::bound_and_mac(&bytes[..]).expect("a whole record");
    if !record.keyed {
        return Some(steadfast_crypto::tags_equal(&steadfast_crypto::hash(bound), &mac));
    }
    let right = |key: &Key| steadfast_crypto::tags_equal(&steadfast_crypto::keyed_hash(key, bound), &mac);
    (!keys.is_empty()).then(|| keys.iter().any(right))
}

fn told(line: Record, record: &AnchorRecord) -> Record {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    line.with("pool", record.pool.0)
        .with("seq", record.seq)
        .with("epoch", record.epoch)
        .with("writer", record.writer)
        .with("txg", record.txg().0)
        .with("time_ns", record.time_ns)
        .with("keyed", record.keyed)
        .with("retired", record.retired)
        .with("log_seq", record.log.seq)
        .with("parity_generation", record.por_gen)
        .with("prev", hex(&record.prev))
        .with("root_tag", hex(&record.root_tag))
        .with("root_devices", record.root.devices)
        .with("root_anchor", record.root.anchor)
}
