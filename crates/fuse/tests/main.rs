//! Integration tests of this crate: one program, so that the engine is linked once.

mod common;
mod direct_writes;
mod fuzz_smoke;
mod mount_life;
mod mount_use;
mod over_io_uring;
mod put_off;
mod wire_golden;
