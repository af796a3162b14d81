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

/// Bytes reserved for all that a volume can hold: its size, in whole blocks, in so many copies, and
/// in one copy more, three at most, the nodes of 1,024 pointers that a tree over its blocks has,
/// 128 KiB each. Programs of ZFS compute the same.
#[must_use]
pub fn volume_reservation(bytes: u64, block_bytes: u64, copies: u64) -> u64 {
    const POINTERS: u64 = 1_024;
    const NODE_BYTES: u64 = 128 << 10;
    // Of the tree that lists the volume itself.
    let mut nodes = 7_u64;
    let mut count = bytes.div_ceil(block_bytes.max(1));
    let whole = count.saturating_mul(block_bytes);
    while count > 1 {
        count = count.div_ceil(POINTERS);
        nodes += count;
    }
    let of_nodes = (copies + 1).min(3) * NODE_BYTES;
    whole.saturating_mul(copies).saturating_add(nodes.saturating_mul(of_nodes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DATASET;

    #[test]
    fn as_much_is_reserved_for_a_volume_as_zfs_reserves() {
        assert_eq!(volume_reservation(815_349_760, 16 << 10, 1), 830_291_968);
        assert_eq!(volume_reservation(2_037_383_168, 16 << 10, 1), 2_071_461_888);
        assert_eq!(volume_reservation(1, 4096, 1), 4096 + (7 << 18));
        // Of 1 GiB in two and three copies; nodes have three at most.
        assert_eq!(volume_reservation(1 << 30, 16 << 10, 2), (2 << 30) + 3 * (72 << 17));
        assert_eq!(volume_reservation(1 << 30, 16 << 10, 3), (3 << 30) + 3 * (72 << 17));
        assert_eq!(volume_reservation(u64::MAX, 1, 1), u64::MAX);
        assert_eq!(volume_reservation(0, 0, 1), 7 << 18);
    }

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
