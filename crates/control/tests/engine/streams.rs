//! Streams between pools of one host, and what is told of them.

use super::*;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use steadfast_control::descriptor::Descriptor;

impl House {
    fn snapshot(&self, names: &[&str]) {
        let request = FsSnapshot {
            names: names.iter().map(|name| (*name).to_owned()).collect(),
            ..FsSnapshot::default()
        };
        self.host().call(&caller(), request).unwrap();
    }

    fn send(&self, request: FsSend) -> Vec<u8> {
        let (mut taken, taker) = std::io::pipe().unwrap();
        let reader = std::thread::spawn(move || {
            let mut stream = Vec::new();
            taken.read_to_end(&mut stream).unwrap();
            stream
        });
        let (descriptor, far) = Descriptor::own(OwnedFd::from(taker)).unwrap();
        let caller = Caller { descriptor: Some(descriptor), ..caller() };
        self.host().call(&caller, request).unwrap();
        drop((caller, far));
        reader.join().unwrap()
    }

    fn receive(&self, request: FsReceive, stream: &[u8]) -> Result<Receipt, Refusal> {
        let (given, mut giver) = std::io::pipe().unwrap();
        let stream = stream.to_vec();
        let writer = std::thread::spawn(move || {
            // A refused stream is read no further.
            let _ = giver.write_all(&stream);
        });
        let (descriptor, far) = Descriptor::own(OwnedFd::from(given)).unwrap();
        let caller = Caller { descriptor: Some(descriptor), ..caller() };
        let receipt = self.host().call(&caller, request);
        drop((caller, far));
        writer.join().unwrap();
        receipt
    }
}

fn of(snapshot: &str, base: Option<&str>) -> FsSend {
    FsSend { snapshot: snapshot.into(), base: base.map(str::to_owned), ..FsSend::default() }
}

fn into(target: &str) -> FsReceive {
    FsReceive { target: target.into(), ..FsReceive::default() }
}

#[test]
fn a_receive_into_what_is_in_use_says_what_is_and_how_it_goes_on() {
    let house = House::new("receive_busy");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/fs", &[], None).unwrap();
    house.snapshot(&["tank/fs@1"]);
    house.snapshot(&["tank/fs@2"]);
    house.receive(into("tank/copy"), &house.send(of("tank/fs@1", None))).unwrap();
    let increment = house.send(of("tank/fs@2", Some("tank/fs@1")));
    let at = house.folder.join("home/steadfast/tank/copy");
    house.stage.busy.lock().unwrap().push(at.clone());
    let refusal = house.receive(into("tank/copy"), &increment).unwrap_err();
    assert_eq!((refusal.code, refusal.what), (Code::FsBusy, format!("{} is in use", at.display())));
    assert!(refusal.action.contains("add -M") && !refusal.action.contains("-f."), "{}", refusal.action);
    house.receive(FsReceive { unmount: true, ..into("tank/copy") }, &increment).unwrap();
    assert_eq!(house.mounted(), ["tank", "tank/copy", "tank/fs"]);
}

#[test]
fn a_hold_is_listed_once_though_one_name_lies_below_another() {
    let house = House::new("holds_once");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    for name in ["tank/fs", "tank/fs/c"] {
        house.create_fs(name, &[], None).unwrap();
    }
    let names = vec!["tank/fs@2".to_owned(), "tank/fs/c@2".to_owned()];
    house.snapshot(&["tank/fs@2", "tank/fs/c@2"]);
    let (tag, recursive) = ("keep".to_owned(), false);
    house.host().call(&caller(), FsHold { names: names.clone(), tag, recursive, release: false }).unwrap();
    let holds = house.host().call(&caller(), FsHolds { names: names.clone(), recursive: true }).unwrap();
    assert_eq!(holds.into_iter().map(|hold| hold.snapshot).collect::<Vec<_>>(), names);
}

#[test]
fn a_part_of_what_is_not_there_yet_is_listed() {
    let house = House::new("unfinished");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    for name in ["tank/box", "tank/fs"] {
        house.create_fs(name, &[], None).unwrap();
    }
    house.snapshot(&["tank/fs@1"]);
    let stream = house.send(of("tank/fs@1", None));
    let keep = FsReceive { keep: true, ..into("tank/box/new") };
    house.receive(keep, &stream[..stream.len() - 10]).unwrap_err();
    let listed = |start: &str, depth: Option<u32>, wanted: &str| -> Vec<String> {
        let request = FsListAll {
            names: vec![start.to_owned()],
            depth,
            filesystems: true,
            wanted: vec![wanted.to_owned()],
            ..FsListAll::default()
        };
        house.host().call(&caller(), request).unwrap().into_iter().map(|info| info.name).collect()
    };
    let token = "receive_resume_token";
    assert_eq!(listed("tank", None, token), ["tank", "tank/box", "tank/fs", "tank/box/new"]);
    assert_eq!(listed("tank", None, "used"), ["tank", "tank/box", "tank/fs", "tank/box/new"]);
    assert_eq!(listed("tank", Some(1), token), ["tank", "tank/box", "tank/fs"]);
    assert_eq!(listed("tank/box", Some(1), token), ["tank/box", "tank/box/new"]);
    assert_eq!(listed("tank/fs", None, token), ["tank/fs"]);
    assert_eq!(listed("tank/box/new", Some(0), token), ["tank/box/new"]);
}

#[test]
fn what_came_before_a_stream_failed_is_in_the_history() {
    let house = House::new("half_a_stream");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/fs", &[], None).unwrap();
    for name in ["tank/fs@1", "tank/fs@2", "tank/fs@3"] {
        house.snapshot(&[name]);
    }
    let both = FsSend { base: Some("tank/fs@1".into()), intermediate: true, ..of("tank/fs@3", None) };
    house.receive(into("tank/copy"), &house.send(of("tank/fs@1", None))).unwrap();
    let mut stream = house.send(both);
    let count = || {
        let request = PoolHistory { names: vec!["tank".into()] };
        let past = house.host().call(&caller(), request).unwrap();
        past[0].records.iter().filter(|line| !line.internal).count()
    };
    let before = count();
    // Nothing of it came.
    house.receive(into("tank/copy"), &stream[..70]).unwrap_err();
    assert_eq!(count(), before);
    // All of it came but its last word, for which the last snapshot waits.
    let last = stream.len() - 1;
    stream[last] ^= 1;
    house.receive(into("tank/copy"), &stream).unwrap_err();
    assert_eq!(count(), before + 1);
}

#[test]
fn what_cannot_be_left_out_is_told() {
    let house = House::new("nothing_left_out");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    for name in ["tank/fs", "tank/fs/in", "tank/other"] {
        house.create_fs(name, &[], None).unwrap();
    }
    house.snapshot(&["tank/fs@1", "tank/fs/in@1"]);
    let without = |names: &[&str]| {
        let exclude = names.iter().map(|name| (*name).to_owned()).collect();
        let request = FsSend { recursive: true, exclude, dry_run: true, ..of("tank/fs@1", None) };
        house.host().call(&caller(), request)
    };
    for names in [&["tank/fs/im"][..], &["tank/fs/in", "tank/nowhere"], &["tank/other"]] {
        let refusal = without(names).unwrap_err();
        assert_eq!(refusal.code, Code::FsAbsent);
        assert!(refusal.what.contains(names[names.len() - 1]), "{}", refusal.what);
    }
    assert_eq!(without(&["tank/fs/in"]).unwrap().parts.len(), 1);
}

#[test]
fn a_tree_is_followed_with_what_is_mounted_of_it() {
    let house = House::new("followed");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    for name in ["tank/top", "tank/top/a", "tank/top/b", "tank/top/c"] {
        house.create_fs(name, &[], None).unwrap();
    }
    let all = |tails: &[&str], snapshot: &str| {
        let names: Vec<String> = tails.iter().map(|tail| format!("tank/top{tail}@{snapshot}")).collect();
        house.snapshot(&names.iter().map(String::as_str).collect::<Vec<_>>());
    };
    all(&["", "/a", "/b", "/c"], "1");
    let tree = |snapshot: &str, base: Option<&str>| {
        let base = base.map(|base| format!("tank/top@{base}"));
        house.send(FsSend { recursive: true, base, ..of(&format!("tank/top@{snapshot}"), None) })
    };
    house.receive(into("tank/copy"), &tree("1", None)).unwrap();
    house.create_fs("tank/copy/mine", &[], None).unwrap();
    let rename = |from: &str, to: &str| {
        let (name, to) = (from.to_owned(), to.to_owned());
        let request = FsRename { name, to, parents: false, force: false, no_remount: false };
        house.host().call(&caller(), request).unwrap();
    };
    rename("tank/top/a", "tank/top/z");
    rename("tank/top/b", "tank/top/a");
    let name = "tank/top/c".to_owned();
    let request = FsDestroy { name, recursive: true, clones: false, force: false, dry_run: false };
    house.host().call(&caller(), request).unwrap();
    all(&["", "/a", "/z"], "2");
    let receipt =
        house.receive(FsReceive { force: true, ..into("tank/copy") }, &tree("2", Some("1"))).unwrap();
    assert_eq!(receipt.warnings, []);
    let copies = || -> Vec<String> {
        house.mounted().into_iter().filter(|name| name.starts_with("tank/copy")).collect()
    };
    assert_eq!(copies(), ["tank/copy", "tank/copy/a", "tank/copy/z"]);
    // Held snapshots are not destroyed, and the stream is received.
    house.create_fs("tank/copy/kept", &[], None).unwrap();
    house.snapshot(&["tank/copy/kept@1"]);
    let names = vec!["tank/copy/kept@1".to_owned()];
    let hold = FsHold { names, tag: "mine".into(), recursive: false, release: false };
    house.host().call(&caller(), hold).unwrap();
    all(&["", "/a", "/z"], "3");
    let stream = tree("3", Some("2"));
    let receipt = house.receive(FsReceive { force: true, ..into("tank/copy") }, &stream).unwrap();
    let codes: Vec<Code> = receipt.warnings.iter().map(|warning| warning.code).collect();
    assert_eq!(codes, [Code::SnapshotHeld], "{:?}", receipt.warnings);
    assert_eq!(copies(), ["tank/copy", "tank/copy/a", "tank/copy/kept", "tank/copy/z"]);
}

#[test]
fn all_of_a_pool_goes_below_another_one_and_who_aims_at_its_root_is_told() {
    let house = House::new("whole_pool");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_pool(house.create_request("back", "b.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    let take = |name: &str| {
        let request = FsSnapshot {
            names: vec![format!("tank@{name}")],
            recursive: true,
            properties: Properties::new(),
        };
        house.host().call(&caller(), request).unwrap();
    };
    take("1");
    let all = FsSend { recursive: true, ..of("tank@1", None) };
    let stream = house.send(all);
    let below = |target: &str| FsReceive { naming: ReceiveNaming::WithoutPool, ..into(target) };
    let refusal = house.receive(below("back"), &stream).unwrap_err();
    assert_eq!(refusal.code, Code::StreamExists);
    assert!(refusal.action.contains("zfs create back/NAME && zfs receive -d -F back/NAME"), "{refusal:?}");
    // The target has to be there, as in ZFS.
    assert_eq!(house.receive(below("back/full"), &stream).unwrap_err().code, Code::FsAbsent);
    house.create_fs("back/full", &[], None).unwrap();
    house.receive(FsReceive { force: true, ..below("back/full") }, &stream).unwrap();
    take("2");
    let more = house.send(FsSend { recursive: true, ..of("tank@2", Some("tank@1")) });
    house.receive(FsReceive { force: true, ..below("back/full") }, &more).unwrap();
    let listed = house.host().call(&caller(), FsList { names: vec!["back".into()], depth: None }).unwrap();
    let names: Vec<&str> = listed.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["back", "back/full", "back/full/a"]);
    // -F does not make way for a whole snapshot, and `receive` has no -r.
    let single = house.send(of("tank@1", None));
    let refusal = house.receive(FsReceive { force: true, ..into("back/full") }, &single).unwrap_err();
    assert!(refusal.code == Code::StreamExists && !refusal.action.contains("add -r"), "{refusal:?}");
    // With -F it goes into the root, and leaves what lies below.
    house.receive(FsReceive { force: true, ..below("back") }, &stream).unwrap();
    let listed = house.host().call(&caller(), FsList { names: vec!["back".into()], depth: None }).unwrap();
    let names: Vec<&str> = listed.iter().map(|info| info.name.as_str()).collect();
    assert_eq!(names, ["back", "back/a", "back/full", "back/full/a"]);
}

#[test]
fn what_is_named_is_listed_without_its_snapshots_and_bookmarks() {
    let house = House::new("named_only");
    house.create_pool(house.create_request("tank", "a.img")).unwrap();
    house.create_fs("tank/a", &[], None).unwrap();
    house.snapshot(&["tank/a@1"]);
    let mark = FsBookmark { of: "tank/a@1".into(), name: "m".into() };
    house.host().call(&caller(), mark).unwrap();
    let listed = |filesystems: bool, depth: Option<u32>| -> Vec<String> {
        let request = FsListAll {
            names: vec!["tank/a".into()],
            depth,
            filesystems,
            snapshots: true,
            bookmarks: true,
            ..FsListAll::default()
        };
        house.host().call(&caller(), request).unwrap().into_iter().map(|info| info.name).collect()
    };
    let mut all = listed(true, None);
    all.sort();
    assert_eq!(all, ["tank/a", "tank/a#m", "tank/a@1"]);
    assert_eq!(listed(true, Some(0)), ["tank/a"]);
    let mut points = listed(false, Some(0));
    points.sort();
    assert_eq!(points, ["tank/a#m", "tank/a@1"]);
}
