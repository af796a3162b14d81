//! Operations of a workload, done to the real stack and to the model at once.

use std::collections::BTreeMap;
use std::fmt;

use steadfast_model::{Id, Model, Rename};
use steadfast_posix::{
    Caller, Entry, Errno, Fallocate, FileSystem, RENAME_EXCHANGE, RENAME_NOREPLACE, SetAttr,
};

use crate::draw::Draw;

/// A path from the root of the file system, without a slash in front.
pub type Path = &'static str;

/// Where a write goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum At {
    /// To this byte.
    Byte(usize),
    /// Behind the last.
    End,
}

/// A change of a range.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Range {
    /// Allocated; the size grows.
    Allocate,
    /// Allocated; the size stays.
    KeepSize,
    /// Made a hole.
    Punch,
    /// Made zero; the size grows.
    Zero,
}

/// One operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Op {
    /// An empty file.
    Create(Path),
    /// A directory.
    Mkdir(Path),
    /// A link whose target has so many bytes.
    Symlink(Path, usize),
    /// One more name.
    Link(Path, Path),
    /// One name less.
    Unlink(Path),
    /// A directory less.
    Rmdir(Path),
    /// Another name.
    Rename(Path, Path, Rename),
    /// So many new bytes.
    Write(Path, At, usize),
    /// Another size.
    Truncate(Path, usize),
    /// Something of a range.
    Allocate(Path, Range, usize, usize),
    /// An attribute of so many bytes.
    SetXattr(Path, usize),
    /// The attribute that the base has.
    RemoveXattr(Path),
    /// Other permissions.
    Chmod(Path),
    /// A file without a name, with content, that then gets one.
    TmpfileLink(Path),
    /// Bytes written to a file whose last name is removed while it is open.
    WriteUnlinked(Path),
    /// So many bytes of the first file, from its beginning, copied to a byte of the second.
    Copy(Path, Path, usize, usize),
    /// Content of the first file, written to the beginning of the second.
    Repeat(Path, Path),
    /// A property of the dataset gets another value.
    Set(&'static str, &'static str),
    /// `fsync`.
    Fsync(Path),
    /// `fdatasync`.
    Fdatasync(Path),
    /// `sync`.
    Sync,
    /// As long as it takes until a commit comes by itself.
    Wait,
    /// As long as the log waits with what nobody asked for (`journal=data`).
    Interval,
    /// Files of another dataset are removed, and that is committed: there is room again.
    Room,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

impl Op {
    /// True if it gives room back and takes none, so that a full pool must not refuse it.
    #[must_use]
    pub fn gives_back(self) -> bool {
        matches!(self, Op::Unlink(_) | Op::Rmdir(_) | Op::Truncate(_, 0))
    }
}

/// Promise of an operation that returned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Promise {
    /// Nothing.
    None,
    /// This node and its names.
    Node(u64),
    /// Everything.
    All,
    /// Everything up to this operation.
    UpTo(usize),
}

/// Both sides.
pub struct Sides<'a> {
    /// The real stack.
    pub fs: &'a FileSystem,
    /// The model.
    pub model: &'a mut Model,
    /// Numbers that the stack gave the model's nodes.
    pub inos: &'a mut BTreeMap<Id, u64>,
    /// Draws content.
    pub draw: &'a mut Draw,
    /// Makes a commit come by itself.
    pub wait: &'a dyn Fn(),
    /// Lets the log's interval pass: what `Pool::log_interval` says, or what went wrong with the
    /// commit that it asked for.
    pub interval: &'a dyn Fn() -> Result<Option<bool>, String>,
    /// Removes what fills the pool.
    pub room: &'a dyn Fn() -> Result<(), String>,
    /// Each operation is durable when it returns (`sync=always`).
    pub always: bool,
    /// Sets a property.
    pub set: &'a dyn Fn(&str, &str) -> Result<(), String>,
}

/// Both sides said something else.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Disagreement {
    /// The operation as text.
    pub text: String,
    /// The real stack's errno; 0 if it was content.
    pub errno: i32,
}

impl Disagreement {
    fn refused(what: &str, errno: Errno) -> Disagreement {
        Disagreement { text: format!("{what} gives {errno:?}"), errno: errno.0 }
    }
}

type Found<T> = Result<T, i32>;

/// The device failed.
pub const EIO: i32 = 5;
/// There is no room.
pub const ENOSPC: i32 = 28;
/// The pool takes no changes any more.
pub const EROFS: i32 = 30;

fn split(path: &str) -> (&str, &[u8]) {
    match path.rsplit_once('/') {
        Some((parent, name)) => (parent, name.as_bytes()),
        None => ("", path.as_bytes()),
    }
}

fn number<T>(result: Result<T, Errno>) -> Found<T> {
    result.map_err(|errno| errno.0)
}

impl Sides<'_> {
    fn ino(&self, path: &str) -> Found<u64> {
        let mut at = Model::ROOT;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let entry = number(self.fs.lookup(at, name.as_bytes()))?;
            self.fs.forget(entry.ino, 1);
            at = entry.ino;
        }
        Ok(at)
    }

    fn id(&self, path: &str) -> Found<Id> {
        let names = path.split('/').filter(|name| !name.is_empty());
        names.into_iter().try_fold(Model::ROOT, |at, name| self.model.lookup(at, name.as_bytes()))
    }

    /// A node that both sides made.
    fn made(&mut self, model: Found<Id>, real: Result<Entry, Errno>) -> Result<Found<()>, Disagreement> {
        if let (Ok(id), Ok(entry)) = (&model, &real) {
            self.fs.forget(entry.ino, 1);
            self.inos.insert(*id, entry.ino);
        }
        agree(model.map(|_| ()), number(real).map(|_| ()))
    }

    /// Does it on both sides.
    ///
    /// # Errors
    /// They answered differently.
    pub fn apply(&mut self, op: Op) -> Result<Promise, Disagreement> {
        let mut promise = if self.always { Promise::All } else { Promise::None };
        let root = Caller::ROOT;
        match op {
            Op::Create(path) | Op::Mkdir(path) | Op::Symlink(path, _) => {
                let (parent, name) = split(path);
                let (id, ino) = (self.id(parent), self.ino(parent));
                let (Ok(id), Ok(ino)) = (id, ino) else { return agree(id, ino).map(|_| promise) };
                let (model, real) = match op {
                    Op::Create(_) => (
                        self.model.create_file(id, name, 0o644),
                        self.fs.mknod(root, ino, name, 0o100_644, 0),
                    ),
                    Op::Mkdir(_) => {
                        (self.model.mkdir(id, name, 0o755), self.fs.mkdir(root, ino, name, 0o755))
                    }
                    Op::Symlink(_, length) => {
                        let target = vec![b'a' + (length % 26) as u8; length];
                        (self.model.symlink(id, name, &target), self.fs.symlink(root, ino, name, &target))
                    }
                    _ => unreachable!("these three"),
                };
                self.made(model, real)?.ok();
            }
            Op::Link(from, to) => {
                let (parent, name) = split(to);
                let model = self.id(from).and_then(|id| self.model.link(id, self.id(parent)?, name));
                let real = self.ino(from).and_then(|ino| {
                    let entry = number(self.fs.link(ino, self.ino(parent)?, name))?;
                    self.fs.forget(entry.ino, 1);
                    Ok(())
                });
                agree(model, real)?.ok();
            }
            Op::Unlink(path) | Op::Rmdir(path) => {
                let (parent, name) = split(path);
                let directory = matches!(op, Op::Rmdir(_));
                let model = self.id(parent).and_then(|id| match directory {
                    true => self.model.rmdir(id, name),
                    false => self.model.unlink(id, name),
                });
                let real = self.ino(parent).and_then(|ino| match directory {
                    true => number(self.fs.rmdir(ino, name)),
                    false => number(self.fs.unlink(ino, name)),
                });
                agree(model, real)?.ok();
            }
            Op::Rename(from, to, how) => {
                let ((from, name), (to, new_name)) = (split(from), split(to));
                let model =
                    self.id(from).and_then(|from| self.model.rename(from, name, self.id(to)?, new_name, how));
                let flags = match how {
                    Rename::Replace => 0,
                    Rename::NoReplace => RENAME_NOREPLACE,
                    Rename::Exchange => RENAME_EXCHANGE,
                };
                let real = self
                    .ino(from)
                    .and_then(|from| number(self.fs.rename(from, name, self.ino(to)?, new_name, flags)));
                agree(model, real)?.ok();
            }
            Op::Write(path, at, length) => {
                let data = self.draw.bytes(length);
                let model = self.id(path).and_then(|id| {
                    let at = match at {
                        At::Byte(at) => at,
                        At::End => self.model.content(id)?.len(),
                    };
                    self.model.write(id, at, &data)
                });
                let real = self.ino(path).and_then(|ino| {
                    let at = match at {
                        At::Byte(at) => at as u64,
                        At::End => number(self.fs.getattr(ino))?.size,
                    };
                    number(self.fs.write(ino, at, &data, false)).map(|_| ())
                });
                agree(model, real)?.ok();
            }
            Op::Truncate(path, size) => {
                let model = self.id(path).and_then(|id| self.model.set_size(id, size));
                let change = SetAttr { size: Some(size as u64), ..SetAttr::default() };
                let real = self.ino(path).and_then(|ino| number(self.fs.setattr(ino, &change)).map(|_| ()));
                agree(model, real)?.ok();
            }
            Op::Allocate(path, range, offset, length) => {
                let model = self.id(path).and_then(|id| match range {
                    Range::KeepSize => self.model.content(id).map(|_| ()),
                    Range::Allocate => self.model.grow(id, offset + length),
                    Range::Punch => self.model.zero(id, offset, length),
                    Range::Zero => {
                        self.model.zero(id, offset, length)?;
                        self.model.grow(id, offset + length)
                    }
                });
                let mode = match range {
                    Range::Allocate => Fallocate::Allocate { keep_size: false },
                    Range::KeepSize => Fallocate::Allocate { keep_size: true },
                    Range::Punch => Fallocate::PunchHole,
                    Range::Zero => Fallocate::ZeroRange { keep_size: false },
                };
                let real = self.ino(path).and_then(|ino| {
                    number(self.fs.fallocate(ino, mode, offset as u64, length as u64, false)).map(|_| ())
                });
                agree(model, real)?.ok();
            }
            Op::SetXattr(path, length) => {
                let value = self.draw.bytes(length);
                let model = self.id(path).and_then(|id| self.model.set_xattr(id, b"user.new", &value));
                let real =
                    self.ino(path).and_then(|ino| number(self.fs.setxattr(ino, b"user.new", &value, 0)));
                agree(model, real.map(|_| ()))?.ok();
            }
            Op::RemoveXattr(path) => {
                let model = self.id(path).and_then(|id| self.model.remove_xattr(id, b"user.base"));
                let real = self.ino(path).and_then(|ino| number(self.fs.removexattr(ino, b"user.base")));
                agree(model, real.map(|_| ()))?.ok();
            }
            Op::Chmod(path) => {
                let model = self.id(path).and_then(|id| self.model.chmod(id, 0o700));
                let change = SetAttr { mode: Some(0o700), ..SetAttr::default() };
                let real = self.ino(path).and_then(|ino| number(self.fs.setattr(ino, &change)).map(|_| ()));
                agree(model, real)?.ok();
            }
            Op::Repeat(from, to) => {
                let bytes = self.id(from).and_then(|from| Ok(self.model.content(from)?.to_vec()));
                let model = bytes.clone().and_then(|bytes| {
                    let to = self.id(to)?;
                    if bytes.is_empty() { Ok(()) } else { self.model.write(to, 0, &bytes) }
                });
                let real = self.ino(from).and_then(|_| {
                    let to = self.ino(to)?;
                    match &bytes {
                        Ok(bytes) if !bytes.is_empty() => {
                            number(self.fs.write(to, 0, bytes, false)).map(|_| ())
                        }
                        _ => Ok(()),
                    }
                });
                agree(model, real)?.ok();
            }
            Op::Copy(from, to, at, length) => {
                let model = self.id(from).and_then(|from| {
                    let content = self.model.content(from)?;
                    let bytes = content[..length.min(content.len())].to_vec();
                    let to = self.id(to)?;
                    if bytes.is_empty() { Ok(()) } else { self.model.write(to, at, &bytes) }
                });
                let real = self.ino(from).and_then(|from| {
                    let to = self.ino(to)?;
                    number(self.fs.copy_file_range(from, 0, to, at as u64, length as u64))
                });
                agree(model, real)?.ok();
            }
            Op::Set(name, value) => {
                (self.set)(name, value).map_err(|text| Disagreement { text, errno: EIO })?;
            }
            Op::TmpfileLink(path) => self.tmpfile_link(path)?,
            Op::WriteUnlinked(path) => self.write_unlinked(path)?,
            Op::Fsync(path) | Op::Fdatasync(path) => {
                let (id, ino) = (self.id(path), self.ino(path));
                if let Ok(ino) = ino {
                    let synced = self.fs.fsync(ino);
                    synced.map_err(|errno| Disagreement::refused("fsync", errno))?;
                    if !self.always {
                        promise = Promise::Node(ino);
                    }
                }
                agree(id.map(|_| ()), ino.map(|_| ()))?.ok();
            }
            Op::Sync => {
                let synced = self.fs.syncfs();
                synced.map_err(|errno| Disagreement::refused("sync", errno))?;
                promise = Promise::All;
            }
            Op::Wait => (self.wait)(),
            Op::Room => {
                (self.room)().map_err(|text| Disagreement { text, errno: EIO })?;
                promise = Promise::All;
            }
            Op::Interval => {
                let looked = (self.interval)().map_err(|text| Disagreement { text, errno: EIO })?;
                if looked.is_some() {
                    promise = Promise::All;
                }
            }
        }
        Ok(promise)
    }

    fn tmpfile_link(&mut self, path: Path) -> Result<(), Disagreement> {
        let (parent, name) = split(path);
        let data = self.draw.bytes(6000);
        let (Ok(above), Ok(directory)) = (self.id(parent), self.ino(parent)) else { return Ok(()) };
        let id = self.model.create_unnamed(above, 0o600);
        let entry = self.fs.tmpfile(Caller::ROOT, directory, 0o600);
        let (Ok(id), Ok(entry)) = (id, &entry) else {
            return agree(id.map(|_| ()), number(entry).map(|_| ())).map(|_| ());
        };
        self.inos.insert(id, entry.ino);
        let model = self.model.write(id, 0, &data);
        agree(model, number(self.fs.write(entry.ino, 0, &data, false)).map(|_| ()))?.ok();
        let model = self.model.link(id, above, name);
        let real = number(self.fs.link(entry.ino, directory, name));
        if real.is_ok() {
            self.fs.forget(entry.ino, 1);
        }
        agree(model, real.map(|_| ()))?.ok();
        self.model.close(id);
        self.fs.forget(entry.ino, 1);
        Ok(())
    }

    fn write_unlinked(&mut self, path: Path) -> Result<(), Disagreement> {
        let (Ok(id), Ok(ino)) = (self.id(path), self.ino(path)) else { return Ok(()) };
        let (parent, name) = split(path);
        let (above, directory) = (self.id(parent), self.ino(parent));
        agree(self.model.open(id), number(self.fs.open(ino)))?.ok();
        let model = above.and_then(|above| self.model.unlink(above, name));
        let gone = agree(model, directory.and_then(|directory| number(self.fs.unlink(directory, name))))?;
        let data = self.draw.bytes(5000);
        if gone.is_ok() {
            let model = self.model.write(id, 3000, &data);
            // Nobody will see it, so it may be refused where there is no room.
            let real = number(self.fs.write(ino, 3000, &data, false)).map(|_| ());
            if real != Err(ENOSPC) {
                agree(model, real)?.ok();
            }
        }
        self.model.close(id);
        self.fs.release(ino);
        Ok(())
    }
}

fn agree<T, U>(model: Found<T>, real: Found<U>) -> Result<Found<()>, Disagreement> {
    match (model, real) {
        (Ok(_), Ok(_)) => Ok(Ok(())),
        (Err(model), Err(real)) if model == real => Ok(Err(model)),
        (model, real) => {
            let (model, real) = (model.err().unwrap_or(0), real.err().unwrap_or(0));
            Err(Disagreement { text: format!("errno {real}, the model says {model}"), errno: real })
        }
    }
}
