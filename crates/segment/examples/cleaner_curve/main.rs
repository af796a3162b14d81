//! The cleaner's curve: write amplification, rate, stalls and the relocation table against
//! utilisation, under steady random overwriting, with a model beside it. Simulated: one run of
//! minutes stands for hours of writing, and repeats exactly.
//!
//! ```text
//! cargo run --release -p steadfast-segment --example cleaner_curve -- [OPTIONS]
//!   --json               prints a JSON document, for pictures, instead of a table
//!   --percent 10,50,90   live bytes, in hundredths of the capacity
//!   --slots 256          slots of the device
//!   --slot-mib 4         size of a slot
//!   --block-kib 128      stored bytes of a block
//!   --fold 10            bytes overwritten and measured, as a multiple of the live bytes
//!   --warm 4             the same before the measurement
//!   --hot 9              tenths of the writes that go to a tenth of the blocks
//!   --rate-mb 400        rate of the device
//!   --flush-us 2000      time of a flush
//!   --uneven 128,128,64  slots of devices of a raidz1 group in place of one device; written bytes
//!                        include the parity
//!   --clean-mib 8        bytes that the cleaner copies in a commit, in place of the pace of a pool
//!   --longer-ms 200      tells of every write that waits longer, on standard error
//! ```

mod device;
mod model;
mod tree;
mod world;

use world::{Nodes, Seen, Setting, World};

const PERCENTS: [u64; 7] = [10, 25, 50, 75, 85, 90, 95];

struct Options {
    json: bool,
    percents: Vec<u64>,
    setting: Setting,
    fold: f64,
    warm: f64,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        json: false,
        percents: PERCENTS.to_vec(),
        setting: Setting {
            slots: 256,
            uneven: &[],
            slot_bytes: 4 << 20,
            block_bytes: 128 << 10,
            percent: 0,
            device_rate: 400_000_000,
            flush_ns: 2_000_000,
            memory_rate: 1_000_000_000,
            clean_bytes: None,
            longer_ns: u64::MAX,
            hot_tenths: 1,
            nodes: Nodes::COMPRESSED,
        },
        fold: 10.0,
        warm: 4.0,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--json" {
            options.json = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name} needs a value"))?;
        let number = || value.parse::<u32>().map_err(|error| format!("{name} {value}: {error}"));
        let setting = &mut options.setting;
        match name.as_str() {
            "--percent" => {
                let parsed: Result<Vec<u64>, _> = value.split(',').map(str::parse).collect();
                options.percents = parsed.map_err(|error| format!("{name} {value}: {error}"))?;
            }
            "--slots" => setting.slots = number()?,
            "--uneven" => {
                let parsed: Result<Vec<u32>, _> = value.split(',').map(str::parse).collect();
                let sizes = parsed.map_err(|error| format!("{name} {value}: {error}"))?;
                let data = u32::try_from(sizes.len().max(2) - 1).map_err(|error| error.to_string())?;
                let largest = sizes.iter().max().copied().unwrap_or(0);
                // Segments of all but the largest, for the model.
                setting.slots = (sizes.iter().sum::<u32>() - largest) / data;
                setting.uneven = sizes.leak();
            }
            "--slot-mib" => setting.slot_bytes = number()? << 20,
            "--block-kib" => setting.block_bytes = number()? << 10,
            "--fold" => options.fold = number()?.into(),
            "--warm" => options.warm = number()?.into(),
            "--clean-mib" => setting.clean_bytes = Some(u64::from(number()?) << 20),
            "--longer-ms" => setting.longer_ns = u64::from(number()?) * 1_000_000,
            "--hot" => setting.hot_tenths = number()?.into(),
            "--rate-mb" => setting.device_rate = u64::from(number()?) * 1_000_000,
            "--flush-us" => setting.flush_ns = u64::from(number()?) * 1000,
            _ => return Err(format!("{name} is no option")),
        }
    }
    Ok(options)
}

/// The value below which `share` thousandths of `sorted` lie.
fn percentile(sorted: &[u64], thousandths: usize) -> f64 {
    let at = (sorted.len() * thousandths / 1000).min(sorted.len().saturating_sub(1));
    sorted.get(at).map_or(0.0, |&ns| ns as f64 / 1e6)
}

/// One line of the curve: names and values, in order.
fn line(setting: &Setting, seen: &Seen) -> Vec<(&'static str, f64)> {
    let sums = &seen.sums;
    let per_accepted = |bytes: u64| bytes as f64 / sums.accepted as f64;
    let mut waits = seen.waits.clone();
    waits.sort_unstable();
    let mut commits = seen.commits.clone();
    commits.sort_unstable();
    let slots = f64::from(setting.slots);
    let reserve = slots - (slots - f64::from((setting.slots / 20).max(LeastReserve::SLOTS)));
    let all = setting.percent as f64 / 100.0 * (slots - reserve) / slots;
    vec![
        ("percent", setting.percent as f64),
        ("amplification", per_accepted(sums.device_written)),
        ("cleaner", 1.0 + per_accepted(sums.moved)),
        ("model", model::amplification(all)),
        ("model_taken", model::amplification(seen.taken_live)),
        ("metadata", per_accepted(sums.metadata)),
        ("device_reads", per_accepted(sums.device_read)),
        ("rate_mb", sums.accepted as f64 * 1e3 / seen.elapsed_ns as f64),
        ("wait_p50_ms", percentile(&waits, 500)),
        ("wait_p99_ms", percentile(&waits, 990)),
        ("wait_p999_ms", percentile(&waits, 999)),
        ("wait_max_ms", percentile(&waits, 1000)),
        ("commit_p50_ms", percentile(&commits, 500)),
        ("commit_p99_ms", percentile(&commits, 990)),
        ("commit_max_ms", percentile(&commits, 1000)),
        ("moved_max_mib", seen.moved_max as f64 / f64::from(1 << 20)),
        ("relocations", seen.relocations.last().map_or(0.0, |&count| count as f64)),
        ("fragmentation", f64::from(seen.fragmentation)),
        ("hours", seen.elapsed_ns as f64 / 3.6e12),
    ]
}

/// The least reserve, as a number.
struct LeastReserve;

impl LeastReserve {
    const SLOTS: u32 = steadfast_segment::Space::RESERVE_SLOTS_MIN;
}

fn main() {
    let options = options().unwrap_or_else(|error| {
        eprintln!("{error}");
        std::process::exit(2);
    });
    let mut rows = Vec::new();
    for &percent in &options.percents {
        let setting = Setting { percent, ..options.setting };
        let seen = match World::new(setting).run(options.warm, options.fold) {
            Ok(seen) => seen,
            Err(error) => {
                eprintln!("at {percent} %: {error}");
                std::process::exit(1);
            }
        };
        let line = line(&setting, &seen);
        if !options.json {
            if rows.is_empty() {
                let heads: Vec<_> = line.iter().map(|(name, _)| *name).collect();
                println!("{}", heads.join(" "));
            }
            let values: Vec<_> = line
                .iter()
                .map(|(name, value)| {
                    let places = if value.fract() == 0.0 { 0 } else { 2 };
                    format!("{value:>width$.places$}", width = name.len())
                })
                .collect();
            println!("{}", values.join(" "));
        }
        rows.push((line, seen.relocations));
    }
    if options.json {
        let row = |(line, relocations): &(Vec<(&str, f64)>, Vec<u64>)| {
            let fields: Vec<_> = line.iter().map(|(name, value)| format!("\"{name}\":{value:.4}")).collect();
            let counts: Vec<_> = relocations.iter().map(u64::to_string).collect();
            format!("{{{},\"relocations_over_time\":[{}]}}", fields.join(","), counts.join(","))
        };
        let setting = &options.setting;
        println!(
            "{{\"format\":\"steadfast-cleaner-curve\",\"version\":1,\"slots\":{},\"slot_bytes\":{},\"block_bytes\":{},\
             \"device_rate\":{},\"hot_tenths\":{},\"rows\":[{}]}}",
            setting.slots,
            setting.slot_bytes,
            setting.block_bytes,
            setting.device_rate,
            setting.hot_tenths,
            rows.iter().map(row).collect::<Vec<_>>().join(",")
        );
    }
}
