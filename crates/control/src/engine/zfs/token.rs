//! The token of an interrupted receive, as a property.

use crate::engine::state::ImportedPool;
use crate::token::{Form, Token};

/// Token of a dataset's interrupted receive: the property `receive_resume_token`.
pub(in crate::engine) fn resume_token(held: &ImportedPool, name: &str) -> Option<String> {
    let partial = held.pool.datasets().partial(name)?;
    let (guid, base) = (partial.guid, partial.base);
    let (inode, offset) = partial.position;
    let form = match (partial.raw, partial.packed) {
        (true, _) => Form::Raw,
        (false, true) => Form::Compressed,
        (false, false) => Form::Plain,
    };
    Some(Token { guid, base, inode, offset, form }.encode())
}
