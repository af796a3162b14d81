//! Work that goes through the free slots of a device.

/// Kinds of work on free slots.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sweep {
    /// They are discarded.
    Trim,
    /// They are filled.
    Initialize,
}

impl Sweep {
    /// The command.
    #[must_use]
    pub fn verb(self) -> &'static str {
        match self {
            Sweep::Trim => "trim",
            Sweep::Initialize => "initialize",
        }
    }

    /// `trim`, `initialization`.
    #[must_use]
    pub fn noun(self) -> &'static str {
        match self {
            Sweep::Trim => "trim",
            Sweep::Initialize => "initialization",
        }
    }

    /// `trimmed`, `initialized`.
    #[must_use]
    pub fn passive(self) -> &'static str {
        match self {
            Sweep::Trim => "trimmed",
            Sweep::Initialize => "initialized",
        }
    }
}
