//! The pools to import again at the next start, with the paths of their devices.
//!
//! Written anew beside the old file and renamed over it, so that a crash leaves the old or the new list. A pool whose
//! devices are missing stays in the list until it is exported: being forgotten is the operator's decision.

use crate::refusal::{Code, Refusal};
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
}

#[derive(Serialize, Deserialize)]
struct Contents {
    version: u32,
    pools: Vec<CachedPool>,
}

/// Reads the list. A file that is not there is an empty list.
///
/// # Errors
/// [`Code::FileIo`] if it cannot be read or understood; the file is left as it is.
pub fn load(path: &Path) -> Result<Vec<CachedPool>, Refusal> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(refuse(path, "read", &error.to_string())),
    };
    match serde_json::from_str::<Contents>(&text) {
        Ok(contents) if contents.version == VERSION => Ok(contents.pools),
        Ok(contents) => Err(refuse(path, "understood", &format!("it is of version {}", contents.version))),
        Err(error) => Err(refuse(path, "understood", &error.to_string())),
    }
}

/// Writes the list.
///
/// # Errors
/// [`Code::FileIo`]; the old list stays.
pub fn store(path: &Path, pools: &[CachedPool]) -> Result<(), Refusal> {
    let text = serde_json::to_string_pretty(&Contents { version: VERSION, pools: pools.to_vec() })
        .expect("a list of names and paths becomes JSON");
    write_beside(path, &text).map_err(|error| refuse(path, "written", &error.to_string()))
}

fn write_beside(path: &Path, text: &str) -> io::Result<()> {
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
    use super::*;

    #[test]
    fn the_list_comes_back_and_garbage_is_left_alone() {
        let folder = std::env::temp_dir().join(format!("steadfast-cachefile-{}", std::process::id()));
        let path = folder.join("deep/pools.json");
        assert_eq!(load(&path).unwrap(), []);
        let pool = CachedPool {
            name: "tank".into(),
            guid: u64::MAX,
            devices: vec!["/a.img".into()],
            readonly: true,
            altroot: None,
        };
        store(&path, std::slice::from_ref(&pool)).unwrap();
        assert_eq!(load(&path).unwrap(), [pool]);
        fs::write(&path, "{]").unwrap();
        assert_eq!(load(&path).unwrap_err().code, Code::FileIo);
        fs::write(&path, r#"{"version":7,"pools":[]}"#).unwrap();
        assert!(load(&path).unwrap_err().what.contains("version 7"));
        assert_eq!(fs::read_to_string(&path).unwrap(), r#"{"version":7,"pools":[]}"#);
        fs::remove_dir_all(&folder).unwrap();
    }
}
