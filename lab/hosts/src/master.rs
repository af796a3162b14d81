//! The master: orders parts of each run, and lays what comes back together.

use crate::link::{self, Link};
use crate::message::{Begin, Cpu, Done, Kind, Order, Stretch, Word, over_hosts};
use crate::part::{Part, parts};
use crate::worker::{self, Desk};
use crate::{Error, Secret};
use std::collections::{HashMap, VecDeque};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant, SystemTime};
use steadfast_lab_params::{AGENT_PORT, DataLimit, Host, Operation, Plan, Run, Sd, Work};
use steadfast_lab_workload::histogram::Histogram;
use steadfast_lab_workload::{
    Counter, Crew, Event, Figures, Group, Groups, Interval, Line, Observer, Options, Order as Monitor,
    RunResult, Share, has_percentile, monitor_order,
};

/// A host that answers at all answers so soon.
const CONNECT: Duration = Duration::from_secs(10);
/// How often the stop flag is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long hosts that were told to end a run may take, beyond what is left of an operation.
const FAREWELL: Duration = Duration::from_secs(30);

/// Whether a plan needs more than this process.
pub fn needed(plan: &Plan) -> bool {
    plan.hosts.len() > 1 || plan.hosts.iter().any(|host| !host.is_here())
}

/// A message of a host.
enum Heard {
    Word(Word),
    Gone(String),
}

/// How a host is told.
enum Way {
    /// An agent.
    There(Arc<Link>),
    /// A thread of this process.
    Here(Arc<Desk>, mpsc::Sender<Order>),
}

struct Member {
    name: String,
    /// For the operator.
    at: String,
    way: Way,
    gone: Option<String>,
}

impl Member {
    fn tell(&mut self, order: Order) {
        let told = match &self.way {
            Way::There(link) => link.send(&order).map_err(|e| e.to_string()),
            Way::Here(desk, orders) => match desk.hear(order) {
                Some(order) => {
                    orders.send(order).map_err(|_| "internal error: its thread has ended".to_string())
                }
                None => Ok(()),
            },
        };
        if let Err(why) = told {
            self.gone.get_or_insert(why);
        }
    }

    fn refused(&self, why: &str) -> steadfast_lab_workload::Error {
        steadfast_lab_workload::Error::Start(format!("host={} ({}): {why}", self.name, self.at))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        match &self.way {
            Way::There(link) => link.close(),
            Way::Here(desk, _) => desk.leave(),
        }
    }
}

/// All hosts of a plan, connected.
pub struct Hosts<'a> {
    plan: &'a Plan,
    options: &'a Options,
    stop: &'a AtomicBool,
    members: Vec<Member>,
    inbox: mpsc::Receiver<(usize, Heard)>,
    /// Of the run.
    number: u32,
    compared: Option<u64>,
    /// How often all runs have begun.
    rounds: u64,
}

impl<'a> Hosts<'a> {
    /// Connects the agents of a plan, in its order. `secret` is asked for where there is one.
    ///
    /// # Errors
    /// When an agent does not answer, refuses, or does not know the secret.
    pub fn connect(
        plan: &'a Plan,
        options: &'a Options,
        stop: &'a AtomicBool,
        secret: impl FnOnce() -> Result<Secret, Error>,
    ) -> Result<Hosts<'a>, Error> {
        let (sender, inbox) = mpsc::channel();
        let secret = if plan.hosts.iter().any(|host| !host.is_here()) { Some(secret()?) } else { None };
        let config = link::client()?;
        let mut master = link::MasterId::default();
        crate::secret::random(&mut master)?;
        let mut members = Vec::new();
        for (at, host) in plan.hosts.iter().enumerate() {
            let sender = sender.clone();
            members.push(match &secret {
                Some(secret) if !host.is_here() => {
                    let port = host.port.or(plan.general.port).unwrap_or(AGENT_PORT);
                    let (socket, address) = reach(host, port)?;
                    let mut receiver =
                        link::connect(socket, config.clone(), secret, &master).map_err(|error| {
                            Error::Refused(format!("host={} ({address}): {error}", host.name))
                        })?;
                    let link = receiver.link.clone();
                    std::thread::spawn(move || {
                        let why = loop {
                            match receiver.next::<Word>(&Order::Alive) {
                                Ok(word) => {
                                    if sender.send((at, Heard::Word(word))).is_err() {
                                        return;
                                    }
                                }
                                Err(Error::Io(error))
                                    if error.kind() == std::io::ErrorKind::UnexpectedEof =>
                                {
                                    break "it has closed the connection".to_string();
                                }
                                Err(error) => break error.to_string(),
                            }
                        };
                        receiver.link.close();
                        let _ = sender.send((at, Heard::Gone(why)));
                    });
                    Member { name: host.name.clone(), at: address, way: Way::There(link), gone: None }
                }
                _ => {
                    let desk = Arc::new(Desk::default());
                    let (orders, work) = mpsc::channel();
                    let own = desk.clone();
                    std::thread::spawn(move || {
                        worker::work(&own, &work, &|word| {
                            let _ = sender.send((at, Heard::Word(word)));
                        });
                        let _ = sender.send((at, Heard::Gone("internal error: its thread has ended".into())));
                    });
                    let way = Way::Here(desk, orders);
                    Member { name: host.name.clone(), at: "this machine".into(), way, gone: None }
                }
            });
        }
        Ok(Hosts { plan, options, stop, members, inbox, number: 0, compared: None, rounds: 0 })
    }

    /// The next message, if one comes soon.
    fn hear(&mut self) -> Option<(usize, Word)> {
        match self.inbox.recv_timeout(LOOK).ok()? {
            (_, Heard::Word(Word::Alive)) => None,
            (at, Heard::Word(word)) => Some((at, word)),
            (at, Heard::Gone(why)) => {
                self.members[at].gone.get_or_insert(why);
                None
            }
        }
    }

    /// The answers of these hosts to something that is no run.
    fn answers(&mut self, asked: &[usize]) -> Result<Vec<(usize, Word)>, steadfast_lab_workload::Error> {
        let mut out: Vec<(usize, Word)> = Vec::new();
        while out.len() < asked.len() {
            match self.hear() {
                Some((at, Word::Refused(why))) => return Err(self.members[at].refused(&why)),
                Some((at, word @ (Word::Begun | Word::Short(_)))) => out.push((at, word)),
                _ => {}
            }
            let missing = asked.iter().find(|at| {
                self.members[**at].gone.is_some() && !out.iter().any(|(answered, _)| answered == *at)
            });
            if let Some(at) = missing {
                return Err(self.members[*at].refused(&gone(&self.members[*at])));
            }
            if self.stop.load(Relaxed) {
                return Err(steadfast_lab_workload::Error::Start("Stopped before the first run.".into()));
            }
        }
        Ok(out)
    }
}

/// Why a member is gone.
fn gone(member: &Member) -> String {
    let why = member.gone.as_deref().unwrap_or_default();
    format!("Slave {}-0 prematurely terminated.\nhost={} ({}): {why}", member.name, member.name, member.at)
}

/// A connection to an agent.
fn reach(host: &Host, port: u16) -> Result<(TcpStream, String), Error> {
    let address = format!("{}:{port}", host.system);
    let refused = |why: String| {
        Error::Address(format!(
            "{}: host={}: no agent answers at {address}: {why}; start one there: steadfast bench agent --listen ADDRESS:{port} --secret FILE.",
            host.place, host.name
        ))
    };
    let found = (host.system.as_str(), port).to_socket_addrs().map_err(|e| refused(e.to_string()))?;
    let mut why = "the name has no address".to_string();
    for one in found {
        match TcpStream::connect_timeout(&one, CONNECT) {
            Ok(socket) => return Ok((socket, one.to_string())),
            Err(error) => why = error.to_string(),
        }
    }
    Err(refused(why))
}

impl Crew for Hosts<'_> {
    fn begin(&mut self) -> Result<(), steadfast_lab_workload::Error> {
        let all: Vec<usize> = (0..self.members.len()).collect();
        for (at, host) in self.plan.hosts.iter().enumerate() {
            let mut general = self.plan.general.clone();
            // Parameters of the whole run are carried out here.
            general.monitor = None;
            general.startcmd = Default::default();
            general.endcmd = Default::default();
            // Hosts that did the same in the same order would be one host many times over.
            general.seed = general.seed.map(|seed| seed.wrapping_add(at as u64));
            let watch = if host.is_here() { self.options.watch.clone() } else { Vec::new() };
            self.members[at].tell(Order::Begin(Box::new(Begin {
                general,
                format: self.plan.format.clone(),
                seed: self.options.seed.wrapping_add(at as u64),
                // Neither hosts nor rounds draw the same.
                draws: self.options.draws.wrapping_add(self.rounds << 32).wrapping_add(at as u64),
                engine: self.options.engine.into(),
                from_arrival: self.options.from_arrival,
                watch,
            })));
        }
        self.rounds += 1;
        self.answers(&all).map(drop)
    }

    fn short(&mut self, sds: &[Sd]) -> Result<Vec<(String, Sd)>, steadfast_lab_workload::Error> {
        let mut asked = Vec::new();
        for at in 0..self.members.len() {
            let name = self.members[at].name.clone();
            let there = |sd: &Sd| Sd { lun: sd.lun_on(&name).to_string(), luns: Vec::new(), ..sd.clone() };
            // A storage is looked at where a workload uses it.
            let used = |sd: &&Sd| sd.is_on(&name) && uses(self.plan, sd, &name);
            let mine: Vec<Sd> = sds.iter().filter(used).map(there).collect();
            if !mine.is_empty() {
                asked.push(at);
                self.members[at].tell(Order::Short(mine));
            }
        }
        let mut out = Vec::new();
        let mut answers = self.answers(&asked)?;
        answers.sort_by_key(|(at, _)| *at);
        for (at, word) in answers {
            if let Word::Short(short) = word {
                out.extend(short.into_iter().map(|sd| (self.members[at].name.clone(), sd)));
            }
        }
        Ok(out)
    }

    fn run(
        &mut self,
        run: &Run,
        weights: Option<&[f64]>,
        observer: &mut Observer<'_>,
    ) -> Result<RunResult, steadfast_lab_workload::Error> {
        let names: Vec<String> = self.members.iter().map(|member| member.name.clone()).collect();
        self.number += 1;
        let parts = parts(run, weights, &names);
        let machine = |member: &Member| self.members.iter().position(|other| other.at == member.at);
        let machines = self.members.iter().filter_map(machine).collect();
        let mut work = Gathering::new(run, self.number, &parts, names, machines);
        for Part { host, run, weights } in parts {
            let order = Order::Run { number: self.number, run: Box::new(run), weights: Some(weights) };
            self.members[host].tell(order);
        }
        self.prepare(&mut work, observer)?;
        let started = SystemTime::now();
        work.result.started = started;
        observer(&Event::Started { run, started });
        for at in work.open() {
            self.members[at].tell(Order::Go(self.number));
        }
        self.follow(&mut work, observer);
        let (result, compared) = work.finish(&self.members, self.stop);
        if let Some(count) = compared {
            self.compared = Some(self.compared.unwrap_or(0) + count);
        }
        Ok(result)
    }

    fn compared(&mut self) -> Option<u64> {
        self.plan.general.validate?;
        Some(self.compared.take().unwrap_or(0))
    }
}

/// Whether a workload uses a storage on a host.
fn uses(plan: &Plan, sd: &Sd, host: &str) -> bool {
    plan.runs.iter().any(|run| match &run.work {
        Work::Raw(work) => work
            .wds
            .iter()
            .any(|(wd, sds)| wd.is_on(host) && sds.iter().any(|at| work.sds[*at].name == sd.name)),
        Work::Files(_) => false,
    })
}

impl Hosts<'_> {
    /// Waits until all hosts are ready.
    fn prepare(
        &mut self,
        work: &mut Gathering<'_>,
        observer: &mut Observer<'_>,
    ) -> Result<(), steadfast_lab_workload::Error> {
        let mut refused = None;
        while refused.is_none() && !work.all(|host| host.ready) {
            if let Some((at, word)) = self.hear() {
                match word {
                    Word::Refused(why) => {
                        work.hosts[at].take_part = false;
                        refused = Some(self.members[at].refused(&why));
                    }
                    Word::Ready { number, kinds, sizes } if number == work.number => {
                        work.hosts[at].ready = true;
                        work.ready(at, &kinds, &sizes);
                    }
                    word => self.pass(work, at, word, observer),
                }
            }
            let lost = (0..self.members.len())
                .find(|at| work.hosts[*at].take_part && self.members[*at].gone.is_some());
            if let Some(at) = lost {
                work.hosts[at].take_part = false;
                refused = Some(steadfast_lab_workload::Error::Start(gone(&self.members[at])));
            }
        }
        let Some(error) = refused else { return Ok(()) };
        // The others have prepared for nothing; what they say about it is of no interest.
        self.end(work);
        let until = Instant::now() + FAREWELL;
        while !work.open().is_empty() && Instant::now() < until {
            if let Some((at, Word::Done { .. } | Word::Refused(_))) = self.hear() {
                work.hosts[at].take_part = false;
            }
            for (host, member) in work.hosts.iter_mut().zip(&self.members) {
                host.take_part &= member.gone.is_none();
            }
        }
        Err(error)
    }

    /// Tells all hosts to end the run, once.
    fn end(&mut self, work: &mut Gathering<'_>) {
        if !std::mem::replace(&mut work.ending, true) {
            for at in work.open() {
                self.members[at].tell(Order::End(work.number));
            }
        }
    }

    /// From the start of a run to its end on all hosts.
    fn follow(&mut self, work: &mut Gathering<'_>, observer: &mut Observer<'_>) {
        let mut farewell = None;
        loop {
            if let Some((at, word)) = self.hear() {
                match word {
                    Word::Interval { number, interval } if number == work.number => {
                        work.hosts[at].waiting.push_back(interval);
                    }
                    Word::Done { number, done } if number == work.number => {
                        if let Some(failure) = &done.failure {
                            let name = &self.members[at].name;
                            work.fail(format!("host={name}: {failure}"));
                        }
                        work.hosts[at].done = Some(*done);
                    }
                    Word::Refused(why) => {
                        work.fail(format!("host={}: {why}", self.members[at].name));
                        work.hosts[at].lost = true;
                    }
                    word => self.pass(work, at, word, observer),
                }
            }
            for (host, member) in work.hosts.iter_mut().zip(&self.members) {
                if host.take_part && host.done.is_none() && !host.lost && member.gone.is_some() {
                    host.lost = true;
                    work.result.failure.get_or_insert_with(|| {
                        format!("{}; what was measured until then is in the reports.", gone(member))
                    });
                }
            }
            while let Some(stretches) = work.whole_interval() {
                work.interval(stretches, observer);
                if !work.ending
                    && let Some(order) = self.plan.general.monitor.as_deref().and_then(monitor_order)
                {
                    observer(&Event::Notice(order.sentence()));
                    work.result.ended_all |= order == Monitor::EndAll;
                    self.end(work);
                }
            }
            let limit = self.plan.general.data_errors.count.max(1);
            if work.errors >= limit {
                work.fail(format!(
                    "'data_errors={limit}' requested. Abort rd={} after last error.",
                    work.result.run.label
                ));
            }
            if work.result.failure.is_some() || self.stop.load(Relaxed) || work.limit_reached() {
                self.end(work);
            }
            if work.open().is_empty() {
                return;
            }
            if work.ending {
                let until = *farewell.get_or_insert_with(|| Instant::now() + FAREWELL);
                if Instant::now() > until {
                    for at in work.open() {
                        work.hosts[at].lost = true;
                        let name = self.members[at].name.clone();
                        self.members[at]
                            .gone
                            .get_or_insert("it did not stop the run when it was told to".into());
                        work.fail(format!("host={name} did not stop the run when it was told to."));
                    }
                }
            }
        }
    }

    /// Handles messages that may come at any time of a run.
    fn pass(&mut self, work: &mut Gathering<'_>, at: usize, word: Word, observer: &mut Observer<'_>) {
        let name = &self.members[at].name;
        match word {
            Word::Message(text) => observer(&Event::Notice(&format!("{name}-0: {text}"))),
            Word::Notice(text) => observer(&Event::Notice(&format!("host={name}: {text}"))),
            Word::Error(error) => {
                work.errors += 1;
                let error = error.of(name);
                observer(&Event::Error(&error));
            }
            Word::Reached { number, fsd, step } if number == work.number => {
                let here = work.met.entry((fsd.clone(), step)).or_default();
                here.push(at);
                if here.len() == work.sharing(&fsd) {
                    for at in work.met.remove(&(fsd.clone(), step)).unwrap_or_default() {
                        self.members[at].tell(Order::Meet { number, fsd: fsd.clone(), step });
                    }
                }
            }
            // Left over from a run before this one.
            _ => {}
        }
    }
}

/// One host in one run.
#[derive(Default)]
struct Hand {
    take_part: bool,
    ready: bool,
    /// Where its groups are among all.
    places: Vec<usize>,
    /// Intervals that wait for those of others.
    waiting: VecDeque<Stretch>,
    done: Option<Done>,
    lost: bool,
    /// Its counts in the intervals that count.
    measured: Groups,
}

/// A run, as it comes together.
struct Gathering<'a> {
    number: u32,
    /// Name of each host.
    names: Vec<String>,
    /// The first host on the machine of each.
    machines: Vec<usize>,
    hosts: Vec<Hand>,
    /// Files of each host's part.
    parts: Vec<(usize, Vec<String>, HashMap<String, String>)>,
    /// Storage and file name on its host, with its bytes: hosts that share one have it once.
    sizes: HashMap<(String, String), u64>,
    kinds: Vec<Kind>,
    met: HashMap<(String, usize), Vec<usize>>,
    ending: bool,
    errors: u64,
    at: u32,
    result: RunResult,
    run: &'a Run,
}

impl<'a> Gathering<'a> {
    fn new(
        run: &'a Run,
        number: u32,
        parts: &[Part],
        names: Vec<String>,
        machines: Vec<usize>,
    ) -> Gathering<'a> {
        let warm = u32::try_from(run.warmup / run.interval.max(1)).unwrap_or(u32::MAX);
        let first_measured = warm.max(1).saturating_add(1);
        let mut shares: Vec<Hand> = machines.iter().map(|_| Hand::default()).collect();
        parts.iter().for_each(|part| shares[part.host].take_part = true);
        let describe = |part: &Part| match &part.run.work {
            Work::Raw(work) => {
                let luns = work.sds.iter().map(|sd| (sd.name.clone(), sd.lun.clone())).collect();
                (part.host, Vec::new(), luns)
            }
            Work::Files(work) => {
                (part.host, work.fsds.iter().map(|fsd| fsd.name.clone()).collect(), HashMap::new())
            }
        };
        Gathering {
            number,
            names,
            machines,
            hosts: shares,
            parts: parts.iter().map(describe).collect(),
            sizes: HashMap::new(),
            kinds: Vec::new(),
            met: HashMap::new(),
            ending: false,
            errors: 0,
            at: 0,
            result: RunResult {
                run: run.clone(),
                started: SystemTime::now(),
                seconds: 0.0,
                lines: Vec::new(),
                first_measured,
                measured: Groups::default(),
                measured_cpu: Default::default(),
                whole: Groups::default(),
                whole_cpu: Default::default(),
                hosts: Vec::new(),
                counters: Vec::new(),
                ended_all: false,
                notes: Vec::new(),
                errors: 0,
                failure: None,
                stopped: false,
            },
            run,
        }
    }

    /// Hosts that have not ended this run yet.
    fn open(&self) -> Vec<usize> {
        let open = self.hosts.iter().enumerate();
        open.filter(|(_, host)| host.take_part && host.done.is_none() && !host.lost)
            .map(|(at, _)| at)
            .collect()
    }

    fn all(&self, what: impl Fn(&Hand) -> bool) -> bool {
        self.hosts.iter().filter(|host| host.take_part).all(what)
    }

    /// Does more than one host take part?
    fn several(&self) -> bool {
        self.hosts.iter().filter(|host| host.take_part).count() > 1
    }

    fn fail(&mut self, sentence: String) {
        self.result.failure.get_or_insert(sentence);
    }

    /// How many hosts share a tree.
    fn sharing(&self, fsd: &str) -> usize {
        self.parts.iter().filter(|(_, fsds, _)| fsds.iter().any(|name| name == fsd)).count()
    }

    fn ready(&mut self, at: usize, kinds: &[Kind], sizes: &[(String, u64)]) {
        for kind in kinds {
            let place = self.kinds.iter().position(|known| known == kind).unwrap_or_else(|| {
                self.kinds.push(kind.clone());
                self.kinds.len() - 1
            });
            self.hosts[at].places.push(place);
        }
        let luns = self.parts.iter().find(|(host, _, _)| *host == at).map(|(_, _, luns)| luns);
        for (name, size) in sizes {
            let lun = luns.and_then(|luns| luns.get(name)).cloned().unwrap_or_default();
            let known = self.sizes.entry((name.clone(), lun)).or_default();
            *known = (*known).max(*size);
        }
    }

    /// The next interval, once every host that may still have one has sent it.
    fn whole_interval(&mut self) -> Option<Vec<(usize, Stretch)>> {
        let next = self.at + 1;
        let missing = self
            .hosts
            .iter()
            .any(|host| host.take_part && host.done.is_none() && !host.lost && host.waiting.is_empty());
        if missing {
            return None;
        }
        let mut out = Vec::new();
        for (at, host) in self.hosts.iter_mut().enumerate() {
            if host.waiting.front().is_some_and(|stretch| stretch.at <= next)
                && let Some(stretch) = host.waiting.pop_front()
            {
                out.push((at, stretch));
            }
        }
        if out.is_empty() {
            // A host that does not count from one is not waited for.
            self.hosts.iter_mut().for_each(|host| host.waiting.clear());
            return None;
        }
        Some(out)
    }

    /// Nothing, in all its groups.
    fn nothing(&self) -> Groups {
        Groups(self.kinds.iter().map(empty).collect())
    }

    /// Nothing, in the groups of one host, in its own order.
    fn nothing_of(&self, at: usize) -> Groups {
        Groups(self.hosts[at].places.iter().map(|place| empty(&self.kinds[*place])).collect())
    }

    fn interval(&mut self, stretches: Vec<(usize, Stretch)>, observer: &mut Observer<'_>) {
        self.at += 1;
        let number = self.at;
        let warmup = number < self.result.first_measured;
        let mut groups = self.nothing();
        let (mut cpus, mut seconds): (Vec<(usize, Cpu)>, f64) = (Vec::new(), 0.0);
        let mut shares = Vec::new();
        for (at, stretch) in stretches {
            cpus.push((self.machines[at], stretch.cpu));
            seconds = seconds.max(stretch.seconds);
            let mut own = self.nothing_of(at);
            for (kind, times) in &stretch.times {
                let place = self.hosts[at].places.get(*kind as usize).copied();
                let group = place.and_then(|place| groups.0.get_mut(place));
                // Times that fit no group are not counted.
                let (Some(group), Some(times)) = (group, times.histogram()) else { continue };
                group.times.merge(&times);
                own.0[*kind as usize].times.merge(&times);
            }
            if !warmup {
                self.hosts[at].measured.merge(&own);
            }
            if self.several() {
                let cpu = over_hosts(&[((), stretch.cpu)]);
                shares.push(Share { host: self.names[at].clone(), groups: own, cpu });
            }
        }
        let mut operations = Vec::new();
        for operation in Operation::ALL {
            let times = groups.operation(operation);
            if times.count > 0 {
                operations.push((operation, Figures::from(&times)));
            }
        }
        let line = Line {
            number,
            requested: Figures::from(&groups.requested()),
            operations,
            cpu: over_hosts(&cpus),
            seconds: seconds.clamp(0.0, self.run.interval as f64),
        };
        self.result.whole.merge(&groups);
        if !warmup {
            self.result.measured.merge(&groups);
        }
        self.result.lines.push(line.clone());
        observer(&Event::Interval {
            run: self.run,
            interval: &Interval { line, groups, warmup, hosts: shares },
        });
    }

    fn limit_reached(&self) -> bool {
        let limits = [self.run.maxdata, self.run.maxdataread, self.run.maxdatawritten];
        if limits.iter().all(Option::is_none) {
            return false;
        }
        let size: u64 = self.sizes.values().fold(0, |sum, size| sum.saturating_add(*size));
        let bytes = |operation| self.result.whole.operation(operation).bytes;
        let (read, written) = (bytes(Operation::Read), bytes(Operation::Write));
        limits.iter().zip([read + written, read, written]).any(|(limit, bytes)| match limit {
            Some(DataLimit::Bytes(limit)) => bytes >= *limit,
            Some(DataLimit::Times(times)) => bytes as f64 >= times * size as f64,
            None => false,
        })
    }

    fn finish(mut self, members: &[Member], stop: &AtomicBool) -> (RunResult, Option<u64>) {
        let nothing = self.nothing();
        let seconds = self.result.measured_seconds();
        let several = self.several();
        let result = &mut self.result;
        for groups in [&mut result.measured, &mut result.whole] {
            if groups.0.is_empty() {
                *groups = nothing.clone();
            }
        }
        let done: Vec<(&Member, &Hand)> =
            members.iter().zip(&self.hosts).filter(|(_, share)| share.take_part).collect();
        let mut counters: Vec<Counter> = Vec::new();
        let mut compared = None;
        for (member, share) in &done {
            if let Some(done) = &share.done {
                result.seconds = result.seconds.max(done.seconds);
                result.errors += done.errors;
                result.notes.extend(done.notes.iter().map(|note| format!("host={}: {note}", member.name)));
                for (name, count) in &done.counters {
                    match counters.iter_mut().find(|counter| counter.name == name) {
                        Some(counter) => counter.count += count,
                        None => counters.extend(Counter::named(name, *count)),
                    }
                }
                if let Some(count) = done.compared {
                    compared = Some(compared.unwrap_or(0) + count);
                }
            }
            if !several {
                continue;
            }
            let (times, per) = (share.measured.requested(), seconds.max(1.0));
            if times.count > 0 {
                let p99 = match has_percentile(99.0, times.count) {
                    true => format!(", p99 {:.3} ms", times.percentile_ms(99.0)),
                    false => String::new(),
                };
                result.notes.push(format!(
                    "host={}: {:.1} operations a second, {:.2} MiB a second, {:.3} ms{p99}",
                    member.name,
                    times.count as f64 / per,
                    times.bytes as f64 / per / f64::from(1u32 << 20),
                    times.mean_ms(),
                ));
            }
            let cpu = share.done.as_ref().map(|done| done.measured_cpu).unwrap_or_default();
            result.hosts.push(Share {
                host: member.name.clone(),
                groups: share.measured.clone(),
                cpu: over_hosts(&[((), cpu)]),
            });
        }
        let of = |field: fn(&Done) -> Cpu| -> Vec<(&str, Cpu)> {
            done.iter()
                .filter_map(|(member, share)| Some((member.at.as_str(), field(share.done.as_ref()?))))
                .collect()
        };
        result.measured_cpu = over_hosts(&of(|done| done.measured_cpu));
        result.whole_cpu = over_hosts(&of(|done| done.whole_cpu));
        result.errors = result.errors.max(self.errors);
        if result.seconds == 0.0 {
            result.seconds = result.lines.iter().map(|line| line.seconds).sum();
        }
        result.counters = counters;
        result.stopped = result.failure.is_none() && stop.load(Relaxed);
        (self.result, compared)
    }
}

/// A group in which nothing has happened yet.
fn empty(kind: &Kind) -> Group {
    Group {
        storage: kind.storage.clone(),
        workload: kind.workload.clone(),
        operation: kind.operation,
        requested: kind.requested,
        times: Histogram::default(),
    }
}
