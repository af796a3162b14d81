//! Opening devices, looking at what they hold, and finding pools on them.

use super::refuse;
use crate::refusal::{Code, Refusal};
use crate::{meters, stores};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_bucket::device::DeviceStore;
use steadfast_bucket::{Location, Store, Tuning};
use steadfast_device::{
    Access, Device, Error as DeviceError, FileDevice, ObjectDevice, OpenOptions, is_below_another,
};
use steadfast_env::Env;
use steadfast_format::AuxClass;
use steadfast_format::object_names::POOL;
use steadfast_pool::{DeviceHandle, FoundDevice, FoundPool, check_unoccupied, scan_beside, scan_telling};

/// Opens a device.
pub(super) fn open(path: &Path, options: &OpenOptions) -> Result<DeviceHandle, Refusal> {
    open_as(path, options, false)
}

/// Opens a device that becomes part of a pool.
pub(super) fn open_new(path: &Path, options: &OpenOptions) -> Result<DeviceHandle, Refusal> {
    open_as(path, options, true)
}

fn open_as(path: &Path, options: &OpenOptions, is_new: bool) -> Result<DeviceHandle, Refusal> {
    if stores::is_address(path) {
        let (location, capacity) = stores::wished(path.to_str().unwrap_or_default())?.split_capacity();
        let path = location.to_string();
        let wanted = is_new.then(|| capacity.unwrap_or(CAPACITY_BYTES));
        let device = open_store(location, options.access, wanted)?;
        return Ok(DeviceHandle { path, device });
    }
    let device = FileDevice::open(path, options).map_err(|error| refuse::device(&error))?;
    Ok(DeviceHandle { path: path.display().to_string(), device: Arc::new(device) })
}

/// Bytes that a pool may use of a new store whose address names no capacity: 1 PiB. Nothing is
/// reserved, so it is no more than a number that nobody comes to.
const CAPACITY_BYTES: u64 = 1 << 50;

/// Opens the store at an address as a device. An empty store becomes one of a capacity, if there is
/// one.
///
/// # Errors
/// [`Code::StoreAddress`], [`Code::StoreKeys`], [`Code::StoreFailed`], and those of a device.
fn open_store(location: Location, access: Access, capacity: Option<u64>) -> Result<Arc<dyn Device>, Refusal> {
    let found = stores::keys(&location)?;
    // Most first failures are mistakes in the address: they are told soon.
    let first = meters::open(location.clone(), &found, Tuning::impatient());
    let listed = first.and_then(|client| Ok((client.list(POOL)?, client)));
    let (listed, client) = listed.map_err(|error| stores::refusal(&error))?;
    let listed: Vec<String> = listed.into_iter().map(|head| head.object).collect();
    let client = client.with_tuning(Tuning::default());
    let store = match access {
        Access::Write | Access::Read => DeviceStore::exclusive(client),
        Access::Peek => Ok(DeviceStore::shared(client)),
    };
    let mut writer = [0; 16];
    Env::real().random.fill(&mut writer);
    let device =
        store.and_then(|store| ObjectDevice::open_listed(Arc::new(store), &listed, capacity, writer));
    match device {
        Ok(device) => Ok(Arc::new(device)),
        Err(DeviceError::Missing { .. }) => {
            let what = format!("no pool is stored at {location}");
            Err(Refusal::new(Code::PoolNotFound, what).with("place", location.to_string()))
        }
        Err(error) => Err(refuse::device(&error)),
    }
}

/// Opens the store at an address for looking.
///
/// # Errors
/// Those of [`open_store`].
pub(crate) fn look_at_store(address: &Path) -> Result<Arc<dyn Device>, Refusal> {
    open_store(stores::location(address.to_str().unwrap_or_default())?, Access::Peek, None)
}

/// Signatures of foreign contents: (offset, bytes, name). From each format's own description.
const SIGNATURES: &[(u64, &[u8], &str)] = &[
    (1080, &[0x53, 0xef], "an ext2, ext3 or ext4 file system"),
    (0, b"XFSB", "an XFS file system"),
    (65_600, b"_BHRfS_M", "a Btrfs file system"),
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (4086, b"SWAPSPACE2", "swap space"),
    (512, b"EFI PART", "a GPT partition table"),
    (3, b"NTFS    ", "an NTFS file system"),
    (32_769, b"CD001", "an ISO 9660 image"),
    (82, b"FAT32   ", "a FAT file system"),
    (54, b"FAT16   ", "a FAT file system"),
    (510, &[0x55, 0xaa], "a boot sector or partition table"),
    (536, b"LVM2 001", "an LVM physical volume"),
    // One of the two copies of its header may be blank.
    (0, b"SFparity", PARITY),
    (4096, b"SFparity", PARITY),
];
const PARITY: &str = "the parity of a pool";

/// Foreign contents of a device that a new pool would destroy. The room `pool` detects pools.
pub(super) fn contents(path: &Path) -> Option<&'static str> {
    let file = File::open(path).ok()?;
    let holds = |offset: u64, bytes: &[u8]| {
        let mut found = vec![0; bytes.len()];
        file.read_exact_at(&mut found, offset).is_ok() && found == bytes
    };
    SIGNATURES.iter().find(|(offset, bytes, _)| holds(*offset, bytes)).map(|(_, _, what)| *what)
}

/// Refuses a device that holds foreign contents, unless `force`.
pub(super) fn check_contents(path: &Path, force: bool) -> Result<(), Refusal> {
    let Some(contents) = contents(path).filter(|_| !force) else { return Ok(()) };
    let what = format!("the device {} holds {contents}", path.display());
    Err(Refusal::new(Code::VdevForeign, what).with("device", path.display()))
}

/// Refuses a file or disk that holds foreign contents or carries a pool, unless `force`. A parity
/// device is the pool's to refuse.
pub(super) fn check_vacant(path: &Path, force: bool) -> Result<(), Refusal> {
    check_contents(path, force || contents(path) == Some(PARITY))?;
    match FileDevice::open(path, &OpenOptions::PEEK) {
        Ok(device) => {
            let handle = DeviceHandle { path: path.display().to_string(), device: Arc::new(device) };
            check_unoccupied(&handle, force).map_err(refuse::pool)
        }
        // It has no room for labels.
        Err(DeviceError::TooSmall { .. }) => Ok(()),
        Err(error) => Err(refuse::device(&error)),
    }
}

/// Result of a search.
pub(super) struct Search {
    /// Pools, with devices opened only for looking.
    pub pools: Vec<FoundPool>,
    /// Devices that were named one by one and hold no pool, with the reason.
    pub refused: Vec<Refusal>,
}

/// Looks at every file and disk in the folders given, and at the devices given.
///
/// # Errors
/// If a folder or device given cannot be looked at.
pub(super) fn search(places: &[PathBuf]) -> Result<Search, Refusal> {
    search_telling(places, &|_, _| ())
}

/// The same; `tell` hears of how many devices the labels were read, and of how many there are.
pub(super) fn search_telling(places: &[PathBuf], tell: &dyn Fn(usize, usize)) -> Result<Search, Refusal> {
    let mut handles = Vec::new();
    let mut refused = Vec::new();
    let mut named = Vec::new();
    for place in places {
        if stores::is_address(place) {
            handles.push(open(place, &OpenOptions::PEEK)?);
            named.push(place.display().to_string());
            continue;
        }
        let trouble = |error: std::io::Error| {
            Refusal::new(Code::VdevIo, format!("{} cannot be searched: {error}", place.display()))
                .with("device", place.display())
        };
        let metadata = match fs::metadata(place) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // Not VDEV-MISSING: its advice, to create an image file, does not help in a search.
                let what = format!("{} does not exist, so no pool can be found there", place.display());
                return Err(Refusal::new(Code::PoolNotFound, what).with("place", place.display()));
            }
            other => other.map_err(trouble)?,
        };
        if metadata.is_dir() {
            for entry in fs::read_dir(place).map_err(trouble)? {
                let path = entry.map_err(trouble)?.path();
                // A file that cannot be opened is not a device of ours.
                if is_candidate(&path)
                    && let Ok(handle) = open(&path, &OpenOptions::PEEK)
                {
                    handles.push(handle);
                }
            }
        } else {
            handles.push(open(place, &OpenOptions::PEEK).map_err(|refusal| cut_short(place, refusal))?);
            named.push(place.display().to_string());
        }
    }
    handles.sort_by(|a, b| a.path.cmp(&b.path));
    let count = handles.len();
    let (pools, others) = scan_telling(handles, &|read| tell(read, count));
    for (handle, error) in others {
        if named.contains(&handle.path) {
            refused.push(refuse::pool(error));
        }
    }
    Ok(Search { pools: pools.into_iter().map(with_devices_here).collect(), refused })
}

/// Adds to a pool on a store what lies on this machine, at the paths that its labels name: its log
/// and its cache are in no folder that anybody searches.
fn with_devices_here(found: FoundPool) -> FoundPool {
    let is_on_store = |device: &FoundDevice| stores::is_address(Path::new(&device.handle.path));
    if !found.devices.iter().any(is_on_store) {
        return found;
    }
    let has = |guid| found.devices.iter().any(|device| device.label.device_guid == guid);
    let leaves = found.config.leaves.iter().map(|leaf| (leaf.guid, &leaf.path));
    let named = leaves.chain(found.config.aux.iter().map(|aux| (aux.guid, &aux.path)));
    let absent = named.filter(|(guid, _)| !has(*guid)).map(|(_, path)| Path::new(path));
    let here = absent.filter(|path| !stores::is_address(path));
    let more: Vec<_> = here.filter_map(|path| open(path, &OpenOptions::PEEK).ok()).collect();
    if more.is_empty() {
        return found;
    }
    let pools = scan_beside(found.devices.clone(), more).0;
    pools.into_iter().find(|pool| pool.guid == found.guid).unwrap_or(found)
}

/// A device that is too small to be one was larger once, or never was one. Making it larger, as
/// create would advise, brings nothing back.
fn cut_short(path: &Path, refusal: Refusal) -> Refusal {
    if refusal.code != Code::VdevSmall {
        return refusal;
    }
    let what = format!("{} is too small for a pool's device; it may have been cut short", path.display());
    Refusal::new(Code::PoolDamaged, what).with("device", path.display())
}

fn is_candidate(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.is_file() || m.file_type().is_block_device())
        && !is_below_another(path)
}

/// Opens the devices of a pool that was found by looking, for use.
///
/// # Errors
/// If one cannot be opened, or holds another pool by now.
pub(super) fn reopen(found: FoundPool, read_only: bool) -> Result<FoundPool, Refusal> {
    let (mut kept, mut paths) = (Vec::new(), aux_elsewhere(&found));
    for device in found.devices {
        // A bucket is opened for looking as it is for use: nobody can lock it, and epochs fence
        // its writers. A host that changes its label after this look commits too, which the import
        // sees.
        match stores::is_remote(Path::new(&device.handle.path)) {
            true => kept.push(device),
            false => paths.push(PathBuf::from(device.handle.path)),
        }
    }
    open_beside(kept, &paths, found.guid.0, read_only)
}

/// Cache devices and spares of a pool that were not found where it was searched, and are where its
/// labels have them: `import -d` names the folder of the data alone, as in ZFS.
fn aux_elsewhere(found: &FoundPool) -> Vec<PathBuf> {
    let is_here = |guid: u64| found.devices.iter().any(|device| device.label.device_guid == guid);
    let aux = found.config.aux.iter().filter(|aux| matches!(aux.class, AuxClass::Cache | AuxClass::Spare));
    let missing = aux.filter(|aux| aux.standing.is_none() && !is_here(aux.guid));
    let paths = missing.map(|aux| PathBuf::from(&aux.path)).filter(|path| path.is_absolute());
    paths.filter(|path| open(path, &OpenOptions::READ).is_ok()).collect()
}

/// Opens devices for use and puts together the pool of this number.
///
/// # Errors
/// If one cannot be opened, or none holds the pool.
pub(super) fn open_pool(paths: &[PathBuf], guid: u64, read_only: bool) -> Result<FoundPool, Refusal> {
    open_beside(Vec::new(), paths, guid, read_only)
}

/// The same beside devices that are open.
fn open_beside(
    kept: Vec<FoundDevice>,
    paths: &[PathBuf],
    guid: u64,
    read_only: bool,
) -> Result<FoundPool, Refusal> {
    let options = if read_only { OpenOptions::READ } else { OpenOptions::WRITE };
    let (mut handles, mut refused) = (Vec::new(), None);
    for path in paths {
        match open(path, &options) {
            Ok(handle) => handles.push(handle),
            Err(refusal) => _ = refused.get_or_insert(refusal),
        }
    }
    let (pools, others) = scan_beside(kept, handles);
    let found = pools.into_iter().find(|pool| pool.guid.0 == guid);
    // Groups may have enough redundancy for missing devices. Whether a missing log device matters
    // is decided by the import.
    if let Some(found) = found.filter(|found| refused.is_none() || steadfast_pool::is_enough(found)) {
        return Ok(found);
    }
    if let Some(refusal) = refused {
        return Err(refusal);
    }
    match others.into_iter().next() {
        Some((_, error)) => Err(refuse::pool(error)),
        None => Err(Refusal::new(Code::PoolDamaged, "the devices hold a different pool now")),
    }
}

/// Default places to search for pools: the disks of this machine, and the folders of known pools.
pub(super) fn usual_places(known: &[PathBuf]) -> Vec<PathBuf> {
    let mut places = vec![PathBuf::from("/dev")];
    for device in known {
        if let Some(folder) = device.parent()
            && !places.iter().any(|p| p == folder)
            && folder.is_dir()
        {
            places.push(folder.to_owned());
        }
    }
    places
}
