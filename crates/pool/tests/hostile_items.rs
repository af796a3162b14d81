//! Items of trees that somebody wrote who has all keys: whatever they say, hashed up to the
//! uberblock. A pool that holds them is imported or refused, what is used of it works or fails with
//! an error that says why, and the pool goes on.

use std::sync::Arc;

use crate::common::{ME, MIB, ROOT, handles, import, mount, spec, write_file};
use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_format::dirent::Dirent;
use steadfast_format::file_keys::NamesKey;
use steadfast_format::inode::InodeRecord;
use steadfast_format::{Cell, DatasetId, DatasetRow, InodeId, MetaKey, Owner, OwnerRow, SnapshotRow, Txg};
use steadfast_pool::forge::ForgedTree;
use steadfast_pool::{Error, Pool};
use steadfast_posix::{Errno, FileSystem};

const FS: &str = "tank/fs";

/// A pool whose file system has a folder with a file, and a snapshot that holds what was removed.
struct Spoiled {
    env: Env,
    devices: Vec<Arc<MemoryDevice>>,
    pool: Pool,
    id: DatasetId,
}

impl Spoiled {
    fn new() -> Spoiled {
        let env = Env::simulated(23);
        let devices = vec![Arc::new(MemoryDevice::new("a", 64 * MIB))];
        let pool = Pool::create(&env, spec(handles(&devices), None)).expect("a pool");
        pool.datasets().create_dataset(FS, Default::default(), None).expect("made");
        let (fs, handle) = mount(&pool, FS);
        let folder = fs.mkdir(ME, ROOT, b"folder", 0o755).expect("made").ino;
        write_file(&fs, folder, b"file", &[7; 9_000]);
        write_file(&fs, ROOT, b"gone", &crate::common::noise(3, 300_000));
        pool.datasets().take_snapshots(&[format!("{FS}@a")], &Default::default()).expect("taken");
        fs.unlink(ROOT, b"gone").expect("removed");
        pool.sync().expect("committed");
        let id = handle.dataset().id();
        drop((fs, handle));
        Spoiled { env, devices, pool, id }
    }

    fn forge(&self, tree: ForgedTree, key: &[u8], value: &[u8]) {
        self.pool.forge(tree, key, Some(value)).expect("forged");
    }

    /// An item of the pool's own tree.
    fn item(&self, key: &MetaKey) -> Vec<u8> {
        let items = self.pool.forged_items(ForgedTree::Meta).expect("read");
        items.into_iter().find(|(known, _)| *known == key.encode()).expect("it is there").1
    }

    fn change_row(&self, change: impl FnOnce(&mut DatasetRow)) {
        let key = MetaKey::Dataset(self.id);
        let mut row = DatasetRow::decode(&self.item(&key)).expect("a row");
        change(&mut row);
        self.forge(ForgedTree::Meta, &key.encode(), &row.encode());
    }

    /// The pool as whoever imports it next finds it.
    fn found(self) -> (Pool, Vec<Arc<MemoryDevice>>) {
        let Spoiled { env, devices, pool, .. } = self;
        pool.sync().expect("committed");
        drop(pool);
        (import(&env, handles(&devices), None).expect("imported"), devices)
    }
}

/// Lists a directory as a program does: from each answer's last cookie on. Gives the names, or the
/// error that ended it.
fn list(fs: &FileSystem, folder: u64) -> Result<Vec<Vec<u8>>, Errno> {
    let (mut names, mut at) = (Vec::new(), 0);
    for _ in 0..100 {
        let mut last = None;
        fs.readdir(folder, at, |entry| {
            last = Some(entry.cookie);
            names.push(entry.name);
            // A program's buffer is small.
            false
        })?;
        match last {
            Some(cookie) => at = cookie,
            None => return Ok(names),
        }
    }
    panic!("the listing has no end: {names:?}");
}

/// A pool in which one file system is faulty goes on, and so do the others.
fn goes_on(pool: &Pool) {
    let (fs, _handle) = mount(pool, "tank");
    write_file(&fs, ROOT, b"other", b"content");
    fs.unlink(ROOT, b"other").expect("removed");
    pool.sync().expect("committed");
    assert_eq!(pool.suspended(), None);
}

#[test]
fn an_entry_with_a_cookie_outside_its_rule_ends_a_listing_with_an_error() {
    for cookie in [0, 1, 2, 255, 1 << 63, u64::MAX] {
        let it = Spoiled::new();
        let key = NamesKey::Entry { directory: InodeId(ROOT), cookie }.encode();
        let entry = Dirent { inode: InodeId(2), kind: 4, name: b"forged".to_vec() };
        it.forge(ForgedTree::Names(it.id), &key, &entry.encode());
        let (pool, _devices) = it.found();
        let (fs, handle) = mount(&pool, FS);
        assert_eq!(list(&fs, ROOT), Err(Errno::EIO), "cookie {cookie}");
        // All else can be used.
        let folder = fs.lookup(ROOT, b"folder").expect("found").ino;
        assert_eq!(list(&fs, folder).expect("listed").len(), 3, "cookie {cookie}");
        write_file(&fs, folder, b"new", b"content");
        fs.unlink(folder, b"file").expect("removed");
        drop((fs, handle));
        goes_on(&pool);
        pool.export().expect("exported");
    }
}

#[test]
fn an_inode_of_no_type_and_an_entry_that_leads_nowhere_are_errors() {
    let it = Spoiled::new();
    let names = ForgedTree::Names(it.id);
    let items = it.pool.forged_items(names).expect("read");
    let key = NamesKey::Inode(InodeId(3)).encode();
    let (_, value) = items.iter().find(|(known, _)| *known == key).expect("the file");
    let mut record = InodeRecord::decode(value).expect("a record");
    record.mode = 0o644;
    it.forge(names, &key, &record.encode());
    let mut entry = Dirent { inode: InodeId(2), kind: 4, name: b"forged".to_vec() }.encode();
    entry[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    it.forge(names, &NamesKey::Entry { directory: InodeId(ROOT), cookie: 256 }.encode(), &entry);
    let (pool, _devices) = it.found();
    let (fs, handle) = mount(&pool, FS);
    let folder = fs.lookup(ROOT, b"folder").expect("found").ino;
    assert_eq!(fs.lookup(folder, b"file").map(|entry| entry.ino), Err(Errno::EIO));
    assert_eq!(fs.link(3, folder, b"again").map(|entry| entry.ino), Err(Errno::EIO));
    assert_eq!(fs.unlink(folder, b"file"), Err(Errno::EIO));
    assert_eq!(list(&fs, ROOT), Err(Errno::EIO));
    drop((fs, handle));
    goes_on(&pool);
}

#[test]
fn a_file_system_whose_next_inode_cannot_be_right_is_refused_and_can_be_destroyed() {
    let reasons = [
        (0, "the number of its next inode, 0, is not one of 2 to 281474976710656"),
        (3, "its next inode would get the number 3, and inode 3 exists"),
        ((1 << 48) + 1, "the number of its next inode, 281474976710657, is not one of 2 to 281474976710656"),
        (u64::MAX, "the number of its next inode, 18446744073709551615, is not one of 2 to 281474976710656"),
    ];
    for (next, expected) in reasons {
        let it = Spoiled::new();
        it.change_row(|row| row.next_inode = next);
        let (pool, _devices) = it.found();
        match pool.datasets().open_dataset(FS).err() {
            Some(Error::BadDataset { reason, .. }) => assert_eq!(reason, expected),
            other => panic!("next inode {next}: {other:?}"),
        }
        goes_on(&pool);
        pool.datasets().destroy_with_snapshots(FS).expect("destroyed");
        pool.sync().expect("committed");
        assert_eq!(pool.datasets().names(), ["tank"]);
        goes_on(&pool);
        pool.export().expect("exported");
    }
}

#[test]
fn a_file_system_that_has_no_numbers_left_says_that_it_is_full() {
    let it = Spoiled::new();
    it.change_row(|row| row.next_inode = (1 << 48) - 1);
    let (pool, _devices) = it.found();
    let (fs, handle) = mount(&pool, FS);
    assert_eq!(fs.mknod(ME, ROOT, b"last", 0o100_644, 0).expect("made").ino, (1 << 48) - 1);
    assert_eq!(fs.mknod(ME, ROOT, b"none", 0o100_644, 0).map(|made| made.ino), Err(Errno::ENOSPC));
    assert_eq!(fs.tmpfile(ME, ROOT, 0o644).map(|made| made.ino), Err(Errno::ENOSPC));
    fs.unlink(ROOT, b"last").expect("removed");
    drop((fs, handle));
    pool.export().expect("exported");
}

/// A block is let go into a cell whose next run has a number that is none: that commit fails with
/// an error, not a bug.
#[test]
fn a_cell_whose_next_run_is_none_suspends_with_a_reason() {
    for next in [(1 << 48) + 1, u64::MAX] {
        let it = Spoiled::new();
        let items = it.pool.forged_items(ForgedTree::Meta).expect("read");
        let is_cell = |key: &[u8]| matches!(MetaKey::decode(key), Some(MetaKey::Cell(id, _)) if id == it.id);
        let (key, value) = items.iter().find(|(key, _)| is_cell(key)).expect("a cell");
        let cell = Cell { next, ..Cell::decode(value).expect("a cell") };
        it.forge(ForgedTree::Meta, key, &cell.encode());
        let (pool, _devices) = it.found();
        let (fs, handle) = mount(&pool, FS);
        let folder = fs.lookup(ROOT, b"folder").expect("found").ino;
        fs.unlink(folder, b"file").expect("removed");
        fs.forget_all();
        drop((fs, handle));
        let error = pool.sync().expect_err("the cell is damaged").to_string();
        assert!(error.contains("a cell"), "{error}");
        let reason = pool.suspended().expect("nothing can be committed");
        assert!(reason.contains("a cell"), "{reason}");
    }
}

#[test]
fn a_key_of_a_txg_that_never_comes_refuses_the_import() {
    let it = Spoiled::new();
    let items = it.pool.forged_items(ForgedTree::Meta).expect("read");
    let is_snapshot = |key: &[u8]| matches!(MetaKey::decode(key), Some(MetaKey::Snapshot(..)));
    let (_, value) = items.iter().find(|(key, _)| is_snapshot(key)).expect("a snapshot");
    it.forge(ForgedTree::Meta, &MetaKey::Snapshot(it.id, Txg(u64::MAX)).encode(), value);
    let Spoiled { env, devices, pool, .. } = it;
    pool.sync().expect("committed");
    drop(pool);
    let error = import(&env, handles(&devices), None).err().expect("refused").to_string();
    assert!(error.contains("a key of the meta tree"), "{error}");
}

/// Figures of rows at their limits, and of owners, neither stop what is counted on from them.
#[test]
fn figures_that_cannot_be_added_up_are_counted_on_from() {
    let it = Spoiled::new();
    let most = OwnerRow { bytes: u64::MAX, objects: u64::MAX };
    it.forge(ForgedTree::Extents(it.id), &Owner::user(0).key(), &most.encode());
    // Rows that this commit writes itself would win.
    it.pool.sync().expect("committed");
    it.change_row(|row| {
        (row.used, row.data, row.logical, row.files) = (u64::MAX, u64::MAX, u64::MAX, u64::MAX);
        (row.lineage.kept, row.lineage.kept_logical) = (u64::MAX, u64::MAX);
    });
    let items = it.pool.forged_items(ForgedTree::Meta).expect("read");
    let is_snapshot =
        |key: &[u8]| matches!(MetaKey::decode(key), Some(MetaKey::Snapshot(id, _)) if id == it.id);
    let (key, value) = items.iter().find(|(key, _)| is_snapshot(key)).expect("a snapshot");
    let row = SnapshotRow::decode(value).expect("a row");
    let row = SnapshotRow { used: u64::MAX, data: u64::MAX, logical: u64::MAX, files: u64::MAX, ..row };
    it.forge(ForgedTree::Meta, key, &row.encode());
    let reservation = MetaKey::DatasetProperty(it.id, "refreservation".into());
    it.forge(ForgedTree::Meta, &reservation.encode(), u64::MAX.to_string().as_bytes());
    let record = MetaKey::DatasetProperty(it.id, "recordsize".into());
    it.forge(ForgedTree::Meta, &record.encode(), b"3000");
    let (pool, _devices) = it.found();
    for name in ["tank", FS] {
        let info = pool.datasets().dataset_info(name).expect("it is there");
        assert!(info.used >= 1 << 58, "{info:?}");
    }
    pool.datasets().snapshot_infos(FS, None).expect("listed");
    let (fs, handle) = mount(&pool, FS);
    assert!(fs.statfs().files >= 1 << 58);
    // A reservation of more than there is leaves room to remove, not to write.
    let folder = fs.lookup(ROOT, b"folder").expect("found").ino;
    fs.unlink(folder, b"file").expect("removed");
    fs.forget_all();
    drop((fs, handle));
    pool.sync().expect("committed");
    pool.datasets().owner_uses(FS).expect("counted");
    pool.export().expect("exported");
}

#[test]
fn a_pool_whose_root_file_system_is_being_destroyed_is_refused() {
    let Spoiled { env, devices, pool, .. } = Spoiled::new();
    let key = MetaKey::Dataset(DatasetId(1)).encode();
    let items = pool.forged_items(ForgedTree::Meta).expect("read");
    let row = items.into_iter().find(|(known, _)| *known == key).expect("it is there").1;
    let row = DatasetRow { destroying: true, ..DatasetRow::decode(&row).expect("a row") };
    pool.forge(ForgedTree::Meta, &key, Some(&row.encode())).expect("forged");
    pool.sync().expect("committed");
    drop(pool);
    let refused = import(&env, handles(&devices), None).err().expect("refused");
    assert!(matches!(refused, Error::BadDataset { dataset: DatasetId(1), .. }), "{refused}");
}

/// A pool of before the names were looked at under the lock under which they come.
#[test]
fn a_second_dataset_of_one_name_is_imported_with_another() {
    let spoiled = Spoiled::new();
    let datasets = spoiled.pool.datasets();
    let second = datasets.create_dataset("tank/second", Default::default(), None).expect("made");
    let taken = format!("tank/second.{second}");
    datasets.create_dataset(&taken, Default::default(), None).expect("made");
    let env = spoiled.env.clone();
    spoiled.change_row(|row| row.name = "second".to_owned());
    let (pool, devices) = spoiled.found();
    let expected = ["tank", "tank/second", &taken];
    let others: Vec<String> =
        pool.datasets().names().into_iter().filter(|name| !expected.contains(&name.as_str())).collect();
    // The older one keeps its name; `second.ID` is somebody else's.
    let [renamed] = others.as_slice() else { panic!("{others:?}") };
    assert_eq!(*renamed, format!("tank/second.{}", second.0 + 1));
    let told = pool.history().expect("read").into_iter().any(|entry| entry.text.contains(renamed));
    assert!(told, "the history says which name it has");
    pool.datasets().rename_dataset(renamed, FS).expect("renamed");
    let (fs, handle) = mount(&pool, "tank/second");
    assert!(fs.lookup(ROOT, b"folder").is_ok());
    drop((fs, handle, pool));
    let pool = import(&env, handles(&devices), None).expect("imported");
    assert_eq!(pool.datasets().names().len(), 4);
    assert!(pool.datasets().names().iter().any(|name| name == FS));
}
