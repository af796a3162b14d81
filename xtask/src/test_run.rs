//! Builds the tests of the workspace once and runs them side by side, each in a process of its own.
//!
//! `cargo test` runs one program after the other, so what waits for a mount or a timer leaves the
//! processors idle. A test that has a process of its own can be timed, and shares no statics,
//! descriptors or environment with others. cargo-nextest works like that, too; docs/decisions/0129
//! says why it is not used.
//!
//! Each test has a mount namespace of its own where that is allowed. Otherwise a test that makes
//! one would take copies of the mounts of others along, and their unmounting would not end until it
//! ends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::check::Runner;

/// Tests that are told in the end, the slowest first.
const SLOWEST: usize = 20;
/// A test that runs longer is named while it runs.
const LONG: Duration = Duration::from_secs(300);
/// Begins a line in which a test says that it skipped itself.
const SKIPPED: &str = "SKIPPED";
/// Begins a line with libtest's count, which only the count of all tests may look like.
const RESULT: &str = "test result: ";

/// A program with tests.
#[derive(Debug)]
struct Program {
    /// Package and target: `steadfast-pool main`.
    name: String,
    path: PathBuf,
    /// The package's folder, in which cargo would run it.
    folder: PathBuf,
}

/// One test, as its program knows it.
#[derive(Clone, Debug)]
struct Test {
    program: usize,
    name: String,
}

/// How a test ended.
struct Outcome {
    title: String,
    elapsed: Duration,
    has_passed: bool,
    output: String,
}

/// The tests of the workspace, ready to be run.
pub struct Tests {
    programs: Vec<Program>,
    tests: Vec<Test>,
    ignored: usize,
    /// Each test gets a mount namespace of its own.
    has_namespaces: bool,
}

/// Counts of tests, and the slowest.
#[derive(Default)]
pub struct Tally {
    pub passed: usize,
    pub failed: Vec<String>,
    pub skipped: usize,
    pub programs: usize,
    /// Seconds and names.
    pub slowest: Vec<(f64, String)>,
    /// Seconds of all tests, one after the other.
    pub work: f64,
    /// Lines of tests that skipped themselves.
    pub remarks: BTreeSet<String>,
}

/// Compiles and links everything that is run later: tests, the program, the simulator. `None` if
/// that fails.
pub fn build(runner: &Runner) -> Option<Tests> {
    let mut command = runner.cargo_command();
    command.args(["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"]);
    let output = command.stderr(Stdio::inherit()).output().ok()?;
    if !output.status.success() {
        return None;
    }
    let programs = programs(&String::from_utf8_lossy(&output.stdout));
    let (mut tests, mut ignored) = (Vec::new(), 0);
    for (at, program) in programs.iter().enumerate() {
        let Some((run, left)) = list(program) else {
            println!("{}: its tests cannot be listed", program.path.display());
            return None;
        };
        ignored += left;
        tests.extend(run.into_iter().map(|name| Test { program: at, name }));
    }
    Some(Tests { programs, tests, ignored, has_namespaces: can_unshare() })
}

/// Can this user make mount namespaces?
fn can_unshare() -> bool {
    let probe = Command::new("unshare").args(["--mount", "true"]).stderr(Stdio::null()).status();
    probe.is_ok_and(|status| status.success())
}

/// Test programs named by cargo's messages.
fn programs(messages: &str) -> Vec<Program> {
    let mut found = Vec::new();
    for line in messages.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let (Some(path), Some(manifest)) =
            (message["executable"].as_str().filter(|_| is_test), message["manifest_path"].as_str())
        else {
            continue;
        };
        let folder = Path::new(manifest).parent().unwrap_or(Path::new("/")).to_path_buf();
        let package = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let kind = message["target"]["kind"][0].as_str().unwrap_or_default();
        let target =
            if kind == "lib" { "lib" } else { message["target"]["name"].as_str().unwrap_or_default() };
        found.push(Program { name: format!("{package} {target}"), path: PathBuf::from(path), folder });
    }
    found
}

/// Names of the tests in a program, and how many are ignored.
fn list(program: &Program) -> Option<(Vec<String>, usize)> {
    let names = |more: &[&str]| -> Option<BTreeSet<String>> {
        let mut command = Command::new(&program.path);
        let output = command.args(["--list", "--format", "terse"]).args(more).output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        Some(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
    };
    let (all, ignored) = (names(&[])?, names(&["--ignored"])?);
    Some((all.difference(&ignored).cloned().collect(), ignored.len()))
}

impl Tests {
    /// Runs all, `jobs` at once; those whose name holds one of `first` before others, in that
    /// order.
    pub fn run(&self, runner: &Runner, jobs: usize, first: &[&str]) -> Tally {
        let mut tally = Tally { skipped: self.ignored, programs: self.programs.len(), ..Tally::default() };
        let mut queue: Vec<&Test> = self.tests.iter().collect();
        let rank = |test: &Test| {
            first.iter().position(|name| self.title(test).ends_with(name)).unwrap_or(first.len())
        };
        queue.sort_by_key(|test| rank(test));
        for name in first {
            if !self.tests.iter().any(|test| self.title(test).ends_with(name)) {
                tally.failed.push(format!("{name}: to be run first, but there is no such test"));
            }
        }
        let folder = runner.target().join("test-output");
        if let Err(error) = fs::create_dir_all(&folder) {
            tally.failed.push(format!("{}: {error}", folder.display()));
            return tally;
        }
        let queue = Mutex::new(VecDeque::from(queue));
        let running: Mutex<BTreeMap<String, Instant>> = Mutex::default();
        let outcomes: Mutex<Vec<Outcome>> = Mutex::default();
        let has_ended = AtomicBool::new(false);
        let next = || lock(&queue).pop_front();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs.max(1))
                .map(|worker| {
                    let log = folder.join(format!("{worker}"));
                    let (running, outcomes, next) = (&running, &outcomes, &next);
                    scope.spawn(move || {
                        while let Some(test) = next() {
                            let title = self.title(test);
                            lock(running).insert(title.clone(), Instant::now());
                            let outcome = self.run_one(runner, test, &log);
                            lock(running).remove(&title);
                            if !outcome.has_passed {
                                println!("--- FAILED {title}\n{}", without_counts(&outcome.output));
                            }
                            lock(outcomes).push(outcome);
                        }
                    })
                })
                .collect();
            let (running, has_ended) = (&running, &has_ended);
            let watch = scope.spawn(move || {
                while !has_ended.load(Ordering::Acquire) {
                    std::thread::park_timeout(LONG);
                    for (title, began) in lock(running).iter().filter(|(_, began)| began.elapsed() >= LONG) {
                        println!("still running after {} s: {title}", began.elapsed().as_secs());
                    }
                }
            });
            for worker in workers {
                if worker.join().is_err() {
                    lock(&outcomes).push(Outcome {
                        title: "a worker of the runner panicked".to_owned(),
                        elapsed: Duration::ZERO,
                        has_passed: false,
                        output: String::new(),
                    });
                }
            }
            has_ended.store(true, Ordering::Release);
            watch.thread().unpark();
        });
        for outcome in outcomes.into_inner().unwrap_or_else(PoisonError::into_inner) {
            tally.count(outcome);
        }
        tally.slowest.sort_by(|one, other| other.0.total_cmp(&one.0));
        tally.slowest.truncate(SLOWEST);
        let _ = fs::remove_dir_all(folder);
        tally
    }

    fn title(&self, test: &Test) -> String {
        format!("{} {}", self.programs[test.program].name, test.name)
    }

    /// The output goes to a file: a daemon that outlives its test would hold a pipe open.
    fn run_one(&self, runner: &Runner, test: &Test, log: &Path) -> Outcome {
        let program = &self.programs[test.program];
        let began = Instant::now();
        let run = || -> std::io::Result<bool> {
            let out = File::create(log)?;
            let mut command = if self.has_namespaces {
                let mut command = runner.command(Path::new("unshare"));
                command.args(["--mount", "--"]).arg(&program.path);
                command
            } else {
                runner.command(&program.path)
            };
            command.args(["--exact", &test.name, "--nocapture"]).current_dir(&program.folder);
            command.env("CARGO_MANIFEST_DIR", &program.folder);
            let status = command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out).status()?;
            Ok(status.success())
        };
        let ended = run();
        let elapsed = began.elapsed();
        let mut output = String::from_utf8_lossy(&fs::read(log).unwrap_or_default()).into_owned();
        // A name that matches nothing succeeds, too.
        let has_run = output.contains("test result: ok. 1 passed");
        if let Err(error) = &ended {
            output.push_str(&error.to_string());
        }
        Outcome { title: self.title(test), elapsed, has_passed: has_run && ended.is_ok_and(|ok| ok), output }
    }
}

impl Tally {
    fn count(&mut self, outcome: Outcome) {
        let seconds = outcome.elapsed.as_secs_f64();
        self.work += seconds;
        self.slowest.push((seconds, outcome.title.clone()));
        if outcome.has_passed {
            self.passed += 1;
            let remarks = outcome.output.lines().filter(|line| line.starts_with(SKIPPED));
            self.remarks.extend(remarks.map(|line| format!("{}: {line}", outcome.title)));
        } else {
            self.failed.push(outcome.title);
        }
    }

    /// The slowest tests, the tests that skipped themselves, the failures.
    pub fn print(&self) {
        println!("\nthe slowest {} tests, in seconds:", self.slowest.len());
        for (seconds, title) in &self.slowest {
            println!("{seconds:8.1}  {title}");
        }
        for line in self.remarks.iter().chain(&self.failed) {
            println!("{line}");
        }
    }

    /// The closing line, which machines read.
    pub fn line(&self) -> String {
        format!("tests: {} passed, {} failed, {} skipped", self.passed, self.failed.len(), self.skipped)
    }
}

/// Output of a test without libtest's own counts: the reader of this log counts tests by such
/// lines.
pub fn without_counts(output: &str) -> String {
    output.lines().filter(|line| !line.starts_with(RESULT)).collect::<Vec<_>>().join("\n")
}

/// Tests that passed, by libtest's own counts.
pub fn passed_of(output: &str) -> usize {
    let counts = output.lines().filter_map(|line| line.strip_prefix(RESULT)?.strip_prefix("ok. "));
    counts.filter_map(|line| line.split(' ').next()?.parse::<usize>().ok()).sum()
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_the_executables_of_tests() {
        let messages = [
            r#"{"reason":"compiler-artifact","manifest_path":"/t/crates/pool/Cargo.toml","target":{"kind":["lib"],"name":"steadfast_pool"},"profile":{"test":true},"executable":"/d/pool-1"}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/t/crates/pool/Cargo.toml","target":{"kind":["test"],"name":"main"},"profile":{"test":true},"executable":"/d/main-1"}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/t/crates/cli/Cargo.toml","target":{"kind":["bin"],"name":"steadfast"},"profile":{"test":false},"executable":"/d/steadfast"}"#,
            r#"{"reason":"compiler-artifact","manifest_path":"/t/crates/pool/Cargo.toml","target":{"kind":["lib"],"name":"steadfast_pool"},"profile":{"test":false},"executable":null}"#,
            "not a message",
        ];
        let found = programs(&messages.join("\n"));
        let names: Vec<&str> = found.iter().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["pool lib", "pool main"]);
        assert_eq!(found[1].folder, Path::new("/t/crates/pool"));
    }

    /// This test's own program, with tests that are there and one that is not.
    fn own(names: &[&str]) -> Tests {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        let program =
            Program { name: "xtask".to_owned(), path: std::env::current_exe().expect("a path"), folder };
        let tests = names.iter().map(|name| Test { program: 0, name: (*name).to_owned() }).collect();
        Tests { programs: vec![program], tests, ignored: 0, has_namespaces: can_unshare() }
    }

    fn tally(names: &[&str], first: &[&str]) -> Tally {
        let scratch =
            std::env::temp_dir().join(format!("steadfast-xtask-{}-{}", std::process::id(), names.len()));
        let tally = own(names).run(&Runner::building_in(&scratch), 2, first);
        let _ = fs::remove_dir_all(scratch);
        tally
    }

    #[test]
    fn tests_are_listed_and_counted() {
        let known = "test_run::tests::programs_are_the_executables_of_tests";
        let (listed, _) = list(&own(&[]).programs[0]).expect("a list");
        assert!(listed.contains(&known.to_owned()), "{listed:?}");
        let tally = tally(&[known], &["executables_of_tests"]);
        assert_eq!(tally.line(), "tests: 1 passed, 0 failed, 0 skipped");
        assert_eq!(tally.slowest.len(), 1);
    }

    #[test]
    fn a_test_that_fails_or_is_not_there_or_has_left_the_list_is_a_failure() {
        assert_eq!(tally(&["no such test", "nor this"], &[]).line(), "tests: 0 passed, 2 failed, 0 skipped");
        assert_eq!(tally(&[], &["gone"]).line(), "tests: 0 passed, 1 failed, 0 skipped");
        let mut tally = Tally::default();
        let outcome = |has_passed, output: &str| Outcome {
            title: "a".to_owned(),
            elapsed: Duration::ZERO,
            has_passed,
            output: output.to_owned(),
        };
        tally.count(outcome(false, ""));
        tally.count(outcome(true, "SKIPPED b: no FUSE\nother"));
        assert_eq!(tally.line(), "tests: 1 passed, 1 failed, 0 skipped");
        assert_eq!(tally.remarks.iter().collect::<Vec<_>>(), ["a: SKIPPED b: no FUSE"]);
    }

    #[test]
    fn counts_of_single_tests_are_not_printed() {
        assert_eq!(
            passed_of("a\ntest result: ok. 2 passed; 0 failed\ntest result: ok. 1 passed; 0 failed"),
            3
        );
        assert_eq!(without_counts("one\ntest result: FAILED. 0 passed; 1 failed\ntwo"), "one\ntwo");
    }
}
