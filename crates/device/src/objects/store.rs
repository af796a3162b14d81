//! The interface of a store of whole objects.

use std::ops::Range;
use std::sync::Arc;

use crate::{Buffer, Error, Result};

/// A range of an object that is to be read.
#[derive(Debug)]
pub struct ObjectRange<'a> {
    /// Name.
    pub object: &'a str,
    /// First byte.
    pub offset: u64,
    /// Where the bytes go, one buffer after the other.
    pub outs: Vec<&'a mut [u8]>,
    /// Outcome, once it was tried.
    pub outcome: Result<()>,
}

impl ObjectRange<'_> {
    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.outs.iter().map(|out| out.len()).sum()
    }
}

/// Keeps objects by their names. Every call is synchronous, and may come from many threads at once.
///
/// A name has folders, parted by `/`; it lies below what belongs to the pool's device, of which the
/// caller knows nothing.
pub trait Store: Send + Sync {
    /// Name in messages: a path or an address, without secrets.
    fn identity(&self) -> String;

    /// Creates an object, durable when it returns. False if there is one of that name, which stays.
    ///
    /// A store that cannot tell overwrites it: the names of segments and roots are unique anyway
    /// ([`steadfast_format::object_names`]).
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool>;

    /// The same of memory that the store may share for as long as it needs it, in place of a copy.
    fn create_shared(&self, name: &str, bytes: &Arc<Buffer>) -> Result<bool> {
        self.create(name, bytes)
    }

    /// True if it refuses to create an object that is there, with other bytes.
    fn refuses(&self, name: &str) -> Result<bool> {
        Ok(!self.create(name, &[])?)
    }

    /// Reads an object, or a range of it; less than the range where the object ends inside.
    /// [`Error::Missing`](crate::Error::Missing) if there is none,
    /// [`Error::CutShort`](crate::Error::CutShort) if the range begins behind its end.
    fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>>;

    /// Reads ranges, side by side where the store can; each is read whole, or its outcome says why
    /// not.
    fn read_ranges(&self, ranges: &mut [ObjectRange<'_>]) {
        for range in ranges {
            let end = range.offset + range.bytes() as u64;
            let read = self.read(range.object, Some(range.offset..end));
            range.outcome = read.and_then(|bytes| {
                if bytes.len() != range.bytes() {
                    let (device, object) = (self.identity(), range.object.to_owned());
                    let length = range.offset + bytes.len() as u64;
                    return Err(Error::CutShort { device, object, length, needed: end });
                }
                let mut rest = &bytes[..];
                for out in &mut range.outs {
                    let (now, later) = rest.split_at(out.len());
                    out.copy_from_slice(now);
                    rest = later;
                }
                Ok(())
            });
        }
    }

    /// Reads whole objects, side by side where the store can: one answer for each name.
    fn read_each(&self, names: &[String]) -> Vec<Result<Vec<u8>>> {
        names.iter().map(|name| self.read(name, None)).collect()
    }

    /// Names of the objects below a folder, in no order. A hint: it may lack what was created of
    /// late, and have what was deleted of late.
    fn list(&self, folder: &str) -> Result<Vec<String>>;

    /// Deletes objects, in as few requests as the store allows. Those that are not there count as
    /// deleted.
    fn delete(&self, names: &[String]) -> Result<()>;

    /// Lets others have the store, if it was locked.
    fn release(&self) {}
}
