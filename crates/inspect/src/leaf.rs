//! Leaves: devices opened for reading, with their labels and rings.

use std::path::Path;
use std::sync::Arc;

use steadfast_device::{Device, FileDevice, OpenOptions};
use steadfast_format::{DecodeError, LabelConfig, Uberblock};

use crate::{Error, Finding, Found, Record, Sink};

/// A device under inspection.
#[derive(Clone)]
pub struct Leaf {
    /// As it was named.
    pub path: String,
    /// Opened for reading.
    pub device: Arc<dyn Device>,
}

impl Leaf {
    /// Opens a file or a block device for reading. With `in_use` even if somebody writes to it
    /// meanwhile: what is then found may never have been together on the device.
    ///
    /// # Errors
    /// Errors of the device: missing, too small, in use.
    pub fn open(path: &Path, in_use: bool) -> Result<Leaf, Error> {
        let options = if in_use { OpenOptions::PEEK } else { OpenOptions::READ };
        let device = FileDevice::open(path, &options)?;
        Ok(Leaf { path: path.display().to_string(), device: Arc::new(device) })
    }

    /// A device that the caller opened, such as a store of whole objects.
    #[must_use]
    pub fn over(path: &Path, device: Arc<dyn Device>) -> Leaf {
        Leaf { path: path.display().to_string(), device }
    }
}

/// Copies of the label, and rings, that a device has.
const COPIES: usize = steadfast_format::medium::LABELS;

/// Labels and rings of a device: a store of whole objects has one.
pub(crate) fn copies_of(device: &dyn Device) -> usize {
    if device.objects().is_some() { 1 } else { COPIES }
}

/// Why a copy of a label does not count.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabelFault {
    /// Nothing was ever written there.
    #[error("empty")]
    Empty,
    /// The device did not give the bytes.
    #[error("unreadable: {0}")]
    Unreadable(#[from] steadfast_device::Error),
    /// The bytes are no label.
    #[error(transparent)]
    Malformed(#[from] DecodeError),
}

/// The four copies of a device's label.
#[must_use]
pub fn label_copies(device: &dyn Device) -> Vec<Result<LabelConfig, LabelFault>> {
    let copy = |copy| -> Result<LabelConfig, LabelFault> {
        let area = device.read_label(copy)?;
        if steadfast_format::is_zero(&area) {
            return Err(LabelFault::Empty);
        }
        Ok(LabelConfig::decode(&area, steadfast_crypto::hash)?)
    };
    (0..copies_of(device)).map(copy).collect()
}

/// The copy that counts: the valid one with the greatest txg, the first of equals.
pub(crate) fn newest_label(copies: &[Result<LabelConfig, LabelFault>]) -> Option<&LabelConfig> {
    copies.iter().flatten().rev().max_by_key(|config| config.txg)
}

/// Prints the copies of a device's label: the configuration that counts, then each copy and whether
/// it agrees.
pub fn label(leaf: &Leaf, sink: &mut Sink<'_>) {
    let copies = label_copies(&*leaf.device);
    let newest = newest_label(&copies);
    for (copy, found) in copies.iter().enumerate() {
        let record = Record::new("label").with("path", leaf.path.as_str()).with("copy", copy);
        sink(match found {
            Err(fault) => record.with("valid", false).with("reason", fault.to_string()),
            Ok(config) => {
                let record = record
                    .with("valid", true)
                    .with("counts", newest.is_some_and(|n| std::ptr::eq(n, config)));
                record.with("agrees", newest == Some(config)).with("txg", config.txg.0)
            }
        });
    }
    let Some(config) = newest else { return };
    let state = format!("{:?}", config.state).to_lowercase();
    sink(
        Record::new("config")
            .with("pool", config.name.as_str())
            .with("guid", config.pool.0)
            .with("device", config.device.0)
            .with("device_guid", config.device_guid)
            .with("txg", config.txg.0)
            .with("created_ns", config.created_ns)
            .with("state", state)
            .with("host", config.host.as_str())
            .with("ashift", config.ashift)
            .with("slot_size", config.slot_size)
            .with("sealed", config.key.is_some())
            .with_some("keyformat", config.key.as_ref().map(|(wrapped, _)| wrapped.key_format.name()))
            .with_some("keylocation", config.key.as_ref().map(|(_, location)| location.as_str())),
    );
    for leaf in &config.leaves {
        let record = Record::new("leaf").with("device", leaf.id.0).with("guid", leaf.guid);
        sink(record.with("slots", leaf.slots).with("path", leaf.path.as_str()));
    }
    for feature in &config.features {
        let need = format!("{:?}", feature.need).to_lowercase();
        let record = Record::new("feature").with("name", feature.name.as_str()).with("need", need);
        sink(record.with("known", feature.is_known()));
    }
}

/// Findings about copies of one device's label. The caller knows the other devices and judges a
/// device without any.
pub(crate) fn check_label(leaf: &Leaf, copies: &[Result<LabelConfig, LabelFault>], found: &mut Found<'_>) {
    let Some(newest) = newest_label(copies) else { return };
    for (copy, label) in copies.iter().enumerate() {
        let path = leaf.path.clone();
        match label {
            Err(fault) => found(Finding::LabelCopy { path, copy, reason: fault.to_string() }),
            Ok(config) if config.txg != newest.txg => {
                found(Finding::LabelOld { path, copy, txg: config.txg, newest: newest.txg });
            }
            Ok(config) if config != newest => {
                let reason = "differs from another copy of the same txg".to_owned();
                found(Finding::LabelCopy { path, copy, reason });
            }
            Ok(_) => {}
        }
    }
}

/// State of an uberblock's tag.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tag {
    /// It is the right one.
    Valid,
    /// It is not: a torn write, or a forgery.
    Wrong,
    /// It is keyed, and the key was not given.
    Unknown,
}

/// Content of one slot of a ring.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum RingSlot {
    /// Nothing was ever written there.
    Empty,
    /// No uberblock.
    Malformed(DecodeError),
    /// An uberblock.
    Uberblock {
        /// Its uberblock.
        uberblock: Box<Uberblock>,
        /// Its tag.
        tag: [u8; 32],
        /// Whether the tag is right.
        validity: Tag,
    },
}

/// Slots of one ring. `tag_key` is the key of a sealed pool's tags.
///
/// # Errors
/// The device's.
pub fn ring(
    device: &dyn Device,
    copy: usize,
    tag_key: Option<&steadfast_crypto::Key>,
) -> Result<Vec<RingSlot>, steadfast_device::Error> {
    let slot = |bytes: Vec<u8>| {
        if steadfast_format::is_zero(&bytes) {
            return RingSlot::Empty;
        }
        let decoded = Uberblock::decode(&bytes).and_then(|u| Ok((u, Uberblock::bound_and_tag(&bytes)?)));
        match decoded {
            Err(error) => RingSlot::Malformed(error),
            Ok((uberblock, (bound, tag))) => {
                let made = match (uberblock.keyed, tag_key) {
                    (false, _) => Some(steadfast_crypto::hash(bound)),
                    (true, Some(key)) => Some(steadfast_crypto::keyed_hash(key, bound)),
                    (true, None) => None,
                };
                let validity = match made {
                    None => Tag::Unknown,
                    Some(made) if steadfast_crypto::tags_equal(&made, &tag) => Tag::Valid,
                    Some(_) => Tag::Wrong,
                };
                RingSlot::Uberblock { uberblock: Box::new(uberblock), tag, validity }
            }
        }
    };
    Ok(device.read_uberblocks(copy)?.into_iter().map(slot).collect())
}
