//! Devices that autoreplace or autoexpand could not use: they are tried again, less and less often.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use steadfast_device::Medium;

/// Most looks between two tries: a minute.
const RESTS_MAX: u32 = 30;

/// A device that was refused. The cause may go away: another process had it open, another device
/// was being resilvered, it was too small.
struct Refused {
    /// The file or disk at the path then.
    medium: Medium,
    /// The printed reason, which is not printed twice.
    said: String,
    /// Looks until the next try, and looks between the last two tries.
    left: u32,
    rests: u32,
}

/// Refused devices by path.
#[derive(Default)]
pub(super) struct DeviceBackoff(BTreeMap<PathBuf, Refused>);

impl DeviceBackoff {
    /// True if a refused device is not to be tried at this look.
    pub fn is_resting(&mut self, path: &Path, medium: Medium) -> bool {
        match self.0.get_mut(path) {
            Some(known) if known.medium == medium && known.left > 0 => {
                known.left -= 1;
                true
            }
            _ => false,
        }
    }

    /// Notes that a device was refused. True if the reason is a new one, to be printed.
    pub fn refuse(&mut self, path: PathBuf, medium: Medium, said: &str) -> bool {
        let before = self.0.remove(&path).filter(|before| before.medium == medium);
        let is_new = before.as_ref().is_none_or(|before| before.said != said);
        let rests = before.map_or(0, |before| (2 * before.rests).clamp(1, RESTS_MAX));
        self.0.insert(path, Refused { medium, said: said.to_owned(), left: rests, rests });
        is_new
    }

    /// Forgets a device that could be used.
    pub fn forget(&mut self, path: &Path) {
        self.0.remove(path);
    }
}
