//! Audits: honest stores pass, others are found out as often as the formula says.

use std::collections::BTreeSet;

use steadfast_por::audit::{Fault, NoReply, Reply, answer, judge, verify};
use steadfast_por::bound::detection;
use steadfast_por::{CellId, Challenge, PAYLOAD, Payload, Stratum, Tag};

use crate::store::{Dice, SEGMENT, Store, id, is_long, stratum};

/// How a dishonest agent fills in for a cell that it has not.
#[derive(Clone, Copy, Debug)]
enum Trick {
    /// Zeros, and the tag that it kept.
    KeptTags,
    /// The content that it kept, and a tag of zeros.
    KeptContents,
    /// Another cell, with its tag.
    Neighbour,
}

/// The agent's reply over a store that lacks the cells `gone` and answers by a trick.
fn reply(
    store: &Store,
    stratum: &Stratum,
    challenge: &Challenge,
    gone: &BTreeSet<CellId>,
    trick: Trick,
) -> Reply {
    let read = |cell: CellId, out: &mut Payload| -> Result<Tag, ()> {
        let (payload, tag) = match (gone.contains(&cell), trick) {
            (true, Trick::Neighbour) => {
                let kept = store.written.iter().find(|(id, _)| !gone.contains(id)).unwrap();
                (*kept.1.0, kept.1.1)
            }
            (true, Trick::KeptTags) => ([0; PAYLOAD], store.written[&cell].1),
            (true, Trick::KeptContents) => (*store.written[&cell].0, Tag([0; 16])),
            (false, _) => (*store.written[&cell].0, store.written[&cell].1),
        };
        *out = payload;
        Ok(tag)
    };
    answer(challenge, stratum, read).unwrap()
}

/// [por.6]: both forms, with every trick, over 10,000 audits in the long form.
#[test]
fn audits_find_losses_as_often_as_the_formula_says() {
    let cells = 5 * usize::from(SEGMENT);
    let (store, stratum, dice) = (Store::new(1, cells, 1), stratum(cells), Dice::new(2));
    let audits = if is_long() { 10_000 } else { 400 };
    for (lost, samples) in [(cells / 100, 120), (cells / 20, 20), (cells / 10, 11)] {
        let mut found_by = [0_u32; 2];
        for audit in 0..audits {
            let gone: BTreeSet<CellId> = dice.choose(lost, cells).into_iter().map(id).collect();
            let challenge = Challenge { seed: dice.seed(), generation: 5, samples };
            let asked = challenge.expand(&stratum);
            let hit = asked.iter().any(|sample| gone.contains(&sample.id));

            let answers = asked.iter().map(|sample| {
                let there = (!gone.contains(&sample.id)).then(|| &store.written[&sample.id]);
                (sample.id, there.map(|(payload, tag)| (&**payload, *tag)).ok_or("404"))
            });
            let judgement = judge(&store.keys, answers);
            assert_eq!(judgement.held + u32::try_from(judgement.failed.len()).unwrap(), samples);
            assert!(
                judgement
                    .failed
                    .iter()
                    .all(|(id, fault)| gone.contains(id) && *fault == Fault::Unreadable("404"))
            );
            assert_eq!(judgement.is_held(), !hit);
            found_by[0] += u32::from(!judgement.is_held());

            let trick = [Trick::KeptTags, Trick::KeptContents, Trick::Neighbour][audit % 3];
            let reply = reply(&store, &stratum, &challenge, &gone, trick);
            let is_held = verify(&store.keys, &challenge, &stratum, &reply);
            assert_eq!(is_held, !hit, "{trick:?}: found out if and only if a lost cell was asked for");
            found_by[1] += u32::from(!is_held);
        }
        let (n, p) = (audits as f64, detection(lost as f64 / cells as f64, samples));
        for found in found_by {
            let deviations = (f64::from(found) - n * p) / (n * p * (1.0 - p)).sqrt();
            assert!(deviations.abs() < 3.0, "{found} of {n} at {p}: {deviations} deviations");
        }
    }
}

/// [por.7]
#[test]
fn a_reply_answers_one_challenge_only() {
    let cells = 2 * usize::from(SEGMENT);
    let (store, stratum, dice) = (Store::new(3, cells, 1), stratum(cells), Dice::new(4));
    let none = BTreeSet::new();
    let challenge = Challenge { seed: dice.seed(), generation: 5, samples: 50 };
    let honest = reply(&store, &stratum, &challenge, &none, Trick::Neighbour);
    assert!(verify(&store.keys, &challenge, &stratum, &honest));

    // Replayed, constant, or changed in one bit.
    let next = Challenge { seed: dice.seed(), ..challenge };
    assert!(!verify(&store.keys, &next, &stratum, &honest));
    let zeros = Reply { payload: Box::new([0; PAYLOAD]), tag: Tag([0; 16]) };
    assert!(!verify(&store.keys, &challenge, &stratum, &zeros));
    for byte in [0, 1000, PAYLOAD - 1] {
        let mut changed = honest.clone();
        changed.payload[byte] ^= 0x80;
        assert!(!verify(&store.keys, &challenge, &stratum, &changed), "byte {byte}");
    }
    let mut changed = honest.clone();
    changed.tag.0[15] ^= 1;
    assert!(!verify(&store.keys, &challenge, &stratum, &changed));
    // Fewer samples than were asked for.
    let fewer = Challenge { samples: 49, ..challenge };
    assert!(!verify(
        &store.keys,
        &challenge,
        &stratum,
        &reply(&store, &stratum, &fewer, &none, Trick::Neighbour)
    ));

    // From an older list of cells: an honest agent says so, a liar fails.
    let older = crate::store::stratum(usize::from(SEGMENT));
    let old_cells = reply(&store, &older, &challenge, &none, Trick::Neighbour);
    assert!(!verify(&store.keys, &challenge, &stratum, &old_cells));
    let ahead = Challenge { generation: 6, ..challenge };
    let read = |_: CellId, _: &mut Payload| -> Result<Tag, ()> { unreachable!("nothing is read") };
    assert_eq!(answer(&ahead, &stratum, read), Err(NoReply::Generation { asked: 6, have: 5 }));
}

/// By ranged reads each wrong cell is named: a changed bit, a lost tag, another cell's bytes.
#[test]
fn cells_with_other_bytes_are_wrong() {
    let store = Store::new(5, usize::from(SEGMENT), 1);
    let ids = store.all();
    let (payload, tag) = &store.written[&ids[0]];
    let mut flipped = payload.clone();
    flipped[4095] ^= 1;
    let (other, other_tag) = &store.written[&ids[1]];
    let answers: [(&Payload, Tag); 5] =
        [(payload, *tag), (&flipped, *tag), (payload, Tag([0; 16])), (other, *tag), (other, *other_tag)];
    let judgement = judge(&store.keys, answers.map(|answer| (ids[0], Ok::<_, ()>(answer))));
    assert_eq!((judgement.held, judgement.failed), (1, vec![(ids[0], Fault::Wrong); 4]));
}
