//! Which folder, socket, lock, log and cache file belong to this user.

use crate::refusal::{Code, Refusal};
use rustix::process::getuid;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Names of the sockets in the folder.
const SOCKET: &str = "daemon.sock";
const NBD_SOCKET: &str = "nbd.sock";
/// Added to the folder's path for the folder of the socket for everybody.
const PUBLIC: &str = ".public";
/// Bytes of a path in the address of a socket, without the zero at its end.
const SOCKET_PATH_MAX: usize = 107;

/// The environment that decides the places. Only the command line reads it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Surroundings {
    /// `--runtime-dir` or `STEADFAST_RUNTIME_DIR`: an isolated daemon with everything in this
    /// folder.
    pub runtime_dir: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`.
    pub xdg_runtime_dir: Option<PathBuf>,
    /// `XDG_STATE_HOME`.
    pub xdg_state_home: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`.
    pub xdg_config_home: Option<PathBuf>,
    /// `HOME`.
    pub home: Option<PathBuf>,
}

/// The places of one daemon.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Runtime {
    dir: PathBuf,
    cachefile: PathBuf,
    witnesses: PathBuf,
    hooks: PathBuf,
    mount_base: PathBuf,
    isolated: bool,
}

impl Runtime {
    /// Finds the places for the user with id `uid`; creates nothing.
    #[must_use]
    pub fn locate(around: &Surroundings, uid: u32) -> Runtime {
        let home = around.home.clone().unwrap_or_else(|| PathBuf::from("/"));
        let (dir, cachefile) = match (&around.runtime_dir, uid) {
            (Some(dir), _) => (dir.clone(), dir.join("pools.json")),
            (None, 0) => (PathBuf::from("/run/steadfast"), PathBuf::from("/var/lib/steadfast/pools.json")),
            (None, _) => {
                let state = match &around.xdg_state_home {
                    Some(xdg) if xdg.is_absolute() => xdg.clone(),
                    _ => home.join(".local/state"),
                };
                // Not in /tmp: whoever made the folder there first would keep this user's daemon
                // from starting.
                let dir = match &around.xdg_runtime_dir {
                    Some(xdg) if xdg.is_absolute() => xdg.join("steadfast"),
                    _ => state.join("steadfast/run"),
                };
                (dir, state.join("steadfast/pools.json"))
            }
        };
        let mount_base = if uid == 0 { PathBuf::from("/") } else { home.join("steadfast") };
        let witnesses = cachefile.with_file_name("anchors");
        let config = match (&around.runtime_dir, uid, &around.xdg_config_home) {
            (Some(dir), ..) => dir.clone(),
            (None, 0, _) => PathBuf::from("/etc/steadfast"),
            (None, _, Some(xdg)) if xdg.is_absolute() => xdg.join("steadfast"),
            (None, ..) => home.join(".config/steadfast"),
        };
        let hooks = config.join("events.d");
        Runtime { dir, cachefile, witnesses, hooks, mount_base, isolated: around.runtime_dir.is_some() }
    }

    /// The folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Was the folder chosen by hand? Then the daemon must be told so too.
    #[must_use]
    pub fn is_isolated(&self) -> bool {
        self.isolated
    }

    /// Socket of the daemon.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join(SOCKET)
    }

    /// Socket for NBD clients.
    #[must_use]
    pub fn nbd_socket(&self) -> PathBuf {
        self.dir.join(NBD_SOCKET)
    }

    /// Listens at [`Runtime::socket`].
    pub(crate) fn bind(&self) -> io::Result<UnixListener> {
        self.with_short_path(SOCKET, |socket| UnixListener::bind(socket))
    }

    /// Folder of the socket for everybody, beside the folder that is closed to others. Only root's
    /// daemon has one.
    #[must_use]
    pub fn public_dir(&self) -> PathBuf {
        let own = if self.isolated { self.dir.as_path() } else { Path::new("/run/steadfast") };
        let mut name = own.as_os_str().to_owned();
        name.push(PUBLIC);
        PathBuf::from(name)
    }

    /// Socket of root's daemon for users who look, or do what they were allowed to.
    #[must_use]
    pub fn public_socket(&self) -> PathBuf {
        self.public_dir().join(SOCKET)
    }

    /// Listens at [`Runtime::public_socket`], for everybody.
    ///
    /// # Errors
    /// [`Code::RuntimeDir`] if the folder is not ours alone to change.
    pub(crate) fn bind_public(&self) -> Result<UnixListener, Refusal> {
        let dir = self.public_dir();
        let refuse = |why: String| {
            let what = format!("the folder {} {why}", dir.display());
            Refusal::new(Code::RuntimeDir, what).with("dir", dir.display())
        };
        match DirBuilder::new().mode(0o755).create(&dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(refuse(format!("cannot be created: {error}")));
            }
            _ => {}
        }
        let found = fs::symlink_metadata(&dir).map_err(|error| refuse(format!("cannot be read: {error}")))?;
        if !found.is_dir() || found.uid() != getuid().as_raw() {
            return Err(refuse("is not a folder of this user".into()));
        }
        let bound = fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))
            .and_then(|()| match fs::remove_file(dir.join(SOCKET)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            })
            .and_then(|()| with_short_path(&dir, SOCKET, |socket| UnixListener::bind(socket)))
            .and_then(|listener| {
                let everybody = fs::Permissions::from_mode(0o666);
                fs::set_permissions(dir.join(SOCKET), everybody).map(|()| listener)
            });
        bound.map_err(|error| refuse(format!("takes no socket: {error}")))
    }

    /// Connects to [`Runtime::public_socket`].
    pub(crate) fn connect_public(&self) -> io::Result<UnixStream> {
        with_short_path(&self.public_dir(), SOCKET, |socket| UnixStream::connect(socket))
    }

    /// True if pools of this user are to be imported by this user's daemon.
    #[must_use]
    pub fn has_pools(&self) -> bool {
        crate::cachefile::Cachefile::new(&self.cachefile).load().is_ok_and(|pools| !pools.is_empty())
    }

    /// Listens at [`Runtime::nbd_socket`].
    pub(crate) fn bind_nbd(&self) -> io::Result<UnixListener> {
        self.with_short_path(NBD_SOCKET, |socket| UnixListener::bind(socket))
    }

    /// Connects to [`Runtime::socket`].
    pub(crate) fn connect(&self) -> io::Result<UnixStream> {
        self.with_short_path(SOCKET, |socket| UnixStream::connect(socket))
    }

    fn with_short_path<T>(&self, name: &str, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
        with_short_path(&self.dir, name, act)
    }

    /// Held exclusively while a daemon lives; holds its process id.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.dir.join("daemon.lock")
    }

    /// Log of a daemon in the background.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("daemon.log")
    }

    /// Pools to import at the next start.
    #[must_use]
    pub fn cachefile(&self) -> &Path {
        &self.cachefile
    }

    /// Folder of the records that this host keeps of the anchors of its pools.
    #[must_use]
    pub fn witnesses(&self) -> &Path {
        &self.witnesses
    }

    /// Log of events; it outlives the daemon.
    #[must_use]
    pub fn events_log(&self) -> PathBuf {
        self.cachefile.with_file_name("events.log")
    }

    /// Folder of the records of audits; they outlive the daemon.
    #[must_use]
    pub fn audits(&self) -> PathBuf {
        self.cachefile.with_file_name("audits")
    }

    /// Requests and bytes of stores by day and month; they outlive the daemon.
    #[must_use]
    pub fn costs(&self) -> PathBuf {
        self.cachefile.with_file_name("costs.json")
    }

    /// NFS clients that have locks; they are told when the daemon starts again.
    #[must_use]
    pub fn nfs_clients(&self) -> PathBuf {
        self.cachefile.with_file_name("nfs-clients")
    }

    /// Prices of stores that the operator wrote.
    #[must_use]
    pub fn prices(&self) -> PathBuf {
        self.hooks.with_file_name("prices.json")
    }

    /// Folder of the programs that run for an event.
    #[must_use]
    pub fn hooks(&self) -> &Path {
        &self.hooks
    }

    /// Folder of pools without a mountpoint of their own: `/`, or `~/steadfast` for ordinary users.
    #[must_use]
    pub fn mount_base(&self) -> &Path {
        &self.mount_base
    }

    /// Makes the folder if it is missing, and checks that it is ours alone.
    ///
    /// # Errors
    /// [`Code::RuntimeDir`].
    pub fn prepare(&self) -> Result<(), Refusal> {
        match fs::symlink_metadata(&self.dir) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let made = DirBuilder::new().recursive(true).mode(0o700).create(&self.dir);
                made.map_err(|error| self.refuse(format!("cannot be created: {error}")))?;
            }
            Err(error) => return Err(self.refuse(format!("cannot be looked at: {error}"))),
        }
        self.check()
    }

    /// Checks that the folder is a folder, ours, and closed to others.
    ///
    /// # Errors
    /// [`Code::RuntimeDir`].
    pub fn check(&self) -> Result<(), Refusal> {
        let found = fs::symlink_metadata(&self.dir)
            .map_err(|error| self.refuse(format!("cannot be read: {error}")))?;
        if !found.is_dir() {
            return Err(self.refuse("is not a folder"));
        }
        if found.uid() != getuid().as_raw() {
            return Err(self.refuse(format!("belongs to user {}", found.uid())));
        }
        if found.mode() & 0o077 != 0 {
            // Ours, but open: a folder made by hand for a test, say. Closing it loses nothing.
            fs::set_permissions(&self.dir, fs::Permissions::from_mode(0o700)).map_err(|error| {
                self.refuse(format!("is open to other users, and its mode cannot be changed: {error}"))
            })?;
        }
        Ok(())
    }

    /// Opens the log for a daemon in the background.
    ///
    /// # Errors
    /// [`Code::RuntimeDir`].
    pub fn open_log(&self) -> Result<File, Refusal> {
        let opened = OpenOptions::new().append(true).create(true).mode(0o600).open(self.log());
        opened.map_err(|error| self.refuse(format!("cannot store the log: {error}")))
    }

    fn refuse(&self, what: impl Into<String>) -> Refusal {
        let what = format!("the runtime folder {} {}", self.dir.display(), what.into());
        Refusal::new(Code::RuntimeDir, what).with("dir", self.dir.display())
    }
}

/// The address of a socket holds a path of 107 bytes (unix(7)); a folder may lie deeper. Then the
/// folder, opened, gives a shorter one.
fn with_short_path<T>(folder: &Path, name: &str, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let socket = folder.join(name);
    if socket.as_os_str().len() <= SOCKET_PATH_MAX {
        return act(&socket);
    }
    let dir = File::open(folder)?;
    act(Path::new(&format!("/proc/self/fd/{}/{name}", dir.as_raw_fd())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn around() -> Surroundings {
        Surroundings {
            runtime_dir: None,
            xdg_runtime_dir: Some("/run/user/7".into()),
            xdg_state_home: None,
            xdg_config_home: None,
            home: Some("/home/ann".into()),
        }
    }

    #[test]
    fn root_and_users_have_places_of_their_own() {
        let root = Runtime::locate(&around(), 0);
        assert_eq!(root.socket(), Path::new("/run/steadfast/daemon.sock"));
        assert_eq!(root.cachefile(), Path::new("/var/lib/steadfast/pools.json"));
        assert_eq!(root.events_log(), Path::new("/var/lib/steadfast/events.log"));
        assert_eq!(root.hooks(), Path::new("/etc/steadfast/events.d"));
        assert_eq!(root.mount_base(), Path::new("/"));
        let ann = Runtime::locate(&around(), 7);
        assert_eq!(ann.socket(), Path::new("/run/user/7/steadfast/daemon.sock"));
        assert_eq!(ann.cachefile(), Path::new("/home/ann/.local/state/steadfast/pools.json"));
        assert_eq!(ann.mount_base(), Path::new("/home/ann/steadfast"));
        assert_eq!(ann.hooks(), Path::new("/home/ann/.config/steadfast/events.d"));
        let bare = Runtime::locate(&Surroundings { xdg_runtime_dir: None, ..around() }, 7);
        assert_eq!(bare.dir(), Path::new("/home/ann/.local/state/steadfast/run"));
    }

    #[test]
    fn a_folder_chosen_by_hand_holds_everything() {
        let chosen = Surroundings { runtime_dir: Some("/x".into()), ..around() };
        let runtime = Runtime::locate(&chosen, 0);
        assert_eq!(runtime.cachefile(), Path::new("/x/pools.json"));
        assert!(runtime.is_isolated());
    }

    #[test]
    fn a_folder_may_lie_deeper_than_the_address_of_a_socket_holds() {
        let base = std::env::temp_dir().join(format!("steadfast-deep-{}", std::process::id()));
        for length in [SOCKET_PATH_MAX, SOCKET_PATH_MAX + 1, 600] {
            let fill = length - base.as_os_str().len() - "//daemon.sock".len();
            let deep: PathBuf =
                "x".repeat(fill).as_bytes().chunks(200).map(|part| str::from_utf8(part).unwrap()).collect();
            let chosen = Surroundings { runtime_dir: Some(base.join(deep)), ..Surroundings::default() };
            let runtime = Runtime::locate(&chosen, getuid().as_raw());
            runtime.prepare().unwrap();
            let listener = runtime.bind().unwrap();
            assert!(runtime.socket().exists());
            let mut near = runtime.connect().unwrap();
            let (mut far, _) = listener.accept().unwrap();
            near.write_all(b"x").unwrap();
            far.read_exact(&mut [0]).unwrap();
            fs::remove_dir_all(&base).unwrap();
        }
    }

    #[test]
    fn a_link_or_file_in_the_folders_place_is_refused() {
        let base = std::env::temp_dir().join(format!("steadfast-runtime-{}", std::process::id()));
        fs::create_dir_all(&base).unwrap();
        let at = |name: &str| {
            let chosen = Surroundings { runtime_dir: Some(base.join(name)), ..Surroundings::default() };
            Runtime::locate(&chosen, getuid().as_raw())
        };
        std::os::unix::fs::symlink("/tmp", base.join("link")).unwrap();
        fs::write(base.join("file"), "").unwrap();
        assert_eq!(at("link").prepare().unwrap_err().code, Code::RuntimeDir);
        assert_eq!(at("file").prepare().unwrap_err().code, Code::RuntimeDir);
        at("new/deep").prepare().unwrap();
        assert_eq!(fs::metadata(base.join("new/deep")).unwrap().mode() & 0o777, 0o700);
        fs::create_dir(base.join("open")).unwrap();
        fs::set_permissions(base.join("open"), fs::Permissions::from_mode(0o755)).unwrap();
        at("open").prepare().unwrap();
        assert_eq!(fs::metadata(base.join("open")).unwrap().mode() & 0o777, 0o700);
        fs::remove_dir_all(&base).unwrap();
    }
}
