//! Whole streams that somebody made who knows the format: every chain of hashes is right, and what
//! is between is not. They are refused and change nothing, or make a file system of their own,
//! which is the sender's to answer for.

use crate::common::{Dice, noise};
use crate::forge_stream::{Answer, Forger};
use steadfast_format::stream::FrameKind;

#[test]
fn streams_that_nobody_changed_are_taken() {
    let forger = Forger::new();
    let kinds = |stream| forger.frames(stream).into_iter().map(|(kind, _)| kind).collect::<Vec<_>>();
    for stream in 0..forger.count() {
        let answer = forger.attempt(&[stream as u8, 0]);
        assert_eq!(answer, Answer::Taken, "stream {stream}: {:?}", kinds(stream));
    }
    // There is a frame of every kind to be changed.
    let all: Vec<FrameKind> = (0..forger.count()).flat_map(kinds).collect();
    for kind in [
        FrameKind::Names,
        FrameKind::Content,
        FrameKind::Span,
        FrameKind::Packed,
        FrameKind::Notes,
        FrameKind::Repeats,
        FrameKind::RawRoots,
        FrameKind::RawGone,
        FrameKind::RawBlocks,
    ] {
        assert!(all.contains(&kind), "{kind:?}");
    }
}

/// Like `packed.rs` for packed records, here for frames of names and content: any byte is changed,
/// with a chain that is right for it.
#[test]
fn any_byte_of_plain_frames_may_be_another() {
    let forger = Forger::new();
    let mut dice = Dice(42);
    let (mut refused, mut taken) = (0, 0);
    for round in 0..300 {
        // A whole one, and increments upon a snapshot and upon a bookmark.
        let stream = round % 3;
        let plain = [FrameKind::Names, FrameKind::Content, FrameKind::Span];
        let frames = forger.frames(stream);
        let fit: Vec<usize> = (0..frames.len()).filter(|&at| plain.contains(&frames[at].0)).collect();
        let frame = fit[dice.below(fit.len() as u64) as usize];
        let [a, b, c, ..] = (dice.below(frames[frame].1 as u64) as u32).to_le_bytes();
        let what = 1 << dice.below(8);
        let bytes = [stream as u8, 0, 0, frame as u8, a, b, c, what, 0, 0];
        match forger.attempt(&bytes) {
            Answer::Refused => refused += 1,
            Answer::Taken => taken += 1,
            Answer::Part => panic!("there is one snapshot in it: {bytes:?}"),
        }
    }
    assert!(refused > 30 && taken > 30, "some are another content: {refused} refused, {taken} taken");
}

/// The fuzz target `receive`, bounded: changes drawn instead of searched for, in so many streams as
/// `STEADFAST_OPS` says.
#[test]
fn changes_of_all_kinds_together_are_taken_or_refused() {
    let forger = Forger::new();
    let mut dice = Dice(0x0005_72ea);
    let mut taken = 0;
    let rounds: u64 = std::env::var("STEADFAST_OPS").ok().and_then(|count| count.parse().ok()).unwrap_or(300);
    for _ in 0..rounds {
        let changes = 1 + dice.below(4) as usize;
        let answer = forger.attempt(&noise(dice.below(u64::MAX), 2 + 8 * changes));
        taken += u64::from(answer == Answer::Taken);
    }
    let some = rounds / 30;
    assert!(
        (some..rounds - some).contains(&taken),
        "{taken} of {rounds}: some changes are refused, some do not matter"
    );
}
