//! `zfs create`.

use crate::command::Command;
use crate::key;
use crate::options::{Parsed, Syntax, flag, valued};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::Code;
use steadfast_control::api::{FsCreate, NewVolume, Properties};
use steadfast_property::{Scope, is_too_large, note, parse_assignment, parse_size, volume_reservation};

pub(super) const COMMAND: Command = Command {
    names: &["create"],
    syntax: Syntax {
        flags: &[
            flag('p', "create missing parents; succeed if the file system exists"),
            flag('n', "check only"),
            flag('u', "do not mount"),
            flag('v', "print names and properties"),
            flag('P', "print names and properties, for scripts"),
            valued('o', "property=value", "a property; may be repeated"),
            valued('V', "size", "a volume of this size: one file, exported over NBD as a block device"),
            valued('b', "blocksize", "with -V: the property volblocksize"),
            flag('s', "with -V: sparse, without a reservation"),
        ],
        operands: "filesystem|volume",
        least: 1,
        most: 1,
    },
    doc: "Creates a file system or a volume, and mounts it.",
    run: create,
};

fn create(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || format!("cannot create '{}'", tame(&name));
    let mut properties = assignments(session, Scope::Dataset, parsed.values('o'))?;
    let volume = new_volume(parsed, &mut properties)?;
    if volume.is_some() && parsed.has('u') {
        return Err(Failure::Usage("-u is for file systems: a volume is not mounted".into()));
    }
    let block = parsed.value('b').and_then(|block| note(Scope::Dataset, "volblocksize", block));
    if let Some(note) = block {
        session.tell(&format!("note: {}\n", tame(&note)));
    }
    let bytes = volume.as_ref().map(|volume| volume.bytes);
    // Told below, and set where the volume is made.
    let reserved =
        volume.as_ref().filter(|volume| !volume.sparse && !properties.contains_key("refreservation"));
    let block = properties.get("volblocksize").map_or("16384", String::as_str);
    let block = parse_assignment(Scope::Dataset, &format!("volblocksize={block}")).map(|(_, exact)| exact);
    let block = block.ok().and_then(|exact| exact.parse().ok()).unwrap_or(1);
    let copies = properties.get("copies").and_then(|copies| copies.parse().ok()).unwrap_or(1);
    let reserved = reserved.map(|volume| {
        ("refreservation".to_owned(), volume_reservation(volume.bytes, block, copies).to_string())
    });
    steadfast_property::check_dataset_name(&name)
        .map_err(steadfast_control::check::name_refusal)
        .doing(doing)?;
    let key = key::of_new(session.world, &name, &properties).doing(doing)?;
    let request = FsCreate {
        name: name.clone(),
        parents: parsed.has('p'),
        no_mount: parsed.has('u'),
        dry_run: parsed.has('n'),
        properties: properties.clone(),
        key,
        volume,
    };
    let outcome = session.ask(request).doing(doing)?;
    if parsed.has('P') && !outcome.touched.is_empty() {
        if parsed.has('p') {
            session.line(format!("create_ancestors\t{name}"));
        }
        session.line(format!("create\t{name}"));
        let size = bytes.map(|bytes| ("volsize".to_owned(), bytes.to_string()));
        let exact = properties.iter().map(|(property, value)| {
            let exact = parse_assignment(Scope::Dataset, &format!("{property}={value}"));
            exact.unwrap_or_else(|_| (property.clone(), value.clone()))
        });
        for (property, value) in size.into_iter().chain(exact).chain(reserved) {
            session.line(format!("property\t{property}\t{}", tame(&value)));
        }
    } else if parsed.has('v') {
        for created in &outcome.touched {
            session.line(format!("{} {created}", if parsed.has('n') { "would create" } else { "create" }));
        }
        for (name, value) in properties.into_iter().chain(reserved) {
            session.line(format!("property {name}={}", tame(&value)));
        }
    }
    if bytes.is_some() && outcome.warnings.iter().all(|warning| warning.code == Code::FsMountpoint) {
        // A volume of ZFS has no place among the files that could be taken.
        for warning in &outcome.warnings {
            session.tell(&format!("note: {}\n", tame(&warning.what)));
        }
        return Ok(());
    }
    session.warn(&format!("cannot mount '{}'", tame(&name)), &outcome.warnings);
    if !outcome.warnings.is_empty() {
        // The words of ZFS, which programs look for.
        let kind = if bytes.is_some() { "volume" } else { "filesystem" };
        let is_roots = outcome.warnings.iter().any(|warning| warning.code == Code::PeerRights);
        let but = if is_roots { "it may only be mounted by root" } else { "not mounted" };
        session.tell(&format!("{kind} successfully created, but {but}\n"));
    }
    Ok(())
}

/// The volume that `-V`, `-b` and `-s` describe.
fn new_volume(parsed: &Parsed, properties: &mut Properties) -> Result<Option<NewVolume>, Failure> {
    let Some(size) = parsed.value('V') else {
        return match parsed.value('b').is_some() || parsed.has('s') {
            true => Err(Failure::Usage("-b and -s need -V: they are for volumes".into())),
            false => Ok(None),
        };
    };
    let Some(bytes) = parse_size(size).filter(|bytes| *bytes > 0) else {
        if is_too_large(size) {
            let sentence = format!("bad volume size '{}': numerical value is too large", tame(size));
            return Err(Failure::Usage(sentence));
        }
        return Err(Failure::Usage(format!(
            "invalid volume size '{}': must be a size such as 10G",
            tame(size)
        )));
    };
    if let Some(block) = parsed.value('b')
        && properties.insert("volblocksize".into(), block.to_owned()).is_some()
    {
        return Err(Failure::Usage(
            "the block size is specified twice, with -b and with -o volblocksize".into(),
        ));
    }
    Ok(Some(NewVolume { bytes, sparse: parsed.has('s') }))
}
