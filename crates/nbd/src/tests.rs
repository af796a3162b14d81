//! Conversations, with a client that is a script.

use crate::fuzz::{Memory, Script, conversation, opening, requests};
use crate::wire::{Command, Request, flag};
use crate::{Error, Fault, PIECE, REQUEST_BYTES_MAX, serve};

const SIMPLE: [u8; 4] = [0x67, 0x44, 0x66, 0x98];
const CHUNK: [u8; 4] = [0x66, 0x8e, 0x33, 0xef];

fn ask(command: Command, flags: u16, offset: u64, length: u32) -> Vec<u8> {
    Request { flags, command: Some(command), cookie: 7, offset, length }.encode().to_vec()
}

/// Answers to requests, without those to the handshake.
fn answers(memory: &Memory, structured: bool, said: &[Vec<u8>]) -> (Vec<u8>, Result<(), Error>) {
    let handshake = opening(structured);
    let talk = |sends: &[u8]| {
        let mut client = Script { sends, keeps: 64 << 20, ..Script::default() };
        let ended = serve(&mut client, memory);
        (client.got, ended)
    };
    let before = talk(&handshake).0.len();
    let (got, ended) = talk(&[&handshake[..], &said.concat()].concat());
    (got[before..].to_vec(), ended)
}

fn simple(error: u32) -> Vec<u8> {
    [&SIMPLE[..], &error.to_be_bytes(), &7_u64.to_be_bytes()].concat()
}

fn chunk(flags: u16, kind: u16, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_be_bytes();
    [&CHUNK[..], &flags.to_be_bytes(), &kind.to_be_bytes(), &7_u64.to_be_bytes(), &length, body].concat()
}

#[test]
fn what_was_written_is_read_in_both_forms_of_answers() {
    let memory = Memory::new(8192);
    let data = vec![9_u8; 512];
    let write = [ask(Command::Write, 0, 1024, 512), data.clone()].concat();
    let read = ask(Command::Read, 0, 1024, 512);
    let (got, ended) = answers(&memory, false, &[write, read.clone(), ask(Command::Disconnect, 0, 0, 0)]);
    assert!(ended.is_ok());
    assert_eq!(got, [simple(0), simple(0), data.clone()].concat());
    let (got, _) = answers(&memory, true, std::slice::from_ref(&read));
    assert_eq!(got, chunk(1, 1, &[&1024_u64.to_be_bytes()[..], &data].concat()));
}

#[test]
fn a_flush_is_answered_after_the_export() {
    let memory = Memory::new(8192);
    let write = |flags| [ask(Command::Write, flags, 0, 4), b"abcd".to_vec()].concat();
    let (got, _) = answers(&memory, false, &[write(0)]);
    assert_eq!((got, memory.done().flushes), (simple(0), 0));
    let (got, _) = answers(&memory, false, &[ask(Command::Flush, 0, 0, 0)]);
    assert_eq!((got, &memory.done().durable[..4]), (simple(0), &b"abcd"[..]));
    let (got, _) = answers(&memory, false, &[write(flag::FUA), ask(Command::WriteZeroes, flag::FUA, 1, 1)]);
    assert_eq!(got, [simple(0), simple(0)].concat());
    assert_eq!((memory.done().flushes, &memory.done().durable[..4]), (3, &b"a\0cd"[..]));
}

#[test]
fn what_lies_outside_or_is_not_allowed_is_refused_and_the_next_request_is_served() {
    let memory = Memory::new(8192);
    let size = 8192;
    let last = ask(Command::Read, 0, size - 1, 1);
    let refused = [
        (ask(Command::Read, 0, size, 1), Fault::Invalid),
        (ask(Command::Read, 0, u64::MAX, 1), Fault::Invalid),
        ([ask(Command::Write, 0, size - 1, 2), b"xx".to_vec()].concat(), Fault::NoSpace),
        (ask(Command::Trim, 0, 1, u32::MAX), Fault::Invalid),
        (ask(Command::WriteZeroes, 0, 1, u32::MAX), Fault::NoSpace),
        (ask(Command::Flush, flag::DF, 0, 0), Fault::Invalid),
        (ask(Command::BlockStatus, 0, 0, 1), Fault::Invalid),
        (
            Request { flags: 0, command: None, cookie: 7, offset: 0, length: 0 }.encode().to_vec(),
            Fault::Invalid,
        ),
    ];
    for (said, fault) in refused {
        let (got, _) = answers(&memory, false, &[said.clone(), last.clone()]);
        assert_eq!(got, [simple(fault as u32), simple(0), vec![0]].concat(), "{said:?}");
    }
    assert_eq!(memory.done().content, vec![0; 8192]);
    let (_, ended) = answers(&memory, false, &[ask(Command::Write, 0, 0, REQUEST_BYTES_MAX + 1)]);
    assert!(matches!(ended, Err(Error::Protocol(_))));
}

#[test]
fn a_snapshot_takes_no_writes() {
    let memory = Memory::new(4096);
    let go = opening(false);
    // The same handshake with a longer name.
    let at = go.len() - 10;
    let data = [&8_u32.to_be_bytes()[..], b"disk@old", &[0, 0]].concat();
    let go = [&go[..at - 4], &(data.len() as u32).to_be_bytes()[..], &data].concat();
    let write = [ask(Command::Write, 0, 0, 2), b"xx".to_vec()].concat();
    let sends = [go, write, ask(Command::Trim, 0, 0, 2), ask(Command::Read, 0, 0, 1)].concat();
    let mut client = Script { sends: &sends, keeps: 4096, ..Script::default() };
    let _ = serve(&mut client, &memory);
    let expected = [simple(1), simple(1), simple(0), vec![0]].concat();
    assert!(client.got.ends_with(&expected), "{:?}", client.got);
    assert_eq!(memory.done().content, vec![0; 4096]);
}

#[test]
fn holes_are_told_and_not_sent() {
    let memory = Memory::new(2 * PIECE);
    let write = [ask(Command::Write, 0, PIECE as u64, 4096), vec![1; 4096]].concat();
    let (got, _) = answers(&memory, true, &[write, ask(Command::BlockStatus, 0, 0, 2 * PIECE as u32)]);
    let mut body = 1_u32.to_be_bytes().to_vec();
    for number in [PIECE as u32, 3, 4096, 0, PIECE as u32 - 4096, 3] {
        body.extend_from_slice(&number.to_be_bytes());
    }
    assert_eq!(got, [simple(0), chunk(1, 5, &body)].concat());
    let (got, _) = answers(&memory, true, &[ask(Command::BlockStatus, flag::REQ_ONE, 0, 2 * PIECE as u32)]);
    assert_eq!(got, chunk(1, 5, &body[..12]));
    let (got, _) = answers(&memory, true, &[ask(Command::Read, 0, 0, PIECE as u32 + 4096)]);
    let hole = [&0_u64.to_be_bytes()[..], &(PIECE as u32).to_be_bytes()].concat();
    let data = [&(PIECE as u64).to_be_bytes()[..], &[1; 4096]].concat();
    assert_eq!(got, [chunk(0, 2, &hole), chunk(1, 1, &data)].concat());
    let (got, _) = answers(&memory, true, &[ask(Command::Read, flag::DF, 0, PIECE as u32 + 1)]);
    assert_eq!(got, chunk(1, 0x8001, &[&75_u32.to_be_bytes()[..], &[0, 0]].concat()));
}

#[test]
fn exports_are_listed_and_others_are_refused_with_a_sentence() {
    let memory = Memory::new(4096);
    let option = |number: u32, data: &[u8]| {
        [&b"IHAVEOPT"[..], &number.to_be_bytes(), &(data.len() as u32).to_be_bytes(), data].concat()
    };
    let name = [&7_u32.to_be_bytes()[..], b"nothing", &[0, 0]].concat();
    let said =
        [3_u32.to_be_bytes().to_vec(), option(3, b""), option(6, &name), option(99, b"x"), option(2, b"")];
    let mut client = Script { sends: &said.concat(), keeps: 4096, ..Script::default() };
    assert!(serve(&mut client, &memory).is_ok());
    let text = String::from_utf8_lossy(&client.got).into_owned();
    assert!(text.starts_with("NBDMAGICIHAVEOPT\0\u{3}"), "{text:?}");
    assert!(text.contains("disk@old") && text.contains("there is no 'nothing'"), "{text:?}");
    assert!(text.contains("the option is not offered"), "{text:?}");
    // Options without end are not waited for.
    let many = [3_u32.to_be_bytes().to_vec(), option(3, b"").repeat(crate::OPTIONS_MAX + 1)].concat();
    let mut client = Script { sends: &many, ..Script::default() };
    assert!(matches!(serve(&mut client, &memory), Err(Error::Protocol(_))));
}

/// The fuzz target, bounded: conversations that make sense, damaged at random places.
#[test]
fn any_bytes_are_answered_or_refused() {
    // A generator of one's own: this room has no dependencies.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state % bound as u64).unwrap()
    };
    let commands = [
        Command::Read,
        Command::Write,
        Command::Flush,
        Command::Trim,
        Command::Cache,
        Command::WriteZeroes,
        Command::BlockStatus,
    ];
    for _ in 0..2_000 {
        let mut said = Vec::new();
        for _ in 0..1 + below(6) {
            let command = commands[below(commands.len())];
            let length = below(if command == Command::Write { 2_000 } else { 2 * PIECE }) as u32;
            said.extend(ask(command, below(32) as u16, below(2 * PIECE) as u64, length));
            if command == Command::Write {
                said.resize(said.len() + length as usize, 0xab);
            }
        }
        for _ in 0..below(3) {
            let at = below(said.len());
            said[at] = below(256) as u8;
        }
        requests(&said);
        let mut whole = [opening(below(2) == 0), said].concat();
        for _ in 0..1 + below(4) {
            let at = below(whole.len().min(100));
            whole[at] = below(256) as u8;
        }
        conversation(&whole);
    }
}
