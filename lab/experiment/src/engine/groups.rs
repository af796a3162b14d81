//! The groups of work: each is run in interleaved rounds on every arm that takes part.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

use steadfast_lab_report::figures::{Row, shown};
use steadfast_lab_report::number;

use super::Run;
use super::request::{EngineRequest, Sizes};
use crate::comparison::ComparisonReport;
use crate::error::Error;
use crate::file_systems::Arm;
use crate::host::caches::drop_kernel_caches;
use crate::host::commands::quoted;
use crate::host::shell::Shell;
use crate::load::files::{self, Blocks, Noise};
use crate::load::source_tree;

/// State of a group while it runs on one arm.
struct Hands<'a> {
    arm: &'a mut Arm,
    shell: &'a mut Shell,
    report: &'a mut ComparisonReport,
    sizes: &'a Sizes,
    archive: &'a Path,
    /// A folder on the disk of the images.
    scratch: &'a Path,
    round: u32,
}

type Work = fn(&mut Hands<'_>) -> Result<(), Error>;

struct Group {
    name: &'static str,
    run: Work,
    /// It needs contents on a disk.
    stores: bool,
    /// Arms that would tell nothing new and are left out.
    without: &'static [&'static str],
    /// Once is enough: it counts bytes, and takes long.
    once: bool,
    /// Relative duration, for the progress bar.
    weight: f64,
}

const GROUPS: &[Group] = &[
    Group { name: "file", run: file, stores: true, without: &[], once: false, weight: 6.0 },
    Group {
        name: "ratio",
        run: ratio,
        stores: true,
        without: &["xfs", "btrfs", "gocryptfs", "sealed"],
        once: false,
        weight: 1.0,
    },
    Group { name: "fsync", run: fsync, stores: true, without: &[], once: false, weight: 2.0 },
    Group { name: "names", run: names, stores: false, without: &[], once: false, weight: 4.0 },
    Group { name: "tree", run: tree, stores: false, without: &[], once: false, weight: 4.0 },
    Group { name: "cow", run: cow, stores: true, without: &["xfs", "lz4"], once: true, weight: 12.0 },
];

fn rounds(group: &Group, request: &EngineRequest) -> u32 {
    if group.once { 1 } else { request.rounds() }
}

/// Units of the progress bar, all groups together.
pub(super) fn steps(request: &EngineRequest) -> f64 {
    let arms = request.arms.as_ref().map_or(super::columns::KEYS.len(), Vec::len) as f64;
    let wanted = GROUPS.iter().filter(|group| request.wants(group.name));
    wanted.map(|group| group.weight * f64::from(rounds(group, request)) * arms).sum()
}

/// Runs all groups that are asked for.
pub(super) fn run(run: &mut Run<'_>) -> Result<(), Error> {
    let sizes = run.request.sizes();
    let archive = if run.request.wants("tree") { source_archive(run, &sizes)? } else { PathBuf::new() };
    for group in GROUPS.iter().filter(|group| run.request.wants(group.name)) {
        for round in 0..rounds(group, run.request) {
            let mut present: Vec<&mut Arm> = run.arms.present();
            // Each round begins with another arm [lab_engine.2].
            let first = round as usize % present.len().max(1);
            present.rotate_left(first);
            for arm in present {
                if run.stop.load(std::sync::atomic::Ordering::Relaxed) {
                    return Err(Error::Stopped);
                }
                run.progress.begin(&format!("{}, round {}: {}", group.name, round + 1, arm.label));
                if (arm.stores() || !group.stores) && !group.without.contains(&arm.key) {
                    let mut hands = Hands {
                        arm,
                        shell: &mut run.shell,
                        report: &mut run.report,
                        sizes: &sizes,
                        archive: &archive,
                        scratch: &run.scratch,
                        round,
                    };
                    (group.run)(&mut hands)?;
                }
                run.progress.advance(group.weight, "");
            }
        }
    }
    if run.request.wants("memory") {
        memory(run)?;
    }
    Ok(())
}

/// The archive that is unpacked: given, or made from a seed.
fn source_archive(run: &mut Run<'_>, sizes: &Sizes) -> Result<PathBuf, Error> {
    let archive = run.scratch.join("source.tar");
    let (scratch, shown) =
        (quoted(&run.scratch.display().to_string()), quoted(&archive.display().to_string()));
    match &run.request.source {
        Some(given) => {
            let given = given.canonicalize().map_err(Error::io("find", given))?;
            let from = quoted(&given.display().to_string());
            // Decompressed before any clock runs.
            run.shell.run(&format!(
                "case {from} in *.xz) xz -dc {from};; *.gz) gzip -dc {from};; *.zst) zstd -dc {from};; *) cat {from};; esac > {shown}"
            ))?;
        }
        None => {
            let root = run.scratch.join("source");
            source_tree::make(&root, sizes.sources, 11).map_err(Error::io("make the tree in", &root))?;
            run.shell.run(&format!("cd {scratch} && tar -cf source.tar source && rm -r source"))?;
        }
    }
    Ok(archive)
}

impl Hands<'_> {
    fn add(&mut self, row: &Row, value: f64) {
        self.report.add(row, self.arm.key, value);
    }

    fn io<T>(&self, result: io::Result<T>) -> Result<T, Error> {
        result.map_err(Error::io("work in", &self.arm.place()))
    }

    fn cold(&mut self) -> Result<(), Error> {
        self.arm.cold(self.shell)
    }
}

fn file(hands: &mut Hands<'_>) -> Result<(), Error> {
    let path = hands.arm.place().join("large");
    let bytes = hands.sizes.file;
    let mut noise = Noise::new(u64::from(hands.round) * 977 + 12_345);
    let mut blocks = Blocks::new(u64::from(hands.round) + 1, 1.0);
    hands.cold()?;

    let value = hands.io(files::write(&path, bytes, &mut blocks))?;
    hands.add(
        &Row::new(
            "write",
            "sequential write 1 MiB, fsync at the end",
            "MB/s",
            true,
            "A new file of incompressible data.",
        ),
        value,
    );
    hands.cold()?;
    let value = hands.io(files::read(&path))?;
    hands.add(
        &Row::new(
            "read",
            "sequential read 1 MiB, cold",
            "MB/s",
            true,
            "The same file, after everything was unmounted and mounted again.",
        ),
        value,
    );
    hands.cold()?;
    let value = hands.io(files::random_reads(&path, hands.sizes.reads, &mut noise))?;
    hands.add(
        &Row::new(
            "random_cold",
            "4 KiB random read, cold",
            "1/s",
            true,
            "Places in the same file, one after the other, caches as after a mount.",
        ),
        value,
    );
    // All of it is read once, then the same places are asked for twice, and the second time counts.
    hands.io(files::read(&path))?;
    let again = noise.clone();
    hands.io(files::random_reads(&path, hands.sizes.reads, &mut noise))?;
    let value = hands.io(files::random_reads(&path, hands.sizes.reads * 4, &mut again.clone()))?;
    hands.add(
        &Row::new("random_warm", "4 KiB random read, warm", "1/s", true, "After the whole file was read."),
        value,
    );
    let value = hands.io(files::random_writes(&path, hands.sizes.writes, false, &mut noise))?;
    hands.add(
        &Row::new(
            "random_write",
            "4 KiB random write, fsync at the end",
            "1/s",
            true,
            "Incompressible data at random places of the same file.",
        ),
        value,
    );
    let value = hands.io(files::random_writes(&path, hands.sizes.syncs, true, &mut noise))?;
    hands
        .add(&Row::new("fsync", "4 KiB write and fsync", "1/s", true, "An fsync behind every write."), value);
    hands.io(fs::remove_file(&path))?;
    hands.arm.settle(hands.shell)
}

fn ratio(hands: &mut Hands<'_>) -> Result<(), Error> {
    let path = hands.arm.place().join("compressible");
    let mut blocks = Blocks::new(u64::from(hands.round) + 1, 2.5);
    hands.cold()?;
    let value = hands.io(files::write(&path, hands.sizes.file, &mut blocks))?;
    hands.add(
        &Row::new(
            "write25",
            "sequential write 1 MiB of data of ratio 2.5",
            "MB/s",
            true,
            "Two fifths of every 4 KiB are noise, the rest zeros.",
        ),
        value,
    );
    hands.io(fs::remove_file(&path))?;
    hands.arm.settle(hands.shell)
}

/// fsync by several threads, each beside fdatasync on the disk of the images: before it and after
/// it, as disks are uneven.
fn fsync(hands: &mut Hands<'_>) -> Result<(), Error> {
    let (folder, count) = (hands.arm.place().join("appended"), hands.sizes.appends);
    let bare = hands.scratch.join("synced");
    let io = |result: io::Result<f64>| result.map_err(Error::io("work on", &bare));
    if !bare.exists() {
        io(files::write(&bare, hands.sizes.file, &mut Blocks::new(7, 1.0)))?;
    }
    hands.cold()?;
    for threads in [1, 4, 16] {
        hands.io(fs::create_dir(&folder))?;
        let before = io(files::synced_writes(&bare, threads, count))?;
        let value = hands.io(files::synced_appends(&folder, threads, count))?;
        let after = io(files::synced_writes(&bare, threads, count))?;
        let by = if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") };
        hands.add(
            &Row::new(
                &format!("fsync_{threads}"),
                &format!("4 KiB append and fsync by {by}"),
                "1/s",
                true,
                "Each thread has a file of its own.",
            ),
            value,
        );
        hands.add(
            &Row::new(
                &format!("fsync_share_{threads}"),
                "the same, of fdatasync on the disk of the images",
                "times",
                true,
                "4 KiB at random places of a file that was written in full, by as many threads; the mean of before and after.",
            ),
            value / ((before + after) / 2.0),
        );
        hands.io(fs::remove_dir_all(&folder))?;
    }
    hands.arm.settle(hands.shell)
}

fn names(hands: &mut Hands<'_>) -> Result<(), Error> {
    let folder = hands.arm.place().join("many");
    let count = hands.sizes.files;
    hands.cold()?;
    hands.io(fs::create_dir(&folder))?;
    let value = hands.io(files::create(&folder, 0, count))?;
    let in_one = |word: &str| format!("{word} {} files", shown(count as f64));
    hands.add(&Row::new("create", &in_one("create"), "1/s", true, "Empty files in one directory."), value);
    // The kernel's caches are dropped; servers (ours and the empty one) keep theirs.
    hands.arm.settle(hands.shell)?;
    drop_kernel_caches()?;
    let value = hands.io(files::stat(&folder, count))?;
    hands.add(
        &Row::new(
            "stat",
            &in_one("stat"),
            "1/s",
            true,
            "In the order of creation, after the kernel's caches were dropped.",
        ),
        value,
    );
    let value = hands.io(files::unlink(&folder, count))?;
    hands.add(&Row::new("unlink", &in_one("unlink"), "1/s", true, "In the order of creation."), value);
    hands.io(fs::remove_dir(&folder))?;
    hands.arm.settle(hands.shell)
}

fn tree(hands: &mut Hands<'_>) -> Result<(), Error> {
    let place = hands.arm.place();
    let (archive, folder) =
        (quoted(&hands.archive.display().to_string()), quoted(&place.join("tree").display().to_string()));
    hands.cold()?;
    // In the page cache for everybody, whatever ran before.
    hands.io(files::read(hands.archive))?;
    let began = Instant::now();
    hands.shell.run(&format!("mkdir {folder} && tar -C {folder} -xf {archive} && sync -f {folder}"))?;
    let value = began.elapsed().as_secs_f64();
    hands.add(
        &Row::new(
            "untar",
            "unpack a source tree",
            "s",
            false,
            "tar -xf from memory, and a sync of the file system.",
        ),
        value,
    );
    hands.cold()?;
    let began = Instant::now();
    hands.shell.run(&format!("tar -C {folder} -cf - . | cat > /dev/null"))?;
    let value = began.elapsed().as_secs_f64();
    hands.add(&Row::new("tar", "pack a source tree, cold", "s", false, "tar -cf into a pipe."), value);
    hands.shell.run(&format!("rm -r {folder}"))?;
    hands.arm.settle(hands.shell)
}

fn cow(hands: &mut Hands<'_>) -> Result<(), Error> {
    let path = hands.arm.place().join("database");
    let (bytes, writes) = hands.sizes.cow;
    let mut noise = Noise::new(4_711);
    hands.io(files::write(&path, bytes, &mut Blocks::new(3, 1.0)))?;
    hands.arm.quiet(hands.shell)?;
    hands.cold()?;
    let before = hands.io(files::read(&path))?;
    let counter = hands.arm.written(hands.shell)?;
    let value = hands.io(files::mixed(&path, writes, &mut noise))?;
    let size = number::bytes(bytes);
    hands.add(
        &Row::new(
            "cow_rate",
            &format!("4 KiB reads and writes at random in {size}"),
            "1/s",
            true,
            "Half and half, fsync at the end: the pattern of cow.parm.",
        ),
        value,
    );
    let written = hands.arm.quiet(hands.shell)?.saturating_sub(counter);
    hands.add(
        &Row::new(
            "cow_bytes",
            "the same: bytes to the device per byte accepted",
            "B/B",
            false,
            "Counted by the device or the daemon's process, until nothing more is written in the background.",
        ),
        written as f64 / (writes * files::SMALL as u64) as f64,
    );
    hands.cold()?;
    let after = hands.io(files::read(&path))?;
    hands.add(
        &Row::new(
            "cow_read",
            "the same: cold sequential read before, divided by after",
            "times",
            false,
            "1 is a file that reads as if it had been written in one go.",
        ),
        before / after,
    );
    hands.io(fs::remove_file(&path))?;
    hands.arm.settle(hands.shell)
}

/// Peak memory of our daemons over the whole run, against their limits.
fn memory(run: &mut Run<'_>) -> Result<(), Error> {
    let row = Row::new(
        "memory_mib",
        "memory of the daemon, at most",
        "MiB",
        false,
        "VmHWM of the process after all of the above.",
    );
    let (shell, report) = (&mut run.shell, &mut run.report);
    for arm in run.arms.present() {
        if arm.is_ours() {
            let (most, _) = arm.memory(shell)?;
            report.add(&row, arm.key, most as f64 / number::MIB);
        }
    }
    Ok(())
}
