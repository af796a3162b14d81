//! `zpool import`: lists pools that can be imported, and imports them.

use super::operands::check_refused;
use super::reason::status_text;
use super::status_json::vdev_head;
use super::vdev_table::import_table;
use super::vdev_tree::label;
use crate::command::Command;
use crate::date::ctime;
use crate::json::{self, Numbers};
use crate::key;
use crate::options::{Flag, JSON, JSON_INT, Parsed, Syntax, flag, valued};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use crate::zfs::keys::load_keys_below;
use crate::zfs::mount::mount_all_below;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use steadfast_control::api::{
    Outcome, PoolCandidate, PoolExport, PoolImport, PoolImportScan, PoolList, PoolSelector, Properties,
    VdevReport,
};
use steadfast_control::cachefile::{CachedPool, Cachefile};
use steadfast_control::{Code, KeyFormat, Refusal, stores};
use steadfast_property::Scope;

const ANCHOR: &str = "anchor";
const TO_CHECKPOINT: &str = "rewind-to-checkpoint";
const ACCEPT_ROLLBACK: &str = "accept-rollback";
const ACCEPT_LOST: &str = "accept-lost-anchor";
const ACCEPT_LOST_LOG: &str = "accept-lost-log";

pub(super) const COMMAND: Command = Command {
    names: &["import"],
    syntax: Syntax {
        flags: &[
            flag('a', "all pools found"),
            valued('c', "file", "pools of this list (cachefile) only; search its devices and their folders"),
            valued('d', "folder|device", "where to search; may be repeated"),
            flag('D', "search for destroyed pools only"),
            flag('f', "even if the pool seems to be in use"),
            flag(
                'F',
                "if the newest root cannot be read, go back to the newest one that can: for good on stores of \
                 objects without an anchor, elsewhere with -o readonly=on",
            ),
            JSON,
            JSON_INT,
            flag('l', "load keys"),
            flag('n', "with -F: only tell which root would be imported"),
            flag('N', "do not mount"),
            valued('o', "property=value", "readonly=on, altroot=FOLDER, cachefile=FILE, or a mount option"),
            valued('R', "root", "prefix of all mountpoints (altroot); the daemon does not remember the pool"),
            flag('s', "accepted, no effect: devices are always searched"),
            flag('t', "the new name counts until the export; the devices keep the old one"),
            valued('T', "txg", "with -o readonly=on: the root of this txg, or the newest one before it"),
            Flag {
                letter: '\0',
                long: TO_CHECKPOINT,
                value: "",
                doc: "take the pool back to its checkpoint; with -o readonly=on only look at it",
            },
            flag('X', "with -F: accepted, no effect"),
            flag(
                'm',
                "import without the records of a lost or damaged intent log (ZIL); recorded in the history",
            )
            .or(ACCEPT_LOST_LOG),
            Flag {
                letter: '\0',
                long: ANCHOR,
                value: "path",
                doc: "path of the anchor, if it differs from the path in the labels",
            },
            Flag {
                letter: '\0',
                long: ACCEPT_ROLLBACK,
                value: "",
                doc: "import the root on the devices although the anchor holds another one; recorded in the history",
            },
            Flag {
                letter: '\0',
                long: ACCEPT_LOST,
                value: "",
                doc: "import the root on the devices although the anchor is lost; the pool has no anchor afterwards",
            },
        ],
        operands: "[pool|id [newpool]]",
        least: 0,
        most: 2,
    },
    doc: "Imports a pool. Without a name, lists the pools that can be imported.",
    run: import,
};

fn import(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    check_refused(parsed)?;
    let usage = |sentence: &str| Err(Failure::Usage(sentence.to_owned()));
    if parsed.has('n') && !parsed.has('F') {
        return usage("-n only works with -F");
    }
    if parsed.has('t') && parsed.operands.len() < 2 {
        return usage("missing new pool name: -t needs one");
    }
    if parsed.has('c') && parsed.has('d') {
        return usage("-c cannot be combined with -d");
    }
    let mut search: Vec<PathBuf> = parsed.values('d').map(|dir| session.world.absolute(dir)).collect();
    let mut list = None;
    if let Some(file) = parsed.value('c') {
        let pools = list_of(&session.world.absolute(file)).doing(|| "cannot import".to_owned())?;
        search = places_of(&pools);
        list = Some(pools);
    }
    let is_meant =
        |guid: u64| list.as_ref().is_none_or(|pools| pools.iter().any(|listed| listed.guid == guid));
    let properties = properties(session, parsed)?;
    // Each of these accepts a loss, so the pool must be named.
    let one_only =
        [ANCHOR, ACCEPT_ROLLBACK, ACCEPT_LOST, TO_CHECKPOINT].into_iter().find(|long| parsed.has_long(long));
    let one_only = one_only.or(parsed.has('m').then_some(ACCEPT_LOST_LOG));
    if let Some(long) = one_only.filter(|_| parsed.operands.is_empty()) {
        return Err(Failure::Usage(format!("missing pool argument: --{long} is for one pool")));
    }
    match (parsed.has('a'), &parsed.operands[..]) {
        (true, [_, ..]) => Err(Failure::Usage("too many arguments: -a means all pools".into())),
        (false, []) => {
            let mut found = scan(session, parsed, search)?;
            found.retain(|pool| is_meant(pool.guid));
            if parsed.has('j') {
                session.line(as_json(&found, parsed));
                return Ok(());
            }
            if found.is_empty() {
                session.tell("no pools available to import\n");
            }
            for (index, pool) in found.iter().enumerate() {
                if index > 0 {
                    session.line("");
                }
                describe(session, pool);
            }
            Ok(())
        }
        (true, []) => {
            let mut found = scan(session, parsed, search.clone())?;
            found.retain(|pool| is_meant(pool.guid));
            if found.is_empty() {
                session.tell("no pools available to import\n");
            }
            for pool in found {
                let selector = PoolSelector::Guid(pool.guid);
                if let Err(failure) = one(session, parsed, &pool.name, selector, None, &search, &properties) {
                    match failure {
                        Failure::Refused(doing, refusal) => session.complain(&doing, &refusal),
                        other => return Err(other),
                    }
                }
            }
            Ok(())
        }
        (false, [pool, new_name @ ..]) => {
            let selector = match (pool.parse(), &list) {
                (Ok(guid), _) => PoolSelector::Guid(guid),
                (Err(_), None) => PoolSelector::Name(pool.clone()),
                // Another pool of this name may lie beside it.
                (Err(_), Some(pools)) => match pools.iter().find(|listed| listed.name == *pool) {
                    Some(listed) => PoolSelector::Guid(listed.guid),
                    None => {
                        let what = format!("the list names no pool '{pool}'");
                        let refusal = Refusal::new(Code::PoolAbsent, what).with("pool", pool);
                        return Err(refusal).doing(|| format!("cannot import '{}'", tame(pool)));
                    }
                },
            };
            if parsed.has('n') {
                return tell(session, parsed, pool, selector, &search);
            }
            one(session, parsed, pool, selector, new_name.first().cloned(), &search, &properties)
        }
    }
}

/// The list that a daemon writes (`cachefile`). ZFS's own list has another form.
fn list_of(file: &Path) -> Result<Vec<CachedPool>, Refusal> {
    if !file.exists() {
        let what = format!("there is no list of pools {}", file.display());
        return Err(Refusal::new(Code::FileIo, what).with("file", file.display()));
    }
    Cachefile::new(file).load()
}

/// Where the pools of a list are searched, as in ZFS: in the folders of its devices, for a device
/// may have another name by now.
fn places_of(pools: &[CachedPool]) -> Vec<PathBuf> {
    let place = |device: &PathBuf| match stores::is_address(device) {
        true => Some(device.clone()),
        false => device.parent().filter(|folder| folder.is_dir()).map(Path::to_owned),
    };
    let places: BTreeSet<PathBuf> = pools.iter().flat_map(|pool| &pool.devices).filter_map(place).collect();
    places.into_iter().collect()
}

/// `-F -n`: says which root would be imported. It is imported without the right to write and
/// exported again.
fn tell(
    session: &mut Session<'_, '_>,
    parsed: &Parsed,
    shown: &str,
    selector: PoolSelector,
    search: &[PathBuf],
) -> Result<(), Failure> {
    let options = [("readonly", "on"), ("cachefile", "none")];
    let properties = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let request = request(session, parsed, selector, None, search, properties)?;
    let doing = || format!("cannot import '{}'", tame(shown));
    let outcome = ask(session, parsed, shown, PoolImport { no_mount: true, is_trial: true, ..request })?;
    for name in outcome.touched {
        let (state, lost) = returned(session, &name)?;
        session.ask(PoolExport { name: name.clone(), force: false }).doing(doing)?;
        session.line(format!("Would be able to return {} to its state as of {state}.", tame(&name)));
        if let Some(lost) = lost {
            session.line(format!("Would discard {lost}."));
        }
    }
    Ok(())
}

/// The state in which a pool was imported, and what was given up for it.
fn returned(session: &mut Session<'_, '_>, name: &str) -> Result<(String, Option<String>), Failure> {
    let pools =
        session.ask(PoolList { names: vec![name.to_owned()] }).doing(|| "cannot list pools".into())?;
    let Some(pool) = pools.first() else { return Ok(("txg 0".to_owned(), None)) };
    let Some(back) = pool.went_back else { return Ok((format!("txg {}", pool.txg), None)) };
    let state = format!("txg {}, {}", back.to, ctime(back.time_ns / 1_000_000_000));
    let lost = match back.from.saturating_sub(back.to) {
        0 | 1 => format!("the commit of txg {}", back.from),
        commits => format!("{commits} commits, up to txg {}", back.from),
    };
    Ok((state, Some(lost)))
}

/// Reads `-T`.
fn txg(parsed: &Parsed) -> Result<Option<u64>, Failure> {
    match parsed.value('T').map(|text| (text, text.parse::<u64>())) {
        None => Ok(None),
        Some((_, Ok(txg))) if txg > 0 => Ok(Some(txg)),
        Some((text, _)) => Err(Failure::Usage(format!("invalid txg '{}': must be a number", tame(text)))),
    }
}

/// The property that a mount option behind `-o` stands for: `ro` and `rw` are values of readonly.
pub(super) fn mount_option(text: &str) -> &str {
    match text {
        "ro" => "readonly=on",
        "rw" => "readonly=off",
        text => text,
    }
}

/// Reads `-o` and `-R`.
fn properties(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<Properties, Failure> {
    let mut properties = assignments(session, Scope::Pool, parsed.values('o').map(mount_option))?;
    if let Some(root) = parsed.value('R') {
        properties.insert("altroot".into(), root.to_owned());
        properties.entry("cachefile".into()).or_insert_with(|| "none".into());
    }
    Ok(properties)
}

fn scan(
    session: &mut Session<'_, '_>,
    parsed: &Parsed,
    search: Vec<PathBuf>,
) -> Result<Vec<PoolCandidate>, Failure> {
    session
        .ask_in_steps(PoolImportScan { search, destroyed: parsed.has('D') }, "import")
        .doing(|| "cannot search for pools".into())
}

/// Imports one pool, with the options in `parsed`.
///
/// # Errors
/// The daemon's refusal, or that of [`key::obtain`].
pub(super) fn one(
    session: &mut Session<'_, '_>,
    parsed: &Parsed,
    shown: &str,
    pool: PoolSelector,
    new_name: Option<String>,
    search: &[PathBuf],
    properties: &Properties,
) -> Result<(), Failure> {
    let request = request(session, parsed, pool, new_name, search, properties.clone())?;
    let outcome = ask(session, parsed, shown, request)?;
    session.warn(&format!("'{shown}' is imported, but"), &outcome.warnings);
    if parsed.has('T') || parsed.has('F') {
        let is_read_only = properties.get("readonly").is_some_and(|value| value == "on");
        for name in &outcome.touched {
            let (state, lost) = returned(session, name)?;
            if is_read_only || lost.is_some() {
                session.line(format!("Pool {} returned to its state as of {state}.", tame(name)));
            }
            if let Some(lost) = lost {
                session.line(format!("Discarded {lost}."));
            }
        }
    }
    if parsed.has('l') {
        for name in &outcome.touched {
            load_keys_below(session, name)?;
            if !parsed.has('N') {
                mount_all_below(session, name)?;
            }
        }
    }
    Ok(())
}

/// The request of an import, without a key.
fn request(
    session: &Session<'_, '_>,
    parsed: &Parsed,
    pool: PoolSelector,
    new_name: Option<String>,
    search: &[PathBuf],
    properties: Properties,
) -> Result<PoolImport, Failure> {
    Ok(PoolImport {
        pool,
        search: search.to_vec(),
        new_name,
        force: parsed.has('f'),
        destroyed: parsed.has('D'),
        temporary: parsed.has('t'),
        rewind: parsed.has('F'),
        is_trial: false,
        as_of: txg(parsed)?,
        no_mount: parsed.has('N'),
        properties,
        key: None,
        key_of_file: parsed.has('l'),
        anchor: parsed.value_of_long(ANCHOR).map(|path| session.world.absolute(path)),
        accept_rollback: parsed.has_long(ACCEPT_ROLLBACK),
        accept_lost_anchor: parsed.has_long(ACCEPT_LOST),
        accept_lost_log: parsed.has('m'),
        to_checkpoint: parsed.has_long(TO_CHECKPOINT),
    })
}

/// Imports a pool; asks for the key of a sealed one.
fn ask(
    session: &mut Session<'_, '_>,
    parsed: &Parsed,
    shown: &str,
    mut request: PoolImport,
) -> Result<Outcome, Failure> {
    let doing = || format!("cannot import '{}'", tame(shown));
    let steps = format!("import {}", tame(shown));
    match session.ask_in_steps(request.clone(), &steps) {
        // A sealed pool needs its key for the import. Only the daemon can see that a pool is
        // sealed.
        Err(refusal)
            if refusal.code == Code::PoolSealed && (parsed.has('l') || session.world.input_is_terminal) =>
        {
            request.key = Some(sealed_key(session, shown, &refusal).doing(doing)?);
            session.ask_in_steps(request, &steps).doing(doing)
        }
        other => other.doing(doing),
    }
}

fn sealed_key(
    session: &mut Session<'_, '_>,
    shown: &str,
    refusal: &Refusal,
) -> Result<steadfast_control::Key, Refusal> {
    let format = refusal.fields.get("keyformat").and_then(|text| KeyFormat::parse(text));
    let location = refusal.fields.get("keylocation").map_or("prompt", String::as_str);
    key::obtain(session.world, shown, format.unwrap_or(KeyFormat::Passphrase), location, false)
}

/// Pools that can be imported, in the shape of `zpool status -j`; ZFS has no such document.
fn as_json(found: &[PoolCandidate], parsed: &Parsed) -> String {
    fn devices(vdevs: &[VdevReport], parsed: &Parsed) -> Value {
        let entry = |vdev: &VdevReport| {
            let mut entry = vdev_head(vdev, parsed);
            if !vdev.children.is_empty() {
                entry["vdevs"] = devices(&vdev.children, parsed);
            }
            (label(vdev, parsed), entry)
        };
        vdevs.iter().map(entry).collect::<Map<_, _>>().into()
    }
    let numbers = Numbers::of(parsed);
    let entry = |pool: &PoolCandidate| {
        let mut entry = json!({
            "name": pool.name,
            "state": pool.state.as_str(),
            "pool_guid": numbers.raw(pool.guid),
            "importable": pool.importable,
            "vdevs": devices(&pool.vdevs, parsed),
        });
        if let Some(message) = &pool.message {
            entry["status"] = json!(message.what);
            entry["action"] = json!(message.advice());
            entry["code"] = json!(message.code.as_str());
        }
        // Two pools may have one name, but no two have one GUID.
        (pool.guid.to_string(), entry)
    };
    let mut document = json::document("zpool import");
    document.insert("pools".into(), found.iter().map(entry).collect::<Map<_, _>>().into());
    json::text(document)
}

fn describe(session: &mut Session<'_, '_>, pool: &PoolCandidate) {
    session.line(format!("   pool: {}", tame(&pool.name)));
    session.line(format!("     id: {}", pool.guid));
    session.line(format!("  state: {}", pool.state.as_str()));
    match &pool.message {
        Some(message) => {
            for line in status_text(None, std::slice::from_ref(message), session.words).lines() {
                session.line(if line.starts_with('\t') { line.to_owned() } else { format!(" {line}") });
            }
        }
        None => session.line(" action: The pool can be imported using its name or numeric identifier."),
    }
    session.line(" config:\n");
    session.out.push_str(&import_table(&pool.name, pool.state, &pool.vdevs));
}
