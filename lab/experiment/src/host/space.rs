//! Space, asked of the kernel: `df` and `du`.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::error::Error;
use steadfast_lab_report::report::Space;

/// Size and used bytes of the file system of `directory`, as `df` has them.
pub fn df(directory: &Path) -> Result<(u64, u64), Error> {
    let stat = rustix::fs::statvfs(directory)
        .map_err(|e| Error::io("ask the free space of", directory)(e.into()))?;
    let unit = if stat.f_frsize == 0 { stat.f_bsize } else { stat.f_frsize };
    Ok((stat.f_blocks * unit, stat.f_blocks.saturating_sub(stat.f_bfree) * unit))
}

/// Bytes that an ordinary user can still write there.
pub fn available(directory: &Path) -> Result<u64, Error> {
    let stat = rustix::fs::statvfs(directory)
        .map_err(|e| Error::io("ask the free space of", directory)(e.into()))?;
    let unit = if stat.f_frsize == 0 { stat.f_bsize } else { stat.f_frsize };
    Ok(stat.f_bavail * unit)
}

/// Bytes of blocks and of sizes of everything below `directory` on the same file system, as `du`
/// has them.
pub fn du(directory: &Path) -> Result<(u64, u64), Error> {
    let device = fs::symlink_metadata(directory).map_err(Error::io("look at", directory))?.dev();
    let (mut blocks, mut sizes) = (0, 0);
    let mut waiting = vec![directory.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder).map_err(Error::io("list", &folder))? {
            let path = entry.map_err(Error::io("list", &folder))?.path();
            let about = fs::symlink_metadata(&path).map_err(Error::io("look at", &path))?;
            if about.dev() != device {
                continue;
            }
            if about.is_dir() {
                waiting.push(path);
            } else {
                blocks += about.blocks() * 512;
                sizes += about.size();
            }
        }
    }
    Ok((blocks, sizes))
}

/// All that the kernel says of the file system at `directory`.
pub fn measure(directory: &Path) -> Result<Space, Error> {
    let (df_size, df_used) = df(directory)?;
    let (du, apparent) = du(directory)?;
    Ok(Space { df_size, df_used, du, apparent, ..Space::default() })
}

/// Makes the file system of a directory durable.
pub fn sync(directory: &Path) -> Result<(), Error> {
    let handle = File::open(directory).map_err(Error::io("open", directory))?;
    rustix::fs::syncfs(&handle).map_err(|error| Error::io("sync", directory)(error.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn du_counts_blocks_and_sizes_of_all_files_below() {
        let dir = crate::host::workdir::Workdir::create(&std::env::temp_dir()).unwrap();
        fs::write(dir.subdirectory("a/b").unwrap().join("x"), vec![1u8; 10_000]).unwrap();
        let sparse = fs::File::create(dir.path().join("sparse")).unwrap();
        sparse.set_len(1 << 20).unwrap();
        let (blocks, sizes) = du(dir.path()).unwrap();
        assert_eq!(sizes, 10_000 + (1 << 20));
        assert!(blocks < 1 << 20, "{blocks}");
        let (size, used) = df(dir.path()).unwrap();
        assert!(size >= used && size > 0);
    }
}
