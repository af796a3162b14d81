//! A re-key of the code around stores: their segments are read once for each round of tiles.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use steadfast_env::Env;
use steadfast_format::SegmentId;
use steadfast_format::parity::ParitySegment;

use super::repair::{read_stored, stores_of};
use super::{Cover, Covered, pass_step};
use crate::cell::CellId;
use crate::parity::{Error, ParityDevice, Search, Stage};

/// Outcome of a re-key.
#[derive(Clone, Debug, Default)]
pub struct Rekey {
    /// Segments that the code leaves out, because cells of them did not come back: store, segment.
    pub left_out: Vec<(u16, SegmentId)>,
    /// Times that the stores were read.
    pub rounds: u32,
}

/// Makes the code of these stores anew, under another map: all stores of one code. `lost` are the
/// cells that a recovery just named; without them, a re-key that was interrupted goes on, or one
/// begins that leaves out nothing. With `loss_ppm` the code gives back so many cells in a million
/// from then on. It takes `memory` bytes at most, as far as one tile and one
/// segment let it, and ends soon after `stop` is true: the present code stays, and what was made is
/// kept. `watch` hears how many cells of a round were looked at, of how many. Puts go on
/// meanwhile; passes wait while a round reads [por.16].
///
/// # Errors
/// There is no room, a store lacks a cell that is not among `lost`, the parity is damaged, or it
/// was stopped. The present code stays.
pub fn rekey(
    stores: &[Arc<Covered>],
    lost: Option<&[CellId]>,
    loss_ppm: Option<u32>,
    env: &Env,
    memory: u64,
    stop: &AtomicBool,
    watch: &mut (dyn FnMut(u64, u64) + Send),
) -> Result<Rekey, Error> {
    let covers = stores_of(stores);
    let Some((_, first)) = covers.values().next() else { return Ok(Rekey::default()) };
    let before = {
        let parity = &mut *first.between_steps();
        let left_out = match lost {
            Some(lost) => lost.iter().filter_map(|id| segment_of(parity, *id)).collect(),
            None => parity.left_out(),
        };
        parity.begin_rekey(&left_out, loss_ppm, &*env.random)?;
        parity.map_number()
    };
    passes_while(first, stop, |parity| parity.rekey_stage() == Some(Stage::Wished))?;
    let left_out = first.parity().left_out();
    let mut rekey = Rekey::default();
    loop {
        // The journal has room for what is written while a round reads.
        let (is_half, position) = {
            let parity = first.parity();
            let figures = parity.figures();
            (figures.journal_used > figures.journal_size / 2, parity.standing().position)
        };
        if is_half {
            passes_while(first, stop, |parity| parity.tail() < position && !is_done(parity, before))?;
        }
        let snapshot = first.between_steps().snapshot();
        let read = |segment: ParitySegment, bytes: &mut Vec<u8>| read_stored(&covers, segment, bytes);
        let done = BTreeSet::new();
        let mirrored = |_| ();
        let search = &mut Search { env, memory, done: &done, read: &read, mirrored: &mirrored, stop, watch };
        let Some(mut made) = snapshot.make_tiles(search)? else { break };
        rekey.rounds += 1;
        // The lock is free while tiles are stored, wherever they lie.
        loop {
            let begun = first.parity_mut().begin_made(&mut made);
            let Some(step) = begun else { break };
            let result = step.run();
            first.parity_mut().end_step(result)?;
        }
    }
    passes_while(first, stop, |parity| parity.rekey_stage() == Some(Stage::Complete))?;
    if !is_done(&first.parity(), before) {
        return Err(Error::GivenUp);
    }
    covers.values().for_each(|(_, cover)| cover.let_go());
    rekey.left_out = left_out.iter().map(|segment| (segment.store, segment.segment)).collect();
    Ok(rekey)
}

fn is_done(parity: &ParityDevice, before: u64) -> bool {
    parity.map_number() != before
}

/// The segment of the code that has a cell.
fn segment_of(parity: &ParityDevice, id: CellId) -> Option<ParitySegment> {
    parity.named(id.segment, id.store).find(|known| known.opening == id.opening)
}

/// Steps of passes, one at a time, while there is a reason.
fn passes_while(
    cover: &Cover,
    stop: &AtomicBool,
    is_due: impl Fn(&ParityDevice) -> bool,
) -> Result<(), Error> {
    while is_due(&cover.parity()) {
        if stop.load(Ordering::Relaxed) {
            return Err(Error::Stopped);
        }
        pass_step(&cover.parity)?;
    }
    Ok(())
}

impl Cover {
    /// Objects that were to be deleted, and stayed because cells of them are wrong or could not be
    /// read, may go if a re-key left them out: the code does not need them any more [por.13].
    pub(super) fn let_go(&self) {
        let parity = &mut *self.parity_mut();
        let state = &mut *self.state();
        let mut is_left_out = |segment| parity.release_left_out(segment, self.store);
        state.held_back.retain(|held| !is_left_out(held.segment));
        for segment in state.waiting.all() {
            if is_left_out(segment) {
                state.waiting.remove(segment);
            }
        }
    }
}
