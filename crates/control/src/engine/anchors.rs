//! Anchors in files: where they are, what this host remembers of them; and the verb that takes anchors and log devices away.

use super::{Engine, Held, refuse, report, touched};
use crate::api::{Caller, Outcome, PoolRemove, VdevClass, VdevKind, VdevSpec};
use crate::refusal::{Code, Refusal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use steadfast_anchor::{FileRegister, FileWitness, Register, Witness};
use steadfast_env::Clock;
use steadfast_format::{GroupClass, PoolGuid};
use steadfast_pool::{AnchorWish, DeviceHandle, GroupHandles, Redundancy, Registers};

/// Registers are files by path; what this host remembers of each lies beside its list of pools.
struct Files {
    witnesses: PathBuf,
    clock: Arc<dyn Clock>,
}

impl Registers for Files {
    fn register(&self, path: &str) -> Arc<dyn Register> {
        Arc::new(FileRegister::new(Path::new(path), Arc::clone(&self.clock)))
    }

    fn witness(&self, pool: PoolGuid) -> Option<Arc<dyn Witness>> {
        let name = format!("{}.seen", pool.0);
        Some(Arc::new(FileWitness::new(&self.witnesses.join(name))))
    }
}

/// Classes of devices that Steadfast divides into slots.
const SLOTTED: [VdevClass; 5] =
    [VdevClass::Main, VdevClass::Special, VdevClass::Log, VdevClass::Spare, VdevClass::Cache];

/// The devices of a list that Steadfast divides into slots, class by class.
pub(super) fn slotted(vdevs: &[VdevSpec]) -> Vec<VdevSpec> {
    SLOTTED.iter().flat_map(|class| vdevs.iter().filter(move |vdev| vdev.class == *class)).cloned().collect()
}

/// The opened devices of such a list by what they are for.
pub(super) struct Sorted {
    /// Main ones, then special ones.
    pub main: Vec<DeviceHandle>,
    pub logs: Vec<DeviceHandle>,
    pub spares: Vec<DeviceHandle>,
    pub caches: Vec<DeviceHandle>,
}

/// Sorts what [`slotted`] listed.
pub(super) fn sorted(vdevs: &[VdevSpec], handles: Vec<DeviceHandle>) -> Sorted {
    let count = |class| {
        let of = vdevs.iter().filter(|vdev| vdev.class == class);
        of.map(|vdev| vdev.devices.len()).sum::<usize>()
    };
    let mut handles = handles.into_iter();
    let [mut main, special, logs, spares, caches]: [Vec<DeviceHandle>; 5] =
        SLOTTED.map(|class| handles.by_ref().take(count(class)).collect());
    main.extend(special);
    Sorted { main, logs, spares, caches }
}

/// The log devices and mirrors of them that a device list asks for, of its log devices in their order.
pub(super) fn log_groups(vdevs: &[VdevSpec], handles: Vec<DeviceHandle>) -> Vec<GroupHandles> {
    let mut handles = handles.into_iter();
    let logs = vdevs.iter().filter(|vdev| vdev.class == VdevClass::Log);
    let group = logs.map(|vdev| GroupHandles {
        redundancy: redundancy(vdev.kind),
        class: GroupClass::Normal,
        devices: handles.by_ref().take(vdev.devices.len()).collect(),
    });
    group.collect()
}

/// The groups that a device list asks for, of its main devices in their order, then of its special ones; single ones stand alone.
pub(super) fn groups(vdevs: &[VdevSpec], handles: Vec<DeviceHandle>) -> Vec<GroupHandles> {
    let mut handles = handles.into_iter();
    let of = |class| vdevs.iter().filter(move |vdev| vdev.class == class);
    let group = of(VdevClass::Main).chain(of(VdevClass::Special)).map(|vdev| GroupHandles {
        redundancy: redundancy(vdev.kind),
        class: if vdev.class == VdevClass::Special { GroupClass::Special } else { GroupClass::Normal },
        devices: handles.by_ref().take(vdev.devices.len()).collect(),
    });
    group.collect()
}

fn redundancy(kind: VdevKind) -> Redundancy {
    match kind {
        VdevKind::Plain => Redundancy::None,
        VdevKind::Mirror => Redundancy::Mirror,
        VdevKind::Raidz1 => Redundancy::Raidz(1),
        VdevKind::Raidz2 => Redundancy::Raidz(2),
        VdevKind::Raidz3 => Redundancy::Raidz(3),
    }
}

/// The groups of a class that a pool has, each with its devices.
pub(super) fn groups_of(held: &Held, class: GroupClass) -> Vec<(VdevKind, usize)> {
    let state = held.pool.state();
    let alone = state.leaves.iter().filter(|leaf| leaf.config.group == 0 && class == GroupClass::Normal);
    let alone = alone.map(|_| (VdevKind::Plain, 1));
    let of = |id| state.leaves.iter().filter(|leaf| leaf.config.group == id).count();
    let groups = state.groups.iter().filter(|group| group.class == class);
    let groups = groups.map(|group| match of(group.id) {
        1 => (VdevKind::Plain, 1),
        devices => (kind(steadfast_pool::redundancy_of(group)), devices),
    });
    alone.chain(groups).collect()
}

/// The kind of a group.
pub(super) fn kind(redundancy: Redundancy) -> VdevKind {
    match redundancy {
        Redundancy::None => VdevKind::Plain,
        Redundancy::Mirror => VdevKind::Mirror,
        Redundancy::Raidz(1) => VdevKind::Raidz1,
        Redundancy::Raidz(2) => VdevKind::Raidz2,
        Redundancy::Raidz(_) => VdevKind::Raidz3,
    }
}

/// Refuses main devices of which one part survives more failures than another, as ZFS does: the pool is as weak as its weakest
/// part. `normal` and `special` are the pool's own groups. A special group of another kind that survives as many failures is alike: a
/// pool that loses its metadata is as lost as one that loses content.
pub(super) fn check_alike(
    vdevs: &[VdevSpec],
    [normal, special]: [&[(VdevKind, usize)]; 2],
    force: bool,
) -> Result<(), Refusal> {
    if force {
        return Ok(());
    }
    let with = |existing: &[(VdevKind, usize)], class| {
        let new = vdevs.iter().filter(|vdev| vdev.class == class);
        let mut all: Vec<(VdevKind, usize)> = existing.to_vec();
        all.extend(new.map(|vdev| (vdev.kind, vdev.devices.len())));
        all
    };
    let all = with(normal, VdevClass::Main);
    let spared = |(kind, devices): (VdevKind, usize)| match kind {
        VdevKind::Plain => 0,
        VdevKind::Mirror => devices - 1,
        VdevKind::Raidz1 => 1,
        VdevKind::Raidz2 => 2,
        VdevKind::Raidz3 => 3,
    };
    let other = all.windows(2).find(|pair| pair[0].0 != pair[1].0 || spared(pair[0]) != spared(pair[1]));
    let other = other.map(|pair| (pair[0], pair[1], ""));
    let special = with(special, VdevClass::Special);
    let weaker =
        special.into_iter().find(|group| all.first().is_some_and(|first| spared(*first) != spared(*group)));
    let weaker = weaker.and_then(|group| Some((*all.first()?, group, "special ")));
    match other.or(weaker) {
        Some((first, second, word)) => {
            let [first, second] = [first, second].map(|vdev| match vdev.0 {
                VdevKind::Plain => "single devices".to_owned(),
                kind => format!("{} of {} devices", crate::check::vdev_word(VdevClass::Main, kind), vdev.1),
            });
            let what = format!("mismatched redundancy: {first} and {word}{second} in one pool");
            Err(Refusal::new(Code::VdevMismatch, what))
        }
        None => Ok(()),
    }
}

impl Engine {
    /// What is wanted of an anchor, with the files of this host.
    pub(super) fn anchor_wish(&self, path: Option<&Path>) -> AnchorWish {
        let files =
            Files { witnesses: self.runtime.witnesses().to_owned(), clock: Arc::clone(&self.env.clock) };
        AnchorWish {
            registers: Some(Arc::new(files)),
            path: path.map(|path| path.display().to_string()),
            ..AnchorWish::default()
        }
    }

    /// The anchor of a device list, if it has one.
    pub(super) fn anchor_of(&self, vdevs: &[VdevSpec]) -> AnchorWish {
        let mut anchors = vdevs.iter().filter(|vdev| vdev.class == VdevClass::Anchor);
        let path = anchors.next().and_then(|vdev| vdev.devices.first());
        self.anchor_wish(path.map(PathBuf::as_path))
    }

    pub(super) fn remove_devices(&self, caller: &Caller, request: &PoolRemove) -> Result<Outcome, Refusal> {
        let name = &request.name;
        let held = self.held_pool(name)?;
        let (groups, others) = Engine::groups_to_remove(&held, request)?;
        let named = |device: &PathBuf| device_named(&held, name, device);
        let targets: Vec<Target> = others.iter().map(named).collect::<Result<_, Refusal>>()?;
        if let Some((at, twice)) =
            targets.iter().enumerate().find(|(at, target)| targets[..*at].contains(target))
        {
            let what = format!("{} is named twice", twice.paths().join(", "));
            return Err(Refusal::new(Code::VdevTwice, what).with("device", others[at].display()));
        }
        if request.cancel || !groups.is_empty() {
            self.remove_groups(caller, &held, request, &groups)?;
            if targets.is_empty() {
                return Ok(touched(name));
            }
        }
        if request.dry_run {
            return Ok(touched(name));
        }
        for target in &targets {
            match target {
                Target::Anchor(path) => held.pool.remove_anchor(path),
                // Whichever of them is named.
                Target::Log(paths) => held.pool.remove_log(&paths[0]),
                Target::Spare(path) => held.pool.remove_spare(path),
                Target::Cache(path) => held.pool.remove_cache(path),
            }
            .map_err(refuse::pool)?;
            for gone in target.paths() {
                held.devices.write().retain(|path| path != Path::new(gone));
                self.post("vdev_remove", &held.pool, name, &[("vdev_path", gone.clone())]);
            }
        }
        self.log(&held, caller);
        let warnings = self.remember().err().into_iter().collect();
        Ok(Outcome { touched: vec![name.clone()], warnings })
    }
}

/// What can be taken away from a pool, by the path under which the pool knows it.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Target {
    Anchor(String),
    /// All of a mirror, or one that stands alone.
    Log(Vec<String>),
    Spare(String),
    Cache(String),
}

impl Target {
    fn paths(&self) -> &[String] {
        match self {
            Target::Log(paths) => paths,
            Target::Anchor(path) | Target::Spare(path) | Target::Cache(path) => std::slice::from_ref(path),
        }
    }
}

/// The pool's anchor, log device or mirror of these, spare or cache device that was named.
fn device_named(held: &Held, pool: &str, device: &Path) -> Result<Target, Refusal> {
    let state = held.pool.state();
    let same = |path: &str| {
        Path::new(path) == device
            || super::devices::identity(Path::new(path))
                .is_some_and(|id| super::devices::identity(device) == Some(id))
    };
    let word = device.file_name().and_then(|word| word.to_str());
    if let Some(sides) = word.and_then(|word| report::log_mirrors(&state).remove(word)) {
        return Ok(Target::Log(sides.iter().map(|log| log.path.clone()).collect()));
    }
    if let Some(log) = state.log_devices.iter().find(|log| same(&log.path)) {
        if let Some(name) = report::log_mirror_of(log) {
            let what = format!("{} is a part of {name}, which can only be removed whole", log.path);
            return Err(Refusal::new(Code::VdevMember, what)
                .with("device", &log.path)
                .with("pool", pool)
                .with("group", name));
        }
        return Ok(Target::Log(vec![log.path.clone()]));
    }
    if let Some(anchor) = state.anchor.filter(|anchor| same(&anchor.register)) {
        return Ok(Target::Anchor(anchor.register));
    }
    if let Some(spare) = state.spares.into_iter().find(|spare| same(&spare.path)) {
        return Ok(Target::Spare(spare.path));
    }
    if let Some(cache) = state.caches.into_iter().find(|cache| same(&cache.path)) {
        return Ok(Target::Cache(cache.path));
    }
    Err(Refusal::no_device(pool, device.display()))
}
