//! How long do file systems take to create, look at, list and unlink files? All directories that
//! are named are measured in turns, in one run, so that what else the machine does falls on all of
//! them alike.
//!
//! ```text
//! cargo run --release -p steadfast-fuse --example metadata_rate -- \
//!     [files=20000] [rounds=3] [bytes=0] [cold=on] NAME=DIRECTORY...
//! ```
//!
//! Prints one line of JSON: for each name the median of the rounds, in nanoseconds a file, of
//! `create` (with `bytes` bytes of content), `stat`, `list` (names alone), `list_stat` (as `ls -l`
//! does) and `unlink`; `ratio` is the time of the last-named directory over that of this one, so
//! above 1 is faster than it. With `cold=on` (root) the kernel's caches are dropped before `stat`,
//! `list` and `unlink`.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

const STEPS: [&str; 5] = ["create", "stat", "list", "list_stat", "unlink"];

struct Plan {
    files: u32,
    rounds: usize,
    content: Vec<u8>,
    cold: bool,
}

/// Nanoseconds a file of each step.
fn round(dir: &Path, plan: &Plan) -> std::io::Result<[f64; STEPS.len()]> {
    let dir = dir.join(format!("metadata-rate-{}", std::process::id()));
    fs::create_dir(&dir)?;
    let paths: Vec<PathBuf> = (0..plan.files).map(|file| dir.join(format!("file-{file:08}"))).collect();
    let each = |cold: bool, step: &mut dyn FnMut() -> std::io::Result<()>| {
        if cold && plan.cold {
            fs::write("/proc/sys/vm/drop_caches", "2")?;
        }
        let began = Instant::now();
        step()?;
        Ok::<f64, std::io::Error>(began.elapsed().as_nanos() as f64 / f64::from(plan.files))
    };
    let create = each(false, &mut || {
        paths.iter().try_for_each(|path| {
            let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
            if plan.content.is_empty() { Ok(()) } else { file.write_all(&plan.content) }
        })
    })?;
    let stat = each(true, &mut || paths.iter().try_for_each(|path| fs::symlink_metadata(path).map(drop)))?;
    let counted = |found: usize| {
        let right = found == plan.files as usize;
        right.then_some(()).ok_or_else(|| std::io::Error::other(format!("{found} files are listed")))
    };
    let list = each(true, &mut || counted(fs::read_dir(&dir)?.count()))?;
    let list_stat = each(true, &mut || {
        let sizes = fs::read_dir(&dir)?.map(|entry| Ok(entry?.metadata()?.len()));
        counted(sizes.collect::<std::io::Result<Vec<u64>>>()?.len())
    })?;
    let unlink = each(true, &mut || paths.iter().try_for_each(fs::remove_file))?;
    fs::remove_dir(&dir)?;
    Ok([create, stat, list, list_stat, unlink])
}

fn median(mut taken: Vec<f64>) -> f64 {
    taken.sort_by(f64::total_cmp);
    taken[taken.len() / 2]
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut plan = Plan { files: 20_000, rounds: 3, content: Vec::new(), cold: false };
    let mut targets: Vec<(String, PathBuf)> = Vec::new();
    for word in std::env::args().skip(1) {
        match word.split_once('=').ok_or("NAME=VALUE")? {
            ("files", count) => plan.files = count.parse()?,
            ("rounds", count) => plan.rounds = count.parse::<usize>()?.max(1),
            ("bytes", count) => plan.content = vec![b'x'; count.parse()?],
            ("cold", value) => plan.cold = value == "on",
            (name, directory) => targets.push((name.to_owned(), directory.into())),
        }
    }
    let Some(last) = targets.len().checked_sub(1) else { return Err("which directories?".into()) };
    let mut taken = vec![Vec::new(); targets.len()];
    for number in 0..plan.rounds {
        for step in 0..targets.len() {
            let target = (number + step) % targets.len();
            taken[target].push(round(&targets[target].1, &plan)?);
        }
    }
    let medians: Vec<Vec<f64>> = taken
        .iter()
        .map(|rounds| (0..STEPS.len()).map(|step| median(rounds.iter().map(|r| r[step]).collect())).collect())
        .collect();
    let line: Vec<String> = targets
        .iter()
        .enumerate()
        .map(|(target, (name, _))| {
            let steps: Vec<String> = (0..STEPS.len())
                .map(|step| {
                    let (ns, base) = (medians[target][step], medians[last][step]);
                    format!("\"{}\":{{\"ns\":{ns:.0},\"ratio\":{:.3}}}", STEPS[step], base / ns)
                })
                .collect();
            format!("\"{name}\":{{{}}}", steps.join(","))
        })
        .collect();
    println!("{{\"files\":{},\"bytes\":{},{}}}", plan.files, plan.content.len(), line.join(","));
    std::io::stdout().flush()?;
    Ok(())
}
