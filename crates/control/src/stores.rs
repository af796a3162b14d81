//! Stores of whole objects as commands and the daemon open them: an address, the credentials of
//! this process, and a client. Their failures as refusals.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use steadfast_bucket::probe::{self, Outcome};
use steadfast_bucket::{
    Client, Credentials, Error, Location, LocationError, Store, Surroundings, Tuning, credentials,
};
use steadfast_device::Device;
use steadfast_format::object_names::POOL;

use crate::api::{VdevClass, VdevSpec};
use crate::refusal::{Code, Refusal};
use crate::{engine, meters};

/// Reads an address, without the wish of a capacity behind it.
///
/// # Errors
/// [`Code::StoreAddress`].
pub fn location(address: &str) -> Result<Location, Refusal> {
    Ok(wished(address)?.split_capacity().0)
}

/// Reads an address with the wish of a capacity, if there is one.
///
/// # Errors
/// [`Code::StoreAddress`].
pub fn wished(address: &str) -> Result<Location, Refusal> {
    // The address is not repeated: it may hold a secret.
    address.parse().map_err(|error: LocationError| {
        Refusal::new(Code::StoreAddress, error.to_string().trim_end_matches('.').to_owned())
    })
}

/// Opens the store at an address. No request is made.
///
/// # Errors
/// [`Code::StoreKeys`], [`Code::StoreFailed`].
pub fn open(location: Location, tuning: Tuning) -> Result<Client, Refusal> {
    let found = keys(&location)?;
    meters::open(location, &found, tuning).map_err(|error| refusal(&error))
}

/// Opens the store at an address to look at what a pool keeps there. Nothing is changed, and a
/// daemon may use it.
///
/// # Errors
/// [`Code::PoolNotFound`] if no pool is stored there, and those of [`open`].
pub fn look(address: &Path) -> Result<Arc<dyn Device>, Refusal> {
    engine::look_at_store(address)
}

/// Finds the keys of a store beside its address.
pub(crate) fn keys(location: &Location) -> Result<Credentials, Refusal> {
    let around = Surroundings {
        variable: &|name| std::env::var(name).ok(),
        home: std::env::var_os("HOME").map(PathBuf::from),
        user: rustix::process::getuid().as_raw(),
    };
    credentials::find(location, &around).map_err(|error| {
        Refusal::new(Code::StoreKeys, error.to_string().trim_end_matches('.').to_owned())
            .with("store", location.to_string())
    })
}

/// True if a device's name is the address of a store rather than a path.
#[must_use]
pub fn is_address(device: &Path) -> bool {
    device.to_str().is_some_and(Location::is_meant)
}

/// True if a device's bytes leave this machine.
#[must_use]
pub fn is_remote(device: &Path) -> bool {
    is_address(device)
        && device.to_str().and_then(|text| text.parse().ok()).is_some_and(|found: Location| found.is_remote())
}

/// Refuses to put a pool that is not sealed on a store: its provider reads everything that is not
/// encrypted.
///
/// # Errors
/// [`Code::StoreClear`].
pub(crate) fn check_clear(vdevs: &[VdevSpec], is_sealed: bool, force: bool) -> Result<(), Refusal> {
    let mut devices = vdevs.iter().flat_map(|vdev| &vdev.devices);
    let Some(device) = devices.find(|device| is_remote(device)).filter(|_| !is_sealed && !force) else {
        return Ok(());
    };
    let what = format!("the provider of {} could read everything in an unencrypted pool", device.display());
    Err(Refusal::new(Code::StoreClear, what).with("device", device.display()))
}

/// Probes stores that are to become devices, in the short form. Refuses those that would lose data,
/// and without an anchor those that let two hosts win. Gives warnings.
///
/// # Errors
/// [`Code::StoreUnfit`], [`Code::StoreUnfenced`], [`Code::StoreFailed`].
pub(crate) fn probe_new(vdevs: &[VdevSpec], is_anchored: bool) -> Result<Vec<Refusal>, Refusal> {
    let holds_segments = |vdev: &&VdevSpec| matches!(vdev.class, VdevClass::Main | VdevClass::Special);
    let devices = vdevs.iter().filter(holds_segments).flat_map(|vdev| &vdev.devices);
    let mut warnings = Vec::new();
    for device in devices.filter(|device| is_remote(device)) {
        warnings.extend(probe_one(device.to_str().unwrap_or_default(), is_anchored)?);
    }
    Ok(warnings)
}

/// Looks whether a store can be opened, and answers if it is a remote one. Nothing is written.
///
/// # Errors
/// [`Code::StoreAddress`], [`Code::StoreKeys`], [`Code::StoreFailed`].
pub(crate) fn look_for(address: &str) -> Result<(), Refusal> {
    let address = location(address)?;
    let is_remote = address.is_remote();
    let client = open(address, Tuning::impatient())?;
    match is_remote {
        true => client.list(POOL).map(drop).map_err(|error| refusal(&error)),
        false => Ok(()),
    }
}

/// Probes one store, if its bytes leave this machine. Without an anchor it must let one of two
/// hosts win.
///
/// # Errors
/// As of [`probe_new`].
pub(crate) fn probe_one(address: &str, is_anchored: bool) -> Result<Option<Refusal>, Refusal> {
    let address = location(address)?;
    if !address.is_remote() {
        return Ok(None);
    }
    let client = open(address, Tuning::impatient())?;
    let report = probe::short(&client).map_err(|error| refusal(&error))?;
    let bad = |name: &str| report.check(name).filter(|check| check.outcome == Outcome::Bad);
    let told = |code, check: &probe::Check| {
        let what = format!("{}: {}: {}", report.address, check.name, check.found);
        Refusal::new(code, what).with("device", &report.address).with("store", &report.address)
    };
    if let Some(check) = ["read after write", "ranges"].into_iter().find_map(bad) {
        return Err(told(Code::StoreUnfit, check));
    }
    if let Some(check) = bad("race of creates").filter(|_| !is_anchored) {
        return Err(told(Code::StoreUnfenced, check));
    }
    Ok(bad("lifecycle").map(|check| told(Code::StoreExpires, check)))
}

/// A failure of a store as a refusal, with the store's own answer as fields.
#[must_use]
pub fn refusal(error: &Error) -> Refusal {
    let whole = error.to_string();
    let what = whole.strip_suffix(error.class.action()).unwrap_or(&whole).trim_end_matches(['.', ' ']);
    let mut refusal = Refusal::new(Code::StoreFailed, what)
        .advising(error.class.action())
        .with("store", &error.device)
        .with("class", error.class.word());
    if let Some(status) = error.status {
        refusal = refusal.with("status", status);
    }
    if let Some(id) = &error.request_id {
        refusal = refusal.with("request", id);
    }
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_a_secret_is_refused_without_it() {
        let refusal = location("s3://AKIA:hunter2@bucket").unwrap_err();
        assert_eq!(refusal.code, Code::StoreAddress);
        assert!(!format!("{refusal:?}").contains("hunter2"), "{refusal:?}");
        assert!(location("s3://bucket/tank?endpoint=http://127.0.0.1:1").is_ok());
    }

    #[test]
    fn a_folder_that_is_not_there_is_told_with_its_way_out() {
        let refusal = open(location("file:///no/such/folder").unwrap(), Tuning::impatient()).err().unwrap();
        assert_eq!((refusal.code, refusal.fields["class"].as_str()), (Code::StoreFailed, "no-bucket"));
        assert!(refusal.what.contains("/no/such/folder"), "{}", refusal.what);
        assert!(refusal.action.starts_with("Create the bucket"), "{}", refusal.action);
    }
}
