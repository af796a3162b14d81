//! Carries out the orders of a master: on an agent, and on a thread of the master itself.
//!
//! Two threads: one hears every order when it comes and notes on the desk what concerns the run
//! that is under way; the other does the work, one order after the other, and looks at the desk
//! where it has to wait.

use crate::message::{Begin, Done, Order, Word, kinds};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;
use steadfast_lab_params::{Run, TimeoutThen};
use steadfast_lab_workload::{Crew, Event, Options, Session};

/// How often a waiting worker looks whether the run is over.
const LOOK: Duration = Duration::from_millis(20);

/// State of the run under way.
#[derive(Default)]
pub(crate) struct Desk {
    stop: AtomicBool,
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    number: u32,
    begun: bool,
    /// Trees and the steps of their formats at which all have met.
    met: Vec<(String, usize)>,
    /// The master is gone.
    gone: bool,
}

impl Desk {
    /// Notes an order. Gives it back if it is one to be worked at.
    pub(crate) fn hear(&self, order: Order) -> Option<Order> {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        match order {
            Order::Alive => return None,
            Order::Run { number, .. } => {
                *table = Table { number, gone: table.gone, ..Table::default() };
                self.stop.store(table.gone, Relaxed);
                return Some(order);
            }
            Order::Go(number) => table.begun |= number == table.number,
            Order::Meet { number, fsd, step } if number == table.number => table.met.push((fsd, step)),
            Order::End(number) if number == table.number => self.stop.store(true, Relaxed),
            Order::Meet { .. } | Order::End(_) => {}
            order => return Some(order),
        }
        self.changed.notify_all();
        None
    }

    /// The master is gone: whatever is under way ends.
    pub(crate) fn leave(&self) {
        self.table.lock().unwrap_or_else(PoisonError::into_inner).gone = true;
        self.stop.store(true, Relaxed);
        self.changed.notify_all();
    }

    /// Waits until `ready`, or until the run is over.
    fn wait(&self, ready: impl Fn(&Table) -> bool, over: impl Fn() -> bool) {
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        while !ready(&table) && !self.stop.load(Relaxed) && !over() {
            table =
                self.changed.wait_timeout(table, LOOK).map_or_else(|e| e.into_inner().0, |(table, _)| table);
        }
    }
}

/// Works at orders until no more come. `say` is called from several threads, one word at a time
/// each.
pub(crate) fn work(desk: &Desk, orders: &mpsc::Receiver<Order>, say: &(dyn Fn(Word) + Sync)) {
    let mut next = orders.recv().ok();
    while let Some(order) = next.take() {
        next = match order {
            Order::Begin(begin) => round(desk, &begin, orders, say),
            _ => {
                say(Word::Refused("an order came before the first one.".into()));
                orders.recv().ok()
            }
        };
    }
}

/// From one beginning to the next, which is given back.
fn round(
    desk: &Desk,
    begin: &Begin,
    orders: &mpsc::Receiver<Order>,
    say: &(dyn Fn(Word) + Sync),
) -> Option<Order> {
    let options = Options {
        watch: begin.watch.clone(),
        seed: begin.seed,
        draws: begin.draws,
        output: String::new(),
        engine: begin.engine.into(),
        from_arrival: begin.from_arrival,
    };
    let meet = |fsd: &str, step: usize, over: &dyn Fn() -> bool| {
        let number = desk.table.lock().unwrap_or_else(PoisonError::into_inner).number;
        say(Word::Reached { number, fsd: fsd.to_string(), step });
        desk.wait(|table| table.met.iter().any(|(name, at)| name == fsd && *at == step), over);
    };
    let foreign = begin.general.timeout.as_ref().map(|timeout| &timeout.then);
    let made = match foreign {
        Some(TimeoutThen::Script(_)) => {
            Err("timeout= with a script is not carried out on other hosts.".to_string())
        }
        _ => Session::new(&begin.general, &begin.format, &options, &desk.stop).map_err(|e| e.to_string()),
    };
    let mut session = match made {
        Ok(session) => session.meeting(&meet),
        Err(why) => {
            say(Word::Refused(why));
            return orders.recv().ok();
        }
    };
    say(Word::Begun);
    loop {
        match orders.recv().ok()? {
            Order::Short(sds) => match session.short(&sds) {
                Ok(short) => say(Word::Short(short.into_iter().map(|(_, sd)| sd).collect())),
                Err(error) => say(Word::Refused(error.to_string())),
            },
            Order::Run { number, run, weights } => {
                match one(desk, &mut session, number, &run, weights.as_deref(), say) {
                    Ok(done) => say(Word::Done { number, done: Box::new(done) }),
                    Err(why) => say(Word::Refused(why)),
                }
            }
            order => return Some(order),
        }
    }
}

fn one(
    desk: &Desk,
    session: &mut Session<'_>,
    number: u32,
    run: &Run,
    weights: Option<&[f64]>,
    say: &(dyn Fn(Word) + Sync),
) -> Result<Done, String> {
    if run.interval == 0 {
        return Err("a run without an interval.".into());
    }
    let result = session.run(run, weights, &mut |event| match event {
        Event::Ready { groups, sizes, .. } => {
            say(Word::Ready { number, kinds: kinds(groups), sizes: sizes.to_vec() });
            desk.wait(|table| table.begun, || false);
        }
        Event::Interval { interval, .. } => say(Word::Interval { number, interval: (*interval).into() }),
        Event::Message(text) => say(Word::Message((*text).to_string())),
        Event::Notice(text) => say(Word::Notice((*text).to_string())),
        Event::Error(error) => say(Word::Error((*error).into())),
        _ => {}
    });
    let result = result.map_err(|error| error.to_string())?;
    let compared = session.compared();
    Ok(Done::new(&result, compared))
}
