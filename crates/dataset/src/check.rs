//! The checker: walks both trees and says what does not fit.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use steadfast_format::dirent::{Dirent, PROBES, first_cookie};
use steadfast_format::extent::{self, Extent};
use steadfast_format::file_keys::{ExtentsKey, NamesKey};
use steadfast_format::inode::InodeRecord;
use steadfast_format::{InodeId, Owner, OwnerRow};

use crate::{Dataset, Result};

/// Something that does not fit in a dataset's trees. One variant for each thing that can be wrong.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Problem {
    /// An item that cannot be understood; its key.
    Item(Vec<u8>),
    /// There is no root directory.
    NoRoot,
    /// An entry leads to an inode that does not exist. Name lost: an operation was not atomic.
    EntryWithoutInode {
        /// Directory.
        directory: InodeId,
        /// Its name.
        name: Vec<u8>,
    },
    /// An entry lies in something that is not a directory.
    EntryOutsideDirectory(InodeId),
    /// An entry says another type than its inode.
    EntryKind {
        /// Directory.
        directory: InodeId,
        /// Its name.
        name: Vec<u8>,
    },
    /// An entry is not where its name's hash says: lookups miss it.
    EntryPlace {
        /// Directory.
        directory: InodeId,
        /// Its name.
        name: Vec<u8>,
    },
    /// Two entries of one name in one directory.
    EntryTwice {
        /// Directory.
        directory: InodeId,
        /// The name.
        name: Vec<u8>,
    },
    /// Links counted are not those noted.
    Links {
        /// Inode.
        inode: InodeId,
        /// `nlink` of its record.
        noted: u32,
        /// Number that its entries give.
        counted: u32,
    },
    /// A directory's size is not the number of its entries.
    DirectorySize {
        /// Directory.
        directory: InodeId,
        /// Its record's size.
        noted: u64,
        /// Its entries.
        counted: u64,
    },
    /// A directory names another parent than the one it lies in.
    Parent(InodeId),
    /// An inode without links is not listed as an orphan: its space is lost.
    OrphanUnlisted(InodeId),
    /// A listed orphan has links: the next open would remove it.
    OrphanLinked(InodeId),
    /// Attributes or a target of an inode that does not exist.
    ItemsWithoutInode(InodeId),
    /// The target of a link is shorter or longer than its inode says.
    TargetSize(InodeId),
    /// Content of an inode that does not exist: its space is lost.
    ExtentsWithoutInode(InodeId),
    /// An extent does not begin at a multiple of the record size.
    ExtentPlace {
        /// File.
        inode: InodeId,
        /// Where it begins.
        offset: u64,
    },
    /// Two extents share bytes.
    ExtentOverlap {
        /// File.
        inode: InodeId,
        /// Where the second one begins.
        offset: u64,
    },
    /// Content behind the end of the file: it would appear when the file grows.
    ExtentBehindEnd {
        /// File.
        inode: InodeId,
        /// Where it begins.
        offset: u64,
    },
    /// An extent keeps what nobody sees, or its length is not where its content ends.
    Unsettled {
        /// File.
        inode: InodeId,
        /// Where it begins.
        offset: u64,
    },
    /// The bytes that a file's record says it occupies differ from those of its extents.
    Allocated {
        /// File.
        inode: InodeId,
        /// Number in its record.
        noted: u64,
        /// Number from its extents.
        counted: u64,
    },
    /// The row of an owner differs from the sum over its inodes.
    Owner {
        /// Whose.
        owner: Owner,
        /// Row in the extents tree.
        noted: OwnerRow,
        /// Sum over its inodes.
        counted: OwnerRow,
    },
    /// The sum of logical or data bytes is not what is counted.
    Counter {
        /// Which one.
        name: &'static str,
        /// Number in the dataset row.
        noted: u64,
        /// Number of its items.
        counted: u64,
    },
}

/// Inodes and entries seen in the names tree.
#[derive(Default)]
struct Seen {
    inodes: BTreeMap<InodeId, InodeRecord>,
    links: HashMap<InodeId, u32>,
    subdirectories: HashMap<InodeId, u32>,
    entries: HashMap<InodeId, u64>,
    /// Directory, kind and name of each entry, by the inode it leads to.
    targets: HashMap<InodeId, u64>,
    orphans: BTreeSet<InodeId>,
    owners: BTreeSet<InodeId>,
}

impl Dataset {
    /// Walks both trees and tells everything that does not fit; none is what a sound dataset gives.
    /// To be called when no operation runs and nothing is dirty (after a freeze and its sync): what
    /// is in memory is not looked at. Holds the attributes of all inodes in memory.
    pub fn check(&self) -> Result<Vec<Problem>> {
        let mut problems = Vec::new();
        let seen = self.check_names(&mut problems)?;
        self.check_extents(&seen, &mut problems)?;
        Ok(problems)
    }

    fn check_names(&self, problems: &mut Vec<Problem>) -> Result<Seen> {
        let mut seen = Seen::default();
        let mut entries: Vec<(InodeId, u64, Dirent)> = Vec::new();
        for item in self.names().range::<&[u8]>(..) {
            let (key, value) = item?;
            match NamesKey::decode(&key) {
                Ok(NamesKey::Inode(inode)) => match InodeRecord::decode(&value) {
                    Ok(record) => _ = seen.inodes.insert(inode, record),
                    Err(_) => problems.push(Problem::Item(key)),
                },
                Ok(NamesKey::Entry { directory, cookie }) => match Dirent::decode(&value) {
                    Ok(entry) => entries.push((directory, cookie, entry)),
                    Err(_) => problems.push(Problem::Item(key)),
                },
                Ok(NamesKey::Orphan(inode)) => _ = seen.orphans.insert(inode),
                Ok(NamesKey::Xattr { inode, .. }) => _ = seen.owners.insert(inode),
                Ok(NamesKey::Target { inode, .. }) => {
                    seen.owners.insert(inode);
                    *seen.targets.entry(inode).or_default() += value.len() as u64;
                }
                Ok(NamesKey::Head) => {}
                Err(_) => problems.push(Problem::Item(key)),
            }
        }
        if !seen.inodes.contains_key(&InodeId(1)) {
            problems.push(Problem::NoRoot);
        }
        self.check_entries(entries, &mut seen, problems);
        for (&inode, record) in &seen.inodes {
            let links = seen.links.get(&inode).copied().unwrap_or(0);
            let counted = if is_directory(record) {
                let below = seen.subdirectories.get(&inode).copied().unwrap_or(0);
                if links == 0 && inode.0 != 1 { 0 } else { 2 + below }
            } else {
                // The root has a link that is no entry: of a volume it is a file.
                links + u32::from(inode.0 == 1)
            };
            if counted != record.nlink {
                problems.push(Problem::Links { inode, noted: record.nlink, counted });
            }
            match (record.nlink, seen.orphans.contains(&inode)) {
                (0, false) => problems.push(Problem::OrphanUnlisted(inode)),
                (1.., true) => problems.push(Problem::OrphanLinked(inode)),
                _ => {}
            }
            let counted = seen.entries.get(&inode).copied().unwrap_or(0);
            if is_directory(record) && counted != record.size {
                problems.push(Problem::DirectorySize { directory: inode, noted: record.size, counted });
            }
            if kind(record) == 10 && seen.targets.get(&inode) != Some(&record.size) {
                problems.push(Problem::TargetSize(inode));
            }
        }
        let without = seen.owners.iter().filter(|inode| !seen.inodes.contains_key(inode));
        problems.extend(without.map(|&inode| Problem::ItemsWithoutInode(inode)));
        Ok(seen)
    }

    fn check_entries(
        &self,
        entries: Vec<(InodeId, u64, Dirent)>,
        seen: &mut Seen,
        problems: &mut Vec<Problem>,
    ) {
        let mut names: BTreeSet<(InodeId, Vec<u8>)> = BTreeSet::new();
        for (directory, cookie, entry) in entries {
            let Dirent { inode, name, .. } = entry.clone();
            if !seen.inodes.get(&directory).is_some_and(is_directory) {
                problems.push(Problem::EntryOutsideDirectory(directory));
            }
            let first = first_cookie(self.hash_seed(), &name);
            if !(first..first + PROBES).contains(&cookie) {
                problems.push(Problem::EntryPlace { directory, name: name.clone() });
            }
            *seen.entries.entry(directory).or_default() += 1;
            *seen.links.entry(inode).or_default() += 1;
            match seen.inodes.get(&inode) {
                None => problems.push(Problem::EntryWithoutInode { directory, name: name.clone() }),
                Some(record) => {
                    if kind(record) != u32::from(entry.kind) {
                        problems.push(Problem::EntryKind { directory, name: name.clone() });
                    }
                    if is_directory(record) {
                        *seen.subdirectories.entry(directory).or_default() += 1;
                        if record.parent != directory {
                            problems.push(Problem::Parent(inode));
                        }
                    }
                }
            }
            if !names.insert((directory, name.clone())) {
                problems.push(Problem::EntryTwice { directory, name });
            }
        }
    }

    fn check_extents(&self, seen: &Seen, problems: &mut Vec<Problem>) -> Result<()> {
        let mut cuts: BTreeMap<InodeId, crate::RangeSet> = BTreeMap::new();
        let mut last: Option<(InodeId, u64)> = None;
        let (mut logical, mut data) = (0, 0);
        let mut lost: BTreeSet<InodeId> = BTreeSet::new();
        let mut occupied: HashMap<InodeId, u64> = HashMap::new();
        for item in self.extents.range::<&[u8]>(..) {
            let (key, value) = item?;
            match ExtentsKey::decode(&key) {
                Ok(ExtentsKey::Cut { inode, start }) => match extent::decode_cut(start, &value) {
                    Ok(end) => cuts.entry(inode).or_default().insert(start..end),
                    Err(_) => problems.push(Problem::Item(key)),
                },
                Ok(ExtentsKey::Extent { inode, offset }) => {
                    let Ok(extent) = Extent::decode(&value) else {
                        problems.push(Problem::Item(key));
                        continue;
                    };
                    let end = offset.saturating_add(extent.length().into());
                    logical += u64::from(extent.length());
                    *occupied.entry(inode).or_default() += self.extent_bytes(&extent);
                    data += self.extent_data(&extent);
                    if let Extent::Overlaid(overlaid) = &extent
                        && crate::overlaid::settled(overlaid.clone()).as_ref() != Some(&extent)
                    {
                        problems.push(Problem::Unsettled { inode, offset });
                    }
                    if last.is_some_and(|(owner, last_end)| owner == inode && last_end > offset) {
                        problems.push(Problem::ExtentOverlap { inode, offset });
                    }
                    last = Some((inode, end));
                    // Content under a cut is being freed, whatever it is.
                    let live = match cuts.get(&inode) {
                        Some(cuts) => cuts.gaps(offset..end).into_iter().next_back(),
                        None => Some(offset..end),
                    };
                    let Some(live) = live else { continue };
                    let Some(record) = seen.inodes.get(&inode) else {
                        lost.insert(inode);
                        continue;
                    };
                    if record.record_shift == 0 || offset % (1 << record.record_shift) != 0 {
                        problems.push(Problem::ExtentPlace { inode, offset });
                    }
                    if live.end > record.size {
                        problems.push(Problem::ExtentBehindEnd { inode, offset });
                    }
                }
                Ok(ExtentsKey::Owners) => {}
                Ok(ExtentsKey::Owner(_)) => {
                    if OwnerRow::decode(&value).is_err() {
                        problems.push(Problem::Item(key));
                    }
                }
                Err(_) => problems.push(Problem::Item(key)),
            }
        }
        problems.extend(lost.into_iter().map(Problem::ExtentsWithoutInode));
        for (&inode, record) in &seen.inodes {
            // In memory it is right at once; in the tree with the next flush.
            let noted = self.cached(inode).map_or(record.allocated, |inode| inode.record().allocated);
            let counted = occupied.get(&inode).copied().unwrap_or(0);
            if noted != counted && noted != InodeRecord::ALLOCATED_UNKNOWN {
                problems.push(Problem::Allocated { inode, noted, counted });
            }
        }
        self.check_owners(&seen.inodes, &occupied, problems);
        let counters = self.counters();
        let inodes = seen.inodes.len() as u64;
        let sums = [
            ("logical", counters.logical, logical),
            ("data", counters.data, data),
            ("files", counters.files, inodes),
        ];
        let wrong = sums.into_iter().filter(|(_, noted, counted)| noted != counted);
        problems.extend(wrong.map(|(name, noted, counted)| Problem::Counter { name, noted, counted }));
        Ok(())
    }
}

fn kind(record: &InodeRecord) -> u32 {
    (record.mode & 0o170_000) >> 12
}

fn is_directory(record: &InodeRecord) -> bool {
    kind(record) == 4
}
