//! The two sides of a pool, normal and special groups ([`crate::sides`]).

use steadfast_format::GroupClass;

use crate::Class;
use crate::groups::Group;

/// Which groups.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Side {
    #[default]
    Normal,
    Special,
}

/// Units that are free on each side, less what is kept there; either may be negative.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Headroom {
    pub normal: i64,
    /// Negative if metadata needs more than that side has: the normal one gives it.
    pub special: i64,
}

impl Headroom {
    /// Room for content [sides.2].
    pub fn content(self) -> i64 {
        self.normal + self.special.min(0)
    }
}

impl Group {
    pub fn side(&self) -> Side {
        match self.class {
            GroupClass::Normal => Side::Normal,
            GroupClass::Special => Side::Special,
        }
    }
}

impl Class {
    /// Where what has no room on special groups goes.
    pub(crate) fn elsewhere(self) -> Class {
        if self == Class::Small { Class::Clean } else { self }
    }

    /// Whether segments of this class may lie on special groups.
    pub(crate) fn may_be_special(self) -> bool {
        matches!(self, Class::Meta0 | Class::Meta1 | Class::Pool0 | Class::Pool1 | Class::Small)
    }
}
