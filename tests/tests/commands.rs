//! The operator's view, through the program itself: growing, watching, renaming, keys, shells,
//! services.

use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use steadfast_tests::{Host, find, is_root, noise, skip, spawn, steadfast_bin};

const MIB: u64 = 1 << 20;

#[test]
fn a_full_pool_takes_more_once_a_device_is_added() {
    let Some(host) = Host::with_tank("add") else { return };
    host.image("more.img", 256 * MIB);
    let content = noise(1, 160 * MIB as usize);
    let full = std::fs::write(host.at("t/file"), &content)
        .and_then(|()| std::fs::File::open(host.at("t/file"))?.sync_all());
    assert_eq!(full.expect_err("it cannot fit").kind(), std::io::ErrorKind::StorageFull);
    host.shell("zpool events -H tank").ok().says("ereport.fs.steadfast.nospace");
    host.shell("zpool add -n tank more.img").ok().says("more.img");
    host.shell("zpool add tank more.img").ok();
    host.shell("zpool add tank more.img").fails(1).says("VDEV-IN-USE");
    std::fs::write(host.at("t/file"), &content).expect("now it fits");
    host.shell("zpool export tank; zpool import -d $PWD tank").ok();
    assert!(std::fs::read(host.at("t/file")).expect("it reads") == content, "after an import it is the same");
    let rows = host.shell("zpool iostat -Hpv tank").ok().out;
    assert_eq!(rows.lines().count(), 3, "the pool and two devices: {rows}");
    host.shell("zpool offline tank $PWD/more.img").fails(1).says("VDEV-NEEDED");
}

#[test]
fn what_is_said_of_new_devices_is_the_pools_own() {
    let Some(host) = Host::with_images("ashift", 4, 64 * MIB) else { return };
    host.shell("zpool create -o ashift=13 -m $PWD/t tank $PWD/d1.img").ok();
    let refused = |line: &str| {
        host.shell(line).fails(1).says("ashift=13").says("PROP-CREATION");
    };
    refused("zpool attach -o ashift=12 tank $PWD/d1.img $PWD/d2.img");
    host.shell("zpool attach -w -o ashift=13 tank $PWD/d1.img $PWD/d2.img").ok();
    refused("zpool replace -o ashift=9 tank $PWD/d2.img $PWD/d3.img");
    host.shell("zpool replace -w -s -o ashift=0 tank $PWD/d2.img $PWD/d3.img").ok();
    refused("zpool add -f -o ashift=12 tank $PWD/d4.img");
    host.shell("zpool add -f -o comment=x tank $PWD/d4.img").fails(2).says("'comment'");
    host.shell("zpool add -f -o ashift=20 tank $PWD/d4.img").fails(1).says("PROP-VALUE");
    host.shell("zpool add -f -o ashift=13 tank $PWD/d4.img && zpool export tank").ok();
}

#[test]
fn iostat_counts_what_is_written_and_read() {
    let Some(host) = Host::with_tank("iostat") else { return };
    let written = |host: &Host| {
        let row = host.shell("zpool iostat -j --json-int tank").ok().out;
        let field = |name: &str, from: &str| {
            let text = from.split(&format!("\"{name}\":")).nth(1).expect(name);
            text.chars()
                .take_while(char::is_ascii_digit)
                .collect::<String>()
                .parse::<u64>()
                .expect("a number")
        };
        field("bytes", row.split("\"write\":").nth(1).expect("write"))
    };
    let before = written(&host);
    std::fs::write(host.at("t/file"), noise(2, 8 * MIB as usize)).expect("written");
    host.shell("zpool sync").ok();
    let grown = written(&host) - before;
    assert!((8 * MIB..24 * MIB).contains(&grown), "8 MiB of content are {grown} bytes on the device");
    let table = host.shell("zpool iostat -yl tank 0.2 2").ok().out;
    assert_eq!(table.lines().count(), 5, "three lines of headings and two reports: {table}");
    assert!(table.lines().skip(1).all(|line| line.len() == table.lines().nth(1).unwrap().len()), "{table}");
    // A program of the operator adds columns (-c), and a list of devices is searched (import -c).
    host.shell(
        "mkdir -p scripts; printf '#!/bin/sh\necho temp=31\necho bay=$(basename $VDEV_PATH)\n' > scripts/smart; \
         chmod +x scripts/smart",
    )
    .ok();
    let with = "export ZPOOL_SCRIPTS_AS_ROOT=1 ZPOOL_SCRIPTS_PATH=$PWD/scripts;";
    let told = host.shell(&format!("{with} zpool status -c smart tank")).ok().says(" temp ").out;
    let row = told.lines().find(|line| line.contains("/tank.img ")).expect("a row");
    assert!(row.ends_with("31  tank.img"), "{told}");
    host.shell(&format!("{with} zpool iostat -v -c smart tank")).ok().says("  temp  ").says("31  tank.img");
    host.shell(&format!("{with} zpool status -j -c smart tank")).ok().says("\"temp\":\"31\"");
    // Without a name: which there are, and what each says of itself.
    host.shell("echo 'test $1 = -h && echo temperature' >> scripts/smart; echo >> scripts/smart true").ok();
    let list = host.shell(&format!("{with} touch scripts/README; zpool status -c")).ok().out;
    assert!(list.starts_with("Available 'zpool status -c' commands:\n  smart           temp=31\n"), "{list}");
    assert!(list.ends_with("  smart           temperature\n"), "{list}");
    let list = host.shell(&format!("{with} unset ZPOOL_SCRIPTS_AS_ROOT; zpool iostat -c")).ok().out;
    let is_run = list == "Available 'zpool iostat -c' commands:\n  smart\n";
    assert_eq!(is_run, steadfast_tests::is_root(), "root runs nothing unasked: {list}");
    host.shell(&format!("{with} zpool status -c nothing tank")).fails(2).says("no program 'nothing'");
    host.shell(&format!("{with} export ZPOOL_SCRIPTS_ENABLED=0; zpool status -c smart tank"))
        .fails(2)
        .says("disabled");
    host.shell("zpool set cachefile=$PWD/list tank; cp list old; zpool export tank; ls list").fails(2);
    host.shell("zpool import -c old tank; zpool status tank").ok().says("ONLINE");
}

#[test]
fn a_damaged_file_is_named_with_its_bytes_and_counted_once() {
    let Some(host) = Host::with_tank("damage") else { return };
    let content = noise(3, 3 * 128 * 1024);
    std::fs::write(host.at("t/plan"), &content).expect("written");
    host.shell("zpool export tank").ok();
    // The second record's bytes, wherever they lie.
    let image = std::fs::read(host.at("tank.img")).expect("the image");
    let needle = &content[128 * 1024 + 4096..128 * 1024 + 4160];
    let at = find(&image, needle).expect("stored as it is");
    let file = std::fs::File::options().write(true).open(host.at("tank.img")).expect("open");
    file.write_all_at(&[!needle[0]], at as u64).expect("one byte changes");
    drop(file);
    host.shell("zpool import -d $PWD tank").ok();
    for _ in 0..5 {
        assert!(std::fs::read(host.at("t/plan")).is_err());
    }
    let status = host.shell("zpool status -v tank").ok();
    let file = host.at("t/plan");
    let status = status.says(&format!("{} (bytes 131072 to 262143)", file.display()));
    let image = host.at("tank.img");
    let line = status.out.lines().find(|line| line.trim_start().starts_with(&*image.to_string_lossy()));
    let line = line.expect("the device has a line");
    assert!(line.trim_end().ends_with(" 1"), "one block is bad, however often it was read: {line}");
    let events = host.shell("zpool events -v tank").ok();
    events.says("ereport.fs.steadfast.checksum").says("ereport.fs.steadfast.data").says("path = \"plan\"");
    host.shell("zpool clear tank; zpool status -x").ok().says("all pools are healthy");
}

/// As in ZFS: `zfs unmount` leaves the folder, and export and destroy remove it.
#[test]
fn the_folder_of_a_mount_stays_until_the_export() {
    let Some(host) = Host::with_tank("folders that stay") else { return };
    host.shell("zfs create -o mountpoint=$PWD/x/y tank/a; zfs unmount tank/a; ls -A x/y; test -d x/y").ok();
    host.shell("zfs mount tank/a; echo hello > x/y/file; zfs unmount -a; test -d x/y; test -d t").ok();
    host.shell("zfs mount -a; cat x/y/file; zpool export tank; test ! -e x; test ! -e t").ok().says("hello");
    host.shell("zpool import -d $PWD tank; zfs unmount tank/a; zfs destroy tank/a; test ! -e x").ok();
    // A folder that holds something by then is nobody's to remove.
    host.shell("zfs create -o mountpoint=$PWD/x/y tank/a; zfs unmount tank/a; echo mine > x/y/file").ok();
    host.shell("zfs destroy tank/a; cat x/y/file; zpool export tank").ok().says("mine");
}

#[test]
fn empty_folders_of_places_that_nobody_chose_go_with_the_mount() {
    let Some(host) = Host::with_tank("left-folders") else { return };
    host.shell("zfs create -p tank/a/b; zfs create tank/c; zfs create -o mountpoint=$PWD/t/own tank/d").ok();
    host.shell("zfs rename tank/a tank/e; test ! -e t/a; ls -d t/e/b").ok().says("t/e/b\n");
    host.shell("zfs set mountpoint=$PWD/t/new tank/e; test ! -e t/e; ls -d t/new/b").ok().says("t/new/b\n");
    host.shell("zfs inherit mountpoint tank/e; ls -d t/e/b").ok().says("t/e/b\n");
    // A folder that somebody set stays, and one that is not empty.
    host.shell("zfs set mountpoint=none tank/d; ls -d t/own t/new").ok();
    host.shell("zfs umount tank/c; touch t/c/file; zfs mount -O tank/c; zfs rename tank/c tank/f; ls t/c")
        .ok()
        .says("file\n");
}

#[test]
fn a_file_system_moves_while_its_neighbours_are_used() {
    let Some(host) = Host::with_tank("rename") else { return };
    host.shell("zfs create tank/a; zfs create tank/a/b; zfs create tank/young; echo kept > t/a/b/file").ok();
    host.shell("exec 5< t/a/b/file; zfs rename tank/a tank/young/a").fails(1).says("FS-BUSY");
    host.shell("zfs rename tank/a tank/young/a; cat t/young/a/b/file").ok().says("kept");
    host.shell("exec 5< t/young/a/b/file; zfs rename -u tank/young/a tank/c; df t/young/a").ok();
    host.shell("zfs unmount tank/c; zfs mount tank/c; zfs mount tank/c/b; cat t/c/b/file").ok().says("kept");
    host.shell("zfs rename -p tank/c/b tank/x/y/b; zpool export tank; zpool import -d $PWD tank").ok();
    host.shell("cat t/x/y/b/file; zfs list -Ho name | tr '\\n' ' '").ok().says("tank/x tank/x/y tank/x/y/b");
    host.shell("zfs rename tank/x pond/x").fails(1).says("FS-PLACE");
}

#[test]
fn a_changed_passphrase_opens_what_the_old_one_sealed() {
    let Some(host) = Host::with_tank("change-key") else { return };
    host.shell("echo 12345678 | zfs create -o encryption=on -o keyformat=passphrase tank/p").ok();
    host.shell("zfs create tank/p/c; echo secret > t/p/c/file; echo 87654321 | zfs change-key tank/p").ok();
    host.shell("zpool export tank; zpool import -d $PWD tank").ok();
    host.shell("echo 12345678 | zfs load-key tank/p").fails(1).says("KEY-WRONG");
    host.shell("echo abcdefgh | zfs change-key tank/p").fails(1).says("KEY-NEEDED");
    host.shell("echo 87654321 | zfs load-key tank/p; zfs mount -a; cat t/p/c/file").ok().says("secret");
    std::fs::write(host.at("key"), [7; 32]).expect("a key file");
    host.shell("zfs change-key -o keyformat=raw -o keylocation=file://$PWD/key tank/p").ok();
    host.shell("zpool export tank; zpool import -l -d $PWD tank; cat t/p/c/file").ok().says("secret");
}

#[test]
fn an_image_that_vanishes_is_told_and_a_destroyed_pool_comes_back() {
    let Some(host) = Host::with_tank("vanish") else { return };
    host.shell("echo kept > t/file; zpool destroy tank; zpool import -d $PWD").ok();
    host.shell("zpool import -d $PWD tank").fails(1).says("POOL-DESTROYED").says("zpool import -D tank");
    host.shell("zpool import -D -d $PWD").ok().says("was destroyed");
    host.shell("zpool import -D -d $PWD tank; cat t/file").ok().says("kept");
    host.shell("rm tank.img; zpool status tank").ok().says("REMOVED").says("VDEV-GONE");
}

#[test]
fn a_pool_of_an_older_version_is_upgraded() {
    let Some(host) = Host::with_tank("upgrade") else { return };
    host.shell("zpool upgrade")
        .ok()
        .says("Every feature flags pool has all supported and requested features enabled.");
    host.shell("zpool upgrade -v").ok().says("moved_datasets");
    host.shell("zpool get -H -o value feature@moved_datasets,feature@sealed_metadata tank")
        .ok()
        .says("disabled");
    host.shell("zpool set feature@sealed_metadata=enabled tank").fails(1).says("POOL-VERSION");
    // A new pool uses all there are, said or not, and none of another's.
    host.image("two.img", 64 * MIB);
    let create =
        |feature: &str| host.shell(&format!("zpool create -o feature@{feature} -m $PWD/w two $PWD/two.img"));
    for feature in ["nonsense=enabled", "anchor=enabled"] {
        create(feature).fails(1).says("zpool upgrade -v").says("PROP-UNKNOWN");
    }
    create("zstd=enabled").ok();
    host.shell("zpool get -H -o value feature@zstd two && zpool export two").ok().says("active");
    host.shell("zpool import -o feature@none=enabled -d $PWD two").fails(1).says("PROP-UNKNOWN");
    host.shell("zpool import -o feature@zstd=enabled -d $PWD two && zpool export two").ok();
    host.shell("zpool checkpoint -d tank").fails(1).says("CHECKPOINT-NONE");
}

#[test]
fn a_pool_goes_back_to_its_checkpoint() {
    let Some(host) = Host::with_tank("checkpoint") else { return };
    host.shell("echo kept > t/file; zpool checkpoint -w tank").fails(2).says("only valid when discarding");
    host.shell("zpool checkpoint tank; zpool status tank")
        .ok()
        .says("\ncheckpoint: created ")
        .says(", consumes ");
    host.shell("zpool checkpoint tank").fails(1).says("cannot checkpoint 'tank': checkpoint exists");
    host.shell("zpool status -j tank").ok().says("\"checkpoint_stats\"").says("\"EXISTS\"");
    host.shell("rm t/file; zfs create tank/later; zpool export tank").ok();
    let import = "zpool import -d $PWD --rewind-to-checkpoint";
    host.shell(import).fails(2).says("missing pool argument");
    host.shell(&format!("{import} -o readonly=on tank; cat t/file; zpool export tank")).ok().says("kept");
    host.shell("zpool import -d $PWD tank; zfs list tank/later; zpool export tank").ok();
    host.shell(&format!("{import} tank; cat t/file; zpool history tank"))
        .ok()
        .says("kept")
        .says("zpool create");
    host.shell("zfs list tank/later").fails(1);
    host.shell("zpool checkpoint tank && zpool checkpoint -d -w tank && zpool wait -t discard tank").ok();
    host.shell("zpool checkpoint --discard tank").fails(1).says("checkpoint does not exist");
    host.shell(&format!("zpool export tank; {import} tank")).fails(1).says("CHECKPOINT-NONE");
}

#[test]
fn mount_understands_what_fstab_says() {
    let Some(host) = Host::with_tank("fstab") else { return };
    if !is_root() {
        return skip("fstab", "only root mounts by mount(8)");
    }
    host.shell("zfs create -o mountpoint=legacy tank/home; mkdir home").ok();
    let helper = "mount.steadfast tank/home $PWD/home";
    host.shell(&format!("{helper} -o defaults,noauto,nodev,x-systemd.automount,nofail,noatime")).ok();
    host.shell("echo 1 > home/file; findmnt -no OPTIONS $PWD/home").ok().says("nodev");
    host.shell(&format!("{helper} -o remount,ro; ! touch home/no")).ok().says("Read-only");
    host.shell(&format!("exec 5< home/file; {helper} -o remount,rw,nodev; touch home/yes")).ok();
    host.shell(&format!("{helper} -o sideways,remount")).fails(1).says("PROP-VALUE");
    host.shell(&format!("{helper} -s -o sideways,remount")).ok();
    // `mount.zfs` takes what is behind -o as it is, and knows no option with a space before it.
    for program in ["mount.steadfast", "PATH=compat:$PATH mount.zfs"] {
        host.shell(&format!("{program} tank/home $PWD/home '-o relatime,remount'")).fails(1);
        host.shell(&format!("{program} tank/home $PWD/home -orelatime,remount")).ok();
    }
    // An option holds a property for as long as the mount lasts.
    let shown = "zfs get -Ho value,source atime,readonly,exec tank/home";
    assert_eq!(host.shell(shown).ok().out, "on\tdefault\noff\tdefault\non\tdefault\n");
    // Another mount namespace has a copy, which keeps the mount alive.
    host.shell(&format!(
        "unshare -m sleep 60 & sleep 0.5; umount home; {helper} -o noatime,nodiratime,noexec,rw; kill $!"
    ))
    .ok();
    host.shell("findmnt -no OPTIONS $PWD/home").ok().says("nodiratime");
    assert_eq!(host.shell(shown).ok().out, "off\ttemporary\noff\tdefault\noff\ttemporary\n");
    host.shell("zfs set exec=off tank/home").ok();
    host.shell("zfs get -Ho value,source exec tank/home").ok().says("off\tlocal");
    host.shell("umount home").ok();
    assert_eq!(host.shell(shown).ok().out, "on\tdefault\noff\tdefault\noff\tlocal\n");
    host.shell(&format!("{helper} -o remount,ro")).fails(1).says("FS-NOT-MOUNTED");
    host.shell("mount.steadfast -f tank/none $PWD/home").fails(1).says("FS-ABSENT");
    // As a line or command has it that was written for ZFS.
    host.shell_with_mount_helper("mount -t zfs -o zfsutil,nodev tank/home $PWD/home").ok();
    host.shell("findmnt -no FSTYPE,OPTIONS $PWD/home").ok().says("fuse.steadfast").says("nodev");
    // A snapshot, read-only whatever was asked for, and a pool by one of its devices.
    host.shell("umount home; zfs set mountpoint=$PWD/t/home tank/home; echo then > t/home/file; zfs snapshot tank/home@s").ok();
    host.shell("echo now > t/home/file").ok();
    let shown = "cat home/file; ! touch home/new; findmnt -no OPTIONS $PWD/home; umount home";
    for typed in ["mount -t zfs", "mount -t zfs -o rw"] {
        host.shell_with_mount_helper(&format!("{typed} tank/home@s $PWD/home; {shown}"))
            .ok()
            .says("then\nro,")
            .says("Read-only file system");
    }
    host.shell_with_mount_helper("mount -t zfs tank/home@none $PWD/home").fails(1).says("SNAP-ABSENT");
    host.shell("zfs unmount tank/home").ok();
    host.shell_with_mount_helper("mount -t zfs tank/home@s $PWD/home").fails(1).says("is not mounted");
    host.shell("zfs unmount tank; PATH=compat:$PATH mount.zfs -o zfsutil $PWD/tank.img $PWD/home; ls home")
        .ok();
}

#[test]
fn mount_changes_a_mount_through_the_helper_that_the_kernels_type_names() {
    let Some(host) = Host::with_tank("remount") else { return };
    if !is_root() {
        return skip("remount", "only root mounts by mount(8)");
    }
    host.shell("zfs create -o relatime=off tank/home; echo text > t/home/file; zpool sync").ok();
    let old = "touch -a -d @1000 t/home/file";
    let accessed = "dd if=t/home/file iflag=direct of=/dev/null status=none; stat -c %X t/home/file";
    host.shell_with_mount_helper(&format!("{old}; mount -o remount,ro t/home; {accessed}"))
        .ok()
        .says("1000\n");
    // The daemon knows, whichever namespace it was typed in.
    host.shell("! touch t/home/no; findmnt -no OPTIONS t/home | grep -qw ro").ok().says("Read-only");
    host.shell_with_mount_helper("mount -o remount,rw t/home").ok();
    host.shell(&format!(
        "touch t/home/yes; {accessed} >/dev/null; test $(stat -c %X t/home/file) -gt 1000000000"
    ))
    .ok();
    // Options that mount(8) passes on from the kernel's list change nothing: reading still moves
    // times each time.
    host.shell(&format!(
        "{old}; touch -m -d @900 t/home/file; {accessed} >/dev/null; touch -a -d '1 hour ago' t/home/file"
    ))
    .ok();
    host.shell(&format!("{accessed} >/dev/null; test $(($(date +%s) - $(stat -c %X t/home/file))) -lt 1000"))
        .ok();
    // The kernel lists the name it was mounted by.
    host.shell("zfs rename -u tank/home tank/house").ok();
    host.shell_with_mount_helper("mount -o remount,ro t/home; ! touch t/home/no").ok().says("Read-only");
    host.shell("umount t/home").ok();
    host.shell_with_mount_helper("mount.fuse.steadfast tank/house t/home -o remount,ro")
        .fails(1)
        .says("FS-NOT-MOUNTED");
}

#[test]
fn a_service_manager_is_told_when_the_pools_are_there() {
    let Some(host) = Host::with_tank("notify") else { return };
    host.shell("echo kept > t/file").ok();
    host.run("daemon stop").ok();
    let socket = UnixDatagram::bind(host.at("notify")).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(300))).expect("a timeout");
    let mut command = Command::new(steadfast_bin());
    command.args(["daemon", "run"]).env("STEADFAST_RUNTIME_DIR", host.at("run"));
    command.env("NOTIFY_SOCKET", host.at("notify")).stderr(Stdio::null());
    let mut daemon = spawn(&mut command).expect("it starts");
    let heard = |socket: &UnixDatagram| {
        let mut text = [0; 64];
        let length = socket.recv(&mut text).expect("the daemon says how far it is");
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    assert_eq!(heard(&socket), "READY=1");
    assert_eq!(std::fs::read_to_string(host.at("t/file")).expect("mounted when it is ready"), "kept\n");
    host.exec("kill", &[daemon.id().to_string()], b"").ok();
    assert_eq!(heard(&socket), "STOPPING=1");
    assert_eq!(daemon.wait().expect("it ends").code(), Some(0));
    host.run("inspect label {}/tank.img").ok().says("exported");
}

/// Completions that bash offers after `line`.
fn offered(host: &Host, script: &Path, line: &str) -> Vec<String> {
    let program = steadfast_bin();
    let ask = format!(
        "set +eu; PATH=$PATH:'{}'; COMP_WORDBREAKS=$' \\t\\n\"\\'@><=;|&(:'; source '{}'; COMP_LINE='{line}'; \
         COMP_POINT=${{#COMP_LINE}}; _steadfast; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        program.parent().expect("a program lies in a folder").display(),
        script.display(),
    );
    host.shell(&ask).ok().out.lines().filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_snapshots_values_devices_and_pools_to_import() {
    let Some(host) = Host::with_images("completion of names", 4, 64 << 20) else { return };
    host.shell("zpool create -m $PWD/t tank mirror $PWD/d1.img $PWD/d2.img; zfs create tank/home").ok();
    host.shell("zfs snapshot tank/home@monday tank@other; zfs snapshot tank/home@sunday").ok();
    host.shell("zpool create -m $PWD/p pond $PWD/d3.img; zpool export pond").ok();
    let script = host.at("completion.bash");
    std::fs::write(&script, host.run("completions bash").ok().out).expect("a script");
    let offered = |line: &str| offered(&host, &script, line);
    let at = |name: &str| host.at(name).display().to_string();
    assert_eq!(offered("zfs destroy tank/home@"), ["tank/home@monday", "tank/home@sunday"]);
    assert_eq!(offered("zfs rollback -r tank/home@m"), ["tank/home@monday"]);
    assert_eq!(offered("steadfast fs hold mine tank/home@s"), ["tank/home@sunday"]);
    assert_eq!(offered("zfs send tank/h"), ["tank/home"]);
    // Behind `=` bash replaces the value alone.
    assert_eq!(offered("zfs set compression=l"), ["lz4"]);
    assert_eq!(offered("zfs set compression=lz4 tank/"), ["tank/home"]);
    assert_eq!(offered("zfs set recordsi"), ["recordsize="]);
    assert_eq!(offered("zfs create -o atime="), ["on", "off"]);
    assert_eq!(offered("zpool create -O atime=of"), ["off"]);
    assert_eq!(offered("zpool set autotrim=of"), ["off"]);
    // The devices of this pool, and files elsewhere.
    assert_eq!(offered("zpool offline ta"), ["tank"]);
    assert_eq!(offered(&format!("zpool offline tank {}", at("d"))), [at("d1.img"), at("d2.img")]);
    assert_eq!(offered("zpool replace tank mir"), ["mirror-0"]);
    assert_eq!(offered("zpool add tank mir"), ["mirror"]);
    assert_eq!(offered("zpool add tank mirror d4"), ["d4.img"]);
    assert_eq!(offered(&format!("zpool import -d {} ", host.path().display())), ["pond"]);
    host.shell("zpool export tank").ok();
}

#[test]
fn bash_completes_verbs_options_and_names() {
    let Some(host) = Host::with_tank("completion") else { return };
    host.shell("zfs create tank/home").ok();
    let script = host.at("completion.bash");
    std::fs::write(&script, host.run("completions bash").ok().out).expect("a script");
    assert_eq!(offered(&host, &script, "zpool ios"), ["iostat"]);
    assert_eq!(offered(&host, &script, "steadfast pool hist"), ["history"]);
    assert_eq!(offered(&host, &script, "steadfast comple"), ["completions"]);
    assert_eq!(offered(&host, &script, "steadfast completions f"), ["fish"]);
    assert_eq!(offered(&host, &script, "zpool status ta"), ["tank"]);
    assert_eq!(offered(&host, &script, "zfs rename tank/h"), ["tank/home"]);
    assert_eq!(offered(&host, &script, "zfs get compressi"), ["compression"]);
    assert_eq!(
        offered(&host, &script, "zpool import -"),
        [
            "-a",
            "-c",
            "-d",
            "-D",
            "-f",
            "-F",
            "-j",
            "--json",
            "--json-int",
            "-l",
            "-n",
            "-N",
            "-o",
            "-R",
            "-s",
            "-t",
            "-T",
            "--rewind-to-checkpoint",
            "-X",
            "-m",
            "--accept-lost-log",
            "--anchor",
            "--accept-rollback",
            "--accept-lost-anchor"
        ]
    );
    assert_eq!(offered(&host, &script, "zpool add tank tank.i"), ["tank.img"]);
    host.run("daemon stop").ok();
    assert!(offered(&host, &script, "zpool status ta").is_empty());
    host.run("daemon pid").fails(1).says("DAEMON-ABSENT");
}

#[test]
fn zfs_wait_waits_for_removed_files_that_are_open() {
    let Some(host) = Host::with_tank("delete_queue") else { return };
    let ran = host.shell(
        "echo 1 > t/file; exec 9< t/file; rm t/file; timeout 0.5 zfs wait -t deleteq tank 9<&- || echo $?; \
         exec 9<&-; zfs wait tank; echo over",
    );
    assert_eq!(ran.ok().out, "124\nover\n");
    // Nobody has a file of it open.
    host.shell("zfs unmount tank; zfs wait tank").ok();
}

#[test]
fn a_trim_gives_back_what_was_freed_while_nothing_was_discarded() {
    use std::os::unix::fs::MetadataExt;
    let Some(host) = Host::with_tank("trim") else { return };
    let occupied = || std::fs::metadata(host.at("tank.img")).expect("the image").blocks() * 512;
    host.shell("zpool set autotrim=off tank").ok();
    std::fs::write(host.at("t/gone"), noise(5, 48 * MIB as usize)).expect("written");
    std::fs::write(host.at("t/kept"), noise(6, 8 * MIB as usize)).expect("written");
    host.shell("zpool sync; zpool status -t tank").ok().says("(untrimmed)");
    let full = occupied();
    assert!(full > 56 * MIB, "{full} bytes");
    std::fs::remove_file(host.at("t/gone")).expect("removed");
    host.shell("zpool wait -t free tank; zpool sync; zpool sync").ok();
    assert!(occupied() >= full, "autotrim is off: {full} bytes before, {} after", occupied());
    // A slot a second: it does not end while we look.
    host.shell("zpool trim -r 1M tank; zpool status tank").ok().says("(trimming)");
    host.shell("zpool trim tank").fails(1).says("TRIM-ACTIVE");
    host.shell("zpool trim -s tank; zpool status -t tank").ok().says("% trimmed, suspended, started at ");
    host.shell("zpool trim -s tank").fails(1).says("TRIM-NONE");
    host.shell("zpool wait -t trim tank").ok();
    host.shell("zpool trim tank $PWD/tank.img; zpool trim -c tank; zpool status -t tank")
        .ok()
        .says("(untrimmed)");
    host.shell("zpool trim tank other.img").fails(1).says("VDEV-MISSING");
    host.shell("zpool trim -w -r 10G tank; zpool status -t tank").ok().says("(100% trimmed, completed at ");
    let after = occupied();
    assert!(after + 40 * MIB < full, "{full} bytes before, {after} after");
    host.shell("zpool status -tj --json-int tank").ok().says("\"trim_state\":\"COMPLETE\"");
    let told = host.shell("zpool events -H tank").ok();
    let words = ["start", "suspend", "resume", "cancel", "finish"];
    words.iter().fold(told, |told, word| told.says(&format!("sysevent.fs.steadfast.trim_{word}")));
    let past = host.shell("zpool history -i tank").ok().says("zpool trim -w -r 10G tank");
    past.says("trim finish vdev=");
    host.shell("zpool wait tank; zpool wait -t discard,scrub,resilver,initialize,replace,remove tank").ok();
    let table = host.shell("zpool wait -t free,trim tank 0.1").ok().out;
    assert_eq!(table.split_whitespace().collect::<Vec<_>>(), ["FREE", "TRIM", "-", "-"], "{table}");
    host.shell("zpool wait -t defragment tank").fails(2).says("invalid activity 'defragment'");
    host.shell("zpool wait pond").fails(1).says("POOL-ABSENT");
    host.shell("zpool trim -d tank").fails(2).says("-d");
    host.shell("zpool trim -cs tank").fails(2).says("-c cannot be combined with -s");
    host.shell("zpool export tank").ok();
    host.run("inspect check {}/tank.img").ok();
    host.shell("zpool import -d $PWD tank").ok();
    assert!(std::fs::read(host.at("t/kept")).expect("it reads") == noise(6, 8 * MIB as usize));
}
