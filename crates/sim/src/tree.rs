//! A file system as seen from outside, in a form in which two of them can be compared.

use std::collections::BTreeMap;
use std::fmt;

use steadfast_model::{Id, Kind, Model};
use steadfast_posix::{Caller, Errno, FileSystem, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

/// Kind and content of a node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Shape {
    /// A file and its content.
    File(Vec<u8>),
    /// A directory: names and the numbers they lead to.
    Directory(BTreeMap<Vec<u8>, u64>),
    /// A symbolic link.
    Link(Vec<u8>),
}

/// A node.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Node {
    /// Its kind and content.
    pub shape: Shape,
    /// Permissions.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// All nodes that the root leads to, by their numbers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tree {
    /// The nodes.
    pub nodes: BTreeMap<u64, Node>,
}

/// Why a tree could not be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Unreadable {
    /// Number of the node.
    pub ino: u64,
    /// The operation tried.
    pub what: &'static str,
    /// Its errno.
    pub errno: i32,
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of inode {} gives errno {}", self.what, self.ino, self.errno)
    }
}

impl Tree {
    /// Of a file system: every byte, name and attribute is read.
    ///
    /// # Errors
    /// The part that could not be read.
    pub fn of(fs: &FileSystem) -> Result<Tree, Unreadable> {
        let mut tree = Tree::default();
        let mut waiting = vec![Model::ROOT];
        while let Some(ino) = waiting.pop() {
            if tree.nodes.contains_key(&ino) {
                continue;
            }
            let node = node_of(fs, ino)?;
            if let Shape::Directory(entries) = &node.shape {
                waiting.extend(entries.values());
            }
            tree.nodes.insert(ino, node);
        }
        Ok(tree)
    }

    /// Of a file system on devices with faults: what can be read of it. A directory that cannot be
    /// listed and a file that cannot be read are left out.
    #[must_use]
    pub fn readable(fs: &FileSystem) -> Tree {
        let mut tree = Tree::default();
        let mut waiting = vec![Model::ROOT];
        while let Some(ino) = waiting.pop() {
            if tree.nodes.contains_key(&ino) {
                continue;
            }
            if let Ok(node) = node_of(fs, ino) {
                if let Shape::Directory(entries) = &node.shape {
                    waiting.extend(entries.values());
                }
                tree.nodes.insert(ino, node);
            }
        }
        tree
    }

    /// Whether each node is one that the node of this number was in one of `times`.
    ///
    /// # Errors
    /// The first that never was.
    pub fn is_part_of(&self, times: &[Tree]) -> Result<(), String> {
        for (ino, node) in &self.nodes {
            if !times.iter().any(|tree| tree.nodes.get(ino) == Some(node)) {
                return Err(format!("inode {ino} was never {}", brief(node)));
            }
        }
        Ok(())
    }

    /// Of a model, as it looks when all uses have ended. `inos` gives the numbers that the real
    /// stack chose.
    #[must_use]
    pub fn of_model(model: &Model, inos: &BTreeMap<Id, u64>) -> Tree {
        let mut model = model.clone();
        model.close_all();
        let node = |id: Id| {
            let node = model.node(id).expect("listed");
            let shape = match &node.kind {
                Kind::File(content) => Shape::File(content.clone()),
                Kind::Symlink(target) => Shape::Link(target.clone()),
                Kind::Directory { entries, .. } => {
                    Shape::Directory(entries.iter().map(|(name, id)| (name.clone(), inos[id])).collect())
                }
            };
            (inos[&id], Node { shape, mode: node.mode, nlink: model.nlink(id), xattrs: node.xattrs.clone() })
        };
        Tree { nodes: model.ids().map(node).collect() }
    }

    /// Equal for equal trees.
    #[must_use]
    pub fn print(&self) -> [u8; 32] {
        let mut text = Vec::new();
        for (ino, node) in &self.nodes {
            let shape = match &node.shape {
                Shape::File(content) => steadfast_crypto::hash(content),
                shape => steadfast_crypto::hash(format!("{shape:?}").as_bytes()),
            };
            text.extend_from_slice(&ino.to_le_bytes());
            text.extend_from_slice(&shape);
            text.extend_from_slice(
                format!("{} {} {} {:?}", brief(node), node.mode, node.nlink, node.xattrs).as_bytes(),
            );
        }
        steadfast_crypto::hash(&text)
    }

    /// Names that lead to a node.
    #[must_use]
    pub fn names_of(&self, ino: u64) -> Vec<(u64, Vec<u8>)> {
        let mut names = Vec::new();
        for (directory, node) in &self.nodes {
            if let Shape::Directory(entries) = &node.shape {
                let here = entries.iter().filter(|(_, to)| **to == ino);
                names.extend(here.map(|(name, _)| (*directory, name.clone())));
            }
        }
        names
    }

    /// How another tree differs, in a few lines.
    #[must_use]
    pub fn difference(&self, other: &Tree) -> String {
        let mut lines = Vec::new();
        let numbers: std::collections::BTreeSet<u64> =
            self.nodes.keys().chain(other.nodes.keys()).copied().collect();
        for ino in numbers {
            match (self.nodes.get(&ino), other.nodes.get(&ino)) {
                (Some(node), None) => lines.push(format!("inode {ino}: {} is not there", brief(node))),
                (None, Some(node)) => lines.push(format!("inode {ino}: {} is there", brief(node))),
                (Some(one), Some(two)) if one != two => {
                    let mut line = format!("inode {ino}: {} instead of {}", brief(two), brief(one));
                    if let (Shape::File(one), Shape::File(two)) = (&one.shape, &two.shape)
                        && let Some(at) = one.iter().zip(two).position(|(one, two)| one != two)
                    {
                        line += &format!(", first other byte at {at}");
                    }
                    lines.push(line);
                }
                _ => {}
            }
        }
        lines.truncate(8);
        lines.join("; ")
    }
}

/// Reads one node.
fn node_of(fs: &FileSystem, ino: u64) -> Result<Node, Unreadable> {
    let failed = |what| move |errno: Errno| Unreadable { ino, what, errno: errno.0 };
    let attr = fs.getattr(ino).map_err(failed("getattr"))?;
    let shape = match attr.mode & S_IFMT {
        S_IFREG => {
            let size = usize::try_from(attr.size).expect("files are small");
            let mut content = vec![0xee; size + 1];
            let count = fs.read(ino, 0, &mut content).map_err(failed("read"))?;
            content.truncate(count);
            if count != size {
                return Err(Unreadable { ino, what: "read up to the size", errno: 0 });
            }
            Shape::File(content)
        }
        S_IFDIR => {
            let mut entries = BTreeMap::new();
            let taken = fs.readdir(ino, 0, |entry| {
                if entry.name != b"." && entry.name != b".." {
                    entries.insert(entry.name, entry.ino);
                }
                true
            });
            taken.map_err(failed("readdir"))?;
            for (name, to) in &entries {
                let found = fs.lookup(ino, name).map_err(failed("lookup"))?;
                fs.forget(found.ino, 1);
                if found.ino != *to {
                    return Err(Unreadable { ino, what: "lookup as listed", errno: 0 });
                }
            }
            Shape::Directory(entries)
        }
        S_IFLNK => Shape::Link(fs.readlink(ino).map_err(failed("readlink"))?),
        _ => return Err(Unreadable { ino, what: "type", errno: 0 }),
    };
    let mut xattrs = BTreeMap::new();
    for name in fs.listxattr(Caller::ROOT, ino).map_err(failed("listxattr"))? {
        let value = fs.getxattr(ino, &name).map_err(failed("getxattr"))?;
        xattrs.insert(name, value);
    }
    Ok(Node { shape, mode: attr.mode & 0o7777, nlink: attr.nlink, xattrs })
}

fn brief(node: &Node) -> String {
    let shape = match &node.shape {
        Shape::File(content) => {
            let hash = steadfast_crypto::hash(content);
            format!("a file of {} bytes {:02x}{:02x}", content.len(), hash[0], hash[1])
        }
        Shape::Link(target) => format!("a link of {} bytes", target.len()),
        Shape::Directory(entries) => {
            let names = entries.iter().map(|(name, to)| format!("{} {to}", String::from_utf8_lossy(name)));
            format!("a directory of [{}]", names.collect::<Vec<_>>().join(", "))
        }
    };
    format!("{shape} mode {:o} nlink {} xattrs {}", node.mode, node.nlink, node.xattrs.len())
}
