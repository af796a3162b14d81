//! `steadfast bench`, which is `vdbench`.

use crate::command::{Door, FAILED};
use crate::world::World;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

pub(crate) const BENCH: Door = Door {
    name: "bench",
    usage: "[-f file] [option]... [name=value]...",
    doc: "Runs a vdbench parameter file, like the command vdbench.",
    run: bench,
};

/// Exit status of vdbench for any failure.
const VDBENCH_FAILED: i32 = 157;

/// The first Ctrl-C ends the run in order, the second one at once.
fn bench(world: &mut World<'_>, words: &[String]) -> u8 {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        let twice =
            signal_hook::flag::register_conditional_shutdown(signal, VDBENCH_FAILED, Arc::clone(&stop));
        if let Err(error) = twice.and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop))) {
            let _ = writeln!(world.err, "vdbench: cannot handle signals: {error}.");
        }
    }
    let words: Vec<OsString> = words.iter().map(OsString::from).collect();
    let status = steadfast_lab_report::vdbench_main(&words, &stop, world.out, world.err);
    u8::try_from(status).unwrap_or(FAILED)
}
