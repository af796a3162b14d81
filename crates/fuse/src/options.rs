//! How a file system is mounted.

use crate::wire::DecodeError;
use crate::wire::opcode;
use std::fmt;
use std::sync::Arc;

/// Settings of one mount. [`MountOptions::new`] gives the defaults; fields are changed one by one.
#[derive(Clone)]
#[non_exhaustive]
pub struct MountOptions {
    /// Source in `df`: a pool's or dataset's name.
    pub fs_name: String,
    /// The type shown is `fuse.SUBTYPE`, or `fuse` without one. Default `None`.
    pub subtype: Option<String>,
    /// The root of the file system is a regular file, and what it is mounted over is one too.
    /// Default false: both are directories.
    pub root_is_file: bool,
    /// Users other than the one who mounts may enter. Needs root, or `user_allow_other` in
    /// `/etc/fuse.conf`. Default false.
    pub allow_other: bool,
    /// The kernel checks permissions by owner and mode (and ACLs). Default true; without it the
    /// handler must.
    pub default_permissions: bool,
    /// The kernel refuses every change. Default false.
    pub read_only: bool,
    /// Flags of the mount itself.
    pub flags: MountFlags,
    /// Threads that serve requests while none is blocked. Default `None`: one per CPU, at least 2
    /// and at most 16.
    pub threads: Option<usize>,
    /// How long a thread looks for the next request before it sleeps, in microseconds, as long as
    /// requests come that fast; 0: never. To wake a thread that sleeps often costs more than to
    /// serve a request. Only with `clone_device`. Default 50.
    pub poll_us: u32,
    /// Processors with nothing to do look for work instead of halting while requests come fast.
    /// Default [`IdlePoll::Auto`].
    pub idle_poll: IdlePoll,
    /// Most threads there may be when handlers block. Default 64.
    pub threads_max: usize,
    /// Longest WRITE and READ in bytes, 4 KiB to 128 MiB; the kernel may lower it. Default 1 MiB:
    /// larger gained nothing when measured.
    pub max_write: usize,
    /// Read-ahead of the mount in KiB. More than the kernel's usual 128 needs root and `/sys`;
    /// where that fails there is a log event. Default `Some(1024)`.
    pub read_ahead_kb: Option<u32>,
    /// Asynchronous requests the kernel lets wait. Default 64.
    pub max_background: u16,
    /// Collect small buffered writes in the page cache. Default false; never on a tree another
    /// front writes.
    pub writeback_cache: bool,
    /// With `writeback_cache`: what collected writes of this mount may fill of the memory that the
    /// kernel lets be dirty (`vm.dirty_ratio`), in per cent, 1 to 100. The kernel's own limit for
    /// FUSE, 1 % and strictly kept, makes writers wait for their own writes nearly always. Needs
    /// root and `/sys` (Linux 6.2); where that fails there is a log event and the kernel's limit
    /// stands. Default 100, as for a disk.
    pub dirty_percent: u8,
    /// Files opened for nothing but writing bypass the page cache: each `write(2)` is one request
    /// of its own size, without a copy into pages, a question for `security.capability`, or a
    /// request more for each page it fills in part. Such data is read from the handler the first
    /// time. Only where the kernel keeps the page cache of readers right (Linux 6.18), and not with
    /// `writeback_cache`. Default true.
    pub direct_writes: bool,
    /// The kernel evaluates POSIX ACLs, which the handler stores as xattrs `system.posix_acl_*`;
    /// the handler applies the umask. Default false.
    pub posix_acl: bool,
    /// Listing with attributes. Default [`Readdirplus::Auto`].
    pub readdirplus: Readdirplus,
    /// Lookups and listings of one directory run in parallel. Default true.
    pub parallel_dirops: bool,
    /// Each thread reads and answers on a descriptor of its own instead of a shared one. Default
    /// true.
    pub clone_device: bool,
    /// Requests come over the kernel's io_uring queues, where root has written `Y` to
    /// `/sys/module/fuse/parameters/enable_uring` before (Linux 6.14); otherwise there is a log
    /// event, and `/dev/fuse` is used alone. Default false.
    pub io_uring: bool,
    /// File handles (NFS, `open_by_handle_at`) can be resolved: the handler's `lookup` knows `.`
    /// and `..` of any inode that lives. Default true.
    pub export: bool,
    /// How to reach the kernel. Default [`MountVia::Auto`].
    pub via: MountVia,
    /// Where events go. Default: nowhere.
    pub log: Option<LogSink>,
}

/// Flags of a mount (`mount(2)`) beside `read_only`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MountFlags {
    /// Set-id bits have no effect. Default true; always so for ordinary users.
    pub nosuid: bool,
    /// Device nodes cannot be opened. Default true; always so for ordinary users.
    pub nodev: bool,
    /// Nothing can be executed. Default false.
    pub noexec: bool,
    /// Shown among the mount's options; access times are the handler's business in any case.
    /// Default false.
    pub noatime: bool,
    /// Shown in the same way, by the absence of `relatime`: every reading moves access times.
    /// Default false.
    pub strictatime: bool,
    /// Shown in the same way: directories have no access times. Default false.
    pub nodiratime: bool,
    /// Each `write(2)` into the page cache ends with an fsync. Default false.
    pub synchronous: bool,
}

impl Default for MountFlags {
    fn default() -> MountFlags {
        MountFlags {
            nosuid: true,
            nodev: true,
            noexec: false,
            noatime: false,
            strictatime: false,
            nodiratime: false,
            synchronous: false,
        }
    }
}

/// Receives events; called from any thread of the session, so it must not wait for the mount.
pub type LogSink = Arc<dyn Fn(&LogEvent) + Send + Sync>;

impl MountOptions {
    /// The defaults, for a file system that `df` shows as `fs_name`.
    pub fn new(fs_name: impl Into<String>) -> Self {
        Self {
            fs_name: fs_name.into(),
            subtype: None,
            root_is_file: false,
            allow_other: false,
            default_permissions: true,
            read_only: false,
            flags: MountFlags::default(),
            threads: None,
            poll_us: 50,
            idle_poll: IdlePoll::Auto,
            threads_max: 64,
            max_write: 1 << 20,
            read_ahead_kb: Some(1024),
            max_background: 64,
            writeback_cache: false,
            dirty_percent: 100,
            direct_writes: true,
            posix_acl: false,
            readdirplus: Readdirplus::Auto,
            parallel_dirops: true,
            clone_device: true,
            io_uring: false,
            export: true,
            via: MountVia::Auto,
            log: None,
        }
    }
}

impl fmt::Debug for MountOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MountOptions").field("fs_name", &self.fs_name).finish_non_exhaustive()
    }
}

/// The way a mount is made.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum MountVia {
    /// `mount(2)` as root, `fusermount3` otherwise.
    #[default]
    Auto,
    /// `mount(2)`.
    Direct,
    /// The set-user-id program `fusermount3`.
    Helper,
}

/// When processors are kept from halting, see [`MountOptions::idle_poll`]. It takes the right to
/// write `/dev/cpu_dma_latency`: root's.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum IdlePoll {
    /// While requests come fast; where it cannot be had there is a log event.
    On,
    /// Never.
    Off,
    /// In a virtual machine of 2 to 8 processors whose idle driver is `haltpoll`, as with `On`.
    #[default]
    Auto,
}

/// When a listing brings attributes with it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Readdirplus {
    /// Never: each `stat` behind a listing is a lookup.
    Off,
    /// If the program looked at files of the directory before, as `ls -l` and `tar` do.
    #[default]
    Auto,
    /// Always.
    Always,
}

/// Something an operator or developer may want to read.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum LogEvent {
    /// A handler panicked; the request was answered `EIO`.
    HandlerPanicked {
        /// Operation it served, 0 for `init` and `destroy`.
        opcode: u32,
        /// Number of the request.
        unique: u64,
        /// Message of the panic.
        message: String,
    },
    /// A message of the kernel could not be read; it was answered `EIO` where possible.
    MalformedRequest {
        /// Why.
        error: DecodeError,
        /// Number of the request, if its header was readable.
        unique: Option<u64>,
    },
    /// The kernel refused a reply: a bug of ours, or a handler's value outside its range. The
    /// request fails.
    ReplyRefused {
        /// Operation it answered.
        opcode: u32,
        /// Number of the request.
        unique: u64,
        /// The kernel's error.
        error: String,
    },
    /// All threads were blocked in handlers, so more were started.
    ThreadsGrown {
        /// Threads there are now.
        threads: usize,
    },
    /// All threads are blocked and there may be no more: requests wait.
    ThreadsExhausted {
        /// Threads there are.
        threads: usize,
    },
    /// A thread could not be started or given its own descriptor.
    ThreadFailed {
        /// Why.
        message: String,
    },
    /// The read-ahead could not be raised; reads go on with the kernel's default.
    ReadAheadNotSet {
        /// Why.
        message: String,
    },
    /// The kernel's limit for collected writes could not be lifted; writers go on, waiting more.
    DirtyLimitNotSet {
        /// Why.
        message: String,
    },
    /// The kernel's io_uring queues were asked for and are not used.
    QueuesNotUsed {
        /// Why.
        message: String,
    },
    /// Processors are not kept awake, though that was asked for.
    IdleNotPolled {
        /// Why.
        message: String,
    },
    /// Something went wrong with a queue.
    QueueFailed {
        /// Message.
        message: String,
    },
    /// The mount was gone here and no file was open, but other mount namespaces held copies of it,
    /// so the connection was cut.
    CutElsewhere,
    /// The connection under copies of the mount could not be cut.
    NotCut {
        /// Why.
        message: String,
    },
    /// A notification was not delivered, for another reason than that there was nothing to forget.
    NotificationFailed {
        /// Why.
        message: String,
    },
}

impl fmt::Display for LogEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::HandlerPanicked { opcode: op, unique, message } => {
                write!(
                    f,
                    "handler of {} (request {unique}) panicked: {message}; answered EIO",
                    opcode::name(*op)
                )
            }
            Self::MalformedRequest { error, unique: Some(unique) } => {
                write!(f, "request {unique} cannot be read: {error}; answered EIO")
            }
            Self::MalformedRequest { error, unique: None } => {
                write!(f, "a message cannot be read: {error}; dropped")
            }
            Self::ReplyRefused { opcode: op, unique, error } => {
                write!(
                    f,
                    "the kernel refused the answer to {} (request {unique}): {error}",
                    opcode::name(*op)
                )
            }
            Self::ThreadsGrown { threads } => write!(f, "all threads are blocked: now {threads} threads"),
            Self::ThreadsExhausted { threads } => {
                write!(f, "all {threads} threads are blocked and no more are allowed: requests wait")
            }
            Self::ThreadFailed { message } => write!(f, "no further thread could be started: {message}"),
            Self::ReadAheadNotSet { message } => {
                write!(f, "read-ahead keeps the kernel's default: {message}")
            }
            Self::DirtyLimitNotSet { message } => {
                write!(
                    f,
                    "collected writes keep the kernel's limit for FUSE, 1 % of what may be dirty: {message}"
                )
            }
            Self::QueuesNotUsed { message } => {
                write!(f, "requests come over /dev/fuse and not over io_uring: {message}")
            }
            Self::QueueFailed { message } => write!(f, "io_uring: {message}"),
            Self::IdleNotPolled { message } => write!(f, "idle processors halt as ever: {message}"),
            Self::CutElsewhere => {
                write!(f, "other mount namespaces had copies of the mount; the connection was cut")
            }
            Self::NotCut { message } => {
                write!(f, "copies of the mount in other mount namespaces could not be cut off: {message}")
            }
            Self::NotificationFailed { message } => write!(f, "a notification was not delivered: {message}"),
        }
    }
}
