//! Processor time: of the whole machine, of processes somebody names (a file system's daemon), and
//! of ourselves.

use std::fs;

/// Counters of `/proc/stat`, in clock ticks over all processors.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Machine {
    user: u64,
    nice: u64,
    system: u64,
    idle: u64,
    iowait: u64,
    irq: u64,
    softirq: u64,
    steal: u64,
}

/// One reading of all counters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CpuSample {
    machine: Machine,
    watched_ticks: Vec<u64>,
    own_ticks: u64,
    own_user_ticks: u64,
}

/// Use of processors between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuUse {
    /// User and system, in per cent of the machine, as vdbench computes it.
    pub used: f64,
    /// User part.
    pub user: f64,
    /// System part: system, interrupts, soft interrupts.
    pub system: f64,
    /// Waiting for I/O.
    pub wait: f64,
    /// Idle.
    pub idle: f64,
    /// Niced; in no other column.
    pub nice: f64,
    /// Taken by the host of this virtual machine; in no other column.
    pub steal: f64,
    /// Seconds of processor time of the processes that are watched, user and system.
    pub watched_seconds: f64,
    /// Seconds of processor time of this process: the price of measuring.
    pub own_seconds: f64,
    /// The part of it outside the kernel: what the engine itself does.
    pub own_user_seconds: f64,
}

impl CpuSample {
    /// Reads the counters now. A counter that cannot be read is zero.
    pub fn take(watched: &[u32]) -> CpuSample {
        CpuSample {
            machine: fs::read_to_string("/proc/stat").map(|text| parse_stat(&text)).unwrap_or_default(),
            watched_ticks: watched.iter().map(|pid| process_ticks(&format!("/proc/{pid}/stat"))).collect(),
            own_ticks: process_ticks("/proc/self/stat"),
            own_user_ticks: ticks("/proc/self/stat", 1),
        }
    }

    /// Processor use since `before`.
    pub fn since(&self, before: &CpuSample) -> CpuUse {
        let (now, then) = (&self.machine, &before.machine);
        let of = |field: fn(&Machine) -> u64| field(now).saturating_sub(field(then)) as f64;
        let (user, nice) = (of(|m| m.user), of(|m| m.nice));
        let system = of(|m| m.system) + of(|m| m.irq) + of(|m| m.softirq);
        let (idle, wait) = (of(|m| m.idle), of(|m| m.iowait));
        // vdbench counts soft interrupts twice in the divisor; comparability wins over arithmetic.
        let whole = user + system + nice + idle + wait + of(|m| m.softirq);
        let percent = |ticks: f64| if whole > 0.0 { ticks * 100.0 / whole } else { 0.0 };
        let second = rustix::param::clock_ticks_per_second().max(1) as f64;
        let pairs = self.watched_ticks.iter().zip(&before.watched_ticks);
        let watched: u64 = pairs.map(|(now, then)| now.saturating_sub(*then)).sum();
        CpuUse {
            used: percent(user + system),
            user: percent(user),
            system: percent(system),
            wait: percent(wait),
            idle: percent(idle),
            nice: percent(nice),
            steal: percent(of(|m| m.steal)),
            watched_seconds: watched as f64 / second,
            own_seconds: self.own_ticks.saturating_sub(before.own_ticks) as f64 / second,
            own_user_seconds: self.own_user_ticks.saturating_sub(before.own_user_ticks) as f64 / second,
        }
    }
}

fn parse_stat(text: &str) -> Machine {
    let line = text.lines().find(|line| line.starts_with("cpu ")).unwrap_or("");
    let mut fields = line.split_ascii_whitespace().skip(1).map(|word| word.parse().unwrap_or(0));
    let mut next = || fields.next().unwrap_or(0);
    Machine {
        user: next(),
        nice: next(),
        system: next(),
        idle: next(),
        iowait: next(),
        irq: next(),
        softirq: next(),
        steal: next(),
    }
}

/// User and system ticks of one process. Its name is in parentheses and may contain anything.
fn process_ticks(path: &str) -> u64 {
    ticks(path, 2)
}

/// User ticks of one process, or (`fields` is 2) those in the kernel too.
fn ticks(path: &str, fields: usize) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    let after_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    after_name
        .split_ascii_whitespace()
        .skip(11)
        .take(fields)
        .map(|word| word.parse::<u64>().unwrap_or(0))
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_are_vdbenchs_arithmetic() {
        let before = CpuSample::default();
        let machine = parse_stat("cpu  40 10 20 100 5 2 8 3 0 0\ncpu0 1 1 1 1\n");
        let after = CpuSample { machine, ..CpuSample::default() };
        let usage = after.since(&before);
        // user 40; system 20+2+8 = 30; divisor 40+30+10+100+5+8 = 193.
        assert!((usage.used - 70.0 * 100.0 / 193.0).abs() < 1e-9);
        assert!((usage.system - 30.0 * 100.0 / 193.0).abs() < 1e-9);
    }

    #[test]
    fn this_process_is_seen_by_its_pid_as_by_itself() {
        let pid = std::process::id();
        let sample = CpuSample::take(&[pid]);
        assert_eq!(sample.watched_ticks.len(), 1);
        assert!(sample.own_ticks.abs_diff(sample.watched_ticks[0]) <= 2);
        assert!(sample.machine.idle + sample.machine.user > 0);
    }
}
