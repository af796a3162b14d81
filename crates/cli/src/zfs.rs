//! `zfs`, which is `steadfast fs`.

use crate::family::{Command, Doing, Failure, Family, Session};
use crate::json;
use crate::key;
use crate::options::{Flag, Parsed, Syntax, flag, valued};
use crate::table::{Column, render, tame};
use crate::zfs_snapshots::{self, Kinds};
use crate::zfs_userspace;
use crate::zpool::{
    all_properties, assignments, column, columns_of, get_columns, get_fields, get_row, new_key, shown,
};
use crate::{zfs_clones, zfs_diff, zfs_keep, zfs_rename, zfs_streams};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::Path;
use steadfast_control::api::{
    FsCreate, FsDestroy, FsInfo, FsInherit, FsList, FsLoadKey, FsMount, FsSet, FsUnloadKey, FsUnmount,
    NewVolume, Properties, Source, Value,
};
use steadfast_control::{Code, KeyFormat, Refusal};
use steadfast_property::{DATASET, Scope, lookup, parse_assignment, parse_size};

const MANY: usize = usize::MAX;
const JSON_FLAG: Flag = flag('j', "as JSON").or("json");
const JSON_INT: Flag =
    Flag { letter: '\0', long: "json-int", value: "", doc: "with -j: numbers without quotes" };
/// How often a passphrase may be mistyped on a terminal.
const ATTEMPTS_MAX: u32 = 3;

/// Flags of `userspace` and `groupspace`.
const OWNER_FLAGS: &[Flag] = &[
    flag('H', "no headings, tabs between columns"),
    flag('i', "accepted and without meaning: there are no identifiers of Windows"),
    flag('n', "numbers instead of names"),
    flag('p', "exact numbers"),
    valued('o', "field[,field]...", "which of type, name, used, quota, objused, objquota"),
    valued('s', "field", "sort by it, least first"),
    valued('S', "field", "sort by it, greatest first"),
    valued('t', "type[,type]...", "posixuser, smbuser, posixgroup, smbgroup or all"),
];

/// The commands.
pub const FAMILY: Family = Family {
    name: "zfs",
    own: "steadfast fs",
    doc: "Creates, mounts, watches and changes file systems.",
    doors: &[],
    later: &[
        ("allow", "the daemon answers its own user and nobody else"),
        ("jail", "it is a thing of FreeBSD"),
        ("program", "the JSON output (-j) is for programs"),
        ("project", "FUSE does not carry the numbers of projects"),
        ("projectspace", "FUSE does not carry the numbers of projects"),
        ("redact", "streams are not redacted"),
        (
            "rewrite",
            "`zpool rebalance` moves what lies on full devices; what was written before a property was set stays as it is",
        ),
        ("share", "export a mountpoint with the tools of your NFS or SMB server"),
        ("unallow", "the daemon answers its own user and nobody else"),
        ("unjail", "it is a thing of FreeBSD"),
        ("unshare", "export a mountpoint with the tools of your NFS or SMB server"),
        ("unzone", "it is a thing of containers that mount for themselves"),
        ("upgrade", "file systems have no version of their own; `zpool upgrade` enables a pool's features"),
        ("wait", "`zpool wait -t free` waits until what was destroyed is given back"),
        ("zone", "it is a thing of containers that mount for themselves"),
    ],
    commands: &[
        Command {
            names: &["create"],
            syntax: Syntax {
                flags: &[
                    flag('p', "missing parents too; content if it exists"),
                    flag('n', "only check"),
                    flag('u', "do not mount"),
                    flag('v', "say what is created"),
                    flag('P', "the same, for scripts"),
                    valued('o', "property=value", "a property; may be repeated"),
                    valued(
                        'V',
                        "size",
                        "a volume of this size: one file, and a block device for clients of NBD",
                    ),
                    valued('b', "blocksize", "with -V: the property volblocksize"),
                    flag('s', "with -V: sparse, nothing is reserved for it"),
                ],
                operands: "filesystem|volume",
                least: 1,
                most: 1,
            },
            doc: "Creates a file system or a volume, and mounts it.",
            run: create,
        },
        zfs_snapshots::TAKE,
        zfs_clones::CLONE,
        zfs_clones::PROMOTE,
        zfs_keep::ROLLBACK,
        zfs_keep::HOLD,
        zfs_keep::RELEASE,
        zfs_keep::HOLDS,
        zfs_streams::SEND,
        zfs_streams::BOOKMARK,
        zfs_diff::DIFF,
        zfs_streams::RECEIVE,
        Command {
            names: &["destroy"],
            syntax: Syntax {
                flags: &[
                    flag('r', "children and snapshots too"),
                    flag('R', "children, snapshots and clones too"),
                    flag('d', "snapshots that are kept go later"),
                    flag('f', "even if files are open"),
                    flag('n', "only say what would go"),
                    flag('v', "say what goes"),
                    flag('p', "with -n or -v: for scripts"),
                ],
                operands: "filesystem[@snapshot[%snapshot][,...]]",
                least: 1,
                most: 1,
            },
            doc: "Destroys a file system and everything in it, or snapshots.",
            run: destroy,
        },
        Command {
            names: &["list"],
            syntax: Syntax {
                flags: &[
                    flag('H', "no headings, tabs between columns"),
                    flag('p', "exact numbers"),
                    JSON_FLAG,
                    JSON_INT,
                    flag('r', "children too"),
                    valued('d', "depth", "children so many levels down"),
                    valued('o', "property[,property]...", "which columns"),
                    valued('t', "type[,type]...", "filesystem, volume, snapshot, bookmark or all"),
                    valued('s', "property", "sort by it, least first"),
                    valued('S', "property", "sort by it, greatest first"),
                ],
                operands: "[filesystem|snapshot]...",
                least: 0,
                most: MANY,
            },
            doc: "Lists file systems and snapshots with their sizes and mountpoints.",
            run: list,
        },
        Command {
            names: &["get"],
            syntax: Syntax {
                flags: &[
                    flag('H', "no headings, tabs between columns"),
                    flag('p', "exact numbers"),
                    JSON_FLAG,
                    JSON_INT,
                    flag('r', "children too"),
                    valued('d', "depth", "children so many levels down"),
                    valued(
                        'o',
                        "field[,field]...",
                        "which of name, property, value, received, source, or all",
                    ),
                    valued(
                        's',
                        "source[,source]...",
                        "only values from local, default, inherited, temporary, received, none",
                    ),
                    valued('t', "type[,type]...", "filesystem, volume, snapshot, bookmark or all"),
                ],
                operands: "all|property[,property]... [filesystem|snapshot]...",
                least: 1,
                most: MANY,
            },
            doc: "Prints properties of file systems and snapshots.",
            run: get,
        },
        Command {
            names: &["set"],
            syntax: Syntax {
                flags: &[flag('u', "do not mount or unmount because of it")],
                operands: "property=value... filesystem|snapshot...",
                least: 2,
                most: MANY,
            },
            doc: "Changes properties of file systems, and your own (with a ':') of snapshots.",
            run: set,
        },
        Command {
            names: &["inherit"],
            syntax: Syntax {
                flags: &[
                    flag('r', "in all children too, and in their snapshots"),
                    flag('S', "back to the received value, or inherit"),
                ],
                operands: "property filesystem|snapshot...",
                least: 2,
                most: MANY,
            },
            doc: "Forgets a setting, so that the parent's counts.",
            run: inherit,
        },
        crate::sharing::REFLINK,
        Command {
            names: &["userspace"],
            syntax: Syntax { flags: OWNER_FLAGS, operands: "filesystem|path", least: 1, most: 1 },
            doc: "Lists what each user takes up, and its quotas.",
            run: zfs_userspace::userspace,
        },
        Command {
            names: &["groupspace"],
            syntax: Syntax { flags: OWNER_FLAGS, operands: "filesystem|path", least: 1, most: 1 },
            doc: "Lists what each group takes up, and its quotas.",
            run: zfs_userspace::groupspace,
        },
        Command {
            names: &["rename"],
            syntax: Syntax {
                flags: &[
                    flag('f', "even if files are open"),
                    flag('p', "missing parents of the new name too"),
                    flag('r', "snapshots of all children too"),
                    flag('u', "leave mounted where it is what is mounted"),
                ],
                operands: "filesystem|snapshot newname",
                least: 2,
                most: 2,
            },
            doc: "Moves a file system, with all below it, to another name in its pool, or gives a snapshot another name.",
            run: zfs_rename::rename,
        },
        Command {
            names: &["change-key"],
            syntax: Syntax {
                flags: &[
                    flag('i', "take the key of the encryption root above"),
                    flag('l', "load the present key first"),
                    valued('o', "property=value", "keyformat= or keylocation= of the new key"),
                ],
                operands: "filesystem",
                least: 1,
                most: 1,
            },
            doc: "Changes the key of a file system; what is stored is not encrypted anew.",
            run: zfs_rename::change_key,
        },
        Command {
            names: &["mount"],
            syntax: Syntax {
                flags: &[
                    flag('a', "all that mount by themselves"),
                    flag('R', "it, and all below it that mount by themselves"),
                    JSON_FLAG,
                    flag('l', "load keys first"),
                    flag('f', "accepted and without meaning"),
                    flag('O', "over a folder that is not empty"),
                    flag('v', "say what is mounted"),
                    valued('o', "options", "ro, noexec and the like, for this mount"),
                ],
                operands: "[filesystem]",
                least: 0,
                most: 1,
            },
            doc: "Mounts file systems; without a name, lists what is mounted.",
            run: mount,
        },
        Command {
            names: &["unmount", "umount"],
            syntax: Syntax {
                flags: &[
                    flag('a', "all"),
                    flag('f', "even if files are open"),
                    flag('u', "unload keys that are no longer needed"),
                ],
                operands: "[filesystem|mountpoint]",
                least: 0,
                most: 1,
            },
            doc: "Unmounts file systems.",
            run: unmount,
        },
        Command {
            names: &["load-key"],
            syntax: Syntax {
                flags: &[
                    flag('a', "all"),
                    flag('r', "children too"),
                    flag('n', "only try"),
                    valued('L', "keylocation", "prompt or file:///path instead of the property"),
                ],
                operands: "[filesystem]",
                least: 0,
                most: 1,
            },
            doc: "Loads the keys of encrypted file systems.",
            run: load_key,
        },
        Command {
            names: &["unload-key"],
            syntax: Syntax {
                flags: &[flag('a', "all"), flag('r', "children too")],
                operands: "[filesystem]",
                least: 0,
                most: 1,
            },
            doc: "Forgets the keys of encrypted file systems.",
            run: unload_key,
        },
    ],
};

fn create(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    let doing = || format!("cannot create '{}'", tame(&name));
    let mut properties = assignments(parsed.values('o'))?;
    let volume = new_volume(parsed, &mut properties)?;
    let bytes = volume.as_ref().map(|volume| volume.bytes);
    steadfast_property::check_dataset_name(&name)
        .map_err(steadfast_control::check::name_refusal)
        .doing(doing)?;
    let key = new_key(session, &name, &properties).doing(doing)?;
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
        for (property, value) in size.into_iter().chain(exact) {
            session.line(format!("property\t{property}\t{}", tame(&value)));
        }
    } else if parsed.has('v') {
        for created in &outcome.touched {
            session.line(format!("{} {created}", if parsed.has('n') { "would create" } else { "create" }));
        }
        for (name, value) in &properties {
            session.line(format!("property {name}={}", tame(value)));
        }
    }
    session.warn(&format!("'{name}' is created, but"), &outcome.warnings);
    Ok(())
}

/// What `-V`, `-b` and `-s` ask for.
fn new_volume(parsed: &Parsed, properties: &mut Properties) -> Result<Option<NewVolume>, Failure> {
    let Some(size) = parsed.value('V') else {
        return match parsed.value('b').is_some() || parsed.has('s') {
            true => Err(Failure::Usage("-b and -s are for volumes, which -V creates".into())),
            false => Ok(None),
        };
    };
    let Some(bytes) = parse_size(size).filter(|bytes| *bytes > 0) else {
        return Err(Failure::Usage(format!("'{}' is no size of a volume", tame(size))));
    };
    if let Some(block) = parsed.value('b')
        && properties.insert("volblocksize".into(), block.to_owned()).is_some()
    {
        return Err(Failure::Usage("the block of a volume is given twice, with -b and with -o".into()));
    }
    Ok(Some(NewVolume { bytes, sparse: parsed.has('s') }))
}

fn destroy(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    if parsed.operands[0].contains('@') {
        return zfs_snapshots::destroy(session, parsed);
    }
    if parsed.operands[0].contains('#') {
        return zfs_streams::destroy_bookmark(session, parsed);
    }
    let name = parsed.operands[0].clone();
    let request = FsDestroy {
        name: name.clone(),
        recursive: parsed.has('r') || parsed.has('R'),
        clones: parsed.has('R'),
        force: parsed.has('f'),
        dry_run: parsed.has('n'),
    };
    let outcome = session.ask(request).doing(|| format!("cannot destroy '{}'", tame(&name)))?;
    if parsed.has('v') || parsed.has('n') && parsed.has('p') {
        for gone in &outcome.touched {
            session.line(match (parsed.has('p'), parsed.has('n')) {
                (true, _) => format!("destroy\t{gone}"),
                (false, true) => format!("would destroy {gone}"),
                (false, false) => format!("will destroy {gone}"),
            });
        }
    }
    session.warn(&format!("'{name}' is destroyed, but"), &outcome.warnings);
    Ok(())
}

/// File systems that the operands name (as names or as paths below a mountpoint), as deep as the options say.
fn select(
    session: &mut Session<'_, '_>,
    parsed: &Parsed,
    operands: &[String],
    all_without_names: bool,
    kinds: Kinds,
    wanted: &[String],
) -> Result<Vec<FsInfo>, Refusal> {
    let depth = match parsed.value('d').map(str::parse) {
        Some(Ok(depth)) => Some(depth),
        Some(Err(_)) => {
            return Err(Refusal::new(Code::PropValue, "the depth after -d is not a number"));
        }
        None if parsed.has('r') || (operands.is_empty() && all_without_names) => None,
        None => Some(0),
    };
    let mut names = Vec::new();
    for operand in operands {
        names.push(if operand.starts_with('/') { name_of_path(session, operand)? } else { operand.clone() });
    }
    zfs_snapshots::listed(session, names, depth, kinds, wanted)
}

/// The file system that is mounted at `path` or at the nearest folder above it.
pub(crate) fn name_of_path(session: &mut Session<'_, '_>, path: &str) -> Result<String, Refusal> {
    let all = session.ask(FsList::default())?;
    let holds = |fs: &&FsInfo| fs.mounted_at.as_ref().is_some_and(|at| Path::new(path).starts_with(at));
    let nearest =
        all.iter().filter(holds).max_by_key(|fs| fs.mounted_at.as_ref().map(|at| at.as_os_str().len()));
    nearest.map(|fs| fs.name.clone()).ok_or_else(|| {
        Refusal::new(Code::FsAbsent, format!("no file system of ours is mounted at {}", tame(path)))
    })
}

const LIST_COLUMNS: &str = "name,used,available,referenced,mountpoint";

/// What `space` stands for in `-o`.
const SPACE_COLUMNS: &str =
    "name,available,used,usedbysnapshots,usedbydataset,usedbyrefreservation,usedbychildren";

fn in_full(column: &str) -> String {
    if column == "space" { SPACE_COLUMNS } else { column }.to_owned()
}

fn list(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let given: Vec<&str> = parsed.values('o').collect();
    let given: Vec<String> = given.iter().flat_map(|list| list.split(',')).map(in_full).collect();
    let given: Vec<&str> = given.iter().map(String::as_str).collect();
    let names = columns_of(Scope::Dataset, if given.is_empty() { &[LIST_COLUMNS] } else { &given })?;
    let mut orders = Vec::new();
    for (letter, name) in parsed.ordered().filter(|(letter, _)| matches!(letter, 's' | 'S')) {
        let name = columns_of(Scope::Dataset, &[name])?.remove(0);
        orders.push((name, letter == 'S'));
    }
    let kinds = Kinds::of(parsed, false)?;
    let mut wanted: Vec<String> = names.clone();
    wanted.extend(orders.iter().map(|(name, _)| name.clone()));
    let mut found =
        select(session, parsed, &parsed.operands, true, kinds, &wanted).doing(|| "cannot list".into())?;
    sort(&mut found, &orders);
    let exact = parsed.has('p');
    if parsed.has('j') {
        let text = as_json("zfs list", &found, exact, parsed.has_long("json-int"), |fs| {
            names.iter().filter(|n| *n != "name").map(|n| (n.clone(), cell(fs, n))).collect()
        });
        session.line(text);
        return Ok(());
    }
    if found.is_empty() {
        if !parsed.has('H') && !session.failed {
            session.line("no datasets available");
        }
        return Ok(());
    }
    let columns: Vec<Column> = names.iter().map(|name| column(Scope::Dataset, name)).collect();
    let row = |fs: &FsInfo| {
        let cells = names.iter().map(|name| shown(Scope::Dataset, name, &cell(fs, name).value, exact));
        cells.collect::<Vec<String>>()
    };
    let rows: Vec<Vec<String>> = found.iter().map(row).collect();
    session.out.push_str(&render(&columns, &rows, parsed.has('H')));
    Ok(())
}

/// A property, the name among them; `-` where there is none.
fn cell(fs: &FsInfo, name: &str) -> Value {
    match name {
        "name" => Value::measured(&fs.name),
        name => fs.properties.get(name).cloned().unwrap_or_else(|| Value::measured("-")),
    }
}

/// File systems by their names, each before its snapshots, these by their age, and they before what lies below.
fn in_order(fs: &FsInfo) -> (Vec<&str>, bool, u64, &str) {
    let (filesystem, snapshot) = fs.name.split_once('@').unwrap_or((&fs.name, ""));
    let age = if snapshot.is_empty() { 0 } else { fs.createtxg };
    (filesystem.split('/').collect(), !snapshot.is_empty(), age, snapshot)
}

/// Sorts by the first order, ties by the next, and last by name. A missing value comes last.
fn sort(found: &mut [FsInfo], orders: &[(String, bool)]) {
    let compare = |a: &FsInfo, b: &FsInfo| {
        for (name, reverse) in orders {
            let (a, b) = (cell(a, name).value, cell(b, name).value);
            let order = match (a == "-", b == "-") {
                (false, false) => match (a.parse::<f64>(), b.parse::<f64>()) {
                    (Ok(a), Ok(b)) => a.partial_cmp(&b).unwrap_or(Ordering::Equal),
                    _ => a.cmp(&b),
                },
                (a_missing, b_missing) => {
                    let order = a_missing.cmp(&b_missing);
                    if *reverse { order.reverse() } else { order }
                }
            };
            let order = if *reverse { order.reverse() } else { order };
            if order != Ordering::Equal {
                return order;
            }
        }
        in_order(a).cmp(&in_order(b))
    };
    found.sort_by(compare);
}

fn as_json(
    command: &str,
    found: &[FsInfo],
    exact: bool,
    as_number: bool,
    properties: impl Fn(&FsInfo) -> BTreeMap<String, Value>,
) -> String {
    let mut by_name = serde_json::Map::new();
    for fs in found {
        let mut map = serde_json::Map::new();
        for (name, value) in properties(fs) {
            let shown = shown(Scope::Dataset, &name, &value.value, exact);
            map.insert(name, json::property(&shown, &value, as_number));
        }
        let entry = serde_json::json!({
            "name": fs.name,
            "type": match fs.name.find(['@', '#']).map(|at| fs.name.as_bytes()[at]) {
                Some(b'@') => "SNAPSHOT",
                Some(_) => "BOOKMARK",
                None if fs.value("type") == "volume" => "VOLUME",
                None => "FILESYSTEM",
            },
            "pool": fs.name.split('/').next(),
            "createtxg": json::number(fs.createtxg, as_number),
            "properties": map,
        });
        by_name.insert(fs.name.clone(), entry);
    }
    let mut document = json::document(command);
    document.insert("datasets".into(), by_name.into());
    json::text(document)
}

fn get(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let fields = get_fields(parsed, true)?;
    let wanted = match parsed.operands[0].as_str() {
        "all" => None,
        list => Some(columns_of(Scope::Dataset, &[list])?),
    };
    let mut sources: Vec<&str> = Vec::new();
    for source in parsed.values('s').flat_map(|list| list.split(',')) {
        if !["local", "default", "inherited", "temporary", "received", "none"].contains(&source) {
            let allowed = "must be local, default, inherited, temporary, received or none";
            return Err(Failure::Usage(format!("invalid source '{source}': {allowed}")));
        }
        sources.push(source);
    }
    let kinds = Kinds::of(parsed, true)?;
    let mut found =
        select(session, parsed, &parsed.operands[1..], true, kinds, wanted.as_deref().unwrap_or(&[]))
            .doing(|| "cannot get properties".into())?;
    for fs in found.iter_mut().filter(|fs| !fs.name.contains(['@', '#'])) {
        let names = wanted.as_deref().unwrap_or_default();
        fs.properties.extend(zfs_userspace::values(session, &fs.name, names, parsed.has('p'))?);
    }
    let from = |value: &Value| {
        let word = match &value.source {
            Source::None => "none",
            Source::Default => "default",
            Source::Local => "local",
            Source::Received => "received",
            Source::Temporary => "temporary",
            Source::Inherited(_) => "inherited",
        };
        sources.is_empty() || sources.contains(&word)
    };
    let names_for = |fs: &FsInfo| wanted.clone().unwrap_or_else(|| all_properties(DATASET, &fs.properties));
    let exact = parsed.has('p');
    if parsed.has('j') {
        let text = as_json("zfs get", &found, exact, parsed.has_long("json-int"), |fs| {
            let all = names_for(fs).into_iter().map(|n| {
                let value = cell(fs, &n);
                (n, value)
            });
            all.filter(|(_, value)| from(value)).collect()
        });
        session.line(text);
        return Ok(());
    }
    let mut rows = Vec::new();
    for fs in &found {
        for name in names_for(fs) {
            let value = cell(fs, &name);
            if from(&value) {
                let shown = shown(Scope::Dataset, &name, &value.value, exact);
                let received = fs
                    .received
                    .get(&name)
                    .map(|value| tame(&self::shown(Scope::Dataset, &name, value, exact)));
                rows.push(get_row(&fields, (&fs.name, &name), shown, received, &value.source));
            }
        }
    }
    if !rows.is_empty() {
        session.out.push_str(&render(&get_columns(&fields), &rows, parsed.has('H')));
    }
    Ok(())
}

fn set(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (settings, names): (Vec<_>, Vec<_>) =
        parsed.operands.iter().partition(|operand| operand.contains('='));
    if settings.is_empty() {
        return Err(Failure::Usage("missing property=value argument".into()));
    }
    if names.is_empty() {
        return Err(Failure::Usage("missing dataset name".into()));
    }
    let properties = assignments(settings.into_iter().map(String::as_str))?;
    for name in names {
        let request = FsSet { name: name.clone(), properties: properties.clone(), no_mount: parsed.has('u') };
        match session.ask(request) {
            Ok(outcome) => session.warn(&format!("the property of '{name}' is set, but"), &outcome.warnings),
            Err(refusal) => session.complain(&format!("cannot set property for '{}'", tame(name)), &refusal),
        }
    }
    Ok(())
}

fn inherit(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (property, names) = parsed.operands.split_first().expect("the syntax asks for two operands at least");
    // ZFS calls an unknown property a misuse of the command.
    if lookup(Scope::Dataset, property).is_none() && !steadfast_property::is_user_property(property) {
        columns_of(Scope::Dataset, &[property])?;
    }
    for name in names {
        let request = FsInherit {
            name: name.clone(),
            property: property.clone(),
            recursive: parsed.has('r'),
            received: parsed.has('S'),
        };
        match session.ask(request) {
            Ok(outcome) => session.warn(&format!("'{name}' inherits {property}, but"), &outcome.warnings),
            Err(refusal) => {
                session.complain(&format!("cannot inherit {property} for '{}'", tame(name)), &refusal)
            }
        }
    }
    Ok(())
}

fn mount(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let options: Vec<String> = parsed.values('o').flat_map(|o| o.split(',')).map(str::to_owned).collect();
    if parsed.has('R') {
        return mount_tree(session, parsed, &options);
    }
    match (parsed.has('a'), parsed.operands.first()) {
        (true, Some(_)) => Err(Failure::Usage("too many arguments: -a mounts all".into())),
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
            let pools = session.ask(FsList::default()).doing(|| "cannot list".into())?;
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

/// `zfs mount -R`: a file system, and all below it that mount by themselves.
fn mount_tree(session: &mut Session<'_, '_>, parsed: &Parsed, options: &[String]) -> Result<(), Failure> {
    let Some(name) = parsed.operands.first().filter(|_| !parsed.has('a')) else {
        return Err(Failure::Usage("-R takes a file system, and not -a".into()));
    };
    let doing = || format!("cannot mount '{}'", tame(name));
    let found = session.ask(FsList { names: vec![name.clone()], depth: Some(0) }).doing(doing)?;
    if parsed.has('l') {
        load_keys_below(session, name)?;
    }
    let overlay = parsed.has('O');
    // What only holds others is passed over.
    let is_place = |fs: &FsInfo| fs.value("canmount") != "off" && fs.value("mountpoint").starts_with('/');
    if found.iter().all(|fs| fs.mounted_at.is_none() && is_place(fs)) {
        let request = FsMount { name: name.clone(), at: None, options: options.to_vec(), overlay };
        let outcome = session.ask(request).doing(doing)?;
        session.warn(&format!("'{name}' is mounted, but"), &outcome.warnings);
    }
    mount_below(session, name, options, overlay, parsed.has('v'))
}

/// Where a file system is mounted, as text.
fn place(fs: &FsInfo) -> String {
    fs.mounted_at.as_ref().map_or_else(|| "-".to_owned(), |at| at.display().to_string())
}

fn mounted(session: &mut Session<'_, '_>) -> Result<Vec<FsInfo>, Failure> {
    let mut all = session.ask(FsList::default()).doing(|| "cannot list".into())?;
    all.retain(|fs| fs.mounted_at.is_some());
    Ok(all)
}

/// Mounts everything at and below `name` that mounts by itself and can be.
///
/// # Errors
/// If it cannot be listed; what cannot be mounted is told.
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
            Err(refusal) => session.complain(&format!("cannot mount '{}'", tame(&fs.name)), &refusal),
        }
    }
    Ok(())
}

fn unmount(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let force = parsed.has('f');
    match (parsed.has('a'), parsed.operands.first()) {
        (true, Some(_)) => return Err(Failure::Usage("too many arguments: -a unmounts all".into())),
        (false, None) => return Err(Failure::Usage("missing filesystem argument".into())),
        (true, None) => {
            // Children first: they are mounted inside their parents.
            for fs in mounted(session)?.into_iter().rev() {
                unmount_one(session, &fs.name, force, parsed.has('u'));
            }
        }
        (false, Some(operand)) => {
            let name = if operand.starts_with('/') {
                let doing = || format!("cannot unmount '{}'", tame(operand));
                let name = name_of_path(session, operand).doing(doing)?;
                let at = session.ask(FsList { names: vec![name.clone()], depth: Some(0) }).doing(doing)?;
                if !at.iter().any(|fs| fs.mounted_at.as_deref() == Some(Path::new(operand))) {
                    return Err(Refusal::new(Code::FsNotMounted, "it is not a mountpoint")).doing(doing);
                }
                name
            } else {
                operand.clone()
            };
            unmount_one(session, &name, force, parsed.has('u'));
        }
    }
    Ok(())
}

fn unmount_one(session: &mut Session<'_, '_>, name: &str, force: bool, unload: bool) {
    match session.ask(FsUnmount { name: name.to_owned(), force }) {
        Ok(outcome) => session.warn(&format!("'{name}' is unmounted, but"), &outcome.warnings),
        Err(refusal) => return session.complain(&format!("cannot unmount '{}'", tame(name)), &refusal),
    }
    if unload && let Err(refusal) = session.ask(FsUnloadKey { name: name.to_owned() }) {
        // Others may still need it, or it never had one: then it stays, as in ZFS.
        if !matches!(refusal.code, Code::KeyBusy | Code::KeyNone | Code::KeyInherited) {
            session.complain(&format!("cannot unload the key of '{}'", tame(name)), &refusal);
        }
    }
}

/// Encryption roots among `found`.
fn roots(found: &[FsInfo]) -> impl Iterator<Item = &FsInfo> {
    found.iter().filter(|fs| fs.value("encryptionroot") == fs.name)
}

fn load_key(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let location = parsed.value('L');
    let dry_run = parsed.has('n');
    match (parsed.has('a'), parsed.operands.first()) {
        (true, Some(_)) => Err(Failure::Usage("too many arguments: -a means all".into())),
        (false, None) => Err(Failure::Usage("missing dataset argument (specify -a for all)".into())),
        (all, operand) if all || parsed.has('r') => {
            let names = operand.cloned().into_iter().collect();
            let found = session.ask(FsList { names, depth: None }).doing(|| "cannot load keys".into())?;
            load_keys(session, &found, location, dry_run);
            Ok(())
        }
        (_, operand) => {
            let name = operand.expect("the arms above took the case without one").clone();
            let doing = || format!("cannot load the key of '{}'", tame(&name));
            let found = session.ask(FsList { names: vec![name.clone()], depth: Some(0) }).doing(doing)?;
            let Some(fs) = found.first() else {
                return Err(Refusal::new(Code::FsAbsent, "it does not exist")).doing(doing);
            };
            if !dry_run && fs.value("keystatus") == "available" {
                return Err(Refusal::new(Code::KeyLoaded, "its key is loaded already")).doing(doing);
            }
            load_one(session, fs, location, dry_run).doing(doing)
        }
    }
}

/// Loads all keys at and below `name` that are not loaded.
///
/// # Errors
/// If the file systems cannot be listed; keys that cannot be loaded are told.
pub(crate) fn load_keys_below(session: &mut Session<'_, '_>, name: &str) -> Result<(), Failure> {
    let found = session
        .ask(FsList { names: vec![name.to_owned()], depth: None })
        .doing(|| format!("cannot load the keys of '{}'", tame(name)))?;
    load_keys(session, &found, None, false);
    Ok(())
}

fn load_keys(session: &mut Session<'_, '_>, found: &[FsInfo], location: Option<&str>, dry_run: bool) {
    let (mut loaded, mut wanted) = (0, 0);
    for fs in roots(found).filter(|fs| dry_run || fs.value("keystatus") == "unavailable") {
        wanted += 1;
        match load_one(session, fs, location, dry_run) {
            Ok(()) => loaded += 1,
            Err(refusal) => {
                session.complain(&format!("cannot load the key of '{}'", tame(&fs.name)), &refusal)
            }
        }
    }
    if wanted > 0 {
        session.line(format!(
            "{loaded} / {wanted} key(s) successfully {}",
            if dry_run { "verified" } else { "loaded" }
        ));
    }
}

/// Loads the key that opens `name`, if it needs one.
pub(crate) fn load_key_of(session: &mut Session<'_, '_>, name: &str) -> Result<(), Failure> {
    let doing = || format!("cannot load the key of '{}'", tame(name));
    let found = session.ask(FsList { names: vec![name.to_owned()], depth: Some(0) }).doing(doing)?;
    let Some(fs) = found.first().filter(|fs| fs.value("keystatus") == "unavailable") else { return Ok(()) };
    let root = fs.value("encryptionroot").to_owned();
    let roots = session.ask(FsList { names: vec![root], depth: Some(0) }).doing(doing)?;
    match roots.first() {
        Some(root) => load_one(session, root, None, false).doing(doing),
        None => Ok(()),
    }
}

/// Gets the key of an encryption root and loads it. On a terminal a wrong passphrase may be typed again.
fn load_one(
    session: &mut Session<'_, '_>,
    fs: &FsInfo,
    location: Option<&str>,
    dry_run: bool,
) -> Result<(), Refusal> {
    let Some(format) = KeyFormat::parse(fs.value("keyformat")) else {
        return Err(match fs.value("encryptionroot") {
            "-" | "" | "none" => Refusal::new(Code::KeyNone, "it is not encrypted").with("fs", &fs.name),
            root => {
                Refusal::new(Code::KeyInherited, format!("its key is that of '{root}'")).with("root", root)
            }
        });
    };
    let root = fs.value("encryptionroot");
    if root != fs.name {
        return Err(
            Refusal::new(Code::KeyInherited, format!("its key is that of '{root}'")).with("root", root)
        );
    }
    let location = location.unwrap_or(fs.value("keylocation"));
    let typed = location == "prompt" && session.world.input_is_terminal;
    let mut attempt = 1;
    loop {
        let key = key::obtain(session.world, &fs.name, format, location, false);
        let result = key.and_then(|key| session.ask(FsLoadKey { name: fs.name.clone(), key, dry_run }));
        match result {
            Ok(outcome) => {
                session.warn(&format!("the key of '{}' is loaded, but", fs.name), &outcome.warnings);
                return Ok(());
            }
            Err(refusal)
                if typed
                    && attempt < ATTEMPTS_MAX
                    && matches!(refusal.code, Code::KeyWrong | Code::KeyFormat) =>
            {
                session.tell(&format!("{}; try again\n", tame(&refusal.what)));
                attempt += 1;
            }
            Err(refusal) => return Err(refusal),
        }
    }
}

fn unload_key(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    match (parsed.has('a'), parsed.operands.first()) {
        (true, Some(_)) => Err(Failure::Usage("too many arguments: -a means all".into())),
        (false, None) => Err(Failure::Usage("missing dataset argument (specify -a for all)".into())),
        (all, operand) if all || parsed.has('r') => {
            let names = operand.cloned().into_iter().collect();
            let found = session.ask(FsList { names, depth: None }).doing(|| "cannot unload keys".into())?;
            let loaded: Vec<String> = roots(&found)
                .filter(|fs| fs.value("keystatus") == "available")
                .map(|fs| fs.name.clone())
                .collect();
            // Children first, so that a parent's key is no longer needed when its turn comes.
            for name in loaded.into_iter().rev() {
                if let Err(refusal) = session.ask(FsUnloadKey { name: name.clone() }) {
                    session.complain(&format!("cannot unload the key of '{}'", tame(&name)), &refusal);
                }
            }
            Ok(())
        }
        (_, operand) => {
            let name = operand.expect("the arms above took the case without one").clone();
            session
                .ask(FsUnloadKey { name: name.clone() })
                .doing(|| format!("cannot unload the key of '{}'", tame(&name)))?;
            Ok(())
        }
    }
}
