//! The table itself. `zpool get all` and `zfs get all` print in this order.

use crate::pools::POOL;
use crate::size::{nice_bytes, nice_number, parse_size};

/// The kind of object that has a property.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scope {
    /// A pool.
    Pool,
    /// A file system.
    Dataset,
}

/// When a property may change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// Never by hand: it is measured, or follows from something else.
    Never,
    /// Only by the command that creates the pool or file system.
    AtCreation,
    /// Only while a pool is created or imported (`-o`), and only for as long as it stays imported.
    AtImport,
    /// At any time.
    Anytime,
}

/// Values of a property.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Bytes.
    Bytes,
    /// Bytes: 0, or a power of two from 512 up to a greatest value.
    BytesUpTo {
        /// Greatest value.
        max: u64,
    },
    /// Bytes, a power of two within these bounds.
    PowerOfTwo {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// A whole number within these bounds.
    Number {
        /// Least value.
        min: u64,
        /// Greatest value.
        max: u64,
    },
    /// A whole number that only identifies: never shortened.
    Identifier,
    /// A share of a whole in per cent.
    Percent,
    /// A ratio such as `1.85`, shown as `1.85x`.
    Ratio,
    /// Seconds since 1970-01-01 UTC.
    Date,
    /// One of these.
    Words(&'static [&'static str]),
    /// Free text of at most so many bytes.
    Text {
        /// Most bytes.
        bytes_max: usize,
    },
    /// Bytes, or `none`, which is 0.
    Limit,
    /// A number of things, or `none`, which is 0.
    CountLimit,
    /// An absolute path, `none` or `legacy`.
    Mountpoint,
    /// An absolute path or `none`.
    PathOrNone,
    /// `HOST:PORT` or `none`.
    AddressOrNone,
    /// An absolute path, `none`, or nothing.
    ListFile,
    /// `prompt` or `file://` + absolute path.
    KeyLocation,
    /// `on`, `off` or options of an export.
    Share,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Property {
    /// Name as in ZFS.
    pub name: &'static str,
    /// Column heading of `list`; also works as a name, in any case (`avail`, `refer`).
    pub heading: &'static str,
    /// Values in one line, for help and for refusals.
    pub values: &'static str,
    /// Values as the parser sees them.
    pub kind: Kind,
    /// Exact default; `None` where the value is always computed.
    pub default: Option<&'static str>,
    /// True if child file systems inherit it.
    pub inherit: bool,
    /// When it may change.
    pub change: Change,
    /// Its effect, in one sentence.
    pub doc: &'static str,
    /// True for a property of ZFS that is stored and shown, so that programs which set it go on,
    /// and has no effect here: `doc` is the reason.
    pub idle: bool,
}

impl Property {
    /// True if `list` aligns its column to the right.
    #[must_use]
    pub fn is_numeric(&self) -> bool {
        matches!(
            self.kind,
            Kind::Bytes
                | Kind::Limit
                | Kind::CountLimit
                | Kind::BytesUpTo { .. }
                | Kind::PowerOfTwo { .. }
                | Kind::Number { .. }
                | Kind::Identifier
                | Kind::Percent
                | Kind::Ratio
        )
    }

    /// The form for people of an exact value. Dates stay as they are: calendars are the printer's
    /// business.
    #[must_use]
    pub fn shown(&self, exact: &str) -> String {
        match self.kind {
            Kind::Limit | Kind::CountLimit if exact == "0" => "none".to_owned(),
            Kind::CountLimit => exact.parse().map_or_else(|_| exact.to_owned(), nice_number),
            Kind::Bytes | Kind::Limit | Kind::BytesUpTo { .. } | Kind::PowerOfTwo { .. } => {
                exact.parse().map_or_else(
                    |_| exact.to_owned(),
                    // Sizes in tables carry a unit letter from 1K on, and a plain B below.
                    |bytes: u64| if bytes == 0 { "0B".to_owned() } else { nice_bytes(bytes) },
                )
            }
            Kind::Percent if parse_size(exact).is_some() => format!("{exact}%"),
            Kind::Ratio if exact != "-" => format!("{exact}x"),
            _ => exact.to_owned(),
        }
    }
}

const OFF: Kind = Kind::Words(&["off"]);
const NONE: Kind = Kind::Words(&["none"]);
/// The reason for the properties of SELinux.
const LABELS: &str = "FUSE mounts do not take an SELinux label for the whole mount.";
pub(crate) const SWITCH: Kind = Kind::Words(&["on", "off"]);
const UNLIMITED: Kind = Kind::Number { min: 0, max: u64::MAX };

/// A measured or fixed value.
pub(crate) const fn measured(
    name: &'static str,
    heading: &'static str,
    values: &'static str,
    kind: Kind,
    doc: &'static str,
) -> Property {
    Property {
        name,
        heading,
        values,
        kind,
        default: None,
        inherit: false,
        change: Change::Never,
        doc,
        idle: false,
    }
}

/// A property of ZFS without effect here, with its one value.
pub(crate) const fn fixed(
    name: &'static str,
    heading: &'static str,
    value: &'static str,
    kind: Kind,
    doc: &'static str,
) -> Property {
    let (default, change) = (Some(value), Change::Never);
    Property { name, heading, values: value, kind, default, inherit: false, change, doc, idle: true }
}

/// A property of ZFS that can be set and has no effect here.
pub(crate) const fn idle(
    name: &'static str,
    heading: &'static str,
    values: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Property {
    Property { idle: true, ..setting(name, heading, values, kind, default, doc) }
}

/// A value that can be set.
pub(crate) const fn setting(
    name: &'static str,
    heading: &'static str,
    values: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Property {
    let change = Change::Anytime;
    Property { name, heading, values, kind, default: Some(default), inherit: false, change, doc, idle: false }
}

/// A row for a property of each user or group.
const fn owned(
    name: &'static str,
    heading: &'static str,
    values: &'static str,
    change: Change,
    doc: &'static str,
) -> Property {
    Property {
        name,
        heading,
        values,
        kind: Kind::Limit,
        default: None,
        inherit: false,
        change,
        doc,
        idle: false,
    }
}

impl Property {
    pub(crate) const fn inherited(self) -> Property {
        Property { inherit: true, ..self }
    }

    pub(crate) const fn changes(self, change: Change) -> Property {
        Property { change, ..self }
    }
}

/// Properties of a file system.
pub const DATASET: &[Property] = &[
    measured("type", "TYPE", "filesystem | volume | snapshot | bookmark", Kind::Text { bytes_max: 16 }, "Kind of dataset."),
    measured("creation", "CREATION", "<date>", Kind::Date, "Time of its creation."),
    measured("used", "USED", "<size>", Kind::Bytes, "Bytes occupied by it and its children."),
    measured("available", "AVAIL", "<size>", Kind::Bytes, "Bytes that can still be written to it."),
    measured("referenced", "REFER", "<size>", Kind::Bytes, "Bytes reachable from it."),
    measured(
        "compressratio",
        "RATIO",
        "<1.00x or higher>",
        Kind::Ratio,
        "Bytes of file data before compression, divided by bytes stored, here and below.",
    ),
    measured("mounted", "MOUNTED", "yes | no", Kind::Text { bytes_max: 3 }, "Mounted now."),
    setting(
        "prefetch",
        "PREFETCH",
        "all | metadata | none",
        Kind::Words(&["all", "metadata", "none"]),
        "all",
        "Reads content ahead for sequential readers. Metadata is never read ahead.",
    )
    .inherited(),
    setting(
        "overlay",
        "OVERLAY",
        "on | off",
        SWITCH,
        "on",
        "Allows mounting over a folder that is not empty. A volume covers a file that is not empty only if `on` is set.",
    )
    .inherited(),
    setting(
        "filesystem_limit",
        "FSLIMIT",
        "<count> | none",
        Kind::CountLimit,
        "0",
        "Most file systems below it, at any depth.",
    ),
    measured("filesystem_count", "FSCOUNT", "<number>", UNLIMITED, "File systems below it."),
    setting(
        "snapshot_limit",
        "SSLIMIT",
        "<count> | none",
        Kind::CountLimit,
        "0",
        "Most snapshots of it and everything below it, together.",
    ),
    measured("snapshot_count", "SSCOUNT", "<number>", UNLIMITED, "Snapshots of it and of everything below it."),
    measured(
        "refcompressratio",
        "REFRATIO",
        "<1.00x or higher>",
        Kind::Ratio,
        "`compressratio` of its own content only.",
    ),
    setting(
        "quota",
        "QUOTA",
        "<size> | none",
        Kind::Limit,
        "0",
        "Most bytes that it and everything below it may occupy.",
    ),
    setting(
        "reservation",
        "RESERV",
        "<size> | none",
        Kind::Limit,
        "0",
        "Bytes reserved for it and everything below it.",
    ),
    setting(
        "recordsize",
        "RECSIZE",
        "4K to 16M, power of 2",
        Kind::PowerOfTwo { min: 4096, max: 16 << 20 },
        "131072",
        "Largest block of files written from now on.",
    )
    .inherited(),
    setting(
        "mountpoint",
        "MOUNTPOINT",
        "<absolute path> | legacy | none",
        Kind::Mountpoint,
        "-",
        "Folder it is mounted on; children are mounted below.",
    )
    .inherited(),
    setting(
        "checksum",
        "CHECKSUM",
        "on | blake3",
        Kind::Words(&["on", "blake3"]),
        "on",
        "Hash that proves every block; always on, always BLAKE3.",
    )
    .inherited(),
    setting(
        "compression",
        "COMPRESS",
        "on | off | lz4 | zle | zstd | zstd-[1-19]",
        Kind::Words(&[
                "on", "off", "lz4", "zle", "zstd", "zstd-1", "zstd-2", "zstd-3", "zstd-4", "zstd-5",
                "zstd-6", "zstd-7", "zstd-8", "zstd-9", "zstd-10", "zstd-11", "zstd-12", "zstd-13",
                "zstd-14", "zstd-15", "zstd-16", "zstd-17", "zstd-18", "zstd-19",
            ]),
        "on",
        "Compression of blocks written from now on; `on` means lz4.",
    )
    .inherited(),
    setting("atime", "ATIME", "on | off", SWITCH, "on", "Records the time of reads.").inherited(),
    setting("devices", "DEVICES", "on | off", SWITCH, "on", "Device nodes can be used.").inherited(),
    setting("exec", "EXEC", "on | off", SWITCH, "on", "Programs can be run from it.").inherited(),
    setting("setuid", "SETUID", "on | off", SWITCH, "on", "Set-user-id bits are honoured.").inherited(),
    setting("readonly", "RDONLY", "on | off", SWITCH, "off", "Refuses all changes.").inherited(),
    measured("createtxg", "CREATETXG", "<txg>", Kind::Identifier, "Transaction group that made it."),
    setting(
        "canmount",
        "CANMOUNT",
        "on | off | noauto",
        Kind::Words(&["on", "off", "noauto"]),
        "on",
        "Mounted automatically (`on`), by `zfs mount` only (`noauto`), or never.",
    ),
    setting(
        "xattr",
        "XATTR",
        "on | sa | off",
        Kind::Words(&["on", "sa", "off"]),
        "sa",
        "Extended attributes, stored beside the inode. With `off`, `user.*` attributes are neither shown nor accepted.",
    )
    .inherited(),
    setting(
        "copies",
        "COPIES",
        "1 | 2 | 3",
        Kind::Words(&["1", "2", "3"]),
        "1",
        "Copies of file content written from now on, besides the redundancy of devices: on different devices where there are several, else far apart. Space is charged for each. Metadata always has two. Encrypted content has two at most.",
    )
    .inherited(),
    setting(
        "utf8only",
        "UTF8ONLY",
        "on | off",
        SWITCH,
        "off",
        "Requires new names to be UTF-8 (otherwise EILSEQ). File systems created below take `on` over.",
    )
    .changes(Change::AtCreation),
    setting(
        "normalization",
        "NORMALIZATION",
        "none",
        Kind::Words(&["none"]),
        "none",
        "Names are compared byte by byte.",
    )
    .inherited()
    .changes(Change::AtCreation),
    setting(
        "casesensitivity",
        "CASE",
        "sensitive",
        Kind::Words(&["sensitive"]),
        "sensitive",
        "`a` and `A` are different names.",
    )
    .inherited()
    .changes(Change::AtCreation),
    setting(
        "refquota",
        "REFQUOTA",
        "<size> | none",
        Kind::Limit,
        "0",
        "Most bytes it may refer to, without file systems below it.",
    ),
    setting(
        "refreservation",
        "REFRESERV",
        "<size> | none | auto",
        Kind::Limit,
        "0",
        "Bytes reserved for its own content, besides its snapshots. Counts as used before it is written. \
         `auto`: what all of the volume can take up.",
    ),
    measured("guid", "GUID", "<guid>", Kind::Identifier, "Number of the dataset; stays the same when it is renamed."),
    setting(
        "primarycache",
        "PRIMARYCACHE",
        "all | metadata | none",
        Kind::Words(&["all", "metadata", "none"]),
        "all",
        "Data cached in memory: content and metadata, metadata only, or nothing.",
    )
    .inherited(),
    setting(
        "secondarycache",
        "SECONDARYCACHE",
        "all | metadata | none",
        Kind::Words(&["all", "metadata", "none"]),
        "all",
        "Blocks cached on cache devices: content and metadata, metadata only, or nothing.",
    )
    .inherited(),
    measured(
        "usedbysnapshots",
        "USEDSNAP",
        "<size>",
        Kind::Bytes,
        "Part of `used` held only by its snapshots: space freed if all of them are destroyed.",
    ),
    measured("usedbydataset", "USEDDS", "<size>", Kind::Bytes, "Part of `used` of its own content."),
    measured(
        "usedbyrefreservation",
        "USEDREFRESERV",
        "<size>",
        Kind::Bytes,
        "Part of `used` kept by `refreservation` and not written, or not since the youngest snapshot.",
    ),
    measured("usedbychildren", "USEDCHILD", "<size>", Kind::Bytes, "Part of `used` of its children."),
    measured(
        "written",
        "WRITTEN",
        "<size>",
        Kind::Bytes,
        "Bytes it refers to that the previous snapshot does not; `written@NAME` since another snapshot.",
    ),
    Property {
        name: "volsize",
        heading: "VOLSIZE",
        values: "<size>, a multiple of volblocksize",
        kind: Kind::Bytes,
        default: None,
        inherit: false,
        change: Change::Anytime,
        doc: "Size of a volume (`zfs create -V`). It can grow; in ZFS it can also shrink.",
        idle: false,
    },
    setting(
        "volblocksize",
        "VOLBLOCK",
        "4K to 16M, power of 2",
        Kind::PowerOfTwo { min: 4096, max: 16 << 20 },
        "16384",
        "Block size of a volume.",
    )
    .changes(Change::AtCreation),
    setting(
        "volmode",
        "VOLMODE",
        "default | none",
        Kind::Words(&["default", "none"]),
        "default",
        "Shows a volume as a file at its mountpoint and to NBD clients, or not at all.",
    )
    .inherited(),
    measured("nbd", "NBD", "<address>", Kind::Text { bytes_max: 4096 }, "Address of a volume for NBD clients. Not in ZFS."),
    measured("objsetid", "OBJSETID", "<number>", Kind::Identifier, "Number of the dataset within the pool."),
    setting(
        "dedup",
        "DEDUP",
        "on | off | verify | blake3 | blake3,verify",
        Kind::Words(&["on", "off", "verify", "blake3", "blake3,verify"]),
        "off",
        "Does not store records again that the pool already holds under the same key, found by a keyed BLAKE3 of their content; \
         `verify` also compares the bytes. Needs up to 40 bytes of memory for each record.",
    )
    .inherited(),
    setting(
        "sync",
        "SYNC",
        "standard | always | disabled",
        Kind::Words(&["standard", "always", "disabled"]),
        "standard",
        "Durable when a call returns: the target of `fsync` and `O_SYNC` (`standard`); also each write and change of names \
         (`always`); nothing, so that a crash loses the last seconds (`disabled`).",
    )
    .inherited(),
    setting(
        "journal",
        "JOURNAL",
        "data | ordered | writeback | off",
        Kind::Words(&["data", "ordered", "writeback", "off"]),
        "ordered",
        "Content of the intent log (ZFS: ZIL): names and content, for `fsync` and about once a second for all changes (`data`); for \
         `fsync` only (`ordered`); names and sizes only (`writeback`); nothing, so that `fsync` commits (`off`). Not in ZFS.",
    )
    .inherited(),
    setting(
        "writeback_cache",
        "WBCACHE",
        "on | off",
        SWITCH,
        "on",
        "The kernel collects writes in its page cache, as for ext4, instead of passing on each `write`. Many times faster where \
         programs write little at once (logs, bulk inserts); many small files take longer to make and to remove, and a program that \
         overwrites more than half of the pool's room without a pause waits for its pages. A killed daemon loses up to ten seconds of writes that no `fsync` \
         or `close` followed, instead of five. No effect in a daemon that is not root's, nor where the file system is shared \
         (`sharenfs`), read-only or without `relatime` when it is mounted: then `zfs get` shows `off`, source `temporary`. Not in ZFS.",
    )
    .inherited(),
    setting(
        "snapdir",
        "SNAPDIR",
        "hidden | visible",
        Kind::Words(&["hidden", "visible"]),
        "hidden",
        "Lists the folder `.zfs` with the snapshots, or hides it. It can be entered in either case.",
    )
    .inherited(),
    setting(
        "special_small_blocks",
        "SPECIAL_SMALL_BLOCKS",
        "<power of two, 512 to 16M>, or 0 for none",
        Kind::BytesUpTo { max: 16 << 20 },
        "0",
        "Blocks of content up to this stored size go to special devices, as metadata does.",
    )
    .inherited(),
    measured("defer_destroy", "DEFER_DESTROY", "on | off", SWITCH, "The snapshot is destroyed with its last hold or clone."),
    measured("origin", "ORIGIN", "<snapshot>", Kind::Text { bytes_max: 256 }, "Snapshot from which a clone was made."),
    measured("clones", "CLONES", "<file systems>", Kind::Text { bytes_max: 4096 }, "Clones of a snapshot."),
    measured("userrefs", "USERREFS", "<number>", UNLIMITED, "Number of holds on a snapshot (`zfs hold`)."),
    measured("receive_resume_token", "RESUMETOK", "<token>", Kind::Text { bytes_max: 255 }, "Token of an interrupted `receive -s`, for `zfs send -t`."),
    measured("logicalused", "LUSED", "<size>", Kind::Bytes, "`used` without compression."),
    measured("logicalreferenced", "LREFER", "<size>", Kind::Bytes, "`referenced` without compression."),
    setting(
        "acltype",
        "ACLTYPE",
        "posix | off",
        Kind::Words(&["posix", "posixacl", "off", "noacl"]),
        "posix",
        "Access control lists: POSIX, or none. In ZFS the default is `off`.",
    )
    .inherited(),
    setting(
        "relatime",
        "RELATIME",
        "on | off",
        SWITCH,
        "on",
        "With `atime`: records reads at most once a day, or after a change. With `off` each read is recorded, so each comes to the \
         daemon and the kernel collects no writes.",
    )
    .inherited(),
    setting(
        "encryption",
        "ENCRYPTION",
        "off | on | aes-256-gcm",
        Kind::Words(&["off", "on", "aes-256-gcm"]),
        "off",
        "Encrypts everything in it; `on` means aes-256-gcm. Children of an encrypted parent are encrypted.",
    )
    .inherited()
    .changes(Change::AtCreation),
    setting(
        "keylocation",
        "KEYLOCATION",
        "prompt | file:///absolute/path",
        Kind::KeyLocation,
        "none",
        "Source of the key for `load-key`.",
    ),
    setting(
        "keyformat",
        "KEYFORMAT",
        "passphrase | raw | hex",
        Kind::Words(&["none", "passphrase", "raw", "hex"]),
        "none",
        "Form of the user key: a passphrase, 32 bytes, or 64 hexadecimal digits.",
    )
    .changes(Change::AtCreation),
    measured(
        "encryptionroot",
        "ENCROOT",
        "<filesystem>",
        Kind::Text { bytes_max: 255 },
        "File system whose key opens this one.",
    ),
    measured(
        "keystatus",
        "KEYSTATUS",
        "none | unavailable | available",
        Kind::Text { bytes_max: 16 },
        "Whether its key is loaded.",
    ),
    owned("userused@...", "USERUSED@...", "<size>", Change::Never, "Bytes occupied by the files of a user, e.g. userused@joe."),
    owned("userquota@...", "USERQUOTA@...", "<size> | none", Change::Anytime, "Most bytes that the files of a user may occupy."),
    owned("userobjused@...", "USEROBJUSED@...", "<count>", Change::Never, "Files, folders and links of a user."),
    owned("userobjquota@...", "USEROBJQUOTA@...", "<count> | none", Change::Anytime, "Most files, folders and links of a user."),
    owned("groupused@...", "GROUPUSED@...", "<size>", Change::Never, "Bytes occupied by the files of a group."),
    owned("groupquota@...", "GROUPQUOTA@...", "<size> | none", Change::Anytime, "Most bytes that the files of a group may occupy."),
    owned("groupobjused@...", "GROUPOBJUSED@...", "<count>", Change::Never, "Files, folders and links of a group."),
    owned("groupobjquota@...", "GROUPOBJQUOTA@...", "<count> | none", Change::Anytime, "Most files, folders and links of a group."),
    idle(
        "version",
        "VERSION",
        "1 to 5",
        Kind::Number { min: 5, max: 5 },
        "5",
        "File systems have no version of their own.",
    )
    .changes(Change::AtCreation),
    measured("snapshots_changed", "SNAPSHOTS_CHANGED", "<date>", Kind::Date, "When a snapshot of it was last taken or destroyed. After an import: when the youngest was taken."),
    fixed("redact_snaps", "RSNAPS", "-", Kind::Text { bytes_max: 1 }, "There are no redacted streams."),
    fixed("pbkdf2salt", "PBKDF2SALT", "0", Kind::Identifier, "Passphrases go through Argon2id; the salt is stored with the wrapped key."),
    idle(
        "pbkdf2iters",
        "PBKDF2ITERS",
        "<number>",
        UNLIMITED,
        "0",
        "Passphrases go through Argon2id; its costs are fixed when the key is made.",
    )
    .changes(Change::AtCreation),
    idle(
        "logbias",
        "LOGBIAS",
        "latency | throughput",
        Kind::Words(&["latency", "throughput"]),
        "latency",
        "`journal` sets the content of the intent log.",
    )
    .inherited(),
    setting(
        "redundant_metadata",
        "REDUND_MD",
        "all | most | some | none",
        Kind::Words(&["all", "most", "some", "none"]),
        "all",
        "Second copies of metadata on buckets: `some` of the pool's own only, `none` of none, which saves two requests a commit and is what a new pool of one bucket has. On disks and images all metadata has two copies.",
    )
    .inherited(),
    idle(
        "dnodesize",
        "DNSIZE",
        "legacy | auto | 1k | 2k | 4k | 8k | 16k",
        Kind::Words(&["legacy", "auto", "1k", "2k", "4k", "8k", "16k"]),
        "legacy",
        "Inodes have one size; attributes are stored beside them.",
    )
    .inherited(),
    idle(
        "direct",
        "DIRECT",
        "standard | always | disabled",
        Kind::Words(&["standard", "always", "disabled"]),
        "standard",
        "Programs choose to bypass the page cache (O_DIRECT).",
    )
    .inherited(),
    idle(
        "aclinherit",
        "ACLINHERIT",
        "discard | noallow | restricted | passthrough | passthrough-x",
        Kind::Words(&["discard", "noallow", "restricted", "passthrough", "passthrough-x"]),
        "restricted",
        "It is about NFSv4 ACLs; Steadfast has POSIX ACLs (`acltype`).",
    )
    .inherited(),
    idle(
        "aclmode",
        "ACLMODE",
        "discard | groupmask | passthrough | restricted",
        Kind::Words(&["discard", "groupmask", "passthrough", "restricted"]),
        "discard",
        "It is about NFSv4 ACLs; Steadfast has POSIX ACLs (`acltype`).",
    )
    .inherited(),
    setting(
        "sharenfs",
        "SHARENFS",
        "on | off | <options>",
        Kind::Share,
        "off",
        "NFS clients may use the file system while it is mounted, as the options of exports(5) say: `rw=@10.0.0.0/8,ro`, `no_root_squash` and others.",
    )
    .inherited(),
    idle("sharesmb", "SHARESMB", "off", OFF, "off", "Export the mountpoint with the tools of your SMB server.").inherited(),
    idle("longname", "LONGNAME", "off", OFF, "off", "A name has at most 255 bytes, as programs expect.").inherited(),
    idle("nbmand", "NBMAND", "off", OFF, "off", "Linux has no mandatory locks any more.").inherited(),
    idle("vscan", "VSCAN", "off", OFF, "off", "Virus scanning on access is a feature of Solaris.").inherited(),
    idle("zoned", "ZONED", "off", OFF, "off", "File systems cannot be given to containers.").inherited(),
    idle("mlslabel", "MLSLABEL", "none", NONE, "none", "It is for Trusted Extensions of Solaris.").inherited(),
    idle("context", "CONTEXT", "none", NONE, "none", LABELS),
    idle("fscontext", "FSCONTEXT", "none", NONE, "none", LABELS),
    idle("defcontext", "DEFCONTEXT", "none", NONE, "none", LABELS),
    idle("rootcontext", "ROOTCONTEXT", "none", NONE, "none", LABELS),
    idle(
        "snapdev",
        "SNAPDEV",
        "hidden",
        Kind::Words(&["hidden"]),
        "hidden",
        "Snapshots of a volume have no device nodes; NBD clients open VOLUME@SNAPSHOT.",
    )
    .inherited(),
    idle("volthreading", "VOLTHREADING", "on | off", SWITCH, "on", "Each client of a volume has its own thread.").inherited(),
    measured("filecount", "FILECOUNT", "<number>", UNLIMITED, "Inodes in use."),
];

/// The tables as a page: docs/PROPERTIES.md.
#[must_use]
pub fn document() -> String {
    let mut text = String::from(
        "# Properties\n\n\
         All properties of `zpool get`, `zpool set`, `zfs get` and `zfs set`. `UPDATE=1 cargo test -p steadfast-property`\n\
         writes this page; the same test compares it with the program.\n\n\
         The column *When* says when a property can be set: *always*, at *creation*, at *import* (until the export), or\n\
         *never*. Properties whose effect is *none* are those of ZFS that programs set: they are stored and shown, and the\n\
         command prints a note. A property of your own has a `:` in its name; children inherit it. One of these is the daemon's:\n\
         `steadfast:auto-snapshot=hourly=24,daily=7,weekly=4` ([operations/snapshot.md](operations/snapshot.md)).\n",
    );
    for (title, table) in [("Pools", POOL), ("File systems and volumes", DATASET)] {
        text.push_str(&format!(
            "\n## {title}\n\n| Property | Values | Default | When | Inherited | Effect |\n"
        ));
        text.push_str("|---|---|---|---|---|---|\n");
        for property in table {
            let when = match property.change {
                Change::Never => "never",
                Change::AtCreation => "creation",
                Change::AtImport => "import",
                Change::Anytime => "always",
            };
            let default = property.default.map_or("-".to_owned(), |exact| property.shown(exact));
            let inherited = if property.inherit { "yes" } else { "no" };
            let values = property.values.replace('|', "\\|");
            let name = property.name;
            let doc = if property.idle { format!("none: {}", property.doc) } else { property.doc.to_owned() };
            text.push_str(&format!("| {name} | `{values}` | {default} | {when} | {inherited} | {doc} |\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_the_table() {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/PROPERTIES.md");
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(&path, document()).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            written == document(),
            "docs/PROPERTIES.md is old: run `UPDATE=1 cargo test -p steadfast-property`"
        );
    }

    #[test]
    fn names_and_aliases_are_unique() {
        for table in [POOL, DATASET] {
            for (index, property) in table.iter().enumerate() {
                for other in &table[index + 1..] {
                    assert_ne!(property.name, other.name);
                    assert!(!property.heading.eq_ignore_ascii_case(other.heading), "{}", property.heading);
                    assert!(
                        !property.heading.eq_ignore_ascii_case(other.name),
                        "{} {}",
                        property.name,
                        other.name
                    );
                    assert!(!property.name.eq_ignore_ascii_case(other.heading), "{}", property.name);
                }
                assert!(property.doc.ends_with(['.', '?']), "{}", property.name);
            }
        }
    }

    #[test]
    fn values_are_shown_for_people() {
        let find = |name: &str| DATASET.iter().find(|p| p.name == name).unwrap();
        assert_eq!(find("used").shown("27158118"), "25.9M");
        assert_eq!(find("used").shown("0"), "0B");
        assert_eq!((find("quota").shown("0"), find("quota").shown("1048576")), ("none".into(), "1M".into()));
        assert_eq!(find("used").shown("-"), "-");
        assert_eq!(find("recordsize").shown("131072"), "128K");
        assert_eq!(find("compressratio").shown("2.49"), "2.49x");
        assert_eq!(find("compression").shown("lz4"), "lz4");
        let cap = POOL.iter().find(|p| p.name == "capacity").unwrap();
        assert_eq!(cap.shown("42"), "42%");
        assert_eq!(cap.shown("-"), "-");
    }
}
