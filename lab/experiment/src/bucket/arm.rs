//! One file system on the store while it is measured: made, made cold, taken away.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use steadfast_lab_network::Link;

use super::remote::{Remote, write_secret};
use super::zerofs::Server;
use crate::error::Error;
use crate::host::caches::drop_kernel_caches;
use crate::host::commands::quoted;
use crate::host::mounts::{mounts_below, unmount};
use crate::host::processes::end_process;
use crate::host::requirements::on_path;
use crate::host::shell::Shell;

/// Bytes of the log device and of the cache device.
const LOCAL_BYTES: u64 = 1 << 30;
/// Nothing passes for so long: a client that uploads behind its callers has ended.
const QUIET: Duration = Duration::from_secs(1);
/// A client that is not quiet by then never will be.
const PATIENCE: Duration = Duration::from_secs(120);

/// Devices of a pool that are on this machine.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Here {
    /// None: all is in the bucket.
    Nothing,
    /// Log, cache and anchor.
    Everything,
    /// Log and anchor, and NFS clients are listened for: a portal, whose only caches are in memory.
    Portal,
}

/// Kind of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// A pool of ours.
    Ours { here: Here },
    /// `rclone mount`.
    Rclone,
    /// s3fs-fuse.
    S3fs,
    /// ZeroFS, which serves NFS.
    ZeroFs,
}

/// Key, heading, kind.
pub(crate) const ARMS: [(&str, &str, Kind); 5] = [
    ("bucket", "Steadfast, bucket alone", Kind::Ours { here: Here::Nothing }),
    ("local", "Steadfast, log, cache, anchor here", Kind::Ours { here: Here::Everything }),
    ("rclone", "rclone mount", Kind::Rclone),
    ("s3fs", "s3fs", Kind::S3fs),
    ("zerofs", "ZeroFS, by NFS", Kind::ZeroFs),
];

impl Kind {
    /// Why it cannot take part on this machine, or on the lab's own store.
    pub fn lacks(self, is_own_store: bool) -> Option<&'static str> {
        let no_folders = is_own_store.then_some(
            "the lab's own store lists no folders; give another one with --store, such as versitygw",
        );
        match self {
            Kind::Ours { .. } => None,
            Kind::Rclone if !on_path("rclone") => Some("rclone is not installed (`sudo apt install rclone`)"),
            Kind::S3fs if !on_path("s3fs") => Some("s3fs is not installed (`sudo apt install s3fs`)"),
            Kind::ZeroFs if !on_path("zerofs") => {
                Some("zerofs is not installed (`cargo install zerofs`, some ten minutes)")
            }
            Kind::ZeroFs => None,
            Kind::Rclone | Kind::S3fs => no_folders,
        }
    }
}

/// A client that is made, until it is dropped.
pub(crate) struct Arm {
    pub key: &'static str,
    pub kind: Kind,
    /// The way to the store, for this client alone.
    pub link: Link,
    /// Prefix of its objects.
    pub prefix: String,
    home: PathBuf,
    /// The server, while it runs.
    server: Option<Server>,
    /// Takes it away, even while the experiment unwinds.
    last: Shell,
}

impl Arm {
    /// Makes it and mounts it.
    pub fn make(
        (key, kind): (&'static str, Kind),
        home: PathBuf,
        link: Link,
        remote: &Remote,
        (shell, last): (&mut Shell, Shell),
    ) -> Result<Arm, Error> {
        // A pool that was destroyed leaves its objects, as disks keep their bytes: each round has a
        // prefix of its own.
        let round = home.file_name().unwrap_or_default().to_string_lossy();
        let prefix = format!("{}/{round}", remote.prefix);
        let mut arm = Arm { key, kind, link, prefix, home, server: None, last };
        fs::create_dir(arm.place()).map_err(Error::io("create", &arm.place()))?;
        match kind {
            Kind::Ours { here } => {
                remote.write_credentials(&arm.home)?;
                let home = quoted(&arm.home.display().to_string());
                shell.run(&format!("cd {home} && mkdir -m 700 run && head -c 32 /dev/urandom > key"))?;
                let mut words = String::new();
                if here != Here::Nothing {
                    shell.run(&format!("cd {home} && truncate -s {LOCAL_BYTES} log.img"))?;
                    words = format!("anchor {home}/anchor log {home}/log.img");
                }
                if here == Here::Everything {
                    shell.run(&format!("cd {home} && truncate -s {LOCAL_BYTES} cache.img"))?;
                    words.push_str(&format!(" cache {home}/cache.img"));
                }
                let create = format!(
                    "pool create -O encryption=on -O keyformat=raw -O keylocation=file://{}/key -m {} {} {} {words}",
                    arm.home.display(),
                    quoted(&arm.place().display().to_string()),
                    arm.pool(),
                    quoted(&arm.address(remote)),
                );
                shell.run(arm.ours(&create).trim_end())?;
            }
            Kind::Rclone => {
                let text = format!(
                    "[lab]\ntype = s3\nprovider = Other\naccess_key_id = {}\nsecret_access_key = {}\nendpoint = http://{}\n\
                     region = us-east-1\nforce_path_style = true\nno_check_bucket = true\nlist_version = 2\n",
                    remote.key.0,
                    remote.key.1,
                    arm.link.address()
                );
                write_secret(&arm.home.join("rclone.conf"), &text)?;
                arm.mount(remote, shell)?;
            }
            Kind::S3fs => {
                write_secret(&arm.home.join("passwd"), &format!("{}:{}\n", remote.key.0, remote.key.1))?;
                arm.mount(remote, shell)?;
            }
            Kind::ZeroFs => arm.mount(remote, shell)?,
        }
        Ok(arm)
    }

    /// Its folder on this machine.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Where the work is done.
    pub fn place(&self) -> PathBuf {
        self.home.join("mnt")
    }

    /// `steadfast` with a daemon of its own.
    pub fn ours(&self, words: &str) -> String {
        let run = quoted(&self.home.join("run").display().to_string());
        // Any free port.
        let listens = match self.kind {
            Kind::Ours { here: Here::Portal } => "STEADFAST_NFS=127.0.0.1:0 ",
            _ => "",
        };
        format!("{listens}STEADFAST_RUNTIME_DIR={run} $SF {words}")
    }

    /// Name of the pool.
    pub fn pool(&self) -> String {
        format!("lab{}{}", self.key, std::process::id())
    }

    /// The bucket behind the link, as Steadfast reads it.
    fn address(&self, remote: &Remote) -> String {
        format!(
            "s3://{}/{}?endpoint=http://{}&credentials={}/credentials",
            remote.bucket,
            self.prefix,
            self.link.address(),
            self.home.display()
        )
    }

    /// The server that is asked.
    pub fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs while it is measured")
    }

    fn mount(&mut self, remote: &Remote, shell: &mut Shell) -> Result<(), Error> {
        let home = quoted(&self.home.display().to_string());
        let place = quoted(&self.place().display().to_string());
        let (bucket, prefix) = (&remote.bucket, &self.prefix);
        let line = match self.kind {
            Kind::Ours { .. } => {
                let address = quoted(&self.address(remote));
                self.ours(&format!("pool import -l -d {address} -d {home} {}", self.pool()))
            }
            // Writes go to a file of its cache first, and up when the file is closed. Its library
            // of requests refuses a bundle of certificates that the environment names.
            Kind::Rclone => format!(
                "env -u AWS_CA_BUNDLE rclone --config {home}/rclone.conf mount lab:{bucket}/{prefix} {place} --daemon \
                 --vfs-cache-mode writes --vfs-write-back 0s --cache-dir {home}/cache"
            ),
            // Folders without an object of their own are shown by old versions anyway.
            Kind::S3fs => format!(
                "s3fs {bucket}:/{prefix} {place} -o passwd_file={home}/passwd -o url=http://{} \
                 $(s3fs --help 2>&1 | grep -q -- '-o compat_dir' && echo -o compat_dir) \
                 -o use_path_request_style -o listobjectsv2 -o use_cache={home}/cache -o del_cache",
                self.link.address()
            ),
            Kind::ZeroFs => {
                self.server = Some(Server::start(self, &self.home, remote)?);
                return Ok(());
            }
        };
        shell.run(&line).map(drop)
    }

    /// Lets go of the store, with nothing in anybody's memory.
    pub fn release(&mut self, shell: &mut Shell) -> Result<(), Error> {
        if let Kind::Ours { .. } = self.kind {
            let export = self.ours(&format!("pool export {}", self.pool()));
            shell.run(&export)?;
        } else if self.kind == Kind::ZeroFs {
            drop(self.server.take());
        } else {
            self.quiet()?;
            let place = quoted(&self.place().display().to_string());
            shell.run(&format!("umount {place}"))?;
        }
        drop_kernel_caches()
    }

    /// Opens it again.
    pub fn reopen(&mut self, remote: &Remote, shell: &mut Shell) -> Result<(), Error> {
        self.mount(remote, shell)
    }

    /// Everything that was accepted is in the store. Returns the time that this looked at a store
    /// which was quiet already.
    pub fn settle(&self, shell: &mut Shell) -> Result<Duration, Error> {
        let place = quoted(&self.place().display().to_string());
        if let Kind::Ours { .. } = self.kind {
            let sync = self.ours(&format!("pool sync {}", self.pool()));
            shell.ask(&format!("sync -f {place} && {sync}"))?;
            return Ok(Duration::ZERO);
        }
        if self.kind == Kind::ZeroFs {
            // Each step of it ends with a COMMIT.
            return Ok(Duration::ZERO);
        }
        self.quiet()
    }

    /// Waits until nothing passes any more.
    pub fn quiet(&self) -> Result<Duration, Error> {
        let began = Instant::now();
        let (mut last, mut since) = (self.link.counts(), Instant::now());
        while since.elapsed() < QUIET {
            if began.elapsed() > PATIENCE {
                return Err(Error::Answer {
                    line: format!("waiting for {} to upload", self.key),
                    answer: "requests that do not end".to_owned(),
                    expected: "a second without one",
                });
            }
            std::thread::sleep(Duration::from_millis(10));
            let now = self.link.counts();
            if now != last {
                (last, since) = (now, Instant::now());
            }
        }
        Ok(since.elapsed())
    }
}

impl Drop for Arm {
    fn drop(&mut self) {
        if let Kind::Ours { .. } = self.kind {
            let destroy = self.ours(&format!("pool destroy -f {}", self.pool()));
            let _ = self.last.ask(&destroy);
            let pid = self.last.ask(&self.ours("daemon pid")).ok();
            let stop = self.ours("daemon stop");
            let _ = self.last.ask(&stop);
            if let Some(pid) =
                pid.and_then(|said| said.split_ascii_whitespace().find_map(|word| word.parse().ok()))
            {
                end_process(pid, &self.home.join("run"));
            }
        }
        drop(self.server.take());
        for mount in mounts_below(&self.home) {
            unmount(&mount);
        }
        remove(&self.home);
    }
}

/// Removes what is private to one client, unless something is mounted in it.
fn remove(home: &Path) {
    if mounts_below(home).is_empty() {
        let _ = fs::remove_dir_all(home);
    }
}
