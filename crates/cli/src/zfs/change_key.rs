//! `zfs change-key`.

use super::keys::load_key_of;
use crate::command::Command;
use crate::key;
use crate::options::{Parsed, Syntax, flag, valued};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{FsChangeKey, FsInfo, FsList};
use steadfast_control::{Code, KeyFormat, Refusal};
use steadfast_property::Scope;

pub(super) const COMMAND: Command = Command {
    names: &["change-key"],
    syntax: Syntax {
        flags: &[
            flag('i', "inherit the key of the parent"),
            flag('l', "load the present key first"),
            valued('o', "property=value", "keyformat=, keylocation= or pbkdf2iters= of the new key"),
        ],
        operands: "filesystem",
        least: 1,
        most: 1,
    },
    doc: "Changes the user's key of a file system. Data is not encrypted again.",
    run: change_key,
};

fn change_key(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || format!("cannot change the key of '{}'", tame(&name));
    let properties = assignments(session, Scope::Dataset, parsed.values('o'))?;
    for property in properties.keys() {
        if !matches!(property.as_str(), "keyformat" | "keylocation" | "pbkdf2iters") {
            let sentence = format!("invalid property '{property}': must be keyformat or keylocation");
            return Err(Failure::Usage(sentence));
        }
    }
    let inherit = parsed.has('i');
    if inherit && !properties.is_empty() {
        return Err(Failure::Usage("-i cannot be combined with -o".into()));
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
            let refusal = Refusal::new(Code::KeyNone, "the file system is not encrypted").with("fs", &name);
            return Err(refusal).doing(doing);
        }
        // Refuse before asking for a new passphrase.
        if fs.value("keystatus") != "available" {
            let what = format!("the key of '{root}' is not loaded");
            return Err(Refusal::new(Code::KeyNeeded, what).with("fs", &root)).doing(doing);
        }
        // As in ZFS, which does not guess the format of a first key of its own.
        if root != name && !properties.contains_key("keyformat") {
            let what = format!("'{name}' has the key of '{root}': keyformat= is needed for a key of its own");
            return Err(Refusal::new(Code::KeyRules, what).with("fs", &name)).doing(doing);
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
    let iterations = properties.get("pbkdf2iters").cloned();
    session.ask(FsChangeKey { name: name.clone(), key, location, iterations }).doing(doing)?;
    Ok(())
}

fn look(session: &mut Session<'_, '_>, name: &str) -> Result<FsInfo, Refusal> {
    let found = session.ask(FsList { names: vec![name.to_owned()], depth: Some(0) })?;
    let absent = || Refusal::new(Code::FsAbsent, "the file system does not exist").with("fs", name);
    found.into_iter().next().ok_or_else(absent)
}
