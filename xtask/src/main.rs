//! Repository chores. `cargo xtask` lists them.
#![forbid(unsafe_code)]

mod book;
mod check;
mod circles;
mod clients;
mod deb;
mod demo;
mod features;
mod fuzz;
mod labels;
mod licences;
mod openzfs;
mod prose;
mod ratchet;
mod rooms;
mod suites;
mod tarball;
mod test_run;
mod tidy;

use std::path::PathBuf;
use std::process::ExitCode;

fn main() -> ExitCode {
    let own = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    // Paths that are told begin with it.
    let root = own.parent().map_or_else(|| own.clone(), PathBuf::from);
    match std::env::args().nth(1).as_deref() {
        Some("tidy") => {
            if std::env::args().any(|arg| arg == "--lower")
                && let Err(error) = tidy::lower(&root)
            {
                eprintln!("xtask/ratchets.txt: {error}");
            }
            told("tidy", &tidy::check(&root))
        }
        Some("circles") => {
            for (name, circles) in circles::of_tree(&root) {
                println!("{name}: {}", circles.first().map_or(1, Vec::len));
                circles.iter().for_each(|circle| println!("    {}", circle.join(" ")));
            }
            ExitCode::SUCCESS
        }
        Some("features") => told("features", &features::check(&root)),
        Some("licences") => told("licences", &licences::check(&root)),
        Some("test") => match check::Wish::read(&std::env::args().skip(2).collect::<Vec<_>>()) {
            Ok(wish) => ExitCode::from(u8::from(!check::run(&root, &wish))),
            Err(sentence) => {
                eprintln!("cargo xtask test: {sentence}");
                ExitCode::from(2)
            }
        },
        Some(kind @ ("conformance" | "stress")) => {
            let words: Vec<String> = std::env::args().skip(2).collect();
            ExitCode::from(u8::from(!suites::run(&root, kind, &words)))
        }
        Some("fuzz") => {
            let words: Vec<String> = std::env::args().skip(2).collect();
            ExitCode::from(u8::from(!fuzz::run(&root, &words)))
        }
        Some("clients") => {
            let words: Vec<String> = std::env::args().skip(2).collect();
            ExitCode::from(u8::from(!clients::run(&root, &words)))
        }
        Some("openzfs") => {
            let words: Vec<String> = std::env::args().skip(2).collect();
            ExitCode::from(u8::from(!openzfs::run(&root, &words)))
        }
        Some("book") => ExitCode::from(u8::from(!book::run(&root))),
        Some("demo") => {
            let words: Vec<String> = std::env::args().skip(2).collect();
            ExitCode::from(u8::from(!demo::run(&root, &words)))
        }
        Some("tarball") => {
            let words: Vec<String> = std::env::args().skip(2).collect();
            ExitCode::from(u8::from(!tarball::run(&root, &words)))
        }
        Some("deb") => {
            let words: Vec<String> = std::env::args().skip(2).collect();
            ExitCode::from(u8::from(!deb::run(&root, &words)))
        }
        _ => {
            for line in [
                "usage: cargo xtask test [--quick] [--aarch64] [--only STEP]...   everything the server runs, or some steps of it; installs what the tests need",
                "       cargo xtask conformance|stress [--long] [--only NAMES] [--release] [--install]   suites on a fresh pool's mount",
                "       cargo xtask clients [TEST]   programs that others wrote for ZFS, from their registries, on pools of ours",
                "       cargo xtask openzfs --suite DIR [--table] [--program FILE] [--jobs N] [--limit S] [--out DIR] [--scratch DIR] [GROUP[:TEST,...]]...   OpenZFS's own tests, from a checkout, on pools of ours",
                "       cargo xtask fuzz [--seconds N] [TARGET]...   every fuzz target, or those named, each for N seconds",
                "       cargo xtask demo [--quick]   looks whether this machine can mount, builds the program, and runs its demo",
                "       cargo xtask deb              two Debian packages in target/debian: the program, and the words zpool and zfs",
                "       cargo xtask tarball          the program without libraries, for any Linux of this architecture, in target/tarball",
                "       cargo xtask book             README and docs/ as one site in target/book/html; installs mdbook",
                "       cargo xtask features         packages that tests of one crate would build once more",
                "       cargo xtask licences         licences, versions and sources of all packages, by deny.toml",
                "       cargo xtask circles          files of each crate that import one another in a loop",
                "       cargo xtask tidy [--lower]   house rules that the compiler does not know; lowers the listed counts",
            ] {
                eprintln!("{line}");
            }
            ExitCode::from(2)
        }
    }
}

/// Prints findings and their number. A failure if there is one.
fn told(rule: &str, findings: &[String]) -> ExitCode {
    for finding in findings {
        println!("{finding}");
    }
    println!("{rule}: {} findings", findings.len());
    ExitCode::from(u8::from(!findings.is_empty()))
}
