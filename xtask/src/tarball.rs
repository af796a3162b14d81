//! `cargo xtask tarball`: the program without libraries, for any Linux of its architecture, with its
//! manual, completions, units and the words `zpool` and `zfs`, as one archive.
//!
//! It is linked with musl, which needs the compiler's target and `musl-gcc` for the parts in C.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::check::Runner;
use crate::deb::{Tree, done, of_program, of_words, trouble};

/// Builds the program and packs it. True if the archive was made.
pub fn run(root: &Path, words: &[String]) -> bool {
    let runner = Runner::new(root);
    match read(words, &runner.target()).and_then(|wish| make(root, &runner, &wish)) {
        Ok(archive) => {
            println!("{}", archive.display());
            println!("install it with: tar -xzf {} -C / --strip-components=1", archive.display());
            true
        }
        Err(sentence) => {
            eprintln!("cargo xtask tarball: {sentence}");
            false
        }
    }
}

/// Settings of the command line.
struct Wish {
    /// A program that is built already.
    program: Option<PathBuf>,
    /// Folder of the archive.
    out: PathBuf,
}

fn read(words: &[String], target: &Path) -> Result<Wish, String> {
    let mut wish = Wish { program: None, out: target.join("tarball") };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().map(PathBuf::from).ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--program" => wish.program = Some(value()?),
            "--out" => wish.out = value()?,
            _ => return Err(format!("invalid option '{word}': use --program FILE or --out DIR")),
        }
    }
    Ok(wish)
}

fn make(root: &Path, runner: &Runner, wish: &Wish) -> Result<PathBuf, String> {
    let architecture = std::env::consts::ARCH;
    let target = format!("{architecture}-unknown-linux-musl");
    let built = match &wish.program {
        Some(program) => program.clone(),
        None => {
            if Command::new("musl-gcc").arg("--version").output().is_err() {
                return Err("musl-gcc is not installed: type `sudo apt install musl-tools`".to_owned());
            }
            // Without the S3 server of the lab.
            let package = ["--package", "steadfast", "--no-default-features"];
            let build = [&["build", "--release", "--locked"][..], &package, &["--target", &target]].concat();
            if !runner.cargo(&build) {
                return Err(format!(
                    "the program was not built; if the target is missing, type `rustup target add {target}`"
                ));
            }
            runner.target().join(&target).join("release/steadfast")
        }
    };
    let bytes = fs::read(&built).map_err(trouble(&built))?;
    if let Some(interpreter) = interpreter(&bytes).map_err(|why| format!("{}: {why}", built.display()))? {
        return Err(format!("{} is not static: it is loaded by {interpreter}", built.display()));
    }
    let name = format!("steadfast-{}-{architecture}-static", env!("CARGO_PKG_VERSION"));
    let stage = wish.out.join("stage");
    if stage.exists() {
        fs::remove_dir_all(&stage).map_err(trouble(&stage))?;
    }
    let tree = Tree { root: stage.join(&name) };
    of_program(root, &built, &tree)?;
    of_words(&tree, &tree)?;
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        tree.copy(&root.join(licence), &format!("usr/share/doc/steadfast/{licence}"), 0o644)?;
    }
    let archive = wish.out.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "--sort=name", "-czf"]).arg(&archive).arg("-C").arg(&stage);
    done(tar.arg(&name))?;
    fs::remove_dir_all(&stage).map_err(trouble(&stage))?;
    Ok(archive)
}

/// The dynamic linker that a program names, which a static one does not. From the program headers
/// of a 64-bit ELF file (elf(5)).
fn interpreter(program: &[u8]) -> Result<Option<String>, &'static str> {
    const PT_INTERP: u64 = 3;
    let cut = "is no 64-bit ELF file, or cut short";
    let number = |at: usize, bytes: usize| -> Result<u64, &'static str> {
        let field = program.get(at..at.saturating_add(bytes)).ok_or(cut)?;
        Ok(field.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let index = |number: u64| usize::try_from(number).map_err(|_| cut);
    // Little-endian, 64 bits.
    if !program.starts_with(b"\x7fELF\x02\x01") {
        return Err(cut);
    }
    let (headers, size, count) = (index(number(32, 8)?)?, index(number(54, 2)?)?, index(number(56, 2)?)?);
    for header in (0..count).map(|at| headers.saturating_add(at * size)) {
        if number(header, 4)? == PT_INTERP {
            let (from, length) = (index(number(header + 8, 8)?)?, index(number(header + 32, 8)?)?);
            let name = program.get(from..from.saturating_add(length)).ok_or(cut)?;
            return Ok(Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_a_linker_is_told_from_a_static_one() {
        // The program of this test itself, of whatever kind, against what file(1) would say.
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let found = interpreter(&own).unwrap();
        assert_eq!(found.is_some(), cfg!(not(target_feature = "crt-static")), "{found:?}");
        assert!(found.is_none_or(|name| name.contains("/ld")));
        for cut in [&own[..40], b"#!/bin/sh\n", &[]] {
            assert!(interpreter(cut).is_err());
        }
        // The same without the header that names the linker.
        let headers = u64::from_le_bytes(own[32..40].try_into().unwrap()) as usize;
        let mut own = own;
        for at in 0..usize::from(own[56]) {
            let kind = &mut own[headers + 56 * at];
            *kind = if *kind == 3 { 0 } else { *kind };
        }
        assert_eq!(interpreter(&own), Ok(None));
    }

    #[test]
    fn options_are_read() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let wish = read(&words("--program p --out d"), Path::new("t")).unwrap();
        assert!(wish.program == Some("p".into()) && wish.out == Path::new("d"));
        assert!(read(&words("--fast"), Path::new("t")).is_err());
        assert!(read(&words("--out"), Path::new("t")).is_err());
    }
}
