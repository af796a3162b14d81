//! Errors of space.

use steadfast_format::{Address, DeviceId, SegmentId};

use steadfast_device::Error as DeviceError;

/// Why space could not be given, found or given back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No slot is free for this class of blocks. Admission (DESIGN.md, chapter 8) keeps this from
    /// happening in a sync.
    #[error("no free slot is left")]
    NoSpace,
    /// A block does not fit into any segment of this pool.
    #[error("a block of {bytes} bytes does not fit into a segment of {slot_size} bytes")]
    TooLarge {
        /// The block.
        bytes: usize,
        /// The slot size.
        slot_size: u32,
    },
    /// Nothing lives at an address. To a reader: the block was freed after its pointer was looked
    /// up; look again.
    #[error("no living block at segment {}, offset {}", address.segment, address.offset)]
    Unallocated {
        /// The address.
        address: Address,
    },
    /// A device failed.
    #[error("device {device}: {source}")]
    Device {
        /// The device.
        device: DeviceId,
        /// The device's error.
        source: DeviceError,
    },
    /// No epoch could be claimed on the devices of whole objects.
    #[error("{tries} epochs from {first} on are claimed by other hosts")]
    Epochs {
        /// The first that was tried.
        first: u64,
        /// How many were tried.
        tries: u64,
    },
    /// A stored table contradicts itself or the pool's devices.
    #[error(transparent)]
    Table(#[from] TableError),
}

/// How a stored segment table contradicts itself. Import refuses it whole.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// Two segments lie in one slot.
    #[error("segments {first} and {second} both lie in slot {slot} of device {device}")]
    SlotTwice {
        /// One of them.
        first: SegmentId,
        /// The other.
        second: SegmentId,
        /// Where.
        device: DeviceId,
        /// Which slot.
        slot: u32,
    },
    /// A row names a device that the pool does not have.
    #[error("segment {segment} lies on device {device}, which is not there")]
    NoDevice {
        /// The segment.
        segment: SegmentId,
        /// The device.
        device: DeviceId,
    },
    /// A row names a slot beyond the device's end.
    #[error("segment {segment} lies in slot {slot} of device {device}, which has {slots} slots")]
    NoSlot {
        /// The segment.
        segment: SegmentId,
        /// The device.
        device: DeviceId,
        /// The slot.
        slot: u32,
        /// How many there are.
        slots: u32,
    },
    /// A segment is filled beyond its slot, or not to a whole allocation unit.
    #[error("segment {segment} is filled to byte {filled}, with slots of {slot_size} bytes")]
    Filled {
        /// The segment.
        segment: SegmentId,
        /// Its fill mark.
        filled: u32,
        /// The slot size.
        slot_size: u32,
    },
    /// A row's bitmap of dead units is too short or names units beyond the fill mark.
    #[error("the dead units of segment {segment} do not fit its {units} units")]
    DeadUnits {
        /// The segment.
        segment: SegmentId,
        /// Its units.
        units: u32,
    },
    /// A segment's id was not given out yet.
    #[error("segment {segment} is not below the next id, {next}")]
    FutureId {
        /// The segment.
        segment: SegmentId,
        /// The next id.
        next: SegmentId,
    },
    /// A relocation leads to units that do not exist or are all dead.
    #[error(
        "{units} units of segment {from}, unit {from_unit}, are said to lie in segment {to}, unit {to_unit}: nothing lives there"
    )]
    RelocationTarget {
        /// The virtual segment.
        from: SegmentId,
        /// The virtual unit.
        from_unit: u32,
        /// The physical segment.
        to: SegmentId,
        /// The physical unit.
        to_unit: u32,
        /// How many units.
        units: u32,
    },
    /// Two relocations overlap, or one of them moves units that still live where they were.
    #[error("{units} units of segment {from}, unit {from_unit}, are relocated twice or not at all")]
    RelocationOverlap {
        /// The virtual segment.
        from: SegmentId,
        /// The virtual unit.
        from_unit: u32,
        /// How many units.
        units: u32,
    },
    /// The tail's own block does not lie at the end of its segment.
    #[error("the commit tail at segment {}, offset {}, does not end its segment", address.segment, address.offset)]
    TailPlace {
        /// Where it is said to lie.
        address: Address,
    },
    /// Something was loaded twice.
    #[error("segment {segment} has two rows")]
    RowTwice {
        /// The segment.
        segment: SegmentId,
    },
    /// The columns of a segment are not what its group makes.
    #[error("segment {segment}: {reason}")]
    Columns {
        /// The segment.
        segment: SegmentId,
        /// The fault.
        reason: &'static str,
    },
    /// A segment of the pool's own metadata that the tail does not speak of.
    #[error("segment {segment} holds the pool's metadata but is not in the commit tail")]
    NotInTail {
        /// The segment.
        segment: SegmentId,
    },
    /// A class that this version does not know.
    #[error("segment {segment} is of class {class}, which this version does not know")]
    Class {
        /// The segment.
        segment: SegmentId,
        /// Its class.
        class: u8,
    },
}

/// Why a read gave nothing. `E` is what the caller's judgement says of bytes it does not accept.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError<E> {
    /// Nothing lives at the address (any more): look the pointer up again.
    #[error("no living block at segment {}, offset {}", address.segment, address.offset)]
    Unallocated {
        /// The address.
        address: Address,
    },
    /// A device failed.
    #[error("device {device}: {source}")]
    Device {
        /// The device.
        device: DeviceId,
        /// The device's error.
        source: DeviceError,
    },
    /// Bytes came, and are not acceptable.
    #[error("device {device}: {verdict}")]
    Rejected {
        /// The device (the first, if the block lies on several).
        device: DeviceId,
        /// The caller's verdict on them.
        verdict: E,
    },
}
