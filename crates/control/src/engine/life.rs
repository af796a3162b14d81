//! The engine's start, its threads in the background, and its end.

use crate::cachefile::{Cachefile, OtherLists};
use crate::engine::event_relay::EventRelay;
use crate::engine::front::{FormerMount, Front};
use crate::engine::nbd_clients::Clients;
use crate::engine::refuse;
use crate::engine::shares::Shares;
use crate::engine::state::{Engine, ImportedPool, Me, MissingPool};
use crate::engine::sweeps;
use crate::engine::upkeep;
use crate::engine::verb::Verbs;
use crate::engine::zpool::export::{check_names_last, refuse_away};
use crate::ledger::Ledger;
use crate::meters;
use crate::refusal::{Code, Refusal};
use crate::runtime::Runtime;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use steadfast_env::Env;
use steadfast_pool::Memory;

impl Engine {
    /// Starts, and imports the pools that were imported when the last daemon ended. A pool that
    /// cannot be imported is reported on stderr and stays remembered.
    ///
    /// # Errors
    /// If the list of remembered pools cannot be read: starting without it would forget them.
    pub fn start(
        env: Env,
        runtime: Runtime,
        memory: Memory,
        front: Arc<dyn Front>,
    ) -> Result<Engine, Refusal> {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let cachefile = Cachefile::new(runtime.cachefile());
        let remembered = cachefile.load()?;
        let (relay, events) = EventRelay::new(&runtime);
        let ledger = Ledger::open(&runtime.costs(), meters::counters());
        let shares = Shares::new(runtime.nfs_clients(), host.clone());
        let engine = Engine {
            me: Me::default(),
            env,
            runtime,
            cachefile,
            other_lists: OtherLists::default(),
            host,
            memory: RwLock::new(memory),
            front,
            pools: RwLock::default(),
            lost: Mutex::default(),
            given_up: Mutex::default(),
            verbs: Verbs::default(),
            events: Mutex::new(events),
            relay: Mutex::new(relay),
            backoff: Mutex::default(),
            policies: Mutex::default(),
            ledger,
            clients: Clients::default(),
            shares,
        };
        for pool in remembered {
            match engine.import_remembered(&pool) {
                Ok(warnings) => {
                    eprintln!("steadfast: pool '{}': imported", pool.name);
                    for warning in warnings {
                        eprintln!("steadfast: pool '{}': {}", pool.name, warning.what);
                    }
                }
                Err(why) => {
                    engine.post_unimported(&pool.name, pool.guid, &why);
                    engine.lost.lock().insert(pool.name.clone(), MissingPool { pool, why });
                }
            }
        }
        Ok(engine)
    }

    /// Starts the threads in the background: upkeep, snapshot policies, NBD, costs, events. They
    /// end when the engine is dropped.
    pub fn tend(self: &Arc<Self>) {
        let _ = self.me.set(Arc::downgrade(self));
        self.start_relay();
        self.carry_out_policies();
        self.serve_volumes();
        self.keep_costs();
        let (weak, env) = (Arc::downgrade(self), self.env.clone());
        let clock = Arc::clone(&env.clock);
        let job = Box::new(move || {
            while let Some(engine) = weak.upgrade() {
                engine.look_after();
                drop(engine);
                clock.sleep(upkeep::LOOK);
            }
        });
        // It ends when the engine is dropped.
        drop(env.tasks.spawn("upkeep", job));
    }

    /// Unmounts and exports all pools because the daemon ends. They stay remembered for the next
    /// start. Without `force` it refuses while files are open, and everything stays as it was.
    ///
    /// # Errors
    /// [`Code::FsBusy`], [`Code::StreamBusy`], and errors of the pools.
    pub fn shutdown(&self, force: bool) -> Result<(), Refusal> {
        let ended = self.export_all(force);
        self.relay_events();
        self.keep_counters();
        if ended.is_ok() {
            self.shares.leave_port_mapper();
        }
        ended
    }

    fn export_all(&self, force: bool) -> Result<(), Refusal> {
        let _turn = self.verbs.lock();
        let pools: BTreeMap<String, Arc<ImportedPool>> = self.pools.read().clone();
        if !force {
            pools.iter().try_for_each(|(name, held)| {
                refuse_away(name, held)?;
                check_names_last(name, held)?;
                self.refuse_suspended(name, held)
            })?;
        } else {
            // The service manager waits no longer than a store may be away.
            pools.values().for_each(|held| held.pool.give_up_waiting());
        }
        let mut left: Vec<(&Arc<ImportedPool>, Vec<FormerMount>)> = Vec::new();
        for (name, held) in &pools {
            match self.unmount_all(held, name, force) {
                Ok(placed) => left.push((held, placed)),
                Err(refusal) if !force => {
                    for (held, placed) in left {
                        held.pool.hold_writers();
                        self.mount_placed(held, placed);
                    }
                    return Err(refusal);
                }
                Err(refusal) => eprintln!("steadfast: pool '{name}': {}", refusal.what),
            }
        }
        let (remembered, mut first) = (self.to_remember(), None);
        for (name, held) in &pools {
            sweeps::write_down(held);
            held.recoveries.end();
            let was_suspended = held.pool.suspended().is_some();
            let exported = held.pool.export();
            if was_suspended || held.pool.suspended().is_some() {
                eprintln!("steadfast: pool '{name}': {}", self.tell_lost(name, held).what);
            }
            self.harvest(name, &held.pool);
            match exported {
                Ok(()) => {
                    eprintln!("steadfast: pool '{name}': exported");
                    self.pools.write().remove(name);
                }
                Err(error) => {
                    let refusal = refuse::pool(error);
                    eprintln!("steadfast: pool '{name}': cannot be exported cleanly: {}", refusal.what);
                    first.get_or_insert(refusal);
                }
            }
        }
        let Some(refusal) = first.filter(|_| !force) else {
            // With `force` nothing more can be done for a pool that could not be committed.
            self.pools.write().clear();
            return Ok(());
        };
        // The daemon stays, with the pools that could not be exported. Exported pools stay
        // remembered ([engine.3]).
        for pool in remembered.into_iter().filter(|pool| pools.contains_key(&pool.name)) {
            if !self.pools.read().contains_key(&pool.name) {
                let what =
                    "it was exported because the daemon was to stop, but another pool could not be exported";
                let why = Refusal::new(Code::DaemonStopping, what);
                self.lost.lock().insert(pool.name.clone(), MissingPool { pool, why });
            }
        }
        Err(refusal)
    }
}
