//! The program that the lab is part of, and the signals that stop it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::error::Error;

/// The program that the lab is part of.
#[derive(Clone, Debug)]
pub struct Context {
    /// The `steadfast` executable. The lab makes pools by running it.
    pub steadfast: PathBuf,
    /// Its version.
    pub version: String,
}

/// A flag that Ctrl-C, SIGTERM and SIGHUP set, instead of ending the process.
pub fn stop_on_signals() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop))
            .map_err(Error::io("watch for signals in", Path::new("/proc/self")))?;
    }
    Ok(stop)
}
