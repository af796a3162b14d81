//! `zpool import`: lists pools that can be imported, and imports them.

use super::vdev_table::vdev_table;
use crate::command::Command;
use crate::key;
use crate::message::three_parts;
use crate::options::{Flag, Parsed, Syntax, flag, valued};
use crate::properties::assignments;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use crate::zfs::keys::load_keys_below;
use crate::zfs::mount::mount_all_below;
use std::path::PathBuf;
use steadfast_control::api::{PoolCandidate, PoolImport, PoolImportScan, PoolSelector, Properties};
use steadfast_control::{Code, KeyFormat, Refusal};
use steadfast_property::Scope;

const ANCHOR: &str = "anchor";
const ACCEPT_ROLLBACK: &str = "accept-rollback";
const ACCEPT_LOST: &str = "accept-lost-anchor";
const ACCEPT_LOST_LOG: &str = "accept-lost-log";

pub(super) const COMMAND: Command = Command {
    names: &["import"],
    syntax: Syntax {
        flags: &[
            flag('a', "all pools found"),
            valued('c', "cachefile", "refused: use -d to say where to search"),
            valued('d', "folder|device", "where to search; may be repeated"),
            flag('D', "search for destroyed pools only"),
            flag('f', "even if the pool seems to be in use"),
            flag('F', "refused: an older root is never imported"),
            flag('l', "load keys"),
            flag('n', "refused, like -F"),
            flag('N', "do not mount"),
            valued('o', "property=value", "readonly=on, altroot=FOLDER, cachefile=none, or a mount option"),
            valued('R', "root", "prefix of all mountpoints (altroot); the daemon does not remember the pool"),
            flag('s', "accepted, no effect: devices are always searched"),
            flag('t', "refused: a new name is permanent"),
            valued('T', "txg", "refused: an older root is never imported"),
            flag('X', "refused: an older root is never imported"),
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

/// Refused options of ZFS, each with the reason.
const REFUSED: [(char, &str); 6] = [
    (
        'c',
        "-c: there are no cache files; the daemon remembers its pools, and -d says where to search for others",
    ),
    (
        'F',
        "-F: the last commit is always complete, so no older root is needed; --accept-lost-log, \
         --accept-lost-anchor and --accept-rollback each give up one thing that was lost",
    ),
    (
        'n',
        "-n: it belongs to -F, which is refused; `zpool import` without a name lists the pools and their problems",
    ),
    ('T', "-T: older roots are not kept, and the anchor forbids them; snapshots keep old states"),
    (
        'X',
        "-X: the last commit is always complete, so no older root is needed; `zpool import` without a name says \
         what is missing",
    ),
    (
        't',
        "-t: a new name is written to the devices; to undo it, export the pool and import it by its old name",
    ),
];

fn import(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    if let Some((_, why)) = REFUSED.iter().find(|(letter, _)| parsed.has(*letter)) {
        return Err(Failure::Usage((*why).to_owned()));
    }
    let search: Vec<PathBuf> = parsed.values('d').map(|dir| session.world.absolute(dir)).collect();
    let properties = properties(session, parsed)?;
    // Each of these accepts a loss, so the pool must be named.
    let one_only = [ANCHOR, ACCEPT_ROLLBACK, ACCEPT_LOST].into_iter().find(|long| parsed.has_long(long));
    let one_only = one_only.or(parsed.has('m').then_some(ACCEPT_LOST_LOG));
    if let Some(long) = one_only.filter(|_| parsed.operands.is_empty()) {
        return Err(Failure::Usage(format!("missing pool argument: --{long} is for one pool")));
    }
    match (parsed.has('a'), &parsed.operands[..]) {
        (true, [_, ..]) => Err(Failure::Usage("too many arguments: -a means all pools".into())),
        (false, []) => {
            let found = scan(session, parsed, search)?;
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
            let found = scan(session, parsed, search.clone())?;
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
            let selector = match pool.parse() {
                Ok(guid) => PoolSelector::Guid(guid),
                Err(_) => PoolSelector::Name(pool.clone()),
            };
            one(session, parsed, pool, selector, new_name.first().cloned(), &search, &properties)
        }
    }
}

/// Reads `-o` and `-R`. The mount options `ro` and `rw` stand for the property readonly.
fn properties(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<Properties, Failure> {
    let mut texts = Vec::new();
    for text in parsed.values('o') {
        match text {
            "ro" => texts.push("readonly=on"),
            "rw" => texts.push("readonly=off"),
            text => texts.push(text),
        }
    }
    let mut properties = assignments(session, Scope::Pool, texts.into_iter())?;
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
        .ask(PoolImportScan { search, destroyed: parsed.has('D') })
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
    let doing = || format!("cannot import '{}'", tame(shown));
    let mut request = PoolImport {
        pool,
        search: search.to_vec(),
        new_name,
        force: parsed.has('f'),
        destroyed: parsed.has('D'),
        no_mount: parsed.has('N'),
        properties: properties.clone(),
        key: None,
        anchor: parsed.value_of_long(ANCHOR).map(|path| session.world.absolute(path)),
        accept_rollback: parsed.has_long(ACCEPT_ROLLBACK),
        accept_lost_anchor: parsed.has_long(ACCEPT_LOST),
        accept_lost_log: parsed.has('m'),
    };
    let outcome = match session.ask(request.clone()) {
        // A sealed pool needs its key for the import. Only the daemon can see that a pool is
        // sealed.
        Err(refusal)
            if refusal.code == Code::PoolSealed && (parsed.has('l') || session.world.input_is_terminal) =>
        {
            request.key = Some(sealed_key(session, shown, &refusal).doing(doing)?);
            session.ask(request).doing(doing)?
        }
        other => other.doing(doing)?,
    };
    session.warn(&format!("'{shown}' is imported, but"), &outcome.warnings);
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

fn sealed_key(
    session: &mut Session<'_, '_>,
    shown: &str,
    refusal: &Refusal,
) -> Result<steadfast_control::Key, Refusal> {
    let format = refusal.fields.get("keyformat").and_then(|text| KeyFormat::parse(text));
    let location = refusal.fields.get("keylocation").map_or("prompt", String::as_str);
    key::obtain(session.world, shown, format.unwrap_or(KeyFormat::Passphrase), location, false)
}

fn describe(session: &mut Session<'_, '_>, pool: &PoolCandidate) {
    session.line(format!("   pool: {}", tame(&pool.name)));
    session.line(format!("     id: {}", pool.guid));
    session.line(format!("  state: {}", pool.state.as_str()));
    let words = session.words;
    match &pool.message {
        Some(message) => {
            for line in three_parts(message, words).lines() {
                session.line(format!(" {line}"));
            }
        }
        None => {
            let verb = words.zpool();
            session.line(format!(" action: Import it by name or id: `{verb} import {}`.", tame(&pool.name)));
        }
    }
    session.line(" config:\n");
    session.out.push_str(&vdev_table(&pool.name, pool.state, &pool.vdevs, false, false));
}
