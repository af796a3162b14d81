//! `zpool import`: what could be imported, and importing it.

use crate::family::{Doing, Failure, Session};
use crate::key;
use crate::options::Parsed;
use crate::table::tame;
use crate::zfs;
use crate::zpool::{ACCEPT_LOST, ACCEPT_LOST_LOG, ACCEPT_ROLLBACK, ANCHOR, assignments};
use crate::zpool_status::{config, three_parts};
use std::path::PathBuf;
use steadfast_control::api::{PoolCandidate, PoolImport, PoolImportScan, PoolSelector, Properties};
use steadfast_control::{Code, KeyFormat, Refusal};

/// Options of ZFS that are not offered, and why.
const REFUSED: [(char, &str); 6] = [
    ('c', "-c: which pools were imported the daemon remembers by itself; -d says where to look for others"),
    (
        'F',
        "-F: the last commit is always whole, so that no older root has to be gone back to; what was lost beside it is given up by \
         --accept-lost-log, --accept-lost-anchor and --accept-rollback, each by name",
    ),
    (
        'n',
        "-n: it only says what -F would do, which is refused; without a name `zpool import` lists what could be imported, and why not",
    ),
    (
        'T',
        "-T: going back to an older root is what the anchor is to forbid, and what older roots name is overwritten in time; snapshots keep \
         old states",
    ),
    (
        'X',
        "-X: the last commit is always whole, so that no older root has to be tried; `zpool import` says what is missing where a pool \
         cannot be imported",
    ),
    (
        't',
        "-t: a new name is written to the devices and stays; export the pool and import it under its old name to give it that back",
    ),
];

/// Lists or imports.
///
/// # Errors
/// What the daemon refuses.
pub(crate) fn import(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    if let Some((_, why)) = REFUSED.iter().find(|(letter, _)| parsed.has(*letter)) {
        return Err(Failure::Usage((*why).to_owned()));
    }
    let search: Vec<PathBuf> = parsed.values('d').map(|dir| session.world.absolute(dir)).collect();
    let properties = properties(parsed)?;
    // What is accepted is accepted of one pool, which is named.
    let one_only = [ANCHOR, ACCEPT_ROLLBACK, ACCEPT_LOST].into_iter().find(|long| parsed.has_long(long));
    let one_only = one_only.or(parsed.has('m').then_some(ACCEPT_LOST_LOG));
    if let Some(long) = one_only.filter(|_| parsed.operands.is_empty()) {
        return Err(Failure::Usage(format!("--{long} needs the name of a pool")));
    }
    match (parsed.has('a'), &parsed.operands[..]) {
        (true, [_, ..]) => Err(Failure::Usage("too many arguments: -a imports all pools".into())),
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

/// Reads `-o` and `-R`. Mount options that ZFS takes here have properties of the same meaning.
fn properties(parsed: &Parsed) -> Result<Properties, Failure> {
    let mut texts = Vec::new();
    for text in parsed.values('o') {
        match text {
            "ro" => texts.push("readonly=on"),
            "rw" => texts.push("readonly=off"),
            text => texts.push(text),
        }
    }
    let mut properties = assignments(texts.into_iter())?;
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
        .doing(|| "cannot look for pools".into())
}

/// Imports one pool, with the options that `parsed` has.
///
/// # Errors
/// What the daemon refuses; why there is no key.
pub(crate) fn one(
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
        // Only a sealed pool needs a key to be imported at all, and only the daemon can see that it is one.
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
            zfs::load_keys_below(session, name)?;
            if !parsed.has('N') {
                zfs::mount_all_below(session, name)?;
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
            let verb = if words == crate::family::Words::Zfs { "zpool" } else { "steadfast pool" };
            session.line(format!(" action: Import it by name or id: `{verb} import {}`.", tame(&pool.name)));
        }
    }
    session.line(" config:\n");
    session.out.push_str(&config(&pool.name, pool.state, &pool.vdevs, false, false));
}
