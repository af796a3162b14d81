//! Snapshots that nobody asks for: `steadfast:auto-snapshot=hourly=24,daily=7,weekly=4` of a file system or above it.
//!
//! A snapshot belongs to a period by its name alone, `auto-hourly-2026-11-22_14:00` (UTC), and it is due when none of that name is there. So
//! a daemon that was away takes what is due when it comes back, a clock that jumps leaves nothing behind that would keep the next one from being
//! taken, and one that somebody renames is his and stays. What is due of a period in a pool is one commit: of several file systems one moment.
//!
//! ## Invariants
//! (AS1) Only snapshots with names of this form are removed, and of a period no more than those beyond its count, oldest first.
//! (AS2) What a hold or a clone keeps is left alone, and tried again when the next of its period is taken.
//! (AS3) One that a user destroys is not taken again in the same period, as long as the daemon runs.
//! (AS4) What may have no more snapshots (`snapshot_limit`), or none now, keeps nobody else from its own, and is asked again each minute.

use super::{Engine, Held};
use crate::date::{self, Civil};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use steadfast_property::{AUTO_SNAPSHOT, Local, Period, Policy};

/// Time between two looks at the clock.
const LOOK: Duration = Duration::from_secs(5);

/// What of a pool's policies has been seen to.
#[derive(Default)]
pub(super) struct Diary {
    /// The minute of the last look.
    minute: u64,
    /// Label and count that were carried out last, by file system and period.
    done: BTreeMap<(String, Period), (String, u32)>,
    /// What was said last of a file system that could not be served.
    said: BTreeMap<String, String>,
}

impl Diary {
    /// Tells the operator, once for each thing that can be told of a file system.
    fn say(&mut self, name: &str, what: String) {
        if self.said.get(name) != Some(&what) {
            eprintln!("steadfast: '{name}': {what}");
            self.said.insert(name.to_owned(), what);
        }
    }
}

/// A period of a file system that has begun.
struct Due {
    dataset: String,
    period: Period,
    label: String,
    count: u32,
    /// There is none of it yet.
    missing: bool,
}

impl Engine {
    /// Carries out policies from now on, in the background, until the engine is dropped. Apart from other upkeep: what is written to a pool that is
    /// suspended waits, and it may be upkeep that ends that.
    pub(super) fn carry_out_policies(self: &Arc<Self>) {
        let (weak, env) = (Arc::downgrade(self), self.env.clone());
        let clock = Arc::clone(&env.clock);
        let job = Box::new(move || {
            while let Some(engine) = weak.upgrade() {
                engine.snapshot_by_policy();
                drop(engine);
                clock.sleep(LOOK);
            }
        });
        drop(env.tasks.spawn("policies", job));
    }

    /// Takes the snapshots that are due and removes those that are too many; once a minute of the clock.
    pub fn snapshot_by_policy(&self) {
        let pools: Vec<Arc<Held>> = self.pools.read().values().map(Arc::clone).collect();
        let now = u64::try_from(self.env.clock.wall_ns() / 1_000_000_000).unwrap_or(0);
        let mut diary = self.diary.lock();
        if diary.minute == now / 60 {
            return;
        }
        diary.minute = now / 60;
        for held in pools {
            if held.pool.is_read_only() || held.pool.suspended().is_some() {
                continue;
            }
            let due = due(&mut diary, &held, now);
            for warning in held.settle(|name| due.iter().any(|due| due.missing && due.dataset == name)) {
                diary.say(warning.fields.get("fs").map_or("", String::as_str), warning.what.clone());
            }
            let _turn = self.verbs.lock();
            // It may have been exported, or destroyed, since the look.
            if self.pools.read().values().any(|known| Arc::ptr_eq(known, &held)) {
                carry_out(&mut diary, &held, due);
            }
        }
    }
}

/// Takes what is missing and removes what is too much.
fn carry_out(diary: &mut Diary, held: &Held, due: Vec<Due>) {
    // Those that have as many snapshots as they may have, and those that can have none now.
    let (mut full, mut unfit): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    let is_full = |full: &[String], dataset: &str| {
        full.iter()
            .any(|top| dataset.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with('/')))
    };
    // A commit takes one snapshot of a file system, so each period has its own.
    for period in Period::ALL {
        loop {
            let missing = due.iter().filter(|due| due.missing && due.period == period);
            let missing =
                missing.filter(|due| !is_full(&full, &due.dataset) && !unfit.contains(&due.dataset));
            let missing: Vec<String> = missing.map(|due| format!("{}@{}", due.dataset, due.label)).collect();
            if missing.is_empty() {
                break;
            }
            match held.pool.take_snapshots(&missing, &Local::default()) {
                Ok(()) => {
                    let taken = |name: &String| format!("snapshot {name} ({AUTO_SNAPSHOT})");
                    missing.iter().for_each(|name| held.pool.log(0, true, &taken(name)));
                    break;
                }
                // (AS4)
                Err(steadfast_pool::Error::SnapshotLimit { name, limit, .. }) => {
                    let what =
                        format!("what {AUTO_SNAPSHOT} asks for is not taken: it may have {limit} snapshots");
                    diary.say(&name, what);
                    full.push(name);
                }
                // What was promised to `fsync` waits for the key, and a snapshot without it would not hold it.
                Err(steadfast_pool::Error::KeyNotLoaded { name }) if !unfit.contains(&name) => {
                    let what = format!(
                        "what {AUTO_SNAPSHOT} asks for is not taken: it would not hold what waits in the intent log for the key"
                    );
                    diary.say(&name, what);
                    unfit.push(name);
                }
                Err(error) => {
                    let what = format!("what {AUTO_SNAPSHOT} asks for is not taken: {error}");
                    diary.say(&held.pool.name(), what);
                    // Those of other periods may be there by now.
                    held.note_snapshots(due.iter().map(|due| &*due.dataset));
                    return;
                }
            }
        }
    }
    for Due { dataset, period, label, count, .. } in due {
        let doomed = too_many(held, &dataset, period, count);
        let destroyed = match held.pool.destroy_snapshots(&doomed, false) {
            Ok(()) => doomed.len(),
            // One of them is kept by something: those that are not go by themselves (AS2).
            Err(_) => doomed.chunks(1).filter(|one| held.pool.destroy_snapshots(one, false).is_ok()).count(),
        };
        if destroyed > 0 {
            held.pool.log(
                0,
                true,
                &format!("destroy of {destroyed} {} of {dataset} ({AUTO_SNAPSHOT})", period.word()),
            );
        }
        held.note_snapshots([&*dataset]);
        if is_full(&full, &dataset) || unfit.contains(&dataset) {
            continue;
        }
        diary.said.remove(&dataset);
        diary.done.insert((dataset, period), (label, count));
    }
    diary.said.remove(&held.pool.name());
}

/// What of a pool's policies has not been seen to since its period began.
fn due(diary: &mut Diary, held: &Held, now: u64) -> Vec<Due> {
    let mut due = Vec::new();
    for dataset in held.pool.datasets() {
        let Ok(Some(policy)) = held.pool.resolve(&dataset, AUTO_SNAPSHOT, "/") else { continue };
        let policy = match Policy::parse(&policy.value) {
            Ok(policy) => policy,
            Err(why) => {
                diary.say(&dataset, format!("{AUTO_SNAPSHOT} cannot be carried out: {why}"));
                continue;
            }
        };
        let mut there: Option<Vec<String>> = None;
        for (period, count) in policy.keep {
            let label = label(period, now);
            let seen = diary.done.get(&(dataset.clone(), period));
            if seen.is_some_and(|(of, kept)| *of == label && *kept == count) {
                continue;
            }
            let begun = seen.is_none_or(|(of, _)| *of != label);
            let there = there.get_or_insert_with(|| held.pool.snapshot_names(&dataset).unwrap_or_default());
            let missing = begun && count > 0 && !there.contains(&label);
            due.push(Due { dataset: dataset.clone(), period, label, count, missing });
        }
    }
    due
}

/// Full names of the snapshots of a period beyond those that are kept (AS1).
fn too_many(held: &Held, dataset: &str, period: Period, count: u32) -> Vec<String> {
    let names = held.pool.snapshot_names(dataset).unwrap_or_default();
    let of_period: Vec<&String> = names.iter().filter(|name| is_label(period, name)).collect();
    let beyond = of_period.len().saturating_sub(count as usize);
    of_period[..beyond].iter().map(|name| format!("{dataset}@{name}")).collect()
}

/// Name of the snapshot of the period that holds this moment.
fn label(period: Period, now: u64) -> String {
    let Civil { weekday, .. } = date::civil(now);
    // Weeks begin on Mondays.
    let begin = match period {
        Period::Weekly => now.saturating_sub((weekday as u64 + 6) % 7 * date::DAY),
        _ => now,
    };
    let Civil { year, month, day, hour, minute, .. } = date::civil(begin);
    let moment = match period {
        Period::Frequent => format!("{year:04}-{month:02}-{day:02}_{hour:02}:{:02}", minute / 15 * 15),
        Period::Hourly => format!("{year:04}-{month:02}-{day:02}_{hour:02}:00"),
        Period::Daily | Period::Weekly => format!("{year:04}-{month:02}-{day:02}"),
        Period::Monthly => format!("{year:04}-{month:02}"),
        Period::Yearly => format!("{year:04}"),
    };
    format!("auto-{}-{moment}", period.word())
}

/// Is this a name that [`label`] gives to a snapshot of this period?
fn is_label(period: Period, name: &str) -> bool {
    let begin = format!("auto-{}-", period.word());
    let shape = label(period, 0);
    name.starts_with(&begin)
        && name.len() == shape.len()
        && name[begin.len()..].bytes().zip(shape[begin.len()..].bytes()).all(|(found, wanted)| {
            if wanted.is_ascii_digit() { found.is_ascii_digit() } else { found == wanted }
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sunday, 22 November 2026, 14:38:20 UTC.
    const NOW: u64 = 1_795_358_300;

    #[test]
    fn a_label_names_the_beginning_of_its_period() {
        let at = |now| Period::ALL.map(|period| label(period, now));
        assert_eq!(
            at(NOW),
            [
                "auto-frequent-2026-11-22_14:30",
                "auto-hourly-2026-11-22_14:00",
                "auto-daily-2026-11-22",
                "auto-weekly-2026-11-16",
                "auto-monthly-2026-11",
                "auto-yearly-2026",
            ]
        );
        // The Monday after it, and the first seconds of all.
        assert_eq!(label(Period::Weekly, NOW + date::DAY), "auto-weekly-2026-11-23");
        assert_eq!(label(Period::Weekly, 0), "auto-weekly-1970-01-01", "there is no Monday before it");
    }

    #[test]
    fn nothing_else_is_taken_for_a_label() {
        for period in Period::ALL {
            assert!(is_label(period, &label(period, NOW)));
            let others = Period::ALL.into_iter().filter(|other| *other != period);
            assert!(others.into_iter().all(|other| !is_label(period, &label(other, NOW))));
        }
        for name in [
            "auto-daily-2026-11-2",
            "auto-daily-2026-11-222",
            "auto-daily-2026-11-xx",
            "auto-daily-",
            "daily-2026-11-22",
        ] {
            assert!(!is_label(Period::Daily, name), "{name}");
        }
        assert!(
            !is_label(Period::Yearly, "auto-yearly-\u{662}\u{660}"),
            "digits of other scripts are no digits here"
        );
    }
}
