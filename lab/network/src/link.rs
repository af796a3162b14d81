//! The link itself: a socket that passes bytes on, later.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use crate::alarm::Alarm;
use crate::loss::{Direction, Loss, Losses};
use crate::scanner::{Event, Head, Scanner};
use crate::tally::{Counts, Kind, Slice, Tally};

/// Bytes that are passed on at once.
const PIECE: usize = 64 << 10;
/// Pieces under way in one direction of a connection: 16 MiB, more than a connection of a store
/// holds at any round trip that is played here.
const PIECES_MAX: usize = 256;

/// How long and how wide the way is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Conditions {
    /// Time of a byte there and back.
    pub round_trip: Duration,
    /// Bytes a second in each direction, all connections together; `None` sets no limit.
    pub rate: Option<u64>,
    /// Packets that are lost, and sent again; `None` loses none.
    pub loss: Option<Loss>,
}

/// One direction.
#[derive(Debug)]
struct Way {
    delay: Duration,
    wire: Mutex<Wire>,
}

/// The narrow part of a way.
#[derive(Debug)]
struct Wire {
    rate: Option<u64>,
    /// When the last byte will have entered it.
    free: Instant,
}

impl Way {
    fn new(conditions: Conditions) -> Way {
        let wire = Wire { rate: conditions.rate, free: Instant::now() };
        Way { delay: conditions.round_trip / 2, wire: Mutex::new(wire) }
    }

    fn wire(&self) -> MutexGuard<'_, Wire> {
        self.wire.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When bytes that came at `now` leave.
    fn due(&self, bytes: usize, now: Instant) -> Instant {
        let mut wire = self.wire();
        let Some(rate) = wire.rate else { return now + self.delay };
        wire.free = wire.free.max(now) + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        wire.free + self.delay
    }
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    conditions: Conditions,
    /// The ways of all connections together; `None`: each has its own.
    ways: Option<[Arc<Way>; 2]>,
    tally: Tally,
}

impl Shared {
    /// The ways of a new connection.
    fn connection(&self) -> [Arc<Way>; 2] {
        self.ways.clone().unwrap_or_else(|| ways(self.conditions))
    }
}

/// A way to a store. It ends when this is dropped, and every connection with it.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    address: SocketAddr,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Link {
    /// Opens a way to `upstream`, on a free port of this machine.
    ///
    /// # Errors
    /// This machine gives it no port or no thread.
    pub fn start(upstream: SocketAddr, conditions: Conditions) -> io::Result<Link> {
        Link::open(upstream, conditions, Some(ways(conditions)))
    }

    /// Opens a way to `upstream` on which each connection has the whole rate for itself, as if it
    /// came from a machine of its own.
    ///
    /// # Errors
    /// This machine gives it no port or no thread.
    pub fn start_each(upstream: SocketAddr, conditions: Conditions) -> io::Result<Link> {
        Link::open(upstream, conditions, None)
    }

    fn open(upstream: SocketAddr, conditions: Conditions, ways: Option<[Arc<Way>; 2]>) -> io::Result<Link> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("link")
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { upstream, conditions, ways, tally: Tally::new() });
        runtime.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Link { shared, address, runtime: Some(runtime) })
    }

    /// Its socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes a second in each direction from now on, all connections together; `None` sets no
    /// limit. Without effect where each connection has its own.
    pub fn set_rate(&self, rate: Option<u64>) {
        for way in self.shared.ways.iter().flatten() {
            way.wire().rate = rate;
        }
    }

    /// Requests and bytes so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.shared.tally.counts()
    }

    /// The same of each [`SLICE`](crate::SLICE) since the link was opened.
    #[must_use]
    pub fn slices(&self) -> Vec<Slice> {
        self.shared.tally.slices()
    }

    /// When the first slice began.
    #[must_use]
    pub fn began(&self) -> Instant {
        self.shared.tally.began()
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// There and back.
fn ways(conditions: Conditions) -> [Arc<Way>; 2] {
    [Way::new(conditions), Way::new(conditions)].map(Arc::new)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    loop {
        let Ok((client, _)) = listener.accept().await else { continue };
        tokio::spawn(carry(client, Arc::clone(&shared)));
    }
}

/// Requests of one connection that have no whole answer [link.3]: the method of each, and its round
/// trip.
#[derive(Debug, Default)]
struct Exchange(Mutex<VecDeque<(String, u64)>>);

impl Exchange {
    fn requests(&self) -> MutexGuard<'_, VecDeque<(String, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Carries one connection to its end.
async fn carry(client: TcpStream, shared: Arc<Shared>) {
    let _ = client.set_nodelay(true);
    let number = shared.tally.connected();
    let [to, back] = shared.connection();
    // The handshake.
    Alarm::of(shared.conditions.round_trip).wait_until(Instant::now() + shared.conditions.round_trip).await;
    let Ok(store) = TcpStream::connect(shared.upstream).await else { return };
    let _ = store.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_store, to_store) = store.into_split();
    let exchange = Exchange::default();
    let (of_requests, of_answers) = (Scanner::of_requests(), Scanner::of_answers());
    let losses = |direction| Losses::of(shared.conditions.loss, number, direction);
    let up = watch_requests(&shared.tally, &exchange, of_requests);
    let up = pass(from_client, to_store, (&to, losses(Direction::Up)), up);
    let down = watch_answers(&shared.tally, &exchange, of_answers);
    let down = pass(from_store, to_client, (&back, losses(Direction::Down)), down);
    tokio::join!(up, down);
    let left = exchange.requests().len();
    shared.tally.ended(left);
}

/// Bytes that pass in one direction.
struct Passing<'p> {
    bytes: &'p [u8],
    /// Packets among them that were lost, each time that they were.
    lost: u64,
    /// When they arrive.
    due: Instant,
}

fn watch_requests(tally: &Tally, exchange: &Exchange, mut scanner: Scanner) -> impl FnMut(Passing<'_>) {
    move |Passing { bytes, lost, .. }| {
        tally.up(bytes.len(), lost);
        scanner.read(bytes, &mut |_| true, &mut |event| {
            if let Event::Head(Head::Request(method, target)) = event {
                let round_trip = tally.request(Kind::of(&method, &target));
                exchange.requests().push_back((method, round_trip));
            }
        });
    }
}

fn watch_answers(tally: &Tally, exchange: &Exchange, mut scanner: Scanner) -> impl FnMut(Passing<'_>) {
    // `100 Continue` and its like stand before the answer.
    let mut is_last = false;
    move |Passing { bytes, lost, due }| {
        tally.down(bytes.len(), lost);
        let mut has_body = |status: u16| {
            let is_of_head = exchange.requests().front().is_some_and(|(method, _)| method == "HEAD");
            !(is_of_head || status < 200 || status == 204 || status == 304)
        };
        scanner.read(bytes, &mut has_body, &mut |event| match event {
            Event::Head(Head::Answer(status)) => is_last = status >= 200,
            Event::End if is_last => {
                let answered = exchange.requests().pop_front();
                if let Some((_, round_trip)) = answered {
                    tally.answered(round_trip, due);
                }
            }
            _ => {}
        });
    }
}

/// Passes one direction on until it ends.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (way, mut losses): (&Way, Losses),
    mut watch: impl FnMut(Passing<'_>),
) {
    let (send, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(PIECES_MAX);
    let read = async move {
        let mut before = Instant::now();
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            match from.read_buf(&mut piece).await {
                Ok(0) | Err(_) => return,
                Ok(count) => {
                    let loss = losses.next(count);
                    // It is missed one way later, and sent again; nothing overtakes it.
                    let late = way.delay * 2 * loss.times;
                    let due = (way.due(count, Instant::now()) + late).max(before);
                    before = due;
                    watch(Passing { bytes: &piece, lost: loss.packets, due });
                    if send.send((due, piece)).await.is_err() {
                        return;
                    }
                }
            }
        }
    };
    let write = async move {
        let mut alarm = Alarm::of(way.delay);
        while let Some((due, piece)) = pieces.recv().await {
            alarm.wait_until(due).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(ms: u64, rate: Option<u64>) -> Way {
        Way::new(Conditions { round_trip: Duration::from_millis(ms), rate, loss: None })
    }

    #[test]
    fn bytes_leave_as_fast_as_the_rate_and_no_faster() {
        let way = way(10, Some(1_000_000));
        let now = Instant::now() + Duration::from_secs(1);
        let after = |ms| now + Duration::from_millis(ms);
        // All came at once: one behind the other, each half a round trip later.
        let due: Vec<Instant> = (0..3).map(|_| way.due(10_000, now)).collect();
        assert_eq!(due, [after(15), after(25), after(35)]);
        // The wire was idle meanwhile, and idle time is not saved up.
        assert_eq!(way.due(1_000, after(100)), after(106));
        way.wire().rate = None;
        assert_eq!(way.due(1 << 30, after(100)), after(105), "without a limit only the way counts");
        way.wire().rate = Some(500_000);
        assert_eq!(way.due(1_000, after(200)), after(207));
    }

    #[test]
    fn connections_share_a_rate_or_have_it_each() {
        let conditions = Conditions { round_trip: Duration::ZERO, rate: Some(1_000_000), loss: None };
        let link = |each| {
            let upstream = SocketAddr::from(([127, 0, 0, 1], 9));
            if each { Link::start_each(upstream, conditions) } else { Link::start(upstream, conditions) }
        };
        let of_two = |link: &Link| {
            let now = Instant::now() + Duration::from_secs(1);
            let [first, second] = [(); 2].map(|()| link.shared.connection());
            assert_eq!(first[0].due(1_000, now), now + Duration::from_millis(1));
            assert_eq!(first[1].due(1_000, now), now + Duration::from_millis(1), "back is a way of its own");
            second[0].due(1_000, now) - now
        };
        assert_eq!(of_two(&link(false).unwrap()), Duration::from_millis(2));
        assert_eq!(of_two(&link(true).unwrap()), Duration::from_millis(1));
        let link = link(false).unwrap();
        link.set_rate(Some(500_000));
        let now = Instant::now() + Duration::from_secs(1);
        assert_eq!(link.shared.connection()[0].due(1_000, now), now + Duration::from_millis(2));
    }
}
