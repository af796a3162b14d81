//! `cargo xtask openzfs`: the functional tests of OpenZFS, from a checkout that the caller names, on our
//! words `zpool` and `zfs`. Nothing of the suite is in this repository.
//!
//! Each group runs in a room of its own (`openzfs/room.sh`): namespaces, a root that forgets its changes,
//! three loop devices of 4 GiB, and a daemon. A test that does not pass has a reason: the log tells that it
//! asked for what only OpenZFS's kernel module or its `zdb` has, or that a word was refused which
//! docs/operations/left-out.md names; or `openzfs/reasons.txt` names it. Everything else is ours to mend.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

use crate::check::Runner;

/// Sets up the room and runs the group in it.
const ROOM: &str = include_str!("openzfs/room.sh");

/// Tests whose reason no log tells: `GROUP/TEST CLASS SENTENCE`, where TEST may be `*`.
const REASONS: &str = include_str!("openzfs/reasons.txt");

/// Seconds that a test may take at most, whatever the suite says: one that hangs must not hold up
/// all.
const LIMIT_MAX: u32 = 1800;

/// Packages that the suite needs: (a file that shows whether it is installed, Debian package).
const PACKAGES: &[(&str, &str)] = &[
    ("/usr/bin/ksh", "ksh"),
    ("/usr/bin/cc", "gcc"),
    ("/usr/bin/sudo", "sudo"),
    ("/usr/bin/setfacl", "acl"),
    ("/usr/bin/setfattr", "attr"),
    ("/usr/bin/bc", "bc"),
    ("/usr/bin/cpio", "cpio"),
    ("/usr/bin/fio", "fio"),
    ("/usr/bin/iostat", "sysstat"),
    ("/usr/bin/jq", "jq"),
    ("/usr/bin/pax", "pax"),
    ("/usr/bin/rsync", "rsync"),
    ("/usr/bin/xxh128sum", "xxhash"),
    ("/usr/sbin/parted", "parted"),
    ("/usr/include/libaio.h", "libaio-dev"),
    ("/usr/include/libudev.h", "libudev-dev"),
];

/// Why a test counts neither for us nor against us, or that it does.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Class {
    Passed,
    /// Failed, and no reason is known that is not ours.
    Ours,
    /// Asks the kernel module: its parameters, its statistics, /dev/zfs, device nodes of volumes, libzfs.
    Module,
    /// Asks `zdb`, `zinject`, `zed` or another program of OpenZFS that is neither `zpool` nor `zfs`.
    Program,
    /// Uses what docs/operations/left-out.md names.
    LeftOut,
    /// Differs on purpose, by a decision or by the format.
    Differs,
    /// This machine cannot run it.
    Machine,
    /// The suite itself skipped it.
    Skipped,
}

impl Class {
    const ALL: [Class; 8] = [
        Class::Passed,
        Class::Ours,
        Class::Module,
        Class::Program,
        Class::LeftOut,
        Class::Differs,
        Class::Machine,
        Class::Skipped,
    ];

    fn word(self) -> &'static str {
        match self {
            Class::Passed => "pass",
            Class::Ours => "fail",
            Class::Module => "module",
            Class::Program => "zdb",
            Class::LeftOut => "left out",
            Class::Differs => "differs",
            Class::Machine => "machine",
            Class::Skipped => "skipped",
        }
    }
}

/// Texts in the log of a failed test that tell its class. The first that is found counts.
const SIGNS: &[(&str, Class)] = &[
    (": not here\n", Class::Program),
    ("/sys/module/zfs/", Class::Module),
    ("/sys/module/spl/", Class::Module),
    ("/proc/spl/", Class::Module),
    ("/dev/zfs", Class::Module),
    ("/dev/zvol/", Class::Module),
    ("' is not offered: ", Class::LeftOut),
    (" are not built", Class::LeftOut),
    ("unrecognized command 'freeze'", Class::Differs),
];

/// A group of the suite, as its run files have it.
#[derive(Debug, Default)]
struct Group {
    /// Folder of the scripts, from `tests/zfs-tests/` on.
    folder: String,
    user: String,
    tests: Vec<String>,
    /// Seconds that the suite gives a test of it, if it says so of this group; else 0.
    limit: u32,
}

/// The caller's words.
struct Wish {
    suite: PathBuf,
    out: PathBuf,
    scratch: PathBuf,
    /// The program, if not the one that is built here.
    program: Option<PathBuf>,
    jobs: usize,
    limit: u32,
    /// Runs nothing: the table of what ran before.
    table: bool,
    groups: Vec<String>,
}

impl Wish {
    fn read(words: &[String], root: &Path) -> Result<Wish, String> {
        let mut wish = Wish {
            suite: PathBuf::new(),
            out: root.join("target/openzfs"),
            scratch: PathBuf::from("/var/tmp/steadfast-openzfs"),
            program: None,
            jobs: 2,
            limit: 150,
            table: false,
            groups: Vec::new(),
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let Some(name) = word.strip_prefix("--") else {
                wish.groups.push(word.clone());
                continue;
            };
            if name == "table" {
                wish.table = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} takes a value"))?;
            let number = || value.parse().map_err(|_| format!("{word} {value}: not a number"));
            match name {
                "suite" => wish.suite = PathBuf::from(value),
                "out" => wish.out = PathBuf::from(value),
                "scratch" => wish.scratch = PathBuf::from(value),
                "program" => wish.program = Some(PathBuf::from(value)),
                "jobs" => wish.jobs = number()?,
                "limit" => wish.limit = number()? as u32,
                _ => return Err(format!("{word}: no such option")),
            }
        }
        if !wish.suite.join("tests/zfs-tests/include/libtest.shlib").exists() {
            return Err("--suite DIR names a checkout of OpenZFS, such as of the tag zfs-2.3.9".to_owned());
        }
        wish.suite = wish.suite.canonicalize().map_err(|error| error.to_string())?;
        Ok(wish)
    }
}

/// Runs the groups, or those named (`cli_root/zfs_get`, `cli_root`, `rsend:rsend_001_pos,rsend_002_pos`), and
/// prints one row for each, the failures that are ours, and the sums. True if none is ours.
pub fn run(root: &Path, words: &[String]) -> bool {
    match Wish::read(words, root).and_then(|wish| run_groups(root, &wish)) {
        Ok(ours) => ours == 0,
        Err(sentence) => {
            eprintln!("cargo xtask openzfs: {sentence}");
            false
        }
    }
}

fn run_groups(root: &Path, wish: &Wish) -> Result<usize, String> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    let runner = Runner::new(root);
    if !wish.table {
        runner.packages(PACKAGES, true);
    }
    let program = match &wish.program {
        _ if wish.table => PathBuf::new(),
        Some(program) => program.canonicalize().map_err(|error| failed(program, error))?,
        None if runner.cargo(&["build", "--quiet", "--package", "steadfast"]) => {
            runner.target().join("debug/steadfast")
        }
        None => return Err("the program does not build".to_owned()),
    };
    let tests = wish.suite.join("tests");
    let mut groups = BTreeMap::new();
    for file in ["common.run", "linux.run"] {
        let path = tests.join("runfiles").join(file);
        read_groups(&fs::read_to_string(&path).map_err(|error| failed(&path, error))?, &mut groups);
    }
    let wanted = chosen(groups, &wish.groups);
    if wanted.is_empty() {
        return Err("no group of the suite has this name".to_owned());
    }
    fs::create_dir_all(&wish.out).map_err(|error| failed(&wish.out, error))?;
    let out = wish.out.canonicalize().map_err(|error| failed(&wish.out, error))?;
    let helpers = out.join("helpers");
    if !wish.table {
        compile(&wish.suite, &helpers).map_err(|error| failed(&helpers, error))?;
    }
    let queue = Mutex::new(wanted.iter());
    let rows = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..wish.jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let Some((name, group)) = queue.lock().ok().and_then(|mut queue| queue.next()) else {
                        return;
                    };
                    let folder = out.join(name.replace('/', "_"));
                    let room = Room { name, group, folder: &folder };
                    if !wish.table {
                        let _ = fs::remove_dir_all(&folder);
                        room.run(wish, &tests, &helpers, &program);
                        // A failed test leaves its pool to those behind it: each failure counts by itself.
                        for (test, class) in room.classes() {
                            if class == Class::Ours && group.tests.len() > 1 {
                                let group = group.only(&test);
                                let folder = again(&folder, &test);
                                Room { name, group: &group, folder: &folder }
                                    .run(wish, &tests, &helpers, &program);
                            }
                        }
                    }
                    let results = room.classes();
                    println!("{name}: {}", sums(&results));
                    if let Ok(mut rows) = rows.lock() {
                        rows.insert(name.clone(), results);
                    }
                }
            });
        }
    });
    let rows = rows.into_inner().map_err(|error| error.to_string())?;
    let text = table(&rows);
    print!("\n{text}");
    let path = out.join("table.md");
    fs::write(&path, &text).map_err(|error| failed(&path, error))?;
    Ok(rows.values().flatten().filter(|(_, class)| *class == Class::Ours).count())
}

/// Adds the sections of a run file below `tests/functional`. Two sections of one folder are one group.
fn read_groups(text: &str, groups: &mut BTreeMap<String, Group>) {
    let mut values: HashMap<String, String> = HashMap::new();
    let mut section = String::new();
    let mut key = String::new();
    let mut defaults = HashMap::new();
    let mut end = |section: &str, values: &mut HashMap<String, String>| {
        if section == "DEFAULT" {
            defaults = std::mem::take(values);
            return;
        }
        let values = std::mem::take(values);
        let Some(folder) = section.split(':').next().filter(|folder| folder.starts_with("tests/functional/"))
        else {
            return;
        };
        let value = |key: &str| values.get(key).or_else(|| defaults.get(key)).cloned().unwrap_or_default();
        let group = groups.entry(folder["tests/functional/".len()..].to_owned()).or_default();
        folder.clone_into(&mut group.folder);
        let limit = values.get("timeout").and_then(|seconds| seconds.parse().ok()).unwrap_or(0);
        group.limit = group.limit.max(limit).min(LIMIT_MAX);
        group.user = value("user");
        let quoted = value("tests");
        for test in quoted.split('\'').skip(1).step_by(2) {
            if !group.tests.iter().any(|known| known == test) {
                group.tests.push(test.to_owned());
            }
        }
    };
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            end(&section, &mut values);
            name.clone_into(&mut section);
        } else if line.starts_with(char::is_whitespace) {
            values.entry(key.clone()).or_default().push_str(line);
        } else if let Some((name, value)) = line.split_once('=') {
            name.trim().clone_into(&mut key);
            values.insert(key.clone(), value.trim().to_owned());
        }
    }
    end(&section, &mut values);
}

/// The groups that the words name: all without words.
fn chosen(groups: BTreeMap<String, Group>, words: &[String]) -> BTreeMap<String, Group> {
    let mut wanted = BTreeMap::new();
    for (name, mut group) in groups {
        let word = words.iter().find(|word| {
            let folder = word.split(':').next().unwrap_or(word);
            name == folder || name.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        });
        if let Some((_, tests)) = word.and_then(|word| word.split_once(':')) {
            group.tests = tests.split(',').map(str::to_owned).collect();
        }
        if word.is_some() || words.is_empty() {
            wanted.insert(name, group);
        }
    }
    wanted
}

/// Compiles the suite's helpers that need nothing of OpenZFS's libraries but headers. The others are not
/// there, and a test that asks for one is told so. Helpers that the suite has beside its scripts go into
/// the folder `functional`.
fn compile(suite: &Path, into: &Path) -> std::io::Result<()> {
    let sources = suite.join("tests/zfs-tests/cmd");
    for folder in [sources.clone(), sources.join("file"), sources.join("linux_dos_attributes")] {
        compile_folder(suite, &folder, into)?;
    }
    for group in ["cp_files", "tmpfile"] {
        let folder = suite.join("tests/zfs-tests/tests/functional").join(group);
        compile_folder(suite, &folder, &into.join("functional").join(group))?;
    }
    Ok(())
}

/// Compiles each source of a folder.
fn compile_folder(suite: &Path, folder: &Path, into: &Path) -> std::io::Result<()> {
    fs::create_dir_all(into)?;
    for entry in fs::read_dir(folder)? {
        let source = entry?.path();
        let Some(name) = source.file_stem().filter(|_| source.extension().is_some_and(|ext| ext == "c"))
        else {
            continue;
        };
        let program = into.join(name);
        if program.exists() {
            continue;
        }
        let mut compiler = Command::new("cc");
        compiler.args(["-w", "-O1", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64", "-D_LARGEFILE64_SOURCE"]);
        compiler.args(["-DTEXT_DOMAIN=\"x\"", "-include", "stdint.h"]);
        for headers in
            ["tests/zfs-tests/cmd/file", "lib/libspl/include", "lib/libspl/include/os/linux", "include"]
        {
            compiler.arg("-I").arg(suite.join(headers));
        }
        compiler.arg("-o").arg(&program).arg(&source).args(["-lpthread", "-lrt", "-laio", "-ludev"]);
        compiler.stderr(Stdio::null()).status()?;
    }
    Ok(())
}

impl Group {
    /// The group with one of its tests.
    fn only(&self, test: &str) -> Group {
        let (folder, user) = (self.folder.clone(), self.user.clone());
        Group { folder, user, tests: vec![test.to_owned()], limit: self.limit }
    }
}

/// The folder of the logs of a test that ran once more, in a room of its own.
fn again(folder: &Path, test: &str) -> PathBuf {
    folder.join("again").join(test)
}

/// One group, and the folder of its logs.
struct Room<'a> {
    name: &'a str,
    group: &'a Group,
    folder: &'a Path,
}

impl Room<'_> {
    /// Runs the group. Its results and logs are in the folder.
    fn run(&self, wish: &Wish, tests: &Path, helpers: &Path, program: &Path) {
        let first = self.group.tests.first().map_or("none", String::as_str);
        let scratch = wish.scratch.join(format!("{}.{first}", self.name.replace('/', "_")));
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "--pid",
            "--fork",
            "--kill-child",
            "--uts",
            "--ipc",
            "--net",
            "bash",
            "-c",
            ROOM,
        ]);
        command.env("NAME", self.name).env("SUITE", tests).env("HELPERS", helpers).env("PROGRAM", program);
        if reason(self.name, "setup", REASONS).is_some() {
            command.env("WITHOUT_SETUP", "yes");
        }
        command
            .env("OUT", self.folder)
            .env("SCRATCH", &scratch)
            .env("LIMIT", wish.limit.max(self.group.limit).to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        match command.spawn() {
            Ok(mut child) => {
                if let Some(mut stdin) = child.stdin.take() {
                    let _ = stdin.write_all(self.script().as_bytes());
                }
                let _ = child.wait();
            }
            Err(error) => eprintln!("unshare: {error}"),
        }
        let _ = fs::remove_dir_all(&scratch);
    }

    /// Input of the room: the user and the script of each step.
    fn script(&self) -> String {
        let folder = format!("/opt/openzfs/zfs-tests/{}", self.group.folder);
        let user = if self.group.user.is_empty() { "zts" } else { &self.group.user };
        let mut text = format!("root {folder}/setup\n");
        for test in &self.group.tests {
            let _ = writeln!(text, "{user} {folder}/{test}");
        }
        let _ = writeln!(text, "root {folder}/cleanup");
        text
    }

    /// The class of each test, from the room's results and logs, or from those of a room of its own.
    fn classes(&self) -> Vec<(String, Class)> {
        let mut classes = self.classes_here();
        for (test, class) in &mut classes {
            let folder = again(self.folder, test);
            if folder.join("results").exists() {
                let group = self.group.only(test);
                let alone = Room { name: self.name, group: &group, folder: &folder }.classes_here();
                *class = alone.first().map_or(*class, |(_, class)| *class);
            }
        }
        classes
    }

    fn classes_here(&self) -> Vec<(String, Class)> {
        let results = fs::read_to_string(self.folder.join("results")).unwrap_or_default();
        let ends: HashMap<&str, (&str, &str)> = results
            .lines()
            .filter_map(|line| {
                let mut fields = line.split('\t');
                Some((fields.next()?, (fields.next()?, fields.nth(1).unwrap_or_default())))
            })
            .collect();
        self.group
            .tests
            .iter()
            .map(|test| {
                let (mut end, asked) = ends.get(test.as_str()).copied().unwrap_or(("FAIL", ""));
                // The suite skips a group by its setup.
                if end == "NOSETUP" && ends.get("setup").is_some_and(|(end, _)| *end == "SKIP") {
                    end = "SKIP";
                }
                let log = self.folder.join(format!("{}.log", if end == "NOSETUP" { "setup" } else { test }));
                let log = fs::read(log).unwrap_or_default();
                let class = class(self.name, test, end, asked, &String::from_utf8_lossy(&log), REASONS);
                (test.clone(), class)
            })
            .collect()
    }
}

/// The class of a test that ended so, with these programs asked for that are not here, and this log.
fn class(group: &str, test: &str, end: &str, asked: &str, log: &str, reasons: &str) -> Class {
    match end {
        "PASS" => return Class::Passed,
        "SKIP" => return Class::Skipped,
        "ABSENT" => return Class::Program,
        _ => {}
    }
    if let Some(class) = reason(group, test, reasons).or_else(|| reason(group, "*", reasons)) {
        return class;
    }
    match asked {
        "" => {}
        "tunables" => return Class::Module,
        _ => return Class::Program,
    }
    SIGNS.iter().find(|(sign, _)| log.contains(sign)).map_or(Class::Ours, |(_, class)| *class)
}

/// The class that the list of reasons has for this name.
fn reason(group: &str, test: &str, reasons: &str) -> Option<Class> {
    let own = format!("{group}/{test}");
    reasons.lines().filter(|line| !line.starts_with('#')).find_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        let is_told = |class: &Class| rest.trim_start().starts_with(&format!("{}: ", class.word()));
        (name == own).then(|| Class::ALL.into_iter().find(is_told))?
    })
}

fn count(results: &[(String, Class)], class: Class) -> usize {
    results.iter().filter(|(_, found)| *found == class).count()
}

/// One line: how many tests of each class.
fn sums(results: &[(String, Class)]) -> String {
    let told = Class::ALL.into_iter().filter_map(|class| {
        let count = count(results, class);
        (count > 0).then(|| format!("{count} {}", class.word()))
    });
    told.collect::<Vec<_>>().join(", ")
}

/// A row for each group, the sums, and the failures that are ours.
fn table(rows: &BTreeMap<String, Vec<(String, Class)>>) -> String {
    let mut text = String::from("| Group |");
    for class in Class::ALL {
        let _ = write!(text, " {} |", class.word());
    }
    text.push_str("\n|---|");
    text.push_str(&"---:|".repeat(Class::ALL.len()));
    text.push('\n');
    let all: Vec<(String, Class)> = rows.values().flatten().cloned().collect();
    for (name, results) in rows.iter().map(|(name, results)| (name.as_str(), results)).chain([("all", &all)])
    {
        let _ = write!(text, "| {name} |");
        for class in Class::ALL {
            match count(results, class) {
                0 => text.push_str(" |"),
                count => {
                    let _ = write!(text, " {count} |");
                }
            }
        }
        text.push('\n');
    }
    let (passed, ours) = (count(&all, Class::Passed), count(&all, Class::Ours));
    if let Some(share) = (100 * passed).checked_div(passed + ours) {
        let _ = writeln!(text, "\n{passed} of {} that are for us pass: {share} %.", passed + ours);
    }
    for (name, results) in rows {
        let failed: Vec<&str> = results
            .iter()
            .filter(|(_, class)| *class == Class::Ours)
            .map(|(test, _)| test.as_str())
            .collect();
        if !failed.is_empty() {
            let _ = writeln!(text, "{name}: {}", failed.join(" "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUN: &str = "# words\n[DEFAULT]\nuser = root\npre = setup\ntimeout = 600\n\n[tests/functional/append]\n\
                       tests = ['one',\n    'two']\ntimeout = 7200\n\n[tests/functional/append:Linux]\ntests = ['two', 'three']\n\n\
                       [tests/functional/cli_user/misc]\ntests = ['four']\nuser =\n\n[tests/perf/reads]\ntests = ['five']\n";

    #[test]
    fn two_sections_of_a_folder_are_one_group_and_an_empty_user_is_an_ordinary_one() {
        let mut groups = BTreeMap::new();
        read_groups(RUN, &mut groups);
        assert_eq!(groups.keys().collect::<Vec<_>>(), ["append", "cli_user/misc"]);
        assert_eq!(groups["append"].tests, ["one", "two", "three"]);
        // The default of the suite is not a word about this group.
        assert_eq!((groups["append"].limit, groups["cli_user/misc"].limit), (LIMIT_MAX, 0));
        let misc = Room { name: "cli_user/misc", group: &groups["cli_user/misc"], folder: Path::new("x") };
        let folder = "/opt/openzfs/zfs-tests/tests/functional/cli_user/misc";
        assert_eq!(misc.script(), format!("root {folder}/setup\nzts {folder}/four\nroot {folder}/cleanup\n"));
    }

    #[test]
    fn a_word_names_a_group_or_all_below_a_folder_or_single_tests() {
        let chosen = |words: &[&str]| {
            let mut groups = BTreeMap::new();
            read_groups(RUN, &mut groups);
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            chosen(groups, &words)
        };
        assert_eq!(chosen(&[]).len(), 2);
        assert!(chosen(&["cli_user"]).contains_key("cli_user/misc"));
        assert!(chosen(&["cli"]).is_empty());
        assert_eq!(chosen(&["append:three"])["append"].tests, ["three"]);
    }

    #[test]
    fn a_failure_without_a_reason_is_ours() {
        let reasons = "a/one machine: no udev\na/two sentence without a class\nb/* differs: as decided\n";
        let of = |group, test, end, asked, log| class(group, test, end, asked, log, reasons);
        assert_eq!(of("a", "one", "PASS", "zdb", ""), Class::Passed);
        assert_eq!(of("a", "one", "FAIL", "zdb", ""), Class::Machine);
        assert_eq!(of("a", "two", "FAIL", "", "x"), Class::Ours);
        assert_eq!(of("a", "two", "KILLED", "", "x"), Class::Ours);
        assert_eq!(of("b", "two", "NOSETUP", "", "x"), Class::Differs);
        assert_eq!(of("a", "two", "FAIL", "zdb", ""), Class::Program);
        assert_eq!(of("a", "two", "FAIL", "tunables", ""), Class::Module);
        assert_eq!(of("a", "two", "FAIL", "tunables,zdb", ""), Class::Program);
        assert_eq!(of("a", "two", "FAIL", "", "cat: /proc/spl/kstat: none"), Class::Module);
        assert_eq!(of("a", "two", "FAIL", "", "'acltype=nfsv4' is not offered: the kernel"), Class::LeftOut);
        assert_eq!(of("a", "two", "SKIP", "", ""), Class::Skipped);
    }

    #[test]
    fn a_setup_with_a_reason_holds_no_test_up() {
        let reasons = "a/setup differs: a pool of ZFS\n";
        assert_eq!(reason("a", "setup", reasons), Some(Class::Differs));
        assert_eq!(class("a", "one", "FAIL", "", "", reasons), Class::Ours, "the tests count by themselves");
        let folder = std::env::temp_dir().join(format!("xtask-openzfs-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let group = Group { tests: vec!["one".into()], ..Group::default() };
        let room = Room { name: "a", group: &group, folder: &folder };
        for (end, expected) in [("SKIP", Class::Skipped), ("FAIL", Class::Ours)] {
            fs::write(folder.join("results"), format!("setup\t{end}\t0\t\none\tNOSETUP\t0\t\n")).unwrap();
            assert_eq!(room.classes_here(), [("one".to_owned(), expected)]);
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_share_counts_only_what_is_for_us() {
        let row = |ends: &[Class]| ends.iter().map(|class| ("t".to_owned(), *class)).collect::<Vec<_>>();
        let rows = BTreeMap::from([
            ("a".to_owned(), row(&[Class::Passed, Class::Passed, Class::Module])),
            ("b".to_owned(), row(&[Class::Ours, Class::Passed, Class::Skipped])),
        ]);
        let text = table(&rows);
        assert!(text.contains("| all | 3 | 1 | 1 | | | | | 1 |\n"), "{text}");
        assert!(text.contains("3 of 4 that are for us pass: 75 %.\nb: t\n"), "{text}");
    }
}
