//! Work in the background that a budget holds: it stops, and goes on when there is room again.

use std::sync::Arc;

use crate::common::{MIB, ROOT, finish, handle, handles, mount, noise, spec, write_file};
use steadfast_device::memory::{Effect, Fault};
use steadfast_device::{MemoryDevice, Operation};
use steadfast_env::Env;
use steadfast_pool::{GroupHandles, Pool, ScanState, ScrubCommand, Short, Sweep, TrimCommand, TrimState};

/// Each budget by itself, and both.
const SHORT: [Short; 3] = [
    Short { requests: true, egress: false },
    Short { requests: false, egress: true },
    Short { requests: true, egress: true },
];

fn steps(pool: &Pool) {
    (0..200).for_each(|_| pool.step());
}

fn pool_on(device: &Arc<MemoryDevice>) -> Pool {
    Pool::create(&Env::simulated(1), spec(vec![handle(device)], None)).expect("a pool")
}

#[test]
fn a_rebalance_waits_for_the_budget_and_goes_on() {
    for short in SHORT {
        let devices = ["a", "b"].map(|name| Arc::new(MemoryDevice::new(name, 128 * MIB)));
        let pool = pool_on(&devices[0]);
        {
            let (fs, _handle) = mount(&pool, "tank");
            for file in 0..4_u64 {
                write_file(&fs, ROOT, format!("{file}").as_bytes(), &noise(file, 10 << 20));
            }
        }
        pool.sync().expect("committed");
        let added = GroupHandles::alone(handles(&devices[1..]));
        pool.devices().add_groups(added, false, false).expect("added");
        pool.hold_background(short);
        pool.devices().rebalance(ScrubCommand::Start).expect("begun");
        steps(&pool);
        let taken = || {
            let devices = pool.state().accounting.devices;
            devices.iter().map(|device| device.slots - device.free_slots).collect::<Vec<_>>()
        };
        assert_eq!(pool.state().moving.expect("begun").state, ScanState::Active, "{short:?}");
        assert!(taken()[1] < 3, "{short:?}: {:?}", taken());
        pool.hold_background(Short::default());
        let is_over = || pool.state().moving.is_some_and(|job| job.state == ScanState::Finished);
        let over = (0..10_000).find(|_| {
            pool.step();
            is_over()
        });
        assert!(over.is_some(), "{short:?}: {:?}", pool.state().moving);
        pool.sync().expect("committed");
        assert!(taken()[1] * 2 > taken()[0], "{short:?}: {:?}", taken());
    }
}

#[test]
fn a_trim_and_an_initialization_wait_for_the_budget_and_go_on() {
    for (short, what) in
        SHORT.into_iter().flat_map(|short| [(short, Sweep::Trim), (short, Sweep::Initialize)])
    {
        let device = Arc::new(MemoryDevice::new("a", 128 * MIB));
        let pool = pool_on(&device);
        pool.sync().expect("committed");
        pool.hold_background(short);
        pool.devices().sweep(what, &[], TrimCommand::Start { rate: None }).expect("begun");
        let status = || {
            let leaf = &pool.state().leaves[0];
            if what == Sweep::Trim { leaf.trim } else { leaf.initialize }
        };
        steps(&pool);
        assert_eq!((status().state, status().done_bytes), (TrimState::Active, 0), "{short:?}, {what:?}");
        pool.hold_background(Short::default());
        steps(&pool);
        assert_eq!(status().state, TrimState::Complete, "{short:?}, {what:?}");
    }
}

/// The search looks at one file system a step, and a scrub is over when it is.
#[test]
fn the_search_for_damaged_files_waits_for_the_budget_and_goes_on() {
    const FILE_SYSTEMS: usize = 40;
    for short in SHORT {
        let device = Arc::new(MemoryDevice::new("a", 128 * MIB));
        let pool = pool_on(&device);
        for number in 0..FILE_SYSTEMS {
            pool.datasets()
                .create_dataset(&format!("tank/{number:02}"), Default::default(), None)
                .expect("made");
        }
        {
            let (fs, _handle) = mount(&pool, "tank/39");
            write_file(&fs, ROOT, b"lost", &noise(1, 1 << 20));
        }
        pool.sync().expect("committed");
        device.arm(Fault { operation: Operation::Read, skip: 0, effect: Effect::FailAlways });
        pool.devices().scrub(ScrubCommand::Start).expect("begun");
        let is_over = || pool.state().scan.is_some_and(|scan| scan.state == ScanState::Finished);
        (0..1_000).find(|_| {
            pool.step();
            is_over()
        });
        device.disarm();
        assert!(is_over(), "{short:?}");
        assert_ne!(pool.scan_remaining()[0], 0, "{short:?}: files are looked for");
        pool.hold_background(short);
        steps(&pool);
        assert_ne!(pool.scan_remaining()[0], 0, "{short:?}: and not while the budget is short");
        pool.hold_background(Short::default());
        finish(&pool);
    }
}
