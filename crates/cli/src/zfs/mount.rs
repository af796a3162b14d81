//! `zfs mount`.

use super::keys::{load_key_of, load_keys_below};
use crate::command::Command;
use crate::json;
use crate::options::{JSON, Parsed, Syntax, flag, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::Code;
use steadfast_control::api::{FsInfo, FsList, FsMount};

pub(super) const COMMAND: Command = Command {
    names: &["mount"],
    syntax: Syntax {
        flags: &[
            flag('a', "all file systems with canmount=on"),
            flag('R', "the file system, and all below it with canmount=on"),
            JSON,
            flag('l', "load keys first"),
            flag('f', "accepted, no effect"),
            flag('O', "overlay: even if the folder is not empty"),
            flag('v', "print the mounted file systems"),
            valued('o', "options", "options of this mount: ro, noexec and others"),
        ],
        operands: "[filesystem]...",
        least: 0,
        most: usize::MAX,
    },
    doc: "Mounts file systems. Without a name, lists the mounted ones.",
    run: mount,
};

fn mount(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let options: Vec<String> = parsed.values('o').flat_map(|o| o.split(',')).map(str::to_owned).collect();
    if parsed.has('R') {
        return mount_trees(session, parsed, &options);
    }
    if parsed.operands.len() > 1 {
        return Err(Failure::Usage("too many arguments: several file systems take -R".into()));
    }
    match (parsed.has('a'), parsed.operands.first()) {
        (true, Some(_)) => Err(Failure::Usage("too many arguments: -a means all".into())),
        (false, None) if parsed.has('j') => {
            let mounted = mounted(session)?;
            let entry = |fs: &FsInfo| {
                let value = serde_json::json!({ "filesystem": fs.name, "mountpoint": place(fs) });
                (fs.name.clone(), value)
            };
            let mut document = json::document("zfs mount");
            let map: serde_json::Map<String, serde_json::Value> = mounted.iter().map(entry).collect();
            document.insert("datasets".into(), map.into());
            session.line(json::text(document));
            Ok(())
        }
        (false, None) => {
            for fs in mounted(session)? {
                session.line(format!("{:<30}  {}", tame(&fs.name), tame(&place(&fs))));
            }
            Ok(())
        }
        (true, None) => {
            let pools = session.ask(FsList::default()).doing(|| "cannot list datasets".into())?;
            if parsed.has('l') {
                for pool in pools.iter().filter(|fs| !fs.name.contains('/')) {
                    load_keys_below(session, &pool.name)?;
                }
            }
            for pool in pools.iter().filter(|fs| !fs.name.contains('/')) {
                mount_below(session, &pool.name, &options, parsed.has('O'), parsed.has('v'))?;
            }
            Ok(())
        }
        (false, Some(name)) => {
            let doing = || format!("cannot mount '{}'", tame(name));
            if parsed.has('l') {
                load_key_of(session, name)?;
            }
            let request =
                FsMount { name: name.clone(), at: None, options: options.clone(), overlay: parsed.has('O') };
            let outcome = session.ask(request).doing(doing)?;
            session.warn(&format!("'{name}' is mounted, but"), &outcome.warnings);
            Ok(())
        }
    }
}

/// Mounts file systems and all below them with canmount=on (`-R`).
fn mount_trees(session: &mut Session<'_, '_>, parsed: &Parsed, options: &[String]) -> Result<(), Failure> {
    if parsed.operands.is_empty() || parsed.has('a') {
        return Err(Failure::Usage(
            "missing filesystem argument: -R needs one, and cannot be combined with -a".into(),
        ));
    }
    parsed.operands.iter().try_for_each(|name| mount_tree(session, parsed, name, options))
}

fn mount_tree(
    session: &mut Session<'_, '_>,
    parsed: &Parsed,
    name: &str,
    options: &[String],
) -> Result<(), Failure> {
    let doing = || format!("cannot mount '{}'", tame(name));
    let found = session.ask(FsList { names: vec![name.to_owned()], depth: Some(0) }).doing(doing)?;
    if parsed.has('l') {
        load_keys_below(session, name)?;
    }
    let overlay = parsed.has('O');
    // Skip a file system that is not mountable.
    let is_place = |fs: &FsInfo| fs.value("canmount") != "off" && fs.value("mountpoint").starts_with('/');
    if found.iter().all(|fs| fs.mounted_at.is_none() && is_place(fs)) {
        let request = FsMount { name: name.to_owned(), at: None, options: options.to_vec(), overlay };
        let outcome = session.ask(request).doing(doing)?;
        session.warn(&format!("'{name}' is mounted, but"), &outcome.warnings);
    }
    mount_below(session, name, options, overlay, parsed.has('v'))
}

/// The mountpoint in use, or `-`.
fn place(fs: &FsInfo) -> String {
    fs.mounted_at.as_ref().map_or_else(|| "-".to_owned(), |at| at.display().to_string())
}

pub(super) fn mounted(session: &mut Session<'_, '_>) -> Result<Vec<FsInfo>, Failure> {
    let mut all = session.ask(FsList::default()).doing(|| "cannot list datasets".into())?;
    all.retain(|fs| fs.mounted_at.is_some());
    Ok(all)
}

/// Mounts all file systems at and below `name` with canmount=on. Prints those that cannot be
/// mounted.
///
/// # Errors
/// The file systems cannot be listed.
pub(crate) fn mount_all_below(session: &mut Session<'_, '_>, name: &str) -> Result<(), Failure> {
    mount_below(session, name, &[], false, false)
}

fn mount_below(
    session: &mut Session<'_, '_>,
    name: &str,
    options: &[String],
    overlay: bool,
    verbose: bool,
) -> Result<(), Failure> {
    let all = session
        .ask(FsList { names: vec![name.to_owned()], depth: None })
        .doing(|| format!("cannot list '{}'", tame(name)))?;
    for fs in all {
        let wanted = fs.mounted_at.is_none()
            && fs.value("canmount") == "on"
            && fs.value("mountpoint").starts_with('/')
            && fs.value("keystatus") != "unavailable";
        if !wanted {
            continue;
        }
        let request = FsMount { name: fs.name.clone(), at: None, options: options.to_vec(), overlay };
        match session.ask(request) {
            Ok(outcome) => {
                if verbose {
                    session.line(format!("{} at {}", tame(&fs.name), tame(fs.value("mountpoint"))));
                }
                session.warn(&format!("'{}' is mounted, but", fs.name), &outcome.warnings);
            }
            // A volume of ZFS has no place among the files that could be taken.
            Err(refusal) if refusal.code == Code::FsMountpoint && fs.value("type") == "volume" => {
                session.tell(&format!("note: {}\n", tame(&refusal.what)));
            }
            Err(refusal) => session.complain(&format!("cannot mount '{}'", tame(&fs.name)), &refusal),
        }
    }
    Ok(())
}
