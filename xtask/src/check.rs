//! `cargo xtask test`: installs what the tests need and runs all of them, as the server does.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::test_run::{self, Tally};

/// Debian packages the tests use: (a program or header that tells whether it is there, package).
pub const PACKAGES: &[(&str, &str)] = &[
    ("/usr/bin/cc", "gcc"),
    ("/usr/bin/fusermount3", "fuse3"),
    ("/usr/bin/setfacl", "acl"),
    ("/usr/bin/setfattr", "attr"),
    ("/usr/include/sys/acl.h", "libacl1-dev"),
    ("/usr/bin/rsync", "rsync"),
    ("/usr/bin/git", "git"),
    ("/usr/bin/python3", "python3"),
    ("/usr/bin/perl", "perl"),
    ("/usr/sbin/setcap", "libcap2-bin"),
    ("/usr/bin/sqlite3", "sqlite3"),
    ("/usr/bin/chromium", "chromium"),
    ("/usr/bin/nbdcopy", "libnbd-bin"),
    ("/usr/bin/qemu-img", "qemu-utils"),
    ("/usr/sbin/mkfs.ext4", "e2fsprogs"),
    // Of sanoid and syncoid, which run with every check.
    ("/usr/bin/pv", "pv"),
    ("/usr/bin/lzop", "lzop"),
    ("/usr/bin/mbuffer", "mbuffer"),
    ("/usr/share/perl5/Config/IniFiles.pm", "libconfig-inifiles-perl"),
    ("/usr/share/perl5/Capture/Tiny.pm", "libcapture-tiny-perl"),
];

/// Of a guest that mounts over NFS: a kernel in a process, its way out, its client of NFS.
pub const GUEST: &[(&str, &str)] = &[
    ("/usr/bin/linux.uml", "user-mode-linux"),
    ("/usr/bin/slirp-fullbolt", "slirp"),
    ("/usr/sbin/mount.nfs", "nfs-common"),
    ("/usr/sbin/modprobe", "kmod"),
    ("/usr/sbin/ip", "iproute2"),
];

/// The other architecture that parity has a kernel for.
const ARM: &str = "aarch64-unknown-linux-gnu";
/// Programs that build and run its unit tests on another architecture, and their packages.
const ARM_PACKAGES: &[(&str, &str)] = &[
    ("/usr/bin/qemu-aarch64", "qemu-user"),
    ("/usr/bin/aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/include/stdio.h", "libc6-dev-arm64-cross"),
];
const ARM_SETTINGS: [(&str, &str); 2] = [
    ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"),
    ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64 -L /usr/aarch64-linux-gnu"),
];

/// Programs from crates.io: (name, version).
pub const PJDFSTEST: (&str, &str) = ("pjdfstest", "0.2.2");

/// The steps by their short names, in order.
const STEPS: &[&str] = &[
    "format",
    "rules",
    "licences",
    "build",
    "tests",
    "lints",
    "aarch64",
    "documentation",
    "doctests",
    "explorer",
    "histories",
];

/// States of histories of parity devices that each check judges, and of which part of them
/// everything is asked.
const PARITY_STATES: &str = "20000";
const PARITY_WHOLE: &str = "16";

/// Words for clippy.
const LINTED_WITH: [&str; 2] = ["-D", "warnings"];

/// Tests that run first, as they last longest: the end of the run waits for none of them.
const FIRST: &[&str] = &[
    "verbs::verbs_of_special_groups_may_be_cut_anywhere",
    "moving::the_power_goes_at_any_write_of_a_verb",
    "verbs::verbs_of_uneven_groups_may_be_cut_anywhere",
    "explorer::what_groups_make_up_for_costs_nothing",
    "explorer::kept_seeds_stay_good",
];

/// Tests at once for each processor. Most wait half of their time: for a mount, a daemon, a disk.
const JOBS_PER_PROCESSOR: usize = 2;

/// The words of `cargo xtask test`.
#[derive(Debug, Default)]
pub struct Wish {
    /// Installs nothing from crates.io.
    pub quick: bool,
    /// Runs the tests of parity and of the code for aarch64 in an emulator.
    pub arm: bool,
    /// Only these steps; all if empty.
    pub only: Vec<String>,
}

impl Wish {
    /// Reads the words behind `cargo xtask test`.
    ///
    /// # Errors
    /// A sentence about a word that is not known.
    pub fn read(words: &[String]) -> Result<Wish, String> {
        let mut wish = Wish::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--quick" => wish.quick = true,
                "--aarch64" => wish.arm = true,
                "--only" => {
                    let step = words.next().filter(|step| STEPS.contains(&step.as_str()));
                    let step = step.ok_or_else(|| format!("--only takes one of {}", STEPS.join(", ")))?;
                    wish.only.push(step.clone());
                }
                other => return Err(format!("{other} is not known")),
            }
        }
        Ok(wish)
    }

    fn wants(&self, step: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == step)
    }
}

/// A step that has ended.
struct Done {
    step: &'static str,
    seconds: f64,
    busy: f64,
    ok: bool,
}

/// Steps that have ended, in the order in which they did.
#[derive(Default)]
struct Board {
    done: Mutex<Vec<Done>>,
}

impl Board {
    /// Runs a step if it is wished, tells how it ended, and gives that.
    fn step(&self, wish: &Wish, step: &'static str, work: impl FnOnce() -> bool) {
        if !wish.wants(step) {
            return;
        }
        let (began, clock) = (Instant::now(), Processors::now());
        println!("\n=== {step}");
        let ok = work();
        let (seconds, busy) = (began.elapsed().as_secs_f64(), clock.busy_since());
        println!("=== {step}: {} in {seconds:.0} s", if ok { "ok" } else { "FAILED" });
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(Done { step, seconds, busy, ok });
    }
}

/// Runs all steps, or those wished. True if all passed.
///
/// The tests and the steps that only compute run beside each other: tests wait about half of their
/// time.
pub fn run(root: &Path, wish: &Wish) -> bool {
    let (started, clock) = (Instant::now(), Processors::now());
    let runner = Runner::new(root);
    let board = Board::default();
    let mut tally = Tally::default();
    runner.packages(&[PACKAGES, GUEST].concat(), true);
    std::thread::scope(|scope| {
        let needs_build = ["build", "tests", "explorer", "histories"].iter().any(|step| wish.wants(step));
        let suite = scope.spawn(|| {
            if !wish.quick && wish.wants("tests") {
                runner.tool(PJDFSTEST);
            }
        });
        board.step(wish, "format", || runner.cargo(&["fmt", "--all", "--check"]));
        board.step(wish, "rules", || {
            is_clean(&[crate::tidy::check(root), crate::features::check(root)].concat())
        });
        board.step(wish, "licences", || is_clean(&crate::licences::check(root)));
        let mut tests = None;
        if needs_build {
            let with_build = Wish { only: Vec::new(), ..Wish::default() };
            board.step(&with_build, "build", || {
                tests = test_run::build(&runner);
                tests.is_some()
            });
        }
        let _ = suite.join();
        let is_built = tests.is_some();
        let (runner, board) = (&runner, &board);
        let computing = scope.spawn(move || computing_steps(root, runner, wish, board, is_built));
        if let Some(tests) = &tests {
            board.step(wish, "tests", || {
                tally = tests.run(runner, processors() * JOBS_PER_PROCESSOR, FIRST);
                tally.failed.is_empty()
            });
        }
        match computing.join() {
            Ok(doctests) => tally.passed += doctests,
            Err(_) => tally.failed.push("a step of the check panicked".to_owned()),
        }
    });
    if tally.programs > 0 {
        tally.print();
    }
    let done = board.done.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("\nseconds  processors busy  step");
    for Done { step, seconds, busy, ok } in &done {
        let failed = if *ok { "" } else { "  FAILED" };
        println!("{seconds:7.0}  {:13.0} %  {step}{failed}", busy * 100.0);
    }
    let (whole, busy) = (started.elapsed().as_secs_f64(), clock.busy_since() * 100.0);
    println!("{whole:7.0}  {busy:13.0} %  all, with what was installed");
    println!(
        "{} tests in {} programs, {:.0} s if run one after the other",
        tally.passed + tally.failed.len(),
        tally.programs,
        tally.work
    );
    if tally.programs > 0 {
        println!("{}", tally.line());
    }
    done.iter().all(|step| step.ok) && tally.failed.is_empty()
}

/// The steps that compute and do not wait, one after the other. Gives the number of doctests that
/// passed.
fn computing_steps(root: &Path, runner: &Runner, wish: &Wish, board: &Board, is_built: bool) -> usize {
    let mut doctests = 0;
    let mut is_linted = false;
    board.step(wish, "lints", || {
        let lints = ["clippy", "--workspace", "--all-targets", "--"];
        is_linted = runner.quietly(runner.cargo_command().args(lints).args(LINTED_WITH)).is_some();
        is_linted
    });
    for words in arm_steps(runner, wish) {
        board.step(wish, "aarch64", || runner.quietly(runner.cargo_command().args(words)).is_some());
    }
    board.step(wish, "documentation", || runner.quietly(&mut documentation(runner, is_linted)).is_some());
    board.step(wish, "doctests", || {
        let output = runner.quietly(runner.cargo_command().args(["test", "--workspace", "--doc"]));
        doctests = output.as_deref().map_or(0, test_run::passed_of);
        output.is_some()
    });
    if is_built {
        // Each commit samples other workloads, and always the same.
        board.step(wish, "explorer", || {
            let mut explorer = runner.command(&runner.target().join("debug/steadfast-sim"));
            explorer.args(["--states", "50000", "--seconds", "240", "--from", &commit(root)]);
            runner.quietly(&mut explorer).is_some()
        });
        board.step(wish, "histories", || {
            let mut histories = runner.command(&runner.target().join("debug/steadfast-sim"));
            histories.args(["--parity", PARITY_STATES, "--from", &commit(root), "--whole", PARITY_WHOLE]);
            runner.quietly(&mut histories).is_some()
        });
    }
    doctests
}

/// `cargo doc`. It needs each crate checked, and behind the lints takes what clippy has checked, as
/// cargo does that was told to check with clippy, by the same words. Were they others, it would
/// check once more.
fn documentation(runner: &Runner, is_linted: bool) -> Command {
    let mut command = runner.cargo_command();
    command.args(["doc", "--workspace", "--no-deps"]);
    if let Some(driver) = clippy_driver().filter(|_| is_linted) {
        let words = LINTED_WITH.map(|word| format!("{word}__CLIPPY_HACKERY__")).concat();
        command.env("RUSTC_WORKSPACE_WRAPPER", driver).env("CLIPPY_ARGS", words);
    }
    command
}

/// The compiler that `cargo clippy` uses, if it is beside the other one.
fn clippy_driver() -> Option<PathBuf> {
    let told = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let driver = Path::new(String::from_utf8_lossy(&told.stdout).trim()).join("bin/clippy-driver");
    driver.exists().then_some(driver)
}

/// Prints findings. True if there are none.
fn is_clean(findings: &[String]) -> bool {
    findings.iter().for_each(|finding| println!("{finding}"));
    findings.is_empty()
}

/// Kernels of parity for the other architecture: compiled where its standard library is installed,
/// and run if that is wished.
fn arm_steps(runner: &Runner, wish: &Wish) -> Vec<Vec<&'static str>> {
    if !wish.wants("aarch64") {
        return Vec::new();
    }
    let libraries = Command::new("rustc").args(["--print", "target-libdir", "--target", ARM]).output();
    let folder = libraries.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned());
    if !folder.is_ok_and(|folder| !folder.is_empty() && Path::new(&folder).exists()) {
        println!(
            "SKIPPED parity for aarch64: its standard library is not installed: rustup target add {ARM}"
        );
        return Vec::new();
    }
    let check =
        ["clippy", "--target", ARM, "--package", "steadfast-vdev", "--all-targets", "--", "-D", "warnings"];
    let mut steps = vec![check.to_vec()];
    if wish.arm {
        runner.packages(ARM_PACKAGES, true);
        match ARM_PACKAGES.iter().find(|(mark, _)| !Path::new(mark).exists()) {
            Some((_, package)) => println!("SKIPPED parity for aarch64, run: {package} is not installed"),
            // Both rooms have kernels of their own there.
            None => {
                let rooms = ["--package", "steadfast-vdev", "--package", "steadfast-por", "--lib"];
                steps.push([&["test", "--target", ARM][..], &rooms].concat());
            }
        }
    }
    steps
}

/// Processors of this machine.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Time that all processors have spent, in ticks: (working, doing nothing).
struct Processors(u64, u64);

impl Processors {
    fn now() -> Processors {
        Processors::read(&std::fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    /// The first line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal.
    fn read(stat: &str) -> Processors {
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> =
            line.split_whitespace().skip(1).take(8).map(|n| n.parse().unwrap_or(0)).collect();
        let idle = ticks.iter().skip(3).take(2).sum();
        Processors(ticks.iter().sum::<u64>() - idle, idle)
    }

    /// The part of the time since then in which they worked.
    fn busy_since(&self) -> f64 {
        let Processors(working, idle) = Processors::now();
        let (working, idle) = (working.saturating_sub(self.0), idle.saturating_sub(self.1));
        working as f64 / (working + idle).max(1) as f64
    }
}

/// The commit that is checked out, as a number; 0 where there is none.
fn commit(root: &Path) -> String {
    let git = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).current_dir(root).output();
    let name = git.ok().and_then(|git| String::from_utf8(git.stdout).ok()).unwrap_or_default();
    let name: String = name.chars().filter(char::is_ascii_hexdigit).take(12).collect();
    if name.is_empty() { "0".to_owned() } else { format!("0x{name}") }
}

/// Runs programs with the tools that were installed for this repository on the path.
pub struct Runner {
    root: PathBuf,
    target: PathBuf,
    tools: PathBuf,
    path: std::ffi::OsString,
}

impl Runner {
    /// For the tree at `root`.
    pub fn new(root: &Path) -> Runner {
        let tools = root.join("target/tools");
        let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut paths = vec![tools.join("bin")];
        paths.extend(std::env::split_paths(&path));
        let path = std::env::join_paths(paths).unwrap_or(path);
        Runner { root: root.to_path_buf(), target, tools, path }
    }

    /// For tests of what runs programs: everything that is written is below `folder`.
    #[cfg(test)]
    pub fn building_in(folder: &Path) -> Runner {
        Runner { target: folder.join("target"), ..Runner::new(folder) }
    }

    /// Where cargo builds.
    pub fn target(&self) -> PathBuf {
        self.target.clone()
    }

    /// A program, to be given arguments.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("PATH", &self.path);
        command
    }

    /// `cargo` in the tree, to be given arguments.
    pub fn cargo_command(&self) -> Command {
        let mut command = self.command(Path::new("cargo"));
        command
            .current_dir(&self.root)
            .envs(ARM_SETTINGS)
            .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links");
        command
    }

    /// `cargo` with these words. True if it succeeded.
    pub fn cargo(&self, args: &[&str]) -> bool {
        self.cargo_command().args(args).status().is_ok_and(|status| status.success())
    }

    /// Runs a command and prints its output when it has ended, so that it does not mix with others.
    /// Gives what it wrote to standard output if it succeeded.
    fn quietly(&self, command: &mut Command) -> Option<String> {
        match command.stdin(Stdio::null()).output() {
            Ok(output) => {
                let out = String::from_utf8_lossy(&output.stdout);
                println!("{}{}", test_run::without_counts(&out), String::from_utf8_lossy(&output.stderr));
                output.status.success().then(|| out.into_owned())
            }
            Err(error) => {
                println!("{command:?}: {error}");
                None
            }
        }
    }

    fn has(&self, program: &str) -> bool {
        std::env::split_paths(&self.path).any(|folder| folder.join(program).exists())
    }

    /// Installs missing packages where that is wanted and possible (root on Debian); says what is
    /// missing where not.
    pub fn packages(&self, wanted: &[(&'static str, &'static str)], install: bool) {
        let missing: Vec<&str> = wanted
            .iter()
            .filter(|(mark, _)| !Path::new(mark).exists())
            .map(|(_, package)| *package)
            .collect();
        if missing.is_empty() {
            return;
        }
        let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
        if !install || !root || !self.has("apt-get") {
            println!("some will be skipped; to run them: sudo apt-get install {}", missing.join(" "));
            return;
        }
        println!("installing {}", missing.join(" "));
        for args in [
            vec!["update", "-qq"],
            [vec!["install", "-y", "-qq", "--no-install-recommends"], missing].concat(),
        ] {
            let mut command = Command::new("apt-get");
            command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
            if !command.status().is_ok_and(|status| status.success()) {
                println!("apt-get failed; some tests will be skipped");
                return;
            }
        }
    }

    /// Installs a program from crates.io beside the build.
    pub fn tool(&self, (name, version): (&str, &str)) {
        if !self.has(name) {
            println!("installing {name} {version}");
            let tools = self.tools.display().to_string();
            // A folder of its own, or it would wait for the build that runs beside it.
            let target = self.tools.join("build").display().to_string();
            // Not optimised: none of them computes much, and a release build takes twice as long.
            let words =
                ["install", name, "--version", version, "--locked", "--quiet", "--debug", "--root", &tools];
            if !self.cargo(&[&words[..], &["--target-dir", &target]].concat()) {
                println!("{name} could not be installed; what needs it will be skipped");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(words: &str) -> Result<Wish, String> {
        Wish::read(&words.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn all_steps_run_unless_some_are_named() {
        assert!(STEPS.iter().all(|step| wish("").expect("read").wants(step)));
        let some = wish("--quick --only lints --only tests").expect("read");
        assert!(some.quick && some.wants("lints") && some.wants("tests") && !some.wants("format"));
        for wrong in ["--only", "--only lint", "--fast"] {
            assert!(wish(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_step_that_fails_is_on_the_board_and_one_that_is_not_wished_is_not() {
        let board = Board::default();
        let only = wish("--only lints").expect("read");
        board.step(&only, "lints", || false);
        board.step(&only, "format", || panic!("not wished"));
        let done = board.done.into_inner().expect("whole");
        assert_eq!(done.iter().map(|done| (done.step, done.ok)).collect::<Vec<_>>(), [("lints", false)]);
    }

    #[test]
    fn documentation_takes_what_passed_the_lints_and_nothing_else() {
        let runner = Runner::new(Path::new("/"));
        let wrapper = |is_linted| -> Option<PathBuf> {
            let command = documentation(&runner, is_linted);
            let mut set = command.get_envs();
            set.find_map(|(name, value)| {
                (name == "RUSTC_WORKSPACE_WRAPPER").then(|| value.map(PathBuf::from))?
            })
        };
        assert_eq!(wrapper(false), None);
        assert_eq!(wrapper(true), clippy_driver());
    }

    #[test]
    fn time_without_work_is_idle_or_waits_for_a_disk() {
        let Processors(working, idle) = Processors::read("cpu  10 1 20 300 40 2 3 4 5 6\ncpu0 1 1 1 1\n");
        assert_eq!((working, idle), (10 + 1 + 20 + 2 + 3 + 4, 340));
    }
}
