//! Names of objects in a store of whole objects.
//!
//! [object_names.1] Two imports of a pool, and two pools that follow each other on one store, never
//!      create an object of one name with different bytes: the name of a segment and of a root
//!      carries the epoch of its writer, and an epoch is claimed once.

use crate::SegmentId;

/// Folder of the segments.
pub const SEGMENTS: &str = "seg";
/// Folder of all that is no segment: one list finds a pool.
pub const POOL: &str = "pool";
/// Folder of the roots.
pub const ROOTS: &str = "pool/root";
/// Folder of the labels.
pub const LABELS: &str = "pool/label";
/// Folder of the claimed epochs.
pub const EPOCHS: &str = "pool/epoch";
/// Folder of the epochs whose owners delete roots.
pub const PRUNED: &str = "pool/pruned";
/// Folder of what the pool may use.
pub const CAPACITIES: &str = "pool/capacity";

/// Number of a root (its txg) or of a label (it counts up), with the epoch of its writer: the
/// greatest counts.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct OfEpoch {
    /// Epoch of the writer.
    pub epoch: u64,
    /// The number.
    pub number: u64,
}

/// Name of a segment's object.
#[must_use]
pub fn segment(id: SegmentId) -> String {
    format!("{SEGMENTS}/{:08x}/{:016x}", id.epoch(), id.0)
}

/// The segment of that name, if it is one.
#[must_use]
pub fn parse_segment(name: &str) -> Option<SegmentId> {
    let (_, id) = name.rsplit_once('/')?;
    let id = SegmentId(u64::from_str_radix(id, 16).ok()?);
    (id.0 < SegmentId::END && segment(id) == name).then_some(id)
}

/// Name of a root's or a label's object.
#[must_use]
pub fn of_epoch(folder: &str, of: OfEpoch) -> String {
    format!("{folder}/{:08x}-{:016x}", of.epoch, of.number)
}

/// The number of that name, if it is one of the folder.
#[must_use]
pub fn parse_of_epoch(folder: &str, name: &str) -> Option<OfEpoch> {
    let (epoch, number) = name.strip_prefix(folder)?.strip_prefix('/')?.split_once('-')?;
    let parse = |text| u64::from_str_radix(text, 16).ok();
    let found = OfEpoch { epoch: parse(epoch)?, number: parse(number)? };
    (of_epoch(folder, found) == name).then_some(found)
}

/// Name of an object that has only a number: a claimed epoch, a capacity.
#[must_use]
pub fn numbered(folder: &str, number: u64) -> String {
    format!("{folder}/{number:020}")
}

/// The number of that name, if it is one of the folder.
#[must_use]
pub fn parse_numbered(folder: &str, name: &str) -> Option<u64> {
    let number = name.rsplit_once('/')?.1.parse().ok()?;
    (numbered(folder, number) == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_the_document_says_and_are_read_back() {
        let id = SegmentId::new(3, 0x2a);
        assert_eq!(segment(id), "seg/00000003/000000c00000002a");
        assert_eq!((id.epoch(), id.counter()), (3, 0x2a));
        assert_eq!(parse_segment(&segment(id)), Some(id));
        let of = OfEpoch { epoch: 3, number: 255 };
        assert_eq!(of_epoch(ROOTS, of), "pool/root/00000003-00000000000000ff");
        assert_eq!(parse_of_epoch(ROOTS, &of_epoch(ROOTS, of)), Some(of));
        assert_eq!(parse_of_epoch(LABELS, &of_epoch(ROOTS, of)), None);
        assert_eq!(numbered(EPOCHS, 7), "pool/epoch/00000000000000000007");
        assert_eq!(parse_numbered(EPOCHS, &numbered(EPOCHS, 7)), Some(7));
        let foreign =
            ["", "seg", "seg/1", "seg/00000001/000000c00000002a", "pool/root/1-2", "pool/epoch/7", "x/+7"];
        for foreign in foreign {
            assert_eq!(parse_segment(foreign), None, "{foreign}");
            assert_eq!(parse_of_epoch(ROOTS, foreign), None, "{foreign}");
            assert_eq!(parse_numbered(EPOCHS, foreign), None, "{foreign}");
        }
    }

    /// Names sort as their numbers do, so that a list ends with the newest.
    #[test]
    fn the_order_of_names_is_the_order_of_numbers() {
        let ids = [(0, 9), (0, 16), (1, 1), (1, 0xff), (2, 0), (16, 3)];
        let names = ids.map(|(epoch, counter)| segment(SegmentId::new(epoch, counter)));
        assert!(names.is_sorted());
        let roots = ids.map(|(epoch, number)| of_epoch(ROOTS, OfEpoch { epoch, number }));
        assert!(roots.is_sorted());
    }
}
