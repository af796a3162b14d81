//! `startcmd=` and `endcmd=`: commands of the parameter file's author, given to the shell.

use crate::event::Event;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;
use steadfast_lab_params::Commands;

/// How long a line is waited for once the command itself has ended: what it left behind with `&`
/// may go on talking.
const SILENCE: Duration = Duration::from_millis(100);

/// Carries out the commands in order. Their output goes to the observer; a failed command is
/// reported and the run goes on.
pub(crate) fn run(
    commands: &Commands,
    output: &str,
    stop: &AtomicBool,
    observer: &mut dyn FnMut(&Event<'_>),
) {
    for line in &commands.lines {
        let line = line.replace("$output", output);
        let mut say = |text: &str| observer(&Event::Command(commands.to, text));
        let ended = one(&line, stop, &mut say);
        if let Err(why) = ended {
            observer(&Event::Notice(&format!("Command '{line}': {why}.")));
        }
    }
}

/// Output of a command; none if it cannot be run.
pub(crate) fn output(line: &str, stop: &AtomicBool) -> String {
    let mut all = String::new();
    // A script that fails has said what it had to say.
    let _ = one(line, stop, &mut |text| {
        all.push_str(text);
        all.push('\n');
    });
    all
}

fn one(line: &str, stop: &AtomicBool, say: &mut dyn FnMut(&str)) -> Result<(), String> {
    let mut child = Command::new("/bin/sh")
        .arg("-c")
        .arg(line)
        // The secret of agents is nobody else's.
        .env_remove("STEADFAST_BENCH_SECRET")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| e.to_string())?;
    let (sender, lines) = channel();
    if let Some(out) = child.stdout.take() {
        listen(out, sender.clone());
    }
    if let Some(err) = child.stderr.take() {
        listen(err, sender);
    }
    let status = loop {
        if let Ok(text) = lines.recv_timeout(Duration::from_millis(10)) {
            say(&text);
        }
        if stop.load(Relaxed) {
            let _ = child.kill();
        }
        if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
            break status;
        }
    };
    while let Ok(text) = lines.recv_timeout(SILENCE) {
        say(&text);
        if stop.load(Relaxed) {
            break;
        }
    }
    if status.success() { Ok(()) } else { Err(format!("ended with {status}")) }
}

/// Lines of a pipe, by a thread that ends with it.
fn listen(pipe: impl Read + Send + 'static, sender: Sender<String>) {
    std::thread::spawn(move || {
        for line in BufReader::new(pipe).split(b'\n').map_while(Result::ok) {
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
}
