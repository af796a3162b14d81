//! The property `sync`: what is durable when a call returns. Each step is held against what the
//! devices would have kept if the power had gone just then.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::{ME, MIB, ROOT, handle, import, mount, noise, spec};
use crate::promises::still;
use steadfast_device::MemoryDevice;
use steadfast_device::memory::Fate;
use steadfast_env::Env;
use steadfast_pool::Pool;
use steadfast_posix::{AclKind, Fallocate, FileSystem, RENAME_EXCHANGE, SetAttr, SetTime, Time};

fn new_pool(env: &Env, props: &[(&str, &str)]) -> (Arc<MemoryDevice>, Pool) {
    let device = Arc::new(MemoryDevice::new("a", 64 * MIB));
    let mut spec = spec(vec![handle(&device)], None);
    spec.root_props = props.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    (device, Pool::create(env, spec).expect("a pool"))
}

/// Mode, links, content (or target) and attributes of every name.
type Picture = BTreeMap<Vec<u8>, (u32, u32, Vec<u8>, Vec<(Vec<u8>, Vec<u8>)>)>;

fn picture(fs: &FileSystem) -> Picture {
    fn walk(fs: &FileSystem, directory: u64, above: &[u8], into: &mut Picture) {
        let mut entries = Vec::new();
        fs.readdir(directory, 0, |entry| {
            entries.push(entry);
            true
        })
        .expect("listed");
        for entry in entries.into_iter().filter(|entry| entry.name != b"." && entry.name != b"..") {
            let path = [above, b"/", &entry.name].concat();
            let attr = fs.getattr(entry.ino).expect("it is there");
            let content = match attr.mode >> 12 {
                8 => {
                    let mut bytes = vec![0; usize::try_from(attr.size).unwrap()];
                    fs.read(entry.ino, 0, &mut bytes).expect("read");
                    bytes
                }
                10 => fs.readlink(entry.ino).expect("a link"),
                _ => Vec::new(),
            };
            let names = fs.listxattr(ME, entry.ino).expect("listed");
            let value = |name: Vec<u8>| {
                let value = fs.getxattr(entry.ino, &name).expect("listed just now");
                (name, value)
            };
            let attributes = names.into_iter().map(value).collect();
            into.insert(path.clone(), (attr.mode, attr.nlink, content, attributes));
            if attr.mode >> 12 == 4 {
                walk(fs, entry.ino, &path, into);
            }
        }
    }
    let mut picture = Picture::new();
    walk(fs, ROOT, b"", &mut picture);
    picture
}

/// State after a loss of power now.
fn durable(env: &Env, device: &MemoryDevice, dataset: &str) -> Picture {
    let copy = Arc::new(MemoryDevice::from_image("a", device.image()));
    let pool = import(env, vec![handle(&copy)], None).expect("imported");
    let (fs, _used) = mount(&pool, dataset);
    fs.set_acls(true);
    picture(&fs)
}

/// Does one of everything that changes something. `after` is called behind each.
fn one_of_each(fs: &FileSystem, mut after: impl FnMut(&str)) {
    fs.set_acls(true);
    let ino_of = |name: &[u8]| {
        let ino = fs.lookup(ROOT, name).expect("it is there").ino;
        fs.forget(ino, 1);
        ino
    };
    let file = fs.mknod(ME, ROOT, b"file", 0o100_644, 0).expect("made").ino;
    after("mknod");
    fs.mkdir(ME, ROOT, b"dir", 0o755).expect("made");
    after("mkdir");
    fs.symlink(ME, ROOT, b"link", b"where it leads").expect("made");
    after("symlink");
    fs.write(file, 0, &noise(1, 10_000), false).expect("written");
    after("write");
    fs.write(file, 5_000, b"over", false).expect("written");
    after("overwrite");
    fs.fallocate(file, Fallocate::PunchHole, 100, 4_000, false).expect("punched");
    after("punch");
    fs.fallocate(file, Fallocate::ZeroRange { keep_size: false }, 9_000, 5_000, false).expect("zeroed");
    after("zero");
    fs.setattr(file, &SetAttr { size: Some(7_000), ..SetAttr::default() }).expect("cut");
    after("truncate");
    fs.setattr(file, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).expect("set");
    after("chmod");
    fs.setxattr(file, b"user.one", b"value", 0).expect("set");
    after("setxattr");
    fs.removexattr(file, b"user.one").expect("removed");
    after("removexattr");
    // Owner, one other user, group, mask, others.
    let entry = |tag: u16, bits: u16, id: u32| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    let none = u32::MAX;
    let entries = [(1, 7, none), (2, 6, 77), (4, 4, none), (16, 6, none), (32, 0, none)];
    let list: Vec<u8> = entries.iter().flat_map(|(tag, bits, id)| entry(*tag, *bits, *id)).collect();
    fs.set_acl(file, AclKind::Access, &[&2_u32.to_le_bytes()[..], &list].concat(), false).expect("set");
    after("setfacl");
    fs.link(file, ino_of(b"dir"), b"second").expect("linked");
    after("link");
    fs.rename(ROOT, b"link", ino_of(b"dir"), b"moved", 0).expect("renamed");
    after("rename");
    fs.rename(ROOT, b"file", ROOT, b"dir", RENAME_EXCHANGE).expect("exchanged");
    after("exchange");
    let unnamed = fs.tmpfile(ME, ROOT, 0o600).expect("made").ino;
    fs.write(unnamed, 0, b"out of nothing", false).expect("written");
    fs.link(unnamed, ROOT, b"named").expect("linked");
    after("tmpfile and link");
    let other = fs.mknod(ME, ROOT, b"other", 0o100_644, 0).expect("made").ino;
    fs.copy_file_range(unnamed, 0, other, 3, 14).expect("copied");
    after("copy_file_range");
    fs.unlink(ROOT, b"other").expect("removed");
    after("unlink");
    fs.mkdir(ME, ROOT, b"empty", 0o700).expect("made");
    fs.rmdir(ROOT, b"empty").expect("removed");
    after("rmdir");
}

#[test]
fn with_always_every_single_change_is_durable_when_it_returns() {
    for journal in ["off", "ordered"] {
        let env = still();
        let (device, pool) = new_pool(&env, &[("journal", journal), ("sync", "always")]);
        let (fs, _used) = mount(&pool, "tank");
        fs.set_acls(true);
        one_of_each(&fs, |step| {
            let there = durable(&env, &device, "tank");
            assert!(there == picture(&fs), "journal={journal}, {step}: {:?}", there.keys());
        });
        let logged = pool.state().log.counts.durable;
        assert_eq!(logged > 10, journal == "ordered", "{logged} changes went through the log");
    }
}

#[test]
fn with_standard_changes_are_durable_only_when_somebody_asks() {
    let env = still();
    let (device, pool) = new_pool(&env, &[("journal", "ordered")]);
    let (fs, _used) = mount(&pool, "tank");
    one_of_each(&fs, |step| assert!(durable(&env, &device, "tank").is_empty(), "{step}"));
    fs.fsync(fs.lookup(ROOT, b"named").unwrap().ino).expect("durable");
    assert!(durable(&env, &device, "tank") == picture(&fs));
}

#[test]
fn with_disabled_fsync_returns_at_once_and_a_commit_still_keeps_all() {
    let env = still();
    let (device, pool) = new_pool(&env, &[("journal", "ordered"), ("sync", "disabled")]);
    let (fs, used) = mount(&pool, "tank");
    let before = device.counts();
    one_of_each(&fs, |_| {
        fs.fsync(ROOT).expect("at once");
        fs.syncfs().expect("at once");
    });
    let after = device.counts();
    assert_eq!((after.writes, after.flushes), (before.writes, before.flushes), "nobody waited for a device");
    assert!(durable(&env, &device, "tank").is_empty());
    let shown = picture(&fs);
    pool.sync().expect("committed");
    assert!(durable(&env, &device, "tank") == shown, "an administrator's sync is none of a program's");
    fs.write(fs.lookup(ROOT, b"named").unwrap().ino, 0, b"lost", false).expect("written");
    drop((fs, used));
    device.power_off();
    drop(pool);
    device.power_on(|_| Fate::Dropped);
    let pool = import(&env, vec![handle(&device)], None).expect("imported");
    let (fs, _used) = mount(&pool, "tank");
    fs.set_acls(true);
    assert!(picture(&fs) == shown);
}

fn at(seconds: i64) -> Time {
    Time { seconds, nanos: 0 }
}

/// Times as a kernel that collects writes tells them: behind an unlink, too.
fn times(seconds: i64) -> SetAttr<'static> {
    let time = at(seconds);
    SetAttr { mtime: Some(SetTime::To(time)), ctime: Some(time), ..SetAttr::default() }
}

#[test]
fn nobody_waits_for_the_times_of_a_file_without_names() {
    for journal in ["off", "ordered"] {
        let env = still();
        let (device, pool) = new_pool(&env, &[("journal", journal), ("sync", "always")]);
        let (fs, _used) = mount(&pool, "tank");
        let file = fs.mknod(ME, ROOT, b"file", 0o100_644, 0).expect("made").ino;
        fs.setattr(file, &times(7)).expect("set");
        fs.unlink(ROOT, b"file").expect("removed");
        let before = device.counts();
        let told = fs.setattr(file, &times(9)).expect("set");
        let after = device.counts();
        assert_eq!((after.writes, after.flushes), (before.writes, before.flushes), "journal={journal}");
        assert_eq!((told.nlink, told.mtime, told.ctime), (0, at(9), at(9)), "journal={journal}");
        assert_eq!(fs.getattr(file).expect("it is open"), told, "journal={journal}");
        // Everything else of it is waited for as ever.
        fs.setattr(file, &SetAttr { mode: Some(0o600), ..times(11) }).expect("set");
        assert!(device.counts().flushes > after.flushes, "journal={journal}");
        pool.sync().expect("committed");
        assert_eq!(fs.getattr(file).expect("it is open").mtime, at(11), "journal={journal}");
        fs.forget(file, 1);
        assert!(durable(&env, &device, "tank").is_empty(), "journal={journal}");
    }
}

#[test]
fn times_of_a_file_without_names_are_kept_when_it_gets_one() {
    for (journal, commits) in [("off", false), ("ordered", false), ("ordered", true)] {
        let env = still();
        let (device, pool) = new_pool(&env, &[("journal", journal), ("sync", "always")]);
        let (fs, _used) = mount(&pool, "tank");
        let file = fs.tmpfile(ME, ROOT, 0o600).expect("made").ino;
        fs.write(file, 0, b"content", false).expect("written");
        if commits {
            pool.sync().expect("committed");
        }
        fs.setattr(file, &times(7)).expect("set");
        fs.link(file, ROOT, b"named").expect("linked");
        let copy = Arc::new(MemoryDevice::from_image("a", device.image()));
        let imported = import(&env, vec![handle(&copy)], None).expect("imported");
        let (there, _used_there) = mount(&imported, "tank");
        let found = there.lookup(ROOT, b"named").expect("durable").attr;
        assert_eq!((found.mtime, found.size), (at(7), 7), "journal={journal}, {commits}");
    }
}

#[test]
fn it_is_inherited_and_set_while_in_use() {
    let env = still();
    let (device, pool) = new_pool(&env, &[("journal", "ordered"), ("sync", "disabled")]);
    pool.datasets().create_dataset("tank/a", Default::default(), None).expect("made");
    pool.datasets().create_dataset("tank/a/b", Default::default(), None).expect("made");
    let (fs, _used) = mount(&pool, "tank/a/b");
    let file = fs.mknod(ME, ROOT, b"file", 0o100_644, 0).expect("made").ino;
    let shows =
        |bytes: &[u8]| durable(&env, &device, "tank/a/b").get(&b"/file"[..]).is_some_and(|f| f.2 == bytes);
    fs.write(file, 0, b"one", false).expect("written");
    fs.fsync(file).expect("at once");
    assert!(!shows(b"one"), "inherited from the pool");
    pool.datasets().set_property("tank/a", "sync", Some("standard")).expect("set");
    assert!(shows(b"one"), "whoever sets it finds all that was done before durable");
    fs.write(file, 0, b"two", false).expect("written");
    assert!(!shows(b"two"));
    fs.fsync(file).expect("durable");
    assert!(shows(b"two"), "fsync counts again");
    pool.datasets().set_property("tank/a/b", "sync", Some("always")).expect("set");
    fs.write(file, 0, b"six", false).expect("written");
    assert!(shows(b"six"));
    pool.datasets().set_property("tank/a/b", "sync", None).expect("set");
    fs.write(file, 0, b"ten", false).expect("written");
    assert!(!shows(b"ten"), "inherited again");
    pool.datasets().set_property("tank/a", "sync", Some("disabled")).expect("set");
    fs.write(file, 0, b"tan", false).expect("written");
    fs.fsync(file).expect("at once");
    assert!(!shows(b"tan"));
    pool.datasets().rename_dataset("tank/a/b", "tank/b").expect("moved");
    pool.datasets().set_property("tank", "sync", Some("always")).expect("set");
    fs.write(file, 0, b"end", false).expect("written");
    let there = durable(&env, &device, "tank/b");
    assert_eq!(there[&b"/file"[..]].2, b"end", "what is inherited follows a move");
}
