//! `zfs send`, `zfs receive` and `zfs bookmark`.

use crate::date;
use crate::family::{Command, Doing, Failure, Session};
use crate::options::{Parsed, Syntax, flag, valued};
use crate::table::tame;
use crate::zpool::{assignments, new_key};
use crate::zpool_scan::now;
use std::cell::RefCell;
use std::os::fd::AsFd;
use steadfast_control::api::{
    FsBookmark, FsBookmarkDestroy, FsReceive, FsReceiveAbort, FsSend, ReceiveNaming, Sent, SentPart,
};
use steadfast_control::{Code, Refusal, check};
use steadfast_property::nice_bytes;

/// `zfs send`.
pub(crate) const SEND: Command = Command {
    names: &["send"],
    syntax: Syntax {
        flags: &[
            valued(
                'i',
                "snapshot|bookmark",
                "what is new since this earlier snapshot; of a clone, its origin too",
            ),
            valued('I', "snapshot", "the same, and each snapshot between the two"),
            flag('R', "the file systems below too, with all snapshots up to this one and their properties")
                .or("replicate"),
            flag('p', "with the properties of the file system, and what you have set on the snapshot")
                .or("props"),
            flag('b', "with those properties alone that it received itself, if it received any").or("backup"),
            flag('w', "blocks as they are sealed: nobody on the way needs the key; else as -c").or("raw"),
            flag('c', "records as they are compressed; they are stored so where they arrive")
                .or("compressed"),
            flag('n', "only say what would be sent").or("dryrun"),
            flag('v', "say what is sent, and how far it is").or("verbose"),
            flag('P', "the same, for scripts").or("parsable"),
            valued('t', "token", "go on where a receive with -s broke off"),
            flag('L', "accepted and without meaning: records are sent at their size").or("large-block"),
            flag('e', "accepted and without meaning: small files are always sent in one piece").or("embed"),
            flag('h', "with the tags that hold the snapshots").or("holds"),
            flag('s', "with -R: leave out, with all below them, file systems that lack the snapshot")
                .or("skip-missing"),
            valued(
                'X',
                "filesystem[,filesystem]...",
                "with -R: leave these out, with all below them; may be repeated",
            )
            .or("exclude"),
            flag('D', "accepted and without meaning: what shares blocks goes once as it is").or("dedup"),
            flag('S', "what was received in part, which is refused: its sender goes on (-t)").or("saved"),
            valued('d', "bookmark", "without what was redacted, which is refused: nothing is").or("redact"),
            flag('V', "accepted and without meaning: the daemon sends, and its title stays").or("proctitle"),
        ],
        operands: "[filesystem@snapshot]",
        least: 0,
        most: 1,
    },
    doc: "Writes a snapshot, or what is new in it, to standard output.",
    run: send,
};

/// `zfs receive`.
pub(crate) const RECEIVE: Command = Command {
    names: &["receive", "recv"],
    syntax: Syntax {
        flags: &[
            flag('F', "lose what was changed here since the last snapshot both have, younger snapshots too"),
            flag('s', "keep what has arrived if the stream breaks off"),
            flag('A', "give up what was kept"),
            flag('u', "do not mount what is new"),
            flag('d', "below the file system named, with all names of the sender but its pool's"),
            flag('e', "below the file system named, with the last of the sender's names"),
            flag('n', "only say what would be received"),
            flag('v', "say what was received"),
            valued(
                'o',
                "property=value",
                "set a property on what is received, encryption=on with keyformat= and keylocation=file:// among them; origin=snapshot: \
                 receive it as a clone of that; may be repeated",
            ),
            valued('x', "property", "a property of the stream that does not count here; may be repeated"),
            flag('h', "without the tags that hold snapshots"),
            flag('M', "unmount what is changed though files of it are open"),
            flag('c', "mend what is damaged, which is refused: redundancy does, or another copy"),
        ],
        operands: "filesystem[@snapshot]",
        least: 1,
        most: 1,
    },
    doc: "Makes a snapshot of what standard input holds.",
    run: receive,
};

/// `zfs bookmark`.
pub(crate) const BOOKMARK: Command = Command {
    names: &["bookmark"],
    syntax: Syntax {
        flags: &[],
        operands: "filesystem@snapshot|filesystem#bookmark filesystem#newbookmark",
        least: 2,
        most: 2,
    },
    doc: "Remembers a snapshot as a point from which `zfs send -i` can go on, without keeping what it holds.",
    run: bookmark,
};

/// A name as `-i` takes it: of the same file system, unless it says otherwise.
fn of_same(fs: &str, name: &str) -> String {
    match name.split_once(['@', '#']) {
        Some(("", _)) => format!("{fs}{name}"),
        Some(_) => name.to_owned(),
        None => format!("{fs}@{name}"),
    }
}

fn bookmark(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let (of, name) = (parsed.operands[0].clone(), parsed.operands[1].clone());
    let doing = || format!("cannot create bookmark '{}'", tame(&name));
    let fs = of.split(['@', '#']).next().unwrap_or_default();
    let mark = match name.split_once('#') {
        Some((other, mark)) if other.is_empty() || other == fs => mark.to_owned(),
        _ => {
            let what = format!("a bookmark of '{}' is called '{}#NAME'", tame(&of), tame(fs));
            return Err(Refusal::new(Code::NameInvalid, what)).doing(doing);
        }
    };
    session.ask(FsBookmark { of, name: mark }).doing(doing)?;
    Ok(())
}

/// `zfs destroy` of a bookmark.
pub(crate) fn destroy_bookmark(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let name = parsed.operands[0].clone();
    if !parsed.has('n') {
        let doing = || format!("cannot destroy bookmark '{}'", tame(&name));
        session.ask(FsBookmarkDestroy { name: name.clone() }).doing(doing)?;
    }
    if parsed.has('v') || parsed.has('n') && parsed.has('p') {
        session.line(match (parsed.has('p'), parsed.has('n')) {
            (true, _) => format!("destroy\t{name}"),
            (false, true) => format!("would destroy {name}"),
            (false, false) => format!("will destroy {name}"),
        });
    }
    Ok(())
}

fn send(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let token = parsed.value('t').map(str::to_owned);
    let snapshot = parsed.operands.first().cloned().unwrap_or_default();
    let not_here = match (parsed.has('S'), parsed.has('d')) {
        (true, _) => Some("what was received in part is not sent on (-S): its sender goes on, with -t"),
        (false, true) => Some("streams are not redacted (--redact)"),
        (false, false) => None,
    };
    if let Some(what) = not_here {
        return Err(Refusal::new(Code::Later, what)).doing(|| format!("cannot send '{}'", tame(&snapshot)));
    }
    let exclude: Vec<String> =
        parsed.values('X').flat_map(|list| list.split(',')).map(str::to_owned).collect();
    if !parsed.has('R') && (parsed.has('s') || !exclude.is_empty()) {
        return Err(Failure::Usage("-s and -X are for trees, which -R sends".into()));
    }
    let top = snapshot.split('@').next().unwrap_or_default();
    let is_all = |name: &String| top == name || top.strip_prefix(name).is_some_and(|t| t.starts_with('/'));
    if let Some(name) = exclude.iter().find(|name| is_all(name)) {
        return Err(Failure::Usage(format!("-X {} leaves nothing to be sent", tame(name))));
    }
    if token.is_some() != snapshot.is_empty() {
        return Err(Failure::Usage("name a snapshot, or with -t a token and no snapshot".into()));
    }
    let both = (parsed.value('i'), parsed.value('I'));
    let (base, intermediate) = match both {
        (Some(_), Some(_)) => return Err(Failure::Usage("-i and -I exclude each other".into())),
        (Some(base), None) => (Some(of_same(top, base)), false),
        (None, Some(base)) => (Some(of_same(top, base)), true),
        (None, None) => (None, false),
    };
    if base.is_some() && token.is_some() {
        return Err(Failure::Usage("a token says itself what it is an increment upon".into()));
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
            // Beside a stream there is no other place.
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

/// What was left out though nobody named it.
fn tell_skipped(session: &mut Session<'_, '_>, sent: &Sent, snapshot: &str) {
    let last = tame(snapshot.rsplit('@').next().unwrap_or(snapshot));
    for name in &sent.skipped {
        let name = tame(name);
        session.tell(&format!(
            "WARNING: skipping dataset {name} and its children: snapshot {last} does not exist\n"
        ));
    }
}

/// What is about to be sent, in words or for scripts.
fn plan(sent: &Sent, script: bool) -> String {
    let mut text = String::new();
    let total: u64 = sent.parts.iter().map(|part| part.estimate).sum();
    for SentPart { snapshot, base, estimate } in &sent.parts {
        let (name, size) = (tame(snapshot), nice_bytes(*estimate));
        // With its sign, and in a table a snapshot without.
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

/// How far a stream is, as ZFS tells it (times are UTC): with a heading where a snapshot begins, or in columns for scripts.
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

fn receive(session: &mut Session<'_, '_>, parsed: &Parsed) -> Result<(), Failure> {
    let target = parsed.operands[0].clone();
    let doing = || format!("cannot receive into '{}'", tame(&target));
    if parsed.has('c') {
        let what = "a stream mends nothing (-c): what is damaged is mended from redundancy, or received anew";
        return Err(Refusal::new(Code::Later, what)).doing(doing);
    }
    if parsed.has('A') {
        let request = FsReceiveAbort { name: target.clone() };
        session.ask(request).doing(|| format!("cannot give up the receive into '{}'", tame(&target)))?;
        return Ok(());
    }
    let naming = match (parsed.has('d'), parsed.has('e')) {
        (true, true) => return Err(Failure::Usage("-d and -e exclude each other".into())),
        (true, false) => ReceiveNaming::WithoutPool,
        (false, true) => ReceiveNaming::LastOnly,
        (false, false) => ReceiveNaming::AsGiven,
    };
    if naming != ReceiveNaming::AsGiven && target.contains('@') {
        return Err(Failure::Usage("-d and -e name a file system, not a snapshot".into()));
    }
    // Of these one is no setting, but says what it is to begin as.
    let (origins, settings): (Vec<&str>, Vec<&str>) =
        parsed.values('o').partition(|text| text.starts_with("origin="));
    let origin = match origins[..] {
        [] => None,
        [one] => Some(one["origin=".len()..].to_owned()),
        _ => return Err(Failure::Usage("there is one origin".into())),
    };
    let properties = assignments(settings.into_iter())?;
    let location = properties.get("keylocation");
    if properties.contains_key("keyformat") && location.is_none_or(|location| location == "prompt") {
        return Err(check::key_beside_stream(&target)).doing(doing);
    }
    let key = new_key(session, &target, &properties).doing(doing)?;
    let request = FsReceive {
        target: target.clone(),
        key,
        naming,
        force: parsed.has('F'),
        keep: parsed.has('s'),
        no_mount: parsed.has('u'),
        dry_run: parsed.has('n'),
        properties,
        origin,
        exclude: parsed.values('x').map(str::to_owned).collect(),
        no_holds: parsed.has('h'),
        unmount: parsed.has('M'),
    };
    if session.world.input_is_terminal {
        let what = "standard input is a terminal";
        return Err(Refusal::new(Code::StreamTerminal, what)).doing(doing);
    }
    let none = || Refusal::new(Code::StreamTerminal, "there is no standard input");
    let input = session.world.input_fd.take().ok_or_else(none).doing(doing)?;
    let receipt = session.stream(request, input.as_fd(), &|_, _| String::new()).doing(doing)?;
    if parsed.has('v') {
        let would = if parsed.has('n') { "would receive" } else { "received" };
        for part in &receipt.parts {
            let kind = if part.increment { "incremental" } else { "full" };
            let (from, snapshot) = (tame(&part.from), tame(&part.snapshot));
            if part.there {
                session.line(format!("snap {snapshot} already exists; ignoring"));
                continue;
            }
            let size = nice_bytes(part.bytes);
            session.line(format!("{would} {kind} stream of {from} into {snapshot}, {size}"));
        }
    }
    session.warn("the stream is received, but", &receipt.warnings);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_increment_goes_upon_is_told_with_its_sign() {
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
    fn progress_is_told_as_in_zfs() {
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
