//! Durability of changes without `fsync`, and the answer to `fsync`: the property `sync`.

/// When the changes of a dataset are durable. A commit writes the same in all three.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[repr(u8)]
pub enum SyncMode {
    /// When `fsync` and its like return.
    #[default]
    Standard = 0,
    /// When the call that made them returns, too.
    Always = 1,
    /// With the commit of their txg: `fsync` returns at once and promises nothing.
    Disabled = 2,
}

impl SyncMode {
    pub(crate) fn from_u8(value: u8) -> SyncMode {
        match value {
            1 => SyncMode::Always,
            2 => SyncMode::Disabled,
            _ => SyncMode::Standard,
        }
    }
}
