//! `steadfast`, and whatever else it is called as.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    steadfast_cli::main()
}
