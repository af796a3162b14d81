//! What nobody asks for: pools change by themselves, and the daemon follows.
//!
//! A device that was replaced or removed leaves when all of it lies elsewhere, long after the command returned: then the list of pools to
//! import at the next start names it no more. With `autoreplace=on` a new device that appears where one is missing or has failed
//! takes its place, as if `zpool replace` had been typed; with `autoexpand=on` one that has grown is used whole, as by
//! `zpool online -e`.

use super::pools::wants_expanding;
use super::{Engine, Held, devices};
use crate::api::{Activities, Caller, PoolActivities, PoolReplace};
use crate::refusal::{Code, Refusal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use steadfast_device::OpenOptions;
use steadfast_format::LeafState;
use steadfast_pool::{Pool, ScanKind};

/// Longest wait of one request: who wants the daemon to stop waits for those under way.
const PATIENCE_MAX: Duration = Duration::from_millis(500);
/// Commits that one request asks for at most, where what it waits for takes some.
const HURRIES_MAX: u32 = 8;
/// Time between two looks.
const LOOK: Duration = Duration::from_secs(2);
/// Looks that a device which was refused rests at most before it is tried again: a minute.
const RESTS_MAX: u32 = 30;

/// A blank device that was refused as a replacement, or one that has grown and could not be used whole. What stood in the way may be over soon: somebody still had it open, another
/// device was being built, it was not yet as large as it should be. So it is tried again, at the next look and then ever more rarely.
pub(super) struct Tried {
    /// Which device it was.
    identity: (u64, u64),
    /// What was said of it, which is not said twice.
    said: String,
    /// Looks that it rests yet, and that it rested last time.
    left: u32,
    rests: u32,
}

/// What goes on in a pool; asked to, when some of it is over. That ends within a turn of the pool's, so after each there is a look.
pub(super) fn activities(pool: &Pool, request: &PoolActivities) -> Result<Activities, Refusal> {
    let patience = Duration::from_millis(request.patience_ms).min(PATIENCE_MAX);
    let mut hurries = if request.until_over.iter().any(|name| name == "free") { HURRIES_MAX } else { 1 };
    let began = Instant::now();
    loop {
        // Before the look, so that no turn after it goes unheard.
        let seen = pool.turns();
        let now = activities_now(pool)?;
        if now.free > 0 && hurries > 0 {
            // It is for commits to give it back, and who asks waits for them.
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

fn activities_now(pool: &Pool) -> Result<Activities, Refusal> {
    if let Some(reason) = pool.suspended() {
        // Nothing of it ends any more.
        let what = format!("the pool is suspended, and what went on in it stands still: {reason}");
        return Err(Refusal::new(Code::PoolSuspended, what).with("pool", pool.name()));
    }
    let [scrub, resilver] = pool.scan_remaining();
    let moving = pool.move_remaining();
    let left = |kind| moving.filter(|(of, _)| *of == kind).map_or(0, |(_, bytes)| bytes);
    Ok(Activities {
        free: pool.freeing(),
        trim: pool.trim_remaining(),
        initialize: pool.initialize_remaining(),
        scrub,
        resilver,
        remove: left(ScanKind::Remove),
        expand: left(ScanKind::Expand),
        rebalance: left(ScanKind::Rebalance),
    })
}

impl Engine {
    /// Looks after the pools from now on, in the background, until the engine is dropped.
    pub fn tend(self: &Arc<Self>) {
        self.carry_out_policies();
        self.serve_volumes();
        let (weak, env) = (Arc::downgrade(self), self.env.clone());
        let clock = Arc::clone(&env.clock);
        let job = Box::new(move || {
            while let Some(engine) = weak.upgrade() {
                engine.look_after();
                drop(engine);
                clock.sleep(LOOK);
            }
        });
        // It ends by itself, and nobody waits for it.
        drop(env.tasks.spawn("upkeep", job));
    }

    /// One look at all pools.
    pub fn look_after(&self) {
        let pools: Vec<(String, Arc<Held>)> =
            self.pools.read().iter().map(|(name, held)| (name.clone(), Arc::clone(held))).collect();
        for (name, held) in pools.iter().filter(|(_, held)| wants_replacing(held)) {
            self.replace_missing(name, held);
        }
        for (name, held) in pools.iter().filter(|(_, held)| wants_expanding(held)) {
            self.use_growth(name, held);
        }
        let mut moved = false;
        for (_, held) in &pools {
            moved |= held.follow_devices();
        }
        if moved && let Err(refusal) = self.remember() {
            eprintln!("steadfast: {}", refusal.what);
        }
    }

    /// Gives the places of devices that are missing or have failed to new ones that lie under their paths.
    fn replace_missing(&self, name: &str, held: &Arc<Held>) {
        for leaf in held.pool.state().leaves {
            let is_out =
                matches!(leaf.config.state, LeafState::Faulted | LeafState::Gone | LeafState::Spared);
            let path = PathBuf::from(&leaf.config.path);
            let (true, Some(identity)) = (is_out, devices::identity(&path)) else { continue };
            if self.is_resting(&path, identity) {
                continue;
            }
            // One that has a label is the old one, which `zpool online` brings back, or somebody else's; one that holds anything
            // else is not ours to overwrite.
            let Ok(handle) = devices::open(&path, &OpenOptions::PEEK) else { continue };
            if devices::contents(&path).is_some() || steadfast_pool::label_of(&*handle.device).is_ok() {
                continue;
            }
            drop(handle);
            let command = format!("zpool replace {name} {} (autoreplace)", path.display());
            let caller = Caller { uid: 0, gid: 0, pid: std::process::id(), command, descriptor: None };
            let request = PoolReplace { name: name.to_owned(), old: path.clone(), new: None, force: false };
            let _turn = self.verbs.lock();
            match self.replace(&caller, &request) {
                Ok(_) => {
                    self.tried.lock().remove(&path);
                    eprintln!("steadfast: pool '{name}': {} is new and takes its place", path.display());
                }
                Err(refusal) => self.let_rest(name, path, identity, "is new", refusal.what),
            }
        }
    }

    /// Uses all of devices that have grown since they were opened.
    fn use_growth(&self, name: &str, held: &Arc<Held>) {
        let _turn = self.verbs.lock();
        // A verb that had its turn meanwhile may have let the pool go.
        if !self.pools.read().get(name).is_some_and(|now| Arc::ptr_eq(now, held)) {
            return;
        }
        let is_due =
            |path: &Path| devices::identity(path).is_none_or(|identity| !self.is_resting(path, identity));
        for (path, refusal) in self.expand_grown(held, name, is_due) {
            // One without an identity is gone, and is no larger at the next look.
            if let Some(identity) = devices::identity(&path) {
                self.let_rest(name, path, identity, "has grown", refusal.what);
            }
        }
    }

    /// Whether a device that was refused is left alone by this look.
    fn is_resting(&self, path: &Path, identity: (u64, u64)) -> bool {
        let mut tried = self.tried.lock();
        match tried.get_mut(path) {
            Some(known) if known.identity == identity && known.left > 0 => {
                known.left -= 1;
                true
            }
            _ => false,
        }
    }

    /// Notes that a device was refused, and why, and tells the operator what was not told before.
    fn let_rest(&self, name: &str, path: PathBuf, identity: (u64, u64), found: &str, said: String) {
        let mut tried = self.tried.lock();
        let before = tried.remove(&path).filter(|before| before.identity == identity);
        if before.as_ref().is_none_or(|before| before.said != said) {
            eprintln!("steadfast: pool '{name}': {} {found}, but {said}", path.display());
        }
        let rests = before.map_or(0, |before| (2 * before.rests).clamp(1, RESTS_MAX));
        tried.insert(path, Tried { identity, said, left: rests, rests });
    }
}

fn wants_replacing(held: &Held) -> bool {
    let is_on = held.pool.pool_props().get("autoreplace").is_some_and(|value| value == "on");
    is_on && !held.pool.is_read_only() && held.pool.suspended().is_none()
}

impl Held {
    /// The pool has these devices now, as they were typed; some may have been seen by a look at it already.
    pub(super) fn note_devices(&self, paths: Vec<PathBuf>) {
        let mut known = self.devices.write();
        for path in paths {
            if !known.contains(&path) {
                known.push(path);
            }
        }
    }

    /// Takes over which devices the pool has now. True if that changed.
    pub(super) fn follow_devices(&self) -> bool {
        let mut known = self.devices.write();
        // Asked while nobody else changes the list: a verb adds to it what is in the pool by then.
        let now = self.pool.device_paths();
        // Paths as they were typed: those of the pool are text, and a path need not be.
        let of = |path: &String| {
            let typed = known.iter().find(|typed| typed.display().to_string() == *path);
            typed.cloned().unwrap_or_else(|| PathBuf::from(path))
        };
        let now: Vec<PathBuf> = now.iter().map(of).collect();
        let is_same = now.len() == known.len() && now.iter().all(|path| known.contains(path));
        if !is_same {
            *known = now;
        }
        !is_same
    }
}
