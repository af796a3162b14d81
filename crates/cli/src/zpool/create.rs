//! `zpool create`.

use super::add::{OF_PARITY, parity_wishes};
use super::operands::{FORCE, layout, vdevs};
use crate::command::Command;
use crate::key;
use crate::options::{MANY, Parsed, Syntax, flag, valued};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::path::PathBuf;
use steadfast_control::api::{PoolCreate, Properties, VdevClass, VdevSpec};
use steadfast_control::{Code, Refusal, stores};
use steadfast_property::Scope;

pub(super) const COMMAND: Command = Command {
    names: &["create"],
    syntax: Syntax {
        flags: &[
            FORCE,
            flag('n', "check only, and print the layout"),
            flag('d', "enable no features except those given with -o"),
            valued('m', "mountpoint", "mountpoint of the root file system, or none"),
            valued(
                'o',
                "property=value",
                "a property of the pool; may be repeated; of a parity device loss=PERCENT and tiles=ADDRESS as with add",
            ),
            valued('O', "property=value", "a property of the root file system; may be repeated"),
            valued('t', "name", "name until the export; the devices get the other one"),
            valued('R', "root", "prefix of all mountpoints (altroot); the daemon does not remember the pool"),
        ],
        operands: "pool vdev...",
        least: 2,
        most: MANY,
    },
    doc: "Creates a pool on image files or block devices, and mounts it.",
    run: create,
};

fn create(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || format!("cannot create '{}'", tame(&name));
    let vdevs = vdevs(session, &parsed.operands[1..]).doing(doing)?;
    // As in ZFS, where they are a feature; here they need none.
    let enables = parsed.values('o').any(|set| set == "feature@allocation_classes=enabled");
    if parsed.has('d') && !enables && vdevs.iter().any(|vdev| vdev.class == VdevClass::Special) {
        let what = "a pool without features has no special devices";
        let refusal = Refusal::new(Code::PoolFeature, what).with("feature", "allocation_classes");
        return Err(refusal.advising("Add `-o feature@allocation_classes=enabled`.")).doing(doing);
    }
    let (loss_ppm, tiles) = parity_wishes(parsed)?;
    let of_pool = parsed.values('o').filter(|text| !OF_PARITY.iter().any(|word| text.starts_with(word)));
    let mut properties = assignments(session, Scope::Pool, of_pool)?;
    if parsed.has('d') {
        session.tell(
            "note: -d leaves out optional features only; functions that every pool has, such as raidz_expansion, stay\n",
        );
    }
    if let Some(root) = parsed.value('R') {
        properties.insert("altroot".into(), root.to_owned());
        properties.entry("cachefile".into()).or_insert_with(|| "none".into());
    }
    let mut fs_properties = assignments(session, Scope::Dataset, parsed.values('O'))?;
    // Refuse a bad name before asking for a passphrase.
    steadfast_property::check_pool_name(&name)
        .map_err(steadfast_control::check::name_refusal)
        .doing(doing)?;
    if !parsed.has('f') && session.world.input_is_terminal {
        seal_on_store(session, &name, &vdevs, &mut fs_properties);
    }
    let key = key::of_new(session.world, &name, &fs_properties).doing(doing)?;
    let request = PoolCreate {
        name: name.clone(),
        vdevs: vdevs.clone(),
        force: parsed.has('f'),
        dry_run: parsed.has('n'),
        temporary_name: parsed.value('t').map(str::to_owned),
        no_features: parsed.has('d'),
        mountpoint: parsed.value('m').map(str::to_owned),
        properties,
        fs_properties,
        key,
        loss_ppm,
        tiles,
    };
    let outcome = session.ask(request).doing(doing)?;
    if parsed.has('n') {
        session.line(format!("would create '{name}' with the following layout:\n\n\t{name}"));
        for (depth, word) in layout(&vdevs) {
            session.line(format!("\t{}{word}", "  ".repeat(depth)));
        }
    }
    session.warn(&format!("'{name}' is created, but"), &outcome.warnings);
    Ok(())
}

/// Encrypts a pool on somebody else's store unless the command says otherwise: the passphrase is
/// asked for on the terminal. Without a terminal such a pool is refused.
fn seal_on_store(
    session: &mut Session<'_, '_>,
    name: &str,
    vdevs: &[VdevSpec],
    fs_properties: &mut Properties,
) {
    let mut devices = vdevs.iter().flat_map(|vdev| &vdev.devices);
    let Some(store) = devices.find(|device: &&PathBuf| stores::is_remote(device)) else { return };
    if ["encryption", "keyformat", "keylocation"].iter().any(|said| fs_properties.contains_key(*said)) {
        return;
    }
    fs_properties.insert("encryption".into(), "on".into());
    fs_properties.insert("keyformat".into(), "passphrase".into());
    session.tell(&format!(
        "'{}' is encrypted, so that the provider of {} cannot read it; -f stores it unencrypted\n",
        tame(name),
        tame(&store.to_string_lossy())
    ));
}
