//! `zpool add`.

use crate::api::{Outcome, PoolAdd, VdevSpec};
use crate::caller::Caller;
use crate::check::{check_loss, check_vdevs};
use crate::engine::device_list::HandlesByClass;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::engine::{device_list, refuse};
use crate::refusal::{Code, Refusal};
use crate::stores;
use steadfast_format::GroupClass;
use steadfast_pool::{LOSS_PPM, OpenStore, ParityWish, TILES_ADDRESS_MAX as ADDRESS_MAX};

/// Refuses wishes about a parity device that none can have, or that is not among the devices.
/// Spells out the address of its tiles.
pub(super) fn check_parity_wishes(
    vdevs: &[VdevSpec],
    loss_ppm: Option<u32>,
    tiles: &mut Option<String>,
) -> Result<(), Refusal> {
    let wished = [("loss", loss_ppm.is_some()), ("tiles", tiles.is_some())];
    for (property, _) in wished.iter().filter(|(_, is_there)| *is_there) {
        if Engine::parity_of(vdevs).is_none() {
            let what = format!("only a parity device takes {property}=, and none is among the devices");
            return Err(Refusal::new(Code::PropCreation, what).with("property", property));
        }
    }
    if let Some(address) = tiles {
        let location = stores::location(address)?.to_string();
        if location.len() > ADDRESS_MAX {
            let what = format!("the address of the tiles has more than {ADDRESS_MAX} bytes");
            return Err(Refusal::new(Code::StoreAddress, what));
        }
        *address = location;
    }
    check_loss(loss_ppm)
}

impl Verb for PoolAdd {
    fn check(&mut self) -> Result<(), Refusal> {
        check_vdevs(&self.vdevs, false)?;
        check_parity_wishes(&self.vdevs, self.loss_ppm, &mut self.tiles)
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held_pool(&self.name)?;
        held.refuse_recovering()?;
        stores::check_clear(&self.vdevs, held.pool.is_sealed(), self.force)?;
        let vdevs = device_list::slotted(&self.vdevs);
        let (paths, handles) = engine.open_new(&vdevs, self.force)?;
        let HandlesByClass { main, logs, spares, caches } = device_list::sorted(&vdevs, handles);
        device_list::check_sizes(&self.vdevs, &main, self.allow_mismatch)?;
        let (groups, logs) =
            (device_list::groups(&self.vdevs, main), device_list::log_groups(&self.vdevs, logs));
        let [normal, special] =
            [GroupClass::Normal, GroupClass::Special].map(|class| device_list::groups_of(&held, class));
        device_list::check_alike(&self.vdevs, [&normal, &special], self.allow_mismatch)?;
        let anchor = engine.anchor_of(&self.vdevs);
        // Refusals come before the first change ([engine.4]).
        if !logs.is_empty() {
            held.pool.zil().add_logs(logs.clone(), self.force, true).map_err(refuse::pool)?;
            held.pool.devices().add_groups(groups.clone(), self.force, true).map_err(refuse::pool)?;
        }
        if !spares.is_empty() {
            held.pool.devices().add_spares(spares.clone(), self.force, true).map_err(refuse::pool)?;
            held.pool.devices().add_groups(groups.clone(), self.force, true).map_err(refuse::pool)?;
        }
        if !caches.is_empty() {
            held.pool.devices().add_caches(caches.clone(), self.force, true).map_err(refuse::pool)?;
            held.pool.devices().add_groups(groups.clone(), self.force, true).map_err(refuse::pool)?;
        }
        if anchor.path.is_some() {
            held.pool.add_anchor(&anchor, self.force, true).map_err(refuse::pool)?;
            held.pool.devices().add_groups(groups.clone(), self.force, true).map_err(refuse::pool)?;
        }
        let registers = engine.anchor_wish(None).registers.expect("those of this host");
        let open = |address: &str| registers.tiles(address);
        let wish = ParityWish {
            loss_ppm: self.loss_ppm.unwrap_or(LOSS_PPM),
            tiles: self.tiles.as_deref().map(|address| (address, &open as OpenStore<'_>)),
        };
        if let (Some(_), Some(there)) = (Engine::parity_of(&self.vdevs), held.pool.state().parity) {
            let pool = self.name.clone();
            return Err(refuse::pool(steadfast_pool::Error::ParityThere { pool, path: there.path }));
        }
        self.tiles.as_deref().map_or(Ok(()), stores::look_for)?;
        // Claimed until it is the pool's.
        let parity = engine.open_parity(&self.name, &self.vdevs, self.force)?;
        if let Some((path, file)) = &parity {
            let (devices, medium) = (held.pool.devices(), Box::new(file.clone()));
            devices.add_parity_for(wish, path, medium, self.force, true).map_err(refuse::pool)?;
            devices.add_groups(groups.clone(), self.force, true).map_err(refuse::pool)?;
        }
        if !groups.is_empty() {
            held.pool.devices().add_groups(groups, self.force, self.dry_run).map_err(refuse::pool)?;
        }
        if self.dry_run {
            return Ok(touched(&self.name));
        }
        let is_anchored = anchor.path.is_some() || held.pool.state().anchor.is_some();
        let mut probed = stores::probe_new(&self.vdevs, is_anchored)?;
        // It names no object twice, so two hosts need no winner there.
        if let Some(address) = &self.tiles {
            probed.extend(stores::probe_one(address, true)?);
        }
        if !logs.is_empty() {
            held.pool.zil().add_logs(logs, self.force, false).map_err(refuse::pool)?;
        }
        if !spares.is_empty() {
            held.pool.devices().add_spares(spares, self.force, false).map_err(refuse::pool)?;
        }
        if !caches.is_empty() {
            held.pool.devices().add_caches(caches, self.force, false).map_err(refuse::pool)?;
        }
        if let Some(path) = &anchor.path {
            held.pool.add_anchor(&anchor, self.force, false).map_err(refuse::pool)?;
            engine.post("vdev_add", &held.pool, &self.name, &[("vdev_path", path.clone())]);
        }
        if let Some((path, file)) = parity {
            let (devices, medium) = (held.pool.devices(), Box::new(file));
            devices.add_parity_for(wish, &path, medium, self.force, false).map_err(refuse::pool)?;
            engine.post("vdev_add", &held.pool, &self.name, &[("vdev_path", path)]);
        }
        for path in &paths {
            engine.post("vdev_add", &held.pool, &self.name, &[("vdev_path", path.display().to_string())]);
        }
        held.note_devices(paths);
        engine.log(&held, caller);
        let warnings = engine.remember().err().into_iter().chain(probed).collect();
        Ok(Outcome { touched: vec![self.name.clone()], warnings })
    }
}
