//! A part of `iris-audit`: what a parity device and audits by the hour cost those who write.
//!
//! Two pools on the same store, one of them with a parity device, take the same files in turn.
//! Bytes that a daemon writes, less those that it sends to its store, are those of its parity
//! device, but for a few: the pools have no other device here.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use steadfast_lab_network::{Conditions, Link};
use steadfast_lab_report::figures::Row;

use super::AuditRequest;
use crate::bucket::arm::{Arm, Here, Kind};
use crate::bucket::remote::Remote;
use crate::comparison::ComparisonReport;
use crate::context::Context;
use crate::error::Error;
use crate::host::commands::quoted;
use crate::host::memory;
use crate::host::progress::Progress;
use crate::host::shell::Shell;
use crate::load::files::{self, Blocks};
use crate::setup::Setup;

/// Columns.
pub(super) const PLAIN: &str = "plain";
pub(super) const COVERED: &str = "parity";
/// Samples of an audit a second, where 2,759 are asked for in an hour.
const SAMPLES_A_SECOND: f64 = 2_759.0 / 3_600.0;
/// A pass has ended if nothing was written for so long.
const QUIET: Duration = Duration::from_secs(1);
/// Longest wait for that.
const PATIENCE: Duration = Duration::from_secs(120);
/// Memory that is touched before a round, for each byte of the file: pages of the kernel, the
/// daemon's segments and cache, the store, and what is on its way.
const TOUCHED: u64 = 5;
/// Bytes that a pass writes for a tile: 2,048 rows of content and tag, and the head.
const TILE_BYTES: f64 = 2_048.0 * 4_112.0 + 4_096.0;
/// Bytes of the journal for each byte of content: its tag, and the head of its record.
const JOURNALED: f64 = 1.0 + 16.0 / 4_096.0;

/// Writes the same files to both pools in turn.
pub(super) fn measure(
    request: &AuditRequest,
    (setup, context, remote): (&Setup, &Context, &Remote),
    parity: u64,
    shell: &mut Shell,
    progress: &mut Progress,
    report: &mut ComparisonReport,
    stop: &AtomicBool,
) -> Result<(), Error> {
    let make = |key: &'static str, shell: &mut Shell| {
        let home = setup.workdir.subdirectory(&format!("writers-{key}"))?;
        let conditions = Conditions { round_trip: Duration::ZERO, rate: None, loss: None };
        let link = Link::start(remote.socket, conditions);
        let link = link.map_err(Error::io("open a link before", Path::new("the store")))?;
        let last = setup.last_shell(context)?;
        Arm::make((key, Kind::Ours { here: Here::Nothing }), home, link, remote, (shell, last))
    };
    progress.begin("two pools to be written to");
    let arms = [make(PLAIN, shell)?, make(COVERED, shell)?];
    let device = arms[1].home().join("parity.img");
    let at = quoted(&device.display().to_string());
    // Written once, as one in use is: a file without its blocks is slower until it has them.
    shell.run(&format!("head -c {parity} /dev/zero > {at} && sync {at}"))?;
    shell.run(&arms[1].ours(&format!("pool add {} parity {at}", arms[1].pool())))?;
    let mut audited = 0_u32;
    let rounds =
        (0..request.rounds()).flat_map(|round| request.rates().into_iter().map(move |rate| (round, rate)));
    for (round, limit) in rounds {
        progress.begin(&limit.label(&format!("writers, round {}", round + 1)));
        arms.iter().for_each(|arm| arm.link.set_rate(limit.0));
        // The one that is first finds the machine as the other one left it.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for of in order {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let (arm, is_covered) = (&arms[of], of == 1);
            let key = [PLAIN, COVERED][of];
            let path = arm.place().join(limit.key(&format!("file{round}")));
            let mut blocks = Blocks::new(u64::from(round) + 21, 1.0);
            let memory_row = Row::new(
                "memory",
                "memory of the machine, touched before",
                "MB/s",
                true,
                "Free memory is written to and given back before each file, so that none of its round waits for the host of a virtual machine.",
            );
            report.add(&memory_row, key, memory::touch(TOUCHED * request.written()));
            let before = (written(arm)?, arm.link.counts(), header(&device)?.0);
            if is_covered {
                let samples = (audited_by(request) * SAMPLES_A_SECOND).ceil().max(8.0);
                let audit = arm.ours(&format!("audit -n {samples} {}", arm.pool()));
                shell.run(&format!("({audit} > /dev/null 2>&1 &)"))?;
                audited += 1;
            }
            let began = Instant::now();
            files::write(&path, request.written(), &mut blocks).map_err(Error::io("fill", &path))?;
            arm.settle(shell)?;
            let seconds = began.elapsed().as_secs_f64();
            let rate = Row::new(
                &limit.key("written"),
                &limit.label("writing a file until it is in the store"),
                "MB/s",
                true,
                "Content, from the first byte until `sync` and `pool sync` have ended.",
            );
            report.add(&rate, key, request.written() as f64 / 1e6 / seconds);
            wait_until_quiet(arm)?;
            let sent = arm.link.counts().since(&before.1).up as f64;
            let local = (written(arm)?.saturating_sub(before.0) as f64 - sent).max(0.0);
            let local_row = Row::new(
                "local",
                "bytes written to files of this machine, for each byte of the file",
                "bytes",
                false,
                "By /proc/PID/io of the daemon, less what it sent to the store, until its last pass has ended.",
            );
            report.add(&local_row, key, local / request.written() as f64);
            if is_covered {
                let (sequence, tiles) = header(&device)?;
                let passes = sequence.saturating_sub(before.2) as f64;
                let formula = sent * JOURNALED + passes * f64::from(tiles) * TILE_BYTES;
                let formula_row = Row::new(
                    "formula",
                    "the same by the formula",
                    "bytes",
                    false,
                    "The journal has what was sent, with tags; each pass of the header writes all tiles.",
                );
                report.add(&formula_row, key, formula / request.written() as f64);
                let passes_row = Row::new("passes", "passes", "passes", false, "By the parity's header.");
                report.add(&passes_row, key, passes);
                let share = Row::new(
                    "of_formula",
                    "parity traffic beside the formula",
                    "of it",
                    false,
                    "Ratio of the two.",
                );
                report.add(&share, key, local / formula);
            }
        }
        progress.advance(1.0 / (f64::from(request.rounds()) * request.rates().len() as f64), "");
    }
    report.notes.push(format!(
        "Writers: two pools on the same store, one of them with a parity device of {} MiB whose bytes were all written once before, take a file of {} MiB in turn, each \
         round the other one first. The link of each has {}; bytes of parity are those of all rounds. {audited} audits of the second one ran beside, of at least as many samples as 2,759 an hour are.",
        parity >> 20,
        request.written() >> 20,
        request.way(),
    ));
    Ok(())
}

/// Seconds that a file takes to be written, at a slow 20 MB/s.
fn audited_by(request: &AuditRequest) -> f64 {
    request.written() as f64 / 20e6
}

/// Bytes that the daemon of an arm has written, to files and to its store.
fn written(arm: &Arm) -> Result<u64, Error> {
    let lock = arm.home().join("run/daemon.lock");
    let pid = fs::read_to_string(&lock).map_err(Error::io("read", &lock))?;
    let path = PathBuf::from(format!("/proc/{}/io", pid.trim()));
    let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
    Ok(counted(&text))
}

/// Bytes of write calls in a text of `/proc/PID/io`, those to sockets too.
fn counted(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix("wchar:"));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

fn wait_until_quiet(arm: &Arm) -> Result<(), Error> {
    let (began, mut last) = (Instant::now(), (written(arm)?, Instant::now()));
    while last.1.elapsed() < QUIET && began.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(50));
        let now = written(arm)?;
        // Commits of an idle pool note little.
        if now > last.0 + (64 << 10) {
            last = (now, Instant::now());
        }
    }
    Ok(())
}

/// Number of the last pass, and tiles, by the newer header of a parity device
/// (docs/format/parity.md).
fn header(device: &Path) -> Result<(u64, u32), Error> {
    let file = File::open(device).map_err(Error::io("open", device))?;
    let mut newest = (0, 0);
    for copy in 0..2 {
        let mut bytes = [0; 80];
        file.read_exact_at(&mut bytes, copy * 4_096).map_err(Error::io("read", device))?;
        newest = newest.max(figures(&bytes));
    }
    Ok(newest)
}

fn figures(bytes: &[u8; 80]) -> (u64, u32) {
    let sequence = u64::from_le_bytes(bytes[56..64].try_into().expect("eight bytes"));
    let tiles = u32::from_le_bytes(bytes[76..80].try_into().expect("four bytes"));
    (sequence, tiles)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_and_headers_are_read() {
        assert_eq!(counted("rchar: 12\nwchar: 3456\nsyscr: 7\n"), 3456);
        assert_eq!(counted(""), 0);
        let mut bytes = [0; 80];
        (bytes[56], bytes[76], bytes[77]) = (9, 2, 1);
        assert_eq!(figures(&bytes), (9, 258));
    }
}
