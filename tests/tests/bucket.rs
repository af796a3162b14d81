//! Pools on stores of whole objects: a folder, and a bucket behind a server that misbehaves.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use steadfast_hostile::{Fault, KEYS, Kind, Rule, Store};
use steadfast_tests::{Host, Ran, no_fuse, noise, output, skip, spawn, steadfast_bin, until};

/// A corner with the keys of the server in a file of mode 0600, and the address of a prefix.
pub(crate) fn with_keys(store: &Store, prefix: &str) -> (Host, String) {
    let host = Host::new();
    let (name, secret) = KEYS[0];
    let text = format!("[default]\naws_access_key_id={name}\naws_secret_access_key={secret}\n");
    std::fs::write(host.at("keys"), text).expect("a file of keys");
    std::fs::set_permissions(host.at("keys"), std::fs::Permissions::from_mode(0o600)).expect("its mode");
    let address = format!("{}&credentials={}", store.location(prefix), host.at("keys").display());
    (host, address)
}

#[test]
fn a_pool_on_a_folder_of_objects_lives_dies_and_comes_back() {
    if let Some(why) = no_fuse() {
        return skip("a pool on a folder", &why);
    }
    let host = Host::new();
    std::fs::create_dir(host.at("objects")).expect("a folder");
    let address = format!("file://{}", host.at("objects").display());
    host.shell(&format!("zpool create -m $PWD/t tank '{address}?capacity=10'")).fails(1).says("like 500G");
    host.shell(&format!(
        "zpool create -m $PWD/t tank '{address}?capacity=1G'; echo kept > t/a; cp -a compat t/; sync t/a"
    ))
    .ok();
    // The wish is kept in the store, and is no part of its address.
    let status = host.shell("zpool status -P tank").ok().says(&address).out.clone();
    assert!(!status.contains("capacity"), "{status}");
    let size = || host.shell("zpool list -Hp -o size tank").ok().out.trim().parse::<u64>().expect("bytes");
    let bounds = (1 << 30) - (16 << 20)..=1 << 30;
    assert!(bounds.contains(&size()), "{}", size());
    host.shell("zfs snapshot tank@one; rm t/a; zpool export tank").ok();
    host.shell(&format!("zpool import -d '{address}' tank; cat t/.zfs/snapshot/one/a; test ! -e t/a"))
        .ok()
        .says("kept");
    assert!(bounds.contains(&size()), "{}", size());
    host.shell("echo again > t/b; sync t/b").ok();
    host.kill_daemon();
    host.shell("umount -l t || fusermount3 -uz t || true").ok();
    host.shell(&format!("zpool import -f -d '{address}' tank || zpool list tank; cat t/b"))
        .ok()
        .says("again");
    host.shell("zpool scrub -w tank; zpool status tank").ok().says("with 0 errors");
    host.shell("zpool destroy tank").ok();
}

#[test]
fn a_pool_on_a_bucket_survives_a_store_that_fails_by_turns() {
    if let Some(why) = no_fuse() {
        return skip("a pool on a bucket", &why);
    }
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    host.shell(&format!("zpool create -m $PWD/t tank '{address}'")).fails(1).says("STORE-CLEAR").says("-f");
    host.image("plain.img", 64 << 20);
    host.shell("zpool create -m none plain $PWD/plain.img").ok();
    host.shell(&format!("zpool add plain '{address}'")).fails(1).says("STORE-CLEAR").says("-f");
    host.shell(&format!("zpool add -f -n plain '{address}'; zpool destroy plain")).ok();
    assert_eq!(store.objects(), Vec::<String>::new(), "a refusal makes nothing, and neither does -n");
    host.shell(&format!("zpool create -f -m $PWD/t tank '{address}'")).ok();
    for fault in [Fault::Lose, Fault::Answer(503, "SlowDown"), Fault::Answer(500, "InternalError")] {
        store.add(Rule { kind: Some(Kind::Put), object: "seg/".into(), after: 1, times: 2, fault });
    }
    store.add(Rule {
        kind: Some(Kind::Get),
        object: String::new(),
        after: 1,
        times: 2,
        fault: Fault::Tear(100),
    });
    host.shell("head -c 3000000 /dev/urandom > noise; cp noise t/; zfs snapshot tank@one; rm t/noise").ok();
    host.shell("zpool export tank").ok();
    host.shell(&format!("zpool import -d '{address}' tank; cmp noise t/.zfs/snapshot/one/noise")).ok();
    host.shell("zpool scrub -w tank; zpool status tank").ok().says("with 0 errors");
    // Keys are in no place that is shown.
    let shown = host.shell("zpool status tank; zpool history -il tank; cat run/*.log; ps axww -o args").ok();
    assert!(!format!("{}{}", shown.out, shown.err).contains(KEYS[0].1), "{}", shown.out);
    assert!(store.objects().iter().all(|name| name.starts_with("tank/")), "{:?}", store.objects());
    host.shell("zpool destroy tank").ok();
}

/// Log, cache and anchor lie on this machine, and an import by the address finds them.
#[test]
fn a_pool_on_a_bucket_finds_its_log_and_asks_little_at_an_import() {
    if let Some(why) = no_fuse() {
        return skip("a pool on a bucket with a log", &why);
    }
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    host.image("log.img", 64 << 20);
    host.image("cache.img", 64 << 20);
    host.shell("head -c 32 /dev/urandom > key").ok();
    host.shell(&format!(
        "zpool create -O encryption=on -O keyformat=raw -O keylocation=file://$PWD/key -m $PWD/t tank '{address}' \
         anchor $PWD/anchor log $PWD/log.img cache $PWD/cache.img; echo kept > t/a; zpool export tank"
    ))
    .ok();
    let before = store.seen().len();
    host.shell(&format!("zpool import -l -d '{address}' tank; cat t/a")).ok().says("kept");
    let seen = store.seen();
    let lists = seen[before..].iter().filter(|seen| seen.kind == Kind::List).count();
    assert_eq!(lists, 1, "one search: {:?}", &seen[before..]);
    host.shell("zpool status -P tank").ok().says("log.img").says("cache.img");
    host.shell("zpool export tank; mv log.img gone.img").ok();
    host.shell(&format!("zpool import -l -d '{address}' tank")).fails(1).says("LOG-MISSING");
    host.shell(&format!("zpool import -l -d '{address}' -d $PWD tank; cat t/a; zpool destroy tank"))
        .ok()
        .says("kept");
}

#[test]
fn mistakes_about_a_bucket_are_told_and_change_nothing() {
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    let create = |address: &str| host.shell(&format!("zpool create -f -m none tank '{address}'")).fails(1);
    create(&address.replace("bucket/", "racket/")).says("STORE-FAILED").says("the bucket does not exist");
    create("s3://me:hunter2@bucket/tank").says("STORE-ADDRESS");
    create(&address.replace("/keys", "/none")).says("STORE-KEYS");
    host.shell(&format!("zpool import -d '{address}'")).fails(1).says("No pool is stored at");
    std::fs::set_permissions(host.at("keys"), std::fs::Permissions::from_mode(0o644)).expect("a mode");
    create(&address).says("STORE-KEYS").says("chmod 600");
    host.shell("sed -i s/secret-of/guessed/ keys; chmod 600 keys").ok();
    create(&address).says("STORE-FAILED").says("does not accept the key").says("req-");
    assert_eq!(store.objects(), Vec::<String>::new());
    let probe = host.run(&format!("store probe --quick {address}")).fails(1);
    assert!(probe.says("does not accept the key").out.is_empty());
    host.shell("sed -i s/guessed/secret-of/ keys").ok();
    host.run(&format!("store probe --quick {address}"))
        .ok()
        .says("1 of 32 won")
        .says("good for: data yes, roots yes, register yes");
}

/// Requests for content and metadata of a pool.
fn fetched(store: &Store) -> usize {
    store.seen().iter().filter(|seen| seen.kind == Kind::Get && seen.object.contains("seg/")).count()
}

/// A restart empties memory, and the cache device on this machine has the blocks still.
#[test]
fn a_cache_device_answers_readers_after_a_restart() {
    const FILES: u64 = 60;
    if let Some(why) = no_fuse() {
        return skip("a cache device before a bucket", &why);
    }
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    host.image("cache.img", 64 << 20);
    host.shell(&format!("zpool create -f -m $PWD/t tank '{address}' cache $PWD/cache.img; mkdir t/d")).ok();
    for file in 0..FILES {
        std::fs::write(host.at(&format!("t/d/f{file}")), noise(file, 200_000)).expect("written");
    }
    let read_all = || {
        let before = fetched(&store);
        host.shell("ls -lR t > listed").ok();
        for file in 0..FILES {
            let bytes = std::fs::read(host.at(&format!("t/d/f{file}"))).expect("readable");
            assert!(bytes == noise(file, 200_000), "file {file}");
        }
        fetched(&store) - before
    };
    let restart = format!("zpool export tank; zpool import -d '{address}' -d $PWD tank");
    host.shell(&restart).ok();
    let cold = read_all();
    host.shell(&restart).ok();
    // The list of its blocks is read in the background.
    host.until("zpool iostat -v -H -p tank", |told| {
        let line = told.lines().find(|line| line.contains("cache.img")).expect("its line");
        line.split('\t')
            .nth(1)
            .and_then(|bytes| bytes.parse::<u64>().ok())
            .is_some_and(|bytes| bytes > 11 << 20)
    });
    let warm = read_all();
    println!("{cold} requests without, {warm} with what the cache device kept");
    assert!(cold > 10 && warm <= 1, "{cold} requests without, {warm} with what the cache device kept");
    host.shell("zpool scrub -w tank; zpool status tank").ok().says("with 0 errors");
    host.shell("zpool destroy tank").ok();
}

/// The commands below a heading of the page "On a bucket".
fn commands_below(heading: &str) -> Vec<&'static str> {
    let page = include_str!("../../docs/operations/bucket.md");
    let (_, rest) = page.split_once(heading).expect("a heading of the page");
    let (_, rest) = rest.split_once("```\n").expect("commands below it");
    rest.split_once("\n```").expect("they end").0.lines().collect()
}

#[test]
fn the_commands_of_the_page_can_be_typed() {
    if let Some(why) = no_fuse() {
        return skip("the page On a bucket", &why);
    }
    let store = Store::start();
    let host = Host::new();
    let notes = type_the_page(&host, &store.endpoint(), KEYS[0]);
    assert!(notes.says("of the pool 'tank'").out.contains("removed"));
    assert_eq!(store.objects(), Vec::<String>::new(), "nothing of the pool is left");
}

#[test]
fn only_the_objects_of_a_destroyed_pool_are_cleaned_away() {
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    let other = address.replace("/tank?", "/tank2?");
    host.shell(&format!("zpool create -f -m none tank '{address}'; zpool create -f -m none two '{other}'"))
        .ok();
    let clean = |words: &str| host.run(&format!("store clean {words} {address}"));
    let before = store.objects();
    // The other pool commits by the clock.
    let of_tank = || {
        let objects = store.objects().into_iter();
        objects.filter(|name| name.starts_with("tank/")).collect::<Vec<_>>()
    };
    for words in ["", "-f"] {
        clean(words).fails(1).says("STORE-IN-USE").says("pool destroy tank");
    }
    host.shell("zpool export tank").ok();
    let exported = of_tank();
    clean("").fails(1).says("STORE-IN-USE").says("store clean -f");
    assert_eq!(of_tank(), exported, "a refusal deletes nothing");
    // A host has imported it, and its first commit is still to come: the label says exported.
    let newest =
        exported.iter().filter_map(|name| name.strip_prefix("tank/pool/epoch/")?.parse::<u64>().ok());
    let next = format!("tank/pool/epoch/{:020}", newest.max().expect("one was claimed") + 1);
    store.set_object(&next, Some(&[7; 16]));
    clean("-f")
        .fails(1)
        .says("STORE-IN-USE")
        .says("imported after its label was written")
        .says("destroy tank");
    assert_eq!(of_tank().len(), exported.len() + 1);
    store.set_object(&next, None);
    host.shell(&format!("zpool import -d '{address}' tank && zpool destroy tank")).ok();
    let left = of_tank();
    clean("-n").ok().says("would remove");
    assert_eq!(of_tank(), left);
    // A store that does not give the label does not lose its pool.
    store.add(Rule {
        kind: Some(Kind::Get),
        object: "pool/label".into(),
        after: 0,
        times: u32::MAX,
        fault: Fault::Answer(403, "AccessDenied"),
    });
    let refused = clean("-f").fails(1);
    assert!(!refused.err.contains("STORE-IN-USE"), "{}", refused.err);
    assert_eq!(of_tank(), left);
    store.behave();
    clean("-j").ok().says("\"pool\":");
    let rest = store.objects();
    assert!(!rest.is_empty() && rest.iter().all(|name| name.starts_with("tank2/")), "{rest:?}");
    assert!(before.len() > rest.len());
    clean("").ok().says("removed 0 objects");
    host.shell("zpool scrub -w two; zpool status two").ok().says("with 0 errors");
    // One that is cut off has taken the pool: it is destroyed, and the next one goes on.
    host.shell("zpool export two").ok();
    let kind = Some(Kind::Delete);
    store.add(Rule {
        kind,
        object: String::new(),
        after: 1,
        times: u32::MAX,
        fault: Fault::Answer(403, "AccessDenied"),
    });
    let clean = |words: &str| host.run(&format!("store clean {words} {other}"));
    clean("").fails(1).says("store clean -f");
    clean("-f").fails(1);
    store.behave();
    let cut = store.objects();
    assert!(!cut.iter().any(|name| name.contains("/pool/root/")), "{cut:?}");
    assert!(cut.iter().any(|name| name.contains("/seg/")), "{cut:?}");
    clean("").ok().says("removed");
    assert_eq!(store.objects(), Vec::<String>::new());
}

/// Types the page, with a store at another address, and writes between its commands. Returns what
/// the last command said.
fn type_the_page(host: &Host, endpoint: &str, (name, secret): (&str, &str)) -> Ran {
    host.shell(&format!("mkdir bin; ln -s {} bin/steadfast", steadfast_bin().display())).ok();
    let before = format!(
        "export HOME=$PWD PATH=$PWD/bin:$PATH AWS_ACCESS_KEY_ID={name} AWS_SECRET_ACCESS_KEY={secret}\n"
    );
    for command in commands_below("# On a bucket") {
        let command = command.replace("http://127.0.0.1:7070", endpoint);
        let ran = host.shell(&format!("{before}{command}")).ok();
        if command.starts_with("zpool create") {
            host.shell(&format!(
                "{before}cp -r bin compat ~/tank; head -c 3000000 /dev/urandom > noise; cp noise tank"
            ))
            .ok();
        } else if command.starts_with("zpool status") {
            ran.says("s3://bucket/tank").says("tank.anchor");
        }
    }
    host.shell("cmp noise tank/noise").ok();
    let mut said = None;
    for command in commands_below("## A destroyed pool") {
        let command = command.replace("http://127.0.0.1:7070", endpoint);
        said = Some(host.shell(&format!("{before}{command}")).ok());
    }
    said.expect("commands")
}

/// The server of the table of probed stores, pinned.
const VERSITYGW: &str = "github.com/versity/versitygw/cmd/versitygw@v1.8.0";

/// A server that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn versitygw_holds_a_pool() {
    let test = "versitygw holds a pool";
    if !std::env::var_os("STEADFAST_LONG").is_some_and(|value| value != "0" && !value.is_empty()) {
        return skip(test, "long: set STEADFAST_LONG=1");
    }
    if let Some(why) = no_fuse() {
        return skip(test, &why);
    }
    let folder = std::env::current_exe().expect("this test has a path");
    let folder: PathBuf = folder.parent().and_then(std::path::Path::parent).expect("a target").join("go");
    let program = folder.join("versitygw");
    if !program.exists() {
        let built = output(Command::new("go").args(["install", VERSITYGW]).env("GOBIN", &folder));
        match built {
            Err(error) => return skip(test, &format!("go cannot be run ({error})")),
            Ok(built) if !built.status.success() => {
                let said = String::from_utf8_lossy(&built.stderr).into_owned();
                return skip(test, &format!("go does not build it: {said}"));
            }
            Ok(_) => {}
        }
    }
    let host = Host::new();
    host.shell("mkdir -p store/bucket").ok();
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let mut server = Command::new(&program);
    server.env("ROOT_ACCESS_KEY", KEYS[0].0).env("ROOT_SECRET_KEY", KEYS[0].1);
    server.args(["--keep-alive", "--port", &format!("127.0.0.1:{port}"), "posix"]).arg(host.at("store"));
    server.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Running(spawn(&mut server).expect("it runs"));
    until(|| std::net::TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string()));
    type_the_page(&host, &format!("http://127.0.0.1:{port}"), KEYS[0]);
}
