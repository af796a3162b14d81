//! A directory whose names all hash alike. The hash is keyed with a seed of the dataset, so nobody
//! can choose such names; here they are planted by a test that knows the seed.

use crate::support;
use crate::support::World;
use steadfast_dataset::Settings;
use steadfast_env::Env;
use steadfast_format::InodeId;
use steadfast_format::dirent::{Dirent, PROBES, first_cookie};
use steadfast_format::file_keys::NamesKey;
use steadfast_posix::Errno;

/// An item of the root directory under a cookie, as if its name had that hash.
fn item(world: &World, cookie: u64, to: u64, name: &str) -> (Vec<u8>, Option<Vec<u8>>) {
    let kind =
        u8::try_from((world.fs.getattr(to).expect("there").mode & 0o170_000) >> 12).expect("four bits");
    let entry = Dirent { inode: InodeId(to), kind, name: name.into() };
    (NamesKey::Entry { directory: InodeId(1), cookie }.encode(), Some(entry.encode()))
}

#[test]
fn names_that_collide_are_told_apart_until_there_is_no_place_left() {
    let world = World::new(Env::seeded(1), Settings::default());
    let other = world.file("other");
    let first = first_cookie(world.fs.dataset().hash_seed(), b"target");
    let planted = |n: u64| item(&world, first + n, other, &format!("planted {n}"));
    world.fs.dataset().batch((0..PROBES - 1).map(planted).collect()).expect("planted");
    let target = world.file("target");
    let found = world.fs.lookup(1, b"target").expect("found behind all that hash alike");
    world.fs.forget(found.ino, 1);
    assert_eq!(found.ino, target);
    assert_eq!(world.list(1).len() as u64, PROBES - 1 + 2, "each is listed once");
    // The last place is taken now: a further name has none, and is refused without a trace.
    let key = |n: u64| NamesKey::Entry { directory: InodeId(1), cookie: first + n }.encode();
    world.fs.unlink(1, b"target").expect("removed");
    world.fs.dataset().batch(vec![planted(PROBES - 1)]).expect("planted");
    let before = world.list(1);
    assert_eq!(world.fs.mknod(support::ROOT, 1, b"target", 0o100_644, 0).err(), Some(Errno::ENOSPC));
    assert_eq!(world.list(1), before);
    assert_eq!(world.fs.lookup(1, b"target").err(), Some(Errno::ENOENT));
    // A place that comes free in the middle is used, and nothing behind it is lost.
    world.fs.dataset().batch(vec![(key(100), None)]).expect("removed");
    let target = world.file("target");
    let found = world.fs.lookup(1, b"target").expect("found");
    world.fs.forget(found.ino, 1);
    assert_eq!(found.ino, target);
}

#[test]
fn the_seed_of_the_dataset_decides_which_names_collide() {
    let names: Vec<String> = (0..2_000).map(|n| format!("name {n}")).collect();
    let order = |seed: u8| {
        let mut sorted: Vec<&String> = names.iter().collect();
        sorted.sort_by_key(|name| first_cookie(&[seed; 16], name.as_bytes()));
        sorted
    };
    assert_ne!(order(1), order(2), "who does not know the seed does not know the order");
}
