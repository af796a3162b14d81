//! A process that is killed while the pool makes it wait is let go, and has changed nothing.

use crate::support::{ROOT, World};
use steadfast_dataset::Settings;
use steadfast_env::Env;
use steadfast_posix::{Errno, Patience, SetAttr};
use steadfast_txg::Limits;

const KILLED: Patience = Patience::WhileAlive { is_dying: |_| true, caller: 1 };

#[test]
fn a_killed_writer_is_let_go_and_has_changed_nothing() {
    let mut world = World::new(Env::real(), Settings::default());
    let ino = world.file("a");
    world.fs.write(ino, 0, b"before", false).expect("room");
    let before = world.fs.getattr(ino).expect("there");
    // Full, and no commit will come.
    world.txgs.budget.set_limits(Limits { memory: 1, space: 1 << 40 });
    let refused = |change: &dyn Fn() -> steadfast_posix::Result<()>| {
        assert_eq!(KILLED.during(change), Err(Errno::EINTR));
        assert_eq!(Patience::None.during(change), Err(Errno::EAGAIN));
    };
    let fs = &world.fs;
    refused(&|| fs.write(ino, 0, b"after!", false).map(drop));
    refused(&|| fs.mknod(ROOT, 1, b"b", 0o100_644, 0).map(drop));
    refused(&|| fs.unlink(1, b"a"));
    refused(&|| fs.rename(1, b"a", 1, b"c", 0));
    refused(&|| fs.setattr(ino, &SetAttr { size: Some(0), ..SetAttr::default() }).map(drop));
    refused(&|| fs.setxattr(ino, b"user.x", b"y", 0));
    assert_eq!(fs.getattr(ino).expect("there"), before);
    assert_eq!(world.content(ino), b"before");
    assert_eq!(world.list(1), [b"a"]);
    // And it can go on once there is room.
    world.txgs.budget.set_limits(Limits { memory: 1 << 40, space: 1 << 40 });
    world.fs.write(ino, 0, b"after!", false).expect("room");
    world.check();
    assert_eq!(world.content(ino), b"after!");
}

/// Removing the last name is done when the name is gone; what follows is not the caller's to give
/// up.
#[test]
fn what_a_killed_caller_unlinked_is_reclaimed() {
    let mut world = World::new(Env::real(), Settings::default());
    world.file("a");
    let files = world.fs.dataset().counters().files;
    KILLED.during(|| world.fs.unlink(1, b"a")).expect("no need to wait");
    Patience::None.during(|| world.fs.unlink(1, b"none")).expect_err("not there");
    assert_eq!(world.fs.dataset().counters().files, files - 1);
    assert_eq!(world.fs.dataset().orphans().expect("readable"), []);
    world.check();
}
