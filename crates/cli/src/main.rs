//! The program `steadfast`, also called zpool, zfs, vdbench and mount.steadfast.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    steadfast_cli::main()
}
