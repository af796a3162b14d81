//! Pools on all kinds of devices, and files in them.
#![allow(dead_code, reason = "examples use a part")]

use std::sync::Arc;

use steadfast_anchor::{MemoryRegister, Register, Witness};
use steadfast_device::{Device, MemoryDevice};
use steadfast_env::Env;
use steadfast_format::{KeyFormat, PoolGuid};
use steadfast_pool::{
    AnchorWish, CreateSpec, DeviceHandle, Error, ImportSpec, Memory, NewKey, Pool, Registers, new_user_key,
    scan,
};
use steadfast_posix::{Atime, Caller, FileSystem, Options, Usage};

pub const MIB: u64 = 1 << 20;
pub const ROOT: u64 = 1;
pub const ME: Caller = Caller::ROOT;

pub fn handle<D: Device + 'static>(device: &Arc<D>) -> DeviceHandle {
    DeviceHandle { path: device.character().identity, device: Arc::clone(device) as Arc<dyn Device> }
}

pub fn handles(devices: &[Arc<MemoryDevice>]) -> Vec<DeviceHandle> {
    devices.iter().map(handle).collect()
}

pub fn spec(devices: Vec<DeviceHandle>, key: Option<NewKey>) -> CreateSpec {
    CreateSpec {
        name: "tank".into(),
        groups: steadfast_pool::GroupHandles::alone(devices),
        ashift: 12,
        force: false,
        pool_props: Default::default(),
        root_props: Default::default(),
        key,
        aux: Default::default(),
        anchor: AnchorWish::default(),
        host: "host".into(),
        memory: Memory::default(),
    }
}

pub fn import_spec(secret: Option<&[u8]>) -> ImportSpec {
    ImportSpec {
        new_name: None,
        force: false,
        destroyed: false,
        read_only: false,
        accept_lost_log: false,
        to_checkpoint: false,
        secret: secret.map(|secret| secret.to_vec().into()),
        anchor: AnchorWish::default(),
        host: "host".into(),
        memory: Memory::default(),
    }
}

pub fn import(env: &Env, devices: Vec<DeviceHandle>, secret: Option<&[u8]>) -> Result<Pool, Error> {
    let (mut pools, others) = scan(devices);
    assert_eq!((pools.len(), others.len()), (1, 0));
    Pool::import(env, pools.remove(0), &import_spec(secret))
}

pub fn mount(pool: &Pool, name: &str) -> (FileSystem, steadfast_pool::DatasetHandle) {
    let handle = pool.datasets().open_dataset(name).expect("the dataset opens");
    (FileSystem::new(Arc::clone(handle.dataset()), options()).expect("a file system"), handle)
}

pub fn options() -> Options {
    Options {
        atime: Atime::Relative,
        usage: Arc::new(|| Usage { used_bytes: 0, available_bytes: 1 << 30 }),
        block_bytes: 4096,
    }
}

/// Lets the scan under way come to its end: part by part, as the sync task does it.
pub fn finish(pool: &Pool) {
    for _ in 0..10_000 {
        if pool.scan_remaining() == [0, 0] {
            return;
        }
        pool.step();
    }
    panic!("{:?}", pool.state().scan);
}

/// Bytes that do not compress.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    // A word at a time: a byte at a time took half of the time of some tests.
    let mut noise = vec![0; bytes];
    for word in noise.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let drawn = state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes();
        word.copy_from_slice(&drawn[..word.len()]);
    }
    noise
}

pub fn write_file(fs: &FileSystem, parent: u64, name: &[u8], data: &[u8]) -> u64 {
    let entry = fs.mknod(ME, parent, name, 0o100_644, 0).expect("made");
    for (index, piece) in data.chunks(1 << 20).enumerate() {
        fs.write(entry.ino, (index as u64) << 20, piece, false).expect("written");
    }
    fs.forget(entry.ino, 1);
    entry.ino
}

pub fn read_file(fs: &FileSystem, parent: u64, name: &[u8]) -> Vec<u8> {
    let entry = fs.lookup(parent, name).expect("found");
    let mut data = vec![0; usize::try_from(entry.attr.size).unwrap()];
    let mut at = 0;
    while at < data.len() {
        let end = data.len().min(at + (1 << 20));
        at += fs.read(entry.ino, at as u64, &mut data[at..end]).expect("read");
    }
    fs.forget(entry.ino, 1);
    data
}

pub fn key(env: &Env, secret: &[u8]) -> NewKey {
    let random = |out: &mut [u8]| env.random.fill(out);
    let user = new_user_key(KeyFormat::Raw, secret, &random, None).expect("a raw key");
    NewKey { user: Arc::new(user) }
}

/// A draw that repeats.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// One register for every path, of which no host remembers anything.
pub struct OneRegister(pub Arc<MemoryRegister>);

impl Registers for OneRegister {
    fn register(&self, _: &str) -> Arc<dyn Register> {
        Arc::clone(&self.0) as Arc<dyn Register>
    }

    fn witness(&self, _: PoolGuid) -> Option<Arc<dyn Witness>> {
        None
    }
}

/// An anchor in that register.
pub fn anchored_in(register: &Arc<MemoryRegister>) -> AnchorWish {
    AnchorWish {
        registers: Some(Arc::new(OneRegister(Arc::clone(register)))),
        path: Some("/safe/tank.anchor".to_owned()),
        ..AnchorWish::default()
    }
}
