//! Faults of a dataset's trees, as the check ([`crate::check_trees`]) tells them.

use steadfast_format::{InodeId, Owner, OwnerRow};

/// Something that does not fit in a dataset's trees. One variant for each thing that can be wrong.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// An item that cannot be understood; its key.
    #[error("the item with the key {0:02x?} cannot be understood")]
    Item(Vec<u8>),
    /// There is no root inode.
    #[error("inode 1, the root, is missing")]
    NoRoot,
    /// An entry leads to an inode that does not exist. Name lost: an operation was not atomic.
    #[error("directory {directory}: the entry {} leads to inode {inode}, which is missing", quoted(name))]
    EntryWithoutInode {
        /// Directory.
        directory: InodeId,
        /// Its name.
        name: Vec<u8>,
        /// Number that it leads to.
        inode: InodeId,
    },
    /// Entries lie in something that is not a directory.
    #[error("inode {0} is not a directory, and has entries")]
    EntryOutsideDirectory(InodeId),
    /// An entry says another type than its inode.
    #[error("directory {directory}: the entry {} says another type than inode {inode} is of", quoted(name))]
    EntryKind {
        /// Directory.
        directory: InodeId,
        /// Its name.
        name: Vec<u8>,
        /// Inode that it leads to.
        inode: InodeId,
    },
    /// An entry is not where its name's hash says: lookups miss it.
    #[error(
        "directory {directory}: the cookie of the entry {} is not one of its name: lookups miss it",
        quoted(name)
    )]
    EntryPlace {
        /// Directory.
        directory: InodeId,
        /// Its name.
        name: Vec<u8>,
    },
    /// Two entries of one name in one directory.
    #[error("directory {directory}: two entries are called {}", quoted(name))]
    EntryTwice {
        /// Directory.
        directory: InodeId,
        /// The name.
        name: Vec<u8>,
    },
    /// A directory lies in two.
    #[error("directory {inode} is in two directories, {} and {}", parents[0], parents[1])]
    DirectoryTwice {
        /// The directory.
        inode: InodeId,
        /// The two, in the order of their numbers.
        parents: [InodeId; 2],
    },
    /// Parents of a directory lead back to it, and not to the root.
    #[error("directory {inode} lies in itself, by way of directory {parent}")]
    Circle {
        /// One directory of the circle.
        inode: InodeId,
        /// The directory that it is in.
        parent: InodeId,
    },
    /// No entry leads to a directory, and it is not an orphan.
    #[error("directory {0} cannot be reached: no entry leads to it")]
    Unreachable(InodeId),
    /// Links counted are not those noted.
    #[error("inode {inode} says that it has {noted} links, and {counted} were found")]
    Links {
        /// Inode.
        inode: InodeId,
        /// `nlink` of its record.
        noted: u32,
        /// Number that its entries give.
        counted: u32,
    },
    /// A directory's size is not the number of its entries.
    #[error("directory {directory} says that it has {noted} entries, and {counted} were found")]
    DirectorySize {
        /// Directory.
        directory: InodeId,
        /// Its record's size.
        noted: u64,
        /// Its entries.
        counted: u64,
    },
    /// A directory names another parent than the one it lies in.
    #[error("directory {inode} says that it lies in {noted}, and lies in {found}")]
    Parent {
        /// The directory.
        inode: InodeId,
        /// The parent that its record names.
        noted: InodeId,
        /// The directory whose entry leads to it.
        found: InodeId,
    },
    /// An inode without links is not listed as an orphan: its space is lost.
    #[error("inode {0} has no links, and is not listed as an orphan: its space is lost")]
    OrphanUnlisted(InodeId),
    /// A listed orphan has links: the next open would remove it.
    #[error("inode {0} has links, and is listed as an orphan: the next mount removes it")]
    OrphanLinked(InodeId),
    /// Attributes or a target of an inode that does not exist.
    #[error("inode {0} is missing, and has attributes, a target or an orphan's listing")]
    ItemsWithoutInode(InodeId),
    /// The target of a link is shorter or longer than its inode says.
    #[error("inode {0}: the target of the symbolic link is not as long as its size says")]
    TargetSize(InodeId),
    /// Content of an inode that does not exist: its space is lost.
    #[error("inode {0} is missing, and has content: its space is lost")]
    ExtentsWithoutInode(InodeId),
    /// An extent does not begin at a multiple of the record size.
    #[error("inode {inode}: the extent at byte {offset} does not begin at a record")]
    ExtentPlace {
        /// File.
        inode: InodeId,
        /// Where it begins.
        offset: u64,
    },
    /// Two extents share bytes.
    #[error("inode {inode}: the extent at byte {offset} begins before the end of the one before")]
    ExtentOverlap {
        /// File.
        inode: InodeId,
        /// Where the second one begins.
        offset: u64,
    },
    /// Content behind the end of the file: it would appear when the file grows.
    #[error("inode {inode}: the extent at byte {offset} reaches behind the end of the file")]
    ExtentBehindEnd {
        /// File.
        inode: InodeId,
        /// Where it begins.
        offset: u64,
    },
    /// An extent keeps what nobody sees, or its length is not where its content ends.
    #[error("inode {inode}: the extent at byte {offset} keeps blocks of which no byte is visible")]
    Unsettled {
        /// File.
        inode: InodeId,
        /// Where it begins.
        offset: u64,
    },
    /// The bytes that a file's record says it occupies differ from those of its extents.
    #[error("inode {inode} says that its content occupies {noted} bytes, and its extents occupy {counted}")]
    Allocated {
        /// File.
        inode: InodeId,
        /// Number in its record.
        noted: u64,
        /// Number from its extents.
        counted: u64,
    },
    /// The row of an owner differs from the sum over its inodes.
    #[error(
        "{} is said to have {} bytes in {} inodes, and has {} bytes in {}",
        owner, noted.bytes, noted.objects, counted.bytes, counted.objects
    )]
    Owner {
        /// Whose.
        owner: Owner,
        /// Row in the extents tree.
        noted: OwnerRow,
        /// Sum over its inodes.
        counted: OwnerRow,
    },
    /// A sum over the dataset is not what is counted.
    #[error("{name} says {noted}, and {counted} were counted")]
    Counter {
        /// Which one.
        name: &'static str,
        /// Number in the dataset row.
        noted: u64,
        /// Number of its items.
        counted: u64,
    },
    /// The number of the next inode is given out already.
    #[error("the next inode would get the number {noted}, and inode {highest} exists")]
    NextInode {
        /// Number in the dataset row.
        noted: u64,
        /// Highest number of an inode.
        highest: InodeId,
    },
    /// The number of the next inode is none that an inode may have.
    #[error("the next inode would get the number {noted}, which is not one of 2 to {end}")]
    NextInodeOutside {
        /// Number in the dataset row.
        noted: u64,
        /// Numbers end there.
        end: u64,
    },
}

/// A name as text in quotes: nothing of it moves a cursor.
fn quoted(name: &[u8]) -> String {
    format!("\"{}\"", name.escape_ascii())
}
