//! `cargo xtask deb`: a Debian package of the program, its manual, its completions, the mount
//! helper and the unit.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

use crate::check::{CARGO_DEB, Runner};

/// Completion scripts: the shell, and the name of the file it looks for.
const SHELLS: &[(&str, &str)] =
    &[("bash", "steadfast.bash"), ("zsh", "_steadfast"), ("fish", "steadfast.fish")];

/// Builds the program and gathers what goes beside it in `target/release/package`, then calls
/// cargo-deb with the recipe of `crates/cli/Cargo.toml`. True if a package was made.
pub fn run(root: &Path) -> bool {
    let runner = Runner::new(root);
    if !runner.cargo(&["build", "--release", "--package", "steadfast"]) {
        return false;
    }
    if let Err(error) = gather(&runner.target().join("release")) {
        println!("deb: {error}");
        return false;
    }
    runner.tool(CARGO_DEB);
    let made = runner.cargo(&["deb", "--package", "steadfast", "--no-build", "--no-strip"]);
    if !made {
        println!("deb: cargo-deb made no package");
    }
    made
}

/// Writes the files that the program generates to the place where the recipe expects them.
fn gather(release: &Path) -> Result<(), String> {
    let package = release.join("package");
    let trouble = |what: &Path, error: std::io::Error| format!("{}: {error}", what.display());
    if package.exists() {
        fs::remove_dir_all(&package).map_err(|error| trouble(&package, error))?;
    }
    fs::create_dir_all(package.join("sbin")).map_err(|error| trouble(&package, error))?;
    let program = release.join("steadfast");
    let say = |words: &[&str]| {
        let output = Command::new(&program).args(words).output().map_err(|error| trouble(&program, error))?;
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(format!("steadfast {} failed", words.join(" ")))
        }
    };
    say(&["man", &package.join("man").display().to_string()])?;
    for (shell, name) in SHELLS {
        let path = package.join(name);
        fs::write(&path, say(&["completions", shell])?).map_err(|error| trouble(&path, error))?;
    }
    // A link in the package; here it leads to a copy of nothing, so that what follows links finds a
    // file.
    fs::create_dir_all(package.join("bin")).map_err(|error| trouble(&package, error))?;
    let stand_in = package.join("bin/steadfast");
    fs::write(&stand_in, "").map_err(|error| trouble(&stand_in, error))?;
    // mount(8) calls the first for a line of /etc/fstab, the second to change a mount.
    for helper in ["mount.steadfast", "mount.fuse.steadfast"] {
        let link = package.join("sbin").join(helper);
        symlink("../bin/steadfast", &link).map_err(|error| trouble(&link, error))?;
    }
    Ok(())
}
