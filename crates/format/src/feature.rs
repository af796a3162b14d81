//! Features of a pool: what a program must know to read it, to write it, or may ignore. FORMAT.md,
//! "Features".

use crate::DecodeError;
use crate::layout::{Decoder, Encoder, Layout};

/// Access forbidden to a program that does not know a feature.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum Need {
    /// Reading and writing.
    Read = 1,
    /// Writing.
    Write = 2,
    /// Nothing: safe to ignore.
    Safe = 3,
}

/// A feature that a pool uses, by name.
///
/// | off | len | field    | meaning                                     |
/// |-----|-----|----------|---------------------------------------------|
/// |   0 |   1 | need     | 1 to read, 2 to write, 3 safe to ignore     |
/// |   1 |   1 | name_len | length of the name, at least 1              |
/// |   2 |     | name     | lower case words joined by `_`              |
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Feature {
    /// Access forbidden to a program that does not know it.
    pub need: Need,
    /// Lower case words joined by `_`; never used again for something else.
    pub name: String,
}

impl Feature {
    /// Offsets and lengths.
    pub const LAYOUT: Layout = Layout::new("feature", &[("need", 0, 1), ("name_len", 1, 1)], &["name"]);

    /// The feature's bytes; `None` if its name is too long.
    pub(crate) fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Encoder::new(&Self::LAYOUT);
        out.u8("need", self.need as u8).u8("name_len", u8::try_from(self.name.len()).ok()?);
        Some(out.tail("name", self.name.as_bytes()).finish())
    }

    /// Reads one feature off the front, and how many bytes it took.
    pub(crate) fn decode(bytes: &[u8]) -> Result<(Feature, usize), DecodeError> {
        let mut from = Decoder::new(&Self::LAYOUT, bytes)?;
        let need = match from.u8("need") {
            1 => Need::Read,
            2 => Need::Write,
            3 => Need::Safe,
            other => return Err(from.refuse("need", other)),
        };
        let name_len = from.u8("name_len");
        if name_len == 0 {
            return Err(from.refuse("name_len", 0u64));
        }
        let name = from.tail_text("name", name_len.into())?;
        Ok((Feature { need, name }, from.taken()))
    }

    /// Features this code knows, with what each means.
    pub const KNOWN: &'static [(&'static str, Need, &'static str)] = &[
        ("zstd", Need::Read, "blocks may be compressed with Zstandard"),
        ("encryption", Need::Read, "datasets may be sealed with AES-256-GCM"),
        ("sealed_metadata", Need::Read, "the pool's own metadata is sealed"),
        ("anchor", Need::Read, "the only acceptable root is the one that the pool's anchor holds"),
        ("relocation", Need::Read, "living units may have been moved by the cleaner"),
        ("overlays", Need::Read, "records may have small overwrites beside them"),
        (
            "moved_datasets",
            Need::Read,
            "a dataset may have a younger parent, and segments of an owner that is not its encryption root",
        ),
        ("intent_log", Need::Read, "what was promised since the last commit may stand in a log"),
        ("log_device", Need::Read, "the intent log may lie on devices of its own"),
        ("redundancy", Need::Read, "segments may lie on several devices, as mirrors or with parity"),
        ("spares", Need::Read, "devices may wait to step in for others"),
        ("owner_accounting", Need::Read, "datasets may know what each user and group takes up"),
        ("cache_devices", Need::Read, "devices may keep what was read from others"),
        ("renumbered", Need::Read, "the pool may be known by another number than its blocks are bound to"),
        ("special_devices", Need::Read, "groups of devices may be kept for metadata and small blocks"),
        ("split", Need::Read, "devices may have gone to another pool by a split"),
        ("block_sharing", Need::Read, "several pointers may lead to one block, and a table counts them"),
        ("snapshots", Need::Write, "datasets may have snapshots, and cells with what these hold"),
        (
            "clones",
            Need::Read,
            "datasets may begin as snapshots of others, with whose number their blocks are sealed",
        ),
        ("receives", Need::Read, "hidden datasets may hold snapshots that are being received"),
        ("raw_datasets", Need::Read, "datasets may hold sealed blocks of another pool as their content"),
        ("volumes", Need::Read, "datasets may be volumes: one file of a fixed size, and no folder"),
        ("received_clones", Need::Read, "what is being received may be about to become a clone"),
        (
            "raw_volumes",
            Need::Read,
            "a dataset of sealed blocks of another pool may be a volume where it has a key",
        ),
        ("packed_receives", Need::Read, "what is being received may be remembered to come compressed"),
        ("received_properties", Need::Read, "properties may have values that came with a stream"),
        ("received_notes", Need::Write, "properties of snapshots may have values that came with a stream"),
        ("log_mirrors", Need::Read, "devices of the intent log may be mirrors, or out of use for a while"),
        (
            "manifests",
            Need::Write,
            "sealed blocks of datasets may be listed, so that they are found without a key",
        ),
        ("uneven_devices", Need::Read, "segments with parity may have fewer columns than their group"),
        ("checkpoint", Need::Write, "the pool may be taken back to an earlier root, which is kept whole"),
        ("parity", Need::Read, "a device may hold the code from which lost objects come back"),
        ("parity_rekey", Need::Read, "the code of the parity device was made anew, or is, under another map"),
        ("content_copies", Need::Read, "blocks of content may have two or three copies"),
    ];

    /// Features that follow from what a pool is made of, and are never switched on by themselves.
    pub const STRUCTURAL: &'static [&'static str] = &[
        "sealed_metadata",
        "anchor",
        "log_device",
        "redundancy",
        "spares",
        "cache_devices",
        "renumbered",
        "special_devices",
        "split",
        "log_mirrors",
        "checkpoint",
        "parity",
        "parity_rekey",
    ];

    /// The feature of that name, if this code knows it.
    #[must_use]
    pub fn known(name: &str) -> Option<Feature> {
        let (name, need, _) = Self::KNOWN.iter().find(|(known, ..)| *known == name)?;
        Some(Feature { need: *need, name: (*name).to_owned() })
    }

    /// True if this code knows it.
    #[must_use]
    pub fn is_known(&self) -> bool {
        Feature::known(&self.name).as_ref() == Some(self)
    }
}
