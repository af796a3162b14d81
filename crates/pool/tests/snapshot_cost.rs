//! Cost of a snapshot: the same beside a thousand others as beside ten. Counted in writes, of which
//! a clock knows nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{MIB, ROOT, handles, mount, noise, spec, write_file};
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_pool::Pool;

struct Machine {
    device: Arc<MemoryDevice>,
    pool: Pool,
    file: u64,
    /// Snapshots there are.
    count: u64,
}

impl Machine {
    fn new() -> Machine {
        let device = Arc::new(MemoryDevice::new("device", 512 * MIB));
        let pool = Pool::create(&Env::simulated(2), spec(handles(&[Arc::clone(&device)]), None));
        let pool = pool.expect("a pool");
        pool.datasets().create_dataset("tank/fs", BTreeMap::new(), None).expect("made");
        let file = {
            let (fs, _handle) = mount(&pool, "tank/fs");
            write_file(&fs, ROOT, b"file", &noise(1, 300_000))
        };
        Machine { device, pool, file, count: 0 }
    }

    /// Changes a page of the file and commits it, and takes a snapshot then. Gives the writes and
    /// bytes of the snapshot alone.
    fn take(&mut self) -> (u64, u64) {
        {
            let (fs, _handle) = mount(&self.pool, "tank/fs");
            fs.write(self.file, 4096 * (self.count % 70), &noise(self.count, 4096), false).expect("written");
        }
        self.pool.sync().expect("committed");
        let before = self.device.counts();
        let name = format!("tank/fs@number {}", self.count).replace(' ', "-");
        self.pool.datasets().take_snapshots(&[name], &BTreeMap::new()).expect("taken");
        let after = self.device.counts();
        self.count += 1;
        (after.writes - before.writes, after.written_bytes - before.written_bytes)
    }

    /// The most of some snapshots, once there are so many.
    fn cost(&mut self, count: u64) -> (u64, u64) {
        while self.count < count {
            self.take();
        }
        let each: Vec<(u64, u64)> = (0..8).map(|_| self.take()).collect();
        (
            each.iter().map(|cost| cost.0).max().expect("some"),
            each.iter().map(|cost| cost.1).max().expect("some"),
        )
    }
}

#[test]
fn a_snapshot_costs_as_much_beside_a_thousand_as_beside_ten() {
    let mut machine = Machine::new();
    let few = machine.cost(10);
    let many = machine.cost(1_000);
    assert_eq!(machine.pool.datasets().snapshot_names("tank/fs").expect("there").len(), 1_008);
    // The tree that lists them may have become one level higher, in two copies.
    assert!(
        many.0 <= few.0 + 2 && many.1 <= few.1 + (64 << 10),
        "beside ten {few:?}, beside a thousand {many:?}"
    );
    machine.pool.export().expect("exported");
}
