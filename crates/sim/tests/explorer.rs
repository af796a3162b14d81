//! The explorer finds nothing in the stack, and everything that is planted.

use steadfast_sim::base::Base;
use steadfast_sim::cut::Depth;
use steadfast_sim::run::{Caught, hunt, kept, replay};
use steadfast_sim::{Bug, Explorer, Number, SETTINGS, Set};

/// Workloads with faults on each setting with groups, and states of each, about.
const SPARED_WORKLOADS: usize = 12;
const SPARED_STATES: usize = 24;
/// One state in so many of these is cut again inside its recovery.
const SPARED_SECOND: u64 = 60;

fn good(number: Number) {
    let report = replay(number);
    assert!(report.counts.states > 0, "{number} has states");
    if let Some(broken) = report.broken.first() {
        panic!("{broken}\nreplay: cargo run --release -p steadfast-sim -- --seed {number}");
    }
}

#[test]
fn kept_seeds_stay_good() {
    kept().into_iter().for_each(good);
}

#[test]
fn one_change_may_be_cut_anywhere() {
    // A third of them on the first setting; all of them, on all settings, are the first part of
    // every run.
    let mut explorer = Explorer::new(0, None).expect("a pool");
    for index in (0..Set::One.size().expect("bounded")).step_by(3) {
        if let Err(broken) = explorer.explore(Number::new(Set::One, 0, index)) {
            panic!("{broken}");
        }
    }
    assert!(explorer.counts.states > 20_000, "{:?}", explorer.counts);
    assert!(explorer.counts.second > 100, "{:?}", explorer.counts);
}

/// On a full pool a refused operation changes nothing (`Base::run` compares it with the model),
/// removing is never refused, and there is room after a removal.
#[test]
fn a_full_pool_refuses_whole_and_takes_back() {
    let at = SETTINGS.iter().position(|setting| setting.brim).expect("there is one");
    let base = Base::new(&SETTINGS[at], None).expect("a pool");
    let (mut refused, mut ops) = (0, 0);
    for index in 0..60 {
        let number = Number::new(Set::Few, at, index * 1_234_577);
        let trace =
            base.run(number, None).unwrap_or_else(|what| panic!("{number}: {}: {what}", number.text()));
        refused += trace.refused;
        ops += trace.ops.len();
    }
    println!("{refused} of {ops} operations were refused");
    assert!(refused > 0, "none of {ops} operations was refused");
}

/// Pools of many devices have so many states that nobody would come to the end of one workload:
/// some of them are drawn.
#[test]
fn workloads_of_a_sampled_setting_have_no_more_states_than_they_may() {
    let at = SETTINGS.iter().position(|setting| setting.sampled).expect("there is one");
    let most = SETTINGS[at].depth().states_max.expect("it is bounded") as u64;
    for set in [Set::One, Set::Two, Set::Few, Set::Many, Set::Faulty] {
        let mut explorer = Explorer::new(at, None).expect("a pool");
        for index in [3, 58, 200] {
            let before = explorer.counts.states;
            if let Err(broken) = explorer.explore(Number::new(set, at, index)) {
                panic!("{broken}");
            }
            let states = explorer.counts.states - before;
            assert!(states > 0 && states <= 2 * most, "{set:?} {index}: {states} states");
        }
    }
}

/// Up to as many devices of each group as it can spare are wrong in any way at any time, and
/// nothing is lost or refused.
#[test]
fn what_groups_make_up_for_costs_nothing() {
    for (at, setting) in SETTINGS.iter().enumerate().filter(|(_, setting)| !setting.groups().is_empty()) {
        let mut explorer = Explorer::new(at, None).expect("a pool");
        explorer.depth = Depth { states_max: Some(SPARED_STATES), ..Depth::SAMPLED };
        explorer.second_every = SPARED_SECOND;
        let spared = |index: &u64| {
            let faults = Number::new(Set::Faulty, at, *index).faults();
            faults.iter().any(|(disk, _)| setting.spared(*disk) > 0)
        };
        for index in (0..).map(|index| index * 7_919 + 11).filter(spared).take(SPARED_WORKLOADS) {
            if let Err(broken) = explorer.explore(Number::new(Set::Faulty, at, index)) {
                panic!("{broken}");
            }
        }
        let counts = &explorer.counts;
        println!("{}: {counts:?}", setting.name);
        let struck: u64 = counts.faults.values().sum();
        // The log is not written as often.
        let least = if setting.log_mirror { 1 } else { SPARED_WORKLOADS as u64 / 2 };
        assert!(struck >= least, "{}: {counts:?}", setting.name);
        assert!(counts.without > 0 && counts.mended > 0, "{}: {counts:?}", setting.name);
    }
}

/// Numbers are kept with the faults that made them worth it: they are the first, and nothing comes
/// beside them.
#[test]
fn kept_seeds_have_the_faults_that_they_were_kept_for() {
    for (number, setting) in [(0x051226d2e6d3eacd, 18), (0x05140c53947d2f52, 20)] {
        let number = Number(number);
        assert!(kept().contains(&number) && number.setting() == setting, "{number}");
        assert_eq!(number.faults(), [number.fault().expect("one")], "{number}");
    }
}

#[test]
fn a_seed_repeats_to_the_byte() {
    for (at, setting) in SETTINGS.iter().enumerate() {
        let number = Number::new(Set::Many, at, 77);
        let trace = || Base::new(setting, None).expect("a pool").run(number, None).expect("it runs");
        let (one, two) = (trace(), trace());
        assert_eq!(one.events.len(), two.events.len());
        assert!(one.events.len() > 50, "{} events", one.events.len());
        for (at, (one, two)) in one.events.iter().zip(&two.events).enumerate() {
            assert!(one == two, "event {at} of {number} differs");
        }
        assert!(one.trees == two.trees);
    }
}

fn is_caught(bug: Bug) {
    let caught = hunt(bug, 240);
    let Caught { workloads, states, .. } = caught;
    let broken = caught
        .broken
        .unwrap_or_else(|| panic!("{bug:?} is not caught in {workloads} workloads, {states} states"));
    println!("{bug:?}: caught after {states} states of {workloads} workloads: {}", broken.what);
}

/// One test for each, so that they run beside each other, and one that none is forgotten.
macro_rules! caught {
    ($($name:ident: $bug:ident;)*) => {
        $(
            #[test]
            fn $name() {
                is_caught(Bug::$bug);
            }
        )*

        #[test]
        fn every_bug_that_can_be_planted_is_hunted() {
            let hunted = [$(Bug::$bug),*];
            assert!(Bug::ALL.iter().all(|bug| hunted.contains(bug)));
        }
    };
}

caught! {
    a_root_before_the_flush_is_caught: NoFlushBeforeRoot;
    a_root_that_is_not_flushed_is_caught: NoFlushAfterRoot;
    a_root_before_its_data_is_caught: RootBeforeData;
    a_slot_that_is_reused_early_is_caught: SlotReusedEarly;
    a_rename_in_two_steps_is_caught: RenameInTwoSteps;
    an_fsync_that_does_nothing_is_caught: FsyncIgnored;
    a_truncation_that_leaves_its_tail_is_caught: TailKept;
    a_block_that_is_never_freed_is_caught: TailLeaked;
    a_stale_overlay_is_caught: OverlayStale;
    a_flush_error_that_is_swallowed_is_caught: FlushErrorSwallowed;
    a_hash_that_is_not_looked_at_is_caught: HashIgnored;
    a_block_that_is_not_put_together_from_the_others_is_caught: OthersUnread;
    a_torn_root_that_is_accepted_is_caught: TornRootAccepted;
    a_log_that_is_not_flushed_is_caught: LogNotFlushed;
    a_log_error_that_is_swallowed_is_caught: LogErrorSwallowed;
    a_log_side_that_fails_unnoticed_is_caught: LogSideSwallowed;
    a_torn_group_that_is_accepted_is_caught: LogTornAccepted;
    a_log_that_is_replayed_twice_is_caught: LogReplayedTwice;
    a_replay_that_cannot_be_repeated_is_caught: ReplayErasesLog;
    a_log_without_names_is_caught: NamesNotLogged;
    an_anchor_that_moves_early_is_caught: AnchorEarly;
    a_log_that_the_anchor_does_not_vouch_for_is_caught: LogNotVouched;
    a_relocation_that_is_forgotten_is_caught: RelocationLost;
    a_reference_that_is_not_counted_is_caught: ReferenceNotCounted;
    a_block_that_no_manifest_lists_is_caught: BlockUnlisted;
}
