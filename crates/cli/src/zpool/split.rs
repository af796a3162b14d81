//! `zpool split`.

use super::import::{self, mount_option};
use super::operands::device_path;
use super::vdev_tree::{FULL_PATHS, LINKS, label, vdevs};
use crate::command::Command;
use crate::options::{MANY, Parsed, Syntax, flag, valued};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::path::PathBuf;
use steadfast_control::api::{PoolSelector, PoolSplit, Properties, VdevClass, VdevKind};
use steadfast_control::check::vdev_word;
use steadfast_property::Scope;

pub(super) const COMMAND: Command = Command {
    names: &["split"],
    syntax: Syntax {
        flags: &[
            flag('g', "with -n: show the GUIDs of devices instead of their paths"),
            flag('l', "with -R: load keys"),
            LINKS,
            flag('n', "check only, and print the devices of the new pool"),
            valued('o', "property=value", "a property of the new pool; may be repeated"),
            FULL_PATHS,
            valued(
                'R',
                "root",
                "import the new pool with this prefix of all mountpoints (altroot); it is not remembered",
            ),
        ],
        operands: "pool newpool [device]...",
        least: 2,
        most: MANY,
    },
    doc: "Makes a new pool of one device of each mirror: the devices named, or the last of each mirror. \
          Without -R the new pool stays exported.",
    run: split,
};

/// Properties of an import. They are not stored in the pool.
const OF_IMPORT: [&str; 3] = ["altroot", "cachefile", "readonly"];

fn split(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (name, new_name) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    let devices = parsed.operands[2..].iter().map(|word| device_path(session, word)).collect();
    let dry_run = parsed.has('n');
    let (of_import, properties): (Properties, Properties) =
        assignments(session, Scope::Pool, parsed.values('o').map(mount_option))?
            .into_iter()
            .partition(|(name, _)| OF_IMPORT.contains(&name.as_str()));
    if parsed.value('R').is_none() {
        if parsed.has('l') {
            return Err(Failure::Usage("-l: keys are loaded only if -R imports the new pool".into()));
        }
        if let Some(property) = of_import.keys().next() {
            return Err(Failure::Usage(format!(
                "-o {property}: it is a property of an import, and needs -R"
            )));
        }
    }
    let request = PoolSplit { name: name.clone(), new_name: new_name.clone(), devices, dry_run, properties };
    let outcome = session.ask(request).doing(|| format!("cannot split '{}'", tame(&name)))?;
    if dry_run {
        let known = vdevs(session, &name)?;
        session.line(format!("would create '{new_name}' with the following layout:\n\n\t{new_name}"));
        let mut section = VdevClass::Main;
        for device in &outcome.touched {
            let known = known.iter().find(|(vdev, _)| vdev.name == *device).map(|(vdev, _)| vdev);
            let class = known.map_or(VdevClass::Main, |vdev| vdev.class);
            if class != section {
                session.line(format!("\t{}", vdev_word(class, VdevKind::Plain)));
                section = class;
            }
            let label = known.map_or(device.clone(), |vdev| label(vdev, parsed));
            session.line(format!("\t  {}", tame(&label)));
        }
    }
    session.warn(&format!("'{new_name}' is created, but"), &outcome.warnings);
    if let Some(root) = parsed.value('R').filter(|_| !dry_run) {
        let mut properties = of_import;
        properties.insert("altroot".into(), root.to_owned());
        properties.entry("cachefile".into()).or_insert_with(|| "none".into());
        let search: Vec<PathBuf> = outcome.touched.iter().map(PathBuf::from).collect();
        let selector = PoolSelector::Name(new_name.clone());
        import::one(session, parsed, &new_name, selector, None, &search, &properties)?;
    }
    Ok(())
}
