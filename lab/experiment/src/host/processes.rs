//! Daemons that an experiment started.

use std::fs;
use std::path::Path;

/// Waits for our daemon to end, and ends it if it does not: first politely. `runtime` must stand in
/// its command line or environment, so that a process id used anew is never hit.
pub fn end_process(pid: u32, runtime: &Path) {
    use rustix::process::{Pid, Signal, kill_process};
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    let ours = || {
        let marker = runtime.as_os_str().as_encoded_bytes();
        ["cmdline", "environ"].iter().any(|file| {
            fs::read(format!("/proc/{pid}/{file}"))
                .is_ok_and(|bytes| bytes.windows(marker.len()).any(|window| window == marker))
        })
    };
    for (signal, patience_ms) in
        [(None, 60_000u64), (Some(Signal::TERM), 60_000), (Some(Signal::KILL), 60_000)]
    {
        if let Some(signal) = signal {
            if !ours() {
                return;
            }
            let _ = kill_process(id, signal);
        }
        for _ in 0..patience_ms / 20 {
            if !ours() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}
