//! Outcomes of states that were never opened.
//!
//! A recovery is a function of what it reads: the world it runs in is always the same. So it is
//! remembered as a path in a tree: which page was read first, what that held, which page was read
//! then, and so on to the outcome. A state that holds, page by page along such a path, what the
//! remembered one held, would be read in the same order and come to the same end. Most states of a
//! cut differ only in blocks that no root names yet, which no recovery reads.

use crate::pages::Image;

/// Outcomes by what was read.
pub struct OutcomeCache<T> {
    nodes: Vec<Node<T>>,
}

enum Node<T> {
    /// The next page, and where to go on by its content: mostly there is one.
    Page(usize, u32, Vec<(u128, usize)>),
    /// The end.
    Leaf(T),
    /// Nothing was read that far yet.
    Open,
}

impl<T> Default for OutcomeCache<T> {
    fn default() -> OutcomeCache<T> {
        OutcomeCache { nodes: vec![Node::Open] }
    }
}

impl<T: Clone> OutcomeCache<T> {
    /// The outcome of a state, if it follows from those that are known.
    #[must_use]
    pub fn find(&self, images: &[Image]) -> Option<T> {
        let mut at = 0;
        loop {
            match &self.nodes[at] {
                Node::Page(disk, page, next) => at = place(next, images[*disk].id(*page))?,
                Node::Leaf(outcome) => return Some(outcome.clone()),
                Node::Open => return None,
            }
        }
    }

    /// Remembers what came of a state after these pages of it were read.
    ///
    /// # Panics
    /// If another state that held the same so far was read in another order: then recovery depends
    /// on something else, and no seed repeats.
    pub fn insert(&mut self, images: &[Image], reads: &[(usize, u32)], outcome: T) {
        let mut at = 0;
        for (disk, page) in reads {
            let fresh = self.nodes.len();
            match &mut self.nodes[at] {
                node @ Node::Open => {
                    *node = Node::Page(*disk, *page, vec![(images[*disk].id(*page), fresh)]);
                    self.nodes.push(Node::Open);
                    at = fresh;
                }
                Node::Page(other_disk, other, next) => {
                    assert_eq!((&*other_disk, &*other), (disk, page), "a recovery repeats");
                    match place(next, images[*disk].id(*page)) {
                        Some(next) => at = next,
                        None => {
                            next.push((images[*disk].id(*page), fresh));
                            self.nodes.push(Node::Open);
                            at = fresh;
                        }
                    }
                }
                Node::Leaf(_) => panic!("a recovery repeats"),
            }
        }
        assert!(matches!(self.nodes[at], Node::Open), "a recovery repeats");
        self.nodes[at] = Node::Leaf(outcome);
    }
}

/// Where to go on for this content.
fn place(next: &[(u128, usize)], content: u128) -> Option<usize> {
    next.iter().find(|(of, _)| *of == content).map(|(_, place)| *place)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_that_agree_in_what_was_read_have_one_outcome() {
        let mut one = Image::blank(64 << 20);
        one.write(0, &[1; 4096]);
        one.write(4096, &[2; 4096]);
        let mut outcomes = OutcomeCache::default();
        outcomes.insert(&[one.clone()], &[(0, 1), (0, 5)], "one");
        let mut other = one.clone();
        other.write(0, &[9; 4096]);
        assert_eq!(outcomes.find(&[other.clone()]), Some("one"));
        other.write(5 * 4096, &[9; 4096]);
        assert_eq!(outcomes.find(&[other.clone()]), None);
        outcomes.insert(&[other.clone()], &[(0, 1), (0, 5), (0, 0)], "other");
        assert_eq!(outcomes.find(&[other]), Some("other"));
        assert_eq!(outcomes.find(&[one]), Some("one"));
    }
}
