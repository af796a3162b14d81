//! States allowed after a crash.
//!
//! Let H(0), H(1), ... be what the model shows after so many operations; `begun` of them had begun
//! when the power went, and `returned` of them had returned.
//!
//! ## Invariants
//! [oracle.1] The state found is one H(j), whole: renames are atomic, no byte is of another time,
//!      nothing that was gone is there.
//! [oracle.2] j ≤ `begun`; j ≥ k if operation k was a `sync` that returned.
//! [oracle.3] If operation k was an `fsync` or `fdatasync` of a node, and returned, then that node
//!      (with its content, its attributes and its names) is as in some H(m) with m ≥ k.
//! [oracle.4] Where the log holds names only (`journal=writeback`), [oracle.1] and [oracle.3] are
//!      asked of everything but content; each byte of content is one that the file had there in
//!      some H(j) that [oracle.2] allows, or zero if these differ.

use crate::base::{Failure, Trace};
use crate::cut::Moment;
use crate::op::Promise;
use crate::tree::{Node, Shape, Tree};
use crate::world::Journal;

/// A node as a promise speaks of it.
fn part(tree: &Tree, ino: u64) -> (Option<&Node>, Vec<(u64, Vec<u8>)>) {
    (tree.nodes.get(&ino), tree.names_of(ino))
}

/// Holds what was found against what may be.
///
/// # Errors
/// The first claim that a state breaks.
pub fn judge(trace: &Trace, moment: Moment, journal: Journal, found: &Tree) -> Result<(), Failure> {
    let returned = trace.promises[..moment.returned].iter();
    let least = |(at, promise): (usize, &Promise)| match promise {
        Promise::All => Some(at + 1),
        Promise::UpTo(at) => Some(*at),
        Promise::None | Promise::Node(_) => None,
    };
    let floor = returned.clone().enumerate().filter_map(least).max().unwrap_or(0);
    if journal == Journal::Names {
        return judge_names(trace, moment, floor, found);
    }
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

/// The same tree with zeros for content.
fn outline(tree: &Tree) -> Tree {
    let mut outline = tree.clone();
    for node in outline.nodes.values_mut() {
        if let Shape::File(content) = &mut node.shape {
            content.fill(0);
        }
    }
    outline
}

/// [oracle.4]
fn judge_names(trace: &Trace, moment: Moment, floor: usize, found: &Tree) -> Result<(), Failure> {
    let trees: Vec<Tree> = trace.trees[..=moment.begun].iter().map(outline).collect();
    let shown = outline(found);
    if !trees[floor..].contains(&shown) {
        return Err(format!("after operation {}: {}", moment.begun, trees[moment.begun].difference(&shown)));
    }
    for (at, promise) in trace.promises[..moment.returned].iter().enumerate() {
        let Promise::Node(ino) = promise else { continue };
        if !trees[at + 1..].iter().any(|tree| part(tree, *ino) == part(&shown, *ino)) {
            let (op, lost) = (trace.ops[at], trees[at + 1].difference(&shown));
            return Err(format!("operation {at}, {op}, returned, and inode {ino} is as before it: {lost}"));
        }
    }
    for (ino, node) in &found.nodes {
        let Shape::File(content) = &node.shape else { continue };
        let times: Vec<Option<&Vec<u8>>> = trace.trees[floor..=moment.begun]
            .iter()
            .map(|tree| match tree.nodes.get(ino).map(|node| &node.shape) {
                Some(Shape::File(content)) => Some(content),
                _ => None,
            })
            .collect();
        for (at, byte) in content.iter().enumerate() {
            let had = |content: &Option<&Vec<u8>>| content.and_then(|content| content.get(at)).copied();
            let known = times.iter().any(|content| had(content) == Some(*byte));
            let changed = times.iter().any(|content| had(content) != had(&times[0]));
            let allowed = known || *byte == 0 && changed;
            if !allowed {
                return Err(format!("inode {ino}: byte {at} was never {byte:#x} since operation {floor}"));
            }
        }
    }
    Ok(())
}
