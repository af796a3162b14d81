//! Diagnosis: a device that errs too much is taken out of use, or marked, before somebody has to
//! look.
//!
//! ## Rule
//! A device is judged by its errors in the last [`WINDOW`]: [`ERRORS_MAX`] errors of one cause are
//! too many. Numbers and consequences are those of the diagnosis engine of ZFS's event daemon.
//!
//! | cause    | counts                                                            | consequence |
//! |----------|-------------------------------------------------------------------|---|
//! | io       | reads, writes, flushes and discards that failed                   | faulted; degraded if it cannot be spared |
//! | checksum | blocks that gave wrong bytes, of any kind, each once              | degraded |
//! | slow     | calls that took [`steadfast_device::metered::SLOW`] or longer     | degraded |
//!
//! *Faulted* is out of use: [`LeafState::Faulted`] in the labels. *Degraded* is a mark in memory:
//! the device is read and written as before, because its good content is worth having. If a device
//! of a group fails to take a write, a flush or a label, it is faulted at once, for its content is
//! not known then (`Space::give_up_or_fail`).
//!
//! ## Invariants
//! [diagnosis.1] An error is judged once: errors counted at the last look do not count again.
//!      `Case::observe`
//! [diagnosis.2] Marks and their errors go with `zpool clear`, and with the device.
//!      `Diagnosis::forget`

use crate::core::ranked::{RankedMutex, rank};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use steadfast_device::metered::SLOW;
use steadfast_format::DeviceId;
#[cfg(doc)]
use steadfast_format::LeafState;

/// Errors of one cause within [`WINDOW`] that are too many.
pub const ERRORS_MAX: u64 = 10;
/// How long an error counts.
pub const WINDOW: Duration = Duration::from_secs(600);

/// Why a device is thought to be bad.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Cause {
    /// It answered with errors.
    Io,
    /// It gave wrong bytes.
    Checksum,
    /// It answered late.
    Slow,
}

impl Cause {
    const ALL: [Cause; 3] = [Cause::Io, Cause::Checksum, Cause::Slow];

    /// The errors in words.
    #[must_use]
    pub fn words(self) -> String {
        let minutes = WINDOW.as_secs() / 60;
        match self {
            Cause::Io => format!("too many errors ({ERRORS_MAX} within {minutes} minutes)"),
            Cause::Checksum => format!("too many wrong blocks ({ERRORS_MAX} within {minutes} minutes)"),
            Cause::Slow => {
                format!("too slow ({ERRORS_MAX} calls of {} s within {minutes} minutes)", SLOW.as_secs())
            }
        }
    }
}

/// Error counts of one device.
#[derive(Debug, Default)]
pub(crate) struct Case {
    /// Errors counted at the last look, by cause.
    pub seen: [u64; 3],
    /// When errors came, and how many, oldest first.
    pub recent: [VecDeque<(u64, u64)>; 3],
    pub mark: Option<Cause>,
}

impl Case {
    /// True if counters show errors that were not judged yet. Counters that were set back begin
    /// anew.
    pub fn has_news(&mut self, totals: [u64; 3]) -> bool {
        for (seen, total) in self.seen.iter_mut().zip(totals) {
            if *seen > total {
                *seen = 0;
            }
        }
        self.seen != totals
    }

    /// Takes the errors since the last look as of now. Gives the cause of which there are too many.
    /// [diagnosis.1]
    pub fn observe(&mut self, totals: [u64; 3], now_ns: u64) -> Option<Cause> {
        let window_ns = u64::try_from(WINDOW.as_nanos()).unwrap_or(u64::MAX);
        let mut worst = None;
        for (at, cause) in Cause::ALL.into_iter().enumerate().rev() {
            let fresh = totals[at].saturating_sub(self.seen[at]);
            self.seen[at] = totals[at];
            let recent = &mut self.recent[at];
            if fresh > 0 {
                recent.push_back((now_ns, fresh));
            }
            while recent.front().is_some_and(|(then, _)| now_ns.saturating_sub(*then) > window_ns) {
                recent.pop_front();
            }
            if fresh > 0 && recent.iter().map(|(_, count)| count).sum::<u64>() >= ERRORS_MAX {
                worst = Some(cause);
            }
        }
        worst
    }
}

/// Diagnosis of a pool's devices.
#[derive(Default)]
pub(crate) struct Diagnosis {
    pub cases: RankedMutex<BTreeMap<DeviceId, Case>, rank::Cases>,
}

impl Diagnosis {
    /// Why a device is marked, if it is.
    pub fn mark(&self, device: DeviceId) -> Option<Cause> {
        self.cases.lock().get(&device).and_then(|case| case.mark)
    }

    /// Begins anew with a device, or with all if none is named. [diagnosis.2]
    pub fn forget(&self, devices: &[DeviceId]) {
        self.cases.lock().retain(|device, _| !devices.is_empty() && !devices.contains(device));
    }

    /// Marks a device. True if it was not.
    pub fn set(&self, device: DeviceId, cause: Cause) -> bool {
        let mut cases = self.cases.lock();
        let case = cases.entry(device).or_default();
        let fresh = case.mark.is_none();
        case.mark.get_or_insert(cause);
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;
    use crate::test_pool::{handle, tank_on};
    use std::sync::Arc;
    use steadfast_device::MemoryDevice;
    use steadfast_env::Env;
    use steadfast_format::{InodeId, KeyFormat};

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn errors_that_are_far_apart_are_forgiven() {
        let mut case = Case::default();
        for error in 1..100 {
            assert!(case.has_news([0, error, 0]));
            assert_eq!(case.observe([0, error, 0], error * 70 * SECOND), None, "nine in ten minutes at most");
            assert!(!case.has_news([0, error, 0]), "[diagnosis.1]");
        }
        let begin = 99 * 70 * SECOND;
        assert_eq!(case.observe([0, 101, 0], begin + SECOND), Some(Cause::Checksum));
    }

    #[test]
    fn the_gravest_cause_is_told_and_counters_may_begin_anew() {
        let mut case = Case::default();
        assert_eq!(case.observe([9, 9, 9], SECOND), None);
        assert_eq!(case.observe([10, 10, 10], SECOND), Some(Cause::Io));
        assert!(case.has_news([1, 0, 0]), "cleared, and one since");
        assert_eq!(case.observe([1, 0, 0], 5000 * SECOND), None);
    }

    #[test]
    fn a_mark_stays_until_it_is_forgotten() {
        let diagnosis = Diagnosis::default();
        let [one, two] = [DeviceId(1), DeviceId(2)];
        assert!(diagnosis.set(one, Cause::Slow) && diagnosis.set(two, Cause::Checksum));
        assert!(!diagnosis.set(one, Cause::Checksum));
        assert_eq!(diagnosis.mark(one), Some(Cause::Slow));
        diagnosis.forget(&[one]);
        assert_eq!((diagnosis.mark(one), diagnosis.mark(two)), (None, Some(Cause::Checksum)));
        diagnosis.forget(&[]);
        assert_eq!(diagnosis.mark(two), None);
    }

    /// An attacker who can write the devices and knows the format can give a file system the root
    /// of another one, with all hashes. The bytes are those that the pointer promises, but the key
    /// does not open them.
    #[test]
    fn bytes_that_are_right_and_do_not_open_are_counted_as_that() {
        let (env, device) = (Env::simulated(3), Arc::new(MemoryDevice::new("a", 128 << 20)));
        let random = |out: &mut [u8]| env.random.fill(out);
        let pool = tank_on(&env, &device);
        for (name, secret) in [("tank/one", [1; 32]), ("tank/two", [2; 32])] {
            let user = crate::new_user_key(KeyFormat::Raw, &secret, &random, None).expect("a key");
            pool.datasets()
                .create_dataset(name, Default::default(), Some(crate::NewKey { user: Arc::new(user) }))
                .expect("made");
        }
        pool.export().expect("exported");
        let import = || {
            let found = crate::scan(vec![handle(&device)]).0.remove(0);
            let spec = crate::ImportSpec {
                new_name: None,
                force: false,
                destroyed: false,
                read_only: false,
                accept_lost_log: false,
                to_checkpoint: false,
                secret: None,
                anchor: Default::default(),
                host: "host".into(),
                memory: Default::default(),
            };
            Pool::import(&env, found, &spec).expect("imported")
        };
        let pool = import();
        {
            let mut table = pool.datasets.table.write();
            let [one, two] = ["tank/one", "tank/two"].map(|name| table.find(name).expect("there"));
            let root = table.get(two).expect("there").row.names;
            let entry = table.get_mut(one).expect("there");
            assert!(root.is_some() && entry.row.names != root);
            (entry.row.names, entry.row_dirty) = (root, true);
        }
        pool.log(0, true, "so that there is something to commit");
        pool.export().expect("exported");
        let pool = import();
        let look = |name: &str, secret: &[u8]| -> crate::Result<()> {
            pool.datasets().load_key(name, secret, false)?;
            pool.datasets().open_dataset(name)?.dataset().inode(InodeId(1))?;
            Ok(())
        };
        // Its nodes are in memory from now on, for its own key.
        look("tank/two", &[2; 32]).expect("its own root");
        assert_eq!(pool.state().leaves[0].counts.checksum_errors, 0);
        let told = look("tank/one", &[1; 32]).expect_err("another's root").to_string();
        assert!(told.contains("authentication"), "{told}");
        let counts = pool.state().leaves[0].counts;
        assert_eq!((counts.checksum_errors, counts.authentication_errors), (2, 2), "both copies: {counts:?}");
        assert_eq!((counts.read_errors, counts.hash_errors), (0, 0), "{counts:?}");
    }
}
