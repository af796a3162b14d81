//! A tree of files as one line an object, so that two walks can be compared and the first
//! difference named.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::random::mix;

/// Path below the root to everything about the object that must survive: type, mode, owner, links,
/// size, times, extended attributes, target, content.
pub type Tree = BTreeMap<Vec<u8>, String>;

/// Walks `root`. Access times are left out: reading changes them.
///
/// # Errors
/// Files that cannot be read.
pub fn walk(root: &Path) -> io::Result<Tree> {
    let mut tree = Tree::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(root).unwrap_or(&path).as_os_str().as_bytes().to_vec();
            let meta = fs::symlink_metadata(&path)?;
            let kind = meta.file_type();
            let content = if kind.is_file() {
                format!("{:016x}", content(&path, meta.size())?)
            } else if kind.is_symlink() {
                fs::read_link(&path)?.display().to_string()
            } else {
                String::new()
            };
            // How many bytes a directory has is nobody's promise.
            let size = if kind.is_dir() { 0 } else { meta.size() };
            tree.insert(
                name,
                format!(
                    "mode {:o} owner {}:{} links {} rdev {} size {size} mtime {}.{:09} ctime {}.{:09} xattrs {:016x} is {content}",
                    meta.mode(),
                    meta.uid(),
                    meta.gid(),
                    meta.nlink(),
                    meta.rdev(),
                    meta.mtime(),
                    meta.mtime_nsec(),
                    meta.ctime(),
                    meta.ctime_nsec(),
                    xattrs(&path)?,
                ),
            );
            if kind.is_dir() {
                waiting.push(path);
            }
        }
    }
    Ok(tree)
}

/// Behind it stand extended attributes, which NFS version 3 does not carry.
const XATTRS: &str = " xattrs ";

/// A tree as lines, without extended attributes: what an NFS client can see of it.
pub fn text(tree: &Tree) -> String {
    let line = |(name, about): (&Vec<u8>, &String)| {
        let (head, tail) = about.split_once(XATTRS).unwrap_or((about, ""));
        let content = tail.split_once(' ').map_or("", |(_, content)| content);
        format!("{} {head} {content}\n", name.escape_ascii())
    };
    tree.iter().map(line).collect()
}

/// Lines of [`text`] without the times of folders.
pub fn without_times_of_folders(text: &str) -> String {
    let line = |line: &str| {
        // Five octal digits, of which the first is S_IFDIR's.
        let mode = line.split_once(" mode ").and_then(|(_, behind)| behind.split(' ').next());
        let is_folder = mode.is_some_and(|mode| mode.len() == 5 && mode.starts_with('4'));
        match line.split_once(" mtime ").filter(|_| is_folder) {
            Some((head, _)) => format!("{head}\n"),
            None => format!("{line}\n"),
        }
    };
    text.lines().map(line).collect()
}

/// `steadfast lab tree-of DIR`: prints the tree below it, and returns the exit status.
pub(crate) fn print(root: &Path) -> i32 {
    match walk(root) {
        Ok(tree) => {
            print!("{}", text(&tree));
            0
        }
        Err(error) => {
            eprintln!("steadfast lab: {}: {error}", root.display());
            1
        }
    }
}

/// The first difference between two walks, in words.
pub fn difference(before: &Tree, after: &Tree) -> Option<String> {
    let shown = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    for (name, about) in before {
        match after.get(name) {
            None => return Some(format!("{} is gone", shown(name))),
            Some(now) if now != about => {
                return Some(format!("{}: before {about}; after {now}", shown(name)));
            }
            Some(_) => {}
        }
    }
    after.keys().find(|name| !before.contains_key(*name)).map(|name| format!("{} appeared", shown(name)))
}

/// A checksum of what is not zero, with its place: where a file system keeps holes is its own
/// affair. It tells accidents, not adversaries.
fn content(path: &Path, size: u64) -> io::Result<u64> {
    let file = File::open(path)?;
    let mut buffer = vec![0u8; 1 << 20];
    let (mut sum, mut offset) = (size, 0u64);
    while offset < size {
        offset = match rustix::fs::seek(&file, SeekFrom::Data(offset)) {
            Ok(data) => data / 8 * 8,
            Err(Errno::NXIO) => break,
            // No holes are told here: everything is read.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => offset,
            Err(error) => return Err(error.into()),
        };
        // A short read in the middle would shift the words, so each round fills the buffer or ends
        // the file.
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64)? {
                0 => break,
                count => filled += count,
            }
        }
        for (at, chunk) in buffer[..filled].chunks(8).enumerate() {
            let mut word = [0u8; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            let word = u64::from_le_bytes(word);
            if word != 0 {
                sum = sum.wrapping_add(mix(word ^ mix(offset + at as u64 * 8)));
            }
        }
        if filled < buffer.len() {
            break;
        }
        offset += filled as u64;
    }
    Ok(mix(sum))
}

fn xattrs(path: &Path) -> io::Result<u64> {
    let mut names = vec![0u8; 65_536];
    let length = match rustix::fs::llistxattr(path, &mut names) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => return Ok(0),
        Err(error) => return Err(error.into()),
    };
    let mut sum = 0u64;
    let mut value = vec![0u8; 65_536];
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = CString::new(name)?;
        let size = rustix::fs::lgetxattr(path, &name, &mut value)?;
        let mut own = 0u64;
        for byte in name.as_bytes().iter().chain(&value[..size]) {
            own = mix(own ^ u64::from(*byte));
        }
        // The order of the list is nobody's promise.
        sum = sum.wrapping_add(own);
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_a_changed_mode_and_a_lost_name_are_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("d")).unwrap();
        fs::write(dir.path().join("d/f"), "abc").unwrap();
        let before = walk(dir.path()).unwrap();
        assert_eq!(difference(&before, &walk(dir.path()).unwrap()), None);
        fs::write(dir.path().join("d/f"), "abd").unwrap();
        assert!(difference(&before, &walk(dir.path()).unwrap()).unwrap().starts_with("d/f: before"));
        fs::remove_file(dir.path().join("d/f")).unwrap();
        let after = walk(dir.path()).unwrap();
        assert!(difference(&after, &before).unwrap().contains("d"));
        assert_eq!(after.len(), 1);
    }

    #[test]
    fn lines_have_everything_but_attributes() {
        let about = "mode 644 mtime 1.0 ctime 2.0 xattrs 00ff is abc";
        let tree = Tree::from([(b"a\nb".to_vec(), about.to_owned())]);
        assert_eq!(text(&tree), "a\\nb mode 644 mtime 1.0 ctime 2.0 is abc\n");
    }

    #[test]
    fn times_of_folders_alone_are_left_out() {
        let text =
            "d mode 41777 size 0 mtime 1.0 ctime 2.0 is \nf mode 100644 size 3 mtime 1.0 ctime 2.0 is abc\n";
        let rest = "d mode 41777 size 0\nf mode 100644 size 3 mtime 1.0 ctime 2.0 is abc\n";
        assert_eq!(without_times_of_folders(text), rest);
    }

    #[test]
    fn length_counts_even_where_the_bytes_are_zeros() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&a, [0; 8]).unwrap();
        fs::write(&b, [0; 9]).unwrap();
        assert_ne!(content(&a, 8).unwrap(), content(&b, 9).unwrap());
    }
}
