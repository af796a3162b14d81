//! Behaviour that programs expect of a file system, asked through a mount: one row or one test for
//! each.
//!
//! The rows are short programs (shell or Python) that run as root, each in an empty directory of
//! its own and for a minute at most; they pass if they end with status 0. A test runs the rows of
//! one theme on one pool, tells every row that failed, then exports the pool, checks its stored
//! structures and imports it again. Long forms run with `STEADFAST_LONG=1`. DESIGN.md, "POSIX", is
//! the table of what is promised.

mod attributes;
mod files;
mod locks;
mod names;
mod whole;

use std::path::Path;
use std::process::Command;

use steadfast_tests::{Host, Ran, is_root, no_fuse, output, skip};

/// Longest time one row may take, in seconds: only what hangs takes so long, even on a busy
/// machine.
const ROW_SECONDS: &str = "600";

/// How a row asks.
pub enum Ask {
    /// In bash, with [`SHELL`] before it.
    Shell(&'static str),
    /// In Python, with [`PYTHON`] before it.
    Python(&'static str),
}

/// One behaviour.
pub struct Row {
    /// Behaviour that is promised.
    pub name: &'static str,
    /// Fails if the promise is not kept.
    pub ask: Ask,
}

/// Words that rows in shell may use.
const SHELL: &str = r#"
set -euo pipefail
# The system's own tools first: those of a user's own may be closed to other users.
PATH=/usr/sbin:/usr/bin:/sbin:/bin:$PATH
# Runs something as an ordinary user.
user() { setpriv --reuid 1 --regid 1 --clear-groups "$@"; }
# Succeeds if something fails.
fails() { if "$@" 2>/dev/null; then echo "this went well: $*" >&2; return 1; fi; }
"#;

/// Words that rows in Python may use.
const PYTHON: &str = r#"
import ctypes, errno, fcntl, mmap, os, signal, stat, struct, subprocess, sys, time
libc = ctypes.CDLL(None, use_errno=True)
CREATE = os.O_RDWR | os.O_CREAT

def checked(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result

def waits(is_so):
    "It becomes so: the kernel does not wait for the release of a descriptor."
    while not is_so():
        time.sleep(0.01)

def refuses(number, call, *args, **more):
    "The call fails with this errno."
    try:
        call(*args, **more)
    except OSError as error:
        assert error.errno == number, f"{errno.errorcode[error.errno]} instead of {errno.errorcode[number]}"
    else:
        raise AssertionError(f"{call.__name__}{args} went well")

def rename(old, new, flags):
    checked(libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags))

def fallocate(fd, mode, offset, length):
    off = ctypes.c_longlong
    checked(libc.fallocate(fd, mode, off(offset), off(length)))

def put(name, text):
    with open(name, 'wb') as file:
        file.write(text.encode() if isinstance(text, str) else text)

def get(name):
    with open(name, 'rb') as file:
        return file.read()

def as_user(uid, work):
    "Does something in a child that is this user."
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([]); os.setgid(uid); os.setuid(uid)
            work()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0, 'the user failed'
"#;

/// Is the long form of a test wanted?
pub fn long() -> bool {
    std::env::var_os("STEADFAST_LONG").is_some_and(|value| value != "0" && !value.is_empty())
}

/// Why nothing here can be asked on this machine.
pub fn missing() -> Option<String> {
    if let Some(why) = no_fuse() {
        return Some(why);
    }
    if !is_root() {
        return Some("the rows switch users, which takes root".into());
    }
    ["python3", "perl", "setpriv", "setfacl", "setfattr", "setcap", "fallocate", "flock"]
        .into_iter()
        .find_map(|tool| {
            let found = output(Command::new("sh").args(["-c", &format!("command -v {tool}")]));
            let there = found.is_ok_and(|output| output.status.success());
            (!there).then(|| {
                format!(
                    "{tool} is not installed (packages python3, perl, util-linux, acl, attr, libcap2-bin)"
                )
            })
        })
}

/// A host with a pool `tank` of so many MiB, mounted at `t`, into which every user may look.
pub fn tank(test: &str, mib: u64) -> Option<Host> {
    if let Some(why) = missing() {
        skip(test, &why);
        return None;
    }
    let host = Host::new();
    host.image("tank.img", mib << 20);
    host.shell("chmod 755 .; zpool create -m $PWD/t tank $PWD/tank.img").ok();
    Some(host)
}

/// Runs a program of a row in a directory.
pub fn ask(host: &Host, place: &Path, ask: &Ask) -> Ran {
    let place = place.display().to_string();
    let (program, text) = match ask {
        Ask::Shell(text) => ("bash", format!("{SHELL}\n{text}")),
        Ask::Python(text) => ("python3", format!("{PYTHON}\n{text}")),
    };
    host.exec("env", &["-C", &place, "timeout", "-k", "5", ROW_SECONDS, program, "-c", &text], b"")
}

/// Stored structures are whole, and the pool comes back.
pub fn whole(host: &Host) {
    host.run("pool export tank").ok();
    host.run("inspect check {}/tank.img").ok();
    host.run("pool import -d {}/tank.img tank").ok();
}

/// Asks every row of a theme.
pub fn promised(theme: &str, rows: &[Row]) {
    let Some(host) = tank(theme, 1024) else { return };
    let only = std::env::var("STEADFAST_ROW").unwrap_or_default();
    let mut broken = Vec::new();
    for (number, row) in rows.iter().enumerate().filter(|(_, row)| row.name.contains(&only)) {
        let place = host.at(&format!("t/{number}"));
        std::fs::create_dir(&place).expect("a directory on the mount");
        let ran = ask(&host, &place, &row.ask);
        if ran.status != 0 {
            let lines: Vec<&str> = ran.err.lines().collect();
            let last = lines[lines.len().saturating_sub(4)..].join("\n    ");
            broken.push(format!("{theme}: {} (status {})\n    {last}", row.name, ran.status));
        }
    }
    assert!(
        broken.is_empty(),
        "{} of {} promises are broken:\n{}",
        broken.len(),
        rows.len(),
        broken.join("\n")
    );
    whole(&host);
}
