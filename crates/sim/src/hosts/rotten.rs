//! A store that damages the newest roots of a pool without an anchor, and hosts that go back to an
//! older one (`zpool import -F`).
//!
//! Hosts have lived on the store before, slept, died and been fenced, as in [`super::explore`].
//! Then, several times: a host changes files and exports or dies; the newest root, or the last two,
//! are damaged; a host imports, is refused, and goes back. Before any request of its import another
//! one may do the same, and be told that a change of its own is durable.
//!
//! ## Claims
//! - An import that does not go back is refused for the damaged root, and changes nothing.
//! - With one damaged root the one before it opens, however the pool was left: one commit is lost,
//!   and no other.
//! - With two, an older root opens whole or none does, and then nothing was changed: objects that
//!   the last two roots do not need may be deleted. The host finds a state that all files had at
//!   one moment.
//! - A change that a host was told to be durable since it went back is found by all that come
//!   later, also by one that was going back at the same time.
//! - The offline check finds nothing, once the damaged roots are taken away.

use super::*;
use steadfast_pool::{Error, GoBack, RootAge, older_roots};

/// Requests among which the one is drawn before which another host goes back.
const REQUESTS_OF_IMPORT: usize = 40;

struct Case {
    world: Arc<World>,
    /// States of all files, one for each change since the last host came, and what it found.
    states: Mutex<Vec<Files>>,
    /// All states that were since, and the root from which on they are known.
    all: Mutex<Vec<Files>>,
    known_from: RootAge,
    /// Roots that were damaged, with their bytes before, and those of the last time.
    damaged: Mutex<Vec<(String, Vec<u8>)>>,
    last: Mutex<usize>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Case {
    fn host(&self) -> u8 {
        let mut model = self.world.model();
        model.next_writer += 1;
        model.next_writer
    }

    fn draw<T>(&self, choose: impl FnOnce(&mut Draw) -> T) -> T {
        self.world.draw(choose)
    }

    /// The pool as a host finds it, with `hook` before each request of its import.
    fn import(
        &self,
        host: u8,
        back: Option<GoBack>,
        hook: impl Fn(&Request) -> Option<StoreFault> + Send + Sync + 'static,
    ) -> Result<Pool, Error> {
        let (mut pools, _) = scan(vec![self.world.device(host, hook)]);
        let anchor = AnchorWish { back, ..AnchorWish::default() };
        let spec = ImportSpec { anchor, ..self.world.import_spec("sim".into()) };
        Pool::import(&Env::simulated(u64::from(host)), pools.pop().expect("it has a label"), &spec)
    }

    /// Roots that a host may go back to, the newest first.
    fn roots(&self) -> Vec<RootAge> {
        let (pools, _) = scan(vec![self.world.device(254, |_| None)]);
        older_roots(&pools[0])
    }

    fn files(&self, pool: &Pool) -> Result<Files, String> {
        let (fs, _handle) = world::files(pool, "tank").map_err(|error| error.to_string())?;
        read(&fs)
    }

    /// Changes a file, and notes the state if that is told to be durable.
    fn change(&self, host: u8, pool: &Pool) -> Result<(), String> {
        let (fs, _handle) = world::files(pool, "tank").map_err(|error| error.to_string())?;
        let (name, remove) = self.draw(|draw| (*draw.pick(&FILES), draw.percent(25)));
        let version = {
            let mut model = self.world.model();
            model.version += 1;
            if remove { 0 } else { model.version }
        };
        change(pool, &fs, name, version)?;
        self.world.tell(host, format!("was told {name} {version}"));
        let mut states = lock(&self.states);
        let mut state = states.last().cloned().unwrap_or_default();
        match version {
            0 => _ = state.remove(name),
            version => _ = state.insert(name, version),
        }
        lock(&self.all).push(state.clone());
        states.push(state);
        Ok(())
    }

    fn leave(&self, host: u8, pool: Pool) {
        let exports = self.draw(|draw| draw.percent(50));
        self.world.tell(host, if exports { "exports" } else { "dies" });
        if exports && let Err(error) = pool.export() {
            self.world.break_off(format!("host {host} cannot export: {error}"));
        }
    }

    /// A host changes files. It has to find the last state.
    fn live(&self) {
        let host = self.host();
        let pool = match self.import(host, None, |_| None) {
            Ok(pool) => pool,
            Err(error) => return self.world.break_off(format!("host {host} cannot import: {error}")),
        };
        match self.files(&pool) {
            Ok(found) if Some(&found) == lock(&self.states).last() => {
                *lock(&self.states) = vec![found];
            }
            found => {
                let states = lock(&self.states).clone();
                return self.world.break_off(format!("host {host} finds {found:?} of {states:?}"));
            }
        }
        self.world.model().counts.states += 1;
        for _ in 0..self.draw(|draw| 2 + draw.below(3)) {
            if let Err(error) = self.change(host, &pool) {
                return self.world.break_off(format!("host {host} cannot write: {error}"));
            }
            let steps = self.draw(|draw| if draw.percent(30) { draw.below(900) } else { 0 });
            (0..steps).for_each(|_| pool.step());
        }
        self.leave(host, pool);
    }

    /// Damages the newest roots.
    fn rot(&self, count: usize) {
        let store = &self.world.store;
        let mut roots: Vec<String> =
            store.names().into_iter().filter(|name| name.starts_with(ROOTS)).collect();
        roots.sort_unstable();
        for name in roots.into_iter().rev().take(count) {
            let mut bytes = store.read(&name, None).expect("it is there");
            lock(&self.damaged).push((name.clone(), bytes.clone()));
            let (kind, at) = self.draw(|draw| (draw.below(3), draw.below(bytes.len())));
            match kind {
                0 => bytes[at] ^= 1 << (at % 8),
                1 => bytes.truncate(at),
                _ => bytes.fill(0),
            }
            assert!(store.remove(&name) && store.create(&name, &bytes).expect("no fault"));
            self.world.tell(0, format!("the store damages {name}"));
        }
        *lock(&self.last) = count;
    }

    /// No older root is whole: the store gives the last ones back.
    fn repair(&self) {
        self.world.tell(0, "the store repairs its roots");
        let mut damaged = lock(&self.damaged);
        for _ in 0..std::mem::take(&mut *lock(&self.last)) {
            let (name, bytes) = damaged.pop().expect("it was damaged");
            assert!(
                self.world.store.remove(&name) && self.world.store.create(&name, &bytes).expect("no fault")
            );
        }
    }

    /// A host is refused, and goes back. `count` roots are damaged.
    fn go_back(self: &Arc<Self>, count: usize, sleeps: bool) {
        let host = self.host();
        let before = self.world.store.names();
        match self.import(host, None, |_| None) {
            Ok(_) => return self.world.break_off(format!("host {host} opens a pool without its root")),
            Err(Error::SpoiltRoot { .. }) => {}
            // Few roots are kept.
            Err(Error::NoUberblock { .. }) if count > 1 => return self.repair(),
            Err(error) => return self.world.break_off(format!("host {host} is refused: {error}")),
        }
        if self.world.store.names() != before {
            return self.world.break_off(format!("host {host} changed something"));
        }
        let roots = self.roots();
        let mut states = lock(&self.states).clone();
        for to in &roots[1..] {
            let overtaken = Arc::new(AtomicBool::new(false));
            let imports = Arc::new(AtomicBool::new(true));
            let hook = {
                let left = Mutex::new(sleeps.then(|| self.draw(|draw| draw.below(REQUESTS_OF_IMPORT))));
                let (case, overtaken, imports) =
                    (Arc::clone(self), Arc::clone(&overtaken), Arc::clone(&imports));
                move |request: &Request| {
                    if imports.load(Ordering::Relaxed) && count_down(&mut lock(&left)) {
                        overtaken.store(true, Ordering::Relaxed);
                        let what = format!("sleeps before {:?} {}", request.operation, request.name);
                        case.world.tell(host, what);
                        case.world.model().counts.slept += 1;
                        let other = Arc::clone(&case);
                        let job = Box::new(move || other.meanwhile(count));
                        if !Env::real().tasks.spawn("another host", job).join() {
                            case.world.break_off("another host panicked".to_owned());
                        }
                    }
                    None
                }
            };
            let imported = self.import(host, Some(GoBack { from: roots[0], to: *to }), hook);
            imports.store(false, Ordering::Relaxed);
            let is_overtaken = overtaken.load(Ordering::Relaxed);
            match imported {
                Ok(pool) => {
                    self.world.tell(host, format!("went back from {:?} to {to:?}", roots[0]));
                    if is_overtaken {
                        states = lock(&self.states).clone();
                    }
                    self.judge(host, &pool, (count, *to), (&mut states, is_overtaken));
                    return;
                }
                Err(error) if is_overtaken => {
                    self.world.tell(host, format!("import failed: {error}"));
                    self.world.model().counts.fenced += 1;
                    return;
                }
                Err(error) if error.is_of_root() && count > 1 => {
                    self.world.tell(host, format!("cannot go back to {to:?}: {error}"));
                }
                Err(error) => {
                    return self.world.break_off(format!("host {host} cannot go back to {to:?}: {error}"));
                }
            }
        }
        match self.world.store.names() == before {
            true => self.repair(),
            false => self.world.break_off(format!("host {host} changed something")),
        }
    }

    /// Compares what a host went back to with the states that were, and changes something.
    fn judge(
        &self,
        host: u8,
        pool: &Pool,
        (count, to): (usize, RootAge),
        (states, is_overtaken): (&mut Vec<Files>, bool),
    ) {
        let found = match self.files(pool) {
            Ok(found) => found,
            Err(what) => return self.world.break_off(format!("host {host}: {what}")),
        };
        self.world.model().counts.states += 1;
        // One that was overtaken sees what was, and is told nothing.
        if !is_overtaken {
            let lost = states.iter().rev().position(|state| *state == found);
            let is_right = match count {
                1 => lost.is_some_and(|lost| lost <= 1),
                _ => lost.is_some() || lock(&self.all).contains(&found) || to < self.known_from,
            };
            if !is_right {
                let what = format!("host {host} went back to {found:?}, of {states:?}");
                return self.world.break_off(what);
            }
            lock(&self.all).push(found.clone());
            *lock(&self.states) = vec![found];
        }
        let before = lock(&self.states).clone();
        match self.change(host, pool) {
            Ok(()) if is_overtaken && !self.world.is_owner(host, pool) => {
                self.world.break_off(format!("host {host} had lost the pool, and was told a change"));
            }
            Ok(()) => self.world.model().counts.behind += 1,
            Err(error) if is_overtaken => {
                self.world.tell(host, format!("is stopped: {error}"));
                self.world.model().counts.fenced += 1;
                *lock(&self.states) = before;
            }
            Err(error) => self.world.break_off(format!("host {host} cannot write: {error}")),
        }
    }

    /// Another host comes while one goes back: it goes back as well, unless the first one has
    /// committed, and is told a change.
    fn meanwhile(self: &Arc<Self>, count: usize) {
        let host = self.host();
        match self.import(host, None, |_| None) {
            Ok(pool) => {
                self.world.tell(host, "finds a whole root");
                match self.files(&pool) {
                    Ok(found) => *lock(&self.states) = vec![found],
                    Err(what) => return self.world.break_off(format!("host {host}: {what}")),
                }
                if let Err(error) = self.change(host, &pool) {
                    self.world.break_off(format!("host {host} cannot write: {error}"));
                }
            }
            Err(Error::SpoiltRoot { .. }) => self.go_back(count, false),
            Err(error) => self.world.break_off(format!("host {host} is refused: {error}")),
        }
    }
}

/// One world.
///
/// # Errors
/// A claim that does not hold, with what the hosts did.
pub fn explore_rotten(seed: u64) -> Result<Counts, Finding> {
    let mut draw = Draw(seed);
    let mut world = World::of(base(false).0.copy(), None);
    let is_late = draw.percent(25);
    if is_late {
        world.store.settle();
    } else if draw.percent(50) {
        world.roots_kept = Some((3, draw.below(3)));
    }
    let world = Arc::new(world);
    let hosts = draw.below(3);
    {
        let mut model = world.model();
        (model.draw, model.next_writer) = (Some(draw), 1);
    }
    for _ in 0..hosts {
        live(&world, 1);
    }
    world.is_calm.store(true, Ordering::Relaxed);
    world.store.list_at_once();
    live(&world, 0);
    if world.model().broken.is_some() {
        return world.end(seed);
    }
    let durable = world.model().durable.clone();
    let (pools, _) = scan(vec![world.device(254, |_| None)]);
    let known_from = older_roots(&pools[0])[0];
    let case = Arc::new(Case {
        known_from,
        world: Arc::clone(&world),
        states: Mutex::new(vec![durable.clone()]),
        all: Mutex::new(vec![Files::new(), durable]),
        damaged: Mutex::default(),
        last: Mutex::default(),
    });
    for _ in 0..case.draw(|draw| 1 + draw.below(3)) {
        if is_late {
            world.store.settle();
        }
        case.live();
        if world.model().broken.is_some() {
            break;
        }
        let (count, sleeps) = case.draw(|draw| (if draw.percent(70) { 1 } else { 2 }, draw.percent(50)));
        // Behind two damaged roots none may be whole, and the store repairs them: not under a host
        // that sleeps.
        let sleeps = sleeps && count == 1;
        case.rot(count);
        case.go_back(count, sleeps);
        if world.model().broken.is_some() {
            break;
        }
    }
    world.store.list_at_once();
    if world.model().broken.is_none() {
        case.live();
    }
    lock(&case.damaged).iter().for_each(|(name, _)| _ = world.store.remove(name));
    world.end(seed)
}

/// Worlds of seeds from `from` on until so many states are judged, or a claim does not hold.
pub fn run_rotten(from: u64, states: u64, progress: impl Fn(&Counts)) -> (Counts, Option<Finding>) {
    run_with(from, states, progress, explore_rotten)
}
