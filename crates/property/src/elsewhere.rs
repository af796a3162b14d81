//! Properties that ZFS has and that make no sense here: refused by name, with the reason.

/// Names, and why there is no such thing.
pub const ELSEWHERE: &[(&str, &str)] = &[
    ("aclinherit", "it rules NFSv4 ACLs, and what is kept here are POSIX ones (`acltype`)"),
    ("aclmode", "it rules NFSv4 ACLs, and what is kept here are POSIX ones (`acltype`)"),
    ("context", "labels of SELinux for a whole mount are an option of the kernel's mounts, not of FUSE's"),
    ("defcontext", "labels of SELinux for a whole mount are an option of the kernel's mounts, not of FUSE's"),
    ("direct", "what passes the page cache is the program's choice (O_DIRECT)"),
    ("dnodesize", "inodes have one size here, and attributes lie beside them"),
    ("fscontext", "labels of SELinux for a whole mount are an option of the kernel's mounts, not of FUSE's"),
    ("jailed", "jails and zones are not offered"),
    ("logbias", "`journal` says what the intent log holds"),
    ("mlslabel", "labels of Trusted Extensions are Solaris's"),
    ("nbmand", "mandatory locks are gone from Linux"),
    ("pbkdf2iters", "passphrases are stretched with Argon2id, whose costs are chosen with the key"),
    ("pbkdf2salt", "passphrases are stretched with Argon2id, and the salt is part of the wrapped key"),
    ("redundant_metadata", "all metadata has two copies, always"),
    (
        "rootcontext",
        "labels of SELinux for a whole mount are an option of the kernel's mounts, not of FUSE's",
    ),
    ("secondarycache", "a cache device holds content of all file systems alike"),
    ("sharenfs", "export the mountpoint with the tools of your NFS server"),
    ("sharesmb", "export the mountpoint with the tools of your SMB server"),
    ("snapdev", "snapshots of a volume have no device nodes; clients of NBD ask for VOLUME@SNAPSHOT"),
    ("version", "file systems have no version of their own; `zpool upgrade` enables a pool's features"),
    ("volthreading", "each client of a volume has a thread of its own"),
    ("vscan", "scanning for viruses on access is Solaris's"),
    ("zoned", "jails and zones are not offered"),
];

/// Beginnings of names, and why there is no such thing.
const PROJECTS: &str = "FUSE does not carry the numbers of projects";

/// Why there is no property of this name here, if ZFS has it.
#[must_use]
pub fn why_not_here(name: &str) -> Option<&'static str> {
    let is_project = name.starts_with("project") && name.contains('@') || name == "projid";
    ELSEWHERE.iter().find(|(known, _)| *known == name).map(|(_, why)| *why).or(is_project.then_some(PROJECTS))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DATASET, PropertyError, Scope, parse_assignment};

    #[test]
    fn what_is_elsewhere_is_not_here_and_is_refused_with_its_reason() {
        for (name, why) in ELSEWHERE {
            assert!(!DATASET.iter().any(|property| property.name == *name), "{name}");
            let error = parse_assignment(Scope::Dataset, &format!("{name}=on")).unwrap_err();
            assert!(
                matches!(error, PropertyError::Elsewhere { .. }) && error.to_string().contains(why),
                "{error}"
            );
        }
        assert!(ELSEWHERE.windows(2).all(|pair| pair[0].0 < pair[1].0), "in order");
        assert!(why_not_here("projectquota@5").is_some() && why_not_here("projector").is_none());
    }
}
