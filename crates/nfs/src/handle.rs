//! File handles: what a client keeps of a file, for as long as it likes.
//!
//! | off | len | field      | meaning                                     |
//! |-----|-----|------------|---------------------------------------------|
//! |   0 |   4 | version    | 1                                           |
//! |   4 |   8 | pool       | guid of the pool                            |
//! |  12 |   8 | dataset    | number of the dataset in it                 |
//! |  20 |   8 | inode      | its number                                  |
//! |  28 |   8 | generation | with the number it names the file for ever  |
//! |  36 |  16 | tag        | keyed hash of the bytes before              |
//!
//! A file of a snapshot, and the folders `.zfs` and `.zfs/snapshot`, have version 2:
//!
//! | off | len | field      | meaning                                                      |
//! |-----|-----|------------|--------------------------------------------------------------|
//! |   0 |   4 | version    | 2                                                            |
//! |   4 |  32 |            | pool, dataset, inode and generation as above                 |
//! |  36 |   8 | snapshot   | number of the snapshot; all ones for the folders, whose      |
//! |     |     |            | inodes are 1 (`.zfs`) and 2 (`.zfs/snapshot`)                |
//! |  44 |  16 | tag        | keyed hash of the bytes before                               |
//!
//! Nothing of it depends on the daemon: a handle is good after a restart, an export and an import,
//! and after a rename of the dataset. A rollback keeps it as long as the file has the same number
//! and generation.
//!
//! The tag's key is derived from a secret of the dataset. A client cannot make up the handle of a
//! file below a directory that it may not enter; it could guess numbers otherwise.

use crate::nfs3::Handle;
use crate::tags::{self, TAG};
use crate::xdr::Reader;
use std::ops::Deref;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use steadfast_crypto::{Key, derive, keyed_hash};

const VERSION: u32 = 1;
/// Version of handles with the number of a snapshot.
const VERSION_SNAPSHOT: u32 = 2;
/// Bytes of the longest handle.
pub const SIZE_MAX: usize = 60;
/// Bytes before the number of a snapshot.
const PLAIN: usize = 36;
/// In place of a snapshot: the live file system.
pub const LIVE: u64 = 0;
/// In place of a snapshot: the folders that lead to snapshots.
pub const FOLDERS: u64 = u64::MAX;

/// Which dataset a handle belongs to.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ExportId {
    /// Guid of the pool.
    pub pool: u64,
    /// Number of the dataset in it.
    pub dataset: u64,
}

/// A file of a dataset, or of one of its snapshots.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FileId {
    /// [`LIVE`], the number of a snapshot, or [`FOLDERS`].
    pub snapshot: u64,
    /// Number of the inode.
    pub ino: u64,
    /// With the number it names the file for ever.
    pub generation: u64,
}

/// A handle that was made here.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Signed {
    bytes: [u8; SIZE_MAX],
    length: usize,
}

impl Deref for Signed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Signs the handles of one dataset.
pub struct HandleKey {
    key: Key,
    /// Tells it from all others of this process.
    number: u64,
    /// The first one that it signed for: only handles of this one have their tags kept.
    export: OnceLock<ExportId>,
}

impl HandleKey {
    /// The key that belongs to a dataset's secret.
    #[must_use]
    pub fn of(secret: &[u8; 16]) -> HandleKey {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(secret);
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let key = derive(&Key::from_bytes(bytes), &[], "steadfast nfs handle 1");
        HandleKey { key, number: NEXT.fetch_add(1, Ordering::Relaxed), export: OnceLock::new() }
    }

    /// The handle of a file, which is to be handed out.
    #[must_use]
    pub fn give(&self, export: ExportId, file: FileId) -> Signed {
        if file.snapshot != LIVE || *self.export.get_or_init(|| export) != export {
            return self.sign(export, file);
        }
        let owner = [self.number, file.ino, file.generation];
        if let Some(tag) = tags::get(owner) {
            return Signed::new(export, file, |_| tag);
        }
        let signed = self.sign(export, file);
        tags::put(owner, signed[PLAIN..].try_into().expect("the rest of a handle is its tag"));
        signed
    }

    /// Makes the handle of a file.
    #[must_use]
    pub fn sign(&self, export: ExportId, file: FileId) -> Signed {
        Signed::new(export, file, |fields| {
            *keyed_hash(&self.key, fields).first_chunk().expect("a hash is longer than a tag")
        })
    }

    /// The file of a handle that this key signed.
    #[must_use]
    pub fn open(&self, handle: Handle<'_>) -> Option<FileId> {
        let (export, file) = parts(handle)?;
        // All of it is compared, whatever differs, so that time tells nothing.
        let expected = self.sign(export, file);
        let differs = expected.iter().zip(handle).fold(0, |differs, (one, other)| differs | (one ^ other));
        (differs == 0 && expected.len() == handle.len()).then_some(file)
    }
}

impl Signed {
    fn new(export: ExportId, file: FileId, tag: impl FnOnce(&[u8]) -> [u8; TAG]) -> Signed {
        let mut bytes = [0; SIZE_MAX];
        let (version, length) = match file.snapshot {
            LIVE => (VERSION, PLAIN),
            _ => (VERSION_SNAPSHOT, PLAIN + 8),
        };
        // Each at a place that the compiler knows: a listing makes thousands.
        bytes[..4].copy_from_slice(&version.to_be_bytes());
        bytes[4..12].copy_from_slice(&export.pool.to_be_bytes());
        bytes[12..20].copy_from_slice(&export.dataset.to_be_bytes());
        bytes[20..28].copy_from_slice(&file.ino.to_be_bytes());
        bytes[28..PLAIN].copy_from_slice(&file.generation.to_be_bytes());
        if file.snapshot != LIVE {
            bytes[PLAIN..PLAIN + 8].copy_from_slice(&file.snapshot.to_be_bytes());
        }
        let tag = tag(&bytes[..length]);
        bytes[length..length + TAG].copy_from_slice(&tag);
        Signed { bytes, length: length + TAG }
    }
}

/// The dataset that a handle says it belongs to; `None` for what has not the form of a handle.
#[must_use]
pub fn export_of(handle: Handle<'_>) -> Option<ExportId> {
    parts(handle).map(|(export, _)| export)
}

/// The parts of a handle, whoever signed it: for requests that need no right.
#[must_use]
pub fn parts(handle: Handle<'_>) -> Option<(ExportId, FileId)> {
    let mut fields = Reader::new(handle);
    let version = fields.u32().ok()?;
    let length = match version {
        VERSION => PLAIN + TAG,
        VERSION_SNAPSHOT => PLAIN + 8 + TAG,
        _ => return None,
    };
    if handle.len() != length {
        return None;
    }
    let mut next = || fields.u64().ok();
    let export = ExportId { pool: next()?, dataset: next()? };
    let (ino, generation) = (next()?, next()?);
    let snapshot = if version == VERSION { LIVE } else { next().filter(|snapshot| *snapshot != LIVE)? };
    Some((export, FileId { snapshot, ino, generation }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_was_made_up_or_is_of_another_dataset_opens_nothing() {
        let (key, other) = (HandleKey::of(&[1; 16]), HandleKey::of(&[2; 16]));
        let export = ExportId { pool: 5, dataset: 6 };
        for (snapshot, length) in [(LIVE, 52), (9, SIZE_MAX), (FOLDERS, SIZE_MAX)] {
            let file = FileId { snapshot, ino: 7, generation: 8 };
            let handle = key.sign(export, file);
            assert_eq!(handle.len(), length);
            // Made, then kept.
            assert_eq!([key.give(export, file), key.give(export, file)], [handle; 2]);
            let elsewhere = ExportId { pool: 6, dataset: 6 };
            assert_eq!(key.give(elsewhere, file), key.sign(elsewhere, file));
            assert_eq!(other.give(export, file), other.sign(export, file));
            assert_eq!((key.open(&handle), export_of(&handle)), (Some(file), Some(export)));
            assert_eq!(other.open(&handle), None);
            for at in 0..length {
                let mut bad = handle.to_vec();
                bad[at] ^= 0x10;
                assert_eq!(key.open(&bad), None, "byte {at}");
                assert_eq!(key.open(&handle[..at]), None, "cut to {at}");
            }
        }
    }

    /// Handles outlive the program that made them.
    #[test]
    fn a_handle_keeps_its_bytes() {
        let export = ExportId { pool: 1, dataset: 2 };
        let sign =
            |snapshot| HandleKey::of(&[3; 16]).sign(export, FileId { snapshot, ino: 3, generation: 4 });
        let fields = b"\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04";
        let handle = sign(LIVE);
        assert_eq!(&handle[..PLAIN], fields);
        let tag = [187, 87, 47, 235, 251, 202, 232, 70, 162, 151, 251, 60, 32, 52, 167, 167];
        assert_eq!(handle[PLAIN..], tag);
        let handle = sign(5);
        assert_eq!((&handle[..4], &handle[4..PLAIN]), (&b"\0\0\0\x02"[..], &fields[4..]));
        assert_eq!(handle[PLAIN..PLAIN + 8], *b"\0\0\0\0\0\0\0\x05");
        let tag = [196, 189, 155, 192, 187, 40, 77, 65, 99, 167, 248, 145, 101, 44, 182, 20];
        assert_eq!(handle[PLAIN + 8..], tag);
    }
}
