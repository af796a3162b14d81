//! Entries for fuzzers: any bytes, as a client sends them, are read or refused.

use crate::handle::{HandleKey, export_of, parts};
use crate::rpc::{Assembler, Call, Credential, GROUPS_MAX, RECORD_MAX};
use crate::xdr::{Reader, Writer};
use crate::{acl3, finder, mount3, nfs3, nlm4, nsm};

/// A stream of records, in pieces of any length: nothing is kept beyond what came, and the pieces
/// make no difference.
pub fn stream(bytes: &[u8]) {
    let records = |piece: usize, takes_over: bool| {
        let (mut assembler, mut records) = (Assembler::default(), Vec::new());
        for piece in bytes.chunks(piece) {
            let mut owned = piece.to_vec();
            let is_taken = takes_over && assembler.take_over(&mut owned);
            let mut input = if is_taken { &[] } else { piece };
            if is_taken {
                records.extend(assembler.feed(&mut input).expect("its length was looked at"));
            }
            while !input.is_empty() {
                match assembler.feed(&mut input) {
                    Ok(record) => records.extend(record),
                    Err(_) => return (records, None),
                }
                assert!(assembler.kept() <= bytes.len().min(RECORD_MAX));
            }
        }
        (records, Some(assembler.is_between()))
    };
    let whole = records(bytes.len().max(1), false);
    for takes_over in [false, true] {
        assert_eq!(whole, records(1, takes_over));
        assert_eq!(whole, records(7, takes_over));
        assert_eq!(whole, records(bytes.len().max(1), takes_over));
    }
}

/// The head of a call: its credential is within bounds, and what follows are the arguments.
pub fn call(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let Ok(call) = Call::decode(&mut reader) else { return };
    assert!(bytes.ends_with(reader.rest()));
    if let Ok(Credential::Sys { groups, .. }) = &call.credential {
        assert!(groups.len() <= GROUPS_MAX);
    }
}

/// Arguments of NFS 3; the first byte chooses the procedure.
pub fn nfs_arguments(bytes: &[u8]) {
    let Some((procedure, bytes)) = bytes.split_first() else { return };
    let procedure = u32::from(procedure % 28);
    let mut reader = Reader::new(bytes);
    if let Some(procedure) = procedure.checked_sub(24) {
        return acl_arguments(procedure, &mut reader);
    }
    match nfs3::Call::decode(procedure, &mut reader) {
        Ok(None) => assert!(procedure > 21),
        Ok(Some(nfs3::Call::Write { data, .. })) => assert!(data.len() <= nfs3::TRANSFER_MAX),
        Ok(Some(_)) => assert!(bytes.ends_with(reader.rest())),
        Err(_) => assert!(procedure <= 21),
    }
}

/// Arguments of the lists of NFS 3: one that is read is none or has whole entries, and is the same
/// when it is written and read again.
fn acl_arguments(procedure: u32, reader: &mut Reader<'_>) {
    let Ok(Some(nfs3::Call::Setacl { object, access, default })) = acl3::decode(procedure, reader) else {
        return;
    };
    let is_whole = |list: &Vec<u8>| list.is_empty() || list.len() % 8 == 4 && list.len() > 4;
    assert!(access.iter().chain(&default).all(is_whole));
    let (Some(access), Some(default)) = (access.filter(|list| !list.is_empty()), default) else { return };
    let mut out = Writer::default();
    let given = acl3::wanted::ACCESS | acl3::wanted::DEFAULT;
    out.opaque(object);
    acl3::write(&mut out, given, Some(&access), Some(&default), (0, 0, 0));
    let again = acl3::decode(2, &mut Reader::new(&out.out));
    assert_eq!(again, Ok(Some(nfs3::Call::Setacl { object, access: Some(access), default: Some(default) })));
}

/// Arguments of the mount protocol; the first byte chooses the procedure.
pub fn mount_arguments(bytes: &[u8]) {
    let Some((procedure, bytes)) = bytes.split_first() else { return };
    let procedure = u32::from(procedure % 8);
    match mount3::Call::decode(procedure, &mut Reader::new(bytes)) {
        Ok(Some(mount3::Call::Mnt(path) | mount3::Call::Umnt(path))) => {
            assert!(path.len() <= mount3::PATH_MAX)
        }
        Ok(call) => assert_eq!(call.is_none(), procedure > 5),
        Err(_) => assert!(matches!(procedure, 1 | 3)),
    }
}

/// Arguments of the lock protocol; the first byte chooses the procedure. A lock that is written and
/// read again is the same, and a range has its ends in order.
pub fn lock_arguments(bytes: &[u8]) {
    let Some((procedure, bytes)) = bytes.split_first() else { return };
    let procedure = u32::from(procedure % 25);
    let call = nlm4::Call::decode(procedure, &mut Reader::new(bytes));
    let lock = match call {
        Ok(None) => return assert!(matches!(procedure, 5..=19 | 24)),
        Ok(Some(
            nlm4::Call::Test { lock, .. }
            | nlm4::Call::Lock { lock, .. }
            | nlm4::Call::Cancel { lock, .. }
            | nlm4::Call::Unlock { lock, .. },
        )) => lock,
        _ => return,
    };
    if let Some((start, last)) = lock.range() {
        assert!(start <= last);
    }
    let mut again = Writer::default();
    lock.write(again.opaque(b""));
    let read = nlm4::Call::decode(4, &mut Reader::new(&again.out));
    assert_eq!(read, Ok(Some(nlm4::Call::Unlock { cookie: b"", lock })));
}

/// Arguments of the port mapper and of the status protocol; the first two bytes choose the version
/// and the procedure. An answer of the port mapper is no longer than what stands in it.
pub fn small_arguments(bytes: &[u8]) {
    let [version, procedure, bytes @ ..] = bytes else { return };
    let (version, procedure) = (u32::from(version % 3 + 2), u32::from(procedure % 8));
    if let Ok(Some(call)) = finder::Call::decode(version, procedure, &mut Reader::new(bytes)) {
        let mut out = Writer::default();
        finder::Ports { tcp: 2_049, udp: 2_049 }.answer(
            &call,
            version,
            ([127, 0, 0, 1], 111).into(),
            &mut out,
        );
        assert!(out.out.len() <= if call == finder::Call::Dump { 512 } else { 64 });
    }
    if let Ok(Some(nsm::Call::Notify { name, .. })) = nsm::Call::decode(procedure, &mut Reader::new(bytes)) {
        assert!(bytes.len() > name.len() && (nsm::is_same(name, name) || name.is_empty()));
    }
    if let Some(port) = finder::port_of_universal(bytes) {
        let made = finder::universal(([127, 0, 0, 1], port).into());
        assert_eq!(finder::port_of_universal(made.as_bytes()), Some(port));
    }
}

/// Answers of a client to calls of ours.
pub fn reply(bytes: &[u8]) {
    if let Some(results) = crate::rpc::results(bytes) {
        assert!(bytes.ends_with(results));
    }
}

/// A handle: bytes that the key did not sign open nothing.
pub fn handle(bytes: &[u8]) {
    let key = HandleKey::of(&[7; 16]);
    if let Some(file) = key.open(bytes) {
        let export = export_of(bytes).expect("it was opened");
        assert_eq!(*key.sign(export, file), *bytes);
    }
    // Its parts are all of it but the tag, also if another key signed it.
    if let Some((export, file)) = parts(bytes) {
        let signed = key.sign(export, file);
        assert_eq!((signed.len(), &signed[..bytes.len() - 16]), (bytes.len(), &bytes[..bytes.len() - 16]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A short run of what the fuzzers do, with drawn bytes.
    #[test]
    fn any_bytes_are_read_or_refused() {
        let mut seed = 11_u64;
        for round in 0..20_000_usize {
            let bytes: Vec<u8> = (0..round % 160)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let drawn = (seed >> 33) as u8;
                    // Most bytes of the protocol are zeros and small numbers.
                    if drawn < 160 {
                        0
                    } else if drawn < 230 {
                        drawn % 8
                    } else {
                        drawn
                    }
                })
                .collect();
            stream(&bytes);
            call(&bytes);
            nfs_arguments(&bytes);
            mount_arguments(&bytes);
            handle(&bytes);
            lock_arguments(&bytes);
            small_arguments(&bytes);
            reply(&bytes);
        }
    }
}
