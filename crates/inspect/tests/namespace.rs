//! Faults of names, inodes and counts, each planted in a real pool with all hashes made right, and
//! each found.

use std::sync::Arc;

use steadfast_device::MemoryDevice;
use steadfast_env::Env;
use steadfast_format::dirent::{Dirent, first_cookie};
use steadfast_format::extent::Extent;
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::inode::InodeRecord;
use steadfast_format::{DatasetId, DatasetRow, DeadRange, InodeId, MetaKey, Owner, OwnerRow, Txg};
use steadfast_pool::Pool;
use steadfast_pool::forge::ForgedTree;

use crate::real_pool::{ME, ROOT, check, create, mount, must_be_clean, new_key, write};

/// The encrypted dataset of the pool: its trees are sealed.
const VAULT: DatasetId = DatasetId(2);
const NAMES: ForgedTree = ForgedTree::Names(VAULT);
const EXTENTS: ForgedTree = ForgedTree::Extents(VAULT);

/// A pool whose vault holds a file, a directory in a directory, a link, and two snapshots.
struct Spoiled {
    env: Env,
    devices: Vec<Arc<MemoryDevice>>,
    pool: Pool,
    file: InodeId,
    outer: InodeId,
    inner: InodeId,
    seed: [u8; 16],
}

impl Spoiled {
    fn new() -> Spoiled {
        let env = Env::simulated(7);
        let devices = vec![Arc::new(MemoryDevice::new("a", 96 << 20))];
        let pool = create(&env, &devices, false);
        pool.datasets().create_dataset("tank/vault", Default::default(), Some(new_key(&env))).unwrap();
        let (fs, handle) = mount(&pool, "tank/vault");
        let made = |entry: steadfast_posix::Entry| {
            fs.forget(entry.ino, 1);
            InodeId(entry.ino)
        };
        write(&fs, "file", 1, 300_000);
        let file = made(fs.lookup(ROOT, b"file").unwrap());
        fs.mkdir(ME, ROOT, b"outer", 0o755).map(made).unwrap();
        let outer = made(fs.lookup(ROOT, b"outer").unwrap());
        let inner = made(fs.mkdir(ME, outer.0, b"inner", 0o755).unwrap());
        made(fs.symlink(ME, inner.0, b"link", b"../../file").unwrap());
        for name in ["tank/vault@one", "tank/vault@two"] {
            pool.datasets().take_snapshots(&[name.to_owned()], &Default::default()).unwrap();
            write(&fs, "file", 2, 300_000);
        }
        pool.sync().unwrap();
        let seed = *handle.dataset().hash_seed();
        drop((fs, handle));
        Spoiled { env, devices, pool, file, outer, inner, seed }
    }

    fn names(&self, key: &NamesKey, value: Option<&[u8]>) {
        self.pool.forge(NAMES, &key.encode(), value).unwrap();
    }

    fn entry(&self, directory: InodeId, name: &[u8]) -> (NamesKey, Dirent) {
        let items = self.pool.forged_items(NAMES).unwrap().into_iter();
        let mut entries = items.filter_map(|(key, value)| {
            let key = NamesKey::decode(&key).unwrap();
            let is_there = matches!(key, NamesKey::Entry { directory: there, .. } if there == directory);
            is_there.then(|| (key, Dirent::decode(&value).unwrap()))
        });
        entries.find(|(_, entry)| entry.name == name).unwrap()
    }

    /// An entry where its name belongs.
    fn put_entry(&self, directory: InodeId, entry: &Dirent) {
        let cookie = first_cookie(&self.seed, &entry.name);
        self.names(&NamesKey::Entry { directory, cookie }, Some(&entry.encode()));
    }

    fn change_inode(&self, inode: InodeId, change: impl FnOnce(&mut InodeRecord)) {
        let key = NamesKey::Inode(inode).encode();
        let items = self.pool.forged_items(NAMES).unwrap();
        let value = &items.iter().find(|(known, _)| *known == key).unwrap().1;
        let mut record = InodeRecord::decode(value).unwrap();
        change(&mut record);
        self.names(&NamesKey::Inode(inode), Some(&record.encode()));
    }

    fn change_row(&self, change: impl FnOnce(&mut DatasetRow)) {
        let key = MetaKey::Dataset(VAULT).encode();
        let items = self.pool.forged_items(ForgedTree::Meta).unwrap();
        let value = &items.iter().find(|(known, _)| *known == key).unwrap().1;
        let mut row = DatasetRow::decode(value).unwrap();
        change(&mut row);
        self.pool.forge(ForgedTree::Meta, &key, Some(&row.encode())).unwrap();
    }
}

/// Plants a fault, and gives codes and sentences of all that the check finds.
fn find(plant: impl FnOnce(&Spoiled)) -> Vec<(&'static str, String)> {
    let spoiled = Spoiled::new();
    must_be_clean(&spoiled.devices, &spoiled.env, "before");
    plant(&spoiled);
    spoiled.pool.sync().unwrap();
    let (findings, _) = check(&spoiled.devices, &spoiled.env);
    findings.iter().map(|finding| (finding.class().0, finding.to_string())).collect()
}

fn codes(found: &[(&'static str, String)]) -> Vec<&'static str> {
    let mut codes: Vec<&'static str> = found.iter().map(|(code, _)| *code).collect();
    codes.sort_unstable();
    codes.dedup();
    codes
}

#[test]
fn a_missing_root_and_a_missing_target_are_found() {
    let found = find(|it| it.names(&NamesKey::Inode(InodeId(1)), None));
    assert!(
        found.contains(&("root-missing", "dataset 2: inode 1, the root, is missing".into())),
        "{found:?}"
    );

    let found = find(|it| it.names(&NamesKey::Inode(it.inner), None));
    let sentence = "dataset 2: directory 3: the entry \"inner\" leads to inode 4, which is missing";
    assert!(found.contains(&("entry-without-inode", sentence.into())), "{found:?}");
    assert!(codes(&found).contains(&"entry-outside-directory"), "what it held is in nothing: {found:?}");
}

#[test]
fn a_directory_in_two_in_itself_or_in_none_is_found() {
    let twice = |it: &Spoiled| {
        it.put_entry(InodeId(1), &Dirent { inode: it.inner, kind: 4, name: b"again".to_vec() });
        it.change_inode(InodeId(1), |record| (record.size, record.nlink) = (3, 4));
    };
    let found = find(twice);
    let sentence = "dataset 2: directory 4 is in two directories, 1 and 3";
    assert!(found.contains(&("directory-twice", sentence.into())), "{found:?}");

    // The outer directory moves into the inner one.
    let found = find(|it| {
        let (key, entry) = it.entry(InodeId(1), b"outer");
        it.names(&key, None);
        it.change_inode(InodeId(1), |record| (record.size, record.nlink) = (1, 2));
        it.put_entry(it.inner, &entry);
        it.change_inode(it.inner, |record| (record.size, record.nlink) = (2, 3));
        it.change_inode(it.outer, |record| record.parent = it.inner);
    });
    let sentence = "dataset 2: directory 3 lies in itself, by way of directory 4";
    assert_eq!(found, [("directory-circle", sentence.into())]);

    let found = find(|it| {
        let (key, _) = it.entry(InodeId(1), b"outer");
        it.names(&key, None);
        it.change_inode(InodeId(1), |record| (record.size, record.nlink) = (1, 2));
    });
    let sentence = "dataset 2: directory 3 cannot be reached: no entry leads to it";
    assert!(found.contains(&("directory-unreachable", sentence.into())), "{found:?}");

    let found = find(|it| it.change_inode(it.inner, |record| record.parent = InodeId(1)));
    assert_eq!(
        found,
        [("directory-parent", "dataset 2: directory 4 says that it lies in 1, and lies in 3".into())]
    );
}

#[test]
fn wrong_links_kinds_and_sizes_are_found() {
    let found = find(|it| it.change_inode(it.file, |record| record.nlink = 3));
    assert_eq!(found, [("links", "dataset 2: inode 2 says that it has 3 links, and 1 were found".into())]);

    let found = find(|it| it.change_inode(it.outer, |record| record.size = 9));
    assert_eq!(
        found,
        [("directory-size", "dataset 2: directory 3 says that it has 9 entries, and 1 were found".into())]
    );

    let found = find(|it| {
        let (key, entry) = it.entry(InodeId(1), b"file");
        it.names(&key, Some(&Dirent { kind: 10, ..entry }.encode()));
    });
    let sentence = "dataset 2: directory 1: the entry \"file\" says another type than inode 2 is of";
    assert_eq!(found, [("entry-kind", sentence.into())]);

    let found = find(|it| it.change_inode(it.file, |record| record.size = 1));
    assert_eq!(codes(&found), ["extent-behind-end"], "{found:?}");
}

#[test]
fn an_orphan_may_be_open_and_an_inode_without_links_may_not_be_unlisted() {
    let unlisted = |it: &Spoiled| {
        let (key, _) = it.entry(InodeId(1), b"file");
        it.names(&key, None);
        it.change_inode(InodeId(1), |record| record.size = 1);
        it.change_inode(it.file, |record| record.nlink = 0);
    };
    let found = find(unlisted);
    let sentence = "dataset 2: inode 2 has no links, and is not listed as an orphan: its space is lost";
    assert_eq!(found, [("orphan-unlisted", sentence.into())]);

    let found = find(|it| {
        unlisted(it);
        it.names(&NamesKey::Orphan(it.file), Some(&[]));
    });
    assert_eq!(found, [], "removed while it is open");

    let found = find(|it| it.names(&NamesKey::Orphan(it.file), Some(&[])));
    assert_eq!(codes(&found), ["orphan-linked"], "{found:?}");
}

#[test]
fn wrong_counts_owners_and_a_next_inode_in_use_are_found() {
    let found = find(|it| it.change_row(|row| row.files += 1));
    assert_eq!(found, [("count", "dataset 2: files says 6, and 5 were counted".into())]);

    let found = find(|it| it.change_row(|row| row.used += 4096));
    assert_eq!(codes(&found), ["count"], "{found:?}");

    let found = find(|it| it.change_row(|row| row.next_inode = 5));
    let sentence = "dataset 2: the next inode would get the number 5, and inode 5 exists";
    assert_eq!(found, [("next-inode", sentence.into())]);

    let found = find(|it| it.change_row(|row| row.next_inode = u64::MAX));
    let sentence = "dataset 2: the next inode would get the number 18446744073709551615, which is not one of 2 to 281474976710656";
    assert_eq!(found, [("next-inode", sentence.into())]);

    let found = find(|it| {
        let row = OwnerRow { bytes: 77, objects: 1 };
        it.pool.forge(EXTENTS, &Owner::user(0).key(), Some(&row.encode())).unwrap();
        it.pool.forge(EXTENTS, &Owner::group(12).key(), Some(&row.encode())).unwrap();
    });
    assert_eq!(codes(&found), ["owner"], "{found:?}");
    let sentence = "dataset 2: group 12 is said to have 77 bytes in 1 inodes, and has 0 bytes in 0";
    assert!(found.contains(&("owner", sentence.into())) && found.len() == 2, "{found:?}");
}

#[test]
fn entries_at_places_that_are_not_their_names_are_found() {
    let found = find(|it| {
        let (key, entry) = it.entry(InodeId(1), b"file");
        it.names(&key, None);
        let cookie = first_cookie(&it.seed, b"another name");
        it.names(&NamesKey::Entry { directory: InodeId(1), cookie }, Some(&entry.encode()));
    });
    assert_eq!(codes(&found), ["entry-place"], "{found:?}");

    let found = find(|it| {
        let (key, entry) = it.entry(InodeId(1), b"file");
        let NamesKey::Entry { directory, cookie } = key else { panic!("an entry") };
        it.names(&NamesKey::Entry { directory, cookie: cookie + 1 }, Some(&entry.encode()));
        it.change_inode(InodeId(1), |record| record.size = 3);
        it.change_inode(it.file, |record| record.nlink = 2);
    });
    assert_eq!(found, [("entry-twice", "dataset 2: directory 1: two entries are called \"file\"".into())]);
}

#[test]
fn content_of_nothing_and_a_dead_range_over_a_snapshot_are_found() {
    let found = find(|it| {
        let key = ExtentsKey::Extent { inode: InodeId(99), offset: 0 }.encode();
        it.pool.forge(EXTENTS, &key, Some(&Extent::Inline(b"lost".to_vec()).encode())).unwrap();
    });
    assert!(codes(&found).contains(&"extents-without-inode"), "{found:?}");

    let found = find(|it| {
        let key = MetaKey::DeadRange(VAULT, Txg(1)).encode();
        let range = DeadRange { before: Txg(1 << 40) };
        it.pool.forge(ForgedTree::Meta, &key, Some(&range.encode())).unwrap();
    });
    assert!(codes(&found).contains(&"dead-range"), "{found:?}");
}

/// A snapshot's trees are checked as the head's are, and what is wrong in both is told of each.
#[test]
fn faults_of_snapshots_and_clones_are_found() {
    let found = find(|it| {
        it.change_inode(it.inner, |record| record.nlink = 7);
        it.pool.sync().unwrap();
        it.pool.datasets().take_snapshots(&["tank/vault@three".to_owned()], &Default::default()).unwrap();
        it.change_inode(it.inner, |record| record.nlink = 2);
    });
    let sentence = "dataset 2, snapshot \"three\": inode 4 says that it has 7 links, and 2 were found";
    assert_eq!(found, [("links", sentence.into())]);

    let spoiled = Spoiled::new();
    let datasets = spoiled.pool.datasets();
    datasets.clone_snapshot("tank/vault@one", "tank/clone", Default::default()).unwrap();
    spoiled.pool.sync().unwrap();
    must_be_clean(&spoiled.devices, &spoiled.env, "with a clone");
    let clone = datasets.dataset_info("tank/clone").unwrap().id;
    let (_, entry) = spoiled.entry(InodeId(1), b"file");
    let key = NamesKey::Entry { directory: InodeId(1), cookie: first_cookie(&spoiled.seed, &entry.name) };
    spoiled.pool.forge(ForgedTree::Names(clone), &key.encode(), None).unwrap();
    spoiled.pool.sync().unwrap();
    let (findings, _) = check(&spoiled.devices, &spoiled.env);
    let found: Vec<&str> = findings.iter().map(|finding| finding.class().0).collect();
    assert_eq!(found, ["directory-size", "links"]);
}
