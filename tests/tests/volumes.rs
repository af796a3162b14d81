//! Volumes through the command line, as a file in a real mount, and for clients of NBD: our own, in
//! a few lines, and those that others wrote.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

use steadfast_tests::{Host, skip, spawn};

const MIB: usize = 1 << 20;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const PERM: u32 = 1;
const NO_SPACE: u32 = 28;

/// Bytes that do not compress, others for each seed.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64 ^ (seed << 17);
    let draw = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(draw).collect()
}

fn value(host: &Host, property: &str, name: &str) -> String {
    let out = host.shell(&format!("zfs get -Hp -o value {property} {name}")).ok().out;
    out.trim_end().to_owned()
}

/// Nothing is lost of space, and nothing is wrong.
fn sound(host: &Host) {
    host.shell("zpool wait -t free tank && zpool export tank").ok();
    host.run("inspect check {}/tank.img").ok().says("leaked_units=0").says("worst=none");
    host.shell("zpool import -d $PWD tank").ok();
}

/// A client that knows just enough of the protocol.
struct Client(UnixStream);

impl Client {
    /// Chooses an export; `None` if the server hangs up.
    fn choose(host: &Host, name: &str) -> Option<(Client, u64, u16)> {
        let mut stream = UnixStream::connect(host.at("run/nbd.sock")).expect("the server listens");
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).expect("a greeting");
        assert_eq!(&greeting, b"NBDMAGICIHAVEOPT\0\x03");
        stream.write_all(&3_u32.to_be_bytes()).expect("sent");
        stream.write_all(b"IHAVEOPT\0\0\0\x01").expect("sent");
        stream.write_all(&(name.len() as u32).to_be_bytes()).expect("sent");
        stream.write_all(name.as_bytes()).expect("sent");
        let (mut size, mut flags) = ([0; 8], [0; 2]);
        stream.read_exact(&mut size).ok()?;
        stream.read_exact(&mut flags).ok()?;
        Some((Client(stream), u64::from_be_bytes(size), u16::from_be_bytes(flags)))
    }

    /// Sends a request and gives the error of its answer.
    fn ask(&mut self, command: u16, offset: usize, length: usize, data: &[u8]) -> std::io::Result<u32> {
        let mut head = vec![0x25, 0x60, 0x95, 0x13, 0, 0];
        head.extend_from_slice(&command.to_be_bytes());
        head.extend_from_slice(&7_u64.to_be_bytes());
        head.extend_from_slice(&(offset as u64).to_be_bytes());
        head.extend_from_slice(&(length as u32).to_be_bytes());
        self.0.write_all(&head)?;
        self.0.write_all(data)?;
        let mut answer = [0; 16];
        self.0.read_exact(&mut answer)?;
        assert_eq!(answer[..4], [0x67, 0x44, 0x66, 0x98]);
        Ok(u32::from_be_bytes(answer[4..8].try_into().expect("four bytes")))
    }

    fn write(&mut self, offset: usize, data: &[u8]) -> u32 {
        self.ask(WRITE, offset, data.len(), data).expect("answered")
    }

    fn read(&mut self, offset: usize, length: usize) -> Vec<u8> {
        assert_eq!(self.ask(READ, offset, length, &[]).expect("answered"), 0);
        let mut data = vec![0; length];
        self.0.read_exact(&mut data).expect("content");
        data
    }

    fn flush(&mut self) {
        assert_eq!(self.ask(FLUSH, 0, 0, &[]).expect("answered"), 0);
    }
}

/// True if a program is there; says that its part is left out if not.
fn has(program: &str) -> bool {
    let found = spawn(Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()));
    let found = found.is_ok_and(|mut child| child.wait().is_ok());
    if !found {
        skip("volumes", &format!("{program} is not installed: that part is left out"));
    }
    found
}

#[test]
fn a_volume_is_a_file_of_one_size() {
    let Some(host) = Host::with_tank("volumes") else { return };
    host.shell("zfs create -V 10000001 -b 16K tank/vol && zfs create tank/fs").ok();
    let (at, size) = (host.at("t/vol"), 10_010_624);
    let found = fs::metadata(&at).expect("shown");
    assert!(found.is_file() && found.len() == size, "rounded up to whole blocks: {found:?}");
    assert_eq!((found.mode() & 0o7777, found.nlink()), (0o600, 1));
    assert_eq!(value(&host, "type", "tank/vol"), "volume");
    assert_eq!(value(&host, "volsize", "tank/vol"), size.to_string());
    assert_eq!(value(&host, "volblocksize", "tank/vol"), "16384");
    assert_eq!(value(&host, "refreservation", "tank/vol"), (size + 8 * 2 * 131_072).to_string());
    assert_eq!(value(&host, "recordsize,volsize", "tank/vol").lines().next(), Some("-"));
    assert_eq!(value(&host, "volsize,nbd", "tank/fs"), "-\n-");
    assert_eq!(host.shell("zfs list -H -o name -t volume -r tank").ok().out, "tank/vol\n");
    assert_eq!(host.shell("zfs list -H -o name -t filesystem -r tank").ok().out, "tank\ntank/fs\n");
    assert_eq!(host.shell("zfs list -H -o name").ok().out, "tank\ntank/fs\ntank/vol\n");

    // Like a block device: what is behind the end has no room, and truncating does nothing or is
    // refused.
    let data = noise(1, 3 * MIB);
    let file = OpenOptions::new().read(true).write(true).truncate(true).open(&at).expect("opens");
    assert_eq!(file.metadata().expect("there").len(), size, "O_TRUNC");
    file.write_all_at(&data, 5_000_000).expect("written");
    assert_eq!(file.write_all_at(b"xx", size - 1).expect_err("at the end").raw_os_error(), Some(28));
    assert_eq!(file.set_len(size / 2).expect_err("truncated").raw_os_error(), Some(22));
    file.set_len(size).expect("the size it has");
    file.sync_all().expect("synced");
    let mut read = vec![1; data.len()];
    file.read_exact_at(&mut read, 5_000_000).expect("read");
    assert!(read == data);
    drop(file);
    host.shell("cp t/vol copy && cp copy t/vol && cmp copy t/vol && test $(stat -c %s t/vol) = 10010624")
        .ok();
    host.shell("rm t/vol").fails(1);

    host.shell("zfs create tank/vol/below").fails(1).says("VOL-PARENT");
    host.shell("zfs rename tank/fs tank/vol/fs").fails(1).says("VOL-PARENT");
    for setting in ["recordsize=4K", "quota=1G", "snapdir=visible", "atime=on", "userquota@1=5"] {
        host.shell(&format!("zfs set {setting} tank/vol")).fails(1).says("PROP-KIND");
    }
    host.shell("zfs set volsize=1G tank/fs").fails(1).says("PROP-KIND");
    host.shell("zfs set volblocksize=4K tank/vol").fails(1).says("PROP-CREATION");
    host.shell("zfs create -o volblocksize=4K tank/x").fails(1).says("PROP-KIND");
    host.shell("zfs create -o volsize=4K -V 1M tank/x").fails(1).says("VOL-SIZE");
    host.shell("zpool create -O volsize=1M other $PWD/other.img").fails(1).says("PROP-KIND");
    host.shell("zfs create -s tank/x").fails(2);
    host.shell("zfs create -V none tank/x").fails(2);
    host.shell("zfs create -V 1T tank/x").fails(1).says("PROP-SPACE");
    host.shell("zfs set volsize=8M tank/vol").fails(1).says("VOL-SIZE");
    host.shell("zfs set volsize=20000001 tank/vol").fails(1).says("VOL-SIZE");
    host.shell("zfs set volsize=20M tank/vol").ok();
    assert_eq!(value(&host, "refreservation", "tank/vol"), (22 * MIB + MIB / 2).to_string());
    host.shell("sleep 1.1; test $(stat -c %s t/vol) = 20971520 && cmp -n 10010624 copy t/vol").ok();
    host.shell("zfs create -s -V 1T tank/thin && test $(stat -c %s t/thin) = 1099511627776").ok();
    assert_eq!(value(&host, "refreservation", "tank/thin"), "0");

    host.shell("zfs create -s -V 1M -o refreservation=auto tank/auto").ok();
    assert_eq!(value(&host, "refreservation", "tank/auto"), (3 * MIB).to_string());
    host.shell("zfs set refreservation=none tank/auto && zfs set refreservation=auto tank/auto").ok();
    assert_eq!(value(&host, "refreservation", "tank/auto"), (3 * MIB).to_string());
    host.shell("zfs set volsize=2M refreservation=auto tank/auto").ok();
    assert_eq!(value(&host, "refreservation,volsize", "tank/auto"), format!("{}\n{}", 4 * MIB, 2 * MIB));
    host.shell("zfs snapshot tank/auto@1 && zfs clone -o refreservation=auto tank/auto@1 tank/twin").ok();
    assert_eq!(value(&host, "refreservation", "tank/twin"), (4 * MIB).to_string());
    // In two copies: all that it may hold is reserved, whether it is said of it or above it.
    let twice = (8 * MIB + 24 * MIB / 8).to_string();
    host.shell("zfs create -o copies=2 -V 4M tank/twice && zfs create -o copies=2 tank/above").ok();
    host.shell("zfs create -V 4M tank/above/vol").ok();
    for volume in ["tank/twice", "tank/above/vol"] {
        assert_eq!(value(&host, "refreservation", volume), twice, "{volume}");
    }
    host.shell("head -c 4M /dev/urandom | dd of=t/twice bs=1M conv=notrunc,fsync && zpool sync").ok();
    let full: u64 = value(&host, "referenced", "tank/twice").parse().expect("bytes");
    assert!((8 * MIB as u64..11 * MIB as u64).contains(&full), "{full} bytes of {twice}");
    assert_eq!(value(&host, "used", "tank/twice"), twice, "what is reserved covers all of it");
    host.shell("zfs destroy tank/twice && zfs destroy -r tank/above").ok();
    host.shell("zfs snapshot tank/fs@1 && zfs clone -o refreservation=auto tank/fs@1 tank/x")
        .fails(1)
        .says("PROP-KIND");
    host.shell("zfs destroy tank/twin && zfs destroy tank/auto@1 && zfs destroy tank/fs@1").ok();
    host.shell("zfs set refreservation=auto tank/fs").fails(1).says("PROP-KIND");
    host.shell("zfs create -o refreservation=auto tank/x").fails(1).says("PROP-KIND");

    host.shell("zfs set volmode=none tank/thin && ! test -s t/thin").ok();
    assert_eq!(value(&host, "nbd", "tank/thin"), "-");
    assert!(Client::choose(&host, "tank/thin").is_none());
    host.shell("zfs mount tank/thin").fails(1).says("volmode=none");
    host.shell("zfs inherit volmode tank/thin && test -s t/thin && zfs rename tank/thin tank/slim").ok();
    host.shell("test -s t/slim && ! test -s t/thin && zfs destroy tank/slim && ! test -e t/slim").ok();
    sound(&host);
    host.shell("cmp -n 10010624 copy t/vol && zfs destroy tank/vol && ! test -e t/vol").ok();
    sound(&host);
}

#[test]
fn snapshots_clones_and_streams_of_a_volume() {
    let Some(host) = Host::with_tank("volumes") else { return };
    host.image("pond.img", 128 << 20);
    host.shell("zpool create -m $PWD/p pond $PWD/pond.img").ok();
    host.shell("zfs create -s -V 8M -o compression=off tank/vol").ok();
    let at = host.at("t/vol");
    let write = |seed| {
        let file = OpenOptions::new().write(true).open(&at).expect("opens");
        file.write_all_at(&noise(seed, MIB), 2 << 20).expect("written");
        file.sync_all().expect("synced");
    };
    write(1);
    host.shell("cp t/vol one && zfs snapshot tank/vol@one").ok();
    write(2);
    host.shell(
        "cp t/vol two && zfs set volsize=9M tank/vol && zfs snapshot tank/vol@two && ! cmp -s one two",
    )
    .ok();
    let size = |name: &str| value(&host, "volsize", name);
    assert_eq!(
        [size("tank/vol@one"), size("tank/vol@two"), size("tank/vol")],
        ["8388608", "9437184", "9437184"]
    );
    assert_eq!(value(&host, "volblocksize", "tank/vol@one"), value(&host, "volblocksize", "tank/vol"));
    let told = host.shell("zfs diff tank/vol@one tank/vol@two").ok().out;
    assert_eq!(told, format!("M\t{}\n", host.at("t/vol").display()));
    let (mut old, size, flags) = Client::choose(&host, "tank/vol@one").expect("a snapshot");
    assert_eq!((size, flags & 2), (8 << 20, 2), "of its size, and for reading only");
    assert!(old.read(2 << 20, MIB) == noise(1, MIB));
    assert_eq!(old.write(0, b"x"), PERM);
    drop(old);
    host.shell("zfs clone tank/vol@one tank/twin && cmp one t/twin").ok();
    assert_eq!(value(&host, "type", "tank/twin"), "volume");
    host.shell("printf twin | dd of=t/twin conv=notrunc status=none && cmp -n 8388608 two t/vol").ok();
    host.shell("zfs promote tank/twin && zfs destroy -r tank/vol && zfs list -Ho name -t snapshot -r tank")
        .ok()
        .says("tank/twin@one");
    host.shell("zfs rollback tank/twin@one && cmp one t/twin").ok();

    // Whole, in increments, with a longer one, and into what is not one.
    host.shell("zfs send tank/twin@one > s && zfs receive pond/vol < s && cmp one p/vol").ok();
    assert_eq!(value(&host, "type", "pond/vol"), "volume");
    host.shell("zfs set volsize=10M tank/twin && printf more | dd of=t/twin seek=9M oflag=seek_bytes conv=notrunc status=none").ok();
    host.shell("zfs snapshot tank/twin@two && zfs send -i one tank/twin@two | zfs receive pond/vol").ok();
    host.shell("cmp t/twin p/vol && test $(stat -c %s p/vol) = 10485760").ok();
    host.shell("zfs receive pond/vol/below < s").fails(1).says("VOL-PARENT");
    host.shell("zfs receive -o recordsize=4K pond/x < s && zfs destroy -r pond/x").ok();
    sound(&host);
    host.shell("cmp t/twin p/vol && zpool export pond").ok();
    host.run("inspect check {}/pond.img").ok().says("leaked_units=0").says("worst=none");
}

#[test]
fn a_volume_under_a_key() {
    let Some(host) = Host::with_tank("volumes") else { return };
    host.shell("printf secret-words > key").ok();
    host.shell(
        "zfs create -o encryption=on -o keyformat=passphrase -o keylocation=file://$PWD/key -V 4M tank/vol",
    )
    .ok();
    host.shell("printf hello | dd of=t/vol conv=notrunc status=none && zfs snapshot tank/vol@s").ok();
    // Sealed as it is, to a pool that never has the key; with the key it is a volume that cannot be
    // changed.
    let at = host.at("p").display().to_string();
    host.shell(&format!("truncate -s 256M pond.img && zpool create -m {at} pond $PWD/pond.img")).ok();
    host.shell("zfs send -w tank/vol@s > raw && zfs receive pond/vol < raw && ! grep -q hello raw").ok();
    assert_eq!(value(&host, "keystatus,type,volsize", "pond/vol"), "unavailable\nvolume\n-");
    assert!(Client::choose(&host, "pond/vol").is_none());
    host.shell("printf again | dd of=t/vol conv=notrunc status=none && zfs snapshot tank/vol@t").ok();
    host.shell(
        "zfs send -w -i s tank/vol@t | zfs receive pond/vol && zfs load-key -L file://$PWD/key pond/vol",
    )
    .ok();
    assert_eq!(value(&host, "keystatus,type,volsize", "pond/vol"), "available\nvolume\n4194304");
    host.shell("zfs mount pond/vol && cmp t/vol p/vol && zfs get -Ho value volsize pond/vol@s")
        .ok()
        .says("4M");
    host.shell("printf x | dd of=p/vol conv=notrunc").fails(1);
    host.shell("zfs set volsize=8M pond/vol").fails(1).says("RAW");
    // Opened it is a volume like any other.
    host.shell(
        "zfs send pond/vol@t | zfs receive pond/free && cmp t/vol p/free && zfs set volsize=8M pond/free",
    )
    .ok();
    host.shell("zpool export -f pond").ok();
    host.run("inspect check {}/pond.img").ok().says("leaked_units=0").says("worst=none");
    host.shell("zfs send tank/vol@t > plain && zfs receive tank/open < plain && cmp t/vol t/open && zfs destroy -r tank/open").ok();
    let (client, ..) = Client::choose(&host, "tank/vol").expect("chosen");
    host.shell("zfs unmount tank/vol && zfs unload-key tank/vol").fails(1).says("KEY-BUSY");
    drop(client);
    // The server hears of it when it gets to read.
    host.shell("for n in $(seq 2000); do zfs unload-key tank/vol && break; sleep 0.2; done").ok();
    assert_eq!(value(&host, "keystatus,type,volsize", "tank/vol"), "unavailable\nvolume\n-");
    assert!(Client::choose(&host, "tank/vol").is_none());
    host.shell("zfs set volsize=8M tank/vol").fails(1).says("KEY-NEEDED");
    host.shell("zfs load-key tank/vol && zfs mount tank/vol && test $(head -c 5 t/vol) = again").ok();
    let (mut client, ..) = Client::choose(&host, "tank/vol@s").expect("chosen");
    assert_eq!(client.read(0, 5), b"hello");
}

#[test]
fn what_was_flushed_is_there_when_the_daemon_was_killed() {
    let Some(host) = Host::with_tank("volumes") else { return };
    host.shell("zfs create -V 16M tank/vol").ok();
    let mut kept: Vec<(usize, u64)> = Vec::new();
    for round in 0..4_u64 {
        let (mut client, size, flags) = Client::choose(&host, "tank/vol").expect("chosen");
        assert_eq!((size, flags & 1), (16 << 20, 1));
        for (at, seed) in &kept {
            assert!(
                client.read(*at, 100_000) == noise(*seed, 100_000),
                "round {round}: {at} is not what was flushed"
            );
        }
        for piece in 0..5 {
            let (at, seed) = (((round * 5 + piece) * 600_001) as usize, round * 100 + piece);
            assert_eq!(client.write(at, &noise(seed, 100_000)), 0);
            kept.push((at, seed));
        }
        client.flush();
        // A write that was not flushed may be there or not.
        assert_eq!(client.write(15 << 20, &noise(9, 1000)), 0);
        host.kill_daemon();
        assert!(client.ask(FLUSH, 0, 0, &[]).is_err());
        host.shell("zpool list tank").ok();
    }
    let (mut client, ..) = Client::choose(&host, "tank/vol").expect("chosen");
    assert_eq!(client.ask(TRIM, 0, MIB, &[]).expect("answered"), 0);
    assert!(client.read(0, MIB).iter().all(|byte| *byte == 0));
    assert_eq!(client.write((16 << 20) - 1, b"xx"), NO_SPACE);
    // Both ways see the same bytes at once.
    let file = File::options().read(true).write(true).open(host.at("t/vol")).expect("opens");
    let mut read = [0; 4];
    for (data, byte) in [(b"from", 1), (b"here", 2)] {
        assert_eq!(client.write(byte * MIB, data), 0);
        file.read_exact_at(&mut read, (byte * MIB) as u64).expect("read");
        assert_eq!(&read, data);
        file.write_all_at(b"back", (byte * MIB) as u64).expect("written");
        assert_eq!(client.read(byte * MIB, 4), b"back");
    }
    drop(file);
    // A connected client is in the way; with -f it is cut off.
    host.shell("zfs snapshot tank/vol@s").ok();
    host.shell("zfs rollback tank/vol@s").fails(1).says("VOL-BUSY");
    host.shell("zpool export tank").fails(1).says("VOL-BUSY");
    host.shell("zfs destroy -r tank/vol").fails(1).says("VOL-BUSY");
    host.shell("zfs destroy -rf tank/vol").ok();
    assert!(client.ask(FLUSH, 0, 0, &[]).is_err());
    sound(&host);
}

#[test]
fn clients_of_others() {
    let Some(host) = Host::with_tank("volumes") else { return };
    host.shell("zfs create -V 24M tank/vol && zfs create -V 24M tank/other").ok();
    fs::write(host.at("image"), [noise(1, 6 * MIB), vec![0; 10 * MIB], noise(2, 8 * MIB)].concat())
        .expect("written");
    let address = value(&host, "nbd", "tank/vol");
    let other = value(&host, "nbd", "tank/other");
    if has("nbdinfo") && has("nbdcopy") {
        host.shell(&format!("nbdcopy --flush image '{address}' && cmp image t/vol")).ok();
        host.shell(&format!("nbdcopy '{address}' back && cmp image back")).ok();
        host.shell(&format!("nbdcopy --flush '{address}' '{other}' && cmp t/vol t/other")).ok();
        host.shell("zfs snapshot tank/vol@s").ok();
        let info = host.shell(&format!("nbdinfo --json '{address}'")).ok().out;
        for fact in ["\"export-size\": 25165824", "\"can_flush\": true", "\"can_multi_conn\": true"] {
            assert!(info.contains(fact), "{fact}: {info}");
        }
        host.shell(&format!("nbdinfo --list '{address}'")).ok().says("tank/vol@s").says("tank/other");
        let map = host.shell(&format!("nbdinfo --map '{address}'")).ok().out;
        assert!(map.contains("6291456    10485760    3  hole,zero"), "{map}");
        host.shell(&format!("nbdcopy '{}' old && cmp image old", address.replace("tank/vol", "tank/vol@s")))
            .ok();
        host.shell(&format!("nbdinfo '{}'", address.replace("tank/vol", "tank/none"))).fails(1);
    }
    if has("qemu-img") && has("qemu-io") {
        host.shell(&format!("qemu-img convert -n -f raw -O raw image '{address}' && cmp image t/vol")).ok();
        host.shell(&format!("qemu-img compare -f raw -F raw image '{address}'")).ok().says("identical");
        let io = |commands: &str| {
            let commands: String =
                commands.split(';').map(|command| format!(" -c '{}'", command.trim())).collect();
            host.shell(&format!("qemu-io -f raw {commands} '{address}'")).ok()
        };
        io(
            "write -P 0x5a 1M 64k; write -f -P 0x6b 2M 4k; flush; read -P 0x5a 1M 64k; write -z 1M 32k; discard 2M 4k; read -P 0 1M 32k; read -P 0x5a 1081344 32k",
        );
        host.shell("test $(od -An -tx1 -j 1081344 -N 1 t/vol) = 5a").ok();
    }
    if has("mkfs.ext4") && has("e2fsck") {
        host.shell("mkfs.ext4 -q -F t/vol && e2fsck -fn t/vol").ok();
        // A loop device is the machine's, not ours: where there is none, this part is left out.
        let inside = "mkdir -p m && mount -o loop t/vol m && cp image m/image && sync -f m && cmp image m/image; umount m";
        let loops = host.shell("losetup -f");
        if loops.status == 0 && steadfast_tests::is_root() {
            host.shell(inside).ok();
            host.shell("e2fsck -fn t/vol").ok();
        } else {
            skip("clients_of_others", &format!("there are no loop devices here: {}", loops.err.trim()));
        }
    }
    sound(&host);
}
