//! Clients of the NFS server when things go wrong for them, and many of them for long.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};

use steadfast_nfs::client::{Client, attributes};
use steadfast_nfs::xdr::Reader;
use steadfast_tests::{Host, until};

use crate::nfs::{call, create, mount, read};

// Status of RFC 1813.
const NOSPC: u32 = 28;
const DQUOT: u32 = 69;
const STALE: u32 = 70;
/// The server cannot do it now: ask again.
const JUKEBOX: u32 = 10_008;

// Procedures of NFS.
const SETATTR: u32 = 2;
const REMOVE: u32 = 12;

/// Status of a write that is to be durable.
fn durably(client: &mut Client, file: &[u8], offset: u64, data: &[u8]) -> u32 {
    let count = data.len() as u32;
    call(client, 7, |out| _ = out.opaque(file).u64(offset).u32(count).u32(2).opaque(data)).0
}

/// Writes until a write is refused, at most `pieces` of a MiB, and gives the refusal.
fn fill(client: &mut Client, file: &[u8], pieces: u64) -> u32 {
    let piece = steadfast_tests::noise(7, 1 << 20);
    let mut refusals = (0..pieces).map(|at| durably(client, file, at << 20, &piece));
    refusals.find(|status| *status != 0).unwrap_or(0)
}

fn remove(client: &mut Client, dir: &[u8], name: &str) -> u32 {
    call(client, REMOVE, |out| _ = out.opaque(dir).opaque(name.as_bytes())).0
}

/// A quota, a full pool, a key that is unloaded: clients get the errors of RFC 1813, keep what was
/// accepted, and go on with the same handles when the cause is gone.
#[test]
fn a_quota_a_full_pool_and_a_key_that_goes_are_errors_that_clients_know() {
    let Some(host) = Host::with_images("nfs misfortune", 1, 192 << 20) else { return };
    fs::write(host.at("key"), [7; 32]).expect("a key");
    host.shell(
        "zpool create -m $PWD/t -O compression=off tank $PWD/d1.img; \
         zfs create -o refquota=8M -o sharenfs=insecure,no_root_squash tank/small; \
         zfs create -o sharenfs=insecure,no_root_squash tank/large; \
         zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key \
         -o sharenfs=insecure,no_root_squash tank/secret",
    )
    .ok();
    let path = |name: &str| host.at("t").join(name).display().to_string();
    // A quota.
    let (mut client, top) = mount(&host, &path("small"));
    let file = create(&mut client, &top, "file");
    assert_eq!(fill(&mut client, &file, 32), DQUOT);
    host.shell("zfs set refquota=none tank/small").ok();
    assert_eq!(durably(&mut client, &file, 64 << 20, b"more"), 0);
    assert_eq!(remove(&mut client, &top, "file"), 0);
    // A full pool, until something is removed.
    let (mut client, top) = mount(&host, &path("large"));
    let (one, two) = (create(&mut client, &top, "one"), create(&mut client, &top, "two"));
    assert_eq!(durably(&mut client, &one, 0, b"accepted"), 0);
    assert_eq!(fill(&mut client, &two, 300), NOSPC);
    assert_eq!(read(&mut client, &one), Ok(b"accepted".to_vec()));
    assert_eq!(remove(&mut client, &top, "two"), 0);
    host.shell("zpool wait -t free tank; zpool sync tank").ok();
    assert_eq!(durably(&mut client, &one, 8, b", and more"), 0);
    assert_eq!(read(&mut client, &one), Ok(b"accepted, and more".to_vec()));
    // A client's clock that is years off: its times are kept, and nothing else has them.
    for seconds in [1, 0x7fff_ffff] {
        let (status, _) = call(&mut client, SETATTR, |out| {
            out.opaque(&one).bool(false).bool(false).bool(false).bool(false);
            // Access and modification, by the client.
            out.u32(2).u32(seconds).u32(0).u32(2).u32(seconds).u32(0).bool(false);
        });
        assert_eq!(status, 0);
        let found = client.lookup(&top, "one").expect("answered").expect("there").attributes;
        assert_eq!(found.mtime.0, seconds);
        assert!(found.ctime.0 > 1_700_000_000 && found.ctime.0 < 0x7fff_ffff, "{found:?}");
    }
    assert_eq!(durably(&mut client, &one, 0, b"A"), 0);
    let found = client.lookup(&top, "one").expect("answered").expect("there").attributes;
    assert!(found.mtime.0 > 1_700_000_000 && found.mtime.0 < 0x7fff_ffff, "{found:?}");
    // A key that goes while a client has a file.
    let (mut client, top) = mount(&host, &path("secret"));
    let file = create(&mut client, &top, "file");
    assert_eq!(durably(&mut client, &file, 0, b"sealed"), 0);
    host.shell("zfs unload-key tank/secret").fails(1).says("is mounted");
    assert_eq!(read(&mut client, &file), Ok(b"sealed".to_vec()), "it was refused, and changed nothing");
    host.shell("zfs unmount -u tank/secret; zfs get -Ho value keystatus tank/secret")
        .ok()
        .says("unavailable");
    let without = read(&mut client, &file);
    assert!(matches!(without, Err(STALE | JUKEBOX)), "{without:?}");
    assert!(matches!(durably(&mut client, &file, 0, b"closed"), STALE | JUKEBOX));
    host.shell("zfs mount -l tank/secret").ok();
    assert_eq!(read(&mut client, &file), Ok(b"sealed".to_vec()), "the same handle");
}

/// Bytes that the daemon may grow by behind the first fifth: what its caches of 16 MiB and 16 MiB
/// of changes take until they are full. A client that left 64 KiB behind would be seen, and 600
/// bytes in the long form.
const GROWTH_MAX: u64 = 24 << 20;

/// A client of the load: it works, and leaves as `leaving` says.
fn session(host: &Host, path: &str, number: u64) {
    let (mut client, top) = mount(host, path);
    let name = format!("of-{number}");
    let file = create(&mut client, &top, &name);
    let data = steadfast_tests::noise(number, 20_000);
    for at in 0..4 {
        let stable = if at == 3 { 2 } else { 0 };
        let (status, _) = call(&mut client, 7, |out| {
            out.opaque(&file).u64(at * 20_000).u32(20_000).u32(stable).opaque(&data);
        });
        assert_eq!(status, 0);
    }
    assert_eq!(read(&mut client, &file).expect("read")[60_000..], data);
    for _ in 0..20 {
        client.lookup(&top, &name).expect("answered").expect("there");
        let absent = client.lookup(&top, "absent").expect("answered");
        assert_eq!(absent.err(), Some(2));
    }
    // READDIRPLUS.
    let (status, results) =
        call(&mut client, 17, |out| _ = out.opaque(&top).u64(0).u64(0).u32(8_192).u32(65_536));
    assert_eq!(status, 0);
    attributes(&mut Reader::new(&results)).expect("attributes of the folder");
    let to = format!("moved-{number}");
    let (status, _) = call(&mut client, 14, |out| {
        out.opaque(&top).opaque(name.as_bytes()).opaque(&top).opaque(to.as_bytes());
    });
    assert_eq!(status, 0);
    assert_eq!(remove(&mut client, &top, &to), 0);
    match number % 4 {
        // It goes in the middle of a record, or says what is no RPC, or does not read its answers.
        0 => client.send(b"\x80\x00\x10\x00\0\0\0\x01").expect("sent"),
        1 => client.send(b"GET / HTTP/1.1\r\n\r\n").expect("sent"),
        2 => {
            for _ in 0..8 {
                let mut arguments = steadfast_nfs::xdr::Writer::default();
                arguments.opaque(&top);
                let record = client.record(100_003, 3, 1, &arguments.out);
                client.send(&record).expect("sent");
            }
        }
        _ => {}
    }
}

/// Resident bytes of the daemon, and its open descriptors.
fn held(pid: u32) -> (u64, usize) {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line of it");
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    (kib << 10, fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").count())
}

/// Inodes of the sockets of the daemon that speak TCP: one for each client, and those that listen.
fn connections(pid: u32) -> BTreeSet<String> {
    let mut spoken = BTreeSet::new();
    for table in ["tcp", "tcp6"] {
        let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        spoken.extend(
            table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(9)).map(str::to_owned),
        );
    }
    let open = fs::read_dir(format!("/proc/{pid}/fd")).expect("it lives").flatten();
    let socket = |entry: fs::DirEntry| {
        let target = fs::read_link(entry.path()).ok()?.to_string_lossy().into_owned();
        target.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned)
    };
    open.filter_map(socket).filter(|inode| spoken.contains(inode)).collect()
}

/// Clients come, work and leave, some of them badly: a day of a small office, as fast as it goes.
/// After the first fifth the daemon's memory grows by no more than caches that fill take, and
/// its descriptors do not grow at all. `STEADFAST_LONG=1` takes a hundred times as
/// many clients.
#[test]
fn a_day_of_clients_that_come_and_go_leaves_memory_and_descriptors_as_they_were() {
    let Some(host) = Host::with_images("a day of clients", 1, 1 << 30) else { return };
    let long = std::env::var_os("STEADFAST_LONG").is_some_and(|value| value != "0" && !value.is_empty());
    let sessions = if long { 50_000 } else { 500 };
    host.shell(
        "export STEADFAST_NODE_CACHE_BYTES=8M STEADFAST_BLOCK_CACHE_BYTES=8M STEADFAST_DIRTY_BYTES=16M; \
         zpool create -m $PWD/t -O sharenfs=insecure,no_root_squash,async tank $PWD/d1.img",
    )
    .ok();
    let path = host.at("t").display().to_string();
    let pid = host.run("daemon pid").ok().out;
    let pid = pid.split_whitespace().find_map(|word| word.parse::<u32>().ok()).expect("a number");
    let next = AtomicU64::new(0);
    let mut seen = Vec::new();
    for fifth in 1..=5 {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    while let number = next.fetch_add(1, Ordering::Relaxed)
                        && number < sessions / 5 * fifth
                    {
                        session(&host, &path, number);
                    }
                });
            }
        });
        next.store(sessions / 5 * fifth, Ordering::Relaxed);
        host.shell("zpool wait -t free tank; zpool sync tank").ok();
        // Connections that were left in the middle of something are closed when their end is read.
        let first = seen.first().map_or(usize::MAX, |(_, descriptors)| *descriptors);
        seen.push(until(|| match held(pid) {
            (_, now) if now > first => Err(format!("{now} descriptors, {first} after a fifth")),
            held => Ok(held),
        }));
    }
    println!("resident bytes and descriptors after each fifth: {seen:?}");
    let grown = seen[4].0.saturating_sub(seen[0].0);
    assert!(grown < GROWTH_MAX, "{grown} bytes more after {sessions} clients: {seen:?}");
}

/// Most resident bytes that an idle client may cost.
const IDLE_MAX: u64 = 64 << 10;

/// Clients that mounted, asked, and then do nothing cost the daemon little memory and one
/// descriptor each. `STEADFAST_LONG=1` takes ten thousand of them.
#[test]
fn an_idle_client_costs_the_daemon_little_memory() {
    let Some(host) = Host::with_images("idle clients", 1, 256 << 20) else { return };
    let long = std::env::var_os("STEADFAST_LONG").is_some_and(|value| value != "0" && !value.is_empty());
    let wanted = if long { 9_900 } else { 400 };
    host.shell("zpool create -m $PWD/t -O sharenfs=insecure,no_root_squash tank $PWD/d1.img").ok();
    let path = host.at("t").display().to_string();
    let pid = host.run("daemon pid").ok().out;
    let pid = pid.split_whitespace().find_map(|word| word.parse::<u32>().ok()).expect("a number");
    let list = host.shell("zfs share").ok().out;
    let address = list.split_whitespace().next().expect("an address").parse().expect("an address");
    let visit = || -> Client {
        let mut client = Client::connect(address, crate::nfs::ROOT).expect("connects");
        let top = client.mount(&path).expect("answered").expect("allowed");
        call(&mut client, 1, |out| _ = out.opaque(&top));
        client
    };
    // Threads, caches and buffers are there before it is counted.
    let first: Vec<Client> = (0..100).map(|_| visit()).collect();
    let (before, spoken) = (held(pid), connections(pid).len());
    let clients: Vec<Client> = (0..wanted).map(|_| visit()).collect();
    // Those of commands, and of files that something in the daemon reads, come and go.
    let others = before.1 - spoken;
    let after = until(|| match (held(pid), connections(pid).len()) {
        (after, spoken) if after.1 - spoken > others => {
            Err(format!("{} beside {spoken} connections", after.1))
        }
        seen => Ok(seen),
    });
    let ((resident, descriptors), now) = after;
    let each = resident.saturating_sub(before.0) / wanted;
    println!("{wanted} idle clients: {before:?}, then {resident}, {descriptors}: {each} resident bytes each");
    assert_eq!(now - spoken, wanted as usize, "a connection each");
    assert!(each <= IDLE_MAX, "{each} bytes each: {before:?}, then {resident}");
    drop((first, clients));
}

/// A daemon without descriptors accepts nobody for a while. Those that it serves notice nothing,
/// and later it takes others again.
#[test]
fn clients_go_on_where_no_more_can_be_accepted() {
    let Some(host) = Host::with_images("no descriptors", 1, 128 << 20) else { return };
    host.shell("ulimit -n 256; zpool create -m $PWD/t -O sharenfs=insecure,no_root_squash tank $PWD/d1.img")
        .ok();
    let path = host.at("t").display().to_string();
    let (mut client, top) = mount(&host, &path);
    let list = host.shell("zfs share").ok().out;
    let address: std::net::SocketAddr =
        list.split_whitespace().next().expect("an address").parse().expect("an address");
    // The system takes them all; the daemon has descriptors for some.
    let crowd: Vec<_> = (0..300).map(|_| std::net::TcpStream::connect(address).expect("connects")).collect();
    let log = || fs::read_to_string(host.at("run/daemon.log")).expect("a log");
    const LINE: &str = "no connection can be accepted: Too many open files";
    until(|| if log().contains(LINE) { Ok(()) } else { Err(log()) });
    for number in 0..200 {
        assert_eq!(call(&mut client, 1, |out| _ = out.opaque(&top)).0, 0, "call {number}");
    }
    assert_eq!(log().matches(LINE).count(), 1, "it is not tried again and again: {}", log());
    drop(crowd);
    // It tries again by itself.
    let (mut other, again) = mount(&host, &path);
    assert_eq!((call(&mut other, 1, |out| _ = out.opaque(&again)).0, &again), (0, &top));
    create(&mut client, &top, "file");
    host.shell("ls t").ok().says("file");
}
