//! Memory of the machine: the daemon's default sizes are parts of it.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of memory this process may use: the machine's, or the limit of its control group or of a
/// parent group, if that is less. 1 GiB if neither is known.
#[must_use]
pub fn machine_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    machine.into_iter().chain(limit(Path::new("/sys/fs/cgroup"), &groups)).min().unwrap_or(1 << 30)
}

/// Limits the unused memory that the allocator keeps; see [`steadfast_fuse::arenas`]. For a daemon,
/// before it starts threads.
pub fn bound_slack() {
    // Without this setting there are no arenas either.
    let _ = steadfast_fuse::arenas::share_two();
}

/// `MemTotal` of `/proc/meminfo`.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
}

/// The least limit on the way from the process's groups (`/proc/self/cgroup`) up to the root,
/// versions 1 and 2.
fn limit(root: &Path, groups: &str) -> Option<u64> {
    let least = |base: PathBuf, group: &str, file: &str| {
        let below = base.join(group.trim_start_matches('/'));
        let folders = below.ancestors().take_while(|folder| folder.starts_with(&base));
        folders
            .filter_map(|folder| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok())
            .min()
    };
    groups
        .lines()
        .filter_map(|line| {
            // "0::/a/group" of version 2, "5:memory:/a/group" of version 1.
            let mut parts = line.splitn(3, ':');
            match (parts.next()?, parts.next()?, parts.next()?) {
                ("0", "", group) => least(root.to_path_buf(), group, "memory.max"),
                (_, kinds, group) if kinds.split(',').any(|kind| kind == "memory") => {
                    least(root.join("memory"), group, "memory.limit_in_bytes")
                }
                _ => None,
            }
        })
        .min()
}

/// Resident memory of this process in bytes, and the most it ever was.
#[must_use]
pub fn resident_bytes() -> (u64, u64) {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
    };
    (field("VmRSS:").unwrap_or(0), field("VmHWM:").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_known() {
        assert!(machine_bytes() >= 64 << 20);
        let (now, most) = resident_bytes();
        assert!(now > 1 << 20 && most >= now);
        assert_eq!(total("MemTotal:       24576 kB\nMemFree: 1 kB\n"), Some(24 << 20));
        assert_eq!(total("MemFree: 1 kB\n"), None);
    }

    #[test]
    fn the_nearest_limit_counts() {
        let root = std::env::temp_dir().join(format!("steadfast-groups-{}", std::process::id()));
        let unlimited = "9223372036854771712";
        for (folder, file, text) in [
            ("", "memory.max", "max"),
            ("outer", "memory.max", "1000000"),
            ("outer/inner", "memory.max", "max"),
            ("memory/old", "memory.limit_in_bytes", unlimited),
            ("memory/old/tight", "memory.limit_in_bytes", "500000"),
        ] {
            fs::create_dir_all(root.join(folder)).unwrap();
            fs::write(root.join(folder).join(file), format!("{text}\n")).unwrap();
        }
        assert_eq!(limit(&root, "0::/outer/inner\n"), Some(1_000_000));
        assert_eq!(limit(&root, "0::/\n"), None);
        assert_eq!(limit(&root, "0::/elsewhere\n"), None);
        assert_eq!(limit(&root, "5:cpu,memory:/old/tight\n1:name=systemd:/outer\n"), Some(500_000));
        assert_eq!(limit(&root, "5:memory:/old\n0::/outer\n"), Some(1_000_000));
        assert_eq!(limit(&root, "nonsense"), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
