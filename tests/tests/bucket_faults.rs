//! A pool on a bucket whose store is away, or says no: each fault has a sentence with a way out,
//! and nothing is lost or changed.

use crate::bucket::with_keys;
use steadfast_hostile::Store;
use steadfast_tests::{no_fuse, skip, until};

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
    let seen = host.shell("zpool status tank").ok();
    assert!(!seen.out.contains("STORE-AWAY") && seen.out.contains("ONLINE"), "{}", seen.out);
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
