//! Pools as the room `pool` makes them: after every kind of change, the check has nothing to say.
//! It also holds the two writings of what keys are bound to together (ours is in `keys.rs`).

use std::sync::Arc;

use steadfast_device::{Device, MemoryDevice};
use steadfast_env::Env;
use steadfast_format::KeyFormat;
use steadfast_inspect::{Finding, Leaf, Record, Request, Selector, Severity, Summary};
use steadfast_pool::{
    CreateSpec, DatasetHandle, DeviceHandle, ImportSpec, Memory, NewKey, Pool, new_user_key, scan,
};
use steadfast_posix::{Atime, Caller, FileSystem, Options, Usage};

pub const ROOT: u64 = 1;
pub const ME: Caller = Caller::ROOT;
const SECRET: [u8; 32] = [0x77; 32];

fn handle(device: &Arc<MemoryDevice>) -> DeviceHandle {
    DeviceHandle { path: device.character().identity, device: Arc::clone(device) as Arc<dyn Device> }
}

pub fn new_key(env: &Env) -> NewKey {
    let random = |out: &mut [u8]| env.random.fill(out);
    NewKey { user: Arc::new(new_user_key(KeyFormat::Raw, &SECRET, &random, None).unwrap()) }
}

pub fn create(env: &Env, devices: &[Arc<MemoryDevice>], sealed: bool) -> Pool {
    let spec = CreateSpec {
        name: "tank".into(),
        groups: steadfast_pool::GroupHandles::alone(devices.iter().map(handle).collect()),
        ashift: 12,
        force: false,
        pool_props: Default::default(),
        root_props: Default::default(),
        key: sealed.then(|| new_key(env)),
        aux: Default::default(),
        anchor: Default::default(),
        host: "host".into(),
        memory: Memory::default(),
    };
    Pool::create(env, spec).unwrap()
}

fn import(env: &Env, devices: &[Arc<MemoryDevice>], sealed: bool) -> Pool {
    let (mut pools, _) = scan(devices.iter().map(handle).collect());
    let spec = ImportSpec {
        new_name: None,
        force: true,
        destroyed: false,
        read_only: false,
        accept_lost_log: false,
        to_checkpoint: false,
        secret: sealed.then(|| SECRET.to_vec().into()),
        anchor: Default::default(),
        host: "host".into(),
        memory: Memory::default(),
    };
    Pool::import(env, pools.remove(0), &spec).unwrap()
}

pub fn mount(pool: &Pool, name: &str) -> (FileSystem, DatasetHandle) {
    let handle = pool.datasets().open_dataset(name).unwrap();
    let options = Options {
        atime: Atime::Relative,
        usage: Arc::new(|| Usage { used_bytes: 0, available_bytes: 1 << 30 }),
        block_bytes: 4096,
    };
    (FileSystem::new(Arc::clone(handle.dataset()), options).unwrap(), handle)
}

pub fn write(fs: &FileSystem, name: &str, seed: u32, bytes: usize) {
    let entry = match fs.lookup(ROOT, name.as_bytes()) {
        Ok(entry) => entry,
        Err(_) => fs.mknod(ME, ROOT, name.as_bytes(), 0o100_644, 0).unwrap(),
    };
    // Bytes that do not compress.
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let draw = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    let data: Vec<u8> = (0..bytes).map(draw).collect();
    for (piece, data) in data.chunks(1 << 20).enumerate() {
        fs.write(entry.ino, (piece as u64) << 20, data, false).unwrap();
    }
    fs.forget(entry.ino, 1);
}

fn leaves(devices: &[Arc<MemoryDevice>]) -> Vec<Leaf> {
    let leaf = |device: &Arc<MemoryDevice>| Leaf {
        path: device.character().identity,
        device: Arc::clone(device) as Arc<dyn Device>,
    };
    devices.iter().map(leaf).collect()
}

pub fn check(devices: &[Arc<MemoryDevice>], env: &Env) -> (Vec<Finding>, Summary) {
    let leaves = leaves(devices);
    let request = Request { leaves: &leaves, secret: Some(SECRET.to_vec()), anchor: None, env };
    let mut findings = Vec::new();
    let summary = steadfast_inspect::check(&request, &mut |finding| findings.push(finding));
    (findings, summary)
}

pub fn must_be_clean(devices: &[Arc<MemoryDevice>], env: &Env, when: &str) -> Summary {
    let (findings, summary) = check(devices, env);
    let told: Vec<String> = findings.iter().map(|finding| finding.record().to_string()).collect();
    assert_eq!(told, Vec::<String>::new(), "{when}");
    summary
}

#[test]
fn a_pool_is_clean_after_every_kind_of_change() {
    for sealed in [false, true] {
        let env = Env::real();
        let devices: Vec<_> =
            ["a", "b"].map(|name| Arc::new(MemoryDevice::new(name, 96 << 20))).into_iter().collect();
        let pool = create(&env, &devices, sealed);
        must_be_clean(&devices, &env, "after create");
        pool.datasets().create_dataset("tank/plain", Default::default(), None).unwrap();
        pool.datasets().create_dataset("tank/vault", Default::default(), Some(new_key(&env))).unwrap();
        pool.datasets().create_dataset("tank/vault/inner", Default::default(), None).unwrap();
        must_be_clean(&devices, &env, "after create of datasets");
        for name in ["tank", "tank/plain", "tank/vault", "tank/vault/inner"] {
            let (fs, _handle) = mount(&pool, name);
            for file in 0..40 {
                write(&fs, &format!("file-{file}"), file, 700 * file as usize);
            }
            write(&fs, "large", 7, 3_000_000);
        }
        pool.sync().unwrap();
        let summary = must_be_clean(&devices, &env, "after files were written");
        assert_eq!(summary.datasets, 4);
        assert!(summary.bytes > 12_000_000, "{summary:?}");
        for round in 0..4 {
            for name in ["tank/plain", "tank/vault/inner"] {
                let (fs, _handle) = mount(&pool, name);
                for file in (0..40).filter(|file| file % 4 == round) {
                    write(&fs, &format!("file-{file}"), 90 + file, 20_000);
                    fs.unlink(ROOT, format!("file-{}", (file + 1) % 40).as_bytes()).ok();
                }
                write(&fs, "large", 8 + round, 3_000_000);
            }
            pool.sync().unwrap();
            must_be_clean(&devices, &env, "after files were rewritten and removed");
        }
        pool.datasets().destroy_dataset("tank/plain").unwrap();
        pool.sync().unwrap();
        must_be_clean(&devices, &env, "after a dataset was destroyed");
        pool.export().unwrap();
        drop(pool);
        must_be_clean(&devices, &env, "after export");
        let pool = import(&env, &devices, sealed);
        must_be_clean(&devices, &env, "after import");
        drop(pool);
        must_be_clean(&devices, &env, "after a crash");
    }
}

#[test]
fn trees_of_a_pool_are_printed_and_its_decay_is_found() {
    let env = Env::real();
    let devices = vec![Arc::new(MemoryDevice::new("a", 96 << 20))];
    let pool = create(&env, &devices, false);
    let (fs, handle) = mount(&pool, "tank");
    write(&fs, "big", 5, 2_000_000);
    drop((fs, handle));
    pool.export().unwrap();
    let leaves = leaves(&devices);
    let request = Request { leaves: &leaves, secret: None, anchor: None, env: &env };
    let mut records: Vec<Record> = Vec::new();
    for selector in [Selector::Meta, Selector::Names("tank".into()), Selector::Extents("1".into())] {
        steadfast_inspect::tree(&request, &selector, &mut |record| records.push(record)).unwrap();
    }
    steadfast_inspect::segments(&request, &mut |record| records.push(record)).unwrap();
    steadfast_inspect::tail(&request, &mut |record| records.push(record)).unwrap();
    steadfast_inspect::uberblock(&request, &mut |record| records.push(record)).unwrap();
    steadfast_inspect::label(&leaves[0], &mut |record| records.push(record));
    let has = |what: &str, field: &str, value: &str| {
        records.iter().any(|r| r.what == what && r.get(field).is_some_and(|v| v.as_str() == Some(value)))
    };
    assert!(has("entry", "name", "big") && has("dataset", "name", "") && has("config", "pool", "tank"));
    for what in ["node", "inode", "extent", "segment", "totals", "tail", "row", "uberblock", "label", "leaf"]
    {
        assert!(records.iter().any(|record| record.what == what), "{what}");
    }
    assert!(!records.iter().any(|record| record.what == "malformed"));

    // One flipped bit in what the first extent's block holds.
    let extent =
        records.iter().find(|record| record.what == "extent" && record.get("block").is_some()).unwrap();
    let place = extent.get("block").and_then(|block| block.as_str()).unwrap().split(' ').next().unwrap();
    let (segment, offset) = place.split_once(':').unwrap();
    let row = records.iter().find(|r| {
        r.what == "segment"
            && r.get("id").is_some_and(|id| id.as_u64() == segment.parse().ok())
            && r.get("live").is_some()
    });
    let slot =
        row.unwrap().get("place").and_then(|place| place.as_str()).unwrap().split(':').next_back().unwrap();
    let at = (512 << 10) + slot.parse::<u64>().unwrap() * (1 << 20) + offset.parse::<u64>().unwrap();
    let span = format!("{segment}:{offset}:16").parse().unwrap();
    let bytes = |leaves: &[Leaf]| {
        let request = Request { leaves, secret: None, anchor: None, env: &env };
        let mut lines = Vec::new();
        steadfast_inspect::block(&request, span, &mut |record| lines.push(record.to_string())).unwrap();
        lines
    };
    let before = bytes(&leaves);
    devices[0].flip_bit(at + 3, 0);
    assert_ne!(bytes(&leaves), before);
    let (findings, summary) = check(&devices, &env);
    assert!(matches!(&findings[..], [Finding::BlockLost { .. }]), "{findings:?}");
    assert_eq!(summary.worst(), Some(Severity::Damage));
}
