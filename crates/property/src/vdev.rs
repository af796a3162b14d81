//! Properties of groups and devices, as properties of their pool that nobody sets by hand.
//! `docs/decisions/0209-properties-of-devices.md`.

/// Prefix of these properties. It is reserved, so no command sets them.
pub const VDEV_PREFIX: &str = "steadfast:vdev:";

/// The name by which a pool has a property of a vdev, which is named by its number.
#[must_use]
pub fn vdev_property(vdev: &str, property: &str) -> String {
    format!("{VDEV_PREFIX}{vdev}:{property}")
}
