//! Questions that the source report left open: on slow devices, what do more memory, a cache device
//! and special devices gain?
//!
//! A tree of small files in the shape of sources is read file by file by one reader, from a raidz1
//! of four devices that stand for hard disks; cache and special devices answer at once. *Cold* is
//! the first read after an import with little memory, the kernel's caches dropped; *again* is a
//! second read, the kernel's caches dropped in between.

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use steadfast_lab_report::figures::{self, Row, shown};

use super::measure::{Hands, MEMORY, STAGE_S};
use super::redundant::{Kind, Redundant, alive};
use crate::error::Error;
use crate::host::caches::drop_kernel_caches;
use crate::host::workdir::Workdir;
use crate::load::source_tree;

/// Caches of little memory, MiB each: they hold less than the tree.
const LITTLE_MIB: u64 = 4;
/// Bytes of a device; none of it is taken before it is written.
const DEVICE_BYTES: u64 = 256 << 20;
/// Devices that stand for hard disks.
const DISKS: usize = 4;
/// Largest block that goes to special devices as a small one.
const SMALL: &str = "32K";
/// Column that the figures stand in.
const ARM: &str = "raidz1";

/// Keys of the rows, and what is said of them.
const ROWS: [(&str, &str); 6] = [
    ("small_cold", "small files read cold from hard disks"),
    ("small_again", "read again, caches of 4 MiB"),
    ("small_memory", "read again, caches of 1024 MiB"),
    ("small_cache", "read again, caches of 4 MiB and a cache device"),
    ("small_special", "read cold, metadata on special devices"),
    ("small_both", "read cold, small blocks there as well"),
];

/// Devices beside the disks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Beside {
    /// Nothing at first, then a cache device.
    Cache,
    /// A special mirror.
    Special,
}

/// The pool that is asked; nothing is made yet.
pub(super) fn bench(beside: Beside, workdir: &Workdir) -> Result<Redundant, Error> {
    let key = if beside == Beside::Cache { "slow" } else { "special" };
    let home = workdir.subdirectory(key)?;
    let devices = (0..DISKS).map(|at| home.join(format!("d{at}.img"))).collect();
    let spare = home.join("unused.img");
    Ok(Redundant::new(key, Kind::Ours { parity: 1 }, home.clone(), devices, spare, DEVICE_BYTES, true))
}

impl Hands<'_> {
    /// All of it on one pool.
    pub(super) fn small_files(
        mut self,
        beside: Beside,
        files: u64,
        bench: &mut Redundant,
    ) -> Result<(), Error> {
        self.alive()?;
        self.progress.begin(&format!("round {}: {files} small files, {}", self.round, bench.key));
        bench.make_slow(beside == Beside::Special, self.shell)?;
        match beside {
            Beside::Cache => {
                self.plant(files, bench)?;
                self.wake(LITTLE_MIB, bench)?;
                self.read("small_cold", files, bench)?;
                self.read("small_again", files, bench)?;
                self.wake(MEMORY[1], bench)?;
                read(&bench.tree(), files, self.stop)?;
                self.read("small_memory", files, bench)?;
                // It fills at the rate of the disks; a reader never waits for it.
                bench.add_cache(DEVICE_BYTES, self.shell)?;
                self.wake(LITTLE_MIB, bench)?;
                read(&bench.tree(), files, self.stop)?;
                self.read("small_cache", files, bench)?;
            }
            Beside::Special => {
                self.plant(files, bench)?;
                self.wake(LITTLE_MIB, bench)?;
                self.read("small_special", files, bench)?;
                bench.model("", self.shell)?;
                fs::remove_dir_all(bench.tree()).map_err(Error::io("remove", &bench.tree()))?;
                bench.set("special_small_blocks", SMALL, self.shell)?;
                self.plant(files, bench)?;
                self.wake(LITTLE_MIB, bench)?;
                self.read("small_both", files, bench)?;
            }
        }
        self.progress.advance(STAGE_S, "");
        Ok(())
    }

    /// Makes the tree, as fast as it goes.
    fn plant(&mut self, files: u64, bench: &Redundant) -> Result<(), Error> {
        let tree = bench.tree();
        source_tree::make(&tree, files, u64::from(self.round)).map_err(Error::io("fill", &tree))?;
        bench.sync(self.shell)
    }

    /// Begins anew with caches of so many MiB each; from then on the devices are hard disks.
    fn wake(&mut self, mib: u64, bench: &mut Redundant) -> Result<(), Error> {
        bench.restart(mib, self.shell)?;
        bench.model(self.model, self.shell)
    }

    fn read(&mut self, key: &'static str, files: u64, bench: &Redundant) -> Result<(), Error> {
        self.alive()?;
        let seconds = read(&bench.tree(), files, self.stop)?;
        let label = ROWS.iter().find(|(known, _)| *known == key).map_or(key, |(_, label)| *label);
        let how = "One reader, file by file, directory by directory; the kernel's caches dropped before.";
        let row = Row::new(key, label, "files/s", true, how);
        figures::add(&mut self.report.rows, &row, ARM, files as f64 / seconds);
        Ok(())
    }
}

/// Reads all files of a tree, which must be as many as were made. Gives seconds.
fn read(tree: &Path, files: u64, stop: &AtomicBool) -> Result<f64, Error> {
    drop_kernel_caches()?;
    let began = Instant::now();
    let found = read_below(tree, stop)?;
    let seconds = began.elapsed().as_secs_f64();
    if found != files {
        return Err(Error::Answer {
            line: format!("read {}", tree.display()),
            answer: format!("{found} files"),
            expected: "as many as were made",
        });
    }
    Ok(seconds)
}

fn read_below(folder: &Path, stop: &AtomicBool) -> Result<u64, Error> {
    let mut found = 0;
    for entry in fs::read_dir(folder).map_err(Error::io("list", folder))? {
        alive(stop)?;
        let path = entry.map_err(Error::io("list", folder))?.path();
        if path.is_dir() {
            found += read_below(&path, stop)?;
        } else {
            fs::read(&path).map_err(Error::io("read", &path))?;
            found += 1;
        }
    }
    Ok(found)
}

/// Rows of this part.
pub(super) fn is_of_this(row: &Row) -> bool {
    ROWS.iter().any(|(key, _)| *key == row.key)
}

/// Effect of a cache device on a scan of hard disks, in a sentence.
pub(super) fn of_scans(rows: &[Row]) -> Option<String> {
    let rate = |key: &str| rows.iter().find(|row| row.key == key)?.median(ARM);
    Some(format!(
        "A cache device in front of hard disks that are healed or replaced, which held {:.0} % of the content: healed {} MB/s ({} without it), resilvered {} MB/s ({} without). It can \
         change nothing: a scrub and a resilver read the columns of the devices themselves, for those are what is asked about, and a cache device holds blocks of content for whoever \
         reads files. Nor can a log device, which holds what fsync asked for.",
        rate("diskcacheheld")? * 100.0,
        shown(rate("diskcacheheal")?),
        shown(rate("diskheal")?),
        shown(rate("diskcacheresilver")?),
        shown(rate("diskresilver")?)
    ))
}

/// Answers on disks of this model, in sentences.
pub(super) fn answers(rows: &[Row], model: &str) -> Vec<String> {
    let rate = |key: &str| rows.iter().find(|row| row.key == key)?.median(ARM);
    let Some(cold) = rate("small_cold") else { return Vec::new() };
    let times = |rate: f64, than: f64| format!("{} files/s, {} times", shown(rate), shown(rate / than));
    let mut answers = vec![format!(
        "Small files read by one reader from hard disks ({model}, raidz1 of {DISKS}): {} a second, cold.",
        shown(cold)
    )];
    if let (Some(again), Some(memory)) = (rate("small_again"), rate("small_memory")) {
        answers.push(format!(
            "More memory: what was read once is read again at {} what it is cold ({} with caches that hold less than the tree). It \
             helps nothing that is read for the first time after an import.",
            times(memory, cold),
            times(again, cold)
        ));
        if let Some(cache) = rate("small_cache") {
            answers.push(format!(
                "A cache device in front of the disks, with little memory: read again at {} what it is without one. It holds content, \
                 not metadata, and is empty after an import.",
                times(cache, again)
            ));
        }
    }
    if let (Some(special), Some(both)) = (rate("small_special"), rate("small_both")) {
        answers.push(format!(
            "Special devices: cold reading at {} what it is without them with metadata there, and {} with blocks up to {SMALL} there \
             too. They gain after an import as well, and have to be as safe as the disks.",
            times(special, cold),
            times(both, cold)
        ));
    }
    answers
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    #[test]
    fn answers_are_made_of_what_was_measured() {
        let answers = |rows: &[Row]| answers(rows, "disk seek=8ms rate=60M");
        assert!(answers(&[]).is_empty());
        let rates = [50.0, 80.0, 5000.0, 400.0, 100.0, 2000.0];
        let mut rows = Vec::new();
        for ((key, label), rate) in ROWS.into_iter().zip(rates) {
            figures::add(&mut rows, &Row::new(key, label, "files/s", true, ""), ARM, rate);
        }
        let said = answers(&rows);
        assert_eq!(said.len(), 4);
        for (sentence, words) in said.iter().zip(["50", "100 times", "5.00 times", "40"]) {
            assert!(sentence.contains(words), "{words}: {sentence}");
        }
        assert_eq!(answers(&rows[..1]).len(), 1, "what was not measured is not told");
        assert!(rows.iter().all(is_of_this));
    }

    #[test]
    fn what_a_cache_device_is_to_scans_is_told_where_it_was_measured() {
        let mut rows = Vec::new();
        for (key, value) in
            [("diskcacheheld", 0.987), ("diskheal", 8.1), ("diskcacheheal", 8.2), ("diskresilver", 15.5)]
        {
            assert_eq!(of_scans(&rows), None, "before {key}");
            figures::add(&mut rows, &Row::new(key, key, "MB/s", true, ""), ARM, value);
        }
        assert_eq!(of_scans(&rows), None);
        figures::add(&mut rows, &Row::new("diskcacheresilver", "", "MB/s", true, ""), ARM, 15.4);
        let said = of_scans(&rows).unwrap();
        for words in [
            "99 % of the content",
            "healed 8.20 MB/s (8.10 without it)",
            "resilvered 15.4 MB/s (15.5 without)",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
    }

    #[test]
    fn a_tree_is_read_to_its_last_file() {
        let dir = Workdir::create(&std::env::temp_dir()).unwrap();
        let tree = dir.path().join("tree");
        source_tree::make(&tree, 100, 1).unwrap();
        let stop = AtomicBool::new(false);
        assert_eq!(read_below(&tree, &stop).unwrap(), 100);
        stop.store(true, Ordering::Relaxed);
        assert!(matches!(read_below(&tree, &stop), Err(Error::Stopped)));
    }
}
