//! Whether labels are to be written again with the next commit.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the changes that labels have to tell.
///
/// A change is made first and marked then, so labels that are written after a look tell all that
/// was marked before it. A mark that comes during a commit is for the next one.
#[derive(Default)]
pub(crate) struct LabelsDue {
    marked: AtomicU64,
    written: AtomicU64,
}

impl LabelsDue {
    /// Something that labels tell has changed. Returns the number of marks so far.
    pub fn mark(&self) -> u64 {
        self.marked.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Marks that no labels tell yet.
    pub fn is_due(&self) -> bool {
        self.look().is_some()
    }

    /// The number of marks so far, if there are some that no labels tell yet.
    pub fn look(&self) -> Option<u64> {
        let marked = self.marked.load(Ordering::Acquire);
        (marked != self.written.load(Ordering::Acquire)).then_some(marked)
    }

    /// All labels are written, and tell the first `marks` marks.
    pub fn written(&self, marks: u64) {
        debug_assert!(marks <= self.marked.load(Ordering::Acquire), "marks are counted up");
        self.written.store(marks, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_that_comes_while_labels_are_written_is_for_the_next_commit() {
        let due = LabelsDue::default();
        assert_eq!(due.look(), None);
        due.mark();
        let marks = due.look().expect("one is marked");
        due.mark();
        due.written(marks);
        assert_eq!(due.look(), Some(2));
        due.written(2);
        assert!(!due.is_due());
    }
}
