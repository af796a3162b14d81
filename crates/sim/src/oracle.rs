//! What may be found after a crash.
//!
//! Let H(0), H(1), ... be what the model shows after so many operations; `begun` of them had begun when the power went,
//! and `returned` of them had returned.
//!
//! ## Invariants
//! (O1) What is found is one H(j), whole: renames are atomic, no byte is of another time, nothing that was gone is there.
//! (O2) j ≤ `begun`; j ≥ k if operation k was a `sync` that returned.
//! (O3) If operation k was an `fsync` or `fdatasync` of a node, and returned, then that node (with its content, its
//!      attributes and its names) is as in some H(m) with m ≥ k.

use crate::cut::Moment;
use crate::op::Promise;
use crate::tree::{Node, Tree};
use crate::workload::{Failure, Trace};

/// A node as a promise speaks of it.
fn part(tree: &Tree, ino: u64) -> (Option<&Node>, Vec<(u64, Vec<u8>)>) {
    (tree.nodes.get(&ino), tree.names_of(ino))
}

/// Holds what was found against what may be.
///
/// # Errors
/// What should not be.
pub fn judge(trace: &Trace, moment: Moment, found: &Tree) -> Result<(), Failure> {
    let returned = trace.promises[..moment.returned].iter();
    let floor = returned.clone().rposition(|promise| *promise == Promise::All).map_or(0, |at| at + 1);
    let allowed = floor..=moment.begun;
    if !allowed.clone().any(|j| trace.trees[j] == *found) {
        let newest = trace.trees[moment.begun].difference(found);
        let mut text = format!("after operation {}: {newest}", moment.begun);
        if floor < moment.begun {
            text += &format!("; or after operation {floor}: {}", trace.trees[floor].difference(found));
        } else if let Some(old) = trace.trees[..floor].iter().position(|tree| tree == found) {
            text += &format!(" (it is what was after operation {old})");
        }
        return Err(text);
    }
    for (at, promise) in returned.enumerate() {
        let Promise::Node(ino) = promise else { continue };
        let mut since = trace.trees[at + 1..=moment.begun].iter();
        if !since.any(|tree| part(tree, *ino) == part(found, *ino)) {
            let (op, lost) = (trace.ops[at], trace.trees[at + 1].difference(found));
            return Err(format!("operation {at}, {op}, returned, and inode {ino} is as before it: {lost}"));
        }
    }
    Ok(())
}
