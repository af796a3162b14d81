//! Access lists of NFS version 3: a program beside it that no RFC has. Solaris made it, and Linux
//! clients ask for it where a file system is mounted without `noacl`.
//!
//! A list is the number of its entries, twice, and the entries: tag, id, permissions. Tags are
//! those of POSIX.1e as Linux numbers them; each of a default list has one bit more. A list that
//! says no more than the mode has a mask all the same, with the bits of the owning group: Solaris
//! knows no lists of three entries. (Facts: Linux, `fs/nfs_common/nfsacl.c`.)

use crate::nfs3::{Call, Handle, handle};
use crate::xdr::{Garbage, Reader, Result, Writer};

/// Number of the program.
pub const PROGRAM: u32 = 100_227;
/// Its version.
pub const VERSION: u32 = 3;
/// Procedures of it count from here, where they stand beside those of NFS.
pub const FIRST: u32 = 0x100;
/// Most entries of a list.
const ENTRIES_MAX: u32 = 1_024;
/// Bit of each tag of a default list.
const OF_DEFAULT: u32 = 0x1000;

const OWNER: u32 = 0x01;
const USER: u32 = 0x02;
const OWNING_GROUP: u32 = 0x04;
const GROUP: u32 = 0x08;
const MASK: u32 = 0x10;
const OTHERS: u32 = 0x20;

/// Which lists a call is about.
pub mod wanted {
    /// The access list.
    pub const ACCESS: u32 = 0x1;
    /// The number of its entries.
    pub const ACCESS_COUNT: u32 = 0x2;
    /// The default list.
    pub const DEFAULT: u32 = 0x4;
    /// The number of its entries.
    pub const DEFAULT_COUNT: u32 = 0x8;
    /// All of them.
    pub const ALL: u32 = 0xf;
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
struct Entry {
    tag: u32,
    id: u32,
    bits: u32,
}

/// Reads the arguments of a procedure; `None` if there is no such procedure.
///
/// # Errors
/// The arguments cannot be read.
pub fn decode<'a>(procedure: u32, reader: &mut Reader<'a>) -> Result<Option<Call<'a>>> {
    Ok(Some(match procedure {
        0 => Call::Null,
        1 => Call::Getacl { object: handle(reader)?, wanted: lists(reader)? },
        2 => {
            let (object, given): (Handle<'a>, u32) = (handle(reader)?, lists(reader)?);
            let (access, default) = (read(reader)?, read(reader)?);
            Call::Setacl {
                object,
                access: access.filter(|_| given & wanted::ACCESS != 0),
                default: default.filter(|_| given & wanted::DEFAULT != 0),
            }
        }
        _ => return Ok(None),
    }))
}

fn lists(reader: &mut Reader<'_>) -> Result<u32> {
    Some(reader.u32()?).filter(|bits| bits & !wanted::ALL == 0).ok_or(Garbage)
}

/// A list as `posix` takes it; empty if it has no entries, none if they did not come along.
fn read(reader: &mut Reader<'_>) -> Result<Option<Vec<u8>>> {
    let (told, count) = (reader.u32()?, reader.u32()?);
    if told > ENTRIES_MAX || count != told && count != 0 {
        return Err(Garbage);
    }
    let mut entries = Vec::new();
    for _ in 0..count {
        let (tag, id, bits) = (reader.u32()? & !OF_DEFAULT, reader.u32()?, reader.u32()?);
        // Of a mask Solaris sets more bits than those that mean something.
        let bits = if tag == MASK { bits & 7 } else { bits };
        if ![OWNER, USER, OWNING_GROUP, GROUP, MASK, OTHERS].contains(&tag) || bits > 7 {
            return Err(Garbage);
        }
        entries.push(Entry { tag, id, bits });
    }
    entries.sort_unstable();
    // The mask that a list of three entries has on the wire.
    let bits_of = |tag| entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.bits);
    if entries.len() == 4 && bits_of(MASK).is_some_and(|bits| bits_of(OWNING_GROUP) == Some(bits)) {
        entries.retain(|entry| entry.tag != MASK);
    }
    if entries.is_empty() {
        return Ok((told == 0).then(Vec::new));
    }
    let mut out = 2_u32.to_le_bytes().to_vec();
    for Entry { tag, id, bits } in entries {
        out.extend_from_slice(&(tag as u16).to_le_bytes());
        out.extend_from_slice(&(bits as u16).to_le_bytes());
        let id = if matches!(tag, USER | GROUP) { id } else { u32::MAX };
        out.extend_from_slice(&id.to_le_bytes());
    }
    Ok(Some(out))
}

/// Entries of a list of `posix`.
fn entries(list: &[u8]) -> Vec<Entry> {
    let half = |bytes: &[u8]| u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
    let entry = |bytes: &[u8]| Entry {
        tag: half(bytes),
        bits: half(&bytes[2..]),
        id: half(&bytes[4..]) | half(&bytes[6..]) << 16,
    };
    list.get(4..).unwrap_or_default().chunks_exact(8).map(entry).collect()
}

/// The results of GETACL behind the attributes: the access list, or what `mode` says, and the
/// default list.
pub fn write(
    out: &mut Writer,
    asked: u32,
    access: Option<&[u8]>,
    default: Option<&[u8]>,
    (mode, owner, group): (u32, u32, u32),
) {
    out.u32(asked);
    let of_mode = [(OWNER, 6), (OWNING_GROUP, 3), (OTHERS, 0)];
    let of_mode = of_mode.map(|(tag, shift)| Entry { tag, id: 0, bits: mode >> shift & 7 });
    let access = access.map_or_else(|| of_mode.to_vec(), entries);
    let access = if asked & (wanted::ACCESS | wanted::ACCESS_COUNT) == 0 { Vec::new() } else { access };
    let default = if asked & (wanted::DEFAULT | wanted::DEFAULT_COUNT) == 0 { None } else { default };
    let default = default.map(entries).unwrap_or_default();
    for (mut list, with, bit) in [(access, wanted::ACCESS, 0), (default, wanted::DEFAULT, OF_DEFAULT)] {
        if list.iter().map(|entry| entry.tag).eq([OWNER, OWNING_GROUP, OTHERS]) {
            list.insert(2, Entry { tag: MASK, id: 0, bits: list[1].bits });
        }
        let count = u32::try_from(list.len()).expect("entries fit in one attribute");
        let written = if asked & with == 0 { &[] } else { &list[..] };
        out.u32(count).u32(written.len() as u32);
        for Entry { tag, id, bits } in written {
            let id = match *tag {
                OWNER => owner,
                OWNING_GROUP => group,
                USER | GROUP => *id,
                _ => 0,
            };
            out.u32(tag | bit).u32(id).u32(*bits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: u32 = u32::MAX;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = 2_u32.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            bytes.extend_from_slice(&tag.to_le_bytes());
            bytes.extend_from_slice(&bits.to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    fn named() -> Vec<u8> {
        list(&[(1, 6, NONE), (2, 7, 1000), (4, 4, NONE), (8, 5, 50), (16, 7, NONE), (32, 0, NONE)])
    }

    fn setacl(given: u32, lists: &[u8]) -> Result<Option<Call<'static>>> {
        let mut out = Writer::default();
        out.opaque(b"file").u32(given);
        out.out.extend_from_slice(lists);
        decode(2, &mut Reader::new(out.out.leak()))
    }

    /// The bytes of both lists behind the mask.
    fn written(access: Option<&[u8]>, default: Option<&[u8]>) -> Vec<u8> {
        let mut out = Writer::default();
        write(&mut out, wanted::ALL, access, default, (0o640, 1000, 100));
        out.out.split_off(4)
    }

    #[test]
    fn a_list_comes_back_as_it_went() {
        let wire = written(Some(&named()), Some(&named()));
        let call = setacl(wanted::ALL, &wire).unwrap().unwrap();
        assert_eq!(call, Call::Setacl { object: b"file", access: Some(named()), default: Some(named()) });
        let call = setacl(wanted::ACCESS, &wire).unwrap().unwrap();
        assert_eq!(call, Call::Setacl { object: b"file", access: Some(named()), default: None });
    }

    #[test]
    fn the_mode_is_a_list_with_a_mask_and_a_list_without_entries_is_none() {
        let wire = written(None, None);
        let units: Vec<u32> =
            wire.chunks(4).map(|unit| u32::from_be_bytes(unit.try_into().unwrap())).collect();
        let access = [4, 4, 1, 1000, 6, 4, 100, 4, 16, 0, 4, 32, 0, 0];
        assert_eq!(units, [&access[..], &[0, 0]].concat());
        let minimal = list(&[(1, 6, NONE), (4, 4, NONE), (32, 0, NONE)]);
        let call = setacl(wanted::ACCESS | wanted::DEFAULT, &wire).unwrap().unwrap();
        assert_eq!(call, Call::Setacl { object: b"file", access: Some(minimal), default: Some(Vec::new()) });
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let wire = written(Some(&named()), None);
        for length in (0..wire.len()).step_by(4) {
            assert_eq!(setacl(wanted::ALL, &wire[..length]), Err(Garbage), "cut to {length}");
        }
        // Counts that differ, too many, a tag that is none, too many permissions, lists unknown.
        for (at, value) in [(4, 5_u32), (0, 1_025), (8, 3), (16, 8)] {
            let mut bad = wire.clone();
            bad[at..at + 4].copy_from_slice(&value.to_be_bytes());
            assert_eq!(setacl(wanted::ALL, &bad), Err(Garbage), "{value} at {at}");
        }
        assert_eq!(setacl(16, &wire), Err(Garbage));
        assert_eq!(decode(3, &mut Reader::new(b"")), Ok(None));
    }
}
