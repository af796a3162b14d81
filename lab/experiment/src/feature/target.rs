//! What is measured. An experiment says what volumes it needs; a target makes them, by commands, and takes them away.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::command::Commands;
use crate::error::Error;
use crate::report;
use crate::report::Space;
use crate::space;
use crate::workdir::{Workdir, mounts_below};

/// A volume as the source reports make it: a pool on an image file, a property set on it, perhaps a dataset in it.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Key of the arm it serves.
    pub arm: &'static str,
    /// Name of the pool; the image file is named like it.
    pub pool: &'static str,
    /// Properties set on the pool after it is made.
    pub set: &'static [&'static str],
    /// A dataset in the pool, and where the anchor then lies.
    pub dataset: Option<Dataset>,
}

/// A dataset below a pool.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Name below the pool.
    pub name: &'static str,
    /// Properties it is made with.
    pub properties: &'static [&'static str],
    /// What is typed on standard input.
    pub passphrase: Option<&'static str>,
}

impl Volume {
    /// Name of the file system that holds the anchor: `zfs_encrypt/encrypted`.
    pub fn file_system(&self) -> String {
        match &self.dataset {
            Some(dataset) => format!("{}/{}", self.pool, dataset.name),
            None => self.pool.to_owned(),
        }
    }
}

/// Something that can be measured.
pub trait Target {
    /// What it is, for the report.
    fn describe(&self) -> String;

    /// Names of the arms, long and short, where they are not what the experiment says: somebody else's directories.
    fn names(&self) -> Option<Vec<(String, String)>> {
        None
    }

    /// Makes a volume and returns the directory that the anchor maps to.
    fn prepare(&mut self, volume: &Volume) -> Result<PathBuf, Error>;

    /// Makes everything written durable, so that space is what it will stay.
    fn settle(&mut self, volume: &Volume) -> Result<(), Error>;

    /// Space the volume takes.
    fn space(&mut self, volume: &Volume) -> Result<Space, Error>;

    /// How the used space is measured, in words.
    fn used_how(&self) -> &'static str;

    /// Processes that do the work of the file system.
    fn processes(&mut self) -> Vec<u32>;

    /// Image files, by pool.
    fn images(&self) -> BTreeMap<String, PathBuf> {
        BTreeMap::new()
    }

    /// What was run so far.
    fn history(&self) -> Vec<report::Command>;

    /// Takes everything away that was made. Called in every case; called twice, the second call does nothing.
    fn clean_up(&mut self) -> Result<(), Error>;

    /// Leaves everything as it is, and says how to take it away by hand.
    fn keep(&mut self) -> String;
}

/// Directories that somebody has mounted: any file systems can be compared with the same load.
#[derive(Debug)]
pub struct Directories {
    given: Vec<PathBuf>,
    taken: BTreeMap<&'static str, (PathBuf, u64)>,
}

impl Directories {
    /// One directory an arm, in the order of the arms.
    pub fn new(given: Vec<PathBuf>) -> Self {
        Self { given, taken: BTreeMap::new() }
    }

    fn is_mount(directory: &Path) -> bool {
        let here = fs::metadata(directory).map(|about| about.dev());
        let above = fs::metadata(directory.join("..")).map(|about| about.dev());
        matches!((here, above), (Ok(here), Ok(above)) if here != above)
    }
}

impl Target for Directories {
    fn describe(&self) -> String {
        let names: Vec<String> = self.given.iter().map(|path| path.display().to_string()).collect();
        format!("directories {}", names.join(" and "))
    }

    fn names(&self) -> Option<Vec<(String, String)>> {
        let short = ["A", "B", "C", "D"].iter().cycle();
        let named = |(path, short): (&PathBuf, &&str)| {
            let kind = steadfast_lab_report::machine::file_system_type(path);
            (format!("{short}: {} ({kind})", path.display()), (*short).to_owned())
        };
        Some(self.given.iter().zip(short).map(named).collect())
    }

    fn prepare(&mut self, volume: &Volume) -> Result<PathBuf, Error> {
        let place = self.given.get(self.taken.len()).cloned().ok_or_else(|| {
            Error::Usage(format!(
                "this experiment compares {} directories; write --target dir:FIRST,SECOND",
                self.taken.len() + 1
            ))
        })?;
        let place = place.canonicalize().map_err(Error::io("find", &place))?;
        let mut entries = fs::read_dir(&place).map_err(Error::io("list", &place))?;
        // A fresh ext4 has lost+found; anything else might be somebody's, and formatting would write beside it.
        let foreign = entries
            .find_map(|entry| entry.ok().map(|entry| entry.file_name()).filter(|name| name != "lost+found"));
        if let Some(name) = foreign {
            return Err(Error::Missing {
                what: format!("{} is not empty: it holds {}.", place.display(), name.to_string_lossy()),
                action: "name an empty directory, one for each side.".to_owned(),
            });
        }
        let before = if Self::is_mount(&place) { space::df(&place)?.1 } else { u64::MAX };
        self.taken.insert(volume.arm, (place.clone(), before));
        Ok(place)
    }

    fn settle(&mut self, volume: &Volume) -> Result<(), Error> {
        if let Some((place, _)) = self.taken.get(volume.arm) {
            sync_file_system(place)?;
        }
        Ok(())
    }

    fn space(&mut self, volume: &Volume) -> Result<Space, Error> {
        let Some((place, before)) = self.taken.get(volume.arm) else { return Ok(Space::default()) };
        let mut found = space::measure(place)?;
        // On a shared file system only the files' own blocks are ours.
        found.used = Some(if *before == u64::MAX { found.du } else { found.df_used.saturating_sub(*before) });
        Ok(found)
    }

    fn used_how(&self) -> &'static str {
        "What the files added to df, or their blocks where the directory is no mount"
    }

    fn processes(&mut self) -> Vec<u32> {
        Vec::new()
    }

    fn history(&self) -> Vec<report::Command> {
        Vec::new()
    }

    fn clean_up(&mut self) -> Result<(), Error> {
        for (place, _) in std::mem::take(&mut self.taken).into_values() {
            for entry in fs::read_dir(&place).map_err(Error::io("list", &place))?.flatten() {
                let path = entry.path();
                if entry.file_name() == "lost+found" {
                    continue;
                }
                let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
                removed.map_err(Error::io("remove", &path))?;
            }
        }
        Ok(())
    }

    fn keep(&mut self) -> String {
        let names: Vec<String> =
            self.taken.values().map(|(place, _)| format!("{}/*", place.display())).collect();
        self.taken.clear();
        format!("rm -r {}", names.join(" "))
    }
}

/// Makes the file system of a directory durable.
fn sync_file_system(directory: &Path) -> Result<(), Error> {
    let handle = File::open(directory).map_err(Error::io("open", directory))?;
    rustix::fs::syncfs(&handle).map_err(|error| Error::io("sync", directory)(error.into()))
}

/// Pools of our own on image files, held by a daemon of our own, in a directory of our own: whatever pools the user
/// has are never touched.
#[derive(Debug)]
pub struct Pools {
    commands: Commands,
    version: String,
    image_bytes: u64,
    images: PathBuf,
    mounts: PathBuf,
    runtime: PathBuf,
    made: Vec<&'static str>,
    daemon: Option<u32>,
    workdir: Workdir,
    clean: bool,
    /// Mounts lie inside mounts. Only root can: the kernel lets nobody but the owner into a user's mount, so
    /// fusermount3, which is root, cannot reach a folder in it.
    nested: bool,
}

impl Pools {
    /// Prepares a private place below `parent`. `program` is the `steadfast` executable.
    pub fn new(program: &Path, version: &str, image_bytes: u64, parent: &Path) -> Result<Self, Error> {
        check_fuse()?;
        let workdir = Workdir::create(parent)?;
        let runtime = workdir.subdirectory("run")?;
        let scratch = workdir.subdirectory("out")?;
        let environment = vec![("STEADFAST_RUNTIME_DIR".to_owned(), runtime.clone())];
        Ok(Self {
            commands: Commands::new(program, "steadfast", environment, &scratch),
            version: version.to_owned(),
            image_bytes,
            images: workdir.subdirectory("img")?,
            mounts: workdir.subdirectory("mnt")?,
            runtime,
            made: Vec::new(),
            daemon: None,
            workdir,
            clean: false,
            nested: rustix::process::geteuid().is_root(),
        })
    }

    /// Ends a command that is waited for when this is set, but for those that take everything away.
    #[must_use]
    pub fn heeding(mut self, stop: Arc<AtomicBool>) -> Self {
        self.commands.heed(Some(stop));
        self
    }

    /// The commands, for experiments that need more than volumes.
    pub fn commands(&mut self) -> &mut Commands {
        &mut self.commands
    }

    /// Where a volume's files are.
    fn place(&self, volume: &Volume) -> PathBuf {
        match &volume.dataset {
            None => self.mounts.join(volume.pool),
            Some(dataset) if self.nested => self.mounts.join(volume.pool).join(dataset.name),
            Some(dataset) => self.mounts.join(format!("{}.{}", volume.pool, dataset.name)),
        }
    }

    fn image(&self, pool: &str) -> PathBuf {
        self.images.join(format!("{pool}.img"))
    }

    fn property(&mut self, volume: &Volume, names: &str) -> Result<Vec<u64>, Error> {
        let file_system = volume.file_system();
        let args = ["fs", "list", "-Hp", "-o", names, &file_system];
        let answer = self.commands.ask(&args)?;
        let values: Vec<u64> = answer.split_ascii_whitespace().filter_map(|word| word.parse().ok()).collect();
        if values.len() != names.split(',').count() {
            return Err(Error::Answer {
                line: format!("steadfast {}", args.join(" ")),
                answer: answer.trim().to_owned(),
                expected: "a line of numbers",
            });
        }
        Ok(values)
    }

    /// Process id of our daemon, if it runs.
    fn daemon_pid(&mut self) -> Option<u32> {
        let ended = self.commands.attempt(&["daemon", "pid"], None, false).ok()?;
        if ended.status != Some(0) {
            return None;
        }
        ended.stdout.split_ascii_whitespace().find_map(|word| word.parse().ok())
    }
}

impl Target for Pools {
    fn describe(&self) -> String {
        format!("Steadfast {} through FUSE, pools on image files", self.version)
    }

    fn prepare(&mut self, volume: &Volume) -> Result<PathBuf, Error> {
        if self.commands.history().is_empty() {
            self.commands.note(format!("export STEADFAST_RUNTIME_DIR={}", self.runtime.display()));
        }
        let image = self.image(volume.pool);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&image)
            .map_err(Error::io("create", &image))?;
        file.set_len(self.image_bytes).map_err(Error::io("lengthen", &image))?;
        let (image, mount) = (image.display().to_string(), self.mounts.join(volume.pool));
        self.commands.note(format!("truncate -s {} {image}", self.image_bytes));
        let mountpoint = mount.display().to_string();
        self.made.push(volume.pool);
        self.commands.run(&["pool", "create", "-m", &mountpoint, volume.pool, &image], None)?;
        for setting in volume.set {
            self.commands.run(&["fs", "set", setting, volume.pool], None)?;
        }
        let place = self.place(volume);
        if let Some(dataset) = &volume.dataset {
            let name = volume.file_system();
            let elsewhere = format!("mountpoint={}", place.display());
            let mut args = vec!["fs", "create"];
            for property in dataset.properties {
                args.extend(["-o", property]);
            }
            if !self.nested {
                args.extend(["-o", &elsewhere]);
            }
            args.push(&name);
            let input = dataset.passphrase.map(|secret| format!("{secret}\n"));
            self.commands.run(&args, input.as_deref())?;
        }
        self.daemon = self.daemon_pid();
        if !mounts_below(&self.mounts).contains(&place) {
            return Err(Error::Missing {
                what: format!(
                    "{} was made, but nothing is mounted at {}.",
                    volume.file_system(),
                    place.display()
                ),
                action: format!("look into the daemon's log below {} with --keep.", self.runtime.display()),
            });
        }
        Ok(place)
    }

    fn settle(&mut self, volume: &Volume) -> Result<(), Error> {
        let place = self.place(volume);
        sync_file_system(&place)?;
        self.commands.ask(&["pool", "sync", volume.pool]).map(drop)
    }

    fn space(&mut self, volume: &Volume) -> Result<Space, Error> {
        let place = self.place(volume);
        let mut found = space::measure(&place)?;
        let values = self.property(volume, "used,referenced,logicalused")?;
        (found.used, found.referenced, found.logical_used) =
            (values.first().copied(), values.get(1).copied(), values.get(2).copied());
        Ok(found)
    }

    fn used_how(&self) -> &'static str {
        "The Used column of df, after the last run"
    }

    fn processes(&mut self) -> Vec<u32> {
        self.daemon.into_iter().collect()
    }

    fn images(&self) -> BTreeMap<String, PathBuf> {
        self.made.iter().map(|pool| ((*pool).to_owned(), self.image(pool))).collect()
    }

    fn history(&self) -> Vec<report::Command> {
        self.commands.history().to_vec()
    }

    fn clean_up(&mut self) -> Result<(), Error> {
        if self.clean {
            return Ok(());
        }
        self.clean = true;
        self.commands.heed(None);
        // First as one would by hand, then whatever is left by force. Only the last result matters.
        let daemon = self.daemon.or_else(|| self.daemon_pid());
        if daemon.is_some() {
            for pool in std::mem::take(&mut self.made).into_iter().rev() {
                let _ = self.commands.run(&["pool", "destroy", "-f", pool], None);
            }
            let _ = self.commands.run(&["daemon", "stop"], None);
        }
        if let Some(pid) = daemon {
            end_process(pid, &self.runtime);
        }
        for mount in mounts_below(self.workdir.path()) {
            unmount(&mount);
        }
        self.workdir.remove()
    }

    fn keep(&mut self) -> String {
        self.clean = true;
        self.workdir.keep();
        let runtime = self.runtime.display();
        let path = self.workdir.path().display();
        format!("STEADFAST_RUNTIME_DIR={runtime} steadfast daemon stop && rm -r {path}")
    }
}

impl Drop for Pools {
    fn drop(&mut self) {
        let _ = self.clean_up();
    }
}

/// Waits for our daemon to end, and ends it if it does not: first politely. `runtime` must stand in its command line
/// or environment, so that a process id used anew is never hit.
pub fn end_process(pid: u32, runtime: &Path) {
    use rustix::process::{Pid, Signal, kill_process};
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else { return };
    let ours = || {
        let marker = runtime.as_os_str().as_encoded_bytes();
        ["cmdline", "environ"].iter().any(|file| {
            fs::read(format!("/proc/{pid}/{file}"))
                .is_ok_and(|bytes| bytes.windows(marker.len()).any(|window| window == marker))
        })
    };
    for (signal, patience_ms) in
        [(None, 60_000u64), (Some(Signal::TERM), 60_000), (Some(Signal::KILL), 60_000)]
    {
        if let Some(signal) = signal {
            if !ours() {
                return;
            }
            let _ = kill_process(id, signal);
        }
        for _ in 0..patience_ms / 20 {
            if !ours() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Takes a mount away whose daemon is gone: `fusermount3` works for everybody, `umount` for root.
pub fn unmount(mount: &Path) {
    for (program, flags) in [("fusermount3", ["-u", "-z"]), ("umount", ["-l", "--"])] {
        let done = std::process::Command::new(program)
            .args(flags)
            .arg(mount)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status();
        if done.is_ok_and(|status| status.success()) {
            return;
        }
    }
}

/// Is there what a FUSE mount needs? Says what is missing and what to type.
pub fn check_fuse() -> Result<(), Error> {
    let device = Path::new("/dev/fuse");
    if !device.exists() {
        return Err(Error::Missing {
            what: "This needs FUSE, and there is no /dev/fuse on this machine.".to_owned(),
            action: "type `sudo modprobe fuse`; in a container, start it with `--device /dev/fuse --cap-add SYS_ADMIN`."
                .to_owned(),
        });
    }
    let root = rustix::process::geteuid().is_root();
    if !root && !on_path("fusermount3") {
        return Err(Error::Missing {
            what: "This needs fusermount3 to mount without being root, and it is not installed.".to_owned(),
            action: "type `sudo apt install fuse3` (Fedora: `sudo dnf install fuse3`), or run this as root."
                .to_owned(),
        });
    }
    match OpenOptions::new().read(true).write(true).open(device) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied && !root => Err(Error::Missing {
            what: "This needs FUSE, and /dev/fuse may not be opened by this user.".to_owned(),
            action: "type `sudo chmod 666 /dev/fuse` (what most distributions ship), or run this as root.".to_owned(),
        }),
        Err(error) => Err(Error::Missing {
            what: format!("This needs FUSE, and /dev/fuse cannot be opened: {error}."),
            action: "type `sudo modprobe fuse`; in a container, start it with `--device /dev/fuse --cap-add SYS_ADMIN`."
                .to_owned(),
        }),
    }
}

pub(crate) fn on_path(program: &str) -> bool {
    std::env::var_os("PATH")
        .is_some_and(|path| std::env::split_paths(&path).any(|folder| folder.join(program).is_file()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn volume(arm: &'static str) -> Volume {
        Volume { arm, pool: "p", set: &[], dataset: None }
    }

    #[test]
    fn a_directory_with_somebodys_files_is_refused_and_left_alone() {
        let dir = Workdir::create(&std::env::temp_dir()).unwrap();
        fs::write(dir.path().join("thesis.txt"), "x").unwrap();
        let mut target = Directories::new(vec![dir.path().to_owned()]);
        let error = target.prepare(&volume("on")).unwrap_err().to_string();
        assert!(error.contains("thesis.txt") && error.contains("action:"), "{error}");
        target.clean_up().unwrap();
        assert!(dir.path().join("thesis.txt").exists());
    }

    /// Making a pool never ends by itself: a program that is none of ours.
    #[test]
    fn a_command_that_is_waited_for_ends_and_what_was_made_goes() {
        if check_fuse().is_err() {
            return;
        }
        let dir = Workdir::create(&std::env::temp_dir()).unwrap();
        let program = dir.path().join("program");
        fs::write(&program, "#!/bin/sh\ntest $2 != create || sleep 100000\nexit 1\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let stop = Arc::new(AtomicBool::new(true));
        loop {
            let pools = Pools::new(&program, "1", 64 << 20, dir.path()).unwrap();
            let mut pools = pools.heeding(Arc::clone(&stop));
            let place = pools.workdir.path().to_owned();
            let prepared = pools.prepare(&volume("on"));
            pools.clean_up().unwrap();
            assert!(!place.exists());
            match prepared {
                Err(Error::Stopped) => break,
                // A process that another test began a moment ago has the program open for writing until it runs its own.
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn too_few_directories_is_a_usage_error() {
        let dir = Workdir::create(&std::env::temp_dir()).unwrap();
        let mut target = Directories::new(vec![dir.path().to_owned()]);
        target.prepare(&volume("on")).unwrap();
        assert_eq!(target.prepare(&volume("off")).unwrap_err().exit_status(), 2);
    }

    #[test]
    fn cleaning_up_removes_what_the_load_made() {
        let dir = Workdir::create(&std::env::temp_dir()).unwrap();
        let mut target = Directories::new(vec![dir.path().to_owned()]);
        let place = target.prepare(&volume("on")).unwrap();
        fs::create_dir(place.join("vdb.1_1.dir")).unwrap();
        fs::write(place.join("vdb.1_1.dir/vdb_f0000.file"), vec![7; 5000]).unwrap();
        assert_eq!(target.space(&volume("on")).unwrap().apparent, 5000);
        target.clean_up().unwrap();
        assert_eq!(fs::read_dir(&place).unwrap().count(), 0);
    }
}
