//! Many operations in flight on behalf of few threads, through io_uring.
//!
//! Each slot of a ring is what a thread of `threads=` is otherwise: it takes its turn, has one
//! operation under way, and is free again when that is back. A response time spans from handing the
//! operation over to taking its answer.

use super::{PRIORITY_NAP_NS, Storage, Thread};
use crate::pattern::Pattern;
use crate::random::Random;
use crate::rate::Gate;
use crate::shared::{Cells, INCORRECT_SIZE, Shared, errno_text};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use steadfast_lab_params::Operation;
use steadfast_lab_ring::{Ring, Way};

/// Longest wait before the end of a run is looked for again.
const NAP: Duration = Duration::from_millis(20);
/// Wait of a group that is ahead of the others.
const GATE_NAP: Duration = Duration::from_micros(50);

/// Operation of a slot under way.
#[derive(Clone, Copy)]
struct Flight {
    stream: usize,
    read: bool,
    part: usize,
    address: u64,
    length: u64,
    begun: Instant,
    /// How late it began, if response times are counted from the arrival.
    late_ns: u64,
}

/// Next operation of a free slot.
enum Turn {
    Go { stream: usize, late_ns: u64 },
    Later(Duration),
}

impl Storage {
    /// The life of a thread that carries `depth` operations at a time.
    pub(crate) fn work_ring(
        &self,
        shared: &Shared<'_>,
        gate: Option<&Gate>,
        cells: &Cells,
        pattern: &Pattern,
        thread: Thread,
        depth: usize,
    ) {
        let files = match self.open() {
            Ok(files) => files,
            Err(error) => return shared.fail(error.to_string()),
        };
        let mut ring = match Ring::new(depth, self.largest() as usize) {
            Ok(ring) => ring,
            Err(error) => return shared.fail(format!("io_uring: {error}; use --engine threads.")),
        };
        let mut random = Random::new(&[thread.key]);
        let mut generation = thread.key << 40;
        let mut free: Vec<usize> = (0..depth).rev().collect();
        let mut flights: Vec<Option<Flight>> = vec![None; depth];
        let mut over = false;
        loop {
            let mut limit = NAP;
            over |= shared.ended() || self.out(shared);
            while !over && let Some(slot) = free.last().copied() {
                let (stream, late_ns) = match self.turn(&mut random, shared, gate) {
                    Turn::Go { stream, late_ns } => (stream, late_ns),
                    Turn::Later(wait) => {
                        limit = limit.min(wait);
                        break;
                    }
                };
                generation += 1;
                // Streams are dealt out over slots as over threads.
                let number = thread.number + slot;
                let Some((read, address, length)) = self.next_operation(stream, number, &mut random) else {
                    over = true;
                    break;
                };
                let (part, address) = self.place(address, length, files.len());
                let bytes = ring.buffer(slot, length as usize);
                if !read {
                    pattern.fill(bytes, self.part_key(part), address, generation);
                }
                let begun = Instant::now();
                ring.start(
                    slot,
                    if read { Way::Read } else { Way::Write },
                    &files[part],
                    address,
                    length as usize,
                );
                flights[slot] = Some(Flight { stream, read, part, address, length, begun, late_ns });
                free.pop();
            }
            if ring.flying() == 0 {
                if over {
                    break;
                }
                std::thread::sleep(limit);
                continue;
            }
            let done = ring.wait(limit, &mut |slot, result| {
                free.push(slot);
                let Some(flight) = flights[slot].take() else { return };
                let ns = flight.begun.elapsed().as_nanos() as u64 + flight.late_ns;
                let cell = &cells.slots[flight.stream * 2 + usize::from(!flight.read)].1;
                let errno = match result {
                    Ok(count) if count as u64 == flight.length => {
                        return cell.record(ns, flight.length, shared.interval.load(Relaxed));
                    }
                    Ok(_) => INCORRECT_SIZE.to_string(),
                    Err(error) => errno_text(&error),
                };
                let operation = if flight.read { Operation::Read } else { Operation::Write };
                let path = self.part_path(flight.part);
                self.failed(operation, path, flight.address, flight.length, errno, shared);
            });
            if let Err(error) = done {
                shared.fail(format!("io_uring failed: {error}; use --engine threads."));
                break;
            }
        }
        drop(ring);
        self.finish(&files, shared, gate);
    }

    /// Whether a free slot may begin, and with which stream.
    fn turn(&self, random: &mut Random, shared: &Shared<'_>, gate: Option<&Gate>) -> Turn {
        let now = shared.now_ns();
        let wait = |due: u64| {
            Turn::Later(Duration::from_nanos(due.saturating_sub(now).clamp(1_000, PRIORITY_NAP_NS)))
        };
        let mut late_ns = 0;
        if let Some(schedule) = &self.schedule {
            match schedule.take_due(random, now) {
                Ok(due) if shared.from_arrival => late_ns = now.saturating_sub(due),
                Ok(_) => {}
                Err(due) => return wait(due),
            }
        }
        if let Some(gate) = gate
            && !gate.admit(self.index)
        {
            return Turn::Later(GATE_NAP);
        }
        let stream = match self.prioritised {
            true => match self.next_stream(random, now) {
                Ok(stream) => stream,
                Err(due) => return wait(due),
            },
            false => self.draw_stream(random),
        };
        Turn::Go { stream, late_ns }
    }
}
