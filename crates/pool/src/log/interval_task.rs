//! The task that logs what is pending about once a second.

use crate::core::state::Watch;
use crate::log::state::Zil;
use std::time::Duration;

impl Zil {
    /// Body of the task: looks until told to stop.
    pub(crate) fn interval_loop(&self) {
        let _watch = Watch(&self.core, "log interval");
        let mut pause = INTERVAL;
        loop {
            {
                let mut datasets = self.interval.datasets.lock();
                if self.core.is_stopping() {
                    return;
                }
                if datasets.is_empty() {
                    self.interval.news.wait(&mut datasets);
                    continue;
                }
                self.interval.news.wait_for(&mut datasets, pause);
            }
            if self.core.is_stopping() {
                return;
            }
            pause = if self.log_interval() == Some(false) { SOON } else { INTERVAL };
        }
    }

    /// Logs pending changes of datasets with `journal=data`. A task runs it about once a second; in
    /// a world without tasks the caller does. `None` if there is no such dataset. True if all
    /// earlier changes in them are durable, false if a commit that was asked for will make them so.
    #[must_use]
    pub fn log_interval(&self) -> Option<bool> {
        let wanted = self.interval.datasets.lock().clone();
        if wanted.is_empty() || self.core.is_suspended() {
            return None;
        }
        let heads = self.core.heads();
        let open = heads.iter().filter(|head| wanted.contains(&head.id()));
        // Each one is asked, so that each one logs.
        Some(open.filter(|head| !head.log_pending()).count() == 0)
    }
}

/// From one look to the next.
const INTERVAL: Duration = Duration::from_secs(1);

/// The same where something was on its way: it is logged as soon as that is there.
const SOON: Duration = Duration::from_millis(100);
