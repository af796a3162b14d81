//! `sharenfs`: the daemon's own NFS front, with a client of ours beside the local mount.

use std::os::unix::fs::MetadataExt;
use steadfast_nfs::client::{Claim, Client, attributes};
use steadfast_nfs::xdr::Reader;
use steadfast_tests::Host;

const ROOT: Claim = Claim { uid: 0, gid: 0, groups: Vec::new() };

/// Connects to the server that shares `path`, and gives the handle of its top.
fn mount(host: &Host, path: &str) -> (Client, Vec<u8>) {
    let list = host.shell("zfs share").ok().out;
    let line = list.lines().find(|line| line.split_whitespace().nth(1) == Some(path)).expect(&list);
    let address = line.split_whitespace().next().expect("an address");
    let mut client = Client::connect(address.parse().expect("an address"), ROOT).expect("connects");
    let top = client.mount(path).expect("answered").expect("allowed");
    (client, top)
}

/// Status of a call, and its results.
fn call(
    client: &mut Client,
    procedure: u32,
    write: impl FnOnce(&mut steadfast_nfs::xdr::Writer),
) -> (u32, Vec<u8>) {
    let answer = client.nfs(procedure, write).expect("answered");
    (answer.status, answer.results)
}

fn create(client: &mut Client, dir: &[u8], name: &str) -> Vec<u8> {
    let (status, results) = call(client, 8, |out| {
        out.opaque(dir).opaque(name.as_bytes()).u32(1).bool(true).u32(0o644);
        out.bool(false).bool(false).bool(false).u32(0).u32(0);
    });
    assert_eq!(status, 0, "{name}");
    let mut reader = Reader::new(&results);
    assert_eq!(reader.bool(), Ok(true));
    reader.opaque(64).expect("a handle").to_vec()
}

fn write(client: &mut Client, file: &[u8], data: &[u8], stable: u32) -> [u8; 8] {
    let count = data.len() as u32;
    let (status, results) =
        call(client, 7, |out| _ = out.opaque(file).u64(0).u32(count).u32(stable).opaque(data));
    assert_eq!(status, 0);
    results[results.len() - 8..].try_into().expect("a verifier")
}

fn read(client: &mut Client, file: &[u8]) -> Result<Vec<u8>, u32> {
    let (status, results) = call(client, 6, |out| _ = out.opaque(file).u64(0).u32(1 << 20));
    if status != 0 {
        return Err(status);
    }
    let mut reader = Reader::new(&results);
    attributes(&mut reader).expect("attributes");
    reader.u64().expect("count and end");
    Ok(reader.opaque(1 << 20).expect("data").to_vec())
}

#[test]
fn a_client_and_the_local_mount_see_one_file_system() {
    let Some(host) = Host::with_tank("nfs") else { return };
    host.shell("zfs create tank/home; zfs share tank/home").fails(1).says("FS-NOT-SHARED");
    host.shell("zfs set sharenfs=insecure,no_root_squash tank/home; zfs get -Ho value sharenfs tank/home")
        .ok()
        .says("insecure,no_root_squash\n");
    let path = host.at("t/home").display().to_string();
    let (mut client, top) = mount(&host, &path);
    // The client's changes, in the caches of the kernel.
    host.shell("ls -l t/home; cat t/home/a").fails(1);
    let file = create(&mut client, &top, "a");
    write(&mut client, &file, b"from the client\n", 0);
    host.shell("cat t/home/a").ok().says("from the client\n");
    write(&mut client, &file, b"from a CLIENT...\n", 2);
    assert_eq!(host.shell("cat t/home/a; stat -c %s t/home/a").ok().out, "from a CLIENT...\n17\n");
    let renamed = call(&mut client, 14, |out| _ = out.opaque(&top).opaque(b"a").opaque(&top).opaque(b"b"));
    assert_eq!(renamed.0, 0);
    host.shell("cat t/home/b; test ! -e t/home/a; ls t/home").ok().says("b\n");
    // Changes of the local mount, at the client.
    host.shell("echo local > t/home/c; mv t/home/b t/home/d; mkdir t/home/sub; mv t/home/d t/home/sub").ok();
    assert_eq!(read(&mut client, &file), Ok(b"from a CLIENT...\n".to_vec()), "wherever it is");
    let local = client.lookup(&top, "c").expect("answered").expect("there");
    assert_eq!(read(&mut client, &local.handle), Ok(b"local\n".to_vec()));
    let ino = std::fs::metadata(host.at("t/home/c")).expect("there").ino();
    assert_eq!(local.attributes.ino, ino, "one number on both ways");
    host.shell("rm t/home/c").ok();
    assert_eq!(read(&mut client, &local.handle), Err(70), "ESTALE");
    // An end of the share is an end for those who have a handle.
    host.shell("zfs unshare tank/home; zfs share").ok();
    assert_ne!(read(&mut client, &file).map(drop), Ok(()));
    host.shell("zfs share -a").ok().says("");
    assert_eq!(read(&mut client, &file), Ok(b"from a CLIENT...\n".to_vec()));
    host.shell("zfs set sharenfs=insecure,ro tank/home").ok();
    let (status, _) = call(&mut client, 12, |out| _ = out.opaque(&top).opaque(b"sub"));
    assert_eq!(status, 30, "read-only from now on");
    host.shell("zfs set sharenfs=off tank/home; test -z \"$(zfs share)\"").ok();
}

#[test]
fn handles_survive_a_restart_an_export_and_an_import_and_the_verifier_does_not() {
    let Some(host) = Host::with_tank("nfs again") else { return };
    host.shell("zfs set sharenfs=insecure,no_root_squash tank").ok();
    let path = host.at("t").display().to_string();
    let (mut client, top) = mount(&host, &path);
    let file = create(&mut client, &top, "file");
    let before = write(&mut client, &file, b"kept", 2);
    host.shell("zpool export tank; test -z \"$(zfs share)\"; zpool import -d $PWD tank").ok();
    assert_eq!(read(&mut client, &file), Ok(b"kept".to_vec()), "the connection is the same");
    let again = write(&mut client, &file, b"kept", 2);
    assert_ne!(before, again);
    // The power goes: a stable write is there, and an unstable one is known to be lost.
    write(&mut client, &file, b"sure", 2);
    host.kill_daemon();
    host.shell("zpool list").ok();
    let (mut client, top_again) = mount(&host, &path);
    assert_eq!((read(&mut client, &file), top_again), (Ok(b"sure".to_vec()), top.clone()));
    assert_ne!(write(&mut client, &file, b"more", 0), again);
    // A rollback takes the content back and lets handles be.
    let before = write(&mut client, &file, b"one.", 2);
    host.shell("zfs snapshot tank@one").ok();
    let later = create(&mut client, &top, "later");
    write(&mut client, &file, b"two.", 2);
    host.shell("zfs rollback tank@one").ok();
    assert_eq!(read(&mut client, &file), Ok(b"one.".to_vec()));
    assert_eq!(read(&mut client, &later), Err(70));
    assert_ne!(write(&mut client, &file, b"kept", 0), before);
    // A file system that is in use by clients is unmounted and destroyed all the same.
    host.shell("zfs create tank/gone").ok();
    let (mut other, gone) = mount(&host, &format!("{path}/gone"));
    create(&mut other, &gone, "x");
    host.shell("zfs destroy tank/gone").ok();
    let (status, _) = call(&mut other, 1, |out| _ = out.opaque(&gone));
    assert!(matches!(status, 70 | 10_008), "{status}");
}

/// The page "Sharing over NFS": its commands for this machine.
#[test]
fn the_commands_of_the_page_can_be_typed() {
    let Some(host) = Host::with_tank("the page Sharing") else { return };
    let page = include_str!("../../docs/operations/sharing.md");
    let commands = page.split("```\n").nth(1).expect("fenced commands");
    let told = host.shell(commands).ok().out;
    let path = host.at("t/home").display().to_string();
    assert!(told.contains(&path), "{told}");
    host.shell("test -z \"$(zfs share)\"").ok();
}
