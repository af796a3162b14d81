//! `zpool status`: a pool with its devices, its problems and its damaged files.

use crate::api::{
    BudgetLevel, BudgetReport, CheckpointReport, Health, LogReport, PoolReport, PoolStatus, ProvenContent,
    ScanReport, VdevClass, VdevReport,
};
use crate::cachefile::CachedPool;
use crate::caller::Caller;
use crate::engine::audits::mean_interval;
use crate::engine::registry::missing;
use crate::engine::reports::damage::data_errors;
use crate::engine::reports::devices::{
    devices_of, gone, health, leaf_health, log_health, moment, removed_names,
};
use crate::engine::reports::{dedup, labels};
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use crate::rights::without_paths;
use std::time::Duration;
use steadfast_format::{LeafState, ScanState};
use steadfast_pool::{
    LeafStatus, LogDeviceStatus, Obstacle, Outage, Overtaker, ParityStatus, PoolStatus as Measured, Presence,
    ScanKind, TilesStatus,
};

impl Verb for PoolStatus {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Vec<PoolReport>, Refusal> {
        let lost = engine.missing_pools(&self.names);
        let here: Vec<String> =
            self.names.iter().filter(|n| !lost.iter().any(|(l, _)| l.name == **n)).cloned().collect();
        let mut reports: Vec<PoolReport> = lost.iter().map(|(pool, why)| lost_report(pool, why)).collect();
        if self.names.is_empty() || !here.is_empty() {
            for (name, held) in engine.select(&here)? {
                reports.push(pool_report(engine, &name, &held));
            }
        }
        reports.sort_by(|a, b| a.name.cmp(&b.name));
        if caller.guest {
            reports.iter_mut().for_each(|report| without_paths(&mut report.errors));
        }
        Ok(reports)
    }
}

/// Action if a side of a log mirror failed.
const SIDE_FAILED: &str = "If the device works again, run `zpool online {pool} {device}`; else `zpool replace {pool} {device} NEW`, or detach it from its mirror with `zpool detach {pool} {device}`.";

/// The devices, with the progress of a recovery at the parity device.
fn devices(held: &ImportedPool, measured: &Measured) -> Vec<VdevReport> {
    let mut vdevs = devices_of(&held.pool.name(), measured);
    if let Some(interval) = mean_interval(held, measured) {
        for vdev in vdevs.iter_mut().filter(|vdev| vdev.class == VdevClass::Parity) {
            let note = vdev.note.get_or_insert_default();
            note.push_str(&format!(", any byte is asked for every {} in the mean", roughly(interval)));
        }
    }
    let (is_proving, proven) = held.recoveries.proof();
    for vdev in vdevs.iter_mut().filter(|vdev| vdev.class == VdevClass::Parity) {
        let note = vdev.note.get_or_insert_default();
        if is_proving {
            note.push_str(", what the import put back is being held against its hashes");
        }
        proven.iter().for_each(|proven| note.push_str(&proven_note(proven)));
    }
    if let Some(state) = held.recoveries.progress() {
        let percent = state.done.saturating_mul(100).checked_div(state.of).unwrap_or(0);
        let what = match (state.rekeying, state.naming) {
            (true, _) => "a re-key",
            (_, true) => "a search for the files in lost cells",
            _ => "a recovery",
        };
        for vdev in vdevs.iter_mut().filter(|vdev| vdev.class == VdevClass::Parity) {
            let note = vdev.note.get_or_insert_default();
            note.push_str(&format!(", {what} has looked at {percent} % of the cells"));
        }
    }
    vdevs
}

/// Remark about content that an import put back.
fn proven_note(proven: &ProvenContent) -> String {
    let ProvenContent { blocks, wrong, locked, unread, .. } = proven;
    let mut note = match wrong {
        0 => format!(", the import put back {blocks} live blocks: each has its hash"),
        wrong => format!(", the import put back {blocks} live blocks: {wrong} do not have their hash"),
    };
    for name in locked {
        note.push_str(&format!(", {name} was not looked at: its key is not loaded"));
    }
    if *unread > 0 {
        note.push_str(&format!(", {unread} nodes or blocks of it cannot be read"));
    }
    note
}

/// Why a pool writes nothing, if so.
pub(in crate::engine) fn suspension(name: &str, held: &ImportedPool, measured: &Measured) -> Option<Refusal> {
    let reason = measured.suspended.as_ref()?;
    let fenced = measured.anchor.as_ref().is_some_and(|anchor| anchor.fenced.is_some());
    let mut what = format!("the pool is suspended: {reason}");
    if let Some(overtaker) = held.pool.overtaker() {
        what.push_str(&has_it(&overtaker));
    }
    let code = match fenced {
        _ if held.pool.is_overtaken() => Code::PoolOvertaken,
        true => Code::AnchorFenced,
        false if held.pool.waits_for() == Some(Obstacle::HostFull) => Code::HostFull,
        false => Code::PoolSuspended,
    };
    Some(Refusal::new(code, what).with("pool", name))
}

/// A time in hours, days or years.
fn roughly(time: Duration) -> String {
    let hours = time.as_secs_f64() / 3600.0;
    match hours {
        ..48.0 => format!("{hours:.1} hours"),
        ..17_520.0 => format!("{:.1} days", hours / 24.0),
        _ => format!("{:.1} years", hours / 8_766.0),
    }
}

fn pool_report(engine: &Engine, name: &str, held: &ImportedPool) -> PoolReport {
    let measured = held.pool.state();
    let mut messages = Vec::new();
    // Counters first: budgets are of the same moment.
    let stores = engine.store_reports(held, &measured);
    let budgets = engine.budgets(held, &measured);
    messages.extend(suspension(name, held, &measured));
    messages.extend(
        measured.leaves.iter().filter_map(|leaf| leaf.away.as_ref()).map(|outage| away(name, outage)),
    );
    messages.extend(engine.share_trouble(held));
    let lost =
        |leaf: &&LeafStatus| leaf.presence != Presence::Whole && leaf.config.state == LeafState::Online;
    let out: Vec<&str> = measured
        .leaves
        .iter()
        .filter(|leaf| {
            !matches!(leaf.config.state, LeafState::Online | LeafState::Leaving | LeafState::Parted)
        })
        .map(|leaf| leaf.config.path.as_str())
        .collect();
    if !out.is_empty() {
        let (devices, them) =
            if out.len() == 1 { ("one device is", "it") } else { ("some devices are", "them") };
        let what = format!("{devices} out of use ({}); the pool continues without {them}", out.join(", "));
        messages.push(Refusal::new(Code::VdevDegraded, what).with("pool", name).with("device", out[0]));
    }
    messages.extend(measured.leaves.iter().filter(lost).map(|leaf| lost_device(&measured, name, leaf)));
    for log in &measured.log_devices {
        let (state, why) = log_health(log);
        if matches!(state, Health::Unavail | Health::Faulted | Health::Removed | Health::Offline) {
            let why = why.unwrap_or_else(|| "offline".to_owned());
            let beside = |other: &&LogDeviceStatus| log.mirror != 0 && other.mirror == log.mirror;
            let mut others = measured.log_devices.iter().filter(beside);
            let tail = match others.any(|other| log_health(other).0 == Health::Online) {
                true => "; its mirror continues without it",
                false => "",
            };
            let what = format!("the log device {} is no longer used ({why}){tail}", log.path);
            let code = if log.given_up && log.sample.is_none() { Code::LogGivenUp } else { Code::LogFailed };
            let refusal = Refusal::new(code, what);
            let refusal = if log.mirror == 0 { refusal } else { refusal.advising(SIDE_FAILED) };
            messages.push(refusal.with("pool", name).with("device", &log.path));
        }
    }
    if !measured.damaged.is_empty() {
        let count = measured.damaged.len();
        let files = if count == 1 { "a file".to_owned() } else { format!("{count} files") };
        let what = format!(
            "blocks of {files} failed authentication on all of their copies; nothing was returned to readers"
        );
        messages.push(Refusal::new(Code::BlkAuthAll, what).with("pool", name));
    } else {
        let failed = |leaf: &&LeafStatus| {
            leaf.counts.read_errors + leaf.counts.write_errors + leaf.counts.checksum_errors > 0
        };
        let bad: Vec<&str> =
            measured.leaves.iter().filter(failed).map(|leaf| leaf.config.path.as_str()).collect();
        if !bad.is_empty() {
            let what = format!(
                "errors occurred on {}; all data that was read is correct or was repaired",
                bad.join(", ")
            );
            messages.push(Refusal::new(Code::DevErrors, what).with("pool", name));
        }
    }
    if let Some(parity) = &measured.parity {
        messages.extend(parity_messages(name, parity));
    }
    messages.extend(wrong_samples(name, &measured));
    messages.extend(budgets.iter().filter_map(|budget| spent(name, budget)));
    let anchor = |anchor: &steadfast_anchor::Status| {
        let state = if anchor.fenced.is_some() { Health::Faulted } else { Health::Online };
        VdevReport {
            note: Some(anchor_note(anchor)),
            write_errors: anchor.failures,
            ..VdevReport::new(anchor.register.clone(), 0, VdevClass::Anchor, state)
        }
    };
    let errors = data_errors(held, &measured.damaged);
    let error_count = errors.len() as u64;
    PoolReport {
        sharing: dedup::report(&held.pool.sharing()),
        stores,
        budgets,
        name: name.to_owned(),
        guid: held.pool.guid().0,
        state: health(&measured),
        txg: measured.txg.0,
        messages,
        vdevs: devices(held, &measured).into_iter().chain(measured.anchor.iter().map(anchor)).collect(),
        error_count,
        log: LogReport {
            size: measured.log.size_bytes,
            devices: measured.log_devices.iter().filter(|log| log_health(log).0 == Health::Online).count()
                as u64,
            groups: measured.log.counts.groups,
            bytes: measured.log.counts.bytes,
            durable: measured.log.counts.durable,
            committed_instead: measured.log.counts.committed_instead,
            replayed: measured.log.replayed,
            held: measured.log.held as u64,
        },
        errors: errors.into_iter().take(1000).collect(),
        audit: audit_line(held, &measured),
        checkpoint: measured.checkpoint.map(|checkpoint| CheckpointReport {
            taken: checkpoint.time_ns / 1_000_000_000,
            bytes: checkpoint.bytes,
        }),
        scan: measured.scan.as_ref().map(|row| {
            let is_scrub = row.kind == ScanKind::Scrub;
            ScanReport {
                pass_started: measured.scan_pass.begun_ns / 1_000_000_000,
                pass_before: measured.scan_pass.read_before,
                errors: if row.lost == 0 { 0 } else { error_count.max(1) },
                limit: measured.scrub_limit.filter(|_| is_scrub).unwrap_or(0),
                left_out: if is_scrub { measured.scrub_left_out.clone() } else { Vec::new() },
                ..scan_report(row)
            }
        }),
        moving: measured.moving.as_ref().map(|row| ScanReport {
            what: match removed_names(&measured) {
                names if names.is_empty() => format!("vdev {}", row.device),
                names => names,
            },
            ..scan_report(row)
        }),
    }
}

/// The host that took a pool over, behind the reason why it is suspended.
fn has_it(overtaker: &Overtaker) -> String {
    let Overtaker { host, epoch, committed_ns } = overtaker;
    let since = committed_ns.map(|at| format!(", since {} at the latest", moment(at))).unwrap_or_default();
    format!("; host '{host}' has it (epoch {epoch}){since}")
}

/// The message about a store that is away.
pub(in crate::engine) fn away(pool: &str, outage: &Outage) -> Refusal {
    let what = format!("a store of the pool is away since {}: {}", moment(outage.since_ns), outage.reason);
    let refusal = Refusal::new(Code::StoreAway, what.trim_end_matches('.')).with("pool", pool);
    let refusal = refusal.with("since", outage.since_ns / 1_000_000_000);
    outage.fields.iter().fold(refusal, |refusal, (role, text)| refusal.with(role, text))
}

/// Message about a budget of which so much is used that background work waits.
fn spent(pool: &str, budget: &BudgetReport) -> Option<Refusal> {
    if budget.level == BudgetLevel::Free {
        return None;
    }
    let (unit, period) = match budget.property.as_str() {
        "requestbudget" => ("requests", "today"),
        _ => ("bytes read", "this month"),
    };
    let BudgetReport { property, used, limit, .. } = budget;
    let what = format!(
        "{}% of the budget of {period} is used ({used} of {limit} {unit}); background work waits",
        budget.percent()
    );
    Some(Refusal::new(Code::StoreBudget, what).with("pool", pool).with("property", property))
}

/// True if a group has enough redundancy for all its devices that are out of use.
fn does_without(measured: &Measured, id: u8) -> bool {
    let Some(group) = measured.groups.iter().find(|group| group.id == id) else { return false };
    let spared = steadfast_pool::redundancy_of(group).spared(group.width.into());
    let of_use = |leaf: &LeafStatus| matches!(leaf_health(leaf).0, Health::Online | Health::Degraded);
    let members = measured.leaves.iter().filter(|leaf| leaf.config.group == id);
    members.filter(|leaf| !of_use(leaf)).count() <= spared as usize
}

/// Message about a device that was removed or cut short. Its group may have enough redundancy.
fn lost_device(measured: &Measured, pool: &str, leaf: &LeafStatus) -> Refusal {
    let mut refusal = gone(pool, leaf);
    if does_without(measured, leaf.config.group) {
        refusal.what.push_str("; its group continues without it");
        let (what, device) = (refusal.what, &leaf.config.path);
        return Refusal::new(Code::VdevDegraded, what).with("device", device).with("pool", pool);
    }
    refusal
}

fn scan_report(scan: &steadfast_pool::ScanRow) -> ScanReport {
    let function = steadfast_pool::move_word(scan.kind);
    let state = match scan.state {
        ScanState::Active => "active",
        ScanState::Paused => "paused",
        ScanState::Finished => "finished",
        ScanState::Canceled => "canceled",
    };
    ScanReport {
        function: function.to_owned(),
        state: state.to_owned(),
        started: scan.begun_ns / 1_000_000_000,
        ended: if scan.state == ScanState::Paused { 0 } else { scan.ended_ns / 1_000_000_000 },
        paused: if scan.state == ScanState::Paused { scan.ended_ns / 1_000_000_000 } else { 0 },
        pass_started: scan.begun_ns / 1_000_000_000,
        total: scan.total,
        scanned: scan.read,
        repaired: scan.repaired,
        resilvered: scan.rebuilt,
        lost: scan.lost,
        missing: scan.missing,
        ..ScanReport::default()
    }
}

/// Samples of files and disks that were wrong.
fn wrong_samples(name: &str, measured: &Measured) -> Option<Refusal> {
    let audit = measured.audited.filter(|audit| measured.parity.is_none() && audit.failed > 0)?;
    let when = moment(audit.audited_ns);
    let what = format!("{} of {} samples of the audit of {when} were not held", audit.failed, audit.samples);
    Some(Refusal::new(Code::AuditWrong, what).with("pool", name))
}

/// The last audit of files and disks, and how often each byte is asked for.
fn audit_line(held: &ImportedPool, measured: &Measured) -> Option<String> {
    let audit = measured.audited.filter(|_| measured.parity.is_none())?;
    let when = moment(audit.audited_ns);
    let mut line = match audit.failed {
        0 => format!("{} samples held {when}", audit.samples),
        failed => format!("{failed} of {} samples failed {when}", audit.samples),
    };
    if let Some(interval) = mean_interval(held, measured) {
        line.push_str(&format!(", any byte is asked for every {} in the mean", roughly(interval)));
    }
    Some(line)
}

/// Problems of the parity device.
fn parity_messages(name: &str, parity: &ParityStatus) -> Vec<Refusal> {
    let out = parity.trouble.as_ref().map(|trouble| {
        let what = format!("the parity device {} is not in use: {trouble}", parity.path);
        Refusal::new(Code::ParityUnusable, what).with("pool", name).with("device", &parity.path)
    });
    let failed = parity.audit.filter(|audit| audit.failed > 0).map(|audit| {
        let when = moment(audit.audited_ns);
        let what =
            format!("{} of {} samples of the audit of {when} were not held", audit.failed, audit.samples);
        Refusal::new(Code::AuditFailed, what).with("pool", name)
    });
    let owed = parity.figures.as_ref().filter(|_| parity.owes_repair).map(|figures| {
        let percent = 100 * figures.journal_used / figures.journal_size;
        let what = format!(
            "a recovery was cut off before all that was lost was put back; passes of the parity wait for the next one, \
             and its journal is {percent} % full"
        );
        Refusal::new(Code::RecoveryOwed, what).with("pool", name)
    });
    let stays = |what| Refusal::new(Code::ObjectsStay, what).with("pool", name);
    let held_back = Some(parity.held_back).filter(|count| *count > 0);
    let held_back = held_back.map(|count| {
        stays(format!("objects that are to be deleted, and of which cells are lost or wrong: {count}"))
    });
    let unread = parity.unread.as_ref();
    let unread = unread.map(|(count, why)| {
        stays(format!("objects that are to be deleted, and cannot be read first: {count} ({why})"))
    });
    let tiles = parity.tiles.iter().flat_map(|tiles| tiles_messages(name, tiles));
    out.into_iter().chain(failed).chain(owed).chain(held_back).chain(unread).chain(tiles).collect()
}

/// Problems of tiles at a store.
fn tiles_messages(name: &str, tiles: &TilesStatus) -> Vec<Refusal> {
    let TilesStatus { address, trouble, lost, held, staying, .. } = tiles;
    let told = |code, what| Refusal::new(code, what).with("pool", name).with("store", address);
    let lost = lost.map(|tile| {
        let what = format!(
            "passes of the parity wait for its tile {tile}, which {address} does not have, or has wrong"
        );
        told(Code::TileLost, what)
    });
    let away = trouble.as_ref().filter(|_| lost.is_none()).map(|trouble| {
        told(Code::StoreFailed, format!("passes of the parity wait for its tiles at {address}: {trouble}"))
    });
    let gone = (*held > 0).then(|| {
        let what =
            format!("objects of the parity at {address} that were to be deleted are lost there: {held}");
        told(Code::ObjectsStay, what)
    });
    let staying = staying.as_ref().map(|(count, why)| {
        let what =
            format!("objects of the parity at {address} that are to be deleted, and stay: {count} ({why})");
        told(Code::ObjectsStay, what)
    });
    lost.into_iter().chain(away).chain(gone).chain(staying).collect()
}

/// Remark about an anchor.
fn anchor_note(anchor: &steadfast_anchor::Status) -> String {
    let steadfast_anchor::Status { seq, epoch, txg, .. } = anchor;
    let mut note = format!("record {seq}, epoch {epoch}, txg {txg}");
    if anchor.fenced.is_some() {
        note.push_str("; another daemon has taken over");
    }
    if let Some(trouble) = &anchor.witness_trouble {
        note.push_str("; this host cannot record it: ");
        note.push_str(trouble);
    }
    note
}

/// The same in detail.
fn lost_report(pool: &CachedPool, why: &Refusal) -> PoolReport {
    PoolReport {
        name: pool.name.clone(),
        guid: pool.guid,
        state: Health::Unavail,
        txg: 0,
        messages: vec![missing(pool, why)],
        vdevs: labels::remembered(pool),
        errors: Vec::new(),
        error_count: 0,
        scan: None,
        moving: None,
        checkpoint: None,
        sharing: Default::default(),
        stores: Vec::new(),
        budgets: Vec::new(),
        audit: None,
        log: LogReport::default(),
    }
}
