//! The check of a dataset's trees: everything in them that does not fit together. The open dataset
//! checks itself for tests; `inspect check` checks what lies on devices.
//!
//! ## Memory
//! The names tree is walked twice, and the extents tree once, beside the first walk: both are in
//! the order of inodes. 24 bytes of each inode and 32 of each directory are kept between the walks,
//! and the cuts, orphans and owners; no name, no attribute and no extent.

use std::collections::BTreeMap;
use std::iter::Peekable;

use steadfast_format::dirent::{Dirent, PROBES, first_cookie};
use steadfast_format::extent::{self, Extent};
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::inode::InodeRecord;
use steadfast_format::{InodeId, Owner, OwnerRow};

use crate::dataset::ROOT_INODE;
use crate::extents::stored_bytes;
use crate::owners::{both, owned_by};
use crate::problem::Problem;
use crate::{Counters, Dataset, RangeSet, Result};

/// Bytes that an inode's content is said to occupy.
pub type Allocated<'a> = dyn Fn(InodeId, &InodeRecord) -> u64 + 'a;

/// The sums and numbers that a dataset's row gives for its trees.
pub struct Claims<'c> {
    /// Key of the hash of names.
    pub hash_seed: [u8; 16],
    /// Allocation unit of the pool.
    pub unit: u32,
    /// Numbers of inodes end there.
    pub numbers_end: u64,
    /// Sums; `used` is not looked at, as nodes count in it.
    pub counters: Counters,
    /// The bytes that an inode's content is said to occupy, if that is known better than by its
    /// record. `None`: nothing is asked of them, as records on devices may be older than extents.
    pub allocated: Option<&'c Allocated<'c>>,
}

/// A key and a value of a tree.
type Item = (Vec<u8>, Vec<u8>);

/// An inode, as far as the second walk needs it.
struct Known {
    inode: InodeId,
    nlink: u32,
    links: u32,
    kind: u8,
}

/// A directory, as far as the second walk needs it.
struct Directory {
    inode: InodeId,
    /// The parent that its record names.
    noted: InodeId,
    /// The directory whose entry leads to it, or 0.
    parent: InodeId,
    subdirectories: u32,
    reach: Reach,
}

/// Whether parents lead from a directory to the root.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Reach {
    Unknown,
    OnPath,
    Root,
    Detached,
}

/// The inode whose items the first walk is at.
#[derive(Default)]
struct Current {
    inode: InodeId,
    record: Option<InodeRecord>,
    entries: u64,
    has_other: bool,
    target_bytes: Option<u64>,
    /// Names whose hashes have the same upper bits, and these bits.
    alike: (u64, Vec<Vec<u8>>),
}

/// The extents tree, read beside the names tree.
struct Contents<I: Iterator> {
    items: Peekable<I>,
    unit: u32,
    cuts: BTreeMap<InodeId, RangeSet>,
    noted: BTreeMap<Owner, OwnerRow>,
    counted: BTreeMap<Owner, OwnerRow>,
    owners_are_there: bool,
    logical: u64,
    data: u64,
}

/// Everything that the first walk keeps.
struct Trees<'t, I: Iterator> {
    claims: &'t Claims<'t>,
    tell: &'t mut dyn FnMut(Problem),
    contents: Contents<I>,
    inodes: Vec<Known>,
    directories: Vec<Directory>,
    orphans: Vec<InodeId>,
}

impl Dataset {
    /// Walks both trees and tells everything that does not fit; none is what a sound dataset gives.
    /// To be called when no operation runs and nothing is dirty (after a freeze and its sync): what
    /// is in memory is not looked at, but for the bytes that files occupy.
    pub fn check(&self) -> Result<Vec<Problem>> {
        // In memory it is right at once; in the tree with the next flush.
        let allocated = |inode, record: &InodeRecord| {
            self.cached(inode).map_or(record.allocated, |inode| inode.record().allocated)
        };
        let claims = Claims {
            hash_seed: *self.hash_seed(),
            unit: self.blocks.unit(),
            numbers_end: InodeId::END,
            counters: self.counters(),
            allocated: Some(&allocated),
        };
        let mut problems = Vec::new();
        let names = || self.names().range::<&[u8]>(..);
        check_trees(names, self.extents.range::<&[u8]>(..), &claims, &mut |problem| problems.push(problem))?;
        Ok(problems)
    }
}

/// Walks a dataset's trees, whose items come in the order of their keys, and tells everything that
/// does not fit.
///
/// # Errors
/// The first error of an iterator: what was told before counts, the rest is not known.
pub fn check_trees<E, N, X>(
    names: impl Fn() -> N,
    extents: X,
    claims: &Claims<'_>,
    tell: &mut dyn FnMut(Problem),
) -> std::result::Result<(), E>
where
    N: Iterator<Item = std::result::Result<Item, E>>,
    X: Iterator<Item = std::result::Result<Item, E>>,
{
    let contents = Contents {
        items: extents.peekable(),
        unit: claims.unit,
        cuts: BTreeMap::new(),
        noted: BTreeMap::new(),
        counted: BTreeMap::new(),
        owners_are_there: false,
        logical: 0,
        data: 0,
    };
    let (inodes, directories, orphans) = Default::default();
    let mut trees = Trees { claims, tell, contents, inodes, directories, orphans };
    trees.contents.read_front(trees.tell)?;
    trees.walk_names(names())?;
    trees.walk_entries(names())?;
    trees.check_links();
    trees.check_reach();
    trees.check_counters();
    Ok(())
}

impl<E, X: Iterator<Item = std::result::Result<Item, E>>> Trees<'_, X> {
    fn tell(&mut self, problem: Problem) {
        (self.tell)(problem);
    }

    /// The first walk: what can be told of each inode by itself.
    fn walk_names(
        &mut self,
        names: impl Iterator<Item = std::result::Result<Item, E>>,
    ) -> std::result::Result<(), E> {
        let mut current = Current::default();
        for item in names {
            let (key, value) = item?;
            let Ok(decoded) = NamesKey::decode(&key) else {
                self.tell(Problem::Item(key));
                continue;
            };
            let of = match &decoded {
                NamesKey::Head => continue,
                NamesKey::Orphan(inode) => {
                    self.orphans.push(*inode);
                    continue;
                }
                NamesKey::Inode(inode)
                | NamesKey::Entry { directory: inode, .. }
                | NamesKey::Xattr { inode, .. }
                | NamesKey::Target { inode, .. } => *inode,
            };
            if of != current.inode {
                let done = std::mem::replace(&mut current, Current { inode: of, ..Current::default() });
                self.close(done)?;
            }
            match decoded {
                NamesKey::Inode(_) => match InodeRecord::decode(&value) {
                    Ok(record) => current.record = Some(record),
                    Err(_) => self.tell(Problem::Item(key)),
                },
                NamesKey::Entry { directory, cookie } => {
                    current.entries += 1;
                    match Dirent::decode(&value) {
                        Ok(entry) => self.check_place(directory, cookie, entry.name, &mut current.alike),
                        Err(_) => self.tell(Problem::Item(key)),
                    }
                }
                NamesKey::Target { .. } => {
                    *current.target_bytes.get_or_insert(0) += value.len() as u64;
                }
                _ => current.has_other = true,
            }
        }
        self.close(current)?;
        self.contents.take_until(None, self.tell).map(drop)
    }

    /// An entry's place follows from its name.
    fn check_place(
        &mut self,
        directory: InodeId,
        cookie: u64,
        name: Vec<u8>,
        alike: &mut (u64, Vec<Vec<u8>>),
    ) {
        let first = first_cookie(&self.claims.hash_seed, &name);
        if !(first..first + PROBES).contains(&cookie) {
            self.tell(Problem::EntryPlace { directory, name: name.clone() });
        }
        if alike.0 != first {
            *alike = (first, Vec::new());
        }
        if alike.1.contains(&name) {
            self.tell(Problem::EntryTwice { directory, name });
        } else {
            alike.1.push(name);
        }
    }

    /// All items of an inode were read.
    fn close(&mut self, current: Current) -> std::result::Result<(), E> {
        let Current { inode, record, entries, has_other, target_bytes, .. } = current;
        if inode.0 == 0 {
            return Ok(());
        }
        let occupied = self.contents.take_until(Some((inode, record.as_ref())), self.tell)?;
        let is_directory = record.is_some_and(|record| kind(&record) == DIRECTORY);
        if entries > 0 && !is_directory {
            self.tell(Problem::EntryOutsideDirectory(inode));
        }
        let Some(record) = record else {
            if has_other || target_bytes.is_some() {
                self.tell(Problem::ItemsWithoutInode(inode));
            }
            return Ok(());
        };
        if is_directory && entries != record.size {
            self.tell(Problem::DirectorySize { directory: inode, noted: record.size, counted: entries });
        }
        if kind(&record) == LINK && target_bytes != Some(record.size) {
            self.tell(Problem::TargetSize(inode));
        }
        if let Some(allocated) = self.claims.allocated {
            let noted = allocated(inode, &record);
            if noted != occupied && noted != InodeRecord::ALLOCATED_UNKNOWN {
                self.tell(Problem::Allocated { inode, noted, counted: occupied });
            }
        }
        for owner in both(owned_by(&record)) {
            let row = self.contents.counted.entry(owner).or_default();
            row.bytes = row.bytes.saturating_add(occupied);
            row.objects += 1;
        }
        self.inodes.push(Known { inode, nlink: record.nlink, links: 0, kind: kind(&record) });
        if is_directory {
            self.directories.push(Directory {
                inode,
                noted: record.parent,
                parent: InodeId(0),
                subdirectories: 0,
                reach: Reach::Unknown,
            });
        }
        Ok(())
    }

    /// The second walk: what entries lead to.
    fn walk_entries(
        &mut self,
        names: impl Iterator<Item = std::result::Result<Item, E>>,
    ) -> std::result::Result<(), E> {
        for item in names {
            let (key, value) = item?;
            let Ok(NamesKey::Entry { directory, .. }) = NamesKey::decode(&key) else { continue };
            let Ok(Dirent { inode, kind, name }) = Dirent::decode(&value) else { continue };
            let Ok(at) = self.inodes.binary_search_by_key(&inode, |known| known.inode) else {
                self.tell(Problem::EntryWithoutInode { directory, name, inode });
                continue;
            };
            let known = &mut self.inodes[at];
            known.links = known.links.saturating_add(1);
            if known.kind != kind {
                self.tell(Problem::EntryKind { directory, name, inode });
            }
            let Some(at) = self.directory(inode) else { continue };
            let below = &mut self.directories[at];
            let (before, noted) = (below.parent, below.noted);
            if before.0 == 0 {
                below.parent = directory;
            } else {
                self.tell(Problem::DirectoryTwice { inode, parents: [before, directory] });
            }
            if noted != directory {
                self.tell(Problem::Parent { inode, noted, found: directory });
            }
            if let Some(at) = self.directory(directory) {
                self.directories[at].subdirectories += 1;
            }
        }
        Ok(())
    }

    fn directory(&self, inode: InodeId) -> Option<usize> {
        self.directories.binary_search_by_key(&inode, |known| known.inode).ok()
    }

    fn check_links(&mut self) {
        if self.inodes.first().is_none_or(|first| first.inode != ROOT_INODE) {
            self.tell(Problem::NoRoot);
        }
        for at in 0..self.inodes.len() {
            let Known { inode, nlink: noted, links, kind } = self.inodes[at];
            let is_root = inode == ROOT_INODE;
            let counted = match self.directory(inode).filter(|_| kind == DIRECTORY) {
                Some(_) if links == 0 && !is_root => 0,
                Some(at) => 2 + self.directories[at].subdirectories,
                // The root has a link that is no entry: of a volume it is a file.
                None => links + u32::from(is_root),
            };
            if counted != noted {
                self.tell(Problem::Links { inode, noted, counted });
            }
            match (noted, self.orphans.binary_search(&inode).is_ok()) {
                (0, false) => self.tell(Problem::OrphanUnlisted(inode)),
                (1.., true) => self.tell(Problem::OrphanLinked(inode)),
                _ => {}
            }
        }
        for at in 0..self.orphans.len() {
            let orphan = self.orphans[at];
            if self.inodes.binary_search_by_key(&orphan, |known| known.inode).is_err() {
                self.tell(Problem::ItemsWithoutInode(orphan));
            }
        }
    }

    /// Follows each directory's parents. One without a parent, but the root and orphans, and one
    /// of each circle is told; what lies below it is not.
    fn check_reach(&mut self) {
        let mut path = Vec::new();
        for start in 0..self.directories.len() {
            let mut at = start;
            let end = loop {
                let directory = &mut self.directories[at];
                match directory.reach {
                    Reach::Root | Reach::Detached => break directory.reach,
                    Reach::OnPath => {
                        let (inode, parent) = (directory.inode, directory.parent);
                        self.tell(Problem::Circle { inode, parent });
                        break Reach::Detached;
                    }
                    Reach::Unknown => {}
                }
                directory.reach = Reach::OnPath;
                path.push(at);
                let (inode, parent) = (directory.inode, directory.parent);
                // An entry that leads to the root is told with the links.
                if inode == ROOT_INODE && parent.0 == 0 {
                    break Reach::Root;
                }
                let Some(next) = self.directory(parent) else {
                    let known = self.inodes.binary_search_by_key(&inode, |known| known.inode);
                    let is_orphan = known.is_ok_and(|at| self.inodes[at].nlink == 0);
                    if parent.0 == 0 && !is_orphan {
                        self.tell(Problem::Unreachable(inode));
                    }
                    break Reach::Detached;
                };
                at = next;
            };
            for at in path.drain(..) {
                self.directories[at].reach = end;
            }
        }
    }

    fn check_counters(&mut self) {
        let contents = &mut self.contents;
        if contents.owners_are_there {
            let (mut counted, mut wrong) = (std::mem::take(&mut contents.counted), Vec::new());
            for (owner, noted) in std::mem::take(&mut contents.noted) {
                let counted = counted.remove(&owner).unwrap_or_default();
                if noted != counted {
                    wrong.push(Problem::Owner { owner, noted, counted });
                }
            }
            let without = counted.into_iter();
            let noted = OwnerRow::default();
            wrong.extend(without.map(|(owner, counted)| Problem::Owner { owner, noted, counted }));
            wrong.into_iter().for_each(|problem| self.tell(problem));
        }
        let counters = self.claims.counters;
        let sums = [
            ("logical", counters.logical, self.contents.logical),
            ("data", counters.data, self.contents.data),
            ("files", counters.files, self.inodes.len() as u64),
        ];
        for (name, noted, counted) in sums {
            if noted != counted {
                self.tell(Problem::Counter { name, noted, counted });
            }
        }
        let (noted, end) = (counters.next_inode, self.claims.numbers_end);
        if !(2..=end).contains(&noted) {
            self.tell(Problem::NextInodeOutside { noted, end });
        } else if let Some(highest) = self.inodes.last().map(|known| known.inode)
            && counters.next_inode <= highest.0
        {
            self.tell(Problem::NextInode { noted: counters.next_inode, highest });
        }
    }
}

impl<E, X: Iterator<Item = std::result::Result<Item, E>>> Contents<X> {
    /// The next item, if its key is below `end`; `None`: whatever it is.
    fn next_below(&mut self, end: Option<&[u8]>) -> std::result::Result<Option<Item>, E> {
        let is_below = |item: &std::result::Result<Item, E>| match (item, end) {
            (Ok((key, _)), Some(end)) => key.as_slice() < end,
            _ => true,
        };
        self.items.next_if(is_below).transpose()
    }

    /// Reads what comes before the extents: cuts, and what owners are said to have.
    fn read_front(&mut self, tell: &mut dyn FnMut(Problem)) -> std::result::Result<(), E> {
        while let Some((key, value)) = self.next_below(Some(&NamesKey::all_of(ROOT_INODE)))? {
            match ExtentsKey::decode(&key) {
                Ok(ExtentsKey::Cut { inode, start }) => match extent::decode_cut(start, &value) {
                    Ok(end) => self.cuts.entry(inode).or_default().insert(start..end),
                    Err(_) => tell(Problem::Item(key)),
                },
                Ok(ExtentsKey::Owners) => self.owners_are_there = true,
                Ok(ExtentsKey::Owner(owner)) => match OwnerRow::decode(&value) {
                    Ok(row) => _ = self.noted.insert(owner, row),
                    Err(_) => tell(Problem::Item(key)),
                },
                Ok(ExtentsKey::Extent { .. }) | Err(_) => tell(Problem::Item(key)),
            }
        }
        Ok(())
    }

    /// Reads extents up to an inode's last one, or to the end. Gives the bytes that the content of
    /// that inode occupies.
    fn take_until(
        &mut self,
        of: Option<(InodeId, Option<&InodeRecord>)>,
        tell: &mut dyn FnMut(Problem),
    ) -> std::result::Result<u64, E> {
        let end = of.map(|(inode, _)| NamesKey::all_of(InodeId(inode.0.saturating_add(1))));
        let (mut occupied, mut last, mut lost) = (0, 0, InodeId(0));
        while let Some((key, value)) = self.next_below(end.as_deref())? {
            let Ok(ExtentsKey::Extent { inode, offset }) = ExtentsKey::decode(&key) else {
                tell(Problem::Item(key));
                continue;
            };
            let Ok(extent) = Extent::decode(&value) else {
                tell(Problem::Item(key));
                continue;
            };
            let end = offset.saturating_add(extent.length().into());
            self.logical = self.logical.saturating_add(extent.length().into());
            let bytes = stored_bytes(&extent, self.unit);
            if !matches!(extent, Extent::Inline(_)) {
                self.data = self.data.saturating_add(bytes);
            }
            if let Extent::Overlaid(overlaid) = &extent
                && crate::overlaid::settled(overlaid.clone()).as_ref() != Some(&extent)
            {
                tell(Problem::Unsettled { inode, offset });
            }
            let is_its = of.is_some_and(|(of, _)| of == inode);
            if is_its {
                occupied += bytes;
                if last > offset {
                    tell(Problem::ExtentOverlap { inode, offset });
                }
                last = end;
            }
            // Content under a cut is being freed, whatever it is.
            let live = match self.cuts.get(&inode) {
                Some(cuts) => cuts.gaps(offset..end).into_iter().next_back(),
                None => Some(offset..end),
            };
            let Some(live) = live else { continue };
            let Some(record) = of.filter(|_| is_its).and_then(|(_, record)| record) else {
                if lost != inode {
                    tell(Problem::ExtentsWithoutInode(inode));
                }
                lost = inode;
                continue;
            };
            if record.record_shift == 0 || offset % (1 << record.record_shift) != 0 {
                tell(Problem::ExtentPlace { inode, offset });
            }
            if live.end > record.size {
                tell(Problem::ExtentBehindEnd { inode, offset });
            }
        }
        Ok(occupied)
    }
}

/// Type bits of a directory's mode, over 4096.
const DIRECTORY: u8 = 4;
/// The same of a symbolic link's.
const LINK: u8 = 10;

fn kind(record: &InodeRecord) -> u8 {
    u8::try_from((record.mode & 0o170_000) >> 12).expect("four bits")
}
