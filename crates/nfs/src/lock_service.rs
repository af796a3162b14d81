//! # Locks of clients
//!
//! The programs NLM 4 and NSM 1 over the table of [`crate::locks`] (decision 0187).
//!
//! ## Restart
//! Locks are in memory. Machines that have some are remembered in a file; after a restart they are
//! told (`SM_NOTIFY`), ask for their locks again (`reclaim`), and nobody else gets any until the
//! grace period is over. Without such machines there is none.
//!
//! ## Invariants
//! [lock_service.1] A machine is remembered durably before it has a lock. guard: `Hosts::remember`
//!      before `Locks::lock`
//! [lock_service.2] `hosts` is never taken while `locks` is held.

use crate::callback::{Errand, Fault};
use crate::export::Exports;
use crate::handle::{export_of, parts};
use crate::hosts::Hosts;
use crate::locks::{File, Grant, Host, Locks, NAME_MAX, Owner, Range, Way, Wish, Word};
use crate::nlm4::{self, Call, Lock, Status};
use crate::rpc::Credential;
use crate::service::{Peer, Person, SECURE_PORTS, access};
use crate::xdr::{Reader, Writer};
use crate::{finder, nsm};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use steadfast_posix::{MAY_READ, MAY_WRITE, S_IFMT, S_IFREG};

/// How often silent clients are looked for, at most.
const EXPIRY: Duration = Duration::from_secs(1);
/// Calls to clients that wait. Those without room are not made: the client asks again.
const GRANTS_MAX: usize = 1_024;
/// How long a client that could not be reached is left alone.
const PAUSE: Duration = Duration::from_secs(60);
/// How long until a restart is told again to those who did not hear it.
const AGAIN: Duration = Duration::from_secs(10);
/// Most addresses that are known not to be reached.
const UNREACHED_MAX: usize = 1_024;

/// How locks are kept.
#[derive(Clone)]
pub struct LockSettings {
    /// File in which machines that have locks are remembered; none: a restart forgets them.
    pub clients: Option<PathBuf>,
    /// Our name, as clients are told it.
    pub name: String,
    /// How long after the start clients are told of it: shares must be there when they answer.
    pub notify_after: Duration,
    /// How long after that nobody but them gets locks.
    pub grace: Duration,
    /// Port of the clients' port mappers.
    pub finder_port: u16,
    /// Takes lines for the operator.
    pub log: crate::Log,
}

impl Default for LockSettings {
    fn default() -> LockSettings {
        LockSettings {
            clients: None,
            name: "steadfast".into(),
            notify_after: Duration::ZERO,
            grace: Duration::ZERO,
            finder_port: finder::PORT,
            log: Arc::new(|_| {}),
        }
    }
}

/// Locks of all clients.
pub(crate) struct LockService {
    exports: Arc<Exports>,
    settings: LockSettings,
    hosts: Mutex<Hosts>,
    locks: Mutex<Table>,
    /// Takes what clients are to be told.
    errands: Mutex<Option<SyncSender<Grant>>>,
    /// End of the grace period, if there is one.
    grace_end: Option<Instant>,
}

struct Table {
    locks: Locks,
    expired: Instant,
}

impl LockService {
    pub(crate) fn new(exports: Arc<Exports>, settings: LockSettings) -> Arc<LockService> {
        let now = Instant::now();
        let (hosts, read) = Hosts::open(settings.clients.clone());
        if let (Err(error), Some(path)) = (read, &settings.clients) {
            (settings.log)(format!("{}: {error}; clients that had locks are not told", path.display()));
        }
        let remembered = hosts.all();
        let grace_end = (!remembered.is_empty()).then(|| now + settings.notify_after + settings.grace);
        let table = Table { locks: Locks::default(), expired: now };
        let service = LockService {
            exports,
            settings,
            hosts: Mutex::new(hosts),
            locks: Mutex::new(table),
            errands: Mutex::default(),
            grace_end,
        };
        let service = Arc::new(service);
        if !remembered.is_empty() {
            *service.errands.lock() = service.messenger(remembered);
        }
        service
    }

    fn is_grace(&self) -> bool {
        self.grace_end.is_some_and(|end| Instant::now() < end)
    }

    /// Answers a call of NLM: puts its results. False if there is no such procedure; an error if
    /// its arguments cannot be read.
    pub(crate) fn nlm(
        self: &Arc<Self>,
        peer: Peer,
        credential: &Credential,
        procedure: u32,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> crate::xdr::Result<bool> {
        let Some(call) = Call::decode(procedure, reader)? else { return Ok(false) };
        let cookie = match &call {
            Call::Null => return Ok(true),
            Call::FreeAll { caller } => {
                self.free(peer, |host| nsm::is_same(&host.name, caller));
                return Ok(true);
            }
            Call::Test { cookie, .. }
            | Call::Lock { cookie, .. }
            | Call::Cancel { cookie, .. }
            | Call::Unlock { cookie, .. }
            | Call::Share { cookie, .. }
            | Call::Unshare { cookie, .. } => *cookie,
        };
        out.opaque(cookie);
        let mut grants = Vec::new();
        match &call {
            Call::Test { exclusive, lock, .. } => {
                match self.test(peer, credential, lock, *exclusive, &mut grants) {
                    Ok(None) => out.u32(Status::Granted as u32),
                    Ok(Some(holder)) => {
                        out.u32(Status::Denied as u32);
                        holder.write(out);
                        out
                    }
                    Err(status) => out.u32(status as u32),
                };
            }
            Call::Lock { block, exclusive, lock, reclaim, .. } => {
                let cookie = (*block).then_some(cookie);
                let status = self.lock(peer, credential, lock, *exclusive, cookie, *reclaim, &mut grants);
                out.u32(status.unwrap_or_else(|status| status) as u32);
            }
            Call::Cancel { exclusive, lock, .. } => {
                let status = self.named(peer, lock, *exclusive).map(|(file, owner, range)| {
                    let was_there = self.locks.lock().locks.cancel(file, &owner, range, &mut grants);
                    if was_there { Status::Granted } else { Status::Denied }
                });
                out.u32(status.unwrap_or_else(|status| status) as u32);
            }
            Call::Unlock { lock, .. } => {
                let status = self.named(peer, lock, false).map(|(file, owner, range)| {
                    let is_done = self.locks.lock().locks.unlock(file, &owner, range, &mut grants);
                    if is_done { Status::Granted } else { Status::NoLocks }
                });
                out.u32(status.unwrap_or_else(|status| status) as u32);
            }
            Call::Share { share, reclaim, .. } => {
                let status = self.open(peer, credential, share, *reclaim);
                out.u32(status.unwrap_or_else(|status| status) as u32).u32(0);
            }
            Call::Unshare { share, .. } => {
                let status = match parts(share.file) {
                    None => Status::Stale,
                    Some(file) => {
                        let owner = owner(peer, share.caller, share.owner, 0);
                        self.locks.lock().locks.close(file, &owner);
                        Status::Granted
                    }
                };
                out.u32(status as u32).u32(0);
            }
            Call::Null | Call::FreeAll { .. } => {}
        }
        self.tell(grants);
        Ok(true)
    }

    /// Answers a call of NSM, in the same way.
    pub(crate) fn nsm(
        self: &Arc<Self>,
        peer: Peer,
        procedure: u32,
        reader: &mut Reader<'_>,
        out: &mut Writer,
    ) -> crate::xdr::Result<bool> {
        let Some(call) = nsm::Call::decode(procedure, reader)? else { return Ok(false) };
        if let nsm::Call::Notify { name, .. } = call {
            let names = {
                let hosts = self.hosts.lock();
                let known = hosts.all().into_iter().filter(|(host, _)| host.address == peer.address());
                known.count()
            };
            // The name by which a machine calls itself may be another one than that of its locks;
            // if it is the only one at its address, it is meant.
            self.free(peer, |host| names == 1 || nsm::is_same(&host.name, name));
        }
        let state = self.hosts.lock().state();
        nsm::answer(&call, state, out);
        Ok(true)
    }

    /// Gives everything back that machines at the peer's address have. Locks taken from a port of
    /// root are given back from one only.
    fn free(self: &Arc<Self>, peer: Peer, is_meant: impl Fn(&Host) -> bool) {
        let mut grants = Vec::new();
        let is_gone = |host: &Host| {
            host.address == peer.address() && (peer.has_low_port() || !host.low_port) && is_meant(host)
        };
        self.locks.lock().locks.free(is_gone, &mut grants);
        self.tell(grants);
    }

    fn test(
        &self,
        peer: Peer,
        credential: &Credential,
        lock: &Lock<'_>,
        exclusive: bool,
        grants: &mut Vec<Grant>,
    ) -> Result<Option<nlm4::Holder>, Status> {
        if self.is_grace() {
            return Err(Status::Grace);
        }
        let (file, owner, range) = self.named(peer, lock, exclusive)?;
        self.check(peer, credential, lock.file)?;
        let mut table = self.locks.lock();
        table.expire(grants);
        Ok(table.locks.test(file, &owner, &range))
    }

    /// `cookie` if the client waits.
    #[expect(clippy::too_many_arguments, reason = "those of the procedure")]
    fn lock(
        &self,
        peer: Peer,
        credential: &Credential,
        lock: &Lock<'_>,
        exclusive: bool,
        cookie: Option<&[u8]>,
        reclaim: bool,
        grants: &mut Vec<Grant>,
    ) -> Result<Status, Status> {
        if self.is_grace() != reclaim {
            return Err(Status::Grace);
        }
        let (file, owner, range) = self.named(peer, lock, exclusive)?;
        self.check(peer, credential, lock.file)?;
        self.remember(peer, &owner.host)?;
        let way = cookie.map(|cookie| Way {
            server: peer.server.ip().to_canonical(),
            cookie: cookie.to_vec(),
            handle: lock.file.to_vec(),
            offset: lock.offset,
            length: lock.length,
        });
        let mut table = self.locks.lock();
        table.expire(grants);
        Ok(status_of(table.locks.lock(file, &owner, range, way, Instant::now(), grants)))
    }

    fn open(
        &self,
        peer: Peer,
        credential: &Credential,
        share: &nlm4::Share<'_>,
        reclaim: bool,
    ) -> Result<Status, Status> {
        if self.is_grace() != reclaim {
            return Err(Status::Grace);
        }
        if share.caller.len().max(share.owner.len()) > NAME_MAX {
            return Err(Status::NoLocks);
        }
        let file = self.check(peer, credential, share.file)?;
        let owner = owner(peer, share.caller, share.owner, 0);
        self.remember(peer, &owner.host)?;
        Ok(status_of(self.locks.lock().locks.open(file, &owner, share.denied, share.access)))
    }

    /// [lock_service.1]
    fn remember(&self, peer: Peer, host: &Host) -> Result<(), Status> {
        let has_locks = |host: &Host| self.locks.lock().locks.has(host);
        let stored = self.hosts.lock().remember(host, peer.server.ip().to_canonical(), has_locks);
        match stored {
            Ok(true) => Ok(()),
            Ok(false) => Err(Status::NoLocks),
            Err(error) => {
                (self.settings.log)(format!(
                    "no locks for {}: it cannot be remembered: {error}",
                    host.address
                ));
                Err(Status::NoLocks)
            }
        }
    }

    /// The file, the owner and the range of a request. Only the owner's own entries can be reached
    /// by it, so that the file need not be there.
    fn named(
        &self,
        peer: Peer,
        lock: &Lock<'_>,
        exclusive: bool,
    ) -> Result<(File, Arc<Owner>, Range), Status> {
        let file = parts(lock.file).ok_or(Status::Stale)?;
        let (start, last) = lock.range().ok_or(Status::TooBig)?;
        if lock.caller.len().max(lock.owner.len()) > NAME_MAX {
            return Err(Status::NoLocks);
        }
        Ok((file, owner(peer, lock.caller, lock.owner, lock.svid), Range { start, last, exclusive }))
    }

    /// Refuses a caller who may neither read nor write the file, and what is no file.
    fn check(&self, peer: Peer, credential: &Credential, handle: &[u8]) -> Result<File, Status> {
        let id = export_of(handle).ok_or(Status::Stale)?;
        let gone = || if self.exports.is_settling() { Status::Grace } else { Status::Stale };
        let export = self.exports.get(id).ok_or_else(gone)?;
        access(&export, peer.client).ok_or(Status::Failed)?;
        let file = export.key.open(handle).ok_or(Status::Stale)?;
        let person = Person::of(credential, &export.options);
        let mut checked = Err(Status::Grace);
        export.volume.enter(&mut |view| {
            checked = view
                .on(file.snapshot, |fs| {
                    let found = fs.lookup(file.ino, b".").map_err(|_| Status::Stale)?;
                    let may = |wanted| fs.check_content(&person.identity(), file.ino, wanted).is_ok();
                    let checked = match found.attr.mode & S_IFMT {
                        _ if found.generation != file.generation => Err(Status::Stale),
                        S_IFREG if may(MAY_READ) || may(MAY_WRITE) => Ok((id, file)),
                        _ => Err(Status::Failed),
                    };
                    fs.forget(found.ino, 1);
                    checked
                })
                .unwrap_or(Err(Status::Stale));
        });
        checked
    }

    /// Tells clients of locks that they got.
    fn tell(self: &Arc<Self>, grants: Vec<Grant>) {
        if grants.is_empty() {
            return;
        }
        let mut errands = self.errands.lock();
        if errands.is_none() {
            *errands = self.messenger(Vec::new());
        }
        for grant in grants {
            let (file, number) = (grant.file, grant.number);
            if errands.as_ref().is_none_or(|errands| errands.try_send(grant).is_err()) {
                let mut more = Vec::new();
                self.locks.lock().locks.confirm(file, number, Word::Unheard, Instant::now(), &mut more);
            }
        }
    }

    /// Starts the thread that calls clients.
    fn messenger(self: &Arc<Self>, restarted: Vec<(Host, IpAddr)>) -> Option<SyncSender<Grant>> {
        let (send, receive) = sync_channel::<Grant>(GRANTS_MAX);
        let weak = Arc::downgrade(self);
        let mut messenger = Messenger {
            settings: self.settings.clone(),
            state: self.hosts.lock().state(),
            unreached: HashMap::new(),
        };
        let work = move || {
            let mut restarted = restarted;
            let mut due = Instant::now() + messenger.settings.notify_after;
            loop {
                let wait = due.saturating_duration_since(Instant::now());
                let next = match restarted.is_empty() {
                    true => receive.recv().map_err(|_| RecvTimeoutError::Disconnected),
                    false => receive.recv_timeout(wait),
                };
                match next {
                    Ok(grant) => messenger.grant(&weak, grant),
                    Err(RecvTimeoutError::Disconnected) => return,
                    Err(RecvTimeoutError::Timeout) => {
                        restarted.retain(|(host, server)| !messenger.restarted(host, *server));
                        due = Instant::now() + AGAIN;
                        let Some(service) = weak.upgrade() else { return };
                        if !service.is_grace() {
                            service.end_grace(&restarted);
                            restarted.clear();
                        }
                    }
                }
            }
        };
        let started = std::thread::Builder::new().name("nfs messenger".into()).spawn(work);
        started.is_ok().then_some(send)
    }

    fn end_grace(&self, unheard: &[(Host, IpAddr)]) {
        for (host, _) in unheard {
            let name = String::from_utf8_lossy(&host.name).into_owned();
            (self.settings.log)(format!(
                "{} ({name:?}) had locks before the restart and could not be told; they are gone",
                host.address
            ));
        }
        let has_locks = |host: &Host| self.locks.lock().locks.has(host);
        if let Err(error) = self.hosts.lock().tidy(has_locks) {
            (self.settings.log)(format!("the list of clients with locks cannot be written: {error}"));
        }
    }

    /// Entries of the table.
    pub(crate) fn len(&self) -> usize {
        self.locks.lock().locks.len()
    }
}

impl Table {
    fn expire(&mut self, grants: &mut Vec<Grant>) {
        let now = Instant::now();
        if now.duration_since(self.expired) >= EXPIRY {
            self.expired = now;
            self.locks.expire(now, grants);
        }
    }
}

fn owner(peer: Peer, caller: &[u8], owner: &[u8], svid: u32) -> Arc<Owner> {
    let host = Host { address: peer.address(), name: caller.to_vec(), low_port: peer.has_low_port() };
    Arc::new(Owner { host, svid, opaque: owner.to_vec() })
}

fn status_of(wish: Wish) -> Status {
    match wish {
        Wish::Granted => Status::Granted,
        Wish::Denied => Status::Denied,
        Wish::Blocked => Status::Blocked,
        Wish::NoRoom => Status::NoLocks,
    }
}

impl Peer {
    pub(crate) fn address(self) -> IpAddr {
        self.client.ip().to_canonical()
    }

    pub(crate) fn has_low_port(self) -> bool {
        self.client.port() < SECURE_PORTS
    }
}

/// Calls clients.
struct Messenger {
    settings: LockSettings,
    state: u32,
    /// Until when they are left alone.
    unreached: HashMap<IpAddr, Instant>,
}

impl Messenger {
    fn grant(&mut self, service: &Weak<LockService>, grant: Grant) {
        let (owner, way) = (&grant.owner, &grant.way);
        let mut out = Writer::default();
        out.opaque(&way.cookie).bool(grant.exclusive);
        let lock = Lock {
            caller: &owner.host.name,
            file: &way.handle,
            owner: &owner.opaque,
            svid: owner.svid,
            offset: way.offset,
            length: way.length,
        };
        lock.write(&mut out);
        let word =
            match self.call(&owner.host, way.server, nlm4::PROGRAM, nlm4::VERSION, nlm4::GRANTED, &out.out) {
                Ok(results) => {
                    let mut results = Reader::new(&results);
                    match (results.opaque(1_024), results.u32()) {
                        (Ok(_), Ok(0)) => Some(Word::Taken),
                        (Ok(_), Ok(1)) => Some(Word::Refused),
                        _ => Some(Word::Unheard),
                    }
                }
                Err(Fault::Unsent) => Some(Word::Unheard),
                // It may have it: only the client itself, or its restart, gives it back.
                Err(Fault::Unanswered) => None,
            };
        let (Some(word), Some(service)) = (word, service.upgrade()) else { return };
        let mut grants = Vec::new();
        let now = Instant::now();
        service.locks.lock().locks.confirm(grant.file, grant.number, word, now, &mut grants);
        service.tell(grants);
    }

    /// True if a machine knows that we restarted.
    fn restarted(&mut self, host: &Host, server: IpAddr) -> bool {
        let mut out = Writer::default();
        out.opaque(self.settings.name.as_bytes()).u32(self.state).fixed(&[0; 16]);
        self.unreached.remove(&host.address);
        self.call(host, server, nsm::PROGRAM, nsm::VERSION, nsm::NOTIFY, &out.out).is_ok()
    }

    fn call(
        &mut self,
        host: &Host,
        server: IpAddr,
        program: u32,
        version: u32,
        procedure: u32,
        arguments: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        let now = Instant::now();
        self.unreached.retain(|_, until| *until > now);
        if self.unreached.contains_key(&host.address) {
            return Err(Fault::Unsent);
        }
        let (client, finder_port) = (host.address, self.settings.finder_port);
        let errand = Errand { client, server, finder_port, program, version, procedure, arguments };
        let called = errand.run();
        if called.is_err() && self.unreached.len() < UNREACHED_MAX {
            self.unreached.insert(host.address, now + PAUSE);
        }
        called
    }
}
