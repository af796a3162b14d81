//! Repository chores. `cargo xtask` lists them.
#![forbid(unsafe_code)]

mod book;
mod check;
mod deb;
mod fuzz;
mod suites;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => {
            let findings = tidy::check(&root);
            for finding in &findings {
                println!("{finding}");
            }
            println!("tidy: {} findings", findings.len());
            ExitCode::from(u8::from(!findings.is_empty()))
        }
        Some("test") => {
            let quick = std::env::args().any(|arg| arg == "--quick");
            let arm = std::env::args().any(|arg| arg == "--aarch64");
            ExitCode::from(u8::from(!check::run(&root, quick, arm)))
        }
        Some(kind @ ("conformance" | "stress")) => {
            let words: Vec<String> = std::env::args().skip(2).collect();
            ExitCode::from(u8::from(!suites::run(&root, kind, &words)))
        }
        Some("fuzz") => {
            let words: Vec<String> = std::env::args().skip(2).collect();
            ExitCode::from(u8::from(!fuzz::run(&root, &words)))
        }
        Some("book") => ExitCode::from(u8::from(!book::run(&root))),
        Some("deb") => ExitCode::from(u8::from(!deb::run(&root))),
        _ => {
            for line in [
                "usage: cargo xtask test [--quick] [--aarch64]   everything the server runs; installs what the tests need",
                "       cargo xtask conformance|stress [--long] [--only NAMES] [--release] [--install]   suites on a fresh pool's mount",
                "       cargo xtask fuzz [--seconds N] [TARGET]...   every fuzz target, or those named, each for N seconds",
                "       cargo xtask deb              a Debian package of the program and what belongs to it",
                "       cargo xtask book             README and docs/ as one site in target/book/html; installs mdbook",
                "       cargo xtask tidy             house rules that the compiler does not know",
            ] {
                eprintln!("{line}");
            }
            ExitCode::from(2)
        }
    }
}
