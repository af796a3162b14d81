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
//! Nothing of it depends on the daemon: a handle is good after a restart, an export and an import,
//! and after a rename of the dataset. A rollback keeps it as long as the file has the same number
//! and generation.
//!
//! The tag's key is derived from a secret of the dataset. A client cannot make up the handle of a
//! file below a directory that it may not enter; it could guess numbers otherwise.

use crate::nfs3::Handle;
use crate::xdr::{Reader, Writer};
use steadfast_crypto::{Key, derive, keyed_hash};

const VERSION: u32 = 1;
/// Bytes of a handle.
pub const SIZE: usize = 52;
const SIGNED: usize = 36;

/// Which dataset a handle belongs to.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct ExportId {
    /// Guid of the pool.
    pub pool: u64,
    /// Number of the dataset in it.
    pub dataset: u64,
}

/// A file of a dataset.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct FileId {
    /// Number of the inode.
    pub ino: u64,
    /// With the number it names the file for ever.
    pub generation: u64,
}

/// Signs the handles of one dataset.
pub struct HandleKey(Key);

impl HandleKey {
    /// The key that belongs to a dataset's secret.
    #[must_use]
    pub fn of(secret: &[u8; 16]) -> HandleKey {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(secret);
        HandleKey(derive(&Key::from_bytes(bytes), &[], "steadfast nfs handle 1"))
    }

    /// Makes the handle of a file.
    #[must_use]
    pub fn sign(&self, export: ExportId, file: FileId) -> [u8; SIZE] {
        let mut out = Writer { out: Vec::with_capacity(SIZE) };
        out.u32(VERSION).u64(export.pool).u64(export.dataset).u64(file.ino).u64(file.generation);
        let tag = keyed_hash(&self.0, &out.out);
        out.fixed(&tag[..SIZE - SIGNED]);
        out.out.try_into().expect("the fields of the table")
    }

    /// The file of a handle that this key signed.
    #[must_use]
    pub fn open(&self, handle: Handle<'_>) -> Option<FileId> {
        let (export, file) = parts(handle)?;
        // All of it is compared, whatever differs, so that time tells nothing.
        let expected = self.sign(export, file);
        let differs = expected.iter().zip(handle).fold(0, |differs, (one, other)| differs | (one ^ other));
        (differs == 0).then_some(file)
    }
}

/// The dataset that a handle says it belongs to; `None` for what has not the form of a handle.
#[must_use]
pub fn export_of(handle: Handle<'_>) -> Option<ExportId> {
    if handle.len() != SIZE {
        return None;
    }
    let mut fields = Reader::new(handle);
    if fields.u32().ok()? != VERSION {
        return None;
    }
    Some(ExportId { pool: fields.u64().ok()?, dataset: fields.u64().ok()? })
}

/// The parts of a handle, whoever signed it: for requests that need no right.
#[must_use]
pub fn parts(handle: Handle<'_>) -> Option<(ExportId, FileId)> {
    let export = export_of(handle)?;
    let mut fields = Reader::new(&handle[20..SIGNED]);
    Some((export, FileId { ino: fields.u64().ok()?, generation: fields.u64().ok()? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handle_that_was_made_up_or_is_of_another_dataset_opens_nothing() {
        let (key, other) = (HandleKey::of(&[1; 16]), HandleKey::of(&[2; 16]));
        let (export, file) = (ExportId { pool: 5, dataset: 6 }, FileId { ino: 7, generation: 8 });
        let handle = key.sign(export, file);
        assert_eq!((key.open(&handle), export_of(&handle)), (Some(file), Some(export)));
        assert_eq!(other.open(&handle), None);
        for at in 0..SIZE {
            let mut bad = handle;
            bad[at] ^= 0x10;
            assert_eq!(key.open(&bad), None, "byte {at}");
            assert_eq!(key.open(&handle[..at]), None, "cut to {at}");
        }
    }

    /// Handles outlive the program that made them.
    #[test]
    fn a_handle_keeps_its_bytes() {
        let handle =
            HandleKey::of(&[3; 16]).sign(ExportId { pool: 1, dataset: 2 }, FileId { ino: 3, generation: 4 });
        let fields = b"\0\0\0\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\x04";
        assert_eq!(&handle[..SIGNED], fields);
        let tag = [187, 87, 47, 235, 251, 202, 232, 70, 162, 151, 251, 60, 32, 52, 167, 167];
        assert_eq!(handle[SIGNED..], tag);
    }
}
