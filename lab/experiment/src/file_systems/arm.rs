//! One file system while it is compared: made, made cold, asked for the bytes it wrote, taken away.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::kind::{Kind, Recipe};
use super::{loop_device, zfs_fuse};
use crate::error::Error;
use crate::host::caches::drop_kernel_caches;
use crate::host::commands::quoted;
use crate::host::mounts::{mounts_below, unmount};
use crate::host::processes::{end_process, processor_seconds};
use crate::host::shell::Shell;
use crate::host::workdir::Workdir;

/// A server that has mounted nothing by then never will.
const PATIENCE: Duration = Duration::from_secs(20);

/// Most time for what goes on in the background after a load.
const QUIET: Duration = Duration::from_secs(20);

/// A daemon rests if it used a twentieth of this or less, of one processor.
const REST: Duration = Duration::from_millis(200);
/// Most time for a daemon to come to rest.
const REST_MAX: Duration = Duration::from_secs(120);

/// A file system while it is compared.
pub struct Arm {
    /// Key of its column.
    pub key: &'static str,
    /// Heading of its column.
    pub label: &'static str,
    kind: Kind,
    /// Why it takes no part.
    pub(super) missing: Option<String>,
    home: PathBuf,
    image: PathBuf,
    image_bytes: u64,
    device: Option<String>,
    server: Option<Child>,
    up: bool,
}

impl Arm {
    pub(super) fn new(recipe: Recipe, workdir: &Workdir) -> Result<Arm, Error> {
        let Recipe { key, label, kind, image_bytes } = recipe;
        let home = workdir.subdirectory(key)?;
        let mut arm = Arm {
            key,
            label,
            missing: None,
            image: home.join(format!("{key}.img")),
            image_bytes,
            home,
            kind,
            device: None,
            server: None,
            up: false,
        };
        arm.missing = arm.kind.lacks();
        Ok(arm)
    }

    /// Does it take part?
    pub fn takes_part(&self) -> bool {
        self.missing.is_none()
    }

    /// Is it one of our pools?
    pub fn is_ours(&self) -> bool {
        matches!(self.kind, Kind::Ours { .. })
    }

    /// Does it keep contents on a disk?
    pub fn stores(&self) -> bool {
        !matches!(self.kind, Kind::Memory { .. })
    }

    /// Is it in somebody else's file system?
    fn is_guest(&self) -> bool {
        matches!(self.kind, Kind::Folder { .. })
    }

    /// Its folder in somebody else's directory.
    fn guest_folder(&self, parent: &Path) -> PathBuf {
        parent.join(format!("steadfast-lab-{}-{}", std::process::id(), self.key))
    }

    /// Where the work is done.
    pub fn place(&self) -> PathBuf {
        self.home.join("mnt")
    }

    /// Where its daemon lives.
    pub(crate) fn runtime(&self) -> PathBuf {
        self.home.join("run")
    }

    /// `steadfast` with a daemon of its own: counters and caches are then this arm's alone.
    pub(crate) fn ours(&self, words: &str) -> String {
        // If it shares something, at any free port: another daemon may have the usual one.
        let run = quoted(&self.runtime().display().to_string());
        format!("STEADFAST_NFS=127.0.0.1:0 STEADFAST_RUNTIME_DIR={run} $SF {words}")
    }

    /// Bytes that everything in it takes up, once all is durable and what was deleted is free.
    pub(crate) fn used(&self, shell: &mut Shell) -> Result<f64, Error> {
        self.settle(shell)?;
        if self.is_ours() {
            let line = self.ours(&format!("pool list -Hp -o allocated {}", self.pool()));
            let said = shell.ask(&line)?;
            return said.trim().parse().map_err(|_| Error::Answer {
                line,
                answer: said.trim().to_owned(),
                expected: "a number of bytes",
            });
        }
        let about = rustix::fs::statvfs(self.place())
            .map_err(|error| Error::io("measure", &self.place())(error.into()))?;
        Ok((about.f_blocks - about.f_bfree) as f64 * about.f_frsize as f64)
    }

    /// Makes the file system and mounts it.
    pub(crate) fn make(&mut self, shell: &mut Shell) -> Result<(), Error> {
        let (image, home, place) = (
            quoted(&self.image.display().to_string()),
            quoted(&self.home.display().to_string()),
            quoted(&self.place().display().to_string()),
        );
        let bytes = self.image_bytes;
        match self.kind.clone() {
            Kind::Loop { file_system, words, .. } => {
                shell.run(&format!(
                    "truncate -s {bytes} {image} && mkfs.{file_system} {words} {image} && mkdir {place}"
                ))?;
                self.attach(shell)?;
            }
            Kind::Gocryptfs => {
                shell.run(&format!(
                    "cd {home} && truncate -s {bytes} {image} && mkfs.ext4 -q {image} && mkdir lower mnt && \
                     echo a long comparison > pass"
                ))?;
                self.attach(shell)?;
                shell.run(&format!(
                    "cd {home} && mount {} lower && mkdir lower/cipher && \
                     gocryptfs -q -init -scryptn 10 -passfile pass lower/cipher && umount lower",
                    self.device.as_deref().unwrap_or_default()
                ))?;
            }
            Kind::Folder { parent } => {
                let folder = self.guest_folder(&parent);
                fs::create_dir(&folder).map_err(Error::io("create", &folder))?;
                let folder = folder.canonicalize().map_err(Error::io("find", &folder))?;
                std::os::unix::fs::symlink(&folder, self.place())
                    .map_err(Error::io("link", &self.place()))?;
                self.up = true;
                return Ok(());
            }
            Kind::Memory { .. } => {
                fs::create_dir(self.place()).map_err(Error::io("create", &self.place()))?
            }
            Kind::ZfsFuse { programs, words } => {
                fs::create_dir(self.place()).map_err(Error::io("create", &self.place()))?;
                self.server = Some(zfs_fuse::start(&programs, shell)?);
                let zpool = quoted(&programs.join("zpool").display().to_string());
                shell.run(&format!(
                    "truncate -s {bytes} {image} && {zpool} create -f -m {place} {words}{} {image}",
                    self.pool()
                ))?;
                self.up = true;
                return Ok(());
            }
            Kind::Ours { words, property } => {
                shell.run(&format!("cd {home} && mkdir -m 700 run && head -c 32 /dev/urandom > key"))?;
                let words = words.replace("KEY", &self.home.join("key").display().to_string());
                let create = self.ours(&format!("pool create {words} -m {place} {} {image}", self.pool()));
                shell.run(&format!("truncate -s {bytes} {image} && {create}"))?;
                self.up = true;
                if let Some(property) = property {
                    let set = self.ours(&format!("fs set {property} {}", self.pool()));
                    match shell.run(&set) {
                        Err(Error::Command { stderr, .. }) => {
                            let said = stderr.lines().next().unwrap_or("no word why").trim();
                            self.missing = Some(format!("this build refuses {property} ({said})"));
                        }
                        other => drop(other?),
                    }
                }
                return Ok(());
            }
        }
        self.mount(shell)
    }

    fn attach(&mut self, shell: &mut Shell) -> Result<(), Error> {
        let said =
            shell.run(&format!("losetup --find --show {}", quoted(&self.image.display().to_string())))?;
        self.device = Some(said.trim().to_owned());
        Ok(())
    }

    /// Name of the pool.
    pub fn pool(&self) -> String {
        format!("lab{}{}", self.key, std::process::id())
    }

    fn mount(&mut self, shell: &mut Shell) -> Result<(), Error> {
        let (home, place) =
            (quoted(&self.home.display().to_string()), quoted(&self.place().display().to_string()));
        let device = self.device.clone().unwrap_or_default();
        match &self.kind {
            Kind::Loop { options, .. } => {
                let options = if options.is_empty() { String::new() } else { format!("-o {options} ") };
                shell.run(&format!("mount {options}{device} {place}"))?;
            }
            Kind::Gocryptfs => drop(shell.run(&format!(
                "cd {home} && mount {device} lower && gocryptfs -q -passfile pass lower/cipher mnt"
            ))?),
            Kind::Memory { program } => {
                let mut child = Command::new(program)
                    .arg(self.place())
                    // It serves until this ends, or until it is unmounted.
                    .stdin(Stdio::piped())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .map_err(Error::io("run", program))?;
                let began = Instant::now();
                while mounts_below(&self.place()).is_empty() {
                    let gone = child.try_wait().map_err(Error::io("wait for", program))?.is_some();
                    if gone || began.elapsed() > PATIENCE {
                        let _ = child.kill();
                        let _ = child.wait();
                        return Err(Error::Answer {
                            line: format!("{} {place}", program.display()),
                            answer: String::new(),
                            expected: "a mount",
                        });
                    }
                    std::thread::sleep(Duration::from_millis(10));
                }
                self.server = Some(child);
            }
            Kind::Folder { .. } => {}
            Kind::ZfsFuse { programs, .. } => {
                let zpool = quoted(&programs.join("zpool").display().to_string());
                shell.run(&format!("{zpool} import -d {home} {}", self.pool()))?;
            }
            Kind::Ours { .. } => {
                let import = self.ours(&format!("pool import -l -d {home} {}", self.pool()));
                shell.run(&import)?;
            }
        }
        self.up = true;
        Ok(())
    }

    fn unmount(&mut self, shell: &mut Shell) -> Result<(), Error> {
        let (home, place) =
            (quoted(&self.home.display().to_string()), quoted(&self.place().display().to_string()));
        match &self.kind {
            Kind::Loop { .. } => drop(shell.run(&format!("umount {place}"))?),
            Kind::Gocryptfs => drop(shell.run(&format!(
                "cd {home} && umount mnt && sync -f lower && \
                 for _ in $(seq 100); do ! umount lower 2>/dev/null || exit 0; sleep 0.05; done; umount lower"
            ))?),
            Kind::Memory { .. } => {
                shell.run(&format!("umount {place}"))?;
                if let Some(mut child) = self.server.take() {
                    drop(child.stdin.take());
                    child.wait().map_err(Error::io("wait for", &self.home))?;
                }
            }
            Kind::Folder { .. } => {}
            Kind::ZfsFuse { programs, .. } => {
                let zpool = quoted(&programs.join("zpool").display().to_string());
                shell.run(&format!("{zpool} export {}", self.pool()))?;
            }
            Kind::Ours { .. } => {
                let export = self.ours(&format!("pool export {}", self.pool()));
                shell.run(&export)?;
            }
        }
        self.up = false;
        Ok(())
    }

    /// Nothing of what was written is in anybody's memory afterwards [lab_engine.1]. A file system
    /// that has nothing but memory only loses what the kernel keeps of it.
    pub(crate) fn cold(&mut self, shell: &mut Shell) -> Result<(), Error> {
        if self.is_guest() {
            // It cannot be unmounted; what was written is on the disk, and the kernel forgets it.
            return drop_kernel_caches();
        }
        if self.stores() {
            // The kernel tells a server of a file's close after the program that closed it has gone
            // on.
            let began = Instant::now();
            while let Err(error) = self.unmount(shell) {
                if matches!(error, Error::Stopped) || began.elapsed() > PATIENCE {
                    return Err(error);
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            // Writes of the loop device are in the page cache of the image file, which cannot be
            // dropped while it is dirty.
            let image = File::open(&self.image).map_err(Error::io("open", &self.image))?;
            image.sync_all().map_err(Error::io("sync", &self.image))?;
        }
        drop_kernel_caches()?;
        if self.stores() {
            self.mount(shell)?;
        }
        Ok(())
    }

    /// Everything accepted so far is on the disk.
    pub(crate) fn settle(&self, shell: &mut Shell) -> Result<(), Error> {
        if !self.stores() {
            return Ok(());
        }
        shell.ask(&format!("sync -f {}", quoted(&self.place().display().to_string())))?;
        if self.is_ours() {
            let sync = self.ours(&format!("pool sync {}", self.pool()));
            shell.ask(&sync)?;
        }
        Ok(())
    }

    /// Waits until nothing more is written to the device, and returns the counter of
    /// [`Arm::written`].
    pub(crate) fn quiet(&self, shell: &mut Shell) -> Result<u64, Error> {
        self.settle(shell)?;
        let began = Instant::now();
        let mut last = self.written(shell)?;
        loop {
            std::thread::sleep(Duration::from_millis(1_500));
            let now = self.written(shell)?;
            // A commit without content is no background work.
            if now - last < 1 << 20 || began.elapsed() > QUIET {
                return Ok(now);
            }
            last = now;
        }
    }

    /// Waits until our daemon has nothing to do, and gives the seconds that took; none for others.
    ///
    /// The kernel tells a FUSE server of each inode that it forgot, in messages of many thousands,
    /// and reads of that server's next requests wait behind them.
    pub(crate) fn rest(&self, shell: &mut Shell) -> Result<f64, Error> {
        if !self.is_ours() {
            return Ok(0.0);
        }
        let daemon = [self.daemon(shell)?];
        let began = Instant::now();
        let mut before = processor_seconds(&daemon)?;
        loop {
            let waited = began.elapsed();
            std::thread::sleep(REST);
            let now = processor_seconds(&daemon)?;
            if now - before <= REST.as_secs_f64() / 20.0 || waited > REST_MAX {
                return Ok(waited.as_secs_f64());
            }
            before = now;
        }
    }

    /// Bytes handed to the device since it was made: what the loop device was told to write, what
    /// the daemon's process wrote. Only differences between two of these without [`Arm::cold`] in
    /// between mean something.
    pub(crate) fn written(&self, shell: &mut Shell) -> Result<u64, Error> {
        if self.is_ours() {
            let pid = self.daemon(shell)?;
            let path = PathBuf::from(format!("/proc/{pid}/io"));
            let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
            return number_after(&text, "write_bytes:", &path);
        }
        if let (Kind::ZfsFuse { .. }, Some(server)) = (&self.kind, &self.server) {
            let path = PathBuf::from(format!("/proc/{}/io", server.id()));
            let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
            return number_after(&text, "write_bytes:", &path);
        }
        let name = self.device.as_deref().and_then(|device| device.strip_prefix("/dev/")).unwrap_or("loop");
        let path = PathBuf::from(format!("/sys/block/{name}/stat"));
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        // Field 7: sectors of 512 bytes written.
        let sectors = text.split_ascii_whitespace().nth(6).and_then(|field| field.parse::<u64>().ok());
        sectors.map(|sectors| sectors * 512).ok_or_else(|| unreadable(&path))
    }

    /// Bytes that its image takes of the disk below.
    pub(crate) fn occupied(&self) -> Result<u64, Error> {
        let about = fs::metadata(&self.image).map_err(Error::io("look at", &self.image))?;
        Ok(about.blocks() * 512)
    }

    /// Process id of our daemon.
    pub(crate) fn daemon(&self, shell: &mut Shell) -> Result<u32, Error> {
        let line = self.ours("daemon pid");
        let said = shell.ask(&line)?;
        said.split_ascii_whitespace().find_map(|word| word.parse().ok()).ok_or_else(|| Error::Answer {
            line,
            answer: said.trim().to_owned(),
            expected: "a process id",
        })
    }

    /// Largest resident memory our daemon ever had, bytes; and now.
    pub(crate) fn memory(&self, shell: &mut Shell) -> Result<(u64, u64), Error> {
        let path = PathBuf::from(format!("/proc/{}/status", self.daemon(shell)?));
        let text = fs::read_to_string(&path).map_err(Error::io("read", &path))?;
        Ok((number_after(&text, "VmHWM:", &path)? * 1024, number_after(&text, "VmRSS:", &path)? * 1024))
    }

    /// Takes it away, by hand first and by force after.
    pub(super) fn remove(&mut self, shell: &mut Shell) {
        if self.up {
            let _ = match self.kind {
                Kind::Ours { .. } => {
                    let destroy = self.ours(&format!("pool destroy -f {}", self.pool()));
                    shell.ask(&destroy).map(drop)
                }
                Kind::ZfsFuse { ref programs, .. } => {
                    let zpool = quoted(&programs.join("zpool").display().to_string());
                    shell.ask(&format!("{zpool} destroy -f {}", self.pool())).map(drop)
                }
                _ => self.unmount(shell),
            };
        }
        if self.is_ours() && self.runtime().exists() {
            let daemon = self.daemon(shell).ok();
            let stop = self.ours("daemon stop");
            let _ = shell.ask(&stop);
            if let Some(pid) = daemon {
                end_process(pid, &self.runtime());
            }
        }
        if let Kind::Folder { parent } = &self.kind {
            let _ = fs::remove_dir_all(self.guest_folder(parent));
        }
        for mount in mounts_below(&self.home) {
            unmount(&mount);
        }
        if let Some(mut child) = self.server.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        if matches!(self.kind, Kind::Loop { .. } | Kind::Gocryptfs) {
            // The image is ours, and so is whatever is attached to it.
            loop_device::detach(&self.image, &[], shell);
            self.device = None;
        }
        let _ = fs::remove_dir_all(&self.home);
    }
}

fn unreadable(path: &Path) -> Error {
    Error::Io { doing: "understand", path: path.to_owned(), source: std::io::ErrorKind::InvalidData.into() }
}

fn number_after(text: &str, name: &str, path: &Path) -> Result<u64, Error> {
    text.lines()
        .find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok())
        .ok_or_else(|| unreadable(path))
}
