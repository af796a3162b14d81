//! `zfs rename` and `zfs change-key`.

use crate::family::{Doing, Failure, Session};
use crate::key;
use crate::options::Parsed;
use crate::table::tame;
use crate::zfs::load_key_of;
use crate::zpool::assignments;
use steadfast_control::api::{FsChangeKey, FsInfo, FsList, FsRename};
use steadfast_control::{Code, KeyFormat, Refusal};

pub(crate) fn rename(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (name, to) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    let doing = || format!("cannot rename '{}'", tame(&name));
    if name.contains('@') {
        return crate::zfs_keep::rename(session, parsed);
    }
    if parsed.has('r') {
        let what = "-r is for snapshots; a file system takes all below it along";
        return Err(Refusal::new(Code::NameInvalid, what)).doing(doing);
    }
    let request = FsRename {
        name: name.clone(),
        to: to.clone(),
        parents: parsed.has('p'),
        force: parsed.has('f'),
        no_remount: parsed.has('u'),
    };
    let outcome = session.ask(request).doing(doing)?;
    session.warn(&format!("'{name}' is '{to}' now, but"), &outcome.warnings);
    Ok(())
}

pub(crate) fn change_key(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || format!("cannot change the key of '{}'", tame(&name));
    let properties = assignments(parsed.values('o'))?;
    for property in properties.keys() {
        if !matches!(property.as_str(), "keyformat" | "keylocation") {
            let sentence = if property == "pbkdf2iters" {
                "passphrases are stretched by Argon2id, which has no pbkdf2iters".to_owned()
            } else {
                format!("'{property}' is none of keyformat and keylocation")
            };
            return Err(Failure::Usage(sentence));
        }
    }
    let inherit = parsed.has('i');
    if inherit && !properties.is_empty() {
        return Err(Failure::Usage("an inherited key (-i) has no properties of its own".into()));
    }
    if parsed.has('l') {
        load_key_of(session, &name)?;
    }
    let location = properties.get("keylocation").cloned();
    let key = if inherit {
        None
    } else {
        let fs = look(session, &name).doing(doing)?;
        let root = fs.value("encryptionroot").to_owned();
        if matches!(root.as_str(), "" | "-" | "none") {
            let refusal = Refusal::new(Code::KeyNone, "it is not encrypted").with("fs", &name);
            return Err(refusal).doing(doing);
        }
        // Told before a new passphrase is asked for.
        if fs.value("keystatus") != "available" {
            let what = format!("the key of '{root}' is not loaded");
            return Err(Refusal::new(Code::KeyNeeded, what).with("fs", &root)).doing(doing);
        }
        let own = if root == name { fs } else { look(session, &root).doing(doing)? };
        let format = properties.get("keyformat").map_or(own.value("keyformat"), String::as_str);
        let Some(format) = KeyFormat::parse(format) else {
            let what = format!("'keyformat' must be passphrase, raw or hex, not '{}'", tame(format));
            return Err(Refusal::new(Code::PropValue, what).with("property", "keyformat")).doing(doing);
        };
        let here = if root == name { own.value("keylocation") } else { "prompt" };
        let from = location.as_deref().unwrap_or(here);
        Some(key::obtain(session.world, &name, format, from, true).doing(doing)?)
    };
    session.ask(FsChangeKey { name: name.clone(), key, location }).doing(doing)?;
    Ok(())
}

fn look(session: &mut Session<'_, '_>, name: &str) -> Result<FsInfo, Refusal> {
    let found = session.ask(FsList { names: vec![name.to_owned()], depth: Some(0) })?;
    let absent = || Refusal::new(Code::FsAbsent, "it does not exist").with("fs", name);
    found.into_iter().next().ok_or_else(absent)
}
