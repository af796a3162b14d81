//! Much of everything at once, then a look at what is left: random calls of many processes, `fsx`,
//! and programs that people trust with their files (git, rsync, tar, SQLite, stress-ng). Bounded
//! here; long forms run with `STEADFAST_LONG=1`.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, XattrFlags};
use rustix::io::Errno;
use steadfast_tests::{Host, is_root, no_fuse, output, skip, spawn};

/// Tells a child of this test what it is: seed, count of operations.
const CHILD: &str = "STEADFAST_STRESS_CHILD";

fn long() -> bool {
    std::env::var_os("STEADFAST_LONG").is_some_and(|value| value != "0" && !value.is_empty())
}

fn has(program: &str) -> bool {
    let found = output(Command::new("sh").args(["-c", &format!("command -v {program}")]));
    found.is_ok_and(|output| output.status.success())
}

/// A host with a pool `tank` mounted at `t`, or the reason why not.
fn tank(test: &str, mib: u64, programs: &[&str]) -> Option<Host> {
    let why = no_fuse()
        .or_else(|| (!is_root()).then(|| "it needs root".to_owned()))
        .or_else(|| programs.iter().find(|p| !has(p)).map(|p| format!("{p} is not installed")));
    if let Some(why) = why {
        skip(test, &why);
        return None;
    }
    let host = Host::new();
    host.image("tank.img", mib << 20);
    host.run("pool create -m {}/t tank {}/tank.img").ok();
    Some(host)
}

/// Stored structures are whole, and the pool comes back.
fn whole(host: &Host) {
    host.run("pool export tank").ok();
    host.run("inspect check {}/tank.img").ok();
    host.run("pool import -d {}/tank.img tank").ok();
}

/// Pseudo-random numbers (SplitMix64).
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A path in a small tree that all children share: some are directories now, some files, some
    /// nothing.
    fn path(&mut self) -> PathBuf {
        let mut path = PathBuf::from(".");
        for _ in 0..=self.below(3) {
            path.push(["a", "b", "c", "d", "e"][usize::try_from(self.below(5)).expect("small")]);
        }
        path
    }
}

/// One random call. Its result depends on the other threads.
fn call(draw: &mut Draw) -> std::io::Result<()> {
    let (path, other) = (draw.path(), draw.path());
    let (at, count) = (draw.below(300_000), usize::try_from(draw.below(70_000)).expect("small"));
    let write =
        |create: bool| OpenOptions::new().read(true).write(true).create(create).truncate(false).open(&path);
    match draw.below(25) {
        0..=3 => write(true)?.write_all_at(&vec![draw.next() as u8; count], at),
        4 => {
            let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
            file.write_all(&vec![1; count % 5_000])
        }
        5 => write(false)?.set_len(at),
        6 | 7 => {
            let mut file = fs::File::open(&path)?;
            file.seek(SeekFrom::Start(at))?;
            file.read(&mut vec![0; count]).map(drop)
        }
        8 | 9 => fs::create_dir(&path),
        10 => fs::remove_dir(&path),
        11 | 12 => fs::remove_file(&path),
        13 | 14 => fs::rename(&path, &other),
        15 => Ok(rustix::fs::renameat_with(CWD, &path, CWD, &other, RenameFlags::EXCHANGE)?),
        16 => fs::hard_link(&path, &other),
        17 => symlink(&other, &path),
        18 => fs::set_permissions(&path, fs::Permissions::from_mode(0o600 | draw.below(0o100) as u32)),
        19 => {
            let (value, name) = (vec![3; count / 8], format!("user.n{}", draw.below(3)));
            Ok(rustix::fs::setxattr(&path, name, &value, XattrFlags::empty())?)
        }
        20 => {
            let modes = [
                FallocateFlags::KEEP_SIZE | FallocateFlags::PUNCH_HOLE,
                FallocateFlags::ZERO_RANGE,
                FallocateFlags::empty(),
            ];
            let mode = modes[usize::try_from(draw.below(3)).expect("small")];
            Ok(rustix::fs::fallocate(write(false)?, mode, at, count as u64 + 1)?)
        }
        21 => fs::read_dir(&path)?.try_for_each(|entry| entry.map(drop)),
        22 => fs::File::open(&path)?.sync_all(),
        23 => {
            let (from, to) = (fs::File::open(&path)?, OpenOptions::new().write(true).open(&other)?);
            let (mut off_in, mut off_out) = (at, at / 2);
            Ok(rustix::fs::copy_file_range(from, Some(&mut off_in), to, Some(&mut off_out), count)
                .map(drop)?)
        }
        _ => {
            let flags = OFlags::TMPFILE | OFlags::RDWR;
            let file = rustix::fs::open(path.parent().unwrap_or(Path::new(".")), flags, Mode::from(0o640))?;
            rustix::io::write(&file, b"made without a name")?;
            let name = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
            Ok(rustix::fs::linkat(CWD, name, CWD, &other, AtFlags::SYMLINK_FOLLOW)?)
        }
    }
}

/// Ends that a race or a draw explains. Anything else (EIO, ESTALE, ENOSYS) is a fault.
fn is_explained(error: &std::io::Error) -> bool {
    let known = [
        Errno::NOENT,
        Errno::EXIST,
        Errno::NOTEMPTY,
        Errno::NOTDIR,
        Errno::ISDIR,
        Errno::INVAL,
        Errno::LOOP,
        Errno::PERM,
        Errno::BADF,
        Errno::BUSY,
        Errno::OPNOTSUPP,
    ];
    Errno::from_io_error(error).is_some_and(|errno| known.contains(&errno))
}

/// The child's part: does nothing unless it was started by the test below.
#[test]
fn child_of_random_calls() {
    let Ok(what) = std::env::var(CHILD) else { return };
    let (seed, count) = what.split_once(' ').expect("seed and count");
    let (mut draw, count) = (Draw(seed.parse().expect("a seed")), count.parse().expect("a count"));
    let mut well = 0_u64;
    for number in 0..count {
        match call(&mut draw) {
            Ok(()) => well += 1,
            Err(error) => assert!(is_explained(&error), "call {number} of seed {seed}: {error}"),
        }
    }
    assert!(well > count / 10, "only {well} of {count} calls of seed {seed} did something");
}

/// Content of a tree, by path: type, mode, links, size, and a sum of content or target.
fn tree(top: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![top.to_path_buf()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).expect("a listing") {
            let path = entry.expect("an entry").path();
            let meta = fs::symlink_metadata(&path).expect("attributes");
            let content = if meta.is_dir() {
                open.push(path.clone());
                String::new()
            } else if meta.is_symlink() {
                fs::read_link(&path).expect("a target").display().to_string()
            } else {
                let bytes = fs::read(&path).expect("content");
                let sum =
                    bytes.iter().fold(bytes.len() as u64, |sum, b| sum.wrapping_mul(31) + u64::from(*b));
                sum.to_string()
            };
            let size = if meta.is_dir() { 0 } else { meta.size() };
            let line = format!("{:o} {} {} {size} {content}", meta.mode(), meta.ino(), meta.nlink());
            found.insert(path, line);
        }
    }
    found
}

#[test]
fn random_calls_of_many_processes_leave_a_whole_pool() {
    let Some(host) = tank("random calls", 2048, &[]) else { return };
    let (rounds, children, count) = if long() { (20, 8, 20_000) } else { (2, 4, 700) };
    let me = std::env::current_exe().expect("this test has a path");
    let seed: u64 = std::env::var("STEADFAST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    for round in 0..rounds {
        let started: Vec<_> = (0..children)
            .map(|child| {
                let seed = (seed << 20) + (round << 8) + child;
                let mut command = Command::new(&me);
                command.args(["--exact", "stress::child_of_random_calls", "--nocapture"]);
                command.env(CHILD, format!("{seed} {count}")).current_dir(host.at("t"));
                spawn(command.stdout(Stdio::null())).expect("a child")
            })
            .collect();
        for mut child in started {
            assert!(child.wait().expect("ends").success(), "a child failed in round {round}: see above");
        }
        let before = tree(&host.at("t"));
        whole(&host);
        assert_eq!(tree(&host.at("t")), before, "round {round}");
    }
}

#[test]
fn fsx_finds_nothing() {
    let Some(host) = tank("fsx", 1024, &["fsx"]) else { return };
    let config = "flen = 1000000\n[opsize]\nmax = 131072\n[weights]\nclose_open = 1\ninvalidate = 1\nmapread = 10\n\
                  mapwrite = 10\nread = 10\nwrite = 10\ntruncate = 5\nfsync = 0.2\nfdatasync = 0.2\n\
                  posix_fallocate = 2\npunch_hole = 5\nsendfile = 5\nposix_fadvise = 1\ncopy_file_range = 5\n";
    fs::write(host.at("fsx.toml"), config).expect("a configuration");
    // In the long form 100 seeds of 100,000.
    let (seeds, count) = if long() { (100, 100_000) } else { (4, 1_500) };
    for seed in 1..=seeds {
        let words = format!(
            "fsx -q -f fsx.toml -P . -N {count} -S {seed} t/file{seed} && rm -f t/file{seed} t/file{seed}.*"
        );
        host.shell(&words).ok();
    }
    whole(&host);
}

#[test]
fn git_keeps_its_history() {
    let Some(host) = tank("git", 1024, &["git"]) else { return };
    let commits = if long() { 60 } else { 6 };
    host.shell(&format!(
        r#"
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1
build() {{
    git init -q -b main $1; cd $1
    for n in $(seq {commits}); do
        for d in $(seq 6); do mkdir -p d$d; for f in $(seq 12); do echo "$n $d $f" >>d$d/f$f; done; done
        ln -sf d$n link; git add -A
        GIT_AUTHOR_DATE="@$((1000000000 + n)) +0000" GIT_COMMITTER_DATE="@$((1000000000 + n)) +0000" git commit -qm "$n"
    done
    cd - >/dev/null
}}
build outside; build t/inside
cd t
git -C inside fsck --full --strict; git -C inside gc -q; git -C inside fsck --full --strict
git clone -q --no-local inside far; git clone -q --local inside near; git -C near fsck --full
git -C inside worktree add -q ../tree HEAD~2; git -C inside checkout -q HEAD~3; git -C inside checkout -q main
for at in inside far near; do
    test $(git -C $at rev-parse HEAD) = $(git -C ../outside rev-parse HEAD)
    test "$(git -C $at archive HEAD | sha1sum)" = "$(git -C ../outside archive HEAD | sha1sum)"
    test -z "$(git -C $at status --porcelain)"
done
"#
    ))
    .ok();
    whole(&host);
    host.shell("git -C t/near fsck --full; test -z \"$(git -C t/inside status --porcelain)\"").ok();
}

/// A folder outside with one of everything that rsync and tar know.
const ODD_TREE: &str = r#"
mkdir ref; cd ref
mkdir -p deep/er/still; head -c 300000 /dev/urandom >deep/random; : >empty; printf 'a\nb' >$'new\nline'
ln deep/random hard; ln hard deep/er/harder; ln -s deep/random soft; ln -s $(printf 'x/%.0s' $(seq 2000)) long
mkfifo pipe; mknod null c 1 3; mknod disk b 7 9
truncate -s 5M sparse; printf mid | dd of=sparse bs=1 seek=2000000 conv=notrunc status=none
setfattr -n user.note -v text deep/random; setfattr -n trusted.note -v secret deep
setfacl -m u:1:rwx,g:7:r deep/random 2>/dev/null; setfacl -d -m u:3:rx deep/er 2>/dev/null
chown -h 5:6 soft empty; chmod 6751 empty; chmod 1777 deep; touch -d '1960-01-02 03:04:05.678' empty
touch -d '2100-01-02 03:04:05.123456789' deep/er; for n in $(seq 200); do echo $n >deep/er/still/$n; done
cd ..
"#;

#[test]
fn rsync_finds_no_difference() {
    let Some(host) = tank("rsync", 512, &["rsync", "setfacl", "setfattr"]) else { return };
    host.shell(&format!(
        "{ODD_TREE}
rsync -aHAXS ref/ t/copy/
differences=$(rsync -aHAXSc --delete -ni ref/ t/copy/); test -z \"$differences\" || {{ echo \"$differences\"; exit 1; }}"
    ))
    .ok();
    whole(&host);
    host.shell(
        "differences=$(rsync -aHAXSc --delete -ni ref/ t/copy/); test -z \"$differences\" || { echo \"$differences\"; exit 1; }
         test $(stat -c %b t/copy/sparse) -lt 2000",
    )
    .ok();
}

#[test]
fn tar_brings_back_lists_and_attributes() {
    let Some(host) = tank("tar", 512, &["tar", "setfacl", "setfattr"]) else { return };
    host.shell(&format!(
        "{ODD_TREE}
options=\"--xattrs --xattrs-include=* --acls --sparse\"
cp -a ref t/ref; (cd t; tar $options -cf ../one.tar ref)
mkdir t/out; tar $options -xpf one.tar -C t/out; tar $options -df one.tar -C t/out
(cd t/ref; getfacl -Rn .; find . -print0 | sort -z | xargs -0 getfattr -hd -m- --) >one.txt
(cd t/out/ref; getfacl -Rn .; find . -print0 | sort -z | xargs -0 getfattr -hd -m- --) >two.txt
grep -q user:1:rwx one.txt; grep -q trusted.note one.txt; cmp one.txt two.txt"
    ))
    .ok();
    whole(&host);
    host.shell("tar --xattrs --xattrs-include='*' --acls --sparse -df one.tar -C t/out").ok();
}

#[test]
fn sqlite_keeps_its_promises() {
    let Some(host) = tank("sqlite", 512, &["sqlite3"]) else { return };
    let rows = if long() { 20_000 } else { 300 };
    host.shell(&format!(
        r#"
cd t
for mode in wal delete; do
    db=$mode.db
    sqlite3 $db "pragma journal_mode=$mode; create table account(id integer primary key, money int);
                 insert into account select value, 100 from generate_series(1, {rows});"
    for writer in 1 2 3; do
        (for n in $(seq 8); do
            sqlite3 -cmd '.timeout 60000' $db "begin immediate; update account set money = money - 1 where id % 3 = $((writer % 3));
                update account set money = money + 1 where id % 3 = $((writer % 3)); commit;
                begin immediate; delete from account; rollback;"
        done) &
    done
    for job in $(jobs -p); do wait $job; done
    test "$(sqlite3 $db 'pragma integrity_check')" = ok
    test "$(sqlite3 $db 'select sum(money) from account')" = $(({rows} * 100))
done
"#
    ))
    .ok();
    whole(&host);
    host.shell("for db in t/*.db; do test \"$(sqlite3 $db 'pragma integrity_check')\" = ok; done").ok();
}

/// The stressors of `stress-ng` that know files. Its exit status says nothing: what counts is what
/// it prints.
#[test]
fn stress_ng_reports_no_failure() {
    if !long() {
        return skip("stress-ng", "long: set STEADFAST_LONG=1");
    }
    let Some(host) = tank("stress-ng", 4096, &["stress-ng"]) else { return };
    let ran = host.shell(
        "stress-ng --class filesystem --sequential 1 --timeout 1 --temp-path $PWD/t --verify 2>&1 | tee log || true",
    );
    let failures: Vec<&str> = ran.out.lines().filter(|line| line.contains("stress-ng: fail")).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(ran.out.contains("completed"), "it did not run: {}", ran.out);
    whole(&host);
}
