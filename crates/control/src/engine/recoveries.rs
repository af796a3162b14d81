//! Recoveries of pools: they run beside other verbs, and commands look at them. Behind one that
//! named lost cells, or if a command wants it, the code is made anew.
//!
//! [recoveries.1] A pool has one recovery at a time. A command that asks for another waits for that
//!     one.
//! [recoveries.2] While it runs, verbs that change of which devices a pool is made are refused:
//!     objects are put back on the stores that there were in the beginning.
//! [recoveries.3] Nothing is put back once a pool is exported or destroyed: its recovery is told to
//!     end, and waited for.
//!     test: `a_recovery_runs_beside_other_commands`
//! [recoveries.4] An import that recovered by itself, and could not give back everything, or was
//!     the last that a map bears, is followed by a recovery, and so by a re-key: once, and before
//!     any that a command asks for.
//! [recoveries.6] An import that finds that a recovery was cut off begins one, once.
//! [recoveries.5] Objects that such an import put back are held against their hashes: behind
//!     that recovery, or else by itself. Nobody waits for that but an export.
//!     test: `what_an_import_put_back_is_held_against_its_hashes`

use crate::api::{LostContent, LostNode, ProvenContent, RecoverOutcome, RecoveryState, RekeyOutcome};
use crate::engine::refuse;
use crate::engine::reports::damage::data_errors;
use crate::engine::state::ImportedPool;
use crate::refusal::{Code, Refusal};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use steadfast_env::Env;

/// The recovery of a pool that is under way, and the last one that ended.
#[derive(Default)]
pub(super) struct Recoveries {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Default)]
struct State {
    job: Option<Arc<Job>>,
    /// Number of the last one that began.
    number: u64,
    /// Outcome of the last one that ended.
    last: Option<Result<RecoverOutcome, Refusal>>,
    /// Tells the look at the content that an import put back to end, while there is one.
    proof: Option<Arc<AtomicBool>>,
    /// Outcome of that look.
    proven: Option<ProvenContent>,
}

#[derive(Default)]
struct Job {
    stop: AtomicBool,
    done: AtomicU64,
    of: AtomicU64,
    /// A command wants the code to be made anew.
    rekey: AtomicBool,
    /// Cells in a million that it is to give back; 0: as before.
    loss_ppm: AtomicU32,
    rekeying: AtomicBool,
    naming: AtomicBool,
}

impl State {
    fn told(&self) -> RecoveryState {
        let mut told = RecoveryState { number: self.number, ..RecoveryState::default() };
        match (&self.job, &self.last) {
            (Some(job), _) => {
                told.running = true;
                told.done = job.done.load(Ordering::Relaxed);
                told.of = job.of.load(Ordering::Relaxed);
                told.rekeying = job.rekeying.load(Ordering::Relaxed);
                told.naming = job.naming.load(Ordering::Relaxed);
            }
            (None, Some(Ok(outcome))) => told.outcome = Some(outcome.clone()),
            (None, Some(Err(refusal))) => told.refused = Some(refusal.clone()),
            (None, None) => {}
        }
        told
    }
}

/// Notes the end of a recovery, however it ends.
struct End {
    held: Arc<ImportedPool>,
    outcome: Result<RecoverOutcome, Refusal>,
}

impl Drop for End {
    fn drop(&mut self) {
        let state = &mut *self.held.recoveries.state.lock();
        state.job = None;
        state.last = Some(self.outcome.clone());
        self.held.recoveries.ended.notify_all();
    }
}

/// Notes the end of a look at content, however it ends.
struct ProofEnd {
    held: Arc<ImportedPool>,
    proven: Option<ProvenContent>,
}

impl Drop for ProofEnd {
    fn drop(&mut self) {
        let state = &mut *self.held.recoveries.state.lock();
        state.proof = None;
        state.proven = self.proven.take();
        self.held.recoveries.ended.notify_all();
    }
}

/// Begins to look at the content that the import put back, unless something is under way
/// [recoveries.5].
pub(super) fn begin_proof(held: &Arc<ImportedPool>, env: &Env) {
    let state = &mut *held.recoveries.state.lock();
    if state.job.is_some() || state.proof.is_some() {
        return;
    }
    let segments = held.pool.devices().take_unproven();
    let stop = Arc::new(AtomicBool::new(false));
    state.proof = Some(Arc::clone(&stop));
    let held = Arc::clone(held);
    let work = move || {
        let mut end = ProofEnd { held, proven: None };
        let devices = end.held.pool.devices();
        end.proven = devices.prove_content(&segments, &stop).map(proven_told);
        if end.proven.is_none() {
            devices.leave_unproven(&segments);
        }
    };
    drop(env.tasks.spawn("content", Box::new(work)));
}

/// Begins a recovery of a pool within so many bytes of memory, unless one is under way
/// [recoveries.1]. The code is made anew behind it if that is due, or wanted.
pub(super) fn begin(
    held: &Arc<ImportedPool>,
    env: &Env,
    memory: u64,
    (rekey, loss_ppm): (bool, Option<u32>),
) -> Result<RecoveryState, Refusal> {
    // Without a parity device there is nothing to begin.
    held.pool.devices().check_code().map_err(refuse::pool)?;
    let state = &mut *held.recoveries.state.lock();
    if let Some(job) = &state.job {
        job.rekey.fetch_or(rekey, Ordering::Relaxed);
        if let Some(loss_ppm) = loss_ppm {
            job.loss_ppm.store(loss_ppm, Ordering::Relaxed);
        }
        return Ok(state.told());
    }
    let job = Arc::new(Job {
        rekey: AtomicBool::new(rekey),
        loss_ppm: AtomicU32::new(loss_ppm.unwrap_or(0)),
        ..Job::default()
    });
    state.job = Some(Arc::clone(&job));
    state.number += 1;
    let (held, clock) = (Arc::clone(held), Arc::clone(&env.clock));
    let work = move || {
        let bug = Refusal::new(Code::Internal, "the recovery ended by a bug; see the daemon's log");
        let mut end = End { held, outcome: Err(bug) };
        let begun = clock.monotonic_ns();
        let mut watch = |done: u64, of: u64| {
            job.done.store(done, Ordering::Relaxed);
            job.of.store(of, Ordering::Relaxed);
        };
        let devices = end.held.pool.devices();
        let recovered = devices.recover_until(memory, &job.stop, &mut watch);
        let nanos = clock.monotonic_ns().saturating_sub(begun);
        // [recoveries.5]
        let mut restored = recovered.as_ref().map_or(Vec::new(), |recovered| recovered.restored.clone());
        if recovered.is_ok() {
            restored.extend(devices.take_unproven());
        }
        let proven = (!restored.is_empty()).then(|| devices.prove_content(&restored, &job.stop)).flatten();
        if proven.is_none() {
            devices.leave_unproven(&restored);
        }
        let lost = recovered.as_ref().map_or(&[][..], |recovered| &recovered.lost);
        let content = if lost.is_empty() {
            None
        } else {
            job.naming.store(true, Ordering::Relaxed);
            devices.name_lost(lost, &job.stop, &mut watch).map(|content| content_told(&end.held, content))
        };
        job.naming.store(false, Ordering::Relaxed);
        let rekeyed = recovered.as_ref().ok().and_then(|recovered| {
            let is_due = job.rekey.load(Ordering::Relaxed) || devices.is_rekey_due(recovered);
            job.rekeying.store(is_due, Ordering::Relaxed);
            is_due.then(|| {
                let begun = clock.monotonic_ns();
                let loss = Some(job.loss_ppm.load(Ordering::Relaxed)).filter(|loss| *loss != 0);
                let rekeyed = devices.rekey_for(recovered, loss, memory, &job.stop, &mut watch);
                let rekeyed = rekeyed.map_err(refuse::pool)?;
                let left_out = rekeyed.left_out.iter().map(|(store, segment)| (*store, segment.0)).collect();
                let nanos = clock.monotonic_ns().saturating_sub(begun);
                Ok(RekeyOutcome { left_out, rounds: rekeyed.rounds, nanos })
            })
        });
        let (rekeyed, rekey_refused): (Option<RekeyOutcome>, Option<Refusal>) = match rekeyed {
            None => (None, None),
            Some(Ok(rekeyed)) => (Some(rekeyed), None),
            Some(Err(refusal)) => (None, Some(refusal)),
        };
        end.outcome = recovered.map_err(refuse::pool).map(|recovered| RecoverOutcome {
            cells: recovered.cells,
            held: recovered.held,
            from_journal: recovered.from_journal,
            from_code: recovered.from_code,
            restored: recovered.restored.iter().map(|segment| segment.0).collect(),
            lost: recovered.lost.into_iter().map(|(store, segment, cell)| (store, segment.0, cell)).collect(),
            content,
            proven: proven.map(proven_told),
            unsound: recovered.unsound,
            rounds: recovered.rounds,
            tiles: recovered.tiles,
            tiles_trouble: recovered.tiles_trouble,
            nanos,
            solving_nanos: u64::try_from(recovered.solving.as_nanos()).unwrap_or(u64::MAX),
            rekeyed,
            rekey_refused,
        });
    };
    drop(env.tasks.spawn("recovery", Box::new(work)));
    Ok(state.told())
}

/// Content of objects that were put back.
fn proven_told(proven: steadfast_pool::ProvenContent) -> ProvenContent {
    let named = proven.named.iter().map(|(segment, offset)| (segment.0, *offset)).collect();
    let steadfast_pool::ProvenContent { blocks, bytes, wrong, locked, unread, .. } = proven;
    ProvenContent { blocks, bytes, wrong, named, locked, unread }
}

/// Content in lost cells, with the places where it is mounted.
pub(super) fn content_told(held: &ImportedPool, content: steadfast_pool::LostContent) -> LostContent {
    let node = |node: steadfast_pool::LostNode| LostNode {
        dataset: node.dataset,
        tree: node.tree.to_owned(),
        level: node.level,
        inodes: node.inodes,
    };
    LostContent {
        live_cells: content.live_cells,
        dead_cells: content.dead_cells,
        files: data_errors(held, &content.files),
        metadata: content.metadata.into_iter().map(node).collect(),
        spared: content.spared,
        unnamed: content.unnamed,
        locked: content.locked,
        unread: content.unread,
        has_checkpoint: content.has_checkpoint,
    }
}

impl Recoveries {
    /// True if one has begun since the pool was imported.
    pub(super) fn has_begun(&self) -> bool {
        self.state.lock().number > 0
    }

    /// The recovery under way, or how the last one ended, at once or when it has ended.
    pub(super) fn look(&self, patience: Duration) -> RecoveryState {
        let until = Instant::now() + patience;
        let mut state = self.state.lock();
        while state.job.is_some() && !self.ended.wait_until(&mut state, until).timed_out() {}
        state.told()
    }

    /// Tells the one under way to end. False if there is none.
    pub(super) fn stop(&self) -> bool {
        let state = self.state.lock();
        let Some(job) = &state.job else { return false };
        job.stop.store(true, Ordering::Relaxed);
        true
    }

    /// Ends the one under way, and a look at content [recoveries.3].
    pub(super) fn end(&self) {
        self.stop();
        let mut state = self.state.lock();
        state.proof.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
        while state.job.is_some() || state.proof.is_some() {
            self.ended.wait(&mut state);
        }
    }

    /// Whether content that an import put back is being looked at, and what was found.
    pub(super) fn proof(&self) -> (bool, Option<ProvenContent>) {
        let state = self.state.lock();
        (state.proof.is_some(), state.proven.clone())
    }

    /// The one under way.
    pub(super) fn progress(&self) -> Option<RecoveryState> {
        let state = self.state.lock();
        state.job.is_some().then(|| state.told())
    }
}

impl ImportedPool {
    /// Refuses a change of the pool's devices while a recovery reads them [recoveries.2].
    pub(super) fn refuse_recovering(&self) -> Result<(), Refusal> {
        match self.recoveries.progress() {
            None => Ok(()),
            Some(_) => {
                let what = "what a store lost is being recovered";
                Err(Refusal::new(Code::RecoveryActive, what).with("pool", self.pool.name()))
            }
        }
    }
}
