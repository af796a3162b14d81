//! Volumes for clients of NBD: the socket beside the daemon's own, its clients, and what they are given.
//!
//! ## Invariants
//! (V1) Who has chosen a volume has a handle of its dataset, as a mount has: it is not destroyed, rolled back or locked under it, and its pool not
//!      let go, before its connection has ended.                                      `Engine::part_clients`
//! (V2) A volume is chosen in turn with the verbs that change things (E1), so that none of them is met halfway.
//! (V3) There are at most [`CLIENTS_MAX`] clients, each with one thread.

use super::{Engine, Held, mounts, refuse};
use crate::refusal::{Code, Refusal};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Weak};
use std::time::Duration;
use steadfast_format::DatasetId;
use steadfast_nbd::{Export, Exports, Fault};
use steadfast_pool::{DatasetHandle, SnapshotHandle};
use steadfast_posix::{Atime, Errno, Fallocate, FileSystem, Options, Usage};

/// Most clients at once.
const CLIENTS_MAX: usize = 128;
/// With fewer descriptors than so many allowed to the daemon, volumes are files only.
const DESCRIPTORS_MIN: u64 = 64;
/// How long a client that is cut off may take to end what it is at.
const PARTING: Duration = Duration::from_secs(10);
/// The file that a volume is.
const ROOT: u64 = 1;

/// Who is connected.
#[derive(Default)]
pub(super) struct Clients {
    list: Mutex<List>,
    left: Condvar,
}

#[derive(Default)]
struct List {
    next: u64,
    by_number: BTreeMap<u64, Client>,
}

struct Client {
    stream: UnixStream,
    /// Guid of the pool, and number of the volume it has chosen.
    uses: Option<(u64, DatasetId)>,
}

impl Engine {
    /// Serves volumes to clients of NBD from now on, until the process ends. What cannot be is told on stderr.
    pub(super) fn serve_volumes(self: &Arc<Self>) {
        let socket = self.runtime.nbd_socket();
        // Whoever waits in accept(2) holds a descriptor for who may come. Where there are hardly any, commands need it more.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        if limit.is_some_and(|limit| limit < DESCRIPTORS_MIN) {
            eprintln!(
                "steadfast: volumes are not served at {}: fewer than {DESCRIPTORS_MIN} descriptors may be open",
                socket.display()
            );
            return;
        }
        let listen = || {
            match std::fs::remove_file(&socket) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let listener = self.runtime.bind_nbd()?;
            std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o600))?;
            let weak = Arc::downgrade(self);
            std::thread::Builder::new().name("nbd".into()).spawn(move || accept(&weak, &listener))
        };
        if let Err(error) = listen() {
            eprintln!("steadfast: volumes are not served at {}: {error}", socket.display());
        }
    }

    /// Address of a volume for clients of NBD, if it is served.
    pub(super) fn nbd_address(&self, held: &Held, name: &str) -> Result<Option<String>, Refusal> {
        if self.value(held, name, "volmode")? == "none" {
            return Ok(None);
        }
        let socket = self.runtime.nbd_socket();
        Ok(Some(format!("nbd+unix:///{}?socket={}", escaped(name), escaped(&socket.display().to_string()))))
    }

    /// Refuses if a client has chosen a volume at or below `name`; with `force` cuts it off, and waits until it has let go.
    pub(super) fn part_clients(&self, held: &Held, name: &str, force: bool) -> Result<(), Refusal> {
        let below = format!("{name}/");
        let guid = held.pool.guid().0;
        let mut touched = Vec::new();
        for volume in held.pool.datasets().into_iter().filter(|n| n == name || n.starts_with(&below)) {
            let info = held.pool.dataset_info(&volume).map_err(refuse::pool)?;
            if info.volume.is_some() {
                touched.push(((guid, info.id), volume));
            }
        }
        let mut list = self.clients.list.lock();
        let used = |list: &List| {
            let uses: Vec<_> = list.by_number.values().filter_map(|client| client.uses).collect();
            touched.iter().find(|(number, _)| uses.contains(number)).map(|(_, volume)| volume.clone())
        };
        if force {
            for client in list.by_number.values() {
                if client.uses.is_some_and(|uses| touched.iter().any(|(number, _)| *number == uses)) {
                    // It may have left by itself.
                    let _ = client.stream.shutdown(Shutdown::Both);
                }
            }
            while used(&list).is_some() {
                if self.clients.left.wait_for(&mut list, PARTING).timed_out() {
                    break;
                }
            }
        }
        match used(&list) {
            None => Ok(()),
            Some(volume) => {
                let what = format!("a client of NBD uses '{volume}'");
                Err(Refusal::new(Code::VolumeBusy, what).with("fs", volume))
            }
        }
    }

    /// Serves a client until it leaves.
    fn serve_client(weak: &Weak<Engine>, stream: UnixStream, number: u64) {
        let mut ours = stream;
        let offer = Offer { engine: weak.clone(), number };
        let _present = Present { engine: weak.clone(), number };
        // How it ended is its own affair: it knows what was answered.
        let _ = steadfast_nbd::serve(&mut ours, &offer);
    }
}

/// A client is listed as long as this lives, however its thread ends: nobody lets go of a volume that somebody uses (V1).
struct Present {
    engine: Weak<Engine>,
    number: u64,
}

impl Drop for Present {
    fn drop(&mut self) {
        if let Some(engine) = self.engine.upgrade() {
            engine.clients.list.lock().by_number.remove(&self.number);
            engine.clients.left.notify_all();
        }
    }
}

fn accept(weak: &Weak<Engine>, listener: &UnixListener) {
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Err(_) => {
                // Out of descriptors, most likely: others close theirs soon.
                std::thread::sleep(Duration::from_millis(50));
                continue;
            }
        };
        let Some(engine) = weak.upgrade() else { return };
        let Ok(other) = stream.try_clone() else { continue };
        let number = {
            let mut list = engine.clients.list.lock();
            if list.by_number.len() >= CLIENTS_MAX {
                continue;
            }
            list.next += 1;
            let number = list.next;
            list.by_number.insert(number, Client { stream: other, uses: None });
            number
        };
        let for_client = weak.clone();
        let serve = move || Engine::serve_client(&for_client, stream, number);
        if std::thread::Builder::new().name("nbd client".into()).spawn(serve).is_err() {
            engine.clients.list.lock().by_number.remove(&number);
        }
    }
}

/// What a client may choose from.
struct Offer {
    engine: Weak<Engine>,
    number: u64,
}

impl Offer {
    fn open_in(&self, engine: &Engine, name: &str) -> Result<Box<dyn Export>, Refusal> {
        let (volume, snapshot) = match name.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(snapshot)),
            None => (name, None),
        };
        let _turn = engine.verbs.lock();
        let held = engine.held(volume)?;
        let info = held.pool.dataset_info(volume).map_err(refuse::pool)?;
        if info.volume.is_none() || engine.value(&held, volume, "volmode")? == "none" {
            let what = format!("'{volume}' is no volume that is shown");
            return Err(Refusal::new(Code::FsAbsent, what).with("fs", volume));
        }
        let handle = held.pool.open_dataset(volume).map_err(refuse::pool)?;
        let usage = mounts::usage_of(&held, Arc::new(Mutex::new(volume.to_owned())));
        // What came raw is kept as it was sealed.
        let read_only =
            held.pool.is_read_only() || info.raw || engine.value(&held, volume, "readonly")? == "on";
        let opened = Opened::new(handle, snapshot, usage, read_only).ok_or_else(|| {
            Refusal::new(Code::SnapshotAbsent, format!("there is no '{name}' that can be read"))
        })?;
        let mut list = engine.clients.list.lock();
        if let Some(client) = list.by_number.get_mut(&self.number) {
            client.uses = Some((held.pool.guid().0, info.id));
        }
        Ok(Box::new(opened))
    }
}

impl Exports for Offer {
    fn list(&self) -> Vec<String> {
        let Some(engine) = self.engine.upgrade() else { return Vec::new() };
        let mut names = Vec::new();
        for (_, held) in engine.select(&[]).unwrap_or_default() {
            for name in held.pool.datasets() {
                let Ok(info) = held.pool.dataset_info(&name) else { continue };
                let locked = info.encryption_root.is_some() && !info.key_loaded;
                if info.volume.is_none()
                    || locked
                    || engine.value(&held, &name, "volmode").is_ok_and(|v| v == "none")
                {
                    continue;
                }
                let snapshots = held.pool.snapshot_names(&name).unwrap_or_default();
                let snapshots = snapshots.into_iter().map(|snapshot| format!("{name}@{snapshot}"));
                let snapshots: Vec<String> = snapshots.collect();
                names.push(name);
                names.extend(snapshots);
            }
        }
        names
    }

    fn open(&self, name: &str) -> Result<Box<dyn Export>, String> {
        let engine = self.engine.upgrade().ok_or("the daemon ends")?;
        self.open_in(&engine, name).map_err(|refusal| refusal.to_string())
    }
}

/// A volume that a client has chosen.
struct Opened {
    files: FileSystem,
    bytes: u64,
    block_bytes: u32,
    read_only: bool,
    /// Where there was nothing but data when it was last looked at: the way to the next hole may be long. What is a hole since then
    /// reads as zeros, and to call it data is no lie to who reads.
    data: Range<u64>,
    /// For a snapshot: what says whether it is still there.
    snapshot: Option<SnapshotHandle>,
    // Dropped last: the dataset is in use until then.
    _handle: DatasetHandle,
}

impl Opened {
    fn new(
        handle: DatasetHandle,
        snapshot: Option<&str>,
        usage: Arc<dyn Fn() -> Usage + Send + Sync>,
        read_only: bool,
    ) -> Option<Opened> {
        let options = Options { atime: Atime::Off, usage, block_bytes: 4096 };
        let (files, snapshot) = match snapshot {
            None => (FileSystem::new(Arc::clone(handle.dataset()), options).ok()?, None),
            Some(name) => {
                let snapshot = handle.snapshots().open(name)?;
                let dataset = snapshot.with(Arc::clone)?;
                (FileSystem::of_snapshot(dataset, options), Some(snapshot))
            }
        };
        let attr = files.getattr(ROOT).ok().filter(|_| files.is_volume())?;
        let read_only = read_only || snapshot.is_some();
        let (bytes, block_bytes) = (attr.size, attr.blksize);
        Some(Opened { files, bytes, block_bytes, read_only, data: 0..0, snapshot, _handle: handle })
    }

    fn ask<T>(&self, ask: impl FnOnce(&FileSystem) -> steadfast_posix::Result<T>) -> Result<T, Fault> {
        let answer = match &self.snapshot {
            None => ask(&self.files),
            // Destroyed meanwhile.
            Some(snapshot) => snapshot.with(|_| ask(&self.files)).ok_or(Fault::Shutdown)?,
        };
        answer.map_err(fault)
    }
}

fn fault(errno: Errno) -> Fault {
    match errno {
        Errno::ENOSPC | Errno::EDQUOT => Fault::NoSpace,
        Errno::EROFS | Errno::EPERM | Errno::EACCES => Fault::Perm,
        Errno::EINVAL => Fault::Invalid,
        _ => Fault::Io,
    }
}

impl Export for Opened {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < out.len() {
            let count = self.ask(|files| files.read(ROOT, offset + done as u64, &mut out[done..]))?;
            if count == 0 {
                return Err(Fault::Io);
            }
            done += count;
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.ask(|files| files.write(ROOT, offset, data, false)).map(drop)
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Fault> {
        self.data = 0..0;
        self.ask(|files| files.fallocate(ROOT, Fallocate::PunchHole, offset, length, false)).map(drop)
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if self.read_only {
            return Ok(());
        }
        self.ask(|files| files.fsync(ROOT))
    }

    fn extent(&mut self, offset: u64, length: u64) -> Result<(u64, bool), Fault> {
        if self.data.contains(&offset) {
            return Ok(((self.data.end - offset).min(length), true));
        }
        let next = |data: bool| {
            let found = self.ask(|files| match files.seek(ROOT, offset, data) {
                Err(Errno::ENXIO) => Ok(None),
                found => found.map(Some),
            })?;
            Ok(found.unwrap_or(self.bytes))
        };
        let data = next(true)?;
        match data == offset {
            true => {
                let end = next(false)?;
                self.data = offset..end;
                Ok(((end - offset).min(length), true))
            }
            false => Ok(((data - offset).min(length), false)),
        }
    }
}

/// Text as part of an address: what is neither letter nor digit nor harmless is written as `%HH`.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'/' | b'-' | b'.' | b'_' | b'~' | b':' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}
