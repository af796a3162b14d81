//! `cargo xtask fuzz`: builds every target of `fuzz/` and runs each for a while, from seeds and
//! from what earlier runs found.
//!
//! It asks the nightly compiler for what libFuzzer needs, as `cargo fuzz` does, which need not be
//! installed.

use std::path::Path;
use std::process::Command;

use crate::check::Runner;

/// Flags for libFuzzer's instrumentation: edges taken, and values compared.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Cllvm-args=-simplifycfg-branch-fold-threshold=0 \
    -Cdebug-assertions -Coverflow-checks --cfg fuzzing";
/// For one named target only, as flags for all would reach build scripts, too.
#[cfg(target_arch = "aarch64")]
const TRIPLE: &str = "aarch64-unknown-linux-gnu";
#[cfg(not(target_arch = "aarch64"))]
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// Seconds a target runs unless told otherwise.
const SECONDS: u32 = 60;
/// Most memory of a target; what takes more has found something.
const MEMORY_MIB: u32 = 4096;

/// Runs the targets named in `words` (all, if none is), each for `--seconds`. False if one found
/// something; true, and a word about it, where there is no nightly compiler.
pub fn run(root: &Path, words: &[String]) -> bool {
    let (seconds, wanted) = match read(words) {
        Ok(read) => read,
        Err(sentence) => {
            println!("fuzz: {sentence}");
            return false;
        }
    };
    let nightly = Command::new("rustc").args(["+nightly", "--version"]).output();
    if !nightly.is_ok_and(|output| output.status.success()) {
        println!("SKIPPED fuzz: there is no nightly compiler: rustup toolchain install nightly");
        return true;
    }
    let targets = match targets(root, &wanted) {
        Ok(targets) => targets,
        Err(sentence) => {
            println!("fuzz: {sentence}");
            return false;
        }
    };
    let runner = Runner::new(root);
    if !runner.cargo(&["run", "--quiet", "--package", "steadfast-format", "--example", "fuzz_seeds"]) {
        return false;
    }
    let built = runner.target().join("fuzz");
    let mut build = Command::new("cargo");
    build.args(["+nightly", "build", "--release", "--target", TRIPLE, "--manifest-path"]);
    build.arg(root.join("fuzz/Cargo.toml")).arg("--target-dir").arg(&built).env("RUSTFLAGS", FLAGS);
    targets.iter().for_each(|target| _ = build.args(["--bin", target]));
    if !build.status().is_ok_and(|status| status.success()) {
        return false;
    }
    let mut found = Vec::new();
    for target in &targets {
        let (corpus, artifacts) =
            (root.join("fuzz/corpus").join(target), root.join("fuzz/artifacts").join(target));
        if let Err(error) = [&corpus, &artifacts].into_iter().try_for_each(std::fs::create_dir_all) {
            println!("fuzz: {}: {error}", corpus.display());
            return false;
        }
        println!("=== {target}: {seconds} s");
        let status = Command::new(built.join(TRIPLE).join("release").join(target))
            .arg(format!("-max_total_time={seconds}"))
            .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
            .args(["-print_final_stats=1", "-verbosity=1", "-timeout=60"])
            .arg(format!("-artifact_prefix={}/", artifacts.display()))
            .arg(&corpus)
            .status();
        if !status.is_ok_and(|status| status.success()) {
            found.push(target.clone());
        }
    }
    println!("fuzz: {} of {} targets found something {found:?}", found.len(), targets.len());
    found.is_empty()
}

fn read(words: &[String]) -> Result<(u32, Vec<String>), String> {
    let (mut seconds, mut wanted) = (SECONDS, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "--seconds" {
            let value = words.next().and_then(|value| value.parse().ok()).filter(|value| *value > 0);
            seconds = value.ok_or("--seconds needs a whole number above 0")?;
        } else {
            wanted.push(word.clone());
        }
    }
    Ok((seconds, wanted))
}

/// The targets there are, or those of them that are wanted.
fn targets(root: &Path, wanted: &[String]) -> Result<Vec<String>, String> {
    let folder = root.join("fuzz/fuzz_targets");
    let entries = std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let name = |entry: std::fs::DirEntry| Some(entry.path().file_stem()?.to_str()?.to_owned());
    let mut all: Vec<String> = entries.filter_map(|entry| name(entry.ok()?)).collect();
    all.sort();
    match wanted.iter().find(|wanted| !all.contains(wanted)) {
        Some(unknown) => Err(format!("there is no target `{unknown}`: {}", all.join(", "))),
        None if wanted.is_empty() => Ok(all),
        None => Ok(wanted.to_vec()),
    }
}
