//! Properties and values of ZFS that are not offered: refused by name, with the reason.

use crate::table::Scope;

/// Properties of pools, with the reason.
pub const POOL_ELSEWHERE: &[(&str, &str)] = &[
    ("bootfs", "nothing boots from a pool that a daemon serves"),
    ("compatibility", "a new pool uses all features of its version, which `zpool upgrade -v` lists"),
    (
        "dedup_table_quota",
        "the memory of deduplication is a share of the node cache (`steadfast daemon memory`)",
    ),
    ("delegation", "the daemon answers only its own user, so `zfs allow` is not offered"),
    ("freeing", "`zpool wait -t free` waits until deleted space is free"),
    ("last_scrubbed_txg", "`zpool status` shows the end of the last scrub"),
    ("leaked", "`steadfast inspect check` counts leaked blocks"),
    ("listsnapshots", "`zfs list -t all` lists snapshots of any pool"),
    ("load_guid", "an import has no number of its own"),
    ("multihost", "an anchor keeps two hosts from using one pool (`zpool add POOL anchor PATH`)"),
];

/// Properties of file systems and volumes, with the reason.
pub const ELSEWHERE: &[(&str, &str)] = &[
    ("aclinherit", "it is about NFSv4 ACLs; Steadfast has POSIX ACLs (`acltype`)"),
    ("aclmode", "it is about NFSv4 ACLs; Steadfast has POSIX ACLs (`acltype`)"),
    ("context", "FUSE mounts do not take an SELinux label for the whole mount"),
    ("defaultgroupobjquota", "quotas are set for each user and group"),
    ("defaultgroupquota", "quotas are set for each user and group"),
    ("defaultprojectobjquota", PROJECTS),
    ("defaultprojectquota", PROJECTS),
    ("defaultuserobjquota", "quotas are set for each user and group"),
    ("defaultuserquota", "quotas are set for each user and group"),
    ("defcontext", "FUSE mounts do not take an SELinux label for the whole mount"),
    ("direct", "programs choose to bypass the page cache (O_DIRECT)"),
    ("dnodesize", "inodes have one size; attributes are stored beside them"),
    ("fscontext", "FUSE mounts do not take an SELinux label for the whole mount"),
    ("jailed", "jails and zones are not offered"),
    ("logbias", "`journal` sets the content of the intent log"),
    ("longname", "a name has at most 255 bytes, as programs expect"),
    ("mlslabel", "it is for Trusted Extensions of Solaris"),
    ("nbmand", "Linux has no mandatory locks any more"),
    ("pbkdf2iters", "passphrases go through Argon2id; its costs are fixed when the key is made"),
    ("pbkdf2salt", "passphrases go through Argon2id; the salt is stored with the wrapped key"),
    ("redact_snaps", "redacted streams are not offered"),
    ("redundant_metadata", "all metadata always has two copies"),
    ("rootcontext", "FUSE mounts do not take an SELinux label for the whole mount"),
    ("sharenfs", "export the mountpoint with the tools of your NFS server"),
    ("sharesmb", "export the mountpoint with the tools of your SMB server"),
    ("snapdev", "snapshots of a volume have no device nodes; NBD clients open VOLUME@SNAPSHOT"),
    ("snapshots_changed", "`zpool history -i` lists snapshots taken and destroyed"),
    ("version", "file systems have no version of their own; `zpool upgrade` enables a pool's features"),
    ("volthreading", "each client of a volume has its own thread"),
    ("vscan", "virus scanning on access is a feature of Solaris"),
    ("zoned", "jails and zones are not offered"),
];

/// Values of properties, with the reason. A `*` at the end stands for any rest.
const VALUES_ELSEWHERE: &[(&str, &[&str], &str)] = &[
    ("acltype", &["nfsv4"], "the kernel applies only POSIX ACLs to FUSE mounts; use acltype=posix"),
    (
        "ashift",
        &["14", "15", "16"],
        "units have 512 bytes to 8 KiB. Larger ones are not needed: writes are sequential, so devices with larger pages get large \
         writes anyway; use 12 or 13",
    ),
    (
        "casesensitivity",
        &["insensitive", "mixed"],
        "the kernel caches names and compares their bytes; file servers fold case themselves (Samba: `case sensitive = no`)",
    ),
    (
        "checksum",
        &["off", "fletcher2", "fletcher4", "sha256", "sha512", "skein", "edonr", "noparity"],
        "every block is proved by BLAKE3, and repairs rely on that; use blake3",
    ),
    (
        "compression",
        &["gzip", "gzip-*"],
        "zstd compresses as well in a fraction of the time; use zstd, or zstd-1 to zstd-19",
    ),
    ("compression", &["lzjb"], "lz4 is faster and compresses better; use lz4"),
    ("compression", &["zstd-fast", "zstd-fast-*"], "lz4 is faster than zstd-1; use lz4 or zstd-1"),
    (
        "copies",
        &["2", "3"],
        "content has the redundancy of its devices; use `mirror` or `raidz1` to `raidz3`",
    ),
    (
        "dedup",
        &["sha256", "sha256,verify", "sha512", "sha512,verify", "skein", "skein,verify", "edonr,verify"],
        "content is found by its keyed BLAKE3; use on, or verify to compare the bytes as well",
    ),
    (
        "encryption",
        &["aes-128-ccm", "aes-192-ccm", "aes-256-ccm", "aes-128-gcm", "aes-192-gcm"],
        "there is one cipher, the default of ZFS; use on or aes-256-gcm",
    ),
    (
        "keylocation",
        &["https://*", "http://*"],
        "the daemon fetches nothing over the network; fetch the key yourself, and use prompt or file:///PATH",
    ),
    (
        "normalization",
        &["formC", "formD", "formKC", "formKD"],
        "the kernel caches names and compares their bytes; use utf8only=on to refuse names that are not UTF-8, and `convmv` to \
         bring names into one form",
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
    ("xattr", &["dir"], "attributes are stored beside the inode, not in a folder; use sa"),
];

/// The reason for all properties of projects.
const PROJECTS: &str = "FUSE does not carry the numbers of projects";

/// The reason why a property of ZFS is not offered.
#[must_use]
pub fn why_not_here(scope: Scope, name: &str) -> Option<&'static str> {
    let (list, projects) = match scope {
        Scope::Pool => (POOL_ELSEWHERE, false),
        Scope::Dataset => (ELSEWHERE, name.starts_with("project") && name.contains('@') || name == "projid"),
    };
    list.iter().find(|(known, _)| *known == name).map(|(_, why)| *why).or(projects.then_some(PROJECTS))
}

/// The reason why a value of ZFS is not offered.
pub(crate) fn why_not_this(name: &str, value: &str) -> Option<&'static str> {
    let is_meant = |known: &&str| match known.strip_suffix('*') {
        Some(begin) => value.len() > begin.len() && value.starts_with(begin),
        None => *known == value,
    };
    let found =
        VALUES_ELSEWHERE.iter().find(|(known, values, _)| *known == name && values.iter().any(is_meant));
    found.map(|(_, _, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DATASET, POOL, PropertyError, parse_assignment};

    #[test]
    fn what_is_elsewhere_is_not_here_and_is_refused_with_its_reason() {
        for (scope, table, list) in
            [(Scope::Dataset, DATASET, ELSEWHERE), (Scope::Pool, POOL, POOL_ELSEWHERE)]
        {
            for (name, why) in list {
                assert!(!table.iter().any(|property| property.name == *name), "{name}");
                let error = parse_assignment(scope, &format!("{name}=on")).unwrap_err();
                assert!(
                    matches!(error, PropertyError::Elsewhere { .. }) && error.to_string().contains(why),
                    "{error}"
                );
            }
            assert!(list.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order");
        }
        for (name, values, why) in VALUES_ELSEWHERE {
            let property = DATASET.iter().chain(POOL).find(|property| property.name == *name).expect(name);
            assert!(why.contains("use ") || why.contains("Samba"), "what to do instead: {why}");
            for value in *values {
                let value = value.replace('*', "1");
                let error = property.parse(&value).expect_err(&value);
                assert!(matches!(error, PropertyError::ValueElsewhere { .. }), "{error}");
            }
        }
        let dataset = |name| why_not_here(Scope::Dataset, name);
        assert!(dataset("projectquota@5").is_some() && dataset("projector").is_none());
        assert!(why_not_here(Scope::Pool, "sharenfs").is_none() && dataset("bootfs").is_none());
    }
}
