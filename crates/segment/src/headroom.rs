//! Headroom: the units left for content and for metadata, in and beside a commit (ZFS:
//! `spa_get_slop_space`).

use steadfast_format::{DatasetId, SegmentId};

use crate::Class;
use crate::geometry::signed;
use crate::row::Row;
use crate::side::{Headroom, Side};
use crate::table::Table;

/// A slot left to metadata whose open segment fills up during a commit, besides what is counted.
const COMMIT_MARGIN: u32 = 1;

/// An open segment of metadata with less than this part of a slot left, or less than so many bytes,
/// may not hold the next commit's.
const ROOM_SHARE: u32 = 4;

const ROOM_BYTES_MIN: u32 = 64 << 10;

/// Slots that one owner's streams keep open at most (data, copies of metadata, what was cleaned).
pub(crate) const STREAMS_PER_OWNER: u32 = 4;

/// The same of an owner of copies of content.
const STREAMS_PER_COPY: u32 = 2;

/// Room that the cleaner leaves to others.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct CleanerRoom {
    /// Nothing was written and slots are short, so only cleaning helps: it leaves what this commit
    /// surely needs, instead of what it and the next one may need.
    pub alone: bool,
    /// Units that operations were or will be let in for, metadata beyond its slots included.
    pub promised_units: u32,
    /// Units that this commit has yet to write of each copy of the pool's own metadata.
    pub pool_units: u32,
    /// The side on which it empties segments.
    pub emptying: Side,
    /// Units that the segment holds which it is emptying: what comes back for what is copied.
    pub emptying_units: u32,
}

impl Table {
    /// Slots that the next commit is likely to take for metadata: one for each of its streams that
    /// has no open segment or one with little room left.
    pub fn metadata_slots(&self) -> u32 {
        self.metadata_streams(|row| self.is_nearly_full(row))
    }

    /// Slots that a commit without file content takes at most, if `pool_units` are yet to come of
    /// each copy of the pool's own metadata: as above, but metadata of datasets has room enough in
    /// any open segment.
    pub fn idle_commit_slots(&self, pool_units: u32) -> u32 {
        let short = |row: &Row| self.room_units(row) < self.commit_units().max(pool_units);
        let further = 2 * (pool_units / self.geometry.slot_units());
        self.metadata_streams(|row| row.class.is_pool() && short(row)) + further
    }

    pub(crate) fn is_nearly_full(&self, row: &Row) -> bool {
        self.room_units(row) < self.commit_units()
    }

    /// Units below which an open segment of metadata may not hold the next commit's.
    pub(crate) fn commit_units(&self) -> u32 {
        (self.geometry.slot_size / ROOM_SHARE).max(ROOM_BYTES_MIN) / self.geometry.unit
    }

    /// Units that an open segment still takes, and how many of them the commit counts on: none if
    /// no metadata goes there, or if the stream's next slot is counted already.
    pub fn room_beside_commit(&self, id: SegmentId, beside: CleanerRoom) -> (u32, u32) {
        let row = &self.rows[&id];
        let room = self.room_units(row);
        let wanted = match row.class {
            Class::Pool0 | Class::Pool1 => self.commit_units().max(beside.pool_units),
            Class::Meta0 | Class::Meta1 => self.commit_units(),
            Class::Data | Class::Clean | Class::Log | Class::Small => 0,
        };
        let counted = room < wanted && row.class.is_pool() && beside.alone;
        (room, if counted { 0 } else { wanted.min(room) })
    }

    /// Owners in use that metadata has streams of: not those of copies of content.
    fn metadata_owners(&self) -> impl Iterator<Item = DatasetId> {
        self.owners.iter().copied().filter(|owner| owner.copy().is_none())
    }

    /// Slots that streams of owners in use keep open at most, the pool's own not among them; and
    /// how many of the streams are for metadata.
    pub fn open_slots_max(&self) -> (u64, u64) {
        let whole = self.metadata_owners().count() as u64;
        let copies = self.owners.len() as u64 - whole;
        let slots = whole * u64::from(STREAMS_PER_OWNER) + copies * u64::from(STREAMS_PER_COPY);
        (slots, 2 * whole)
    }

    /// Streams of metadata without an open segment, or with one that `counts`.
    pub(crate) fn metadata_streams(&self, counts: impl Fn(&Row) -> bool) -> u32 {
        let needs = |owner: DatasetId, class: Class| {
            let open = self.open.get(&(owner, class)).map(|id| &self.rows[id]);
            u32::from(open.is_none_or(&counts))
        };
        let meta =
            self.metadata_owners().map(|owner| needs(owner, Class::Meta0) + needs(owner, Class::Meta1));
        meta.sum::<u32>() + needs(DatasetId(0), Class::Pool0) + needs(DatasetId(0), Class::Pool1)
    }

    /// Units that streams of metadata can fill before each needs the slot after its next one: what
    /// a commit may take of free slots.
    pub fn metadata_units(&self) -> i64 {
        let slot_units = i64::from(self.geometry.slot_units());
        // The padding of rows at the commit is taken as well, and the rests of narrow segments are
        // lost.
        let spare = self.spare_units();
        let kept = |owner: DatasetId, class: Class| {
            let open = self.open.get(&(owner, class));
            let room = open.map_or(0, |id| i64::from(self.room_units(&self.rows[id])));
            slot_units - room + self.padding_units(class) + spare
        };
        let meta: i64 =
            self.metadata_owners().map(|owner| kept(owner, Class::Meta0) + kept(owner, Class::Meta1)).sum();
        meta + kept(DatasetId(0), Class::Pool0) + kept(DatasetId(0), Class::Pool1)
    }

    /// Free units of each side, less what is kept from file content: for each stream of metadata as
    /// much as it can fill before it needs the slot after its present one, and `others` slots.
    /// Smooth on purpose: when a stream of metadata takes a slot, its share of what is kept falls
    /// by as much.
    pub fn headroom(&self, others: u32) -> Headroom {
        let slot_units = i64::from(self.geometry.slot_units());
        let content = self.owners.len() as i64 * 2 * self.padding_units(Class::Data);
        let others = i64::from(others + COMMIT_MARGIN) * slot_units;
        Headroom {
            normal: signed(self.free_units_of(Side::Normal)) - content - others,
            special: signed(self.free_units_of(Side::Special)) - self.metadata_units(),
        }
    }

    /// The part of it for content and deletes. Negative if slots are short.
    pub fn headroom_units(&self, others: u32) -> i64 {
        self.headroom(others).content()
    }

    /// The part of it for file content: less the slots that the cleaner's streams need after their
    /// present ones, in the measure in which those fill, and `others` slots. Without that, the
    /// cleaner would stop where one of its streams is full and little is left. Writers would take
    /// the rest, and all would wait until the cleaner's next slot is gained again, which at 95 %
    /// means copying seven.
    pub fn content_headroom(&self, others: u32) -> Headroom {
        let slot_units = i64::from(self.geometry.slot_units());
        let open = |owner| self.open.get(&(owner, Class::Clean));
        let room = |id: &SegmentId| i64::from(self.room_units(&self.rows[id]));
        let kept = |&owner| slot_units - open(owner).map_or(0, room);
        let headroom = self.headroom(others);
        Headroom { normal: headroom.normal - self.owners.iter().map(kept).sum::<i64>(), ..headroom }
    }

    /// The same as one number.
    pub fn content_headroom_units(&self, others: u32) -> i64 {
        self.content_headroom(others).content()
    }

    /// Units that live in segments of a class.
    pub fn class_live_units(&self, class: Class) -> u64 {
        self.class_live[class as usize]
    }

    /// Units that open segments of these classes still take.
    pub fn open_room_units(&self, classes: &[Class]) -> i64 {
        let rows = self.open.iter().filter(|((_, class), _)| classes.contains(class));
        rows.map(|(_, id)| i64::from(self.room_units(&self.rows[id]))).sum()
    }
}
