//! A description of the machine, as far as it bears on the figures.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use steadfast_lab_workload::cpu::CpuSample;

use crate::clock::Moment;
use crate::report::Machine;

/// Reads what this machine says of itself; `backing` is where the image files lie.
pub fn describe(backing: &Path) -> Machine {
    let uname = rustix::system::uname();
    Machine {
        processor: field("/proc/cpuinfo", "model name")
            .unwrap_or_else(|| uname.machine().to_string_lossy().into_owned()),
        cores: std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        memory_bytes: field("/proc/meminfo", "MemTotal")
            .and_then(|text| text.split(' ').next().and_then(|number| number.parse::<u64>().ok()))
            .unwrap_or(0)
            * 1024,
        kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
        system: release().unwrap_or_else(|| "system not named".to_owned()),
        backing: file_system_type(backing),
        load_before: fs::read_to_string("/proc/loadavg")
            .ok()
            .and_then(|text| text.split(' ').next().and_then(|number| number.parse().ok()))
            .unwrap_or(0.0),
        busy_before_percent: 0.0,
        busy_during_percent: None,
        own_during_percent: 0.0,
    }
}

/// How busy the machine is with other things, percent of all processors. Takes a second.
pub fn busy() -> f64 {
    let before = CpuSample::take(&[]);
    std::thread::sleep(std::time::Duration::from_secs(1));
    let usage = CpuSample::take(&[]).since(&before);
    // All time that is neither idle nor waiting; niced work counts too.
    (100.0 - usage.idle - usage.wait).clamp(0.0, 100.0)
}

/// Type of the file system a path lies on.
pub fn file_system_type(path: &Path) -> String {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    table
        .lines()
        .filter_map(|line| {
            let (left, right) = line.split_once(" - ")?;
            let mount = Path::new(left.split(' ').nth(4)?);
            path.starts_with(mount).then(|| (mount.components().count(), right.split(' ').next()))
        })
        .max_by_key(|(depth, _)| *depth)
        .and_then(|(_, kind)| kind)
        .unwrap_or("unknown")
        .to_owned()
}

/// `2026-11-21 05:20:11 UTC`
pub fn stamp(time: SystemTime) -> String {
    Moment::of(time).seconds()
}

fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

fn release() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(line.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cores_memory_and_a_kernel() {
        let machine = describe(Path::new("/"));
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20);
        assert!(machine.kernel.starts_with("Linux "), "{}", machine.kernel);
        assert!(!machine.backing.is_empty());
        assert!((0.0..=100.0).contains(&busy()));
        assert_eq!(stamp(SystemTime::UNIX_EPOCH), "1970-01-01 00:00:00 UTC");
    }
}
