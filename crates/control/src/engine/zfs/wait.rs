//! `zfs wait`: files that were removed and are not destroyed yet (ZFS: the delete queue).

use crate::api::FsDeleteQueue;
use crate::caller::Caller;
use crate::check::name_refusal;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use std::time::{Duration, Instant};
use steadfast_property::check_dataset_name;

/// Longest wait of one request: `daemon stop` waits for running requests.
const PATIENCE_MAX: Duration = Duration::from_millis(500);

/// A file is destroyed when its last user closes it, which wakes nobody: time between two looks.
const LOOK: Duration = Duration::from_millis(20);

impl Verb for FsDeleteQueue {
    const IN_TURN: bool = false;

    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, _: &Caller) -> Result<u64, Refusal> {
        let held = engine.held(&self.name)?;
        let info = held.pool.datasets().dataset_info(&self.name).map_err(refuse::pool)?;
        if info.volume.is_some() {
            let what = format!("'{}' is a volume, not a file system", self.name);
            return Err(Refusal::new(Code::FsAbsent, what).with("fs", &self.name));
        }
        let patience = Duration::from_millis(self.patience_ms).min(PATIENCE_MAX);
        let began = Instant::now();
        loop {
            let seen = held.pool.turns();
            // Without a mount nobody has a file open. The next mount destroys what is left.
            if held.mounted_at(&self.name).is_none() {
                return Ok(0);
            }
            let queued = held.pool.datasets().delete_queue(&self.name).map_err(refuse::pool)?;
            let left = patience.saturating_sub(began.elapsed());
            if queued == 0 || left.is_zero() {
                return Ok(queued);
            }
            held.pool.wait_turn(seen, left.min(LOOK));
        }
    }
}
