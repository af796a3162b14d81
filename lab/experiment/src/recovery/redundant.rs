//! One redundant file system on devices of its own: made, filled, damaged, healed, taken away.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::report::Course;
use crate::error::Error;
use crate::file_systems::{loop_device, zfs_fuse};
use crate::host::caches::drop_kernel_caches;
use crate::host::commands::quoted;
use crate::host::mounts::{mounts_below, unmount};
use crate::host::processes::end_process;
use crate::host::requirements::on_path;
use crate::host::shell::Shell;
use crate::host::space;
use crate::load::files::Noise;

const MIB: usize = 1 << 20;
/// Bytes of a file of the filling, in MiB.
const FILE_MIB: u64 = 16;
/// How often the counters of devices are looked at.
const SAMPLE: Duration = Duration::from_millis(50);
/// Most time for a daemon to come up.
const PATIENCE: Duration = Duration::from_secs(20);

/// Its kind.
#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// A pool of ours with so many columns of parity.
    Ours { parity: u32 },
    /// btrfs with data and metadata as raid1, on two loop devices.
    Btrfs,
    /// zfs-fuse, whose programs lie in a folder.
    ZfsFuse { programs: PathBuf },
}

/// One file system.
pub(super) struct Redundant {
    pub key: &'static str,
    pub kind: Kind,
    home: PathBuf,
    /// Devices in use, and one that is to take the place of another.
    pub devices: Vec<PathBuf>,
    pub spare: PathBuf,
    device_bytes: u64,
    /// The devices are images of ours.
    images: bool,
    loops: Vec<String>,
    /// Loop devices that others had attached to the given files, known before the first of ours is
    /// attached.
    others: Option<Vec<String>>,
    server: Option<Child>,
    files: u64,
    /// Bytes that files could take when it was empty.
    capacity: u64,
    round: u32,
}

/// Where bytes that went to and from devices are counted.
enum Counter {
    Process(PathBuf),
    Disks(Vec<PathBuf>),
}

impl Counter {
    /// Bytes read and written so far.
    fn look(&self) -> (u64, u64) {
        match self {
            Counter::Process(path) => {
                let text = fs::read_to_string(path).unwrap_or_default();
                let of = |name: &str| {
                    text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
                };
                (of("read_bytes:"), of("write_bytes:"))
            }
            Counter::Disks(paths) => paths.iter().fold((0, 0), |(read, written), path| {
                let text = fs::read_to_string(path).unwrap_or_default();
                let field = |at| {
                    text.split_ascii_whitespace().nth(at).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0)
                };
                (read + field(2) * 512, written + field(6) * 512)
            }),
        }
    }
}

impl Redundant {
    /// Nothing is made yet.
    pub fn new(
        key: &'static str,
        kind: Kind,
        home: PathBuf,
        devices: Vec<PathBuf>,
        spare: PathBuf,
        device_bytes: u64,
        images: bool,
    ) -> Redundant {
        Redundant {
            key,
            kind,
            home,
            devices,
            spare,
            device_bytes,
            images,
            loops: Vec::new(),
            others: None,
            server: None,
            files: 0,
            capacity: 0,
            round: 1,
        }
    }

    /// With a name of its own for this round: a stranger's daemon that could not destroy the pool
    /// of the one before remembers it.
    pub fn named(self, round: u32) -> Redundant {
        Redundant { round, ..self }
    }

    /// Why it cannot take part.
    pub fn lacks(&self) -> Option<String> {
        match &self.kind {
            Kind::Ours { .. } => None,
            Kind::Btrfs if !on_path("btrfs") => {
                Some("btrfs is not installed: apt install btrfs-progs".to_owned())
            }
            Kind::Btrfs => None,
            Kind::ZfsFuse { programs } => zfs_fuse::lacks(programs),
        }
    }

    fn place(&self) -> PathBuf {
        self.home.join("mnt")
    }

    fn pool(&self) -> String {
        format!("rec{}{}r{}", self.key.replace('-', ""), std::process::id(), self.round)
    }

    fn ours(&self, words: &str) -> String {
        format!("STEADFAST_RUNTIME_DIR={} $SF {words}", quoted(&self.home.join("run").display().to_string()))
    }

    fn paths(&self, count: usize) -> String {
        let paths: Vec<String> =
            self.devices[..count].iter().map(|path| quoted(&path.display().to_string())).collect();
        paths.join(" ")
    }

    /// Makes the devices and the file system, and mounts it. For a pool of ours says what dd writes
    /// to all devices at once, MB/s.
    pub fn make(&mut self, shell: &mut Shell) -> Result<Option<f64>, Error> {
        let (place, pool) = (quoted(&self.place().display().to_string()), self.pool());
        fs::create_dir_all(self.home.join("run")).map_err(Error::io("create", &self.home))?;
        fs::create_dir_all(self.place()).map_err(Error::io("create", &self.place()))?;
        if self.images {
            for path in self.devices.iter().chain([&self.spare]) {
                let path = quoted(&path.display().to_string());
                // Written once: what was only promised to a file reads faster than any disk.
                let mib = self.device_bytes >> 20;
                shell
                    .run(&format!("dd if=/dev/zero of={path} bs=1M count={mib} oflag=direct status=none"))?;
            }
        }
        let all = self.paths(self.devices.len());
        let mut written = None;
        match &self.kind {
            Kind::Ours { parity } => {
                let mib = self.device_bytes >> 20;
                let line = format!(
                    "for d in {all}; do dd if=/dev/zero of=$d bs=1M count={mib} oflag=direct conv=notrunc,fsync status=none & done; wait"
                );
                written = Some(self.timed(&line, (mib << 20) * self.devices.len() as u64, shell)?);
                let create = self.ours(&format!("pool create -f -m {place} {pool} raidz{parity} {all}"));
                shell.run(&create)?;
            }
            Kind::Btrfs => {
                let mut others = Vec::new();
                for path in self.devices.iter().chain([&self.spare]) {
                    others.extend(loop_device::loops_of(path, shell)?);
                }
                self.others = Some(others);
                for path in self.devices.clone().iter().chain([&self.spare.clone()]) {
                    let path = quoted(&path.display().to_string());
                    let said = shell.ask(&format!("losetup --find --show --direct-io=on {path}"))?;
                    self.loops.push(said.trim().to_owned());
                }
                let disks = self.loops[..self.devices.len()].join(" ");
                shell.run(&format!(
                    "mkfs.btrfs -q -f -d raid1 -m raid1 {disks} && mount {} {place}",
                    self.loops[0]
                ))?;
            }
            Kind::ZfsFuse { programs } => {
                self.server = Some(zfs_fuse::start(programs, shell)?);
                let zpool = programs.join("zpool").display().to_string();
                shell.run(&format!("{zpool} create -f -m {place} {pool} raidz1 {all}"))?;
            }
        }
        // Of btrfs the size has metadata in it: at 75 % of that no unallocated space was left, and
        // a replace finds no room then. Putting block groups together before (`btrfs balance`)
        // gives none: it takes what there is.
        self.capacity = space::available(&self.place())?;
        Ok(written)
    }

    /// Makes a pool of ours on images that take no room yet, for those who measure no devices; with
    /// a special mirror beside them.
    pub fn make_slow(&mut self, special: bool, shell: &mut Shell) -> Result<(), Error> {
        fs::create_dir_all(self.home.join("run")).map_err(Error::io("create", &self.home))?;
        fs::create_dir_all(self.place()).map_err(Error::io("create", &self.place()))?;
        let fast: Vec<PathBuf> = if special { vec![self.fast("s0"), self.fast("s1")] } else { Vec::new() };
        let words: Vec<String> = fast.iter().map(|path| quoted(&path.display().to_string())).collect();
        let (words, mib) = (words.join(" "), self.device_bytes >> 20);
        shell.run(&format!("truncate -s {mib}M {} {words}", self.paths(self.devices.len())))?;
        let beside = if special { format!(" special mirror {words}") } else { String::new() };
        let place = quoted(&self.place().display().to_string());
        let disks = self.paths(self.devices.len());
        let create = format!("pool create -f -m {place} {} raidz1 {disks}{beside}", self.pool());
        shell.run(&self.ours(&create)).map(drop)
    }

    fn fast(&self, name: &str) -> PathBuf {
        self.home.join(format!("{name}.img"))
    }

    /// Where a tree of small files goes.
    pub fn tree(&self) -> PathBuf {
        self.place().join("tree")
    }

    /// Puts a cache device in front of a pool of ours.
    pub fn add_cache(&self, bytes: u64, shell: &mut Shell) -> Result<(), Error> {
        let path = quoted(&self.fast("cache").display().to_string());
        let add = self.ours(&format!("pool add {} cache {path}", self.pool()));
        shell.run(&format!("truncate -s {}M {path} && {add}", bytes >> 20)).map(drop)
    }

    /// Takes it away again.
    pub fn remove_cache(&self, shell: &mut Shell) -> Result<(), Error> {
        let path = quoted(&self.fast("cache").display().to_string());
        let remove = self.ours(&format!("pool remove {} {path}", self.pool()));
        shell.run(&format!("{remove} && rm {path}")).map(drop)
    }

    /// Bytes that it holds.
    pub fn cached(&self, shell: &mut Shell) -> Result<u64, Error> {
        let line = self.ours(&format!("pool iostat -v -H -p {}", self.pool()));
        let said = shell.ask(&line)?;
        let of_it =
            said.lines().find(|line| line.split('\t').next().is_some_and(|name| name.ends_with("cache.img")));
        match of_it.and_then(|line| line.split('\t').nth(1)?.trim().parse().ok()) {
            Some(bytes) => Ok(bytes),
            None => Err(Error::Answer { line, answer: said, expected: "a line of the cache device" }),
        }
    }

    /// Sets a property of a pool of ours and of its root dataset.
    pub fn set(&self, property: &str, value: &str, shell: &mut Shell) -> Result<(), Error> {
        shell.run(&self.ours(&format!("fs set {property}={value} {}", self.pool()))).map(drop)
    }

    /// Waits until everything is written.
    pub fn sync(&self, shell: &mut Shell) -> Result<(), Error> {
        shell.ask(&format!("sync -f {}", quoted(&self.place().display().to_string())))?;
        shell.ask(&self.ours(&format!("pool sync {}", self.pool()))).map(drop)
    }

    fn counter(&self, shell: &mut Shell) -> Result<Counter, Error> {
        let of = |pid: u32| Counter::Process(PathBuf::from(format!("/proc/{pid}/io")));
        Ok(match &self.kind {
            Kind::Ours { .. } => {
                let line = self.ours("daemon pid");
                let said = shell.ask(&line)?;
                let pid = said.split_ascii_whitespace().find_map(|word| word.parse().ok());
                let Some(pid) = pid else {
                    return Err(Error::Answer { line, answer: said, expected: "a process id" });
                };
                of(pid)
            }
            Kind::Btrfs => {
                let stat = |disk: &String| disk.replace("/dev/", "/sys/block/") + "/stat";
                Counter::Disks(self.loops.iter().map(stat).map(PathBuf::from).collect())
            }
            Kind::ZfsFuse { .. } => of(self.server.as_ref().map_or(0, Child::id)),
        })
    }

    /// Fills up to so many percent with bytes that the seed repeats. Gives bytes written and
    /// seconds.
    pub fn fill(&mut self, percent: u64, stop: &AtomicBool, shell: &mut Shell) -> Result<(u64, f64), Error> {
        let wanted = self.capacity / 100 * percent / (FILE_MIB << 20);
        let (mut bytes, began) = (0, Instant::now());
        let mut block = vec![0; MIB];
        while self.files < wanted {
            alive(stop)?;
            let path = self.place().join(format!("f{}", self.files));
            let mut file = File::create(&path).map_err(Error::io("create", &path))?;
            let mut noise = Noise::new(self.files + 1);
            for _ in 0..FILE_MIB {
                noise.fill(&mut block);
                file.write_all(&block).map_err(Error::io("write", &path))?;
                bytes += MIB as u64;
            }
            self.files += 1;
        }
        shell.ask(&format!("sync -f {}", quoted(&self.place().display().to_string())))?;
        if let Kind::Ours { .. } = self.kind {
            shell.ask(&self.ours(&format!("pool sync {}", self.pool())))?;
        }
        Ok((bytes, began.elapsed().as_secs_f64()))
    }

    /// Reads everything and compares it with what was written. Gives bytes and seconds.
    pub fn verify(&self, stop: &AtomicBool) -> Result<(u64, f64), Error> {
        let began = Instant::now();
        let (mut block, mut found) = (vec![0; MIB], vec![0; MIB]);
        for number in 0..self.files {
            alive(stop)?;
            let path = self.place().join(format!("f{number}"));
            let mut file = File::open(&path).map_err(Error::io("open", &path))?;
            let mut noise = Noise::new(number + 1);
            for _ in 0..FILE_MIB {
                noise.fill(&mut block);
                file.read_exact(&mut found).map_err(Error::io("read", &path))?;
                if block != found {
                    return Err(Error::Answer {
                        line: format!("read {}", path.display()),
                        answer: "other bytes".to_owned(),
                        expected: "what was written",
                    });
                }
            }
        }
        Ok((self.files * (FILE_MIB << 20), began.elapsed().as_secs_f64()))
    }

    /// Reads everything, from the devices, with caches of the daemon that hold next to nothing of
    /// it. Gives bytes and seconds.
    pub fn read_all(&self, stop: &AtomicBool) -> Result<(u64, f64), Error> {
        drop_kernel_caches()?;
        let (began, mut block) = (Instant::now(), vec![0; MIB]);
        for number in 0..self.files {
            alive(stop)?;
            let path = self.place().join(format!("f{number}"));
            let mut file = File::open(&path).map_err(Error::io("open", &path))?;
            for _ in 0..FILE_MIB {
                file.read_exact(&mut block).map_err(Error::io("read", &path))?;
            }
        }
        Ok((self.files * (FILE_MIB << 20), began.elapsed().as_secs_f64()))
    }

    /// Columns of parity, of a pool of ours.
    pub fn parity(&self) -> Option<u32> {
        match self.kind {
            Kind::Ours { parity } => Some(parity),
            _ => None,
        }
    }

    /// Takes the first devices of a pool of ours out of use, or brings them back.
    pub fn set_away(&self, count: usize, away: bool, shell: &mut Shell) -> Result<(), Error> {
        let (pool, paths) = (self.pool(), self.paths(count));
        if away {
            return shell.run(&self.ours(&format!("pool offline {pool} {paths}"))).map(drop);
        }
        shell.run(&self.ours(&format!("pool online {pool} {paths}")))?;
        shell.run(&self.ours(&format!("pool wait -t resilver {pool}"))).map(drop)
    }

    /// Devices that a row is read from to compute one of its columns.
    pub fn sources(&self) -> usize {
        match &self.kind {
            Kind::Ours { parity } => self.devices.len() - *parity as usize,
            Kind::Btrfs => 1,
            Kind::ZfsFuse { .. } => self.devices.len() - 1,
        }
    }

    /// Floods a device with zeros while the file system is mounted.
    pub fn zero(&self, device: usize, shell: &mut Shell) -> Result<(), Error> {
        let path = quoted(&self.devices[device].display().to_string());
        let mib = self.device_bytes >> 20;
        let line = match &self.kind {
            Kind::Ours { .. } => {
                let pool = self.pool();
                self.ours(&format!("pool inject --i-want-this-pool-damaged {pool} {path} zero"))
            }
            // Its superblocks, at 64 KiB and 64 MiB, stay.
            Kind::Btrfs => format!(
                "dd if=/dev/zero of={} bs=1M seek=65 count={} oflag=direct conv=notrunc,fsync status=none",
                self.loops[device],
                mib - 66
            ),
            // Its labels, two at each end, stay.
            Kind::ZfsFuse { .. } => {
                format!(
                    "dd if=/dev/zero of={path} bs=1M seek=4 count={} conv=notrunc,fsync status=none",
                    mib - 8
                )
            }
        };
        shell.run(&line).map(drop)
    }

    /// A scrub, to its end.
    pub fn scrub(&mut self, shell: &mut Shell) -> Result<(), Error> {
        let (pool, place) = (self.pool(), quoted(&self.place().display().to_string()));
        let line = match &self.kind {
            Kind::Ours { .. } => self.ours(&format!("pool scrub -w {pool}")),
            Kind::Btrfs => format!("btrfs scrub start -B {place} > /dev/null"),
            Kind::ZfsFuse { programs } => {
                let zpool = programs.join("zpool").display().to_string();
                format!(
                    "{zpool} scrub {pool}; while {zpool} status {pool} | grep -q 'in progress'; do sleep 0.05; done"
                )
            }
        };
        shell.run(&line).map(drop)
    }

    /// Puts the spare device into the place of another, which becomes the spare one. Ends with the
    /// resilver.
    pub fn replace(&mut self, device: usize, model: &str, shell: &mut Shell) -> Result<(), Error> {
        let (pool, place) = (self.pool(), quoted(&self.place().display().to_string()));
        let old = quoted(&self.devices[device].display().to_string());
        let new = quoted(&self.spare.display().to_string());
        let line = match &self.kind {
            Kind::Ours { .. } if model.is_empty() => {
                self.ours(&format!("pool replace -f -w {pool} {old} {new}"))
            }
            Kind::Ours { .. } => {
                let replace = self.ours(&format!("pool replace -f {pool} {old} {new}"));
                let inject =
                    self.ours(&format!("pool inject --i-want-this-pool-damaged {pool} {new} {model}"));
                format!("{replace} && {inject} && {}", self.ours(&format!("pool wait -t resilver {pool}")))
            }
            Kind::Btrfs => {
                let spare = self.loops.last().map_or("", String::as_str);
                format!("btrfs replace start -B -f {} {spare} {place}", device + 1)
            }
            Kind::ZfsFuse { programs } => {
                let zpool = programs.join("zpool").display().to_string();
                format!(
                    "{zpool} replace -f {pool} {old} {new}; \
                     while {zpool} status {pool} | grep -q 'in progress'; do sleep 0.05; done"
                )
            }
        };
        shell.run(&line)?;
        std::mem::swap(&mut self.devices[device], &mut self.spare);
        if let Some(last) = self.loops.len().checked_sub(1) {
            self.loops.swap(device, last);
        }
        Ok(())
    }

    /// Whether a replace ended for want of room that is btrfs's own affair: it makes each block
    /// group read-only while it copies it, and wants space that no block group has yet for another
    /// of its kind.
    pub fn wants_room(&self, error: &Error) -> bool {
        let said = |stderr: &str| stderr.contains("No space left on device");
        matches!(self.kind, Kind::Btrfs) && matches!(error, Error::Command { stderr, .. } if said(stderr))
    }

    /// Gives every device the model of a hard disk, or with nothing takes it away.
    pub fn model(&self, model: &str, shell: &mut Shell) -> Result<(), Error> {
        let pool = self.pool();
        if model.is_empty() {
            return shell.run(&self.ours(&format!("pool inject -c {pool}"))).map(drop);
        }
        for device in &self.devices {
            let device = quoted(&device.display().to_string());
            let inject = format!("pool inject --i-want-this-pool-damaged {pool} {device} {model}");
            shell.run(&self.ours(&inject))?;
        }
        Ok(())
    }

    /// Gives the intent log a device of its own.
    pub fn add_log(&self, shell: &mut Shell) -> Result<(), Error> {
        let log = self.home.join("log.img");
        let path = quoted(&log.display().to_string());
        let add = self.ours(&format!("pool add {} log {path}", self.pool()));
        shell.run(&format!("truncate -s 128M {path} && {add}")).map(drop)
    }

    /// Ends the daemon and starts it with caches of this size, in MiB each; the pool comes back
    /// with it.
    pub fn restart(&mut self, cache_mib: u64, shell: &mut Shell) -> Result<(), Error> {
        let stop = self.ours("daemon stop");
        let run = self.ours(&format!(
            "daemon run --detached --node-cache-bytes {cache_mib}M --block-cache-bytes {cache_mib}M"
        ));
        let log = quoted(&self.home.join("daemon.log").display().to_string());
        shell.run(&format!("{stop}; {run} > {log} 2>&1 < /dev/null & sleep 0.3"))?;
        let began = Instant::now();
        let list = self.ours(&format!("pool list {}", self.pool()));
        while let Err(error) = shell.ask(&list) {
            if matches!(error, Error::Stopped) || began.elapsed() > PATIENCE {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Does something, and counts what goes to and from the devices meanwhile.
    pub fn course(
        &mut self,
        what: &str,
        (fill, round): (u32, u32),
        shell: &mut Shell,
        act: impl FnOnce(&mut Redundant, &mut Shell) -> Result<(), Error>,
    ) -> Result<Course, Error> {
        // Pages of the images in the page cache must not count as read from devices.
        drop_kernel_caches()?;
        let counter = self.counter(shell)?;
        let (read, written) = counter.look();
        let (began, over) = (Instant::now(), AtomicBool::new(false));
        let mut points = vec![(0.0, 0, 0)];
        let (acted, seconds) = std::thread::scope(|scope| {
            let (counter, over, points) = (&counter, &over, &mut points);
            scope.spawn(move || {
                while !over.load(Ordering::Acquire) {
                    std::thread::sleep(SAMPLE);
                    let now = counter.look();
                    points.push((
                        began.elapsed().as_secs_f64(),
                        now.0.saturating_sub(read),
                        now.1.saturating_sub(written),
                    ));
                }
            });
            let acted = act(self, shell);
            let seconds = began.elapsed().as_secs_f64();
            over.store(true, Ordering::Release);
            (acted, seconds)
        });
        acted?;
        let last = counter.look();
        Ok(Course {
            arm: self.key.to_owned(),
            what: what.to_owned(),
            fill,
            round,
            seconds,
            read: last.0.saturating_sub(read),
            written: last.1.saturating_sub(written),
            points,
        })
    }

    /// MB/s of a line of shell that moves so many bytes.
    pub fn timed(&self, line: &str, bytes: u64, shell: &mut Shell) -> Result<f64, Error> {
        let began = Instant::now();
        shell.run(line)?;
        Ok(bytes as f64 / 1e6 / began.elapsed().as_secs_f64())
    }

    /// Takes everything away.
    pub fn remove(&mut self, shell: &mut Shell) {
        let pool = self.pool();
        match &self.kind {
            Kind::Ours { .. } => {
                let pid = |shell: &mut Shell| {
                    let said = shell.ask(&self.ours("daemon pid")).ok()?;
                    said.trim().parse::<u32>().ok()
                };
                // A run stopped between two daemons must look after both.
                let before = pid(shell);
                let _ = shell.ask(&self.ours(&format!("pool destroy -f {pool}")));
                let after = pid(shell).filter(|after| Some(*after) != before);
                let _ = shell.ask(&self.ours("daemon stop"));
                for pid in before.into_iter().chain(after) {
                    end_process(pid, &self.home.join("run"));
                }
            }
            Kind::Btrfs => {}
            Kind::ZfsFuse { programs } => {
                let (zpool, began) = (programs.join("zpool").display().to_string(), Instant::now());
                let there = format!("{zpool} list {pool}");
                // It may be busy for a while after it was read.
                while shell.ask(&there).is_ok() && began.elapsed() < PATIENCE {
                    if shell.ask(&format!("{zpool} destroy -f {pool}")).is_err() {
                        std::thread::sleep(Duration::from_millis(200));
                    }
                }
            }
        }
        mounts_below(&self.home).iter().for_each(|mount: &PathBuf| unmount(mount));
        if let Some(mut child) = self.server.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        // None of ours was attached as long as those of others are not known.
        if let Some(others) = self.others.take() {
            self.devices
                .iter()
                .chain([&self.spare])
                .for_each(|path| loop_device::detach(path, &others, shell));
            self.loops.clear();
        }
        if self.images {
            self.devices.iter().chain([&self.spare]).for_each(|path: &PathBuf| remove_file(path));
        }
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// Ends what runs when it is no longer wanted.
pub(super) fn alive(stop: &AtomicBool) -> Result<(), Error> {
    if stop.load(Ordering::Relaxed) { Err(Error::Stopped) } else { Ok(()) }
}

fn remove_file(path: &Path) {
    let _ = fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_replace_of_btrfs_may_find_no_room() {
        let bench = |kind| {
            let (home, spare) = (PathBuf::from("/nowhere"), PathBuf::from("/nowhere/d6.img"));
            Redundant::new("a", kind, home, Vec::new(), spare, 1 << 30, true)
        };
        let error = |stderr: &str| Error::Command {
            line: "btrfs replace start".to_owned(),
            status: "1".to_owned(),
            stderr: stderr.to_owned(),
        };
        let full = error("ERROR: ioctl(DEV_REPLACE_START) failed on \"mnt\": No space left on device");
        assert!(bench(Kind::Btrfs).wants_room(&full));
        assert!(!bench(Kind::Btrfs).wants_room(&error("ERROR: not a btrfs filesystem")));
        assert!(!bench(Kind::Btrfs).wants_room(&Error::Stopped));
        assert!(!bench(Kind::Ours { parity: 1 }).wants_room(&full), "ours ends the run");
    }
}
