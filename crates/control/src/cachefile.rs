//! The pools to import again at the next start, with the paths of their devices.
//!
//! The list is written to a new file, which is renamed over the old one: a crash leaves the old or
//! the new list. A pool whose devices are missing stays in the list until the operator exports it.
//! Verbs and upkeep write the list, one at a time; each writes the state at its turn.
//!
//! A pool with `cachefile=FILE` stands in that file instead, for `zpool import -c FILE`.

use crate::api::{VdevClass, VdevKind};
use crate::refusal::{Code, Refusal};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// ZFS's own list. A pool that is to stand there stands in the daemon's own list too.
const OF_ZFS: &str = "/etc/zfs/zpool.cache";
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

/// The list in which a pool stands: the property `cachefile`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub enum Listed {
    /// The daemon's own list: the pool is imported at the next start.
    #[default]
    Own,
    /// In none.
    Nowhere,
    /// In a file for `zpool import -c`.
    In(PathBuf),
}

impl Listed {
    /// Reads a value of `cachefile` that the property's table accepts.
    #[must_use]
    pub fn of(value: Option<&str>) -> Listed {
        match value {
            None | Some("" | "-") => Listed::Own,
            Some("none") => Listed::Nowhere,
            Some(path) => Listed::In(path.into()),
        }
    }

    /// The value as it is shown; `None` for the default.
    #[must_use]
    pub fn shown(&self) -> Option<String> {
        match self {
            Listed::Nowhere => Some("none".to_owned()),
            Listed::In(path) if path != Path::new(OF_ZFS) => Some(path.display().to_string()),
            Listed::In(_) | Listed::Own => None,
        }
    }

    /// The file besides the daemon's own list.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        match self {
            Listed::In(path) => Some(path),
            Listed::Own | Listed::Nowhere => None,
        }
    }

    /// Is the pool imported at the next start?
    #[must_use]
    pub fn is_remembered(&self) -> bool {
        match self {
            Listed::Own => true,
            Listed::Nowhere => false,
            Listed::In(path) => path == Path::new(OF_ZFS),
        }
    }

    /// Refuses a file that a list cannot be written to: its folder is missing, or it holds
    /// something other than a list of ours.
    ///
    /// # Errors
    /// [`Code::FileIo`].
    pub fn check(&self) -> Result<(), Refusal> {
        let Some(path) = self.file() else { return Ok(()) };
        if !path.parent().is_some_and(Path::is_dir) {
            return Err(refuse(path, "written", "its folder does not exist"));
        }
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(refuse(path, "written", &error.to_string())),
            Ok(data) if data.is_file() && data.len() == 0 => Ok(()),
            Ok(data) if data.is_file() && Cachefile::new(path).load().is_ok() => Ok(()),
            Ok(_) => Err(refuse(path, "written", "it holds something else than such a list")),
        }
    }
}

/// Lists besides the daemon's own, which it has written.
#[derive(Debug, Default)]
pub struct OtherLists(Mutex<BTreeSet<PathBuf>>);

impl OtherLists {
    /// Writes each list anew of which the content has changed. A list without pools is removed.
    ///
    /// # Errors
    /// [`Code::FileIo`] for the first list that cannot be written.
    pub fn store(&self, pools: impl FnOnce() -> Vec<(PathBuf, CachedPool)>) -> Result<(), Refusal> {
        let mut written = self.0.lock();
        let pools = pools();
        written.extend(pools.iter().map(|(path, _)| path.clone()));
        let mut first = Ok(());
        written.retain(|path| {
            let listed = pools.iter().filter(|(file, _)| file == path).map(|(_, pool)| pool.clone());
            let listed: Vec<CachedPool> = listed.collect();
            let stored = Listed::In(path.clone()).check().and_then(|()| match listed.is_empty() {
                true => fs::remove_file(path).or_else(|error| match error.kind() {
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(refuse(path, "removed", &error.to_string())),
                }),
                false if Cachefile::new(path).load().is_ok_and(|old| old == listed) => Ok(()),
                false => Cachefile::new(path).store(|| listed.clone()),
            });
            if first.is_ok() {
                first = stored;
            }
            !listed.is_empty()
        });
        first
    }
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
    // Beside it: lists may differ in the extension only.
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
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
    fn lists_besides_the_own_one_come_and_go_with_their_pools() {
        let folder = Folder::new("others");
        fs::create_dir_all(&folder.0).unwrap();
        let (one, two) = (folder.0.join("cache.1"), folder.0.join("cache.2"));
        let lists = OtherLists::default();
        let at = |path: &Path, name: &str| (path.to_owned(), pool(name.into()));
        let names = |path: &Path| -> Vec<String> {
            Cachefile::new(path).load().unwrap().into_iter().map(|pool| pool.name).collect()
        };
        lists.store(|| vec![at(&one, "a"), at(&two, "b"), at(&one, "c")]).unwrap();
        assert_eq!((names(&one), names(&two)), (vec!["a".into(), "c".into()], vec!["b".into()]));
        lists.store(|| vec![at(&two, "a")]).unwrap();
        assert!(!one.exists(), "a list without pools is removed");
        assert_eq!(names(&two), ["a"]);
        lists.store(Vec::new).unwrap();
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0, "nothing is left");
        // Something of another program is neither written over nor removed.
        fs::write(&one, "precious").unwrap();
        for place in [one.clone(), folder.0.clone(), folder.0.join("absent/list")] {
            assert_eq!(Listed::In(place.clone()).check().unwrap_err().code, Code::FileIo, "{place:?}");
        }
        lists.store(|| vec![at(&one, "a")]).unwrap_err();
        lists.store(Vec::new).unwrap_err();
        assert_eq!(fs::read(&one).unwrap(), b"precious");
        fs::write(&two, "").unwrap();
        Listed::In(two).check().expect("an empty file holds nothing");
    }

    #[test]
    fn the_value_tells_whether_the_pool_is_imported_at_the_next_start() {
        let told = |value| (Listed::of(value).is_remembered(), Listed::of(value).shown());
        assert_eq!(told(None), (true, None));
        assert_eq!(told(Some("")), (true, None));
        assert_eq!(told(Some("none")), (false, Some("none".into())));
        assert_eq!(told(Some("/a/list")), (false, Some("/a/list".into())));
        assert_eq!(told(Some(OF_ZFS)), (true, None), "ZFS's name of the default");
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
