//! The intent log of a pool (ZFS: ZIL), and its devices (ZFS: SLOG).

pub(crate) mod held;
pub(crate) mod interval;
pub(crate) mod log_device;
pub(crate) mod log_mirror;
pub(crate) mod zil;
