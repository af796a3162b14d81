//! `zfs share` and `zfs unshare`.

use crate::api::{FsShare, FsShares, Outcome, SharedFs};
use crate::caller::Caller;
use crate::check::name_refusal;
use crate::engine::state::{Engine, touched};
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use steadfast_property::check_dataset_name;

impl Verb for FsShare {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, _: &Caller) -> Result<Outcome, Refusal> {
        let (name, held) = (self.name.as_str(), engine.held(&self.name)?);
        held.reap();
        let value = engine.value(&held, name, "sharenfs")?;
        let refuse = |code, what: String| Err(Refusal::new(code, what).with("fs", name));
        if held.mounted_at(name).is_none() {
            return refuse(Code::FsNotMounted, format!("'{name}' is not mounted"));
        }
        if !self.share {
            return match engine.unshare(&held, name) {
                true => Ok(touched(name)),
                false => refuse(Code::FsNotShared, format!("'{name}' is not shared")),
            };
        }
        match engine.share(&held, name)? {
            true => {
                let warnings = held.collected_warning(name).into_iter().chain(engine.share_warning());
                Ok(Outcome { warnings: warnings.collect(), ..touched(name) })
            }
            false => refuse(Code::FsNotShared, format!("'{name}' has sharenfs={value}")),
        }
    }
}

/// No shares: because none is wanted, or because nobody can listen for their clients.
fn unheard(engine: &Engine) -> Result<Vec<SharedFs>, Refusal> {
    let pools = engine.select(&[])?;
    match pools.iter().find_map(|(_, held)| engine.share_trouble(held)) {
        Some(trouble) => Err(trouble),
        None => Ok(Vec::new()),
    }
}

impl Verb for FsShares {
    const IN_TURN: bool = false;

    fn run(self, engine: &Engine, _: &Caller) -> Result<Vec<SharedFs>, Refusal> {
        let Some(address) = engine.shares.address() else { return unheard(engine) };
        let mut shared = Vec::new();
        for (_, held) in engine.select(&[])? {
            let mounts = held.mounts.lock();
            for (name, mount) in mounts.iter().filter(|(_, mount)| !mount.served.has_ended()) {
                let Some(share) = &mount.share else { continue };
                let path = mount.at.display().to_string();
                let (name, address) = (name.clone(), address.to_string());
                shared.push(SharedFs { name, path, address, clients: share.clients() });
            }
        }
        Ok(shared)
    }
}
