//! Does an operation cost the same among ten thousand files as among ten million? The engine alone:
//! `posix` over a pool, no kernel, no FUSE.
//!
//! ```text
//! cargo run --release -p steadfast-pool --example flat_cost -- \
//!     [sizes=10000,100000,1000000] [ops=10000] [per_dir=1000] [device=memory|FILE] \
//!     [device_bytes=17179869184] [churn=1000] [nodes=134217728] [turns=1]
//! ```
//!
//! For each size a new pool is filled with so many files, `per_dir` a directory, committed, and
//! then `ops` files are created, looked up at random among all, listed with their neighbours, and
//! unlinked. Prints one line of JSON a size: `fill_ns` is the mean of the fill with its commits;
//! `create_ns`, `stat_ns`, `list_ns` and `unlink_ns` are a file's cost when the pool holds that
//! many; `commit_ns` is the last commit's over the files created. `..._cpu_ns` is the calling
//! thread's processor time for the same, which the kernel counts in steps of some milliseconds: on
//! a busy machine that is the figure to look at, with many `ops`.
//!
//! Then, `turns` times, `churn` files at random places are looked up, and as many removed and
//! created again, with a cache of `nodes` bytes for nodes that is empty at first. For each of these
//! it prints the time and the work: `.._nodes_read` and `.._device_reads` an operation,
//! `.._written` bytes to the device and `.._commits` in all, `.._delay_ns` and `.._held_ns` that
//! writers were slowed and had to wait for a commit, all an operation, `.._longest_ns`, and
//! `.._process_ns`, the processor time of all threads.

#[path = "../tests/common/mod.rs"]
mod common;

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use common::{Dice, ME, ROOT, handle, mount, spec};
use steadfast_device::{FileDevice, MemoryDevice, OpenOptions};
use steadfast_env::Env;
use steadfast_pool::{DeviceHandle, Memory, Pool};
use steadfast_posix::{FileSystem, Result};
use steadfast_segment::DeviceCounts;
use steadfast_txg::Waits;

struct Plan {
    sizes: Vec<u64>,
    ops: u64,
    per_dir: u64,
    device: Option<String>,
    device_bytes: u64,
    churn: u64,
    nodes: usize,
    turns: u64,
}

/// A file's directory (by its number) and name.
fn place(plan: &Plan, file: u64) -> (usize, Vec<u8>) {
    let directory = usize::try_from(file / plan.per_dir).expect("fits");
    (directory, format!("file-{:010}", file % plan.per_dir).into_bytes())
}

fn create(fs: &FileSystem, plan: &Plan, directories: &mut Vec<u64>, file: u64) -> Result<()> {
    let (directory, name) = place(plan, file);
    if directory == directories.len() {
        let made = fs.mkdir(ME, ROOT, format!("directory-{directory:08}").as_bytes(), 0o755)?;
        directories.push(made.ino);
    }
    let made = fs.mknod(ME, directories[directory], &name, 0o100_644, 0)?;
    fs.forget(made.ino, 1);
    Ok(())
}

/// Mean cost of one step of many, in nanoseconds.
struct Cost {
    wall: u64,
    cpu: u64,
}

/// Processor time of the calling thread so far, in nanoseconds; 0 where the kernel does not tell.
fn cpu_ns() -> u64 {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    told.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Does `count` steps.
fn timed(count: u64, mut step: impl FnMut(u64) -> Result<()>) -> Cost {
    let (began, cpu) = (Instant::now(), cpu_ns());
    (0..count).for_each(|index| step(index).unwrap_or_else(|errno| panic!("step {index}: {errno:?}")));
    let wall = u64::try_from(began.elapsed().as_nanos()).expect("fits");
    Cost { wall: wall / count.max(1), cpu: (cpu_ns() - cpu) / count.max(1) }
}

/// Counters of a pool so far.
struct Done {
    began: Instant,
    process_ns: u64,
    nodes_read: u64,
    device_reads: u64,
    read_bytes: u64,
    written: u64,
    commits: u64,
    waits: Waits,
}

impl Done {
    fn so_far(pool: &Pool, fs: &FileSystem) -> Done {
        let told = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        let after_name = told.rsplit(") ").next().unwrap_or_default();
        // User and system time, in hundredths of a second.
        let ticks = after_name.split(' ').skip(11).take(2).filter_map(|word| word.parse::<u64>().ok());
        let status = pool.state();
        let sum =
            |count: fn(&DeviceCounts) -> u64| status.leaves.iter().map(|leaf| count(&leaf.counts)).sum();
        Done {
            began: Instant::now(),
            process_ns: ticks.sum::<u64>() * 10_000_000,
            nodes_read: pool.memory().nodes.misses,
            device_reads: sum(|counts| counts.reads),
            read_bytes: sum(|counts| counts.read_bytes),
            written: sum(|counts| counts.written_bytes),
            commits: status.txg.0,
            waits: fs.dataset().txgs().budget.waits(),
        }
    }

    /// Counters since, averaged over `count` steps, as members of a JSON object.
    fn since(&self, step: &str, pool: &Pool, fs: &FileSystem, count: u64, longest_ns: u64) -> String {
        let now = Done::so_far(pool, fs);
        let wall = u64::try_from(self.began.elapsed().as_nanos()).expect("fits");
        let mean = |now: u64, before: u64| (now - before) as f64 / count.max(1) as f64;
        let members = [
            ("ns", wall as f64 / count.max(1) as f64),
            ("process_ns", mean(now.process_ns, self.process_ns)),
            ("longest_ns", longest_ns as f64),
            ("nodes_read", mean(now.nodes_read, self.nodes_read)),
            ("device_reads", mean(now.device_reads, self.device_reads)),
            ("read_bytes", mean(now.read_bytes, self.read_bytes)),
            ("written", (now.written - self.written) as f64),
            ("commits", (now.commits - self.commits) as f64),
            ("delay_ns", mean(now.waits.delayed_ns, self.waits.delayed_ns)),
            ("held_ns", mean(now.waits.held_ns, self.waits.held_ns)),
        ];
        members.map(|(name, value)| format!("\"{step}_{name}\":{value:.1}")).join(",")
    }
}

/// Looks up, and removes and creates again, files at random places. Returns time and work as a JSON
/// object.
fn churn(pool: &Pool, fs: &FileSystem, plan: &Plan, directories: &[u64], files: u64, turn: u64) -> String {
    let mut dice = Dice(files + turn);
    let mut steps = Vec::new();
    let budget = &fs.dataset().txgs().budget;
    for step in ["stat", "renew"] {
        pool.sync().expect("committed");
        // Emptied.
        pool.set_memory(Memory { node_cache_bytes: 0, ..Memory::default() });
        pool.set_memory(Memory { node_cache_bytes: plan.nodes, ..Memory::default() });
        let (before, mut longest) = (Done::so_far(pool, fs), 0);
        let mut fullest = 0;
        for _ in 0..plan.churn {
            let (directory, name) = place(plan, dice.below(files));
            let began = Instant::now();
            if step == "renew" {
                fs.unlink(directories[directory], &name).expect("removed");
                let made = fs.mknod(ME, directories[directory], &name, 0o100_644, 0).expect("made");
                fs.forget(made.ino, 1);
            } else {
                let found = fs.lookup(directories[directory], &name).expect("found");
                fs.forget(found.ino, 1);
            }
            longest = longest.max(u64::try_from(began.elapsed().as_nanos()).expect("fits"));
            fullest = fullest.max(budget.fullness());
        }
        steps.push(before.since(step, pool, fs, plan.churn, longest));
        steps.push(format!("\"{step}_fullest\":{fullest},\"{step}_limit\":{}", budget.limits().space));
        let began = Instant::now();
        pool.sync().expect("committed");
        steps.push(format!("\"{step}_commit_ns\":{}", began.elapsed().as_nanos()));
    }
    format!("{{{}}}", steps.join(","))
}

fn measure(plan: &Plan, files: u64, device: DeviceHandle) -> String {
    let mut spec = spec(vec![device], None);
    spec.force = true;
    let pool = Pool::create(&Env::real(), spec).expect("a pool");
    let (fs, handle) = mount(&pool, "tank");
    let mut directories = Vec::new();
    let began = Instant::now();
    let filled = timed(files, |file| create(&fs, plan, &mut directories, file));
    pool.sync().expect("committed");
    let fill_ns = began.elapsed().as_nanos() / u128::from(files.max(1));

    let created = timed(plan.ops, |file| create(&fs, plan, &mut directories, files + file));
    let began_commit = Instant::now();
    pool.sync().expect("committed");
    let commit_ns = began_commit.elapsed().as_nanos() / u128::from(plan.ops.max(1));
    let mut dice = Dice(files);
    let stat = timed(plan.ops, |_| {
        let (directory, name) = place(plan, dice.below(files));
        let found = fs.lookup(directories[directory], &name)?;
        fs.forget(found.ino, 1);
        Ok(())
    });
    let lists = (plan.ops / plan.per_dir).max(1);
    let mut listed = 0_u64;
    let list = timed(lists, |_| {
        let (directory, _) = place(plan, dice.below(files));
        fs.readdir(directories[directory], 0, |_| {
            listed += 1;
            true
        })
    });
    let churned = (0..plan.turns).map(|turn| churn(&pool, &fs, plan, &directories, files, turn));
    let churned: Vec<String> = churned.filter(|_| plan.churn > 0).collect();
    let each = |lists_ns: u64| lists_ns * lists / listed.max(1);
    let list = Cost { wall: each(list.wall), cpu: each(list.cpu) };
    let unlink = timed(plan.ops, |file| {
        let (directory, name) = place(plan, files + file);
        fs.unlink(directories[directory], &name)
    });
    drop(fs);
    drop(handle);
    pool.close().expect("closed");
    let steps = [("create", created), ("stat", stat), ("list", list), ("unlink", unlink)]
        .map(|(name, cost)| format!("\"{name}_ns\":{},\"{name}_cpu_ns\":{}", cost.wall, cost.cpu));
    format!(
        "{{\"files\":{files},\"fill_ns\":{fill_ns},\"fill_cpu_ns\":{},\"commit_ns\":{commit_ns},{},\"churn\":[{}]}}",
        filled.cpu,
        steps.join(","),
        churned.join(",")
    )
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut plan = Plan {
        sizes: vec![10_000, 100_000, 1_000_000],
        ops: 10_000,
        per_dir: 1_000,
        device: None,
        device_bytes: 16 << 30,
        churn: 1_000,
        nodes: Memory::default().node_cache_bytes,
        turns: 1,
    };
    for word in std::env::args().skip(1) {
        match word.split_once('=').ok_or("NAME=VALUE")? {
            ("sizes", list) => {
                plan.sizes = list.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?
            }
            ("ops", count) => plan.ops = count.parse()?,
            ("per_dir", count) => plan.per_dir = count.parse::<u64>()?.max(1),
            ("device", "memory") => plan.device = None,
            ("device", path) => plan.device = Some(path.to_owned()),
            ("churn", count) => plan.churn = count.parse()?,
            ("nodes", count) => plan.nodes = count.parse()?,
            ("turns", count) => plan.turns = count.parse()?,
            ("device_bytes", count) => plan.device_bytes = count.parse()?,
            (name, _) => return Err(format!("'{name}' is not known").into()),
        }
    }
    for &files in &plan.sizes {
        let device = match &plan.device {
            None => handle(&Arc::new(MemoryDevice::new("memory", plan.device_bytes))),
            Some(path) => {
                let file = std::fs::File::create(path)?;
                file.set_len(plan.device_bytes)?;
                handle(&Arc::new(FileDevice::open(Path::new(path), &OpenOptions::WRITE)?))
            }
        };
        println!("{}", measure(&plan, files, device));
    }
    Ok(())
}
