//! Snapshots through the command line and a real mount.

use std::fs;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::process::Command;

use steadfast_tests::{Host, noise, spawn};

/// The first column of a listing, line by line.
fn names(listing: &str) -> Vec<&str> {
    listing.lines().map(|line| line.split('\t').next().unwrap_or(line)).collect()
}

#[test]
fn a_snapshot_is_taken_read_listed_and_destroyed() {
    let Some(host) = Host::with_tank("snapshots") else { return };
    host.shell("zfs create tank/home && zfs create tank/home/ann").ok();
    let top = host.at("t/home");
    fs::write(top.join("letter"), "first").expect("written");
    fs::create_dir(top.join("deep")).expect("made");
    fs::write(top.join("deep/file"), noise(1, 300_000)).expect("written");
    host.shell("zfs snapshot -o org:why=test tank/home@monday").ok();
    fs::write(top.join("letter"), "second, and longer").expect("written");
    fs::remove_dir_all(top.join("deep")).expect("removed");
    fs::write(top.join("new"), "later").expect("written");

    // As it was, though nothing lists the folder.
    let snapshot = top.join(".zfs/snapshot/monday");
    assert_eq!(fs::read_to_string(snapshot.join("letter")).expect("read"), "first");
    assert_eq!(fs::read(snapshot.join("deep/file")).expect("read"), noise(1, 300_000));
    assert!(!snapshot.join("new").exists());
    assert_eq!(fs::read_to_string(top.join("letter")).expect("read"), "second, and longer");
    let listed = |folder: &std::path::Path| {
        let mut names: Vec<String> = fs::read_dir(folder)
            .expect("listed")
            .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    };
    assert_eq!(listed(&snapshot), ["ann", "deep", "letter"], "with the place where a file system is mounted");
    assert_eq!(listed(&top), ["ann", "letter", "new"]);
    assert_eq!(listed(&top.join(".zfs")), ["snapshot"]);
    assert_eq!(listed(&top.join(".zfs/snapshot")), ["monday"]);
    // One mount, and no two files of one number: tools tell a file from its older self.
    let (now, then) = (fs::metadata(top.join("letter")), fs::metadata(snapshot.join("letter")));
    let (now, then) = (now.expect("there"), then.expect("there"));
    assert_eq!(now.dev(), then.dev());
    assert_ne!(now.ino(), then.ino());
    host.shell("cp t/home/.zfs/snapshot/monday/letter t/home/letter && grep -q first t/home/letter").ok();
    host.shell("tar -C t/home/.zfs/snapshot/monday -cf t.tar . && tar -tf t.tar").ok().says("./deep/file");

    // Nothing of it changes.
    for line in
        ["echo x > letter", "touch new", "rm letter", "mkdir d", "mv letter other", "chmod 600 letter"]
    {
        host.shell(&format!("cd t/home/.zfs/snapshot/monday && {line}")).fails(1);
    }
    host.shell("mkdir t/home/.zfs").fails(1);
    host.shell("rmdir t/home/.zfs").fails(1);

    let links = || host.shell("stat -c %h t/home").ok().out.trim().parse::<u32>().expect("a count");
    let hidden = links();
    host.shell("zfs set snapdir=visible tank/home").ok();
    assert_eq!(listed(&top), [".zfs", "ann", "letter", "new"]);
    assert_eq!(links(), hidden + 1, "as many folders as a listing shows");
    host.shell("chmod 755 t/home").ok();
    assert_eq!(links(), hidden + 1);
    host.shell("zfs set snapdir=hidden tank/home").ok();
    assert_eq!(listed(&top), ["ann", "letter", "new"]);
    assert_eq!(links(), hidden);

    let list = host.shell("zfs list -H -t snapshot -o name,used,referenced,org:why").ok().out;
    assert_eq!(names(&list), ["tank/home@monday"]);
    assert!(list.contains("test"), "{list}");
    let all = host.shell("zfs list -H -t all -o name").ok().out;
    assert_eq!(names(&all), ["tank", "tank/home", "tank/home@monday", "tank/home/ann"]);
    assert_eq!(names(&host.shell("zfs list -H -o name tank/home@monday").ok().out), ["tank/home@monday"]);
    assert_eq!(names(&host.shell("zfs list -H -o name").ok().out), ["tank", "tank/home", "tank/home/ann"]);
    host.shell("zfs get -H -o value type,org:why tank/home@monday").ok().says("snapshot").says("test");

    // A tree of one moment, a range, and what would come back.
    host.shell("zfs snapshot -r tank/home@a && zfs snapshot tank/home@b tank/home/ann@b").ok();
    host.shell("zfs snapshot tank/home@c tank/home@d").fails(1);
    host.shell("zfs snapshot tank/home@a").fails(1).says("SNAP-EXISTS");
    let all = host.shell("zfs list -H -r -t snapshot -o name tank/home").ok().out;
    let expected = ["tank/home@monday", "tank/home@a", "tank/home@b", "tank/home/ann@a", "tank/home/ann@b"];
    assert_eq!(names(&all), expected);
    let would = host.shell("zfs destroy -nvp tank/home@%a").ok().out;
    assert_eq!(names(&would), ["destroy", "destroy", "reclaim"], "{would}");
    let promised: u64 =
        would.lines().last().and_then(|line| line.split('\t').nth(1)).unwrap().parse().unwrap();
    assert!(promised >= 300_000, "{would}");
    let kept = |host: &Host| -> u64 {
        let out = host.shell("zpool sync tank && zfs get -Hp -o value usedbysnapshots tank/home").ok().out;
        out.trim().parse().expect("a number")
    };
    let before = kept(&host);
    host.shell("zfs destroy -v tank/home@%a").ok().says("will destroy tank/home@monday").says("will reclaim");
    assert_eq!(before - kept(&host), promised);
    assert!(!snapshot.exists(), "it is gone from the mount as well");
    assert_eq!(listed(&top.join(".zfs/snapshot")), ["b"]);
    host.shell("zfs destroy tank/home@monday").fails(1).says("SNAP-ABSENT");
    host.shell("zfs destroy tank/home@").fails(1);
    host.shell("zfs destroy tank/home/ann").fails(1).says("FS-SNAPSHOTS");
    host.shell("zfs destroy -r tank/home@b").ok();
    assert_eq!(
        names(&host.shell("zfs list -H -r -t snapshot -o name tank/home").ok().out),
        ["tank/home/ann@a"]
    );

    // They outlive an import, and go with their file system if that is said.
    host.shell("zfs snapshot tank/home@last && zpool export tank && zpool import -d $PWD tank").ok();
    assert_eq!(fs::read_to_string(top.join(".zfs/snapshot/last/letter")).expect("read"), "first");
    host.shell("zfs destroy -r tank/home").ok();
    host.shell("zpool wait -t free tank && zpool export tank").ok();
    host.run("inspect check {}/tank.img").ok().says("leaked_units=0");
}

#[test]
fn snapshots_are_gone_back_to_kept_and_renamed() {
    let Some(host) = Host::with_tank("rollback") else { return };
    host.shell("zfs create tank/home && zfs create tank/home/ann").ok();
    let top = host.at("t/home");
    fs::write(top.join("letter"), "first").expect("written");
    fs::write(top.join("big"), noise(1, 400_000)).expect("written");
    host.shell("zfs snapshot -r tank/home@a").ok();
    fs::write(top.join("letter"), "second").expect("written");
    fs::remove_file(top.join("big")).expect("removed");
    host.shell("zpool sync tank && zfs snapshot tank/home@b").ok();
    fs::write(top.join("later"), noise(1, 500_000)).expect("written");
    host.shell("zpool sync tank").ok();
    let number =
        |host: &Host, words: &str| -> u64 { host.shell(words).ok().out.trim().parse().expect("a number") };
    let since_a = number(&host, "zfs get -Hp -o value written@a tank/home");
    let since_b = number(&host, "zfs get -Hp -o value written tank/home");
    assert_eq!(since_b, number(&host, "zfs get -Hp -o value written@b tank/home"));
    assert!(since_a >= since_b && since_b >= 4096, "{since_a} {since_b}");

    host.shell("zfs rollback tank/home@a").fails(1).says("SNAP-YOUNGER").says("tank/home@b");
    host.shell("zfs rollback tank/home@none").fails(1).says("SNAP-ABSENT");
    // Files stay open. One that the snapshot has goes back with it, and takes new bytes; one that
    // it has not is stale.
    fs::create_dir(top.join("folder")).expect("made");
    fs::write(top.join("letter"), "third").expect("written");
    let letter = fs::File::options().read(true).write(true).open(top.join("letter")).expect("open");
    let removed = fs::File::open(top.join("letter")).expect("open");
    let later = fs::File::open(top.join("later")).expect("open");
    fs::remove_file(top.join("letter")).expect("removed");
    fs::write(top.join("letter"), "another").expect("written");
    let child = fs::File::open(host.at("t/home/ann")).expect("open");
    let mut sleeper =
        Command::new("sleep").arg("600").current_dir(top.join("folder")).spawn().expect("it sleeps");
    host.shell("zfs rollback tank/home@b").ok();
    sleeper.kill().and_then(|()| sleeper.wait()).expect("ended");
    assert!(!top.join("later").exists() && !top.join("folder").exists());
    assert_eq!(fs::read_to_string(top.join("letter")).expect("read"), "second");
    let mut bytes = [0; 6];
    removed.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"second");
    letter.write_all_at(b"SE", 0).expect("written");
    assert_eq!(fs::read_to_string(top.join("letter")).expect("read"), "SEcond");
    let stale = later.read_exact_at(&mut bytes, 0).expect_err("it is gone");
    assert_eq!(stale.raw_os_error(), Some(116), "{stale}");
    fs::write(top.join("later"), "new").expect("written");
    assert!(later.read_exact_at(&mut bytes, 0).is_err(), "another file has the name");
    drop(letter);
    fs::remove_file(top.join("letter")).expect("removed while it is open");
    removed.read_exact_at(&mut bytes, 0).expect("read");
    assert_eq!(&bytes, b"SEcond");
    drop((removed, later));
    host.shell("mountpoint -q t/home/ann && zfs rollback tank/home@b").ok();
    drop(child);
    assert_eq!(fs::read_to_string(top.join("letter")).expect("read"), "second");
    // A quota that it would break is not broken.
    host.shell("zfs rollback -r tank/home@a && rm t/home/big && zpool sync tank").ok();
    host.shell("zfs set refquota=200K tank/home && zfs rollback tank/home@a")
        .fails(1)
        .says("cannot rollback 'tank/home': out of space")
        .says("PROP-SPACE");
    assert!(!top.join("big").exists(), "nothing changed");
    host.shell("zfs set refquota=none tank/home && zfs rollback tank/home@a").ok();
    // A folder that something is mounted on comes back with the mount.
    host.shell("zfs create tank/home/young && zfs rollback tank/home@a && mountpoint -q t/home/young").ok();
    host.shell("zfs destroy tank/home/young; zfs rollback tank/home@a; zpool sync tank").ok();
    assert_eq!(fs::read_to_string(top.join("letter")).expect("read"), "first");
    assert_eq!(fs::read(top.join("big")).expect("read"), noise(1, 400_000));
    host.shell("mountpoint -q t/home/ann").ok();
    assert_eq!(number(&host, "zfs get -Hp -o value usedbysnapshots tank/home"), 0);

    host.shell("zfs hold -r keep tank/home@a").ok();
    host.shell("zfs hold keep tank/home@a").fails(1).says("HOLD-EXISTS");
    let holds = host.shell("zfs holds -rH tank/home@a").ok().out;
    assert_eq!(names(&holds), ["tank/home@a", "tank/home/ann@a"]);
    host.shell("zfs get -Hp -o value userrefs tank/home@a").ok().says("1");
    host.shell("zfs destroy tank/home@a").fails(1).says("SNAP-HELD").says("keep");
    host.shell("zfs destroy -r tank/home").fails(1).says("SNAP-HELD");
    host.shell("zfs rename -r tank/home@a tank/home@renamed").ok();
    host.shell("zfs rename tank/home@renamed tank@renamed").fails(1);
    // Tags outlive an import.
    host.shell("zpool export tank && zpool import -d $PWD tank").ok();
    host.shell("zfs destroy -d tank/home@renamed").ok();
    host.shell("zfs get -Hp -o value defer_destroy tank/home@renamed").ok().says("on");
    host.shell("zfs release none tank/home@renamed").fails(1).says("HOLD-ABSENT");
    host.shell("zfs release keep tank/home@renamed").ok();
    host.shell("zfs list tank/home@renamed").fails(1);
    host.shell("zfs release keep tank/home/ann@renamed && zfs list tank/home/ann@renamed").ok();
    host.shell("zfs destroy -r tank/home && zpool wait -t free tank && zpool export tank").ok();
    host.run("inspect check {}/tank.img").ok().says("leaked_units=0");
}

#[test]
fn properties_of_users_are_set_on_snapshots() {
    let Some(host) = Host::with_tank("snapshot properties") else { return };
    host.shell(
        "zfs create -o org:x=fs tank/a; zfs create tank/a/b; zfs snapshot -r tank/a@1; zfs snapshot tank/a@2",
    )
    .ok();
    let told = || host.shell("zfs get -r -t snapshot -Ho name,value,source org:x tank/a").ok().out;
    let all = |values: [&str; 3]| {
        let names = ["tank/a@1", "tank/a@2", "tank/a/b@1"];
        let line = |(name, value): (&str, &str)| match value {
            "fs" => format!("{name}\tfs\tinherited from tank/a\n"),
            "-" => format!("{name}\t-\t-\n"),
            value => format!("{name}\t{value}\tlocal\n"),
        };
        names.into_iter().zip(values).map(line).collect::<String>()
    };
    assert_eq!(told(), all(["fs", "fs", "fs"]));
    host.shell("zfs set org:x=one org:y=two tank/a@1 && zfs set org:x=three tank/a@2 tank/a/b@1").ok();
    assert_eq!(told(), all(["one", "three", "three"]));
    // They go along with it: through an import, to another name, to a clone that is promoted.
    host.shell("zpool export tank && zpool import -d $PWD tank && zfs rename tank/a@1 tank/a@first").ok();
    host.shell("zfs clone tank/a@first tank/c && zfs promote tank/c").ok();
    host.shell("zfs get -Ho value org:x,org:y tank/c@first").ok().says("one\ntwo\n");
    host.shell("zfs promote tank/a && zfs destroy tank/c && zfs rename tank/a@first tank/a@1").ok();
    assert_eq!(told(), all(["one", "three", "three"]));
    host.shell("zfs inherit org:x tank/a@2").ok();
    assert_eq!(told(), all(["one", "fs", "three"]));
    host.shell("zfs inherit -r org:x tank/a@1").ok();
    assert_eq!(told(), all(["fs", "fs", "fs"]));
    // Of a file system, with all below it, as in ZFS.
    host.shell("zfs set org:x=four tank/a@2 tank/a/b@1 && zfs inherit -r org:x tank/a").ok();
    assert_eq!(told(), all(["-", "-", "-"]));
    host.shell("zfs get -Ho value,source org:y tank/a@1").ok().says("two\tlocal");
    host.shell("zpool history -i tank").ok().says("set tank/a@1 org:x=one").says("inherit tank/a@2 org:x");

    // A snapshot takes properties of users only.
    host.shell("zfs set compression=lz4 tank/a@1").fails(1).says("PROP-READONLY");
    host.shell("zfs inherit compression tank/a@1").fails(1).says("PROP-READONLY");
    host.shell("zfs set org:x=1 tank/a@none").fails(1).says("SNAP-ABSENT");
    host.shell("zfs set Org:x=1 tank/a@1").fails(1).says("lowercase");
    host.shell("zfs destroy -r tank/a && zpool wait -t free tank && zpool export tank").ok();
    host.run("inspect check {}/tank.img").ok().says("leaked_units=0");
}

#[test]
fn a_snapshot_has_what_the_kernel_holds_back() {
    const BLOCKS: usize = 6_000;
    let Some(host) = Host::with_tank("snapshots-collected") else { return };
    host.shell("zfs create -o writeback_cache=on tank/home").ok();
    let top = host.at("t/home");
    let content = noise(1, 4096 * BLOCKS);
    for round in 0..3 {
        let file = top.join(format!("file{round}"));
        // Another process, which neither closes the file nor starts processes: a copy of its
        // descriptor that is closed would have the kernel hand everything over.
        let mut command = std::process::Command::new("dd");
        command.args(["bs=4096", "iflag=fullblock", "status=none"]).arg(format!("of={}", file.display()));
        let mut writer = spawn(command.stdin(std::process::Stdio::piped())).expect("dd runs");
        let mut pipe = writer.stdin.take().expect("a pipe");
        std::io::Write::write_all(&mut pipe, &content).expect("written");
        let has_all = || fs::metadata(&file).is_ok_and(|about| about.len() == content.len() as u64);
        while !has_all() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        host.shell(&format!("zfs snapshot tank/home@at{round}")).ok();
        let kept = fs::read(top.join(format!(".zfs/snapshot/at{round}/file{round}"))).expect("read");
        assert!(kept == content, "round {round}: {} bytes of {}", kept.len(), content.len());
        drop(pipe);
        assert!(writer.wait().expect("it ends").success());
    }
}

#[test]
fn a_name_that_would_be_too_long_below_is_refused_before_anything_changes() {
    let Some(host) = Host::with_tank("long_names") else { return };
    let (long, tag) = ("l".repeat(200), "t".repeat(50));
    host.shell(&format!("zfs create tank/a && zfs create -u tank/a/{long} && zfs snapshot -r tank/a@one"))
        .ok();
    let all = || host.shell("zfs list -Ho name -t all -r tank").ok().out;
    let before = all();
    host.shell(&format!("zfs snapshot -r tank/a@{tag}")).fails(1).says("at most 255");
    host.shell(&format!("zfs rename -r tank/a@one {tag}")).fails(1).says("at most 255");
    host.shell(&format!("zfs rename tank/a tank/{tag}")).fails(1).says("at most 255");
    assert_eq!(all(), before);
    host.shell(&format!("zfs snapshot tank/a@{tag} && zfs rename tank/a@one {}", &tag[1..])).ok();
    // A shorter name is as good below as above.
    host.shell("zfs rename tank/a tank/b").ok();
}

#[test]
fn snapshots_are_taken_renamed_and_destroyed_in_their_folder() {
    let Some(host) = Host::with_tank("folder of snapshots") else { return };
    host.shell("zfs create tank/a && echo one > t/a/file && cd t/a/.zfs/snapshot && mkdir monday").ok();
    host.shell("zfs list -Ho name -t snapshot tank/a && cat t/a/.zfs/snapshot/monday/file")
        .ok()
        .says("tank/a@monday\none\n");
    host.shell("cd t/a/.zfs/snapshot && mkdir monday").fails(1).says("File exists");
    host.shell("cd t/a/.zfs/snapshot && mv monday friday && ls && cat friday/file")
        .ok()
        .says("friday\none\n");
    host.shell("zfs list -Ho name -t snapshot tank/a").ok().says("tank/a@friday\n");
    host.shell("zfs snapshot tank/a@other && cd t/a/.zfs/snapshot && mv -T friday other").fails(1);
    // Those that are needed stay.
    host.shell("zfs hold keep tank/a@friday && rmdir t/a/.zfs/snapshot/friday").fails(1).says("busy");
    host.shell("zfs release keep tank/a@friday && zfs clone tank/a@friday tank/c").ok();
    host.shell("rmdir t/a/.zfs/snapshot/friday").fails(1).says("busy");
    host.shell("zfs destroy tank/c && rmdir t/a/.zfs/snapshot/friday && ls t/a/.zfs/snapshot")
        .ok()
        .says("other");
    host.shell("zfs list tank/a@friday").fails(1);
    host.shell("zpool history tank")
        .ok()
        .says("zfs snapshot tank/a@monday")
        .says("zfs destroy tank/a@friday");
    // Nowhere else, and nothing else.
    for words in ["mkdir t/a/.zfs/x", "mkdir t/a/.zfs/snapshot/other/x", "touch t/a/.zfs/snapshot/x"] {
        host.shell(words).fails(1);
    }
    host.shell("mv t/a/.zfs/snapshot/other t/a/x").fails(1);
    host.shell("mkdir 't/a/.zfs/snapshot/a@b'").fails(1).says("Invalid argument");
    host.shell("zpool export tank && zpool import -o readonly=on -d . tank && mkdir t/a/.zfs/snapshot/late")
        .fails(1)
        .says("Read-only");
}

/// Programs that list snapshots look first whether there is anything new.
#[test]
fn the_time_of_the_last_change_of_snapshots_is_told() {
    let Some(host) = Host::with_tank("snapshots_changed") else { return };
    let told = || {
        let line = "zfs get -Hpo value snapshots_changed tank; stat -c %Y t/.zfs/snapshot";
        let out = host.shell(line).ok().out;
        let (property, folder) =
            out.trim().split_once('\n').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        (property, folder)
    };
    assert_eq!(told(), ("-".to_owned(), "0".to_owned()));
    host.shell("zfs snapshot tank@a").ok();
    let (taken, folder) = told();
    assert!(taken == folder && taken.parse::<u64>().is_ok_and(|at| at > 1_700_000_000), "{taken} {folder}");
    host.shell("sleep 1.1; zfs snapshot tank@b; sleep 1.1").ok();
    let (later, _) = told();
    assert!(later > taken);
    host.shell("zfs destroy tank@b").ok();
    let (last, folder) = told();
    assert!(last > later && last == folder, "{last} {folder}");
    host.shell("zpool export tank; zpool import -d $PWD tank").ok();
    assert_eq!(told().0, taken, "the youngest that is there");
}
