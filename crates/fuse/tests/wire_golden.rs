//! Our decoder and encoders against bytes that a C compiler made from the kernel's header.
#![cfg(target_endian = "little")]

use std::collections::BTreeMap;
use std::time::Duration;
use steadfast_fuse::wire::init::{InitIn, InitOut};
use steadfast_fuse::wire::reply::*;
use steadfast_fuse::wire::request::{Dialect, Operation, decode, decode_parts};
use steadfast_fuse::wire::{IN_HEADER_SIZE, InHeader, Parts};
use steadfast_fuse::*;

const INO: u64 = 0x2122_2324_2526_2728;
const EXT: Dialect = Dialect { setxattr_ext: true };

fn golden() -> BTreeMap<&'static str, Vec<u8>> {
    let lines = include_str!("../golden/wire.hex").lines().filter(|l| !l.starts_with('#'));
    lines
        .map(|line| {
            let (name, hex) = line.split_once(' ').unwrap();
            let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
            (name, (0..hex.len()).step_by(2).map(byte).collect())
        })
        .collect()
}

/// Each request with the bytes of its fixed structure.
fn expected() -> Vec<(&'static str, usize, Operation<'static>)> {
    let time = |secs, nanos| Time { secs, nanos };
    let open = |flags, kill_suidgid| OpenArgs { flags, kill_suidgid };
    let release = ReleaseArgs { ino: INO, fh: 1, flags: 2, lock_owner: 3 };
    let setattr = SetAttr {
        mode: Some(0o100644),
        uid: Some(11),
        gid: Some(12),
        size: Some(2),
        atime: Some(SetTime::At(time(4, 7))),
        mtime: Some(SetTime::At(time(5, 8))),
        ctime: Some(time(-6, 9)),
        fh: Some(1),
        lock_owner: Some(3),
        kill_suidgid: true,
    };
    let setattr_now = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..SetAttr::default() };
    let xattr = |kill_sgid| SetXattrArgs { ino: INO, name: b"user.n", value: b"val", flags: 1, kill_sgid };
    let rename = |flags| RenameArgs { parent: INO, name: b"old", new_parent: 9, new_name: b"new", flags };
    let copy = |length| CopyArgs {
        ino_in: INO,
        fh_in: 1,
        offset_in: 2,
        ino_out: 3,
        fh_out: 4,
        offset_out: 5,
        length,
        flags: 0,
    };
    let write = WriteArgs {
        ino: INO,
        fh: 1,
        offset: 2,
        flags: 5,
        writeback: true,
        lock_owner: Some(3),
        kill_suidgid: true,
    };
    let ioctl = IoctlArgs { ino: INO, fh: 1, command: 0x8008_6601, argument: 2, input: b"abcd" };
    let init = |flags| InitIn { major: 7, minor: 45, max_readahead: 0x20000, flags };
    vec![
        ("lookup", 0, Operation::Lookup { name: b"name" }),
        ("forget", 8, Operation::Forget { nlookup: 0x0102_0304_0506_0708 }),
        ("getattr", 16, Operation::Getattr { fh: Some(0x61) }),
        ("statx", 24, Operation::Statx { fh: Some(0x62) }),
        ("setattr", 88, Operation::Setattr(setattr)),
        ("setattr_now", 88, Operation::Setattr(setattr_now)),
        ("symlink", 0, Operation::Symlink { name: b"link", target: b"to/target" }),
        ("mknod", 16, Operation::Mknod { name: b"dev", mode: 0o60600, rdev: 0x12345, umask: 0o22 }),
        ("mkdir", 8, Operation::Mkdir { name: b"dir", mode: 0o755, umask: 0o27 }),
        ("rename", 8, Operation::Rename(rename(0))),
        ("rename2", 16, Operation::Rename(rename(2))),
        ("link", 8, Operation::Link { ino: 8, new_name: b"new" }),
        ("open", 8, Operation::Open(open(0x8002, true))),
        (
            "read",
            40,
            Operation::Read {
                args: ReadArgs { ino: INO, fh: 1, offset: 2, flags: 5, lock_owner: Some(4) },
                size: 3,
            },
        ),
        ("readdir", 40, Operation::Readdir { fh: 1, offset: 2, size: 3 }),
        ("readdirplus", 40, Operation::Readdirplus { fh: 1, offset: 2, size: 3 }),
        ("write", 40, Operation::Write { args: write, data: b"data" }),
        ("release", 24, Operation::Release(release)),
        ("fsync", 16, Operation::Fsync { fh: 1, datasync: true }),
        ("setxattr_ext", 16, Operation::Setxattr(xattr(true))),
        ("setxattr", 8, Operation::Setxattr(xattr(false))),
        ("getxattr", 8, Operation::Getxattr { name: b"user.n", size: 77 }),
        ("listxattr", 8, Operation::Listxattr { size: 77 }),
        ("flush", 24, Operation::Flush { fh: 1, lock_owner: 2 }),
        ("init", 64, Operation::Init(init(0x0000_03fd_73ff_fffb))),
        ("init_old", 16, Operation::Init(init(0x73ff_fffb))),
        ("access", 8, Operation::Access { mask: 4 }),
        (
            "create",
            16,
            Operation::Create { name: b"new", mode: 0o100640, umask: 0o22, args: open(0x42, false) },
        ),
        ("tmpfile", 16, Operation::Tmpfile { mode: 0o100640, umask: 0o22, args: open(0x42, false) }),
        ("interrupt", 8, Operation::Interrupt { unique: 5 }),
        ("ioctl", 32, Operation::Ioctl { args: ioctl, out_size: 8 }),
        (
            "fallocate",
            32,
            Operation::Fallocate(FallocateArgs { ino: INO, fh: 1, offset: 2, length: 3, mode: 16 }),
        ),
        ("lseek", 24, Operation::Lseek { fh: 1, offset: 2, whence: 3 }),
        ("copy", 56, Operation::CopyFileRange { args: copy(0xffff_f000), wide: false }),
        ("copy64", 56, Operation::CopyFileRange { args: copy(0x3_0000_0000), wide: true }),
    ]
}

fn dialect(name: &str) -> Dialect {
    if name == "setxattr" { Dialect::default() } else { EXT }
}

#[test]
fn requests_are_read_as_the_kernels_header_writes_them() {
    let golden = golden();
    for (name, _, operation) in expected() {
        let incoming = decode(&golden[name], dialect(name)).unwrap();
        assert_eq!(incoming.operation, operation, "{name}");
        let h = incoming.header;
        assert_eq!((h.unique, h.nodeid), (0x1112_1314_1516_1718, INO), "{name}");
        assert_eq!((h.uid, h.gid, h.pid), (0x3132_3334, 0x4142_4344, 0x5152_5354), "{name}");
        assert_eq!(incoming.group, (name == "create").then_some(4242), "{name}");
    }
    let batch = decode(&golden["batch_forget"], EXT).unwrap();
    let Operation::BatchForget { forgets } = batch.operation else { panic!("{batch:?}") };
    let one = |ino, nlookup| Forget { ino, nlookup };
    assert_eq!(forgets.collect::<Vec<_>>(), [one(3, 4), one(5, 6)]);
}

#[test]
fn requests_in_separate_parts_read_the_same() {
    let golden = golden();
    for (name, fixed_size, operation) in expected() {
        let bytes = &golden[name];
        let header = InHeader::decode(bytes).unwrap();
        let (fixed, payload) = bytes[IN_HEADER_SIZE..].split_at(fixed_size);
        // The ring's field is 128 bytes long, whatever the structure.
        let mut field = [0xee; 128];
        field[..fixed_size].copy_from_slice(fixed);
        let incoming = decode_parts(header, Parts::Split { fixed: &field, payload }, dialect(name));
        // The old handshake has no flags2, which the field's length would suggest.
        if name != "init_old" {
            assert_eq!(incoming.unwrap().operation, operation, "{name}");
        }
    }
}

#[test]
fn a_request_cut_anywhere_is_an_error_not_a_wrong_request() {
    for (name, bytes) in golden() {
        let Some((_, _, whole)) = expected().into_iter().find(|e| e.0 == name) else { continue };
        for len in 0..bytes.len() {
            let mut cut = bytes[..len].to_vec();
            if let Some(said) = cut.first_chunk_mut::<4>() {
                *said = (len as u32).to_ne_bytes();
            }
            match decode(&cut, dialect(name)) {
                Err(_) => {}
                // A few end in something that may be shorter: fields nobody reads, a name that
                // means nothing.
                Ok(incoming) => {
                    let may = matches!(name, "init" | "tmpfile");
                    assert!(
                        may,
                        "{name} cut to {len} of {} bytes became {:?}",
                        bytes.len(),
                        incoming.operation
                    );
                    assert_eq!(std::mem::discriminant(&incoming.operation), std::mem::discriminant(&whole));
                }
            }
        }
    }
}

fn attr() -> Attr {
    Attr {
        ino: 1,
        size: 2,
        blocks: 3,
        atime: Time { secs: 4, nanos: 7 },
        mtime: Time { secs: 5, nanos: 8 },
        ctime: Time { secs: -6, nanos: 9 },
        btime: Some(Time { secs: 40, nanos: 41 }),
        mode: 0o100644,
        nlink: 10,
        uid: 11,
        gid: 12,
        rdev: 13,
        blksize: 14,
    }
}

#[test]
fn replies_are_the_bytes_the_kernels_header_reads() {
    let golden = golden();
    let entry = Entry {
        ino: 20,
        generation: 21,
        attr: attr(),
        entry_ttl: Duration::new(22, 24),
        attr_ttl: Duration::new(23, 25),
    };
    let mut out = [0xee; ENTRY_OUT_SIZE];
    encode_entry(&mut out, &entry);
    assert_eq!(out[..], golden["entry_out"]);

    let reply = AttrReply { attr: attr(), ttl: Duration::new(23, 25) };
    let mut out = [0xee; ATTR_OUT_SIZE];
    encode_attr(&mut out, &reply);
    assert_eq!(out[..], golden["attr_out"]);

    // Minor numbers above 8 bits lie above the major's in a device number.
    let rdev = 0x78 | 0x123 << 8 | 0x456 << 20;
    let mut out = [0xee; STATX_OUT_SIZE];
    encode_statx(&mut out, &AttrReply { attr: Attr { rdev, ..attr() }, ..reply });
    assert_eq!(out[..], golden["statx_out"]);

    let opened = Opened {
        fh: 30,
        direct_io: true,
        keep_cache: true,
        nonseekable: true,
        cache_dir: true,
        stream: true,
        no_flush: true,
        parallel_direct_writes: true,
    };
    let mut out = [0xee; OPEN_OUT_SIZE];
    encode_open(&mut out, &opened);
    assert_eq!(out[..], golden["open_out"]);

    let statfs =
        StatFs { blocks: 1, bfree: 2, bavail: 3, files: 4, ffree: 5, bsize: 6, namelen: 7, frsize: 8 };
    let mut out = [0xee; STATFS_OUT_SIZE];
    encode_statfs(&mut out, &statfs);
    assert_eq!(out[..], golden["statfs_out"]);

    let init = InitOut {
        minor: 45,
        max_readahead: 0x20000,
        flags: 0x0a0b_0c0d_1234_5678,
        max_background: 64,
        congestion_threshold: 48,
        max_write: 1 << 20,
        max_pages: 256,
        request_timeout: 0,
    };
    assert_eq!(init.encode()[..], golden["init_out"]);
    assert_eq!(encode_out_header(20, -2, 0x1112_1314_1516_1718)[..], golden["out_header"]);
    assert_eq!(encode_error(Errno::ENOENT, 5)[4..8], (-2i32).to_ne_bytes());
}

#[test]
fn directory_entries_are_padded_and_stop_when_full() {
    let golden = golden();
    let mut out = [0xee; 100];
    let size = encode_dirent(&mut out, 1, 2, FileKind::Regular, b"hello").unwrap();
    assert_eq!(out[..size], golden["dirent"]);
    assert_eq!(encode_dirent(&mut out[..31], 1, 2, FileKind::Regular, b"hello"), None);

    let mut sink = DirSink::new(&mut out);
    let added = (0..10).take_while(|&i| sink.add(1, i + 1, FileKind::Regular, b"hello")).count();
    assert_eq!((added, sink.len()), (3, 96));

    let entry = Entry {
        ino: 20,
        generation: 21,
        attr: attr(),
        entry_ttl: Duration::new(22, 24),
        attr_ttl: Duration::new(23, 25),
    };
    let mut out = [0xee; 400];
    let mut sink = DirPlusSink::new(&mut out);
    assert!(sink.add(2, b"hello", &entry));
    assert!(sink.add_bare(1, 2, FileKind::Regular, b"hello"));
    assert!(!sink.add(3, b"hello", &entry), "two of 160 bytes fit in 400");
    assert_eq!(sink.len(), 320);
    assert_eq!(out[..128], golden["entry_out"]);
    assert_eq!(out[128..160], golden["dirent"]);
    assert_eq!(out[160..288], [0; 128], "no attributes");
    assert_eq!(out[288..320], golden["dirent"]);
}

#[test]
fn notifications_carry_their_structure_and_name() {
    let golden = golden();
    let check = |notification: Notification, code: i32, body: &str, name: &[u8]| {
        let bytes = notification.encode();
        assert_eq!(bytes[..4], (bytes.len() as u32).to_ne_bytes(), "{body}");
        assert_eq!(bytes[4..8], code.to_ne_bytes(), "{body}");
        assert_eq!(bytes[8..16], [0; 8], "{body}: no request has this number");
        assert_eq!(bytes[16..], [&golden[body][..], name].concat(), "{body}");
    };
    check(Notification::InvalInode { ino: 1, offset: -2, length: 3 }, 2, "inval_inode", b"");
    let name = b"hello".to_vec();
    check(
        Notification::InvalEntry { parent: 1, name: name.clone(), expire_only: true },
        3,
        "inval_entry",
        b"hello\0",
    );
    check(Notification::Delete { parent: 1, child: 2, name }, 6, "delete", b"hello\0");
    assert_eq!(Notification::IncEpoch.encode().len(), 16);
}
