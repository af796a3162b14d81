//! Looking at labels and uberblocks, without changing anything.

use std::collections::BTreeSet;
use steadfast_device::{Device, Medium};
use steadfast_env::{Bug, Env};
use steadfast_format::PoolState;
use steadfast_format::{LabelConfig, LeafState, PoolGuid, Txg, Uberblock, is_zero, medium};

use crate::core::error::{Error, Result};
use crate::devices::groups::DeviceHandle;

/// The label of a device: of its four copies the valid one with the greatest txg. The error tells
/// what they looked like. A store of whole objects has its newest label as copy 0 and earlier ones
/// behind it, which count only where no newer one can be read, or is one.
pub fn label_of(device: &dyn Device) -> Result<LabelConfig> {
    let mut best: Option<LabelConfig> = None;
    let mut reasons = Vec::new();
    let holds_objects = device.objects().is_some();
    for copy in 0..4 {
        match device.read_label(copy) {
            // The label of a store that was erased.
            Ok(area) if holds_objects && !area.is_empty() && is_zero(&area) => {
                reasons.push(format!("copy {copy} is empty"));
                break;
            }
            Ok(area) if is_zero(&area) => reasons.push(format!("copy {copy} is empty")),
            Ok(area) => match LabelConfig::decode(&area, steadfast_crypto::hash) {
                Ok(config) => {
                    if best.as_ref().is_none_or(|best| config.txg > best.txg) {
                        best = Some(config);
                    }
                    if holds_objects {
                        break;
                    }
                }
                Err(error) => reasons.push(format!("copy {copy}: {error}")),
            },
            Err(error) => reasons.push(format!("copy {copy}: {error}")),
        }
    }
    best.ok_or_else(|| Error::NoLabel { path: device.character().identity, reason: reasons.join("; ") })
}

/// True if none of a device's labels names this pool and this device, and all of them can be read:
/// somebody wrote over them.
pub(crate) fn lost_labels(device: &dyn Device, (pool, guid): (PoolGuid, u64)) -> bool {
    let is_other = |area: Vec<u8>| {
        let label = LabelConfig::decode(&area, steadfast_crypto::hash);
        label.is_err() || label.is_ok_and(|label| (label.pool, label.device_guid) != (pool, guid))
    };
    (0..4).all(|copy| device.read_label(copy).is_ok_and(is_other))
}

/// Zeros all labels and uberblocks of a device: it belongs to no pool any more. The content of its
/// segments stays.
pub fn erase(device: &dyn Device) -> Result<()> {
    let zeros = [0; Uberblock::ENCODED_SIZE];
    for copy in 0..4 {
        device.write_label(copy, &[0; 512])?;
        if device.character().appendable {
            for slot in 0..medium::RING_SLOTS {
                device.write_uberblock(copy, Txg(slot), &zeros)?;
            }
        }
    }
    Ok(device.flush()?)
}

/// A device with a pool's label.
#[derive(Clone)]
pub struct FoundDevice {
    /// The device.
    pub handle: DeviceHandle,
    /// Its label.
    pub label: LabelConfig,
}

impl FoundDevice {
    fn medium(&self) -> Option<Medium> {
        self.handle.device.character().medium
    }

    /// Path at which it was last used, as its label says.
    fn named_path(&self) -> Option<&str> {
        let (label, guid) = (&self.label, self.label.device_guid);
        let leaf = label.leaves.iter().find(|leaf| leaf.guid == guid).map(|leaf| &leaf.path);
        let path = leaf.or_else(|| label.aux.iter().find(|aux| aux.guid == guid).map(|aux| &aux.path));
        path.map(String::as_str)
    }

    fn is_at_named_path(&self) -> bool {
        self.named_path() == Some(&self.handle.path)
    }

    /// It was found by another path than the one at which it was last used.
    fn is_named_medium(&self) -> bool {
        self.medium().is_some()
            && self.named_path().and_then(|path| Medium::of(path.as_ref())) == self.medium()
    }
}

/// A pool of which at least one device was found.
#[derive(Clone)]
pub struct FoundPool {
    /// Number by which people know it.
    pub guid: PoolGuid,
    /// The newest label among its devices.
    pub config: LabelConfig,
    /// Devices that were found.
    pub devices: Vec<FoundDevice>,
    /// Last known paths of devices that were not.
    pub missing: Vec<String>,
}

/// Claims an epoch on a store of whole objects, and marks the pool of a label as destroyed. False
/// if another host has claimed that epoch, or the device holds no whole objects.
///
/// # Errors
/// The device's.
pub fn mark_destroyed(
    device: &dyn Device,
    label: &LabelConfig,
    epoch: u64,
) -> steadfast_device::Result<bool> {
    let Some(objects) = device.objects() else { return Ok(false) };
    if !objects.claim_epoch(epoch)? {
        return Ok(false);
    }
    let label = LabelConfig { state: PoolState::Destroyed, ..label.clone() };
    let bytes = label.encode(steadfast_crypto::hash).expect("it is no longer than the one that was read");
    device.write_label(0, &bytes)?;
    Ok(true)
}

/// Groups devices into pools by their labels. Devices without a label are given back with the
/// reason.
pub fn scan(handles: Vec<DeviceHandle>) -> (Vec<FoundPool>, Vec<(DeviceHandle, Error)>) {
    scan_telling(handles, &|_| ())
}

/// The same; `tell` hears of how many devices the labels were read.
pub fn scan_telling(
    handles: Vec<DeviceHandle>,
    tell: &dyn Fn(usize),
) -> (Vec<FoundPool>, Vec<(DeviceHandle, Error)>) {
    look(Vec::new(), handles, tell)
}

/// The same beside devices whose labels were read: on a store each look is a round trip.
pub fn scan_beside(
    known: Vec<FoundDevice>,
    handles: Vec<DeviceHandle>,
) -> (Vec<FoundPool>, Vec<(DeviceHandle, Error)>) {
    look(known, handles, &|_| ())
}

fn look(
    known: Vec<FoundDevice>,
    handles: Vec<DeviceHandle>,
    tell: &dyn Fn(usize),
) -> (Vec<FoundPool>, Vec<(DeviceHandle, Error)>) {
    let mut pools: Vec<FoundPool> = Vec::new();
    let mut others = Vec::new();
    let mut labelled: Vec<_> = known.into_iter().map(|found| (found.handle, found.label)).collect();
    for (at, handle) in handles.into_iter().enumerate() {
        tell(at);
        match label_of(&*handle.device) {
            Err(error) => others.push((handle, error)),
            Ok(label) => labelled.push((handle, label)),
        }
    }
    // A pool that was being given another number is known by it as soon as one device says so.
    let numbers: Vec<(PoolGuid, PoolGuid)> =
        labelled.iter().map(|(_, label)| (label.pool, label.guid())).collect();
    let number_of = |label: &LabelConfig| match label.becoming {
        Some(next) if numbers.contains(&(label.pool, next)) => next,
        _ => label.guid(),
    };
    for (handle, label) in labelled {
        let guid = number_of(&label);
        let found = FoundDevice { handle, label };
        match pools.iter_mut().find(|pool| pool.config.pool == found.label.pool && pool.guid == guid) {
            Some(pool) => pool.devices.push(found),
            None => {
                let (config, missing) = (found.label.clone(), Vec::new());
                pools.push(FoundPool { guid, config, devices: vec![found], missing });
            }
        }
    }
    for pool in &mut pools {
        pool.devices = without_copies(std::mem::take(&mut pool.devices));
        // A leaf's label counts before that of a log device, which may have been given up.
        let rank = |label: &LabelConfig| (label.device.0 != 0, label.txg, label.guid() == pool.guid);
        let labels = pool.devices.iter().map(|device| &device.label);
        // Of equal ones the first.
        let newest = labels.rev().max_by_key(|label| rank(label));
        pool.config = newest.expect("a pool was found by a device").clone();
    }
    for pool in &mut pools {
        let has = |guid| pool.devices.iter().any(|device| device.label.device_guid == guid);
        let missing =
            pool.config.leaves.iter().filter(|leaf| !has(leaf.guid) && leaf.state != LeafState::Parted);
        pool.missing = missing.map(|leaf| leaf.path.clone()).collect();
    }
    (pools, others)
}

/// Leaves one of the paths of each device. Of copies of a device the one remains that lies where
/// its own label says, unless another was used later. Otherwise all remain, and
/// [`check_copies`] refuses them.
fn without_copies(found: Vec<FoundDevice>) -> Vec<FoundDevice> {
    let mut groups: Vec<Vec<FoundDevice>> = Vec::new();
    for device in found {
        let guid = device.label.device_guid;
        match groups.iter_mut().find(|group| group[0].label.device_guid == guid) {
            Some(group) => group.push(device),
            None => groups.push(vec![device]),
        }
    }
    groups.into_iter().flat_map(choose).collect()
}

/// The one of several paths of a device, or copies of it, that is meant; or all copies.
fn choose(found: Vec<FoundDevice>) -> Vec<FoundDevice> {
    if found.len() == 1 {
        return found;
    }
    let mut copies: Vec<FoundDevice> = Vec::new();
    for device in found {
        let medium = device.medium();
        match copies.iter_mut().find(|other| medium.is_some() && other.medium() == medium) {
            None => copies.push(device),
            Some(other) if !other.is_at_named_path() && device.is_at_named_path() => *other = device,
            Some(_) => {}
        }
    }
    let newest = copies.iter().map(|copy| copy.label.txg).max();
    let is_named = |copy: &FoundDevice| copy.is_at_named_path() || copy.is_named_medium();
    let named: Vec<usize> = (0..copies.len()).filter(|&at| is_named(&copies[at])).collect();
    match named[..] {
        [at] if Some(copies[at].label.txg) == newest => vec![copies.swap_remove(at)],
        _ => copies,
    }
}

/// Refuses a pool of which a device was found twice, and is not the same file or disk.
pub fn check_copies(pool: &FoundPool) -> Result<()> {
    let copies_of = |guid| pool.devices.iter().filter(move |device| device.label.device_guid == guid);
    let twice = pool.devices.iter().find(|device| copies_of(device.label.device_guid).count() > 1);
    let Some(twice) = twice else { return Ok(()) };
    let paths = copies_of(twice.label.device_guid).map(|device| device.handle.path.clone()).collect();
    Err(Error::Copies { pool: pool.config.name.clone(), paths })
}

/// An uberblock whose tag was found right.
pub(crate) struct FoundUberblock {
    pub uberblock: Uberblock,
    pub tag: [u8; 32],
}

/// Epoch and txg of a root: the greatest counts ([`Uberblock::age`]).
pub type RootAge = (u64, Txg);

/// The root that is looked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wanted {
    /// The newest one.
    Newest,
    /// The newest one that is not younger.
    AsOf(Txg),
    /// This one, on a store of whole objects.
    At(RootAge),
}

/// The uberblock that is wanted: of all rings of all devices the valid one of this pool with the
/// greatest age ([`Uberblock::age`]). And why a ring could not be read, if one could not: the
/// others have the same uberblocks, but for one of a commit that nobody was told of.
pub(crate) fn find_uberblock(
    pool: PoolGuid,
    devices: &[&dyn Device],
    tag_of: impl Fn(&[u8]) -> [u8; 32],
    wanted: Wanted,
    env: &Env,
) -> (Option<FoundUberblock>, Option<steadfast_device::Error>) {
    let careless = env.has_bug(Bug::TornRootAccepted);
    let (mut best, mut unread): (Option<FoundUberblock>, _) = (None, None);
    for device in devices {
        let rings = match wanted {
            Wanted::At(age) => {
                let known = device.objects().map_or_else(Vec::new, |store| store.known_roots());
                let at = known.iter().position(|root| *root == age);
                at.map_or(0..0, |at| at..at + 1)
            }
            Wanted::Newest | Wanted::AsOf(_) => 0..4,
        };
        for copy in rings {
            let ring = device.read_uberblocks(copy).unwrap_or_else(|error| {
                _ = unread.get_or_insert(error);
                Vec::new()
            });
            for bytes in ring {
                let Ok((bound, tag)) = Uberblock::bound_and_tag(&bytes) else { continue };
                let Ok(uberblock) = Uberblock::decode(&bytes) else { continue };
                let is_wanted = match wanted {
                    Wanted::Newest => true,
                    Wanted::AsOf(as_of) => uberblock.txg <= as_of,
                    Wanted::At(age) => uberblock.age() == age,
                };
                let newer = best.as_ref().is_none_or(|best| uberblock.age() > best.uberblock.age());
                let whole = steadfast_crypto::tags_equal(&tag_of(bound), &tag) || careless;
                if uberblock.pool == pool && newer && is_wanted && whole {
                    best = Some(FoundUberblock { uberblock, tag });
                }
            }
            // The other rings of a store hold older roots.
            if best.is_some() && device.objects().is_some() {
                break;
            }
        }
    }
    (best, unread)
}

/// The last of the roots behind this one that stores of whole objects know by name: each is what a
/// commit calls the root that follows the one before it, so somebody made it. An object
/// that a stranger put there under another name does not count.
pub(crate) fn roots_behind(
    root: RootAge,
    devices: &[&dyn Device],
) -> steadfast_device::Result<Option<RootAge>> {
    let mut newest = root;
    for store in devices.iter().filter_map(|device| device.objects()) {
        let mut last = root;
        for (epoch, txg) in store.known_roots().into_iter().rev().filter(|known| *known > root) {
            let follows = match epoch == last.0 {
                true => txg == last.1.next(),
                false => (txg == last.1 || txg == last.1.next()) && store.is_claimed(epoch)?,
            };
            if follows {
                last = (epoch, txg);
            }
        }
        newest = newest.max(last);
    }
    Ok(Some(newest).filter(|newest| *newest != root))
}

/// Roots to which `zpool import -F` may go back, newest first: those that the stores of a pool know
/// by name, but for those of fenced writers. None of a pool that lies on anything else, as its
/// slots are written over. Whether each is genuine and whole is decided by an import.
#[must_use]
pub fn older_roots(found: &FoundPool) -> Vec<RootAge> {
    let leaves = found.devices.iter().filter(|device| device.label.device.0 != 0);
    let mut roots = BTreeSet::new();
    for leaf in leaves {
        let Some(store) = leaf.handle.device.objects() else { return Vec::new() };
        roots.extend(store.known_roots());
    }
    line_of(roots)
}

/// The roots of which each follows from the next one of the list, newest first. A host that takes
/// the pool goes on behind the txg of the root that it found. So a root of an earlier epoch that is
/// not older than that is one that a writer put when it had lost the pool: its changes were told as
/// errors, or not at all.
fn line_of(roots: BTreeSet<RootAge>) -> Vec<RootAge> {
    let mut line: Vec<RootAge> = Vec::new();
    for (epoch, txg) in roots.into_iter().rev() {
        if line.last().is_none_or(|(_, later)| txg < *later) {
            line.push((epoch, txg));
        }
    }
    line
}

/// Txgs of the roots that a pool's devices hold, newest first. Whether each is genuine and can be
/// read is decided by an import.
#[must_use]
pub fn root_txgs(found: &FoundPool) -> Vec<Txg> {
    let mut txgs = BTreeSet::new();
    for device in &found.devices {
        for copy in 0..4 {
            let ring = device.handle.device.read_uberblocks(copy).unwrap_or_default();
            let roots = ring.iter().filter_map(|bytes| Uberblock::decode(bytes).ok());
            txgs.extend(roots.filter(|root| root.pool == found.config.pool).map(|root| root.txg));
        }
    }
    txgs.into_iter().rev().collect()
}

/// A device that was about to be the pool's is nobody's again. One that cannot be written keeps a
/// label that no root goes with.
pub(crate) fn give_back(device: &dyn Device) {
    let _ = crate::devices::probe::erase(device);
}

/// Refuses devices that carry a pool, unless `force`.
pub fn check_unoccupied(handle: &DeviceHandle, force: bool) -> Result<()> {
    let Ok(config) = crate::devices::probe::label_of(&*handle.device) else { return Ok(()) };
    let state = match config.state {
        PoolState::Active => "in use, or not exported",
        PoolState::Exported => "exported",
        PoolState::Destroyed => return Ok(()),
    };
    if force {
        return Ok(());
    }
    Err(Error::Occupied { path: handle.path.clone(), pool: config.name, state })
}

/// Refuses a device that cannot become an auxiliary one: it has no room for a slot, or takes whole
/// segments only.
pub(crate) fn check_takes_slots(handle: &DeviceHandle, slot_size: u32) -> Result<()> {
    let character = handle.device.character();
    if medium::slot_count(character.size_bytes, slot_size) > 0 && character.appendable {
        return Ok(());
    }
    let needed = medium::device_bytes(1, slot_size);
    Err(Error::TooSmall { path: handle.path.clone(), bytes: character.size_bytes, needed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_of_fenced_writers_are_beside_the_line() {
        let root = |epoch, txg| (epoch, Txg(txg));
        // The second host found 6 of the first one, which put 7 and 8 all the same. The fourth went
        // back to 7 and went on behind 9.
        let known = [(1, 5), (1, 6), (1, 7), (1, 8), (2, 7), (2, 8), (2, 9), (4, 10)];
        let line = line_of(known.map(|(epoch, txg)| root(epoch, txg)).into());
        let expected = [(4, 10), (2, 9), (2, 8), (2, 7), (1, 6), (1, 5)];
        assert_eq!(line, expected.map(|(epoch, txg)| root(epoch, txg)));
    }
}
