//! Shares: mounted file systems that NFS clients may use, and the server that listens for them.
//!
//! ## Invariants
//! [shares.1] An export exists only while its file system is mounted: the mount holds it.
//!      guard: `Share`
//! [shares.2] Nothing listens before something is shared.

use crate::engine::state::{Engine, ImportedPool};
use crate::program::bring_in_code;
use crate::refusal::{Code, Refusal};
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use steadfast_fuse::{IdlePolling, MountOptions};
use steadfast_mount::SWITCHES_VARIABLE;
use steadfast_nfs::finder::{self, Ports};
use steadfast_nfs::handle::{ExportId, HandleKey};
use steadfast_nfs::{
    Door, Export, Exports, LockSettings, Log, RPCBIND, Registration, Served, Server, Service,
};
use steadfast_property::ShareOptions;

/// Environment variable: address and port at which the daemon listens for NFS clients.
pub const LISTEN_VARIABLE: &str = "STEADFAST_NFS";
/// Environment variable: address and port of the port mapper, or `off`.
pub const FINDER_VARIABLE: &str = "STEADFAST_NFS_PORTMAP";
/// The first where it is not set. Only this machine reaches it.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 2_049);
/// How long clients of an export that is not there are told to wait: as long as a start may take
/// from the first pool to the last, or a mount with other options.
const GRACE: Duration = Duration::from_secs(15);
/// How long after that only clients that had locks get some.
const LOCK_GRACE: Duration = Duration::from_secs(45);

/// Exports, and the server if something was shared.
pub(super) struct Shares {
    exports: Arc<Exports>,
    server: Mutex<Option<Listening>>,
    /// Why nobody listens, if that was tried.
    trouble: Mutex<Option<Refusal>>,
    /// File of the clients that have locks.
    clients: PathBuf,
    /// Name of this machine.
    host: String,
}

/// A server, and its entries at the machine's port mapper.
struct Listening {
    /// First, so that nobody is sent to a server that ends.
    registration: Option<Registration>,
    server: Server,
}

impl Shares {
    pub(super) fn new(clients: PathBuf, host: String) -> Shares {
        let exports = Arc::new(Exports::with_grace(GRACE));
        Shares { exports, server: Mutex::default(), trouble: Mutex::default(), clients, host }
    }

    /// Listens for clients, if nothing does yet.
    fn listen(&self) -> Result<(), Refusal> {
        let listens = self.try_to_listen();
        *self.trouble.lock() = listens.as_ref().err().cloned();
        listens
    }

    fn try_to_listen(&self) -> Result<(), Refusal> {
        let mut server = self.server.lock();
        if server.is_some() {
            return Ok(());
        }
        let asked = std::env::var(LISTEN_VARIABLE).ok().filter(|asked| !asked.is_empty());
        let trouble = |what: String| Refusal::new(Code::ShareListen, what);
        let address = match &asked {
            None => LISTEN,
            Some(asked) => asked.parse().map_err(|_| {
                trouble(format!(
                    "{LISTEN_VARIABLE}={asked}: this is not an address and a port, as 127.0.0.1:2049"
                ))
            })?,
        };
        let failed =
            |error: std::io::Error| trouble(format!("cannot listen at {address} for NFS clients: {error}"));
        let listener = TcpListener::bind(address).map_err(failed)?;
        let log: Log = Arc::new(|line: String| eprintln!("steadfast: nfs: {line}"));
        let settings = LockSettings {
            clients: Some(self.clients.clone()),
            name: self.host.clone(),
            notify_after: GRACE,
            grace: LOCK_GRACE,
            log: Arc::clone(&log),
            ..LockSettings::default()
        };
        let at = listener.local_addr().map_err(failed)?;
        let helped = helping_doors(at, address.port() == 0, &log);
        let service = Arc::new(Service::new(Arc::clone(&self.exports), settings));
        let started = Server::start(service, listener, helped.doors, log, keeps_awake()).map_err(failed)?;
        eprintln!("steadfast: nfs: listens at {}", started.address());
        // Clients have a link to wait for, not the disk of the program. A daemon that may not do it
        // reads its code as it goes.
        let bring_in = || drop(bring_in_code());
        std::thread::Builder::new().name("code".into()).spawn(bring_in).map(drop).ok();
        if !address.ip().is_loopback() {
            eprintln!("steadfast: nfs: {}", open_to_all(started.address()));
        }
        *server = Some(Listening { registration: helped.registration, server: started });
        Ok(())
    }

    /// Tells the machine's port mapper that the server ends.
    pub(super) fn leave_port_mapper(&self) {
        let registration = self.server.lock().as_mut().and_then(|listening| listening.registration.take());
        drop(registration);
    }

    /// The address at which clients are listened for.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.server.lock().as_ref().map(|listening| listening.server.address())
    }
}

/// The warning about clients on other machines.
fn open_to_all(address: SocketAddr) -> String {
    format!(
        "clients of other machines reach {address}, and there is no Kerberos: every machine that may mount a share says \
         itself who its users are, and the network reads all that is sent"
    )
}

/// Keeps the processors awake while clients ask one thing after the other, as mounts do for
/// programs; the same switch turns it off. Without it each request of a client that waits for its
/// reply has to wake two processors that halted.
fn keeps_awake() -> Served {
    struct Polling(Arc<IdlePolling>);
    impl Drop for Polling {
        fn drop(&mut self) {
            self.0.end();
        }
    }
    let mut options = MountOptions::new(String::new());
    // Mounts refuse switches that are wrong.
    _ = options.set_switches(&std::env::var(SWITCHES_VARIABLE).unwrap_or_default());
    match IdlePolling::begin(options.idle_poll) {
        Ok(Some(polling)) => {
            let polling = Polling(polling);
            Arc::new(move || polling.0.count())
        }
        Ok(None) => Arc::new(|| ()),
        Err(why) => {
            eprintln!("steadfast: nfs: processors are not kept awake: {why}");
            Arc::new(|| ())
        }
    }
}

/// Where clients find the lock protocol, and tell of their restarts. Without it locks fail, and
/// nothing else.
#[derive(Default)]
struct Helped {
    doors: Vec<Door>,
    registration: Option<Registration>,
}

fn helping_doors(at: SocketAddr, is_any_port: bool, log: &Log) -> Helped {
    let mut helped = Helped::default();
    match UdpSocket::bind(at) {
        Ok(socket) => helped.doors.push(Door::Datagrams(socket)),
        Err(error) => log(format!("restarts of clients are not heard: {at}/udp: {error}")),
    }
    let asked = std::env::var(FINDER_VARIABLE).ok().filter(|asked| !asked.is_empty());
    let address = match asked.as_deref() {
        Some("off") => return helped,
        // There is one port mapper for each address, and this daemon is none that is to be found.
        None if is_any_port => return helped,
        None => SocketAddr::new(at.ip(), finder::PORT),
        Some(asked) => match asked.parse() {
            Ok(address) => address,
            Err(_) => {
                log(format!("{FINDER_VARIABLE}={asked}: this is neither an address with a port nor off"));
                return helped;
            }
        },
    };
    let bound = TcpListener::bind(address).and_then(|listener| Ok((listener, UdpSocket::bind(address)?)));
    let error = match bound {
        Ok((listener, socket)) => {
            log(format!("port mapper at {}", listener.local_addr().unwrap_or(address)));
            helped.doors.extend([Door::Stream(listener), Door::Datagrams(socket)]);
            return helped;
        }
        Err(error) => error,
    };
    // Another port mapper has the port: it tells clients of this server.
    let ports = Ports { tcp: at.port(), udp: if helped.doors.is_empty() { 0 } else { at.port() } };
    let registered = match asked {
        None => Registration::make(Path::new(RPCBIND), at, ports),
        // An address that somebody chose is not rpcbind's.
        Some(_) => Err(std::io::ErrorKind::NotFound.into()),
    };
    match registered {
        Ok(registration) => {
            log(format!("registered with rpcbind, which has {address}"));
            for shortfall in registration.shortfalls() {
                log(format!("rpcbind: {shortfall}"));
            }
            helped.registration = Some(registration);
        }
        Err(why) => {
            let mut line = format!("no port mapper at {address}: {error}");
            if why.kind() != std::io::ErrorKind::NotFound {
                line += &format!("; rpcbind: {why}");
            }
            log(format!("{line}. Clients do not find the lock manager: mount with nolock"));
        }
    }
    helped
}

/// Keeps a mounted file system shared.
pub(super) struct Share {
    exports: Arc<Exports>,
    id: ExportId,
}

impl Share {
    /// Clients that may mount it.
    pub(super) fn clients(&self) -> Vec<String> {
        self.exports.get(self.id).map(|export| export.options.clients()).unwrap_or_default()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.exports.unshare(self.id);
    }
}

impl ImportedPool {
    /// The warning that the kernel collects writes of a shared file system, if it does.
    pub(super) fn collected_warning(&self, name: &str) -> Option<Refusal> {
        self.collects_writes(name).filter(|collects| *collects)?;
        let anew = self.words_to_mount_anew(name);
        let what = format!(
            "'{name}' was mounted before it was shared, so the kernel collects writes of local programs there: a page \
             that a client and a local program change in the same moment has the content of one of them. To end that, mount it anew: \
             {anew} (SHARE-COLLECTED)"
        );
        Some(Refusal::new(Code::ShareCollected, what).with("fs", name))
    }
}

impl Engine {
    /// Shares a mounted file system as its property says, or ends that. True if it is shared now.
    pub(super) fn share(&self, held: &Arc<ImportedPool>, name: &str) -> Result<bool, Refusal> {
        let value = self.value(held, name, "sharenfs")?;
        let wrong = |why: String| {
            let what = format!("the value '{value}' of sharenfs cannot be used: {why}");
            Refusal::new(Code::PropValue, what).with("fs", name)
        };
        let Some(options) = ShareOptions::parse(&value).map_err(wrong)? else {
            self.unshare(held, name);
            return Ok(false);
        };
        let dataset = held.pool.datasets().dataset_info(name).map_err(crate::engine::refuse::pool)?.id;
        let id = ExportId { pool: held.pool.guid().0, dataset: dataset.0 };
        let door = {
            let mounts = held.mounts.lock();
            let Some(mount) = mounts.get(name) else { return Ok(false) };
            mount.served.network_door().map(|door| (door, mount.at.display().to_string()))
        };
        let Some(((volume, secret), path)) = door else { return Ok(false) };
        self.shares.listen()?;
        let mut mounts = held.mounts.lock();
        let Some(mount) = mounts.get_mut(name) else { return Ok(false) };
        let key = HandleKey::of(&secret);
        self.shares.exports.share(Export { id, path, options, key, volume });
        // An export that is changed is there all the time.
        if mount.share.is_none() {
            mount.share = Some(Share { exports: Arc::clone(&self.shares.exports), id });
        }
        Ok(true)
    }

    /// Ends the share of a file system. True if there was one.
    pub(super) fn unshare(&self, held: &ImportedPool, name: &str) -> bool {
        held.mounts.lock().get_mut(name).is_some_and(|mount| mount.share.take().is_some())
    }

    /// The reason why nobody listens for clients, if a mounted file system of the pool wants some.
    pub(super) fn share_trouble(&self, held: &ImportedPool) -> Option<Refusal> {
        let trouble = self.shares.trouble.lock().clone()?;
        let mounted: Vec<String> = held.mounts.lock().keys().cloned().collect();
        let wants = |name: &String| self.value(held, name, "sharenfs").is_ok_and(|value| value != "off");
        mounted.iter().any(wants).then_some(trouble)
    }

    /// Shares everything that is mounted at and below a name as its property says. Failures are
    /// warnings; one more says what it means that other machines reach the shares.
    pub(super) fn share_below(&self, held: &Arc<ImportedPool>, name: &str) -> Vec<Refusal> {
        let mut warnings = Vec::new();
        let mut is_shared = false;
        for name in held.mounted_below(name) {
            match self.share(held, &name) {
                Ok(true) => {
                    is_shared = true;
                    warnings.extend(held.collected_warning(&name));
                }
                Ok(false) => {}
                Err(refusal) => warnings.push(refusal),
            }
        }
        warnings.extend(self.share_warning().filter(|_| is_shared));
        warnings
    }

    /// The warning that other machines reach the shares, if they do.
    pub(super) fn share_warning(&self) -> Option<Refusal> {
        let address = self.shares.address().filter(|address| !address.ip().is_loopback())?;
        Some(Refusal::new(Code::ShareOpen, open_to_all(address)))
    }
}
