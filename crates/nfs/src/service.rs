//! From a record to a reply: which program, which caller, which export.

use crate::acl3;
use crate::export::{Export, Exports, Note, SnapshotChange, View};
use crate::finder::{self, Ports};
use crate::handle::{FileId, LIVE, export_of};
use crate::lock_service::{LockService, LockSettings};
use crate::mount3;
use crate::nfs3::{self, Handle, Status};
use crate::nlm4;
use crate::nsm;
use crate::operation::{Operation, Outcome, TOP};
use crate::replay::{Known, Repeat, Replays};
use crate::reply::Reply;
use crate::rpc::{self, Call, Credential, Denial, Failure};
use crate::server::Log;
use crate::snapshot_folders::{Way, ZFS, way_of};
use crate::xdr::{Reader, Writer};
use parking_lot::Mutex;
use std::cell::OnceCell;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use steadfast_env::insist::{Client, serving};
use steadfast_posix::requests::Origin;
use steadfast_posix::{Errno, FileSystem, Identity, MAY_EXECUTE, Patience, Span};
use steadfast_property::{ShareAccess, ShareOptions};

/// Ports that only root of the client's machine can use.
pub(crate) const SECURE_PORTS: u16 = 1_024;
/// Longest wait of a change for room or for a commit; the client is told to ask again then.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest wait of a read for a store that is away, where the pool's `failmode` has it wait; the
/// client is told to ask again then. Shorter, as it holds a thread.
const READ_PATIENCE: Duration = Duration::from_secs(5);
/// How long refusals of an address are not told again.
const TOLD_AGAIN: Duration = Duration::from_secs(60);
/// Most addresses of which that is known.
const TOLD_MAX: usize = 1_024;

/// Takes the reply to a call. It may be called later and by another thread.
pub type Answer = Box<dyn FnOnce(Reply) + Send>;

/// The caller of a request, after what the export makes of it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Person {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl Person {
    /// Root of root's client becomes nobody, unless the export trusts it.
    pub(crate) fn of(credential: &Credential, options: &ShareOptions) -> Person {
        let (nobody, nogroup) = (options.anonuid, options.anongid);
        match credential {
            Credential::Sys { uid, gid, groups } if !options.all_squash => {
                let squash = |id: u32, none: u32| if id == 0 && options.root_squash { none } else { id };
                Person {
                    uid: squash(*uid, nobody),
                    gid: squash(*gid, nogroup),
                    groups: groups.iter().map(|gid| squash(*gid, nogroup)).collect(),
                }
            }
            _ => Person { uid: nobody, gid: nogroup, groups: Vec::new() },
        }
    }

    pub(crate) fn identity(&self) -> Identity<'_> {
        Identity { uid: self.uid, gid: self.gid, groups: &self.groups }
    }
}

/// The two ends of a connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Peer {
    /// The client's.
    pub client: SocketAddr,
    /// Ours.
    pub server: SocketAddr,
}

/// Answers calls.
pub struct Service {
    exports: Arc<Exports>,
    replays: Replays,
    locks: Arc<LockService>,
    ports: OnceLock<Ports>,
    log: Log,
    /// Until when refusals of an address are not told again.
    told: Mutex<HashMap<IpAddr, Instant>>,
}

impl Service {
    /// Serves these exports.
    #[must_use]
    pub fn new(exports: Arc<Exports>, settings: LockSettings) -> Service {
        let log = Arc::clone(&settings.log);
        let locks = LockService::new(Arc::clone(&exports), settings);
        let (replays, ports, told) = (Replays::default(), OnceLock::new(), Mutex::default());
        Service { exports, replays, locks, ports, log, told }
    }

    /// Says where clients reach it. Calls to another port may ask for these alone.
    pub(crate) fn listens_at(&self, ports: Ports) {
        // A service has one server.
        _ = self.ports.set(ports);
    }

    fn ports(&self) -> Ports {
        self.ports.get().copied().unwrap_or_default()
    }

    /// Entries of the table of locks.
    #[must_use]
    pub fn locks(&self) -> usize {
        self.locks.len()
    }

    /// Answers a record. False if it is no call: the client speaks another language, and the
    /// connection should end.
    pub fn call(self: &Arc<Self>, peer: Peer, record: &[u8], answer: Answer) -> bool {
        self.call_since(Instant::now(), peer, record, answer)
    }

    /// The same for a record that came at `came` and waited for a thread.
    pub fn call_since(self: &Arc<Self>, came: Instant, peer: Peer, record: &[u8], answer: Answer) -> bool {
        let client = peer.client;
        let mut reader = Reader::new(record);
        let Ok(call) = Call::decode(&mut reader) else { return false };
        let xid = call.xid;
        if !call.is_understood() {
            answer(rpc::denial(xid, Denial::RpcVersion).into());
            return true;
        }
        let credential = match &call.credential {
            Ok(credential @ (Credential::None | Credential::Sys { .. })) => credential,
            Ok(Credential::Other(_)) => {
                answer(rpc::denial(xid, Denial::TooWeak).into());
                return true;
            }
            Err(_) => {
                answer(rpc::denial(xid, Denial::BadCredential).into());
                return true;
            }
        };
        if peer.server.port() != self.ports().tcp && call.program != finder::PROGRAM {
            answer(rpc::failure(xid, Failure::Program).into());
            return true;
        }
        match (call.program, call.version) {
            (nfs3::PROGRAM, nfs3::VERSION) => {
                let request = Request { came, client, xid, procedure: call.procedure, record };
                let arguments = nfs3::Call::decode(call.procedure, &mut reader);
                self.nfs(&request, credential, arguments, answer);
            }
            (acl3::PROGRAM, acl3::VERSION) => {
                let procedure = acl3::FIRST.saturating_add(call.procedure);
                let request = Request { came, client, xid, procedure, record };
                self.nfs(&request, credential, acl3::decode(call.procedure, &mut reader), answer);
            }
            (mount3::PROGRAM, mount3::VERSION) => {
                answer(self.mount(client, credential, &call, &mut reader).into());
            }
            (nfs3::PROGRAM | mount3::PROGRAM | acl3::PROGRAM, _) => {
                answer(rpc::failure(xid, Failure::Version(3, 3)).into())
            }
            (nlm4::PROGRAM, nlm4::VERSION) => {
                let mut out = rpc::reply(xid);
                let locks = &self.locks;
                let done = locks.nlm(peer, credential, call.procedure, &mut reader, &mut out);
                answer(ended(xid, done, out).into());
            }
            (nlm4::PROGRAM, _) => answer(rpc::failure(xid, Failure::Version(4, 4)).into()),
            _ => answer(self.small(peer, &call, &mut reader, true).into()),
        }
        true
    }

    /// Answers a datagram, if it is a call of those programs that stock clients call without a
    /// connection.
    pub fn datagram(&self, peer: Peer, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut reader = Reader::new(bytes);
        let call = Call::decode(&mut reader).ok().filter(Call::is_understood)?;
        if peer.server.port() != self.ports().udp && call.program != finder::PROGRAM {
            return None;
        }
        // The mark of the record stays away.
        Some(self.small(peer, &call, &mut reader, false).split_off(4))
    }

    /// The programs that need no right.
    fn small(&self, peer: Peer, call: &Call, reader: &mut Reader<'_>, is_stream: bool) -> Vec<u8> {
        let (xid, mut out) = (call.xid, rpc::reply(call.xid));
        let done = match (call.program, call.version) {
            (nsm::PROGRAM, nsm::VERSION) => self.locks.nsm(peer, call.procedure, reader, &mut out),
            (nsm::PROGRAM, _) => return rpc::failure(xid, Failure::Version(1, 1)),
            // A datagram does not say to which of our addresses it came, which the others tell.
            (finder::PROGRAM, version @ finder::VERSION_MIN..=finder::VERSION_MAX)
                if is_stream || version == finder::VERSION_MIN =>
            {
                match finder::Call::decode(version, call.procedure, reader) {
                    // A list is longer than the question: somebody could have it sent to others.
                    Ok(Some(finder::Call::Dump)) if !is_stream => Ok(false),
                    Ok(Some(call)) => {
                        self.ports().answer(&call, version, peer.server, &mut out);
                        Ok(true)
                    }
                    Ok(None) => Ok(false),
                    Err(error) => Err(error),
                }
            }
            (finder::PROGRAM, _) => {
                let highest = if is_stream { finder::VERSION_MAX } else { finder::VERSION_MIN };
                return rpc::failure(xid, Failure::Version(finder::VERSION_MIN, highest));
            }
            _ => return rpc::failure(xid, Failure::Program),
        };
        ended(xid, done, out)
    }

    fn mount(
        &self,
        client: SocketAddr,
        credential: &Credential,
        call: &Call,
        reader: &mut Reader<'_>,
    ) -> Vec<u8> {
        let xid = call.xid;
        let mut out = rpc::reply(xid);
        match mount3::Call::decode(call.procedure, reader) {
            Err(_) => return rpc::failure(xid, Failure::Arguments),
            Ok(None) => return rpc::failure(xid, Failure::Procedure),
            Ok(Some(mount3::Call::Mnt(path))) => match self.top_of(client, credential, path) {
                Ok(handle) => mount3::write_mounted(&mut out, &handle),
                Err(refusal) => _ = out.u32(refusal as u32),
            },
            // Nothing is kept about mounts: a client that is gone for ever would stay in it.
            Ok(Some(mount3::Call::Dump)) => _ = out.bool(false),
            Ok(Some(mount3::Call::Export)) => mount3::write_exports(&mut out, &self.exports.list()),
            Ok(Some(mount3::Call::Null | mount3::Call::Umnt(_) | mount3::Call::UmntAll)) => {}
        }
        rpc::record(out)
    }

    /// The handle of a path: the top of an export, or a directory in it.
    fn top_of(
        &self,
        client: SocketAddr,
        credential: &Credential,
        path: &[u8],
    ) -> Result<Vec<u8>, mount3::Refusal> {
        use mount3::Refusal;
        let path = std::str::from_utf8(path).map_err(|_| Refusal::NoEntry)?;
        let (export, names) = self.exports.find(path).ok_or(Refusal::NoEntry)?;
        if access(&export, client).is_none() {
            self.tell_refusal(&export, client);
            return Err(Refusal::Access);
        }
        let person = Person::of(credential, &export.options);
        let mut found = Err(Refusal::ServerFault);
        export.volume.enter(&mut |view| {
            found = descend(view, &person.identity(), &names)
                .map(|file| export.key.sign(export.id, file).to_vec());
        });
        found
    }

    /// The client hears no more than "access denied": the reason is for the operator. An address
    /// has one line a minute.
    fn tell_refusal(&self, export: &Export, client: SocketAddr) {
        let (now, address) = (Instant::now(), client.ip().to_canonical());
        {
            let mut told = self.told.lock();
            told.retain(|_, until| *until > now);
            if told.len() >= TOLD_MAX || told.contains_key(&address) {
                return;
            }
            told.insert(address, now + TOLD_AGAIN);
        }
        let reason = match export.options.access(address) {
            None => "its address is in none of the lists of sharenfs".into(),
            Some(_) => format!("it uses port {}, above 1023 (sharenfs=insecure allows that)", client.port()),
        };
        (self.log)(format!("{address} may not mount {}: {reason}", export.path));
    }

    fn nfs(
        self: &Arc<Self>,
        request: &Request<'_>,
        credential: &Credential,
        arguments: crate::xdr::Result<Option<nfs3::Call<'_>>>,
        answer: Answer,
    ) {
        let xid = request.xid;
        let call = match arguments {
            Ok(Some(nfs3::Call::Null)) => return answer(rpc::record(rpc::reply(xid)).into()),
            Ok(Some(call)) => call,
            Ok(None) => return answer(rpc::failure(xid, Failure::Procedure).into()),
            Err(_) => return answer(rpc::failure(xid, Failure::Arguments).into()),
        };
        // A client asks this before it has chosen a kind of credential.
        if *credential == Credential::None && !matches!(call, nfs3::Call::Fsinfo { .. }) {
            return answer(rpc::denial(xid, Denial::TooWeak).into());
        }
        let (export, access) = match self.export_for(request.client, call.handle()) {
            Ok(found) => found,
            Err(status) => return answer(failed(xid, request.procedure, status).into()),
        };
        let answer = match call.is_repeatable() {
            true => answer,
            false => match self.replays.begin(request.client.ip(), xid, request.record) {
                (_, Known::Answered(reply)) => return answer(reply.into()),
                (_, Known::UnderWay) => return,
                (repeat, Known::New) => {
                    let mut kept = Kept { service: Arc::clone(self), repeat, reply: None };
                    Box::new(move |reply: Reply| {
                        kept.reply = Some(reply.clone().into_bytes());
                        drop(kept);
                        answer(reply);
                    })
                }
            },
        };
        self.carry_out(request, &call, credential, &export, access, answer);
    }

    fn carry_out(
        &self,
        request: &Request<'_>,
        call: &nfs3::Call<'_>,
        credential: &Credential,
        export: &Export,
        access: ShareAccess,
        answer: Answer,
    ) {
        let (xid, procedure) = (request.xid, request.procedure);
        let (span, mut requests) = (Span::since(request.came), None);
        let person = Person::of(credential, &export.options);
        let (mut outcome, mut notes): (Option<Outcome>, Vec<Note>) = (None, Vec::new());
        let reader = Client { is_dying: is_over, thread: seconds() + READ_PATIENCE.as_secs() as u32 };
        let (content, found) = (call.content(), OnceCell::new());
        let find = || *found.get_or_init(|| serving(reader, || content.as_ref()?.find(export)));
        if content.is_some() && !export.volume.hand_over(&find) {
            return answer(failed(xid, procedure, Status::JUKEBOX).into());
        }
        let still = found.get().copied().flatten().filter(|_| call.sets_size());
        let still = still.and_then(|ino| export.volume.keep_still(ino));
        let entered = serving(reader, || {
            export.volume.enter(&mut |view| {
                let read_only = view.read_only || access == ShareAccess::ReadOnly;
                let who = person.identity();
                let operation = Operation { view, export, who, read_only, xid, snapshot: LIVE };
                let made = patience().during(|| operation.run(call, &mut notes));
                let made = made.map_err(|status| unless_late(status, reader));
                requests = Some(view.fs.requests());
                outcome = Some(made.unwrap_or_else(|status| failed(xid, procedure, status).into()));
            })
        });
        if let Some(still) = still {
            still.end(&notes);
        }
        let is_told = !notes.is_empty() && export.volume.note(&notes);
        let waits_for_log = entered && matches!(outcome, Some(Outcome::Durable { .. }));
        if is_told && !waits_for_log {
            export.volume.await_noted();
        }
        // It is being unmounted, or comes back in a moment.
        let Some((outcome, requests)) = outcome.filter(|_| entered).zip(requests) else {
            return answer(failed(xid, procedure, Status::JUKEBOX).into());
        };
        let counted = call.counted();
        match outcome {
            Outcome::Snapshot(change) => {
                let reply = change_snapshot(export, &person, &change, xid, procedure);
                requests.add(Origin::Nfs, counted, &span.split());
                answer(reply.into());
            }
            Outcome::Done(reply) => {
                requests.add(Origin::Nfs, counted, &span.split());
                answer(reply);
            }
            Outcome::Durable { fs, ino, reply } => {
                let departed = span.depart();
                let end = move |durable: Result<(), Errno>| {
                    requests.add(Origin::Nfs, counted, &departed.split());
                    let reply = match durable {
                        Ok(()) => reply,
                        Err(errno) => failed(xid, procedure, errno.into()),
                    };
                    answer(reply.into());
                };
                if !is_told {
                    return fs.fsync_later(ino, end);
                }
                // Both waits at once; the later one of them answers.
                let meeting = Arc::new(Meeting::default());
                let first = Arc::clone(&meeting);
                fs.fsync_later(ino, move |durable| first.is_durable(Box::new(move || end(durable))));
                export.volume.await_noted();
                meeting.is_noted();
            }
        }
    }

    /// The export of a handle, and how this client may use it.
    fn export_for(
        &self,
        client: SocketAddr,
        handle: Handle<'_>,
    ) -> Result<(Arc<Export>, ShareAccess), Status> {
        let id = export_of(handle).ok_or(Status::BADHANDLE)?;
        let gone = || if self.exports.is_settling() { Status::JUKEBOX } else { Status::STALE };
        let export = self.exports.get(id).ok_or_else(gone)?;
        let access = access(&export, client).ok_or(Status::ACCES)?;
        Ok((export, access))
    }
}

/// The reply of a program that puts its results itself.
fn ended(xid: u32, done: crate::xdr::Result<bool>, out: Writer) -> Vec<u8> {
    match done {
        Ok(true) => rpc::record(out),
        Ok(false) => rpc::failure(xid, Failure::Procedure),
        Err(_) => rpc::failure(xid, Failure::Arguments),
    }
}

/// One call of NFS.
struct Request<'a> {
    came: Instant,
    client: SocketAddr,
    xid: u32,
    procedure: u32,
    record: &'a [u8],
}

/// Changes a snapshot and answers, with no part of the volume in hand meanwhile.
fn change_snapshot(
    export: &Export,
    person: &Person,
    change: &SnapshotChange,
    xid: u32,
    procedure: u32,
) -> Vec<u8> {
    let who = person.identity();
    let made = export.volume.change_snapshot(&who, change).map_err(|errno| match errno {
        // Something holds it. No number says that, and a client would ask again for ever.
        Errno::EBUSY => Status::ACCES,
        errno => errno.into(),
    });
    // Where the volume went meanwhile, the client asks again, and hears that it was done.
    let mut reply = Err(made.err().unwrap_or(Status::JUKEBOX));
    if made.is_ok() {
        export.volume.enter(&mut |view| {
            let operation = Operation { view, export, who, read_only: false, xid, snapshot: LIVE };
            reply = Ok(operation.changed(change));
        });
    }
    reply.unwrap_or_else(|status| failed(xid, procedure, status))
}

/// A change that waits for two things: that it is durable, and that caches know of it.
#[derive(Default)]
struct Meeting(Mutex<Met>);

#[derive(Default)]
enum Met {
    #[default]
    Neither,
    Noted,
    /// With what is to be done then.
    Durable(Box<dyn FnOnce() + Send>),
}

impl Meeting {
    /// It is durable, or cannot be made so. `end` runs once caches know, too.
    fn is_durable(&self, end: Box<dyn FnOnce() + Send>) {
        let mut met = self.0.lock();
        if let Met::Noted = *met {
            drop(met);
            return end();
        }
        *met = Met::Durable(end);
    }

    /// Caches know of it.
    fn is_noted(&self) {
        let met = std::mem::replace(&mut *self.0.lock(), Met::Noted);
        if let Met::Durable(end) = met {
            end();
        }
    }
}

/// Keeps the reply to a call, however it ends.
struct Kept {
    service: Arc<Service>,
    repeat: Repeat,
    reply: Option<Vec<u8>>,
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.service.replays.end(self.repeat, self.reply.as_deref());
    }
}

/// How a client may use an export.
pub(crate) fn access(export: &Export, client: SocketAddr) -> Option<ShareAccess> {
    if export.options.secure && client.port() >= SECURE_PORTS {
        return None;
    }
    export.options.access(client.ip().to_canonical())
}

/// The directory to which names lead from the top of an export, also into a snapshot, if the caller
/// may go through all above it.
fn descend(view: &View<'_>, who: &Identity<'_>, names: &[String]) -> Result<FileId, mount3::Refusal> {
    use mount3::Refusal;
    if names.first().is_none_or(|name| name.as_bytes() != ZFS) {
        return descend_within(view.fs, LIVE, who, names);
    }
    // The folders are for everybody who may enter the top.
    descend_within(view.fs, LIVE, who, &[])?;
    view.fs.check(who, TOP, MAY_EXECUTE).map_err(|_| Refusal::Access)?;
    match way_of(view, names) {
        Some((Way::Folder(folder), _)) => Ok(folder.id()),
        Some((Way::Snapshot(number), behind)) => {
            let found = view.on(number, |fs| descend_within(fs, number, who, behind));
            found.unwrap_or(Err(Refusal::NoEntry))
        }
        Some((Way::Up, _)) | None => Err(Refusal::NoEntry),
    }
}

fn descend_within(
    fs: &FileSystem,
    snapshot: u64,
    who: &Identity<'_>,
    names: &[String],
) -> Result<FileId, mount3::Refusal> {
    use mount3::Refusal;
    use steadfast_posix::{S_IFDIR, S_IFMT};
    let refuse = |errno| match errno {
        Errno::ENOENT => Refusal::NoEntry,
        Errno::ENOTDIR => Refusal::NotDirectory,
        Errno::ENAMETOOLONG => Refusal::NameTooLong,
        Errno::EACCES => Refusal::Access,
        _ => Refusal::Io,
    };
    let mut at = fs.lookup(TOP, b".").map_err(refuse)?;
    for name in names {
        let may = fs.check(who, at.ino, MAY_EXECUTE);
        let next = may.and_then(|()| fs.lookup(at.ino, name.as_bytes()));
        fs.forget(at.ino, 1);
        at = next.map_err(refuse)?;
    }
    fs.forget(at.ino, 1);
    if at.attr.mode & S_IFMT != S_IFDIR {
        return Err(Refusal::NotDirectory);
    }
    Ok(FileId { snapshot, ino: at.ino, generation: at.generation })
}

/// The reply of a procedure that failed: its status, and no attributes.
fn failed(xid: u32, procedure: u32, status: Status) -> Vec<u8> {
    let mut out = rpc::reply(xid);
    write_failure(&mut out, procedure, status);
    rpc::record(out)
}

/// Each `post_op_attr` of a failure is one zero, each `wcc_data` two.
pub(crate) fn write_failure(out: &mut Writer, procedure: u32, status: Status) {
    let absent = match procedure {
        1 => 0,
        2 | 7..=13 | 21 => 2,
        14 => 4,
        15 => 3,
        _ => 1,
    };
    out.u32(status.0);
    (0..absent).for_each(|_| _ = out.u32(0));
}

/// Waits for a while, and then asks the client to try again.
fn patience() -> Patience {
    Patience::WhileAlive { is_dying: is_over, caller: seconds() + PATIENCE.as_secs() as u32 }
}

/// Seconds since the first request.
fn seconds() -> u32 {
    static SINCE: OnceLock<Instant> = OnceLock::new();
    u32::try_from(SINCE.get_or_init(Instant::now).elapsed().as_secs()).unwrap_or(u32::MAX)
}

/// The end of a wait, in place of the death of a thread that waits.
fn is_over(end: u32) -> bool {
    seconds() > end
}

/// A device that failed after the whole wait is one that is away: the client asks again, for as
/// long as it likes.
fn unless_late(status: Status, reader: Client) -> Status {
    if status == Status::IO && reader.is_gone() { Status::JUKEBOX } else { status }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_change_is_answered_once_by_the_later_of_its_two_waits() {
        for is_durable_first in [true, false] {
            let (meeting, ended) = (Meeting::default(), Arc::new(AtomicUsize::new(0)));
            let count = Arc::clone(&ended);
            let end = Box::new(move || _ = count.fetch_add(1, Ordering::SeqCst));
            let mut end = Some(end);
            for (step, durable) in [is_durable_first, !is_durable_first].into_iter().enumerate() {
                assert_eq!(ended.load(Ordering::SeqCst), 0, "before step {step}");
                match durable {
                    true => meeting.is_durable(end.take().expect("once")),
                    false => meeting.is_noted(),
                }
            }
            assert_eq!(ended.load(Ordering::SeqCst), 1);
        }
    }

    #[test]
    fn a_read_that_waited_in_vain_is_to_be_asked_again_and_one_that_failed_is_not() {
        let reader = |is_dying| Client { is_dying, thread: 0 };
        assert_eq!(unless_late(Status::IO, reader(|_| true)), Status::JUKEBOX);
        assert_eq!(unless_late(Status::IO, reader(|_| false)), Status::IO);
        assert_eq!(unless_late(Status::NOENT, reader(|_| true)), Status::NOENT);
    }
}
