//! A complete little file system in memory: what the mount tests mount. One lock, no cleverness.

use std::collections::{BTreeMap, HashMap};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use steadfast_fuse::wire::request::Operation;
use steadfast_fuse::*;

/// Long, so that only notifications and the kernel's own changes refresh what it knows.
const TTL: Duration = TTL_LONG;

pub struct MemFs {
    state: Mutex<State>,
    /// Calls of `init` and `destroy`, and of `open` minus `release`.
    pub inits: AtomicU64,
    pub destroys: AtomicU64,
    direct_writes: AtomicBool,
}

struct State {
    nodes: HashMap<u64, Node>,
    next_ino: u64,
}

struct Node {
    attr: Attr,
    body: Body,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    lookups: u64,
    opens: u64,
}

enum Body {
    Directory {
        parent: u64,
        names: BTreeMap<Vec<u8>, (u64, u64)>,
        order: BTreeMap<u64, Vec<u8>>,
        next_cookie: u64,
    },
    File(Vec<u8>),
    Symlink(Vec<u8>),
    Other,
}

fn now() -> Time {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Time { secs: since.as_secs() as i64, nanos: since.subsec_nanos() }
}

impl Default for MemFs {
    fn default() -> Self {
        let mut state = State { nodes: HashMap::new(), next_ino: ROOT_INO };
        let ino = state.add(0, 0, libc::S_IFDIR | 0o755, directory(ROOT_INO));
        assert_eq!(ino, ROOT_INO);
        Self {
            state: Mutex::new(state),
            inits: AtomicU64::new(0),
            destroys: AtomicU64::new(0),
            direct_writes: AtomicBool::new(false),
        }
    }
}

fn directory(parent: u64) -> Body {
    Body::Directory { parent, names: BTreeMap::new(), order: BTreeMap::new(), next_cookie: 3 }
}

impl State {
    fn add(&mut self, uid: u32, gid: u32, mode: u32, body: Body) -> u64 {
        let (ino, time) = (self.next_ino, now());
        self.next_ino += 1;
        let nlink = if matches!(body, Body::Directory { .. }) { 2 } else { 1 };
        let size = if let Body::Symlink(target) = &body { target.len() as u64 } else { 0 };
        let attr = Attr {
            ino,
            size,
            mode,
            nlink,
            uid,
            gid,
            atime: time,
            mtime: time,
            ctime: time,
            btime: Some(time),
            blksize: 4096,
            ..Attr::default()
        };
        self.nodes.insert(ino, Node { attr, body, xattrs: BTreeMap::new(), lookups: 0, opens: 0 });
        ino
    }

    fn node(&mut self, ino: u64) -> Reply<&mut Node> {
        self.nodes.get_mut(&ino).ok_or(Errno::ESTALE)
    }

    fn resolve(&mut self, parent: u64, name: &[u8]) -> Reply<u64> {
        match &self.node(parent)?.body {
            // Handles are resolved by the `.` of whatever they name.
            _ if name == b"." => Ok(parent),
            Body::Directory { parent, .. } if name == b".." => Ok(*parent),
            Body::Directory { names, .. } => names.get(name).map(|&(ino, _)| ino).ok_or(Errno::ENOENT),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn entry(&mut self, ino: u64) -> Reply<Entry> {
        let node = self.node(ino)?;
        node.lookups += 1;
        Ok(Entry { ino, generation: 0, attr: node.attr, entry_ttl: TTL, attr_ttl: TTL })
    }

    fn insert_name(&mut self, parent: u64, name: &[u8], ino: u64) -> Reply<()> {
        if name.len() > 255 {
            return Err(Errno::ENAMETOOLONG);
        }
        let node = self.node(parent)?;
        let Body::Directory { names, order, next_cookie, .. } = &mut node.body else {
            return Err(Errno::ENOTDIR);
        };
        if names.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        if node.attr.nlink == 0 {
            return Err(Errno::ENOENT);
        }
        names.insert(name.to_vec(), (ino, *next_cookie));
        order.insert(*next_cookie, name.to_vec());
        *next_cookie += 1;
        (node.attr.mtime, node.attr.ctime) = (now(), now());
        Ok(())
    }

    fn remove_name(&mut self, parent: u64, name: &[u8]) -> Reply<u64> {
        let node = self.node(parent)?;
        let Body::Directory { names, order, .. } = &mut node.body else { return Err(Errno::ENOTDIR) };
        let (ino, cookie) = names.remove(name).ok_or(Errno::ENOENT)?;
        order.remove(&cookie);
        (node.attr.mtime, node.attr.ctime) = (now(), now());
        Ok(ino)
    }

    fn make(&mut self, req: &Request, parent: u64, name: &[u8], mode: u32, body: Body) -> Reply<Entry> {
        let is_dir = matches!(body, Body::Directory { .. });
        let ino = self.add(req.uid, req.gid, mode, body);
        if let Err(errno) = self.insert_name(parent, name, ino) {
            self.nodes.remove(&ino);
            return Err(errno);
        }
        if is_dir {
            self.node(parent)?.attr.nlink += 1;
        }
        self.entry(ino)
    }

    fn is_dir(&mut self, ino: u64) -> Reply<bool> {
        Ok(matches!(self.node(ino)?.body, Body::Directory { .. }))
    }

    fn drop_link(&mut self, parent: u64, ino: u64) -> Reply<()> {
        let dir = self.is_dir(ino)?;
        let node = self.node(ino)?;
        node.attr.nlink -= if dir { 2 } else { 1 };
        node.attr.ctime = now();
        if dir {
            self.node(parent)?.attr.nlink -= 1;
        }
        self.reap(ino);
        Ok(())
    }

    fn reap(&mut self, ino: u64) {
        if let Some(node) = self.nodes.get(&ino)
            && node.attr.nlink == 0
            && node.lookups == 0
            && node.opens == 0
        {
            self.nodes.remove(&ino);
        }
    }

    fn check_empty(&mut self, ino: u64) -> Reply<()> {
        match &self.node(ino)?.body {
            Body::Directory { names, .. } if names.is_empty() => Ok(()),
            Body::Directory { .. } => Err(Errno::ENOTEMPTY),
            _ => Err(Errno::ENOTDIR),
        }
    }

    fn resize(&mut self, ino: u64, size: u64) -> Reply<()> {
        let node = self.node(ino)?;
        let Body::File(data) = &mut node.body else { return Err(Errno::EISDIR) };
        if size > 1 << 30 {
            return Err(Errno::EFBIG);
        }
        data.resize(size as usize, 0);
        (node.attr.size, node.attr.blocks) = (size, size.div_ceil(512));
        (node.attr.mtime, node.attr.ctime) = (now(), now());
        Ok(())
    }

    fn open(&mut self, ino: u64, flags: u32) -> Reply<Opened> {
        self.node(ino)?.opens += 1;
        if flags & libc::O_TRUNC as u32 != 0 {
            self.resize(ino, 0)?;
        }
        Ok(Opened { fh: ino << 1 | 1, keep_cache: true, parallel_direct_writes: true, ..Opened::default() })
    }

    fn release(&mut self, ino: u64) -> Reply<()> {
        self.node(ino)?.opens -= 1;
        self.reap(ino);
        Ok(())
    }

    fn move_parent(&mut self, ino: u64, from: u64, to: u64) -> Reply<()> {
        if let Body::Directory { parent, .. } = &mut self.node(ino)?.body {
            *parent = to;
            self.node(from)?.attr.nlink -= 1;
            self.node(to)?.attr.nlink += 1;
        }
        self.node(ino)?.attr.ctime = now();
        Ok(())
    }

    /// Each name after `cookie`: inode, cookie, name.
    fn list(
        &mut self,
        ino: u64,
        after: u64,
        mut each: impl FnMut(&Self, u64, u64, &[u8]) -> bool,
    ) -> Reply<()> {
        let Body::Directory { parent, order, names, .. } = &self.node(ino)?.body else {
            return Err(Errno::ENOTDIR);
        };
        let dots = [(1, b".".to_vec(), ino), (2, b"..".to_vec(), *parent)];
        let rest = order.range(after + 1..).map(|(&cookie, name)| (cookie, name.clone(), names[name].0));
        let all: Vec<_> = dots.into_iter().filter(|d| d.0 > after).chain(rest).take(2000).collect();
        for (cookie, name, ino) in all {
            if !each(self, ino, cookie, &name) {
                break;
            }
        }
        Ok(())
    }
}

impl MemFs {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn directly(&self, opened: Opened, args: &OpenArgs) -> Opened {
        let direct_io = self.direct_writes.load(Ordering::SeqCst) && args.writes_directly();
        Opened { direct_io, ..opened }
    }

    /// The root directory belongs to this user.
    pub fn owned_by(uid: u32, gid: u32) -> Self {
        let fs = Self::default();
        let mut state = fs.state();
        let attr = &mut state.nodes.get_mut(&ROOT_INO).unwrap().attr;
        (attr.uid, attr.gid) = (uid, gid);
        drop(state);
        fs
    }

    /// Inodes that live, and handles that are open.
    pub fn counts(&self) -> (usize, u64) {
        let state = self.state();
        (state.nodes.len(), state.nodes.values().map(|n| n.opens).sum())
    }

    /// Changes a file's bytes behind the kernel's back, keeping its size.
    pub fn overwrite(&self, name: &[u8], bytes: &[u8]) -> u64 {
        let mut state = self.state();
        let ino = state.resolve(ROOT_INO, name).unwrap();
        let Body::File(data) = &mut state.node(ino).unwrap().body else { panic!("not a file") };
        data[..bytes.len()].copy_from_slice(bytes);
        ino
    }

    /// The bytes of a file as the file system has them.
    pub fn content(&self, name: &[u8]) -> Vec<u8> {
        let mut state = self.state();
        let ino = state.resolve(ROOT_INO, name).unwrap();
        let Body::File(data) = &state.node(ino).unwrap().body else { panic!("not a file") };
        data.clone()
    }

    /// Removes a name behind the kernel's back; returns its inode.
    pub fn remove(&self, name: &[u8]) -> u64 {
        let mut state = self.state();
        let ino = state.remove_name(ROOT_INO, name).unwrap();
        state.drop_link(ROOT_INO, ino).unwrap();
        ino
    }
}

impl Handler for MemFs {
    fn init(&self, negotiated: &Negotiated) {
        self.direct_writes.store(negotiated.direct_writes, Ordering::SeqCst);
        self.inits.fetch_add(1, Ordering::SeqCst);
    }

    fn destroy(&self) {
        self.destroys.fetch_add(1, Ordering::SeqCst);
    }

    /// Everything is done in memory under one lock.
    fn is_quick(&self, _: &Operation<'_>) -> bool {
        true
    }

    fn lookup(&self, _: &Request, parent: u64, name: &[u8]) -> Reply<Entry> {
        let mut state = self.state();
        match state.resolve(parent, name) {
            Ok(ino) => state.entry(ino),
            Err(Errno::ENOENT) => Ok(Entry::negative(TTL)),
            Err(errno) => Err(errno),
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        let mut state = self.state();
        for forget in forgets {
            if let Ok(node) = state.node(forget.ino) {
                node.lookups -= forget.nlookup;
                state.reap(forget.ino);
            }
        }
    }

    fn getattr(&self, _: &Request, ino: u64, _: Option<u64>) -> Reply<AttrReply> {
        Ok(AttrReply { attr: self.state().node(ino)?.attr, ttl: TTL })
    }

    fn setattr(&self, _: &Request, ino: u64, set: &SetAttr) -> Reply<AttrReply> {
        let mut state = self.state();
        if let Some(size) = set.size {
            state.resize(ino, size)?;
        }
        let attr = &mut state.node(ino)?.attr;
        if let Some(mode) = set.mode {
            attr.mode = attr.mode & libc::S_IFMT | mode & 0o7777;
        }
        attr.uid = set.uid.unwrap_or(attr.uid);
        attr.gid = set.gid.unwrap_or(attr.gid);
        let time = |set: SetTime| if let SetTime::At(time) = set { time } else { now() };
        attr.atime = set.atime.map_or(attr.atime, time);
        attr.mtime = set.mtime.map_or(attr.mtime, time);
        attr.ctime = set.ctime.unwrap_or_else(now);
        if set.kill_suidgid || set.uid.is_some() || set.gid.is_some() {
            kill_suidgid(attr);
        }
        Ok(AttrReply { attr: *attr, ttl: TTL })
    }

    fn readlink(&self, _: &Request, ino: u64) -> Reply<Vec<u8>> {
        match &self.state().node(ino)?.body {
            Body::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::EINVAL),
        }
    }

    fn symlink(&self, req: &Request, parent: u64, name: &[u8], target: &[u8]) -> Reply<Entry> {
        self.state().make(req, parent, name, libc::S_IFLNK | 0o777, Body::Symlink(target.to_vec()))
    }

    fn mknod(&self, req: &Request, parent: u64, name: &[u8], mode: u32, rdev: u32) -> Reply<Entry> {
        let mut state = self.state();
        let body = if mode & libc::S_IFMT == libc::S_IFREG { Body::File(Vec::new()) } else { Body::Other };
        let mut entry = state.make(req, parent, name, mode, body)?;
        state.node(entry.ino)?.attr.rdev = rdev;
        entry.attr.rdev = rdev;
        Ok(entry)
    }

    fn mkdir(&self, req: &Request, parent: u64, name: &[u8], mode: u32) -> Reply<Entry> {
        self.state().make(req, parent, name, libc::S_IFDIR | mode & 0o7777, directory(parent))
    }

    fn unlink(&self, _: &Request, parent: u64, name: &[u8]) -> Reply<()> {
        let mut state = self.state();
        let ino = state.resolve(parent, name)?;
        if state.is_dir(ino)? {
            return Err(Errno::EISDIR);
        }
        state.remove_name(parent, name)?;
        state.drop_link(parent, ino)
    }

    fn rmdir(&self, _: &Request, parent: u64, name: &[u8]) -> Reply<()> {
        let mut state = self.state();
        let ino = state.resolve(parent, name)?;
        state.check_empty(ino)?;
        state.remove_name(parent, name)?;
        state.drop_link(parent, ino)
    }

    fn rename(&self, _: &Request, args: &RenameArgs<'_>) -> Reply<()> {
        let mut state = self.state();
        let (from, to) = (args.parent, args.new_parent);
        let ino = state.resolve(from, args.name)?;
        let target = state.resolve(to, args.new_name);
        match (args.flags, target) {
            (1, Ok(_)) => return Err(Errno::EEXIST),
            (2, Err(errno)) => return Err(errno),
            (2, Ok(other)) => {
                state.remove_name(from, args.name)?;
                state.remove_name(to, args.new_name)?;
                state.insert_name(to, args.new_name, ino)?;
                state.insert_name(from, args.name, other)?;
                state.move_parent(ino, from, to)?;
                return state.move_parent(other, to, from);
            }
            (0, Ok(other)) if other == ino => return Ok(()),
            (0, Ok(other)) => {
                if state.is_dir(other)? {
                    state.check_empty(other)?;
                }
                state.remove_name(to, args.new_name)?;
                state.drop_link(to, other)?;
            }
            (0 | 1, Err(_)) => {}
            _ => return Err(Errno::EINVAL),
        }
        state.remove_name(from, args.name)?;
        state.insert_name(to, args.new_name, ino)?;
        state.move_parent(ino, from, to)
    }

    fn link(&self, _: &Request, ino: u64, new_parent: u64, new_name: &[u8]) -> Reply<Entry> {
        let mut state = self.state();
        state.insert_name(new_parent, new_name, ino)?;
        let attr = &mut state.node(ino)?.attr;
        attr.nlink += 1;
        attr.ctime = now();
        state.entry(ino)
    }

    fn open(&self, _: &Request, ino: u64, args: &OpenArgs) -> Reply<Opened> {
        let opened = self.state().open(ino, args.flags)?;
        Ok(self.directly(opened, args))
    }

    fn read(&self, _: &Request, args: &ReadArgs, out: &mut [u8]) -> Reply<usize> {
        assert_eq!(args.fh, args.ino << 1 | 1, "the handle of the inode comes back");
        let mut state = self.state();
        let Body::File(data) = &state.node(args.ino)?.body else { return Err(Errno::EISDIR) };
        let rest = data.get(args.offset as usize..).unwrap_or_default();
        let count = rest.len().min(out.len());
        out[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write(&self, req: &Request, args: &WriteArgs, bytes: &[u8]) -> Reply<usize> {
        let mut state = self.state();
        let end = args.offset + bytes.len() as u64;
        if end > state.node(args.ino)?.attr.size {
            state.resize(args.ino, end)?;
        }
        let node = state.node(args.ino)?;
        let Body::File(data) = &mut node.body else { return Err(Errno::EISDIR) };
        data[args.offset as usize..end as usize].copy_from_slice(bytes);
        (node.attr.mtime, node.attr.ctime) = (now(), now());
        if args.kill_suidgid && kill_suidgid(&mut node.attr) {
            req.forget_attr(args.ino);
        }
        Ok(bytes.len())
    }

    fn statfs(&self, _: &Request, _: u64) -> Reply<StatFs> {
        let files = self.state().nodes.len() as u64;
        Ok(StatFs {
            blocks: 1 << 18,
            bfree: 1 << 17,
            bavail: 1 << 16,
            files: files + 1000,
            ffree: 1000,
            bsize: 4096,
            namelen: 255,
            frsize: 4096,
        })
    }

    fn release(&self, _: &Request, args: &ReleaseArgs) -> Reply<()> {
        self.state().release(args.ino)
    }

    fn fsync(&self, _: &Request, ino: u64, _: u64, _: bool) -> Reply<()> {
        self.state().node(ino).map(|_| ())
    }

    fn setxattr(&self, _: &Request, args: &SetXattrArgs<'_>) -> Reply<()> {
        let mut state = self.state();
        let xattrs = &mut state.node(args.ino)?.xattrs;
        match (args.flags as i32, xattrs.contains_key(args.name)) {
            (libc::XATTR_CREATE, true) => Err(Errno::EEXIST),
            (libc::XATTR_REPLACE, false) => Err(Errno::ENODATA),
            _ => {
                xattrs.insert(args.name.to_vec(), args.value.to_vec());
                Ok(())
            }
        }
    }

    fn getxattr(&self, _: &Request, ino: u64, name: &[u8], out: &mut ValueSink<'_>) -> Reply<()> {
        out.put(self.state().node(ino)?.xattrs.get(name).ok_or(Errno::ENODATA)?)
    }

    fn listxattr(&self, _: &Request, ino: u64, out: &mut ValueSink<'_>) -> Reply<()> {
        for name in self.state().node(ino)?.xattrs.keys() {
            out.put(name)?;
            out.put(b"\0")?;
        }
        Ok(())
    }

    fn removexattr(&self, _: &Request, ino: u64, name: &[u8]) -> Reply<()> {
        self.state().node(ino)?.xattrs.remove(name).map(|_| ()).ok_or(Errno::ENODATA)
    }

    fn opendir(&self, _: &Request, ino: u64, _: &OpenArgs) -> Reply<Opened> {
        self.state().open(ino, 0)
    }

    fn readdir(&self, _: &Request, ino: u64, _: u64, offset: u64, out: &mut DirSink<'_>) -> Reply<()> {
        self.state().list(ino, offset, |state, ino, cookie, name| {
            out.add(ino, cookie, FileKind::from_mode(state.nodes[&ino].attr.mode), name)
        })
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: u64,
        _: u64,
        offset: u64,
        out: &mut DirPlusSink<'_>,
    ) -> Reply<()> {
        let mut state = self.state();
        let mut added = Vec::new();
        state.list(ino, offset, |state, ino, cookie, name| {
            let attr = state.nodes[&ino].attr;
            let entry = Entry { ino, generation: 0, attr, entry_ttl: TTL, attr_ttl: TTL };
            let room = out.add(cookie, name, &entry);
            if room && name != b"." && name != b".." {
                added.push(ino);
            }
            room
        })?;
        for ino in added {
            state.node(ino)?.lookups += 1;
        }
        Ok(())
    }

    fn releasedir(&self, _: &Request, args: &ReleaseArgs) -> Reply<()> {
        self.state().release(args.ino)
    }

    fn fsyncdir(&self, _: &Request, ino: u64, _: u64, _: bool) -> Reply<()> {
        self.state().node(ino).map(|_| ())
    }

    fn create(
        &self,
        req: &Request,
        parent: u64,
        name: &[u8],
        mode: u32,
        args: &OpenArgs,
    ) -> Reply<(Entry, Opened)> {
        let mut state = self.state();
        let entry = state.make(req, parent, name, mode, Body::File(Vec::new()))?;
        Ok((entry, self.directly(state.open(entry.ino, args.flags)?, args)))
    }

    fn tmpfile(&self, req: &Request, _: u64, mode: u32, args: &OpenArgs) -> Reply<(Entry, Opened)> {
        let mut state = self.state();
        let ino = state.add(req.uid, req.gid, mode, Body::File(Vec::new()));
        state.node(ino)?.attr.nlink = 0;
        Ok((state.entry(ino)?, state.open(ino, args.flags)?))
    }

    fn fallocate(&self, _: &Request, args: &FallocateArgs) -> Reply<()> {
        let mut state = self.state();
        let end = args.offset + args.length;
        if args.mode & libc::FALLOC_FL_KEEP_SIZE as u32 == 0 && end > state.node(args.ino)?.attr.size {
            state.resize(args.ino, end)?;
        }
        let zeroing = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE) as u32;
        if args.mode & zeroing != 0 {
            let Body::File(data) = &mut state.node(args.ino)?.body else { return Err(Errno::EISDIR) };
            let end = (end as usize).min(data.len());
            if let Some(range) = data.get_mut(args.offset as usize..end) {
                range.fill(0);
            }
        }
        Ok(())
    }

    fn lseek(&self, _: &Request, ino: u64, _: u64, offset: u64, whence: Whence) -> Reply<u64> {
        let size = self.state().node(ino)?.attr.size;
        match whence {
            _ if offset >= size => Err(Errno::ENXIO),
            Whence::Data => Ok(offset),
            Whence::Hole => Ok(size),
        }
    }

    fn copy_file_range(&self, _: &Request, args: &CopyArgs) -> Reply<u64> {
        let mut state = self.state();
        let Body::File(data) = &state.node(args.ino_in)?.body else { return Err(Errno::EISDIR) };
        let rest = data.get(args.offset_in as usize..).unwrap_or_default();
        let bytes = rest[..rest.len().min(args.length as usize)].to_vec();
        let end = args.offset_out + bytes.len() as u64;
        if end > state.node(args.ino_out)?.attr.size {
            state.resize(args.ino_out, end)?;
        }
        let Body::File(data) = &mut state.node(args.ino_out)?.body else { return Err(Errno::EISDIR) };
        data[args.offset_out as usize..end as usize].copy_from_slice(&bytes);
        Ok(bytes.len() as u64)
    }
}

/// True if there was something to drop.
fn kill_suidgid(attr: &mut Attr) -> bool {
    let before = attr.mode;
    attr.mode &= !libc::S_ISUID;
    if attr.mode & libc::S_IXGRP != 0 {
        attr.mode &= !libc::S_ISGID;
    }
    attr.mode != before
}
