//! `cargo xtask deb`: two Debian packages, made by dpkg-deb(1) alone.
//!
//! - `steadfast`: the program, its manual, completions, the mount helpers, units, hooks.
//! - `steadfast-zfs`: the words `zpool` and `zfs`. It cannot stand beside zfsutils-linux, which owns
//!   them; the program can.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::check::Runner;

/// Completion scripts: the shell, the folder in which it looks, and what stands before and behind
/// the name of a command.
const SHELLS: &[(&str, &str, &str, &str)] = &[
    ("bash", "usr/share/bash-completion/completions", "", ""),
    ("zsh", "usr/share/zsh/vendor-completions", "_", ""),
    ("fish", "usr/share/fish/vendor_completions.d", "", ".fish"),
];
/// The words of `steadfast-zfs`, and the family of commands that each stands for.
const WORDS: &[(&str, &str)] = &[("zpool", "pool"), ("zfs", "fs")];

/// Settings of the command line.
struct Wish {
    /// A program that is built already.
    program: Option<PathBuf>,
    /// Folder of the packages.
    out: PathBuf,
    /// Compress little: for tests.
    fast: bool,
}

/// Builds the program and packages it. True if both packages were made.
pub fn run(root: &Path, words: &[String]) -> bool {
    let runner = Runner::new(root);
    let made = read(words, &runner.target()).and_then(|wish| make(root, &runner, &wish));
    match made {
        Ok(packages) => {
            packages.iter().for_each(|package| println!("{}", package.display()));
            println!("install them with: apt install {}", shown(&packages));
            true
        }
        Err(sentence) => {
            eprintln!("cargo xtask deb: {sentence}");
            false
        }
    }
}

fn shown(packages: &[PathBuf]) -> String {
    packages.iter().map(|package| package.display().to_string()).collect::<Vec<_>>().join(" ")
}

fn read(words: &[String], target: &Path) -> Result<Wish, String> {
    let mut wish = Wish { program: None, out: target.join("debian"), fast: false };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().map(PathBuf::from).ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--program" => wish.program = Some(value()?),
            "--out" => wish.out = value()?,
            "--fast" => wish.fast = true,
            _ => return Err(format!("invalid option '{word}': use --program FILE, --out DIR or --fast")),
        }
    }
    Ok(wish)
}

fn make(root: &Path, runner: &Runner, wish: &Wish) -> Result<Vec<PathBuf>, String> {
    for (tool, package) in [("dpkg-deb", "dpkg"), ("strip", "binutils"), ("gzip", "gzip")] {
        if Command::new(tool).arg("--version").output().is_err() {
            return Err(format!("{tool} is not installed: type `sudo apt install {package}`"));
        }
    }
    let built = match &wish.program {
        Some(program) => program.clone(),
        // Without the S3 server of the lab.
        None if runner.cargo(&[
            "build",
            "--release",
            "--locked",
            "--package",
            "steadfast",
            "--no-default-features",
        ]) =>
        {
            runner.target().join("release/steadfast")
        }
        None => return Err("the program was not built".to_owned()),
    };
    let stage = wish.out.join("stage");
    if stage.exists() {
        fs::remove_dir_all(&stage).map_err(trouble(&stage))?;
    }
    let tree = Tree { root: stage.join("steadfast") };
    let words = Tree { root: stage.join("steadfast-zfs") };
    let depends = of_program(root, &built, &tree)?;
    of_words(&tree, &words)?;
    let architecture = output("dpkg", &["--print-architecture"])?;
    let version = env!("CARGO_PKG_VERSION");
    let architecture = architecture.trim();
    tree.finish(&Control {
        name: "steadfast",
        version,
        architecture,
        relations: format!(
            "Depends: {depends}\nRecommends: fuse3\nSuggests: steadfast-zfs, bsd-mailx, curl\n"
        ),
        summary: "pools that prove every byte, in user space",
        text: "Keeps files in pools on image files, disks and partitions. Every block is checked\n\
               against a hash that its parent holds, compressed, and encrypted if that is asked for.\n\
               Snapshots, clones, streams, mirrors and raidz; through FUSE.",
        root: Some(root),
    })?;
    words.finish(&Control {
        name: "steadfast-zfs",
        version,
        architecture: "all",
        // The same words for the same tasks, but neither a kernel module nor the format of ZFS.
        relations: format!(
            "Depends: steadfast (= {version})\nProvides: zfsutils\nConflicts: zfsutils, zfsutils-linux, zfs-fuse\n"
        ),
        summary: "the commands zpool and zfs for Steadfast's pools",
        text: "The commands zpool and zfs, with their manual pages and completions. They work on\n\
               pools of Steadfast. They cannot read a pool of ZFS.",
        root: None,
    })?;
    let mut packages = Vec::new();
    for (tree, name, architecture) in [(&tree, "steadfast", architecture), (&words, "steadfast-zfs", "all")] {
        let package = wish.out.join(format!("{name}_{version}_{architecture}.deb"));
        let mut dpkg = Command::new("dpkg-deb");
        dpkg.arg("--root-owner-group").args(if wish.fast { &["-Zgzip", "-z1"][..] } else { &["-Zxz"] });
        done(dpkg.arg("--build").arg(&tree.root).arg(&package))?;
        packages.push(package);
    }
    fs::remove_dir_all(&stage).map_err(trouble(&stage))?;
    Ok(packages)
}

/// Fills the package of the program. Gives the packages that it depends on.
pub(crate) fn of_program(root: &Path, built: &Path, tree: &Tree) -> Result<String, String> {
    // Pages and scripts come from the program, before it is stripped.
    let man = tree.folder("usr/share/man/man8")?;
    let miscellanea = tree.folder("usr/share/man/man7")?;
    say(built, &["man", &man.display().to_string()])?;
    for page in listed(&man)? {
        if page.extension().is_some_and(|section| section == "7") {
            let there = miscellanea.join(page.file_name().unwrap_or_default());
            fs::rename(&page, there).map_err(trouble(&page))?;
        }
    }
    for (shell, folder, before, behind) in SHELLS {
        tree.write(
            &format!("{folder}/{before}steadfast{behind}"),
            &say(built, &["completions", shell])?,
            0o644,
        )?;
    }
    let program = tree.copy(built, "usr/bin/steadfast", 0o755)?;
    done(Command::new("strip").args(["--strip-unneeded", "--remove-section=.comment"]).arg(&program))?;
    for helper in ["mount.steadfast", "mount.fuse.steadfast"] {
        tree.link("../bin/steadfast", &format!("usr/sbin/{helper}"))?;
    }
    tree.link("steadfast", "usr/bin/vdbench")?;
    let packaging = root.join("packaging");
    for unit in listed(&packaging)? {
        let name = unit.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match name {
            "steadfast-user.service" => {
                tree.copy(&unit, "usr/lib/systemd/user/steadfast.service", 0o644)?;
            }
            _ if name.ends_with(".service") || name.ends_with(".timer") => {
                tree.copy(&unit, &format!("usr/lib/systemd/system/{name}"), 0o644)?;
                // A user's own pools are scrubbed and trimmed by the same files.
                if name.contains('@') {
                    tree.copy(&unit, &format!("usr/lib/systemd/user/{name}"), 0o644)?;
                }
            }
            _ => {}
        }
    }
    tree.copy(&packaging.join("events.conf"), "etc/steadfast/events.conf", 0o644)?;
    tree.folder("etc/steadfast/events.d")?;
    for hook in listed(&packaging.join("events.d"))? {
        let name = hook.file_name().unwrap_or_default().to_string_lossy().into_owned();
        tree.copy(&hook, &format!("usr/share/steadfast/events.d/{name}"), 0o755)?;
    }
    for page in listed(&root.join("docs/operations"))? {
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        tree.copy(&page, &format!("usr/share/doc/steadfast/operations/{name}"), 0o644)?;
    }
    depends(&fs::read(&program).map_err(trouble(&program))?)
}

/// Fills the package of the words: links to what the other one has.
pub(crate) fn of_words(program: &Tree, words: &Tree) -> Result<(), String> {
    let pages = listed(&program.root.join("usr/share/man/man8"))?;
    let names = |page: &Path| page.file_name().unwrap_or_default().to_string_lossy().into_owned();
    words.link("../bin/steadfast", "usr/sbin/mount.zfs")?;
    for (word, family) in WORDS {
        words.link("../bin/steadfast", &format!("usr/sbin/{word}"))?;
        for (_, folder, before, behind) in SHELLS {
            let script = format!("{before}steadfast{behind}");
            words.link(&script, &format!("{folder}/{before}{word}{behind}"))?;
        }
        for page in pages.iter().map(|page| names(page)) {
            let Some(rest) = page.strip_prefix(&format!("steadfast-{family}")) else { continue };
            if rest.starts_with(['-', '.']) {
                let text = format!(".so man8/{page}\n");
                words.write(&format!("usr/share/man/man8/{word}{rest}"), text.as_bytes(), 0o644)?;
            }
        }
    }
    Ok(())
}

/// The fields of a package.
struct Control<'a> {
    name: &'a str,
    version: &'a str,
    architecture: &'a str,
    relations: String,
    summary: &'a str,
    text: &'a str,
    /// The tree with the maintainer scripts, for the package that has some.
    root: Option<&'a Path>,
}

/// The files of a package.
pub(crate) struct Tree {
    pub root: PathBuf,
}

impl Tree {
    fn folder(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.root.join(name);
        fs::create_dir_all(&path).map_err(trouble(&path))?;
        Ok(path)
    }

    fn place(&self, name: &str) -> Result<PathBuf, String> {
        if let Some((folder, _)) = name.rsplit_once('/') {
            self.folder(folder)?;
        }
        Ok(self.root.join(name))
    }

    fn write(&self, name: &str, bytes: &[u8], mode: u32) -> Result<(), String> {
        let path = self.place(name)?;
        fs::write(&path, bytes).map_err(trouble(&path))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(trouble(&path))
    }

    pub fn copy(&self, from: &Path, name: &str, mode: u32) -> Result<PathBuf, String> {
        let path = self.place(name)?;
        fs::copy(from, &path).map_err(trouble(from))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).map_err(trouble(&path))?;
        Ok(path)
    }

    fn link(&self, target: &str, name: &str) -> Result<(), String> {
        let path = self.place(name)?;
        symlink(target, &path).map_err(trouble(&path))
    }

    /// Compresses the manual, and writes what dpkg reads.
    fn finish(&self, control: &Control<'_>) -> Result<(), String> {
        for section in ["usr/share/man/man7", "usr/share/man/man8"] {
            for page in listed(&self.root.join(section)).unwrap_or_default() {
                done(Command::new("gzip").arg("-9n").arg(&page))?;
            }
        }
        let doc = format!("usr/share/doc/{}", control.name);
        if let Some(root) = control.root {
            let debian = root.join("packaging/debian");
            for script in ["postinst", "prerm", "postrm"] {
                self.copy(&debian.join(script), &format!("DEBIAN/{script}"), 0o755)?;
            }
            self.copy(&debian.join("copyright"), &format!("{doc}/copyright"), 0o644)?;
            let etc = self.root.join("etc/steadfast");
            let files = listed(&etc)?.into_iter().filter(|path| path.is_file());
            let names = files.filter_map(|path| path.strip_prefix(&self.root).ok().map(Path::to_owned));
            let conffiles: String = names.map(|name| format!("/{}\n", name.display())).collect();
            self.write("DEBIAN/conffiles", conffiles.as_bytes(), 0o644)?;
        } else {
            self.folder("usr/share/doc")?;
            self.link("steadfast", &doc)?;
        }
        let mut text = String::new();
        let Control { name, version, architecture, relations, summary, text: long, .. } = control;
        let _ = write!(
            text,
            "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nSection: admin\nPriority: optional\n\
             Maintainer: Steadfast maintainers <steadfast@localhost>\nInstalled-Size: {}\n{relations}\
             Description: {summary}\n",
            kib(&self.root)?
        );
        long.lines().for_each(|line| _ = writeln!(text, " {line}"));
        self.write("DEBIAN/control", text.as_bytes(), 0o644)
    }
}

/// KiB of the files below a folder.
fn kib(folder: &Path) -> Result<u64, String> {
    let mut sum = 0;
    for path in listed(folder)? {
        let found = fs::symlink_metadata(&path).map_err(trouble(&path))?;
        sum += if found.is_dir() { kib(&path)? } else { found.len().div_ceil(1024) };
    }
    Ok(sum)
}

/// The packages that hold the libraries of a program: the newest version of glibc that it names.
fn depends(program: &[u8]) -> Result<String, String> {
    let has = |word: &[u8]| program.windows(word.len()).any(|bytes| bytes == word);
    const GLIBC: &[u8] = b"GLIBC_2.";
    let version = program.windows(GLIBC.len() + 2).filter_map(|bytes| {
        let digits = bytes.strip_prefix(GLIBC)?.iter().take_while(|byte| byte.is_ascii_digit());
        digits.map(|byte| char::from(*byte)).collect::<String>().parse::<u32>().ok()
    });
    // A static program names none.
    let Some(version) = version.max() else { return Ok("mount".to_owned()) };
    let mut depends = format!("libc6 (>= 2.{version}), mount");
    if has(b"libgcc_s.so.1") {
        depends.push_str(", libgcc-s1");
    }
    Ok(depends)
}

fn listed(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(trouble(folder))?;
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    Ok(paths)
}

pub(crate) fn trouble(path: &Path) -> impl Fn(io::Error) -> String + '_ {
    move |error| format!("{}: {error}", path.display())
}

pub(crate) fn done(command: &mut Command) -> Result<(), String> {
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!("{command:?} failed: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

fn say(program: &Path, words: &[&str]) -> Result<Vec<u8>, String> {
    match Command::new(program).args(words).output() {
        Ok(output) if output.status.success() => Ok(output.stdout),
        Ok(_) => Err(format!("{} {} failed", program.display(), words.join(" "))),
        Err(error) => Err(format!("{}: {error}", program.display())),
    }
}

fn output(program: &str, words: &[&str]) -> Result<String, String> {
    say(Path::new(program), words).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_depends_on_the_newest_glibc_that_it_names() {
        let program = b"\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0libgcc_s.so.1\0";
        assert_eq!(depends(program).unwrap(), "libc6 (>= 2.34), mount, libgcc-s1");
        assert_eq!(depends(b"\0GLIBC_2.17\0").unwrap(), "libc6 (>= 2.17), mount");
        assert_eq!(depends(b"static").unwrap(), "mount");
    }

    #[test]
    fn options_are_read() {
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let wish = read(&words("--program p --out d --fast"), Path::new("t")).unwrap();
        assert!(wish.program == Some("p".into()) && wish.out == Path::new("d") && wish.fast);
        assert!(
            read(&words("--slow"), Path::new("t")).is_err() && read(&words("--out"), Path::new("t")).is_err()
        );
    }
}
