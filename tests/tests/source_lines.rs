//! The lines of the source reports and of README run as they stand, and what they leave behind is
//! true.

use std::os::unix::fs::FileExt;

use steadfast_tests::{Host, Ran, find, is_root, no_fuse, skip, steadfast_bin};

const MIB: u64 = 1 << 20;

fn mountable(test: &str) -> bool {
    if let Some(why) = no_fuse() {
        skip(test, &why);
        return false;
    }
    true
}

/// Bytes that do not compress and repeat nowhere.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    out.truncate(bytes);
    out
}

#[test]
fn the_compression_pools_of_the_source_report_save_space() {
    if !mountable("compression pools") {
        return;
    }
    let host = Host::new();
    host.shell("truncate -s 256M zfs_compress.img; truncate -s 256M zfs_nocompress.img").ok();
    host.shell("zpool create -m $PWD/c zfs_compress $PWD/zfs_compress.img").ok();
    host.shell("zfs set compression=lz4 zfs_compress").ok();
    host.shell("zpool create -m $PWD/n zfs_nocompress $PWD/zfs_nocompress.img").ok();
    host.shell("zfs set compression=off zfs_nocompress").ok();
    host.shell("zfs get -H -o value compression zfs_compress").ok().says("lz4");
    let text = "Steadfast keeps files in a pool of untrusted devices. ".repeat(150_000);
    for at in ["c/text", "n/text"] {
        std::fs::write(host.at(at), &text).expect("a file is written");
    }
    host.shell("zpool sync").ok();
    let used = |pool: &str| -> u64 {
        let ran = host.shell(&format!("zfs list -Hp -o used {pool}")).ok();
        ran.out.trim().parse().expect("a number of bytes")
    };
    assert!(used("zfs_nocompress") >= text.len() as u64, "data is there");
    assert!(used("zfs_compress") * 3 < used("zfs_nocompress"), "repeated text shrinks at least threefold");
    host.shell("df -h $PWD/c").ok().says("zfs_compress");
    for at in ["c/text", "n/text"] {
        assert!(std::fs::read_to_string(host.at(at)).expect("a file is read") == text);
    }
    host.shell("zpool destroy zfs_compress; zpool destroy zfs_nocompress").ok();
}

#[test]
fn the_encrypted_dataset_of_the_source_report_hides_names_and_contents() {
    if !mountable("encrypted dataset") {
        return;
    }
    let host = Host::new();
    host.shell("truncate -s 256M e.img; zpool create -m $PWD/e zfs_encrypt $PWD/e.img").ok();
    host.shell("echo 12345678 | zfs create -o encryption=on -o keyformat=passphrase zfs_encrypt/encrypted")
        .ok();
    host.shell("zfs get -H -o value encryption zfs_encrypt/encrypted").ok().says("aes-256-gcm");
    let secret = "the-name-nobody-may-read";
    std::fs::write(host.at(&format!("e/encrypted/{secret}")), "the words nobody may read ".repeat(9))
        .expect("written");
    std::fs::write(host.at("e/a-name-in-the-clear"), "words in the clear ".repeat(9)).expect("written");
    host.shell("zpool export zfs_encrypt").ok();

    let image = std::fs::read(host.at("e.img")).expect("the image is read");
    let holds = |words: &str| find(&image, words.as_bytes()).is_some();
    assert!(!holds(secret) && !holds("nobody may read"), "the store can read the secret");
    assert!(holds("a-name-in-the-clear"), "the search finds what is there to be found");

    host.shell("zpool import -d $PWD zfs_encrypt").ok();
    host.shell("zfs get -H -o value keystatus zfs_encrypt/encrypted").ok().says("unavailable");
    assert!(!host.at(&format!("e/encrypted/{secret}")).exists(), "locked means not there");
    host.shell("echo wrong-passphrase | zfs load-key zfs_encrypt/encrypted")
        .fails(1)
        .says("zfs_encrypt/encrypted");
    host.shell("echo 12345678 | zfs load-key zfs_encrypt/encrypted; zfs mount zfs_encrypt/encrypted").ok();
    assert!(host.at(&format!("e/encrypted/{secret}")).exists(), "and comes back with the key");
    host.shell("zfs unmount zfs_encrypt/encrypted; zfs unload-key zfs_encrypt/encrypted").ok();
    host.shell("zpool destroy zfs_encrypt").ok();
}

#[test]
fn one_flipped_byte_is_an_error_in_that_range_only_and_status_names_the_file() {
    if !mountable("flipped byte") {
        return;
    }
    let host = Host::new();
    let image = host.image("f.img", 256 * MIB);
    host.shell("zpool create -O compression=off -m $PWD/f flip $PWD/f.img; mkdir f/dir").ok();
    let (hurt, whole) = (noise(1, 1 << 20), noise(2, 1 << 20));
    std::fs::write(host.at("f/dir/hurt"), &hurt).expect("written");
    std::fs::write(host.at("f/whole"), &whole).expect("written");
    host.shell("zpool export flip").ok();

    // The 600,000th byte lies in the fifth record of 128 KiB.
    let bytes = std::fs::read(&image).expect("the image is read");
    let place = find(&bytes, &hurt[600_000..600_064]).expect("the data lies in the image");
    let file = std::fs::OpenOptions::new().write(true).open(&image).expect("the image opens");
    file.write_all_at(&[bytes[place] ^ 1], place as u64).expect("one bit is flipped");
    drop(file);

    host.shell("zpool import -d $PWD flip").ok();
    assert!(std::fs::read(host.at("f/whole")).expect("the other file reads") == whole);
    let file = std::fs::File::open(host.at("f/dir/hurt")).expect("the file opens");
    let mut record = vec![0; 131_072];
    for index in 0..8u64 {
        let read = file.read_exact_at(&mut record, index * 131_072);
        if index == 4 {
            let error = read.expect_err("the damaged record is not returned");
            assert_eq!(error.raw_os_error(), Some(5), "EIO");
        } else {
            read.expect("the other records read");
            let at = usize::try_from(index).unwrap() * 131_072;
            assert!(record == hurt[at..at + 131_072]);
        }
    }
    drop(file);
    let status = host.shell("zpool status -v flip").ok();
    assert!(status.out.contains("f/dir/hurt"), "{}", status.out);
    assert!(!status.out.contains("f/whole"), "{}", status.out);
    host.shell("zpool destroy flip").ok();
}

#[test]
fn a_pool_survives_its_daemon() {
    if !mountable("daemon restart") {
        return;
    }
    let host = Host::new();
    host.image("d.img", 256 * MIB);
    host.shell("zpool create -m $PWD/d keep $PWD/d.img; echo kept > d/file").ok();
    host.run("daemon stop").ok();
    assert!(!host.at("d/file").exists(), "unmounted with the daemon");
    host.shell("zpool list -H -o name").ok().says("keep");
    assert_eq!(std::fs::read_to_string(host.at("d/file")).expect("mounted again"), "kept\n");
    host.shell("zpool destroy keep").ok();
}

#[test]
fn a_pool_at_sixty_percent_is_overwritten_twenty_times() {
    if !mountable("twenty overwrites") {
        return;
    }
    let host = Host::new();
    host.image("o.img", 256 * MIB);
    host.shell("zpool create -O compression=off -m $PWD/o over $PWD/o.img").ok();
    let bytes = usize::try_from(256 * MIB * 6 / 10 / 8).unwrap();
    for round in 0..20u64 {
        for file in 0..8u64 {
            let data = noise(round * 8 + file + 1, bytes);
            let opened = std::fs::OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .open(host.at(&format!("o/{file}")));
            opened
                .and_then(|f| f.write_all_at(&data, 0))
                .unwrap_or_else(|e| panic!("round {round}, file {file}: {e}"));
        }
    }
    host.shell("zpool sync").ok();
    for file in 0..8u64 {
        assert!(
            std::fs::read(host.at(&format!("o/{file}"))).expect("reads") == noise(19 * 8 + file + 1, bytes)
        );
    }
    host.shell("zpool export over; zpool import -d $PWD over").ok();
    for file in 0..8u64 {
        assert!(
            std::fs::read(host.at(&format!("o/{file}"))).expect("reads") == noise(19 * 8 + file + 1, bytes)
        );
    }
    host.shell("zpool destroy over").ok();
}

#[test]
fn a_full_pool_refuses_writes_and_accepts_deletes() {
    if !mountable("full pool") {
        return;
    }
    let host = Host::new();
    host.image("full.img", 160 * MIB);
    host.shell("zpool create -O compression=off -m $PWD/full full $PWD/full.img; echo small > full/before")
        .ok();
    let fill = |name: &str| -> usize {
        use std::io::Write;
        let mut file = std::fs::File::create(host.at(name)).expect("a file is made");
        let mut written = 0;
        loop {
            match file.write_all(&noise(written as u64 + 7, 1 << 20)) {
                Ok(()) => written += 1,
                Err(error) => {
                    assert_eq!(error.raw_os_error(), Some(28), "ENOSPC, not {error}");
                    return written;
                }
            }
            assert!(written < 160, "a pool of 160 MiB holds less than that");
        }
    };
    let first = fill("full/a");
    assert!(first > 100, "most of the pool can be used, not {first} MiB");
    assert_eq!(std::fs::read_to_string(host.at("full/before")).expect("reads"), "small\n");
    std::fs::remove_file(host.at("full/a")).expect("deleting works on a full pool");
    host.shell("zpool sync").ok();
    host.shell("dd if=/dev/urandom of=full/h bs=1M count=64 conv=fsync status=none").ok();
    host.shell("zpool destroy full").ok();
}

#[test]
fn root_gets_the_mountpoints_of_zfs() {
    let test = "mountpoints of root";
    if !mountable(test) {
        return;
    }
    if !is_root() {
        return skip(test, "needs root");
    }
    let host = Host::new();
    let pool = format!("stest{}", std::process::id());
    let gone = |ran: Ran| assert_eq!(ran.status, 0, "{ran:?}");
    host.image("r.img", 256 * MIB);
    host.shell(&format!("zpool create {pool} $PWD/r.img; zfs create {pool}/child; echo x > /{pool}/child/x"))
        .ok();
    host.shell(&format!("df /{pool} | tail -1")).ok().says(&pool);
    gone(host.shell(&format!("zpool destroy {pool}")));
    assert!(!std::path::Path::new(&format!("/{pool}")).exists(), "the mountpoint goes with the pool");
}

#[test]
fn the_five_minutes_of_the_readme_can_be_typed() {
    if !mountable("the five minutes of README") {
        return;
    }
    let readme = include_str!("../../README.md");
    let (_, section) = readme.split_once("\n## Five minutes\n").expect("README has that section");
    let section = section.split("\n## ").next().unwrap_or_default();
    // The build went before; what `compat` puts into a folder is typed by the tests of the
    // commands.
    let end = section.find("`steadfast compat").expect("README speaks of it");
    let lines: Vec<&str> = section[..end].lines().filter_map(|line| line.strip_prefix("    ")).collect();
    let lines =
        lines.iter().filter(|line| !line.starts_with("cargo ")).copied().collect::<Vec<_>>().join("\n");
    assert!(lines.matches("steadfast ").count() >= 6, "{lines}");

    let host = Host::new();
    let home = host.path().join("home");
    let bin = host.path().join("bin");
    std::fs::create_dir(&home).and_then(|()| std::fs::create_dir(&bin)).expect("folders");
    std::os::unix::fs::symlink(steadfast_bin(), bin.join("steadfast")).expect("a link");
    let (home, bin) = (home.display(), bin.display());
    let said = host.shell(&format!("export HOME='{home}' PATH='{bin}':\"$PATH\"\n{lines}")).ok();
    assert!(said.out.contains("state: ONLINE") && said.out.contains("private"), "{}", said.out);
}

#[test]
fn each_cell_of_ours_in_the_readme_shows_it() {
    if !mountable("the comparison of README") {
        return;
    }
    let readme = include_str!("../../README.md");
    let (_, section) = readme.split_once("\n## Beside others\n").expect("README has that section");
    let section = section.split("\n## ").next().unwrap_or_default();
    let (before, table) = section.split_once("\n|").expect("a table");
    let preparation = before.rsplit('`').nth(1).expect("a command makes the folder");
    let cells: Vec<&str> = table.lines().skip(2).filter_map(|row| row.split(" | ").nth(1)).collect();
    let commands: Vec<&str> =
        cells.iter().filter_map(|cell| cell.strip_prefix('`')?.strip_suffix('`')).collect();
    assert!(cells.len() == 10 && commands.len() == 9, "{cells:?}");
    let host = Host::new();
    host.shell(preparation).ok();
    let bin = steadfast_bin().parent().expect("a folder").display().to_string();
    for command in &commands {
        let said = host.shell(&format!("export PATH='{bin}':\"$PATH\"; {command}")).ok();
        if command.contains("status") {
            said.says("state: ONLINE").says("anchor").says("raidz1-0").says("d.img");
        }
    }
    assert!(std::fs::metadata(host.at("backup")).expect("a stream").len() > 1000);
    host.shell("zpool destroy tank; zpool destroy far").ok();
}
