//! Hooks: programs in a folder that the daemon runs for an event, as ZED runs those of zed.d.
//!
//! A hook runs for an event if its name begins with the last word of the event's class, with its
//! kind (`ereport`, `resource`, `sysevent`) or with `all`, followed by a character that is no part
//! of a word: `statechange-mail`, `all-webhook.sh`. The facts of the event are in its environment,
//! under the names that ZED uses (`ZEVENT_POOL`, `ZEVENT_VDEV_PATH`). No shell of ours reads them.
//!
//! ## Invariants
//! [event_hooks.1] A hook runs only if nobody but root and the daemon's user can write to it, to
//!      the file that it links to, or to a folder above either.
//! [event_hooks.2] A hook and the processes of its group end after [`LIMIT`]. One hook runs at a
//!      time; the daemon does not wait for it.

use crate::api::PoolEvent;
use crate::engine::event_message::{Priority, kind, subclass, tame};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getuid, kill_process_group, pidfd_open};
use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

/// Longest run of a hook.
const LIMIT: Duration = Duration::from_secs(30);
/// Longest value of a variable, in characters.
const VALUE_MAX: usize = 4096;
/// Programs that a hook finds by name.
const SEARCH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An event as a hook gets it.
pub(super) struct HookEvent {
    pub event: PoolEvent,
    pub priority: Priority,
    pub message: String,
}

/// The hooks of one daemon.
pub(super) struct Hooks {
    folder: PathBuf,
    /// Variables beside those of the event.
    common: Vec<(String, String)>,
    limit: Duration,
}

impl Hooks {
    /// The hooks in a folder, which need not exist. `runtime_dir` is told to hooks of an isolated
    /// daemon, so that their commands reach it.
    pub fn new(folder: &Path, runtime_dir: Option<&Path>) -> Hooks {
        let mut common = vec![
            ("PATH".to_owned(), SEARCH.to_owned()),
            ("ZED_ZEDLET_DIR".to_owned(), folder.display().to_string()),
            ("ZED_PID".to_owned(), std::process::id().to_string()),
            ("ZPOOL".to_owned(), "zpool".to_owned()),
            ("ZFS".to_owned(), "zfs".to_owned()),
        ];
        if let Ok(program) = std::env::current_exe() {
            common.push(("STEADFAST".to_owned(), program.display().to_string()));
        }
        if let Some(dir) = runtime_dir {
            common.push(("STEADFAST_RUNTIME_DIR".to_owned(), dir.display().to_string()));
        }
        Hooks { folder: folder.to_owned(), common, limit: LIMIT }
    }

    /// Runs all hooks of an event, in the order of their names. Gives a sentence for each that was
    /// refused or failed.
    pub fn run(&self, told: &HookEvent) -> Vec<String> {
        let mut complaints = Vec::new();
        for path in self.of(&told.event) {
            let ended = match trusted(&path) {
                Ok(false) => continue,
                Ok(true) => self.run_one(&path, told),
                Err(why) => Err(why),
            };
            if let Err(why) = ended {
                complaints.push(tame(&format!("hook {} {why}", path.display())));
            }
        }
        complaints
    }

    /// The hooks that an event has by their names.
    fn of(&self, event: &PoolEvent) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.folder) else { return Vec::new() };
        let mut found: Vec<PathBuf> = entries
            .flatten()
            .filter(|entry| entry.file_name().to_str().is_some_and(|name| is_for(name, event)))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found
    }

    fn run_one(&self, path: &Path, told: &HookEvent) -> Result<(), String> {
        let mut command = Command::new(path);
        command.env_clear().envs(self.common.iter().cloned()).envs(variables(told));
        // A group of its own ends with all that it started.
        command.process_group(0).current_dir("/").stdin(Stdio::null());
        match finish(&mut command, self.limit) {
            Err(error) => Err(format!("cannot be run: {error}")),
            Ok(None) => Err(format!("was ended after {} s", self.limit.as_secs())),
            Ok(Some(status)) if status.success() => Ok(()),
            Ok(Some(status)) => Err(format!("failed: {status}")),
        }
    }
}

/// Runs a command to its end. `None`: it did not end in time, and was killed with its group.
fn finish(command: &mut Command, limit: Duration) -> io::Result<Option<ExitStatus>> {
    // The daemon's own standard output may be closed.
    let mut child = command.stdout(io::stderr()).spawn()?;
    let pid = Pid::from_child(&child);
    let has_ended = pidfd_open(pid, PidfdFlags::empty()).and_then(|fd| {
        let timeout =
            Timespec { tv_sec: limit.as_secs().cast_signed(), tv_nsec: limit.subsec_nanos().into() };
        poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout))
    });
    let killed = match has_ended {
        Ok(1..) => false,
        Ok(0) | Err(_) => true,
    };
    if killed {
        let _ = kill_process_group(pid, Signal::KILL);
    }
    let status = child.wait()?;
    Ok((!killed).then_some(status))
}

/// True if a hook of this name runs for an event.
fn is_for(name: &str, event: &PoolEvent) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let begins = |word: &str| {
        !word.is_empty()
            && name.strip_prefix(word).is_some_and(|rest| !rest.starts_with(is_word) && !rest.ends_with('~'))
    };
    begins("all") || begins(kind(event)) || begins(subclass(event))
}

/// Is a file a hook that may run? `Ok(false)`: it is no program, such as a page about hooks.
fn trusted(path: &Path) -> Result<bool, String> {
    let real = fs::canonicalize(path).map_err(|error| format!("cannot be found: {error}"))?;
    let found = fs::metadata(&real).map_err(|error| format!("cannot be looked at: {error}"))?;
    if !found.is_file() || found.mode() & 0o111 == 0 {
        return Ok(false);
    }
    // [event_hooks.1] The folder of the link counts as the folder of the file does.
    let folder = path.parent().and_then(|folder| fs::canonicalize(folder).ok()).unwrap_or_default();
    for place in real.ancestors().chain(folder.ancestors()) {
        let found = fs::metadata(place).map_err(|error| format!("cannot be looked at: {error}"))?;
        if let Err(why) = closed(&found, getuid().as_raw()) {
            return Err(format!("is not run: {} {why}", place.display()));
        }
    }
    Ok(true)
}

/// Checks that only root and one user can change a file or a folder.
fn closed(found: &Metadata, uid: u32) -> Result<(), String> {
    if found.uid() != 0 && found.uid() != uid {
        return Err(format!("belongs to user {}", found.uid()));
    }
    // In a sticky folder, such as /tmp, others cannot rename what is not theirs.
    let is_sticky = found.is_dir() && found.mode() & 0o1000 != 0;
    if found.mode() & 0o022 != 0 && !is_sticky {
        return Err(format!("can be written by others (mode {:o}): use `chmod go-w`", found.mode() & 0o7777));
    }
    Ok(())
}

/// The facts of an event. Their values are bounded, and have no control characters.
fn variables(told: &HookEvent) -> Vec<(String, String)> {
    let HookEvent { event, priority, message } = told;
    let mut event = event.clone();
    event.fields.values_mut().for_each(|value| *value = bounded(value));
    let seconds = event.time_ns / 1_000_000_000;
    let time = jiff::Timestamp::from_second(seconds.cast_signed()).unwrap_or_default();
    let mut all: Vec<(String, String)> = [
        ("ZEVENT_EID", event.eid.to_string()),
        ("ZEVENT_CLASS", event.class.clone()),
        ("ZEVENT_SUBCLASS", subclass(&event).to_owned()),
        ("ZEVENT_TIME_SECS", seconds.to_string()),
        ("ZEVENT_TIME_NSECS", (event.time_ns % 1_000_000_000).to_string()),
        ("ZEVENT_TIME_STRING", time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()),
        ("ZEVENT_POOL", event.pool.clone().unwrap_or_default()),
        ("STEADFAST_PRIORITY", (*priority as u8).to_string()),
        ("STEADFAST_MESSAGE", bounded(message)),
        ("STEADFAST_EVENT", serde_json::to_string(&event).unwrap_or_default()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    for (field, value) in event.fields {
        let name: String = field
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' })
            .collect();
        if name == "VDEV_STATE" {
            all.push(("ZEVENT_VDEV_STATE_STR".to_owned(), value.clone()));
        }
        all.push((format!("ZEVENT_{name}"), value));
    }
    all
}

fn bounded(value: &str) -> String {
    tame(value).chars().take(VALUE_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fs::Permissions;
    use std::os::unix::fs::{PermissionsExt, symlink};

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("steadfast-hooks-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(path.join("events.d")).unwrap();
            for folder in [path.clone(), path.join("events.d")] {
                fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
            }
            Folder(fs::canonicalize(path).unwrap())
        }

        fn hooks(&self) -> Hooks {
            Hooks::new(&self.0.join("events.d"), Some(&self.0))
        }

        /// A hook that writes what it finds to the file `out`.
        fn hook(&self, name: &str, body: &str) -> PathBuf {
            let path = self.0.join("events.d").join(name);
            fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
            path
        }

        fn out(&self) -> String {
            fs::read_to_string(self.0.join("out")).unwrap_or_default()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn told(class: &str, fields: &[(&str, &str)]) -> HookEvent {
        let fields: BTreeMap<String, String> =
            fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let event = PoolEvent { eid: 7, time_ns: 5, class: class.into(), pool: Some("tank".into()), fields };
        HookEvent { event, priority: Priority::Error, message: "it failed".into() }
    }

    const FAULT: &str = "resource.fs.steadfast.statechange";

    #[test]
    fn a_hook_gets_the_facts_and_no_shell_reads_them() {
        let folder = Folder::new("facts");
        folder.hook("statechange-a", "env | sort > \"$STEADFAST_RUNTIME_DIR/out\"");
        let path = "/dev/$(touch $STEADFAST_RUNTIME_DIR/bad); x\nSubject: forged";
        let complaints = folder.hooks().run(&told(FAULT, &[("vdev_path", path), ("vdev_state", "FAULTED")]));
        assert_eq!(complaints, Vec::<String>::new());
        let out = folder.out();
        for line in [
            "ZEVENT_POOL=tank",
            "ZEVENT_EID=7",
            "ZEVENT_CLASS=resource.fs.steadfast.statechange",
            "ZEVENT_SUBCLASS=statechange",
            "ZEVENT_VDEV_STATE_STR=FAULTED",
            "ZEVENT_VDEV_PATH=/dev/$(touch $STEADFAST_RUNTIME_DIR/bad); x\\nSubject: forged",
            "STEADFAST_PRIORITY=3",
            "STEADFAST_MESSAGE=it failed",
        ] {
            assert!(out.lines().any(|found| found == line), "{line} is not in\n{out}");
        }
        let json = out.lines().find_map(|line| line.strip_prefix("STEADFAST_EVENT=")).unwrap();
        let event: PoolEvent = serde_json::from_str(json).unwrap();
        assert!(event.fields["vdev_path"].starts_with("/dev/$(touch"));
        assert!(!out.contains("CARGO"), "nothing of the daemon's own environment: {out}");
        assert!(!folder.0.join("bad").exists());
    }

    #[test]
    fn a_name_decides_which_events_a_hook_runs_for() {
        let scrub = told("sysevent.fs.steadfast.scrub_finish", &[]).event;
        for name in ["scrub_finish", "scrub_finish-mail.sh", "sysevent-x", "all-mail", "all.sh"] {
            assert!(is_for(name, &scrub), "{name}");
        }
        for name in
            ["scrub-mail", "allmail", "statechange-mail", "README", "scrub_finish_x", "all-mail~", ".all"]
        {
            assert!(!is_for(name, &scrub), "{name}");
        }
    }

    #[test]
    fn a_hook_that_others_can_change_is_not_run() {
        let folder = Folder::new("closed");
        let body = "echo ran >> \"$STEADFAST_RUNTIME_DIR/out\"";
        let path = folder.hook("all-a", body);
        let hooks = folder.hooks();
        let refused = |why: &str| {
            let complaints = hooks.run(&told(FAULT, &[]));
            assert!(complaints.len() == 1 && complaints[0].contains(why), "{why}: {complaints:?}");
            assert_eq!(folder.out(), "");
        };
        let mode = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for open in [0o757, 0o775] {
            mode(&path, open);
            refused("can be written by others");
        }
        mode(&path, 0o755);
        for above in [folder.0.join("events.d"), folder.0.clone()] {
            mode(&above, 0o777);
            refused("can be written by others");
            mode(&above, 0o755);
        }
        // Through a link: where the file really lies counts.
        let open = folder.0.join("open");
        fs::create_dir(&open).unwrap();
        mode(&open, 0o777);
        fs::rename(&path, open.join("program")).unwrap();
        symlink(open.join("program"), &path).unwrap();
        refused("can be written by others");
        mode(&open, 0o755);
        assert!(hooks.run(&told(FAULT, &[])).is_empty());
        assert_eq!(folder.out(), "ran\n");
        // Somebody else's.
        if getuid().is_root() {
            std::os::unix::fs::chown(open.join("program"), Some(12_345), None).unwrap();
            assert!(hooks.run(&told(FAULT, &[]))[0].contains("belongs to user 12345"));
        }
        // No program at all: a page, a folder.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "text").unwrap();
        fs::create_dir(folder.0.join("events.d/all")).unwrap();
        assert!(hooks.run(&told(FAULT, &[])).is_empty());
    }

    #[test]
    fn a_hook_that_hangs_is_ended_with_all_that_it_started() {
        let folder = Folder::new("hangs");
        folder.hook("all-a", "sleep 3600 & echo $! > \"$STEADFAST_RUNTIME_DIR/out\"; wait");
        folder.hook("all-b", "exit 3");
        let hooks = Hooks { limit: Duration::from_millis(300), ..folder.hooks() };
        let complaints = hooks.run(&told(FAULT, &[]));
        assert_eq!(complaints.len(), 2, "the next one runs all the same: {complaints:?}");
        assert!(complaints[0].contains("was ended after") && complaints[1].contains("exit status: 3"));
        let process = PathBuf::from(format!("/proc/{}/stat", folder.out().trim()));
        // A zombie until its new parent looks.
        let has_ended = || {
            let state = fs::read_to_string(&process).unwrap_or_default();
            state.is_empty() || state.contains(") Z ") || state.contains(") X ")
        };
        let mut looks = (0..3000).map(|_| std::thread::sleep(Duration::from_millis(10)));
        assert!(has_ended() || looks.any(|()| has_ended()), "it goes on");
    }
}
