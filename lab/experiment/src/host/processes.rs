//! Processes that an experiment started, and what they use.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::Error;

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

/// Seconds of processor time that processes have used.
pub(crate) fn processor_seconds(processes: &[u32]) -> Result<f64, Error> {
    let second = rustix::param::clock_ticks_per_second().max(1) as f64;
    let mut ticks = 0;
    for process in processes {
        let path = PathBuf::from(format!("/proc/{process}/stat"));
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        // Behind the name, which may have blanks: fields 14 and 15 of proc(5).
        let fields = text.rsplit_once(')').map_or("", |(_, fields)| fields).split_ascii_whitespace();
        ticks += fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    }
    Ok(ticks as f64 / second)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn processor_time_of_a_process_grows_while_it_works() {
        let me = [std::process::id()];
        let before = processor_seconds(&me).unwrap();
        let (mut number, deadline) = (1_u64, Instant::now() + std::time::Duration::from_secs(60));
        while processor_seconds(&me).unwrap() == before && Instant::now() < deadline {
            number = (0..100_000).fold(number, |number, add| number.rotate_left(7) ^ add);
        }
        assert!(processor_seconds(&me).unwrap() > before, "{number}");
        assert!(processor_seconds(&[0]).is_err());
    }
}
