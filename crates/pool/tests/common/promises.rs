//! Pools that make promises: whose clock closes no txg, files that are to be durable, and what the
//! offline check says of them.

use std::sync::Arc;

use steadfast_device::{Device, MemoryDevice};
use steadfast_env::Env;
use steadfast_inspect::{Finding, Leaf, Request, Severity};
use steadfast_pool::Pool;
use steadfast_posix::FileSystem;

use crate::common::{ME, ROOT, mount};

/// A clock of its own, by which no txg closes for its age.
pub fn still() -> Env {
    Env { clock: Env::seeded(1).clock, ..Env::real() }
}

/// Writes one file and asks for it to be durable.
pub fn put(fs: &FileSystem, name: &str, content: &[u8]) {
    let entry =
        fs.lookup(ROOT, name.as_bytes()).or_else(|_| fs.mknod(ME, ROOT, name.as_bytes(), 0o100_644, 0));
    let ino = entry.expect("made").ino;
    fs.write(ino, 0, content, false).expect("written");
    fs.fsync(ino).expect("durable");
    fs.forget(ino, 1);
}

/// Names of the files in the root, sorted; hidden ones left out.
pub fn names(pool: &Pool) -> Vec<String> {
    let (fs, _used) = mount(pool, "tank");
    let mut names = Vec::new();
    fs.readdir(ROOT, 2, |entry| {
        names.push(String::from_utf8(entry.name).expect("a name"));
        true
    })
    .expect("listed");
    names.retain(|name| !name.starts_with('.'));
    names.sort();
    names
}

/// Findings of the offline check on these devices, without torn uberblocks: a power cut leaves
/// them.
pub fn findings(devices: &[Arc<MemoryDevice>]) -> Vec<Finding> {
    let leaf = |device: &Arc<MemoryDevice>| {
        let copy = Arc::new(MemoryDevice::from_image("copy", device.image()));
        Leaf { path: device.character().identity, device: copy as Arc<dyn Device> }
    };
    let leaves: Vec<Leaf> = devices.iter().map(leaf).collect();
    let env = Env::seeded(1);
    let mut findings = Vec::new();
    let request = Request { leaves: &leaves, secret: None, anchor: None, env: &env };
    steadfast_inspect::check(&request, &mut |finding| findings.push(finding));
    findings.retain(|finding| !matches!(finding, Finding::UberblockTorn { .. }));
    findings
}

/// Codes of what is worse than a note.
pub fn wrong(devices: &[Arc<MemoryDevice>]) -> Vec<&'static str> {
    let found = findings(devices);
    found.iter().map(Finding::class).filter(|class| class.1 > Severity::Note).map(|class| class.0).collect()
}
