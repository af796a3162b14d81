//! The space that a file is said to occupy.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{ROOT, World};
use steadfast_dataset::Settings;
use steadfast_env::Env;

/// GNU tar takes a file of some size that occupies no block for one hole, and stores zeros. Content
/// must therefore count all the time: when it is in memory, in every moment of the sync that stores
/// it, and afterwards.
#[test]
fn a_file_with_content_never_seems_to_occupy_nothing() {
    let mut world = World::new(Env::seeded(1), Settings { recordsize: 128 << 10, zeros_are_holes: false });
    let mut files = Vec::new();
    for (name, bytes) in [(&b"inline"[..], 20), (b"small", 3000), (b"record", 128 << 10), (b"long", 400_000)]
    {
        let file = world.fs.mknod(ROOT, 1, name, 0o644, 0).expect("creates").attr.ino;
        world.fs.write(file, 0, &vec![7; bytes], false).expect("writes");
        files.push(file);
    }
    let (fs, watched) = (Arc::clone(&world.fs), files.clone());
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    world.blocks.watch_writes(move |kind| {
        counted.fetch_add(1, Ordering::Relaxed);
        for &file in &watched {
            assert!(fs.getattr(file).expect("there").blocks > 0, "inode {file} while {kind:?} is written");
        }
    });
    world.commit();
    assert!(calls.load(Ordering::Relaxed) >= 3, "data, extents and names were written");
    for &file in &files {
        world.fs.write(file, 10, b"again", false).expect("writes");
    }
    world.commit();
    for file in files {
        assert!(world.fs.getattr(file).expect("there").blocks > 0, "inode {file} afterwards");
    }
}
