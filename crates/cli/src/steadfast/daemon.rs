//! `steadfast daemon`.

use super::{memory, metrics, supervisor};
use crate::command::Command;
use crate::options::{Flag, JSON, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::sync::Arc;
use steadfast_control::api::DaemonInfo;
use steadfast_control::client::{Client, EXIT_RUNNING};
use steadfast_control::engine::{Engine, FuseFront};
use steadfast_control::{Code, Service, daemon};
use steadfast_env::Env;

const DETACHED: Flag = Flag {
    letter: '\0',
    long: "detached",
    value: "",
    doc: "with run: in its own session (setsid), and restarted after a crash, as when another command starts it",
};

const HOST_SYNC: Flag = Flag {
    letter: '\0',
    long: "host-sync",
    value: "on|off",
    doc: "with run, as root: sync(2) of the host waits until all pools have committed (default: on)",
};

/// The environment variable of [`HOST_SYNC`], which a daemon inherits from the command that starts
/// it.
const HOST_SYNC_VARIABLE: &str = "STEADFAST_HOST_SYNC";

pub(crate) const COMMAND: Command = Command {
    names: &["daemon"],
    syntax: Syntax {
        flags: &[
            flag('f', "with stop: even if files are open"),
            DETACHED,
            memory::NODE_CACHE,
            memory::BLOCK_CACHE,
            memory::DIRTY,
            HOST_SYNC,
            JSON,
            flag('p', "with memory: exact numbers"),
        ],
        operands: "run|pid|memory|metrics|stop",
        least: 1,
        most: 1,
    },
    doc: "Runs the daemon in the foreground, prints its process ID, its memory or its metrics, or stops it. `metrics` \
          prints text for Prometheus: requests by operation, caches, devices, stores and space.",
    run: run_daemon,
};

fn run_daemon(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let runtime = session.world.runtime();
    match parsed.operands[0].as_str() {
        "run" => {
            if parsed.has_long("detached") {
                let arguments = std::env::args().skip(1).filter(|word| word != "--detached");
                return supervisor::supervise(&arguments.collect::<Vec<_>>());
            }
            let memory = memory::settings(parsed)?;
            let host_sync = host_sync(parsed)?;
            steadfast_control::memory::bound_slack();
            let version = env!("CARGO_PKG_VERSION");
            let result = daemon::run(&runtime, version, host_sync, || {
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
            let mut client = Client::connect(&runtime, &session.typed)
                .doing(|| "cannot get the process ID of the daemon".into())?;
            let report =
                client.call(DaemonInfo {}).doing(|| "cannot get the process ID of the daemon".into())?;
            session.line(report.pid.to_string());
            Ok(())
        }
        "memory" => memory::show(session, parsed),
        "metrics" => metrics::show(session, parsed),
        "stop" => {
            let client =
                Client::connect(&runtime, &session.typed).doing(|| "cannot stop the daemon".into())?;
            client.stop(parsed.has('f')).doing(|| "cannot stop the daemon".into())
        }
        other => {
            let known = "run, pid, memory, metrics or stop";
            Err(Failure::Usage(format!("unknown action '{}': must be {known}", tame(other))))
        }
    }
}

/// True if `sync(2)` of the host is to wait for pools.
fn host_sync(parsed: &Parsed) -> Result<bool, Failure> {
    let (text, origin) = match (parsed.value_of_long("host-sync"), std::env::var(HOST_SYNC_VARIABLE)) {
        (Some(text), _) => (text.to_owned(), "--host-sync"),
        (None, Ok(text)) if !text.is_empty() => (text, HOST_SYNC_VARIABLE),
        _ => return Ok(true),
    };
    match text.as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Failure::Usage(format!("{origin} is '{}', and must be on or off", tame(&text)))),
    }
}
