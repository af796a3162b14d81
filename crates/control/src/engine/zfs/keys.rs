//! `zfs load-key`, `zfs unload-key` and `zfs change-key`; keys of new file systems.

use crate::api::{FsChangeKey, FsLoadKey, FsUnloadKey, Outcome, Properties};
use crate::caller::Caller;
use crate::check::{name_refusal, property_refusal};
use crate::engine::refuse;
use crate::engine::state::{Engine, ImportedPool, touched};
use crate::engine::verb::Verb;
use crate::refusal::{Code, Refusal};
use crate::secret::{Key, KeyFormat};
use std::sync::Arc;
use steadfast_property::{Scope, check_dataset_name, parse_assignment};
use zeroize::Zeroizing;

impl Verb for FsLoadKey {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)?;
        self.key.check().map_err(|error| Refusal::new(Code::KeyFormat, error.to_string()))
    }

    fn run(self, engine: &Engine, _: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held(&self.name)?;
        let secret = secret(&self.key);
        held.pool.datasets().load_key(&self.name, &secret, self.dry_run).map_err(refuse::pool)?;
        Ok(touched(&self.name))
    }
}

/// Volumes that take their key from `root`.
fn volumes_of(held: &ImportedPool, root: &str) -> Vec<String> {
    let is_one = |name: &String| {
        let info = held.pool.datasets().dataset_info(name).ok();
        info.is_some_and(|info| info.volume.is_some() && info.encryption_root.as_deref() == Some(root))
    };
    held.pool.datasets().names().into_iter().filter(is_one).collect()
}

impl Verb for FsUnloadKey {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)
    }

    fn run(self, engine: &Engine, _: &Caller) -> Result<Outcome, Refusal> {
        let held = engine.held(&self.name)?;
        held.reap();
        // As in ZFS, where a volume is in use only while somebody has it open.
        let busy = |refusal: Refusal| Refusal::new(Code::KeyBusy, refusal.what).with("fs", &self.name);
        let left = engine.leave(&held, &volumes_of(&held, &self.name), false).map_err(busy)?;
        let unloaded = held.pool.datasets().unload_key(&self.name);
        if unloaded.is_err() {
            let _ = engine.mount_placed(&held, left);
        }
        unloaded.map_err(|error| match error {
            steadfast_pool::Error::Busy { name } => {
                Refusal::new(Code::KeyBusy, format!("'{name}' is mounted and needs the key")).with("fs", name)
            }
            steadfast_pool::Error::KeyNotLoaded { name } => {
                Refusal::new(Code::KeyUnloaded, format!("the key of '{name}' is not loaded")).with("fs", name)
            }
            other => refuse::pool(other),
        })?;
        Ok(touched(&self.name))
    }
}

impl Verb for FsChangeKey {
    fn check(&mut self) -> Result<(), Refusal> {
        check_dataset_name(&self.name).map_err(name_refusal)?;
        if let Some(key) = &self.key {
            key.check().map_err(|error| Refusal::new(Code::KeyFormat, error.to_string()))?;
        }
        if let Some(location) = &self.location {
            let text = format!("keylocation={location}");
            let (_, exact) = parse_assignment(Scope::Dataset, &text).map_err(property_refusal)?;
            self.location = Some(exact);
        }
        if let Some(iterations) = &self.iterations {
            let text = format!("pbkdf2iters={iterations}");
            let (_, exact) = parse_assignment(Scope::Dataset, &text).map_err(property_refusal)?;
            self.iterations = Some(exact);
        }
        if self.key.is_none() && self.location.is_some() {
            return Err(Refusal::new(
                Code::KeyRules,
                "-i (inherit the key) cannot be combined with keylocation=",
            ));
        }
        Ok(())
    }

    fn run(self, engine: &Engine, caller: &Caller) -> Result<Outcome, Refusal> {
        let name = self.name.as_str();
        let held = engine.held(name)?;
        let info = held.pool.datasets().dataset_info(name).map_err(refuse::pool)?;
        let Some(root) = &info.encryption_root else {
            let what = format!("'{name}' is not encrypted");
            return Err(Refusal::new(Code::KeyNone, what).with("fs", name));
        };
        // Before a passphrase is stretched.
        if !info.key_loaded {
            let what = format!("the key of '{root}' is not loaded");
            return Err(Refusal::new(Code::KeyNeeded, what).with("fs", root));
        }
        let key = self.key.as_ref().map(|key| engine.new_key(key)).transpose()?;
        let location = match &self.location {
            Some(location) => Some(location.as_str()),
            None if root != name => Some("prompt"),
            None => None,
        };
        held.pool
            .datasets()
            .change_key(name, key, location.filter(|_| self.key.is_some()))
            .map_err(refuse::pool)?;
        if let Some(iterations) = &self.iterations {
            let change = [("pbkdf2iters", Some(iterations.as_str()))];
            held.pool.datasets().set_properties(name, &change).map_err(refuse::pool)?;
        }
        engine.log(&held, caller);
        Ok(touched(name))
    }
}

impl Engine {
    pub(in crate::engine) fn new_key(&self, key: &Key) -> Result<steadfast_pool::NewKey, Refusal> {
        let format = match key.format {
            KeyFormat::Passphrase => steadfast_format::KeyFormat::Passphrase,
            KeyFormat::Raw => steadfast_format::KeyFormat::Raw,
            KeyFormat::Hex => steadfast_format::KeyFormat::Hex,
        };
        let random = |out: &mut [u8]| self.env.random.fill(out);
        let secret = secret(key);
        let user = steadfast_pool::new_user_key(format, &secret, &random, None).map_err(refuse::pool)?;
        Ok(steadfast_pool::NewKey { user: Arc::new(user) })
    }
}

/// Makes encryption, keyformat and keylocation of a new file system agree with its parent and its
/// key.
///
/// # Errors
/// [`Code::KeyRules`].
pub(in crate::engine) fn key_rules(
    properties: &mut Properties,
    parent_root: Option<&str>,
    key: Option<&Key>,
) -> Result<(), Refusal> {
    let rules = |what: String| Err(Refusal::new(Code::KeyRules, what));
    let encryption = properties.get("encryption").map(String::as_str);
    match (encryption, parent_root, key) {
        (None, None, Some(_)) | (Some("off"), _, Some(_)) => {
            rules("keyformat= is given without encryption=on".into())
        }
        (Some(cipher), None, None) if cipher != "off" => {
            rules(format!("encryption={cipher} is given without keyformat="))
        }
        (_, _, Some(key)) => {
            properties.entry("encryption".into()).or_insert_with(|| "aes-256-gcm".into());
            properties.insert("keyformat".into(), key.format.as_str().into());
            properties.entry("keylocation".into()).or_insert_with(|| "prompt".into());
            Ok(())
        }
        (_, _, None) => {
            properties.remove("keyformat");
            Ok(())
        }
    }
}

/// A key in the form that the room `pool` reads: passphrase and raw key as they are, a hex key as
/// digits.
pub(in crate::engine) fn secret(key: &Key) -> Zeroizing<Vec<u8>> {
    let bytes = key.secret.expose();
    if key.format != KeyFormat::Hex {
        return Zeroizing::new(bytes.to_vec());
    }
    let digit = |half: u8| b"0123456789abcdef"[usize::from(half)];
    Zeroizing::new(bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect())
}
