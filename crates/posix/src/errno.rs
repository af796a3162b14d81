//! errno is decided here, each line with its reason.

use steadfast_dataset::Error;
use steadfast_txg::Refusal;

/// An error number as the kernel knows it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Errno(pub i32);

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $value:expr;)*) => {
        impl Errno {
            $($(#[$doc])* pub const $name: Errno = Errno($value);)*
        }
    };
}

numbers! {
    /// Not permitted: hard link to a directory.
    EPERM = 1;
    /// No such name.
    ENOENT = 2;
    /// The waiting caller is being killed.
    EINTR = 4;
    /// It would have to wait, and must not: only a front that asked for this sees it.
    EAGAIN = 11;
    /// The bytes are there no more, or not what was written.
    EIO = 5;
    /// The caller may not.
    EACCES = 13;
    /// Something holds it. No function here gives this one, but a front's other parts do.
    EBUSY = 16;
    /// The name is taken.
    EEXIST = 17;
    /// Not a directory.
    ENOTDIR = 20;
    /// A directory, where none may be.
    EISDIR = 21;
    /// An argument makes no sense.
    EINVAL = 22;
    /// Larger than a file may be.
    EFBIG = 27;
    /// No space.
    ENOSPC = 28;
    /// The file system takes no changes.
    EROFS = 30;
    /// More links than are counted.
    EMLINK = 31;
    /// A name longer than 255 bytes.
    ENAMETOOLONG = 36;
    /// The directory holds something.
    ENOTEMPTY = 39;
    /// No such attribute.
    ENODATA = 61;
    /// Beyond the last data.
    ENXIO = 6;
    /// A value longer than 64 KiB.
    E2BIG = 7;
    /// The caller's buffer is too short.
    ERANGE = 34;
    /// A name that is no UTF-8, where names have to be.
    EILSEQ = 84;
    /// Not offered.
    EOPNOTSUPP = 95;
    /// The inode is gone.
    ESTALE = 116;
    /// A quota is reached.
    EDQUOT = 122;
}

impl From<Error> for Errno {
    fn from(error: Error) -> Errno {
        match error {
            // The refusal says so before anything changed.
            Error::Refused(Refusal::NoSpace) => Errno::ENOSPC,
            Error::Refused(Refusal::OverQuota) => Errno::EDQUOT,
            Error::Refused(Refusal::ReadOnly) => Errno::EROFS,
            // Nothing was changed; the caller sees neither, one being dead and the other a front
            // that asks again.
            Error::Refused(Refusal::CallerDying) => Errno::EINTR,
            Error::Refused(Refusal::WouldWait) => Errno::EAGAIN,
            // A suspended pool promises nothing any more: the same errno as for a failing disk.
            Error::Refused(_) | Error::Suspended(_) => Errno::EIO,
            // The kernel asks for a number it was given, so the inode was there: NFS's word for it.
            Error::NoInode(_) => Errno::ESTALE,
            // Never other bytes than those that were written.
            _ => Errno::EIO,
        }
    }
}

impl From<steadfast_tree::Error> for Errno {
    fn from(_: steadfast_tree::Error) -> Errno {
        // A node that does not verify, or an item that cannot be understood.
        Errno::EIO
    }
}
