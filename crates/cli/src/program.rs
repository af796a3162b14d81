//! Finds the command of a command line and runs it.

use crate::catalog::CATALOG;
use crate::command::{Command, FAILED, Family, NotBuilt, SUCCESS, USAGE};
use crate::json;
use crate::message::{Words, refused};
use crate::session::{Failure, Session};
use crate::steadfast::bench;
use crate::table::tame;
use crate::world::World;
use crate::{catalog, zfs, zpool};
use std::path::Path;
use steadfast_control::{Code, Refusal};
use steadfast_property::{Scope, nearest, usage_list};

/// Version of OpenZFS whose commands and options ours follow.
const ZFS_VERSION: &str = "2.3.0";

/// Runs a command line. The first word is the name by which the program was called. Returns the
/// exit status.
pub fn run(world: &mut World<'_>, arguments: &[String]) -> u8 {
    let called = arguments.first().map_or("steadfast", String::as_str);
    let name = Path::new(called).file_name().map_or("steadfast".into(), |n| n.to_string_lossy());
    let mut rest = arguments.get(1..).unwrap_or_default();
    let (family, words) = match &*name {
        "zpool" => (&zpool::FAMILY, Words::Zfs),
        "zfs" => (&zfs::FAMILY, Words::Zfs),
        "vdbench" => return (bench::BENCH.run)(world, rest),
        name if CATALOG.mount_names.contains(&name) => {
            return one(world, (CATALOG.mount, None), Words::Own, name, rest);
        }
        _ => {
            if let [option, dir, tail @ ..] = rest
                && option == "--runtime-dir"
            {
                world.surroundings.runtime_dir = Some(world.absolute(dir));
                rest = tail;
            }
            match rest.first().map(String::as_str) {
                Some("pool") => {
                    rest = &rest[1..];
                    (&zpool::FAMILY, Words::Own)
                }
                Some("fs") => {
                    rest = &rest[1..];
                    (&zfs::FAMILY, Words::Own)
                }
                _ => (&catalog::FAMILY, Words::Own),
            }
        }
    };
    let shown = match words {
        Words::Zfs => family.name,
        Words::Own => family.own,
    };
    let Some((verb, tail)) = rest.split_first() else {
        print(world, true, &format!("missing command\n{}", family.help(shown)));
        return USAGE;
    };
    match verb.as_str() {
        "help" if tail == ["properties"] => {
            print(world, false, &steadfast_property::document());
            SUCCESS
        }
        "-h" | "-?" | "--help" | "help" => {
            print(world, false, &family.help(shown));
            SUCCESS
        }
        "-V" | "--version" | "version" => {
            let ours = env!("CARGO_PKG_VERSION");
            let text = match words {
                Words::Zfs if tail.iter().any(|word| word == "-j" || word == "--json") => {
                    let mut document = json::document(&format!("{} version", family.name));
                    let version = serde_json::json!({
                        "userland": format!("zfs-{ZFS_VERSION}"),
                        "kernel": format!("steadfast-{ours}"),
                    });
                    document.insert("zfs_version".into(), version);
                    json::text(document) + "\n"
                }
                // Programs read the first number behind `zfs-` to know the options.
                Words::Zfs => format!("zfs-{ZFS_VERSION}\nsteadfast-{ours}\n"),
                Words::Own => format!("steadfast-{ours}\n"),
            };
            print(world, false, &text);
            SUCCESS
        }
        verb => {
            if let Some(command) = family.commands.iter().find(|c| c.names.contains(&verb)) {
                let listed = listed_properties(family, command);
                return one(world, (command, listed), words, &format!("{shown} {verb}"), tail);
            }
            if let Some(door) = family.doors.iter().find(|door| door.name == verb) {
                return (door.run)(world, tail);
            }
            if let Some(NotBuilt { reason, instead, .. }) = family.not_built.iter().find(|c| c.name == verb) {
                let refusal = Refusal::new(Code::Later, format!("'{shown} {verb}' is not built: {reason}"));
                let refusal = if instead.is_empty() { refusal } else { refusal.advising(instead) };
                let text = refused("", &refusal, words, world.explains, shown);
                print(world, true, &text);
                return FAILED;
            }
            let names =
                family.commands.iter().flat_map(|c| c.names).chain(family.doors.iter().map(|d| &d.name));
            let meant = nearest(verb, names.copied()).map(|name| format!(": did you mean '{name}'?"));
            let sentence = format!("unrecognized command '{verb}'{}", meant.unwrap_or_default());
            print(world, true, &misused(&sentence, shown));
            USAGE
        }
    }
}

/// The properties that belong to the usage of a command. As in ZFS: programs take names there.
fn listed_properties(family: &Family, command: &Command) -> Option<Scope> {
    let takes_some = matches!(command.names[0], "get" | "set" | "inherit");
    match family.name {
        "zfs" if takes_some => Some(Scope::Dataset),
        "zpool" if takes_some => Some(Scope::Pool),
        _ => None,
    }
}

/// Runs a command. Its usage may have a list of properties.
fn one(
    world: &mut World<'_>,
    (command, listed): (&Command, Option<Scope>),
    words: Words,
    shown: &str,
    tail: &[String],
) -> u8 {
    let usage = |sentence: &str| {
        let list = listed.map_or_else(String::new, |scope| format!("\n{}", usage_list(scope)));
        let (syntax, options) = (command.syntax.usage(), command.syntax.explain());
        format!("{sentence}\nusage:\n    {shown}{syntax}\n{options}{list}")
    };
    // A verb alone asks for its usage: programs look there for the options that they need.
    let unusable = |sentence: &str| match tail.is_empty() {
        true => format!("{}{}", usage(command.doc), misused(sentence, shown)),
        false => misused(sentence, shown),
    };
    let parsed = match command.syntax.parse_as(tail, world.options_first) {
        Ok(parsed) if parsed.help => {
            // In ZFS neither `-?` nor `-h` is an option: getopt says so, and prints the usage.
            let is_asked = tail.iter().any(|word| word == "--help")
                || words == Words::Own && !tail.iter().any(|word| word == "-?");
            print(world, !is_asked, &usage(command.doc));
            return if is_asked { SUCCESS } else { USAGE };
        }
        Ok(parsed) => parsed,
        Err(sentence) => {
            print(world, true, &unusable(&sentence));
            return USAGE;
        }
    };
    let typed = std::iter::once(shown).chain(tail.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    let mut session = Session::new(world, typed, words);
    session.explains |= parsed.has('v');
    let explains = session.explains;
    let result = (command.run)(&mut session, &parsed);
    let (out, failed) = (std::mem::take(&mut session.out), session.has_failed());
    print(world, false, &out);
    match result {
        Ok(()) if failed => FAILED,
        Ok(()) => SUCCESS,
        Err(Failure::Status(status)) => status,
        Err(Failure::Refused(doing, refusal)) => {
            print(world, true, &refused(&doing, &refusal, words, explains, shown));
            FAILED
        }
        Err(Failure::Usage(sentence)) => {
            print(world, true, &unusable(&sentence));
            USAGE
        }
    }
}

/// The sentence on a wrong command line: one line, which ends with the way to the usage.
fn misused(sentence: &str, shown: &str) -> String {
    format!("{} (usage: `{shown} --help`)\n", tame(sentence))
}

/// Prints. A reader that is gone (`| head`) is no failure.
fn print(world: &mut World<'_>, error: bool, text: &str) {
    let stream = if error { &mut *world.err } else { &mut *world.out };
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
}
