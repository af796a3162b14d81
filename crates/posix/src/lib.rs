//! # POSIX
//!
//! The meaning of names, inodes, links, renames, attributes and errno, over a
//! [`Dataset`](steadfast_dataset::Dataset). Knows no protocol: a front translates its calls into
//! these.
//!
//! ## What the kernel does and we do not
//! Access checks (a FUSE mount has `default_permissions`), the sticky bit, `O_TRUNC` and `O_APPEND`
//! positions of cached writes, locks, leases, watches. Our part: set-id bits and capabilities on
//! write, truncate and chown; the group of new files in set-gid directories; keeping access control
//! lists in step with modes and handing them down, with them the umask; hiding `trusted.*`. A
//! network front has no kernel before it and asks `permission` who may do what.
//! DESIGN.md, "POSIX", lists what programs see.
//!
//! ## Invariants
//! [posix.1] An entry's inode exists, and an inode's `nlink` is the number of its entries (for a
//!      directory: 2 and its subdirectories).
//!      test: `links_are_counted`
//! [posix.2] A directory is in exactly one place, which its inode's `parent` names; no directory is
//!      below itself.
//! [posix.3] Changes of names of one dataset are made one after another (`names` mutex), so what
//!      one operation looked up is true until its batch is applied.
//!
//! ## Lock order
//! Operation (gate) → `names` mutex → inode locks. Reclaim of an orphan begins an operation of its
//! own, after all of these are free [txg.4].
#![forbid(unsafe_code)]

mod acl;
mod attributes;
mod content;
mod errno;
mod filesystem;
mod namespace;
mod permission;
mod walk;
mod xattr;

pub use acl::AclKind;
pub use attributes::{Attr, SetAttr, SetIds, SetTime};
pub use content::Fallocate;
pub use errno::Errno;
pub use filesystem::{Atime, Caller, Entry, FileSystem, Options, StatFs, Usage};
pub use namespace::{DirEntry, Listed, RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT};
pub use permission::{Identity, MAY_EXECUTE, MAY_READ, MAY_WRITE};
pub use steadfast_dataset::{BlockPart, Time, WriteClaim, WriteRoom, WriteTerms};
pub use steadfast_env::requests;
pub use steadfast_env::waiting::Span;
pub use steadfast_txg::{Claim, Claims, Patience};

/// Result of a call of this crate.
pub type Result<T, E = Errno> = std::result::Result<T, E>;

/// Type bits of a mode.
pub const S_IFMT: u32 = 0o170_000;
/// Directory.
pub const S_IFDIR: u32 = 0o040_000;
/// Regular file.
pub const S_IFREG: u32 = 0o100_000;
/// Character device.
pub const S_IFCHR: u32 = 0o020_000;
/// Symbolic link.
pub const S_IFLNK: u32 = 0o120_000;
/// Set-uid bit.
pub const S_ISUID: u32 = 0o4000;
/// Set-gid bit.
pub const S_ISGID: u32 = 0o2000;
/// Execution by the group.
pub const S_IXGRP: u32 = 0o010;
