//! Pools of our own on image files, as the target of an experiment.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use steadfast_lab_report::report::{self, Space};

use super::target::{Target, Volume};
use crate::error::Error;
use crate::host::commands::Commands;
use crate::host::mounts::{mounts_below, unmount};
use crate::host::processes::end_process;
use crate::host::requirements::check_fuse;
use crate::host::space;
use crate::host::workdir::Workdir;

/// Pools of our own on image files, held by a daemon of our own, in a directory of our own:
/// whatever pools the user has are never touched.
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
    /// Mounts lie inside mounts. Only root can: the kernel lets nobody but the owner into a user's
    /// mount, so fusermount3, which is root, cannot reach a folder in it.
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

    /// Makes a pool of several images, one group of `kind`. Gives its mountpoint and the images.
    pub fn prepare_group(
        &mut self,
        pool: &'static str,
        kind: &str,
        members: usize,
        set: &[&str],
    ) -> Result<(PathBuf, Vec<PathBuf>), Error> {
        let mount = self.mounts.join(pool);
        let images: Vec<PathBuf> = (1..=members).map(|at| self.image(&format!("{pool}{at}"))).collect();
        for image in &images {
            self.make_image(image)?;
        }
        let mountpoint = mount.display().to_string();
        let mut words = vec!["pool".to_owned(), "create".to_owned(), "-m".to_owned(), mountpoint];
        for setting in set {
            words.extend(["-O".to_owned(), (*setting).to_owned()]);
        }
        words.extend([pool.to_owned(), kind.to_owned()]);
        words.extend(images.iter().map(|image| image.display().to_string()));
        self.made.push(pool);
        self.commands.run(&words.iter().map(String::as_str).collect::<Vec<_>>(), None)?;
        self.daemon = self.daemon_pid();
        Ok((mount, images))
    }

    /// Makes a sparse image.
    pub fn make_image(&mut self, image: &Path) -> Result<(), Error> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(image)
            .map_err(Error::io("create", image))?;
        file.set_len(self.image_bytes).map_err(Error::io("lengthen", image))?;
        self.commands.note(format!("truncate -s {} {}", self.image_bytes, image.display()));
        Ok(())
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
        self.make_image(&image)?;
        let (image, mount) = (image.display().to_string(), self.mounts.join(volume.pool));
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
        space::sync(&place)?;
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn volume(arm: &'static str) -> Volume {
        Volume { arm, pool: "p", set: &[], dataset: None }
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
                // A process that another test began a moment ago has the program open for writing
                // until it runs its own.
                Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
                other => panic!("{other:?}"),
            }
        }
    }
}
