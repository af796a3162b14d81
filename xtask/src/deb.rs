//! `cargo xtask deb`: a Debian package of the program, its manual, its completions, the mount helper and the unit.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Completion scripts: the shell, and the name of the file it looks for.
const SHELLS: &[(&str, &str)] =
    &[("bash", "steadfast.bash"), ("zsh", "_steadfast"), ("fish", "steadfast.fish")];

/// Builds the program and gathers what goes beside it in `target/release/package`, then calls cargo-deb with the recipe of
/// `crates/cli/Cargo.toml`. True if a package was made.
pub fn run(root: &Path) -> bool {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let cargo = |args: &[&str]| Command::new("cargo").args(args).current_dir(root).status();
    match cargo(&["build", "--release", "--package", "steadfast"]) {
        Ok(status) if status.success() => {}
        _ => return false,
    }
    if let Err(error) = gather(&target.join("release")) {
        println!("deb: {error}");
        return false;
    }
    match cargo(&["deb", "--package", "steadfast", "--no-build", "--no-strip"]) {
        Ok(status) if status.success() => true,
        Ok(_) => {
            println!("deb: cargo-deb made no package; is it installed? `cargo install cargo-deb`");
            false
        }
        Err(error) => {
            println!("deb: cargo: {error}");
            false
        }
    }
}

/// What the program writes of itself, where the recipe expects it.
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
    // A link in the package; here it leads to a copy of nothing, so that what follows links finds a file.
    fs::create_dir_all(package.join("bin")).map_err(|error| trouble(&package, error))?;
    let stand_in = package.join("bin/steadfast");
    fs::write(&stand_in, "").map_err(|error| trouble(&stand_in, error))?;
    let link = package.join("sbin/mount.steadfast");
    symlink("../bin/steadfast", &link).map_err(|error| trouble(&link, error))
}
