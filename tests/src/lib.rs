//! Helpers shared by the integration and conformance tests in `tests/tests/`.
//!
//! A [`Host`] is a private corner of this machine: its own directory, its own daemon (by
//! `STEADFAST_RUNTIME_DIR`), its own mountpoints. Dropping it unmounts, stops the daemon and
//! removes everything, also when a test panics.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest time one command may take before the test fails: only what hangs takes so long, even on
/// a busy machine.
const PATIENCE: Duration = Duration::from_secs(1200);
/// How long is waited for what the daemon does by itself, which is a matter of seconds where the
/// machine is not starved.
const LOOKS_LAST: Duration = Duration::from_secs(600);

/// Starts a process, one at a time.
///
/// Between its birth and the start of its own program a child has copies of all our descriptors. A
/// file that one test has opened and closed on its mount would still be open in a child that
/// another test is starting, and an export would be refused because the mount is busy. Every test
/// starts the command that unmounts after it has closed its files, so it is enough that no other
/// start is under way then.
///
/// # Errors
/// Of the system.
pub fn spawn(command: &mut Command) -> std::io::Result<Child> {
    static SPAWNS: Mutex<()> = Mutex::new(());
    let _turn = SPAWNS.lock().unwrap_or_else(PoisonError::into_inner);
    command.spawn()
}

/// Runs a process to its end and takes what it prints; started as [`spawn`] does.
///
/// # Errors
/// Of the system.
pub fn output(command: &mut Command) -> std::io::Result<Output> {
    spawn(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()))?.wait_with_output()
}

/// The `steadfast` executable under test: `STEADFAST_BIN`, or the one beside this test's own build.
///
/// # Panics
/// If there is none, saying what to type.
#[must_use]
pub fn steadfast_bin() -> PathBuf {
    if let Some(path) = std::env::var_os("STEADFAST_BIN") {
        return PathBuf::from(path);
    }
    let exe = std::env::current_exe().expect("this test has a path");
    let path = exe.parent().and_then(Path::parent).expect("target/PROFILE/deps/TEST").join("steadfast");
    assert!(path.exists(), "{} is not built: run `cargo build -p steadfast` first", path.display());
    path
}

/// Why mounts cannot be tested here, or `None` if they can.
#[must_use]
pub fn no_fuse() -> Option<String> {
    if let Err(error) = std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse") {
        return Some(format!("/dev/fuse cannot be opened ({error})"));
    }
    None
}

/// Where some bytes are in others, an image as a rule. Tests are not optimised, and a search of
/// their own took half a minute for each image.
#[must_use]
pub fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}

/// True if the test runs as root.
#[must_use]
pub fn is_root() -> bool {
    let id = spawn(Command::new("id").arg("-u").stdout(Stdio::piped())).expect("`id` runs");
    id.wait_with_output().expect("`id` ends").stdout == b"0\n"
}

/// Says that a test was skipped, and why, so that it stands out in a log.
pub fn skip(test: &str, why: &str) {
    eprintln!("SKIPPED {test}: {why}");
}

/// Bytes that do not compress, others for each seed.
#[must_use]
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// Output of a command, and how it ended.
#[derive(Debug)]
pub struct Ran {
    /// Words of the command.
    pub words: String,
    /// Exit status; 255 if a signal ended it.
    pub status: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

impl Ran {
    /// # Panics
    /// If the command failed.
    #[track_caller]
    pub fn ok(self) -> Ran {
        assert_eq!(self.status, 0, "{}\nstdout: {}\nstderr: {}", self.words, self.out, self.err);
        self
    }

    /// # Panics
    /// If the command did not fail with `status`, or panicked on the way.
    #[track_caller]
    pub fn fails(self, status: i32) -> Ran {
        assert_eq!(self.status, status, "{}\nstdout: {}\nstderr: {}", self.words, self.out, self.err);
        assert!(!self.err.contains("panicked"), "{}: {}", self.words, self.err);
        assert!(!self.err.trim().is_empty(), "{} failed without a word", self.words);
        self
    }

    /// # Panics
    /// If neither output holds `text`.
    #[track_caller]
    pub fn says(self, text: &str) -> Ran {
        let both = format!("{}{}", self.out, self.err);
        assert!(both.contains(text), "{} did not say {text:?} but:\n{both}", self.words);
        self
    }
}

/// A private corner of this machine.
pub struct Host {
    dir: tempfile::TempDir,
}

impl Default for Host {
    fn default() -> Host {
        Host::new()
    }
}

impl Host {
    /// Makes the directory; the daemon starts with the first command.
    ///
    /// # Panics
    /// If no temporary directory can be made.
    #[must_use]
    pub fn new() -> Host {
        let dir =
            tempfile::Builder::new().prefix("steadfast-test-").tempdir().expect("a temporary directory");
        std::fs::create_dir(dir.path().join("run")).expect("a directory for the daemon");
        Host { dir }
    }

    /// A corner with an imported pool `tank` of 128 MiB, mounted at `t`; `None`, and a word about
    /// it, where nothing can be mounted.
    #[must_use]
    pub fn with_tank(test: &str) -> Option<Host> {
        if let Some(why) = no_fuse() {
            skip(test, &why);
            return None;
        }
        let host = Host::new();
        host.image("tank.img", 128 << 20);
        host.shell("zpool create -m $PWD/t tank $PWD/tank.img").ok();
        Some(host)
    }

    /// A corner with so many images `d1.img`, `d2.img` and so on of `bytes` each; `None`, and a
    /// word about it, where nothing can be mounted.
    #[must_use]
    pub fn with_images(test: &str, count: usize, bytes: u64) -> Option<Host> {
        if let Some(why) = no_fuse() {
            skip(test, &why);
            return None;
        }
        let host = Host::new();
        for at in 1..=count {
            host.image(&format!("d{at}.img"), bytes);
        }
        Some(host)
    }

    /// The directory everything lives in.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Path of a file in it.
    #[must_use]
    pub fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Makes a sparse image file of `bytes`.
    ///
    /// # Panics
    /// If it cannot be made.
    pub fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.at(name);
        let file = std::fs::File::create(&path).expect("an image file");
        file.set_len(bytes).expect("an image of that size");
        path
    }

    /// Runs `steadfast` with words separated by blanks; `{}` stands for this host's directory.
    pub fn run(&self, words: &str) -> Ran {
        self.run_with_input(words, b"")
    }

    /// The same, with bytes on standard input.
    pub fn run_with_input(&self, words: &str, input: &[u8]) -> Ran {
        let dir = self.dir.path().display().to_string();
        let args: Vec<String> = words.split_whitespace().map(|word| word.replace("{}", &dir)).collect();
        self.exec(steadfast_bin(), &args, input)
    }

    /// Runs any program in this corner.
    ///
    /// # Panics
    /// If it cannot be started or does not end in time.
    pub fn exec<S: AsRef<OsStr>>(&self, program: impl AsRef<OsStr>, args: &[S], input: &[u8]) -> Ran {
        let mut command = Command::new(program.as_ref());
        command.args(args).env("STEADFAST_RUNTIME_DIR", self.at("run")).current_dir(self.dir.path());
        // A free port for each daemon that shares something.
        command.env("STEADFAST_NFS", "127.0.0.1:0");
        // Tests look for codes, which stand in the explanation.
        command.env("STEADFAST_EXPLAIN", "1");
        let words = format!("{command:?}");
        let output = wait(command, input, &words);
        Ran {
            words,
            status: output.status.code().unwrap_or(255),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// A line of shell in which mount(8) finds our helper where it looks for helpers, for nobody
    /// else on this machine: in a mount namespace of its own, with the links of [`Host::shell`] in
    /// the helpers' place. Takes root.
    pub fn shell_with_mount_helper(&self, line: &str) -> Ran {
        self.shell(&format!(
            "export LINE={}; unshare -m bash -euc 'mount --bind compat /sbin; eval \"$LINE\"'",
            quoted(line)
        ))
    }

    /// Output of a command, once it is as wished: the daemon does some things by itself.
    #[track_caller]
    pub fn until(&self, line: &str, is_so: impl Fn(&str) -> bool) -> String {
        until(|| {
            let told = self.shell(line).ok().out;
            if is_so(&told) { Ok(told) } else { Err(told) }
        })
    }

    /// Kills the daemon and its parent, which would restart it, and waits until it is gone with all
    /// that it held open, which may be a moment after the signal. Mounts stay, and answer nothing.
    ///
    /// # Panics
    /// If no daemon runs, or it does not end.
    pub fn kill_daemon(&self) {
        let pid = std::fs::read_to_string(self.at("run/daemon.lock")).expect("a daemon runs");
        kill_group(pid.trim());
        let process = Path::new("/proc").join(pid.trim());
        let started = Instant::now();
        // Nobody may come to ask how it ended: then a last thread stays, a zombie, and holds
        // nothing.
        let is_gone = || {
            let threads = std::fs::read_dir(process.join("task")).map_or(0, Iterator::count);
            let status = std::fs::read_to_string(process.join("status")).unwrap_or_default();
            threads == 0 || (threads == 1 && status.contains("State:\tZ"))
        };
        while !is_gone() {
            assert!(started.elapsed() < PATIENCE, "the daemon does not end");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills each process that was started in this corner, and those that these start meanwhile,
    /// until there is none.
    fn kill_processes(&self) {
        let started = Instant::now();
        loop {
            let pids = processes_of(self.path());
            if pids.is_empty() {
                return;
            }
            if started.elapsed() > LOOKS_LAST {
                // A drop must not panic: a test may be on its way out of a panic already.
                eprintln!("processes that do not end: {pids:?}");
                return;
            }
            let _ = spawn(Command::new("kill").arg("-9").args(&pids)).map(|mut child| child.wait());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Runs a line of shell with `steadfast`, `zpool` and `zfs` on its path.
    pub fn shell(&self, line: &str) -> Ran {
        let compat = self.at("compat");
        if !compat.exists() {
            self.run("compat {}/compat").ok();
        }
        let path = std::env::var("PATH").unwrap_or_default();
        let line = format!("export PATH='{}':'{path}'\n{line}", compat.display());
        self.exec("bash", &["-euc", &line], b"")
    }
}

/// Looks until something is so, and gives what there was then. `look` gives that, or what it saw
/// instead.
///
/// # Panics
/// If it does not come, with what was seen last.
#[track_caller]
pub fn until<T>(look: impl Fn() -> Result<T, String>) -> T {
    let started = Instant::now();
    loop {
        match look() {
            Ok(seen) => return seen,
            Err(seen) => assert!(started.elapsed() < LOOKS_LAST, "it does not come; seen was last:\n{seen}"),
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Kills a daemon with its parent: a command started both in a process group of their own.
fn kill_group(pid: &str) {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // Behind the name of the program: state, parent, group.
    let group = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(2));
    let Some(group) = group else { return };
    let _ =
        spawn(Command::new("kill").args(["-9", "--", &format!("-{group}")])).map(|mut child| child.wait());
}

/// Numbers of the processes that were started in the corner of this directory: a daemon, its
/// parent, commands. Root sees those of all users.
#[must_use]
pub fn processes_of(corner: &Path) -> Vec<String> {
    let mark = format!("STEADFAST_RUNTIME_DIR={}", corner.join("run").display());
    let is_of_it = |process: &Path| {
        let environment = std::fs::read(process.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
    };
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let found = entries.filter(|entry| is_of_it(&entry.path()));
    found.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// As one word of the shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

impl Drop for Host {
    fn drop(&mut self) {
        // A test that panicked leaves mounts; the daemon unmounts what it knows, lazily if it must.
        let stopped = self.run("daemon stop");
        if stopped.status != 0 && !std::thread::panicking() {
            eprintln!("daemon stop: {} {}", stopped.out, stopped.err);
        }
        if stopped.status != 0 {
            // It cannot export in order (a test may have seen to that), and it must not outlive its
            // folder. One look is not enough: its parent may be about to start it again.
            self.kill_processes();
        }
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let here = self.dir.path().display().to_string();
        for mount in mounts.lines().rev().filter_map(|line| line.split(' ').nth(1)) {
            if mount.starts_with(&here) {
                let _ = spawn(Command::new("umount").args(["-l", mount])).map(|mut child| child.wait());
            }
        }
    }
}

fn wait(mut command: Command, input: &[u8], words: &str) -> Output {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = spawn(&mut command).unwrap_or_else(|error| panic!("{words}: {error}"));
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(&input); // a command may end without reading all
    });
    let pid = child.id();
    let (done, seen) = std::sync::mpsc::channel();
    let started = Instant::now();
    let watcher = std::thread::spawn(move || {
        if seen.recv_timeout(PATIENCE).is_err() {
            let _ = spawn(Command::new("kill").args(["-9", &pid.to_string()])).map(|mut child| child.wait());
        }
    });
    let output = child.wait_with_output().expect("a child can be waited for");
    let _ = done.send(());
    let _ = writer.join();
    let _ = watcher.join();
    assert!(started.elapsed() < PATIENCE, "{words} did not end within {PATIENCE:?}");
    output
}
