//! `cargo xtask demo`: says what this machine lacks before it compiles anything, then builds the
//! program and runs its demo.

use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::check::Runner;

/// True if the demo ran to its end.
pub fn run(root: &Path, words: &[String]) -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0);
    let search = std::env::var_os("PATH").unwrap_or_default();
    let has_helper = std::env::split_paths(&search).any(|folder| folder.join("fusermount3").is_file());
    let opened = OpenOptions::new().read(true).write(true).open("/dev/fuse").map(drop);
    if let Some(sentence) = lacking(opened.map_err(|error| error.kind()), is_root, has_helper) {
        eprintln!("cargo xtask demo: {sentence}");
        return false;
    }
    let mut cargo = vec!["run", "--release", "--package", "steadfast", "--", "demo"];
    cargo.extend(words.iter().map(String::as_str));
    Runner::new(root).cargo(&cargo)
}

/// The thing that mounting lacks, and how to get it.
fn lacking(opened: Result<(), ErrorKind>, is_root: bool, has_helper: bool) -> Option<&'static str> {
    match opened {
        Err(ErrorKind::PermissionDenied) if !is_root => Some(
            "this user may not open /dev/fuse: type `sudo chmod 666 /dev/fuse`, as most distributions have it",
        ),
        Err(_) => Some(
            "this machine has no usable /dev/fuse: type `sudo modprobe fuse`; start a container with \
             `--device /dev/fuse --cap-add SYS_ADMIN`",
        ),
        // Root mounts by itself.
        Ok(()) if !is_root && !has_helper => Some(
            "fusermount3, with which an ordinary user mounts, is not installed: type `sudo apt install fuse3` \
             (Fedora: `sudo dnf install fuse3`)",
        ),
        Ok(()) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_lack_has_its_remedy() {
        let of = |opened, is_root, has_helper| lacking(opened, is_root, has_helper).unwrap_or("nothing");
        assert!(of(Ok(()), false, false).contains("apt install fuse3"));
        assert!(of(Err(ErrorKind::NotFound), true, true).contains("modprobe fuse"));
        assert!(of(Err(ErrorKind::PermissionDenied), false, true).contains("chmod 666"));
        assert_eq!([of(Ok(()), true, false), of(Ok(()), false, true)], ["nothing"; 2]);
    }
}
