//! New file systems: missing parents, and the owner of the top folder.

use crate::api::Properties;
use crate::caller::Caller;
use crate::engine::refuse;
use crate::engine::state::ImportedPool;
use crate::refusal::{Code, Refusal};
use std::sync::Arc;
use steadfast_posix::{Atime, FileSystem, Options, SetAttr, Usage};

/// Makes the caller the owner of the top folder of a new file system. Otherwise ordinary users
/// could not write into their own pools.
pub(in crate::engine) fn give(held: &ImportedPool, name: &str, caller: &Caller) -> Result<(), Refusal> {
    const TOP: u64 = 1;
    if (caller.uid, caller.gid) == (0, 0) {
        return Ok(());
    }
    let refuse_os = |errno: steadfast_posix::Errno| {
        let error = std::io::Error::from_raw_os_error(errno.0);
        let what = format!("the owner of the top folder of '{name}' cannot be set: {error}");
        Refusal::new(Code::FileIo, what).with("file", name)
    };
    let handle = held.pool.datasets().open_dataset(name).map_err(refuse::pool)?;
    // `df` does not ask here.
    let usage = Arc::new(|| Usage { used_bytes: 0, available_bytes: 0 });
    let options = Options { atime: Atime::Off, usage, block_bytes: 4096 };
    let files = FileSystem::new(Arc::clone(handle.dataset()), options).map_err(refuse_os)?;
    let owner = SetAttr { uid: Some(caller.uid), gid: Some(caller.gid), ..SetAttr::default() };
    files.setattr(TOP, &owner).map(drop).map_err(refuse_os)
}

/// Creates missing parents, outermost first, then their child. If that is refused, the parents are
/// destroyed again.
pub(in crate::engine) fn with_parents(
    held: &ImportedPool,
    missing: &[String],
    make: impl FnOnce() -> steadfast_pool::Result<()>,
) -> steadfast_pool::Result<()> {
    let mut made: Vec<&String> = Vec::new();
    let parents = missing.iter().try_for_each(|parent| -> steadfast_pool::Result<()> {
        held.pool.datasets().create_dataset(parent, Properties::new(), None)?;
        made.push(parent);
        Ok(())
    });
    let done = parents.and_then(|()| make());
    if done.is_err() {
        for parent in made.into_iter().rev() {
            // They are empty. The refusal is reported even if this fails.
            let _ = held.pool.datasets().destroy_dataset(parent);
        }
    }
    done
}
