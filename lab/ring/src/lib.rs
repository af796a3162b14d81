//! # Reads and writes in flight
//!
//! A [`Ring`] carries so many operations at a time on behalf of one thread: each *slot* has a
//! buffer of its own, is given to the kernel with a read or a write, and comes back with the
//! result. Safe from outside; the room exists so that the rest of the lab needs no `unsafe`.
//!
//! ## States of a slot
//! free ─`start`→ in flight ─`wait`→ free
//!
//! ## Invariants
//! [lab_ring.1] A buffer is touched by nobody but the kernel while its slot is in flight.
//!      assert: `buffer`, `start`
//! [lab_ring.2] A buffer lives as long as the kernel may touch it: a ring that is dropped waits for
//!      what is in flight first. test: `a_ring_that_is_dropped_waits`
//! [lab_ring.3] There are never more entries in flight than slots, and queues have room for all.
//!      assert: `start`
#![deny(unsafe_op_in_unsafe_fn)]

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Buffers begin on a page, as O_DIRECT wants it.
const PAGE: usize = 4096;
/// Most operations of one ring.
pub const DEPTH_MAX: usize = 4096;

/// State of a slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Way {
    /// From the file into the buffer.
    Read,
    /// From the buffer into the file.
    Write,
}

/// So many operations at a time.
pub struct Ring {
    ring: IoUring,
    slots: Vec<Slot>,
    flying: usize,
}

struct Slot {
    memory: Vec<u8>,
    start: usize,
    flying: bool,
}

impl Ring {
    /// A ring of `depth` slots with buffers of `length` bytes.
    ///
    /// # Errors
    /// When the kernel has no io_uring, or gives no more of it.
    pub fn new(depth: usize, length: usize) -> io::Result<Ring> {
        let depth = depth.clamp(1, DEPTH_MAX);
        let entries = u32::try_from(depth.next_power_of_two()).unwrap_or(1);
        let ring = IoUring::builder().build(entries)?;
        // Waiting with a time limit is what every kernel since 5.11 can do; older ones are left to
        // threads.
        if !ring.params().is_feature_ext_arg() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let slot = |_| {
            let memory = vec![0u8; length + PAGE];
            let start = memory.as_ptr().align_offset(PAGE).min(PAGE);
            Slot { memory, start, flying: false }
        };
        Ok(Ring { ring, slots: (0..depth).map(slot).collect(), flying: 0 })
    }

    /// How many are in flight.
    pub fn flying(&self) -> usize {
        self.flying
    }

    /// The first `length` bytes of the buffer of a free slot.
    ///
    /// # Panics
    /// When the slot is in flight, or the buffer is shorter.
    pub fn buffer(&mut self, slot: usize, length: usize) -> &mut [u8] {
        let slot = &mut self.slots[slot];
        assert!(!slot.flying, "the buffer of a slot in flight is the kernel's");
        let room = slot.memory.len() - PAGE;
        assert!(length <= room, "a transfer of {length} bytes in a buffer of {room}");
        &mut slot.memory[slot.start..slot.start + length]
    }

    /// Hands a free slot to the kernel, at the next [`Ring::wait`]. `file` must stay open until the
    /// slot is back.
    ///
    /// # Panics
    /// When the slot is in flight, or the buffer is shorter.
    pub fn start(&mut self, slot: usize, way: Way, file: &File, offset: u64, length: usize) {
        let fd = Fd(file.as_raw_fd());
        let bytes = self.buffer(slot, length);
        let (memory, count) = (bytes.as_mut_ptr(), u32::try_from(length).unwrap_or(u32::MAX));
        let entry: squeue::Entry = match way {
            Way::Read => opcode::Read::new(fd, memory, count).offset(offset).build(),
            Way::Write => opcode::Write::new(fd, memory, count).offset(offset).build(),
        };
        let entry = entry.user_data(slot as u64);
        // SAFETY: the buffer is the slot's own, `count` bytes of it are within bounds (`buffer`
        // asserted it), it is not touched while `flying` is set [lab_ring.1], and it is not freed
        // before it is back ([lab_ring.2]: `drop` waits). A descriptor that is closed too early
        // makes the kernel answer EBADF, not touch memory.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "the queue has room for every slot");
        self.slots[slot].flying = true;
        self.flying += 1;
    }

    /// Gives the kernel what was started, waits until one is back or the time is over, and tells of
    /// all that are: slot, and bytes moved or why not.
    ///
    /// # Errors
    /// When the ring itself fails. Operations in flight stay so.
    pub fn wait(
        &mut self,
        limit: Duration,
        back: &mut dyn FnMut(usize, io::Result<usize>),
    ) -> io::Result<()> {
        let time = Timespec::from(limit);
        let args = SubmitArgs::new().timespec(&time);
        let wanted = usize::from(self.flying > 0 && self.ring.completion().is_empty());
        match self.ring.submitter().submit_with_args(wanted, &args) {
            Ok(_) => {}
            Err(error) => match error.raw_os_error() {
                // The time is over, a signal came, or the kernel wants its answers taken first.
                Some(TIME_OVER | INTERRUPTED | BUSY) => {}
                _ => return Err(error),
            },
        }
        for entry in self.ring.completion() {
            let slot = entry.user_data() as usize;
            self.slots[slot].flying = false;
            self.flying -= 1;
            let result = entry.result();
            back(slot, usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)));
        }
        Ok(())
    }
}

const INTERRUPTED: i32 = 4;
const BUSY: i32 = 16;
const TIME_OVER: i32 = 62;

impl Drop for Ring {
    fn drop(&mut self) {
        while self.flying > 0 {
            if self.wait(Duration::from_millis(100), &mut |_, _| {}).is_err() {
                // The kernel may still write into the buffers: they are left to it.
                for slot in self.slots.iter_mut().filter(|slot| slot.flying) {
                    std::mem::forget(std::mem::take(&mut slot.memory));
                }
                return;
            }
        }
    }
}

/// Whether this kernel and the sandbox let us have a ring.
pub fn available() -> bool {
    Ring::new(1, PAGE).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ring, or nothing where there is none: the threads' way is tested elsewhere.
    fn ring(depth: usize) -> Option<Ring> {
        let made = Ring::new(depth, 8192);
        if let Err(error) = &made {
            eprintln!("no io_uring here: {error}");
        }
        made.ok()
    }

    #[test]
    fn what_is_written_is_read_again() {
        let Some(mut ring) = ring(4) else { return };
        let file = tempfile::tempfile().unwrap();
        for slot in 0..4 {
            ring.buffer(slot, 4096).fill(slot as u8 + 1);
            ring.start(slot, Way::Write, &file, slot as u64 * 4096, 4096);
        }
        let mut back = Vec::new();
        while ring.flying() > 0 {
            ring.wait(Duration::from_secs(1), &mut |slot, result| back.push((slot, result.unwrap())))
                .unwrap();
        }
        back.sort_unstable();
        assert_eq!(back, [(0, 4096), (1, 4096), (2, 4096), (3, 4096)]);
        ring.start(0, Way::Read, &file, 2 * 4096, 8192);
        while ring.flying() > 0 {
            ring.wait(Duration::from_secs(1), &mut |_, result| assert_eq!(result.unwrap(), 8192)).unwrap();
        }
        assert!(
            ring.buffer(0, 8192).iter().enumerate().all(|(at, byte)| usize::from(*byte) == 3 + at / 4096)
        );
    }

    #[test]
    fn a_failure_comes_back_as_one_and_time_passes() {
        let Some(mut ring) = ring(2) else { return };
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        ring.start(1, Way::Write, &full, 0, 512);
        let mut seen = None;
        while ring.flying() > 0 {
            ring.wait(Duration::from_secs(1), &mut |slot, result| {
                seen = Some((slot, result.unwrap_err().raw_os_error()))
            })
            .unwrap();
        }
        assert_eq!(seen, Some((1, Some(28))));
        ring.wait(Duration::from_millis(1), &mut |_, _| panic!("nothing was asked for")).unwrap();
    }

    #[test]
    fn a_ring_that_is_dropped_waits() {
        let Some(mut ring) = ring(8) else { return };
        let file = tempfile::tempfile().unwrap();
        for slot in 0..8 {
            ring.start(slot, Way::Write, &file, slot as u64 * 8192, 8192);
        }
        drop(ring);
        assert_eq!(file.metadata().unwrap().len(), 8 * 8192);
    }

    #[test]
    #[should_panic(expected = "the kernel's")]
    fn a_buffer_in_flight_is_not_to_be_had() {
        let Some(mut ring) = ring(1) else { panic!("the kernel's: there is no ring") };
        let file = tempfile::tempfile().unwrap();
        ring.start(0, Way::Read, &file, 0, 512);
        ring.buffer(0, 512);
    }
}
