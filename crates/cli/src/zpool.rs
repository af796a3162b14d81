//! `zpool`, which is `steadfast pool`.

use crate::date;
use crate::family::{Command, Doing, Failure, Family, Session};
use crate::json;
use crate::key;
use crate::options::{Flag, Parsed, Syntax, flag, valued};
use crate::repeat::{Plan, TIME};
use crate::table::{Column, render, tame};
use crate::{
    zpool_events, zpool_growth, zpool_import, zpool_inject, zpool_iostat, zpool_moves, zpool_status,
    zpool_trim, zpool_vdevs,
};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use steadfast_control::api::{
    PoolCreate, PoolDestroy, PoolExport, PoolHistory, PoolInfo, PoolList, PoolSet, PoolSync, Properties,
    Source, Value, VdevClass, VdevKind, VdevReport, VdevSpec,
};
use steadfast_control::inject::STERN_FLAG;
use steadfast_control::{Code, KeyFormat, Refusal};
use steadfast_property::{Kind, POOL, Scope, is_user_property, lookup, nice_bytes};

const MANY: usize = usize::MAX;
const JSON_FLAG: Flag = flag('j', "as JSON").or("json");
const JSON_INT: Flag =
    Flag { letter: '\0', long: "json-int", value: "", doc: "with -j: numbers without quotes" };

/// Where devices are listed.
const BY_NUMBER: Flag = flag('g', "devices by number");
const LINKS: Flag = flag('L', "accepted and without meaning: links are never followed");

/// Options of import that name or give up an anchor.
pub(crate) const ANCHOR: &str = "anchor";
pub(crate) const ACCEPT_ROLLBACK: &str = "accept-rollback";
pub(crate) const ACCEPT_LOST: &str = "accept-lost-anchor";
/// Option of import that gives up what a lost or damaged log promised.
pub(crate) const ACCEPT_LOST_LOG: &str = "accept-lost-log";

/// The commands.
pub const FAMILY: Family = Family {
    name: "zpool",
    own: "steadfast pool",
    doc: "Creates, imports, watches and changes pools.",
    doors: &[],
    later: &[
        (
            "checkpoint",
            "going back to an older root is what the anchor is to forbid; snapshots keep old states",
        ),
        ("reopen", "a device that failed is opened anew by `zpool export` and `zpool import`"),
    ],
    commands: &[
        Command {
            names: &["create"],
            syntax: Syntax {
                flags: &[
                    flag('f', "overwrite devices that seem to be in use"),
                    flag('n', "only check, and print the layout"),
                    flag('d', "use no feature of the format but those that are enabled with -o"),
                    valued('m', "mountpoint", "where the root file system appears, or none"),
                    valued('o', "property=value", "a property of the pool"),
                    valued('O', "property=value", "a property of its root file system"),
                    valued('R', "root", "prefix of all mountpoints; the pool is not remembered"),
                ],
                operands: "pool vdev...",
                least: 2,
                most: MANY,
            },
            doc: "Creates a pool on image files or block devices, and mounts it.",
            run: create,
        },
        Command {
            names: &["destroy"],
            syntax: Syntax {
                flags: &[flag('f', "even if files are open")],
                operands: "pool",
                least: 1,
                most: 1,
            },
            doc: "Destroys a pool and everything in it.",
            run: destroy,
        },
        Command {
            names: &["import"],
            syntax: Syntax {
                flags: &[
                    flag('a', "import all that are found"),
                    valued('c', "cachefile", "a list of pools, which is refused: -d says where to look"),
                    valued('d', "folder|device", "where to look; may be repeated"),
                    flag('D', "destroyed pools instead of living ones"),
                    flag('f', "although it seems to be in use"),
                    flag('F', "going back to an older root, which is refused"),
                    flag('l', "load keys too"),
                    flag('n', "only say whether -F would help, which is refused"),
                    flag('N', "mount nothing"),
                    valued('o', "property=value", "readonly=on, altroot=, cachefile=none, or mount options"),
                    valued('R', "root", "prefix of all mountpoints; the pool is not remembered"),
                    flag('s', "accepted and without meaning: devices are always looked at themselves"),
                    flag('t', "a new name until the export, which is refused: it stays"),
                    valued('T', "txg", "going back to the root of a transaction group, which is refused"),
                    flag('X', "trying ever older roots, which is refused"),
                    flag('m', "open what is committed, though promises of the intent log are lost; the history says so")
                        .or(ACCEPT_LOST_LOG),
                    Flag {
                        letter: '\0',
                        long: ANCHOR,
                        value: "path",
                        doc: "where its anchor is, if not where its labels say",
                    },
                    Flag {
                        letter: '\0',
                        long: ACCEPT_ROLLBACK,
                        value: "",
                        doc: "open what the devices hold, though the anchor holds another root; the history says so",
                    },
                    Flag {
                        letter: '\0',
                        long: ACCEPT_LOST,
                        value: "",
                        doc: "open what the devices hold, though the anchor is lost; the pool has none afterwards",
                    },
                ],
                operands: "[pool|id [newpool]]",
                least: 0,
                most: 2,
            },
            doc: "Imports a pool; without a name, lists those that could be imported.",
            run: zpool_import::import,
        },
        Command {
            names: &["export"],
            syntax: Syntax {
                flags: &[flag('a', "all pools"), flag('f', "even if files are open")],
                operands: "[pool]...",
                least: 0,
                most: MANY,
            },
            doc: "Unmounts pools and lets go of their devices.",
            run: export,
        },
        Command {
            names: &["list"],
            syntax: Syntax {
                flags: &[
                    BY_NUMBER,
                    flag('H', "no headings, tabs between columns"),
                    JSON_FLAG,
                    JSON_INT,
                    LINKS,
                    flag('p', "exact numbers"),
                    flag('P', "full paths of devices, which is how they are always printed"),
                    flag('v', "devices too"),
                    valued('o', "property[,property]...", "which columns"),
                    TIME,
                ],
                operands: "[pool]... [interval [count]]",
                least: 0,
                most: MANY,
            },
            doc: "Lists pools with their sizes and health.",
            run: list,
        },
        Command {
            names: &["status"],
            syntax: Syntax {
                flags: &[
                    JSON_FLAG,
                    JSON_INT,
                    flag('D', "how often blocks that are known by content are referred to"),
                    flag('e', "of devices only those with trouble"),
                    BY_NUMBER,
                    flag('i', "how far the initialization of each device is"),
                    LINKS,
                    flag('p', "exact numbers"),
                    flag('P', "full paths of devices, which is how they are always printed"),
                    flag('s', "calls of 30 s and longer too"),
                    flag('t', "how far the trim of each device is"),
                    flag('v', "errors by kind; and name the files that are damaged, and which bytes of them"),
                    flag('x', "only pools with trouble"),
                    TIME,
                ],
                operands: "[pool]... [interval [count]]",
                least: 0,
                most: MANY,
            },
            doc: "Tells how pools and their devices are.",
            run: zpool_status::status,
        },
        Command {
            names: &["get"],
            syntax: Syntax {
                flags: &[
                    flag('H', "no headings, tabs between columns"),
                    JSON_FLAG,
                    JSON_INT,
                    flag('p', "exact numbers"),
                    valued('o', "field[,field]...", "which of name, property, value, source"),
                ],
                operands: "all|property[,property]... [pool]...|[pool all-vdevs|device...]",
                least: 1,
                most: MANY,
            },
            doc: "Prints properties of pools, or of devices and groups of one pool.",
            run: get,
        },
        Command {
            names: &["set"],
            syntax: Syntax { flags: &[], operands: "property=value pool", least: 2, most: 2 },
            doc: "Changes a property of a pool.",
            run: set,
        },
        Command {
            names: &["history"],
            syntax: Syntax {
                flags: &[flag('i', "events of the pool itself too"), flag('l', "with user and host")],
                operands: "[pool]...",
                least: 0,
                most: MANY,
            },
            doc: "Tells what was done to pools, oldest first (times are UTC).",
            run: history,
        },
        Command {
            names: &["iostat"],
            syntax: Syntax {
                flags: &[
                    BY_NUMBER,
                    flag('H', "no headings, tabs between columns"),
                    JSON_FLAG,
                    JSON_INT,
                    flag('l', "average latencies too"),
                    LINKS,
                    flag('n', "headings only once"),
                    flag('p', "exact numbers; nanoseconds"),
                    flag('P', "full paths of devices, which is how they are always printed"),
                    flag('q', "queues of devices, which is refused: there are none"),
                    flag('r', "sizes of requests, which is refused: they are not counted"),
                    flag('v', "devices too"),
                    flag('w', "histograms of latencies"),
                    flag('y', "leave out the first report, which is since the import"),
                    TIME,
                ],
                operands: "[pool]...|[pool] [device|group]... [interval [count]]",
                least: 0,
                most: MANY,
            },
            doc: "Tells what is asked of pools and devices: since the import, then in each interval.",
            run: zpool_iostat::iostat,
        },
        Command {
            names: &["events"],
            syntax: Syntax {
                flags: &[
                    flag('c', "forget all events"),
                    flag('f', "go on, and tell what comes"),
                    flag('H', "no headings, tabs between columns"),
                    JSON_FLAG,
                    JSON_INT,
                    flag('v', "all that is known of each"),
                ],
                operands: "[pool]",
                least: 0,
                most: 1,
            },
            doc: "Tells what happened lately: imports, changes, bad blocks, failing devices (times are UTC).",
            run: zpool_events::events,
        },
        Command {
            names: &["add"],
            syntax: Syntax {
                flags: &[
                    flag('f', "overwrite devices that seem to be in use"),
                    flag('n', "only check, and print the layout"),
                    zpool_growth::ASHIFT,
                ],
                operands: "pool vdev...",
                least: 2,
                most: MANY,
            },
            doc: "Makes a pool larger by devices; `zpool remove` takes them away again.",
            run: zpool_growth::add,
        },
        Command {
            names: &["remove"],
            syntax: Syntax {
                flags: &[
                    flag('n', "only check"),
                    flag('s', "end the removal that is under way"),
                    flag('w', "wait until the devices have left"),
                ],
                operands: "pool [device]...",
                least: 1,
                most: MANY,
            },
            doc: "Lets a pool live without a group, a single device, a log, a spare or its anchor: what they hold moves to the others.",
            run: zpool_moves::remove,
        },
        Command {
            names: &["attach"],
            syntax: Syntax {
                flags: &[
                    flag('f', "overwrite a device that seems to be in use"),
                    flag('s', "accepted and without meaning: a resilver always goes in order, and compares"),
                    flag('w', "wait until the resilver, or the expansion, has ended"),
                    zpool_growth::ASHIFT,
                ],
                operands: "pool device|group new-device",
                least: 3,
                most: 3,
            },
            doc: "Adds a device to a mirror or raidz group, or makes a mirror of a device that stands alone.",
            run: zpool_moves::attach,
        },
        Command {
            names: &["detach"],
            syntax: Syntax { flags: &[], operands: "pool device", least: 2, most: 2 },
            doc: "Takes a device out of a mirror, or ends a replacement by giving up its old or its new half.",
            run: zpool_moves::detach,
        },
        Command {
            names: &["rebalance"],
            syntax: Syntax {
                flags: &[
                    flag('p', "pause what is under way; without options it goes on"),
                    flag('s', "stop what is under way"),
                    flag('w', "wait until it has ended"),
                ],
                operands: "pool",
                least: 1,
                most: 1,
            },
            doc: "Moves what lies on full devices to emptier ones, as after `zpool add`; also pauses or stops an expansion.",
            run: zpool_moves::rebalance,
        },
        Command {
            names: &["resilver"],
            syntax: Syntax { flags: &[], operands: "pool...", least: 1, most: MANY },
            doc: "Begins a resilver from the beginning.",
            run: zpool_moves::resilver,
        },
        Command {
            names: &["reguid"],
            syntax: Syntax { flags: &[], operands: "pool", least: 1, most: 1 },
            doc: "Gives a pool another number, so that a copy of its devices is another pool.",
            run: zpool_moves::reguid,
        },
        Command {
            names: &["split"],
            syntax: Syntax {
                flags: &[
                    flag('g', "with -n: devices by number"),
                    flag('l', "with -R: load keys too"),
                    LINKS,
                    flag('n', "only say which devices the new pool would have"),
                    valued('o', "property=value", "a property of the new pool"),
                    flag('P', "full paths of devices, which is how they are always printed"),
                    valued('R', "root", "import the new pool with this prefix of all mountpoints; it is not remembered"),
                ],
                operands: "pool newpool [device]...",
                least: 2,
                most: MANY,
            },
            doc: "Makes a pool of one device of each mirror: those that are named, or the last ones. Without -R it stays exported.",
            run: zpool_moves::split,
        },
        Command {
            names: &["online"],
            syntax: Syntax {
                flags: &[flag('e', "use all of a device that has grown")],
                operands: "pool device...",
                least: 2,
                most: MANY,
            },
            doc: "Brings devices into use; with -e, all of them.",
            run: zpool_growth::online,
        },
        Command {
            names: &["offline"],
            syntax: Syntax {
                flags: &[flag('f', "as failed"), flag('t', "until the next import")],
                operands: "pool device...",
                least: 2,
                most: MANY,
            },
            doc: "Takes devices out of use, as far as redundancy allows.",
            run: zpool_growth::offline,
        },
        Command {
            names: &["replace"],
            syntax: Syntax {
                flags: &[
                    flag('f', "overwrite a device that seems to be in use"),
                    flag('s', "accepted and without meaning: a resilver always goes in order, and compares"),
                    flag('w', "wait until the resilver has ended"),
                    zpool_growth::ASHIFT,
                ],
                operands: "pool device [new-device]",
                least: 2,
                most: 3,
            },
            doc: "Puts a device into the place of another; without a new one, what lies under the old one's path now.",
            run: zpool_trim::replace,
        },
        Command {
            names: &["scrub"],
            syntax: Syntax {
                flags: &[
                    flag('a', "all pools"),
                    flag('C', "only what is newer than the last scrub, which is refused"),
                    flag('e', "only files with known errors, which is refused"),
                    valued('E', "date", "only what is older than a date, which is refused"),
                    flag('p', "pause what is under way; without options it goes on"),
                    flag('s', "stop what is under way"),
                    valued('S', "date", "only what is newer than a date, which is refused"),
                    flag('w', "wait until it has ended"),
                ],
                operands: "[pool]...",
                least: 0,
                most: MANY,
            },
            doc: "Reads everything that is stored, compares it with its checksums, mends what is wrong and names files that are lost.",
            run: zpool_trim::scrub,
        },
        Command {
            names: &["inject"],
            syntax: Syntax {
                flags: &[
                    flag('c', "inject nothing any more, into the device or any; bytes that were spoilt stay so"),
                    Flag {
                        letter: '\0',
                        long: STERN_FLAG,
                        value: "",
                        doc: "needed for every fault, except in test builds: what is injected damages the pool",
                    },
                ],
                operands: zpool_inject::OPERANDS,
                least: 1,
                most: MANY,
            },
            doc: "Injects a fault into a device, to see the pool heal; without a fault, tells which are in force. \
                  Faults: zero and flip [offset= length=] (flip: bits= seed=), eio [on=read|write|flush|any], misdirect \
                  [nth=|every=], gone, slow [latency= rate=], disk [seek= rate=].",
            run: zpool_inject::inject,
        },
        Command {
            names: &["clear"],
            syntax: Syntax { flags: &[], operands: "pool [device]...", least: 1, most: MANY },
            doc: "Forgets counted errors and damaged files, and takes faulted devices into use again; what is still bad is counted anew.",
            run: zpool_growth::clear,
        },
        Command {
            names: &["labelclear"],
            syntax: Syntax {
                flags: &[flag('f', "although its pool was not destroyed")],
                operands: "device",
                least: 1,
                most: 1,
            },
            doc: "Removes a pool's labels from a device that no imported pool uses.",
            run: zpool_growth::labelclear,
        },
        Command {
            names: &["trim"],
            syntax: Syntax {
                flags: &[
                    flag('c', "end what is under way"),
                    flag('d', "securely, which is refused").or("secure"),
                    valued('r', "rate", "bytes a second on each device, at most"),
                    flag('s', "stop what is under way; without options it goes on"),
                    flag('w', "wait until it has ended"),
                ],
                operands: "pool [device]...",
                least: 1,
                most: MANY,
            },
            doc: "Gives all free space back to what devices lie on: holes in image files, discards on disks.",
            run: zpool_trim::trim,
        },
        Command {
            names: &["initialize"],
            syntax: Syntax {
                flags: &[
                    flag('c', "end what is under way").or("cancel"),
                    flag('s', "stop what is under way; without options it goes on").or("suspend"),
                    flag('u', "forget what ended or was stopped").or("uninit"),
                    flag('w', "wait until it has ended").or("wait"),
                ],
                operands: "pool [device]...",
                least: 1,
                most: MANY,
            },
            doc: "Fills all free space of devices with a pattern, so that what they lie on provides the room now.",
            run: zpool_trim::initialize,
        },
        Command {
            names: &["wait"],
            syntax: Syntax {
                flags: &[
                    flag('H', "no headings, tabs between columns"),
                    flag('p', "exact numbers"),
                    valued(
                        't',
                        "activity[,activity]...",
                        "for which; those that do not exist here are over at once",
                    ),
                    TIME,
                ],
                operands: "pool [interval]",
                least: 1,
                most: 2,
            },
            doc: "Waits until nothing goes on in the background of a pool; with an interval, tells what is left.",
            run: zpool_trim::wait,
        },
        Command {
            names: &["upgrade"],
            syntax: Syntax {
                flags: &[flag('a', "all pools"), flag('v', "list the features of this version")],
                operands: "[pool]...",
                least: 0,
                most: MANY,
            },
            doc: "Lets pools use all features of this version; without a name, lists what they do not use.",
            run: zpool_growth::upgrade,
        },
        crate::sharing::PREFETCH,
        crate::sharing::DDTPRUNE,
        Command {
            names: &["sync"],
            syntax: Syntax { flags: &[], operands: "[pool]...", least: 0, most: MANY },
            doc: "Commits pools now.",
            run: sync,
        },
    ],
};

/// Reads a list of `name=value`.
///
/// # Errors
/// What is wrong with the first that is wrong.
pub(crate) fn assignments<'a>(texts: impl Iterator<Item = &'a str>) -> Result<Properties, Failure> {
    let mut properties = Properties::new();
    for text in texts {
        let Some((name, value)) = text.split_once('=') else {
            return Err(Failure::Usage(format!("missing '=' for property=value argument: '{text}'")));
        };
        if properties.insert(name.to_owned(), value.to_owned()).is_some() {
            return Err(Failure::Usage(format!("property '{name}' specified multiple times")));
        }
    }
    Ok(properties)
}

/// Asks for the key that the properties of something new call for.
///
/// # Errors
/// Why there is none.
pub(crate) fn new_key(
    session: &mut Session<'_, '_>,
    name: &str,
    properties: &Properties,
) -> Result<Option<steadfast_control::Key>, Refusal> {
    // A format that does not exist is the daemon's to refuse, in the words of the property table.
    let Some(format) = properties.get("keyformat").and_then(|text| KeyFormat::parse(text)) else {
        return Ok(None);
    };
    if properties.get("encryption").is_some_and(|e| e == "off") {
        return Ok(None);
    }
    let location = properties.get("keylocation").map_or("prompt", String::as_str);
    key::obtain(session.world, name, format, location, true).map(Some)
}

fn create(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || format!("cannot create '{}'", tame(&name));
    let vdevs = vdevs(session, &parsed.operands[1..]).doing(doing)?;
    let mut properties = assignments(parsed.values('o'))?;
    if let Some(root) = parsed.value('R') {
        properties.insert("altroot".into(), root.to_owned());
        properties.entry("cachefile".into()).or_insert_with(|| "none".into());
    }
    let fs_properties = assignments(parsed.values('O'))?;
    // Told before a passphrase is asked for: nothing is more annoying than a late no.
    steadfast_property::check_pool_name(&name)
        .map_err(steadfast_control::check::name_refusal)
        .doing(doing)?;
    let key = new_key(session, &name, &fs_properties).doing(doing)?;
    let request = PoolCreate {
        name: name.clone(),
        vdevs: vdevs.clone(),
        force: parsed.has('f'),
        dry_run: parsed.has('n'),
        no_features: parsed.has('d'),
        mountpoint: parsed.value('m').map(str::to_owned),
        properties,
        fs_properties,
        key,
    };
    let outcome = session.ask(request).doing(doing)?;
    if parsed.has('n') {
        session.line(format!("would create '{name}' with the following layout:\n\n\t{name}"));
        for (depth, word) in zpool_growth::layout(&vdevs) {
            session.line(format!("\t{}{word}", "  ".repeat(depth)));
        }
    }
    session.warn(&format!("'{name}' is created, but"), &outcome.warnings);
    Ok(())
}

/// Reads a device list.
pub(crate) fn vdevs(session: &Session<'_, '_>, words: &[String]) -> Result<Vec<VdevSpec>, Refusal> {
    let mut class = VdevClass::Main;
    let mut vdevs: Vec<VdevSpec> = Vec::new();
    let mut group: Option<VdevKind> = None;
    for word in words {
        let kind = match word.as_str() {
            "mirror" => Some(VdevKind::Mirror),
            "raidz" | "raidz1" => Some(VdevKind::Raidz1),
            "raidz2" => Some(VdevKind::Raidz2),
            "raidz3" => Some(VdevKind::Raidz3),
            _ => None,
        };
        let named_class = match word.as_str() {
            "special" => Some(VdevClass::Special),
            "log" => Some(VdevClass::Log),
            "cache" => Some(VdevClass::Cache),
            "spare" => Some(VdevClass::Spare),
            "anchor" => Some(VdevClass::Anchor),
            "parity" => Some(VdevClass::Parity),
            _ => None,
        };
        if let Some(kind) = kind {
            group = Some(kind);
            vdevs.push(VdevSpec { class, kind, devices: Vec::new() });
        } else if let Some(named) = named_class {
            (class, group) = (named, None);
        } else if word == "dedup" || word.starts_with("draid") {
            return Err(later(word));
        } else if word.contains("://") {
            return Err(Refusal::new(
                Code::Later,
                format!("pools on buckets ('{}') are not yet built", tame(word)),
            ));
        } else {
            let device = device_path(session, word);
            match (group, vdevs.last_mut()) {
                (Some(_), Some(last)) => last.devices.push(device),
                _ => vdevs.push(VdevSpec { class, kind: VdevKind::Plain, devices: vec![device] }),
            }
        }
    }
    Ok(vdevs)
}

/// The path of a device as typed: from the caller's folder, or in /dev.
pub(crate) fn device_path(session: &Session<'_, '_>, word: &str) -> PathBuf {
    let device = session.world.absolute(word);
    let in_dev = Path::new("/dev").join(word);
    if !word.contains('/') && !device.exists() && in_dev.exists() { in_dev } else { device }
}

fn later(word: &str) -> Refusal {
    Refusal::new(Code::Later, format!("'{word}' devices are not yet built")).with("word", word)
}

fn destroy(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let request = PoolDestroy { name: name.clone(), force: parsed.has('f') };
    let outcome = session.ask(request).doing(|| format!("cannot destroy '{}'", tame(&name)))?;
    session.warn(&format!("'{name}' is destroyed, but"), &outcome.warnings);
    Ok(())
}

fn export(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let mut names = parsed.operands.clone();
    match (parsed.has('a'), names.is_empty()) {
        (true, true) => {
            let pools = session.ask(PoolList::default()).doing(|| "cannot list pools".into())?;
            names = pools.into_iter().map(|pool| pool.name).collect();
        }
        (true, false) => return Err(Failure::Usage("too many arguments: -a means all pools".into())),
        (false, true) => return Err(Failure::Usage("missing pool argument".into())),
        (false, false) => {}
    }
    for name in names {
        match session.ask(PoolExport { name: name.clone(), force: parsed.has('f') }) {
            Ok(outcome) => session.warn(&format!("'{name}' is exported, but"), &outcome.warnings),
            Err(refusal) => session.complain(&format!("cannot export '{}'", tame(&name)), &refusal),
        }
    }
    Ok(())
}

/// A property's value as it is printed.
#[must_use]
pub(crate) fn shown(scope: Scope, name: &str, value: &str, exact: bool) -> String {
    let value = tame(value);
    match lookup(scope, name) {
        None if is_since(name) && !exact => value
            .parse()
            .map_or(value, |bytes: u64| if bytes == 0 { "0B".to_owned() } else { nice_bytes(bytes) }),
        // What is read of users and groups says by itself whether it counts bytes.
        Some(property) if !exact && !property.name.ends_with("...") => match (property.kind, value.parse()) {
            (Kind::Date, Ok(seconds)) => date::creation(seconds),
            _ => property.shown(&value),
        },
        _ => value,
    }
}

/// Properties of a comma-separated list, by their names in the table; `name` is one too.
///
/// # Errors
/// The first that nobody knows.
pub(crate) fn columns_of(scope: Scope, lists: &[&str]) -> Result<Vec<String>, Failure> {
    let mut columns = Vec::new();
    for name in lists.iter().flat_map(|list| list.split(',')) {
        if name == "name" || is_user_property(name) || scope == Scope::Dataset && is_since(name) {
            columns.push(name.to_owned());
        } else if let Some(property) = lookup(scope, name) {
            let one_of_many = property.name.ends_with("...");
            columns.push(if one_of_many { name } else { property.name }.to_owned());
        } else {
            let error = steadfast_property::parse_assignment(scope, &format!("{name}=")).map(|_| ());
            let sentence = error.map_or_else(|e| e.to_string(), |()| format!("invalid property '{name}'"));
            return Err(Failure::Usage(sentence));
        }
    }
    Ok(columns)
}

/// Is it what was written since a snapshot, as in `written@monday`?
pub(crate) fn is_since(name: &str) -> bool {
    name.strip_prefix("written@").is_some_and(|snapshot| !snapshot.is_empty())
}

/// The heading of a column, and whether it holds numbers.
pub(crate) fn column(scope: Scope, name: &str) -> Column {
    match lookup(scope, name) {
        Some(property) if !property.name.ends_with("...") => {
            Column { heading: property.heading.to_owned(), right: property.is_numeric() }
        }
        _ => Column { heading: name.to_uppercase(), right: is_since(name) },
    }
}

const LIST_COLUMNS: &str =
    "name,size,allocated,free,checkpoint,expandsize,fragmentation,capacity,dedupratio,health,altroot";

fn list(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let plan = Plan::read(parsed)?;
    plan.run(session, |session| list_once(session, parsed, &plan.names).map(|()| true))
}

fn list_once(session: &mut Session<'_, '_>, parsed: &Parsed, wanted: &[String]) -> Result<(), Failure> {
    let given: Vec<&str> = parsed.values('o').collect();
    let names = columns_of(Scope::Pool, if given.is_empty() { &[LIST_COLUMNS] } else { &given })?;
    let request = PoolList { names: wanted.to_vec() };
    let pools = session.ask(request).doing(|| "cannot list pools".into())?;
    let exact = parsed.has('p');
    if parsed.has('j') {
        let properties = |pool: &PoolInfo| {
            names
                .iter()
                .filter(|n| *n != "name")
                .cloned()
                .map(|n| {
                    let value = cell(pool, &n);
                    (n, value)
                })
                .collect()
        };
        let text = as_json("zpool list", &pools, exact, parsed.has_long("json-int"), properties);
        session.line(text);
        return Ok(());
    }
    if pools.is_empty() {
        if !parsed.has('H') {
            session.line("no pools available");
        }
        return Ok(());
    }
    let columns: Vec<Column> = names.iter().map(|name| column(Scope::Pool, name)).collect();
    let mut rows = Vec::new();
    for pool in &pools {
        let row = names.iter().map(|name| match name.as_str() {
            "name" => tame(&pool.name),
            name => shown(Scope::Pool, name, &cell(pool, name).value, exact),
        });
        rows.push(row.collect());
        if parsed.has('v') {
            let names_of = vec![pool.name.clone()];
            let reports = session
                .ask(steadfast_control::api::PoolStatus { names: names_of })
                .doing(|| format!("cannot look at '{}'", tame(&pool.name)))?;
            let mut section = None;
            for vdev in reports.iter().flat_map(|report| &report.vdevs) {
                let heading = match vdev.class {
                    VdevClass::Special => Some("special"),
                    VdevClass::Log => Some("logs"),
                    VdevClass::Cache => Some("cache"),
                    VdevClass::Spare => Some("spare"),
                    VdevClass::Anchor => Some("anchor"),
                    _ => None,
                };
                if let Some(heading) = heading.filter(|_| heading != section) {
                    let cell = |name: &String| if name == "name" { heading } else { "-" };
                    rows.push(names.iter().map(|name| cell(name).to_owned()).collect());
                }
                section = heading;
                for (depth, vdev) in with_members(vdev, 1) {
                    let label = zpool_vdevs::label(vdev, parsed);
                    let cell = |name: &String| match name.as_str() {
                        "name" => format!("{}{}", "  ".repeat(depth), tame(&label)),
                        name => vdev_cell(vdev, depth, name, exact),
                    };
                    rows.push(names.iter().map(cell).collect());
                }
            }
        }
    }
    session.out.push_str(&render(&columns, &rows, parsed.has('H')));
    Ok(())
}

/// A vdev and all below it, each with how deep it is.
pub(crate) fn with_members(vdev: &VdevReport, depth: usize) -> Vec<(usize, &VdevReport)> {
    let members = vdev.children.iter().flat_map(|child| with_members(child, depth + 1));
    std::iter::once((depth, vdev)).chain(members).collect()
}

/// What `zpool list -v` says of a vdev. As in ZFS room is counted by group, and a member of one has a size, what it has grown by and a state.
fn vdev_cell(vdev: &VdevReport, depth: usize, name: &str, exact: bool) -> String {
    let counted = depth == 1 && vdev.class != VdevClass::Anchor;
    let value = match name {
        "health" => vdev.state.as_str().to_owned(),
        "size" if vdev.class != VdevClass::Anchor => vdev.size.to_string(),
        "allocated" if counted => vdev.allocated.to_string(),
        "free" if counted => vdev.size.saturating_sub(vdev.allocated).to_string(),
        "expandsize" if vdev.expandsize > 0 => vdev.expandsize.to_string(),
        "capacity" if counted => (vdev.allocated * 100).checked_div(vdev.size).unwrap_or(0).to_string(),
        _ => "-".to_owned(),
    };
    shown(Scope::Pool, name, &value, exact)
}

/// A pool's property; `-` where it has none.
fn cell(pool: &PoolInfo, name: &str) -> Value {
    pool.properties.get(name).cloned().unwrap_or_else(|| Value::measured("-"))
}

fn as_json(
    command: &str,
    pools: &[PoolInfo],
    exact: bool,
    as_number: bool,
    properties: impl Fn(&PoolInfo) -> BTreeMap<String, Value>,
) -> String {
    let mut by_name = serde_json::Map::new();
    for pool in pools {
        let mut map = serde_json::Map::new();
        for (name, value) in properties(pool) {
            let shown = shown(Scope::Pool, &name, &value.value, exact);
            map.insert(name, json::property(&shown, &value, as_number));
        }
        let entry = serde_json::json!({
            "name": pool.name,
            "type": "POOL",
            "state": pool.state.as_str(),
            "pool_guid": json::number(pool.guid, as_number),
            "txg": json::number(pool.txg, as_number),
            "properties": map,
        });
        by_name.insert(pool.name.clone(), entry);
    }
    let mut document = json::document(command);
    document.insert("pools".into(), by_name.into());
    json::text(document)
}

/// The four columns of `get`.
pub(crate) const GET_FIELDS: [&str; 4] = ["name", "property", "value", "source"];

/// Reads the fields that `-o` names.
///
/// # Errors
/// The first that nobody knows.
pub(crate) fn get_fields(parsed: &Parsed, received: bool) -> Result<Vec<&str>, Failure> {
    let Some(list) = parsed.value('o') else { return Ok(GET_FIELDS.to_vec()) };
    let mut fields = Vec::new();
    for field in list.split(',') {
        match field {
            // What a stream brought along; pools have no such values.
            "all" if received => fields.extend(["name", "property", "value", "received", "source"]),
            "all" => fields.extend(GET_FIELDS),
            "received" => fields.push(field),
            field if GET_FIELDS.contains(&field) => fields.push(field),
            field => {
                return Err(Failure::Usage(format!(
                    "invalid column name '{field}': must be name, property, value, received or source"
                )));
            }
        }
    }
    Ok(fields)
}

/// A source as `get` prints it.
pub(crate) fn source_text(source: &Source) -> String {
    match source {
        Source::None => "-".into(),
        Source::Default => "default".into(),
        Source::Local => "local".into(),
        Source::Received => "received".into(),
        Source::Temporary => "temporary".into(),
        Source::Inherited(from) => format!("inherited from {}", tame(from)),
    }
}

/// One row of `get`, with the fields asked for.
pub(crate) fn get_row(
    fields: &[&str],
    (name, property): (&str, &str),
    shown: String,
    received: Option<String>,
    source: &Source,
) -> Vec<String> {
    let field = |field: &&str| match *field {
        "name" => tame(name),
        "property" => tame(property),
        "value" => shown.clone(),
        "received" => received.clone().unwrap_or_else(|| "-".to_owned()),
        _ => source_text(source),
    };
    fields.iter().map(field).collect()
}

/// The headings of `get`.
pub(crate) fn get_columns(fields: &[&str]) -> Vec<Column> {
    fields.iter().map(|field| Column { heading: field.to_uppercase(), right: false }).collect()
}

/// Names of all properties of the table that `have` holds, then the user's own.
pub(crate) fn all_properties(
    table: &[steadfast_property::Property],
    have: &BTreeMap<String, Value>,
) -> Vec<String> {
    let native = table.iter().map(|p| p.name.to_owned()).filter(|name| have.contains_key(name));
    let own = have.keys().filter(|name| !table.iter().any(|p| p.name == *name)).cloned();
    native.chain(own).collect()
}

fn get(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    if zpool_vdevs::are_named(session, &parsed.operands[1..])? {
        return zpool_vdevs::get(session, parsed);
    }
    let fields = get_fields(parsed, false)?;
    let wanted = match parsed.operands[0].as_str() {
        "all" => None,
        list => Some(columns_of(Scope::Pool, &[list])?),
    };
    let request = PoolList { names: parsed.operands[1..].to_vec() };
    let pools = session.ask(request).doing(|| "cannot get properties".into())?;
    let exact = parsed.has('p');
    let names_for =
        |pool: &PoolInfo| wanted.clone().unwrap_or_else(|| all_properties(POOL, &pool.properties));
    let value_of = |pool: &PoolInfo, name: &str| match name {
        "name" => Value::measured(&pool.name),
        name => cell(pool, name),
    };
    if parsed.has('j') {
        let properties = |pool: &PoolInfo| {
            names_for(pool)
                .into_iter()
                .map(|n| {
                    let value = value_of(pool, &n);
                    (n, value)
                })
                .collect()
        };
        let text = as_json("zpool get", &pools, exact, parsed.has_long("json-int"), properties);
        session.line(text);
        return Ok(());
    }
    let mut rows = Vec::new();
    for pool in &pools {
        for name in names_for(pool) {
            let value = value_of(pool, &name);
            let shown = shown(Scope::Pool, &name, &value.value, exact);
            rows.push(get_row(&fields, (&pool.name, &name), shown, None, &value.source));
        }
    }
    if !rows.is_empty() {
        session.out.push_str(&render(&get_columns(&fields), &rows, parsed.has('H')));
    }
    Ok(())
}

fn set(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[1].clone();
    let properties = assignments(std::iter::once(parsed.operands[0].as_str()))?;
    let outcome = session
        .ask(PoolSet { name: name.clone(), properties })
        .doing(|| format!("cannot set property for '{}'", tame(&name)))?;
    session.warn(&format!("the property of '{name}' is set, but"), &outcome.warnings);
    Ok(())
}

fn history(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let request = PoolHistory { names: parsed.operands.clone() };
    let pools = session.ask(request).doing(|| "cannot tell history".into())?;
    if pools.is_empty() {
        session.line("no pools available");
    }
    for pool in pools {
        session.line(format!("History for '{}':", tame(&pool.name)));
        for record in pool.records.iter().filter(|r| !r.internal || parsed.has('i')) {
            let mut line = date::history(record.time);
            if let Some(txg) = record.txg.filter(|_| record.internal) {
                line.push_str(&format!(" [txg:{txg}]"));
            }
            line.push_str(&format!(" {}", tame(&record.text)));
            if parsed.has('l') {
                line.push_str(&format!(" [user {} on {}]", record.uid, tame(&record.host)));
            }
            session.line(line);
        }
        session.line("");
    }
    Ok(())
}

fn sync(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    session.ask(PoolSync { names: parsed.operands.clone() }).doing(|| "cannot sync".into())?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use steadfast_control::api::Health;

    #[test]
    fn what_has_grown_is_told_of_devices_and_groups() {
        let device = |expandsize| {
            let vdev = VdevReport::new("/d".into(), 7, VdevClass::Main, Health::Online);
            VdevReport { size: 64 << 20, allocated: 1 << 20, expandsize, ..vdev }
        };
        let cells = |vdev: &VdevReport, depth| {
            ["size", "allocated", "free", "expandsize", "capacity"]
                .map(|name| vdev_cell(vdev, depth, name, true))
        };
        assert_eq!(cells(&device(5), 1), ["67108864", "1048576", "66060288", "5", "1"]);
        assert_eq!(cells(&device(5), 2), ["67108864", "-", "-", "5", "-"], "a member of a group");
        assert_eq!(cells(&device(0), 1)[3], "-");
    }
}
