//! `zfs diff`.

use crate::api::{FsDiff, FsDiffEntry};
use crate::caller::Caller;
use crate::check::name_refusal;
use crate::engine::refuse;
use crate::engine::state::Engine;
use crate::engine::verb::Verb;
use crate::refusal::Refusal;
use steadfast_pool::{ChangeKind, FileChange};
use steadfast_property::{check_dataset_name, check_snapshot_name};

impl Verb for FsDiff {
    const IN_TURN: bool = false;

    fn check(&mut self) -> Result<(), Refusal> {
        check_snapshot_name(&self.base).map_err(name_refusal)?;
        match self.target.contains('@') {
            true => check_snapshot_name(&self.target),
            false => check_dataset_name(&self.target),
        }
        .map_err(name_refusal)
    }

    fn run(self, engine: &Engine, _: &Caller) -> Result<Vec<FsDiffEntry>, Refusal> {
        // Paths are those of the later moment: its file system may be a clone of the other's.
        let fs = self.target.split('@').next().unwrap_or_default();
        let held = engine.held(fs)?;
        let top = held.mounted_at(fs).map(|at| at.display().to_string()).unwrap_or_default();
        // A volume is one file, at its mountpoint.
        let is_volume = held.pool.datasets().dataset_info(fs).map_err(refuse::pool)?.volume.is_some();
        let path = |path: &[u8]| match is_volume {
            true => escaped(top.as_bytes()),
            false => escaped(&[top.trim_end_matches('/').as_bytes(), b"/", path].concat()),
        };
        let entry = |change: FileChange| FsDiffEntry {
            change: match change.kind {
                ChangeKind::Modified => "M",
                ChangeKind::Added => "+",
                ChangeKind::Removed => "-",
                ChangeKind::Renamed => "R",
            }
            .to_owned(),
            kind: match change.mode & 0o170_000 {
                0o040_000 => "/",
                0o120_000 => "@",
                0o010_000 => "|",
                0o140_000 => "=",
                0o020_000 => "C",
                0o060_000 => "B",
                _ => "F",
            }
            .to_owned(),
            path: path(&change.path),
            to: change.to.as_deref().map(path),
            links: change.links,
            time: format!("{:10}.{:09}", change.changed.seconds, change.changed.nanos),
        };
        let changes = held.pool.datasets().diff(&self.base, &self.target).map_err(refuse::pool)?;
        Ok(changes.into_iter().map(entry).collect())
    }
}

/// A path as text, byte for byte.
fn escaped(path: &[u8]) -> String {
    let mut text = String::new();
    for &byte in path {
        match byte {
            b'\\' | ..=b' ' | 0x7f.. => text.push_str(&format!("\\{byte:04o}")),
            _ => text.push(char::from(byte)),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_any_bytes_is_one_word() {
        assert_eq!(escaped(b"a b\n\\\xff\xc3\xa9~"), "a\\0040b\\0012\\0134\\0377\\0303\\0251~");
    }
}
