//! A pool on a bucket whose store is away, or says no: each fault has a sentence with a way out,
//! and nothing is lost or changed.

use crate::bucket::with_keys;
use std::process::{Command, Stdio};

use steadfast_hostile::{Conditions, Fault, Kind, Rule, Store};
use steadfast_tests::{Host, no_fuse, skip, spawn, until};

/// Starts a store again at its end, so that no command of a failed test waits for ever.
struct Back<'a>(&'a mut Store);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        self.0.start_again();
    }
}

#[test]
fn a_store_that_was_stopped_loses_nothing_and_all_goes_on_by_itself() {
    if let Some(why) = no_fuse() {
        return skip("a store that is away", &why);
    }
    let mut store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    host.shell(&format!(
        "zpool create -f -o failmode=wait -m $PWD/t tank '{address}'; echo one > t/one; sync t/one"
    ))
    .ok();
    store.stop();
    host.shell("head -c 3000000 /dev/urandom > noise; cp noise t/two").ok();
    std::thread::scope(|scope| {
        let back = Back(&mut store);
        let synced = scope.spawn(|| host.shell("sync t/two").ok());
        let seen = until(|| {
            let seen = host.shell("zpool status tank").ok();
            if seen.out.contains("STORE-AWAY") { Ok(seen) } else { Err(seen.out) }
        });
        assert!(!seen.out.contains("Attach the missing device"), "nobody attaches a store: {}", seen.out);
        seen.says("is away since 20").says("UNAVAIL").says("the store does not answer").says("DEGRADED");
        // Life goes on in memory, and no way out loses changes.
        host.shell("cat t/one; cmp noise t/two; echo three > t/three; cat t/three")
            .ok()
            .says("one")
            .says("three");
        for verb in ["zfs snapshot tank@a", "zpool export tank", "zpool destroy tank", "zpool clear tank"] {
            host.shell(verb).fails(1).says("STORE-AWAY");
        }
        host.run("daemon stop").fails(1).says("STORE-AWAY");
        assert!(!synced.is_finished(), "fsync waits");
        drop(back);
        synced.join().expect("no panic");
    });
    // The outage ends with the transfer that waits for it, perhaps another one than that of fsync.
    host.until("zpool status tank", |seen| !seen.contains("STORE-AWAY") && seen.contains("ONLINE"));
    host.shell("zpool events")
        .ok()
        .says("ereport.fs.steadfast.store_away")
        .says("sysevent.fs.steadfast.store_back");
    host.shell("zpool export tank").ok();
    host.shell(&format!("zpool import -d '{address}' tank; cat t/one t/three; cmp noise t/two"))
        .ok()
        .says("three");
    // An operator who wants out gets out.
    store.stop();
    host.shell("echo four > t/four; zpool sync").fails(1).says("STORE-AWAY");
    host.shell("zpool export -f tank; zpool list").ok().says("no pools available");
    store.start_again();
    host.shell(&format!("zpool import -f -d '{address}' tank; cat t/one")).ok().says("one");
    store.stop();
    host.shell("echo five > t/five").ok();
    host.run("daemon stop -f").ok();
}

/// A fault of every request of a kind, until the store behaves again.
fn always(store: &Store, kind: Option<Kind>, fault: Fault) {
    store.add(Rule { kind, object: String::new(), after: 0, times: u32::MAX, fault });
}

#[test]
fn a_store_that_says_no_is_told_with_a_way_out_and_nothing_is_made() {
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    let create = |address: &str| host.shell(&format!("zpool create -f -m none tank '{address}'")).fails(1);
    for (fault, problem, action) in [
        (
            Fault::Answer(403, "RequestTimeTooSkewed"),
            "the clocks of this machine and of the store",
            "timedatectl",
        ),
        (Fault::Answer(301, "PermanentRedirect"), "the bucket lies in another region", "?region="),
        (Fault::Answer(404, "NoSuchBucket"), "the bucket does not exist", "Create the bucket"),
        (Fault::Answer(403, "InvalidAccessKeyId"), "the store does not accept the key", "~/.aws/credentials"),
        (Fault::Answer(403, "AccessDenied"), "the key may not do this", "below the prefix"),
        (Fault::Answer(507, "QuotaExceeded"), "the quota at the provider is full", "Raise the quota"),
        (Fault::Babble, "the endpoint does not answer as an object store", "?endpoint="),
    ] {
        always(&store, None, fault.clone());
        let said = create(&address).says("STORE-FAILED").says(problem).says(action);
        assert!(!said.err.contains("panicked"), "{fault:?}: {}", said.err);
        store.behave();
    }
    // A store that lets several writers create one name would lose data without an anchor.
    store.set_conditions(Conditions::Ignored);
    create(&address).says("STORE-UNFENCED").says("anchor PATH");
    assert_eq!(store.objects(), Vec::<String>::new(), "whatever was refused made nothing");
    host.shell(&format!(
        "mkdir safe; zpool create -f -m none tank '{address}' anchor $PWD/safe/a; zpool destroy tank"
    ))
    .ok();
    store.set_conditions(Conditions::Kept);
    // Ranges that are not those asked for: every read would be wrong.
    always(&store, Some(Kind::Get), Fault::ShiftQuietly(1));
    create(&address).says("STORE-UNFIT").says("ranges");
    store.behave();
    // A rule that deletes by age elsewhere is no news; one that applies here is told, and the pool
    // is made.
    let elsewhere = "<LifecycleConfiguration><Rule><Expiration><Days>30</Days></Expiration>\
                     <Filter><Prefix>logs/</Prefix></Filter><Status>Enabled</Status></Rule></LifecycleConfiguration>";
    always(&store, Some(Kind::Other), Fault::Say(elsewhere));
    host.shell(&format!("zpool create -f -m none tank '{address}' && zpool destroy tank")).ok();
    store.behave();
    let rule = "<LifecycleConfiguration><Rule><Expiration><Days>30</Days></Expiration>\
                <Status>Enabled</Status></Rule></LifecycleConfiguration>";
    always(&store, Some(Kind::Other), Fault::Say(rule));
    host.shell(&format!("zpool create -f -m none tank '{address}'"))
        .fails(1)
        .says("is created")
        .says("STORE-EXPIRES");
    host.shell("zpool destroy tank").ok();
}

#[test]
fn a_prefix_of_another_pool_or_of_a_living_daemon_is_not_taken() {
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    let (other, same) = with_keys(&store, "tank");
    host.shell(&format!("zpool create -f -m none tank '{address}'")).ok();
    let before = store.objects();
    other.shell("head -c 32 /dev/urandom > key").ok();
    let sealed = "-O encryption=on -O keyformat=raw -O keylocation=file://$PWD/key";
    other.shell(&format!("zpool create {sealed} -m none mine '{same}'")).fails(1).says("tank").says("-f");
    other.shell(&format!("zpool import -d '{same}' -N tank")).fails(1).says("tank").says("-f");
    assert_eq!(store.objects(), before, "nothing was made, claimed or deleted");
    host.shell("zpool scrub -w tank; zpool status tank").ok().says("with 0 errors");
    host.shell("zpool destroy tank").ok();
}

#[test]
fn a_full_quota_is_waited_for_and_a_deleted_object_is_named() {
    if let Some(why) = no_fuse() {
        return skip("a full quota", &why);
    }
    let store = Store::start();
    let (host, address) = with_keys(&store, "tank");
    host.shell(&format!("zpool create -f -m $PWD/t tank '{address}'; head -c 3000000 /dev/urandom > noise"))
        .ok();
    always(&store, Some(Kind::Put), Fault::Answer(507, "QuotaExceeded"));
    host.shell("cp noise t/noise; zpool sync")
        .fails(1)
        .says("STORE-AWAY")
        .says("the quota at the provider is full");
    host.shell("zpool status tank").ok().says("Raise the quota").says("req-").says("status 507");
    store.behave();
    until(|| {
        let synced = host.shell("zpool sync");
        if synced.status == 0 { Ok(()) } else { Err(synced.err) }
    });
    host.shell("zpool export tank").ok();
    // Somebody deletes the largest object.
    let largest =
        store.objects().into_iter().max_by_key(|name| store.object(name).map_or(0, |bytes| bytes.len()));
    let largest = largest.expect("objects");
    let bytes = store.object(&largest).expect("it is there");
    store.set_object(&largest, None);
    host.shell(&format!("zpool import -d '{address}' tank; cat t/noise > read"))
        .fails(1)
        .says("Input/output error");
    host.shell("zpool scrub -w tank; zpool status -v tank").ok().says("t/noise").says("BLK-AUTH-ALL");
    host.shell("zpool events -v").ok().says("is missing").says(largest.trim_start_matches("tank/"));
    // It comes back, as from a version of the bucket.
    store.set_object(&largest, Some(&bytes));
    host.shell("zpool scrub -w tank; cmp noise t/noise; zpool status tank").ok().says("with 0 errors");
}

#[test]
fn a_certificate_that_nobody_signed_is_not_believed() {
    let host = Host::new();
    let made = host.shell(
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=127.0.0.1 \
         -addext subjectAltName=IP:127.0.0.1 -keyout tls.key -out tls.crt",
    );
    if made.status != 0 {
        return skip("a certificate that nobody signed", "openssl makes none here");
    }
    let port =
        std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let mut server = Command::new("openssl");
    let accept = port.to_string();
    server.args(["s_server", "-quiet", "-www", "-accept", &accept, "-cert"]).arg(host.at("tls.crt"));
    server
        .arg("-key")
        .arg(host.at("tls.key"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut server = spawn(&mut server).expect("openssl runs");
    until(|| std::net::TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string()));
    let line = format!(
        "export AWS_ACCESS_KEY_ID=me AWS_SECRET_ACCESS_KEY=secret\n\
         zpool create -f -m none tank 's3://bucket/tank?endpoint=https://127.0.0.1:{port}'"
    );
    let said = host.shell(&line);
    let _ = server.kill();
    let _ = server.wait();
    said.fails(1)
        .says("STORE-FAILED")
        .says("certificate of the endpoint is not valid")
        .says("the system's certificates");
}
