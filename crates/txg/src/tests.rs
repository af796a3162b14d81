use super::*;
use crate::budget::delay_ns;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{OnceLock, Weak};
use std::time::Duration;
use steadfast_env::Clock;

fn txgs(memory: u64, space: Arc<dyn Space>) -> Txgs {
    Txgs::new(&Env::seeded(1), Txg(0), Limits { memory, space: u64::MAX / 2 }, space)
}

fn cost(memory: u64) -> Cost {
    Cost { memory, space: memory, blocks: 0 }
}

#[test]
fn freeze_sees_whole_operations_only() {
    let env = Env::real();
    let limits = Limits { memory: u64::MAX / 4, space: u64::MAX / 4 };
    let txgs = Arc::new(Txgs::new(&env, Txg(0), limits, Arc::new(Unlimited)));
    // An operation makes the two counters differ and then equal again; freeze must only ever see
    // them equal.
    let (left, right) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = Vec::new();
    for _ in 0..2 {
        let (txgs, left, right, stop) = (txgs.clone(), left.clone(), right.clone(), stop.clone());
        let job = Box::new(move || {
            while !stop.load(Ordering::Relaxed) {
                let _operation = txgs.begin(AdmitKind::Write, Cost::default()).expect("admitted");
                left.fetch_add(1, Ordering::SeqCst);
                std::hint::spin_loop();
                right.fetch_add(1, Ordering::SeqCst);
            }
        });
        writers.push(env.tasks.spawn("writer", job));
    }
    for round in 1..200 {
        let frozen = txgs.gate.advance(|txg| {
            assert_eq!(left.load(Ordering::SeqCst), right.load(Ordering::SeqCst));
            txg
        });
        assert_eq!(frozen, Txg(round));
    }
    stop.store(true, Ordering::Relaxed);
    assert!(writers.into_iter().all(steadfast_env::TaskHandle::join));
}

#[test]
fn a_txg_whose_freeze_gives_nothing_stays_open() {
    let txgs = txgs(1 << 20, Arc::new(Unlimited));
    assert_eq!(txgs.gate.try_advance(|_| None::<Txg>), None);
    assert_eq!(txgs.gate.open_txg(), Txg(1));
    // Those inside, and those that freeze, may ask for the number.
    assert_eq!(txgs.gate.try_advance(|_| Some(txgs.gate.present_txg())), Some(Txg(1)));
    let inside = txgs.gate.enter();
    assert_eq!((inside.txg(), txgs.gate.present_txg()), (Txg(2), Txg(2)));
}

#[test]
fn reserved_falls_only_by_settling_or_release() {
    let txgs = txgs(1 << 20, Arc::new(Unlimited));
    let mut operation = txgs.begin(AdmitKind::Write, cost(1000)).expect("admitted");
    operation.settle(cost(300));
    drop(operation);
    assert_eq!(txgs.budget.reserved(), cost(300));
    assert_eq!(txgs.budget.reserved_in(Txg(1)), cost(300));
    txgs.gate.advance(|_| ());
    drop(txgs.begin(AdmitKind::Write, cost(50)).expect("admitted"));
    txgs.budget.release(Txg(1));
    assert_eq!(txgs.budget.reserved(), cost(50));
}

#[test]
fn the_delay_grows_from_nothing_and_stays_below_its_bound() {
    assert_eq!(delay_ns(600, 128 << 10), 0);
    assert_eq!(delay_ns(800, 128 << 10), 500_000);
    assert_eq!(delay_ns(900, 128 << 10), 1_500_000);
    let mut last = 0;
    for fullness in 0..1200 {
        let delay = delay_ns(fullness, 1 << 20);
        assert!(delay >= last && delay <= 20_000_000, "at {fullness}");
        last = delay;
    }
}

#[test]
fn delays_of_several_writers_queue_up() {
    let env = Env::seeded(1);
    let limits = Limits { memory: 1000 << 20, space: u64::MAX / 2 };
    let txgs = Txgs::new(&env, Txg(0), limits, Arc::new(Unlimited));
    drop(txgs.begin(AdmitKind::Write, cost(800 << 20)).expect("admitted"));
    // At 80 % an operation of 128 KiB waits half a millisecond; ten in a row wait five.
    let start = env.clock.monotonic_ns();
    for _ in 0..10 {
        drop(txgs.begin(AdmitKind::Write, cost(128 << 10)).expect("admitted"));
    }
    let passed = env.clock.monotonic_ns() - start;
    assert!((5_000_000..5_200_000).contains(&passed), "{passed} ns");
}

/// A clock under which another writer comes whenever one sleeps, until so many have come; then a
/// txg is committed.
struct Crowd {
    clock: Arc<dyn Clock>,
    txgs: OnceLock<Weak<Txgs>>,
    still_to_come: AtomicU64,
}

impl Clock for Crowd {
    fn wall_ns(&self) -> i128 {
        self.clock.wall_ns()
    }

    fn monotonic_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }

    fn sleep(&self, duration: Duration) {
        let end = self.monotonic_ns() + duration.as_nanos() as u64;
        let txgs = self.txgs.get().and_then(Weak::upgrade).expect("they live");
        match self.still_to_come.load(Ordering::Relaxed) {
            0 => {}
            left => {
                self.still_to_come.store(left - 1, Ordering::Relaxed);
                if left == 1 {
                    txgs.budget.release(txgs.gate.advance(|txg| txg));
                } else {
                    drop(txgs.begin(AdmitKind::Write, cost(128 << 10)).expect("admitted"));
                }
            }
        }
        self.clock.sleep(Duration::from_nanos(end.saturating_sub(self.monotonic_ns())));
    }
}

#[test]
fn nobody_waits_on_behind_others_once_there_is_room() {
    let seeded = Env::seeded(1);
    let still_to_come = AtomicU64::new(20);
    let crowd = Arc::new(Crowd { clock: Arc::clone(&seeded.clock), txgs: OnceLock::new(), still_to_come });
    let env = Env { clock: Arc::clone(&crowd) as Arc<dyn Clock>, ..seeded };
    let limits = Limits { memory: 1000 << 20, space: u64::MAX / 2 };
    let txgs = Arc::new(Txgs::new(&env, Txg(0), limits, Arc::new(Unlimited)));
    crowd.txgs.set(Arc::downgrade(&txgs)).expect("set once");
    drop(txgs.begin(AdmitKind::Write, cost(995 << 20)).expect("admitted"));
    let start = env.clock.monotonic_ns();
    drop(txgs.begin(AdmitKind::Write, cost(128 << 10)).expect("admitted"));
    let passed = env.clock.monotonic_ns() - start;
    // Twenty delays of 20 ms, one after another, would be 400 ms.
    assert!((20_000_000..60_000_000).contains(&passed), "{passed} ns");
}

/// Says no to writes above `room`, and frees `freed` at a commit.
struct Full {
    room: u64,
    verdict: Verdict,
    commits: Mutex<Option<Arc<Txgs>>>,
    stalls: AtomicU64,
}

impl Space for Full {
    fn admit(&self, kind: AdmitKind, _: Cost, reserved: Cost) -> Verdict {
        if kind == AdmitKind::Remove || reserved.space <= self.room { Verdict::Admit } else { self.verdict }
    }

    fn commit_inline(&self) -> bool {
        self.stalls.fetch_add(1, Ordering::Relaxed);
        if let Some(txgs) = &*self.commits.lock() {
            let txg = txgs.gate.advance(|txg| txg);
            txgs.commits.note_committed(txg);
            txgs.budget.release(txg);
        }
        true
    }
}

#[test]
fn a_full_pool_refuses_writes_and_admits_removals() {
    let full =
        Full { room: 100, verdict: Verdict::NoSpace, commits: Mutex::new(None), stalls: AtomicU64::new(0) };
    let txgs = txgs(1 << 20, Arc::new(full));
    assert_eq!(txgs.begin(AdmitKind::Write, cost(101)).err(), Some(Refusal::NoSpace));
    assert_eq!(txgs.budget.reserved(), Cost::default(), "a refusal leaves nothing behind");
    assert!(txgs.begin(AdmitKind::Remove, cost(101)).is_ok());
}

#[test]
fn a_writer_waits_for_the_commit_that_makes_room() {
    let full = Arc::new(Full {
        room: 100,
        verdict: Verdict::AfterCommit,
        commits: Mutex::new(None),
        stalls: AtomicU64::new(0),
    });
    let txgs = Arc::new(txgs(1 << 20, full.clone()));
    *full.commits.lock() = Some(txgs.clone());
    drop(txgs.begin(AdmitKind::Write, cost(80)).expect("there is room"));
    let operation = txgs.begin(AdmitKind::Write, cost(80)).expect("there is room after a commit");
    assert_eq!(operation.txg(), Txg(2));
    drop(operation);
    assert_eq!(txgs.begin(AdmitKind::Write, cost(101)).err(), Some(Refusal::NoSpace), "no commit helps here");
    *full.commits.lock() = None;
}

#[test]
fn at_the_limit_an_operation_waits_for_a_release() {
    let full = Arc::new(Full {
        room: u64::MAX,
        verdict: Verdict::NoSpace,
        commits: Mutex::new(None),
        stalls: AtomicU64::new(0),
    });
    let txgs = Arc::new(txgs(1000, full.clone()));
    *full.commits.lock() = Some(txgs.clone());
    drop(txgs.begin(AdmitKind::Write, cost(900)).expect("fits"));
    drop(txgs.begin(AdmitKind::Write, cost(200)).expect("fits after a release"));
    assert_eq!(full.stalls.load(Ordering::Relaxed), 1);
    drop(txgs.begin(AdmitKind::Write, cost(5000)).expect("what is larger than the limit goes alone"));
    *full.commits.lock() = None;
}

#[test]
fn those_who_wait_learn_of_commits_and_of_suspension() {
    let env = Env::real();
    let commits = Arc::new(Commits::new(Txg(3)));
    assert_eq!(commits.wait_committed(Txg(3)), Ok(()));
    let waiter = commits.clone();
    let task = env.tasks.spawn("waiter", Box::new(move || assert_eq!(waiter.wait_committed(Txg(4)), Ok(()))));
    commits.request_sync(Txg(4));
    assert!(commits.is_requested(Txg(4)) && !commits.is_requested(Txg(5)));
    commits.note_committed(Txg(4));
    assert!(task.join());
    commits.suspend("a device failed");
    let suspended = commits.wait_committed(Txg(5)).expect_err("suspended");
    assert_eq!(&*suspended.reason, "a device failed");
    assert_eq!(commits.wait_committed(Txg(4)), Ok(()), "what was durable stays so");
}

#[test]
fn a_txg_is_closed_by_request_by_dirty_bytes_and_by_time() {
    let rule = CloseRule::default();
    let quiet = Moment { now_ns: 0, changed_ns: Some(0), fullness: 0, requested: false };
    assert_eq!(rule.decide(&quiet), None);
    assert_eq!(rule.decide(&Moment { requested: true, ..quiet }), Some(CloseReason::Request));
    assert_eq!(rule.decide(&Moment { fullness: 250, ..quiet }), Some(CloseReason::Dirty));
    let late = Moment { now_ns: 5_000_000_000, ..quiet };
    assert_eq!(rule.decide(&late), Some(CloseReason::Time));
    assert_eq!(rule.decide(&Moment { changed_ns: None, ..late }), None, "an idle pool writes nothing");
    assert_eq!(rule.decide(&Moment { changed_ns: Some(1), ..late }), None, "a rest before does not count");
    assert_eq!(rule.patience(&Moment { now_ns: 2_000_000_000, ..quiet }), Duration::from_secs(3));
    assert_eq!(rule.patience(&Moment { changed_ns: None, ..late }), rule.interval, "no change comes sooner");
}

#[test]
fn a_change_is_noted_with_the_time_of_the_first_one() {
    let env = Env::simulated(1);
    let changed = Changed::new(Arc::clone(&env.clock));
    assert_eq!((changed.is_set(), changed.since_ns()), (false, None));
    env.clock.sleep(LONG);
    changed.note();
    let first = changed.since_ns();
    assert!(first >= Some(3_600_000_000_000), "{first:?}");
    env.clock.sleep(LONG);
    changed.note();
    assert_eq!(changed.since_ns(), first);
    changed.clear();
    assert!(!changed.is_set());
    changed.note();
    assert!(changed.since_ns() >= Some(7_200_000_000_000), "the next one begins anew");
}

/// A pool whose commits never come.
fn stuck(memory: u64) -> Txgs {
    let limits = Limits { memory, space: u64::MAX / 2 };
    Txgs::new(&Env::real(), Txg(0), limits, Arc::new(Unlimited))
}

static DYING: AtomicU64 = AtomicU64::new(0);

/// [txg.5] This one caller is killed after it was asked about a few times; the others live.
fn dies_soon(caller: u32) -> bool {
    caller == 7 && DYING.fetch_add(1, Ordering::Relaxed) >= 2
}

#[test]
fn a_killed_caller_leaves_the_throttle() {
    let txgs = stuck(1000);
    drop(txgs.begin(AdmitKind::Write, cost(900)).expect("fits"));
    let killed = Patience::WhileAlive { is_dying: dies_soon, caller: 7 };
    // At the limit, nothing but a release would let it in, and none comes.
    let refused = killed.during(|| txgs.begin(AdmitKind::Write, cost(200)).err());
    assert_eq!(refused, Some(Refusal::CallerDying));
    assert!(DYING.load(Ordering::Relaxed) > 2, "it was asked about while it waited, and not only at the end");
    assert_eq!(txgs.budget.reserved(), cost(900), "a refusal leaves nothing behind");
    // Others wait on, and are let in by a release.
    let txgs = Arc::new(txgs);
    let (waiter, alive) = (txgs.clone(), Patience::WhileAlive { is_dying: dies_soon, caller: 8 });
    let job = Box::new(move || assert!(alive.during(|| waiter.begin(AdmitKind::Write, cost(200)).is_ok())));
    let task = Env::real().tasks.spawn("waiter", job);
    txgs.gate.advance(|_| ());
    txgs.budget.release(Txg(1));
    assert!(task.join());
}

#[test]
fn who_must_not_wait_is_told_so() {
    let txgs = stuck(1000);
    drop(Patience::None.during(|| txgs.begin(AdmitKind::Write, cost(500))).expect("no need to wait"));
    drop(txgs.begin(AdmitKind::Write, cost(200)).expect("fits"));
    let refused = || Patience::None.during(|| txgs.begin(AdmitKind::Write, cost(1)).err());
    assert_eq!(refused(), Some(Refusal::WouldWait), "at 70 % there is a delay");
    txgs.budget.set_limits(Limits { memory: 100, space: u64::MAX / 2 });
    assert_eq!(refused(), Some(Refusal::WouldWait), "above the limit");
    txgs.budget.set_limits(Limits { memory: 1 << 40, space: u64::MAX / 2 });
    txgs.gate.advance(|_| assert_eq!(refused(), Some(Refusal::WouldWait), "while a freeze runs"));
    assert!(refused().is_none());
    assert_eq!(txgs.budget.reserved(), cost(701), "and nothing was left behind");
}

#[test]
fn patience_ends_with_the_work_even_if_that_panics() {
    let txgs = stuck(1000);
    drop(txgs.begin(AdmitKind::Write, cost(700)).expect("fits"));
    let panicked = std::panic::catch_unwind(|| Patience::None.during(|| panic!("on demand")));
    assert!(panicked.is_err());
    drop(txgs.begin(AdmitKind::Write, cost(1)).expect("delayed, but let in"));
}

#[test]
fn a_suspended_pool_holds_operations_until_they_are_let_go_or_their_caller_dies() {
    let env = Env::real();
    let limits = Limits { memory: 1 << 20, space: u64::MAX / 2 };
    let txgs = Arc::new(Txgs::new(&env, Txg(0), limits, Arc::new(Unlimited)));
    txgs.commits.set_holding(true);
    txgs.commits.suspend("a device failed");
    let dying = Patience::WhileAlive { is_dying: |_| true, caller: 1 };
    let begin = |txgs: &Txgs| txgs.begin(AdmitKind::Write, cost(1)).map(drop);
    assert_eq!(dying.during(|| begin(&txgs)), Err(Refusal::CallerDying));
    assert_eq!(Patience::None.during(|| begin(&txgs)), Err(Refusal::WouldWait));
    assert_eq!(
        txgs.commits.wait_committed_for(Txg(1), Duration::from_millis(1)),
        Ok(false),
        "fsync waits too"
    );
    assert!(txgs.commits.wait_committed(Txg(1)).is_err(), "a verb does not");
    let (told, answer) = std::sync::mpsc::channel();
    let waiting = Arc::clone(&txgs);
    let job = Box::new(move || told.send(begin(&waiting)).expect("somebody listens"));
    let task = env.tasks.spawn("writer", job);
    assert!(answer.try_recv().is_err(), "nobody let it go");
    txgs.commits.set_holding(false);
    assert!(matches!(answer.recv(), Ok(Err(Refusal::Suspended(_)))));
    assert!(task.join());
}

/// A waiter for such content cannot be killed, so the content waits for no pool that cannot commit.
#[test]
fn accepted_content_goes_beyond_the_limit_of_memory_while_no_commit_comes() {
    let txgs = stuck(1000);
    let accepted = Patience::Accepted { most: 500 };
    let begin = |patience: Patience| patience.during(|| txgs.begin(AdmitKind::Write, cost(400)).map(drop));
    for halts in [Commits::stall, Commits::suspend] {
        for holds in [true, false] {
            txgs.commits.set_holding(holds);
            txgs.budget.release(Txg(1));
            begin(accepted).and_then(|()| begin(accepted)).expect("within the limit");
            halts(&txgs.commits, "the host is full");
            assert!(txgs.commits.is_halted());
            begin(accepted).expect("beyond it");
            let dying = Patience::WhileAlive { is_dying: |_| true, caller: 1 };
            assert!(begin(dying).is_err(), "a new write is not");
            txgs.commits.resume();
        }
    }
    assert_eq!(txgs.budget.reserved().memory, 1200);
    txgs.commits.suspend("the host is full");
    assert!(!txgs.budget.take_accepted(None, cost(400), 500), "no more than that");
    txgs.commits.set_holding(false);
    assert!(matches!(begin(accepted), Err(Refusal::Suspended(_))), "then it waits as any other");
}

/// Longer than anybody waits for a test.
const LONG: Duration = Duration::from_secs(3600);

/// A pool that is suspended keeps the request of each caller that was refused.
#[test]
fn a_loop_that_cannot_commit_sleeps_although_a_commit_is_requested() {
    let env = Env::real();
    let commits = Arc::new(Commits::new(Txg(1)));
    commits.suspend("another host has the pool");
    commits.request_sync(Txg(2));
    let (sleeper, is_over) = (Arc::clone(&commits), Arc::new(AtomicBool::new(false)));
    let ends = Arc::clone(&is_over);
    let body = move || {
        while !ends.load(Ordering::SeqCst) {
            sleeper.tell();
            sleeper.park(None, LONG);
        }
    };
    let task = env.tasks.spawn("sync", Box::new(body));
    commits.wait_turn(0, LONG);
    // A turn that is told of ends each of these waits at once.
    (0..100).for_each(|_| commits.wait_turn(commits.turns(), Duration::from_millis(1)));
    assert_eq!(commits.turns(), 1, "nobody woke it");
    commits.resume();
    commits.wait_turn(1, LONG);
    commits.nudge();
    commits.wait_turn(2, LONG);
    assert_eq!(commits.turns(), 3, "each waker made one turn");
    is_over.store(true, Ordering::SeqCst);
    commits.nudge();
    assert!(task.join());
    // Where it can commit, the request that is still there ends the sleep.
    commits.park(Some(Txg(2)), LONG);
}

#[test]
fn who_waits_for_a_turn_hears_of_it_before_and_after() {
    let env = Env::real();
    let commits = Arc::new(Commits::new(Txg(1)));
    let seen = commits.turns();
    commits.tell();
    commits.wait_turn(seen, LONG);
    let (seen, waiting) = (commits.turns(), Arc::clone(&commits));
    let task = env.tasks.spawn("waiter", Box::new(move || waiting.wait_turn(seen, LONG)));
    commits.tell();
    assert!(task.join());
    commits.wait_turn(commits.turns(), Duration::from_millis(1));
    assert_eq!((commits.turns(), commits.committed()), (2, Txg(1)), "a turn is no commit");
}
