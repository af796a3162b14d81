//! The pool's checkpoint: an earlier root, of which all has to be there still.

use steadfast_format::{SegmentId, SegmentRow, Uberblock};

use crate::Found;
use crate::meta::Meta;
use crate::view::{Front, Request, View};

/// The pool as of its checkpoint. Labels and rings were judged with the newest root, and what the
/// log held behind an earlier one is gone.
pub(crate) fn view(request: &Request<'_>, root: &Uberblock, found: &mut Found<'_>) -> Option<View> {
    let mut front = Front::open(request, &mut |_| {})?;
    front.recorded = Some(Uberblock { log: None, ..root.clone() });
    front.is_checkpoint = true;
    View::open(front, request, found)
}

/// Segments that the checkpoint needs; `None` if its table cannot be read.
pub(crate) fn rows(request: &Request<'_>, root: &Uberblock) -> Option<Vec<(SegmentId, SegmentRow)>> {
    let mut view = view(request, root, &mut |_| {})?;
    let meta = Meta::load(&mut view, request, &mut |_| {});
    (meta.whole && meta.table_whole).then(|| view.space.rows())
}
