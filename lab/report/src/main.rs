//! The `vdbench` command alone, without the rest of Steadfast.
#![forbid(unsafe_code)]

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

fn main() -> ExitCode {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        // The second signal ends the program at once, should a file system not give a call back.
        let twice = signal_hook::flag::register_conditional_shutdown(signal, 157, stop.clone());
        if let Err(error) = twice.and_then(|_| signal_hook::flag::register(signal, stop.clone())) {
            eprintln!("vdbench: signals are not handled: {error}.");
        }
    }
    let args: Vec<OsString> = std::env::args_os().skip(1).collect();
    let status =
        steadfast_lab_report::vdbench_main(&args, &stop, &mut std::io::stdout(), &mut std::io::stderr());
    ExitCode::from(u8::try_from(status).unwrap_or(1))
}
