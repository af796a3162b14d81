//! Properties and values that ZFS has and that make no sense here: refused by name, with the reason.

use crate::table::Scope;

/// Properties of pools, and why there is no such thing.
pub const POOL_ELSEWHERE: &[(&str, &str)] = &[
    ("bootfs", "nothing boots from a pool that a daemon serves"),
    ("compatibility", "a new pool uses all features of its version, which `zpool upgrade -v` lists"),
    (
        "dedup_table_quota",
        "what deduplication may take of memory follows from what is set for nodes (`steadfast daemon memory`)",
    ),
    ("delegation", "the daemon answers its own user and nobody else, so `zfs allow` is not offered"),
    ("freeing", "`zpool wait -t free` waits for what is being freed"),
    ("last_scrubbed_txg", "`zpool status` tells when the last scrub ended"),
    ("leaked", "`steadfast inspect check` counts what leaked"),
    ("listsnapshots", "`zfs list -t all` lists snapshots too, of any pool"),
    ("load_guid", "an import has no number of its own"),
    ("multihost", "an anchor keeps two hosts from using one pool (`zpool add POOL anchor PATH`)"),
];

/// Properties of file systems and volumes, and why there is no such thing.
pub const ELSEWHERE: &[(&str, &str)] = &[
    ("aclinherit", "it rules NFSv4 ACLs, and what is kept here are POSIX ones (`acltype`)"),
    ("aclmode", "it rules NFSv4 ACLs, and what is kept here are POSIX ones (`acltype`)"),
    ("context", "labels of SELinux for a whole mount are an option of the kernel's mounts, not of FUSE's"),
    ("defaultgroupobjquota", "quotas are set for each user and group"),
    ("defaultgroupquota", "quotas are set for each user and group"),
    ("defaultprojectobjquota", PROJECTS),
    ("defaultprojectquota", PROJECTS),
    ("defaultuserobjquota", "quotas are set for each user and group"),
    ("defaultuserquota", "quotas are set for each user and group"),
    ("defcontext", "labels of SELinux for a whole mount are an option of the kernel's mounts, not of FUSE's"),
    ("direct", "what passes the page cache is the program's choice (O_DIRECT)"),
    ("dnodesize", "inodes have one size here, and attributes lie beside them"),
    ("fscontext", "labels of SELinux for a whole mount are an option of the kernel's mounts, not of FUSE's"),
    ("jailed", "jails and zones are not offered"),
    ("logbias", "`journal` says what the intent log holds"),
    ("longname", "a name takes up to 255 bytes, as programs expect"),
    ("mlslabel", "labels of Trusted Extensions are Solaris's"),
    ("nbmand", "mandatory locks are gone from Linux"),
    ("pbkdf2iters", "passphrases are stretched with Argon2id, whose costs are chosen with the key"),
    ("pbkdf2salt", "passphrases are stretched with Argon2id, and the salt is part of the wrapped key"),
    ("redact_snaps", "streams are not redacted"),
    ("redundant_metadata", "all metadata has two copies, always"),
    (
        "rootcontext",
        "labels of SELinux for a whole mount are an option of the kernel's mounts, not of FUSE's",
    ),
    ("sharenfs", "export the mountpoint with the tools of your NFS server"),
    ("sharesmb", "export the mountpoint with the tools of your SMB server"),
    ("snapdev", "snapshots of a volume have no device nodes; clients of NBD ask for VOLUME@SNAPSHOT"),
    ("snapshots_changed", "`zpool history -i` tells when snapshots were taken and destroyed"),
    ("version", "file systems have no version of their own; `zpool upgrade` enables a pool's features"),
    ("volthreading", "each client of a volume has a thread of its own"),
    ("vscan", "scanning for viruses on access is Solaris's"),
    ("zoned", "jails and zones are not offered"),
];

/// Values that are not offered of properties that are, and why. One that ends in `*` stands for all that begin so.
const VALUES_ELSEWHERE: &[(&str, &[&str], &str)] = &[
    ("acltype", &["nfsv4"], "the kernel judges what FUSE serves by POSIX lists alone; use acltype=posix"),
    (
        "ashift",
        &["14", "15", "16"],
        "the format has units of 512 bytes to 8 KiB, and needs no larger ones: blocks are written one after the other, so that \
         devices with larger pages get large writes in any case; use 12 or 13",
    ),
    (
        "casesensitivity",
        &["insensitive", "mixed"],
        "the kernel keeps names in front of every mount and compares their bytes; servers fold case themselves (Samba: `case \
         sensitive = no`)",
    ),
    (
        "checksum",
        &["off", "fletcher2", "fletcher4", "sha256", "sha512", "skein", "edonr", "noparity"],
        "every block is proved by BLAKE3, on which healing rests; use blake3",
    ),
    (
        "compression",
        &["gzip", "gzip-*"],
        "zstd packs as well in a fraction of the time; use zstd, or zstd-1 to zstd-19",
    ),
    ("compression", &["lzjb"], "lz4 is faster and packs better; use lz4"),
    (
        "compression",
        &["zstd-fast", "zstd-fast-*"],
        "what is quicker than zstd-1 here is lz4; use one of these",
    ),
    (
        "copies",
        &["2", "3"],
        "content has the redundancy of the devices it lies on; use `mirror` or `raidz1` to `raidz3` for these",
    ),
    (
        "dedup",
        &["sha256", "sha256,verify", "sha512", "sha512,verify", "skein", "skein,verify", "edonr,verify"],
        "content is known by a keyed BLAKE3 of it; use on, or verify to compare bytes as well",
    ),
    (
        "encryption",
        &["aes-128-ccm", "aes-192-ccm", "aes-256-ccm", "aes-128-gcm", "aes-192-gcm"],
        "there is one cipher, which is ZFS's default; use on or aes-256-gcm",
    ),
    (
        "keylocation",
        &["https://*", "http://*"],
        "the daemon fetches nothing from a network; fetch the key yourself, and use prompt or file:///PATH",
    ),
    (
        "normalization",
        &["formC", "formD", "formKC", "formKD"],
        "the kernel keeps names in front of every mount and compares their bytes; use utf8only=on to keep out what is no \
         UTF-8, and `convmv` to bring names into one form",
    ),
    (
        "snapdir",
        &["disabled"],
        "who may read a folder may read it as it was; use hidden, which lists `.zfs` nowhere",
    ),
    (
        "volmode",
        &["full", "geom", "dev"],
        "a volume is a file and an export of NBD, of which `nbd-client` makes a device node; use default",
    ),
    ("xattr", &["dir"], "attributes lie beside the inode and in no folder; use sa"),
];

/// Why there are no properties of projects.
const PROJECTS: &str = "FUSE does not carry the numbers of projects";

/// Why there is no property of this name here, if ZFS has it.
#[must_use]
pub fn why_not_here(scope: Scope, name: &str) -> Option<&'static str> {
    let (list, projects) = match scope {
        Scope::Pool => (POOL_ELSEWHERE, false),
        Scope::Dataset => (ELSEWHERE, name.starts_with("project") && name.contains('@') || name == "projid"),
    };
    list.iter().find(|(known, _)| *known == name).map(|(_, why)| *why).or(projects.then_some(PROJECTS))
}

/// Why a property has no such value here, if it has one in ZFS.
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
