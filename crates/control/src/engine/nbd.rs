//! NBD: the socket beside the daemon's own, its clients, and the volumes that they may open.
//!
//! ## Invariants
//! [nbd_client.1] A client that has opened a volume holds a handle of its dataset, as a mount does.
//!      The volume is not destroyed, rolled back or locked, and its pool is not exported, before
//!      the connection ends. `Engine::part_clients`
//! [nbd_client.2] A volume is opened in turn with the verbs that change something ([engine.1]).
//! [nbd_client.3] There are at most [`CLIENTS_MAX`] clients, each with one thread.

use crate::engine::nbd_clients::{CLIENTS_MAX, Client, List};
use crate::engine::state::{Engine, ImportedPool};
use crate::engine::{mounts, refuse};
use crate::refusal::{Code, Refusal};
use parking_lot::Mutex;
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Weak};
use std::time::Duration;
use steadfast_mount::{OpenVolume, VolumeClient};
use steadfast_nbd::{Export, Exports};

/// With a smaller limit of descriptors NBD is not served.
const DESCRIPTORS_MIN: u64 = 64;

/// Longest wait for a client that was cut off.
const PARTING: Duration = Duration::from_secs(10);

impl Engine {
    /// Serves NBD clients until the process ends. Failures are reported on stderr.
    pub(super) fn serve_volumes(self: &Arc<Self>) {
        let socket = self.runtime.nbd_socket();
        // accept(2) needs a descriptor for each client. If there are only a few, commands need them
        // more.
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        if limit.is_some_and(|limit| limit < DESCRIPTORS_MIN) {
            eprintln!(
                "steadfast: volumes are not exported at {}: the limit of open files is below {DESCRIPTORS_MIN}",
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
            eprintln!("steadfast: volumes are not exported at {}: {error}", socket.display());
        }
    }

    /// Address of a volume for NBD clients, if it is served.
    pub(super) fn nbd_address(&self, held: &ImportedPool, name: &str) -> Result<Option<String>, Refusal> {
        if self.value(held, name, "volmode")? == "none" {
            return Ok(None);
        }
        let socket = self.runtime.nbd_socket();
        Ok(Some(format!("nbd+unix:///{}?socket={}", escaped(name), escaped(&socket.display().to_string()))))
    }

    /// Refuses if a client has opened a volume at or below `name`; with `force` cuts it off, and
    /// waits until it has closed it.
    pub(super) fn part_clients(&self, held: &ImportedPool, name: &str, force: bool) -> Result<(), Refusal> {
        let below = format!("{name}/");
        let guid = held.pool.guid().0;
        let mut touched = Vec::new();
        for volume in held.pool.datasets().names().into_iter().filter(|n| n == name || n.starts_with(&below))
        {
            let info = held.pool.datasets().dataset_info(&volume).map_err(refuse::pool)?;
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
                    // It may have disconnected by itself.
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
                let what = format!("an NBD client uses '{volume}'");
                Err(Refusal::new(Code::VolumeBusy, what).with("fs", volume))
            }
        }
    }

    /// Serves a client until it leaves.
    fn serve_client(weak: &Weak<Engine>, stream: UnixStream, number: u64) {
        let mut ours = stream;
        let offer = VolumeExports { engine: weak.clone(), number };
        let _present = ClientEntry { engine: weak.clone(), number };
        // The client knows how it ended.
        let _ = steadfast_nbd::serve(&mut ours, &offer);
    }
}

/// Lists a client until its thread ends, also by a panic ([nbd_client.1]).
struct ClientEntry {
    engine: Weak<Engine>,
    number: u64,
}

impl Drop for ClientEntry {
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
            list.by_number.insert(number, Client { stream: Arc::new(other), uses: None });
            number
        };
        let for_client = weak.clone();
        let serve = move || Engine::serve_client(&for_client, stream, number);
        if std::thread::Builder::new().name("nbd client".into()).spawn(serve).is_err() {
            engine.clients.list.lock().by_number.remove(&number);
        }
    }
}

/// The volumes that a client may open.
struct VolumeExports {
    engine: Weak<Engine>,
    number: u64,
}

impl VolumeExports {
    fn open_in(&self, engine: &Engine, name: &str) -> Result<Box<dyn Export>, Refusal> {
        let (volume, snapshot) = match name.split_once('@') {
            Some((volume, snapshot)) => (volume, Some(snapshot)),
            None => (name, None),
        };
        let _turn = engine.verbs.lock();
        let held = engine.held(volume)?;
        let info = held.pool.datasets().dataset_info(volume).map_err(refuse::pool)?;
        if info.volume.is_none() || engine.value(&held, volume, "volmode")? == "none" {
            let what = format!("'{volume}' is not a volume, or has volmode=none");
            return Err(Refusal::new(Code::FsAbsent, what).with("fs", volume));
        }
        let handle = held.pool.datasets().open_dataset(volume).map_err(refuse::pool)?;
        let usage = mounts::usage_of(&held, Arc::new(Mutex::new(volume.to_owned())));
        // A volume from a raw stream cannot be written.
        let read_only =
            held.pool.is_read_only() || info.raw || engine.value(&held, volume, "readonly")? == "on";
        let absent = || {
            let what = format!("there is no volume or snapshot '{name}' that can be read");
            Refusal::new(Code::SnapshotAbsent, what)
        };
        // Listed until its thread ends ([nbd_client.1]).
        let connection =
            engine.clients.list.lock().by_number.get(&self.number).map(|client| Arc::clone(&client.stream));
        let client = VolumeClient::new(connection.ok_or_else(absent)?);
        let opened = OpenVolume::new(handle, snapshot, usage, read_only, client).ok_or_else(absent)?;
        let mut list = engine.clients.list.lock();
        if let Some(client) = list.by_number.get_mut(&self.number) {
            client.uses = Some((held.pool.guid().0, info.id));
        }
        Ok(Box::new(opened))
    }
}

impl Exports for VolumeExports {
    fn list(&self) -> Vec<String> {
        let Some(engine) = self.engine.upgrade() else { return Vec::new() };
        let mut names = Vec::new();
        for (_, held) in engine.select(&[]).unwrap_or_default() {
            for name in held.pool.datasets().names() {
                let Ok(info) = held.pool.datasets().dataset_info(&name) else { continue };
                let locked = info.encryption_root.is_some() && !info.key_loaded;
                if info.volume.is_none()
                    || locked
                    || engine.value(&held, &name, "volmode").is_ok_and(|v| v == "none")
                {
                    continue;
                }
                let snapshots = held.pool.datasets().snapshot_names(&name).unwrap_or_default();
                let snapshots = snapshots.into_iter().map(|snapshot| format!("{name}@{snapshot}"));
                let snapshots: Vec<String> = snapshots.collect();
                names.push(name);
                names.extend(snapshots);
            }
        }
        names
    }

    fn open(&self, name: &str) -> Result<Box<dyn Export>, String> {
        let engine = self.engine.upgrade().ok_or("the daemon is stopping")?;
        self.open_in(&engine, name).map_err(|refusal| refusal.to_string())
    }
}

/// Text as part of a URI: other characters than letters, digits and `/-._~:` as `%HH`.
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
