//! Names: create, link, unlink, rename, list.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use steadfast_dataset::{Inode, InodeRecord, NAME_COST};
use steadfast_env::Bug;
use steadfast_format::InodeId;
use steadfast_format::dirent::{COOKIE_RESERVED, Dirent, DirentView, NAME_MAX};
use steadfast_format::file_keys::NamesKey;
use steadfast_txg::{AdmitKind, Operation};

use crate::filesystem::{Probe, is_directory};
use crate::walk::bring_records;
use crate::xattr::attribute_items;
use crate::{Caller, Entry, Errno, FileSystem, Result, S_IFCHR, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, S_ISGID};

/// `renameat2`: the target must not exist.
pub const RENAME_NOREPLACE: u32 = 1;
/// `renameat2`: both exist and change places.
pub const RENAME_EXCHANGE: u32 = 2;
/// `renameat2`: the old name is left to a device node 0:0. Not with [`RENAME_EXCHANGE`].
pub const RENAME_WHITEOUT: u32 = 4;

/// Links that are counted.
const LINKS_MAX: u32 = 1 << 30;
/// Bytes of the lists that a new inode may inherit: what the kernel takes of each, and their keys.
const ACL_SPACE: u64 = 10 << 10;
/// Longest target of a symbolic link.
const TARGET_MAX: usize = 4_095;
/// Bytes of a target in one item.
const TARGET_CHUNK: usize = 2_048;

/// Entries that a listing with attributes looks at together: at first, and at most.
const LIST_FIRST: usize = 32;
const LIST_MAX: usize = 256;

/// One entry of a listing.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DirEntry {
    /// Number.
    pub ino: u64,
    /// Where to go on behind it.
    pub cookie: u64,
    /// Type bits of mode over 4096, as in `readdir`.
    pub kind: u8,
    /// Name.
    pub name: Vec<u8>,
}

/// The same with its name where it is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Listed<'n> {
    /// Number.
    pub ino: u64,
    /// Where to go on behind it.
    pub cookie: u64,
    /// Type bits of mode over 4096, as in `readdir`.
    pub kind: u8,
    /// Name.
    pub name: &'n [u8],
}

impl Listed<'_> {
    /// The entry with a name of its own.
    #[must_use]
    pub fn to_entry(self) -> DirEntry {
        DirEntry { ino: self.ino, cookie: self.cookie, kind: self.kind, name: self.name.to_vec() }
    }

    /// False for `.` and `..`.
    fn is_own(&self) -> bool {
        !matches!(self.name, b"." | b"..")
    }
}

impl DirEntry {
    fn listed(&self) -> Listed<'_> {
        Listed { ino: self.ino, cookie: self.cookie, kind: self.kind, name: &self.name }
    }
}

/// Changes of the names tree.
pub(crate) type Changes = Vec<(Vec<u8>, Option<Vec<u8>>)>;

fn check_name(name: &[u8]) -> Result<()> {
    match name {
        b"" => Err(Errno::ENOENT),
        b"." | b".." => Err(Errno::EEXIST),
        name if name.len() > NAME_MAX => Err(Errno::ENAMETOOLONG),
        name if name.contains(&b'/') || name.contains(&0) => Err(Errno::EINVAL),
        _ => Ok(()),
    }
}

fn inode_item(inode: InodeId, record: &InodeRecord) -> (Vec<u8>, Option<Vec<u8>>) {
    (NamesKey::Inode(inode).encode(), Some(record.encode().to_vec()))
}

fn entry_item(directory: InodeId, cookie: u64, entry: &Dirent) -> (Vec<u8>, Option<Vec<u8>>) {
    (NamesKey::Entry { directory, cookie }.encode(), Some(entry.encode()))
}

fn kind_of(record: &InodeRecord) -> u8 {
    u8::try_from((record.mode & S_IFMT) >> 12).expect("four bits")
}

impl FileSystem {
    /// Refuses what something new cannot be called.
    fn check_new_name(&self, name: &[u8]) -> Result<()> {
        check_name(name)?;
        if self.utf8_only.load(Ordering::Relaxed) && std::str::from_utf8(name).is_err() {
            return Err(Errno::EILSEQ);
        }
        Ok(())
    }

    /// A cookie for a name that must be new: the first free one of its hash.
    fn new_cookie(&self, directory: InodeId, name: &[u8]) -> Result<u64> {
        match self.probe(directory, name)? {
            Probe::Found(..) => Err(Errno::EEXIST),
            Probe::Free(cookie) => Ok(cookie),
            // 256 names of one 55-bit keyed hash value: nobody finds them without the key.
            Probe::Full => Err(Errno::ENOSPC),
        }
    }

    /// A directory's own changes when entries come and go.
    fn touch_directory(&self, op: &Operation<'_>, directory: &Arc<Inode>, entries: i64, subdirectories: i32) {
        let now = self.now();
        self.dataset.change(op, directory, |record| {
            record.size = record.size.saturating_add_signed(entries);
            record.nlink = record.nlink.saturating_add_signed(subdirectories);
            (record.mtime, record.ctime) = (now, now);
        });
    }

    fn new_record(&self, caller: Caller, parent: &Inode, mode: u32, rdev: u32) -> InodeRecord {
        let now = match self.new_at_tick.load(Ordering::Relaxed) {
            true => self.dataset.tick(),
            false => self.now(),
        };
        let above = parent.record();
        let set_gid = above.mode & S_ISGID != 0;
        let directory = mode & S_IFMT == S_IFDIR;
        InodeRecord {
            generation: 0,
            parent: parent.id,
            size: 0,
            allocated: 0,
            mode: if directory && set_gid { mode | S_ISGID } else { mode },
            nlink: if directory { 2 } else { 1 },
            uid: caller.uid,
            gid: if set_gid { above.gid } else { caller.gid },
            rdev,
            record_shift: 0,
            flags: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        }
    }

    fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
        target: &[u8],
    ) -> Result<Entry> {
        let made = self.create_only(caller, parent, name, mode, rdev, target)?;
        self.settle_entry(parent, made)
    }

    fn create_only(
        &self,
        caller: Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        rdev: u32,
        target: &[u8],
    ) -> Result<Entry> {
        let directory = self.directory(parent)?;
        self.check_new_name(name)?;
        let handed_down =
            if directory.record().flags & InodeRecord::FLAG_DEFAULT_ACL != 0 { ACL_SPACE } else { 0 };
        let items = target.len() as u64 + handed_down;
        let begin = || Ok(self.dataset.begin_with_items(AdmitKind::Write, items)?);
        self.dataset.operate(begin, |op| {
            let _names = self.names.lock();
            if directory.record().nlink == 0 {
                return Err(Errno::ENOENT);
            }
            // Nodes that both miss are read side by side.
            let may_change = self.dataset.may_change(&directory);
            let cookie =
                self.new_cookie(directory.id, name).inspect_err(|_| self.dataset.want_next_inode())?;
            may_change?;
            let umask = if mode & S_IFMT == S_IFLNK { 0 } else { caller.umask };
            let inherited = self.inherit(&directory, mode, umask)?;
            let mut record = self.new_record(caller, &directory, inherited.mode, rdev);
            self.dataset.check_object_quota(record.uid, record.gid)?;
            record.flags = inherited.flags;
            record.size = target.len() as u64;
            let (inode, record) = self.dataset.new_inode(op, record)?;
            let entry = Dirent { inode: inode.id, kind: kind_of(&record), name: name.to_vec() };
            let mut changes: Changes =
                vec![inode_item(inode.id, &record), entry_item(directory.id, cookie, &entry)];
            for (chunk, bytes) in (0..).zip(target.chunks(TARGET_CHUNK)) {
                changes.push((NamesKey::Target { inode: inode.id, chunk }.encode(), Some(bytes.to_vec())));
            }
            for (kind, list) in &inherited.lists {
                changes.extend(attribute_items(inode.id, kind.name(), list));
            }
            if let Err(error) = self.dataset.batch(changes) {
                self.dataset.drop_new_inode(&inode);
                return Err(error.into());
            }
            self.touch_directory(op, &directory, 1, i32::from(is_directory(&record)));
            Ok(self.entry_of(&inode))
        })
    }

    /// Makes a file, fifo, socket or device node (`mode` with its type bits), with one reference.
    pub fn mknod(&self, caller: Caller, parent: u64, name: &[u8], mode: u32, rdev: u32) -> Result<Entry> {
        let mode = mode & (S_IFMT | 0o7777);
        let kind = mode & S_IFMT;
        match kind {
            _ if kind != 0 && !InodeRecord::mode_is_valid(kind) => Err(Errno::EINVAL),
            0 => self.create(caller, parent, name, mode | crate::S_IFREG, rdev, b""),
            S_IFDIR | S_IFLNK => Err(Errno::EINVAL),
            _ => self.create(caller, parent, name, mode, rdev, b""),
        }
    }

    /// Makes a directory.
    pub fn mkdir(&self, caller: Caller, parent: u64, name: &[u8], mode: u32) -> Result<Entry> {
        self.create(caller, parent, name, mode & 0o7777 | S_IFDIR, 0, b"")
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, caller: Caller, parent: u64, name: &[u8], target: &[u8]) -> Result<Entry> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.len() > TARGET_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        self.create(caller, parent, name, S_IFLNK | 0o777, 0, target)
    }

    /// Makes a file without a name (`O_TMPFILE`), with one reference. It is gone when that is given
    /// back, unless it was linked.
    pub fn tmpfile(&self, caller: Caller, parent: u64, mode: u32) -> Result<Entry> {
        let directory = self.directory(parent)?;
        let made = self.operate(AdmitKind::Write, |op| {
            let _names = self.names.lock();
            let inherited = self.inherit(&directory, mode & 0o7777 | crate::S_IFREG, caller.umask)?;
            let mut record = self.new_record(caller, &directory, inherited.mode, 0);
            self.dataset.check_object_quota(record.uid, record.gid)?;
            record.flags = inherited.flags;
            record.nlink = 0;
            let (inode, record) = self.dataset.new_inode(op, record)?;
            let mut changes =
                vec![inode_item(inode.id, &record), (NamesKey::Orphan(inode.id).encode(), Some(Vec::new()))];
            for (kind, list) in &inherited.lists {
                changes.extend(attribute_items(inode.id, kind.name(), list));
            }
            if let Err(error) = self.dataset.batch(changes) {
                self.dataset.drop_new_inode(&inode);
                return Err(error.into());
            }
            Ok(self.entry_of(&inode))
        })?;
        self.settle_entry(made.ino, made)
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, ino: u64) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        let record = inode.record();
        if record.mode & S_IFMT != S_IFLNK {
            return Err(Errno::EINVAL);
        }
        let mut target = Vec::new();
        let (from, to) = (NamesKey::targets(inode.id), NamesKey::all_of(InodeId(ino + 1)));
        for item in self.dataset.names().range(from..to) {
            target.extend_from_slice(&item?.1);
        }
        if target.len() as u64 != record.size {
            return Err(Errno::EIO);
        }
        self.accessed(&inode, &record);
        Ok(target)
    }

    /// Gives an inode another name.
    pub fn link(&self, ino: u64, new_parent: u64, new_name: &[u8]) -> Result<Entry> {
        let directory = self.directory(new_parent)?;
        self.check_new_name(new_name)?;
        let entry = self.operate(AdmitKind::Write, |op| {
            let _names = self.names.lock();
            let inode = self.inode(ino)?;
            let record = inode.record();
            if is_directory(&record) {
                return Err(Errno::EPERM);
            }
            if directory.record().nlink == 0 {
                return Err(Errno::ENOENT);
            }
            if record.nlink >= LINKS_MAX {
                return Err(Errno::EMLINK);
            }
            let may_change = [&inode, &directory].map(|inode| self.dataset.may_change(inode));
            let cookie = self.new_cookie(directory.id, new_name)?;
            may_change.into_iter().collect::<Result<(), _>>()?;
            let entry = Dirent { inode: inode.id, kind: kind_of(&record), name: new_name.to_vec() };
            let mut changes: Changes = vec![entry_item(directory.id, cookie, &entry)];
            if record.nlink == 0 {
                changes.push((NamesKey::Orphan(inode.id).encode(), None));
            }
            self.dataset.batch(changes)?;
            let now = self.now();
            self.dataset.change(op, &inode, |record| {
                record.nlink += 1;
                record.parent = directory.id;
                record.ctime = now;
            });
            self.touch_directory(op, &directory, 1, 0);
            // It is in memory, as somebody holds it here.
            self.entry(inode.id)
        })?;
        self.settle_entry(new_parent, entry)
    }

    /// The changes of the names tree when an inode loses one link, in the same batch as the
    /// entry's.
    fn unlink_changes(inode: &Inode, changes: &mut Changes) {
        let record = inode.record();
        if is_directory(&record) || record.nlink <= 1 {
            changes.push((NamesKey::Orphan(inode.id).encode(), Some(Vec::new())));
        }
    }

    fn unlinked(&self, op: &Operation<'_>, inode: &Arc<Inode>) {
        let now = self.now();
        self.dataset.change(op, inode, |record| {
            // A stream may have brought a name of something that says it has none.
            record.nlink = if is_directory(record) { 0 } else { record.nlink.saturating_sub(1) };
            record.ctime = now;
        });
    }

    /// Removes a name of something that is not a directory.
    pub fn unlink(&self, parent: u64, name: &[u8]) -> Result<()> {
        self.remove(parent, name, false, |_, _| Ok(())).map(drop)
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, parent: u64, name: &[u8]) -> Result<()> {
        match name {
            b"." => Err(Errno::EINVAL),
            b".." => Err(Errno::ENOTEMPTY),
            _ => self.remove(parent, name, true, |_, _| Ok(())).map(drop),
        }
    }

    /// Removes a name, of a directory or of something else, if `judge` allows that when it has seen
    /// the directory and what has the name. Gives the number of that.
    pub(crate) fn remove(
        &self,
        parent: u64,
        name: &[u8],
        want_directory: bool,
        judge: impl Fn(&InodeRecord, &InodeRecord) -> Result<()>,
    ) -> Result<u64> {
        let directory = self.directory(parent)?;
        if name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let begin = || Ok(self.dataset.begin_remove()?);
        let (inode, is_gone) = self.dataset.operate(begin, |op| {
            let _names = self.names.lock();
            let may_change = self.dataset.may_change(&directory);
            let (cookie, entry) = self.find(directory.id, name)?.ok_or(Errno::ENOENT)?;
            let inode = self.dataset.inode(entry.inode)?;
            may_change?;
            let record = inode.record();
            judge(&directory.record(), &record)?;
            match (is_directory(&record), want_directory) {
                (true, false) => return Err(Errno::EISDIR),
                (false, true) => return Err(Errno::ENOTDIR),
                (true, true) if record.size > 0 => return Err(Errno::ENOTEMPTY),
                _ => {}
            }
            let key = NamesKey::Entry { directory: directory.id, cookie }.encode();
            // Links change under the names mutex. A stream may have brought a name of something
            // that says it has none.
            let is_last = record.nlink == 1 || want_directory && record.nlink > 0;
            let is_gone = is_last && self.dataset.remove_with_name(op, &inode, &key)?;
            if !is_gone {
                self.dataset.may_change(&inode)?;
                let mut changes = vec![(key, None)];
                Self::unlink_changes(&inode, &mut changes);
                self.dataset.batch(changes)?;
                self.unlinked(op, &inode);
                op.settle(NAME_COST);
            }
            self.touch_directory(op, &directory, -1, -i32::from(want_directory));
            Ok((inode, is_gone))
        })?;
        if !is_gone && self.dataset.forget(&inode, 0) {
            self.reclaim(&inode);
        }
        self.settle(parent)?;
        Ok(inode.id.0)
    }

    /// True if `below` is `above` or lies under it. Directories have one parent each [posix.2], but
    /// a stream may have brought a circle of them: the way up must end.
    fn is_within(&self, below: InodeId, above: InodeId) -> Result<bool> {
        let mut at = below;
        // Where the walk was after the last power of two of steps: in a circle it comes there
        // again.
        let (mut before, mut steps, mut again) = (below, 0_u64, 1_u64);
        loop {
            if at == above {
                return Ok(true);
            }
            let parent = self.dataset.inode(at)?.record().parent;
            if parent == at || parent.0 == 0 {
                return Ok(false);
            }
            at = parent;
            if at == before {
                return Err(Errno::EIO);
            }
            steps += 1;
            if steps == again {
                (before, again) = (at, 2 * again);
            }
        }
    }

    /// Renames, as `renameat2` does.
    pub fn rename(
        &self,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        if !matches!(flags & !RENAME_WHITEOUT, 0 | RENAME_NOREPLACE) && flags != RENAME_EXCHANGE {
            return Err(Errno::EINVAL);
        }
        if self.dataset.has_bug(Bug::RenameInTwoSteps)
            && let Ok(source) = self.lookup(parent, name)
            && self.link(source.ino, new_parent, new_name).is_ok()
        {
            self.syncfs()?;
            return self.unlink(parent, name);
        }
        let (source_dir, target_dir) = (self.directory(parent)?, self.directory(new_parent)?);
        if new_name.len() > NAME_MAX || name.len() > NAME_MAX {
            return Err(Errno::ENAMETOOLONG);
        }
        let begin = || {
            if flags & RENAME_WHITEOUT != 0 {
                // It makes an inode.
                return Ok(self.dataset.begin(AdmitKind::Write)?);
            }
            self.dataset.begin(AdmitKind::Write).or_else(|error| match Errno::from(error) {
                // On a full pool, or at a quota, a rename still works: it frees as much as it
                // takes.
                Errno::ENOSPC | Errno::EDQUOT => Ok(self.dataset.begin(AdmitKind::Remove)?),
                other => Err(other),
            })
        };
        let replaced = self
            .dataset
            .operate(begin, |op| self.rename_in(op, (&source_dir, name), (&target_dir, new_name), flags))?;
        if let Some(target) = replaced
            && self.dataset.forget(&target, 0)
        {
            self.reclaim(&target);
        }
        self.settle(parent)
    }

    /// The operation of a rename. Gives what was replaced.
    fn rename_in(
        &self,
        op: &Operation<'_>,
        (source_dir, name): (&Arc<Inode>, &[u8]),
        (target_dir, new_name): (&Arc<Inode>, &[u8]),
        flags: u32,
    ) -> Result<Option<Arc<Inode>>> {
        let _names = self.names.lock();
        if target_dir.record().nlink == 0 {
            return Err(Errno::ENOENT);
        }
        // Both looked up before either is judged: what they miss is read side by side.
        let may_change = [source_dir, target_dir].map(|inode| self.dataset.may_change(inode));
        let (source, found) = (self.find(source_dir.id, name), self.probe(target_dir.id, new_name));
        let (source_cookie, source_entry) = source?.ok_or(Errno::ENOENT)?;
        let source = self.dataset.inode(source_entry.inode)?;
        let found = found?;
        may_change.into_iter().collect::<Result<(), _>>()?;
        self.dataset.may_change(&source)?;
        if flags == RENAME_EXCHANGE {
            let Probe::Found(target_cookie, target_entry) = found else { return Err(Errno::ENOENT) };
            self.exchange(
                op,
                (source_dir, source_cookie, source_entry),
                (target_dir, target_cookie, target_entry),
            )?;
            return Ok(None);
        }
        self.check_new_name(new_name)?;
        let moved_directory = is_directory(&source.record());
        if moved_directory && self.is_within(target_dir.id, source.id)? {
            return Err(Errno::EINVAL);
        }
        let mut replaced = None;
        if let Probe::Found(cookie, entry) = &found {
            if flags & RENAME_NOREPLACE != 0 {
                return Err(Errno::EEXIST);
            }
            if entry.inode == source.id {
                return Ok(None); // two names of one file: POSIX says nothing happens
            }
            let target = self.dataset.inode(entry.inode)?;
            self.dataset.may_change(&target)?;
            let record = target.record();
            match (moved_directory, is_directory(&record)) {
                (true, false) => return Err(Errno::ENOTDIR),
                (false, true) => return Err(Errno::EISDIR),
                (true, true) if record.size > 0 => return Err(Errno::ENOTEMPTY),
                _ => {}
            }
            replaced = Some((*cookie, target));
        }
        let cookie = match found {
            Probe::Found(cookie, _) | Probe::Free(cookie) => cookie,
            Probe::Full => return Err(Errno::ENOSPC),
        };
        let entry = Dirent { inode: source.id, kind: source_entry.kind, name: new_name.to_vec() };
        let mut changes: Changes = vec![
            (NamesKey::Entry { directory: source_dir.id, cookie: source_cookie }.encode(), None),
            entry_item(target_dir.id, cookie, &entry),
        ];
        if let Some((_, target)) = &replaced {
            Self::unlink_changes(target, &mut changes);
        }
        let whiteout = match flags & RENAME_WHITEOUT {
            0 => None,
            _ => {
                let (inode, record) = self.new_whiteout(op, source_dir)?;
                let entry = Dirent { inode: inode.id, kind: kind_of(&record), name: name.to_vec() };
                changes[0] = entry_item(source_dir.id, source_cookie, &entry);
                changes.push(inode_item(inode.id, &record));
                Some(inode)
            }
        };
        if let Err(error) = self.dataset.batch(changes) {
            whiteout.iter().for_each(|inode| self.dataset.drop_new_inode(inode));
            return Err(error.into());
        }

        let now = self.now();
        self.dataset.change(op, &source, |record| {
            record.parent = target_dir.id;
            record.ctime = now;
        });
        let replaced_directory = replaced.as_ref().is_some_and(|(_, target)| is_directory(&target.record()));
        if let Some((_, target)) = &replaced {
            self.unlinked(op, target);
        }
        let directories = i32::from(moved_directory);
        self.touch_directory(op, source_dir, if whiteout.is_some() { 0 } else { -1 }, -directories);
        if let Some(inode) = whiteout {
            // Nobody has looked it up.
            self.entry_of(&inode);
            self.dataset.forget(&inode, 1);
        }
        let came = i64::from(replaced.is_none());
        self.touch_directory(op, target_dir, came, directories - i32::from(replaced_directory));
        Ok(replaced.map(|(_, target)| target))
    }

    /// A device node 0:0 without rights: in the upper layer of an overlay it hides the name below.
    /// It belongs to the owner of the directory.
    fn new_whiteout(&self, op: &Operation<'_>, directory: &Arc<Inode>) -> Result<(Arc<Inode>, InodeRecord)> {
        let above = directory.record();
        let owner = Caller { uid: above.uid, gid: above.gid, umask: 0 };
        let record = self.new_record(owner, directory, S_IFCHR, 0);
        self.dataset.check_object_quota(record.uid, record.gid)?;
        Ok(self.dataset.new_inode(op, record)?)
    }

    fn exchange(
        &self,
        op: &Operation<'_>,
        (source_dir, source_cookie, source): (&Arc<Inode>, u64, Dirent),
        (target_dir, target_cookie, target): (&Arc<Inode>, u64, Dirent),
    ) -> Result<()> {
        let one = self.dataset.inode(source.inode)?;
        let other = self.dataset.inode(target.inode)?;
        self.dataset.may_change(&other)?;
        let (one_directory, other_directory) = (is_directory(&one.record()), is_directory(&other.record()));
        if one.id == other.id {
            return Ok(());
        }
        if (one_directory && self.is_within(target_dir.id, one.id)?)
            || (other_directory && self.is_within(source_dir.id, other.id)?)
        {
            return Err(Errno::EINVAL);
        }
        let here = Dirent { name: source.name, inode: target.inode, kind: target.kind };
        let there = Dirent { name: target.name, inode: source.inode, kind: source.kind };
        self.dataset.batch(vec![
            entry_item(source_dir.id, source_cookie, &here),
            entry_item(target_dir.id, target_cookie, &there),
        ])?;
        let now = self.now();
        for (inode, directory) in [(&one, target_dir), (&other, source_dir)] {
            self.dataset.change(op, inode, |record| {
                record.parent = directory.id;
                record.ctime = now;
            });
        }
        let shift = i32::from(other_directory) - i32::from(one_directory);
        self.touch_directory(op, source_dir, 0, shift);
        self.touch_directory(op, target_dir, 0, -shift);
        Ok(())
    }

    /// Lists a directory with attributes, as [`FileSystem::list`] lists it without: `take` gets
    /// each entry and a look at its inode, which takes a reference that is given back where `take`
    /// says no. `.` and `..` come without one.
    pub fn readdir_plus(
        &self,
        ino: u64,
        cookie: u64,
        take: impl FnMut(Listed<'_>, Option<Result<&Entry>>) -> bool,
    ) -> Result<()> {
        self.list_with(ino, cookie, 1, take)
    }

    /// The same for who keeps nothing: no reference is taken.
    pub fn readdir_looking(
        &self,
        ino: u64,
        cookie: u64,
        take: impl FnMut(Listed<'_>, Option<Result<&Entry>>) -> bool,
    ) -> Result<()> {
        self.list_with(ino, cookie, 0, take)
    }

    /// Lists a directory with attributes, in one walk over its entries as long as their inodes are
    /// in memory. Those of the next entries are brought together where one is not.
    fn list_with(
        &self,
        ino: u64,
        cookie: u64,
        refs: u64,
        mut take: impl FnMut(Listed<'_>, Option<Result<&Entry>>) -> bool,
    ) -> Result<()> {
        let directory = self.listed_directory(ino)?;
        let (mut behind, mut count) = (cookie, LIST_FIRST);
        let mut give = |entry: Listed<'_>, known: Option<Result<&Entry>>| {
            let is_held = refs > 0 && matches!(known, Some(Ok(_)));
            let is_taken = take(entry, known);
            if !is_taken && is_held {
                self.forget(entry.ino, refs);
            }
            is_taken
        };
        let mut place = None;
        loop {
            let mut is_missing = false;
            self.list_in(&directory, behind, |entry| {
                let known = entry.is_own().then(|| self.look(InodeId(entry.ino), refs, &mut place));
                is_missing = matches!(known, Some(None));
                let known = known.flatten().map(|found| found.map(|()| place.as_ref().expect("looked")));
                let goes_on = !is_missing && give(entry, known);
                behind = if goes_on { entry.cookie } else { behind };
                goes_on
            })?;
            if !is_missing {
                return Ok(());
            }
            let mut found = Vec::with_capacity(count);
            self.list_in(&directory, behind, |entry| {
                found.push(entry.to_entry());
                found.len() < count
            })?;
            let own = found.iter().filter(|entry| entry.listed().is_own());
            bring_records(&self.dataset, own.map(|entry| InodeId(entry.ino)).collect());
            for entry in &found {
                let known = entry.listed().is_own().then(|| self.read_entry(InodeId(entry.ino), refs));
                let known = known.as_ref().map(|known| known.as_ref().map_err(|errno| *errno));
                if !give(entry.listed(), known) {
                    return Ok(());
                }
                behind = entry.cookie;
            }
            if found.len() < count {
                return Ok(());
            }
            count = (2 * count).min(LIST_MAX);
        }
    }

    /// An entry whose inode may have to be read, with so many references more: one or none.
    fn read_entry(&self, id: InodeId, refs: u64) -> Result<Entry> {
        let entry = self.entry(id)?;
        if refs == 0 {
            self.forget(id.0, 1);
        }
        Ok(entry)
    }

    /// Lists a directory as [`FileSystem::list`] does, each entry with a name of its own.
    pub fn readdir(&self, ino: u64, cookie: u64, mut take: impl FnMut(DirEntry) -> bool) -> Result<()> {
        self.list(ino, cookie, |entry| take(entry.to_entry()))
    }

    /// Lists a directory from behind `cookie` (0: from the start), handing entries to `take` until
    /// it says no. Cookies stay true while entries come and go. No lock is held while `take` runs.
    pub fn list(&self, ino: u64, cookie: u64, take: impl FnMut(Listed<'_>) -> bool) -> Result<()> {
        self.list_in(&self.listed_directory(ino)?, cookie, take)
    }

    /// A directory that is being listed, which counts as a read of it.
    fn listed_directory(&self, ino: u64) -> Result<Arc<Inode>> {
        let directory = self.directory(ino)?;
        self.accessed(&directory, &directory.record());
        Ok(directory)
    }

    fn list_in(
        &self,
        directory: &Arc<Inode>,
        cookie: u64,
        mut take: impl FnMut(Listed<'_>) -> bool,
    ) -> Result<()> {
        let record = directory.record();
        for (at, name, id) in [(1, &b"."[..], directory.id), (2, &b".."[..], record.parent)] {
            if cookie < at && !take(Listed { ino: id.0, cookie: at, kind: 4, name }) {
                return Ok(());
            }
        }
        if record.nlink == 0 {
            return Ok(());
        }
        if cookie <= COOKIE_RESERVED {
            let with_content = self.listings.are_read_in_turn();
            self.walks.bring(&self.dataset, record.parent, directory.id, with_content);
        }
        // From the start on nothing is left out: an entry whose cookie is one of the two above is
        // damage.
        let from = match cookie.max(COOKIE_RESERVED) {
            COOKIE_RESERVED => NamesKey::entries(directory.id),
            cookie => NamesKey::Entry { directory: directory.id, cookie: cookie.saturating_add(1) }.encode(),
        };
        let mut result = Ok(());
        let (mut subdirectories, mut files) = (Vec::new(), Vec::new());
        let notes_files = self.dataset.brings_content();
        self.dataset.names().scan(&from, &NamesKey::xattrs(directory.id), |key, value| {
            let (Ok(NamesKey::Entry { cookie, .. }), Ok(entry)) =
                (NamesKey::decode(key), DirentView::decode(value))
            else {
                result = Err(Errno::EIO);
                return false;
            };
            if u32::from(entry.kind) << 12 == S_IFDIR {
                subdirectories.push(entry.inode);
            } else if notes_files && u32::from(entry.kind) << 12 == S_IFREG {
                files.push(entry.inode);
            }
            take(Listed { ino: entry.inode.0, cookie, kind: entry.kind, name: entry.name })
        })?;
        self.walks.listed(directory.id, &subdirectories);
        if notes_files {
            self.listings.listed(directory.id, cookie <= COOKIE_RESERVED, &files);
        }
        result
    }
}
