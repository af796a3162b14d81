//! Snapshots by policy: the property `steadfast:auto-snapshot=hourly=24,daily=7,weekly=4` of a file
//! system.
//!
//! A snapshot belongs to a period by its name alone: `auto-hourly-2026-11-22_14:00` (UTC). It is
//! due if no snapshot has that name. So a daemon that did not run takes due snapshots when it
//! starts, and a clock that jumps leaves nothing that would prevent the next one. A renamed
//! snapshot is never removed. All due snapshots of a period in a pool are taken in one commit.
//!
//! ## Invariants
//! [auto_snapshot.1] Only snapshots with names of this form are removed: those beyond the count of
//!      their period, oldest first.
//! [auto_snapshot.2] A snapshot with a hold or a clone is left alone; its removal is tried again
//!      when the next one of its period is taken.
//! [auto_snapshot.3] A snapshot that a user destroyed is not taken again in its period, while the
//!      daemon runs.
//! [auto_snapshot.4] A file system at its `snapshot_limit`, or without its key, does not stop the
//!      snapshots of others. It is tried again each minute.

use crate::engine::policy_state::PolicyState;
use crate::engine::state::{Engine, ImportedPool};
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::Offset;
use std::sync::Arc;
use std::time::Duration;
use steadfast_property::{AUTO_SNAPSHOT, Local, Period, Policy};

/// Time between two looks at the clock.
const LOOK: Duration = Duration::from_secs(5);
/// Seconds of a day.
const DAY: u64 = 86_400;

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
    /// Starts the thread that carries out policies. It is not part of upkeep: writes to a suspended
    /// pool wait, and upkeep may end that.
    pub(super) fn carry_out_policies(self: &Arc<Self>) {
        let (weak, env) = (Arc::downgrade(self), self.env.clone());
        let clock = Arc::clone(&env.clock);
        let job = Box::new(move || {
            while let Some(engine) = weak.upgrade() {
                engine.snapshot_by_policy();
                engine.audit_by_schedule();
                drop(engine);
                clock.sleep(LOOK);
            }
        });
        drop(env.tasks.spawn("policies", job));
    }

    /// Takes due snapshots and removes those beyond the count, once a minute of the clock.
    pub fn snapshot_by_policy(&self) {
        let pools: Vec<Arc<ImportedPool>> = self.pools.read().values().map(Arc::clone).collect();
        let now = u64::try_from(self.env.clock.wall_ns() / 1_000_000_000).unwrap_or(0);
        let mut policies = self.policies.lock();
        if policies.minute == now / 60 {
            return;
        }
        policies.minute = now / 60;
        for held in pools {
            if held.pool.is_read_only() || held.pool.suspended().is_some() {
                continue;
            }
            let due = due(&mut policies, &held, now);
            for warning in held.settle(|name| due.iter().any(|due| due.missing && due.dataset == name)) {
                policies.say(warning.fields.get("fs").map_or("", String::as_str), warning.what.clone());
            }
            let _turn = self.verbs.lock();
            // It may have been exported, or destroyed, since the look.
            if self.pools.read().values().any(|known| Arc::ptr_eq(known, &held)) {
                carry_out(&mut policies, &held, due);
            }
        }
    }
}

/// Takes missing snapshots, and removes those beyond the count.
fn carry_out(policies: &mut PolicyState, held: &ImportedPool, due: Vec<Due>) {
    // File systems at their limit, and file systems without their key.
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
            match held.pool.datasets().take_snapshots(&missing, &Local::default()) {
                Ok(()) => {
                    let taken = |name: &String| format!("snapshot {name} ({AUTO_SNAPSHOT})");
                    missing.iter().for_each(|name| held.pool.log(0, true, &taken(name)));
                    break;
                }
                // [auto_snapshot.4]
                Err(steadfast_pool::Error::SnapshotLimit { name, limit, .. }) => {
                    let what = format!(
                        "{AUTO_SNAPSHOT}: no snapshot was taken: snapshot_limit allows {limit} snapshots"
                    );
                    policies.say(&name, what);
                    full.push(name);
                }
                // The intent log holds acknowledged data for the key; the snapshot would not
                // contain it.
                Err(steadfast_pool::Error::KeyNotLoaded { name }) if !unfit.contains(&name) => {
                    let what = format!(
                        "{AUTO_SNAPSHOT}: no snapshot was taken: changes wait in the intent log until the key is loaded"
                    );
                    policies.say(&name, what);
                    unfit.push(name);
                }
                Err(error) => {
                    let what = format!("{AUTO_SNAPSHOT}: not all snapshots were taken: {error}");
                    policies.say(&held.pool.name(), what);
                    // Snapshots of other periods may have been taken.
                    held.note_snapshots(due.iter().map(|due| &*due.dataset));
                    return;
                }
            }
        }
    }
    for Due { dataset, period, label, count, .. } in due {
        let doomed = too_many(held, &dataset, period, count);
        let destroyed = match held.pool.datasets().destroy_snapshots(&doomed, false) {
            Ok(()) => doomed.len(),
            // One has a hold or a clone: the others are destroyed one by one ([auto_snapshot.2]).
            Err(_) => doomed
                .chunks(1)
                .filter(|one| held.pool.datasets().destroy_snapshots(one, false).is_ok())
                .count(),
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
        policies.said.remove(&dataset);
        policies.done.insert((dataset, period), (label, count));
    }
    policies.said.remove(&held.pool.name());
}

/// Periods of a pool's policies that are not done yet.
fn due(policies: &mut PolicyState, held: &ImportedPool, now: u64) -> Vec<Due> {
    let mut due = Vec::new();
    for dataset in held.pool.datasets().names() {
        let Ok(Some(policy)) = held.pool.datasets().resolve(&dataset, AUTO_SNAPSHOT, "/") else { continue };
        let policy = match Policy::parse(&policy.value) {
            Ok(policy) => policy,
            Err(why) => {
                policies.say(&dataset, format!("{AUTO_SNAPSHOT} is invalid: {why}"));
                continue;
            }
        };
        let mut there: Option<Vec<String>> = None;
        for (period, count) in policy.keep {
            let label = label(period, now);
            let seen = policies.done.get(&(dataset.clone(), period));
            if seen.is_some_and(|(of, kept)| *of == label && *kept == count) {
                continue;
            }
            let begun = seen.is_none_or(|(of, _)| *of != label);
            let there = there
                .get_or_insert_with(|| held.pool.datasets().snapshot_names(&dataset).unwrap_or_default());
            let missing = begun && count > 0 && !there.contains(&label);
            due.push(Due { dataset: dataset.clone(), period, label, count, missing });
        }
    }
    due
}

/// Full names of the snapshots of a period beyond its count ([auto_snapshot.1]).
fn too_many(held: &ImportedPool, dataset: &str, period: Period, count: u32) -> Vec<String> {
    let names = held.pool.datasets().snapshot_names(dataset).unwrap_or_default();
    let of_period: Vec<&String> = names.iter().filter(|name| is_label(period, name)).collect();
    let beyond = of_period.len().saturating_sub(count as usize);
    of_period[..beyond].iter().map(|name| format!("{dataset}@{name}")).collect()
}

/// Name of the snapshot of the period that holds this moment, in seconds since 1970.
fn label(period: Period, now: u64) -> String {
    let moment = date_time(now);
    let begin = match period {
        Period::Frequent => {
            format!("{}:{:02}", moment.strftime("%Y-%m-%d_%H"), moment.minute() / 15 * 15)
        }
        Period::Hourly => moment.strftime("%Y-%m-%d_%H:00").to_string(),
        Period::Daily => moment.strftime("%Y-%m-%d").to_string(),
        Period::Weekly => {
            let since_monday = moment.weekday().to_monday_zero_offset().unsigned_abs();
            let monday = date_time(now.saturating_sub(u64::from(since_monday) * DAY));
            monday.strftime("%Y-%m-%d").to_string()
        }
        Period::Monthly => moment.strftime("%Y-%m").to_string(),
        Period::Yearly => moment.strftime("%Y").to_string(),
    };
    format!("auto-{}-{begin}", period.word())
}

/// Date and time of day in UTC. A time beyond the calendar counts as the beginning of 1970.
fn date_time(seconds: u64) -> DateTime {
    let seconds = i64::try_from(seconds).unwrap_or_default();
    Offset::UTC.to_datetime(Timestamp::from_second(seconds).unwrap_or_default())
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
        assert_eq!(label(Period::Weekly, NOW + DAY), "auto-weekly-2026-11-23");
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
