//! Import: from a durable tail and the meta tree back to a table.
//!
//! The order is: [`Space::bootstrap`] with the places that the uberblock names, read the tail's
//! block, [`Space::load_tail`] (now the meta tree can be read), [`Space::load_rows`],
//! [`Space::load_runs`], [`Space::finish_load`]. For a row or a relocation the tail wins over the
//! meta tree, also when it says that one is removed.

use crate::Class;
use crate::error::TableError;
use crate::loading::Loading;
use crate::space::Space;

use steadfast_format::{Address, BlockPointer, CommitTail, Placement, RelocationRow, SegmentId, SegmentRow};

impl Space {
    /// Makes the tail readable at the places that the uberblock names for its copies, before any
    /// row is known. Bytes before it in its segment, as those of the top of the meta tree, come
    /// with it from a device of whole objects.
    pub fn bootstrap(&self, tail: &BlockPointer, places: [Option<Placement>; 2]) -> Result<(), TableError> {
        let mut state = self.write_state();
        assert!(state.table.rows.is_empty(), "only the space of a pool that is being imported is loaded");
        for (address, place) in tail.copies.into_iter().zip(places) {
            let (Address { segment, .. }, Some(place)) = (address, place) else { continue };
            state.table.check_place(segment, Class::Pool0, &place)?;
            // Nothing follows the tail in its segment: so much of it can be read.
            let behind = state.table.units_of(address, tail.psize as usize);
            let behind = behind.map_or(0, |(unit, units)| unit.saturating_add(units));
            state.provisional.insert(segment, (place, behind));
        }
        Ok(())
    }

    /// Takes over what the tail says; `pointer` is the tail's own.
    pub fn load_tail(&self, tail: &CommitTail, pointer: &BlockPointer) -> Result<(), TableError> {
        let mut state = self.write_state();
        let state = &mut *state;
        let mut loading = Loading::default();
        state.table.loading = true;
        state.table.next_id = tail.next_segment;
        for (id, row) in &tail.rows {
            if !loading.rows.insert(*id) {
                return Err(TableError::RowTwice { segment: *id });
            }
            if let Some(row) = row {
                state.table.load_row(*id, row)?;
            }
        }
        for address in pointer.copies.into_iter().filter(|address| address.is_some()) {
            state.table.load_tail_block(address, pointer.psize as usize)?;
            loading.rows.insert(address.segment);
        }
        for (from, run) in &tail.runs {
            loading.runs.insert(*from);
            match run {
                Some(run) if state.table.rows.contains_key(&run.segment) => {
                    state.table.load_run(*from, run)?
                }
                Some(run) => {
                    loading.waiting.insert(*from, *run);
                }
                None => {}
            }
        }
        state.provisional.clear();
        state.loading = Some(loading);
        Ok(())
    }

    /// Takes over rows of the meta tree, in any portions.
    pub fn load_rows(
        &self,
        rows: impl IntoIterator<Item = (SegmentId, SegmentRow)>,
    ) -> Result<(), TableError> {
        let mut state = self.write_state();
        let state = &mut *state;
        let loading = state.loading.as_ref().expect("the tail is loaded first");
        for (id, row) in rows {
            if loading.rows.contains(&id) {
                continue;
            }
            if Class::from_u8(row.class).is_some_and(Class::is_pool) {
                return Err(TableError::NotInTail { segment: id });
            }
            state.table.load_row(id, &row)?;
        }
        Ok(())
    }

    /// Takes over relocations of the meta tree by the (segment, unit) they are known by, in any
    /// portions, after all rows.
    pub fn load_runs(
        &self,
        runs: impl IntoIterator<Item = ((SegmentId, u32), RelocationRow)>,
    ) -> Result<(), TableError> {
        let mut state = self.write_state();
        let state = &mut *state;
        let loading = state.loading.as_ref().expect("the tail is loaded first");
        for (from, run) in runs {
            if !loading.runs.contains(&from) {
                state.table.load_run(from, &run)?;
            }
        }
        Ok(())
    }

    /// Ends the loading: the table is whole, every segment is closed, and ids go on beyond any that
    /// an uncommitted txg can have used. On stores of whole objects an epoch sees to that
    /// ([`Space::claim_epoch`]).
    pub fn finish_load(&self) -> Result<(), TableError> {
        let skip_ids = !self.has_objects();
        let mut state = self.write_state();
        let state = &mut *state;
        let loading = state.loading.take().expect("the tail is loaded first");
        for (from, run) in &loading.waiting {
            state.table.load_run(*from, run)?;
        }
        state.table.finish_load(&loading.rows, &loading.runs, skip_ids)
    }
}
