//! Directories that somebody has mounted, as the target of an experiment.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use steadfast_lab_report::machine;
use steadfast_lab_report::report::{self, Space};

use super::target::{Target, Volume};
use crate::error::Error;
use crate::host::space;

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
            let kind = machine::file_system_type(path);
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
        // A fresh ext4 has lost+found; anything else might be somebody's, and formatting would
        // write beside it.
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
            space::sync(place)?;
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
        "Growth of df, or the blocks of the files where the directory is no mount"
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::workdir::Workdir;

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
