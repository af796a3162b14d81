//! `cargo xtask compare`: the figures of docs/PERFORMANCE.md. Loads ext4, gocryptfs and Steadfast on the same disk in one
//! run, in interleaved rounds, through the mount, and prints medians and ratios.
//!
//! Needs root (loop mount, dropping caches), `mkfs.ext4`, and gocryptfs if it shall take part.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

const MIB: u64 = 1 << 20;

/// What is measured: name, unit, and whether more is better.
const WORKLOADS: &[(&str, &str, bool)] = &[
    ("sequential write 1 MiB, fsync at the end", "MB/s", true),
    ("sequential read, cold", "MB/s", true),
    ("4 KiB random read, cold", "1/s", true),
    ("4 KiB random write, fsync at the end", "1/s", true),
    ("4 KiB write + fsync", "1/s", true),
    ("create 5,000 files", "s", false),
    ("stat 5,000 files, cold", "s", false),
    ("unlink 5,000 files", "s", false),
];

struct Target {
    name: &'static str,
    dir: PathBuf,
}

/// Runs `rounds` rounds with files of `mib` MiB below `base`.
pub fn run(root: &Path, base: &Path, rounds: usize, mib: u64) -> Result<(), String> {
    let work = base.join(format!("steadfast-compare-{}", std::process::id()));
    fs::create_dir_all(&work).map_err(|e| e.to_string())?;
    let stage = Stage { root: root.to_path_buf(), work: work.clone() };
    let result = stage.measure(rounds, mib);
    stage.clean();
    result
}

struct Stage {
    root: PathBuf,
    work: PathBuf,
}

impl Stage {
    fn sh(&self, line: &str) -> Result<String, String> {
        let mut command = Command::new("bash");
        command.args(["-euc", line]).current_dir(&self.work).stdin(Stdio::null());
        command.env("STEADFAST_RUNTIME_DIR", self.work.join("run"));
        command.env("SF", self.root.join("target/release/steadfast"));
        let output = command.output().map_err(|e| e.to_string())?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(format!(
                "{line}: {}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            ))
        }
    }

    fn targets(&self, mib: u64) -> Result<Vec<Target>, String> {
        let size = mib * 3 + 512;
        self.sh("mkdir -p run ext4 plain lz4 sealed gc.plain")?;
        self.sh(&format!(
            "truncate -s {size}M ext4.img && mkfs.ext4 -q ext4.img && mount -o loop ext4.img ext4"
        ))?;
        let pool = |name: &str, options: &str| {
            self.sh(&format!("truncate -s {size}M {name}.img && $SF pool create {options} -m $PWD/{name} sf{name}{} $PWD/{name}.img", std::process::id()))
        };
        pool("plain", "-O compression=off")?;
        pool("lz4", "-O compression=lz4")?;
        self.sh("head -c 32 /dev/urandom > key")?;
        pool(
            "sealed",
            "-O compression=off -O encryption=on -O keyformat=raw -O keylocation=file://$PWD/key",
        )?;
        let mut targets = vec![
            Target { name: "ext4", dir: self.work.join("ext4") },
            Target { name: "steadfast, compression off", dir: self.work.join("plain") },
            Target { name: "steadfast, lz4", dir: self.work.join("lz4") },
            Target { name: "steadfast, encrypted", dir: self.work.join("sealed") },
        ];
        if self.sh("command -v gocryptfs").is_ok() {
            self.sh("mkdir ext4/gc && echo comparison > pass && gocryptfs -q -init -scryptn 10 -passfile pass ext4/gc && gocryptfs -q -passfile pass ext4/gc gc.plain")?;
            targets.push(Target { name: "gocryptfs on ext4", dir: self.work.join("gc.plain") });
        } else {
            println!("gocryptfs is not installed and does not take part");
        }
        Ok(targets)
    }

    fn measure(&self, rounds: usize, mib: u64) -> Result<(), String> {
        let targets = self.targets(mib)?;
        let mut figures = vec![vec![Vec::new(); targets.len()]; WORKLOADS.len()];
        for round in 0..rounds {
            for step in 0..targets.len() {
                // Interleaved, and each round begins with another target.
                let index = (round + step) % targets.len();
                let taken = load(&targets[index].dir, mib, round)
                    .map_err(|e| format!("{}: {e}", targets[index].name))?;
                for (row, figure) in taken.into_iter().enumerate() {
                    figures[row][index].push(figure);
                }
                eprintln!("round {} of {rounds}: {}", round + 1, targets[index].name);
            }
        }
        print!("| median of {rounds} rounds, {mib} MiB file |");
        targets.iter().for_each(|target| print!(" {} |", target.name));
        print!("\n|---|");
        targets.iter().for_each(|_| print!("---:|"));
        println!();
        for (row, (name, unit, more)) in WORKLOADS.iter().enumerate() {
            print!("| {name}, {unit} |");
            let first = median(&figures[row][0]);
            for (index, taken) in figures[row].iter().enumerate() {
                let value = median(taken);
                let ratio = if *more { value / first } else { first / value };
                let shown = if *unit == "s" { format!("{value:.2}") } else { format!("{value:.0}") };
                if index == 0 { print!(" {shown} |") } else { print!(" {shown} ({ratio:.2}) |") }
            }
            println!();
        }
        println!("\nIn brackets: ratio to ext4, above 1 is better than ext4.");
        Ok(())
    }

    fn clean(&self) {
        for line in [
            "mountpoint -q gc.plain && umount gc.plain || true",
            "$SF daemon stop || true",
            "mountpoint -q ext4 && umount ext4 || true",
        ] {
            if let Err(error) = self.sh(line) {
                eprintln!("{error}");
            }
        }
        let _ = fs::remove_dir_all(&self.work);
    }
}

fn median(taken: &[f64]) -> f64 {
    let mut sorted = taken.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn drop_caches() -> std::io::Result<()> {
    Command::new("sync").status()?;
    fs::write("/proc/sys/vm/drop_caches", "3")
}

/// Pseudo-random numbers (xorshift64*).
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes());
        }
    }
}

fn load(dir: &Path, mib: u64, round: usize) -> std::io::Result<Vec<f64>> {
    let mut noise = Noise(round as u64 * 977 + 12_345);
    let mut figures = Vec::new();
    let rate = |count: u64, since: Instant| count as f64 / since.elapsed().as_secs_f64();
    let path = dir.join("big");
    // Made before the clock runs: 64 different MiB, incompressible, each write made different by its number.
    let mut blocks = vec![vec![0u8; MIB as usize]; 64];
    blocks.iter_mut().for_each(|block| noise.fill(block));
    drop_caches()?;

    let began = Instant::now();
    let mut file = File::create(&path)?;
    for index in 0..mib {
        let block = &mut blocks[(index % 64) as usize];
        block[..8].copy_from_slice(&index.to_le_bytes());
        file.write_all(block)?;
    }
    file.sync_all()?;
    figures.push(rate(mib * MIB, began) / 1e6);
    drop(file);

    drop_caches()?;
    let began = Instant::now();
    let mut file = File::open(&path)?;
    let mut total = 0;
    loop {
        let read = file.read(&mut blocks[0])?;
        if read == 0 {
            break;
        }
        total += read as u64;
    }
    assert_eq!(total, mib * MIB);
    figures.push(rate(total, began) / 1e6);

    drop_caches()?;
    let mut small = vec![0u8; 4096];
    let count = 4_000;
    let began = Instant::now();
    for _ in 0..count {
        file.read_exact_at(&mut small, noise.next() % (mib * 256) * 4096)?;
    }
    figures.push(rate(count, began));

    let file = OpenOptions::new().write(true).open(&path)?;
    let count = 10_000;
    let began = Instant::now();
    for _ in 0..count {
        noise.fill(&mut small);
        file.write_all_at(&small, noise.next() % (mib * 256) * 4096)?;
    }
    file.sync_all()?;
    figures.push(rate(count, began));

    let count = 200;
    let began = Instant::now();
    for _ in 0..count {
        noise.fill(&mut small);
        file.write_all_at(&small, noise.next() % (mib * 256) * 4096)?;
        file.sync_all()?;
    }
    figures.push(rate(count, began));
    drop(file);

    let many = dir.join("many");
    fs::create_dir(&many)?;
    let began = Instant::now();
    for index in 0..5_000 {
        fs::write(many.join(format!("file-{index}")), b"some small content")?;
    }
    figures.push(began.elapsed().as_secs_f64());
    drop_caches()?;
    let began = Instant::now();
    for index in 0..5_000 {
        fs::metadata(many.join(format!("file-{index}")))?;
    }
    figures.push(began.elapsed().as_secs_f64());
    let began = Instant::now();
    for index in 0..5_000 {
        fs::remove_file(many.join(format!("file-{index}")))?;
    }
    figures.push(began.elapsed().as_secs_f64());
    fs::remove_dir(&many)?;
    fs::remove_file(&path)?;
    Ok(figures)
}
