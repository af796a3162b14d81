//! The outside of a command: its streams, its environment, the way to its daemon. Passed in, so
//! that tests can replace it.

use rustix::process::getuid;
use rustix::termios::isatty;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use steadfast_control::client::Client;
use steadfast_control::runtime::Surroundings;
use steadfast_control::{Refusal, Runtime};

/// The way of a user to root's daemon, if it lets users look. The text is the command as typed.
pub type GuestDoor = dyn FnMut(&Runtime, &str) -> Result<Option<Client>, Refusal>;

/// Everything outside a command.
pub struct World<'a> {
    /// Standard input.
    pub input: &'a mut dyn Read,
    /// True if standard input is a terminal: passphrases are typed, with echo off.
    pub input_is_terminal: bool,
    /// Descriptor of standard input, which the daemon reads a stream from.
    pub input_fd: Option<OwnedFd>,
    /// Descriptor of standard output, which the daemon writes a stream to.
    pub out_fd: Option<OwnedFd>,
    /// True if standard output is a terminal: streams are refused.
    pub out_is_terminal: bool,
    /// True if refusals in ZFS's words are explained, too: standard error is a terminal, or
    /// `STEADFAST_EXPLAIN` is set.
    pub explains: bool,
    /// True if an operand ends the options: `POSIXLY_CORRECT` is set.
    pub options_first: bool,
    /// Standard output.
    pub out: &'a mut dyn Write,
    /// Standard error.
    pub err: &'a mut dyn Write,
    /// Folder that relative paths start from.
    pub cwd: PathBuf,
    /// Folders named by the environment.
    pub surroundings: Surroundings,
    /// The user.
    pub uid: u32,
    /// Connects to the daemon, and starts it if necessary. The text is the command as typed.
    pub connect: &'a mut dyn FnMut(&Runtime, &str) -> Result<Client, Refusal>,
    /// Connects to root's daemon as a user who looks, if it lets users look.
    pub guest: &'a mut GuestDoor,
    /// Sleeps, for commands that repeat.
    pub sleep: &'a mut dyn FnMut(Duration),
}

impl World<'_> {
    /// The folders of this user's daemon.
    #[must_use]
    pub fn runtime(&self) -> Runtime {
        Runtime::locate(&self.surroundings, self.uid)
    }

    /// The absolute path of a typed path.
    #[must_use]
    pub fn absolute(&self, path: &str) -> PathBuf {
        // The address of a store is whole as it is.
        if steadfast_bucket::Location::is_meant(path) {
            return PathBuf::from(path);
        }
        absolute(&self.cwd, Path::new(path))
    }
}

/// `path` from `folder` on, without `.` and doubled slashes. `..` stays: only the kernel knows
/// where links lead.
fn absolute(folder: &Path, path: &Path) -> PathBuf {
    folder.join(path).components().filter(|part| !matches!(part, std::path::Component::CurDir)).collect()
}

/// Runs a command in the real world.
pub fn real(run: impl FnOnce(&mut World<'_>) -> u8) -> u8 {
    let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cwd = std::env::current_dir().unwrap_or_else(|_| PathBuf::from("/"));
    let surroundings = Surroundings {
        runtime_dir: var("STEADFAST_RUNTIME_DIR").map(|dir| absolute(&cwd, &dir)),
        xdg_runtime_dir: var("XDG_RUNTIME_DIR"),
        xdg_state_home: var("XDG_STATE_HOME"),
        xdg_config_home: var("XDG_CONFIG_HOME"),
        home: var("HOME"),
    };
    let (stdin, stdout) = (io::stdin(), io::stdout());
    run(&mut World {
        input_is_terminal: isatty(&stdin),
        out_is_terminal: isatty(&stdout),
        explains: isatty(io::stderr()) || var("STEADFAST_EXPLAIN").is_some(),
        options_first: var("POSIXLY_CORRECT").is_some(),
        input_fd: stdin.as_fd().try_clone_to_owned().ok(),
        out_fd: stdout.as_fd().try_clone_to_owned().ok(),
        input: &mut stdin.lock(),
        out: &mut stdout.lock(),
        err: &mut io::stderr(),
        cwd,
        surroundings,
        uid: getuid().as_raw(),
        connect: &mut |runtime, command| Client::connect_or_start(runtime, command, || start_daemon(runtime)),
        guest: &mut Client::connect_as_guest,
        sleep: &mut std::thread::sleep,
    })
}

/// Starts this program again as a daemon in the background.
///
/// The daemon outlives its caller, so it inherits no descriptor but its log. Otherwise a pipe of
/// the caller would never end, a lock would stay held, and a file system with an open file could
/// not be unmounted. `Command` passes on every descriptor without `FD_CLOEXEC`, such as those that
/// our caller left open.
///
/// # Errors
/// Of the operating system.
pub fn start_daemon(runtime: &Runtime) -> io::Result<Child> {
    use std::os::unix::process::CommandExt;
    let log = runtime.open_log().map_err(io::Error::other)?;
    close_fds::set_fds_cloexec(3, &[]);
    let mut command = Command::new(std::env::current_exe()?);
    // The program may be called by another name (zpool); the daemon is always asked for in our own
    // words.
    command.arg0("steadfast");
    if runtime.is_isolated() {
        command.arg("--runtime-dir").arg(runtime.dir());
    }
    command
        .args(["daemon", "run", "--detached"])
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_paths_start_from_the_callers_folder() {
        let cwd = Path::new("/home/ann");
        assert_eq!(absolute(cwd, Path::new("./a//b.img")), Path::new("/home/ann/a/b.img"));
        assert_eq!(absolute(cwd, Path::new("/x/./y")), Path::new("/x/y"));
        assert_eq!(absolute(cwd, Path::new("../b")), Path::new("/home/ann/../b"));
    }
}
