//! The target of an experiment: it makes the volumes that an experiment names, by commands, and
//! takes them away.

use std::collections::BTreeMap;
use std::path::PathBuf;

use steadfast_lab_report::report::{self, Space};

use crate::error::Error;

/// A volume as the source reports make it: a pool on an image file, a property set on it, perhaps a
/// dataset in it.
#[derive(Clone, Debug)]
pub struct Volume {
    /// Key of the arm it serves.
    pub arm: &'static str,
    /// Name of the pool; the image file is named like it.
    pub pool: &'static str,
    /// Properties set on the pool after it is made.
    pub set: &'static [&'static str],
    /// A dataset in the pool, and where the anchor then lies.
    pub dataset: Option<Dataset>,
}

/// A dataset below a pool.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// Name below the pool.
    pub name: &'static str,
    /// Properties it is made with.
    pub properties: &'static [&'static str],
    /// Passphrase, typed on standard input.
    pub passphrase: Option<&'static str>,
}

impl Volume {
    /// Name of the file system that holds the anchor: `zfs_encrypt/encrypted`.
    pub fn file_system(&self) -> String {
        match &self.dataset {
            Some(dataset) => format!("{}/{}", self.pool, dataset.name),
            None => self.pool.to_owned(),
        }
    }
}

/// Something that can be measured.
pub trait Target {
    /// Description for the report.
    fn describe(&self) -> String;

    /// Names of the arms, long and short, where they are not what the experiment says: somebody
    /// else's directories.
    fn names(&self) -> Option<Vec<(String, String)>> {
        None
    }

    /// Makes a volume and returns the directory that the anchor maps to.
    fn prepare(&mut self, volume: &Volume) -> Result<PathBuf, Error>;

    /// Makes everything written durable, so that space is what it will stay.
    fn settle(&mut self, volume: &Volume) -> Result<(), Error>;

    /// Space the volume takes.
    fn space(&mut self, volume: &Volume) -> Result<Space, Error>;

    /// How the used space is measured, in words.
    fn used_how(&self) -> &'static str;

    /// Processes that do the work of the file system.
    fn processes(&mut self) -> Vec<u32>;

    /// Image files, by pool.
    fn images(&self) -> BTreeMap<String, PathBuf> {
        BTreeMap::new()
    }

    /// Commands run so far.
    fn history(&self) -> Vec<report::Command>;

    /// Takes everything away that was made. Called in every case; called twice, the second call
    /// does nothing.
    fn clean_up(&mut self) -> Result<(), Error>;

    /// Leaves everything as it is, and says how to take it away by hand.
    fn keep(&mut self) -> String;
}
