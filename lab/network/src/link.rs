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
    rate: Option<u64>,
    /// When the last byte will have entered the wire.
    free: Mutex<Instant>,
}

impl Way {
    fn new(conditions: Conditions) -> Way {
        Way { delay: conditions.round_trip / 2, rate: conditions.rate, free: Mutex::new(Instant::now()) }
    }

    /// When bytes that came at `now` leave.
    fn due(&self, bytes: usize, now: Instant) -> Instant {
        let Some(rate) = self.rate else { return now + self.delay };
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        *free = (*free).max(now) + Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        *free + self.delay
    }
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    conditions: Conditions,
    up: Way,
    down: Way,
    tally: Tally,
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
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("link")
            .enable_all()
            .build()?;
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0)))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            conditions,
            up: Way::new(conditions),
            down: Way::new(conditions),
            tally: Tally::new(),
        });
        runtime.spawn(accept(listener, Arc::clone(&shared)));
        Ok(Link { shared, address, runtime: Some(runtime) })
    }

    /// Its socket.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
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
    // The handshake.
    tokio::time::sleep(shared.conditions.round_trip).await;
    let Ok(store) = TcpStream::connect(shared.upstream).await else { return };
    let _ = store.set_nodelay(true);
    let (from_client, to_client) = client.into_split();
    let (from_store, to_store) = store.into_split();
    let exchange = Exchange::default();
    let (of_requests, of_answers) = (Scanner::of_requests(), Scanner::of_answers());
    let losses = |direction| Losses::of(shared.conditions.loss, number, direction);
    let up = watch_requests(&shared.tally, &exchange, of_requests);
    let up = pass(from_client, to_store, (&shared.up, losses(Direction::Up)), up);
    let down = watch_answers(&shared.tally, &exchange, of_answers);
    let down = pass(from_store, to_client, (&shared.down, losses(Direction::Down)), down);
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
        while let Some((due, piece)) = pieces.recv().await {
            tokio::time::sleep_until(due.into()).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    };
    tokio::join!(read, write);
}
