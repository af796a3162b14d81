//! Attaching a connection to a directory, by `mount(2)` or by `fusermount3`, and detaching it.

use crate::aside::aside;
use crate::device;
use crate::error::Error;
use crate::options::{MountOptions, MountVia};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::io::Errno as OsErrno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A mount that exists, and the way it was made.
#[derive(Clone, Debug)]
pub(crate) struct Mounted {
    /// Absolute, without symbolic links.
    pub mountpoint: PathBuf,
    /// Device number of the file system; tells our mount from another on the same directory.
    pub device: DeviceNumber,
    by_helper: bool,
}

/// Major and minor number as `/proc/self/mountinfo` prints them.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct DeviceNumber {
    pub major: u32,
    pub minor: u32,
}

/// How to detach.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum UnmountMode {
    /// Only if nothing is in use.
    Clean,
    /// Take the name away now; files that are open go on until they are closed.
    Lazy,
    /// Cut the connection: everything under way and everything open fails. As root only; otherwise
    /// as `Lazy`.
    Force,
}

/// Mounts, and returns the connection with its first request (the handshake) waiting.
pub(crate) fn mount(mountpoint: &Path, options: &MountOptions) -> Result<(OwnedFd, Mounted), Error> {
    let mountpoint = aside(|| resolve(mountpoint, options.root_is_file))?;
    let root = rustix::process::geteuid().is_root();
    let by_helper = match options.via {
        MountVia::Direct => false,
        MountVia::Helper => true,
        MountVia::Auto => !root,
    };
    let fd = if by_helper {
        mount_by_helper(&mountpoint, options)?
    } else {
        match mount_directly(&mountpoint, options) {
            // Root of a container without CAP_SYS_ADMIN: the helper may be allowed what we are not.
            Err(Error::MountRefused { source, .. })
                if options.via == MountVia::Auto && source.raw_os_error() == Some(libc::EPERM) =>
            {
                mount_by_helper(&mountpoint, options)?
            }
            other => other?,
        }
    };
    let message = match top_mount(&mountpoint) {
        Ok(Some(device)) => return Ok((fd, Mounted { mountpoint, device, by_helper })),
        Ok(None) => "the new mount is not listed in /proc/self/mountinfo".to_owned(),
        Err(error) => error.to_string(),
    };
    // It is on top, as it was made a moment ago, and nobody will serve it.
    let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
    let _ = rustix::mount::unmount(&mountpoint, flags);
    Err(Error::Handshake { message })
}

fn resolve(path: &Path, root_is_file: bool) -> Result<PathBuf, Error> {
    let unreachable = |source: io::Error| match source.raw_os_error() {
        Some(libc::ENOTCONN) => Error::MountpointStale { path: path.to_owned() },
        _ => Error::MountpointUnreachable { path: path.to_owned(), source },
    };
    if rustix::process::geteuid().is_root()
        && let Some((link, uid)) = foreign_link(path).map_err(unreachable)?
    {
        return Err(Error::MountpointLink { path: path.to_owned(), link, uid });
    }
    let resolved = std::fs::canonicalize(path).map_err(unreachable)?;
    let metadata = std::fs::metadata(&resolved).map_err(unreachable)?;
    match (root_is_file, metadata.is_dir(), metadata.is_file()) {
        (false, true, _) | (true, _, true) => Ok(resolved),
        (false, ..) => Err(Error::MountpointNotDirectory { path: resolved }),
        (true, ..) => Err(Error::MountpointNotFile { path: resolved }),
    }
}

/// A symbolic link on the way to a path that neither root nor we own, and its owner.
fn foreign_link(path: &Path) -> io::Result<Option<(PathBuf, u32)>> {
    /// As many as the kernel follows.
    const LINKS_MAX: usize = 40;
    let own = rustix::process::geteuid().as_raw();
    let mut links = 0;
    let mut left: Vec<OsString> = path.iter().rev().map(OsStr::to_owned).collect();
    let mut at = PathBuf::new();
    while let Some(part) = left.pop() {
        // `..` of a folder that was reached without links is its parent.
        if part == ".." {
            at.pop();
            continue;
        }
        at.push(&part);
        let found = std::fs::symlink_metadata(&at)?;
        if !found.is_symlink() {
            continue;
        }
        if found.uid() != 0 && found.uid() != own {
            return Ok(Some((at, found.uid())));
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(io::Error::from_raw_os_error(libc::ELOOP));
        }
        let to = std::fs::read_link(&at)?;
        at.pop();
        left.extend(to.iter().rev().map(OsStr::to_owned));
    }
    Ok(None)
}

/// The mountpoint as a path that nobody can change: a descriptor, opened without following a link.
fn fixed(mountpoint: &Path) -> io::Result<OwnedFd> {
    use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    match openat2(CWD, mountpoint, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Before Linux 5.6, or a filter of system calls.
        Err(OsErrno::NOSYS | OsErrno::PERM) => Ok(rustix::fs::open(mountpoint, flags, Mode::empty())?),
        opened => Ok(opened?),
    }
}

fn mount_directly(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, Error> {
    let fd = device::open()?;
    let kind = match &options.subtype {
        Some(subtype) => format!("fuse.{subtype}"),
        None => "fuse".to_owned(),
    };
    let mut data = format!(
        "fd={},rootmode={:o},user_id={},group_id={}",
        fd.as_raw_fd(),
        if options.root_is_file { libc::S_IFREG } else { libc::S_IFDIR },
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    if options.allow_other {
        data.push_str(",allow_other");
    }
    if options.default_permissions {
        data.push_str(",default_permissions");
    }
    let mut flags = MountFlags::empty();
    flags.set(MountFlags::RDONLY, options.read_only);
    flags.set(MountFlags::NOSUID, options.flags.nosuid);
    flags.set(MountFlags::NODEV, options.flags.nodev);
    flags.set(MountFlags::NOEXEC, options.flags.noexec);
    flags.set(MountFlags::NOATIME, options.flags.noatime);
    flags.set(MountFlags::STRICTATIME, options.flags.strictatime);
    flags.set(MountFlags::NODIRATIME, options.flags.nodiratime);
    flags.set(MountFlags::SYNCHRONOUS, options.flags.synchronous);
    let refused = |source: io::Error| Error::MountRefused { path: mountpoint.to_owned(), source };
    let data = CString::new(data).expect("made of numbers and words");
    // A user may exchange a folder on the way for a link since the path was resolved.
    let place = fixed(mountpoint).map_err(refused)?;
    let at = format!("/proc/self/fd/{}", place.as_raw_fd());
    rustix::mount::mount(options.fs_name.as_str(), at.as_str(), kind.as_str(), flags, data.as_c_str())
        .map_err(|errno| match errno {
            OsErrno::NODEV => Error::DeviceMissing,
            _ => refused(errno.into()),
        })?;
    Ok(fd)
}

/// Environment variable by which `fusermount3` learns the number of its end of the socket.
const HELPER_SOCKET: &str = "_FUSE_COMMFD";
const HELPER: &str = "fusermount3";
/// Where the helper is looked for besides `PATH`, which daemons often lack.
const HELPER_DIRECTORIES: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/usr/sbin"];

fn find_helper() -> Result<PathBuf, Error> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    find_in(std::env::split_paths(&path).chain(HELPER_DIRECTORIES.iter().map(PathBuf::from)))
}

fn find_in(directories: impl Iterator<Item = PathBuf>) -> Result<PathBuf, Error> {
    for directory in directories.filter(|d| d.is_absolute()) {
        let candidate = directory.join(HELPER);
        if rustix::fs::access(&candidate, rustix::fs::Access::EXEC_OK).is_ok() && candidate.is_file() {
            return Ok(candidate);
        }
    }
    Err(Error::HelperMissing)
}

fn helper_options(options: &MountOptions) -> String {
    let mut words = format!("fsname={}", escape(&options.fs_name));
    if let Some(subtype) = &options.subtype {
        words.push_str(&format!(",subtype={}", escape(subtype)));
    }
    for (on, word) in [
        (options.allow_other, "allow_other"),
        (options.default_permissions, "default_permissions"),
        (options.read_only, "ro"),
        (options.flags.nosuid, "nosuid"),
        (options.flags.nodev, "nodev"),
        (options.flags.noexec, "noexec"),
        (options.flags.noatime, "noatime"),
        (options.flags.synchronous, "sync"),
    ] {
        if on {
            words.push(',');
            words.push_str(word);
        }
    }
    words
}

/// The helper separates options by commas and takes a backslash as an escape.
fn escape(text: &str) -> String {
    text.chars()
        .flat_map(|c| [Some('\\').filter(|_| c == ',' || c == '\\'), Some(c)].into_iter().flatten())
        .collect()
}

fn mount_by_helper(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, Error> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    if !Path::new("/dev/fuse").exists() {
        return Err(Error::DeviceMissing);
    }
    let program = find_helper()?;
    let not_run = |source: io::Error| Error::HelperNotRun { program: program.clone(), source };
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| not_run(errno.into()))?;
    let number = theirs.as_raw_fd();
    let mut command = Command::new(&program);
    command.arg("-o").arg(helper_options(options)).arg("--").arg(mountpoint);
    command.env(HELPER_SOCKET, number.to_string()).current_dir("/");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: runs in the forked child before exec; fcntl(2) may be called there, nothing is
    // allocated, and `number` is open, since `theirs` is held until the child has started.
    unsafe {
        command.pre_exec(move || {
            let fd = rustix::fd::BorrowedFd::borrow_raw(number);
            Ok(rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?)
        });
    }
    let child = command.spawn().map_err(not_run)?;
    drop(theirs);
    // The socket closes when the helper ends, so this ends too.
    let received = receive_descriptor(&ours);
    let output = child.wait_with_output().map_err(not_run)?;
    match received {
        Some(fd) if output.status.success() => Ok(fd),
        _ => {
            let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let message =
                if message.is_empty() { format!("it ended with {}", output.status) } else { message };
            Err(Error::HelperRefused { message })
        }
    }
}

/// The descriptor that arrives with one byte, or `None` if the other side closes first.
fn receive_descriptor(socket: &OwnedFd) -> Option<OwnedFd> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
    loop {
        let mut byte = [0u8; 1];
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut iov = [io::IoSliceMut::new(&mut byte)];
        match recvmsg(socket.as_fd(), &mut iov, &mut ancillary, RecvFlags::CMSG_CLOEXEC) {
            Err(OsErrno::INTR) => {}
            Err(_) => return None,
            Ok(_) => {
                return ancillary.drain().find_map(|message| match message {
                    RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
                    _ => None,
                });
            }
        }
    }
}

/// Detaches. A mount that is gone already is fine.
pub(crate) fn unmount(mounted: &Mounted, mode: UnmountMode) -> Result<(), Error> {
    let path = &mounted.mountpoint;
    match top_mount(path)? {
        Some(device) if device == mounted.device => {}
        Some(_) if is_mounted(mounted)? => return Err(Error::MountedOver { path: path.clone() }),
        _ => return Ok(()),
    }
    let flags = match mode {
        UnmountMode::Clean => UnmountFlags::empty(),
        UnmountMode::Lazy => UnmountFlags::DETACH,
        UnmountMode::Force => UnmountFlags::FORCE | UnmountFlags::DETACH,
    };
    match aside(|| rustix::mount::unmount(path, flags | UnmountFlags::NOFOLLOW)) {
        Ok(()) => Ok(()),
        Err(OsErrno::PERM) if mounted.by_helper => unmount_by_helper(mounted, mode),
        Err(OsErrno::BUSY) => Err(Error::Busy { path: path.clone() }),
        // A mount of a folder above hides it.
        Err(OsErrno::INVAL | OsErrno::NOENT | OsErrno::NOTDIR) if is_mounted(mounted)? => {
            Err(Error::MountedOver { path: path.clone() })
        }
        // Somebody was faster.
        Err(_) if !is_mounted(mounted)? => Ok(()),
        Err(errno) => Err(Error::UnmountRefused { path: path.clone(), source: errno.into() }),
    }
}

fn unmount_by_helper(mounted: &Mounted, mode: UnmountMode) -> Result<(), Error> {
    let program = find_helper()?;
    let mut command = Command::new(&program);
    command.arg(if mode == UnmountMode::Clean { "-u" } else { "-uz" }).arg("--").arg(&mounted.mountpoint);
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.output().map_err(|source| Error::HelperNotRun { program, source })?;
    if output.status.success() || !is_mounted(mounted)? {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if message.contains("busy") {
        return Err(Error::Busy { path: mounted.mountpoint.clone() });
    }
    Err(Error::HelperRefused { message })
}

/// Takes a mount away whose server is gone (every access answers `ENOTCONN`). True if there was
/// one. Anything that works, or is no FUSE mount, is left alone.
pub fn clear_stale(mountpoint: &Path) -> Result<bool, Error> {
    let stale = || rustix::fs::statvfs(mountpoint).err() == Some(OsErrno::NOTCONN);
    if !aside(stale) {
        return Ok(false);
    }
    // The mountpoint itself cannot be resolved; the directory around it can.
    let unreachable = |source| Error::MountpointUnreachable { path: mountpoint.to_owned(), source };
    let path = match (mountpoint.parent(), mountpoint.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            aside(|| std::fs::canonicalize(parent)).map_err(unreachable)?.join(name)
        }
        _ => mountpoint.to_owned(),
    };
    let Some(device) = top_mount(&path)? else { return Ok(false) };
    let by_helper = !rustix::process::geteuid().is_root();
    unmount(&Mounted { mountpoint: path, device, by_helper }, UnmountMode::Lazy)?;
    Ok(true)
}

/// The file of the kernel's control file system that ends a mount's connection when written to.
/// Where nobody mounted that file system, root reaches it through a mount without a name.
pub(crate) fn open_abort(mounted: &Mounted) -> io::Result<OwnedFd> {
    use rustix::fs::{Mode, OFlags};
    use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
    let file = format!("{}/abort", mounted.device.minor);
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let usual = Path::new("/sys/fs/fuse/connections").join(&file);
    match rustix::fs::open(&usual, flags, Mode::empty()) {
        Err(OsErrno::NOENT) => {}
        other => return Ok(other?),
    }
    let context = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(context.as_fd())?;
    let root = fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    Ok(rustix::fs::openat(&root, &file, flags, Mode::empty())?)
}

/// Is this very mount attached in this mount namespace?
pub(crate) fn is_mounted(mounted: &Mounted) -> Result<bool, Error> {
    let ours = |line: &MountLine| line.device == mounted.device && line.mountpoint == mounted.mountpoint;
    Ok(mount_table()?.iter().any(ours))
}

/// The device on top of the mounts at `path`.
fn top_mount(path: &Path) -> Result<Option<DeviceNumber>, Error> {
    Ok(mount_table()?.into_iter().rev().find(|line| line.mountpoint == path).map(|line| line.device))
}

struct MountLine {
    device: DeviceNumber,
    mountpoint: PathBuf,
}

/// Reading the table never asks a file system anything, unlike `stat(2)` on a mountpoint. A table
/// that cannot be read (no descriptor is free, say) is not an empty one: a mount would be taken for
/// gone.
fn mount_table() -> Result<Vec<MountLine>, Error> {
    let table = std::fs::read("/proc/self/mountinfo").map_err(|source| Error::TableUnreadable { source })?;
    Ok(table.split(|&b| b == b'\n').filter_map(parse_mount_line).collect())
}

/// Fields: mount id, parent id, `major:minor`, root, mountpoint with octal escapes, and more.
fn parse_mount_line(line: &[u8]) -> Option<MountLine> {
    let mut fields = line.split(|&b| b == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let mountpoint = unescape(fields.nth(1)?);
    Some(MountLine {
        device: DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? },
        mountpoint: PathBuf::from(OsStr::from_bytes(&mountpoint)),
    })
}

/// The kernel writes space, tab, newline and backslash as a backslash and three octal digits.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, tail)) = rest.split_first() {
        let octal = tail
            .first_chunk::<3>()
            .filter(|digits| first == b'\\' && digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        if let Some(digits) = octal {
            out.push(digits.iter().fold(0u8, |value, d| value.wrapping_mul(8).wrapping_add(d - b'0')));
            rest = &tail[3..];
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

/// Raises the read-ahead of a mount; the kernel offers 128 KiB by itself.
pub(crate) fn set_read_ahead(device: DeviceNumber, kb: u32) -> io::Result<()> {
    std::fs::write(format!("/sys/class/bdi/{}:{}/read_ahead_kb", device.major, device.minor), kb.to_string())
}

/// Lets collected writes of a mount fill so many per cent of what the kernel lets be dirty, like
/// those of a disk. Its limit for FUSE, 1 % kept strictly, is lifted; what it guards against is a
/// server that waits for memory which only the server's own answers would clean: see
/// [`become_io_flusher`].
pub(crate) fn set_dirty_percent(device: DeviceNumber, percent: u8) -> io::Result<()> {
    let bdi = format!("/sys/class/bdi/{}:{}", device.major, device.minor);
    std::fs::write(format!("{bdi}/max_ratio"), percent.to_string())?;
    std::fs::write(format!("{bdi}/strict_limit"), "0")
}

/// Lets collected writes of a mount fill so many bytes at most. The kernel makes writers wait
/// before that, and passes it by some MiB.
pub(crate) fn set_dirty_bytes(device: DeviceNumber, bytes: u64) -> io::Result<()> {
    let bdi = format!("/sys/class/bdi/{}:{}", device.major, device.minor);
    std::fs::write(format!("{bdi}/max_bytes"), bytes.to_string())?;
    std::fs::write(format!("{bdi}/strict_limit"), "1")
}

/// Tells the kernel that this thread, and those it starts from now on, clean dirty pages: their
/// allocations never wait for the writing of pages, and what they write is held back by its own
/// disk only (`PR_SET_IO_FLUSHER`). To be called before threads that serve mounts are started.
///
/// # Errors
/// Without `CAP_SYS_RESOURCE`, and before Linux 5.6.
pub fn become_io_flusher() -> io::Result<()> {
    Ok(rustix::process::configure_io_flusher_behavior(true)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_lines_are_read_with_their_escapes() {
        let line = br"36 35 98:0 /mnt1 /a\040b\134c rw,noatime master:1 - ext3 /dev/root rw";
        let line = parse_mount_line(line).unwrap();
        assert_eq!(line.device, DeviceNumber { major: 98, minor: 0 });
        assert_eq!(line.mountpoint, Path::new("/a b\\c"));
        assert!(parse_mount_line(b"").is_none());
        assert!(parse_mount_line(b"1 2 x:y / /").is_none());
        assert_eq!(unescape(br"a\04"), br"a\04");
    }

    #[test]
    fn the_table_of_this_machine_has_a_root() {
        assert!(top_mount(Path::new("/")).unwrap().is_some());
    }

    #[test]
    fn a_missing_helper_is_named_with_the_way_out() {
        let error = find_in([PathBuf::from("/nowhere"), PathBuf::from("relative")].into_iter()).unwrap_err();
        assert!(matches!(error, Error::HelperMissing));
        assert!(error.to_string().contains("apt install fuse3"));
    }

    #[test]
    fn helper_options_escape_what_the_helper_would_split() {
        let mut options = MountOptions::new(r"pool,a\b");
        options.subtype = Some("steadfast".into());
        options.read_only = true;
        let words = helper_options(&options);
        assert_eq!(words, r"fsname=pool\,a\\b,subtype=steadfast,default_permissions,ro,nosuid,nodev");
    }

    #[test]
    fn a_mountpoint_that_cannot_be_is_refused_by_kind() {
        let resolve = |path: &str, file| super::resolve(Path::new(path), file);
        assert!(matches!(resolve("/no/such/place", false), Err(Error::MountpointUnreachable { .. })));
        assert!(matches!(resolve("/proc/self/mountinfo", false), Err(Error::MountpointNotDirectory { .. })));
        assert!(matches!(resolve("/proc", true), Err(Error::MountpointNotFile { .. })));
        assert!(resolve("/proc/version", true).is_ok() && resolve("/proc", false).is_ok());
    }
}
