//! `steadfast daemon memory`, and the sizes that `steadfast daemon run` takes.

use crate::json;
use crate::options::{Flag, Parsed};
use crate::session::{Doing, Failure, Session};
use crate::table::{Column, render, tame};
use steadfast_control::api::{CacheReport, DaemonMemory};
use steadfast_control::client::Client;
use steadfast_control::memory::machine_bytes;
use steadfast_pool::Memory;
use steadfast_property::{nice_bytes, nice_number, parse_size};

pub(super) const NODE_CACHE: Flag =
    sized("node-cache-bytes", "with run and memory: limit of the node cache (metadata), all pools together");
pub(super) const BLOCK_CACHE: Flag = sized(
    "block-cache-bytes",
    "with run and memory: limit of the block cache (data; ZFS: ARC), all pools together",
);
pub(super) const DIRTY: Flag =
    sized("dirty-bytes", "with run and memory: limit of uncommitted changes, all pools together");

const fn sized(long: &'static str, doc: &'static str) -> Flag {
    Flag { letter: '\0', long, value: "size", doc }
}

/// Limits that a command gives: by its options, else by variables of the environment, which
/// `variable` reads.
fn limits(parsed: &Parsed, variable: impl Fn(&str) -> Option<String>) -> Result<DaemonMemory, Failure> {
    let from = |option: &str, name: &str, least: u64| -> Result<Option<u64>, Failure> {
        let (text, origin) = match (parsed.value_of_long(option), variable(name)) {
            (Some(text), _) => (text.to_owned(), format!("--{option}")),
            (None, Some(text)) if !text.is_empty() => (text, name.to_owned()),
            _ => return Ok(None),
        };
        match parse_size(&text) {
            Some(bytes) if bytes >= least => Ok(Some(bytes)),
            Some(_) => Err(Failure::Usage(format!(
                "{origin} is {}, and must be at least {}",
                tame(&text),
                nice_bytes(least)
            ))),
            None => {
                Err(Failure::Usage(format!("{origin} is '{}', and must be a size such as 512M", tame(&text))))
            }
        }
    };
    let (nodes_min, blocks_min) = (Memory::NODE_CACHE_BYTES_MIN, Memory::BLOCK_CACHE_BYTES_MIN);
    Ok(DaemonMemory {
        node_cache_bytes: from("node-cache-bytes", "STEADFAST_NODE_CACHE_BYTES", nodes_min as u64)?,
        block_cache_bytes: from("block-cache-bytes", "STEADFAST_BLOCK_CACHE_BYTES", blocks_min as u64)?,
        dirty_bytes: from("dirty-bytes", "STEADFAST_DIRTY_BYTES", Memory::DIRTY_BYTES_MIN)?,
    })
}

/// Limits of a daemon: from options of `daemon run`, else from the environment, which a daemon
/// inherits from the command that starts it, else a share of the machine's memory.
pub(super) fn settings(parsed: &Parsed) -> Result<Memory, Failure> {
    let given = limits(parsed, |name| std::env::var(name).ok())?;
    let whole = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let memory = Memory::of_machine(machine_bytes());
    Ok(Memory {
        node_cache_bytes: given.node_cache_bytes.map_or(memory.node_cache_bytes, whole),
        block_cache_bytes: given.block_cache_bytes.map_or(memory.block_cache_bytes, whole),
        dirty_bytes_max: given.dirty_bytes.unwrap_or(memory.dirty_bytes_max),
    })
}

/// Prints the memory of the running daemon, after limits that are given have replaced its own.
pub(super) fn show(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let doing = || "cannot get the memory of the daemon".to_owned();
    let mut client = Client::connect(&session.world.runtime(), &session.typed).doing(doing)?;
    let report = client.call(limits(parsed, |_| None)?).doing(doing)?;
    if parsed.has('j') {
        let mut document = json::document("daemon memory");
        document.insert("memory".into(), serde_json::to_value(&report).expect("a report is JSON"));
        session.line(json::text(document));
        return Ok(());
    }
    let exact = parsed.has('p');
    let bytes = |bytes: u64| if exact { bytes.to_string() } else { nice_bytes(bytes) };
    let (node, block, dirty) = (report.node_cache_bytes, report.block_cache_bytes, report.dirty_bytes);
    session.line(format!(
        "resident {}, maximum {}; limits: node cache {}, block cache {}, dirty changes {}",
        bytes(report.resident),
        bytes(report.resident_max),
        bytes(node),
        bytes(block),
        bytes(dirty)
    ));
    let mut rows = Vec::new();
    for pool in &report.pools {
        let mut row = |what: &str, used: u64, limit: String, cells: [String; 4]| {
            let head = [tame(&pool.name), what.to_owned(), bytes(used), limit];
            rows.push(head.into_iter().chain(cells).collect());
        };
        let none = || ["-"; 4].map(str::to_owned);
        let count = |count: u64| if exact { count.to_string() } else { nice_number(count) };
        let cells = |cache: &CacheReport| {
            [rate(cache, exact), count(cache.shared), count(cache.evictions), count(cache.pinned)]
        };
        row("node cache", pool.nodes.bytes, bytes(pool.nodes.bytes_max), cells(&pool.nodes));
        row("block cache", pool.blocks.bytes, bytes(pool.blocks.bytes_max), cells(&pool.blocks));
        if pool.chunks.bytes_max > 0 {
            row("store chunks", pool.chunks.bytes, bytes(pool.chunks.bytes_max), cells(&pool.chunks));
        }
        let inodes = &pool.inodes;
        row(
            &format!("open inodes, {}", inodes.live),
            inodes.live_bytes,
            bytes(inodes.live_bytes_max),
            none(),
        );
        row(&format!("idle inodes, {}", inodes.resting), inodes.resting_bytes, "-".into(), none());
        row("dirty changes", pool.dirty, bytes(pool.dirty_max), none());
        row("segment buffers", pool.buffers, "-".into(), none());
    }
    if !rows.is_empty() {
        let column = |(index, heading): (usize, &str)| Column { heading: heading.into(), right: index > 1 };
        let columns = ["POOL", "MEMORY", "USED", "LIMIT", "HITS", "SHARED", "EVICTED", "PINNED"];
        let columns: Vec<Column> = columns.into_iter().enumerate().map(column).collect();
        session.line(render(&columns, &rows, false).trim_end());
    }
    Ok(())
}

/// Hit rate in percent; as a fraction if exact.
fn rate(cache: &CacheReport, exact: bool) -> String {
    let asked = cache.hits + cache.shared + cache.misses;
    match (exact, asked) {
        (true, _) => format!("{}/{asked}", cache.hits),
        (false, 0) => "-".into(),
        (false, _) => format!("{:.1}%", cache.hits as f64 * 100.0 / asked as f64),
    }
}
