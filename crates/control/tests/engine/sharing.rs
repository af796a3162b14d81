//! Blocks shared by content, without background work.

use super::*;
use steadfast_device::{Device, FileDevice, OpenOptions};
use steadfast_env::{Job, TaskHandle, Tasks};
use steadfast_pool::{AnchorWish, CreateSpec, DeviceHandle, GroupHandles, Pool};
use steadfast_posix::Usage;

/// Tasks of a world in which nobody works but who is asked: whoever waits for a commit makes it.
struct Still(Arc<dyn Tasks>);

/// A task that was never begun.
struct Never;

impl TaskHandle for Never {
    fn join(self: Box<Self>) -> bool {
        true
    }
}

impl Tasks for Still {
    fn spawn(&self, _: &str, _: Job<'static>) -> Box<dyn TaskHandle> {
        Box::new(Never)
    }

    fn run_all<'a>(&self, jobs: Vec<Job<'a>>) {
        self.0.run_all(jobs);
    }

    fn parallelism(&self) -> usize {
        1
    }

    fn is_concurrent(&self) -> bool {
        false
    }
}

/// A pool of so many records that are known by content, which no daemon has ever seen.
fn write_pool(env: &Env, image: &Path, records: u64) {
    const RECORD: usize = 4096;
    let device = Arc::new(FileDevice::open(image, &OpenOptions::WRITE).unwrap());
    let handle = DeviceHandle { path: image.display().to_string(), device: device as Arc<dyn Device> };
    let spec = CreateSpec {
        name: "tank".into(),
        groups: GroupHandles::alone(vec![handle]),
        ashift: 12,
        force: false,
        pool_props: BTreeMap::new(),
        root_props: BTreeMap::new(),
        key: None,
        aux: Default::default(),
        anchor: AnchorWish::default(),
        host: "host".into(),
        memory: MEMORY,
    };
    let pool = Pool::create(env, spec).unwrap();
    let settings = [("dedup", "on"), ("recordsize", "4096"), ("compression", "off")];
    let settings = settings.map(|(name, value)| (name.to_owned(), value.to_owned()));
    pool.datasets().create_dataset("tank/known", BTreeMap::from(settings), None).unwrap();
    {
        let opened = pool.datasets().open_dataset("tank/known").unwrap();
        let usage = Arc::new(|| Usage { used_bytes: 0, available_bytes: 1 << 30 });
        let options = Options { atime: Atime::Off, usage, block_bytes: 4096 };
        let files = FileSystem::new(Arc::clone(opened.dataset()), options).unwrap();
        let file = files.mknod(steadfast_posix::Caller::ROOT, 1, b"file", 0o100_644, 0).unwrap().ino;
        let mut record = vec![0; RECORD];
        for at in 0..records {
            env.random.fill(&mut record);
            files.write(file, at * RECORD as u64, &record, false).unwrap();
        }
        files.forget(file, 1);
    }
    pool.export().unwrap();
}

#[test]
fn a_table_that_is_asked_for_is_read_to_its_end() {
    /// More than an import reads at once.
    const RECORDS: u64 = 17_000;
    let seeded = Env::seeded(3);
    let still = Arc::new(Still(Arc::clone(&seeded.tasks)));
    let house = House::within(Env { tasks: still, ..seeded }, "prefetch");
    let image = house.folder.join("a.img");
    File::create(&image).unwrap().set_len(160 << 20).unwrap();
    write_pool(&house.env, &image, RECORDS);
    let sharing = || {
        let report = house.host().call(&caller(), PoolStatus::default()).unwrap().remove(0);
        report.sharing
    };
    house.import("tank", None).unwrap();
    let before = sharing();
    assert_eq!((before.entries, before.index_filled), (RECORDS, false), "{before:?}");
    assert!(before.index_bytes < RECORDS * 40, "{before:?}");
    house.host().call(&caller(), PoolPrefetch { names: vec!["tank".into()] }).unwrap();
    let after = sharing();
    assert_eq!((after.entries, after.index_filled, after.index_bytes), (RECORDS, true, RECORDS * 40));
    let nobody = PoolPrefetch { names: vec!["pond".into()] };
    assert_eq!(house.host().call(&caller(), nobody).unwrap_err().code, Code::PoolAbsent);
}
