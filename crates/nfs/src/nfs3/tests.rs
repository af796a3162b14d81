//! Bytes written by hand after the structures of RFC 1813.

use super::*;

const HANDLE: &[u8] = b"\0\0\0\x04hndl";

fn decode<'a>(procedure: u32, bytes: &'a [u8]) -> Result<Option<Call<'a>>> {
    let mut reader = Reader::new(bytes);
    let call = Call::decode(procedure, &mut reader);
    assert!(call.is_err() || reader.rest().is_empty(), "{call:?} left {:?}", reader.rest());
    call
}

/// A handle, and what follows.
fn with(parts: &[&[u8]]) -> Vec<u8> {
    [HANDLE, &parts.concat()].concat()
}

const NAME: &[u8] = b"\0\0\0\x03abc\0";
/// `sattr3` that sets everything: mode 0644, owner 1, group 2, size 3, the server's time,
/// 4.000000005.
const ALL: &[u8] =
    b"\0\0\0\x01\0\0\x01\xa4\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x02\0\0\0\x01\0\0\0\0\0\0\0\x03\
    \0\0\0\x01\0\0\0\x02\0\0\0\x04\0\0\0\x05";
/// The one that sets nothing.
const NOTHING: &[u8] = &[0; 24];

fn all() -> NewAttributes {
    NewAttributes {
        mode: Some(0o644),
        uid: Some(1),
        gid: Some(2),
        size: Some(3),
        atime: Some(SetTime::Now),
        mtime: Some(SetTime::To(Time { seconds: 4, nanos: 5 })),
    }
}

/// Each procedure with its arguments, as bytes and as they are to be read.
fn calls() -> Vec<(u32, Vec<u8>, Call<'static>)> {
    let (object, dir, file, root, name) =
        (&b"hndl"[..], &b"hndl"[..], &b"hndl"[..], &b"hndl"[..], &b"abc"[..]);
    let none = NewAttributes::default();
    let eight = b"\0\0\0\0\0\0\0\x08";
    vec![
        (0, Vec::new(), Call::Null),
        (1, with(&[]), Call::Getattr { object }),
        (
            2,
            with(&[ALL, b"\0\0\0\x01\0\0\0\x06\0\0\0\x07"]),
            Call::Setattr { object, new: all(), guard: Some(Time { seconds: 6, nanos: 7 }) },
        ),
        (2, with(&[NOTHING, &[0; 4]]), Call::Setattr { object, new: none, guard: None }),
        (3, with(&[NAME]), Call::Lookup { dir, name }),
        (4, with(&[b"\0\0\0\x3f"]), Call::Access { object, rights: 0x3f }),
        (5, with(&[]), Call::Readlink { object }),
        (6, with(&[eight, b"\0\x10\0\0"]), Call::Read { file, offset: 8, count: 1 << 20 }),
        (
            7,
            with(&[eight, b"\0\0\0\x02\0\0\0\x02\0\0\0\x02xy\0\0"]),
            Call::Write { file, offset: 8, count: 2, stable: Stable::File, data: b"xy" },
        ),
        (8, with(&[NAME, &[0; 4], ALL]), Call::Create { dir, name, how: HowToCreate::Unchecked(all()) }),
        (
            8,
            with(&[NAME, b"\0\0\0\x01", NOTHING]),
            Call::Create { dir, name, how: HowToCreate::Guarded(none) },
        ),
        (
            8,
            with(&[NAME, b"\0\0\0\x02verifier"]),
            Call::Create { dir, name, how: HowToCreate::Exclusive(*b"verifier") },
        ),
        (9, with(&[NAME, ALL]), Call::Mkdir { dir, name, new: all() }),
        (
            10,
            with(&[NAME, NOTHING, b"\0\0\0\x01t\0\0\0"]),
            Call::Symlink { dir, name, new: none, target: b"t" },
        ),
        (
            11,
            with(&[NAME, b"\0\0\0\x04", NOTHING, b"\0\0\0\x01\0\0\0\x03"]),
            Call::Mknod { dir, name, kind: kind::CHARACTER, new: none, device: (1, 3) },
        ),
        (
            11,
            with(&[NAME, b"\0\0\0\x07", ALL]),
            Call::Mknod { dir, name, kind: kind::FIFO, new: all(), device: (0, 0) },
        ),
        (
            11,
            with(&[NAME, b"\0\0\0\x02"]),
            Call::Mknod { dir, name, kind: kind::DIRECTORY, new: none, device: (0, 0) },
        ),
        (12, with(&[NAME]), Call::Remove { dir, name }),
        (13, with(&[NAME]), Call::Rmdir { dir, name }),
        (
            14,
            with(&[NAME, b"\0\0\0\x02to\0\0", b"\0\0\0\x01n\0\0\0"]),
            Call::Rename { from: dir, name, to: b"to", new_name: b"n" },
        ),
        (15, with(&[b"\0\0\0\x02to\0\0", NAME]), Call::Link { file, dir: b"to", name }),
        (
            16,
            with(&[eight, b"verifier", b"\0\0\x20\0"]),
            Call::Readdir { dir, cookie: 8, verifier: *b"verifier", count: 8_192 },
        ),
        (
            17,
            with(&[eight, b"verifier", b"\0\0\x02\0\0\0\x20\0"]),
            Call::Readdirplus { dir, cookie: 8, verifier: *b"verifier", dircount: 512, maxcount: 8_192 },
        ),
        (18, with(&[]), Call::Fsstat { root }),
        (19, with(&[]), Call::Fsinfo { root }),
        (20, with(&[]), Call::Pathconf { object }),
        (21, with(&[eight, b"\0\0\0\x09"]), Call::Commit { file, offset: 8, count: 9 }),
    ]
}

#[test]
fn arguments_have_the_bytes_of_rfc_1813() {
    let calls = calls();
    assert!((0..=21).all(|procedure| calls.iter().any(|(number, ..)| *number == procedure)));
    for (procedure, bytes, expected) in calls {
        assert_eq!(decode(procedure, &bytes), Ok(Some(expected)));
    }
    assert_eq!(decode(22, b""), Ok(None));
}

#[test]
fn arguments_that_end_early_are_garbage() {
    for (procedure, bytes, _) in calls() {
        for length in 0..bytes.len() {
            assert_eq!(decode(procedure, &bytes[..length]), Err(Garbage), "{procedure} cut to {length}");
        }
    }
}

#[test]
fn values_out_of_their_range_are_garbage() {
    let eight = &[0; 8];
    for (procedure, bytes) in [
        (1, b"\0\0\0\x41".to_vec()),
        (2, with(&[b"\0\0\0\x02"])),
        (3, with(&[b"\0\0\x10\x01"])),
        (7, with(&[eight, b"\0\0\0\0\0\0\0\x03"])),
        (7, with(&[eight, b"\0\x10\0\x01\0\0\0\0\0\x10\0\x01"])),
        (8, with(&[NAME, b"\0\0\0\x03"])),
        (11, with(&[NAME, b"\0\0\0\x08"])),
        (9, with(&[NAME, &[0; 16], b"\0\0\0\x02\0\0\0\0\x3b\x9a\xca\0"])),
    ] {
        assert_eq!(decode(procedure, &bytes), Err(Garbage), "{procedure}");
    }
}

fn device() -> Attr {
    let at = |seconds| Time { seconds, nanos: 9 };
    Attr {
        ino: 0x0c,
        size: 0x0607,
        blocks: 2,
        atime: at(1),
        mtime: at(-1),
        ctime: at(1 << 40),
        btime: at(0),
        mode: 0o020_644,
        nlink: 3,
        uid: 4,
        gid: 5,
        rdev: device_number(0x123, 0x45678).expect("Linux has it"),
        blksize: 4096,
        is_settled: true,
    }
}

#[test]
fn an_entry_has_the_bytes_of_its_fields() {
    let attr = device();
    for (name, handle) in [(&b"name"[..], [7; 52].as_slice()), (b"x", &[8; 60]), (&[b'n'; 255], &[9; 52])] {
        let (mut out, mut fields) = (Writer::default(), Writer::default());
        write_entry(&mut out, (0x0102_0304_0506, name, 0x0708_090a_0b0c), 0x0b, &attr, handle);
        fields.bool(true).u64(0x0102_0304_0506).opaque(name).u64(0x0708_090a_0b0c);
        write_post(&mut fields, 0x0b, Some(&attr));
        fields.bool(true).opaque(handle);
        assert_eq!(out.out, fields.out);
    }
}

#[test]
fn attributes_have_the_bytes_of_fattr3() {
    let attr = device();
    let mut out = Writer::default();
    write_attributes(&mut out, 0x0b, &attr);
    let expected =
        b"\0\0\0\x04\0\0\x01\xa4\0\0\0\x03\0\0\0\x04\0\0\0\x05\0\0\0\0\0\0\x06\x07\0\0\0\0\0\0\x04\0\
        \0\0\x01\x23\0\x04\x56\x78\0\0\0\0\0\0\0\x0b\0\0\0\0\0\0\0\x0c\
        \0\0\0\x01\0\0\0\x09\0\0\0\0\0\0\0\0\xff\xff\xff\xff\x3b\x9a\xc9\xff";
    assert_eq!((out.out.len(), &out.out[..]), (84, &expected[..]));
    let mut out = Writer::default();
    write_wcc(&mut out, 1, None, None);
    assert_eq!(out.out, [0; 8]);
    let mut out = Writer::default();
    write_wcc(&mut out, 0x0b, Some(&attr), Some(&attr));
    let (size, times) = (&expected[20..28], &expected[68..84]);
    assert_eq!(out.out, [b"\0\0\0\x01", size, times, b"\0\0\0\x01", expected].concat());
}

#[test]
fn device_numbers_go_there_and_back() {
    for (major, minor) in [(0, 0), (1, 3), (8, 0x101), (0xfff, 0xfffff)] {
        assert_eq!(device_parts(device_number(major, minor).expect("Linux has it")), (major, minor));
    }
    assert_eq!((device_number(0x1000, 0), device_number(0, 1 << 20)), (None, None));
}
