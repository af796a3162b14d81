//! The suites: what each is, what it needs, how long it may take.

/// Which command runs a suite.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Does every call what it should?
    Conformance,
    /// Does it still, under load?
    Stress,
}

impl Kind {
    /// The word on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Conformance => "conformance",
            Kind::Stress => "stress",
        }
    }
}

/// A suite.
#[derive(Clone, Copy, Debug)]
pub struct Suite {
    /// Its name.
    pub name: &'static str,
    /// Which command runs it.
    pub kind: Kind,
    /// One line for `list`.
    pub about: &'static str,
    /// Programs without which it is skipped.
    pub needs: &'static [&'static str],
    /// It changes users.
    pub root: bool,
    /// It has no short form.
    pub long_only: bool,
    /// Bytes of the pool's image, sparse.
    pub image: u64,
    /// Most seconds of the short and of the long form; a suite that takes longer failed.
    pub limit_s: (u64, u64),
    /// Script for bash. It finds `W` (a fresh directory on the mount), `S` (scratch beside it),
    /// `SF` (the program), `LONG` (0 or 1), `SEED`.
    pub script: &'static str,
}

const GIB: u64 = 1 << 30;

/// Functions for scripts: `case_ NAME <<'END'` runs the lines up to END in a shell of its own that
/// stops at the first failure, and says PASS or FAIL.
pub const PRELUDE: &str = include_str!("../suites/prelude.sh");

/// Makes a tree with everything a copy can lose; scripts find it as `REFERENCE_TREE`.
pub const REFERENCE_TREE: &str = include_str!("../suites/reference-tree.py");

/// Driver of the sqlite suite; its script finds it as `SQLITE_DRIVER`.
pub const SQLITE_DRIVER: &str = include_str!("../suites/sqlite.py");

/// All suites.
pub const ALL: &[Suite] = &[
    Suite {
        name: "pjdfstest",
        kind: Kind::Conformance,
        about: "the crate pjdfstest: some 400 cases of names, modes, owners and times",
        needs: &["pjdfstest"],
        root: true,
        long_only: false,
        image: GIB,
        limit_s: (600, 600),
        script: include_str!("../suites/pjdfstest.sh"),
    },
    Suite {
        name: "fsx",
        kind: Kind::Conformance,
        about: "the crate fsx: one file under random operations, every byte compared (10 million with --long)",
        needs: &["fsx"],
        root: false,
        long_only: false,
        image: GIB,
        limit_s: (600, 14_400),
        script: include_str!("../suites/fsx.sh"),
    },
    Suite {
        name: "fio",
        kind: Kind::Conformance,
        about: "fio writes and verifies: unaligned, mapped, direct, and once more after a new import",
        needs: &["fio"],
        root: false,
        long_only: false,
        // Seven files of 512 MiB in the long form.
        image: 8 * GIB,
        limit_s: (600, 1_800),
        script: include_str!("../suites/fio.sh"),
    },
    Suite {
        name: "git",
        kind: Kind::Conformance,
        about: "a history, gc, fsck --full --strict, clones with and without links, a worktree",
        needs: &["git"],
        root: false,
        long_only: false,
        image: 2 * GIB,
        limit_s: (600, 1_800),
        script: include_str!("../suites/git.sh"),
    },
    Suite {
        name: "rsync",
        kind: Kind::Conformance,
        about: "rsync -aHAXS to the mount and back: no difference",
        needs: &["rsync", "python3"],
        root: false,
        long_only: false,
        image: 2 * GIB,
        limit_s: (600, 1_800),
        script: include_str!("../suites/rsync.sh"),
    },
    Suite {
        name: "tar",
        kind: Kind::Conformance,
        about: "tar with links, holes, ACLs and attributes: unpacked, compared, packed again",
        needs: &["tar", "python3"],
        root: false,
        long_only: false,
        image: 2 * GIB,
        limit_s: (600, 1_800),
        script: include_str!("../suites/tar.sh"),
    },
    Suite {
        name: "acl",
        kind: Kind::Conformance,
        about: "access lists by setfacl: named users and groups, mask, default lists, copies",
        needs: &["setfacl", "setpriv", "tar"],
        root: true,
        long_only: false,
        image: GIB,
        limit_s: (600, 600),
        script: include_str!("../suites/acl.sh"),
    },
    Suite {
        name: "build",
        kind: Kind::Conformance,
        about: "a C project with make -j; a kernel with --long",
        needs: &["make", "cc"],
        root: false,
        long_only: false,
        image: 8 * GIB,
        limit_s: (600, 7_200),
        script: include_str!("../suites/build.sh"),
    },
    Suite {
        name: "sqlite",
        kind: Kind::Conformance,
        about: "SQLite in each journal mode: load, killed writer, integrity_check",
        needs: &["python3"],
        root: false,
        long_only: false,
        image: 2 * GIB,
        limit_s: (600, 7_200),
        script: include_str!("../suites/sqlite.sh"),
    },
    Suite {
        name: "postgres",
        kind: Kind::Conformance,
        about: "PostgreSQL: initdb, pgbench, immediate stop, restart, balances, pg_checksums",
        needs: &["setpriv"],
        root: true,
        long_only: false,
        image: 4 * GIB,
        limit_s: (600, 3_600),
        script: include_str!("../suites/postgres.sh"),
    },
    Suite {
        name: "fsstress",
        kind: Kind::Stress,
        about: "our own: processes with random operations on one tree, every word of every file known",
        needs: &[],
        root: false,
        long_only: false,
        image: 16 * GIB,
        limit_s: (600, 7_200),
        script: include_str!("../suites/fsstress.sh"),
    },
    Suite {
        name: "stress-ng",
        kind: Kind::Stress,
        about: "stress-ng --class filesystem --verify, one stressor after the other",
        needs: &["stress-ng"],
        root: false,
        long_only: false,
        image: 8 * GIB,
        limit_s: (900, 7_200),
        script: include_str!("../suites/stress-ng.sh"),
    },
    Suite {
        name: "kill",
        kind: Kind::Stress,
        about: "the daemon is killed under fsstress, again and again: what was synced is there, the checker finds nothing",
        needs: &[],
        root: false,
        long_only: false,
        image: 4 * GIB,
        limit_s: (600, 7_200),
        script: include_str!("../suites/kill.sh"),
    },
];
