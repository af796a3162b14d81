//! Recovery of a tile: contents of the missing cells from its rows, each proven by its tag.

use crate::cell::{CellId, Payload, Tag};
use crate::code::{ROWS, Rows};
use crate::gather::{Lists, Strip, gather_by};
use crate::kernel::Kernel;
use crate::solve::solve;
use crate::tag::{Proven, TagKeys};
use crate::tile::{STRIPS, Tile, assemble};

/// A cell that came back.
#[derive(Clone, Debug)]
pub struct Recovered {
    id: CellId,
    payload: Box<Payload>,
    tag: Tag,
}

impl From<Proven<'_>> for Recovered {
    fn from(cell: Proven<'_>) -> Recovered {
        Recovered { id: cell.id(), payload: Box::new(*cell.payload()), tag: cell.tag() }
    }
}

impl Recovered {
    /// Identity.
    #[must_use]
    pub fn id(&self) -> CellId {
        self.id
    }

    /// Content.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        &self.payload
    }

    /// Tag.
    #[must_use]
    pub fn tag(&self) -> Tag {
        self.tag
    }

    /// The cell with its evidence, for a code under another key.
    #[must_use]
    pub fn prove(&self, keys: &TagKeys) -> Option<Proven<'_>> {
        keys.prove(self.id, &self.payload, self.tag)
    }
}

/// Outcome of a recovery. Each missing cell is in one of the lists.
#[derive(Clone, Debug, Default)]
pub struct Recovery {
    /// Cells that came back, each with its tag.
    pub recovered: Vec<Recovered>,
    /// Cells that the rows do not determine: more was lost than the code covers.
    pub undetermined: Vec<CellId>,
    /// Cells whose solution has another tag: the tile is damaged, or not of this generation.
    pub refused: Vec<CellId>,
}

impl Recovery {
    /// True if every missing cell came back.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.undetermined.is_empty() && self.refused.is_empty()
    }

    /// Adds the outcome of another tile.
    pub fn extend(&mut self, other: Recovery) {
        self.recovered.extend(other.recovered);
        self.undetermined.extend(other.undetermined);
        self.refused.extend(other.refused);
    }
}

impl Tile {
    /// Finds the missing cells of a tile from which all others were taken out.
    #[must_use]
    pub fn recover(self, missing: &[(CellId, Rows)], keys: &TagKeys) -> Recovery {
        self.recover_by(Kernel::best(), missing, keys)
    }

    /// Like [`Tile::recover`], by a kernel of the caller's choice.
    ///
    /// # Panics
    /// If the processor has no such kernel.
    #[must_use]
    pub fn recover_by(mut self, kernel: Kernel, missing: &[(CellId, Rows)], keys: &TagKeys) -> Recovery {
        let rows_of: Vec<Rows> = missing.iter().map(|(_, rows)| *rows).collect();
        let solution = solve(&rows_of);
        let peeled = solution.peeled.len();
        let found = peeled + solution.eliminated.len();
        let lists = Lists::new(solution.eliminated.iter().map(|(_, rows)| rows.as_slice()));

        let mut strips = vec![Strip::ZERO; STRIPS * found];
        if found > 0 {
            for (rows, out) in self.strips.chunks_exact_mut(ROWS).zip(strips.chunks_exact_mut(found)) {
                for (&(unknown, row), out) in solution.peeled.iter().zip(&mut *out) {
                    *out = rows[usize::from(row)];
                    rows_of[unknown].iter().for_each(|&row| rows[usize::from(row)].add(out));
                }
                gather_by(kernel, &lists, rows, &mut out[peeled..]);
            }
        }
        let mut tags = Vec::with_capacity(found);
        for &(unknown, row) in &solution.peeled {
            let tag = self.tags[usize::from(row)];
            rows_of[unknown].iter().for_each(|&row| self.tags[usize::from(row)] ^= tag);
            tags.push(tag);
        }
        for (_, rows) in &solution.eliminated {
            tags.push(rows.iter().fold(0, |sum, &row| sum ^ self.tags[usize::from(row)]));
        }

        let mut recovery = Recovery::default();
        let unknowns = solution.peeled.iter().map(|(unknown, _)| unknown);
        let unknowns = unknowns.chain(solution.eliminated.iter().map(|(unknown, _)| unknown));
        for ((at, &unknown), tag) in unknowns.enumerate().zip(tags) {
            let id = missing[unknown].0;
            let (payload, tag) = (assemble(&strips, found, at), Tag(tag.to_le_bytes()));
            if keys.prove(id, &payload, tag).is_some() {
                recovery.recovered.push(Recovered { id, payload, tag });
            } else {
                recovery.refused.push(id);
            }
        }
        recovery.undetermined.extend(solution.undetermined.iter().map(|&unknown| missing[unknown].0));
        recovery
    }
}
