//! Processes that have clients: this program once more, as `steadfast lab clients`.
//!
//! ```text
//! lab ─ a job, a line of JSON ─► process      its clients connect
//!     ◄─ ready ─────────────────              all of them have
//!     ─ go ─────────────────────►             they work
//!     ◄─ {"Ok": bytes} ──────────             or {"Err": "why"}
//! ```
//! A process ends with its standard input.

use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;

/// Words behind the program's name.
const WORDS: [&str; 2] = ["lab", "clients"];
/// A process that has not ended by then, without a job, never will.
const PATIENCE: Duration = Duration::from_secs(5);
const READY: &str = "ready";
const GO: &str = "go";

/// Processes that wait for jobs, until they are dropped.
pub(super) struct Workers(Vec<Worker>);

struct Worker {
    child: Child,
    /// None when it shall end.
    jobs: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Workers {
    /// Starts so many.
    pub fn start(count: u32, program: &Path) -> Result<Workers, Error> {
        Workers::start_with(count, program, &WORDS)
    }

    fn start_with(count: u32, program: &Path, words: &[&str]) -> Result<Workers, Error> {
        let start = |_| {
            let mut command = Command::new(program);
            command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped());
            let mut child = command.spawn().map_err(Error::io("run", program))?;
            let jobs = child.stdin.take();
            let answers = BufReader::new(child.stdout.take().expect("it is a pipe"));
            Ok(Worker { child, jobs, answers })
        };
        (0..count).map(start).collect::<Result<_, Error>>().map(Workers)
    }

    /// None at all.
    pub fn none() -> Workers {
        Workers(Vec::new())
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.0.len() as u32
    }

    /// Their ids.
    pub fn processes(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|worker| worker.child.id())
    }

    /// Has each do one of these jobs, all at once. Returns the sum of what they did and the seconds
    /// from the moment at which all were ready until the last had ended.
    pub fn work<Job: Serialize>(&mut self, jobs: &[Job]) -> io::Result<(u64, f64)> {
        let taken = &mut self.0[..jobs.len()];
        for (worker, job) in taken.iter_mut().zip(jobs) {
            worker.say(&serde_json::to_string(job)?)?;
        }
        for worker in &mut *taken {
            match worker.answer()?.as_str() {
                READY => {}
                other => return Err(io::Error::other(format!("a process with clients said {other:?}"))),
            }
        }
        let began = Instant::now();
        taken.iter_mut().try_for_each(|worker| worker.say(GO))?;
        let (mut sum, mut failure) = (0, None);
        for worker in taken {
            match serde_json::from_str::<Result<u64, String>>(&worker.answer()?)? {
                Ok(count) => sum += count,
                Err(error) => failure = Some(io::Error::other(error)),
            }
        }
        match failure {
            Some(error) => Err(error),
            None => Ok((sum, began.elapsed().as_secs_f64().max(1e-9))),
        }
    }
}

impl Worker {
    fn say(&mut self, line: &str) -> io::Result<()> {
        let jobs = self.jobs.as_mut().expect("it is told to end when it is dropped");
        jobs.write_all(format!("{line}\n").as_bytes())
    }

    fn answer(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.jobs.take());
        let began = Instant::now();
        while self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            if began.elapsed() > PATIENCE {
                let _ = self.child.kill();
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The other side: does the jobs of `input`, one after the other, until it ends. `work` calls what
/// it is given when all clients of the job are ready.
///
/// # Errors
/// Nobody reads the answers, or a line is no job.
pub(super) fn serve<Job: DeserializeOwned>(
    mut input: impl BufRead,
    mut output: impl Write,
    work: impl Fn(Job, &mut dyn FnMut() -> io::Result<()>) -> io::Result<u64>,
) -> io::Result<()> {
    loop {
        let mut line = String::new();
        if input.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let job = serde_json::from_str(&line)?;
        let mut gate = || {
            writeln!(output, "{READY}")?;
            output.flush()?;
            let mut line = String::new();
            input.read_line(&mut line)?;
            match line.trim_end() {
                GO => Ok(()),
                other => Err(io::Error::other(format!("told {other:?} instead of {GO:?}"))),
            }
        };
        let done = work(job, &mut gate).map_err(|error| error.to_string());
        writeln!(output, "{}", serde_json::to_string(&done)?)?;
        output.flush()?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_done_one_after_the_other_and_failures_are_told() {
        let twice = |number: u64, gate: &mut dyn FnMut() -> io::Result<()>| {
            gate()?;
            if number == 13 { Err(io::Error::other("unlucky")) } else { Ok(2 * number) }
        };
        let told = |input: &str| {
            let mut output = Vec::new();
            let ended = serve(input.as_bytes(), &mut output, twice);
            (ended.is_ok(), String::from_utf8(output).unwrap())
        };
        let answers = "ready\n{\"Ok\":42}\nready\n{\"Err\":\"unlucky\"}\n";
        assert_eq!(told("21\ngo\n13\ngo\n"), (true, answers.to_owned()));
        let (_, hasty) = told("21\n22\n");
        assert!(hasty.contains("Err") && !hasty.contains("Ok"), "{hasty}");
        assert_eq!(told("no job\n"), (false, String::new()));
    }

    #[test]
    fn a_process_that_does_not_end_is_ended() {
        let workers = Workers::start_with(1, Path::new("/bin/sleep"), &["1000000"]).unwrap();
        let id = workers.processes().next().unwrap();
        assert!(Path::new(&format!("/proc/{id}")).exists());
        drop(workers);
        assert!(!Path::new(&format!("/proc/{id}")).exists());
    }

    #[test]
    fn a_process_that_is_no_worker_is_an_error() {
        let mut workers = Workers::start(2, Path::new("/bin/true")).unwrap();
        assert_eq!((workers.count(), workers.processes().count()), (2, 2));
        assert!(workers.work(&[1, 2]).is_err());
        assert!(Workers::start(1, Path::new("/no/such/program")).is_err());
    }
}
