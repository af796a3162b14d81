//! The simplest file system in memory: the oracle of all comparisons.
//!
//! POSIX names, links and content, in maps and byte vectors, with nothing that could be clever and
//! wrong: no transactions, no caches, no locks. The real stack runs beside it under a seed, and
//! must show the same. A clone of it is a snapshot, to compare with after a crash.
#![forbid(unsafe_code)]

pub mod forest;

use std::collections::BTreeMap;

/// Number of a node in a model; 1 is the root directory.
pub type Id = u64;
/// Result of a call: an errno on refusal.
pub type Result<T> = std::result::Result<T, i32>;

/// Not permitted.
pub const EPERM: i32 = 1;
/// No such name.
pub const ENOENT: i32 = 2;
/// The name is taken.
pub const EEXIST: i32 = 17;
/// Not a directory.
pub const ENOTDIR: i32 = 20;
/// A directory.
pub const EISDIR: i32 = 21;
/// Makes no sense.
pub const EINVAL: i32 = 22;
/// A name longer than 255 bytes.
pub const ENAMETOOLONG: i32 = 36;
/// Holds something.
pub const ENOTEMPTY: i32 = 39;
/// No such attribute.
pub const ENODATA: i32 = 61;

/// Kind of a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Kind {
    /// A file and all of its bytes.
    File(Vec<u8>),
    /// A directory.
    Directory {
        /// Names and what they lead to.
        entries: BTreeMap<Vec<u8>, Id>,
        /// Where it is; itself for the root.
        parent: Id,
    },
    /// A symbolic link and its target.
    Symlink(Vec<u8>),
}

/// A file, directory or link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// Its kind.
    pub kind: Kind,
    /// Permissions.
    pub mode: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Times it is open.
    pub opens: u32,
}

/// How a rename treats an existing target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rename {
    /// It is replaced.
    Replace,
    /// It must not exist.
    NoReplace,
    /// Both change places.
    Exchange,
}

/// A file system.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Model {
    nodes: BTreeMap<Id, Node>,
    next: Id,
}

impl Default for Model {
    fn default() -> Model {
        let kind = Kind::Directory { entries: BTreeMap::new(), parent: Model::ROOT };
        let root = Node { kind, mode: 0o755, xattrs: BTreeMap::new(), opens: 0 };
        Model { nodes: BTreeMap::from([(Model::ROOT, root)]), next: Model::ROOT + 1 }
    }
}

fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(ENOENT),
        b"." | b".." => Err(EEXIST),
        _ if name.len() > 255 => Err(ENAMETOOLONG),
        _ => Ok(()),
    }
}

impl Model {
    /// The root directory.
    pub const ROOT: Id = 1;

    /// A volume: one file, which is the root, and nothing else.
    #[must_use]
    pub fn volume(bytes: usize) -> Model {
        let kind = Kind::File(vec![0; bytes]);
        let root = Node { kind, mode: 0o600, xattrs: BTreeMap::new(), opens: 0 };
        Model { nodes: BTreeMap::from([(Model::ROOT, root)]), next: Model::ROOT + 1 }
    }

    /// Bytes of a volume; `None` for a file system.
    #[must_use]
    pub fn volume_bytes(&self) -> Option<usize> {
        match &self.nodes[&Model::ROOT].kind {
            Kind::File(content) => Some(content.len()),
            _ => None,
        }
    }

    /// A node.
    #[must_use]
    pub fn node(&self, id: Id) -> Option<&Node> {
        self.nodes.get(&id)
    }

    /// Numbers of all nodes.
    pub fn ids(&self) -> impl Iterator<Item = Id> + '_ {
        self.nodes.keys().copied()
    }

    /// Names of a directory and what they lead to.
    pub fn entries(&self, directory: Id) -> Result<&BTreeMap<Vec<u8>, Id>> {
        match &self.nodes.get(&directory).ok_or(ENOENT)?.kind {
            Kind::Directory { entries, .. } => Ok(entries),
            _ => Err(ENOTDIR),
        }
    }

    fn entries_mut(&mut self, directory: Id) -> &mut BTreeMap<Vec<u8>, Id> {
        match self.nodes.get_mut(&directory).map(|node| &mut node.kind) {
            Some(Kind::Directory { entries, .. }) => entries,
            _ => panic!("checked before: {directory} is a directory"),
        }
    }

    fn is_directory(&self, id: Id) -> bool {
        matches!(self.nodes[&id].kind, Kind::Directory { .. })
    }

    /// Links of a node, counted: names that lead to it; of a directory 2 and its subdirectories, or
    /// 0 once removed.
    #[must_use]
    pub fn nlink(&self, id: Id) -> u32 {
        let names = self.nodes.values().filter_map(|node| match &node.kind {
            Kind::Directory { entries, .. } => Some(entries.values().filter(|&&to| to == id).count()),
            _ => None,
        });
        let names = u32::try_from(names.sum::<usize>()).expect("small");
        match &self.nodes[&id].kind {
            Kind::Directory { .. } if id != Model::ROOT && names == 0 => 0,
            Kind::Directory { entries, .. } => {
                let below = entries.values().filter(|&&to| self.is_directory(to)).count();
                2 + u32::try_from(below).expect("small")
            }
            // A volume has no names.
            _ if id == Model::ROOT => 1,
            _ => names,
        }
    }

    /// A removed directory takes no new names.
    fn writable(&self, directory: Id) -> Result<()> {
        self.entries(directory)?;
        if self.nlink(directory) == 0 { Err(ENOENT) } else { Ok(()) }
    }

    fn find(&self, directory: Id, name: &[u8]) -> Result<Id> {
        self.entries(directory)?.get(name).copied().ok_or(ENOENT)
    }

    /// The node that a name leads to.
    pub fn lookup(&self, directory: Id, name: &[u8]) -> Result<Id> {
        if name.len() > 255 {
            return Err(ENAMETOOLONG);
        }
        self.find(directory, name)
    }

    fn create(&mut self, directory: Id, name: &[u8], mode: u32, kind: Kind) -> Result<Id> {
        self.entries(directory)?;
        check_name(name)?;
        self.writable(directory)?;
        if self.find(directory, name).is_ok() {
            return Err(EEXIST);
        }
        let id = self.next;
        self.next += 1;
        self.nodes.insert(id, Node { kind, mode, xattrs: BTreeMap::new(), opens: 0 });
        self.entries_mut(directory).insert(name.to_vec(), id);
        Ok(id)
    }

    /// Makes an empty file.
    pub fn create_file(&mut self, directory: Id, name: &[u8], mode: u32) -> Result<Id> {
        self.create(directory, name, mode, Kind::File(Vec::new()))
    }

    /// Makes a file without a name, open once.
    pub fn create_unnamed(&mut self, directory: Id, mode: u32) -> Result<Id> {
        self.entries(directory)?;
        let id = self.next;
        self.next += 1;
        let kind = Kind::File(Vec::new());
        self.nodes.insert(id, Node { kind, mode, xattrs: BTreeMap::new(), opens: 1 });
        Ok(id)
    }

    /// Makes a directory; below a set-gid directory it is one too.
    pub fn mkdir(&mut self, directory: Id, name: &[u8], mode: u32) -> Result<Id> {
        let mode = mode | self.nodes.get(&directory).map_or(0, |above| above.mode & 0o2000);
        self.create(directory, name, mode, Kind::Directory { entries: BTreeMap::new(), parent: directory })
    }

    /// Makes a symbolic link.
    pub fn symlink(&mut self, directory: Id, name: &[u8], target: &[u8]) -> Result<Id> {
        match target.len() {
            0 => Err(ENOENT),
            1..=4095 => self.create(directory, name, 0o777, Kind::Symlink(target.to_vec())),
            _ => Err(ENAMETOOLONG),
        }
    }

    /// Gives a node one more name.
    pub fn link(&mut self, id: Id, directory: Id, name: &[u8]) -> Result<()> {
        self.entries(directory)?;
        check_name(name)?;
        if self.is_directory(id) {
            return Err(EPERM);
        }
        self.writable(directory)?;
        if self.find(directory, name).is_ok() {
            return Err(EEXIST);
        }
        self.entries_mut(directory).insert(name.to_vec(), id);
        Ok(())
    }

    /// Drops a node that has no name and is not open.
    fn drop_unused(&mut self, id: Id) {
        if self.nlink(id) == 0 && self.nodes[&id].opens == 0 {
            self.nodes.remove(&id);
        }
    }

    /// Removes a name of a file or link.
    pub fn unlink(&mut self, directory: Id, name: &[u8]) -> Result<()> {
        let id = self.lookup(directory, name)?;
        if self.is_directory(id) {
            return Err(EISDIR);
        }
        self.entries_mut(directory).remove(name);
        self.drop_unused(id);
        Ok(())
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, directory: Id, name: &[u8]) -> Result<()> {
        let id = self.lookup(directory, name)?;
        if !self.is_directory(id) {
            return Err(ENOTDIR);
        }
        if !self.entries(id)?.is_empty() {
            return Err(ENOTEMPTY);
        }
        self.entries_mut(directory).remove(name);
        self.drop_unused(id);
        Ok(())
    }

    fn is_within(&self, mut below: Id, above: Id) -> bool {
        loop {
            if below == above {
                return true;
            }
            match self.nodes[&below].kind {
                Kind::Directory { parent, .. } if parent != below => below = parent,
                _ => return false,
            }
        }
    }

    fn set_parent(&mut self, id: Id, to: Id) {
        if let Some(Kind::Directory { parent, .. }) = self.nodes.get_mut(&id).map(|node| &mut node.kind) {
            *parent = to;
        }
    }

    /// Renames.
    pub fn rename(&mut self, from: Id, name: &[u8], to: Id, new_name: &[u8], how: Rename) -> Result<()> {
        self.entries(from)?;
        self.entries(to)?;
        if name.len() > 255 || new_name.len() > 255 {
            return Err(ENAMETOOLONG);
        }
        self.writable(to)?;
        let source = self.find(from, name)?;
        let target = self.find(to, new_name).ok();
        if how == Rename::Exchange {
            let target = target.ok_or(ENOENT)?;
            if source == target {
                return Ok(());
            }
            if self.is_directory(source) && self.is_within(to, source)
                || self.is_directory(target) && self.is_within(from, target)
            {
                return Err(EINVAL);
            }
            self.entries_mut(from).insert(name.to_vec(), target);
            self.entries_mut(to).insert(new_name.to_vec(), source);
            self.set_parent(source, to);
            self.set_parent(target, from);
            return Ok(());
        }
        check_name(new_name)?;
        if self.is_directory(source) && self.is_within(to, source) {
            return Err(EINVAL);
        }
        if let Some(target) = target {
            if how == Rename::NoReplace {
                return Err(EEXIST);
            }
            if source == target {
                return Ok(());
            }
            match (self.is_directory(source), self.is_directory(target)) {
                (true, false) => return Err(ENOTDIR),
                (false, true) => return Err(EISDIR),
                (true, true) if !self.entries(target)?.is_empty() => return Err(ENOTEMPTY),
                _ => {}
            }
        }
        self.entries_mut(from).remove(name);
        self.entries_mut(to).insert(new_name.to_vec(), source);
        self.set_parent(source, to);
        if let Some(target) = target {
            self.drop_unused(target);
        }
        Ok(())
    }

    fn content_mut(&mut self, id: Id) -> Result<&mut Vec<u8>> {
        match &mut self.nodes.get_mut(&id).ok_or(ENOENT)?.kind {
            Kind::File(content) => Ok(content),
            _ => Err(EINVAL),
        }
    }

    /// Content of a file.
    pub fn content(&self, id: Id) -> Result<&[u8]> {
        match &self.nodes.get(&id).ok_or(ENOENT)?.kind {
            Kind::File(content) => Ok(content),
            _ => Err(EINVAL),
        }
    }

    /// Writes to a file.
    pub fn write(&mut self, id: Id, offset: usize, data: &[u8]) -> Result<()> {
        let content = self.content_mut(id)?;
        if content.len() < offset + data.len() {
            content.resize(offset + data.len(), 0);
        }
        content[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }

    /// Sets a file's size.
    pub fn set_size(&mut self, id: Id, size: usize) -> Result<()> {
        self.content_mut(id)?.resize(size, 0);
        Ok(())
    }

    /// Makes a file at least `size` long.
    pub fn grow(&mut self, id: Id, size: usize) -> Result<()> {
        let content = self.content_mut(id)?;
        content.resize(content.len().max(size), 0);
        Ok(())
    }

    /// Makes a range of a file zero; the size stays.
    pub fn zero(&mut self, id: Id, offset: usize, length: usize) -> Result<()> {
        let content = self.content_mut(id)?;
        let end = content.len().min(offset + length);
        if offset < end {
            content[offset..end].fill(0);
        }
        Ok(())
    }

    /// Changes permissions.
    pub fn chmod(&mut self, id: Id, mode: u32) -> Result<()> {
        self.nodes.get_mut(&id).ok_or(ENOENT)?.mode = mode;
        Ok(())
    }

    /// Takes the set-uid bit, and the set-gid bit where the group may execute, as a write by an
    /// ordinary user does.
    pub fn drop_set_ids(&mut self, id: Id) {
        let node = self.nodes.get_mut(&id).expect("it is there");
        let group_executes = node.mode & 0o010 != 0;
        node.mode &= if group_executes { !0o6000 } else { !0o4000 };
    }

    /// Sets an extended attribute.
    pub fn set_xattr(&mut self, id: Id, name: &[u8], value: &[u8]) -> Result<()> {
        self.nodes.get_mut(&id).ok_or(ENOENT)?.xattrs.insert(name.to_vec(), value.to_vec());
        Ok(())
    }

    /// Removes an extended attribute.
    pub fn remove_xattr(&mut self, id: Id, name: &[u8]) -> Result<()> {
        let removed = self.nodes.get_mut(&id).ok_or(ENOENT)?.xattrs.remove(name);
        removed.map(|_| ()).ok_or(ENODATA)
    }

    /// Opens a node: it outlives its last name.
    pub fn open(&mut self, id: Id) -> Result<()> {
        self.nodes.get_mut(&id).ok_or(ENOENT)?.opens += 1;
        Ok(())
    }

    /// Closes it.
    pub fn close(&mut self, id: Id) {
        self.nodes.get_mut(&id).expect("it is open").opens -= 1;
        self.drop_unused(id);
    }

    /// All uses end at once, by an unmount or a crash: what has no name is gone.
    pub fn close_all(&mut self) {
        for node in self.nodes.values_mut() {
            node.opens = 0;
        }
        let unused: Vec<Id> = self.ids().filter(|&id| self.nlink(id) == 0).collect();
        for id in unused {
            self.nodes.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_outlives_its_name() {
        let mut model = Model::default();
        let file = model.create_file(Model::ROOT, b"a", 0o644).expect("new");
        model.open(file).expect("there");
        model.unlink(Model::ROOT, b"a").expect("there");
        model.write(file, 3, b"x").expect("open");
        assert_eq!(model.content(file), Ok(&b"\0\0\0x"[..]));
        model.close(file);
        assert_eq!(model.node(file), None);
    }

    #[test]
    fn a_directory_does_not_move_below_itself() {
        let mut model = Model::default();
        let a = model.mkdir(Model::ROOT, b"a", 0o755).expect("new");
        let b = model.mkdir(a, b"b", 0o755).expect("new");
        assert_eq!(model.rename(Model::ROOT, b"a", b, b"c", Rename::Replace), Err(EINVAL));
        assert_eq!((model.nlink(Model::ROOT), model.nlink(a), model.nlink(b)), (3, 3, 2));
        model.rename(a, b"b", Model::ROOT, b"b", Rename::NoReplace).expect("free");
        assert_eq!((model.nlink(Model::ROOT), model.nlink(a), model.nlink(b)), (4, 2, 2));
    }
}
