//! Walks over directories: what a program that goes through all of them will want next.
//!
//! `ls -lR`, `find` and `tar` list a directory, then each directory in it, with the attributes of
//! all. Each step of that alone would wait for the device once or twice. Here a listing brings the
//! records of its inodes side by side, and the listing of a directory whose parent was listed
//! brings its neighbours: itself alone the first time, two the next, and so on up to
//! [`WINDOW_MAX`]. They come in any order, as `ls` sorts them. Where all is in memory this costs a
//! look at each leaf.
//!
//! `tar` and `grep -r` then read the files, in the order of the listing or of their numbers. Where
//! each request is dear, the content of a directory's files comes together: once [`FILES_MIN`]
//! files of a listing were read, that of the next [`FILES_MAX`] is brought, as far as there is
//! room. A source tree has few files in each of many directories: once so many files of directories
//! were read one listing after the other, the first file of the next listing is enough, and with
//! the neighbours of a directory comes the content of their files.

use parking_lot::Mutex;
use steadfast_dataset::Dataset;
use steadfast_format::InodeId;
use steadfast_format::dirent::Dirent;
use steadfast_format::file_keys::NamesKey;

use crate::S_IFREG;

/// Directories brought at once, at most.
const WINDOW_MAX: usize = 64;
/// Leaves behind the record of a directory to which a path leads that are brought: the names of a
/// thousand files and the files are some fifteen.
const BELOW_MAX: usize = 16;
/// Leaves of one directory that are brought ahead; of a larger one the listing itself brings the
/// rest.
const LEAVES_MAX: usize = 4;
/// Listed directories whose subdirectories are remembered, and how many of each.
const PARENTS_MAX: usize = 16;
const SUBDIRECTORIES_MAX: usize = 4_096;

/// Subdirectories of listed directories that nobody has listed yet.
#[derive(Default)]
pub(crate) struct Walks(Mutex<Vec<Walk>>);

struct Walk {
    parent: InodeId,
    /// Sorted.
    pending: Vec<InodeId>,
    window: usize,
}

impl Walks {
    /// A listing of `parent` showed these subdirectories.
    pub(crate) fn listed(&self, parent: InodeId, subdirectories: &[InodeId]) {
        if subdirectories.is_empty() {
            return;
        }
        let mut walks = self.0.lock();
        let mut walk = match walks.iter().position(|walk| walk.parent == parent) {
            Some(at) => walks.remove(at),
            None => Walk { parent, pending: Vec::new(), window: 1 },
        };
        let room = SUBDIRECTORIES_MAX.saturating_sub(walk.pending.len());
        walk.pending.extend(subdirectories.iter().take(room));
        walk.pending.sort_unstable();
        walk.pending.dedup();
        if walks.len() == PARENTS_MAX {
            walks.remove(0);
        }
        walks.push(walk);
    }

    /// A listing of `directory` begins. Gives the directories to bring.
    fn begin(&self, parent: InodeId, directory: InodeId) -> Vec<InodeId> {
        let mut walks = self.0.lock();
        let Some(at) = walks.iter().position(|walk| walk.parent == parent) else { return Vec::new() };
        let walk = &mut walks[at];
        let Ok(place) = walk.pending.binary_search(&directory) else { return Vec::new() };
        // Those behind it, then those before it.
        let count = walk.window.min(walk.pending.len());
        let first = place.min(walk.pending.len() - count);
        let taken: Vec<InodeId> = walk.pending.drain(first..first + count).collect();
        walk.window = (2 * walk.window).min(WINDOW_MAX);
        if walk.pending.is_empty() {
            walks.remove(at);
        }
        taken
    }

    /// A listing of `directory` begins: brings what a walk over it and its neighbours will want.
    /// With their files if `with_content`.
    pub(crate) fn bring(&self, dataset: &Dataset, parent: InodeId, directory: InodeId, with_content: bool) {
        let wanted = self.begin(parent, directory);
        if wanted.is_empty() {
            return;
        }
        let entries = |id: &InodeId| (NamesKey::entries(*id), NamesKey::xattrs(*id));
        let ranges: Vec<_> = wanted.iter().map(entries).collect();
        if !dataset.names().bring(&ranges, LEAVES_MAX) {
            return;
        }
        let (mut inodes, mut files) = (Vec::new(), Vec::new());
        for (from, to) in ranges {
            let take = |_: &[u8], value: &[u8]| {
                if let Ok(entry) = Dirent::decode(value) {
                    inodes.push(entry.inode);
                    if u32::from(entry.kind) << 12 == S_IFREG {
                        files.push(entry.inode);
                    }
                }
                inodes.len() < RECORDS_MAX
            };
            // An error is told to the listing that meets it.
            _ = dataset.names().scan(&from, &to, take);
        }
        bring_records(dataset, inodes);
        if with_content {
            dataset.bring_content(&files);
        }
    }
}

/// Files of a listing that are read before the content of others is brought, and how many these are
/// at most.
const FILES_MIN: usize = 8;
const FILES_MAX: usize = 4_096;
/// Listings whose files are remembered, and how many of each.
const LISTINGS_MAX: usize = 8;
const LISTED_MAX: usize = 16_384;

/// Files of directories that were listed of late.
#[derive(Default)]
pub(crate) struct Listings(Mutex<Listed>);

#[derive(Default)]
struct Listed {
    /// The latest last.
    listings: Vec<Listing>,
    /// Files that were read since a listing of files was followed by another one before any of its
    /// files was read.
    read_in_turn: usize,
}

struct Listing {
    directory: InodeId,
    files: Vec<InodeId>,
    /// Each file with its place, by number: made when somebody asks, as most listings are followed
    /// by no read.
    places: Option<Vec<(InodeId, usize)>>,
    /// Files that were read since.
    read: usize,
    /// As many are read when content is brought next.
    due: usize,
}

impl Listing {
    /// Where a file stands in the listing.
    fn place(&mut self, file: InodeId) -> Option<usize> {
        let files = &mut self.files;
        let places = self.places.get_or_insert_with(|| {
            let sorted = |files: &[InodeId]| {
                let mut places: Vec<_> = files.iter().copied().zip(0..).collect();
                places.sort_unstable();
                places
            };
            let mut places = sorted(files);
            // A part that was listed again, or a second name of a file.
            places.dedup_by_key(|(file, _)| *file);
            if places.len() < files.len() {
                places.sort_unstable_by_key(|(_, place)| *place);
                *files = places.iter().map(|(file, _)| *file).collect();
                places = sorted(files);
            }
            places
        });
        let at = places.partition_point(|(other, _)| *other < file);
        places.get(at).filter(|(other, _)| *other == file).map(|(_, place)| *place)
    }
}

impl Listings {
    /// A listing showed these files; from the start, or behind what it showed before.
    pub(crate) fn listed(&self, directory: InodeId, is_start: bool, files: &[InodeId]) {
        let mut listed = self.0.lock();
        let Listed { listings, read_in_turn } = &mut *listed;
        let known = listings.iter().position(|listing| listing.directory == directory);
        let mut listing = match known.map(|at| listings.remove(at)) {
            Some(listing) if !is_start => listing,
            _ => {
                if listings.last().is_some_and(|last| last.read == 0 && !last.files.is_empty()) {
                    *read_in_turn = 0;
                }
                let due = if *read_in_turn < FILES_MIN { FILES_MIN } else { 1 };
                Listing { directory, files: Vec::new(), places: None, read: 0, due }
            }
        };
        let room = LISTED_MAX.saturating_sub(listing.files.len());
        listing.files.extend(files.iter().take(room));
        listing.places = None;
        if listings.len() == LISTINGS_MAX {
            listings.remove(0);
        }
        listings.push(listing);
    }

    /// True while a reader goes from the files of one directory to those of the next.
    pub(crate) fn are_read_in_turn(&self) -> bool {
        self.0.lock().read_in_turn >= FILES_MIN
    }

    /// A file is being read from its start: brings the content of others of its directory when that
    /// is due.
    pub(crate) fn begins(&self, dataset: &Dataset, file: InodeId) {
        let (directory, wanted) = {
            let mut listed = self.0.lock();
            let Listed { listings, read_in_turn } = &mut *listed;
            let found = listings.iter_mut().find_map(|listing| {
                let place = listing.place(file)?;
                Some((listing, place))
            });
            let Some((listing, place)) = found else { return };
            listing.read += 1;
            *read_in_turn += 1;
            if listing.read < listing.due {
                return;
            }
            listing.due = usize::MAX;
            let behind = listing.files[place + 1..].iter().chain(&listing.files[..place]);
            (listing.directory, behind.take(FILES_MAX).copied().collect::<Vec<_>>())
        };
        let count = dataset.bring_content(&wanted);
        let mut listed = self.0.lock();
        if let Some(listing) = listed.listings.iter_mut().find(|listing| listing.directory == directory) {
            listing.due = listing.read + (count - count / 4).max(FILES_MIN);
        }
    }
}

/// Records that are brought at once, at most.
const RECORDS_MAX: usize = 16_384;

/// Brings the records of inodes, side by side.
pub(crate) fn bring_records(dataset: &Dataset, mut inodes: Vec<InodeId>) {
    inodes.retain(|id| !dataset.is_live(*id));
    inodes.sort_unstable();
    let key = |id: InodeId| NamesKey::Inode(id).encode();
    let ranges: Vec<_> = inodes.into_iter().map(|id| (key(id), key(id))).collect();
    dataset.names().bring(&ranges, 1);
}

/// A path leads to this directory, and is likely to go on: where each request is dear, brings what
/// lies behind its record in the tree, while the caller reads that. These are its entries, and then
/// what was made after it: who copies or unpacks a tree makes a directory, and next what is in it.
pub(crate) fn bring_below(dataset: &Dataset, directory: InodeId) {
    if dataset.is_live(directory) || !dataset.brings_content() {
        return;
    }
    let (from, to) = (NamesKey::Inode(directory).encode(), NamesKey::all_of(InodeId(InodeId::FILES_END)));
    dataset.names().bring_behind(&from, &to, BELOW_MAX);
}
