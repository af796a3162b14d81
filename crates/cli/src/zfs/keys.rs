//! Loading keys of encryption roots, for `zfs load-key`, `zfs mount -l` and `zpool import -l`.

use crate::key;
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{FsInfo, FsList, FsLoadKey};
use steadfast_control::{Code, KeyFormat, Refusal};

/// Attempts to type a passphrase on a terminal.
const ATTEMPTS_MAX: u32 = 3;

/// Encryption roots among `found`.
pub(super) fn roots(found: &[FsInfo]) -> impl Iterator<Item = &FsInfo> {
    found.iter().filter(|fs| fs.value("encryptionroot") == fs.name)
}

/// Loads all keys at and below `name` that are not loaded. Prints the keys that cannot be loaded.
///
/// # Errors
/// The file systems cannot be listed.
pub(crate) fn load_keys_below(session: &mut Session<'_, '_>, name: &str) -> Result<(), Failure> {
    let found = session
        .ask(FsList { names: vec![name.to_owned()], depth: None })
        .doing(|| format!("cannot load the keys of '{}'", tame(name)))?;
    load_keys(session, &found, None, false);
    Ok(())
}

pub(super) fn load_keys(
    session: &mut Session<'_, '_>,
    found: &[FsInfo],
    location: Option<&str>,
    dry_run: bool,
) {
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
pub(super) fn load_key_of(session: &mut Session<'_, '_>, name: &str) -> Result<(), Failure> {
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

/// Reads the key of an encryption root and loads it. On a terminal a wrong passphrase can be typed
/// again.
pub(super) fn load_one(
    session: &mut Session<'_, '_>,
    fs: &FsInfo,
    location: Option<&str>,
    dry_run: bool,
) -> Result<(), Refusal> {
    let Some(format) = KeyFormat::parse(fs.value("keyformat")) else {
        return Err(match fs.value("encryptionroot") {
            "-" | "" | "none" => {
                Refusal::new(Code::KeyNone, "the file system is not encrypted").with("fs", &fs.name)
            }
            root => Refusal::new(Code::KeyInherited, format!("the file system uses the key of '{root}'"))
                .with("root", root),
        });
    };
    let root = fs.value("encryptionroot");
    if root != fs.name {
        return Err(Refusal::new(Code::KeyInherited, format!("the file system uses the key of '{root}'"))
            .with("root", root));
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
