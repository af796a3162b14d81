//! The kernel's caches.

use std::fs;
use std::path::Path;

use crate::error::Error;

/// Writes everything back and empties the kernel's caches of pages, names and inodes.
pub fn drop_kernel_caches() -> Result<(), Error> {
    let path = Path::new("/proc/sys/vm/drop_caches");
    rustix::fs::sync();
    fs::write(path, "3").map_err(Error::io("write", path))
}
