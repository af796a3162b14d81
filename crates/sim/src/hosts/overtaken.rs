//! `import -f`: a host takes the pool of another one that still lives, and goes on living.
//!
//! Hosts of one world live side by side and take turns by a script that follows from the seed: one
//! writes or removes a file, lets time pass, exports or dies. Another one imports with `-f`,
//! between two operations of the owner, or before any request of one of them or of an import.
//! Several may follow; those that lost the pool go on as if nothing had happened.
//!
//! ## Claims
//! - The new owner finds each change that anybody was told to be durable.
//! - A host that lost the pool is told no change to be durable that it began since.
//! - It stops, and for this reason: [`Pool::is_overtaken`] (`POOL-OVERTAKEN`), and with a register
//!   its anchor is fenced besides. It stays so.
//! - It never reads bytes that nobody wrote.
//! - The owner is never stopped, unless a request of its own failed.
//! - The import fails only for a fault of its own requests, or because another host imported inside
//!   of it.
//! - The last owner's changes are there in the end, and the offline check finds nothing.

use super::*;

/// Requests among which the one is drawn before which another host imports: an operation makes
/// about so many.
const REQUESTS_OF_CHANGE: usize = 9;
/// Those of an import.
const REQUESTS_OF_IMPORT: usize = 16;
/// Hosts that live at once, at most.
const LIVING_MAX: usize = 4;
/// Imports in one another.
const IMPORTS_MAX: usize = 2;

/// Before which request of a host another one imports, and which fails.
#[derive(Default)]
struct Plan {
    imports: Option<usize>,
    fails: Option<usize>,
}

struct Living {
    host: u8,
    pool: Pool,
    fs: FileSystem,
    _handle: DatasetHandle,
    plan: Arc<Mutex<Plan>>,
    /// A request of it failed: it may be stopped for that.
    is_struck: Arc<AtomicBool>,
    /// It was told that it lost the pool.
    is_told: bool,
}

struct Case {
    world: Arc<World>,
    living: Mutex<Vec<Living>>,
    /// The owner has committed since the last import, also since one that failed.
    is_settled: AtomicBool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Case {
    fn draw<T>(&self, choose: impl FnOnce(&mut Draw) -> T) -> T {
        self.world.draw(choose)
    }

    /// Before a request of a host. True if the request fails.
    fn before(self: &Arc<Case>, host: u8, depth: usize, plan: &Mutex<Plan>, request: &Request) -> bool {
        let (imports, fails) = {
            let mut plan = lock(plan);
            (count_down(&mut plan.imports), count_down(&mut plan.fails))
        };
        if self.world.planted == Some(Planted::ClaimUnseen) && request.name.starts_with(EPOCHS) {
            let mut claims: Vec<String> =
                self.world.store.names().into_iter().filter(|name| name.starts_with(EPOCHS)).collect();
            claims.sort();
            for name in claims.into_iter().rev() {
                if self.world.store.read(&name, None).is_ok_and(|writer| writer == [host; 16]) {
                    break;
                }
                self.world.store.remove(&name);
            }
        }
        if imports {
            self.world.tell(host, format!("sleeps before {:?} {}", request.operation, request.name));
            self.world.model().counts.slept += 1;
            // Locks of the one that sleeps are no concern of the other's.
            let other = Arc::clone(self);
            let job = Box::new(move || other.import(depth + 1));
            if !Env::real().tasks.spawn("another host", job).join() {
                self.world.break_off("a host panicked".to_owned());
            }
            self.world.tell(host, "wakes");
        }
        if fails {
            self.world.model().counts.faults += 1;
            self.world.tell(host, format!("fails at {:?} {}", request.operation, request.name));
        }
        fails
    }

    /// Another host imports with `-f`, and judges what it finds.
    fn import(self: &Arc<Case>, depth: usize) {
        let world = &self.world;
        let host = {
            let mut model = world.model();
            model.next_writer += 1;
            model.next_writer
        };
        let (plan, is_struck) = (Arc::<Mutex<Plan>>::default(), Arc::new(AtomicBool::new(false)));
        let hook = {
            let (case, plan, struck) = (Arc::downgrade(self), Arc::clone(&plan), Arc::clone(&is_struck));
            move |request: &Request| {
                let fails = case.upgrade()?.before(host, depth, &plan, request);
                struck.fetch_or(fails, Ordering::Relaxed);
                fails.then_some(StoreFault::Fails)
            }
        };
        let device = world.device(host, hook);
        let is_calm = world.is_calm.load(Ordering::Relaxed);
        let inside = self.draw(|draw| {
            let imports = draw.percent(15).then(|| draw.below(REQUESTS_OF_IMPORT));
            let fails = draw.percent(5).then(|| draw.below(REQUESTS_OF_IMPORT));
            (imports.filter(|_| depth < IMPORTS_MAX && !is_calm), fails.filter(|_| !is_calm))
        });
        *lock(&plan) = Plan { imports: inside.0, fails: inside.1 };
        let later = world.model().next_writer;
        let (mut pools, _) = scan(vec![device]);
        let spec = world.import_spec(format!("host {host}"));
        world.tell(host, "imports with -f");
        let imported = pools.pop().ok_or_else(|| "no label is found".to_owned()).and_then(|found| {
            let pool = Pool::import(&Env::simulated(u64::from(host)), found, &spec);
            pool.map_err(|error| error.to_string())
        });
        *lock(&plan) = Plan::default();
        let excused = || is_struck.load(Ordering::Relaxed) || world.model().next_writer != later;
        let opened = imported.and_then(|pool| {
            let (fs, handle) = world::files(&pool, "tank").map_err(|error| error.to_string())?;
            Ok((pool, fs, handle))
        });
        let (pool, fs, handle) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                world.tell(host, format!("import failed: {error}"));
                if !excused() {
                    world.break_off(format!("host {host} cannot import with -f: {error}"));
                }
                // It may have claimed the pool: the last root of the owner, which is told an error,
                // counts until somebody commits.
                self.is_settled.store(false, Ordering::Relaxed);
                return;
            }
        };
        // One that another import overtook sees what was.
        if world.is_owner(host, &pool) {
            self.is_settled.store(false, Ordering::Relaxed);
            if !judge(world, host, &fs, &excused) {
                return;
            }
        }
        let living = Living { host, pool, fs, _handle: handle, plan, is_struck, is_told: false };
        lock(&self.living).push(living);
    }

    /// A host that is stopped is stopped for a reason that it tells.
    fn is_stopped_rightly(&self, living: &mut Living, was_owner: bool, error: &str) {
        let world = &self.world;
        world.tell(living.host, error.to_owned());
        if living.is_struck.load(Ordering::Relaxed) {
            return;
        }
        if was_owner && world.is_owner(living.host, &living.pool) {
            world.break_off(format!("host {} owns the pool and is stopped: {error}", living.host));
            return;
        }
        let state = living.pool.state();
        let is_fenced = state.anchor.is_none_or(|anchor| anchor.fenced.is_some());
        let tells = living.pool.is_overtaken() && is_fenced;
        if !tells {
            world.break_off(format!(
                "host {} lost the pool and does not say so: {error}; {:?}",
                living.host, state.suspended
            ));
        }
        world.model().counts.fenced += u64::from(!living.is_told);
        living.is_told = true;
    }

    /// Writes a version of a file, or removes it, and waits until that is durable.
    fn change(&self, living: &mut Living) {
        let (world, host) = (&self.world, living.host);
        let was_owner = world.is_owner(host, &living.pool);
        let (name, remove) = self.draw(|draw| (*draw.pick(&FILES), draw.percent(25)));
        let (version, imports) = {
            let mut model = world.model();
            model.version += 1;
            let version = if remove { 0 } else { model.version };
            // A host that was fenced before it began may put a root that counts until the owner has
            // put its own, where no register forbids it.
            if was_owner || (world.register.is_none() && !self.is_settled.load(Ordering::Relaxed)) {
                model.maybe.push((host, name, version));
            }
            (version, model.imports)
        };
        world.tell(host, format!("begins {name} {version}"));
        if let Err(error) = change(&living.pool, &living.fs, name, version) {
            // An errno does not say why: the commit does.
            let error = living.pool.sync().err().map_or(error, |error| error.to_string());
            self.is_stopped_rightly(living, was_owner, &error);
            return;
        }
        world.tell(host, format!("was told {name} {version}"));
        if !was_owner || living.is_told {
            world.break_off(format!("host {host} was told {name} {version}, and had lost the pool before"));
            return;
        }
        // An import that failed may have claimed the pool behind the commit.
        let is_owner = world.is_owner(host, &living.pool);
        let mut model = world.model();
        if model.imports != imports {
            // Another one imported when its commit was done.
            if !model.came.contains(&host) {
                let what = format!("host {host} was told {name} {version}, which never came");
                let _ = model.broken.get_or_insert(what);
            }
            return;
        }
        self.is_settled.fetch_or(is_owner, Ordering::Relaxed);
        model.maybe.clear();
        if version == 0 {
            model.durable.remove(name);
        } else {
            model.durable.insert(name, version);
        }
    }

    /// Lets time pass: a first commit is done, segments are cleaned, roots are deleted.
    fn pass_time(&self, living: &mut Living) {
        let was_owner = self.world.is_owner(living.host, &living.pool);
        let (imports, before) = (self.world.model().imports, living.pool.state().txg);
        let steps = self.draw(|draw| if draw.percent(50) { 1 } else { draw.below(900) });
        (0..steps).for_each(|_| living.pool.step());
        let state = living.pool.state();
        if let Some(reason) = state.suspended {
            self.is_stopped_rightly(living, was_owner, &reason);
        } else if state.txg > before && was_owner && self.world.is_owner(living.host, &living.pool) {
            let mut model = self.world.model();
            model.counts.behind += 1;
            if model.imports == imports {
                self.is_settled.store(true, Ordering::Relaxed);
                model.maybe.clear();
            }
        }
    }

    /// One that lost the pool reads what it knew, or nothing.
    fn look(&self, living: &Living) {
        if let Err(what) = read(&living.fs)
            && what.contains("nobody wrote")
        {
            self.world.break_off(format!("host {}: {what}", living.host));
        }
    }

    /// One thing that happens.
    fn turn(self: &Arc<Case>) {
        let count = lock(&self.living).len();
        if count == 0 || (count < LIVING_MAX && self.draw(|draw| draw.percent(20))) {
            self.import(0);
            return;
        }
        let at = self.draw(|draw| draw.below(count));
        let mut living = lock(&self.living).remove(at);
        let is_full = count >= LIVING_MAX;
        *lock(&living.plan) = self.draw(|draw| Plan {
            imports: draw.percent(30).then(|| draw.below(REQUESTS_OF_CHANGE)).filter(|_| !is_full),
            fails: draw.percent(3).then(|| draw.below(REQUESTS_OF_CHANGE)),
        });
        let (choice, dies) = self.draw(|draw| (draw.below(100), draw.percent(50)));
        match choice {
            0..60 => self.change(&mut living),
            60..80 => self.pass_time(&mut living),
            80..90 => self.look(&living),
            _ if dies => {
                self.world.tell(living.host, "dies");
                return;
            }
            _ => {
                let exported = living.pool.export().map_err(|error| error.to_string());
                self.world.tell(living.host, format!("export: {exported:?}"));
                return;
            }
        }
        *lock(&living.plan) = Plan::default();
        lock(&self.living).push(living);
    }
}

/// One world, whose hosts take the pool from each other; then each that still lives tries to write,
/// and two look, one after the other.
///
/// # Errors
/// A claim that does not hold, with what the hosts did.
pub fn explore_overtaken(seed: u64, planted: Option<Planted>) -> Result<Counts, Finding> {
    let (world, mut draw) = World::begin(seed, planted);
    let turns = 4 + draw.below(12);
    let world = Arc::new(world);
    {
        let mut model = world.model();
        (model.draw, model.next_writer) = (Some(draw), 1);
    }
    let case = Arc::new(Case {
        world: Arc::clone(&world),
        living: Mutex::default(),
        is_settled: AtomicBool::new(true),
    });
    for _ in 0..turns {
        case.turn();
        if world.model().broken.is_some() {
            break;
        }
    }
    world.is_calm.store(true, Ordering::Relaxed);
    world.store.list_at_once();
    let living = std::mem::take(&mut *lock(&case.living));
    for mut host in living {
        case.change(&mut host);
    }
    for _ in 0..2 {
        case.import(0);
        if let Some(mut host) = lock(&case.living).pop() {
            case.change(&mut host);
            let exported = host.pool.export().map_err(|error| error.to_string());
            world.tell(host.host, format!("export: {exported:?}"));
        }
    }
    world.end(seed)
}

/// As [`run`] does it, of worlds whose hosts take the pool from each other.
pub fn run_overtaken(
    from: u64,
    states: u64,
    planted: Option<Planted>,
    progress: impl Fn(&Counts),
) -> (Counts, Option<Finding>) {
    run_with(from, states, progress, |seed| explore_overtaken(seed, planted))
}
