//! `zpool create`: a new pool with its root file system.

use crate::api::{Outcome, PoolCreate, Properties, VdevClass, VdevSpec};
use crate::caller::Caller;
use crate::check::{
    FEATURE, OF_EVERY_ZFS_POOL, check_key, check_kind, check_new_features, check_vdevs, exact, name_refusal,
    property_refusal,
};
use crate::engine::anchors::{NewRegister, ParityFile};
use crate::engine::device_list::HandlesByClass;
use crate::engine::pool_properties::{TEMPORARY, altroot, listed};
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::engine::zfs::keys::{key_rules, secret};
use crate::engine::zfs::parents::give;
use crate::engine::zpool::add::check_parity_wishes;
use crate::engine::{device_list, devices, mountpoints, refuse};
use crate::refusal::{Code, Refusal};
use crate::stores;
use std::path::PathBuf;
use steadfast_format::Feature;
use steadfast_pool::{
    AuxHandles, CreateSpec, ImportSpec, LOSS_PPM, NewName, OpenStore, ParityMedium, ParityWish, Pool,
    blank_parity, check_new_parity, rehearse_new_parity,
};
use steadfast_property::{Change, Scope, check_pool_name, parse_assignment};

/// Default of `ashift` on devices: an allocation unit of 4 KiB.
const ASHIFT_DEVICES: u8 = 12;
/// The same where there are stores of objects alone, which have no sectors: 1 KiB. Decision 0268.
const ASHIFT_STORES: u8 = 10;

impl Verb for PoolCreate {
    fn check(&mut self) -> Result<(), Refusal> {
        check_pool_name(&self.name).map_err(name_refusal)?;
        if let Some(name) = &self.temporary_name {
            check_pool_name(name).map_err(name_refusal)?;
        }
        check_vdevs(&self.vdevs, true)?;
        check_parity_wishes(&self.vdevs, self.loss_ppm, &mut self.tiles)?;
        let creation = &[Change::AtCreation, Change::AtImport, Change::Anytime];
        let (features, others): (Properties, Properties) =
            std::mem::take(&mut self.properties).into_iter().partition(|(name, _)| name.starts_with(FEATURE));
        check_new_features(&features)?;
        self.properties = exact(Scope::Pool, &others, creation)?;
        self.properties.extend(features);
        if self.properties.contains_key("readonly") {
            let what = "'readonly' is set at import; a new pool must be writable";
            return Err(Refusal::new(Code::PropCreation, what));
        }
        if let Some(mountpoint) = &self.mountpoint {
            let (_, value) = parse_assignment(Scope::Dataset, &format!("mountpoint={mountpoint}"))
                .map_err(property_refusal)?;
            self.mountpoint = Some(value);
        }
        self.fs_properties =
            exact(Scope::Dataset, &self.fs_properties, &[Change::AtCreation, Change::Anytime])?;
        check_key(&self.fs_properties, self.key.as_ref())?;
        check_kind(&self.name, &self.fs_properties, false)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        // The name by which the pool is used.
        let name = self.temporary_name.clone().unwrap_or_else(|| self.name.clone());
        engine.check_free_name(&name)?;
        let altroot = altroot(&self.properties);
        let listed = listed(&self.properties, self.temporary_name.is_some())?;
        let ashift = match self.properties.get("ashift").map(|text| text.parse::<u8>()) {
            None | Some(Ok(0)) => default_ashift(&self.vdevs),
            Some(Ok(ashift @ 9..=13)) => ashift,
            Some(_) => {
                let what = "'ashift' must be 9 to 13, or 0 for the default: 12, on stores of objects 10";
                return Err(Refusal::new(Code::PropValue, what).with("property", "ashift"));
            }
        };
        let mut root_props = self.fs_properties.clone();
        if let Some(mountpoint) = &self.mountpoint {
            root_props.insert("mountpoint".into(), mountpoint.clone());
        }
        key_rules(&mut root_props, None, self.key.as_ref())?;
        let mountpoint = match root_props.get("mountpoint").map(String::as_str) {
            Some("none" | "legacy") => None,
            Some(path) => Some(mountpoints::under(altroot.as_deref(), path)),
            None => Some(mountpoints::under(
                altroot.as_deref(),
                &format!("{}/{name}", engine.mount_base().trim_end_matches('/')),
            )),
        };
        if let Some(mountpoint) = &mountpoint
            && root_props.get("canmount").is_none_or(|value| value == "on")
        {
            mountpoints::check(mountpoint, false, mountpoints::Shape::Folder)?;
        }
        stores::check_clear(&self.vdevs, self.key.is_some(), self.force)?;
        device_list::check_alike(&self.vdevs, [&[], &[]], self.force)?;
        let vdevs = device_list::slotted(&self.vdevs);
        let (paths, handles) = engine.open_new(&vdevs, self.force)?;
        let HandlesByClass { main, logs, spares, caches } = device_list::sorted(&vdevs, handles);
        device_list::check_sizes(&self.vdevs, &main, self.force)?;
        for other in logs.iter().chain(&spares).chain(&caches) {
            steadfast_pool::check_unoccupied(other, self.force).map_err(refuse::pool)?;
        }
        let groups = device_list::groups(&self.vdevs, main);
        let parity = engine.open_parity(&name, &self.vdevs, self.force)?;
        let registers = engine.anchor_wish(None).registers.expect("those of this host");
        let open = |address: &str| registers.tiles(address);
        let wish = ParityWish {
            loss_ppm: self.loss_ppm.unwrap_or(LOSS_PPM),
            tiles: self.tiles.as_deref().map(|address| (address, &open as OpenStore<'_>)),
        };
        if let Some((path, file)) = &parity {
            check_new_parity(&self.name, &groups, wish, (path, file), self.force).map_err(refuse::pool)?;
        }
        self.tiles.as_deref().map_or(Ok(()), stores::look_for)?;
        if self.dry_run {
            return Ok(touched(&name));
        }
        let anchor = engine.anchor_of(&self.vdevs);
        let mut probed = stores::probe_new(&self.vdevs, anchor.path.is_some())?;
        // It names no object twice, so two hosts need no winner there.
        if let Some(address) = &self.tiles {
            probed.extend(stores::probe_one(address, true)?);
        }
        let key = self.key.as_ref().map(|key| engine.new_key(key)).transpose()?;
        let left_out = left_out(self.no_features, &self.properties);
        let stored = |(name, _): &(&String, &String)| {
            !TEMPORARY.contains(&name.as_str()) && !name.starts_with(FEATURE)
        };
        let own = |(name, value): (&String, &String)| (name.clone(), value.clone());
        let spec = CreateSpec {
            name: self.name.clone(),
            groups,
            ashift,
            force: self.force,
            pool_props: self.properties.iter().filter(stored).map(own).collect(),
            root_props,
            key,
            aux: AuxHandles { logs: device_list::log_groups(&self.vdevs, logs), spares, caches },
            anchor,
            host: engine.host.clone(),
            memory: *engine.memory.read(),
        };
        let register = spec.anchor.path.as_deref().map(NewRegister::at);
        if let Some((path, file)) = &parity {
            let rehearsed = rehearse_new_parity(&self.name, &spec.groups, wish, (path, file));
            rehearsed.map_err(|error| told(refuse::pool(error), "no pool was created; nothing is lost"))?;
        }
        let mut pool = Pool::create_without(&engine.env, spec, &left_out).map_err(refuse::pool)?;
        if let Some((path, file)) = parity {
            let (devices, medium) = (pool.devices(), Box::new(file.clone()));
            if let Err(error) = devices.add_parity_for(wish, &path, medium, self.force, false) {
                return Err(self.taken_back(engine, &pool, refuse::pool(error), (&path, &file, register)));
            }
        }
        if self.temporary_name.is_some() {
            pool = self.renamed(engine, pool, &paths, &name)?;
        }
        let held = engine.hold(pool, paths, altroot, listed);
        engine.post("pool_create", &held.pool, &name, &[]);
        let given = give(&held, &name, caller);
        let mut outcome = engine.take(caller, &name, held, true)?;
        outcome.warnings.extend(given.err());
        outcome.warnings.extend(probed);
        Ok(outcome)
    }
}

fn default_ashift(vdevs: &[VdevSpec]) -> u8 {
    let holds_segments = |vdev: &&VdevSpec| matches!(vdev.class, VdevClass::Main | VdevClass::Special);
    let mut devices = vdevs.iter().filter(holds_segments).flat_map(|vdev| &vdev.devices);
    if devices.all(|device| stores::is_address(device)) { ASHIFT_STORES } else { ASHIFT_DEVICES }
}

/// Adds to a refusal what became of the pool.
fn told(mut refusal: Refusal, outcome: &str) -> Refusal {
    refusal.what.push_str("; ");
    refusal.what.push_str(outcome);
    refusal
}

impl PoolCreate {
    /// Takes a new pool back because the parity device that it was to have failed. Its marks on
    /// that and on its register go with it, or the same command would be refused for them.
    fn taken_back(
        &self,
        engine: &Engine,
        pool: &Pool,
        refusal: Refusal,
        (path, parity, register): (&str, &ParityFile, Option<NewRegister>),
    ) -> Refusal {
        if let Err(error) = pool.take_back() {
            let with = if pool.state().parity.is_some() { "with" } else { "without" };
            let outcome = format!("the pool was created, {with} that device, and stays: {error}");
            let (name, again) = (&self.name, self.import_command("-f "));
            return told(refusal, &outcome).advising(&format!(
                "`{again}` takes the pool into use, and `zpool destroy {name}` ends it then; the same command with -f writes over it."
            ));
        }
        // Where that fails the next command is refused, and says what for.
        // The pool may have let go of it.
        parity.release();
        let registers = engine.anchor_wish(None).registers.expect("those of this host");
        let _ = registers.parity(path).and_then(|parity| blank_parity(&*parity, pool.guid()));
        engine.forget_register(register, pool.guid());
        told(
            refusal,
            if self.force {
                "no pool was created; if -f wrote over one, that is lost"
            } else {
                "no pool was created"
            },
        )
    }

    /// The command that imports the pool from its devices, by the name that labels have.
    fn import_command(&self, flags: &str) -> String {
        let holds_segments = |vdev: &&VdevSpec| matches!(vdev.class, VdevClass::Main | VdevClass::Special);
        let devices = self.vdevs.iter().filter(holds_segments).flat_map(|vdev| &vdev.devices);
        let places: String = devices.map(|device| format!("-d '{}' ", device.display())).collect();
        format!("zpool import {flags}{places}{}", self.name)
    }

    /// The new pool, imported again by its temporary name.
    fn renamed(&self, engine: &Engine, pool: Pool, paths: &[PathBuf], name: &str) -> Result<Pool, Refusal> {
        let guid = pool.guid().0;
        let stays = |refusal: Refusal, how: &str, flags: &str| {
            let advice = format!("`{}` takes it into use.", self.import_command(flags));
            told(refusal, &format!("the pool '{}' was created, and {how}", self.name)).advising(&advice)
        };
        pool.export().map_err(|error| stays(refuse::pool(error), "is not exported", "-f "))?;
        // The parity device is one opener's alone.
        drop(pool);
        let exported = |refusal: Refusal| stays(refusal, "is exported", "");
        let found = devices::open_pool(paths, guid, false).map_err(exported)?;
        let spec = ImportSpec {
            new_name: Some(NewName { name: name.to_owned(), is_temporary: true }),
            force: false,
            destroyed: false,
            read_only: false,
            secret: self.key.as_ref().map(secret),
            anchor: engine.anchor_of(&self.vdevs),
            accept_lost_log: false,
            to_checkpoint: false,
            host: engine.host.clone(),
            memory: *engine.memory.read(),
        };
        Pool::import(&engine.env, found, &spec).map_err(|error| exported(refuse::pool(error)))
    }
}

/// Features that a new pool does not use.
fn left_out(no_features: bool, properties: &Properties) -> Vec<&'static str> {
    let names = Feature::KNOWN.iter().map(|(name, ..)| *name);
    let is_left_out = |name: &&str| match properties.get(&format!("{FEATURE}{name}")).map(String::as_str) {
        Some("enabled") => false,
        Some(_) => true,
        None => no_features && !OF_EVERY_ZFS_POOL.contains(name),
    };
    names.filter(|name| !Feature::STRUCTURAL.contains(name)).filter(is_left_out).collect()
}
