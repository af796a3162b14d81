//! Running streams: their count, the command's descriptor, progress.

use crate::caller::Caller;
use crate::descriptor::Descriptor;
use crate::engine::state::ImportedPool;
use crate::refusal::{Code, Refusal};
use std::sync::atomic::Ordering;

/// How often a command is told of progress.
pub(in crate::engine) const TELL_NS: u64 = 200_000_000;

/// Counts a pool's streams.
pub(in crate::engine) struct StreamGuard<'a>(&'a ImportedPool);

impl<'a> StreamGuard<'a> {
    pub(in crate::engine) fn new(held: &'a ImportedPool) -> StreamGuard<'a> {
        held.streams.fetch_add(1, Ordering::AcqRel);
        StreamGuard(held)
    }
}

impl Drop for StreamGuard<'_> {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::AcqRel);
    }
}

pub(in crate::engine) fn descriptor(caller: &Caller) -> Result<Descriptor, Refusal> {
    let none = || Refusal::new(Code::ApiRequest, "the request came without a descriptor");
    caller.descriptor.clone().ok_or_else(none)
}
