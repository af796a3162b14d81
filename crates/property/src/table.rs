//! The table itself. `zpool get all` and `zfs get all` print in this order.

use crate::size::{nice_bytes, nice_number, parse_size};

/// What a property belongs to.
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

/// What values a property takes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Bytes.
    Bytes,
    /// Bytes, so many at most.
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
    /// `prompt` or `file://` + absolute path.
    KeyLocation,
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
    /// Do child file systems take it over?
    pub inherit: bool,
    /// When it may change.
    pub change: Change,
    /// What it does, in one sentence.
    pub doc: &'static str,
}

impl Property {
    /// Should `list` align its column to the right?
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

    /// The form for people of an exact value. Dates stay as they are: calendars are the printer's business.
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

const SWITCH: Kind = Kind::Words(&["on", "off"]);
const UNLIMITED: Kind = Kind::Number { min: 0, max: u64::MAX };

/// A measured or fixed value.
const fn measured(
    name: &'static str,
    heading: &'static str,
    values: &'static str,
    kind: Kind,
    doc: &'static str,
) -> Property {
    Property { name, heading, values, kind, default: None, inherit: false, change: Change::Never, doc }
}

/// A value that can be set.
const fn setting(
    name: &'static str,
    heading: &'static str,
    values: &'static str,
    kind: Kind,
    default: &'static str,
    doc: &'static str,
) -> Property {
    let change = Change::Anytime;
    Property { name, heading, values, kind, default: Some(default), inherit: false, change, doc }
}

/// A row that stands for a property of each user or group.
const fn owned(
    name: &'static str,
    heading: &'static str,
    values: &'static str,
    change: Change,
    doc: &'static str,
) -> Property {
    Property { name, heading, values, kind: Kind::Limit, default: None, inherit: false, change, doc }
}

impl Property {
    const fn inherited(self) -> Property {
        Property { inherit: true, ..self }
    }

    const fn changes(self, change: Change) -> Property {
        Property { change, ..self }
    }
}

/// Properties of a pool.
pub const POOL: &[Property] = &[
    measured("size", "SIZE", "<size>", Kind::Bytes, "Bytes that segments can fill on all devices."),
    measured("capacity", "CAP", "<percent>", Kind::Percent, "Share of `size` that is allocated."),
    setting(
        "altroot",
        "ALTROOT",
        "<path> | none",
        Kind::PathOrNone,
        "-",
        "Prefix of all mountpoints while imported.",
    )
    .changes(Change::AtImport),
    measured(
        "health",
        "HEALTH",
        "<state>",
        Kind::Text { bytes_max: 16 },
        "Worst state of the pool's devices.",
    ),
    measured("guid", "GUID", "<guid>", Kind::Identifier, "Number that identifies the pool wherever it goes."),
    measured("version", "VERSION", "<version>", Kind::Identifier, "Version of the format on the devices."),
    setting(
        "ashift",
        "ASHIFT",
        "9 to 13, or 0 for the default of 12",
        Kind::Number { min: 0, max: 13 },
        "12",
        "Allocation unit as a power of two: 12 is 4 KiB.",
    )
    .changes(Change::AtCreation),
    setting(
        "autoexpand",
        "EXPAND",
        "on | off",
        SWITCH,
        "off",
        "Use all of a device that has grown, within some seconds and whenever the pool is imported.",
    ),
    setting(
        "autoreplace",
        "REPLACE",
        "on | off",
        SWITCH,
        "off",
        "A new device that appears under the path of one that is missing or has failed takes its place.",
    ),
    setting(
        "autotrim",
        "AUTOTRIM",
        "on | off",
        SWITCH,
        "on",
        "Tell devices which ranges are free again: image files get holes there.",
    ),
    setting(
        "cachefile",
        "CACHEFILE",
        "<file> | none",
        Kind::PathOrNone,
        "-",
        "Where the pool is remembered for the next start; `none` keeps it out.",
    )
    .changes(Change::AtImport),
    setting(
        "failmode",
        "FAILMODE",
        "wait | continue | panic",
        Kind::Words(&["wait", "continue", "panic"]),
        "continue",
        "What becomes of changes while the pool is suspended: they wait until it is exported, or fail with EIO; `panic` suspends \
         like `continue`. Reads go on. In ZFS the default is `wait`.",
    ),
    setting(
        "scrublimit",
        "SCRUBLIMIT",
        "<size>, or 0 for none",
        Kind::Bytes,
        "0",
        "Bytes a second that a scrub reads at most while there is other load. Not in ZFS.",
    ),
    setting("comment", "COMMENT", "<text, at most 32 bytes>", Kind::Text { bytes_max: 32 }, "-", "A remark."),
    setting("readonly", "RDONLY", "on | off", SWITCH, "off", "Imported without the right to write.")
        .changes(Change::AtImport),
    measured("allocated", "ALLOC", "<size>", Kind::Bytes, "Bytes that live blocks occupy."),
    measured("free", "FREE", "<size>", Kind::Bytes, "Bytes of `size` that are not allocated."),
    measured("checkpoint", "CKPOINT", "<size>", Kind::Bytes, "Space of a checkpoint (not yet built)."),
    measured("expandsize", "EXPANDSZ", "<size>", Kind::Bytes, "Bytes a grown device could add."),
    measured(
        "fragmentation",
        "FRAG",
        "<percent>",
        Kind::Percent,
        "Share of the free space that lies in gaps of segments in use, not in whole free slots.",
    ),
    measured(
        "dedupratio",
        "DEDUP",
        "<1.00x or higher>",
        Kind::Ratio,
        "What blocks that are known by content would occupy if nothing were shared, for what they occupy.",
    ),
    measured(
        "dedup_table_size",
        "DDTSIZE",
        "<size>",
        Kind::Bytes,
        "Bytes of the rows of blocks that are known by content or shared, both copies, before compression.",
    ),
    measured(
        "dedupcached",
        "DEDUPCACHED",
        "<size>",
        Kind::Bytes,
        "Bytes of memory that finding blocks by content takes at most: 40 for each.",
    ),
    measured("bcloneused", "BCLONE_USED", "<size>", Kind::Bytes, "Bytes of blocks that copies share."),
    measured(
        "bclonesaved",
        "BCLONE_SAVED",
        "<size>",
        Kind::Bytes,
        "Bytes that these copies would occupy if they shared nothing.",
    ),
    measured(
        "bcloneratio",
        "BCLONE_RATIO",
        "<1.00x or higher>",
        Kind::Ratio,
        "What copies that share blocks would occupy without, for what they occupy.",
    ),
    Property {
        name: "feature@...",
        heading: "FEATURE@...",
        values: "disabled | enabled | active",
        kind: Kind::Words(&["enabled"]),
        default: None,
        inherit: false,
        change: Change::Anytime,
        doc: "May the pool use this feature of the format? Set to `enabled`; there is no way back.",
    },
];

/// Properties of a file system.
pub const DATASET: &[Property] = &[
    measured("type", "TYPE", "filesystem | volume | snapshot | bookmark", Kind::Text { bytes_max: 16 }, "What kind of dataset it is."),
    measured("creation", "CREATION", "<date>", Kind::Date, "When it was made."),
    measured("used", "USED", "<size>", Kind::Bytes, "Bytes it and its children occupy."),
    measured("available", "AVAIL", "<size>", Kind::Bytes, "Bytes that can still be written to it."),
    measured("referenced", "REFER", "<size>", Kind::Bytes, "Bytes reachable from it."),
    measured(
        "compressratio",
        "RATIO",
        "<1.00x or higher>",
        Kind::Ratio,
        "Bytes of file data before compression, divided by bytes stored, here and below.",
    ),
    measured("mounted", "MOUNTED", "yes | no", Kind::Text { bytes_max: 3 }, "Is it mounted now?"),
    setting(
        "prefetch",
        "PREFETCH",
        "all | metadata | none",
        Kind::Words(&["all", "metadata", "none"]),
        "all",
        "Read content ahead of who reads in order; of metadata nothing is read ahead.",
    )
    .inherited(),
    setting(
        "overlay",
        "OVERLAY",
        "on | off",
        SWITCH,
        "off",
        "May it be mounted over a folder that is not empty? In ZFS the default is `on`.",
    )
    .inherited(),
    setting(
        "filesystem_limit",
        "FSLIMIT",
        "<count> | none",
        Kind::CountLimit,
        "0",
        "How many file systems there may be below it, at any depth.",
    ),
    measured("filesystem_count", "FSCOUNT", "<number>", UNLIMITED, "File systems below it."),
    setting(
        "snapshot_limit",
        "SSLIMIT",
        "<count> | none",
        Kind::CountLimit,
        "0",
        "How many snapshots it and all below it may have together.",
    ),
    measured("snapshot_count", "SSCOUNT", "<number>", UNLIMITED, "Snapshots of it and of all below it."),
    measured(
        "refcompressratio",
        "REFRATIO",
        "<1.00x or higher>",
        Kind::Ratio,
        "The same for its own content only.",
    ),
    setting(
        "quota",
        "QUOTA",
        "<size> | none",
        Kind::Limit,
        "0",
        "What it and all below it may come to.",
    ),
    setting(
        "reservation",
        "RESERV",
        "<size> | none",
        Kind::Limit,
        "0",
        "What is kept for it and all below it, whatever others write.",
    ),
    setting(
        "recordsize",
        "RECSIZE",
        "4K to 16M, power of 2",
        Kind::PowerOfTwo { min: 4096, max: 16 << 20 },
        "131072",
        "Largest block that a file written from now on is cut into.",
    )
    .inherited(),
    setting(
        "mountpoint",
        "MOUNTPOINT",
        "<absolute path> | legacy | none",
        Kind::Mountpoint,
        "-",
        "Where it appears; children appear below.",
    )
    .inherited(),
    setting(
        "checksum",
        "CHECKSUM",
        "on | blake3",
        Kind::Words(&["on", "blake3"]),
        "blake3",
        "Hash that proves every block; always on, always BLAKE3.",
    ),
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
        "How blocks written from now on are compressed; `on` means lz4.",
    )
    .inherited(),
    setting("atime", "ATIME", "on | off", SWITCH, "on", "Record when files are read.").inherited(),
    setting("devices", "DEVICES", "on | off", SWITCH, "on", "Device nodes work.").inherited(),
    setting("exec", "EXEC", "on | off", SWITCH, "on", "Programs can be run from it.").inherited(),
    setting("setuid", "SETUID", "on | off", SWITCH, "on", "Set-user-id bits are honoured.").inherited(),
    setting("readonly", "RDONLY", "on | off", SWITCH, "off", "Nothing in it can be changed.").inherited(),
    measured("createtxg", "CREATETXG", "<txg>", Kind::Identifier, "Transaction group that made it."),
    setting(
        "canmount",
        "CANMOUNT",
        "on | off | noauto",
        Kind::Words(&["on", "off", "noauto"]),
        "on",
        "May it be mounted, and does that happen by itself?",
    ),
    setting(
        "xattr",
        "XATTR",
        "on | sa | off",
        Kind::Words(&["on", "sa", "off"]),
        "sa",
        "Extended attributes, kept beside the inode; with `off` those of users (`user.*`) are neither shown nor taken.",
    )
    .inherited(),
    setting(
        "copies",
        "COPIES",
        "1",
        Kind::Words(&["1"]),
        "1",
        "Copies of file content beside the redundancy of devices; of metadata there are always two.",
    )
    .inherited(),
    setting(
        "utf8only",
        "UTF8ONLY",
        "on | off",
        SWITCH,
        "off",
        "Must new names be UTF-8 (else EILSEQ), or may they be bytes of any kind? What is created below takes `on` over.",
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
        "`a` and `A` are two names.",
    )
    .inherited()
    .changes(Change::AtCreation),
    setting(
        "refquota",
        "REFQUOTA",
        "<size> | none",
        Kind::Limit,
        "0",
        "What it may refer to itself, whatever lies below it.",
    ),
    setting(
        "refreservation",
        "REFRESERV",
        "<size> | none",
        Kind::Limit,
        "0",
        "What is kept for its own content, beside what its snapshots hold; counts as used before it is written.",
    ),
    measured("guid", "GUID", "<guid>", Kind::Identifier, "Number that identifies it wherever it goes."),
    setting(
        "primarycache",
        "PRIMARYCACHE",
        "all | metadata | none",
        Kind::Words(&["all", "metadata", "none"]),
        "all",
        "What is kept in memory when it was read or written: content and metadata, metadata only, or nothing.",
    )
    .inherited(),
    setting(
        "secondarycache",
        "SECONDARYCACHE",
        "all | metadata | none",
        Kind::Words(&["all", "metadata", "none"]),
        "all",
        "May cache devices keep content that is read of it? Of metadata they keep none, so that `metadata` is `none`.",
    )
    .inherited(),
    measured(
        "usedbysnapshots",
        "USEDSNAP",
        "<size>",
        Kind::Bytes,
        "Part of `used` that only its snapshots hold: what would come back if all of them were destroyed.",
    ),
    measured("usedbydataset", "USEDDS", "<size>", Kind::Bytes, "Part of `used` that is its own."),
    measured(
        "usedbyrefreservation",
        "USEDREFRESERV",
        "<size>",
        Kind::Bytes,
        "Part of `used` that `refreservation` keeps and that is not written yet, or not since the youngest snapshot.",
    ),
    measured("usedbychildren", "USEDCHILD", "<size>", Kind::Bytes, "Part of `used` that is its children's."),
    measured(
        "written",
        "WRITTEN",
        "<size>",
        Kind::Bytes,
        "Bytes it refers to that the snapshot before it did not; `written@NAME` is the same since another one.",
    ),
    Property {
        name: "volsize",
        heading: "VOLSIZE",
        values: "<size>, a multiple of volblocksize",
        kind: Kind::Bytes,
        default: None,
        inherit: false,
        change: Change::Anytime,
        doc: "Bytes of a volume (`zfs create -V`). It may grow; in ZFS it may shrink as well.",
    },
    setting(
        "volblocksize",
        "VOLBLOCK",
        "4K to 16M, power of 2",
        Kind::PowerOfTwo { min: 4096, max: 16 << 20 },
        "16384",
        "Blocks that a volume is stored in.",
    )
    .changes(Change::AtCreation),
    setting(
        "volmode",
        "VOLMODE",
        "default | none",
        Kind::Words(&["default", "none"]),
        "default",
        "Is a volume shown, as a file at its mountpoint and to clients of NBD, or not at all?",
    )
    .inherited(),
    measured("nbd", "NBD", "<address>", Kind::Text { bytes_max: 4096 }, "Where clients of NBD find a volume. Not in ZFS."),
    measured("objsetid", "OBJSETID", "<number>", Kind::Identifier, "Its number within the pool."),
    setting(
        "dedup",
        "DEDUP",
        "on | off | verify | blake3 | blake3,verify",
        Kind::Words(&["on", "off", "verify", "blake3", "blake3,verify"]),
        "off",
        "Records that the pool holds already under the same key are not stored again: by a keyed BLAKE3 of their content, or, with \
         `verify`, by their bytes. Needs up to 40 bytes of memory for each record.",
    )
    .inherited(),
    setting(
        "sync",
        "SYNC",
        "standard | always | disabled",
        Kind::Words(&["standard", "always", "disabled"]),
        "standard",
        "What is durable when a call returns: what `fsync` and `O_SYNC` ask for; each write and each change of names as well; \
         nothing, so that a crash costs the last seconds.",
    )
    .inherited(),
    setting(
        "journal",
        "JOURNAL",
        "data | ordered | writeback | off",
        Kind::Words(&["data", "ordered", "writeback", "off"]),
        "ordered",
        "What the intent log holds: names and content, for `fsync` and about once a second for whatever nobody asked for; \
         names and content for `fsync`; names and sizes only; nothing, so that `fsync` commits. Not in ZFS.",
    )
    .inherited(),
    setting(
        "writeback_cache",
        "WBCACHE",
        "on | off",
        SWITCH,
        "off",
        "The kernel collects what programs write, as it does for ext4, instead of handing each `write` over at once: many times \
         faster where pages are written again and again, as in databases and images of disks. A \
         full pool or quota is told by `fsync` or `close` instead of `write`. Not in ZFS.",
    )
    .inherited(),
    setting(
        "snapdir",
        "SNAPDIR",
        "hidden | visible",
        Kind::Words(&["hidden", "visible"]),
        "hidden",
        "Is the folder `.zfs`, with its snapshots, listed at the top of it? It can be entered in either case.",
    )
    .inherited(),
    setting(
        "special_small_blocks",
        "SPECIAL_SMALL_BLOCKS",
        "<size up to 16M>, or 0 for none",
        Kind::BytesUpTo { max: 16 << 20 },
        "0",
        "Blocks of content that take so many bytes at most as they are stored go to special devices, as metadata does.",
    )
    .inherited(),
    measured("defer_destroy", "DEFER_DESTROY", "on | off", SWITCH, "Does a snapshot go when nothing keeps it any more?"),
    measured("origin", "ORIGIN", "<snapshot>", Kind::Text { bytes_max: 256 }, "The snapshot that it is a clone of."),
    measured("clones", "CLONES", "<file systems>", Kind::Text { bytes_max: 4096 }, "Clones of a snapshot."),
    measured("userrefs", "USERREFS", "<number>", UNLIMITED, "Holds that keep a snapshot (`zfs hold`)."),
    measured("receive_resume_token", "RESUMETOK", "<token>", Kind::Text { bytes_max: 255 }, "Where a receive with -s broke off: for `zfs send -t`."),
    measured("logicalused", "LUSED", "<size>", Kind::Bytes, "`used` as it would be without compression."),
    measured("logicalreferenced", "LREFER", "<size>", Kind::Bytes, "`referenced` without compression."),
    setting(
        "acltype",
        "ACLTYPE",
        "posix | off",
        Kind::Words(&["posix", "posixacl", "off", "noacl"]),
        "posix",
        "Access control lists: POSIX ones are kept and count, or there are none. In ZFS the default is `off`.",
    )
    .inherited(),
    setting("relatime", "RELATIME", "on | off", SWITCH, "on", "With atime: record reads at most once a day.")
        .inherited(),
    setting(
        "encryption",
        "ENCRYPTION",
        "off | on | aes-256-gcm",
        Kind::Words(&["off", "on", "aes-256-gcm"]),
        "off",
        "Seal everything in it; `on` means aes-256-gcm. Children of an encrypted parent are encrypted.",
    )
    .inherited()
    .changes(Change::AtCreation),
    setting(
        "keylocation",
        "KEYLOCATION",
        "prompt | file:///absolute/path",
        Kind::KeyLocation,
        "none",
        "Where load-key takes the key from.",
    ),
    setting(
        "keyformat",
        "KEYFORMAT",
        "passphrase | raw | hex",
        Kind::Words(&["none", "passphrase", "raw", "hex"]),
        "none",
        "What the user's key looks like: words, 32 bytes, or 64 hexadecimal digits.",
    )
    .changes(Change::AtCreation),
    measured(
        "encryptionroot",
        "ENCROOT",
        "<filesystem>",
        Kind::Text { bytes_max: 255 },
        "The file system whose key opens this one.",
    ),
    measured(
        "keystatus",
        "KEYSTATUS",
        "none | unavailable | available",
        Kind::Text { bytes_max: 16 },
        "Is its key loaded?",
    ),
    owned("userused@...", "USERUSED@...", "<size>", Change::Never, "Bytes that the files of a user occupy: userused@joe."),
    owned("userquota@...", "USERQUOTA@...", "<size> | none", Change::Anytime, "What the files of a user may occupy."),
    owned("userobjused@...", "USEROBJUSED@...", "<count>", Change::Never, "Files, folders and links of a user."),
    owned("userobjquota@...", "USEROBJQUOTA@...", "<count> | none", Change::Anytime, "How many a user may have."),
    owned("groupused@...", "GROUPUSED@...", "<size>", Change::Never, "Bytes that the files of a group occupy."),
    owned("groupquota@...", "GROUPQUOTA@...", "<size> | none", Change::Anytime, "What the files of a group may occupy."),
    owned("groupobjused@...", "GROUPOBJUSED@...", "<count>", Change::Never, "Files, folders and links of a group."),
    owned("groupobjquota@...", "GROUPOBJQUOTA@...", "<count> | none", Change::Anytime, "How many a group may have."),
    measured("filecount", "FILECOUNT", "<number>", UNLIMITED, "Inodes in use."),
];

/// The tables as a document for people: docs/PROPERTIES.md is this text.
#[must_use]
pub fn document() -> String {
    let mut text = String::from(
        "# Properties\n\n\
         Names, values and defaults of what `zpool get`, `zpool set`, `zfs get` and `zfs set` know. This page is written \
         by\n`UPDATE=1 cargo test -p steadfast-property` and compared with the program by the same test.\n\n\
         When: *always*, at *creation*, at *import* (for as long as the pool stays imported), or *never* by hand. A \
         property of\nyour own has a `:` in its name; children inherit it. One of these means something to the daemon:\n\
         `steadfast:auto-snapshot=hourly=24,daily=7,weekly=4` takes snapshots and removes old ones (docs/operations/snapshot.md).\n",
    );
    for (title, table) in [("Pools", POOL), ("File systems and volumes", DATASET)] {
        text.push_str(&format!(
            "\n## {title}\n\n| Property | Values | Default | When | Inherited | What it does |\n"
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
            let (name, doc) = (property.name, property.doc);
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
