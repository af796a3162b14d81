//! The way of an event out of the daemon: to the log on disk, to the journal, and to hooks.
//!
//! A thread takes over the events of all pools once a second, and tells those that are new. Hooks
//! run in a thread of their own, so one that hangs holds up neither.
//!
//! An event of a kind that comes in floods (`ereport`) is told to the journal and to hooks once a
//! minute for each class, pool and device; the rest are counted. The log on disk has all.
//!
//! The thread also compares the devices with those of its last look. A device that vanished without
//! an error, or that was missing at import, becomes a `statechange` like one that failed.
//!
//! ## Invariants
//! [event_relay.1] An event is told once: `told` grows only.

use crate::api::{Health, PoolEvent};
use crate::engine::event_hooks::{HookEvent, Hooks};
use crate::engine::event_log::EventLog;
use crate::engine::event_message::{Priority, describe, kind};
use crate::engine::event_ring::EventRing;
use crate::engine::reports::devices::leaf_health;
use crate::engine::state::{Engine, ImportedPool};
use crate::refusal::Refusal;
use crate::runtime::Runtime;
use crate::syslog::Syslog;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;
use steadfast_format::DeviceId;
use steadfast_pool::Presence;

/// Time between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Events that wait for hooks.
const WAITING_MAX: usize = 256;
/// Events of one class, pool and device within this time are told once.
const QUIET: Duration = Duration::from_secs(60);

/// Class, pool and device of an event.
type Source = (String, Option<String>, Option<String>);

/// Events on their way out.
pub(super) struct EventRelay {
    /// Number of the last event that was told.
    told: u64,
    log: EventLog,
    /// True after a failure to write, which is reported once.
    log_failed: bool,
    syslog: Syslog,
    /// To the thread that runs hooks, once it was started.
    hooks: Option<SyncSender<HookEvent>>,
    /// When a source was last told, on the monotonic clock, and events since then.
    sources: BTreeMap<Source, (u64, u64)>,
    /// State of each device at the last look, by number of the pool.
    health: BTreeMap<(u64, DeviceId), Health>,
}

impl EventRelay {
    /// Reads the log of the former daemon.
    pub fn new(runtime: &Runtime) -> (EventRelay, EventRing) {
        let log = EventLog::new(&runtime.events_log());
        let (told, events) = log.load();
        let relay = EventRelay {
            told,
            log,
            log_failed: false,
            syslog: Syslog::detect(runtime.is_isolated()),
            hooks: None,
            sources: BTreeMap::new(),
            health: BTreeMap::new(),
        };
        (relay, EventRing::of(told, events))
    }

    /// Tells new events.
    fn tell(&mut self, events: Vec<PoolEvent>, missed: u64, now_ns: u64) {
        if missed > 0 {
            self.say(Priority::Warning, &format!("{missed} events came too fast to be recorded"));
        }
        let described: Vec<(Priority, String)> = events.iter().map(describe).collect();
        if !events.is_empty() {
            let durable = described.iter().any(|(priority, _)| *priority <= Priority::Warning);
            match self.log.append(&events, durable) {
                Ok(()) => self.log_failed = false,
                Err(error) => {
                    if !std::mem::replace(&mut self.log_failed, true) {
                        self.say(Priority::Error, &format!("the log of events cannot be written: {error}"));
                    }
                }
            }
        }
        for (event, (priority, message)) in events.into_iter().zip(described) {
            if !self.is_news(&event, now_ns) {
                continue;
            }
            if priority <= Priority::Notice {
                self.say(priority, &message);
            }
            let Some(hooks) = &self.hooks else { continue };
            let class = event.class.clone();
            if hooks.try_send(HookEvent { event, priority, message }).is_err() {
                let what = format!("hooks are too slow: none ran for an event {class}");
                self.say(Priority::Warning, &what);
            }
        }
        self.tell_repeats(now_ns);
    }

    /// False for one of a flood.
    fn is_news(&mut self, event: &PoolEvent, now_ns: u64) -> bool {
        if kind(event) != "ereport" {
            return true;
        }
        let source = (event.class.clone(), event.pool.clone(), event.fields.get("vdev_path").cloned());
        match self.sources.get_mut(&source) {
            Some((since_ns, repeats)) if is_quiet(*since_ns, now_ns) => {
                *repeats += 1;
                false
            }
            _ => {
                self.sources.insert(source, (now_ns, 0));
                true
            }
        }
    }

    /// Tells how many events were left out in the last minute.
    fn tell_repeats(&mut self, now_ns: u64) {
        let mut lines = Vec::new();
        self.sources.retain(|(class, pool, device), (since_ns, repeats)| {
            let stays = is_quiet(*since_ns, now_ns);
            if !stays && *repeats > 0 {
                let pool = pool.as_ref().map_or(String::new(), |pool| format!("pool '{pool}': "));
                let device = device.as_ref().map_or(String::new(), |device| format!(" of {device}"));
                let word = class.rsplit('.').next().unwrap_or_default();
                lines.push(format!(
                    "{pool}{repeats} more events {word}{device} in {} s: see `zpool events -v`",
                    QUIET.as_secs()
                ));
            }
            stays
        });
        lines.iter().for_each(|line| self.say(Priority::Warning, line));
    }

    fn say(&self, priority: Priority, line: &str) {
        self.syslog.say(priority as u8, line);
    }
}

fn is_quiet(since_ns: u64, now_ns: u64) -> bool {
    u128::from(now_ns.saturating_sub(since_ns)) < QUIET.as_nanos()
}

impl Engine {
    /// Starts the threads that tell events and run hooks.
    pub(super) fn start_relay(self: &Arc<Self>) {
        let runtime = &self.runtime;
        let hooks = Hooks::new(runtime.hooks(), runtime.is_isolated().then(|| runtime.dir()));
        let (sender, waiting) = sync_channel::<HookEvent>(WAITING_MAX);
        let syslog = Syslog::detect(runtime.is_isolated());
        self.relay.lock().hooks = Some(sender);
        // It ends when the engine, which has the other end, is dropped.
        let job = Box::new(move || {
            for told in waiting {
                for complaint in hooks.run(&told) {
                    syslog.say(Priority::Warning as u8, &complaint);
                }
            }
        });
        drop(self.env.tasks.spawn("hooks", job));
        let (weak, env) = (Arc::downgrade(self), self.env.clone());
        let clock = Arc::clone(&env.clock);
        let job = Box::new(move || {
            while let Some(engine) = weak.upgrade() {
                engine.relay_events();
                drop(engine);
                clock.sleep(LOOK);
            }
        });
        drop(env.tasks.spawn("events", job));
    }

    /// Takes over the events of all pools, and tells those that are new.
    pub fn relay_events(&self) {
        let pools: Vec<(String, Arc<ImportedPool>)> =
            self.pools.read().iter().map(|(name, held)| (name.clone(), Arc::clone(held))).collect();
        for (name, held) in &pools {
            self.harvest(name, &held.pool);
        }
        let mut relay = self.relay.lock();
        self.look_at_devices(&mut relay, &pools);
        let (events, missed) = {
            let ring = self.events.lock();
            let events: Vec<PoolEvent> = ring.all().filter(|event| event.eid > relay.told).cloned().collect();
            let missed = (ring.last() - relay.told).saturating_sub(events.len() as u64);
            relay.told = ring.last();
            (events, missed)
        };
        relay.tell(events, missed, self.env.clock.monotonic_ns());
    }

    /// Posts a `statechange` of each device that vanished, came back, or was missing at import.
    fn look_at_devices(&self, relay: &mut EventRelay, pools: &[(String, Arc<ImportedPool>)]) {
        let mut seen = BTreeMap::new();
        for (name, held) in pools {
            for leaf in held.pool.leaves() {
                let (health, remark) = leaf_health(&leaf);
                let key = (held.pool.guid().0, leaf.config.id);
                let before = relay.health.get(&key).copied();
                seen.insert(key, health);
                let is_bad = matches!(health, Health::Faulted | Health::Unavail | Health::Removed);
                let is_news = match before {
                    // The pool posts the rest by itself.
                    Some(before) if is_bad => before != health && leaf.presence != Presence::Whole,
                    Some(before) => before == Health::Removed && health == Health::Online,
                    None => is_bad,
                };
                if !is_news {
                    continue;
                }
                let mut fields = BTreeMap::from([
                    ("pool_guid".to_owned(), held.pool.guid().0.to_string()),
                    ("vdev_guid".to_owned(), leaf.config.guid.to_string()),
                    ("vdev_path".to_owned(), leaf.config.path.clone()),
                    ("vdev_state".to_owned(), health.as_str().to_owned()),
                ]);
                fields.extend(remark.map(|remark| ("detail".to_owned(), remark)));
                self.push_event("resource", "statechange", name, fields);
            }
        }
        relay.health = seen;
    }

    /// Posts that a remembered pool could not be imported at the start.
    pub(super) fn post_unimported(&self, name: &str, guid: u64, why: &Refusal) {
        let fields = BTreeMap::from([
            ("pool_guid".to_owned(), guid.to_string()),
            ("code".to_owned(), why.code.as_str().to_owned()),
            ("detail".to_owned(), why.what.clone()),
        ]);
        self.push_event("ereport", "zpool", name, fields);
    }

    /// Forgets all events, here and at the next start; the log on disk keeps them.
    pub(super) fn forget_events(&self) -> Result<Vec<String>, Refusal> {
        let relay = self.relay.lock();
        let mut ring = self.events.lock();
        relay.log.clear(ring.last()).map_err(|error| {
            let what = format!("the log of events cannot be written: {error}");
            Refusal::new(crate::refusal::Code::FileIo, what).with("file", self.runtime.events_log().display())
        })?;
        Ok(ring.drain().map(|event| event.eid.to_string()).collect())
    }

    fn push_event(&self, kind: &str, word: &str, pool: &str, fields: BTreeMap<String, String>) {
        let time_ns = u64::try_from(self.env.clock.wall_ns()).unwrap_or(0);
        let class = format!("{kind}.{}.{word}", super::events::SPACE);
        self.events.lock().push(time_ns, class, Some(pool.to_owned()), fields);
    }
}
