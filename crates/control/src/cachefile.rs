//! The pools to import again at the next start, with the paths of their devices.
//!
//! The list is written to a new file, which is renamed over the old one: a crash leaves the old or
//! the new list. A pool whose devices are missing stays in the list until the operator exports it.
//! Verbs and upkeep write the list, one at a time; each writes the state at its turn.

use crate::api::{VdevClass, VdevKind};
use crate::refusal::{Code, Refusal};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const VERSION: u32 = 1;

/// One pool as it was imported.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct CachedPool {
    /// Name.
    pub name: String,
    /// Number that identifies it.
    pub guid: u64,
    /// Its devices.
    pub devices: Vec<PathBuf>,
    /// Imported without the right to write.
    #[serde(default)]
    pub readonly: bool,
    /// Prefix of its mountpoints.
    #[serde(default)]
    pub altroot: Option<PathBuf>,
    /// Its groups, for a report if no label can be read. Lists of older versions lack them.
    #[serde(default)]
    pub vdevs: Vec<CachedVdev>,
}

/// A group of devices as status shows it, or a single device.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct CachedVdev {
    /// Name of the group in status; empty for a single device.
    pub group: String,
    /// Number of the group, or of the device.
    pub guid: u64,
    /// Use.
    pub class: VdevClass,
    /// Redundancy.
    pub kind: VdevKind,
    /// Its devices, each with its number.
    pub devices: Vec<(PathBuf, u64)>,
}

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    pools: Vec<CachedPool>,
}

/// The list of a daemon.
#[derive(Debug)]
pub struct Cachefile {
    path: PathBuf,
    turn: Mutex<()>,
}

impl Cachefile {
    /// The list in a file.
    #[must_use]
    pub fn new(path: &Path) -> Cachefile {
        Cachefile { path: path.to_owned(), turn: Mutex::new(()) }
    }

    /// Reads the list. A file that is not there is an empty list.
    ///
    /// # Errors
    /// [`Code::FileIo`] if it cannot be read or understood; the file is left as it is.
    pub fn load(&self) -> Result<Vec<CachedPool>, Refusal> {
        let path = &*self.path;
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(refuse(path, "read", &error.to_string())),
        };
        match serde_json::from_str::<Contents>(&text) {
            Ok(contents) if contents.version == VERSION => Ok(contents.pools),
            Ok(contents) => {
                Err(refuse(path, "understood", &format!("it is of version {}", contents.version)))
            }
            Err(error) => Err(refuse(path, "understood", &error.to_string())),
        }
    }

    /// Writes the list. `pools` is called in turn, so no older list overwrites a newer one.
    ///
    /// # Errors
    /// [`Code::FileIo`]; the old list stays.
    pub fn store(&self, pools: impl FnOnce() -> Vec<CachedPool>) -> Result<(), Refusal> {
        let _turn = self.turn.lock();
        let text = serde_json::to_string_pretty(&Contents { version: VERSION, pools: pools() })
            .expect("a list of names and paths becomes JSON");
        write_beside(&self.path, &text).map_err(|error| refuse(&self.path, "written", &error.to_string()))
    }
}

/// Writes a new file and renames it over the old one: a crash leaves the one or the other.
pub(crate) fn write_beside(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = path.with_extension("json.new");
    let mut file = File::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

fn refuse(path: &Path, verb: &str, why: &str) -> Refusal {
    let what = format!("the list of imported pools {} cannot be {verb}: {why}", path.display());
    Refusal::new(Code::FileIo, what).with("file", path.display())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A folder that goes with its test.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            Folder(std::env::temp_dir().join(format!("steadfast-cachefile-{name}-{}", std::process::id())))
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn pool(name: String) -> CachedPool {
        let devices = vec!["/a.img".into()];
        let vdevs = vec![CachedVdev {
            group: "raidz1-0".into(),
            guid: 7,
            class: VdevClass::Main,
            kind: VdevKind::Raidz1,
            devices: vec![("/a.img".into(), 8)],
        }];
        CachedPool { name, guid: u64::MAX, devices, readonly: true, altroot: None, vdevs }
    }

    #[test]
    fn the_list_comes_back_and_garbage_is_left_alone() {
        let folder = Folder::new("life");
        let path = folder.0.join("deep/pools.json");
        let list = Cachefile::new(&path);
        assert_eq!(list.load().unwrap(), []);
        list.store(|| vec![pool("tank".into())]).unwrap();
        assert_eq!(list.load().unwrap(), [pool("tank".into())]);
        let old = r#"{"version":1,"pools":[{"name":"tank","guid":7,"devices":["/a.img"]}]}"#;
        fs::write(&path, old).unwrap();
        assert_eq!(list.load().unwrap()[0].vdevs, [], "older lists know of no groups");
        fs::write(&path, "{]").unwrap();
        assert_eq!(list.load().unwrap_err().code, Code::FileIo);
        fs::write(&path, r#"{"version":7,"pools":[]}"#).unwrap();
        assert!(list.load().unwrap_err().what.contains("version 7"));
        assert_eq!(fs::read_to_string(&path).unwrap(), r#"{"version":7,"pools":[]}"#);
    }

    #[test]
    fn who_writes_it_at_once_with_others_leaves_what_is_so_last() {
        let folder = Folder::new("at-once");
        let list = Cachefile::new(&folder.0.join("pools.json"));
        let now = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10 {
                        let mine = now.fetch_add(1, Ordering::SeqCst) + 1;
                        // Of another length each time: nothing of a longer one is to be left.
                        let name = |count: usize| "x".repeat(1 + count * 37 % 5000);
                        list.store(|| vec![pool(name(now.load(Ordering::SeqCst)))]).unwrap();
                        let stored = list.load().unwrap()[0].name.len();
                        let later =
                            (mine..=now.load(Ordering::SeqCst)).any(|count| name(count).len() == stored);
                        assert!(later, "{stored} bytes are older than what was changed before it was stored");
                    }
                });
            }
        });
    }
}
