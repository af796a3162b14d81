//! Attributes, times and errors of `posix` in the kernel's form.

use std::time::Duration;

use steadfast_fuse::{Attr, Entry, Errno, Time};

/// How long the kernel may keep a name or attributes. Only this daemon changes the file system, and
/// it tells the kernel of each change.
pub(crate) const TTL: Duration = Duration::from_secs(3600);
/// The same for a file whose `st_blocks` is not known yet: its content is on its way to the
/// devices.
pub(crate) const TTL_UNSETTLED: Duration = Duration::from_secs(1);

pub(crate) fn errno(error: steadfast_posix::Errno) -> Errno {
    Errno(error.0)
}

pub(crate) fn time(time: steadfast_posix::Time) -> Time {
    Time { secs: time.seconds, nanos: time.nanos }
}

/// The reverse of [`time`].
pub(crate) fn posix_time(time: Time) -> steadfast_posix::Time {
    steadfast_posix::Time { seconds: time.secs, nanos: time.nanos }
}

pub(crate) fn attr(attr: &steadfast_posix::Attr) -> Attr {
    Attr {
        ino: attr.ino,
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        btime: Some(time(attr.btime)),
        mode: attr.mode,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize,
    }
}

pub(crate) fn entry(entry: &steadfast_posix::Entry) -> Entry {
    Entry {
        ino: entry.ino,
        generation: entry.generation,
        attr: attr(&entry.attr),
        entry_ttl: TTL,
        attr_ttl: attr_ttl(&entry.attr),
    }
}

pub(crate) fn attr_ttl(attributes: &steadfast_posix::Attr) -> Duration {
    if attributes.is_settled { TTL } else { TTL_UNSETTLED }
}
