//! Transfers that wait for a device.
//!
//! A sparse image file grows. If the file system below it is full, a write fails with ENOSPC, and
//! it would succeed once something is deleted there. A store of objects that does not answer today
//! answers tomorrow. Nothing is lost by repeating such a write: the same bytes go to the same place
//! or name. So it waits and is repeated, as ZFS repeats the I/O of a suspended pool. A flush is not
//! repeated ([device.2]).
//!
//! Reads of a client wait as well if the pool says so ([`DeviceWait::hold_reads`]), until the store
//! answers, the client is killed, or the pool says otherwise.
//!
//! [wait.1] Nothing waits for a store whose group does without it: other copies are read, and the
//!      device is given up. test: `nothing_waits_for_a_store_whose_group_does_without_it`

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use steadfast_format::DeviceId;

use crate::{Error, Result};

/// Pause before a transfer is repeated.
const RETRY: Duration = Duration::from_secs(1);

/// An obstacle that passes without anybody repairing the pool.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Obstacle {
    /// The file system that holds an image has no room.
    HostFull,
    /// A store of objects does not answer, or takes nothing from us at present.
    StoreAway,
}

/// A wait for a device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Outage {
    /// The obstacle.
    pub obstacle: Obstacle,
    /// When the first transfer that failed began, in nanoseconds since 1970.
    pub since_ns: u64,
    /// The device.
    pub id: DeviceId,
    /// Its name.
    pub device: String,
    /// Error of the first transfer that waits.
    pub reason: String,
    /// Evidence in it.
    pub fields: Vec<(&'static str, String)>,
}

/// A change of what is waited for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Change {
    /// From now on a transfer waits.
    Waits(Outage),
    /// None does any more: the one that waited succeeded.
    GoesOn(Outage),
    /// None does any more: the last that waited was a read, whose client is gone, or failed with
    /// another error. Whether the obstacle is still there is not known.
    Forgotten(Outage),
}

/// Hears of changes.
pub type OnChange = Box<dyn Fn(&Change) + Send + Sync>;

/// True if the group of a device does without it.
pub type IsSpared = Box<dyn Fn(DeviceId) -> bool + Send + Sync>;

/// The next step of a transfer that was tried.
enum Then {
    Returns,
    Repeats,
    RepeatsAfterWait,
}

/// Whether the transfers of a pool wait for its devices, and whether one does now.
#[derive(Default)]
pub struct DeviceWait {
    state: Mutex<State>,
    changed: Condvar,
    /// Outages that have ended.
    ended: AtomicU64,
    /// Reads of clients wait.
    holds_reads: AtomicBool,
    hooks: OnceLock<(OnChange, IsSpared)>,
}

#[derive(Default)]
struct State {
    /// Transfers wait instead of failing.
    waits: bool,
    /// The outage for which a transfer waits, or waited when it was given up.
    outage: Option<Outage>,
    /// Transfers that failed, and that were asked for by [`DeviceWait::retry`].
    failed: u64,
    asked: u64,
    /// Transfers that wait, those included that are being repeated.
    waiting: usize,
    /// Ends of outages that are being told.
    telling: usize,
}

impl DeviceWait {
    /// From now on transfers wait. The hooks are kept from the first call.
    pub fn begin(&self, on_change: OnChange, is_spared: IsSpared) {
        _ = self.hooks.set((on_change, is_spared));
        self.lock().waits = true;
    }

    /// From now on transfers fail, also those that wait.
    pub fn give_up(&self) {
        self.lock().waits = false;
        self.changed.notify_all();
    }

    /// Whether reads of clients wait from now on.
    pub fn hold_reads(&self, on: bool) {
        self.holds_reads.store(on, Ordering::Release);
        self.changed.notify_all();
    }

    pub(crate) fn holds_reads(&self) -> bool {
        self.holds_reads.load(Ordering::Acquire)
    }

    /// The outage for which a transfer waits, or waited when it was given up.
    #[must_use]
    pub fn outage(&self) -> Option<Outage> {
        self.lock().outage.clone()
    }

    /// The obstacle that is waited for now.
    #[must_use]
    pub fn waits_for(&self) -> Option<Obstacle> {
        let state = self.lock();
        state.outage.as_ref().filter(|_| state.waits).map(|outage| outage.obstacle)
    }

    /// Repeats the transfers that wait at once. True if one succeeded within `patience`, or none
    /// waited: then those who hear of changes have heard of it, too.
    pub fn retry(&self, patience: Duration) -> bool {
        let mut state = self.lock();
        state.asked += 1;
        self.changed.notify_all();
        let failed = state.failed;
        let is_open = |state: &mut State| {
            state.outage.is_some() && state.failed == failed || state.outage.is_none() && state.telling > 0
        };
        let waited = self.changed.wait_timeout_while(state, patience, is_open);
        waited.unwrap_or_else(PoisonError::into_inner).0.outage.is_none()
    }

    /// Makes a transfer of a device, and repeats it while something stands in the way that passes.
    /// `began_ns` tells when the attempt that failed began. After each pause `goes_on` is asked
    /// whether there is anybody left who waits.
    ///
    /// # Errors
    /// Of the transfer.
    pub(crate) fn patiently<T>(
        &self,
        device: DeviceId,
        began_ns: &dyn Fn() -> u64,
        goes_on: &dyn Fn() -> bool,
        transfer: impl Fn() -> Result<T>,
    ) -> Result<T> {
        let mut has_waited = false;
        loop {
            let ended = self.ended.load(Ordering::Acquire);
            let result = transfer();
            let then = match &result {
                Err(error) => self.wait(device, began_ns, error, (ended, !has_waited)),
                Ok(_) => Then::Returns,
            };
            match then {
                Then::Repeats => {}
                Then::RepeatsAfterWait if !goes_on() => {
                    self.leave();
                    return result;
                }
                Then::RepeatsAfterWait => has_waited = true,
                Then::Returns => {
                    if has_waited {
                        self.end(result.as_ref().err());
                    }
                    return result;
                }
            }
        }
    }

    /// Waits before a transfer is repeated. `ended` outages had ended when the attempt began, and
    /// it may be the first one of its transfer that waits.
    fn wait(
        &self,
        id: DeviceId,
        began_ns: &dyn Fn() -> u64,
        error: &Error,
        (ended, is_first): (u64, bool),
    ) -> Then {
        let Some(obstacle) = obstacle(error) else { return Then::Returns };
        if !self.lock().waits {
            return Then::Returns;
        }
        // [wait.1]
        let spares = |(_, is_spared): &(OnChange, IsSpared)| is_spared(id);
        if obstacle == Obstacle::StoreAway && self.hooks.get().is_some_and(spares) {
            return Then::Returns;
        }
        let mut state = self.lock();
        if state.outage.is_none() && self.ended.load(Ordering::Acquire) != ended {
            // It failed in an outage that has ended: it tells nothing about now.
            return Then::Repeats;
        }
        state.failed += 1;
        state.waiting += usize::from(is_first);
        let asked = state.asked;
        if state.outage.is_none() {
            let (device, reason) = (error.device().to_owned(), error.to_string());
            let outage =
                Outage { obstacle, since_ns: began_ns(), id, device, reason, fields: error.fields() };
            state.outage = Some(outage.clone());
            drop(state);
            self.tell(&Change::Waits(outage));
            state = self.lock();
        }
        self.changed.notify_all();
        let is_early = |state: &mut State| state.waits && state.asked == asked && state.outage.is_some();
        let waited = self.changed.wait_timeout_while(state, RETRY, is_early);
        // A transfer that was given up meanwhile fails once more, and its error is returned.
        drop(waited);
        Then::RepeatsAfterWait
    }

    /// A transfer that waited is not repeated, as nobody is left who wants it. The last one that
    /// goes takes the outage with it.
    fn leave(&self) {
        let mut state = self.lock();
        state.waiting -= 1;
        if state.waiting > 0 || !state.waits {
            return;
        }
        let outage = self.take(&mut state);
        drop(state);
        self.changed.notify_all();
        if let Some(outage) = outage {
            self.tell(&Change::Forgotten(outage));
            self.told();
        }
    }

    /// Ends the outage, if there is one: from now on no transfer waits for it.
    fn take(&self, state: &mut State) -> Option<Outage> {
        let outage = state.outage.take();
        self.ended.fetch_add(u64::from(outage.is_some()), Ordering::AcqRel);
        state.telling += usize::from(outage.is_some());
        outage
    }

    /// The end of an outage that was taken has been told.
    fn told(&self) {
        self.lock().telling -= 1;
        self.changed.notify_all();
    }

    /// A transfer that had waited has ended.
    fn end(&self, error: Option<&Error>) {
        self.lock().waiting -= 1;
        if error.is_some_and(|error| obstacle(error).is_some()) {
            // It was given up, and its caller suspends the pool. Until then `outage` says so.
            return;
        }
        let mut state = self.lock();
        let outage = self.take(&mut state);
        drop(state);
        self.changed.notify_all();
        let Some(outage) = outage else { return };
        // After another failure the caller may suspend the pool. If it does not, as for a reader of
        // an object that is gone, nobody else may be left waiting.
        self.tell(&match error {
            None => Change::GoesOn(outage),
            Some(_) => Change::Forgotten(outage),
        });
        self.told();
    }

    fn tell(&self, change: &Change) {
        if let Some((on_change, _)) = self.hooks.get() {
            on_change(change);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The obstacle behind an error, if it passes without anybody repairing the pool.
fn obstacle(error: &Error) -> Option<Obstacle> {
    match error {
        Error::Away { .. } => Some(Obstacle::StoreAway),
        error if is_full(error) => Some(Obstacle::HostFull),
        _ => None,
    }
}

/// True if a device failed because the file system that holds it has no room.
pub(crate) fn is_full(error: &Error) -> bool {
    [Errno::NOSPC, Errno::DQUOT].iter().any(|errno| error.errno() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Operation;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, AtomicU32};

    fn no_space() -> Error {
        let source = Errno::NOSPC.into();
        Error::Io { device: "a.img".into(), operation: Operation::Write, offset: 7, source }
    }

    fn away() -> Error {
        Error::Away {
            device: "s3://b".into(),
            operation: Operation::Write,
            object: "seg/1/7".into(),
            status: Some(503),
            request: Some("req-9".into()),
            reason: "the store does not answer".into(),
        }
    }

    /// A wait that tells its changes, and how often something stood in the way and passed.
    fn wait() -> (Arc<DeviceWait>, Arc<[AtomicU32; 2]>) {
        let (wait, told) = (Arc::new(DeviceWait::default()), Arc::<[AtomicU32; 2]>::default());
        let hear = Arc::clone(&told);
        let on_change = Box::new(move |change: &Change| {
            hear[usize::from(matches!(change, Change::GoesOn(_)))].fetch_add(1, Ordering::SeqCst);
        });
        wait.begin(on_change, Box::new(|device| device == DeviceId(9)));
        (wait, told)
    }

    fn until(is_so: impl Fn() -> bool) {
        while !is_so() {
            std::thread::yield_now();
        }
    }

    const ONE: DeviceId = DeviceId(1);

    #[test]
    fn a_transfer_waits_until_the_obstacle_passes_and_others_fail_at_once() {
        for (error, obstacle) in
            [(no_space as fn() -> Error, Obstacle::HostFull), (away, Obstacle::StoreAway)]
        {
            let (wait, told) = wait();
            let passed = AtomicBool::new(false);
            let transfer = || if passed.load(Ordering::SeqCst) { Ok(5) } else { Err(error()) };
            std::thread::scope(|scope| {
                let writer = scope.spawn(|| wait.patiently(ONE, &|| 77, &|| true, transfer));
                until(|| wait.outage().is_some());
                let outage = wait.outage().unwrap();
                assert_eq!((outage.obstacle, outage.since_ns), (obstacle, 77));
                assert_eq!(
                    (outage.reason, outage.device),
                    (error().to_string(), error().device().to_owned())
                );
                assert_eq!(wait.waits_for(), Some(obstacle));
                assert!(!wait.retry(Duration::from_secs(600)), "it failed again");
                passed.store(true, Ordering::SeqCst);
                assert!(wait.retry(Duration::from_secs(600)));
                assert_eq!(writer.join().unwrap().unwrap(), 5);
            });
            assert_eq!([0, 1].map(|at: usize| told[at].load(Ordering::SeqCst)), [1, 1]);
            assert_eq!(wait.outage(), None);
            // Another error does not pass.
            let fatal = || Err::<(), _>(Error::ReadOnly { device: "a.img".into() });
            assert!(wait.patiently(ONE, &|| 0, &|| true, fatal).is_err());
        }
    }

    #[test]
    fn transfers_that_wait_are_given_up() {
        let (wait, told) = wait();
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| wait.patiently(ONE, &|| 0, &|| true, || Err::<(), _>(no_space())));
            until(|| wait.outage().is_some());
            wait.give_up();
            assert!(is_full(&writer.join().unwrap().unwrap_err()));
            assert!(wait.outage().is_some() && wait.waits_for().is_none(), "nobody may take it for writable");
        });
        assert!(
            wait.patiently(ONE, &|| 0, &|| true, || Err::<(), _>(no_space())).is_err(),
            "nor does a later one wait"
        );
        assert_eq!([0, 1].map(|at: usize| told[at].load(Ordering::SeqCst)), [1, 0]);
    }

    /// A caller that hears that transfers go on finds a pool that goes on.
    #[test]
    fn an_end_that_was_asked_for_has_been_told() {
        let (wait, heard) = (Arc::new(DeviceWait::default()), Arc::new(AtomicBool::new(false)));
        let hears = Arc::clone(&heard);
        let on_change = Box::new(move |change: &Change| {
            if matches!(change, Change::GoesOn(_)) {
                (0..10_000).for_each(|_| std::thread::yield_now());
                hears.store(true, Ordering::SeqCst);
            }
        });
        wait.begin(on_change, Box::new(|_| false));
        let is_back = AtomicBool::new(false);
        let transfer = || if is_back.load(Ordering::SeqCst) { Ok(5) } else { Err(away()) };
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| wait.patiently(ONE, &|| 0, &|| true, transfer));
            until(|| wait.outage().is_some());
            is_back.store(true, Ordering::SeqCst);
            assert!(wait.retry(Duration::from_secs(600)));
            assert!(heard.load(Ordering::SeqCst));
            assert_eq!(writer.join().unwrap().unwrap(), 5);
        });
    }

    /// The outage ends after a second transfer has failed in it, and before that one waits.
    #[test]
    fn a_transfer_that_failed_before_the_outage_ended_begins_no_other() {
        let wait = Arc::new(DeviceWait::default());
        let told = Arc::<[AtomicU32; 2]>::default();
        let is_back = Arc::new(AtomicBool::new(false));
        let (weak, hear, back) = (Arc::downgrade(&wait), Arc::clone(&told), Arc::clone(&is_back));
        let on_change = Box::new(move |change: &Change| {
            hear[usize::from(matches!(change, Change::GoesOn(_)))].fetch_add(1, Ordering::SeqCst);
        });
        let is_spared = Box::new(move |device| {
            if device == DeviceId(2) {
                back.store(true, Ordering::SeqCst);
                assert!(weak.upgrade().unwrap().retry(Duration::from_secs(600)));
            }
            false
        });
        wait.begin(on_change, is_spared);
        let transfer = || if is_back.load(Ordering::SeqCst) { Ok(5) } else { Err(away()) };
        std::thread::scope(|scope| {
            let first = scope.spawn(|| wait.patiently(ONE, &|| 0, &|| true, transfer));
            until(|| wait.outage().is_some());
            assert_eq!(wait.patiently(DeviceId(2), &|| 0, &|| true, transfer).unwrap(), 5);
            assert_eq!(first.join().unwrap().unwrap(), 5);
        });
        assert_eq!([0, 1].map(|at: usize| told[at].load(Ordering::SeqCst)), [1, 1]);
    }

    /// A wait, and how often each kind of change was told: waits, goes on, forgotten.
    fn wait_by_kind() -> (Arc<DeviceWait>, Arc<[AtomicU32; 3]>) {
        let wait = Arc::new(DeviceWait::default());
        let told = Arc::<[AtomicU32; 3]>::default();
        let hear = Arc::clone(&told);
        let on_change = Box::new(move |change: &Change| {
            let at = match change {
                Change::Waits(_) => 0,
                Change::GoesOn(_) => 1,
                Change::Forgotten(_) => 2,
            };
            hear[at].fetch_add(1, Ordering::SeqCst);
        });
        wait.begin(on_change, Box::new(|_| false));
        (wait, told)
    }

    #[test]
    fn a_transfer_that_waited_and_failed_otherwise_ends_the_outage_for_all() {
        let (wait, told) = wait_by_kind();
        let is_gone = AtomicBool::new(false);
        let missing = || Error::Missing { device: "s3://b".into(), object: "seg/1/7".into() };
        let transfer = || Err::<(), _>(if is_gone.load(Ordering::SeqCst) { missing() } else { away() });
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| wait.patiently(ONE, &|| 0, &|| true, transfer));
            until(|| wait.outage().is_some());
            is_gone.store(true, Ordering::SeqCst);
            assert!(matches!(reader.join().unwrap(), Err(Error::Missing { .. })));
        });
        assert_eq!(wait.outage(), None);
        assert_eq!([0, 1, 2].map(|at: usize| told[at].load(Ordering::SeqCst)), [1, 0, 1]);
    }

    #[test]
    fn nothing_waits_for_a_store_whose_group_does_without_it() {
        let (wait, told) = wait();
        assert!(wait.patiently(DeviceId(9), &|| 0, &|| true, || Err::<(), _>(away())).is_err());
        assert_eq!((wait.outage(), told[0].load(Ordering::SeqCst)), (None, 0));
    }

    #[test]
    fn a_read_whose_client_is_gone_forgets_the_outage_unless_somebody_else_waits() {
        let (wait, told) = wait_by_kind();
        let counts = || [0, 1, 2].map(|at: usize| told[at].load(Ordering::SeqCst));
        let gone = || wait.patiently(ONE, &|| 0, &|| false, || Err::<(), _>(away()));
        gone().unwrap_err();
        assert_eq!((wait.outage(), counts()), (None, [1, 0, 1]));
        let is_back = AtomicBool::new(false);
        let transfer = || if is_back.load(Ordering::SeqCst) { Ok(5) } else { Err(away()) };
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| wait.patiently(ONE, &|| 0, &|| true, transfer));
            until(|| wait.outage().is_some());
            gone().unwrap_err();
            assert!(wait.outage().is_some(), "a commit still waits");
            is_back.store(true, Ordering::SeqCst);
            assert!(wait.retry(Duration::from_secs(600)));
            assert_eq!(writer.join().unwrap().unwrap(), 5);
        });
        assert_eq!((wait.outage(), counts()), (None, [2, 1, 1]));
    }
}
