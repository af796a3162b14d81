//! `vdbench agent` and `vdbench secret`: the other end of runs on several hosts.

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use steadfast_lab_hosts::{Agent, Secret, serve};
use steadfast_lab_params::AGENT_PORT;

const AGENT_USAGE: &str = "usage: vdbench agent [--listen ADDRESS:PORT] [--secret FILE]";
const SECRET_USAGE: &str = "usage: vdbench secret FILE";

/// Waits for masters until `stop` becomes true.
pub(crate) fn agent(args: &[String], stop: &AtomicBool, out: &mut dyn Write) -> Result<(), String> {
    let (mut listen, mut file) = (format!("127.0.0.1:{AGENT_PORT}"), None);
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let value = words.next().ok_or(AGENT_USAGE)?;
        match word.as_str() {
            "--listen" if value.contains(':') => listen.clone_from(value),
            "--secret" => file = Some(PathBuf::from(value)),
            _ => return Err(format!("'{word} {value}' is not understood. {AGENT_USAGE}")),
        }
    }
    let secret = Secret::find(file.as_deref()).map_err(|error| error.to_string())?;
    let agent = Agent::listen(&listen, secret).map_err(|error| error.to_string())?;
    let address = agent.address().map_err(|error| error.to_string())?;
    let (sender, lines) = mpsc::channel();
    // A console that has gone away does not end a measurement.
    let mut put = |line: &str| {
        let _ = writeln!(out, "{} {line}", crate::clock::Moment::now().time());
        let _ = out.flush();
    };
    put(&format!("The agent listens at {address}."));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let say = |line: &str| {
                let _ = sender.send(line.to_string());
            };
            serve(&agent, stop, &say);
            drop(sender);
        });
        lines.iter().for_each(|line| put(&line));
    });
    put("The agent has ended.");
    Ok(())
}

/// Makes a secret.
pub(crate) fn secret(args: &[String], out: &mut dyn Write) -> Result<(), String> {
    let [file] = args else { return Err(SECRET_USAGE.to_string()) };
    Secret::make(&PathBuf::from(file)).map_err(|error| error.to_string())?;
    let said =
        writeln!(out, "'{file}' holds a new secret: copy it to every host, readable by its owner alone.");
    said.map_err(|error| format!("the console is gone: {error}."))
}
