//! Registers and writers: exactly one wins, nothing torn counts, unknown outcomes come out right,
//! what is no register is refused in words.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use steadfast_anchor::memory::Fault;
use steadfast_anchor::{
    Anchor, AnchorRecord, Error, FileRegister, FileWitness, Holding, LogHead, MemoryRegister, MemoryWitness,
    Register, RegisterError, Root, Start, SwapError, Witness,
};
use steadfast_crypto::Key;
use steadfast_env::Env;
use steadfast_format::{
    Address, BlockKind, BlockPointer, Column, Compression, DeviceId, PoolGuid, SegmentId, Stamp, Txg,
    Uberblock,
};

const POOL: PoolGuid = PoolGuid(7);

fn root(txg: u64, parent: [u8; 32], anchor: u64) -> Root {
    let pointer = |kind| BlockPointer {
        hash: [1; 32],
        copies: [Address { segment: SegmentId(2), offset: 0 }, Address::NONE, Address::NONE],
        psize: 100,
        lsize: 200,
        birth: Txg(1),
        written: Txg(0),
        stamp: Stamp::default(),
        compression: Compression::Lz4,
        kind,
        level: 0,
    };
    let uberblock = Uberblock {
        keyed: false,
        pool: POOL,
        txg: Txg(txg),
        time_ns: 9,
        devices: 1,
        meta: pointer(BlockKind::Meta),
        tail: pointer(BlockKind::Tail),
        tail_places: [
            Some(steadfast_format::Placement::Plain(Column { device: DeviceId(1), slot: 4 })),
            None,
        ],
        parent,
        anchor,
        log: None,
    };
    let bytes = uberblock.encode(steadfast_crypto::hash);
    Root { tag: Uberblock::bound_and_tag(&bytes).unwrap().1, uberblock }
}

/// The root after the one that is anchored.
fn next(anchor: &Anchor) -> Root {
    match anchor.held() {
        Some((held, _)) => root(held.uberblock.txg.0 + 1, held.tag, anchor.next_seq()),
        None => root(1, [0; 32], 1),
    }
}

fn advance(anchor: &Anchor) -> Result<(), Error> {
    anchor.advance(next(anchor), Some(LogHead::default()))
}

fn key() -> Key {
    Key::from_bytes([5; 32])
}

fn begin(env: &Env, register: &Arc<dyn Register>) -> Anchor {
    let new = Start::New { replace: false, epoch: 1 };
    let anchor = Anchor::new(env, POOL, Arc::clone(register), None, Some(key()), new);
    advance(&anchor).expect("the first record");
    anchor
}

fn take_over(env: &Env, register: &Arc<dyn Register>) -> Result<Anchor, Error> {
    let holding = Holding::read(&**register, POOL, Some(&key()))?;
    let start = Start::TakeOver(holding);
    let anchor = Anchor::new(env, POOL, Arc::clone(register), None, Some(key()), start);
    anchor.take_over(None, 0).map(|()| anchor)
}

fn file(path: &Path) -> Arc<dyn Register> {
    Arc::new(FileRegister::new(path, Env::real().clock))
}

fn memory() -> (Arc<MemoryRegister>, Arc<dyn Register>) {
    let register = Arc::new(MemoryRegister::new("memory"));
    (Arc::clone(&register), register)
}

#[test]
fn a_register_counts_up_and_is_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let (env, path) = (Env::seeded(1), folder.path().join("tank.anchor"));
    let register = file(&path);
    let anchor = begin(&env, &register);
    for _ in 0..5 {
        advance(&anchor).unwrap();
    }
    anchor.advance_log(LogHead { seq: 3, head: [4; 32] }).unwrap();
    let (held, log) = anchor.held().unwrap();
    assert_eq!((held.uberblock.txg, log.seq), (Txg(6), 3));
    let found = Holding::read(&*register, POOL, Some(&key())).unwrap();
    assert_eq!((found.root(), found.record().seq, found.record().epoch), (held, 7, 1));
    assert_eq!(found.record().log, log);
    use std::os::unix::fs::MetadataExt;
    let metadata = fs::metadata(&path).unwrap();
    assert_eq!((metadata.len(), metadata.mode() & 0o777), (8192, 0o600));
}

/// Attack 22, at the register: of two that open one record, exactly one takes over, and the writer
/// before is fenced.
#[test]
fn of_two_who_take_over_one_record_exactly_one_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tank.anchor");
    let before = begin(&Env::seeded(1), &file(&path));
    for round in 0..20 {
        let holding = Holding::read(&*file(&path), POOL, Some(&key())).unwrap();
        let epoch = holding.record().epoch;
        let contenders: Vec<_> = (0..4)
            .map(|index| {
                // Each with a descriptor of its own, as another process would have.
                let (env, register, holding) =
                    (Env::seeded(round * 10 + index), file(&path), holding.clone());
                std::thread::spawn(move || {
                    let start = Start::TakeOver(holding);
                    let anchor = Anchor::new(&env, POOL, register, None, Some(key()), start);
                    let won = anchor.take_over(None, 0);
                    (won, anchor)
                })
            })
            .collect();
        let results: Vec<_> = contenders.into_iter().map(|thread| thread.join().unwrap()).collect();
        let won = results.iter().filter(|(result, _)| result.is_ok()).count();
        assert_eq!(won, 1, "round {round}");
        for (result, anchor) in &results {
            match result {
                Ok(()) => advance(anchor).expect("the winner goes on"),
                Err(Error::Fenced { epoch: now, .. }) => {
                    assert_eq!(*now, epoch + 1);
                    assert!(
                        anchor.check().is_err() && advance(anchor).is_err(),
                        "a loser stays one [anchor.5]"
                    );
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(matches!(before.check(), Err(Error::Fenced { ours_epoch: 1, .. })));
    assert!(matches!(advance(&before), Err(Error::Fenced { .. })));
    assert!(before.status().fenced.is_some());
}

#[test]
fn writers_that_race_lose_no_swap_and_do_none_twice() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tank.anchor");
    begin(&Env::seeded(1), &file(&path));
    let threads: Vec<_> = (0..4)
        .map(|index| {
            let path = path.clone();
            std::thread::spawn(move || {
                let mut won = 0;
                for round in 0..50 {
                    won += u64::from(take_over(&Env::seeded(index * 100 + round), &file(&path)).is_ok());
                }
                won
            })
        })
        .collect();
    let won: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    let found = Holding::read(&*file(&path), POOL, Some(&key())).unwrap();
    assert_eq!((found.record().epoch, found.record().seq), (1 + won, 1 + won));
}

#[test]
fn a_torn_swap_leaves_the_record_before() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tank.anchor");
    let register = file(&path);
    let anchor = begin(&Env::seeded(1), &register);
    advance(&anchor).unwrap();
    let before = register.read().unwrap();
    let old = fs::read(&path).unwrap();
    advance(&anchor).unwrap();
    let (new, after) = (fs::read(&path).unwrap(), register.read().unwrap());
    let slot = if old[..4096] == new[..4096] { 4096 } else { 0 };
    // Cut at any sector, and at bytes within the first.
    for cut in (0..64).map(|at| at * 17).chain((0..=8).map(|sector| sector * 512)) {
        let mut torn = old.clone();
        torn[slot..slot + cut].copy_from_slice(&new[slot..slot + cut]);
        fs::write(&path, &torn).unwrap();
        let found = register.read().unwrap();
        let whole = torn == new || torn[slot..slot + 1056] == new[slot..slot + 1056];
        assert!(found == if whole { after.clone() } else { before.clone() }, "cut at {cut}");
        // And it goes on from there.
        register.swap(&found, &after).unwrap();
        assert!(register.read().unwrap() == after);
    }
}

#[test]
fn an_unknown_outcome_comes_out_right() {
    for (faults, done) in [
        (&[Fault::Before][..], true),
        (&[Fault::After], true),
        (&[Fault::Before, Fault::After, Fault::After, Fault::Before], true),
        (&[Fault::Before; 5], false),
        (&[Fault::After; 5], true),
    ] {
        let (raw, register) = memory();
        let anchor = begin(&Env::seeded(1), &register);
        let (seq, swaps) = (anchor.status().seq, raw.swaps());
        raw.arm(faults);
        let result = advance(&anchor);
        // After five lost answers it may have been done, and the writer does not know it: it must
        // not go on either.
        let known = faults.len() < 5;
        assert_eq!(result.is_ok(), known, "{faults:?}");
        assert_eq!(raw.swaps() - swaps, u64::from(done), "{faults:?}: never twice");
        assert_eq!(anchor.status().seq, seq + u64::from(known));
        if !known {
            assert!(matches!(result, Err(Error::Register(RegisterError::Unreachable { .. }))));
            // The next host to open it finds the one or the other, and takes over.
            assert_eq!(
                take_over(&Env::seeded(2), &register).unwrap().status().seq,
                seq + u64::from(done) + 1
            );
        }
    }
}

/// Attack 26, at the register: a record that was not made with the pool's key is refused, and so is
/// another pool's.
#[test]
fn a_record_without_the_key_or_of_another_pool_is_refused() {
    let (raw, register) = memory();
    begin(&Env::seeded(1), &register);
    let read = |pool, key: Option<&Key>| Holding::read(&*register, pool, key);
    read(POOL, Some(&key())).unwrap();
    assert!(matches!(read(POOL, None), Err(Error::Forged { .. })));
    assert!(matches!(read(POOL, Some(&Key::from_bytes([6; 32]))), Err(Error::Forged { .. })));
    assert!(matches!(read(PoolGuid(8), Some(&key())), Err(Error::Foreign { found: POOL, .. })));
    let mut forged = raw.peek().unwrap();
    forged[24] += 1; // seq: it would count as newer
    raw.put(Some(forged));
    assert!(matches!(read(POOL, Some(&key())), Err(Error::Forged { .. })));
    // A writer that finds it there is fenced, though it is nobody's record.
    let mut bad = raw.peek().unwrap();
    bad[0] = 0;
    raw.put(Some(bad));
    assert!(matches!(read(POOL, Some(&key())), Err(Error::Undecodable { .. })));
    raw.put(None);
    assert!(matches!(read(POOL, Some(&key())), Err(Error::Register(RegisterError::Missing { .. }))));
}

#[test]
fn what_is_no_register_is_refused_in_words_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let holding = |name: &str| Holding::read(&*file(&at(name)), POOL, None).map(|_| ()).unwrap_err();
    assert!(matches!(holding("none"), Error::Register(RegisterError::Missing { .. })));
    assert!(matches!(holding("none/deeper"), Error::Register(RegisterError::Missing { .. })));
    fs::create_dir(at("folder")).unwrap();
    for (name, bytes) in [
        ("empty", vec![]),
        ("short", vec![0; 8191]),
        ("long", vec![0; 8193]),
        ("zeros", vec![0; 8192]),
        ("ones", vec![0xff; 8192]),
    ] {
        fs::write(at(name), &bytes).unwrap();
        let error = holding(name);
        assert!(matches!(error, Error::Register(RegisterError::Damaged { .. })), "{name}: {error}");
        assert_eq!(file(&at(name)).check_vacant(false).is_ok(), bytes.is_empty(), "{name}");
        assert_eq!(fs::read(at(name)).unwrap(), bytes, "{name}");
    }
    assert!(matches!(holding("folder"), Error::Register(RegisterError::Damaged { .. })));
    for force in [false, true] {
        let unfit = file(&at("folder")).check_vacant(force).unwrap_err();
        assert!(matches!(unfit, RegisterError::Unfit { .. }), "{unfit}");
        let unfit = file(&at("no/folder")).check_vacant(force).unwrap_err();
        assert!(matches!(unfit, RegisterError::Unfit { .. }), "{unfit}");
    }
    // A register in use is another pool's business; one that was retired is free.
    let register = file(&at("used"));
    let anchor = begin(&Env::seeded(1), &register);
    let occupied = register.check_vacant(false).unwrap_err();
    assert_eq!(occupied.to_string(), format!("{} holds the anchor of the pool 7", at("used").display()));
    anchor.retire(next(&anchor)).unwrap();
    register.check_vacant(false).unwrap();
}

#[test]
fn a_register_that_was_put_back_or_exchanged_while_in_use_fences() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tank.anchor");
    let register = file(&path);
    let anchor = begin(&Env::seeded(1), &register);
    advance(&anchor).unwrap();
    let old = fs::read(&path).unwrap();
    for _ in 0..3 {
        advance(&anchor).unwrap();
    }
    // Another file under the same name, as a restore from a backup makes.
    fs::write(folder.path().join("copy"), old).unwrap();
    fs::rename(folder.path().join("copy"), &path).unwrap();
    assert!(matches!(advance(&anchor), Err(Error::Fenced { seq: 2, ours_seq: 5, .. })));

    fs::remove_file(&path).unwrap();
    let register = file(&path);
    let anchor = begin(&Env::seeded(2), &register);
    fs::remove_file(&path).unwrap();
    assert!(matches!(advance(&anchor), Err(Error::Register(RegisterError::Missing { .. }))));
    assert!(!path.exists(), "a register that is gone is not made anew by a commit");
}

#[test]
fn what_a_host_is_to_remember_later_is_dropped_by_a_writer_that_is_fenced_or_retired() {
    let (env, (raw, register)) = (Env::seeded(1), memory());
    let witness = Arc::new(MemoryWitness::default());
    let seq = |bytes: Option<Box<steadfast_format::anchor::RecordBytes>>| {
        bytes.map(|bytes| AnchorRecord::decode(&bytes[..]).unwrap().seq)
    };
    let new = Start::New { replace: false, epoch: 1 };
    let known = Some(Arc::clone(&witness) as Arc<dyn Witness>);
    let anchor = Anchor::new(&env, POOL, Arc::clone(&register), known, Some(key()), new);
    (0..2).for_each(|_| advance(&anchor).unwrap());
    let log = |seq| LogHead { seq, head: [4; 32] };
    anchor.advance_log(log(1)).unwrap();
    assert_eq!((seq(raw.peek()), seq(witness.recall())), (Some(3), Some(2)));
    anchor.remember();
    assert_eq!(seq(witness.recall()), Some(3));
    anchor.advance_log(log(2)).unwrap();
    take_over(&env, &register).unwrap();
    anchor.check().expect_err("fenced");
    anchor.remember();
    assert_eq!(seq(witness.recall()), Some(3), "the other one's memory may be newer");
    anchor.forget();
    anchor.remember();
    assert_eq!(seq(witness.recall()), None);
}

/// Attack 9, at the register: put back together with everything but the host's memory.
#[test]
fn a_host_that_saw_more_is_a_witness() {
    let folder = tempfile::tempdir().unwrap();
    let seen = |path: &Path| -> Arc<dyn Witness> { Arc::new(FileWitness::new(path)) };
    for witness in [seen(&folder.path().join("deep/7.seen")), Arc::new(MemoryWitness::default())] {
        let (env, (raw, register)) = (Env::seeded(1), memory());
        let new = Start::New { replace: false, epoch: 1 };
        let anchor =
            Anchor::new(&env, POOL, Arc::clone(&register), Some(Arc::clone(&witness)), Some(key()), new);
        advance(&anchor).unwrap();
        let old = raw.peek();
        advance(&anchor).unwrap();
        let newer = raw.peek();
        let judge =
            || Holding::read(&*register, POOL, Some(&key())).unwrap().check_witness(&*register, &*witness);
        judge().unwrap();
        raw.put(old.clone());
        assert!(matches!(judge(), Err(Error::Behind { seq: 1, seen_seq: 2, seen_txg: Txg(2), .. })));
        // A fork: as many records as were seen, and others.
        take_over(&env, &register).unwrap();
        assert!(matches!(judge(), Err(Error::Behind { seq: 2, seen_seq: 2, .. })));
        take_over(&env, &register).unwrap();
        assert!(
            matches!(judge(), Err(Error::Behind { seq: 3, seen_seq: 2, .. })),
            "not a child of what was seen"
        );
        raw.put(newer);
        take_over(&env, &register).unwrap();
        judge().expect("a takeover elsewhere follows what was seen");
        anchor.forget();
        raw.put(old);
        judge().expect("a host that saw nothing cannot know");
    }
}

#[test]
fn a_damaged_witness_is_as_good_as_none() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("7.seen");
    let witness = FileWitness::new(&path);
    assert!(witness.recall().is_none());
    for bytes in [&b""[..], b"x", &[0xff; 8192]] {
        fs::write(&path, bytes).unwrap();
        assert!(witness.recall().is_none());
    }
    let (raw, register) = memory();
    begin(&Env::seeded(1), &register);
    FileWitness::new(&path).note(&raw.peek().unwrap(), true).unwrap();
    assert_eq!(witness.recall(), raw.peek());
}

#[test]
fn a_lock_that_nobody_releases_ends_in_a_sentence() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tank.anchor");
    // Time passes only where somebody sleeps: the patience is over at once.
    let env = Env::seeded(1);
    let register: Arc<dyn Register> = Arc::new(FileRegister::new(&path, env.clock.clone()));
    let anchor = begin(&env, &register);
    let held = fs::File::open(&path).unwrap();
    held.lock().unwrap();
    let error = advance(&anchor).unwrap_err();
    assert!(error.to_string().contains("kept it locked"), "{error}");
    held.unlock().unwrap();
    advance(&anchor).expect("nothing was lost");
}

#[test]
fn a_slot_that_rots_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tank.anchor");
    let register = file(&path);
    let anchor = begin(&Env::seeded(1), &register);
    advance(&anchor).unwrap();
    let now = register.read().unwrap();
    let disk = fs::OpenOptions::new().write(true).open(&path).unwrap();
    disk.write_all_at(&[0xff], 500).unwrap();
    // Slot 0 held record 2, the one that counts: the register is at 1, which a witness would tell.
    let found = Holding::read(&*register, POOL, Some(&key())).unwrap();
    assert_eq!(found.record().seq, 1);
    let lost = register.swap(&now, &now).unwrap_err();
    assert!(matches!(lost, SwapError::Lost(_)));
    disk.write_all_at(&[0xff], 4096 + 500).unwrap();
    assert!(matches!(register.read(), Err(RegisterError::Damaged { .. })));
}
