//! Memory for large buffers: a few sizes, cut from regions that are kept and used again.
//!
//! ## The problem
//! Every block of content passes through a buffer of a hundred kilobytes and more. From a general
//! allocator such memory is fresh as a rule: the kernel is asked for it, gives it a page of 4 KiB
//! at a time, each by a fault and cleared, and gets it back soon after. That cost a cold sequential
//! read a quarter of the processor's time. And what the allocator does keep lies scattered between
//! small things, so that the process stays as large as it ever was.
//!
//! ## The idea
//! Memory comes in *regions* of [`REGION_BYTES`]. A region is cut into *spans* of one of the
//! [`CLASSES`]. A span that is given back is handed out again before any other memory is, the
//! lowest region first, so that what is in use lies close together. A region whose spans are all
//! back is *spare*: it can be cut anew. Spare regions beyond a bound ([`set_spare_bytes`]) go back
//! to the kernel at once, and those that nobody needed for some time little by little ([`trim`]).
//!
//! Regions have the size and the alignment of a huge page, and the kernel is not asked to make each
//! of one: on a virtual machine that tells its host of free memory (which it does in units of just
//! that size) clearing such a page took half of all processor time of a sequential read, as the
//! host has to find the memory again.
//!
//! Longer buffers than a region (a column of a segment that is mended) come from the general
//! allocator, which clears them or gets them cleared. Some of these wait in a list for the next use
//! of about that length, within the same bound.
//!
//! ## What it holds
//! Its regions ([`held_bytes`]): what is in use, rounded up to the class; what is free in regions
//! that are partly used; the spare ones; and long buffers that wait. Blocks of a cache come and go
//! in about the same order, so regions empty as a whole.
//!
//! ## Invariants
//! [pages.1] A span is owned by one [`Span`] at most: its bit in the region's mask is clear from
//!      `take` to `put`.
//!      assert: `put`
//! [pages.2] Memory of a region stays mapped while a span of it is out.
//!      assert: `Region::drop`
//! [pages.3] Every byte that can be read was written before, by the kernel (zeros) or by an earlier
//!      owner: no memory is uninitialised. Bytes of an earlier owner are no secret from a later
//!      one, as both are this process; a caller that hands bytes out fills them first.
#![allow(unsafe_code, reason = "mapping memory; see the invariants")]

use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::buffer::offset_of_alignment;

/// Bytes of a region.
const REGION_BYTES: usize = 2 << 20;
/// Regions kept though nobody uses them, if nobody says otherwise.
const SPARE_REGIONS_MAX: usize = 8;
/// Sizes of spans. Records are powers of two, and a sealed one is a unit longer.
const CLASSES: [usize; 13] = [
    64 << 10,
    96 << 10,
    128 << 10,
    132 << 10,
    192 << 10,
    256 << 10,
    260 << 10,
    384 << 10,
    512 << 10,
    516 << 10,
    768 << 10,
    1 << 20,
    2 << 20,
];
/// Shorter buffers are better off in the general allocator.
pub(crate) const SPAN_BYTES_MIN: usize = 60 << 10;

/// Buffers longer than this are kept in a list of their own.
pub(crate) const LONG_BYTES_MIN: usize = REGION_BYTES;

/// Long buffers that wait.
struct LongBuffers {
    /// Each all of it written before [pages.3], the latest last.
    spare: Vec<Vec<u8>>,
    bytes: usize,
    bytes_max: usize,
    /// Fewest since the last `trim`.
    bytes_low: usize,
}

static LONG: Mutex<LongBuffers> = Mutex::new(LongBuffers {
    spare: Vec::new(),
    bytes: 0,
    bytes_max: SPARE_REGIONS_MAX * REGION_BYTES,
    bytes_low: 0,
});

fn long() -> MutexGuard<'static, LongBuffers> {
    LONG.lock().unwrap_or_else(PoisonError::into_inner)
}

impl LongBuffers {
    /// Takes out the oldest until there are at most `most` bytes.
    fn shrink(&mut self, most: usize) -> Vec<Vec<u8>> {
        let mut taken = Vec::new();
        while self.bytes > most {
            let oldest = self.spare.remove(0);
            self.bytes -= oldest.len();
            taken.push(oldest);
        }
        self.bytes_low = self.bytes_low.min(self.bytes);
        taken
    }
}

/// A long buffer that waits, of bytes that mean nothing, if from where it is aligned on it has
/// `length` and hardly more.
pub(crate) fn take_long(length: usize) -> Option<Vec<u8>> {
    if length <= LONG_BYTES_MIN {
        return None;
    }
    let mut long = long();
    let is_fit = |bytes: &Vec<u8>| {
        let needed = offset_of_alignment(bytes) + length;
        (needed..=needed + needed / 4).contains(&bytes.len())
    };
    let at = long.spare.iter().rposition(is_fit)?;
    let bytes = long.spare.remove(at);
    long.bytes -= bytes.len();
    long.bytes_low = long.bytes_low.min(long.bytes);
    Some(bytes)
}

/// Keeps a buffer that is free for the next caller that wants a long one.
pub(crate) fn keep_long(bytes: Vec<u8>) {
    if bytes.len() <= LONG_BYTES_MIN || bytes.capacity() > bytes.len() + bytes.len() / 4 {
        return;
    }
    let mut long = long();
    long.bytes += bytes.len();
    long.spare.push(bytes);
    let most = long.bytes_max;
    let surplus = long.shrink(most);
    // The kernel takes its time: not under the lock.
    drop(long);
    drop(surplus);
}

/// Memory of a region.
struct Region {
    start: NonNull<u8>,
    class: usize,
    /// A bit for each span that is free.
    free: u32,
}

// SAFETY: the memory is the region's alone, as a Box<[u8]>'s would be; spans of it are handed out
// under the pool's lock.
unsafe impl Send for Region {}

struct Pool {
    /// By number; those that went back to the kernel leave a gap.
    regions: Vec<Option<Region>>,
    gaps: Vec<usize>,
    /// Regions of each class that have free spans and used ones.
    partial: [BTreeSet<usize>; CLASSES.len()],
    /// Regions without a used span.
    spare: Vec<usize>,
    spare_max: usize,
    /// Fewest spare ones since the last `trim`.
    spare_low: usize,
}

static POOL: Mutex<Pool> = Mutex::new(Pool {
    regions: Vec::new(),
    gaps: Vec::new(),
    partial: [const { BTreeSet::new() }; CLASSES.len()],
    spare: Vec::new(),
    spare_max: SPARE_REGIONS_MAX,
    spare_low: 0,
});

fn pool() -> MutexGuard<'static, Pool> {
    // Nothing in here panics half way.
    POOL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Memory that is owned until it is dropped; it begins at a multiple of 4,096.
pub(crate) struct Span {
    start: NonNull<u8>,
    bytes: usize,
    region: usize,
}

// SAFETY: a span is owned memory without interior mutability, like a Box<[u8]>.
unsafe impl Send for Span {}
// SAFETY: as above; shared references only read.
unsafe impl Sync for Span {}

impl Span {
    /// Memory of at least `bytes`, whose content is of no meaning; `None` if that is none of the
    /// sizes here, or the kernel has no more.
    pub(crate) fn take(bytes: usize) -> Option<Span> {
        if bytes < SPAN_BYTES_MIN || cfg!(miri) {
            return None;
        }
        let class = CLASSES.iter().position(|&size| size >= bytes)?;
        let mut pool = pool();
        let region = match pool.partial[class].first() {
            Some(&region) => region,
            None => {
                let region = match pool.spare.pop() {
                    Some(region) => {
                        pool.spare_low = pool.spare_low.min(pool.spare.len());
                        region
                    }
                    None => {
                        let region = Region::map()?;
                        match pool.gaps.pop() {
                            Some(gap) => {
                                pool.regions[gap] = Some(region);
                                gap
                            }
                            None => {
                                pool.regions.push(Some(region));
                                pool.regions.len() - 1
                            }
                        }
                    }
                };
                pool.regions[region].as_mut().expect("it was just found").cut(class);
                pool.partial[class].insert(region);
                region
            }
        };
        let found = pool.regions[region].as_mut().expect("a region with free spans is mapped");
        let number = found.free.trailing_zeros() as usize;
        found.free &= found.free - 1;
        // SAFETY: the span lies in the region, as `cut` counts only those that do.
        let start = unsafe { found.start.add(number * CLASSES[class]) };
        if found.free == 0 {
            pool.partial[class].remove(&region);
        }
        Some(Span { start, bytes: CLASSES[class], region })
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: mapped [pages.2], initialised [pages.3], and only read while this is borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.bytes) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and nobody else owns it [pages.1].
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.bytes) }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        let mut pool = pool();
        let region =
            pool.regions[self.region].as_mut().expect("[pages.2] a region stays while a span is out");
        let class = region.class;
        let bit = 1 << ((self.start.addr().get() - region.start.addr().get()) / CLASSES[class]);
        assert!(region.free & bit == 0, "[pages.1] a span is given back once");
        region.free |= bit;
        if region.free != Region::all(class) {
            pool.partial[class].insert(self.region);
            return;
        }
        pool.partial[class].remove(&self.region);
        pool.spare.push(self.region);
        let most = pool.spare_max;
        let surplus = pool.shrink_spare(most);
        // The kernel takes its time: not under the lock.
        drop(pool);
        drop(surplus);
    }
}

impl Pool {
    /// Takes out spare regions until there are at most `most`.
    fn shrink_spare(&mut self, most: usize) -> Vec<Region> {
        let mut taken = Vec::new();
        while self.spare.len() > most
            && let Some(number) = self.spare.pop()
        {
            taken.extend(self.regions[number].take());
            self.gaps.push(number);
        }
        self.spare_low = self.spare_low.min(self.spare.len());
        taken
    }
}

impl Region {
    /// Fresh memory, cut for the first class.
    fn map() -> Option<Region> {
        // Twice as much, as the kernel knows no alignment; what is too much goes back.
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private mapping at a place of the kernel's choice touches no memory that is
        // there.
        let start = unsafe {
            mmap_anonymous(std::ptr::null_mut(), 2 * REGION_BYTES, protection, MapFlags::PRIVATE).ok()?
        };
        let before = start.addr().next_multiple_of(REGION_BYTES) - start.addr();
        let after = REGION_BYTES - before;
        // SAFETY: `before` is less than a region, so all three parts lie in the mapping; nothing
        // refers to the outer two.
        unsafe {
            let region = start.byte_add(before);
            if before > 0 {
                munmap(start, before).ok()?;
            }
            munmap(region.byte_add(REGION_BYTES), after).ok()?;
            Some(Region { start: NonNull::new(region.cast())?, class: 0, free: Region::all(0) })
        }
    }

    fn cut(&mut self, class: usize) {
        (self.class, self.free) = (class, Region::all(class));
    }

    /// Zeros in all spans that are free, and behind the last one, where spans of an earlier class
    /// may have been.
    fn wipe_free(&mut self) {
        for number in 0..REGION_BYTES / CLASSES[self.class] {
            if self.free & (1 << number) != 0 {
                // SAFETY: the span lies in the region, which is mapped, and nobody has it: its bit
                // is set [pages.1], and `&mut self` keeps others from taking it.
                unsafe {
                    self.start.add(number * CLASSES[self.class]).write_bytes(0, CLASSES[self.class]);
                }
            }
        }
        let end = REGION_BYTES / CLASSES[self.class] * CLASSES[self.class];
        // SAFETY: from the end of the last span to that of the region, which is mapped, is no
        // span's.
        unsafe { self.start.add(end).write_bytes(0, REGION_BYTES - end) };
    }

    /// Zeros from end to end, what no span of its present class reaches included.
    fn wipe(&mut self) {
        assert!(self.free == Region::all(self.class), "[pages.1] nobody has a span of it");
        // SAFETY: mapped with this size, nobody has a span of it, and `&mut self` keeps others from
        // taking one.
        unsafe { self.start.write_bytes(0, REGION_BYTES) };
    }

    /// The mask of a region of that class with all spans free.
    fn all(class: usize) -> u32 {
        let spans = REGION_BYTES / CLASSES[class];
        assert!((1..=32).contains(&spans), "a mask has 32 bits");
        u32::MAX >> (32 - spans)
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        assert!(self.free == Region::all(self.class), "[pages.2] a region goes when all its spans are back");
        // SAFETY: mapped in `map` with this size, and no span of it is out.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast(), REGION_BYTES) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Changes how many bytes are kept though nobody uses them (16 MiB, if nobody says otherwise).
pub fn set_spare_bytes(bytes: usize) {
    let mut pool = pool();
    pool.spare_max = bytes / REGION_BYTES;
    let most = pool.spare_max;
    let surplus = pool.shrink_spare(most);
    drop(pool);
    drop(surplus);
    let mut long = long();
    long.bytes_max = bytes;
    let surplus = long.shrink(bytes);
    drop(long);
    drop(surplus);
}

/// Gives back half of what was spare all the time since this was last called. To be called every
/// few seconds.
pub fn trim() {
    let mut pool = pool();
    let unused = pool.spare_low.min(pool.spare.len()).div_ceil(2);
    let most = pool.spare.len() - unused;
    let surplus = pool.shrink_spare(most);
    pool.spare_low = pool.spare.len();
    drop(pool);
    drop(surplus);
    let mut long = long();
    let most = long.bytes - long.bytes_low.div_ceil(2);
    let surplus = long.shrink(most);
    long.bytes_low = long.bytes;
    drop(long);
    drop(surplus);
}

/// Overwrites what free buffers still hold: after the content of a file system whose key was
/// unloaded. They stay for their next use, within the same bound as before: the kernel would have
/// to clear each page of fresh memory again.
pub fn wipe() {
    let mut pool = pool();
    for number in 0..pool.regions.len() {
        // Spare ones follow, without the lock.
        if let Some(region) = &mut pool.regions[number]
            && region.free != Region::all(region.class)
        {
            region.wipe_free();
        }
    }
    // Out of the lists nobody can cut them meanwhile; their numbers stay taken.
    let numbers = std::mem::take(&mut pool.spare);
    pool.spare_low = 0;
    let mut spare: Vec<(usize, Region)> =
        numbers.into_iter().filter_map(|number| Some((number, pool.regions[number].take()?))).collect();
    drop(pool);
    for (_, region) in &mut spare {
        region.wipe();
    }
    let mut pool = self::pool();
    for (number, region) in spare {
        pool.regions[number] = Some(region);
        pool.spare.push(number);
    }
    let most = pool.spare_max;
    let surplus = pool.shrink_spare(most);
    drop(pool);
    drop(surplus);
    let mut waiting = long().shrink(0);
    for bytes in &mut waiting {
        bytes.fill(0);
        // Or the compiler sees that nobody reads them.
        std::hint::black_box(&*bytes);
    }
    waiting.into_iter().for_each(keep_long);
}

/// Bytes of memory that large buffers hold of the kernel's: used, and free ones that wait for use.
#[must_use]
pub fn held_bytes() -> usize {
    let waiting = long().bytes;
    let pool = pool();
    (pool.regions.len() - pool.gaps.len()) * REGION_BYTES + waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A span as bytes that name their owner.
    fn mark(span: &mut Span, owner: u8) {
        let end = span.len() - 1;
        (span.as_mut_slice()[0], span.as_mut_slice()[end]) = (owner, owner);
    }

    #[test]
    fn wiping_clears_what_is_free_and_no_span_that_is_out() {
        // Not one of the pool's: other tests take from that.
        let mut region = Region::map().expect("memory");
        let class = CLASSES.iter().position(|&bytes| !REGION_BYTES.is_multiple_of(bytes)).expect("one");
        region.cut(class);
        // SAFETY: the region is mapped and this test's alone.
        let bytes = unsafe { std::slice::from_raw_parts_mut(region.start.as_ptr(), REGION_BYTES) };
        bytes.fill(7);
        region.free &= !1;
        region.wipe_free();
        let (used, free) = bytes.split_at(CLASSES[class]);
        assert!(used.iter().all(|byte| *byte == 7) && free.iter().all(|byte| *byte == 0));
        region.free = Region::all(class);
        region.wipe();
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    #[test]
    fn nobody_gets_what_another_has() {
        let mut held: Vec<(Span, u8)> = Vec::new();
        let mut draw = 7_usize;
        for step in 0..5_000_usize {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let random = draw >> 33;
            if held.len() > 60 || (!held.is_empty() && random.is_multiple_of(2)) {
                let (span, owner) = held.swap_remove(random / 2 % held.len());
                let bytes = span.as_slice();
                assert_eq!((bytes[0], bytes[bytes.len() - 1]), (owner, owner), "step {step}");
            } else {
                let wanted = SPAN_BYTES_MIN + random / 2 % (1 << 20);
                let Some(mut span) = Span::take(wanted) else { continue };
                assert!(span.len() >= wanted && span.start.addr().get().is_multiple_of(4096));
                let owner = (step % 251) as u8;
                mark(&mut span, owner);
                held.push((span, owner));
            }
        }
    }

    #[test]
    fn every_class_fits_its_region() {
        for (class, &bytes) in CLASSES.iter().enumerate() {
            let spans = Region::all(class).count_ones() as usize;
            assert!(spans * bytes <= REGION_BYTES && bytes.is_multiple_of(4096), "{bytes}");
        }
        assert!(CLASSES.is_sorted() && Span::take(REGION_BYTES + 1).is_none() && Span::take(4096).is_none());
    }
}
