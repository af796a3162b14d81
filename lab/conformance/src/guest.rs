//! A guest of user-mode Linux that mounts the pool over NFS: the client is a kernel that nobody
//! here wrote, and it runs as an ordinary process.
//!
//! ```text
//! linux.uml: mount.nfs 10.0.2.2:EXPORT ◄─ slirp ─► 127.0.0.1: NFS server of the daemon
//! ```
//!
//! Its root is this machine's, read-only. The scratch directory and that of the guest can be
//! written, and have the same paths as here. The pool is at a short one: sockets are made below it,
//! whose paths may have 107 bytes. Locks stay within the guest (`nolock`): its way leads outwards
//! only, and a server that gives a lock calls back.
//!
//! ## Invariants
//! [guest.1] The script runs over NFS or not at all: without a mount the guest says so as a case
//!      that failed, and ends.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use steadfast_lab_experiment::{Error, quoted};

/// Programs without which there is no guest.
pub(crate) const NEEDS: &[&str] = &["linux.uml", "slirp-fullbolt", "mount.nfs", "ip", "modprobe"];

/// Where a guest mounts the pool: a directory that each Linux has.
const MOUNT: &str = "/mnt";
/// Memory of the guest.
const MEMORY: &str = "mem=768M";

/// Where a guest lives, and what it mounts.
pub(crate) struct Guest {
    /// Its own directory: its first program, its log.
    home: PathBuf,
    /// Scratch directory of suites.
    scratch: PathBuf,
    /// Where the pool is mounted here, which is the name of the export.
    export: PathBuf,
    /// Port of the daemon's NFS server on 127.0.0.1.
    port: u16,
}

impl Guest {
    pub fn new(home: PathBuf, scratch: PathBuf, export: PathBuf, port: u16) -> Guest {
        Guest { home, scratch, export, port }
    }

    /// The log of the script.
    pub fn log(&self) -> PathBuf {
        self.home.join("said")
    }

    /// The tree as the guest finds it when it has forgotten what it knew, one line an object.
    pub fn tree(&self) -> PathBuf {
        self.home.join("tree")
    }

    /// The tree as the guest knows it behind the suite.
    pub fn known_tree(&self) -> PathBuf {
        self.home.join("known")
    }

    /// Where it finds a directory of the pool.
    pub fn place(&self, here: &Path) -> PathBuf {
        Path::new(MOUNT).join(here.strip_prefix(&self.export).unwrap_or(here))
    }

    /// The command that boots it, runs this script with this environment, and ends.
    ///
    /// # Errors
    /// Its files cannot be written.
    pub fn command(&self, script: &str, environment: &[(&str, String)]) -> Result<Command, Error> {
        let write = |name: &str, text: &str| {
            let path = self.home.join(name);
            fs::write(&path, text).map_err(Error::io("write", &path))?;
            Ok::<PathBuf, Error>(path)
        };
        let suite = write("suite.sh", script)?;
        let init = write("init", &self.init(&suite, environment))?;
        fs::set_permissions(&init, Permissions::from_mode(0o755)).map_err(Error::io("open", &init))?;
        let mut command = Command::new("linux.uml");
        command.args([MEMORY, "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "umid=suite"]);
        command.args(["eth0=slirp,,slirp-fullbolt", "con0=null,fd:1", "con=null"]);
        command.arg(format!("init={}", init.display())).arg(format!("uml_dir={}", self.home.display()));
        Ok(command)
    }

    /// The first program of the guest.
    fn init(&self, suite: &Path, environment: &[(&str, String)]) -> String {
        let exports: String =
            environment.iter().map(|(name, value)| format!("export {name}={}\n", quoted(value))).collect();
        let word = |path: &Path| quoted(&path.display().to_string());
        let (home, scratch, export) = (word(&self.home), word(&self.scratch), word(&self.export));
        let (log, known, tree) = (word(&self.log()), word(&self.known_tree()), word(&self.tree()));
        let options = format!("vers=3,tcp,port={0},mountport={0},mountproto=tcp,nolock,timeo=600", self.port);
        format!(
            "#!/bin/bash\n\
             export PATH={path}:/usr/sbin:/usr/bin:/sbin:/bin\n\
             mount -t proc proc /proc; mount -t sysfs sys /sys\n\
             mkdir -p /dev/pts /dev/shm; mount -t devpts devpts /dev/pts; mount -t tmpfs shm /dev/shm\n\
             ln -s /proc/self/fd /dev/fd; ln -s fd/0 /dev/stdin; ln -s fd/1 /dev/stdout; ln -s fd/2 /dev/stderr\n\
             mount -t hostfs -o {home} none {home}; mount -t hostfs -o {scratch} none {scratch}\n\
             exec </dev/null >{log} 2>&1\n\
             export TMPDIR={home}/tmp; mkdir -p -m 1777 {home}/tmp {home}/root/lib\n\
             ln -s /usr/lib/uml/modules {home}/root/lib/modules; modprobe -d {home}/root nfsv3\n\
             ip link set lo up; ip addr add 10.0.2.15/24 dev eth0; ip link set eth0 up; ip route add default dev eth0\n\
             if mount.nfs 10.0.2.2:{export} {MOUNT} -o {options}; then\n\
             {exports}cd {scratch}; bash {suite}\n\
             cd /; sync; \"$SF\" lab tree-of \"$W\" > {known}\n\
             echo 2 > /proc/sys/vm/drop_caches; \"$SF\" lab tree-of \"$W\" > {tree}\n\
             umount {MOUNT} || echo 'FAIL unmount the guest cannot unmount what it mounted'\n\
             else echo 'FAIL mount the guest cannot mount the pool'; fi\n\
             sync; echo o > /proc/sysrq-trigger; sleep 60\n",
            path = quoted(&std::env::var("PATH").unwrap_or_default()),
            suite = word(suite),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_program_mounts_before_it_runs_the_script() {
        let home = tempfile::tempdir().unwrap();
        let path = |name: &str| home.path().join(name);
        let guest = Guest::new(home.path().to_owned(), path("scratch"), path("it's m"), 3_049);
        assert_eq!(guest.place(&path("it's m/w")), Path::new("/mnt/w"));
        let command = guest.command("echo PASS a\n", &[("LONG", "0".to_owned())]).unwrap();
        assert!(
            command.get_args().any(|word| word == format!("init={}/init", home.path().display()).as_str())
        );
        let init = fs::read_to_string(path("init")).unwrap();
        let at = |words: &str| init.find(words).unwrap_or_else(|| panic!("{words}: {init}"));
        assert!(at("mount.nfs 10.0.2.2:") < at("export LONG=0") && at("export LONG=0") < at("suite.sh"));
        assert!(init.contains("port=3049,mountport=3049") && init.contains("/it'\\''s m'"));
        // It is a program that a shell takes.
        let read = Command::new("bash").arg("-n").arg(path("init")).status().unwrap();
        assert!(read.success());
        assert_eq!(fs::read_to_string(path("suite.sh")).unwrap(), "echo PASS a\n");
    }
}
