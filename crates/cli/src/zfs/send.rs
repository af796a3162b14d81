//! `zfs send`.

use crate::command::Command;
use crate::date::{self, now};
use crate::options::{Parsed, Syntax, flag, valued};
use crate::session::{Doing, Failure, Session};
use crate::table::tame;
use std::cell::RefCell;
use std::os::fd::AsFd;
use steadfast_control::api::{FsSend, Sent, SentPart};
use steadfast_control::{Code, Refusal};
use steadfast_property::nice_bytes;

pub(super) const COMMAND: Command = Command {
    names: &["send"],
    syntax: Syntax {
        flags: &[
            valued(
                'i',
                "snapshot|bookmark",
                "incremental: the changes since this earlier snapshot; for a clone, also since its origin",
            ),
            valued('I', "snapshot", "like -i, with all snapshots in between"),
            flag('R', "all file systems below too, with all earlier snapshots and the properties")
                .or("replicate"),
            flag('p', "with properties").or("props"),
            flag('b', "with received properties only").or("backup"),
            flag('w', "raw: encrypted blocks as stored; needs no key; implies -c").or("raw"),
            flag('c', "compressed blocks as stored; the receiver stores them unchanged").or("compressed"),
            flag('n', "send nothing; with -v print the estimated size").or("dryrun"),
            flag('v', "print snapshots, sizes and progress").or("verbose"),
            flag('P', "print snapshots, sizes and progress, for scripts").or("parsable"),
            valued(
                't',
                "token",
                "continue an interrupted receive; the token is its property receive_resume_token",
            ),
            flag('L', "accepted, no effect: large blocks are always sent").or("large-block"),
            flag('e', "accepted, no effect: small blocks are always embedded").or("embed"),
            flag('h', "with the holds of snapshots").or("holds"),
            flag('s', "with -R: skip file systems without this snapshot, and all below them")
                .or("skip-missing"),
            valued(
                'X',
                "filesystem[,filesystem]...",
                "with -R: exclude these file systems and all below them; may be repeated",
            )
            .or("exclude"),
            flag('D', "accepted, no effect: shared blocks are always sent once").or("dedup"),
            flag('S', "refused: continue an interrupted receive with -t").or("saved"),
            valued('d', "bookmark", "refused: there are no redacted streams").or("redact"),
            flag('V', "accepted, no effect: the daemon sends the stream").or("proctitle"),
        ],
        operands: "[filesystem@snapshot]",
        least: 0,
        most: 1,
    },
    doc: "Writes a snapshot, or the changes between two snapshots, as a stream to standard output.",
    run: send,
};

/// The full name of the snapshot or bookmark of `-i`; the default is the same file system.
fn of_same(fs: &str, name: &str) -> String {
    match name.split_once(['@', '#']) {
        Some(("", _)) => format!("{fs}{name}"),
        Some(_) => name.to_owned(),
        None => format!("{fs}@{name}"),
    }
}

fn send(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let token = parsed.value('t').map(str::to_owned);
    let snapshot = parsed.operands.first().cloned().unwrap_or_default();
    let not_here = match (parsed.has('S'), parsed.has('d')) {
        (true, _) => Some("-S is not supported: continue at the original sender with -t"),
        (false, true) => Some("--redact is not supported: there are no redacted streams"),
        (false, false) => None,
    };
    if let Some(what) = not_here {
        return Err(Refusal::new(Code::Later, what)).doing(|| format!("cannot send '{}'", tame(&snapshot)));
    }
    let exclude: Vec<String> =
        parsed.values('X').flat_map(|list| list.split(',')).map(str::to_owned).collect();
    if !parsed.has('R') && (parsed.has('s') || !exclude.is_empty()) {
        return Err(Failure::Usage("-s and -X need -R".into()));
    }
    let top = snapshot.split('@').next().unwrap_or_default();
    let is_all = |name: &String| top == name || top.strip_prefix(name).is_some_and(|t| t.starts_with('/'));
    if let Some(name) = exclude.iter().find(|name| is_all(name)) {
        return Err(Failure::Usage(format!("-X {} excludes all file systems", tame(name))));
    }
    if token.is_some() != snapshot.is_empty() {
        return Err(Failure::Usage("specify either a snapshot or -t token".into()));
    }
    let both = (parsed.value('i'), parsed.value('I'));
    let (base, intermediate) = match both {
        (Some(_), Some(_)) => return Err(Failure::Usage("-i cannot be combined with -I".into())),
        (Some(base), None) => (Some(of_same(top, base)), false),
        (None, Some(base)) => (Some(of_same(top, base)), true),
        (None, None) => (None, false),
    };
    if base.is_some() && token.is_some() {
        return Err(Failure::Usage("-i and -I cannot be combined with -t".into()));
    }
    let doing = || match token.is_some() {
        true => "cannot resume send".to_owned(),
        false => format!("cannot send '{}'", tame(&snapshot)),
    };
    let (properties, recursive) = (parsed.has('p'), parsed.has('R'));
    let mut request = FsSend {
        snapshot: snapshot.clone(),
        base,
        intermediate,
        recursive,
        properties,
        backup: parsed.has('b'),
        raw: parsed.has('w'),
        compressed: parsed.has('c'),
        holds: parsed.has('h'),
        exclude,
        skip_missing: parsed.has('s'),
        token: token.clone(),
        dry_run: true,
    };
    let (dry, verbose, script) = (parsed.has('n'), parsed.has('v') || parsed.has('P'), parsed.has('P'));
    if dry || verbose {
        let planned = session.ask(request.clone()).doing(doing)?;
        if verbose {
            let text = plan(&planned, script);
            // Standard output carries the stream.
            if dry { session.out.push_str(&text) } else { session.tell(&text) }
        }
        if dry {
            tell_skipped(session, &planned, &snapshot);
        }
    }
    if dry {
        return Ok(());
    }
    request.dry_run = false;
    if session.world.out_is_terminal {
        let what = "standard output is a terminal";
        return Err(Refusal::new(Code::StreamTerminal, what)).doing(doing);
    }
    let none = || Refusal::new(Code::StreamTerminal, "there is no standard output");
    let out = session.world.out_fd.take().ok_or_else(none).doing(doing)?;
    let under_way = RefCell::new(String::new());
    let say = |snapshot: &str, bytes: u64| match verbose {
        false => String::new(),
        true => progress(&mut under_way.borrow_mut(), now(), (snapshot, bytes), script),
    };
    let sent = session.stream(request, out.as_fd(), &say).doing(doing)?;
    tell_skipped(session, &sent, &snapshot);
    Ok(())
}

/// Prints the file systems that `-s` skipped.
fn tell_skipped(session: &mut Session<'_, '_>, sent: &Sent, snapshot: &str) {
    let last = tame(snapshot.rsplit('@').next().unwrap_or(snapshot));
    for name in &sent.skipped {
        let name = tame(name);
        session.tell(&format!(
            "WARNING: skipping dataset {name} and its children: snapshot {last} does not exist\n"
        ));
    }
}

/// The snapshots to be sent with their sizes, as text or for scripts.
fn plan(sent: &Sent, script: bool) -> String {
    let mut text = String::new();
    let total: u64 = sent.parts.iter().map(|part| part.estimate).sum();
    for SentPart { snapshot, base, estimate } in &sent.parts {
        let (name, size) = (tame(snapshot), nice_bytes(*estimate));
        // With `@` or `#`; for scripts a snapshot without.
        let last = |name: &str| tame(&name[name.find(['@', '#']).unwrap_or_default()..]);
        text.push_str(&match (base, script) {
            (None, false) => format!("full send of {name} estimated size is {size}\n"),
            (Some(base), false) => {
                format!("send from {} to {name} estimated size is {size}\n", last(base))
            }
            (None, true) => format!("full\t{name}\t{estimate}\n"),
            (Some(base), true) => {
                format!("incremental\t{}\t{name}\t{estimate}\n", last(base).trim_start_matches('@'))
            }
        });
    }
    text.push_str(&match script {
        false => format!("total estimated size is {}\n", nice_bytes(total)),
        true => format!("size\t{total}\n"),
    });
    text
}

/// Progress as ZFS prints it, in UTC: with a heading for each snapshot, or in columns for scripts.
fn progress(under_way: &mut String, now: u64, (snapshot, bytes): (&str, u64), script: bool) -> String {
    let (time, name) = (date::clock(now), tame(snapshot));
    if script {
        return format!("{time}\t{bytes}\t{name}\n");
    }
    let mut text = String::new();
    if under_way != snapshot {
        text.push_str(&format!("TIME        SENT   SNAPSHOT {name}\n"));
        snapshot.clone_into(under_way);
    }
    text + &format!("{time}   {:>5}   {name}\n", nice_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_base_of_an_increment_is_printed_with_its_sign() {
        let part =
            |base: &str| SentPart { snapshot: "tank/a@2".into(), base: Some(base.into()), estimate: 512 };
        let told = |base: &str, script: bool| {
            plan(&Sent { parts: vec![part(base)], ..Sent::default() }, script)
                .lines()
                .next()
                .unwrap()
                .to_owned()
        };
        assert!(told("tank/a@1", false).starts_with("send from @1 to tank/a@2 "));
        assert!(told("tank/a#m", false).starts_with("send from #m to tank/a@2 "));
        assert_eq!(told("tank/a@1", true), "incremental\t1\ttank/a@2\t512");
        assert_eq!(told("tank/a#m", true), "incremental\t#m\ttank/a@2\t512");
    }

    #[test]
    fn progress_is_printed_as_in_zfs() {
        let mut under_way = String::new();
        let mut say = |seconds: u64, snapshot: &str, bytes: u64, script: bool| {
            progress(&mut under_way, 1_795_238_707 + seconds, (snapshot, bytes), script)
        };
        assert_eq!(
            say(0, "tank/desk@1", 0, false),
            "TIME        SENT   SNAPSHOT tank/desk@1\n05:25:07      0B   tank/desk@1\n"
        );
        assert_eq!(say(1, "tank/desk@1", 1_224_065_679, false), "05:25:08   1.14G   tank/desk@1\n");
        assert!(say(2, "tank/desk@2", 512, false).starts_with("TIME        SENT   SNAPSHOT tank/desk@2\n"));
        assert_eq!(say(3, "tank/desk@2", 1024, true), "05:25:10\t1024\ttank/desk@2\n");
    }
}
