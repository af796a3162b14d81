//! `zfs send`.

use crate::command::Command;
use crate::date::{self, now};
use crate::options::{Parsed, Syntax, flag, valued};
use crate::session::{Doing, Failure, Said, Session};
use crate::table::tame;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::AsFd;
use steadfast_control::api::{FsSend, Sent, SentPart};
use steadfast_control::token::{Form, Token};
use steadfast_control::{Code, Refusal};
use steadfast_property::{nice_bytes, nice_number};

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
            flag('v', "print snapshots, estimated sizes and progress; twice: also how many blocks were sent")
                .or("verbose"),
            flag('P', "print snapshots and estimated sizes for scripts; with -v also progress")
                .or("parsable"),
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
        operands: "[filesystem@snapshot|filesystem]",
        least: 0,
        most: 1,
    },
    doc: "Writes a snapshot, or the changes between two snapshots, as a stream to standard output. A file system that is \
          not mounted, or a volume, goes as it is now, as a snapshot named --head--.",
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
    if let Some(letter) = ['i', 'I'].into_iter().find(|letter| parsed.count(*letter) > 1) {
        return Err(Failure::Usage(format!("-{letter} specified multiple times")));
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
    if !recursive && parsed.value('i').is_some_and(|base| !base.contains(['@', '#'])) {
        session.tell(
            "Warning: incremental source didn't specify type, assuming snapshot. Use '@' or '#' prefix to \
             avoid ambiguity.\n",
        );
    }
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
    let (dry, script) = (parsed.has('n'), parsed.has('P'));
    let verbose = parsed.has('v') || script;
    let mut planned = Sent::default();
    // A receiver may ask what its own token says, and has not what it names.
    let contents = token.as_deref().filter(|_| verbose && !script).and_then(Token::decode);
    if let Some(token) = contents.filter(|_| dry) {
        session.out.push_str(&contents_of(token));
    }
    if dry || verbose {
        planned = session.ask(request.clone()).doing(doing)?;
        if verbose {
            let name = planned.parts.first().map(|part| format!("\ttoname = {}\n", tame(&part.snapshot)));
            let text = name.filter(|_| contents.is_some()).unwrap_or_default()
                + &plan(&planned, script, recursive || intermediate);
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
    let snapshots = planned.parts.into_iter().map(|part| part.snapshot).collect();
    let progress =
        RefCell::new(Progress { headings: snapshots, script, blocks: parsed.count('v') > 1, told: now() });
    let shows = parsed.has('v');
    let say = |step: &steadfast_control::wire::Progress| match shows {
        false => Said::Err(String::new()),
        true => Said::Err(progress.borrow_mut().line(now(), step)),
    };
    let sent = session.stream(request, out.as_fd(), &say);
    if shows {
        session.tell(&progress.borrow_mut().headings_before(None));
    }
    let sent = sent.doing(doing)?;
    tell_skipped(session, &sent, &snapshot);
    Ok(())
}

/// The content of a resume token, as ZFS prints it. The name of the snapshot is not in it.
fn contents_of(token: Token) -> String {
    let mut text = "resume token contents:\nnvlist version: 0\n".to_owned();
    if token.base != 0 {
        text.push_str(&format!("\tfromguid = {:#x}\n", token.base));
    }
    text.push_str(&format!("\tobject = {:#x}\n\toffset = {:#x}\n", token.inode, token.offset));
    text.push_str(&format!("\ttoguid = {:#x}\n", token.guid));
    match token.form {
        Form::Plain => {}
        Form::Raw => text.push_str("\tcompressok = 1\n\trawok = 1\n"),
        Form::Compressed => text.push_str("\tcompressok = 1\n"),
    }
    text
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

/// The snapshots to be sent with their sizes, as text or for scripts. With -R and -I, as in ZFS,
/// the base is of the same file system, and only the name of the snapshot is printed.
fn plan(sent: &Sent, script: bool, several: bool) -> String {
    let mut text = String::new();
    let total: u64 = sent.parts.iter().map(|part| part.estimate).sum();
    for SentPart { snapshot, base, estimate } in &sent.parts {
        let name = tame(snapshot);
        let base = base.as_deref().map(|base| match several {
            true => tame(&base[base.find(['@', '#']).map_or(0, |at| at + 1)..]),
            false => tame(base),
        });
        text.push_str(&match (base, script) {
            (None, false) => format!("full send of {name}"),
            (Some(base), false) if several => format!("send from @{base} to {name}"),
            (Some(base), false) => format!("send from {base} to {name}"),
            (None, true) => format!("full\t{name}\t{estimate}"),
            (Some(base), true) => format!("incremental\t{base}\t{name}\t{estimate}"),
        });
        if !script && *estimate > 0 {
            text.push_str(&format!(" estimated size is {}", nice_bytes(*estimate)));
        }
        text.push('\n');
    }
    text.push_str(&match (script, several) {
        (true, _) => format!("size\t{total}\n"),
        (false, true) => format!("total estimated size is {}\n", nice_bytes(total)),
        // ZFS prints the total of one snapshot as a number, without a unit below 1K.
        (false, false) => format!("total estimated size is {}\n", nice_number(total)),
    });
    text
}

/// Progress of a send as ZFS prints it: a heading for each snapshot and a line a second, or columns
/// for scripts.
struct Progress {
    /// Snapshots whose headings are not printed yet, in the order of the stream.
    headings: VecDeque<String>,
    script: bool,
    /// With the blocks sent (`-vv`).
    blocks: bool,
    /// The second of the latest line.
    told: u64,
}

impl Progress {
    /// Headings of the snapshots up to this one; `None`: of all that are left.
    fn headings_before(&mut self, snapshot: Option<&str>) -> String {
        let through = match snapshot {
            Some(snapshot) => self.headings.iter().position(|name| name == snapshot).map_or(0, |at| at + 1),
            None => self.headings.len(),
        };
        let blocks = if self.blocks { "   BLOCKS    " } else { "" };
        let heading = |name: String| format!("TIME        SENT   {blocks}SNAPSHOT {}\n", tame(&name));
        let text = self.headings.drain(..through).map(heading).collect();
        if self.script { String::new() } else { text }
    }

    fn line(&mut self, now: u64, step: &steadfast_control::wire::Progress) -> String {
        let mut text = self.headings_before(Some(&step.what));
        if now > self.told {
            self.told = now;
            let (time, name) = (date::clock(now), tame(&step.what));
            let (bytes, blocks) = (step.bytes, step.blocks);
            text.push_str(&match (self.script, self.blocks) {
                (true, false) => format!("{time}\t{bytes}\t{name}\n"),
                (true, true) => format!("{time}\t{bytes}\t{blocks}\t{name}\n"),
                (false, false) => format!("{time}   {:>5}   {name}\n", nice_bytes(bytes)),
                // As in ZFS, without a unit below 1K.
                (false, true) => format!("{time}   {:>5}    {blocks:>8}    {name}\n", nice_number(bytes)),
            });
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plan_is_printed_as_in_zfs() {
        let part = |base: Option<&str>, estimate: u64| SentPart {
            snapshot: "tank/a@2".into(),
            base: base.map(str::to_owned),
            estimate,
        };
        let told = |base: Option<&str>, script: bool, several: bool| {
            plan(&Sent { parts: vec![part(base, 512)], ..Sent::default() }, script, several)
        };
        assert_eq!(
            told(Some("tank/a@1"), false, false),
            "send from tank/a@1 to tank/a@2 estimated size is 512B\ntotal estimated size is 512\n"
        );
        assert_eq!(
            told(Some("tank/a@1"), false, true),
            "send from @1 to tank/a@2 estimated size is 512B\ntotal estimated size is 512B\n"
        );
        assert_eq!(told(Some("tank/a#m"), true, false), "incremental\ttank/a#m\ttank/a@2\t512\nsize\t512\n");
        assert_eq!(told(Some("tank/a@1"), true, true), "incremental\t1\ttank/a@2\t512\nsize\t512\n");
        assert_eq!(told(None, true, true), "full\ttank/a@2\t512\nsize\t512\n");
        let nothing = plan(&Sent { parts: vec![part(None, 0)], ..Sent::default() }, false, false);
        assert_eq!(nothing, "full send of tank/a@2\ntotal estimated size is 0\n");
    }

    #[test]
    fn progress_is_printed_as_in_zfs() {
        let begun = 1_795_238_707;
        let names = ["tank/desk@1", "tank/desk@2", "tank/desk@3", "tank/desk@4"].map(str::to_owned);
        let shown = |script, blocks| Progress { headings: names.clone().into(), script, blocks, told: begun };
        let step = |at: usize, bytes: u64| steadfast_control::wire::Progress {
            what: names[at].clone(),
            bytes,
            blocks: 9_340,
            ..Default::default()
        };
        let mut simple = shown(false, false);
        let heading = |at: usize| format!("TIME        SENT   SNAPSHOT {}\n", names[at]);
        assert_eq!(simple.line(begun, &step(0, 0)), heading(0), "a line a second");
        assert_eq!(simple.line(begun + 1, &step(0, 1_224_065_679)), "05:25:08   1.14G   tank/desk@1\n");
        assert_eq!(simple.line(begun + 1, &step(0, 1_224_065_680)), "");
        // The second was sent in no time.
        assert_eq!(
            simple.line(begun + 3, &step(2, 7)),
            heading(1) + &heading(2) + "05:25:10      7B   tank/desk@3\n"
        );
        assert_eq!(simple.headings_before(None), heading(3));
        let mut parsable = shown(true, false);
        assert_eq!(parsable.line(begun + 3, &step(1, 1024)), "05:25:10\t1024\ttank/desk@2\n");
        assert_eq!(parsable.headings_before(None), "");
        // Given twice, with the blocks.
        let mut detailed = shown(false, true);
        assert_eq!(
            detailed.line(begun + 1, &step(0, 1_224_065_679)),
            "TIME        SENT      BLOCKS    SNAPSHOT tank/desk@1\n\
             05:25:08   1.14G        9340    tank/desk@1\n"
        );
        assert_eq!(shown(true, true).line(begun + 3, &step(1, 1024)), "05:25:10\t1024\t9340\ttank/desk@2\n");
    }
}
