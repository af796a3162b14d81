//! Repository chores. `cargo xtask` lists them.
#![forbid(unsafe_code)]

mod check;
mod compare;
mod deb;
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
            ExitCode::from(u8::from(!check::run(&root, quick)))
        }
        Some(kind @ ("conformance" | "stress")) => {
            let words: Vec<String> = std::env::args().skip(2).collect();
            ExitCode::from(u8::from(!suites::run(&root, kind, &words)))
        }
        Some("deb") => ExitCode::from(u8::from(!deb::run(&root))),
        Some("compare") => {
            let value = |name: &str| std::env::args().skip_while(|arg| arg != name).nth(1);
            let number =
                |name: &str, default: u64| value(name).and_then(|v| v.parse().ok()).unwrap_or(default);
            let base = value("--dir").map_or_else(std::env::temp_dir, PathBuf::from);
            let rounds = usize::try_from(number("--rounds", 3)).unwrap_or(3).max(1);
            match compare::run(&root, &base, rounds, number("--mib", 512)) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("compare: {error}");
                    ExitCode::FAILURE
                }
            }
        }
        _ => {
            for line in [
                "usage: cargo xtask test [--quick]   everything the server runs; installs what the tests need",
                "       cargo xtask conformance|stress [--long] [--only NAMES] [--release] [--install]   suites on a fresh pool's mount",
                "       cargo xtask compare [--rounds N] [--mib N] [--dir DIR]   the figures of docs/PERFORMANCE.md",
                "       cargo xtask deb              a Debian package of the program and what belongs to it",
                "       cargo xtask tidy             house rules that the compiler does not know",
            ] {
                eprintln!("{line}");
            }
            ExitCode::from(2)
        }
    }
}
