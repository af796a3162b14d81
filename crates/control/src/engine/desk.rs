//! Snapshots that users take, destroy and rename in the folder `.zfs/snapshot` of a mount.
//!
//! The thread that serves such a request may be one that another verb waits for: a forced unmount
//! ends when the requests of the mount have ended. So it waits for its turn for a limited time, and
//! is refused after that.

use crate::api::{FsSnapshot, FsSnapshotDestroy, Properties, Request};
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool, Me};
use crate::engine::zfs::destroy::check_cloneless;
use crate::refusal::{Code, Refusal};
use crate::rights;
use parking_lot::Mutex;
use std::sync::{Arc, Weak};
use std::time::Duration;
use steadfast_fuse::Errno;
use steadfast_mount::{Person, SnapshotDesk};
use steadfast_property::check_snapshot_name;

/// Longest wait for the turn.
const PATIENCE: Duration = Duration::from_secs(5);

/// The desk of one mount.
pub(super) struct Desk {
    engine: Me,
    /// Name of the mounted file system.
    name: Arc<Mutex<String>>,
}

impl Desk {
    pub(super) fn new(engine: &Me, name: Arc<Mutex<String>>) -> Desk {
        Desk { engine: Arc::clone(engine), name }
    }

    fn engine(&self) -> Result<Arc<Engine>, Errno> {
        self.engine.get().and_then(Weak::upgrade).ok_or(Errno::EBUSY)
    }
}

impl SnapshotDesk for Desk {
    fn take(&self, person: Person, snapshot: &str) -> Result<(), Errno> {
        let (engine, fs) = (self.engine()?, self.name.lock().clone());
        let name = format!("{fs}@{snapshot}");
        let asked = FsSnapshot { names: vec![name.clone()], recursive: false, properties: Properties::new() };
        let caller = caller(person, format!("zfs snapshot {name}"));
        let held = permitted(&engine, &caller, &fs, &name, Some(&Request::FsSnapshot(asked)))?;
        // As with the command, a page that cannot be written does not keep the others out.
        let _ = held.settle(|mounted| mounted == fs);
        carried_out(&engine, &held, &caller, &fs, || {
            held.pool.datasets().take_snapshots(&[name], &Properties::new()).map_err(refuse::pool)
        })
    }

    fn destroy(&self, person: Person, snapshot: &str) -> Result<(), Errno> {
        let (engine, fs) = (self.engine()?, self.name.lock().clone());
        let name = format!("{fs}@{snapshot}");
        let asked = FsSnapshotDestroy {
            name: fs.clone(),
            snapshots: snapshot.to_owned(),
            ..FsSnapshotDestroy::default()
        };
        let caller = caller(person, format!("zfs destroy {name}"));
        let held = permitted(&engine, &caller, &fs, &name, Some(&Request::FsSnapshotDestroy(asked)))?;
        let doomed = [name];
        carried_out(&engine, &held, &caller, &fs, || {
            check_cloneless(&held, &doomed)?;
            held.pool.datasets().check_destroy_snapshots(&doomed, false).map_err(refuse::pool)?;
            held.pool.datasets().destroy_snapshots(&doomed, false).map_err(refuse::pool)
        })
    }

    fn rename(&self, person: Person, snapshot: &str, to: &str) -> Result<(), Errno> {
        let (engine, fs) = (self.engine()?, self.name.lock().clone());
        let name = format!("{fs}@{snapshot}");
        let caller = caller(person, format!("zfs rename {name} {fs}@{to}"));
        let held = permitted(&engine, &caller, &fs, &format!("{fs}@{to}"), None)?;
        carried_out(&engine, &held, &caller, &fs, || {
            held.pool.datasets().rename_snapshots(&[name], to).map_err(refuse::pool)
        })
    }
}

fn caller(person: Person, command: String) -> Caller {
    let Person { uid, gid, pid } = person;
    let guest = uid != 0 && uid != rustix::process::getuid().as_raw();
    Caller { uid, gid, guest, pid, command, descriptor: None, steps: None }
}

/// Refuses a name that no snapshot can have, and a guest who was not allowed to do this. Without a
/// request no permission is enough.
fn permitted(
    engine: &Engine,
    caller: &Caller,
    fs: &str,
    name: &str,
    request: Option<&Request>,
) -> Result<Arc<ImportedPool>, Errno> {
    check_snapshot_name(name).map_err(|_| Errno::EINVAL)?;
    if caller.guest {
        let allowed = request.map_or_else(|| Err(rights::denied(caller)), |r| engine.permit_guest(caller, r));
        allowed.map_err(|refusal| errno(&refusal))?;
    }
    let held = engine.held(fs).map_err(|refusal| errno(&refusal))?;
    engine.check_writable(&held).map_err(|refusal| errno(&refusal))?;
    Ok(held)
}

fn carried_out(
    engine: &Engine,
    held: &ImportedPool,
    caller: &Caller,
    fs: &str,
    change: impl FnOnce() -> Result<(), Refusal>,
) -> Result<(), Errno> {
    let _turn = engine.verbs.try_lock_for(PATIENCE).ok_or(Errno::EAGAIN)?;
    change().map_err(|refusal| errno(&refusal))?;
    held.note_snapshots([fs]);
    engine.log(held, caller);
    Ok(())
}

fn errno(refusal: &Refusal) -> Errno {
    match refusal.code {
        Code::PeerRights => Errno::EPERM,
        Code::SnapshotExists => Errno::EEXIST,
        Code::SnapshotAbsent | Code::FsAbsent | Code::PoolAbsent => Errno::ENOENT,
        Code::SnapshotHeld | Code::SnapshotClones | Code::FsBusy => Errno::EBUSY,
        Code::PoolReadonly => Errno::EROFS,
        Code::PropCount => Errno::EDQUOT,
        Code::SnapshotSpace => Errno::ENOSPC,
        Code::NameInvalid => Errno::EINVAL,
        _ => Errno::EIO,
    }
}
