//! # Audits
//!
//! A *challenge* is a seed that nobody could foresee. It chooses cells, each independently and
//! uniformly among all cells of a *stratum*, with repetition, and a coefficient for each. Two
//! forms of an audit share it:
//!
//! - *By ranged reads*: the cells and their tags are fetched and each is checked ([`judge`]). The
//!   store needs no program, and the audit names the cells that are gone.
//! - *By an agent*: a program beside the store reads the cells and answers with one sum of contents
//!   and one sum of tags, 4,112 bytes for any number of cells ([`answer`], [`verify`]). The agent
//!   has no keys and is believed in nothing.
//!
//! If a fraction e of a stratum's cells is not held, N samples all miss it with probability
//! (1 - e)^N. An agent passes without a sampled cell with at most 257 / 2^128 more: 256 for a root
//! of the polynomial, 1 for the coefficient. A cell counts as held only with its own tag.
//!
//! A *stratum* is a part of the pool with its own number of samples: one store, the parity. A part
//! that is small and matters would hardly be met by samples of the whole.

use steadfast_crypto::Key;
use steadfast_crypto::prf::Prf;
use steadfast_format::SegmentId;

use crate::cell::{CELLS_MAX, CellId, PAYLOAD, Payload, Tag};
use crate::field::{WideSums, inner};
use crate::kernel::Kernel;
use crate::tag::{TagKeys, WORDS};

/// The cells of a segment on one store.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SegmentCells {
    /// Segment.
    pub segment: SegmentId,
    /// Random number of the opening under which it was written.
    pub opening: u32,
    /// The store that holds it.
    pub store: u16,
    /// Number of its cells.
    pub cells: u16,
}

/// A part of the pool that is audited by itself: every cell that must be there.
#[derive(Clone, Debug)]
pub struct Stratum {
    generation: u64,
    segments: Vec<SegmentCells>,
    /// Cells up to and with each segment.
    ends: Vec<u64>,
}

impl Stratum {
    /// The cells of these segments. `generation` grows with every change of the list.
    ///
    /// # Panics
    /// If a segment has more than [`CELLS_MAX`] cells.
    #[must_use]
    pub fn new(generation: u64, segments: Vec<SegmentCells>) -> Stratum {
        let mut end = 0;
        let ends = segments.iter().map(|segment| {
            assert!(segment.cells <= CELLS_MAX, "{} cells in a segment", segment.cells);
            end += u64::from(segment.cells);
            end
        });
        Stratum { generation, ends: ends.collect(), segments }
    }

    /// Number of the list.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Hash of the list: segment, opening, store and number of cells of each, 16 bytes
    /// little-endian.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        let mut bytes = Vec::with_capacity(16 * self.segments.len());
        for SegmentCells { segment, opening, store, cells } in &self.segments {
            bytes.extend_from_slice(&segment.0.to_le_bytes());
            bytes.extend_from_slice(&opening.to_le_bytes());
            bytes.extend_from_slice(&store.to_le_bytes());
            bytes.extend_from_slice(&cells.to_le_bytes());
        }
        steadfast_crypto::hash(&bytes)
    }

    /// Number of cells.
    #[must_use]
    pub fn cells(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The cell with this number, below [`Stratum::cells`].
    #[must_use]
    pub fn cell(&self, number: u64) -> CellId {
        let at = self.ends.partition_point(|&end| end <= number);
        let SegmentCells { segment, opening, store, cells } = self.segments[at];
        let index = number + u64::from(cells) - self.ends[at];
        CellId { segment, opening, store, index: u16::try_from(index).expect("within the segment") }
    }
}

/// The question of an audit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Challenge {
    /// Chooses cells and coefficients. Drawn for this audit alone, after the store has all cells.
    pub seed: [u8; 32],
    /// Generation of the stratum.
    pub generation: u64,
    /// Number of samples.
    pub samples: u32,
}

/// A cell that is asked for, and its coefficient.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Sample {
    /// Cell.
    pub id: CellId,
    /// Coefficient in the sums of an agent.
    pub coefficient: u128,
}

impl Challenge {
    /// The samples, the same for everyone who has the seed and the stratum. None if the stratum is
    /// empty.
    #[must_use]
    pub fn expand(&self, stratum: &Stratum) -> Vec<Sample> {
        if stratum.cells() == 0 {
            return Vec::new();
        }
        let prf = Prf::new(&Key::from_bytes(self.seed));
        let mut blocks: Vec<[u8; 16]> =
            (0..2 * u128::from(self.samples)).map(|number: u128| number.to_le_bytes()).collect();
        prf.fill(&mut blocks);
        let sample = |pair: &[[u8; 16]; 2]| {
            // As for tiles: the upper bits of a product.
            let number = ((u128::from_le_bytes(pair[0]) >> 64) * u128::from(stratum.cells())) >> 64;
            let number = u64::try_from(number).expect("below the number of cells");
            Sample { id: stratum.cell(number), coefficient: u128::from_le_bytes(pair[1]) }
        };
        blocks.as_chunks::<2>().0.iter().map(sample).collect()
    }
}

/// Defect of a cell that was asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Fault<E> {
    /// It did not come.
    Unreadable(E),
    /// It came with other content or another tag: these are not the bytes that were written.
    Wrong,
}

/// Outcome of an audit by ranged reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Judgement<E> {
    /// Samples whose cell was there, with its tag.
    pub held: u32,
    /// The others.
    pub failed: Vec<(CellId, Fault<E>)>,
}

impl<E> Judgement<E> {
    /// True if every sample was there.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.failed.is_empty()
    }
}

/// Judges cells that were fetched, each by its own tag.
pub fn judge<'c, E>(
    keys: &TagKeys,
    answers: impl IntoIterator<Item = (CellId, Result<(&'c Payload, Tag), E>)>,
) -> Judgement<E> {
    let mut judgement = Judgement { held: 0, failed: Vec::new() };
    for (id, answer) in answers {
        match answer {
            Ok((payload, tag)) if keys.prove(id, payload, tag).is_some() => judgement.held += 1,
            Ok(_) => judgement.failed.push((id, Fault::Wrong)),
            Err(error) => judgement.failed.push((id, Fault::Unreadable(error))),
        }
    }
    judgement
}

/// An agent's reply: the sums of contents and of tags, each cell times its coefficient.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reply {
    /// Sum of contents.
    pub payload: Box<Payload>,
    /// Sum of tags.
    pub tag: Tag,
}

/// Reason why an honest agent does not reply.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum NoReply<E> {
    /// Its list of cells is of another generation.
    Generation {
        /// That of the challenge.
        asked: u64,
        /// Its own.
        have: u64,
    },
    /// A cell could not be read.
    Unreadable(CellId, E),
}

/// Replies to a challenge, without keys. `read` fills in a cell's content and returns its tag.
///
/// # Errors
/// A list of another generation, or a cell that cannot be read.
pub fn answer<E>(
    challenge: &Challenge,
    stratum: &Stratum,
    mut read: impl FnMut(CellId, &mut Payload) -> Result<Tag, E>,
) -> Result<Reply, NoReply<E>> {
    if challenge.generation != stratum.generation {
        return Err(NoReply::Generation { asked: challenge.generation, have: stratum.generation });
    }
    let kernel = Kernel::best();
    let samples = challenge.expand(stratum);
    let (mut sums, mut payload) = (WideSums::new(WORDS), vec![0; PAYLOAD]);
    let buffer: &mut Payload = payload.as_mut_slice().try_into().expect("bytes of a cell");
    let (mut coefficients, mut tags) = (Vec::new(), Vec::new());
    for Sample { id, coefficient } in samples {
        let tag = read(id, buffer).map_err(|error| NoReply::Unreadable(id, error))?;
        sums.add_products(kernel, coefficient, buffer.as_chunks().0);
        coefficients.push(coefficient);
        tags.push(tag.0);
    }
    for (out, word) in buffer.as_chunks_mut::<16>().0.iter_mut().zip(sums.reduce()) {
        *out = word.to_le_bytes();
    }
    let payload = payload.into_boxed_slice().try_into().expect("bytes of a cell");
    Ok(Reply { payload, tag: Tag(inner(&coefficients, &tags).to_le_bytes()) })
}

/// True if the sum of an agent that has no tags is the one of a store that holds every cell. `tags`
/// are those of the samples, from the trusted corner.
#[must_use]
pub fn verify_sum(keys: &TagKeys, samples: &[Sample], tags: &[Tag], sum: &Payload) -> bool {
    assert_eq!(samples.len(), tags.len(), "a tag for each sample");
    let coefficients: Vec<u128> = samples.iter().map(|sample| sample.coefficient).collect();
    // A tag is linear but for its mask, so masks and tags are summed together.
    let masks = keys.masks(samples.iter().map(|sample| sample.id));
    let unmasked = masks.iter().zip(tags).map(|(mask, tag)| std::array::from_fn(|at| mask[at] ^ tag.0[at]));
    let unmasked: Vec<[u8; 16]> = unmasked.collect();
    keys.polyval(Kernel::best(), sum) == inner(&coefficients, &unmasked)
}

/// True if the reply is the one of a store that holds every cell that was asked for.
#[must_use]
pub fn verify(keys: &TagKeys, challenge: &Challenge, stratum: &Stratum, reply: &Reply) -> bool {
    let samples = challenge.expand(stratum);
    let coefficients: Vec<u128> = samples.iter().map(|sample| sample.coefficient).collect();
    let masks = keys.masks(samples.iter().map(|sample| sample.id));
    let linear = keys.polyval(Kernel::best(), &reply.payload);
    linear ^ inner(&coefficients, &masks) == u128::from_le_bytes(reply.tag.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stratum() -> Stratum {
        let segment = |id, cells| SegmentCells { segment: SegmentId(id), opening: 9, store: 1, cells };
        Stratum::new(3, vec![segment(1, 5), segment(2, 0), segment(7, 3)])
    }

    #[test]
    fn numbers_of_cells_go_through_the_segments() {
        let stratum = stratum();
        let cells = (0..8).map(|number| stratum.cell(number)).map(|id| (id.segment.0, id.index));
        let expected = [(1, 0), (1, 1), (1, 2), (1, 3), (1, 4), (7, 0), (7, 1), (7, 2)];
        assert_eq!((stratum.cells(), cells.collect::<Vec<_>>()), (8, expected.to_vec()));
    }

    #[test]
    fn samples_are_even_and_follow_from_the_seed() {
        let stratum = stratum();
        let challenge = Challenge { seed: [1; 32], generation: 3, samples: 80_000 };
        let samples = challenge.expand(&stratum);
        assert_eq!(samples, challenge.expand(&stratum));
        assert_ne!(samples, Challenge { seed: [2; 32], ..challenge }.expand(&stratum));
        for number in 0..8 {
            let count = samples.iter().filter(|sample| sample.id == stratum.cell(number)).count();
            // Mean 10,000, deviation 94.
            assert!((9_600..10_400).contains(&count), "{count} of cell {number}");
        }
        assert!(challenge.expand(&Stratum::new(3, Vec::new())).is_empty());
    }
}
