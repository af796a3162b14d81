//! `cargo xtask test`: installs what the tests need and runs all of them, as the server does.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Debian packages the tests use: (a program or header that tells whether it is there, package).
const PACKAGES: &[(&str, &str)] = &[
    ("/usr/bin/cc", "gcc"),
    ("/usr/bin/fusermount3", "fuse3"),
    ("/usr/bin/setfacl", "acl"),
    ("/usr/bin/setfattr", "attr"),
    ("/usr/include/sys/acl.h", "libacl1-dev"),
    ("/usr/bin/rsync", "rsync"),
    ("/usr/bin/git", "git"),
    ("/usr/bin/python3", "python3"),
    ("/usr/bin/perl", "perl"),
    ("/usr/sbin/setcap", "libcap2-bin"),
    ("/usr/bin/sqlite3", "sqlite3"),
    ("/usr/bin/chromium", "chromium"),
    ("/usr/bin/nbdcopy", "libnbd-bin"),
    ("/usr/bin/qemu-img", "qemu-utils"),
    ("/usr/sbin/mkfs.ext4", "e2fsprogs"),
];

/// The other architecture that parity has a kernel for.
const ARM: &str = "aarch64-unknown-linux-gnu";
/// What its unit tests are built and run with elsewhere.
const ARM_PACKAGES: &[(&str, &str)] = &[
    ("/usr/bin/qemu-aarch64", "qemu-user"),
    ("/usr/bin/aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu"),
    ("/usr/aarch64-linux-gnu/include/stdio.h", "libc6-dev-arm64-cross"),
];
const ARM_SETTINGS: [(&str, &str); 2] = [
    ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", "aarch64-linux-gnu-gcc"),
    ("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", "qemu-aarch64 -L /usr/aarch64-linux-gnu"),
];

/// Programs from crates.io: (name, version).
pub const PJDFSTEST: (&str, &str) = ("pjdfstest", "0.2.2");
const CARGO_DENY: (&str, &str) = ("cargo-deny", "0.20.2");
pub const CARGO_DEB: (&str, &str) = ("cargo-deb", "3.8.0");

/// Runs everything; `quick` leaves out what takes long to install, and with `arm` the parity of aarch64 is not only compiled, but run in an
/// emulator. True if all passed.
pub fn run(root: &Path, quick: bool, arm: bool) -> bool {
    let started = Instant::now();
    let runner = Runner::new(root);
    runner.packages(PACKAGES, true);
    runner.tool(PJDFSTEST);
    if !quick {
        runner.tool(CARGO_DENY);
    }
    let mut steps: Vec<(&str, Vec<&str>)> = vec![
        ("format of the code", vec!["fmt", "--all", "--check"]),
        ("lints", vec!["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
        ("house rules", vec!["run", "--quiet", "--package", "xtask", "--", "tidy"]),
    ];
    if runner.has("cargo-deny") {
        steps.push((
            "licences and bans",
            vec!["deny", "--log-level", "error", "check", "licenses", "bans", "sources"],
        ));
    } else {
        println!("SKIPPED licences and bans: cargo-deny is not installed");
    }
    steps.extend(arm_steps(&runner, arm));
    steps.push(("documentation", vec!["doc", "--workspace", "--no-deps", "--quiet"]));
    steps.push(("the program under test", vec!["build", "--package", "steadfast"]));
    steps.push(("tests", vec!["test", "--workspace", "--no-fail-fast"]));
    // Built as the tests are, so that this costs no second build; a release build is some three times as fast.
    // Each commit samples other workloads, and always the same.
    let from = commit(root);
    let mut sim = vec!["run", "--quiet", "--package", "steadfast-sim", "--"];
    sim.extend(["--states", "100000", "--seconds", "240", "--from", &from]);
    steps.push(("the crash explorer", sim));
    let mut failed = Vec::new();
    for (what, args) in &steps {
        let began = Instant::now();
        println!("\n=== {what}: cargo {}", args.join(" "));
        let ok = runner.cargo(args);
        println!("=== {what}: {} in {} s", if ok { "ok" } else { "FAILED" }, began.elapsed().as_secs());
        if !ok {
            failed.push(*what);
        }
    }
    println!(
        "\n{} of {} steps failed {failed:?} in {} s",
        failed.len(),
        steps.len(),
        started.elapsed().as_secs()
    );
    failed.is_empty()
}

/// Kernels of parity for the other architecture: compiled where its standard library is installed, and run if that is wanted.
fn arm_steps(runner: &Runner, run: bool) -> Vec<(&'static str, Vec<&'static str>)> {
    let libraries = Command::new("rustc").args(["--print", "target-libdir", "--target", ARM]).output();
    let folder = libraries.map(|told| String::from_utf8_lossy(&told.stdout).trim().to_owned());
    if !folder.is_ok_and(|folder| !folder.is_empty() && Path::new(&folder).exists()) {
        println!(
            "SKIPPED parity for aarch64: its standard library is not installed: rustup target add {ARM}"
        );
        return Vec::new();
    }
    let check =
        ["clippy", "--target", ARM, "--package", "steadfast-vdev", "--all-targets", "--", "-D", "warnings"];
    let mut steps = vec![("parity for aarch64", check.to_vec())];
    if run {
        runner.packages(ARM_PACKAGES, true);
        match ARM_PACKAGES.iter().find(|(mark, _)| !Path::new(mark).exists()) {
            Some((_, package)) => println!("SKIPPED parity for aarch64, run: {package} is not installed"),
            None => {
                let test = ["test", "--target", ARM, "--package", "steadfast-vdev", "--lib"];
                steps.push(("parity for aarch64, run", test.to_vec()));
            }
        }
    }
    steps
}

/// The commit that is checked out, as a number; 0 where there is none.
fn commit(root: &Path) -> String {
    let git = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).current_dir(root).output();
    let name = git.ok().and_then(|git| String::from_utf8(git.stdout).ok()).unwrap_or_default();
    let name: String = name.chars().filter(char::is_ascii_hexdigit).take(12).collect();
    if name.is_empty() { "0".to_owned() } else { format!("0x{name}") }
}

/// Runs programs with the tools that were installed for this repository on the path.
pub struct Runner {
    root: PathBuf,
    tools: PathBuf,
    path: std::ffi::OsString,
}

impl Runner {
    /// For the tree at `root`.
    pub fn new(root: &Path) -> Runner {
        let tools = root.join("target/tools");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let mut paths = vec![tools.join("bin")];
        paths.extend(std::env::split_paths(&path));
        Runner { root: root.to_path_buf(), tools, path: std::env::join_paths(paths).unwrap_or(path) }
    }

    /// Where cargo builds.
    pub fn target(&self) -> PathBuf {
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| self.root.join("target"), PathBuf::from)
    }

    /// A program, to be given arguments.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("PATH", &self.path);
        command
    }

    /// `cargo` with these words. True if it succeeded.
    pub fn cargo(&self, args: &[&str]) -> bool {
        let mut command = self.command(Path::new("cargo"));
        command
            .args(args)
            .current_dir(&self.root)
            .envs(ARM_SETTINGS)
            .env("RUSTDOCFLAGS", "-D warnings -A rustdoc::private-intra-doc-links");
        command.status().is_ok_and(|status| status.success())
    }

    fn has(&self, program: &str) -> bool {
        std::env::split_paths(&self.path).any(|folder| folder.join(program).exists())
    }

    /// Installs missing packages where that is wanted and possible (root on Debian); says what is missing where not.
    pub fn packages(&self, wanted: &[(&'static str, &'static str)], install: bool) {
        let missing: Vec<&str> = wanted
            .iter()
            .filter(|(mark, _)| !Path::new(mark).exists())
            .map(|(_, package)| *package)
            .collect();
        if missing.is_empty() {
            return;
        }
        let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
        if !install || !root || !self.has("apt-get") {
            println!("some will be skipped; to run them: sudo apt-get install {}", missing.join(" "));
            return;
        }
        println!("installing {}", missing.join(" "));
        for args in [
            vec!["update", "-qq"],
            [vec!["install", "-y", "-qq", "--no-install-recommends"], missing].concat(),
        ] {
            let mut command = Command::new("apt-get");
            command.args(args).env("DEBIAN_FRONTEND", "noninteractive");
            if !command.status().is_ok_and(|status| status.success()) {
                println!("apt-get failed; some tests will be skipped");
                return;
            }
        }
    }

    /// Installs a program from crates.io beside the build.
    pub fn tool(&self, (name, version): (&str, &str)) {
        if !self.has(name) {
            println!("installing {name} {version}");
            let tools = self.tools.display().to_string();
            if !self.cargo(&["install", name, "--version", version, "--locked", "--quiet", "--root", &tools])
            {
                println!("{name} could not be installed; what needs it will be skipped");
            }
        }
    }
}
