//! Where a suite runs: a fresh pool on an image file or a store, its mount, a scratch directory
//! beside it, and what is asked of the pool afterwards.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use steadfast_lab_experiment::{Commands, Context, Error, Workdir, end_process, mounts_below, unmount};

use crate::guest::Guest;
use crate::request::RunRequest;
use crate::suite::{PRELUDE, REFERENCE_TREE, SQLITE_DRIVER, Suite};
use crate::tally::Tally;
use crate::tree;

/// Name of every suite's pool.
const POOL: &str = "suite";
/// A command of ours that has not ended by then never will: an export of a loaded pool on a busy
/// machine takes a while.
const PATIENCE: Duration = Duration::from_secs(300);

/// A pool and its mount, for one suite. Dropping it takes everything away.
pub struct Stage {
    commands: Commands,
    context: Context,
    workdir: Workdir,
    request: RunRequest,
    /// Nothing of ours: a directory on somebody's file system.
    foreign: bool,
    mount: PathBuf,
    place: PathBuf,
    /// Image or address of the pool.
    device: String,
    /// Place where an import finds it.
    found_at: String,
    daemon: Option<u32>,
    guest: Option<Guest>,
}

impl Stage {
    /// Makes the pool and mounts it, or a directory below `--on`.
    pub(crate) fn new(
        workdir: Workdir,
        context: &Context,
        request: &RunRequest,
        suite: &Suite,
    ) -> Result<Stage, Error> {
        // Suites change users: others may pass through, and use the scratch directory.
        let open = |path: &Path, mode| {
            fs::set_permissions(path, Permissions::from_mode(mode)).map_err(Error::io("open to others", path))
        };
        open(workdir.path(), 0o711)?;
        let run = workdir.subdirectory("run")?;
        let said = workdir.subdirectory("said")?;
        open(&workdir.subdirectory("scratch")?, 0o1777)?;
        let images = workdir.subdirectory("img")?;
        // Short names: sockets live below it, and their paths may have 107 bytes.
        let mount = workdir.path().join("m");
        let environment = vec![("STEADFAST_RUNTIME_DIR".to_owned(), run)];
        let commands = Commands::new(&context.steadfast, "steadfast", environment, &said).patient(PATIENCE);
        let foreign = request.on.is_some();
        let place = match &request.on {
            Some(on) => on.join(format!("steadfast-suite.{}", std::process::id())),
            None => mount.join("w"),
        };
        let store = request.store(suite.name);
        let image = images.join("suite.img");
        let device = store.clone().unwrap_or_else(|| image.display().to_string());
        let found_at = store.clone().unwrap_or_else(|| images.display().to_string());
        let mut stage = Stage {
            commands,
            context: context.clone(),
            workdir,
            request: request.clone(),
            foreign,
            mount,
            place,
            device,
            found_at,
            daemon: None,
            guest: None,
        };
        if !foreign {
            let mut words = vec!["pool", "create"];
            if store.is_none() {
                let file = File::create(&image).map_err(Error::io("create", &image))?;
                file.set_len(request.size.unwrap_or(suite.image)).map_err(Error::io("lengthen", &image))?;
            } else {
                // Nothing of a suite is secret: a clear pool is as good.
                words.push("-f");
            }
            let mount = stage.mount.display().to_string();
            words.extend(request.pool_words());
            words.extend(["-m", &mount, POOL, &stage.device]);
            stage.commands.run(&words, None)?;
            stage.daemon = stage.daemon_pid();
        }
        fs::create_dir(&stage.place).map_err(Error::io("create", &stage.place))?;
        if stage.request.guest {
            stage.guest = Some(stage.guest()?);
        }
        Ok(stage)
    }

    /// Shares the pool with a guest.
    fn guest(&mut self) -> Result<Guest, Error> {
        self.commands.run(&["fs", "set", "sharenfs=insecure,no_root_squash", POOL], None)?;
        let answer = self.commands.ask(&["fs", "share"])?;
        let server = answer.split_whitespace().find_map(|word| word.parse::<SocketAddr>().ok());
        let server = server.ok_or_else(|| Error::Answer {
            line: "steadfast fs share".to_owned(),
            answer,
            expected: "the address of the server",
        })?;
        let home = self.workdir.subdirectory("guest")?;
        Ok(Guest::new(home, self.workdir.path().join("scratch"), self.mount.clone(), server.port()))
    }

    /// Runs a suite, then exports, checks and imports the pool and compares its tree.
    pub(crate) fn perform(&mut self, suite: &Suite, log: &Path, stop: &AtomicBool) -> Result<Tally, Error> {
        let (clock, cpu) = (Instant::now(), self.cpu_s());
        let late = self.script(suite, log, stop)?;
        if let Some(guest) = &self.guest {
            fs::copy(guest.log(), log).map_err(Error::io("copy", &guest.log()))?;
        }
        let said = fs::read(log).map_err(Error::io("read", log))?;
        let mut tally = Tally::read(suite.name, &String::from_utf8_lossy(&said));
        if let Some(words) = late {
            tally.note("FAIL", "time", &words);
        }
        if !self.foreign && tally.skipped_whole.is_none() {
            let mut notes = Vec::new();
            self.after(&mut notes)?;
            let mut file = OpenOptions::new().append(true).open(log).map_err(Error::io("open", log))?;
            for (word, case, rest) in notes {
                let _ = writeln!(file, "{word} {case} {rest}");
                tally.note(word, case, &rest);
            }
        }
        (tally.cpu_s, tally.wall_s) = (self.cpu_s() - cpu, clock.elapsed().as_secs_f64());
        if !tally.failed.is_empty() {
            self.keep_daemon_log(&log.with_extension("daemon.log"));
        }
        Ok(tally)
    }

    /// The script, bounded in time. Returns what to say when it was not done by then.
    fn script(&mut self, suite: &Suite, log: &Path, stop: &AtomicBool) -> Result<Option<String>, Error> {
        let out = File::create(log).map_err(Error::io("create", log))?;
        let err = out.try_clone().map_err(Error::io("open", log))?;
        let path = |path: &Path| path.display().to_string();
        let scratch = self.workdir.path().join("scratch");
        // A guest has no daemon to speak to.
        let pool = if self.foreign || self.guest.is_some() { "" } else { POOL };
        let environment = [
            (
                "W",
                path(
                    &self.guest.as_ref().map_or_else(|| self.place.clone(), |guest| guest.place(&self.place)),
                ),
            ),
            ("S", path(&scratch)),
            ("SF", path(&self.context.steadfast)),
            ("STEADFAST_RUNTIME_DIR", path(&self.workdir.path().join("run"))),
            ("DEVICE", self.device.clone()),
            ("FOUND_AT", self.found_at.clone()),
            ("POOL", pool.to_owned()),
            ("LONG", if self.request.long { "1" } else { "0" }.to_owned()),
            ("SEED", self.request.seed.to_string()),
            ("REFERENCE_TREE", REFERENCE_TREE.to_owned()),
            ("SQLITE_DRIVER", SQLITE_DRIVER.to_owned()),
            ("LC_ALL", "C.UTF-8".to_owned()),
        ];
        let script = format!("{PRELUDE}\n{}", suite.script);
        let mut command = match &self.guest {
            Some(guest) => guest.command(&script, &environment)?,
            None => {
                let mut command = Command::new("bash");
                command.args(["-c", &script]).envs(environment);
                command
            }
        };
        let mut child = command
            .current_dir(&scratch)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .map_err(Error::io("run", Path::new("bash")))?;
        let limit = if self.request.long { suite.limit_s.1 } else { suite.limit_s.0 };
        let began = Instant::now();
        loop {
            if child.try_wait().map_err(Error::io("wait for", Path::new("bash")))?.is_some() {
                return Ok(None);
            }
            if stop.load(Ordering::Relaxed) {
                end_group(&mut child);
                return Err(Error::Stopped);
            }
            if began.elapsed() > Duration::from_secs(limit) {
                let ended = end_group(&mut child);
                let rest = if ended { "" } else { ", and what hangs could not be killed" };
                return Ok(Some(format!("not done within {limit} s{rest}")));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Export, check, import, compare.
    fn after(&mut self, notes: &mut Vec<(&'static str, &'static str, String)>) -> Result<(), Error> {
        let mut note = |case: &'static str, outcome: Result<(), String>| {
            let good = outcome.is_ok();
            let words = outcome.err().unwrap_or_default().replace('\n', "; ");
            notes.push((if good { "PASS" } else { "FAIL" }, case, words));
            good
        };
        let before = tree::walk(&self.place);
        if !note("walk", before.as_ref().map(drop).map_err(ToString::to_string)) {
            return Ok(());
        }
        if let (Some(guest), Ok(here)) = (&self.guest, &before) {
            let read = |path: PathBuf| fs::read_to_string(path).map_err(|error| error.to_string());
            let here = tree::text(here);
            note("same-over-nfs", read(guest.tree()).and_then(|there| same_lines(&there, &here)));
            // A client that has two requests of one folder under way may keep the attributes of the
            // reply that tells the older ones, until they are no longer trusted [RFC 1813, 4.11].
            let timeless = tree::without_times_of_folders;
            let known = read(guest.known_tree());
            note("known-over-nfs", known.and_then(|known| same_lines(&timeless(&known), &timeless(&here))));
        }
        let said = |result: Result<String, Error>| result.map(drop).map_err(|error| error.to_string());
        if !note("export", said(self.commands.run(&["pool", "export", POOL], None))) {
            return Ok(());
        }
        note("check", said(self.commands.run(&["inspect", "check", &self.device], None)));
        if !note("import", said(self.commands.run(&["pool", "import", "-d", &self.found_at, POOL], None))) {
            return Ok(());
        }
        self.daemon = self.daemon_pid();
        let outcome = match (before, tree::walk(&self.place)) {
            (Ok(before), Ok(after)) => tree::difference(&before, &after).map_or(Ok(()), Err),
            (_, Err(error)) | (Err(error), _) => Err(error.to_string()),
        };
        note("same-tree", outcome);
        let panics = self
            .daemon_logs()
            .iter()
            .any(|log| fs::read(log).is_ok_and(|text| String::from_utf8_lossy(&text).contains("panicked")));
        note("no-panic", if panics { Err("the daemon's log tells of a panic".to_owned()) } else { Ok(()) });
        Ok(())
    }

    fn daemon_pid(&mut self) -> Option<u32> {
        let said = self.commands.ask(&["daemon", "pid"]).ok()?;
        said.split_ascii_whitespace().find_map(|word| word.parse().ok())
    }

    fn daemon_logs(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(self.workdir.path().join("run")) else { return Vec::new() };
        let is_log = |path: &PathBuf| path.extension().is_some_and(|end| end == "log");
        entries.flatten().map(|entry| entry.path()).filter(is_log).collect()
    }

    fn keep_daemon_log(&self, to: &Path) {
        let texts: Vec<u8> =
            self.daemon_logs().iter().filter_map(|log| fs::read(log).ok()).flatten().collect();
        let _ = fs::write(to, texts);
    }

    /// Processor seconds of ended children and of the daemon.
    fn cpu_s(&self) -> f64 {
        let fields = |pid: &str, from: usize| -> u64 {
            let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            // The name in brackets may hold blanks: what follows the last bracket is field 3 and
            // up.
            let rest = text.rsplit_once(')').map_or("", |(_, rest)| rest);
            rest.split_ascii_whitespace().skip(from).take(2).filter_map(|n| n.parse::<u64>().ok()).sum()
        };
        let own = fields("self", 13);
        let daemon = self.daemon.map_or(0, |pid| fields(&pid.to_string(), 11));
        (own + daemon) as f64 / rustix::param::clock_ticks_per_second() as f64
    }
}

/// The first line that differs, in words.
fn same_lines(guest: &str, here: &str) -> Result<(), String> {
    let mut pairs = guest.lines().zip(here.lines());
    match pairs.find(|(there, here)| there != here) {
        Some((there, here)) => Err(format!("the guest sees {there}; the mount has {here}")),
        None if guest.len() == here.len() => Ok(()),
        None => Err(format!(
            "the guest sees {} objects, the mount has {}",
            guest.lines().count(),
            here.lines().count()
        )),
    }
}

/// Ends a script and all it started. False if something of it is still there.
fn end_group(child: &mut Child) -> bool {
    let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else { return false };
    for (signal, tries) in [(Signal::TERM, 100), (Signal::KILL, 500)] {
        let _ = kill_process_group(group, signal);
        for _ in 0..tries {
            if matches!(child.try_wait(), Ok(Some(_))) {
                // The shell is gone; what it started gets the last word too.
                let _ = kill_process_group(group, Signal::KILL);
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    false
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.foreign {
            let _ = fs::remove_dir_all(&self.place);
        } else {
            let runtime = self.workdir.path().join("run");
            let daemon = self.daemon_pid().or(self.daemon);
            let _ = self.commands.run(&["pool", "destroy", "-f", POOL], None);
            let _ = self.commands.run(&["daemon", "stop"], None);
            if let Some(pid) = daemon {
                end_process(pid, &runtime);
            }
            for mount in mounts_below(self.workdir.path()) {
                unmount(&mount);
            }
            if self.device == self.found_at
                && let Err(error) = self.commands.run(&["store", "clean", &self.device], None)
            {
                eprintln!("steadfast lab: {error}");
            }
        }
        if let Err(error) = self.workdir.remove() {
            eprintln!("steadfast lab: {error}");
        }
    }
}

/// Is there a program of this name?
pub(crate) fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}
