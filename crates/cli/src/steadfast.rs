//! `steadfast` itself: the daemon, the compatibility links, and the doors to the other rooms.

use crate::completions::Shell;
use crate::family::{Command, Doing, Door, FAILED, Failure, Family, Session};
use crate::options::{Flag, Parsed, Syntax, flag, valued};
use crate::table::tame;
use crate::world::World;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use steadfast_control::api::{DaemonInfo, FsList, FsMount};
use steadfast_control::client::{Client, EXIT_RUNNING};
use steadfast_control::engine::{Engine, FuseFront};
use steadfast_control::{Code, Refusal, Service, daemon};
use steadfast_env::Env;

const DETACHED: Flag =
    Flag { letter: '\0', long: "detached", value: "", doc: "as the first command starts it" };
const NODE_CACHE: Flag =
    sized("node-cache-bytes", "with run: cache of names and attributes, all pools together");
const BLOCK_CACHE: Flag = sized("block-cache-bytes", "with run: cache of content, all pools together");
const DIRTY: Flag = sized("dirty-bytes", "with run: changes that wait for a commit, all pools together");

const fn sized(long: &'static str, doc: &'static str) -> Flag {
    Flag { letter: '\0', long, value: "size", doc }
}

/// Exit status of vdbench for any failure.
const VDBENCH_FAILED: i32 = 157;
/// The names that `compat` links.
const COMPAT: [&str; 5] = ["zpool", "zfs", "vdbench", "mount.steadfast", MOUNT_OF_LISTED];
/// What mount(8) calls for a mount that is there: by the type that the kernel lists, not by that of /etc/fstab.
pub const MOUNT_OF_LISTED: &str = "mount.fuse.steadfast";

/// The commands.
pub const FAMILY: Family = Family {
    name: "steadfast",
    own: "steadfast",
    doc: "A pooled, copy-on-write file system for storage you do not trust.\n\
          `steadfast pool` and `steadfast fs` are zpool and zfs; --runtime-dir DIR before them chooses a daemon.",
    doors: &[BENCH, crate::lab::LAB, crate::lab::DEMO],
    later: &[("audit", "it comes with the anchor")],
    commands: &[
        Command {
            names: &["daemon"],
            syntax: Syntax {
                flags: &[
                    flag('f', "with stop: even if files are open"),
                    DETACHED,
                    NODE_CACHE,
                    BLOCK_CACHE,
                    DIRTY,
                    flag('p', "with memory: exact numbers"),
                ],
                operands: "run|pid|memory|stop",
                least: 1,
                most: 1,
            },
            doc: "Runs the daemon in the foreground, prints its process id or what it uses of memory, or stops it.",
            run: daemon_command,
        },
        Command {
            names: &["compat"],
            syntax: Syntax { flags: &[], operands: "folder", least: 1, most: 1 },
            doc: "Makes links zpool, zfs, vdbench, mount.steadfast and mount.fuse.steadfast in a folder.",
            run: compat,
        },
        crate::inspect::INSPECT,
        Command {
            names: &["completions"],
            syntax: Syntax { flags: &[], operands: "bash|zsh|fish", least: 1, most: 1 },
            doc: "Prints the completion script of a shell.",
            run: completions,
        },
        Command {
            names: &["man"],
            syntax: Syntax { flags: &[], operands: "folder", least: 1, most: 1 },
            doc: "Writes the manual pages into a folder.",
            run: man,
        },
    ],
};

/// `steadfast bench`, and what `vdbench` is.
pub const BENCH: Door = Door {
    name: "bench",
    usage: "[-f file] [option]... [name=value]...",
    doc: "Runs a vdbench parameter file, as the command vdbench does.",
    run: bench,
};

/// Options of a mount that mean something here; with `-s` others are passed over.
const MOUNT_OPTIONS: [&str; 20] = [
    "ro",
    "rw",
    "exec",
    "noexec",
    "suid",
    "setuid",
    "nosuid",
    "nosetuid",
    "dev",
    "devices",
    "nodev",
    "nodevices",
    "atime",
    "noatime",
    "relatime",
    "norelatime",
    "strictatime",
    "allow_other",
    "remount",
    "defaults",
];

/// `mount.steadfast`, which mount(8) calls; as `mount.fuse.steadfast` to change a mount (`mount -o remount,ro /home`).
pub const MOUNT: Command = Command {
    names: &["mount"],
    syntax: Syntax {
        flags: &[
            flag('s', "tolerate unknown options"),
            flag('f', "only check"),
            flag('n', "accepted and without meaning"),
            flag('v', "say what is mounted where"),
            valued('N', "namespace", "accepted and without meaning"),
            valued('t', "type", "accepted and without meaning"),
            valued(
                'o',
                "options",
                "ro, noexec, nosuid, nodev, noatime, relatime, allow_other, remount and their opposites",
            ),
        ],
        operands: "filesystem folder",
        least: 2,
        most: 2,
    },
    doc: "Mounts a file system of an imported pool at a folder, or changes how it is mounted.",
    run: mount,
};

/// The first Ctrl-C ends the run in order, the second at once.
fn bench(world: &mut World<'_>, words: &[String]) -> u8 {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let twice =
            signal_hook::flag::register_conditional_shutdown(signal, VDBENCH_FAILED, Arc::clone(&stop));
        if let Err(error) = twice.and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop))) {
            let _ = writeln!(world.err, "vdbench: signals are not handled: {error}.");
        }
    }
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let status = steadfast_lab_report::vdbench_main(&words, &stop, world.out, world.err);
    u8::try_from(status).unwrap_or(FAILED)
}

fn mount(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let at = session.world.absolute(&parsed.operands[1]);
    let options: Vec<String> = parsed
        .values('o')
        .flat_map(|list| list.split(','))
        .filter(|option| !concerns_others(option))
        .filter(|option| MOUNT_OPTIONS.contains(option) || !parsed.has('s'))
        .map(str::to_owned)
        .collect();
    let fs = FsList { names: vec![name.clone()], depth: Some(0) };
    if parsed.has('f') {
        // Only check: that there is such a file system, and that the options are known.
        session.ask(fs).doing(|| format!("cannot mount '{}'", tame(&name)))?;
        return Ok(());
    }
    if parsed.has('v') {
        session.line(format!("{} is mounted at {}", tame(&name), tame(&at.display().to_string())));
    }
    let request = FsMount { name: name.clone(), at: Some(at), options, overlay: true };
    session.ask(request).doing(|| format!("cannot mount '{}'", tame(&name)))?;
    Ok(())
}

/// Is this a word of mount(8) itself or of /etc/fstab, of what all file systems do, or one that the kernel lists for every
/// FUSE mount? mount(8) passes on all of these, the last when it changes a mount.
fn concerns_others(option: &str) -> bool {
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    matches!(option, "" | "defaults" | "auto" | "noauto" | "nofail" | "_netdev")
        || matches!(option, "user" | "users" | "nouser" | "group" | "owner" | "async" | "nolazytime")
        || option == "default_permissions"
        || value.is_some()
            && matches!(name, "user_id" | "group_id" | "max_read" | "blksize" | "rootmode" | "fd" | "comment")
        || option.starts_with("x-")
        || option.starts_with("X-")
}

fn compat(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let folder = session.world.absolute(&parsed.operands[0]);
    let refuse = |path: &Path, error: &io::Error| {
        Refusal::new(Code::FileIo, format!("{}: {error}", path.display())).with("file", path.display())
    };
    let doing = || "cannot make links".to_owned();
    let program =
        std::env::current_exe().map_err(|error| refuse(Path::new("/proc/self/exe"), &error)).doing(doing)?;
    std::fs::create_dir_all(&folder).map_err(|error| refuse(&folder, &error)).doing(doing)?;
    for name in COMPAT {
        let link = folder.join(name);
        match std::fs::read_link(&link) {
            // A link of an older installation is ours to renew; anything else is not.
            Ok(target) if target.file_name() == program.file_name() => {
                std::fs::remove_file(&link).map_err(|error| refuse(&link, &error)).doing(doing)?;
            }
            _ => {}
        }
        symlink(&program, &link).map_err(|error| refuse(&link, &error)).doing(doing)?;
        session.line(link.display().to_string());
    }
    Ok(())
}

fn completions(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].as_str();
    let Some(shell) = Shell::parse(name) else {
        return Err(Failure::Usage(format!("'{}' is none of bash, zsh, fish", tame(name))));
    };
    session.out.push_str(&crate::completions::script(shell));
    Ok(())
}

fn man(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let folder = session.world.absolute(&parsed.operands[0]);
    let doing = || "cannot write the manual".to_owned();
    let refuse = |path: &Path, error: &io::Error| {
        Refusal::new(Code::FileIo, format!("{}: {error}", path.display())).with("file", path.display())
    };
    std::fs::create_dir_all(&folder).map_err(|error| refuse(&folder, &error)).doing(doing)?;
    for page in crate::manual::pages() {
        let path = folder.join(&page.file);
        std::fs::write(&path, page.text).map_err(|error| refuse(&path, &error)).doing(doing)?;
        session.line(path.display().to_string());
    }
    Ok(())
}

fn daemon_command(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let runtime = session.world.runtime();
    match parsed.operands[0].as_str() {
        "run" => {
            if parsed.has_long("detached") {
                // A session of its own, so that the terminal's signals do not reach it. It fails only for the leader
                // of a process group, who then has one already.
                let _ = rustix::process::setsid();
            }
            let memory = crate::memory::settings(parsed)?;
            steadfast_control::memory::bound_slack();
            let version = env!("CARGO_PKG_VERSION");
            let result = daemon::run(&runtime, version, || {
                let engine = Engine::start(Env::real(), runtime.clone(), memory, Arc::new(FuseFront))?;
                let engine = Arc::new(engine);
                engine.tend();
                Ok(engine as Arc<dyn Service>)
            });
            if let Err(refusal) = &result
                && refusal.code == Code::DaemonRunning
            {
                session.complain("cannot run the daemon", refusal);
                return Err(Failure::Status(EXIT_RUNNING as u8));
            }
            result.doing(|| "cannot run the daemon".into())
        }
        "pid" => {
            let mut client = Client::connect(&runtime, &session.typed).doing(|| "no process id".into())?;
            let report = client.call(DaemonInfo {}).doing(|| "no process id".into())?;
            session.line(report.pid.to_string());
            Ok(())
        }
        "memory" => crate::memory::show(session, parsed),
        "stop" => {
            let client = Client::connect(&runtime, &session.typed).doing(|| "cannot stop".into())?;
            client.stop(parsed.has('f')).doing(|| "cannot stop the daemon".into())
        }
        other => Err(Failure::Usage(format!("'{}' is none of run, pid, memory, stop", tame(other)))),
    }
}
