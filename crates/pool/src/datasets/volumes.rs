//! Volumes: datasets whose root is a regular file of a fixed size.
//! `docs/decisions/0098-volumes.md`.
//!
//! Every verb of datasets works on volumes in the same way. Only the size and the block size are
//! here, which are those of its root's inode.

use crate::datasets::state::Datasets;
use steadfast_dataset::InodeRecord;
use steadfast_format::{DatasetId, InodeId};
use steadfast_property::Local;
use steadfast_txg::AdmitKind;

use crate::core::error::{Error, Result};
use crate::datasets::dataset::NewKey;
use crate::datasets::table::Table;

/// Feature of pools with volumes.
pub(crate) const FEATURE: &str = "volumes";
/// The file that a volume is.
const ROOT_INODE: InodeId = InodeId(1);
/// Most bytes of a volume: those of a file.
const BYTES_MAX: u64 = i64::MAX as u64;

/// Specification of a new volume.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VolumeSpec {
    /// Its size: a multiple of its block.
    pub bytes: u64,
    /// Block size: a power of two from 4 KiB on.
    pub block_bytes: u32,
}

/// Figures of a volume; those that need its key are `None` without it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct VolumeInfo {
    /// Its size.
    pub bytes: Option<u64>,
    /// Block size.
    pub block_bytes: Option<u64>,
}

impl Datasets {
    /// Makes a volume; as [`Datasets::create_dataset`] otherwise.
    pub fn create_volume(
        &self,
        name: &str,
        props: Local,
        key: Option<NewKey>,
        spec: VolumeSpec,
    ) -> Result<DatasetId> {
        self.core.check_writable()?;
        self.core.need_feature(FEATURE)?;
        let block = u64::from(spec.block_bytes);
        if !spec.block_bytes.is_power_of_two()
            || block < 4096
            || spec.block_bytes > self.core.throttle.block_bytes_max
        {
            let most = self.core.throttle.block_bytes_max;
            return Err(Error::VolumeBlock { name: name.to_owned(), block, most });
        }
        check_bytes(name, spec.bytes, block)?;
        self.create_with(name, props, key, Some(spec))
    }

    /// Size and block of a volume.
    pub(crate) fn volume_info(&self, id: DatasetId) -> VolumeInfo {
        let shown = self.open_head(id).and_then(|head| match self.is_raw(id) {
            true => Ok(self.raw_view(id, vec![head])?.dataset),
            false => Ok(head),
        });
        let root = shown.and_then(|shown| Ok(shown.inode(ROOT_INODE)?.record()));
        match root {
            Ok(record) => VolumeInfo { bytes: Some(record.size), block_bytes: Some(block_of(&record)) },
            // Its key is not loaded, or it cannot be read: scrub and status tell more.
            Err(_) => VolumeInfo::default(),
        }
    }

    /// Figures of a volume at a snapshot; `None` for a file system's.
    pub fn snapshot_volume(&self, name: &str) -> Result<Option<VolumeInfo>> {
        let (id, _) = self.table.read().find_snapshot(name)?;
        if !self.is_volume(id) {
            return Ok(None);
        }
        let snapshot = name.split('@').nth(1).unwrap_or_default();
        let root = self.open_snapshot(id, snapshot).and_then(|s| Ok(s.dataset().inode(ROOT_INODE)?.record()));
        Ok(Some(root.map_or(VolumeInfo::default(), |record| VolumeInfo {
            bytes: Some(record.size),
            block_bytes: Some(block_of(&record)),
        })))
    }

    /// Makes a volume longer. Durable when it returns.
    pub fn grow_volume(&self, name: &str, bytes: u64) -> Result<()> {
        self.core.check_writable()?;
        let id = self.table.read().find(name)?;
        if !self.is_volume(id) {
            return Err(Error::NotVolume { name: name.to_owned() });
        }
        self.check_not_raw(id, name)?;
        let head = self.open_head(id)?;
        let root = head.inode(ROOT_INODE)?;
        let record = root.record();
        check_bytes(name, bytes, block_of(&record))?;
        if bytes < record.size {
            return Err(Error::VolumeShrinks { name: name.to_owned(), has: record.size, wanted: bytes });
        }
        let now = head.now();
        let op = head.begin(AdmitKind::Write)?;
        head.grow(&op, &root, bytes, |record| (record.mtime, record.ctime) = (now, now));
        drop(op);
        self.core.note_done(&format!("set {name} ({id}) volsize={bytes}"));
        self.core.commit_changes()
    }

    /// True for a volume.
    pub(crate) fn is_volume(&self, id: DatasetId) -> bool {
        self.table.read().get(id).is_some_and(|entry| entry.row.volume)
    }
}

impl Table {
    /// Refuses a parent that has no names to put another below.
    pub fn check_parent(&self, parent: DatasetId) -> Result<()> {
        let named = || self.full_name(parent);
        match self.get(parent) {
            Some(entry) if entry.row.volume => Err(Error::VolumeParent { parent: named() }),
            // [table.6] It is being made at this moment.
            Some(entry) if entry.unborn => Err(Error::NoParent { parent: named() }),
            _ => Ok(()),
        }
    }
}

fn block_of(record: &InodeRecord) -> u64 {
    1 << record.record_shift
}

fn check_bytes(name: &str, bytes: u64, block: u64) -> Result<()> {
    if bytes == 0 || !bytes.is_multiple_of(block) || bytes > BYTES_MAX {
        return Err(Error::VolumeBytes { name: name.to_owned(), bytes, block });
    }
    Ok(())
}
