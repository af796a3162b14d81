//! Calls on files and block devices: flags, length, a durable write.

use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::OFlags;
use steadfast_lab_params::OpenFlags;

/// The flags of open(2) for `openflags=`.
pub(crate) fn open_flags(flags: OpenFlags) -> i32 {
    let mut out = OFlags::empty();
    if flags.direct {
        out |= OFlags::DIRECT;
    }
    if flags.dsync {
        out |= OFlags::DSYNC;
    }
    out.bits() as i32
}

/// Length of a file or block device; `None` if it is not there.
pub(crate) fn length(path: &Path) -> std::io::Result<Option<u64>> {
    match File::open(path) {
        Ok(mut file) => Ok(Some(file.seek(SeekFrom::End(0))?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// One write, and with `fsync_each` the fsync(2) behind it.
#[inline]
pub(crate) fn write(file: &File, bytes: &[u8], address: u64, fsync_each: bool) -> std::io::Result<usize> {
    let count = file.write_at(bytes, address)?;
    if fsync_each {
        file.sync_all()?;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn an_fsync_follows_each_write_that_asks_for_it() {
        // It takes any write and knows no fsync.
        let zero = OpenOptions::new().write(true).open("/dev/zero").unwrap();
        assert_eq!(write(&zero, b"1234", 0, false).unwrap(), 4);
        assert_eq!(write(&zero, b"1234", 0, true).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    }
}
