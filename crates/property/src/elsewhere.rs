//! Properties that ZFS has and that make no sense here: refused by name, with the reason.

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
    ("secondarycache", "a cache device holds content of all file systems alike"),
    ("sharenfs", "export the mountpoint with the tools of your NFS server"),
    ("sharesmb", "export the mountpoint with the tools of your SMB server"),
    ("snapdev", "snapshots of a volume have no device nodes; clients of NBD ask for VOLUME@SNAPSHOT"),
    ("snapshots_changed", "`zpool history -i` tells when snapshots were taken and destroyed"),
    ("version", "file systems have no version of their own; `zpool upgrade` enables a pool's features"),
    ("volthreading", "each client of a volume has a thread of its own"),
    ("vscan", "scanning for viruses on access is Solaris's"),
    ("zoned", "jails and zones are not offered"),
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
        let dataset = |name| why_not_here(Scope::Dataset, name);
        assert!(dataset("projectquota@5").is_some() && dataset("projector").is_none());
        assert!(why_not_here(Scope::Pool, "sharenfs").is_none() && dataset("bootfs").is_none());
    }
}
