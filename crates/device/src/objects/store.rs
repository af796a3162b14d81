//! The interface of a store of whole objects.

use std::ops::Range;

use crate::Result;

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

    /// Reads an object, or a range of it; less than the range where the object ends inside.
    /// [`Error::Missing`](crate::Error::Missing) if there is none,
    /// [`Error::CutShort`](crate::Error::CutShort) if the range begins behind its end.
    fn read(&self, name: &str, range: Option<Range<u64>>) -> Result<Vec<u8>>;

    /// Names of the objects below a folder, in no order. A hint: it may lack what was created of
    /// late, and have what was deleted of late.
    fn list(&self, folder: &str) -> Result<Vec<String>>;

    /// Deletes objects, in as few requests as the store allows. Those that are not there count as
    /// deleted.
    fn delete(&self, names: &[String]) -> Result<()>;

    /// Lets others have the store, if it was locked.
    fn release(&self) {}
}
