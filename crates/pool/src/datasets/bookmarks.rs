//! Bookmarks: what is left of a snapshot that is only to be named, as the point from which a stream
//! goes on. They keep no block.

use crate::datasets::state::Datasets;

use steadfast_format::{Bookmark, DatasetId, MetaKey, Txg, meta_keys};

use crate::core::error::{Error, Result};
use crate::datasets::table::Table;

/// A bookmark as it is listed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BookmarkInfo {
    /// Full name (`pool/fs#mark`).
    pub name: String,
    /// Guid of the snapshot it was made of.
    pub guid: u64,
    /// Txg of that snapshot.
    pub txg: Txg,
    /// When that snapshot was taken, in seconds since 1970.
    pub created_seconds: u64,
}

impl Table {
    /// A bookmark by its full name.
    pub fn find_bookmark(&self, name: &str) -> Result<(DatasetId, Bookmark)> {
        let missing = || Error::NoSuchBookmark { name: name.to_owned() };
        let (dataset, mark) = name.split_once('#').ok_or_else(missing)?;
        let id = self.find(dataset)?;
        let mark = self.get(id).and_then(|entry| entry.bookmarks.get(mark)).ok_or_else(missing)?;
        Ok((id, *mark))
    }
}

impl Datasets {
    /// Makes a bookmark (what follows the `#`) of a snapshot, or of another bookmark, given by its
    /// full name. Durable when it returns.
    pub fn add_bookmark(&self, of: &str, name: &str) -> Result<()> {
        self.core.check_writable()?;
        self.core.need_feature(crate::datasets::snapshots::FEATURE)?;
        {
            let mut table = self.table.write();
            let (id, bookmark) = match of.contains('#') {
                true => table.find_bookmark(of)?,
                false => {
                    let (id, txg) = table.find_snapshot(of)?;
                    let row = &table.get(id).expect("just found").snapshots[&txg].row;
                    (id, Bookmark { guid: row.guid, txg, created_ns: row.created_ns })
                }
            };
            let entry = table.get_mut(id).expect("just found");
            if entry.bookmarks.contains_key(name) {
                return Err(Error::BookmarkExists { name: format!("{}#{name}", table.full_name(id)) });
            }
            entry.bookmarks.insert(name.to_owned(), bookmark);
            entry.bookmarks_dirty.insert(name.to_owned());
        }
        self.core.commit_changes()
    }

    /// Removes a bookmark by its full name. Durable when it returns.
    pub fn remove_bookmark(&self, name: &str) -> Result<()> {
        self.core.check_writable()?;
        {
            let mut table = self.table.write();
            let (id, _) = table.find_bookmark(name)?;
            let mark = name.split_once('#').map_or("", |(_, mark)| mark).to_owned();
            let entry = table.get_mut(id).expect("just found");
            entry.bookmarks.remove(&mark);
            entry.bookmarks_dirty.insert(mark);
        }
        self.core.commit_changes()
    }

    /// Bookmarks of a dataset, those of older snapshots first.
    pub fn bookmark_infos(&self, dataset: &str) -> Result<Vec<BookmarkInfo>> {
        let table = self.table.read();
        let id = table.find(dataset)?;
        let entry = table.get(id).expect("just found");
        let info = |(name, mark): (&String, &Bookmark)| BookmarkInfo {
            name: format!("{dataset}#{name}"),
            guid: mark.guid,
            txg: mark.txg,
            created_seconds: mark.created_ns / 1_000_000_000,
        };
        let mut infos: Vec<BookmarkInfo> = entry.bookmarks.iter().map(info).collect();
        infos.sort_by_key(|info| info.txg);
        Ok(infos)
    }

    /// Bookmarks, as stored.
    pub(crate) fn load_bookmarks(&self, pool: &str) -> Result<()> {
        for item in self.core.items_of(meta_keys::BOOKMARK) {
            let (MetaKey::Bookmark(id, name), value) = item? else { continue };
            let mark =
                Bookmark::decode(&value).map_err(|source| self.core.corrupt(pool, "a bookmark", source))?;
            if let Some(entry) = self.table.write().get_mut(id) {
                entry.bookmarks.insert(name, mark);
            }
        }
        Ok(())
    }
}
