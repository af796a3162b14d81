//! Programs that others wrote for ZFS, unchanged, against our `zpool` and `zfs`.
//!
//! [`PROGRAMS`] is the list: each has one version, and the hash of what is installed. The page
//! docs/operations/programs.md is written from it, and each program has a test here of its name.
//! Those from Debian and PyPI run with every check; the others with `STEADFAST_LONG=1`, and by
//! `cargo xtask clients`. A program that cannot be installed here is skipped, with the reason.

mod compiled;
mod debian;
mod install;
mod python;

use std::fmt::Write;
use std::path::Path;

/// A registry, and what tells that we got from it what was tried.
#[derive(Clone, Copy, Debug)]
enum From {
    /// A package of Debian 12: part of the archive, SHA-256 of the file.
    Debian { part: &'static str, sha256: &'static str },
    /// Wheels of PyPI: `name==version` and SHA-256 of each, the program's own first.
    PyPi(&'static [(&'static str, &'static str)]),
    /// PyPI without hashes of the some ten packages that it needs.
    PyPiTree,
    /// SHA-256 of the package of crates.io.
    Crates { sha256: &'static str },
    /// Sum of a Go module.
    Go { module: &'static str, sum: &'static str },
    /// A Go module that the proxy may refuse to serve.
    GoUnsummed { module: &'static str },
}

impl From {
    fn registry(self) -> &'static str {
        match self {
            From::Debian { .. } => "Debian 12",
            From::PyPi(_) | From::PyPiTree => "PyPI",
            From::Crates { .. } => "crates.io",
            From::Go { .. } | From::GoUnsummed { .. } => "Go modules",
        }
    }
}

/// One program.
#[derive(Debug)]
struct Client {
    name: &'static str,
    version: &'static str,
    from: From,
    /// Runs with every check.
    always: bool,
    /// Its use in the test.
    done: &'static str,
    /// How it ends, as the test asserts it.
    result: &'static str,
}

const WORKS: &str = "works";

/// All programs, by name.
const PROGRAMS: &[Client] = &[
    Client {
        name: "Ansible",
        version: "10.7.0",
        from: From::PyPiTree,
        always: false,
        done: "`zfs`: a file system with properties, a snapshot, a clone, a volume; the same again \
               changes nothing; all removed. `zfs_facts`, `zpool_facts`, `zfs_delegate_admin`",
        result: WORKS,
    },
    Client {
        name: "bzfs",
        version: "1.25.0",
        from: From::PyPi(&[(
            "bzfs==1.25.0",
            "558a47b241247e49d041279ea21c739aa85d033c50fb5c47f359711af0de9c8d",
        )]),
        always: true,
        done: "replicates a tree into another pool, in full and then the changes",
        result: WORKS,
    },
    Client {
        name: "check_zpool_scrub",
        version: "3.0.0a2",
        from: From::PyPi(&[
            (
                "check-zpool-scrub==3.0.0a2",
                "09cbe5483bfa1e789eaba9cd28f8291a771bd390f266355e35f686c5dc507190",
            ),
            ("mplugin==2.0.0", "e550898316828cd1b763e4c424579376d511e32a4dd290315a3bc12a3f21b750"),
            ("typing_extensions==4.16.0", "481caa481374e813c1b176ada14e97f1f67a4539ce9cfeb3f350d78d6370c2e8"),
        ]),
        always: true,
        done: "reads when the last scrub ended",
        result: WORKS,
    },
    Client {
        name: "go-zfs",
        version: "3.1.0",
        from: From::Go {
            module: "github.com/mistifyio/go-zfs/v3",
            sum: "h1:FZaylcg0hjUp27i23VcJJQiuBeAZjrC8lPqCGM1CopY=",
        },
        always: false,
        done: "its own tests, which make and destroy a pool `test` each",
        result: WORKS,
    },
    Client {
        name: "httm",
        version: "0.51.1",
        from: From::Crates { sha256: "bc6669d4643356aef01358421753ed7691e4c1d319300c1d2f1e72e44c74ef77" },
        always: false,
        done: "looks for versions of a file in snapshots",
        result: "does not work: it looks for mounts of the kernel's type `zfs`, and a FUSE mount has the \
                 type `fuse.steadfast`",
    },
    Client {
        name: "pyznap",
        version: "1.6.0",
        from: From::PyPi(&[(
            "pyznap==1.6.0",
            "d4d28cc0f7b8555e29b09d2c1b85f0c21e898584ba2926aaf7d7e990206ede65",
        )]),
        always: true,
        done: "takes snapshots by a policy, removes what is too much, sends to another pool",
        result: WORKS,
    },
    Client {
        name: "sanoid",
        version: "2.1.0-1.1",
        from: SANOID,
        always: true,
        done: "takes and prunes snapshots by a policy; monitors snapshots, health and capacity",
        result: WORKS,
    },
    Client {
        name: "syncoid",
        version: "2.1.0-1.1",
        from: SANOID,
        always: true,
        done: "replicates a tree, then the changes; goes on where a stream was cut off",
        result: WORKS,
    },
    Client {
        name: "zfs-auto-snapshot",
        version: "1.2.4-2",
        from: From::Debian {
            part: "contrib",
            sha256: "775da7e3d2a0fa118ade18539aa445bf00a563bb2a3b5928a44ff5d862147a9d",
        },
        always: true,
        done: "takes snapshots of a tree and of all pools, keeps the newest of each label",
        result: WORKS,
    },
    Client {
        name: "zfs-autobackup",
        version: "3.3",
        from: From::PyPi(&[
            ("zfs-autobackup==3.3", "1a23a70514873a5d4d627f297d00266b3ef2c054d1a1c7461b72634e5b71d0de"),
            ("colorama==0.4.6", "4f1d9991f5acc0ca119f9d443620b77f9d6b33703e51011c16baf57afb285fc6"),
        ]),
        always: true,
        done: "backs up what a property selects into another pool, in full and then the changes",
        result: WORKS,
    },
    Client {
        name: "zfs_exporter",
        version: "2.3.11",
        from: From::GoUnsummed { module: "github.com/pdf/zfs_exporter/v2" },
        always: false,
        done: "answers Prometheus with the figures of pools, file systems, volumes and snapshots",
        result: WORKS,
    },
    Client {
        name: "zrepl",
        version: "0.7.0",
        from: From::GoUnsummed { module: "github.com/zrepl/zrepl/internal/platformtest/harness" },
        always: false,
        done: "its platform test, a program of 55 cases on a pool of its own",
        result: "52 cases pass, and one skips itself. Two fail: one decodes tokens that ZFS has made, and \
                 one counts how much a receive keeps that broke off, which is up to 512 KiB less here",
    },
];

const SANOID: From =
    From::Debian { part: "main", sha256: "68525ac96832e03f76a6c5ca99812654bb0f96b2c00e94fe764f34ab64b1ae3f" };

/// The program of this name in [`PROGRAMS`].
fn of(name: &str) -> &'static Client {
    PROGRAMS.iter().find(|client| client.name == name).expect("a program of the list")
}

/// The page that lists all.
fn page() -> String {
    let mut text = "# Programs that work\n\n\
         Programs that others wrote for ZFS run unchanged on `zpool` and `zfs` of Steadfast. `cargo xtask clients`\n\
         installs each in the version named, from its own registry, and runs it on pools of image files. A check of\n\
         each commit runs those marked with a star. This page is written by\n\
         `UPDATE=1 cargo test -p steadfast-tests --test main clients::`; the same tests compare it with what they run.\n\n\
         | Program | Version | From | Use | Result |\n|---|---|---|---|---|\n"
        .to_owned();
    for Client { name, version, from, always, done, result } in PROGRAMS {
        let star = if *always { " *" } else { "" };
        let registry = from.registry();
        let _ = writeln!(text, "| {name}{star} | {version} | {registry} | {done} | {result} |");
    }
    text.push_str(
        "\nWhere this is tested, no registry serves the modules of zfs_exporter and zrepl: their tests ran with\n\
         programs compiled by hand from the tags of these versions, and say SKIPPED elsewhere. All twelve ran as\n\
         this page says on 2026-11-29, those two at commit 549e63f4 and the others at a319b1fc.\n\
         \nPrograms that ask the kernel and not `zfs` do not work: those that look for mounts of the type `zfs`, read\n\
         `/proc/spl`, or use libzfs or libzfs_core. What is left out: [left-out.md](left-out.md).\n",
    );
    text
}

#[test]
fn the_page_lists_each_program() {
    assert!(PROGRAMS.windows(2).all(|pair| pair[0].name.to_lowercase() < pair[1].name.to_lowercase()));
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/operations/programs.md");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, page()).expect("written");
    }
    let is_same = std::fs::read_to_string(&path).is_ok_and(|written| written == page());
    assert!(
        is_same,
        "docs/operations/programs.md is old: run `UPDATE=1 cargo test -p steadfast-tests --test main clients::`"
    );
}
