//! Mounts: found in the kernel's table, and taken away.

use std::fs;
use std::path::{Path, PathBuf};

/// Everything mounted at or below `path`, deepest first.
pub fn mounts_below(path: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mut found: Vec<PathBuf> = table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(|field| PathBuf::from(unescaped(field)))
        .filter(|mount| mount.starts_with(path))
        .collect();
    found.sort_by_key(|mount| std::cmp::Reverse(mount.components().count()));
    found
}

/// Takes a mount away whose daemon is gone: `fusermount3` works for everybody, `umount` for root.
pub fn unmount(mount: &Path) {
    for (program, flags) in [("fusermount3", ["-u", "-z"]), ("umount", ["-l", "--"])] {
        let done = std::process::Command::new(program)
            .args(flags)
            .arg(mount)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
        if done.is_ok_and(|status| status.success()) {
            return;
        }
    }
}

/// `\040` and its like, as the kernel writes blanks in its mount table.
fn unescaped(field: &str) -> String {
    let mut bytes = Vec::with_capacity(field.len());
    let raw = field.as_bytes();
    let mut at = 0;
    while at < raw.len() {
        let octal = raw.get(at + 1..at + 4).filter(|digits| digits.iter().all(|d| (b'0'..=b'7').contains(d)));
        match (raw[at], octal) {
            (b'\\', Some(digits)) => {
                bytes.push(
                    digits.iter().fold(0u8, |sum, digit| sum.wrapping_mul(8).wrapping_add(digit - b'0')),
                );
                at += 4;
            }
            (byte, _) => {
                bytes.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_table_names_with_blanks_are_read() {
        assert_eq!(unescaped(r"/mnt/my\040disk\134x"), r"/mnt/my disk\x");
        assert_eq!(unescaped(r"/end\04"), r"/end\04");
    }

    #[test]
    fn the_root_is_found_mounted() {
        assert!(mounts_below(Path::new("/")).iter().any(|mount| mount == Path::new("/")));
        assert!(mounts_below(Path::new("/no/such/place")).is_empty());
    }
}
