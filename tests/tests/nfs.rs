//! `sharenfs`: the daemon's own NFS front, with a client of ours beside the local mount.

use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use steadfast_nfs::client::{Claim, Client, attributes};
use steadfast_nfs::xdr::{Reader, Writer};
use steadfast_tests::{Host, is_root};

pub(crate) const ROOT: Claim = Claim { uid: 0, gid: 0, groups: Vec::new() };

/// Connects to the server that shares `path`, and gives the handle of its top.
pub(crate) fn mount(host: &Host, path: &str) -> (Client, Vec<u8>) {
    let list = host.shell("zfs share").ok().out;
    let line = list.lines().find(|line| line.split_whitespace().nth(1) == Some(path)).expect(&list);
    let address = line.split_whitespace().next().expect("an address");
    let mut client = Client::connect(address.parse().expect("an address"), ROOT).expect("connects");
    let top = client.mount(path).expect("answered").expect("allowed");
    (client, top)
}

/// Status of a call, and its results.
pub(crate) fn call(client: &mut Client, procedure: u32, write: impl FnOnce(&mut Writer)) -> (u32, Vec<u8>) {
    let answer = client.nfs(procedure, write).expect("answered");
    (answer.status, answer.results)
}

pub(crate) fn create(client: &mut Client, dir: &[u8], name: &str) -> Vec<u8> {
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

pub(crate) fn read(client: &mut Client, file: &[u8]) -> Result<Vec<u8>, u32> {
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
    // Each request is counted by its operation, and where its time went.
    let told = host.shell("zpool iostat --requests -Hp tank").ok().out;
    let of = |words: [&str; 3]| {
        let has = |line: &&str| line.split('\t').take(3).eq(words);
        let fields = |line: &str| line.split('\t').skip(4).map(str::to_owned).collect::<Vec<_>>();
        told.lines().find(has).map(fields).unwrap_or_else(|| panic!("no {words:?} in {told}"))
    };
    assert_eq!(of(["tank", "nfs", "rename"])[0], "1");
    assert!(of(["tank", "nfs", "create"])[4] != "0", "a create waits until it is durable");
    of(["tank", "local", "mkdir"]);
    let metrics = host.run("daemon metrics").ok().out;
    for line in [
        "steadfast_request_seconds_count{pool=\"tank\",from=\"nfs\",operation=\"rename\",cache=\"hot\"} 1\n",
        "steadfast_pool_healthy{pool=\"tank\",state=\"ONLINE\"} 1\n",
        "# TYPE steadfast_cache_hits_total counter\n",
        "steadfast_cache_hits_total{pool=\"tank\",cache=\"nodes\"} ",
    ] {
        assert!(metrics.contains(line), "no {line} in {metrics}");
    }
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

#[test]
fn clients_read_snapshots_below_their_folder() {
    let Some(host) = Host::with_tank("nfs snapshots") else { return };
    host.shell("zfs set sharenfs=insecure,no_root_squash tank; mkdir t/sub; echo monday > t/sub/note").ok();
    host.shell("zfs snapshot tank@monday; echo later > t/sub/note; zfs snapshot tank@later").ok();
    let path = host.at("t").display().to_string();
    let (mut client, top) = mount(&host, &path);
    let walk = |client: &mut Client, from: &[u8], names: &str| {
        let step = |at: Result<Vec<u8>, u32>, name: &str| {
            at.and_then(|at| client.lookup(&at, name).expect("answered")).map(|found| found.handle)
        };
        names.split('/').fold(Ok(from.to_vec()), step)
    };
    let old = walk(&mut client, &top, ".zfs/snapshot/monday/sub/note").expect("there");
    let later = walk(&mut client, &top, ".zfs/snapshot/later/sub/note").expect("there");
    assert_eq!(read(&mut client, &old), Ok(b"monday\n".to_vec()));
    assert_eq!(read(&mut client, &later), Ok(b"later\n".to_vec()));
    // A handle outlives a new name, an export and a daemon.
    host.shell("zfs rename tank@monday tank@first; zpool export tank; zpool import -d $PWD tank").ok();
    assert_eq!(read(&mut client, &old), Ok(b"monday\n".to_vec()));
    assert_eq!(walk(&mut client, &top, ".zfs/snapshot/monday"), Err(2));
    host.kill_daemon();
    host.shell("zpool list").ok();
    let (mut client, _) = mount(&host, &path);
    assert_eq!(read(&mut client, &old), Ok(b"monday\n".to_vec()));
    let within =
        client.mount(&format!("{path}/.zfs/snapshot/first/sub")).expect("answered").expect("allowed");
    assert_eq!(walk(&mut client, &within, "note"), Ok(old.clone()));
    // More snapshots than are kept open; reading them keeps nothing from being destroyed.
    host.shell("for at in $(seq 40); do echo $at > t/sub/note; zfs snapshot tank@n$at; done").ok();
    for at in 1..=40 {
        let note = walk(&mut client, &top, &format!(".zfs/snapshot/n{at}/sub/note")).expect("there");
        assert_eq!(read(&mut client, &note), Ok(format!("{at}\n").into_bytes()));
    }
    host.shell("zfs destroy tank@first; zfs rollback -r tank@later; cat t/sub/note").ok().says("later\n");
    assert_eq!(read(&mut client, &old), Err(70), "it was destroyed");
    assert_eq!(read(&mut client, &later), Ok(b"later\n".to_vec()));
    assert_eq!(walk(&mut client, &top, ".zfs/snapshot/n40"), Err(2));
    host.shell("zfs unmount tank; zpool export tank").ok();
}

#[test]
fn clients_change_snapshots_in_their_folder_if_that_is_allowed() {
    let Some(host) = Host::with_tank("nfs changes snapshots") else { return };
    host.shell("zfs set sharenfs=insecure tank; echo now > t/note; zfs snapshot tank@held").ok();
    host.shell("zfs hold keep tank@held; ls t/.zfs/snapshot; test ! -e t/.zfs/snapshot/mine").ok();
    let path = host.at("t").display().to_string();
    let (mut client, top) = mount(&host, &path);
    let find = |client: &mut Client, at: &[u8], name: &str| {
        client.lookup(at, name).expect("answered").map(|found| found.handle)
    };
    let zfs = find(&mut client, &top, ".zfs").expect("there");
    let folder = find(&mut client, &zfs, "snapshot").expect("there");
    let take = |client: &mut Client, name: &str| {
        let put = |out: &mut Writer| {
            out.opaque(&folder).opaque(name.as_bytes()).bool(true).u32(0o755);
            out.bool(false).bool(false).bool(false).u32(0).u32(0);
        };
        call(client, 9, put).0
    };
    let destroy = |client: &mut Client, name: &str| {
        call(client, 13, |out| _ = out.opaque(&folder).opaque(name.as_bytes())).0
    };
    let rename = |client: &mut Client, name: &str, to: &str| {
        let put = |out: &mut Writer| {
            for name in [name, to] {
                out.opaque(&folder).opaque(name.as_bytes());
            }
        };
        call(client, 14, put).0
    };
    // Root of a client is nobody.
    assert_eq!((take(&mut client, "mine"), destroy(&mut client, "held")), (1, 1), "not permitted");
    host.shell("zfs set sharenfs=insecure,no_root_squash tank").ok();
    assert_eq!(take(&mut client, "mine"), 0);
    // The local mount knew that there is no such name.
    host.shell("cat t/.zfs/snapshot/mine/note; zfs list -Ho name -t snapshot tank").ok().says("tank@mine\n");
    assert_eq!(take(&mut client, "mine"), 17, "it is there");
    assert_eq!(take(&mut client, "no/name"), 22);
    assert_eq!(rename(&mut client, "mine", "yours"), 0);
    host.shell("cat t/.zfs/snapshot/yours/note; zfs list tank@yours; test ! -e t/.zfs/snapshot/mine").ok();
    assert_eq!(destroy(&mut client, "held"), 13, "something holds it");
    assert_eq!(destroy(&mut client, "yours"), 0);
    host.shell("zfs list tank@yours").fails(1);
    host.shell("zfs history -l tank 2>/dev/null || zpool history tank").ok().says("zfs destroy tank@yours");
    if is_root() {
        // Another user, by delegation.
        let mine = Claim { uid: 4711, gid: 4711, groups: Vec::new() };
        let list = host.shell("zfs share").ok().out;
        let address = list.split_whitespace().next().expect("an address").parse().expect("an address");
        let mut guest = Client::connect(address, mine).expect("connects");
        assert_eq!(take(&mut guest, "theirs"), 1);
        host.shell("zfs allow 4711 snapshot tank").ok();
        assert_eq!(take(&mut guest, "theirs"), 0);
        assert_eq!(destroy(&mut guest, "theirs"), 1);
    }
    host.shell("zfs release keep tank@held; zfs unmount tank; zpool export tank").ok();
}

/// Content, sizes, moved folders and removed files: each side sees the other's changes as soon as
/// they are answered, also where the kernel or a program holds what it knew before.
#[test]
fn each_side_sees_the_others_changes_at_once() {
    let Some(host) = Host::with_tank("nfs beside programs") else { return };
    host.shell("zfs set sharenfs=insecure,no_root_squash,async tank").ok();
    let (mut client, top) = mount(&host, &host.at("t").display().to_string());
    let at = |name: &str| host.at("t").join(name);
    // A descriptor that is open all the time, with pages in the kernel's cache.
    std::fs::write(at("file"), vec![b'a'; 300_000]).expect("written");
    let open = std::fs::OpenOptions::new().read(true).write(true).open(at("file")).expect("opened");
    let local = |offset: u64, count: usize| {
        let mut found = vec![0; count];
        let count = open.read_at(&mut found, offset).expect("read");
        found.truncate(count);
        found
    };
    let file = client.lookup(&top, "file").expect("answered").expect("there").handle;
    for (round, byte) in (0..20).zip(b'b'..) {
        assert_eq!(local(0, 8), [byte - 1; 8], "round {round}");
        write(&mut client, &file, &[byte; 100_000], 0);
        assert_eq!((local(0, 8), local(99_999, 1)), (vec![byte; 8], vec![byte]));
    }
    // Sizes.
    let truncate = |client: &mut Client, size: u64| {
        let (status, _) = call(client, 2, |out| {
            out.opaque(&file).bool(false).bool(false).bool(false).bool(true).u64(size);
            out.u32(0).u32(0).bool(false);
        });
        assert_eq!(status, 0);
    };
    truncate(&mut client, 10);
    assert_eq!((open.metadata().expect("open").len(), local(5, 100)), (10, vec![b'u'; 5]));
    truncate(&mut client, 20);
    assert_eq!(local(5, 100), [vec![b'u'; 5], vec![0; 10]].concat(), "no old bytes behind the old end");
    open.write_all_at(b"local", 30).expect("written");
    open.set_len(33).expect("cut");
    let found = read(&mut client, &file).expect("read");
    assert_eq!((found.len(), &found[30..]), (33, &b"loc"[..]));
    // A folder that moves, and those in it.
    host.shell("mkdir -p t/one/deep t/two; echo x > t/one/deep/x; ls -R t").ok();
    let find = |client: &mut Client, dir: &[u8], name: &str| {
        client.lookup(dir, name).expect("answered").map(|found| found.handle)
    };
    let (one, two) =
        (find(&mut client, &top, "one").expect("there"), find(&mut client, &top, "two").expect("there"));
    let deep = find(&mut client, &one, "deep").expect("there");
    let inside = std::fs::File::open(at("one/deep")).expect("opened");
    let above =
        || std::fs::metadata(format!("/proc/self/fd/{}/..", inside.as_raw_fd())).expect("there").ino();
    let ino = |name: &str| std::fs::metadata(at(name)).expect("there").ino();
    assert_eq!(above(), ino("one"));
    let (status, _) =
        call(&mut client, 14, |out| _ = out.opaque(&one).opaque(b"deep").opaque(&two).opaque(b"deep"));
    assert_eq!(status, 0);
    // The kernel learns the new place of a folder that somebody holds by a look at it.
    host.shell("cat t/two/deep/x; test ! -e t/one/deep").ok().says("x\n");
    assert_eq!(above(), ino("two"), "`..` of a folder that a program holds");
    host.shell("mv t/two/deep t/deep").ok();
    assert_eq!(find(&mut client, &deep, ".."), Ok(top.clone()));
    assert_eq!((find(&mut client, &two, "deep"), find(&mut client, &top, "deep")), (Err(2), Ok(deep)));
    // A file that is removed while a program has it open.
    assert_eq!(call(&mut client, 12, |out| _ = out.opaque(&top).opaque(b"file")).0, 0);
    assert!(!at("file").exists());
    assert_eq!(local(30, 3), b"loc");
    open.write_all_at(b"L", 30).expect("written");
    assert_eq!(local(30, 3), b"Loc");
    drop(open);
    assert_eq!(read(&mut client, &file), Err(70), "ESTALE");
    // A snapshot has what the client wrote before it, and nothing of later.
    let kept = create(&mut client, &top, "kept");
    write(&mut client, &kept, b"before", 0);
    host.shell("zfs snapshot tank@now").ok();
    write(&mut client, &kept, b"behind", 0);
    host.shell("cat t/.zfs/snapshot/now/kept t/kept").ok().says("beforebehind");
}

/// The kernel is told of changes in the top folder only if it has asked about it; replies wait for
/// the log and for the kernel at once.
#[test]
fn the_top_shows_durable_changes_of_clients_whatever_was_looked_at_before() {
    let Some(host) = Host::with_tank("nfs at the top") else { return };
    host.shell("zfs set sharenfs=insecure,no_root_squash tank").ok();
    let (mut client, top) = mount(&host, &host.at("t").display().to_string());
    let at = |name: &str| host.at("t").join(name);
    let names = |round: usize| [format!("made{round}"), format!("other{round}")];
    let seen = || {
        let metadata = std::fs::metadata(host.at("t")).expect("there");
        (metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec(), metadata.size())
    };
    for round in 0..40 {
        let [name, other] = names(round);
        // Each of these looks leaves something with the kernel, in every combination.
        let before = (round & 1 != 0).then(seen);
        if round & 2 != 0 {
            assert!(!at(&name).exists());
        }
        if round & 4 != 0 {
            std::fs::read_dir(host.at("t")).expect("listed").for_each(|entry| drop(entry.expect("read")));
        }
        create(&mut client, &top, &name);
        assert!(before.is_none_or(|before| before != seen()), "round {round}: its times are old");
        create(&mut client, &top, &other);
        assert!(at(&name).exists() && at(&other).exists(), "round {round}");
        let before = (round & 1 != 0).then(seen);
        assert_eq!(call(&mut client, 12, |out| _ = out.opaque(&top).opaque(name.as_bytes())).0, 0);
        assert!(before.is_none_or(|before| before != seen()), "round {round}: its times are old");
        assert!(!at(&name).exists() && at(&other).exists(), "round {round}");
    }
    let listed = std::fs::read_dir(host.at("t")).expect("listed").count();
    assert_eq!(listed, 40);
}

/// A port that somebody else has is told by all commands that share.
#[test]
fn a_port_that_is_taken_is_told() {
    let Some(host) = Host::with_tank("nfs nowhere") else { return };
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = taken.local_addr().expect("bound").port();
    host.kill_daemon();
    let line = format!(
        "export STEADFAST_NFS=127.0.0.1:{port} STEADFAST_NFS_PORTMAP=127.0.0.1:0; zfs set sharenfs=on tank"
    );
    host.shell(&line).fails(1).says("is set, but");
    host.shell("zfs share").fails(1).says("SHARE-LISTEN");
    host.shell("zfs unmount tank; zfs mount tank").fails(1).says("is mounted, but");
    host.shell("zpool status tank").ok().says("for NFS clients: Address already in use");
    drop(taken);
    host.shell("zfs share -a; zfs share").ok().says(&format!("127.0.0.1:{port}"));
    host.shell("zpool status -x").ok().says("all pools are healthy");
    // Clients find it, and its locks, through the port mapper.
    let log = std::fs::read_to_string(host.at("run/daemon.log")).expect("a log");
    let finder = log.lines().find_map(|line| line.split_once("port mapper at ")).expect(&log).1;
    let mut client = Client::connect(finder.parse().expect("an address"), ROOT).expect("connects");
    let mut question = Writer::default();
    question.u32(100_021).u32(4).u32(6).u32(0);
    let found = client.call_version(100_000, 2, 3, &question.out).expect("answered");
    assert_eq!(found, u32::from(port).to_be_bytes());
}

/// Other machines reach the shares only where somebody says so, and then hear what that means.
#[test]
fn the_front_listens_at_this_machine_alone_unless_it_is_told_otherwise() {
    let Some(host) = Host::with_tank("nfs address") else { return };
    let log = || std::fs::read_to_string(host.at("run/daemon.log")).expect("a log");
    const WARNING: &str = "there is no Kerberos";
    host.kill_daemon();
    // Another server may have the port: the address is told all the same.
    let plain = "unset STEADFAST_NFS; export STEADFAST_NFS_PORTMAP=off; zfs set sharenfs=on tank";
    let shared = host.shell(plain);
    let told = if shared.status == 0 { host.shell("zfs share").ok().out } else { shared.err.clone() };
    assert!(told.contains("127.0.0.1:2049"), "{told} {shared:?}");
    assert!(!shared.err.contains(WARNING) && !log().contains(WARNING), "{shared:?} {}", log());
    host.kill_daemon();
    let open = "export STEADFAST_NFS=0.0.0.0:0 STEADFAST_NFS_PORTMAP=off; zfs set sharenfs=rw=127.0.0.1 tank";
    let shared = host.shell(open).ok();
    assert!(shared.err.starts_with("note: clients of other machines reach 0.0.0.0:"), "{shared:?}");
    assert!(shared.err.contains(WARNING) && log().contains(WARNING), "{shared:?} {}", log());
    host.shell("zfs unshare tank; zfs share tank 2>&1").ok().says(WARNING);
    assert_eq!(host.shell("zfs set sharenfs=off tank").ok().err, "");
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
