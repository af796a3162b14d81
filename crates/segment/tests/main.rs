//! Integration tests of this crate: one program, so that the engine is linked once.

mod cleaning;
mod commit_room;
mod common;
mod model;
mod redundant;
mod space;
mod uneven;
mod uploads;
