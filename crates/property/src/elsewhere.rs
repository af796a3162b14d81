//! Properties, values and features of ZFS that are not offered: refused by name with the reason, if
//! accepting them would break a promise; else accepted with a note.

use crate::size::parse_size;
use crate::table::{Change, Scope};
use crate::value::lookup;
use std::borrow::Cow;

/// Properties of file systems and volumes, with the reason.
pub const ELSEWHERE: &[(&str, &str)] = &[
    ("defaultgroupobjquota", EACH),
    ("defaultgroupquota", EACH),
    ("defaultprojectobjquota", PROJECTS),
    ("defaultprojectquota", PROJECTS),
    ("defaultuserobjquota", EACH),
    ("defaultuserquota", EACH),
    ("jailed", "jails exist only on FreeBSD"),
];

/// The reason for default quotas.
const EACH: &str = "quotas are set for each user and group";

/// Values of properties, with the reason. A `*` at the end stands for any rest.
const VALUES_ELSEWHERE: &[(&str, &[&str], &str)] = &[
    ("acltype", &["nfsv4"], "the kernel applies only POSIX ACLs to FUSE mounts; use acltype=posix"),
    ("bootfs", &["*"], "nothing boots from a pool that a daemon serves; use another file system for /boot"),
    (
        "casesensitivity",
        &["insensitive", "mixed"],
        "the kernel caches names and compares their bytes; file servers fold case themselves (Samba: `case sensitive = no`)",
    ),
    ("context", &["*"], "FUSE mounts do not take an SELinux label for the whole mount; use none"),
    ("defcontext", &["*"], "FUSE mounts do not take an SELinux label for the whole mount; use none"),
    ("fscontext", &["*"], "FUSE mounts do not take an SELinux label for the whole mount; use none"),
    (
        "keylocation",
        &["https://*", "http://*"],
        "the daemon fetches nothing over the network; fetch the key yourself, and use prompt or file:///PATH",
    ),
    ("longname", &["on"], "programs expect names of at most 255 bytes; use off"),
    (
        "multihost",
        &["on"],
        "use an anchor, which keeps two hosts from using one pool: `zpool add POOL anchor PATH`",
    ),
    ("nbmand", &["on"], "Linux has no mandatory locks any more; use off"),
    (
        "normalization",
        &["formC", "formD", "formKC", "formKD"],
        "the kernel caches names and compares their bytes; use utf8only=on to refuse names that are not UTF-8, and `convmv` to \
         bring names into one form",
    ),
    ("rootcontext", &["*"], "FUSE mounts do not take an SELinux label for the whole mount; use none"),
    ("sharesmb", &["*"], "use the tools of your SMB server to export the mountpoint"),
    (
        "snapdev",
        &["visible"],
        "snapshots of a volume have no device nodes; use NBD clients, which open VOLUME@SNAPSHOT",
    ),
    (
        "snapdir",
        &["disabled"],
        "a user who may read a folder may read its snapshots; use hidden, which does not list `.zfs`",
    ),
    (
        "volmode",
        &["full", "geom", "dev"],
        "a volume is a file and an NBD export; `nbd-client` makes a device node of it; use default",
    ),
    ("vscan", &["on"], "nothing here scans for viruses on access; use a scanner that walks the mountpoint"),
    ("zoned", &["on"], "file systems cannot be given to containers; use a bind mount"),
];

/// Sizes of blocks that ZFS has and we do not, as programs write them.
const SMALL: &[&str] = &["512", "1024", "2048", "1K", "2K", "1k", "2k"];

/// Values of ZFS for which another one is stored, which keeps what the value promises: property,
/// values, stored value, reason. A `*` at the end stands for the same rest on both sides.
const SUBSTITUTES: &[(&str, &[&str], &str, &str)] = &[
    ("acltype", &["noacl"], "off", ""),
    ("acltype", &["posixacl"], "posix", ""),
    (
        "ashift",
        &["14", "15", "16"],
        "13",
        "writes are sequential, so devices with larger pages get large writes anyway",
    ),
    ("dedup", &["sha256", "sha512", "skein"], "on", "content is found by its keyed BLAKE3"),
    (
        "dedup",
        &["sha256,verify", "sha512,verify", "skein,verify", "edonr,verify"],
        "verify",
        "content is found by its keyed BLAKE3, and bytes are compared as well",
    ),
    (
        "encryption",
        &["aes-128-ccm", "aes-192-ccm", "aes-256-ccm", "aes-128-gcm", "aes-192-gcm"],
        "aes-256-gcm",
        "there is one cipher, the default of ZFS",
    ),
    ("recordsize", SMALL, "4096", "blocks are not smaller than 4 KiB"),
    ("volblocksize", SMALL, "4096", "blocks are not smaller than 4 KiB"),
    ("version", &["1", "2", "3", "4"], "5", "file systems have no version of their own"),
    ("xattr", &["dir"], "sa", "attributes are stored beside the inode, not in a folder"),
];

/// Values of ZFS that are stored as typed, so that a program reads back what it set, and have the
/// effect of another one, which keeps what they promise. As [`SUBSTITUTES`].
const EFFECTS: &[(&str, &[&str], &str, &str)] = &[
    (
        "checksum",
        &["off", "fletcher2", "fletcher4", "sha256", "sha512", "skein", "edonr", "noparity"],
        "blake3",
        "every block is proved by BLAKE3, and repairs rely on that",
    ),
    ("compression", &["gzip"], "zstd", "zstd compresses as well in a fraction of the time"),
    ("compression", &["gzip-*"], "zstd-*", "zstd compresses as well in a fraction of the time"),
    ("compression", &["lzjb"], "lz4", "lz4 is faster and compresses better"),
    ("compression", &["zstd-fast", "zstd-fast-*"], "lz4", "lz4 is faster than zstd-fast"),
];

/// Features of ZFS whose function every pool has.
const FEATURES_HERE: &[&str] = &[
    "allocation_classes",
    "async_destroy",
    "blake3",
    "block_cloning",
    "bookmark_v2",
    "bookmark_written",
    "bookmarks",
    "device_removal",
    "edonr",
    "embedded_data",
    "empty_bpobj",
    "enabled_txg",
    "extensible_dataset",
    "fast_dedup",
    "filesystem_limits",
    "head_errlog",
    "hole_birth",
    "large_blocks",
    "large_dnode",
    "livelist",
    "log_spacemap",
    "lz4_compress",
    "obsolete_counts",
    "raidz_expansion",
    "resilver_defer",
    "sha512",
    "skein",
    "spacemap_histogram",
    "spacemap_v2",
    "userobj_accounting",
    "zilsaxattr",
    "zpool_checkpoint",
    "zstd_compress",
];

/// Features of ZFS whose function no pool has, with the reason.
const FEATURES_ABSENT: &[(&str, &str)] = &[
    ("device_rebuild", "a resilver is always sequential and verifies checksums"),
    ("draid", "use raidz1, raidz2 or raidz3 with spares"),
    ("large_microzap", "directories are trees of any size; there is no smaller form"),
    ("longname", "programs expect names of at most 255 bytes"),
    ("multi_vdev_crash_dump", "a kernel cannot write its crash dump through a daemon"),
    ("project_quota", PROJECTS),
    ("redacted_datasets", REDACTED),
    ("redaction_bookmarks", REDACTED),
    ("redaction_list_spill", REDACTED),
    ("vdev_zaps_v2", "devices have no objects of their own"),
];

/// The reason for redacted streams.
const REDACTED: &str = "delete the private files in a clone, and send a snapshot of that";

/// State of a feature of ZFS, by the name behind `feature@`, as `zpool get` prints it: `active` if
/// every pool has its function, `disabled` if none has. `None` for other names.
#[must_use]
pub fn zfs_feature_state(name: &str) -> Option<&'static str> {
    if FEATURES_HERE.binary_search(&name).is_ok() {
        return Some("active");
    }
    FEATURES_ABSENT.iter().any(|(absent, _)| *absent == name).then_some("disabled")
}

/// The reason for all properties of projects.
const PROJECTS: &str = "FUSE does not carry the numbers of projects";

/// The reason why a property of ZFS is not offered.
#[must_use]
pub fn why_not_here(scope: Scope, name: &str) -> Option<&'static str> {
    if scope == Scope::Pool {
        return None;
    }
    let projects = name.starts_with("project") && name.contains('@') || name == "projid";
    let listed = ELSEWHERE.iter().find(|(known, _)| *known == name).map(|(_, why)| *why);
    listed.or(projects.then_some(PROJECTS))
}

/// All properties and values of ZFS that are refused, and features that no pool has, each with its
/// reason: `name`, `name=value value` or `feature@name`.
pub fn left_out() -> impl Iterator<Item = (String, &'static str)> {
    let properties = ELSEWHERE.iter().map(|(name, why)| ((*name).to_owned(), *why));
    let projects = ["projid", "projectquota@...", "projectobjquota@..."];
    let projects = projects.into_iter().map(|name| (name.to_owned(), PROJECTS));
    let values = VALUES_ELSEWHERE
        .iter()
        .map(|(name, values, why)| (format!("{name}={}", values.join(" ").replace('*', "...")), *why));
    let features = FEATURES_ABSENT.iter().map(|(name, why)| (format!("feature@{name}"), *why));
    properties.chain(projects).chain(values).chain(features)
}

/// The rest of a value behind a pattern with a `*` at its end; empty if the pattern is the value.
fn rest<'v>(pattern: &str, value: &'v str) -> Option<&'v str> {
    match pattern.strip_suffix('*') {
        Some(begin) => value.strip_prefix(begin).filter(|rest| !rest.is_empty()),
        None => (pattern == value).then_some(""),
    }
}

/// The reason why a value of ZFS is not offered.
pub(crate) fn why_not_this(name: &str, value: &str) -> Option<&'static str> {
    let is_meant = |known: &&str| rest(known, value).is_some();
    let found =
        VALUES_ELSEWHERE.iter().find(|(known, values, _)| *known == name && values.iter().any(is_meant));
    found.map(|(_, _, why)| *why)
}

/// The value that is stored for a value of ZFS, and the reason.
pub(crate) fn substitute(name: &str, value: &str) -> Option<(String, &'static str)> {
    other_value(SUBSTITUTES, name, value).or_else(|| {
        // A size may be written in more ways than the table has, such as `1024b`.
        let is_size = matches!(name, "recordsize" | "volblocksize");
        let bytes = is_size.then(|| parse_size(value)).flatten()?;
        other_value(SUBSTITUTES, name, &bytes.to_string())
    })
}

/// The value whose effect this one has: itself, but for some values of ZFS.
#[must_use]
pub fn acts_as<'v>(name: &str, value: &'v str) -> Cow<'v, str> {
    other_value(EFFECTS, name, value).map_or(Cow::Borrowed(value), |(effect, _)| Cow::Owned(effect))
}

/// Looks a value up in one of the tables of values of ZFS.
fn other_value(
    table: &'static [(&str, &[&str], &str, &'static str)],
    name: &str,
    value: &str,
) -> Option<(String, &'static str)> {
    table.iter().filter(|(known, ..)| *known == name).find_map(|(_, values, stored, why)| {
        let rest = values.iter().find_map(|known| rest(known, value))?;
        let stored =
            stored.strip_suffix('*').map_or_else(|| (*stored).to_owned(), |begin| format!("{begin}{rest}"));
        Some((stored, *why))
    })
}

/// A note for the operator on an accepted assignment: the property has no effect, or another value
/// is stored for the one that was typed.
#[must_use]
pub fn note(scope: Scope, name: &str, value: &str) -> Option<String> {
    if scope == Scope::Pool
        && let Some(state) = name.strip_prefix("feature@").and_then(zfs_feature_state)
    {
        let why = match (state, value) {
            ("active", "disabled") => "every pool has its function, and uses it when a command asks for it",
            ("active", _) => "every pool has its function",
            _ => "no pool has its function",
        };
        return Some(format!("'{name}={value}' has no effect: {why}"));
    }
    let property = lookup(scope, name)?;
    if property.idle && property.change != Change::Never {
        let why = within(property.doc);
        return Some(format!("'{}={value}' has no effect here: {why}", property.name));
    }
    let told = |(value, why): (String, &'static str)| (!why.is_empty()).then_some((value, why));
    if let Some((effect, why)) = other_value(EFFECTS, property.name, value).and_then(told) {
        return Some(format!("'{}={value}' has the effect of '{effect}': {why}", property.name));
    }
    let (stored, why) = substitute(property.name, value).and_then(told)?;
    Some(format!("'{}={value}' is stored as '{stored}': {why}", property.name))
}

/// A sentence behind a colon: no full stop, and a small letter unless the word is an abbreviation.
fn within(sentence: &str) -> String {
    let mut letters = sentence.trim_end_matches('.').chars();
    let (first, rest) = (letters.next(), letters.as_str());
    let is_word = !rest.starts_with(char::is_uppercase);
    first.into_iter().map(|c| if is_word { c.to_ascii_lowercase() } else { c }).collect::<String>() + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DATASET, POOL, PropertyError, parse_assignment};

    #[test]
    fn properties_elsewhere_are_refused_with_the_reason() {
        for (name, why) in ELSEWHERE {
            assert!(!DATASET.iter().any(|property| property.name == *name), "{name}");
            let error = parse_assignment(Scope::Dataset, &format!("{name}=on")).unwrap_err();
            assert!(
                matches!(error, PropertyError::Elsewhere { .. }) && error.to_string().contains(why),
                "{error}"
            );
        }
        assert!(ELSEWHERE.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order");
        for (name, values, why) in VALUES_ELSEWHERE {
            let property = DATASET.iter().chain(POOL).find(|property| property.name == *name).expect(name);
            assert!(why.contains("use ") || why.contains("Samba"), "an alternative: {why}");
            for value in *values {
                let value = value.replace('*', "1");
                let error = property.parse(&value).expect_err(&value);
                assert!(matches!(error, PropertyError::ValueElsewhere { .. }), "{error}");
            }
        }
        let dataset = |name| why_not_here(Scope::Dataset, name);
        assert!(dataset("projectquota@5").is_some() && dataset("projector").is_none());
        assert!(why_not_here(Scope::Pool, "projid").is_none());
    }

    #[test]
    fn other_values_are_stored_for_some_and_a_note_says_so() {
        for (name, values, ..) in SUBSTITUTES {
            let of_dataset = DATASET.iter().any(|p| p.name == *name);
            let scope = if of_dataset { Scope::Dataset } else { Scope::Pool };
            let property = lookup(scope, name).expect(name);
            for value in *values {
                let value = value.replace('*', "9");
                let (_, stored) = parse_assignment(scope, &format!("{name}={value}")).expect(&value);
                // [property.2]
                assert_eq!(property.parse(&stored).as_ref(), Ok(&stored), "{name}={value}");
                assert_ne!(stored, value);
            }
        }
        for (name, values, ..) in EFFECTS {
            let property = lookup(Scope::Dataset, name).expect(name);
            for value in *values {
                let value = value.replace('*', "9");
                let effect = acts_as(name, &value).into_owned();
                assert_eq!(property.parse(&value).as_ref(), Ok(&value), "read back as typed");
                assert_eq!(acts_as(name, &effect), effect, "{name}={value}");
                assert_eq!(property.parse(&effect), Ok(effect));
            }
        }
        let told = |name: &str, value: &str| note(Scope::Dataset, name, value);
        let gzip = "'compression=gzip-7' has the effect of 'zstd-7': zstd compresses as well in a fraction of the time";
        assert_eq!(told("compression", "gzip-7").as_deref(), Some(gzip));
        let bias = "'logbias=throughput' has no effect here: `journal` sets the content of the intent log";
        assert_eq!(told("logbias", "throughput").as_deref(), Some(bias));
        assert_eq!(told("compression", "zstd-7"), None);
        assert_eq!(told("acltype", "posixacl"), None);
        assert_eq!(told("mountpoint", "/x"), None);
        assert!(parse_assignment(Scope::Dataset, "compression=gzip-99").is_err());
        assert!(note(Scope::Pool, "feature@lz4_compress", "enabled").is_some());
        assert!(note(Scope::Pool, "feature@encryption", "enabled").is_none());
    }

    #[test]
    fn features_of_zfs_have_a_state() {
        assert!(FEATURES_HERE.windows(2).all(|pair| pair[0] < pair[1]), "in order");
        assert!(FEATURES_ABSENT.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order");
        assert_eq!(zfs_feature_state("extensible_dataset"), Some("active"));
        assert_eq!(zfs_feature_state("draid"), Some("disabled"));
        assert_eq!(zfs_feature_state("nonsense"), None);
        // Nobody is left in the belief that a feature is off.
        for name in FEATURES_HERE {
            let told = note(Scope::Pool, &format!("feature@{name}"), "disabled").expect(name);
            assert!(told.ends_with(
                "has no effect: every pool has its function, and uses it when a command asks for it"
            ));
        }
        for (name, _) in FEATURES_ABSENT {
            let told = note(Scope::Pool, &format!("feature@{name}"), "enabled").expect(name);
            assert!(told.ends_with("has no effect: no pool has its function"), "{told}");
        }
    }
}
