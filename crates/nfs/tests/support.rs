//! A server over a dataset in memory.

// The world of the tests of `posix`.
#[path = "../../posix/tests/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "each program of tests uses some of it")]
mod posix;

use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use steadfast_dataset::Settings;
use steadfast_env::Env;
use steadfast_nfs::client::{Answered, Attributes, Claim, Client, Found, attributes};
use steadfast_nfs::handle::{ExportId, HandleKey};
use steadfast_nfs::xdr::{Reader, Writer};
use steadfast_nfs::{
    Door, Export, Exports, LockSettings, Note, Server, Service, SnapshotChange, Snapshots, Still, View,
    Volume,
};
use steadfast_posix::{Errno, FileSystem, Identity, Time};
use steadfast_property::ShareOptions;

pub use posix::{Draw, World};

/// Path of the export.
pub const PATH: &str = "/tank/home";
pub const ID: ExportId = ExportId { pool: 0x1122_3344_5566_7788, dataset: 9 };

/// A mount without a kernel.
pub struct Mounted {
    pub fs: Mutex<Option<Arc<FileSystem>>>,
    pub verifier: Mutex<[u8; 8]>,
    pub notes: Mutex<Vec<Note>>,
    /// Snapshots by number, with their names.
    pub snapshots: Mutex<BTreeMap<u64, (String, Arc<FileSystem>)>>,
    /// A listing of the top names the folder that leads to them.
    pub shows_folder: AtomicBool,
    /// Every request waits for a store that is away, where its pool says so.
    pub all_wait: AtomicBool,
    /// Inodes whose content was asked for; and whether that is refused.
    pub handed_over: Mutex<Vec<u64>>,
    pub keeps_content: AtomicBool,
}

impl Volume for Mounted {
    fn enter(&self, act: &mut dyn FnMut(&View<'_>)) -> bool {
        let fs = self.fs.lock().clone();
        let Some(fs) = fs else { return false };
        self.all_wait.fetch_and(steadfast_env::insist::served().is_some(), Ordering::Relaxed);
        act(&View { fs: &fs, verifier: *self.verifier.lock(), read_only: false, snapshots: self });
        true
    }

    fn note(&self, notes: &[Note]) -> bool {
        self.notes.lock().extend_from_slice(notes);
        true
    }

    fn await_noted(&self) {}

    fn hand_over(&self, file: &dyn Fn() -> Option<u64>) -> bool {
        self.handed_over.lock().extend(file());
        !self.keeps_content.load(Ordering::Relaxed)
    }

    fn keep_still(&self, _: u64) -> Option<Box<dyn Still>> {
        None
    }

    /// Root may all. The name `held` is one that something holds.
    fn change_snapshot(&self, who: &Identity<'_>, change: &SnapshotChange) -> Result<(), Errno> {
        let fs = self.fs.lock().clone().ok_or(Errno::EIO)?;
        let mut snapshots = self.snapshots.lock();
        let number = |name: &str| snapshots.iter().find(|(_, (found, _))| found == name).map(|(at, _)| *at);
        if who.uid != 0 {
            return Err(Errno::EPERM);
        }
        match change {
            SnapshotChange::Take(name) => {
                let next = snapshots.keys().next_back().map_or(1, |last| last + 1);
                snapshots.insert(next, (name.clone(), fs));
            }
            SnapshotChange::Destroy(name) if name == "held" => return Err(Errno::EBUSY),
            SnapshotChange::Destroy(name) => {
                let number = number(name).ok_or(Errno::ENOENT)?;
                snapshots.remove(&number);
            }
            SnapshotChange::Rename(name, to) => {
                let number = number(name).ok_or(Errno::ENOENT)?;
                snapshots.get_mut(&number).ok_or(Errno::ENOENT)?.0.clone_from(to);
            }
        }
        Ok(())
    }
}

impl Snapshots for Mounted {
    fn is_visible(&self) -> bool {
        self.shows_folder.load(Ordering::Relaxed)
    }

    fn since(&self) -> Time {
        Time { seconds: 1_234, nanos: 5 }
    }

    fn changed(&self) -> Time {
        Time { seconds: 5_000 + self.snapshots.lock().keys().sum::<u64>() as i64, nanos: 0 }
    }

    fn list(&self) -> Vec<(String, u64)> {
        self.snapshots.lock().iter().map(|(number, (name, _))| (name.clone(), *number)).collect()
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.list().into_iter().find(|(found, _)| found == name).map(|(_, number)| number)
    }

    fn enter(&self, number: u64, read: &mut dyn FnMut(&Arc<FileSystem>)) {
        let fs = self.snapshots.lock().get(&number).map(|(_, fs)| Arc::clone(fs));
        fs.iter().for_each(read);
    }
}

/// A server, and what it serves.
pub struct Portal {
    pub world: World,
    pub mounted: Arc<Mounted>,
    pub exports: Arc<Exports>,
    pub service: Arc<Service>,
    /// Requests that the server said it carried out.
    pub served: Arc<AtomicUsize>,
    pub server: Server,
}

impl Portal {
    /// A new file system, shared with these options. `async` spares tests a commit for each name:
    /// there is nobody here who makes one.
    pub fn new(options: &str) -> Portal {
        Portal::with(options, LockSettings::default(), Vec::new())
    }

    pub fn with(options: &str, locks: LockSettings, doors: Vec<Door>) -> Portal {
        let world = World::new(Env::real(), Settings::default());
        world.fs.set_acls(true);
        let mounted = Arc::new(Mounted {
            fs: Mutex::new(Some(Arc::clone(&world.fs))),
            verifier: Mutex::new(*b"verifier"),
            notes: Mutex::default(),
            snapshots: Mutex::default(),
            shows_folder: AtomicBool::new(false),
            all_wait: AtomicBool::new(true),
            handed_over: Mutex::default(),
            keeps_content: AtomicBool::new(false),
        });
        let exports = Arc::new(Exports::default());
        let service = Arc::new(Service::new(Arc::clone(&exports), locks));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let log = Arc::new(|line: String| eprintln!("{line}"));
        let served = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&served);
        let count = Arc::new(move || _ = counter.fetch_add(1, Ordering::SeqCst));
        let server = Server::start(Arc::clone(&service), listener, doors, log, count).expect("starts");
        let portal = Portal { world, mounted, exports, service, served, server };
        portal.share(options);
        portal
    }

    pub fn share(&self, options: &str) {
        let options = ShareOptions::parse(options).expect("options").expect("not off");
        let volume = Arc::clone(&self.mounted) as Arc<dyn Volume>;
        let key = HandleKey::of(&[5; 16]);
        self.exports.share(Export { id: ID, path: PATH.into(), options, key, volume });
    }

    pub fn address(&self) -> SocketAddr {
        self.server.address()
    }

    pub fn client(&self, uid: u32, gid: u32, groups: &[u32]) -> Client {
        let claim = Claim { uid, gid, groups: groups.to_vec() };
        Client::connect(self.address(), claim).expect("connects")
    }

    /// A client of root, and the handle of the top.
    pub fn root(&self) -> (Client, Vec<u8>) {
        let mut client = self.client(0, 0, &[]);
        let top = client.mount(PATH).expect("answered").expect("allowed");
        (client, top)
    }
}

/// Arguments that set nothing but a mode.
pub fn mode(out: &mut Writer, mode: u32) {
    out.bool(true).u32(mode).bool(false).bool(false).bool(false).u32(0).u32(0);
}

/// Calls by their names.
pub trait Calls {
    fn create(&mut self, dir: &[u8], name: &str, bits: u32) -> Result<Found, u32>;
    fn mkdir(&mut self, dir: &[u8], name: &str, bits: u32) -> Result<Found, u32>;
    fn find(&mut self, dir: &[u8], name: &str) -> Result<Found, u32>;
    fn remove(&mut self, dir: &[u8], name: &str) -> u32;
    fn write(&mut self, file: &[u8], offset: u64, stable: u32, data: &[u8]) -> Answered;
    fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), u32>;
    fn getattr(&mut self, file: &[u8]) -> Result<Attributes, u32>;
}

/// A handle and attributes of something new.
pub fn made(answer: &Answered) -> Result<Found, u32> {
    if answer.status != 0 {
        return Err(answer.status);
    }
    let mut reader = Reader::new(&answer.results);
    assert_eq!(reader.bool(), Ok(true), "the handle is there");
    let handle = reader.opaque(64).expect("a handle").to_vec();
    Ok(Found { handle, attributes: attributes(&mut reader).expect("attributes") })
}

impl Calls for Client {
    fn create(&mut self, dir: &[u8], name: &str, bits: u32) -> Result<Found, u32> {
        let answer = self.nfs(8, |out| {
            out.opaque(dir).opaque(name.as_bytes()).u32(1);
            mode(out, bits);
        });
        made(&answer.expect("answered"))
    }

    fn mkdir(&mut self, dir: &[u8], name: &str, bits: u32) -> Result<Found, u32> {
        let answer = self.nfs(9, |out| {
            out.opaque(dir).opaque(name.as_bytes());
            mode(out, bits);
        });
        made(&answer.expect("answered"))
    }

    fn find(&mut self, dir: &[u8], name: &str) -> Result<Found, u32> {
        self.lookup(dir, name).expect("answered")
    }

    fn remove(&mut self, dir: &[u8], name: &str) -> u32 {
        self.nfs(12, |out| _ = out.opaque(dir).opaque(name.as_bytes())).expect("answered").status
    }

    fn write(&mut self, file: &[u8], offset: u64, stable: u32, data: &[u8]) -> Answered {
        let count = data.len() as u32;
        self.nfs(7, |out| _ = out.opaque(file).u64(offset).u32(count).u32(stable).opaque(data))
            .expect("answered")
    }

    fn read(&mut self, file: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), u32> {
        let answer = self.nfs(6, |out| _ = out.opaque(file).u64(offset).u32(count)).expect("answered");
        if answer.status != 0 {
            return Err(answer.status);
        }
        let mut reader = Reader::new(&answer.results);
        attributes(&mut reader).expect("attributes");
        let (count, is_end) = (reader.u32().expect("a count"), reader.bool().expect("the end"));
        let data = reader.opaque(1 << 20).expect("data").to_vec();
        assert_eq!((data.len(), reader.rest()), (count as usize, &b""[..]));
        Ok((data, is_end))
    }

    fn getattr(&mut self, file: &[u8]) -> Result<Attributes, u32> {
        let answer = self.nfs(1, |out| _ = out.opaque(file)).expect("answered");
        let mut reader = Reader::new(&answer.results);
        match answer.status {
            0 => Ok(steadfast_nfs::client::plain_attributes(&mut reader).expect("attributes")),
            status => Err(status),
        }
    }
}
