//! `zfs share` and `zfs unshare`.

use super::mount::mounted;
use crate::command::Command;
use crate::json;
use crate::options::{JSON, Parsed, Syntax, flag};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use steadfast_control::api::{FsShare, FsShares};

pub(super) const SHARE: Command = Command {
    names: &["share"],
    syntax: Syntax {
        flags: &[
            flag('a', "all mounted file systems whose sharenfs is not off"),
            flag('l', "accepted, no effect: a mounted file system has its key"),
            JSON,
        ],
        operands: "[filesystem]",
        least: 0,
        most: 1,
    },
    doc: "Shares file systems with NFS clients, as their property sharenfs says. Without a name, lists the shared ones.",
    run: share,
};

pub(super) const UNSHARE: Command = Command {
    names: &["unshare"],
    syntax: Syntax { flags: &[flag('a', "all file systems")], operands: "[filesystem]", least: 0, most: 1 },
    doc: "Ends the shares of file systems until they are mounted or shared again.",
    run: unshare,
};

fn share(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    match (parsed.has('a'), parsed.operands.first()) {
        (true, Some(_)) => Err(Failure::Usage("too many arguments: -a means all".into())),
        (false, None) => list(session, parsed.has('j')),
        (true, None) => {
            for fs in mounted(session)?.into_iter().filter(|fs| fs.value("sharenfs") != "off") {
                change(session, &fs.name, true);
            }
            Ok(())
        }
        (false, Some(name)) => {
            change(session, name, true);
            Ok(())
        }
    }
}

fn unshare(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    match (parsed.has('a'), parsed.operands.first()) {
        (true, Some(_)) => Err(Failure::Usage("too many arguments: -a means all".into())),
        (false, None) => Err(Failure::Usage("missing filesystem argument".into())),
        (true, None) => {
            let shared = session.ask(FsShares {}).doing(|| "cannot list shares".into())?;
            for share in shared {
                change(session, &share.name, false);
            }
            Ok(())
        }
        (false, Some(name)) => {
            change(session, name, false);
            Ok(())
        }
    }
}

fn change(session: &mut Session<'_, '_>, name: &str, share: bool) {
    let verb = if share { "share" } else { "unshare" };
    match session.ask(FsShare { name: name.to_owned(), share }) {
        Ok(outcome) => {
            for warning in outcome.warnings {
                session.tell(&format!("note: {}\n", tame(&warning.what)));
            }
        }
        Err(refusal) => session.complain(&format!("cannot {verb} '{}'", tame(name)), &refusal),
    }
}

/// As `showmount -e` lists exports: path and clients; before them the server.
fn list(session: &mut Session<'_, '_>, as_json: bool) -> Result<(), Failure> {
    let shared = session.ask(FsShares {}).doing(|| "cannot list shares".into())?;
    if as_json {
        let mut document = json::document("zfs share");
        let entry = |share: &steadfast_control::api::SharedFs| {
            let value = serde_json::json!({
                "path": share.path, "address": share.address, "clients": share.clients,
            });
            (share.name.clone(), value)
        };
        let map: serde_json::Map<String, serde_json::Value> = shared.iter().map(entry).collect();
        document.insert("shares".into(), map.into());
        session.line(json::text(document));
        return Ok(());
    }
    for share in shared {
        let clients = share.clients.join(",");
        session.line(format!("{:<21}  {:<30}  {}", share.address, tame(&share.path), tame(&clients)));
    }
    Ok(())
}
