//! `cargo xtask conformance` and `cargo xtask stress`: gets the suites, builds the program, runs
//! `steadfast lab` with the rest of the words.

use std::path::Path;

use crate::check::{GUEST, PJDFSTEST, Runner};

const FSX: (&str, &str) = ("fsx", "0.3.2");

/// Packages that the suites need: (a file that shows whether it is installed, Debian package).
const PACKAGES: &[(&str, &str)] = &[
    ("/usr/bin/cc", "gcc"),
    ("/usr/bin/make", "make"),
    ("/usr/bin/python3", "python3"),
    ("/usr/bin/setfacl", "acl"),
    ("/usr/bin/rsync", "rsync"),
    ("/usr/bin/git", "git"),
    ("/usr/bin/fio", "fio"),
    ("/usr/bin/stress-ng", "stress-ng"),
    ("/usr/bin/sqlite3", "sqlite3"),
    ("/usr/lib/postgresql", "postgresql"),
];

/// Packages that building a kernel needs, for `--long`.
const KERNEL: &[(&str, &str)] = &[
    ("/usr/bin/flex", "flex"),
    ("/usr/bin/bison", "bison"),
    ("/usr/bin/bc", "bc"),
    ("/usr/bin/xz", "xz-utils"),
    ("/usr/include/libelf.h", "libelf-dev"),
    ("/usr/include/openssl/ssl.h", "libssl-dev"),
    ("/usr/share/doc/linux-source", "linux-source"),
];

/// Runs `steadfast lab KIND WORDS`. `--install` gets what apt has; `--release` measures an
/// optimised build. True if all passed.
pub fn run(root: &Path, kind: &str, words: &[String]) -> bool {
    let runner = Runner::new(root);
    let asked = |word: &str| words.iter().any(|given| given == word);
    let mut packages = PACKAGES.to_vec();
    for (word, more) in [("--long", KERNEL), ("--guest", GUEST)] {
        if asked(word) {
            packages.extend(more);
        }
    }
    runner.packages(&packages, asked("--install"));
    runner.tool(PJDFSTEST);
    runner.tool(FSX);
    let release = asked("--release");
    let mut build = vec!["build", "--quiet", "--package", "steadfast"];
    if release {
        build.push("--release");
    }
    if !runner.cargo(&build) {
        return false;
    }
    let program = runner.target().join(if release { "release" } else { "debug" }).join("steadfast");
    let rest = words.iter().filter(|word| !matches!(word.as_str(), "--install" | "--release"));
    runner.command(&program).args(["lab", kind]).args(rest).status().is_ok_and(|status| status.success())
}
