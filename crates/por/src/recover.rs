//! Recovery of a tile: contents of the missing cells from its rows, each proven by its tag.

use crate::cell::{CellId, PAYLOAD, Payload, Tag};
use crate::code::{ROWS, Rows};
use crate::gather::{STRIP, ZERO, follow_by};
use crate::kernel::Kernel;
use crate::solve::solve;
use crate::tag::{Proven, TagKeys};
use crate::tile::{STRIPS, Tile};

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
    pub fn recover(&self, missing: &[(CellId, Rows)], keys: &TagKeys) -> Recovery {
        self.recover_by(Kernel::best(), missing, keys)
    }

    /// Like [`Tile::recover`], by a kernel of the caller's choice.
    ///
    /// # Panics
    /// If the processor has no such kernel.
    #[must_use]
    pub fn recover_by(&self, kernel: Kernel, missing: &[(CellId, Rows)], keys: &TagKeys) -> Recovery {
        let rows_of: Vec<Rows> = missing.iter().map(|(_, rows)| *rows).collect();
        let solution = solve(&rows_of);
        let steps = &solution.program.steps;
        let tags = solution.program.run(self.tags.clone());
        let mut contents: Vec<Box<Payload>> = solution.found.iter().map(|_| blank()).collect();
        // One strip of all rows and steps is about as large as the second cache.
        let mut values = vec![ZERO; ROWS + steps.len()];
        let strips = if contents.is_empty() { 0 } else { STRIPS };
        for (at, rows) in self.strips().chunks_exact(ROWS).enumerate().take(strips) {
            values[..ROWS].copy_from_slice(rows);
            follow_by(kernel, steps, ROWS, &mut values);
            for ((_, step), content) in solution.found.iter().zip(&mut contents) {
                content.as_chunks_mut::<STRIP>().0[at] = values[ROWS + step];
            }
        }
        let mut recovery = Recovery::default();
        for (&(unknown, step), payload) in solution.found.iter().zip(contents) {
            let (id, tag) = (missing[unknown].0, Tag(tags[ROWS + step].to_le_bytes()));
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

/// Content to be filled in.
pub(crate) fn blank() -> Box<Payload> {
    vec![0; PAYLOAD].into_boxed_slice().try_into().expect("bytes of a cell")
}
