//! A volume as an NBD client reads and writes it.

use std::ops::Range;
use std::sync::Arc;

use steadfast_nbd::{Export, Fault};
use steadfast_pool::{DatasetHandle, SnapshotHandle};
use steadfast_posix::{Atime, Errno, Fallocate, FileSystem, Options, Usage};

use crate::volume_client::VolumeClient;

/// Inode of the one file that a volume is.
const ROOT: u64 = 1;

/// A volume, or a snapshot of one, that an NBD client has opened.
pub struct OpenVolume {
    files: FileSystem,
    bytes: u64,
    block_bytes: u32,
    read_only: bool,
    /// Range that held only data at the last look for the next hole, which may be far away. A hole
    /// that was made there since is reported as data, which is correct: it reads as zeros.
    data: Range<u64>,
    /// The snapshot, if this is one. It may be destroyed while it is open.
    snapshot: Option<SnapshotHandle>,
    client: VolumeClient,
    // Dropped last: the dataset is in use until then.
    _handle: DatasetHandle,
}

impl OpenVolume {
    /// Opens a volume, or its snapshot of that name, for a client. `None` if there is no such
    /// snapshot, or it is no volume.
    #[must_use]
    pub fn new(
        handle: DatasetHandle,
        snapshot: Option<&str>,
        usage: Arc<dyn Fn() -> Usage + Send + Sync>,
        read_only: bool,
        client: VolumeClient,
    ) -> Option<OpenVolume> {
        let options = Options { atime: Atime::Off, usage, block_bytes: 4096 };
        let (files, snapshot) = match snapshot {
            None => (FileSystem::new(Arc::clone(handle.dataset()), options).ok()?, None),
            Some(name) => {
                let snapshot = handle.snapshots().open(name)?;
                let dataset = snapshot.with(Arc::clone)?;
                (FileSystem::of_snapshot(dataset, options), Some(snapshot))
            }
        };
        let attr = files.getattr(ROOT).ok().filter(|_| files.is_volume())?;
        let read_only = read_only || snapshot.is_some();
        let (bytes, block_bytes) = (attr.size, attr.blksize);
        let data = 0..0;
        Some(OpenVolume { files, bytes, block_bytes, read_only, data, snapshot, client, _handle: handle })
    }

    fn ask<T>(&self, ask: impl FnOnce(&FileSystem) -> steadfast_posix::Result<T>) -> Result<T, Fault> {
        let asked = || match &self.snapshot {
            None => Ok(ask(&self.files)),
            // It was destroyed.
            Some(snapshot) => snapshot.with(|_| ask(&self.files)).ok_or(Fault::Shutdown),
        };
        self.client.attend(asked)?.map_err(fault)
    }
}

fn fault(errno: Errno) -> Fault {
    match errno {
        Errno::ENOSPC | Errno::EDQUOT => Fault::NoSpace,
        Errno::EROFS | Errno::EPERM | Errno::EACCES => Fault::Perm,
        Errno::EINVAL => Fault::Invalid,
        _ => Fault::Io,
    }
}

impl Export for OpenVolume {
    fn size(&self) -> u64 {
        self.bytes
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < out.len() {
            let count = self.ask(|files| files.read(ROOT, offset + done as u64, &mut out[done..]))?;
            if count == 0 {
                return Err(Fault::Io);
            }
            done += count;
        }
        Ok(())
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        self.ask(|files| files.write(ROOT, offset, data, false)).map(drop)
    }

    fn zero(&mut self, offset: u64, length: u64) -> Result<(), Fault> {
        self.data = 0..0;
        self.ask(|files| files.fallocate(ROOT, Fallocate::PunchHole, offset, length, false)).map(drop)
    }

    fn flush(&mut self) -> Result<(), Fault> {
        if self.read_only {
            return Ok(());
        }
        self.ask(|files| files.fsync(ROOT))
    }

    fn extent(&mut self, offset: u64, length: u64) -> Result<(u64, bool), Fault> {
        if self.data.contains(&offset) {
            return Ok(((self.data.end - offset).min(length), true));
        }
        let next = |data: bool| {
            let found = self.ask(|files| match files.seek(ROOT, offset, data) {
                Err(Errno::ENXIO) => Ok(None),
                found => found.map(Some),
            })?;
            Ok(found.unwrap_or(self.bytes))
        };
        let data = next(true)?;
        match data == offset {
            true => {
                let end = next(false)?;
                self.data = offset..end;
                Ok(((end - offset).min(length), true))
            }
            false => Ok(((data - offset).min(length), false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;
    use std::sync::atomic::{AtomicBool, Ordering};

    use steadfast_device::Operation;
    use steadfast_device::objects::{MemoryStore, ObjectDevice, Request, StoreFault};
    use steadfast_env::Env;
    use steadfast_pool::{
        CreateSpec, DeviceHandle, GroupHandles, ImportSpec, Memory, Pool, VolumeSpec, scan,
    };

    use super::*;

    const BLOCK: usize = 64 << 10;

    /// A store whose segments cannot be read while it is away, and the pool on it.
    struct Cloud {
        store: MemoryStore,
        away: Arc<AtomicBool>,
    }

    /// Ends an outage, so that no thread of a failed test waits for ever.
    struct Returned<'a>(&'a AtomicBool);

    impl Drop for Returned<'_> {
        fn drop(&mut self) {
            self.0.store(false, Ordering::SeqCst);
        }
    }

    impl Cloud {
        fn devices(&self, writer: u8) -> Vec<DeviceHandle> {
            let away = Arc::clone(&self.away);
            let hook = move |request: &Request| {
                let is_content = request.name.starts_with("seg/") && request.operation == Operation::Read;
                (is_content && away.load(Ordering::SeqCst)).then_some(StoreFault::Away)
            };
            let store = Arc::new(self.store.handle(hook));
            let device = ObjectDevice::open(store, Some(256 << 20), [writer; 16]).expect("a store");
            vec![DeviceHandle { path: "bucket".into(), device: Arc::new(device) }]
        }

        fn create(&self) {
            let spec = CreateSpec {
                name: "tank".into(),
                groups: GroupHandles::alone(self.devices(1)),
                ashift: 12,
                force: false,
                pool_props: Default::default(),
                root_props: Default::default(),
                key: None,
                aux: Default::default(),
                anchor: Default::default(),
                host: "host".into(),
                memory: Memory::default(),
            };
            let pool = Pool::create(&Env::real(), spec).expect("a pool");
            let volume = VolumeSpec { bytes: 1 << 20, block_bytes: BLOCK as u32 };
            pool.datasets().create_volume("tank/disk", Default::default(), None, volume).expect("made");
            let mut disk = open(&pool, None).expect("opens");
            for block in 0..4 {
                disk.write((block * BLOCK) as u64, &content(block)).expect("written");
            }
            drop(disk);
            let names = ["tank/disk@then".to_owned()];
            pool.datasets().take_snapshots(&names, &Default::default()).expect("taken");
            pool.export().expect("exported");
        }

        /// Nothing of the volume is in memory.
        fn import(&self) -> Pool {
            let (mut pools, _) = scan(self.devices(2));
            let spec = ImportSpec {
                new_name: None,
                force: false,
                destroyed: false,
                read_only: false,
                accept_lost_log: false,
                to_checkpoint: false,
                secret: None,
                anchor: Default::default(),
                host: "host".into(),
                memory: Memory::default(),
            };
            let pool = Pool::import(&Env::real(), pools.remove(0), &spec).expect("it opens");
            pool.wait_for_devices();
            pool.sync().expect("its first commit is over");
            pool
        }
    }

    fn content(block: usize) -> Vec<u8> {
        (0..BLOCK).map(|at| (at * 7 + at / 251 + block * 31) as u8).collect()
    }

    fn open_for(pool: &Pool, snapshot: Option<&str>, connection: UnixStream) -> Option<OpenVolume> {
        let handle = pool.datasets().open_dataset("tank/disk").expect("the dataset opens");
        let client = VolumeClient::new(Arc::new(connection));
        OpenVolume::new(handle, snapshot, Arc::new(Usage::default), false, client)
    }

    fn open(pool: &Pool, snapshot: Option<&str>) -> Option<OpenVolume> {
        open_for(pool, snapshot, UnixStream::pair().expect("two sockets").0)
    }

    fn until(is_so: impl Fn() -> bool) {
        for _ in 0..60_000 {
            if is_so() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        panic!("it does not come");
    }

    /// A guest whose disk is a volume sees a slow disk, not a broken one, with `failmode=wait`.
    #[test]
    fn a_read_of_what_only_the_store_has_waits_as_failmode_says() {
        let cloud = Cloud { store: MemoryStore::new("bucket"), away: Arc::default() };
        cloud.create();
        let pool = cloud.import();
        pool.set_pool_prop("failmode", Some("wait")).expect("set");
        let (ours, theirs) = UnixStream::pair().expect("two sockets");
        let mut disk = open_for(&pool, None, ours).expect("opens");
        let mut then = open(&pool, Some("then")).expect("opens");
        let mut out = vec![0; BLOCK];

        // It waits until the store is back.
        for (block, volume) in [(0, &mut disk), (1, &mut then)] {
            cloud.away.store(true, Ordering::SeqCst);
            std::thread::scope(|scope| {
                let outage = Returned(&cloud.away);
                let held = scope.spawn(|| volume.read((block * BLOCK) as u64, &mut out));
                until(|| pool.store_away().is_some());
                assert!(!held.is_finished());
                drop(outage);
                assert!(pool.resume(), "{:?}", pool.suspended());
                held.join().expect("no panic").expect("read");
            });
            assert!(out == content(block));
        }

        // A client that hangs up is not kept, and takes the outage along.
        cloud.away.store(true, Ordering::SeqCst);
        let outage = Returned(&cloud.away);
        std::thread::scope(|scope| {
            let _ends = Returned(&cloud.away);
            let held = scope.spawn(|| disk.read(2 * BLOCK as u64, &mut out));
            until(|| pool.store_away().is_some());
            drop(theirs);
            assert_eq!(held.join().expect("no panic"), Err(Fault::Io));
            until(|| pool.store_away().is_none());
        });
        pool.set_pool_prop("failmode", Some("continue")).expect("set");
        cloud.away.store(true, Ordering::SeqCst);
        assert_eq!(then.read(3 * BLOCK as u64, &mut out), Err(Fault::Io));
        drop(outage);
        then.read(3 * BLOCK as u64, &mut out).expect("read");
        assert!(out == content(3));
    }
}
