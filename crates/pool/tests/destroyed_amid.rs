//! A snapshot is destroyed while a commit is at work on what it held: whatever moment that is,
//! nothing is left behind.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{MIB, ROOT, handles, mount, noise, spec, write_file};
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_pool::Pool;

/// Moments that are tried, spread over a commit.
const ROUNDS: u32 = 40;
const FILE_BYTES: usize = 6 << 20;

/// Commits until nothing is to be freed, and gives what lives then.
fn settled(pool: &Pool) -> u64 {
    for _ in 0..2000 {
        pool.sync().expect("committed");
        if pool.datasets().freeing() == 0 {
            break;
        }
    }
    assert_eq!(pool.datasets().freeing(), 0);
    pool.state().accounting.live_bytes
}

#[test]
fn whatever_moment_of_a_commit_a_snapshot_is_destroyed_in_all_of_it_comes_back() {
    let env = Env::real();
    let devices = [Arc::new(MemoryDevice::new("a", 128 * MIB))];
    let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
    let props = [("recordsize", "4096"), ("compression", "off")];
    let props = props.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    pool.datasets().create_dataset("tank/fs", props, None).expect("made");
    let (fs, _open) = mount(&pool, "tank/fs");
    let content = noise(1, FILE_BYTES);
    let before = settled(&pool);
    let snapshot = ["tank/fs@amid".to_owned()];
    // How long a commit takes that lets go of the file; the first round measures it.
    let mut commit = Duration::ZERO;
    for round in 0..ROUNDS {
        write_file(&fs, ROOT, b"file", &content);
        pool.datasets().take_snapshots(&snapshot, &Default::default()).expect("taken");
        fs.unlink(ROOT, b"file").expect("deleted");
        std::thread::scope(|scope| {
            let begun = Instant::now();
            let committing = scope.spawn(|| pool.sync().expect("committed"));
            if round == 0 {
                committing.join().expect("no panic");
                commit = begun.elapsed();
            }
            while begun.elapsed() < commit * round / ROUNDS {
                std::hint::spin_loop();
            }
            pool.datasets().destroy_snapshots(&snapshot, false).expect("destroyed");
        });
        let after = settled(&pool);
        assert!(after < before + MIB, "round {round}: {before} bytes lived, now {after}");
    }
}
