//! Two daemons and one pool on a bucket: the one that imports last has it, and the other one says
//! so by name and does no harm.

use steadfast_hostile::Store;
use steadfast_tests::{Host, no_fuse, skip, until};

use crate::bucket::with_keys;

/// Two hosts that reach one store, with the address that each has for it.
fn two(store: &Store) -> [(Host, String); 2] {
    [with_keys(store, "tank"), with_keys(store, "tank")]
}

/// The host that lost the pool writes no more, says why, and can let it go; the other one has all
/// that was committed before it took over, and loses nothing of its own.
fn overtaken(create: &str) {
    if let Some(why) = no_fuse() {
        return skip("a pool that another daemon takes", &why);
    }
    let store = Store::start();
    let [(first, address), (second, same)] = two(&store);
    let anchor = first.at("anchor").display().to_string();
    first.shell(&format!("zpool create -f -m $PWD/t tank '{address}' {}", create.replace("@", &anchor))).ok();
    first.shell("echo before > t/before; sync t/before").ok();
    // Without -f the living host keeps it.
    second.shell(&format!("zpool import -d '{same}' -m -R $PWD/r tank")).fails(1).says("-f");
    first.shell("echo still > t/still; sync t/still").ok();
    second.shell(&format!("zpool import -f -d '{same}' -R $PWD/r tank")).ok();
    let place = second.shell("zfs get -Hpo value mountpoint tank").ok().out.trim().to_owned();
    second.shell(&format!("cat {place}/before {place}/still")).ok().says("before").says("still");
    second.shell(&format!("echo mine > {place}/mine; zpool sync tank")).ok();

    // The first host learns of it with its next commit: nobody hears that this is durable.
    first.shell("echo lost > t/lost || true; zpool sync tank").fails(1).says("POOL-OVERTAKEN");
    // Which host has it, and since when: it has left its label and its root.
    let named = format!("host '{}' has it (epoch 2), since 20", first.shell("uname -n").ok().out.trim());
    until(|| {
        let told = first.shell("zpool status tank").ok().out;
        let all = ["POOL-OVERTAKEN", "SUSPENDED", &named];
        if all.iter().all(|word| told.contains(word)) { Ok(()) } else { Err(told) }
    });
    first.shell("zfs snapshot tank@late").fails(1).says("POOL-OVERTAKEN");
    let objects = store.objects();
    second
        .shell(&format!("echo more > {place}/more; zpool sync tank; zpool scrub -w tank; zpool status tank"))
        .ok()
        .says("with 0 errors")
        .says("ONLINE");
    assert_ne!(store.objects(), objects, "the second host goes on");
    first.shell("zpool export -f tank; zpool list").ok().says("no pools available");

    // The first host's last change is not part of the pool, and those of the second one are.
    second.shell("zpool export tank").ok();
    second.shell(&format!("zpool import -d '{same}' -R $PWD/r tank")).ok();
    second
        .shell(&format!("cd {place}; cat before still mine more; test ! -e lost"))
        .ok()
        .says("mine")
        .says("more");
    second.shell("zpool scrub -w tank; zpool status tank").ok().says("with 0 errors");
    // The pool comes back to the first one as it does to any host.
    second.shell("zpool export tank").ok();
    first.shell(&format!("zpool import -d '{address}' tank; cat t/mine")).ok().says("mine");
    first.shell("zpool destroy tank").ok();
}

#[test]
fn attack_22_a_living_host_is_fenced_by_an_import_with_f_on_a_bucket_alone() {
    overtaken("");
}

#[test]
fn attack_22_a_living_host_is_fenced_by_an_import_with_f_and_an_anchor() {
    overtaken("anchor @");
}
