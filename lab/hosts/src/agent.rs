//! `steadfast bench agent`: waits for a master that knows the secret, and carries out its part.

use crate::link::{self, MasterId, Receiver};
use crate::message::{Order, Word};
use crate::worker::{self, Desk};
use crate::{Error, Secret};
use rustls::ServerConfig;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

/// Connections that have not proved anything yet.
const STRANGERS_MAX: usize = 16;
/// How long a master waits for the one before it to be gone.
const LEAVING: Duration = Duration::from_secs(3);
/// How often the stop flag is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A listening agent.
pub struct Agent {
    listener: TcpListener,
    config: Arc<ServerConfig>,
    secret: Arc<Secret>,
    /// The master that is being served, and how many connections it has: one for each of its
    /// clients here.
    busy: Arc<Mutex<Option<(MasterId, usize)>>>,
    strangers: Arc<AtomicUsize>,
}

impl Agent {
    /// Listens at ADDRESS:PORT.
    ///
    /// # Errors
    /// When the address cannot be used.
    pub fn listen(address: &str, secret: Secret) -> Result<Agent, Error> {
        let refused = |e: std::io::Error| {
            Error::Address(format!(
                "no agent can listen at {address}: {e}; name another with --listen ADDRESS:PORT."
            ))
        };
        let listener = TcpListener::bind(address).map_err(refused)?;
        listener.set_nonblocking(true).map_err(refused)?;
        Ok(Agent {
            listener,
            config: link::server()?,
            secret: Arc::new(secret),
            busy: Arc::default(),
            strangers: Arc::default(),
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> Result<SocketAddr, Error> {
        Ok(self.listener.local_addr()?)
    }
}

/// Serves masters, one at a time, until `stop` becomes true. `say`: lines for the operator.
pub fn serve(agent: &Agent, stop: &AtomicBool, say: &(dyn Fn(&str) + Sync)) {
    std::thread::scope(|scope| {
        while !stop.load(Relaxed) {
            let Ok((socket, peer)) = agent.listener.accept() else {
                // Nobody there, or somebody who left while we looked.
                std::thread::sleep(LOOK);
                continue;
            };
            if agent.strangers.fetch_add(1, Relaxed) >= STRANGERS_MAX {
                agent.strangers.fetch_sub(1, Relaxed);
                continue;
            }
            let started = std::thread::Builder::new()
                .name("agent".into())
                .spawn_scoped(scope, move || visitor(agent, socket, peer, stop, say));
            if let Err(error) = started {
                agent.strangers.fetch_sub(1, Relaxed);
                say(&format!("The connection from {peer} was closed: no thread can be started: {error}."));
            }
        }
    });
}

/// Gives the agent back to the next master, however this one ends.
struct Free<'a>(&'a Agent);

impl<'a> Free<'a> {
    /// One more connection of this master, if no other is being served.
    fn take(agent: &'a Agent, master: &MasterId) -> Option<Free<'a>> {
        let mut busy = agent.busy.lock().unwrap_or_else(PoisonError::into_inner);
        let (served, count) = busy.get_or_insert((*master, 0));
        (served == master).then(|| {
            *count += 1;
            Free(agent)
        })
    }
}

impl Drop for Free<'_> {
    fn drop(&mut self) {
        let mut busy = self.0.busy.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, count)) = busy.as_mut() {
            *count -= 1;
        }
        busy.take_if(|(_, count)| *count == 0);
    }
}

fn visitor(
    agent: &Agent,
    socket: TcpStream,
    peer: SocketAddr,
    stop: &AtomicBool,
    say: &(dyn Fn(&str) + Sync),
) {
    let mut mine = None;
    let busy = |master: &MasterId| {
        // One that has just ended may not have left yet.
        let begun = Instant::now();
        loop {
            mine = Free::take(agent, master);
            if mine.is_some() {
                return None;
            }
            if begun.elapsed() > LEAVING || stop.load(Relaxed) {
                return Some("the agent works for another master; wait until it is done.");
            }
            std::thread::sleep(LOOK);
        }
    };
    let accepted = socket
        .set_nonblocking(false)
        .map_err(Error::from)
        .and_then(|()| link::accept(socket, agent.config.clone(), &agent.secret, busy));
    agent.strangers.fetch_sub(1, Relaxed);
    match accepted {
        Ok(receiver) => {
            say(&format!("A master at {peer} is connected."));
            let why = session(receiver, stop);
            say(&format!("The connection to the master at {peer} ended: {why}"));
        }
        Err(error) => say(&format!("The connection from {peer} was refused: {error}")),
    }
    drop(mine);
}

/// Everything for one master; why it ended.
fn session(mut receiver: Receiver, stop: &AtomicBool) -> String {
    let link = receiver.link.clone();
    let desk = Desk::default();
    let (sender, orders) = mpsc::channel();
    let listening = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let (desk, link, listening) = (&desk, &link, &listening);
        scope.spawn(move || {
            worker::work(desk, &orders, &|word| {
                // If the master is gone, the thread that listens reports it.
                let _ = link.send(&word);
            });
            link.close();
        });
        scope.spawn(move || {
            while listening.load(Relaxed) {
                if stop.load(Relaxed) {
                    link.close();
                    break;
                }
                std::thread::sleep(LOOK);
            }
        });
        let why = loop {
            match receiver.next::<Order>(&Word::Alive) {
                Ok(order) => {
                    if let Some(order) = desk.hear(order)
                        && sender.send(order).is_err()
                    {
                        break "internal error in the work; please report it.".to_string();
                    }
                }
                Err(Error::Io(error)) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                    break "it has closed the connection.".to_string();
                }
                Err(error) => break error.to_string(),
            }
        };
        desk.leave();
        drop(sender);
        link.close();
        listening.store(false, Relaxed);
        why
    })
}
