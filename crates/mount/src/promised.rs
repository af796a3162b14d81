//! Pages that programs were told they may write, and that have not come.
//!
//! A page may cost more than its length when it comes: the record in which it lies may have to be
//! written whole. So a promise counts each record once, whole, or up to the end of the file. A
//! second page of it costs nothing more, and neither does a page that is changed again.
//!
//! ## Invariants
//! [promised.1] A page that is promised stays so until it comes, or until all pages were handed
//!      over after the thread had left that call. The last promise of a thread stays in either case
//!      while it may be in its call: the page that came may be the one from before.
//! [promised.2] The files whose pages are handed over are listed after the promises departed. A
//!      file that is opened and promised something between the two is in both; the other way round
//!      its pages would stay with the kernel, and their promise would end.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use steadfast_posix::{WriteClaim, WriteTerms};

/// Bytes of a page of the kernel.
const PAGE: u64 = 4096;
/// A write of more pages is counted by its length.
const PAGES_MAX: u64 = 1 << 14;

/// A write that a program is about to make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Planned {
    /// `None` if it is not known.
    pub offset: Option<u64>,
    pub bytes: u64,
}

impl Planned {
    /// The pages, if they are known and not too many.
    fn pages(self) -> Option<Range<u64>> {
        let offset = self.offset?;
        let pages = offset / PAGE..offset.checked_add(self.bytes)?.div_ceil(PAGE);
        (pages.end - pages.start <= PAGES_MAX).then_some(pages)
    }

    fn end(self) -> u64 {
        self.offset.unwrap_or(0).saturating_add(self.bytes)
    }
}

/// The file of a write.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlannedFile {
    pub ino: u64,
    /// Bytes, as far as they are known here.
    pub size: u64,
    pub terms: WriteTerms,
}

/// The promises of one file.
#[derive(Clone, Debug)]
struct Plan {
    terms: WriteTerms,
    /// Where the file may end.
    end: u64,
    pages: BTreeSet<u64>,
    /// Pages in each record.
    records: BTreeMap<u64, u64>,
    /// Bytes at places that are not known, and the records in which they may lie.
    loose: u64,
    loose_records: u64,
}

impl Plan {
    fn new(terms: WriteTerms, end: u64) -> Plan {
        let (pages, records) = (BTreeSet::new(), BTreeMap::new());
        Plan { terms, end, pages, records, loose: 0, loose_records: 0 }
    }

    fn record_of(&self, page: u64) -> u64 {
        page * PAGE / self.terms.record_size()
    }

    fn add(&mut self, planned: Planned) {
        match planned.pages() {
            Some(pages) => {
                self.end = self.end.max(planned.end());
                pages.for_each(|page| self.insert(page));
            }
            None => {
                self.loose = self.loose.saturating_add(planned.bytes);
                // It may begin and end within one.
                self.loose_records += planned.bytes / self.terms.record_size() + 2;
            }
        }
    }

    fn insert(&mut self, page: u64) {
        if self.pages.insert(page) {
            *self.records.entry(self.record_of(page)).or_default() += 1;
        }
    }

    fn remove(&mut self, page: u64) {
        if !self.pages.remove(&page) {
            return;
        }
        let record = self.record_of(page);
        let left = self.records.get_mut(&record).map_or(0, |pages| {
            *pages -= 1;
            *pages
        });
        if left == 0 {
            self.records.remove(&record);
        }
    }

    fn merge(&mut self, other: &Plan) {
        self.end = self.end.max(other.end);
        other.pages.iter().for_each(|page| self.insert(*page));
        self.loose = self.loose.saturating_add(other.loose);
        self.loose_records += other.loose_records;
    }

    fn is_empty(&self) -> bool {
        self.pages.is_empty() && self.loose == 0
    }

    /// Its cost at worst, with a write that is only asked for.
    fn claim(&self, asked: Option<Planned>) -> WriteClaim {
        let (record_size, mut last) = (self.terms.record_size(), self.records.keys().next_back().copied());
        let (mut end, mut records) = (self.end, self.records.len() as u64 + self.loose_records);
        match asked.map(|planned| (planned, planned.pages())) {
            Some((planned, Some(pages))) if !pages.is_empty() => {
                end = end.max(planned.end());
                let asked = self.record_of(pages.start)..self.record_of(pages.end - 1) + 1;
                records += asked.end - asked.start - self.records.range(asked.clone()).count() as u64;
                last = last.max(Some(asked.end - 1));
            }
            Some((planned, None)) => records += planned.bytes / record_size + 2,
            _ => {}
        }
        let whole = self.terms.space(record_size);
        // The last record goes no further than the file, so the last room can be filled.
        let beyond = last.map_or(0, |last| {
            whole - self.terms.space(end.saturating_sub(last * record_size).clamp(1, record_size))
        });
        WriteClaim { space: (records.saturating_mul(whole)).saturating_sub(beyond), records }
    }
}

/// Of one mount.
#[derive(Debug, Default)]
pub(crate) struct Promised {
    by_inode: HashMap<u64, Plan>,
    /// Those that are being handed over.
    leaving: HashMap<u64, Plan>,
    /// The last promise of each thread. Its pages may not have changed yet.
    last: HashMap<u32, (u64, Planned)>,
    /// How often something was promised.
    version: u64,
}

impl Promised {
    /// The cost of all at worst, with a write that is only asked for.
    pub(crate) fn claim_with(&self, file: &PlannedFile, planned: Planned) -> WriteClaim {
        let asked = |ino: u64| (ino == file.ino).then_some(planned);
        let mut sum = WriteClaim::default();
        let mut count = |claim: WriteClaim| {
            sum.space = sum.space.saturating_add(claim.space);
            sum.records = sum.records.saturating_add(claim.records);
        };
        self.leaving.values().for_each(|plan| count(plan.claim(None)));
        self.by_inode.iter().for_each(|(ino, plan)| count(plan.claim(asked(*ino))));
        if !self.by_inode.contains_key(&file.ino) {
            count(Plan::new(file.terms, file.size).claim(Some(planned)));
        }
        sum
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_inode.is_empty() && self.leaving.is_empty()
    }

    /// Changes with each promise.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// A thread asks again: it has written what it asked for before, and nothing of that stays when
    /// pages are handed over.
    pub(crate) fn end_call(&mut self, thread: u32) {
        self.last.remove(&thread);
    }

    pub(crate) fn add(&mut self, thread: u32, file: &PlannedFile, planned: Planned) {
        self.version += 1;
        self.last.insert(thread, (file.ino, planned));
        let plan = self.by_inode.entry(file.ino).or_insert_with(|| Plan::new(file.terms, file.size));
        plan.end = plan.end.max(file.size);
        plan.add(planned);
    }

    /// Everything is to be handed over, or what was promised of one file, except what a thread may
    /// still be writing into pages. True if there is something. [promised.1]
    pub(crate) fn depart(&mut self, only: Option<u64>, may_be_writing: impl Fn(u32) -> bool) -> bool {
        let is_of = |ino: u64| only.is_none_or(|only| only == ino);
        for (ino, plan) in self.by_inode.extract_if(|ino, _| is_of(*ino)) {
            let leaving = self.leaving.entry(ino).or_insert_with(|| Plan::new(plan.terms, plan.end));
            leaving.merge(&plan);
        }
        self.last.retain(|thread, (ino, _)| !is_of(*ino) || may_be_writing(*thread));
        for (ino, planned) in self.last.values().filter(|(ino, _)| is_of(*ino)) {
            if let Some(plan) = self.leaving.get(ino) {
                let stays = || Plan::new(plan.terms, plan.end);
                self.by_inode.entry(*ino).or_insert_with(stays).add(*planned);
            }
        }
        self.leaving.keys().any(|ino| is_of(*ino))
    }

    /// All that was leaving has come, or that of one file.
    pub(crate) fn arrive(&mut self, only: Option<u64>) {
        match only {
            Some(ino) => _ = self.leaving.remove(&ino),
            None => self.leaving.clear(),
        }
    }

    /// Takes away what came. True if something of it was promised.
    pub(crate) fn take(&mut self, ino: u64, offset: u64, bytes: u64) -> bool {
        let pages = offset / PAGE..(offset + bytes).div_ceil(PAGE);
        // [promised.1]
        let last = self.last.values().filter(|(of, _)| *of == ino).filter_map(|(_, planned)| planned.pages());
        let stay: Vec<Range<u64>> = last.filter(|at| at.start < pages.end && pages.start < at.end).collect();
        let mut is_known = false;
        // Bytes of pages that nobody promised by their place: they are of an appender.
        let mut loose = 0;
        for page in pages {
            let from = offset.max(page * PAGE);
            let mut is_placed = false;
            for map in [&mut self.leaving, &mut self.by_inode] {
                let Some(plan) = map.get_mut(&ino) else { continue };
                is_placed |= plan.pages.contains(&page);
                if !stay.iter().any(|range| range.contains(&page)) {
                    plan.remove(page);
                }
            }
            is_known |= is_placed;
            if !is_placed {
                loose += (offset + bytes).min((page + 1) * PAGE) - from;
            }
        }
        for map in [&mut self.leaving, &mut self.by_inode] {
            let Some(plan) = map.get_mut(&ino) else { continue };
            is_known |= plan.loose > 0;
            // Those that leave come first.
            let came = loose.min(plan.loose);
            (plan.loose, loose) = (plan.loose - came, loose - came);
            if plan.loose == 0 {
                plan.loose_records = 0;
            }
            if plan.is_empty() {
                map.remove(&ino);
            }
        }
        is_known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn file(ino: u64, size: u64) -> PlannedFile {
        PlannedFile { ino, size, terms: WriteTerms::flat(128 * KIB) }
    }

    fn at(offset: u64, bytes: u64) -> Planned {
        Planned { offset: Some(offset), bytes }
    }

    /// The cost of all, in KiB.
    fn promised(promised: &Promised) -> u64 {
        promised.claim_with(&file(u64::MAX, 0), at(0, 0)).space / KIB
    }

    #[test]
    fn a_record_counts_once_and_whole_and_the_last_one_to_the_end() {
        let mut all = Promised::default();
        let large = file(5, 1 << 30);
        all.add(1, &large, at(0, 1));
        let one = promised(&all);
        assert!(one >= 128, "{one} KiB");
        all.add(1, &large, at(64 * KIB, 4096));
        all.add(1, &large, at(0, 1));
        assert_eq!(promised(&all), one, "the same record");
        all.add(1, &large, at(128 * KIB - 1, 2));
        assert_eq!(promised(&all), 2 * one, "the next one too");
        assert_eq!(all.claim_with(&large, at(0, 4096)).space / KIB, 2 * one);
        let mut short = Promised::default();
        short.add(1, &file(6, 0), at(0, 4096));
        assert!(promised(&short) < 16, "{}", promised(&short));
        short.add(1, &file(6, 0), at(1 << 20, 4096));
        assert!((128..160).contains(&promised(&short)), "a hole is one, and its file ends behind it");
        short.add(1, &file(6, 0), Planned { offset: None, bytes: 4096 });
        assert!(promised(&short) > 3 * 128, "two records anywhere");
    }

    #[test]
    fn what_comes_is_taken_away_except_what_a_thread_may_be_writing() {
        let mut all = Promised::default();
        all.add(1, &file(5, 0), at(0, 8192));
        all.add(1, &file(5, 0), at(8192, 4096));
        all.add(2, &file(6, 0), Planned { offset: None, bytes: 10_000 });
        assert!(!all.take(7, 0, 4096), "a page of a mapping was not promised");
        assert!(all.take(5, 0, 12_288));
        assert!(all.take(5, 8192, 4096), "it may be changed again by the call under way");
        assert!(!all.take(5, 0, 4096), "once");
        assert!(all.take(6, 40_960, 8192) && all.take(6, 0, 4096) && !all.take(6, 0, 4096));
        assert!(all.depart(None, |_| true));
        all.arrive(None);
        assert!(!all.is_empty() && all.take(5, 8192, 4096), "thread 1 is in its call");
        assert!(all.depart(None, |_| false));
        assert!(!all.is_empty());
        all.arrive(None);
        assert!(all.is_empty());
    }

    #[test]
    fn what_a_thread_was_promised_before_does_not_stay_when_it_asks_again() {
        let mut all = Promised::default();
        all.add(1, &file(5, 0), Planned { offset: Some(0), bytes: 48 << 20 });
        assert!(all.take(5, 0, 48 << 20) && !all.is_empty(), "it may be in its call");
        all.end_call(1);
        assert!(all.depart(None, |_| true));
        all.arrive(None);
        assert!(all.is_empty());
    }

    #[test]
    fn a_page_of_an_appender_is_taken_once_by_its_bytes() {
        let append = Planned { offset: None, bytes: 3000 };
        let mut all = Promised::default();
        all.add(1, &file(5, 0), append);
        assert!(all.depart(None, |_| false));
        all.add(1, &file(5, 0), append);
        assert!(all.take(5, 0, 3000), "those of the one that leaves");
        assert!(all.take(5, 0, 2999) && all.take(5, 2999, 1), "the next one's are still promised");
        assert!(!all.take(5, 0, 3000) && all.is_empty());
    }

    #[test]
    fn a_file_that_is_handed_over_takes_no_promise_of_another() {
        let mut all = Promised::default();
        all.add(1, &file(5, 0), at(0, 8192));
        all.add(2, &file(6, 0), at(0, 8192));
        all.add(3, &file(6, 0), at(8192, 4096));
        assert!(all.depart(Some(6), |thread| thread == 3));
        all.arrive(Some(6));
        assert!(all.take(6, 8192, 4096), "thread 3 is in its call");
        assert!(!all.take(6, 0, 8192), "the rest of it has come");
        assert!(!all.depart(Some(7), |_| false));
        assert!(all.take(5, 0, 8192), "pages of the other one are in the kernel");
    }
}
