//! Copies that share blocks and content that is stored once, through the command line and a real
//! mount.

use std::fs;
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;

use steadfast_tests::Host;

const MIB: usize = 1 << 20;

/// Bytes that do not compress.
fn noise(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ seed;
    let draw = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(draw).collect()
}

fn number(host: &Host, property: &str) -> u64 {
    let told = host.shell(&format!("zpool get -Hp -o value {property} tank")).ok().out;
    told.trim().parse().expect("a number")
}

/// Until nothing that was deleted is left to be given back.
fn settle(host: &Host) {
    host.shell("zpool sync tank; zpool wait -t free tank; zpool sync tank").ok();
}

/// The pool's image as the check sees it.
fn check(host: &Host, when: &str) {
    settle(host);
    host.shell("zpool export tank").ok();
    let found = host.run("inspect check {}/tank.img").ok().out;
    assert!(found.contains("worst=none"), "{when}: {found}");
    host.shell("zpool import -d $PWD tank").ok();
}

fn patch(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = fs::OpenOptions::new().write(true).open(path).expect("opens");
    file.seek(SeekFrom::Start(at)).expect("seeks");
    file.write_all(bytes).expect("written");
    file.sync_all().expect("durable");
}

#[test]
fn a_copy_takes_no_room_and_goes_its_own_way() {
    let Some(host) = Host::with_tank("sharing") else { return };
    let content = noise(20 * MIB + 12_345, 1);
    fs::write(host.at("t/file"), &content).expect("written");
    host.shell("zpool sync tank").ok();
    let before = number(&host, "allocated");
    // Coreutils try FICLONE, which no FUSE server is asked, and then copy_file_range.
    host.shell("cp --reflink=auto t/file t/copy; zpool sync tank").ok();
    let grown = number(&host, "allocated") - before;
    assert!(grown < 1 << 20, "a copy of 20 MiB took {grown} bytes");
    assert!(fs::read(host.at("t/copy")).expect("reads") == content);
    assert!(number(&host, "bcloneused") >= 19 << 20 && number(&host, "bclonesaved") >= 19 << 20);
    host.shell("zpool list -H -o bcloneratio tank").ok().says("2.00x");

    host.shell("zfs reflink t/file t/third && cmp t/file t/third").ok();
    host.shell("zfs reflink t/file t/third").fails(1).says("FILE-IO").says("exists");
    host.shell("zfs reflink -f t/file t/third && cmp t/file t/third").ok();
    host.shell("zfs reflink -f t/file t/file").fails(1);
    host.shell("cmp t/file t/third").ok();
    host.shell("zfs reflink t/absent t/fourth").fails(1).says("FILE-IO");
    host.shell("zfs reflink t t/fourth").fails(1).says("not a regular file");
    host.shell("zfs create tank/other; zfs reflink t/file t/other/file").fails(1).says("FS-APART");
    assert!(!host.at("t/other/file").exists());

    // Each changes alone: an overwrite of a page, a record, a cut, a removal; a snapshot keeps what
    // it has.
    host.shell("zfs snapshot tank@then").ok();
    let mut changed = content.clone();
    changed[5000..9000].fill(7);
    changed[3 * MIB..4 * MIB].copy_from_slice(&noise(MIB, 9));
    patch(&host.at("t/copy"), 5000, &[7; 4000]);
    patch(&host.at("t/copy"), 3 << 20, &noise(MIB, 9));
    changed.truncate(10 * MIB + 77);
    fs::OpenOptions::new()
        .write(true)
        .open(host.at("t/copy"))
        .expect("opens")
        .set_len(changed.len() as u64)
        .expect("cut");
    assert!(fs::read(host.at("t/copy")).expect("reads") == changed);
    assert!(fs::read(host.at("t/file")).expect("reads") == content);
    fs::remove_file(host.at("t/file")).expect("removed");
    check(&host, "changed");
    assert!(fs::read(host.at("t/third")).expect("reads") == content, "what it shared is still there");
    assert!(fs::read(host.at("t/copy")).expect("reads") == changed);
    assert!(fs::read(host.at("t/.zfs/snapshot/then/copy")).expect("reads") == content);
    host.shell("rm t/copy t/third; zfs destroy tank@then").ok();
    check(&host, "removed");
    assert_eq!((number(&host, "bcloneused"), number(&host, "bclonesaved")), (0, 0));
    assert!(number(&host, "allocated") < 4 << 20, "all of it came back");
}

#[test]
fn equal_content_is_stored_once_where_it_is_asked_for() {
    let Some(host) = Host::with_tank("dedup") else { return };
    host.shell("head -c 32 /dev/zero | tr '\\0' k > key").ok();
    host.shell("zfs create -o dedup=on tank/a; zfs create -o dedup=verify tank/b; zfs create tank/c").ok();
    host.shell(
        "zfs create -o encryption=on -o keyformat=raw -o keylocation=file://$PWD/key -o dedup=on tank/sealed",
    )
    .ok();
    host.shell("zpool status -D tank").ok().says("no DDT entries");
    host.shell("zpool status -jD tank")
        .ok()
        .says("\"dedup_stats\":{\"ddt_object_stats\":{},\"obj_count\":\"0\"}");
    let content = noise(12 * MIB, 3);
    let (before, mut last) = (number(&host, "allocated"), 0);
    for (at, path) in ["t/a/1", "t/a/2", "t/b/1", "t/sealed/1", "t/sealed/2", "t/c/1"].iter().enumerate() {
        fs::write(host.at(path), &content).expect("written");
        host.shell("zpool sync tank").ok();
        let grown = (number(&host, "allocated") - before) >> 20;
        // One for all that is open and asks for it, one under the key, one that does not ask.
        let expected = [12, 12, 12, 24, 24, 36][at];
        assert!((expected..expected + 4).contains(&grown), "{path}: {grown} MiB");
        assert!(grown >= last);
        last = grown;
    }
    // 96 records three times, and 96 twice; a record that a commit met half written was stored as
    // two.
    let ratio = host.shell("zpool list -Hp -o dedupratio tank").ok().out;
    let ratio: f64 = ratio.trim().trim_end_matches('x').parse().expect("a ratio");
    assert!((2.3..=2.5).contains(&ratio), "{ratio}");
    let status = host.shell("zpool status -D tank").ok().out;
    let entries = status.split("DDT entries ").nth(1).and_then(|rest| rest.split(',').next());
    let entries: u64 = entries.and_then(|text| text.parse().ok()).expect("a number");
    assert!((180..=200).contains(&entries), "{status}");
    host.shell("zpool status -jD --json-int tank").ok().says(&format!("\"obj_count\":{entries}"));
    assert!(!host.shell("zpool status -j tank").ok().out.contains("dedup_stats"));
    assert!(
        status.contains("refcnt   blocks   LSIZE   PSIZE   DSIZE   blocks   LSIZE   PSIZE   DSIZE"),
        "{status}"
    );
    host.shell("zpool export tank; zpool import -d $PWD tank; zfs load-key -r tank; zfs mount -a; zpool prefetch -t ddt tank").ok();
    let status = host.shell("zpool status -D tank").ok().says("DDT entries").out;
    assert!(!status.contains("being read"), "{status}");
    // Content from before the import is found again.
    fs::write(host.at("t/a/3"), &content).expect("written");
    host.shell("zpool sync tank").ok();
    let grown = (number(&host, "allocated") - before) >> 20;
    assert!(grown < last + 4, "it is found after an import: {grown} MiB, {last} before");
    for path in ["t/a/1", "t/a/2", "t/a/3", "t/b/1", "t/sealed/1", "t/sealed/2"] {
        assert!(fs::read(host.at(path)).expect("reads") == content, "{path}");
    }
    fs::write(host.at("t/a/alone"), noise(4 * MIB, 77)).expect("written");
    let said = host.shell("zpool sync tank; zpool ddtprune -p 100 tank").ok().out;
    let forgotten: u64 = said.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number");
    assert!((32..40).contains(&forgotten), "{said}");
    host.shell("zpool ddtprune -d 1 tank").ok().says("0 entries removed");
    host.shell("zpool ddtprune tank").fails(2);
    host.shell("zfs set dedup=sha256 tank/a 2>&1").ok().says("'dedup=sha256' is stored as 'on'");
    host.shell("rm t/a/* t/b/*; zfs destroy tank/sealed; rm t/c/1").ok();
    settle(&host);
    host.shell("zpool status -D tank").ok().says("no DDT entries");
    host.shell("zpool scrub -w tank; zpool status tank").ok().says("with 0 errors");
}

#[test]
fn shared_blocks_outlive_snapshots_clones_and_promotions() {
    let Some(host) = Host::with_tank("sharing-clones") else { return };
    host.shell("zfs create -o compression=off -o dedup=on tank/web").ok();
    let content = noise(6 * MIB, 11);
    fs::write(host.at("t/web/page"), &content).expect("written");
    host.shell("zpool sync tank; cp --reflink=auto t/web/page t/web/second; zfs snapshot tank/web@v1").ok();
    // The clone's blocks are its origin's; a copy in the clone is a reference of its own, and so is
    // what it writes again.
    host.shell("zfs clone -o compression=off -o dedup=on tank/web@v1 tank/test && cp --reflink=auto t/test/page t/test/third").ok();
    fs::write(host.at("t/test/fourth"), &content).expect("written");
    host.shell("zpool sync tank && rm t/web/page t/web/second && zpool sync tank").ok();
    check(&host, "cloned");
    for file in ["t/test/page", "t/test/second", "t/test/third", "t/test/fourth"] {
        assert!(fs::read(host.at(file)).expect("reads") == content, "{file}");
    }
    assert!(number(&host, "allocated") < 8 << 20, "six files, one content");
    host.shell("zfs promote tank/test && rm t/test/page && zfs destroy -r tank/web && zpool sync tank").ok();
    check(&host, "promoted, and the origin destroyed");
    host.shell("zfs rollback tank/test@v1").ok();
    check(&host, "rolled back");
    let names = host.shell("ls t/test").ok().out;
    assert_eq!(names, "page\nsecond\n");
    assert!(fs::read(host.at("t/test/second")).expect("reads") == content);
    host.shell("rm t/test/page && zfs destroy tank/test@v1").ok();
    check(&host, "one reference is left");
    assert!(fs::read(host.at("t/test/second")).expect("reads") == content);
    host.shell("zfs destroy tank/test").ok();
    check(&host, "destroyed");
    host.shell("zpool status -D tank").ok().says("no DDT entries");
    assert!(number(&host, "allocated") < 2 << 20);
}

#[test]
fn what_is_sent_is_whole_and_what_is_received_is_stored_once() {
    let Some(host) = Host::with_tank("sharing-streams") else { return };
    let at = host.at("s").display().to_string();
    host.shell(&format!("truncate -s 256M safe.img && zpool create -m {at} -O dedup=on safe $PWD/safe.img"))
        .ok();
    host.shell("zfs create -o compression=off tank/home").ok();
    let content = noise(6 * MIB, 21);
    fs::write(host.at("t/home/a"), &content).expect("written");
    host.shell("zpool sync tank && cp --reflink=auto t/home/a t/home/b && zfs snapshot tank/home@1").ok();
    // After the first snapshot: references to blocks that are older than it are in the increment.
    host.shell("cp --reflink=auto t/home/a t/home/c && rm t/home/a && zfs snapshot tank/home@2").ok();
    assert!(number(&host, "bclonesaved") >= 5 << 20);
    host.shell("zfs send tank/home@1 | zfs receive -x compression safe/home && diff -r t/home/.zfs/snapshot/1 s/home")
        .ok();
    host.shell("zfs send -i @1 tank/home@2 | zfs receive safe/home && diff -r t/home s/home").ok();
    host.shell("zfs send tank/home@2 | zfs receive -o compression=off safe/again && diff -r t/home s/again")
        .ok();
    let used = |pool: &str| -> u64 {
        let told = host.shell(&format!("zpool sync {pool} && zpool get -Hp -o value allocated {pool}")).ok();
        told.out.trim().parse().expect("a number")
    };
    assert!(used("safe") < 9 << 20, "three files in each of two file systems, one content");
    let ratio = host.shell("zpool list -Hp -o dedupratio safe").ok().out;
    let ratio: f64 = ratio.trim().trim_end_matches('x').parse().expect("a ratio");
    assert!(ratio > 3.5, "{ratio}");
    // A receive that is broken off, and one that takes all of it back.
    host.shell("cp --reflink=auto t/home/b t/home/d && zfs snapshot tank/home@3").ok();
    host.shell(
        "zfs send -i @2 tank/home@3 > inc && head -c $(($(stat -c %s inc) / 2)) inc | zfs receive safe/home",
    )
    .fails(1);
    host.shell("zfs receive -F safe/home < inc && diff -r t/home s/home && diff -r t/home/.zfs/snapshot/2 s/home/.zfs/snapshot/2").ok();
    host.shell("zfs rollback -r safe/home@1 && diff -r t/home/.zfs/snapshot/1 s/home").ok();
    host.shell("zpool wait -t free safe; zpool sync safe; zpool export safe").ok();
    let found = host.run("inspect check {}/safe.img").ok().out;
    assert!(found.contains("worst=none"), "{found}");
    host.shell("zpool import -d $PWD safe && diff -r t/home/.zfs/snapshot/1 s/home && diff -r t/home/.zfs/snapshot/2 s/again").ok();
    host.shell(
        "zfs destroy -r safe/home && zfs destroy -r safe/again && zpool wait -t free safe; zpool sync safe",
    )
    .ok();
    host.shell("zpool status -D safe").ok().says("no DDT entries");
    assert!(used("safe") < 2 << 20);
    host.shell("zpool export safe").ok();
    check(&host, "sent");
}

#[test]
fn nothing_is_shared_across_keys_and_a_locked_file_system_goes_with_its_rows() {
    let Some(host) = Host::with_tank("sharing-keys") else { return };
    host.shell("head -c 32 /dev/zero | tr '\\0' k > key && head -c 32 /dev/zero | tr '\\0' l > other").ok();
    let sealed = "zfs create -o compression=off -o dedup=on -o encryption=on -o keyformat=raw";
    host.shell(&format!("{sealed} -o keylocation=file://$PWD/key tank/one && zfs create tank/one/below"))
        .ok();
    host.shell(&format!(
        "{sealed} -o keylocation=file://$PWD/other tank/two && zfs create -o dedup=on tank/open"
    ))
    .ok();
    let content = noise(4 * MIB, 31);
    let before = number(&host, "allocated");
    for (at, place) in ["one", "one/below", "two", "open"].iter().enumerate() {
        for file in ["a", "b"] {
            fs::write(host.at(&format!("t/{place}/{file}")), &content).expect("written");
            host.shell("zpool sync tank").ok();
        }
        let grown = (number(&host, "allocated") - before) >> 20;
        let expected = 4 * (at as u64 + 1);
        assert!((expected..expected + 2).contains(&grown), "{place}: {grown} MiB, each has a key of its own");
    }
    // Another user key seals nothing anew: what is known stays known.
    host.shell("zfs change-key -o keylocation=file://$PWD/other tank/one").ok();
    host.shell("cp --reflink=auto t/one/a t/one/c && zpool sync tank && cmp t/one/a t/one/c").ok();
    fs::write(host.at("t/one/d"), &content).expect("written");
    host.shell("zpool sync tank").ok();
    assert!((number(&host, "allocated") - before) >> 20 < 18);
    // Without its key: it goes as a whole, rows included, and what others share stays.
    host.shell("zfs unmount tank/two && zfs unload-key tank/two && zfs destroy tank/two").ok();
    settle(&host);
    host.shell("zpool export tank").ok();
    let found = host.run("inspect check -k {}/other {}/tank.img").ok().out;
    assert!(found.contains("worst=none"), "{found}");
    host.shell("zpool import -d $PWD -l tank && zfs mount -a").ok();
    for file in ["t/one/a", "t/one/b", "t/one/c", "t/one/d", "t/one/below/b", "t/open/a"] {
        assert!(fs::read(host.at(file)).expect("reads") == content, "{file}");
    }
    host.shell("zfs destroy -r tank/one && zfs destroy tank/open").ok();
    settle(&host);
    host.shell("zpool status -D tank").ok().says("no DDT entries");
    host.shell("zpool scrub -w tank; zpool status tank").ok().says("with 0 errors");
}

#[test]
fn shared_blocks_move_when_their_device_leaves() {
    let Some(host) = Host::with_tank("sharing-moves") else { return };
    host.shell("truncate -s 128M more.img && zfs create -o compression=off -o dedup=on tank/data").ok();
    let content = noise(10 * MIB, 41);
    fs::write(host.at("t/data/a"), &content).expect("written");
    fs::write(host.at("t/data/b"), &content).expect("written");
    host.shell("zpool sync tank && cp --reflink=auto t/data/a t/data/c && zfs snapshot tank/data@s").ok();
    host.shell("zpool add -f tank $PWD/more.img && zpool remove -w tank $PWD/tank.img").ok();
    // By their old addresses: references are found where they were, and more are made.
    fs::write(host.at("t/data/d"), &content).expect("written");
    host.shell(
        "zpool sync tank && cp --reflink=auto t/data/b t/data/e && rm t/data/a t/data/b && zpool sync tank",
    )
    .ok();
    assert!(number(&host, "allocated") < 14 << 20, "five files, one content");
    let sound = |when: &str| {
        settle(&host);
        host.shell("zpool export tank").ok();
        let found = host.run("inspect check {}/more.img").ok().out;
        assert!(found.contains("worst=none"), "{when}: {found}");
        host.shell("zpool import -d $PWD tank").ok();
    };
    sound("moved");
    for file in ["t/data/c", "t/data/d", "t/data/e", "t/data/.zfs/snapshot/s/a"] {
        assert!(fs::read(host.at(file)).expect("reads") == content, "{file}");
    }
    host.shell("rm t/data/* && zfs destroy tank/data@s").ok();
    sound("removed");
    host.shell("zpool status -D tank").ok().says("no DDT entries");
    assert!(number(&host, "allocated") < 2 << 20);
}

/// A pool that copies fill: the last copies are refused with ENOSPC, what is there stays whole, and
/// deleting gives all of it back.
#[test]
fn a_pool_full_of_copies_can_be_emptied() {
    let Some(host) = Host::with_tank("sharing-full") else { return };
    host.shell("truncate -s 96M small.img && zpool create -m $PWD/f -O compression=off -O recordsize=16K -O dedup=on small $PWD/small.img").ok();
    let content = noise(2 * MIB, 51);
    fs::write(host.at("f/first"), &content).expect("written");
    host.shell(
        "head -c 200M /dev/urandom > f/ballast 2>/dev/null || truncate -s -2M f/ballast; zpool sync small",
    )
    .ok();
    host.shell("i=0; while [ $i -lt 400 ] && cp --reflink=auto f/first f/copy$i 2>/dev/null; do i=$((i+1)); done; echo $i > count").ok();
    let count: u64 = fs::read_to_string(host.at("count")).expect("reads").trim().parse().expect("a number");
    assert!((2..400).contains(&count), "metadata fills the pool at last, after {count} copies of 2 MiB");
    host.shell("zpool sync small && cmp f/first f/copy0 && cmp f/first f/copy1").ok();
    host.shell("zpool status small").ok().says("ONLINE");
    host.shell("rm f/copy* f/ballast; zpool wait -t free small; zpool sync small").ok();
    assert!(fs::read(host.at("f/first")).expect("reads") == content);
    host.shell("rm f/first; zpool wait -t free small; zpool sync small; zpool status -D small")
        .ok()
        .says("no DDT entries");
    let used = host.shell("zpool get -Hp -o value allocated small").ok().out;
    assert!(used.trim().parse::<u64>().expect("a number") < 2 << 20, "{used}");
    host.shell("zpool export small").ok();
    let found = host.run("inspect check {}/small.img").ok().out;
    assert!(found.contains("worst=none"), "{found}");
}
