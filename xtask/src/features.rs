//! Tests of one crate are built from the packages that the tests of all are built from.
//!
//! Cargo gives a package the features that the crates it is asked to build want together. A crate
//! whose tests want one feature less makes cargo build that package again, and each package above
//! it: minutes for `cargo test -p` of a crate that is built already. The crate `tests/features`
//! wants what all want; this check finds what it lacks.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Builds that people make beside `cargo test --workspace`: the tests of a crate of the engine, of
/// one above it, of one above the network, the tests in `tests/`, and the program.
const BUILDS: &[&[&str]] = &[
    &["-p", "steadfast-tree", "-e", "normal,dev,no-proc-macro"],
    &["-p", "steadfast-pool", "-e", "normal,dev,no-proc-macro"],
    &["-p", "steadfast-bucket", "-e", "normal,dev,no-proc-macro"],
    &["-p", "steadfast-control", "-e", "normal,dev,no-proc-macro"],
    &["-p", "steadfast-tests", "-e", "normal,dev,no-proc-macro"],
    &["-p", "steadfast", "-e", "normal,no-proc-macro"],
];
/// Without what macros and build scripts are built of: theirs would hide that a package lacks a
/// feature, as most are built for both.
const ALL: &[&str] = &["--workspace", "-e", "normal,dev,no-proc-macro"];

/// Lists of features of each package: one, or two where macros are built with others.
type Features = BTreeMap<String, BTreeSet<String>>;

/// All findings, one line each.
pub fn check(root: &Path) -> Vec<String> {
    let tree = |words: &[&str]| -> Result<Features, String> {
        let mut command = Command::new("cargo");
        command.args(["tree", "--locked", "--prefix", "none", "-f", "{p}|{f}"]).args(words).current_dir(root);
        let output = command.output().map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
        }
        Ok(read(&String::from_utf8_lossy(&output.stdout)))
    };
    let compare = || -> Result<Vec<String>, String> {
        let all = tree(ALL)?;
        let mut findings = Vec::new();
        for words in BUILDS {
            findings.extend(differences(words[1], &tree(words)?, &all));
        }
        Ok(findings)
    };
    compare().unwrap_or_else(|error| vec![format!("cargo tree: {error}")])
}

/// Reads lines such as `memchr v2.8.3|alloc,std (*)`. Packages of the workspace are left out.
fn read(told: &str) -> Features {
    let mut features = Features::new();
    for line in told.lines() {
        let line = line.trim_end().trim_end_matches(" (*)");
        if let Some((package, list)) = line.split_once('|')
            && !package.contains("(/")
        {
            let package = package.trim_end_matches(" (proc-macro)").to_owned();
            features.entry(package).or_default().insert(list.to_owned());
        }
    }
    features
}

fn differences(build: &str, one: &Features, all: &Features) -> Vec<String> {
    let none = BTreeSet::new();
    let mut findings = Vec::new();
    for (package, lists) in one {
        let wanted = all.get(package).unwrap_or(&none);
        for list in lists.difference(wanted) {
            let wanted = wanted.iter().map(|list| format!("[{list}]")).collect::<Vec<_>>().join(" or ");
            findings.push(format!(
                "{build}: {package} is built with [{list}], and for all tests with {wanted}: want the same in tests/features/Cargo.toml"
            ));
        }
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_that_only_all_tests_want_is_found() {
        let all = "steadfast-pool v0.1.0 (/here/crates/pool)|\nmemchr v2.8.3|alloc,default,std\nsyn v3.0.9|full (*)\nsyn v3.0.9|\n";
        let all = read(all);
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(
            differences("steadfast-pool", &read("syn v3.0.9|full\nmemchr v2.8.3|alloc,default,std"), &all)
                .len(),
            0
        );
        let found = differences("steadfast-pool", &read("memchr v2.8.3|alloc,std\nsyn v3.0.9|"), &all);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains(
                "memchr v2.8.3 is built with [alloc,std], and for all tests with [alloc,default,std]"
            ),
            "{found:?}"
        );
    }
}
