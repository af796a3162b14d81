//! The parity device as status shows it.

use super::reading;
use crate::devices::state::Devices;
use steadfast_format::ParityStanding;
use steadfast_por::parity::Figures;
use steadfast_por::{TilesStatus, tile_store};

/// The parity device as status shows it.
#[derive(Clone, Debug)]
pub struct ParityStatus {
    /// Path as labels list it.
    pub path: String,
    /// Its guid.
    pub guid: u64,
    /// Why it is not in use.
    pub trouble: Option<String>,
    /// Figures of the code, if it is in use.
    pub figures: Option<Figures>,
    /// A recovery was cut off, and passes wait for the next one.
    pub owes_repair: bool,
    /// Objects that the code does not cover (yet), or would not if the power failed now.
    pub uncovered: u64,
    /// Why the last one of them does not.
    pub left_out: Option<String>,
    /// Objects that should be deleted, and stay because cells of them are wrong.
    pub held_back: u64,
    /// Objects that should be deleted, and stay because a store did not give them at the last try,
    /// and why.
    pub unread: Option<(u64, String)>,
    /// The last audit, if there was one.
    pub audit: Option<ParityStanding>,
    /// Tiles at a store, if they lie at one.
    pub tiles: Option<TilesStatus>,
}

impl Devices {
    /// The parity device as status shows it.
    pub(crate) fn parity_status(&self) -> Option<ParityStatus> {
        let parity = self.parity()?;
        let standing = *parity.standing.lock();
        let code = parity.code.as_ref().ok();
        let figures = code.map(|code| reading(code).figures());
        let failed = code.filter(|code| reading(code).has_failed());
        let trouble = parity.code.as_ref().err().cloned();
        let (mut uncovered, mut held_back, mut left_out) = (0, 0, None);
        let mut unread: Option<(u64, String)> = None;
        for (id, store) in self.stores() {
            let objects = self.core.space.objects_on(id);
            uncovered += objects.iter().filter(|(segment, _)| !store.is_settled(*segment)).count() as u64;
            held_back += store.held_back().len() as u64;
            let before = unread.as_ref().map_or(0, |(count, _)| *count);
            unread = store.unread().map(|(count, why)| (before + count, why)).or(unread);
            left_out = left_out.or_else(|| store.left_out());
        }
        Some(ParityStatus {
            path: parity.path.clone(),
            guid: parity.guid,
            trouble: trouble.or_else(|| failed.map(|_| "it could not be written".to_owned())),
            figures,
            owes_repair: self.owes_repair(),
            uncovered,
            left_out: left_out.filter(|_| uncovered > 0),
            held_back,
            unread,
            audit: Some(standing).filter(|standing| standing.audited_ns != 0),
            tiles: code.and_then(|code| Some(tile_store(&reading(code))?.status())),
        })
    }
}
