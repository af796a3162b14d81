//! Properties only of file systems, and only of volumes.

/// Only of file systems: about names, about folders, or replaced by `volsize` on a volume.
const OF_FILE_SYSTEMS: &[&str] = &[
    "aclinherit",
    "aclmode",
    "acltype",
    "atime",
    "casesensitivity",
    "devices",
    "direct",
    "dnodesize",
    "exec",
    "filesystem_count",
    "filesystem_limit",
    "longname",
    "nbmand",
    "normalization",
    "quota",
    "recordsize",
    "refquota",
    "relatime",
    "setuid",
    "sharenfs",
    "sharesmb",
    "snapdir",
    "utf8only",
    "version",
    "vscan",
    "writeback_cache",
    "xattr",
    "zoned",
];
/// Only of volumes.
const OF_VOLUMES: &[&str] = &["nbd", "volblocksize", "volsize", "volthreading"];

/// True if a volume (or a file system) has this property. An inherited one can be set above in
/// either case.
#[must_use]
pub fn applies(name: &str, volume: bool) -> bool {
    match volume {
        true => !OF_FILE_SYSTEMS.contains(&name) && (!name.contains('@') || name.starts_with("written@")),
        false => !OF_VOLUMES.contains(&name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DATASET;

    #[test]
    fn both_lists_are_of_the_table() {
        for name in OF_FILE_SYSTEMS.iter().chain(OF_VOLUMES) {
            assert!(DATASET.iter().any(|property| property.name == *name), "{name}");
            assert_ne!(applies(name, true), applies(name, false), "{name}");
        }
        for list in [OF_FILE_SYSTEMS, OF_VOLUMES] {
            assert!(list.windows(2).all(|pair| pair[0] < pair[1]), "in order");
        }
        assert!(applies("compression", true) && applies("compression", false));
        assert!(applies("org:note", true) && applies("written@monday", true));
        assert!(!applies("userquota@joe", true) && applies("userquota@joe", false));
    }
}
