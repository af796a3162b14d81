//! Nothing but dependencies: a crate whose tests name this one is built with the features of the
//! whole workspace, so that `cargo test -p` of it compiles nothing that `cargo test --workspace`
//! has compiled. The program never depends on it.
#![forbid(unsafe_code)]
