//! Background jobs of the sync task, in order of right of way.
//!
//! A step of a job is bounded in time, so that commits go on beside it. A step that fails suspends
//! the pool; then only jobs that write nothing go on. Both are decided in one place,
//! [`Syncer::run`].

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::commit::sync::Syncer;
use crate::core::error::Result;
use crate::core::state::Watch;

/// Slots discarded in one commit, and in one step with nothing to commit.
pub(crate) const DISCARDS_PER_COMMIT: usize = 32;
/// Pause between steps of a job that has more to do and is in no hurry.
pub(crate) const IDLE_PAUSE: Duration = Duration::from_millis(20);

/// A job of the sync task.
pub(crate) struct Job {
    /// For the message if a bug ends it.
    name: &'static str,
    /// It writes nothing, so it goes on while the pool is suspended.
    reads_only: bool,
    /// One step. Returns when to take the next one: `None` if nothing is under way, `NOW` before
    /// the jobs behind it.
    step: fn(&Syncer) -> Result<Option<Duration>>,
}

/// The pause after which a sync loop looks again at once.
pub(crate) const NOW: Duration = Duration::ZERO;

/// Before each look whether to commit.
pub(crate) const BEFORE_COMMIT: &[Job] = &[
    Job::writes("diagnosis of devices", |syncer| {
        syncer.devices.diagnose();
        Ok(None)
    }),
    Job::writes("spares", |syncer| syncer.devices.look_after_spares().map(|()| None)),
];

/// Instead of a commit, while it is not time for one.
pub(crate) const IDLE: &[Job] = &[
    Job::writes("early writing", |syncer| Ok(syncer.write_early().then_some(NOW))),
    Job::writes("discard", Syncer::discard),
    STORES_DUE,
    TRIM,
    SCAN,
    Job::writes("index of the reference table", |syncer| {
        Ok(syncer.core.fill_index_step().then_some(IDLE_PAUSE))
    }),
    Job::reads("search for damaged files", |syncer| {
        let goes_on = !syncer.core.is_sparing() && syncer.devices.search_step();
        Ok(goes_on.then_some(IDLE_PAUSE))
    }),
];

/// After each commit.
pub(crate) const AFTER_COMMIT: &[Job] =
    &[STORES_DUE, Job::writes("resilver", Syncer::begin_resilver), SCAN, TRIM];

/// Copies of the root, and objects that nobody needs.
pub(crate) const STORES: Job = Job::writes("stores of objects", Syncer::look_after_stores);
/// Passes of a parity device whose tiles lie at a store.
pub(crate) const TILES: Job = Job::writes("tiles of the parity", |syncer| syncer.devices.tiles_step());
/// The same as the work on stores, by a task of its own where there are tasks.
const STORES_DUE: Job = Job::writes("stores of objects", Syncer::stores_due);
/// Trim and initialize.
const TRIM: Job = Job::writes("trim", |syncer| syncer.devices.trim_step());
/// Removal, expansion and rebalance; scrub and resilver.
const SCAN: Job = Job::writes("scan", |syncer| syncer.devices.background_step());

impl Job {
    const fn writes(name: &'static str, step: fn(&Syncer) -> Result<Option<Duration>>) -> Job {
        Job { name, reads_only: false, step }
    }

    const fn reads(name: &'static str, step: fn(&Syncer) -> Result<Option<Duration>>) -> Job {
        Job { name, reads_only: true, step }
    }
}

/// The end of a round of jobs.
pub(crate) struct Round {
    /// When to begin the next one; `None` if nothing is under way.
    pub pause: Option<Duration>,
    pub is_suspended: bool,
}

impl Syncer {
    /// A step of each of these jobs, as far as the pool may do them.
    pub(crate) fn run(&self, jobs: &[Job]) -> Round {
        let mut pause: Option<Duration> = None;
        for job in jobs {
            if !job.reads_only && self.core.is_suspended() {
                continue;
            }
            let watch = Watch(&self.core, job.name);
            let stepped = (job.step)(self);
            drop(watch);
            let next = stepped.unwrap_or_else(|error| {
                self.core.suspend(&error);
                // It looks for a host that took over.
                self.stores.wake();
                Some(NOW)
            });
            pause = pause.into_iter().chain(next).min();
            if next == Some(NOW) {
                break;
            }
        }
        Round { pause, is_suspended: self.core.is_suspended() }
    }

    /// Discards some free slots.
    fn discard(&self) -> Result<Option<Duration>> {
        if self.core.txgs.budget.fullness() > 0 {
            return Ok(None);
        }
        let before = self.core.space.discard(0, 0);
        if before > 0 {
            // A slot that is free for us may be another daemon's, if it has taken over.
            self.core.check_ours()?;
        }
        match self.core.space.discard(DISCARDS_PER_COMMIT, 0) {
            0 => Ok(None),
            // Slots that the last commit freed are discarded after the next one, for which they are
            // reason enough.
            left if left == before => {
                self.core.health.changed.note();
                Ok(None)
            }
            _ => Ok(Some(IDLE_PAUSE)),
        }
    }

    fn begin_resilver(&self) -> Result<Option<Duration>> {
        let _due = self.devices.resilver_due();
        if self.devices.scans.resilver_wanted.swap(false, Ordering::AcqRel) {
            self.devices.resilver_if_needed();
        }
        Ok(None)
    }
}
