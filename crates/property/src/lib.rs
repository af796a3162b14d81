//! Names and values of pool and dataset properties.
//!
//! One table holds name, values, default, inheritance, time of change and effect of each property.
//! Parsing, `get all`, help and docs/PROPERTIES.md read it. Names are those of OpenZFS, so that
//! scripts written for it keep working.
//!
//! A value has two forms. The *exact* form travels and is stored: sizes and counts in decimal
//! bytes, dates in seconds since 1970, ratios like `1.85`, everything else as the word itself. The
//! *shown* form is for people (`25.9M`, `1.85x`); only the printer makes it, by
//! [`Property::shown`].
//!
//! ## Invariants
//! [property.1] A name appears once per table, and no alias equals a name.
//!     Test: `names_and_aliases_are_unique`.
//! [property.2] The exact form of a value parses to itself.
//!     Test: `exact_values_parse_to_themselves`.
//! [property.3] A value of ZFS that is not offered is never stored. It is refused with the reason,
//!     or another value that keeps its promise is stored, and a note says which.
//!     Tests: `values_that_are_not_offered_are_refused_with_the_reason`,
//!     `other_values_are_stored_for_some_and_a_note_says_so`.
//! [property.4] A property without effect takes only values that promise nothing.
#![forbid(unsafe_code)]

mod allow;
mod elsewhere;
mod name;
mod owner;
mod policy;
mod pools;
mod resolve;
mod share;
mod size;
mod table;
mod usage;
mod value;
mod vdev;
mod volume;

pub use allow::{ALLOW_PREFIX, Granted, PERMISSIONS, Who, permission, set_name};
pub use elsewhere::{acts_as, left_out, note, why_not_here, zfs_feature_state};
pub use name::{NameError, TAG_BYTES_MAX, check_dataset_name, check_pool_name, check_snapshot_name, is_tag};
pub use owner::OwnerProperty;
pub use policy::{AUTO_SNAPSHOT, Period, Policy};
pub use pools::POOL;
pub use resolve::{Local, Resolved, Source, resolve};
pub use share::{ShareAccess, ShareOptions};
pub use size::{is_too_large, nice_bytes, nice_nanos, nice_number, parse_size};
pub use table::{Change, DATASET, Kind, Property, Scope, document};
pub use usage::usage_list;
pub use value::{
    PropertyError, USER_VALUE_BYTES_MAX, check_user_property, is_user_property, lookup, nearest,
    parse_assignment,
};
pub use vdev::{VDEV_PREFIX, vdev_property};
pub use volume::{applies, volume_reservation};
