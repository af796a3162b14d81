//! The intent log of a pool (ZFS: ZIL), and its devices (ZFS: SLOG).

pub(crate) mod held;
pub(crate) mod held_replay;
pub(crate) mod interval;
pub(crate) mod interval_task;
pub(crate) mod log_change;
pub(crate) mod log_device;
pub(crate) mod log_devices;
pub(crate) mod log_mirror;
pub(crate) mod state;
pub(crate) mod zil;
