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
        self.host().fs_snapshot(&caller(), request).unwrap();
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
        self.host().fs_send(&caller, request).unwrap();
        drop((caller, far));
        reader.join().unwrap()
    }

    fn receive(&self, request: FsReceive, stream: &[u8]) -> Result<Receipt, Refusal> {
        let (given, mut giver) = std::io::pipe().unwrap();
        let stream = stream.to_vec();
        let writer = std::thread::spawn(move || {
            // Whoever refuses it reads no further.
            let _ = giver.write_all(&stream);
        });
        let (descriptor, far) = Descriptor::own(OwnedFd::from(given)).unwrap();
        let caller = Caller { descriptor: Some(descriptor), ..caller() };
        let receipt = self.host().fs_receive(&caller, request);
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
    house.host().fs_hold(&caller(), FsHold { names: names.clone(), tag, recursive, release: false }).unwrap();
    let holds = house.host().fs_holds(&caller(), FsHolds { names: names.clone(), recursive: true }).unwrap();
    assert_eq!(holds.into_iter().map(|hold| hold.snapshot).collect::<Vec<_>>(), names);
}

#[test]
fn a_part_of_what_is_not_there_yet_is_listed_to_who_asks_for_its_token() {
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
        house.host().fs_list_all(&caller(), request).unwrap().into_iter().map(|info| info.name).collect()
    };
    let token = "receive_resume_token";
    assert_eq!(listed("tank", None, token), ["tank", "tank/box", "tank/fs", "tank/box/new"]);
    assert_eq!(listed("tank", None, "used"), ["tank", "tank/box", "tank/fs"]);
    assert_eq!(listed("tank", Some(1), token), ["tank", "tank/box", "tank/fs"]);
    assert_eq!(listed("tank/box", Some(1), token), ["tank/box", "tank/box/new"]);
    assert_eq!(listed("tank/fs", None, token), ["tank/fs"]);
    assert_eq!(listed("tank/box/new", Some(0), token), ["tank/box/new"]);
}
