//! `zpool wait`: work in the background of a pool.

use crate::api::{Activities, PoolActivities};
use crate::caller::Caller;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use std::time::{Duration, Instant};
use steadfast_pool::{Pool, ScanKind, Sweep};

/// Longest wait of one request: `daemon stop` waits for running requests.
const PATIENCE_MAX: Duration = Duration::from_millis(500);

/// Most commits that one request asks for.
const HURRIES_MAX: u32 = 8;

impl Verb for PoolActivities {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<Activities, Refusal> {
        let held = engine.held_pool(&self.name)?;
        activities(&held.pool, &self)
    }
}

/// Work in the background of a pool, at once or when some of it is over. Work ends within a turn of
/// the pool, so the state is checked after each turn.
fn activities(pool: &Pool, request: &PoolActivities) -> Result<Activities, Refusal> {
    let patience = Duration::from_millis(request.patience_ms).min(PATIENCE_MAX);
    let mut hurries = if request.until_over.iter().any(|name| name == "free") { HURRIES_MAX } else { 1 };
    let devices: Vec<String> = request.devices.iter().map(|path| path.display().to_string()).collect();
    let began = Instant::now();
    loop {
        // Before the check, so that no turn after it is missed.
        let seen = pool.turns();
        let now = activities_now(pool, &devices)?;
        if now.free > 0 && hurries > 0 {
            // Commits free blocks, and the caller waits for that.
            pool.hurry();
            hurries -= 1;
        }
        let over = request.until_over.iter().all(|name| now.left(name) == 0);
        let left = patience.saturating_sub(began.elapsed());
        if over || left.is_zero() {
            return Ok(now);
        }
        pool.wait_turn(seen, left);
    }
}

fn activities_now(pool: &Pool, devices: &[String]) -> Result<Activities, Refusal> {
    // Work goes on by itself when a store is back.
    if let Some(reason) = pool.suspended().filter(|_| pool.store_away().is_none()) {
        // None of the work would ever end.
        let what = format!("the pool is suspended, so background work has stopped: {reason}");
        return Err(Refusal::new(Code::PoolSuspended, what).with("pool", pool.name()));
    }
    let [scrub, resilver] = pool.scan_remaining();
    let moving = pool.move_remaining();
    let left = |kind| moving.filter(|(of, _)| *of == kind).map_or(0, |(_, bytes)| bytes);
    Ok(Activities {
        free: pool.datasets().freeing(),
        trim: pool.devices().sweep_remaining_on(Sweep::Trim, devices),
        initialize: pool.devices().sweep_remaining_on(Sweep::Initialize, devices),
        scrub,
        resilver,
        remove: left(ScanKind::Remove),
        expand: left(ScanKind::Expand),
        rebalance: left(ScanKind::Rebalance),
    })
}
